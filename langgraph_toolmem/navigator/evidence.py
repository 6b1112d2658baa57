"""The navigator's part of a memory's evidence graph: recent uses, decisions about tools, and their outputs.

A decision (which tools are left out, how links weigh) carries its time, and the latest one counts, so that the order in
which several workers' records arrive does not matter. What a decision is made of (counts at that time) is kept with it:
a replay gives the same.

Uses are counted by the day (UTC) for `MAX_DAYS` days, one number per link and day. Older days leave.

Of outputs, paths and JSON types are kept, never values. Names of fields may be personal all the same, where a table is
keyed by people's names. So what only one user's runs showed is deleted when that user is forgotten, and a path with a
part that may be a name ("Ann") is not used before somebody else's run has shown it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph.events import HOUR, Event, Forgotten, Outcome, Record
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.graph.view import view_of
from langgraph_toolmem.navigator.history import Flow, History, plain_path
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.schema import paths_of, shows_fields

MAX_DAYS: Final = 32
MOST_DAYS: Final = MAX_DAYS - 1
"""Days of which uses are known."""
RECENT_DAYS: Final = 7
"""Days whose calls count twice in `History.works`."""
MAX_TARGETS: Final = 5_000
MAX_SOURCES: Final = 64
"""Tools counted per day, and links into each; where there are more, those that come first."""
MAX_PATHS: Final = 96
"""Paths kept of one tool's outputs."""
MAX_LOOKED_AT: Final = 4_096
"""Calls whose results are not read again for what tools give."""
QUIET: Final = 16
"""Results of a tool that showed nothing new one after another; from then on only one in so many is read."""
HOURS: Final = 24
DAY: Final = HOURS * HOUR

Outputs = dict[str, dict[str, list[str]]]
"""Tool -> path of its results -> JSON types."""


# --- what is recorded ---


@dataclass(slots=True)
class OutputsSeen(Event):
    """New fields in a tool's result: path -> JSON types."""

    kind = "outputs_seen"
    tool: str
    paths: dict[str, list[str]]
    user: str | None


@dataclass(slots=True)
class PrunedTool(Event):
    """Tools that are left out from now on, each until it has more good calls than these."""

    kind = "left_out"
    calls: dict[str, int]
    when: float


@dataclass(slots=True)
class PutBack(Event):
    """Tools that are in plans again."""

    kind = "put_back"
    tools: list[str]
    when: float


@dataclass(slots=True)
class LinkWeightsSet(Event):
    """Weights of links, {target: {source: weight}}, in place of earlier ones."""

    kind = "link_weights_set"
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
        days: number of the day since 1970, as text -> target -> [uses, failures, {source: good uses of source→target}].
        left: tool -> [when it was left out or put back, its good calls then]; None in place of the calls: put back.
        weights: [when, {target: {source: weight}}]: weights in place of the counted ones.
        outputs: tool -> path -> [JSON types, digest of the one user whose runs showed it]; "" for several or unknown.
        searches: sums of `ToolsSearched`, and the number of model calls.
    """

    name = "navigator"
    parts = ("days", "left", "weights", "outputs", "searches")

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.days: dict[str, dict[str, list[Any]]] = {}
        self.left: dict[str, list[Any]] = {}
        self.weights: list[Any] = [0.0, {}]
        self.outputs: dict[str, dict[str, list[Any]]] = {}
        self.searches: list[int] = [0] * 6
        self.changes = 0  # of outputs

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {
            Outcome: self._add_use,
            OutputsSeen: self._add_outputs,
            PrunedTool: self._leave_out,
            PutBack: self._put_back,
            LinkWeightsSet: self._weigh,
            ToolsSearched: self._add_searches,
        }

    def _add_use(self, tool: str, status: str, after: str | None, hour: int | None) -> None:
        """Count a call on its day, and, if it went well, the link into it from the tool called before."""
        if hour is None or status not in ("ok", "failed"):
            return
        counted = self.days.setdefault(str(hour // HOURS), {})
        if tool in counted or len(counted) < MAX_TARGETS:
            used = counted.setdefault(tool, [0, 0, {}])
            used[0] += 1
            used[1] += status == "failed"
            sources = used[2]
            if status == "ok" and after is not None and (after in sources or len(sources) < MAX_SOURCES):
                sources[after] = sources.get(after, 0) + 1
        if len(self.days) > MAX_DAYS:
            del self.days[min(self.days, key=int)]

    def _add_outputs(self, tool: str, paths: dict[str, list[str]], user: str | None) -> None:
        row = self.outputs.setdefault(tool, {})
        for path, types in paths.items():
            known = row.get(path)
            if known is not None:
                row[path] = [sorted({*known[0], *types}), known[1] if user in (None, known[1]) else ""]
            elif len(row) < MAX_PATHS:
                row[path] = [sorted(types), user or ""]
        self.changes += 1

    def _leave_out(self, calls: Mapping[str, int | None], when: float) -> None:
        for tool, good in calls.items():
            before = self.left.get(tool)
            if before is None or when >= before[0]:
                self.left[tool] = [when, good]

    def _put_back(self, tools: Iterable[str], when: float) -> None:
        self._leave_out(dict.fromkeys(tools), when)

    def _weigh(self, weights: dict[str, dict[str, float]], when: float) -> None:
        if when >= self.weights[0]:
            self.weights = [when, weights]

    def _add_searches(self, *counts: int) -> None:
        self.searches = [before + more for before, more in zip(self.searches, (*counts, 1), strict=True)]

    # --- reading ---

    def left_out(self) -> frozenset[str]:
        """Return the tools that were pruned and did not go well since: they are in no plan."""
        return frozenset(
            tool
            for tool, (_, then) in self.left.items()
            if then is not None and self.graph.tools.get(tool, {}).get("ok", 0) <= then
        )

    def new_in(self, tool: str, paths: Mapping[str, Iterable[str]], user: str | None) -> dict[str, list[str]]:
        """Return what a result shows that is not known of its tool yet."""
        row, found = self.outputs.get(tool, {}), dict[str, list[str]]()
        for path, types in paths.items():
            known = row.get(path)
            if known is None:
                if len(row) + len(found) < MAX_PATHS:
                    found[path] = sorted(types)
            elif (user and known[1] not in ("", user)) or not set(types) <= set(known[0]):
                found[path] = sorted(types)
        return found

    def usable_outputs(self) -> Outputs:
        """Return the fields of results that may be used."""
        return {
            tool: {path: list(types) for path, (types, whose) in row.items() if not (whose and _may_be_name(path))}
            for tool, row in self.outputs.items()
        }

    def recent(self, now: float, days: float) -> dict[str, list[Any]]:
        """Return the sums of the last `days` days, today included, each like a cell of `days`."""
        first = int(now // DAY) - max(1, round(days)) + 1
        found: dict[str, list[Any]] = {}
        for day, counted in self.days.items():
            if first <= int(day) <= int(now // DAY):
                for target, (uses, failures, sources) in counted.items():
                    total = found.setdefault(target, [0, 0, {}])
                    total[0] += uses
                    total[1] += failures
                    for source, good in sources.items():
                        total[2][source] = total[2].get(source, 0) + good
        return found

    def forget(self, gone: Forgotten) -> int:
        """Delete names of output fields that only this user's runs showed."""
        for row in self.outputs.values():
            for path in [path for path, (_, whose) in row.items() if gone.user and whose == gone.user]:
                del row[path]
                self.changes += 1
        return 0


def _may_be_name(path: str) -> bool:
    """Return True if a part of a path looks like a name: one word of letters with a capital in front."""
    return any(part.isalpha() and part.istitle() for part in path.replace("[]", "").split("."))


# --- reading and writing ---


class NavigatorSources:
    """Reader of a memory for the navigator, and recorder of its decisions. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._table = core.register(NavigatorEvidence)
        self._quiet: dict[str, int] = {}
        self._looked_at: dict[str, None] = {}
        self._tools: Mapping[str, ToolSpec] = {}
        self.lock, self.read_only = core.lock, core.read_only

    def tools(self) -> Mapping[str, ToolSpec]:
        """Return the tools known now; the same mapping as long as they are the same."""
        self._core.refresh()
        known, before = self._core.catalogue.known, self._tools
        if known is before or (
            len(known) == len(before) and all(before.get(name) is spec for name, spec in known.items())
        ):
            return before
        self._tools = known
        return known

    def learned(self, learned: LearnedTurn) -> Record:
        """Return unknown fields of results; each result is read once."""
        record: Record = []
        for step in learned.turn.steps:
            if step.status != "ok" or step.output is None or step.key in self._looked_at:
                continue
            self._looked_at[step.key] = None
            if len(self._looked_at) > MAX_LOOKED_AT:
                del self._looked_at[next(iter(self._looked_at))]
            quiet = self._quiet.get(step.tool, 0)
            self._quiet[step.tool] = quiet + 1
            if not (quiet < QUIET or quiet % QUIET == 0) or not shows_fields(step.output):
                continue
            if new := self._table.new_in(step.tool, paths_of(step.output), learned.user):
                record.append(OutputsSeen(step.tool, new, learned.user))
                self._quiet[step.tool] = 0
        return record

    def outputs(self, since: int | None = None) -> tuple[int, Outputs | None]:
        """Return what results of tools look like, with a number; None if that is the number that was given."""
        with self.lock:
            number = self._table.changes
            return number, None if number == since else self._table.usable_outputs()

    def history(self, *, at_once: bool = False) -> History:
        """Return the counts of past runs; `at_once`: with what other workers learned a moment ago."""
        self._core.refresh(at_once=at_once)
        with self.lock:
            graph = self._core.graph
            lately = self._table.recent(self._core.now(), RECENT_DAYS)
            view, weighed = view_of(graph), self._table.weights[1]
            given = {
                (tool, name): count
                for tool, entry in graph.tools.items()
                for name, count in entry.get("given", {}).items()
            }
        uses: dict[str, float] = {tool: counts.calls for tool, counts in view.tools.items()}
        transitions: Counter[tuple[str, str]] = Counter()
        for link in view.edges:
            transitions[link.source, link.target] += link.ok
        flows: dict[Flow, float] = {}
        for flow in view.dataflow:
            if flow.direction == "out" and flow.hits:
                key = Flow(flow.source_tool, plain_path(flow.path), flow.target_tool, flow.parameter)
                flows[key] = max(flows.get(key, 0), flow.hits)
        weights = {(source, target): w for target, sources in weighed.items() for source, w in sources.items()}
        for key in flows:
            edge = key.source, key.target
            if edge in weights and transitions[edge] > 0:
                flows[key] *= weights[edge] * uses.get(key.target, 0.0) / transitions[edge]
        return History(
            uses=uses,
            failures={tool: counts.failed for tool, counts in view.tools.items()},
            recent={tool: (calls, failures) for tool, (calls, failures, _) in lately.items()},
            transitions=transitions,
            flows=flows,
            given=given,
            weights=weights,
        )

    def recent(self, days: float) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
        """Return good uses of each link, and uses of each target, on the last days."""
        with self.lock:
            found = self._table.recent(self._core.now(), days)
        links = {(source, target): n for target, (_, _, sources) in found.items() for source, n in sources.items()}
        return links, {target: uses for target, (uses, _, _) in found.items()}

    # --- what was decided ---

    def left_out(self) -> frozenset[str]:
        """Return the tools that were pruned and did not go well since."""
        with self.lock:
            return self._table.left_out()

    def exclude(self, tools: Collection[str]) -> None:
        """Prune tools, each until it has more good calls than now."""
        with self.lock:
            good = {tool: int(self._core.graph.tools.get(tool, {}).get("ok", 0)) for tool in tools}
            self._decide(lambda now: PrunedTool(good, now))

    def restore(self, tools: list[str]) -> None:
        """Take pruning back."""
        self._decide(lambda now: PutBack(tools, now))

    def weigh(self, weights: Mapping[tuple[str, str], float]) -> None:
        """Keep weights of links, (source, target) -> weight, in place of earlier ones."""
        found: dict[str, dict[str, float]] = {}
        for (source, target), weight in weights.items():
            found.setdefault(target, {})[source] = weight
        self._decide(lambda now: LinkWeightsSet(found, now))

    def searched(self, first: int, later: int, never: int, sent: int, saved: int) -> None:
        """Count a model call with deferred tools; see `ToolsSearched`."""
        with self.lock:
            self._core.apply(None, [ToolsSearched(first, later, never, sent, saved)])

    def searches(self) -> list[int]:
        """Return the sums of what was counted, and the number of model calls."""
        with self.lock:
            return list(self._table.searches)

    def _decide(self, event: Callable[[float], Event]) -> None:
        with self.lock:
            self._core.apply(None, [event(self._core.now())])
        self._core.acknowledge()
