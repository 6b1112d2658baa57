"""LangGraph nodes over a `ToolMemory`. Thin: what they decide is decided in the memory."""

from langgraph_toolmem.navigator.decide.state import NaviLimits, NaviRecord, NaviState
from langgraph_toolmem.nodes.chains import ToolRetriever, offered_tools
from langgraph_toolmem.nodes.inertia import InertiaShortcut, shortcut_condition, shortcut_message
from langgraph_toolmem.nodes.navi import create_navi_subgraph
from langgraph_toolmem.nodes.preferences import PreferenceGuide, guided_tools
from langgraph_toolmem.nodes.react import ashortcut_model, shortcut_model
from langgraph_toolmem.nodes.recall import MemoryRecall
from langgraph_toolmem.nodes.recorder import Recorder
from langgraph_toolmem.nodes.reflection import ReflectionWriter
from langgraph_toolmem.nodes.sga import SGAGuard, SGAPlanner, guard_condition
from langgraph_toolmem.nodes.sit import SITSummary
from langgraph_toolmem.turn.hints import (
    AvoidedState,
    HintState,
    MemoryState,
    OfferedState,
    PlanningState,
    memory_prompt,
)

__all__ = [
    "AvoidedState",
    "HintState",
    "InertiaShortcut",
    "MemoryRecall",
    "MemoryState",
    "NaviLimits",
    "NaviRecord",
    "NaviState",
    "OfferedState",
    "PlanningState",
    "PreferenceGuide",
    "Recorder",
    "ReflectionWriter",
    "SGAGuard",
    "SGAPlanner",
    "SITSummary",
    "ToolRetriever",
    "ashortcut_model",
    "create_navi_subgraph",
    "guard_condition",
    "guided_tools",
    "memory_prompt",
    "offered_tools",
    "shortcut_condition",
    "shortcut_message",
    "shortcut_model",
]
