"""An app with the memory on a desk, as a graph of nodes or as an agent with middleware, run sync or async."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from desk import EAGER, NAMES, Desk, call_id, request, script
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from trained import knowing_desk

from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.extend import StepNode
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import (
    InertiaShortcut,
    LoopGuard,
    MemoryState,
    Recorder,
    ToolRetriever,
    guided_tools,
    loop_guard_condition,
    messages_with_hints,
    shortcut_condition,
)
from langgraph_toolmem.testing import ScriptedChatModel

WAYS = ("sync", "async")


@dataclass
class App:
    """A compiled graph with its model and its desk, whatever it was made of."""

    graph: Any
    model: Any
    desk: Any
    memory: Any = None

    async def ask(self, payload: Any, way: str = "sync", *, thread: str = "t", **configurable: Any) -> dict[str, Any]:
        """Runs it with what a user says, a state or a Command; the state it ends or pauses with."""
        payload, config = _request(payload), _config(thread, configurable)
        if way == "sync":
            found: dict[str, Any] = self.graph.invoke(payload, config)
        else:
            found = await self.graph.ainvoke(payload, config)
        return found

    async def run(self, number: int, way: str = "async", *, thread: str | None = None) -> dict[str, Any]:
        """One request; the name goes round, and each number has a thread of its own unless one is given."""
        return await self.ask(asked(number), way, thread=thread or f"thread-{number}")

    @property
    def model_calls(self) -> int:
        """How often the model was really asked."""
        return len(self.model.calls)

    async def parts(self, payload: Any, way: str, *modes: str, thread: str = "t", **configurable: Any) -> list[Any]:
        """What a run streams, each with its mode."""
        payload, config = _request(payload), _config(thread, configurable)
        if way == "sync":
            return list(self.graph.stream(payload, config, stream_mode=list(modes)))
        return [part async for part in self.graph.astream(payload, config, stream_mode=list(modes))]

    async def events(self, payload: Any, way: str, node: str = "", **where: Any) -> list[dict[str, Any]]:
        """The memory's stream events of a run; those of a node."""
        told = [part["toolmem"] for _, part in await self.parts(payload, way, "custom", **where)]
        return [event for event in told if node in ("", event["node"])]

    def systems(self) -> list[list[SystemMessage]]:
        """The system messages of each model call."""
        return [[m for m in call.messages if isinstance(m, SystemMessage)] for call in self.model.calls]

    def hints(self) -> list[str]:
        """The one system message of each model call, "" where there was none."""
        assert all(len(each) <= 1 for each in self.systems())
        return ["".join(m.text for m in each) for each in self.systems()]

    def state(self, thread: str = "t") -> dict[str, Any]:
        """What is kept of a thread."""
        values: dict[str, Any] = self.graph.get_state(_config(thread, {})).values
        return values


def asked(number: int) -> dict[str, list[BaseMessage]]:
    """What a user hands in."""
    return {"messages": [HumanMessage(request(NAMES[number % len(NAMES)]), id=call_id("user", number))]}


def _request(payload: Any) -> Any:
    return {"messages": [HumanMessage(payload)]} if isinstance(payload, str) else payload


def _config(thread: str, configurable: Mapping[str, Any]) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, **configurable}, "recursion_limit": 40}


def _model(says: Any) -> Any:
    return ScriptedChatModel(script=says) if callable(says) or isinstance(says, list) else says


def graph_of(
    memory: ToolMemory,
    desk: Any,
    says: Any,
    *nodes: StepNode,
    more_tools: Any = (),
    shortcut: bool | InertiaPolicy = False,
    guard: bool = False,
    first: Any = None,
    schema: Any = MemoryState,
    **compiled: Any,
) -> App:
    """A graph of `first`, shortcut, the nodes, the model, guard and tools, and a recorder at the end."""
    model, tools = _model(says), [*desk.tools, *more_tools]
    retriever = next((node for node in nodes if isinstance(node, ToolRetriever)), None)

    def agent(state: Any) -> Any:
        prompt = messages_with_hints(state, model)
        if retriever is not None:
            offer = retriever.offer(prompt, model)
            return {"messages": [retriever.take(model.bind_tools(offer.tools).invoke(offer.messages))]}
        return {"messages": [model.bind_tools(guided_tools(state, tools)).invoke(prompt)]}

    builder: Any = StateGraph(schema)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    builder.add_node("recorder", Recorder(memory))
    builder.add_edge("recorder", END)
    begin = "agent"
    for node in reversed(nodes):
        node.add_to(builder)
        builder.add_edge(node.role, begin)
        begin = node.role
    if shortcut:
        policy = None if shortcut is True else shortcut
        builder.add_node("inertia", InertiaShortcut(memory, tools, policy=policy))
        builder.add_conditional_edges("inertia", partial(shortcut_condition, agent=begin), ["tools", begin])
        begin = "inertia"
    builder.add_edge("tools", begin)
    if first is not None:
        builder.add_node("first", first)
        builder.add_edge("first", begin)
        begin = "first"
    builder.add_edge(START, begin)
    if guard:
        LoopGuard(memory).add_to(builder, "guard")
        builder.add_edge("agent", "guard")
        way_on = partial(loop_guard_condition, end="recorder")
        builder.add_conditional_edges("guard", way_on, ["agent", "tools", "recorder"])
    else:
        builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "recorder"})
    return App(builder.compile(**{"checkpointer": InMemorySaver(), **compiled}), model, desk)


def agent_of(
    memory: ToolMemory | None,
    desk: Any,
    says: Any,
    *,
    made: Mapping[str, Any] | None = None,
    before: Sequence[Any] = (),
    outer: Sequence[Any] = (),
    **features: Any,
) -> App:
    """An agent with the memory's middleware; without a memory, it is what the host had before.

    `made` are options of ``create_agent``, `before` is the host's middleware before the memory's.
    """
    model, options = _model(says), {"tools": desk.tools, "checkpointer": InMemorySaver(), **(made or {})}
    ours = list(outer)
    if memory is not None:
        ours = tool_memory_middleware(memory, outer=ours, **{"shortcut": False, **features})
    return App(create_agent(model, middleware=[*before, *ours], **options), model, desk, memory)


def build_agent(
    memory: ToolMemory | None,
    desk: Desk | None = None,
    *,
    before: Sequence[Any] = (),
    outer: Sequence[Any] = (),
    model: Any = None,
    policy: InertiaPolicy | bool = EAGER,
    prefetch: Any = False,
    **made: Any,
) -> App:
    """An agent on the order desk, with its script as the model, and a shortcut."""
    features = {"before": before, "outer": outer, "shortcut": policy, "prefetch": prefetch}
    return agent_of(memory, desk or Desk(), model or script, made=made, **features)


def reading_all(folder: Path) -> ToolMemory:
    return ToolMemory(folder, Desk().tools, reads={"*"})


def both(
    outer: Callable[[], Sequence[Any]] = tuple,
    *,
    desk: Callable[[], Desk] = Desk,
    memory: ToolMemory | None = None,
    model: Callable[[], Any] | None = None,
    **options: Any,
) -> tuple[App, App]:
    """Two equal agents, the first with a memory that knows the desk, the second without."""
    ours = desk()
    if memory is None:
        memory = knowing_desk(24, reading_all, "all methods, all tools read")
    with_memory = build_agent(memory, ours, outer=outer(), model=model and model(), **options)
    return with_memory, build_agent(None, desk(), outer=outer(), model=model and model(), **options)


def same_calls(with_memory: Desk, without: Desk, *, ordered: bool = True) -> None:
    """The same tools were executed with the same arguments, in the same order (parallel calls have none)."""
    assert without.done, "nothing was executed: nothing is compared"
    ours, theirs = with_memory.done, without.done
    if not ordered:
        ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
    assert ours == theirs
