"""Tools whose equal calls give different results: the loop guard never holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from langgraph_toolmem.graph.events import Record, ToolCount
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.inertia.guards import may_write
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon_args

VARIED: Final = "varied"
"""Counter of a tool: an equal call gave another result, with nothing changed in between."""


def credit_varied(state: RunState, specs: Mapping[str, ToolSpec], policy: InertiaPolicy) -> Record:
    """Count calls of the latest turn whose results differ from an equal call's, with only reads in between."""
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
