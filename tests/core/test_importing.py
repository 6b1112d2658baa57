"""Recorded runs: their states and entries are stored many at a time, and never twice."""

from __future__ import annotations

from typing import Any

from histories import call, history, user, words

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.core.method import EndedRun, Import
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.trajectory import parse_run


def messages_of(number: int) -> list[Any]:
    found = call("look_up", {"name": f"n{number}"}, {"id": f"i{number}"})
    return history(user(f"Delete n{number}"), found, call("delete", {"id": f"i{number}"}), words())


def a_run(number: int = 1) -> Run:
    return parse_run(messages_of(number), thread_id=str(number))


def entries_of(memory: ToolMemory) -> list[Entry]:
    return list(memory.entries.rows.all(memory.core.users.of("ann")))


def test_runs_are_kept_for_recall_once_whatever_is_imported_again():
    with ToolMemory.ephemeral(namespace=("toolmem", "{user_id}")) as memory:
        runs = [(a_run(1), 1.0, "ann"), (a_run(2), 0.0, "ann"), (a_run(3), None, "ann")]
        for _ in range(2):
            assert memory.import_runs(runs)["entries"] == 3
        entries = entries_of(memory)
        assert {(each.query, each.score, each.made_by) for each in entries} == {
            ("Delete n1", 1.0, "run"),
            ("Delete n2", 0.0, "run"),
            ("Delete n3", None, "run"),
        }
        assert memory.report()["entries"]["kept"] == 3
        assert memory.entries.recall("Delete n2", user_id="bob") == []
        said = EndedRun(a_run(2), memory.core.users.of("ann"), 0.0, "the wrong one")
        assert memory.entries.imported(Import([said])) == 1
        assert [each.comment for each in entries_of(memory) if each.failed] == ["the wrong one"]
