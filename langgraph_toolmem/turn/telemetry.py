"""Decisions in the host's traces and logs, as flat attributes without a word of a user.

What is told of a decision: who made it, which way it went, a reason from a fixed list, and the tool. Neither
prompts nor arguments are in it, so it may go where traces go. Words and values are in the stream event
(`Decision.to_event`), which stays with the host.

=========================  =========================================================================
``toolmem.node``           the role of the node or middleware: ``inertia``, ``recorder``
``toolmem.decision``       ``shortcut`` or ``ask_model``
``toolmem.reason``         one of `REASONS`
``toolmem.tool``           the tool proposed, whether it is called or not
``gen_ai.tool.name``       OpenTelemetry's name for a tool that is called: only where the shortcut calls it
``toolmem.confidence``     from 0 to 1; with the paper's policy the score CIPS
``toolmem.audit``          whether the model is asked only to check the proposal
``toolmem.candidates``     calls that were weighed
``toolmem.learned_turns``  recorder: turns that were new
``toolmem.recalled``       recall: past runs shown
``toolmem.hints``          planning: steps shown
``toolmem.planner_calls``  planning: model calls made for the hints
``toolmem.complaints``     planning's guard: calls against the decision rules
``toolmem.score``          reflection: the verdict on the run, 0 to 1
``toolmem.left_out``       preferences: tools left out
``toolmem.offered``        chains, search tool: tools offered or found
``toolmem.of``             chains: tools there are
``toolmem.error``          kind of an error that was passed over
``toolmem.failed``         which node or middleware passed it over
=========================  =========================================================================

No handler is added to the package's logger, not even a ``NullHandler``: in a program that never configured
logging, Python then writes warnings to stderr, and that is the only sign that the memory stepped aside.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from langgraph_toolmem.inertia.proposal import Decision

Attributes: TypeAlias = dict[str, str | int | float | bool]
"""Flat names to plain values: what OpenTelemetry takes."""

EVENT: Final = "toolmem"
"""Name of the events on OpenTelemetry spans."""

RECORD_IS_SURE: Final = "record_is_sure"
"""The reason of a call that is made."""
OTHER: Final = "other"
"""A reason that is not in the list."""

_PATTERNS: Final = tuple(
    (code, re.compile(pattern, re.DOTALL))
    for code, pattern in (
        ("invalid_arguments", r"arguments of .* break its schema: "),
        ("budget", r"(the|much of the) budget of .*wrong call"),
        ("shadow", r"shadow mode: "),
        ("audit", r"audit: "),
        ("nothing_seen", r"nothing like this has been seen yet|no tool has been seen after "),
        ("no_value", r"nothing in this run fills "),
        ("low_confidence", r"confidence [\d.]+ is below |score [-\d.]+ of .* is not above "),
        ("switched_off", r"switched off for this run"),
        ("tool_choice", r"the request settles which tools may be called: "),
        ("provider", r".*: its API refuses turns that the model did not make "),
        ("pace", r"\d+ shortcut\(s\) in a row: |\d+ of \d+ calls of this run were shortcuts: "),
        ("not_the_models_turn", r"tool calls are pending: |the model has answered: "),
        ("unknown_tool", r".* is not among the tools$"),
        ("excluded", r".* is excluded by the policy$"),
        ("needs_approval", r".* needs a human's approval$"),
        ("destructive", r".* is destructive and not named in allow_destructive$"),
        ("repeat", r".* was (already called with the same arguments|called like this before) in this run"),
        ("may_write", r".* may change something, and "),
    )
)
"""How the reasons of decisions are worded. Matched in this order, from the start of the text."""

REASONS: Final = frozenset({RECORD_IS_SURE, OTHER, *(code for code, _ in _PATTERNS)})
"""All values of ``toolmem.reason``."""

_decisions = logging.getLogger("langgraph_toolmem.decisions")
_logger = logging.getLogger("langgraph_toolmem.turn.telemetry")


def reason_code(decision: Decision) -> str:
    """The reason of a decision as one of `REASONS`: its text may quote the user or an argument."""
    if decision.acts:
        return RECORD_IS_SURE
    return next((code for code, pattern in _PATTERNS if pattern.match(decision.reason)), OTHER)


def attributes(role: str, decision: Decision) -> Attributes:
    """What may be told of a decision anywhere: see the table above.

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


def annotate(told: Mapping[str, str | int | float | bool]) -> None:
    """Puts attributes on the current OpenTelemetry span and the current LangSmith run, if there are such.

    A span gets them twice: as attributes, where the last decision within the span wins, and as an event, so that
    a span around a whole run keeps each decision. Nothing is imported for it, and nothing is raised.

    On Python 3.10 LangGraph sets no LangSmith run around an async node: then the run around the graph gets them,
    if there is one.
    """
    for tell in (_to_span, _to_langsmith):
        try:
            tell(told)
        except Exception:  # other people's tracers; the host's run goes on
            _logger.debug("%s failed", tell.__name__, exc_info=True)


def _to_span(told: Mapping[str, str | int | float | bool]) -> None:
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attributes(told)
        span.add_event(EVENT, told)


def _to_langsmith(told: Mapping[str, str | int | float | bool]) -> None:
    helpers: Any = sys.modules.get("langsmith.run_helpers")
    if helpers is None:
        return
    run = helpers.get_current_run_tree()
    if run is not None:
        run.add_metadata(dict(told))
