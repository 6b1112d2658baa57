"""What all nodes share: reading the host's state and context, events, and failing open."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from types import CodeType
from typing import Any, Final

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime, get_runtime

from langgraph_toolmem.errors import ConfigurationError
from langgraph_toolmem.memory import ToolMemory

logger = logging.getLogger("langgraph_toolmem.nodes")
MAX_LOGGED: Final = 100
"""Kinds of errors that one node logs."""


class MemoryNode(Runnable[Any, Any]):
    """A LangGraph node over a memory, sync and async. It never raises into the host's run.

    Whatever goes wrong inside is logged once per kind of error, and the node returns no update.

    Args:
        memory: the memory.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.
    """

    role = "memory"

    def __init__(self, memory: ToolMemory, *, messages_key: str = "messages", name: str | None = None) -> None:
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"{type(self).__name__} takes a ToolMemory, not {type(memory).__name__}.")
        self.memory = memory
        self.messages_key = messages_key
        self.name = name or type(self).__name__
        self._logged: set[tuple[type[Exception], CodeType | None, int]] = set()

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002 - Runnable's name
        """Runs the node."""
        try:
            return self._run(input, config)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            return self._failed(error)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        """Runs the node."""
        try:
            return await self._arun(input, config)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            return self._failed(error)

    @abstractmethod
    def _run(self, state: Any, config: RunnableConfig | None) -> Any: ...

    @abstractmethod
    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any: ...

    def _failed(self, error: Exception) -> Any:
        # Not by its text: that may hold a time or an id, and so differ each time.
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        kind = (type(error), trace.tb_frame.f_code if trace else None, trace.tb_lineno if trace else 0)
        if kind not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(kind)
            text = f"{type(error).__name__}: {error}"
            logger.error("%s failed and is passed over (logged once): %s", self.name, text, exc_info=error)
        return None

    def _messages(self, state: Any) -> list[Any]:
        messages = read_key(state, self.messages_key)
        if messages is None:
            raise ConfigurationError(
                f"The state has no {self.messages_key!r}. Pass messages_key=… to {type(self).__name__}."
            )
        return list(messages)


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


def run_id_of(config: RunnableConfig | None) -> str | None:
    """The thread, if the graph has a checkpointer."""
    thread = (config or {}).get("configurable", {}).get("thread_id")
    return None if thread is None else str(thread)


def user_id_of(config: RunnableConfig | None, runtime: Runtime[Any] | None) -> str | None:
    """The user: from the context, else the server's user, else the configurable."""
    context = runtime.context if runtime is not None else None
    found = read_key(context, "user_id") if context is not None else None
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
