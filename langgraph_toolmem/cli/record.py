"""The record of a memory as sentences and tables: as a whole, per tool, per kind of prediction, over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.intervals import percentage
from langgraph_toolmem.base.text import count, printable
from langgraph_toolmem.cli.inputs import By
from langgraph_toolmem.cli.tables import table
from langgraph_toolmem.graph.operations import HOUR
from langgraph_toolmem.report.report import Report
from langgraph_toolmem.report.savings import Period, group_periods, money_in_words, time_in_words

if TYPE_CHECKING:
    from rich.console import Console

TOOLS_SHOWN: Final = 20
PERIODS_SHOWN: Final = 24
_BAR: Final = 10


_SECONDS: Final = {By.HOUR: HOUR, By.DAY: 24 * HOUR, By.WEEK: 7 * 24 * HOUR}


def report_in_plain(report: Report, by: By) -> dict[str, Any]:
    """Everything in plain values for JSON, `periods` of that length."""
    grouped = replace(report, periods=group_periods(report.periods, _SECONDS[by]))
    return {**grouped.to_dict(), "periods_by": by.value}


def fitting(report: Report) -> By:
    """The periods that tell the record in a screenful: hours for two days, days for two months, else weeks."""
    if not report.periods:
        return By.HOUR
    span = report.periods[-1].start - report.periods[0].start
    if span < 2 * _SECONDS[By.DAY]:
        return By.HOUR
    return By.DAY if span < 60 * _SECONDS[By.DAY] else By.WEEK


def show_report(out: Console, report: Report, by: By | None = None) -> None:
    """What a memory did so far and how often it was right."""
    for line in report.sentences():
        out.print(printable(line), soft_wrap=True)
    unit, saved = _savings(report)
    columns = ("tool", "calls", "failed", "skipped", "right", *unit)
    tools = [
        (
            name,
            *(f"{number:,}" for number in (tool.calls, tool.failed, tool.skipped)),
            _right(tool.right, tool.wrong),
            *saved(tool.skipped),
        )
        for name, tool in report.tools_by_use()
    ]
    table(out, "Tools, and proposals checked against the model", columns, tools, TOOLS_SHOWN)
    hints = [
        (title, *(f"{figures[name]:,}" for name in ("shown", "followed", "right"))) for title, figures in report.hints()
    ]
    table(out, "Suggestions to the model", ("what", "offered", "followed", "went well"), hints, len(hints))
    for section in report.sections.values():
        for each in section.tables:
            table(out, each.title, each.columns, each.rows, each.most)
    if report.periods:
        _show_time(out, report, by or fitting(report))
    for problem in report.problems:
        out.print(printable(f"Problem: {problem}"), soft_wrap=True)


def _show_time(out: Console, report: Report, by: By) -> None:
    unit, saved = _savings(report)
    periods = group_periods(report.periods, _SECONDS[by])
    shown = periods[-PERIODS_SHOWN:]
    most = max((_share(period) for period in shown), default=0.0)
    rows = [
        (
            time_in_words(period.start) if by is By.HOUR else time_in_words(period.start)[:10],
            f"{period.turns:,}",
            f"{period.skipped:,}",
            f"{percentage(period.skipped, period.turns):>5} "
            + bar(_share(period), most, ascii_only=out.options.ascii_only),
            _right(period.right, period.wrong),
            *saved(period.skipped),
        )
        for period in shown
    ]
    named = {By.HOUR: "hour", By.DAY: "day", By.WEEK: "week from"}[by]
    columns = (named, "turns", "skipped", "of the turns", "right", *unit)
    table(out, "Over time (UTC)", columns, rows, PERIODS_SHOWN, unbroken={"of the turns"})
    if len(periods) > len(shown):
        out.print(f"{count(len(periods) - len(shown), f'earlier {by.value}')} not shown")


def bar(share: float, most: float, *, ascii_only: bool = False) -> str:
    """A bar for one share, as long as `_BAR` letters for the largest one."""
    length = share / most * _BAR if most else 0.0
    if ascii_only:
        return "#" * round(length)
    eighths = round(length * 8)
    return "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")


def _share(period: Period) -> float:
    return period.skipped / period.turns if period.turns else 0.0


def _right(right: int, wrong: int) -> str:
    return f"{right:,} of {right + wrong:,}" if right + wrong else "–"


def _savings(report: Report) -> tuple[tuple[str, ...], Callable[[int], tuple[str, ...]]]:
    """A column and its cells for so many skipped calls: money if there is a price, else tokens; none if unknown."""
    tokens, money, skipped = report.tokens_saved, report.money_saved, report.skipped
    if tokens is None or not skipped:
        return (), lambda _calls: ()
    if money is None:
        return ("tokens saved",), lambda calls: (f"{tokens * calls / skipped:,.0f}",)
    return (f"{report.currency} saved",), lambda calls: (money_in_words(money * calls / skipped, None),)
