"""Making every stored vector again with another embedder, so that a crash half-way loses nothing.

A collection's dimension is fixed, so each one is built anew beside the old one and takes its name at the end:
write ``name.new`` - rename ``name.v2`` to ``name.old`` - rename ``name.new`` to ``name.v2`` - delete ``name.old``.
Whatever the crash leaves can be told apart: ``name.new`` beside ``name.v2`` is half-made and thrown away, ``name.new``
without it is whole and only lacks its name, and ``name.old`` goes with the next rebuilding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.search.embedders import Embedder
from langgraph_toolmem.stores import parts, salvage
from langgraph_toolmem.stores.chroma import (
    ChromaConnection,
    delete_collection,
    draft_name,
    final_name,
    is_not_found,
    is_replaced,
    replaced_name,
)
from langgraph_toolmem.stores.manifest import Label, require_same

WAITING = 64
"""Rows of a collection after which Chroma writes its index to disk. Those that wait for it are kept twice, and put into
the index again whenever the collection is opened: with 1,000, Chroma's own number, a first question takes 15 ms of
100 rows and 150 of 1,000. Writing the index of 100,000 rows takes 0.1 s."""
PAGE = 500  # rows read, embedded and written at once
_REFUSED = "{}: the index of {} is damaged, or being written. Open the memory where it is written, to mend it."

logger = logging.getLogger("langgraph_toolmem.stores.reembed")


def find(client: Any, name: str) -> Any | None:
    """The collection of that name, its interrupted rebuilding finished; ``None`` if there is none."""
    try:
        return client.get_collection(name, embedding_function=None)
    except Exception as error:
        if not is_not_found(error):
            raise
    try:
        whole = client.get_collection(draft_name(name), embedding_function=None)
    except Exception as error:
        if not is_not_found(error):
            raise
        return None
    whole.modify(name=name)
    return client.get_collection(name, embedding_function=None)


def create(client: Any, name: str, label: Label) -> Any:
    """An empty collection with cosine distance, or the one that another worker made just now."""
    try:
        return client.create_collection(
            name,
            metadata=label.to_metadata(),
            configuration={"hnsw": {"space": "cosine", "sync_threshold": WAITING, "batch_size": WAITING}},
            embedding_function=None,
        )
    except Exception:
        made_meanwhile = find(client, name)
        if made_meanwhile is None:
            raise
        return made_meanwhile


def remove(client: Any, name: str) -> None:
    """Delete a collection and what an interrupted rebuilding left of it; none is no error."""
    _delete(client, name, draft_name(name), replaced_name(name))


def _delete(client: Any, *names: str) -> None:
    for each in names:
        try:
            delete_collection(client, each)
        except Exception as error:
            if not is_not_found(error):
                raise


def rows(collection: Any, *, vectors: bool = False) -> Iterator[dict[str, Any]]:
    """All rows, page by page, as Chroma gives them (``ids``, ``documents``, ``metadatas``, with `vectors` those)."""
    offset = 0
    include = ["documents", "metadatas", *(["embeddings"] if vectors else [])]
    while True:
        page = collection.get(limit=PAGE, offset=offset, include=include)
        if not page["ids"]:
            return
        yield page
        offset += len(page["ids"])


def labelled(connection: ChromaConnection, *, most: int | None = None) -> dict[str, Label]:
    """Every finished collection of this memory: name -> label.

    `most`: about so many are enough.
    """
    client = connection.client()
    found: dict[str, Label] = {}
    offset = 0
    size = PAGE if most is None else most
    while True:
        page = client.list_collections(limit=size, offset=offset)
        for collection in page:
            label = Label.from_metadata(collection.metadata)
            if label is not None and connection.owns(collection.name) and not is_replaced(collection.name):
                found[collection.name] = label
        if len(page) < size or (most is not None and len(found) >= most):
            return found
        offset += len(page)


def reembed(
    connection: ChromaConnection,
    embedder: Embedder,
    namespace: tuple[str, ...],
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Make the vectors of all collections again that another embedder made.

    Args:
        namespace: only namespaces that begin with it.
        progress: called with (texts done, texts in all).

    Returns:
        Texts embedded again, by kind.
    """
    identity = embedder.name, embedder.dimension()
    with connection.errors("list the collections"):
        client = connection.client()
        for name in {final_name(name) for name in labelled(connection)}:
            find(client, name)  # gives a whole one without a name its name
        todo = {
            name: label
            for name, label in sorted(labelled(connection).items())
            if name == final_name(name)
            and label.namespace[: len(namespace)] == namespace
            and (label.embedder, label.dimension) != identity
        }
        total = sum(opened(connection, name).count() for name in todo)
    done: dict[str, int] = {}
    for name, label in todo.items():
        with connection.errors(f"embed {label.kind!r} again"):
            for count in _rebuild(client, name, label, embedder):
                done[label.kind] = done.get(label.kind, 0) + count
                if progress is not None:
                    progress(sum(done.values()), total)
    return done


def opened(connection: ChromaConnection, name: str) -> Any:
    """The collection of that name, so that its rows can be read; a damaged index is out of the way."""
    collection = connection.client().get_collection(name, embedding_function=None)
    if connection.integrity is not None and connection.integrity.flaw(str(collection.id)) and connection.read_only:
        raise StorageError(_REFUSED.format(connection.where, name))
    return collection


def mended(connection: ChromaConnection, collection: Any, label: Label, embedder: Embedder) -> Any:
    """The collection, or the one that takes its place: if its index is damaged, its vectors are made again.

    Raises:
        StorageError: they cannot be made now. It is tried again after `RETRY_SECONDS`, and at the next opening.
    """
    integrity, key, name = connection.integrity, str(collection.id), collection.name
    if integrity is None or (why := integrity.flaw(key)) is None:
        return collection
    with integrity.mending:
        if integrity.flaw(key) is not None:
            if connection.read_only:
                raise StorageError(_REFUSED.format(connection.where, name))
            if not integrity.may_mend(key):
                raise StorageError(
                    f"{connection.where}: the index of {label.kind!r} is damaged and not made again yet."
                )
            logger.warning(
                "%s: the index of %r was damaged (%s) and set aside; its vectors are made again from its texts",
                connection.where, label.kind, why,
            )  # fmt: skip
            for _ in _rebuild(connection.client(), name, label, embedder):
                pass
            integrity.mended(key)
    return find(connection.client(), name) or collection


def restore(connection: ChromaConnection, embedder: Embedder) -> None:
    """Puts what can be read of a database that was set aside into the one that took its place; cut off, do it again.

    Raises:
        EmbedderChangedError: another embedder made its vectors.
    """
    with connection.restoring:
        if connection.lost is None:
            return
        done = 0
        with connection.errors("put back what was damaged"):
            client = connection.client()
            for name, metadata, found in salvage.collections(connection.lost):
                label = Label.from_metadata(metadata)
                if label is None or not connection.owns(name):
                    continue
                require_same(label.embedder, label.dimension, embedder, connection.where)
                kept = find(client, name) or create(client, name, label)
                for start in range(0, len(found), PAGE):
                    ids, texts, rest = (list(each) for each in zip(*found[start : start + PAGE], strict=True))
                    made = _embedded(embedder, ids, texts, rest)
                    kept.upsert(ids=ids, embeddings=made, documents=texts, metadatas=rest)
                    done += len(ids)
        logger.warning("%s: %d rows of %s were put back", connection.where, done, connection.lost.name)
        connection.restored()


def rewrite(connection: ChromaConnection, name: str) -> None:
    """Write a collection anew as it is: what was deleted from it stays in Chroma's log of that collection else."""
    with connection.errors("write anew"):
        client = connection.client()
        collection = None if find(client, name) is None else opened(connection, name)
        label = None if collection is None else Label.from_metadata(collection.metadata)
        if label is not None:
            list(_rebuild(client, name, label, None))


def _embedded(
    embedder: Embedder, ids: Sequence[str], texts: Sequence[str], metadatas: Sequence[Any]
) -> list[list[float]]:
    of = ((each or {}).get(parts.KEY, "") for each in metadatas)
    rows = zip(embedder.embed_documents(texts), ids, of, strict=True)
    return [parts.kept(vector, key, part) for vector, key, part in rows]


def _rebuild(client: Any, name: str, label: Label, embedder: Embedder | None) -> Iterator[int]:
    """Rebuild one collection, with the vectors it has if no embedder is given; yields how many texts each step did."""
    draft, old = draft_name(name), replaced_name(name)
    _delete(client, draft, old)
    if embedder is not None:
        label = replace(label, embedder=embedder.name, dimension=embedder.dimension())
    new = create(client, draft, label)
    for page in rows(client.get_collection(name, embedding_function=None), vectors=embedder is None):
        texts = [text or "" for text in page["documents"]]
        new.upsert(
            ids=page["ids"],
            embeddings=page["embeddings"]
            if embedder is None
            else _embedded(embedder, page["ids"], texts, page["metadatas"]),
            documents=texts,
            metadatas=page["metadatas"],
        )
        yield len(texts)
    client.get_collection(name, embedding_function=None).modify(name=old)
    new.modify(name=name)
    delete_collection(client, old)
