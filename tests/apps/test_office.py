"""The office of the demo: its tools, its scripted assistant, and the demo itself."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from examples.office import Office, make_tasks, run_tasks, scripted_model
from langgraph_toolmem.cli.app import app

TASKS = make_tasks(200, seed=7)


def test_the_assistant_solves_all_tasks_and_nothing_left_undone_is_right() -> None:
    outcomes = run_tasks(scripted_model(), TASKS[:40], office := Office())
    assert all(each.right for each in outcomes)
    assert sum(each.shortcuts for each in outcomes) == 0
    office.reset()
    idle = Counter(task.checker(office) for task in TASKS if task.kind not in ("agenda", "read_latest"))
    assert set(idle) == {False}


@pytest.mark.parametrize("seed", [0, 1])
def test_the_demo_saves_calls_and_makes_no_change_that_nobody_asked_for(tmp_path: Path, seed: int) -> None:
    done = CliRunner().invoke(app, ["demo", "--tasks", "80", "--seed", str(seed), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.output.splitlines() if "of 80" in line]
    assert [(row[0], row[3], row[5]) for row in rows] == [("without", "0", "80 of 80"), ("with", "0", "80 of 80")]
    (made, none), (fewer, saved) = [(int(row[1]), int(row[2])) for row in rows]
    assert none == 0
    assert fewer + saved == made
    assert saved > 0
    assert len((tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()) == 80
    proposed = next(line for line in done.output.splitlines() if line.startswith("  toolmem replay"))
    replayed = CliRunner().invoke(app, [*shlex.split(proposed)[1:], "--json"])
    assert json.loads(replayed.output)["right"] > 0
