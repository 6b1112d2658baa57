"""The benchmark of discovery: its figures by hand, and its methods within their budget."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import discovery as bench
from benchmarks import discovery_held_out as held_out
from benchmarks.discovery import Row
from benchmarks.discovery_world import make_office, multi_step
from langgraph_toolmem.atoms.extract import distil
from langgraph_toolmem.offline.discovery import EnvironmentCall


def test_shares_are_of_one_method_and_within_its_calls() -> None:
    rows = [
        Row(0, "a", "k", "tree", True, 20),
        Row(0, "b", "k", "tree", True, 80),
        Row(0, "c", "k", "tree", False, 10),
        Row(0, "a", "k", "random", False, 10),
    ]
    assert bench.within(rows, "tree", 20) == pytest.approx(1 / 3)
    assert bench.within(rows, "tree", 500) == pytest.approx(2 / 3)
    assert bench.within(rows, "random", 500) == 0.0
    assert bench.within(rows, "none", 500) == 0.0


def test_the_tasks_take_several_calls_and_are_not_done_before() -> None:
    tasks = multi_step(7, 12)
    assert len(tasks) == 12
    assert len({task.id for task, _ in tasks}) == 12
    assert not {"thanks", "who_manages"} & {kind for _, kind in tasks}
    world = make_office()
    for task, _ in tasks:
        world.reset(task)
        assert world.success() is False


@pytest.mark.parametrize("method", ["tree", "tree_ucb", "random", "depth_first"])
def test_no_method_makes_more_calls_than_it_may(method: str) -> None:
    made = bench.Bench(steps=15)
    for task, kind in multi_step(7, 2):
        row = getattr(made, method)(task, kind, 7)
        assert 0 < row.steps <= 15 + 10  # a way back that was begun is gone to its end


def test_a_snapshot_brings_the_office_back() -> None:
    ((task, _),) = multi_step(7, 1)
    world = make_office()
    world.reset(task)
    kept = world.snapshot()
    note = EnvironmentCall("create_note", {"title": "a", "text": "b"})
    first = world.step(note).output
    world.restore(kept)
    assert world.step(note).output == first


def test_atoms_of_the_scripts_know_their_own_tasks() -> None:
    runs = held_out.scripts(7, 3)
    specs = bench.Bench().specs
    own = held_out.worth(distil(runs, specs), specs, runs)
    assert own.calls == sum(len(run.events) - 1 for run in runs) > 3
    assert own.first <= own.best <= own.alike
    assert own.best > 80
    assert held_out.worth([], specs, runs) == (0, own.calls, 0.0, 0.0, 0.0)


def test_tools_that_stand_in_for_one_another() -> None:
    assert held_out.does_the_same("find_person", "find_person")
    assert held_out.does_the_same("find_person", "search_directory")
    assert held_out.does_the_same("update_task", "assign_task")
    assert not held_out.does_the_same("complete_task", "assign_task")


def test_the_command_says_what_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    arguments = ["--tasks", "2", "--rivals", "1", "--seeds", "0", "--steps", "30", "--same", "2", "--kills", "0"]
    arguments += ["--held-out", "2"]
    code = bench.main([*arguments, "--json", str(file)])
    said = capsys.readouterr().out
    verdicts = [line for line in said.splitlines() if line.startswith(("holds", "MISSED"))]
    assert code == (1 if any(line.startswith("MISSED") for line in verdicts) else 0)
    assert len(verdicts) == 5
    assert any("the same atoms with 1, 2 and 3 workers" in line and line.startswith("holds") for line in verdicts)
    shares = dict(re.findall(r"^(discovered|recorded) .* ([\d.]+) +[\d.]+$", said, re.MULTILINE))
    assert shares.keys() == {"discovered", "recorded"}
    assert all(0 <= float(share) <= 100 for share in shares.values())
    methods = [row["method"] for row in json.loads(file.read_text())]
    assert methods == ["tree", "tree", "tree", "tree ucb", "random", "depth-first"]
