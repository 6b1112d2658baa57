"""Whole calls by the concrete calls before them."""

from __future__ import annotations

from typing import Any

from histories import Learner, call, reading, state_of, user, words

from langgraph_toolmem import InertiaPolicy
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.inertia.candidates import MAX_CALL_CHARS, CallContexts, call_key, candidates, contexts_of
from langgraph_toolmem.runs.values import canon_args

TOOLS = [reading("set", "room level"), reading("look", "room")]
FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)


def offered(learner: Learner, *parts: Any, who: str | None = None) -> list[Any]:
    contexts = learner.graph.register(CallContexts)
    return candidates(learner.graph, contexts, state_of(*parts), [], specs=learner.specs, user=who)


def whole(learner: Learner, *parts: Any, who: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    found = [c for c in offered(learner, *parts, who=who) if c.whole]
    assert all({f.source for f in c.filled.values()} <= {"w"} for c in found)
    return [(c.tool, c.calls[0]) for c in found]


def test_the_call_that_followed_this_very_call_is_proposed():
    learner = Learner(TOOLS, FREE)
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


def test_a_call_is_offered_whole_where_no_source_gives_its_values():
    learner = Learner([reading("set", "room level"), reading("look", "room")], FREE)
    others = [("set", {"room": f"r{i}", "level": f"l{i}"}) for i in range(12)]
    for i in range(4):
        for k, (tool, args) in enumerate(others):
            asked = user(f"Scene {chr(97 + k)}")
            learner.learn(asked, call(tool, args), words(), thread_id=f"{i}-{k}")

    assert whole(learner, user("Scene e"))[0] == others[4]


SECRET = {"room": "the safe behind the picture", "level": "4711"}


def secretive(*users: str) -> Learner:
    learner = Learner(TOOLS, FREE)
    for i in range(12):
        for who in users:
            learner.learn(user("Good night"), call("set", SECRET), words(), thread_id=f"{who}{i}", user=digest(who))
    return learner


def test_a_value_that_the_run_shows_is_no_secret():
    learner = Learner([*TOOLS, reading("list")], FREE)
    listed = call("list", {}, {"rooms": ["the safe behind the picture"], "codes": ["4711"]})
    for i in range(12):
        learner.learn(user("Good night"), listed, call("set", SECRET), words(), thread_id=f"A{i}", user=digest("A"))

    assert "4711" in repr(offered(learner, user("Good night"), listed, who=digest("C")))


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
    learner = Learner(TOOLS, FREE)
    args = {"room": "x" * MAX_CALL_CHARS, "level": "1"}
    learner.learn(user("Go"), call("set", args), words())
    contexts = learner.graph.register(CallContexts)

    assert contexts.known.rows == {}
    assert contexts.after(state_of(user("Go")))[1][call_key("set", canon_args(args))] > 0
