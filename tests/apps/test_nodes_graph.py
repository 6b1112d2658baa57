"""InertiaShortcut and Recorder in the graph of the README: fewer model calls, the same work."""

from __future__ import annotations

import asyncio
import json
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from desk import (
    EAGER,
    NAMES,
    Desk,
    assert_answered,
    build,
    call_id,
    expected,
    request,
    run,
    script,
    shortcuts,
    this_turn,
    thread,
    warm,
)
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.inertia import step as inertia_step
from langgraph_toolmem.nodes import InertiaShortcut, shortcut_condition
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, make_chat_model


def texts(state: dict[str, Any]) -> list[tuple[str, str, list[tuple[str, Any]]]]:
    """A final state without ids and marks."""
    return [(m.type, m.text, [(c["name"], c["args"]) for c in getattr(m, "tool_calls", [])]) for m in state["messages"]]


@pytest.mark.parametrize("policy", [EAGER, InertiaPolicy()], ids=["eager", "default"])
def test_fewer_model_calls_and_the_same_work(desk: Desk, memory: ToolMemory, policy: InertiaPolicy) -> None:
    graph, model = build(memory, desk.tools, policy=policy, checkpointer=InMemorySaver())
    plain_desk = Desk()
    with ToolMemory.ephemeral(tools=plain_desk.tools) as shadow:
        plain, plain_model = build(shadow, plain_desk.tools, policy=InertiaPolicy(shadow=True))
        for i in range(45):
            state, plain_state = run(graph, i), run(plain, i)
            assert texts(state) == texts(plain_state)
            assert_answered(state["messages"])
    assert desk.done == plain_desk.done == [call for i in range(45) for call in expected(NAMES[i % len(NAMES)])]
    assert len(plain_model.calls) == 180
    report = memory.report()
    assert report.skipped == 180 - len(model.calls)
    assert report.skipped >= (90 if policy is EAGER else 45)
    assert (report.turns, report.skipped_failed, report.wrong) == (180, 0, 0)
    assert report.answers == 45
    assert report.tokens_saved == report.skipped * 100


def test_a_shortcut_is_marked_and_counts_no_tokens(desk: Desk, memory: ToolMemory) -> None:
    warm(memory)
    graph, model = build(memory, desk.tools, policy=EAGER)
    usage = UsageMetadataCallbackHandler()
    state = run(graph, 0, config={"callbacks": [usage]})
    made = shortcuts(state["messages"])
    assert len(made) == 3
    assert len(model.calls) == 1
    for message in made:
        mark = message.additional_kwargs["toolmem"]
        assert set(mark) == {"by", "confidence", "evidence"}
        assert mark["by"] == "inertia"
        assert 0.9 <= mark["confidence"] <= 1
        assert mark["evidence"]
        assert message.name is None
        assert message.usage_metadata is None
        assert message.content == ""
    assert len({m.tool_calls[0]["id"] for m in made}) == 3


def test_an_announced_shortcut_says_so(desk: Desk, memory: ToolMemory) -> None:
    warm(memory)
    graph, _ = build(memory, desk.tools, policy=InertiaPolicy.paper(max_share=None, window=1))
    first = shortcuts(run(graph, 0)["messages"])[0]
    assert first.text.startswith("[inertia shortcut]")
    assert first.tool_calls[0]["name"] in first.text


def test_nothing_is_done_before_it_was_seen_to_be_right(desk: Desk, memory: ToolMemory) -> None:
    graph, _ = build(memory, desk.tools, policy=InertiaPolicy().with_(audit_rate=0.0))
    first = next(i for i in range(40) if shortcuts(run(graph, i)["messages"]))
    assert 2 <= first <= 10
    assert memory.report().precision is None


# --- on the wire ---


def reply(request_body: dict[str, Any]) -> AIMessage:
    from langchain_core.messages import convert_to_messages

    answer = script(convert_to_messages(request_body["messages"]), [])
    answer.usage_metadata = None
    if answer.tool_calls:
        answer.tool_calls[0]["id"] = None  # the server gives it
    return answer


@pytest.mark.parametrize("streaming", [False, True])
def test_with_a_real_client_nothing_of_the_mark_is_sent(desk: Desk, memory: ToolMemory, streaming: bool) -> None:
    warm(memory, 12)
    with OpenAIStubServer(reply) as server:
        model = make_chat_model(server, streaming=streaming, stream_usage=streaming)
        graph, _ = build(memory, desk.tools, model, policy=EAGER.with_(audit_rate=0.3), checkpointer=InMemorySaver())
        states = [run(graph, i, config=thread(i % 3)) for i in range(12)]
    assert sum(len(shortcuts(s["messages"])) for s in states) >= 12
    assert desk.done == [call for i in range(12) for call in expected(NAMES[i])]
    assert memory.report().skipped == 48 - len(server.requests)
    for body in server.requests:
        assert "toolmem" not in json.dumps(body)
        open_calls: list[str] = []
        for message in body["messages"]:
            assert "name" not in message
            if message["role"] == "tool":
                open_calls.remove(message["tool_call_id"])
            else:
                assert not open_calls
                open_calls = [c["id"] for c in message.get("tool_calls") or ()]
        assert not open_calls


# --- sync and async ---


def numbered_uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    count = iter(range(10**6))

    def uuid4() -> Any:
        return types.SimpleNamespace(hex=call_id("uuid", next(count)).removeprefix("call_").ljust(32, "0"))

    monkeypatch.setattr(inertia_step, "uuid", types.SimpleNamespace(uuid4=uuid4))


async def test_sync_and_async_decide_and_learn_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[Any], Any, Any, Any]] = []
    for asynchronous in (False, True):
        numbered_uuids(monkeypatch)
        desk = Desk()
        with ToolMemory.ephemeral(tools=desk.tools, now=lambda: 1_000_000.0) as memory:
            often_audited = InertiaPolicy().with_(audit_rate=0.25)
            graph, model = build(memory, desk.tools, policy=often_audited, checkpointer=InMemorySaver())
            events: list[Any] = []
            for i in range(40):
                user = HumanMessage(request(NAMES[i % 12]), id=call_id("user", i))
                feed = {"messages": [user]}
                if asynchronous:
                    events += [e async for e in graph.astream(feed, thread(i), stream_mode="custom")]
                else:
                    events += list(graph.stream(feed, thread(i), stream_mode="custom"))
            seen.append((events, memory.report().to_dict(), memory.view(), len(model.calls)))
    (events, report, view, calls), (async_events, async_report, async_view, async_calls) = seen
    assert report["skipped"] >= 30
    assert report["right"] >= 1, "audits happened"
    assert events == async_events
    assert report == async_report
    assert view == async_view
    assert calls == async_calls


async def test_sqlite_checkpointers(tmp_path: Path) -> None:
    for asynchronous in (False, True):
        desk = Desk()
        file = str(tmp_path / f"{asynchronous}.sqlite")
        with ToolMemory.ephemeral(tools=desk.tools) as memory:
            if asynchronous:
                async with AsyncSqliteSaver.from_conn_string(file) as saver:
                    graph, _ = build(memory, desk.tools, policy=EAGER, checkpointer=saver)
                    for i in range(12):
                        user = HumanMessage(request(NAMES[i]), id=call_id("user", i))
                        state = await graph.ainvoke({"messages": [user]}, thread(i % 4))
                    kept = (await graph.aget_state(thread(3))).values["messages"]
            else:
                with SqliteSaver.from_conn_string(file) as saver:
                    graph, _ = build(memory, desk.tools, policy=EAGER, checkpointer=saver)
                    for i in range(12):
                        state = run(graph, i, config=thread(i % 4))
                    kept = graph.get_state(thread(3)).values["messages"]
            assert_answered(kept)
            assert len(kept) == len(state["messages"]) == 24
            assert shortcuts(kept)
            assert shortcuts(kept) == shortcuts(state["messages"])
            assert memory.report().turns == 48
            assert desk.done == [call for i in range(12) for call in expected(NAMES[i])]


# --- streaming ---


def test_one_custom_event_a_decision(desk: Desk, memory: ToolMemory) -> None:
    warm(memory)
    graph, _ = build(memory, desk.tools, policy=EAGER)
    events = list(graph.stream({"messages": [HumanMessage(request("Ann"))]}, stream_mode="custom"))
    assert [set(e) for e in events] == [{"toolmem"}] * 5
    decisions = [e["toolmem"] for e in events]
    assert [d["node"] for d in decisions] == ["inertia"] * 4 + ["recorder"]
    assert [d.get("decision") for d in decisions] == ["shortcut"] * 3 + ["ask_model", None]
    assert all(d["reason"] for d in decisions[:4])
    assert decisions[0]["proposal"]["tool"] == "find_customer"
    assert decisions[0]["proposal"]["args"] == {"name": "Ann"}
    assert decisions[0]["candidates"][0]["score"] >= 0.9
    assert decisions[-1]["learned_turns"] == 1
    assert json.loads(json.dumps(events)) == events


def test_a_refusal_says_why_in_its_event(desk: Desk, memory: ToolMemory) -> None:
    graph, _ = build(memory, desk.tools, policy=EAGER)
    first = next(iter(graph.stream({"messages": [HumanMessage(request("Ann"))]}, stream_mode="custom")))["toolmem"]
    assert first["decision"] == "ask_model"
    assert first["proposal"] is None
    assert "seen" in first["reason"]


async def test_stream_mode_messages(desk: Desk, memory: ToolMemory) -> None:
    warm(memory)
    graph, _ = build(memory, desk.tools, policy=EAGER)
    feed = {"messages": [HumanMessage(request("Ann"))]}
    pairs = list(graph.stream(feed, stream_mode="messages"))
    pairs_async = [pair async for pair in graph.astream(feed, stream_mode="messages")]
    for found in (pairs, pairs_async):
        made = [(m, meta) for m, meta in found if isinstance(m, AIMessage) and m.tool_calls]
        assert [meta["langgraph_node"] for _, meta in made] == ["inertia"] * 3
        spoken = "".join(m.text for m, _ in found if isinstance(m, AIMessageChunk))
        assert spoken == "The order of Ann is checked."


def test_the_memory_works_without_a_stream_and_outside_a_graph(desk: Desk, memory: ToolMemory) -> None:
    warm(memory)
    node = InertiaShortcut(memory, policy=EAGER)
    update = node.invoke({"messages": [HumanMessage(request("Ann"))]})
    assert shortcuts(update["messages"])[0].tool_calls[0]["args"] == {"name": "Ann"}
    assert shortcut_condition(update) == "tools"
    assert shortcut_condition({"messages": []}) == "agent"
    asked = script([HumanMessage(request("Ann"))], [])
    assert shortcut_condition({"messages": [asked]}) == "agent"


# --- several at once ---


def test_eight_threads_one_memory(desk: Desk, memory: ToolMemory) -> None:
    graph, model = build(memory, desk.tools, policy=EAGER.with_(audit_rate=0.2), checkpointer=InMemorySaver())
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda i: run(graph, i), range(64)))
    check_many(desk, memory, model, states, 64)


async def test_many_coroutines_one_memory(desk: Desk, memory: ToolMemory) -> None:
    graph, model = build(memory, desk.tools, policy=EAGER.with_(audit_rate=0.2), checkpointer=InMemorySaver())

    async def one(i: int) -> Any:
        user = HumanMessage(request(NAMES[i % 12]), id=call_id("user", i))
        return await graph.ainvoke({"messages": [user]}, thread(i))

    states = []
    for start in range(0, 64, 16):
        states += await asyncio.gather(*(one(i) for i in range(start, start + 16)))
    check_many(desk, memory, model, states, 64)


def check_many(desk: Desk, memory: ToolMemory, model: ScriptedChatModel, states: list[Any], runs: int) -> None:
    """Every executed call was taught once."""
    report = memory.report()
    assert (report.turns, report.answers) == (4 * runs, runs)
    assert report.skipped == 4 * runs - len(model.calls) > 0
    assert {name: t.calls for name, t in report.tools.items()} == dict.fromkeys(
        ("find_customer", "latest_order", "add_note"), runs
    )
    edges = {(e.source, e.target): e.ok for e in memory.view().edges if e.source != "<start>"}
    assert edges == {("find_customer", "latest_order"): runs, ("latest_order", "add_note"): runs}
    for i, state in enumerate(states):
        assert_answered(state["messages"])
        user, answers = this_turn(state["messages"])
        assert user.text == request(NAMES[i % 12])
        assert len(answers) == 3
    assert len(desk.done) == 3 * runs
