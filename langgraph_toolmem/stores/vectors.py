"""Texts that are searched by meaning, kept in Chroma.

One collection per kind ("tools", "entries", ...) and namespace, so that users are kept apart. Vectors are always passed
in, so Chroma downloads no model. Each collection carries a `Label` that names the embedder of its vectors: those of two
embedders cannot be compared.

**Parts.** Texts of one part of a collection are searched apart from the others. Chroma's metadata filter gets slow with
size (p50 of a search among 5,000 rows: 14.6 ms, without it 3.0 ms), so all rows of a part p have a direction r(p) in
common. The index also loses rows behind many equal texts, so each row has a small direction n of its own, at right
angles to r. A vector v is stored as (v, 2·r + ε·n), scaled to length 1, and a question q asked as (q, 2·r). From the
cosine s of these follows that of the texts, c = s·√5·√(5 + ε²) − 4. Only where this finds too few rows of a part, the
filter finds the rest: the index may not reach a part of few rows among many others.

**Writing anew.** `scrub` writes a collection anew, and a crash loses nothing: write ``name.new``, rename ``name.v2`` to
``name.old``, rename ``name.new`` to ``name.v2``, delete ``name.old``. A ``name.new`` next to ``name.v2`` is unfinished;
without it, it is complete and lacks its name only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from langgraph_toolmem.base.errors import ConfigurationError, EmbedderChangedError, StorageError
from langgraph_toolmem.stores.chroma import (
    ChromaConnection,
    collection_name,
    delete_collection,
    draft_name,
    final_name,
    is_not_found,
    replaced_name,
)
from langgraph_toolmem.stores.remote import Remote
from langgraph_toolmem.text.embedders import Embedder, clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")

BATCH: Final = 1000
"""Rows per call: Chroma takes 5461, a server's limit on the size of a request may be lower."""
PAGE: Final = 500
"""Rows, or collections, that are read at once."""
SMALL: Final = 1_000
"""Rows of a collection up to which those that its index leaves out are looked for."""
WAITING: Final = 64
"""Rows of a collection after which Chroma writes its index to disk. Rows that wait are put into the index again
whenever the collection is opened: with Chroma's default of 1,000, a first question takes 15 ms of 100 rows and 150 of
1,000. Writing the index of 100,000 rows takes 0.1 s."""
PART: Final = "part"
"""Key of a row's metadata: its part; not there if it has none."""
_WIDTH: Final = 64
_PULL: Final = 4.0
_SPREAD: Final = 0.2
_ASKED: Final = math.sqrt(1 + _PULL)
_KEPT: Final = math.sqrt(1 + _PULL + _SPREAD**2)


@dataclass(frozen=True, slots=True)
class VectorItem:
    """One text to keep.

    Attributes:
        id: not empty; the same id again replaces text and vector.
        metadata: str, int, float, bool or lists of them. Merged into what is there; a value ``None`` takes
            its key away.
        part: texts of one part are found together, apart from those of others; always one, or "" for all of a kind.
        owners: digests of the users and runs it comes from, so that it is found when one is forgotten; None: of the
            user who is named when it is kept.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""
    owners: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One stored text, as `RowKind.item` reads it."""

    id: str
    text: str
    metadata: dict[str, Any]


class SearchHit(NamedTuple, Generic[T]):
    """An item that was found.

    Attributes:
        item: the item.
        id: of its row.
        similarity: cosine of its text and the query, -1 to 1.
    """

    item: T
    id: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Label:
    """A collection's kind and namespace, and the embedder of its vectors."""

    kind: str
    namespace: tuple[str, ...]
    embedder: str
    dimension: int

    def to_metadata(self) -> dict[str, str | int]:
        """Return metadata for a Chroma collection."""
        return {
            "toolmem_kind": self.kind,
            "toolmem_namespace": json.dumps(self.namespace),
            "toolmem_embedder": self.embedder,
            "toolmem_dimension": self.dimension,
        }

    @staticmethod
    def from_metadata(metadata: Mapping[str, Any] | None) -> Label | None:
        """Return the label in a collection's metadata; None if this package did not make the collection."""
        try:
            found = dict(metadata or {})
            namespace = tuple(str(part) for part in json.loads(found["toolmem_namespace"]))
            dimension = int(found["toolmem_dimension"])
            return Label(str(found["toolmem_kind"]), namespace, str(found["toolmem_embedder"]), dimension)
        except (KeyError, TypeError, ValueError):
            return None

    def check(self, embedder: Embedder, where: str, dimension: int | None = None) -> None:
        """Compare the embedder, and the length of its vectors if that is known, with the stored vectors.

        Raises:
            EmbedderChangedError: names both and the way out.
        """
        if self.embedder != embedder.name or dimension not in (None, self.dimension):
            now = embedder.name if dimension is None else f"{embedder.name} ({dimension} numbers)"
            raise EmbedderChangedError(
                f"{where}: the stored vectors were made by {self.embedder} ({self.dimension} numbers), the embedder is "
                f"now {now}. Go back to the previous embedder, or embed all texts again with this one: "
                "`toolmem doctor --memory FOLDER --reembed SPEC`."
            )


class VectorStore:
    """Texts of one namespace by kind, found by meaning. Safe to use from several threads.

    Every method raises `StorageError` when Chroma or the embedder fails, and `EmbedderChangedError` when another
    embedder made the stored vectors. Of several processes on one folder one writes; see `may_write`.

    Args:
        folder: the memory's folder. None without a client: in memory, and two such stores share nothing.
        embedder: makes the vectors; see `resolve_embedder`.
        client: a synchronous chromadb client (``HttpClient``) instead of the embedded Chroma.
        namespace: whose texts these are.
        read_only: never write.
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
        place = None if folder is None or client is not None else folder / "chroma"
        self._connection = ChromaConnection(place, client, read_only=read_only, **limits)
        self._begin(embedder, namespace, owner=True)

    def _begin(self, embedder: Embedder, namespace: Any, *, owner: bool) -> None:
        if not isinstance(namespace, tuple) or not all(isinstance(part, str) for part in namespace):
            raise ConfigurationError(f"A namespace is a tuple of texts, not {namespace!r}.")
        self.embedder, self._owner = embedder, owner
        self.namespace: tuple[str, ...] = namespace
        self._collections: dict[str, tuple[Any, Label]] = {}
        self._client: Any = None  # whose collections these are

    def __enter__(self) -> VectorStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def scoped(self, namespace: tuple[str, ...]) -> VectorStore:
        """Return the same Chroma and embedder for another namespace. Cheap; closing it leaves this one open."""
        other = object.__new__(VectorStore)
        other._connection = self._connection
        other._begin(self.embedder, namespace, owner=False)
        return other

    @property
    def given(self) -> bool:
        """True if the client was given: other processes may write to the same Chroma."""
        return self._connection.given is not None

    @property
    def remote(self) -> Remote | None:
        """The server, if there is one."""
        return self._connection.remote

    @property
    def shared(self) -> bool:
        """True if other processes may write to the same Chroma now."""
        return self._connection.shared

    @property
    def read_only(self) -> bool:
        """True if nothing may ever be written here."""
        return self._connection.read_only

    @property
    def problems(self) -> Sequence[str]:
        """Damage that was found, one sentence each, for a person."""
        return self._connection.problems

    @property
    def empty(self) -> bool:
        """True if nothing can be stored here yet; does not open Chroma."""
        return self._connection.empty

    def may_write(self) -> bool:
        """Return True if this process is the one that writes to the folder or could become it now, else False.

        The first write makes a process the writing one, until it closes the folder or ends.
        """
        return self._connection.may_write()

    def close(self) -> None:
        """Let go of Chroma; what was in memory is gone. Twice is harmless; a given client stays open."""
        self._collections.clear()
        if self._owner:
            self._connection.close()

    # --- writing ---

    def upsert(
        self, kind: str, items: Sequence[VectorItem], *, vectors: Mapping[str, Sequence[float]] | None = None
    ) -> None:
        """Keep texts. Of two items with one id the later counts. If it fails half-way, do it again.

        `vectors`: those that are known already, by id.
        """
        unique = list({item.id: item for item in items}.values())
        for batch in _slices(unique, BATCH):
            known = dict(vectors or {})
            missing = [item for item in batch if item.id not in known]
            made = self.embedder.embed_documents([item.text for item in missing])
            known.update(zip((item.id for item in missing), made, strict=True))
            ids = [item.id for item in batch]
            columns: dict[str, Any] = {
                "embeddings": _kept([known[key] for key in ids], ids, [item.part for item in batch]),
                "documents": [clean(item.text) for item in batch],
                "metadatas": [_metadata(item) for item in batch],
            }
            opened = partial(self._made, kind, self.embedder.dimension())
            self._write(kind, "upsert", opened, ids=ids, **columns)

    def amend(self, kind: str, items: Sequence[VectorItem]) -> None:
        """Change metadata and parts of rows whose texts are as they were; what is gone stays gone."""
        for batch in _slices(items, BATCH):
            ids, of = [item.id for item in batch], {item.id: item.part for item in batch}
            for page in self.pages(kind, ["embeddings", "metadatas"], ids=ids):
                was = [str((each or {}).get(PART, "")) for each in page["metadatas"]]
                rows = [row for row, key in enumerate(page["ids"]) if was[row] != of[key]]
                if rows:
                    moved = [page["ids"][row] for row in rows]
                    vectors = _kept([own(page["embeddings"][row]) for row in rows], moved, [of[key] for key in moved])
                    self._write(kind, "update", ids=moved, embeddings=vectors)
            metadatas = [_metadata(item) or {} for item in batch]
            self._write(kind, "update", ids=ids, metadatas=metadatas)

    def delete(self, kind: str, ids: Sequence[str]) -> None:
        """Take texts away; ids that are not there are no error."""
        for batch in _slices(ids, BATCH):
            self._write(kind, "delete", ids=batch)

    def drop(self, kind: str | None = None) -> None:
        """Delete a kind whole, or everything of this namespace; works after a change of embedder too."""
        if self._connection.empty:
            return
        for each in self.kinds() if kind is None else [kind]:
            self._connection.begin_write()
            self._collections.pop(each, None)
            name = self._name(each)
            with self._connection.errors(f"delete {each!r}"):
                for doomed in (name, draft_name(name), replaced_name(name)):
                    delete_collection(self._connection.client(), doomed)
            self._connection.rows.drop()

    def scrub(self, kind: str) -> None:
        """Clear what was deleted of a kind from the disk too.

        Chroma keeps deleted texts in its log and in free room of its files. Nothing else may write to the kind
        meanwhile. On a server they stay until it clears them itself (``chroma vacuum``).
        """
        if self._connection.empty or self._connection.folder is None:
            return
        self._connection.begin_write()
        known = self._collection(kind)
        if known is not None:
            self._collections.pop(kind)
            with self._connection.errors(f"write {kind!r} anew"):
                self._write_anew(self._name(kind), known[1])
        self._connection.vacuum()

    def _write_anew(self, name: str, label: Label) -> None:
        client, draft, old = self._connection.client(), draft_name(name), replaced_name(name)
        if (source := self._find(name)) is None:
            return
        for doomed in (draft, old):
            delete_collection(client, doomed)
        new, offset = self._create(draft, label), 0
        include = ["documents", "metadatas", "embeddings"]
        while (page := source.get(limit=PAGE, offset=offset, include=include))["ids"]:
            new.upsert(**{name: page[name] for name in ("ids", *include)})
            offset += len(page["ids"])
        source.modify(name=old)
        new.modify(name=name)
        delete_collection(client, old)

    # --- reading ---

    def query(
        self,
        kind: str,
        text: str | Sequence[float],
        *,
        k: int,
        part: str = "",
        read: Callable[[Hit], T | None] | None = None,
    ) -> list[SearchHit[T]]:
        """Return the k texts of a part that are most similar to `text`, or to its vector, best first.

        `read`: makes an item of a row, None of a damaged one, which is left out. Items are kept in RAM: Chroma takes
        three times as long when it gives the rows too. Always the same for a kind. Without it, items are `Hit`s.
        """
        known = self._collection(kind) if k > 0 else None
        if known is None:
            return []
        vector = self.embedder.embed_query(text) if isinstance(text, str) else text
        known[1].check(self.embedder, self._connection.where, len(vector))
        asked = _asked(vector, part)
        keeps = read is not None and not self.given  # a server is asked once

        def ask(collection: Any, where: Mapping[str, Any] | None) -> tuple[list[SearchHit[T]], bool]:
            include = ["distances"] if keeps else ["documents", "metadatas", "distances"]
            answer = collection.query(query_embeddings=[asked], n_results=k, where=where, include=include)
            [keys], [distances] = answer["ids"], answer["distances"]
            if keeps:
                if len(keys) < k and (missed := _missed(collection, keys, k, where, asked)):
                    pairs = sorted([*zip(distances, keys, strict=True), *missed])
                    distances, keys = zip(*pairs, strict=True)
                rows = self._kept_rows(collection, keys, read)
            else:
                texts = zip(keys, answer["documents"][0], answer["metadatas"][0], strict=True)
                rows = {hit.id: _read(hit, read) for hit in _hits(texts)}
            found = [
                SearchHit(rows[key][1], key, _cosine(1.0 - distance))
                for key, distance in zip(keys, distances, strict=True)
                if key in rows and rows[key][0] == part and rows[key][1] is not None
            ]
            return found, len(keys) == k  # others crowd it out, or it has as many

        nothing: tuple[list[SearchHit[T]], bool] = [], False
        found, is_full = self._on(kind, "search", lambda collection: ask(collection, None), nothing)
        if part and is_full and len(found) < k:
            found, _ = self._on(kind, "search", lambda collection: ask(collection, {PART: part}), nothing)
        return found

    def _kept_rows(self, collection: Any, ids: Sequence[str], read: Any) -> dict[str, tuple[str, Any]]:
        changes, rows = self._connection.rows.known(collection.name, ids, self._connection.state())
        if missing := [key for key in ids if key not in rows]:
            page = collection.get(ids=missing, include=["documents", "metadatas"])
            texts = zip(page["ids"], page["documents"], page["metadatas"], strict=True)
            new = {hit.id: _read(hit, read) for hit in _hits(texts)}
            self._connection.rows.keep(collection.name, new, changes)
            rows |= new
        return rows

    def get(self, kind: str, ids: Sequence[str] | None = None, *, where: Mapping[str, Any] | None = None) -> list[Hit]:
        """Return the texts with these ids that are there, in the order asked; or all that meet a condition."""
        if ids is None:
            return list(self.each(kind, where=where))
        wanted = list(dict.fromkeys(ids))
        hits = {hit.id: hit for hit in self.each(kind, ids=wanted)}
        return [hits[key] for key in wanted if key in hits]

    def each(self, kind: str, **which: Any) -> Iterator[Hit]:
        """Yield texts of the kind in the order in which they came first; arguments as for `pages`."""
        for page in self.pages(kind, **which):
            yield from _hits(zip(page["ids"], page["documents"], page["metadatas"], strict=True))

    def ids(self, kind: str, where: Mapping[str, Any] | None = None) -> list[str]:
        """Return the ids of the rows that meet a condition, or of all."""
        return [key for page in self.pages(kind, [], where=where, size=50 * BATCH) for key in page["ids"]]

    def pages(
        self,
        kind: str,
        include: Sequence[str] = ("documents", "metadatas"),
        *,
        ids: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        start: int = 0,
        size: int = BATCH,
    ) -> Iterator[Mapping[str, Any]]:
        """Yield rows with these ids, or that meet a condition, or all from one on, in Chroma's columns, by pages."""
        offset = start
        while ids is None or offset < len(ids):
            which: dict[str, Any] = {"limit": size, "offset": offset, "include": list(include)}
            if ids is not None:
                which = {"ids": list(ids[offset : offset + size]), "include": list(include)}
            elif where is not None:
                which["where"] = dict(where)
            page = self._on(kind, "read", partial(_get, which), None)
            if page is None or (ids is None and not page["ids"]):
                return
            yield page
            offset += size

    def count(self, kind: str) -> int:
        """Return how many texts of the kind there are."""
        return self._on(kind, "count", lambda found: int(found.count()), 0)

    def kinds(self) -> list[str]:
        """Return the kinds this namespace has texts of, sorted."""
        return sorted({label.kind for name, label in self._labels().items() if name == self._name(label.kind)})

    def namespaces(self, kind: str) -> list[tuple[str, ...]]:
        """Return the namespaces that have texts of the kind, in no order."""
        return [label.namespace for label in self._labels().values() if label.kind == kind]

    def check(self) -> None:
        """Compare the embedder with the stored vectors.

        Raises:
            EmbedderChangedError: another one made them.
        """
        for name, label in self._labels().items():
            if name == self._name(label.kind):
                label.check(self.embedder, self._connection.where)

    # --- collections ---

    def _name(self, kind: str) -> str:
        return collection_name(self._connection.prefix, kind, self.namespace)

    def _labels(self) -> dict[str, Label]:
        """Return all complete collections of this memory, by name."""
        if self._connection.empty:
            return {}
        self._connection.relieve()
        found: dict[str, Label] = {}
        with self._connection.errors("list the collections"):
            client, offset = self._connection.client(), 0
            while page := client.list_collections(limit=PAGE, offset=offset):
                for collection in page:
                    label, name = Label.from_metadata(collection.metadata), final_name(collection.name)
                    if label is not None and name is not None and self._connection.owns(name):
                        found[name] = label
                offset += len(page)
        return found

    def _find(self, name: str) -> Any | None:
        """Return the collection of that name; None if there is none. A complete draft gets its name."""
        client = self._connection.client()
        for each in (name, draft_name(name)):
            try:
                collection = client.get_collection(each, embedding_function=None)
            except Exception as error:
                if not is_not_found(error):
                    raise
            else:
                if each != name:
                    collection.modify(name=name)
                return collection
        return None

    def _collection(self, kind: str) -> tuple[Any, Label] | None:
        """Return the collection and its label; None if nothing of the kind was ever stored."""
        if self._connection.empty:
            return None
        with self._connection.errors(f"open {kind!r}"):  # nobody closes the client meanwhile
            client = self._connection.client()  # raises in a forked process and after `close`
            if client is not self._client:
                self._collections.clear()
                self._client = client
            known = self._collections.get(kind)
            if known is None and (collection := self._find(self._name(kind))) is not None:
                known = self._remember(kind, collection)
        return known

    def _remember(self, kind: str, collection: Any) -> tuple[Any, Label]:
        label = Label.from_metadata(collection.metadata)
        if label is None:
            raise StorageError(
                f"{self._connection.where}: the collection {collection.name!r} was not made by this package. "
                "Delete or rename it, or choose another namespace."
            )
        label.check(self.embedder, self._connection.where)
        self._collections[kind] = collection, label
        self._connection.use(collection.name)
        return collection, label

    def _made(self, kind: str, dimension: int) -> tuple[Any, Label]:
        """Return the collection for vectors of that length; make it if it is not there."""
        known = self._collection(kind)
        if known is None:
            label = Label(kind, self.namespace, self.embedder.name, dimension)
            with self._connection.errors(f"make {kind!r}"):
                known = self._remember(kind, self._create(self._name(kind), label))
        known[1].check(self.embedder, self._connection.where, dimension)
        return known

    def _create(self, name: str, label: Label) -> Any:
        hnsw = {"space": "cosine", "sync_threshold": WAITING, "batch_size": WAITING}
        how: dict[str, Any] = {"metadata": label.to_metadata(), "configuration": {"hnsw": hnsw}}
        try:
            return self._connection.client().create_collection(name, embedding_function=None, **how)
        except Exception:
            made_meanwhile = self._find(name)  # by another worker, on a server
            if made_meanwhile is None:
                raise
            return made_meanwhile

    def _write(self, kind: str, method: str, opened: Callable[[], Any] | None = None, **columns: Any) -> None:
        if opened is not None or not self._connection.empty:
            self._connection.begin_write()
            try:
                self._on(kind, "write", lambda collection: getattr(collection, method)(**columns), None, opened)
            finally:
                self._connection.rows.drop(self._name(kind), columns["ids"])

    def _on(
        self,
        kind: str,
        doing: str,
        action: Callable[[Any], T],
        missing: T,
        opened: Callable[[], tuple[Any, Label] | None] | None = None,
    ) -> T:
        """Do something with a collection; once more if it was replaced meanwhile by another handle on it."""
        self._connection.relieve()
        for last in (False, True):
            try:
                with self._connection.errors(f"{doing} {kind!r}"):
                    known = opened() if opened is not None else self._collection(kind)
                    return missing if known is None else action(known[0])
            except StorageError as error:
                if last or not is_not_found(error.__cause__):
                    raise
                self._collections.pop(kind, None)
        return missing


def own(vector: Sequence[float]) -> list[float]:
    """Return the text's own vector, of length 1, from a stored one."""
    return [float(value) * _KEPT for value in vector[:-_WIDTH]]


def _direction(name: str) -> NDArray[Any]:
    """Return a vector of length 1, another one for another name."""
    import numpy as np  # imported where it is used

    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_WIDTH // 8).digest()
    made: NDArray[Any] = (np.unpackbits(np.frombuffer(digest, np.uint8)) * 2.0 - 1.0) / math.sqrt(_WIDTH)
    return made


_part_direction = lru_cache(maxsize=1024)(lambda part: _direction(f"part {part}"))


def _kept(vectors: Sequence[Sequence[float]], ids: Sequence[str], parts: Sequence[str]) -> NDArray[Any]:
    """Return texts' vectors of length 1 as they are stored for rows of some parts."""
    import numpy as np  # imported where it is used

    common = np.array([_part_direction(part) for part in parts])
    rows = np.array([_direction(f"row {key}") for key in ids])
    along = (common * rows).sum(axis=1, keepdims=True)
    rest = _SPREAD / np.sqrt(np.maximum(1 - along**2, 1e-6))
    behind = (math.sqrt(_PULL) - rest * along) * common + rest * rows
    kept: NDArray[Any] = np.hstack([np.asarray(vectors, dtype=np.float64), behind]) / _KEPT
    return kept


def _missed(
    collection: Any, found: Sequence[str], k: int, where: Mapping[str, Any] | None, asked: Sequence[float]
) -> list[tuple[float, str]]:
    """Return distance and id of rows that the approximate index left out though there was room.

    Seen for rows that moved from part to part; in a large collection one row more or less is not looked for.
    """
    count = collection.count()
    if count > SMALL or (where is None and count == len(found)):
        return []
    left = set(collection.get(where=where, include=[])["ids"]).difference(found)
    if not left:
        return []
    import numpy as np  # imported where it is used

    page = collection.get(ids=sorted(left), include=["embeddings"])
    rows = np.asarray(page["embeddings"], dtype=np.float32)
    cosines = rows @ np.asarray(asked, dtype=np.float32) / np.maximum(np.linalg.norm(rows, axis=1), 1e-9)
    order = np.argsort(-cosines, kind="stable")[: k - len(found)]
    return [(1.0 - float(cosines[place]), page["ids"][place]) for place in order]


def _asked(vector: Sequence[float], part: str) -> list[float]:
    """Return a question's vector of length 1 as the rows of a part are compared with it."""
    size = math.sqrt(_PULL)
    return [value / _ASKED for value in (*vector, *(size * each for each in _part_direction(part).tolist()))]


def _cosine(similarity: float) -> float:
    """Return the cosine of question and text, from that of the vectors as they are asked and stored."""
    return max(-1.0, min(1.0, similarity * _ASKED * _KEPT - _PULL))


def _slices(items: Sequence[T], size: int) -> Iterator[list[T]]:
    return (list(items[start : start + size]) for start in range(0, len(items), size))


def _metadata(item: VectorItem) -> dict[str, Any] | None:
    # Chroma takes no empty metadata and its Rust part no lone surrogates.
    cleaned = {key: clean(value) if isinstance(value, str) else value for key, value in item.metadata.items()}
    return cleaned | ({PART: item.part} if item.part else {}) or None


def _hits(rows: Iterable[tuple[str, str | None, Mapping[str, Any] | None]]) -> Iterator[Hit]:
    return (Hit(key, text or "", dict(metadata or {})) for key, text, metadata in rows)


def _read(hit: Hit, read: Callable[[Hit], Any] | None) -> tuple[str, Any]:
    return hit.metadata.get(PART, ""), hit if read is None else read(hit)


def _get(which: Mapping[str, Any], collection: Any) -> Any:
    return collection.get(**which)
