"""Steps as LangGraph nodes: a `Runnable`, sync and async, that fails open."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from typing import Any, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.graph import StateGraph

from langgraph_toolmem.base.checks import options_named
from langgraph_toolmem.base.errors import ConfigurationError, LoopError
from langgraph_toolmem.turn import env_mode
from langgraph_toolmem.turn.ask import StepGenerator, adrive, drive
from langgraph_toolmem.turn.call import Call, StepOutput
from langgraph_toolmem.turn.hints import new_hint
from langgraph_toolmem.turn.host import ErrorLog, emit, read_key, runtime_of, thread_id_of, user_id_of
from langgraph_toolmem.turn.step import Step
from langgraph_toolmem.turn.telemetry import annotate

logger = logging.getLogger("langgraph_toolmem.nodes")

S = TypeVar("S", bound=Step[Any])


class MemoryNode(Runnable[Any, Any]):
    """A node over a memory. It never raises into the host's run.

    Whatever goes wrong inside is logged once per kind of error, and the node returns no update.

    Args:
        role: name of the node in a graph if no other is given, and in events.
        about: what it does, for Studio.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        """Has unknown options of the node named."""
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            options_named(cls)

    def __init__(self, role: str, about: str, *, messages_key: str = "messages", name: str | None = None) -> None:
        self.role, self.about = role, about
        self.messages_key = messages_key
        self.name = name or type(self).__name__
        self.errors = ErrorLog(self.name, logger)

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
        if env_mode.mode() == "off":
            return self.passed()
        try:
            return drive(lambda: self.body(input, config))
        except (GraphBubbleUp, LoopError):
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            return self.failed(error)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        """Runs the node."""
        if env_mode.mode() == "off":
            return self.passed()
        try:
            return await adrive(lambda: self.body(input, config))
        except (GraphBubbleUp, LoopError):
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            return self.failed(error)

    def body(self, state: Any, config: RunnableConfig | None) -> Any | StepGenerator[Any]:
        """Return what the node does: the update of the state. In an async graph it runs in a thread."""
        raise NotImplementedError

    def failed(self, error: Exception) -> Any:
        """Something inside went wrong: what the graph gets in place of an update."""
        self.errors.failed(error)
        return self.passed()

    def passed(self) -> Any:
        """Return what the graph gets where the node has nothing to say."""
        return None

    def call_of(self, state: Any, config: RunnableConfig | None) -> Call:
        """The model call that comes after this node."""
        messages = read_key(state, self.messages_key)
        if messages is None:
            raise ConfigurationError(
                f"The state has no {self.messages_key!r}. Pass messages_key=… to {type(self).__name__}."
            )
        runtime = runtime_of(config)
        call = Call(
            messages,
            thread_id_of(config, runtime),
            user_id_of(config, runtime),
            state,
            self.messages_key,
            runtime,
        )
        call.note_state()
        return call

    def tell(self, said: StepOutput, runtime: Any) -> None:
        """One stream event, and the attributes of the current span."""
        if said.notes:
            annotate({"toolmem.node": self.role, **said.notes})
        if said.event is not None:
            emit(runtime, {"node": self.role, **said.event})


class StepNode(MemoryNode):
    """A step as a node: what it says goes into the graph's private state.

    Args:
        step: the step.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.
    """

    def __init__(self, step: Step[Any], *, messages_key: str = "messages", name: str | None = None) -> None:
        super().__init__(step.role, step.about, messages_key=messages_key, name=name)
        self.step = step
        step.failed = self.errors.failed

    def body(self, state: Any, config: RunnableConfig | None) -> StepGenerator[Any]:
        """Looks, if it has not looked before, and says what it found."""
        step = self.step
        if (env_mode.mode() and not step.learns) or step.has_looked(state, messages_key=self.messages_key):
            return None
        call = self.call_of(state, config)
        call.held_out = env_mode.shows() and step.core.held_out(call.messages, call.thread_id)
        if call.held_out and not step.learns:
            return None
        found = step.compute(call)
        if isinstance(found, Generator):
            found = yield from found
        said = step.render(call, found)
        if said.text or said.lines:  # a verdict on what was shown finds its episode, also where nobody records
            core = step.core
            core.log_and_continue(
                "could not note a thread", lambda: core.know(core.read(call.messages, call.thread_id))
            )
        self.tell(said, call.runtime)
        return self.update(call, said)

    def update(self, call: Call, said: StepOutput) -> Any:
        """Return what a step said, as an update of the state."""
        hint: Mapping[str, Any] = new_hint(self.role, said.block(self.role), call.messages, self.step.scope)
        return {**hint, **said.state}


class EndNode(StepNode):
    """A step at the end of a run, as a node before END."""

    def body(self, state: Any, config: RunnableConfig | None) -> StepGenerator[Any]:
        """The run is over."""
        call = self.call_of(state, config)
        said = self.step.on_end(call)
        if isinstance(said, Generator):
            said = yield from said
        self.tell(said, call.runtime)
        return None
