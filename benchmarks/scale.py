"""Time, memory and disk against the number of past runs and of tools, on a synthetic workload.

``python -m benchmarks.scale``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.workload import Workload
from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.stores.events import SNAPSHOT

T = TypeVar("T")
Messages = list[dict[str, Any]]

TOOLS: Final = (20, 200, 1000)
SIZES: Final = (1_000, 10_000, 100_000)
SAMPLES: Final = 300
FULLY_LEARNED: Final = 1_000
"""Runs before each size that are learned with the default policy's shadow predictions."""
PAPER: Final = InertiaPolicy.paper(max_share=None, max_in_a_row=None)
"""Without its caps, which would end most decisions before anything is looked up."""
CALIBRATED: Final = InertiaPolicy()
_ROOT: Final = Path(__file__).resolve().parents[1]

MICRO, MILLI = 1e6, 1e3
PAPER_US, RATIO, LEARN_MS, OPEN_S, OVERHEAD_MS = 50.0, 1.3, 1.0, 3.0, 1.0
"""What is asked for."""


# --- measuring ----------------------------------------------------------------------------------------------


def timed(action: Callable[[T], object], inputs: Iterable[T]) -> list[float]:
    """Seconds of each call."""
    found = []
    for value in inputs:
        start = perf_counter()
        action(value)
        found.append(perf_counter() - start)
    return found


def p50_p95(seconds: Sequence[float], unit: float) -> list[float]:
    """Median and 95th percentile, in `unit`."""
    return [median(seconds) * unit, quantiles(seconds, n=20, method="inclusive")[-1] * unit]


def rss_mib() -> float:
    """Resident memory of this process in MiB; where the system does not say, its highest value so far."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def half_way(messages: Messages) -> Messages:
    """A run up to where the model comes after its second call: the paper's window is full."""
    return messages[:5]


def measure(memory: ToolMemory, begun: Sequence[Messages]) -> dict[str, list[float]]:
    """Prediction in µs, p50 and p95, on runs that have begun.

    `decide` starts from a state that was read already, outputs included, `predict` from the messages. Each state is
    asked once.
    """
    inertia = memory.inertia
    runs = [parse_run(messages) for messages in begun]
    found = {"read": p50_p95(timed(parse_run, begun), MICRO)}
    for policy in (PAPER, CALIBRATED):
        states = [RunState.of(run) for run in runs]
        for state in states:
            for index in state.outputs.values():
                state.observation(index)  # addressing the outputs is a part of reading the messages

        def decide(pair: tuple[RunState, str], policy: InertiaPolicy = policy) -> object:
            return inertia.decide(pair[0], thought=pair[1], policy=policy, user=None)

        def predict(messages: Messages, policy: InertiaPolicy = policy) -> object:
            return memory.inertia.predict(messages, policy=policy)

        thoughts = [run.thought or "I should look for the next one." for run in runs]
        found[f"{policy.kind} decide"] = p50_p95(timed(decide, zip(states, thoughts, strict=True)), MICRO)
        found[f"{policy.kind} predict"] = p50_p95(timed(predict, begun), MICRO)
    return found


def learn(memory: ToolMemory, run: Run, policy: InertiaPolicy) -> None:
    """A whole run, with the record of the policy's predictions."""
    memory.core.lifecycle.learn(run, memory.core.users.of(None), last_turn_too=True, inertia={"policy": policy})


def learning(memory: ToolMemory, runs: Sequence[tuple[str, Messages]]) -> dict[str, list[float]]:
    """Milliseconds per call to learn whole new runs, p50 and p95, each way on one half of them.

    learn: learning alone, of a run that was read. observe: reading, shadow prediction of each turn, learning.
    """
    half = len(runs) // 2
    read = [parse_run(messages, thread_id=thread_id) for thread_id, messages in runs[:half]]
    alone = timed(lambda run: learn(memory, run, PAPER), read)
    whole = timed(lambda run: memory.observe(run[1], thread_id=run[0]), runs[half:])
    calls = [sum(m["role"] == "tool" for m in messages) for _, messages in runs]
    each = [s / n for s, n in zip(alone + whole, calls, strict=True)]
    return {"learn_ms": p50_p95(each[:half], MILLI), "observe_ms": p50_p95(each[half:], MILLI)}


def appending(runs: Sequence[tuple[str, Messages]]) -> list[float]:
    """Microseconds to append one turn's record to a log of its own and to apply it, p50 and p95."""
    records: list[tuple[str | None, Any]] = []
    with ToolMemory.ephemeral() as fresh:
        apply = fresh.core.apply

        def keep(key: str | None, record: Any, **whose: Any) -> bool:
            records.append((key, deepcopy(record)))
            return apply(key, record, **whose)

        fresh.core.apply = keep  # type: ignore[method-assign]
        for thread_id, messages in runs:
            learn(fresh, parse_run(messages, thread_id=thread_id), CALIBRATED)
    with tempfile.TemporaryDirectory() as folder, ToolMemory(folder) as kept:
        return p50_p95(timed(lambda each: kept.core.apply(*each), records), MICRO)


def overhead(tools: int) -> dict[str, float]:
    """Milliseconds a step where there is nothing to offer: a history of 20 messages, a memory that knows no more.

    predict: reading and deciding in an empty memory. step: `begin_turn` when all but the last call of the history
    was seen as it happened. whole: `begin_turn` when the whole history is new (a memory added in mid-run).
    """
    workload = Workload(max(tools, 20), seed=1)
    schemas = workload.schemas()
    history = _long_history(workload)
    found: dict[str, list[float]] = {"predict": [], "step": [], "whole": []}
    for sample in range(60):
        for kind, seconds in found.items():
            with ToolMemory.ephemeral(tools=schemas) as memory:
                if kind == "step":
                    for seen in range(2, len(history), 2):
                        memory.inertia.begin_turn(history[:seen], thread_id=f"{sample}")
                start = perf_counter()
                if kind == "predict":
                    memory.inertia.predict(history)
                else:
                    memory.inertia.begin_turn(history, thread_id=f"{sample}")
                seconds.append(perf_counter() - start)
    return {kind: median(seconds) * MILLI for kind, seconds in found.items()}


def _long_history(workload: Workload) -> Messages:
    """A system message, a user message and nine answered calls of different tools."""
    steps: dict[str, Messages] = {}
    for _, messages in workload.runs(2000):
        for asked, answered in zip(messages[1:-1:2], messages[2:-1:2], strict=True):
            steps.setdefault(answered["name"], [asked, answered])
        if len(steps) >= 9:
            break
    start = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Do all of it for Ana Adler."}]
    return [*start, *(m for pair in islice(steps.values(), 9) for m in pair)]


# --- one number of tools, in a process of its own -----------------------------------------------------------


def grow(tools: int, sizes: Sequence[int], folder: Path, samples: int) -> dict[str, Any]:
    """Fills a memory on disk and measures it at each size.

    The FULLY_LEARNED runs before each size are learned with the default policy's shadow predictions, the others
    with the paper's, which are quicker: sequences, sources and requests are the same, and the record is there.
    """
    workload = Workload(tools)
    schemas = workload.schemas()
    begun = [half_way(messages) for _, messages in workload.runs(samples)]
    before = rss_mib()
    memory = ToolMemory(folder, tools=schemas)
    known, longest = 0, 0.0
    found: list[dict[str, Any]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{tools} tools: past runs", total=sizes[-1])
        for size in sizes:
            for thread_id, messages in workload.runs(max(0, size - samples - known)):
                run = parse_run(messages, thread_id=thread_id)
                policy = CALIBRATED if known >= size - samples - FULLY_LEARNED else PAPER
                start = perf_counter()
                learn(memory, run, policy)
                longest = max(longest, perf_counter() - start)
                known += 1
                progress.update(task, completed=known)
            learned = learning(memory, list(workload.runs(samples)))
            known += samples
            gc.collect()
            entry: dict[str, Any] = {
                "tools": tools, "runs": known, "times_us": measure(memory, begun), **learned,
                "longest_ms": longest * MILLI, "rss_mib": rss_mib() - before,
                "append_us": appending(list(workload.runs(min(samples, 100)))),
            }  # fmt: skip
            memory.close()
            entry["snapshot_mib"] = (folder / SNAPSHOT).stat().st_size / 2**20
            entry |= _child("--open", str(folder), "--tools", str(tools))
            found.append(entry)
            if size != sizes[-1]:
                memory = ToolMemory(folder, tools=schemas)
    return {"sizes": found, "overhead_ms": overhead(tools), "load": os.getloadavg()[0]}


def opening(folder: Path, tools: int) -> dict[str, float]:
    """Seconds to open a memory in a fresh process, and the MiB it takes there."""
    schemas = Workload(tools).schemas()
    ToolMemory.ephemeral(tools=schemas).close()  # what is imported on first use is not the memory's
    gc.collect()
    before = rss_mib()
    start = perf_counter()
    memory = ToolMemory(folder, tools=schemas)
    seconds = perf_counter() - start
    gc.collect()
    after = rss_mib()
    memory.close()
    return {"open_s": seconds, "opened_mib": after - before}


def _child(*arguments: str) -> dict[str, Any]:
    """This command in a process of its own; its answer is one line of JSON."""
    command = [sys.executable, "-m", "benchmarks.scale", *arguments]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


# --- what is printed ----------------------------------------------------------------------------------------


def table_of(results: Sequence[Mapping[str, Any]]) -> Table:
    """One column per number of tools and of past runs."""
    entries = [entry for result in results for entry in result["sizes"]]
    table = Table(title="Against past runs and tools (p50 / p95 where there are two)", title_justify="left")
    table.add_column("", no_wrap=True)
    for entry in entries:
        table.add_column(f"{entry['tools']} tools\n{entry['runs']:,} runs", justify="right")
    for name in entries[0]["times_us"]:
        table.add_row(f"{name}, µs", *(_pair(entry["times_us"][name], ".0f") for entry in entries))
    rows: list[tuple[str, str, str]] = [
        ("learn per call, ms", "learn_ms", ".2f"),
        ("observe per call, ms", "observe_ms", ".2f"),
        ("longest learn_run so far, ms", "longest_ms", ".0f"),
        ("append and apply, µs", "append_us", ".0f"),
        ("growth of the process, MiB", "rss_mib", ".0f"),
        ("snapshot, MiB", "snapshot_mib", ".1f"),
        ("open, s", "open_s", ".2f"),
        ("memory once opened, MiB", "opened_mib", ".0f"),
    ]
    for heading, key, form in rows:
        table.add_row(heading, *(_pair(entry[key], form) for entry in entries))
    return table


def _pair(value: float | Sequence[float], form: str) -> str:
    return " / ".join(f"{v:{form}}" for v in value) if isinstance(value, Sequence) else f"{value:{form}}"


def ratios(results: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, float]]:
    """Per number of tools: p50 at the largest number of runs over p50 at the smallest."""
    found = []
    for result in results:
        first, last = result["sizes"][0], result["sizes"][-1]
        if first is not last:
            tools = first["tools"]
            before, after = first["times_us"], last["times_us"]
            found += [(tools, name, after[name][0] / before[name][0]) for name in before]
            found += [(tools, key, last[f"{key}_ms"][0] / first[f"{key}_ms"][0]) for key in ("learn", "observe")]
    return found


def targets(results: Sequence[Mapping[str, Any]]) -> list[tuple[bool, str]]:
    """Whether what is asked holds, worst case over what was measured."""
    entries = [entry for result in results for entry in result["sizes"]]
    grown = [ratio for _, name, ratio in ratios(results) if name == "paper decide"]
    paper = max(entry["times_us"]["paper decide"][0] for entry in entries)
    learn = max(entry["learn_ms"][0] for entry in entries)
    observe = max(entry["observe_ms"][0] for entry in entries)
    largest = max(entries, key=lambda entry: entry["open_s"])
    empty = max(result["overhead_ms"]["step"] for result in results)
    found = [(paper <= PAPER_US, f"paper decide p50 {paper:.0f} <= {PAPER_US:g} µs beside reading the messages")]
    if grown:
        found.append((max(grown) <= RATIO, f"paper decide, most runs over fewest: {max(grown):.2f} <= {RATIO:g}"))
    found += [
        (learn <= LEARN_MS, f"learning alone p50 {learn:.2f} <= {LEARN_MS:g} ms a call"),
        (observe <= LEARN_MS, f"observe (shadow predictions too) p50 {observe:.2f} <= {LEARN_MS:g} ms a call"),
        (largest["open_s"] <= OPEN_S, f"open {largest['open_s']:.2f} <= {OPEN_S:g} s ({largest['runs']:,} runs)"),
        (empty < OVERHEAD_MS, f"a step with nothing to offer {empty:.2f} < {OVERHEAD_MS:g} ms"),
    ]
    return found


def show(results: Sequence[Mapping[str, Any]]) -> None:
    """Everything, on stdout."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table_of(results))
    for tools, name, ratio in ratios(results):
        print(f"{tools} tools, {name}: p50 at most runs / at fewest = {ratio:.2f}")
    for result in results:
        kinds = ", ".join(f"{kind} {value:.2f} ms" for kind, value in result["overhead_ms"].items())
        print(f"{result['sizes'][0]['tools']} tools, nothing to offer, history of 20 messages: {kinds}")
    busy, cores = max(result["load"] for result in results), os.cpu_count() or 1
    if busy > cores:
        print(f"Others used the processors too (load {busy:.1f} on {cores}): times are longer than they need be.")
    for holds, text in targets(results):
        print(f"{'holds' if holds else 'MISSED'}  {text}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--max-runs", type=int, default=SIZES[-1], help="past runs to go up to")
    parser.add_argument("--tools", type=int, nargs="+", default=list(TOOLS), help="numbers of tools")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="runs that each time is taken over")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every figure there")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--open", type=Path, dest="folder", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)

    if options.folder is not None:
        print(json.dumps(opening(options.folder, options.tools[0])))
        return 0
    if options.worker is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(grow(options.worker, sizes_up_to(options.max_runs), Path(folder), options.samples)))
        return 0
    sizes = ("--max-runs", str(options.max_runs), "--samples", str(options.samples))
    results = []
    for tools in options.tools:
        results.append(_child("--worker", str(tools), *sizes))
        if options.json_file is not None:  # after each: what was measured is kept if the rest is interrupted
            options.json_file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    show(results)
    return 0


def sizes_up_to(most: int) -> list[int]:
    """The sizes measured at."""
    return [size for size in SIZES if size < most] + [most]


if __name__ == "__main__":
    sys.exit(main())
