"""The estimator: a ridge logistic regression that begins with a prior and is fitted at fixed turns."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia import confidence as of
from langgraph_toolmem.inertia.confidence import PRIOR_WEIGHTS, Estimator, ExamplesSeen, fit

WIDTH = len(of.COLUMNS)


def row(first: float) -> Any:
    return np.array([[first] + [0.0] * (WIDTH - 1)])


def learned(turns: int, seed: int = 0) -> Estimator:
    """Half of the candidates have 2 in the first column and are right in 95 % of the cases, the others in 10 %."""
    chance, graph = random.Random(seed), ToolGraph()
    kept = graph.register(Estimator)
    for turn in range(turns):
        good = chance.random() < 0.5
        hit = int(chance.random() < (0.95 if good else 0.1))
        graph.apply(None, [ExamplesSeen(turn, [[row(2.0 if good else -2.0)[0].tolist(), hit]])])
    return kept


def test_without_examples_the_prior_alone_decides():
    expected = 1 / (1 + np.exp(-(2 * PRIOR_WEIGHTS[0] + PRIOR_WEIGHTS[-1])))
    assert len(PRIOR_WEIGHTS) == WIDTH + 1
    assert learned(0).probabilities(row(2.0)) == pytest.approx([expected])


def test_with_examples_it_says_what_came():
    fitted = learned(1500)
    assert fitted.probabilities(row(2.0)) == pytest.approx([0.95], abs=0.03)
    assert fitted.probabilities(row(-2.0)) == pytest.approx([0.1], abs=0.04)


@pytest.mark.parametrize(("turns", "at"), [(4, 0), (6, 5), (20, 15), (21, 20), (40, 20), (41, 40), (60, 40)])
def test_fitted_to_what_was_known_at_fixed_turns(turns: int, at: int):
    known = learned(at)
    columns = [example.columns for example in known.examples]
    hits = [example.hit for example in known.examples]
    expected = fit(np.array(columns), np.array(hits), np.ones(len(hits))) if at else np.array(PRIOR_WEIGHTS)
    assert learned(turns).weights("hit") == pytest.approx(expected)


def test_a_fit_ends_for_columns_that_tell_hits_and_misses_apart():
    columns = np.array([[50.0] * WIDTH, [-50.0] * WIDTH] * 50)
    hits = np.array([1.0, 0.0] * 50)
    weights = fit(columns, hits, np.ones(len(hits)))
    assert np.isfinite(weights).all()
    assert (columns @ weights[:-1] + weights[-1] > 0).tolist() == (hits > 0).tolist()


def test_an_example_that_stands_for_others_counts_as_often_in_a_fit():
    graph, repeated = ToolGraph(), ToolGraph()
    kept, as_often = graph.register(Estimator), repeated.register(Estimator)
    for turn in range(60):
        examples, stands_for = [[row(2.0)[0].tolist(), turn % 2]], 5 if turn % 2 else 1
        graph.apply(None, [ExamplesSeen(turn, examples, stands_for)])
        repeated.apply(None, [ExamplesSeen(turn, examples * stands_for)])
    assert kept.weights("hit") == pytest.approx(as_often.weights("hit"))
    assert kept.probabilities(row(2.0))[0] > 0.75, "five hits for each miss"


def test_examples_that_stand_for_others_are_read_back():
    graph = ToolGraph()
    kept = graph.register(Estimator)
    graph.apply(None, [ExamplesSeen(1, [[row(1.0)[0].tolist(), 1]], 20), ExamplesSeen(2, [[row(1.0)[0].tolist(), 0]])])
    state = kept.to_state()
    again = ToolGraph().register(Estimator)
    again.load(state)
    assert [(example.hit, example.amount) for example in again.examples] == [(1, 20), (0, 1)]


def test_the_latest_examples_are_kept_in_the_order_of_turns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Estimator, "most_examples", 5)
    graph = ToolGraph()
    kept = graph.register(Estimator)
    for turn in (8, 3, 1, 6, 9, 2, 4, 11, 0):
        graph.apply(None, [ExamplesSeen(turn, [[row(0.0)[0].tolist(), 1]])])
    assert [example.turn for example in kept.examples] == [3, 4, 6, 8, 9, 11], "five before turn 10"
