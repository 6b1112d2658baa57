"""The evidence graph as the report and its page read it: a plain copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from langgraph_toolmem.base.errors import MissingExtraError
from langgraph_toolmem.graph.state import PARALLEL, SEPARATOR, WORDS
from langgraph_toolmem.graph.state import START as START
from langgraph_toolmem.graph.tool_graph import HIT, MISS, OPEN, ToolGraph


@dataclass(frozen=True, slots=True)
class ToolCounts:
    ok: int
    failed: int

    @property
    def calls(self) -> int:
        return self.ok + self.failed


@dataclass(frozen=True, slots=True)
class EdgeView:
    """`target` was called right after `source` (`START`: first in a run), `count` times by the model's choice."""

    source: str
    target: str
    count: int
    ok: int
    failed: int


@dataclass(frozen=True, slots=True)
class FlowView:
    """An argument with the value of an input ("in") or output ("out") of an earlier call, and how often."""

    source_tool: str
    direction: Literal["in", "out"]
    path: str
    target_tool: str
    parameter: str
    hits: int
    misses: int


@dataclass(frozen=True, slots=True)
class GraphView:
    """A copy of the evidence graph: tools, their successors, and the sources of arguments."""

    tools: dict[str, ToolCounts] = field(default_factory=dict)
    edges: list[EdgeView] = field(default_factory=list)
    dataflow: list[FlowView] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return sum(counts.calls for counts in self.tools.values())

    def to_networkx(self) -> Any:
        """Return a `networkx.MultiDiGraph`: tools with ``ok`` and ``failed``, and two kinds of edges by their keys.

        ``"next"`` leads from a tool to the one called right after it, with ``count``, ``ok`` and ``failed``;
        ``"data ..."`` from the tool that a value came from, with ``path``, ``parameter``, ``direction``, ``hits`` and
        ``misses``.

        Raises:
            MissingExtraError: networkx is not installed (extra `graph`).
        """
        try:
            import networkx
        except ImportError as error:
            raise MissingExtraError("to_networkx()", "graph") from error
        drawn: Any = networkx.MultiDiGraph()
        for name, counts in self.tools.items():
            drawn.add_node(name, ok=counts.ok, failed=counts.failed)
        for edge in self.edges:
            drawn.add_edge(edge.source, edge.target, "next", count=edge.count, ok=edge.ok, failed=edge.failed)
        for flow in self.dataflow:
            drawn.add_edge(
                flow.source_tool,
                flow.target_tool,
                f"data {flow.direction} {flow.path} {flow.parameter}",
                path=flow.path,
                parameter=flow.parameter,
                direction=flow.direction,
                hits=flow.hits,
                misses=flow.misses,
            )
        return drawn


def view_of(graph: ToolGraph) -> GraphView:
    tools = {}
    for name, entry in sorted(graph.tools.items()):
        counts = ToolCounts(int(entry.get("ok", 0)), int(entry.get("failed", 0)))
        if counts.calls:
            tools[name] = counts
    return GraphView(tools=tools, edges=_edges(graph), dataflow=_flows(graph))


def _edges(graph: ToolGraph) -> list[EdgeView]:
    edges = []
    for key, targets in graph.successors.rows.items():
        # The first call of a run is in the windows of one symbol, the others in the paper's, which contain only tools.
        kind, _, source = key.partition(SEPARATOR)
        begins_run = kind == "w1" and source == START
        if not begins_run and kind != "p1":
            continue
        for target, counters in targets.items():
            # A graph of tools does not show answers in words.
            if target not in (WORDS, PARALLEL, OPEN):
                model_ok, model_failed, shortcut_ok, shortcut_failed = map(int, counters)
                ok, failed = model_ok + shortcut_ok, model_failed + shortcut_failed
                edges.append(EdgeView(source, target, model_ok + model_failed, ok, failed))

    def most_frequent_first(edge: EdgeView) -> tuple[int, str, str]:
        return -edge.count, edge.source, edge.target

    return sorted(edges, key=most_frequent_first)


def _flows(graph: ToolGraph) -> list[FlowView]:
    flows = []
    for slot, sources in graph.sources.rows.items():
        # Counts after a certain symbol are also in those of the slot.
        if "\x1e" in slot:
            continue
        tool, parameter = slot.split(SEPARATOR)
        for descriptor, counters in sources.items():
            kind, _, rest = descriptor.partition("|")
            direction: Literal["in", "out"]
            if kind == "i":
                source, _, path = rest.rpartition("|")
                direction = "in"
            elif kind in ("o", "l"):
                source, _, path = rest.partition("|")
                direction = "out"
            else:
                continue
            hits, misses = int(counters[HIT]), int(counters[MISS])
            flows.append(FlowView(source, direction, path.replace("|", " "), tool, parameter, hits, misses))

    def most_hits_first(flow: FlowView) -> tuple[int, int, str, str, str, str]:
        return -flow.hits, flow.misses, flow.source_tool, flow.target_tool, flow.parameter, flow.path

    return sorted(flows, key=most_hits_first)
