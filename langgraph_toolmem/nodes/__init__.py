"""LangGraph nodes over a `ToolMemory`. The nodes are thin: the work is in the steps of the methods.

The decider is imported when its name is first used, because an agent with middleware does not need it.
"""

from __future__ import annotations

import typing

from langgraph_toolmem.nodes.loop_guard import LoopGuard, loop_guard_condition
from langgraph_toolmem.nodes.steps import (
    InertiaShortcut,
    MemoryRecall,
    PreferenceGuide,
    Recorder,
    ReflectionWriter,
    SGAPlanner,
    SITSummary,
    ToolRetriever,
    guided_tools,
    shortcut_condition,
)
from langgraph_toolmem.turn.hints import MemoryState, messages_with_hints

if typing.TYPE_CHECKING:
    from langgraph_toolmem.nodes.navi import create_navi_subgraph

__all__ = [
    "InertiaShortcut",
    "LoopGuard",
    "MemoryRecall",
    "MemoryState",
    "PreferenceGuide",
    "Recorder",
    "ReflectionWriter",
    "SGAPlanner",
    "SITSummary",
    "ToolRetriever",
    "create_navi_subgraph",
    "guided_tools",
    "loop_guard_condition",
    "messages_with_hints",
    "shortcut_condition",
]


def __getattr__(name: str) -> typing.Any:
    if name != "create_navi_subgraph":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from langgraph_toolmem.nodes import navi

    return navi.create_navi_subgraph


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
