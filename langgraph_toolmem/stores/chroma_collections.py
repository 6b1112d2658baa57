"""Collections of Chroma: names, labels, search and creation.

One collection per kind ("tools", "entries", ...) and namespace, so that users are kept apart. Each carries a
`CollectionLabel` that names the embedder of its vectors: those of two embedders cannot be compared.

**Rewriting.** `VectorStore.scrub` rewrites a collection, and a crash loses nothing: write ``name.new``, rename
``name.v2`` to ``name.old``, rename ``name.new`` to ``name.v2``, delete ``name.old``. A ``name.new`` next to ``name.v2``
is unfinished; without ``name.v2`` it is complete and only needs renaming.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langgraph_toolmem.base.errors import EmbedderChangedError
from langgraph_toolmem.base.text import digest

if TYPE_CHECKING:
    from langgraph_toolmem.text.embedders import Embedder


@dataclass(frozen=True, slots=True)
class CollectionLabel:
    """A collection's kind and namespace, and the embedder of its vectors; kept as its metadata."""

    kind: str
    namespace: tuple[str, ...]
    embedder: str
    dimension: int

    @staticmethod
    def from_metadata(metadata: Mapping[str, Any] | None) -> CollectionLabel | None:
        """Return the label in a collection's metadata; None if this package did not make the collection."""
        try:
            kind, namespace, embedder, dimension = json.loads((metadata or {})["toolmem"])
            return CollectionLabel(kind, tuple(namespace), embedder, dimension)
        except (KeyError, TypeError, ValueError):
            return None

    def to_metadata(self) -> dict[str, str]:
        """Return a collection's metadata with the label."""
        return {"toolmem": json.dumps([self.kind, self.namespace, self.embedder, self.dimension])}

    def check(self, embedder: Embedder, where: str, dimension: int | None = None) -> None:
        """Raise EmbedderChangedError if the embedder, or the length of its vectors, is not that of the stored ones."""
        if self.embedder == embedder.name and dimension in (None, self.dimension):
            return
        now = embedder.name
        if dimension is not None:
            now = f"{embedder.name} ({dimension} numbers)"
        raise EmbedderChangedError(
            f"{where}: the stored vectors were made by {self.embedder} ({self.dimension} numbers), the embedder is "
            f"now {now}. Go back to the previous embedder, or embed all texts again with this one: "
            "`toolmem doctor --memory FOLDER --reembed SPEC`."
        )


def is_not_found(error: BaseException | None) -> bool:
    """Return True if Chroma has no such collection."""
    from chromadb.errors import NotFoundError

    return isinstance(error, NotFoundError)


def collection_name(prefix: str, kind: str, namespace: tuple[str, ...]) -> str:
    readable = re.sub("[^a-zA-Z0-9]", "-", kind)[:20] or "-"
    return f"{prefix}.{readable}.{digest(kind, *namespace)}.v2"


def draft_name(name: str) -> str:
    """Return the name under which a collection is rewritten."""
    return name.removesuffix(".v2") + ".new"


def replaced_name(name: str) -> str:
    """Return the name of a collection that was rewritten, until it is deleted."""
    return name.removesuffix(".v2") + ".old"


def find_collection(client: Any, name: str) -> Any | None:
    """Return the collection of that name, or None. A complete draft gets its name."""
    collection = _get(client, name)
    if collection is None:
        collection = _get(client, draft_name(name))
        if collection is not None:
            collection.modify(name=name)
    return collection


def _get(client: Any, name: str) -> Any | None:
    try:
        return client.get_collection(name, embedding_function=None)
    except Exception as error:
        if not is_not_found(error):
            raise
    return None


def create_collection(client: Any, name: str, label: CollectionLabel) -> Any:
    """Return a new collection, or the one of this name if another worker made it too."""
    # Rows of a collection after which Chroma writes its index to disk. Waiting rows are put into the index again at
    # each opening of the collection: with Chroma's default of 1,000, a first search takes 15 ms for 100 rows and 150
    # for 1,000. Writing the index of 100,000 rows takes 0.1 s.
    waiting = 64
    # Links of a row in the index. With Chroma's default of 16, parts of its graph cannot be reached where texts are
    # alike: of 385 texts "Send order bak of ann", 85 were not reached, with 64 up to 4 (of 1,000: 33), with 96 mostly
    # none and seldom up to 3, as Chroma adds the rows of a batch in parallel. Among 10,000 other texts a search takes a
    # tenth to a quarter longer, with 128 twice as long.
    links = 96
    hnsw = {"space": "cosine", "sync_threshold": waiting, "batch_size": waiting, "max_neighbors": links}
    return client.get_or_create_collection(
        name, embedding_function=None, metadata=label.to_metadata(), configuration={"hnsw": hnsw}
    )
