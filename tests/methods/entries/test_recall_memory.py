"""Entries in the memory: what is kept of finished runs, recalled, booked, criticised, and forgotten."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import histories as h
import pytest
from kept import episode, ledger

from langgraph_toolmem import (
    ConfigurationError,
    Entries,
    RecallPolicy,
    StorageError,
    ToolMemory,
)
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.entries.critique import Critique
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.entries.recall import MAX_SAME, Recollection
from langgraph_toolmem.entries.render import BUDGET
from langgraph_toolmem.stores.vectors import VectorStore

PER_USER = ("toolmem", "{user_id}")
ONE = RecallPolicy(max_n=1)


def mail(whom: str, tool: str = "send_mail") -> list[Any]:
    """A run that sends one mail."""
    return h.history(h.user(f"send a mail to {whom}"), h.call(tool, {"to": whom}), h.words())


def asking(whom: str) -> list[Any]:
    return [h.user(f"send a mail to {whom}")]


def queries(entries: Sequence[Entry]) -> set[str]:
    return {entry.query for entry in entries}


def shown(found: Recollection) -> set[str]:
    return {each.entry.query for each in found.entries}


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
        assert shown(memory.entries.recollect(mail("Ann")[:1], thread_id="1")) == {"send a mail to Bob"}
        trimmed = memory.entries.recollect(asking("Cid"), thread_id="1")
        assert shown(trimmed) == {"send a mail to Bob"}
        everything = memory.entries.recollect(asking("Cid"), thread_id="3").entries
        assert [(each.entry.query, each.entry.score) for each in everything] == [
            ("send a mail to Ann", 1.0), ("send a mail to Bob", None),
        ]  # fmt: skip
        assert memory.entries.recollect([h.words("hello")]) == Recollection()


def test_chroma_being_away_stops_nobody_and_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        memory.finish(mail("Ann"), thread_id="1", success=True)
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        with monkeypatch.context() as patch:
            for name in ("pages", "ids", "upsert", "amend", "query", "get", "delete"):
                patch.setattr(VectorStore, name, _away)
            assert "could not be read" in memory.entries.recollect(asking("Bob")).missing
            with pytest.raises(StorageError):
                memory.entries.recall("send a mail to Bob")
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
        assert max(len(each.others) for each in memory.entries.ranked("send a mail to Ann")) == MAX_SAME - 1


# --- the record ---


def record(memory: ToolMemory, whom: str) -> tuple[int, int, int]:
    (entry,) = [each for each in memory.entries.recall("send a mail to Zoe") if each.query.endswith(whom)]
    return entry.recalled, entry.helped, entry.hurt


def test_what_became_of_runs_that_were_shown_an_entry_is_booked(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        memory.finish(mail("Ann"), thread_id="1", success=True)
        memory.flush()
        for _ in range(2):  # at each user turn
            memory.entries.recollect(asking("Bob"), thread_id="2", budget=BUDGET)
        memory.entries.recollect(asking("Cid"), thread_id="3")
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


@pytest.mark.parametrize("namespace", [("toolmem",), PER_USER])
def test_a_forgotten_user_is_in_no_file(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    critic, user = Critic(), "z/e\\b"
    with ToolMemory(tmp_path, namespace=namespace, methods=[Entries(critic=critic)]) as memory:
        for i in range(3):
            memory.finish(mail(f"Zebulon {i}"), thread_id=f"z{i}", success=False, comment="Zebulons word", user_id=user)
            memory.finish(mail("Kayla"), thread_id=f"k{i}", success=True, user_id="kay")
        assert memory.flush()
        memory.entries.recollect(asking("Zebulon"), thread_id="open", user_id=user, budget=BUDGET)
        critic.go.clear()
        memory.finish(mail("Zebulon waits"), thread_id="z4", success=False, user_id=user)
        with ToolMemory(tmp_path, namespace=namespace, read_only=True) as other:
            other.feedback("z1", score=0.0, comment="Zebulon again", user_id=user)
        assert holding(tmp_path, "Zebulon")
        critic.go.set()
        assert memory.forget(user_id=user) >= 4
        assert holding(tmp_path, "Zebulon") == []
        assert not any(
            "Zebulon" in query for query in queries(memory.entries.recall("send a mail to Zebulon", user_id=user))
        )
        digests = {user_digest(user), *(digest("run", f"z{i}") for i in range(3))}
        assert not any(run in digests or entry[0] in digests for run, entry in ledger(memory).runs.items())
        assert queries(memory.entries.recall("send a mail to X", user_id="kay")) == {"send a mail to Kayla"}
        memory.finish(mail("Lara"), thread_id="later", success=True, user_id="kay")
    assert holding(tmp_path, "Zebulon") == []
    with ToolMemory(tmp_path, namespace=namespace, methods=[Entries()]) as memory:
        assert queries(memory.entries.recall("send a mail to X", user_id="kay")) == {
            "send a mail to Kayla",
            "send a mail to Lara",
        }


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
