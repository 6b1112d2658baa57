"""Reading and writing of a memory's evidence graph for the navigator; the only place that knows how."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph.events import Event, Record
from langgraph_toolmem.graph.view import view_of
from langgraph_toolmem.navigator import fields
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.table import (
    MAX_DAYS,
    LinksWeighed,
    NavigatorEvidence,
    OutputsSeen,
    PrunedTool,
    PutBack,
    ToolsSearched,
)
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.schema import paths_of, shows_fields

MOST_DAYS: Final = MAX_DAYS - 1
"""Days of which uses are known."""
MAX_LOOKED_AT: Final = 4_096
"""Calls whose results are not looked at again for what tools give."""
QUIET: Final = 16
"""Results of a tool that showed nothing new one after another; from then on only one in so many is looked at."""
Outputs = dict[str, dict[str, list[str]]]
"""Tool -> path of its results -> JSON types."""


class NavigatorSources:
    """Safe for threads.

    Args:
        core: of the memory.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._table = core.register(NavigatorEvidence)
        self._quiet: dict[str, int] = {}
        self._looked_at: dict[str, None] = {}
        self.lock, self.read_only = core.lock, core.read_only

    def tools(self) -> Mapping[str, ToolSpec]:
        """Return the tools known now."""
        self._core.refresh()
        return self._core.catalogue.known

    def learned(self, learned: LearnedTurn) -> Record:
        """Return unknown fields of results, for tools that declare none; each result is looked at once."""
        record: Record = []
        for step in learned.turn.steps:
            if step.status != "ok" or step.output is None or step.key in self._looked_at:
                continue
            self._looked_at[step.key] = None
            if len(self._looked_at) > MAX_LOOKED_AT:
                del self._looked_at[next(iter(self._looked_at))]
            quiet = self._quiet.get(step.tool, 0)
            self._quiet[step.tool] = quiet + 1
            if (quiet < QUIET or quiet % QUIET == 0) and shows_fields(step.output):
                known = self._table.outputs.get(step.tool, {})
                if new := fields.new_in(known, paths_of(step.output), learned.user):
                    record.append(OutputsSeen(step.tool, new, learned.user))
                    self._quiet[step.tool] = 0
        return record

    def outputs(self, since: int | None) -> tuple[int, Outputs]:
        """Return what results of tools look like, of those where that changed.

        Args:
            since: what was returned with the last answer; None: all there is.
        """
        with self.lock:
            version, changed = self._table.outputs_since(since or 0)
            return version, self._table.usable_outputs(self._table.outputs if since is None else changed)

    def outputs_of(self, tools: Collection[str]) -> Outputs:
        """The same for some tools."""
        with self.lock:
            return self._table.usable_outputs(tools)

    def history(self, *, at_once: bool = False) -> History:
        """The counts of past runs.

        Args:
            at_once: with what other workers learned a moment ago.
        """
        self._core.refresh(at_once=at_once)
        with self.lock:
            graph = self._core.graph
            given = {
                (tool, parameter): count
                for tool, entry in graph.tools.items()
                for parameter, count in entry.get("given", {}).items()
            }
            return History.of_view(view_of(graph), given=given, weights=self._table.weights[1])

    def recent(self, days: float) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
        """Good uses of each link, and uses of each target, on the last days."""
        with self.lock:
            return self._table.recent(self._core.now(), days)

    # --- what was decided ---

    def refresh(self) -> None:
        """Takes in what other workers learned, if it is time to look."""
        self._core.refresh()

    def left_out(self) -> frozenset[str]:
        """The tools that were pruned and did not go well since."""
        with self.lock:
            return self._table.left_out()

    def leave_out(self, tools: Collection[str]) -> None:
        """Prunes tools, each until it has more good calls than now."""
        with self.lock:
            good = {tool: int(self._core.graph.tools.get(tool, {}).get("ok", 0)) for tool in tools}
            self._decide(lambda now: PrunedTool(good, now))

    def put_back(self, tools: list[str]) -> None:
        """Takes pruning back."""
        self._decide(lambda now: PutBack(tools, now))

    def weigh(self, weights: Mapping[tuple[str, str], float]) -> None:
        """Keep weights of links, (source, target) -> weight, in place of earlier ones."""
        found: dict[str, dict[str, float]] = {}
        for (source, target), weight in weights.items():
            found.setdefault(target, {})[source] = weight
        self._decide(lambda now: LinksWeighed(found, now))

    def searched(self, first: int, later: int, never: int, sent: int, saved: int) -> None:
        """Counts a model call with deferred tools; see `ToolsSearched`."""
        with self.lock:
            self._core.apply(None, [ToolsSearched(first, later, never, sent, saved)])

    def searches(self) -> list[int]:
        """The sums of what was counted, and the number of model calls."""
        with self.lock:
            return list(self._table.searches)

    def _decide(self, operation: Callable[[float], Event]) -> None:
        with self.lock:
            self._core.apply(None, [operation(self._core.now())])
        self._core.acknowledge()
