"""Suggestions and the summary tool in graphs of nodes and in agents, sync and async."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from desk import EAGER, Desk, history, request
from desk import script as desk_script
from kept import inertia, ledger
from langchain_core.messages import ToolMessage
from shells import WAYS, App, agent_of, graph_of
from symptoms import CURES, FINDINGS, SCHEMAS, SYMPTOM, HelpDesk, advised, follower, stored, teach, whole

from langgraph_toolmem import SIT, SITPolicy, ToolMemory, default_methods
from langgraph_toolmem.nodes import SITSummary
from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.testing import OpenAIStubServer, make_chat_model

pytestmark = [
    pytest.mark.usefixtures("nothing_failed"),
    pytest.mark.parametrize("shell", ["graph", "agent"]),
    pytest.mark.parametrize("way", WAYS),
]


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=SCHEMAS, methods=default_methods(SIT(SITPolicy(unlabelled=0.0)))) as made:
        yield made


def app_of(
    shell: str, memory: ToolMemory, desk: Any, says: Any, *, asks: bool = False, shortcut: Any = False, **how: Any
) -> App:
    sit = SITSummary(memory, summary_tool=asks, **how)
    if shell == "agent":
        return agent_of(memory, desk, says, suggest=sit, shortcut=shortcut)
    return graph_of(memory, desk, says, sit, more_tools=[sit.tool] if asks else [], shortcut=shortcut)


def answers(state: dict[str, Any]) -> list[ToolMessage]:
    """What the summary tool said."""
    return [m for m in state["messages"] if isinstance(m, ToolMessage) and m.name == SUMMARY_TOOL]


async def test_the_state_leads_to_the_cure_where_frequency_does_not(memory: ToolMemory, shell: str, way: str) -> None:
    teach(memory, routers=7, passwords=3)
    steps = {}
    for name, policy in (("frequency", SITPolicy(recall="tool", weight_words=0.0)), ("states", None)):
        desk = HelpDesk({"Zoe": "password"})
        await app_of(shell, memory, desk, follower(), policy=policy).ask(SYMPTOM.format("Zoe"), way, thread=name)
        steps[name] = desk.done
    assert steps["frequency"] == ["read_logs", "restart_router", "reset_password"]
    assert steps["states"] == ["read_logs", "reset_password"]


async def test_the_summary_tool_leads_to_the_cure(shell: str, way: str) -> None:
    """As published: the agent writes its state down, and reads what past runs did from there."""
    with ToolMemory.ephemeral(methods=default_methods(SIT(SITPolicy.paper()))) as memory:
        desk = HelpDesk({"Zoe": "password", "Ida": "router"})
        for i in range(10):
            cause = "router" if i < 7 else "password"
            run = whole(cause, f"C{i}", summary=f"C{i}: logs say {FINDINGS[cause]}")
            memory.finish(run, thread_id=f"r{i}", success=True)
        memory.flush()
        app = app_of(shell, memory, desk, follower(asks=True), asks=True)
        for name, cause in (("Zoe", "password"), ("Ida", "router")):
            desk.done.clear()
            state = await app.ask(SYMPTOM.format(name), way, thread=name)
            assert desk.done == ["read_logs", CURES[cause]]
            [answer] = answers(state)
            assert FINDINGS[cause] in answer.text
            assert advised([answer])[0] == CURES[cause]
            memory.finish(state["messages"], thread_id=name, success=True)
        assert f"Pages do not load. The logs say: {FINDINGS['password']}." in [each.text for each in stored(memory)]
        assert ledger(memory).figures["sit"]["right"] >= 2
        assert ledger(memory).turns == {}
        assert SUMMARY_TOOL not in {*memory.report().tools, *memory.view().tools}


async def test_each_step_is_one_stream_event(memory: ToolMemory, shell: str, way: str) -> None:
    teach(memory)
    app = app_of(shell, memory, HelpDesk({"Zoe": "password"}), follower())
    told = await app.events(SYMPTOM.format("Zoe"), way, "sit")
    assert len(told) == 3
    assert told[0]["suggestions"][0]["tool"] == "read_logs"
    assert [each["tool"] for each in told[1]["suggestions"]] == ["reset_password", "restart_router"]
    assert (told[1]["recalled"], told[1]["missing"]) == (False, "")
    json.dumps(told)


async def test_a_skipped_step_asks_for_no_advice(shell: str, way: str) -> None:
    desk = Desk()
    with ToolMemory.ephemeral(tools=desk.tools, methods=default_methods(SIT(SITPolicy()))) as memory:
        for i in range(30):
            memory.finish(history(i), thread_id=f"warm-{i}", success=True)
        app = app_of(shell, memory, desk, desk_script, shortcut=EAGER)
        by_node = [event["node"] for event in await app.events(request("Zoe"), way)]
        asked = len(app.model.calls)
        assert len(desk.done) == 3
        assert asked < 4
        assert by_node.count("inertia") == 4
        assert by_node.count("sit") == asked == ledger(memory).figures["sit"]["shown"]
        assert ledger(memory).turns == {}
        assert memory.report().skipped == 4 - asked


async def test_a_summary_call_is_no_turn_of_the_shortcuts_record(shell: str, way: str) -> None:
    """The model asks the tool first: its turn is still one turn, and none is left open."""
    with ToolMemory.ephemeral() as memory:
        desk = HelpDesk({"Zoe": "password"})
        app = app_of(shell, memory, desk, follower(asks=True), asks=True, shortcut=EAGER)
        await app.ask(SYMPTOM.format("Zoe"), way)
        assert len(app.model.calls) == 5
        assert memory.report().turns == 4
        assert inertia(memory).open_turns == {}


async def test_each_user_has_summaries_of_their_own(shell: str, way: str) -> None:
    with ToolMemory.ephemeral(
        tools=SCHEMAS, methods=default_methods(SIT(SITPolicy())), namespace=("toolmem", "{user_id}")
    ) as memory:
        teach(memory, summaries=True, user_id="ann")
        for user, expected in (("ann", True), ("bob", False)):
            app = app_of(shell, memory, HelpDesk({"Zoe": "password"}), follower(asks=True), asks=True)
            await app.ask(SYMPTOM.format("Zoe"), way, thread=user, user_id=user)
            said = "".join(m.text for call in app.model.calls for m in call.messages)
            assert ('A past state that led to it: "Customer' in said) is expected


async def test_without_a_user_the_app_goes_on(shell: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    with ToolMemory.ephemeral(tools=SCHEMAS, namespace=("toolmem", "{user_id}")) as memory:
        app = app_of(shell, memory, HelpDesk({"Zoe": "router"}), follower(asks=True), asks=True)
        state = await app.ask(SYMPTOM.format("Zoe"), way)
        assert state["messages"][-1].text == "It works again."
        assert {*app.hints()} == {""}
        [answer] = answers(state)
        assert "NamespaceError" in answer.text
        assert answer.status == "success"
        assert memory.report().turns == 0
        logged = [r.getMessage().split(" ")[0] for r in caplog.records if r.levelno >= logging.ERROR]
        assert len({*logged}) == 3  # the step, the tool and the recorder
        assert len(logged) <= 4  # once for each place in their code


async def test_a_bug_inside_stops_nobody(
    memory: ToolMemory, shell: str, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory.sit, "advise", lambda *_, **__: 1 / 0)
    app = app_of(shell, memory, HelpDesk({"Zoe": "password"}), follower(asks=True), asks=True)
    state = await app.ask(SYMPTOM.format("Zoe"), way)
    assert state["messages"][-1].text == "It works again."
    [answer] = answers(state)
    assert "ZeroDivisionError" in answer.text
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 2


async def test_a_recall_that_fails_leaves_the_rest(
    memory: ToolMemory, shell: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    teach(memory)
    with OpenAIStubServer(reply=lambda request: "Hello.", errors=[400] * 50) as server:
        model = make_chat_model(server, max_retries=0)
        auto = SITPolicy(recall="auto")
        app = app_of(shell, memory, HelpDesk({"Zoe": "router"}), follower(), policy=auto, model=model)
        await app.ask(SYMPTOM.format("Zoe"), way)
        await model.root_async_client.close()
    assert all(app.hints())
    assert advised(app.model.calls[1].messages)[0] == "restart_router"
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1
