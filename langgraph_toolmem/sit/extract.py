"""A run's state as a short text, without a model: what was asked, what of it is open, what was done, what came back.

The text has the same few lines for every run, so that two states that call for the same next tool read alike:

    Asked: <the latest user message>
    Still open: <the parts of it that no call so far was about>
    Done: <the tools called since then>
    Last result: <what the latest answer looks like>

A part of a request counts as dealt with once a successful call took a value from it ("order #W17" after
``get_order(order_id="#W17")``). Results are described by their keys and by flags and short words, not by ids and
numbers: those are different in every run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import ExecutedCall
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.requests import NEXT, SENTENCE_END

MAX_DONE: Final = 4
"""Latest calls that are named."""
MAX_KEYS: Final = 12
MIN_CHARS: Final = 80
_SHORTEST_VALUE: Final = 3
_LONGEST_WORD: Final = 24
_MAX_PARTS: Final = 60
_MAX_VALUES: Final = 200
_MAX_TEXT: Final = 6000

_BREAK = re.compile(rf"{SENTENCE_END}|,?\s+(?:{NEXT})\b[, ]*", re.IGNORECASE)
_SPACE = re.compile(r"\s+")


def extractive_summary(state: RunState, *, max_chars: int = 800) -> str:
    """A compact account of dialogue and tool history that bears on the next action.

    Args:
        state: the run before the next model turn.
        max_chars: length of the account, at least MIN_CHARS.

    Returns:
        The lines above; empty if nothing was said and nothing was done.
    """
    max_chars = max(max_chars, MIN_CHARS)
    asked = _squeeze(state.user.raw)
    if not asked and not state.steps:
        return ""
    since = state.since_user if asked else state.steps
    small = max_chars // 7
    tail = ["Done: " + (_cut("; ".join(map(_named, since[-MAX_DONE:])), 2 * small) or "nothing yet")]
    if since:
        tail.append("Last result: " + _cut(describe_result(since[-1]), small))
    room = max_chars - sum(len(line) + 1 for line in tail)
    head: list[str] = []
    if asked:
        remaining = _squeeze(open_request(state)) if since else ""
        if remaining and remaining != asked:
            line = "Still open: " + _cut(remaining, room // 2 - len("Still open: "))
            room -= len(line) + 1
            tail.insert(0, line)
        head.append("Asked: " + _cut(asked, room - len("Asked: ")))
    return "\n".join([*head, *tail])[:max_chars]


def open_request(state: RunState) -> str:
    """The parts of the latest user message that no successful call since then took a value from."""
    parts = [part for part in _BREAK.split(state.user.raw[:_MAX_TEXT]) if part and part.strip()]
    done = [step for step in state.since_user if step.status == "ok"]
    if not done:
        return " ".join(parts)
    values = {value.lower() for step in done for value in _texts_of(step.args) if len(value) >= _SHORTEST_VALUE}
    rest = parts[_MAX_PARTS:]
    lowered = ((part, part.lower()) for part in parts[:_MAX_PARTS])
    return " ".join([*(part for part, low in lowered if not any(value in low for value in values)), *rest])


def describe_result(step: ExecutedCall) -> str:
    """Return what an answer looks like: keys, flags and short words of an object, length of a list, start of a text."""
    if step.status != "ok":
        return f"{step.status}: {_squeeze(str(step.output or ''))[:80]}".rstrip(": ")
    return ", ".join(_looks(step.output)) or "nothing"


def _looks(output: Any) -> Iterator[str]:
    if isinstance(output, Mapping):
        for key, value in list(output.items())[:MAX_KEYS]:
            yield f"{key} {_look_of_value(value)}".rstrip()
    elif isinstance(output, Sequence) and not isinstance(output, str):
        yield _how_many(output)
        if output and isinstance(output[0], Mapping):
            yield from _looks(output[0])
    elif isinstance(output, str):
        yield _squeeze(output)[:100]
    elif isinstance(output, bool):
        yield str(output).lower()
    elif output is not None:
        yield "a number"


def _look_of_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):
        word = value.strip()
        return word if 0 < len(word) <= _LONGEST_WORD and not any(c.isdigit() or c == "@" for c in word) else ""
    if isinstance(value, Sequence):
        return _how_many(value)
    return ""


def _how_many(values: Sequence[Any]) -> str:
    return ("none", "one")[len(values)] if len(values) < 2 else "several"


def _named(step: ExecutedCall) -> str:
    return step.tool if step.status == "ok" else f"{step.tool} {step.status}"


def _texts_of(args: Mapping[str, Any]) -> Iterable[str]:
    found: list[str] = []
    waiting: list[Any] = list(args.values())
    while waiting and len(found) < _MAX_VALUES:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value
        elif value is not None and not isinstance(value, bool):
            found.append(canon(value))
    return found


def _squeeze(text: str) -> str:
    return _SPACE.sub(" ", text[:_MAX_TEXT]).strip()


def _cut(text: str, room: int) -> str:
    """The text in `room` characters; of a longer one the beginning and an ellipsis, broken between words."""
    if len(text) <= room:
        return text
    kept = text[: max(room - 2, 0)]
    return f"{kept.rpartition(' ')[0] or kept} …" if room > 2 else ""
