"""The number of recalled past runs: the settings, and the paper's rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, takewhile
from operator import ge
from typing import Any, Final, Literal

from langgraph_toolmem.base.checks import expect, is_count, is_share

RADIUS: Final = 10
"""The paper's R: neighbours on each side over which the slope is taken."""
PROMINENCE: Final = 1e-5
"""The paper's: how far a peak of the slope has to stand out."""
SLOPES: Final = 3
"""Fewest values among which a peak can be: one with a neighbour on each side."""
NO_PEAK: Final = 5
"""The paper's n where there is no peak; it does not say."""


@dataclass(frozen=True)
class RecallPolicy:
    """Settings of the number of recalled runs.

    Attributes:
        kind: ``calibrated``: those that are relevant with a probability of at least `least`, often none. ``paper``:
            MemToolAgent's dynamic n, where the similarities fall fastest.
        least: calibrated: the least probability.
        max_n: the most runs.
    """

    kind: Literal["calibrated", "paper"] = "calibrated"
    least: float = 0.5
    max_n: int = 10

    def __post_init__(self) -> None:
        expect(self, "kind", "'calibrated' or 'paper'", lambda v: v in ("calibrated", "paper"))
        expect(self, "least", "a probability from 0 to 1", is_share)
        expect(self, "max_n", "a whole number from 1", lambda v: is_count(v, 1))

    @classmethod
    def paper(cls, **changes: Any) -> RecallPolicy:
        """Return MemToolAgent's rule as published: R = 10, prominence = 1e-5, first peak."""
        return cls(**{"kind": "paper", "max_n": 50, **changes})

    def with_(self, **changes: Any) -> RecallPolicy:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


def dynamic_n(similarities: Sequence[float], most: int = 50) -> int:
    """Return MemToolAgent's n for similarities in falling order: the place of the first peak among the slopes.

    What the paper leaves open: in a short list R is as large as leaves three slopes, (|x|-3)/2 rounded down; where
    the slopes have no peak, or the list has fewer than five values, n is NO_PEAK. A flat peak has its place in the
    middle, rounded down. n counts from the top of the list.
    """
    radius = min(RADIUS, (len(similarities) - SLOPES) // 2)
    found = peaks(slopes(similarities, radius), PROMINENCE) if radius >= 1 else []
    return min(found[0] + radius if found else NO_PEAK, most, len(similarities))


def slopes(values: Sequence[float], radius: int) -> list[float]:
    """Return how fast a list falls around each place: y(j) = -Σ τ·x(j+τ) / Σ τ², τ = -R … R, for j = R … |x|-R-1.

    That is minus the slope of the least-squares line through the 2R+1 values around j; the first answer is of place R.
    """
    steps = range(-radius, radius + 1)
    norm = sum(step * step for step in steps)
    return [-sum(step * values[place + step] for step in steps) / norm for place in range(radius, len(values) - radius)]


def peaks(values: Sequence[float], prominence: float) -> list[int]:
    """Return places that are higher than both sides, and by that much higher than the way to anything above them."""
    found, start = list[int](), 0
    for height, same in groupby(values):
        end = start + len(list(same))
        if start > 0 and end < len(values) and values[start - 1] < height > values[end]:
            sides = reversed(values[:start]), values[end:]
            if height - max(min(takewhile(partial(ge, height), side)) for side in sides) >= prominence:
                found.append((start + end - 1) // 2)
        start = end
    return found
