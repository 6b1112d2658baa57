"""`MemoryRecall` and `ReflectionWriter` in real graphs, sync and async, with checkpoints, users and interrupts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from mailroom import (
    ADVICE,
    CAREFUL,
    CARELESS,
    HEAD,
    PER_USER,
    REQUEST,
    MailRoom,
    critic,
    past,
    prompts,
    recalls,
    script,
    teach,
)

from langgraph_toolmem import Entries, RecallPolicy, StorageError, ToolMemory, default_methods
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.entries.render import NOTHING
from langgraph_toolmem.nodes import MemoryRecall, MemoryState, Recorder, ReflectionWriter, memory_prompt
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.hints import HINTS
from langgraph_toolmem.turn.shown import FRAME, MOST, tokens_in

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", ["sync", "async"])
PLACES = pytest.mark.parametrize("place", ["front", "loop"])


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(methods=default_methods(Entries(critic=critic))) as made:
        yield made


@dataclass
class Context:
    user_id: str | None = None


@dataclass
class Built:
    """A graph of recall, agent, tools and reflection; what the model was asked is in ``model.calls``."""

    graph: Any
    model: ScriptedChatModel
    events: list[Any] = field(default_factory=list)

    async def ask(self, payload: Any, way: str = "sync", *, thread: str | None = "t", **options: Any) -> Any:
        """Runs the graph; the last state. Stream events are collected."""
        if isinstance(payload, str):
            payload = {"messages": [HumanMessage(payload)]}
        config: Any = {"configurable": {} if thread is None else {"thread_id": thread}}
        options = {"stream_mode": ["custom", "values"], **options}
        state: Any = None
        if way == "sync":
            for mode, part in self.graph.stream(payload, config, **options):
                state = self._take(mode, part, state)
        else:
            async for mode, part in self.graph.astream(payload, config, **options):
                state = self._take(mode, part, state)
        return state

    def _take(self, mode: str, part: Any, state: Any) -> Any:
        if mode == "values":
            return part
        self.events.append(part)
        return state

    @property
    def reflected(self) -> list[dict[str, Any]]:
        return [event["toolmem"] for event in self.events if event["toolmem"]["node"] == "reflection"]


def build(
    memory: ToolMemory,
    room: MailRoom,
    *,
    place: str = "front",
    recall: Any = None,
    reflect: ReflectionWriter | None = None,
    script: Any = script,
    **compiled: Any,
) -> Built:
    node = MemoryRecall(memory) if recall is None else recall
    model = ScriptedChatModel(script=script)
    bound = model.bind_tools(room.tools)

    def agent(state: MemoryState) -> Any:
        return {"messages": [bound.invoke([*memory_prompt(state), *state["messages"]])]}

    builder = StateGraph(MemoryState, context_schema=Context)
    node.add_to(builder)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode(room.tools))
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "agent")
    builder.add_edge("tools", "recall" if place == "loop" else "agent")
    if reflect is not None:
        reflect.add_to(builder)
        builder.add_edge("reflection", END)
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "reflection" if reflect else END})
    compiled.setdefault("checkpointer", InMemorySaver())
    return Built(builder.compile(**compiled), model)


def only_entry(memory: ToolMemory, **options: Any) -> Entry:
    """The one entry whose request is like the usual one."""
    [entry] = memory.entries.recall(REQUEST.format("Zoe"), **options)
    return entry


# --- what is shown ---


@BOTH
@PLACES
async def test_the_second_time_the_mistake_is_not_made_again(memory: ToolMemory, way: str, place: str) -> None:
    before, after = MailRoom(), MailRoom()
    await build(memory, before, place=place).ask(REQUEST.format("Zoe"), way, thread="before")
    teach(memory)
    await build(memory, after, place=place).ask(REQUEST.format("Zoe"), way, thread="after")
    assert before.done == CARELESS
    assert after.done == CAREFUL


@BOTH
@PLACES
async def test_every_model_call_of_the_turn_gets_the_same_and_it_is_looked_up_once(
    memory: ToolMemory, way: str, place: str
) -> None:
    teach(memory)
    built = build(memory, MailRoom(), place=place)
    state = await built.ask(REQUEST.format("Zoe"), way)
    first, *others = prompts(built.model)
    assert first.startswith(f"{FRAME}\n{HEAD}")
    assert ADVICE in first
    assert others == [others[0]] * 2
    assert ADVICE in others[0]
    assert len(others[0]) < len(first)
    assert len(recalls(built.events)) == 1
    assert HEAD not in "".join(m.text for m in state["messages"])
    assert all(not isinstance(m, SystemMessage) for m in state["messages"])


@BOTH
@PLACES
async def test_at_each_user_turn_it_looks_again(memory: ToolMemory, way: str, place: str) -> None:
    teach(memory)
    answers = {"hello": "Hello.", "thanks": "Welcome."}
    built = build(
        memory,
        MailRoom(),
        place=place,
        script=lambda messages, tools: (
            AIMessage(answers[messages[-1].text]) if messages[-1].text in answers else script(messages, tools)
        ),
    )
    for text in ("hello", REQUEST.format("Zoe"), "thanks"):
        await built.ask(text, way)
    told = recalls(built.events)
    assert [bool(event["entries"]) for event in told][:2] == [False, True]
    assert len(told) == 3
    assert prompts(built.model)[0] == ""
    assert [HEAD in prompt for prompt in prompts(built.model)[1:4]] == [True] * 3


@BOTH
async def test_the_stream_tells_which_and_why_and_no_word_of_the_runs(memory: ToolMemory, way: str) -> None:
    built = build(memory, MailRoom())
    await built.ask(REQUEST.format("Zoe"), way)
    assert recalls(built.events)[0]["reason"] == NOTHING
    teach(memory)
    await built.ask(REQUEST.format("Ida"), way, thread="other")
    event = recalls(built.events)[-1]
    [lesson] = memory.entries.lessons()
    assert [(each["verdict"], each["lesson"]) for each in event["entries"]] == [("failed", lesson.id)]
    assert all(0 < each["score"] <= 1 and each["evidence"] for each in event["entries"])
    assert not [word for word in ("Ann", "meeting", "send_mail", ADVICE) if word in json.dumps(event)]


async def test_budget_policy_and_unjudged_runs(memory: ToolMemory) -> None:
    teach(memory)
    memory.entries.lessons.undo(memory.entries.lessons()[0].id)
    memory.finish(past("Dora"), thread_id="unjudged")
    memory.flush()
    for options, shown, unjudged in (
        ({"policy": RecallPolicy(kind="fixed", n=1)}, 1, 0),
        ({"policy": RecallPolicy(kind="fixed", n=2), "budget": 80}, 1, 0),
        ({"unjudged": True}, 4, 1),
        ({}, 3, 0),
    ):
        built = build(memory, MailRoom(), recall=MemoryRecall(memory, **options))
        await built.ask(REQUEST.format("Zoe"), thread=repr(options))
        prompt = prompts(built.model)[0]
        assert prompt.count("Request: ") == shown, options
        assert prompt.count("nobody said how they went") == unjudged
        assert tokens_in(prompt) <= options.get("budget", MOST) + tokens_in(FRAME)


# --- threads and users ---


@BOTH
@PLACES
async def test_a_resumed_thread_keeps_what_it_was_shown_even_in_another_process(way: str, place: str) -> None:
    saver, room = InMemorySaver(), MailRoom()
    with ToolMemory.ephemeral(methods=default_methods(Entries(critic=critic))) as memory:
        teach(memory)
        paused = build(memory, room, place=place, checkpointer=saver, interrupt_before=["tools"])
        await paused.ask(REQUEST.format("Zoe"), way)
    assert room.done == []
    with ToolMemory.ephemeral() as empty:
        resumed = build(empty, room, place=place, checkpointer=saver)
        await resumed.ask(None, way)
        assert room.done == CAREFUL
        assert recalls(resumed.events) == []
        assert [ADVICE in prompt for prompt in prompts(paused.model) + prompts(resumed.model)] == [True] * 3


@BOTH
async def test_a_thread_is_not_shown_its_own_run(memory: ToolMemory, way: str) -> None:
    built = build(memory, MailRoom(), reflect=ReflectionWriter(memory, verdict=lambda state: False))
    for name in ("Zoe", "Ida"):
        await built.ask(REQUEST.format(name), way)
        assert memory.flush()
    assert len(memory.entries.recall(REQUEST.format("Zoe"))) == 2  # one for each request
    assert [event["entries"] for event in recalls(built.events)] == [[], []]
    await built.ask(REQUEST.format("Zoe"), way, thread="other")
    [lesson] = memory.entries.lessons()
    assert [each["lesson"] for each in recalls(built.events)[-1]["entries"]] == [lesson.id]


@BOTH
async def test_users_do_not_see_each_others_runs(way: str) -> None:
    with ToolMemory.ephemeral(methods=default_methods(Entries(critic=critic)), namespace=PER_USER) as memory:
        teach(memory, user_id="ann@example.org")
        built = build(memory, MailRoom(), reflect=ReflectionWriter(memory, verdict=lambda state: True))
        for user, advised in (("ben@example.org", False), ("ann@example.org", True), ("ann", False)):
            asked = len(built.model.calls)
            await built.ask(REQUEST.format("Zoe"), way, thread=user, context=Context(user))
            assert all((ADVICE in prompt) is advised for prompt in prompts(built.model)[asked:]), user
        assert memory.flush()
        assert only_entry(memory, user_id="ben@example.org").good
        assert only_entry(memory, user_id="ann").good


@BOTH
async def test_without_the_user_the_namespace_needs_nothing_is_shown_or_kept(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ToolMemory.ephemeral(methods=default_methods(Entries(critic=critic)), namespace=PER_USER) as memory:
        teach(memory, user_id="ann")
        room = MailRoom()
        built = build(memory, room, place="loop", reflect=ReflectionWriter(memory, verdict=lambda state: True))
        await built.ask(REQUEST.format("Zoe"), way)
        await built.ask(REQUEST.format("Zoe"), way)
        assert room.done == CARELESS * 2
        assert set(prompts(built.model)) == {""}
        assert memory.flush()
        assert len(memory.entries.recall(REQUEST.format("Zoe"), user_id="ann")) == 3
    failed = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len([text for text in failed if text.startswith("MemoryRecall failed")]) == 1
    assert len([text for text in failed if text.startswith("ReflectionWriter failed")]) == 1
    assert all("user id" in text for text in failed)


# --- a memory that fails ---


@BOTH
async def test_a_memory_that_fails_stops_nobody(
    memory: ToolMemory, way: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("secret of a user")

    teach(memory)
    monkeypatch.setattr(memory.entries, "recollect", broken)
    monkeypatch.setattr(memory.core.events, "finish", broken)
    room = MailRoom()
    built = build(memory, room, place="loop", reflect=ReflectionWriter(memory))
    state = await built.ask(REQUEST.format("Zoe"), way)
    assert room.done == CARELESS
    assert state["messages"][-1].text == "The mail to Zoe is sent."
    failed = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(failed) == 2
    assert "secret" not in "".join(r.getMessage() for r in failed)


@BOTH
async def test_entries_that_cannot_be_read_are_missing_in_the_stream_and_not_in_the_prompt(
    memory: ToolMemory, way: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    teach(memory)

    def away(*_: Any, **__: Any) -> Any:
        raise StorageError("it is away")

    monkeypatch.setattr(memory.entries.rows, "near", away)
    built = build(memory, MailRoom(), place="loop")
    await built.ask(REQUEST.format("Zoe"), way)
    [event] = recalls(built.events)
    assert "could not be read" in event["reason"]
    assert prompts(built.model) == [""] * 2


# --- other graphs ---


class Own(MemoryState):
    chat: Annotated[list[AnyMessage], add_messages]


@BOTH
async def test_another_messages_key(memory: ToolMemory, way: str) -> None:
    teach(memory)
    room, model = MailRoom(), ScriptedChatModel(script=script)
    bound = model.bind_tools(room.tools)
    recall = MemoryRecall(memory, messages_key="chat", name="remember")
    writer = ReflectionWriter(memory, messages_key="chat", verdict=lambda state: len(state["chat"]) > 3)

    def agent(state: Own) -> Any:
        return {"chat": [bound.invoke([*memory_prompt(state, messages_key="chat"), *state["chat"]])]}

    builder = StateGraph(Own)
    builder.add_node("remember", recall)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode(room.tools, messages_key="chat"))
    builder.add_node("reflect", writer)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", "agent")
    builder.add_edge("tools", "remember")
    builder.add_conditional_edges(
        "agent", lambda state: tools_condition(state, messages_key="chat"), {"tools": "tools", END: "reflect"}
    )
    graph = builder.compile()
    feed: Any = {"chat": [HumanMessage(REQUEST.format("Zoe"))]}
    await graph.ainvoke(feed) if way == "async" else graph.invoke(feed)
    assert room.done == CAREFUL
    assert memory.flush()
    [mine] = [entry for entry in memory.entries.recall(REQUEST.format("Ida")) if entry.good]
    assert mine.tools == ("find_address", "send_mail")


async def test_a_graph_without_room_for_hints_runs_as_before(memory: ToolMemory) -> None:
    teach(memory)
    room, model = MailRoom(), ScriptedChatModel(script=script)
    bound = model.bind_tools(room.tools)
    builder = StateGraph(MessagesState)
    builder.add_node("recall", MemoryRecall(memory))
    builder.add_node("agent", lambda state: {"messages": [bound.invoke([*memory_prompt(state), *state["messages"]])]})
    builder.add_node("tools", ToolNode(room.tools))
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "agent")
    builder.add_edge("tools", "agent")
    builder.add_conditional_edges("agent", tools_condition)
    state = builder.compile().invoke({"messages": [("user", REQUEST.format("Zoe"))]})
    assert room.done == CARELESS
    assert HINTS not in state


# --- the end of the run ---


@BOTH
@pytest.mark.parametrize(
    ("verdict", "score"),
    [
        (None, None),
        (lambda s: None, None),
        (lambda s: True, 1.0),
        (lambda s: False, 0.0),
        (lambda s: 0.3, 0.3),
        (lambda s: 1, 1.0),
    ],
    ids=["nobody", "none", "true", "false", "score", "number"],
)
@pytest.mark.parametrize("thread", ["t", None])
async def test_the_verdict_is_the_entrys(
    memory: ToolMemory, way: str, verdict: Any, score: float | None, thread: str | None
) -> None:
    options = {} if thread else {"checkpointer": None}
    built = build(memory, MailRoom(), reflect=ReflectionWriter(memory, verdict=verdict), **options)
    await built.ask(REQUEST.format("Zoe"), way, thread=thread)
    assert memory.flush()
    entry = only_entry(memory)
    assert (entry.score, entry.query, entry.tools) == (score, REQUEST.format("Zoe"), ("send_mail",))
    assert (ADVICE in entry.critique) is (score is not None and score < 0.5)
    assert [event["score"] for event in built.reflected] == [score]
    assert built.reflected[0]["learned_turns"] == 2


@BOTH
async def test_the_verdict_reads_the_state(memory: ToolMemory, way: str) -> None:
    def judge(state: Any) -> bool:
        return "sent" in state["messages"][-1].text

    built = build(memory, MailRoom(), reflect=ReflectionWriter(memory, verdict=judge))
    await built.ask(REQUEST.format("Zoe"), way)
    assert memory.flush()
    assert only_entry(memory).good


@BOTH
@pytest.mark.parametrize(
    "verdict",
    [lambda s: s["nothing"], lambda s: "good", lambda s: 1.5, lambda s: float("nan")],
    ids=["raises", "text", "above", "nan"],
)
async def test_a_verdict_that_fails_is_none_and_said_once(
    memory: ToolMemory, way: str, verdict: Any, caplog: pytest.LogCaptureFixture
) -> None:
    built = build(memory, MailRoom(), reflect=ReflectionWriter(memory, verdict=verdict))
    for name in ("Zoe", "Ida"):
        await built.ask(REQUEST.format(name), way, thread=name)
    assert memory.flush()
    assert [entry.score for entry in memory.entries.recall(REQUEST.format("Ann"))] == [None, None]
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


@BOTH
async def test_a_verdict_may_ask_a_person(memory: ToolMemory, way: str) -> None:
    built = build(memory, MailRoom(), reflect=ReflectionWriter(memory, verdict=lambda state: interrupt("All right?")))
    await built.ask(REQUEST.format("Zoe"), way)
    assert memory.flush()
    assert memory.entries.recall(REQUEST.format("Zoe")) == []
    await built.ask(Command(resume=False), way)
    assert memory.flush()
    assert only_entry(memory).failed


@BOTH
async def test_waiting_means_that_all_is_written(memory: ToolMemory, way: str) -> None:
    for name, verdict in (("Zoe", False), ("Ida", 0.0)):
        writer = ReflectionWriter(memory, verdict=lambda state, verdict=verdict: verdict, wait=True)
        await build(memory, MailRoom(), reflect=writer).ask(REQUEST.format(name), way, thread=name)
    entries = list(memory.entries.rows.all(memory.core.users.of(None)))
    assert [ADVICE in entry.critique for entry in entries] == [True, True]


@BOTH
async def test_each_request_of_a_conversation_is_an_entry(memory: ToolMemory, way: str) -> None:
    built = build(memory, MailRoom(), reflect=ReflectionWriter(memory))
    for name in ("Zoe", "Ida"):
        await built.ask(REQUEST.format(name), way)
    memory.feedback("t", score=0.0, comment="not Ida")
    assert memory.flush()
    found = {entry.query: entry for entry in memory.entries.rows.all(memory.core.users.of(None))}
    first, entry = (found[REQUEST.format(name)] for name in ("Zoe", "Ida"))
    assert [[call.args["to"] for call in each.calls] for each in (first, entry)] == [["Zoe"], ["Ida"]]
    assert (first.score, first.critique) == (None, "")
    assert (entry.score, entry.comment) == (0.0, "not Ida")
    assert ADVICE in entry.critique


@BOTH
async def test_the_record_of_what_was_shown_comes_with_the_verdict(memory: ToolMemory, way: str) -> None:
    teach(memory)
    built = build(memory, MailRoom(), reflect=ReflectionWriter(memory, verdict=lambda state: True))
    await built.ask(REQUEST.format("Zoe"), way)
    assert memory.flush()
    [shown] = [lesson for lesson in memory.entries.lessons() if lesson.failed]
    assert (shown.recalled, shown.helped, shown.hurt) == (1, 1, 0)


@BOTH
async def test_after_branches_side_by_side_it_waits_for_the_longest(memory: ToolMemory, way: str) -> None:
    def sends(to: str) -> Any:
        def branch(_: MessagesState) -> Any:
            call = {"name": "send_mail", "args": {"to": to}, "id": f"call_{to}"}
            return {"messages": [AIMessage("", tool_calls=[call]), ToolMessage("sent", tool_call_id=call["id"])]}

        return branch

    builder = StateGraph(MessagesState)
    for name in ("short", "long", "longer"):
        builder.add_node(name, sends(name))
    ReflectionWriter(memory, verdict=lambda state: True).add_to(builder, "reflect", defer=True)
    builder.add_edge(START, "short")
    builder.add_edge(START, "long")
    builder.add_edge("long", "longer")
    builder.add_edge(["short"], "reflect")
    builder.add_edge(["longer"], "reflect")
    built = Built(builder.compile(checkpointer=InMemorySaver()), ScriptedChatModel(script=[]))
    await built.ask(REQUEST.format("Zoe"), way)
    assert len(built.reflected) == 1
    assert memory.flush()
    assert {call.args["to"] for call in only_entry(memory).calls} == {"short", "long", "longer"}


async def test_a_recorder_beside_it_learns_each_turn_once(memory: ToolMemory) -> None:
    room, model = MailRoom(), ScriptedChatModel(script=script)
    bound = model.bind_tools(room.tools)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(room.tools))
    builder.add_node("recorder", Recorder(memory))
    builder.add_node("reflect", ReflectionWriter(memory, verdict=lambda state: True))
    builder.add_edge(START, "agent")
    builder.add_edge("tools", "agent")
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "recorder"})
    builder.add_edge("recorder", "reflect")
    builder.compile().invoke({"messages": [("user", REQUEST.format("Zoe"))]})
    assert memory.report().turns == 2
    assert memory.flush()
    assert only_entry(memory).good
