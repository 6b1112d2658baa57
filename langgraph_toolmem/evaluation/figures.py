"""Figures of an evaluation: success, pass^k, tokens, and paired differences with intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any, Final

import numpy as np

from langgraph_toolmem.base.jsontext import dumps, loads
from langgraph_toolmem.evaluation.answers import Usage
from langgraph_toolmem.evaluation.journal import RunRecord

RESAMPLES: Final = 10_000
CONFIDENCE: Final = 0.95
Metric = Callable[[RunRecord], float]
METRICS: Final[Mapping[str, Metric]] = {
    "success": lambda record: float(record.success),
    "model calls": lambda record: record.usage.model_calls,
    "input tokens": lambda record: record.usage.input,
    "cached tokens": lambda record: record.usage.cached,
    "output tokens": lambda record: record.usage.output,
    "seconds": lambda record: record.seconds,
    "cost": lambda record: record.cost or 0.0,
}


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """One arm against the first.

    Attributes:
        arm: the arm.
        against: the first arm.
        tasks: tasks with the same trials in both.
        differences: metric -> arm minus first, mean per run.
        changed: (task, trial) of runs with another outcome.
    """

    arm: str
    against: str
    tasks: int
    differences: dict[str, Interval]
    changed: list[tuple[str, int]]


def pass_hat_k(successes: int, trials: int, k: int) -> float:
    """Return the chance that k trials drawn from those of a task all succeed: C(successes, k) / C(trials, k).

    Source: Yao et al. 2024, tau-bench.

    >>> pass_hat_k(2, 4, 2)
    0.16666666666666666
    """
    return comb(successes, k) / comb(trials, k)


def figures_of(arm: str, records: Iterable[RunRecord]) -> Figures:
    """Return the figures of an arm from the records of an evaluation."""
    own = [record for record in records if record.arm == arm]
    tested = [record for record in own if record.split == "test"]
    usage, train = Usage(), Usage()
    for record in own:
        (usage if record.split == "test" else train).add(record.usage)
    runs = len(tested)
    successes: defaultdict[str, list[bool]] = defaultdict(list)
    for record in tested:
        successes[record.task].append(record.success)
    trials = min(map(len, successes.values()), default=0)
    pass_k: dict[int, float] = {}
    for k in range(1, trials + 1):
        chances = [pass_hat_k(sum(of_task), len(of_task), k) for of_task in successes.values()]
        pass_k[k] = sum(chances) / len(chances)
    costs = [record.cost for record in tested if record.cost is not None]
    return Figures(
        arm=arm,
        tasks=len(successes),
        runs=runs,
        success=sum(record.success for record in tested) / max(runs, 1),
        score=sum(record.score for record in tested) / max(runs, 1),
        pass_k=pass_k,
        usage=usage,
        seconds=sum(record.seconds for record in tested),
        cost=sum(costs) if costs else None,
        memory_calls=sum(record.memory_calls for record in tested),
        errors=sum(bool(record.error) for record in tested),
        train=train,
    )


def compared(
    arm: str, against: str, records: Sequence[RunRecord], *, seed: int = 0, resamples: int = RESAMPLES
) -> Comparison:
    """Compare an arm with another on the runs that both have.

    The bootstrap draws tasks, not runs: trials of one task are not independent.

    Args:
        arm: the arm.
        against: the arm it is compared with.
        records: of the evaluation.
        seed: of the bootstrap.
        resamples: of the bootstrap.
    """
    by_place: dict[tuple[str, int], dict[str, RunRecord]] = defaultdict(dict)
    for record in records:
        if record.split == "test" and record.arm in (arm, against):
            by_place[record.task, record.trial][record.arm] = record
    pairs = {place: found for place, found in by_place.items() if len(found) == 2}
    by_task: defaultdict[str, list[dict[str, RunRecord]]] = defaultdict(list)
    for (task, _), found in pairs.items():
        by_task[task].append(found)
    differences: dict[str, Interval] = {}
    for name, metric in METRICS.items():
        of_tasks = [[metric(found[arm]) - metric(found[against]) for found in runs] for runs in by_task.values()]
        differences[name] = _interval(of_tasks, seed, resamples)
    changed = [place for place, found in pairs.items() if found[arm].success != found[against].success]
    return Comparison(arm, against, len(by_task), differences, changed)


def _interval(of_tasks: Sequence[Sequence[float]], seed: int, resamples: int) -> Interval:
    """Return the mean over all runs, with the interval from resampled tasks."""
    if not of_tasks:
        return Interval(0.0, 0.0, 0.0)
    sums = np.array([sum(runs) for runs in of_tasks], dtype=float)
    sizes = np.array([len(runs) for runs in of_tasks], dtype=float)
    drawn = np.random.default_rng(seed).integers(len(sums), size=(resamples, len(sums)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return Interval(float(sums.sum() / sizes.sum()), float(low), float(high))


def plain(value: Any) -> Any:
    """Return a record of figures in JSON's types."""
    return loads(dumps(asdict(value)))
