"""Guards every shortcut passes, whatever the policy: nothing is done that the host would not have let happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.values import canon_args
from langgraph_toolmem.policy import InertiaPolicy
from langgraph_toolmem.tools import ToolSpec

NORMAL_REPEATS = 1 / 3
"""Share of a tool's calls that repeat an earlier one of their run, from which a repeat is normal."""


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
    if (tool, canon_args(args)) in state.called and tool not in policy.allow_repeats:
        known = graph.tools.get(tool, {})
        calls = known.get("ok", 0) + known.get("failed", 0)
        if known.get("repeats", 0) < NORMAL_REPEATS * max(calls, 1):
            return f"{tool} was already called with the same arguments in this run"
    return ""


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
