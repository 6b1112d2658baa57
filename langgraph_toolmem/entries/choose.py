"""How many of a ranked list are worth recalling.

The similarity rules look at the shape of the list alone; `worth_showing` needs probabilities.

References: MemToolAgent (arXiv 2606.07909) for the dynamic n; Adaptive-k for the largest gap; F-measure
maximisation: N. Ye, K. Chai, W. Lee, H. Chieu, "Optimizing F-Measures: A Tale of Two Approaches", 2012.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, groupby, pairwise, takewhile
from operator import ge
from typing import Final

from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.entries.policy import RecallPolicy

SLOPES: Final = 3
"""Fewest values among which a peak can be: one with a neighbour on each side."""


def how_many(similarities: Sequence[float], policy: RecallPolicy) -> int:
    """How many entries a rule on similarities recalls: the first n of the list.

    Args:
        similarities: of the query with every entry, highest first.
        policy: of kind ``paper``, ``gap``, ``threshold`` or ``fixed``.

    Raises:
        InputError: the list is not in descending order.
        ConfigurationError: the policy decides by probabilities; see `worth_showing`.
    """
    if any(a < b for a, b in pairwise(similarities)):
        raise InputError("Similarities have to be in descending order.")
    if policy.kind == "paper":
        n = _dynamic(similarities, policy)
    elif policy.kind == "gap":
        n = _largest_gap(similarities)
    elif policy.kind == "threshold":
        n = sum(value >= policy.least for value in similarities)
    elif policy.kind == "fixed":
        n = policy.n
    else:
        raise ConfigurationError(f"A {policy.kind} policy needs probabilities, not similarities.")
    return min(n, policy.max_n, len(similarities))


def slopes(values: Sequence[float], radius: int) -> list[float]:
    """How fast a list falls around each place: y(j) = −Σ τ·x(j+τ) / Σ τ², τ = −R … R, for j = R … |x|−R−1.

    This is minus the slope of the least-squares line through the 2R+1 values around j. The answer is shorter than
    the list by 2R: its first value belongs to place R. It is empty for a list of fewer than 2R+1 values.
    """
    steps = range(-radius, radius + 1)
    norm = sum(step * step for step in steps)
    return [-sum(step * values[place + step] for step in steps) / norm for place in range(radius, len(values) - radius)]


def _dynamic(values: Sequence[float], policy: RecallPolicy) -> int:
    """MemToolAgent's n: the place of the chosen peak among the slopes.

    What the paper leaves open: in a short list R is as large as leaves three slopes, (|x|−3)/2 rounded down; where
    the slopes have fewer peaks than asked for, the last one counts; where they have none, or the list has fewer
    than five values, n is `policy.fallback`. A flat peak has its place in the middle, rounded down.
    """
    radius = min(policy.radius, (len(values) - SLOPES) // 2)
    if radius < 1:
        return policy.fallback
    found = peaks(slopes(values, radius), policy.prominence)
    if not found:
        return policy.fallback
    return found[min(policy.peak, len(found)) - 1] + (radius if policy.offset else 0)


def peaks(values: Sequence[float], prominence: float) -> list[int]:
    """Places that are higher than both sides, and by that much higher than the way to anything above them."""
    found, start = list[int](), 0
    for height, same in groupby(values):
        end = start + len(list(same))
        if start > 0 and end < len(values) and values[start - 1] < height > values[end]:
            before, after = (
                min(takewhile(partial(ge, height), side)) for side in (reversed(values[:start]), values[end:])
            )
            if height - max(before, after) >= prominence:
                found.append((start + end - 1) // 2)
        start = end
    return found


def _largest_gap(values: Sequence[float]) -> int:
    """Adaptive-k: everything before the largest drop; of equal drops the first. A single value has none: 1."""
    gaps = [a - b for a, b in pairwise(values)]
    return gaps.index(max(gaps)) + 1 if gaps else len(values)


def worth_showing(probabilities: Sequence[float], policy: RecallPolicy) -> int:
    """How many entries maximise the expected F1 of what is shown; 0 if showing nothing is the best guess.

    Of the first n, Σ_{i≤n} p_i are expected to be relevant, of all Σ p_i are:

        F(n) ≈ 2 Σ_{i≤n} p_i / (n + Σ p_i),   F(0) = 1 − max p_i

    since recalling nothing is right if and only if nothing is relevant, and entries that are relevant to one
    request come together far more often than not: the most probable one tells whether there is any.
    `policy.caution` weighs F(0).

    Args:
        probabilities: of being relevant, highest first.
        policy: its `max_n` and `caution` count.

    Raises:
        InputError: the list is not in descending order.
    """
    if any(a < b for a, b in pairwise(probabilities)):
        raise InputError("Probabilities have to be in descending order.")
    if not probabilities:
        return 0
    everything = sum(probabilities)
    best, n = policy.caution * (1 - probabilities[0]), 0
    for count, expected in enumerate(accumulate(probabilities[: policy.max_n]), start=1):
        value = 2 * expected / (count + everything)
        if value > best:
            best, n = value, count
    return n
