"""``create_react_agent`` of langgraph.prebuilt: the memory as dynamic model, recorder hook and ToolNode wrapper."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from agents import WAYS, asked
from desk import EAGER, NAMES, WARM_TURNS, Desk, assert_answered, expected, script, shortcuts, thread, warm
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, trim_messages
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.prebuilt.tool_node import ToolCallRequest
from pydantic import BaseModel

from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.inertia.settings import InertiaSettings
from langgraph_toolmem.nodes import Recorder, ashortcut_model, shortcut_model
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = [
    pytest.mark.filterwarnings("ignore::langgraph.warnings.LangGraphDeprecatedSinceV10"),
    pytest.mark.usefixtures("nothing_failed"),
]

DYNAMIC = {"sync": shortcut_model, "async": ashortcut_model}


def react(
    memory: ToolMemory | None,
    desk: Desk,
    way: str,
    model: Any = None,
    *,
    recorder: bool = True,
    watched: bool = False,
    policy: InertiaPolicy | None = EAGER,
    dynamic: Any = None,
    handle: Any = False,
    edit: Any = None,
    model_options: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """The agent and its model; without a memory it is what the host had before."""
    model = model or ScriptedChatModel(script=script)
    tools: Any = desk.tools
    options.setdefault("checkpointer", InMemorySaver())
    if memory is None:
        node = ToolNode(tools, handle_tool_errors=handle, **wrappers(edit, None))
        return create_react_agent(model, node, **options), model
    hook = Recorder(memory)
    chosen = (dynamic or DYNAMIC[way])(memory, model, tools, policy=policy, **(model_options or {}))
    if recorder:
        options["post_model_hook"] = hook
    node = ToolNode(tools, handle_tool_errors=handle, **wrappers(edit, hook if watched else None))
    return create_react_agent(chosen, node, **options), model


def wrappers(edit: Callable[[ToolCallRequest], ToolCallRequest] | None, recorder: Recorder | None) -> dict[str, Any]:
    """What a ToolNode is given: the host's edit of calls outside, the recorder inside."""
    if edit is None and recorder is None:
        return {}

    def wrap(request: ToolCallRequest, execute: Any) -> Any:
        request = edit(request) if edit else request
        return recorder.wrap_tool_call(request, execute) if recorder else execute(request)

    async def awrap(request: ToolCallRequest, execute: Any) -> Any:
        request = edit(request) if edit else request
        return await (recorder.awrap_tool_call(request, execute) if recorder else execute(request))

    return {"wrap_tool_call": wrap, "awrap_tool_call": awrap}


async def run(graph: Any, i: int, way: str, config: Any = None, **options: Any) -> dict[str, Any]:
    config = config or thread(f"thread-{i}")
    if way == "sync":
        state: dict[str, Any] = graph.invoke(asked(i), config, **options)
    else:
        state = await graph.ainvoke(asked(i), config, **options)
    return state


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("recorder", [True, False])
@pytest.mark.parametrize("watched", [True, False])
async def test_shortcuts_in_the_models_place(way: str, recorder: bool, watched: bool) -> None:
    memory = ToolMemory.ephemeral()
    desk, plain = Desk(), Desk()
    graph, model = react(memory, desk, way, recorder=recorder, watched=watched)
    without, plain_model = react(None, plain, way)
    made = 0
    for i in range(24):
        state = await run(graph, i, way)
        await run(without, i, way)
        assert_answered(state["messages"])
        assert state["messages"][-1].text == f"The order of {NAMES[i % 12]} is checked."
        made += len(shortcuts(state["messages"]))
    assert len(shortcuts(state["messages"])) == 3
    assert desk.done == plain.done == [call for i in range(24) for call in expected(NAMES[i % 12])]
    assert len(plain_model.calls) == 96
    report = memory.report()
    assert made == report.skipped == 96 - len(model.calls)
    assert report.turns == 96, "a turn whose end was not reported counts all the same"
    assert report.answers == (24 if recorder else 0)
    assert report.wrong == 0
    assert {n: c.calls for n, c in memory.view().tools.items()} == dict.fromkeys(memory.view().tools, 24)


async def test_a_sync_model_runs_in_an_async_graph_too() -> None:
    memory = ToolMemory.ephemeral()
    warm(memory)
    graph, model = react(memory, Desk(), "async", dynamic=shortcut_model)
    state = await run(graph, 0, "async")
    assert (len(shortcuts(state["messages"])), len(model.calls)) == (3, 1)


@pytest.mark.parametrize("way", WAYS)
async def test_turns_of_one_thread(way: str) -> None:
    memory = ToolMemory.ephemeral()
    desk = Desk()
    graph, model = react(memory, desk, way)
    for i in range(20):
        state = await run(graph, i, way, thread("one"))
    assert_answered(state["messages"])
    assert desk.done == [call for i in range(20) for call in expected(NAMES[i % 12])]
    report = memory.report()
    assert (report.turns, report.answers, report.skipped) == (80, 20, 80 - len(model.calls))
    assert report.skipped == len(shortcuts(state["messages"])) > 0


@pytest.mark.parametrize("way", WAYS)
async def test_the_recorder_sees_what_was_executed(way: str) -> None:
    """Somebody between model and tool changes the arguments: what was executed is learned."""

    def shout(request: ToolCallRequest) -> ToolCallRequest:
        call = request.tool_call
        if call["name"] != "add_note":
            return request
        return request.override(tool_call={**call, "args": {**call["args"], "note": "CHECKED"}})

    memory = ToolMemory.ephemeral()
    desk = Desk()
    graph, _ = react(memory, desk, way, watched=True, edit=shout, policy=InertiaPolicy(shadow=True))
    for i in range(5):
        await run(graph, i, way)
    assert [args["note"] for name, args in desk.done if name == "add_note"] == ["CHECKED"] * 5
    learned = repr(memory.core.graph.to_state())
    assert "CHECKED" in learned
    assert '"checked"' not in learned


class Shaky(Desk):
    """A desk whose orders cannot be read for some customers."""

    @property
    def tools(self) -> list[Any]:
        tools = super().tools
        real: Any = tools[1].func  # type: ignore[attr-defined]

        def latest_order(customer_id: str) -> str:
            found: str = real(customer_id)
            if int(customer_id[2:]) % 2:
                raise ConnectionError(f"no answer for {customer_id}")
            return found

        tools[1].func = latest_order  # type: ignore[attr-defined]
        return tools


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("watched", [True, False])
async def test_failed_calls_are_learned_as_failed(way: str, watched: bool) -> None:
    memory = ToolMemory.ephemeral()
    desk, plain = Shaky(), Shaky()
    graph, _ = react(memory, desk, way, watched=watched, handle=True)
    without, _ = react(None, plain, way, handle=True)
    for i in range(12):
        assert_answered((await run(graph, i, way))["messages"])
        await run(without, i, way)
    assert desk.done == plain.done
    failed = sum(name == "latest_order" and int(args["customer_id"][2:]) % 2 for name, args in desk.done)
    assert 0 < failed < 12
    counts = memory.view().tools["latest_order"]
    assert (counts.ok, counts.failed) == (12 - failed, failed)


@pytest.mark.parametrize("way", WAYS)
async def test_history_shortened_by_a_pre_model_hook(way: str) -> None:
    """A hook gives the model less than the thread holds; nothing is learned twice because of it."""

    def shorten(state: dict[str, Any]) -> dict[str, Any]:
        kept = trim_messages(state["messages"], max_tokens=9, token_counter=len, start_on="human", strategy="last")
        return {"llm_input_messages": kept}

    memory = ToolMemory.ephemeral()
    desk, plain = Desk(), Desk()
    graph, model = react(memory, desk, way, pre_model_hook=shorten)
    without, _ = react(None, plain, way, pre_model_hook=shorten)
    for i in range(20):
        state = await run(graph, i, way, thread("one"))
        await run(without, i, way, thread("one"))
    assert desk.done == plain.done
    assert_answered(state["messages"])
    assert max(len(call.messages) for call in model.calls) <= 9
    report = memory.report()
    assert (report.turns, report.answers) == (80, 20)
    assert report.skipped == 80 - len(model.calls) > 0
    assert {n: c.calls for n, c in memory.view().tools.items()} == dict.fromkeys(memory.view().tools, 20)


class Verdict(BaseModel):
    """What came of it."""

    checked: bool


def judge(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    if [t["function"]["name"] for t in tools] == ["Verdict"]:
        made = {"name": "Verdict", "args": {"checked": True}, "id": "call_0", "type": "tool_call"}
        return AIMessage("", tool_calls=[made])  # type: ignore[list-item]
    return script([m for m in messages if not isinstance(m, SystemMessage)], tools)


@pytest.mark.parametrize("way", WAYS)
async def test_prompt_and_structured_answer(way: str) -> None:
    """The structured answer is one more model call, which no shortcut takes."""
    memory = ToolMemory.ephemeral()
    desk = Desk()
    model = ScriptedChatModel(script=judge)
    graph, _ = react(memory, desk, way, model, prompt="You are a clerk.", response_format=Verdict, name="clerk")
    for i in range(24):
        state = await run(graph, i, way)
        assert state["structured_response"] == Verdict(checked=True)
    assert len(shortcuts(state["messages"])) == 3
    assert desk.done == [call for i in range(24) for call in expected(NAMES[i % 12])]
    assert memory.report().skipped == 24 * 5 - len(model.calls)
    assert isinstance(model.calls[0].messages[0], SystemMessage)


@pytest.mark.parametrize("way", WAYS)
async def test_events_and_settings(way: str) -> None:
    memory = ToolMemory.ephemeral()
    warm(memory)
    graph, model = react(memory, Desk(), way, context_schema=InertiaSettings)
    wanted = {"act": 3, "shadow": 0, "off": 0}
    for i, (mode, shortcuts_made) in enumerate(wanted.items()):
        options: dict[str, Any] = {"context": {"inertia_mode": mode}, "stream_mode": "custom"}
        if way == "sync":
            events = list(graph.stream(asked(i), thread(i), **options))
        else:
            events = [e async for e in graph.astream(asked(i), thread(i), **options)]
        told = [e["toolmem"] for e in events]
        decisions = [e["decision"] for e in told if e["node"] == "inertia"]
        assert decisions == ["shortcut"] * shortcuts_made + ["ask_model"] * (4 - shortcuts_made)
        assert sum(e["learned_turns"] for e in told if e["node"] == "recorder") >= 1
        json.dumps(told)
    assert len(model.calls) == 1 + 4 + 4
    assert memory.report().turns == WARM_TURNS + 12


class ChatAnthropic(ScriptedChatModel):
    """Named like the class that the rules know."""

    thinking: Any = None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("force", "made"), [(False, 0), (True, 3)])
async def test_the_provider_guard(way: str, force: bool, made: int) -> None:
    memory = ToolMemory.ephemeral()
    warm(memory)
    model = ChatAnthropic(script=script, thinking={"type": "enabled", "budget_tokens": 2000})
    graph, _ = react(memory, Desk(), way, model, model_options={"force": force})
    assert len(shortcuts((await run(graph, 0, way))["messages"])) == made
    assert memory.report().turns == WARM_TURNS + 4


@pytest.mark.parametrize("way", WAYS)
async def test_a_memory_that_breaks_is_passed_over(
    way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaking(*_: Any, **__: Any) -> Any:
        raise RuntimeError("secret of a customer")

    memory = ToolMemory.ephemeral()
    warm(memory)
    monkeypatch.setattr(memory.inertia, "begin_turn", breaking)
    for name in ("observe", "executed"):
        monkeypatch.setattr(memory.core.events, name, breaking)
    desk = Desk()
    graph, model = react(memory, desk, way, watched=True)
    for i in range(3):
        assert_answered((await run(graph, i, way))["messages"])
    assert len(model.calls) == 12
    assert desk.done == [call for i in range(3) for call in expected(NAMES[i])]
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(errors) == 2, "once for the model, once for the recorder"
    assert "secret" not in " ".join(errors)


async def test_runs_at_the_same_time() -> None:
    memory = ToolMemory.ephemeral()
    warm(memory)
    desk = Desk()
    graph, model = react(memory, desk, "async")
    states = await asyncio.gather(*(run(graph, i, "async") for i in range(12)))
    assert sum(len(shortcuts(s["messages"])) for s in states) == memory.report().skipped == 48 - len(model.calls) == 36
    assert sorted(map(repr, desk.done)) == sorted(repr(c) for i in range(12) for c in expected(NAMES[i]))
