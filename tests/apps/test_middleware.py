"""The middleware by itself: order, arguments, failing open, settings, the provider guard, a real chat model."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from desk import (
    EAGER,
    NAMES,
    Desk,
    expected,
    history,
    request,
    script,
    shortcuts,
)
from langchain.agents.middleware import AgentMiddleware, ModelRequest, TodoListMiddleware
from langchain_core.messages import AIMessage, HumanMessage, convert_to_messages
from langsmith import Client
from langsmith.run_helpers import tracing_context
from openai_server import OpenAIStubServer, make_chat_model
from shells import agent_of, both, build_agent

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.middleware import assembly as middleware
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.models import at_model
from langgraph_toolmem.runs.run import no_usage
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")


# --- the list, and its arguments ---


def test_the_order_of_the_list(memory: ToolMemory) -> None:
    yours = [TodoListMiddleware(), AgentMiddleware[Any, Any, Any]()]
    *outer, last = tool_memory_middleware(memory, outer=iter(yours))
    assert outer == yours
    assert last.name == "ToolMemory"
    *outer, guard, last = tool_memory_middleware(memory, outer=yours, shortcut=False, loop_guard=True)
    assert outer == yours
    assert (guard.name, last.name) == ("ToolMemoryLoopGuard", "ToolMemory")


def test_two_memories_in_one_agent_need_two_names(memory: ToolMemory) -> None:
    with ToolMemory.ephemeral() as other:
        ours = tool_memory_middleware(memory)
        with pytest.raises(AssertionError, match="duplicate middleware"):
            build_agent(None, Desk(), outer=[*ours, *tool_memory_middleware(other)])
        build_agent(None, Desk(), outer=[*ours, *tool_memory_middleware(other, name="Other")])


@pytest.mark.parametrize("piece", ["composed", "owner_of_run"])
async def test_a_request_that_cannot_be_read_or_hinted_goes_to_the_model_as_it_is(
    memory: ToolMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, piece: str
) -> None:
    owner = at_model if piece == "composed" else middleware
    monkeypatch.setattr(owner, piece, Mock(side_effect=RuntimeError("not today")))
    agent = build_agent(memory, Desk(), policy=EAGER.with_(shadow=True))
    await agent.run(0)
    assert (agent.desk.done, agent.model_calls) == (expected("Ann"), 4)
    failed = {record.getMessage() for record in caplog.records if record.levelname == "ERROR"}
    assert failed
    assert all("RuntimeError" in each for each in failed)


# --- learning and acting ---


class Sets(AgentMiddleware[Any, Any, Any]):
    """Changes the request, as a host does at a step that must go a certain way."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.changes = changes

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        return await handler(request.override(**self.changes))


class ChatAnthropic(ScriptedChatModel):
    """Named like the class that the rules know; langchain-anthropic is not installed here."""

    model: str = "claude-sonnet-4-5"
    thinking: dict[str, Any] | None = None


THINKS = {"type": "enabled", "budget_tokens": 2000}
FUNCTION = {"type": "function", "function": {"name": "add_note"}}


@pytest.mark.parametrize(
    ("sets", "model", "skipped"),
    [
        *((Sets(tool_choice=choice), {}, 3) for choice in (None, "auto", "any", "required")),
        *((Sets(tool_choice=choice), {}, 0) for choice in ("none", "add_note", FUNCTION)),
        *((Sets(), {"thinking": thinking}, 3) for thinking in (None, {"type": "disabled"}, {"type": "adaptive"})),
        (Sets(), {"thinking": THINKS}, 0),
        (Sets(model_settings={"thinking": THINKS}), {}, 0),
    ],
)
async def test_the_request_and_the_provider_settle_whether_the_memory_may_call(
    desk: Desk, knowing: ToolMemory, sets: Any, model: dict[str, Any], skipped: int
) -> None:
    before = knowing.report()
    inside = [sets, *tool_memory_middleware(knowing, shortcut=EAGER)]
    agent = build_agent(None, desk, outer=inside, model=ChatAnthropic(script=script, **model))
    state = await agent.run(0)
    assert len(shortcuts(state["messages"])) == 4 - agent.model_calls == skipped
    assert desk.done == expected("Ann")
    after = knowing.report()
    assert (after.skipped, after.turns) == (skipped, before.turns + 4)
    assert after.right == before.right + 3 - skipped, "the record is kept all the same"


async def test_a_shortcut_is_marked_as_the_memorys_and_named_as_the_agent(desk: Desk, knowing: ToolMemory) -> None:
    state = await build_agent(knowing, desk, name="clerk").run(0)
    made = shortcuts(state["messages"])
    assert len({m.tool_calls[0]["id"] for m in made}) == 3
    assert {m.name for m in state["messages"] if isinstance(m, AIMessage)} == {"clerk"}
    for message in made:
        mark = message.additional_kwargs["toolmem"]
        assert set(mark) == {"by", "confidence", "evidence"}
        assert (mark["by"], bool(mark["evidence"]), 0.9 <= mark["confidence"] <= 1) == ("inertia", True, True)
        assert json.loads(json.dumps(mark)) == mark
        assert (message.usage_metadata, message.text, bool(message.id)) == (no_usage(), "", True)


# --- async ---

METHODS = ("begin_turn", "before_model", "executed")


def owner(memory: ToolMemory, name: str) -> Any:
    return memory.inertia if name == "begin_turn" else memory.core.lifecycle


async def test_nothing_of_the_memory_runs_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks and disks block: an async agent's loop must not wait for them."""
    ours, _ = both()
    memory = ours.memory
    loop, seen = threading.get_ident(), []

    def watched(name: str) -> Callable[..., Any]:
        real = getattr(owner(memory, name), name)

        def method(*args: Any, **kwargs: Any) -> Any:
            seen.append((name, threading.get_ident() == loop))
            return real(*args, **kwargs)

        return method

    for name in (*METHODS, "gave_up"):
        monkeypatch.setattr(owner(memory, name), name, watched(name))
    await asyncio.gather(*(ours.run(i) for i in range(3)))

    def fail(name: str) -> str:
        raise ZeroDivisionError

    tools = ours.desk.tools
    tools[0].func = fail  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError):
        await build_agent(memory, ours.desk, tools=tools).run(7)
    await memory.aflush()
    assert {name for name, _ in seen} == {*METHODS, "gave_up"}
    assert not [name for name, on_loop in seen if on_loop]


# --- a real chat model ---


def reply(body: dict[str, Any]) -> AIMessage:
    """The desk's script behind the OpenAI protocol; the server draws the call ids."""
    answer = script(convert_to_messages(body["messages"]), [])
    for made in answer.tool_calls:
        made["id"] = None
    return answer


@pytest.fixture
def server() -> Iterator[OpenAIStubServer]:
    with OpenAIStubServer(reply=reply) as running:
        yield running


@pytest.mark.parametrize("streaming", [False, True])
async def test_nothing_of_the_mark_is_sent_to_the_provider(
    desk: Desk, knowing: ToolMemory, streaming: bool, server: OpenAIStubServer
) -> None:
    model = make_chat_model(server, streaming=streaming, stream_usage=True)
    agent = build_agent(knowing, desk, model=model)
    for i in range(2):
        assert len(shortcuts((await agent.run(i))["messages"])) == 3
    await model.root_async_client.close()
    assert len(server.requests) == 2
    assert desk.done == [call for i in range(2) for call in expected(NAMES[i])]
    sent = server.requests[-1]["messages"]
    assert [m["role"] for m in sent] == ["user", *["assistant", "tool"] * 3]
    assert [m["tool_call_id"] for m in sent if m["role"] == "tool"] == [
        call["id"] for m in sent for call in m.get("tool_calls") or ()
    ]
    assert "toolmem" not in json.dumps(sent)
    assert all("name" not in m for m in sent)


# --- traces ---


class Traced(Client):
    """A LangSmith client that sends nothing, and counts the characters of what it would send."""

    def __init__(self) -> None:
        super().__init__(api_url="http://127.0.0.1:9", api_key="none", auto_batch_tracing=False)
        self.size = 0

    def create_run(self, name: str, inputs: Any, *args: Any, **kwargs: Any) -> None:
        self.size += len(repr(inputs)) + len(repr(kwargs.get("outputs")))

    def update_run(self, run_id: Any, **kwargs: Any) -> None:
        self.size += len(repr(kwargs.get("outputs")))


def test_traces_grow_by_less_than_a_quarter() -> None:
    sizes = []
    for memory in (None, ToolMemory.ephemeral(tools=Desk().tools)):
        client = Traced()
        features = {} if memory is None else {"suggest": True, "reflect": True, "loop_guard": True}
        agent = agent_of(memory, Desk(), script, made={"checkpointer": None}, **features)
        past = [message for number in range(1, 41) for message in history(number)]
        with tracing_context(enabled=True, client=client):
            agent.graph.invoke({"messages": [*past, HumanMessage(request("Ann"))]})
        sizes.append(client.size)
    assert sizes[0] > 10_000
    assert sizes[1] <= 1.25 * sizes[0]
