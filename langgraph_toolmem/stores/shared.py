"""Several machines, one graph: the events of each worker through a LangGraph ``BaseStore``."""

from __future__ import annotations

from collections.abc import Callable

from langgraph.store.base import BaseStore

from langgraph_toolmem.graph.operations import Forgotten
from langgraph_toolmem.stores.events import EventStore


class SharedLog:
    """Sends what this worker learned, and brings what others did."""

    def __init__(
        self,
        store: BaseStore,
        namespace: tuple[str, ...],
        events: EventStore,
        *,
        now: Callable[[], float],
        deadline: float,
        patience: float,
    ) -> None:
        raise NotImplementedError

    def look(self, *, at_once: bool = False) -> None:
        """Ask for what others learned, if it is time to; wait a moment for it. Not under the lock."""

    def refresh(self, *, at_once: bool = False) -> None:
        """Apply what was fetched. The caller holds the lock."""

    def acknowledge(self) -> None:
        """Wait a moment for the store to have what was learned, where nothing else outlives the process."""

    def waiting(self) -> list[str]:
        """Return what is wrong now, one sentence each."""
        return []

    def forget(self, gone: Forgotten) -> int:
        """Remove from the store what the graph of this worker has forgotten. Not under the lock."""
        return 0

    def close(self) -> None:
        """Send what waits."""
