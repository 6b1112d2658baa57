"""Entries in the memory: what is kept of finished runs, recalled, booked and forgotten, and what they stand up to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import histories as h
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kept import episode
from langchain_core.messages import AIMessage, ToolMessage
from openai_server import OpenAIStubServer, make_chat_model

from langgraph_toolmem import (
    ConfigurationError,
    Entries,
    RecallPolicy,
    StorageError,
    ToolMemory,
)
from langgraph_toolmem.base.errors import NamespaceError
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.entries.entry import Critique, Entry
from langgraph_toolmem.entries.recall import ROWS_READ, RecalledEntry
from langgraph_toolmem.offline.coldstart import Bootstrap, BootstrapBudget, Sandbox
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.stores.indexed import IndexedVectors

PER_USER = ("toolmem", "{user_id}")
ONE = RecallPolicy(max_n=1)


def mail(whom: str, tool: str = "send_mail") -> list[Any]:
    """A run that sends one mail."""
    return h.history(h.user(f"send a mail to {whom}"), h.call(tool, {"to": whom}), h.words())


def asking(whom: str) -> list[Any]:
    return [h.user(f"send a mail to {whom}")]


def queries(entries: Sequence[Entry]) -> set[str]:
    return {entry.query for entry in entries}


def shown(found: Sequence[RecalledEntry]) -> set[str]:
    return {each.entry.query for each in found}


def holding(folder: Path, word: str) -> list[str]:
    return [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and word.encode() in p.read_bytes()]


class Critic:
    """Says the same of every run; can be broken, and can be made to wait."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken = False
        self.go = threading.Event()
        self.go.set()

    def __call__(self, entry: Entry, similar: Sequence[Entry], /) -> Critique:
        self.asked.append(entry.query)
        self.go.wait(20)
        if self.broken:
            raise ValueError("no answer")
        return Critique(went_wrong="The wrong person.", call=1, instead="Look the address up first.")


# --- what is kept ---


def test_a_finished_run_is_recalled_with_its_verdict() -> None:
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        memory.finish(mail("Ann"), thread_id="1", success=True)
        memory.finish(mail("Bob"), thread_id="2", success=False, comment="not Bob")
        memory.finish(mail("Cid"), thread_id="3")
        found = {entry.query.split()[-1]: entry for entry in memory.entries.recall("send a mail to Dora")}
        assert {name: entry.score for name, entry in found.items()} == {"Ann": 1.0, "Bob": 0.0, "Cid": None}
        assert found["Bob"].comment == "not Bob"
        assert [call.tool for call in found["Ann"].calls] == ["send_mail"]
        assert memory.entries.recall("what is the weather like") == []
        assert memory.report()["entries"]["kept"] == 3


# --- recalling ---


def test_a_run_is_not_recalled_for_itself_and_unjudged_ones_come_last() -> None:
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        memory.finish(mail("Ann"), thread_id="1", success=True)
        memory.finish(mail("Bob"), thread_id="2")
        memory.flush()
        assert shown(memory.entries.recollect(mail("Ann")[:1], owner=Owner("1"))) == {"send a mail to Bob"}
        trimmed = memory.entries.recollect(asking("Cid"), owner=Owner("1"))
        assert shown(trimmed) == {"send a mail to Bob"}
        everything = memory.entries.recollect(asking("Cid"), owner=Owner("3"))
        assert [(each.entry.query, each.entry.score) for each in everything] == [
            ("send a mail to Ann", 1.0), ("send a mail to Bob", None),
        ]  # fmt: skip
        assert memory.entries.recollect([h.words("hello")]) == []


def test_what_is_finished_while_chroma_is_away_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        memory.finish(mail("Ann"), thread_id="1", success=True)
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        with monkeypatch.context() as patch:
            for name in ("pages", "ids", "upsert", "amend", "query", "get", "delete"):
                patch.setattr(IndexedVectors, name, _away)
            for ask in (
                lambda: memory.entries.recall("send a mail to Bob"),
                lambda: memory.entries.recollect(asking("Bob")),
            ):
                with pytest.raises(StorageError):
                    ask()
            memory.finish(mail("Bob"), thread_id="2", success=True)  # waits in the queue
        assert shown(memory.entries.recollect(asking("Cid")))


def _away(*_: Any, **__: Any) -> Any:
    raise StorageError("Chroma is away.")


def test_of_entries_that_say_the_same_the_newest_stands_for_all_and_crowds_nobody_out() -> None:
    clock = iter(range(10**6))
    with ToolMemory.ephemeral(methods=[Entries()], now=lambda: float(next(clock))) as memory:
        memory.finish(mail("Bob"), thread_id="other", success=True)
        for number in range(150):
            memory.finish(mail("Ann"), thread_id=f"{number}", success=True)
        memory.finish(mail("Ann"), thread_id="failed", success=False)
        found = memory.entries.recall("send a mail to Ann", policy=RecallPolicy(least=0, max_n=3))
        assert sorted((each.query, each.good) for each in found) == [
            ("send a mail to Ann", False), ("send a mail to Ann", True), ("send a mail to Bob", True),
        ]  # fmt: skip
        assert {each.run for each in found} >= {episode(name, "send a mail to Ann") for name in ("149", "failed")}
        others = max(len(each.others) for each in memory.entries.ranked("send a mail to Ann"))
        assert others == ROWS_READ.same_words - 2, "the newest runs of these words are read, of which one failed"


# --- the record ---


def record(memory: ToolMemory, whom: str) -> tuple[int, int, int]:
    (entry,) = [each for each in memory.entries.recall("send a mail to Zoe") if each.query.endswith(whom)]
    return entry.recalled, entry.helped, entry.hurt


def test_what_became_of_runs_that_were_shown_an_entry_is_booked(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        memory.finish(mail("Ann"), thread_id="1", success=True)
        memory.flush()
        for _ in range(2):  # at each user turn
            recalled = memory.entries.recollect(asking("Bob"), owner=Owner("2"))
            memory.entries.note_shown(asking("Bob"), recalled, owner=Owner("2"))
        memory.entries.recollect(asking("Cid"), owner=Owner("3"))
        assert record(memory, "Ann") == (1, 0, 0)
        memory.finish(mail("Bob", "call_bob"), thread_id="2", success=True)
        assert record(memory, "Ann") == (1, 1, 0)
        memory.feedback("2", score=0.0)
        assert record(memory, "Ann") == (1, 0, 1)
        memory.feedback("2", score=0.0)
        assert record(memory, "Ann") == (1, 0, 1)
        report = memory.report()
        assert [report["entries"][name] for name in ("runs", "helped", "hurt")] == [1, 0, 1]
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:  # the record outlives the process
        assert record(memory, "Ann") == (1, 0, 1)
        memory.feedback("2", score=1.0)
        assert record(memory, "Ann") == (1, 1, 0)
        assert "shown in 1 runs; of these went well 1, badly 0" in str(memory.report())


def test_a_read_only_memory_without_a_folder_refuses_a_verdict() -> None:
    with ToolMemory(None, read_only=True) as memory, pytest.raises(ConfigurationError, match="folder"):
        memory.feedback("1", score=1.0)


# --- whose they are ---


def test_an_entry_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    """Times of 17 digits, as clocks tell them, do not all survive Chroma."""
    asked = ["book a room", "pay the rent", "translate this letter", "water plants", "order paper", "fix my bike"]
    with ToolMemory(tmp_path, now=lambda: 1795248649.5798779) as memory:
        for i, text in enumerate(asked):
            memory.finish(
                h.history(h.user(text), h.call("do", {"what": text}), h.words()), thread_id=str(i), success=True
            )
        assert memory.flush(timeout=30)
        kept = [memory.entries.recall(text, policy=ONE) for text in asked]
    assert [entry.query for [entry] in kept] == asked
    with ToolMemory(tmp_path, read_only=True) as again:
        assert [again.entries.recall(text, policy=ONE) for text in asked] == kept


ASKS = ("send a mail to Ann", "send a mail to Bob", "book a room in Oslo", "yes please", "thanks", "cancel order 7")
TURNS = st.lists(
    st.tuples(st.sampled_from(ASKS), st.lists(st.sampled_from(["mail", "book", "look"]), max_size=2)),
    min_size=1,
    max_size=4,
)


def turn(ask: str, tools: list[str]) -> list[Any]:
    calls = [message for tool in tools for message in h.call(tool, {"what": ask}, f"{tool} done")]
    return h.history(h.user(ask), calls, h.words("Which one?" if ask.startswith("cancel") else "Done."))


def kept(memory: ToolMemory) -> set[Any]:
    assert memory.flush()
    return {
        (each.id, each.query, repr(each.calls), each.score, each.comment, each.user, each.made_by)
        for each in memory.entries.rows.all(memory.core.users.of(None))
    }


@settings(max_examples=15)
@given(TURNS, st.booleans(), st.booleans(), st.sampled_from([None, 0.0, 1.0]))
def test_observed_live_or_imported_the_entries_are_the_same(
    turns: list[tuple[str, list[str]]], watched: bool, each_turn: bool, score: float | None
) -> None:
    parts = [turn(ask, tools) for ask, tools in turns]
    whole = h.history(*parts)
    memories = []
    for way in ("live", "imported"):
        with ToolMemory.ephemeral(methods=[Entries()]) as memory:
            if way == "imported":
                memory.import_runs([(parse_run(whole, thread_id="t"), None, None)])
            else:
                for end in range(1, len(parts) + 1):
                    history = h.history(*parts[:end])
                    if watched:
                        for cut in range(len(h.history(*parts[: end - 1])) + 1, len(history)):
                            memory.observe(history[:cut], thread_id="t")
                    if each_turn or end == len(parts):
                        memory.finish(history, thread_id="t")
            if score is not None:
                memory.feedback("t", score=score, comment="said later")
            memories.append(kept(memory))
    assert memories[0] == memories[1]


def test_a_memory_that_nobody_judges_shows_its_runs_as_unjudged_until_somebody_does() -> None:
    with ToolMemory.ephemeral(methods=[Entries(share_comments=True)]) as memory:
        for name in ("Ann", "Bob", "Cid"):
            memory.finish(turn(f"send a mail to {name}", ["mail"]), thread_id=name)
        memory.flush()
        asked = [h.user("send a mail to Dora")]
        [only] = memory.entries.recollect(asked, owner=Owner("d"))
        memory.entries.note_shown(asked, [only], owner=Owner("d"))
        assert (only.entry.score, len(only.others)) == (None, 2)
        assert [each.recalled for each in memory.entries.recall("send a mail to Dora")] == [1] * 3
        memory.feedback("Bob", score=0.0, comment="too late")
        memory.flush()
        first, second = memory.entries.recollect(asked, owner=Owner("d"))
        assert (first.entry.failed, first.entry.comment) == (True, "too late")
        assert (second.entry.score, len(second.others)) == (None, 1)


# --- whose a verdict is ---


def test_a_verdict_on_another_users_run_of_the_same_id_is_not_taken_over(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, namespace=PER_USER, methods=[Entries()]) as memory:
        memory.finish(mail("Ann"), thread_id="1", success=False, comment="Zebulons word", user_id="zeb")
        memory.finish(mail("Bob"), thread_id="1", user_id="bob")
        (entry,) = memory.entries.recall("send a mail to Cid", user_id="bob")
        assert (entry.score, entry.comment) == (None, "")
        memory.feedback("1", score=1.0, comment="fine", user_id="bob")
        memory.finish(mail("Ann"), thread_id="1", user_id="zeb")
        (entry,) = memory.entries.recall("send a mail to Cid", user_id="zeb")
        assert (entry.score, entry.comment) == (0.0, "Zebulons word")
        with pytest.raises(NamespaceError, match="2 users have a thread '1'"):
            memory.feedback("1", score=0.2, comment="once more")
        memory.feedback("1", score=0.2, comment="once more", user_id="zeb")
        (entry,) = memory.entries.recall("send a mail to Cid", user_id="zeb")
        assert (entry.score, entry.comment) == (0.2, "once more")


def _later(memory: ToolMemory) -> None:
    memory.finish(mail("Ann"), thread_id="1", wait=True)
    memory.feedback("1", score=0.0, comment="Zebulons word", user_id="zeb")


def _before(memory: ToolMemory) -> None:
    memory.observe(mail("Ann")[:-1], thread_id="1")
    memory.feedback("1", score=0.0, comment="Zebulons word", user_id="zeb")
    memory.finish(mail("Ann"), thread_id="1")


def _observed(memory: ToolMemory) -> None:
    memory.observe(mail("Zebulons mother")[:-1], thread_id="1", user_id="zeb")
    memory.finish(mail("Zebulons mother"), thread_id="1")


def _on_anothers(memory: ToolMemory) -> None:
    memory.finish(mail("Ann"), thread_id="1", user_id="ann", wait=True)
    memory.feedback("1", score=0.0, comment="Zebulons word", user_id="zeb")


@pytest.mark.parametrize("said", [_later, _before, _observed, _on_anothers], ids=lambda said: said.__name__)
def test_where_a_user_is_named_only_once_forgetting_finds_all_the_same(tmp_path: Path, said: Any) -> None:
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        said(memory)
        assert memory.flush()
        assert holding(tmp_path, "Zebulon")
        memory.forget(user_id="zeb")
        assert holding(tmp_path, "Zebulon") == []
    assert holding(tmp_path, "Zebulon") == []


def test_what_a_cold_start_is_judging_is_not_kept_when_its_user_is_forgotten(tmp_path: Path) -> None:
    call = {"name": "a", "args": {"of": "Zebulon"}, "id": "call_1", "type": "tool_call"}
    answered = [AIMessage("", tool_calls=[call]), ToolMessage("1", tool_call_id="call_1"), AIMessage("Done.")]

    class Agent:
        def invoke(self, state: dict[str, Any], config: Any) -> Any:
            return {"messages": [*state["messages"], *answered]}

    with ToolMemory(tmp_path, namespace=PER_USER, methods=[Entries()]) as memory:

        def reply(request: dict[str, Any]) -> str:
            if request["response_format"]["json_schema"]["name"] == "Judgement":
                memory.forget(user_id="zeb")
                return json.dumps({"why": "Zebulon.", "done": "yes"})
            return json.dumps({"queries": [{"text": "Please write a letter to Zebulon.", "tools": ["a"]}]})

        with OpenAIStubServer(reply) as server:
            model = make_chat_model(server, max_retries=0)
            sandbox = Sandbox(Agent(), [h.schema("a", "of")])
            options: Any = {"judge": model, "budget": BootstrapBudget(queries=1), "user_id": "zeb"}
            done = Bootstrap(memory, sandbox, model, **options).run()
            assert done.stopped == "a user was forgotten meanwhile"
        assert memory.entries.recall("Please write a letter", user_id="zeb") == []
    assert holding(tmp_path, "Zebulon") == []


# --- work that does not end ---


def test_entries_do_not_wait_for_a_critic_that_hangs() -> None:
    critic = Critic()
    with ToolMemory.ephemeral(methods=[Entries(critic=critic)]) as memory:
        critic.go.clear()
        memory.finish(mail("Ann"), thread_id="1", success=False)
        until(lambda: critic.asked != [])
        memory.finish(mail("Bob"), thread_id="2", success=True)
        until(lambda: "send a mail to Bob" in shown(memory.entries.recollect(asking("Cid"))))
        until(lambda: memory.report().jobs.pending == 1)
        assert "still to be written: 1" in str(memory.report())
        critic.go.set()
        assert memory.flush()
        assert [bool(entry.critique) for entry in memory.entries.recall("send a mail to Cid") if entry.failed] == [True]


# --- parts that fail ---


def test_where_no_thread_is_to_be_had_verdicts_find_their_run_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", none_left)
            memory.finish(mail("Zebulon"), thread_id="1")
            memory.feedback("1", score=0.0, comment="wrong")
        (entry,) = memory.entries.recall("send a mail to Ann")
        assert (entry.score, entry.comment) == (0.0, "wrong")
    assert "background work could not begin" in caplog.text
    assert "Zebulon" not in caplog.text


def until(happened: Callable[[], bool]) -> None:
    """StepBudget, up to the test's time limit."""
    while not happened():
        time.sleep(0.01)
