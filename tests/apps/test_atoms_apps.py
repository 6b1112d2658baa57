"""The planner and its guard in real apps: what is particular to them next to the contracts of a step."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from desk import Desk, call_id, expected, request, script
from langchain.agents.middleware import HumanInTheLoopMiddleware, ModelCallLimitMiddleware, SummarizationMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from planned import HEAD, OTHERS, OtherDesk, hint_of, obedient, patterns, plan_call, taught
from shells import App, agent_of, graph_of

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.atoms.settings import SGASettings
from langgraph_toolmem.nodes import SGAGuard, SGAPlanner, guard_condition, memory_prompt
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, make_chat_model
from langgraph_toolmem.turn.hints import PLANNING, MemoryState

pytestmark = pytest.mark.usefixtures("nothing_failed")
Tools = list[dict[str, Any]]
ZOE = request("Zoe")


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with taught() as made:
        yield made


def app_of(memory: ToolMemory, says: Any, desk: Any = None, *, inside: Any = (), **planning: Any) -> App:
    return agent_of(memory, desk or Desk(), says, inside=inside, planning=SGASettings(**planning))


def asks(name: str, args: dict[str, Any], *parts: Any) -> AIMessage:
    made = {"name": name, "args": args, "id": call_id(name, args, *parts), "type": "tool_call"}
    return AIMessage("", tool_calls=[made])  # type: ignore[list-item]


def answers(messages: list[BaseMessage]) -> int:
    return sum(isinstance(m, ToolMessage) for m in messages)


# --- hints ---


@pytest.mark.parametrize("kind", [Desk, OtherDesk])
async def test_a_model_that_knows_nothing_but_its_hints_does_the_task(memory: ToolMemory, kind: Any) -> None:
    names = OTHERS if kind is OtherDesk else {}
    for app in (
        agent_of(memory, kind(), obedient, planning=True),
        graph_of(memory, kind(), obedient, SGAPlanner(memory, tools=kind().tools if names else None)),
    ):
        await app.ask(ZOE)
        assert app.desk.done == [(names.get(name, name), args) for name, args in expected("Zoe")]
        assert not any(name in text for text in app.hints() for name in names)


async def test_an_event_says_what_was_found_why_not_and_how_earlier_hints_ended(memory: ToolMemory) -> None:
    app = agent_of(memory, OtherDesk(), obedient, planning=True)
    told = await app.events(ZOE, "sync", "sga")
    assert [OTHERS[each["candidates"][0]["learned_as"]] for each in told[:3]] == [*OTHERS.values()]
    best = told[1]["candidates"][0]
    assert (best["tool"], best["feasibility"], best["why_not"]) == ("recent_purchase", 1.0, "")
    assert {*best["filled"]} == {"customer_id"}
    assert best["likeness"] >= 0.5
    assert {*told[0]["candidates"][0]["record"].values()} == {0}
    assert (told[1]["planned_by"], told[1]["model_calls"]) == ("messages", 0)
    assert "CUSTOMER_ID" in told[1]["slots"]
    assert "Zoe" not in told[1]["state"] + "".join(told[1]["goals"])
    memory.finish(app.state()["messages"], thread_id="t", success=True)
    assert memory.flush()
    told = await agent_of(memory, Desk(), script, planning=True).events(request("Ida"), "sync", "sga")
    assert [each["why_not"] for each in told[2]["candidates"]] == ["", "called already", "too unlike"]
    assert told[2]["shown"] == 1
    record = {each["tool"]: each["record"] for each in told[0]["candidates"]}["find_customer"]
    assert record["retrieved"] >= record["followed"] >= record["succeeded"] == 1


async def test_a_request_about_something_else_gets_no_hint(memory: ToolMemory) -> None:
    for text in ("What is the weather in Rome?", "Write a haiku about the sea", "\u4eca\u5929\u5929\u6c14"):
        app = app_of(memory, ["I do not know."])
        [event] = await app.events(text, "sync", "sga")
        assert (app.hints(), event["shown"]) == ([""], 0)
        assert {each["why_not"] for each in event["candidates"]} == {"too unlike"}


async def test_what_is_known_outlives_a_summary_of_its_messages(memory: ToolMemory) -> None:
    summary = ScriptedChatModel(script=lambda messages, tools: AIMessage("Something was checked."))
    shrinking = SummarizationMiddleware(summary, trigger=("messages", 9), keep=("messages", 1))

    def says(messages: list[BaseMessage], tools: Tools) -> AIMessage:
        return AIMessage("Done.") if "again" in messages[-1].text else script(messages, tools)

    app = app_of(memory, says, inside=[shrinking])
    order = expected("Zoe")[2][1]["order_id"]
    await app.ask(ZOE)
    await app.ask("Write a note to that order again")
    assert order not in "".join(m.text for m in app.state()["messages"])
    assert app.state()[PLANNING]["slots"]["ORDER_ID"] == [order]
    assert json.loads(json.dumps(app.state()[PLANNING])) == app.state()[PLANNING]
    assert dict(patterns(app.hints()[-1]))["add_note"]["order_id"] == order


async def test_what_a_person_rejected_is_not_suggested_again(memory: ToolMemory) -> None:
    def says(messages: list[BaseMessage], tools: Tools) -> AIMessage:
        return AIMessage("I leave it.") if answers(messages) == 3 else script(messages, tools)

    app = app_of(memory, says, inside=[HumanInTheLoopMiddleware(interrupt_on={"add_note": True})], guard=True)
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
    json.dumps([events, app.state()[PLANNING]], ensure_ascii=False).encode()


# --- a planner's model ---


async def test_a_planner_over_http_next_to_the_agent(memory: ToolMemory) -> None:
    """One server answers both. The planner names the goal in other words."""
    goals = ["find the customer by name", "get the latest order", "add a note to the order", "tell the user"]

    def reply(body: dict[str, Any]) -> Any:
        plan = {"thought": "", "new_facts": [], "state": "", "available_slots": [], "next_goal": goals[0]}
        return json.dumps(plan | {"next_goal": goals[len(server.requests) - 1]})

    with OpenAIStubServer(reply=reply) as server:
        app = app_of(memory, obedient, OtherDesk(), model=make_chat_model(server))
        told = await app.events(ZOE, "sync", "sga")
    assert app.desk.done == [(OTHERS[name], args) for name, args in expected("Zoe")]
    assert [(event["goals"], event["model_calls"]) for event in told] == [([goal], 1) for goal in goals]


async def test_the_planner_is_asked_once_a_turn_if_wanted_and_never_where_nothing_can_be_found(
    memory: ToolMemory,
) -> None:
    plan = plan_call(thought="between us", next_goal="get the latest order")
    planner = ScriptedChatModel(script=lambda messages, tools: plan)
    parts = await app_of(memory, script, model=planner, when="turn").parts(ZOE, "sync", "custom", "messages")
    told = [part["toolmem"] for mode, part in parts if mode == "custom" and part["toolmem"]["node"] == "sga"]
    assert "between us" not in repr([part for mode, part in parts if mode == "messages"])
    assert [event["planned_by"] for event in told] == ["model", *["model, before"] * 3]
    assert len(planner.calls) == sum(event["model_calls"] for event in told) == 1
    with ToolMemory.ephemeral() as empty:
        await app_of(empty, script, model=planner).ask(ZOE)
    assert len(planner.calls) == 1


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
    warned = [r for r in caplog.records if r.name.startswith("langgraph_toolmem") and r.levelno >= logging.WARNING]
    assert len(warned) == 1
    assert "rather not" not in caplog.text


async def test_one_failure_is_no_reason_to_leave_a_planner_alone(
    memory: ToolMemory, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    def plans(messages: list[BaseMessage], tools: Tools) -> AIMessage:
        tries.append(1)
        if len(tries) % 2:
            raise TimeoutError("too late")
        return plan_call(next_goal="get the latest order")

    events = await app_of(memory, script, model=ScriptedChatModel(script=plans)).events(ZOE, "sync", "sga")
    assert [event["planned_by"] for event in events] == ["messages", "model"] * 2
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


# --- the guard ---


class Stubborn:
    """A model that makes the first call again so many times, whatever it is told, and then answers."""

    def __init__(self, again: int, *, answers: Any = None) -> None:
        self.again, self.answers = again, answers
        self.complained: list[bool] = []

    def __call__(self, messages: list[BaseMessage], tools: Tools) -> AIMessage:
        self.complained.append("already called" in hint_of(messages))
        if self.complained[-1] and isinstance(self.answers, Exception):
            raise self.answers
        if answers(messages) > self.again or (self.complained[-1] and self.answers):
            return AIMessage("Done.")
        return asks("find_customer", {"name": "Zoe"}, len(self.complained))


@pytest.mark.parametrize("build", ["graph", "agent"])
async def test_a_repeat_is_sent_back_once_and_then_let_pass(memory: ToolMemory, build: str) -> None:
    says = Stubborn(again=2)
    if build == "graph":
        app = graph_of(memory, Desk(), says, SGAPlanner(memory, tools=Desk().tools), guard=True)
    else:
        app = app_of(memory, says, guard=True)
    told = await app.events(ZOE, "sync", "sga_guard")
    assert [event["outcome"] for event in told] == ["taken back", "passed"][build == "agent" :] * 2
    assert {(each["tool"], each["rule"]) for event in told for each in event["complaints"]} == {
        ("find_customer", "repeat")
    }
    assert says.complained == [False, False, True, False, True, False]
    assert len(app.desk.done) == 3
    assert [m.type for m in app.state()["messages"]] == ["human", *["ai", "tool"] * 3, "ai"]
    assert memory.report().turns == 24 + 4


async def test_what_comes_of_the_second_answer(memory: ToolMemory) -> None:
    for said, outcome, done in ((True, "changed", 1), (ConnectionError("none"), "not answered", 2)):
        app = app_of(memory, Stubborn(again=1, answers=said), guard=True)
        [event] = await app.events(ZOE, "sync", "sga_guard")
        assert (event["outcome"], len(app.desk.done)) == (outcome, done)
    off = app_of(memory, Stubborn(again=2))
    assert (await off.events(ZOE, "sync", "sga_guard"), len(off.model.calls)) == ([], 4)
    bare = graph_of(memory, Desk(), Stubborn(again=1), guard=True, schema=MessagesState)
    await bare.ask(ZOE)
    assert (len(bare.desk.done), len(bare.model.calls)) == (2, 3)  # without room in the state all passes
    nothing: dict[str, Any] = {"messages": [], PLANNING: {}}
    assert SGAGuard(memory).invoke(nothing) is None
    assert guard_condition(nothing) == END


async def test_a_model_may_wait_for_a_job(memory: ToolMemory) -> None:
    looks: list[int] = []

    class Jobs(Desk):
        @property
        def tools(self) -> Any:
            @tool
            def job_state(job: str) -> str:
                """The state of a job."""
                looks.append(1)
                return f"{10 * len(looks)} %"

            return [job_state]

    def says(messages: list[BaseMessage], tools: Tools) -> AIMessage:
        return AIMessage("Done.") if len(looks) == 5 else asks("job_state", {"job": "7"}, len(messages))

    app = app_of(memory, says, Jobs(), guard=True)
    assert [event["outcome"] for event in await app.events("Wait for job 7", "sync", "sga_guard")] == ["passed"]
    assert len(app.model.calls) == 7


async def test_the_second_answer_counts_against_a_limit_of_model_calls(memory: ToolMemory) -> None:
    for limit in (3, 5):
        app = app_of(memory, Stubborn(again=99), inside=[ModelCallLimitMiddleware(run_limit=limit)], guard=True)
        await app.ask(ZOE)
        assert len(app.model.calls) == limit


def test_an_agent_that_says_nothing_when_asked_again_does_not_go_round_for_ever(memory: ToolMemory) -> None:
    turns: list[int] = []

    def agent(state: Any) -> Any:
        turns.append(answers(state["messages"]))
        return {} if turns.count(1) > 1 else {"messages": [asks("find_customer", {"name": "Zoe"}, len(turns))]}

    builder: Any = StateGraph(MemoryState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode(Desk().tools))
    SGAGuard(memory, tools=Desk().tools).add_to(builder, "guard")
    builder.add_edge(START, "agent")
    builder.add_edge("tools", "agent")
    builder.add_edge("agent", "guard")
    builder.add_conditional_edges("guard", guard_condition, ["agent", "tools", END])
    state = builder.compile(checkpointer=InMemorySaver()).invoke(
        {"messages": [HumanMessage(ZOE)]}, {"configurable": {"thread_id": "t"}, "recursion_limit": 20}
    )
    assert turns == [0, 1, 1]
    assert HEAD not in "".join(m.text for m in memory_prompt(state))
