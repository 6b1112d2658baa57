"""Calls that repeat: those of a run that bring nothing new, and tools whose equal calls differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langgraph_toolmem.graph.events import Record, ToolCount
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.inertia.guards import may_write
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.runs.messages import LOOP_NOTE
from langgraph_toolmem.runs.run import Run, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon_args

VARIED: Final = "varied"
"""Counter of a tool: an equal call gave another result, with nothing changed in between."""


def repeated_calls(run: Run) -> tuple[set[tuple[str, str]], int]:
    """Return the calls (tool, arguments) whose latest result was the one before, with nothing new since.

    New is what the user says, a call that was not made since then, and a result that differs from the one before. Also
    return how many answers of the model got notes since anything new.
    """
    results: dict[tuple[str, str], Any] = {}
    repeated: set[tuple[str, str]] = set()
    notes = 0
    for event in run.events:
        if isinstance(event, UserMessage):
            results, repeated, notes = {}, set(), 0
            continue
        notes += any(step.output == LOOP_NOTE for step in event.steps)
        for step in event.steps:
            if step.status not in ("ok", "failed"):
                continue
            call, result = (step.tool, canon_args(step.args)), (step.status, step.output)
            if results.get(call) == result:
                repeated.add(call)
            else:
                results[call], repeated, notes = result, set(), 0
    return repeated, notes


def credit_varied(state: RunState, specs: Mapping[str, ToolSpec], policy: InertiaPolicy) -> Record:
    """Count the calls of the turn before, whose results are known by now, that differ from an equal call's.

    Only reads stand between the two.
    """
    record: Record = []
    earlier = state.since_user[: len(state.since_user) - len(state.latest)]
    for step in state.latest:
        text = canon_args(step.args)
        for before in reversed(earlier):
            if before.tool == step.tool and canon_args(before.args) == text:
                if before.status == step.status == "ok" and before.output != step.output:
                    record.append(ToolCount(step.tool, VARIED))
                break
            if before.tool not in specs or may_write(before.tool, specs, policy):
                break
    return record
