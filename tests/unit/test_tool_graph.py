"""The evidence graph: operations, tables, records in any order, storage, forgetting; and its view for networkx."""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from histories import FAILED, Learner, Message, call, calls, schema, shortcut, user, words
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.base.errors import GraphFileError, MissingExtraError
from langgraph_toolmem.base.threads import rlock
from langgraph_toolmem.core import ledger, trials
from langgraph_toolmem.graph import events as core
from langgraph_toolmem.graph import shapes, tool_graph
from langgraph_toolmem.graph.events import Event, RunSeen, Unknown
from langgraph_toolmem.graph.tool_graph import OPEN, ContributorTable, CountTable, Handler, Table, ToolGraph
from langgraph_toolmem.graph.view import START, EdgeView, FlowView, GraphView, ToolCounts
from langgraph_toolmem.inertia import record as inertia
from langgraph_toolmem.inertia import review
from langgraph_toolmem.inertia.record import InertiaEvidence, TurnClosed, TurnOpened
from langgraph_toolmem.navigator import evidence as navigator
from langgraph_toolmem.sit import evidence as sit
from langgraph_toolmem.stores.events import EventStore, left_out_in_words
from langgraph_toolmem.stores.snapshot import check, dumps, loads

# --- records ---


TOOLS = [schema("find", "name"), schema("read", "id", "mode"), schema("note", "text")]
NAMES = st.sampled_from(["Ann", "Bo Lee", "#W1234"])


def steps(draw: Any, name: str) -> list[Message]:
    kind = draw(st.sampled_from(["find", "read", "note", "both", "failed", "shortcut"]))
    if kind == "find":
        return call("find", {"name": name}, {"id": f"id-{name}", "all": ["x", "y"]})
    if kind == "read":
        return call("read", {"id": f"id-{name}", "mode": "full"}, "The file of Ann.")
    if kind == "both":
        return calls([("find", {"name": name}, {"id": 1}), ("note", {"text": "hello"}, "ok")])
    if kind == "failed":
        return call("read", {"id": "wrong"}, FAILED)
    return shortcut("find", {"name": name}) if kind == "shortcut" else call("note", {"text": f"for {name}"}, True)


@st.composite
def runs(draw: Any) -> list[list[Message]]:
    made = []
    for _ in range(draw(st.integers(1, 4))):
        parts: list[Message] = []
        for _ in range(draw(st.integers(1, 2))):
            name = draw(NAMES)
            parts.append(user(f"Look up {name} and write it down"))
            for _ in range(draw(st.integers(0, 4))):
                parts += steps(draw, name)
            parts.append(words())
        made.append(parts)
    return made


def learned(made: list[list[Message]]) -> Learner:
    learner = Learner(TOOLS)
    for i, parts in enumerate(made):
        learner.learn(parts, thread_id=f"run{i}", user=f"user{i % 2}")
    return learner


def content(graph: ToolGraph) -> dict[str, Any]:
    """The state without what the order of arrival may change: the order of keys, and a thread's messages, which come in
    records of their own."""
    state = graph.to_state()
    state["tables"].pop("episodes", None)
    seen = state.pop("seen")
    return {**state, "seen": sorted(seen[i : i + 8] for i in range(0, len(seen), 8))}


@given(runs(), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_records_in_any_order_make_the_same_graph(made: list[list[Message]], shuffler: random.Random):
    learner = learned(made)
    records = copy.deepcopy(learner.records)
    shuffler.shuffle(records)
    other = Learner(TOOLS).graph
    for key, record in records:
        assert other.apply(key, record)

    assert content(other) == content(learner.graph)


@given(runs())
@settings(max_examples=20)
def test_a_graph_survives_storage(made: list[list[Message]]):
    graph = learned(made).graph
    again = ToolGraph([InertiaEvidence])
    again.load(loads(dumps(graph.to_state())))

    assert again.to_state() == graph.to_state()
    assert list(again.successors.rows) == list(graph.successors.rows)  # the oldest leave first, so order matters


def test_an_open_turn_counts_until_its_end_is_seen():
    graph = ToolGraph()
    table = graph.register(InertiaEvidence)
    begun = TurnOpened("t1", ["w0\x1f"], [["b", [], ["A1"]]], True, None)
    graph.apply(None, [begun])
    graph.apply(None, [begun])
    assert graph.successors.row("w0\x1f") == {OPEN: [1, 0, 0, 0]}
    assert table.rules.row("A1") == {"": [0, 1]}
    assert graph.counters == {"turns_open": 1, "would_act_open": 1}

    graph.apply(None, [TurnClosed("t1")])
    graph.apply(None, [TurnClosed("t1")])
    assert graph.successors.row("w0\x1f") == {OPEN: [0, 0, 0, 0]}
    assert table.rules.row("A1") == {"": [0, 0]}
    assert graph.counters == {"turns_open": 0, "would_act_open": 0}


def test_open_turns_runs_and_keys_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(InertiaEvidence, "most_turns", 3)
    monkeypatch.setattr(tool_graph, "GRAPH_LIMITS", replace(tool_graph.GRAPH_LIMITS, runs=3, seen=3))
    graph = ToolGraph()
    table = graph.register(InertiaEvidence)
    for i in range(5):
        graph.apply(f"{i:016x}", [TurnOpened(f"t{i}", [], [], False, None), RunSeen(f"r{i}", 1, None)])

    assert list(table.open_turns) == ["t2", "t3", "t4"]
    assert list(graph.runs) == ["r2", "r3", "r4"]
    assert [graph.has_seen(f"{i:016x}") for i in range(5)] == [False, False, True, True, True]


# --- operations ---


TABLES = (
    inertia.InertiaEvidence,
    sit.SITEvidence,
    navigator.NavigatorEvidence,
    ledger.LedgerTable,
    review.Agents,
    review.Changes,
    trials.HoldoutTable,
    trials.TrialTable,
)
ANN, RUN = "a" * 16, "b" * 16
SECRET = "Zebedee"
OPERATIONS: dict[str, Event] = {
    each.kind: each
    for each in (
        core.Successor(["w1\x1fa"], "b", 0),
        core.Outcome("b", "ok", "a", 500_000),
        core.Repeat("b", 1),
        core.Arguments("b", {"x": "string"}, ["x"]),
        core.ToolDescribed("b", {"description": "B.", "parameters": {}}),
        core.Sources("b\x1fx", "a", {"c": 1, f"o|a|$.{SECRET}": 1}, ANN),
        core.Value("b\x1fx", "a", f'"{SECRET}"', RUN, ANN),
        core.Request("c1", f"Ask {SECRET}", ANN, f"{SECRET}?"),
        core.RequestCall("c1", 0, "b", f'{{"x": "{SECRET}"}}', "ok", {"x": ["c"]}, 0),
        core.RequestEnd("c1", 1),
        core.Count("turns", 1),
        core.ToolCount("b", "right"),
        core.RunSeen(RUN, 1, ANN),
        core.Verdict(RUN, 1.0, f"for {SECRET}", ANN),
        review.ChangeMade("c9", RUN, ANN, 500_000, "t", "b", SECRET, "ok", SECRET),
        review.AgentSeen("k1", 500_000, "office", {"shadow": True}, 0),
        review.AgentTurn("k1", 1),
        review.CheckOpened("t1", review.SHADOW_CHECK, "k1", RUN, ANN, 500_000, "t", "b", ["c" * 16], SECRET),
        review.CheckEnded("t2", 1, "an answer in words"),
        review.WrongCall("t3", review.AUDIT, "k1", RUN, ANN, 500_000, "t", "b", SECRET, SECRET),
        inertia.RulesJudged(["A1"], 1),
        inertia.TurnOpened("t1", ["w0"], [["b", [SECRET], ["A1"], 0.5, [], 0, None, {}]], 1, ANN),
        inertia.TurnClosed("t0"),
        sit.TransitionSeen(RUN, "s1", "a", "b"),
        navigator.OutputsSeen("b", {SECRET: ["string"]}, ANN),
        navigator.PrunedTool({"b": 3}, 10.0),
        navigator.PutBack(["c"], 10.0),
        navigator.LinkWeightsSet({"b": {"a": 0.5}}, 10.0),
        navigator.ToolsSearched(1, 0, 0, 10, 20),
        ledger.Shown("sit", RUN, "t1", {"s1": "b", "s2": None}, ANN),
        ledger.Followed("sit", RUN, "t0", ["s0"], 1, ANN),
        ledger.TracksDropped("sit", ["s2"]),
        trials.HintsDrawn("sit", RUN, "b", {"s1": 1, "s2": 0}, 0, 0, ANN),
        trials.DrawnRunWent(RUN, 1, 0, ANN),
        trials.EpisodeSpent(RUN, 1, 2, 300),
        core.UserForgotten("f" * 16),
        core.RunsForgotten(["f" * 16]),
    )
}
every = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=list(OPERATIONS))


def full() -> ToolGraph:
    """A graph to which every operation was applied."""
    graph = ToolGraph(TABLES)
    graph.apply(RUN, copy.deepcopy(list(OPERATIONS.values())))
    return graph


def kinds() -> set[str]:
    """The operations that are defined."""
    modules = (core, inertia, review, sit, navigator, ledger, trials)
    found = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    of_inertia = (inertia.__name__, review.__name__)
    found = {each for each in found if ".inertia." not in each.__module__ or each.__module__ in of_inertia}
    return {each.kind for each in found if issubclass(each, Event) and each not in (Event, Unknown)}


def test_there_is_an_example_of_each() -> None:
    assert OPERATIONS.keys() == kinds()


@every
def test_an_operation_comes_back_from_the_log(operation: Event) -> None:
    written = operation.plain()

    assert written[0] == operation.kind
    assert ToolGraph(TABLES).event_of(json.loads(json.dumps(written))) == operation


def test_forgetting_reaches_every_table() -> None:
    graph = full()
    assert ANN in repr(graph.to_state())
    assert SECRET in repr(graph.to_state())
    graph.forget_user(ANN)

    assert ANN not in repr(graph.to_state())
    assert SECRET not in repr(graph.to_state())


# --- tables that are not there ---


@pytest.mark.parametrize("absent", TABLES, ids=lambda table: table.name)
def test_what_belongs_to_a_table_that_is_not_there_waits_for_it(absent: type[Table]) -> None:
    graph = ToolGraph([table for table in TABLES if table is not absent])
    for operation in OPERATIONS.values():
        graph.apply(None, [graph.event_of(copy.deepcopy(operation.plain()))])
    state = loads(dumps(graph.to_state()))
    later = ToolGraph([table for table in TABLES if table is not absent])
    later.load(state)
    before = ToolGraph(TABLES)
    before.load(loads(dumps(graph.to_state())))
    for registered in (graph, later):
        registered.register(absent)

    assert graph.to_state()["waiting"] == []
    expected = full().to_state()["tables"][absent.name]
    if absent is navigator.NavigatorEvidence:
        expected["days"] = {}  # the uses of tools are the core's to tell
    assert graph.to_state()["tables"][absent.name] == expected
    assert graph.to_state() == later.to_state() == before.to_state()


@pytest.mark.parametrize("absent", TABLES, ids=lambda table: table.name)
def test_a_user_is_forgotten_where_the_table_is_not_there_too(absent: type[Table]) -> None:
    graph = ToolGraph([table for table in TABLES if table is not absent])
    graph.load(loads(dumps(full().to_state())))
    for operation in OPERATIONS.values():
        graph.apply(None, [graph.event_of(operation.plain())])
    graph.forget_user(ANN)

    assert ANN not in repr(graph.to_state())
    assert SECRET not in repr(graph.to_state())
    graph.register(absent)  # what is left has the table's shape


# --- a table of one's own ---


@dataclass(slots=True)
class Reminded(Event):
    """A test's own."""

    kind = "reminded"
    personal = True
    text: str
    user: str | None = None


class Reminders(Table):
    name = "reminders"
    parts: ClassVar = {"counts": shapes.RowsOf(shapes.WHOLE)}

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.counts: dict[str, int] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {Reminded: self._remind}

    def _remind(self, text: str, user: str | None) -> None:
        self.counts[text] = self.counts.get(text, 0) + 1


def opened(folder: Path, *tables: type[Table]) -> EventStore:
    return EventStore(folder, lock=rlock(), tables=tables)


def test_a_table_is_kept_over_processes_that_do_not_know_it(tmp_path: Path) -> None:
    with_it = opened(tmp_path, Reminders)
    with_it.append(None, [Reminded("call Bo")])
    with_it.snapshot()
    with_it.close()
    without = opened(tmp_path)
    without.append(None, [core.Count("turns")])
    without.snapshot()
    without.close()
    late = opened(tmp_path, Reminders)
    late.append(None, [Reminded("call Bo"), core.Count("turns")])
    late.close()
    again = opened(tmp_path)
    assert again.graph.counters == {"turns": 2}
    assert again.register(Reminders).counts == {"call Bo": 2}
    assert again.problems == []
    again.close()


def test_a_table_whose_state_cannot_be_used_is_dropped_and_the_rest_is_kept(tmp_path: Path) -> None:
    first = opened(tmp_path, Reminders)
    first.append(None, [Reminded("call Bo"), core.Count("turns")])
    first.graph.register(Reminders).counts = ["call Bo"]  # type: ignore[assignment]
    first.snapshot()
    first.close()
    later = opened(tmp_path)
    assert later.register(Reminders).counts == {}
    assert later.problems == [left_out_in_words(["reminders.counts"])]
    later.snapshot()
    later.close()
    again = opened(tmp_path, Reminders)
    assert (again.graph.counters, again.register(Reminders).counts, again.problems) == ({"turns": 1}, {}, [])
    again.close()


@dataclass(slots=True)
class Count(Event):
    """Not the core's."""

    kind = "count"
    much: int


class Other(Table):
    name = "reminders"


class Taken(Table):
    name = "taken"

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {Count: print}


def test_two_of_one_name_are_the_developers_error() -> None:
    graph = ToolGraph([Reminders])
    with pytest.raises(ValueError, match="two tables are called 'reminders'"):
        graph.register(Other)
    with pytest.raises(ValueError, match="two events are called 'count'"):
        graph.register(Taken)


# --- bounded counting tables ---


def test_at_the_bound_the_rows_with_the_least_evidence_leave_older_first():
    table = CountTable(10)
    for i in range(11):
        table.add(f"k{i}", "x", amount=5 if i < 2 else 1)
    assert len(table.rows) == 11  # a tenth more than the bound is allowed

    table.add("new", "x")

    assert len(table.rows) == 11
    assert {"k0", "k1", "k3", "new"} <= table.rows.keys()
    assert "k2" not in table.rows


@given(st.integers(1, 40), st.lists(st.integers(0, 200), max_size=300))
@settings(max_examples=40)
def test_a_table_never_outgrows_its_bounds(bound: int, keys: list[int]):
    table = CountTable(bound, max_items=3)
    for key in keys:
        table.add(str(key % 97), str(key % 7))
        assert len(table.rows) <= bound * 1.1 + 1
    assert all(len(row) <= 3 for row in table.rows.values())


@given(st.lists(st.tuples(st.sampled_from("rstuv"), st.none() | st.sampled_from("ABCDE")), max_size=20), st.randoms())
@settings(max_examples=50)
def test_witnesses_commute_and_are_bounded(seen, random):
    first, second = ContributorTable(10), ContributorTable(10)
    for run, whose in seen:
        first.add("k", "v", run, whose)
    random.shuffle(seen)
    for run, whose in seen:
        second.add("k", "v", run, whose)

    assert first.rows == second.rows
    for row in first.rows.values():
        for contributors in row.values():
            assert len(contributors.runs) <= 3
            assert len(contributors.users) <= 3


def test_witness_rows_and_items_are_bounded():
    table = ContributorTable(2, max_items=2)
    table.add("k", "twice", "r1", None)
    table.add("k", "twice", "r2", None)
    table.add("k", "once", "r1", None)
    table.add("k", "new", "r1", None)
    assert list(table.rows["k"]) == ["twice", "new"]

    table.add("l", "v", "r", None)
    table.add("m", "v", "r", None)
    assert list(table.rows) == ["l", "m"]


# --- the view as a networkx graph ---


VIEW = GraphView(
    {"find": ToolCounts(3, 1), "open": ToolCounts(2, 0)},
    [EdgeView(START, "find", 4, 3, 1), EdgeView("find", "open", 2, 2, 0)],
    [FlowView("find", "out", "[].id", "open", "id", 2, 1)],
)


def test_tools_order_and_dataflow_are_edges() -> None:
    networkx = pytest.importorskip("networkx")
    graph = VIEW.to_networkx()
    assert graph.nodes["find"] == {"ok": 3, "failed": 1}
    assert graph.edges["find", "open", "next"] == {"count": 2, "ok": 2, "failed": 0}
    (data,) = [each for *_, key, each in graph.edges(keys=True, data=True) if key != "next"]
    assert (data["parameter"], data["path"], data["hits"]) == ("id", "[].id", 2)
    assert networkx.shortest_path(graph, START, "open") == [START, "find", "open"]


def test_without_networkx_the_line_to_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MissingExtraError, match=r"\[graph\]"):
        VIEW.to_networkx()


# --- large parts ---


@pytest.mark.parametrize("size", [65_535, 65_536, 70_000])
def test_a_part_of_64_kibibytes_and_more_comes_back(size: int) -> None:
    """The pickler puts such a text between two frames; 8,192 records have so many bytes of keys."""
    value = {"bytes": b"x" * size, "list": ["y" * size, 1, "z" * size], "text": "ü" * size, "empty": []}
    written = dumps(value)
    check(written)
    assert loads(written) == value


def test_a_graph_with_many_records_is_written() -> None:
    graph = full()
    for number in range(9_000):
        graph.apply(f"{number:016x}", [])
    written = dumps(graph.to_state())
    check(written)
    again = ToolGraph(TABLES)
    again.load(loads(written))
    assert again.has_seen(f"{8_999:016x}")


# --- values of another type ---


def test_a_snapshot_with_a_value_of_another_type_is_refused() -> None:
    """Each number, text and list of the core and of tables of counts is replaced once."""
    state = full().to_state()
    places = [(name, *place) for name in CHECKED for place in places_in(state[name])]
    assert len(places) > 40
    passed = []
    for place in places:
        changed = copy.deepcopy(state)
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        for strange in (-1e300, float("nan"), b"\0", [[[]]]):
            inner[place[-1]] = strange
            try:
                ToolGraph(TABLES).load(changed)
            except GraphFileError:
                continue
            passed.append((place, strange))
    assert passed == []


CHECKED = ("counters", "by_tool", "runs", "cases", "successors", "sources", "values", "value_contributors", "places")


def places_in(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the paths to all parts of a value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        if inner is not None:
            yield (key,)
        yield from ((key, *rest) for rest in places_in(inner))
