"""Tools chosen (``chains=``) in real ``create_agent`` agents: chains, failures, searches, people, other filters."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from agents import WAYS
from crowd import DESK, NOTE, calling, crowd, crowded, knowing, offers, plain, steps
from desk import EAGER, Desk, request, script, thread
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelRequest,
    TodoListMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import ToolRetriever
from langgraph_toolmem.runs.run import SEARCH_TOOL, SUMMARY_TOOL
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)
DO_NOTE = [
    ("find_customer", {"name": "Ann"}),
    ("latest_order", {"customer_id": "C-1"}),
    ("add_note", {"order_id": "O-1", "note": "checked"}),
]


@pytest.fixture
def tools(desk: Desk) -> list[BaseTool]:
    return crowded(desk)


@pytest.fixture
def memory(tools: list[BaseTool]) -> Iterator[ToolMemory]:
    with knowing(tools) as made:
        yield made


def chains(memory: ToolMemory, *, inside: Sequence[Any] = (), **options: Any) -> list[Any]:
    return tool_memory_middleware(memory, inside=inside, shortcut=False, chains=ToolRetriever(memory, **options))


class Agent:
    """An agent with many tools; `offers` are the tools that each model call got."""

    def __init__(self, tools: Sequence[Any], middleware: Sequence[Any], model: Any, **options: Any) -> None:
        self.model = ScriptedChatModel(script=model)
        options.setdefault("checkpointer", InMemorySaver())
        self.graph: Any = create_agent(self.model, list(tools), middleware=list(middleware), **options)

    async def ask(self, payload: Any, way: str, name: str = "t") -> dict[str, Any]:
        if isinstance(payload, str):
            payload = {"messages": [HumanMessage(payload)]}
        if way == "sync":
            state: dict[str, Any] = self.graph.invoke(payload, thread(name))
        else:
            state = await self.graph.ainvoke(payload, thread(name))
        return state

    async def events(self, text: str, way: str) -> list[dict[str, Any]]:
        feed = {"messages": [HumanMessage(text)]}
        if way == "sync":
            parts = list(self.graph.stream(feed, thread("events"), stream_mode="custom"))
        else:
            parts = [part async for part in self.graph.astream(feed, thread("events"), stream_mode="custom")]
        return [part["toolmem"] for part in parts if part["toolmem"]["node"] != "recorder"]

    @property
    def offers(self) -> list[list[str]]:
        return offers(self.model)


# --- what is offered ---


@BOTH
async def test_the_model_gets_the_complete_chain(
    memory: ToolMemory, tools: list[BaseTool], desk: Desk, way: str
) -> None:
    agent = Agent(tools, chains(memory, most=5), steps(DO_NOTE))
    await agent.ask(NOTE, way)
    assert [name for name, _ in desk.done] == DESK
    first = agent.offers[0]
    assert {*DESK, SEARCH_TOOL} <= {*first}
    assert len(first) <= 6
    assert first == [SEARCH_TOOL, *(tool.name for tool in tools if tool.name in first)]  # in their order
    assert agent.offers == [first] * 4  # a provider's prompt cache holds


@BOTH
async def test_few_tools_are_left_alone(memory: ToolMemory, tools: list[BaseTool], way: str) -> None:
    agent = Agent(tools, chains(memory, most=len(tools)), steps([]))
    await agent.ask(NOTE, way)
    assert agent.offers == [[tool.name for tool in tools]]


@BOTH
async def test_where_nothing_fits_there_is_the_search_tool_or_else_everything(
    memory: ToolMemory, tools: list[BaseTool], way: str
) -> None:
    for search, expected in ((True, [SEARCH_TOOL]), (False, [tool.name for tool in tools])):
        agent = Agent(tools, chains(memory, most=5, search_tool=search), steps([]))
        await agent.ask("quantum chromodynamics", way)
        assert agent.offers == [expected]


@BOTH
async def test_the_memory_learns_of_tools_from_the_agent(tools: list[BaseTool], way: str) -> None:
    with ToolMemory.ephemeral() as memory:
        agent = Agent(tools, chains(memory, most=5), steps([]))
        await agent.ask("Archive a vehicle", way)
        assert "archive_vehicle" in agent.offers[0]
        assert len(agent.offers[0]) <= 6


@BOTH
async def test_a_turn_is_looked_up_once_and_the_next_one_anew(
    memory: ToolMemory, tools: list[BaseTool], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    real = memory.navigator.search

    def search(query: str, **more: Any) -> Any:
        searched.append(query)
        return real(query, **more)

    monkeypatch.setattr(memory.navigator, "search", search)
    agent = Agent(tools, chains(memory, most=5), steps(DO_NOTE, []))
    await agent.ask(NOTE, way)
    await agent.ask("Archive a vehicle", way)
    assert searched == [NOTE, "Archive a vehicle"]
    assert "archive_vehicle" in agent.offers[-1]
    # What was called before in the run may be wanted again, as far as there is room.
    assert {*DESK} & {*agent.offers[-1]}
    assert len(agent.offers[-1]) <= 6


@BOTH
async def test_tools_called_without_being_offered_stay(memory: ToolMemory, tools: list[BaseTool], way: str) -> None:
    agent = Agent(tools, chains(memory, most=3), steps([("approve_room", {"room_id": "7"})]))
    await agent.ask(NOTE, way)
    assert "approve_room" not in agent.offers[0]
    assert "approve_room" in agent.offers[1]
    assert len(agent.offers[1]) == len(agent.offers[0]) + 1 == 5


# --- failures ---


@BOTH
async def test_a_failure_brings_the_tools_of_another_way(desk: Desk, way: str) -> None:
    def broken(name: str) -> str:
        raise OSError("down")

    finder, *rest = desk.tools
    there = plain(finder.name, finder.description, "name", func=broken)
    other = plain("look_up_person", "Directory of people.", "name", func=lambda name: '{"customer_id": "C-1"}')
    tools = [*crowd(), there, other, *rest]
    with knowing(tools) as memory:
        for i in range(4):
            ask = [HumanMessage(f"Person {i}, please", id=f"p{i}")]
            first = calling(ask, ("look_up_person", {"name": f"P{i}"}))
            found = ToolMessage(f'{{"customer_id": "C-{i}55"}}', tool_call_id=first.tool_calls[0]["id"])
            second = calling([*ask, first, found], ("latest_order", {"customer_id": f"C-{i}55"}))
            memory.finish(
                [
                    *ask,
                    first,
                    found,
                    second,
                    ToolMessage("{}", tool_call_id=second.tool_calls[0]["id"]),
                    AIMessage("x"),
                ],
                thread_id=f"other-{i}",
            )
        agent = Agent(
            tools,
            chains(
                memory,
                inside=[ToolRetryMiddleware(max_retries=0, on_failure="continue")],
                most=6,
                targets=1,
            ),
            steps([("find_customer", {"name": "Ann"}), ("look_up_person", {"name": "Ann"})]),
        )
        events = await agent.events(NOTE, way)
        assert "find_customer" in agent.offers[0]
        assert "look_up_person" not in agent.offers[0]
        assert {"find_customer", "look_up_person", "latest_order", "add_note"} <= {*agent.offers[1]}
        assert events[0]["offered"].keys() >= {*DESK}
        assert events[1]["offered"]["look_up_person"].endswith("find_customer, which failed")
        assert agent.model.calls[1].messages[-1].text.count("down")


# --- asking for more ---

SEARCHED = [(SEARCH_TOOL, {"query": "archive a vehicle"}), ("archive_vehicle", {"vehicle_id": "7"})]


@BOTH
async def test_what_the_model_searches_for_joins_until_the_next_turn(
    memory: ToolMemory, tools: list[BaseTool], way: str
) -> None:
    agent = Agent(tools, chains(memory, most=3), steps([*SEARCHED, DO_NOTE[0]], []))
    state = await agent.ask(NOTE, way)
    answer = next(m for m in state["messages"] if isinstance(m, ToolMessage))
    assert answer.name == SEARCH_TOOL
    assert "- archive_vehicle: Archive a vehicle. [fits the request (" in answer.text
    assert "archive_vehicle" not in agent.offers[0]
    assert all("archive_vehicle" in names and {*DESK} <= {*names} for names in agent.offers[1:])
    assert "toolmem_selected" not in state
    await agent.ask("Where is the order of Ben?", way)
    assert "add_note" in agent.offers[-1] or "latest_order" in agent.offers[-1]
    assert len(agent.offers[-1]) <= 4
    view = memory.view()
    assert SEARCH_TOOL not in view.tools


@BOTH
async def test_what_was_found_survives_a_pause_and_another_process(desk: Desk, way: str) -> None:
    tools = crowded(desk)
    saver = InMemorySaver()

    def agent() -> Agent:
        return Agent(
            tools,
            [
                *tool_memory_middleware(
                    knowing(tools),
                    chains=3,
                    shortcut=False,
                    inside=[HumanInTheLoopMiddleware(interrupt_on={"archive_vehicle": True})],
                )
            ],
            steps(SEARCHED),
            checkpointer=saver,
        )

    first = agent()
    paused = await first.ask(NOTE, way)
    assert "__interrupt__" in paused
    second = agent()
    state = await second.ask(Command(resume={"decisions": [{"type": "approve"}]}), way)
    assert state["messages"][-1].text == "Done."
    assert "archive_vehicle" in second.offers[0]
    assert {*DESK} <= {*second.offers[0]}
    kept = second.graph.get_state(thread("t")).values["toolmem_selected"]["tools"]
    assert kept["archive_vehicle"].startswith('the model searched for "archive a vehicle": ')


@BOTH
async def test_a_search_that_finds_nothing_and_one_that_fails_say_so(
    memory: ToolMemory,
    tools: list[BaseTool],
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = [(SEARCH_TOOL, {"query": "chromodynamics"}), (SEARCH_TOOL, {"query": "break"})]
    real = memory.navigator.search

    def search(query: str, **more: Any) -> Any:
        if query == "break":
            raise StorageError("down")
        return real(query, **more)

    monkeypatch.setattr(memory.navigator, "search", search)
    agent = Agent(tools, chains(memory, most=3), steps(asked))
    state = await agent.ask(NOTE, way)
    answers = [m.text for m in state["messages"] if isinstance(m, ToolMessage)]
    assert answers[0].startswith("No tool fits these words.")
    assert answers[1].startswith("The tools could not be searched (StorageError).")
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


def test_the_search_tool_outside_a_graph_answers_in_words(memory: ToolMemory) -> None:
    tool = ToolRetriever(memory).tool
    assert "archive_vehicle" in tool.invoke({"query": "archive a vehicle"})
    schema: Any = tool.tool_call_schema
    assert list(schema.model_json_schema()["properties"]) == ["query"]


# --- what is never taken out ---


class Answer(BaseModel):
    """The structured answer."""

    text: str


@BOTH
async def test_provider_tools_structured_answers_and_always_stay(
    memory: ToolMemory, tools: list[BaseTool], way: str
) -> None:
    builtin = {"type": "web_search_preview"}

    def answer(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        return calling(messages, ("Answer", {"text": "yes"}))

    agent = Agent(
        [*tools, builtin],
        chains(memory, most=5, always=["approve_room", "nobody"]),
        answer,
        response_format=ToolStrategy(Answer),
    )
    seen = agent.model.calls
    state = await agent.ask(NOTE, way)
    assert state["structured_response"] == Answer(text="yes")
    names = [tool.get("function", tool).get("name", tool["type"]) for tool in seen[0].tools]
    assert {*DESK, "approve_room", "Answer", "web_search_preview", SEARCH_TOOL} <= {*names}
    assert len(names) <= 8


class Insists(AgentMiddleware[Any, Any, Any]):
    """Forces a tool."""

    def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        return handler(request.override(tool_choice="approve_room"))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        return await handler(request.override(tool_choice="approve_room"))


@BOTH
async def test_a_tool_that_the_request_insists_on_stays(memory: ToolMemory, tools: list[BaseTool], way: str) -> None:
    agent = Agent(tools, [Insists(), *chains(memory, most=3)], steps([]))
    await agent.ask(NOTE, way)
    assert "approve_room" in agent.offers[0]
    assert {*DESK} <= {*agent.offers[0]}


# --- with others ---


@BOTH
async def test_a_shortcut_goes_only_to_what_is_offered(desk: Desk, way: str) -> None:
    tools = crowded(desk)
    for always, expected in (([], 0), (DESK, 3)):
        with knowing(tools, 30) as memory:
            retriever = ToolRetriever(memory, most=4, always=always, targets=1)
            middleware = tool_memory_middleware(memory, shortcut=EAGER, chains=retriever)
            agent = Agent(tools, middleware, script)
            # The desk's own wording in front of a search that finds other tools only.
            memory.navigator.search = lambda query, **more: []  # type: ignore[method-assign]
            state = await agent.ask(request("Ann"), way)
            taken = [m for m in state["messages"] if isinstance(m, AIMessage) and "toolmem" in m.additional_kwargs]
            first = {call["name"] for m in taken for call in m.tool_calls}
            assert len(first) >= expected if expected else "find_customer" not in first


@BOTH
async def test_the_assembly_offers_the_tools_of_all_that_is_in_it(
    memory: ToolMemory, tools: list[BaseTool], way: str
) -> None:
    options: dict[str, Any] = {"preferences": True, "suggest": True, "inside": [TodoListMiddleware()]}
    agent = Agent(tools, tool_memory_middleware(memory, chains=4, **options), steps(DO_NOTE))
    await agent.ask(NOTE, way)
    assert {*DESK, "write_todos", SUMMARY_TOOL, SEARCH_TOOL} == {*agent.offers[0]}
    for chosen, expected in ((False, len(tools)), (True, 20 + len([SEARCH_TOOL]))):
        agent = Agent(tools, tool_memory_middleware(memory, chains=chosen), steps([]))
        await agent.ask("Create, update, archive, export or approve an invoice, a ticket, a room or a vehicle", way)
        assert len(agent.offers[0]) == expected


@BOTH
async def test_a_selector_inside_chooses_among_what_is_offered(
    memory: ToolMemory, tools: list[BaseTool], way: str
) -> None:
    seen: list[str] = []

    def select(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        seen.append(str(tools))
        return calling(messages, ("ToolSelectionResponse", {"tools": ["add_note"]}))

    chooser = LLMToolSelectorMiddleware(
        model=ScriptedChatModel(script=select), max_tools=1, always_include=["approve_room"]
    )
    agent = Agent(tools, tool_memory_middleware(memory, chains=5, shortcut=False, inside=[chooser]), steps([]))
    await agent.ask(NOTE, way)
    assert {*agent.offers[0]} == {"add_note", "approve_room"}
    assert "find_customer" in seen[0]
    assert "archive_vehicle" not in seen[0]


@BOTH
async def test_what_preferences_leave_out_is_in_no_chain(memory: ToolMemory, tools: list[BaseTool], way: str) -> None:
    class Without(AgentMiddleware[Any, Any, Any]):
        def _left(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
            return request.override(tools=[t for t in request.tools if getattr(t, "name", "") != "find_customer"])

        def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
            return handler(self._left(request))

        async def awrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
            return await handler(self._left(request))

    middleware = [Without(), *tool_memory_middleware(memory, shortcut=False, preferences=True, chains=5)]
    agent = Agent(tools, middleware, steps([(SEARCH_TOOL, {"query": "find a customer by name"})]))
    state = await agent.ask(NOTE, way)
    assert all("find_customer" not in names for names in agent.offers)
    assert "add_note" in agent.offers[0]
    assert "find_customer" not in state["messages"][2].text


# --- failing open ---


@BOTH
async def test_when_the_look_up_fails_all_tools_are_offered(
    memory: ToolMemory,
    tools: list[BaseTool],
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[str] = []

    def search(query: str, **more: Any) -> Any:
        asked.append(query)
        raise StorageError("down")

    monkeypatch.setattr(memory.navigator, "search", search)
    agent = Agent(tools, chains(memory, most=5), steps(DO_NOTE))
    state = await agent.ask(NOTE, way)
    assert state["messages"][-1].text == "Done."
    assert all({tool.name for tool in tools} <= {*names} for names in agent.offers)
    assert len(asked) == 1
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


@BOTH
async def test_one_event_tells_what_is_offered_and_why(memory: ToolMemory, tools: list[BaseTool], way: str) -> None:
    agent = Agent(tools, chains(memory, most=3, targets=1), steps([SEARCHED[0]]))
    first, searched, second = await agent.events(NOTE, way)
    assert first == {
        "node": "chains",
        "of": len(tools),
        "chains": [DESK],
        "cut": [],
        "offered": {
            "add_note": first["offered"]["add_note"],
            "latest_order": first["offered"]["latest_order"],
            "find_customer": first["offered"]["find_customer"],
        },
    }
    assert first["offered"]["find_customer"].endswith("to latest_order on the way to add_note")
    assert searched["node"] == SEARCH_TOOL
    assert searched["query"] == "archive a vehicle"
    assert "archive_vehicle" in searched["offered"]
    assert "archive_vehicle" in second["offered"]
