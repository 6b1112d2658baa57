"""Texts that are searched by meaning, stored in Chroma: embedded in the memory's folder, in RAM, or on a server.

A collection holds the texts of one kind and namespace. Vectors are always passed in, so Chroma downloads no model.
`chroma` opens and closes Chroma and owns the right to write.

**Parts.** Texts of one part of a collection are searched separately. Chroma's metadata filter gets slow with size (p50
of a search among 5,000 rows: 14.6 ms, without it 3.0 ms), so all rows of a part p share a direction r(p). The index
also loses rows among many equal texts, so each row has a small direction n of its own, orthogonal to r. A vector v is
stored as (v, 2·r + ε·n), scaled to length 1, and a question q asked as (q, 2·r). From the cosine s of these follows
that of the texts, c = s·√5·√(5 + ε²) − 4 (`PartDirections`). Only if this finds too few rows, Chroma's filter finds the
rest: the index may not reach a part of few rows among many others.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.chroma import (
    CHROMA_LIMITS,
    ChromaAccess,
    CollectionLabel,
    OpenCollection,
    collection_name,
    create_collection,
    delete_collection,
    draft_name,
    find_collection,
    is_not_found,
    no_turns,
    replaced_name,
)
from langgraph_toolmem.text.embedders import Embedder, clean

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self


T = TypeVar("T")

PART: Final = "part"
"""Key of a row's metadata: its part; missing without a part."""
OWNERS: Final = "of"
"""Key of a row's metadata: digests of its users and runs."""


@dataclass(frozen=True, slots=True)
class VectorItem:
    """One text to keep; the same id again replaces text and vector.

    Attributes:
        metadata: str, int, float, bool or lists of them, merged into existing metadata; a value None removes its key.
        part: texts of one part are searched separately from others; always one part, or "" for all texts of a kind.
        owners: digests of the users and runs it comes from, so that it is found when one is forgotten. Defaults to the
            user who is named when it is kept.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""
    owners: tuple[str, ...] | None = None


class Hit(NamedTuple):
    """One stored text."""

    id: str
    text: str
    metadata: dict[str, Any]


class SearchHit(NamedTuple, Generic[T]):
    """A found item, the id of its row, and the cosine of its text and the query, -1 to 1."""

    item: T
    id: str
    similarity: float


def as_stored(hit: Hit) -> Hit:
    """Return a stored text as it is, for searches without items."""
    return hit


class VectorStore:
    """Texts of one namespace by kind, found by meaning. Safe to use from several threads.

    Every method raises `StorageError` when Chroma or the embedder fails, and `EmbedderChangedError` when another
    embedder made the stored vectors. Of several processes on one folder one writes; see `ChromaAccess.may_write`.

    Args:
        folder: the memory's folder. None without a client means in memory, where two stores share nothing.
        client: a synchronous chromadb client (``HttpClient``) instead of the embedded Chroma; it is never closed here.
        turns, problems: see `ChromaAccess`.

    Attributes:
        chroma: opens and closes Chroma, and owns the right to write.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        embedder: Embedder,
        client: Any | None = None,
        namespace: tuple[str, ...],
        read_only: bool = False,
        turns: Callable[[], int] = no_turns,
        problems: list[str] | None = None,
    ) -> None:
        self.chroma = ChromaAccess(folder, client=client, read_only=read_only, turns=turns, problems=problems)
        self.embedder = embedder
        self.namespace = namespace
        self._owner = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def scoped(self, namespace: tuple[str, ...]) -> Self:
        """Return the same Chroma and embedder for another namespace. Cheap; closing it leaves this one open."""
        other = copy.copy(self)
        other.namespace = namespace
        other._owner = False
        return other

    def close(self) -> None:
        """Close Chroma; what was in memory is gone. Twice is harmless; a given client stays open."""
        if self._owner:
            self.chroma.close()

    @property
    def empty(self) -> bool:
        """True if nothing can be stored here yet, so that a question need not open Chroma."""
        return self.chroma.empty

    def forget_rows(self) -> None:
        """Drop the rows that are kept in RAM."""
        self.chroma.shared.items.forget()

    # --- writing ---

    def upsert(
        self,
        kind: str,
        items: Sequence[VectorItem],
        *,
        vectors: Mapping[str, Sequence[float]] | None = None,
        seen: int | None = None,
    ) -> None:
        """Keep texts. Of two items with one id the later counts. If it fails half-way, call it again.

        Args:
            kind: of the texts.
            items: the texts.
            vectors: known vectors, by id.
            seen: `state` when the replaced rows were read.

        Raises:
            MovedError: another process of the folder wrote to the collection since `seen`; the collection is unchanged.
        """
        known = dict(vectors or {})
        latest = {item.id: item for item in items}
        for batch in batches(latest.values(), CHROMA_LIMITS.batch):
            missing = [item for item in batch if item.id not in known]
            embedded = self.embedder.embed_documents([item.text for item in missing])
            for item, vector in zip(missing, embedded, strict=True):
                known[item.id] = vector
            self._write(kind, "upsert", _columns_of(batch, known), self.embedder.dimension())

    def amend(self, kind: str, items: Sequence[VectorItem], *, seen: int | None = None) -> None:
        """Change metadata and parts of rows with unchanged texts; deleted rows stay deleted. `seen`: as above."""
        for batch in batches(items, CHROMA_LIMITS.batch):
            parts = {item.id: item.part for item in batch}
            for page in self.pages(kind, ["embeddings", "metadatas"], ids=[item.id for item in batch]):
                self._move(kind, page, parts)
            metadatas = [_metadata(item) for item in batch]
            self._write(kind, "update", {"ids": [item.id for item in batch], "metadatas": metadatas})

    def _move(self, kind: str, page: Mapping[str, Any], parts: Mapping[str, str]) -> None:
        """Give rows with a new part the vectors of that part."""
        ids, own_vectors, new_parts = [], [], []
        for key, metadata, stored in zip(page["ids"], page["metadatas"], page["embeddings"], strict=True):
            before = str((metadata or {}).get(PART, ""))
            if before != parts[key]:
                ids.append(key)
                own_vectors.append(DIRECTIONS.text_vector(stored))
                new_parts.append(parts[key])
        if ids:
            self._write(kind, "update", {"ids": ids, "embeddings": DIRECTIONS.stored(own_vectors, ids, new_parts)})

    def delete(self, kind: str, ids: Sequence[str]) -> None:
        for batch in batches(ids, CHROMA_LIMITS.batch):
            self._write(kind, "delete", {"ids": batch})

    def drop(self, kind: str | None = None) -> None:
        """Delete a kind whole, or everything of this namespace; works after a change of embedder too."""
        if self.empty:
            return
        doomed_kinds = self.kinds() if kind is None else [kind]
        for doomed in doomed_kinds:
            self.chroma.begin_write()
            name = self._name(doomed)
            with self.chroma.opened(f"delete {doomed!r}") as client:
                self.chroma.shared.collections.pop(name, None)
                # A killed `scrub` may have left the texts under another name.
                for collection in (name, draft_name(name), replaced_name(name)):
                    delete_collection(client, collection)

    def scrub(self, kind: str) -> None:
        """Clear deleted texts of a kind from the disk too: Chroma keeps them in its log and in free space of its
        files.

        The kind must not be written meanwhile. On a server ``chroma vacuum`` does it.
        """
        if self.empty or self.chroma.folder is None:
            return
        self.chroma.begin_write()
        with self.chroma.opened(f"rewrite {kind!r}") as client:
            source = self._collection(client, kind)
            if source is not None:
                self._rewrite(client, kind, source)
        # Only a closed Chroma's files can be cleared.
        self.chroma.close_client(vacuum=True)

    def _rewrite(self, client: Any, kind: str, source: Any) -> None:
        name = self._name(kind)
        draft, replaced = draft_name(name), replaced_name(name)
        label = self.chroma.shared.collections.pop(name).label
        delete_collection(client, draft)
        delete_collection(client, replaced)
        rewritten = create_collection(client, draft, label)
        offset = 0
        # By pages: a collection may be larger than the memory of this process.
        while True:
            page = source.get(limit=CHROMA_LIMITS.page, offset=offset, include=["metadatas", "embeddings"])
            if not page["ids"]:
                break
            rewritten.upsert(ids=page["ids"], metadatas=page["metadatas"], embeddings=page["embeddings"])
            offset += len(page["ids"])
        # From here to the end a kill leaves two collections, of which `find_collection` takes the new one.
        source.modify(name=replaced)
        rewritten.modify(name=name)
        delete_collection(client, replaced)

    # --- reading ---

    def query(
        self,
        kind: str,
        text: str | Sequence[float],
        *,
        k: int,
        vector: Sequence[float] | None = None,
        part: str = "",
        read: Callable[[Hit], Any] = as_stored,
        same: int | None = None,
    ) -> list[SearchHit[Any]]:
        """Return the k rows of a part whose texts are most similar to `text`, or to its vector, best first.

        Args:
            kind: of the texts.
            text: the question, or its vector.
            k: how many.
            vector: of the question, if it is known already.
            part: of the texts.
            read: makes an item of a row, None of a damaged one, which is left out; always the same for a kind.
            same: the rows of the k most similar *texts*, at most so many of each, the latest first; on a server k rows.
        """
        del same
        if k <= 0 or self.empty:
            return []
        asked = self._vector(text) if vector is None else vector
        question = _Question(DIRECTIONS.question(asked, part), k, part, read)
        nothing = _Answer([], is_full=False)
        answer = self._on(kind, "search", question.ask, nothing, len(asked))
        if part and answer.is_full and len(answer.hits) < k:  # other parts crowd it out, or it has as many
            answer = self._on(kind, "search", question.ask_filtered, nothing)
        return answer.hits

    def _vector(self, text: str | Sequence[float]) -> Sequence[float]:
        if isinstance(text, str):
            return self.embedder.embed_query(text)
        return text

    def state(self, kind: str) -> int | None:
        """Return a number that changes with every write to a kind by any process; None if unknown."""
        del kind
        return None

    def get(self, kind: str, ids: Sequence[str] | None = None) -> list[Hit]:
        """Return the existing texts with these ids, in the given order; or all."""
        if ids is None:
            return list(self.each(kind))
        wanted = list(dict.fromkeys(ids))
        hits: dict[str, Hit] = {}
        for page in self.pages(kind, ids=wanted):
            for hit in _hits(page):
                hits[hit.id] = hit
        return [hits[key] for key in wanted if key in hits]

    def each(self, kind: str, *, owner: str = "", start: int = 0) -> Iterator[Hit]:
        """Yield texts in the order of their first arrival, from one on; those of an owner (digest) if named."""
        for page in self.pages(kind, owner=owner, start=start):
            yield from _hits(page)

    def ids(self, kind: str, owner: str = "") -> list[str]:
        """Return the ids of all texts, or of those of an owner (digest)."""
        return self._indexed_ids(kind, owner)

    def _indexed_ids(self, kind: str, owner: str = "") -> list[str]:
        ids: list[str] = []
        for page in self.pages(kind, [], owner=owner, size=50 * CHROMA_LIMITS.batch):
            ids += page["ids"]
        return ids

    def pages(
        self,
        kind: str,
        include: Sequence[str] = ("documents", "metadatas"),
        *,
        ids: Sequence[str] | None = None,
        owner: str = "",
        start: int = 0,
        size: int | None = None,
    ) -> Iterator[Mapping[str, Any]]:
        """Yield rows with these ids, or of an owner, or all from one on, in Chroma's columns, by pages."""
        step = size or CHROMA_LIMITS.batch
        where = None
        if owner:
            where = {OWNERS: {"$contains": owner}}
        offset = start
        while ids is None or offset < len(ids):
            if ids is None:
                wanted: dict[str, Any] = {"limit": step, "offset": offset, "where": where}
            else:
                wanted = {"ids": list(ids[offset : offset + step])}
            wanted["include"] = list(include)
            page = self._on(kind, "read", _Fetch(wanted), None)
            if page is None or (ids is None and not page["ids"]):
                return
            yield page
            offset += step

    def count(self, kind: str) -> int:
        return self._indexed_count(kind)

    def _indexed_count(self, kind: str) -> int:
        return self._on(kind, "count", _count, 0)

    def labels(self) -> set[CollectionLabel]:
        """Return the labels of all collections of this memory, in all namespaces."""
        labels: set[CollectionLabel] = set()
        if self.empty:
            return labels
        with self.chroma.opened("list the collections") as client:
            offset = 0
            while page := client.list_collections(limit=CHROMA_LIMITS.page, offset=offset):
                for collection in page:
                    label = CollectionLabel.from_metadata(collection.metadata)
                    if label is not None and collection.name.startswith(f"{self.chroma.prefix}."):
                        labels.add(label)
                offset += len(page)
        return labels

    def namespaces(self, kind: str) -> set[tuple[str, ...]]:
        """Return the namespaces of this memory with a collection of a kind."""
        return {label.namespace for label in self.labels() if label.kind == kind}

    def kinds(self) -> list[str]:
        """Return the kinds of this namespace, sorted."""
        return sorted(label.kind for label in self.labels() if label.namespace == self.namespace)

    def vectors_of(self, kind: str, texts: Mapping[str, str]) -> dict[str, Sequence[float]]:
        """Return the stored vectors of texts, given by id, for unchanged texts."""
        vectors: dict[str, Sequence[float]] = {}
        for page in self.pages(kind, ["documents", "embeddings"], ids=list(texts)):
            for key, document, stored in zip(page["ids"], page["documents"], page["embeddings"], strict=True):
                if document == clean(texts[key]):
                    vectors[key] = DIRECTIONS.text_vector(stored)
        return vectors

    def check(self) -> None:
        """Raise EmbedderChangedError if another embedder made the stored vectors of this namespace."""
        for label in self.labels():
            if label.namespace == self.namespace:
                label.check(self.embedder, self.chroma.where)

    # --- collections ---

    def _name(self, kind: str) -> str:
        return collection_name(self.chroma.prefix, kind, self.namespace)

    def _collection(self, client: Any, kind: str, dimension: int | None = None, *, make: bool = False) -> Any | None:
        """Return the collection, checked for vectors of that length; None if it does not exist and must not be made."""
        name = self._name(kind)
        known = self.chroma.shared.collections.get(name)
        if known is None:
            collection = find_collection(client, name)
            if collection is None and make:
                label = CollectionLabel(kind, self.namespace, self.embedder.name, dimension or 0)
                collection = create_collection(client, name, label)
            if collection is None:
                return None
            stored = CollectionLabel.from_metadata(collection.metadata)
            if stored is None:
                raise StorageError(
                    f"{self.chroma.where}: the collection {name!r} was not made by this package. "
                    "Delete or rename it, or choose another namespace."
                )
            known = OpenCollection(collection, stored)
            self.chroma.shared.collections[name] = known
        known.label.check(self.embedder, self.chroma.where, dimension)
        return known.collection

    def _write(self, kind: str, method: str, columns: Mapping[str, Any], dimension: int | None = None) -> None:
        """Call a method of a collection; make the collection if vectors of a length are written."""
        if dimension is None and self.empty:
            return
        self.chroma.begin_write()

        def write(collection: Any) -> None:
            getattr(collection, method)(**columns)

        self._on(kind, "write", write, None, dimension, make=dimension is not None)

    def _on(
        self,
        kind: str,
        doing: str,
        action: Callable[[Any], T],
        missing: T,
        dimension: int | None = None,
        *,
        make: bool = False,
    ) -> T:
        """Call a function with a collection; once more if another process replaced it meanwhile."""
        if self.empty and not make:
            return missing
        for last in (False, True):
            try:
                with self.chroma.opened(f"{doing} {kind!r}") as client:
                    collection = self._collection(client, kind, dimension, make=make)
                    if collection is None:
                        return missing
                    return action(collection)
            except StorageError as error:
                if last or not is_not_found(error.__cause__):
                    raise
                # `scrub` in another process gave the name to a new collection.
                self.chroma.shared.collections.pop(self._name(kind), None)
        return missing


@dataclass(frozen=True, slots=True)
class _Answer:
    """Rows of a part; `is_full` if Chroma returned as many rows as requested, of any part."""

    hits: list[SearchHit[Any]]
    is_full: bool


@dataclass(frozen=True, slots=True)
class _Question:
    """A search for the k rows of a part; `asked` is the question's vector with its part's direction."""

    asked: list[float]
    k: int
    part: str
    read: Callable[[Hit], Any]

    def ask(self, collection: Any) -> _Answer:
        return self._ask(collection, None)

    def ask_filtered(self, collection: Any) -> _Answer:
        return self._ask(collection, {PART: self.part})

    def _ask(self, collection: Any, where: Mapping[str, str] | None) -> _Answer:
        include = ["documents", "metadatas", "distances"]
        answer = collection.query(query_embeddings=[self.asked], n_results=self.k, where=where, include=include)
        page = {column: answer[column][0] for column in ("ids", *include)}
        hits: list[SearchHit[Any]] = []
        for hit, distance in zip(_hits(page), page["distances"], strict=True):
            if hit.metadata.get(PART, "") == self.part:
                item = self.read(hit)
                if item is not None:
                    hits.append(SearchHit(item, hit.id, DIRECTIONS.text_cosine(distance)))
        return _Answer(hits, is_full=len(page["ids"]) == self.k)


@dataclass(frozen=True, slots=True)
class _Fetch:
    """A call of a collection's ``get``."""

    wanted: Mapping[str, Any]

    def __call__(self, collection: Any) -> Any:
        return collection.get(**self.wanted)


class TextVectors:
    """Vectors of texts about tools, made once: another process with the same tools does not embed them again."""

    def __init__(self, vectors: VectorStore, kind: str) -> None:
        self._vectors = vectors
        self._kind = kind

    def of(self, texts: Mapping[str, str]) -> dict[str, Sequence[float]]:
        """Return the vector of each text by name; stored ones for unchanged texts."""
        vectors = self._vectors.vectors_of(self._kind, texts)
        missing = [name for name in texts if name not in vectors]
        for batch in batches(missing, CHROMA_LIMITS.batch):
            embedded = self._vectors.embedder.embed_documents([texts[name] for name in batch])
            new = dict(zip(batch, embedded, strict=True))
            if self._vectors.chroma.may_write():
                items = [VectorItem(name, texts[name]) for name in batch]
                self._vectors.upsert(self._kind, items, vectors=new)
            vectors.update(new)
        return vectors


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield items in lists of at most `size`."""
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def _count(collection: Any) -> int:
    return int(collection.count())


def _columns_of(items: Iterable[VectorItem], vectors: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return items in Chroma's columns, given the vectors of their texts by id."""
    ids, parts, own_vectors, texts, metadatas = [], [], [], [], []
    for item in items:
        ids.append(item.id)
        parts.append(item.part)
        own_vectors.append(vectors[item.id])
        texts.append(clean(item.text))
        metadatas.append(_metadata(item) or None)  # Chroma refuses empty metadata
    stored = DIRECTIONS.stored(own_vectors, ids, parts)
    return {"ids": ids, "embeddings": stored, "documents": texts, "metadatas": metadatas}


def _metadata(item: VectorItem) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for key, value in item.metadata.items():
        if isinstance(value, str):
            value = clean(value)  # Chroma's Rust part refuses lone surrogates
        metadata[key] = value
    if item.owners is not None:
        metadata[OWNERS] = list(item.owners) or None
    if item.part:
        metadata[PART] = item.part
    return metadata


def _hits(page: Mapping[str, Any]) -> Iterator[Hit]:
    for key, text, metadata in zip(page["ids"], page["documents"], page["metadatas"], strict=True):
        yield Hit(key, text or "", dict(metadata or {}))


@dataclass(frozen=True, slots=True)
class PartDirections:
    """Conversion of a text's vector of length 1 to the stored one, and back.

    Attributes:
        width: numbers that are appended to a vector.
        pull: square of the length of a part's direction, 2² in the formula.
        spread: length of a row's own direction, ε in the formula.
    """

    width: int = 64
    pull: float = 4.0
    spread: float = 0.2

    @property
    def question_length(self) -> float:
        """Length of a question with its part's direction, before it is scaled."""
        return math.sqrt(1 + self.pull)

    @property
    def row_length(self) -> float:
        """Length of a row's vector with its directions, before it is scaled."""
        return math.sqrt(1 + self.pull + self.spread**2)

    @property
    def least_distance(self) -> float:
        """Distance of a question and the stored vector of the same text."""
        return 1.0 - (1.0 + self.pull) / (self.question_length * self.row_length)

    def stored(self, vectors: Sequence[Sequence[float]], ids: Sequence[str], parts: Sequence[str]) -> NDArray[Any]:
        """Return texts' vectors of length 1 as they are stored for rows of some parts."""
        import numpy as np  # imported where it is used

        of_parts = np.array([_part_direction(part, self.width) for part in parts])
        of_rows = np.array([_direction(f"row {key}", self.width) for key in ids])
        # A row's direction without its share in that of the part: the formula needs n orthogonal to r.
        along = (of_parts * of_rows).sum(axis=1, keepdims=True)
        across = self.spread / np.sqrt(np.maximum(1 - along**2, 1e-6))
        appended = (math.sqrt(self.pull) - across * along) * of_parts + across * of_rows
        stored: NDArray[Any] = np.hstack([np.asarray(vectors, dtype=np.float64), appended]) / self.row_length
        return stored

    def question(self, vector: Sequence[float], part: str) -> list[float]:
        """Return a question's vector of length 1 as the rows of a part are compared with it."""
        pull, length = math.sqrt(self.pull), self.question_length
        asked = [value / length for value in vector]
        for value in _part_direction(part, self.width).tolist():
            asked.append(pull * value / length)
        return asked

    def text_vector(self, stored: Sequence[float]) -> list[float]:
        """Return the text's own vector, of length 1, from a stored one."""
        length = self.row_length
        return [float(value) * length for value in stored[: -self.width]]

    def text_cosine(self, distance: float) -> float:
        """Return the cosine of two texts, -1 to 1, from the distance of a question and a stored vector."""
        cosine = (1.0 - distance) * self.question_length * self.row_length - self.pull
        return max(-1.0, min(1.0, cosine))


DIRECTIONS: Final = PartDirections()


def _direction(name: str, width: int) -> NDArray[Any]:
    import numpy as np  # imported where it is used

    # Every process makes the same direction, and those of two names are nearly orthogonal.
    bits = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=width // 8).digest()
    direction: NDArray[Any] = (np.unpackbits(np.frombuffer(bits, np.uint8)) * 2.0 - 1.0) / math.sqrt(width)
    return direction


@lru_cache(maxsize=1024)
def _part_direction(part: str, width: int) -> NDArray[Any]:
    return _direction(f"part {part}", width)
