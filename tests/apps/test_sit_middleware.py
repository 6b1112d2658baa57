"""Suggestions in real ``create_agent`` agents: beside the shortcut, people and other middleware, sync and async."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kept import ledger
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ModelRequest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.types import Command
from shells import WAYS, App, agent_of
from symptoms import FINDINGS, SCHEMAS, SYMPTOM, HelpDesk, follower, names, stored, teach, tool_call

from langgraph_toolmem import SIT, SITPolicy, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import SITSummary
from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, make_chat_model
from langgraph_toolmem.turn.shown import FRAME

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)
HINT = "Likely next tools"


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=SCHEMAS, methods=default_methods(SIT(SITPolicy()))) as made:
        yield made


def app_of(memory: ToolMemory, desk: HelpDesk, says: Any, *, suggest: Any = True, **how: Any) -> App:
    return agent_of(memory, desk, says, suggest=suggest, **how)


# --- the hint ---


@BOTH
@pytest.mark.parametrize(
    "prompt",
    [
        None,
        "You are kind.",
        SystemMessage([{"type": "text", "text": "You are kind.", "cache_control": {"type": "ephemeral"}}]),
        SystemMessage([{"type": "text", "text": "You are kind."}, {"type": "text", "text": "And quick."}]),
    ],
)
async def test_the_hint_stands_in_the_system_message_of_its_call(memory: ToolMemory, prompt: Any, way: str) -> None:
    teach(memory)
    agent = app_of(memory, HelpDesk({"Zoe": "password"}), follower(), made={"system_prompt": prompt})
    state = await agent.ask(SYMPTOM.format("Zoe"), way)
    for [system] in agent.systems():
        assert system.text.count(HINT) == 1
        if prompt is not None:
            assert system.text.startswith("You are kind.")
        if isinstance(prompt, SystemMessage):
            assert system.content[: len(prompt.content)] == prompt.content
            assert prompt.text.count(HINT) == 0
    assert len({system.text for [system] in agent.systems()}) == 3
    assert HINT not in "".join(m.text for m in state["messages"])
    config: Any = {"configurable": {"thread_id": "t"}}
    assert HINT not in repr([s.values for s in agent.graph.get_state_history(config)])


@BOTH
async def test_where_nothing_is_known_the_request_is_as_it_was(way: str) -> None:
    with ToolMemory.ephemeral() as memory:
        agent = app_of(memory, HelpDesk({}), ["Hi"], made={"system_prompt": "You are kind."})
        await agent.ask("Hello", way)
        assert [[m.text for m in call] for call in agent.systems()] == [["You are kind."]]


@BOTH
async def test_only_what_this_step_offers_is_suggested(memory: ToolMemory, way: str) -> None:
    class NoPasswords(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
            fewer = [tool for tool in request.tools if getattr(tool, "name", "") != "reset_password"]
            return handler(request.override(tools=fewer))

        async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
            return await self.wrap_model_call(request, handler)

    teach(memory)
    agent = app_of(memory, HelpDesk({"Zoe": "router"}), follower(), inside=[NoPasswords()])
    await agent.ask(SYMPTOM.format("Zoe"), way)
    texts = [system.text for call in agent.systems() for system in call]
    assert len(texts) == 3
    assert "restart_router:" in texts[1]
    assert "reset_password:" not in "".join(texts)
    assert "close_ticket:" not in "".join(texts)  # known to the memory, not to this agent
    assert f"{SUMMARY_TOOL}:" not in "".join(texts)


@BOTH
@pytest.mark.parametrize("shortcut", [False, True])
async def test_tools_nobody_declared_are_found_by_their_descriptions(way: str, shortcut: bool) -> None:
    with ToolMemory.ephemeral(methods=default_methods(SIT(SITPolicy(unlabelled=0.0)))) as memory:
        agent = app_of(memory, HelpDesk({"Zoe": "password"}), follower(), shortcut=shortcut)
        await agent.ask("The password of Zoe is forgotten, give a fresh one", way)
        [first] = agent.systems()[0]
        assert "1. reset_password: its description fits the request" in first.text
        assert names(memory.sit.suggest([HumanMessage("a fresh password")], k=1)) == ["reset_password"]
        assert SUMMARY_TOOL not in {*memory.core.catalogue.specs, *memory.core.graph.tools}


# --- the tool ---


@BOTH
async def test_in_a_turn_with_other_calls(memory: ToolMemory, way: str) -> None:
    teach(memory, summaries=True)

    def script(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("Done.")
        both = [(SUMMARY_TOOL, {"summary": "Pages do not load."}), ("read_logs", {"name": "Zoe"})]
        calls = [tool_call(name, args, f"call_{i}").tool_calls[0] for i, (name, args) in enumerate(both)]
        return AIMessage("", tool_calls=calls)

    desk = HelpDesk({"Zoe": "password"})
    state = await app_of(memory, desk, script).ask(SYMPTOM.format("Zoe"), way)
    assert desk.done == ["read_logs"]
    assert [m.name for m in state["messages"] if isinstance(m, ToolMessage)] == [SUMMARY_TOOL, "read_logs"]
    assert memory.view().tools["read_logs"].ok == 11
    assert ledger(memory).turns == {}


async def test_without_it_if_that_is_wanted(memory: ToolMemory) -> None:
    sit = SITSummary(memory, summary_tool=False)
    agent = app_of(memory, HelpDesk({"Zoe": "router"}), follower(), suggest=sit)
    await agent.ask(SYMPTOM.format("Zoe"), "sync")
    assert all(SUMMARY_TOOL not in repr(call.tools) for call in agent.model.calls)


# --- beside the others ---


@BOTH
@pytest.mark.parametrize("decision", ["approve", "edit", "reject"])
async def test_what_a_person_decides_is_the_record(memory: ToolMemory, way: str, decision: str) -> None:
    teach(memory)
    desk = HelpDesk({"Zoe": "password"})
    gate = HumanInTheLoopMiddleware(interrupt_on={"reset_password": True})
    agent = app_of(memory, desk, follower(), inside=[gate])
    state = await agent.ask(SYMPTOM.format("Zoe"), way)
    assert "__interrupt__" in state
    before = dict(ledger(memory).figures_of("sit"))
    edited = {"name": "restart_router", "args": {"name": "Zoe"}}
    answer = {"type": decision, **({"edited_action": edited} if decision == "edit" else {})}
    if decision == "reject":
        answer["message"] = "No."
    if decision != "approve":
        agent.model.script = lambda messages, tools: AIMessage("Then I stop.")
    await agent.ask(Command(resume={"decisions": [answer]}), way)
    gained = [ledger(memory).figures["sit"][name] - before[name] for name in ("shown", "followed", "right")]
    assert desk.done[1:2] == {"approve": ["reset_password"], "edit": ["restart_router"], "reject": []}[decision]
    # One more is offered before the closing words. What a person put in its place is not what the model did.
    assert gained == {"approve": [1, 1, 1], "edit": [1, 1, 0], "reject": [1, 1, 0]}[decision]
    assert ledger(memory).turns == {}


@BOTH
async def test_two_agents_share_a_memory(memory: ToolMemory, way: str) -> None:
    teach(memory)
    desks = [HelpDesk({"Zoe": "password"}), HelpDesk({"Zoe": "router"})]
    agents = [app_of(memory, desk, follower()) for desk in desks]
    for number, agent in enumerate(agents):
        await agent.ask(SYMPTOM.format("Zoe"), way, thread=f"t{number}")
    assert [desk.done[1:] for desk in desks] == [["reset_password"], ["restart_router"]]
    assert ledger(memory).figures["sit"]["right"] == 4


# --- recall="auto" ---


def talking(desk_answers: Callable[..., AIMessage], needed: Callable[[str], bool], summary: str) -> Any:
    """One model on the wire: it works, and it is asked whether it needs to recall and what the state is."""

    def reply(request: dict[str, Any]) -> Any:
        first, last = request["messages"][0]["content"], request["messages"][-1]["content"]
        if "yes or no" in str(first):
            return "yes" if needed(last) else "no"
        if "Write the state" in str(first):
            return summary
        return desk_answers([_message(m) for m in request["messages"]], request.get("tools") or [])

    return reply


def _message(wire: dict[str, Any]) -> BaseMessage:
    if wire["role"] == "system":
        return SystemMessage(wire["content"])
    if wire["role"] == "tool":
        name = (
            "restart" if "works" in wire["content"] else "read_logs" if "finding" in wire["content"] else SUMMARY_TOOL
        )
        return ToolMessage(wire["content"], tool_call_id=wire["tool_call_id"], name=name)
    if wire["role"] == "user" and wire["content"].startswith(FRAME):
        return SystemMessage(wire["content"])
    return HumanMessage(wire["content"]) if wire["role"] == "user" else AIMessage(wire["content"] or "")


@BOTH
async def test_the_agents_own_model_recalls_only_if_it_needs_to(way: str) -> None:
    summary = f"Pages do not load; the logs say {FINDINGS['password']}."
    reply = talking(follower(), lambda said: "finding" in said and "works" not in said, summary)
    with (
        OpenAIStubServer(reply=reply) as server,
        ToolMemory.ephemeral(methods=default_methods(SIT(SITPolicy.paper()))) as memory,
    ):
        teach(memory, summaries=True)
        desk = HelpDesk({"Zoe": "password"})
        model = make_chat_model(server)
        agent = app_of(memory, desk, model, suggest=SITPolicy.paper(recall="auto"))
        parts = await agent.parts(SYMPTOM.format("Zoe"), way, "custom", "messages")
        await model.root_async_client.close()
        assert desk.done == ["read_logs", "reset_password"]
        assert len(server.requests) == 3 + 3 + 1  # steps, decisions, one summary
        told = [part["toolmem"] for mode, part in parts if mode == "custom" and part["toolmem"]["node"] == "sit"]
        assert [event["recalled"] for event in told] == [False, True, False]
        streamed = [part[0].text for mode, part in parts if mode == "messages"]
        assert "".join(streamed).endswith("It works again.")
        assert not [text for text in streamed if text in ("yes", "no") or summary in text]
        memory.feedback("t", score=1.0)
        made = {each.text: each.made_by for each in stored(memory)}
        assert made[summary] == "model"


@BOTH
async def test_another_model_may_recall(memory: ToolMemory, way: str) -> None:
    teach(memory, summaries=True)
    summary = f"The logs say {FINDINGS['password']}."
    recaller = ScriptedChatModel(
        script=lambda messages, tools: AIMessage(summary if "five" in messages[0].text else "Yes.")
    )
    sit = SITSummary(memory, policy=SITPolicy(recall="auto"), model=recaller)
    desk = HelpDesk({"Zoe": "password"})
    agent = app_of(memory, desk, follower(), suggest=sit)
    await agent.ask(SYMPTOM.format("Zoe"), way)
    assert desk.done == ["read_logs", "reset_password"]
    assert (len(recaller.calls), len(agent.model.calls)) == (6, 3)


# --- what goes wrong ---


@BOTH
async def test_an_error_of_the_host_is_the_hosts(memory: ToolMemory, way: str) -> None:
    """Failing open is for the memory's own errors: the model's error is not swallowed, nor the model asked twice."""
    teach(memory)
    asked = []

    def broken(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        asked.append(1)
        raise TimeoutError("no answer")

    agent = app_of(memory, HelpDesk({"Zoe": "router"}), broken)
    with pytest.raises(TimeoutError):
        await agent.ask(SYMPTOM.format("Zoe"), way)
    assert len(asked) == 1
    agent.model.script = follower()
    await agent.ask(None, way)  # the thread goes on: the same turn, offered once
    assert ledger(memory).figures["sit"]["shown"] == 3
    assert ledger(memory).turns == {}


def test_the_shortcut_stands_around_yours_and_suggestions_inside(memory: ToolMemory) -> None:
    made = tool_memory_middleware(memory, suggest=True, inside=[HumanInTheLoopMiddleware(interrupt_on={})])
    assert [each.name for each in made] == ["ToolMemory", "HumanInTheLoopMiddleware", "ToolMemoryInside"]
    tools = [[tool.name for tool in getattr(each, "tools", ())] for each in made]
    assert tools == [[], [], [SUMMARY_TOOL]]
