"""Figures of an evaluation: success, pass^k, tokens, and paired differences with intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any, Final, NamedTuple

import numpy as np

from langgraph_toolmem.base.jsontext import dumps, loads
from langgraph_toolmem.evaluation.answers import Usage
from langgraph_toolmem.evaluation.journal import RunRecord

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


def pass_hat_k(successes: int, trials: int, k: int) -> float:
    """Return the probability that k trials drawn from those of a task all succeed: C(successes, k) / C(trials, k).

    Source: Yao et al. 2024, tau-bench.

    >>> pass_hat_k(2, 4, 2)
    0.16666666666666666
    """
    return comb(successes, k) / comb(trials, k)


def figures_of(arm: str, records: Iterable[RunRecord]) -> Figures:
    """Return the figures of an arm from the records of an evaluation."""
    tested: list[RunRecord] = []
    usage, train = Usage(), Usage()
    for record in records:
        if record.arm == arm and record.split == "test":
            tested.append(record)
            usage.add(record.usage)
        elif record.arm == arm:
            train.add(record.usage)
    successes: defaultdict[str, list[bool]] = defaultdict(list)
    scores: list[float] = []
    seconds: list[float] = []
    costs: list[float] = []
    passed = memory_calls = errors = 0
    for record in tested:
        successes[record.task].append(record.success)
        passed += record.success
        scores.append(record.score)
        seconds.append(record.seconds)
        memory_calls += record.memory_calls
        if record.cost is not None:
            costs.append(record.cost)
        if record.error:
            errors += 1
    runs = len(tested)
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
    by_place: dict[TaskTrial, dict[str, RunRecord]] = defaultdict(dict)
    for record in records:
        if record.split == "test" and record.arm in (arm, against):
            by_place[TaskTrial(record.task, record.trial)][record.arm] = record
    by_task: defaultdict[str, list[_PairedRecords]] = defaultdict(list)
    changed: list[TaskTrial] = []
    for place, of_arms in by_place.items():
        # A budget that ended early may have left one arm of a pair.
        if len(of_arms) < 2:
            continue
        pair = _PairedRecords(of_arms[arm], of_arms[against])
        by_task[pair.own.task].append(pair)
        if pair.own.success != pair.other.success:
            changed.append(place)
    differences: dict[str, Interval] = {}
    # Each metric draws the same tasks, because each bootstrap starts from the seed.
    for metric in METRICS:
        of_tasks: list[list[float]] = []
        for pairs in by_task.values():
            of_tasks.append([pair.difference(metric) for pair in pairs])
        differences[metric] = _interval(of_tasks, seed, resamples)
    return Comparison(arm, against, len(by_task), differences, changed)


@dataclass(frozen=True, slots=True)
class _PairedRecords:
    """The same task and trial in two arms."""

    own: RunRecord
    other: RunRecord

    def difference(self, metric: str) -> float:
        return _metrics(self.own)[metric] - _metrics(self.other)[metric]


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
