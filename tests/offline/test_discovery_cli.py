"""`toolmem discover`: on the command line, killed in the middle, and what a person sees."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from rooms import Rooms
from typer.testing import CliRunner

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.atoms.retrieve import AtomHit
from langgraph_toolmem.cli import app
from langgraph_toolmem.cli.discover import sentences
from langgraph_toolmem.offline.discovery import Discovery, DiscoveryProgress, DiscoveryReport, IntoMemory, Task
from langgraph_toolmem.offline.discovery.state import NAME
from langgraph_toolmem.stores.folder_lock import FolderLock

SAFE = "--sandbox-is-safe"
WORLD = '''
import os, time
from pathlib import Path
from rooms import Rooms, TOOLS

class World(Rooms):
    """Writes down which task is begun, and takes its time."""
    def reset(self, task):
        super().reset(task)
        if (folder := os.environ.get("BEGUN")) and len(self.log) and self.log[-2:-1] != ["reset"]:
            with open(folder, "a") as file:
                file.write(task.id + "\\n")
    def step(self, call):
        time.sleep(float(os.environ.get("SLOW", "0")))
        return super().step(call)

class Silent(World):
    def success(self):
        return None

def broken():
    raise LookupError("no such world")
'''
KEYS = ["Garden", "Cellar"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a world and tasks in it, where the command is typed."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "safe_world.py").write_text(WORLD, encoding="utf-8")
    write_tasks(tmp_path / "tasks.jsonl", 4)
    yield tmp_path
    sys.modules.pop("safe_world", None)


def write_tasks(file: Path, count: int) -> None:
    lines = [
        json.dumps({"id": f"t{n}", "request": f"Open the safe with the {KEYS[n % 2]} key.", "key": KEYS[n % 2]})
        for n in range(count)
    ]
    file.write_text("\n".join(lines), encoding="utf-8")


def run(*arguments: object, typed: str | None = None) -> Any:
    given = ("discover", "--memory", "memory", "--env", "safe_world:World", "--tasks", "tasks.jsonl", *arguments)
    return CliRunner().invoke(app, list(map(str, given)), input=typed)


def test_tasks_become_atoms_on_the_command_line(here: Path) -> None:
    result = run(SAFE)
    assert result.exit_code == 0, result.output
    first, second, third, last = result.stdout.splitlines()
    assert first == "Of 4 tasks, 4 are searched: 4 were solved."
    assert "actions tried in a state; the best paths have 2.0 calls" in second
    assert third.endswith(f"in {Path('memory', 'discovery', 'atoms.jsonl')}.")
    atoms = [json.loads(line) for line in (here / "memory/discovery/atoms.jsonl").read_text().splitlines()]
    assert {atom["tool"] for atom in atoms} == {"find_key", "open_safe"}
    assert last.startswith("The memory keeps them")
    assert (here / "memory/discovery" / NAME).exists()
    assert {hit.tool for hit in found_in(here / "memory")} == {"find_key", "open_safe"}

    again = json.loads(run(SAFE, "--json", "--workers", 2, "-o", "mine.jsonl").stdout)
    assert (again["done"], again["solved"], again["model_calls"]) == (4, 4, 0)
    assert again["kept"] == again["atoms"] == len(atoms)
    assert again["atoms_file"] == "mine.jsonl"
    assert (here / "mine.jsonl").read_bytes() == (here / "memory/discovery/atoms.jsonl").read_bytes()


def found_in(folder: Path, *, namespace: str = "toolmem", user_id: str | None = None) -> list[AtomHit]:
    with ToolMemory(folder, namespace=tuple(namespace.split("/"))) as memory:
        return memory.atoms.search("open the safe with a key", user_id=user_id)


def test_atoms_are_kept_once_and_a_search_that_knows_more_adds_to_them(here: Path) -> None:
    write_tasks(here / "tasks.jsonl", 2)
    assert run(SAFE).exit_code == 0
    before = {hit.atom.id: hit.atom for hit in found_in(here / "memory")}
    assert run(SAFE).exit_code == 0
    assert {hit.atom.id: hit.atom for hit in found_in(here / "memory")} == before
    write_tasks(here / "tasks.jsonl", 4)
    assert run(SAFE).exit_code == 0
    after = {hit.atom.id: hit.atom for hit in found_in(here / "memory")}
    assert after.keys() == before.keys()
    assert all(after[key].visits == 2 * before[key].visits for key in before)
    assert {atom.origin for atom in after.values()} == {"search"}


def test_atoms_of_a_user_are_that_users(here: Path) -> None:
    apart = ("--namespace", "desk/{user_id}")
    refused = run(SAFE, *apart)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "user_id" in refused.stderr
    assert not (here / "memory/discovery").exists()  # nothing was searched yet
    assert run(SAFE, *apart, "--user-id", "ann").exit_code == 0
    assert found_in(here / "memory", namespace="desk/{user_id}", user_id="ann")
    assert not found_in(here / "memory", namespace="desk/{user_id}", user_id="ben")


def test_the_memory_can_be_left_as_it_is(here: Path) -> None:
    answer = json.loads(run(SAFE, "--file-only", "--json").stdout)
    assert (answer["kept"], answer["solved"]) == (None, 4)
    assert [path.name for path in (here / "memory").iterdir()] == ["discovery"]


def test_a_memory_in_use_is_said_before_anything_is_searched(here: Path) -> None:
    with ToolMemory(here / "memory") as memory:
        refused = run(SAFE)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert not (here / "memory/discovery").exists()
        assert run(SAFE, "--file-only").exit_code == 0  # needs no memory
        assert memory.atoms.search("open the safe") == []
    assert run(SAFE).exit_code == 0
    assert found_in(here / "memory")


def test_a_memory_taken_during_the_search_loses_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[ToolMemory] = []
    whole = Discovery.run

    def meanwhile(self: Discovery, *args: Any, **how: Any) -> Any:
        taken.append(ToolMemory(here / "memory"))
        return whole(self, *args, **how)

    with monkeypatch.context() as patched:
        patched.setattr(Discovery, "run", meanwhile)
        failed = run(SAFE)
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert "not in the memory yet: the same command again keeps them" in failed.stderr
    assert (here / "memory/discovery/atoms.jsonl").stat().st_size
    taken[0].close()
    assert json.loads(run(SAFE, "--json").stdout)["kept"] == 2
    assert found_in(here / "memory")


def test_a_sink_of_a_memory_that_is_open(tmp_path: Path) -> None:
    tasks = [Task(f"t{n}", f"Open the safe with the {KEYS[n]} key.", {"key": KEYS[n]}) for n in range(2)]
    with ToolMemory(tmp_path) as memory, Discovery(Rooms, tasks) as discovery:
        sink = IntoMemory(memory)
        discovery.run(sink=sink)
        hits = memory.atoms.search("open the safe with a key")
        assert sink.kept == len(discovery.atoms()) == len(hits)
        assert {hit.atom.id for hit in hits} == {atom.id for atom in discovery.atoms()}


def test_nothing_is_executed_unless_a_person_says_so(here: Path) -> None:
    refused = run()
    assert (refused.exit_code, refused.stdout) == (2, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith("error: The environment's tools are really executed, many times over")
    assert SAFE in line
    assert not (here / "memory").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--env", "safe_world:broken"), "LookupError: no such world"),
        (("--env", "safe_world:nothing"), "has no 'nothing'"),
        (("--env", "safe_world:Silent"), "Nothing says whether a task is done"),
        (("--tasks", "none.jsonl"), "none.jsonl cannot be read"),
        (("--model", "gpt"), "--model 'gpt' is none of"),
        (("--memory", "tasks.jsonl"), "is a file"),
        (("--iterations", 0), "--iterations"),
    ],
    ids=["broken", "nothing", "silent", "tasks", "model", "file", "range"],
)
def test_mistakes_are_one_line(arguments: tuple[object, ...], said: str, here: Path) -> None:
    result = run(SAFE, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr.splitlines()[-1]


def test_the_rule_and_the_paths_are_a_choice(here: Path) -> None:
    few = json.loads(run(SAFE, "--json", "--patience", 0).stdout)
    every = json.loads(run(SAFE, "--json", "--all-iterations", "--iterations", 7).stdout)
    published = json.loads(run(SAFE, "--json", "--selection", "ucb").stdout)
    assert few["solved"] == every["solved"] == published["solved"] == 4
    assert few["iterations"] < every["iterations"] <= 7
    assert (few["others"], every["others"], published["others"]) == (0, 4, 8)  # each is a discovery of its own
    assert run(SAFE, "--selection", "best").exit_code == 2


def test_what_is_not_counted_is_said(here: Path) -> None:
    assert "settings" not in run(SAFE).stdout
    assert "4 outcomes of other settings are in the folder and not counted." in run(SAFE, "--seed", 1).stdout


def test_what_was_wrong_is_said() -> None:
    report = DiscoveryReport(DiscoveryProgress(2, 2, 1, model_calls=3), unread=1, diverged=2, others=1)
    assert "Not solved" not in "".join(sentences(report, Path("atoms.jsonl")))
    said = "\n".join(sentences(report, Path("atoms.jsonl")))
    assert "1 answer of models could not be read" in said
    assert "snapshot() and restore() of the environment cure this" in said
    assert "1 outcome of other settings" in said
    assert {"unread", "diverged", "others"} <= report.to_dict().keys()


def test_tasks_that_were_not_solved_are_named(here: Path) -> None:
    lost = {"id": "lost", "request": "Open the safe with the Garden key.", "key": "Cellar"}
    with (here / "tasks.jsonl").open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps(lost))
    assert "Not solved: lost." in run(SAFE).stdout.splitlines()
    assert json.loads(run(SAFE, "--json").stdout)["unsolved"] == ["lost"]
    many = DiscoveryReport(DiscoveryProgress(23, 23), unsolved=tuple(f"t{n}" for n in range(23)))
    (line,) = (line for line in sentences(many, Path("atoms.jsonl")) if line.startswith("Not solved"))
    assert line.endswith("t18, t19 and 3 more, which --json names.")


def test_one_search_in_a_folder_at_a_time(here: Path) -> None:
    lock = FolderLock(here / "memory/discovery")
    try:
        refused = run(SAFE)
    finally:
        lock.release()
    assert (refused.exit_code, refused.stdout) == (2, "")
    (line,) = refused.stderr.splitlines()
    assert f"Another `toolmem discover` (pid {os.getpid()}) is at work in" in line
    assert "store=" not in line
    assert run(SAFE).exit_code == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_killed_at_any_moment_nothing_finished_is_lost_and_the_atoms_are_the_same(here: Path) -> None:
    write_tasks(here / "tasks.jsonl", 16)
    assert run(SAFE, "--seed", 5).exit_code == 0
    expected = (here / "memory/discovery/atoms.jsonl").read_bytes()

    dice = random.Random(3)
    begun = here / "begun.txt"
    path = os.pathsep.join([str(here), str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "SLOW": "0.04", "BEGUN": str(begun)}
    command = [
        *(sys.executable, "-m", "langgraph_toolmem.cli.app"),
        *("discover", "--memory", "killed", "--env", "safe_world:World", "--tasks", "tasks.jsonl"),
        *(SAFE, "--seed", "5", "--workers", "2", "--json"),
    ]
    command[1:3] = ["-c", "from langgraph_toolmem.cli import main; main()"]
    done = 0
    for _life in range(2):
        begun.unlink(missing_ok=True)
        child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and child.poll() is None:
            if begun.exists() and len(set(begun.read_text().split())) > 2:  # two at a time: one is over
                break
            time.sleep(0.01)
        time.sleep(dice.uniform(0, 0.15))
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        now = count_done(here / "killed/discovery" / NAME)
        assert now >= done  # what was finished stays finished
        done = now
    assert 0 < done < 16
    last = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=100)
    assert json.loads(last.stdout)["solved"] == 16
    assert (here / "killed/discovery/atoms.jsonl").read_bytes() == expected


def count_done(file: Path) -> int:
    import sqlite3

    database = sqlite3.connect(file)
    try:
        return int(database.execute("SELECT count(*) FROM queries WHERE stage = 'ran'").fetchone()[0])
    finally:
        database.close()
