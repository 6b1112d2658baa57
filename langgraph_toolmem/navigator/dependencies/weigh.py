"""The links into an input with their weights: what structure and record say, and what a scorer makes of it."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from langgraph_toolmem.base.errors import log_failure
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import EdgeScorer, Link, RecordScorer
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.text.meaning import Port

logger = logging.getLogger("langgraph_toolmem.navigator.dependencies.weigh")

PROPOSED: Final = 3
"""Links into one input that a scorer may propose."""


class Weighed(NamedTuple):
    """A link with its weight, less where its producer failed, and with that by structure and record alone; 0 to 1."""

    link: Link
    weight: float
    known: float


class Weigher:
    """Weighs links.

    A scorer that fails, or answers what is no weight, is asked no more, and the log says so once.

    Args:
        graph: the tools.
        history: counts of the past.
        scorer: weighs and proposes; None: structure and record alone.
        near: see `ToolDependencyGraph.links_into`.
    """

    def __init__(
        self, graph: ToolDependencyGraph, history: History, scorer: EdgeScorer | None = None, *, near: int = 0
    ) -> None:
        self._graph, self._history, self._near = graph, history, near
        self._record, self._scorer = RecordScorer(history), scorer

    def into(self, port: Port) -> list[Weighed]:
        """The links into an input, in no particular order."""
        links = self._graph.links_into(port, self._history, near=self._near)
        if self._scorer is None:
            found = [_share(self._record.known(link).weight) for link in links]
            return [
                Weighed(link, self._works(link) * weight, weight) for link, weight in zip(links, found, strict=True)
            ]
        try:
            there = {link.producer for link in links}
            proposed = [tool for tool in self._scorer.propose(port, PROPOSED) if tool not in there]
            links += self._graph.predicted(port, proposed[:PROPOSED])
            known = [self._record.known(link) for link in links]
            weights = self._scorer.weigh(links, known)
            return [
                Weighed(
                    link, self._works(link) * _share(of.weight if weight is None else float(weight)), _share(of.weight)
                )
                for link, of, weight in zip(links, known, weights, strict=True)
            ]
        except Exception as error:  # noqa: BLE001 - a plan by structure and record is better than none
            log_failure(logger, logging.WARNING, "links are weighed by structure and record alone", error=error)
            self._scorer = None
            return self.into(port)

    def _works(self, link: Link) -> float:
        return self._history.works(link.producer)


def _share(weight: float) -> float:
    if weight != weight:
        raise ValueError("a weight of a link is no number")
    return min(1.0, max(0.0, weight))
