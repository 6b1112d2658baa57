"""LangGraph nodes over a `ToolMemory`. Thin: what they decide is decided in the memory."""

from langgraph_toolmem.hints import HintState, MemoryState, memory_prompt
from langgraph_toolmem.nodes.inertia import InertiaShortcut, shortcut_condition, shortcut_message
from langgraph_toolmem.nodes.react import ashortcut_model, shortcut_model
from langgraph_toolmem.nodes.recorder import Recorder
from langgraph_toolmem.nodes.sit import SITSummary

__all__ = [
    "HintState",
    "InertiaShortcut",
    "MemoryState",
    "Recorder",
    "SITSummary",
    "ashortcut_model",
    "memory_prompt",
    "shortcut_condition",
    "shortcut_message",
    "shortcut_model",
]
