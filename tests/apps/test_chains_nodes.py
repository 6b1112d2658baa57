"""`ToolRetriever`, `offered_tools` and the search tool in real graphs: ToolNode, checkpoints, interrupts, shortcuts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from agents import WAYS
from crowd import DESK, NOTE, calling, crowd, crowded, knowing, offers, plain, steps
from desk import EAGER, Desk, request, script, thread
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.nodes import InertiaShortcut, MemoryState, ToolRetriever, offered_tools, shortcut_condition
from langgraph_toolmem.runs.run import SEARCH_TOOL
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.hints import HintState, SelectedState, new_left_out

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)
DO_NOTE = [
    ("find_customer", {"name": "Ann"}),
    ("latest_order", {"customer_id": "C-1"}),
    ("add_note", {"order_id": "O-1", "note": "checked"}),
]
SEARCHED = [(SEARCH_TOOL, {"query": "archive a vehicle"}), ("archive_vehicle", {"vehicle_id": "7"})]


@pytest.fixture
def tools(desk: Desk) -> list[BaseTool]:
    return crowded(desk)


@pytest.fixture
def memory(tools: list[BaseTool]) -> Iterator[ToolMemory]:
    with knowing(tools) as made:
        yield made


class Other(HintState, SelectedState):
    """A state with another key for the messages."""

    chat: Annotated[list[BaseMessage], add_messages]


class Agent:
    """A graph as the docstring of `ToolRetriever` shows it."""

    def __init__(
        self,
        retriever: ToolRetriever,
        tools: list[BaseTool],
        model: Any,
        *,
        state: Any = MemoryState,
        key: str = "messages",
        shortcut: InertiaShortcut | None = None,
        checkpointer: Any = None,
    ) -> None:
        self.model = asked = ScriptedChatModel(script=model)
        self.key = key
        at_hand = [*tools, retriever.tool]

        def call(state: Any) -> dict[str, Any]:
            bound = asked.bind_tools(offered_tools(state, at_hand, messages_key=key))
            return {key: [bound.invoke(state[key])]}

        async def acall(state: Any) -> dict[str, Any]:
            bound = asked.bind_tools(offered_tools(state, at_hand, messages_key=key))
            return {key: [await bound.ainvoke(state[key])]}

        builder: Any = StateGraph(state)
        retriever.add_to(builder)
        builder.add_node("agent", RunnableLambda(call, acall))
        builder.add_node("tools", ToolNode(at_hand, handle_tool_errors=True, messages_key=key))
        builder.add_edge(START, "chains")
        if shortcut is None:
            builder.add_edge("chains", "agent")
        else:
            builder.add_node("inertia", shortcut)
            builder.add_edge("chains", "inertia")
            builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
        builder.add_edge("tools", "chains")
        builder.add_conditional_edges("agent", lambda state: tools_condition(state, messages_key=key))
        self.graph: Any = builder.compile(checkpointer=checkpointer or InMemorySaver())

    async def ask(self, payload: Any, way: str) -> dict[str, Any]:
        if isinstance(payload, str):
            payload = {self.key: [HumanMessage(payload)]}
        if way == "sync":
            state: dict[str, Any] = self.graph.invoke(payload, thread("t"))
        else:
            state = await self.graph.ainvoke(payload, thread("t"))
        return state

    @property
    def offers(self) -> list[list[str]]:
        return offers(self.model)


@BOTH
async def test_the_model_gets_the_complete_chain(
    memory: ToolMemory, tools: list[BaseTool], desk: Desk, way: str
) -> None:
    agent = Agent(ToolRetriever(memory, tools, most=5), tools, steps(DO_NOTE))
    state = await agent.ask(NOTE, way)
    assert [name for name, _ in desk.done] == DESK
    assert {*DESK, SEARCH_TOOL} <= {*agent.offers[0]}
    assert len(agent.offers[0]) <= 6
    assert agent.offers == [agent.offers[0]] * 4
    assert state["toolmem_selected"]["tools"]["find_customer"].endswith("to latest_order on the way to add_note")


@BOTH
async def test_what_the_model_searches_for_joins_until_the_next_turn(
    memory: ToolMemory, tools: list[BaseTool], way: str
) -> None:
    agent = Agent(ToolRetriever(memory, tools, most=3), tools, steps(SEARCHED, []))
    state = await agent.ask(NOTE, way)
    answer = next(m for m in state["messages"] if isinstance(m, ToolMessage))
    assert "- archive_vehicle: Archive a vehicle. [fits the request (" in answer.text
    assert "archive_vehicle" not in agent.offers[0]
    assert all({"archive_vehicle", *DESK} <= {*names} for names in agent.offers[1:])
    await agent.ask("Find the customer Ben", way)
    assert "find_customer" in agent.offers[-1]
    assert len(agent.offers[-1]) <= 4


@BOTH
async def test_any_key_for_the_messages_and_a_state_of_ones_own(
    memory: ToolMemory, tools: list[BaseTool], way: str
) -> None:
    retriever = ToolRetriever(memory, tools, most=3, messages_key="chat")
    agent = Agent(retriever, tools, steps(SEARCHED), state=Other, key="chat")
    state = await agent.ask(NOTE, way)
    assert state["chat"][-1].text == "Done."
    assert "archive_vehicle" in agent.offers[1]


@BOTH
async def test_a_state_without_the_key_gets_all_tools(memory: ToolMemory, tools: list[BaseTool], way: str) -> None:
    agent = Agent(ToolRetriever(memory, tools, most=3), tools, steps([]), state=MessagesState)
    await agent.ask(NOTE, way)
    assert agent.offers == [[tool.name for tool in tools]]


@BOTH
async def test_few_tools_are_left_alone(memory: ToolMemory, tools: list[BaseTool], way: str) -> None:
    agent = Agent(ToolRetriever(memory, tools, most=len(tools)), tools, steps([]))
    await agent.ask(NOTE, way)
    assert agent.offers == [[tool.name for tool in tools]]


@BOTH
async def test_a_failure_brings_the_tools_of_another_way_once(desk: Desk, way: str) -> None:
    def broken(name: str) -> str:
        raise OSError("down")

    finder, *rest = desk.tools
    there = plain(finder.name, finder.description, "name", func=broken)
    other = plain("search_customers", "Directory.", "name", func=lambda name: '{"customer_id": "C-1"}')
    tools = [*crowd(), there, other, *rest]
    searched: list[str] = []
    with knowing(tools) as memory:
        real = memory.navigator.search
        memory.navigator.search = lambda query, **more: (searched.append(query), real(query, **more))[1]  # type: ignore[method-assign]
        retriever = ToolRetriever(memory, tools, most=3, targets=1)
        agent = Agent(retriever, tools, steps([DO_NOTE[0], ("search_customers", {"name": "Ann"}), *DO_NOTE[1:]]))
        state = await agent.ask(NOTE, way)
    assert {*agent.offers[0]} == {*DESK, SEARCH_TOOL}
    assert all({*names} == {*DESK, SEARCH_TOOL, "search_customers"} for names in agent.offers[1:])
    assert len(searched) == 1, "after the failure, only another way is looked for"
    assert state["messages"][-1].text == "Done."


@BOTH
async def test_what_was_found_survives_a_pause_and_another_process(desk: Desk, way: str) -> None:
    def asks(vehicle_id: str) -> str:
        return str(interrupt({"archive": vehicle_id}))

    tools = [tool for tool in crowded(desk) if tool.name != "archive_vehicle"]
    tools.append(plain("archive_vehicle", "Archive a vehicle.", "vehicle_id", func=asks))
    saver = InMemorySaver()

    def agent() -> Agent:
        return Agent(ToolRetriever(knowing(tools), tools, most=3), tools, steps(SEARCHED), checkpointer=saver)

    first = agent()
    assert "__interrupt__" in await first.ask(NOTE, way)
    second = agent()
    state = await second.ask(Command(resume="yes"), way)
    assert [m.text for m in state["messages"][-2:]] == ["yes", "Done."]
    assert {*second.offers[0]} >= {"archive_vehicle", *DESK}


@BOTH
async def test_a_shortcut_goes_only_to_what_is_offered(desk: Desk, way: str) -> None:
    tools = crowded(desk)
    made: dict[str, int] = {}
    for kind, search in (("all", None), ("none", lambda query, **more: [])):
        with knowing(tools, 30) as memory:
            if search is not None:
                memory.navigator.search = search  # type: ignore[method-assign, assignment]
            retriever = ToolRetriever(memory, tools, most=4)
            agent = Agent(retriever, tools, script, shortcut=InertiaShortcut(memory, policy=EAGER))
            state = await agent.ask(request("Ann"), way)
            marked = [m for m in state["messages"] if isinstance(m, AIMessage) and "toolmem" in m.additional_kwargs]
            made[kind] = len(marked)
            assert [name for name, _ in desk.done[-3:]] == DESK
    # Where nothing fits, only calls that the model made itself are offered, and each is made once.
    assert made == {"all": 3, "none": 0}


@BOTH
async def test_what_preferences_leave_out_is_in_no_chain(memory: ToolMemory, tools: list[BaseTool], way: str) -> None:
    retriever = ToolRetriever(memory, tools, most=5)
    messages = [HumanMessage(NOTE, id="1")]
    state: Any = {"messages": messages, **new_left_out({"find_customer": "why"}, messages)}
    update = retriever.invoke(state) if way == "sync" else await retriever.ainvoke(state)
    assert "find_customer" not in update["toolmem_selected"]["tools"]
    assert "add_note" in update["toolmem_selected"]["tools"]
    left = offered_tools({**state, **update}, [*tools, {"type": "web_search"}])
    assert {"type": "web_search"} in left
    assert "find_customer" not in [getattr(tool, "name", "") for tool in left]


@BOTH
async def test_when_the_look_up_fails_all_tools_are_offered(
    memory: ToolMemory,
    tools: list[BaseTool],
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def search(query: str, **more: Any) -> Any:
        raise StorageError("down")

    monkeypatch.setattr(memory.navigator, "search", search)
    agent = Agent(ToolRetriever(memory, tools, most=5), tools, steps(DO_NOTE))
    state = await agent.ask(NOTE, way)
    assert state["messages"][-1].text == "Done."
    assert agent.offers == [[tool.name for tool in tools]] * 4
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


async def test_the_event_tells_what_is_offered_and_why(memory: ToolMemory, tools: list[BaseTool]) -> None:
    agent = Agent(ToolRetriever(memory, tools, most=3, targets=1), tools, steps(DO_NOTE))
    feed = {"messages": [HumanMessage(NOTE)]}
    parts = [part["toolmem"] async for part in agent.graph.astream(feed, thread("e"), stream_mode="custom")]
    (event,) = parts
    assert (event["node"], event["of"], event["chains"], event["cut"]) == ("chains", len(tools), [DESK], [])
    assert {*event["offered"]} == {*DESK}


def test_several_searches_of_one_step_add_up(memory: ToolMemory, tools: list[BaseTool]) -> None:
    def both(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("Done.")
        return calling(messages, SEARCHED[0], (SEARCH_TOOL, {"query": "approve a room"}))

    agent = Agent(ToolRetriever(memory, tools, most=3), tools, both)
    agent.graph.invoke({"messages": [HumanMessage(NOTE)]}, thread("p"))
    assert {"archive_vehicle", "approve_room", *DESK} <= {*agent.offers[1]}


class Bare(TypedDict):
    """A state without messages."""

    text: str


def test_a_state_without_messages_is_passed_over(memory: ToolMemory, caplog: pytest.LogCaptureFixture) -> None:
    assert ToolRetriever(memory, crowd(), most=1).invoke(Bare(text="x")) is None
    assert "failed and is passed over" in caplog.text
