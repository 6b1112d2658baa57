"""Planning in real ``create_agent`` agents: its hints, its guard, and what stands beside it, sync and async."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agents import WAYS
from desk import Desk, call_id, expected, request, script
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelRequest,
    ModelRetryMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from planned import HEAD, hint_of, obedient, patterns, taught
from shells import App, agent_of

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.atoms.settings import SGASettings
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, make_chat_model
from langgraph_toolmem.turn.hints import PLANNING

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)
COMPLAINT = "was already called with these arguments"


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with taught() as made:
        yield made


def app_of(memory: ToolMemory, desk: Desk, says: Any = obedient, *, planning: Any = True, **how: Any) -> App:
    return agent_of(memory, desk, says, planning=planning, **how)


# --- hints ---


@BOTH
@pytest.mark.parametrize(
    "prompt", [None, "You are kind.", SystemMessage([{"type": "text", "text": "You are kind."}])], ids=str
)
async def test_hints_stand_in_the_system_message_of_their_call(memory: ToolMemory, prompt: Any, way: str) -> None:
    agent = app_of(memory, Desk(), made={"system_prompt": prompt})
    state = await agent.ask(request("Zoe"), way)
    hints = agent.hints()
    assert [text.count(HEAD) for text in hints] == [1, 1, 1, 0]  # all is done before the last one
    assert len(set(hints)) == 4
    assert all(text.startswith("You are kind.") for text in hints) is (prompt is not None)
    assert HEAD not in "".join(m.text for m in state["messages"])
    assert PLANNING not in state
    assert HEAD not in repr(agent.state())


@BOTH
async def test_only_tools_that_the_step_offers(memory: ToolMemory, way: str) -> None:
    class NoOrders(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
            fewer = [tool for tool in request.tools if getattr(tool, "name", "") != "latest_order"]
            return handler(request.override(tools=fewer))

        async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
            return await self.wrap_model_call(request, handler)

    agent = app_of(memory, Desk(), script, inside=[NoOrders()])
    await agent.ask(request("Zoe"), way)
    told = {name for text in agent.hints() for name, _ in patterns(text)}
    assert told == {"find_customer", "add_note"}


@BOTH
async def test_a_planner_model_and_its_cost(memory: ToolMemory, way: str) -> None:
    plan = {"thought": "t", "new_facts": [], "state": "s", "available_slots": [], "next_goal": "get the latest order"}
    with OpenAIStubServer(reply=lambda body: json.dumps(plan)) as server:
        model = make_chat_model(server)
        agent = app_of(memory, Desk(), script, planning=SGASettings(model=model, when="turn"))
        told = await agent.events(request("Zoe"), way, "sga")
        await model.root_async_client.close()
        assert len(server.requests) == 1
    assert [event["model_calls"] for event in told] == [1, 0, 0, 0]
    assert [event["planned_by"] for event in told] == ["model", *["model, before"] * 3]
    assert agent.desk.done == expected("Zoe")


# --- what is known ---


@BOTH
async def test_what_is_known_outlives_a_summary(memory: ToolMemory, way: str) -> None:
    """The summary takes the first answers away; the next turn still has the order's id."""
    shrinking = SummarizationMiddleware(
        ScriptedChatModel(script=lambda messages, tools: AIMessage("Something was checked.")),
        trigger=("messages", 9),
        keep=("messages", 1),
    )

    def says(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        return AIMessage("Done.") if "again" in messages[-1].text else script(messages, tools)

    agent = app_of(memory, Desk(), says, inside=[shrinking])
    order = expected("Zoe")[2][1]["order_id"]
    await agent.ask(request("Zoe"), way)
    assert agent.desk.done == expected("Zoe")
    await agent.ask("Write a note to that order again", way)
    assert order not in "".join(m.text for m in agent.state()["messages"])
    assert agent.state()[PLANNING]["slots"]["ORDER_ID"] == [order]
    told = dict(patterns(agent.hints()[-1]))
    assert told["add_note"]["order_id"] == order


@BOTH
async def test_a_new_agent_on_the_same_checkpoints_knows_it(memory: ToolMemory, way: str) -> None:
    saver = InMemorySaver()
    await app_of(memory, Desk(), script, made={"checkpointer": saver}).ask(request("Zoe"), way)
    later = app_of(memory, Desk(), lambda messages, tools: AIMessage("Hm."), made={"checkpointer": saver})
    before = later.state()[PLANNING]
    await later.ask("Thanks!", way)
    assert later.state()[PLANNING]["slots"] == before["slots"]
    assert later.state()[PLANNING]["goals"] == before["goals"]


@BOTH
async def test_a_retried_call_gets_the_same_and_is_told_once(memory: ToolMemory, way: str) -> None:
    tries: list[int] = []

    def flaky(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        tries.append(len(messages))
        if tries.count(len(messages)) == 1 and len(messages) > 2:
            raise ConnectionError("try again")
        return script(messages, tools)

    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    agent = app_of(memory, Desk(), flaky, inside=[retry])
    told = await agent.events(request("Zoe"), way, "sga")
    assert agent.desk.done == expected("Zoe")
    assert len(told) == 4
    assert len(tries) == 7


# --- the guard ---


class Stubborn:
    """A model that makes the first call again so many times, whatever it is told, and then answers."""

    def __init__(self, again: int, *, breaks: bool = False) -> None:
        self.again, self.breaks = again, breaks
        self.told: list[str] = []

    def __call__(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        self.told.append(hint_of(messages))
        if self.breaks and COMPLAINT in self.told[-1]:
            raise ConnectionError("no second answer")
        answers = sum(isinstance(m, ToolMessage) for m in messages)
        if answers > self.again:
            return AIMessage("Done.")
        made = call_id("again", answers, len(self.told))
        return AIMessage("", tool_calls=[{"name": "find_customer", "args": {"name": "Zoe"}, "id": made}])


@BOTH
async def test_a_repeat_is_asked_about_once_and_then_let_pass(memory: ToolMemory, way: str) -> None:
    says = Stubborn(again=2)
    agent = app_of(memory, Desk(), says, planning=SGASettings(guard=True))
    told = await agent.events(request("Zoe"), way, "sga_guard")
    assert [event["outcome"] for event in told] == ["passed", "passed"]
    assert [COMPLAINT in text for text in says.told] == [False, False, True, False, True, False]
    assert len(agent.desk.done) == 3
    assert [m.type for m in agent.state()["messages"]] == ["human", *["ai", "tool"] * 3, "ai"]
    assert memory.report().turns == 24 + 4


@BOTH
async def test_a_model_that_listens_goes_another_way(memory: ToolMemory, way: str) -> None:
    def says(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        if COMPLAINT in hint_of(messages):
            return AIMessage("I have it already.")
        made = call_id(len(messages))
        return AIMessage("", tool_calls=[{"name": "find_customer", "args": {"name": "Zoe"}, "id": made}])

    agent = app_of(memory, Desk(), says, planning=SGASettings(guard=True))
    [event] = await agent.events(request("Zoe"), way, "sga_guard")
    assert event["outcome"] == "changed"
    assert [(each["tool"], each["rule"]) for each in event["complaints"]] == [("find_customer", "repeat")]
    assert agent.state()["messages"][-1].text == "I have it already."
    assert len(agent.desk.done) == 1


@BOTH
async def test_if_there_is_no_second_answer_the_first_one_stands(memory: ToolMemory, way: str) -> None:
    agent = app_of(memory, Desk(), Stubborn(again=1, breaks=True), planning=SGASettings(guard=True))
    [event] = await agent.events(request("Zoe"), way, "sga_guard")
    assert event["outcome"] == "not answered"
    assert len(agent.desk.done) == 2


@BOTH
async def test_it_is_off_by_default(memory: ToolMemory, way: str) -> None:
    says = Stubborn(again=2)
    agent = app_of(memory, Desk(), says)
    assert await agent.events(request("Zoe"), way, "sga_guard") == []
    assert len(says.told) == 4


# --- beside others ---


@BOTH
async def test_a_human_still_decides(memory: ToolMemory, way: str) -> None:
    gate = HumanInTheLoopMiddleware(interrupt_on={"add_note": True})
    agent = app_of(memory, Desk(), inside=[gate], planning=SGASettings(guard=True))
    await agent.ask(request("Zoe"), way)
    assert agent.desk.done == expected("Zoe")[:2]
    await agent.ask(Command(resume={"decisions": [{"type": "approve"}]}), way)
    assert agent.desk.done == expected("Zoe")


@BOTH
async def test_with_everything_on_the_same_calls_are_made(way: str) -> None:
    with taught(8) as memory:
        rest = {"suggest": True, "recall": True, "reflect": True, "preferences": True, "chains": 2}
        agent = app_of(memory, Desk(), script, shortcut=True, shadow=True, planning=SGASettings(guard=True), **rest)
        await agent.ask(request("Zoe"), way)
        assert agent.desk.done == expected("Zoe")
        first = agent.hints()[0]
        assert min(first.index(head) for head in ("Past runs", "Likely next tools", HEAD)) > 0


# --- failing open ---


@BOTH
@pytest.mark.parametrize("guard", [False, True])
async def test_a_memory_that_fails_stops_nobody(
    memory: ToolMemory, caplog: Any, monkeypatch: Any, way: str, guard: bool
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a secret")

    with caplog.at_level(logging.INFO, logger="langgraph_toolmem"):
        monkeypatch.setattr(memory.core, "read", broken)
        agent = app_of(memory, Desk(), script, planning=SGASettings(guard=guard))
        await agent.ask(request("Zoe"), way)
    assert agent.desk.done == expected("Zoe")
    assert agent.hints() == [""] * 4
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert 1 <= len(errors) <= 2
    assert "secret" not in "".join(errors)
