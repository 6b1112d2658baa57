"""Candidates: whole calls by the concrete calls before them, and several calls of one turn made as one."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from histories import Learner, call, calls, history, reading, schema, state_of, user, words

from langgraph_toolmem import InertiaPolicy
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.inertia.calibrated import CallContexts, call_key, candidates, contexts_of
from langgraph_toolmem.inertia.decision import calls_text
from langgraph_toolmem.inertia.step import shortcut_message
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.runs.values import canon_args

FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)
ROOMS = [reading("set", "room level"), reading("look", "room")]


ALL = ("set.room", "set.level")
"""Declared constants."""


def offered(learner: Learner, *parts: Any, constants: Collection[str] = ()) -> list[Any]:
    contexts = learner.graph.register(CallContexts)
    evidence = {"graph": learner.graph, "specs": learner.specs, "neighbours": [], "constants": constants}
    situation: Any = SimpleNamespace(state=state_of(*parts), **evidence)
    return candidates(situation, contexts)


def whole(learner: Learner, *parts: Any) -> list[tuple[str, dict[str, Any]]]:
    found = [c for c in offered(learner, *parts, constants=ALL) if c.whole]
    assert all({f.source for f in c.filled.values()} <= {"w"} for c in found)
    return [(c.tool, c.calls[0]) for c in found]


def test_the_call_that_followed_this_very_call_is_proposed():
    learner = Learner(ROOMS, FREE, constants=ALL)
    for i in range(40):  # which room comes next is told by the room before, and by nothing else
        a, b = (("hall", "low"), ("attic", "high")) if i % 2 else (("porch", "dim"), ("cellar", "full"))
        made = [call("set", {"room": room, "level": level}) for room, level in (a, b)]
        learner.learn(user("Good evening"), *made, words(), thread_id=str(i))

    for before, then in (
        (("hall", "low"), {"room": "attic", "level": "high"}),
        (("porch", "dim"), {"room": "cellar", "level": "full"}),
    ):
        decision = learner.decide(user("Good evening"), call("set", {"room": before[0], "level": before[1]}))
        assert decision.acts, decision.reason
        assert (decision.proposal.tool, dict(decision.proposal.args)) == ("set", then)


def accounts_read(*numbers: str) -> list[Any]:
    listed = {"accounts": [{"number": number} for number in numbers]}
    return history(user("What happened on my account today?"), call("list_accounts", {}, listed))


def answered(number: str) -> list[Any]:
    return history(call("balance", {"number": number}), words())


@pytest.mark.parametrize("accounts", [("B-1", "B-2", "B-3"), ("B-1", "D-1", "D-2")])
def test_a_later_request_of_a_thread_looks_at_the_first_account_of_its_own_list(accounts: tuple[str, ...]):
    learner = Learner([reading("list_accounts"), reading("balance", "number")], FREE)
    for i in range(40):
        one, other = [f"A{i}-{n}" for n in range(3)], [f"C{i}-{n}" for n in range(3)]
        requests = accounts_read(*one), answered(one[0]), accounts_read(*other), answered(other[0])
        learner.learn(*requests, thread_id=str(i))
    before = history(accounts_read("B-1", "B-2", "B-3"), answered("B-1"))

    decision = learner.decide(before, accounts_read(*accounts))

    assert (decision.options[0].tool, decision.options[0].calls) == ("balance", ({"number": "B-1"},))
    # The model decides whether to repeat a look-up of the thread. The memory looked at the second account instead.
    assert (decision.acts, decision.refusal.code) == (False, "repeat")


def test_a_call_is_offered_whole_where_no_source_gives_its_values():
    learner = Learner(ROOMS, FREE)
    others = [("set", {"room": f"r{i}", "level": f"l{i}"}) for i in range(12)]
    for i in range(4):
        for k, (tool, args) in enumerate(others):
            asked = user(f"Scene {chr(97 + k)}")
            learner.learn(asked, call(tool, args), words(), thread_id=f"{i}-{k}")

    assert whole(learner, user("Scene e"))[0] == others[4]


SECRET = {"room": "the safe behind the picture", "level": "4711"}


def secretive(*users: str) -> Learner:
    learner = Learner(ROOMS, FREE)
    for i in range(12):
        for who in users:
            learner.learn(user("Good night"), call("set", SECRET), words(), thread_id=f"{who}{i}", user=digest(who))
    return learner


def test_a_value_that_the_run_shows_is_no_secret():
    learner = Learner([*ROOMS, reading("list")], FREE)
    listed = call("list", {}, {"rooms": ["the safe behind the picture"], "codes": ["4711"]})
    for i in range(12):
        learner.learn(user("Good night"), listed, call("set", SECRET), words(), thread_id=f"A{i}", user=digest("A"))

    assert "4711" in repr(offered(learner, user("Good night"), listed))


def test_forgetting_a_user_takes_the_calls_nobody_else_made():
    learner = secretive("A")
    contexts = learner.graph.register(CallContexts)
    assert "4711" in repr(contexts.to_state())
    assert contexts.forget(Forgotten(digest("A"))) > 0
    assert "4711" not in repr(contexts.to_state())
    assert contexts.known.rows == {}

    both = secretive("A", "B").graph.register(CallContexts)
    both.forget(Forgotten(digest("A")))
    assert "4711" in repr(both.to_state())
    assert digest("A") not in repr(both.to_state())


def test_contexts_tell_calls_and_requests_apart():
    one = call("look", {"room": "hall"}, {"state": "on"})
    keys = contexts_of(state_of(user("Look"), one))
    assert len(keys) == len(set(keys)) == 3  # the call alone, the call at the start, the request

    attic = contexts_of(state_of(user("Look"), call("look", {"room": "attic"}, {"state": "on"})))
    assert not set(attic) & set(keys)
    asked = contexts_of(state_of(user("Look there"), one))
    assert (asked[-1] == keys[-1], asked[:-1] == keys[:-1]) == (False, True)


def test_a_long_call_is_counted_but_not_kept():
    learner = Learner(ROOMS, FREE)
    args = {"room": "x" * CallContexts.most_characters, "level": "1"}
    learner.learn(user("Go"), call("set", args), words())
    contexts = learner.graph.register(CallContexts)

    assert contexts.known.rows == {}
    assert contexts.after(state_of(user("Go")))[1][call_key("set", canon_args(args))] > 0


# --- several calls of one turn ---

TOOLS = [reading("places", "team"), reading("weather", "city"), reading("note", "text")]
FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)


def asks(team: str, *cities: str) -> list[Any]:
    return history(
        user(f"What is it like at the places of {team}?"), call("places", {"team": team}, {"at": list(cities)})
    )


def request(first: str, second: str) -> list[Any]:
    """A run up to the calls to predict."""
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


def test_two_calls_at_once_are_predicted_after_sixty_equal_runs():
    decision = practised().decide(request("Oslo", "Bergen"))

    assert decision.acts, decision.reason
    message = shortcut_message(decision.proposal, announce=True)
    made = [(c["name"], c["args"]) for c in message.tool_calls]
    assert made == [("weather", {"city": "Oslo"}), ("weather", {"city": "Bergen"})]
    assert len({c["id"] for c in message.tool_calls}) == 2
    assert "Oslo" in message.text
    assert "Bergen" in message.text


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


def test_the_order_of_calls_does_not_matter_for_being_right():
    assert calls_text([{"city": "a"}, {"city": "b"}]) == calls_text([{"city": "b"}, {"city": "a"}])
    assert calls_text([{"city": "a"}, {"city": "b"}]) != calls_text([{"city": "a"}])

    learner = practised(40)
    right = learner.graph.counters["right"]
    for i in range(40, 60):
        learner.learn(trip(i, turned=True), thread_id=str(i))
    assert learner.graph.counters.get("wrong", 0) == 0
    assert learner.graph.counters["right"] == right + 2 * 20


def test_if_one_call_is_refused_none_is_made():
    narrow = reading("weather", "city")
    narrow["parameters"]["properties"]["city"]["pattern"] = "^[A-M]"
    learner, specs = practised(), read_tools([TOOLS[0], narrow, TOOLS[2]])
    assert learner.decide(request("Bergen", "Hamburg"), specs=specs).acts
    for asked in (request("Bergen", "Oslo"), request("Oslo", "Bergen")):
        decision = learner.decide(asked, specs=specs)
        assert decision.proposal is None
        assert any("break its schema" in str(option.refused) for option in decision.options)
