"""The memory's effect: episodes with it against held-out ones, each difference with an interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, variance
from typing import Final

from langgraph_toolmem.core.holdout import Episode
from langgraph_toolmem.graph.operations import GOOD

Z: Final = 1.959963984540054
"""97.5 % quantile of the normal distribution, for 95 % intervals."""


@dataclass(frozen=True)
class Difference:
    """The difference of two shares or means, with the memory minus without, and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Arm:
    """Episodes of one side.

    Attributes:
        episodes: number of episodes in which the memory was asked, or would have been.
        judged, good: of these, those with feedback, and with good feedback.
        model_calls: mean per episode; None if there are none.
        tokens: likewise, in and out, of episodes whose messages carry usage.
    """

    episodes: int = 0
    judged: int = 0
    good: int = 0
    model_calls: float | None = None
    tokens: float | None = None


@dataclass(frozen=True)
class HoldoutReport:
    """Both sides. A difference is None if a side has no feedback, or fewer than two episodes."""

    memory: Arm = field(default_factory=Arm)
    held_out: Arm = field(default_factory=Arm)
    success: Difference | None = None
    model_calls: Difference | None = None
    tokens: Difference | None = None

    def sentences(self) -> list[str]:
        """Return the comparison in sentences."""
        ours, without = self.memory, self.held_out
        lines = [
            f"Held out, without hints and without calls in the model's place: {without.episodes:,} of "
            f"{ours.episodes + without.episodes:,} episodes."
        ]
        if self.success is not None:
            lines.append(
                f"Success with the memory in {ours.good:,} of {ours.judged:,} judged episodes, without in "
                f"{without.good:,} of {without.judged:,}: {_in_words(self.success, 100, 1)} points."
            )
        for name, digits in (("model_calls", 2), ("tokens", 0)):
            found: Difference | None = getattr(self, name)
            if found is not None:
                mine, other = getattr(ours, name), getattr(without, name)
                lines.append(
                    f"{name.replace('_', ' ').capitalize()} per episode with the memory {mine:,.{digits}f}, without "
                    f"{other:,.{digits}f}: {_in_words(found, 1, digits)}."
                )
        return lines


def compare(episodes: Iterable[Episode]) -> HoldoutReport:
    """Compare the episodes with the memory and without."""
    sides: tuple[list[Episode], list[Episode]] = ([], [])
    for each in episodes:
        sides[each.held].append(each)
    calls = [[float(each.calls) for each in side if each.calls] for side in sides]
    tokens = [[float(each.tokens) for each in side if each.tokens] for side in sides]
    ours, without = (
        Arm(
            episodes=len(side),
            judged=len(judged := [each for each in side if each.good is not None]),
            good=sum(each.good is not None and each.good >= GOOD for each in judged),
            model_calls=fmean(spent) if spent else None,
            tokens=fmean(used) if used else None,
        )
        for side, spent, used in zip(sides, calls, tokens, strict=True)
    )
    success = shares(ours.good, ours.judged, without.good, without.judged)
    return HoldoutReport(ours, without, success, means(*calls), means(*tokens))


def shares(good: int, of: int, good_too: int, of_too: int) -> Difference | None:
    """Return the difference of two shares with Newcombe's interval (1998, method 10); None if one is of nothing."""
    if not of or not of_too:
        return None
    one, two = good / of, good_too / of_too
    (low, high), (low_too, high_too) = wilson(good, of), wilson(good_too, of_too)
    value = one - two
    return Difference(
        value, value - math.hypot(one - low, high_too - two), value + math.hypot(high - one, two - low_too)
    )


def wilson(good: int, of: int) -> tuple[float, float]:
    """Return Wilson's interval of a share."""
    share, z = good / of, Z * Z / of
    middle, half = share + z / 2, Z * math.sqrt(share * (1 - share) / of + z / (4 * of))
    return max(0.0, (middle - half) / (1 + z)), min(1.0, (middle + half) / (1 + z))


def means(one: Sequence[float], two: Sequence[float]) -> Difference | None:
    """Return the difference of two means with Welch's interval; None if one is of fewer than two numbers."""
    if min(len(one), len(two)) < 2:
        return None
    a, b = variance(one) / len(one), variance(two) / len(two)
    value = fmean(one) - fmean(two)
    if not a + b:
        return Difference(value, value, value)
    half = student((a + b) ** 2 / (a * a / (len(one) - 1) + b * b / (len(two) - 1))) * math.sqrt(a + b)
    return Difference(value, value - half, value + half)


def student(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's distribution, by expansion in 1/freedom; within 1 % from two degrees."""
    z = [Z**power for power in range(10)]
    parts = (
        z[1],
        (z[3] + z[1]) / 4,
        (5 * z[5] + 16 * z[3] + 3 * z[1]) / 96,
        (3 * z[7] + 19 * z[5] + 17 * z[3] - 15 * z[1]) / 384,
        (79 * z[9] + 776 * z[7] + 1482 * z[5] - 1920 * z[3] - 945 * z[1]) / 92160,
    )
    return sum(part / freedom**power for power, part in enumerate(parts))


def _in_words(found: Difference, times: float, digits: int) -> str:
    value, low, high = (number * times for number in (found.value, found.low, found.high))
    return f"{value:+,.{digits}f} (95 % interval {low:+,.{digits}f} to {high:+,.{digits}f})"
