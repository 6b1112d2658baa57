"""Vectors of texts about tools, kept in Chroma: a next process with the same tools embeds nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Final

from langgraph_toolmem.stores.vectors import VectorItem, VectorStore, own
from langgraph_toolmem.text.embedders import clean

TOOLS: Final = "tools"
PARAMETERS: Final = "parameters"
"""Kinds of texts: of whole tools, of single things they take and give."""
BATCH: Final = 500
"""Texts that are embedded and kept at a time: what was done before a failure is not done again."""


class TextVectors:
    """Texts as vectors, made once.

    A vector is taken from Chroma if the text it was made of is the same, else made and kept.

    Args:
        vectors: where they are kept, with the embedder that makes them.
        kind: of texts.
        read_only: keep nothing.
    """

    def __init__(self, vectors: VectorStore, kind: str, *, read_only: bool = False) -> None:
        self._vectors = vectors
        self._kind = kind
        self._read_only = read_only

    def of(self, texts: Mapping[str, str]) -> dict[str, Sequence[float]]:
        """By name, the vector of each text.

        Raises:
            StorageError: Chroma or the embedder failed.
            EmbedderChangedError: the stored ones were made by another embedder.
        """
        found = self._stored(texts)
        for batch in _batches(texts, found):
            made = self._vectors.embedder.embed_documents(list(batch.values()))
            self._keep(batch, made)
            found.update(zip(batch, made, strict=True))
        return found

    async def aof(self, texts: Mapping[str, str]) -> dict[str, Sequence[float]]:
        """Async variant of `of`."""
        found = await asyncio.to_thread(self._stored, texts)
        for batch in _batches(texts, found):
            made = await self._vectors.embedder.aembed_documents(list(batch.values()))
            await asyncio.to_thread(self._keep, batch, made)
            found.update(zip(batch, made, strict=True))
        return found

    def _stored(self, texts: Mapping[str, str]) -> dict[str, Sequence[float]]:
        found: dict[str, Sequence[float]] = {}
        for page in self._vectors.pages(self._kind, ["metadatas", "embeddings"], ids=list(texts)):
            rows = zip(page["ids"], page["metadatas"], page["embeddings"], strict=True)
            found |= {name: own(row) for name, said, row in rows if (said or {}).get("hash") == _digest(texts[name])}
        return found

    def _keep(self, batch: Mapping[str, str], vectors: list[list[float]]) -> None:
        if not self._read_only and self._vectors.may_write():
            items = [VectorItem(name, text, {"hash": _digest(text)}) for name, text in batch.items()]
            self._vectors.upsert(self._kind, items, vectors=dict(zip(batch, vectors, strict=True)))


def text_vectors(vectors: VectorStore, kind: str, *, read_only: bool) -> TextVectors | None:
    """Vectors of a kind of texts; None with the built-in embedder, whose vectors say no more than words do."""
    return None if vectors.embedder.builtin else TextVectors(vectors, kind, read_only=read_only)


def _batches(texts: Mapping[str, str], found: Mapping[str, object]) -> Iterator[dict[str, str]]:
    missing = iter([(name, text) for name, text in texts.items() if name not in found])
    while batch := dict(islice(missing, BATCH)):
        yield batch


def _digest(text: str) -> str:
    return blake2b(clean(text).encode(), digest_size=8).hexdigest()
