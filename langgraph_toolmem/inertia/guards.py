"""Guards every shortcut passes, whatever the policy: nothing is done that the host would not have let happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph_toolmem.graph.evidence import EvidenceGraph, turns_seen
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.record import budget_room
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon_args

NORMAL_REPEATS = 1 / 3
"""Share of a tool's calls that repeat an earlier one of their run, from which a repeat is normal."""
SUREST = 0.99
"""Confidence asked for when the budget is all but used up."""
LAST_ROOM = 2.0
"""Misses left in the budget below which only the surest calls are made."""


def refusal(
    tool: str,
    args: Mapping[str, Any],
    *,
    specs: Mapping[str, ToolSpec],
    policy: InertiaPolicy,
    graph: EvidenceGraph,
    state: RunState,
) -> str:
    """Why a call must not be made by a shortcut; "" if it may."""
    if state.stopped:
        return "the last call was not let through: the model is to read why"
    spec = specs.get(tool)
    if spec is None:
        return f"{tool} is not among the tools"
    if tool in policy.never:
        return f"{tool} is excluded by the policy"
    if tool in policy.needs_approval:
        return f"{tool} needs a human's approval"
    if spec.destructive and tool not in policy.allow_destructive:
        return f"{tool} is destructive and not named in allow_destructive"
    problem = spec.problem(args)
    if problem:
        return f"arguments of {tool} break its schema: {problem}"
    repeats = tool in state.tools and (tool, canon_args(args)) in state.called
    if repeats and tool not in policy.allow_repeats:
        if may_write(tool, specs) and not spec.idempotent:
            return f"{tool} may change something and was already called with the same arguments in this run"
        known = graph.tools.get(tool, {})
        calls = known.get("ok", 0) + known.get("failed", 0)
        if known.get("repeats", 0) < NORMAL_REPEATS * max(calls, 1):
            return f"{tool} was already called with the same arguments in this run"
        if not _still_the_same(tool, args, state):
            return f"{tool} was called like this before in this run, and its answer did not stay the same"
    return ""


def _still_the_same(tool: str, args: Mapping[str, Any], state: RunState) -> bool:
    """Whether making a call once more is mere waiting: its last two answers in this run are equal.

    A loop that polls ends when the answer changes, and only the model can tell what the change means.
    """
    wanted = (tool, canon_args(args))
    answers = [step.output for step in state.steps if step.tool == tool and (tool, canon_args(step.args)) == wanted]
    return len(answers) > 1 and answers[-1] == answers[-2]


def may_write(tool: str, specs: Mapping[str, ToolSpec]) -> bool:
    """Whether a tool may change something, as far as it is said.

    Where no tool is marked read-only nothing is known, and nothing is assumed.
    """
    spec = specs[tool]
    if spec.read_only is not None:
        return not spec.read_only
    return any(other.read_only for other in specs.values())


def pace(policy: InertiaPolicy, chosen_by: Sequence[str]) -> str:
    """Why no shortcut may be taken now, given who chose the run's calls so far; "" if one may."""
    in_a_row = 0
    for who in reversed(chosen_by):
        if who != "shortcut":
            break
        in_a_row += 1
    if policy.max_in_a_row is not None and in_a_row >= policy.max_in_a_row:
        return f"{in_a_row} shortcut(s) in a row: the model is asked"
    if policy.max_share is not None:
        taken = sum(who == "shortcut" for who in chosen_by)
        if taken + 1 > policy.max_share * (len(chosen_by) + 1):
            return f"{taken} of {len(chosen_by)} calls of this run were shortcuts: the cap is {policy.max_share:.0%}"
    return ""


def raised_bar(room: float, counters: Mapping[str, float], policy: InertiaPolicy) -> float:
    """The confidence asked for now: it rises as the budget is used up, so that the budget is never run into.

    From half the budget on it goes from `min_precision` towards SUREST; with less than LAST_ROOM misses left it
    is at least half-way between `min_precision` and 1.
    """
    if policy.max_wrong_per_100 is None:
        return policy.min_precision
    allowed = policy.max_wrong_per_100 * (turns_seen(counters) + 1) / 100
    used = 1 - room / allowed if allowed else 1.0
    bar = policy.min_precision + max(0.0, SUREST - policy.min_precision) * min(1.0, max(0.0, 2 * used - 1))
    return max(bar, (1 + policy.min_precision) / 2) if room < LAST_ROOM else bar


def held_back(graph: EvidenceGraph, policy: InertiaPolicy, p: float, draw: float) -> tuple[str, bool]:
    """Why a proposal is not acted on ("" if it is), and whether the policy would act but for the check.

    Args:
        graph: its counters tell what is left of the budget.
        policy: budget, audits and shadow mode.
        p: the probability, judged by the record, that the call is what the model would do.
        draw: a number from 0 to 1; below `audit_rate` the proposal is audited.
    """
    room = budget_room(graph.counters, policy.max_wrong_per_100)
    if room < 1:
        return (
            f"the budget of {policy.max_wrong_per_100:g} wrong call(s) per 100 model turns has no room yet "
            f"({turns_seen(graph.counters)} turns seen)"
        ), False
    bar = raised_bar(room, graph.counters, policy)
    if bar > policy.min_precision and p < bar:  # the paper's policy has no bar until the budget raises one
        return f"much of the budget of wrong calls is used up, and confidence {p:.2f} is below {bar:.2f}", False
    if policy.shadow:
        return "shadow mode: the model is asked and the answer compared", True
    if draw < policy.audit_rate:
        return "audit: the model is asked and the answer compared", True
    return "", False
