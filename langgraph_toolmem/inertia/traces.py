"""Decisions of the shortcut in the host's traces and logs, as flat attributes without a word of a user.

A reason's text may quote the user or an argument, so what is told is one of a fixed list (`REASONS`).
"""

from __future__ import annotations

import logging
import re
from typing import Final

from langgraph_toolmem.inertia.proposal import Decision
from langgraph_toolmem.turn.telemetry import Attributes, annotate

RECORD_IS_SURE: Final = "record_is_sure"
"""The reason of a call that is made."""
OTHER: Final = "other"
"""A reason that is not in the list."""

_PATTERNS: Final = tuple(
    (code, re.compile(pattern, re.DOTALL))
    for code, pattern in (
        ("invalid_arguments", r"arguments of .* break its schema: "),
        ("budget", r"(the|some of the) budget of .*wrong call"),
        ("shadow", r"shadow mode: "),
        ("audit", r"audit: "),
        ("nothing_seen", r"nothing like this has been seen yet|no tool has been seen after "),
        ("no_value", r"nothing in this run fills "),
        ("low_confidence", r"confidence [\d.]+ is below |score [-\d.]+ of .* is not above "),
        (
            "unfamiliar",
            r"the (request is|words before the request are) worded unlike those |no request before that went on with ",
        ),
        ("answer_in_words", r"the model is likely to answer in words"),
        ("switched_off", r"switched off for this run"),
        ("tool_choice", r"the request settles which tools may be called: "),
        ("provider", r".*: its API refuses turns that the model did not make "),
        ("pace", r"\d+ shortcut\(s\) in a row: |\d+ of \d+ calls of this run were shortcuts: "),
        ("not_the_models_turn", r"tool calls are pending: |the model has answered: "),
        ("unknown_tool", r".* is not among the tools$"),
        ("excluded", r".* is excluded by the policy$"),
        ("needs_approval", r".* needs a human's approval$"),
        ("destructive", r".* is destructive \(.*\) and not named in "),
        ("steers_the_run", r".* ends the run or steers it \(.*\)$"),
        ("not_named", r".* may change something \(.*\) and is not named in may_write$"),
        (
            "repeat",
            r".* (was (already called with the same arguments|called like this before) in this run"
            r"|would be called twice )",
        ),
    )
)
"""How the reasons of decisions are worded. Matched in this order, from the start of the text."""

REASONS: Final = frozenset({RECORD_IS_SURE, OTHER, *(code for code, _ in _PATTERNS)})
"""All values of ``toolmem.reason``."""

_decisions = logging.getLogger("langgraph_toolmem.decisions")
_logger = logging.getLogger("langgraph_toolmem.inertia.traces")


def reason_code(decision: Decision) -> str:
    """The reason of a decision as one of `REASONS`: its text may quote the user or an argument."""
    if decision.acts:
        return RECORD_IS_SURE
    return next((code for code, pattern in _PATTERNS if pattern.match(decision.reason)), OTHER)


def attributes(role: str, decision: Decision) -> Attributes:
    """What may be told of a decision anywhere: the table is in `turn.telemetry`.

    Args:
        role: of the node or middleware that decided.
        decision: what the memory decided.
    """
    told: Attributes = {
        "toolmem.node": role,
        "toolmem.decision": "shortcut" if decision.acts else "ask_model",
        "toolmem.reason": reason_code(decision),
        "toolmem.candidates": len(decision.options),
    }
    if decision.proposal is not None:
        told["toolmem.tool"] = decision.proposal.tool
        told["toolmem.confidence"] = round(float(decision.proposal.confidence), 4)
        told["toolmem.audit"] = decision.proposal.audit
        if decision.acts:
            told["gen_ai.tool.name"] = decision.proposal.tool
    return told


def note_decision(role: str, decision: Decision) -> None:
    """Tells of a decision wherever somebody listens: span, LangSmith run, and one log record at DEBUG.

    The record goes to ``langgraph_toolmem.decisions``, with the attributes as ``extra``. Never raises.
    """
    try:
        told = attributes(role, decision)
        if _decisions.isEnabledFor(logging.DEBUG):
            _decisions.debug("%s: %s: %s", role, told["toolmem.decision"], decision.reason, extra=told)
    except Exception:  # telling of a decision must not undo it
        _logger.debug("a decision was not told of", exc_info=True)
    else:
        annotate(told)
