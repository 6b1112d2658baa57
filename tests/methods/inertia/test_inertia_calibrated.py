"""The default policy: acts on the record, with a bound for changes, behind the guards; misses are estimated right."""

from __future__ import annotations

import random
from typing import Any

import pytest
from histories import Learner, call, history, reading, schema, shortcut, state_of, user, words
from kept import inertia

from langgraph_toolmem import Bound, Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.base.intervals import interval
from langgraph_toolmem.inertia import guards
from langgraph_toolmem.inertia.budget import Acted
from langgraph_toolmem.inertia.record import begin_shortcut

FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)
TOOLS = [reading("find", "name"), reading("open", "id"), reading("note", "id")]
NAMES = ["Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gita", "Hugo"]


def request(name: str) -> Any:
    return user(f"Find the file of {name} and open it")


def found(name: str) -> list[Any]:
    return history(request(name), call("find", {"name": name}, {"id": f"id-{name}"}))


def visit(name: str) -> list[Any]:
    return history(found(name), call("open", {"id": f"id-{name}"}), words())


def practised(policy: InertiaPolicy = FREE, runs: int = 40, tools: Any = TOOLS, seed: int = 0) -> Learner:
    learner = Learner(tools, policy, seed=seed)
    for i in range(runs):
        learner.learn(visit(NAMES[i % 8] + str(i)), thread_id=str(i))
    return learner


def at_second_call(learner: Learner) -> Any:
    return learner.decide(found("Zoe"))


def test_a_few_runs_are_not_enough_and_many_are():
    nothing = Learner(TOOLS, FREE).decide(request("Zoe"))
    assert (nothing.proposal, nothing.options) == (None, ())
    assert at_second_call(practised(runs=2)).proposal is None

    proposal = at_second_call(practised()).proposal
    assert (proposal.tool, dict(proposal.args), proposal.act) == ("open", {"id": "id-Zoe"}, True)
    assert proposal.confidence >= 0.9


# --- budget, audits, shadow ---


def test_draws_are_by_seed_and_turn():
    def drawn(seed: int) -> list[bool]:
        learner = practised(FREE.with_(audit_rate=0.5), seed=seed)
        made = []
        for i in range(24):
            decision = learner.decide(found(f"Zoe{i}"))
            assert decision.proposal.audit is not decision.acts
            made.append(decision.acts)
        return made

    first = drawn(1)
    assert drawn(1) == first
    assert drawn(2) != first
    assert {True, False} == set(first)


def test_misses_use_the_budget_up_and_then_nothing_is_made():
    learner, made = practised(FREE.with_(max_wrong_per_100=1.0)), []
    for i in range(5):
        decision = at_second_call(learner)
        made.append(decision.acts)
        learner.learn(found(f"Odd{i}"), call("note", {"id": f"id-Odd{i}"}), words(), thread_id=f"odd{i}")

    assert made == [True, True, True, False, False]
    assert (decision.reason.code, decision.would_act) == ("budget", False)
    assert learner.graph.counters["wrong"] == 3


def test_a_changing_tool_has_a_bound_of_its_own():
    policy = FREE.with_(may_write={"open"})

    def decided(**bounds: Any) -> Any:
        tools = [reading("find", "name"), schema("open", "id")]
        return at_second_call(practised(policy.with_(**bounds), tools=tools))

    decision = decided()
    p = decision.confidence
    assert decision.acts
    assert begin_shortcut(decision, 7) == [Acted(7, changes=1, risk=pytest.approx(1 - p))]

    strict = decided(writes=Bound(min_precision=min(1.0, p + 0.01), max_wrong_per_100=None))
    assert strict.proposal is None
    assert strict.reason.startswith("confidence ")
    assert decided(reads=Bound(min_precision=1.0, max_wrong_per_100=None)).acts


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
            messages = [request(name)]
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


# --- guards ---


def test_tools_the_policy_keeps_out():
    assert at_second_call(practised(FREE.with_(only=["open"]))).acts
    for only in (["find", "note"], []):
        decision = at_second_call(practised(FREE.with_(only=only)))
        assert decision.proposal is None
        assert "excluded" in decision.reason


def refused(learner: Learner, parts: Any, tool: str = "open") -> str:
    """Why a call with the id 7 is not made after these parts."""
    state, how = state_of(user("Go."), *parts), {"specs": learner.specs, "policy": learner.policy}
    return guards.refusal(tool, ({"id": "7"},), graph=learner.graph, state=state, **how)


def test_an_identical_call_is_not_made_again_unless_repeats_are_normal():
    def after(*answers: str) -> list[Any]:
        return [call("open", {"id": "7"}, answer) for answer in answers]

    learner = practised(runs=3)
    assert "already called with the same arguments" in refused(learner, after("busy"))

    learner.policy = FREE.with_(allow_repeats={"open"})
    assert refused(learner, after("busy")) == ""
    poller = Learner(TOOLS, FREE)
    poller.learn(user("Go."), *[call("open", {"id": "7"})] * 3, words())
    assert refused(poller, after("busy", "busy")) == ""
    assert "stay the same" in refused(poller, after("busy")), "the model makes the first repeat"
    assert "stay the same" in refused(poller, after("busy", "busy", "done")), "only the model can tell what it means"
    look, rest = call("open", {"id": "7"}, "busy"), call("find", {"name": "x"}, "y")
    done = call("open", {"id": "7"}, "done")
    assert refused(poller, [look, rest, look, rest]) == ""
    assert "stay the same" in refused(poller, [look, rest, look, rest, done, rest])


def test_an_idempotent_change_is_repeated_only_once_the_user_spoke_again():
    tools = [schema("close", "id", annotations={"idempotentHint": True, "destructiveHint": False})]
    learner = Learner(tools, FREE.with_(may_write={"close"}))
    learner.learn(user("Go."), *[call("close", {"id": "7"})] * 3, words())

    closed = [call("close", {"id": "7"})] * 2
    assert learner.specs["close"].idempotent
    assert "already called with the same arguments" in refused(learner, closed, "close")
    assert refused(learner, [*closed, user("Go.")], "close") == ""


# --- turns that begin and never end ---


def before_second(memory: ToolMemory, name: str, run: str) -> Any:
    return memory.inertia.begin_turn(found(name), thread_id=run)


def practised_memory(policy: InertiaPolicy, **options: Any) -> ToolMemory:
    memory = ToolMemory.ephemeral(tools=TOOLS, methods=default_methods(Inertia(policy)), **options)
    for i in range(40):
        memory.finish(visit(NAMES[i % 8] + str(i)), thread_id=str(i))
    return memory


def test_a_turn_whose_end_is_never_reported_counts_as_a_miss():
    with practised_memory(FREE.with_(shadow=True)) as memory:

        def misses() -> float:
            rows = inertia(memory).rules.rows.items()
            return sum(cells[""][1] for key, cells in rows if key.startswith("Dopen"))

        before = misses()
        for i in range(8):
            before_second(memory, f"Zoe{i}", f"z{i}")

        assert misses() == before + 8
        assert memory.report().turns == 120 + 8 + 8  # with the reported first calls of these runs


def test_a_turn_reported_later_is_booked_once():
    with practised_memory(FREE.with_(shadow=True)) as memory:
        before = memory.report()
        for _ in range(3):
            decision = before_second(memory, "Zoe", "z")
        assert decision.would_act
        assert memory.report().turns == before.turns + 2  # the first call, and the turn that has begun
        assert memory.report().right == before.right + 1  # the first call was foreseen too

        for _ in range(2):
            memory.finish(visit("Zoe"), thread_id="z")
        after = memory.report()
        assert after.turns == before.turns + 3
        assert (after.right, after.wrong) == (before.right + 2, before.wrong)
        assert inertia(memory).open_turns == {}
        assert memory.core.graph.counters["would_act_open"] == 0
