"""The result of an evaluation as sentences and tables, and as one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Final

from langgraph_toolmem._version import __version__
from langgraph_toolmem.base.text import count, printable
from langgraph_toolmem.core.method import TextTable
from langgraph_toolmem.evaluation.figures import Comparison
from langgraph_toolmem.evaluation.runner import Result
from langgraph_toolmem.report.savings import money_in_words

MAX_SIDE_BY_SIDE: Final = 50
"""Runs with another outcome on the page."""


def in_words(result: Result) -> list[str | TextTable]:
    """Return sentences and tables: figures of the arms, differences from the first arm."""
    parts: list[str | TextTable] = [_outcomes(result), _costs(result)]
    if result.missing:
        parts.append(f"Not finished: {count(result.missing, 'run')} to go.")
    if not any(figures.runs for figures in result.figures):
        return parts
    for comparison in result.comparisons:
        parts.append(_differences(comparison))
        changed = f"{count(len(comparison.changed), 'run')} with another outcome"
        both = f"of {count(comparison.tasks, 'task')} in both"
        parts.append(f"{comparison.arm} against {comparison.against}: {changed}, {both}.")
    unknown = 0
    trained: list[str] = []
    for figures in result.figures:
        unknown += figures.usage.unknown
        if figures.train.model_calls:
            trained.append(f"{figures.arm} {figures.train.model_calls:,}")
    if unknown:
        parts.append(f"The model reported no tokens for {count(unknown, 'call')}; they count as 0.")
    if trained:
        parts.append(f"Model calls of train tasks, not counted above: {', '.join(trained)}.")
    return parts


def _outcomes(result: Result) -> TextTable:
    rows = []
    for figures in result.figures:
        pass_k = " ".join([f"{chance:.3f}" for chance in figures.pass_k.values()])
        counts = (f"{figures.tasks:,}", f"{figures.runs:,}", f"{figures.success:.1%}", pass_k or "–")
        rows.append((figures.arm, *counts, f"{figures.errors:,}"))
    return TextTable("Test runs", ("arm", "tasks", "runs", "success", "pass^k", "errors"), tuple(rows))


def _costs(result: Result) -> TextTable:
    rows = []
    for figures in result.figures:
        usage = figures.usage
        cost = "–"
        if figures.cost is not None:
            cost = money_in_words(figures.cost, result.currency)
        calls = (f"{usage.model_calls:,}", f"{figures.memory_calls:,}")
        tokens = (f"{usage.input:,}", f"{usage.cached:,}", f"{usage.output:,}")
        rows.append((figures.arm, *calls, *tokens, f"{figures.seconds:,.1f}", cost))
    columns = ("arm", "model calls", "by memory", "input", "cached", "output", "seconds", "cost")
    return TextTable("Calls, tokens and time", columns, tuple(rows))


def _differences(comparison: Comparison) -> TextTable:
    rows = []
    for metric, interval in comparison.differences.items():
        # A run may cost a tenth of a cent.
        digits = 6 if metric == "cost" else 3
        between = f"{interval.low:+,.{digits}f} to {interval.high:+,.{digits}f}"
        rows.append((metric, f"{interval.value:+,.{digits}f}", between))
    title = f"{comparison.arm} minus {comparison.against}, mean per run"
    return TextTable(title, ("", "difference", "95 % interval, by task"), tuple(rows))


def page_of(result: Result) -> str:
    """Return one HTML page without script: the figures, and the runs with another outcome, side by side."""
    title = f"toolmem eval: {result.source}"
    body = [f"<header><h1>{_text(title)}</h1><p>{_text(result.agent)}</p></header><main>"]
    for part in in_words(result):
        if isinstance(part, str):
            body.append(f"<p>{_text(part)}</p>")
        else:
            body.append(f"<h2>{_text(part.title)}</h2>{_table(part.columns, part.rows)}")
    body += _side_by_side(result)
    body.append(f'</main><footer class="quiet">langgraph-toolmem {__version__}</footer>')
    style = (resources.files("langgraph_toolmem.page") / "assets" / "page.css").read_text(encoding="utf-8")
    # Traces contain texts of models and tools. They are escaped, and the browser must not run or load anything from the
    # page.
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>{_text(title)}</title><link rel="icon" href="data:,">
<style>
{style}</style></head>
<body>
{"".join(body)}
</body></html>
"""


def _side_by_side(result: Result) -> Iterable[str]:
    shown = 0
    for comparison in result.comparisons:
        for place in comparison.changed:
            if shown == MAX_SIDE_BY_SIDE:
                yield '<p class="quiet">More runs with another outcome are in the JSON file.</p>'
                return
            shown += 1
            traces = result.traces(comparison, place.task, place.trial)
            heading = f"{comparison.arm} against {comparison.against}: task {place.task}, trial {place.trial + 1}"
            cells = []
            for trace in traces.values():
                cells.append("<br>".join([_text(line) for line in trace]))
            yield f"<h2>{_text(heading)}</h2>{_table_of_html(list(traces), [cells])}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = []
    for row in rows:
        cells.append([_text(text) for text in row])
    return _table_of_html(columns, cells)


def _table_of_html(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are HTML already, the columns are texts."""
    head = "".join([f"<th>{_text(column)}</th>" for column in columns])
    body = ""
    for row in rows:
        cells = "".join([f"<td>{cell}</td>" for cell in row])
        body += f"<tr>{cells}</tr>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _text(text: str) -> str:
    return escape(printable(text))
