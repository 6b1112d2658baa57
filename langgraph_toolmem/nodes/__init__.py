"""LangGraph nodes over a `ToolMemory`. Thin: what they do is in the steps of the methods."""

from langgraph_toolmem.navigator.decide.decision import NaviRecord, NaviState
from langgraph_toolmem.nodes.navi import create_navi_subgraph
from langgraph_toolmem.nodes.steps import (
    InertiaShortcut,
    LoopGuard,
    MemoryRecall,
    PreferenceGuide,
    Recorder,
    ReflectionWriter,
    SGAPlanner,
    SITSummary,
    ToolRetriever,
    guided_tools,
    loop_guard_condition,
    shortcut_condition,
)
from langgraph_toolmem.turn.hints import (
    MemoryState,
    messages_with_hints,
)

__all__ = [
    "InertiaShortcut",
    "LoopGuard",
    "MemoryRecall",
    "MemoryState",
    "NaviRecord",
    "NaviState",
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
