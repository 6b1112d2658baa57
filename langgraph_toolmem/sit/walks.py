"""Which tool came after which in whole runs, weighed by how the runs ended.

A run's walk is the set of its transitions. It counts for each of its edges as good or bad once the run has a
verdict, and as open until then. Successful runs weigh more the shorter they are: an edge gets N + c·Σ 1/n, with N
the successful runs' uses of it and n the number of transitions of each such run (SIT-Graph, arXiv 2512.07287).

What a walk adds depends on its transitions and its verdict alone, not on their order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.graph.tables import CountTable

MAX_WALKS: Final = 10_000
"""Walks that can still change; the oldest leave, and what they added stays as it is."""
MAX_SOURCES: Final = 20_000
MAX_TARGETS: Final = 64
_GOOD, _BONUS, _BAD, _OPEN = range(4)


class Edge(NamedTuple):
    """What is known of one edge: uses in good runs, Σ 1/n over these, uses in bad runs and in runs not judged yet."""

    good: float
    bonus: float
    bad: float
    open: float

    def weight(self, c: float = 1.0, unlabelled: float = 0.0) -> float:
        """N + c·Σ 1/n over the successful runs; uses in runs without a verdict count `unlabelled`·`trust` each."""
        return self.good + c * self.bonus + unlabelled * self.trust * self.open

    @property
    def trust(self) -> float:
        """What uses in runs without a verdict are worth, by those with one: 1 if none of these was bad."""
        return (self.good + 1) / (self.good + self.bad + 1)

    @property
    def success(self) -> float | None:
        """Share of its judged uses that belong to good runs; None if none is judged."""
        judged = self.good + self.bad
        return self.good / judged if judged else None


@dataclass(frozen=True, slots=True)
class EdgeRecord:
    """How runs in which `target` was called right after `source` ended (`START`: first in a run).

    Attributes:
        source: tool name or `START`.
        target: tool name.
        good: uses in successful runs.
        bad: uses in runs that were not.
        open: uses in runs without a verdict.
        weight: N + Σ 1/n over the successful runs, N their uses and n the length of each (SIT-Graph).
        success: share of the judged uses that belong to successful runs; None: none is judged.
    """

    source: str
    target: str
    good: int
    bad: int
    open: int
    weight: float
    success: float | None


class Walks:
    """Edges with their uses in good, bad and open runs."""

    def __init__(self) -> None:
        self.edges = CountTable(MAX_SOURCES, width=4, max_items=MAX_TARGETS)
        #: run -> [verdict or None, {step: [source, target]}, weight of the verdict]
        self.runs: dict[str, list[Any]] = {}

    def add(self, run: str, step: str, source: str, target: str) -> None:
        """One transition of a run; the same step twice counts once."""
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
        """The verdict on a run, from 0 (bad) to 1 (good); a later one takes the place of an earlier one.

        Of a verdict that counts less than 1 the rest of each use stays open.
        """
        walk = self._walk(run)
        self._weigh(walk, -1)
        walk[0], walk[2] = float(score), float(weight)
        self._weigh(walk, 1)

    def out_of(self, source: str) -> dict[str, Edge]:
        """The edges out of a tool (or the start symbol), by target."""
        return {target: Edge(*cell) for target, cell in self.edges.row(source).items() if any(cell)}

    def waiting(self) -> int:
        """Runs that have no verdict."""
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

    def records(self) -> list[EdgeRecord]:
        """The edges, those of most weight first."""
        found = [
            EdgeRecord(
                source,
                target,
                round(edge.good),
                round(edge.bad),
                round(edge.open),
                round(edge.weight(), 6),
                edge.success,
            )
            for source in self.edges.rows
            for target, edge in self.out_of(source).items()
        ]
        return sorted(found, key=lambda w: (-w.weight, w.bad, w.source, w.target))
