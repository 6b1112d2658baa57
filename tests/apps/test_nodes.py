"""The nodes of the shortcut and the recorder in graphs: what is called without the model, and what is learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from desk import (
    EAGER,
    NAMES,
    Desk,
    assert_answered,
    build,
    call_id,
    expected,
    request,
    run,
    shortcuts,
    thread,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from trained import knowing_desk

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition
from langgraph_toolmem.testing import ScriptedChatModel

Call = tuple[str, dict[str, Any]]
READS = {"ring", "deep", "check_status"}


def plan(*turns: list[Call]) -> Callable[..., AIMessage]:
    """A model that makes these turns of calls after each user message, then answers."""

    def script(messages: list[BaseMessage], tools: Any) -> AIMessage:
        last = max(i for i, m in enumerate(messages) if isinstance(m, HumanMessage))
        done = sum(isinstance(m, AIMessage) for m in messages[last:])
        if done >= len(turns):
            return AIMessage("Done.")
        calls = [
            {"name": name, "args": args, "id": call_id(messages[last].id, len(messages), i), "type": "tool_call"}
            for i, (name, args) in enumerate(turns[done])
        ]
        return AIMessage("", tool_calls=calls)

    return script


# --- the graph of the README ---


@pytest.mark.parametrize("policy", [EAGER, InertiaPolicy()], ids=["eager", "default"])
def test_fewer_model_calls_and_the_same_work(desk: Desk, memory: ToolMemory, policy: InertiaPolicy) -> None:
    graph, model = build(memory, desk.tools, policy=policy, checkpointer=InMemorySaver())
    acted = []
    for i in range(45):
        state = run(graph, i)
        acted.append(len(shortcuts(state["messages"])))
        assert_answered(state["messages"])
        assert state["messages"][-1].text == f"The order of {NAMES[i % 12]} is checked."
    assert desk.done == [call for i in range(45) for call in expected(NAMES[i % 12])]
    assert acted[0] == 0, "nothing is done that was never seen"
    report = memory.report()
    assert report.skipped == sum(acted) == 180 - len(model.calls)
    assert report.skipped >= (90 if policy is EAGER else 45)
    assert (report.turns, report.answers, report.skipped_failed, report.wrong) == (180, 45, 0, 0)
    assert (report.saved.input_tokens or 0) + (report.saved.output_tokens or 0) == report.skipped * 100


@pytest.mark.parametrize("config", [None, {"configurable": {"__pregel_runtime": "changed its shape"}}])
async def test_the_node_works_outside_a_graph(config: Any) -> None:
    node, state = (
        InertiaShortcut(knowing_desk(24), Desk().tools, policy=EAGER),
        {"messages": [HumanMessage(request("Ann"))]},
    )
    for update in (node.invoke(state, config), await node.ainvoke(state, config)):
        assert shortcuts(update["messages"])[0].tool_calls[0]["args"] == {"name": "Ann"}
        assert shortcut_condition(update) == "tools"
    assert shortcut_condition({"messages": []}) == "agent"
    assert shortcut_condition({"messages": [plan([RING])(state["messages"], [])]}) == "agent"


def test_an_interrupt_passes(memory: ToolMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.inertia, "begin_turn", Mock(side_effect=GraphInterrupt))
    with pytest.raises(GraphInterrupt):
        InertiaShortcut(memory, []).invoke({"messages": []})


async def test_messages_that_cannot_be_read_do_not_reach_the_host(memory: ToolMemory) -> None:
    for node in (InertiaShortcut(memory, []), Recorder(memory)):
        for state in ({"messages": [object()]}, {"messages": 5}, {"messages": "hello"}, None, 3, {}):
            assert node.invoke(state) is None
            assert await node.ainvoke(state) is None


# --- injected arguments ---


@tool
def ring(times: int) -> str:
    """Ring the bell."""
    return "rung"


RING: Call = ("ring", {"times": 2})


@pytest.mark.parametrize("forged", [{}, {"state": {"messages": []}}], ids=["", "forged by the model"])
def test_injected_arguments_are_injected_and_never_filled(forged: dict[str, Any]) -> None:
    seen: list[dict[str, Any]] = []

    @tool
    def deep(
        place: str,
        state: Annotated[dict[str, Any], InjectedState],
        store: Annotated[BaseStore, InjectedStore()],
        tool_call_id: Annotated[str, InjectedToolCallId],
        runtime: ToolRuntime,
    ) -> str:
        """Look deep into a place."""
        seen.append({"messages": len(state["messages"]), "store": store, "id": tool_call_id, "runtime": runtime})
        return "ok"

    store = InMemoryStore()
    model = ScriptedChatModel(script=plan([("deep", {"place": "hall", **forged})], [RING]))
    constants = {"deep.place", "ring.times"}
    with ToolMemory.ephemeral(reads=READS, tools=[deep, ring], constants=constants) as memory:
        graph, _ = build(memory, [deep, ring], model, policy=EAGER, checkpointer=InMemorySaver(), store=store)
        for i in range(14):
            state = graph.invoke({"messages": [HumanMessage("do the usual", id=call_id("user", i))]}, thread(i))
            assert_answered(state["messages"])
    made = shortcuts(state["messages"])
    assert [m.tool_calls[0]["args"] for m in made] == [{"place": "hall"}, {"times": 2}][len(forged) :]
    if forged:
        return
    assert seen[-1]["messages"] == 2
    assert seen[-1]["store"] is store
    assert seen[-1]["id"] == made[0].tool_calls[0]["id"] == seen[-1]["runtime"].tool_call_id


# --- endings that nobody reports ---


def test_a_polling_loop_ends_when_the_answer_changes() -> None:
    """However long jobs usually take, the model sees the first answer that is different."""
    polls = 0
    needed = 12

    def check_status(job: str) -> dict[str, str]:
        """Says how a job is doing."""
        nonlocal polls
        polls += 1
        return {"state": "done" if polls >= needed else "running"}

    def wait(messages: list[Any], _: Any) -> AIMessage:
        if messages[-1].type == "tool" and "done" in messages[-1].content:
            return AIMessage("It is done.")
        return AIMessage("", tool_calls=[{"name": "check_status", "args": {"job": "nightly"}, "id": str(uuid4())}])

    with ToolMemory.ephemeral(reads=READS, tools=[check_status], methods=default_methods(Inertia(EAGER))) as memory:
        graph, _ = build(memory, [check_status], ScriptedChatModel(script=wait), recorder=False)  # type: ignore[list-item]
        for day in range(10):
            polls = 0
            graph.invoke({"messages": [("user", f"Wait for the nightly job of day {day}")]}, {"recursion_limit": 200})
        assert memory.report().skipped > 50
        for needed in (2, 5, 9, 15):
            polls = 0
            graph.invoke({"messages": [("user", f"Wait for job {needed}")]}, {"recursion_limit": 200})
            assert polls == needed
