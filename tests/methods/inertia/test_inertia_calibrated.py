"""The default policy: acts on the record, with a bound for changes, behind the guards, and is audited."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from histories import Learner, call, history, reading, schema, shortcut, state_of, user, words
from kept import inertia

from langgraph_toolmem import Bound, Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.inertia.confidence import Acted
from langgraph_toolmem.inertia.decision import Option
from langgraph_toolmem.inertia.policy import Guards
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
    assert (decision.code, decision.would_act) == ("budget", False)
    assert learner.graph.counters["wrong"] == 3


def test_a_changing_tool_has_a_bound_of_its_own():
    policy = FREE.with_(may_write={"open"})

    def decided(**bounds: Any) -> Any:
        tools = [reading("find", "name"), schema("open", "id")]
        return at_second_call(practised(policy.with_(**bounds), tools=tools))

    decision = decided()
    p = decision.confidence
    assert decision.acts
    assert begin_shortcut(decision, 7)[:1] == [Acted(7, changes=1, risk=pytest.approx(1 - p))]

    strict = decided(writes=Bound(min_precision=min(1.0, p + 0.01), max_wrong_per_100=None))
    assert strict.proposal is None
    assert strict.reason.startswith("confidence ")
    assert decided(reads=Bound(min_precision=1.0, max_wrong_per_100=None)).acts


def test_the_report_counts_the_audits_and_how_many_were_right():
    """Every ninth run goes on with another tool; that is a miss where it was audited, and not seen where it was not."""
    audits, policy = [], FREE.with_(audit_rate=0.5)
    with ToolMemory.ephemeral(tools=TOOLS, methods=[Inertia(policy, seed=1)]) as memory:
        for i in range(90):
            messages, last = [request(f"N{i}")], "note" if i % 9 == 8 else "open"
            for tool, args, output in (("find", {"name": f"N{i}"}, {"id": f"id-N{i}"}), (last, {"id": f"id-N{i}"}, "")):
                decision = memory.inertia.begin_turn(messages, owner=Owner(str(i)))
                if decision.would_act and not decision.acts:
                    audits.append((decision.proposal.tool, dict(decision.proposal.args)) == (tool, args))
                messages += (shortcut if decision.acts else call)(tool, args, output)
            memory.finish([*messages, words()], thread_id=str(i))
        told = memory.report()["inertia"]["audits"]

    assert {True, False} == set(audits)
    assert (told["checks"], told["right"]) == (len(audits), sum(audits))


# --- guards ---


def refused(learner: Learner, parts: Any, tool: str = "open") -> str:
    """Why a call with the id 7 is not made after these parts."""
    state = state_of(user("Go."), *parts)
    situation: Any = SimpleNamespace(graph=learner.graph, state=state, specs=learner.specs, policy=learner.policy)
    refusal = Guards().refuse(Option(tool, ({"id": "7"},), 0.9), situation)
    return refusal.text if refusal is not None else ""


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
    return memory.inertia.begin_turn(found(name), owner=Owner(run))


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
