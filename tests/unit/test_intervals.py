"""Exact intervals of a share, against SciPy."""

from __future__ import annotations

import pytest
from scipy.stats import beta, binom

from langgraph_toolmem.base.intervals import at_most, interval, lower_limit, percentage


@pytest.mark.parametrize(("hits", "of"), [(0, 1), (1, 1), (8, 8), (3, 10), (0, 40), (39, 40), (250, 300)])
def test_the_interval_is_clopper_and_pearsons(hits: int, of: int):
    low, high = interval(hits, of)

    assert low == pytest.approx(beta.ppf(0.025, hits, of - hits + 1) if hits else 0.0, abs=1e-9)
    assert high == pytest.approx(beta.ppf(0.975, hits + 1, of - hits) if hits < of else 1.0, abs=1e-9)
    assert lower_limit(hits, of) == pytest.approx(beta.ppf(0.05, hits, of - hits + 1) if hits else 0.0, abs=1e-9)


def test_without_cases_nothing_is_known():
    assert interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("most", "of", "share"), [(0, 5, 0.1), (3, 10, 0.5), (10, 10, 0.3)])
def test_the_tail_is_the_binomials(most: int, of: int, share: float):
    assert at_most(most, of, share) == pytest.approx(binom.cdf(most, of, share))


def test_a_percentage_needs_twenty_cases():
    assert (percentage(19, 19), percentage(19, 20), percentage(1, 3)) == ("–", "95 %", "–")
