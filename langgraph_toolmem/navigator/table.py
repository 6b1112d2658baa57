"""The navigator's table in the evidence graph: recent uses, decisions about tools, their outputs.

A decision (which tools are left out, how links weigh) carries its time, and the latest one
counts, so that the order in which several workers' records arrive does not matter. What a decision is made of (counts
at that time) is kept with it: a replay gives the same.

Recent uses are counted by the day (UTC) for `MAX_DAYS` days, one number per link and day. Older days leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from langgraph_toolmem.graph.events import HOUR, Event, Forgotten, Outcome
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.navigator import fields

MAX_DAYS: Final = 32
MAX_TARGETS: Final = 5_000
MAX_SOURCES: Final = 64
"""Tools counted per day, and links into each; where there are more, those that come first."""
HOURS: Final = 24
DAY: Final = HOURS * HOUR


@dataclass(slots=True)
class OutputsSeen(Event):
    """New fields in a tool's result: path -> JSON types (`navigator.fields`)."""

    kind = "outputs_seen"
    tool: str
    paths: dict[str, list[str]]
    user: str | None


@dataclass(slots=True)
class PrunedTool(Event):
    """These tools are left out from now on, each until it has more good calls than these."""

    kind = "left_out"
    calls: dict[str, int]
    when: float


@dataclass(slots=True)
class PutBack(Event):
    """These tools are there again."""

    kind = "put_back"
    tools: list[str]
    when: float


@dataclass(slots=True)
class LinksWeighed(Event):
    """Weights of links, {target: {source: weight}}, in place of earlier ones."""

    kind = "links_weighed"
    weights: dict[str, dict[str, float]]
    when: float


@dataclass(slots=True)
class ToolsSearched(Event):
    """A model call with deferred tools: calls of tools found by the first search of their user turn, by a later one and
    by none, and tokens of tools that were sent and saved."""

    kind = "tools_searched"
    first: int
    later: int
    never: int
    sent: int
    saved: int


class NavigatorEvidence(Table):
    """Recent uses, the latest decisions, and what results looked like.

    Attributes:
        days: number of the day since 1970, as text -> target -> [uses, {source: good uses of source→target}].
        left: tool -> [when it was left out or put back, its good calls then]; None in place of the calls: put back.
        weights: [when, {target: {source: weight}}]: weights in place of the counted ones.
        outputs: tool -> the fields of its results (`navigator.fields`).
        searches: sums of `ToolsSearched`, and the number of model calls.
    """

    name = "navigator"
    parts = (
        "days",
        "left",
        "weights",
        "outputs",
        "searches",
    )

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.days: dict[str, dict[str, list[Any]]] = {}
        self.left: dict[str, list[Any]] = {}
        self.weights: list[Any] = [0.0, {}]
        self.outputs: dict[str, fields.Row] = {}
        self.searches: list[int] = [0] * 6
        #: tool -> number of the change; see `outputs_since`
        self._changed: dict[str, int] = {}
        self._changes = 0

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {
            Outcome: self._add_use,
            OutputsSeen: self._add_outputs,
            PrunedTool: self._leave_out,
            PutBack: self._put_back,
            LinksWeighed: self._weigh,
            ToolsSearched: self._add_searches,
        }

    def _add_use(self, tool: str, status: str, after: str | None, hour: int | None) -> None:
        """A call on a day, and, if it went well, the link into it from the tool called before."""
        if hour is None or status not in ("ok", "failed"):
            return
        counted = self.days.setdefault(str(hour // HOURS), {})
        if tool in counted or len(counted) < MAX_TARGETS:
            used = counted.setdefault(tool, [0, {}])
            used[0] += 1
            if status == "ok" and after is not None and (after in used[1] or len(used[1]) < MAX_SOURCES):
                used[1][after] = used[1].get(after, 0) + 1
        if len(self.days) > MAX_DAYS:
            del self.days[min(self.days, key=int)]

    def _add_outputs(self, tool: str, paths: dict[str, list[str]], user: str | None) -> None:
        fields.add(self.outputs.setdefault(tool, {}), paths, user)
        self._change(tool)

    def _change(self, tool: str) -> None:
        self._changes += 1
        self._changed.pop(tool, None)  # the latest comes last
        self._changed[tool] = self._changes

    def _leave_out(self, calls: Mapping[str, int], when: float) -> None:
        for tool, good in calls.items():
            self._decide(tool, good, when)

    def _put_back(self, tools: Iterable[str], when: float) -> None:
        for tool in tools:
            self._decide(tool, None, when)

    def _decide(self, tool: str, good: int | None, when: float) -> None:
        before = self.left.get(tool)
        if before is None or when >= before[0]:
            self.left[tool] = [when, good]

    def _weigh(self, weights: dict[str, dict[str, float]], when: float) -> None:
        if when >= self.weights[0]:
            self.weights = [when, weights]

    def _add_searches(self, *counts: int) -> None:
        self.searches = [before + more for before, more in zip(self.searches, (*counts, 1), strict=True)]

    # --- reading ---

    def left_out(self) -> frozenset[str]:
        """Tools that were pruned and did not go well since: they are in no plan."""
        return frozenset(
            tool
            for tool, (_, then) in self.left.items()
            if then is not None and self.graph.tools.get(tool, {}).get("ok", 0) <= then
        )

    def outputs_since(self, number: int) -> tuple[int, list[str]]:
        """The number of the latest change of known outputs, and the tools whose outputs changed after the given one."""
        found = takewhile(lambda pair: pair[1] > number, reversed(self._changed.items()))
        return self._changes, [tool for tool, _ in found]

    def usable_outputs(self, tools: Iterable[str]) -> dict[str, dict[str, list[str]]]:
        """The fields of results, for those of the tools of which some are known; see `navigator.fields.usable`."""
        return {tool: fields.usable(self.outputs[tool]) for tool in tools if tool in self.outputs}

    def recent(self, now: float, days: float) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
        """Good uses of each link (source, target), and uses of each target, on the last `days` days, today included."""
        first = int(now // DAY) - max(1, round(days)) + 1
        successes: dict[tuple[str, str], float] = {}
        uses: dict[str, float] = {}
        for day, counted in self.days.items():
            if first <= int(day) <= int(now // DAY):
                for target, (number, sources) in counted.items():
                    uses[target] = uses.get(target, 0) + number
                    for source, good in sources.items():
                        successes[source, target] = successes.get((source, target), 0) + good
        return successes, uses

    def forget(self, gone: Forgotten) -> int:
        """Names of output fields that only this user's runs showed go, uncounted."""
        for tool, known in self.outputs.items():
            if gone.user and fields.forget(known, gone.user):
                self._change(tool)
        return 0
