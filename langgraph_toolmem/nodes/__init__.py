"""LangGraph nodes over a `ToolMemory`. Thin: what they do is in the steps of the methods."""

from langgraph_toolmem.inertia.step import shortcut_message
from langgraph_toolmem.navigator.decide.state import NaviLimits, NaviRecord, NaviState
from langgraph_toolmem.nodes.loop_guard import LoopGuard, loop_guard_condition
from langgraph_toolmem.nodes.navi import create_navi_subgraph
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
from langgraph_toolmem.turn.hints import (
    HintState,
    LeftOutState,
    MemoryState,
    PlanningState,
    memory_prompt,
    messages_with_hints,
)

__all__ = [
    "HintState",
    "InertiaShortcut",
    "LeftOutState",
    "LoopGuard",
    "MemoryRecall",
    "MemoryState",
    "NaviLimits",
    "NaviRecord",
    "NaviState",
    "PlanningState",
    "PreferenceGuide",
    "Recorder",
    "ReflectionWriter",
    "SGAPlanner",
    "SITSummary",
    "ToolRetriever",
    "create_navi_subgraph",
    "guided_tools",
    "loop_guard_condition",
    "memory_prompt",
    "messages_with_hints",
    "shortcut_condition",
    "shortcut_message",
]
