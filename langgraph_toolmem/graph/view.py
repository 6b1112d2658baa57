"""A plain copy of the evidence graph for pictures and inspection."""

from __future__ import annotations

from typing import Literal

from langgraph_toolmem.graph.evidence import HIT, MISS, OPEN, EvidenceGraph
from langgraph_toolmem.graph.export import START, EdgeView, FlowView, GraphView, ToolCounts
from langgraph_toolmem.graph.state import PARALLEL, SEPARATOR, WORDS


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
