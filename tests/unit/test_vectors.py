from __future__ import annotations

import itertools
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding
from letters import Letters

from langgraph_toolmem.base.errors import ConfigurationError, EmbedderChangedError, StorageError
from langgraph_toolmem.stores import chroma, indexed, vectors
from langgraph_toolmem.stores.chroma import CollectionLabel, collection_name, create_collection
from langgraph_toolmem.stores.database import NAME
from langgraph_toolmem.stores.indexed import IndexedVectors
from langgraph_toolmem.stores.row_table import text_key
from langgraph_toolmem.stores.vectors import Hit, SearchHit, VectorItem, VectorStore
from langgraph_toolmem.text.embedders import resolve_embedder

LEXICAL = resolve_embedder(None)
ME = ("toolmem", "me")


@pytest.fixture(autouse=True)
def no_client_of_others_in_memory() -> None:
    """All in-memory clients of a process share one database, with the settings of whoever was first."""
    try:
        with embedded(None):
            pass
    except ValueError:  # a client that another test left open, with other settings
        SharedSystemClient.clear_system_cache()


@pytest.fixture
def store() -> Iterator[IndexedVectors]:
    with IndexedVectors(None, embedder=LEXICAL, namespace=ME) as made:
        yield made


def embedded(folder: Path | None) -> Any:
    """What an application would open beside the package; to be closed."""
    if folder is None:
        return closing(chromadb.EphemeralClient())
    own = Settings(anonymized_telemetry=False)  # Chroma changes what it is given
    return closing(chromadb.PersistentClient(folder / "chroma", settings=own))


def ids(hits: Sequence[Hit | SearchHit[Hit]]) -> list[str]:
    return [hit.id for hit in hits]


# the host's own Chroma in memory


@pytest.fixture
def no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chroma as in a new process."""
    monkeypatch.setattr(SharedSystemClient, "_identifier_to_system", {})
    monkeypatch.setattr(SharedSystemClient, "_identifier_to_refcount", {})


@pytest.mark.usefixtures("no_client")
@pytest.mark.parametrize("own", [None, {"allow_reset": True, "anonymized_telemetry": False}])
def test_a_memory_opens_after_the_hosts_client_whatever_its_settings(own: dict[str, bool] | None) -> None:
    given = None if own is None else Settings(**own)  # type: ignore[arg-type]
    with closing(chromadb.EphemeralClient(settings=given)) as host:
        documents = host.create_collection("documents")
        with IndexedVectors(None, embedder=LEXICAL, namespace=ME) as made:
            made.upsert("entries", [VectorItem("a", "refund an order", {})])
            assert [hit.id for hit in made.query("entries", "refund", k=1)] == ["a"]
        assert documents.count() == 0
        assert [each.name for each in host.list_collections()] == ["documents"]


@pytest.mark.usefixtures("no_client")
def test_the_hosts_client_opens_after_a_memory() -> None:
    with IndexedVectors(None, embedder=LEXICAL, namespace=ME) as made:
        made.upsert("entries", [VectorItem("a", "refund an order", {})])
        with closing(chromadb.EphemeralClient()) as host:
            assert host.create_collection("documents").count() == 0
        assert [hit.id for hit in made.query("entries", "refund", k=1)] == ["a"]


# one store on disk


def test_lists_of_a_removed_collection_come_to_no_later_row(store: IndexedVectors) -> None:
    """Chroma keeps list-valued metadata of a collection that is deleted, and numbers rows anew."""
    for _ in range(2):
        store.upsert("entries", [VectorItem(key, "first", {"of": ["ann"]}) for key in "ab"])
        store.drop("entries")
        store.upsert("atoms", [VectorItem("c", "later", {"keep": 3})])
        assert store.get("atoms") == [Hit("c", "later", {"keep": 3})]
        store.drop("atoms")


def test_awkward_texts_come_back(store: IndexedVectors) -> None:
    texts = ["", "   ", "nul\x00byte", "天気 🌦", "x" * 20_000, "lone \ud83d surrogate"]
    store.upsert("entries", [VectorItem(f"é/{n}", text, {"t": text}) for n, text in enumerate(texts)])
    back = store.get("entries", [f"é/{n}" for n in range(len(texts))])
    assert [hit.text for hit in back] == [*texts[:5], "lone ? surrogate"]
    assert len(store.query("entries", "", k=9)) == len(texts)


def test_more_than_one_batch_and_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (chroma, indexed, vectors):
        monkeypatch.setattr(module, "CHROMA_LIMITS", replace(chroma.CHROMA_LIMITS, batch=7, page=4))
    names = [f"n{n}" for n in range(23)]
    with IndexedVectors(None, embedder=resolve_embedder(Letters()), namespace=ME) as store:
        store.upsert("entries", [VectorItem(name, name) for name in names])
        assert sorted(ids(store.get("entries"))) == sorted(names)
        assert ids(store.get("entries", names)) == names
        for number in range(9):
            store.upsert(f"kind{number}", [VectorItem("a", "a")])
        assert len(store.kinds()) == 10
        store.delete("entries", names[:20])
        assert store.count("entries") == 3


ALIKE = [f"Send order {''.join(word)} of ann" for word in itertools.product("bdfglm", "aeiou", "klmnrst")]


def few_links(client: Any, name: str, label: CollectionLabel) -> Any:
    """Make a collection with Chroma's default of 16 links a row."""
    metadata = label.to_metadata()
    return client.get_or_create_collection(
        name, embedding_function=None, metadata=metadata, configuration={"hnsw": {"space": "cosine"}}
    )


def test_of_texts_that_are_alike_each_is_found_by_itself(
    store: IndexedVectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "create_collection", few_links)  # whose index leads to 160 of the 210
    store.upsert("entries", [VectorItem(text, text, part="p") for text in ALIKE])
    for text in ALIKE:
        vector = LEXICAL.embed_query(text)
        assert text in ids(store.query("entries", text, vector=vector, k=8, part="p"))


@pytest.mark.parametrize("part", ["p", ""])
def test_a_text_whose_stored_vector_is_damaged_is_found_by_itself(tmp_path: Path, part: str) -> None:
    key = text_key(part, ALIKE[7])
    with IndexedVectors(tmp_path, embedder=LEXICAL, namespace=ME) as store:
        store.upsert("entries", [VectorItem(text, text, part=part) for text in ALIKE])
        with store.chroma.opened("change a vector") as client:
            collection = client.get_collection(collection_name("tm", "entries", ME), embedding_function=None)
            damaged = -collection.get(ids=[key], include=["embeddings"])["embeddings"][0]
            collection.update(ids=[key], embeddings=[damaged])
        [nearest, *_] = store.query("entries", ALIKE[7], k=4, part=part)
    assert nearest.id == ALIKE[7]
    assert nearest.similarity == pytest.approx(1.0)


def test_of_vectors_that_are_alike_the_index_leads_to_each() -> None:
    vectors = LEXICAL.embed_documents(ALIKE)
    stored = indexed.DIRECTIONS.stored(vectors, ALIKE, ["p"] * len(ALIKE)).tolist()
    label = CollectionLabel("entries", ME, LEXICAL.name, len(vectors[0]))
    found = []
    with embedded(None) as client:
        collection = create_collection(client, "alike", label)
        # One by one: Chroma adds the rows of a batch in parallel, and its index is another one each time.
        for text, vector in zip(ALIKE, stored, strict=True):
            collection.upsert(ids=[text], embeddings=[vector])
        for text, vector in zip(ALIKE, vectors, strict=True):
            asked = indexed.DIRECTIONS.question(vector, "p")
            if text in collection.query(query_embeddings=[asked], n_results=8)["ids"][0]:
                found.append(text)
        client.delete_collection("alike")
    assert len(found) >= len(ALIKE) - 2, "with 16 links, 48 are missing"


# apart and together


def names_in(client: Any) -> set[str]:
    return {each.name for each in client.list_collections()}


def test_stores_in_memory_share_nothing_and_leave_nothing(store: IndexedVectors) -> None:
    store.upsert("entries", [VectorItem("a", "one")])  # Chroma lets go of all with the last client
    with embedded(None) as client:
        before = names_in(client)
        other = IndexedVectors(None, embedder=LEXICAL, namespace=ME)
        assert (other.count("entries"), other.kinds()) == (0, [])
        other.drop("entries")
        for i in range(3):
            other.scoped((*ME, str(i))).upsert("entries", [VectorItem("a", "one")])
        mine = names_in(client) - before
        assert len(mine) == 3
        other.close()
        other.close()
        with pytest.raises(StorageError, match="closed"):
            other.query("entries", "a", k=1)
        assert mine.isdisjoint(names_in(client))
    assert store.count("entries") == 1


@settings(max_examples=80)
@given(st.sets(st.tuples(st.text(max_size=30), st.lists(st.text(max_size=8), max_size=3).map(tuple)), max_size=4))
def test_every_kind_and_namespace_has_a_name_of_its_own_that_chroma_takes(
    keys: set[tuple[str, tuple[str, ...]]],
) -> None:
    names = {collection_name("tm", kind, namespace) for kind, namespace in keys}
    assert len(names) == len(keys)
    for name in names:
        assert re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,61}[a-zA-Z0-9]", name)


def test_an_async_client_is_refused() -> None:
    waiting = chromadb.AsyncHttpClient()
    try:
        with pytest.raises(ConfigurationError, match="AsyncHttpClient"):
            VectorStore(None, embedder=LEXICAL, client=waiting, namespace=ME)
    finally:
        waiting.close()


# another embedder


def changed(tmp_path: Path) -> IndexedVectors:
    with IndexedVectors(tmp_path, embedder=LEXICAL, namespace=ME) as before:
        before.upsert("entries", [VectorItem("a", "aaa", {"n": 1}), VectorItem("b", "bbb")])
        before.upsert("atoms", [VectorItem("c", "ccc")])
        before.scoped(("toolmem", "you")).upsert("entries", [VectorItem("a", "abc")])
    return IndexedVectors(tmp_path, embedder=resolve_embedder(Letters()), namespace=ME)


def rebuilt(folder: Path, embeddings: Any, progress: Any = lambda _: None) -> int:
    with IndexedVectors(folder, embedder=resolve_embedder(embeddings), namespace=ME) as store:
        return store.rebuild(progress, keep=False)


def test_another_embedder_is_refused_by_every_call_with_both_names_and_the_way_out(tmp_path: Path) -> None:
    with changed(tmp_path) as store:
        for call in (
            store.check,
            lambda: store.query("entries", "a", k=1),
            lambda: store.upsert("entries", [VectorItem("z", "z")]),
        ):
            with pytest.raises(EmbedderChangedError) as caught:
                call()
            for part in (LEXICAL.name, "letters:abc", "toolmem doctor"):
                assert part in str(caught.value)
        assert store.kinds() == ["atoms", "entries"]


def test_the_same_name_with_another_dimension_is_a_change_too(tmp_path: Path) -> None:
    small, large = DeterministicFakeEmbedding(size=4), DeterministicFakeEmbedding(size=8)
    with IndexedVectors(tmp_path, embedder=resolve_embedder(small), namespace=ME) as store:
        store.upsert("entries", [VectorItem("a", "a")])
    with IndexedVectors(tmp_path, embedder=resolve_embedder(large), namespace=ME) as store:
        for call in (
            lambda: store.query("entries", "a", k=1),
            lambda: store.upsert("entries", [VectorItem("b", "b")]),
        ):
            with pytest.raises(EmbedderChangedError, match=r"4 numbers.*8 numbers"):
                call()
    assert rebuilt(tmp_path, large) == 1
    with IndexedVectors(tmp_path, embedder=resolve_embedder(large), namespace=ME) as store:
        assert store.query("entries", "a", k=1)[0].similarity == pytest.approx(1, abs=1e-5)


def test_all_texts_of_a_folder_are_embedded_again(tmp_path: Path) -> None:
    letters, progress = Letters(), list[int]()
    changed(tmp_path).close()
    letters.broken = True
    with pytest.raises(StorageError, match="TimeoutError: no answer"):
        rebuilt(tmp_path, letters)
    with IndexedVectors(tmp_path, embedder=LEXICAL, namespace=ME) as store:
        assert store.count("entries") == 2
    letters.broken = False
    assert rebuilt(tmp_path, letters, progress.append) == progress[-1] == 4
    assert not list(tmp_path.glob("chroma?*/"))
    with IndexedVectors(tmp_path, embedder=resolve_embedder(letters), namespace=ME) as store:
        store.check()
        assert ids(store.query("entries", "b", k=2)) == ["b", "a"]
        assert store.get("entries", ["a"]) == [Hit("a", "aaa", {"n": 1})]
        assert store.scoped(("toolmem", "you")).count("entries") == 1


@pytest.mark.parametrize(
    ("stop_before", "calls"), [("modify", 0), ("modify", 1), ("delete", 0), ("delete_collection", 0)]
)
def test_a_crash_while_a_collection_is_written_anew_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_before: str, calls: int
) -> None:
    from chromadb.api.client import Client
    from chromadb.api.models.Collection import Collection

    class Killed(BaseException):
        pass

    left = iter(range(calls))

    def kill(self: Any, *args: Any, **options: Any) -> None:
        if next(left, None) is None:
            raise Killed
        real(self, *args, **options)

    changed(tmp_path).close()
    with IndexedVectors(tmp_path, embedder=LEXICAL, namespace=ME) as store:
        owner: Any = Client if stop_before == "delete_collection" else Collection
        real = getattr(owner, stop_before)
        monkeypatch.setattr(owner, stop_before, kill)
        with pytest.raises(Killed):
            store.scrub("entries")
        monkeypatch.undo()
        assert store.kinds() == ["atoms", "entries"]
        for _ in range(2):
            assert (store.count("entries"), store.count("atoms")) == (2, 1)
            assert ids(store.query("entries", "aaa", k=1)) == ["a"]
            store.scrub("entries")


# failures


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "chroma").write_text("a file is in the way")
    with (
        IndexedVectors(tmp_path, embedder=LEXICAL, namespace=ME) as store,
        pytest.raises(StorageError, match=r"Chroma in .*could not open.*toolmem doctor.*--rebuild"),
    ):
        store.upsert("entries", [VectorItem("a", "a")])


def test_damage_of_rows_and_of_chroma_is_named_in_one_list(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"SQLite format 3\0" + b"damaged" * 900)
    chroma_folder = tmp_path / "chroma"
    chroma_folder.mkdir()
    (chroma_folder / "chroma.sqlite3").write_bytes(b"no database" * 900)
    with IndexedVectors(tmp_path, embedder=LEXICAL, namespace=ME) as store:
        store.upsert("entries", [VectorItem("a", "a")])
        assert [problem.split()[0] for problem in store.chroma.problems] == [NAME, "chroma.sqlite3"]
        assert store.scoped(("other",)).table.problems == store.chroma.problems


def test_a_collection_replaced_by_another_handle_is_found_again(store: IndexedVectors) -> None:
    store.upsert("entries", [VectorItem("a", "a")])
    other = store.scoped(ME)
    other.drop("entries")
    assert store.count("entries") == 0
    other.upsert("entries", [VectorItem("b", "b"), VectorItem("c", "c")])
    assert store.count("entries") == 2
    other.drop("entries")
    store.upsert("entries", [VectorItem("d", "d")])
    assert ids(other.get("entries")) == ["d"]


def test_a_foreign_collection_under_our_name_is_refused(tmp_path: Path) -> None:
    with embedded(tmp_path) as client:
        client.create_collection(collection_name("tm", "entries", ME), embedding_function=None)
    with (
        IndexedVectors(tmp_path, embedder=LEXICAL, namespace=ME) as store,
        pytest.raises(StorageError, match="not made by this package"),
    ):
        store.upsert("entries", [VectorItem("a", "a")])


@pytest.mark.slow
def test_many_namespaces_keep_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chroma, "CHROMA_LIMITS", replace(chroma.CHROMA_LIMITS, open_collections=5))
    opened: list[int] = []
    with IndexedVectors(tmp_path, embedder=LEXICAL, namespace=ME) as store:
        stores = [store.scoped(("user", str(n))) for n in range(24)]
        for round_ in range(2):
            for n, each in enumerate(stores):
                each.upsert("notes", [VectorItem(f"{round_}", f"note {n}")])
                opened.append(len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0)
        assert max(opened) - min(opened) < 60  # four files a collection
        for n, each in enumerate(stores):
            assert {hit.text for hit in each.get("notes")} == {f"note {n}"}
            assert each.count("notes") == 2
        with ThreadPoolExecutor(72) as pool:
            list(pool.map(lambda each: each.query("notes", "note", k=1), stores * 3, timeout=30))


def test_who_closes_chroma_waits_for_those_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chromadb.api.models.Collection import Collection

    inside, leave, events, ask = threading.Event(), threading.Event(), list[str](), Collection.query

    def slow(self: Collection, **question: Any) -> Any:
        inside.set()
        assert leave.wait(10)
        assert store.labels(), "a thread that is inside never waits"
        events.append("read")
        return ask(self, **question)

    def scrub() -> None:
        store.scrub("entries")
        events.append("scrubbed")

    with IndexedVectors(tmp_path, embedder=LEXICAL, namespace=ME) as store:
        store.upsert("entries", [VectorItem("a", "a")])
        threads = [
            threading.Thread(target=lambda: store.query("entries", "a", k=1)),
            threading.Thread(target=scrub),
        ]
        monkeypatch.setattr(Collection, "query", slow)
        threads[0].start()
        assert inside.wait(10)
        monkeypatch.undo()
        threads[1].start()
        threads[1].join(0.3)
        assert events == []
        leave.set()
        for thread in threads:
            thread.join(10)
        assert events == ["read", "scrubbed"]
        assert ids(store.query("entries", "a", k=1)) == ["a"]
