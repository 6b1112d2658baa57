"""The middleware by itself: order, arguments, failing open, settings, the provider guard, a real chat model."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from agents import WAYS, Agent, asked, both, build_agent, same_calls
from desk import (
    EAGER,
    NAMES,
    WARM_TURNS,
    Desk,
    assert_answered,
    expected,
    script,
    shortcuts,
    thread,
    warm,
)
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, TodoListMiddleware
from langchain_core.messages import AIMessage, convert_to_messages
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem import ConfigurationError, Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.inertia.settings import InertiaSettings
from langgraph_toolmem.inertia.step import Shortcut
from langgraph_toolmem.middleware import ToolMemoryMiddleware, assembly, tool_memory_middleware
from langgraph_toolmem.nodes import InertiaShortcut
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel
from langgraph_toolmem.testing.server import make_chat_model
from langgraph_toolmem.turn.providers import PROVIDER_RULES, ProviderRule

pytestmark = pytest.mark.usefixtures("nothing_failed")

LOGGER = "langgraph_toolmem"


def events_of(agent: Agent, i: int, **options: Any) -> list[dict[str, Any]]:
    stream = agent.graph.stream(asked(i), thread(f"thread-{i}"), stream_mode="custom", **options)
    return [event["toolmem"] for event in stream]


async def aevents_of(agent: Agent, i: int, **options: Any) -> list[dict[str, Any]]:
    stream = agent.graph.astream(asked(i), thread(f"thread-{i}"), stream_mode="custom", **options)
    return [event["toolmem"] async for event in stream]


async def events(agent: Agent, way: str, i: int, **options: Any) -> list[dict[str, Any]]:
    return events_of(agent, i, **options) if way == "sync" else await aevents_of(agent, i, **options)


# --- the list, and its arguments ---


def test_the_order_of_the_list(memory: ToolMemory) -> None:
    yours = [TodoListMiddleware(), AgentMiddleware[Any, Any, Any]()]
    first, *inside, last = tool_memory_middleware(memory, inside=yours)
    assert inside == yours
    assert (first.name, last.name) == ("ToolMemory", "ToolMemoryInside")
    assert [m.name for m in tool_memory_middleware(memory)] == ["ToolMemory", "ToolMemoryInside"]
    assert tool_memory_middleware(memory, inside=(m for m in yours))[1:-1] == yours
    only = tool_memory_middleware(memory, inside=yours, shortcut=False)
    assert only[:-1] == yours
    assert only[-1].name == "ToolMemoryInside"


@pytest.mark.parametrize("make", [ToolMemoryMiddleware, tool_memory_middleware])
def test_short_ways_to_the_policy(desk: Desk, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    used, real = list[Any](), assembly.steps_middleware

    def noted(core: Any, steps: Any, **how: Any) -> Any:
        used.extend(steps)
        return real(core, steps, **how)

    monkeypatch.setattr(assembly, "steps_middleware", noted)

    def policy_of(memory: ToolMemory, **options: Any) -> InertiaPolicy | None:
        used.clear()
        make(memory, **options)
        (shortcut,) = [step for step in used if isinstance(step, Shortcut)]
        return shortcut.policy

    own, other = InertiaPolicy(may_write={"pay"}), InertiaPolicy(never={"pay"}, shadow=True)
    with ToolMemory.ephemeral(tools=desk.tools, methods=[Inertia(own)]) as memory:
        assert policy_of(memory) is None, "the memory's own"
        assert policy_of(memory, may_write={"send"}) == own.with_(may_write={"pay", "send"})
        assert policy_of(memory, shadow=True, shortcut=True) == own.with_(shadow=True)
        assert policy_of(memory, shortcut=other, may_write=["send"]) == other.with_(may_write={"send"})
        for short in ({"may_write": {"send"}}, {"shadow": True}, {"trust_context": True}):
            with pytest.raises(ConfigurationError, match="has its policy"):
                make(memory, shortcut=InertiaShortcut(memory), **short)


def test_two_memories_in_one_agent_by_name(desk: Desk, memory: ToolMemory) -> None:
    other = ToolMemory.ephemeral()
    both_learn = [*tool_memory_middleware(memory), ToolMemoryMiddleware(other, name="Other")]
    agent = create_agent(ScriptedChatModel(script=script), desk.tools, middleware=both_learn)
    agent.invoke(asked(0))  # type: ignore[call-overload]
    assert memory.report().turns == other.report().turns == 4
    assert [m.name for m in tool_memory_middleware(memory, name="Mine")] == ["Mine", "MineInside"]


# --- learning and acting ---


@pytest.mark.parametrize("way", WAYS)
async def test_two_changed_lines_are_enough(way: str) -> None:
    """A memory that was told nothing, the default policy, an agent that was there already."""
    desk = Desk()
    model = ScriptedChatModel(script=script)
    memory = ToolMemory.ephemeral()
    graph = create_agent(model, desk.tools, middleware=tool_memory_middleware(memory), checkpointer=InMemorySaver())
    agent = Agent(graph, model, desk, memory)
    first = 0
    while not memory.report().skipped and first < 60:
        await agent.run(first, way)
        first += 1
    assert 2 <= first < 60, "what was never seen to be right is not done"
    assert desk.done == [call for i in range(first) for call in expected(NAMES[i % 12])]
    assert memory.report().turns == 4 * first


def marked(desk: Desk, name: str, **marks: Any) -> list[BaseTool]:
    tools = desk.tools
    for one in tools:
        if one.name == name:
            one.tags = None
            for field, value in marks.items():
                setattr(one, field, value)
    return tools


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "marks", [{"tags": ["destructive"]}, {"metadata": {"destructiveHint": True, "readOnlyHint": False}}]
)
async def test_guards_know_the_marks_of_the_tools_at_hand(way: str, marks: dict[str, Any]) -> None:
    memory = ToolMemory.ephemeral()
    warm(memory)
    desk = Desk()
    agent = build_agent(memory, desk, tools=marked(desk, "latest_order", **marks))
    state = await agent.run(0, way)
    assert [m.tool_calls[0]["name"] for m in shortcuts(state["messages"])] == ["find_customer", "add_note"]
    before = state["messages"][:3]
    assert memory.inertia.predict(before, policy=EAGER) is None, "the memory itself knows them now"
    named = EAGER.with_(may_write={"latest_order", "add_note"}, allow_destructive={"latest_order"})
    assert memory.inertia.predict(before, policy=named) is None, "a write does not follow the memory's own call"
    asked = [message.model_copy(update={"additional_kwargs": {}}) for message in before]
    assert memory.inertia.predict(asked, policy=named).tool == "latest_order"  # type: ignore[union-attr]
    agent = build_agent(memory, desk, tools=marked(desk, "latest_order", **marks), policy=named)
    assert len(shortcuts((await agent.run(1, way))["messages"])) == 2
    assert desk.done == [*expected("Ann"), *expected("Ben")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "make", [lambda m: [ToolMemoryMiddleware(m, shortcut=False)], lambda m: tool_memory_middleware(m, shortcut=False)]
)
async def test_the_recorder_alone_learns(way: str, make: Callable[[ToolMemory], list[Any]]) -> None:
    memory = ToolMemory.ephemeral(reads={"*"}, methods=default_methods(Inertia(EAGER)))
    agent = build_agent(None, Desk(), inside=make(memory))
    for i in range(24):
        state = await agent.run(i, way)
        assert not shortcuts(state["messages"])
    report = memory.report()
    assert agent.model_calls == 96
    assert (report.turns, report.calls, report.answers, report.skipped) == (96, 72, 24, 0)
    assert report.right >= 15
    assert report.wrong == 0
    assert (await build_agent(memory, Desk()).run(24, way)) is not None
    assert memory.report().skipped == 3, "what it learned is enough to act on"


@pytest.mark.parametrize("way", WAYS)
async def test_one_middleware_does_both_ends(way: str) -> None:
    memory = ToolMemory.ephemeral()
    agent = build_agent(None, Desk(), inside=[ToolMemoryMiddleware(memory, shortcut=EAGER)])
    for i in range(24):
        state = await agent.run(i, way)
    assert len(shortcuts(state["messages"])) == 3
    assert agent.desk.done == [call for i in range(24) for call in expected(NAMES[i % 12])]


@pytest.mark.parametrize("way", WAYS)
async def test_marked_messages(way: str) -> None:
    ours, _ = both()
    state = await ours.run(0, way)
    for message in shortcuts(state["messages"]):
        mark = message.additional_kwargs["toolmem"]
        assert mark["by"] == "inertia"
        assert 0.9 <= mark["confidence"] <= 1
        assert json.loads(json.dumps(mark)) == mark
        assert message.name is None
        assert message.usage_metadata is None
        assert message.text == ""
        assert message.id
    ids = [c["id"] for m in shortcuts(state["messages"]) for c in m.tool_calls]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("way", WAYS)
async def test_without_a_checkpointer(way: str) -> None:
    """There is no thread id then, and no state between runs."""
    memory = ToolMemory.ephemeral()
    agent = build_agent(memory, Desk(), checkpointer=None)
    for i in range(24):
        state = await agent.ask(asked(i), {}, way)
    assert len(shortcuts(state["messages"])) == 3
    report = memory.report()
    assert (report.turns, report.skipped, report.wrong) == (96, 96 - agent.model_calls, 0)


async def test_sync_and_async_decide_alike() -> None:
    told = []
    for way in WAYS:
        agent = build_agent(
            ToolMemory.ephemeral(tools=Desk().tools), Desk(), policy=InertiaPolicy().with_(max_wrong_per_100=None)
        )
        told.append([await events(agent, way, i) for i in range(24)])
    assert told[0] == told[1]
    decisions = [e["decision"] for run in told[0] for e in run if e["node"] == "inertia"]
    assert decisions.count("shortcut") >= 10
    assert decisions.count("ask_model") >= 24


# --- tool choice ---


class Choice(AgentMiddleware[Any, Any, Any]):
    """Sets the request's tool choice, as a host does at a step that must go a certain way."""

    def __init__(self, choice: Any) -> None:
        super().__init__()
        self.choice = choice

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        return handler(request.override(tool_choice=self.choice))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        return await handler(request.override(tool_choice=self.choice))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("choice", "skipped"),
    [
        (None, 3),
        ("auto", 3),
        ("any", 3),
        ("required", 3),
        ("none", 0),
        ("add_note", 0),
        ({"type": "function", "function": {"name": "add_note"}}, 0),
    ],
)
async def test_a_forced_tool_choice_is_the_models_affair(way: str, choice: Any, skipped: int) -> None:
    memory = ToolMemory.ephemeral(tools=Desk().tools)
    warm(memory)
    middleware = [Choice(choice), *tool_memory_middleware(memory, shortcut=EAGER)]
    agent = build_agent(None, Desk(), inside=middleware)
    told = await events(agent, way, 0)
    assert memory.report().skipped == skipped
    assert agent.model_calls == 4 - skipped
    assert agent.desk.done == expected("Ann")
    if not skipped:
        reasons = {e["reason"] for e in told if e["node"] == "inertia" and e["proposal"]}
        assert reasons == {"the request settles which tools may be called: the model is asked"}
        assert memory.report().turns == WARM_TURNS + 4


# --- settings of one run ---


@pytest.mark.parametrize("way", WAYS)
async def test_settings_from_the_context(way: str) -> None:
    memory = ToolMemory.ephemeral(tools=Desk().tools, methods=default_methods(Inertia(EAGER)))
    warm(memory)
    agent = build_agent(memory, Desk(), context_schema=InertiaSettings)
    expected_reasons = {
        "off": "switched off for this run (inertia_mode)",
        "shadow": "shadow mode: the model is asked and the answer compared",
    }
    right = memory.report().right
    for i, (mode, reason) in enumerate(expected_reasons.items()):
        told = await events(agent, way, i, context={"inertia_mode": mode})
        decisions = [e for e in told if e["node"] == "inertia"]
        assert [e["decision"] for e in decisions] == ["ask_model"] * 4
        assert {e["reason"] for e in decisions[:3]} == {reason}
        assert agent.model_calls == 4 * (i + 1)
        assert memory.report().turns == WARM_TURNS + 4 * (i + 1), "the record goes on"
    assert memory.report().right == right + 6
    for context in ({"inertia_mode": "act"}, None, InertiaSettings()):
        i += 1
        told = await events(agent, way, i, context=context)
        assert [e["decision"] for e in told if e["node"] == "inertia"] == ["shortcut"] * 3 + ["ask_model"]
    never = InertiaSettings(inertia_never=["latest_order"])
    told = await events(agent, way, 9, context=never)
    assert [e["decision"] for e in told if e["node"] == "inertia"] == ["shortcut", "ask_model", "shortcut", "ask_model"]
    assert agent.desk.done == [call for i in (0, 1, 2, 3, 4, 9) for call in expected(NAMES[i])]


@pytest.mark.parametrize("way", WAYS)
async def test_users_are_kept_apart(way: str) -> None:
    """The user comes from the context; every record of a run carries it, tool calls included."""
    with ToolMemory.ephemeral(namespace=("toolmem", "{user_id}")) as memory:
        agent = build_agent(memory, Desk(), context_schema=InertiaSettings)
        for i in range(6):
            await agent.run(i, way, context={"user_id": f"user-{i % 2}"})
        state = repr(memory.core.graph.to_state())
        assert user_digest("user-0") in state
        assert user_digest("user-1") in state
        removed = memory.forget(user_id="user-0")
        assert removed > 0
        left = repr(memory.core.graph.to_state())
        assert user_digest("user-0") not in left
        assert "Ann" not in left, "asked by user-0 only"
        assert "Ben" in left
        assert memory.report().turns == 24


@pytest.mark.parametrize("way", WAYS)
async def test_no_user_where_one_is_needed_is_passed_over(way: str, caplog: pytest.LogCaptureFixture) -> None:
    memory = ToolMemory.ephemeral(namespace=("toolmem", "{user_id}"))
    agent = build_agent(memory, Desk())
    for i in range(3):
        await agent.run(i, way)
    assert agent.desk.done == [call for i in range(3) for call in expected(NAMES[i])]
    assert memory.report().turns == 0
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(errors) == len(set(errors)) == 2, "once for the shortcut and once for the recorder"
    assert all("user" in text for text in errors)


# --- failing open ---

METHODS = ("begin_turn", "after_model", "executed")


def owner(memory: ToolMemory, name: str) -> Any:
    return memory.inertia if name == "begin_turn" else memory.core.events


def breaking(*_: Any, **__: Any) -> Any:
    raise BrokenPipeError("secret of a customer")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("broken", [*[(m,) for m in METHODS], METHODS])
async def test_a_memory_that_breaks_is_passed_over(
    way: str, broken: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = both()
    for name in broken:
        monkeypatch.setattr(owner(ours.memory, name), name, breaking)
    for i in range(3):
        state, plain = await ours.run(i, way), await theirs.run(i, way)
        assert_answered(state["messages"])
        assert [m.text for m in state["messages"]] == [m.text for m in plain["messages"]]
        assert bool(shortcuts(state["messages"])) == ("begin_turn" not in broken)
    same_calls(ours.desk, theirs.desk)
    assert (ours.model_calls == 12) == ("begin_turn" in broken)
    errors = [r for r in caplog.records if r.levelno >= logging.WARNING]
    owners = {
        "begin_turn": "InertiaShortcut",
        "after_model": "ToolMemoryInside",
        "executed": "ToolMemoryInside",
    }
    assert len(errors) == len({owners[name] for name in broken}), "one error of each, logged once"
    assert all(r.name.startswith(LOGGER) and "BrokenPipeError" in r.getMessage() for r in errors)
    assert "secret" not in " ".join(r.getMessage() for r in errors)


@pytest.mark.parametrize("way", WAYS)
async def test_an_error_of_a_tool_goes_its_way_though_the_memory_breaks(
    way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = ToolMemory.ephemeral()
    for name in (*METHODS, "gave_up"):
        monkeypatch.setattr(owner(memory, name), name, breaking)
    desk = Desk()
    tools = desk.tools

    def fail(name: str) -> str:
        raise ZeroDivisionError("the host's own")

    tools[0].func = fail  # type: ignore[attr-defined]
    agent = build_agent(memory, desk, tools=tools)
    with pytest.raises(ZeroDivisionError, match="the host's own"):
        await agent.run(0, way)
    warned = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warned) == 3, "once for the shortcut and for each middleware"


@pytest.mark.parametrize("way", WAYS)
async def test_a_closed_memory_is_passed_over(way: str, tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    memory = ToolMemory(tmp_path / "memory")
    warm(memory)
    memory.close()
    agent = build_agent(memory, Desk())
    for i in range(2):
        assert_answered((await agent.run(i, way))["messages"])
    assert agent.desk.done == [*expected("Ann"), *expected("Ben")]
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) <= 3
    with ToolMemory(tmp_path / "memory") as again:
        assert again.report().turns == WARM_TURNS


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
    assert {name for name, _ in seen} == {*METHODS, "gave_up"}
    assert not [name for name, on_loop in seen if on_loop]


# --- the provider guard ---


class ChatAnthropic(ScriptedChatModel):
    """Named like the class that the rules know; langchain-anthropic is not installed here."""

    model: str = "claude-sonnet-4-5"
    thinking: dict[str, Any] | None = None


THINKS = {"type": "enabled", "budget_tokens": 2000}


@pytest.mark.parametrize("way", WAYS)
async def test_a_model_that_refuses_other_peoples_calls_gets_no_shortcut(way: str) -> None:
    memory = ToolMemory.ephemeral(tools=Desk().tools)
    warm(memory)
    before = memory.report()
    agent = build_agent(memory, Desk(), model=ChatAnthropic(script=script, thinking=THINKS))
    told = [e for e in await events(agent, way, 0) if e["node"] == "inertia"]
    assert [e["decision"] for e in told] == ["ask_model"] * 4
    assert all(e["proposal"]["audit"] for e in told[:3])
    assert all(e["reason"].startswith("anthropic-thinking: ") for e in told[:3])
    assert agent.model_calls == 4
    after = memory.report()
    assert after.skipped == 0
    assert after.turns == before.turns + 4
    assert after.right == before.right + 3, "the record is kept all the same"
    assert agent.desk.done == expected("Ann")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("thinking", [None, {"type": "disabled"}, {"type": "adaptive"}])
async def test_the_same_model_without_that_thinking_gets_shortcuts(way: str, thinking: Any) -> None:
    ours, theirs = both(model=lambda: ChatAnthropic(script=script, thinking=thinking))
    assert len(shortcuts((await ours.run(0, way))["messages"])) == 3
    await theirs.run(0, way)
    same_calls(ours.desk, theirs.desk)


@pytest.mark.parametrize("way", WAYS)
async def test_shortcuts_may_be_forced(way: str) -> None:
    ours, _ = both(model=lambda: ChatAnthropic(script=script, thinking=THINKS), force=True)
    assert len(shortcuts((await ours.run(0, way))["messages"])) == 3


class Thinking(AgentMiddleware[Any, Any, Any]):
    """Turns thinking on by the settings of the request."""

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        return handler(request.override(model_settings={"thinking": THINKS}))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        return await handler(request.override(model_settings={"thinking": THINKS}))


@pytest.mark.parametrize("way", WAYS)
async def test_settings_of_the_request_count(way: str) -> None:
    memory = ToolMemory.ephemeral(tools=Desk().tools)
    warm(memory)
    middleware = [Thinking(), *tool_memory_middleware(memory, shortcut=EAGER)]
    agent = build_agent(None, Desk(), inside=middleware, model=ChatAnthropic(script=script))
    assert not shortcuts((await agent.run(0, way))["messages"])
    assert agent.model.calls[0].kwargs["thinking"] == THINKS


@pytest.mark.parametrize("way", WAYS)
async def test_rules_of_ones_own(way: str) -> None:
    ours = ProviderRule("ours", why="400 without a trace token", source="https://wiki.example/x", models="^acme-")
    memory = ToolMemory.ephemeral(tools=Desk().tools)
    warm(memory)
    for i, (rules, skipped) in enumerate((([*PROVIDER_RULES, ours], 0), (PROVIDER_RULES, 3), ([], 3))):
        middleware = tool_memory_middleware(memory, shortcut=EAGER, rules=iter(rules))
        model = ChatAnthropic(script=script, model="acme-2")
        agent = build_agent(None, Desk(), inside=middleware, model=model)
        assert len(shortcuts((await agent.run(i, way))["messages"])) == skipped
    middleware = tool_memory_middleware(memory, shortcut=EAGER, rules=())
    agent = build_agent(None, Desk(), inside=middleware, model=ChatAnthropic(script=script, thinking=THINKS))
    assert len(shortcuts((await agent.run(5, way))["messages"])) == 3


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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("streaming", [False, True])
async def test_requests_are_the_model_calls_not_skipped(way: str, streaming: bool, server: OpenAIStubServer) -> None:
    memory = ToolMemory.ephemeral()
    warm(memory)
    desk = Desk()
    model = make_chat_model(server, streaming=streaming, stream_usage=True)
    agent = build_agent(memory, desk, model=model)
    made = 0
    for i in range(4):
        state = await agent.run(i, way)
        made += len(shortcuts(state["messages"]))
    await model.root_async_client.close()
    assert made == memory.report().skipped == 12
    assert len(server.requests) == 4 * 4 - made
    assert desk.done == [call for i in range(4) for call in expected(NAMES[i])]
    sent = server.requests[-1]["messages"]
    assert [m["role"] for m in sent] == ["user", *["assistant", "tool"] * 3]
    assert "toolmem" not in json.dumps(sent), "the mark stays here"
    assert all("name" not in m for m in sent if m["role"] == "assistant")
    assert memory.report().turns == WARM_TURNS + 16


# --- without langchain ---

BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name == "langchain" or name.startswith("langchain."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
import langgraph_toolmem
from langgraph_toolmem import MissingExtraError, ToolMemory
import langgraph_toolmem.nodes
ToolMemory.ephemeral()
try:
    from langgraph_toolmem.middleware import tool_memory_middleware
except MissingExtraError as error:
    print(type(error).__mro__[1].__name__, "|", error)
"""


def test_without_langchain_it_says_what_to_install() -> None:
    found = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=60, check=True)
    assert "langgraph_toolmem.middleware" in found.stdout
    assert 'pip install "langgraph-toolmem[agents]"' in found.stdout


def test_the_package_does_not_import_langchain() -> None:
    code = "import sys, langgraph_toolmem, langgraph_toolmem.nodes; print([m for m in sys.modules if m == 'langchain'])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "[]"
