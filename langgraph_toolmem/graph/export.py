"""The evidence graph as a picture: Mermaid text.

A `GraphView` is a plain copy of what the graph knows at one moment, so nothing here depends on how counts are
kept. Tool names come from outside and may hold anything; they are escaped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from langgraph_toolmem.base.text import printable

START = "<start>"
"""Source of an edge to a tool that opened a run."""

_LABEL_LENGTH = 60
_REASONS = 3  # lines on one dotted arrow
_PLAIN = frozenset(" _-.,:/+")  # characters beside letters and digits that Mermaid takes literally


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


def to_mermaid(view: GraphView, *, min_count: int = 1, max_edges: int = 60) -> str:
    """Draw the graph as a Mermaid flowchart.

    Solid arrows say which tool follows which and how often; dotted arrows say which argument takes its
    value from where. The most frequent ones are drawn, and a comment says how many were left out.

    Args:
        view: the graph.
        min_count: leave out arrows with less evidence.
        max_edges: at most so many solid arrows, and so many dotted ones.
    """
    most = max(max_edges, 0)
    edges = sorted(
        (edge for edge in view.edges if edge.count >= min_count),
        key=lambda edge: (-edge.count, edge.source, edge.target),
    )
    flows = sorted(_pairs(view.dataflow, min_count), key=lambda pair: (-pair.hits, pair.source, pair.target))
    shown, drawn = edges[:most], flows[:most]
    ids = _node_ids(shown, drawn)
    lines = ["flowchart TD"]
    lines += _left_out("sequence arrows", len(shown), len(view.edges))
    pairs = {(flow.source_tool, flow.target_tool) for flow in view.dataflow}
    lines += _left_out("dataflow arrows", len(drawn), len(pairs))
    for name, node in ids.items():
        if name == START:
            lines.append(f'    {node}(["start of a run"])')
        else:
            lines.append(f'    {node}["{_label(name)}{_tally(view.tools.get(name))}"]')
    for edge in shown:
        failed = f", {edge.failed} failed" if edge.failed else ""
        lines.append(f'    {ids[edge.source]} -->|"{edge.count}{failed}"| {ids[edge.target]}')
    for pair in drawn:
        text = "<br/>".join(_label(reason) for reason in pair.reasons[:_REASONS])
        more = f"<br/>and {len(pair.reasons) - _REASONS} more" if len(pair.reasons) > _REASONS else ""
        lines.append(f'    {ids[pair.source]} -.->|"{text}{more}"| {ids[pair.target]}')
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Pair:
    """All dataflow between two tools: one dotted arrow."""

    source: str
    target: str
    hits: int
    reasons: list[str]


def _pairs(flows: Iterable[FlowView], min_count: int) -> list[_Pair]:
    grouped: defaultdict[tuple[str, str], list[FlowView]] = defaultdict(list)
    for flow in flows:
        if flow.hits >= min_count:
            grouped[flow.source_tool, flow.target_tool].append(flow)
    pairs = []
    for (source, target), found in grouped.items():
        found.sort(key=lambda flow: (-flow.hits, flow.parameter, flow.path))
        pairs.append(_Pair(source, target, found[0].hits, [_reason(flow) for flow in found]))
    return pairs


def _reason(flow: FlowView) -> str:
    side = "argument " if flow.direction == "in" else "output "
    return f"{side}{flow.path}".strip() + f" → {flow.parameter}"


def _node_ids(edges: Iterable[EdgeView], pairs: Iterable[_Pair]) -> dict[str, str]:
    names = dict.fromkeys(name for edge in edges for name in (edge.source, edge.target))
    names.update(dict.fromkeys(name for pair in pairs for name in (pair.source, pair.target)))
    return {name: f"n{i}" for i, name in enumerate(names)}


def _left_out(what: str, shown: int, total: int) -> list[str]:
    return [f"    %% {shown} of {total} {what} are drawn, the most frequent ones"] if shown < total else []


def _tally(counts: ToolCounts | None) -> str:
    if counts is None or not counts.calls:
        return ""
    failed = f", {counts.failed} failed" if counts.failed else ""
    return f"<br/>{counts.ok} ok{failed}"


def _label(text: str) -> str:
    """Text inside a quoted Mermaid label: what the grammar or Markdown would read goes in as `#code;`."""
    text = printable(text)
    if len(text) > _LABEL_LENGTH:
        text = text[: _LABEL_LENGTH - 1] + "…"
    escaped = "".join(c if c.isalnum() or c in _PLAIN or c in "→…" else f"#{ord(c)};" for c in text)
    # A label that opens like a list item ("1. x", "- x") would be rendered as Markdown.
    head = escaped.lstrip(" 0123456789")
    if head[:1] in {".", "-", "+"}:
        at = len(escaped) - len(head)
        escaped = f"{escaped[:at]}#{ord(head[0])};{head[1:]}"
    return escaped or "#32;"
