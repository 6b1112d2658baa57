"""LangGraph nodes over a `ToolMemory`. Thin: what they decide is decided in the memory."""

from langgraph_toolmem.nodes.inertia import InertiaShortcut, shortcut_condition, shortcut_message
from langgraph_toolmem.nodes.react import ashortcut_model, shortcut_model
from langgraph_toolmem.nodes.recorder import Recorder

__all__ = [
    "InertiaShortcut",
    "Recorder",
    "ashortcut_model",
    "shortcut_condition",
    "shortcut_message",
    "shortcut_model",
]
