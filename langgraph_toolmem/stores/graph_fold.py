"""The graph that a snapshot of a shared store is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph_toolmem.graph.evidence import MAX_WAITING, EvidenceGraph


class GraphFold:
    """Records are applied to it, from a snapshot on (`compaction.Folded`).

    Args:
        empty: makes a graph with the tables that are used.
        apply: applies what was read to it, and says what cannot be applied.
        state: of the snapshot before; None: there is none.
    """

    def __init__(
        self,
        empty: Callable[[], EvidenceGraph],
        apply: Callable[[Any, EvidenceGraph], None],
        state: dict[str, Any] | None,
    ) -> None:
        self._apply, self._graph = apply, empty()
        if state is not None:
            self._graph.load(state)

    def add(self, record: Any) -> None:
        """Applies a record."""
        self._apply(record, self._graph)

    def to_state(self) -> dict[str, Any] | None:
        """Plain containers; None where operations of methods that are not used here would be lost."""
        state = self._graph.to_state()
        return state if len(state["waiting"]) < MAX_WAITING else None
