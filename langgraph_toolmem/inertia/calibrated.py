"""The default policy: weigh the candidates by their record, and propose the most likely call.

One model turn, in this order: `candidates` lists the calls that may come, `estimator` gives each its probability, and
the likeliest call is proposed unless a veto refuses it. The budget of misses (`budget`) comes last.

To add a rule: write a class with `refuse` (`situation.Veto`) and name it in one of the two tuples of `Calibrated`. A
rule that learns is a `Table`, in a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from langgraph_toolmem.core.core import Core
from langgraph_toolmem.graph.sources import describe
from langgraph_toolmem.graph.state import WORDS
from langgraph_toolmem.inertia.candidates import CallContexts, Candidate, candidates
from langgraph_toolmem.inertia.cases import Cases, Media
from langgraph_toolmem.inertia.corrections import Corrections
from langgraph_toolmem.inertia.decision import Decision, Option, Proposal, Refusal
from langgraph_toolmem.inertia.estimator import Estimator, columns_of, record_keys
from langgraph_toolmem.inertia.guards import Guards, may_be_stale, may_write
from langgraph_toolmem.inertia.novelty import DecidingWords, Denial, Familiar
from langgraph_toolmem.inertia.situation import Situation, Veto


class Calibrated:
    """The rule of the default policy.

    Attributes:
        vetoes: asked about every candidate, in this order. The first refusal is the one that traces name, so those
            that no record changes come first.
        vetoes_of_the_best: asked about the likeliest candidate alone: they compare outputs and sources, which are read
            for each comparison.
    """

    def __init__(self, core: Core) -> None:
        cases = core.register(Cases)
        self._contexts, self._estimator = core.register(CallContexts), core.register(Estimator)
        self._familiar = core.register(Familiar)
        # On recordings, where a wrong call does no harm, the vetoes on wording, outputs and short records cost up to 7
        # points of the right calls. On 100 desks they reduce hundreds of unasked changes to 0 (docs/figures.md).
        # `Media` before `Familiar`, which does not see pictures: the words of such a request may all be known.
        # `Denial` comes before the bar of confidence: look-ups before the model are below it, and behind it "don't" did
        # not stop one with a confidence of .6. `DecidingWords` looks each new word up in the past requests, so it
        # comes after the bar.
        self.vetoes: tuple[Veto, ...] = (
            NoCall(),
            Guards(),
            Media(cases),
            Denial(),
            self._familiar,
            Proven(),
            Bar(),
            DecidingWords(),
        )
        self.vetoes_of_the_best: tuple[Veto, ...] = (core.register(Corrections), cases)

    def decide(self, situation: Situation) -> Decision:
        """Weigh the likeliest calls by their record, and propose the first unless something refuses it."""
        listed = candidates(situation, self._contexts)
        # The answer in words is always a candidate: alone and without a share it says that nothing was seen.
        if not any(candidate.tool != WORDS or candidate.p_tool for candidate in listed):
            return Decision(None, Refusal("nothing_seen", "nothing like this has been seen yet"))
        options = [_asked(option, self.vetoes, situation) for option in self._weigh(listed, situation)]
        # If the likeliest call is refused, the second is not made: the model would more likely do the first.
        options[0] = best = _asked(options[0], self.vetoes_of_the_best, situation)
        if best.refused is not None:
            return Decision(None, best.refused, tuple(options), best.probability)
        hold = situation.budget.refuse(best, situation)
        proposal = Proposal(
            tool=best.tool,
            args=best.calls[0],
            beside=best.calls[1:],
            confidence=best.probability,
            evidence=best.evidence,
            act=hold is None,
            hold=hold,
            audit=hold is not None and hold.is_check,
            sources={name: describe(source) for name, source in best.sources.items()},
        )
        return Decision(proposal, hold, tuple(options), best.probability)

    def _weigh(self, listed: Sequence[Candidate], situation: Situation) -> list[Option]:
        """Return the candidates with their probabilities, likeliest first."""
        records, new_words, familiar = [], [], []
        for candidate in listed:
            new = situation.novelty.new_words(candidate)
            new_words.append(new)
            familiar.append(self._familiar.share(candidate.tool, new))
            records.append(record_keys(candidate, situation.state))
        columns = columns_of(listed, records, familiar, situation.neighbours, situation.evidence.rules)
        probabilities = self._estimator.probabilities(columns)
        specs, options = situation.specs, []
        # The columns are written with the open turn, for each candidate: rounded, they are short.
        for position, row in enumerate(columns.round(3).tolist()):
            candidate, probability = listed[position], float(probabilities[position])
            option = Option(
                candidate.tool,
                candidate.calls,
                probability,
                changes=candidate.tool in specs and may_write(candidate.tool, specs),
                stale=may_be_stale(candidate.tool, candidate.calls, specs, situation.state),
                following=candidate.following,
                evidence=_evidence(candidate, probability),
                records=records[position],
                columns=row,
                new_words=new_words[position],
                sources=candidate.sources,
            )
            options.append(option)
        return sorted(options, key=_least_likely)


def _least_likely(option: Option) -> float:
    return -option.probability


def _asked(option: Option, vetoes: Sequence[Veto], situation: Situation) -> Option:
    """Return an option with the first refusal, if there is one."""
    if option.refused is None:
        for veto in vetoes:
            refused = veto.refuse(option, situation)
            if refused is not None:
                return replace(option, refused=refused)
    return option


def _evidence(candidate: Candidate, probability: float) -> str:
    """Return the evidence for a call as a text."""
    parts = [f"In runs like this one {candidate.tool} came next {candidate.p_tool:.0%} of the time."]
    for name, filled in candidate.given.items():
        parts.append(f"{name}: {describe(filled.source)} (right {filled.probability:.0%} of the time).")
    parts.append(f"Confidence {probability:.2f}.")
    return " ".join(parts)


# --- vetoes without a record of their own ---


class NoCall:
    """Leaves an answer in words to the model: the shortcut makes calls only."""

    def refuse(self, best: Option, situation: Situation) -> Refusal | None:
        if best.tool != WORDS:
            return None
        return Refusal("answer_in_words", "the model is likely to answer in words")


class Proven:
    """Leaves a change to the model whose tool was hardly ever predicted right."""

    def refuse(self, best: Option, situation: Situation) -> Refusal | None:
        # The estimator's columns have no tool, so its estimate of a new tool rests on the record of others.
        proven = 2
        hits = situation.graph.by_tool.get(best.tool, {}).get("hits", 0)
        if not best.changes or hits >= proven:
            return None
        return Refusal("unproven", f"too few predictions of {best.tool} were right so far")


class Bar:
    """Leaves a call to the model that is below the bound's precision."""

    def refuse(self, best: Option, situation: Situation) -> Refusal | None:
        least = situation.policy.bound_of(best.changes).min_precision
        if best.probability >= least:
            return None
        return Refusal("low_confidence", f"confidence {best.probability:.2f} is below {least:.2f}")
