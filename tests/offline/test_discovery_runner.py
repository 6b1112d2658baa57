"""Discovery as a whole, with a policy by hand: workers, ways to end, what is kept, atoms, the report."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rooms import KEYS, TASK, Keeper, Rooms, WithSnapshots

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.atoms.atoms import to_plain
from langgraph_toolmem.base.errors import ConfigurationError, ToolMemoryError
from langgraph_toolmem.offline.discovery import (
    Discovery,
    DiscoveryReport,
    EnvironmentCall,
    Observation,
    SearchSettings,
    Task,
)
from langgraph_toolmem.offline.discovery.runner import Found

TASKS = [Task(f"t{n}", f"Open the safe with the {key} key.", {"key": key}) for n, key in enumerate([*KEYS, *KEYS])]


def searched(environment: Any, tasks: Sequence[Task] = TASKS, **options: Any) -> Discovery:
    return Discovery(environment, tasks, policy=Keeper(), **options)


def test_tasks_become_atoms_without_values() -> None:
    with searched(Rooms()) as discovery:
        report = discovery.run()
        atoms = discovery.atoms()
    assert (report.tasks, report.done, report.solved) == (4, 4, 4)
    by_tool = {atom.tool: atom for atom in atoms}
    assert set(by_tool) == {"find_key", "open_safe"}
    assert by_tool["open_safe"].visits == 4
    assert by_tool["open_safe"].sources == ("t0", "t1", "t2", "t3")
    assert {str(value)[:1] for value in by_tool["open_safe"].arguments.values()} == {"<"}
    assert not {"key_11", "key_22", "Garden", "Cellar"} & set(json.dumps(list(map(to_plain, atoms))).split('"'))
    assert 0.9 < by_tool["find_key"].value <= 1
    assert report.atoms == 2
    assert report.explored > 2


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_interrupted_and_with_any_number_of_workers_the_same_is_found(workers: int, tmp_path: Path) -> None:
    def stop(now: DiscoveryReport) -> None:
        if now.done >= 1:
            raise KeyboardInterrupt

    with searched(Rooms(), seed=3) as alone:
        alone.run()
        expected = (alone.found(), alone.atoms())
    for options in ({"seed": 1}, {"seed": 3, "settings": SearchSettings(iterations=9)}):
        with searched(Rooms, folder=tmp_path, **options) as other:
            other.run()
    done: list[int] = []
    with (
        searched(WithSnapshots, seed=3, workers=workers, folder=tmp_path) as discovery,
        pytest.raises(KeyboardInterrupt),
    ):
        discovery.run(stop)
    with searched(WithSnapshots, seed=3, workers=workers, folder=tmp_path) as discovery:
        assert 1 <= discovery.report().done <= 4
        discovery.run(lambda now: done.append(now.done))
        assert (discovery.found(), discovery.atoms()) == expected
    assert done == sorted(done)
    assert done[-1] == 4
    again = Rooms()
    with searched(again, seed=3, folder=tmp_path) as discovery:
        assert discovery.run().done == 4
    assert again.log == []
    with searched(again, [Task("t0", "Another request", TASKS[0].data)], seed=3, folder=tmp_path) as discovery:
        assert discovery.report().done == 0


class Broken(Rooms):
    """Its world cannot be reset for some tasks."""

    def reset(self, task: Task) -> None:
        if task.id == "t1":
            raise OSError("the disk is gone")
        super().reset(task)


def test_a_search_that_raises_is_one_failed_task(tmp_path: Path) -> None:
    with searched(Broken(), TASKS, folder=tmp_path) as discovery:
        report = discovery.run()
    assert (report.done, report.failed) == (3, 1)
    assert report.errors == ("OSError: the disk is gone",)
    with searched(Rooms(), TASKS, folder=tmp_path) as discovery:
        assert discovery.run().done == 4


def test_an_environment_that_always_raises_ends_it() -> None:
    class Dead(Rooms):
        def reset(self, task: Task) -> None:
            raise OSError("no such host")

    tasks = [Task(f"t{n}", "Open it", {"key": "Cellar"}) for n in range(9)]
    with searched(Dead(), tasks) as discovery:
        with pytest.raises(ToolMemoryError, match="no such host"):
            discovery.run()
        assert discovery.report().failed == 5


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

    with searched(Closing, TASKS, workers=3) as discovery:
        discovery.run()
    assert 1 <= len(made) <= 3
    assert all(world.closed for world in made)


def test_what_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match="model="):
        Discovery(Rooms(), TASKS)
    with pytest.raises(ConfigurationError, match="of its own"):
        searched(Rooms(), TASKS, workers=2)
    with pytest.raises(ConfigurationError, match="workers"):
        searched(Rooms, TASKS, workers=0)
    with pytest.raises(ConfigurationError, match="same id"):
        searched(Rooms, [TASK, TASK])
    with pytest.raises(ConfigurationError, match="An environment has tools"):
        searched(lambda: object(), TASKS)  # type: ignore[arg-type, return-value]

    class Empty(Rooms):
        tools: list[Any] = []  # noqa: RUF012

    with pytest.raises(ConfigurationError, match="no tools"):
        searched(Empty(), TASKS)


def test_an_outcome_survives_the_disk() -> None:
    with searched(Rooms(), TASKS[:1]) as discovery:
        discovery.run()
        (found,) = discovery.found()
    assert Found.from_plain(json.loads(json.dumps(asdict(found)))) == found
    assert found.path[0].call == EnvironmentCall("find_key", {"name": "Garden"})
    assert found.path[0].observation == Observation({"keys": [{"id": "key_11", "name": "Garden"}]})


def test_a_line_that_a_kill_cut_short_costs_one_search(tmp_path: Path) -> None:
    with searched(Rooms(), TASKS, folder=tmp_path) as discovery:
        discovery.run()
    file = tmp_path / "discovery.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    again = Rooms()
    with searched(again, TASKS, folder=tmp_path) as discovery:
        assert discovery.report().done == 3
        assert discovery.run().done == 4
    with searched(again, TASKS, folder=tmp_path) as discovery:
        assert discovery.report().done == 4


def test_a_memory_gets_the_atoms() -> None:
    with ToolMemory.ephemeral() as memory, searched(Rooms(), TASKS) as discovery:
        for _ in range(2):
            assert discovery.run(memory=memory).atoms == len(memory.atoms.all()) == 2
