"""The shortcut's part of the report: the record of predictions, tools that are not skipped, and prefetched look-ups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from langgraph_toolmem.core.catalogue import named, suggested, undeclared_line
from langgraph_toolmem.core.method import Section, TextTable
from langgraph_toolmem.graph.records import tool_of
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.agents import Agents
from langgraph_toolmem.inertia.budget import Budget
from langgraph_toolmem.inertia.context import ContextRecord
from langgraph_toolmem.inertia.guards import changing, may_write, undeclared, why_never
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.record import REVIEWED, SECONDS, SERVED, WASTED, Changes
from langgraph_toolmem.runs.tools import ToolSpec, side_effects

OFTEN: Final = 5
"""Calls from which a tool counts as called often."""
MOST: Final = 10
_FEW: Final = 10
"""Predictions from which a record says something."""
_LOGS: Final = "import logs: toolmem import runs.jsonl --memory FOLDER"


def section_of(
    graph: ToolGraph,
    budget: Budget,
    policy: InertiaPolicy,
    specs: Mapping[str, ToolSpec],
    changes: Changes,
    agents: Agents,
    unknown: Sequence[str] = (),
) -> Section:
    """Return the checks of predictions, the state of the budget, and tools that are not skipped.

    `unknown` are the names and patterns of ``reads`` that fit no tool. `policy` is the memory's own; it counts where no
    agent asked yet. A tool is held back if each agent holds it back.
    """
    policies = sorted(agents.policies() or [policy], key=lambda each: each.shadow)
    figures, (ahead, ahead_table) = budget.figures(policies[0]), _prefetched(graph)
    refused = {name: why for name in sorted(specs) if (why := _refused(specs[name], policies))}
    missing = [name for name in undeclared(specs, policies[0]) if all(name in undeclared(specs, p) for p in policies)]
    reading = suggested(specs[name] for name in missing)
    figures |= {"unknown_reads": list(unknown), "undeclared": missing, "suggested": reading, "never_skipped": refused}
    idle = _unskipped(graph, budget, policies, specs, figures)
    shown = {each["tool"] for each in idle}
    never = tuple((tool, why.removeprefix(f"{tool} ")) for tool, why in refused.items() if tool not in shown)
    held = tuple((o["tool"], f"{o['calls']:,}", f"{o['skipped']:,}", o["why"], o["todo"] or "–") for o in idle)
    wrong = agents.wrong_calls()
    missed = tuple((row["thread"], row["tool"], row["args"], row["instead"], row["found_by"]) for row in wrong[:MOST])
    tables = (
        TextTable("Called often, seldom without the model", ("tool", "calls", "skipped", "why", "what to do"), held),
        TextTable("Never called without the model", ("tool", "why"), never),
        TextTable("Wrong calls", ("thread", "tool", "arguments", "right", "found"), missed),
        *ahead_table,
    )
    figures |= {"mode": "shadow, nothing is called" if policy.shadow else "acting", "kind": policy.kind}
    figures |= {"agents": agents.figures(), "wrong_calls": wrong}
    named = frozenset[str]().union(*(each.may_write for each in policies))
    figures["declared"] = [sum(spec.read_only is True for spec in specs.values()), len(named & specs.keys())]
    reviewed = {tool_of(record) for record, counts in graph.by_tool.items() if counts.get(REVIEWED)}
    figures["refused"] = sorted(reviewed & specs.keys())
    figures |= {"unskipped": idle, "changing": changing(specs), "changes": changes.figures()}
    return Section("Shortcut and prefetch", figures | ahead, (*_sentences(figures | ahead),), tables)


def _refused(spec: ToolSpec, policies: Sequence[InertiaPolicy]) -> str:
    """Return why no policy lets a tool be called without the model; "" if one does."""
    refusals = [why_never(spec, policy) for policy in policies]
    first = refusals[0]
    if first is None or None in refusals:
        return ""
    return first.text


def _most_open(spec: ToolSpec, policies: Sequence[InertiaPolicy]) -> InertiaPolicy:
    """Return the policy that holds a tool back least; policies that act come first."""
    return next((policy for policy in policies if not why_never(spec, policy)), policies[0])


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
    if declare := undeclared_line(figures["undeclared"], figures["suggested"]):
        lines.append(declare)
    if unknown := figures["unknown_reads"]:
        lines.append(f"ToolMemory(reads=...) names {named(unknown)}, but no tool seen so far fits.")
    if of := figures.get("prefetch"):
        lines.append(
            f"Look-ups prefetched while the model was asked: {of['started']:,}; {of['served']:,} of them were what it "
            f"asked for, {of['wasted']:,} were thrown away; {of['seconds_saved']:,.1f} seconds of waiting saved."
        )
    return lines


# --- tools that are called often and seldom without the model ---


def _unskipped(
    graph: ToolGraph,
    budget: Budget,
    policies: Sequence[InertiaPolicy],
    specs: Mapping[str, ToolSpec],
    figures: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the tools that are called most, of whose calls less than half were made without the model.

    Each has its name, calls, those `skipped` of them, and `why` and `todo`: what holds it back and what would help.
    """
    found: list[dict[str, Any]] = []
    for tool, entry in graph.tools.items():
        calls = int(entry.get("ok", 0) + entry.get("failed", 0))
        record = graph.by_tool.get(tool, {})
        skipped = int(sum(record.get(f"acted_{end}", 0) for end in ("ok", "failed", "stopped")))
        if calls >= OFTEN and 2 * skipped < calls:
            name = tool_of(tool)
            if name in specs:
                policy = _most_open(specs[name], policies)
                bar = budget.bar(policy, changes=may_write(name, specs))
                why, todo = _why(name, specs[name], figures, record, policy, bar)
            else:
                why, todo = "guard: it is not among the tools", "name it in tools="
            found.append({"tool": tool, "calls": calls, "skipped": skipped, "why": why, "todo": todo})
    return sorted(found, key=lambda each: (-each["calls"], each["tool"]))[:MOST]


def _why(
    tool: str,
    spec: ToolSpec,
    figures: Mapping[str, Any],
    record: Mapping[str, float],
    policy: InertiaPolicy,
    bar: float,
) -> tuple[str, str]:
    """Return the first thing that stands in the way, and what would change it ("" if nothing need be done)."""
    hits, misses = int(record.get("hits", 0)), int(record.get("misses", 0))
    of = hits + misses
    if never := figures["never_skipped"].get(tool):
        return f"guard: {never.removeprefix(tool).strip()}", _remedy(tool, spec, policy)
    if policy.shadow:
        return "shadow mode", "InertiaPolicy(shadow=False) when the record is good enough"
    if not figures["budget_open"]:
        return "budget: the allowed misses are used up", "wait, or allow a larger max_wrong_per_100"
    if of < _FEW:
        return f"below the bar: only {of} predictions so far", _LOGS
    share = f"{hits:,} of {of:,} predictions were exactly right"
    if hits < bar * of:
        return f"below the bar of {bar:.0%}: {share}", "prefetch=True saves its waiting all the same"
    return f"{share}; single calls may be below the bar of {bar:.0%}", ""


def _remedy(tool: str, spec: ToolSpec, policy: InertiaPolicy) -> str:
    """Return the setting that lets a tool be called without the model; "" if none does, or the policy excludes it."""
    if tool in policy.never or policy.only is not None or spec.controls:
        return ""
    writes = f'InertiaPolicy(may_write={{"{tool}"}}'
    if side_effects(spec) == "destroys":
        return f'{writes}, allow_destructive={{"{tool}"}})'
    return f'if it only reads: ToolMemory(reads={{"{tool}"}}); otherwise {writes})'


# --- look-ups before the model ---


def with_context(section: Section, record: ContextRecord) -> Section:
    """Return the section with the look-ups that were made before the model was asked; the same if there were none."""
    of = record.figures()
    if not of["made"] and not of["held_out"]:
        return section
    sentence = (
        f"Look-ups made before the model was asked: {of['made']:,}; model calls saved: {of['saved']:,}; "
        f"made again by the model: {of['made_again']:,}. Of {of['held_out']:,} that were held out to check, the model "
        f"made {of['held_out_right']:,}."
    )
    return replace(section, figures={**section.figures, "context": of}, sentences=(*section.sentences, sentence))


# --- prefetched look-ups ---


def _prefetched(graph: ToolGraph) -> tuple[dict[str, Any], tuple[TextTable, ...]]:
    """Return the figures of prefetched look-ups, in all and by tool, and their table; nothing if there were none."""
    by_tool = {
        tool: _counted(*(record.get(counter, 0.0) for counter in (SERVED, WASTED, SECONDS)))
        for tool, record in sorted(graph.by_tool.items())
        if record.get(SERVED) or record.get(WASTED)
    }
    if not by_tool:
        return {}, ()
    sums = _counted(*(sum(o[name] for o in by_tool.values()) for name in ("served", "wasted", "seconds_saved")))
    rows = (
        (tool, *(f"{row[name]:,}" for name in ("started", "served", "wasted")), f"{row['seconds_saved']:,.1f}")
        for tool, row in by_tool.items()
    )
    columns = ("tool", "prefetched", "served", "thrown away", "seconds saved")
    return {"prefetch": {**sums, "by_tool": by_tool}}, (TextTable("Look-ups prefetched", columns, tuple(rows)),)


def _counted(served: float, wasted: float, seconds: float) -> dict[str, float]:
    counts = {"started": int(served + wasted), "served": int(served), "wasted": int(wasted)}
    return {**counts, "seconds_saved": round(seconds, 3)}
