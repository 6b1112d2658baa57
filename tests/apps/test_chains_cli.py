"""`toolmem graph` on a memory on disk, and the example with many tools."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from crowd import DESK, crowded
from desk import Desk, warm
from typer.testing import CliRunner, Result

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.cli import app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "memory"
    with ToolMemory(path, tools=crowded(Desk())) as memory:
        warm(memory, 10)
    return path


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(app, ["graph", *map(str, arguments)], env={"COLUMNS": "160"})


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_it_shows_who_gives_what_and_why_and_writes_nothing(folder: Path) -> None:
    before = files(folder)
    out = run("--memory", folder).stdout
    assert re.search(r"^33 tools, \d+ parameters \(2 that one tool gives and another takes\)", out)
    assert re.search(r"add_note\W+order_id\W+latest_order\W+order_id\W+0\.\d\d", out)
    assert "order id: 1 inputs of 1 tools, 1 outputs of 1 tools" in out
    assert "  same words: add_note.order_id" in out
    assert "What pruning would take out first (dry run, nothing is taken out)" in out
    assert "\nPlan\n" not in out
    assert "Parameters that several tools share" not in run("--memory", folder, "--clusters", 0).stdout
    assert "What pruning" not in run("--memory", folder, "--prune", 0).stdout
    assert files(folder) == before


def test_a_plan_is_a_tree(folder: Path) -> None:
    out = run("--memory", folder, "Add a note to the order").stdout
    assert "\nadd_note\n  order_id <- order_id of latest_order\n" in out
    assert "latest_order\n    customer_id <- customer_id of find_customer\n" in out
    assert "  find_customer.name: the user says it" in out
    out = run("--memory", folder, "--target", "add_note", "--known", "customer_id, note").stdout
    assert "\n    customer_id <- customer_id\n  note <- note\n" in out
    assert "No tool fits that." in run("--memory", folder, "chromodynamics").stdout


def test_json_has_all_of_it(folder: Path) -> None:
    answer = json.loads(run("--memory", folder, "--target", "add_note", "--json", "--prune", 1).stdout)
    assert answer["tools"] == 33
    assert [link["producer"] for link in answer["links"] if link["consumer"] == "add_note"] == ["latest_order"]
    assert {each["label"] for each in answer["clusters"]} == {"customer id", "order id"}
    assert [step["tool"] for step in answer["plan"]["chains"][0]["steps"]] == DESK
    assert [each["gone"] for each in answer["prune"]] == [False]
    assert json.loads(run("--memory", folder, "--json").stdout)["plan"] is None


def test_graphml_can_be_read_by_others(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "graph.graphml"
    assert run("--memory", folder, "--graphml", file).exit_code == 0
    drawn = nx.read_graphml(file, force_multigraph=True)
    assert drawn.nodes["api:add_note"]["kind"] == "api"
    assert {edge["kind"] for _, _, edge in drawn.edges(data=True)} >= {"input", "output", "follows"}


def test_tools_of_a_file_come_on_top(folder: Path, tmp_path: Path) -> None:
    odd = {"name": "bell\x07", "description": "Rings.", "parameters": {"type": "object", "properties": {}}}
    schema = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
    more = [{"name": "cancel_order", "description": "Cancel.", "parameters": schema}, odd]
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(more), encoding="utf-8")
    found = run("--memory", folder, "--tools", file, "--target", "cancel_order")
    assert "35 tools" in found.stdout
    assert "\ncancel_order\n  order_id <- order_id of latest_order\n" in found.stdout
    drawn = tmp_path / "odd.graphml"
    assert run("--memory", folder, "--tools", file, "--graphml", drawn).exit_code == 0
    assert "api:bell\ufffd" in nx.read_graphml(drawn, force_multigraph=True)


def test_a_memory_that_never_saw_schemas_goes_by_calls(tmp_path: Path) -> None:
    with ToolMemory(tmp_path / "m") as memory:
        warm(memory, 5)
    out = run("--memory", tmp_path / "m", "--target", "add_note").stdout
    assert "3 tools" in out
    assert "\nadd_note\n" in out
    with ToolMemory(tmp_path / "empty"):
        pass
    assert "0 tools, 0 parameters" in run("--memory", tmp_path / "empty").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a request", "--target", "add_note"], "not both"),
        (["--json", "--graphml", "x.graphml"], "choose one"),
        (["--target", "nobody"], "no tool 'nobody'"),
        (["--tools", "/nowhere.json"], "cannot be read"),
    ],
    ids=["both", "forms", "target", "tools"],
)
def test_bad_input_is_one_line(folder: Path, arguments: list[str], said: str) -> None:
    result = run("--memory", folder, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_memory_is_told(tmp_path: Path) -> None:
    result = run("--memory", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "there is no memory at" in result.stderr


def test_an_agent_writing_to_it_is_not_disturbed(folder: Path) -> None:
    with ToolMemory(folder, tools=crowded(Desk())) as memory:
        assert run("--memory", folder, "Add a note to the order").exit_code == 0
        warm(memory, 1, first=5000)


def test_the_example_offers_chains_and_lets_the_model_ask(capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module("examples.many_tools")
    module.main()
    out = capsys.readouterr().out
    first, second = out.split("\n> ")[1:]
    assert "latest_order: gives order_id to refund" in first
    assert "find_customer: gives customer_id to latest_order on the way to refund" in first
    assert "chains: 3 of 303 tools" in first
    assert "The order of Ann is refunded." in first
    assert "chains: 0 of 303 tools" in second
    assert 'finance_archive_warehouse({"warehouse_id": "W-7"})' in second
    read, whole = (int(number.replace(",", "")) for number in re.findall(r"([\d,]+)(?: tokens|\.\n)", out)[-2:])
    assert read * 5 < whole
