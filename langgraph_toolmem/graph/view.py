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
    """A copy of the evidence graph: tools, what follows what, where arguments come from."""

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
        found: Any = networkx.MultiDiGraph()
        for name, counts in self.tools.items():
            found.add_node(name, ok=counts.ok, failed=counts.failed)
        for edge in self.edges:
            found.add_edge(edge.source, edge.target, "next", count=edge.count, ok=edge.ok, failed=edge.failed)
        for flow in self.dataflow:
            how = {"path": flow.path, "parameter": flow.parameter, "direction": flow.direction}
            key = f"data {flow.direction} {flow.path} {flow.parameter}"
            found.add_edge(flow.source_tool, flow.target_tool, key, **how, hits=flow.hits, misses=flow.misses)
        return found


def view_of(graph: ToolGraph) -> GraphView:
    tools = {
        name: ToolCounts(int(entry.get("ok", 0)), int(entry.get("failed", 0)))
        for name, entry in sorted(graph.tools.items())
        if entry.get("ok") or entry.get("failed")
    }
    edges = []
    for key, targets in graph.successors.rows.items():
        kind, _, source = key.partition(SEPARATOR)
        starts = kind == "w1" and source == START
        if not starts and kind != "p1":
            continue
        for target, cell in targets.items():
            if target not in (WORDS, PARALLEL, OPEN):
                model_ok, model_failed, shortcut_ok, shortcut_failed = (int(n) for n in cell)
                ends = model_ok + shortcut_ok, model_failed + shortcut_failed
                edges.append(EdgeView(source, target, model_ok + model_failed, *ends))
    edges.sort(key=lambda e: (-e.count, e.source, e.target))
    return GraphView(tools=tools, edges=edges, dataflow=_flows(graph))


def _flows(graph: ToolGraph) -> list[FlowView]:
    flows = []
    for slot, sources in graph.sources.rows.items():
        if "\x1e" in slot:
            continue
        tool, parameter = slot.split(SEPARATOR)
        for descriptor, cell in sources.items():
            kind, _, rest = descriptor.partition("|")
            if kind not in ("i", "o", "l"):
                continue
            source, _, path = rest.rpartition("|") if kind == "i" else rest.partition("|")
            direction: Literal["in", "out"] = "in" if kind == "i" else "out"
            flows.append(
                FlowView(source, direction, path.replace("|", " "), tool, parameter, int(cell[HIT]), int(cell[MISS]))
            )
    flows.sort(key=lambda f: (-f.hits, f.misses, f.source_tool, f.target_tool, f.parameter, f.path))
    return flows
