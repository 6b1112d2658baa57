"""Rows of texts (entries, atoms) of memories that share a LangGraph store.

Rows travel by a Chroma server; that a user is forgotten travels by the store's events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import chromadb
import pytest
from children import Child
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from places import TESTS
from plugs import APART, files, memory_of, run_of, work

from langgraph_toolmem import Atoms, Entries, ToolMemory
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.stores import shared

PATIENCE = 60.0
KINDS = {"atoms", "entries"}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    if request.param == "memory":
        yield InMemoryStore()
        return
    sqlite = pytest.importorskip("langgraph.store.sqlite", reason="langgraph-checkpoint-sqlite is missing")
    with sqlite.SqliteStore.from_conn_string(str(tmp_path / "store.db")) as opened:
        opened.setup()
        yield opened


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "SHARED_LIMITS", replace(shared.SHARED_LIMITS, poll_seconds=0.0))


def opened(path: Path | None, store: BaseStore, **options: Any) -> ToolMemory:
    return memory_of(path, Entries(), Atoms(keep=True), store=store, namespace=APART, now=time.time, **options)


def kinds_of(memory: ToolMemory, user: str) -> set[str]:
    """The kinds of which a user has rows, as methods read them."""
    of = memory.core.users.of(user)
    entries, atoms = list(memory.entries.rows.all(of)), memory.atoms.all(user_id=user)
    return ({"entries"} if entries else set()) | ({"atoms"} if atoms else set())


def settled(memory: ToolMemory, user: str) -> set[str]:
    """The kinds of rows that a user has in the end, after another memory forgot them."""
    end = time.monotonic() + PATIENCE
    while True:
        memory.core.refresh(at_once=True)
        memory.flush(timeout=PATIENCE)
        found = kinds_of(memory, user)
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.05)


def test_rows_of_one_memory_are_found_by_another_and_dead_for_both_once_one_forgets(
    store: BaseStore, tmp_path: Path
) -> None:
    client = chromadb.EphemeralClient()
    name = digest(str(tmp_path))
    with (
        opened(tmp_path / "one", store, chroma=client, graph_namespace=("toolmem", name)) as one,
        opened(tmp_path / "two", store, chroma=client, graph_namespace=("toolmem", name)) as two,
    ):
        work(one, user="ann", word="Quetzal")
        work(one, user="bob", word="Kolibri")
        one.core.acknowledge()
        two.core.refresh(at_once=True)
        assert kinds_of(two, "ann") == kinds_of(two, "bob") == KINDS
        asked = run_of(1, "Quetzal")[0].text
        assert two.entries.recall(asked, user_id="ann")
        assert two.entries.recall(asked, user_id="bob") == one.entries.recall(asked, user_id="bob")
        assert two.forget(user_id="ann") > 0
        assert settled(one, "ann") == settled(two, "ann") == set()
        assert one.entries.recall(asked, user_id="ann") == []
        assert kinds_of(one, "bob") == kinds_of(two, "bob") == KINDS


@pytest.mark.parametrize("there", ["open", "closed"])
def test_rows_in_another_folder_are_dead_once_their_user_is_forgotten_here(
    store: BaseStore, tmp_path: Path, there: str
) -> None:
    other = tmp_path / "two"
    with opened(tmp_path / "one", store) as one:
        two = opened(other, store)
        work(one, user="ann", word="Quetzal")
        work(two, user="ann", word="Quetzal", first=10)
        work(two, user="bob", word="Kolibri", first=20)
        assert kinds_of(one, "ann") == kinds_of(two, "ann") == KINDS
        two.core.acknowledge()
        if there == "closed":
            two.close()
        assert one.forget(user_id="ann") > 0
        if there == "closed":
            two = opened(other, store)
        assert settled(two, "ann") == set()
        assert kinds_of(two, "bob") == KINDS
        assert two.entries.recall(run_of(10, "Quetzal")[0].text, user_id="ann") == []
        two.close()
        assert [name for name, content in files(other).items() if b"Quetzal" in content] == []
    assert b"Quetzal" not in b"".join(files(tmp_path).values())


OTHER = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[3])
from langgraph.store.sqlite import SqliteStore
from langgraph_toolmem import Atoms, Entries
from plugs import APART, memory_of, work

with SqliteStore.from_conn_string(sys.argv[2]) as store:
    memory = memory_of(Path(sys.argv[1]), Entries(), Atoms(keep=True), store=store, namespace=APART)
    with memory:
        work(memory, user="ann", word="Quetzal", first=10)
        memory.core.acknowledge()
        print("worked", flush=True)
        sys.stdin.readline()
        print(memory.forget(user_id="ann") > 0, flush=True)
"""


def test_rows_are_dead_once_a_process_with_a_folder_of_its_own_forgets(tmp_path: Path) -> None:
    sqlite = pytest.importorskip("langgraph.store.sqlite", reason="langgraph-checkpoint-sqlite is missing")
    with sqlite.SqliteStore.from_conn_string(str(tmp_path / "store.db")) as store:
        store.setup()
        child = Child(OTHER, tmp_path / "two", tmp_path / "store.db", TESTS / "contract")
        try:
            with opened(tmp_path / "one", store) as memory:
                work(memory, user="ann", word="Quetzal")
                work(memory, user="bob", word="Kolibri", first=20)
                memory.core.acknowledge()
                assert child.line() == "worked"
                child.say()
                assert child.line() == "True"
                assert settled(memory, "ann") == set()
                assert kinds_of(memory, "bob") == KINDS
            assert child.wait() == 0
        finally:
            child.kill()
    assert [name for name, content in files(tmp_path).items() if b"Quetzal" in content] == []
