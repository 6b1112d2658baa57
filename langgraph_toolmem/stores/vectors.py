"""Texts that are searched by meaning, kept in Chroma.

One collection per kind ("tools", "entries", ...) and namespace: Chroma's metadata filters get slow with
size, and a collection of one's own keeps users apart. Vectors are always passed in, so Chroma downloads no
model.

**One process per folder.** Embedded Chroma gives a second process on the same folder silently old answers.
The owner of the folder is guarded elsewhere (the graph's lock); this module trusts that. Several processes
share one memory through ``chroma run`` and ``client=chromadb.HttpClient(...)``. A process forked while
Chroma is open cannot use it (Chroma's threads are gone, calls would hang): such a call is a clear
`StorageError`.

On disk: ``<folder>/chroma/`` belongs to Chroma; ``<folder>/vectors.json`` says which embedder made the
vectors, so that `VectorStore.check` can compare without opening Chroma.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.search.embedders import Embedder, clean
from langgraph_toolmem.stores import exact, parts
from langgraph_toolmem.stores import reembed as collections
from langgraph_toolmem.stores.chroma import ChromaConnection
from langgraph_toolmem.stores.collections import BATCH, Collections
from langgraph_toolmem.stores.items import Hit, VectorItem
from langgraph_toolmem.stores.manifest import Manifest, require_same
from langgraph_toolmem.stores.remote import Remote

__all__ = ["Hit", "VectorItem", "VectorStore"]

T = TypeVar("T")

REFRESH_SECONDS: Final = 30.0
"""Where several processes write, what others wrote is looked for this often."""


class VectorStore(Collections):
    """Texts of one namespace by kind, found by meaning. Safe to use from several threads.

    Every method raises `StorageError` when Chroma or the embedder fails, and `EmbedderChangedError` when
    what is stored was made by another embedder.

    Args:
        folder: the memory's folder. ``None`` without a client: in memory, and two such stores share nothing.
        embedder: makes the vectors; see `resolve_embedder`.
        client: a synchronous chromadb client (``HttpClient``) instead of the embedded Chroma.
        namespace: whose texts these are.
        read_only: another process may be writing to the folder: nothing in it is mended.
        limits: for calls to a server (`Remote`).

    Raises:
        ConfigurationError: the namespace is not a tuple of texts, or the client is asynchronous.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        embedder: Embedder,
        client: Any | None = None,
        namespace: tuple[str, ...],
        read_only: bool = False,
        **limits: float,
    ) -> None:
        embedded = folder if client is None else None
        self.embedder = embedder
        self.namespace = _checked(namespace)
        place = embedded / "chroma" if embedded else None
        self._connection = ChromaConnection(place, client, read_only=read_only, **limits)
        self._manifest = Manifest(embedded / "vectors.json") if embedded else None
        self._collections = {}
        self._client = None
        self._owner = True

    def __enter__(self) -> VectorStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def given(self) -> bool:
        """Whether the client was given: other processes may write to the same Chroma."""
        return self._connection.given is not None

    @property
    def remote(self) -> Remote | None:
        """The server, if there is one."""
        return self._connection.remote

    @property
    def read_only(self) -> bool:
        """Whether another process writes to the folder."""
        return self._connection.read_only

    @property
    def problems(self) -> Sequence[str]:
        """What was damaged, one sentence each, for a person."""
        return self._connection.problems

    def forked(self) -> None:
        """In a process that is forked off nothing is written."""
        self._connection.read_only = True

    def scoped(self, namespace: tuple[str, ...]) -> VectorStore:
        """The same Chroma and embedder for another namespace. Cheap; closing it leaves this one open."""
        other = object.__new__(VectorStore)
        other.embedder = self.embedder
        other.namespace = _checked(namespace)
        other._connection, other._manifest = self._connection, self._manifest
        other._collections, other._client, other._owner = {}, None, False
        return other

    def upsert(
        self, kind: str, items: Sequence[VectorItem], *, vectors: Mapping[str, Sequence[float]] | None = None
    ) -> None:
        """Keep texts. Of two items with one id the later counts. If it fails half-way, do it again.

        `vectors`: those that are known already, by id.
        """
        for batch in _batches(items):
            known = dict(vectors or {})
            missing = [item for item in batch if item.id not in known]
            made = self.embedder.embed_documents([item.text for item in missing])
            known.update(zip((item.id for item in missing), made, strict=True))
            self._put(kind, batch, [known[item.id] for item in batch])

    def query(
        self, kind: str, text: str | Sequence[float], *, k: int, where: Mapping[str, Any] | None = None, part: str = ""
    ) -> list[Hit]:
        """The k texts most similar to `text`, or to its vector, best first.

        `where` is Chroma's filter on metadata, slow in large collections; several keys in it must all hold. Of a
        collection with parts (`VectorItem.part`) one is searched.
        """
        known = self._collection(kind) if k > 0 else None
        if known is None:
            return []
        vector = self.embedder.embed_query(text) if isinstance(text, str) else text
        label, asked, condition = known[1], parts.asked(vector, part), _condition(where)
        require_same(label.embedder, label.dimension, self.embedder, self._connection.where, now=len(vector))

        def ask(collection: Any) -> list[Hit]:
            answer = collection.query(
                query_embeddings=[asked],
                n_results=k,
                where=condition,
                include=["documents", "metadatas", "distances"],
            )
            columns = [answer[name][0] for name in ("ids", "documents", "metadatas", "distances")]
            if len(columns[0]) < k:
                columns = exact.nearest(collection, asked, k, condition, len(columns[0])) or columns
            return [
                Hit(key, text or "", dict(metadata or {}), max(-1.0, min(1.0, parts.cosine(1.0 - distance))))
                for key, text, metadata, distance in zip(*columns, strict=True)
                if (metadata or {}).get(parts.KEY, "") == part
            ]

        return self._on(kind, "search", ask, [])

    def get(self, kind: str, ids: Sequence[str] | None = None, *, where: Mapping[str, Any] | None = None) -> list[Hit]:
        """The texts with these ids that are there, in the order asked; without ids, all that meet a condition."""
        if ids is None:
            return list(self.each(kind, where=where))
        wanted = list(dict.fromkeys(ids))

        def read(collection: Any) -> dict[str, Hit]:
            parts = (wanted[start : start + BATCH] for start in range(0, len(wanted), BATCH))
            return {hit.id: hit for part in parts for hit in _hits(collection.get(ids=part))}

        none: dict[str, Hit] = {}
        hits = self._on(kind, "read", read, none)
        return [hits[key] for key in wanted if key in hits]

    def each(
        self, kind: str, *, where: Mapping[str, Any] | None = None, start: int = 0, size: int = BATCH
    ) -> Iterator[Hit]:
        """All texts of the kind that meet a condition, in the order in which they came first, from one on."""
        for page in self.pages(kind, ["documents", "metadatas"], where=where, start=start, size=size):
            yield from _hits(page)

    def some(self, kind: str, *, start: int, size: int) -> list[Hit]:
        """So many texts of the kind from one on, in the order in which they came first."""
        return list(islice(self.each(kind, start=start, size=min(size, BATCH)), size))

    def amend_items(self, kind: str, items: Sequence[VectorItem], *, moved: Sequence[VectorItem] = ()) -> None:
        """Changes metadata; texts are taken to be as they were. `moved`: those that have another part now.

        What is gone stays gone.
        """
        of = {item.id: item.part for item in moved}
        for page in self.pages(kind, ["embeddings"], ids=list(of)):
            found = zip(page["ids"], page["embeddings"], strict=True)
            vectors = [parts.kept(parts.own(vector), key, of[key]) for key, vector in found]
            self._on(kind, "write", partial(_place, ids=list(page["ids"]), embeddings=vectors), None)
        self.amend(kind, {item.id: _metadata(item) or {} for item in items})

    def delete(self, kind: str, ids: Sequence[str]) -> None:
        """Take texts away; ids that are not there are no error."""
        for start in range(0, len(ids), BATCH):
            self._on(kind, "delete", partial(_delete, ids=list(ids[start : start + BATCH])), None)

    def count(self, kind: str) -> int:
        """How many texts of the kind there are."""
        return self._on(kind, "count", lambda found: int(found.count()), 0)

    def drop(self, kind: str | None = None) -> None:
        """Delete a kind whole, or everything of this namespace; works after a change of embedder too."""
        for each in self.kinds() if kind is None else [kind]:
            self._collections.pop(each, None)
            if self._connection.empty:
                continue
            with self._connection.errors(f"delete {each!r}"):
                collections.remove(self._connection.client(), self._name(each))

    def scrub(self, kind: str) -> None:
        """What was deleted of a kind goes from the disk too.

        Chroma keeps deleted texts in its log and in free room of its files. Nothing else may write to the kind
        meanwhile. On a server they stay until it clears them itself (``chroma vacuum``).
        """
        if self._connection.empty or self._connection.folder is None:
            return
        self._collections.pop(kind, None)
        self._collection(kind)  # a damaged one is mended
        collections.rewrite(self._connection, self._name(kind))
        self._connection.vacuum()

    def kinds(self) -> list[str]:
        """The kinds this namespace has texts of, sorted."""
        return sorted({label.kind for label in self._labels()})

    @property
    def empty(self) -> bool:
        """Whether nothing can be stored here yet; tells without opening Chroma."""
        return self._connection.empty

    def check(self) -> None:
        """Compare the embedder with the stored vectors. Opens Chroma only if a folder has no manifest.

        Raises:
            EmbedderChangedError: another one made them.
        """
        if self._manifest is not None:
            folder = self._connection.folder
            if folder is None or not folder.exists():
                return
            made_by = self._manifest.read()
            if made_by is not None:
                require_same(*made_by, self.embedder, self._connection.where)
                return
        for label in self._labels():
            require_same(label.embedder, label.dimension, self.embedder, self._connection.where)

    def reembed(
        self, *, within: tuple[str, ...] | None = None, progress: Callable[[int, int], None] | None = None
    ) -> dict[str, int]:
        """Make all vectors again that another embedder made. Nothing else may write meanwhile.

        A crash half-way loses nothing; do it again. What the present embedder made is left alone.

        Args:
            within: only namespaces that begin with it. By default all of a folder, whose manifest names one
                embedder for all; with a client, whose database may hold other memories, this namespace.
            progress: called with (texts done, texts in all).

        Returns:
            Texts embedded again, by kind.
        """
        if within is None:
            within = self.namespace if self._connection.given is not None else ()
        if self._connection.empty:
            return {}
        self._collections.clear()
        done = collections.reembed(self._connection, self.embedder, within, progress)
        self._collections.clear()
        if self._manifest is not None and not within:
            self._manifest.write(self.embedder.name, self.embedder.dimension())
        return done

    def size(self) -> dict[str, Any]:
        """``{"kinds": {kind: texts}, "bytes": on disk or None, "embedder": name, "dimension": n or None}``.

        Embedder and dimension are those of what is stored, or the present embedder's name if nothing is.
        """
        labels = self._labels()
        folder = self._connection.folder
        with self._connection.errors("measure the folder"):
            used = None if folder is None else sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        with self._connection.errors("count"):
            counts = {label.kind: self._count(label.kind) for label in labels}
        return {
            "kinds": dict(sorted(counts.items())),
            "bytes": used,
            "embedder": labels[0].embedder if labels else self.embedder.name,
            "dimension": labels[0].dimension if labels else None,
        }

    def close(self) -> None:
        """Let go of Chroma; what was in memory is gone. Twice is harmless; a given client stays open."""
        self._collections.clear()
        if self._owner:
            self._connection.close()

    def _count(self, kind: str) -> int:
        """As `count`, also of what another embedder made."""
        return int(collections.opened(self._connection, self._name(kind)).count())

    def _put(self, kind: str, batch: Sequence[VectorItem], vectors: Sequence[Sequence[float]]) -> None:
        documents, metadatas = [clean(item.text) for item in batch], [_metadata(item) for item in batch]
        kept = [parts.kept(vector, item.id, item.part) for item, vector in zip(batch, vectors, strict=True)]
        self.write(kind, [item.id for item in batch], embeddings=kept, documents=documents, metadatas=metadatas)


def _checked(namespace: Any) -> tuple[str, ...]:
    if not isinstance(namespace, tuple) or not all(isinstance(part, str) for part in namespace):
        raise ConfigurationError(f"A namespace is a tuple of texts, not {namespace!r}.")
    checked: tuple[str, ...] = namespace
    return checked


def _batches(items: Sequence[VectorItem]) -> Iterator[list[VectorItem]]:
    """Parts of at most `BATCH` items; of two with one id only the later."""
    unique = list({item.id: item for item in items}.values())
    for start in range(0, len(unique), BATCH):
        yield unique[start : start + BATCH]


def _metadata(item: VectorItem) -> dict[str, Any] | None:
    # Chroma takes no empty metadata and its Rust part no lone surrogates.
    cleaned = {key: clean(value) if isinstance(value, str) else value for key, value in item.metadata.items()}
    return cleaned | ({parts.KEY: item.part} if item.part else {}) or None


def _place(collection: Any, **columns: Any) -> None:
    collection.update(**columns)


def _delete(collection: Any, ids: list[str]) -> None:
    collection.delete(ids=ids)


def _hits(page: Mapping[str, Any]) -> Iterator[Hit]:
    for key, text, metadata in zip(page["ids"], page["documents"], page["metadatas"], strict=True):
        yield Hit(key, text or "", dict(metadata or {}))


def _condition(where: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not where:
        return None
    if len(where) == 1:
        return dict(where)
    return {"$and": [{key: value} for key, value in where.items()]}
