"""SIT's table in the evidence graph: which tool came after which, and in which state.

Each run keeps its *transitions*: from the tool called before to the tool called next, with the state in between. Over
all runs they add up to weighted edges; an edge gets N + Σ 1/n, with N the successful runs' uses of it and n the
number of transitions of each such run (SIT-Graph, arXiv 2512.07287). Feedback may come before or after them.

A state is the request (known to `graph.cases`) and the words of its latest result, or of the summary that the agent
wrote. Only hashes of the words are kept. What a run adds does not depend on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from langgraph_toolmem.graph.events import GOOD, Event, Forgotten, Verdict
from langgraph_toolmem.graph.tool_graph import CountTable, Handler, Table, ToolGraph

MAX_RUNS: Final = 10_000
"""Runs whose transitions are kept. The oldest leave; what they added to the edges stays."""
MAX_SOURCES: Final = 20_000
MAX_TARGETS: Final = 64
_GOOD, _BONUS, _BAD, _OPEN = range(4)
_SCORE, _TRANSITIONS, _WEIGHT = range(3)


@dataclass(slots=True)
class TransitionSeen(Event):
    """In a run, `target` was called right after `source`.

    Attributes:
        run: digest of the run.
        step: key of the target's call.
        request: key of the user message that the call serves.
        asked: True if no call lies between that message and the target.
        words: the state after `source`: hashes of words.
        written: True if the agent wrote the state with the summary tool.
    """

    kind = "transition"
    run: str
    step: str
    source: str
    target: str
    request: str = ""
    asked: bool = False
    words: list[int] = field(default_factory=list)
    written: bool = False


class Edge(NamedTuple):
    """Evidence for one edge: uses in good runs, Σ 1/n over these, uses in bad runs and in runs without feedback."""

    good: float
    bonus: float
    bad: float
    open: float

    def weight(self, unlabelled: float = 0.0) -> float:
        """Return N + Σ 1/n over the successful runs; uses without feedback count `unlabelled`·`trust` each."""
        return self.good + self.bonus + unlabelled * self.trust * self.open

    @property
    def trust(self) -> float:
        """Worth of uses without feedback, by those with feedback: 1 if none of these was bad."""
        return (self.good + 1) / (self.good + self.bad + 1)


class SITEvidence(Table):
    """Transitions of runs, and the edges that they add up to."""

    name = "sit"
    parts = ("edges", "runs")

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.edges = CountTable(MAX_SOURCES, width=4, max_items=MAX_TARGETS)
        #: run -> [score or None, {step: [source, target, request, asked, words, written]}, weight of the score]
        self.runs: dict[str, list[Any]] = {}
        self._by_request: dict[str, dict[str, TransitionSeen]] = {}  # request -> step -> its transition

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {TransitionSeen: self.add, Verdict: lambda run, *_: self._judge(run)}

    def add(
        self,
        run: str,
        step: str,
        source: str,
        target: str,
        request: str = "",
        asked: bool = False,
        words: Sequence[int] = (),
        written: bool = False,
    ) -> None:
        """Add a transition of a run; the same step twice counts once."""
        if run not in self.runs:
            self._judge(run)  # feedback may have come first
        known = self._run(run)
        if step in known[_TRANSITIONS]:
            return
        if known[_SCORE] is None:
            self.edges.add(source, target, _OPEN)
        else:  # the length of the run changes
            self._count(known, -1)
        made: list[Any] = [source, target, request, asked, [*words], written]
        known[_TRANSITIONS][step] = made
        if known[_SCORE] is not None:
            self._count(known, 1)
        self._by_request.setdefault(request, {})[step] = TransitionSeen(run, step, *made)

    def judge(self, run: str, score: float, weight: float = 1.0) -> None:
        """Apply the score of a run, from 0 (bad) to 1 (good), in place of an earlier one.

        If its weight is below 1, the rest of each use counts as without feedback.
        """
        known = self._run(run)
        self._count(known, -1)
        known[_SCORE], known[_WEIGHT] = float(score), float(weight)
        self._count(known, 1)

    def out_of(self, source: str) -> dict[str, Edge]:
        """Return the edges out of a tool (or START), by target."""
        return {target: Edge(*cell) for target, cell in self.edges.row(source).items() if any(cell)}

    def edge(self, source: str, target: str) -> Edge:
        return Edge(*self.edges.row(source).get(target, (0, 0, 0, 0)))

    def transitions(self) -> Iterator[TransitionSeen]:
        for run, known in self.runs.items():
            for step, each in known[_TRANSITIONS].items():
                yield TransitionSeen(run, step, *each)

    def transitions_of(self, request: str) -> list[TransitionSeen]:
        """Return the transitions that served a request."""
        return list(self._by_request.get(request, {}).values())

    def figures(self) -> dict[str, int]:
        """Return how many states are kept, and how many runs have no feedback."""
        return {
            "states": sum(len(known[_TRANSITIONS]) for known in self.runs.values()),
            "runs_waiting": sum(known[_SCORE] is None for known in self.runs.values()),
        }

    def _run(self, run: str) -> list[Any]:
        known = self.runs.get(run)
        if known is None:
            known = self.runs[run] = [None, {}, 1.0]
            if len(self.runs) > MAX_RUNS:
                self._drop(next(iter(self.runs)))
        return known

    def _drop(self, run: str) -> None:
        for step, (_, _, request, *_) in self.runs.pop(run)[_TRANSITIONS].items():
            steps = self._by_request.get(request, {})
            steps.pop(step, None)
            if not steps:
                self._by_request.pop(request, None)

    def _judge(self, run: str) -> None:
        if (stands := self.graph.verdict(run)) is not None:
            self.judge(run, stands.score, stands.weight)

    def _count(self, known: list[Any], sign: int) -> None:
        score, transitions, weight = known
        for source, target, *_ in transitions.values():
            if score is None:
                self.edges.add(source, target, _OPEN, sign)
                continue
            if weight < 1:
                self.edges.add(source, target, _OPEN, sign * (1 - weight))
            if score >= GOOD:
                self.edges.add(source, target, _GOOD, sign * weight)
                self.edges.add(source, target, _BONUS, sign * weight / len(transitions))
            else:
                self.edges.add(source, target, _BAD, sign * weight)

    def forget(self, gone: Forgotten) -> int:
        """Delete the transitions of runs; what they added to the edges stays."""
        for run in gone.runs:
            if run in self.runs:
                self._drop(run)
        return 0

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self._by_request = {}
        for run, (_, transitions, _) in self.runs.items():
            for step, each in transitions.items():
                made = TransitionSeen(run, step, *each)
                self._by_request.setdefault(made.request, {})[step] = made
