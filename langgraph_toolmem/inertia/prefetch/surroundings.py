"""What a tool that runs ahead sees of its host: who asks, and nothing that could be heard, stored or resumed."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping
from typing import Any, Final

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.runtime import Runtime

_KEPT: Final = "__pregel_runtime"
"""Where LangGraph keeps the runtime in a config: the context and the store of the run stay."""
_PASSED_ON: Final = ("metadata", "recursion_limit", "max_concurrency")
_OWN: Final = ("__pregel", "checkpoint")
"""How keys of ``configurable`` begin that are LangGraph's own."""


def config_apart(config: Mapping[str, Any] | None, runtime: Any, write: Callable[[Any], None]) -> RunnableConfig:
    """The config of a call that runs ahead: the user's keys and context, and nothing that leads back into the run.

    Args:
        config: of the host's node.
        runtime: of the host's node.
        write: takes what the tool writes to the custom stream.
    """
    given = (config or {}).get("configurable") or {}
    own = {key: value for key, value in given.items() if not str(key).startswith(_OWN)}
    found = runtime if isinstance(runtime, Runtime) else Runtime()
    # Not the host's execution: it has no checkpoint, no task and no heartbeat of its own.
    own[_KEPT] = Runtime(
        context=found.context, store=found.store, stream_writer=write, server_info=getattr(found, "server_info", None)
    )
    kept = {key: value for key, value in (config or {}).items() if key in _PASSED_ON}
    apart: Any = {"tags": [], "callbacks": None, "configurable": own, **kept}
    return apart  # type: ignore[no-any-return]


def context_apart(config: RunnableConfig) -> contextvars.Context:
    """A copy of the current context in which a call runs ahead: it has this config, and nobody listens."""
    context = contextvars.copy_context()
    for variable, value in list(context.items()):
        if isinstance(value, (BaseCallbackHandler, BaseCallbackManager)):
            context.run(variable.set, None)
    context.run(var_child_runnable_config.set, config)
    return context
