"""What recall costs with many entries and with many users, through a memory with Chroma on disk.

``python -m benchmarks.recall_scale``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any, Final
from zlib import crc32

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.workload import Workload
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.core.listener import EndedRun, Import
from langgraph_toolmem.runs.trajectory import parse_run

P50_MS: Final = 15.0
"""What is asked for."""
SAMPLES: Final = 300
FINISHED: Final = 100
BATCH: Final = 5_000
PER_USER: Final = ("toolmem", "{user_id}")


@dataclass(frozen=True)
class Cost:
    """What was measured for one memory.

    Attributes:
        entries: of each user.
        users: how many.
        first_s: seconds of the first recall after opening, entries read from disk; with several users the median.
        p50_ms, p99_ms: milliseconds of a recall, all entries in RAM.
        found: entries recalled, mean.
        keep_ms: milliseconds of writing one entry, of many written together.
        finish_ms: milliseconds of `finish`, beyond the same `finish` without entries (median).
        disk_mb: on disk for each user, as allocated.
        ram_mb: resident, the process whole.
    """

    entries: int
    users: int
    first_s: float
    p50_ms: float
    p99_ms: float
    found: float
    keep_ms: float
    finish_ms: float
    disk_mb: float
    ram_mb: float


def measured(folder: Path, entries: int, users: int, seed: int) -> Cost:
    """One memory filled, closed, opened and asked."""
    drawn = Workload(20, seed=seed).runs(entries * users + SAMPLES + FINISHED)
    names = [f"user{number}@example.org" for number in range(users)]
    writing = 0.0
    with ToolMemory(folder, namespace=PER_USER) as memory:
        for name in track(names, description=f"{users} × {entries:,}", console=Console(stderr=True)):
            for start in range(0, entries, BATCH):
                size = min(BATCH, entries - start)
                user = memory.core.users.of(name)
                runs = [
                    EndedRun(parse_run(history, thread_id=run), user, _verdict(run))
                    for run, history in islice(drawn, size)
                ]
                before = perf_counter()
                memory.entries.imported(Import(runs))
                writing += perf_counter() - before
    generator = random.Random(seed)
    queries = [messages[0]["content"] for _, messages in islice(drawn, SAMPLES)]
    with ToolMemory(folder, namespace=PER_USER) as memory:
        firsts = [_timed(memory, queries[0], name)[0] for name in names[: min(users, 50)]]
        for name in names:
            memory.entries.recall(queries[0], user_id=name)
        times, found = zip(*(_timed(memory, query, generator.choice(names)) for query in queries), strict=True)
        finish = _finish_ms(memory, list(drawn), names[0])
        ram = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    disk = sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file()) / 1e6 / users
    return Cost(
        entries,
        users,
        median(firsts),
        median(times) * 1e3,
        quantiles(times, n=100)[98] * 1e3,
        sum(found) / len(found),
        writing / entries / users * 1e3,
        finish,
        disk,
        ram,
    )


def _verdict(thread_id: str) -> float:
    return float(crc32(thread_id.encode()) % 4 > 0)


def _timed(memory: ToolMemory, query: str, user: str) -> tuple[float, int]:
    start = perf_counter()
    found = memory.entries.recall(query, user_id=user)
    return perf_counter() - start, len(found)


def _finish_ms(memory: ToolMemory, runs: Sequence[tuple[str, list[dict[str, Any]]]], user: str) -> float:
    with ToolMemory.ephemeral(namespace=PER_USER) as bare:
        took: list[float] = []
        for thread_id, messages in runs:
            before = perf_counter()
            bare.finish(messages, thread_id=thread_id, success=True, user_id=user)
            middle = perf_counter()
            memory.finish(messages, thread_id=thread_id, success=True, user_id=user)
            took.append((perf_counter() - middle) - (middle - before))
            memory.flush()  # between runs of a host, there is time
    return median(took) * 1e3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a table; 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, nargs="*", default=[1_000, 10_000, 100_000], help="of one user")
    parser.add_argument("--users", type=int, default=1_000, help="how many users with 100 entries each; 0: leave out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    given = parser.parse_args(arguments)
    sizes = [(entries, 1) for entries in given.entries] + ([(100, 1), (100, given.users)] if given.users else [])
    costs = []
    for entries, users in sizes:
        with tempfile.TemporaryDirectory() as folder:
            costs.append(measured(Path(folder), entries, users, given.seed))
    table = Table(title=f"Recall, built-in embedder, Chroma on disk (target: p50 ≤ {P50_MS:g} ms)")
    for head in ("entries", "users", "p50", "p99", "first", "found", "write one", "finish +", "disk/user", "RAM"):
        table.add_column(head, justify="right")
    for cost in costs:
        table.add_row(
            f"{cost.entries:,}",
            f"{cost.users:,}",
            f"{cost.p50_ms:.2f} ms",
            f"{cost.p99_ms:.2f} ms",
            f"{cost.first_s:.2f} s",
            f"{cost.found:.1f}",
            f"{cost.keep_ms:.2f} ms",
            f"{cost.finish_ms:.2f} ms",
            f"{cost.disk_mb:.2f} MB",
            f"{cost.ram_mb:,.0f} MB",
        )
    Console(width=140).print(table)
    if given.json:
        given.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2))
    return int(any(cost.p50_ms > P50_MS for cost in costs))


if __name__ == "__main__":
    sys.exit(main())
