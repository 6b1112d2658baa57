"""The benchmark of atoms on a small set of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from histories import call, schema, user

from benchmarks import sga as bench
from benchmarks.sga import load
from langgraph_toolmem.graph.state import RunState

NAMES = ("Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gita", "Hugo")
KINDS = {
    "refund": ("find_order", "refund_order", "Refund what {name} bought, it is order #W{n}A"),
    "track": ("find_order", "track_parcel", "Where is the parcel of {name}? It is order #W{n}A"),
    "greet": ("find_person", "send_card", "Congratulate colleague {name} on the birthday"),
}
ABOUT = {
    "find_order": "Look an order up.", "refund_order": "Give the money back for an order.",
    "track_parcel": "Tell where a parcel is.", "find_person": "Look a colleague up.", "send_card": "Send a card.",
}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    tools = [schema(name, "key") | {"description": about} for name, about in ABOUT.items()]
    (folder / "tools.json").write_text(json.dumps(tools), encoding="utf-8")
    lines: list[dict[str, Any]] = []
    for number, name in enumerate(NAMES):
        for kind, (first, second, text) in KINDS.items():
            request = text.format(name=name, n=100 + number)
            key = name if kind == "greet" else f"#W{100 + number}A"
            messages = [user(request), *call(first, {"key": key}, {"id": f"row-{number}"}), *call(second, {"key": key})]
            lines.append({"id": f"{kind}{number}", "task": request, "success": number > 0, "messages": messages})
    (folder / "trajectories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return tmp_path


def test_only_successful_runs_are_read(data: Path):
    loaded = load(data / "shop")
    assert loaded is not None
    assert len(loaded[0]) == 21
    assert load(data / "absent") is None


def test_runs_whose_right_answer_is_to_do_nothing_are_left_out(tmp_path: Path):
    for name, lines in {
        "workbench_gold": [
            {"id": "g1", "success": True, "messages": [user("x"), *call("a")]},
            {"id": "g2", "success": True, "messages": [user("y")]},
        ],
        "workbench_gpt4": [
            {"id": f"r{gold}", "gold_id": gold, "success": True, "messages": [user("x"), *call("a")]}
            for gold in ("g1", "g2")
        ],
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "tools.json").write_text(json.dumps([schema("a")]), encoding="utf-8")
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / name / "trajectories.jsonl").write_text(text, encoding="utf-8")
    loaded = load(tmp_path / "workbench_gpt4")
    assert loaded is not None
    assert [run.thread_id for run in loaded[0]] == ["rg1"]


def test_renamed_tools_keep_all_but_their_names(data: Path):
    loaded = load(data / "shop")
    assert loaded is not None
    runs, tools = bench.renamed(bench.read(loaded[0]), loaded[1])
    assert {spec.description for spec in tools.values()} == set(ABOUT.values())
    assert not set(tools) & set(ABOUT)
    assert {step.tool for run in runs for step in RunState.of(run).steps} <= set(tools)


# --- what is measured ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", bench.NAMES)
def test_all_methods_answer_and_atoms_do_not_need_the_names(data: Path, names: str):
    hits = bench.work(data / "shop", names, 0)
    assert set(hits) == {*bench.METHODS, "right", "wrong"}
    assert hits["hybrid"] == 100.0
    assert hits["trajectory"] > 50.0


def test_the_command(data: Path, capsys: pytest.CaptureFixture[str]):
    file = data / "figures.json"
    arguments = ["--data", str(data), "--sets", "shop", "absent", "--seeds", "1"]
    assert bench.main([*arguments, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "skipped: no recorded runs in absent" in printed
    plain = json.loads(file.read_text(encoding="utf-8"))
    assert {split["names"] for split in plain["splits"]} == set(bench.NAMES)
    assert all(split["hits"]["hybrid"] == 100.0 for split in plain["splits"])
