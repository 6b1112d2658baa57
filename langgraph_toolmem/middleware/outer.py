"""The host's own middleware in front of the memory: what may hold a call back, and which models and tools it brings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.inertia.prefetch import Interceptors
from langgraph_toolmem.models.features import Surroundings
from langgraph_toolmem.runs.tools import name_of

Middleware = AgentMiddleware[Any, Any, Any]

_WRAPS: Final = ("wrap_tool_call", "awrap_tool_call")
_AFTER: Final = ("after_model", "aafter_model")
_OF_LANGCHAIN: Final = "langchain.agents.middleware."


def outer_middleware(outer: Any) -> list[Middleware]:
    """Return the host's middleware as a list.

    Raises:
        ConfigurationError: it is no list of middleware.
    """
    try:
        given = list(outer)
    except TypeError:
        raise ConfigurationError(f"`outer` must be a list of middleware, got {type(outer).__name__}.") from None
    for index, middleware in enumerate(given):
        if isinstance(middleware, (list, tuple)):
            raise ConfigurationError(f"outer[{index}] is a list of middleware. Write outer=[*yours] instead.")
        if not isinstance(middleware, AgentMiddleware):
            raise ConfigurationError(f"outer[{index}] must be a middleware of yours, got {type(middleware).__name__}.")
    return given


def surroundings_of(outer: Sequence[Middleware], gated: Iterable[str]) -> Surroundings:
    """Return what the memory has to know of the middleware in front of it.

    Args:
        outer: the middleware, in its order.
        gated: more names of tools that must not run before their call went through the host's middleware.
    """
    models = [model for middleware in outer for model in _models_of(middleware)]
    tools = [name_of(tool) for middleware in outer for tool in getattr(middleware, "tools", ())]
    always: list[str] = []
    for middleware in outer:
        if isinstance(middleware, LLMToolSelectorMiddleware):
            always += middleware.always_include
    return Surroundings(
        models=tuple(models),
        interceptors=interceptors_of(outer, gated),
        always=tuple(always),
        tools=tuple(name for name in tools if name is not None),
    )


def interceptors_of(outer: Sequence[Middleware], gated: Iterable[str] = ()) -> Interceptors:
    """Return what may hold a call back between the model and the tool, as far as that can be seen.

    Of LangChain's own, only what reads the model's answer is known; any other that looks at it may take a call out.
    """
    wrapping = [middleware.name for middleware in outer if _may_hold(middleware)]
    tools = {*gated}
    for middleware in outer:
        tools.update(_gated_by(middleware))
    return Interceptors(" and ".join(wrapping), frozenset(tools))


def _models_of(middleware: Middleware) -> Iterator[Any]:
    """Yield models that a middleware may put in place of the agent's: fallbacks, or those that it chooses from."""
    models = getattr(middleware, "models", ())
    if isinstance(models, Mapping):
        yield from models.values()
    elif isinstance(models, (list, tuple)):
        yield from models


def _may_hold(middleware: Middleware) -> bool:
    if isinstance(middleware, (HumanInTheLoopMiddleware, ToolCallLimitMiddleware)):
        return True
    kind = type(middleware)
    if kind is ToolRetryMiddleware:  # it wraps tool calls and holds none back
        return False
    looked_at = _WRAPS if kind.__module__.startswith(_OF_LANGCHAIN) else (*_WRAPS, *_AFTER)
    return any(getattr(kind, name) is not getattr(AgentMiddleware, name) for name in looked_at)


def _gated_by(middleware: Middleware) -> Iterator[str]:
    if isinstance(middleware, HumanInTheLoopMiddleware):
        yield from middleware.interrupt_on
    elif isinstance(middleware, ToolCallLimitMiddleware) and middleware.tool_name is not None:
        yield middleware.tool_name
