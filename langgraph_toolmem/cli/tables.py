"""A replay and a report as sentences and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langgraph_toolmem.base.text import count
from langgraph_toolmem.cli.terminal import say, table
from langgraph_toolmem.core.method import TextTable

if TYPE_CHECKING:
    from langgraph_toolmem.offline.replay import PrefetchTally, ReplayReport
    from langgraph_toolmem.report.report import Report


def show_replay(report: ReplayReport) -> None:
    """Print what the memory would have saved, by tool, frequent chains, and the verdict on the workload's inertia."""
    for part in replay_in_words(report):
        if isinstance(part, str):
            say(part)
        else:
            table(part.title, part.columns, part.rows, part.most)
    if report.inertia is not None:
        say(report.inertia.verdict)


def replay_in_words(report: ReplayReport) -> list[str | TextTable]:
    """Return what the memory would have saved, in sentences and tables."""
    parts: list[str | TextTable] = [_headline(report.turns - report.stuck, report.right, report.wrong)]
    if report.turns:
        parts.append(
            f"That is {report.yield_per_100:.1f} right and {report.wrong_per_100:.1f} wrong per 100 turns, "
            "by a memory that was empty before the first run and learned as it went."
        )
    parts.append(
        f"Read: {count(report.runs, 'run')}, {count(report.calls, 'tool call')}, "
        f"{count(report.words, 'answer')} in words."
    )
    if report.stuck:
        parts.append(
            f"Left out: {count(report.stuck, 'turn')} of agents in a loop (in that run the same calls had given the "
            "same results twice before)."
        )
    if report.right + report.wrong:
        writing = ", ".join(report.writing) or "none"
        parts.append(f"Tools that may change something and would have been called without the model: {writing}.")
    if report.undeclared:
        from langgraph_toolmem.core.catalogue import undeclared_line

        parts.append(f"{undeclared_line(report.undeclared, report.suggested)} (here: --reads NAME for each)")
    tools = sorted(report.by_tool.items(), key=lambda item: (-item[1].right, -item[1].calls, item[0]))
    rows = [(name, f"{tally.calls:,}", f"{tally.right:,}", f"{tally.wrong:,}") for name, tally in tools]
    columns, title = ("tool", "calls", "right", "wrong"), "Calls that could have been made without the model"
    parts.append(TextTable(title, columns, tuple(rows)))
    chains = tuple((" → ".join(chain), f"{times:,}") for chain, times in report.chains)
    parts.append(TextTable("Most frequent chains of tools", ("chain", "times"), chains, 10))
    return [*parts, _prefetched(report.prefetch)] if report.prefetch is not None else parts


def _headline(turns: int, right: int, wrong: int) -> str:
    if not turns:
        return "The log has no model turns, so there is nothing that could have been skipped."
    if not right + wrong:
        return f"Of {count(turns, 'model turn')}, none would have been skipped."
    skipped = f"{right + wrong:,} could have been skipped: {right:,} right, {wrong:,} wrong"
    return f"Of {count(turns, 'model turn')}, {skipped}."


def _prefetched(tally: PrefetchTally) -> str:
    if not tally.reads:
        return "Prefetched while the model thinks: the log has no look-ups by tools that are known to read."
    share = tally.seconds_saved / tally.seconds if tally.seconds else 0.0
    return (
        f"Prefetched while the model thinks: of {count(tally.reads, 'look-up')}, {tally.ready:,} would have been ready "
        f"or under way, and {tally.wasted:,} more would have been thrown away; "
        f"{tally.seconds_saved:,.0f} of {tally.seconds:,.0f} seconds of waiting saved ({share:.0%}), with "
        f"{tally.tool_seconds:g} seconds a tool call."
    )


def show_report(report: Report) -> None:
    """Print what a memory did so far and how often it was right."""
    for line in report.lines():
        say(line)
    tools = [
        (
            name,
            *(f"{number:,}" for number in (tool.calls, tool.failed, tool.skipped)),
            f"{tool.right:,} of {tool.right + tool.wrong:,}" if tool.right + tool.wrong else "–",
        )
        for name, tool in report.tools_by_use()
    ]
    columns = ("tool", "calls", "failed", "skipped", "right")
    table("Tools, and proposals checked against the model", columns, tools)
    hints = [
        (title, *(f"{figures[name]:,}" for name in ("shown", "followed", "right"))) for title, figures in report.hints()
    ]
    table("Suggestions to the model", ("what", "offered", "followed", "went well"), hints)
    for section in report.sections.values():
        for each in section.tables:
            table(each.title, each.columns, each.rows, each.most)
