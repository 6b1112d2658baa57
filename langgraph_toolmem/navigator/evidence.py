"""The navigator's part of a memory's evidence graph: recent uses, decisions about tools, their outputs, counts of runs.

A decision (pruned tools, weights of links) carries its time, and the latest one counts, so that the arrival order of
several workers' records does not matter. The basis of a decision (counts at that time) is kept with it, so that a
replay gives the same.

Uses are counted by the day (UTC) for `MAX_DAYS` days, one number per link and day. Older days are dropped.

Of outputs, paths and JSON types are kept, never values. But names of fields may be personal, if a table is keyed by
people's names. So fields that only one user's runs showed are deleted when that user is forgotten, and a path with a
part that may be a name ("Ann") is not used until a run of another user has shown it.

`History` has the counts of past runs that plans read, independent of their storage: w(i→j) = N(i→j) / N(j), successful
uses of i→j over all uses of j (NaviAgent, arXiv 2506.19500, section 2). It is the share of j's uses that i preceded or
fed, not the probability of j after i.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple

from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import HOUR, Event, Forgotten, Outcome, PlainRecord, Record, plain_of, records_of
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.graph.view import GraphView, view_of
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.schema import paths_of, shows_fields

MAX_DAYS: Final = 32
MOST_DAYS: Final = MAX_DAYS - 1
"""Number of days with known uses."""
MAX_TARGETS: Final = 5_000
MAX_LINKS: Final = 64
"""Limit of counted tools per day, and of links into each; the first ones are counted."""
MAX_PATHS: Final = 96
"""Limit of kept paths of one tool's outputs."""
HOURS: Final = 24
LINK_TABLE: Final = "links.json"
"""File in the memory's folder with the trained scores (`papers.naviagent.learned`)."""

Outputs = dict[str, dict[str, list[str]]]
"""Tool -> path of its results -> JSON types."""


class VersionedOutputs(NamedTuple):
    """Outputs of all tools with their version; None if the reader has this version."""

    version: int
    outputs: Outputs | None


# --- events ---


@dataclass(slots=True)
class OutputsSeen(Event):
    """New fields in a tool's result: path -> JSON types."""

    kind = "outputs_seen"
    tool: str
    paths: dict[str, list[str]]
    user: str | None


@dataclass(slots=True)
class PrunedTool(Event):
    """Tools that are pruned from now on, each until it has more good calls than these."""

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
    """A model call with deferred tools: calls of tools found by the first search of their user turn, by a later search
    and without a search, and tokens of tools that were sent and saved.
    """

    kind = "tools_searched"
    first: int
    later: int
    never: int
    sent: int
    saved: int


@dataclass(slots=True)
class RecentUse:
    """Calls of a tool on the last days.

    Attributes:
        calls, failures: all of them, and those that failed.
        sources: the tool before -> calls that went well right after it.
    """

    calls: int = 0
    failures: int = 0
    sources: Counter[str] = field(default_factory=Counter)


class SearchSums(NamedTuple):
    """Sums of `ToolsSearched`, and the number of model calls."""

    first: int
    later: int
    never: int
    sent: int
    saved: int
    model_calls: int


@dataclass(slots=True)
class DayUse(PlainRecord):
    """Calls of a tool on one day. On disk it is the list of these fields.

    Attributes:
        uses, failures: all of them, and those that failed.
        sources: the tool before -> calls that went well right after it.
    """

    uses: int = 0
    failures: int = 0
    sources: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class LeftOut(PlainRecord):
    """The latest decision about a tool. On disk it is the list of these fields.

    Attributes:
        when: time of the decision, in seconds since 1970.
        good: its good calls when it was pruned; None if it was restored.
    """

    when: float
    good: int | None


@dataclass(slots=True)
class DecidedWeights(PlainRecord):
    """Weights of links in place of the counted ones, {target: {source: weight}}. On disk it is the list of these."""

    when: float = 0.0
    by_target: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(slots=True)
class SeenField(PlainRecord):
    """A part of a tool's results. On disk it is the list of these fields.

    Attributes:
        types: its JSON types.
        owner: digest of the one user whose runs showed it; "" for several or unknown.
    """

    types: list[str]
    owner: str


class NavigatorEvidence(Table):
    """Recent uses, the latest decisions, and the shapes of results.

    Attributes:
        days: number of the day since 1970, as text -> target -> its calls on that day.
        left: tool -> the latest decision to prune or restore it.
        weights: the latest weights of links.
        outputs: tool -> path -> the part of its results there.
        searches: sums of `ToolsSearched`, and the number of model calls.
    """

    name = "navigator"
    parts: ClassVar = {
        "days": shapes.RowsOf(
            shapes.RowsOf(shapes.RecordOf((shapes.WHOLE, shapes.WHOLE, shapes.RowsOf(shapes.WHOLE)))), shapes.DIGITS
        ),
        "left": shapes.RowsOf(shapes.RecordOf((shapes.NUMBER, shapes.OrNone(shapes.WHOLE)))),
        "weights": shapes.RecordOf((shapes.NUMBER, shapes.RowsOf(shapes.RowsOf(shapes.NUMBER)))),
        "outputs": shapes.RowsOf(shapes.RowsOf(shapes.RecordOf((shapes.ListOf(shapes.TEXT), shapes.TEXT)))),
        "searches": shapes.ListOf(shapes.WHOLE, (len(SearchSums._fields),)),
    }

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.days: dict[str, dict[str, DayUse]] = {}
        self.left: dict[str, LeftOut] = {}
        self.weights = DecidedWeights()
        self.outputs: dict[str, dict[str, SeenField]] = {}
        self.searches = SearchSums(0, 0, 0, 0, 0, 0)
        # Version of the outputs: the graph reads them again only after a change.
        self.changes = 0

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

    def to_state(self) -> dict[str, Any]:
        """See `Table`."""
        return {
            "days": {day: plain_of(uses) for day, uses in self.days.items()},
            "left": plain_of(self.left),
            "weights": self.weights.to_plain(),
            "outputs": {tool: plain_of(row) for tool, row in self.outputs.items()},
            "searches": list(self.searches),
        }

    def load(self, state: dict[str, Any]) -> None:
        """See `Table`."""
        self.days = {day: records_of(DayUse, uses) for day, uses in state["days"].items()}
        self.left = records_of(LeftOut, state["left"])
        self.weights = DecidedWeights.from_plain(state["weights"])
        self.outputs = {tool: records_of(SeenField, row) for tool, row in state["outputs"].items()}
        self.searches = SearchSums(*state["searches"])

    def _add_use(self, tool: str, status: str, after: str | None, hour: int | None) -> None:
        """Count a call on its day, and, if it went well, the link into it from the tool called before."""
        # A refused call was never executed, so it is not counted for the tool.
        if hour is None or status not in ("ok", "failed"):
            return
        counted = self.days.setdefault(str(hour // HOURS), {})
        if tool in counted or len(counted) < MAX_TARGETS:
            use = counted.setdefault(tool, DayUse())
            use.uses += 1
            use.failures += status == "failed"
            if status == "ok" and after is not None:
                _count_source(use.sources, after)
        # The oldest is dropped, which may be one that a late record of another worker has just added.
        if len(self.days) > MAX_DAYS:
            del self.days[min(self.days, key=int)]

    def _add_outputs(self, tool: str, paths: dict[str, list[str]], user: str | None) -> None:
        row = self.outputs.setdefault(tool, {})
        for path, types in paths.items():
            known = row.get(path)
            if known is not None:
                known.types = sorted({*known.types, *types})
                # A path that two users' runs showed belongs to neither, and is kept when one of them is forgotten.
                if user is not None and user != known.owner:
                    known.owner = ""
            elif len(row) < MAX_PATHS:
                row[path] = SeenField(sorted(types), user or "")
        self.changes += 1

    def _leave_out(self, calls: Mapping[str, int | None], when: float) -> None:
        for tool, good in calls.items():
            decided = self.left.get(tool)
            # Records of other workers come in any order; the latest decision counts.
            if decided is None or when >= decided.when:
                self.left[tool] = LeftOut(when, good)

    def _put_back(self, tools: Iterable[str], when: float) -> None:
        self._leave_out(dict.fromkeys(tools), when)

    def _weigh(self, weights: dict[str, dict[str, float]], when: float) -> None:
        if when >= self.weights.when:
            self.weights = DecidedWeights(when, weights)

    def _add_searches(self, *counts: int) -> None:
        sums = [before + more for before, more in zip(self.searches, (*counts, 1), strict=True)]
        self.searches = SearchSums(*sums)

    # --- reading ---

    def left_out(self) -> frozenset[str]:
        """Return the pruned tools without a successful call since: they are left out of plans."""
        tools = set()
        for tool, decided in self.left.items():
            if decided.good is None:
                continue
            good_now = self.graph.tools.get(tool, {}).get("ok", 0)
            # One successful call restores a tool: the service may have failed, not the tool.
            if good_now <= decided.good:
                tools.add(tool)
        return frozenset(tools)

    def new_in(self, tool: str, paths: Mapping[str, Iterable[str]], user: str | None) -> dict[str, list[str]]:
        """Return the fields of a result that are unknown for its tool."""
        row = self.outputs.get(tool, {})
        new: dict[str, list[str]] = {}
        for path, types in paths.items():
            known = row.get(path)
            if known is None:
                if len(row) + len(new) < MAX_PATHS:
                    new[path] = sorted(types)
                continue
            # A second user's run makes the field common.
            seen_by_another = user and known.owner not in ("", user)
            if seen_by_another or not set(types) <= set(known.types):
                new[path] = sorted(types)
        return new

    def usable_outputs(self) -> Outputs:
        """Return the fields of results that may be used."""
        usable: Outputs = {}
        for tool, row in self.outputs.items():
            usable[tool] = {}
            for path, seen in row.items():
                # See the module: a field that only one user's runs showed may be a person's name.
                if not seen.owner or not _may_be_name(path):
                    usable[tool][path] = list(seen.types)
        return usable

    def recent(self, now: float, days: float) -> dict[str, RecentUse]:
        """Return the uses of each tool on the last `days` days, today included."""
        # Whole days (UTC): uses are counted by the day.
        today = int(now // (HOURS * HOUR))
        first = today - max(1, round(days)) + 1
        recent: dict[str, RecentUse] = {}
        for day, counted in self.days.items():
            if not first <= int(day) <= today:
                continue
            for target, use in counted.items():
                total = recent.setdefault(target, RecentUse())
                total.calls += use.uses
                total.failures += use.failures
                total.sources.update(use.sources)
        return recent

    def forget(self, gone: Forgotten) -> int:
        """Delete names of output fields that only this user's runs showed."""
        if not gone.user:
            return 0
        for row in self.outputs.values():
            owned = [path for path, seen in row.items() if seen.owner == gone.user]
            for path in owned:
                del row[path]
                self.changes += 1
        return 0


def _count_source(sources: dict[str, int], tool: str) -> None:
    if tool in sources or len(sources) < MAX_LINKS:
        sources[tool] = sources.get(tool, 0) + 1


def _may_be_name(path: str) -> bool:
    """Return True if a part of a path looks like a name: one word of letters with a leading capital."""
    for part in path.replace("[]", "").split("."):
        if part.isalpha() and part.istitle():
            return True
    return False


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
        known = self._core.catalogue.known
        # The graph compares mappings by identity: a plan over unchanged tools does not read them again.
        if known is not self._tools and not _same_specs(known, self._tools):
            self._tools = known
        return self._tools

    def learned(self, learned: LearnedTurn) -> Record:
        """Return unknown fields of results; each result is read once."""
        record: Record = []
        for step in learned.turn.steps:
            # The result of a failed call has the fields of an error.
            if step.status != "ok" or step.output is None or not self._is_new_call(step.key):
                continue
            if not self._is_worth_reading(step.tool) or not shows_fields(step.output):
                continue
            new = self._table.new_in(step.tool, paths_of(step.output), learned.user)
            if new:
                record.append(OutputsSeen(step.tool, new, learned.user))
                self._quiet[step.tool] = 0
        return record

    def _is_new_call(self, key: str) -> bool:
        """Return True for a call whose result was not read yet, and record that it is read now."""
        most = 4_096  # limit of remembered calls: in a longer thread the oldest results are read again
        if key in self._looked_at:
            return False
        self._looked_at[key] = None
        drop_oldest(self._looked_at, most)
        return True

    def _is_worth_reading(self, tool: str) -> bool:
        """Return False for most results of a tool without new fields for a while, and count this result."""
        # Reading a large result costs more than the rest of learning its call.
        patience = 16
        quiet = self._quiet.get(tool, 0)
        self._quiet[tool] = quiet + 1
        return quiet < patience or quiet % patience == 0

    def outputs(self, since: int | None = None) -> VersionedOutputs:
        """Return the shapes of tools' results; None if their version is the given one."""
        with self.lock:
            version = self._table.changes
            if version == since:
                return VersionedOutputs(version, None)
            return VersionedOutputs(version, self._table.usable_outputs())

    def history(self, *, at_once: bool = False) -> History:
        """Return the counts of past runs; `at_once`: with the latest events of other workers."""
        recent_days = 7  # days whose calls count twice in `History.works`
        self._core.refresh(at_once=at_once)
        # Only plain copies under the lock, and the slow work after it: learning waits for this lock.
        with self.lock:
            graph = self._core.graph
            recent = self._table.recent(self._core.now(), recent_days)
            view = view_of(graph)
            given = _given_by(graph)
            decided = self._table.weights.by_target
        uses: dict[str, float] = {}
        failures: dict[str, float] = {}
        for tool, counts in view.tools.items():
            uses[tool], failures[tool] = counts.calls, counts.failed
        transitions: Counter[tuple[str, str]] = Counter()
        for link in view.edges:
            transitions[link.source, link.target] += link.ok
        counted = History(
            uses=uses,
            failures=failures,
            recent={tool: ToolCalls(use.calls, use.failures) for tool, use in recent.items()},
            transitions=transitions,
            flows=_flows_of(view),
            given=given,
        )
        return _with_weights(counted, decided)

    def recent(self, days: float) -> dict[str, RecentUse]:
        """Return the uses of each tool on the last days."""
        with self.lock:
            return self._table.recent(self._core.now(), days)

    # --- decisions ---

    def left_out(self) -> frozenset[str]:
        """Return the pruned tools without a successful call since."""
        with self.lock:
            return self._table.left_out()

    def exclude(self, tools: Collection[str]) -> None:
        """Prune tools, each until it has more good calls than now."""
        # Under the lock of learning: a call that ended in between would bring the tool back at once.
        with self.lock:
            good: dict[str, int] = {}
            for tool in tools:
                good[tool] = int(self._core.graph.tools.get(tool, {}).get("ok", 0))
            self._core.apply(None, [PrunedTool(good, self._core.now())])
        # In a shared store the decision is stored before the caller continues.
        self._core.acknowledge()

    def restore(self, tools: list[str]) -> None:
        """Restore pruned tools."""
        with self.lock:
            self._core.apply(None, [PutBack(tools, self._core.now())])
        self._core.acknowledge()

    def weigh(self, weights: Mapping[tuple[str, str], float]) -> None:
        """Keep weights of links, (source, target) -> weight, in place of earlier ones."""
        by_target: dict[str, dict[str, float]] = {}
        for (source, target), weight in weights.items():
            by_target.setdefault(target, {})[source] = weight
        with self.lock:
            self._core.apply(None, [LinkWeightsSet(by_target, self._core.now())])
        self._core.acknowledge()

    def searched(self, counts: ToolsSearched) -> None:
        """Count a model call with deferred tools."""
        # Not acknowledged: a count of searches does not justify a write to disk at each model call.
        with self.lock:
            self._core.apply(None, [counts])

    def searches(self) -> SearchSums:
        """Return the sums of the counts."""
        with self.lock:
            return self._table.searches


def _same_specs(tools: Mapping[str, ToolSpec], others: Mapping[str, ToolSpec]) -> bool:
    if len(tools) != len(others):
        return False
    return all(others.get(name) is spec for name, spec in tools.items())


def _with_weights(counted: History, decided: Mapping[str, Mapping[str, float]]) -> History:
    """Return counts with the decided weights of links, {target: {source: weight}}, in place of the counted ones."""
    weights: dict[tuple[str, str], float] = {}
    for target, sources in decided.items():
        for source, weight in sources.items():
            weights[source, target] = weight
    if not weights:
        return counted
    flows = dict(counted.flows)
    for flow, count in flows.items():
        edge = flow.source, flow.target
        transitions = counted.transitions.get(edge, 0)
        # A decided weight scales the flows along its link in the same proportion.
        if edge in weights and transitions > 0:
            flows[flow] = count * (weights[edge] * counted.uses.get(flow.target, 0.0) / transitions)
    return replace(counted, flows=flows, weights=weights)


def _given_by(graph: ToolGraph) -> dict[tuple[str, str], float]:
    """Return (tool, parameter) -> times that its value did not come from an output."""
    given = {}
    for tool, entry in graph.tools.items():
        for parameter, count in entry.get("given", {}).items():
            given[tool, parameter] = count
    return given


def _flows_of(view: GraphView) -> dict[Flow, float]:
    """Return how often a value went from an output to a parameter."""
    flows: dict[Flow, float] = {}
    for seen in view.dataflow:
        # Values from arguments of earlier calls are not outputs.
        if seen.direction != "out" or not seen.hits:
            continue
        # Several elements of a list are one path here, and the same value is counted for each of them.
        flow = Flow(seen.source_tool, plain_path(seen.path), seen.target_tool, seen.parameter)
        flows[flow] = max(flows.get(flow, 0), seen.hits)
    return flows


# --- counts of past runs ---


class Flow(NamedTuple):
    """A part of one tool's output that became a parameter of another one."""

    source: str
    path: str
    target: str
    parameter: str


class ToolCalls(NamedTuple):
    """Calls of one tool, and those of them that failed."""

    calls: float
    failures: float


@dataclass(frozen=True)
class History:
    """Counts of the past; all empty for a cold start.

    Attributes:
        uses: tool -> calls, N(j), whether they went well or not.
        failures: tool -> those of them that failed.
        recent: tool -> calls of the last days: they count twice in `works`.
        transitions: (i, j) -> times that j went well right after i, N(i→j).
        flows: output part and parameter -> times that a value flowed from one to the other, in successful calls.
        given: (tool, parameter) -> times that its value did not come from an output: the user or the model gave it.
        weights: (i, j) -> a weight that replaces N(i→j) / N(j), such as `Navigator.propagate` makes; flows along the
            link are scaled by the same factor.
    """

    uses: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, float] = field(default_factory=dict)
    recent: Mapping[str, ToolCalls] = field(default_factory=dict)
    transitions: Mapping[tuple[str, str], float] = field(default_factory=dict)
    flows: Mapping[Flow, float] = field(default_factory=dict)
    given: Mapping[tuple[str, str], float] = field(default_factory=dict)
    weights: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @cached_property
    def _into(self) -> dict[tuple[str, str], dict[Flow, float]]:
        """The flows by their target."""
        into: dict[tuple[str, str], dict[Flow, float]] = {}
        for flow, count in self.flows.items():
            if count > 0:
                into.setdefault((flow.target, flow.parameter), {})[flow] = count
        return into

    def weight(self, source: str, target: str) -> float:
        """Return w(i→j), 0 to 1; 0 without a record."""
        decided = self.weights.get((source, target))
        if decided is not None:
            return min(1.0, max(0.0, decided))
        uses = self.uses.get(target, 0)
        if uses <= 0:
            return 0.0
        # A use may come right after several others, so the counts may add up to more than the uses.
        return min(1.0, self.transitions.get((source, target), 0) / uses)

    def good(self, tool: str) -> float:
        """Return the number of successful calls of a tool."""
        return self.uses.get(tool, 0.0) - self.failures.get(tool, 0.0)

    def works(self, tool: str) -> float:
        """Return the share of a tool's successful calls, 0 to 1; recent calls count twice."""
        prior = 4.0  # assumed successful calls before the first one: a single failure proves little
        recent = self.recent.get(tool, ToolCalls(0.0, 0.0))
        calls = recent.calls + self.uses.get(tool, 0.0)
        failures = recent.failures + self.failures.get(tool, 0.0)
        return (prior + calls - failures) / (prior + calls)

    def flows_into(self, tool: str, parameter: str) -> Mapping[Flow, float]:
        """Return the flows that ended in a parameter, with their counts."""
        return self._into.get((tool, parameter), {})


def plain_path(path: str) -> str:
    """Return a path of the evidence graph in this package's form: ``$[0].id`` and ``[*].id`` are ``[].id``."""
    path = _ELEMENT.sub("", path)
    path = _TABLE.sub("[]", path).removeprefix("$").lstrip(".")
    return _SUBSCRIPT.sub("[]", path)


# Compiled once: a memory with thousands of flows reads all of them for each plan.
_ELEMENT = re.compile(r" (?:next|last|only|all)(?:@.*)?$", re.DOTALL)  # which element of a list was taken
_TABLE = re.compile(r"\.\*~?")
_SUBSCRIPT = re.compile(r"\[[^\[\]]*\]")
