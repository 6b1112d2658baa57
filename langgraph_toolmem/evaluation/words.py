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
    for each in result.comparisons:
        parts.append(_differences(each))
        changed = f"{count(len(each.changed), 'run')} with another outcome"
        parts.append(f"{each.arm} against {each.against}: {changed}, of {count(each.tasks, 'task')} in both.")
    unknown = sum(figures.usage.unknown for figures in result.figures)
    if unknown:
        parts.append(f"The model reported no tokens for {count(unknown, 'call')}; they count as 0.")
    if any(figures.train.model_calls for figures in result.figures):
        trained = [f"{each.arm} {each.train.model_calls:,}" for each in result.figures if each.train.model_calls]
        parts.append(f"Model calls of train tasks, not counted above: {', '.join(trained)}.")
    return parts


def _outcomes(result: Result) -> TextTable:
    rows = []
    for figures in result.figures:
        pass_k = " ".join(f"{chance:.3f}" for chance in figures.pass_k.values())
        counts = (f"{figures.tasks:,}", f"{figures.runs:,}", f"{figures.success:.1%}", pass_k or "–")
        rows.append((figures.arm, *counts, f"{figures.errors:,}"))
    return TextTable("Test runs", ("arm", "tasks", "runs", "success", "pass^k", "errors"), tuple(rows))


def _costs(result: Result) -> TextTable:
    rows = []
    for figures in result.figures:
        usage = figures.usage
        cost = "–" if figures.cost is None else money_in_words(figures.cost, result.currency)
        calls = (f"{usage.model_calls:,}", f"{figures.memory_calls:,}")
        tokens = (f"{usage.input:,}", f"{usage.cached:,}", f"{usage.output:,}")
        rows.append((figures.arm, *calls, *tokens, f"{figures.seconds:,.1f}", cost))
    columns = ("arm", "model calls", "by memory", "input", "cached", "output", "seconds", "cost")
    return TextTable("Calls, tokens and time", columns, tuple(rows))


def _differences(each: Comparison) -> TextTable:
    rows = []
    for name, found in each.differences.items():
        # A run may cost a tenth of a cent.
        digits = 6 if name == "cost" else 3
        between = f"{found.low:+,.{digits}f} to {found.high:+,.{digits}f}"
        rows.append((name, f"{found.value:+,.{digits}f}", between))
    title = f"{each.arm} minus {each.against}, mean per run"
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
    for each in result.comparisons:
        for task, trial in each.changed:
            if shown == MAX_SIDE_BY_SIDE:
                yield '<p class="quiet">More runs with another outcome are in the JSON file.</p>'
                return
            shown += 1
            traces = result.traces(each, task, trial)
            heading = f"{each.arm} against {each.against}: task {task}, trial {trial + 1}"
            cells = ["<br>".join(map(_text, trace)) for trace in traces.values()]
            yield f"<h2>{_text(heading)}</h2>{_table_of_html(list(traces), [cells])}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _table_of_html(columns, [list(map(_text, row)) for row in rows])


def _table_of_html(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    body = ""
    for row in rows:
        body += f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _text(text: str) -> str:
    return escape(printable(text))
