"""The shortcut node: makes the next call without asking the model, when the record says it may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from inspect import isroutine
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.graph import StateGraph
from langgraph.types import Command

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Prefetch
from langgraph_toolmem.inertia.step import MARK, Shortcut
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.of_memory import method_of
from langgraph_toolmem.runs.tools import ToolLike, read_tools
from langgraph_toolmem.turn import env_mode
from langgraph_toolmem.turn.call import Call, StepOutput
from langgraph_toolmem.turn.host import read_key
from langgraph_toolmem.turn.node import StepNode

_SHORTCUT: Final = "shortcut"
_ASK: Final = "ask the model"


class InertiaShortcut(StepNode):
    """Stands before the model: learns what is new in the run, then makes the next call itself or steps aside.

    Put it where the model is called, and let it decide the way on::

        builder.add_node("inertia", InertiaShortcut(memory, tools))
        builder.add_edge(START, "inertia")
        builder.add_edge("tools", "inertia")
        builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])

    A call it makes is an ``AIMessage`` with one tool call, marked in ``additional_kwargs["toolmem"]``. Each
    decision emits one custom stream event ``{"toolmem": {...}}``.

    A tool that a `PreferenceGuide` in front of it leaves out is never called.

    Args:
        memory: the memory.
        tools: the agent's tools: their marks say which calls change something.
        policy: when to act; the memory's own if None.
        model: the model that the agent asks. If its API refuses turns that it did not make (`PROVIDER_RULES`), no
            shortcut is taken. None: nothing is known, and nothing is refused.
        messages_key: key of the messages in the host's state.
        goto: ``(tools, agent)``: names of the nodes to go to with a ``Command``, for those who prefer it to a
            conditional edge. The node must then have no edge of its own; pass `destinations` to `add_node`.
        prefetch: run likely look-ups while the model is asked (`Prefetch` says which). The results are served by
            ``ToolNode(tools, wrap_tool_call=recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call)``, of a
            `Recorder` on the same memory. Runs need a thread id, a user id and messages with ids. What stands between
            the model and the tools (``interrupt_before``, an approval) cannot be seen from here: name the tools that
            may be run before it.
        trust_context: settings in the run's context may loosen the policy as well, not only tighten it
            (`InertiaSettings`).
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self,
        memory: ToolMemory,
        tools: Iterable[ToolLike],
        *,
        policy: InertiaPolicy | None = None,
        model: Any = None,
        messages_key: str = "messages",
        goto: tuple[str, str] | None = None,
        prefetch: bool | Prefetch = False,
        trust_context: bool = False,
        name: str | None = None,
    ) -> None:
        method = method_of(memory, Inertia, "InertiaShortcut")
        given = list(tools) if isinstance(tools, Iterator) else tools
        method.core.catalogue.hear(read_tools(given))
        # As a ``ToolNode`` takes them; schemas, dicts and classes, cannot be executed.
        functions = (each if isinstance(each, BaseTool) or not isroutine(each) else tool(each) for each in given)
        self._executed = [each for each in functions if isinstance(each, BaseTool)]
        models = () if model is None else (model,)
        self.step: Shortcut
        shortcut = Shortcut(method, policy=policy, models=models, trust_context=trust_context)
        super().__init__(shortcut, messages_key=messages_key, name=name)
        self.step.run_ahead(prefetch, messages_key=messages_key)
        if goto is not None and len(tuple(goto)) != 2:
            raise ConfigurationError('goto is a pair of node names such as ("tools", "agent").')
        self.goto = goto

    def add_to(
        self,
        builder: StateGraph[Any, Any, Any, Any],
        name: str | None = None,
        *,
        tools: str | None = None,
        agent: str | None = None,
        **options: Any,
    ) -> None:
        """Adds the node, and with `tools` and `agent` its conditional edge, both labelled for Studio.

        Args:
            builder: the graph.
            name: of the node; "inertia" if None.
            tools: name of the node that executes calls.
            agent: name of the node that calls the model. Not with `goto`, which names them already.
            options: of ``add_node``.

        Raises:
            ConfigurationError: only one of `tools` and `agent`, or both and `goto` too.
        """
        if (tools is None) != (agent is None):
            raise ConfigurationError("add_to takes tools and agent together, or neither.")
        if tools is not None and self.goto is not None:
            raise ConfigurationError("The node goes on by goto already; give add_to no tools and agent.")
        if self.goto is not None:
            options.setdefault("destinations", self.destinations)
        super().add_to(builder, name, **options)
        if tools is not None and agent is not None:
            way_on = partial(shortcut_condition, messages_key=self.messages_key, tools=_SHORTCUT, agent=_ASK)
            builder.add_conditional_edges(name or self.role, way_on, {_SHORTCUT: tools, _ASK: agent})

    @property
    def destinations(self) -> dict[str, str]:
        """For ``add_node(..., destinations=node.destinations)`` with `goto`: node → edge label."""
        return {} if self.goto is None else {self.goto[0]: _SHORTCUT, self.goto[1]: _ASK}

    def call_of(self, state: Any, config: RunnableConfig | None) -> Call:
        """Return the model call that comes after this node."""
        call = super().call_of(state, config)
        call.offered = self._executed
        return call

    def update(self, call: Call, said: StepOutput) -> Any:
        """The call in the messages, and the way on."""
        if said.answer is None:
            if self.step.ahead is not None and env_mode.shows():
                self.step.ahead.begin_unseen(call)
            return self.passed()
        update = {self.messages_key: [said.answer]}
        return update if self.goto is None else Command(goto=self.goto[0], update=update)

    def passed(self) -> Any:
        """The model is asked."""
        return None if self.goto is None else Command(goto=self.goto[1])


def shortcut_condition(
    state: Any, *, messages_key: str = "messages", tools: str = "tools", agent: str = "agent"
) -> Literal["tools", "agent"] | str:
    """The way on from an `InertiaShortcut`, like ``tools_condition``: to the tools if it made a call.

    Use ``functools.partial(shortcut_condition, tools=…, agent=…)`` for nodes with other names.
    """
    messages = read_key(state, messages_key) or ()
    last = messages[-1] if messages else None
    marked = isinstance(last, AIMessage) and isinstance(last.additional_kwargs.get(MARK), Mapping)
    return tools if marked and isinstance(last, AIMessage) and last.tool_calls else agent
