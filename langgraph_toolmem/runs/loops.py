"""Loops of an agent, judged by the news in its latest results.

Only calls since the user last spoke count. Such a call *adds* something unless

1. it was made before with the same result (times and ids in the result do not count), or
2. its result says nothing: an error, a refusal, an empty answer, or, for a tool that is declared to read, the result of
   one of its other calls.

Anything that adds something ends a loop. From the calls since then `LoopWatch.judge` tells whether the next ones are
worth making. The numbers below are small because each further round costs a model call, and larger where honest work
looks alike: a retry after "429", a job that is still running, a list of things that are all missing.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from langchain_core.messages import HumanMessage, ToolMessage

from langgraph_toolmem.runs.messages import LOOP_NOTE, text_of
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn
from langgraph_toolmem.runs.values import canon_args, is_unread, readable
from langgraph_toolmem.text.denial import DENYING
from langgraph_toolmem.text.words import words

EQUAL: Final = 2
"""Results of one call that are equal, from which the call is not worth making again."""
EQUAL_PASSING: Final = 4
"""The same where the result is an error that passes: too many requests, a time-out."""
EQUAL_RUNNING: Final = 20
"""The same where the result says that something is under way, and no record knows the tool yet."""
ROUND: Final = 2
"""Calls in a row that are repeated, from which a further repetition is the round of a cycle."""
ALIKE: Final = 3
"""Results of one kind that say nothing, of calls that differ by a number, punctuation or the way to a file."""
UNLIKE: Final = 5
"""The same of calls that differ otherwise: somebody looks for something."""
OF_A_LIST: Final = 25
"""The same where the next call is about something that was named before: somebody goes through a list."""
LOOKED_AT: Final = 2_000
"""Characters of a result that are compared."""
MOST_VALUES: Final = 200
"""Values in a call's arguments that are looked for in its result."""

_VOLATILE = re.compile(
    r"\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d)?[.\d]*(?:z|[+-]\d\d:?\d\d)?|\d\d:\d\d:\d\d[.\d]*"
    r"|\b\d{1,9}(?:\.\d{1,9})? ?(?:ms|s|sec|seconds)\b"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{12,64}\b"
)
_PASSING = re.compile(
    r"\b(?:429|502|503|504)\b|too many requests|rate.?limit|timed? ?-?out|temporar|try again|overloaded|unavailable"
)
_RUNNING = re.compile(
    r"\b(?:pending|queued|running|processing|waiting|building|starting|scheduled|in[ _-]progress"
    r"|not (?:yet )?(?:ready|done|finished|complete))"
)
_RUNNING_CHARS: Final = 200
_NO_SUCH_TOOL: Final = "is not a valid tool"
_DIGITS = re.compile(r"\d+")

Outcome = tuple[str, str]
"""Status of a call, and its result as far as it is compared."""


@dataclass(slots=True)
class _Fruitless:
    """Calls of one tool with results of one kind that say nothing."""

    calls: list[ExecutedCall] = field(default_factory=list)
    alike: int = 1
    """The latest of them that differ from one another in small things only."""

    def add(self, call: ExecutedCall) -> None:
        near = bool(self.calls) and _near(self.calls[-1].args, call.args)
        self.alike = self.alike + 1 if near else 1
        self.calls.append(call)


class LoopWatch:
    """Follows the calls since the user last spoke.

    Args:
        reads: returns True for a tool that is declared to read only.
    """

    def __init__(self, run: Run, *, reads: Callable[[str], bool] = lambda _: False) -> None:
        self._reads = reads
        self._outcomes: dict[tuple[str, str], Outcome] = {}
        self._results: dict[str, set[str]] = {}
        self.notes = 0
        self._start_over()
        for turn in _turns_since_user(run):
            for step in turn.steps:
                self._follow(step)

    def _start_over(self) -> None:
        """Something new came."""
        self._equal: dict[tuple[str, str], int] = {}
        self._fruitless: dict[Outcome, _Fruitless] = {}
        self._latest_of: dict[str, _Fruitless] = {}
        self._repeated = 0
        self.notes = 0

    def _follow(self, call: ExecutedCall) -> None:
        if is_note(call.output):
            self.notes += 1
            return
        if call.status == "unanswered":
            return
        if call.review:  # a person stepped in
            self._start_over()
            return
        key, kind = (call.tool, canon_args(call.args)), _masked(call)
        is_nothing = call.status != "ok" or _is_empty(call.output, call.args)
        # "no rows (13 of 13)" and "no rows (12 of 12)" are equal; of a result that says something each number counts
        outcome = (call.status, kind if is_nothing else comparable(call.output))
        if self._outcomes.get(key) == outcome:
            self._equal[key] = self._equal.get(key, 1) + 1
            self._repeated += 1
            return
        made_before = key in self._outcomes
        self._outcomes[key] = outcome
        results = self._results.setdefault(call.tool, set())
        if not is_nothing and self._reads(call.tool):
            is_nothing = outcome[1] in results
        if made_before or not is_nothing:
            self._start_over()
            results.add(outcome[1])
            return
        self._repeated = 0
        group = self._fruitless.setdefault((call.tool, kind), _Fruitless())
        group.add(call)
        self._latest_of[call.tool] = group

    # --- the next calls ---

    def judge(self, tool: str, args: Mapping[str, Any], *, said: Iterable[str] = ()) -> str:
        """Return the reason why the call is not worth making, "" if it may be.

        Args:
            tool, args: of the call.
            said: texts of users and tools before it, where a new argument may come from.
        """
        args = readable(dict(args))
        if any(map(is_unread, args.values())):
            return ""  # of a large value not all is compared
        key = (tool, canon_args(args))
        made_before = key in self._outcomes
        reason = self._equal_again(key) if made_before else ""
        group = self._latest_of.get(tool)
        if reason or group is None:
            return reason
        if made_before:
            return _nothing_from(group) if len(group.calls) >= ALIKE else ""
        return self._nothing_again(group, args, said)

    def _equal_again(self, key: tuple[str, str]) -> str:
        status, result = self._outcomes[key]
        times, most = self._equal.get(key, 1), EQUAL
        if _RUNNING.search(result[:_RUNNING_CHARS]) and status == "ok":
            most = EQUAL_RUNNING
        elif _PASSING.search(result):
            most = EQUAL_PASSING
        if times >= most:
            return f"{key[0]} was called {times} times with the same arguments and gave the same result"
        if most == EQUAL and self._repeated >= ROUND:
            return f"the last {self._repeated} calls repeated earlier ones and gave the same results; so does {key[0]}"
        return ""

    def _nothing_again(self, group: _Fruitless, args: Mapping[str, Any], said: Iterable[str]) -> str:
        last = group.calls[-1]
        times = len(group.calls)
        unknown = last.status == "rejected" and _NO_SUCH_TOOL in str(last.output)
        if last.status == "rejected" and not unknown and _shapes(last.args) != _shapes(args):
            return ""  # the schema refused a text, and now a number comes
        near = group.alike >= ALIKE and _near(last.args, args)
        most = ALIKE if unknown or near else UNLIKE
        if times < most:
            return ""
        if times < OF_A_LIST and not unknown and _names_something(args, last.args, said):
            return ""
        return _nothing_from(group)


def _nothing_from(group: _Fruitless) -> str:
    last = group.calls[-1]
    result = "an error" if last.status != "ok" else "nothing new"
    return f"{last.tool} gave {result} {len(group.calls)} times in a row"


def _turns_since_user(run: Run) -> Iterator[Turn]:
    start = len(run.events)
    while start and isinstance(run.events[start - 1], Turn):
        start -= 1
    for event in run.events[start:]:
        if isinstance(event, Turn):
            yield event


def is_note(output: Any) -> bool:
    """Return True if a result is a guard's note."""
    return isinstance(output, str) and output.startswith(LOOP_NOTE)


def texts_before(messages: Sequence[Any]) -> Iterator[str]:
    """Yield the texts of users and tools, the latest first."""
    for message in reversed(messages):
        if isinstance(message, (HumanMessage, ToolMessage)):
            yield text_of(message.content, separator="\n")


# --- results ---


def _text(output: Any) -> str:
    text = output if isinstance(output, str) else json.dumps(output, sort_keys=True, default=str, ensure_ascii=False)
    return text[:LOOKED_AT].casefold()


def comparable(output: Any) -> str:
    """Return a result as text, as far as results are compared: without times, durations and long ids."""
    return _VOLATILE.sub("·", _text(output))


def _masked(call: ExecutedCall) -> str:
    """Return the kind of a result: without its arguments and numbers."""
    text = comparable(call.output)
    values: set[str] = set()
    for value in islice(_leaves(call.args), MOST_VALUES):
        if 0 < len(value) <= LOOKED_AT:
            values.add(value.casefold())
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "·")
    return " ".join(_DIGITS.sub("0", text).split())


def _is_empty(output: Any, args: Mapping[str, Any]) -> bool:
    """Return True if a result says that there is nothing."""
    if isinstance(output, str):
        said = words(output[:_RUNNING_CHARS])
        return not said or (len(output) <= _RUNNING_CHARS and not DENYING.isdisjoint(said)) or said[0] == "0"
    if isinstance(output, dict):
        echoed = {*_leaves(args), "0", "1", "True", "False", "None", ""}
        holds_none = any(value in ([], {}, None, "") for value in output.values())
        return not output or (holds_none and all(leaf in echoed for leaf in _leaves(output)))
    return output in ([], None, False, 0)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield str(value)


# --- arguments ---


def _near(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return True if arguments differ in small things only: a number, punctuation, case, the way to a file."""
    if before.keys() != now.keys():
        return False
    return all(_near_value(before[name], now[name]) for name in now)


def _near_value(before: Any, now: Any) -> bool:
    if isinstance(before, str) and isinstance(now, str):
        left, right = _parts(before), _parts(now)
        if left == right:
            return True
        shorter, longer = sorted((left, right), key=len)
        is_path = "/" in before or "/" in now
        return is_path and bool(shorter) and longer[-len(shorter) :] == shorter
    if isinstance(before, (int, float)) and isinstance(now, (int, float)):
        return True
    return canon_args({"": before}) == canon_args({"": now})


def _parts(text: str) -> list[str]:
    """Return the words of a text, or the names in a path, without numbers."""
    return words(_DIGITS.sub(" ", posixpath.normpath(text)))


def _shapes(args: Mapping[str, Any]) -> list[tuple[str, str]]:
    return sorted((name, type(value).__name__) for name, value in args.items())


def _names_something(args: Mapping[str, Any], before: Mapping[str, Any], said: Iterable[str]) -> bool:
    """Return True if an argument that is new was named by the user or a result: the next one of a list.

    A short number proves nothing: it is in many texts.
    """
    known = set(_leaves(before))
    new = [value.casefold() for value in _leaves(args) if value not in known]
    telling = [value for value in new if not (value.isdigit() and len(value) < 3) and len(value) > 1]
    if not telling:
        return False
    return any(value in text.casefold() for text in said for value in telling)
