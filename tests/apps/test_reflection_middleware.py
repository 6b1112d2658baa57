"""Reflection in agents: runs are kept at their end, and when an error ends them; the host sees its errors as ever."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from agents import WAYS
from desk import EAGER, Desk, history, request
from desk import script as desk_script
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from mailroom import ADVICE, CAREFUL, CARELESS, PER_USER, REQUEST, MailRoom, critic, script, teach

from langgraph_toolmem import ConfigurationError, Entries, Inertia, StorageError, ToolMemory, default_methods
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.middleware import ToolMemoryMiddleware, tool_memory_middleware
from langgraph_toolmem.nodes import ReflectionWriter
from langgraph_toolmem.stores import database
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)
ZOE = REQUEST.format("Zoe")
THREAD: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(methods=default_methods(Entries(critic=critic))) as made:
        yield made


def reflecting(memory: ToolMemory, **options: Any) -> list[Any]:
    return tool_memory_middleware(memory, reflect=ReflectionWriter(memory, **options))


class Agent:
    """An agent with the memory's middleware for reflection, or with one's own list."""

    def __init__(
        self,
        memory: ToolMemory | None,
        tools: Sequence[Any],
        *,
        model: Any = None,
        middleware: Any = None,
        **options: Any,
    ) -> None:
        if middleware is None:
            assert memory is not None
            middleware = tool_memory_middleware(memory, reflect=True)
        self.model = ScriptedChatModel(script=model or script)
        options.setdefault("checkpointer", InMemorySaver())
        self.graph: Any = create_agent(self.model, list(tools), middleware=list(middleware), **options)

    async def ask(self, payload: Any, way: str, *, thread: str | None = "t", **configurable: Any) -> Any:
        if isinstance(payload, str):
            payload = {"messages": [HumanMessage(payload)]}
        config: Any = {"configurable": configurable if thread is None else {"thread_id": thread, **configurable}}
        return self.graph.invoke(payload, config) if way == "sync" else await self.graph.ainvoke(payload, config)


def entries(memory: ToolMemory, user_id: str | None = None) -> list[Entry]:
    assert memory.flush()
    return memory.entries.recall(ZOE, user_id=user_id)


def only(memory: ToolMemory, user_id: str | None = None) -> Entry:
    [entry] = entries(memory, user_id)
    return entry


def calls_of(entry: Entry) -> list[tuple[str, str]]:
    return [(call.tool, call.status) for call in entry.calls]


class BrokenError(Exception):
    """An error of the host, with a secret in its text."""


def failing(at: int, script: Callable[..., AIMessage] = script, times: int = 1) -> Callable[..., AIMessage]:
    """A model that raises when it is asked for the `at`-th time, and the next `times - 1` times."""
    asked: list[int] = []

    def answer(messages: Any, tools: Any) -> AIMessage:
        asked.append(1)
        if at <= len(asked) < at + times:
            raise BrokenError("secret")
        return script(messages, tools)

    return answer


# --- the regular end ---


@BOTH
@pytest.mark.parametrize(
    ("verdict", "score"),
    [(None, None), (lambda s: True, 1.0), (lambda s: False, 0.0), (lambda s: 0.25, 0.25), (lambda s: None, None)],
    ids=["nobody", "true", "false", "score", "none"],
)
@pytest.mark.parametrize("thread", ["t", None])
async def test_a_run_is_kept_with_its_verdict(
    memory: ToolMemory, way: str, verdict: Any, score: float | None, thread: str | None
) -> None:
    middleware = reflecting(memory, verdict=verdict)
    agent = Agent(None, MailRoom().tools, middleware=middleware, checkpointer=InMemorySaver() if thread else None)
    await agent.ask(ZOE, way, thread=thread)
    entry = only(memory)
    assert (entry.query, entry.score, entry.comment, calls_of(entry)) == (ZOE, score, "", [("send_mail", "ok")])
    assert (ADVICE in entry.critique) is entry.failed


@BOTH
async def test_the_verdict_reads_the_state_of_the_agent(memory: ToolMemory, way: str) -> None:
    seen: list[list[str]] = []

    def judge(state: Any) -> bool:
        seen.append([m.type for m in state["messages"]])
        return True

    await Agent(None, MailRoom().tools, middleware=reflecting(memory, verdict=judge)).ask(ZOE, way)
    assert seen == [["human", "ai", "tool", "ai"]]


@BOTH
async def test_waiting_means_that_the_critique_is_written(memory: ToolMemory, way: str) -> None:
    middleware = reflecting(memory, verdict=lambda state: False, wait=True)
    await Agent(None, MailRoom().tools, middleware=middleware).ask(ZOE, way)
    [entry] = list(memory.entries.rows.all(memory.core.users.of(None)))
    assert ADVICE in entry.critique


@BOTH
async def test_it_teaches_the_next_run(memory: ToolMemory, way: str) -> None:
    rooms = [MailRoom(), MailRoom()]
    for number, room in enumerate(rooms):
        agent = Agent(memory, room.tools, middleware=tool_memory_middleware(memory, recall=True, reflect=True))
        await agent.ask(ZOE, way, thread=str(number))
        memory.feedback(str(number), score=0.0)
        assert memory.flush()
    assert [room.done for room in rooms] == [CARELESS, CAREFUL]


@BOTH
async def test_the_stream_tells_of_it(memory: ToolMemory, way: str) -> None:
    agent = Agent(None, MailRoom().tools, middleware=reflecting(memory, verdict=lambda state: 0.5))
    feed, config = {"messages": [HumanMessage(ZOE)]}, {"configurable": {"thread_id": "t"}}
    if way == "sync":
        events = list(agent.graph.stream(feed, config, stream_mode="custom"))
    else:
        events = [event async for event in agent.graph.astream(feed, config, stream_mode="custom")]
    [told] = [event["toolmem"] for event in events if event["toolmem"]["node"] == "reflection"]
    assert told == {"node": "reflection", "score": 0.5, "learned_turns": 0}  # a recorder was there


@BOTH
@pytest.mark.parametrize(
    "verdict", [lambda s: s["nothing"], lambda s: "fine", lambda s: -1], ids=["raises", "text", "below"]
)
async def test_a_verdict_that_fails_is_none_and_said_once(
    memory: ToolMemory, way: str, verdict: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(None, MailRoom().tools, middleware=reflecting(memory, verdict=verdict))
    for thread in "ab":
        await agent.ask(ZOE, way, thread=thread)
    assert [entry.score for entry in entries(memory)] == [None, None] or len(entries(memory)) == 1
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


# --- people ---


@BOTH
@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_a_paused_run_is_kept_when_it_is_over(memory: ToolMemory, way: str, mode: Any) -> None:
    room = MailRoom()
    gate = HumanInTheLoopMiddleware(interrupt_on={"send_mail": True}, interrupt_mode=mode)
    agent = Agent(memory, room.tools, middleware=tool_memory_middleware(memory, inside=[gate], reflect=True))
    state = await agent.ask(ZOE, way)
    assert "__interrupt__" in state
    assert entries(memory) == []
    answer: Any = {"type": "approve"}
    await agent.ask(Command(resume=answer if mode == "per_call" else {"decisions": [answer]}), way)
    assert room.done == CARELESS
    entry = only(memory)
    assert (calls_of(entry), entry.comment) == ([("send_mail", "ok")], "")


@BOTH
async def test_what_a_person_made_of_a_call_is_kept(memory: ToolMemory, way: str) -> None:
    room = MailRoom()
    gate = HumanInTheLoopMiddleware(interrupt_on={"send_mail": True})
    agent = Agent(memory, room.tools, middleware=tool_memory_middleware(memory, inside=[gate], reflect=True))
    await agent.ask(ZOE, way)
    edited = {"name": "send_mail", "args": {"to": "zoe@example.org"}}
    await agent.ask(Command(resume={"decisions": [{"type": "edit", "edited_action": edited}]}), way)
    assert room.done == CAREFUL[1:]
    assert [call.args for call in only(memory).calls] == [{"to": "zoe@example.org"}]


@BOTH
async def test_an_interrupt_within_a_tool_is_no_error(memory: ToolMemory, way: str) -> None:
    def send_mail(to: str) -> str:
        """Send a mail."""
        return str(interrupt(f"to {to}?"))

    agent = Agent(memory, [send_mail])
    assert "__interrupt__" in await agent.ask(ZOE, way)
    assert entries(memory) == []
    await agent.ask(Command(resume="sent"), way)
    assert calls_of(only(memory)) == [("send_mail", "ok")]


@BOTH
async def test_a_verdict_may_ask_a_person(memory: ToolMemory, way: str) -> None:
    middleware = reflecting(memory, verdict=lambda state: interrupt("All right?"))
    agent = Agent(None, MailRoom().tools, middleware=middleware)
    assert "__interrupt__" in await agent.ask(ZOE, way)
    assert entries(memory) == []
    await agent.ask(Command(resume=True), way)
    assert only(memory).good


# --- errors ---


@BOTH
@pytest.mark.parametrize("kind", [tool_memory_middleware, lambda *a, **b: [ToolMemoryMiddleware(*a, **b)]])
async def test_a_tool_that_raises_leaves_an_entry_that_nobody_judged(memory: ToolMemory, way: str, kind: Any) -> None:
    teach_look_up = failing(99, _looking_up)
    room = MailRoom("send_mail")
    agent = Agent(memory, room.tools, model=teach_look_up, middleware=kind(memory, reflect=True))
    with pytest.raises(OSError, match=r"no line to zoe@example\.org"):
        await agent.ask(ZOE, way)
    entry = only(memory)
    assert calls_of(entry) == [("find_address", "ok"), ("send_mail", "failed")]
    assert (entry.score, entry.comment, entry.critique) == (None, "the run ended with OSError", "")
    assert entry.calls[1].answer == ""
    assert "no line" not in repr(entry)


def _looking_up(messages: Any, tools: Any) -> AIMessage:
    """Looks up, then sends."""
    answers = [m.text for m in messages if isinstance(m, ToolMessage)]
    if len(answers) == 2:
        return AIMessage("Sent.")
    name, args = ("send_mail", {"to": answers[0]}) if answers else ("find_address", {"name": "Zoe"})
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call_{len(answers)}"}])


@BOTH
async def test_a_model_that_raises_leaves_an_entry_with_what_was_done(memory: ToolMemory, way: str) -> None:
    room = MailRoom()
    agent = Agent(memory, room.tools, model=failing(2))
    with pytest.raises(BrokenError, match="secret"):
        await agent.ask(ZOE, way)
    entry = only(memory)
    assert calls_of(entry) == [("send_mail", "ok")]
    assert (entry.score, entry.comment) == (None, "the run ended with BrokenError")
    assert "secret" not in repr(entry)


@BOTH
async def test_a_run_in_which_nothing_was_done_yet_has_an_entry_without_calls(memory: ToolMemory, way: str) -> None:
    agent = Agent(memory, MailRoom().tools, model=failing(1))
    with pytest.raises(BrokenError):
        await agent.ask(ZOE, way)
    entry = only(memory)
    assert (entry.query, calls_of(entry), entry.score) == (ZOE, [], None)


@BOTH
@pytest.mark.parametrize("where", ["model", "tool"])
async def test_a_resumed_thread_that_ends_well_has_the_full_entry(memory: ToolMemory, way: str, where: str) -> None:
    room = MailRoom("send_mail") if where == "tool" else MailRoom()
    agent = Agent(memory, room.tools, model=failing(3 if where == "model" else 99, _looking_up))
    with pytest.raises((BrokenError, OSError)):
        await agent.ask(ZOE, way)
    assert only(memory).comment.startswith("the run ended with ")
    room.broken.clear()
    await agent.ask(None, way)
    assert room.done == CAREFUL
    entry = only(memory)
    assert calls_of(entry) == [("find_address", "ok"), ("send_mail", "ok")]
    assert (entry.score, entry.comment) == (None, "")
    memory.feedback("t", score=1.0)
    assert only(memory).good
    assert memory.view().tools["send_mail"].ok == 1


@BOTH
async def test_a_later_verdict_finds_the_run_that_an_error_ended(memory: ToolMemory, way: str) -> None:
    agent = Agent(memory, MailRoom("send_mail").tools)
    with pytest.raises(OSError, match="no line"):
        await agent.ask(ZOE, way)
    memory.feedback("t", score=0.0, comment="nothing came")
    entry = only(memory)
    assert (entry.score, entry.comment) == (0.0, "nothing came")
    assert ADVICE in entry.critique


@BOTH
async def test_it_is_kept_for_its_user_alone(way: str) -> None:
    with ToolMemory.ephemeral(namespace=PER_USER) as memory:
        agent = Agent(memory, MailRoom("send_mail").tools)
        with pytest.raises(OSError, match="no line"):
            await agent.ask(ZOE, way, user_id="ann@example.org")
        assert calls_of(only(memory, "ann@example.org")) == [("send_mail", "failed")]
        assert entries(memory, "ann") == []
        memory.forget(user_id="ann@example.org")
        assert entries(memory, "ann@example.org") == []


@BOTH
async def test_it_is_there_in_the_next_process(tmp_path: Path, way: str) -> None:
    with ToolMemory(tmp_path) as memory, pytest.raises(OSError, match="no line"):
        await Agent(memory, MailRoom("send_mail").tools).ask(ZOE, way)
    with ToolMemory(tmp_path) as memory:
        assert only(memory).comment == "the run ended with OSError"


async def test_parallel_calls_of_which_one_raises(memory: ToolMemory) -> None:
    """The others are told by the recorder, though their answers never reach the messages."""

    def both(messages: Any, tools: Any) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("Done.")
        made = [("find_address", {"name": "Zoe"}), ("send_mail", {"to": "Zoe"})]
        return AIMessage("", tool_calls=[{"name": n, "args": a, "id": f"call_{i}"} for i, (n, a) in enumerate(made)])

    looked = threading.Event()

    class Slow(MailRoom):
        def did(self, name: str, what: str) -> None:
            if name == "send_mail":
                assert looked.wait(20)
            super().did(name, what)

    class Watch(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            result = handler(request)
            if request.tool_call["name"] == "find_address":
                looked.set()
            return result

    room = Slow("send_mail")
    agent = Agent(
        memory, room.tools, model=both, middleware=tool_memory_middleware(memory, inside=[Watch()], reflect=True)
    )
    with pytest.raises(OSError, match="no line"):
        await agent.ask(ZOE, "sync")
    assert calls_of(only(memory)) == [("find_address", "ok"), ("send_mail", "failed")]
    room.broken.clear()
    await agent.ask(None, "sync")
    assert calls_of(only(memory)) == [("find_address", "ok"), ("send_mail", "ok")]


# --- those who try again ---


@BOTH
@pytest.mark.parametrize("outside", [True, False], ids=["outside", "inside"])
async def test_a_model_call_that_is_tried_again_is_no_end(memory: ToolMemory, way: str, outside: bool) -> None:
    retry = ModelRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)
    room = MailRoom()
    inside, before = ([], [retry]) if outside else ([retry], [])
    middleware = [*before, *tool_memory_middleware(memory, inside=inside, reflect=True)]
    agent = Agent(memory, room.tools, model=failing(2, times=2), middleware=middleware)
    state = await agent.ask(ZOE, way)
    assert state["messages"][-1].text == "The mail to Zoe is sent."
    assert room.done == CARELESS
    entry = only(memory)
    assert (calls_of(entry), entry.score, entry.comment) == ([("send_mail", "ok")], None, "")
    assert memory.report().turns == 2


@BOTH
async def test_one_that_answers_in_the_models_place_ends_the_run_regularly(memory: ToolMemory, way: str) -> None:
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False, on_failure="continue")
    middleware = [retry, *tool_memory_middleware(memory, reflect=True)]
    agent = Agent(memory, MailRoom().tools, model=failing(2, times=9), middleware=middleware)
    state = await agent.ask(ZOE, way)
    assert "BrokenError" in state["messages"][-1].text
    assert only(memory).comment == ""


@BOTH
@pytest.mark.parametrize("outside", [True, False], ids=["outside", "inside"])
async def test_another_model_may_take_over(memory: ToolMemory, way: str, outside: bool) -> None:
    fallback = ModelFallbackMiddleware(ScriptedChatModel(script=script))
    inside, before = ([], [fallback]) if outside else ([fallback], [])
    middleware = [*before, *tool_memory_middleware(memory, inside=inside, reflect=True)]
    await Agent(memory, MailRoom().tools, model=failing(2), middleware=middleware).ask(ZOE, way)
    entry = only(memory)
    assert (calls_of(entry), entry.comment) == ([("send_mail", "ok")], "")


@BOTH
@pytest.mark.parametrize("outside", [True, False], ids=["outside", "inside"])
async def test_a_tool_call_that_is_tried_again_is_no_end(memory: ToolMemory, way: str, outside: bool) -> None:
    class Flaky(MailRoom):
        def did(self, name: str, what: str) -> None:
            if not self.tried:
                self.tried = True
                raise OSError("no line")
            super().did(name, what)

        tried = False

    retry = ToolRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    inside, before = ([], [retry]) if outside else ([retry], [])
    middleware = [*before, *tool_memory_middleware(memory, inside=inside, reflect=True)]
    room = Flaky()
    await Agent(memory, room.tools, middleware=middleware).ask(ZOE, way)
    assert room.done == CARELESS
    entry = only(memory)
    assert (calls_of(entry), entry.comment) == ([("send_mail", "ok")], "")


# --- the host's own ---


@BOTH
async def test_errors_reach_the_host_as_they_are(memory: ToolMemory, way: str) -> None:
    error = BrokenError("secret")

    def model(messages: Any, tools: Any) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            raise error
        return script(messages, tools)

    with pytest.raises(BrokenError) as caught:
        await Agent(memory, MailRoom().tools, model=model).ask(ZOE, way)
    assert caught.value is error
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, CancelledError], ids=lambda error: error.__name__)
async def test_what_stops_the_program_or_the_call_is_not_noted(memory: ToolMemory, error: Any) -> None:
    def stopped(messages: Any, tools: Any) -> Any:
        raise error

    with pytest.raises(error):
        await Agent(memory, MailRoom().tools, model=stopped).ask(ZOE, "sync")
    assert entries(memory) == []


async def test_a_cancelled_run_is_not_noted(memory: ToolMemory) -> None:
    begun = asyncio.Event()

    async def send_mail(to: str) -> str:
        """Send a mail."""
        begun.set()
        await asyncio.sleep(60)
        return to

    agent = Agent(memory, [send_mail])
    task = asyncio.create_task(agent.ask(ZOE, "async"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert entries(memory) == []


@BOTH
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside the shortcut"])
@pytest.mark.parametrize("broken", ["", "latest_order", "model"])
async def test_the_same_is_done_and_learned_with_and_without_it(way: str, broken: str, alone: bool) -> None:
    """A run that an error ends, and is resumed, is learned as if nobody had noted it in between."""

    class Breaking(Desk):
        failures = 0

        def did(self, tool_name: str, /, **args: Any) -> None:
            if tool_name == broken and not self.failures:
                self.failures = 1
                raise OSError("no line")
            super().did(tool_name, **args)

    outcomes = []
    for reflect in (False, True):
        desk = Breaking()
        with ToolMemory.ephemeral(tools=desk.tools) as memory:
            for i in range(0 if alone else 30):
                memory.finish(history(i), thread_id=f"warm-{i}")
            stack = tool_memory_middleware(memory, reflect=reflect, shortcut=not alone and EAGER)
            model = failing(1 if not alone else 2, desk_script) if broken == "model" else desk_script
            agent = Agent(memory, desk.tools, model=model, middleware=stack)
            if broken:
                with pytest.raises((OSError, BrokenError)):
                    await agent.ask(request("Zoe"), way)
            await agent.ask(None if broken else request("Zoe"), way)
            memory.finish((await agent.graph.aget_state(THREAD)).values["messages"], thread_id="t")
            report = memory.report().to_dict()
            learned = {name: (tool.ok, tool.failed) for name, tool in memory.view().tools.items()}
            outcomes.append((desk.done, len(agent.model.calls), report["turns"], report["tools"], learned))
    assert len(outcomes[0][0]) == 3
    assert outcomes[0] == outcomes[1]


@BOTH
@pytest.mark.parametrize("end", ["well", "with an error"])
async def test_a_memory_that_fails_stops_nobody(
    memory: ToolMemory, way: str, end: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise StorageError("the secret disk is full")

    monkeypatch.setattr(memory.core.events, "learn", broken)
    monkeypatch.setattr(memory.core.jobs, "put", broken)
    room = MailRoom() if end == "well" else MailRoom("send_mail")
    agent = Agent(None, room.tools, middleware=tool_memory_middleware(memory, shortcut=False, reflect=True))
    for _ in range(2):
        if end == "well":
            await agent.ask(ZOE, way)
        else:
            with pytest.raises(OSError, match="no line"):
                await agent.ask(ZOE, way)
    failed = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    here = ["ReflectionWriter", "ToolMemoryInside", *([] if end == "well" else ["ToolMemory"])]
    assert sorted(text.partition(" failed")[0] for text in failed) == sorted(here)
    assert "secret" not in "".join(failed)


@BOTH
async def test_a_memory_that_keeps_no_entries_gets_none(way: str, tmp_path: Path) -> None:
    with ToolMemory(tmp_path):
        pass
    with ToolMemory(tmp_path, read_only=True) as made:
        with pytest.raises(OSError, match="no line"):
            await Agent(made, MailRoom("send_mail").tools).ask(ZOE, way)
        assert made.entries.recall(ZOE) == []
    assert not (tmp_path / database.NAME).exists()
    with (
        ToolMemory(None, methods=[Inertia()]) as made,
        pytest.raises(ConfigurationError, match=r"needs .* Entries\(\)"),
    ):
        tool_memory_middleware(made, reflect=True)


async def test_the_verdict_of_an_earlier_turn_stays_when_a_later_one_ends_with_an_error(memory: ToolMemory) -> None:
    teach(memory)
    room = MailRoom()
    agent = Agent(memory, room.tools)
    await agent.ask(ZOE, "sync")
    memory.feedback("t", score=1.0, comment="fine")
    room.broken.add("send_mail")
    with pytest.raises(OSError, match="no line"):
        await agent.ask(REQUEST.format("Ida"), "sync")
    assert memory.flush()
    found = {each.query: each for each in memory.entries.rows.all(memory.core.users.of(None))}
    assert calls_of(found[ZOE]) == [("send_mail", "ok")]
    assert (found[ZOE].score, found[ZOE].comment) == (1.0, "fine")
    broken = found[REQUEST.format("Ida")]
    assert calls_of(broken) == [("send_mail", "failed")]
    assert broken.score is None


async def test_a_verdict_on_what_ended_with_an_error_is_the_entrys(memory: ToolMemory) -> None:
    with pytest.raises(OSError, match="no line"):
        await Agent(memory, MailRoom("send_mail").tools).ask(ZOE, "sync")
    memory.feedback("t", score=1.0, comment="fine so far")
    entry = only(memory)
    assert (entry.score, entry.comment) == (1.0, "fine so far")
