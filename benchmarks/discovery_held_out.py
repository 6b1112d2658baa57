"""What atoms that a search found are worth on tasks that nobody searched, against atoms of the ideal scripts.

Both come from the same tasks of one seed and are kept in a memory each; the memory is asked before each call of the
ideal scripts of another seed's tasks (other people and things, the same kinds of task). A hit: the tool that is called
is among the best k atoms; or one that does the same (`ALTERNATIVES`), which a search cannot tell from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.discovery_world import POOL, make_office, multi_step
from benchmarks.next_tool import points
from examples.office import ALTERNATIVES, make_tasks
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.atoms.atoms import Atom
from langgraph_toolmem.atoms.extract import Extractor, distil
from langgraph_toolmem.offline.discovery import Discovery, EnvironmentCall
from langgraph_toolmem.offline.discovery.environment import Taken
from langgraph_toolmem.offline.discovery.harvest import run_of
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.tools import ToolSpec

SEARCHED, HELD_OUT = 5, 6
"""Seeds of the tasks; none of those that the rest of the benchmark uses."""
BEST: Final = 3


class Worth(NamedTuple):
    """Atoms on tasks that nobody searched; shares in percent.

    Attributes:
        atoms: how many different ones are kept.
        calls: how often they were asked for.
        first: the tool was that of the best one.
        best: it was among the best three.
        alike: it, or one that does the same, was.
    """

    atoms: int
    calls: int
    first: float
    best: float
    alike: float


def scripts(seed: int, count: int) -> list[Run]:
    """The ideal scripts of the multi-step tasks of a seed, carried out, as runs."""
    pool = {each.id: each for each in make_tasks(POOL, seed=seed, office_seed=seed)}
    world, runs = make_office(), list[Run]()
    for task, _ in multi_step(seed, count):
        world.reset(task)
        calls = [EnvironmentCall(each.tool, dict(each.args)) for each in pool[str(task.data["number"])].script()]
        path = [Taken(call, world.step(call)) for call in calls]
        if world.success():
            runs.append(run_of(task, path))
    return runs


def does_the_same(one: str, other: str) -> bool:
    """Whether two tools are one, or one can stand in for the other."""
    return one == other or other in ALTERNATIVES.get(one, ()) or one in ALTERNATIVES.get(other, ())


def worth(atoms: Sequence[Atom], specs: Mapping[str, ToolSpec], runs: Sequence[Run]) -> Worth:
    """Keeps the atoms in a memory, and asks it before each call of the runs."""
    extractor, calls, first, best, alike = Extractor(specs), 0, 0, 0, 0
    with ToolMemory.ephemeral(tools=list(make_office().tools)) as memory:
        kept = memory.atoms.keep(atoms)
        for point in (point for run in runs for point in points(run)):
            where, known = extractor.before(point.run)
            hits = memory.atoms.search(where.goals or ("",), state=where.state, slots=known, k=BEST)
            tools = [hit.tool for hit in hits]
            calls, first = calls + 1, first + (point.tool in tools[:1])
            best, alike = best + (point.tool in tools), alike + any(does_the_same(point.tool, tool) for tool in tools)
    return Worth(kept, calls, *(100 * hits / max(1, calls) for hits in (first, best, alike)))


def held_out(count: int) -> dict[str, Worth]:
    """Searches so many tasks; what the found atoms and those of the scripts are worth on as many others."""
    with Discovery(make_office, [task for task, _ in multi_step(SEARCHED, count)], seed=1) as discovery:
        discovery.run()
        found, specs = discovery.atoms(), discovery.specs
    others = scripts(HELD_OUT, count)
    recorded = distil(scripts(SEARCHED, count), specs)
    return {name: worth(atoms, specs, others) for name, atoms in (("discovered", found), ("recorded", recorded))}


__all__ = ["Worth", "held_out", "scripts", "worth"]
