"""Texts whose rows are in ``memory.db``; an embedded Chroma, on disk or in RAM, is their index.

A row is written to `RowTable` first, by any process. The one process that may write to Chroma then brings the index up
to the rows (`_advance`); the others leave it a job. A search asks Chroma for keys of texts and takes their rows from
the table, so that a row that is forgotten or replaced in any process is so for all at once. A process that only reads
opens Chroma again once the index moved, at most once a second, or once after an error.

The index may be lost at any time. Chroma writes its files in place: a kill in between leaves files that cannot be
opened (2 of 12 kills of a process that wrote all the time). Such a collection is rebuilt from the rows, and one that
lost texts is filled again. A process that opened files while another one wrote them ended by SIGSEGV (2 of 2 trials of
15 seconds), so both happen under ``chroma.busy``.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.row_table import FoundRow, NewRow, RowTable, TextRow
from langgraph_toolmem.stores.snapshot import free_name
from langgraph_toolmem.stores.vectors import (
    BATCH,
    OWNERS,
    PAGE,
    PART,
    Hit,
    SearchHit,
    VectorItem,
    VectorStore,
    asked_vector,
    batches,
    cosine_of,
    is_failure_of_chroma,
    kept_vectors,
    own,
)
from langgraph_toolmem.text.embedders import Embedder, clean

REOPEN_SECONDS: Final = 1.0
"""A process that reads opens Chroma again at most this often."""
SMALL, SMALL_PART = 1_000, 200
"""Texts of a collection, and of a part, up to which they are compared one by one where the index gives too few."""
ATTEMPTS: Final = 3
"""Of asking or writing an index: as it is, opened again, rebuilt."""


class IndexedVectors(VectorStore):
    """Rows of one namespace in a folder or in RAM; see `VectorStore` and the module.

    Attributes:
        table: of the rows.
        at_behind: called with the name of a collection whose index is behind and that this process may not write.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        embedder: Embedder,
        namespace: tuple[str, ...],
        read_only: bool = False,
        at_behind: Callable[[str], object] = lambda _: None,
    ) -> None:
        super().__init__(folder, embedder=embedder, namespace=namespace, read_only=read_only)
        self.table = RowTable(folder, read_only=read_only)
        self.table.problems = self.problems
        self.at_behind = at_behind

    @property
    def empty(self) -> bool:
        """True if nothing was ever stored here."""
        return not self._closed.is_set() and not self.table.begun

    def close(self) -> None:
        super().close()
        if self._owner:
            self.table.close()

    # --- writing ---

    def upsert(
        self,
        kind: str,
        items: Sequence[VectorItem],
        *,
        vectors: Mapping[str, Sequence[float]] | None = None,
        seen: int | None = None,
    ) -> None:
        given, name = vectors or {}, self._name(kind)
        rows = {item.id: _new_row(item) for item in items}
        known = {row.key: given[row.id] for row in rows.values() if row.id in given}
        writes = self._may_index()
        if writes:  # first, so that an embedder that fails leaves everything as it was
            self._on(kind, "open", lambda _: None, None, self.embedder.dimension())
            texts = {row.key: row.text for row in rows.values() if row.key not in known}
            here = self.table.live(name, texts)
            known |= self.embedder.of({key: text for key, text in texts.items() if key not in here})
        self._put(kind, rows.values(), seen, known, writes=writes)

    def amend(self, kind: str, items: Sequence[VectorItem], *, seen: int | None = None) -> None:
        here = set(self._stored_ids(kind, [item.id for item in items]))
        rows = [_new_row(item) for item in items if item.id in here]
        self._put(kind, rows, seen, {}, writes=self._may_index())

    def _put(
        self,
        kind: str,
        rows: Any,
        seen: int | None,
        vectors: dict[str, Sequence[float]],
        *,
        writes: bool,
    ) -> None:
        self.table.put(self._name(kind), kind, self.namespace, rows, seen=seen)
        self._follow(kind, vectors, writes=writes)

    def delete(self, kind: str, ids: Sequence[str]) -> None:
        if not self.empty:
            writes = self._may_index()
            self.table.delete(self._name(kind), ids)
            self._follow(kind, {}, writes=writes)

    def drop(self, kind: str | None = None) -> None:
        if self.empty:
            return
        for each in self.kinds() if kind is None else [kind]:
            writes, name = self._may_index(), self._name(each)
            self.table.delete(name, doomed="drop")
            self._shared.items.drop(name)
            if writes:
                self._finish(each)
            else:
                self.at_behind(name)

    def scrub(self, kind: str) -> None:
        """Clear what was deleted of a kind from the disk too; from Chroma's files where this process writes them."""
        if self.empty:
            return
        writes, name = self._may_index(), self._name(kind)
        self._shared.items.drop(name)
        self.table.delete(name, [], doomed="scrub")
        self.table.scrub()
        if writes:
            self._finish(kind)
        else:
            self.at_behind(name)

    def _follow(self, kind: str, vectors: Mapping[str, Sequence[float]], *, writes: bool) -> None:
        if writes:
            self._advance(kind, vectors)
        else:
            self.at_behind(self._name(kind))

    def _may_index(self) -> bool:
        """Return True if this process writes to Chroma from now on, False if another one does, or none can."""
        if self._closed.is_set() or self.read_only:
            self.begin_write()  # says why not
        if self._forked():
            return False
        try:
            self.begin_write()
        except StorageError:
            return False
        return True

    # --- the index ---

    def catch_up(self, name: str) -> None:
        """Do for a collection what other processes left to the one that writes."""
        self.begin_write()
        for each, kind, namespace, _ in self.table.collections():
            if each == name:
                self._shared.counted.discard(name)
                self.scoped(namespace)._finish(kind)

    def rebuild(self, progress: Callable[[int], None] = lambda _: None, *, keep: bool = True) -> int:
        """Make a new Chroma from the rows; return how many there are. If it fails half-way, the next write goes on.

        `keep`: the old folder is renamed to ``chroma.corrupt-N``, else it is deleted.
        """
        self.begin_write()
        self._let_go()
        folder, done = self.folder, 0
        try:
            if folder is not None and folder.exists():
                if keep:
                    folder.rename(free_name(folder))
                else:
                    shutil.rmtree(folder)
        except OSError as error:
            raise StorageError(f"{folder} could not be rebuilt: {error}") from error
        self.table.unindex()
        for name, kind, namespace, _ in self.table.collections():
            self.scoped(namespace)._advance(kind)
            done += self.table.count(name)
            progress(done)
        return done

    def _finish(self, kind: str) -> None:
        """Bring the index up to the rows, and drop or clear what is owed."""
        name = self._name(kind)
        owed = self.table.progress(name)
        if owed.doomed == "drop":
            super().drop(kind)
        else:
            self._advance(kind)
        if owed.doomed:
            super().scrub(kind)
            self.table.settle(name, owed.changed)

    def _advance(self, kind: str, vectors: Mapping[str, Sequence[float]] | None = None) -> None:
        """Bring the index up to the rows. The process has the right to write."""
        self._repaired(kind, partial(self._advance_once, kind, dict(vectors or {})))

    def _advance_once(self, kind: str, vectors: dict[str, Sequence[float]]) -> None:
        name, shared = self._name(kind), self._shared
        with shared.indexing:
            while True:
                behind, stale = self.table.behind(name, BATCH), self.table.stale(name, BATCH)
                if behind or stale:
                    self._index(kind, behind, [key for _, key in stale], vectors)
                    last = behind[-1].number if behind else 0
                    self.table.advance(name, last, [number for number, _ in stale])
                elif name in shared.counted:
                    return
                else:
                    shared.counted.add(name)
                    self._mark_lost(kind)

    def _index(
        self, kind: str, behind: Sequence[TextRow], stale: Sequence[str], vectors: dict[str, Sequence[float]]
    ) -> None:
        texts = {row.key: row for row in behind}
        get = lambda collection: set(collection.get(ids=list(texts), include=[])["ids"])  # noqa: E731 - one line
        there: set[str] = self._on(kind, "read", get, set()) if texts else set()
        new = {key: row for key, row in texts.items() if key not in there}
        gone = set(stale) - self.table.live(self._name(kind), stale) if stale else set[str]()
        missing = [key for key in new if key not in vectors]
        if missing and stale:
            vectors |= self._moved_vectors(kind, missing, stale)
            missing = [key for key in missing if key not in vectors]
        vectors |= self.embedder.of({key: new[key].text for key in missing})

        def write(collection: Any) -> None:
            with self._alone():
                if new:
                    parts = [row.part for row in new.values()]
                    collection.upsert(
                        ids=list(new),
                        embeddings=kept_vectors([vectors[key] for key in new], list(new), parts),
                        metadatas=[{PART: part} if part else None for part in parts],
                    )
                if gone:
                    collection.delete(ids=list(gone))

        if new or gone:
            self._on(kind, "write", write, None, self.embedder.dimension() if new else None, make=bool(new))

    def _moved_vectors(
        self, kind: str, keys: Sequence[str], stale: Sequence[str]
    ) -> Iterator[tuple[str, Sequence[float]]]:
        """Yield the vectors of texts that moved to another part: they are stored under their keys of before."""
        before = {key.partition("-")[2]: key for key in stale}
        moved = {key: before[end] for key in keys if (end := key.partition("-")[2]) in before}
        if moved:
            read = lambda found: found.get(ids=list(set(moved.values())), include=["embeddings"])  # noqa: E731 - one line
            page = self._on(kind, "read", read, {"ids": [], "embeddings": []})
            known = {key: own(vector) for key, vector in zip(page["ids"], page["embeddings"], strict=True)}
            yield from ((key, known[old]) for key, old in moved.items() if old in known)

    def _mark_lost(self, kind: str) -> None:
        """Have texts indexed again that the index lost, and dropped that it has and the table has not."""
        name = self._name(kind)
        live = self.table.count_keys(name)
        if self._on(kind, "count", lambda found: int(found.count()), 0) == live:
            return
        stored = {key for page in self.pages(kind, [], size=50 * BATCH) for key in page["ids"]}
        keys = self.table.keys(name)
        if lost := keys - stored:
            self._say(f"{len(lost):,} of {live:,} texts of {kind} were missing in the index; they are indexed again")
        for some in batches(lost, PAGE):
            self.table.touch(name, some)
        self.table.forsake(name, stored - keys)

    def _repaired(self, kind: str, do: Callable[[], Any]) -> Any:
        """Return the result of `do`; after a failure of Chroma once more with files opened again, and rebuilt."""
        for attempt in range(1, ATTEMPTS):
            try:
                return do()
            except StorageError as error:
                if not is_failure_of_chroma(error):
                    raise
                self._let_go()
                if attempt == 1:
                    continue
                if not self._may_index():
                    self.at_behind(self._name(kind))
                    raise
                self._say(f"the index of {kind} could not be used and is rebuilt ({error.__cause__})")
                self._reset(kind)
        return do()

    def _reset(self, kind: str) -> None:
        """Delete the index of a kind, or all of them where that fails, and make it anew."""
        name = self._name(kind)
        try:
            with self._opened(f"delete {kind!r}") as client, self._alone():
                client.delete_collection(name)
            self.table.unindex(name)
        except StorageError as error:
            if error.__cause__ is None or self.folder is None:
                raise
            self._let_go()
            with self._alone():
                shutil.rmtree(self.folder, ignore_errors=True)
            self.table.unindex()
        self._shared.collections.pop(name, None)
        self._advance_once(kind, {})

    # --- reading ---

    def query(
        self,
        kind: str,
        text: str | Sequence[float],
        *,
        k: int,
        part: str = "",
        read: Callable[[Hit], Any] = lambda hit: hit,
        same: int | None = None,
    ) -> list[SearchHit[Any]]:
        if k <= 0 or self.empty:
            return []
        vector = self.embedder.embed_query(text) if isinstance(text, str) else text
        near = self._repaired(kind, partial(self._near, kind, vector, k, part))
        found = self.table.of_keys(self._name(kind), list(near), k if same is None else same)
        items = self._items(kind, found, read)
        hits = [SearchHit(items[row.id], row.id, near[row.key]) for row in found if items.get(row.id) is not None]
        hits.sort(key=lambda hit: -hit.similarity)
        return hits if same is not None else hits[:k]

    def _near(self, kind: str, vector: Sequence[float], k: int, part: str) -> dict[str, float]:
        """Return the keys of the k most similar texts of a part that have rows, with their cosines."""
        self._renew(kind)
        name, asked = self._name(kind), asked_vector(vector, part)

        def ask(where: Mapping[str, Any] | None, collection: Any) -> dict[str, float]:
            answer = collection.query(query_embeddings=[asked], n_results=k, where=where, include=["distances"])
            distances = dict(zip(answer["ids"][0], answer["distances"][0], strict=True))
            if len(distances) < k and (count := collection.count()) <= SMALL and count > len(distances):
                # the approximate index left some out: one of 37 texts that moved from part to part
                distances |= _distances(collection, sorted(self.table.keys(name) - distances.keys()), asked)
            return distances

        def of_part(distances: Mapping[str, float]) -> dict[str, float]:
            rows = self.table.of_keys(name, list(distances), 1)
            cosines = {row.key: cosine_of(1.0 - distances[row.key]) for row in rows if row.part == part}
            best = sorted(cosines, key=lambda key: -cosines[key])[:k]
            return {key: cosines[key] for key in best}

        nothing: dict[str, float] = {}
        distances = self._on(kind, "search", partial(ask, None), nothing, len(vector))
        near = of_part(distances)
        if part and len(near) < k <= len(distances):  # others crowd it out, or it has no more
            keys = self.table.keys_of_part(name, part, SMALL_PART + 1)
            few = len(keys) <= SMALL_PART
            again = partial(_distances, keys=keys, asked=asked) if few else partial(ask, {PART: part})
            near = of_part(self._on(kind, "search", again, nothing)) if len(keys) > len(near) else near
        if not distances and self.table.count(name):
            self.at_behind(name)
        return near

    def _items(self, kind: str, found: Sequence[FoundRow], read: Callable[[Hit], Any]) -> dict[str, Any]:
        """Return the items of rows by id, from RAM those that are as they were read."""
        name, cache = self._name(kind), self._shared.items
        items = cache.known(name, {row.id: row.number for row in found})
        keys = {row.id: row.key for row in found}
        for row in self.table.of_ids(name, [key for key in keys if key not in items]):
            if row.key == keys[row.id]:
                items[row.id] = read(_hit(row))
                cache.keep(name, row.id, row.number, items[row.id])
        return items

    def get(self, kind: str, ids: Sequence[str] | None = None) -> list[Hit]:
        if ids is None:
            return list(self.each(kind))
        wanted = dict.fromkeys(ids)
        rows = {row.id: row for some in batches(wanted, BATCH) for row in self.table.of_ids(self._name(kind), some)}
        return [_hit(rows[key]) for key in wanted if key in rows]

    def each(self, kind: str, *, owner: str = "", start: int = 0) -> Iterator[Hit]:
        if owner:
            yield from self.get(kind, self.ids(kind, owner))
            return
        while page := self.table.page(self._name(kind), start, BATCH):
            yield from map(_hit, page)
            start += len(page)

    def ids(self, kind: str, owner: str = "") -> list[str]:
        return self.table.ids(self._name(kind), owner)

    def count(self, kind: str) -> int:
        return self.table.count(self._name(kind))

    def names(self) -> set[tuple[str, tuple[str, ...]]]:
        return {(kind, namespace) for _, kind, namespace, _ in self.table.collections()}

    def state(self, kind: str) -> int:
        return self.table.progress(self._name(kind)).changed

    def vectors_of(self, kind: str, texts: Mapping[str, str]) -> dict[str, Sequence[float]]:
        rows = self.table.of_ids(self._name(kind), texts)
        keys = {row.id: row.key for row in rows if row.text == clean(texts[row.id])}
        known: dict[str, Sequence[float]] = {}
        for page in self.pages(kind, ["embeddings"], ids=sorted(set(keys.values()))):
            known |= {key: own(vector) for key, vector in zip(page["ids"], page["embeddings"], strict=True)}
        return {name: known[key] for name, key in keys.items() if key in known}

    def _stored_ids(self, kind: str, ids: Sequence[str]) -> list[str]:
        return [row.id for row in self.table.of_ids(self._name(kind), ids)]

    # --- Chroma ---

    def _turns(self) -> int:
        return self.table.turns()

    def _renew(self, kind: str) -> None:
        """Open Chroma again if another process writes and the index moved."""
        shared, name = self._shared, self._name(kind)
        if self.folder is None or shared.writer is not None or name not in shared.turns:
            return
        if time.monotonic() - shared.opened < REOPEN_SECONDS:
            return
        if self.table.progress(name).turn != shared.turns[name]:
            self._let_go()

    def _collection(self, client: Any, kind: str, dimension: int | None = None, *, make: bool = False) -> Any | None:
        name, shared = self._name(kind), self._shared
        if self.folder is None or name in shared.collections:
            return super()._collection(client, kind, dimension, make=make)
        turn = self.table.progress(name).turn  # before the files are read, which may be ahead of it
        with self._alone():
            collection = super()._collection(client, kind, dimension, make=make)
            if collection is not None and not make:
                _load(collection, kept_vectors([[1.0] * shared.collections[name][1].dimension], [""], [""]))
        shared.turns[name] = turn
        if collection is not None and shared.writer is None and name not in shared.counted:
            shared.counted.add(name)
            if collection.count() < self.table.count_keys(name, indexed=True):
                self.at_behind(name)
        return collection

    def _on(
        self,
        kind: str,
        doing: str,
        action: Callable[[Any], Any],
        missing: Any,
        dimension: int | None = None,
        *,
        make: bool = False,
    ) -> Any:
        if not make and self.folder is not None and self._shared.client is None and not self.folder.exists():
            self._refuse()
            return missing  # looking makes nothing
        return super()._on(kind, doing, action, missing, dimension, make=make)


def _load(collection: Any, vector: Any) -> None:
    """Have Chroma read the files of an index, which it does at the first question."""
    collection.query(query_embeddings=vector, n_results=1, include=[])


def _new_row(item: VectorItem) -> NewRow:
    metadata = {key: value for key, value in item.metadata.items() if value is not None}
    return NewRow(item.id, item.part, clean(item.text), metadata, item.owners or metadata.get(OWNERS, ()))


def _hit(row: TextRow) -> Hit:
    return Hit(row.id, row.text, {**row.metadata, PART: row.part} if row.part else row.metadata)


def _distances(collection: Any, keys: Sequence[str], asked: Sequence[float]) -> dict[str, float]:
    """Return the exact distances of some texts that are in the index."""
    import numpy as np  # imported where it is used

    page = collection.get(ids=list(keys), include=["embeddings"]) if keys else {"ids": []}
    if not page["ids"]:
        return {}
    rows = np.asarray(page["embeddings"], dtype=np.float32)
    cosines = rows @ np.asarray(asked, dtype=np.float32) / np.maximum(np.linalg.norm(rows, axis=1), 1e-9)
    return dict(zip(page["ids"], (1.0 - cosines).tolist(), strict=True))
