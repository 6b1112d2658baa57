"""The planner and its guard in real apps: what is particular to them next to the contracts of a step."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from desk import Desk, call_id, expected, request, script
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.types import Command
from openai_server import OpenAIStubServer, make_chat_model
from planned import obedient, patterns, plan_call, taught
from shells import App, agent_of, graph_of

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.atoms.step import SGASettings
from langgraph_toolmem.nodes import SGAPlanner
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")
Tools = list[dict[str, Any]]
ZOE = request("Zoe")


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with taught() as made:
        yield made


def app_of(memory: ToolMemory, says: Any, desk: Any = None, *, outer: Any = (), **planning: Any) -> App:
    return agent_of(memory, desk or Desk(), says, outer=outer, planning=SGASettings(**planning))


def asks(name: str, args: dict[str, Any], *parts: Any) -> AIMessage:
    made = {"name": name, "args": args, "id": call_id(name, args, *parts), "type": "tool_call"}
    return AIMessage("", tool_calls=[made])  # type: ignore[list-item]


def answers(messages: list[BaseMessage]) -> int:
    return sum(isinstance(m, ToolMessage) for m in messages)


# --- hints ---


async def test_a_model_that_knows_nothing_but_its_hints_does_the_task(memory: ToolMemory) -> None:
    for app in (
        agent_of(memory, Desk(), obedient, planning=True),
        graph_of(memory, Desk(), obedient, SGAPlanner(memory)),
    ):
        await app.ask(ZOE)
        assert app.desk.done == expected("Zoe")


async def test_a_request_about_something_else_gets_no_hint(memory: ToolMemory) -> None:
    for text in ("What is the weather in Rome?", "Write a haiku about the sea", "\u4eca\u5929\u5929\u6c14"):
        app = app_of(memory, ["I do not know."])
        [event] = await app.events(text, "sync", "sga")
        assert (app.hints(), event["shown"]) == ([""], 0)
        assert {each["why_not"] for each in event["candidates"]} == {"too unlike"}


async def test_what_a_person_rejected_is_not_suggested_again(memory: ToolMemory) -> None:
    def says(messages: list[BaseMessage], tools: Tools) -> AIMessage:
        return AIMessage("I leave it.") if answers(messages) == 3 else script(messages, tools)

    app = app_of(memory, says, outer=[HumanInTheLoopMiddleware(interrupt_on={"add_note": True})])
    await app.ask(ZOE)
    [event] = await app.events(Command(resume={"decisions": [{"type": "reject", "message": "No"}]}), "sync", "sga")
    assert app.desk.done == expected("Zoe")[:2]
    assert "add_note" in dict(patterns(app.hints()[2]))
    assert "add_note" not in dict(patterns(app.hints()[3]))
    assert {each["tool"]: each["why_not"] for each in event["candidates"]}["add_note"] == "a person rejected it"


class OddDesk(Desk):
    """The customers' ids are no text that can be sent."""

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def find_customer(name: str) -> str:
            """Find a customer by name."""
            return json.dumps({"customer_id": "C-\ud8007", "name": name})

        return [find_customer, *super().tools[1:]]


async def test_a_value_that_cannot_be_encoded_does_not_stop_the_model_call(memory: ToolMemory) -> None:
    def reply(body: dict[str, Any]) -> Any:
        known = any(each["role"] == "tool" for each in body["messages"])
        return "It is odd." if known else asks("find_customer", {"name": "Zoe"})

    with OpenAIStubServer(reply=reply) as server:
        app = app_of(memory, make_chat_model(server), OddDesk())
        events = await app.events(ZOE, "sync", "sga")
        prompt = server.requests[1]["messages"][-1]["content"]
    assert dict(patterns(prompt))["latest_order"] == {"customer_id": "C-?7"}
    json.dumps(events, ensure_ascii=False).encode()


# --- a planner's model ---


async def test_a_planner_speaks_to_nobody_and_is_not_asked_where_nothing_can_be_found(memory: ToolMemory) -> None:
    plan = plan_call(thought="between us", next_goal="get the latest order")
    planner = ScriptedChatModel(script=lambda messages, tools: plan)
    parts = await app_of(memory, script, model=planner).parts(ZOE, "sync", "custom", "messages")
    told = [part["toolmem"] for mode, part in parts if mode == "custom" and part["toolmem"]["node"] == "sga"]
    assert "between us" not in repr([part for mode, part in parts if mode == "messages"])
    assert [event["planned_by"] for event in told] == ["model"] * 4
    assert len(planner.calls) == 4
    with ToolMemory.ephemeral() as empty:
        await app_of(empty, script, model=planner).ask(ZOE)
    assert len(planner.calls) == 4


@pytest.mark.parametrize(("broken", "tries"), [("nonsense", 2), ("no answer", 1)])
async def test_a_planner_of_no_use_is_left_alone_after_two_steps_of_a_turn(
    memory: ToolMemory, caplog: pytest.LogCaptureFixture, broken: str, tries: int
) -> None:
    def plans(messages: list[BaseMessage], tools: Tools) -> AIMessage:
        if broken == "no answer":
            raise TimeoutError("too late")
        return AIMessage("I would rather not.")

    app = app_of(memory, script, model=ScriptedChatModel(script=plans))
    for name in ("Zoe", "Ida"):
        events = await app.events(request(name), "sync", "sga")
        assert [event["model_calls"] for event in events] == [tries, tries, 0, 0]
        assert [event["planned_by"] for event in events] == ["messages"] * 4
    logged = [r for r in caplog.records if r.name.startswith("langgraph_toolmem") and r.levelno >= logging.WARNING]
    warned = [r for r in logged if "takes hints" not in r.getMessage()]
    assert len(warned) == 1
    assert "rather not" not in caplog.text
