"""Every operation, and the tables that apply them: written, read, forgotten; and tables that are not there."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from langgraph_toolmem.base.threads import rlock
from langgraph_toolmem.core import ledger
from langgraph_toolmem.graph import events as core
from langgraph_toolmem.graph.events import Event, Unknown
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia import record as inertia
from langgraph_toolmem.navigator import evidence as navigator
from langgraph_toolmem.sit import evidence as sit
from langgraph_toolmem.stores.events import EventStore
from langgraph_toolmem.stores.snapshot import dumps, loads

TABLES = (inertia.InertiaEvidence, sit.SITEvidence, navigator.NavigatorEvidence, ledger.Ledger, inertia.Changes)
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
        core.Value("b\x1fx", "a", f'"{SECRET}"', SECRET, RUN, ANN),
        core.Request("c1", f"Ask {SECRET}", ANN, f"{SECRET}?"),
        core.RequestCall("c1", 0, "b", f'{{"x": "{SECRET}"}}', "ok", {"x": ["c"]}, 0),
        core.RequestEnd("c1", 1),
        core.Count("turns", 1),
        core.ToolCount("b", "right"),
        core.RunSeen(RUN, 1, ANN),
        core.Verdict(RUN, 1.0, f"for {SECRET}", ANN),
        inertia.ChangeMade("c9", RUN, ANN, 500_000, "t", "b", SECRET, "ok", SECRET),
        inertia.RulesJudged(["A1"], 1),
        inertia.TurnOpened("t1", ["w0"], [["b", SECRET, ["A1"], 0.5]], True, ANN),
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
    modules = (core, inertia, sit, navigator, ledger)
    found = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    found = {each for each in found if ".inertia." not in each.__module__ or each.__module__ == inertia.__name__}
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
    parts = ("counts",)

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
    assert any("reminders.counts has not the shape" in problem for problem in later.problems)
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
