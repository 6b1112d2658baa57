"""The default policy: act on the track record of whole predicted calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from langgraph_toolmem.core.contributions import TextTable
from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.describe import describe
from langgraph_toolmem.graph.evidence import HIT, MISS, EvidenceGraph
from langgraph_toolmem.graph.state import CUT, SEPARATOR, START, USER, RunState
from langgraph_toolmem.graph.tables import CountTable
from langgraph_toolmem.inertia.candidates import Candidate, candidates
from langgraph_toolmem.inertia.evidence import RuleRecord
from langgraph_toolmem.inertia.guards import held_back, may_write, pace, refusal
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.proposal import Decision, Judged, Option, Proposal
from langgraph_toolmem.inertia.record import probability, rules_of
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, canon_args


def decide(
    graph: EvidenceGraph,
    state: RunState,
    neighbours: Sequence[Neighbour],
    *,
    rules: CountTable,
    specs: Mapping[str, ToolSpec],
    policy: InertiaPolicy,
    user: str | None,
    chosen_by: Sequence[str],
    draw: float,
) -> Decision:
    """Weighs the likeliest calls by their record.

    Args:
        graph: the evidence.
        state: the run before the model's turn.
        neighbours: the nearest past requests at this point.
        rules: the record of rules.
        specs: the tools that may be called.
        policy: thresholds and guards.
        user: digest of the user, if known; decides which constants may be used.
        chosen_by: who chose the run's calls so far.
        draw: a number from 0 to 1; below `audit_rate` the proposal is audited.
    """
    found = candidates(
        graph,
        state,
        neighbours,
        specs=specs,
        user=user,
    )
    if not found:
        return Decision(None, "nothing like this has been seen yet")
    weighed: list[tuple[float, Candidate, tuple[str, ...]]] = []
    for candidate in found:
        named = rules_of(candidate, state)
        weighed.append((probability(rules, candidate, named), candidate, named))
    weighed.sort(key=lambda w: -w[0])
    judged = tuple(Judged(c.tool, canon_args(c.args), named, _rule(state, c), p) for p, c, named in weighed)
    options = tuple(
        Option(
            c.tool,
            c.args,
            p,
            refusal(c.tool, c.args, specs=specs, policy=policy, graph=graph, state=state) or doubt(p, c, specs, policy),
        )
        for p, c, _ in weighed
    )
    best = options[0]
    if best.refused:
        return Decision(None, best.refused, options, judged)
    p, candidate, _ = weighed[0]
    slow = pace(policy, chosen_by)
    if slow:
        return Decision(None, slow, options, judged)
    hold, audit = held_back(graph, policy, p, draw)
    proposal = Proposal(
        tool=candidate.tool,
        args=candidate.args,
        confidence=p,
        evidence=_evidence(graph, rules, state, candidate, p, neighbours),
        act=not hold,
        hold=hold,
        audit=audit,
        sources={n: describe(f.source) for n, f in candidate.filled.items() if f.value is not ABSENT},
    )
    return Decision(proposal, hold or proposal.evidence, options, judged)


def doubt(p: float, candidate: Candidate, specs: Mapping[str, ToolSpec], policy: InertiaPolicy) -> str:
    """Why the record is not enough for a call; "" if it is."""
    if p < policy.min_precision:
        return f"confidence {p:.2f} is below {policy.min_precision:.2f}"
    if not policy.witnesses_for_writes or not may_write(candidate.tool, specs):
        return ""
    if candidate.witnesses < policy.witnesses_for_writes:
        return (
            f"{candidate.tool} may change something, and only {candidate.witnesses} of the nearest past requests back "
            f"this call ({policy.witnesses_for_writes} are asked for)"
        )
    if candidate.similarity < NEAR_ENOUGH:
        return f"{candidate.tool} may change something, and no past request is near ({candidate.similarity:.2f})"
    return ""


NEAR_ENOUGH = 0.55
"""Similarity of the nearest past request below which nothing is changed without the model."""


def _rule(state: RunState, candidate: Candidate) -> str:
    kinds = sorted({f.source.partition("|")[0] for f in candidate.filled.values() if f.value is not ABSENT})
    return SEPARATOR.join((state.symbols[-1], candidate.tool, "+".join(kinds)))


def rules_table(rules: Iterable[RuleRecord]) -> TextTable:
    """The record of kinds of predictions, for a person."""
    rows = []
    for rule in rules:
        of = rule.hits + rule.misses
        right, share = (f"{rule.hits:,} of {of:,}", f"{rule.hits / of:.0%}") if of else ("–", "–")
        rows.append((f"{symbol_in_words(rule.after)} → {rule.tool}", rule.sources_in_words, right, share))
    columns = ("after → foreseen", "arguments from", "right", "share")
    return TextTable("Kinds of predictions, acted on or not", columns, tuple(rows), most=15)


def symbol_in_words(symbol: str) -> str:
    """A run symbol as a person reads it."""
    if symbol == START:
        return "the start of a run"
    if symbol == CUT:
        return "the missing head of the history"
    if symbol == USER:
        return "a further user message"
    return f"a failed {symbol[:-1]}" if symbol.endswith("!") else symbol


def _evidence(
    graph: EvidenceGraph,
    rules: CountTable,
    state: RunState,
    candidate: Candidate,
    p: float,
    neighbours: Sequence[Neighbour],
) -> str:
    parts = []
    if candidate.window:
        row = graph.successors.row(candidate.window)
        seen = sum(sum(cell) for cell in row.values())
        times = sum(row.get(candidate.tool, [0.0]))
        tail = candidate.window.split(SEPARATOR)[1:]
        path = " → ".join(symbol_in_words(s) for s in tail if s) or "any point"
        parts.append(f"After {path}, {candidate.tool} came next {times:g} of {seen:g} times.")
    if candidate.neighbour_agrees == 2:
        parts.append(
            f"The nearest past request (similarity {candidate.similarity:.2f}) went on with {candidate.tool}, as "
            f"did {candidate.agreeing_neighbours:.0%} of the {len(neighbours)} nearest."
        )
    for name, filled in candidate.filled.items():
        if filled.value is not ABSENT:
            also = f", and {filled.agreeing} more source(s) agree" if filled.agreeing else ""
            parts.append(f"{name}: {describe(filled.source)} (right {filled.probability:.0%} of the time{also}).")
    cell = rules.row(rules_of(candidate, state)[-1]).get("")
    if cell:
        parts.append(
            f"Predictions of {candidate.tool} of this kind were exactly what the model did "
            f"{cell[HIT]:g} of {cell[HIT] + cell[MISS]:g} times; confidence {p:.2f}."
        )
    return " ".join(parts)
