"""The default policy: weigh the candidates by their record, and propose the likeliest call.

One model turn, in this order: `candidates` lists what may come, `estimator` says how likely each is, and the likeliest
is proposed unless something speaks against it: `guards` (no record excuses these), an unfamiliar request (`novelty`),
values in the outputs (`cases`), or the `budget` of misses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.sources import describe
from langgraph_toolmem.graph.state import WORDS, RunState
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.budget import Budget
from langgraph_toolmem.inertia.candidates import CallContexts, Candidate, candidates
from langgraph_toolmem.inertia.cases import Cases
from langgraph_toolmem.inertia.corrections import Corrections
from langgraph_toolmem.inertia.decision import Decision, Option, Proposal, Reason
from langgraph_toolmem.inertia.estimator import Estimator, columns_of, record_keys
from langgraph_toolmem.inertia.guards import may_be_stale, may_write, refusal
from langgraph_toolmem.inertia.novelty import Novelty, NoveltyRecord
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.record import InertiaEvidence
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT

PROVEN: Final = 2
"""Right predictions of a tool that changes something before it is called: the first ones stand on others' record."""


class Tables(NamedTuple):
    """The tables of inertia in the evidence graph."""

    evidence: InertiaEvidence
    contexts: CallContexts
    novelty: NoveltyRecord
    budget: Budget
    cases: Cases
    estimator: Estimator
    corrections: Corrections


def decide(
    graph: ToolGraph,
    state: RunState,
    neighbours: Sequence[Neighbour],
    *,
    tables: Tables,
    specs: Mapping[str, ToolSpec],
    policy: InertiaPolicy,
    constants: Collection[str],
    today: int,
    draw: float,
) -> Decision:
    """Weigh the likeliest calls by their record. A `draw` (0 to 1) below `audit_rate` means an audit."""
    found = candidates(graph, tables.contexts, state, neighbours, specs=specs, constants=constants)
    if all(candidate.tool == WORDS and not candidate.p_tool for candidate in found):
        return Decision(None, Reason("nothing_seen", "nothing like this has been seen yet"))
    keys = [record_keys(c, state) for c in found]
    novelty = Novelty(state, neighbours, graph.cases)
    fresh = [novelty.new_words(c) for c in found]
    shares = [tables.novelty.share(c.tool, each) for c, each in zip(found, fresh, strict=True)]
    columns = columns_of(found, keys, shares, neighbours, tables.evidence.rules)
    likely = map(float, tables.estimator.probabilities(columns))
    weighed = sorted(zip(likely, found, keys, columns.round(3).tolist(), fresh, strict=True), key=lambda w: -w[0])

    def refused(p: float, c: Candidate, new: float | None, *, changes: bool) -> str:
        if c.tool == WORDS:
            return Reason("answer_in_words", "the model is likely to answer in words")
        if no := refusal(c.tool, c.calls, specs=specs, policy=policy, graph=graph, state=state):
            return no
        if unlike := tables.novelty.refusal(c.tool, new) or (novelty.strange(c) if changes else ""):
            return unlike
        if changes and graph.by_tool.get(c.tool, {}).get("hits", 0) < PROVEN:
            return Reason("unproven", f"too few predictions of {c.tool} were right so far")
        least = policy.bound_of(changes).min_precision
        if p < least:
            return Reason("low_confidence", f"confidence {p:.2f} is below {least:.2f}")
        return "" if changes else novelty.against(c)

    def option(p: float, c: Candidate, records: tuple[str, ...], row: list[float], new: float | None) -> Option:
        changes = c.tool in specs and may_write(c.tool, specs)
        stale = may_be_stale(c.tool, c.calls, specs, state)
        sources = {name: filled.source for name, filled in c.filled.items() if filled.value is not ABSENT}
        why = refused(p, c, new, changes=changes)
        return Option(c.tool, c.calls, p, why, changes, stale, records, row, new, sources)

    options = tuple(option(*each) for each in weighed)
    (p, best, *_), first = weighed[0], options[0]
    if first.refused:
        return Decision(None, first.refused, options, p)
    doubt = tables.corrections.refusal(first)
    doubt = doubt or tables.cases.refusal(state, best.tool, changes=first.changes, today=today)
    if doubt:
        return Decision(None, doubt, (replace(first, refused=doubt), *options[1:]), p)
    hold, audit = tables.budget.held_back(policy, p, draw, changes=first.changes)
    proposal = Proposal(
        tool=best.tool,
        args=best.calls[0],
        beside=best.calls[1:],
        confidence=p,
        evidence=_evidence(best, p),
        act=not hold,
        hold=hold,
        audit=audit,
        sources={n: describe(f.source) for n, f in best.filled.items() if f.value is not ABSENT},
    )
    return Decision(proposal, hold or proposal.evidence, options, p)


def _evidence(best: Candidate, p: float) -> str:
    parts = [f"In runs like this one {best.tool} came next {best.p_tool:.0%} of the time."]
    for name, filled in best.filled.items():
        if filled.value is not ABSENT:
            parts.append(f"{name}: {describe(filled.source)} (right {filled.probability:.0%} of the time).")
    return " ".join([*parts, f"Confidence {p:.2f}."])
