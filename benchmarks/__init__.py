"""Reproducible measurements of this package: run ``python -m benchmarks.<name>``. See README.md in this folder."""

from __future__ import annotations

import json
import multiprocessing
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table

J = TypeVar("J")
R = TypeVar("R")
DATA: Final = Path(__file__).resolve().parents[2] / "shared" / "data"


def load(file: Path) -> Any:
    """Read JSON."""
    return json.loads(file.read_text(encoding="utf-8"))


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Read JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def command(name: str, about: str | None, *, recorded: bool = True) -> ArgumentParser:
    """Return a parser with the options that all benchmarks have; `recorded`: it reads recorded runs."""
    parser = ArgumentParser(prog=f"python -m benchmarks.{name}", description=(about or "").split("\n")[0])
    if recorded:
        parser.add_argument("--data", type=Path, default=DATA, help="where the sets are")
    parser.add_argument("--json", type=Path, help="write every figure there")
    return parser


def present(options: Namespace, names: Iterable[str], *, queries: bool = False) -> list[str]:
    """Return the sets that are there, and name the others; `queries`: a set may have queries in place of runs."""
    files = ("trajectories.jsonl", "queries.jsonl") if queries else ("trajectories.jsonl",)
    found = []
    for name in names:
        if any((options.data / name / file).is_file() for file in files):
            found.append(name)
        else:
            print(f"skipped: no recorded runs in {name} (looked for {options.data / name})")
    return found


def done(work: Callable[[J], R], jobs: Sequence[J], processes: int, name: str) -> Iterator[R]:
    """Yield the results of the jobs in their order; show on stderr how many are done."""

    def results() -> Iterator[R]:
        if processes == 1:
            yield from map(work, jobs)
            return
        with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield from pool.map(work, jobs)

    return iter(track(results(), name, len(jobs), console=Console(stderr=True), transient=True))


def show(table: Table) -> None:
    """Print a table, as wide as it needs to be where the output is no terminal."""
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def conclude(checks: Iterable[tuple[bool, str]], figures: Any, file: Path | None) -> int:
    """Print whether each target holds, write the figures to a file if one is named, and return the exit code."""
    for holds, text in checks:
        print(f"{'holds ' if holds else 'MISSED'}  {text}")
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0
