"""Loops of an agent, detected by the lack of new results.

Only calls since the user's last message count. Such a call *adds* something unless

1. it was made before with the same result (times and ids in the result do not count), or
2. its result is empty of news: an error, a refusal, an empty answer, or, for a tool that is declared to read, the
   result of one of its other calls.

A call that adds something ends a loop. From the calls since then `LoopWatch.judge` decides whether the next ones should
be stopped. The numbers of `LoopLimits` are small because each further round costs a model call, and larger for
legitimate repetition: a retry after "429", a job that is still running, a list of things that are all missing.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from langchain_core.messages import HumanMessage, ToolMessage

from langgraph_toolmem.runs.run import LOOP_NOTE, ExecutedCall, Run, Turn, text_of
from langgraph_toolmem.runs.values import canon_args, is_unread, readable
from langgraph_toolmem.text.words import DENYING, words


@dataclass(slots=True, frozen=True)
class LoopLimits:
    """Numbers of results from which a call is stopped.

    Attributes:
        equal: equal results of one call.
        equal_passing: equal results that are a temporary error: too many requests, a time-out.
        equal_running: equal results that report work in progress, of a tool without a record.
        repeated: repeated calls in a row; a further repetition is the round of a cycle.
        alike: results of one kind without news, of calls that differ by a number, punctuation or the path to a file.
        unlike: results of one kind without news, of calls that differ otherwise: the agent is searching.
        of_a_list: the same if the next call is about something named before: the agent works through a list.
        short: characters of a result that only reports work in progress, or an empty result.
        compared: compared characters of a result.
        arguments: values of a call that are masked in its result: each costs a pass through the text.
    """

    equal: int = 2
    equal_passing: int = 4
    equal_running: int = 20
    repeated: int = 2
    alike: int = 3
    unlike: int = 5
    of_a_list: int = 25
    short: int = 200
    compared: int = 2_000
    arguments: int = 200


LOOP_LIMITS: Final = LoopLimits()

# Times, durations, UUIDs and digests: they differ in equivalent results.
_VOLATILE = re.compile(
    r"\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d)?[.\d]*(?:z|[+-]\d\d:?\d\d)?|\d\d:\d\d:\d\d[.\d]*"
    r"|\b\d{1,9}(?:\.\d{1,9})? ?(?:ms|s|sec|seconds)\b"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{12,64}\b"
)
# Temporary errors: the server is busy, the network was slow.
_PASSING = re.compile(
    r"\b(?:429|502|503|504)\b|too many requests|rate.?limit|timed? ?-?out|temporar|try again|overloaded|unavailable"
)
# States of a job that is polled until it is done.
_RUNNING = re.compile(
    r"\b(?:pending|queued|running|processing|waiting|building|starting|scheduled|in[ _-]progress"
    r"|not (?:yet )?(?:ready|done|finished|complete))"
)
_DIGIT_RUNS = re.compile(r"\d+")


class LoopOutcome(NamedTuple):
    """Status of a call, and the compared part of its result."""

    status: str
    result: str


class _Key(NamedTuple):
    """Tool and arguments of a call, as an identity."""

    tool: str
    args: str


@dataclass(slots=True)
class _Fruitless:
    """Calls of one tool with results of one kind without news."""

    calls: list[ExecutedCall] = field(default_factory=list)
    alike: int = 1
    """Number of the latest of them that differ only slightly."""

    def add(self, call: ExecutedCall) -> None:
        if self.calls and _near(self.calls[-1].args, call.args):
            self.alike += 1
        else:
            self.alike = 1
        self.calls.append(call)


def _is_never_declared(_tool: str) -> bool:
    return False


class LoopWatch:
    """Follows the calls since the user last spoke.

    Args:
        reads: returns True for a tool that is declared to read only.
    """

    def __init__(self, run: Run, *, reads: Callable[[str], bool] = _is_never_declared) -> None:
        self._reads = reads
        self._outcomes: dict[_Key, LoopOutcome] = {}
        self._results: dict[str, set[str]] = {}
        self.notes = 0
        self._start_over()
        for turn in _turns_since_user(run):
            for step in turn.steps:
                self._follow(step)

    def _start_over(self) -> None:
        """Forget the repetitions after a new result."""
        self._equal: dict[_Key, int] = {}
        self._fruitless: dict[tuple[str, str], _Fruitless] = {}
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
        self._compare(call)

    def _compare(self, call: ExecutedCall) -> None:
        """Compare an executed call with the earlier ones: does its result add something?"""
        key, kind = _Key(call.tool, canon_args(call.args)), _masked(call)
        is_nothing = call.status != "ok" or _is_empty(call.output, call.args)
        # "no rows (13 of 13)" and "no rows (12 of 12)" are equal. In a result with news each number counts.
        outcome = LoopOutcome(call.status, kind)
        if not is_nothing:
            outcome = LoopOutcome(call.status, comparable(call.output))
        if self._outcomes.get(key) == outcome:
            self._equal[key] = self._equal.get(key, 1) + 1
            self._repeated += 1
            return
        made_before = key in self._outcomes
        self._outcomes[key] = outcome
        results = self._results.setdefault(call.tool, set())
        # A tool that changes something may rightly answer "done" to each of its calls.
        if not is_nothing and self._reads(call.tool):
            is_nothing = outcome.result in results
        if made_before or not is_nothing:
            self._start_over()
            results.add(outcome.result)
        else:
            self._note_fruitless(call, kind)

    def _note_fruitless(self, call: ExecutedCall, kind: str) -> None:
        self._repeated = 0
        group = self._fruitless.setdefault((call.tool, kind), _Fruitless())
        group.add(call)
        self._latest_of[call.tool] = group

    # --- the next calls ---

    def judge(self, tool: str, args: Mapping[str, Any], *, said: Iterable[str] = ()) -> str:
        """Return the reason why the call is stopped, or "".

        Args:
            tool, args: of the call.
            said: texts of users and tools before it, which may contain a new argument.
        """
        args = readable(dict(args))
        for value in args.values():
            if is_unread(value):  # only a part of a large value is compared
                return ""
        key = _Key(tool, canon_args(args))
        group = self._latest_of.get(tool)
        if key in self._outcomes:
            return self._made_again(key, group)
        if group is None:
            return ""
        return self._nothing_again(group, args, said)

    def _made_again(self, key: _Key, group: _Fruitless | None) -> str:
        reason = self._equal_again(key)
        if not reason and group is not None and len(group.calls) >= LOOP_LIMITS.alike:
            return _nothing_from(group)
        return reason

    def _equal_again(self, key: _Key) -> str:
        outcome, times = self._outcomes[key], self._equal.get(key, 1)
        most = _most_equal(outcome)
        if times >= most:
            return f"{key.tool} was called {times} times with the same arguments and gave the same result"
        # A cycle of calls that wait, or are tried again, has its own higher number.
        if most == LOOP_LIMITS.equal and self._repeated >= LOOP_LIMITS.repeated:
            return (
                f"the last {self._repeated} calls repeated earlier ones and gave the same results; so does {key.tool}"
            )
        return ""

    def _nothing_again(self, group: _Fruitless, args: Mapping[str, Any], said: Iterable[str]) -> str:
        last, times = group.calls[-1], len(group.calls)
        is_rejected = last.status == "rejected"
        if is_rejected and "is not a valid tool" in str(last.output):
            # An unknown tool stays unknown with other arguments.
            if times < LOOP_LIMITS.alike:
                return ""
            return _nothing_from(group)
        if is_rejected and _types(last.args) != _types(args):
            return ""  # the schema refused a text, and the new call has a number
        if times < _most_fruitless(group, args):
            return ""
        if times < LOOP_LIMITS.of_a_list and _names_something(args, last.args, said):
            return ""
        return _nothing_from(group)


def _most_fruitless(group: _Fruitless, args: Mapping[str, Any]) -> int:
    """Return the number of results without news from which a call is stopped."""
    # Small changes of the arguments are attempts at one thing; others are a search, which may take longer.
    if group.alike >= LOOP_LIMITS.alike and _near(group.calls[-1].args, args):
        return LOOP_LIMITS.alike
    return LOOP_LIMITS.unlike


def _most_equal(outcome: LoopOutcome) -> int:
    """Return the number of equal results from which a call is stopped."""
    # A long result that contains "running" is a page or a record, not the state of a job.
    if outcome.status == "ok" and _RUNNING.search(outcome.result[: LOOP_LIMITS.short]):
        return LOOP_LIMITS.equal_running
    if _PASSING.search(outcome.result):
        return LOOP_LIMITS.equal_passing
    return LOOP_LIMITS.equal


def _nothing_from(group: _Fruitless) -> str:
    last = group.calls[-1]
    result = "nothing new"
    if last.status != "ok":
        result = "an error"
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
    if not isinstance(output, str):
        output = json.dumps(output, sort_keys=True, default=str, ensure_ascii=False)
    compared: str = output[: LOOP_LIMITS.compared]
    return compared.casefold()


def comparable(output: Any) -> str:
    """Return the compared text of a result: without times, durations and long ids."""
    return _VOLATILE.sub("·", _text(output))


def _masked(call: ExecutedCall) -> str:
    """Return the kind of a result: without its arguments and numbers."""
    text = comparable(call.output)
    values = set()
    for value in islice(_leaves(call.args), LOOP_LIMITS.arguments):
        values.add(value.casefold())
    values.discard("")
    # The longest first: a value may be part of a longer one.
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "·")
    return " ".join(_DIGIT_RUNS.sub("0", text).split())


def _is_empty(output: Any, args: Mapping[str, Any]) -> bool:
    """Return True if a result is empty or says so."""
    if isinstance(output, str):
        return _says_nothing(output)
    if isinstance(output, dict):
        return not output or _has_nothing_new(output, args)
    return output in ([], None, False, 0)


def _says_nothing(text: str) -> bool:
    said = words(text[: LOOP_LIMITS.short])
    if not said or said[0] == "0":
        return True
    # "not" in a long text negates a part of it, not the whole result.
    return len(text) <= LOOP_LIMITS.short and not DENYING.isdisjoint(said)


def _has_nothing_new(output: Mapping[str, Any], args: Mapping[str, Any]) -> bool:
    """Return True if an object has an empty field and its others repeat the arguments: ``{"q": "x", "rows": []}``."""
    nothing: tuple[Any, ...] = ([], {}, None, "")
    if not any(value in nothing for value in output.values()):
        return False
    echoed = {*_leaves(args), "0", "1", "True", "False", "None", ""}
    return echoed.issuperset(_leaves(output))


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
    """Return True if arguments differ only slightly: a number, punctuation, case, the path to a file."""
    if before.keys() != now.keys():
        return False
    return all(_near_value(before[name], now[name]) for name in now)


def _near_value(before: Any, now: Any) -> bool:
    if isinstance(before, str) and isinstance(now, str):
        return _near_text(before, now)
    if isinstance(before, (int, float)) and isinstance(now, (int, float)):
        return True
    return canon_args({"": before}) == canon_args({"": now})


def _near_text(before: str, now: str) -> bool:
    left, right = _parts(before), _parts(now)
    if left == right:
        return True
    # "report.pdf" and "/home/ann/report.pdf" name one file.
    is_path = "/" in before or "/" in now
    shorter, longer = sorted((left, right), key=len)
    return is_path and bool(shorter) and longer[-len(shorter) :] == shorter


def _parts(text: str) -> list[str]:
    """Return the words of a text, or the names in a path, without numbers."""
    return words(_DIGIT_RUNS.sub(" ", posixpath.normpath(text)))


def _types(args: Mapping[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in args.items()}


def _names_something(args: Mapping[str, Any], before: Mapping[str, Any], said: Iterable[str]) -> bool:
    """Return True if the user or a result named a new argument: the next one of a list."""
    new = _new_values(args, before)
    if not new:
        return False
    for text in said:
        folded = text.casefold()
        if any(value in folded for value in new):
            return True
    return False


def _new_values(args: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Return the values that the arguments before did not have, and that are long enough to be recognised."""
    known = set(_leaves(before))
    new = []
    for value in _leaves(args):
        shortest = 2
        # A short number is in many texts.
        if value.isdigit():
            shortest = 3
        if value not in known and len(value) >= shortest:
            new.append(value.casefold())
    return new
