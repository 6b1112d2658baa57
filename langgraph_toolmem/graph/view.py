"""A plain copy of the evidence graph for pictures and inspection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from langgraph_toolmem.graph.evidence import HIT, MISS, OPEN, EvidenceGraph
from langgraph_toolmem.graph.state import PARALLEL, SEPARATOR, WORDS

START = "<start>"
"""Source of an edge to a tool that opened a run."""


@dataclass(frozen=True, slots=True)
class ToolCounts:
    """How often a tool was executed with success, and how often it failed."""

    ok: int
    failed: int

    @property
    def calls(self) -> int:
        """Both together."""
        return self.ok + self.failed


@dataclass(frozen=True, slots=True)
class EdgeView:
    """`target` was called right after `source` (`START`: first in a run).

    Attributes:
        source: tool name or `START`.
        target: tool name.
        count: how often the model chose it.
        ok: how often the call went well.
        failed: how often it failed.
    """

    source: str
    target: str
    count: int
    ok: int
    failed: int


@dataclass(frozen=True, slots=True)
class FlowView:
    """An argument that had the value of an input or output of an earlier call in the same run.

    Attributes:
        source_tool: the earlier call's tool.
        direction: "in" for one of its arguments, "out" for a part of its output.
        path: which argument, or where in the output.
        target_tool: the later call's tool.
        parameter: the later call's parameter.
        hits: how often the source had the value.
        misses: how often it had another one.
    """

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
        """All calls of all tools."""
        return sum(counts.calls for counts in self.tools.values())


def view_of(graph: EvidenceGraph) -> GraphView:
    """Tools, edges between consecutive calls (and from the start), and where arguments came from."""
    tools = {
        name: ToolCounts(int(entry.get("ok", 0)), int(entry.get("failed", 0)))
        for name, entry in sorted(graph.tools.items())
        if entry.get("ok") or entry.get("failed")
    }
    edges = []
    for key, row in graph.successors.rows.items():
        kind, _, source = key.partition(SEPARATOR)
        starts = kind == "w1" and source == START
        if not starts and kind != "p1":
            continue
        for target, cell in row.items():
            if target not in (WORDS, PARALLEL, OPEN):
                model_ok, model_failed, shortcut_ok, shortcut_failed = (int(n) for n in cell)
                edge = EdgeView(
                    source=source,
                    target=target,
                    count=model_ok + model_failed,
                    ok=model_ok + shortcut_ok,
                    failed=model_failed + shortcut_failed,
                )
                edges.append(edge)
    edges.sort(key=lambda e: (-e.count, e.source, e.target))
    return GraphView(tools=tools, edges=edges, dataflow=_flows(graph))


def _flows(graph: EvidenceGraph) -> list[FlowView]:
    flows = []
    for slot, row in graph.sources.rows.items():
        if "\x1e" in slot:
            continue
        tool, parameter = slot.split(SEPARATOR)
        for descriptor, cell in row.items():
            kind, _, rest = descriptor.removeprefix("[]").partition("|")
            if kind not in ("i", "o", "l", "m"):
                continue
            source, _, path = rest.rpartition("|") if kind == "i" else rest.partition("|")
            direction: Literal["in", "out"] = "in" if kind == "i" else "out"
            flows.append(
                FlowView(source, direction, path.replace("|", " "), tool, parameter, int(cell[HIT]), int(cell[MISS]))
            )
    flows.sort(key=lambda f: (-f.hits, f.misses, f.source_tool, f.target_tool, f.parameter, f.path))
    return flows
