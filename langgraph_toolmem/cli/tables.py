"""A replay and a graph, as tables and sentences that a stranger understands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph_toolmem.base.intervals import percentage
from langgraph_toolmem.base.text import count, printable
from langgraph_toolmem.core.contributions import TextTable
from langgraph_toolmem.graph.export import START, GraphView

if TYPE_CHECKING:
    from rich.console import Console

    from langgraph_toolmem.base.errors import LogError
    from langgraph_toolmem.inertia.entropy import InertiaTest, LikelihoodRatio
    from langgraph_toolmem.offline.prefetch import PrefetchTally
    from langgraph_toolmem.offline.replay import ReplayReport

TOOLS_SHOWN = 20
CHAINS_SHOWN = 10
EDGES_SHOWN = 20
PROBLEMS_SHOWN = 5


class Format(str, Enum):
    """How `toolmem inspect` shows the graph."""

    TABLES = "tables"
    MERMAID = "mermaid"
    JSON = "json"


def show_replay(out: Console, report: ReplayReport) -> None:
    """What the memory would have saved, by tool; frequent chains; whether the workload has inertia."""
    for part in replay_in_words(report):
        if isinstance(part, str):
            out.print(printable(part), soft_wrap=True)
        else:
            table(out, part.title, part.columns, part.rows, part.most)
    if report.inertia is not None:
        show_inertia(out, report.inertia)


def replay_in_words(report: ReplayReport) -> list[str | TextTable]:
    """What the memory would have saved, in sentences and tables."""
    parts: list[str | TextTable] = [headline(report.turns - report.stuck, report.right, report.wrong)]
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
        from langgraph_toolmem.core.declarations import undeclared_line

        parts.append(f"{undeclared_line(report.undeclared, report.suggested)} (here: --reads NAME for each)")
    tools = sorted(report.by_tool.items(), key=lambda item: (-item[1].right, -item[1].calls, item[0]))
    rows = [(name, f"{tally.calls:,}", f"{tally.right:,}", f"{tally.wrong:,}") for name, tally in tools]
    columns, title = ("tool", "calls", "right", "wrong"), "Calls that could have been made without the model"
    parts.append(TextTable(title, columns, tuple(rows), TOOLS_SHOWN))
    chains = tuple((" → ".join(chain), f"{times:,}") for chain, times in report.chains)
    parts.append(TextTable("Most frequent chains of tools", ("chain", "times"), chains, CHAINS_SHOWN))
    return [*parts, ahead_in_words(report.prefetch)] if report.prefetch is not None else parts


def ahead_in_words(tally: PrefetchTally) -> str:
    """What running look-ups ahead would have saved."""
    if not tally.reads:
        return "Run ahead while the model thinks: the log has no look-ups by tools that are known to read."
    share = tally.seconds_saved / tally.seconds if tally.seconds else 0.0
    return (
        f"Run ahead while the model thinks: of {count(tally.reads, 'look-up')}, {tally.ready:,} would have been ready "
        f"or under way ({tally.without_waiting:,} without any waiting), and {tally.wasted:,} more would have been "
        f"thrown away; {tally.seconds_saved:,.0f} of {tally.seconds:,.0f} seconds of waiting saved ({share:.0%}), with "
        f"{tally.tool_seconds:g} seconds a tool call."
    )


def headline(turns: int, right: int, wrong: int) -> str:
    """The replay in one sentence."""
    if not turns:
        return "The log has no model turns, so there is nothing that could have been skipped."
    if not right + wrong:
        return f"Of {count(turns, 'model turn')}, none would have been skipped."
    skipped = f"{right + wrong:,} could have been skipped: {right:,} right, {wrong:,} wrong"
    return f"Of {count(turns, 'model turn')}, {skipped}."


def show_inertia(out: Console, test: InertiaTest) -> None:
    """Entropy of the next tool, fitted and honest, with the tests of each step."""
    if test.calls:
        rows = [
            ("fitted", *(f"{bits:.2f}" for bits in test.fitted)),
            ("honest", *(f"{bits:.2f}" for bits in test.honest)),
        ]
        columns = ("bits", "knowing nothing", "the previous tool", "the previous two")
        table(out, "How uncertain is the next tool?", columns, rows, len(rows))
        out.print(
            "Fitted: described with its own frequencies, so it flatters. Honest: each call guessed from what "
            "came before it only.",
            soft_wrap=True,
        )
        for ratio in test.tests:
            out.print(_ratio(ratio), soft_wrap=True)
    out.print(test.verdict, soft_wrap=True)


def show_graph(out: Console, view: GraphView) -> None:
    """Tools, what follows what, and where arguments come from."""
    if not view.edges and not view.tools:
        out.print("Nothing is known yet. Whether the memory can be read: toolmem doctor", soft_wrap=True)
        return
    tools = sorted(view.tools.items(), key=lambda item: (-item[1].calls, item[0]))
    rows = [(name, f"{tally.ok:,}", f"{tally.failed:,}") for name, tally in tools]
    table(out, "Tools", ("tool", "went well", "failed"), rows, TOOLS_SHOWN)
    total: dict[str, int] = {}
    for edge in view.edges:
        total[edge.source] = total.get(edge.source, 0) + edge.count
    edges = sorted(view.edges, key=lambda edge: (-edge.count, edge.source, edge.target))
    followers = [
        (
            _source_in_words(edge.source),
            edge.target,
            f"{edge.count:,}",
            percentage(edge.count, total[edge.source]),
        )
        for edge in edges
    ]
    table(out, "What follows what", ("after", "comes", "times", "share"), followers, EDGES_SHOWN)
    flows = sorted(view.dataflow, key=lambda flow: (-flow.hits, flow.target_tool, flow.parameter, flow.path))
    sourced = [
        (
            f"{flow.target_tool}: {flow.parameter}",
            f"{'argument' if flow.direction == 'in' else 'output'} {flow.path}".strip() + f" of {flow.source_tool}",
            f"{flow.hits:,} of {flow.hits + flow.misses:,}",
        )
        for flow in flows
    ]
    table(out, "Where arguments come from", ("argument", "had the value of", "times"), sourced, EDGES_SHOWN)


def _source_in_words(source: str) -> str:
    return "(start of a run)" if source == START else source


def skipped_notes(skipped: Sequence[LogError], shared_ids: int) -> list[str]:
    """Remarks on a log that was read: lines left out, ids that several lines share."""
    notes = [f"left out: {error}" for error in skipped[:PROBLEMS_SHOWN]]
    if len(skipped) > PROBLEMS_SHOWN:
        notes.append(f"left out: {len(skipped) - PROBLEMS_SHOWN:,} more malformed lines")
    if shared_ids:
        lines = count(shared_ids, "line")
        notes.append(f"note: {lines} had the id of an earlier line and counted as that run, seen later")
    return notes


def _ratio(ratio: LikelihoodRatio) -> str:
    step = "the previous tool" if ratio.order == 1 else "the tool before it"
    if not ratio.df:
        return f"Does {step} matter? There is nothing to test."
    p = f"p = {ratio.p:.2g}" if ratio.p > 0 else "p below any number a computer holds"
    return f"Does {step} matter? Likelihood ratio G = {ratio.g:,.0f}, {ratio.df:,} degrees of freedom, {p}."


def table(
    out: Console,
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    most: int,
    *,
    unbroken: Collection[str] = (),
) -> None:
    """Print at most `most` rows under a title; names wrap, numbers and the columns in `unbroken` never do."""
    rows = list(rows)
    if not rows:
        return
    from rich.table import Table

    drawn = Table()
    numbers = [all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    for column, number in zip(columns, numbers, strict=True):
        drawn.add_column(
            column, justify="right" if number else "left", no_wrap=number or column in unbroken, overflow="fold"
        )
    for row in rows[:most]:
        drawn.add_row(*(printable(cell) for cell in row))
    out.print()
    out.print(title, style="bold", soft_wrap=True)  # a table's own title would wrap at the table's width
    out.print(drawn)
    if len(rows) > most:
        out.print(f"… and {len(rows) - most:,} more")


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or text == "–"


def form_of(output: Path) -> Format:
    """The form that the name of a file asks for."""
    return Format.JSON if output.suffix.lower() == ".json" else Format.MERMAID


def render(view: Any, form: Format, *, min_count: int, max_edges: int) -> str:
    """The graph in a form that is no table."""
    import dataclasses
    import json

    from langgraph_toolmem.graph.export import to_mermaid

    if form is Format.MERMAID:
        return to_mermaid(view, min_count=min_count, max_edges=max_edges)
    return json.dumps(dataclasses.asdict(view), indent=2, allow_nan=False) + "\n"
