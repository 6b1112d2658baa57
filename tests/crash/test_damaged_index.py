"""Damaged files under Chroma: no process ends, no row is lost, and somebody is told."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import damage
from benchmarks.damage import LEFT, Hashed, items, segments, store
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.cli.health import examine
from langgraph_toolmem.stores import integrity, parts
from langgraph_toolmem.stores.hnsw_files import FILES, IDS, Header, fingerprint, flaw
from langgraph_toolmem.stores.integrity import ASIDE, NOTE
from langgraph_toolmem.stores.vectors import VectorStore

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("damaged index")]

TEXT = "text 7 of me"

WIDTH = damage.NUMBERS + parts.WIDTH
"""Numbers of the vectors as they are kept."""


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("templates")
    damage.templates(where)
    return where


@pytest.fixture
def copied(templates: Path, tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return shutil.copytree(templates / name, tmp_path / name)

    return copy


def of_me(folder: Path) -> Path:
    """The index of "me"."""
    with closing(sqlite3.connect(folder / "chroma" / "chroma.sqlite3")) as database:
        found = database.execute(
            "SELECT segments.id FROM segments JOIN collections ON collections.id = collection "
            "WHERE scope = 'VECTOR' AND name = 'tm.entries.toolmem.me.v2'"
        ).fetchall()
    [[segment]] = found
    return folder / "chroma" / segment


def rows_of(folder: Path, segment: Path) -> set[str]:
    """Ids of the rows of an index."""
    with closing(sqlite3.connect(folder / "chroma" / "chroma.sqlite3")) as database:
        return {
            key
            for (key,) in database.execute(
                "SELECT embedding_id FROM embeddings JOIN segments AS theirs ON theirs.id = segment_id "
                "JOIN segments AS same ON same.collection = theirs.collection WHERE same.id = ?",
                [segment.name],
            )
        }


def found(each: VectorStore) -> list[str]:
    return [hit.id for hit in each.query("entries", TEXT, k=1)]


@pytest.mark.parametrize("seed", [100, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(101, 112))])
def test_a_damaged_file_costs_neither_the_process_nor_a_row(templates: Path, seed: int) -> None:
    outcome = damage.one(templates, seed)
    assert outcome.is_good, outcome
    assert not outcome.wrong, outcome
    assert outcome.said.count("was damaged") == outcome.noticed


@pytest.mark.parametrize("name", damage.FOLDERS)
def test_whole_files_are_left_alone(copied: Callable[[str], Path], name: str) -> None:
    folder = copied(name)
    before = segments(folder)
    assert damage.in_child(damage.look, folder, 1) == "well"
    assert segments(folder) == before
    assert not (folder / ASIDE).exists()
    assert (folder / NOTE).exists()


@pytest.mark.parametrize("name", damage.FOLDERS[:2])
def test_looking_at_files_never_fails(copied: Callable[[str], Path], name: str) -> None:
    folder = copied(name)
    one, other = segments(folder)
    rows = rows_of(folder, one)
    kept = {file: (one / file).read_bytes() for file in FILES}
    known = fingerprint(one)
    assert flaw(one, WIDTH, rows, rows) is None
    seen = 0
    for seed in range(150):
        chance = random.Random(seed)
        file = chance.choice(FILES)
        damage.DAMAGES[chance.choice(list(damage.DAMAGES))](one / file, chance, other)
        seen += flaw(one, WIDTH, rows, rows) is not None
        was = (one / file).read_bytes() if (one / file).exists() else None
        assert (fingerprint(one) == known) == (was == kept[file])
        (one / file).write_bytes(kept[file])
    assert seen > 110


def test_every_number_of_the_header_counts(copied: Callable[[str], Path]) -> None:
    segment = segments(copied("closed"))[0]
    rows, file = rows_of(segment.parents[1], segment), segment / "header.bin"
    whole = file.read_bytes()
    room, last_digits, width = (
        {12, 13},
        {84, 85},
        {92, 93},
    )  # for rows; of a logarithm; of searches
    harmless = set()
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 0x80
        file.write_bytes(data)
        if flaw(segment, WIDTH, rows, rows) is None:
            harmless.add(at)
    assert last_digits | width < harmless <= room | last_digits | width


def test_an_embedder_that_does_not_answer(copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    answer = Hashed.embed_documents

    def silent(self: Hashed, texts: list[str]) -> list[list[float]]:
        asked.append(len(texts))
        if len(asked) > 3:
            raise TimeoutError("no answer")
        return answer(self, texts)

    monkeypatch.setattr(Hashed, "embed_documents", silent)
    folder = copied("closed")
    os.truncate(of_me(folder) / "data_level0.bin", 5000)
    with store(folder, "me") as mine:
        for _ in range(3):
            with pytest.raises(StorageError):
                found(mine)
        assert sum(size > 1 for size in asked) == 3  # two pages, and not for each search
        assert mine.scoped(damage.namespace("you")).count("entries") == LEFT
    monkeypatch.undo()
    with store(folder, "me") as mine:
        assert found(mine) == ["row-7"]
        assert {hit.id: hit.text for hit in mine.get("entries")} == {e.id: e.text for e in items(range(LEFT), "me")}


def test_the_doctor_names_it_and_changes_nothing(copied: Callable[[str], Path]) -> None:
    folder = copied("closed")
    assert not [each for each in examine(folder).problems if "Chroma" in each]
    os.truncate(of_me(folder) / "link_lists.bin", 50)
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    [problem] = [each for each in examine(folder).problems if "Chroma" in each]
    assert "tm.entries.toolmem.me.v2" in problem
    assert before == {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    with store(folder, "me") as mine:
        assert found(mine) == ["row-7"]
    assert not [each for each in examine(folder).problems if "Chroma" in each]
    [note] = [each for each in examine(folder).notes if "Chroma" in each]
    assert note.startswith(f"{ASIDE}/")


def test_what_only_looks_mends_nothing(copied: Callable[[str], Path]) -> None:
    folder = copied("killed")
    (of_me(folder) / "length.bin").unlink()
    namespace = damage.namespace("me")
    with VectorStore(folder, embedder=store(folder, "me").embedder, namespace=namespace, read_only=True) as mine:
        with pytest.raises(StorageError, match="mend"):
            found(mine)
        assert mine.scoped(damage.namespace("you")).count("entries") == LEFT
    assert not (folder / ASIDE).exists()
    with store(folder, "me") as mine:
        assert found(mine) == ["row-7"]


def test_ids_are_read_without_running_anything(copied: Callable[[str], Path], tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "run"),)

    folder = copied("without notes")
    (of_me(folder) / IDS).write_bytes(pickle.dumps({"id_to_label": Hostile(), "label_to_id": {}}, protocol=3))
    with store(folder, "me") as mine:
        assert found(mine) == ["row-7"]
    assert not (tmp_path / "run").exists()


def test_few_are_kept_and_none_of_a_user_who_is_forgotten(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("closed")
    monkeypatch.setattr(integrity, "MOST_ASIDE", 1)
    for _ in range(2):
        for segment in segments(folder):
            (segment / "header.bin").write_bytes(b"")
        with store(folder, "me") as mine:
            assert found(mine) == ["row-7"]
        assert len(integrity.set_aside(folder)) == 1
    with store(folder, "me") as mine:
        mine.delete("entries", ["row-7"])
        mine.scrub("entries")
        assert found(mine) != ["row-7"]
    assert not integrity.set_aside(folder)


@pytest.fixture
def databases(copied: Callable[[str], Path]) -> Path:
    folder = copied("closed")
    return folder / "chroma" / "chroma.sqlite3"


def test_a_database_of_somebody_else_is_refused(databases: Path) -> None:
    databases.unlink()
    with closing(sqlite3.connect(databases)) as database:
        database.execute("CREATE TABLE mine (a)")
    before = databases.read_bytes()
    with store(databases.parents[1], "me") as mine, pytest.raises(StorageError, match="not made by Chroma"):
        found(mine)
    assert databases.read_bytes() == before
    assert [each for each in examine(databases.parents[1]).problems if "not made by Chroma" in each]


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_database_ends_no_process(databases: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(databases.read_bytes())
    start = chance.randrange(len(data) // 2) if seed else 0
    data[start : start + 300_000] = chance.randbytes(300_000)
    databases.write_bytes(data)
    assert damage.in_child(damage.look, databases.parents[1], 1) in ("well", "error")
    problems = "\n".join(examine(databases.parents[1]).problems)
    assert "chroma.sqlite3" in problems or "chroma.corrupt-1" in problems  # set aside by who opened it


def test_a_header_is_a_hundred_bytes(copied: Callable[[str], Path]) -> None:
    header = Header.read(segments(copied("closed"))[0])
    assert header is not None
    assert header.is_sound(WIDTH)
    assert not header.is_sound(WIDTH + 1)
    assert struct.calcsize("<i6Qii3QdQ") == 100
