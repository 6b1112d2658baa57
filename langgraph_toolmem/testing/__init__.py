"""Doubles for tests and demonstrations: a scripted chat model and an OpenAI-protocol server on loopback.

Both are part of the product: whoever builds an agent with a tool memory can test it offline with them.
Nothing in here is imported by the rest of the package.
"""

from __future__ import annotations

from langgraph_toolmem.testing.scripted import ScriptedCall, ScriptedChatModel
from langgraph_toolmem.testing.server import OpenAIStubServer, make_chat_model
from langgraph_toolmem.testing.wire import count_tokens

__all__ = ["OpenAIStubServer", "ScriptedCall", "ScriptedChatModel", "count_tokens", "make_chat_model"]
