"""Calls of the memory that the model corrected, and sources of values that were wrong.

A call that the memory made is checked only at random. But often the model shows right after it that it would have made
another call: it calls the same tool again with other arguments. This is a miss, unless the model usually does so: a
model that looks up one customer after another calls the same tool again after its own calls too.

A value comes from a source (`graph.sources`): a place in an output, a word of the request. If the value of a call was
wrong, its source is withdrawn: calls with a value from this source are not made until the source is right again for a
call of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import Count, Event, Forgotten, PlainRecord, Record, ToolCount, plain_of, records_of
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.confidence import CORRECTED, EXAMPLE_COLUMNS, Checked
from langgraph_toolmem.inertia.decision import Decision, Option, Refusal
from langgraph_toolmem.runs.run import ExecutedCall, Turn
from langgraph_toolmem.runs.values import canon, canon_args

if TYPE_CHECKING:
    from langgraph_toolmem.inertia.calibrated import Situation

CONTINUED: Final = "continued"
"""Counter of a tool: a turn of the model came right after a call that the model had made itself."""
AGAIN: Final = "again"
"""Counter of a tool: such a turn called the tool again with other arguments."""


SOURCED: Final = shapes.ListOf(shapes.TEXT, (2,))
"""Key of the source of a value, and digest of the value."""


@dataclass(slots=True)
class CallMade(Event):
    """The memory made calls of a tool in one turn.

    Attributes:
        request: key of the user message that they serve.
        calls: digests of their arguments.
        rules: the records behind the prediction.
        columns: the estimator's columns.
        sourced: parameter -> [key of the source (`source_key`), digest of the value].
        changes: 1 if they may change something, else 0.
    """

    kind = "call_made"
    cells: ClassVar = {"columns": EXAMPLE_COLUMNS, "sourced": shapes.RowsOf(SOURCED)}
    request: str
    tool: str
    calls: list[str]
    rules: list[str]
    columns: list[float]
    sourced: dict[str, list[str]]
    changes: int
    run: str
    user: str | None


@dataclass(slots=True)
class CallsSettled(Event):
    """The model's turn after the memory's calls for a request is known."""

    kind = "calls_settled"
    request: str


@dataclass(slots=True)
class SourceJudged(Event):
    """A value from a source was right, or not, in a model turn (by number)."""

    kind = "source_judged"
    source: str
    right: int
    turn: int


@dataclass(slots=True)
class SourceRecord(PlainRecord):
    """The numbers of the latest model turns in which values from a source were wrong, and right; -1: never."""

    wrong: int = -1
    right: int = -1


class Corrections(Table):
    """Calls of the memory that wait for the model's next turn, and sources whose values were wrong.

    Attributes:
        made: key of a request -> its `CallMade` events.
        sources: key of a source -> the latest model turns that judged it.
        most_requests: limit of requests whose calls wait for a model turn; the oldest are dropped.
        most_sources: limit of kept sources; the oldest are dropped.
    """

    name = "corrections"
    parts: ClassVar = {
        "made": shapes.RowsOf(shapes.ListOf(shapes.fields_of(CallMade, 1))),
        "sources": shapes.RowsOf(shapes.ListOf(shapes.WHOLE, (2,))),
    }
    most_requests: ClassVar[int] = 1_024
    most_sources: ClassVar[int] = 1_024

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.made: dict[str, list[CallMade]] = {}
        self.sources: dict[str, SourceRecord] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {CallMade: self._make, CallsSettled: self._settle, SourceJudged: self._judge}

    def to_state(self) -> dict[str, Any]:
        made = {}
        for request, calls in self.made.items():
            made[request] = [list(call.values()[1:]) for call in calls]
        return {"made": made, "sources": plain_of(self.sources)}

    def load(self, state: dict[str, Any]) -> None:
        made = {}
        for request, calls in state["made"].items():
            made[request] = [CallMade(request, *fields) for fields in calls]
        self.sources = records_of(SourceRecord, state["sources"])
        self.made = made

    def _make(self, request: str, *fields: Any) -> None:
        self.made.setdefault(request, []).append(CallMade(request, *fields))
        drop_oldest(self.made, self.most_requests)

    def _settle(self, request: str) -> None:
        self.made.pop(request, None)

    def _judge(self, source: str, right: int, turn: int) -> None:
        # The latest turn of each kind, not a count: so the updates commute, in any order in which workers read them.
        record = self.sources.setdefault(source, SourceRecord())
        if right:
            record.right = max(record.right, turn)
        else:
            record.wrong = max(record.wrong, turn)
        drop_oldest(self.sources, self.most_sources)

    def forget(self, gone: Forgotten) -> int:
        removed = 0
        for request, calls in list(self.made.items()):
            kept = [call for call in calls if not gone.has(call.run, call.user)]
            removed += len(calls) - len(kept)
            if kept:
                self.made[request] = kept
            else:
                del self.made[request]
        return removed

    def calls_for(self, request: str) -> list[CallMade]:
        """Return the memory's calls for a request since the model's latest turn."""
        return list(self.made.get(request, ()))

    def withdrawn(self, source: str) -> bool:
        """Return True if the latest checked value from a source (its key) was wrong."""
        record = self.sources.get(source)
        return record is not None and record.wrong > record.right

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        """Refuse a value from a source that was wrong the last time."""
        for parameter, source in candidate.sources.items():
            if self.withdrawn(source_key(candidate.tool, parameter, source)):
                text = f"{parameter} of {candidate.tool} was wrong the last time that it came from this source"
                return Refusal("source_withdrawn", text)
        return None


def source_key(tool: str, parameter: str, source: str) -> str:
    """Return the key of a source: a digest, because a source may contain words of a request."""
    return digest("source", tool, parameter, source)


def values_of(option: Option) -> dict[str, list[str]]:
    """Return the values of a single call by parameter: key of the source, and digest. {} for several calls at once."""
    # Of several calls, the one that was wrong would have to be found first.
    if len(option.calls) != 1:
        return {}
    values = {}
    for parameter, source in option.sources.items():
        key = source_key(option.tool, parameter, source)
        values[parameter] = [key, _digest(option.args.get(parameter))]
    return values


def call_made(decision: Decision, request: str, run: str, user: str | None) -> Record:
    """Return the event of a call that is made now for a request."""
    if not decision.options:
        return []
    # Only digests: the event stays in the log until the model's next turn, and the arguments are a user's.
    option = decision.options[0]
    return [
        CallMade(
            request,
            option.tool,
            calls=[_call(args) for args in option.calls],
            rules=list(option.records),
            columns=list(option.columns),
            sourced=values_of(option),
            changes=int(option.changes),
            run=run,
            user=user,
        )
    ]


class SettledCalls(NamedTuple):
    """The events by which a model turn checks the memory's calls right before it, and those that were wrong."""

    record: Record
    wrong: list[CallMade]


def settle(corrections: Corrections, learned: LearnedTurn, number: int) -> SettledCalls:
    """Check the memory's calls for a request by model turn `number`, which comes right after them."""
    state, turn = learned.state, learned.turn
    record = _count_continued(state.latest, turn)
    made = corrections.calls_for(state.user_key)
    if not made:
        return SettledCalls(record, [])
    record.append(CallsSettled(state.user_key))
    # Only the last one: "Forward the email from Ann to Ben" looks up Ann, lists her emails, then looks up Ben. When the
    # earlier calls of a chain were checked too, the demo saved 63 of 792 model calls in place of 268.
    call = made[-1]
    instead = _instead(call.tool, call.calls, turn.steps)
    if not instead or not _was_executed(call, state.since_user) or _is_usual(corrections.graph, call.tool):
        return SettledCalls(record, [])
    record += [Count("wrong"), ToolCount(call.tool, "wrong"), Checked(number, call.changes, 1, CORRECTED)]
    record += judge_sources(corrections, call.sourced, instead, number, wrong=True)
    return SettledCalls(record, [call])


def _count_continued(before: Iterable[ExecutedCall], turn: Turn) -> Record:
    """Return the counts of the tools that the model called right before a turn, and calls again in it."""
    record: Record = []
    for tool, again in _continued(before, turn).items():
        record.append(ToolCount(tool, CONTINUED))
        if again:
            record.append(ToolCount(tool, AGAIN))
    return record


def _was_executed(call: CallMade, steps: Iterable[ExecutedCall]) -> bool:
    """Return True if one of the memory's calls is among the successful ones of a request."""
    # A call that failed or was stopped did not give the model a result: calling the tool again is not a correction.
    for step in steps:
        if step.tool == call.tool and step.status == "ok" and _call(step.args) in call.calls:
            return True
    return False


def judge_sources(
    corrections: Corrections,
    values: Mapping[str, Sequence[str]],
    steps: Sequence[ExecutedCall],
    number: int,
    *,
    wrong: bool,
) -> Record:
    """Return the events about the sources of predicted values, given the calls that the model made of the same tool.

    Args:
        corrections: the table.
        values: as `values_of` returns them.
        steps: the model's calls of the tool.
        number: of the model turn.
        wrong: True if a different value counts against its source: the call was made, or would have been.
    """
    record: Record = []
    for parameter, (source, value) in values.items():
        right = any(_digest(step.args.get(parameter)) == value for step in steps)
        # Only sources that were wrong once are kept: a right value matters only for a withdrawn source.
        if right and source in corrections.sources:
            record.append(SourceJudged(source, 1, number))
        elif not right and wrong and steps:
            record.append(SourceJudged(source, 0, number))
    return record


def _continued(before: Iterable[ExecutedCall], turn: Turn) -> dict[str, bool]:
    """Return the tools of the model's own calls right before a turn; True for those that it calls again with other
    arguments.
    """
    calls: dict[str, list[str]] = {}
    for step in before:
        if step.chosen_by == "model" and step.status == "ok":
            calls.setdefault(step.tool, []).append(_call(step.args))
    continued = {}
    for tool, known in calls.items():
        continued[tool] = bool(_instead(tool, known, turn.steps))
    return continued


def _instead(tool: str, calls: Sequence[str], steps: Sequence[ExecutedCall]) -> list[ExecutedCall]:
    """Return the calls of a tool among some steps, if they all differ from known calls of it."""
    # If one of them is equal, the model repeats the call together with others. It does not replace it.
    again = [step for step in steps if step.tool == tool]
    for step in again:
        if _call(step.args) in calls:
            return []
    return again


def _is_usual(graph: ToolGraph, tool: str) -> bool:
    """Return True if the model often repeats its own calls of a tool with other arguments."""
    # Right and wrong look-ups of the memory per 100 turns, in 160 requests to a model that repeats its own look-ups
    # (20 %; or 5 %, and wants another value than the memory's in 5 %): .03: 28.0, 0; 17.2, .3. .1: 19.5, 0; 17.2, .3.
    # .3: 4.8, 0; 4.5, 0. The demo saved 261 of 793 model calls with each.
    usual = 0.1
    counts = graph.by_tool.get(tool, {})
    continued = counts.get(CONTINUED, 0)
    return bool(continued) and counts.get(AGAIN, 0) >= usual * continued


def _call(args: Mapping[str, Any]) -> str:
    return digest("arguments", canon_args(args))


def _digest(value: Any) -> str:
    return digest("value", canon(value))
