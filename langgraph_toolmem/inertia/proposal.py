"""What a predictor answers: a proposal, or a refusal with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from langgraph_toolmem.runs.values import canon_args

RULE_PREFIX: Final = "R"
"""Before a rule as a person reads it, in the table of the rules' records."""


@dataclass(frozen=True)
class Proposal:
    """The call that is expected next.

    Attributes:
        tool: its name.
        args: its arguments, valid under the tool's schema.
        confidence: calibrated policy: the probability, judged by the record, that the model would make exactly
            this call. Paper policy: the score CIPS.
        evidence: why, in words.
        act: whether the policy makes the call without asking the model. False while the budget of misses is
            used up, in shadow mode, and for the share of proposals that is audited.
        hold: why not, if `act` is False.
        audit: the model is asked although the policy would act, to keep the record honest.
        sources: per argument, where its value comes from.
        beside: arguments of further calls of the tool, made in the same turn.
    """

    tool: str
    args: Mapping[str, Any]
    confidence: float
    evidence: str
    act: bool = True
    hold: str = ""
    audit: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[Mapping[str, Any], ...] = ()

    @property
    def calls(self) -> tuple[Mapping[str, Any], ...]:
        """The arguments of every call."""
        return (self.args, *self.beside)


class Option(NamedTuple):
    """A candidate that was weighed: its score, and why it was refused ("" if it was not)."""

    tool: str
    args: Mapping[str, Any]
    score: float
    refused: str = ""


class Foreseen(NamedTuple):
    """What the model may do next, and how likely that is by the record; whether it may be done is another question.

    Attributes:
        tool: its name; `WORDS` for an answer in words.
        calls: the arguments of each call.
        probability: that the model does exactly this.
        changes: whether a call of it may change something.
        familiar: the request has a text and does not turn this call round (`Novelty.familiar`).
        stale: what a call of it returns may be out of date by the time that the model asks for it: it was made before
            in this episode, or something was changed right before.
    """

    tool: str
    calls: tuple[Mapping[str, Any], ...]
    probability: float
    changes: bool
    familiar: bool = True
    stale: bool = False


@dataclass(frozen=True)
class Judged:
    """A candidate with the rules whose records are to be updated once the truth is known.

    Attributes:
        tool: its name; `WORDS` for an answer in words.
        args_text: the arguments, as `calls_text` writes them.
        features: what else is known of it, as `confidence.pack` writes it.
        changes: 1 if the call may change something.
        unlike: see `novelty.Unlike`; None where there is nothing to be like.
    """

    tool: str
    args_text: str
    rules: tuple[str, ...]
    rule: str
    """The rule as a person reads it."""
    confidence: float = 0.0
    features: str = ""
    changes: int = 0
    unlike: tuple[float, ...] | None = None


def calls_text(calls: Iterable[Mapping[str, Any]]) -> str:
    """The arguments of one call, or of several of one tool in any order, as one text."""
    return "\x1e".join(sorted(map(canon_args, calls)))


@dataclass(frozen=True)
class Decision:
    """One decision of the predictor.

    Attributes:
        proposal: the call, if one is proposed at all.
        reason: why it is made, held back, or why there is none.
        options: the candidates weighed, best first.
        judged: what to credit once it is known what the model did.
        foreseen: all candidates with their probabilities, likeliest first, whatever speaks against making them; empty
            under the paper's policy, whose scores are no probabilities.
    """

    proposal: Proposal | None
    reason: str
    options: tuple[Option, ...] = ()
    judged: tuple[Judged, ...] = ()
    foreseen: tuple[Foreseen, ...] = ()

    @property
    def acts(self) -> bool:
        """Whether the call is to be made without asking the model."""
        return self.proposal is not None and self.proposal.act

    @property
    def would_act(self) -> bool:
        """Whether it would be made if it were not audited or in shadow mode."""
        return self.proposal is not None and (self.proposal.act or self.proposal.audit)

    def held(self, why: str) -> Decision:
        """The same decision, not acted on but checked against the model."""
        if self.proposal is None or not self.acts:
            return self
        proposal = replace(self.proposal, act=False, hold=why, audit=True)
        return replace(self, proposal=proposal, reason=why)

    def to_event(self) -> dict[str, Any]:
        """Plain values for a stream event."""
        proposal = self.proposal
        return {
            "decision": "shortcut" if self.acts else "ask_model",
            "reason": self.reason,
            "proposal": None
            if proposal is None
            else {
                "tool": proposal.tool,
                "args": dict(proposal.args),
                "beside": [dict(args) for args in proposal.beside],
                "confidence": round(float(proposal.confidence), 4),
                "evidence": proposal.evidence,
                "audit": proposal.audit,
                "sources": dict(proposal.sources),
            },
            "candidates": [
                {
                    "tool": o.tool,
                    "args": dict(o.args),
                    "score": round(float(o.score), 4),
                    "refused": o.refused,
                }
                for o in self.options
            ],
        }
