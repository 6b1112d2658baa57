"""Each feature works with its own option alone, or the report says what it lacks."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage

from langgraph_toolmem import Atoms, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.models import with_tool_memory
from langgraph_toolmem.testing import ScriptedChatModel, call_tool


def find_customer(name: str) -> dict[str, str]:
    """Look up a customer by name."""
    return {"customer_id": f"C-{name}"}


def list_orders(customer_id: str) -> list[dict[str, str]]:
    """List the orders of a customer."""
    return [{"order_id": f"O-{customer_id}"}]


def looks_up(messages: list[Any], _: Any) -> AIMessage:
    name = next(message for message in messages if message.type == "human").text.split()[-1]
    results = [message for message in messages if message.type == "tool"]
    calls = [call_tool("find_customer", name=name), call_tool("list_orders", customer_id=f"C-{name}")]
    return [*calls, AIMessage("Done.")][len(results)]


def hello(_: list[Any], __: Any) -> AIMessage:
    return AIMessage("Hello.")


def prompts(memory: ToolMemory, *, score: float | None = 1.0, **features: Any) -> list[str]:
    """The prompts of eight requests of one kind."""
    model = ScriptedChatModel(script=looks_up)
    middleware = tool_memory_middleware(memory, shortcut=False, **features)
    agent: Any = create_agent(model, [find_customer, list_orders], middleware=middleware)
    for number in range(8):
        feed = {"messages": [("user", f"List orders of P{number}")]}
        agent.invoke(feed, {"configurable": {"thread_id": str(number), "user_id": "ann"}})
        if score is not None:
            memory.feedback(str(number), score=score, user_id="ann")
        assert memory.flush()
    return [" ".join(message.text for message in call.messages) for call in model.calls]


@pytest.mark.parametrize(
    ("option", "head", "methods"),
    [
        ("planning", "Steps that worked", None),
        ("planning", "Steps that worked", [Atoms]),
        ("recall", "Past runs with similar requests", None),
    ],
)
def test_one_option_is_enough(option: str, head: str, methods: Any) -> None:
    with ToolMemory.ephemeral(methods=methods and [kind() for kind in methods], reads={"find_*", "list_*"}) as memory:
        shown = prompts(memory, **{option: True})
        assert any(head in prompt for prompt in shown)
        assert memory.report().problems == ()


def test_runs_that_are_not_kept_on_purpose_are_a_problem() -> None:
    with ToolMemory.ephemeral() as memory:
        for _ in range(3):
            prompts(memory, recall=True, planning=True, reflect=False)
        recall, planning = memory.report().problems
        assert recall.startswith("Recall was asked for 24 requests and has nothing to show. No finished run was kept.")
        assert planning.startswith("Planning was asked before 72 model calls and has nothing to show.")


def test_planning_without_good_feedback_is_a_problem() -> None:
    with ToolMemory.ephemeral() as memory:
        for _ in range(3):
            prompts(memory, planning=True, score=None)
        [problem] = memory.report().problems
        assert problem.endswith("It shows steps of runs with good feedback: memory.feedback(thread_id, score=1.0).")


def test_a_wrapped_model_whose_runs_nobody_finishes_is_a_problem() -> None:
    with ToolMemory.ephemeral() as memory:
        model = with_tool_memory(ScriptedChatModel(script=hello), memory, tools=[find_customer], recall=True)
        for number in range(20):
            feed = [("user", f"Request {number}")]
            model.bind_tools([find_customer]).invoke(
                feed, {"configurable": {"thread_id": str(number), "user_id": "ann"}}
            )
        [problem] = memory.report().problems
        assert problem.startswith("Recall was asked for 20 requests")


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_namespace_that_lacks_its_user_is_a_problem(way: str) -> None:
    with ToolMemory.ephemeral(namespace=("toolmem", "{user_id}")) as memory:
        model = ScriptedChatModel(script=hello)
        agent: Any = create_agent(model, [find_customer], middleware=tool_memory_middleware(memory))
        feed = {"messages": [("user", "Hi")]}
        named = {"configurable": {"user_id": "ann"}}
        for config in (named, {}):
            _ = agent.invoke(feed, config) if way == "sync" else await agent.ainvoke(feed, config)
            assert bool(memory.report().problems) is (config == {})
        assert "needs a user id, and was given none" in memory.report().problems[0]
