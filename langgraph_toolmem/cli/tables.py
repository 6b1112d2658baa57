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
    """Print the possible savings by tool, frequent chains, and the result on the workload's inertia."""
    for part in replay_in_words(report):
        if isinstance(part, str):
            say(part)
        else:
            table(part.title, part.columns, part.rows, part.most)
    if report.inertia is not None:
        say(report.inertia.verdict)


def replay_in_words(report: ReplayReport) -> list[str | TextTable]:
    """Return the possible savings in sentences and tables."""
    # Turns of agents in a loop are named below, and count nowhere else.
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
    if report.by_memory:
        parts.append(f"Left out: {count(report.by_memory, 'call')} that a memory made in the model's place.")
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
    parts += [_tools_of(report), _chains_of(report)]
    if report.prefetch is not None:
        parts.append(_prefetched(report.prefetch))
    return parts


def _tools_of(report: ReplayReport) -> TextTable:
    """Return the calls by tool: most right ones first, then most calls, then by name."""

    def most_right_first(name: str) -> tuple[int, int, str]:
        tally = report.by_tool[name]
        return -tally.right, -tally.calls, name

    rows = []
    for name in sorted(report.by_tool, key=most_right_first):
        tally = report.by_tool[name]
        rows.append((name, f"{tally.calls:,}", f"{tally.right:,}", f"{tally.wrong:,}"))
    title = "Calls that could have been made without the model"
    return TextTable(title, ("tool", "calls", "right", "wrong"), tuple(rows))


def _chains_of(report: ReplayReport) -> TextTable:
    rows = []
    for chain, times in report.chains:
        rows.append((" → ".join(chain), f"{times:,}"))
    return TextTable("Most frequent chains of tools", ("chain", "times"), tuple(rows), 10)


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
    share = 0.0
    if tally.seconds:
        share = tally.seconds_saved / tally.seconds
    return (
        f"Prefetched while the model thinks: of {count(tally.reads, 'look-up')}, {tally.ready:,} would have been ready "
        f"or under way, and {tally.wasted:,} more would have been thrown away; "
        f"{tally.seconds_saved:,.0f} of {tally.seconds:,.0f} seconds of waiting saved ({share:.0%}), with "
        f"{tally.tool_seconds:g} seconds a tool call."
    )


def show_report(report: Report) -> None:
    """Print the record of a memory."""
    for line in report.lines():
        say(line)
    tools = []
    for name, tool in report.tools_by_use():
        checked = tool.right + tool.wrong
        right = "–"
        if checked:
            right = f"{tool.right:,} of {checked:,}"
        tools.append((name, f"{tool.calls:,}", f"{tool.failed:,}", f"{tool.skipped:,}", right))
    columns = ("tool", "calls", "failed", "skipped", "right")
    table("Tools, and proposals checked against the model", columns, tools)
    hints = []
    for title, figures in report.hints():
        hints.append((title, f"{figures['shown']:,}", f"{figures['followed']:,}", f"{figures['right']:,}"))
    table("Suggestions to the model", ("what", "offered", "followed", "went well"), hints)
    for section in report.sections.values():
        for rows in section.tables:
            table(rows.title, rows.columns, rows.rows, rows.most)
