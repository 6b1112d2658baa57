"""Exact intervals of a share, against SciPy."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.base import intervals
from langgraph_toolmem.base.intervals import interval, lower_limit, percentage

CASES = st.one_of(st.integers(1, 60), st.integers(900, 1_200), st.integers(1, 10**7))
MILLION = 1_000_000


@st.composite
def checks(draw: st.DrawFn) -> tuple[int, int]:
    """Return hits and cases: any share, none or few hits, none or few misses."""
    of = draw(CASES)
    few = draw(st.integers(0, min(of, 5)))
    return draw(st.sampled_from([few, of - few, draw(st.integers(0, of))])), of


@cache
def beta() -> Any:
    from scipy.stats import beta as made  # each worker collects the tests, and SciPy takes a second

    return made


def clopper_pearson(hits: int, of: int, tail: float) -> tuple[float, float]:
    misses = of - hits
    low = beta().ppf(tail, hits, misses + 1) if hits else 0.0
    # SciPy loses digits near 1, so the upper limit is asked as the lower limit of the misses.
    high = 1 - beta().ppf(tail, misses, hits + 1) if misses else 1.0
    return low, high


@settings(max_examples=300, deadline=None)
@given(checks(), st.sampled_from([0.9, 0.95, 0.999]))
def test_the_interval_is_clopper_and_pearsons(seen: tuple[int, int], confidence: float):
    hits, of = seen

    assert interval(hits, of, confidence) == pytest.approx(
        clopper_pearson(hits, of, (1 - confidence) / 2), rel=1e-7, abs=1e-12
    )


@pytest.mark.parametrize(("hits", "of"), [(0, 1), (1, 1), (8, 8), (39, 40), (1_030, 1_030), (970, 1_030)])
def test_the_lower_limit_is_one_sided(hits: int, of: int):
    assert lower_limit(hits, of) == pytest.approx(beta().ppf(0.05, hits, of - hits + 1) if hits else 0.0, abs=1e-9)


@pytest.mark.parametrize("hits", [0, 1, 5 * MILLION, 93 * MILLION // 10, 10 * MILLION - 1, 10 * MILLION])
def test_ten_million_checks_cost_few_evaluations(hits: int):
    """Ten evaluations take less than a millisecond; the time itself would depend on the machine."""
    with patch.object(intervals, "beta_cdf", wraps=intervals.beta_cdf) as evaluated:
        interval(hits, 10 * MILLION)

    assert evaluated.call_count <= 20


@pytest.mark.parametrize(("hits", "of", "as_if"), [(-3, 5, (0, 5)), (9, 5, (5, 5)), (2, -1, (0, 0)), (-2, -1, (0, 0))])
def test_counts_that_do_not_fit_together_are_those_that_do(hits: int, of: int, as_if: tuple[int, int]):
    assert interval(hits, of) == interval(*as_if)


def test_without_cases_nothing_is_known():
    assert interval(0, 0) == (0.0, 1.0)


def test_a_percentage_needs_twenty_cases():
    assert (percentage(19, 19), percentage(19, 20), percentage(1, 3)) == ("–", "95 %", "–")
