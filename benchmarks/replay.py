"""How many model turns a memory foresees on recorded runs, beside what one would use instead.

``python -m benchmarks.replay``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.table import Table

from benchmarks import command, conclude, done, load, present, show
from benchmarks.measures import Live, Row, acted, best_yield, declared, live, with_budget
from benchmarks.yardsticks import BackOffNGram, ExactCache, Yardstick, call_of
from langgraph_toolmem.inertia.decision import Decision, calls_text
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.offline.replay import replay
from langgraph_toolmem.papers.autotool import PaperPolicy
from langgraph_toolmem.runs.logs import LoggedRun, load_runs
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.runs.trajectory import parse_run

SETS: Final = (
    "workbench_gpt4",
    "tau_retail_gold",
    "bfcl_v3_multi_turn",
    "tau2_retail_gpt41mini",
    "tau2_telecom_gpt41",
    "tau2_airline_gpt54",
)
MODES: Final = ("cold", "warm")
READS: Final = "calibrated, reads"
"""The calibrated policy as it is by default: no tool that may change something is named."""
DEFAULT: Final = InertiaPolicy()
ALONE: Final = "estimator alone"
"""The calibrated policy without the refusals of `DOUBTS`: what its estimate is worth by itself."""
DOUBTS: Final = ("unfamiliar", "denied", "unproven", "cases")
PROMPTS: Final = {
    "workbench_gpt4": "Today is Thursday, 2023-11-30, 00:00.",
    "workbench_gold": "Today is Thursday, 2023-11-30, 00:00.",
    "tau2_airline_gpt54": "The current time is 2024-05-15 15:00:00 EST.",
    "tau2_telecom_gpt41": "The current time is 2025-02-25 12:08:00 EST.",
}
"""Days of the system prompts that the recordings leave out. Without them values of the prompt have no source."""
METHODS: Final = ("calibrated", READS, ALONE, "paper", "n-gram", "exact cache")
MAX_WRONG: Final = 1.0
MAX_IN_WINDOW: Final = 6
"""Twice the rate over 300 turns."""
GOALS: Final[dict[str, dict[str, float]]] = {
    "workbench_gpt4": {"calibrated": 7.3},
    "tau2_retail_gpt41mini": {READS: 9.6},
    "tau2_telecom_gpt41": {READS: 7},
    "tau2_airline_gpt54": {READS: 3.5},
}
"""Least live yield, cold."""


@dataclass(frozen=True)
class Job:
    """One pass over one set: which runs, in which order, what is known before."""

    data: str
    name: str
    mode: str
    seed: int
    limit: int | None
    prompts: bool = False


@dataclass(frozen=True)
class Figures:
    """One method on one set. All but `oracle`: per 100 model turns.

    Attributes:
        live: what the method does with its own threshold, caps and budget.
        y1, y3: highest yield with wrong at most 1 and 3, threshold chosen with hindsight.
        oracle: share of the turns whose exact call is among the candidates, in percent.
        words: share of the turns in words, in percent.
        turns: model turns looked at.
    """

    live: Live
    y1: float
    y3: float
    oracle: float
    words: float
    turns: int


@dataclass(frozen=True)
class Result:
    """The figures of each method."""

    job: Job
    figures: dict[str, Figures]


# --- what each method foresees ------------------------------------------------------------------------------


def policy_rows(
    runs: Iterable[LoggedRun],
    policy: InertiaPolicy,
    *,
    tools: Sequence[Any] | None = None,
    reads: Iterable[str] = (),
    system: str | None = None,
) -> list[list[Row]]:
    """One row per model turn, run by run, as the policy decides in a memory that starts empty."""
    by_run: list[list[Row]] = []
    rows: list[Row] = []

    def note(turn: Turn, decision: Decision) -> None:
        rows.append(row_of(turn, decision))

    def next_run(_: object) -> None:
        by_run.append(list(rows))
        rows.clear()

    replay(runs, tools=tools, reads=reads, policy=policy, system=system, on_turn=note, on_run=next_run)
    return by_run


def row_of(turn: Turn, decision: Decision) -> Row:
    """What was foreseen before one turn, and what came."""
    proposal, best = decision.proposal, decision.options[:1]
    call = (turn.steps[0].tool, calls_text(step.args for step in turn.steps)) if turn.steps else None
    hits = [(option.tool, calls_text(option.calls)) == call for option in decision.options]
    alike = len({step.tool for step in turn.steps}) == 1
    doubted = []
    for option in best:
        if option.refused is not None and option.refused.code in DOUBTS:
            doubted.append(float(option.probability))
    return Row(
        None if proposal is None else float(proposal.confidence),
        alike and any(hits[:1]),
        decision.acts,
        alike and any(hits),
        not turn.steps,
        any(option.changes for option in best),
        *doubted,
    )


def yardstick_rows(runs: Iterable[LoggedRun], yardstick: Yardstick) -> list[list[Row]]:
    """One row per model turn, run by run, as a yardstick guesses. It acts whenever it has a guess."""
    return [
        [
            Row(
                None if guess.call is None else guess.confidence,
                guess.call == call_of(turn),
                guess.call is not None,
                call_of(turn) in guess.known,
                not turn.steps,
            )
            for turn, guess in yardstick.replay(parse_run(run.messages, thread_id=run.thread_id))
        ]
        for run in runs
    ]


def free(policy: InertiaPolicy) -> InertiaPolicy:
    """The policy without thresholds, caps and budget; the guards of schema, repeats and writes stay."""
    policy = policy.with_(min_precision=0.0, max_wrong_per_100=None)
    if isinstance(policy, PaperPolicy):
        return policy.with_(threshold=-1.0, max_in_a_row=None, max_share=None)
    return policy


# --- one pass -----------------------------------------------------------------------------------------------


def arrange(runs: Sequence[LoggedRun], mode: str, seed: int) -> tuple[list[LoggedRun], int]:
    """Runs in the order they are learned, and how many of them are history before the figures begin.

    cold: shuffled, no history. warm: half of the tasks, with all their runs, come first. A task is its text.
    """
    draw = random.Random(seed)
    shuffled = list(runs)
    draw.shuffle(shuffled)
    if mode == "cold":
        return shuffled, 0
    tasks = sorted({run.task or run.thread_id for run in runs})
    draw.shuffle(tasks)
    before = set(tasks[: len(tasks) // 2])
    history = [run for run in shuffled if (run.task or run.thread_id) in before]
    return history + [run for run in shuffled if (run.task or run.thread_id) not in before], len(history)


def work(job: Job) -> Result:
    """All methods on one arrangement of one set."""
    folder = Path(job.data) / job.name
    tools = load(folder / "tools.json")
    loaded = load_runs(folder / "trajectories.jsonl", limit=job.limit).runs
    runs, history = arrange(loaded, job.mode, job.seed)

    every = frozenset(read_tools(tools))
    named = {"may_write": every, "allow_destructive": every}
    known: dict[str, Any] = {"tools": tools, "reads": declared(folder)}
    if job.prompts:
        known["system"] = PROMPTS.get(job.name, "")
    calibrated = policy_rows(runs, free(DEFAULT.with_(**named)), **known)
    reads = [[replace(row, confidence=None) if row.changes else row for row in rows] for rows in calibrated]
    alone = [
        [row if row.doubted is None else replace(row, confidence=row.doubted) for row in rows] for rows in calibrated
    ]
    ngram = yardstick_rows(runs, BackOffNGram())
    exact = yardstick_rows(runs, ExactCache())
    paper = InertiaPolicy.paper(**named)
    figures = {
        "calibrated": _figures(calibrated, history, _budgeted(calibrated, history)),
        READS: _figures(reads, history, _budgeted(reads, history)),
        ALONE: _figures(alone, history, _budgeted(alone, history)),
        "paper": _figures(
            policy_rows(runs, free(paper), **known),
            history,
            acted(_flat(policy_rows(runs, paper, **known)[history:])),
        ),
        "n-gram": _figures(ngram, history, _budgeted(ngram, history)),
        "exact cache": _figures(exact, history, acted(_flat(exact[history:]))),
    }
    return Result(job, figures)


def _flat(by_run: Iterable[list[Row]]) -> list[Row]:
    return [row for rows in by_run for row in rows]


def _budgeted(by_run: list[list[Row]], history: int) -> list[bool | None]:
    """The budget runs from the first turn on; the outcomes are those after the history."""
    outcomes = with_budget(_flat(by_run), DEFAULT)
    return outcomes[sum(map(len, by_run[:history])) :]


def _figures(by_run: list[list[Row]], history: int, outcomes: Sequence[bool | None]) -> Figures:
    rows = _flat(by_run[history:])
    turns = max(1, len(rows))
    return Figures(
        live=live(outcomes),
        y1=best_yield(rows, 1),
        y3=best_yield(rows, 3),
        oracle=100 * sum(row.known for row in rows) / turns,
        words=100 * sum(row.words for row in rows) / turns,
        turns=len(rows),
    )


# --- over the shuffles --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mean:
    """One method on one set and mode, over the shuffles: means, and of `worst` and `window` the largest."""

    name: str
    mode: str
    method: str
    turns: float
    words: float
    right: float
    wrong: float
    worst: float
    window: int
    y1: float
    y3: float
    oracle: float


def mean_of(results: Sequence[Result], method: str) -> Mean:
    """Over results that differ in the shuffle only."""
    found = [result.figures[method] for result in results]

    def mean(value: Callable[[Figures], float]) -> float:
        return fmean(value(f) for f in found)

    return Mean(
        name=results[0].job.name,
        mode=results[0].job.mode,
        method=method,
        turns=mean(lambda f: f.turns),
        words=mean(lambda f: f.words),
        right=mean(lambda f: f.live.right),
        wrong=mean(lambda f: f.live.wrong),
        worst=max(f.live.wrong for f in found),
        window=max(f.live.window for f in found),
        y1=mean(lambda f: f.y1),
        y3=mean(lambda f: f.y3),
        oracle=mean(lambda f: f.oracle),
    )


# --- what is printed ----------------------------------------------------------------------------------------


def main_table(means: Sequence[Mean], seeds: int) -> Table:
    """All methods side by side."""
    table = Table(title=f"Per 100 model turns, mean of {seeds} shuffle(s)", title_justify="left")
    for heading in ("set", "mode", "method"):
        table.add_column(heading, no_wrap=True)
    headings = ("turns", "words %", "live yield", "live wrong", "worst", "in 300", "Y1", "Y3", "oracle %")
    for heading in headings:
        table.add_column(heading, justify="right")
    for m in means:
        rates = (f"{m.right:.1f}", f"{m.wrong:.2f}", f"{m.worst:.2f}", str(m.window))
        numbers = (*rates, f"{m.y1:.1f}", f"{m.y3:.1f}")
        table.add_row(
            m.name, m.mode, m.method, f"{m.turns:.0f}", f"{m.words:.1f}", *numbers, f"{m.oracle:.1f}",
            end_section=m.method == METHODS[-1],
        )  # fmt: skip
    return table


def targets(means: Sequence[Mean]) -> list[tuple[bool, str]]:
    """Whether what is asked of the calibrated policy holds, set by set."""
    found = {(m.name, m.mode, m.method): m for m in means}
    verdicts = []
    for name, mode in dict.fromkeys((m.name, m.mode) for m in means):
        own, where = found[name, mode, "calibrated"], f"{name}, {mode}"
        for method in ("calibrated", READS):
            m = found[name, mode, method]
            verdicts.append((m.worst <= MAX_WRONG, f"{where}, {method}: live wrong {m.worst:.2f} <= {MAX_WRONG:g}"))
            verdicts.append((m.window <= MAX_IN_WINDOW, f"{where}, {method}: {m.window} wrong in 300 turns at most"))
        for method in ("n-gram", "exact cache"):
            other = found[name, mode, method]
            verdicts.append((own.y1 >= other.y1, f"{where}: Y1 {own.y1:.1f} >= {other.y1:.1f} of the {method}"))
        for method, least in GOALS.get(name, {}).items() if mode == "cold" else ():
            m = found[name, mode, method]
            verdicts.append((m.right >= least, f"{where}, {method}: live yield {m.right:.1f} >= {least:g}"))
    return verdicts


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = command("replay", __doc__)
    parser.add_argument("--seeds", type=int, default=3, help="number of shuffles (0, 1, …)")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="folders with recorded runs")
    parser.add_argument("--limit", type=int, help="only the first so many runs of each set")
    parser.add_argument("--prompts", action="store_true", help="give each run the prompt that the recordings leave out")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)

    there = present(options, options.sets)
    jobs = [
        Job(str(options.data), name, mode, seed, options.limit, options.prompts)
        for name in there
        for mode in MODES
        for seed in range(options.seeds)
    ]
    results = list(done(work, jobs, options.processes, "replaying"))
    groups = [[r for r in results if (r.job.name, r.job.mode) == (n, m)] for n in there for m in MODES]
    means = [mean_of(group, method) for group in groups for method in METHODS]

    show(main_table(means, options.seeds))
    figures = {"means": [asdict(m) for m in means], "shuffles": [asdict(r) for r in results]}
    return conclude(targets(means), figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
