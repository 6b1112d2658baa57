"""Shares of few cases: exact intervals, and percentages only with enough cases."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

ENOUGH: Final = 20


def percentage(part: float, whole: float) -> str:
    """Return a share in percent, as in "93 %"; "–" for fewer than ENOUGH cases."""
    return f"{100 * part / whole:.0f} %" if whole >= ENOUGH else "–"


def lower_limit(hits: int, of: int, confidence: float = 0.95) -> float:
    """Return the one-sided lower limit (Clopper-Pearson) of a share, seen in `hits` of `of` cases."""
    return interval(hits, of, 2 * confidence - 1)[0]


def interval(hits: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact two-sided interval of a share (Clopper and Pearson 1934); (0, 1) for no cases."""
    tail = (1 - confidence) / 2

    def solve(most: int, wanted: float) -> float:
        # the share at which at most `most` hits have probability `wanted`
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if at_most(most, of, middle) > wanted else (low, middle)
        return (low + high) / 2

    lower = 0.0 if hits == 0 else solve(hits - 1, 1 - tail)
    upper = 1.0 if hits == of else solve(hits, tail)
    return lower, upper


@lru_cache(maxsize=4096)
def at_most(most: int, of: int, share: float) -> float:
    """Return the probability of at most `most` hits in `of` cases of this share."""
    return math.fsum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(most + 1))
