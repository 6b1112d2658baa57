"""The paper's rule for how many entries are recalled, by hand on short lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import find_peaks

from langgraph_toolmem.entries.policy import NO_PEAK, dynamic_n, peaks, slopes


def test_slopes_are_those_of_the_least_squares_line() -> None:
    # R = 1: -(x(j+1) - x(j-1)) / 2
    assert slopes([1.0, 0.8, 0.2, 0.1], 1) == pytest.approx([0.4, 0.35])
    # a straight line falls alike everywhere, whatever R is
    line = [1 - 0.02 * i for i in range(30)]
    assert slopes(line, 10) == pytest.approx([0.02] * 10)
    assert slopes(line[:20], 10) == []


@given(st.lists(st.integers(0, 6), max_size=30), st.integers(0, 4))
def test_peaks_are_scipys(values: list[int], prominence: int) -> None:
    assert peaks(values, prominence) == list(find_peaks(values, prominence=prominence)[0])


@pytest.mark.parametrize(
    ("values", "n"),
    [
        # The slope over 21 values is steepest at the places 14 and 15, between which the list falls.
        ([0.9] * 15 + [0.1] * 30, 14),
        # Short lists have a smaller radius. R = 1: slopes 0, .4, .4, 0 from place 1 on
        ([0.9, 0.9, 0.9, 0.1, 0.1, 0.1], 2),
        ([0.9, 0.5, 0.2, 0.1], 4),  # too short for a peak
        ([], 0),
        ([0.5] * 40, NO_PEAK),
    ],
)
def test_n_is_where_the_list_falls_fastest(values: list[float], n: int) -> None:
    assert dynamic_n(values) == n
    assert dynamic_n(values, 3) == min(n, 3)


@given(st.lists(st.floats(-1, 1), max_size=80).map(lambda values: sorted(values, reverse=True)))
def test_n_is_within_the_list(values: list[float]) -> None:
    assert 0 <= dynamic_n(values) <= len(values)
