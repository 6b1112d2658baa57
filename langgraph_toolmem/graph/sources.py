"""Sources of an argument's value, as short descriptors that can be evaluated again in another run.

    i|TOOL|PARAM            the latest input PARAM of TOOL
    o|TOOL|PATH             the scalar at JSON path PATH in TOOL's latest output
    l|TOOL|PATH*|next       the first element of a list that the slot has not used yet (loops)
    l|TOOL|PATH*|rest       all that the slot has not used yet, for parallel calls; two at least
    ua|WORDS|EXTENT         what follows WORDS in the user's text, as far as `text.extents` says
    us|SHAPE, ud|FORMAT     the next token of that shape, a date in it
    td|INDEX|DAYS|TIME      a date of the user's text, so many days later, written with a time of day
    od|TOOL|PATH|DAYS|TIME  a date at a JSON path in TOOL's latest output, likewise
    p…, x…                  a place in prompt or context (`graph.seen_input`)

A slot is a (tool, parameter) pair. `discover` finds the descriptors of a value, `evaluate` is its inverse, and
`describe` puts a descriptor into words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.graph.seen_input import END, day_of, from_date, from_input, full_dates, later
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.values import ABSENT, MAX_VALUE_CHARS, canon
from langgraph_toolmem.text.extents import UNTIL, extents, name_start, right_of, until
from langgraph_toolmem.text.values import Text, dates_in, is_word, read_text, shape_of

_MAX_OUTPUTS: Final = 8
MAX_NEAR: Final = 8
"""Dates from which another may be derived."""
_DERIVED: Final = ("td|", "od|")
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d")


def evaluate(descriptor: str, state: RunState, slot: tuple[str, str]) -> Any:
    """Return the value of a source in this run, or ABSENT. The value is not cast to the parameter's type."""
    kind, first, rest = _parsed(descriptor)
    if kind[0] in "px":
        return state.seen.value_at(descriptor)
    if kind in ("td", "od"):
        return _date_from(descriptor, state)
    if kind == "i":
        return state.inputs.get((first, rest), ABSENT)
    if kind[0] == "u":
        for text in (state.user, *state.past_users):
            if text.words:
                value = _from_text(kind[1], rest, text, state.used.get(slot))
                if value is not ABSENT:
                    return value
        return ABSENT
    seen = state.latest_output(first)
    if seen is None:
        return ABSENT
    return seen.scalars.get(rest, ABSENT) if kind == "o" else _list_value(rest, seen.lists, state.used.get(slot, ()))


@cached(mebibytes=4)
def _parsed(descriptor: str) -> tuple[str, str, str]:
    """Split a descriptor into its kind, its tool and the rest."""
    kind, _, rest = descriptor.partition("|")
    if kind[0] == "u":
        return kind, "", rest
    tool, _, rest = rest.rpartition("|") if kind == "i" else rest.partition("|")
    return kind, tool, rest


def is_derived(descriptor: str) -> bool:
    """Return True for a date so many days before or after another date of the run."""
    return descriptor.startswith((*_DERIVED, "pd|", "xd|")) and descriptor.rsplit("|", 2)[1] != "0"


def _date_from(descriptor: str, state: RunState) -> Any:
    kind, _, rest = descriptor.partition("|")
    source, days, written = rest.rsplit("|", 2)
    day = None
    if kind == "td":
        dates = full_dates(state.user.raw)
        day = dates[int(source)] if int(source) < len(dates) else None
    else:
        tool, _, path = source.partition("|")
        seen = state.latest_output(tool)
        day = None if seen is None else day_of(seen.scalars.get(path))
    return ABSENT if day is None else later(day, days, written)


def words_before(descriptor: str) -> str:
    """Return the words that a value follows in the user's text; "" for other sources."""
    if not descriptor.startswith("ua|"):
        return ""
    return descriptor[3:].rpartition("|")[0]


def _list_value(rest: str, lists: Mapping[str, list[Any]], used: Collection[str]) -> Any:
    path, how = rest.split("|")
    values = lists.get(path)
    if not values:
        return ABSENT
    if how == "next":
        return next((v for v in values if canon(v) not in used), ABSENT)
    left = list(dict.fromkeys(v for v in values if isinstance(v, (str, int, float)) and canon(v) not in used))
    return left if len(left) > 1 else ABSENT


def _from_text(kind: str, rest: str, text: Text, used: frozenset[str] | None) -> Any:
    if kind == "s":
        return next((v for v in text.shapes.get(rest, ()) if not used or v not in used), ABSENT)
    return _placed(kind, rest, text.raw)


@cached(mebibytes=4)
def _placed(kind: str, rest: str, raw: str) -> Any:
    text = read_text(raw)
    if kind == "d":
        return _date_in(rest, text)
    words, _, extent = rest.rpartition("|")
    left = words.split(" ")
    for place in text.places.get(left[-1], ()):
        if len(left) > 1 and (place == 0 or text.words[place - 1] != left[0]):
            continue
        if place + 1 >= len(text.words):
            continue
        if extent.startswith(UNTIL):
            span = until(text, place + 1, extent[len(UNTIL) :])
        else:
            span = extents(raw, place + 1).get(extent)  # type: ignore[call-overload]
        if span is not None:
            return text.span(*span)
    return ABSENT


def _date_in(template: str, text: Text) -> Any:
    # `template` is an ISO date without month and day: ``2023-%s 00:00:00``
    dates = dates_in(text.raw)
    return template.replace("%s", dates[0]) if dates else ABSENT


# --- finding the sources of a value ---


def discover(value: Any, state: RunState, slot: tuple[str, str]) -> list[str]:
    """Return the descriptors of an argument's value in this run; each evaluates to it."""
    text = canon(value)
    # An earlier text may have another value at the same place, and a list the value as another type.
    return [
        source
        for source in _found(value, state, slot)
        if from_input(source) or canon(evaluate(source, state, slot)) == text
    ]


def _found(value: Any, state: RunState, slot: tuple[str, str]) -> list[str]:
    if isinstance(value, (list, dict, bool)) or value is None:
        return []
    text = canon(value)
    if not text or len(text) > MAX_VALUE_CHARS:
        return []
    found = [f"i|{t}|{p}" for (t, p), given in state.input_texts.items() if given == text and _plain(t, p)]
    found += _in_outputs(text, state, slot)
    used = state.used.get(slot)
    for source in (state.user, *state.past_users):
        spots = _in_text(text, source, used)
        if spots:
            found += [f"u{spot}" for spot in spots]
            break
    places = state.seen.places(text, derived=not found)
    if not found and not places and _ISO.match(text):
        return _near_dates(text, state)
    return found + places


def _near_dates(text: str, state: RunState) -> list[str]:
    """Return the dates of the user's text and of outputs from which a date may be derived."""
    found = []
    for index, day in enumerate(full_dates(state.user.raw)):
        if how := from_date(text, day):
            found.append(f"td|{index}|{how}")
    for tool in list(state.outputs)[-_MAX_OUTPUTS:]:
        seen = state.latest_output(tool)
        if seen is None or not _plain(tool):
            continue
        for path, value in seen.scalars.items():
            known = day_of(value) if _plain(path) else None
            if known is not None and (how := from_date(text, known)):
                found.append(f"od|{tool}|{path}|{how}")
    return found[:MAX_NEAR]


def _plain(*names: str) -> bool:
    return not any("|" in name for name in names)


def _in_outputs(text: str, state: RunState, slot: tuple[str, str]) -> list[str]:
    found: list[str] = []
    used = state.used.get(slot, frozenset())
    for tool in list(state.outputs)[-_MAX_OUTPUTS:]:
        seen = state.latest_output(tool)
        if seen is None or not _plain(tool):
            continue
        found += [f"o|{tool}|{path}" for path, v in seen.scalars.items() if canon(v) == text]
        for path, values in seen.lists.items():
            if _plain(path) and _first_unused([canon(v) for v in values], used) == text:
                found.append(f"l|{tool}|{path}|next")
    return found


def _first_unused(values: list[str] | tuple[str, ...], used: frozenset[str] | None) -> str | None:
    return next((v for v in values if not used or v not in used), None)


def _in_text(value: str, text: Text, used: frozenset[str] | None) -> list[str]:
    # descriptors without their first letter
    if not text.words:
        return []
    span = text.find(value)
    if span is None:
        is_date = _ISO.match(value) and "|" not in value
        template = f"{value[:5]}%s{value[10:]}"
        return [f"d|{template}"] if is_date and _date_in(template, text) == value else []
    return _places(text, *span, used) if text.span(*span) == value else []


def _places(text: Text, first: int, last: int, used: frozenset[str] | None) -> list[str]:
    found: list[str] = []
    if all(map(is_word, text.words[first : last + 1])):
        reach = [extent for extent, span in extents(text.raw, first).items() if span == (first, last)]
        ends: list[str] = [*reach] or [f"{UNTIL}{right_of(text, last)}"]
        found = [f"a|{left}|{end}" for left in _lefts(text, first) for end in ends]
        start = name_start(text, first)
        if start < first and extents(text.raw, start).get("last") == (first, last):
            found += [f"a|{left}|last" for left in _lefts(text, start)]
    value = text.span(first, last)
    if first == last and (shape := shape_of(value)) and _first_unused(text.shapes[shape], used):
        found.append(f"s|{shape}")
    return [spot for spot in found if _from_text(spot[0], spot[2:], text, used) == value]


def _lefts(text: Text, first: int) -> list[str]:
    """Return the word before a span, and the two words before it."""
    words = text.words
    lefts = [f"{words[first - 2]} {words[first - 1]}"] if first > 1 else []
    if first == 1 or (first > 1 and is_word(words[first - 1])):
        lefts.append(words[first - 1])
    return [left for left in lefts if _plain(left)]


# --- words for them ---

_IN_WORDS: Final = {
    "c": "its most frequent value",
    "cp": "its most frequent value at this point",
    "n": "the nearest past request, its values replaced by this request's",
    "w": "the call that followed the same calls before",
    "env": "the environment adapter",
    "goal": "the user's goal",
}


def describe(descriptor: str) -> str:
    if descriptor in _IN_WORDS:
        return _IN_WORDS[descriptor]
    kind, _, rest = descriptor.partition("|")
    if kind == "i":
        tool, _, parameter = rest.rpartition("|")
        return f"the same value as {parameter} of the earlier call to {tool}"
    if kind == "o":
        tool, _, path = rest.partition("|")
        return f"{path} in the output of {tool}"
    if kind == "l":
        tool, path, how = rest.split("|")
        which = "the next unused element" if how == "next" else "for each call one unused element"
        return f"{which} of {path} in the output of {tool}"
    if from_input(descriptor) or descriptor.startswith(_DERIVED):
        return _describe_input(kind, rest)
    left, _, extent = rest.rpartition("|")
    return {
        "ua": f"{_describe_extent(extent)} after “{left}” in the user's words",
        "ud": "the date in the user's words",
        "us": f"the next token of the form {rest} in the user's words",
    }[kind]


_EXTENTS: Final = {
    "first": "the first word of the name",
    "last": "the last word of the name",
    "name": "the name",
    "joined": "the whole name",
    "numbered": "the name and the numbers",
    "token": "the number",
}


def _describe_extent(extent: str) -> str:
    if extent in _EXTENTS:
        return _EXTENTS[extent]
    right = extent[len(UNTIL) :]
    ends = {".": "a mark or the end", "#": "a number"}.get(right, f"“{right}”")
    return f"the words before {ends}"


def _describe_input(kind: str, rest: str) -> str:
    first, _, last = rest.rpartition("|")
    if kind == "pa":
        end = "the end of the line" if last == END else f"“{last}”"
        return f"what stands between “{first}” and {end} in the prompt"
    if kind == "xf":
        return f"the context's {rest}"
    source, days, _ = rest.rsplit("|", 2)
    tool, _, path = source.partition("|")
    of = {
        "pd": "the prompt's date",
        "xd": f"the date in the context's {source}",
        "td": "the date in the user's words",
        "od": f"the date in {path} of the output of {tool}",
    }[kind]
    return of if days == "0" else f"{of} and {int(days):+d} days"
