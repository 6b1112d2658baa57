"""Every example runs, and what it prints is true: calls were skipped, and the same calls were executed."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph.state import CompiledStateGraph
from places import ROOT

from examples import desk, several_users

GRAPHS: dict[str, Any] = json.loads((ROOT / "langgraph.json").read_text(encoding="utf-8"))["graphs"]
Calls = list[tuple[str, dict[str, Any]]]
BY_MEMORY = "<- memory, no model call"
BY_MODEL = "<- model"


@pytest.fixture(autouse=True)
def _nothing_done() -> Iterator[None]:
    desk.DONE.clear()
    yield
    desk.DONE.clear()


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What an example prints."""
    module = importlib.import_module(f"examples.{name}")
    desk.DONE.clear()
    capsys.readouterr()
    module.main()
    return capsys.readouterr().out


def without_memory(requests: Sequence[str]) -> Calls:
    """What the tools do for these requests when the model is always asked."""
    before = len(desk.DONE)
    for text in requests:
        desk.past_run(text)
    calls = desk.DONE[before:]
    del desk.DONE[before:]
    return calls


def called(text: str) -> list[str]:
    """The lines of an output that show calls."""
    return [line.strip() for line in text.splitlines() if "  <- " in line]


# --- the three audiences' agents ---


@pytest.mark.parametrize("name", ["agent", pytest.param("state_graph", marks=pytest.mark.long)])
def test_an_agent_asks_the_model_less_often_and_does_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"examples.{name}")
    out = printed(name, capsys)
    assert without_memory(module.REQUESTS) == desk.DONE
    assert len(desk.DONE) == 280
    found = re.search(r"called (\d+) times, not (\d+) times", out)
    assert found is not None
    model_calls, turns = int(found[1]), int(found[2])
    assert turns == 400
    assert model_calls <= 280
    first, last = out.split("\n> ")[1:]
    assert [line.endswith(BY_MODEL) for line in called(first)] == [True, True]
    assert [line.endswith(BY_MEMORY) for line in called(last)] == [True, True, False]


# --- logs ---


@pytest.mark.long
def test_replay_calls_nothing_and_says_what_would_have_been_saved(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("replay_logs", capsys)
    assert desk.DONE == []
    assert "120 runs, 400 model turns" in out
    found = re.search(r"(\d+) could have been skipped, 0 would have been skipped with another call", out)
    assert found is not None
    by_tool = re.findall(r"(\w+): (\d+) of (\d+) calls", out)
    assert [(name, int(of)) for name, _, of in by_tool] == [
        ("find_customer", 120),
        ("latest_order", 120),
        ("refund", 40),
    ]
    assert sum(int(right) for _, right, _ in by_tool) == int(found[1]) > 150
    assert "120 times: find_customer -> latest_order\n" in out


# --- users ---


def test_users_share_what_follows_what_and_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    anns, bobs, forgotten = printed("several_users", capsys).split("\n> ")[1:]
    ann, bob = (f"redirect(address={address!r})" for address in several_users.ADDRESSES.values())
    assert called(anns) == [f"open_parcels()  {BY_MEMORY}", f"{ann}  {BY_MEMORY}"]
    assert called(bobs) == [f"open_parcels()  {BY_MEMORY}", f"{bob}  {BY_MODEL}"]
    assert called(forgotten) == [f"open_parcels()  {BY_MODEL}", f"{ann}  {BY_MODEL}"]
    removed = re.search(r"Forgetting Ann removes (\d+) pieces", bobs)
    assert removed is not None
    assert int(removed[1]) >= 60


# --- remembering ---


def test_the_second_request_of_a_kind_has_the_critique_of_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("remembering", capsys)
    before, after = out.split("What the model was shown")[0].split("\n> ")[1:]
    assert called(before) == [f"book_call(name='Ann', hour_utc=9)  {BY_MODEL}"]
    assert called(after) == [f"time_zone(name='Ben')  {BY_MODEL}", f"book_call(name='Ben', hour_utc=7)  {BY_MODEL}"]


# --- human approval ---


@pytest.mark.long
def test_a_shortcut_to_a_gated_tool_waits_for_the_human(capsys: pytest.CaptureFixture[str]) -> None:
    parts = printed("human_approval", capsys).split("\n--- ")[1:]
    assert [re.search(r"who says: (\w+)", part)[1] for part in parts] == ["approve", "edit", "reject"]  # type: ignore[index]
    for part in parts:
        assert [line.endswith(BY_MEMORY) for line in called(part)] == [False, False, True], part
    [(_, args)] = without_memory(["Refund the order of Zoe"])[2:]
    assert all(part.startswith(f"refund({args}) waits for a human") for part in parts)
    approved, edited, rejected = parts
    assert f"executed: [{args}]" in approved
    assert f"executed: [{ {**args, 'amount': 5} }]" in edited
    assert "executed: nothing" in rejected
    learned = [re.search(r"learned: (\d+) executed refund\(s\), (\d+) wrong", part) for part in parts]
    assert [found and found.groups() for found in learned] == [("1", "0"), ("1", "1"), ("0", "1")]


# --- MCP ---


def test_look_ups_of_an_mcp_server_are_skipped_and_deleting_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    out = printed("mcp_tools", capfd)
    found = re.search(r"called (\d+) times, not (\d+) times", out)
    assert found is not None
    assert [line.endswith(BY_MEMORY) for line in called(out)] == [True, True, True, False]
    assert called(out)[-1].startswith("delete_ticket(")
    assert re.search(r"delete_ticket +49 calls +0 skipped", out)


# --- Studio ---


ZOES = "Where is the order of Zoe?"


@pytest.mark.parametrize("name", GRAPHS)
async def test_graphs_of_langgraph_json_compile_and_act_at_once(name: str) -> None:
    path, _, attribute = GRAPHS[name]["path"].partition(":")
    found = getattr(importlib.import_module(f"examples.{Path(path).stem}"), attribute)
    graph = found if isinstance(found, CompiledStateGraph) else found()
    assert isinstance(graph, CompiledStateGraph)
    assert graph.checkpointer is None, "langgraph dev refuses a graph with a checkpointer of its own"
    state = await graph.ainvoke({"messages": [("user", ZOES)]})
    answers = [m for m in state["messages"] if isinstance(m, AIMessage)]
    assert ["toolmem" in m.additional_kwargs for m in answers] == [name != "human_approval"] * 2 + [False]
    assert without_memory([ZOES]) == desk.DONE


# --- the folder ---


def test_the_table_names_every_example() -> None:
    table = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    names = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"__init__"}
    assert set(re.findall(r"\]\((\w+)\.py\)", table)) == names
