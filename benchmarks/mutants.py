"""How much of what is broken in the guards and bounds do the package's own tests notice?

    python -m benchmarks.mutants [--seed 0] [--count 24] [--jobs 2] [--tests PATH ...]

Each mutant is one change in one line of one file of FILES: a comparison flipped, a constant nudged, a `not` dropped,
`and` and `or` swapped, or a function that says "" (nothing to object) or does nothing at once. The tests run in a copy
of the tree. A mutant that no test fails with has survived; below LEAST noticed the command fails.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "langgraph_toolmem"
FILES: Final = (
    "inertia/guards.py",
    "inertia/budget.py",
    "inertia/novelty.py",
    "inertia/crediting.py",
    "inertia/settings.py",
    "core/declarations.py",
)
TESTS: Final = ("tests/methods/inertia", "tests/unit/test_declarations.py", "tests/unit/test_policy.py")
LEAST: Final = 0.9
SECONDS: Final = 400
"""A mutant whose tests take longer is noticed: something hangs."""

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


def drawn(seed: int, count: int) -> list[Mutant]:
    """Mutants by chance, the same number of each file as far as possible."""
    chance = random.Random(seed)
    per_file = []
    for file in FILES:
        found = sorted(mutants_of(file, (ROOT / PACKAGE / file).read_text()), key=lambda m: (m.begin, m.end, m.new))
        chance.shuffle(found)
        per_file.append(found)
    chosen = [found[n] for n in range(max(map(len, per_file))) for found in per_file if n < len(found)]
    return chosen[:count]


def noticed(mutant: Mutant, tests: Sequence[str]) -> str:
    """How the tests noticed a mutant; "" if they did not."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in (PACKAGE, "tests", "benchmarks", "examples", "docs"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
            shutil.copy(ROOT / name, copy)
        changed = copy / PACKAGE / mutant.file
        changed.write_text(mutant.applied(changed.read_text()))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
        where = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=copy, env=where, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return "too slow"
    if done.returncode == 0:
        return ""
    if done.returncode != 1:
        return "does not run"
    failed = (line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR")))
    return next(failed, "failed").rpartition("::")[2]


def main() -> int:
    """Draws mutants, runs the tests for each, prints who noticed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--count", type=int, default=24)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--tests", nargs="*", default=list(TESTS))
    chosen = options.parse_args()
    mutants = drawn(chosen.seed, chosen.count)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        found = []
        for mutant, by in zip(mutants, pool.map(lambda m: noticed(m, chosen.tests), mutants), strict=True):
            found.append(by)
            print(f"{by or 'SURVIVED':44.44}  {mutant.file}:{mutant.begin[0]}  {mutant.what[:90]}", flush=True)
    share = sum(map(bool, found)) / len(found)
    print(f"\n{sum(map(bool, found))} of {len(found)} noticed ({share:.0%}); at least {LEAST:.0%} are asked for.")
    return int(share < LEAST)


if __name__ == "__main__":
    raise SystemExit(main())
