"""States of recorded runs in words: written afterwards, stored many at a time, and never twice."""

from __future__ import annotations

from typing import Any

import pytest
from histories import FAILED, call, history, user, words

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import NamespaceError
from langgraph_toolmem.core.method import EndedRun, Import
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.sit.write import messages_of, write_state
from langgraph_toolmem.testing import ScriptedChatModel


def a_run(number: int = 1) -> Run:
    found = call("look_up", {"name": f"n{number}"}, {"id": f"i{number}"})
    return parse_run(
        history(user(f"Delete n{number}"), found, call("delete", {"id": f"i{number}"}), words()), thread_id=str(number)
    )


class Imports:
    """One user's recorded runs, brought into a memory."""

    def __init__(self, memory: ToolMemory, user_id: str | None = None) -> None:
        self.memory, self.user, self.states = memory, memory.core.users.of(user_id), memory.sit.states

    def learn(self, run: Run, score: float | None = 1.0) -> None:
        self.memory.core.lifecycle.learn(run, self.user, last_turn_too=True, sit={"write": False})
        if score is not None:
            self.memory.core.lifecycle.note(run.digest, score, None, self.user.id)

    def write(self, run: Run, write: Any = None) -> int:
        return self.states.write_states(run, self.user, write=write)

    def unwritten(self, run: Run) -> int:
        return self.states.unwritten(run, self.user)

    def keep(self, *numbers: int, **options: Any) -> int:
        return self.states.keep([a_run(number).digest for number in numbers], self.user, **options)

    @property
    def kept(self) -> list[Any]:
        return list(self.states.rows.all(self.user))

    @property
    def figures(self) -> tuple[int, int]:
        sit = self.memory.report()["sit"]
        return sit["summaries_waiting"], sit["summaries"]


def test_states_wait_until_they_are_stored_in_one_go():
    with ToolMemory.ephemeral() as memory:
        mine = Imports(memory)
        for number in range(3):
            mine.learn(a_run(number))
            assert mine.unwritten(a_run(number)) == 2
            assert mine.write(a_run(number)) == 2
            assert mine.unwritten(a_run(number)) == mine.write(a_run(number)) == 0
        assert (mine.figures, mine.kept) == ((6, 0), [])
        assert mine.keep(0, 1, 2) == 6
        assert mine.keep(0, 1, 2) == 0
        assert sum(each.seen for each in mine.kept) == 6
        assert mine.figures == (0, 6)


@pytest.mark.parametrize(("score", "unlabelled", "stored"), [(0.0, True, 0), (None, False, 0), (None, True, 2)])
def test_only_runs_that_teach_are_stored(score, unlabelled, stored):
    with ToolMemory.ephemeral() as memory:
        mine = Imports(memory)
        mine.learn(a_run(), score)
        mine.write(a_run())
        assert mine.keep(1, unlabelled=unlabelled) == len(mine.kept) == stored
        assert mine.figures == (2 if score is None and not unlabelled else 0, stored)


def test_what_was_written_before_an_error_is_not_written_again():
    told = []

    def write(history: Run) -> str:
        told.append(len(history.events))
        if len(told) == 2:
            raise TimeoutError
        return f"after {len(history.events)}"

    with ToolMemory.ephemeral() as memory:
        mine = Imports(memory)
        mine.learn(a_run())
        with pytest.raises(TimeoutError):
            mine.write(a_run(), write)
        assert mine.write(a_run(), write) == 1
        mine.keep(1)
        assert told == [1, 2, 2]
        assert {(each.source, each.target, each.text, each.made_by) for each in mine.kept} == {
            ("<start>", "look_up", "after 1", "model"),
            ("look_up", "delete", "after 2", "model"),
        }


def test_a_state_that_the_writer_has_no_words_for_is_not_asked_again():
    asked = []
    with ToolMemory.ephemeral() as memory:
        mine = Imports(memory)
        mine.learn(a_run())
        assert mine.write(a_run(), asked.append) == 0
        assert mine.write(a_run(), asked.append) == 0
        assert (len(asked), mine.keep(1)) == (2, 0)


@pytest.mark.parametrize("what", ["forgotten", "judged anew"])
def test_what_happens_while_states_are_stored_counts(what, monkeypatch):
    with ToolMemory.ephemeral(namespace=("toolmem", "{user_id}")) as memory:
        mine = Imports(memory, "ann")
        mine.learn(a_run())
        mine.write(a_run())
        put = mine.states.rows.put

        def slowly(*summaries, **options):
            monkeypatch.undo()
            if what == "forgotten":
                memory.forget(user_id="ann")
            else:
                memory.feedback("1", score=0.0, user_id="ann")
            return put(*summaries, **options)

        monkeypatch.setattr(mine.states.rows, "put", slowly)
        mine.keep(1)
        monkeypatch.undo()
        assert mine.keep(1) == 0
        assert mine.kept == []
        assert mine.figures == (0, 0)


def test_states_are_personal_memory():
    with ToolMemory.ephemeral(namespace=("toolmem", "{user_id}")) as memory:
        with pytest.raises(NamespaceError):
            memory.import_runs([(a_run(), 1.0, None)])
        assert memory.report().turns == 0
        mine = Imports(memory, "ann")
        mine.learn(a_run())
        mine.write(a_run())
        assert Imports(memory, "bob").keep(1) == 0
        assert mine.keep(1) == 2


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
