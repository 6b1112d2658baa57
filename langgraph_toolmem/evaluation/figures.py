"""Figures of an evaluation: success, pass^k, tokens, paired differences with intervals; in words, and as a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any, Final, NamedTuple

import numpy as np

from langgraph_toolmem.base.text import count, dumps, loads
from langgraph_toolmem.core.method import TextTable
from langgraph_toolmem.evaluation.journal import RunRecord, Usage
from langgraph_toolmem.page.render import lead_of, table_of, text_of, whole_page
from langgraph_toolmem.report.report import money_in_words

RESAMPLES: Final = 10_000
CONFIDENCE: Final = 0.95
"""Of the intervals; docs and tables call them 95 % intervals."""
METRICS: Final = ("success", "model calls", "input tokens", "cached tokens", "output tokens", "seconds", "cost")


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums of one arm over its test runs.

    Attributes:
        arm: its name.
        tasks: number of tasks.
        runs: number of runs.
        success: share of runs with the full score.
        score: mean score.
        pass_k: k -> pass^k, for k up to the least number of trials of a task.
        usage: model calls and tokens of all runs.
        seconds: of all runs.
        cost: of all runs; None without a price.
        memory_calls: steps that the memory took in the model's place.
        errors: runs that an error ended.
        train: usage of the train runs, not part of `usage`.
    """

    arm: str
    tasks: int
    runs: int
    success: float
    score: float
    pass_k: dict[int, float]
    usage: Usage
    seconds: float
    cost: float | None
    memory_calls: int
    errors: int
    train: Usage


@dataclass(frozen=True, slots=True)
class Interval:
    """A difference per run, and its interval (paired bootstrap by task, percentiles)."""

    value: float
    low: float
    high: float


class TaskTrial(NamedTuple):
    """A task and the number of its trial, from 0."""

    task: str
    trial: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One arm against the first.

    Attributes:
        arm: the arm.
        against: the first arm.
        tasks: tasks with the same trials in both.
        differences: metric -> arm minus first, mean per run.
        changed: runs with another outcome.
    """

    arm: str
    against: str
    tasks: int
    differences: dict[str, Interval]
    changed: list[TaskTrial]


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of an evaluation.

    Attributes:
        source: name of the tasks.
        agent: name of the agent.
        figures: of each arm, the first one first.
        comparisons: of the others with the first.
        records: of all finished runs.
        missing: runs that are not done yet.
        currency: of the cost; None without a price.
    """

    source: str
    agent: str
    figures: list[Figures]
    comparisons: list[Comparison]
    records: list[RunRecord]
    missing: int
    currency: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the result in JSON's types, with the traces of runs with another outcome."""
        changed: list[dict[str, Any]] = []
        for comparison in self.comparisons:
            for task, trial in comparison.changed:
                traces = self.traces(comparison, task, trial)
                changed.append({"arm": comparison.arm, "task": task, "trial": trial, "traces": traces})
        return {
            "source": self.source,
            "agent": self.agent,
            "missing": self.missing,
            "currency": self.currency,
            "figures": [plain(figures) for figures in self.figures],
            "comparisons": [plain(comparison) for comparison in self.comparisons],
            "changed": changed,
            "runs": [plain(record) for record in self.records],
        }

    def traces(self, comparison: Comparison, task: str, trial: int) -> dict[str, list[str]]:
        """Return the traces of a task and trial in the two arms of a comparison."""
        traces: dict[str, list[str]] = {}
        for arm in (comparison.against, comparison.arm):
            for record in self.records:
                if (record.arm, record.task, record.trial) == (arm, task, trial):
                    traces[arm] = record.trace
        return traces


def pass_hat_k(successes: int, trials: int, k: int) -> float:
    """Return the probability that k trials drawn from those of a task all succeed: C(successes, k) / C(trials, k).

    Source: Yao et al. 2024, tau-bench.

    >>> pass_hat_k(2, 4, 2)
    0.16666666666666666
    """
    return comb(successes, k) / comb(trials, k)


def figures_of(arm: str, records: Iterable[RunRecord]) -> Figures:
    """Return the figures of an arm from the records of an evaluation."""
    successes: defaultdict[str, list[bool]] = defaultdict(list)
    scores: list[float] = []
    seconds: list[float] = []
    costs: list[float] = []
    usage, train = Usage(), Usage()
    passed = memory_calls = errors = 0
    for record in records:
        if record.arm != arm:
            continue
        if record.split != "test":
            train.add(record.usage)
            continue
        usage.add(record.usage)
        successes[record.task].append(record.success)
        passed += record.success
        scores.append(record.score)
        seconds.append(record.seconds)
        memory_calls += record.memory_calls
        errors += bool(record.error)
        if record.cost is not None:
            costs.append(record.cost)
    runs = len(scores)
    cost = None
    if costs:
        cost = sum(costs)
    return Figures(
        arm=arm,
        tasks=len(successes),
        runs=runs,
        success=passed / max(runs, 1),
        score=sum(scores) / max(runs, 1),
        pass_k=_pass_k(list(successes.values())),
        usage=usage,
        seconds=sum(seconds),
        cost=cost,
        memory_calls=memory_calls,
        errors=errors,
        train=train,
    )


def _pass_k(of_tasks: Sequence[Sequence[bool]]) -> dict[int, float]:
    """Return k -> pass^k, the mean over tasks, for each k that all tasks have trials for."""
    # For a greater k, a task with fewer trials is undefined.
    trials = min((len(successes) for successes in of_tasks), default=0)
    pass_k: dict[int, float] = {}
    for k in range(1, trials + 1):
        chances = [pass_hat_k(sum(successes), len(successes), k) for successes in of_tasks]
        pass_k[k] = sum(chances) / len(chances)
    return pass_k


def compared(
    arm: str, against: str, records: Sequence[RunRecord], *, seed: int = 0, resamples: int = RESAMPLES
) -> Comparison:
    """Compare an arm with another on their common runs.

    The bootstrap draws tasks, not runs: trials of one task are not independent.

    Args:
        arm: the arm.
        against: the arm it is compared with.
        records: of the evaluation.
        seed: of the bootstrap.
        resamples: of the bootstrap.
    """
    by_task: defaultdict[str, list[PairedRecords]] = defaultdict(list)
    changed: list[TaskTrial] = []
    for pair in pairs_of(arm, against, records):
        by_task[pair.own.task].append(pair)
        if pair.own.success != pair.other.success:
            changed.append(TaskTrial(pair.own.task, pair.own.trial))
    differences: dict[str, Interval] = {}
    # Each metric draws the same tasks, because each bootstrap starts from the seed.
    for metric in METRICS:
        of_tasks: list[list[float]] = []
        for pairs in by_task.values():
            of_tasks.append([pair.difference(metric) for pair in pairs])
        differences[metric] = _interval(of_tasks, seed, resamples)
    return Comparison(arm, against, len(by_task), differences, changed)


@dataclass(frozen=True, slots=True)
class PairedRecords:
    """The same task and trial in two arms."""

    own: RunRecord
    other: RunRecord

    def difference(self, metric: str) -> float:
        return _metrics(self.own)[metric] - _metrics(self.other)[metric]


def pairs_of(arm: str, against: str, records: Sequence[RunRecord]) -> list[PairedRecords]:
    """Return the test runs of an arm with the same runs of another, in their order."""
    others: dict[TaskTrial, RunRecord] = {}
    for record in records:
        if record.arm == against and record.split == "test":
            others[TaskTrial(record.task, record.trial)] = record
    pairs = []
    for record in records:
        other = others.get(TaskTrial(record.task, record.trial))
        # A budget that ended early may have left one arm of a pair.
        if record.arm == arm and record.split == "test" and other is not None:
            pairs.append(PairedRecords(record, other))
    return pairs


def _metrics(record: RunRecord) -> dict[str, float]:
    """Return the values of METRICS."""
    return {
        "success": float(record.success),
        "model calls": record.usage.model_calls,
        "input tokens": record.usage.input,
        "cached tokens": record.usage.cached,
        "output tokens": record.usage.output,
        "seconds": record.seconds,
        # Without a price all are 0, and so is their difference.
        "cost": record.cost or 0.0,
    }


def _interval(of_tasks: Sequence[Sequence[float]], seed: int, resamples: int) -> Interval:
    """Return the mean over all runs, with the interval from resampled tasks."""
    if not of_tasks:
        return Interval(0.0, 0.0, 0.0)
    # A task counts with all its runs, so the mean of a sample is its sum by its number of runs.
    sums = np.array([sum(runs) for runs in of_tasks], dtype=float)
    sizes = np.array([len(runs) for runs in of_tasks], dtype=float)
    # (resamples, tasks): the tasks of each sample, drawn with replacement.
    drawn = np.random.default_rng(seed).integers(len(sums), size=(resamples, len(sums)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return Interval(float(sums.sum() / sizes.sum()), float(low), float(high))


def plain(value: Any) -> Any:
    """Return a record of figures in JSON's types."""
    return loads(dumps(asdict(value)))


# --- in words ---

MAX_SIDE_BY_SIDE: Final = 50
"""Runs with another outcome on the page."""


def in_words(result: Result) -> list[str | TextTable]:
    """Return sentences and tables: figures of the arms, differences from the first arm."""
    parts: list[str | TextTable] = [_outcomes(result), _costs(result)]
    if result.missing:
        parts.append(f"Not finished: {count(result.missing, 'run')} to go.")
    if not any(figures.runs for figures in result.figures):
        return parts
    for comparison in result.comparisons:
        parts.append(_differences(comparison))
        changed = f"{count(len(comparison.changed), 'run')} with another outcome"
        both = f"of {count(comparison.tasks, 'task')} in both"
        parts.append(f"{comparison.arm} against {comparison.against}: {changed}, {both}.")
    return [*parts, *_uncounted(result)]


def _uncounted(result: Result) -> list[str]:
    """Return sentences on the calls that the tables count as 0, or leave out."""
    unknown = 0
    trained: list[str] = []
    for figures in result.figures:
        unknown += figures.usage.unknown
        if figures.train.model_calls:
            trained.append(f"{figures.arm} {figures.train.model_calls:,}")
    sentences: list[str] = []
    if unknown:
        sentences.append(f"The model reported no tokens for {count(unknown, 'call')}; they count as 0.")
    if trained:
        sentences.append(f"Model calls of train tasks, not counted above: {', '.join(trained)}.")
    return sentences


def _outcomes(result: Result) -> TextTable:
    rows = []
    for figures in result.figures:
        pass_k = " ".join([f"{chance:.3f}" for chance in figures.pass_k.values()])
        counts = (f"{figures.tasks:,}", f"{figures.runs:,}", f"{figures.success:.1%}", pass_k or "–")
        rows.append((figures.arm, *counts, f"{figures.errors:,}"))
    return TextTable("Test runs", ("arm", "tasks", "runs", "success", "pass^k", "errors"), tuple(rows))


def _costs(result: Result) -> TextTable:
    rows = []
    for figures in result.figures:
        usage = figures.usage
        cost = "–"
        if figures.cost is not None:
            cost = money_in_words(figures.cost, result.currency)
        calls = (f"{usage.model_calls:,}", f"{figures.memory_calls:,}")
        tokens = (f"{usage.input:,}", f"{usage.cached:,}", f"{usage.output:,}")
        rows.append((figures.arm, *calls, *tokens, f"{figures.seconds:,.1f}", cost))
    columns = ("arm", "model calls", "by memory", "input", "cached", "output", "seconds", "cost")
    return TextTable("Calls, tokens and time", columns, tuple(rows))


def _differences(comparison: Comparison) -> TextTable:
    rows = []
    for metric, interval in comparison.differences.items():
        # A run may cost a tenth of a cent.
        digits = 6 if metric == "cost" else 3
        between = f"{interval.low:+,.{digits}f} to {interval.high:+,.{digits}f}"
        rows.append((metric, f"{interval.value:+,.{digits}f}", between))
    title = f"{comparison.arm} minus {comparison.against}, mean per run"
    return TextTable(title, ("", "difference", "95 % interval, by task"), tuple(rows))


def page_of(result: Result) -> str:
    """Return one HTML page without script: the figures, and the runs with another outcome, side by side."""
    title = f"toolmem eval: {result.source}"
    header = f"<header><h1>{text_of(title)}</h1><p>{text_of(result.agent)}</p></header><main>"
    return whole_page(title, "\n".join([header, *lead_of(in_words(result)), *_side_by_side(result)]))


def _side_by_side(result: Result) -> Iterable[str]:
    shown = 0
    for comparison in result.comparisons:
        for place in comparison.changed:
            if shown == MAX_SIDE_BY_SIDE:
                yield '<p class="quiet">More runs with another outcome are in the JSON file.</p>'
                return
            shown += 1
            traces = result.traces(comparison, place.task, place.trial)
            heading = f"{comparison.arm} against {comparison.against}: task {place.task}, trial {place.trial + 1}"
            cells = ""
            for trace in traces.values():
                lines = "<br>".join([text_of(line) for line in trace])
                cells += f"<td>{lines}</td>"
            yield f"<h2>{text_of(heading)}</h2>{table_of(f'<tr>{cells}</tr>', list(traces))}"
