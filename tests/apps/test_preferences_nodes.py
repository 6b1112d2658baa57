"""`PreferenceGuide` and `guided_tools` in real graphs: with a checkpointer, in the loop, users, sync and async."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from agents import WAYS
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from parcels import COURIER_DESK, NAMES, ParcelDesk, calling, dislike_fast, offered_in, past_run, rate, request, script

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.entries.preferences import tool_prefix
from langgraph_toolmem.nodes import (
    InertiaShortcut,
    LeftOutState,
    MemoryState,
    PreferenceGuide,
    guided_tools,
    memory_prompt,
    shortcut_condition,
)
from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.hints import LEFT_OUT, left_out_now, merge_left_out, new_left_out

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)
ALL = ["find_parcel", "fast_courier", "cheap_courier"]
LEFT = ["find_parcel", "cheap_courier"]


@pytest.fixture
def desk() -> ParcelDesk:
    return ParcelDesk()


@pytest.fixture
def memory(desk: ParcelDesk) -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=desk.tools) as made:
        yield made


class Graph:
    """The graph of the docstring; with `loop` the node stands in the loop."""

    def __init__(
        self,
        memory: ToolMemory,
        desk: ParcelDesk,
        *,
        loop: bool = False,
        state: Any = MemoryState,
        checkpointer: Any = ...,
        **options: Any,
    ) -> None:
        tools = desk.tools
        self.model = ScriptedChatModel(script=script)
        self.node = PreferenceGuide(memory, tools, **options)

        def agent(state: Any) -> Any:
            bound = self.model.bind_tools(guided_tools(state, tools))
            return {"messages": [bound.invoke([*memory_prompt(state), *state["messages"]])]}

        builder: StateGraph[Any, Any, Any, Any] = StateGraph(state)
        self.node.add_to(builder)
        builder.add_node("agent", agent)
        builder.add_node("tools", ToolNode(tools))
        builder.add_edge(START, "preferences")
        builder.add_edge("preferences", "agent")
        builder.add_conditional_edges("agent", tools_condition)
        builder.add_edge("tools", "preferences" if loop else "agent")
        self.graph = builder.compile(checkpointer=InMemorySaver() if checkpointer is ... else checkpointer)

    async def ask(self, name: str, way: str, *, thread: str = "t", **configurable: Any) -> dict[str, Any]:
        config: Any = {"configurable": {"thread_id": thread, **configurable}}
        feed = {"messages": [HumanMessage(request(name))]}
        found: dict[str, Any] = (
            self.graph.invoke(feed, config) if way == "sync" else await self.graph.ainvoke(feed, config)
        )
        return found

    @property
    def offers(self) -> list[list[str]]:
        return [offered_in(call.tools) for call in self.model.calls]


@BOTH
@pytest.mark.parametrize("loop", [False, True], ids=["before", "in-the-loop"])
async def test_a_tool_that_was_rated_badly_is_not_bound(
    memory: ToolMemory, desk: ParcelDesk, loop: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph(memory, desk, loop=loop)
    await graph.ask("Zoe", way)
    dislike_fast(memory)
    looks = []
    real = memory.entries.asking_preferences
    monkeypatch.setattr(memory.entries, "asking_preferences", lambda *a, **b: looks.append(1) or real(*a, **b))
    await graph.ask("Zoe", way)
    assert graph.offers == [ALL] * 3 + [LEFT] * 3
    assert desk.sent_by == ["fast_courier", "cheap_courier"]
    assert len(looks) == 1
    await graph.ask("Yan", way)
    assert len(looks) == 2


@BOTH
async def test_without_a_checkpointer(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    graph = Graph(memory, desk, checkpointer=None, loop=True)
    await graph.ask("Zoe", way)
    dislike_fast(memory)
    await graph.ask("Zoe", way)
    assert graph.offers == [ALL] * 3 + [LEFT] * 3


@BOTH
async def test_users_are_kept_apart(desk: ParcelDesk, way: str, caplog: pytest.LogCaptureFixture) -> None:
    with ToolMemory.ephemeral(tools=desk.tools, namespace=("toolmem", "{user_id}")) as memory:
        dislike_fast(memory, "ann")
        graph = Graph(memory, desk)
        await graph.ask("Zoe", way, thread="1", user_id="bob")
        await graph.ask("Zoe", way, thread="2", user_id="ann")
        assert graph.offers == [ALL] * 3 + [LEFT] * 3
        assert not caplog.records
        await graph.ask("Zoe", way, thread="3")
        assert graph.offers[6:] == [ALL] * 3
        assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


@BOTH
async def test_what_was_left_out_in_an_earlier_turn_is_offered_again(
    memory: ToolMemory, desk: ParcelDesk, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dislike_fast(memory)
    graph = Graph(memory, desk)
    await graph.ask("Zoe", way)

    def gone(*_: Any, **__: Any) -> Any:
        raise RuntimeError("gone")

    monkeypatch.setattr(memory.entries, "asking_preferences", gone)
    await graph.ask("Zoe", way)
    assert graph.offers == [LEFT] * 3 + [ALL] * 3, "the state still holds what was found for the first turn"
    assert "PreferenceGuide failed and is passed over" in caplog.text


@BOTH
async def test_the_model_may_be_told_instead(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    dislike_fast(memory)
    for how, offer, told in (("tell", ALL, ["avoid fast_courier"]), ("both", LEFT, []), ("leave_out", LEFT, [])):
        graph = Graph(memory, desk, how=how)
        await graph.ask("Zoe", way)
        assert graph.offers == [offer] * 3, how
        for call in graph.model.calls:
            systems = [m.text for m in call.messages if m.type == "system"]
            assert re.findall(r"^- (\w+ \w+):", "\n".join(systems), re.MULTILINE) == told, how


@BOTH
async def test_events_and_state(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    dislike_fast(memory)
    graph = Graph(memory, desk, loop=True)
    config: Any = {"configurable": {"thread_id": "t"}}
    feed: Any = {"messages": [HumanMessage(request("Zoe"))]}
    if way == "sync":
        parts = list(graph.graph.stream(feed, config, stream_mode="custom"))
    else:
        parts = [part async for part in graph.graph.astream(feed, config, stream_mode="custom")]
    [event] = [part["toolmem"] for part in parts]
    assert event["node"] == "preferences"
    assert event["left_out"] == {"fast_courier": "rated badly in 2 similar runs, well in none"}
    values = graph.graph.get_state(config).values
    assert values[LEFT_OUT]["tools"] == event["left_out"]
    assert json.loads(json.dumps(values[LEFT_OUT])) == values[LEFT_OUT]
    node = graph.graph.get_graph().nodes["preferences"]
    assert node.metadata is not None
    assert node.metadata["toolmem"] == "preferences"


@BOTH
async def test_domains(way: str) -> None:
    desk = ParcelDesk()
    names = {"find_parcel": "desk__find", "fast_courier": "courier__fast", "cheap_courier": "courier__cheap"}
    tools = [t.model_copy(update={"name": names[t.name]}) for t in desk.tools]
    with ToolMemory.ephemeral(tools=tools) as memory:
        memory.finish(past_run(0, "courier__fast"), thread_id="0", success=False, wait=True)
        memory.finish(past_run(1, "courier__cheap", name="Ben"), thread_id="1", success=False, wait=True)
        memory.finish(past_run(2, name="Cleo"), thread_id="2", success=True, wait=True)
        messages = [HumanMessage(request("Zoe"), id="1")]
        for domain_of, left in ((None, 3), (tool_prefix, 1)):
            node = PreferenceGuide(memory, tools, domain_of=domain_of)
            state = {"messages": messages}
            update = node.invoke(state) if way == "sync" else await node.ainvoke(state)
            assert len(guided_tools({**state, **update}, tools)) == left


def test_another_key_of_the_messages(memory: ToolMemory, desk: ParcelDesk) -> None:
    dislike_fast(memory)
    state = {"chat": [HumanMessage(request("Zoe"), id="1")]}
    update = PreferenceGuide(memory, desk.tools, messages_key="chat").invoke(state)
    assert [t.name for t in guided_tools({**state, **update}, desk.tools, messages_key="chat")] == LEFT
    assert len(guided_tools({**state, **update}, desk.tools)) == 3


def test_a_state_of_ones_own_takes_the_key(memory: ToolMemory, desk: ParcelDesk) -> None:
    class Own(MessagesState, LeftOutState):
        pass

    dislike_fast(memory)
    graph = Graph(memory, desk, state=Own)
    graph.graph.invoke({"messages": [HumanMessage(request("Zoe"))]}, {"configurable": {"thread_id": "t"}})
    assert graph.offers == [LEFT] * 3
    bare = Graph(memory, desk, state=MessagesState)
    bare.graph.invoke({"messages": [HumanMessage(request("Zoe"))]}, {"configurable": {"thread_id": "t"}})
    assert bare.offers == [ALL] * 3, "without room in the state nothing is left out"


# --- the helper alone ---


def state_with(*names: str) -> dict[str, Any]:
    messages: list[BaseMessage] = [HumanMessage("Hello", id="1")]
    return {"messages": messages, **new_left_out(dict.fromkeys(names, "rated badly"), messages)}


def test_tools_in_any_form() -> None:
    def fast(x: int) -> int:
        """Be fast."""
        return x

    forms = [
        {"type": "function", "function": {"name": "fast"}},
        {"name": "fast", "input_schema": {}},
        fast,
        {"type": "web_search"},
        {"type": "function", "function": {"name": "slow"}},
        3,
    ]
    assert guided_tools(state_with("fast"), forms) == forms[3:]
    assert guided_tools(state_with("other"), forms) == forms
    assert guided_tools({"messages": []}, forms) == forms
    assert guided_tools([HumanMessage("Hello")], forms) == forms


def test_something_is_always_left() -> None:
    tools = [{"name": "fast"}, {"name": "slow"}, {"name": SUMMARY_TOOL}]
    assert guided_tools(state_with("fast", "slow"), tools) == tools
    assert guided_tools(state_with("fast"), tools) == tools[1:]
    assert guided_tools(state_with("fast"), []) == []


def test_it_holds_until_the_user_speaks() -> None:
    state = state_with("fast")
    assert left_out_now(state) == {"fast": "rated badly"}
    state["messages"] += [AIMessage("", id="2"), AIMessage("Hi", id="3")]
    assert left_out_now(state) == {"fast": "rated badly"}
    assert left_out_now({**state, "messages": [*state["messages"], HumanMessage("And now?", id="4")]}) is None
    assert left_out_now({"messages": state["messages"]}) is None
    old, new = state_with("fast")[LEFT_OUT], state_with("slow")[LEFT_OUT]
    assert merge_left_out(old, new) == new
    assert merge_left_out(old, None) == old
    assert merge_left_out(None, None) is None


def test_one_bad_rating_is_no_preference(memory: ToolMemory, desk: ParcelDesk) -> None:
    rate(memory, True, "cheap_courier")
    rate(memory, False, "fast_courier")
    messages = [HumanMessage(request(NAMES[0]), id="1"), calling("find_parcel", {"name": NAMES[0]})]
    update = PreferenceGuide(memory, desk.tools).invoke({"messages": messages})
    assert left_out_now({"messages": messages, **update}) == {}


@BOTH
async def test_no_shortcut_goes_to_a_tool_that_is_left_out(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    for i in range(24):
        memory.observe(past_run(f"warm-{i}", "fast_courier", name=NAMES[i % len(NAMES)]), thread_id=f"warm-{i}")
    dislike_fast(memory)
    tools, made = desk.tools, {}
    for guided in (False, True):
        model = ScriptedChatModel(script=script)

        def agent(state: Any, model: Any = model) -> Any:
            return {"messages": [model.bind_tools(guided_tools(state, tools)).invoke(state["messages"])]}

        builder: StateGraph[Any, Any, Any, Any] = StateGraph(MemoryState)
        builder.add_node("inertia", InertiaShortcut(memory, policy=COURIER_DESK))
        builder.add_node("agent", agent)
        builder.add_node("tools", ToolNode(tools))
        builder.add_node("preferences", PreferenceGuide(memory, tools))
        builder.add_edge(START, "preferences" if guided else "inertia")
        builder.add_edge("preferences", "inertia")
        builder.add_edge("tools", "inertia")
        builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
        builder.add_conditional_edges("agent", tools_condition)
        graph: Any = builder.compile()
        feed = {"messages": [HumanMessage(request("Ann"))]}
        config: Any = {"configurable": {"thread_id": str(guided)}}
        state = graph.invoke(feed, config) if way == "sync" else await graph.ainvoke(feed, config)
        calls = [m for m in state["messages"] if isinstance(m, AIMessage) and m.tool_calls]
        made[guided] = [(m.tool_calls[0]["name"], "toolmem" in m.additional_kwargs) for m in calls]
    assert made[False] == [("find_parcel", True), ("fast_courier", True)]
    assert made[True] == [("find_parcel", True), ("cheap_courier", False)]


@BOTH
async def test_the_same_request_rated_twice_is_two_ratings(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    """By the user: that another one's run reads the same takes nothing away."""
    for i, (courier, good, user) in enumerate(
        [("fast_courier", False, "ann")] * 2 + [("cheap_courier", True, "ann"), ("fast_courier", False, "bob")]
    ):
        memory.finish(past_run(i, courier, name="Zoe"), thread_id=str(i), success=good, user_id=user, wait=True)
    graph = Graph(memory, desk)
    await graph.ask("Zoe", way, thread="1", user_id="ann")
    await graph.ask("Zoe", way, thread="2", user_id="bob")
    assert graph.offers == [LEFT] * 3 + [ALL] * 3
