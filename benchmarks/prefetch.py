"""How many look-ups could run while the model is thinking, and how many would be thrown away.

``python -m benchmarks.prefetch``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Final

from rich.table import Table

from benchmarks import command, conclude, done, load, present, show
from benchmarks.measures import declared
from benchmarks.replay import PROMPTS, arrange
from benchmarks.yardsticks import BackOffNGram
from langgraph_toolmem import Inertia, InertiaPolicy, Prefetch, ToolMemory
from langgraph_toolmem.inertia.decision import Decision
from langgraph_toolmem.inertia.policy import may_write
from langgraph_toolmem.offline.replay import PrefetchTally, model_seconds, replay
from langgraph_toolmem.runs.logs import LoggedRun, load_runs
from langgraph_toolmem.runs.run import Run, Turn
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.runs.values import canon_args

SETS: Final = ("tau2_retail_gpt41mini", "tau2_telecom_gpt41", "tau2_airline_gpt54", "workbench_gpt4")
GOALS: Final = {
    "tau2_retail_gpt41mini": 50,
    "tau2_telecom_gpt41": 62,
    "tau2_airline_gpt54": 20,
    "workbench_gpt4": 55,
}
"""Look-ups ready, in percent, at most WASTED thrown away for each."""
WALL_GOALS: Final = {"tau2_retail_gpt41mini": 18, "tau2_telecom_gpt41": 14}
WASTED: Final = (0.5, 1.0, 1.5)
ALL: Final = Prefetch(min_probability=0.0, max_wasted=None)

Scored = tuple[float, bool]
"""The probability of a guess, and whether it would have been served."""


@dataclass(frozen=True)
class Job:
    """One shuffle of one set."""

    data: str
    name: str
    seed: int
    limit: int | None
    prompts: bool = False


@dataclass(frozen=True)
class Figures:
    """One shuffle of one set; shares in percent of the calls of reading tools.

    Attributes:
        reads: calls of reading tools.
        known: how many of them were among the candidates at all.
        curve: ready at most so many wasted for each, threshold chosen with hindsight: of the memory.
        n_gram: the same of the n-gram, one guess a turn.
        ready, wasted: live, with the defaults; wasted for each that was ready.
        wall: time saved in percent, live, where every model call and every tool call takes the same time.
        deep: seconds that a guess beyond the guess would save at most, in percent, at the best of all speeds of tools.
    """

    reads: int
    known: float
    curve: dict[float, float]
    n_gram: dict[float, float]
    ready: float
    wasted: float
    wall: float
    deep: float


def work(job: Job) -> Figures:
    """One pass."""
    folder = Path(job.data) / job.name
    tools = load(folder / "tools.json")
    reading = declared(folder)
    runs, _ = arrange(load_runs(folder / "trajectories.jsonl", limit=job.limit).runs, "cold", job.seed)
    policy = InertiaPolicy()
    memory = ToolMemory.ephemeral(tools=tools, reads=reading, methods=[Inertia(policy)])
    live, every = PrefetchTally(tool_seconds=None), PrefetchTally(ALL, tool_seconds=None)
    scored: list[Scored] = []
    known = 0

    def note(turn: Turn, decision: Decision) -> None:
        nonlocal known
        prefetched = every.credit(memory, policy, turn, decision, None)
        scored.extend((lookup.probability, served) for lookup, served in prefetched)
        foreseen = {(each.tool, canon_args(args)) for each in decision.predicted for args in each.calls}
        known += sum(step.tool in reading and (step.tool, canon_args(step.args)) in foreseen for step in turn.steps)

    with memory:
        even = [replace(run, times=None) for run in runs]
        system = PROMPTS.get(job.name, "") if job.prompts else None
        replay(even, policy=policy, memory=memory, prefetch=live, on_turn=note, system=system)
        specs = memory.core.catalogue.marked()
        writes = {name for name in specs if may_write(name, specs)}
    assert not writes & reading
    return Figures(
        reads=live.reads,
        known=100 * known / max(live.reads, 1),
        curve=hindsight(scored, live.reads),
        n_gram=hindsight(list(_n_gram(runs, reading)), live.reads),
        ready=100 * live.ready / max(live.reads, 1),
        wasted=live.wasted / max(live.ready, 1),
        wall=100 * live.seconds_saved / max(live.seconds, 1e-9),
        deep=two_deep(runs, reading),
    )


def hindsight(scored: Sequence[Scored], reads: int) -> dict[float, float]:
    """The most look-ups that any one threshold has ready, in percent, by how many are wasted for each at most."""
    best = dict.fromkeys(WASTED, 0.0)
    ready = wasted = 0
    ordered = sorted(scored, key=lambda each: -each[0])
    for number, (probability, served) in enumerate(ordered):
        ready, wasted = ready + served, wasted + (not served)
        if number + 1 < len(ordered) and ordered[number + 1][0] == probability:
            continue  # equal ones stand and fall together
        for most in WASTED:
            if wasted <= most * ready:
                best[most] = max(best[most], 100 * ready / max(reads, 1))
    return best


def _n_gram(runs: Sequence[LoggedRun], reading: frozenset[str]) -> list[Scored]:
    model, found = BackOffNGram(), list[Scored]()
    for run in runs:
        for turn, guess in model.replay(parse_run(run.messages, thread_id=run.thread_id)):
            if guess.call is None or guess.call[0] not in reading:
                continue
            made = [(step.tool, canon_args(step.args)) for step in turn.steps]
            alone = all(step.tool in reading for step in turn.steps)
            found.append((guess.confidence, alone and guess.call in made))
    return found


def two_deep(runs: Sequence[LoggedRun], reading: frozenset[str]) -> float:
    """What it would save at most, in percent of all seconds, to guess on from a result before the model has answered.

    It saves time only where a result is there before the answer (tools take less than the model) and the next is not
    (tools take more than the model then): min(M1 - T, T - M2) for two look-ups one after another, every guess right.
    The best of all T.
    """
    pairs, total, calls = list[tuple[float, float]](), 0.0, 0
    for run in runs:
        parsed: Run = parse_run(run.messages, thread_id=run.thread_id)
        took = model_seconds(parsed, run.messages, run.times)
        total += sum(took.values())
        before: float | None = None
        for event in parsed.events:
            reads = isinstance(event, Turn) and bool(event.steps) and all(s.tool in reading for s in event.steps)
            calls += isinstance(event, Turn) and bool(event.steps)
            now = took.get(event.key) if isinstance(event, Turn) and reads else None
            if before is not None and now is not None:
                pairs.append((before, now))
            before = now
    best = 0.0
    for tool in sorted({round(each, 1) for pair in pairs for each in pair}):
        saved = sum(max(min(first - tool, tool - second), 0.0) for first, second in pairs)
        best = max(best, 100 * saved / (total + calls * tool))
    return best


def table(found: dict[str, list[Figures]]) -> Table:
    """The means, set by set."""
    shown = Table(title="Look-ups ready, in percent; cold. ≤ w: w wasted for each, threshold with hindsight")
    columns = ("set", "reads", "known", *(f"≤{w}" for w in WASTED), "n-gram ≤1.5")
    for column in (*columns, "live", "wasted", "time", "deep"):
        shown.add_column(column, justify="left" if column == "set" else "right", no_wrap=True)
    for name, figures in found.items():
        curve = (f"{fmean(f.curve[w] for f in figures):.1f}" for w in WASTED)
        rest = (
            f"{fmean(f.n_gram[1.5] for f in figures):.1f}",
            f"{fmean(f.ready for f in figures):.1f}",
            f"{fmean(f.wasted for f in figures):.2f}",
            f"-{fmean(f.wall for f in figures):.1f}",
            f"{fmean(f.deep for f in figures):.1f}",
        )
        known = f"{fmean(f.known for f in figures):.1f}"
        shown.add_row(name, f"{median(f.reads for f in figures):,.0f}", known, *curve, *rest)
    return shown


def verdicts(found: dict[str, list[Figures]]) -> list[tuple[bool, str]]:
    """Whether the targets hold."""
    told = []
    for name, figures in found.items():
        goal = GOALS.get(name)
        if goal is None:
            continue
        ready, wasted = fmean(f.ready for f in figures), fmean(f.wasted for f in figures)
        fine = ready >= goal and wasted <= 1.5
        told.append((fine, f"{name}: live {ready:.1f} % ready >= {goal}, {wasted:.2f} wasted each <= 1.5"))
        half = fmean(f.curve[0.5] for f in figures)
        told.append((half >= goal * 2 / 3, f"{name}: at 0.5 wasted {half:.1f} % >= {goal * 2 / 3:.1f}"))
        if name in WALL_GOALS:
            wall = fmean(f.wall for f in figures)
            told.append((wall >= WALL_GOALS[name], f"{name}: {wall:.1f} % less wall time >= {WALL_GOALS[name]}"))
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it."""
    parser = command("prefetch", __doc__)
    parser.add_argument("--seeds", type=int, default=3, help="number of shuffles (0, 1, …)")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="folders with recorded runs")
    parser.add_argument("--limit", type=int, help="only the first so many runs of each set")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--prompts", action="store_true", help="give each run the prompt that the recordings leave out")
    given = parser.parse_args(arguments)
    there = present(given, given.sets)
    jobs = []
    for name in there:
        for seed in range(given.seeds):
            jobs.append(Job(str(given.data), name, seed, given.limit, given.prompts))
    found: dict[str, list[Figures]] = {name: [] for name in there}
    for job, figures in zip(jobs, done(work, jobs, given.processes, "prefetching"), strict=True):
        found[job.name].append(figures)
    show(table(found))
    plain = {name: [asdict(each) for each in figures] for name, figures in found.items()}
    return conclude(verdicts(found), plain, given.json)


if __name__ == "__main__":
    sys.exit(main())
