"""States of recorded runs in words: written afterwards, stored many at a time, and never twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from histories import FAILED, call, history, user, words

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import NamespaceError
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.sit.write import messages_of, write_state
from langgraph_toolmem.testing import ScriptedChatModel


def a_run(number: int = 1) -> Run:
    found = call("look_up", {"name": f"n{number}"}, {"id": f"i{number}"})
    return parse_run(
        history(user(f"Delete n{number}"), found, call("delete", {"id": f"i{number}"}), words()), thread_id=str(number)
    )


def kept(memory: ToolMemory, who: str | None = None) -> list[Any]:
    return memory._summary_store(who).summaries()


def test_states_wait_until_they_are_stored_in_one_go():
    with ToolMemory.ephemeral() as memory:
        for number in range(3):
            memory.learn_run(a_run(number), success=True)
            assert memory.unwritten(a_run(number)) == 2
            assert memory.learn_states(a_run(number)) == 2
            assert memory.unwritten(a_run(number)) == memory.learn_states(a_run(number)) == 0
        assert (memory.report().summaries_waiting, kept(memory)) == (6, [])
        assert memory.keep_states("012") == 6
        assert memory.keep_states("012") == 0
        assert sum(each.seen for each in kept(memory)) == 6
        assert (memory.report().summaries_waiting, memory.report().summaries) == (0, 6)


@pytest.mark.parametrize(("success", "unlabelled", "stored"), [(False, True, 0), (None, False, 0), (None, True, 2)])
def test_only_runs_that_teach_are_stored(success, unlabelled, stored):
    with ToolMemory.ephemeral() as memory:
        memory.learn_run(a_run(), success=success)
        memory.learn_states(a_run())
        assert memory.keep_states(["1"], unlabelled=unlabelled) == len(kept(memory)) == stored
        assert memory.report().summaries_waiting == (2 if success is None and not unlabelled else 0)


def test_what_was_written_before_an_error_is_not_written_again():
    told = []

    def write(history: Run) -> str:
        told.append(len(history.events))
        if len(told) == 2:
            raise TimeoutError
        return f"after {len(history.events)}"

    with ToolMemory.ephemeral() as memory:
        memory.learn_run(a_run(), success=True)
        with pytest.raises(TimeoutError):
            memory.learn_states(a_run(), write=write)
        assert memory.learn_states(a_run(), write=write) == 1
        memory.keep_states(["1"])
        assert told == [1, 2, 2]
        assert {(each.source, each.target, each.text, each.made_by) for each in kept(memory)} == {
            ("<start>", "look_up", "after 1", "model"),
            ("look_up", "delete", "after 2", "model"),
        }


def test_a_state_that_the_writer_has_no_words_for_is_not_asked_again():
    asked = []
    with ToolMemory.ephemeral() as memory:
        memory.learn_run(a_run(), success=True)
        assert memory.learn_states(a_run(), write=asked.append) == 0
        assert memory.learn_states(a_run(), write=asked.append) == 0
        assert (len(asked), memory.keep_states(["1"])) == (2, 0)


@pytest.mark.parametrize("what", ["forgotten", "judged anew"])
def test_what_happens_while_states_are_stored_counts(what, monkeypatch):
    with ToolMemory.ephemeral(namespace=("toolmem", "{user_id}")) as memory:
        memory.learn_run(a_run(), user_id="ann", success=True)
        memory.learn_states(a_run(), user_id="ann")
        store = memory._summary_store("ann")
        add_many = store.add_many

        def slowly(summaries):
            if what == "forgotten":
                memory.forget(user_id="ann")
            else:
                memory.feedback("1", score=0.0, user_id="ann")
            return add_many(summaries)

        monkeypatch.setattr(store, "add_many", slowly)
        memory.keep_states(["1"], user_id="ann")
        monkeypatch.undo()
        assert memory.keep_states(["1"], user_id="ann") == 0
        assert kept(memory, "ann") == []
        assert memory.report().summaries_waiting == 0


def test_states_are_personal_memory():
    with ToolMemory.ephemeral(namespace=("toolmem", "{user_id}")) as memory:
        memory.learn_run(a_run(), user_id="ann", success=True)
        for refused in (
            partial(memory.learn_states, a_run()),
            partial(memory.unwritten, a_run()),
            partial(memory.keep_states, ["1"]),
        ):
            with pytest.raises(NamespaceError):
                refused()
        memory.learn_states(a_run(), user_id="ann")
        assert memory.keep_states(["1"], user_id="bob") == 0
        assert memory.keep_states(["1"], user_id="ann") == 2


def test_a_model_reads_the_history_up_to_the_state_and_no_further():
    run = parse_run(
        history(user("Delete n1"), call("look_up", {"name": "n1"}, FAILED), call("delete", {"id": "i1"}), words())
    )
    model = ScriptedChatModel(script=["It could not be found."])
    before = Run(run.events[:2], run.thread_id, run.truncated, None, "")

    assert write_state(model, before) == "It could not be found."
    asked = model.calls[0].messages[-1].text
    assert "Human: Delete n1" in asked
    assert "'name': 'look_up'" in asked
    assert "Tool: failed: " in asked
    assert "'delete'" not in asked
    assert [message.type for message in messages_of(run)] == ["human", "ai", "tool", "ai", "tool", "ai"]


def test_runs_are_kept_for_recall_once_whatever_is_imported_again():
    with ToolMemory.ephemeral(namespace=("toolmem", "{user_id}")) as memory:
        runs = [(a_run(1), 1.0, None), (a_run(2), 0.0, "the wrong one"), (a_run(3), None, None)]
        for _ in range(2):
            assert memory.keep_entries(runs, user_id="ann") == 3
        entries = memory.entries.library.store(("toolmem", "ann")).all()
        assert {(each.query, each.score, each.comment, each.made_by) for each in entries} == {
            ("Delete n1", 1.0, "", "import"),
            ("Delete n2", 0.0, "the wrong one", "import"),
            ("Delete n3", None, "", "import"),
        }
        assert memory.report().entries == 3
        assert memory.entries.recall("Delete n2", user_id="bob") == []
        with pytest.raises(NamespaceError):
            memory.keep_entries(runs)
