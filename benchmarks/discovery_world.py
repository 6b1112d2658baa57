"""The office as a world that discovery searches, and its multi-step tasks."""

from __future__ import annotations

from examples.office import Office, make_tasks
from examples.office.tasks import Task as OfficeTask
from langgraph_toolmem.offline.discovery import Task, ToolsEnvironment

POOL = 400
"""Tasks that the chosen ones are drawn from, for each seed."""


def make_office() -> ToolsEnvironment:
    """An office of its own; a factory for a `Discovery`.

    A task's ``data`` has its ``seed`` and its ``number`` in `make_tasks` with `POOL` tasks.
    """
    office = Office(0)
    pools: dict[int, dict[str, OfficeTask]] = {}

    def known(task: Task) -> OfficeTask:
        seed = int(task.data["seed"])
        if seed not in pools:
            pools[seed] = {each.id: each for each in make_tasks(POOL, seed=seed, office_seed=seed)}
        return pools[seed][str(task.data["number"])]

    return ToolsEnvironment(
        office.tools(),
        reset=lambda task: office.reset(known(task).seed),
        success=lambda task: known(task).checker(office),
        snapshot=office.snapshot,
        restore=office.restore,
    )


def multi_step(seed: int, count: int) -> list[tuple[Task, str]]:
    """The first tasks of a seed that take two calls or more, with their kinds."""
    found: list[tuple[Task, str]] = []
    office = Office(seed)
    for each in make_tasks(POOL, seed=seed, office_seed=seed):
        office.reset(each.seed)
        if len(found) < count and len(each.script()) > 1 and not each.checker(office):
            found.append((Task(f"{seed}-{each.id}", each.request, {"seed": seed, "number": each.id}), each.kind))
    return found


__all__ = ["POOL", "make_office", "multi_step"]
