"""Hours summed to hours, days or weeks: what is drawn over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from langgraph_toolmem.graph.operations import HOUR
from langgraph_toolmem.report.savings import Period

DAY = 24 * HOUR
WEEK = 7 * DAY
_MONDAY = 4 * DAY  # 1970 began on a Thursday; weeks begin on Monday
_LIMITS = ((HOUR, 3 * DAY), (DAY, 120 * DAY))
NAMES = {HOUR: "hour", DAY: "day", WEEK: "week"}


class Bucket(NamedTuple):
    """Sums over one hour, day or week (UTC), and since the beginning.

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


def bucket_size(periods: Sequence[Period]) -> int:
    """Seconds of one bucket: an hour up to three days, a day up to four months, else a week."""
    if not periods:
        return HOUR
    span = max(p.start for p in periods) + HOUR - min(p.start for p in periods)
    return next((size for size, most in _LIMITS if span <= most), WEEK)


def buckets(periods: Sequence[Period], size: int) -> list[Bucket]:
    """The periods summed to buckets of `size` seconds, oldest first; buckets with nothing in them are left out."""
    offset = _MONDAY if size == WEEK else 0
    sums: dict[int, list[int]] = {}
    for p in periods:
        start = (p.start - offset) // size * size + offset
        row = sums.setdefault(start, [0, 0, 0, 0, 0])
        for i, number in enumerate((p.turns, p.skipped, p.skipped_failed, p.right, p.wrong)):
            row[i] += number
    found = []
    skipped_so_far = right_so_far = wrong_so_far = 0
    for start, (turns, skipped, failed, right, wrong) in sorted(sums.items()):
        skipped_so_far += skipped
        right_so_far += right
        wrong_so_far += wrong
        now, so_far = _share(right, wrong), _share(right_so_far, wrong_so_far)
        found.append(Bucket(start, turns, skipped, failed, right, wrong, skipped_so_far, now, so_far))
    return found


def _share(right: int, wrong: int) -> float | None:
    return right / (right + wrong) if right + wrong else None
