"""Answers of a predictor: a proposal, or a refusal with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from langgraph_toolmem.runs.values import canon_args

MAX_SHOWN: Final = 5
"""Options in a stream event."""
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


@dataclass(frozen=True)
class Option:
    """A candidate that was weighed: what the model may do next, how likely that is, and why it is not done for it.

    Attributes:
        tool: its name; `WORDS` for an answer in words.
        calls: the arguments of each call.
        probability: that the model does exactly this. Paper policy: the score CIPS.
        refused: why it is not proposed; "" if it may be.
        changes: a call of it may change something.
        familiar: the request has a text and does not turn this call round (`Novelty.familiar`).
        stale: what a call of it returns may be out of date by the time that the model asks for it: it was made before
            in this episode, or something was changed right before.
        records: keys of the records that are to be updated once the truth is known.
        rule: the kind of prediction as a person reads it.
        columns: what the estimator knows of it, as `estimator.pack` writes it.
        unlike: see `novelty.Unlike`; None where there is nothing to be like.
    """

    tool: str
    calls: tuple[Mapping[str, Any], ...]
    probability: float
    refused: str = ""
    changes: bool = False
    familiar: bool = True
    stale: bool = False
    records: tuple[str, ...] = ()
    rule: str = ""
    columns: str = ""
    unlike: tuple[float, ...] | None = None

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments of the first call."""
        return self.calls[0] if self.calls else {}


def calls_text(calls: Iterable[Mapping[str, Any]]) -> str:
    """The arguments of one call, or of several of one tool in any order, as one text."""
    return "\x1e".join(sorted(map(canon_args, calls)))


@dataclass(frozen=True)
class Decision:
    """One decision of the predictor.

    Attributes:
        proposal: the call, if one is proposed at all.
        reason: why it is made, held back, or why there is none.
        options: the candidates weighed, likeliest first.
        confidence: the probability, by the record, that the first of them is what the model does.
    """

    proposal: Proposal | None
    reason: str
    options: tuple[Option, ...] = ()
    confidence: float = 0.0

    @property
    def predicted(self) -> tuple[Option, ...]:
        """The options with a probability: none under the paper's policy, whose scores are no probabilities."""
        return tuple(option for option in self.options if option.columns)

    @property
    def acts(self) -> bool:
        """Return True if the call is to be made without asking the model."""
        return self.proposal is not None and self.proposal.act

    @property
    def would_act(self) -> bool:
        """Return True if it would be made if it were not audited or in shadow mode."""
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
                    "score": round(float(o.probability), 4),
                    "refused": o.refused,
                }
                for o in self.options[:MAX_SHOWN]
            ],
        }
