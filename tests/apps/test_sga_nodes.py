"""`SGAPlanner` and `SGAGuard` in real graphs, sync and async, with real checkpoints and a real chat client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from agents import WAYS
from desk import Desk, call_id, expected, history, request, script
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from planned import HEAD, OTHERS, OtherDesk, hint_of, obedient, patterns, plan_call, taught
from shells import App, graph_of

from langgraph_toolmem import Atoms, ToolMemory, default_methods
from langgraph_toolmem.nodes import (
    SGAGuard,
    SGAPlanner,
    SITSummary,
    guard_condition,
    guided_tools,
    memory_prompt,
)
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, make_chat_model
from langgraph_toolmem.turn.hints import HINTS, PLANNING, MemoryState, new_left_out, new_selected

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with taught() as made:
        yield made


def app_of(memory: ToolMemory, desk: Desk, says: Any = obedient, *, planning: Any = None, **how: Any) -> App:
    planner = SGAPlanner(memory, **{"tools": desk.tools, **(planning or {})})
    return graph_of(memory, desk, says, planner, **how)


# --- hints ---


@BOTH
async def test_without_atoms_nothing_is_said(way: str) -> None:
    with ToolMemory.ephemeral() as memory:
        app = app_of(memory, Desk())
        [event] = await app.events(request("Zoe"), way, "sga")
        assert app.hints() == [""]
        assert (event["shown"], event["candidates"]) == (0, [])
        assert event["why"] == "no atom of a tool at hand was found"


@BOTH
async def test_what_is_followed_to_success_is_booked(memory: ToolMemory, way: str) -> None:
    app = app_of(memory, Desk())
    state = await app.ask(request("Zoe"), way, thread="zoe")
    memory.finish(state["messages"], thread_id="zoe", success=True)
    memory.flush()
    ids = [hit.atom.id for hit in memory.atoms.search("check the order", slots=["CUSTOMER_ID", "ORDER_ID"])]
    records = list(memory.atoms.records(ids).values())
    assert all(record.retrieved >= record.followed >= record.succeeded for record in records)
    assert sum(record.succeeded for record in records) >= 2


async def test_the_hint_is_for_its_call_and_a_point_is_planned_once(memory: ToolMemory) -> None:
    app = app_of(memory, Desk())
    await app.ask(request("Zoe"), "sync")
    assert memory_prompt(app.state()) == []
    fresh = {"messages": [HumanMessage(request("Zoe"), id="u")]}
    planner = SGAPlanner(memory, tools=Desk().tools)
    update = planner.invoke(fresh)
    assert patterns(memory_prompt({**fresh, **update})[0].text)
    assert planner.invoke({**fresh, **update}) is None


# --- what is known ---


@BOTH
async def test_what_is_known_outlives_its_messages_and_the_app(memory: ToolMemory, way: str) -> None:
    """All messages of the first turn are removed, and the app is built anew."""
    saver = InMemorySaver()

    def stops(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        if sum(isinstance(m, ToolMessage) for m in messages) == 2:
            return AIMessage("Shall I mark it?")
        return obedient(messages, tools)

    desk = Desk()
    app = app_of(memory, desk, stops, checkpointer=saver)
    state = await app.ask(request("Zoe"), way)
    kept: Any = app.state()[PLANNING]
    assert kept["slots"]["ORDER_ID"] == [expected("Zoe")[2][1]["order_id"]]
    assert json.loads(json.dumps(kept)) == kept

    def trims(_: Any) -> Any:
        return {"messages": [RemoveMessage(id=m.id) for m in state["messages"]]}

    def last(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        told = [each for each in patterns(hint_of(messages)) if each[0] == "add_note"]
        if isinstance(messages[-1], ToolMessage) or not told:
            return AIMessage("Done." if told else "What order?")
        args = {"order_id": told[0][1]["order_id"], "note": "checked"}
        return AIMessage("", tool_calls=[{"name": "add_note", "args": args, "id": "call_note"}])

    again = app_of(memory, desk, last, checkpointer=saver, first=trims)
    await again.ask("Yes, please", way)
    assert desk.done == expected("Zoe")


@BOTH
async def test_a_state_without_room_goes_on_without(memory: ToolMemory, way: str) -> None:
    app = app_of(memory, Desk(), schema=MessagesState)
    state = await app.ask(request("Zoe"), way)
    assert state["messages"][-1].text == "I do not know how."


# --- only tools at hand ---


@BOTH
async def test_what_the_step_does_not_offer_gives_no_hint(memory: ToolMemory, way: str) -> None:
    def leaves_out(state: Any) -> Any:
        return new_left_out({"find_customer": "rated badly"}, state["messages"])

    def offers(state: Any) -> Any:
        return new_selected({"latest_order": "fits"}, state["messages"])

    for first, gone in ((leaves_out, {"find_customer"}), (offers, {"find_customer", "add_note"})):
        app = app_of(memory, Desk(), lambda messages, tools: AIMessage("Hi."), first=first)
        await app.ask(request("Zoe"), way)
        told = {name for name, _ in patterns(app.hints()[0])}
        assert told <= {"find_customer", "latest_order", "add_note"} - gone


async def test_without_tools_those_the_memory_knows_count(memory: ToolMemory) -> None:
    app = app_of(memory, Desk(), planning={"tools": None})
    await app.ask(request("Zoe"), "sync")
    assert app.desk.done == expected("Zoe")
    assert guided_tools({}, ["x"]) == ["x"]


# --- with a planner's model ---


@BOTH
async def test_a_planner_over_http_beside_the_agent(memory: ToolMemory, way: str) -> None:
    """One server answers both: the planner's form and the agent's prompt. The planner names the goal in other words."""
    goals = ["find the customer by name", "get the latest order", "add a note to the order", "tell the user"]

    def reply(body: dict[str, Any]) -> Any:
        plan = {"thought": "", "new_facts": [], "state": "", "available_slots": [], "next_goal": goals[len(asked)]}
        asked.append(body)
        return json.dumps(plan)

    asked: list[Any] = []
    with OpenAIStubServer(reply=reply) as server:
        model = make_chat_model(server)
        app = app_of(memory, OtherDesk(), planning={"model": model})
        told = await app.events(request("Zoe"), way, "sga")
        await model.root_async_client.close()
    assert app.desk.done == [(OTHERS[name], args) for name, args in expected("Zoe")]
    assert [event["goals"] for event in told] == [[goal] for goal in goals]
    assert [event["model_calls"] for event in told] == [1, 1, 1, 1]


@BOTH
async def test_the_planner_is_not_streamed_and_not_asked_where_nothing_can_be_found(
    memory: ToolMemory, way: str
) -> None:
    def plans(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        return plan_call(thought="between us", next_goal="find the customer")

    planner = ScriptedChatModel(script=plans)
    app = app_of(memory, Desk(), script, planning={"model": planner})
    parts = [part for _, (part, _) in await app.parts(request("Zoe"), way, "messages")]
    assert len(planner.calls) == 4
    assert "is checked" in "".join(part.text for part in parts)
    assert "between us" not in repr(parts)
    with ToolMemory.ephemeral() as empty:
        await app_of(empty, Desk(), script, planning={"model": planner}).ask(request("Zoe"), way)
    assert len(planner.calls) == 4


# --- the guard ---


class Stubborn:
    """A model that makes the first call again so many times, whatever it is told, and then answers."""

    def __init__(self, again: int) -> None:
        self.again = again
        self.told: list[str] = []

    def __call__(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        self.told.append(hint_of(messages))
        answers = sum(isinstance(m, ToolMessage) for m in messages)
        if answers > self.again:
            return AIMessage("Done.")
        made = call_id("again", answers, len(self.told))
        return AIMessage("", tool_calls=[{"name": "find_customer", "args": {"name": "Zoe"}, "id": made}])


@BOTH
async def test_a_repeat_is_sent_back_once_and_then_let_pass(memory: ToolMemory, way: str) -> None:
    model = Stubborn(again=2)
    app = app_of(memory, Desk(), model, guard=True)
    told = await app.events(request("Zoe"), way, "sga_guard")
    assert [event["outcome"] for event in told] == ["taken back", "passed"] * 2
    assert {each["rule"] for event in told for each in event["complaints"]} == {"repeat"}
    assert len(app.desk.done) == 3
    complained = ["was already called with these arguments" in text for text in model.told]
    assert complained == [False, False, True, False, True, False]
    assert [m.type for m in app.state()["messages"]] == ["human", "ai", "tool", "ai", "tool", "ai", "tool", "ai"]
    assert memory.report().turns == 24 + 4


@BOTH
async def test_a_model_that_listens_goes_another_way(memory: ToolMemory, way: str) -> None:
    def reply(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        if "failed with these arguments" in hint_of(messages):
            return AIMessage("I leave it.")
        return AIMessage("", tool_calls=[{"name": "broken", "args": {"x": 1}, "id": f"call_{len(messages)}"}])

    @tool
    def broken(x: int) -> str:
        """Never works."""
        raise ValueError("out of order")

    class Broken(Desk):
        @property
        def tools(self) -> Any:
            return [broken]

    app = app_of(memory, Broken(), reply, guard=True)
    state = await app.ask("Try it", way)
    assert [m.type for m in state["messages"]] == ["human", "ai", "tool", "ai"]
    assert state["messages"][-1].text == "I leave it."


async def test_a_guard_without_room_in_the_state_lets_everything_pass(memory: ToolMemory) -> None:
    app = app_of(memory, Desk(), Stubborn(again=1), guard=True, schema=MessagesState)
    await app.ask(request("Zoe"), "sync")
    assert len(app.desk.done) == 2
    assert len(app.model.calls) == 3


async def test_new_calls_and_words_pass(memory: ToolMemory) -> None:
    app = app_of(memory, Desk(), guard=True)
    assert await app.events(request("Zoe"), "sync", "sga_guard") == []
    assert app.desk.done == expected("Zoe")
    nothing: dict[str, Any] = {"messages": [], PLANNING: {}, HINTS: {}}
    assert SGAGuard(memory).invoke(nothing) is None
    assert guard_condition(nothing) == END


# --- beside others ---


async def test_beside_suggestions_both_stand_in_one_message(memory: ToolMemory) -> None:
    builder = StateGraph(MemoryState)
    SGAPlanner(memory, tools=Desk().tools).add_to(builder)
    SITSummary(memory).add_to(builder)
    builder.add_edge(START, "sga")
    builder.add_edge("sga", "sit")
    saver = InMemorySaver()
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": [HumanMessage(request("Zoe"))]}, config)  # type: ignore[call-overload]
    [message] = memory_prompt(graph.get_state(config).values)
    assert HEAD in message.text  # what both would say of one tool is said once
    assert message.text.count("find_customer") == 1


# --- failing open, users ---


@BOTH
async def test_users_see_their_own_atoms(way: str) -> None:
    tools = Desk().tools
    with ToolMemory.ephemeral(
        tools=tools, methods=default_methods(Atoms(keep=True)), namespace=("toolmem", "{user_id}")
    ) as memory:
        for i in range(4):
            memory.finish(history(i), thread_id=f"ann-{i}", success=True, user_id="ann")
        assert memory.flush()
        told = {}
        for user in ("ann", "bob"):
            app = app_of(memory, Desk(), script)
            event, *_ = await app.events(request("Zoe"), way, "sga", thread=user, user_id=user)
            told[user] = app.hints()[0], event
        assert HEAD in told["ann"][0], told["ann"][1]
        assert told["bob"][0] == ""
        memory.forget(user_id="ann")
        app = app_of(memory, Desk(), script)
        await app.ask(request("Zoe"), way, thread="again", user_id="ann")
        assert app.hints()[0] == ""
