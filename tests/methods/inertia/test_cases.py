"""Cases: values of past outputs that decide whether a call may be made, worked by hand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from histories import call, calls, run_of, shortcut, user
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph.events import Event, Forgotten
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.cases import (
    Cases,
    CaseSeen,
    Guess,
    OutputSeen,
    PairCases,
    learn_case,
    made_by_memory,
    pair_key,
)
from langgraph_toolmem.inertia.decision import Option
from langgraph_toolmem.runs.run import Turn

TODAY = 20_600
DONE = {"status": "delivered", "total": 40}


def state_of(*outputs: Any, made: bool = False, said: str = "Refund it") -> RunState:
    """A run that looked something up, once for each output, the last time by the memory if `made`."""
    steps = [(shortcut if made and i == len(outputs) - 1 else call)("look", {"n": i}, o) for i, o in enumerate(outputs)]
    return RunState.of(run_of(user(said), *steps, thread_id="t"))


class Desk:
    """A table that is taught whether a refund followed outputs."""

    def __init__(self) -> None:
        self.graph = ToolGraph()
        self.cases = self.graph.register(Cases)
        self.number = 0
        self.applied: list[Event] = []

    def saw(self, *outputs: Any, hit: int = 1, times: int = 1, confidence: float = 0.9, **how: Any) -> Desk:
        """Learn so many cases."""
        for _ in range(times):
            self.number += 1
            state = state_of(*outputs, **how)
            found = self.cases.facts_of(state, TODAY, changes=True)
            pair, made = pair_key(state, "refund"), int(made_by_memory(state))
            facts = (found.facts, found.numbers, f"run {self.number}", "ann")
            values = OutputSeen(self.cases.values_of(state.steps[-1:], {}, TODAY))
            case = CaseSeen(self.number, f"t{self.number}", pair, made, hit, confidence, *facts)
            self.applied += [values, case]
            self.graph.apply(None, [values, case])
        return self

    def doubts(self, *outputs: Any, changes: bool = True, **how: Any) -> bool:
        """Return whether a refund is refused after these outputs."""
        situation: Any = SimpleNamespace(state=state_of(*outputs, **how), today=TODAY)
        return bool(self.cases.refuse(Option("refund", (), 0.9, changes=changes), situation))


@pytest.fixture
def desk() -> Desk:
    return Desk().saw(DONE, times=12).saw(DONE | {"total": 90}, times=3)


VALUES: list[tuple[str, Mapping[str, Any], bool]] = [
    ("the same", DONE, False),
    ("another status", DONE | {"status": "lost"}, True),
    ("null", DONE | {"status": None}, True),
    ("empty", DONE | {"status": ""}, True),
    ("another type", DONE | {"status": 3}, True),
    ("a field more", DONE | {"hold": True}, True),
    ("a field less", {"total": 40}, True),
    ("between the numbers", DONE | {"total": 60}, False),
    ("above them", DONE | {"total": 91}, True),
    ("below them", DONE | {"total": 39}, True),
]


@pytest.mark.parametrize(("output", "doubted"), [v[1:] for v in VALUES], ids=[v[0] for v in VALUES])
def test_an_unseen_value_asks_the_model(desk: Desk, output: Mapping[str, Any], doubted: bool):
    assert desk.doubts(output) is doubted


def test_a_value_is_known_after_three_cases_two_for_a_call_that_reads():
    desk = Desk().saw(DONE, times=9)
    lost = DONE | {"status": "lost"}
    refused = [(desk.doubts(lost), desk.doubts(lost, changes=False))]
    for _ in range(3):
        desk.saw(lost)
        refused.append((desk.doubts(lost), desk.doubts(lost, changes=False)))

    assert refused == [(True, True), (True, True), (True, False), (False, False)]


def test_a_culprit_explains_its_misses_and_stops_only_its_own_runs(desk: Desk):
    desk.saw(DONE | {"status": "shipped"}, hit=0, times=4)

    assert desk.doubts(DONE | {"status": "shipped"})
    assert not desk.doubts(DONE), "the shared total has 4 misses in 16 cases, and all are explained"


def test_a_value_with_too_many_misses_asks_the_model():
    flagged, plain = DONE | {"flag": True}, DONE | {"flag": False}
    desk = Desk().saw(plain, times=60).saw(flagged, times=6).saw(flagged, hit=0, times=3)
    assert desk.doubts(flagged), "6 of 9, and 60 of 60 elsewhere"
    assert not desk.doubts(plain)


def test_a_miss_that_was_hardly_expected_to_hit_counts_against_nothing():
    flagged = DONE | {"flag": True}
    unsure = Desk().saw(DONE | {"flag": False}, times=60).saw(flagged, times=6)
    unsure.saw(flagged, hit=0, times=1, confidence=0.2)

    assert not unsure.doubts(flagged)


FIELDS = {
    "flag": ([True], [False]),
    "rows": ([[{"s": "fine"}], [{"s": "fine"}, {"s": "worn"}], [{"s": "worn"}]], [[{"s": "fine"}, {"s": "broken"}]]),
    "length": ([["a"], ["a", "a"]], [[]]),
    "text": (["It is active for Ann", "It is active for Bob"], ["It is frozen for Bob"]),
    "date": (["2026-05-20", "2026-05-02", "2026-05-11"], ["2025-05-11"]),
    "nested": ([{"plan": {"tier": "gold"}}], [{"plan": {"tier": "trial"}}]),
    "ids": ([{f"W{1000 + i}": {"s": "open"}} for i in range(3)], [{"W1000": {"s": "held"}}]),
}


@pytest.mark.parametrize(("usual", "rare"), FIELDS.values(), ids=FIELDS)
def test_conditions_of_many_kinds(usual: list[Any], rare: list[Any]):
    desk = Desk()
    for value in itertools.islice(itertools.cycle(usual), 4 * len(usual)):
        desk.saw({"field": value})

    assert [desk.doubts({"field": value}) for value in usual] == [False] * len(usual)
    assert [desk.doubts({"field": value}) for value in rare] == [True] * len(rare)


def test_the_order_of_two_numbers_is_a_fact():
    draw = random.Random(0)
    desk = Desk()
    for _ in range(60):
        limit = draw.randint(100, 900)
        desk.saw({"limit": limit, "asked": draw.randint(50, limit)})

    assert not desk.doubts({"limit": 400, "asked": 300})
    assert desk.doubts({"limit": 300, "asked": 400})


def test_a_condition_may_stand_on_an_earlier_output_or_an_earlier_message():
    desk = Desk().saw(DONE, {"note": 1}, times=9)
    assert not desk.doubts(DONE, {"note": 1})
    assert desk.doubts(DONE | {"status": "lost"}, {"note": 1})

    talk = [user("Hello, I am back."), call("greet", {}, "hi"), user("Refund it")]
    hacked = [user("Hello, I was hacked."), *talk[1:]]
    table = Cases(ToolGraph())
    plain, odd = (
        table.facts_of(RunState.of(run_of(*each, thread_id="t")), TODAY, changes=True).facts for each in (talk, hacked)
    )
    assert set(odd) - set(plain)


def test_ids_and_counters_are_no_conditions():
    desk = Desk()
    for i in range(30):
        desk.saw({"id": f"Q-{i}x", "at": 1_000 + i, "owner": f"Person {chr(65 + i)}"})

    assert not desk.doubts({"id": "Q-99x", "at": 5_000, "owner": "Person Z"})
    assert desk.doubts({"id": "Q-99x", "at": 3, "owner": "Person Z"}), "a counter does not run backwards"


def test_a_write_after_a_call_of_the_memory_needs_cases_of_its_own():
    desk = Desk().saw(DONE, times=40)
    assert not desk.doubts(DONE)
    assert desk.doubts(DONE, made=True)
    assert not desk.doubts(DONE, made=True, changes=False)

    refused = []
    for _ in range(24):
        refused.append(desk.doubts(DONE, made=True))
        desk.saw(DONE, made=True)
    assert refused.index(False) == 22, "22 of 22 is the first share with a lower limit of .9"
    desk.saw(DONE, made=True, hit=0, times=4)
    assert desk.doubts(DONE, made=True), "24 of 28"


@settings(deadline=None, max_examples=40)
@given(st.randoms(use_true_random=False))
def test_whatever_the_order_the_same_is_known(draw: random.Random):
    desk = Desk()
    for i in range(40):
        desk.saw({"status": "abcdefgh"[i % 8], "name": f"n{i}"}, hit=i % 3 > 0, times=1)
    shuffled = [*desk.applied]
    draw.shuffle(shuffled)
    other = ToolGraph().register(Cases)
    other.graph.apply(None, shuffled)

    def known(table: Cases) -> Any:
        plain = table.to_state()
        return {k: sorted(v.items()) for k, v in plain["pairs"].items()}, plain["places"]

    assert known(other) == known(desk.cases)


def test_the_oldest_cases_leave_and_a_user_is_forgotten(desk: Desk):
    desk.saw(DONE, times=PairCases.most)
    [cases] = desk.cases.to_state()["pairs"].values()
    assert len(cases) == PairCases.most
    assert "t1" not in cases

    again = ToolGraph().register(Cases)
    again.load(desk.cases.to_state())
    assert again.to_state() == desk.cases.to_state()
    assert desk.cases.forget(Forgotten("ann")) == PairCases.most
    assert desk.doubts(DONE)


@pytest.mark.parametrize(
    ("turn", "stopped", "hit"),
    [
        (["look"], False, 1),
        (["refund", "look"], False, 1),
        (["refund"], False, 0),
        (["look"], True, 0),
    ],
    ids=["the tool", "with another", "another", "stopped by a person"],
)
def test_a_hit_is_a_call_of_the_expected_tool(turn: list[str], stopped: bool, hit: int):
    cases = ToolGraph().register(Cases)
    made = run_of(user("Refund it"), calls([(tool, {}, "ok") for tool in turn]), thread_id="t").events[-1]
    assert isinstance(made, Turn)
    learned = LearnedTurn(state_of(DONE), made, "run", "thread", None, {}, 0, {}, {})
    record = learn_case(cases, learned, Guess("look", 0.9, changes=False, stopped=stopped), 1)
    assert [event.hit for event in record if isinstance(event, CaseSeen)] == [hit]
