"""Several calls of one turn are foreseen, made and executed as one; an answer in words is foreseen too."""

from __future__ import annotations

from typing import Any

import pytest
from histories import Learner, call, calls, history, reading, schema, user, words

from langgraph_toolmem import InertiaPolicy
from langgraph_toolmem.inertia.decision import calls_text
from langgraph_toolmem.inertia.step import shortcut_message
from langgraph_toolmem.runs.tools import read_tools

TOOLS = [reading("places", "team"), reading("weather", "city"), reading("note", "text")]
FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)


def asks(team: str, *cities: str) -> list[Any]:
    return history(
        user(f"What is it like at the places of {team}?"), call("places", {"team": team}, {"at": list(cities)})
    )


def request(first: str, second: str) -> list[Any]:
    """Before the calls that are to be foreseen."""
    return asks("Zoe", first, second)


def both(first: str, second: str) -> list[Any]:
    return calls([("weather", {"city": first}, "sunny"), ("weather", {"city": second}, "rainy")])


def trip(i: int, *, turned: bool = False) -> list[Any]:
    there = (f"Here{i}", f"There{i}")
    return history(asks(f"Team{i}", *there), both(*(reversed(there) if turned else there)), words())


def practised(runs: int = 60) -> Learner:
    learner = Learner(TOOLS, FREE)
    for i in range(runs):
        learner.learn(trip(i), thread_id=str(i))
    return learner


@pytest.fixture(scope="module")
def learner() -> Learner:
    return practised()


def test_two_calls_at_once_are_foreseen_after_sixty_equal_runs(learner: Learner):
    decision = learner.decide(request("Oslo", "Bergen"))

    assert decision.acts, decision.reason
    assert decision.proposal.tool == "weather"
    assert [dict(args) for args in decision.proposal.calls] == [{"city": "Oslo"}, {"city": "Bergen"}]
    assert "weather came next 100% of the time" in decision.reason


def test_what_changes_something_is_not_done_twice_in_one_turn():
    tools = [reading("late_orders", "day"), schema("notify_late", "customer")]
    learner = Learner(tools, FREE.with_(may_write={"notify_late"}))

    def late(day: str, *customers: str) -> list[Any]:
        return history(
            user(f"Tell who waits since {day}"), call("late_orders", {"day": day}, {"customers": list(customers)})
        )

    for i in range(40):
        both = [("notify_late", {"customer": f"C{i + k}"}, "ok") for k in (0, 100)]
        learner.learn(late(f"day{i}", f"C{i}", f"C{i + 100}"), calls(both), words(), thread_id=str(i))

    made = learner.decide(late("friday", "C333", "C334"))
    assert made.acts, made.reason
    assert [args["customer"] for args in made.proposal.calls] == ["C333", "C334"]
    same = late("friday", "C333", "C333")
    assert learner.decide(same).proposal is None


def test_the_message_has_all_calls(learner: Learner):
    proposal = learner.decide(request("Oslo", "Bergen")).proposal
    message = shortcut_message(proposal, announce=True)

    made = [(c["name"], c["args"]) for c in message.tool_calls]
    assert made == [("weather", {"city": "Oslo"}), ("weather", {"city": "Bergen"})]
    assert len({c["id"] for c in message.tool_calls}) == 2
    assert "Oslo" in message.text
    assert "Bergen" in message.text


def test_the_order_of_calls_does_not_matter_for_being_right():
    assert calls_text([{"city": "a"}, {"city": "b"}]) == calls_text([{"city": "b"}, {"city": "a"}])
    assert calls_text([{"city": "a"}, {"city": "b"}]) != calls_text([{"city": "a"}])

    learner = practised(40)
    right = learner.graph.counters["right"]
    for i in range(40, 60):
        learner.learn(trip(i, turned=True), thread_id=str(i))
    assert learner.graph.counters.get("wrong", 0) == 0
    assert learner.graph.counters["right"] == right + 2 * 20


def test_if_one_call_is_refused_none_is_made(learner: Learner):
    narrow = reading("weather", "city")
    narrow["parameters"]["properties"]["city"]["pattern"] = "^[A-M]"
    specs = read_tools([TOOLS[0], narrow, TOOLS[2]])
    assert learner.decide(request("Bergen", "Hamburg"), specs=specs).acts
    for asked in (request("Bergen", "Oslo"), request("Oslo", "Bergen")):
        decision = learner.decide(asked, specs=specs)
        assert decision.proposal is None
        assert any("break its schema" in option.refused for option in decision.options)


# --- an answer in words ---
