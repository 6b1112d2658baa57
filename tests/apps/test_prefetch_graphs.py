"""Look-ups that run ahead in plain graphs, ``create_react_agent`` and with MCP tools."""

from __future__ import annotations

import asyncio
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from agents import WAYS, asked
from desk import NAMES, Desk, asker, expected, script, thread, warm
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from places import ROOT

from langgraph_toolmem import Inertia, InertiaPolicy, Prefetch, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, ashortcut_model, shortcut_condition, shortcut_model
from langgraph_toolmem.testing import ScriptedChatModel

READS = InertiaPolicy(control={"add_note"}, shadow=True)
LIKELY = Prefetch(min_probability=0.5)


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=Desk().tools, methods=[Inertia(background=False)]) as opened:
        warm(opened, 16)
        yield opened


def graph_of(memory: ToolMemory, tools: list[BaseTool], model: Any = None) -> Any:
    """The graph of the README with a ToolNode that the recorder watches."""
    recorder = Recorder(memory)
    builder = StateGraph(MessagesState)
    builder.add_node("inertia", InertiaShortcut(memory, policy=READS, prefetch=LIKELY))
    builder.add_node("agent", asker((model or ScriptedChatModel(script=script)).bind_tools(tools)))
    watched = {"wrap_tool_call": recorder.wrap_tool_call, "awrap_tool_call": recorder.awrap_tool_call}
    builder.add_node("tools", ToolNode(tools, **watched))
    builder.add_node("recorder", recorder)
    builder.add_edge(START, "inertia")
    builder.add_edge("tools", "inertia")
    builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "recorder"})
    return builder.compile(checkpointer=InMemorySaver())


def told(memory: ToolMemory) -> dict[str, Any]:
    found: dict[str, Any] = memory.report().sections["inertia"].figures.get("prefetch", {})
    return found


async def ask(graph: Any, payload: Any, config: Any, way: str) -> Any:
    return graph.invoke(payload, config) if way == "sync" else await graph.ainvoke(payload, config)


def of_user(number: int, user: str | None = "ann") -> dict[str, Any]:
    config = thread(f"t{number}")
    if user is not None:
        config["configurable"]["user_id"] = user
    return config


@pytest.mark.parametrize("way", WAYS)
async def test_in_a_plain_graph_results_are_served_where_thread_user_and_message_are_known(
    memory: ToolMemory, way: str
) -> None:
    desk = Desk()
    graph = graph_of(memory, desk.tools)
    for number in range(3):
        state = await ask(graph, asked(number), of_user(number), way)
        assert state["messages"][-1].text == f"The order of {NAMES[number]} is checked."
    assert Counter(map(str, desk.done)) == Counter(str(step) for n in range(3) for step in expected(NAMES[n]))
    assert (told(memory)["started"], told(memory)["served"]) == (6, 6)


@pytest.mark.parametrize("config", [of_user(1, None), {"configurable": {"thread_id": "t", "user_id": ""}}])
def test_in_a_plain_graph_nothing_runs_ahead_where_it_is_not_known_whose_it_is(
    memory: ToolMemory, config: Any, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    with caplog.at_level(logging.WARNING):
        graph_of(memory, desk.tools).invoke(asked(1), config)
    assert told(memory) == {}
    assert sum("cannot be told whose result it is" in line for line in caplog.messages) == 1


def test_in_a_plain_graph_that_could_serve_nothing_it_ends_soon(
    memory: ToolMemory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langgraph_toolmem.inertia.prefetch.ahead.PATIENCE", 2)
    builder = StateGraph(MessagesState)
    builder.add_node("inertia", InertiaShortcut(memory, policy=READS, prefetch=LIKELY))
    builder.add_node("agent", asker(ScriptedChatModel(script=lambda *_: AIMessage("No.")).bind_tools(Desk().tools)))
    builder.add_node("tools", ToolNode(Desk().tools))
    builder.add_edge(START, "inertia")
    builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
    builder.add_conditional_edges("agent", tools_condition)
    graph = builder.compile(checkpointer=InMemorySaver())
    with caplog.at_level(logging.WARNING):
        for number in range(4):
            graph.invoke(asked(number), of_user(number))
    assert told(memory)["started"] == 2
    assert sum("no result could be served" in line for line in caplog.messages) == 1


async def test_in_plain_graphs_nobody_gets_anothers_result(memory: ToolMemory) -> None:
    """One thread id and one call id for all: only the users differ."""

    @tool
    def find_customer(name: str, config: RunnableConfig) -> str:
        """Find a customer by name."""
        return f"secret of {config['configurable']['user_id']}"

    def same_ids(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("Done.")
        made = {"name": "find_customer", "args": {"name": "Ann"}, "id": "call_0", "type": "tool_call"}
        return AIMessage("", tool_calls=[made])  # type: ignore[list-item]

    graphs = [graph_of(memory, [find_customer], ScriptedChatModel(script=same_ids)) for _ in range(12)]
    message = HumanMessage(asked(0)["messages"][0].text, id="one and the same")

    async def run(number: int) -> str:
        config = {"configurable": {"thread_id": "one", "user_id": f"user {number}"}}
        state = await graphs[number].ainvoke({"messages": [message]}, config)
        return str(state["messages"][2].content)

    answers = await asyncio.gather(*map(run, range(12)))
    assert answers == [f"secret of user {number}" for number in range(12)]
    assert told(memory)["served"] == 12


@pytest.mark.parametrize("way", WAYS)
async def test_with_create_react_agent(memory: ToolMemory, way: str) -> None:
    desk = Desk()
    recorder, model = Recorder(memory), ScriptedChatModel(script=script)
    node = ToolNode(desk.tools, wrap_tool_call=recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call)
    tools = list(node.tools_by_name.values())
    choose = shortcut_model if way == "sync" else ashortcut_model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = choose(memory, model, tools, policy=READS, prefetch=LIKELY)
        agent = create_react_agent(chosen, node, post_model_hook=recorder)
    for number in range(3):
        state = await ask(agent, asked(number), {}, way)
        assert state["messages"][-1].text == f"The order of {NAMES[number]} is checked."
    assert Counter(map(str, desk.done)) == Counter(str(step) for n in range(3) for step in expected(NAMES[n]))
    assert (told(memory)["started"], told(memory)["served"]) == (6, 6)


async def test_several_agents_on_one_memory_each_serve_their_own(memory: ToolMemory) -> None:
    desks = [Desk(), Desk()]
    own = [tool_memory_middleware(memory, shortcut=READS, prefetch=LIKELY) for _ in desks]
    model = ScriptedChatModel(script=script)
    agents = [create_agent(model, desk.tools, middleware=list(m)) for desk, m in zip(desks, own, strict=True)]
    await asyncio.gather(*(agent.ainvoke(asked(1)) for agent in agents))
    for desk in desks:
        assert Counter(map(str, desk.done)) == Counter(map(str, expected(NAMES[1])))
    assert told(memory)["served"] == 4


def test_in_a_subgraph(memory: ToolMemory) -> None:
    desk = Desk()
    middleware = tool_memory_middleware(memory, shortcut=READS, prefetch=LIKELY)
    agent = create_agent(ScriptedChatModel(script=script), desk.tools, middleware=middleware)
    builder = StateGraph(MessagesState)
    builder.add_node("inner", agent)
    builder.add_edge(START, "inner")
    builder.compile(checkpointer=InMemorySaver()).invoke(asked(1), thread("t"))
    assert Counter(map(str, desk.done)) == Counter(map(str, expected(NAMES[1])))
    assert told(memory)["served"] == 2


async def test_mcp_tools_run_in_the_loop_of_their_session(memory: ToolMemory) -> None:
    server: Any = {"transport": "stdio", "command": sys.executable, "args": ["-m", "examples.mcp_server"]}
    client = MultiServerMCPClient({"desk": {**server, "cwd": str(ROOT)}})
    async with client.session("desk") as session:
        tools = await load_mcp_tools(session)
        middleware = tool_memory_middleware(memory, shortcut=READS, prefetch=LIKELY)
        agent = create_agent(ScriptedChatModel(script=script), tools, middleware=middleware)
        state = await agent.ainvoke(asked(1))
    assert state["messages"][-1].text == f"The order of {NAMES[1]} is checked."
    assert (told(memory)["started"], told(memory)["served"]) == (1, 1)
