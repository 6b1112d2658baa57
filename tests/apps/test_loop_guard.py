"""The loop guard in agents and graphs: a looping agent is stopped, a polling one is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from desk import call_id
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError, LoopError
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import LoopGuard, Recorder, loop_guard_condition
from langgraph_toolmem.runs.messages import LOOP_NOTE
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")
THREAD: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 60}


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


def app_of(kind: str, memory: ToolMemory, office: Office, says: Any, *, guard: bool = True) -> Any:
    model: Any = ScriptedChatModel(script=says)
    if kind == "agent":
        middleware = tool_memory_middleware(memory, shortcut=False, loop_guard=guard)
        return create_agent(model, office.tools, middleware=middleware, checkpointer=InMemorySaver())
    bound = model.bind_tools(office.tools)
    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
    LoopGuard(memory).add_to(builder, "guard")
    builder.add_node("tools", ToolNode(office.tools))
    builder.add_node("recorder", Recorder(memory))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "guard")
    builder.add_conditional_edges("guard", loop_guard_condition, {"agent": "agent", "tools": "tools", END: "recorder"})
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=InMemorySaver())


async def ask(app: Any, way: str) -> Any:
    payload = {"messages": [("user", "Look into it, please.")]}
    return app.invoke(payload, THREAD) if way == "sync" else await app.ainvoke(payload, THREAD)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("kind", ["agent", "graph"])
async def test_a_looping_agent_gets_three_notes_and_then_ends(memory: ToolMemory, kind: str, way: str) -> None:
    office = Office()
    app = app_of(kind, memory, office, loops)
    with pytest.raises(LoopError, match="search"):
        await ask(app, way)
    assert office.searches == 2
    answers = [m.text for m in app.get_state(THREAD).values["messages"] if isinstance(m, ToolMessage)]
    assert answers == ["nothing about x"] * 2 + [LOOP_NOTE] * 3


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("kind", ["agent", "graph"])
async def test_an_agent_that_reads_the_note_goes_on_in_every_request(memory: ToolMemory, kind: str, way: str) -> None:
    office = Office()
    app = app_of(kind, memory, office, listens)
    for number in (1, 2):
        state = await ask(app, way)
        assert state["messages"][-1].text == "I found nothing."
        assert office.searches == 2 * number
    assert memory.core.graph.tools["search"].get("failed", 0) == 0


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("kind", ["agent", "graph"])
async def test_a_polling_agent_is_known_by_its_record(memory: ToolMemory, kind: str, way: str) -> None:
    office = Office()
    await ask(app_of("agent", memory, office, polls, guard=False), way)
    state = await ask(app_of(kind, memory, office, polls), way)
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

    state = await ask(app_of("agent", memory, office, says), "async")
    answers = [m.text for m in state["messages"] if isinstance(m, ToolMessage)]
    assert answers[:6] == [f"nothing about {text}" for text in ("0", "x", "2", "x", "4", "x")]
    assert answers[6:] == [LOOP_NOTE] * 2 + ["nothing about x", "nothing about y"]


def test_a_loop_guard_is_switched_on_or_off(memory: ToolMemory) -> None:
    with pytest.raises(ConfigurationError, match="loop_guard is True or False"):
        tool_memory_middleware(memory, loop_guard="yes")  # type: ignore[arg-type]
