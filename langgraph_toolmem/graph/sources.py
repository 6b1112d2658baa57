"""Where an argument's value came from, as short descriptors that can be evaluated again in another run.

    i|TOOL|PARAM            the latest input PARAM of TOOL
    o|TOOL|PATH             the scalar at JSON path PATH in TOOL's latest output
    l|TOOL|PATH*|next       the first element of a list that this slot has not used yet (loops)
    l|TOOL|PATH*|rest       all that this slot has not used yet, for calls made at once; two at least
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

A slot is a (tool, parameter) pair. `discovery` finds the descriptors of a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.graph.state import Observation, RunState
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.words.text import Text, dates_in, is_word, quoted_parts


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""A source has nothing to offer in this run."""

MARKS: Final = "[]^~&"
"""What stands before a descriptor and changes its value."""
MAX_BETWEEN: Final = 40
"""Words that may stand between two others."""
_JOINED: Final = re.compile(r"(?:\s*[,;&、，]\s*|\s+)(?:and|und|et|y|e|en|og|och|oraz|i)\s+|\s*[,;&、，]\s*")


def evaluate(descriptor: str, state: RunState, slot: tuple[str, str]) -> Any:
    """The value a source offers now, or MISSING. No cast to the parameter's type is made."""
    head = descriptor[0]
    if head == "[":
        inner = evaluate(descriptor[2:], state, slot)
        return MISSING if inner is MISSING or isinstance(inner, list) else [inner]
    if head in "^~&":
        inner = evaluate(descriptor[1:], state, slot)
        if not isinstance(inner, str):
            return MISSING
        if head == "&":
            parts = joined_parts(inner)
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
        return _from_list(rest, state, slot)
    if kind == "m":
        tool, _, path = rest.partition("|")
        values = gathered(tool, state).get(path, ())
        return list(values) if len(values) > 1 else MISSING
    if head == "u":
        for text in (state.user, *state.past_users):
            value = from_text(kind[1], rest, text, state.used.get(slot))
            if value is not MISSING:
                return value
        return MISSING
    tool, _, rest = rest.partition("|")
    seen = state.latest_output(tool)
    return MISSING if seen is None else from_text(kind[1], rest, seen.text, state.used.get(slot))


def gathered(tool: str, state: RunState) -> dict[str, list[Any]]:
    """The scalars of all of a tool's outputs since the user's message, by path, in order of the calls."""
    found: dict[str, list[Any]] = {}
    for index in range(len(state.steps) - len(state.since_user), len(state.steps)):
        step = state.steps[index]
        if step.tool == tool and step.status == "ok" and step.output is not None:
            for path, value in state.observation(index).scalars.items():
                found.setdefault(path, []).append(value)
    return found


def joined_parts(text: str) -> list[str]:
    """The parts of an enumeration: "Ann, Bo and Cy" has three."""
    return [part for part in _JOINED.split(text) if part]


def is_template(descriptor: str) -> bool:
    """Whether a part of the value a source offers is another run's: a template's words, a date's year."""
    return descriptor.lstrip(MARKS).startswith(("t|", "ud|", "xd|"))


def _from_list(rest: str, state: RunState, slot: tuple[str, str]) -> Any:
    tool, path, how = rest.split("|")
    seen = state.latest_output(tool)
    values = None if seen is None else seen.lists.get(path)
    if seen is None or not values:
        return MISSING
    how, _, named_by = how.partition("@")
    if named_by:
        wanted = named_rows(seen, named_by, state)
        values = [v for v, row in zip(values, seen.rows[path], strict=True) if row in wanted]
        if not values:
            return MISSING
    if how == "next":
        used = state.used.get(slot, ())
        return next((v for v in values if canon(v) not in used), MISSING)
    if how == "rest":
        taken = state.used.get(slot, ())
        left = list(dict.fromkeys(v for v in values if isinstance(v, (str, int, float)) and canon(v) not in taken))
        return left if len(left) > 1 else MISSING
    if how == "last":
        return values[-1]
    if how == "only":
        return values[0] if len(values) == 1 else MISSING
    return list(values)


def named_rows(seen: Observation, path: str, state: RunState) -> set[int]:
    """Rows of a list in which the value at `path` stands in the user's words."""
    return {
        row
        for value, row in zip(seen.lists.get(path, ()), seen.rows.get(path, ()), strict=True)
        if isinstance(value, str) and len(value) > 2 and state.user.find(value)
    }


def from_text(kind: str, rest: str, text: Text, used: frozenset[str] | None) -> Any:
    """The value at a place in a text; see the module for the kinds."""
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
        return date_in(rest, text)
    if used:
        return next((v for v in found if v not in used), MISSING)
    return found[0] if found else MISSING


def _after(left: list[str], count: int, text: Text) -> Any:
    """The `count` words that follow `left`."""
    for first in _places_after(left, text):
        if first + count <= len(text.words) and all(map(is_word, text.words[first : first + count])):
            return text.span(first, first + count - 1)
    return MISSING


def _between(left: list[str], right: str, text: Text) -> Any:
    """The words between `left` and the next `right`."""
    for first in _places_after(left, text):
        end = next((i for i in text.places(right) if i > first), None) if right else len(text.words)
        if end is not None and end - first <= MAX_BETWEEN:
            return text.span(first, end - 1)
    return MISSING


def _places_after(left: list[str], text: Text) -> Iterator[int]:
    for place in text.places(left[-1]):
        if (len(left) == 1 or (place > 0 and text.words[place - 1] == left[0])) and place + 1 < len(text.words):
            yield place + 1


def date_in(template: str, text: Text) -> Any:
    """`template` is an ISO date with its month and day left out: ``2023-%s 00:00:00``."""
    dates = dates_in(text.raw)
    return template.replace("%s", dates[0]) if dates else MISSING
