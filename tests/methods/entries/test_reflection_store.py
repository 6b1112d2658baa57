from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chroma_server import chroma_clients, chroma_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langgraph_toolmem.entries.cache import hurts
from langgraph_toolmem.entries.store import EntryStore

from langgraph_toolmem.base.errors import ConfigurationError, EmbedderChangedError, InputError, StorageError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.entries import cache
from langgraph_toolmem.entries.entry import Entry, EntryCall, entry_id
from langgraph_toolmem.entries.rows import KIND, EntryRows
from langgraph_toolmem.search.embedders import resolve_embedder
from langgraph_toolmem.stores.vectors import VectorItem, VectorStore

LEXICAL = resolve_embedder(None)
ME = ("toolmem", "me")


class Axes(Embeddings):
    """How often each of a few letters occurs, so that cosines can be worked out by hand."""

    model = "abcd"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        return [[text.count(letter) or 1e-9 for letter in self.model] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def entry(name: str, query: str = "find ann", **fields: Any) -> Entry:
    run = digest("run", name)
    fields.setdefault("calls", (EntryCall("find", {"name": name}, "ok", "7"),))
    return Entry(entry_id(run), run, query, **fields)


def over(vectors: VectorStore, **options: Any) -> EntryStore:
    options.setdefault("now", Clock())
    return EntryStore(vectors, **options)


@pytest.fixture
def vectors(tmp_path: Path) -> Iterator[VectorStore]:
    with VectorStore(tmp_path, embedder=LEXICAL, namespace=ME) as made:
        yield made


@pytest.fixture
def store(vectors: VectorStore) -> EntryStore:
    return over(vectors)


def failing(store: EntryStore, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    def broken(*args: Any, **options: Any) -> None:
        raise StorageError("disk full")

    for name in names:
        monkeypatch.setattr(EntryRows, name, broken)


# keeping


def test_an_entry_is_kept_whole_and_found_after_reopening(vectors: VectorStore, store: EntryStore) -> None:
    full = entry("1", user="u", time=5.0, score=0.0, comment="bad", left_out=2, truncated=True, made_by="bootstrap")
    full = replace(full, critique="c", critique_of=full.verdict, blamed="find", recalled=3, helped=1, hurt=2)
    bare = entry("2", calls=(), score=None)
    assert store.put_many([full, bare]) == [full, bare]
    for each in (store, over(vectors)):
        assert each.all() == [bare, full]
        assert each.get(full.id) == each.of_run(full.run) == full
        assert len(each) == 2
        assert each.get("nobody") is None


def test_an_unused_store_opens_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    store = over(VectorStore(folder, embedder=LEXICAL, namespace=ME))
    assert store.all() == []
    assert store.near("find") == []
    assert store.judge("r", 0.0) is None
    assert store.forget_user("u") == 0
    store.credit("nobody", recalled=1)
    store.close()
    assert not folder.exists()


def test_the_same_run_again_changes_nothing_and_embeds_nothing(tmp_path: Path) -> None:
    embeddings = Axes()
    with VectorStore(tmp_path, embedder=resolve_embedder(embeddings), namespace=ME) as vectors:
        store = over(vectors)
        first = entry("1", "ab", time=5.0)
        store.put(first)
        version = store.version
        embeddings.asked.clear()
        assert store.put(replace(first, time=9.0)) == first
        assert store.put_many([first, first]) == [first, first]
        assert (store.version, len(vectors.get(KIND))) == (version, 1)
        judged = store.put(replace(first, score=0.0, comment="no"))
        assert judged is not None
        assert judged.failed
        assert embeddings.asked == []  # a verdict changes no text
        assert over(vectors).all() == [judged]
        assert store.put(replace(first, query="cd")) == replace(judged, query="cd")
        assert embeddings.asked == ["cd"]
        assert store.near("d")[0][0] == pytest.approx(0.5**0.5)


def test_two_reports_of_a_run_in_one_go_are_one_entry(store: EntryStore, vectors: VectorStore) -> None:
    one = entry("1")
    more = replace(one, calls=(*one.calls, EntryCall("mail", {}, "ok")), score=0.0)
    store.put_many([one, more, one])
    assert [(len(each.calls), each.score) for each in over(vectors).all()] == [(1, 0.0)]


def test_a_run_of_another_user_is_not_overwritten(store: EntryStore, caplog: pytest.LogCaptureFixture) -> None:
    mine = entry("1", user="u", score=1.0)
    store.put(mine)
    assert store.put(replace(mine, user="v", score=0.0)) is None
    assert store.all() == [mine]
    assert "two users" in caplog.text


def test_an_id_that_is_not_the_runs_is_refused(store: EntryStore) -> None:
    with pytest.raises(InputError, match="entry_id"):
        store.put(replace(entry("1"), id="x"))
    with pytest.raises(InputError, match="entry_id"):
        store.put(replace(entry("1"), id=entry_id(""), run=""))


def test_bounds_that_cannot_be_are_told(vectors: VectorStore) -> None:
    for options in ({"max_entries": 0}, {"flush_every": 0}, {"refresh": -1.0}):
        with pytest.raises(ConfigurationError, match=next(iter(options))):
            over(vectors, **options)


def test_lone_surrogates_are_survived(store: EntryStore, vectors: VectorStore) -> None:
    store.put(entry("1", "find \ud800", score=0.0, comment="\udfff"))
    assert over(vectors).all()[0].query == store.all()[0].query
    assert store.judge(digest("run", "1"), 0.0, "\udfff again") is not None


# verdicts and critiques


def test_a_later_verdict_and_critique_replace(store: EntryStore, vectors: VectorStore) -> None:
    store.put(entry("1"))
    run, key = digest("run", "1"), entry("1").id
    judged = store.judge(run, 0.0, " wrong person ")
    assert judged is not None
    assert (judged.score, judged.comment, judged.wants_critique) == (0.0, "wrong person", True)
    assert store.set_critique(key, "first", of="another verdict") is None
    store.set_critique(key, "first", of=judged.verdict)
    kept = store.set_critique(key, "second", of=judged.verdict, blamed="find")
    assert kept is not None
    assert (kept.critique, kept.blamed, kept.wants_critique) == ("second", "find", False)
    assert over(vectors).all() == store.all() == [kept]
    well = store.judge(run, 1.0)
    assert well is not None
    assert (well.critique, well.blamed) == ("", "")
    assert store.set_critique(key, "late", of=judged.verdict) is None
    assert over(vectors).all() == [well]
    assert store.judge(digest("run", "2"), 0.0) is None
    assert store.set_critique("nobody", "c", of="v") is None
    with pytest.raises(InputError, match="score"):
        store.judge(run, 2.0)


def test_a_critic_without_a_word_is_not_asked_again(store: EntryStore) -> None:
    failed = store.put(entry("1", score=0.0))
    assert failed is not None
    kept = store.set_critique(failed.id, "", of=failed.verdict)
    assert kept is not None
    assert not kept.wants_critique


# records


def test_records_are_credited_at_once_and_written_together(store: EntryStore, vectors: VectorStore) -> None:
    store.put_many([entry("1"), entry("2")])
    one, two = entry("1").id, entry("2").id
    version = store.version
    store.credit([one, two, "nobody"], recalled=1)
    store.credit(one, helped=1)
    assert store.get(one) == replace(entry("1"), recalled=1, helped=1)
    assert [each.recalled for each in store.all()] == [1, 1]
    assert [each.recalled for each in over(vectors).all()] == [0, 0]
    store.flush()
    assert store.version == version
    assert {each.id: each.recalled for each in over(vectors).all()} == {one: 1, two: 1}
    for _ in range(31):
        store.credit(one, recalled=1)
    assert over(vectors).get(one) == replace(entry("1"), recalled=1, helped=1)
    store.credit(one, recalled=1)
    assert over(vectors).get(one) == replace(entry("1"), recalled=33, helped=1)
    store.credit(one, recalled=-50)
    store.close()
    assert over(vectors).get(one) == replace(entry("1"), recalled=0, helped=1)


def test_bookings_that_cannot_be_written_wait(
    store: EntryStore, vectors: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(entry("1"))
    key = entry("1").id
    store.credit(key, recalled=2)
    with monkeypatch.context() as patched:
        failing(store, patched, "credit")
        with pytest.raises(StorageError):
            store.flush()
    store.credit(key, recalled=1)
    store.flush()
    assert over(vectors).get(key) == replace(entry("1"), recalled=3)


@pytest.mark.parametrize(
    ("helped", "hurt", "usual", "retired"),
    [
        (0, 0, 0.5, False),
        (0, 5, 0.1, False),  # 1/32
        (0, 6, 0.1, True),  # 1/64 = 0.016
        (1, 7, 0.1, False),  # 9/256 = 0.035
        (1, 8, 0.1, True),  # 10/512 = 0.0195
        (0, 6, 0.8, False),  # where nearly all fail: 0.8^6 = 0.26
        (0, 17, 0.8, False),  # 0.8^17 = 0.0225
        (0, 18, 0.8, True),  # 0.8^18 = 0.018
        (50, 50, 0.5, False),
        (5000, 10000, 0.5, True),
    ],
)
def test_when_an_entry_hurts(helped: int, hurt: int, usual: float, retired: bool) -> None:
    assert hurts(helped, hurt, usual) == retired


def test_an_entry_that_hurts_is_retired_and_stays_so(store: EntryStore, vectors: VectorStore) -> None:
    store.put_many([entry("1"), entry("2")])
    bad, good = entry("1").id, entry("2").id
    store.credit(good, helped=20)
    version = store.version
    for _ in range(6):
        assert bad in {each.id for each in store.all()}
        store.credit(bad, recalled=1, hurt=1)
    assert store.changes(version).gone == [bad]
    for each in (store, over(vectors)):
        assert [kept.id for kept in each.all()] == [good]
        assert {kept.id for kept in each.all(retired=True)} == {bad, good}
        assert [kept.id for _, kept in each.near("find ann")] == [good]
    put = store.put(entry("1", score=1.0))
    assert put is not None
    assert put.retired
    assert store.judge(put.run, 0.0) is not None


def test_what_hurts_everybody_retires_nobody(store: EntryStore) -> None:
    entries = [entry(str(n)) for n in range(4)]
    store.put_many(entries)
    for _ in range(12):
        store.credit([each.id for each in entries[:3]], hurt=1)
    assert len(store.all()) == 4
    store.credit(entries[3].id, helped=40)
    store.credit(entries[0].id, hurt=40)  # now it stands out
    store.flush()
    assert entries[0].id not in {each.id for each in store.all()}


# following the changes


def test_changes_are_told_one_by_one(store: EntryStore, vectors: VectorStore) -> None:
    store.put_many([entry("1"), entry("2")])
    whole = over(vectors).changes()
    assert whole.whole
    assert {each.id for each, _ in whole.entries} == {entry("1").id, entry("2").id}
    assert {vector for _, vector in whole.entries} == {None}  # a lexical index needs none
    begun = store.changes()
    nothing = store.changes(begun.version)
    assert nothing == (begun.version, False, [], [])
    store.put(entry("3", user="u"))
    store.judge(entry("1").run, 0.0)
    store.judge(entry("1").run, 1.0)
    store.forget_run(entry("2").run)
    then = store.changes(begun.version)
    assert not then.whole
    assert {each.id: each.score for each, _ in then.entries} == {entry("3").id: None, entry("1").id: 1.0}
    assert then.gone == [entry("2").id]
    assert store.changes(then.version).entries == []
    store.reload()
    assert store.changes(then.version).whole
    assert store.changes(10**9).whole


def test_vectors_of_a_model_come_with_the_entries(tmp_path: Path) -> None:
    with VectorStore(tmp_path, embedder=resolve_embedder(Axes()), namespace=ME) as vectors:
        store = over(vectors)
        store.put(entry("1", "aab"))
        for each in (store, over(vectors)):
            [(_, vector)] = each.changes().entries
            assert vector is not None
            assert vector.dtype == np.float32
            assert np.allclose(vector, np.array([2, 1, 0, 0]) / 5**0.5, atol=1e-6)


def test_too_many_changes_are_told_as_a_whole(vectors: VectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "REMEMBERED", 10)
    store = over(vectors)
    begun = store.changes().version
    store.put_many([entry(str(n)) for n in range(10)])
    assert not store.changes(begun).whole
    store.put(entry("more"))
    assert store.changes(begun).whole
    assert len(store.changes(begun).entries) == 11


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "good", "bad", "forget", "hurt", "reload"]), st.sampled_from("12345"), st.booleans()
    ),
    max_size=25,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=OPERATIONS)
def test_who_follows_the_changes_knows_all_there_is(operations: list[tuple[str, str, bool]]) -> None:
    store = over(VectorStore(None, embedder=LEXICAL, namespace=ME))
    index: dict[str, Entry] = {}
    version = 0
    for what, name, look in operations:
        run = digest("run", name)
        if what == "put":
            store.put(entry(name, calls=(EntryCall("t", {"n": len(index)}, "ok"),)))
        elif what in ("good", "bad"):
            store.judge(run, float(what == "good"), name)
        elif what == "forget":
            store.forget_run(run)
        elif what == "hurt":
            store.credit(entry_id(run), hurt=6)
        else:
            store.reload()
        if look:
            changes = store.changes(version)
            version = changes.version
            index = {} if changes.whole else index
            for gone in changes.gone:
                index.pop(gone, None)
            index.update({each.id: each for each, _ in changes.entries})
            now = {each.id: replace(each, recalled=0, helped=0, hurt=0) for each in store.all()}
            assert {key: replace(each, recalled=0, helped=0, hurt=0) for key, each in index.items()} == now


# finding


def test_the_most_similar_come_first(store: EntryStore) -> None:
    store.put_many([entry("1", "find ann in the office"), entry("2", "cancel order 7"), entry("3", "find ann")])
    found = store.near("find ann", k=2)
    assert [each.query for _, each in found] == ["find ann", "find ann in the office"]
    assert found[0][0] == pytest.approx(1.0, abs=1e-4)
    assert [each.query for _, each in store.near("find ann", k=1, but=entry("3").id)] == ["find ann in the office"]


# bounds


def test_the_least_useful_go_when_there_is_no_room(vectors: VectorStore) -> None:
    store = over(vectors, max_entries=4)
    store.put_many([entry("judged", score=0.0, time=1), entry("old", time=2), entry("useful", time=3)])
    store.credit(entry("useful").id, recalled=3, helped=3)
    store.put(entry("hurting", time=4, score=1.0))
    store.credit(entry("hurting").id, hurt=6)
    store.flush()
    store.put(entry("new", time=5))
    assert {each.id for each in over(vectors).all(retired=True)} == {
        entry(name).id for name in ("judged", "old", "useful", "new")
    }
    store.put(entry("newer", time=6))
    assert entry("old").id not in {each.id for each in store.all()}
    assert len(store) == 4


# forgetting


def test_a_user_is_forgotten_on_disk_too(tmp_path: Path) -> None:
    with VectorStore(tmp_path, embedder=LEXICAL, namespace=ME) as vectors:
        store = over(vectors)
        store.put(entry("1", "secretword meeting", user="u", score=0.0, comment="secretcomment"))
        store.put(entry("2", "find ann", user="v"))
        store.put(entry("3", "another secretword", user="u"))
        assert b"secretword" in on_disk(tmp_path)
        assert store.forget_user("u") == 2
        assert store.forget_user("u") == 0
        assert [each.user for each in store.all()] == [each.user for each in over(vectors).all()] == ["v"]
        store.scrub()
        assert store.forget_run(entry("2").run) == 1
        assert over(vectors).all() == []
    found = on_disk(tmp_path)
    assert b"secretword" not in found
    assert b"secretcomment" not in found
    with pytest.raises(InputError, match="Whose"):
        store.forget_user("")


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_forgetting_that_fails_is_told(store: EntryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(entry("1", user="u"))
    monkeypatch.setattr(EntryRows, "remove", lambda rows, ids: None)
    with pytest.raises(StorageError, match="could not be deleted"):
        store.forget_user("u")


def test_dropping_deletes_this_namespace_only(vectors: VectorStore, store: EntryStore) -> None:
    other = over(vectors.scoped(("toolmem", "you")))
    store.put(entry("1"))
    other.put(entry("1"))
    version = store.version
    store.drop()
    assert store.all() == over(vectors).all() == []
    assert store.changes(version).whole
    assert len(other) == 1
    store.put(entry("1"))
    assert len(over(vectors)) == 1


# failing


def test_what_cannot_be_written_changes_nothing(
    store: EntryStore, vectors: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(entry("1"))
    before = store.version
    with monkeypatch.context() as patched:
        failing(store, patched, "write", "amend")
        with pytest.raises(StorageError):
            store.put(entry("2"))
        with pytest.raises(StorageError):
            store.judge(entry("1").run, 0.0)
    assert (store.version, store.all()) == (before, [entry("1")])
    assert store.put(entry("2")) is not None
    assert len(over(vectors)) == 2


def test_damaged_rows_are_left_out(vectors: VectorStore, caplog: pytest.LogCaptureFixture) -> None:
    store = over(vectors)
    store.put(entry("1", user="u"))
    vectors.upsert(KIND, [VectorItem("damaged", "text", {"user": "u"})])
    again = over(vectors)
    assert again.all() == [entry("1", user="u")]
    assert "1 entries are damaged" in caplog.text
    assert again.forget_user("u") == 2


def test_another_embedder_is_told_and_entries_survive_embedding_anew(tmp_path: Path) -> None:
    with VectorStore(tmp_path, embedder=LEXICAL, namespace=ME) as vectors:
        over(vectors).put(entry("1", "ab", score=0.0))
    with VectorStore(tmp_path, embedder=resolve_embedder(Axes()), namespace=ME) as vectors:
        with pytest.raises(EmbedderChangedError):
            over(vectors).all()
        vectors.reembed()
        assert over(vectors).all() == [entry("1", "ab", score=0.0)]


@pytest.mark.slow
def test_threads_lose_nothing(store: EntryStore, vectors: VectorStore) -> None:
    shared = entry("shared")
    store.put(shared)
    errors: list[BaseException] = []

    def work(me: int) -> None:
        try:
            for number in range(10):
                store.put(entry(f"{me}-{number}"))
                store.put(entry(f"all-{number}"))
                store.credit(shared.id, recalled=1, helped=1)
                store.judge(entry(f"{me}-{number}").run, 0.0, "no")
                assert store.get(shared.id) is not None
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    store.close()
    found = over(vectors)
    assert len(found) == 1 + 40 + 10
    assert sum(each.failed for each in found.all()) == 40
    kept = found.get(shared.id)
    assert kept is not None
    assert (kept.recalled, kept.helped) == (40, 40)


# several processes


@pytest.mark.slow
def test_entries_of_another_process_are_seen_after_a_look(tmp_path: Path) -> None:
    clock = Clock()
    with chroma_run(tmp_path) as (port, _), chroma_clients() as connect:
        here, there = (
            over(VectorStore(None, embedder=LEXICAL, client=connect(port), namespace=ME), now=clock, refresh=30)
            for _ in range(2)
        )
        here.put_many([entry("1", user="u"), entry("2")])
        assert len(there) == 2
        here.put(entry("3"))
        here.judge(entry("1").run, 0.0, "no")
        here.forget_run(entry("2").run)
        begun = there.changes()
        assert len(begun.entries) == 2
        clock.seconds += 31
        changes = there.changes(begun.version)
        assert not changes.whole
        assert {each.id: each.score for each, _ in changes.entries} == {entry("3").id: None, entry("1").id: 0.0}
        assert changes.gone == [entry("2").id]
        # What is changed without a look is changed on top of what the other wrote.
        here.judge(entry("3").run, 1.0)
        put = there.put(entry("3", user="v"))
        assert put is not None
        assert (put.score, put.user) == (1.0, "v")
        here.credit(entry("1").id, recalled=1)
        here.flush()
        there.credit(entry("1").id, recalled=2)
        there.flush()
        kept = there.get(entry("1").id)
        assert kept is not None
        assert (kept.recalled, kept.score) == (3, 0.0)


PUTTING = """
import sys
from pathlib import Path
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.entries.entry import Entry, EntryCall, entry_id
from langgraph_toolmem.entries.store import EntryStore
from langgraph_toolmem.search.embedders import resolve_embedder
from langgraph_toolmem.stores.vectors import VectorStore

vectors = VectorStore(Path(sys.argv[1]), embedder=resolve_embedder(None), namespace=("toolmem", "me"))
store = EntryStore(vectors, now=lambda: 1.0)
for number in range(10_000):
    run = digest("run", str(number))
    store.put(Entry(entry_id(run), run, f"find number {number}", (EntryCall("find", {"n": number}, "ok"),)))
    store.judge(run, 0.0, "no")
    print(number, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PUTTING, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(15):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    last = max([14, *map(int, process.stdout.read().split())])
    process.stdout.close()
    process.wait()
    with VectorStore(tmp_path, embedder=LEXICAL, namespace=ME) as vectors:
        entries = over(vectors).all()
        assert len(entries) in (last + 1, last + 2)
        assert sum(each.failed for each in entries) in (last + 1, last + 2)


@pytest.mark.slow
def test_many_entries_load_in_ram_with_their_bounds(store: EntryStore, vectors: VectorStore) -> None:
    dice = random.Random(0)
    words = ["order", "refund", "late", "card", "paid", "box", "mail", "ann"]
    made = [entry(str(n), " ".join(dice.choices(words, k=6)), time=float(n)) for n in range(1200)]
    store.put_many(made)  # more than a page and more than one write
    assert over(vectors).all() == made
