"""LangGraph nodes over a `ToolMemory`. Thin: what they decide is decided in the memory."""

from langgraph_toolmem.nodes.inertia import InertiaShortcut, shortcut_condition, shortcut_message
from langgraph_toolmem.nodes.recorder import Recorder

__all__ = ["InertiaShortcut", "Recorder", "shortcut_condition", "shortcut_message"]
