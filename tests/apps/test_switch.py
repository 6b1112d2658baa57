"""``TOOLMEM`` in the environment switches an app at run time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from desk import EAGER, NAMES, Desk, assert_answered, build, request, run, script, shortcuts, warm
from langgraph.checkpoint.memory import InMemorySaver
from shells import agent_of

from langgraph_toolmem import Inertia, ToolMemory, default_methods


def in_a_graph(memory: ToolMemory, desk: Desk) -> Any:
    graph, model = build(memory, desk.tools, policy=EAGER, checkpointer=InMemorySaver())
    return lambda number: run(graph, number)["messages"], model


def in_an_agent(memory: ToolMemory, desk: Desk) -> Any:
    app = agent_of(memory, desk, script, shortcut=True, recall=True, suggest=True, prefetch=True)
    return lambda number: asyncio.run(app.ask(request(NAMES[number]), thread=str(number)))["messages"], app.model


@pytest.mark.parametrize("made", [in_a_graph, in_an_agent])
def test_it_is_switched_while_it_runs(desk: Desk, monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    with ToolMemory.ephemeral(tools=desk.tools, methods=default_methods(Inertia(EAGER))) as memory:
        warm(memory, 14)
        ask, model = made(memory, desk)
        monkeypatch.setenv("TOOLMEM", "off")
        assert memory.flush()
        before = memory.report().to_dict()
        messages = ask(0)
        assert_answered(messages)
        assert len(model.calls) == 4
        assert not shortcuts(messages)
        assert memory.report().to_dict() == before, "nothing is learned"

        monkeypatch.setenv("TOOLMEM", "shadow")
        messages = ask(1)
        assert_answered(messages)
        assert len(model.calls) == 8
        assert not shortcuts(messages)
        said = {message.text for message in messages}
        assert all(message.text in said for call in model.calls[4:] for message in call.messages), "nothing is shown"
        assert memory.report().turns == 60
        assert memory.report().right > 0, "it is compared with what the model did"

        monkeypatch.delenv("TOOLMEM")
        assert len(shortcuts(ask(2))) == 3
