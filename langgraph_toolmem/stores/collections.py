"""The collections of a namespace in Chroma: found, made, read page by page, written with vectors that are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.search.embedders import Embedder
from langgraph_toolmem.stores import reembed as collections
from langgraph_toolmem.stores.chroma import ChromaConnection, collection_name, is_not_found
from langgraph_toolmem.stores.manifest import Label, Manifest, require_same

T = TypeVar("T")

LISTED = 128  # collections of a memory that are looked at for some namespaces: a thousand would take half a second
BATCH = 1000  # rows per call: Chroma takes 5461, a server's limit on the size of a request may be lower


class Collections:
    """One collection for each kind of texts of a namespace.

    Every method raises `StorageError` when Chroma fails, and `EmbedderChangedError` when what is stored was made by
    another embedder.
    """

    embedder: Embedder
    namespace: tuple[str, ...]
    _connection: ChromaConnection
    _manifest: Manifest | None
    _collections: dict[str, tuple[Any, Label]]
    _client: Any
    """Whose collections these are."""

    def pages(
        self,
        kind: str,
        include: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        start: int = 0,
        size: int = BATCH,
    ) -> Iterator[Mapping[str, Any]]:
        """Rows with these ids, or that meet a condition, or all from one on, in Chroma's columns, so many at a time."""
        offset = start
        while ids is None or offset < len(ids):
            which: dict[str, Any] = {"limit": size, "offset": offset}
            if ids is not None:
                which = {"ids": list(ids[offset : offset + size])}
            elif where is not None:
                which["where"] = dict(where)
            read = partial(_columns, **which, include=list(include))
            page = self._on(kind, "read", read, None)
            if page is None or (ids is None and not page["ids"]):
                return
            yield page
            offset += size

    def ids(self, kind: str, where: Mapping[str, Any] | None = None) -> list[str]:
        """Ids of the rows that meet a condition, or of all."""
        return [key for page in self.pages(kind, [], where=where, size=50 * BATCH) for key in page["ids"]]

    def write(self, kind: str, ids: Sequence[str], *, embeddings: Sequence[Any], **columns: Sequence[Any]) -> None:
        """Keeps rows with their vectors, whole; `columns` are Chroma's."""
        columns = {"embeddings": embeddings, **columns}
        for start in range(0, len(ids), BATCH):
            part = {name: list(column[start : start + BATCH]) for name, column in columns.items()}
            made = partial(self._made, kind, self.embedder.dimension())
            what = partial(_upsert, ids=list(ids[start : start + BATCH]), **part)
            self._on(kind, "write", what, None, opened=made)

    def amend(self, kind: str, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Changes metadata of rows by id; what is not named stays, and a row that is gone stays gone."""
        ids = list(changes)
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            what = partial(_update, ids=part, metadatas=[dict(changes[key]) for key in part])
            self._on(kind, "write", what, None)

    def namespaces(self, kind: str, *, most: int | None = LISTED) -> list[tuple[str, ...]]:
        """Some of the namespaces in which there are texts of the kind: Chroma tells of its collections in no order.

        None: all of them.
        """
        if self._connection.empty:
            return []
        with self._connection.errors("list the collections"):
            found = collections.labelled(self._connection, most=most)
        return [label.namespace for label in found.values() if label.kind == kind]

    def _name(self, kind: str) -> str:
        return collection_name(self._connection.prefix, kind, self.namespace)

    def _labels(self) -> list[Label]:
        if self._connection.empty:
            return []
        with self._connection.errors("list the collections"):
            found = collections.labelled(self._connection)
        return [label for name, label in found.items() if name == self._name(label.kind)]

    def _collection(self, kind: str) -> tuple[Any, Label] | None:
        """The collection and its label; ``None`` if nothing of the kind was ever stored."""
        if self._connection.empty:
            return None
        with self._connection.errors(f"open {kind!r}"):  # whole: nobody closes the client in between
            client = self._connection.client()  # also where a forked process and a closed store are told
            if client is not self._client:
                self._collections.clear()
                if self._connection.lost is not None:
                    collections.restore(self._connection, self.embedder)
                self._client = client
            known = self._collections.get(kind)
            if known is not None:
                return known
            collection = collections.find(client, self._name(kind))
            return None if collection is None else self._remember(kind, collection)

    def _remember(self, kind: str, collection: Any) -> tuple[Any, Label]:
        label = Label.from_metadata(collection.metadata)
        if label is None:
            raise StorageError(
                f"{self._connection.where}: the collection {collection.name!r} was not made by this package. "
                "Delete or rename it, or choose another namespace."
            )
        require_same(label.embedder, label.dimension, self.embedder, self._connection.where)
        collection = collections.mended(self._connection, collection, label, self.embedder)
        self._collections[kind] = collection, label
        self._connection.uses(collection.name)
        return collection, label

    def _made(self, kind: str, dimension: int) -> tuple[Any, Label]:
        """The collection for vectors of that length, made if it is not there."""
        known = self._collection(kind)
        if known is None:
            client = self._connection.client()
            if self._manifest is not None:
                made_by = self._manifest.read()
                if made_by is None:
                    self._manifest.write(self.embedder.name, dimension)
                else:
                    require_same(*made_by, self.embedder, self._connection.where, now=dimension)
            label = Label(kind, self.namespace, self.embedder.name, dimension)
            with self._connection.errors(f"make {kind!r}"):
                collection = collections.create(client, self._name(kind), label)
            known = self._remember(kind, collection)
        label = known[1]
        require_same(label.embedder, label.dimension, self.embedder, self._connection.where, now=dimension)
        return known

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


def _columns(collection: Any, **which: Any) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] = collection.get(**which)
    return found


def _upsert(collection: Any, **columns: Any) -> None:
    collection.upsert(**columns)


def _update(collection: Any, **columns: Any) -> None:
    collection.update(**columns)
