"""BM25 over texts that are added one at a time.

S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, eq. 3.15.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.text.similarity import rarity

Floats = npt.NDArray[np.float32]

K1: Final = 1.2
B: Final = 0.75


class WordIndex:
    """Words -> the texts that have them. A text is known by its number; texts are never removed."""

    def __init__(self) -> None:
        self._lengths = array("f")
        self._rows: dict[str, array[int]] = {}  # word -> text, count, text, count ...

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, words: Sequence[str]) -> int:
        """Add a text; return its number."""
        number = len(self)
        for word, count in Counter(words).items():
            row = self._rows.get(word)
            if row is None:
                row = self._rows[word] = array("i")
            row.append(number)
            row.append(count)
        self._lengths.append(len(words))
        return number

    @property
    def lengths(self) -> Floats:
        """Return (N,) words of each text."""
        return np.array(self._lengths, dtype=np.float32)

    def rarity(self, words: Iterable[str]) -> Floats:
        """Return (W,) rarity of each word."""
        return np.array([self.rarity_of(word) for word in words], dtype=np.float32)

    def rarity_of(self, word: str) -> float:
        """Return the rarity of a word."""
        return rarity(len(self._rows.get(word, ())) // 2, len(self))

    def counts(self, words: Sequence[str]) -> Floats:
        """Return (W, N) occurrences of each word in each text."""
        found = np.zeros((len(words), len(self)), dtype=np.float32)
        for number, word in enumerate(words):
            if word in self._rows:
                texts, counts = self._row(word)
                found[number, texts] = counts
        return found

    def totals(self, value: Callable[[str], float]) -> Floats:
        """Return (N,) sum of the values of each text's different words."""
        found = np.zeros(len(self), dtype=np.float32)
        for word in self._rows:
            found[self._row(word)[0]] += value(word)
        return found

    def nearest(self, words: Sequence[str]) -> Floats:
        """Return (N,) similarities to a query: BM25 over that of a text of average length to itself, at most 1."""
        query = Counter(words)
        weights = np.sqrt(np.array([*query.values()], dtype=np.float32)) * self.rarity(query)
        scores = dot(weights, saturated(self.counts([*query]), self.lengths))
        found: Floats = np.minimum(scores / max(float(weights.sum()), 1e-6), 1)
        return found

    def _row(self, word: str) -> npt.NDArray[np.int32]:
        pairs: npt.NDArray[np.int32] = np.frombuffer(self._rows[word], dtype=np.int32).reshape(-1, 2).T
        return pairs


def saturated(counts: Floats, lengths: Floats) -> Floats:
    """Return (W, N) of counts: what a word adds to a text's score, without its rarity."""
    rest = K1 * (1 - B + B * lengths / max(float(lengths.mean()) if lengths.size else 1.0, 1e-6))
    found: Floats = (K1 + 1) * counts / (counts + np.maximum(rest, 1e-6))
    return found


def dot(weights: Floats, values: Floats) -> Floats:
    """Return (..., W) and (W, N) -> (..., N), without BLAS: its threads cost more than they save here."""
    found: Floats = np.einsum("...w,wn->...n", weights, values)
    return found
