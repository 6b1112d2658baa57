"""Reproducible measurements of this package: run ``python -m benchmarks.<name>``. See README.md in this folder."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

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


def present(options: Namespace, names: Iterable[str]) -> list[str]:
    """Return the sets that are there, and name the others."""
    found = []
    for name in names:
        if any((options.data / name / file).is_file() for file in ("trajectories.jsonl", "queries.jsonl")):
            found.append(name)
        else:
            print(f"skipped: no recorded runs in {name} (looked for ../shared/data/{name})")
    return found


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
