"""The links into an input with their weights: what structure and record say, and what a scorer makes of it."""

from __future__ import annotations

import logging
from typing import Final

from langgraph_toolmem.base.failures import log_failure
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import EdgeScorer, Link, RecordScorer
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.words.ports import Port

logger = logging.getLogger("langgraph_toolmem.navigator.dependencies.weigh")

PROPOSED: Final = 3
"""Links into one input that a scorer may propose."""


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

    def into(self, port: Port) -> list[tuple[Link, float]]:
        """The links into an input, in no particular order, with weights from 0 to 1."""
        links = self._graph.links_into(port, self._history, near=self._near)
        if self._scorer is None:
            return [(link, _share(self._record.known(link).weight)) for link in links]
        try:
            there = {link.producer for link in links}
            proposed = [tool for tool in self._scorer.propose(port, PROPOSED) if tool not in there]
            links += self._graph.predicted(port, proposed[:PROPOSED])
            known = [self._record.known(link) for link in links]
            found = self._scorer.weigh(links, known)
            weights = [_share(k.weight if w is None else float(w)) for k, w in zip(known, found, strict=True)]
            return list(zip(links, weights, strict=True))
        except Exception as error:  # noqa: BLE001 - a plan by structure and record is better than none
            log_failure(logger, logging.WARNING, "links are weighed by structure and record alone", error=error)
            self._scorer = None
            return self.into(port)


def _share(weight: float) -> float:
    if weight != weight:
        raise ValueError("a weight of a link is no number")
    return min(1.0, max(0.0, weight))
