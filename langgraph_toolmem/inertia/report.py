"""The shortcut's part of the report: the record of predictions, tools that are not skipped, and prefetched look-ups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.core.catalogue import named, suggested, undeclared_line
from langgraph_toolmem.core.method import Section, TextTable
from langgraph_toolmem.graph.records import tool_of
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.apart import REVIEWED, SECONDS, SERVED, WASTED
from langgraph_toolmem.inertia.budget import Budget
from langgraph_toolmem.inertia.guards import changing, may_write, undeclared, why_never
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.runs.tools import ToolSpec, side_effects

if TYPE_CHECKING:
    from langgraph_toolmem.inertia import Inertia

MOST_ROWS: Final = 10
"""Rows of a table."""


def section_of(inertia: Inertia) -> Section:
    """Return the checks of predictions, the state of the budget, and tools that are not skipped. The caller locks.

    The memory's own policy is used until an agent has asked. A tool is held back if all agents hold it back.
    """
    core, policy, agents, budget = inertia.core, inertia.policy, inertia.agents, inertia.budget
    graph, specs = core.graph, core.catalogue.marked()
    policies = sorted(agents.policies() or [policy], key=_is_shadow)
    figures = budget.figures(policies[0])
    refused = _never_called(specs, policies)
    missing = _undeclared_for_all(specs, policies)
    figures |= {
        "unknown_reads": list(core.catalogue.declarations.unknown(core.catalogue.known)),
        "undeclared": missing,
        "suggested": suggested(specs[name] for name in missing),
        "never_skipped": refused,
    }
    idle = _unskipped(graph, budget, policies, specs, figures)
    wrong = agents.wrong_calls()
    prefetched, prefetch_table = _prefetched(graph)
    tables = (_table_of_unskipped(idle), _table_of_refused(refused, idle), _table_of_wrong(wrong), *prefetch_table)
    figures |= {
        "mode": "shadow, nothing is called" if policy.shadow else "acting",
        "kind": policy.kind,
        "agents": agents.figures(),
        "wrong_calls": wrong,
        "declared": _declared(specs, policies),
        "refused": _reviewed(graph, specs),
        "unskipped": idle,
        "changing": changing(specs),
        "changes": inertia.changes.figures(),
        **prefetched,
    }
    looked_up = inertia.context.figures()
    if looked_up["made"] or looked_up["held_out"]:
        figures["context"] = looked_up
    return Section("Shortcut and prefetch", figures, tuple(_sentences(figures)), tables)


def _is_shadow(policy: InertiaPolicy) -> bool:
    return policy.shadow


def _never_called(specs: Mapping[str, ToolSpec], policies: Sequence[InertiaPolicy]) -> dict[str, str]:
    """Return the tools that all policies forbid to call without the model, each with the reason."""
    reasons = {}
    for name, spec in sorted(specs.items()):
        reason = _refused(spec, policies)
        if reason:
            reasons[name] = reason
    return reasons


def _undeclared_for_all(specs: Mapping[str, ToolSpec], policies: Sequence[InertiaPolicy]) -> list[str]:
    """Return the tools that all policies hold back because they are undeclared."""
    first, *others = [undeclared(specs, policy) for policy in policies]
    return [name for name in first if all(name in names for names in others)]


def _declared(specs: Mapping[str, ToolSpec], policies: Sequence[InertiaPolicy]) -> list[int]:
    """Return the number of tools declared to read, and of changing tools that the policies name."""
    named_tools: set[str] = set()
    for policy in policies:
        named_tools |= policy.may_write
    reading = sum(spec.read_only is True for spec in specs.values())
    return [reading, len(named_tools & specs.keys())]


def _reviewed(graph: ToolGraph, specs: Mapping[str, ToolSpec]) -> list[str]:
    """Return the tools with a call that a person refused or edited."""
    reviewed = set()
    for record, counts in graph.by_tool.items():
        if counts.get(REVIEWED):
            reviewed.add(tool_of(record))
    return sorted(reviewed & specs.keys())


def _table_of_unskipped(idle: Sequence[Mapping[str, Any]]) -> TextTable:
    rows = []
    for row in idle:
        rows.append((row["tool"], f"{row['calls']:,}", f"{row['skipped']:,}", row["why"], row["todo"] or "–"))
    columns = ("tool", "calls", "skipped", "why", "what to do")
    return TextTable("Called often, seldom without the model", columns, tuple(rows))


def _table_of_refused(refused: Mapping[str, str], idle: Sequence[Mapping[str, Any]]) -> TextTable:
    shown = {row["tool"] for row in idle}
    rows = []
    for tool, reason in refused.items():
        if tool not in shown:
            rows.append((tool, reason.removeprefix(f"{tool} ")))
    return TextTable("Never called without the model", ("tool", "why"), tuple(rows))


def _table_of_wrong(wrong: Sequence[Mapping[str, Any]]) -> TextTable:
    rows = []
    for row in wrong[:MOST_ROWS]:
        rows.append((row["thread"], row["tool"], row["args"], row["instead"], row["found_by"]))
    return TextTable("Wrong calls", ("thread", "tool", "arguments", "right", "found"), tuple(rows))


def _refused(spec: ToolSpec, policies: Sequence[InertiaPolicy]) -> str:
    """Return why all policies forbid to call a tool without the model; "" if one permits it."""
    reason = ""
    for policy in policies:
        never = why_never(spec, policy)
        if never is None:
            return ""
        reason = reason or never.text
    return reason


def _most_open(spec: ToolSpec, policies: Sequence[InertiaPolicy]) -> InertiaPolicy:
    """Return the policy that holds a tool back least; policies that act come first."""
    for policy in policies:
        if why_never(spec, policy) is None:
            return policy
    return policies[0]


def _sentences(figures: Mapping[str, Any]) -> list[str]:
    lines = []
    audits, shadow = figures["audits"], figures["shadow_checks"]
    if audits["checks"] and shadow["checks"]:  # the report's own line has their sum
        lines.append(
            f"While acting, {audits['right']:,} of {audits['checks']:,} checked by chance were right: at least "
            f"{math.floor(100 * audits['at_least'])} %. Without acting, {shadow['right']:,} of {shadow['checks']:,}."
        )
    if not figures["budget_open"]:
        lines.append("The budget of misses has no room: the model is asked until it has.")
    declare = undeclared_line(figures["undeclared"], figures["suggested"])
    if declare:
        lines.append(declare)
    unknown = figures["unknown_reads"]
    if unknown:
        lines.append(f"ToolMemory(reads=...) names {named(unknown)}, but no tool seen so far fits.")
    prefetched = figures.get("prefetch")
    if prefetched:
        lines.append(
            f"Look-ups prefetched while the model was asked: {prefetched['started']:,}; {prefetched['served']:,} of "
            f"them were what it asked for, {prefetched['wasted']:,} were thrown away; "
            f"{prefetched['seconds_saved']:,.1f} seconds of waiting saved."
        )
    looked_up = figures.get("context")
    if looked_up:
        lines.append(
            f"Look-ups made before the model was asked: {looked_up['made']:,}; model calls saved: "
            f"{looked_up['saved']:,}; made again by the model: {looked_up['made_again']:,}. Of "
            f"{looked_up['held_out']:,} that were held out to check, the model made {looked_up['held_out_right']:,}."
        )
    return lines


# --- tools that are called often and rarely without the model ---


def _unskipped(
    graph: ToolGraph,
    budget: Budget,
    policies: Sequence[InertiaPolicy],
    specs: Mapping[str, ToolSpec],
    figures: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the most called tools with less than half of their calls made without the model.

    Each has its name, calls, those `skipped` of them, and `why` and `todo`: the obstacle and its remedy.
    """
    called_often = 5  # a rarely called tool saves little
    unskipped: list[dict[str, Any]] = []
    for tool, entry in graph.tools.items():
        calls = int(entry.get("ok", 0) + entry.get("failed", 0))
        record = graph.by_tool.get(tool, {})
        skipped = int(sum(record.get(f"acted_{end}", 0) for end in ("ok", "failed", "stopped")))
        if calls < called_often or 2 * skipped >= calls:
            continue
        name = tool_of(tool)
        if name in specs:
            policy = _most_open(specs[name], policies)
            bar = budget.bar(policy, changes=may_write(name, specs))
            why, todo = _why(name, specs[name], figures, record, policy, bar)
        else:
            why, todo = "guard: it is not among the tools", "name it in tools="
        unskipped.append({"tool": tool, "calls": calls, "skipped": skipped, "why": why, "todo": todo})
    return sorted(unskipped, key=_most_calls)[:MOST_ROWS]


def _most_calls(row: Mapping[str, Any]) -> tuple[int, str]:
    return -row["calls"], row["tool"]


def _why(
    tool: str,
    spec: ToolSpec,
    figures: Mapping[str, Any],
    record: Mapping[str, float],
    policy: InertiaPolicy,
    bar: float,
) -> tuple[str, str]:
    """Return the first obstacle, and its remedy ("" if none is needed)."""
    # Only the first obstacle is named: the remedy of a later one has no effect before the first is removed.
    few = 10  # least number of predictions of a meaningful record
    hits, misses = int(record.get("hits", 0)), int(record.get("misses", 0))
    predictions = hits + misses
    never = figures["never_skipped"].get(tool)
    if never:
        return f"guard: {never.removeprefix(tool).strip()}", _remedy(tool, spec, policy)
    if policy.shadow:
        return "shadow mode", "InertiaPolicy(shadow=False) when the record is good enough"
    if not figures["budget_open"]:
        return "budget: the allowed misses are used up", "wait, or allow a larger max_wrong_per_100"
    if predictions < few:
        import_logs = "import logs: toolmem import runs.jsonl --memory FOLDER"
        return f"below the bar: only {predictions} predictions so far", import_logs
    share = f"{hits:,} of {predictions:,} predictions were exactly right"
    if hits < bar * predictions:
        return f"below the bar of {bar:.0%}: {share}", "prefetch=True saves its waiting all the same"
    return f"{share}; single calls may be below the bar of {bar:.0%}", ""


def _remedy(tool: str, spec: ToolSpec, policy: InertiaPolicy) -> str:
    """Return the setting that permits a tool without the model; "" if there is none, or the policy excludes the
    tool.
    """
    if tool in policy.never or policy.only is not None or spec.controls:
        return ""
    writes = f'InertiaPolicy(may_write={{"{tool}"}}'
    if side_effects(spec) == "destroys":
        return f'{writes}, allow_destructive={{"{tool}"}})'
    return f'if it only reads: ToolMemory(reads={{"{tool}"}}); otherwise {writes})'


# --- prefetched look-ups ---


def _prefetched(graph: ToolGraph) -> tuple[dict[str, Any], tuple[TextTable, ...]]:
    """Return the figures of prefetched look-ups, in total and by tool, and their table; empty without any."""
    by_tool: dict[str, dict[str, float]] = {}
    served = wasted = 0.0
    seconds = []
    for tool, record in sorted(graph.by_tool.items()):
        if record.get(SERVED) or record.get(WASTED):
            counts = _counted(record.get(SERVED, 0.0), record.get(WASTED, 0.0), record.get(SECONDS, 0.0))
            by_tool[tool] = counts
            served += counts["served"]
            wasted += counts["wasted"]
            seconds.append(counts["seconds_saved"])
    if not by_tool:
        return {}, ()
    rows = []
    for tool, counts in by_tool.items():
        started, seconds_saved = f"{counts['started']:,}", f"{counts['seconds_saved']:,.1f}"
        rows.append((tool, started, f"{counts['served']:,}", f"{counts['wasted']:,}", seconds_saved))
    columns = ("tool", "prefetched", "served", "thrown away", "seconds saved")
    table = TextTable("Look-ups prefetched", columns, tuple(rows))
    total = _counted(served, wasted, sum(seconds))
    return {"prefetch": {**total, "by_tool": by_tool}}, (table,)


def _counted(served: float, wasted: float, seconds: float) -> dict[str, float]:
    counts = {"started": int(served + wasted), "served": int(served), "wasted": int(wasted)}
    return {**counts, "seconds_saved": round(seconds, 3)}
