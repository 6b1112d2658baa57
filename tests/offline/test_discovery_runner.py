"""Discovery as a whole, without a model: workers, ways to end, what is kept, atoms, the report."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from rooms import KEYS, TASK, TOOLS, Rooms, WithSnapshots

from examples.office import Office, make_tasks
from langgraph_toolmem.atoms.atoms import from_plain, to_plain
from langgraph_toolmem.base.errors import ConfigurationError, InputError, LogError, ToolMemoryError
from langgraph_toolmem.offline.discovery import (
    Discovery,
    DiscoveryProgress,
    EnvironmentCall,
    JsonLines,
    Observation,
    SearchSettings,
    Task,
    ToolsEnvironment,
    load_environment,
    read_tasks,
)
from langgraph_toolmem.offline.discovery.harvest import Found
from langgraph_toolmem.offline.discovery.report import summed_up

TASKS = [Task(f"t{n}", f"Open the safe with the {key} key.", {"key": key}) for n, key in enumerate([*KEYS, *KEYS])]
KINDS = {"follow_up", "tell_team", "reply", "schedule_meeting", "forward_latest"}


def office() -> ToolsEnvironment:
    """An office of its own; the factory of these tests."""
    made = Office(0)
    tasks = {task.id: task for task in make_tasks(40, seed=5)}
    return ToolsEnvironment(
        made.tools(),
        reset=lambda task: made.reset(tasks[task.id].seed),
        success=lambda task: tasks[task.id].checker(made),
    )


def office_tasks(count: int) -> list[Task]:
    chosen = [task for task in make_tasks(40, seed=5) if task.kind in KINDS]
    return [Task(task.id, task.request) for task in chosen[:count]]


class Recording:
    """A sink that keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[list[Any]] = []

    def put(self, atoms: Any) -> None:
        self.given.append(list(atoms))


def test_tasks_become_atoms_without_values() -> None:
    sink = Recording()
    with Discovery(Rooms(), TASKS) as discovery:
        report = discovery.run(sink=sink)
    (atoms,) = sink.given
    assert (report.progress.tasks, report.progress.done, report.progress.solved) == (4, 4, 4)
    by_tool = {atom.tool: atom for atom in atoms}
    assert set(by_tool) == {"find_key", "open_safe"}
    assert by_tool["open_safe"].visits == 4
    assert by_tool["open_safe"].sources == ("t0", "t1", "t2", "t3")
    assert {str(value)[:1] for value in by_tool["open_safe"].arguments.values()} == {"<"}
    assert not {"key_11", "key_22", "Garden", "Cellar"} & set(json.dumps(list(map(to_plain, atoms))).split('"'))
    assert 0.9 < by_tool["find_key"].value <= 1
    assert report.atoms == 2
    assert report.compression == report.explored / 2 > 1
    assert 1 <= report.branching < 6
    assert report.depth == 2


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.long)])
def test_any_number_of_workers_gives_the_same_atoms(workers: int) -> None:
    tasks = office_tasks(4)
    with Discovery(office, tasks, seed=3) as alone:
        alone.run()
        expected = (alone.found(), alone.atoms())
    steps: list[DiscoveryProgress] = []
    with Discovery(office, tasks, seed=3, workers=workers) as together:
        together.run(steps.append)
        assert (together.found(), together.atoms()) == expected
    assert expected[1]
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1].done == 4


def test_the_office_is_searched_without_a_model() -> None:
    tasks = office_tasks(8)
    with Discovery(office, tasks) as discovery:
        report = discovery.run()
    # 7 with a policy that had been fitted to such tasks; the plain one solves 5, and tries more before it has them.
    assert report.progress.solved >= 5
    assert report.branching < 6
    assert report.atoms >= 8


def test_what_was_found_is_not_searched_again(tmp_path: Path) -> None:
    first = Rooms()
    with Discovery(first, TASKS[:2], folder=tmp_path) as discovery:
        discovery.run()
        found = discovery.found()
    second = Rooms()
    with Discovery(second, TASKS, folder=tmp_path) as discovery:
        report = discovery.run()
        assert discovery.found()[:2] == found
    assert report.progress.done == 4
    assert second.log.count("reset") > 0
    third = Rooms()
    with Discovery(third, TASKS, folder=tmp_path) as discovery:
        discovery.run()
        assert len(discovery.atoms()) == 2
    assert third.log == []


@pytest.mark.parametrize(
    "other",
    [{"seed": 1}, {"settings": SearchSettings(iterations=9)}],
    ids=["seed", "settings"],
)
def test_another_seed_or_setting_is_another_discovery(other: dict[str, Any], tmp_path: Path) -> None:
    with Discovery(Rooms(), TASKS[:1], folder=tmp_path) as discovery:
        discovery.run()
    with Discovery(Rooms(), TASKS[:1], folder=tmp_path, **other) as discovery:
        assert discovery.progress().done == 0
    with Discovery(Rooms(), [Task("t0", "Another request", TASKS[0].data)], folder=tmp_path) as discovery:
        assert discovery.progress().done == 0


class Broken(Rooms):
    """Its world cannot be reset for some tasks."""

    def reset(self, task: Task) -> None:
        if task.id == "t1":
            raise OSError("the disk is gone")
        super().reset(task)


def test_a_search_that_raises_is_one_failed_task(tmp_path: Path) -> None:
    with Discovery(Broken(), TASKS, folder=tmp_path) as discovery:
        report = discovery.run()
    assert (report.progress.done, report.progress.failed) == (3, 1)
    assert report.errors == ("OSError: the disk is gone",)
    with Discovery(Rooms(), TASKS, folder=tmp_path) as discovery:
        assert discovery.run().progress.done == 3
        assert discovery.retry_failed() == 1
        assert discovery.run().progress.done == 4


def test_an_environment_that_always_raises_ends_it() -> None:
    class Dead(Rooms):
        def reset(self, task: Task) -> None:
            raise OSError("no such host")

    tasks = [Task(f"t{n}", "Open it", {"key": "Cellar"}) for n in range(9)]
    sink = Recording()
    with Discovery(Dead(), tasks) as discovery:
        with pytest.raises(
            ToolMemoryError, match="5 searches in a row failed, the last one with OSError: no such host"
        ):
            discovery.run(sink=sink)
        assert discovery.progress().failed == 5
    assert sink.given == [[]]


def test_an_interrupted_run_keeps_what_was_done(tmp_path: Path) -> None:
    def stop(now: DiscoveryProgress) -> None:
        if now.done >= 1:
            raise KeyboardInterrupt

    with Discovery(WithSnapshots, TASKS, folder=tmp_path) as discovery, pytest.raises(KeyboardInterrupt):
        discovery.run(stop)
    with Discovery(WithSnapshots, TASKS, folder=tmp_path) as discovery:
        assert discovery.progress().done >= 1
        assert discovery.run().progress.done == 4


def test_each_worker_has_a_world_of_its_own_and_closes_it() -> None:
    made: list[Any] = []
    lock = threading.Lock()

    class Closing(Rooms):
        def __init__(self) -> None:
            super().__init__()
            self.closed = False
            with lock:
                made.append(self)

        def close(self) -> None:
            self.closed = True

    with Discovery(Closing, TASKS, workers=3) as discovery:
        discovery.run()
    assert 1 <= len(made) <= 3
    assert all(world.closed for world in made)


def test_what_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match="of its own"):
        Discovery(Rooms(), TASKS, workers=2)
    with pytest.raises(ConfigurationError, match="workers"):
        Discovery(Rooms, TASKS, workers=0)
    with pytest.raises(ConfigurationError, match="same id"):
        Discovery(Rooms, [TASK, TASK])
    with pytest.raises(ConfigurationError, match="An environment has tools"):
        Discovery(lambda: object(), TASKS)  # type: ignore[arg-type, return-value]

    class Empty(Rooms):
        tools: list[Any] = []  # noqa: RUF012

    with pytest.raises(ConfigurationError, match="no tools"):
        Discovery(Empty(), TASKS)


def test_a_file_of_atoms_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "atoms.jsonl"
    sink = JsonLines(target)
    with Discovery(Rooms(), TASKS) as discovery:
        discovery.run(sink=sink)
        first = target.read_bytes()
        discovery.run(sink=sink)
        assert target.read_bytes() == first
        read = [from_plain(json.loads(line)) for line in target.read_text(encoding="utf-8").splitlines()]
        assert read == discovery.atoms()
    sink.put([])
    assert target.read_bytes() == b""


def test_tasks_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('\ufeff{"id": 7, "request": "Do it", "level": 2}\n\n{"request": "And that"}\n', encoding="utf-8")
    assert read_tasks(file) == [Task("7", "Do it", {"level": 2}), Task("line-3", "And that", {})]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{broken", "line 1 is not JSON"),
        ('{"request": ""}', "line 1 is no task"),
        ("[1]", "line 1 is no task"),
        ('{"id": true, "request": "x"}', "id of a task"),
        ('{"id": "a", "request": "x"}\n{"id": "a", "request": "y"}', "already"),
        ("\n", "holds no tasks"),
    ],
    ids=["broken", "empty", "list", "id", "twice", "nothing"],
)
def test_lines_that_are_no_tasks(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises((InputError, LogError), match=said):
        read_tasks(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_tasks(tmp_path / "none.jsonl")


def test_an_environment_is_named_by_its_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_world.py").write_text(
        "from rooms import Rooms as Made\n"
        "made = Made()\n"
        "def broken():\n    raise LookupError('no world')\n"
        "async def later():\n    return Made()\n"
        "number = 4\n",
        encoding="utf-8",
    )
    with Discovery(load_environment("my_world:Made", folder=tmp_path), TASKS[:1], workers=2) as discovery:
        assert discovery.run().progress.solved == 1
    assert isinstance(load_environment("my_world:made", folder=tmp_path), Rooms)
    with pytest.raises(ConfigurationError, match="LookupError: no world"):
        Discovery(load_environment("my_world:broken", folder=tmp_path), TASKS)
    for name in ("later", "number"):
        with pytest.raises(ConfigurationError, match="neither an environment"):
            load_environment(f"my_world:{name}", folder=tmp_path)
    with pytest.raises(ConfigurationError, match="has no 'nothing'"):
        load_environment("my_world:nothing", folder=tmp_path)


def test_the_report_is_worked_out_by_hand() -> None:
    counts = {"iterations": 4, "tried": 6, "inner": 4, "steps": 9, "replayed": 2, "shared": 1, "depth": 3}
    path = tuple(Discovery(Rooms(), [TASK]).found())
    assert path == ()
    found = [
        Found("a", "x", counts=counts),
        Found("b", "y", counts={**counts, "iterations": 2, "tried": 4, "depth": 5}),
        Found("c", "z", counts={"already": 1}),
    ]
    report = summed_up(found, [], DiscoveryProgress(tasks=3, done=3), errors=list("abcdefg"))
    assert report.iterations == 3.0
    assert report.branching == 10 / 8
    assert (report.deepest, report.already, report.explored, report.replayed, report.shared) == (5, 1, 18, 4, 2)
    assert (report.compression, report.depth) == (0.0, 0.0)
    assert report.errors == tuple("cdefg")
    assert report.unsolved == ("a", "b")  # "c" was done before
    assert json.loads(json.dumps(report.to_dict()))["tasks"] == 3


def test_an_outcome_survives_the_disk() -> None:
    with Discovery(Rooms(), TASKS[:1]) as discovery:
        discovery.run()
        (found,) = discovery.found()
    assert Found.from_plain(json.loads(json.dumps(found.to_plain()))) == found
    assert found.path[0].call == EnvironmentCall("find_key", {"name": "Garden"})
    assert found.path[0].observation == Observation({"keys": [{"id": "key_11", "name": "Garden"}]})
    assert len(TOOLS) == 4
