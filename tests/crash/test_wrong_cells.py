"""Snapshots of a right checksum whose tables hold what no release writes: they cost the rows that are wrong."""

from __future__ import annotations

import copy
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import desk
import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage

from langgraph_toolmem import Atoms, ToolMemory, default_methods
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.cli.health import examine
from langgraph_toolmem.core.ledger import Shown
from langgraph_toolmem.core.trials import EpisodeSpent, HintsDrawn
from langgraph_toolmem.graph.tool_graph import Table
from langgraph_toolmem.inertia.cases import CaseSeen
from langgraph_toolmem.inertia.confidence import COLUMNS, Acted, ExamplesSeen
from langgraph_toolmem.inertia.context import ContextHeldOut, ContextMade
from langgraph_toolmem.inertia.corrections import CallMade, SourceJudged
from langgraph_toolmem.inertia.novelty import RequestCompared
from langgraph_toolmem.inertia.record import TurnClosed, TurnOpened
from langgraph_toolmem.inertia.review import SHADOW_CHECK, ChangeMade, CheckEnded, CheckOpened
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.navigator.evidence import LinkWeightsSet, PrunedTool, ToolsSearched
from langgraph_toolmem.stores import snapshot
from langgraph_toolmem.stores.events import SNAPSHOT
from langgraph_toolmem.testing import ScriptedChatModel

DAY: Final = 86_400.0
SHARE: Final = 0.15
"""Share of the cells of a table that are changed."""
RARE: Final = [
    Acted(3, 0, 0.2, 0.0),
    CallMade("request", "find_customer", ["c"], ["r"], [0.0] * len(COLUMNS), {"name": ["s", "d"]}, 0, "run", None),
    CaseSeen(3, "turn", "pair", 0, 1, 0.9, [".aaaaaaaabbbbbbbb"], {"aaaaaaaa": 3.0}, "run", None),
    ChangeMade("call", "run", None, 500_000, "thread", "add_note", "{}", "ok", "saved"),
    CheckOpened("open", SHADOW_CHECK, "agent", "run", None, 500_000, "thread", "add_note", ["call"], "{}"),
    CheckOpened("ended", SHADOW_CHECK, "agent", "run", None, 500_000, "thread", "add_note", ["call"], "{}"),
    CheckEnded("ended", 0, "answered"),
    ContextHeldOut("turn", ["call"], 2, None),
    ContextMade(3, 1, 0.2, 0),
    EpisodeSpent("run", 1, 2, 300),
    ExamplesSeen(3, [[[0.5] * len(COLUMNS), 1]], 2),
    HintsDrawn("sit", "run", "add_note", {"a": 1, "b": 0}, 1, 0, None),
    LinkWeightsSet({"add_note": {"latest_order": 0.5}}, 10.0),
    PrunedTool({"add_note": 0}, 10.0),
    RequestCompared(3, "find_customer", 0.2),
    Shown("sit", "run", "turn", {"a": "add_note", "b": None}, None),
    SourceJudged("source", 1, 3),
    ToolsSearched(1, 0, 0, 10, 20),
    TurnClosed("closed"),
    TurnOpened("turn", ["w0"], [["add_note", ["d"], ["A1"], 0.5, [0.0] * len(COLUMNS), 1, 0.1, {}]], 1, None),
]
"""Events that a few runs do not make, so that each part of each table has a row."""
WAYS: Final[dict[str, Callable[[Any], Any]]] = {
    "another type": lambda value: [1] if isinstance(value, str) else "x",
    "nothing": lambda _: None,
    "nested": lambda value: {"a": [[value]]},
    "NaN": lambda _: float("nan"),
    "infinite": lambda _: float("inf"),
    "negative": lambda value: -7 if isinstance(value, (int, float)) else {},
    "huge": lambda value: 2**70 if isinstance(value, (int, float)) else "x" * 10_000,
    "bytes": lambda _: b"\xff",
}


def opened(folder: Path) -> tuple[ToolMemory, Any]:
    """A memory with all methods, and an agent with all of its features."""
    tools = desk.Desk().tools
    how: Any = {"namespace": ("toolmem", "{user_id}"), "holdout": 0.1, "retention": 900 * DAY}
    memory = ToolMemory(folder, tools, methods=default_methods(Atoms(keep=True)), **how)
    features: Any = dict.fromkeys(("recall", "suggest", "planning", "reflect", "preferences", "context"), True)
    middleware = tool_memory_middleware(memory, outer=[], shortcut=desk.EAGER, loop_guard=True, **features)
    return memory, create_agent(ScriptedChatModel(script=desk.script), tools, middleware=middleware)


def ask(agent: Any, number: int) -> None:
    user = HumanMessage(desk.request(desk.NAMES[number % len(desk.NAMES)]), id=f"user-{number}")
    config = {"configurable": {"thread_id": f"thread-{number}", "user_id": "ann"}}
    answer = agent.invoke({"messages": [user]}, config)["messages"][-1]
    assert answer.text.endswith("is checked.")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "memory"
    memory, agent = opened(folder)
    with memory:
        for number in range(8):
            ask(agent, number)
        with memory.core.lock:
            memory.core.apply(None, RARE)
        memory.flush()
        memory.core.store.snapshot()
    return folder


def tables() -> list[str]:
    with opened_in_ram() as memory:
        return [table.name for table in memory.core.graph.tables]


def opened_in_ram() -> ToolMemory:
    return ToolMemory.ephemeral(methods=default_methods(Atoms(keep=True)), holdout=0.1, retention=900 * DAY)


def state_of(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = snapshot.read_file(folder / SNAPSHOT)
    return state


def changed(value: Any, chance: random.Random) -> Any:
    """Return plain values with some of the cells changed, and some missing."""
    if isinstance(value, dict):
        return {key: _cell(item, chance) for key, item in value.items() if chance.random() > SHARE / 5}
    if isinstance(value, list):
        return [_cell(item, chance) for item in value if chance.random() > SHARE / 5]
    return value


def _cell(value: Any, chance: random.Random) -> Any:
    if chance.random() < SHARE:
        return chance.choice([*WAYS.values()])(value)
    return changed(value, chance)


def test_every_part_of_every_table_has_a_shape_and_is_tried(template: Path) -> None:
    state = state_of(template)["state"]["tables"]
    with opened_in_ram() as memory:
        kinds: list[type[Table]] = [type(table) for table in memory.core.graph.tables]
    assert {kind.name for kind in kinds} == state.keys()
    for kind in kinds:
        assert kind.parts.keys() == state[kind.name].keys()
        for part, content in state[kind.name].items():
            assert content not in (None, {}, []), f"{kind.name}.{part}"
            assert kind.parts[part].fit([content]), f"{kind.name}.{part}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
@pytest.mark.parametrize("name", tables())
def test_wrong_cells_in_a_table_raise_nowhere(
    template: Path, tmp_path: Path, name: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "memory"
    shutil.copytree(template, folder)
    content = state_of(folder)
    chance = random.Random(f"{name} {seed}")
    content["state"]["tables"][name] = changed(content["state"]["tables"][name], chance)
    (folder / SNAPSHOT).write_bytes(snapshot.dumps(content))
    # Ids of messages and hours differ in each run, so a seed alone does not give the same cells again.
    shutil.copy(folder / SNAPSHOT, tmp_path / "wrong cells.pickle")
    with caplog.at_level(logging.WARNING):
        memory, agent = opened(folder)
        ask(agent, 50)
        ask(agent, 3)
        report = memory.report()
        assert str(report)
        assert memory.flush()
        memory.core.store.snapshot()
        memory.close()
    named = [problem for problem in report.problems if "do not have the shape of their table" in problem]
    logged = {record.getMessage() for record in caplog.records}
    placement = {message for message in logged if message.startswith("It is unknown where ScriptedChatModel takes")}
    assert logged - placement <= {*named}, "something failed and was logged"
    again, _ = opened(folder)
    with again:
        assert again.report().problems == ()
        assert again.flush()


def test_wrong_rows_are_counted_and_named_without_their_text(
    template: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "memory"
    shutil.copytree(template, folder)
    content = state_of(folder)
    held = content["state"]["tables"]["holdout"]["episodes"]
    right = copy.deepcopy(held)
    held |= {"Ann Smith": "what Ann said", "Bo": [1, "2", 3], "Cy": [1, 2]}
    (folder / SNAPSHOT).write_bytes(snapshot.dumps(content))
    names = [f"holdout.episodes {digest(key)[:8]}" for key in ("Ann Smith", "Bo", "Cy")]
    sentence = f"rows of graph.pickle do not have the shape of their table, 3 are left out: {', '.join(names)}"
    assert examine(folder)["problems"] == [sentence]
    with caplog.at_level(logging.WARNING):
        memory, _ = opened(folder)
    with memory:
        assert memory.report().problems == (sentence,)
        assert memory.core.graph.to_state()["tables"]["holdout"]["episodes"] == right
        assert memory.flush()
    assert [record.getMessage() for record in caplog.records] == [sentence]
