"""Planning in graphs of nodes and in agents, sync and async."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from desk import EAGER, Desk, expected, request, script
from planned import HEAD, OTHERS, OtherDesk, obedient, taught
from shells import WAYS, App, agent_of, graph_of

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.nodes import SGAPlanner
from langgraph_toolmem.turn.hints import PLANNING

pytestmark = [
    pytest.mark.usefixtures("nothing_failed"),
    pytest.mark.parametrize("shell", ["graph", "agent"]),
    pytest.mark.parametrize("way", WAYS),
]


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with taught() as made:
        yield made


def app_of(shell: str, memory: ToolMemory, desk: Desk, says: Any = obedient, *, shortcut: Any = False) -> App:
    if shell == "agent":
        return agent_of(memory, desk, says, planning=True, shortcut=shortcut)
    return graph_of(memory, desk, says, SGAPlanner(memory, tools=desk.tools), shortcut=shortcut)


@pytest.mark.parametrize("kind", [Desk, OtherDesk])
async def test_a_model_that_knows_nothing_but_its_hints_does_the_task(
    memory: ToolMemory, shell: str, way: str, kind: type[Desk]
) -> None:
    app = app_of(shell, memory, kind())
    state = await app.ask(request("Zoe"), way)
    names = OTHERS if kind is OtherDesk else {}
    assert app.desk.done == [(names.get(name, name), args) for name, args in expected("Zoe")]
    assert len(set(app.hints())) == 4
    assert not any(name in text for text in app.hints() for name in names)
    assert HEAD not in "".join(m.text for m in state["messages"])


async def test_each_decision_is_one_stream_event(memory: ToolMemory, shell: str, way: str) -> None:
    told = await app_of(shell, memory, OtherDesk()).events(request("Zoe"), way, "sga")
    assert len(told) == 4
    assert [OTHERS[each["candidates"][0]["learned_as"]] for each in told[:3]] == [*OTHERS.values()]
    second = told[1]
    best = second["candidates"][0]
    assert (best["tool"], best["learned_as"]) == ("recent_purchase", "latest_order")
    assert (best["feasibility"], best["why_not"]) == (1.0, "")
    assert set(best["filled"]) == {"customer_id"}
    assert best["likeness"] >= 0.5
    assert (second["planned_by"], second["model_calls"]) == ("messages", 0)
    assert "CUSTOMER_ID" in second["slots"]
    assert "Zoe" not in second["state"] + "".join(second["goals"])
    json.dumps(told)
    third = (await app_of(shell, memory, Desk()).events(request("Zoe"), way, "sga"))[2]
    assert [each["why_not"] for each in third["candidates"]] == ["", "called already", "too unlike"]
    assert third["shown"] == 1


async def test_a_skipped_step_plans_nothing(shell: str, way: str) -> None:
    with taught(30) as memory:
        app = app_of(shell, memory, Desk(), script, shortcut=EAGER)
        told = await app.events(request("Zoe"), way, "sga")
        assert app.desk.done == expected("Zoe")
        assert len(told) == len(app.model.calls) < 4


async def test_a_memory_that_fails_stops_nobody(
    memory: ToolMemory, caplog: Any, monkeypatch: Any, shell: str, way: str
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a secret")

    monkeypatch.setattr(memory.atoms, "search", broken)
    with caplog.at_level(logging.INFO, logger="langgraph_toolmem"):
        app = app_of(shell, memory, Desk(), script)
        await app.ask(request("Zoe"), way)
    assert app.desk.done == expected("Zoe")
    assert app.hints() == [""] * 4
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "secret" not in errors[0]


async def test_what_is_known_is_kept_apart_by_thread(memory: ToolMemory, shell: str, way: str) -> None:
    app = app_of(shell, memory, Desk())
    for name in ("Zoe", "Ida"):
        await app.ask(request(name), way, thread=name)
    assert [app.state(name)[PLANNING]["slots"]["NAME"] for name in ("Zoe", "Ida")] == [["Zoe"], ["Ida"]]
