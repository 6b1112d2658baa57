"""Suggestions in real ``create_agent`` agents: beside the shortcut, people and other middleware, sync and async."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from agents import WAYS
from desk import EAGER, Desk, history, request
from desk import script as desk_script
from kept import inertia, ledger
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ModelRequest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from symptoms import FINDINGS, SCHEMAS, SYMPTOM, HelpDesk, advised, follower, names, stored, teach, tool_call

from langgraph_toolmem import SIT, ConfigurationError, SITPolicy, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import SITSummary
from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, make_chat_model

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)
HINT = "Likely next tools"


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=SCHEMAS, methods=default_methods(SIT(SITPolicy()))) as made:
        yield made


class Agent:
    """An agent with the memory's middleware."""

    def __init__(
        self,
        memory: ToolMemory,
        tools: Sequence[Any],
        model: Any,
        *,
        suggest: bool | SITPolicy | SITSummary = True,
        shortcut: bool = False,
        inside: Sequence[Any] = (),
        **options: Any,
    ) -> None:
        self.model = ScriptedChatModel(script=model) if callable(model) else model
        middleware = tool_memory_middleware(memory, inside=inside, suggest=suggest, shortcut=shortcut and EAGER)
        options.setdefault("checkpointer", InMemorySaver())
        self.graph: Any = create_agent(self.model, list(tools), middleware=middleware, **options)

    async def ask(self, payload: Any, way: str, *, thread: str = "t", **configurable: Any) -> dict[str, Any]:
        config: Any = {"configurable": {"thread_id": thread, **configurable}}
        if isinstance(payload, str):
            payload = {"messages": [HumanMessage(payload)]}
        if way == "sync":
            found: dict[str, Any] = self.graph.invoke(payload, config)
        else:
            found = await self.graph.ainvoke(payload, config)
        return found

    def systems(self) -> list[Sequence[SystemMessage]]:
        return [[m for m in call.messages if isinstance(m, SystemMessage)] for call in self.model.calls]


# --- the hint ---


@BOTH
async def test_the_state_leads_to_the_cure(memory: ToolMemory, way: str) -> None:
    teach(memory)
    steps = {}
    for name, suggest in (("frequency", SITPolicy(recall="tool", weight_words=0.0)), ("states", True)):
        desk = HelpDesk({"Zoe": "password"})
        await Agent(memory, desk.tools, follower(), suggest=suggest).ask(SYMPTOM.format("Zoe"), way, thread=name)
        steps[name] = desk.done
    assert steps["frequency"] == ["read_logs", "restart_router", "reset_password"]
    assert steps["states"] == ["read_logs", "reset_password"]


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
    agent = Agent(memory, HelpDesk({"Zoe": "password"}).tools, follower(), system_prompt=prompt)
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
        agent = Agent(memory, [], lambda messages, tools: AIMessage("Hi"), suggest=True, system_prompt="You are kind.")
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
    agent = Agent(memory, HelpDesk({"Zoe": "router"}).tools, follower(), inside=[NoPasswords()])
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
    with ToolMemory.ephemeral() as memory:
        agent = Agent(memory, HelpDesk({"Zoe": "password"}).tools, follower(), shortcut=shortcut)
        await agent.ask("The password of Zoe is forgotten, give a fresh one", way)
        [first] = agent.systems()[0]
        assert "1. reset_password: its description fits the request" in first.text
        assert names(memory.sit.suggest([HumanMessage("a fresh password")], k=1)) == ["reset_password"]
        assert SUMMARY_TOOL not in {*memory.core.catalogue.specs, *memory.core.graph.tools}


@BOTH
async def test_each_step_is_one_stream_event(memory: ToolMemory, way: str) -> None:
    teach(memory)
    agent = Agent(memory, HelpDesk({"Zoe": "password"}).tools, follower())
    config: Any = {"configurable": {"thread_id": "t"}}
    feed = {"messages": [HumanMessage(SYMPTOM.format("Zoe"))]}
    if way == "sync":
        events = list(agent.graph.stream(feed, config, stream_mode="custom"))
    else:
        events = [event async for event in agent.graph.astream(feed, config, stream_mode="custom")]
    told = [event["toolmem"] for event in events if event["toolmem"]["node"] == "sit"]
    assert [event["suggestions"][0]["tool"] for event in told[:2]] == ["read_logs", "reset_password"]
    assert len(told) == 3
    json.dumps(told)


# --- the tool ---


@BOTH
async def test_the_agent_has_the_summary_tool(way: str) -> None:
    with ToolMemory.ephemeral(methods=default_methods(SIT(SITPolicy.paper()))) as memory:
        teach(memory, summaries=True)
        desk = HelpDesk({"Zoe": "password"})
        agent = Agent(memory, desk.tools, follower(asks=True))
        state = await agent.ask(SYMPTOM.format("Zoe"), way)
        assert desk.done == ["read_logs", "reset_password"]
        [answer] = [m for m in state["messages"] if isinstance(m, ToolMessage) and m.name == SUMMARY_TOOL]
        assert advised([answer])[0] == "reset_password"
        assert "cosine" in answer.text or "nearest" in answer.text
        assert ledger(memory).turns == {}
        assert SUMMARY_TOOL not in {*memory.report().tools, *memory.view().tools}


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
    state = await Agent(memory, desk.tools, script).ask(SYMPTOM.format("Zoe"), way)
    assert desk.done == ["read_logs"]
    assert [m.name for m in state["messages"] if isinstance(m, ToolMessage)] == [SUMMARY_TOOL, "read_logs"]
    assert memory.view().tools["read_logs"].ok == 11
    assert ledger(memory).turns == {}


async def test_without_it_if_that_is_wanted(memory: ToolMemory) -> None:
    sit = SITSummary(memory, summary_tool=False)
    agent = Agent(memory, HelpDesk({"Zoe": "router"}).tools, follower(), suggest=sit)
    await agent.ask(SYMPTOM.format("Zoe"), "sync")
    assert all(SUMMARY_TOOL not in repr(call.tools) for call in agent.model.calls)


# --- beside the others ---


@BOTH
async def test_a_skipped_step_asks_for_no_advice(way: str) -> None:
    desk = Desk()
    with ToolMemory.ephemeral(tools=desk.tools, methods=default_methods(SIT(SITPolicy()))) as memory:
        for i in range(30):
            memory.finish(history(i), thread_id=f"warm-{i}", success=True)
        agent = Agent(memory, desk.tools, desk_script, shortcut=True)
        await agent.ask(request("Zoe"), way)
        assert len(desk.done) == 3
        asked = len(agent.model.calls)
        assert asked < 4
        assert ledger(memory).figures["sit"]["shown"] == asked
        assert ledger(memory).turns == {}
        assert sum(memory.core.graph.counters.get(f"acted_{end}", 0) for end in ("ok", "failed")) == 4 - asked


@BOTH
async def test_a_summary_call_is_no_turn_of_the_shortcuts_record(way: str) -> None:
    with ToolMemory.ephemeral() as memory:
        agent = Agent(memory, HelpDesk({"Zoe": "password"}).tools, follower(asks=True), shortcut=True)
        await agent.ask(SYMPTOM.format("Zoe"), way)
        assert len(agent.model.calls) == 5
        assert memory.report().turns == 4
        assert inertia(memory).open_turns == {}


@BOTH
@pytest.mark.parametrize("decision", ["approve", "edit", "reject"])
async def test_what_a_person_decides_is_the_record(memory: ToolMemory, way: str, decision: str) -> None:
    teach(memory)
    desk = HelpDesk({"Zoe": "password"})
    gate = HumanInTheLoopMiddleware(interrupt_on={"reset_password": True})
    agent = Agent(memory, desk.tools, follower(), inside=[gate])
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
    agents = [Agent(memory, desk.tools, follower()) for desk in desks]
    for number, agent in enumerate(agents):
        await agent.ask(SYMPTOM.format("Zoe"), way, thread=f"t{number}")
    assert [desk.done[1:] for desk in desks] == [["reset_password"], ["restart_router"]]
    assert ledger(memory).figures["sit"]["right"] == 4


@BOTH
async def test_each_user_has_summaries_of_their_own(way: str) -> None:
    with ToolMemory.ephemeral(
        tools=SCHEMAS, methods=default_methods(SIT(SITPolicy())), namespace=("toolmem", "{user_id}")
    ) as memory:
        teach(memory, summaries=True, user_id="ann")
        for user, expected in (("ann", True), ("bob", False)):
            agent = Agent(memory, HelpDesk({"Zoe": "password"}).tools, follower(asks=True))
            await agent.ask(SYMPTOM.format("Zoe"), way, thread=user, user_id=user)
            said = "".join(m.text for call in agent.model.calls for m in call.messages)
            assert ("A past state that led to it: Customer" in said) is expected


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
        agent = Agent(memory, desk.tools, model, suggest=SITPolicy.paper(recall="auto"))
        feed = {"messages": [HumanMessage(SYMPTOM.format("Zoe"))]}
        config: Any = {"configurable": {"thread_id": "t"}}
        if way == "sync":
            parts = list(agent.graph.stream(feed, config, stream_mode=["custom", "messages"]))
        else:
            parts = [p async for p in agent.graph.astream(feed, config, stream_mode=["custom", "messages"])]
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
    agent = Agent(memory, desk.tools, follower(), suggest=sit)
    await agent.ask(SYMPTOM.format("Zoe"), way)
    assert desk.done == ["read_logs", "reset_password"]
    assert (len(recaller.calls), len(agent.model.calls)) == (6, 3)


@BOTH
async def test_a_recall_that_fails_leaves_the_rest(
    memory: ToolMemory, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    teach(memory)

    def broken(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        raise TimeoutError("no answer")

    sit = SITSummary(memory, policy=SITPolicy(recall="auto"), model=ScriptedChatModel(script=broken))
    agent = Agent(memory, HelpDesk({"Zoe": "router"}).tools, follower(), suggest=sit)
    await agent.ask(SYMPTOM.format("Zoe"), way)
    assert [len(call) for call in agent.systems()] == [1, 1, 1]
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


# --- what goes wrong ---


@BOTH
async def test_without_a_user_the_agent_goes_on(way: str, caplog: pytest.LogCaptureFixture) -> None:
    with ToolMemory.ephemeral(tools=SCHEMAS, namespace=("toolmem", "{user_id}")) as memory:
        agent = Agent(memory, HelpDesk({"Zoe": "router"}).tools, follower(asks=True), shortcut=True)
        state = await agent.ask(SYMPTOM.format("Zoe"), way)
        assert state["messages"][-1].text == "It works again."
        assert agent.systems() == [[]] * len(agent.model.calls)
        [answer] = [m for m in state["messages"] if isinstance(m, ToolMessage) and m.name == SUMMARY_TOOL]
        assert "NamespaceError" in answer.text
        assert memory.report().turns == 0
        assert caplog.records


@BOTH
async def test_an_error_of_the_host_is_the_hosts(memory: ToolMemory, way: str) -> None:
    """Failing open is for the memory's own errors: the model's error is not swallowed, nor the model asked twice."""
    teach(memory)
    asked = []

    def broken(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        asked.append(1)
        raise TimeoutError("no answer")

    agent = Agent(memory, HelpDesk({"Zoe": "router"}).tools, broken)
    with pytest.raises(TimeoutError):
        await agent.ask(SYMPTOM.format("Zoe"), way)
    assert len(asked) == 1
    agent.model.script = follower()
    await agent.ask(None, way)  # the thread goes on: the same turn, offered once
    assert ledger(memory).figures["sit"]["shown"] == 3
    assert ledger(memory).turns == {}


def test_wrong_arguments_are_told(memory: ToolMemory) -> None:
    with pytest.raises(ConfigurationError, match="suggest"):
        tool_memory_middleware(memory, suggest="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="ToolMemory"):
        tool_memory_middleware("memory", suggest=True)  # type: ignore[arg-type]
    [ours] = tool_memory_middleware(memory, suggest=True, shortcut=False)
    with pytest.raises(ConfigurationError, match=r"inside\[0\]"):
        tool_memory_middleware(memory, inside=[ours])


def test_the_shortcut_stands_around_yours_and_suggestions_inside(memory: ToolMemory) -> None:
    made = tool_memory_middleware(memory, suggest=True, inside=[HumanInTheLoopMiddleware(interrupt_on={})])
    assert [each.name for each in made] == ["ToolMemory", "HumanInTheLoopMiddleware", "ToolMemoryInside"]
    tools = [[tool.name for tool in getattr(each, "tools", ())] for each in made]
    assert tools == [[], [], [SUMMARY_TOOL]]
