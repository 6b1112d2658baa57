"""Episodes that are held out: real apps without the memory's say, and what the report makes of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from desk import EAGER, NAMES, Desk, build, request, script, thread
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from trained import knowing_desk
from typer.testing import CliRunner

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.cli.app import app
from langgraph_toolmem.core.trials import HELD_OUT, Episode
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.report.report import compare
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.hints import FRAME

pytestmark = pytest.mark.usefixtures("nothing_failed")
THREADS = 16
CALLS = 4
"""Model calls of a request without the memory."""


def told(number: int) -> dict[str, Any]:
    return {"messages": [HumanMessage(request(NAMES[number % len(NAMES)]), id=f"m{number}")]}


def drawn(memory: ToolMemory) -> set[int]:
    found = {number: told(number)["messages"] for number in range(THREADS)}
    return {n for n, asked in found.items() if memory.core.holdout.draws(memory.core.read(asked, str(n)).digest)}


def memory_at(folder: Path | None, share: float = 0.5) -> ToolMemory:
    return ToolMemory(folder, tools=Desk().tools, holdout=share)


@pytest.mark.parametrize("way", ["async", "graph"])
def test_held_out_episodes_run_as_without_the_memory_and_are_learned(way):
    with knowing_desk(24, memory_at, "half of the episodes held out") as memory:
        model = ScriptedChatModel(script=script)
        if way == "graph":
            graph, model = build(memory, Desk().tools, model, policy=EAGER, checkpointer=InMemorySaver())
        else:
            inside = tool_memory_middleware(memory, shortcut=EAGER, suggest=True, recall=True, planning=True)
            graph = create_agent(model, Desk().tools, middleware=inside, checkpointer=InMemorySaver())
        held, took, learned = drawn(memory), dict[int, int](), memory.core.counter("turns")
        assert 3 < len(held) < 13
        reasons: set[str] = set()
        for number in range(THREADS):
            before = len(model.calls)
            if way == "async":
                asyncio.run(graph.ainvoke(told(number), thread(number)))
            else:
                for _, event in graph.stream(told(number), thread(number), stream_mode=["custom"]):
                    reasons |= {event["toolmem"].get("reason", "")} if number in held else set()
            took[number] = len(model.calls) - before
            shown = any(FRAME in str(message.content) for call in model.calls[before:] for message in call.messages)
            assert not (shown and number in held)
            memory.feedback(str(number), score=float(number not in held))
        assert {took[number] for number in held} == {CALLS}
        assert sum(took[number] for number in took if number not in held) < 3 * (THREADS - len(held))
        assert (HELD_OUT in " ".join(reasons)) == (way != "async")
        assert memory.core.counter("turns") - learned == THREADS * CALLS
        report = memory.report().holdout
        assert report is not None
        assert (report.memory.episodes, report.held_out.episodes) == (THREADS - len(held), len(held))
        assert (report.held_out.model_calls, report.held_out.judged, report.held_out.good) == (CALLS, len(held), 0)
        assert report.memory.model_calls is not None
        assert report.memory.model_calls < CALLS
        assert report.memory.good == report.memory.judged > 0


def test_whoever_draws_draws_the_same_and_an_episode_stays_what_it_was(tmp_path):
    with memory_at(tmp_path / "one") as one, memory_at(tmp_path / "two") as two, memory_at(None, 0.1) as few:
        assert drawn(one) == drawn(two) > drawn(few)
        begun = {n: one.core.held_out(told(n)["messages"], str(n)) for n in range(THREADS)}
        assert {n for n in begun if begun[n]} == drawn(one)
    with memory_at(tmp_path / "one", 0.01) as later:  # the share is changed while episodes are under way
        assert {n: later.core.held_out(told(n)["messages"], str(n)) for n in begun} == begun
        new = [later.core.held_out(told(n)["messages"], f"new {n}") for n in range(THREADS)]
        assert sum(new) <= 2
    printed = CliRunner().invoke(app, ["report", "--memory", str(tmp_path / "one"), "--json"])
    figures = json.loads(printed.stdout)["holdout"]
    assert figures["memory"]["episodes"] + figures["held_out"]["episodes"] == 2 * THREADS


def test_a_forgotten_users_episodes_are_compared_no_more():
    with ToolMemory.ephemeral(holdout=0.5, namespace=("toolmem", "{user_id}")) as memory:
        history = [*told(0)["messages"], {"role": "assistant", "content": "Done."}]
        memory.core.held_out(history[:1], "t")
        memory.finish(history, thread_id="t", user_id="ann", success=True)
        assert len(list(memory.core.holdout.episodes())) == 1
        memory.forget(user_id="ann")
        assert list(memory.core.holdout.episodes()) == []


def test_what_has_no_usage_or_no_verdict_is_left_out():
    episodes = [Episode(held, 3 + held, 0, good) for held in (False, True) for good in (1.0, None, 0.0)]
    report = compare([*episodes, Episode(True, 0, 0, None)])
    assert (report.held_out.episodes, report.held_out.judged, report.held_out.model_calls) == (4, 2, 4.0)
    assert (report.memory.model_calls, report.memory.tokens, report.held_out.tokens) == (3.0, None, None)
