"""The contract of rows: any kind, on disk and in RAM, per user and shared, reopened, only looked at."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from kept import give_records
from letters import Letters
from plugs import APART, NOW, files, memory_of
from servers import chroma_clients, chroma_run

from langgraph_toolmem import InputError, StorageError
from langgraph_toolmem.core.ledger import ItemStats
from langgraph_toolmem.core.rows import Learned
from langgraph_toolmem.extend import Hit, RowKind, SearchHit, VectorItem
from langgraph_toolmem.stores import chroma
from langgraph_toolmem.stores.indexed import IndexedVectors


class Place(NamedTuple):
    name: str
    what: str
    visits: int


class PlaceRows(RowKind[Place]):
    """Another kind, with a number and without words of its own in the id."""

    name: ClassVar[str] = "place"

    def row(self, item: Place) -> VectorItem:
        return VectorItem(item.name, item.what, {"visits": item.visits})

    def item(self, row: Hit) -> Place:
        return Place(row.id, row.text, row.metadata["visits"])


on_disk_and_not = pytest.mark.parametrize("on_disk", [True, False], ids=["disk", "ephemeral"])
ORDER, MAIL = "send the order to the warehouse", "answer the mail of the press"


@on_disk_and_not
def test_what_is_put_is_got_found_counted_and_removed(on_disk: bool, tmp_path: Path) -> None:
    order, mail, again = Place("a", ORDER, 1), Place("b", MAIL, 2), Place("a", ORDER, 3)
    with memory_of(tmp_path / "memory" if on_disk else None) as memory:
        rows, user = memory.core.rows(PlaceRows()), memory.core.users.of(None)
        assert rows.put([order, mail], user) == [order, mail]
        assert (rows.count(user), rows.get(["b", "nobody", "a"], user)) == (2, [mail, order])
        found = rows.near("the order to the warehouse", user)
        assert [(each.item, each.id) for each in found] == [(order, "a"), (mail, "b")]
        assert 1 >= found[0].similarity > found[1].similarity >= -1
        assert isinstance(found[0], SearchHit)
        assert len(rows.near(ORDER, user, k=1)) == 1
        rows.put([again], user)  # in the place of the one with its id
        assert (rows.count(user), rows.get(["a"], user)) == (2, [again])
        rows.put([Place("c", MAIL, 4), Place("c", MAIL, 5)], user)
        assert rows.get(["c"], user) == [Place("c", MAIL, 5)]
        rows.remove(["a", "nobody"], user)
        assert (rows.count(user), rows.get(["a", "b"], user)) == (2, [mail])


@on_disk_and_not
@pytest.mark.parametrize("namespace", [APART, ("toolmem",)], ids=["apart", "shared"])
@pytest.mark.slow
def test_a_user_is_forgotten_and_the_others_are_not(on_disk: bool, namespace: tuple[str, ...], tmp_path: Path) -> None:
    of_ann, of_bob = Place("a", f"{ORDER} zanzibar", 1), Place("b", f"{ORDER} quixotic", 2)
    with memory_of(tmp_path / "memory" if on_disk else None, namespace=namespace) as memory:
        rows, ann, bob = memory.core.rows(PlaceRows()), memory.core.users.of("ann"), memory.core.users.of("bob")
        rows.put([of_ann], ann)
        rows.put([of_bob], bob)
        seen = {each.id for each in rows.near(ORDER, bob)}
        assert seen == ({"b"} if namespace == APART else {"a", "b"})
        assert rows.count(bob) == len(rows.get(["a", "b"], bob)) == len(seen)
        assert (rows.forget(ann), rows.forget(ann)) == (1, 0)
        assert (rows.get(["a"], ann), rows.get(["a", "b"], bob), rows.count(bob)) == ([], [of_bob], 1)
    if on_disk:
        left = [word for word in (b"zanzibar", b"quixotic") if any(word in each for each in files(tmp_path).values())]
        assert left == [b"quixotic"]


def test_looking_makes_nothing(tmp_path: Path) -> None:
    with memory_of(tmp_path / "memory") as memory:
        rows, user = memory.core.rows(PlaceRows()), memory.core.users.of("ann")
        found = (rows.near(ORDER, user), rows.count(user), rows.get(["a"], user), rows.forget(user))
        assert found == ([], 0, [], 0)
        rows.remove(["a"], user)
        assert not any(name.startswith("chroma") for name in files(tmp_path / "memory"))
        rows.put([Place("a", ORDER, 1)], user)
        assert any(name.startswith("chroma") for name in files(tmp_path / "memory"))


# --- kinds that join, part and retire ---


@dataclass(frozen=True)
class Note:
    """What several people said in a room; `shown` is its record."""

    id: str
    text: str
    room: str = "hall"
    by: tuple[str, ...] = ()
    shown: int = 0


class NoteRows(RowKind[Note]):
    """Notes are found by room, joined by who said them, and retired when shown three times."""

    name: ClassVar[str] = "note"
    most = 6

    def row(self, item: Note) -> VectorItem:
        return VectorItem(item.id, item.text, {"room": item.room, "by": list(item.by)}, item.room, item.by)

    def item(self, row: Hit) -> Note:
        return Note(row.id, row.text, row.metadata["room"], tuple(row.metadata["by"]))

    def joined(self, old: Note, new: Note) -> Note | None:
        return None if "nobody" in new.by else replace(new, by=tuple(sorted({*old.by, *new.by})))

    def without(self, item: Note, owner: str) -> Note | None:
        left = tuple(each for each in item.by if each != owner)
        return replace(item, by=left) if left else None

    def tracked(self, item: Note, track: ItemStats, others: ItemStats) -> Note:
        return replace(item, shown=track.shown)

    def retired(self, item: Note) -> bool:
        return item.shown >= 3

    def worth(self, item: Note) -> str:
        return item.id


def test_items_of_one_id_join_and_a_refused_one_leaves_the_old() -> None:
    with memory_of(None) as memory:
        rows, user = memory.core.rows(NoteRows()), memory.core.users.of(None)
        rows.put([Note("a", ORDER, by=("ann",))], user)
        assert rows.put([Note("a", MAIL, by=("bob",)), Note("a", ORDER, by=("cem",))], user) == [
            Note("a", MAIL, by=("ann", "bob")),
            Note("a", ORDER, by=("ann", "bob", "cem")),
        ]
        assert rows.put([Note("a", MAIL, by=("nobody",))], user) == [None]
        assert list(rows.all(user)) == rows.of("bob", user) == [Note("a", ORDER, by=("ann", "bob", "cem"))]
        assert rows.change(["a", "b"], lambda note: replace(note, by=("dan",)), user) == [Note("a", ORDER, by=("dan",))]
        assert (rows.of("bob", user), len(rows.of("dan", user))) == ([], 1)
        assert rows.change(["a"], lambda note: None, user) == []
        assert rows.count(user) == 0


def test_forgetting_nobody_is_refused() -> None:
    with memory_of(None) as memory:
        rows, user = memory.core.rows(NoteRows()), memory.core.users.of(None)
        rows.put([Note("a", ORDER)], user)
        for forget in (rows.forget, lambda user: rows.forget_of("", user)):
            with pytest.raises(InputError, match="name the user"):
                forget(user)


def test_what_others_said_of_an_item_stays_when_one_is_forgotten() -> None:
    with memory_of(None) as memory:
        rows, user = memory.core.rows(NoteRows()), memory.core.users.of(None)
        rows.put(
            [Note("a", ORDER, by=("ann", "bob")), Note("b", MAIL, by=("ann",)), Note("c", MAIL, by=("bob",))], user
        )
        assert (rows.forget_of("ann", user), rows.forget_of("ann", user)) == (2, 0)
        assert list(rows.all(user)) == [Note("a", ORDER, by=("bob",)), Note("c", MAIL, by=("bob",))]


def test_parts_are_searched_apart_even_small_ones_and_an_item_can_move() -> None:
    kind = NoteRows()
    kind.most = 10_000
    with memory_of(None) as memory:
        rows, user = memory.core.rows(kind), memory.core.users.of(None)
        rooms = [f"room {number % 7}" for number in range(700)]
        rows.put([Note(str(i), f"send order {i} to house {i % 9}", room) for i, room in enumerate(rooms)], user)
        rows.put([Note("rare", "send order 5 to house 5", "cellar")], user)
        for part in (*set(rooms), "cellar"):
            found = rows.near("send order 5 to house 5", user, part=part)
            assert {each.item.room for each in found} == {part}
            assert len(found) == (1 if part == "cellar" else 64)
        assert rows.near("send order", user, part="nowhere") == []
        similarity = rows.near("send order 5 to house 5", user, part="cellar")[0].similarity
        assert similarity == pytest.approx(1.0, abs=1e-4)
        rows.change(["rare"], lambda note: replace(note, room="nowhere"), user)
        assert rows.near("send order", user, part="cellar") == []
        assert [each.id for each in rows.near("send order", user, part="nowhere")] == ["rare"]


def test_two_users_have_two_records_of_one_id() -> None:
    with memory_of(None, namespace=APART) as memory:
        rows, (ann, bob) = memory.core.rows(NoteRows()), map(memory.core.users.of, ("ann", "bob"))
        for user in (ann, bob):
            rows.put([Note("a", ORDER)], user)
        memory.core.ledger.shown("note", {rows.key("a", ann): None}, run="1")
        assert [rows.get(["a"], user)[0].shown for user in (ann, bob)] == [1, 0]


def test_the_least_worth_leaves_retired_ones_first() -> None:
    with memory_of(None) as memory:
        rows, user = memory.core.rows(NoteRows()), memory.core.users.of(None)
        rows.put([Note(letter, ORDER) for letter in "cdefgh"], user)
        give_records(memory, "note", {"h": ItemStats(shown=3)})
        rows.put([Note("b", ORDER)], user)
        assert {each.id for each in rows.all(user, retired=True)} == set("bcdefg")
        rows.put([Note("z", ORDER)], user)
        assert {each.id for each in rows.all(user, retired=True)} == set("cdefgz")


def test_changes_are_told_to_who_follows_them() -> None:
    with memory_of(None) as memory:
        rows, user = memory.core.rows(NoteRows()), memory.core.users.of(None)
        assert rows.changes(0, user)[1] is None
        rows.put([Note(letter, ORDER) for letter in "abc"], user)
        begun, ids = rows.changes(0, user)
        assert ids is None
        rows.put([Note("d", MAIL), Note("a", ORDER)], user)  # of these one is new
        rows.remove(["b"], user)
        version, ids = rows.changes(begun, user)
        assert set(ids or ()) == {"d", "b"}
        assert rows.changes(version, user) == (version, [])


def test_a_sample_is_of_the_latest_and_beyond_retired_rows_others_are_found() -> None:
    kind = NoteRows()
    kind.most = 1_000
    with memory_of(None) as memory:
        rows, user = memory.core.rows(kind), memory.core.users.of(None)
        rows.put([Note(f"{number:03}", f"{ORDER} number {number}") for number in range(300)], user)
        assert len(rows.latest(user, 300)) == 300
        assert [int(each.id) for each in rows.latest(user, 40)] == list(range(260, 300))
        near = [each.id for each in rows.near(ORDER, user, part="hall", k=40)]
        give_records(memory, "note", {key: ItemStats(shown=3) for key in near[:35]})
        found_now = [each.id for each in rows.near(ORDER, user, part="hall", k=20)]
        assert len({*found_now[:5]} & {*near[35:]}) >= 4  # Chroma's index is approximate
        assert not {*found_now} & {*near[:35]}


def test_who_asks_does_not_wait_for_who_writes() -> None:
    begun, go = threading.Event(), threading.Event()

    class Slow(Letters):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            if MAIL in texts:
                begun.set()
                assert go.wait(20)
            return super().embed_documents(texts)

    with memory_of(None, embeddings=Slow("adehrst")) as memory:
        rows, user = memory.core.rows(NoteRows()), memory.core.users.of(None)
        rows.put([Note("a", ORDER)], user)
        writing = threading.Thread(target=rows.put, args=([Note("b", MAIL)], user))
        writing.start()
        try:
            assert begun.wait(20)
            assert [each.id for each in rows.near(ORDER, user, part="hall")] == ["a"]
            assert (rows.get(["a"], user), rows.count(user)) == ([Note("a", ORDER)], 1)
            assert (rows.changes(0, user)[1], rows.size(user)) == (None, 1)
        finally:
            go.set()
            writing.join()
        assert rows.count(user) == 2


# --- failing ---


def test_damaged_rows_are_left_out_written_anew_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    with memory_of(None) as memory:
        rows, user = memory.core.rows(NoteRows()), memory.core.users.of(None)
        rows.put([Note("a", ORDER, by=("ann",))], user)
        broken = {"row": "{", "of": ["ann"]}
        memory.core.vectors.scoped(user.namespace).upsert("note", [VectorItem("b", ORDER, broken, "hall")])
        assert (
            [each.id for each in rows.near(ORDER, user, part="hall")] == [each.id for each in rows.all(user)] == ["a"]
        )
        assert "a row of note is damaged" in caplog.text
        rows.put([Note("b", MAIL, by=("ann",))], user)
        assert rows.get(["b"], user) == [Note("b", MAIL, by=("ann",))]
        memory.core.vectors.scoped(user.namespace).upsert("note", [VectorItem("c", ORDER, broken, "hall")])
        assert rows.forget_of("ann", user) == 3
        assert rows.count(user) == 0


def test_what_cannot_be_written_changes_nothing_and_forgetting_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise StorageError("disk full")

    with memory_of(None) as memory:
        rows, user = memory.core.rows(NoteRows()), memory.core.users.of(None)
        rows.put([Note("a", ORDER, by=("ann",))], user)
        version = rows.written(user)
        with monkeypatch.context() as patched:
            for name in ("upsert", "amend"):
                patched.setattr(IndexedVectors, name, broken)
            for change in (Note("b", MAIL), Note("a", ORDER, by=("bob",))):
                with pytest.raises(StorageError, match="disk full"):
                    rows.put([change], user)
        assert (rows.written(user), list(rows.all(user))) == (version, [Note("a", ORDER, by=("ann",))])
        monkeypatch.setattr(IndexedVectors, "delete", lambda *_: None)
        with pytest.raises(StorageError, match="could not be deleted"):
            rows.forget_of("ann", user)


@pytest.mark.slow
def test_threads_lose_nothing() -> None:
    kind = NoteRows()
    kind.most = 1_000
    with memory_of(None) as memory:
        rows, user, ledger = memory.core.rows(kind), memory.core.users.of(None), memory.core.ledger

        def work(me: int) -> None:
            for number in range(10):
                rows.put([Note(f"{me}-{number}", ORDER)], user)
                rows.put([Note(f"all-{number}", ORDER, by=(str(me),))], user)
                ledger.shown("note", {"all-0": None}, run=f"{me}-{number}")
                assert rows.near(ORDER, user, part="hall")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert rows.count(user) == 40 + 10
        assert {each.by for each in rows.get([f"all-{number}" for number in range(10)], user)} == {tuple("0123")}
        assert rows.get(["all-0"], user)[0].shown == 40


@pytest.mark.slow
def test_processes_on_a_server_see_each_other_and_none_loses_the_others_counts(tmp_path: Path) -> None:
    from langgraph.store.memory import InMemoryStore

    now, store = [NOW], InMemoryStore()
    with chroma_run(tmp_path) as (port, _), chroma_clients() as connect:
        how: dict[str, Any] = {"store": store, "now": lambda: now[0]}
        with memory_of(None, chroma=connect(port), **how) as one, memory_of(None, chroma=connect(port), **how) as two:
            here, there = (memory.core.rows(NoteRows()) for memory in (one, two))
            user = one.core.users.of(None)
            here.put([Note("a", ORDER, by=("ann",)), Note("b", MAIL)], user)
            begun, _ = there.changes(0, user)
            assert there.count(user) == 2
            assert [each.id for each in there.near(ORDER, user, part="hall", k=1)] == ["a"]
            there.put([Note("a", ORDER, by=("bob",))], user)
            here.remove(["b"], user)
            assert list(here.all(user)) == [Note("a", ORDER, by=("ann", "bob"))]
            now[0] += 31
            assert there.changes(begun, user)[1] is None, "another process may have written"
            one.core.ledger.shown("note", {"a": None}, run="one")
            two.core.ledger.shown("note", {"a": None}, run="two")
            one.core.acknowledge()
            two.core.acknowledge()
            now[0] += 31
            for memory, rows in ((one, here), (two, there)):
                memory.core.refresh(at_once=True)
                assert rows.get(["a"], user)[0].shown == 2


def test_a_user_is_learned_of_alone_and_again_when_a_tenth_has_changed(tmp_path: Path) -> None:
    learned: list[int] = []
    kind = NoteRows()
    kind.most = 1_000
    with memory_of(tmp_path, namespace=APART) as memory:
        rows, (ann, bob) = memory.core.rows(kind), map(memory.core.users.of, ("ann", "bob"))
        known = Learned(rows, lambda sample: learned.append(len(sample)) or len(sample))
        rows.put([Note(f"a{number}", ORDER) for number in range(20)], ann)
        rows.put([Note("b", MAIL)], bob)
        assert [known.of(ann), known.of(bob), known.of(ann)] == [20, 1, 20]
        for number in range(3):
            rows.put([Note(f"b{number}", ORDER)], ann)
            assert known.of(ann) == (20, 20, 23)[number]
        rows.forget(ann)
        known.forget()
        assert [known.of(ann), known.of(bob)] == [0, 1]
        assert learned == [20, 1, 23, 0, 1]


# --- rows in RAM ---


def test_rows_in_ram_are_those_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write through any handle is seen, and a record; without a write no row is read twice."""
    monkeypatch.setattr(chroma, "CHROMA_LIMITS", replace(chroma.CHROMA_LIMITS, cached_items=5))
    asked: list[int] = []
    read = NoteRows.item
    monkeypatch.setattr(NoteRows, "item", lambda self, row: asked.append(1) or read(self, row))
    with memory_of(tmp_path) as memory, memory_of(tmp_path) as twin:
        rows, others, user = memory.core.rows(NoteRows()), twin.core.rows(NoteRows()), memory.core.users.of(None)

        def found() -> dict[str, Note]:
            near = {each.id: each.item for each in rows.near(ORDER, user, part="hall")}
            stored = [note for note in rows.all(user) if note.room == "hall"]
            assert near == {note.id: note for note in stored}
            return near

        rows.put([Note(key, ORDER) for key in "abcd"], user)
        assert set(found()) == set("abcd")
        asked.clear()
        assert len(rows.near(ORDER, user, part="hall")) == 4
        assert asked == []
        rows.put([Note("a", MAIL, by=("ann",))], user)
        assert found()["a"] == Note("a", MAIL, by=("ann",))
        others.put([Note("b", ORDER, by=("bob",)), Note("e", ORDER), Note("f", ORDER)], user)
        assert found()["b"].by == ("bob",)
        memory.core.ledger.shown("note", {"c": None}, run="1")
        assert found()["c"].shown == 1
        rows.change(["d"], lambda note: replace(note, room="cellar"), user)
        assert set(found()) == set("abcef")
        assert [each.id for each in rows.near(ORDER, user, part="cellar")] == ["d"]
        assert others.forget_of("bob", user) == 1
        assert set(found()) == set("acef")
        memory.core.vectors.scoped(user.namespace).drop("note")
        assert found() == {}
        rows.put([Note("a", ORDER, by=("cem",))], user)
        assert found() == {"a": Note("a", ORDER, by=("cem",))}


def test_an_item_in_ram_is_that_of_the_latest_write_only() -> None:
    cache = chroma.ItemCache()
    assert cache.known("c", {"a": 1}) == {}
    cache.keep("c", "a", 1, "old")
    assert (cache.known("c", {"a": 1}), cache.known("c", {"a": 2}), cache.known("d", {"a": 1})) == (
        {"a": "old"},
        {},
        {},
    )
    cache.keep("c", "a", 2, "new")
    assert cache.known("c", {"a": 2, "b": 3}) == {"a": "new"}
    cache.drop("c")
    assert cache.known("c", {"a": 2}) == {}
