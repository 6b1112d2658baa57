"""Sources of an argument's value, as short descriptors that can be evaluated again in another run.

    i|TOOL|PARAM            the latest input PARAM of TOOL
    o|TOOL|PATH             the scalar at JSON path PATH in TOOL's latest output
    l|TOOL|PATH*|next       the first element of a list that the slot has not used yet (loops)
    l|TOOL|PATH*|rest       all elements that the slot has not used yet, for parallel calls; at least two
    ua|WORDS|EXTENT         the text after WORDS in the user's text, up to the end by its extent
    us|SHAPE, ud|FORMAT     the next token of that shape, a date in it
    td|INDEX|DAYS|TIME      a date of the user's text, so many days later, written with a time of day
    od|TOOL|PATH|DAYS|TIME  a date at a JSON path in TOOL's latest output, likewise
    p…, x…                  a place in prompt or context (`graph.seen_input`)

A slot is a (tool, parameter) pair. `discover` finds the descriptors of a value, `evaluate` is its inverse, and
`describe` returns a descriptor as a text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.graph.seen_input import LINE_END, day_of, from_date, from_input, full_dates, later
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.values import ABSENT, VALUE_LIMITS, canon
from langgraph_toolmem.text.values import (
    UNTIL,
    Text,
    dates_in,
    extents,
    is_word,
    name_start,
    read_text,
    right_of,
    shape_of,
    until,
)


def evaluate(descriptor: str, state: RunState, slot: tuple[str, str]) -> Any:
    """Return the value of a source in this run, or ABSENT. The value is not cast to the parameter's type."""
    kind, tool, rest = _parsed(descriptor)
    if kind[0] in "px":
        return state.seen.value_at(descriptor)
    if kind in ("td", "od"):
        return _date_from(descriptor, state)
    if kind == "i":
        return state.inputs.get((tool, rest), ABSENT)
    if kind[0] == "u":
        return _from_user(kind[1], rest, state, slot)
    seen = state.latest_output(tool)
    if seen is None:
        return ABSENT
    if kind == "o":
        return seen.scalars.get(rest, ABSENT)
    return _list_value(rest, seen.lists, state.used.get(slot, ()))


def _from_user(kind: str, rest: str, state: RunState, slot: tuple[str, str]) -> Any:
    """Return the value of a source in the latest user message that has one: "yes" has none."""
    for text in (state.user, *state.past_users):
        if text.words:
            value = _from_text(kind, rest, text, state.used.get(slot))
            if value is not ABSENT:
                return value
    return ABSENT


class Descriptor(NamedTuple):
    """The parts of a descriptor; the tool is "" if it is not named."""

    kind: str
    tool: str
    rest: str


@cached(mebibytes=4)
def _parsed(descriptor: str) -> Descriptor:
    kind, _, rest = descriptor.partition("|")
    if kind[0] == "u":
        return Descriptor(kind, "", rest)
    if kind == "i":
        # The name of a parameter cannot contain "|", but the name of a tool may.
        tool, _, parameter = rest.rpartition("|")
        return Descriptor(kind, tool, parameter)
    tool, _, path = rest.partition("|")
    return Descriptor(kind, tool, path)


def is_derived(descriptor: str) -> bool:
    """Return True for a date so many days before or after another date of the run."""
    if not descriptor.startswith(("td|", "od|", "pd|", "xd|")):
        return False
    # With no day between, it is the date itself.
    return descriptor.rsplit("|", 2)[1] != "0"


def _date_from(descriptor: str, state: RunState) -> Any:
    kind, _, rest = descriptor.partition("|")
    source, days, written = rest.rsplit("|", 2)
    day = None
    if kind == "td":
        dates = full_dates(state.user.raw)
        if int(source) < len(dates):
            day = dates[int(source)]
    else:
        tool, _, path = source.partition("|")
        seen = state.latest_output(tool)
        if seen is not None:
            day = day_of(seen.scalars.get(path))
    if day is None:
        return ABSENT
    return later(day, days, written)


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
        return _next_element(values, used)
    unused: dict[Any, None] = {}
    for value in values:
        if isinstance(value, (str, int, float)) and canon(value) not in used:
            unused[value] = None
    # One remaining element is one call, which "next" gives.
    if len(unused) < 2:
        return ABSENT
    return list(unused)


def _next_element(values: Sequence[Any], used: Collection[str]) -> Any:
    """Return the first element of a list that the slot has not used yet, or ABSENT."""
    for value in values:
        if canon(value) not in used:
            return value
    return ABSENT


def _from_text(kind: str, rest: str, text: Text, used: frozenset[str] | None) -> Any:
    if kind != "s":
        return _placed(kind, rest, text.raw)
    unused = _first_unused(text.shapes.get(rest, ()), used)
    if unused is None:
        return ABSENT
    return unused


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
    """Return the first date of a text in a template: an ISO date without month and day, ``2023-%s 00:00:00``."""
    dates = dates_in(text.raw)
    if not dates:
        return ABSENT
    return template.replace("%s", dates[0])


# --- finding the sources of a value ---


def discover(value: Any, state: RunState, slot: tuple[str, str]) -> list[str]:
    """Return the descriptors of an argument's value in this run; each evaluates to it."""
    text = canon(value)
    sources = []
    for source in _candidates(value, state, slot):
        # An earlier text may have another value at the same place, and a list the value as another type.
        if from_input(source) or canon(evaluate(source, state, slot)) == text:
            sources.append(source)
    return sources


def _candidates(value: Any, state: RunState, slot: tuple[str, str]) -> list[str]:
    # Two equal truth values do not prove a source, and a list has no place of its own.
    if isinstance(value, (list, dict, bool)) or value is None:
        return []
    text = canon(value)
    if not text or len(text) > VALUE_LIMITS.characters:
        return []
    sources = []
    for (tool, parameter), given in state.input_texts.items():
        if given == text and _plain(tool, parameter):
            sources.append(f"i|{tool}|{parameter}")
    sources += _in_outputs(text, state, slot)
    used = state.used.get(slot)
    # The latest message with the value: older ones may have it elsewhere.
    for said in (state.user, *state.past_users):
        spots = _in_text(text, said, used)
        if spots:
            sources += [f"u{spot}" for spot in spots]
            break
    places = state.seen.places(text, derived=not sources)
    # A date that is in the run itself is not derived from another date.
    if not sources and not places and _is_iso(text):
        return _near_dates(text, state)
    return sources + places


def _is_iso(text: str) -> bool:
    return re.match(r"\d{4}-\d\d-\d\d", text) is not None


def _near_dates(text: str, state: RunState) -> list[str]:
    """Return the dates of the user's text and of outputs from which a date may be derived."""
    most_sources = 8  # an output with a date in each of its fields would fill the slot
    sources = []
    for number, day in enumerate(full_dates(state.user.raw)):
        distance = from_date(text, day)
        if distance:
            sources.append(f"td|{number}|{distance}")
    for index in state.recent_outputs():
        tool = state.steps[index].tool
        if not _plain(tool):
            continue
        for path, value in state.observation(index).scalars.items():
            known = day_of(value)
            if known is None or not _plain(path):
                continue
            distance = from_date(text, known)
            if distance:
                sources.append(f"od|{tool}|{path}|{distance}")
    return sources[:most_sources]


def _plain(*names: str) -> bool:
    """Return True if names can be parts of a descriptor."""
    for name in names:
        if "|" in name:
            return False
    return True


def _in_outputs(text: str, state: RunState, slot: tuple[str, str]) -> list[str]:
    sources: list[str] = []
    used = state.used.get(slot, frozenset())
    for index in state.recent_outputs():
        tool, seen = state.steps[index].tool, state.observation(index)
        if not _plain(tool):
            continue
        for path, scalar in seen.scalars.items():
            if canon(scalar) == text:
                sources.append(f"o|{tool}|{path}")
        for path, values in seen.lists.items():
            if _plain(path) and canon(_next_element(values, used)) == text:
                sources.append(f"l|{tool}|{path}|next")
    return sources


def _first_unused(values: Sequence[str], used: frozenset[str] | None) -> str | None:
    for value in values:
        if not used or value not in used:
            return value
    return None


def _in_text(value: str, text: Text, used: frozenset[str] | None) -> list[str]:
    """Return the places of a value in a user's text, as descriptors without their first letter."""
    if not text.words:
        return []
    span = text.find(value)
    if span is None:
        return _date_template(value, text)
    if text.span(*span) != value:
        # In another case: the source would give the text's own letters.
        return []
    return _places(text, *span, used)


def _date_template(value: str, text: Text) -> list[str]:
    """Return the source of an ISO date whose month and day the text names; [] for any other value."""
    if _is_iso(value) and "|" not in value:
        template = f"{value[:5]}%s{value[10:]}"
        if _date_in(template, text) == value:
            return [f"d|{template}"]
    return []


def _places(text: Text, first: int, last: int, used: frozenset[str] | None) -> list[str]:
    spots: list[str] = []
    if all(map(is_word, text.words[first : last + 1])):
        spots = _after_words(text, first, last)
    value = text.span(first, last)
    if first == last:
        shape = shape_of(value)
        if shape and _first_unused(text.shapes[shape], used):
            spots.append(f"s|{shape}")
    # The same words may occur earlier, before another value.
    return [spot for spot in spots if _from_text(spot[0], spot[2:], text, used) == value]


def _after_words(text: Text, first: int, last: int) -> list[str]:
    """Return the places of a span by the words before it and its extent."""
    ends: list[str] = []
    for extent, span in extents(text.raw, first).items():
        if span == (first, last):
            ends.append(extent)
    if not ends:
        ends.append(f"{UNTIL}{right_of(text, last)}")
    spots = []
    for left in _lefts(text, first):
        for end in ends:
            spots.append(f"a|{left}|{end}")
    # The last word of a name is described by the words before the whole name.
    start = name_start(text, first)
    if start < first and extents(text.raw, start).get("last") == (first, last):
        for left in _lefts(text, start):
            spots.append(f"a|{left}|last")
    return spots


def _lefts(text: Text, first: int) -> list[str]:
    """Return the word before a span, and the two words before it."""
    words = text.words
    lefts = []
    if first > 1:
        lefts.append(f"{words[first - 2]} {words[first - 1]}")
    # A mark alone occurs at many places of a text.
    if first == 1 or (first > 1 and is_word(words[first - 1])):
        lefts.append(words[first - 1])
    return [left for left in lefts if _plain(left)]


# --- texts ---


def describe(descriptor: str) -> str:
    without_place = {
        "c": "its most frequent value",
        "cp": "its most frequent value at this point",
        "n": "the nearest past request, its values replaced by this request's",
        "w": "the call that followed the same calls before",
        "env": "the environment adapter",
        "goal": "the user's goal",
    }
    if descriptor in without_place:
        return without_place[descriptor]
    kind, _, rest = descriptor.partition("|")
    if kind == "i":
        tool, _, parameter = rest.rpartition("|")
        return f"the same value as {parameter} of the earlier call to {tool}"
    if kind == "o":
        tool, _, path = rest.partition("|")
        return _place(path, tool)
    if kind == "l":
        tool, path, how = rest.split("|")
        which = "for each call one unused element"
        if how == "next":
            which = "the next unused element"
        return f"{which} of {_place(path, tool)}"
    if from_input(descriptor) or descriptor.startswith(("td|", "od|")):
        return _describe_input(kind, rest)
    if kind == "ua":
        left, _, extent = rest.rpartition("|")
        return f"{_describe_extent(extent)} after “{left}” in the user's words"
    if kind == "ud":
        return "the date in the user's words"
    return f"the next token of the form {rest} in the user's words"


def _place(path: str, tool: str) -> str:
    """Return a place in a tool's result as a text; ``$`` is the whole result."""
    inside = path.removeprefix("$").removeprefix(".")
    if not inside:
        return f"the result of {tool}"
    return f"{inside} in the result of {tool}"


def _describe_extent(extent: str) -> str:
    in_words = {
        "first": "the first word of the name",
        "last": "the last word of the name",
        "name": "the name",
        "joined": "the whole name",
        "numbered": "the name and the numbers",
        "token": "the number",
    }
    if extent in in_words:
        return in_words[extent]
    right = extent[len(UNTIL) :]
    ends = {".": "a mark or the end", "#": "a number"}.get(right, f"“{right}”")
    return f"the words before {ends}"


def _describe_input(kind: str, rest: str) -> str:
    first, _, last = rest.rpartition("|")
    if kind == "pa":
        end = f"“{last}”"
        if last == LINE_END:
            end = "the end of the line"
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
    if days == "0":
        return of
    return f"{of} and {int(days):+d} days"
