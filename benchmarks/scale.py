"""Time and memory as the event log of a memory grows.

    python -m benchmarks.scale [--events 1000 10000 100000] [--tools 20] [--samples 200] [--json FILE]

A synthetic workload (`workload.py`) is learned into a folder. At each number of events: the time to append and apply
one record, to learn a tool call, to predict the next call of a run that has begun, and to open the folder in a fresh
process up to its first decision, with the memory that it takes there. Times are of the processor.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from rich.table import Table

from benchmarks import command, conclude, show
from benchmarks.workload import Workload
from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.runs.trajectory import parse_run

PAPER: Final = InertiaPolicy.paper()
"""Its shadow predictions are quick, so the folder is filled with it."""
OPEN_S, OPEN_MIB, APPEND_MS = 1.0, 400.0, 0.3
"""Targets: opening 100,000 events, and the median of an append with its application."""


def rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def learn(memory: ToolMemory, runs: Iterator[tuple[str, Any]], count: int, **options: Any) -> Iterator[float]:
    """Learn so many runs; yield the seconds of each per tool call."""
    for _ in range(count):
        thread_id, messages = next(runs)
        run, user = parse_run(messages, thread_id=thread_id), memory.core.users.of(None)
        begun = time.thread_time()
        memory.core.lifecycle.learn(run, user, last_turn_too=True, **options)
        yield (time.thread_time() - begun) / sum(message["role"] == "tool" for message in messages)


def appends(memory: ToolMemory, runs: Iterator[tuple[str, Any]], count: int) -> list[float]:
    """Seconds of each append with its application while so many runs are learned."""
    found, real = list[float](), memory.core.apply

    def timed(*args: Any, **options: Any) -> bool:
        begun = time.thread_time()
        new = real(*args, **options)
        found.append(time.thread_time() - begun)
        return new

    memory.core.apply = timed  # type: ignore[method-assign]
    list(learn(memory, runs, count, inertia={"policy": PAPER}))
    memory.core.apply = real  # type: ignore[method-assign]
    return found


def grown(tools: int, sizes: Sequence[int], samples: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Fill a memory, and yield the figures at each number of events."""
    workload = Workload(tools)
    asked = [messages[:5] for _, messages in workload.runs(samples)]  # after two calls
    runs = workload.runs(10**9)
    for size in sizes:
        with ToolMemory(folder, tools=workload.schemas()) as memory:
            while memory.core.store.upto < size:
                list(learn(memory, runs, 1, inertia={"policy": PAPER}))
            found: dict[str, Any] = {"events": memory.core.store.upto}
            found["append_ms"] = p50_p95(appends(memory, runs, samples))
            found["learn_ms"] = p50_p95(list(learn(memory, runs, samples)))
            predictions = []
            for messages in asked:
                begun = time.thread_time()
                memory.inertia.predict(messages)
                predictions.append(time.thread_time() - begun)
            found["predict_ms"] = p50_p95(predictions)
        command = [sys.executable, "-m", "benchmarks.scale", "--open", str(folder), "--tools", str(tools)]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, check=True)
        yield found | json.loads(done.stdout)


def p50_p95(seconds: Sequence[float]) -> list[float]:
    return [1e3 * median(seconds), 1e3 * quantiles(seconds, n=20, method="inclusive")[-1]]


def opened(folder: Path, tools: int) -> dict[str, float]:
    """Seconds from opening a folder to its first decision, and the MiB that it takes in this process."""
    workload = Workload(tools)
    messages = next(workload.runs(1))[1][:5]
    with ToolMemory.ephemeral(tools=workload.schemas()) as memory:
        memory.inertia.predict(messages)  # what is imported at the first use is not the folder's
    gc.collect()
    before, begun = rss_mib(), time.process_time()
    with ToolMemory(folder, tools=workload.schemas()) as memory:
        memory.inertia.predict(messages)
        seconds = time.process_time() - begun
        gc.collect()
        return {"open_s": seconds, "open_mib": rss_mib() - before}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("scale", __doc__, recorded=False)
    parser.add_argument("--events", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--tools", type=int, default=20)
    parser.add_argument("--samples", type=int, default=200, help="runs that each time is taken over")
    parser.add_argument("--open", type=Path, help=SUPPRESS)
    options = parser.parse_args(arguments)
    if options.open is not None:
        print(json.dumps(opened(options.open, options.tools)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = list(grown(options.tools, sorted(options.events), options.samples, Path(folder)))
    table = Table("events", "append, ms", "learn a call, ms", "predict, ms", "open, s", "opened, MiB")
    for each in found:
        pairs = (" / ".join(f"{value:.2f}" for value in each[name]) for name in ("append_ms", "learn_ms", "predict_ms"))
        table.add_row(f"{each['events']:,}", *pairs, f"{each['open_s']:.2f}", f"{each['open_mib']:.0f}")
    show(table)
    last = found[-1]
    bounds = (
        ("append with apply, p50 ms", last["append_ms"][0], APPEND_MS),
        ("open to the first decision, s", last["open_s"], OPEN_S),
        ("memory once opened, MiB", last["open_mib"], OPEN_MIB),
    )
    checks = [(value <= most, f"{name}: {value:.2f} <= {most:g}") for name, value, most in bounds]
    return conclude(checks, found, options.json)


if __name__ == "__main__":
    sys.exit(main())
