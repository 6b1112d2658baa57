"""Recorded runs: their states and entries are stored many at a time, and never twice."""

from __future__ import annotations

from typing import Any

import pytest
from histories import call, history, user, words

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.trajectory import parse_run


def messages_of(number: int) -> list[Any]:
    found = call("look_up", {"name": f"n{number}"}, {"id": f"i{number}"})
    return history(user(f"Delete n{number}"), found, call("delete", {"id": f"i{number}"}), words())


def a_run(number: int = 1) -> Run:
    return parse_run(messages_of(number), thread_id=str(number))


def test_states_are_stored_once_and_counted() -> None:
    with ToolMemory.ephemeral() as memory:
        runs = [(a_run(number), None, None) for number in range(3)]
        assert [memory.import_runs(runs)["sit"] for _ in range(2)] == [6, 0]
        memory.finish(messages_of(3), thread_id="3", success=True, wait=True)
        assert memory.import_runs([(a_run(3), None, None)])["sit"] == 0
        assert memory.report()["sit"]["summaries"] == 8
        assert sum(len(each.uses) for each in states_of(memory)) == 8


def test_states_of_runs_that_went_badly_are_not_stored() -> None:
    with ToolMemory.ephemeral() as memory:
        memory.import_runs([(a_run(), 0.0, None)])
        assert states_of(memory) == []


@pytest.mark.parametrize("what", ["forgotten", "judged anew"])
def test_what_happens_while_states_are_stored_counts(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ToolMemory.ephemeral(namespace=("toolmem", "{user_id}")) as memory:
        put = memory.sit.rows.put

        def slowly(*summaries: Any, **options: Any) -> Any:
            monkeypatch.undo()
            if what == "forgotten":
                memory.forget(user_id="ann")
            else:
                memory.feedback("1", score=0.0, user_id="ann")
            return put(*summaries, **options)

        monkeypatch.setattr(memory.sit.rows, "put", slowly)
        memory.import_runs([(a_run(), None, "ann")], {"entries": None, "atoms": None})
        memory.flush()
        found = memory.sit.suggest(messages_of(1)[:3], user_id="ann")
        assert [each for each in found if each.kind == "episodic"] == []
        assert what != "forgotten" or states_of(memory, "ann") == []


def states_of(memory: ToolMemory, user_id: str | None = None) -> list[Any]:
    return list(memory.sit.rows.all(memory.core.users.of(user_id)))
