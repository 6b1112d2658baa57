"""The paper's rule for how many entries are recalled, by hand on short lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import find_peaks

from langgraph_toolmem.entries.policy import NO_PEAK, RecallPolicy, dynamic_n, peaks, slopes

PAPER = RecallPolicy.paper()


def test_the_papers_constants() -> None:
    assert (PAPER.kind, PAPER.radius, PAPER.prominence, PAPER.peak) == ("paper", 10, 1e-5, 1)
    assert PAPER.with_(peak=2) == RecallPolicy.paper(peak=2)


def test_slopes_are_those_of_the_least_squares_line() -> None:
    # R = 1: -(x(j+1) - x(j-1)) / 2
    assert slopes([1.0, 0.8, 0.2, 0.1], 1) == pytest.approx([0.4, 0.35])
    # a straight line falls alike everywhere, whatever R is
    line = [1 - 0.02 * i for i in range(30)]
    assert slopes(line, 10) == pytest.approx([0.02] * 10)
    assert slopes(line[:20], 10) == []


def test_n_is_where_the_list_falls_fastest() -> None:
    # The slope over 21 values is steepest at the places 14 and 15, between which the list falls.
    values = [0.9] * 15 + [0.1] * 30
    assert dynamic_n(values, PAPER) == dynamic_n(values, PAPER.with_(radius=2)) == 14
    assert dynamic_n(values, PAPER.with_(max_n=3)) == 3


@given(st.lists(st.integers(0, 6), max_size=30), st.integers(0, 4))
def test_peaks_are_scipys(values: list[int], prominence: int) -> None:
    assert peaks(values, prominence) == list(find_peaks(values, prominence=prominence)[0])


def test_the_second_peak_can_be_asked_for_and_small_ones_hidden() -> None:
    values = [0.9] * 10 + [0.5] * 12 + [0.1] * 12
    first, second = (dynamic_n(values, PAPER.with_(radius=3, peak=peak)) for peak in (1, 2))
    assert (first, second) == (9, 21)
    assert dynamic_n(values, PAPER.with_(radius=3, peak=9)) == second  # fewer peaks: the last
    small = [0.9] * 10 + [0.89] * 12 + [0.1] * 12
    assert dynamic_n(small, PAPER.with_(radius=3, prominence=0.05)) == 21


def test_short_lists_have_a_smaller_radius_and_without_a_peak_a_few_are_recalled() -> None:
    assert dynamic_n([0.9, 0.9, 0.9, 0.1, 0.1, 0.1], PAPER) == 2  # R = 1: slopes 0, .4, .4, 0 from place 1 on
    assert dynamic_n([0.9, 0.5, 0.2, 0.1], PAPER) == 4  # too short for a peak
    assert dynamic_n([], PAPER) == 0
    assert dynamic_n([0.5] * 40, PAPER) == NO_PEAK


@given(st.lists(st.floats(-1, 1), max_size=80).map(lambda values: sorted(values, reverse=True)))
def test_n_is_within_the_list(values: list[float]) -> None:
    assert 0 <= dynamic_n(values, PAPER) <= len(values)
