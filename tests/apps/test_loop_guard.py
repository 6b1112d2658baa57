"""The loop guard in agents and graphs: a looping agent is stopped, a polling one is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from desk import call_id
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from shells import WAYS, App, agent_of, graph_of

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import LoopError
from langgraph_toolmem.runs.messages import LOOP_NOTE

pytestmark = pytest.mark.usefixtures("nothing_failed")


class Office:
    """A search that always finds the same, and a job that is done at its sixth look."""

    def __init__(self) -> None:
        self.searches, self.looks = 0, 0

        @tool
        def search(text: str) -> str:
            """Search."""
            self.searches += 1
            return f"nothing about {text}"

        @tool
        def job_state(job: str) -> str:
            """The state of a job."""
            self.looks += 1
            return "done" if self.looks % 6 == 0 else "running"

        self.tools = [search, job_state]


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(reads={"*"}) as opened:
        yield opened


def asks(messages: list[BaseMessage], *calls: tuple[str, dict[str, Any]]) -> AIMessage:
    made = [{"name": n, "args": a, "id": call_id(n, len(messages), i)} for i, (n, a) in enumerate(calls)]
    return AIMessage("", tool_calls=made)  # type: ignore[arg-type]


def loops(messages: list[BaseMessage], _: Any) -> AIMessage:
    return asks(messages, ("search", {"text": "x"}))


def listens(messages: list[BaseMessage], _: Any) -> AIMessage:
    return AIMessage("I found nothing.") if messages[-1].text == LOOP_NOTE else loops(messages, _)


def polls(messages: list[BaseMessage], _: Any) -> AIMessage:
    return AIMessage("Done.") if messages[-1].text == "done" else asks(messages, ("job_state", {"job": "7"}))


def app_of(kind: str, memory: ToolMemory, office: Office, says: Any, *, guard: bool = True) -> App:
    if kind == "agent":
        return agent_of(memory, office, says, loop_guard=guard)
    return graph_of(memory, office, says, guard=True)


ASKED = "Look into it, please."
each_way = pytest.mark.parametrize("way", WAYS)
each_kind = pytest.mark.parametrize("kind", ["agent", "graph"])


@each_way
@each_kind
async def test_a_looping_agent_gets_three_notes_and_then_ends(memory: ToolMemory, kind: str, way: str) -> None:
    office = Office()
    app = app_of(kind, memory, office, loops)
    with pytest.raises(LoopError, match="search"):
        await app.ask(ASKED, way)
    assert office.searches == 2
    answers = [m.text for m in app.state()["messages"] if isinstance(m, ToolMessage)]
    assert answers == ["nothing about x"] * 2 + [LOOP_NOTE] * 3


@each_way
@each_kind
async def test_an_agent_that_reads_the_note_goes_on_in_every_request(memory: ToolMemory, kind: str, way: str) -> None:
    office = Office()
    app = app_of(kind, memory, office, listens)
    for number in (1, 2):
        state = await app.ask(ASKED, way)
        assert state["messages"][-1].text == "I found nothing."
        assert office.searches == 2 * number
    assert memory.core.graph.tools["search"].get("failed", 0) == 0


@each_way
@each_kind
async def test_a_polling_agent_is_known_by_its_record(memory: ToolMemory, kind: str, way: str) -> None:
    office = Office()
    await app_of("agent", memory, office, polls, guard=False).ask(ASKED, way)
    state = await app_of(kind, memory, office, polls).ask(ASKED, way)
    assert office.looks == 12
    assert LOOP_NOTE not in [m.text for m in state["messages"]]


async def test_something_new_in_between_or_next_to_it_is_no_loop(memory: ToolMemory) -> None:
    office = Office()

    def says(messages: list[BaseMessage], _: Any) -> AIMessage:
        turn = sum(isinstance(m, AIMessage) for m in messages)
        if turn < 6:  # a new search after each: never a loop
            return asks(messages, ("search", {"text": "x" if turn % 2 else f"{turn}"}))
        if turn < 8:
            return asks(messages, ("search", {"text": "x"}))
        return AIMessage("Done.") if turn > 8 else asks(messages, ("search", {"text": "x"}), ("search", {"text": "y"}))

    state = await app_of("agent", memory, office, says).ask(ASKED, "async")
    answers = [m.text for m in state["messages"] if isinstance(m, ToolMessage)]
    assert answers[:6] == [f"nothing about {text}" for text in ("0", "x", "2", "x", "4", "x")]
    assert answers[6:] == [LOOP_NOTE] * 2 + ["nothing about x", "nothing about y"]
