"""What each part of the shortcut carries, and how honest its confidence is: the replay with one part taken out.

``python -m benchmarks.ablation``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.measures import Row, best_yield, declared, live, with_budget
from benchmarks.replay import DATA, DEFAULT, SETS, arrange, free, policy_rows
from langgraph_toolmem.graph.cases import CaseIndex
from langgraph_toolmem.inertia import arguments, candidates, estimator
from langgraph_toolmem.inertia.contexts import CallContexts
from langgraph_toolmem.inertia.novelty import NoveltyRecord
from langgraph_toolmem.offline.replay import replay
from langgraph_toolmem.runs.logs import load_runs
from langgraph_toolmem.runs.tools import read_tools

BINS: Final = 10
PER_SET: Final = 6_000
"""Examples that one set gives to the prior."""
WITHOUT: Final[dict[str, Callable[[], AbstractContextManager[object]]]] = {
    "nothing": ExitStack,
    "fits": lambda: patch.object(estimator, "fit", lambda *_: np.array(estimator.PRIOR)),
    "nearest requests": lambda: patch.object(CaseIndex, "nearest", lambda *_, **__: []),
    "calls after calls": lambda: patch.object(CallContexts, "after", lambda *_: ([], {})),
    "second and third tool": lambda: patch.object(candidates, "MAX_TOOLS", 1),
    "second and third filling": lambda: patch.object(arguments, "FILLINGS", 1),
    "several calls at once": lambda: patch.object(candidates, "fill_each", lambda *_: []),
    "the test of novelty": lambda: patch.object(NoveltyRecord, "refusal", lambda *_: ""),
}
"""The part that is taken out, and how."""


def rows_without(part: str, data: Path, name: str, seed: int) -> list[Row]:
    """One row per model turn of a set, cold, all tools named, with a part taken out."""
    tools = json.loads((data / name / "tools.json").read_text(encoding="utf-8"))
    runs, _ = arrange(load_runs(data / name / "trajectories.jsonl").runs, "cold", seed)
    every = frozenset(read_tools(tools))
    with WITHOUT[part]():
        policy = free(DEFAULT.with_(may_write=every, allow_destructive=every))
        by_run = policy_rows(runs, policy, tools=tools, reads=declared(data / name))
    return [row for rows in by_run for row in rows]


def prior(data: Path, sets: Sequence[str]) -> list[float]:
    """Fit `estimator.PRIOR` to the runs of all sets, cold."""
    found = []
    for name in sets:
        tools = json.loads((data / name / "tools.json").read_text(encoding="utf-8"))
        runs, _ = arrange(load_runs(data / name / "trajectories.jsonl").runs, "cold", 0)
        replay(
            runs,
            tools=tools,
            reads=declared(data / name),
            on_end=lambda memory: found.append(memory.core.graph.register(estimator.Estimator).examples[-PER_SET:]),
        )
    columns, hits = estimator.unpack([example for examples in found for example in examples])
    return [round(float(w), 2) for w in estimator.fit(columns, hits, [0.0] * len(estimator.PRIOR))]


def reliability(rows: Sequence[Row]) -> list[tuple[int, float, float]]:
    """Per bin of confidence: calls, mean confidence, share that was right."""
    found: list[tuple[int, float, float]] = []
    for nth in range(BINS):
        inside = [r for r in rows if r.confidence is not None and min(int(BINS * r.confidence), BINS - 1) == nth]
        if inside:
            mean = sum(r.confidence or 0.0 for r in inside) / len(inside)
            found.append((len(inside), mean, sum(r.right for r in inside) / len(inside)))
    return found


def calibration_error(rows: Sequence[Row]) -> float:
    """Expected calibration error in points: |confidence - share right|, weighted by the calls of each bin."""
    bins = reliability(rows)
    return 100 * sum(n * abs(p - hit) for n, p, hit in bins) / max(1, sum(n for n, _, _ in bins))


def main(arguments_: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=__doc__.split("\n\n")[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="folders with recorded runs")
    parser.add_argument("--parts", nargs="+", default=list(WITHOUT), choices=list(WITHOUT), help="what is taken out")
    parser.add_argument("--seed", type=int, default=0, help="of the shuffle")
    parser.add_argument("--data", type=Path, default=DATA, help="where the sets are")
    parser.add_argument("--json", dest="json_file", type=Path, help="write every figure there")
    parser.add_argument("--prior", action="store_true", help="print the prior of the estimator, and nothing else")
    options = parser.parse_args(arguments_)
    if not options.data.exists():
        print(f"recorded runs are not there: {options.data}", file=sys.stderr)
        return 2
    if options.prior:
        print(prior(options.data, options.sets))
        return 0
    table = Table(title="Without a part: Y1 · live right / wrong · calibration error", title_justify="left")
    table.add_column("without")
    for name in options.sets:
        table.add_column(name, justify="right")
    diagram = Table(title="Confidence and share right of the calls above it (whole shortcut)", title_justify="left")
    for heading in ("set", *(f"{nth / BINS:.1f}" for nth in range(BINS))):
        diagram.add_column(heading, justify="right")
    found: list[dict[str, object]] = []
    for part in options.parts:
        cells = []
        for name in options.sets:
            rows = rows_without(part, options.data, name, options.seed)
            made = live(with_budget(rows, DEFAULT))
            figures = f"{best_yield(rows, 1):.1f} · {made.right:.1f} / {made.wrong:.2f}"
            error = calibration_error(rows)
            cells.append(f"{figures} · {error:.1f}")
            every = {"y1": best_yield(rows, 1), "right": made.right, "wrong": made.wrong, "calibration_error": error}
            found.append({"without": part, "set": name, **every, "reliability": reliability(rows)})
            if part == "nothing":
                diagram.add_row(name, *(f"{p:.2f} → {hit:.2f} ({n})" for n, p, hit in reliability(rows)))
        table.add_row(part, *cells)
    if options.json_file:
        options.json_file.write_text(json.dumps(found, indent=2), encoding="utf-8")
    console = Console(width=200)
    console.print(table)
    console.print(diagram)
    return 0


if __name__ == "__main__":
    sys.exit(main())
