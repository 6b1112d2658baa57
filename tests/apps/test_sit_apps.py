"""Suggestions and the summary tool in real apps: what is particular to them next to the contracts of a step."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from desk import EAGER
from kept import inertia, ledger, sit
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from shells import agent_of
from symptoms import (
    CURES,
    FINDINGS,
    SCHEMAS,
    SYMPTOM,
    HelpDesk,
    advised,
    asked,
    before_cure,
    follower,
    teach,
    tool_call,
    whole,
)

from langgraph_toolmem import SIT, Inertia, SITPolicy, ToolMemory
from langgraph_toolmem.nodes import SITSummary
from langgraph_toolmem.runs.run import SUMMARY_TOOL

pytestmark = pytest.mark.usefixtures("nothing_failed")
ZOE = SYMPTOM.format("Zoe")


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=SCHEMAS, methods=[SIT(SITPolicy(unlabelled=0.0))], reads={"*"}) as made:
        yield made


# --- the hint ---


@pytest.mark.parametrize(
    ("decision", "done", "booked"),
    [("approve", "reset_password", [1, 1, 1]), ("edit", "restart_router", [1, 0, 0]), ("reject", None, [1, 1, 0])],
)
async def test_what_a_person_decides_is_the_record(
    memory: ToolMemory, decision: str, done: str | None, booked: list[int]
) -> None:
    """One more is offered before the closing words. What a person put in its place is not what the model did."""
    teach(memory)
    desk = HelpDesk({"Zoe": "password"})
    gate = HumanInTheLoopMiddleware(interrupt_on={"reset_password": True})
    app = agent_of(memory, desk, follower(), suggest=True, outer=[gate])
    assert "__interrupt__" in await app.ask(ZOE)
    before = dict(memory.core.ledger.figures("sit"))
    more: dict[str, Any] = {
        "approve": {},
        "edit": {"edited_action": {"name": "restart_router", "args": {"name": "Zoe"}}},
        "reject": {"message": "No."},
    }
    if decision != "approve":
        app.model.script = lambda messages, tools: AIMessage("Then I stop.")
    await app.ask(Command(resume={"decisions": [{"type": decision, **more[decision]}]}))
    gained = [ledger(memory).sums["sit"][name] - before[name] for name in ("shown", "followed", "right")]
    assert desk.done[1:] == ([] if done is None else [done])
    assert gained == booked
    assert ledger(memory).turns == {}


# --- the tool ---


def answers(state: dict[str, Any]) -> list[ToolMessage]:
    return [m for m in state["messages"] if isinstance(m, ToolMessage) and m.name == SUMMARY_TOOL]


def calling(summary: str, **more: Any) -> AIMessage:
    return tool_call(SUMMARY_TOOL, {"summary": summary, **more}, "call_summary")


def answered(memory: ToolMemory, messages: list[Any], *others: Any, **how: Any) -> list[BaseMessage]:
    """The messages after the tool calls of the last one are done."""
    builder: Any = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([SITSummary(memory, **how).tool, *others]))
    builder.add_edge(START, "tools")
    found: list[BaseMessage] = builder.compile().invoke({"messages": messages})["messages"]
    return found


async def test_the_summary_tool_leads_to_the_cure() -> None:
    """As published: the agent writes its state down, and reads what past runs did from there."""
    with ToolMemory.ephemeral(methods=[Inertia(), SIT(SITPolicy.paper())]) as memory:
        desk = HelpDesk({"Zoe": "password", "Ida": "router"})
        for i in range(10):
            cause = "router" if i < 7 else "password"
            run = whole(cause, f"C{i}", summary=f"C{i}: logs say {FINDINGS[cause]}")
            memory.finish(run, thread_id=f"r{i}", success=True)
        memory.flush()
        app = agent_of(memory, desk, follower(asks=True), suggest=SITSummary(memory, summary_tool=True), shortcut=EAGER)
        for name, cause in (("Zoe", "password"), ("Ida", "router")):
            desk.done.clear()
            turns = memory.report().turns
            state = await app.ask(SYMPTOM.format(name), "async", thread=name)
            assert desk.done == ["read_logs", CURES[cause]]
            [answer] = answers(state)
            assert advised([answer])[0] == CURES[cause]
            assert memory.report().turns - turns == 3  # the turn of a summary is one with that of the next call
            memory.finish(state["messages"], thread_id=name, success=True)
        assert sum(each.written for each in sit(memory).transitions()) == 12
        assert ledger(memory).sums["sit"]["right"] >= 2
        assert (ledger(memory).turns, inertia(memory).open_turns) == ({}, {})
        assert SUMMARY_TOOL not in {*memory.report().tools, *memory.view().tools}


@pytest.mark.parametrize("text", ["  \n ", "x" * 300_000, "password expired", "\ud800 ページ"])
def test_any_summary_is_answered(memory: ToolMemory, text: str) -> None:
    teach(memory, summaries=True)
    answer = answered(memory, [*before_cure("password"), calling(text)])[-1]
    assert isinstance(answer, ToolMessage)
    assert (answer.status, answer.name) == ("success", SUMMARY_TOOL)
    best, other = advised([answer])
    assert {best, other} == {*CURES.values()}
    if "password" in text or not text.strip():  # without a summary, the history is the state
        assert best == "reset_password"
        assert re.search(r"- reset_password: came next in \d", answer.text)
    assert len(answer.text) < 3_000
    assert ledger(memory).sums["sit"]["shown"] == 1


async def test_the_tool_takes_a_summary_and_its_place_from_the_graph_alone(memory: ToolMemory) -> None:
    teach(memory, summaries=True)
    how: dict[str, Any] = {"policy": SITPolicy()}
    tool = SITSummary(memory, **how).tool
    assert list(tool.tool_call_schema.model_json_schema()["properties"]) == ["summary"]  # type: ignore[union-attr]
    forged = answered(memory, [*before_cure("password"), calling("x", runtime={"state": {"messages": []}})])[-1]
    assert {*advised([forged])} == {*CURES.values()}
    elsewhere = answered(
        memory, [*before_cure("password"), calling("x")], policy=SITPolicy(), messages_key="elsewhere"
    )[-1]
    outside = [tool.invoke({"summary": "x"}), await tool.ainvoke({"summary": "x"}), elsewhere.text]
    for answer in outside:  # without a history it knows the summary alone
        assert advised([ToolMessage(answer, tool_call_id="", name=SUMMARY_TOOL)])[0] == "read_logs"


def test_the_tool_answers_where_it_can_say_nothing(
    memory: ToolMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with ToolMemory.ephemeral(methods=[SIT()]) as unknowing:
        [*_, empty] = answered(unknowing, [asked("Zoe"), calling("x")])
    assert (getattr(empty, "status", ""), advised([empty])) == ("success", [])
    teach(memory)
    monkeypatch.setattr(memory.sit, "advise", lambda *_, **__: 1 / 0)
    [*_, failed] = answered(memory, [*before_cure("password"), calling("x")])
    assert (getattr(failed, "status", ""), "ZeroDivisionError" in failed.text) == ("success", True)
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1
