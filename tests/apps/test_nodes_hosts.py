"""The nodes in other people's graphs: routing by Command, other states, and a memory that breaks."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from desk import EAGER, NAMES, Desk, assert_answered, build, expected, request, run, script, shortcuts, thread, warm
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel
from typing_extensions import TypedDict

from langgraph_toolmem import Inertia, ToolMemory, inertia
from langgraph_toolmem.core.events import Events
from langgraph_toolmem.core.users import Users, user_digest
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn import host
from langgraph_toolmem.turn import node as turn_node

LOGGER = "langgraph_toolmem.nodes"


class Ledger(TypedDict):
    """Another key, and something else of the host's."""

    talk: Annotated[list[AnyMessage], add_messages]
    count: int


@dataclass
class Desktop:
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)


class Strict(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages]


def hosted(
    memory: ToolMemory, desk: Desk, schema: Any, key: str = "messages", *, nodes_key: str | None = None
) -> tuple[Any, ScriptedChatModel]:
    """An app whose state has any schema; the nodes get names of their own too."""
    model = ScriptedChatModel(script=script)

    def ask(state: Any) -> dict[str, Any]:
        messages = state[key] if isinstance(state, dict) else getattr(state, key)
        return {key: [model.invoke(messages)]}

    nodes_key = nodes_key or key
    builder = StateGraph(schema)
    builder.add_node("shortcut", InertiaShortcut(memory, policy=EAGER, messages_key=nodes_key))
    builder.add_node("llm", ask)
    builder.add_node("act", ToolNode(desk.tools, messages_key=key))
    builder.add_node("learn", Recorder(memory, messages_key=nodes_key))
    builder.add_edge(START, "shortcut")
    builder.add_edge("act", "shortcut")
    route = partial(shortcut_condition, messages_key=nodes_key, tools="act", agent="llm")
    builder.add_conditional_edges("shortcut", route, ["act", "llm"])
    builder.add_conditional_edges("llm", partial(tools_condition, messages_key=key), {"tools": "act", END: "learn"})
    builder.add_edge("learn", END)
    return builder.compile(), model


@pytest.mark.parametrize(("schema", "key"), [(Ledger, "talk"), (Desktop, "messages"), (Strict, "messages")])
async def test_any_state(desk: Desk, memory: ToolMemory, schema: Any, key: str) -> None:
    graph, model = hosted(memory, desk, schema, key)
    for i in range(16):
        feed = {key: [HumanMessage(request(NAMES[i % 12]))]}
        state = graph.invoke(feed) if i % 2 else await graph.ainvoke(feed)
        assert_answered(state[key])
    assert len(shortcuts(state[key])) == 3
    assert desk.done == [call for i in range(16) for call in expected(NAMES[i % 12])]
    assert memory.report().skipped == 64 - len(model.calls)
    assert set(state) <= {"talk", "count", "messages"}


async def test_a_state_without_the_key_asks_the_model(
    desk: Desk, memory: ToolMemory, caplog: pytest.LogCaptureFixture
) -> None:
    warm(memory)
    for schema, key in ((Ledger, "talk"), (Desktop, "messages"), (Strict, "messages")):
        caplog.clear()
        graph, model = hosted(memory, desk, schema, key, nodes_key="elsewhere")
        for i in range(3):
            feed = {key: [HumanMessage(request(NAMES[i]))]}
            state = graph.invoke(feed) if i % 2 else await graph.ainvoke(feed)
            assert not shortcuts(state[key])
        assert len(model.calls) == 12
        errors = [r for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(errors) == 2, "one for each node"
        assert all("messages_key" in r.getMessage() and "'elsewhere'" in r.getMessage() for r in errors)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_routing_by_command(desk: Desk, memory: ToolMemory, asynchronous: bool) -> None:
    node = InertiaShortcut(memory, policy=EAGER, goto=("tools", "agent"))
    model = ScriptedChatModel(script=script)
    builder = StateGraph(MessagesState)
    builder.add_node("inertia", node, destinations=node.destinations)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(desk.tools))
    builder.add_edge(START, "inertia")
    builder.add_edge("tools", "inertia")
    builder.add_conditional_edges("agent", tools_condition)
    graph = builder.compile(checkpointer=InMemorySaver())
    for i in range(16):
        feed = {"messages": [HumanMessage(request(NAMES[i % 12]))]}
        state = await graph.ainvoke(feed, thread(i % 2)) if asynchronous else graph.invoke(feed, thread(i % 2))
    assert_answered(state["messages"])
    assert memory.report().skipped == 64 - len(model.calls) >= 8
    assert desk.done == [call for i in range(16) for call in expected(NAMES[i % 12])]
    edges = {(e.source, e.target): e.data for e in graph.get_graph().edges}
    assert edges["inertia", "tools"] == "shortcut"
    assert edges["inertia", "agent"] == "ask the model"


def test_a_command_routed_node_that_fails_asks_the_model(
    desk: Desk, memory: ToolMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = InertiaShortcut(memory, goto=("tools", "agent"))
    monkeypatch.setattr(memory.inertia, "begin_turn", broken)
    command = node.invoke({"messages": [HumanMessage("x")]})
    assert command.goto == "agent"
    assert command.update is None


def test_the_nodes_are_described_in_the_drawing(desk: Desk, memory: ToolMemory) -> None:
    graph, _ = build(memory, desk.tools)
    edges = {(e.source, e.target) for e in graph.get_graph().edges}
    assert {("inertia", "tools"), ("inertia", "agent"), ("tools", "inertia"), ("recorder", "__end__")} <= edges


def test_a_subgraph_and_a_system_message(desk: Desk, memory: ToolMemory) -> None:
    inner, model = build(memory, desk.tools, policy=EAGER)
    outer = StateGraph(MessagesState)
    outer.add_node("inner", inner)
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=InMemorySaver())
    for i in range(14):
        feed = {"messages": [SystemMessage("You are kind."), HumanMessage(request(NAMES[i % 12]))]}
        state = graph.invoke(feed, thread(i))
    assert len(shortcuts(state["messages"])) == 3
    assert memory.report().skipped == 56 - len(model.calls)


# --- a memory that breaks ---


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("the memory is broken")


class ClockError(Exception):
    """An error whose text changes each time."""

    count = 0

    def __str__(self) -> str:
        ClockError.count += 1
        return f"problem number {ClockError.count}"


METHODS = (
    (Inertia, "begin_turn"),
    (Inertia, "decide"),
    (Events, "observe"),
    (Events, "learn"),
    (Users, "of"),
)


@pytest.mark.parametrize(("owner", "method"), METHODS, ids=[method for _, method in METHODS])
async def test_the_run_goes_on_when_the_memory_breaks(
    desk: Desk,
    memory: ToolMemory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: Any,
    method: str,
) -> None:
    warm(memory)
    graph, model = build(memory, desk.tools, policy=EAGER, checkpointer=InMemorySaver())
    monkeypatch.setattr(owner, method, broken)
    for i in range(4):
        if i % 2:
            state = run(graph, i)
        else:
            state = await graph.ainvoke({"messages": [HumanMessage(request(NAMES[i]))]}, thread(i))
        assert_answered(state["messages"])
    assert desk.done == [call for i in range(4) for call in expected(NAMES[i])]
    assert len(model.calls) == (16 if method != "observe" else 4)
    errors = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert 1 <= len(errors) <= 2, "once for each node"
    assert all("RuntimeError at test_nodes_hosts:" in r.getMessage() and not r.exc_info for r in errors)


def test_engine_and_disk_errors_do_not_reach_the_host(
    desk: Desk, memory: ToolMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph, model = build(memory, desk.tools, policy=EAGER)
    for target, name in ((memory.inertia, "turn"), (inertia, "open_turn"), (memory.core.store, "apply")):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, broken)
            assert_answered(run(graph, 0)["messages"])
    assert len(model.calls) == 12
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) <= 2


def test_a_stream_writer_that_fails_does_not_reach_the_host(
    desk: Desk, memory: ToolMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm(memory)
    graph, model = build(memory, desk.tools, policy=EAGER)
    monkeypatch.setattr(turn_node, "emit", broken)
    assert_answered(run(graph, 0)["messages"])
    assert len(model.calls) == 4


def test_errors_whose_texts_differ_are_logged_once(
    memory: ToolMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Recorder(memory)

    def fails(*_: Any, **__: Any) -> Any:
        raise ClockError

    monkeypatch.setattr(memory.core.events, "observe", fails)
    for _ in range(5):
        assert node.invoke({"messages": []}) is None
    assert len([r for r in caplog.records if r.name == LOGGER]) == 1


def test_an_interrupt_passes_through(memory: ToolMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupts(*_: Any, **__: Any) -> Any:
        raise GraphInterrupt

    monkeypatch.setattr(memory.inertia, "begin_turn", interrupts)
    with pytest.raises(GraphInterrupt):
        InertiaShortcut(memory).invoke({"messages": []})


async def test_messages_that_cannot_be_read_do_not_reach_the_host(
    memory: ToolMemory, caplog: pytest.LogCaptureFixture
) -> None:
    for node in (InertiaShortcut(memory), Recorder(memory)):
        for state in ({"messages": [object()]}, {"messages": 5}, {"messages": "hello"}, None, 3, {}):
            assert node.invoke(state) is None
            assert await node.ainvoke(state) is None


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_closed_memory_does_not_stop_the_host(
    desk: Desk, tmp_path: Path, on_disk: bool, caplog: pytest.LogCaptureFixture
) -> None:
    memory = ToolMemory(tmp_path / "m" if on_disk else None, tools=desk.tools)
    graph, _ = build(memory, desk.tools, policy=EAGER)
    run(graph, 0)
    memory.close()
    memory.close()
    before = (tmp_path / "m" / "graph.pickle").read_bytes() if on_disk else b""
    for i in range(1, 4):
        assert_answered(run(graph, i)["messages"])
    assert desk.done == [call for i in range(4) for call in expected(NAMES[i])]
    if on_disk:
        assert (tmp_path / "m" / "graph.pickle").read_bytes() == before
        with ToolMemory(tmp_path / "m", tools=desk.tools) as again:
            assert again.report().turns == 4


# --- without context variables, as in async nodes before Python 3.11 ---


async def test_the_config_tells_what_the_context_variables_do_not(
    desk: Desk, memory: ToolMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: Any) -> Any:
        raise RuntimeError("Called get_config outside of a runnable context")

    monkeypatch.setattr(host, "get_runtime", nothing)
    graph, _ = build(memory, desk.tools, policy=EAGER, checkpointer=InMemorySaver())
    for asynchronous in (False, True):
        feed = {"messages": [HumanMessage(request("Zoe"))]}
        options: dict[str, Any] = {"context": {"user_id": f"ann {asynchronous}"}, "stream_mode": "custom"}
        if asynchronous:
            events = [e async for e in graph.astream(feed, thread(asynchronous), **options)]
        else:
            events = list(graph.stream(feed, thread(asynchronous), **options))
        assert [e["toolmem"]["node"] for e in events] == ["inertia"] * 4 + ["recorder"]
        assert user_digest(f"ann {asynchronous}") in {case[1] for case in memory.core.graph.cases.cases.values()}


@pytest.mark.parametrize(
    "config", [None, {}, {"configurable": {}}, {"configurable": {"__pregel_runtime": "changed its shape"}}]
)
async def test_without_a_runtime_the_nodes_still_work(desk: Desk, memory: ToolMemory, config: Any) -> None:
    warm(memory, 24)
    node = InertiaShortcut(memory, policy=EAGER)
    state = {"messages": [HumanMessage(request("Zoe"))]}
    assert host.runtime_of(config) is None
    assert node.invoke(state, config)["messages"][0].tool_calls
    assert (await node.ainvoke(state, config))["messages"][0].tool_calls
