"""What the navigator reads of a memory's evidence graph and what it writes there; the only place that knows how."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from langgraph_toolmem.graph import fields
from langgraph_toolmem.graph.evidence import Record
from langgraph_toolmem.graph.evolving import MAX_DAYS
from langgraph_toolmem.graph.view import view_of
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.stores.graph_store import GraphStore

MOST_DAYS: Final = MAX_DAYS - 1
"""Days of which uses are known."""
Outputs = dict[str, dict[str, list[str]]]
"""Tool -> path of its results -> JSON types."""


class Evidence:
    """Safe for threads.

    Args:
        store: the evidence graph where it is kept.
        tools: the tools known now.
        apply: keeps a record.
        lock: of the memory; guards all of it.
        now: seconds since 1970.
    """

    def __init__(
        self,
        store: GraphStore,
        *,
        tools: Callable[[], Mapping[str, ToolSpec]],
        apply: Callable[[Record], object],
        lock: threading.RLock,
        now: Callable[[], float],
    ) -> None:
        self._store, self._tools, self._apply, self.lock, self._now = store, tools, apply, lock, now

    @property
    def read_only(self) -> bool:
        """Whether nothing may be written."""
        return self._store.read_only

    def tools(self) -> Mapping[str, ToolSpec]:
        """The tools known now."""
        with self.lock:
            return self._tools()

    def outputs(self, since: int | None) -> tuple[int, Outputs]:
        """What results of tools look like, of those where that changed.

        Args:
            since: what was returned with the last answer; None: all there is.
        """
        with self.lock:
            version, changed = self._store.graph.outputs_since(since or 0)
            return version, self._outputs_of(self._store.graph.tools if since is None else changed)

    def outputs_of(self, tools: Collection[str]) -> Outputs:
        """The same for some tools."""
        with self.lock:
            return self._outputs_of(tools)

    def history(self, *, at_once: bool = False) -> History:
        """The counts of past runs.

        Args:
            at_once: with what other workers learned a moment ago.
        """
        with self.lock:
            self._store.refresh(at_once=at_once)
            graph = self._store.graph
            given = {
                (tool, parameter): count
                for tool, entry in graph.tools.items()
                for parameter, count in entry.get("given", {}).items()
            }
            return History.of_view(view_of(graph), given=given, shifts=graph.evolving.shifts[1])

    def recent(self, days: float) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
        """Good uses of each link, and uses of each target, on the last days."""
        with self.lock:
            return self._store.graph.evolving.recent(self._now(), days)

    # --- what was decided ---

    def refresh(self) -> None:
        """Takes in what other workers learned, if it is time to look."""
        with self.lock:
            self._store.refresh()

    def left_out(self) -> frozenset[str]:
        """The tools that were pruned and did not go well since."""
        with self.lock:
            return self._store.graph.left_out()

    def constraints(self) -> tuple[object, Any]:
        """What a user says of clusters, in plain values; before it what is another object after each change."""
        with self.lock:
            decided = self._store.graph.evolving.groups
            return decided, decided[1]

    def leave_out(self, tools: Collection[str]) -> None:
        """Prunes tools, each until it has more good calls than now."""
        with self.lock:
            good = {tool: int(self._store.graph.tools.get(tool, {}).get("ok", 0)) for tool in tools}
            self._decide("lo", good)

    def put_back(self, tools: list[str]) -> None:
        """Takes pruning back."""
        self._decide("lo-", tools)

    def shift(self, shifts: Mapping[str, Mapping[str, float]]) -> None:
        """Weights of links; see `evolution.shifts_of`."""
        self._decide("sh", shifts)

    def constrain(self, plain: Any) -> None:
        """What a user says of clusters, in place of what was said before."""
        self._decide("gr", plain)

    def _decide(self, operation: str, what: Any) -> None:
        with self.lock:
            self._apply([[operation, what, self._now()]])

    def _outputs_of(self, tools: Collection[str]) -> Outputs:
        known = self._store.graph.tools
        return {tool: fields.usable(known[tool]["outputs"]) for tool in tools if "outputs" in known.get(tool, {})}
