"""Decisions of the shortcut in the host's traces and logs, as flat attributes without a word of a user.

A reason's text may quote the user or an argument, so its code is given (`reasons.REASONS`).
"""

from __future__ import annotations

import logging

from langgraph_toolmem.inertia.proposal import Decision
from langgraph_toolmem.inertia.reasons import Code
from langgraph_toolmem.turn.host import Attributes, annotate

_decisions = logging.getLogger("langgraph_toolmem.decisions")
_logger = logging.getLogger("langgraph_toolmem.inertia.traces")


def reason_code(decision: Decision) -> Code:
    """Return the reason of a decision as one of `REASONS`."""
    return "record_is_sure" if decision.acts else getattr(decision.reason, "code", "other")


def attributes(role: str, decision: Decision) -> Attributes:
    """Return what may be told of a decision anywhere: the table is in docs/observing.md.

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
