"""A scripted chat model, for tests of agents and for demonstrations. The rest of the package does not import it."""

from __future__ import annotations

from langgraph_toolmem.testing.scripted import ScriptedCall, ScriptedChatModel, call_tool

__all__ = ["ScriptedCall", "ScriptedChatModel", "call_tool"]
