"""Cost of a finished run until everything of it is written, and of a burst of runs.

    python -m benchmarks.burst [--runs 60] [--burst 500] [--data FOLDER] [--json FILE]

Recorded runs are handed to `finish` of a memory in a folder, with the default methods and the built-in embedder.
**alone**: `flush` waits after each run. **burst**: all are handed over first. The figures are processor time of the
whole process per run (the runs have 13 turns on average), and the seconds until all is written.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from benchmarks import command, conclude, lines_of, load, present, show
from langgraph_toolmem import ToolMemory

SET: Final = "tau2_retail_gpt41mini"
WARM: Final = 5
"""Runs before those that are measured: they import and make files."""
TARGET_MS: Final = 80.0
TARGET_SECONDS: Final = 40.0


def recorded(folder: Path, most: int) -> Iterator[dict[str, Any]]:
    """Runs of a set, from the beginning again under other names where there are too few."""
    lines = lines_of(folder / "trajectories.jsonl")
    return ({**lines[i % len(lines)], "id": f"run-{i}"} for i in range(most))


def finish(memory: ToolMemory, run: dict[str, Any]) -> None:
    """Hand a run over."""
    memory.finish(run["messages"], thread_id=run["id"], success=run["success"])


def measured(folder: Path, runs: int, *, alone: bool) -> dict[str, Any]:
    """Return milliseconds of processor time per run, and seconds until all is written."""
    tools = load(folder / "tools.json")
    with tempfile.TemporaryDirectory() as place, ToolMemory(place, tools=tools) as memory:
        given = list(recorded(folder, WARM + runs))
        for run in given[:WARM]:
            finish(memory, run)
        memory.flush()
        begun, spent = time.monotonic(), time.process_time()
        for run in given[WARM:]:
            finish(memory, run)
            if alone:
                memory.flush()
        done = memory.flush(timeout=10 * TARGET_SECONDS)
        spent, seconds = time.process_time() - spent, time.monotonic() - begun
        jobs = memory.report().jobs
        done = done and not jobs.pending + jobs.dead
        return {"runs": runs, "ms": 1e3 * spent / runs, "seconds": seconds, "done": done}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("burst", __doc__)
    parser.add_argument("--runs", type=int, default=60, help="that are written one by one")
    parser.add_argument("--burst", type=int, default=500, help="runs at once")
    options = parser.parse_args(arguments)
    if not present(options, [SET]):
        return 0
    table = Table("", "runs", "CPU ms a run", "seconds")
    found: dict[str, Any] = {}
    for name, runs in (("alone", options.runs), ("burst", options.burst)):
        if runs:
            got = found[name] = measured(options.data / SET, runs, alone=name == "alone")
            table.add_row(name, f"{runs:,}", f"{got['ms']:.1f}", f"{got['seconds']:.1f}")
    show(table)
    checks = [(got["ms"] <= TARGET_MS, f"{name}: {got['ms']:.1f} <= {TARGET_MS} ms") for name, got in found.items()]
    if burst := found.get("burst"):
        words = f"burst: written in {burst['seconds']:.1f} <= {TARGET_SECONDS} s"
        checks.append((burst["done"] and burst["seconds"] <= TARGET_SECONDS, words))
    return conclude(checks, found, options.json)


if __name__ == "__main__":
    sys.exit(main())
