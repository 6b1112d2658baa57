"""What all nodes share: a `Runnable` that fails open."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.graph import StateGraph

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.turn.host import ErrorLog, read_key

logger = logging.getLogger("langgraph_toolmem.nodes")


class MemoryNode(Runnable[Any, Any]):
    """A LangGraph node over a memory, sync and async. It never raises into the host's run.

    Whatever goes wrong inside is logged once per kind of error, and the node returns no update.

    Args:
        memory: the memory.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.
    """

    role = "memory"
    about = "a node of the tool memory"

    def __init__(self, memory: ToolMemory, *, messages_key: str = "messages", name: str | None = None) -> None:
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"{type(self).__name__} takes a ToolMemory, not {type(memory).__name__}.")
        self.memory = memory
        self.messages_key = messages_key
        self.name = name or type(self).__name__
        self._errors = ErrorLog(self.name, logger)

    def add_to(self, builder: StateGraph[Any, Any, Any, Any], name: str | None = None, **options: Any) -> None:
        """Adds the node to a graph, with metadata that tell Studio and traces what it is.

        Args:
            builder: the graph.
            name: of the node; its role if None.
            options: of ``add_node``; `metadata` given here goes first.
        """
        metadata = {"toolmem": self.role, "toolmem_about": self.about, **(options.pop("metadata", None) or {})}
        builder.add_node(name or self.role, self, metadata=metadata, **options)

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
        self._errors.failed(error)
        return None

    def _messages(self, state: Any) -> list[Any]:
        messages = read_key(state, self.messages_key)
        if messages is None:
            raise ConfigurationError(
                f"The state has no {self.messages_key!r}. Pass messages_key=… to {type(self).__name__}."
            )
        return list(messages)
