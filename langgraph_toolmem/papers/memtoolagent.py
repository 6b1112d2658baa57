"""MemToolAgent's number of recalled runs (arXiv 2606.07909); by default `entries.recall` decides run by run.

The paper sorts past runs by similarity and cuts the list where it falls fastest. The slope at a position is that of the
least-squares line through the 2R + 1 similarities around it, with R at most 10; the first position at which the list is
steeper than on both sides is the number n.

| | the paper (`dynamic_n`) | the default (`RecallPolicy()`) |
|---|---|---|
| decided by | the shape of all similarities | the probability of each run to be relevant |
| recalled where nothing is relevant | at least a few | nothing |
| mean F1: office, GPT-4 | 0.09 to 0.26 | 0.79 |
| 8 APIs | 0.07 to 0.15 | 0.28 |
| real APIs | 0.01 to 0.04 | 0.88 |

The figures come from ``python -m benchmarks.recall``, which compares six sets, and runs the paper's rule on the
similarities of several embedders. The paper takes the first peak for tools in general, the second for personal ones,
and does not define lists without a peak. It finds its rule at or above the best fixed number of 5, 10 and 15.

    (1) y(j) = − Σ_τ τ · x(j + τ) / Σ_τ τ²  for τ = −R … R, j = R … |x| − R − 1, x the similarities, falling       [P]
    (2) n    = the j of the first peak of y with a prominence of at least 1e-5                                     [P]
"""

from __future__ import annotations

from collections.abc import Sequence


def dynamic_n(similarities: Sequence[float], *, most: int, without_peak: int = 5) -> int:
    """Return the number of runs to recall (2).

    Args:
        similarities: of all past runs to the request, highest first.
        most: limit of the runs.
        without_peak: the number for a list without a peak [O].
    """
    # Lists shorter than 2R + 3 have no position with a neighbour on both sides, so R shrinks with the list [O].
    radius = min(10, (len(similarities) - 3) // 2)
    if radius < 1:
        return without_peak
    peak = first_peak(_steepness(similarities, radius), least_prominence=1e-5)
    if peak is None:
        return without_peak
    # y begins at the R-th similarity.
    return min(peak + radius, most)


def _steepness(values: Sequence[float], radius: int) -> list[float]:
    """Return y (1) at each place with `radius` values on both sides."""
    offsets = range(-radius, radius + 1)
    # Offsets add up to 0, so the slope of the least-squares line needs no means.
    squares = sum([offset * offset for offset in offsets])
    falls = []
    for place in range(radius, len(values) - radius):
        products = [offset * values[place + offset] for offset in offsets]
        falls.append(-sum(products) / squares)
    return falls


def first_peak(heights: Sequence[float], least_prominence: float) -> int | None:
    """Return the position of the first peak; of a flat one the middle; None without a peak.

    The prominence of a peak is its height above the higher one of the lowest positions to its left and right, up to the
    next value higher than the peak.
    """
    # Like scipy's `find_peaks`, which the paper uses; scipy is not a dependency of this package.
    place = 1
    while place < len(heights) - 1:
        end = place
        while end + 1 < len(heights) and heights[end + 1] == heights[place]:
            end += 1
        falls_after = end + 1 < len(heights) and heights[end + 1] < heights[place]
        if heights[place - 1] < heights[place] and falls_after:
            middle = (place + end) // 2
            if _prominence(heights, middle) >= least_prominence:
                return middle
        place = end + 1
    return None


def _prominence(heights: Sequence[float], peak: int) -> float:
    height = heights[peak]
    bases = []
    for side in (heights[peak::-1], heights[peak:]):
        lowest = height
        for other in side:
            if other > height:
                break
            lowest = min(lowest, other)
        bases.append(lowest)
    return height - max(bases)
