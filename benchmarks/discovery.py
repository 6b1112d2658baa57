"""Discovery in the office: tree search against random paths and depth-first search, with a policy without a model.

    python -m benchmarks.discovery
    python -m benchmarks.discovery --tasks 60 --seeds 3 4 --json discovery.json

Multi-step tasks of the office: those whose ideal script makes two calls or more and which are not done before anything
was. All methods propose calls by the same policy (words of the request, schemas, known values), may make as many
calls of tools per task, and are told after each call whether the task is done. Tree: with the policy's prior in the
choice (the default). Tree ucb: plain UCB1, as published. Random: paths of ten calls, each drawn evenly from what the
policy proposes. Depth-first: the policy's proposals in its order, states met before left out.
Then: whether the same seed gives the same atoms with other numbers of workers, and with a process killed again and
again; and what the atoms of a search are worth on tasks that nobody searched (`benchmarks.discovery_held_out`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.discovery_held_out import BEST, held_out
from benchmarks.discovery_world import make_office, multi_step
from langgraph_toolmem.atoms.atoms import to_plain
from langgraph_toolmem.offline.discovery import Discovery, EnvironmentCall, Goal, SearchSettings, State, Task
from langgraph_toolmem.offline.discovery.environment import Cursor
from langgraph_toolmem.offline.discovery.plain_policy import PlainPolicy
from langgraph_toolmem.offline.discovery.selection import Selection
from langgraph_toolmem.offline.discovery.state import NAME
from langgraph_toolmem.offline.discovery.states import only_reads
from langgraph_toolmem.offline.discovery.tree import Search
from langgraph_toolmem.runs.tools import ToolSpec, read_tools

STEPS = 500
"""Calls of tools per task, for each method: 50 paths of 10 calls."""
DEPTH = 10
WANTED = 0.9
KILLS = 20
MARKS = (25, 50, 100, 200, 500)


@dataclass(frozen=True)
class Row:
    """One method on one task.

    Attributes:
        steps: calls made until the task was done, or in all.
        iterations: paths of the tree search; 0 for the others.
        length: calls of the best path.
        branching: actions tried per state in which any was, of the tree search.
    """

    seed: int
    task: str
    kind: str
    method: str
    solved: bool
    steps: int
    iterations: int = 0
    length: int = 0
    branching: float = 0.0


class Bench:
    """The office with its tools read once.

    Args:
        steps: calls per task.
    """

    def __init__(self, steps: int = STEPS) -> None:
        self.world = make_office()
        self.specs: dict[str, ToolSpec] = read_tools(self.world.tools)
        self.policy = PlainPolicy(self.specs)
        self.steps = steps

    def tree(self, task: Task, kind: str, seed: int) -> Row:
        """Tree search, with the policy's prior."""
        return self._tree(task, kind, seed, "prior", "tree")

    def tree_ucb(self, task: Task, kind: str, seed: int) -> Row:
        """Tree search as published: UCB1."""
        return self._tree(task, kind, seed, "ucb", "tree ucb")

    def _tree(self, task: Task, kind: str, seed: int, selection: Selection, method: str) -> Row:
        cursor = Cursor(self.world, task, most=self.steps)
        at_success: list[int] = []

        def check(_state: State, _answer: str) -> bool:
            done = bool(cursor.success())
            if done and not at_success:
                at_success.append(cursor.steps + cursor.replayed)
            return done

        settings = SearchSettings(steps=self.steps, patience=0, selection=selection)
        search = Search(
            cursor, self.policy, self.specs, check, settings=settings, rng=random.Random(f"{seed}-{task.id}")
        )
        outcome = search.run()
        used = at_success[0] if at_success else cursor.steps + cursor.replayed
        length = len(outcome.paths[0].taken) if outcome.paths else 0
        branching = outcome.tried / max(1, outcome.inner)
        return Row(seed, task.id, kind, method, outcome.solved, used, outcome.iterations, length, branching)

    def random(self, task: Task, kind: str, seed: int) -> Row:
        """Random paths."""
        rng = random.Random(f"{seed}-{task.id}-random")
        cursor = Cursor(self.world, task, most=self.steps)
        known: dict[str, list[EnvironmentCall]] = {}
        while not cursor.spent:
            cursor.reset()
            state = self._first(task)
            for _ in range(DEPTH):
                calls = self._calls(state, known)
                if not calls or cursor.spent:
                    break
                following = self._step(cursor, state, rng.choice(calls))
                if cursor.success():
                    return Row(seed, task.id, kind, "random", True, cursor.steps + cursor.replayed)
                state = following or state
        return Row(seed, task.id, kind, "random", False, cursor.steps + cursor.replayed)

    def depth_first(self, task: Task, kind: str, seed: int) -> Row:
        """Depth-first search in the policy's order."""
        cursor = Cursor(self.world, task, most=self.steps)
        cursor.reset()
        known: dict[str, list[EnvironmentCall]] = {}
        first = self._first(task)
        stack, seen = [(first, iter(self._calls(first, known)))], {first.key}
        while stack and not cursor.spent:
            state, calls = stack[-1]
            call = next(calls, None)
            if call is None or not cursor.go(state.changed):
                stack.pop()
                continue
            following = self._step(cursor, state, call)
            if cursor.success():
                return Row(seed, task.id, kind, "depth-first", True, cursor.steps + cursor.replayed)
            if following is not None and following.key not in seen and len(following.taken) < DEPTH:
                seen.add(following.key)
                stack.append((following, iter(self._calls(following, known))))
        return Row(seed, task.id, kind, "depth-first", False, cursor.steps + cursor.replayed)

    def _first(self, task: Task) -> State:
        return State(task).at(Goal(task.request))

    def _calls(self, state: State, known: dict[str, list[EnvironmentCall]]) -> list[EnvironmentCall]:
        if state.key not in known:
            known[state.key] = [each.call for each in self.policy.propose(state, None) if each.call is not None]
        return known[state.key]

    def _step(self, cursor: Cursor, state: State, call: EnvironmentCall) -> State | None:
        """The state after a call; None if it failed or nothing came of it."""
        reads = only_reads(self.specs[call.tool])
        taken = cursor.make(call, reads=reads)
        if not taken.observation.ok:
            cursor.go(state.changed)
            return None
        following = state.after(taken, reads=reads)
        return None if following.key == state.key else following


def atoms_digest(discovery: Discovery) -> str:
    """A digest of all atoms, in order."""
    plain = json.dumps([to_plain(atom) for atom in discovery.atoms()], sort_keys=True, default=str)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def by_workers(tasks: Sequence[Task], workers: Sequence[int]) -> tuple[list[str], Any]:
    """Digests of the atoms with each number of workers, and the first one's report."""
    digests, report = [], None
    for count in workers:
        with Discovery(make_office, tasks, seed=1, workers=count) as discovery:
            done = discovery.run()
            report = report or done
            digests.append(atoms_digest(discovery))
    return digests, report


CHILD = """
import json, sys
from pathlib import Path
from benchmarks.discovery import atoms_digest
from benchmarks.discovery_world import make_office
from langgraph_toolmem.offline.discovery import Discovery, Task
folder, tasks = Path(sys.argv[1]), [Task(**each) for each in json.loads(sys.argv[2])]
with Discovery(make_office, tasks, seed=1, workers=2, folder=folder) as discovery:
    print("ready", flush=True)
    discovery.run(lambda now: print(f"done {now.done}", flush=True))
    print(f"atoms {atoms_digest(discovery)}", flush=True)
"""


def killed(tasks: Sequence[Task], kills: int, *, seed: int = 0) -> tuple[str, int, int]:
    """Digest of the atoms after so many kills, how many kills hit, and how many finished tasks were lost."""
    dice = random.Random(seed)
    given = json.dumps([asdict(task) for task in tasks])
    hits = lost = finished = 0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", CHILD, folder, given]
        for _ in range(kills):
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(dice.uniform(0.05, 0.6))
            hits += child.poll() is None
            os.kill(child.pid, signal.SIGKILL)
            child.communicate()
            now = _done(Path(folder) / NAME)
            lost += max(0, finished - now)
            finished = max(finished, now)
        last = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    (line,) = [line for line in last.stdout.splitlines() if line.startswith("atoms ")]
    return line.split()[1], hits, lost


def _done(file: Path) -> int:
    import sqlite3

    database = sqlite3.connect(file)
    try:
        return int(database.execute("SELECT count(*) FROM queries WHERE stage = 'ran'").fetchone()[0])
    finally:
        database.close()


def within(rows: Sequence[Row], method: str, steps: int) -> float:
    """Share of tasks that a method solved with at most so many calls."""
    own = [row for row in rows if row.method == method]
    return sum(row.solved and row.steps <= steps for row in own) / len(own) if own else 0.0


def table(rows: Sequence[Row], marks: Sequence[int]) -> None:
    """A table of shares."""
    print(f"{'solved in % within … calls':28}" + "".join(f"{mark:>8}" for mark in marks))
    for method in dict.fromkeys(row.method for row in rows):
        print(f"{method:28}" + "".join(f"{100 * within(rows, method, mark):8.1f}" for mark in marks))


def show(tree: Sequence[Row], marks: Sequence[int]) -> None:
    """A table of shares, and the kinds that the tree search did not solve."""
    table(tree, marks)
    solved = [row for row in tree if row.solved]
    print(
        f"tree: {sum(row.iterations for row in tree) / len(tree):.1f} paths a task, "
        f"{sum(row.branching for row in tree) / len(tree):.2f} actions tried per state, "
        f"{sum(row.length for row in solved) / max(1, len(solved)):.1f} calls on the best path; "
        f"{100 * sum(row.iterations == 1 for row in solved) / len(tree):.1f} % solved by the first path"
    )
    kinds: dict[str, list[bool]] = defaultdict(list)
    for row in tree:
        kinds[row.kind].append(row.solved)
    missed = [f"{kind} {sum(done)}/{len(done)}" for kind, done in sorted(kinds.items()) if not all(done)]
    print(f"not solved by the tree search: {', '.join(missed) or 'none'}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.discovery", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tasks", type=int, default=100, help="multi-step tasks per seed")
    parser.add_argument("--rivals", type=int, default=25, help="tasks per seed for the other methods too; 0: none")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds of tasks, offices and draws")
    parser.add_argument("--steps", type=int, default=STEPS, help="calls per task")
    parser.add_argument("--same", type=int, default=30, help="tasks on which atoms are compared; 0: none")
    parser.add_argument("--kills", type=int, default=KILLS, help="0: none")
    parser.add_argument("--held-out", type=int, default=60, help="tasks searched, and as many not; 0: none")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every row there")
    options = parser.parse_args(arguments)

    bench = Bench(options.steps)
    others: list[Callable[[Task, str, int], Row]] = [bench.tree_ucb, bench.random, bench.depth_first]
    rows: list[Row] = []
    compared: list[Row] = []
    for seed in options.seeds:
        for number, (task, kind) in enumerate(multi_step(seed, options.tasks)):
            rows.append(bench.tree(task, kind, seed))
            if number < options.rivals:
                compared += [rows[-1], *(method(task, kind, seed) for method in others)]
    marks = [mark for mark in MARKS if mark <= options.steps] or [options.steps]
    print(f"{len(rows)} tasks")
    show(rows, marks)
    if compared:
        print(f"\n{len(compared) // (1 + len(others))} of them, with all methods")
        table(compared, marks)
    checks = [
        (
            within([row for row in rows if row.seed == seed], "tree", options.steps) >= WANTED,
            f"seed {seed}: {100 * within([r for r in rows if r.seed == seed], 'tree', options.steps):.1f} % of the "
            f"tasks solved >= {100 * WANTED:g} %, within 50 paths",
        )
        for seed in options.seeds
    ]
    if compared:
        for other in ("tree ucb", "random", "depth-first"):
            own, theirs = within(compared, "tree", options.steps), within(compared, other, options.steps)
            checks.append((own > theirs, f"{100 * own:.1f} % > {100 * theirs:.1f} % of {other} with as many calls"))
    if options.same:
        tasks = [task for task, _ in multi_step(options.seeds[0], options.same)]
        digests, report = by_workers(tasks, (1, 2, 3))
        print()
        checks.append((len(set(digests)) == 1, f"the same atoms with 1, 2 and 3 workers: {', '.join(digests)}"))
        print(
            f"{len(tasks)} tasks: {report.explored:,} calls explored became {report.atoms} atoms, "
            f"{report.compression:.1f} calls each"
        )
        if options.kills:
            found, hits, lost = killed(tasks, options.kills)
            checks.append((lost == 0, f"{hits} kills in the middle: {lost} finished tasks lost"))
            checks.append((found == digests[0], f"the same atoms after the kills: {found}"))
    if options.held_out:
        print(f"\nnext tool of {options.held_out} tasks that nobody searched, in %")
        print(f"{'atoms':28}{'kept':>8}{'calls':>8}{'first':>8}{f'best {BEST}':>8}{'or alike':>10}")
        for name, each in held_out(options.held_out).items():
            shares = f"{each.first:8.1f}{each.best:8.1f}{each.alike:10.1f}"
            print(f"{name:28}{each.atoms:8}{each.calls:8}{shares}")
    for holds, text in checks:
        print(f"{'holds' if holds else 'MISSED'}  {text}")
    if options.json_file is not None:
        options.json_file.write_text(
            json.dumps([asdict(row) for row in (*rows, *compared)], indent=1), encoding="utf-8"
        )
    return 0 if all(holds for holds, _ in checks) else 1


__all__ = ["Bench", "Row", "main"]


if __name__ == "__main__":
    sys.exit(main())
