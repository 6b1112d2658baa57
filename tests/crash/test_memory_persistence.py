"""A memory in a folder: reopened, killed, damaged, full. The host runs on in every case."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
from desk import EAGER, Desk, build, call_id, request, run, warm
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem import ConfigurationError, ToolMemory
from langgraph_toolmem.stores.events import SNAPSHOT

ZOE = [HumanMessage(request("Zoe"), id=call_id("zoe"))]


@pytest.mark.parametrize("closed", [True, False])
def test_reopened_its_whole_state_is_the_same(desk: Desk, tmp_path: Path, closed: bool) -> None:
    """From the snapshot, and from the log of a process that was killed."""

    def everything(memory: ToolMemory) -> tuple[Any, ...]:
        return (
            memory.core.graph.to_state(),
            list(memory.core.graph.cases.cases),
            {**vars(memory.core.graph.cases), "_weights": None, "_queries": None},
        )

    memory = ToolMemory(tmp_path / "m", tools=desk.tools)
    graph, _ = build(memory, desk.tools, policy=EAGER, checkpointer=InMemorySaver())
    for i in range(70):  # more than a word's postings hold
        run(graph, i, config={"configurable": {"thread_id": str(i), "user_id": f"user {i % 3}"}})
        if i == 66:
            memory.forget(user_id="user 1")
    memory.inertia.begin_turn(ZOE)
    memory.feedback("12", score=0.0, comment="no")
    assert memory.flush()
    before = copy.deepcopy(everything(memory))
    if closed:
        memory.close()
    else:
        shutil.copytree(tmp_path / "m", tmp_path / "copy")
        memory.close()
    with ToolMemory(tmp_path / ("m" if closed else "copy"), tools=desk.tools) as again:
        assert everything(again) == before


def test_what_is_opened_and_closed_without_learning_is_not_rewritten(desk: Desk, tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=desk.tools) as memory:
        warm(memory, 3)
        memory.core.store.snapshot()
    stamp = (tmp_path / SNAPSHOT).stat()
    with ToolMemory(tmp_path, tools=desk.tools) as memory:
        memory.inertia.predict(ZOE)
    assert (tmp_path / SNAPSHOT).stat().st_mtime_ns == stamp.st_mtime_ns
    assert (tmp_path / SNAPSHOT).stat().st_ino == stamp.st_ino


# --- two graphs in one folder ---


def test_graph_namespaces_are_apart(desk: Desk, tmp_path: Path) -> None:
    with (
        ToolMemory(tmp_path, tools=desk.tools) as one,
        ToolMemory(tmp_path, tools=desk.tools, graph_namespace=("toolmem", "other")) as two,
        ToolMemory(tmp_path, tools=desk.tools, graph_namespace=("toolmem/other",)) as three,
    ):
        warm(one, 14)
        warm(two, 2)
        assert [m.report().turns for m in (one, two, three)] == [56, 8, 0]
        assert one.inertia.predict(ZOE, policy=EAGER)
        assert three.inertia.predict(ZOE, policy=EAGER) is None
    with ToolMemory(tmp_path, tools=desk.tools, graph_namespace=("toolmem", "other")) as two:
        assert two.report().turns == 8


@pytest.mark.parametrize("path", ["~/kept", Path("~/kept"), Path("~") / "kept"])
def test_a_path_may_begin_with_the_home_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | Path
) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.chdir(here)
    with ToolMemory(path, methods=[]) as memory:
        assert memory.core.folder == home / "kept"
    assert (home / "kept").is_dir()
    assert list(here.iterdir()) == []


def test_the_home_of_nobody_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError):
        ToolMemory("~nobody-of-that-name/kept", methods=[])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", ["success", "error"])
def test_calls_made_at_once_are_in_the_snapshot_and_can_be_forgotten(tmp_path: Path, status: str) -> None:
    def looked_up(name: str, *things: str) -> list[Any]:
        calls = [{"name": f"find_{thing}", "args": {"name": name}, "id": f"{name}-{thing}"} for thing in things]
        results = [ToolMessage(f"{name} was found", tool_call_id=call["id"]) for call in calls]
        results[-1].status = status
        return [AIMessage("", tool_calls=calls), *results]

    with ToolMemory(tmp_path) as memory:
        for name in ("Ann", "Ben"):
            run = [HumanMessage(f"Everything about {name}"), *looked_up(name, "person")]
            run += [
                *looked_up(name, "orders", "notes", "tasks"),
                *looked_up(name, "bills", "calls"),
                AIMessage("Here."),
            ]
            memory.finish(run, thread_id=name, success=True)
        assert memory.forget(thread_id="Ben") > 0
        memory.flush()
        assert not memory.report().problems
        view = memory.view()
    assert (tmp_path / "graph.pickle").exists()
    with ToolMemory(tmp_path) as memory:
        assert memory.view() == view
