"""Steps as LangGraph nodes: a `Runnable`, sync and async, that fails open."""

from __future__ import annotations

import logging
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.graph import StateGraph

from langgraph_toolmem.base.errors import ConfigurationError, LoopError
from langgraph_toolmem.turn.ask import StepGenerator, adrive, drive
from langgraph_toolmem.turn.call import NOTHING, Call, StepOutput
from langgraph_toolmem.turn.hints import left_out_now, new_hint
from langgraph_toolmem.turn.host import (
    ErrorLog,
    env_mode,
    is_active,
    read_key,
    runtime_of,
    thread_id_of,
    user_id_of,
)
from langgraph_toolmem.turn.run import StepRunner
from langgraph_toolmem.turn.step import Step

logger = logging.getLogger("langgraph_toolmem.nodes")


class MemoryNode(Runnable[Any, Any]):
    """A node over a memory. It never raises into the host's run.

    Each kind of error inside is logged once, and the node returns no update.

    Args:
        role: name of the node in a graph if no other is given, and in events.
        about: its purpose, for Studio.
        messages_key: key of the messages in the host's state.
    """

    def __init__(self, role: str, about: str, *, messages_key: str = "messages") -> None:
        self.role, self.about = role, about
        self.messages_key = messages_key
        self.name = type(self).__name__
        self.errors = ErrorLog(self.name, logger)

    def add_to(self, builder: StateGraph[Any, Any, Any, Any], name: str | None = None, **options: Any) -> None:
        """Add the node to a graph, with metadata that describe it in Studio and traces.

        Args:
            builder: the graph.
            name: of the node; its role if None.
            options: of ``add_node``; `metadata` given here goes first.
        """
        metadata = {"toolmem": self.role, "toolmem_about": self.about, **(options.pop("metadata", None) or {})}
        builder.add_node(name or self.role, self, metadata=metadata, **options)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002 - Runnable's name
        """Run the node."""
        if env_mode() == "off":
            return None
        try:
            return drive(lambda: self.body(input, config))
        except (GraphBubbleUp, LoopError):
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self.errors.failed(error)
            return None

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        """Run the node."""
        if env_mode() == "off":
            return None
        try:
            return await adrive(lambda: self.body(input, config))
        except (GraphBubbleUp, LoopError):
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self.errors.failed(error)
            return None

    def body(self, state: Any, config: RunnableConfig | None) -> Any | StepGenerator[Any]:
        """Return the update of the state. In an async graph it runs in a thread."""
        raise NotImplementedError

    def call_of(self, state: Any, config: RunnableConfig | None) -> Call:
        """Return the model call that comes after this node."""
        messages = read_key(state, self.messages_key)
        if messages is None:
            raise ConfigurationError(
                f"The state has no {self.messages_key!r}. Pass messages_key=… to {type(self).__name__}."
            )
        runtime = runtime_of(config)
        who = (thread_id_of(config, runtime), user_id_of(config, runtime))
        left_out = left_out_now(state, messages_key=self.messages_key)
        return Call(messages, *who, state, runtime, left_out=left_out)


class StepNode(MemoryNode):
    """A step as a node: its hint goes into the graph's private state.

    Args:
        step: the step.
        messages_key: key of the messages in the host's state.
    """

    def __init__(self, step: Step[Any], *, messages_key: str = "messages") -> None:
        super().__init__(step.role, step.about, messages_key=messages_key)
        self.step = step
        step.failed = self.errors.failed
        self.runner = StepRunner(step)

    def body(self, state: Any, config: RunnableConfig | None) -> StepGenerator[Any]:
        """Run the step, at the end of a run if that is its place."""
        call = self.call_of(state, config)
        if self.step.ends:
            yield from self.runner.at_end(call)
            return None
        core = self.step.core
        call.held_out = is_active() and core.held_out(call.messages, call.thread_id)
        output = yield from self.runner.output(call)
        if output.hint:  # feedback on the hint finds its episode, also where nobody records
            core.log_and_continue(
                "could not note a thread", lambda: core.know(core.read(call.messages, call.thread_id))
            )
        return None if output is NOTHING else self.update(call, output)

    def update(self, call: Call, output: StepOutput) -> Any:
        """Return the update of the state for a step's output."""
        return {**new_hint(self.role, output, call.messages, self.step.scope), **output.state}
