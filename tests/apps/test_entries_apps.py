"""Recall, reflection and preferences in real apps: what is particular to them next to the contracts of a step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import crowd
import pytest
from desk import calling
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelRequest,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Command, interrupt
from mailroom import ADVICE, CAREFUL, CARELESS, HEAD, REQUEST, MailRoom, critic, script, teach
from parcels import ParcelDesk, dislike_fast, offered_in, request
from shells import agent_of

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.nodes import PreferenceGuide, ReflectionWriter, guided_tools
from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.hints import StepOutput, new_hint

pytestmark = pytest.mark.usefixtures("nothing_failed")
ZOE = REQUEST.format("Zoe")


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(methods=[Entries(critic=critic)]) as made:
        yield made


def entries(memory: ToolMemory) -> list[Entry]:
    assert memory.flush()
    return list(memory.entries.rows.all(memory.core.users.of(None)))


def only(memory: ToolMemory) -> Entry:
    [entry] = entries(memory)
    return entry


def calls_of(entry: Entry) -> list[tuple[str, str]]:
    return [(call.tool, call.status) for call in entry.calls]


# --- recall ---


async def test_a_mistake_is_kept_criticised_recalled_and_not_made_again(memory: ToolMemory) -> None:
    rooms = [MailRoom(), MailRoom()]
    for number, room in enumerate(rooms):
        app = agent_of(memory, room, script, recall=True, reflect=True)
        await app.ask(ZOE, thread=str(number))
        memory.feedback(str(number), score=0.0)
        assert memory.flush()
    assert [room.done for room in rooms] == [CARELESS, CAREFUL]


async def test_a_summary_in_the_middle_of_a_turn_does_not_begin_another(memory: ToolMemory) -> None:
    teach(memory)
    summarise = SummarizationMiddleware(
        ScriptedChatModel(script=lambda messages, tools: AIMessage("Somebody wants a mail.")),
        trigger=("messages", 4),
        keep=("messages", 2),
    )
    steps = iter([("find_address", {"name": "Zoe"}), ("find_address", {"name": "Ida"}), ("send_mail", {"to": "zoe"})])

    def by_turns(messages: list[Any], tools: Any) -> AIMessage:
        name, args = next(steps, ("", {}))
        return calling(name, args, len(app.model.calls)) if name else AIMessage("Sent.")

    app = agent_of(memory, MailRoom(), by_turns, recall=True, outer=[summarise])
    told = await app.events(ZOE, "sync", "recall")
    assert app.state()["messages"][0].additional_kwargs == {"lc_source": "summarization"}
    assert [HEAD in hint for hint in app.hints()] == [True] * 4
    assert len(told) == 1


# --- verdicts ---

VERDICTS: list[tuple[Any, float | None, int]] = [
    (lambda s: None, None, 0),
    (lambda s: True, 1.0, 0),
    (lambda s: False, 0.0, 0),
    (lambda s: 0.3, 0.3, 0),
    (lambda s: "sent" in s["messages"][-1].text, 1.0, 0),
    (lambda s: s["nothing"], None, 1),
    (lambda s: "good", None, 1),
    (lambda s: 1.5, None, 1),
    (lambda s: float("nan"), None, 1),
]


@pytest.mark.parametrize(("verdict", "score", "errors"), VERDICTS, ids=range(len(VERDICTS)))
async def test_a_verdict_reads_the_state_and_one_that_fails_is_none(
    memory: ToolMemory, verdict: Any, score: float | None, errors: int, caplog: pytest.LogCaptureFixture
) -> None:
    app = agent_of(memory, MailRoom(), script, reflect=ReflectionWriter(memory, verdict=verdict))
    told = await app.events(ZOE, "sync", "reflection")
    entry = only(memory)
    assert (entry.query, entry.score, entry.comment, calls_of(entry)) == (ZOE, score, "", [("send_mail", "ok")])
    assert (ADVICE in entry.critique) is entry.failed
    assert told == [{"node": "reflection", "score": score, "learned_turns": 0}]  # a recorder was there
    await app.ask(ZOE, thread="other")
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == errors


async def test_a_verdict_may_ask_a_person(memory: ToolMemory) -> None:
    writer = ReflectionWriter(memory, verdict=lambda state: interrupt("All right?"))
    app = agent_of(memory, MailRoom(), script, reflect=writer)
    assert "__interrupt__" in await app.ask(ZOE)
    assert entries(memory) == []
    await app.ask(Command(resume=False))
    assert only(memory).failed


# --- people ---


async def test_a_paused_run_is_kept_when_it_is_over_as_the_person_let_it_run(memory: ToolMemory) -> None:
    for mode, to in (("batched", "Zoe"), ("per_call", "Zoe"), ("batched", "zoe@example.org")):
        gate = HumanInTheLoopMiddleware(interrupt_on={"send_mail": True}, interrupt_mode=mode)
        app = agent_of(memory, (room := MailRoom()), script, outer=[gate], reflect=True)
        before = len(entries(memory))
        assert "__interrupt__" in await app.ask(ZOE, thread=mode + to)
        assert len(entries(memory)) == before
        edited = {"type": "edit", "edited_action": {"name": "send_mail", "args": {"to": to}}}
        answer = {"type": "approve"} if to == "Zoe" else edited
        await app.ask(Command(resume=answer if mode == "per_call" else {"decisions": [answer]}), thread=mode + to)
        assert room.done == [("send_mail", to)]
        newest = max(entries(memory), key=lambda entry: entry.time)
        assert ([call.args for call in newest.calls], newest.comment) == ([{"to": to}], "")


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_what_a_person_answered_in_the_tools_place_is_not_kept_as_done(memory: ToolMemory, mode: Any) -> None:
    gate = HumanInTheLoopMiddleware(interrupt_on={"send_mail": True}, interrupt_mode=mode)
    app = agent_of(memory, (room := MailRoom()), script, outer=[gate], reflect=True)
    await app.ask(ZOE)
    answer = {"type": "respond", "message": "I called her."}
    await app.ask(Command(resume=answer if mode == "per_call" else {"decisions": [answer]}))
    assert room.done == []
    assert calls_of(only(memory)) == [("send_mail", "rejected")]


async def test_an_interrupt_within_a_tool_is_no_error(memory: ToolMemory) -> None:
    class StepGenerator(MailRoom):
        def did(self, name: str, what: str) -> None:
            interrupt(f"to {what}?")
            super().did(name, what)

    app = agent_of(memory, StepGenerator(), script, reflect=True)
    assert "__interrupt__" in await app.ask(ZOE)
    assert entries(memory) == []
    await app.ask(Command(resume="yes"))
    assert calls_of(only(memory)) == [("send_mail", "ok")]


# --- errors end a run, and leave an entry that nobody judged ---


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


def looking_up(messages: Any, tools: Any) -> AIMessage:
    answers = [m.text for m in messages if isinstance(m, ToolMessage)]
    if len(answers) == 2:
        return AIMessage("Sent.")
    name, args = ("send_mail", {"to": answers[0]}) if answers else ("find_address", {"name": "Zoe"})
    return calling(name, args, len(answers))


LOOKED = ("find_address", "ok")


@pytest.mark.parametrize(
    ("broken", "says", "error", "done"),
    [
        (["send_mail"], looking_up, OSError, [LOOKED, ("send_mail", "failed")]),
        ([], failing(3, looking_up), BrokenError, [LOOKED, ("send_mail", "ok")]),
        ([], failing(1, looking_up), BrokenError, []),
    ],
    ids=["tool", "model", "nothing done"],
)
async def test_an_error_leaves_an_entry_without_its_text_and_a_resumed_run_the_full_one(
    memory: ToolMemory, broken: list[str], says: Any, error: Any, done: Any
) -> None:
    room = MailRoom(*broken)
    app = agent_of(memory, room, says, reflect=True)
    with pytest.raises(error) as caught:
        await app.ask(ZOE)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    entry = only(memory)
    assert (entry.query, calls_of(entry)) == (ZOE, done)
    assert (entry.score, entry.comment, entry.critique) == (None, f"the run ended with {error.__name__}", "")
    assert "secret" not in repr(entry)
    assert "no line" not in repr(entry)
    room.broken.clear()
    await app.ask(None)
    assert room.done == CAREFUL
    entry = only(memory)
    assert (calls_of(entry), entry.score, entry.comment) == ([LOOKED, ("send_mail", "ok")], None, "")
    memory.feedback("t", score=1.0)
    assert only(memory).good


async def test_of_parallel_calls_the_one_that_raises_failed(memory: ToolMemory) -> None:
    """The others are told by the recorder, though their answers never reach the messages."""

    def both(messages: Any, tools: Any) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("Done.")
        return crowd.calling(messages, ("find_address", {"name": "Zoe"}), ("send_mail", {"to": "Zoe"}))

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
    app = agent_of(memory, room, both, outer=[Watch()], reflect=True)
    with pytest.raises(OSError, match="no line"):
        await app.ask(ZOE)
    assert calls_of(only(memory)) == [LOOKED, ("send_mail", "failed")]
    room.broken.clear()
    await app.ask(None)
    assert calls_of(only(memory)) == [LOOKED, ("send_mail", "ok")]


class Flaky(MailRoom):
    tried = False

    def did(self, name: str, what: str) -> None:
        if not self.tried:
            self.tried = True
            raise OSError("no line")
        super().did(name, what)


AGAIN: dict[str, Any] = {"max_retries": 3, "initial_delay": 0.0, "jitter": False}


@pytest.mark.parametrize("place", ["before", "outer"])
@pytest.mark.parametrize(
    ("room", "says", "other"),
    [
        (MailRoom, lambda: failing(2, times=2), lambda: ModelRetryMiddleware(**AGAIN)),
        (Flaky, lambda: script, lambda: ToolRetryMiddleware(**AGAIN)),
        (MailRoom, lambda: failing(2, times=9), lambda: ModelRetryMiddleware(on_failure="continue", **AGAIN)),
    ],
    ids=["model", "tool", "answers in its place"],
)
async def test_what_is_tried_again_is_no_end(memory: ToolMemory, room: Any, says: Any, other: Any, place: str) -> None:
    desk = room()
    app = agent_of(memory, desk, says(), reflect=True, **{place: [other()]})
    await app.ask(ZOE)
    assert desk.done == CARELESS
    assert (calls_of(only(memory)), only(memory).comment) == ([("send_mail", "ok")], "")


async def test_what_stops_the_program_or_the_call_is_not_noted(memory: ToolMemory) -> None:
    for error in (KeyboardInterrupt, SystemExit, CancelledError):

        def stopped(messages: Any, tools: Any, error: Any = error) -> Any:
            raise error

        with pytest.raises(error):
            await agent_of(memory, MailRoom(), stopped, reflect=True).ask(ZOE)
    begun = asyncio.Event()

    class Waiting:
        async def send_mail(self, to: str) -> str:
            """Send a mail."""
            begun.set()
            await asyncio.sleep(60)
            return to

        @property
        def tools(self) -> list[Any]:
            return [self.send_mail]

    task = asyncio.create_task(agent_of(memory, Waiting(), script, reflect=True).ask(ZOE, "async"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert entries(memory) == []


# --- preferences ---

ALL = ["find_parcel", "fast_courier", "cheap_courier"]
LEFT = ["find_parcel", "cheap_courier"]


class Chosen:
    """A desk with other tools."""

    def __init__(self, *tools: Any) -> None:
        self.tools = list(tools)


class Insisting(AgentMiddleware[Any, Any, Any]):
    def __init__(self, choice: Any) -> None:
        super().__init__()
        self.choice = choice

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        return handler(request.override(tool_choice=self.choice))


async def test_which_tools_the_model_is_offered() -> None:
    """One without a name stays, and so do those that are named by the guide, or that the request insists on."""
    desk = ParcelDesk()
    with ToolMemory.ephemeral(tools=desk.tools, methods=[Entries()]) as memory:
        dislike_fast(memory)
        for choice, keep, offered in (
            (None, (), LEFT),
            (None, ["fast_courier"], ALL),
            ("fast_courier", (), ALL),
            ({"type": "tool", "name": "fast_courier"}, (), ALL),
            ("any", (), LEFT),
        ):
            guide = PreferenceGuide(memory, keep=keep)
            offers = Chosen(*desk.tools, {"type": "web_search"})
            app = agent_of(memory, offers, ["Hi"], before=[Insisting(choice)], preferences=guide)
            await app.ask(request("Zoe"))
            assert [offered_in(call.tools) for call in app.model.calls] == [[*offered, "web_search"]], choice


def state_with(*names: str) -> dict[str, Any]:
    messages = [HumanMessage("Hello", id="1")]
    out = StepOutput(left_out=dict.fromkeys(names, "rated badly"))
    return {"messages": messages, **new_hint("preferences", out, messages, "turn")}


def test_guided_tools_takes_tools_in_any_form_and_leaves_something() -> None:
    def fast(x: int) -> int:
        """Be fast."""
        return x

    named = {"type": "function", "function": {"name": "fast"}}
    forms = [named, {"name": "fast", "input_schema": {}}, fast, {"type": "web_search"}, {"name": "slow"}, 3]
    tools = [{"name": "fast"}, {"name": "slow"}, {"name": SUMMARY_TOOL}]
    for state, given, left in (
        (state_with("fast"), forms, forms[3:]),
        (state_with("other"), forms, forms),
        ({"messages": []}, forms, forms),
        (state_with("fast", "slow"), tools, tools),
    ):
        assert guided_tools(state, given) == left
