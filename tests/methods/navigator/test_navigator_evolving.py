"""A memory's graph over time: fields of results, what is pruned, weights that follow use, constraints of the user."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import histories as h
import pytest
from desk import Desk, build, request, script, thread
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore
from places import ROOT

from langgraph_toolmem import ConfigurationError, Navigator, StorageError, ToolMemory, default_methods
from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.operations import Operation, Outcome
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.navigator.dependencies.current import follow
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import EdgeScorer, Known, Link, RecordScorer
from langgraph_toolmem.navigator.history import Flow
from langgraph_toolmem.navigator.plan.planner import plan
from langgraph_toolmem.navigator.table import (
    ClustersGrouped,
    LinksShifted,
    NavigatorEvidence,
    OutputsSeen,
    PrunedTool,
    PutBack,
)
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.stores.graph_file import GraphFile
from langgraph_toolmem.testing import ScriptedChatModel

DAY = 86_400.0
SCHEMAS = [
    h.schema("look_up", "q"),
    h.schema("directory", "q"),
    h.schema("write_mail", "email body"),
]
"""No tool says what it gives, and no name tells."""


class Clock:
    """Seconds since 1970, as the test has them."""

    def __init__(self, day: float = 20_000) -> None:
        self.now = day * DAY

    def __call__(self) -> float:
        return self.now


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


def best(memory: ToolMemory, target: str = "write_mail", **options: Any) -> tuple[str, ...]:
    chain = memory.navigator.plan(target=target, **options).chain
    assert chain is not None
    return chain.tools


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=SCHEMAS, now=Clock()) as memory:
        yield memory


# --- what results look like ---------------------------------------------------------------------------------


def test_fields_of_results_are_learned_and_planned_with_at_once(memory: ToolMemory) -> None:
    assert best(memory) == ("write_mail",)
    learn(memory, range(1))
    assert outputs(memory) == {"look_up": {"person.email": ["string"]}}
    step = memory.navigator.plan(target="write_mail").chain
    assert step is not None
    assert step.tools == ("look_up", "write_mail")
    assert "p0@x.org" not in repr(memory.core.graph.to_state()["tools"])


def test_they_come_back_after_a_restart_and_are_seen_by_who_only_reads(tmp_path: Path) -> None:
    with ToolMemory(tmp_path / "m", tools=SCHEMAS) as memory:
        learn(memory, range(2))
        with ToolMemory(tmp_path / "m", read_only=True) as beside:  # the journal has it already
            assert beside.navigator.evidence.outputs_of(["look_up"]) == {"look_up": {"person.email": ["string"]}}
    with ToolMemory(tmp_path / "m", tools=SCHEMAS) as memory:
        assert outputs(memory) == {"look_up": {"person.email": ["string"]}}
        assert best(memory) == ("look_up", "write_mail")


def test_another_worker_of_a_shared_store_plans_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_toolmem.stores.graph_store.POLL_SECONDS", 0.0)
    monkeypatch.setattr("langgraph_toolmem.navigator.dependencies.current.FRESH_SECONDS", -1.0)
    store = InMemoryStore()
    with (
        ToolMemory(None, store=store, tools=SCHEMAS) as one,
        ToolMemory(None, store=store, tools=SCHEMAS) as other,
    ):
        assert best(other) == ("write_mail",)
        learn(one, range(3))
        assert best(other) == ("look_up", "write_mail")
        one.navigator.prune(most=1, keep=["write_mail"], dry_run=False)
        assert (other.navigator.pruned(), best(other)) == (["look_up"], ("write_mail",))
        learn(other, range(3, 6), "directory")
        other.navigator.regroup(
            {"split": [{"name": "to", "members": [{"tool": "write_mail", "input": "email"}]}]}, dry_run=False
        )
        one.navigator.plan(target="write_mail")
        assert [group.name for group in one.navigator.cluster_constraints().groups] == ["to"]


def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    with ToolMemory(tmp_path / "m", tools=SCHEMAS) as memory:
        written: list[Any] = []
        apply = memory.core.apply
        memory.core.apply = lambda key, record: (written.extend(record), apply(key, record))[1]  # type: ignore[func-returns-value, method-assign]
        learn(memory, range(3))
        memory.observe(mail(0), thread_id="look_up-0")
        memory.observe(mail(9, output={"person": {"email": 5}, "hits": 1}), thread_id="look_up-9")
    assert [operation for operation in written if isinstance(operation, OutputsSeen)] == [
        OutputsSeen("look_up", {"person.email": ["string"]}, None),
        OutputsSeen("look_up", {"person.email": ["integer"], "hits": ["integer"]}, None),
    ]
    assert outputs(memory)["look_up"]["person.email"] == ["integer", "string"]


def test_a_recorder_that_learns_a_call_before_its_answer_is_seen_does_not_miss_it(memory: ToolMemory) -> None:
    messages = mail(0)
    memory.core.events.executed(messages[:2], "call_0", tool="look_up", args={"q": "N0"}, status="ok", thread_id="r")
    assert outputs(memory) == {}
    memory.inertia.begin_turn(messages[:3], thread_id="r")
    assert outputs(memory) == {"look_up": {"person.email": ["string"]}}


@pytest.mark.parametrize(
    "output",
    ["p@x.org", 7, {}, [], ["a"], {"error": "no such person"}, h.FAILED],
    ids=["text", "number", "object", "list", "texts", "error", "failed"],
)
def test_what_shows_no_fields_teaches_none(memory: ToolMemory, output: Any) -> None:
    memory.finish(mail(0, output=output), thread_id="r")
    assert outputs(memory) == {}


def test_results_that_are_always_alike_are_looked_at_now_and_then_only(memory: ToolMemory) -> None:
    learn(memory, range(40))
    for i in range(40, 80):
        memory.finish(mail(i, output={"person": {"email": "a@b.c", "phone": "1"}}), thread_id=f"late-{i}")
    assert "person.phone" in outputs(memory)["look_up"]


SEEN = {
    "find_customer": {"customer_id": ["string"]},
    "latest_order": {"order_id": ["string"], "state": ["string"]},
    "add_note": {"saved": ["boolean"]},
}


@pytest.mark.parametrize("way", ["graph", "agent", "async agent"])
async def test_real_agents_teach_them(way: str) -> None:
    tools = Desk().tools
    with ToolMemory.ephemeral(tools=tools) as memory:
        asked = {"messages": [HumanMessage(request("Ann"), id="u")]}
        if way == "graph":
            graph, _ = build(memory, tools)
            graph.invoke(asked, thread("t"))
        else:
            model = ScriptedChatModel(script=script)
            agent: Any = create_agent(model, tools, middleware=tool_memory_middleware(memory))
            await agent.ainvoke(asked, thread("t")) if way == "async agent" else agent.invoke(asked, thread("t"))
        assert outputs(memory) == SEEN
        assert best(memory, "add_note") == ("find_customer", "latest_order", "add_note")
        written = memory.navigator.prune(most=3, dry_run=False)
        assert len(written) == 3
        again = {"messages": [HumanMessage(request("Ben"), id="v")]}  # nothing is kept from the agent
        graph, _ = build(memory, tools)
        assert "Ben is checked" in graph.invoke(again, thread("u"))["messages"][-1].text
        assert memory.navigator.pruned() == []


def test_an_import_learns_them_too(tmp_path: Path) -> None:
    import json

    from typer.testing import CliRunner

    from langgraph_toolmem.cli import app

    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"id": "r", "messages": mail(0)}), encoding="utf-8")
    done = CliRunner().invoke(app, ["import", str(log), "--memory", str(tmp_path / "m")])
    assert done.exit_code == 0, done.stderr
    with ToolMemory(tmp_path / "m", read_only=True) as memory:
        assert "person.email" in outputs(memory)["look_up"]


def test_what_one_users_runs_alone_showed_goes_with_the_user(tmp_path: Path) -> None:
    with ToolMemory(tmp_path / "m", tools=SCHEMAS) as memory:
        memory.finish(mail(0, output={"email": "a@b.c", "mine": 1}), thread_id="0", user_id="ann")
        memory.finish(mail(1, output={"email": "a@b.c", "theirs": 1}), thread_id="1", user_id="ben")
        assert set(outputs(memory)["look_up"]) == {"email", "mine", "theirs"}
        memory.forget(user_id="ann")
        assert set(outputs(memory)["look_up"]) == {"email", "theirs"}
    held = b"".join(file.read_bytes() for file in (tmp_path / "m").iterdir() if file.is_file())
    assert b"mine" not in held
    assert b"theirs" in held


def test_a_shared_log_forgets_them_too() -> None:
    store = InMemoryStore()
    with ToolMemory(None, store=store, tools=SCHEMAS) as memory:
        memory.finish(mail(0, output={"email": "a@b.c", "mine": 1}), thread_id="0", user_id="ann")
        memory.forget(user_id="ann")
    with ToolMemory(None, store=store, tools=SCHEMAS) as again:
        assert outputs(again) == {}
    assert "mine" not in repr(store.search((), limit=1000))


def test_a_field_that_may_be_a_name_waits_for_a_second_user(memory: ToolMemory) -> None:
    scores = {"Ann": 3, "total": 4}
    memory.finish(mail(0, output=scores), thread_id="0", user_id="u1")
    assert outputs(memory) == {"look_up": {"total": ["integer"]}}
    memory.finish(mail(1, output=scores), thread_id="1", user_id="u1")
    assert outputs(memory) == {"look_up": {"total": ["integer"]}}
    memory.finish(mail(2, output=scores), thread_id="2", user_id="u2")
    assert outputs(memory) == {"look_up": {"Ann": ["integer"], "total": ["integer"]}}


def test_a_tool_that_comes_later_or_changes_keeps_what_was_seen_of_it(memory: ToolMemory) -> None:
    memory.navigator.plan(target="write_mail")
    runs = h.history(h.user("x"), h.call("stranger", {"q": "x"}, {"email": "a@b.c"}), h.words())
    memory.finish(runs, thread_id="s")
    memory.navigator.plan(target="write_mail")
    memory.core.catalogue.adopt(read_tools([*SCHEMAS, h.schema("stranger", "q")]))
    assert best(memory) == ("stranger", "write_mail")


def test_a_tool_that_leaves_and_comes_back_gives_what_it_gave() -> None:
    specs, seen = read_tools(SCHEMAS), {"look_up": {"person.email": ["string"]}}
    graph = ToolDependencyGraph(specs.values(), observed=seen)

    def outputs_of(tools: Collection[str]) -> dict[str, dict[str, list[str]]]:
        return {tool: seen[tool] for tool in tools if tool in seen}

    for there in ({name: spec for name, spec in specs.items() if name != "look_up"}, specs):
        follow(graph, there, frozenset(), changed={}, outputs_of=outputs_of)
        assert graph.apis.keys() == there.keys()
    assert [port.path for port in graph.apis["look_up"].outputs] == ["person.email"]
    chain = plan(graph, "write_mail").chain
    assert chain is not None
    assert chain.tools == ("look_up", "write_mail")


def test_which_values_no_output_had_is_known(memory: ToolMemory) -> None:
    learn(memory, range(4))
    given = memory.navigator.history().given
    assert given == {("look_up", "q"): 4, ("write_mail", "body"): 4}


@pytest.mark.parametrize(
    ("output", "args", "given"),
    [
        ("Found customer C-7 (Ann).", {"id": "C-7"}, {}),
        ({"note": "it is C-7, I think"}, {"id": "C-7"}, {}),
        ([{"note": "C-7?"}], {"id": "C-7"}, {}),
        ({"note": "none"}, {"id": "C-7", "urgent": True}, {"id": 1, "urgent": 1}),
        ({"ids": ["C-7", "C-8", "C-9"]}, {"ids": ["C-8", "C-9"]}, {}),
        (h.FAILED, {"ids": ["C-8"]}, {"ids": 1}),
    ],
    ids=["prose", "part", "row", "given", "list", "failed"],
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


# --- pruning ------------------------------------------------------------------------------------------------


def test_pruning_is_a_dry_run_until_it_is_meant(memory: ToolMemory) -> None:
    learn(memory, range(8))
    learn(memory, range(1), "directory")
    first = memory.navigator.prune(most=1)
    assert [(each.tool, each.calls, each.gone) for each in first] == [("directory", 1, False)]
    assert memory.navigator.pruned() == []
    assert [each.gone for each in memory.navigator.prune(most=1, dry_run=False)] == [True]
    assert memory.navigator.pruned() == ["directory"]
    assert "directory" not in [each.tool for each in memory.navigator.prune(most=9)]


def test_what_is_pruned_is_in_no_plan_but_its_own_and_harms_nobody(memory: ToolMemory) -> None:
    learn(memory, range(8))
    assert best(memory) == ("look_up", "write_mail")
    memory.navigator.prune(most=1, keep=["write_mail"], dry_run=False)
    assert memory.navigator.pruned() == ["look_up"]
    assert best(memory) == ("write_mail",)
    assert best(memory, "look_up") == ("look_up",)
    assert all("look_up" not in chain.tools for chain in memory.navigator.plan("look up").chains)
    assert memory.navigator.plan(target=["look_up", "write_mail"]).chains
    chain = memory.navigator.plan(target="look_up").chain
    assert chain is not None
    memory.navigator.reroute(chain, ["look_up"])
    assert memory.inertia.predict([h.user("tell N3")]) is None or memory.inertia.explain([h.user("tell N3")])


def test_counts_are_those_of_this_moment(memory: ToolMemory) -> None:
    learn(memory, range(2))
    memory.navigator.plan(target="write_mail")
    learn(memory, range(2, 8))
    assert {each.calls for each in memory.navigator.prune(most=9)} == {8}
    memory.navigator.plan(target="write_mail")
    learn(memory, range(1), "directory")
    assert [(each.tool, each.calls) for each in memory.navigator.prune(most=1)] == [("directory", 1)]


def test_it_comes_back_when_it_goes_well_again_and_not_when_it_fails(memory: ToolMemory) -> None:
    learn(memory, range(8))
    memory.navigator.prune(most=1, keep=["write_mail"], dry_run=False)
    memory.finish(mail(90, output=h.FAILED), thread_id="90")
    assert memory.navigator.pruned() == ["look_up"]
    memory.finish(mail(91), thread_id="91")
    assert memory.navigator.pruned() == []
    assert best(memory) == ("look_up", "write_mail")


def test_it_can_be_put_back(memory: ToolMemory) -> None:
    learn(memory, range(8))
    memory.navigator.prune(most=2, dry_run=False)
    assert memory.navigator.pruned() == ["look_up", "write_mail"]
    assert memory.navigator.restore("look_up") == ["look_up"]
    assert memory.navigator.pruned() == ["write_mail"]
    assert best(memory) == ("look_up", "write_mail")
    with pytest.raises(ConfigurationError, match="left out are: write_mail"):
        memory.navigator.restore(["look_up"])
    memory.navigator.restore(["write_mail"])
    with pytest.raises(ConfigurationError, match="no tool is left out"):
        memory.navigator.restore("write_mail")


def test_a_new_tool_takes_part_with_no_counts_and_stays(memory: ToolMemory) -> None:
    learn(memory, range(3))
    assert {each.tool for each in memory.navigator.prune(most=9)} == {"look_up", "write_mail"}
    assert {each.tool for each in memory.navigator.prune(most=9, unused=True)} == {"look_up", "write_mail", "directory"}


@pytest.mark.slow
def test_what_was_decided_survives_a_restart_and_a_kill(tmp_path: Path) -> None:
    decide = (
        "import sys, os; sys.path[:0] = ['tests', 'tests/methods/navigator']\n"
        "import test_navigator_evolving as t\n"
        "from langgraph_toolmem import ToolMemory\n"
        "memory = ToolMemory(sys.argv[1], tools=t.SCHEMAS, now=t.Clock())\n"
        "t.learn(memory, range(8)); t.learn(memory, range(4), 'directory')\n"
        "memory.navigator.prune(most=1, keep=['write_mail', 'look_up'], dry_run=False)\n"
        "memory.navigator.regroup({'split': [{'name': 'to', 'members': [{'tool': 'write_mail', 'input': 'email'}]}]},"
        " dry_run=False)\n"
        "os._exit(9)\n"
    )
    folder = str(tmp_path / "m")
    done = subprocess.run([sys.executable, "-c", decide, folder], check=False, cwd=ROOT)
    assert done.returncode == 9
    for _ in range(2):  # from the journal, then from the snapshot
        with ToolMemory(folder, tools=SCHEMAS) as memory:
            assert memory.navigator.pruned() == ["directory"]
            assert [group.name for group in memory.navigator.cluster_constraints().groups] == ["to"]
            with memory.navigator.dependencies() as graph:
                assert graph.clusters.constraints == memory.navigator.cluster_constraints()


def test_who_only_reads_can_look_and_change_nothing(tmp_path: Path) -> None:
    with ToolMemory(tmp_path / "m", tools=SCHEMAS, now=Clock()) as memory:
        learn(memory, range(4))
        learn(memory, range(1), ok=False)
    with ToolMemory(tmp_path / "m", tools=SCHEMAS, read_only=True, now=Clock()) as memory:
        assert memory.navigator.prune(most=1)
        memory.navigator.propagate()
        for change in (
            lambda: memory.navigator.prune(most=1, dry_run=False),
            lambda: memory.navigator.restore([]),
            lambda: memory.navigator.propagate(dry_run=False),
            lambda: memory.navigator.regroup(None, dry_run=False),
        ):
            with pytest.raises(StorageError, match="read_only"):
                change()


# --- weights that follow use --------------------------------------------------------------------------------


def weight(memory: ToolMemory, source: str, target: str = "write_mail") -> float:
    return memory.navigator.history(at_once=True).weight(source, target)


def changed_habits() -> tuple[ToolMemory, Clock]:
    """Eight runs with `look_up` long ago, two with `directory` today."""
    clock = Clock()
    memory = ToolMemory.ephemeral(tools=SCHEMAS, now=clock)
    learn(memory, range(8))
    clock.now += 20 * DAY
    learn(memory, range(2), "directory")
    return memory, clock


def test_weights_follow_recent_use_by_the_formula() -> None:
    memory, _ = changed_habits()
    with memory:
        dry = memory.navigator.propagate(days=7, eta=0.9)
        told = {each.source: each for each in dry}
        assert told["look_up"].before == pytest.approx(0.8)
        assert told["look_up"].after == pytest.approx(0.9 * 0.8 + 0.1 * 0 / 2)
        assert told["directory"].after == pytest.approx(0.9 * 0.2 + 0.1 * 2 / 2)
        assert (told["directory"].successes, told["directory"].uses) == (2, 2)
        assert weight(memory, "look_up") == pytest.approx(0.8)
        assert memory.navigator.propagate(days=7, eta=0.9, dry_run=False) == dry
        assert weight(memory, "look_up") == pytest.approx(0.72)
        assert weight(memory, "directory") == pytest.approx(0.28)
        memory.navigator.propagate(dry_run=False)
        assert weight(memory, "look_up") == pytest.approx(0.9 * 0.72)


def test_what_comes_after_counts_as_before() -> None:
    memory, _ = changed_habits()
    with memory:
        memory.navigator.propagate(days=7, eta=0.5, dry_run=False)
        assert weight(memory, "directory") == pytest.approx(0.6)
        learn(memory, range(10, 20), "directory")
        assert weight(memory, "directory") == pytest.approx((0.6 * 10 + 10) / 20)
        assert weight(memory, "look_up") == pytest.approx(0.4 * 10 / 20)


def test_flows_of_values_along_a_link_count_as_its_weight_says() -> None:
    memory, _ = changed_habits()
    with memory:
        link = Link("look_up", "person.email", "write_mail", "email", 1.0)
        before = RecordScorer(memory.navigator.history()).known(link).weight
        memory.navigator.propagate(days=7, eta=0.5, dry_run=False)
        assert memory.navigator.history().flows[
            Flow("look_up", "person.email", "write_mail", "email")
        ] == pytest.approx(4)
        after = RecordScorer(memory.navigator.history()).known(link).weight
        assert (before, after) == (pytest.approx((8 + 1.2) / 12), pytest.approx((4 + 1.2) / 12))


def test_plans_use_them_at_once() -> None:
    memory, _ = changed_habits()
    with memory:
        assert best(memory) == ("look_up", "write_mail")
        for _ in range(3):
            memory.navigator.propagate(days=7, eta=0.3, dry_run=False)
        assert best(memory) == ("directory", "write_mail")


def test_recent_is_the_last_days() -> None:
    memory, clock = changed_habits()
    with memory:
        assert memory.navigator.propagate(days=30) == []  # both are recent then, and their shares are what they were
        clock.now += 6 * DAY
        assert memory.navigator.propagate(days=7)
        clock.now += DAY
        assert memory.navigator.propagate(days=7) == []


def test_failures_are_uses_that_were_no_success() -> None:
    clock = Clock()
    with ToolMemory.ephemeral(tools=SCHEMAS, now=clock) as memory:
        learn(memory, range(4))
        clock.now += 20 * DAY
        learn(memory, range(10, 14), ok=False)
        (told,) = [each for each in memory.navigator.propagate(eta=0.5) if each.target == "write_mail"]
        assert (told.before, told.after, told.successes, told.uses) == (1.0, 0.5, 0, 4)


def test_weights_survive_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    with ToolMemory(tmp_path / "m", tools=SCHEMAS, now=clock) as memory:
        learn(memory, range(8))
        clock.now += 20 * DAY
        learn(memory, range(2), "directory")
        memory.navigator.propagate(dry_run=False)
        expected = weight(memory, "look_up")
    with ToolMemory(tmp_path / "m", read_only=True) as memory:
        assert weight(memory, "look_up") == pytest.approx(expected) == pytest.approx(0.72)


def test_old_days_leave_and_nothing_grows_without_end() -> None:
    graph = EvidenceGraph()
    days = graph.register(NavigatorEvidence).days
    for day in range(100):
        graph.apply(None, [Outcome(f"t{i}", "ok", "a" if i == 1 else None, day * 24) for i in range(3)])
    assert sorted(map(int, days)) == list(range(68, 100))
    graph.apply(None, [Outcome("t", "ok", None, 3 * 24)])  # a late record of another worker
    assert min(map(int, days)) == 68
    graph.apply(None, [Outcome(f"t{i}", "ok", None, 99 * 24) for i in range(20_000)])
    graph.apply(None, [Outcome("t1", "ok", f"s{i}", 99 * 24) for i in range(1000)])
    assert (len(days["99"]), len(days["99"]["t1"][1])) == (5_000, 64)


def test_the_order_of_records_does_not_matter() -> None:
    decisions: list[Operation] = [
        PrunedTool({"a": 1, "b": 0}, 10.0),
        PutBack(["a"], 20.0),
        PrunedTool({"a": 3}, 30.0),
        LinksShifted({"j": {"i": 1.0}}, 10.0),
        LinksShifted({"j": {"i": 2.0}}, 20.0),
        ClustersGrouped({"join": []}, 5.0),
        Outcome("b", "ok"),
    ]
    states = []
    for operations in (decisions, decisions[::-1], decisions[3:] + decisions[:3]):
        graph = EvidenceGraph()
        table = graph.register(NavigatorEvidence)
        for operation in operations:
            graph.apply(None, [operation])
        states.append((table.to_state(), table.left_out()))
    assert states[0] == states[1] == states[2]
    assert states[0][1] == {"a"}


# --- what a user says is one --------------------------------------------------------------------------------

TOGETHER = {
    "join": [
        {
            "name": "address",
            "members": [{"tool": "write_mail", "input": "email"}, {"tool": "nobody", "output": "x"}],
        }
    ]
}


def test_a_users_file_joins_and_splits_and_says_what_it_does(memory: ToolMemory, tmp_path: Path) -> None:
    learn(memory, range(2))
    file = tmp_path / "constraints.yaml"
    file.write_text("split:\n- {name: recipient, members: [{tool: write_mail, input: email}]}\n", encoding="utf-8")
    dry = memory.navigator.regroup(file)
    assert not dry.done
    assert dry.unmatched == ()
    assert [text.splitlines()[0] for text in dry.before] == ["email: 1 inputs of 1 tools, 1 outputs of 1 tools"]
    assert [text.splitlines()[0] for text in dry.after] == ["recipient: 1 inputs of 1 tools, 0 outputs of 0 tools"]
    assert memory.navigator.cluster_constraints().groups == ()
    assert memory.navigator.regroup(file, dry_run=False).done
    file.unlink()
    assert memory.navigator.cluster_constraints().groups[0].name == "recipient"
    assert memory.navigator.regroup(TOGETHER).unmatched == ("nobody output 'x'",)
    back = memory.navigator.regroup(None, dry_run=False)
    assert (back.before, back.after) == (dry.after, dry.before)
    assert memory.navigator.cluster_constraints().groups == ()


def test_constraints_hold_for_plans_at_once_and_for_tools_that_come_later(memory: ToolMemory) -> None:
    members = [{"tool": "write_mail", "input": "body"}, {"tool": "draft*", "output": "text"}]
    memory.navigator.regroup({"join": [{"name": "letter", "members": members}]}, dry_run=False)
    drafts = h.schema("drafts", returns={"type": "object", "properties": {"text": {"type": "string"}}})
    memory.core.catalogue.adopt(read_tools([*SCHEMAS, drafts]))
    with memory.navigator.dependencies() as graph:
        pass
    (body,) = [port for port in graph.apis["write_mail"].inputs if port.path == "body"]
    assert graph.cluster_of(body).label == "letter"
    assert [link.producer for link in graph.links_into(body)] == ["drafts"]


def test_constraints_that_cannot_be_read_are_told_and_stored_ones_are_left_aside(
    memory: ToolMemory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigurationError, match="needs a name"):
        memory.navigator.regroup({"join": [{}]})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        memory.navigator.regroup(tmp_path / "nowhere.yaml")
    memory.core.apply(None, [ClustersGrouped({"join": 7}, memory.core.now())])
    assert memory.navigator.plan(target="write_mail").chains
    assert "cluster constraints in the memory cannot be used" in caplog.text


# --- the file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        {"tools": {"a": {"given": {"q": "many"}}}},
        *(
            {"tables": {"navigator": part}}
            for part in (
                {"outputs": {"a": 5}},
                {"outputs": {"a": {"x": ["string", ""]}}},
                {"days": {"today": {}}},
                {"days": {"3": {"a": [1]}}},
                {"left": {"a": 3}},
                {"shifts": [0, {"j": {"i": "x"}}]},
            )
        ),
    ],
    ids=["given", "outputs", "row", "day", "use", "left", "shift"],
)
def test_a_snapshot_of_another_shape_is_set_aside(tmp_path: Path, broken: dict[str, Any]) -> None:
    fine = EvidenceGraph([NavigatorEvidence]).to_state()
    tables = {name: fine["tables"][name] | part for name, part in broken.get("tables", {}).items()}
    with GraphFile(tmp_path) as file:
        file.load()
        file.compact(fine | broken | {"tables": tables})
    with ToolMemory(tmp_path, tools=SCHEMAS) as memory:
        assert any("cannot be used" in problem for problem in memory.report().problems)
        learn(memory, range(1))
        assert memory.navigator.plan(target="write_mail").chains


# --- a scorer of one's own ----------------------------------------------------------------------------------


class OnlyDirectory(EdgeScorer):
    """Believes in one tool."""

    def __init__(self) -> None:
        self.asked: list[Link] = []

    def weigh(self, links: Sequence[Link], known: Sequence[Known]) -> list[float | None]:
        self.asked += links
        return [0.9 if link.producer == "directory" else 0.1 for link in links]


def test_a_scorer_of_the_memory_or_of_one_plan_weighs_the_links(memory: ToolMemory) -> None:
    learn(memory, range(6))
    learn(memory, range(1), "directory")
    assert best(memory) == ("look_up", "write_mail")
    scorer = OnlyDirectory()
    assert best(memory, scorer=scorer) == ("directory", "write_mail")
    assert {link.consumer for link in scorer.asked} == {"write_mail"}
    assert best(memory) == ("look_up", "write_mail")
    mine = OnlyDirectory()
    with ToolMemory.ephemeral(tools=SCHEMAS, methods=default_methods(Navigator(scorer=mine))) as other:
        learn(other, range(6))
        learn(other, range(1), "directory")
        assert best(other) == ("directory", "write_mail")
        chain = other.navigator.plan(target="write_mail").chain
        assert chain is not None
        before = len(mine.asked)
        assert other.navigator.reroute(chain, ["directory"]).chain is not None
        assert len(mine.asked) > before


# --- async --------------------------------------------------------------------------------------------------


async def test_the_async_twins_answer_the_same() -> None:
    memory, _ = changed_habits()
    async with memory:
        assert await memory.navigator.aprune(most=1) == memory.navigator.prune(most=1)
        assert await memory.navigator.apropagate() == memory.navigator.propagate()
        assert await memory.navigator.aregroup(TOGETHER) == memory.navigator.regroup(TOGETHER)
        (gone,) = await memory.navigator.aprune(most=1, dry_run=False)
        assert await memory.navigator.apruned() == [gone.tool]
        assert await memory.navigator.arestore(gone.tool) == [gone.tool]
        assert await memory.navigator.acluster_constraints() == memory.navigator.cluster_constraints()
        plan = await memory.navigator.aplan(target="write_mail", scorer=OnlyDirectory())
        assert plan == memory.navigator.plan(target="write_mail", scorer=OnlyDirectory())
