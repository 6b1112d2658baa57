"""Decisions in the host's traces and logs, as flat attributes without a word of a user.

What events say of a decision: who made it, which way it went, a reason from a fixed list, and the tool. Neither
prompts nor arguments are in it, so it may go where traces go. Words and values are in the stream event
(`Decision.to_event`), which stays with the host.

=========================  =========================================================================
``toolmem.node``           the role of the node or middleware: ``inertia``, ``recorder``
``toolmem.decision``       ``shortcut`` or ``ask_model``
``toolmem.reason``         one of `langgraph_toolmem.inertia.decision.REASONS`
``toolmem.tool``           the tool proposed, whether it is called or not
``gen_ai.tool.name``       OpenTelemetry's name for a tool that is called: only where the shortcut calls it
``toolmem.confidence``     from 0 to 1; with the paper's policy the score CIPS
``toolmem.audit``          whether the model is asked only to check the proposal
``toolmem.candidates``     calls that were weighed
``toolmem.learned_turns``  recorder: turns that were new
``toolmem.recalled``       recall: past runs shown
``toolmem.hints``          planning: steps shown
``toolmem.planner_calls``  planning: model calls made for the hints
``toolmem.held``           loop guard: calls answered with a note
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
import sys
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Attributes: TypeAlias = dict[str, str | int | float | bool]
"""Flat names to plain values: what OpenTelemetry takes."""

EVENT: Final = "toolmem"
"""Name of the events on OpenTelemetry spans."""

_logger = logging.getLogger("langgraph_toolmem.turn.telemetry")


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
