"""The decision about one model turn: the situation, the weighed candidates, the proposed call, and the reason.

In this order: the evidence (`Situation`) and the shape of a rule that looks at it (`Veto`); its answer (`Refusal`); a
weighed candidate (`Option`), the call (`Proposal`) and the whole `Decision`; the forecast for prefetch and look-ups
before the model; the host's traces and logs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from langchain_core.tools import BaseTool

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph.state import ToolRecords, tool_in_words, tool_of
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.values import canon_args
from langgraph_toolmem.turn.host import Attributes, annotate
from langgraph_toolmem.turn.step import Call, Forecast

if TYPE_CHECKING:
    from langgraph_toolmem.inertia.policy import InertiaPolicy

_decisions = logging.getLogger("langgraph_toolmem.decisions")
_logger = logging.getLogger("langgraph_toolmem.inertia.decision")
# Dashboards filter traces by these codes (docs/observing.md), so a code keeps its name when its text changes.
Code: TypeAlias = Literal[
    "record_is_sure",
    "nothing_seen",
    "low_confidence",
    "unproven",
    "unfamiliar",
    # Apart from "unfamiliar": no probability makes a look-up before the model that the user's words speak against.
    "denied",
    "cases",
    "source_withdrawn",
    "answer_in_words",
    "no_value",
    "invalid_arguments",
    "repeat",
    "unknown_tool",
    "excluded",
    "destructive",
    "steers_the_run",
    "not_named",
    "stopped",
    "budget",
    "shadow",
    "audit",
    "held_out",
    "pace",
    "tool_choice",
    "picture",
    "provider",
    "switched_off",
    "context",
    "not_the_models_turn",
    "other",
]
REASONS: Final = frozenset(get_args(Code))
"""All values of ``toolmem.reason``; "record_is_sure" is that of a call that is made."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a call is not made.

    Attributes:
        code: the kind of reason; it never contains text of a user.
        text: the reason as a text, which may quote the user or an argument.
    """

    code: Code
    text: str

    @property
    def is_check(self) -> bool:
        """True if the call would be made, and the model's answer checks it."""
        return self.code in ("shadow", "audit")

    def __str__(self) -> str:
        """Return the reason as a text."""
        return self.text


@dataclass(frozen=True)
class Proposal:
    """The predicted call.

    Attributes:
        args: valid under the tool's schema.
        confidence: for the calibrated policy, the probability, by the record, that the model would make exactly this
            call; for the paper policy, the score CIPS.
        evidence: the evidence as a text.
        act: True if the policy makes the call without asking the model. False without room in the budget of misses, in
            shadow mode, and for the share of proposals that is audited.
        hold: the reason if `act` is False, otherwise None.
        audit: True if the policy would act, and the model is asked as a check.
        sources: the source of each argument's value.
        beside: arguments of further calls of the tool, made in the same turn.
    """

    tool: str
    args: Mapping[str, Any]
    confidence: float
    evidence: str
    act: bool = True
    hold: Refusal | None = None
    audit: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[Mapping[str, Any], ...] = ()

    @property
    def calls(self) -> tuple[Mapping[str, Any], ...]:
        """The arguments of every call."""
        return (self.args, *self.beside)

    def to_event(self) -> dict[str, Any]:
        """Return plain values for a stream event."""
        return {
            "tool": self.tool,
            "args": dict(self.args),
            "beside": [dict(args) for args in self.beside],
            "confidence": round(float(self.confidence), 4),
            "evidence": self.evidence,
            "audit": self.audit,
            "sources": dict(self.sources),
        }


@dataclass(frozen=True)
class Option:
    """A candidate for the model's next turn, with its probability and the reason why it is not proposed.

    Attributes:
        tool: its name; `WORDS` for an answer in words.
        calls: the arguments of each call.
        probability: that the model does exactly this; for the paper policy, the score CIPS.
        refused: the reason why it is not proposed, or None.
        changes: a call of it may change something.
        stale: the result of a call may be out of date when the model asks for it (`policy.may_be_stale`).
        following: the next step of a past request that agrees with it (`Neighbour.tool`).
        evidence: for it, in words.
        records: keys of the records to be updated once the model's turn is known.
        columns: the estimator's columns; none under the paper's policy.
        new_words: share of the request's words that are new (`novelty`); None without a request to compare with.
        sources: the source of each argument's value, as `graph.sources` names it.
    """

    tool: str
    calls: tuple[Mapping[str, Any], ...]
    probability: float
    refused: Refusal | None = None
    changes: bool = False
    stale: bool = False
    following: str | None = None
    evidence: str = ""
    records: tuple[str, ...] = ()
    columns: Sequence[float] = ()
    new_words: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments of the first call."""
        return self.calls[0] if self.calls else {}

    def to_event(self) -> dict[str, Any]:
        """Return plain values for a stream event."""
        return {
            "tool": tool_in_words(self.tool),
            "args": dict(self.args),
            "score": round(float(self.probability), 4),
            "refused": self.refused.text if self.refused is not None else "",
        }


@dataclass(frozen=True)
class Decision:
    """One decision of the predictor.

    Attributes:
        proposal: the proposed call, or None.
        refusal: the reason why a call is not made; None if the proposal is made.
        options: the weighed candidates, most likely first.
        confidence: the probability, by the record, that the model's turn is the first of them.
    """

    proposal: Proposal | None
    refusal: Refusal | None
    options: tuple[Option, ...] = ()
    confidence: float = 0.0

    @property
    def reason(self) -> str:
        """The reason as a text: the refusal, or the evidence for the call."""
        if self.refusal is not None:
            return self.refusal.text
        if self.proposal is not None:
            return self.proposal.evidence
        return ""

    @property
    def code(self) -> Code:
        """The reason as one of `REASONS`."""
        if self.acts:
            return "record_is_sure"
        if self.refusal is not None:
            return self.refusal.code
        return "other"

    @property
    def outcome(self) -> Literal["shortcut", "ask_model"]:
        """The outcome, as events and traces name it."""
        return "shortcut" if self.acts else "ask_model"

    @property
    def predicted(self) -> tuple[Option, ...]:
        """The options with a probability: empty under the paper's policy, whose scores are not probabilities."""
        return tuple(option for option in self.options if option.columns)

    @property
    def acts(self) -> bool:
        """Return True if the call should be made without asking the model."""
        return self.proposal is not None and self.proposal.act

    @property
    def would_act(self) -> bool:
        """Return True if the call would be made without audit and shadow mode."""
        return self.proposal is not None and (self.proposal.act or self.proposal.audit)

    def held(self, refusal: Refusal) -> Decision:
        """Return the same decision, checked against the model and not made."""
        if self.proposal is None or not self.acts:
            return self
        # It would have been made, so the model's answer checks it as an audit does.
        proposal = replace(self.proposal, act=False, hold=refusal, audit=True)
        return replace(self, proposal=proposal, refusal=refusal)

    def to_event(self) -> dict[str, Any]:
        """Return plain values for a stream event."""
        most_shown = 5
        return {
            "decision": self.outcome,
            "reason": self.reason,
            "proposal": None if self.proposal is None else self.proposal.to_event(),
            "candidates": [option.to_event() for option in self.options[:most_shown]],
        }


def of_tools(decision: Decision, names: ToolRecords) -> Decision:
    """Return a decision on the tools of an agent, given one on their records (`graph.state.ToolRecords`)."""
    # Almost all memories have one record for each name: their model calls need no copy.
    if not names.apart:
        return decision

    def renamed(refusal: Refusal | None) -> Refusal | None:
        if refusal is None:
            return None
        return replace(refusal, text=names.in_words(refusal.text))

    proposal = decision.proposal
    if proposal is not None:
        proposal = replace(
            proposal,
            tool=tool_of(proposal.tool),
            evidence=names.in_words(proposal.evidence),
            hold=renamed(proposal.hold),
            sources={parameter: names.in_words(source) for parameter, source in proposal.sources.items()},
        )
    options = []
    for option in decision.options:
        options.append(replace(option, tool=tool_of(option.tool), refused=renamed(option.refused)))
    return replace(decision, proposal=proposal, refusal=renamed(decision.refusal), options=tuple(options))


def calls_text(calls: Iterable[Mapping[str, Any]]) -> str:
    """Return the arguments of one call, or of several of one tool in any order, as one text."""
    texts = [canon_args(args) for args in calls]
    return "\x1e".join(sorted(texts))


def call_digests(tool: str, calls: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the identity of each call of a tool, sorted: equal for the same calls in any order."""
    return sorted(_call_digest(tool, args) for args in calls)


def digests_of_turn(turn: Turn) -> list[str]:
    """Return the identity of each call of a turn, sorted; empty for an answer in words."""
    return sorted(_call_digest(step.tool, step.args) for step in turn.steps)


def _call_digest(tool: str, args: Mapping[str, Any]) -> str:
    return digest("call", tool, canon_args(args))


# --- the forecast of the model's answer, for prefetch and look-ups before the model ---


@dataclass(frozen=True, slots=True)
class InertiaForecast(Forecast):
    """The decision about a model turn.

    Attributes:
        decision: the decision, with the predicted turns.
        policy: the policy that decided.
        offered: names of the tools that were offered.
        lookups: tools that may be looked up before the model is asked, by name.
    """

    decision: Decision
    policy: InertiaPolicy
    offered: frozenset[str]
    lookups: Mapping[str, BaseTool] = field(default_factory=dict)


def forecast_of(call: Call) -> InertiaForecast | None:
    """Return the shortcut's forecast of a model call, or None."""
    forecast = call.forecast
    return forecast if isinstance(forecast, InertiaForecast) else None


# --- the host's traces and logs ---


def attributes(role: str, decision: Decision) -> Attributes:
    """Return a decision as flat attributes without a word of a user (docs/observing.md lists them)."""
    flat: Attributes = {
        "toolmem.node": role,
        "toolmem.decision": decision.outcome,
        "toolmem.reason": decision.code,
        "toolmem.candidates": len(decision.options),
    }
    if decision.proposal is not None:
        flat["toolmem.tool"] = decision.proposal.tool
        flat["toolmem.confidence"] = round(float(decision.proposal.confidence), 4)
        flat["toolmem.audit"] = decision.proposal.audit
        if decision.acts:
            flat["gen_ai.tool.name"] = decision.proposal.tool
    return flat


def note_decision(role: str, decision: Decision) -> None:
    """Write a decision to the span, the LangSmith run, and the logger ``langgraph_toolmem.decisions`` at DEBUG.

    Never raises.
    """
    # The reason may quote the user, so only the developer's log gets it. Traces get the code.
    try:
        flat = attributes(role, decision)
        if _decisions.isEnabledFor(logging.DEBUG):
            _decisions.debug("%s: %s: %s", role, flat["toolmem.decision"], decision.reason, extra=flat)
    except Exception:  # a decision is made even if it cannot be reported
        _logger.debug("a decision was not reported", exc_info=True)
    else:
        annotate(flat)
