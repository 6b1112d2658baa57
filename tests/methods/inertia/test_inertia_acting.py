"""When a call is really made: calls that may change something, the last of the budget, and misses estimated right."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from histories import Learner, call, schema, shortcut, user, words

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.operations import Count
from langgraph_toolmem.inertia import calibrated, guards
from langgraph_toolmem.inertia.candidates import Candidate
from langgraph_toolmem.inertia.crediting import begin_shortcut
from langgraph_toolmem.inertia.record import budget_room, misses_estimated
from langgraph_toolmem.runs.tools import read_tools

READ = {"annotations": {"readOnlyHint": True}}
WRITE = {"annotations": {"readOnlyHint": False}}
FREE = InertiaPolicy(max_wrong_per_100=None, audit_rate=0.0)

# --- what may change something ---


@pytest.mark.parametrize(
    ("find", "open_", "writes"),
    [
        ({}, {}, False),  # nothing is said of any tool, so nothing is assumed
        (READ, {}, True),  # the one that is not marked among those that are
        (READ, READ, False),
        ({}, WRITE, True),
        (WRITE, {}, False),
        ({}, READ, False),
    ],
)
def test_which_tools_may_write(find: Any, open_: Any, writes: bool):
    specs = read_tools([schema("find", "name", **find), schema("open", "id", **open_)])

    assert guards.may_write("open", specs) is writes


def practised(policy: InertiaPolicy, runs: int = 40) -> Learner:
    """Two kinds of requests go on with the same tools; `save` is the one that writes."""
    learner = Learner([schema("find", "name", **READ), schema("save", "id")], policy)
    for i in range(runs):
        name = f"N{i}"
        found = call("find", {"name": name}, {"id": f"id-{name}"})
        learner.learn(
            user(f"Save the file of {name}"), found, call("save", {"id": f"id-{name}"}), words(), thread_id=f"{i}"
        )
    return learner


def at_save(learner: Learner, text: str = "Save the file of Zoe") -> Any:
    return learner.decide(user(text), call("find", {"name": "Zoe"}, {"id": "id-Zoe"}))


def test_a_call_that_may_write_needs_past_requests_that_back_it():
    learner = practised(FREE)
    assert at_save(learner).acts

    strange = at_save(learner, "zzz qqq")
    assert strange.proposal is None
    assert "may change something" in strange.reason
    assert "0 of the nearest past requests" in strange.reason
    learner.policy = FREE.with_(witnesses_for_writes=0)
    assert at_save(learner, "zzz qqq").acts == (strange.options[0].score >= FREE.min_precision) is True
    learner.policy = FREE.with_(witnesses_for_writes=5)  # there are never more than four
    assert not at_save(learner).acts


def candidate(**changes: Any) -> Candidate:
    plain = Candidate(
        tool="save",
        filled={},
        p_tool=1.0,
        p_args=1.0,
        support=9.0,
        window="",
        similarity=1.0,
        neighbour_agrees=2,
        agreeing_neighbours=1.0,
        witnesses=4,
    )
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("p", "changes", "said"),
    [
        (0.95, {}, ""),
        (0.89, {}, "confidence 0.89 is below 0.90"),
        (0.95, {"witnesses": 2}, "only 2 of the nearest"),
        (0.95, {"similarity": calibrated.NEAR_ENOUGH}, ""),
        (0.95, {"similarity": calibrated.NEAR_ENOUGH - 0.01}, "no past request is near"),
        (0.95, {"tool": "find", "witnesses": 0, "similarity": 0.0}, ""),
    ],
)
def test_doubts(p: float, changes: dict[str, Any], said: str):
    specs = read_tools([schema("find", "name", **READ), schema("save", "id")])
    doubt = calibrated.doubt(p, candidate(**changes), specs, FREE)

    assert (said in doubt) if said else (doubt == "")


# --- the last of the budget ---


def held(counters: dict[str, float], p: float, **changes: Any) -> tuple[str, bool]:
    graph = EvidenceGraph()
    graph.counters.update(counters)
    return guards.held_back(graph, InertiaPolicy(audit_rate=0.0).with_(**changes), p, 0.5)


def test_with_room_for_less_than_two_misses_only_the_surest_calls_are_made():
    assert held({"turns": 98}, 1.0)[0].startswith("the budget of 1 wrong call(s)")
    assert 1 <= budget_room({"turns": 149}, 1.0) < guards.LAST_ROOM
    assert "confidence 0.94 is below 0.95" in held({"turns": 149}, 0.94)[0]
    assert held({"turns": 149}, 0.95) == ("", False)
    assert "confidence 0.74 is below 0.75" in held({"turns": 149}, 0.74, min_precision=0.5)[0]
    assert held({"turns": 299}, 0.91) == ("", False), "plenty of room"
    assert held({"turns": 149}, 0.91, max_wrong_per_100=None) == ("", False)
    assert held({"turns": 149}, 0.94, shadow=True)[1] is False, "what the policy would not do is no shadow"


def test_the_bar_rises_as_the_budget_is_used_up():
    bars = []
    for wrong in range(8):
        counters = {"turns": 999.0, "wrong": float(wrong), "checked_risk": float(wrong)}
        bars.append(guards.raised_bar(budget_room(counters, 1.0), counters, InertiaPolicy()))

    assert bars[0] == 0.9
    assert bars == sorted(bars)
    assert 0.9 < bars[-1] <= guards.SUREST


# --- calls made, with the truth known ---


def test_a_call_that_begins_is_booked_by_the_misses_to_expect_from_it():
    decision = at_save(practised(FREE))
    [operation] = begin_shortcut(decision)

    assert operation == Count("acted_risk", pytest.approx(1 - decision.proposal.confidence))


TOOLS = [schema("find", "name"), schema("open", "id"), schema("note", "id")]


def acted_out(share: float, *, seed: int, runs: int = 220) -> tuple[int, int, int, dict[str, float]]:
    """An agent that opens what it found with a chance of `share`, else notes it.

    Returns:
        Model turns, calls made by the memory, how many of them were not what the agent would have done, counters.
    """
    chance = random.Random(seed)
    policy = InertiaPolicy(min_precision=0.5, max_wrong_per_100=40.0, audit_rate=0.25)
    made = missed = 0
    with ToolMemory.ephemeral(tools=TOOLS, methods=default_methods(Inertia(policy, seed=seed))) as memory:
        for i in range(runs):
            name = f"N{i}"
            last = "open" if chance.random() < share else "note"
            plan: list[tuple[str, dict[str, str], Any]] = [
                ("find", {"name": name}, {"id": f"id-{name}"}),
                (last, {"id": f"id-{name}"}, "done"),
            ]
            messages = [user(f"See to the file of {name}")]
            while plan:
                decision = memory.inertia.begin_turn(messages, thread_id=str(i))
                if decision.acts:
                    tool, args = decision.proposal.tool, dict(decision.proposal.args)
                    made += 1
                    if (tool, args) == plan[0][:2]:
                        messages += shortcut(*plan.pop(0))
                    else:
                        missed += 1
                        messages += shortcut(tool, args, "not asked for")
                else:
                    messages += call(*plan.pop(0))
            memory.finish([*messages, words()], thread_id=str(i))
        return memory.report().turns, made, missed, dict(memory.core.graph.counters)


@pytest.mark.parametrize("share", [1.0, 0.9, 0.75])
@pytest.mark.slow
def test_the_estimate_of_misses_is_near_the_truth(share: float):
    actual = estimated = turns = made = 0.0
    for seed in range(2):
        seen, calls_made, missed, counters = acted_out(share, seed=seed)
        checked = counters.get("wrong", 0)
        actual += missed
        estimated += misses_estimated(counters) - checked
        turns += seen
        made += calls_made
        assert checked + missed <= 0.4 * seen
    assert made > 0.3 * turns
    assert 0.65 * actual <= estimated <= 1.6 * actual + 4
    if share == 1.0:
        assert actual == 0
