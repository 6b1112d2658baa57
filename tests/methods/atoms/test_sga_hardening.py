"""Atoms under hard conditions: what cannot be stored, what others write or delete meanwhile, what is looked at only."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chromadb.config import Settings
from test_sga_memory import TOOLS, found, order, refund
from test_sga_rows import Kept, atom, support

from langgraph_toolmem import Atoms, ConfigurationError, ToolMemory
from langgraph_toolmem.atoms.situation import sparse
from langgraph_toolmem.atoms.support import MAX_DEPTH
from langgraph_toolmem.stores.vectors import VectorStore

Shared = tuple[Any, tuple[str, ...]]
"""A Chroma that several memories share, and the namespace they have there."""


@pytest.fixture
def shared() -> Shared:
    return chromadb.EphemeralClient(settings=Settings(anonymized_telemetry=False)), (f"toolmem-{uuid.uuid4().hex}",)


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


# --- what is handed over ---

GARBAGE: dict[str, Any] = {
    "NaN": {"value": float("nan")},
    "value above 1": {"value": 7.0},
    "no visits": {"visits": 0},
    "visits below 0": {"visits": -5},
    "visits in words": {"visits": "many"},
    "origin": {"origin": "elsewhere"},
    "bytes": {"arguments": {"a": b"x"}},
    "a set": {"arguments": {"a": {1}}},
    "an object": {"arguments": {"a": object()}},
    "deep": {"arguments": {"a": nested(MAX_DEPTH)}},
    "very deep": {"arguments": {"a": nested(20_000)}},
    "a number for a tool": {"tool": 3},
    "numbers for sources": {"sources": (3,)},
}


@pytest.mark.parametrize("wrong", GARBAGE.values(), ids=GARBAGE.keys())
def test_what_is_no_atom_is_refused_and_nothing_is_kept(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with ToolMemory(tmp_path, methods=[Atoms()]) as memory:
        with pytest.raises(ConfigurationError, match="Atom 2 cannot be kept"):
            memory.atoms.keep([refund(), replace(refund(), **wrong)])
        assert memory.atoms.search("refund the order") == []


ODD: dict[str, Any] = {
    "half a pair in an argument": {"arguments": {"mode": "\ud83d"}},
    "half a pair in a name": {"arguments": {"\ud83d": "x"}},
    "half a pair in the tool": {"tool": "re\ud83dfund"},
    "half a pair in a slot": {"required_slots": ["A\ud83d"]},
    "half a pair in a source": {"sources": ["\ud83d"]},
    "NUL": {"tool": "re\0fund", "goal": "refund\0order", "arguments": {"a\0": "b\0"}},
    "numbers as names": {"arguments": {1: 2}},
    "NaN in an argument": {"arguments": {"a": float("nan")}},
    "many slots": {"required_slots": [f"S{number}" for number in range(10_000)]},
    "long texts": {"goal": "refund " * 50_000, "about": "x" * 100_000, "tool": "t" * 10_000},
    "deep": {"arguments": {"a": nested(MAX_DEPTH - 2)}},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_odd_atoms_are_found_now_and_after_a_restart(tmp_path: Path, odd: dict[str, Any]) -> None:
    with ToolMemory(tmp_path, methods=[Atoms()]) as memory:
        assert memory.atoms.keep([refund(**odd)]) == 1
        (before,) = memory.atoms.search("refund the order")
    with ToolMemory(tmp_path, methods=[Atoms()]) as memory:
        (after,) = memory.atoms.search("refund the order")
        assert (after.atom.id, repr(after.atom)) == (before.atom.id, repr(before.atom))


# --- verdicts, and memories that only look ---


def test_a_memory_that_keeps_no_atoms_judges_those_that_are_there(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=True)]) as memory:
        memory.finish(order(), thread_id="1", success=True, wait=True)
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=False)]) as memory:
        memory.finish(order(18), thread_id="2", success=True)
        assert [hit.atom.visits for hit in found(memory)] == [1, 1]
        memory.finish(order(), thread_id="1", success=False)
        assert found(memory) == []
        memory.finish(order(), thread_id="1", success=True)
        assert [hit.atom.visits for hit in found(memory)] == [1, 1]


# --- what others do meanwhile ---


def test_a_support_that_another_process_wrote_over_comes_back(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, namespace = shared
    how: dict[str, Any] = {"chroma": client, "namespace": namespace}
    with ToolMemory(tmp_path / "one", **how) as first, ToolMemory(tmp_path / "two", **how) as second:
        one, two = Kept(first), Kept(second)
        one.put(support(run="a"))
        mine, theirs = support(run="mine"), support(run="theirs")
        amend = VectorStore.amend

        def between(self: VectorStore, *args: Any, **more: Any) -> None:
            monkeypatch.setattr(VectorStore, "amend", amend)
            two.put(theirs)
            amend(self, *args, **more)

        monkeypatch.setattr(VectorStore, "amend", between)
        one.put(mine)
        assert {each.run for each in one.supports(atom())} == {"a", "mine"}
        one.judge("a", 0.0)
        assert two.put(theirs, support(run="a"), missing=True) == 1
        assert two.put(theirs, support(run="a"), missing=True) == 0
        assert {each.run: each.score for each in one.supports(atom())} == {"a": 0.0, "mine": 1.0, "theirs": 1.0}


# --- words ---


def test_no_word_of_an_atom_stays_in_ram_when_its_user_is_forgotten() -> None:
    with ToolMemory.ephemeral(methods=[Atoms()]) as memory:
        memory.atoms.keep([refund(goal="refund zorblax quickly")], user_id="zeb")
        assert memory.atoms.search("refund zorblax")
        assert sparse.cache_info().currsize
        memory.forget(user_id="zeb")
        assert not sparse.cache_info().currsize
        assert memory.atoms.search("refund zorblax") == []
