"""Which tool comes next? Suggestions against what one would use instead, on recorded runs.

``python -m benchmarks.sit``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import command, conclude, load, present, show
from benchmarks.measures import declared
from benchmarks.replay import arrange
from benchmarks.yardsticks import (
    Hits,
    Method,
    Point,
    description_search,
    measure,
    nearest_request,
    runs_of,
    successors,
)
from langgraph_toolmem import SIT, ToolMemory
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.sit.suggest import SITPolicy

SETS: Final = (
    "bfcl_v3_multi_turn", "workbench_gpt4", "tau_retail_gold", "workbench_gold", "tau_airline_gold", "nestful",
)  # fmt: skip
TARGETS: Final = {"bfcl_v3_multi_turn": 79.0, "workbench_gpt4": 91.0, "tau_retail_gold": 81.0}
SINGLE: Final = ("order 1", "order 2", "description", "nearest request")
LOOK_UPS: Final = "combined, look-ups"
"""What a model reads: suggestions of tools that only read, before calls of such tools."""
PAPER: Final = SITPolicy.paper()
METHODS: Final = (*SINGLE, "paper", "combined", LOOK_UPS)


@dataclass(frozen=True)
class Job:
    """One pass over one set."""

    data: str
    name: str
    seed: int
    good: bool = False
    """Only successful runs teach, and only their turns are looked at."""
    limit: int | None = None
    judged: float = 1.0
    """Below 1: this share of the history has feedback, its own, the rest has none, and successful runs are asked."""
    history: float = 1.0
    """There is only this share of the history at all."""


# --- ours ---------------------------------------------------------------------------------------------------


def methods_of(
    history: Sequence[Run],
    specs: Mapping[str, ToolSpec],
    memory: ToolMemory,
    said: Sequence[float | None] | None = None,
) -> dict[str, Method]:
    """All methods, taught by the history and the feedback on it; None: all runs are good."""
    said = [1.0] * len(history) if said is None else said
    memory.import_runs([(run, score, None) for run, score in zip(history, said, strict=True)])
    history = [run for run, score in zip(history, said, strict=True) if score != 0]

    def asked(point: Point) -> list[str]:
        return [each.tool for each in memory.sit.suggest_for(point.state, available=specs)]

    def published(point: Point) -> list[str]:
        return [each.tool for each in memory.sit.suggest_for(point.state, available=specs, policy=PAPER)]

    return {
        "order 1": successors(history, 1),
        "order 2": successors(history, 2),
        "description": description_search(specs),
        "nearest request": nearest_request(history),
        "paper": published,
        "combined": asked,
    }


def work(job: Job) -> dict[str, Hits]:
    """All methods on one split of one set. Half of the tasks, with all their runs, are the history."""
    folder = Path(job.data) / job.name
    specs = read_tools(load(folder / "tools.json"))
    loaded = runs_of(folder, limit=job.limit) or ()
    arranged, cut = arrange(loaded, "warm", job.seed)
    scarce, draw = job.judged < 1, random.Random(job.seed)
    before = [run for run in arranged[:cut] if (run.success or not job.good) and draw.random() < job.history]
    history, test = _read(before, good=job.good), _read(arranged[cut:], good=job.good or scarce)
    said = [float(bool(run.success)) if draw.random() < job.judged else None for run in before] if scarce else None
    with ToolMemory.ephemeral(tools=list(specs.values()), methods=[SIT()]) as memory:
        hits = measure(methods_of(history, specs, memory, said), test)
        if reads := declared(folder):

            def asked(point: Point) -> list[str]:
                found = memory.sit.suggest_for(point.state, available=specs, k=len(specs))
                return [each.tool for each in found if each.tool in reads]

            hits |= measure({LOOK_UPS: asked}, test, of=reads)
        return hits


def _read(runs: Sequence[LoggedRun], *, good: bool) -> list[Run]:
    return [parse_run(run.messages, thread_id=run.thread_id) for run in runs if run.success or not good]


# --- what is printed ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mean:
    """One method on one set, mean of the splits."""

    name: str
    method: str
    first: float
    two: float


def main_table(means: Sequence[Mean], seeds: int) -> Table:
    """hit@1 / hit@2 by set and method."""
    names = list(dict.fromkeys(m.name for m in means))
    table = Table(title=f"hit@1 / hit@2 of the next tool in %, mean of {seeds} split(s)", title_justify="left")
    table.add_column("method", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    found = {(m.name, m.method): m for m in means}
    for method in METHODS:
        cells = [found.get((name, method)) for name in names]
        table.add_row(method, *("" if m is None else f"{m.first:.1f} / {m.two:.1f}" for m in cells))
    return table


def verdicts(means: Sequence[Mean]) -> list[tuple[bool, str]]:
    """Targets of the combined policy, set by set: True if it holds, and the target in words."""
    found: list[tuple[bool, str]] = []
    for own in (m for m in means if m.method == "combined"):
        best = max((m for m in means if m.name == own.name and m.method in SINGLE), key=lambda m: m.two)
        if own.name in TARGETS:
            least = TARGETS[own.name]
            found.append((own.two >= least, f"{own.name}: hit@2 {own.two:.1f} >= {least:g}"))
        holds = own.two >= best.two
        found.append((holds, f"{own.name}: hit@2 {own.two:.1f} >= {best.two:.1f} of the best alone ({best.method})"))
    return found


def mean_of(results: Sequence[tuple[Job, dict[str, Hits]]]) -> list[Mean]:
    """Means over the splits."""
    grouped: dict[tuple[str, str], list[Hits]] = {}
    for job, hits in results:
        name = job.name + ", successful" * job.good + f", {job.judged:.0%} judged" * (job.judged < 1)
        name += f", {job.history:.0%} of the runs" * (job.history < 1)
        for method, hit in hits.items():
            grouped.setdefault((name, method), []).append(hit)
    return [
        Mean(*key, first=fmean(hit.first for hit in hits), two=fmean(hit.two for hit in hits))
        for key, hits in grouped.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = command("sit", __doc__)
    parser.add_argument("--seeds", type=int, default=5, help="number of splits (0, 1, …)")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="folders with recorded runs")
    parser.add_argument("--limit", type=int, help="only the first so many runs of each set")
    parser.add_argument("--judged", nargs="+", type=float, default=[1.0], help="these shares of runs have a verdict")
    parser.add_argument("--history", nargs="+", type=float, default=[1.0], help="only these shares of runs are there")
    options = parser.parse_args(arguments)

    results: list[tuple[Job, dict[str, Hits]]] = []
    console = Console(stderr=True)
    for name in present(options, options.sets, queries=True):
        judgements = {bool(run.success) for run in runs_of(options.data / name, limit=options.limit) or ()}
        for judged, history in product(options.judged, options.history):
            for good in (False, True) if len(judgements) > 1 and judged == 1 else (False,):
                with console.status(name):
                    for seed in range(options.seeds):
                        job = Job(str(options.data), name, seed, good, options.limit, judged, history)
                        results.append((job, work(job)))
    if not results:
        return 0

    means = mean_of(results)
    show(main_table(means, options.seeds))
    splits = [asdict(job) | {"hits": {name: asdict(hit) for name, hit in hits.items()}} for job, hits in results]
    return conclude(verdicts(means), {"means": [asdict(m) for m in means], "splits": splits}, options.json)


if __name__ == "__main__":
    sys.exit(main())
