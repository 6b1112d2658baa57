"""AutoTool's inertia shortcut as published (arXiv 2511.14650).

For each candidate c seen after the last k tools, with weight w(c) and W = Σ w:

    ICF  = 1 − κ^(−W)
    freq = w(c) / W · ICF
    ctx  = cos(embed(intuition), embed(description of c))
    CIPS = (1 − α) · freq + α · ctx

The paper scans all stored paths that contain the window; a table of successors per window gives the same
numbers in constant time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from langgraph_toolmem.graph.sources import describe, evaluate
from langgraph_toolmem.graph.state import SEPARATOR, RunState, paper_window, slot_key
from langgraph_toolmem.graph.tool_graph import HIT, CountTable, ToolGraph
from langgraph_toolmem.inertia.budget import Budget
from langgraph_toolmem.inertia.decision import Decision, Option, Proposal, Refusal
from langgraph_toolmem.inertia.guards import may_write, refusal
from langgraph_toolmem.inertia.policy import PaperPolicy
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, fit
from langgraph_toolmem.turn.host import ErrorLog

logger = logging.getLogger("langgraph_toolmem.inertia")

Similarity = Callable[[str, str], float]
"""(intuition, tool name) → cosine with the tool's description."""

MAX_OPTIONS = 6
"""Candidates in a decision."""
MODEL_OK, MODEL_FAILED, SHORTCUT_OK, SHORTCUT_FAILED = range(4)
errors: Final = ErrorLog("the environment of the paper's policy", logger)


def weights(graph: ToolGraph, tools: list[str], k: int) -> dict[str, float]:
    """Return w(c) per tool seen after the last k tools.

    What the model chose counts +1. What the shortcut chose is feedback: its failures lower the weight, its
    successes make up for failures but are no evidence of what the model would do. A longer chain (k + 1) in
    which the shortcut failed more often than it succeeded is negative evidence and takes the tool out.
    """
    key = paper_window(tools, k)
    if key is None:
        return {}
    longer = paper_window(tools, k + 1) if k < 3 else None
    chains = graph.successors.row(longer) if longer else {}
    found: dict[str, float] = {}
    for tool, cell in graph.successors.row(key).items():
        chain = chains.get(tool)
        if chain is not None and chain[SHORTCUT_FAILED] > chain[SHORTCUT_OK] + chain[MODEL_OK]:
            continue
        efficacy = min(0.0, cell[SHORTCUT_OK] - cell[SHORTCUT_FAILED])
        weight = cell[MODEL_OK] + cell[MODEL_FAILED] + efficacy
        if weight > 0:
            found[tool] = weight
    return found


def scores(
    graph: ToolGraph, tools: list[str], intuition: str, similarity: Similarity, policy: PaperPolicy
) -> list[tuple[float, str]]:
    """Return CIPS of every candidate, best first. Tools with equal scores are in alphabetical order."""
    found = weights(graph, tools, policy.window)
    total = sum(found.values())
    if total <= 0:
        return []
    icf = 1 - policy.kappa ** (-total)
    ranked = []
    for tool, weight in found.items():
        freq = weight / total * icf
        ctx = similarity(intuition, tool) if intuition and policy.alpha else 0.0
        ranked.append(((1 - policy.alpha) * freq + policy.alpha * ctx, tool))
    return sorted(ranked, key=lambda item: (-item[0], item[1]))


def fill(
    graph: ToolGraph, state: RunState, spec: ToolSpec, policy: PaperPolicy
) -> tuple[dict[str, Any], dict[str, str]] | str:
    """Fill arguments in the paper's order of trust: dataflow, environment, heuristic.

    Returns:
        Arguments and their sources, or the name of a required parameter that could not be filled.
    """
    args: dict[str, Any] = {}
    sources: dict[str, str] = {}
    context: Mapping[str, Any] = {}
    if policy.environment is not None:
        with errors:  # the host's code: learning must go on without it
            context = dict(policy.environment(spec.name, state.steps))
    for parameter, schema in spec.properties.items():
        slot = slot_key(spec.name, parameter)
        row = graph.sources.row(slot)
        for descriptor in sorted(filter(_is_flow, row), key=lambda each: -row[each][HIT]):
            value = evaluate(descriptor, state, (spec.name, parameter))
            if (fitted := fit(value, schema)) is not ABSENT:
                args[parameter], sources[parameter] = fitted, descriptor
                break
        else:
            if parameter in context:
                args[parameter], sources[parameter] = context[parameter], "env"
            elif parameter in spec.required:
                value = _from_goal(parameter, schema, state)
                if value is ABSENT:
                    return parameter
                args[parameter], sources[parameter] = value, "goal"
    return args, sources


def _is_flow(descriptor: str) -> bool:
    return descriptor.startswith(("i|", "o|", "l|"))


def _from_goal(parameter: str, schema: Mapping[str, Any], state: RunState) -> Any:
    """Return an allowed value that the goal mentions, or what stands in it after the parameter's name."""
    for allowed in schema.get("enum", ()):
        if isinstance(allowed, str) and state.user.find(allowed):
            return allowed
    words = [w for w in parameter.lower().replace("-", "_").split("_") if w]
    span = state.user.find(" ".join(words)) if words else None
    if span and span[1] + 1 < len(state.user.words):
        first = span[1] + 1
        if state.user.words[first] in ("is", ":", "=") and first + 1 < len(state.user.words):
            first += 1
        return fit(state.user.span(first, first), schema)
    return ABSENT


def decide(
    graph: ToolGraph,
    state: RunState,
    *,
    rules: CountTable,
    budget: Budget,
    specs: Mapping[str, ToolSpec],
    policy: PaperPolicy,
    similarity: Similarity,
    chosen_by: Sequence[str],
    draw: float,
) -> Decision:
    """Apply the published decision rule with its cap, its recovery path and the guards that every shortcut passes.

    Budget and audits are off unless the policy sets them; `draw` is as for the calibrated policy.
    """

    def propose(
        tool: str,
        score: float,
        evidence: str,
        filled: tuple[dict[str, Any], dict[str, str]],
        rest: Sequence[Option] = (),
        allowed: PaperPolicy = policy,
    ) -> Decision:
        args, sources = filled
        refused = refusal(tool, (args,), specs=specs, policy=allowed, graph=graph, state=state)
        record, changes = f"P{state.symbols[-1]}{SEPARATOR}{tool}", may_write(tool, specs)
        hits, misses = rules.row(record).get("", (0, 0))
        confidence = (hits + 1) / (hits + misses + 2)  # CIPS is no probability
        options = (Option(tool, (args,), score, refused, changes, records=(record,)), *rest)
        if refused:
            return Decision(None, refused, options, confidence)
        hold, audit = budget.held_back(policy, confidence, draw, changes=changes)
        known = {name: describe(source) for name, source in sources.items()}
        evidence += "".join(f" {name}: {source}." for name, source in known.items())
        proposal = Proposal(tool, args, score, evidence, not hold, hold, audit, known)
        return Decision(proposal, hold, options, confidence)

    way_out = policy.recovery_tool
    failed = [step.status for step in state.steps[-policy.recovery_after :]] == ["failed"] * policy.recovery_after
    if (
        way_out
        and way_out in specs
        and failed
        and not isinstance(filled := fill(graph, state, specs[way_out], policy), str)
    ):
        evidence = f"The last {policy.recovery_after} calls failed; {way_out} shows what is possible."
        again = policy.with_(allow_repeats=policy.allow_repeats | {way_out})
        recovery = propose(way_out, 1.0, evidence, filled, allowed=again)
        if recovery.proposal is not None:  # it may break the pace
            return recovery
    if slow := pace(policy, chosen_by):
        return Decision(None, slow)
    ranked = scores(graph, state.tools, state.thought, similarity, policy)
    if not ranked:
        return Decision(None, Refusal("nothing_seen", "no tool has been seen after the last tools of this run"))
    score, tool = ranked[0]
    lower = Refusal("low_confidence", "another tool scores higher")
    rest = tuple(Option(name, (), value, lower) for value, name in ranked[1:MAX_OPTIONS])
    if score <= policy.threshold:
        reason = Refusal("low_confidence", f"score {score:.2f} of {tool} is not above {policy.threshold:.2f}")
    elif tool not in specs:
        reason = Refusal("unknown_tool", f"{tool} is not among the tools")
    elif isinstance(filled := fill(graph, state, specs[tool], policy), str):
        reason = Refusal("no_value", f"nothing in this run fills {filled} of {tool}")
    else:
        window = " → ".join(state.tools[-policy.window :])
        evidence = f"After {window}, {tool} has score {score:.2f} (CIPS), above {policy.threshold:.2f}."
        return propose(tool, score, evidence, filled, rest)
    return Decision(None, reason, (Option(tool, (), score, reason), *rest))


def pace(policy: PaperPolicy, chosen_by: Sequence[str]) -> Refusal | None:
    """Return why no shortcut may be taken now, given who chose the run's calls so far; None if one may."""
    in_a_row = 0
    for who in reversed(chosen_by):
        if who != "shortcut":
            break
        in_a_row += 1
    if policy.max_in_a_row is not None and in_a_row >= policy.max_in_a_row:
        return Refusal("pace", f"{in_a_row} shortcut(s) in a row: the model is asked")
    if policy.max_share is not None:
        taken = sum(who == "shortcut" for who in chosen_by)
        if taken + 1 > policy.max_share * (len(chosen_by) + 1):
            text = f"{taken} of {len(chosen_by)} calls of this run were shortcuts: the cap is {policy.max_share:.0%}"
            return Refusal("pace", text)
    return None
