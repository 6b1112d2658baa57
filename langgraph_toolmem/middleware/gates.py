"""The host's middleware between the model's call of a tool and its execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)

from langgraph_toolmem.inertia.prefetch.qualify import Interceptors

_WRAPS: Final = ("wrap_tool_call", "awrap_tool_call")
_AFTER: Final = ("after_model", "aafter_model")
_OF_LANGCHAIN: Final = "langchain.agents.middleware."
_PASSES: Final = (ToolRetryMiddleware,)
"""Wraps tool calls and holds none back."""


def gates_of(inside: Sequence[AgentMiddleware[Any, Any, Any]]) -> Interceptors:
    """Return what may hold a call back, as far as that can be seen.

    Of LangChain's own, what only reads the model's answer is known; of others, whatever looks at it may take a call
    out.
    """
    return Interceptors(" and ".join(each.name for each in inside if _may_hold(each)), frozenset(_gated(inside)))


def _may_hold(middleware: AgentMiddleware[Any, Any, Any]) -> bool:
    if isinstance(middleware, (HumanInTheLoopMiddleware, ToolCallLimitMiddleware)):
        return True
    kind = type(middleware)
    if kind in _PASSES:
        return False
    looked_at = _WRAPS if kind.__module__.startswith(_OF_LANGCHAIN) else (*_WRAPS, *_AFTER)
    return any(getattr(kind, name) is not getattr(AgentMiddleware, name) for name in looked_at)


def _gated(inside: Sequence[AgentMiddleware[Any, Any, Any]]) -> Iterator[str]:
    for each in inside:
        if isinstance(each, HumanInTheLoopMiddleware):
            yield from each.interrupt_on
        elif isinstance(each, ToolCallLimitMiddleware) and each.tool_name is not None:
            yield each.tool_name
