"""Vectors of texts: where they come from, and one row for each, added without making the others again."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.text.embedders import Embedder

Floats = npt.NDArray[np.float32]
Vectors = Mapping[str, Sequence[float]]


class VectorSource(Protocol):
    """A source of vectors of texts: an embedder, or one that keeps what it embedded."""

    def of(self, texts: Mapping[str, str]) -> Vectors:
        """Return the vector of each text by name. Raises StorageError or ConfigurationError if there are none."""
        ...

    def aof(self, texts: Mapping[str, str]) -> Awaitable[Vectors]:
        """Async variant of `of`."""
        ...


class Embedding:
    """Vectors as an embedder makes them, each time anew."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def of(self, texts: Mapping[str, str]) -> Vectors:
        """Return the vector of each text by name."""
        return dict(zip(texts, self._embedder.embed_documents(list(texts.values())), strict=True))

    aof = async_variant(of)


class VectorRows:
    """(N, D) vectors of length 1, by number. Not safe for threads: the owner holds a lock."""

    def __init__(self) -> None:
        self._values: Floats = np.zeros((0, 0), dtype=np.float32)

    def put(self, place: int, vector: Sequence[float], *, name: str) -> None:
        """Set the vector of a number; `name` is what it is of.

        Raises:
            ConfigurationError: it has another shape than the others.
        """
        made = np.asarray(vector, dtype=np.float32)
        width = self._values.shape[1] or made.size
        if made.shape != (width,):
            raise ConfigurationError(f"The vector of {name!r} has another shape than the others.")
        self._grow(place + 1, width)
        self._values[place] = made / max(float(np.linalg.norm(made)), 1e-9)

    def drop(self, place: int) -> None:
        """Delete the vector of a number."""
        if place < len(self._values):
            self._values[place] = 0

    def row(self, place: int) -> Floats:
        """Return the vector of a number."""
        found: Floats = self._values[place]
        return found

    def cosines(self, pieces: Floats, count: int) -> Floats:
        """(P, count): each piece and each of the first numbers."""
        self._grow(count, pieces.shape[1])
        found: Floats = pieces @ self._values[:count].T
        return found

    def _grow(self, count: int, width: int) -> None:
        if count > len(self._values):
            grown = np.zeros((max(2 * len(self._values), count, 64), width), dtype=np.float32)
            if self._values.size:
                grown[: len(self._values)] = self._values
            self._values = grown
