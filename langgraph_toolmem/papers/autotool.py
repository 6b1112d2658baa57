"""AutoTool's inertia shortcut as published (arXiv 2511.14650): the policy of `InertiaPolicy.paper()`.

For each candidate c seen after the last k = 2 tools, with weight w(c) and W = Σ w (sections 1 and 2):

    (1) w    = calls of the model + min(0, good calls of the shortcut − its failures)      [P; O for the minimum]
    (2) ICF  = 1 − κ^(−W),    κ = 1.1                                                      [P]
    (3) freq = w(c) / W · ICF                                                              [P]
    (4) ctx  = cos(embed(intuition), embed(description of c))                              [P]
    (5) CIPS = (1 − α) · freq + α · ctx,    α = 0.5                                        [P]

The candidate with the highest CIPS is called if it is above θ = 0.1 and its arguments can be filled, in the order of
trust dataflow, environment, heuristic (section 3). At most 30 % of a run's calls are shortcuts, never two in a row
(section 4). The paper scans all stored paths that contain the window; a table of successors per window gives the same
numbers in constant time.

By default (`inertia.calibrated`) a logistic regression, which learns from the model's answers, says how probable it is
that tool and arguments are exactly the model's, and a budget bounds the misses. What guards any shortcut
(`inertia.policy`) guards this one too. Per 100 model turns of recorded runs, cold, right and wrong calls
(`python -m benchmarks.replay --seeds 5`; docs/figures.md has all sets):

| | the default, look-ups alone | the default, all tools named | the paper |
|---|---|---|---|
| shop, GPT-4.1 mini (tau2_retail) | 10.4 and 0.46 | 10.4 and 0.46 | 1.5 and 9.53 |
| telecom, GPT-4.1 (tau2_telecom) | 7.0 and 0.16 | 7.0 and 0.16 | 0.3 and 10.06 |
| office, GPT-4 (workbench_gpt4) | 2.3 and 0.69 | 5.6 and 0.70 | 2.0 and 4.89 |
| 8 APIs, ideal runs (bfcl_v3_multi_turn) | 6.1 and 0.63 | 6.2 and 0.63 | 4.2 and 4.00 |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from langgraph_toolmem.base.checks import (
    checks_options,
    expect,
    is_bool,
    is_count,
    is_number,
    is_positive_count,
    is_share,
    or_none,
)
from langgraph_toolmem.graph.sources import describe, evaluate
from langgraph_toolmem.graph.state import SEPARATOR, RunState, paper_window, slot_key
from langgraph_toolmem.graph.tool_graph import HIT, ToolGraph
from langgraph_toolmem.inertia.calibrated import Similarity, Situation
from langgraph_toolmem.inertia.decision import Decision, Option, Proposal, Refusal
from langgraph_toolmem.inertia.policy import Bound, Guards, InertiaPolicy, may_write
from langgraph_toolmem.runs.run import ExecutedCall
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, fit
from langgraph_toolmem.turn.host import ErrorLog

logger = logging.getLogger("langgraph_toolmem.inertia")

Environment: TypeAlias = Callable[[str, Sequence[ExecutedCall]], Mapping[str, Any]]

NO_BUDGET: Final = Bound(max_wrong_per_100=None)
MAX_OPTIONS: Final = 6
"""Candidates in a decision."""
errors: Final = ErrorLog("the environment of the paper's policy", logger)


@checks_options
@dataclass(frozen=True)
class PaperPolicy(InertiaPolicy):
    """AutoTool as published: θ 0.1, α 0.5, κ 1.1, k 2, at most 30 % of a run's calls, never two in a row.

    `InertiaPolicy.paper()` makes one. The guards of every shortcut apply: tools that change something must be named.

    Attributes:
        max_in_a_row: shortcuts in a row before the model is asked; None: no limit.
        max_share: largest share (0 to 1) of a run's calls that the shortcut may make; None: no limit.
        announce: say in the call's message that the shortcut chose the call.
        window: tools looked back on (k).
        threshold: θ, the least score (CIPS) of a proposal.
        alpha: α, weight of the match between thought and tool description.
        kappa: κ, how fast evidence counts, ICF = 1 − κ^(−W).
        recovery_tool: called after `recovery_after` failed calls in a row ("what is possible here?"). It has to be
            declared to only read, or be in `may_write`.
        recovery_after: failed calls in a row.
        environment: returns parameters that no message says (current location, logged-in user), given the tool and the
            run's calls so far.
    """

    # The paper has neither budget nor audits: the cap and the pace limit the wrong calls.
    reads: Bound = NO_BUDGET
    writes: Bound = NO_BUDGET
    audit_rate: float = 0.0
    max_in_a_row: int | None = 1
    max_share: float | None = 0.3
    announce: bool = True
    window: int = 2
    threshold: float = 0.1
    alpha: float = 0.5
    kappa: float = 1.1
    recovery_tool: str | None = None
    recovery_after: int = 2
    environment: Environment | None = field(default=None, repr=False, compare=False)

    kind: ClassVar[str] = "paper"

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        super().__post_init__()
        expect(self, "max_in_a_row", "a whole number from 0 or None", or_none(_is_number_of_calls))
        expect(self, "max_share", "a share from 0 to 1 or None", or_none(is_share))
        expect(self, "announce", "True or False", is_bool)
        expect(self, "window", "1, 2 or 3", _is_window)
        expect(self, "threshold", "a number", is_number)
        expect(self, "alpha", "a share from 0 to 1", is_share)
        expect(self, "kappa", "a number above 1", _is_above_one)
        expect(self, "recovery_after", "a whole number from 1", is_positive_count)
        expect(self, "recovery_tool", "a tool name or None", _is_name_or_none)
        expect(self, "environment", "a callable (tool, steps) → parameters, or None", _is_callable_or_none)

    def published_rule(self) -> Callable[[Situation], Decision]:
        """See `InertiaPolicy`."""
        return decide

    def announces(self) -> bool:
        """See `InertiaPolicy`."""
        return self.announce

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; the environment adapter is left out."""
        plain = super().to_dict()
        del plain["environment"]
        return plain


def _is_number_of_calls(value: Any) -> bool:
    return is_count(value, 0)


def _is_window(value: Any) -> bool:
    return is_count(value, 1) and value <= 3


def _is_above_one(value: Any) -> bool:
    return is_number(value) and value > 1


def _is_name_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_callable_or_none(value: Any) -> bool:
    return value is None or callable(value)


# --- the decision ---


def decide(situation: Situation) -> Decision:
    """Apply the published rule with its cap, its recovery path and the guards that every shortcut passes.

    Budget and audits are off unless the policy sets them. The rule looks at tools and arguments alone, so a request
    with a picture or file is left to the model.
    """
    decision = _decide(situation)
    if situation.state.media:
        refused = Refusal("picture", "the request holds a picture or file, which only the model reads")
        return Decision(None, refused, decision.options)
    return decision


def _decide(situation: Situation) -> Decision:
    policy, state = situation.policy, situation.state
    assert isinstance(policy, PaperPolicy)
    recovery = _recovery(situation, policy)
    # Before the pace: after two failures in a row the recovery tool may follow another shortcut.
    if recovery is not None and recovery.proposal is not None:
        return recovery
    too_fast = pace(policy, situation.chosen_by)
    if too_fast is not None:
        return Decision(None, too_fast)
    ranked = scores(situation.graph, state.tools, state.thought, situation.similarity, policy)
    if not ranked:
        return Decision(None, Refusal("nothing_seen", "no tool has been seen after the last tools of this run"))
    # The best one or none: the paper does not go on with the second where the first cannot be filled.
    best, *lower_ones = ranked[:MAX_OPTIONS]
    lower = Refusal("low_confidence", "another tool scores higher")
    others = tuple(Option(other.tool, (), other.score, lower) for other in lower_ones)
    arguments = _arguments_of(best, situation, policy)
    if isinstance(arguments, Refusal):
        return Decision(None, arguments, (Option(best.tool, (), best.score, arguments), *others))
    window = " → ".join(state.tools[-policy.window :])
    evidence = f"After {window}, {best.tool} has score {best.score:.2f} (CIPS), above {policy.threshold:.2f}."
    return _proposed(situation, policy, best.tool, best.score, evidence, arguments, others)


def _arguments_of(best: ScoredTool, situation: Situation, policy: PaperPolicy) -> FilledArguments | Refusal:
    """Return the arguments of the best candidate, or why it is not called."""
    tool = best.tool
    if best.score <= policy.threshold:
        return Refusal("low_confidence", f"score {best.score:.2f} of {tool} is not above {policy.threshold:.2f}")
    if tool not in situation.specs:
        return Refusal("unknown_tool", f"{tool} is not among the tools")
    arguments = fill(situation.graph, situation.state, situation.specs[tool], policy)
    if isinstance(arguments, FilledArguments):
        return arguments
    return Refusal("no_value", f"nothing in this run fills {arguments} of {tool}")


def _recovery(situation: Situation, policy: PaperPolicy) -> Decision | None:
    """Return the decision on the recovery tool; None unless enough calls in a row failed and it can be called."""
    tool = policy.recovery_tool
    if not tool or tool not in situation.specs or not _failed_in_a_row(situation.state.steps, policy.recovery_after):
        return None
    arguments = fill(situation.graph, situation.state, situation.specs[tool], policy)
    if not isinstance(arguments, FilledArguments):
        return None
    evidence = f"The last {policy.recovery_after} calls failed; {tool} shows what is possible."
    # The possible actions change, so the recovery tool may be called again with the same arguments.
    may_repeat = policy.with_(allow_repeats=policy.allow_repeats | {tool})
    return _proposed(situation, may_repeat, tool, 1.0, evidence, arguments)


def _failed_in_a_row(steps: Sequence[ExecutedCall], number: int) -> bool:
    """Return True if the latest calls, so many, all failed."""
    latest = steps[-number:]
    return len(latest) == number and all(step.status == "failed" for step in latest)


def _proposed(
    situation: Situation,
    allowed: PaperPolicy,
    tool: str,
    score: float,
    evidence: str,
    arguments: FilledArguments,
    others: Sequence[Option] = (),
) -> Decision:
    """Return the decision to call a tool, unless a guard refuses the call under the `allowed` policy."""
    changes = may_write(tool, situation.specs)
    record = f"P{situation.state.symbols[-1]}{SEPARATOR}{tool}"
    best = Option(tool, (arguments.args,), score, changes=changes, records=(record,))
    refused = Guards().refuse(best, replace(situation, policy=allowed))
    hits, misses = situation.evidence.rules.row(record).get("", (0, 0))
    # CIPS is no probability. The budget needs one: the record of this pair of tools, with one hit and one miss before.
    confidence = (hits + 1) / (hits + misses + 2)
    options = (replace(best, refused=refused), *others)
    if refused is not None:
        return Decision(None, refused, options, confidence)
    hold = situation.budget.refuse(replace(best, probability=confidence), situation)
    audit = hold is not None and hold.is_check
    sources: dict[str, str] = {}
    for name, source in arguments.sources.items():
        sources[name] = describe(source)
        evidence += f" {name}: {sources[name]}."
    proposal = Proposal(tool, arguments.args, score, evidence, hold is None, hold, audit, sources)
    return Decision(proposal, hold, options, confidence)


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
        taken = chosen_by.count("shortcut")
        # With this one: the cap holds after it too.
        if taken + 1 > policy.max_share * (len(chosen_by) + 1):
            text = f"{taken} of {len(chosen_by)} calls of this run were shortcuts: the cap is {policy.max_share:.0%}"
            return Refusal("pace", text)
    return None


# --- scores ---


def weights(graph: ToolGraph, tools: list[str], k: int) -> dict[str, float]:
    """Return w(c) per tool seen after the last k tools (1).

    A call of the model counts +1. A call of the shortcut is feedback: its failures lower the weight, and its successes
    only make up for failures. A tool is left out if, at the end of a longer chain (k + 1), the shortcut's calls failed
    more often than calls succeeded.
    """
    # No back-off: a run of fewer than k tools has no candidates.
    key = paper_window(tools, k)
    if key is None:
        return {}
    chains: Mapping[str, Sequence[float]] = {}
    # Successors are kept for windows of up to three tools.
    longer = paper_window(tools, k + 1) if k < 3 else None
    if longer:
        chains = graph.successors.row(longer)
    weight_of: dict[str, float] = {}
    for tool, cell in graph.successors.row(key).items():
        if tool in chains and _failed_in(chains[tool]):
            continue
        model_ok, model_failed, shortcut_ok, shortcut_failed = cell
        # At most 0: the shortcut's own calls are not evidence of the model's choice, or errors would feed themselves.
        efficacy = min(0.0, shortcut_ok - shortcut_failed)
        weight = model_ok + model_failed + efficacy
        if weight > 0:
            weight_of[tool] = weight
    return weight_of


def _failed_in(chain: Sequence[float]) -> bool:
    """Return True if the shortcut's calls at the end of a chain failed more often than calls succeeded there."""
    model_ok, _, shortcut_ok, shortcut_failed = chain
    return shortcut_failed > shortcut_ok + model_ok


class ScoredTool(NamedTuple):
    """A candidate with its CIPS."""

    score: float
    tool: str


def scores(
    graph: ToolGraph, tools: list[str], intuition: str, similarity: Similarity, policy: PaperPolicy
) -> list[ScoredTool]:
    """Return CIPS (2 to 5) of every candidate, best first. Tools with equal scores are in alphabetical order."""
    weight_of = weights(graph, tools, policy.window)
    total = sum(weight_of.values())
    if total <= 0:
        return []
    icf = 1 - policy.kappa ** (-total)
    ranked: list[ScoredTool] = []
    for tool, weight in weight_of.items():
        freq = weight / total * icf
        ctx = 0.0
        # The similarity asks an embedder, so it is left out where it has no weight.
        if intuition and policy.alpha:
            ctx = similarity(intuition, tool)
        ranked.append(ScoredTool((1 - policy.alpha) * freq + policy.alpha * ctx, tool))
    return sorted(ranked, key=_highest_first)


def _highest_first(scored: ScoredTool) -> tuple[float, str]:
    return -scored.score, scored.tool


# --- arguments ---


class FilledArguments(NamedTuple):
    """The arguments of a call, and the source of each."""

    args: dict[str, Any]
    sources: dict[str, str]


def fill(graph: ToolGraph, state: RunState, spec: ToolSpec, policy: PaperPolicy) -> FilledArguments | str:
    """Fill arguments in the paper's order of trust: dataflow, environment, heuristic.

    Returns:
        The arguments, or the name of a required parameter that could not be filled.
    """
    filled = FilledArguments({}, {})
    context = _environment_of(state, spec, policy)
    for parameter, schema in spec.properties.items():
        value, source = _from_dataflow(graph, state, spec.name, parameter, schema)
        # The goal is the least trusted source, so it fills required parameters alone.
        if value is ABSENT and parameter in context:
            value, source = context[parameter], "env"
        elif value is ABSENT and parameter in spec.required:
            value, source = _from_goal(parameter, schema, state), "goal"
            if value is ABSENT:
                return parameter
        if source:
            filled.args[parameter], filled.sources[parameter] = value, source
    return filled


def _environment_of(state: RunState, spec: ToolSpec, policy: PaperPolicy) -> Mapping[str, Any]:
    if policy.environment is not None:
        with errors:  # the host's code: learning must go on without it
            return dict(policy.environment(spec.name, state.steps))
    return {}


def _from_dataflow(
    graph: ToolGraph, state: RunState, tool: str, parameter: str, schema: Mapping[str, Any]
) -> tuple[Any, str]:
    """Return the value from the source that was right most often, and that source; ABSENT and "" without one."""
    row = graph.sources.row(slot_key(tool, parameter))
    flows = []
    for descriptor, counts in row.items():
        # Inputs, outputs and lists of earlier calls: the paper has no constants, and no values of the user's words.
        if descriptor.startswith(("i|", "o|", "l|")):
            flows.append((descriptor, counts[HIT]))
    for descriptor, _ in sorted(flows, key=itemgetter(1), reverse=True):
        value = fit(evaluate(descriptor, state, (tool, parameter)), schema)
        if value is not ABSENT:
            return value, descriptor
    return ABSENT, ""


def _from_goal(parameter: str, schema: Mapping[str, Any], state: RunState) -> Any:
    """Return an allowed value that the goal mentions, or the word after the parameter's name in it."""
    for allowed in schema.get("enum", ()):
        if isinstance(allowed, str) and state.user.find(allowed):
            return allowed
    words = parameter.lower().replace("-", "_").replace("_", " ").split()
    if not words:
        return ABSENT
    span = state.user.find(" ".join(words))
    if span is None:
        return ABSENT
    _start, end = span
    return _word_at(end + 1, schema, state)


def _word_at(place: int, schema: Mapping[str, Any], state: RunState) -> Any:
    """Return the value of the word at a place of the goal, or of the word after it if it is "is", ":" or "="."""
    last = len(state.user.words) - 1
    if place > last:
        return ABSENT
    if place < last and state.user.words[place] in ("is", ":", "="):
        place += 1
    return fit(state.user.span(place, place), schema)


__all__ = ["Environment", "PaperPolicy", "decide", "fill", "pace", "scores", "weights"]
