"""How well a thought fits a tool's description, for the paper's score."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

from langgraph_toolmem.base.errors import ToolMemoryError, log_failure
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.search.embedders import Embedder
from langgraph_toolmem.search.lexical import LexicalEmbedder
from langgraph_toolmem.words.features import similarity

logger = logging.getLogger("langgraph_toolmem.similarity")


class DescriptionSimilarity:
    """Cosine of a thought and a tool's description.

    With the built-in embedder no vector store is touched. With another one, descriptions are embedded once
    and a thought once per decision; if it fails, the built-in one answers, and the log says so once.

    Args:
        embedder: makes the vectors.
        specs: the tools.
    """

    def __init__(self, embedder: Embedder, specs: Mapping[str, ToolSpec]) -> None:
        self._embedder = embedder
        self._texts = {name: f"{name} {spec.description}".strip() for name, spec in specs.items()}
        self._lexical = LexicalEmbedder()
        self._words = {name: self._lexical.sparse(text) for name, text in self._texts.items()}
        self._vectors: dict[str, list[float]] | None = None
        self._failed = embedder.builtin
        self._thought = lru_cache(maxsize=16)(self._embed_thought)
        self._thought_words = lru_cache(maxsize=256)(self._lexical.sparse)

    def __call__(self, thought: str, tool: str) -> float:
        """From −1 to 1; 0 for a tool without a description."""
        if tool not in self._texts:
            return 0.0
        if not self._failed:
            try:
                return self._dense(thought, tool)
            except ToolMemoryError as error:
                self._failed = True
                log_failure(
                    logger, logging.WARNING, "the built-in embedder is used for thoughts from here on", error=error
                )
        return similarity(self._thought_words(thought), self._words[tool])

    def _dense(self, thought: str, tool: str) -> float:
        if self._vectors is None:
            names = list(self._texts)
            vectors = self._embedder.embed_documents([self._texts[name] for name in names])
            self._vectors = dict(zip(names, vectors, strict=True))
        return sum(a * b for a, b in zip(self._thought(thought), self._vectors[tool], strict=True))

    def _embed_thought(self, thought: str) -> list[float]:
        return self._embedder.embed_query(thought)
