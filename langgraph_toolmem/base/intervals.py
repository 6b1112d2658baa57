"""Shares of few cases: exact intervals, and percentages only with enough cases."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

MAX_STEPS: Final = 200
"""Limit of the steps of an iteration. 10^7 cases need 80 steps of the fraction at the ends of an interval, and 3 of
Newton's.
"""


def percentage(part: float, whole: float) -> str:
    """Return a share in percent, as in "93 %"; "–" for fewer than 20 cases."""
    if whole < 20:
        return "–"
    return f"{100 * part / whole:.0f} %"


def lower_limit(hits: int, of: int, confidence: float = 0.95) -> float:
    """Return the one-sided lower limit (Clopper-Pearson) of a share, seen in `hits` of `of` cases."""
    return interval(hits, of, 2 * confidence - 1)[0]


def interval(hits: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact two-sided interval of a share (Clopper and Pearson 1934); (0, 1) without cases."""
    tail = (1 - confidence) / 2
    hits = max(0, min(hits, of))  # counts from a damaged file may contradict each other
    misses = max(0, of) - hits
    lower, upper = 0.0, 1.0
    if hits:
        lower = _beta_quantile(tail, hits, misses + 1)
    if misses:
        upper = 1 - _beta_quantile(tail, misses, hits + 1)
    return lower, upper


def _beta_quantile(probability: float, a: int, b: int) -> float:
    """Return the x at which the distribution Beta(a, b) reaches a probability: Newton's method, kept in a bracket."""
    # Newton's errors are squared at each step: from here on the next one is at the precision of a float.
    relative_step = 1e-10
    low, high = 0.0, 1.0
    x = _wilson_limit(probability, a, b)
    for _ in range(MAX_STEPS):
        density = _density(x, a, b)
        excess = beta_cdf(x, a, b) - probability
        if excess > 0:
            high = x
        else:
            low = x
        guess = low
        if density > 0:
            guess = x - excess / density
        # Far from the quantile the density is nearly 0, and Newton's step leaves the bracket: halve it instead.
        if not low < guess < high:
            guess = (low + high) / 2
        if abs(guess - x) <= relative_step * x:
            return guess
        x = guess
    return x


def _wilson_limit(probability: float, hits: int, misses: int) -> float:
    """Return the limit of a share by Wilson's score (1927), which is never 0 or 1: a start value of the iteration."""
    z = NormalDist().inv_cdf(probability)
    of = hits + misses
    centre = hits + z * z / 2
    spread = z * math.sqrt(hits * misses / of + z * z / 4)
    return (centre + spread) / (of + z * z)


def _density(x: float, a: int, b: int) -> float:
    # By logarithms: the factors of 1,030 cases are too large for a float.
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp((a - 1) * math.log(x) + (b - 1) * math.log1p(-x) - log_beta)


def beta_cdf(x: float, a: int, b: int) -> float:
    """Return the regularized incomplete beta function (Press et al., Numerical Recipes, 3rd ed., 6.4)."""
    if x > (a + 1) / (a + b + 2):  # The fraction converges fast only below the mean.
        return 1 - beta_cdf(1 - x, b, a)
    return _density(x, a, b) * x * (1 - x) / a * _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: int, b: int) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    precision = 1e-13
    numerator = 1.0
    denominator = 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = denominator
    for step in range(1, MAX_STEPS):
        place = a + 2 * step
        even = step * (b - step) * x / ((place - 1) * place)
        odd = -(a + step) * (a + b + step) * x / (place * (place + 1))
        for term in (even, odd):
            numerator = _not_zero(1 + term / numerator)
            denominator = 1 / _not_zero(1 + term * denominator)
            change = numerator * denominator
            value *= change
        if abs(change - 1) <= precision:
            break
    return value


def _not_zero(value: float) -> float:
    # Lentz's method divides by these terms; any value this small gives the same fraction.
    nearly_zero = 1e-300
    if abs(value) > nearly_zero:
        return value
    return nearly_zero
