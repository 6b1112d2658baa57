"""The default policy: acts on the record, within the budget, behind the guards, without leaks."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from histories import FAILED, Learner, call, calls, history, reading, run_of, schema, user, words
from hypothesis import given, settings
from hypothesis import strategies as st
from kept import inertia
from langchain_core.tools import InjectedToolArg, tool

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.inertia import guards
from langgraph_toolmem.inertia.budget import CAPACITY

FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)
TOOLS = [reading("find", "name"), reading("open", "id"), reading("note", "id text")]
NAMES = ["Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gita", "Hugo"]


def request(name: str) -> Any:
    return user(f"Find the file of {name} and open it")


def visit(name: str, tool: str = "open") -> list[Any]:
    """A run whose second call is always the same in kind."""
    return history(
        request(name), call("find", {"name": name}, {"id": f"id-{name}"}), call(tool, {"id": f"id-{name}"}), words()
    )


def practised(
    policy: InertiaPolicy = FREE,
    runs: int = 40,
    tools: Any = TOOLS,
    tool: str = "open",
    seed: int = 0,
    reads: Any = (),
) -> Learner:
    learner = Learner(tools, policy, seed=seed, reads=reads)
    for i in range(runs):
        learner.learn(visit(NAMES[i % 8] + str(i), tool), thread_id=str(i))
    return learner


def at_second_call(learner: Learner, **options: Any) -> Any:
    return learner.decide(request("Zoe"), call("find", {"name": "Zoe"}, {"id": "id-Zoe"}), **options)


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
            decision = learner.decide(request(f"Zoe{i}"), call("find", {"name": f"Zoe{i}"}, {"id": f"id-Zoe{i}"}))
            assert decision.proposal.audit is not decision.acts
            made.append(decision.acts)
        return made

    first = drawn(1)
    assert drawn(1) == first
    assert drawn(2) != first
    assert {True, False} == set(first)


SCRIPT = st.lists(
    st.tuples(st.sampled_from(["Ann", "Ben"]), st.sampled_from(["open"] * 8 + ["note", "words", "both", "failed"])),
    min_size=30,
    max_size=70,
)


@given(SCRIPT, st.sampled_from([1.0, 3.0, 10.0]), st.sampled_from([0.5, 0.7, 0.9]), st.sampled_from([0.0, 0.2]))
@settings(max_examples=12)
@pytest.mark.slow
def test_the_budget_holds_at_every_moment(script, budget, bar, audit_rate):
    """Replayed with acting: wherever the policy acts the truth is known, so misses per 100 can be counted."""
    policy = InertiaPolicy().with_(max_wrong_per_100=budget, min_precision=bar, audit_rate=audit_rate)
    learner = Learner(TOOLS, policy)
    turns = wrong = 0

    def booked(turn: Any, decision: Any) -> None:
        nonlocal turns, wrong
        turns += 1
        made = [(s.tool, s.args) for s in turn.steps]
        wrong += decision.would_act and made != [(decision.proposal.tool, dict(decision.proposal.args))]
        assert wrong <= CAPACITY + budget * turns / 100

    for i, (name, kind) in enumerate(script):
        found = call("find", {"name": name}, {"id": f"id-{name}"})
        second = {
            "open": call("open", {"id": f"id-{name}"}),
            "note": call("note", {"id": f"id-{name}", "text": "seen"}),
            "words": [],
            "both": calls([("open", {"id": f"id-{name}"}, "ok"), ("find", {"name": "x"}, "ok")]),
            "failed": call("open", {"id": "?"}, FAILED),
        }[kind]
        learner.learn(request(name), found, second, words(), thread_id=str(i), on_turn=booked)
    assert learner.graph.counters.get("wrong", 0) == wrong
    assert learner.graph.counters["turns"] == turns


# --- guards ---


def test_tools_the_policy_keeps_out():
    assert at_second_call(practised(FREE.with_(only=["open"]))).acts
    for only in (["find", "note"], []):
        decision = at_second_call(practised(FREE.with_(only=only)))
        assert decision.proposal is None
        assert "excluded" in decision.reason


def test_an_identical_call_is_not_made_again_unless_repeats_are_normal():
    def refused(learner: Learner, state: RunState) -> str:
        return guards.refusal(
            "open", ({"id": "7"},), specs=learner.specs, policy=learner.policy, graph=learner.graph, state=state
        )

    def after(*answers: str) -> RunState:
        return RunState.of(run_of(user("Go."), *[call("open", {"id": "7"}, answer) for answer in answers]))

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
    assert refused(poller, RunState.of(run_of(user("Go."), look, rest, look, rest))) == ""
    assert "stay the same" in refused(poller, RunState.of(run_of(user("Go."), look, rest, look, rest, done, rest)))


def test_an_idempotent_change_is_repeated_only_once_the_user_spoke_again():
    tools = [schema("close", "id", annotations={"idempotentHint": True, "destructiveHint": False})]
    learner = Learner(tools, FREE.with_(may_write={"close"}))
    learner.learn(user("Go."), *[call("close", {"id": "7"})] * 3, words())

    def refused(*parts: Any) -> str:
        state = RunState.of(run_of(user("Go."), *parts))
        return guards.refusal(
            "close", ({"id": "7"},), specs=learner.specs, policy=learner.policy, graph=learner.graph, state=state
        )

    closed = [*call("close", {"id": "7"}), *call("close", {"id": "7"})]
    assert learner.specs["close"].idempotent
    assert "already called with the same arguments" in refused(*closed)
    assert refused(*closed, user("Go.")) == ""


def test_injected_arguments_are_never_filled():
    @tool("open")
    def opened(id: str, user_id: Annotated[str, InjectedToolArg]) -> str:  # noqa: A002
        """Opens a file."""
        return id

    learner = practised(tools=[TOOLS[0], opened], reads={"open"})
    proposal = at_second_call(learner).proposal

    assert dict(proposal.args) == {"id": "id-Zoe"}


# --- no leaks ---

MAIL = [reading("send", "to", "body")]
SECRET = "the code is 4711"


def sends(learner: Learner, who: str, run: str, body: str = SECRET, text: str = "Send the usual mail to Bob") -> None:
    user_id = digest("user", who) if who else None
    learner.learn(user(text), call("send", {"to": "Bob", "body": body}), words(), thread_id=run, user=user_id)


def everything_offered(decision: Any) -> str:
    return repr([decision.proposal, decision.options, decision.reason])


def test_the_tail_of_a_long_value_is_not_leaked():
    shared = "please send the weekly summary of all open orders and invoices now " * 8
    learner = Learner(MAIL, FREE)
    for i in range(4):
        sends(learner, "A", f"a{i}", body=shared + "4711", text=shared)

    assert "4711" not in everything_offered(learner.decide(user(shared + "thanks"), user=digest("user", "B")))


# --- turns that begin and never end ---


def before_second(memory: ToolMemory, name: str, run: str) -> Any:
    parts = history(request(name), call("find", {"name": name}, {"id": f"id-{name}"}))
    return memory.inertia.begin_turn(parts, thread_id=run)


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


def test_reporting_at_once_and_reporting_later_make_the_same_record():
    records = []
    for begin in (False, True):
        with practised_memory(FREE.with_(shadow=True), now=lambda: 1_000_000.0) as memory:
            if begin:
                before_second(memory, "Zoe", "z")
            memory.finish(visit("Zoe"), thread_id="z", wait=True)
            report = memory.report().to_dict()
            records.append((report, inertia(memory).rules.rows))

    assert records[0] == records[1]
