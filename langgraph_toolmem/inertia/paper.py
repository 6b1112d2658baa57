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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from langgraph_toolmem.base.errors import log_failure
from langgraph_toolmem.graph.sources import MISSING, describe, evaluate
from langgraph_toolmem.graph.state import SEPARATOR, RunState, paper_window, slot_key
from langgraph_toolmem.graph.tool_graph import HIT, MISS, CountTable, ToolGraph
from langgraph_toolmem.inertia.budget import Budget
from langgraph_toolmem.inertia.guards import may_write, refusal
from langgraph_toolmem.inertia.policy import EnvironmentAdapter, PaperPolicy
from langgraph_toolmem.inertia.proposal import RULE_PREFIX, Decision, Option, Proposal
from langgraph_toolmem.inertia.reasons import Reason
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, fit

logger = logging.getLogger("langgraph_toolmem.inertia")

Similarity = Callable[[str, str], float]
"""(intuition, tool name) → cosine with the tool's description."""

MAX_OPTIONS = 6
"""Candidates told of in a decision."""
MODEL_OK, MODEL_FAILED, SHORTCUT_OK, SHORTCUT_FAILED = range(4)
MAX_SAID: Final = 100
failures_logged: set[tuple[str, str]] = set()


def weights(graph: ToolGraph, tools: list[str], k: int) -> dict[str, float]:
    """w(c) per tool seen after the last k tools.

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
    """CIPS of every candidate, best first. Tools with equal scores are in alphabetical order."""
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
    """Arguments in the paper's order of trust: dataflow, environment, heuristic.

    Returns:
        Arguments and their sources, or the name of a required parameter that could not be filled.
    """
    args: dict[str, Any] = {}
    sources: dict[str, str] = {}
    context = _environment(policy, spec.name, state)
    for parameter, schema in spec.properties.items():
        slot = slot_key(spec.name, parameter)
        row = graph.sources.row(slot)
        for descriptor in _strongest_first(row):
            value = evaluate(descriptor, state, (spec.name, parameter))
            if value is not MISSING and (fitted := fit(value, schema)) is not ABSENT:
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


def _strongest_first(row: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """The dataflow sources of a slot by how often they were right. The first nearly always does."""
    first, most = "", -1.0
    for descriptor, cell in row.items():
        if cell[HIT] > most and _is_flow(descriptor):
            first, most = descriptor, cell[HIT]
    if first:
        yield first
        yield from sorted((d for d in row if d != first and _is_flow(d)), key=lambda d: -row[d][HIT])


def _is_flow(descriptor: str) -> bool:
    return descriptor[0] in "iol" or (descriptor[0] == "[" and descriptor[2] in "iol")


def _environment(policy: PaperPolicy, tool: str, state: RunState) -> Mapping[str, Any]:
    """Return what the host's adapter knows; nothing if it fails, which is logged once per adapter and kind of error."""
    adapter = policy.environment
    if adapter is None:
        return {}
    ask = adapter.parameters if isinstance(adapter, EnvironmentAdapter) else adapter
    try:
        return dict(ask(tool, state.steps))
    except Exception as error:  # noqa: BLE001 - the host's code: learning must go on without it
        kind = (getattr(ask, "__qualname__", type(adapter).__qualname__), type(error).__name__)
        if kind not in failures_logged and len(failures_logged) < MAX_SAID:
            failures_logged.add(kind)
            log_failure(
                logger, logging.WARNING, "The environment adapter %s failed, which is logged once", kind[0], error=error
            )
        return {}


def _from_goal(parameter: str, schema: Mapping[str, Any], state: RunState) -> Any:
    """A value the goal itself names: an allowed value it mentions, or what stands after the parameter's name."""
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
    intuition: str,
    similarity: Similarity,
    chosen_by: Sequence[str],
    draw: float = 1.0,
) -> Decision:
    """The published decision rule with its cap, its recovery path and the guards that every shortcut passes.

    Budget and audits are off unless the policy sets them; `draw` is as for the calibrated policy.
    """
    recovery = _recovery(graph, rules, budget, state, specs, policy, draw)
    if recovery is not None:
        return recovery
    slow = pace(policy, chosen_by)
    if slow:
        return Decision(None, slow)
    ranked = scores(graph, state.tools, intuition, similarity, policy)
    if not ranked:
        return Decision(None, Reason("nothing_seen", "no tool has been seen after the last tools of this run"))
    score, tool = ranked[0]
    rest = tuple(Option(name, (), value, "another tool scores higher") for value, name in ranked[1:MAX_OPTIONS])
    if score <= policy.threshold:
        reason = Reason("low_confidence", f"score {score:.2f} of {tool} is not above {policy.threshold:.2f}")
        return Decision(None, reason, (Option(tool, (), score, reason), *rest))
    if tool not in specs:
        reason = Reason("unknown_tool", f"{tool} is not among the tools")
        return Decision(None, reason, (Option(tool, (), score, reason), *rest))
    filled = fill(graph, state, specs[tool], policy)
    if isinstance(filled, str):
        reason = Reason("no_value", f"nothing in this run fills {filled} of {tool}")
        return Decision(None, reason, (Option(tool, (), score, reason), *rest))
    args, sources = filled
    refused = refusal(tool, args, specs=specs, policy=policy, graph=graph, state=state)
    rule, confidence = _record(rules, state, tool)
    changes = may_write(tool, specs, policy)
    options = (Option(tool, (args,), score, refused, changes=changes, rule=rule), *rest)
    if refused:
        return Decision(None, refused, options, confidence)
    known = {name: describe(source) for name, source in sources.items()}
    window = " → ".join(state.tools[-policy.window :])
    told = "".join(f" {name}: {source}." for name, source in known.items())
    evidence = f"After {window}, {tool} has score {score:.2f} (CIPS), above {policy.threshold:.2f}.{told}"
    hold, audit = budget.held_back(policy, confidence, draw, changes=changes)
    proposal = Proposal(tool, args, score, evidence, not hold, hold, audit, known)
    return Decision(proposal, hold or evidence, options, confidence)


def _record(rules: CountTable, state: RunState, tool: str) -> tuple[str, float]:
    """Return the kind of a proposal, and its record (h + 1) / (h + m + 2): CIPS is no probability."""
    rule = SEPARATOR.join((state.symbols[-1], tool, "paper"))
    cell = rules.row(RULE_PREFIX + rule).get("", (0, 0))
    return rule, (cell[HIT] + 1) / (cell[HIT] + cell[MISS] + 2)


def pace(policy: PaperPolicy, chosen_by: Sequence[str]) -> str:
    """Why no shortcut may be taken now, given who chose the run's calls so far; "" if one may."""
    in_a_row = 0
    for who in reversed(chosen_by):
        if who != "shortcut":
            break
        in_a_row += 1
    if policy.max_in_a_row is not None and in_a_row >= policy.max_in_a_row:
        return Reason("pace", f"{in_a_row} shortcut(s) in a row: the model is asked")
    if policy.max_share is not None:
        taken = sum(who == "shortcut" for who in chosen_by)
        if taken + 1 > policy.max_share * (len(chosen_by) + 1):
            text = f"{taken} of {len(chosen_by)} calls of this run were shortcuts: the cap is {policy.max_share:.0%}"
            return Reason("pace", text)
    return ""


def _recovery(
    graph: ToolGraph,
    rules: CountTable,
    budget: Budget,
    state: RunState,
    specs: Mapping[str, ToolSpec],
    policy: PaperPolicy,
    draw: float,
) -> Decision | None:
    """After failed calls in a row, the configured tool that shows what is possible; it may break the pace."""
    tool = policy.recovery_tool
    recent: Sequence[str] = state.statuses[-policy.recovery_after :]
    if tool is None or tool not in specs or len(recent) < policy.recovery_after or set(recent) != {"failed"}:
        return None
    filled = fill(graph, state, specs[tool], policy)
    if isinstance(filled, str):
        return None
    args, sources = filled
    refused = refusal(
        tool,
        args,
        specs=specs,
        policy=policy.with_(allow_repeats=policy.allow_repeats | {tool}),
        graph=graph,
        state=state,
    )
    if refused:
        return None
    evidence = f"The last {policy.recovery_after} calls failed; {tool} shows what is possible."
    (rule, confidence), changes = _record(rules, state, tool), may_write(tool, specs, policy)
    hold, audit = budget.held_back(policy, confidence, draw, changes=changes)
    known = {name: describe(source) for name, source in sources.items()}
    proposal = Proposal(tool, args, 1.0, evidence, not hold, hold, audit, known)
    option = Option(tool, (args,), 1.0, changes=changes, rule=rule)
    return Decision(proposal, hold or evidence, (option,), confidence)
