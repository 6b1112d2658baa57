"""Transitions between tools in whole runs, weighed by their verdicts: SIT's table in the evidence graph.

A run's walk is the set of its transitions. It counts for each of its edges as good or bad once the run has a
verdict, and as open until then. Successful runs weigh more the shorter they are: an edge gets N + c·Σ 1/n, with N
the successful runs' uses of it and n the number of transitions of each such run (SIT-Graph, arXiv 2512.07287).

What a walk adds depends on its transitions and its verdict alone, not on their order of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from langgraph_toolmem.base.intervals import percentage
from langgraph_toolmem.core.method import Section, TextTable, shown_in_words
from langgraph_toolmem.graph.events import GOOD, Event, Forgotten, Verdict
from langgraph_toolmem.graph.state import START
from langgraph_toolmem.graph.tool_graph import CountTable, Handler, Table, ToolGraph

MAX_WALKS: Final = 10_000
"""Walks that can still change; the oldest leave, and what they added stays as it is."""
MAX_SOURCES: Final = 20_000
MAX_TARGETS: Final = 64
MAX_EDGES: Final = 50
"""Edges in the report, those of most weight."""
_GOOD, _BONUS, _BAD, _OPEN = range(4)


@dataclass(slots=True)
class TransitionSeen(Event):
    """In a run, `target` was called right after `source`; step: the key of its call."""

    kind = "transition"
    run: str
    step: str
    source: str
    target: str


class Edge(NamedTuple):
    """Evidence for one edge: uses in good runs, Σ 1/n over these, uses in bad runs and in runs not judged yet."""

    good: float
    bonus: float
    bad: float
    open: float

    def weight(self, c: float = 1.0, unlabelled: float = 0.0) -> float:
        """N + c·Σ 1/n over the successful runs; uses in runs without a verdict count `unlabelled`·`trust` each."""
        return self.good + c * self.bonus + unlabelled * self.trust * self.open

    @property
    def trust(self) -> float:
        """Worth of uses in runs without a verdict, by those with one: 1 if none of these was bad."""
        return (self.good + 1) / (self.good + self.bad + 1)


class Walks:
    """Edges with their uses in good, bad and open runs."""

    def __init__(self) -> None:
        self.edges = CountTable(MAX_SOURCES, width=4, max_items=MAX_TARGETS)
        #: run -> [verdict or None, {step: [source, target]}, weight of the verdict]
        self.runs: dict[str, list[Any]] = {}

    def add(self, run: str, step: str, source: str, target: str) -> None:
        """Add a transition of a run; the same step twice counts once."""
        walk = self._walk(run)
        if step in walk[1]:
            return
        if walk[0] is None:
            walk[1][step] = [source, target]
            self.edges.add(source, target, _OPEN)
        else:
            self._weigh(walk, -1)
            walk[1][step] = [source, target]
            self._weigh(walk, 1)

    def judge(self, run: str, score: float, weight: float = 1.0) -> None:
        """Apply the verdict on a run, from 0 (bad) to 1 (good); a later one takes the place of an earlier one.

        Of a verdict that counts less than 1 the rest of each use stays open.
        """
        walk = self._walk(run)
        self._weigh(walk, -1)
        walk[0], walk[2] = float(score), float(weight)
        self._weigh(walk, 1)

    def out_of(self, source: str) -> dict[str, Edge]:
        """Return the edges out of a tool (or the start symbol), by target."""
        return {target: Edge(*cell) for target, cell in self.edges.row(source).items() if any(cell)}

    def waiting(self) -> int:
        """Return how many runs have no verdict."""
        return sum(walk[0] is None for walk in self.runs.values())

    def _walk(self, run: str) -> list[Any]:
        walk = self.runs.get(run)
        if walk is None:
            walk = self.runs[run] = [None, {}, 1.0]
            if len(self.runs) > MAX_WALKS:
                del self.runs[next(iter(self.runs))]
        return walk

    def _weigh(self, walk: list[Any], sign: int) -> None:
        score, steps, weight = walk
        for source, target in steps.values():
            if score is None:
                self.edges.add(source, target, _OPEN, sign)
                continue
            if weight < 1:
                self.edges.add(source, target, _OPEN, sign * (1 - weight))
            if score >= GOOD:
                self.edges.add(source, target, _GOOD, sign * weight)
                self.edges.add(source, target, _BONUS, sign * weight / len(steps))
            else:
                self.edges.add(source, target, _BAD, sign * weight)


class SITEvidence(Table):
    """The walks of runs.

    Attributes:
        walks: which tool came after which in whole runs.
    """

    name = "sit"

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.walks = Walks()

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {TransitionSeen: self._add_transition, Verdict: lambda run, *_: self._judge(run)}

    def _add_transition(self, run: str, step: str, source: str, target: str) -> None:
        if run not in self.walks.runs:
            self._judge(run)  # before this table was there
        self.walks.add(run, step, source, target)

    def _judge(self, run: str) -> None:
        if (stands := self.graph.verdict(run)) is not None:
            score, _, _, weight, _ = stands
            self.walks.judge(run, score, weight)

    def forget(self, gone: Forgotten) -> int:
        """Delete the walks of runs; what they added to the edges stays."""
        for run in gone.runs:
            self.walks.runs.pop(run, None)
        return 0

    def to_state(self) -> dict[str, Any]:
        """See `Table`."""
        return super().to_state() | {"edges": self.walks.edges.rows, "walks": self.walks.runs}

    def load(self, state: dict[str, Any]) -> None:
        """See `Table`."""
        super().load(state)
        self.walks.edges.rows, self.walks.runs = state["edges"], state["walks"]


def section(walks: Walks, counters: Mapping[str, float], sums: Mapping[str, int]) -> Section:
    """Return SIT's part of the report, from the walks, the counters of the evidence graph and the ledger's sums."""
    stored, unjudged = int(counters.get("summaries", 0)), walks.waiting()
    found = [(source, target, edge) for source in walks.edges.rows for target, edge in walks.out_of(source).items()]
    found.sort(key=lambda each: (-each[2].weight(), each[2].bad, *each[:2]))
    del found[MAX_EDGES:]
    edges = [{"source": one, "target": two, **edge._asdict(), "weight": edge.weight()} for one, two, edge in found]
    figures = {**sums, "summaries": stored, "runs_waiting": unjudged, "edges": edges}
    lines = list(shown_in_words("Next tools", sums))
    if stored:
        lines.append(f"States of runs stored in words, for suggestions: {stored:,}.")
    if unjudged and (lines or counters.get("runs_judged")):
        lines.append(f"Runs without a verdict: {unjudged:,}; successful ones teach suggestions more than these.")
    rows = tuple(
        (
            "(start of a run)" if source == START else source,
            target,
            f"{round(edge.good):,} of {round(edge.good + edge.bad):,}",
            f"{edge.weight():,.2f}",
            percentage(edge.good, edge.good + edge.bad),
        )
        for source, target, edge in found
        if edge.good + edge.bad
    )
    title = "What came next in whole runs (weight: N + Σ 1/n over the successful ones)"
    table = TextTable(title, ("after", "comes", "in good runs", "weight", "success"), rows)
    return Section("Next tools", figures, tuple(lines), (table,))
