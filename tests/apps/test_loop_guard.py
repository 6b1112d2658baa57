"""The loop guard in agents and graphs: it stops loops of many kinds, and lets honest repetition go on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from desk import call_id
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.middleware.human_in_the_loop import InterruptOnConfig
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command
from shells import WAYS, App, agent_of, graph_of

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError, LoopError
from langgraph_toolmem.middleware import LoopGuardMiddleware
from langgraph_toolmem.nodes import LoopGuard
from langgraph_toolmem.runs.run import LOOP_NOTE, STOPPED
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")

Calls = list[tuple[str, dict[str, Any]]]


class Office:
    """Tools that find nothing or give one result again, and tools whose results change."""

    def __init__(self) -> None:
        self.executed: list[tuple[str, Any]] = []
        self.clock = itertools.count(11)

        @tool
        def search(text: str, page: int = 1) -> str:
            """Search."""
            self.executed.append(("search", text))
            return f"nothing found for {text} ({next(self.clock)} ms)"

        @tool
        def pages(page: int) -> dict[str, Any]:
            """A page of the list: of five, the last one is empty."""
            self.executed.append(("pages", page))
            found = [f"C{page}1", f"C{page}2"] if page < 5 else []
            return {"page": page, "items": found}

        @tool
        def empty_pages(page: int) -> dict[str, Any]:
            """A page of an empty list."""
            self.executed.append(("empty_pages", page))
            return {"page": page, "items": [], "total": 0}

        @tool
        def read(path: str) -> str:
            """Read a file."""
            self.executed.append(("read", path))
            return f"no such file: {path}"

        @tool
        def get(key: str) -> str:
            """A value; of a busy server the first three times."""
            self.executed.append(("get", key))
            if key == "busy" and len(self.executed) < 4:
                return "HTTP 429: too many requests"
            return {"old": "not found", "busy": "7 boxes"}.get(key, f"the value of {key}")

        @tool
        def take(count: int) -> str:
            """Take some."""
            self.executed.append(("take", count))
            return "taken"

        @tool
        def send(to: str) -> str:
            """Send the letter."""
            self.executed.append(("send", to))
            return "sent"

        @tool
        def job_state(job: str) -> str:
            """The state of a job."""
            self.executed.append(("job_state", job))
            return "done" if len(self.executed) % 8 == 0 else "running"

        self.tools: list[Any] = [search, pages, empty_pages, read, get, take, send, job_state]


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(reads={"search", "pages", "empty_pages", "read", "get", "job_state"}) as opened:
        yield opened


def answer(messages: list[BaseMessage], calls: Calls) -> AIMessage:
    made = [{"name": n, "args": a, "id": call_id(n, len(messages), i)} for i, (n, a) in enumerate(calls)]
    return AIMessage("" if made else "Done.", tool_calls=made)  # type: ignore[arg-type]


def plays(turns: Callable[[int], Calls]) -> Callable[..., AIMessage]:
    """A model whose n-th answer since the user spoke has the calls that `turns` gives."""

    def says(messages: list[BaseMessage], _: Any) -> AIMessage:
        spoke = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
        number = sum(isinstance(message, AIMessage) for message in messages[spoke:])
        return answer(messages, turns(number))

    return says


def script(*turns: Calls) -> Callable[..., AIMessage]:
    """A model that makes these calls and is done."""
    return plays(lambda number: turns[number] if number < len(turns) else [])


def app_of(kind: str, memory: ToolMemory, office: Office, says: Any, *, guard: Any = True) -> App:
    if kind == "agent":
        return agent_of(memory, office, says, loop_guard=guard)
    return graph_of(memory, office, says, guard=True)


def tool_texts(app: App) -> list[str]:
    return [m.text for m in app.state()["messages"] if isinstance(m, ToolMessage)]


ASKED = "Look into it, please."
LOOPS: dict[str, Callable[[int], Calls]] = {
    "the same call": lambda n: [("search", {"text": "x"})],
    "two calls in turn": lambda n: [("search", {"text": "x"}) if n % 2 else ("get", {"key": "a"})],
    "three calls in turn": lambda n: [("get", {"key": "abc"[n % 3]})],
    "four calls in turn": lambda n: [("get", {"key": "abcd"[n % 4]})],
    "the same calls side by side": lambda n: [("get", {"key": "a"}), ("get", {"key": "b"})],
    "a number in the arguments": lambda n: [("search", {"text": f"x {n}"})],
    "punctuation": lambda n: [("search", {"text": "x" + " ?!."[n % 4] * (n // 4 + 1)})],
    "pages of nothing": lambda n: [("empty_pages", {"page": n + 1})],
    "a path in several ways": lambda n: [("read", {"path": ["a.txt", "./a.txt", "/home/a.txt", "/a.txt"][n % 4]})],
    "an unknown tool": lambda n: [("delete_all", {"text": f"x{n}"})],
    "arguments that the schema refuses": lambda n: [("take", {"count": "many"})],
    "other words for what is not there": lambda n: [
        ("search", {"text": ["apple", "pear", "plum", "fig", "nut", "kiwi"][n % 6]})
    ],
    "a number that the schema refuses": lambda n: [("take", {"count": f"about {n}"})],
}


@pytest.mark.parametrize("kind", LOOPS)
async def test_loops_of_many_kinds_are_stopped_within_six_calls(memory: ToolMemory, kind: str) -> None:
    office = Office()
    app = app_of("agent", memory, office, plays(LOOPS[kind]))
    state = await app.ask(ASKED, "sync")
    assert state["messages"][-1].text.startswith(STOPPED)
    made = [m for m in state["messages"] if isinstance(m, ToolMessage) and not m.text.startswith(LOOP_NOTE)]
    assert len(made) <= 6


NAMES = [f"Person{letter}" for letter in "ABCDEFGH"]
HONEST: dict[str, tuple[str, list[Calls]]] = {
    "a job that runs": (ASKED, [[("job_state", {"job": "7"})]] * 8),
    "pages with results": (ASKED, [[("pages", {"page": n + 1})] for n in range(5)]),
    "a busy server": (ASKED, [[("get", {"key": "busy"})]] * 4),
    "a batch over a list": (f"Write to {', '.join(NAMES)}.", [[("send", {"to": name})] for name in NAMES]),
    "a batch of changes": (ASKED, [[("send", {"to": f"user{n}"})] for n in range(8)]),
    "a list of what is missing": (f"Is there {' or '.join(NAMES)}?", [[("search", {"text": n})] for n in NAMES]),
    "arguments mended": (
        ASKED,
        [*[[("take", {"count": word})] for word in ("many", "some", "few")], [("take", {"count": 3})]],
    ),
    "something new in between": (ASKED, [[("get", {"key": "a" if n % 2 else f"b{n}"})] for n in range(8)]),
    "other words": (ASKED, [[("search", {"text": text})] for text in ("apple", "pear", "plum", "fig")]),
    "new next to old": (
        ASKED,
        [[("get", {"key": "a"})], [("get", {"key": "a"})], [("get", {"key": "a"}), ("get", {"key": "b"})]],
    ),
}


@pytest.mark.parametrize("kind", HONEST)
async def test_honest_repetition_goes_on(memory: ToolMemory, kind: str) -> None:
    office, (asked, turns) = Office(), HONEST[kind]
    app = app_of("agent", memory, office, script(*turns))
    state = await app.ask(asked, "sync")
    assert state["messages"][-1].text == "Done."
    assert not [text for text in tool_texts(app) if text.startswith(LOOP_NOTE)]


async def test_the_same_question_of_the_user_begins_anew(memory: ToolMemory) -> None:
    office = Office()
    app = app_of("agent", memory, office, script(*[[("search", {"text": "x"})]] * 2))
    for number in (1, 2, 3):
        assert (await app.ask(ASKED, "sync"))["messages"][-1].text == "Done."
        assert len(office.executed) == 2 * number


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["agent", "graph"])
async def test_the_run_ends_with_an_answer_that_says_why(memory: ToolMemory, kind: str, way: str) -> None:
    office = Office()
    app = app_of(kind, memory, office, plays(LOOPS["the same call"]))
    state = await app.ask(ASKED, way)
    assert len(office.executed) == 2
    assert app.model_calls == 4
    assert state["messages"][-1].text == (
        "Stopped by the loop guard: search was called 2 times with the same arguments and gave the same result."
    )
    asked = [call["id"] for m in state["messages"] if isinstance(m, AIMessage) for call in m.tool_calls]
    assert [m.tool_call_id for m in state["messages"] if isinstance(m, ToolMessage)] == asked
    assert memory.core.graph.tools["search"].get("failed", 0) == 0


@pytest.mark.parametrize("kind", ["agent", "graph"])
async def test_an_agent_that_reads_the_note_goes_on(memory: ToolMemory, kind: str) -> None:
    def listens(messages: list[BaseMessage], tools: Any) -> AIMessage:
        if messages[-1].text.startswith(LOOP_NOTE):
            return AIMessage("I found nothing.")
        return plays(LOOPS["the same call"])(messages, tools)

    office = Office()
    app = app_of(kind, memory, office, listens)
    for number in (1, 2):
        assert (await app.ask(ASKED, "sync"))["messages"][-1].text == "I found nothing."
        assert len(office.executed) == 2 * number


async def test_it_ends_with_an_error_or_not_at_all_if_told_so(memory: ToolMemory) -> None:
    loops = plays(LOOPS["the same call"])
    with pytest.raises(LoopError, match=r"search was called 2 times"):
        await app_of("agent", memory, Office(), loops, guard=LoopGuard(memory, exit_behavior="error")).ask(ASKED)
    patient = script(*[[("search", {"text": "x"})]] * 7)
    app = app_of("agent", memory, Office(), patient, guard=LoopGuard(memory, exit_behavior="continue"))
    assert (await app.ask(ASKED))["messages"][-1].text == "Done."
    assert sum(text.startswith(LOOP_NOTE) for text in tool_texts(app)) == 5


@pytest.mark.parametrize("way", WAYS)
async def test_it_needs_no_memory(way: str) -> None:
    office = Office()
    loops = ScriptedChatModel(script=plays(LOOPS["a number in the arguments"]))
    agent: Any = create_agent(loops, office.tools, middleware=[LoopGuardMiddleware()])
    asked = {"messages": [HumanMessage(ASKED)]}
    state = agent.invoke(asked) if way == "sync" else await agent.ainvoke(asked)
    assert state["messages"][-1].text.startswith(STOPPED)
    assert len(office.executed) == 3


async def test_tools_that_are_polled_are_known_by_name_or_by_their_record(memory: ToolMemory) -> None:
    class Queue(Office):
        def __init__(self) -> None:
            super().__init__()
            looks = itertools.count(1)

            @tool
            def queue_length() -> int:
                """How many are waiting."""
                return 0 if next(looks) % 6 == 0 else 3

            self.tools = [queue_length]

    look: Calls = [("queue_length", {})]
    polls = script(*[look] * 6)
    named = LoopGuard(memory, polls={"queue_length"})
    app = app_of("agent", memory, Queue(), polls, guard=named)
    assert (await app.ask(ASKED))["messages"][-1].text == "Done."  # and now there is a record
    app = app_of("agent", memory, Queue(), polls)
    assert (await app.ask(ASKED))["messages"][-1].text == "Done."


async def test_a_held_call_is_not_asked_for_approval(memory: ToolMemory) -> None:
    office = Office()
    approval = HumanInTheLoopMiddleware({"search": InterruptOnConfig(allowed_decisions=["approve"])})
    app = agent_of(memory, office, plays(LOOPS["the same call"]), outer=[approval], loop_guard=True)
    config: Any = {"configurable": {"thread_id": "t"}}
    state = await app.ask(ASKED)
    questions = 0
    while "__interrupt__" in state:
        questions += 1
        state = app.graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert questions == 2
    assert state["messages"][-1].text.startswith(STOPPED)


def test_wrong_arguments_are_refused(memory: ToolMemory) -> None:
    with pytest.raises(ConfigurationError, match="choose one of 'end', 'error', 'continue'"):
        LoopGuard(memory, exit_behavior="stop")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="a ToolMemory or None"):
        LoopGuard("folder")  # type: ignore[arg-type]
