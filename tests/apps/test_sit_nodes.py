"""`SITSummary` and the summary tool in real graphs, sync and async, with real checkpoints and a real chat client."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import histories as h
import pytest
from kept import ledger, sit
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from shells import WAYS, App, graph_of
from symptoms import (
    CURES,
    FINDINGS,
    SCHEMAS,
    SYMPTOM,
    HelpDesk,
    Switched,
    advised,
    asked,
    before_cure,
    follower,
    stored,
    teach,
)

from langgraph_toolmem import SIT, ConfigurationError, SITPolicy, ToolMemory, default_methods
from langgraph_toolmem.nodes import (
    MemoryState,
    SITSummary,
    memory_prompt,
)
from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.testing import OpenAIStubServer, make_chat_model
from langgraph_toolmem.turn.hints import HINTS
from langgraph_toolmem.turn.shown import FRAME

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)


def build(memory: ToolMemory, desk: HelpDesk, says: Any, *, asks: bool = False, recall: Any = None, **how: Any) -> App:
    sit = SITSummary(memory, model=recall)
    return graph_of(memory, desk, says, sit, more_tools=[sit.tool] if asks else [], **how)


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=SCHEMAS, methods=default_methods(SIT(SITPolicy()))) as made:
        yield made


# --- the hint ---


@BOTH
async def test_the_hint_is_in_the_call_and_nowhere_else(memory: ToolMemory, way: str) -> None:
    teach(memory)
    built = build(memory, HelpDesk({"Zoe": "password"}), follower())
    state = await built.ask(SYMPTOM.format("Zoe"), way)
    hints = built.hints()
    assert len(hints) == 3
    assert all("Likely next tools" in hint for hint in hints)
    assert len(set(hints)) == 3
    assert not [m for m in state["messages"] if isinstance(m, SystemMessage) or "Likely next" in m.text]
    assert memory_prompt(built.state()) == []


async def test_a_memory_that_knows_nothing_says_nothing() -> None:
    with ToolMemory.ephemeral() as memory:
        built = build(memory, HelpDesk({"Zoe": "password"}), follower())
        await built.ask(SYMPTOM.format("Zoe"))
        assert built.hints() == [""] * 4


@BOTH
async def test_a_resumed_thread_gets_a_hint_of_its_own_point(memory: ToolMemory, way: str) -> None:
    teach(memory)
    desk = HelpDesk({"Zoe": "password"})
    built = build(memory, desk, follower(), interrupt_before=["agent"])
    await built.ask(SYMPTOM.format("Zoe"), way)
    assert built.hints() == []
    config: Any = {"configurable": {"thread_id": "t"}}
    stored = built.state()[HINTS]["sit"]["text"]
    for _ in range(3):
        await built.ask(None, way)
    assert desk.done == ["read_logs", "reset_password"]
    assert built.hints()[0] == f"{FRAME}\n{stored}"
    assert len(set(built.hints())) == 3
    assert ledger(memory).figures["sit"]["shown"] == 3
    assert ledger(memory).turns == {}
    # Somebody writes into the thread behind the node's back: the hint was for another point.
    built.graph.update_state(config, {"messages": [HumanMessage("Wait")]}, as_node="sit")
    assert memory_prompt(built.state()) == []


async def test_forks_are_booked_apart(memory: ToolMemory) -> None:
    """Time travel to before the cure: the advice there has a record of its own."""
    teach(memory)
    built = build(memory, HelpDesk({"Zoe": "password"}), follower())
    config: Any = {"configurable": {"thread_id": "t"}}
    await built.ask(SYMPTOM.format("Zoe"))
    before = ledger(memory).figures["sit"]["shown"]
    point = next(
        s for s in built.graph.get_state_history(config) if s.next == ("sit",) and len(s.values["messages"]) == 3
    )
    built.graph.invoke(None, point.config)
    assert ledger(memory).figures["sit"]["shown"] - before == 2
    assert ledger(memory).turns == {}


@dataclass
class Chat:
    chat: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    toolmem_hints: dict[str, Any] = field(default_factory=dict)


async def test_other_states_and_keys(memory: ToolMemory) -> None:
    teach(memory)
    seen = []

    def agent(state: Chat) -> Any:
        seen.append([m.text for m in memory_prompt(state, messages_key="chat")])
        return {"chat": [AIMessage("Hi")]}

    builder = StateGraph(Chat)
    SITSummary(memory, messages_key="chat").add_to(builder)
    builder.add_node("agent", agent)
    builder.add_edge(START, "sit")
    builder.add_edge("sit", "agent")
    graph = builder.compile()
    await graph.ainvoke({"chat": [HumanMessage(SYMPTOM.format("Zoe"))]})
    assert "read_logs" in seen[0][0]


async def test_a_state_without_room_for_hints_goes_on_without(memory: ToolMemory) -> None:
    teach(memory)
    builder = StateGraph(MessagesState)
    SITSummary(memory).add_to(builder)
    builder.add_edge(START, "sit")
    state = builder.compile().invoke({"messages": [HumanMessage(SYMPTOM.format("Zoe"))]})
    assert [m.text for m in state["messages"]] == [SYMPTOM.format("Zoe")]


# --- learning with nodes alone ---


@BOTH
async def test_with_nodes_alone_nobody_calls_finish(way: str) -> None:
    with ToolMemory.ephemeral(methods=default_methods(SIT(SITPolicy(unlabelled=0.3)))) as memory:
        causes = {f"C{i}": "password" if i % 3 == 0 else "router" for i in range(9)}
        desk = HelpDesk(causes)
        built = build(memory, desk, follower(knows=dict(causes)))
        for name in causes:
            await built.ask(SYMPTOM.format(name), way, thread=name)
        assert len(stored(memory)) > 3
        assert sit(memory).drafts == {}
        desk.done.clear()
        built.model.calls.clear()
        desk.causes["Zoe"] = "password"
        await built.ask(SYMPTOM.format("Zoe"), way, thread="zoe")
        assert desk.done == ["read_logs", "reset_password"]
        assert "1. reset_password: 3 of the" in built.hints()[1]


async def test_without_it_nothing_is_learned_until_somebody_judges() -> None:
    memory = ToolMemory.ephemeral(tools=SCHEMAS, methods=default_methods(SIT(SITPolicy(unlabelled=0.0))))
    built = build(memory, HelpDesk({"Zoe": "password"}), follower())
    await built.ask(SYMPTOM.format("Zoe"), thread="zoe")
    assert stored(memory) == []
    assert len(sit(memory).drafts) == 1
    memory.feedback("zoe", score=1.0)
    assert len(stored(memory)) >= 2


# --- the tool ---


def calling(summary: str, *others: tuple[str, dict[str, Any]]) -> AIMessage:
    calls = [(SUMMARY_TOOL, {"summary": summary}), *others]
    return AIMessage(
        "",
        tool_calls=[
            {"name": name, "args": args, "id": f"call_{i}", "type": "tool_call"} for i, (name, args) in enumerate(calls)
        ],
    )


def toolnode(sit: SITSummary, *others: Any, schema: Any = MessagesState) -> Any:
    builder = StateGraph(schema)
    builder.add_node("tools", ToolNode([sit.tool, *others]))
    builder.add_edge(START, "tools")
    return builder.compile()


async def run(graph: Any, messages: list[Any], way: str, **config: Any) -> list[BaseMessage]:
    feed = {"messages": messages}
    state = graph.invoke(feed, config) if way == "sync" else await graph.ainvoke(feed, config)
    found: list[BaseMessage] = state["messages"]
    return found


@BOTH
@pytest.mark.parametrize("text", ["", "  \n ", "x" * 300_000, "ページが開きません", "password expired", "\ud800 lone"])
async def test_any_summary_is_answered(memory: ToolMemory, text: str, way: str) -> None:
    teach(memory, summaries=True)
    answer = (await run(toolnode(SITSummary(memory)), [*before_cure("password"), calling(text)], way))[-1]
    assert isinstance(answer, ToolMessage)
    assert (answer.status, answer.name) == ("success", SUMMARY_TOOL)
    best, other = advised([answer])
    assert {best, other} == set(CURES.values())
    if "password" in text or not text.strip():  # without a summary, the history is the state
        assert best == "reset_password"
    assert len(answer.text) < 3_000


@BOTH
async def test_what_it_says_can_be_judged(memory: ToolMemory, way: str) -> None:
    teach(memory, summaries=True)
    graph = toolnode(SITSummary(memory))
    answer = (await run(graph, [*before_cure("password"), calling("The logs say password expired.")], way))[-1].text
    assert answer.startswith("Likely next tools, from past successful runs:")
    assert re.search(r"1\. reset_password: .*past state.*nearest: 0\.\d\d", answer)
    assert "3 of 10 times after read_logs in successful runs" in answer
    assert 'A past state that led to it: "Customer' in answer
    assert ledger(memory).figures["sit"]["shown"] == 1


@BOTH
async def test_in_a_turn_with_other_calls(memory: ToolMemory, way: str) -> None:
    teach(memory, summaries=True)
    desk = HelpDesk({"Zoe": "password"})
    sit = SITSummary(memory)
    both = calling("where I stand", ("read_logs", {"name": "Zoe"}))
    messages = await run(toolnode(sit, *desk.tools), [HumanMessage(SYMPTOM.format("Zoe")), both], way)
    assert [m.name for m in messages if isinstance(m, ToolMessage)] == [SUMMARY_TOOL, "read_logs"]
    assert advised(messages)
    assert ledger(memory).turns == {}
    done = [*messages, *h.call("reset_password", {"name": "Zoe"}), *h.call("close_ticket", {"name": "Zoe"}), h.words()]
    memory.finish(done, thread_id="r", success=True)
    assert "where I stand" in [s.text for s in stored(memory, source="read_logs")]


async def test_outside_a_graph_it_knows_the_summary_alone(memory: ToolMemory) -> None:
    teach(memory, summaries=True)
    tool = SITSummary(memory).tool
    for answer in (tool.invoke({"summary": "x"}), await tool.ainvoke({"summary": "x"})):
        assert advised([ToolMessage(answer, tool_call_id="", name=SUMMARY_TOOL)])[0] == "read_logs"


async def test_a_state_without_messages(memory: ToolMemory) -> None:
    teach(memory, summaries=True)
    tool = SITSummary(memory, messages_key="elsewhere").tool
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([tool]))
    builder.add_edge(START, "tools")
    answer = (await run(builder.compile(), [*before_cure("password"), calling("x")], "sync"))[-1]
    assert advised([answer])[0] == "read_logs"


def test_the_model_sees_a_summary_and_nothing_else(memory: ToolMemory) -> None:
    tool = SITSummary(memory).tool
    assert list(tool.tool_call_schema.model_json_schema()["properties"]) == ["summary"]  # type: ignore[union-attr]
    assert tool.name == SUMMARY_TOOL
    assert "memory" not in repr(tool)


async def test_a_forged_runtime_is_not_taken(memory: ToolMemory) -> None:
    teach(memory, summaries=True)
    forged = calling("x")
    forged.tool_calls[0]["args"]["runtime"] = {"state": {"messages": []}}
    answer = (await run(toolnode(SITSummary(memory)), [*before_cure("password"), forged], "sync"))[-1]
    assert set(advised([answer])) == set(CURES.values())


async def test_a_memory_that_knows_nothing_answers_too() -> None:
    with ToolMemory.ephemeral() as memory:
        answer = (await run(toolnode(SITSummary(memory)), [asked("Zoe"), calling("x")], "sync"))[-1]
        assert "Nothing like this" in answer.text


# --- users, and what goes wrong ---


@BOTH
async def test_while_chroma_is_away_the_agent_goes_on_and_is_told(way: str, caplog: pytest.LogCaptureFixture) -> None:
    import chromadb
    from chromadb.config import Settings

    inner = chromadb.EphemeralClient(settings=Settings(anonymized_telemetry=False))
    client = Switched(inner)
    with ToolMemory.ephemeral(
        tools=SCHEMAS, methods=default_methods(SIT(SITPolicy())), chroma=client, namespace=("away", way)
    ) as memory:
        desk = HelpDesk({"Zoe": "password"})
        built = build(memory, desk, follower(asks=True), asks=True)
        with client.down():
            teach(memory)
            state = await built.ask(SYMPTOM.format("Zoe"), way)
            assert state["messages"][-1].text == "It works again."
            [answer] = [m for m in state["messages"] if isinstance(m, ToolMessage) and m.name == SUMMARY_TOOL]
            assert "Not looked at: the stored summaries could not be read" in answer.text
            assert advised([answer])
        memory.finish(state["messages"], thread_id="t", success=True)
        assert memory.flush()
        assert sit(memory).drafts == {}
        assert len(stored(memory)) > 10
        assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
    inner.close()


@pytest.mark.parametrize("own", [False, True])
def test_a_policy_that_wants_a_model_wants_it_in_a_graph(own: bool, caplog: pytest.LogCaptureFixture) -> None:
    auto = SITPolicy(recall="auto")
    with ToolMemory.ephemeral(tools=SCHEMAS, methods=default_methods(SIT(auto))) as memory:
        teach(memory)
        node = SITSummary(memory, policy=auto if own else None)
        with pytest.raises(ConfigurationError, match="model"):
            node.add_to(StateGraph(MemoryState))
        update = node.invoke({"messages": [HumanMessage(SYMPTOM.format("Zoe"))]})
        assert "read_logs" in update[HINTS]["sit"]["text"]
        assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


# --- recall="auto": two calls of a real chat client, if they are needed ---


def recalling(needed: Callable[[str], bool], summary: str) -> Callable[[dict[str, Any]], Any]:
    """A model on the wire that decides and writes."""

    def reply(request: dict[str, Any]) -> str:
        first, *_, last = (message["content"] for message in request["messages"])
        if "yes or no" in first:
            return "Is it plain what comes next? No. So: Yes." if needed(last) else "no"
        return summary

    return reply


@BOTH
async def test_a_model_that_never_asks_is_asked(way: str) -> None:
    """It decides at each step, and writes only where it is not sure."""
    text = f"Pages do not load; the logs say {FINDINGS['password']}."
    reply = recalling(lambda said: "finding" in said and "works" not in said, text)
    with (
        OpenAIStubServer(reply=reply) as server,
        ToolMemory.ephemeral(methods=default_methods(SIT(SITPolicy(recall="auto")))) as memory,
    ):
        teach(memory, summaries=True)
        desk = HelpDesk({"Zoe": "password"})
        model = make_chat_model(server)
        built = build(memory, desk, follower(), recall=model)
        parts = await built.parts(SYMPTOM.format("Zoe"), way, "custom", "messages")
        await model.root_async_client.close()
        assert desk.done == ["read_logs", "reset_password"]
        assert len(server.requests) == 3 + 1  # three steps are decided about, one summary is written
        told = [part["toolmem"] for mode, part in parts if mode == "custom" and part["toolmem"]["node"] == "sit"]
        assert [event["recalled"] for event in told] == [False, True, False]
        streamed = "".join(part[0].text for mode, part in parts if mode == "messages")
        assert "It works again." in streamed
        assert "Is it plain" not in streamed
        assert text not in streamed  # what the memory asks is not for the user's eyes
        memory.finish(built.state()["messages"], thread_id="t", success=True)
        kept = {s.text: s.made_by for s in stored(memory)}
        assert kept[text] == "model"
        assert not [s for s in kept if s.startswith("Asked:")]


# --- a memory on disk, over a restart ---


async def test_an_agent_goes_on_after_a_restart(tmp_path: Path) -> None:
    saver = InMemorySaver()
    desk = HelpDesk({"Zoe": "password"})

    def at_work() -> tuple[ToolMemory, App]:
        memory = ToolMemory(tmp_path, tools=SCHEMAS, methods=default_methods(SIT(SITPolicy())))
        return memory, build(memory, desk, follower(), interrupt_before=["agent"], checkpointer=saver)

    memory, built = at_work()
    with memory:
        teach(memory)
        await built.ask(SYMPTOM.format("Zoe"))
    for _ in range(3):
        memory, built = at_work()
        with memory:
            await built.ask(None)
            assert "Likely next tools" in built.hints()[0]
    assert desk.done == ["read_logs", "reset_password"]
    assert ledger(memory).figures["sit"]["right"] == 2
