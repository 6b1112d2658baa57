"""The evidence graph as a whole: records in any order, twice, through storage, from the log; forgetting."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from histories import FAILED, Learner, Message, call, calls, schema, shortcut, user, words
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.graph import tool_graph
from langgraph_toolmem.graph.events import RunSeen
from langgraph_toolmem.graph.tool_graph import OPEN, ToolGraph
from langgraph_toolmem.inertia import record as inertia
from langgraph_toolmem.inertia.record import InertiaEvidence, TurnClosed, TurnOpened
from langgraph_toolmem.stores.snapshot import dumps, loads

TOOLS = [schema("find", "name"), schema("read", "id", "mode"), schema("note", "text")]
NAMES = st.sampled_from(["Ann", "Bo Lee", "#W1234"])


def steps(draw: Any, name: str) -> list[Message]:
    kind = draw(st.sampled_from(["find", "read", "note", "both", "failed", "shortcut"]))
    if kind == "find":
        return call("find", {"name": name}, {"id": f"id-{name}", "all": ["x", "y"]})
    if kind == "read":
        return call("read", {"id": f"id-{name}", "mode": "full"}, "The file of Ann.")
    if kind == "both":
        return calls([("find", {"name": name}, {"id": 1}), ("note", {"text": "hello"}, "ok")])
    if kind == "failed":
        return call("read", {"id": "wrong"}, FAILED)
    return shortcut("find", {"name": name}) if kind == "shortcut" else call("note", {"text": f"for {name}"}, True)


@st.composite
def runs(draw: Any) -> list[list[Message]]:
    made = []
    for _ in range(draw(st.integers(1, 4))):
        parts: list[Message] = []
        for _ in range(draw(st.integers(1, 2))):
            name = draw(NAMES)
            parts.append(user(f"Look up {name} and write it down"))
            for _ in range(draw(st.integers(0, 4))):
                parts += steps(draw, name)
            parts.append(words())
        made.append(parts)
    return made


def learned(made: list[list[Message]]) -> Learner:
    learner = Learner(TOOLS)
    for i, parts in enumerate(made):
        learner.learn(parts, thread_id=f"run{i}", user=f"user{i % 2}")
    return learner


def content(graph: ToolGraph) -> dict[str, Any]:
    """The state without what the order of arrival may change: the order of keys, and a thread's messages, which come in
    records of their own."""
    state = graph.to_state()
    state["tables"].pop("episodes", None)
    seen = state.pop("seen")
    return {**state, "seen": sorted(seen[i : i + 8] for i in range(0, len(seen), 8))}


@given(runs(), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_records_in_any_order_make_the_same_graph(made: list[list[Message]], shuffler: random.Random):
    learner = learned(made)
    records = copy.deepcopy(learner.records)
    shuffler.shuffle(records)
    other = Learner(TOOLS).graph
    for key, record in records:
        assert other.apply(key, record)

    assert content(other) == content(learner.graph)


@given(runs())
@settings(max_examples=20)
def test_a_graph_survives_storage(made: list[list[Message]]):
    graph = learned(made).graph
    again = ToolGraph([InertiaEvidence])
    again.load(loads(dumps(graph.to_state())))

    assert again.to_state() == graph.to_state()
    assert list(again.successors.rows) == list(graph.successors.rows)  # the oldest leave first, so order matters


def test_an_open_turn_counts_until_its_end_is_seen():
    graph = ToolGraph()
    table = graph.register(InertiaEvidence)
    begun = TurnOpened("t1", ["w0\x1f"], [["b", "", ["A1"]]], True, None)
    graph.apply(None, [begun])
    graph.apply(None, [begun])
    assert graph.successors.row("w0\x1f") == {OPEN: [1, 0, 0, 0]}
    assert table.rules.row("A1") == {"": [0, 1]}
    assert graph.counters == {"turns_open": 1, "would_act_open": 1}

    graph.apply(None, [TurnClosed("t1")])
    graph.apply(None, [TurnClosed("t1")])
    assert graph.successors.row("w0\x1f") == {OPEN: [0, 0, 0, 0]}
    assert table.rules.row("A1") == {"": [0, 0]}
    assert graph.counters == {"turns_open": 0, "would_act_open": 0}


def test_open_turns_runs_and_keys_are_bounded(monkeypatch: pytest.MonkeyPatch):
    for module, name in ((inertia, "MAX_OPEN"), (tool_graph, "MAX_RUNS"), (tool_graph, "MAX_SEEN")):
        monkeypatch.setattr(module, name, 3)
    graph = ToolGraph()
    table = graph.register(InertiaEvidence)
    for i in range(5):
        graph.apply(f"{i:016x}", [TurnOpened(f"t{i}", [], [], False, None), RunSeen(f"r{i}", 1, None)])

    assert list(table.open_turns) == ["t2", "t3", "t4"]
    assert list(graph.runs) == ["r2", "r3", "r4"]
    assert [graph.has_seen(f"{i:016x}") for i in range(5)] == [False, False, True, True, True]
