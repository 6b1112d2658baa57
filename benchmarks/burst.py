"""Cost of a finished run until everything of it is written, and of a burst of runs.

    python -m benchmarks.burst [--runs 60] [--burst 500] [--set tau2_retail_gpt41mini] [--json FILE]

Recorded runs are handed to `finish` of a memory in a folder, with the default methods and the built-in embedder.
**alone**: `flush` waits after each run. **burst**: all are handed over first. The figures are processor time of the
whole process per run (the runs of the default set have 13 turns on average), of it the host's thread, which learns, and
the seconds until all is written.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks import conclude, lines_of
from benchmarks.replay import DATA
from langgraph_toolmem import ToolMemory

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
    """Return milliseconds of processor time per run, those of the host's thread, and seconds until all is written."""
    tools = json.loads((folder / "tools.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as place, ToolMemory(place, tools=tools) as memory:
        given = list(recorded(folder, WARM + runs))
        for run in given[:WARM]:
            finish(memory, run)
        memory.flush()
        begun, spent, mine = time.monotonic(), time.process_time(), time.thread_time()
        for run in given[WARM:]:
            finish(memory, run)
            if alone:
                memory.flush()
        done = memory.flush(timeout=10 * TARGET_SECONDS)
        found = {
            "done": done,
            "ms": 1e3 * (time.process_time() - spent) / runs,
            "host_ms": 1e3 * (time.thread_time() - mine) / runs,
            "seconds": time.monotonic() - begun,
        }
        report = memory.report()
        wanted = sum(len(memory.core.read(each["messages"], each["id"]).episodes()) for each in given)
        kept = sum(1 for _ in memory.entries.rows.all(memory.core.users.of(None), retired=True))
        return {**found, "kept": kept, "episodes": wanted, "waiting": report.jobs.pending + report.jobs.dead}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=60, help="that are written one by one")
    parser.add_argument("--burst", type=int, default=500, help="runs at once")
    parser.add_argument("--set", default="tau2_retail_gpt41mini")
    parser.add_argument("--data", type=Path, default=DATA, help="where the sets are")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    table = Table("", "runs", "CPU ms a run", "host's thread", "seconds", "episodes kept")
    found: dict[str, Any] = {}
    for name, runs in (("alone", options.runs), ("burst", options.burst)):
        if runs:
            got = measured(options.data / options.set, runs, alone=name == "alone")
            found[name] = {"runs": runs, **got}
            kept = f"{got['kept']:,} of {got['episodes']:,}"
            cells = (f"{got[each]:.1f}" for each in ("ms", "host_ms", "seconds"))
            table.add_row(name, f"{runs:,}", *cells, kept)
    Console().print(table)
    checks = [(got["ms"] <= TARGET_MS, f"{name}: {got['ms']:.1f} <= {TARGET_MS} ms") for name, got in found.items()]
    if burst := found.get("burst"):
        words = f"burst: written in {burst['seconds']:.1f} <= {TARGET_SECONDS} s"
        checks.append((burst["done"] and not burst["waiting"] and burst["seconds"] <= TARGET_SECONDS, words))
    return conclude(checks, found, options.json)


if __name__ == "__main__":
    sys.exit(main())
