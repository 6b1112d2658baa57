"""Sources of an argument's value, as short descriptors that can be evaluated again in another run.

    i|TOOL|PARAM            the latest input PARAM of TOOL
    o|TOOL|PATH             the scalar at JSON path PATH in TOOL's latest output
    l|TOOL|PATH*|next       the first element of a list that the slot has not used yet (loops)
    l|TOOL|PATH*|rest       all that the slot has not used yet, for parallel calls; two at least
    l|TOOL|PATH*|last       the last element, `only`: the single element, `all`: the whole list
    l|TOOL|PATH*|next@PATH2*  the same among the rows of the list whose PATH2 the user named
    ua|WORDS|N              the N words that follow WORDS in the user's text
    ub|WORDS|WORD           what stands between WORDS and WORD in it ("" for the end of the text)
    uq, us|SHAPE, ud|FORMAT the next quoted part, the next token of that shape, a date in it
    xa|TOOL|WORDS|N         the same in TOOL's latest free-text output (`xb`, `xs`, `xq`, `xd`)
    m|TOOL|PATH             the scalars at PATH in all of TOOL's outputs since the user's message, two at least
    []DESCRIPTOR            a list with that one value
    &DESCRIPTOR             a list of the parts of the value that commas or a word for "and" join, two at least
    ^DESCRIPTOR             the value with its first letter in upper case, ~DESCRIPTOR: all in lower case
    t|TEMPLATE|DESCRIPTOR   the value in place of % in TEMPLATE

A slot is a (tool, parameter) pair. `discover` finds the descriptors of a value, `evaluate` is its inverse, and
`describe` puts a descriptor into words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.graph.state import Observation, RunState
from langgraph_toolmem.runs.values import MAX_VALUE_CHARS, canon
from langgraph_toolmem.words.text import (
    MAX_SPAN_WORDS,
    Text,
    dates_in,
    is_word,
    quoted_parts,
    read_text,
    shape_of,
)
from langgraph_toolmem.words.values import date_of


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""Value of a source that this run does not have."""

MARKS: Final = "[]^~&"
"""Prefixes that change a descriptor's value."""
MAX_BETWEEN: Final = 40
"""Longest value between two words, in words."""
_MAX_OUTPUTS: Final = 8
_MAX_COUNTED: Final = 4
_MAX_NAMES: Final = 4
_MAX_TEMPLATES: Final = 3
_JOINED: Final = re.compile(r"(?:\s*[,;&、，]\s*|\s+)(?:and|und|et|y|e|en|og|och|oraz|i)\s+|\s*[,;&、，]\s*")


def evaluate(descriptor: str, state: RunState, slot: tuple[str, str]) -> Any:
    """Return the value of a source in this run, or MISSING. The value is not cast to the parameter's type."""
    head = descriptor[0]
    if head == "[":
        inner = evaluate(descriptor[2:], state, slot)
        return MISSING if inner is MISSING or isinstance(inner, list) else [inner]
    if head in "^~&":
        inner = evaluate(descriptor[1:], state, slot)
        if not isinstance(inner, str):
            return MISSING
        if head == "&":
            parts = _parts(inner)
            return parts if len(parts) > 1 else MISSING
        return inner.lower() if head == "~" else inner[:1].upper() + inner[1:]
    kind, _, rest = descriptor.partition("|")
    if kind == "t":
        template, _, source = rest.partition("|")
        inner = evaluate(source, state, slot)
        return MISSING if inner is MISSING or isinstance(inner, list) else template.replace("%", canon(inner), 1)
    if kind == "i":
        tool, _, parameter = rest.rpartition("|")
        return state.inputs.get((tool, parameter), MISSING)
    if kind == "o":
        tool, _, path = rest.partition("|")
        seen = state.latest_output(tool)
        return MISSING if seen is None else seen.scalars.get(path, MISSING)
    if kind == "l":
        return _list_value(rest, state, slot)
    if kind == "m":
        tool, _, path = rest.partition("|")
        values = _gathered(tool, state).get(path, ())
        return list(values) if len(values) > 1 else MISSING
    if head == "u":
        for text in (state.user, *state.past_users):
            value = _from_text(kind[1], rest, text, state.used.get(slot))
            if value is not MISSING:
                return value
        return MISSING
    tool, _, rest = rest.partition("|")
    seen = state.latest_output(tool)
    return MISSING if seen is None else _from_text(kind[1], rest, seen.text, state.used.get(slot))


def _gathered(tool: str, state: RunState) -> dict[str, list[Any]]:
    # the scalars of all of a tool's outputs since the user's message, by path
    found: dict[str, list[Any]] = {}
    for index in range(len(state.steps) - len(state.since_user), len(state.steps)):
        step = state.steps[index]
        if step.tool == tool and step.status == "ok" and step.output is not None:
            for path, value in state.observation(index).scalars.items():
                found.setdefault(path, []).append(value)
    return found


def _parts(text: str) -> list[str]:
    return [part for part in _JOINED.split(text) if part]


def is_template(descriptor: str) -> bool:
    """Return True if a part of the value is of another run: a template's words, a date's year."""
    return descriptor.lstrip(MARKS).startswith(("t|", "ud|", "xd|"))


def _list_value(rest: str, state: RunState, slot: tuple[str, str]) -> Any:
    tool, path, how = rest.split("|")
    seen = state.latest_output(tool)
    values = None if seen is None else seen.lists.get(path)
    if seen is None or not values:
        return MISSING
    how, _, named_by = how.partition("@")
    if named_by:
        wanted = _named_rows(seen, named_by, state)
        values = [v for v, row in zip(values, seen.rows[path], strict=True) if row in wanted]
        if not values:
            return MISSING
    used = state.used.get(slot, ())
    if how == "next":
        return next((v for v in values if canon(v) not in used), MISSING)
    if how == "rest":
        left = list(dict.fromkeys(v for v in values if isinstance(v, (str, int, float)) and canon(v) not in used))
        return left if len(left) > 1 else MISSING
    if how == "last":
        return values[-1]
    if how == "only":
        return values[0] if len(values) == 1 else MISSING
    return list(values)


def _named_rows(seen: Observation, path: str, state: RunState) -> set[int]:
    # rows of a list in which the user named the value at `path`
    return {
        row
        for value, row in zip(seen.lists.get(path, ()), seen.rows.get(path, ()), strict=True)
        if isinstance(value, str) and len(value) > 2 and state.user.find(value)
    }


def _from_text(kind: str, rest: str, text: Text, used: frozenset[str] | None) -> Any:
    if not text.words:
        return MISSING
    if kind in "ab":
        left, _, right = rest.rpartition("|")
        return _after(left.split(" "), int(right), text) if kind == "a" else _between(left.split(" "), right, text)
    if kind == "q":
        found: tuple[str, ...] | list[str] = quoted_parts(text.raw)
    elif kind == "s":
        found = text.with_shape(rest)
    else:
        return _date_in(rest, text)
    if used:
        return next((v for v in found if v not in used), MISSING)
    return found[0] if found else MISSING


def _after(left: list[str], count: int, text: Text) -> Any:
    for first in _places_after(left, text):
        if first + count <= len(text.words) and all(map(is_word, text.words[first : first + count])):
            return text.span(first, first + count - 1)
    return MISSING


def _between(left: list[str], right: str, text: Text) -> Any:
    for first in _places_after(left, text):
        end = next((i for i in text.places(right) if i > first), None) if right else len(text.words)
        if end is not None and end - first <= MAX_BETWEEN:
            return text.span(first, end - 1)
    return MISSING


def _places_after(left: list[str], text: Text) -> Iterator[int]:
    for place in text.places(left[-1]):
        if (len(left) == 1 or (place > 0 and text.words[place - 1] == left[0])) and place + 1 < len(text.words):
            yield place + 1


def _date_in(template: str, text: Text) -> Any:
    # `template` is an ISO date without month and day: ``2023-%s 00:00:00``
    dates = dates_in(text.raw)
    return template.replace("%s", dates[0]) if dates else MISSING


# --- finding the sources of a value ---


def discover(value: Any, state: RunState, slot: tuple[str, str]) -> list[str]:
    """Return the descriptors of an argument's value in this run; each evaluates to it."""
    text = canon(value)
    # An earlier text may have another value at the same place, and a list the value as another type.
    return [found for found in _found(value, state, slot) if canon(evaluate(found, state, slot)) == text]


def _found(value: Any, state: RunState, slot: tuple[str, str]) -> list[str]:
    if isinstance(value, list):
        if len(value) == 1 and not isinstance(value[0], (list, dict)):
            return ["[]" + d for d in _found(value[0], state, slot)]
        return _whole_lists(value, state, slot)
    if isinstance(value, (dict, bool)) or value is None:
        return []
    text = canon(value)
    if not text or len(text) > MAX_VALUE_CHARS:
        return []
    found = [f"i|{t}|{p}" for (t, p), v in state.inputs.items() if _plain(t, p) and canon(v) == text]
    found += _in_outputs(text, state, slot)
    used = state.used.get(slot)
    for source in (state.user, *state.past_users):
        spots = _in_text(text, source, used)
        if spots:
            found += [_with_letter(spot, "u") for spot in spots]
            break
    if isinstance(value, str) and not found:
        found += _templates(text, state, used)
    return found


def _plain(*names: str) -> bool:
    return not any("|" in name for name in names)


def _with_letter(spot: str, letter: str, tool: str | None = None) -> str:
    # ``^a|to|1`` → ``^ua|to|1``, or with a tool ``^xa|TOOL|to|1``
    mark = spot[0] if spot[0] in "^~" else ""
    kind, _, rest = spot.removeprefix(mark).partition("|")
    return f"{mark}{letter}{kind}|{rest}" if tool is None else f"{mark}{letter}{kind}|{tool}|{rest}"


def _whole_lists(value: list[Any], state: RunState, slot: tuple[str, str]) -> list[str]:
    wanted = [canon(v) for v in value]
    found: list[str] = []
    for tool in dict.fromkeys(step.tool for step in state.since_user):
        several = _gathered(tool, state) if len(wanted) > 1 and _plain(tool) else {}
        found += [f"m|{tool}|{path}" for path, values in several.items() if [canon(v) for v in values] == wanted]
    if len(wanted) > 1 and (span := _enumerated(wanted, state.user.raw)):
        spots = _in_text(span, state.user, state.used.get(slot))
        found += ["&" + _with_letter(spot, "u") for spot in spots]
    for tool in list(state.outputs)[-_MAX_OUTPUTS:]:
        seen = state.latest_output(tool)
        if seen is None:
            continue
        for path, values in seen.lists.items():
            if not wanted or not _plain(tool, path):
                continue
            texts = [canon(v) for v in values]
            if texts == wanted:
                found.append(f"l|{tool}|{path}|all")
            elif len(texts) > len(wanted) and wanted[0] in texts:
                found += [
                    f"l|{tool}|{path}|all@{o}" for o, within in _named(texts, path, seen, state) if within == wanted
                ]
    return found


def _enumerated(wanted: list[str], raw: str) -> str:
    # the part of a text that lists exactly these values in this order
    first, last = raw.find(wanted[0]), raw.find(wanted[-1])
    span = raw[first : last + len(wanted[-1])] if 0 <= first < last else ""
    return span if span and _parts(span) == wanted else ""


def _named(texts: list[str], path: str, seen: Observation, state: RunState) -> list[tuple[str, list[str]]]:
    # per other field of the list's rows: the elements in rows where the user named that field's value
    prefix = path[: path.index("[*]") + 3] if "[*]" in path else path
    found = []
    for other in seen.lists:
        if other != path and other.startswith(prefix) and "|" not in other:
            rows = _named_rows(seen, other, state)
            if rows:
                found.append((other, [t for t, row in zip(texts, seen.rows[path], strict=True) if row in rows]))
    return found


def _in_outputs(text: str, state: RunState, slot: tuple[str, str]) -> list[str]:
    found: list[str] = []
    used = state.used.get(slot, frozenset())
    for tool in list(state.outputs)[-_MAX_OUTPUTS:]:
        seen = state.latest_output(tool)
        if seen is None or not _plain(tool):
            continue
        found += [f"o|{tool}|{path}" for path, v in seen.scalars.items() if canon(v) == text]
        for path, values in seen.lists.items():
            texts = [canon(v) for v in values]
            if text not in texts or not _plain(path):
                continue
            base = f"l|{tool}|{path}"
            if _first_unused(texts, used) == text:
                found.append(f"{base}|next")
            if texts[-1] == text:
                found.append(f"{base}|last")
            if len(texts) == 1:
                found.append(f"{base}|only")
                continue
            for other, within in _named(texts, path, seen, state)[:_MAX_NAMES]:
                if within and _first_unused(within, used) == text:
                    found.append(f"{base}|next@{other}")
                if within == [text]:
                    found.append(f"{base}|only@{other}")
        if seen.text.words and seen.scalars.get("$") != text:
            found += [_with_letter(spot, "x", tool) for spot in _in_text(text, seen.text, used)]
    return found


def _first_unused(values: list[str] | tuple[str, ...], used: frozenset[str] | None) -> str | None:
    return next((v for v in values if not used or v not in used), None)


def _in_text(value: str, text: Text, used: frozenset[str] | None) -> list[str]:
    # descriptors without their first letter
    if not text.words:
        return []
    found = ["q|"] if _first_unused(quoted_parts(text.raw), used) == value else []
    span = text.find(value)
    if span is None:
        date = date_of(day := value[:10]) == day
        if date and "|" not in value and _date_in(template := f"{day[:5]}%s{value[10:]}", text) == value:
            found.append(f"d|{template}")
        return found
    mark = _case_mark(text.span(*span), value)
    return found if mark is None else found + [mark + spot for spot in _places(text, *span, used)]


def _case_mark(raw: str, value: str) -> str | None:
    if raw == value:
        return ""
    if raw[:1].upper() + raw[1:] == value:
        return "^"
    return "~" if raw.lower() == value else None


def _places(text: Text, first: int, last: int, used: frozenset[str] | None) -> list[str]:
    found = []
    count = last - first + 1
    words = text.words
    lefts = [f"{words[first - 2]} {words[first - 1]}"] if first > 1 else []
    if first == 1 or (first > 1 and is_word(words[first - 1])):
        lefts.append(words[first - 1])
    right = words[last + 1] if last + 1 < len(words) else ""
    for position, left in enumerate(lefts):
        if _plain(left, right):
            # With one word on the left, the word behind the value rarely suffices to find it again.
            if position == 0:
                found.append(f"b|{left}|{right}")
            if count <= _MAX_COUNTED and all(map(is_word, words[first : last + 1])):
                found.append(f"a|{left}|{count}")
    if count == 1 and (shape := shape_of(text.span(first, last))) and _first_unused(text.with_shape(shape), used):
        found.append(f"s|{shape}")
    value = text.span(first, last)
    return [spot for spot in found if _from_text(spot[0], spot[2:], text, used) == value]


def _templates(value: str, state: RunState, used: frozenset[str] | None) -> list[str]:
    # a value with words of the user in the middle of other words: ``Open tasks in %``
    parts = read_text(value)
    if not 2 <= len(parts.words) <= MAX_SPAN_WORDS or "%" in value or "|" in value:
        return []
    best: tuple[int, int, int] | None = None
    for first in range(len(parts.words)):
        last = first - 1
        while last + 1 < len(parts.words) and state.user.find(parts.span(first, last + 1)):
            last += 1
        if last >= first and (best is None or last - first > best[0]):
            best = (last - first, first, last)
    if best is None or best[0] + 1 == len(parts.words):
        return []
    _, first, last = best
    own = parts.span(first, last)
    if not is_word(own) or (best[0] == 0 and shape_of(own) is None and not own[:1].isupper()):
        return []
    template = value[: parts.starts[first]] + "%" + value[parts.ends[last] :]
    return [f"t|{template}|{_with_letter(spot, 'u')}" for spot in _in_text(own, state.user, used)][:_MAX_TEMPLATES]


# --- words for them ---

_IN_WORDS: Final = {
    "c": "its most frequent value",
    "cp": "its most frequent value at this point",
    "n": "the nearest past request, its values replaced by this request's",
    "w": "the call that followed the same calls before",
    "env": "the environment adapter",
    "goal": "the user's goal",
}
_WHICH: Final = {
    "next": "the next unused element of",
    "rest": "for each call one unused element of",
    "last": "the last element of",
    "only": "the one element of",
}


def describe(descriptor: str) -> str:
    """Return a descriptor in words."""
    if descriptor in _IN_WORDS:
        return _IN_WORDS[descriptor]
    if descriptor.startswith("[]"):
        return "a list with " + describe(descriptor[2:])
    if descriptor[0] == "&":
        return "each of " + describe(descriptor[1:])
    if descriptor[0] in "^~":
        return describe(descriptor[1:])
    kind, _, rest = descriptor.partition("|")
    if kind == "t":
        template, _, source = rest.partition("|")
        return f"“{template}” with {describe(source)}"
    if kind == "i":
        tool, _, parameter = rest.rpartition("|")
        return f"the same value as {parameter} of the earlier call to {tool}"
    if kind == "o":
        tool, _, path = rest.partition("|")
        return f"{path} in the output of {tool}"
    if kind == "m":
        tool, _, path = rest.partition("|")
        return f"{path} in all outputs of {tool} since the user's message"
    if kind == "l":
        tool, path, how = rest.split("|")
        how, _, named_by = how.partition("@")
        named = f" where the user named {named_by}" if named_by else ""
        return f"{_WHICH.get(how, 'the whole list')} {path} in the output of {tool}{named}"
    where = "the user's words"
    if kind[0] == "x":
        tool, _, rest = rest.partition("|")
        where = f"the text that {tool} answered"
    return f"{_place(kind[1], rest)} {where}"


def _place(kind: str, rest: str) -> str:
    left, _, right = rest.rpartition("|")
    return {
        "a": f"{right} word(s) after “{left}” in",
        "b": f"the text between “{left}” and {f'“{right}”' if right else 'the end'} in",
        "q": "the next quoted part of",
        "d": "the date in",
        "s": f"the next token of the form {rest} in",
    }[kind]
