"""The default policy: act on the track record of whole predicted calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from langgraph_toolmem.base.intervals import percentage
from langgraph_toolmem.core.method import TextTable
from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.sources import describe
from langgraph_toolmem.graph.state import CUT, PARALLEL, SEPARATOR, START, USER, WORDS, RunState
from langgraph_toolmem.graph.tool_graph import CountTable, ToolGraph
from langgraph_toolmem.inertia.budget import Budget
from langgraph_toolmem.inertia.candidates import Candidate, candidates
from langgraph_toolmem.inertia.cases import ASKED, Cases
from langgraph_toolmem.inertia.contexts import CallContexts
from langgraph_toolmem.inertia.estimator import Estimator, columns_of, pack, record_keys
from langgraph_toolmem.inertia.evidence import RuleRecord
from langgraph_toolmem.inertia.guards import may_be_stale, may_write, refusal, twice
from langgraph_toolmem.inertia.novelty import Novelty, NoveltyRecord
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.proposal import Decision, Option, Proposal
from langgraph_toolmem.inertia.reasons import Reason
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT

PROVEN: Final = 2
"""Predictions of a tool that were right before a call of it is made: the first ones stand on other agents' record."""


class Tables(NamedTuple):
    """The tables of inertia in the evidence graph."""

    rules: CountTable
    contexts: CallContexts
    novelty: NoveltyRecord
    budget: Budget
    cases: Cases


def decide(
    graph: ToolGraph,
    state: RunState,
    neighbours: Sequence[Neighbour],
    *,
    tables: Tables,
    estimator: Estimator,
    specs: Mapping[str, ToolSpec],
    policy: InertiaPolicy,
    user: str | None,
    today: int,
    draw: float,
) -> Decision:
    """Weighs the likeliest calls by their record.

    Args:
        graph: the evidence.
        state: the run before the model's turn.
        neighbours: the nearest past requests at this point.
        tables: what inertia keeps in the evidence.
        estimator: says how likely each is.
        specs: the tools that may be called.
        policy: thresholds and guards.
        user: digest of the user, if known; decides which constants may be used.
        today: days since 1970.
        draw: a number from 0 to 1; below `audit_rate` the proposal is audited.
    """
    rules = tables.rules
    found = candidates(graph, tables.contexts, state, neighbours, specs=specs, user=user)
    if all(candidate.tool == WORDS and not candidate.p_tool for candidate in found):
        return Decision(None, Reason("nothing_seen", "nothing like this has been seen yet"))
    keys = [record_keys(c, state) for c in found]
    novelty = Novelty(state, neighbours, graph.cases)
    changing = {c.tool for c in found if c.tool in specs and may_write(c.tool, specs, policy)}
    unlike = [novelty.of(c, changes=c.tool in changing) for c in found]
    shares = [tables.novelty.share(c.tool, value) for c, value in zip(found, unlike, strict=True)]
    columns = columns_of(found, keys, shares, state, neighbours, records=rules, cases=tables.cases)
    likely = map(float, estimator.probabilities(columns))
    weighed = sorted(zip(likely, found, keys, pack(columns), unlike, strict=True), key=lambda w: -w[0])
    options = tuple(
        Option(
            c.tool,
            c.calls,
            p,
            _refused(p, c, specs=specs, policy=policy, graph=graph, state=state)
            or tables.novelty.refusal(c.tool, s, changes=c.tool in changing, looked=novelty.looked(c)),
            changes=c.tool in changing,
            familiar=novelty.familiar(c),
            stale=may_be_stale(c.tool, c.calls, specs=specs, policy=policy, state=state),
            records=of,
            rule=_rule(state, c),
            columns=row,
            unlike=s,
        )
        for p, c, of, row, s in weighed
    )
    p, candidate, *_ = weighed[0]
    changes = options[0].changes
    if options[0].refused:
        return Decision(None, options[0].refused, options, p)
    asked_by_chance = policy.audit_rate <= draw < policy.audit_rate + ASKED
    if doubt := tables.cases.refusal(state, candidate.tool, changes=changes, today=today, earn=asked_by_chance):
        return Decision(None, doubt, (replace(options[0], refused=doubt), *options[1:]), p)
    hold, audit = tables.budget.held_back(policy, p, draw, changes=changes)
    proposal = Proposal(
        tool=candidate.tool,
        args=candidate.calls[0],
        beside=candidate.calls[1:],
        confidence=p,
        evidence=_evidence(graph, candidate, p, neighbours),
        act=not hold,
        hold=hold,
        audit=audit,
        sources={n: describe(f.source) for n, f in candidate.filled.items() if f.value is not ABSENT},
    )
    return Decision(proposal, hold or proposal.evidence, options, p)


def _refused(
    p: float,
    candidate: Candidate,
    *,
    specs: Mapping[str, ToolSpec],
    policy: InertiaPolicy,
    graph: ToolGraph,
    state: RunState,
) -> str:
    """Why a candidate is not proposed; "" if it is."""
    if candidate.tool == WORDS:
        return Reason("answer_in_words", "the model is likely to answer in words")
    for args in candidate.calls:
        refused = refusal(candidate.tool, args, specs=specs, policy=policy, graph=graph, state=state)
        if refused:
            return refused
    if refused := twice(candidate.tool, candidate.calls, specs=specs, policy=policy):
        return refused
    if graph.by_tool.get(candidate.tool, {}).get("hits", 0) < PROVEN:
        return Reason("unproven", f"too few predictions of {candidate.tool} were right so far")
    least = policy.bound_of(may_write(candidate.tool, specs, policy)).min_precision
    return Reason("low_confidence", f"confidence {p:.2f} is below {least:.2f}") if p < least else ""


def _rule(state: RunState, candidate: Candidate) -> str:
    kinds = sorted({f.source.partition("|")[0] for f in candidate.filled.values() if f.value is not ABSENT})
    return SEPARATOR.join((state.symbols[-1], candidate.tool, "+".join(kinds)))


def rules_table(rules: Iterable[RuleRecord]) -> TextTable:
    """The record of kinds of predictions, for a person."""
    rows = []
    for rule in rules:
        of = rule.hits + rule.misses
        right, share = (f"{rule.hits:,} of {of:,}", percentage(rule.hits, of)) if of else ("–", "–")
        rows.append(
            (f"{symbol_in_words(rule.after)} → {tool_in_words(rule.tool)}", rule.sources_in_words, right, share)
        )
    columns = ("after → predicted", "arguments from", "right", "share")
    return TextTable("Kinds of predictions, acted on or not", columns, tuple(rows), most=15)


def symbol_in_words(symbol: str) -> str:
    """A run symbol as a person reads it."""
    if symbol == START:
        return "the start of a run"
    if symbol == CUT:
        return "the missing head of the history"
    if symbol == USER:
        return "a further user message"
    return f"a failed {symbol[:-1]}" if symbol.endswith("!") else tool_in_words(symbol)


def tool_in_words(name: str) -> str:
    """A predicted tool, or what stands in the place of one, as a person reads it."""
    if name.startswith(PARALLEL):
        return f"several {name.removeprefix(PARALLEL) or 'tools'} at once"
    return "an answer in words" if name == WORDS else name


def _evidence(
    graph: ToolGraph,
    candidate: Candidate,
    p: float,
    neighbours: Sequence[Neighbour],
) -> str:
    parts = []
    if candidate.window:
        row = graph.successors.row(candidate.window)
        seen = sum(sum(cell) for cell in row.values())
        times = sum(row.get(candidate.following or candidate.tool, [0.0]))
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
    parts.append(f"Confidence {p:.2f}.")
    return " ".join(parts)
