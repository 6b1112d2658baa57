"""The newest runs and what was counted in each: what is told over time while there are too few hours to tell by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from langgraph_toolmem.base.shapes import Shape, each, number, row
from langgraph_toolmem.graph.evidence import EvidenceGraph, Handler, Table
from langgraph_toolmem.graph.operations import Count, Forgotten, Operation, Record

MAX_NEWEST: Final = 100


@dataclass(slots=True)
class RunCounted(Operation):
    """What a turn of a run, at a time in seconds since 1970, added to the counters that are kept by the hour."""

    kind = "run_counted"
    run: str
    when: float
    counted: dict[str, float]


def counted(run: str, when: float, record: Record) -> Record:
    """The operation for a turn's record, to be joined to it."""
    sums: dict[str, float] = {}
    for count in record:
        if isinstance(count, Count) and count.hour is not None:
            sums[count.counter] = sums.get(count.counter, 0) + count.amount
    return [RunCounted(run, when, sums)] if sums else []


class NewestRuns(Table):
    """The counters of the newest runs.

    Attributes:
        runs: run -> [its first turn, in seconds since 1970, counters]; MAX_NEWEST of them, the oldest leave.
    """

    name = "newest_runs"
    shapes: ClassVar[Mapping[str, Shape]] = {"runs": each(row(number, each(number)))}

    def __init__(self, graph: EvidenceGraph) -> None:
        super().__init__(graph)
        self.runs: dict[str, list[Any]] = {}

    def handlers(self) -> Mapping[type[Operation], Handler]:
        """See `Table`."""
        return {RunCounted: self._count}

    def _count(self, run: str, when: float, counted: dict[str, float]) -> None:
        entry = self.runs.setdefault(run, [when, {}])
        entry[0] = min(entry[0], when)
        for name, amount in counted.items():
            entry[1][name] = entry[1].get(name, 0) + amount
        if len(self.runs) > MAX_NEWEST:
            del self.runs[min(self.runs, key=lambda name: (self.runs[name][0], name))]

    def forget(self, gone: Forgotten) -> int:
        """See `Table`."""
        for run in gone.runs:
            self.runs.pop(run, None)
        return 0
