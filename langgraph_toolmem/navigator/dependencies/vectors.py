"""Meanings of parameters as vectors: what merges parameters whose words differ.

A vector is made of a parameter's label and description, once for each text. Those of declared parameters are kept with
the memory; names of fields that only runs have shown may be personal, so their vectors stay in RAM.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.base.errors import ConfigurationError, EmbedderChangedError, StorageError
from langgraph_toolmem.base.failures import log_failure
from langgraph_toolmem.search.embedders import Embedder
from langgraph_toolmem.stores.text_vectors import TextVectors
from langgraph_toolmem.words.ports import Port

logger = logging.getLogger("langgraph_toolmem.navigator.dependencies")

Vector = npt.NDArray[np.float32]

MAX_TEXTS: Final = 200_000
"""Texts whose vectors are in RAM; the meaning of further ones is told by words alone."""


class ParameterVectors:
    """The vectors of parameters, by what is said of them.

    If the embedder fails, what it was asked for stays without a vector, and the log says so once; the next tools are
    tried again.

    Args:
        embedder: makes the vectors.
        kept: where those of declared parameters are kept; None: nowhere.
    """

    def __init__(self, embedder: Embedder, kept: TextVectors | None = None) -> None:
        self._embedder, self._kept = embedder, kept
        self._known: dict[str, Vector] = {}
        self._failed = self._logged = False

    def prepare(self, ports: Iterable[Port], *, again: bool = True) -> None:
        """Embeds what is new, all in one go.

        Args:
            ports: inputs, outputs or known values.
            again: try even if the embedder failed the last time.

        Raises:
            EmbedderChangedError: the kept vectors were made by another embedder.
        """
        declared: dict[str, None] = {}
        shown: dict[str, None] = {}
        for port in ports:
            if not port.meaning.vague and (text := _text(port)) not in self._known:
                (declared if port.tool and port.origin != "observed" else shown)[text] = None
        both = [*declared, *(text for text in shown if text not in declared)]
        if not both or (self._failed and not again) or len(self._known) + len(both) > MAX_TEXTS:
            return
        try:
            self._take(list(declared), self._of_declared)
            self._take([text for text in shown if text not in declared], self._embedder.embed_documents)
            self._failed = False
        except EmbedderChangedError:
            raise
        except (StorageError, ConfigurationError) as error:
            self._failed = True
            if not self._logged:
                self._logged = True
                log_failure(logger, logging.WARNING, "parameters are merged by words alone", error=error)

    def of(self, port: Port) -> Vector | None:
        """The vector of a port that was prepared; None if it has none."""
        return self._known.get(_text(port))

    def _take(self, texts: Sequence[str], embed: Callable[[Sequence[str]], Iterable[Sequence[float]]]) -> None:
        if texts:
            made = (np.asarray(vector, dtype=np.float32) for vector in embed(texts))
            self._known.update(zip(texts, made, strict=True))

    def _of_declared(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        if self._kept is None:
            return self._embedder.embed_documents(texts)
        keys = [blake2b(text.encode(), digest_size=16).hexdigest() for text in texts]
        found = self._kept.of(dict(zip(keys, texts, strict=True)))
        return [found[key] for key in keys]


class Centres:
    """The vectors of clusters: each that of its first port that has one. One question is one product of matrices.

    Args:
        threshold: cosine from which two meanings are one.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._row_of: dict[int, int] = {}
        self._ids: list[int] = []
        self._matrix: Vector = np.zeros((0, 0), dtype=np.float32)

    def __contains__(self, number: object) -> bool:
        return number in self._row_of

    def add(self, number: int, vector: Vector) -> None:
        """A cluster that has none yet."""
        if not self._matrix.size:
            self._matrix = np.zeros((256, len(vector)), dtype=np.float32)
        elif len(self._ids) == len(self._matrix):
            self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)])
        self._matrix[len(self._ids)] = vector
        self._row_of[number] = len(self._ids)
        self._ids.append(number)

    def remove(self, number: int) -> None:
        """A cluster is gone."""
        row = self._row_of.pop(number, None)
        if row is None:
            return
        last = len(self._ids) - 1
        self._matrix[row] = self._matrix[last]
        self._ids[row] = self._ids[last]
        self._ids.pop()
        if row != last:
            self._row_of[self._ids[row]] = row

    def nearest(self, vector: Vector, fits: Callable[[int], bool]) -> int | None:
        """The nearest cluster that fits; None if no such one is near enough."""
        if not self._ids:
            return None
        cosines = self._matrix[: len(self._ids)] @ vector
        near = np.flatnonzero(cosines >= self._threshold)
        ranked = (self._ids[row] for row in near[np.argsort(-cosines[near], kind="stable")])
        return next((number for number in ranked if fits(number)), None)


def _text(port: Port) -> str:
    described = port.leaf.description
    return f"{port.meaning.label}: {described}" if described else port.meaning.label
