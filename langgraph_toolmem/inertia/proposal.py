"""What a predictor answers: a proposal, or a refusal with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

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
    """

    tool: str
    args: Mapping[str, Any]
    confidence: float
    evidence: str
    act: bool = True
    hold: str = ""
    audit: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)


class Option(NamedTuple):
    """A candidate that was weighed: its score, and why it was refused ("" if it was not)."""

    tool: str
    args: Mapping[str, Any]
    score: float
    refused: str = ""


@dataclass(frozen=True)
class Judged:
    """A candidate with the rules whose records are to be updated once the truth is known."""

    tool: str
    args_text: str
    rules: tuple[str, ...]
    rule: str
    """The rule as a person reads it."""
    confidence: float = 0.0


@dataclass(frozen=True)
class Decision:
    """One decision of the predictor.

    Attributes:
        proposal: the call, if one is proposed at all.
        reason: why it is made, held back, or why there is none.
        options: the candidates weighed, best first.
        judged: what to credit once it is known what the model did.
    """

    proposal: Proposal | None
    reason: str
    options: tuple[Option, ...] = ()
    judged: tuple[Judged, ...] = ()

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
