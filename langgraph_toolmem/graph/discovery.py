"""Finding where in a run an argument's value stands: the descriptors of `sources` that give it."""

from __future__ import annotations

from typing import Any, Final

from langgraph_toolmem.graph.sources import date_in, evaluate, from_text, gathered, joined_parts, named_rows
from langgraph_toolmem.graph.state import Observation, RunState
from langgraph_toolmem.runs.values import MAX_VALUE_CHARS, canon
from langgraph_toolmem.words.text import MAX_SPAN_WORDS, Text, is_word, quoted_parts, read_text, shape_of
from langgraph_toolmem.words.values import date_of

_MAX_OUTPUTS: Final = 8
_MAX_COUNTED: Final = 4
_MAX_NAMES: Final = 4
_MAX_TEMPLATES: Final = 3


def discover(value: Any, state: RunState, slot: tuple[str, str]) -> list[str]:
    """Descriptors of the places in this run where an argument's value stands; each evaluates to it."""
    text = canon(value)
    # An earlier text may have the same place with another value, and a list may hold the value as another type.
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
    """Whether names can stand in a descriptor."""
    return not any("|" in name for name in names)


def _with_letter(spot: str, letter: str, tool: str | None = None) -> str:
    """A text descriptor completed: ``^a|to|1`` → ``^ua|to|1``, or with a tool ``^xa|TOOL|to|1``."""
    mark = spot[0] if spot[0] in "^~" else ""
    kind, _, rest = spot.removeprefix(mark).partition("|")
    return f"{mark}{letter}{kind}|{rest}" if tool is None else f"{mark}{letter}{kind}|{tool}|{rest}"


def _whole_lists(value: list[Any], state: RunState, slot: tuple[str, str]) -> list[str]:
    wanted = [canon(v) for v in value]
    found: list[str] = []
    for tool in dict.fromkeys(step.tool for step in state.since_user):
        several = gathered(tool, state) if len(wanted) > 1 and _plain(tool) else {}
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
    """The part of a text that lists these values and no others, in this order; "" if there is none."""
    first, last = raw.find(wanted[0]), raw.find(wanted[-1])
    span = raw[first : last + len(wanted[-1])] if 0 <= first < last else ""
    return span if span and joined_parts(span) == wanted else ""


def _named(texts: list[str], path: str, seen: Observation, state: RunState) -> list[tuple[str, list[str]]]:
    """Per other field of the list's rows: the elements in rows where the user named that field's value."""
    prefix = path[: path.index("[*]") + 3] if "[*]" in path else path
    found = []
    for other in seen.lists:
        if other != path and other.startswith(prefix) and "|" not in other:
            rows = named_rows(seen, other, state)
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
    """Descriptors, without their first letter, of a value's place in a text."""
    if not text.words:
        return []
    found = ["q|"] if _first_unused(quoted_parts(text.raw), used) == value else []
    span = text.find(value)
    if span is None:
        date = date_of(day := value[:10]) == day
        if date and "|" not in value and date_in(template := f"{day[:5]}%s{value[10:]}", text) == value:
            found.append(f"d|{template}")
        return found
    mark = _case_mark(text.span(*span), value)
    return found if mark is None else found + [mark + spot for spot in _places(text, *span, used)]


def _case_mark(raw: str, value: str) -> str | None:
    """How the value's letters differ from the text's; None if in no way that can be repeated."""
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
            # With one word on the left, what ends the value is rarely enough to find it again.
            if position == 0:
                found.append(f"b|{left}|{right}")
            if count <= _MAX_COUNTED and all(map(is_word, words[first : last + 1])):
                found.append(f"a|{left}|{count}")
    if count == 1 and (shape := shape_of(text.span(first, last))) and _first_unused(text.with_shape(shape), used):
        found.append(f"s|{shape}")
    return [spot for spot in found if _gives(spot, text, text.span(first, last), used)]


def _gives(spot: str, text: Text, value: str, used: frozenset[str] | None) -> bool:
    kind, _, rest = spot.partition("|")
    return bool(from_text(kind, rest, text, used) == value)


def _templates(value: str, state: RunState, used: frozenset[str] | None) -> list[str]:
    """A value with words of the user in the middle of other words: ``Open tasks in %``."""
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
