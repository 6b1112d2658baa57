"""A memory's graph of tools over time: plans, learned fields, pruned tools, weights that follow use."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import histories as h
import pytest
from langgraph.store.memory import InMemoryStore
from queues import Clock

from langgraph_toolmem import ConfigurationError, Navigator, StorageError, ToolMemory
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.graph.events import Event, Outcome
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.navigator.dependencies import Link, weight_of
from langgraph_toolmem.navigator.evidence import LinkWeightsSet, NavigatorEvidence, PrunedTool, PutBack
from langgraph_toolmem.navigator.plan.planner import Plan
from langgraph_toolmem.papers.naviagent.evolution import prune_score
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.stores import shared

# --- plans ---


SCHEMAS = [
    h.schema("find_customer", "name"),
    h.schema("search_customers", "name"),
    h.schema("list_orders", "customer_id"),
    h.schema("refund_order", "order_id"),
]


MEANT = [
    h.schema("sign_in", "phone", returns={"type": "object", "properties": {"customer_id": {"type": "string"}}}),
    h.schema("close_contract", "client_id"),
]


def taught(**options: Any) -> ToolMemory:
    memory = ToolMemory.ephemeral(**{"tools": SCHEMAS, **options})
    for i in range(4):
        found = {"customer_id": f"c{i}77"}
        finder = "search_customers" if i == 3 else "find_customer"
        memory.finish(
            h.history(
                h.user(f"refund the order of N{i}"),
                h.call(finder, {"name": f"N{i}"}, found),
                h.call("list_orders", found, [{"order_id": f"o{i}88"}]),
                h.call("refund_order", {"order_id": f"o{i}88"}),
                h.words(),
            ),
            thread_id=str(i),
            success=True,
        )
    return memory


def best(plan: Plan) -> tuple[str, ...]:
    assert plan.chain is not None
    return plan.chain.tools


async def test_a_request_gives_a_complete_chain_and_another_one_after_a_failure() -> None:
    with ToolMemory.ephemeral(tools=SCHEMAS) as memory:  # no tool says what it gives: by names alone
        cold = memory.navigator.plan(target="refund_order").chain
    async with taught() as memory:
        navigator, known = memory.navigator, {"customer_name": "Ann"}
        chain = (found := await navigator.aplan("refund an order", known=known)).chain
        assert found == navigator.plan("refund an order", known=known)
        assert cold is not None
        assert chain is not None
        assert chain.tools == cold.tools == ("find_customer", "list_orders", "refund_order")
        assert chain.complete
        assert chain.score > cold.score
        assert navigator.plan("quantum chromodynamics").chains == ()
        assert best(navigator.plan(target="refund_order", known=["customer_id"])) == ("list_orders", "refund_order")
        for options in ({"avoid": ["find_customer"]}, {"available": {s["name"] for s in SCHEMAS} - {"find_customer"}}):
            plan = navigator.plan("refund an order", **options)
            assert "find_customer" not in plan.tools
            assert best(plan) == ("search_customers", "list_orders", "refund_order")
        again = await navigator.areroute(chain, ["find_customer"], known=known)
        assert (again.way, again.fallback) == ("equivalent", "search_customers")
        assert navigator.reroute(chain, ["refund_order"]).way == "none"
        memory.core.catalogue.adopt(read_tools([*SCHEMAS, h.schema("cancel_parcel", "parcel_id")]))
        assert best(navigator.plan("cancel the parcel"))[-1] == "cancel_parcel"


def test_aliases_of_a_navigator_join_parameters() -> None:
    aliases = {"sign_in.customer_id": "client", "close_contract.client_id": "client"}
    with ToolMemory.ephemeral(tools=MEANT, methods=[Navigator(aliases=aliases)]) as memory:
        assert best(memory.navigator.plan(target="close_contract")) == ("sign_in", "close_contract")


def test_a_memory_without_the_tools_plans_like_the_one_that_had_them(tmp_path: Path) -> None:
    def gives(name: str) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {"type": "string"}}}

    tools = [
        h.schema("lookup", "phone") | {"returns": gives("account_key")},
        h.schema("register", "phone") | {"returns": gives("account_key"), "destructive": True},
        h.schema("close_account", "account_key") | {"tags": ["bank"], "toolkit": "Bank"},
    ]
    with ToolMemory(tmp_path, tools=tools) as memory:
        expected = memory.navigator.plan(target="close_account", known=["phone"])
    assert best(expected) == ("lookup", "close_account")
    for read_only in (False, True):
        with ToolMemory(tmp_path, read_only=read_only) as memory:
            assert memory.navigator.plan(target="close_account", known=["phone"]) == expected


async def test_runs_of_a_user_say_what_the_request_is_about() -> None:
    with ToolMemory.ephemeral(tools=SCHEMAS, namespace=("toolmem", "{user_id}")) as memory:
        for i in range(8):
            run = h.history(h.user(f"zork {i}"), h.call("list_orders", {"customer_id": "c1"}, {"n": i}), h.words())
            memory.finish(run, thread_id=str(i), success=True, user_id="ann")
        memory.entries.recall("zork 99", user_id="ann")  # waits until they are written
        assert memory.navigator.plan("zork 99").chains == memory.navigator.plan("zork 99", user_id="bob").chains == ()
        found = memory.navigator.plan("zork 99", user_id="ann")
        assert best(found)[-1] == "list_orders"
        assert await memory.navigator.aplan("zork 99", user_id="ann") == found


# --- over time ---


DAY = 86_400.0
MAILING = [
    h.schema("look_up", "q"),
    h.schema("directory", "q"),
    h.schema("write_mail", "email body"),
]
"""No tool says what it gives, and no name tells."""


def mail(i: int, finder: str = "look_up", output: Any = None, ok: bool = True) -> list[Any]:
    found = {"person": {"email": f"p{i}@x.org"}} if output is None else output
    return h.history(
        h.user(f"tell N{i}"),
        h.call(finder, {"q": f"N{i}"}, found),
        h.call("write_mail", {"email": f"p{i}@x.org", "body": "Hi."}, "sent" if ok else h.FAILED),
        h.words(),
    )


def learn(
    memory: ToolMemory, runs: range, finder: str = "look_up", *, ok: bool = True, user: str | None = None
) -> None:
    for i in runs:
        memory.finish(mail(i, finder, ok=ok), thread_id=f"{finder}-{i}", success=ok)


def outputs(memory: ToolMemory) -> dict[str, dict[str, list[str]]]:
    with memory.navigator.dependencies() as graph:
        return graph.observed


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=MAILING, now=Clock()) as memory:
        yield memory


def test_decisions_and_fields_of_results_reach_other_workers_and_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "SHARED_LIMITS", replace(shared.SHARED_LIMITS, poll_seconds=0.0))
    monkeypatch.setattr("langgraph_toolmem.navigator.FRESH_SECONDS", -1.0)
    store, clock = InMemoryStore(), Clock()
    with (
        ToolMemory(None, store=store, tools=MAILING) as one,
        ToolMemory(None, store=store, tools=MAILING) as other,
        ToolMemory(tmp_path / "m", tools=MAILING, now=clock) as kept,
    ):
        assert best(other.navigator.plan(target="write_mail")) == ("write_mail",)
        for memory in (one, kept):
            learn(memory, range(8))
            assert "p0@x.org" not in repr(memory.core.graph.to_state()["tools"])
        clock.seconds += 20 * DAY
        learn(kept, range(2), "directory")
        kept.navigator.propagate(dry_run=False)
        assert outputs(other) == {"look_up": {"person.email": ["string"]}}
        assert best(other.navigator.plan(target="write_mail")) == ("look_up", "write_mail")
        for memory in (one, kept):
            memory.navigator.prune(most=3, dry_run=False)
            memory.navigator.restore({"write_mail", "directory"} & {*memory.navigator.pruned()})
        assert (best(other.navigator.plan(target="write_mail")), other.navigator.pruned()) == (
            ("write_mail",),
            ["look_up"],
        )
        with ToolMemory(tmp_path / "m", read_only=True) as beside:  # the journal has it already
            assert beside.navigator.pruned() == ["look_up"]
    with ToolMemory(tmp_path / "m", tools=MAILING, read_only=True) as memory:
        assert outputs(memory)["look_up"] == {"person.email": ["string"]}
        assert memory.navigator.pruned() == ["look_up"]
        assert weight(memory, "look_up") == pytest.approx(0.72)
        assert memory.navigator.prune(most=1)
        for change in (
            lambda: memory.navigator.prune(most=1, dry_run=False),
            lambda: memory.navigator.restore([]),
            lambda: memory.navigator.propagate(dry_run=False),
        ):
            with pytest.raises(StorageError, match="read_only"):
                change()


def test_a_recorder_that_learns_a_call_before_its_answer_is_seen_does_not_miss_it(memory: ToolMemory) -> None:
    messages = mail(0)
    memory.core.lifecycle.executed(
        messages[:2], "call_0", tool="look_up", args={"q": "N0"}, status="ok", owner=Owner("r")
    )
    assert outputs(memory) == {}
    memory.inertia.begin_turn(messages[:3], owner=Owner("r"))
    assert outputs(memory) == {"look_up": {"person.email": ["string"]}}


def test_what_one_users_runs_alone_showed_goes_with_the_user(tmp_path: Path) -> None:
    with ToolMemory(tmp_path / "m", tools=MAILING) as memory:
        memory.finish(mail(0, output={"email": "a@b.c", "mine": 1}), thread_id="0", user_id="ann")
        memory.finish(mail(1, output={"email": "a@b.c", "theirs": 1}), thread_id="1", user_id="ben")
        assert set(outputs(memory)["look_up"]) == {"email", "mine", "theirs"}
        memory.forget(user_id="ann")
        assert set(outputs(memory)["look_up"]) == {"email", "theirs"}
    held = b"".join(file.read_bytes() for file in (tmp_path / "m").iterdir() if file.is_file())
    assert b"mine" not in held
    assert b"theirs" in held


def test_a_field_that_may_be_a_name_waits_for_a_second_user(memory: ToolMemory) -> None:
    scores = {"Ann": 3, "total": 4}
    memory.finish(mail(0, output=scores), thread_id="0", user_id="u1")
    assert outputs(memory) == {"look_up": {"total": ["integer"]}}
    memory.finish(mail(1, output=scores), thread_id="1", user_id="u1")
    assert outputs(memory) == {"look_up": {"total": ["integer"]}}
    memory.finish(mail(2, output=scores), thread_id="2", user_id="u2")
    assert outputs(memory) == {"look_up": {"Ann": ["integer"], "total": ["integer"]}}


def test_what_is_pruned_is_in_no_plan_but_its_own_until_it_goes_well_again(memory: ToolMemory) -> None:
    navigator = memory.navigator
    learn(memory, range(8))
    assert {each.tool for each in navigator.prune(most=9)} == {"look_up", "write_mail"}, "what was never called stays"
    learn(memory, range(1), "directory")
    assert [(each.tool, each.calls) for each in navigator.prune(most=1)] == [("directory", 1)]
    assert navigator.pruned() == []
    assert best(memory.navigator.plan(target="write_mail")) == ("look_up", "write_mail")
    assert [each.tool for each in navigator.prune(most=2, dry_run=False)] == ["directory", "look_up"]
    assert [each.tool for each in navigator.prune(most=9)] == ["write_mail"]
    assert (best(memory.navigator.plan(target="write_mail")), best(memory.navigator.plan(target="look_up"))) == (
        ("write_mail",),
        ("look_up",),
    )
    assert all("look_up" not in chain.tools for chain in navigator.plan("look up").chains)
    navigator.restore(["directory"])
    with pytest.raises(ConfigurationError, match="look_up"):
        navigator.restore(["directory"])
    memory.finish(mail(90, output=h.FAILED), thread_id="90")
    assert navigator.pruned() == ["look_up"]
    memory.finish(mail(91), thread_id="91")
    assert navigator.pruned() == []
    assert best(memory.navigator.plan(target="write_mail")) == ("look_up", "write_mail")


def weight(memory: ToolMemory, source: str, target: str = "write_mail") -> float:
    return memory.navigator.history(at_once=True).weight(source, target)


def changed_habits() -> tuple[ToolMemory, Clock]:
    """Eight runs with `look_up` long ago, two with `directory` today."""
    clock = Clock()
    memory = ToolMemory.ephemeral(tools=MAILING, now=clock)
    learn(memory, range(8))
    clock.seconds += 20 * DAY
    learn(memory, range(2), "directory")
    return memory, clock


def test_weights_follow_recent_use_by_the_formula() -> None:
    memory, _ = changed_habits()
    with memory:
        dry = memory.navigator.propagate(days=7, eta=0.5)
        told = {each.source: each for each in dry}
        assert (told["look_up"].before, told["look_up"].after) == (pytest.approx(0.8), pytest.approx(0.5 * 0.8))
        assert told["directory"].after == pytest.approx(0.5 * 0.2 + 0.5 * 2 / 2)
        assert weight(memory, "look_up") == pytest.approx(0.8)
        link = Link("look_up", "person.email", "write_mail", "email", 1.0)
        assert weight_of(link, memory.navigator.history(), {}) == pytest.approx((8 + 1.2) / 12)
        assert best(memory.navigator.plan(target="write_mail")) == ("look_up", "write_mail")
        assert memory.navigator.propagate(days=7, eta=0.5, dry_run=False) == dry
        assert weight_of(link, memory.navigator.history(), {}) == pytest.approx((4 + 1.2) / 12)
        assert (weight(memory, "look_up"), weight(memory, "directory")) == (pytest.approx(0.4), pytest.approx(0.6))
        assert best(memory.navigator.plan(target="write_mail")) == ("directory", "write_mail")
        learn(memory, range(10, 20), "directory")
        assert (weight(memory, "look_up"), weight(memory, "directory")) == (pytest.approx(0.4), pytest.approx(0.6))
        memory.navigator.propagate(days=7, eta=0.5, dry_run=False)
        assert (weight(memory, "look_up"), weight(memory, "directory")) == (pytest.approx(0.2), pytest.approx(0.8))


def test_the_prune_score_by_hand() -> None:
    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    assert prune_score(3, 1) == pytest.approx(sigmoid(0.25))
    assert prune_score(8, 2) == pytest.approx(0.5 * sigmoid(0.2) + 0.5 * sigmoid(0.1))


def test_recent_is_the_last_days() -> None:
    memory, clock = changed_habits()
    with memory:
        assert memory.navigator.propagate(days=30) == []  # both are recent then, and their shares are what they were
        clock.seconds += 6 * DAY
        assert memory.navigator.propagate(days=7)
        clock.seconds += DAY
        assert memory.navigator.propagate(days=7) == []


def test_old_days_leave_and_nothing_grows_without_end() -> None:
    graph = ToolGraph()
    days = graph.register(NavigatorEvidence).days
    for day in range(100):
        graph.apply(None, [Outcome(f"t{i}", "ok", "a" if i == 1 else None, day * 24) for i in range(3)])
    assert sorted(map(int, days)) == list(range(68, 100))
    graph.apply(None, [Outcome("t", "ok", None, 3 * 24)])  # a late record of another worker
    assert min(map(int, days)) == 68
    graph.apply(None, [Outcome(f"t{i}", "ok", None, 99 * 24) for i in range(20_000)])
    graph.apply(None, [Outcome("t1", "ok", f"s{i}", 99 * 24) for i in range(1000)])
    assert (len(days["99"]), len(days["99"]["t1"].sources)) == (5_000, 64)


def test_the_order_of_records_does_not_matter() -> None:
    decisions: list[Event] = [
        PrunedTool({"a": 1, "b": 0}, 10.0),
        PutBack(["a"], 20.0),
        PrunedTool({"a": 3}, 30.0),
        LinkWeightsSet({"j": {"i": 0.1}}, 10.0),
        LinkWeightsSet({"j": {"i": 0.2}}, 20.0),
        Outcome("b", "ok"),
    ]
    states = []
    for operations in (decisions, decisions[::-1], decisions[3:] + decisions[:3]):
        graph = ToolGraph()
        table = graph.register(NavigatorEvidence)
        for operation in operations:
            graph.apply(None, [operation])
        states.append((table.to_state(), table.left_out()))
    assert states[0] == states[1] == states[2]
    assert states[0][1] == {"a"}


@pytest.mark.parametrize(
    ("output", "args", "given"),
    [
        ("Found customer C-7 (Ann).", {"id": "C-7"}, {}),
        ({"note": "none"}, {"id": "C-7", "urgent": True}, {"id": 1, "urgent": 1}),
        ({"ids": ["C-7", "C-8", "C-9"]}, {"ids": ["C-8", "C-9"]}, {}),
        (h.FAILED, {"ids": ["C-8"]}, {"ids": 1}),
    ],
    ids=["prose", "given", "list", "failed"],
)
def test_a_value_that_stands_in_prose_counts_for_neither(
    memory: ToolMemory, output: Any, args: dict[str, Any], given: dict[str, int]
) -> None:
    messages = h.history(h.user("x"), h.call("look_up", {"q": "Ann"}, output), h.call("open_file", args), h.words())
    memory.finish(messages, thread_id="r")
    found = {
        parameter: count for (tool, parameter), count in memory.navigator.history().given.items() if tool == "open_file"
    }
    assert found == given
