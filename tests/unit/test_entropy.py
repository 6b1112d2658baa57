"""Inertia of a workload: answers by hand on tiny sequences, then properties, then recorded runs."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import DATA
from scipy.stats import chi2

from langgraph_toolmem.inertia.entropy import InertiaMeter, chi_squared_tail, measure_inertia

runs = st.lists(st.lists(st.sampled_from("abcd"), max_size=8), max_size=12)


def test_fitted_entropy_by_hand():
    # Orders: after the start always a; after a: b, b, c; so H1 = 3/6 · H(2/3, 1/3).
    result = measure_inertia([["a", "b"], ["a", "b"], ["a", "c"]])

    assert result.fitted[0] == pytest.approx(1 / 2 * 1 + 1 / 3 * math.log2(3) + 1 / 6 * math.log2(6))
    assert result.fitted[1] == pytest.approx(1 / 2 * (2 / 3 * math.log2(1.5) + 1 / 3 * math.log2(3)))
    assert result.fitted[2] == pytest.approx(result.fitted[1])
    assert (result.runs, result.calls, result.tools) == (3, 6, 3)


def test_honest_code_length_by_hand():
    # Order 0 codes a (certain: something new), a (½: a again), b (¼: n = 2, one tool seen, escape 1/4).
    result = measure_inertia([["a", "a", "b"]])

    assert result.honest[0] * 3 == pytest.approx(0 + 1 + 2)
    # Order 1: (start) and (a) are new contexts for the first two calls, so order 0 codes them; then after a
    # came a once: P(b) = 0 + 1/2 · P_0(b) = 1/8.
    assert result.honest[1] * 3 == pytest.approx(0 + 1 + 3)
    # Order 2: (start, a) and (a, a) are new contexts too.
    assert result.honest[2] * 3 == pytest.approx(0 + 1 + 3)


def test_likelihood_ratio_by_hand():
    sequences = [["a", "b"], ["a", "b"], ["a", "c"]]
    result = measure_inertia(sequences)
    first, second = result.tests

    # Order 0: 3 tools; contexts of order 1 with calls: start and a → df = (3 − 1)(2 − 1).
    assert (first.order, first.df) == (1, 2)
    assert first.g == pytest.approx(2 * math.log(2) * 6 * (result.fitted[0] - result.fitted[1]))
    assert first.p == pytest.approx(chi2.sf(first.g, 2))
    # No context of order 1 splits further, so there is nothing to test.
    assert (second.order, second.df, second.g, second.p) == (2, 0, 0.0, 1.0)


@pytest.mark.parametrize("df", [1, 2, 3, 17, 400, 9_001])
def test_the_tail_of_chi_squared_is_scipys(df):
    for x in (0.0, 0.01 * df, 0.5 * df, df - 1e-9, df + 1.9, df + 2.1, 1.3 * df, 3.0 * df + 40):
        assert chi_squared_tail(x, df) == pytest.approx(chi2.sf(x, df), rel=1e-8, abs=1e-290)


def test_g_equals_the_textbook_test_on_a_contingency_table():
    """By another road: order 1 against 0 is the G test of independence of (previous, next)."""
    from scipy.stats import contingency

    rng = random.Random(3)
    sequences = [[rng.choice("abc") for _ in range(4)] for _ in range(40)]
    pairs = [(p, n) for s in sequences for p, n in zip(["", *s], s, strict=False)]
    table = [[pairs.count((p, n)) for n in "abc"] for p in ["", "a", "b", "c"]]
    expected = contingency.expected_freq(table)
    g = 2 * sum(
        o * math.log(o / e) for row, by in zip(table, expected, strict=True) for o, e in zip(row, by, strict=True) if o
    )

    test = measure_inertia(sequences).tests[0]
    assert test.g == pytest.approx(g)
    assert test.df == (4 - 1) * (3 - 1)


@pytest.mark.parametrize("seed", range(5))
def test_uniform_noise_gains_nothing_honestly_though_the_fit_promises_much(seed):
    rng = random.Random(seed)
    result = measure_inertia([[rng.choice("abcdefgh") for _ in range(5)] for _ in range(30)])

    assert result.fitted[0] - result.fitted[2] > 1
    assert result.honest_gain <= 0
    assert not result.has_inertia
    assert result.verdict.startswith("No inertia")


def test_a_gain_that_may_be_chance_is_not_called_inertia():
    result = measure_inertia([["a", "b"]] * 2)

    assert result.honest_gain > 0
    assert not result.has_inertia
    assert result.verdict.startswith("Too little to tell")


@settings(max_examples=60, deadline=None)
@given(runs)
def test_fitted_entropy_never_grows_with_the_order_and_all_is_finite(sequences):
    result = measure_inertia(sequences)

    assert result.fitted[0] >= result.fitted[1] - 1e-9
    assert result.fitted[1] >= result.fitted[2] - 1e-9
    assert result.fitted[0] <= math.log2(max(result.tools, 1)) + 1e-9
    assert all(math.isfinite(bits) and bits >= 0 for bits in result.fitted + result.honest)
    assert all(0 <= test.p <= 1 and test.g >= 0 and test.df >= 0 for test in result.tests)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["verdict"] == result.verdict


@settings(max_examples=60, deadline=None)
@given(runs, st.lists(st.sampled_from("abcd"), max_size=4))
def test_the_honest_code_is_a_probability_distribution(sequences, prefix):
    """Over the tools seen so far and one never seen, the probabilities sum to one at every order."""

    def bits(*last: str) -> list[float]:
        result = measure_inertia([*sequences, [*prefix, *last]])
        return [length * result.calls for length in result.honest]

    before = bits()
    seen = {tool for run in [*sequences, prefix] for tool in run}
    for order in range(3):
        total = sum(2 ** -(bits(tool)[order] - before[order]) for tool in [*seen, "never seen"])
        assert total == pytest.approx(1)


def test_one_by_one_equals_all_at_once():
    sequences = [["a", "b"], [], ["a", "c", "a"]]
    meter = InertiaMeter()
    for sequence in sequences:
        meter.add(sequence)
        meter.result()  # asking in between changes nothing

    assert meter.result() == measure_inertia(sequences)


@pytest.mark.parametrize("name", ["workbench_gpt4", "tau_retail_gold", "bfcl_v3_multi_turn"])
def test_recorded_runs_have_inertia(name):
    path = DATA / name / "trajectories.jsonl"
    if not path.exists():
        pytest.skip("recorded runs are not beside the repository (../shared/data)")
    with path.open(encoding="utf-8") as lines:
        logged = [json.loads(line)["messages"] for line in lines]
    sequences = [
        [call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()]
        for messages in logged
    ]

    result = measure_inertia(sequences)

    assert result.has_inertia
    assert result.honest_gain > 0.7
    assert result.tests[0].p < 0.01
