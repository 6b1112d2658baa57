"""Runs one by one, or hours summed to hours, days or weeks: what is drawn over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from langgraph_toolmem.graph.events import HOUR
from langgraph_toolmem.report.report import Period, Report

DAY = 24 * HOUR
WEEK = 7 * DAY
_MONDAY = 4 * DAY  # 1970 began on a Thursday; weeks begin on Monday
_LIMITS = ((HOUR, 3 * DAY), (DAY, 120 * DAY))
RUN = 1
"""In the place of a bucket's seconds: each run is one."""
_FEW = 4 * HOUR
NAMES = {RUN: "run", HOUR: "hour", DAY: "day", WEEK: "week"}


class Bucket(NamedTuple):
    """Sums over one run, or one hour, day or week (UTC), and since the beginning.

    `precision` and `precision_so_far` are None where nothing was checked.
    """

    start: int
    turns: int
    skipped: int
    skipped_failed: int
    right: int
    wrong: int
    skipped_so_far: int
    precision: float | None
    precision_so_far: float | None


def bucket_size(periods: Sequence[Period], runs: Sequence[Period] = ()) -> int:
    """Seconds of one bucket: RUN up to four hours, an hour up to three days, a day up to four months, else a week."""
    if not periods:
        return HOUR
    span = max(p.start for p in periods) + HOUR - min(p.start for p in periods)
    if span <= _FEW and len(runs) > 1:
        return RUN
    return next((size for size, most in _LIMITS if span <= most), WEEK)


def buckets(periods: Sequence[Period], size: int, before: tuple[int, int, int] = (0, 0, 0)) -> list[Bucket]:
    """The periods summed to buckets of `size` seconds, oldest first; buckets with nothing in them are left out.

    `before`: skipped, right and wrong of what is older.
    """
    offset = _MONDAY if size == WEEK else 0
    sums: dict[tuple[int, int], list[int]] = {}
    for place, p in enumerate(periods):
        start = (p.start - offset) // size * size + offset
        row = sums.setdefault((start, place if size == RUN else 0), [0, 0, 0, 0, 0])
        for i, number in enumerate((p.turns, p.skipped, p.skipped_failed, p.right, p.wrong)):
            row[i] += number
    found = []
    skipped_so_far, right_so_far, wrong_so_far = before
    for (start, _), (turns, skipped, failed, right, wrong) in sorted(sums.items()):
        skipped_so_far += skipped
        right_so_far += right
        wrong_so_far += wrong
        now, so_far = _share(right, wrong), _share(right_so_far, wrong_so_far)
        found.append(Bucket(start, turns, skipped, failed, right, wrong, skipped_so_far, now, so_far))
    return found


def _share(right: int, wrong: int) -> float | None:
    return right / (right + wrong) if right + wrong else None


def over_time(report: Report) -> tuple[list[Bucket], int]:
    """Return what happened when, and the size of the buckets."""
    size, runs = bucket_size(report.periods, report.newest_runs), report.newest_runs
    if size != RUN:
        return buckets(report.periods, size), size
    skipped, right, wrong = (sum(getattr(run, name) for run in runs) for name in ("skipped", "right", "wrong"))
    return buckets(runs, RUN, (report.skipped - skipped, report.right - right, report.wrong - wrong)), size
