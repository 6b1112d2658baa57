"""The page: sections of plain HTML, and the data from which its script draws the tool graph."""

from __future__ import annotations

import base64
import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from heapq import heappop, heappush
from html import escape
from importlib import resources
from typing import Any, Final

from langgraph_toolmem._version import __version__
from langgraph_toolmem.base.text import dumps, printable
from langgraph_toolmem.core.method import TextTable
from langgraph_toolmem.graph.events import HOUR
from langgraph_toolmem.graph.state import tool_in_words
from langgraph_toolmem.graph.view import START, EdgeView, FlowView, GraphView
from langgraph_toolmem.report.report import Report, ToolReport


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Sizes of the page: that of a memory with 2,000 tools has less than 200 kB.

    Attributes:
        tools, edges, flows: limits of the graph, which shows the most used.
        rows: of one table.
        line: characters of a text in the graph.
        text: characters of any other text.
    """

    tools: int = 400
    edges: int = 2_000
    flows: int = 500
    rows: int = 200
    line: int = 200
    text: int = 1_000


PAGE_LIMITS: Final = PageLimits()


def render_page(
    report: Report,
    view: GraphView,
    *,
    title: str = "toolmem",
    generated: float | None = None,
    lead: Sequence[str | TextTable] = (),
) -> str:
    """Return one HTML page: a summary, calls to review, tools to declare, and the tool graph.

    Styles, script and data are in the file; its content security policy forbids everything else. The same input gives
    the same page.

    Args:
        report: the record of a memory.
        view: its graph, from the same moment.
        title: heading of the page.
        generated: when the record was read, in seconds since 1970; left out if None.
        lead: sentences and tables of a replay, in place of the memory's own record.
    """
    data, script = _inside_script(_picture(report, view)), _asset("page.js")
    when = ""
    if generated is not None:
        when = f"Read at {_time(generated)} UTC."
    parts = [f"<header><h1>{text_of(title)}</h1>"]
    if not lead:
        parts.append(f'<p class="verdict">{text_of(report.headline())}</p>')
    parts.append(f'<p class="quiet">{when}</p></header><main>')
    for problem in report.problems:
        parts.append(f'<p class="notice" role="alert"><b>Problem:</b> {text_of(problem)}</p>')
    # Items that a person has to review come before the graph, and figures of hints after it.
    if lead:
        parts += lead_of(lead)
    else:
        parts += [_list(report.worth()), *_safety(report)]
    parts += [_graph(bool(view.tools or report.tools)), _tools(report)]
    if not lead:
        parts += _worth(report)
    body = "\n".join(parts)
    scripts = f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>\n'
    return whole_page(title, body, scripts=scripts, allowed_script=_hash(script))


def whole_page(title: str, body: str, *, scripts: str = "", allowed_script: str = "") -> str:
    """Return an HTML page that loads nothing: its styles and scripts are in the file.

    Args:
        title: of the window, a text.
        body: HTML from the header to an open `main`.
        scripts: HTML of the script elements.
        allowed_script: the source expression of the only script that may run. Defaults to none.
    """
    # Names of tools, and texts of models, may be hostile. Text that passes the escaping cannot run, load or send data.
    allowed = ""
    if allowed_script:
        allowed = f" script-src '{allowed_script}';"
    policy = (
        f"default-src 'none';{allowed} style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>{text_of(title)}</title><link rel="icon" href="data:,">
<style>
{_asset("page.css")}</style></head>
<body>
{body}
</main><footer class="quiet">langgraph-toolmem {__version__}</footer>
{scripts}</body></html>
"""


# --- sections ---


def _safety(report: Report) -> Iterator[str]:
    """Yield the items that a person has to review: settings, changes by the memory, and wrong calls."""
    inertia = report["inertia"]
    yield _list(report.setup())
    yield from _declarations(inertia)
    yield "<h2>Changes that the memory made</h2>"
    changes = []
    for change in inertia.get("changes", ()):
        result = f"{change['status']}: {change['result']}"
        changes.append((_hour(change["hour"]), change["thread"], change["tool"], change["args"], result))
    if changes:
        yield _table(("when", "thread", "tool", "arguments", "result"), changes, name="changes")
    else:
        yield '<p class="quiet">None: no tool that may change something was called without the model.</p>'
    wrong = []
    # With the thread, so that a person can look the conversation up.
    for row in inertia.get("wrong_calls", ()):
        wrong.append((_hour(row["hour"]), row["thread"], row["tool"], row["args"], row["instead"], row["found_by"]))
    if wrong:
        yield "<h2>Wrong calls</h2>"
        yield _table(("when", "thread", "tool", "arguments", "right", "found"), wrong, name="wrong")
    withdrawn = report.withdrawn()
    if withdrawn:
        yield "<h2>Withdrawn</h2>" + _list(withdrawn)
    ahead = inertia.get("prefetch")
    if ahead:
        yield (
            f"<h2>Prefetch</h2><p>{ahead['served']:,} of {ahead['started']:,} were ready when the model "
            f"asked, {ahead['wasted']:,} were thrown away; {ahead['seconds_saved']:,.1f} seconds of waiting saved.</p>"
        )


def _declarations(inertia: Mapping[str, Any]) -> Iterator[str]:
    """Yield the undeclared tools, and a declaration to paste for those that seem to read."""
    undeclared = inertia.get("undeclared")
    if not undeclared:
        return
    yield f"<h2>Tools to declare</h2><p>{text_of(', '.join(undeclared))}: never called without the model."
    # Only names that seem to read are proposed: pasted tools may be called without the model.
    seeming = inertia.get("suggested")
    if seeming:
        names = ", ".join(f'"{name}"' for name in seeming)
        yield f" Check these; if they only read, declare them:</p><pre>reads={{{text_of(names)}}}</pre>"
    else:
        yield "</p>"


def _worth(report: Report) -> Iterator[str]:
    """Yield the memory's results: hints, and the sentences of each method in a disclosure."""
    rows = []
    for title, figures in report.hints():
        row = [title]
        for name in ("shown", "followed", "right"):
            row.append(f"{figures.get(name, 0):,.0f}")
        rows.append(row)
    if rows:
        yield "<h2>Hints</h2>" + _table(("hint", "shown", "followed", "went well"), rows, name="hints")
    yield "<details><summary>Everything the methods report</summary>"
    yield _list(report.sentences())
    for section in report.sections.values():
        for table in section.tables:
            # A title without rows would look like a fault.
            if table.rows:
                yield f"<h3>{text_of(table.title)}</h3>" + _table(table.columns, table.rows)
    yield "</details>"


def lead_of(parts: Iterable[str | TextTable]) -> Iterator[str]:
    """Yield the HTML of sentences and tables; a table without rows is left out."""
    for part in parts:
        if isinstance(part, str):
            yield f"<p>{text_of(part)}</p>"
        elif part.rows:
            yield f"<h2>{text_of(part.title)}</h2>" + _table(part.columns, part.rows)


def _graph(there: bool) -> str:
    if not there:
        return '<h2>Tools</h2><p class="quiet">No tool was called yet.</p>'
    return """<h2>Tools</h2>
<div class="controls"><label>Find a tool <input type="search" id="find" list="names" autocomplete="off"></label>
<datalist id="names"></datalist>
<label>Arrows seen at least <output id="least-value">1</output> times
<input type="range" id="least" min="0" max="0" value="0"></label>
<label><input type="checkbox" id="all"> all tools</label></div>
<p class="quiet"><span class="key reads"></span> reads <span class="key writes"></span> may change something.
<span id="drawn" role="status"></span></p>
<div class="explorer"><svg id="graph" role="img" aria-label="Tools, and which follows which"></svg>
<div id="details" aria-live="polite"><p class="quiet">Choose a tool to see its record.</p></div></div>
<noscript><p class="notice">The graph needs JavaScript; the tables do not.</p></noscript>"""


def _tools(report: Report) -> str:
    rows = []
    for name, tool in report.tools_by_use():
        numbers = (f"{tool.calls:,}", f"{tool.failed:,}", f"{tool.skipped:,}")
        rows.append((tool_in_words(name), *numbers, _checked(tool)))
    if not rows:
        return ""
    return _table(("tool", "calls", "failed", "without the model", "checked"), rows, name="tools")


def _checked(tool: ToolReport) -> str:
    checks = tool.right + tool.wrong
    if not checks:
        return ""
    # Counts instead of a share: most tools have few checks.
    return f"{tool.right:,} of {checks:,} right"


# --- the graph's data ---


def _picture(report: Report, view: GraphView) -> dict[str, Any]:
    """Return the data for the script: tools, the most used first, and the strongest arrows by the tools' index."""
    calls = _calls_of_tools(report, view)

    def start_then_most_used(name: str) -> tuple[bool, int, str]:
        return name != START, -calls[name], name

    names = sorted(calls, key=start_then_most_used)[: PAGE_LIMITS.tools]
    index = {name: number for number, name in enumerate(names)}
    depth, changing = depths(names, view.edges), report["inertia"].get("changing", {})
    tools = []
    for name in names:
        record = report.tools.get(name, ToolReport())
        # A tool that the report leaves out may have failures in the graph.
        failed = record.failed
        if not failed and name in view.tools:
            failed = view.tools[name].failed
        tools.append(
            {
                "name": _title(name),
                "start": name == START,
                "writes": name in changing,
                "why": _line(changing.get(name, "")),
                "depth": depth[name],
                "calls": calls[name],
                "failed": failed,
                "skipped": record.skipped,
                "right": record.right,
                "wrong": record.wrong,
            }
        )
    left_out = len(calls) - len(names)
    return {"tools": tools, "edges": _edges(view, index), "flows": _flows(view, index), "left_out": left_out}


def _calls_of_tools(report: Report, view: GraphView) -> dict[str, int]:
    """Return the number of calls of each tool in the report, in the graph, or at the end of an edge."""
    # The graph's counts come first: they are the sums of its arrows.
    calls = {name: counts.calls for name, counts in view.tools.items()}
    others = list(report.tools)
    for edge in view.edges:
        others += [edge.source, edge.target]
    for name in others:
        calls.setdefault(name, report.tools.get(name, ToolReport()).calls)
    return calls


def _title(name: str) -> str:
    if name == START:
        return "start of a run"
    return _line(tool_in_words(name)) or "(no name)"


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An arrow between two drawn tools, which are given by their index."""

    source: int
    target: int
    times: int
    failed: int

    def row(self) -> tuple[Any, ...]:
        """Return the fields in the order in which the page's script reads them."""
        return self.source, self.target, self.times, self.failed


@dataclass(frozen=True, slots=True)
class DrawnFlow:
    """A flow of a value between two drawn tools, which are given by their index."""

    source: int
    target: int
    hits: int
    misses: int
    parameter: str
    origin: str

    def row(self) -> tuple[Any, ...]:
        """Return the fields in the order in which the page's script reads them."""
        return self.source, self.target, self.hits, self.misses, self.parameter, self.origin


def _edges(view: GraphView, index: Mapping[str, int]) -> list[tuple[Any, ...]]:
    """Return the strongest edges between the drawn tools."""
    edges = []
    for edge in view.edges:
        if edge.source in index and edge.target in index and times(edge):
            edges.append(DrawnEdge(index[edge.source], index[edge.target], times(edge), edge.failed))

    # The same input gives the same page, so arrows that are equally strong have an order too.
    def strongest_first(edge: DrawnEdge) -> tuple[Any, ...]:
        return -edge.times, *edge.row()

    edges.sort(key=strongest_first)
    return [edge.row() for edge in edges[: PAGE_LIMITS.edges]]


def _flows(view: GraphView, index: Mapping[str, int]) -> list[tuple[Any, ...]]:
    """Return the strongest flows of values between the drawn tools."""
    flows = []
    for flow in view.dataflow:
        if flow.hits and flow.source_tool in index and flow.target_tool in index:
            source, target = index[flow.source_tool], index[flow.target_tool]
            flows.append(DrawnFlow(source, target, flow.hits, flow.misses, _line(flow.parameter), _origin(flow)))

    def strongest_first(flow: DrawnFlow) -> tuple[Any, ...]:
        return -flow.hits, *flow.row()

    flows.sort(key=strongest_first)
    return [flow.row() for flow in flows[: PAGE_LIMITS.flows]]


def times(edge: EdgeView) -> int:
    """Return the number of calls along an edge, by the model or by the shortcut."""
    return max(edge.count, edge.ok + edge.failed)


def depths(names: Iterable[str], edges: Iterable[EdgeView]) -> dict[str, float]:
    """Return the length of each tool's most likely path from the start of a run.

    A step from u to v costs 1 - log2 p(v | u), where p is the share of v among the calls after u. Tools without a path
    come last.
    """
    nodes = set(names)
    leaving: defaultdict[str, list[EdgeView]] = defaultdict(list)
    for edge in edges:
        # A loop does not lead to another tool, so its calls are not counted.
        if edge.source != edge.target and {edge.source, edge.target} <= nodes and times(edge):
            leaving[edge.source].append(edge)
    shortest: dict[str, float] = {}
    if START in nodes:
        shortest = _shortest_paths(leaving)
    # Rounded: the last digits of a logarithm differ between machines, and the page must not.
    last = max(shortest.values(), default=0.0) + 1
    return {name: round(shortest.get(name, last), 6) for name in nodes}


def _shortest_paths(leaving: Mapping[str, Sequence[EdgeView]]) -> dict[str, float]:
    """Return the lengths of the shortest paths from START, by Dijkstra's algorithm; see `depths`."""
    shortest: dict[str, float] = {}
    heap = [(0.0, START)]
    while heap:
        length, name = heappop(heap)
        if name in shortest:
            continue
        shortest[name] = length
        edges = leaving.get(name, ())
        calls = sum(map(times, edges))
        for edge in edges:
            # Each step costs at least 1, so of two equally likely paths the shorter wins.
            heappush(heap, (length + 1 - math.log2(times(edge) / calls), edge.target))
    return shortest


def _origin(flow: FlowView) -> str:
    kind = "output"
    if flow.direction == "in":
        kind = "argument"
    return _line(f"{kind} {flow.path}".strip())


# --- text ---


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, name: str = "") -> str:
    body = []
    for row in rows[: PAGE_LIMITS.rows]:
        body.append(f"<tr>{_elements('td', row)}</tr>")
    more = ""
    if len(rows) > PAGE_LIMITS.rows:
        more = f'<p class="quiet">and {len(rows) - PAGE_LIMITS.rows:,} more</p>'
    return table_of("".join(body), columns, name=name) + more


def table_of(body: str, columns: Sequence[str], *, name: str = "") -> str:
    """Return a table, given the HTML of its rows and the texts of its head."""
    opening = "<table>"
    if name:
        opening = f'<table id="{name}">'
    # A table wider than a narrow window scrolls by itself, and the page does not.
    table = f"{opening}<thead><tr>{_elements('th', columns)}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{_elements('li', lines)}</ul>"


def _elements(name: str, texts: Iterable[object]) -> str:
    """Return an HTML element for each text."""
    return "".join([f"<{name}>{text_of(text)}</{name}>" for text in texts])


def text_of(text: object) -> str:
    """Return a text as one bounded line of HTML."""
    return escape(_line(str(text), most=PAGE_LIMITS.text))


def _line(text: str, *, most: int = PAGE_LIMITS.line) -> str:
    """Return one line without control characters, of bounded length."""
    text = printable(text)
    if len(text) <= most:
        return text
    return text[: most - 1] + "…"


def _hour(hour: int) -> str:
    return _time(hour * HOUR)


def _time(seconds: float) -> str:
    # In UTC, as the page says, so that the same input gives the same page on every machine.
    return f"{datetime.fromtimestamp(seconds, tz=timezone.utc):%Y-%m-%d %H:%M}"


def _inside_script(value: Any) -> str:
    """Return JSON for a script element: nothing in it can end the element or open a comment."""
    # HTML knows no escapes inside of a script, but JSON does: the name of a tool may be "</script>".
    text = dumps(value)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(script: str) -> str:
    """Return the source expression that lets only this script run under the content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _asset(name: str) -> str:
    return (resources.files("langgraph_toolmem.page") / "assets" / name).read_text(encoding="utf-8")
