"""The host's side of a call: its state, runtime, run and user; its event stream; and failing open.

Shared by the nodes and the middleware.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import CodeType
from typing import Any, Final

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime, get_runtime

from langgraph_toolmem.base.errors import log_failure
from langgraph_toolmem.turn.telemetry import annotate

MAX_LOGGED: Final = 100
"""Kinds of errors that one node or middleware logs."""


class ErrorLog:
    """Logs each kind of error once: what went wrong inside the memory is passed over, not repeated at every step.

    Args:
        owner: who failed, for the message.
        logger: where to.
    """

    def __init__(self, owner: str, logger: logging.Logger) -> None:
        self._owner = owner
        self._logger = logger
        self._logged: set[tuple[type[Exception], CodeType | None, int]] = set()

    def failed(self, error: Exception) -> None:
        """Notes an error that the host must not see: kind and place at ERROR, text and traceback at DEBUG.

        The host's traces are told of it each time.
        """
        annotate({"toolmem.failed": self._owner, "toolmem.error": type(error).__name__})
        # Not by its text: that may hold a time or an id, and so differ each time.
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        kind = (type(error), trace.tb_frame.f_code if trace else None, trace.tb_lineno if trace else 0)
        if kind not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(kind)
            log_failure(
                self._logger, logging.ERROR, "%s failed and is passed over (logged once)", self._owner, error=error
            )


def read_key(state: Any, key: str) -> Any:
    """A key of the host's state: a dict, a dataclass, a pydantic model, or the list of messages itself."""
    if isinstance(state, Mapping):
        return state.get(key)
    if isinstance(state, (list, tuple)):
        return state
    return getattr(state, key, None)


_RUNTIME: Final = "__pregel_runtime"
"""Where LangGraph keeps the runtime in the config; no public name, so only looked at when there is no other way."""


def runtime_of(config: RunnableConfig | None = None) -> Runtime[Any] | None:
    """The runtime of the graph that is running; None outside of one.

    Before Python 3.11 an async node runs without its context variables: then the node's config tells.
    """
    try:
        found: Any = get_runtime()
    except (RuntimeError, KeyError):
        found = None
    if not isinstance(found, Runtime):
        found = (config or {}).get("configurable", {}).get(_RUNTIME)
    return found if isinstance(found, Runtime) else None


def config_of() -> RunnableConfig | None:
    """The config of what is running; None outside of a graph, and in async code before Python 3.11."""
    try:
        return get_config()
    except RuntimeError:
        return None


def thread_id_of(config: RunnableConfig | None, runtime: Any = None) -> str | None:
    """The thread, if the graph has a checkpointer."""
    thread = (config or {}).get("configurable", {}).get("thread_id")
    if thread is None:
        thread = getattr(getattr(runtime, "execution_info", None), "thread_id", None)
    return None if thread is None else str(thread)


def user_id_of(config: RunnableConfig | None, runtime: Any) -> str | None:
    """The user: from the context, else the server's user, else the configurable."""
    context = runtime.context if runtime is not None else None
    found = None if isinstance(context, (list, tuple)) else read_key(context, "user_id")
    if not found and runtime is not None:
        server = getattr(runtime, "server_info", None)
        found = getattr(getattr(server, "user", None), "identity", None)
    if not found:
        configurable = (config or {}).get("configurable", {})
        found = configurable.get("langgraph_user_id") or configurable.get("user_id")
    return str(found) if found else None


def emit(runtime: Runtime[Any] | None, event: dict[str, Any]) -> None:
    """One custom stream event, ``{"toolmem": event}``; nothing outside a graph."""
    if runtime is not None:
        runtime.stream_writer({"toolmem": event})


def named(message: AIMessage) -> AIMessage:
    """A message in the model's place, with the name that ``create_agent(name=...)`` gives the model's own."""
    message.name = message.name or (config_of() or {}).get("metadata", {}).get("lc_agent_name")
    return message
