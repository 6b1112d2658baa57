"""Where an argument's value came from, as short descriptors that can be evaluated again in another run.

    i|TOOL|PARAM            the latest input PARAM of TOOL
    o|TOOL|PATH             the scalar at JSON path PATH in TOOL's latest output
    l|TOOL|PATH*|next       the first element of a list that this slot has not used yet (loops)
    l|TOOL|PATH*|last       the last element, `only`: the single element, `all`: the whole list
    l|TOOL|PATH*|next@PATH2*  the same among the rows of the list whose PATH2 the user named
    ua|WORDS|N              the N words that follow WORDS in the user's text
    ub|WORDS|WORD           what stands between WORDS and WORD in it ("" for the end of the text)
    uq, us|SHAPE, ud|FORMAT the next quoted part, the next token of that shape, a date in it
    xa|TOOL|WORDS|N         the same in TOOL's latest free-text output (`xb`, `xs`, `xq`)
    []DESCRIPTOR            a list with that one value

A slot is a (tool, parameter) pair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.graph.state import Observation, RunState
from langgraph_toolmem.graph.text import (
    Text,
    is_word,
    month_day,
    quoted_parts,
    shape_of,
)
from langgraph_toolmem.graph.values import MAX_VALUE_CHARS, canon


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""A source has nothing to offer in this run."""

_MAX_OUTPUTS_SEARCHED: Final = 8
_MAX_TEXT_SPAN: Final = 8
_MAX_BETWEEN: Final = 40
_MAX_NAMES: Final = 4
_ISO_MONTH_DAY = re.compile(r"(\d{4})-(\d\d-\d\d)(.*)", re.DOTALL)


# --- evaluating ---------------------------------------------------------------------------------------


def evaluate(descriptor: str, state: RunState, slot: tuple[str, str]) -> Any:
    """The value a source offers now, or MISSING. No cast to the parameter's type is made."""
    if descriptor.startswith("[]"):
        inner = evaluate(descriptor[2:], state, slot)
        return MISSING if inner is MISSING or isinstance(inner, list) else [inner]
    kind, _, rest = descriptor.partition("|")
    if kind == "i":
        tool, _, parameter = rest.rpartition("|")
        return state.inputs.get((tool, parameter), MISSING)
    if kind == "o":
        tool, _, path = rest.partition("|")
        seen = state.latest_output(tool)
        return MISSING if seen is None else seen.scalars.get(path, MISSING)
    if kind == "l":
        return _from_list(rest, state, slot)
    if kind[0] == "u":
        for text in (state.user, *state.past_users):
            value = _from_text(kind[1], rest, text, state.used.get(slot))
            if value is not MISSING:
                return value
        return MISSING
    tool, _, rest = rest.partition("|")
    seen = state.latest_output(tool)
    return MISSING if seen is None else _from_text(kind[1], rest, seen.text, state.used.get(slot))


def _from_list(rest: str, state: RunState, slot: tuple[str, str]) -> Any:
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
    if how == "next":
        used = state.used.get(slot, ())
        return next((v for v in values if canon(v) not in used), MISSING)
    if how == "last":
        return values[-1]
    if how == "only":
        return values[0] if len(values) == 1 else MISSING
    return list(values)


def _named_rows(seen: Observation, path: str, state: RunState) -> set[int]:
    """Rows of a list in which the value at `path` stands in the user's words."""
    return {
        row
        for value, row in zip(seen.lists.get(path, ()), seen.rows.get(path, ()), strict=True)
        if isinstance(value, str) and len(value) > 2 and state.user.find(value)
    }


def _from_text(kind: str, rest: str, text: Text, used: set[str] | None) -> Any:
    if not text.words:
        return MISSING
    if kind == "a":
        words, _, count = rest.rpartition("|")
        return _after(words.split(" "), int(count), text)
    if kind == "b":
        words, _, right = rest.rpartition("|")
        return _between(words.split(" "), right, text)
    if kind == "q":
        found: tuple[str, ...] | list[str] = quoted_parts(text.raw)
    elif kind == "s":
        found = text.with_shape(rest)
    else:
        return _date(rest, text)
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
        if end is not None and end - first <= _MAX_BETWEEN:
            return text.span(first, end - 1)
    return MISSING


def _places_after(left: list[str], text: Text) -> Iterator[int]:
    for place in text.places(left[-1]):
        if (len(left) == 1 or (place > 0 and text.words[place - 1] == left[0])) and place + 1 < len(text.words):
            yield place + 1


def _date(template: str, text: Text) -> Any:
    """`template` is an ISO date with its month and day left out: ``2023-%s 00:00:00``."""
    for i, word in enumerate(text.words):
        if word.isalpha():
            found = month_day(text.words[max(0, i - 1) : i + 2]) if len(word) >= 3 else None
            if found:
                return template.replace("%s", found)
    return MISSING


# --- discovering --------------------------------------------------------------------------------------


def discover(value: Any, state: RunState, slot: tuple[str, str]) -> list[str]:
    """Descriptors of all the places in this run where an argument's value stands."""
    if isinstance(value, list):
        if len(value) == 1 and not isinstance(value[0], (list, dict)):
            return ["[]" + d for d in discover(value[0], state, slot)]
        return _whole_lists(value, state)
    if isinstance(value, (dict, bool)) or value is None:
        return []
    text = canon(value)
    if not text or len(text) > MAX_VALUE_CHARS:
        return []
    found = [f"i|{tool}|{param}" for (tool, param), v in state.inputs.items() if canon(v) == text]
    found += _in_outputs(text, state, slot)
    for source in (state.user, *state.past_users):
        spots = _in_text(text, source, state.used.get(slot))
        if spots:
            found += ["u" + spot for spot in spots]
            break
    return found


def _whole_lists(value: list[Any], state: RunState) -> list[str]:
    wanted = [canon(v) for v in value]
    found = []
    for tool in list(state.outputs)[-_MAX_OUTPUTS_SEARCHED:]:
        seen = state.latest_output(tool)
        for path, values in seen.lists.items() if seen is not None else ():
            texts = [canon(v) for v in values]
            if texts == wanted:
                found.append(f"l|{tool}|{path}|all")
            elif len(texts) > len(wanted) and wanted[0] in texts:
                for other in seen.lists if seen is not None else ():
                    if seen is None or other == path:
                        continue
                    rows = _named_rows(seen, other, state)
                    if rows and [t for t, row in zip(texts, seen.rows[path], strict=True) if row in rows] == wanted:
                        found.append(f"l|{tool}|{path}|all@{other}")
    return found


def _in_outputs(text: str, state: RunState, slot: tuple[str, str]) -> list[str]:
    found = []
    used = state.used.get(slot, set())
    for tool in list(state.outputs)[-_MAX_OUTPUTS_SEARCHED:]:
        seen = state.latest_output(tool)
        if seen is None:
            continue
        found += [f"o|{tool}|{path}" for path, v in seen.scalars.items() if canon(v) == text]
        for path, values in seen.lists.items():
            texts = [canon(v) for v in values]
            if text not in texts:
                continue
            if next((t for t in texts if t not in used), None) == text:
                found.append(f"l|{tool}|{path}|next")
            if texts[-1] == text:
                found.append(f"l|{tool}|{path}|last")
            if len(texts) == 1:
                found.append(f"l|{tool}|{path}|only")
            found += _by_name(text, texts, tool, path, seen, state, used)
        if seen.text.words and seen.scalars.get("$") != text:
            found += [f"x{spot[0]}|{tool}|{spot[2:]}" for spot in _in_text(text, seen.text, used)]
    return found


def _by_name(
    text: str, texts: list[str], tool: str, path: str, seen: Observation, state: RunState, used: set[str]
) -> list[str]:
    """Descriptors of an element by another field of its row that the user named."""
    if len(texts) < 2:
        return []
    prefix = path[: path.index("[*]") + 3] if "[*]" in path else path
    found = []
    for other in seen.lists:
        if other == path or not other.startswith(prefix):
            continue
        rows = _named_rows(seen, other, state)
        within = [t for t, row in zip(texts, seen.rows[path], strict=True) if row in rows]
        if text in within:
            if next((t for t in within if t not in used), None) == text:
                found.append(f"l|{tool}|{path}|next@{other}")
            if len(within) == 1:
                found.append(f"l|{tool}|{path}|only@{other}")
    return found[:_MAX_NAMES]


def _in_text(value: str, text: Text, used: set[str] | None) -> list[str]:
    """Descriptors, without their first letter, of a value's place in a text."""
    if not text.words:
        return []
    found = []
    if (
        value in (quoted := quoted_parts(text.raw))
        and next((q for q in quoted if not used or q not in used), None) == value
    ):
        found.append("q|")
    span = text.find(value)
    if span is None:
        date = _ISO_MONTH_DAY.match(value)
        if date and _date(template := f"{date[1]}-%s{date[3]}", text) == value:
            found.append(f"d|{template}")
        return found
    first, last = span
    count = last - first + 1
    right = text.words[last + 1] if last + 1 < len(text.words) else ""
    if first > 1:
        found.append(f"b|{text.words[first - 2]} {text.words[first - 1]}|{right}")
    elif first == 1:
        found.append(f"b|{text.words[0]}|{right}")
    if count <= _MAX_TEXT_SPAN and first > 0:
        if is_word(text.words[first - 1]):
            found.append(f"a|{text.words[first - 1]}|{count}")
        if first > 1:
            found.append(f"a|{text.words[first - 2]} {text.words[first - 1]}|{count}")
    if count == 1 and (shape := shape_of(text.span(first, last))):
        found.append(f"s|{shape}")
    return found


def describe(descriptor: str) -> str:
    """A descriptor in words a person understands."""
    if descriptor.startswith("[]"):
        return "a list with " + describe(descriptor[2:])
    if descriptor in _PLAIN:
        return _PLAIN[descriptor]
    kind, _, rest = descriptor.partition("|")
    where = "the user's words"
    if kind[0] == "x":
        tool, _, rest = rest.partition("|")
        where = f"the text that {tool} answered"
    if kind == "i":
        tool, _, parameter = rest.rpartition("|")
        return f"the same value as {parameter} of the earlier call to {tool}"
    if kind == "o":
        tool, _, path = rest.partition("|")
        return f"{path} in the output of {tool}"
    if kind == "l":
        tool, path, how = rest.split("|")
        which = {
            "next": "the next unused element of",
            "last": "the last element of",
            "only": "the one element of",
        }
        return f"{which.get(how, 'the whole list')} {path} in the output of {tool}"
    if kind[1] == "a":
        words, _, count = rest.rpartition("|")
        return f"{count} word(s) after “{words}” in {where}"
    if kind[1] == "b":
        words, _, right = rest.rpartition("|")
        return f"what stands between “{words}” and {f'“{right}”' if right else 'the end'} in {where}"
    if kind[1] == "q":
        return f"the next quoted part of {where}"
    if kind[1] == "d":
        return f"the date in {where}"
    return f"the next token of the form {rest} in {where}"


_PLAIN: Final = {
    "c": "its most frequent value",
    "cp": "its most frequent value at this point",
    "n": "the nearest past request, its values replaced by this request's",
    "env": "the environment adapter",
    "goal": "the user's goal",
}
