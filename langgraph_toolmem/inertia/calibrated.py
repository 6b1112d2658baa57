"""The default policy: weigh the candidates by their record, and propose the most likely call.

One model turn, in this order: `candidates` lists the calls that may come, `estimator` gives each its probability, and
the most likely call is proposed unless a veto refuses it. `VETOES` are asked about every candidate, in their order;
`VETOES_OF_THE_BEST` compare outputs and sources, which costs more, and are asked about the most likely one. The budget
of misses (`budget`) comes last.

To add a rule: write a function that takes a `Weighed` candidate and the `ModelTurn`, returns a `Refusal` or None, and
name it in one of the two tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.sources import describe
from langgraph_toolmem.graph.state import WORDS, RunState
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.budget import Budget
from langgraph_toolmem.inertia.candidates import CallContexts, Candidate, candidates
from langgraph_toolmem.inertia.cases import Cases
from langgraph_toolmem.inertia.corrections import Corrections
from langgraph_toolmem.inertia.decision import Decision, Option, Proposal, Refusal
from langgraph_toolmem.inertia.estimator import Estimator, columns_of, record_keys
from langgraph_toolmem.inertia.guards import may_be_stale, may_write, refusal
from langgraph_toolmem.inertia.novelty import Novelty, NoveltyRecord
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.record import InertiaEvidence
from langgraph_toolmem.runs.tools import ToolSpec

Similarity: TypeAlias = Callable[[str, str], float]
"""(thought of the model, name of a tool) -> cosine with the tool's description."""


class Tables(NamedTuple):
    """The tables of inertia in the evidence graph."""

    evidence: InertiaEvidence
    contexts: CallContexts
    novelty: NoveltyRecord
    budget: Budget
    cases: Cases
    estimator: Estimator
    corrections: Corrections


@dataclass(frozen=True)
class ModelTurn:
    """The model turn to decide, with all evidence about it.

    Attributes:
        graph: the tool graph, locked by the caller.
        state: the run so far.
        neighbours: past requests that went the same way, nearest first.
        tables: the tables of inertia.
        specs: the tools that may be called now.
        policy: the policy of this run.
        constants: parameters whose values are declared (`ToolMemory(constants=...)`).
        today: days since 1970, by the memory's clock.
        draw: a number from 0 to 1; below the policy's `audit_rate` it means an audit.
        chosen_by: who chose the calls of the run so far, for published rules.
        similarity: of a thought and a tool, for published rules.
    """

    graph: ToolGraph
    state: RunState
    neighbours: Sequence[Neighbour]
    tables: Tables
    specs: Mapping[str, ToolSpec]
    policy: InertiaPolicy
    constants: Collection[str]
    today: int
    draw: float
    chosen_by: Sequence[str]
    similarity: Similarity

    @cached_property
    def novelty(self) -> Novelty:
        """The wording of the request, next to that of past requests."""
        return Novelty(self.state, self.neighbours, self.graph.cases)


class Weighed(NamedTuple):
    """A candidate with its estimate.

    Attributes:
        candidate: the call.
        probability: that the model makes exactly this call.
        records: keys of its records (`record_keys`).
        columns: the estimator's columns.
        new_words: share of the request's words that are new (`Novelty.new_words`).
        changes: True if the call may change something.
    """

    candidate: Candidate
    probability: float
    records: tuple[str, str]
    columns: list[float]
    new_words: float | None
    changes: bool

    @property
    def tool(self) -> str:
        """The candidate's tool."""
        return self.candidate.tool


Veto: TypeAlias = Callable[[Weighed, ModelTurn], Refusal | None]


def decide(turn: ModelTurn) -> Decision:
    """Weigh the most likely calls by their record, and propose the first unless a veto refuses it."""
    weighable = candidates(
        turn.graph, turn.tables.contexts, turn.state, turn.neighbours, specs=turn.specs, constants=turn.constants
    )
    # The answer in words is always a candidate: if it is the only one and has no share, the record is empty.
    if not any(candidate.tool != WORDS or candidate.p_tool for candidate in weighable):
        return Decision(None, Refusal("nothing_seen", "nothing like this has been seen yet"))
    weighed = _weigh(weighable, turn)
    options = tuple(_option(candidate, turn) for candidate in weighed)
    best, first = weighed[0], options[0]
    # Outputs and sources are compared only for the most likely call, because they are read for each comparison.
    if first.refused is None:
        doubt = _first_refusal(VETOES_OF_THE_BEST, best, turn)
        if doubt is not None:
            options = (replace(first, refused=doubt), *options[1:])
    # If the most likely call is refused, the second is not made: the model would more likely make the first.
    refused = options[0].refused
    if refused is not None:
        return Decision(None, refused, options, best.probability)
    hold, audit = turn.tables.budget.held_back(turn.policy, best.probability, turn.draw, changes=best.changes)
    sources = {name: describe(source) for name, source in first.sources.items()}
    proposal = Proposal(
        tool=best.tool,
        args=first.calls[0],
        beside=first.calls[1:],
        confidence=best.probability,
        evidence=_evidence(best),
        act=hold is None,
        hold=hold,
        audit=audit,
        sources=sources,
    )
    return Decision(proposal, hold, options, best.probability)


def _weigh(found: Sequence[Candidate], turn: ModelTurn) -> list[Weighed]:
    """Return the candidates with their probabilities, most likely first."""
    tables = turn.tables
    records, new_words, familiar = [], [], []
    for candidate in found:
        new = turn.novelty.new_words(candidate)
        new_words.append(new)
        familiar.append(tables.novelty.share(candidate.tool, new))
        records.append(record_keys(candidate, turn.state))
    columns = columns_of(found, records, familiar, turn.neighbours, tables.evidence.rules)
    probabilities = tables.estimator.probabilities(columns)
    weighed = []
    # The columns are written with the open turn, for each candidate: rounded, they are short.
    for position, row in enumerate(columns.round(3).tolist()):
        candidate = found[position]
        changes = candidate.tool in turn.specs and may_write(candidate.tool, turn.specs)
        probability = float(probabilities[position])
        weighed.append(Weighed(candidate, probability, records[position], row, new_words[position], changes))
    return sorted(weighed, key=_least_likely)


def _least_likely(weighed: Weighed) -> float:
    return -weighed.probability


def _option(weighed: Weighed, turn: ModelTurn) -> Option:
    candidate = weighed.candidate
    return Option(
        candidate.tool,
        candidate.calls,
        weighed.probability,
        refused=_first_refusal(VETOES, weighed, turn),
        changes=weighed.changes,
        stale=may_be_stale(candidate.tool, candidate.calls, turn.specs, turn.state),
        records=weighed.records,
        columns=weighed.columns,
        new_words=weighed.new_words,
        sources=candidate.sources,
    )


def _first_refusal(vetoes: Sequence[Veto], weighed: Weighed, turn: ModelTurn) -> Refusal | None:
    for veto in vetoes:
        refused = veto(weighed, turn)
        if refused is not None:
            return refused
    return None


# --- vetoes, in the order in which they are asked ---


def answer_in_words(best: Weighed, _: ModelTurn) -> Refusal | None:
    """Refuse an answer in words: the shortcut makes calls only."""
    if best.tool != WORDS:
        return None
    return Refusal("answer_in_words", "the model is likely to answer in words")


def guarded(best: Weighed, turn: ModelTurn) -> Refusal | None:
    """Refuse a call that the host would not allow at any probability (`guards`)."""
    calls = best.candidate.calls
    return refusal(best.tool, calls, specs=turn.specs, policy=turn.policy, graph=turn.graph, state=turn.state)


def other_media(best: Weighed, turn: ModelTurn) -> Refusal | None:
    """Refuse a call for a request with other pictures or files than those that led to it before (`cases`)."""
    # `unfamiliar` does not see it: the words of such a request may all be known.
    return turn.tables.cases.other_media(turn.state, best.tool, changes=best.changes)


def unfamiliar(best: Weighed, turn: ModelTurn) -> Refusal | None:
    """Refuse a call for a request with too many new words; before a change, any word that decides (`novelty`)."""
    refused = turn.tables.novelty.refusal(best.tool, best.new_words)
    # The conformal test accepts one new word if people write freely. Before a change that word may be "never".
    if refused is None and best.changes:
        refused = turn.novelty.strange(best.candidate)
    return refused


def unproven(best: Weighed, turn: ModelTurn) -> Refusal | None:
    """Refuse a change of a tool with too few right predictions."""
    # The estimator's columns do not contain the tool, so its estimate for a new tool comes from the record of others.
    proven = 2
    hits = turn.graph.by_tool.get(best.tool, {}).get("hits", 0)
    if not best.changes or hits >= proven:
        return None
    return Refusal("unproven", f"too few predictions of {best.tool} were right so far")


def low_confidence(best: Weighed, turn: ModelTurn) -> Refusal | None:
    """Refuse a call below the bound's precision."""
    least = turn.policy.bound_of(best.changes).min_precision
    if best.probability >= least:
        return None
    return Refusal("low_confidence", f"confidence {best.probability:.2f} is below {least:.2f}")


def asked_without(best: Weighed, turn: ModelTurn) -> Refusal | None:
    """Refuse a look-up after a word that only requests without this look-up had (`novelty`)."""
    # Before a change `unfamiliar` has compared every word already.
    if best.changes:
        return None
    return turn.novelty.against(best.candidate)


def source_withdrawn(best: Weighed, turn: ModelTurn) -> Refusal | None:
    """Refuse a value from a source that was wrong the last time (`corrections`)."""
    return turn.tables.corrections.refusal(best.tool, best.candidate.sources)


def other_cases(best: Weighed, turn: ModelTurn) -> Refusal | None:
    """Refuse a call if values in the outputs are new here, or led the model elsewhere before (`cases`)."""
    return turn.tables.cases.refusal(turn.state, best.tool, changes=best.changes, today=turn.today)


# Traces name the first refusal, so vetoes that are independent of the record come first. `asked_without` searches the
# past requests for each new word, so it comes after the confidence threshold.
VETOES: Final[tuple[Veto, ...]] = (
    answer_in_words,
    guarded,
    other_media,
    unfamiliar,
    unproven,
    low_confidence,
    asked_without,
)
VETOES_OF_THE_BEST: Final[tuple[Veto, ...]] = (source_withdrawn, other_cases)


def _evidence(best: Weighed) -> str:
    """Return the evidence for a call as a text."""
    candidate = best.candidate
    parts = [f"In runs like this one {best.tool} came next {candidate.p_tool:.0%} of the time."]
    for name, source in candidate.sources.items():
        right = candidate.filled[name].probability
        parts.append(f"{name}: {describe(source)} (right {right:.0%} of the time).")
    parts.append(f"Confidence {best.probability:.2f}.")
    return " ".join(parts)
