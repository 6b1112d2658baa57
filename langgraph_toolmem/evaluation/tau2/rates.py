"""The rates at which the stub departs from its plan, and their measurement on recorded runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import canonical
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.run import ExecutedCall, Turn
from langgraph_toolmem.runs.trajectory import parse_run

LEAST_GOOD_RUNS: Final = 2
"""Least number of good runs of a task from which a look-up of the task can be called needless."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates at which the stub departs from its plan.

    Attributes:
        follow: share of the points at which it follows a shown hint.
        err: share of the points at which it makes a look-up outside the plan.
        again: share of the look-ups that it repeats once.
        failed: share of the points at which it first makes a look-up with a wrong id.
    """

    follow: float = 0.5
    err: float = 0.0
    again: float = 0.0
    failed: float = 0.0


@dataclass(slots=True)
class _Counts:
    """Look-ups of all runs.

    Attributes:
        made: number of look-ups.
        again: of them, those that were made before in the run, without a change in between.
        failed: of them, those that ended in an error.
        judged: of them, those of tasks with enough good runs.
        needless: of the judged ones, those that fewer than half of the task's good runs make.
    """

    made: int = 0
    again: int = 0
    failed: int = 0
    judged: int = 0
    needless: int = 0


def fitted_rates(runs: Iterable[LoggedRun], reads: Collection[str], *, follow: float = 0.5) -> Rates:
    """Return the rates of a real model, counted in its recorded runs. Each is a share of all look-ups.

    A look-up is needless if fewer than half of the task's good runs make it. It was repeated if the same call came
    before in the run, without a change in between.

    Args:
        runs: a log whose runs name their task and their outcome.
        reads: names of the tools that only read.
        follow: not in a recording; used as it is.

    Raises:
        ConfigurationError: the runs have no look-up.
    """
    by_task: dict[str, list[_RecordedRun]] = defaultdict(list)
    for run in runs:
        # A log without tasks: each run is a task of its own, so look-ups cannot be called needless.
        by_task[run.task or run.thread_id].append(_RecordedRun(_calls_of(run), run.success is True))
    counts = _Counts()
    for of_task in by_task.values():
        _count(of_task, reads, counts)
    if not counts.made:
        raise ConfigurationError(f"the runs have no look-up by these tools: {', '.join(sorted(reads)) or 'none'}")
    return Rates(
        follow=follow,
        err=counts.needless / max(counts.judged, 1),
        again=counts.again / counts.made,
        failed=counts.failed / counts.made,
    )


@dataclass(frozen=True, slots=True)
class _RecordedRun:
    """The calls of a recorded run, and its outcome."""

    calls: list[ExecutedCall]
    good: bool


def _count(runs: Collection[_RecordedRun], reads: Collection[str], counts: _Counts) -> None:
    """Add the look-ups of one task's runs."""
    good_runs = [run for run in runs if run.good]
    made_by: Counter[str] = Counter()
    for run in good_runs:
        made_by.update({_identity(call) for call in run.calls if call.tool in reads})
    for run in runs:
        shown: set[str] = set()
        for call in run.calls:
            # After a change a record may differ: reading it again is right.
            if call.tool not in reads:
                shown.clear()
                continue
            look_up = _identity(call)
            counts.made += 1
            counts.again += look_up in shown
            shown.add(look_up)
            # A failed look-up counts once, as such: its arguments are wrong, so no good run makes it.
            if call.status == "failed":
                counts.failed += 1
            elif len(good_runs) >= LEAST_GOOD_RUNS:
                counts.judged += 1
                counts.needless += 2 * made_by[look_up] < len(good_runs)


def _calls_of(run: LoggedRun) -> list[ExecutedCall]:
    calls: list[ExecutedCall] = []
    for event in parse_run(run.messages, thread_id=run.thread_id).events:
        if isinstance(event, Turn):
            calls += event.steps
    return calls


def _identity(call: ExecutedCall) -> str:
    return f"{call.tool} {canonical(call.args)}"
