"""Finding tools by what they are for: one text per tool, ranked by words and, given an embedder, by meaning.

Two rankings are joined by reciprocal rank fusion (G. V. Cormack, C. L. A. Clarke, S. Büttcher, SIGIR 2009):
score(t) = Σ_r 1 / (60 + rank_r(t)).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from langgraph_toolmem.errors import EmbedderChangedError, StorageError
from langgraph_toolmem.failures import log_failure
from langgraph_toolmem.stores.embedders import clean
from langgraph_toolmem.stores.items import VectorItem
from langgraph_toolmem.stores.lexical import LexicalIndex, words

if TYPE_CHECKING:
    from langgraph_toolmem.stores.vectors import VectorStore
    from langgraph_toolmem.tools import ToolSpec

KIND = "tools"
RANK_OFFSET = 60  # the constant of the paper
DEPTH = 30  # ranks of each list that are joined, at least

logger = logging.getLogger("langgraph_toolmem.stores.tool_index")


@dataclass(frozen=True, slots=True)
class ToolHit:
    """One tool found.

    Attributes:
        score: 0 to 1, for ordering the hits of one search. With the built-in embedder how much of the query's
            weight the text covers (BM25); with another one the fused ranks, 1 for first in both.
        text: what was searched: the name's words, the description and the names of the parameters.
    """

    name: str
    score: float
    text: str


def tool_text(spec: ToolSpec) -> str:
    """What is searched of a tool: the words of its name, its description, the names of its parameters."""
    parts = [" ".join(words(spec.name)) + "."]
    if spec.description.strip():
        parts.append(spec.description.strip())
    names = [" ".join(words(name)) for name in spec.properties]
    if names:
        parts.append(f"({', '.join(names)})")
    return " ".join(parts)


class ToolIndex:
    """The descriptions of the tools, searchable.

    `declare` needs no database, so a memory that never searches never opens one; with the built-in embedder a
    search needs none either once tools are declared. `sync` keeps them in Chroma, for the next process and
    for searching by meaning.
    """

    def __init__(self, vectors: VectorStore) -> None:
        self._vectors = vectors
        self._texts: dict[str, str] = {}
        self._words: LexicalIndex | None = None
        self._declared = self._synced = self._warned = False
        self._lock = threading.RLock()  # guards what is in RAM, never held while Chroma or an embedder works
        self._sync_lock = threading.Lock()

    def declare(self, specs: Mapping[str, ToolSpec] | Iterable[ToolSpec]) -> None:
        """These are the tools now. Kept in RAM until the next `sync`, or a search that needs vectors."""
        each = specs.values() if isinstance(specs, Mapping) else specs
        texts = {spec.name: tool_text(spec) for spec in each}
        with self._lock:
            self._texts, self._words = texts, None
            self._declared, self._synced = True, False

    def sync(self, specs: Mapping[str, ToolSpec] | Iterable[ToolSpec] | None = None) -> dict[str, int]:
        """Make the stored tools equal to the given (or the declared) ones; embeds what is new or changed.

        Returns:
            ``{"added": n, "changed": n, "removed": n, "kept": n}``

        Raises:
            StorageError: Chroma or the embedder failed.
            EmbedderChangedError: the stored ones were made by another embedder.
        """
        with self._sync_lock:
            if specs is not None:
                self.declare(specs)
            texts, _ = self._known()
            stored = {hit.id: hit.metadata.get("hash") for hit in self._vectors.get(KIND)}
            digests = {name: _digest(text) for name, text in texts.items()}
            stale = [name for name in texts if stored.get(name) != digests[name]]
            gone = [name for name in stored if name not in texts]
            self._vectors.upsert(KIND, [VectorItem(name, texts[name], {"hash": digests[name]}) for name in stale])
            self._vectors.delete(KIND, gone)
            with self._lock:
                self._synced = self._texts is texts
        changed = sum(name in stored for name in stale)
        return {
            "added": len(stale) - changed,
            "changed": changed,
            "removed": len(gone),
            "kept": len(texts) - len(stale),
        }

    def search(self, query: str, k: int = 5) -> list[ToolHit]:
        """The k tools that fit the query best, best first.

        By words with the built-in embedder, so fewer than k may share anything with the query. By words and
        meaning with another one; if that one or Chroma fails, by words alone, and the log says so once.

        Raises:
            StorageError: no tools were declared and the stored ones cannot be read.
            EmbedderChangedError: the stored ones were made by another embedder.
        """
        texts, lexical = self._known()
        if k <= 0:
            return []
        if self._vectors.embedder.builtin:
            return [ToolHit(name, score, texts[name]) for name, score in lexical.search(query, k)]
        depth = max(DEPTH, 2 * k)
        try:
            if not self._synced:
                self.sync()
            near = [hit.id for hit in self._vectors.query(KIND, query, k=depth)]
        except EmbedderChangedError:
            raise
        except StorageError as error:
            if not self._warned:
                self._warned = True
                log_failure(logger, logging.WARNING, "tools are searched by words alone", error=error)
            return [ToolHit(name, score, texts[name]) for name, score in lexical.search(query, k)]
        ranked = _fused([name for name, _ in lexical.search(query, depth)], near)
        return [ToolHit(name, score, texts[name]) for name, score in ranked if name in texts][:k]

    async def asearch(self, query: str, k: int = 5) -> list[ToolHit]:
        """Async twin of `search`."""
        return await asyncio.to_thread(self.search, query, k)

    def _known(self) -> tuple[dict[str, str], LexicalIndex]:
        """The texts and the index over them; read from Chroma if no tools were declared."""
        if not self._declared:
            texts = {hit.id: hit.text for hit in self._vectors.get(KIND)}
            with self._lock:
                if not self._declared:
                    self._texts, self._words = texts, None
                    self._declared = self._synced = True
        with self._lock:
            if self._words is None:
                self._words = LexicalIndex(self._texts.items())
            return self._texts, self._words


def _digest(text: str) -> str:
    return blake2b(clean(text).encode(), digest_size=8).hexdigest()


def _fused(*rankings: list[str]) -> list[tuple[str, float]]:
    """Names with their reciprocal rank score, divided by the best possible, best first.

    Of equals the one that the earlier ranking puts first.
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, name in enumerate(ranking, start=1):
            scores[name] = scores.get(name, 0.0) + 1 / (RANK_OFFSET + rank)
    best = len(rankings) / (RANK_OFFSET + 1)
    return sorted(((name, score / best) for name, score in scores.items()), key=lambda item: -item[1])
