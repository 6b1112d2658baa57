"""How old the runs in the evidence graph are, where the memory has a retention: what is older goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from langgraph_toolmem.base.shapes import Shape, each, maybe, number
from langgraph_toolmem.core.episodes import Episodes
from langgraph_toolmem.core.evidence import Evidence
from langgraph_toolmem.core.listener import LearnedTurn
from langgraph_toolmem.graph.evidence import EvidenceGraph, Handler, Table
from langgraph_toolmem.graph.operations import HOUR, Forgotten, Operation, Record

MAX_AGES: Final = 200_000
"""Runs, requests and threads whose ages are known; one that left is as old as the last that did."""
RENEWED: Final = 24
"""Hours after which it is noted that something was heard of again."""


@dataclass(slots=True)
class Heard(Operation):
    """Runs, requests and threads (digests) were heard of in that hour since 1970; none: ages are kept from then on."""

    kind = "heard"
    names: list[str]
    hour: int


class AgesTable(Table):
    """When something was heard of last.

    Attributes:
        hours: digest -> hour since 1970.
        began: the hour that counts for what is not there; None: no age was ever kept.
    """

    name = "ages"
    shapes: ClassVar[Mapping[str, Shape]] = {"hours": each(number), "began": maybe(number)}

    def __init__(self, graph: EvidenceGraph) -> None:
        super().__init__(graph)
        self.hours: dict[str, int] = {}
        self.began: int | None = None

    def handlers(self) -> Mapping[type[Operation], Handler]:
        """See `Table`."""
        return {Heard: self._hear}

    def _hear(self, names: list[str], hour: int) -> None:
        if self.began is None:
            self.began = hour
        for name in names:
            self.hours[name] = max(hour, self.hours.pop(name, hour))
            if len(self.hours) > MAX_AGES:
                self.began = max(self.began, self.hours.pop(next(iter(self.hours))))

    def forget(self, gone: Forgotten) -> int:
        """See `Table`."""
        for name in gone.runs:
            self.hours.pop(name, None)
        return 0


class Ages:
    """Notes ages, and tells what is old.

    Args:
        evidence: of the memory; the table is registered there.
        episodes: of each thread.
        on: whether anything is noted.
    """

    def __init__(self, evidence: Evidence, episodes: Episodes, *, on: bool) -> None:
        self._evidence, self._episodes = evidence, episodes
        self._table = evidence.register(AgesTable) if on else None

    def heard(self, learned: LearnedTurn) -> Record:
        """That a turn is learned, to be joined to its record."""
        if self._table is None:
            return []
        known, hour = self._table.hours, learned.hour
        names = [learned.run, learned.thread, learned.state.user_key]
        new = [name for name in names if name and hour - known.get(name, hour - RENEWED) >= RENEWED]
        return [Heard(new, hour)] if new else []

    def older(self, before: float) -> set[str]:
        """What was not heard of since a time in seconds since 1970 (digests)."""
        evidence, table = self._evidence, self._table
        if table is None:
            return set()
        with evidence.lock:
            if table.began is None:
                evidence.apply(None, [Heard([], evidence.hour())])
            began, first = table.began or 0, int(before // HOUR)
            graph = evidence.graph
            witnesses = (graph.value_witnesses, graph.pattern_witnesses)
            threads = (cell[0] for each in witnesses for row in each.rows.values() for cell in row.values())
            names = {*graph.cases.cases, *graph.runs, *self._episodes.names(), *table.hours}.union(*threads)
            return {name for name in names if table.hours.get(name, began) < first}
