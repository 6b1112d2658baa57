"""The shortcut's part of the report: how often it was right, why often-called tools are not skipped, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from langgraph_toolmem.core.catalogue import suggested, undeclared_line
from langgraph_toolmem.core.method import Section, TextTable
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.budget import Budget, figures_in_words
from langgraph_toolmem.inertia.calibrated import rules_table
from langgraph_toolmem.inertia.evidence import InertiaEvidence, RuleRecord
from langgraph_toolmem.inertia.guards import changing, may_write, undeclared, why_never
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import record as ahead_record
from langgraph_toolmem.runs.tools import ToolSpec

MAX_RULES: Final = 50
"""Kinds of predictions in the report."""
OFTEN: Final = 5
"""Calls from which a tool counts as called often."""
MOST: Final = 10
_FEW: Final = 10
"""Predictions from which a record says something."""
_LOGS: Final = "import logs: toolmem import runs.jsonl --memory FOLDER"


class Unskipped(NamedTuple):
    """A tool that is called often and seldom without the model.

    Attributes:
        tool: its name.
        calls: how many were executed.
        skipped: of these, without the model.
        why: what holds it back.
        todo: what would change that; "" if nothing need be done.
    """

    tool: str
    calls: int
    skipped: int
    why: str
    todo: str


def unskipped(
    graph: ToolGraph,
    budget: Budget,
    rules: Iterable[RuleRecord],
    policy: InertiaPolicy,
    *,
    specs: Mapping[str, ToolSpec],
    never: Mapping[str, str],
) -> list[Unskipped]:
    """The tools that are called most, of whose calls less than half were made without the model.

    Args:
        graph: says how often they are called.
        budget: of misses.
        rules: the record of predictions.
        policy: decides.
        specs: the tools that may be called.
        never: those of them that no record lets be called, with reasons.
    """
    figures = budget.figures(policy)
    bars = {name: budget.bar(policy, changes=may_write(name, specs, policy)) for name in specs}
    record: dict[str, list[int]] = {}
    for rule in rules:
        seen = record.setdefault(rule.tool, [0, 0])
        seen[0] += rule.hits
        seen[1] += rule.hits + rule.misses
    found = []
    for tool, entry in graph.tools.items():
        calls = int(entry.get("ok", 0) + entry.get("failed", 0))
        skipped = int(sum(graph.by_tool.get(tool, {}).get(f"acted_{end}", 0) for end in ("ok", "failed", "stopped")))
        if calls >= OFTEN and 2 * skipped < calls:
            why, todo = _why(tool, figures, record.get(tool, [0, 0]), policy, never, bars)
            found.append(Unskipped(tool, calls, skipped, why, todo))
    return sorted(found, key=lambda each: (-each.calls, each.tool))[:MOST]


def _why(
    tool: str,
    figures: Mapping[str, Any],
    seen: list[int],
    policy: InertiaPolicy,
    never: Mapping[str, str],
    bars: Mapping[str, float],
) -> tuple[str, str]:
    """The first thing that stands in the way."""
    hits, of = seen
    if tool not in bars:
        return "guard: it is not among the tools", "name it in tools="
    if tool in never:
        chosen = tool in policy.never or tool in policy.needs_approval or policy.only is not None
        marked = "if it only reads: ToolMemory(reads=...) or the tag 'read_only'; otherwise may_write=... allows it"
        return f"guard: {never[tool].removeprefix(tool).strip()}", "" if chosen else marked
    if policy.shadow:
        return "shadow mode", "InertiaPolicy(shadow=False) when the record is good enough"
    if learning := figures["learning"]:
        return f"budget: learning, {learning[0]:,} of {learning[1]:,} turns", _LOGS
    if not figures["budget_open"]:
        return "budget: the allowed misses are used up", "wait, or allow more: Bound(max_wrong_per_100=...)"
    if of < _FEW:
        return f"below the bar: only {of} predictions so far", _LOGS
    share = f"{hits:,} of {of:,} predictions were exactly right"
    if hits < bars[tool] * of:
        return f"below the bar of {bars[tool]:.0%}: {share}", "prefetch=True saves its waiting all the same"
    return f"{share}; single calls may be below the bar of {bars[tool]:.0%}", ""


def section_of(
    graph: ToolGraph,
    evidence: InertiaEvidence,
    budget: Budget,
    policy: InertiaPolicy,
    specs: Mapping[str, ToolSpec],
) -> Section:
    """Return how often proposals were right, kind by kind, and whether the budget of misses has room."""
    figures, every, ahead = budget.figures(policy), evidence.most_used_rules(), ahead_record.figures(graph)
    rules = every[:MAX_RULES]
    refused = {name: why for name in sorted(specs) if (why := why_never(specs[name], policy))}
    missing = undeclared(specs, policy)
    reading = suggested(specs[name] for name in missing)
    idle = unskipped(graph, budget, every, policy, specs=specs, never=refused)
    told = {each.tool for each in idle}
    never = tuple((tool, why.removeprefix(f"{tool} ")) for tool, why in refused.items() if tool not in told)
    held = tuple((each.tool, f"{each.calls:,}", f"{each.skipped:,}", each.why, each.todo or "–") for each in idle)
    tables = (
        TextTable("Called often, seldom without the model", ("tool", "calls", "skipped", "why", "what to do"), held),
        rules_table(rules),
        TextTable("Never called without the model", ("tool", "why"), never),
        *ahead_record.tables(ahead),
    )
    declare = undeclared_line(missing, reading)
    lines = (*figures_in_words(figures), *([declare] if declare else []), *ahead_record.in_words(ahead))
    figures |= {"rules": rules, "undeclared": missing, "suggested": reading, "never_skipped": refused}
    figures |= {"mode": "shadow, nothing is called" if policy.shadow else "acting", "kind": policy.kind}
    figures["declared"] = [sum(spec.read_only is True for spec in specs.values()), len(policy.may_write & specs.keys())]
    figures["refused"] = sorted(tool for tool in specs if graph.by_tool.get(tool, {}).get(ahead_record.REVIEWED))
    figures |= {"unskipped": [each._asdict() for each in idle], "changing": changing(specs, policy)}
    return Section("Kinds of predictions", figures | ahead, lines, tables)
