"""When a call is really made: calls that may change something need backing, and misses are estimated right."""

from __future__ import annotations

import random
from typing import Any

import pytest
from histories import Learner, call, reading, schema, shortcut, user, words

from langgraph_toolmem import Bound, Inertia, InertiaPolicy, ToolMemory
from langgraph_toolmem.base.intervals import interval
from langgraph_toolmem.inertia.budget import Acted
from langgraph_toolmem.inertia.record import begin_shortcut

READ = {"annotations": {"readOnlyHint": True}}
WRITE = {"annotations": {"readOnlyHint": False}}
FREE = InertiaPolicy(may_write={"save"}).with_(max_wrong_per_100=None, audit_rate=0.0)


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


def test_a_changing_tool_has_a_bound_of_its_own():
    learner = practised(FREE)
    decision = at_save(learner)
    p = decision.confidence
    assert decision.acts

    strict = at_save(practised(FREE.with_(writes=Bound(min_precision=min(1.0, p + 0.01), max_wrong_per_100=None))))
    assert strict.proposal is None
    assert strict.reason.startswith("confidence ")
    assert at_save(practised(FREE.with_(reads=Bound(min_precision=1.0, max_wrong_per_100=None)))).acts
    assert at_save(learner, "zzz qqq").proposal is None, "a stranger's request"


# --- calls made, with the truth known ---


def test_a_call_that_begins_is_booked_by_the_misses_to_expect_from_it():
    decision = at_save(practised(FREE))
    [operation] = begin_shortcut(decision, 7)

    assert operation == Acted(7, changes=1, risk=pytest.approx(1 - decision.proposal.confidence))


TOOLS = [reading("find", "name"), reading("open", "id"), reading("note", "id")]


def acted_out(share: float, *, seed: int, runs: int = 220) -> tuple[int, int, int, dict[str, Any]]:
    """An agent that opens what it found with a chance of `share`, else notes it.

    Returns:
        Model turns, calls made by the memory, how many of them were not what the agent would have done, and what the
        report says of that.
    """
    chance = random.Random(seed)
    policy = InertiaPolicy().with_(min_precision=0.5, max_wrong_per_100=40.0, audit_rate=0.25)
    made = missed = 0
    with ToolMemory.ephemeral(tools=TOOLS, methods=[Inertia(policy, seed=seed)]) as memory:
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
        report = memory.report()
        return report.turns, made, missed, report["inertia"]["audits"]


@pytest.mark.parametrize("share", [0.9, *(pytest.param(share, marks=pytest.mark.long) for share in (1.0, 0.75))])
@pytest.mark.slow
def test_the_reported_interval_holds_the_truth(share: float):
    seen, made, missed, checks, right = 0, 0, 0, 0, 0
    for seed in range(3):
        turns, calls_made, wrong, audits = acted_out(share, seed=seed)
        seen, made, missed = seen + turns, made + calls_made, missed + wrong
        checks, right = checks + audits["checks"], right + audits["right"]
    low, high = interval(right, checks, 0.999)  # a wider one than is reported: chance must not fail the test

    assert made > 0.2 * seen
    assert checks > 0.2 * made, "a quarter is audited"
    assert low <= 1 - missed / made <= high
    assert (missed == 0) == (share == 1.0)
