"""The budget of misses: a bucket that fills with turns, corrected by checks."""

from __future__ import annotations

import itertools
import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from langgraph_toolmem import Bound, InertiaPolicy
from langgraph_toolmem.graph.events import Successor
from langgraph_toolmem.graph.state import SEPARATOR, START, RunState
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia import confidence as of
from langgraph_toolmem.inertia.confidence import Acted, Budget, Checked
from langgraph_toolmem.inertia.decision import Option
from langgraph_toolmem.inertia.record import credit_repeated_failure, credit_shortcut, failing_share
from langgraph_toolmem.runs.run import ExecutedCall, Turn

POLICY = InertiaPolicy(audit_rate=0.0)


def kept(turns: int = 0) -> tuple[ToolGraph, Budget]:
    graph = ToolGraph()
    graph.counters["turns"] = turns
    return graph, graph.register(Budget)


def checked(turn: int, wrong: int, *, changes: int = 0, counts: int = of.AUDITED) -> Checked:
    return Checked(turn, changes, wrong, counts)


def room(budget: Budget, *, changes: bool = False, policy: InertiaPolicy = POLICY) -> float:
    return budget.room(policy, changes=changes)


# --- what flows in and out ---


@pytest.mark.parametrize(
    ("turns", "rate", "records", "left"),
    [
        (0, 1.0, [], of.FIRST),
        (50, 1.0, [], of.FIRST + 0.5 * of.INFLOW),
        (100_000, 1.0, [], of.CAPACITY),
        (10_000, 0.0, [], 0.0),
        (10_000, None, [], math.inf),
        (1_000, 1.0, [checked(1_000, 0)], of.CAPACITY),
        (1_060, 1.0, [checked(1_000, 1)], of.CAPACITY - 1 + 0.6 * of.INFLOW),
        (1_200, 1.0, [checked(1_000, 1)], of.CAPACITY),
        (2_000, 1.0, [checked(100, 1), checked(2_000, 1), checked(2_000, 1)], of.CAPACITY - 2),
        (1_000, 1.0, [Acted(1_000, 0, 0.25)] * 4, of.CAPACITY - 1),
    ],
)
def test_turns_fill_the_bucket_and_misses_empty_it(turns: int, rate: float | None, records: list[Any], left: float):
    graph, budget = kept(turns)
    graph.apply(None, records)
    assert room(budget, policy=POLICY.with_(max_wrong_per_100=rate)) == pytest.approx(left)


# --- reads and writes ---


def test_reads_and_writes_have_buckets_of_their_own():
    graph, budget = kept(1_000)
    policy = InertiaPolicy(Bound(0.7, 10.0), Bound(0.7, 1.0))
    graph.apply(None, [checked(1_000, 1, changes=1), checked(1_000, 1, changes=1)])

    assert room(budget, changes=True, policy=policy) == pytest.approx(of.CAPACITY - 2)
    graph.counters["turns"] = 1_020
    assert room(budget, policy=policy) == pytest.approx(of.CAPACITY - 2 + 0.2 * 10 * of.INFLOW)


def test_together_they_stay_within_the_larger():
    graph, budget = kept(1_000)
    graph.apply(None, [checked(1_000, 1, changes=1), checked(1_000, 1, changes=1)])

    assert room(budget) == pytest.approx(of.CAPACITY - 2), "none of the misses was a read, and all count"
    assert room(budget, policy=InertiaPolicy(writes=Bound(0.7, None))) == of.CAPACITY


# --- what was not checked ---


def test_turns_whose_end_never_comes_count_beyond_those_that_may_be_under_way():
    graph, budget = kept(1_000)
    graph.counters["would_act_open"] = budget.in_flight
    assert room(budget) == of.CAPACITY

    graph.counters["would_act_open"] = budget.in_flight + 2
    assert room(budget) == of.CAPACITY - 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rate", [0.5, 1.0, 5.0])
def test_no_window_of_turns_has_more_misses_than_the_bucket_and_what_flows_in(seed: int, rate: float):
    chance = random.Random(seed)
    graph, budget = kept()
    policy = POLICY.with_(max_wrong_per_100=rate)
    often, missed = chance.choice([0.05, 0.3, 1.0]), [0]
    for turn in range(1, 700):
        graph.counters["turns"] = turn
        if turn % 150 == 0:
            often = chance.choice([0.0, 0.05, 0.3, 1.0])  # quiet for long, then all at once
        changes = chance.random() < 0.4
        wrong = int(budget.room(policy, changes=changes) >= 1 and chance.random() < often)
        graph.apply(None, [checked(turn, wrong, changes=int(changes))])
        missed.append(missed[-1] + wrong)

    for first, last in itertools.combinations(range(0, len(missed), 3), 2):
        assert missed[last] - missed[first] <= of.CAPACITY + (last - first) * rate / 100 + of.BLOCK * rate / 100
    assert missed[-1] > 0


# --- the bar ---


def test_the_bar_rises_as_the_bucket_empties():
    bars = []
    for wrong in range(4):
        graph, budget = kept(1_000)
        graph.apply(None, [checked(1_000, 1)] * wrong)
        bars.append(budget.bar(POLICY, changes=False))

    assert bars == [pytest.approx(b) for b in (0.7, 0.7 + 0.28 / 3, 0.7 + 0.56 / 3, of.SUREST)]
    assert kept()[1].bar(POLICY.with_(max_wrong_per_100=None), changes=False) == 0.7
    assert budget.bar(POLICY.with_(min_precision=0.99), changes=False) == 0.99


def held(budget: Budget, p: float = 0.99, draw: float = 0.5, policy: InertiaPolicy = POLICY) -> tuple[str, bool]:
    situation: Any = SimpleNamespace(policy=policy, draw=draw)
    refused = budget.refuse(Option("find", (), p), situation)
    return (refused.text, refused.is_check) if refused is not None else ("", False)


def test_what_holds_a_proposal_back():
    graph, budget = kept(1_000)
    assert held(budget) == ("", False)
    assert held(budget, 0.7) == ("", False)
    assert "audit" in held(budget, draw=0.01, policy=POLICY.with_(audit_rate=0.05))[0]
    assert held(budget, draw=0.05, policy=POLICY.with_(audit_rate=0.05)) == ("", False)
    assert held(budget, policy=POLICY.with_(shadow=True)) == (
        "shadow mode: the model is asked and the answer compared",
        True,
    )

    graph.apply(None, [Acted(1_000, 0, 0.0, failed=1)])
    assert "confidence 0.78 is below 0.79" in held(budget, 0.78)[0]
    assert held(budget, 0.78, policy=POLICY.with_(shadow=True))[1] is False, "what it would not do is no shadow"
    assert held(budget, 0.8) == ("", False)
    graph.apply(None, [Acted(1_000, 0, 0.0, failed=1)])
    graph.apply(None, [Acted(1_000, 0, 0.99)])
    assert held(budget, 0.99) == ("", False), "there is a little room"
    graph.apply(None, [Acted(1_000, 0, 0.01)])
    assert "has no room yet (1000 turns seen)" in held(budget, 1.0)[0]
    assert held(budget, 0.7, policy=POLICY.with_(max_wrong_per_100=None)) == ("", False)


# --- what is told ---


@pytest.mark.parametrize(
    ("right", "wrong", "at_least", "low", "high"),
    [(8, 0, 0.688, 0.631, 1.0), (27, 0, 0.895, 0.872, 1.0), (45, 5, 0.801, 0.782, 0.967), (0, 0, 0.0, 0.0, 1.0)],
)
def test_audits_are_reported_with_their_exact_interval(
    right: int, wrong: int, at_least: float, low: float, high: float
):
    graph, budget = kept(1_000)
    graph.apply(None, [checked(i, int(i < wrong), counts=of.AUDITED) for i in range(right + wrong)])
    graph.apply(None, [checked(500, 1, counts=of.SHADOWED), Acted(600, 0, 0.1), Acted(600, 0, 0.0, failed=1)])
    figures = budget.figures(POLICY)

    assert (figures["audits"]["checks"], figures["audits"]["right"]) == (right + wrong, right)
    assert figures["audits"]["at_least"] == pytest.approx(at_least, abs=5e-4)
    assert (figures["audits"]["low"], figures["audits"]["high"]) == pytest.approx((low, high), abs=5e-4)
    assert (figures["shadow_checks"]["checks"], figures["shadow_checks"]["right"]) == (1, 0)


def test_the_order_of_records_does_not_matter():
    records = [checked(i, int(i % 7 == 0), changes=i % 3 % 2) for i in range(60)]
    states = []
    for seed in range(4):
        random.Random(seed).shuffle(records)
        graph, budget = kept(60)
        for record in records:
            graph.apply(None, [record])
        states.append((budget.blocks, budget.record))

    assert all(state == states[0] for state in states)


# --- what is kept between decisions ---


@pytest.mark.parametrize("seed", range(4))
def test_what_was_folded_before_is_what_would_be_folded_now(seed: int):
    rng = random.Random(seed)
    graph, budget = kept()
    for turn in range(300):
        graph.counters["turns"] = turn
        late = rng.randint(0, turn)
        wrong, changes = int(rng.random() < 0.2), rng.randint(0, 1)
        done = [checked(late, wrong, changes=changes), Acted(late, changes, 0.1)]
        graph.apply(None, rng.sample(done, rng.randint(0, 2)))

        _, fresh = kept(turn)
        fresh.load(budget.to_state())
        assert [room(budget, changes=c) for c in (False, True)] == [room(fresh, changes=c) for c in (False, True)]


# --- look-ups that fail ---


def turn_of(status: Any, chosen_by: Any = "shortcut", tool: str = "find") -> Turn:
    step = ExecutedCall(tool, {"name": "Ada"}, None, status, chosen_by, "c1", "k")
    return Turn((step,), "", chosen_by, "t", True)


def missed(record: list[Any]) -> float:
    return sum(event.failed for event in record if isinstance(event, Acted))


@pytest.mark.parametrize(
    ("model_calls", "changes", "status", "miss"),
    [
        ([], 0, "failed", 1.0),
        ([0, 0, 0, 0], 0, "failed", 1.0),
        ([1, 1, 1, 0], 0, "failed", 0.25),
        ([1, 1], 0, "failed", 0.0),
        ([1, 1], 1, "failed", 1.0),
        ([], 0, "ok", 0.0),
    ],
)
def test_a_look_up_that_fails_for_the_model_too_is_no_miss(model_calls, changes, status, miss):
    """`model_calls` are columns of `Successor`: 0 for a call of the model that succeeded, 1 for one that failed."""
    graph, _ = kept(1_000)
    after_a, first = f"p1{SEPARATOR}a", f"w1{SEPARATOR}{START}"
    for window, column in zip(itertools.cycle((after_a, first)), model_calls, strict=False):
        graph.apply(None, [Successor([window], "find", column)])
    share = failing_share(graph, "find")
    record = credit_shortcut(turn_of(status), ["find"], changes=changes, number=1_000, fails_anyway=share)

    assert missed(record) == pytest.approx(miss)


@pytest.mark.parametrize(
    ("repeated", "back"),
    [(("failed", "model", "find"), -1.0), (("ok", "model", "find"), 0.0), (("failed", "model", "other"), 0.0)],
)
def test_a_miss_is_taken_back_when_the_model_repeats_the_call_and_it_fails_again(repeated, back):
    graph, budget = kept(1_000)
    state = RunState()
    state.steps = list(turn_of("failed").steps)
    record = credit_repeated_failure(state, turn_of(*repeated), graph=graph, number=1_000)

    assert missed(record) == back
    graph.apply(None, [Acted(1_000, 0, 0.0, failed=1), *record])
    assert room(budget) == pytest.approx(of.CAPACITY - 1 - back)
