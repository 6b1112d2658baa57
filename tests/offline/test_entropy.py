"""Inertia of a workload: answers by hand on tiny sequences, then properties, then recorded runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.offline.replay import InertiaMeter, InertiaTest

runs = st.lists(st.lists(st.sampled_from("abcd"), max_size=8), max_size=12)


def measured(sequences: Iterable[Iterable[str]]) -> InertiaTest:
    meter = InertiaMeter()
    for sequence in sequences:
        meter.add(sequence)
    return meter.result()


def test_code_length_by_hand():
    # Order 0 codes a (certain: something new), a (½: a again), b (¼: n = 2, one tool seen, escape 1/4).
    result = measured([["a", "a", "b"]])

    assert result.bits[0] * 3 == pytest.approx(0 + 1 + 2)
    # Order 1: (start) and (a) are new contexts for the first two calls, so order 0 codes them; then after a
    # came a once: P(b) = 0 + 1/2 · P_0(b) = 1/8.
    assert result.bits[1] * 3 == pytest.approx(0 + 1 + 3)
    # Order 2: (start, a) and (a, a) are new contexts too.
    assert result.bits[2] * 3 == pytest.approx(0 + 1 + 3)


def test_a_gain_that_may_be_chance_is_not_called_inertia():
    result = measured([["a", "b"]] * 2)

    assert result.gain > 0
    assert not result.has_inertia
    assert result.verdict.startswith("Too little to tell")


@settings(max_examples=60)
@given(runs)
def test_all_is_finite_and_fit_for_json(sequences):
    result = measured(sequences)

    assert all(math.isfinite(bits) and bits >= 0 for bits in result.bits)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["verdict"] == result.verdict


@settings(max_examples=60)
@given(runs, st.lists(st.sampled_from("abcd"), max_size=4))
def test_the_code_is_a_probability_distribution(sequences, prefix):
    """Over the tools seen so far and one never seen, the probabilities sum to one at every order."""

    def bits(*last: str) -> list[float]:
        result = measured([*sequences, [*prefix, *last]])
        return [length * result.calls for length in result.bits]

    before = bits()
    seen = {tool for run in [*sequences, prefix] for tool in run}
    for order in range(3):
        total = sum(2 ** -(bits(tool)[order] - before[order]) for tool in [*seen, "never seen"])
        assert total == pytest.approx(1)
