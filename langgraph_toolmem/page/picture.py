"""The graph and its rules as plain values, small enough for a page: what the page's script draws from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langgraph_toolmem.base.text import printable
from langgraph_toolmem.graph.sources import MARKS
from langgraph_toolmem.graph.view import START, FlowView, GraphView, ToolCounts
from langgraph_toolmem.inertia.calibrated import symbol_in_words, tool_in_words
from langgraph_toolmem.inertia.evidence import RuleRecord
from langgraph_toolmem.page.layout import place, times
from langgraph_toolmem.report.report import Report, ToolReport

MAX_TOOLS = 1_000
MAX_EDGES = 4_000
MAX_FLOWS = 2_000
MAX_CHARS = 200
START_LABEL = "start of a run"

_KINDS = {
    "c": "usual value",
    "cp": "usual value at this point",
    "n": "nearest past request",
    "env": "environment",
    "goal": "user's goal",
    "i": "argument of an earlier call",
    "o": "output of an earlier call",
    "l": "list in an earlier output",
    "ua": "user's words after others",
    "ub": "user's words between others",
    "us": "of a known form in the user's words",
    "ud": "date in the user's words",
    "xa": "words after others in a tool's text",
    "xb": "words between others in a tool's text",
    "xq": "quoted in a tool's text",
    "xs": "of a known form in a tool's text",
    "xd": "date in a tool's text",
}


def picture(report: Report, view: GraphView) -> dict[str, Any]:
    """Return what the script needs, as JSON values.

    Returns:
        `tools`: the most used first, each with its names and counts; `edges` and `flows`: the strongest first, tools
        by their index; `rules`: the record of predictions, by index as well; `left_out`: how many of each did not
        fit on a page.
    """
    counts = _tools(report, view)
    names = sorted(counts, key=lambda name: (name != START, -counts[name].calls, name))
    drawn = names[:MAX_TOOLS]
    index = {name: i for i, name in enumerate(drawn)}
    places, changing = place(drawn, view.edges), report["inertia"].get("changing", {})
    edges = sorted(
        (edge for edge in view.edges if edge.source in index and edge.target in index and times(edge)),
        key=lambda edge: (-times(edge), edge.source, edge.target),
    )
    flows = sorted(
        (f for f in view.dataflow if f.hits and f.source_tool in index and f.target_tool in index),
        key=lambda f: (-f.hits, f.misses, f.source_tool, f.target_tool, f.parameter, f.path),
    )
    return {
        "tools": [
            {
                "name": shown(name),
                "start": name == START,
                "changes": clip(changing.get(name, "")),
                "depth": places[name].depth,
                "rank": places[name].rank,
                **_record(name, counts[name], report),
            }
            for name in drawn
        ],
        "edges": [[index[e.source], index[e.target], times(e), e.ok, e.failed, e.count] for e in edges[:MAX_EDGES]],
        "flows": [
            [index[f.source_tool], index[f.target_tool], f.hits, f.misses, clip(f.parameter), clip(origin(f))]
            for f in flows[:MAX_FLOWS]
        ],
        "rules": [
            [
                index.get(_tool_of(r.after), -1),
                index.get(r.tool, -1),
                after_in_words(r.after),
                sources_in_words(r),
                r.hits,
                r.misses,
            ]
            for r in report["inertia"].get("rules", ())
        ],
        "left_out": {
            "tools": len(names) - len(drawn),
            "edges": len(view.edges) - min(len(edges), MAX_EDGES),
            "flows": max(len(flows) - MAX_FLOWS, 0),
        },
    }


def clip(text: str) -> str:
    """One line without control characters, of bounded length."""
    text = printable(text)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def origin(flow: FlowView) -> str:
    """Return where a value came from, in words."""
    return f"{'argument' if flow.direction == 'in' else 'output'} {flow.path}".strip()


def after_in_words(symbol: str) -> str:
    """Return what a rule comes after, in words."""
    return clip(symbol_in_words(symbol))


def sources_in_words(rule: RuleRecord) -> str:
    """Return where a rule takes its arguments from: its kinds of sources, in words."""
    kinds = dict.fromkeys(_kind_in_words(kind) for kind in rule.sources.split("+") if kind)
    return ", ".join(kinds) or "no arguments"


def _kind_in_words(kind: str) -> str:
    plain = kind.lstrip(MARKS)
    return _KINDS.get(plain) or clip(kind)


def _tools(report: Report, view: GraphView) -> dict[str, ToolCounts]:
    names: Iterable[str] = dict.fromkeys(
        [*view.tools, *report.tools, *(name for e in view.edges for name in (e.source, e.target))]
    )
    counts = {}
    for name in names:
        told = report.tools.get(name, ToolReport())
        counts[name] = view.tools.get(name, ToolCounts(told.calls - told.failed, told.failed))
    return counts


def _record(name: str, counts: ToolCounts, report: Report) -> dict[str, int]:
    told = report.tools.get(name, ToolReport())
    return {
        "ok": counts.ok,
        "failed": counts.failed,
        "skipped": told.skipped,
        "right": told.right,
        "wrong": told.wrong,
    }


def shown(name: str) -> str:
    """Return what a tool is called on the page."""
    return START_LABEL if name == START else clip(tool_in_words(name)) or "(no name)"


def _tool_of(symbol: str) -> str:
    return symbol.removesuffix("!")
