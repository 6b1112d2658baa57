"""How many entries are worth recalling: the policy and its rules, by hand on short lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import find_peaks

from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.entries.choose import how_many, peaks, slopes, worth_showing
from langgraph_toolmem.entries.policy import KINDS, RecallPolicy

PAPER = RecallPolicy.paper()
LISTS = st.lists(st.floats(-1, 1), max_size=80).map(lambda values: sorted(values, reverse=True))


def step(high: int, low: int) -> list[float]:
    """A list that falls once, after `high` places."""
    return [0.9] * high + [0.1] * low


# --- policy ---------------------------------------------------------------------------------------------------


def test_a_policy_goes_through_plain_values():
    changed = RecallPolicy(kind="gap", max_n=4)
    assert RecallPolicy.from_dict(changed.to_dict()) == changed
    assert RecallPolicy.from_dict({"kind": "paper"}) == PAPER
    assert PAPER.with_(peak=2) == RecallPolicy.paper(peak=2)
    assert (PAPER.radius, PAPER.prominence, PAPER.peak) == (10, 1e-5, 1)


# --- the paper's dynamic n --------------------------------------------------------------------------------------


def test_slopes_are_those_of_the_least_squares_line():
    # R = 1: −(x(j+1) − x(j−1)) / 2
    assert slopes([1.0, 0.8, 0.2, 0.1], 1) == pytest.approx([0.4, 0.35])
    # a straight line falls alike everywhere, whatever R is
    line = [1 - 0.02 * i for i in range(30)]
    assert slopes(line, 10) == pytest.approx([0.02] * 10)
    assert slopes(line[:20], 10) == []


def test_n_is_where_the_list_falls_fastest():
    # The slope over 21 values is steepest at the places 14 and 15, between which the list falls.
    assert how_many(step(15, 30), PAPER) == 14
    assert how_many(step(15, 30), PAPER.with_(offset=False)) == 4
    assert how_many(step(15, 30), PAPER.with_(radius=2)) == 14


@given(st.lists(st.integers(0, 6), max_size=30), st.integers(0, 4))
def test_peaks_are_scipys(values, prominence):
    assert peaks(values, prominence) == list(find_peaks(values, prominence=prominence)[0])


def test_the_second_peak_can_be_asked_for():
    values = [0.9] * 10 + [0.5] * 12 + [0.1] * 12
    first, second = (how_many(values, PAPER.with_(radius=3, peak=peak)) for peak in (1, 2))
    assert (first, second) == (9, 21)
    assert how_many(values, PAPER.with_(radius=3, peak=9)) == second  # fewer peaks: the last


def test_short_lists_have_a_smaller_radius_and_the_shortest_the_fallback():
    assert how_many([0.9, 0.9, 0.9, 0.1, 0.1, 0.1], PAPER) == 2  # R = 1: slopes 0, .4, .4, 0 from place 1 on
    assert how_many([0.9, 0.5, 0.2, 0.1], PAPER) == 4  # too short for a peak: the fallback, of what there is
    assert how_many([0.9, 0.5, 0.2, 0.1], PAPER.with_(fallback=2)) == 2
    assert how_many([], PAPER) == 0


def test_without_a_peak_the_fallback_counts():
    assert how_many([0.5] * 40, PAPER) == PAPER.fallback
    assert how_many([1 / (1 + i) for i in range(40)], PAPER.with_(fallback=7)) == 7  # falls ever slower


def test_prominence_hides_small_peaks():
    values = [0.9] * 10 + [0.89] * 12 + [0.1] * 12
    assert how_many(values, PAPER.with_(radius=3)) == 9
    assert how_many(values, PAPER.with_(radius=3, prominence=0.05)) == 21


# --- the simple rules -------------------------------------------------------------------------------------------


def test_the_largest_gap():
    gap = RecallPolicy(kind="gap")
    assert how_many([0.9, 0.8, 0.3, 0.2], gap) == 2
    assert how_many([0.75, 0.5, 0.25, 0.0], gap) == 1  # of equal gaps the first
    assert how_many([0.4], gap) == 1
    assert how_many([], gap) == 0


def test_threshold_and_fixed():
    assert how_many([0.9, 0.6, 0.59], RecallPolicy(kind="threshold", least=0.6)) == 2
    assert how_many([0.5], RecallPolicy(kind="threshold", least=0.6)) == 0
    assert how_many([0.9, 0.6, 0.5], RecallPolicy(kind="fixed", n=2)) == 2
    assert how_many([0.9], RecallPolicy(kind="fixed", n=2)) == 1
    assert how_many([0.9] * 9, RecallPolicy(kind="fixed", n=8, max_n=3)) == 3


def test_what_cannot_be_decided_is_said():
    with pytest.raises(InputError, match="descending"):
        how_many([0.1, 0.2], PAPER)
    with pytest.raises(ConfigurationError, match="probabilities"):
        how_many([0.2], RecallPolicy())
    with pytest.raises(InputError, match="descending"):
        worth_showing([0.1, 0.2], RecallPolicy())


@given(LISTS, st.sampled_from([kind for kind in KINDS if kind != "calibrated"]))
def test_n_is_within_the_list(values, kind):
    assert 0 <= how_many(values, RecallPolicy(kind=kind)) <= min(len(values), 10)


# --- expected F1 ------------------------------------------------------------------------------------------------


def test_nothing_is_shown_where_that_is_the_best_guess():
    assert worth_showing([], RecallPolicy()) == 0
    # 1 − .4 = .6 for nothing; 2·.4 / (1 + .4) = .57 for one
    assert worth_showing([0.4], RecallPolicy()) == 0
    assert worth_showing([0.5], RecallPolicy()) == 1
    assert worth_showing([0.5], RecallPolicy(caution=2)) == 0


def test_as_many_as_the_expected_f1_is_highest_for():
    # n: 1: 1.8/2.9, 2: 3.6/3.9 = .92, 3: 3.7/4.9, 4: 3.8/5.9; nothing: .1
    assert worth_showing([0.9, 0.9, 0.05, 0.05], RecallPolicy()) == 2
    assert worth_showing([0.9] * 30, RecallPolicy()) == 10
    assert worth_showing([0.9] * 30, RecallPolicy(max_n=4)) == 4


@given(st.lists(st.floats(0, 1), max_size=30).map(lambda values: sorted(values, reverse=True)))
def test_more_caution_never_shows_something_where_less_did_not(values):
    less, more = (worth_showing(values, RecallPolicy(caution=caution)) for caution in (1, 3))
    assert more in (0, less)
