"""The middlewares of the memory and the host's own, in the right order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelFallbackMiddleware

from langgraph_toolmem.errors import ConfigurationError
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.middleware.inertia import InertiaMiddleware
from langgraph_toolmem.middleware.recorder import RecorderMiddleware
from langgraph_toolmem.middleware.sit import SITMiddleware
from langgraph_toolmem.policy import InertiaPolicy
from langgraph_toolmem.providers import PROVIDER_RULES, ProviderRule
from langgraph_toolmem.sit.policy import SITPolicy


def tool_memory_middleware(
    memory: ToolMemory,
    *,
    inside: Sequence[AgentMiddleware[Any, Any, Any]] = (),
    policy: InertiaPolicy | None = None,
    shortcut: bool = True,
    suggest: bool | SITPolicy = False,
    rules: Iterable[ProviderRule] = PROVIDER_RULES,
    force: bool = False,
) -> list[AgentMiddleware[Any, Any, Any]]:
    """The whole list for ``create_agent(..., middleware=...)``: shortcut first, yours inside, recorder last.

    A skipped step skips what stands inside around the model, too. So a middleware that takes tools away from the
    model (by permission, by state), or that chooses the model or a tool for it, goes in front of the list::

        middleware=[permissions, *tool_memory_middleware(memory, inside=[human_approval])]

    Args:
        memory: the memory; agents may share one.
        inside: your own middleware, in its order.
        policy: when the shortcut may act; the memory's own if None.
        shortcut: False: make no calls, only learn (and suggest).
        suggest: tell the model which tools came next in similar situations, and give it the summary tool
            (`SITMiddleware`); a policy says how.
        rules: models whose API refuses turns that they did not make; they get no shortcut.
        force: take shortcuts with such models all the same.

    Raises:
        ConfigurationError: an argument cannot work, such as an `inside` that has the memory's own in it.
    """
    try:
        yours = list(inside)
    except TypeError:
        raise ConfigurationError(f"inside is a list of middleware, not {type(inside).__name__}.") from None
    for index, middleware in enumerate(yours):
        if isinstance(middleware, (InertiaMiddleware, SITMiddleware, RecorderMiddleware)):
            raise ConfigurationError(
                f"inside[{index}] is the memory's own {type(middleware).__name__}; tool_memory_middleware adds it."
            )
        if not isinstance(middleware, AgentMiddleware):
            raise ConfigurationError(f"inside[{index}] is a {type(middleware).__name__}, not an AgentMiddleware.")
    if not isinstance(suggest, (bool, SITPolicy)):
        raise ConfigurationError(f"suggest is True, False or a SITPolicy, not {type(suggest).__name__}.")
    recorder = RecorderMiddleware(memory)
    if suggest:
        yours.append(SITMiddleware(memory, policy=suggest if isinstance(suggest, SITPolicy) else None))
    fallbacks = [model for m in yours if isinstance(m, ModelFallbackMiddleware) for model in m.models]
    first = InertiaMiddleware(memory, policy=policy, recorded=True, rules=rules, force=force, fallbacks=fallbacks)
    return [first, *yours, recorder] if shortcut else [*yours, recorder]
