"""Measure how many faults the package's tests notice, one changed line at a time.

    python -m benchmarks.mutants [--seed 0] [--each 4] [--jobs 1] [--json FILE] [--against FILE]

Each mutant is one change in one line of one file of TESTS: a comparison flipped, a constant nudged, a `not` dropped,
`and` and `or` swapped, or a function that returns at once. The tests listed for the file run in a copy of the tree.
A mutant that no test fails with has survived. Tests that fail without a mutant are left out.

`--json` writes the mutants and the test that noticed each. `--against` runs the mutants of such a file again, as far as
their lines are still there, and prints both shares: tests may be cut while the share falls by at most 2 points.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "langgraph_toolmem"
INERTIA: Final = "tests/methods/inertia/test_"
ARGUMENTS: Final = "tests/contract/test_arguments.py"
TESTS: Final[dict[str, str]] = {
    "inertia/guards.py": f"tests/unit/test_declarations.py {INERTIA}inertia_acting.py",
    "inertia/budget.py": f"{INERTIA}budget.py {INERTIA}inertia_acting.py",
    "inertia/novelty.py": f"{INERTIA}novelty.py",
    "inertia/crediting.py": f"{INERTIA}inertia_acting.py",
    "inertia/settings.py": "tests/unit/test_policy.py tests/apps/test_settings.py",
    "inertia/cases.py": f"{INERTIA}cases.py",
    "inertia/calibrated.py": f"{INERTIA}inertia_calibrated.py",
    "core/catalogue.py": f"tests/unit/test_declarations.py tests/unit/test_policy.py {ARGUMENTS}",
    "core/lifecycle.py": " ".join(
        f"tests/core/test_{name}.py" for name in ("memory_idempotence", "episodes", "verdicts")
    ),
    "core/ledger.py": "tests/core/test_ledger.py tests/core/test_verdicts.py",
    "core/jobs.py": (
        "tests/contract/test_jobs.py tests/core/test_reflection_queue.py tests/core/test_reflection_worker.py"
    ),
    "core/forgetting.py": f"tests/core/test_forgetting.py tests/core/test_memory_users.py {ARGUMENTS}",
    "graph/tool_graph.py": "tests/unit/test_tool_graph.py tests/unit/test_graph_events.py",
    "graph/cases.py": "tests/unit/test_graph_cases.py",
    "graph/learning.py": "tests/unit/test_graph_learning.py tests/unit/test_graph_values.py",
    "runs/trajectory.py": "tests/unit/test_trajectory.py",
    "runs/messages.py": "tests/unit/test_trajectory.py tests/unit/test_tools.py",
    "runs/tools.py": "tests/unit/test_tools.py tests/unit/test_described.py",
    "stores/events.py": "tests/crash/test_event_log.py",
    "stores/shared.py": "tests/crash/test_shared_log.py",
    "sit/suggest.py": f"tests/methods/sit/test_sit_suggest.py {ARGUMENTS}",
    "entries/recall.py": f"tests/methods/entries/test_recall_memory.py {ARGUMENTS}",
    "navigator/plan/chains.py": "tests/methods/navigator/test_navigator_plan.py tests/apps/test_chains_offer.py",
    "atoms/retrieve.py": "tests/methods/atoms/test_sga_retrieve.py tests/methods/atoms/test_sga_rules.py",
    "turn/middleware.py": f"tests/contract/test_steps.py tests/apps/test_middleware.py {ARGUMENTS}",
    "turn/hints.py": "tests/unit/test_hints.py tests/contract/test_steps.py",
    "turn/placement.py": "tests/unit/test_placement.py tests/apps/test_coexistence.py",
    "turn/recorder.py": "tests/apps/test_nodes.py tests/apps/test_coexistence.py",
    "nodes/shortcut.py": "tests/apps/test_nodes.py tests/apps/test_settings.py",
    "nodes/hints.py": "tests/contract/test_steps.py tests/apps/test_entries_apps.py tests/apps/test_sit_apps.py",
    "middleware/assembly.py": "tests/apps/test_middleware.py tests/apps/test_coexistence.py",
    "inertia/prefetch/serve.py": "tests/apps/test_prefetch_apps.py tests/methods/inertia/test_prefetch.py",
}
"""The files of the package that are changed, and the tests that concern each."""
POINTS: Final = 2
"""The share that is noticed may fall by so many points."""
SECONDS: Final = 300
"""A mutant whose tests take longer counts as noticed: something hangs."""
PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-p", "no:randomly"),
    *("--hypothesis-profile=ci", "-m", "not slow and not long"),
)
"""The profile `ci` of hypothesis draws the same examples each time and knows no deadline."""

FLIPPED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True)
class Mutant:
    """One change: `new` in the place of the text from `begin` to `end` (line, column in bytes)."""

    file: str
    begin: tuple[int, int]
    end: tuple[int, int]
    new: str
    what: str

    def applied(self, source: str) -> str:
        """The changed source."""
        lines = [line.encode() for line in source.splitlines(keepends=True)]
        before = b"".join(lines[: self.begin[0] - 1]) + lines[self.begin[0] - 1][: self.begin[1]]
        after = lines[self.end[0] - 1][self.end[1] :] + b"".join(lines[self.end[0] :])
        return (before + self.new.encode() + after).decode()


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """All mutants of a file. Texts for a person and documentation are left alone."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for old, new, what in _changes(node):
            begin, end = (old.lineno, old.col_offset), (old.end_lineno or 0, old.end_col_offset or 0)
            if begin != end and begin[0] == end[0]:
                yield Mutant(file, begin, end, new, what)
        if isinstance(node, ast.FunctionDef) and (early := _early(node)):
            first = next(n for n in node.body if not _is_text(n))
            at = (first.lineno, first.col_offset)
            new = f"{early}\n{' ' * first.col_offset}"
            yield Mutant(file, at, at, new, f"{node.name}: {early}")


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr, str, str]]:
    """(what is replaced, by what, in words) of one node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        changed = ast.Compare(node.left, [FLIPPED[type(node.ops[0])]()], node.comparators)
        yield node, f"({ast.unparse(changed)})", f"{ast.unparse(node)} -> {ast.unparse(changed)}"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"({ast.unparse(node.operand)})", f"{ast.unparse(node)}: not dropped"
    elif isinstance(node, ast.BoolOp):
        other = ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        yield node, f"({ast.unparse(other)})", f"{ast.unparse(node)}: and/or swapped"
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        new = node.value + 1 if isinstance(node.value, int) else node.value * 1.5 or 0.5
        yield node, f"({new!r})", f"{node.value!r} -> {new!r}"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _early(function: ast.FunctionDef) -> str:
    """How a function ends at once, if that is a fault: those that object say "", those that note do nothing."""
    said = ast.unparse(function.returns) if function.returns else ""
    if function.name.startswith("__"):
        return ""
    return {"str": "return ''", "None": "return None", "bool": "return False"}.get(said, "")


def found(file: str) -> list[Mutant]:
    """Return all mutants of a file as it is now, in the order of its text."""
    source = (ROOT / PACKAGE / file).read_text()
    return sorted(mutants_of(file, source), key=lambda mutant: (mutant.begin, mutant.end, mutant.new))


def drawn(seed: int, each: int) -> list[Mutant]:
    """Draw so many mutants of each file, in turns. What is drawn of one file does not depend on the others."""
    per_file = []
    for file in TESTS:
        mutants = found(file)
        random.Random(f"{seed} {file}").shuffle(mutants)
        per_file.append(mutants[:each])
    return [mutant for row in zip_longest(*per_file) for mutant in row if mutant]


class Kept(NamedTuple):
    """A mutant as `--json` writes it: the text of its line and the column in it, which later edits leave alone."""

    file: str
    number: int
    line: str
    column: int
    what: str
    new: str
    by: str


def kept(mutant: Mutant, by: str) -> Kept:
    """Return what identifies a mutant later, with the test that noticed it."""
    line = (ROOT / PACKAGE / mutant.file).read_text().splitlines()[mutant.begin[0] - 1]
    column = mutant.begin[1] - (len(line) - len(line.lstrip()))
    return Kept(mutant.file, mutant.begin[0], line.strip(), column, mutant.what, mutant.new.strip(), by)


def again(written: list[Kept]) -> dict[Mutant, str]:
    """Return the mutants that can still be made, with the test that noticed each before."""
    there: dict[str, list[tuple[Mutant, Kept]]] = {}
    for file in {each.file for each in written} & TESTS.keys():
        there[file] = [(mutant, kept(mutant, "")) for mutant in found(file)]
    chosen: dict[Mutant, str] = {}
    for old in written:
        same = [(mutant, now) for mutant, now in there.get(old.file, []) if now[2:-1] == old[2:-1]]
        if left := [pair for pair in same if pair[0] not in chosen]:
            chosen[min(left, key=lambda pair: abs(pair[1].number - old.number))[0]] = old.by
    return chosen


_mine = threading.local()
"""The copy of the tree that a thread of the pool works in."""


def copy_tree(folder: str) -> None:
    """Give this thread of the pool its own copy of the tree."""
    _mine.copy = Path(tempfile.mkdtemp(dir=folder))
    for name in (PACKAGE, "tests", "benchmarks", "examples", "docs"):
        shutil.copytree(ROOT / name, _mine.copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, _mine.copy)


def failing(options: Sequence[str], *, write_bytecode: bool) -> list[str]:
    """Return the tests that fail with the copy as it is."""
    bytecode = "" if write_bytecode else "1"
    where = {**os.environ, "PYTHONPATH": str(_mine.copy), "PYTHONDONTWRITEBYTECODE": bytecode}
    process = subprocess.Popen(
        [*PYTEST, *options], cwd=_mine.copy, env=where, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return ["too slow"]
    finally:
        with suppress(ProcessLookupError):  # with what the tests left running
            os.killpg(process.pid, signal.SIGKILL)
    failed = [line.split()[1] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed or [f"exit {process.returncode}"] * bool(process.returncode)


def unchanged(file: str) -> tuple[list[str], float]:
    """Run the tests of a file without a mutant; return those that fail and how many seconds they all took."""
    begun = time.monotonic()
    return failing(TESTS[file].split(), write_bytecode=True), time.monotonic() - begun


def noticed(mutant: Mutant, left_out: Sequence[str]) -> str:
    """Return the first test that notices a mutant; "" if none does."""
    changed, original = _mine.copy / PACKAGE / mutant.file, ROOT / PACKAGE / mutant.file
    changed.write_text(mutant.applied(original.read_text()))
    options = ["-x", *TESTS[mutant.file].split(), *(f"--deselect={name}" for name in left_out)]
    try:
        return next(iter(failing(options, write_bytecode=False)), "")
    finally:
        shutil.copy2(original, changed)


def share(by: list[str]) -> float:
    """Return how many in a hundred were noticed."""
    return 100 * sum(map(bool, by)) / max(1, len(by))


def main() -> int:
    """Draw mutants or read them, run the tests for each, print who noticed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--each", type=int, default=4, help="mutants of each file")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--json", type=Path, help="where to write the mutants and who noticed them")
    options.add_argument("--against", type=Path, help="run the mutants of this file again")
    chosen = options.parse_args()
    before: dict[Mutant, str] = {}
    if chosen.against:
        written = [Kept(**each) for each in json.loads(chosen.against.read_text())]
        before = again(written)
        print(f"{len(before)} of {len(written)} mutants can still be made.")
    mutants = list(before) or drawn(chosen.seed, chosen.each)
    files = list(dict.fromkeys(mutant.file for mutant in mutants))
    done: dict[Mutant, str] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(chosen.jobs, initializer=copy_tree, initargs=(folder,)) as pool,
    ):
        left_out: dict[str, list[str]] = {}
        for file, (failed, seconds) in zip(files, pool.map(unchanged, files), strict=True):
            if any("::" not in each for each in failed):
                raise SystemExit(f"The tests of {file} do not run without a mutant: {failed}")
            left_out[file] = failed
            print(f"{seconds:5.1f} s  {file}", *(f"\n  left out, fails without a mutant: {each}" for each in failed))
        by_whom = pool.map(noticed, mutants, [left_out[mutant.file] for mutant in mutants])
        for mutant, by in zip(mutants, by_whom, strict=True):
            done[mutant] = by
            name = by.rpartition("::")[2] or "SURVIVED"
            print(f"{name:44.44}  {mutant.file}:{mutant.begin[0]}  {mutant.what[:90]}", flush=True)
            if chosen.json:
                lines = [kept(each, by)._asdict() for each, by in done.items()]
                chosen.json.write_text(json.dumps(lines, indent=1) + "\n")
    now = share(list(done.values()))
    print(f"\n{sum(map(bool, done.values()))} of {len(done)} noticed: {now:.1f} %")
    if not before:
        return 0
    then = share([before[mutant] for mutant in done])
    print(f"before: {then:.1f} %; it may fall by at most {POINTS} points.")
    return int(now < then - POINTS)


if __name__ == "__main__":
    raise SystemExit(main())
