"""The host's own middleware before the memory: the gates of tool calls, and the models and tools that it adds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    PIIMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.inertia.apart import Interceptors
from langgraph_toolmem.models.features import Surroundings
from langgraph_toolmem.runs.tools import name_of

Middleware = AgentMiddleware[Any, Any, Any]

_AROUND_TOOLS: Final = ("wrap_tool_call", "awrap_tool_call")
_AFTER_MODEL: Final = ("after_model", "aafter_model")
_BEFORE_MODEL: Final = ("before_model", "abefore_model", "wrap_model_call", "awrap_model_call")
_PROMPT: Final = "dynamic_prompt.<locals>"
"""Functions of a middleware that ``@dynamic_prompt`` makes: they write only the system prompt."""


def outer_middleware(outer: Any) -> list[Middleware]:
    """Return the host's middleware as a list.

    Raises:
        ConfigurationError: `outer` is not a list of middleware.
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


def surroundings_of(outer: Sequence[Middleware], gated: Iterable[str], *, known: bool = True) -> Surroundings:
    """Return the facts that the memory needs about the middleware before it.

    Args:
        outer: the middleware, in its order.
        gated: more names of tools that must not run before their call went through the host's middleware.
        known: False if there may be more.
    """
    models: list[Any] = []
    tools: list[str] = []
    always: list[str] = []
    for middleware in outer:
        models += _models_of(middleware)
        for tool in getattr(middleware, "tools", ()):
            name = name_of(tool)
            if name is not None:
                tools.append(name)
        if isinstance(middleware, LLMToolSelectorMiddleware):
            always += middleware.always_include
    return Surroundings(
        models=tuple(models),
        interceptors=interceptors_of(outer, gated, known=known),
        recorded=True,
        always=tuple(always),
        tools=tuple(tools),
    )


def interceptors_of(outer: Sequence[Middleware], gated: Iterable[str] = (), *, known: bool = True) -> Interceptors:
    """Return everything between the model and the tool that may hold a call back, as far as the memory can see it.

    LangChain's own middleware is known; any other middleware that reads the model's answer may remove a call.
    """
    wrapping = [middleware.name for middleware in outer if _may_hold(middleware)]
    rewriting = [middleware.name for middleware in outer if _may_rewrite(middleware)]
    if not known:
        rewriting.append("middleware that is not in `outer`")
    tools = {*gated}
    for middleware in outer:
        tools.update(_gated_by(middleware))
    return Interceptors(" and ".join(wrapping), frozenset(tools), " and ".join(rewriting))


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
    if kind is ToolRetryMiddleware:  # it wraps tool calls and lets all of them pass
        return False
    if _is_of_langchain(kind):
        return bool(_own_hooks(kind, _AROUND_TOOLS))
    return bool(_own_hooks(kind, (*_AROUND_TOOLS, *_AFTER_MODEL)))


def _own_hooks(kind: type[Any], names: Iterable[str]) -> list[Any]:
    """Return the hooks of some names that a class defines itself."""
    hooks = []
    for name in names:
        hook = getattr(kind, name)
        if hook is not getattr(AgentMiddleware, name):
            hooks.append(hook)
    return hooks


def _is_of_langchain(kind: type[Any]) -> bool:
    """Return True for LangChain's own middleware; its decorators also make classes of the host's functions."""
    package = "langchain.agents.middleware."
    return kind.__module__.startswith(package) and kind.__module__ != f"{package}types"


def _may_rewrite(middleware: Middleware) -> bool:
    """Return True if a middleware may change the results that the model reads, or hold a call back without a gate.

    A look-up made before the model later leaves as a call: middleware that stops or counts such calls sees it then.
    """
    kind = type(middleware)
    if isinstance(middleware, HumanInTheLoopMiddleware):  # its tools are gated
        return False
    if isinstance(middleware, ToolCallLimitMiddleware):
        return middleware.tool_name is None  # a limit of one tool is a gate of that tool
    if isinstance(middleware, PIIMiddleware):
        return middleware.apply_to_tool_results
    if kind is ToolRetryMiddleware:
        return False
    if _is_of_langchain(kind):
        hooks = _own_hooks(kind, _AROUND_TOOLS)
    else:
        hooks = _own_hooks(kind, (*_AROUND_TOOLS, *_AFTER_MODEL, *_BEFORE_MODEL))
    for hook in hooks:
        if not getattr(hook, "__qualname__", "").startswith(_PROMPT):
            return True
    return False


def _gated_by(middleware: Middleware) -> Iterator[str]:
    if isinstance(middleware, HumanInTheLoopMiddleware):
        yield from middleware.interrupt_on
    elif isinstance(middleware, ToolCallLimitMiddleware) and middleware.tool_name is not None:
        yield middleware.tool_name
