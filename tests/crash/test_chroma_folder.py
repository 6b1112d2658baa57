"""The folder of an embedded Chroma: several processes, damaged files, forgotten users."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from children import Child
from typer.testing import CliRunner

from langgraph_toolmem import StorageError, ToolMemory
from langgraph_toolmem.cli.app import app
from langgraph_toolmem.stores import vectors
from langgraph_toolmem.stores.chroma_repair import inspect, rebuild
from langgraph_toolmem.stores.vectors import VectorItem, VectorStore
from langgraph_toolmem.text.embedders import resolve_embedder

ME = ("toolmem", "me")
WRITER = """
import pathlib, sys
from langgraph_toolmem.text.embedders import resolve_embedder
from langgraph_toolmem.stores.vectors import VectorItem, VectorStore

store = VectorStore(pathlib.Path(sys.argv[1]), embedder=resolve_embedder(None), namespace=("toolmem", "me"))
for line in sys.stdin:
    what = line.strip()
    if what == "close":
        store.close()
    elif what == "may":
        print(store.may_write(), flush=True)
        continue
    else:
        store.upsert("entries", [VectorItem(what, f"about {what}")])
    print("done", flush=True)
"""


def opened(folder: Path, *, read_only: bool = False) -> VectorStore:
    return VectorStore(folder, embedder=resolve_embedder(None), namespace=ME, read_only=read_only)


def ask(child: Child, what: str) -> str:
    child.say(what)
    return child.line()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Child]:
    child = Child(WRITER, tmp_path)
    yield child
    if child.returncode is None:
        child.kill()


@pytest.mark.parametrize("how", ["close", "kill"])
def test_one_process_writes_and_another_reads_and_takes_over(
    writer: Child, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(writer, "one") == "done"
    with opened(tmp_path) as store, opened(tmp_path) as again:
        assert not store.may_write()
        assert [hit.id for hit in store.query("entries", "about one", k=5)] == ["one"]
        assert ask(writer, "two") == "done"
        with pytest.raises(StorageError, match="another process writes"):
            store.upsert("entries", [VectorItem("three", "about three")])
        monkeypatch.setattr(vectors, "REFRESH_SECONDS", 0.0)
        assert [hit.id for hit in store.query("entries", "about two", k=1)] == ["two"]
        monkeypatch.undo()
        assert ask(writer, "four") == "done"
        if how == "close":
            assert ask(writer, "close") == "done"
        else:
            writer.kill()
        assert store.may_write()
        again.upsert("entries", [VectorItem("three", "about three")])
        assert {hit.id for hit in store.query("entries", "about four", k=9)} == {"one", "two", "three", "four"}
        other = Child(WRITER, tmp_path)
        try:
            assert ask(other, "may") == "False"
            store.close()
            assert ask(other, "may") == "False", "the other connection of this process holds on"
            again.close()
            assert ask(other, "may") == "True"
        finally:
            other.kill()


FORKING = """
import os, pathlib, sys
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.text.embedders import resolve_embedder
from langgraph_toolmem.stores.vectors import VectorItem, VectorStore

store = VectorStore(pathlib.Path(sys.argv[1]), embedder=resolve_embedder(None), namespace=("toolmem", "me"))
store.upsert("entries", [VectorItem("a", "a")])
worker = os.fork()
if not worker:
    assert not store.may_write()
    try:
        store.upsert("entries", [VectorItem("b", "b")])
    except StorageError as error:
        assert "forked" in str(error)
    store.close()
    del store
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]), flush=True)
sys.stdin.readline()
print(store.count("entries"), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_forked_child_neither_writes_nor_releases_the_lock(tmp_path: Path) -> None:
    parent = Child(FORKING, tmp_path)
    try:
        assert parent.line() == "0"
        with opened(tmp_path) as store:
            assert not store.may_write()
        assert ask(parent, "") == "1"
    finally:
        parent.kill()


# --- damage ---


def filled(folder: Path) -> None:
    with opened(folder) as store:
        items = [VectorItem(f"n{n}", f"send order {n}", {"n": n, "of": ["ann"]}, part="p") for n in range(200)]
        store.upsert("entries", items)
        store.upsert("atoms", items[:70])


def index_of(folder: Path, kind: str) -> Path:
    sql = (
        "SELECT s.id FROM segments s JOIN collections c ON s.collection = c.id WHERE s.scope='VECTOR' AND c.name LIKE ?"
    )
    with closing(sqlite3.connect(folder / "chroma" / "chroma.sqlite3")) as database:
        return folder / "chroma" / str(database.execute(sql, [f"%.{kind}.%"]).fetchone()[0])


@pytest.mark.parametrize("damage", ["gone", "random", "header"])
def test_a_damaged_index_is_named_and_rebuilt(tmp_path: Path, damage: str) -> None:
    filled(tmp_path)
    assert inspect(tmp_path) == []
    for file in index_of(tmp_path, "entries").iterdir():
        if damage == "gone":
            file.unlink()
        elif damage == "header" and file.name == "header.bin":  # who opens it dies of SIGSEGV
            data = bytearray(file.read_bytes())
            data[60:68] = b"\x7f" * 8
            file.write_bytes(data)
        elif damage == "random" and file.name != "index_metadata.pickle":
            size = file.stat().st_size
            file.write_bytes(b"\xff\x7f\x13\x37" * (size // 4 + 1))
    [problem] = inspect(tmp_path) or [""]
    assert "tm.entries." in problem
    assert ("ended the process" in problem) == (damage == "header")
    assert "atoms" not in problem
    done = CliRunner().invoke(app, ["doctor", "--memory", str(tmp_path), "--rebuild", "--json"])
    assert "270 texts" in done.output
    assert inspect(tmp_path) == []
    assert (tmp_path / "chroma.corrupt-1").is_dir()
    with opened(tmp_path) as store:
        assert {kind: store.count(kind) for kind in store.kinds()} == {"entries": 200, "atoms": 70}
        [best] = store.query("entries", "send order 7", k=1, part="p")
        assert (best.id, best.item.metadata) == ("n7", {"n": 7, "of": ["ann"], "part": "p"})


def test_rows_of_a_damaged_database_are_salvaged(tmp_path: Path) -> None:
    filled(tmp_path)
    file = tmp_path / "chroma" / "chroma.sqlite3"
    data = bytearray(file.read_bytes())
    at = data.rindex(b"send order 150") // 4096 * 4096
    data[at : at + 16] = b"?" * 16
    file.write_bytes(data)
    assert "chroma.sqlite3 is damaged" in (inspect(tmp_path) or [""])[0]
    assert rebuild(tmp_path, resolve_embedder(None)) > 100
    assert inspect(tmp_path) == []


@pytest.mark.parametrize("again", [False, True], ids=["opened", "rebuilt again"])
def test_a_rebuild_that_was_killed_between_its_renames_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    filled(tmp_path)
    rename = Path.rename

    def killed(self: Path, to: Path) -> Path:
        if self.parent.name == "chroma-new":
            raise KeyboardInterrupt
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        rebuild(tmp_path, resolve_embedder(None))
    monkeypatch.undo()
    assert not (tmp_path / "chroma").exists()
    if again:
        done = CliRunner().invoke(app, ["doctor", "--memory", str(tmp_path), "--rebuild", "--json"])
        assert "270 texts" in done.output
    with opened(tmp_path) as store:
        assert {kind: store.count(kind) for kind in store.kinds()} == {"entries": 200, "atoms": 70}


def test_nothing_is_rebuilt_while_another_process_writes(writer: Child, tmp_path: Path) -> None:
    ask(writer, "one")
    assert inspect(tmp_path) is None
    with pytest.raises(StorageError, match="another process writes"):
        rebuild(tmp_path, resolve_embedder(None))
    assert ask(writer, "two") == "done"


# --- forgetting ---


def test_neither_text_nor_id_of_a_forgotten_user_is_in_any_byte(tmp_path: Path) -> None:
    from lessons import Lesson, LessonRows

    def words() -> set[bytes]:
        found = [each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()]
        return {word for word in (b"zanzibar", b"id-of-ann", b"quixotic") if any(word in each for each in found)}

    with ToolMemory(tmp_path / "m", namespace=("toolmem",), methods=[]) as memory:
        rows, ann, bob = memory.core.rows(LessonRows()), memory.core.users.of("ann"), memory.core.users.of("bob")
        rows.put([Lesson(f"id-of-ann-{n}", f"send {n} to zanzibar", "zanzibar " * 500) for n in range(150)], ann)
        rows.put([Lesson(f"of-bob-{n}", f"send {n} to quixotic", "late") for n in range(150)], bob)
        assert len(words()) == 3
        assert rows.forget(ann) == 150
        assert words() == {b"quixotic"}
        assert rows.count(bob) == 150
        rows.put([Lesson("one-more", "send one to quixotic", "late")], bob)
    assert words() == {b"quixotic"}


@pytest.mark.parametrize("count", [3, 1500])
@pytest.mark.slow
def test_files_hold_nothing_behind_the_last_row(tmp_path: Path, count: int) -> None:
    """They are written with whatever was in memory; past 1,000 rows an index is written with rows in it."""
    items = [VectorItem(str(i), f"text {i} of many, {i * 7919} at {i * 104729}", {}) for i in range(count)]
    with opened(tmp_path) as store:
        store.upsert("x", items)
        store.upsert("another", items[:1])
    for file in (file for name in ("length.bin", "data_level0.bin") for file in tmp_path.rglob(name)):
        rest = file.read_bytes()
        used = len(rest) if count > 1000 else 0
        file.write_bytes(rest[:used] + b"Zebulon!" * ((len(rest) - used) // 8) + bytes((len(rest) - used) % 8))
    with opened(tmp_path) as store:
        before = store.query("x", items[2].text, k=3)
        store.scrub("another")
        assert store.query("x", items[2].text, k=3) == before
        assert store.count("x") == count
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"Zebulon" in file.read_bytes()]
