"""Words as vectors, without a model: the built-in embedder and an index over it.

- `LexicalEmbedder` turns a text into a hashed bag of word stems, pairs of neighbouring stems and character
  4-grams. It needs no download, gives the same vector in every process, and is a LangChain ``Embeddings``.
- `LexicalIndex` ranks a few thousand short texts by Okapi BM25 over the same features.

A *feature* is a 32-bit integer: the CRC-32 of a stem or 4-gram with a letter for its sort before it, or, for
a pair, a mix of the two stems.

BM25: S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, eq. 3.15.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

from langchain_core.embeddings import Embeddings

from langgraph_toolmem.text.words import LONGEST_CACHED, STOP_STEMS, stem, words

STEM_WEIGHT = 1.0
STOP_WEIGHT = 0.1  # kept, not dropped: "to" and "from" are all that tells two booking tools apart
PAIR_WEIGHT = 0.5
GRAM_WEIGHT = 0.25
GRAM = 4

_MASK = 0xFFFFFFFF
_EMPTY = crc32(b"nothing")  # a text without words needs a direction too: a zero vector has no cosine


def _hash(sort: str, value: str) -> int:
    return crc32((sort + value).encode("utf-8", "surrogatepass"))


def _analyse(token: str) -> tuple[list[int], dict[int, float]]:
    """Return the stems of a token that tell something, and the features of the token."""
    stems: list[int] = []
    features: dict[int, float] = {}
    for word in words(token):
        base = stem(word)
        key = _hash("w", base)
        if base in STOP_STEMS:
            features.setdefault(key, STOP_WEIGHT)
            continue
        stems.append(key)
        features[key] = STEM_WEIGHT
        framed = f"<{base}>"
        for start in range(len(framed) - GRAM + 1):
            features.setdefault(_hash("g", framed[start : start + GRAM]), GRAM_WEIGHT)
    return stems, features


_analyse_cached = lru_cache(maxsize=16_384)(_analyse)


def features(text: str) -> dict[int, float]:
    """Return the weighted features of a text, not normalised.

    A stem that occurs n times weighs 1 + ln n; stop words, pairs and 4-grams have fixed small weights. What
    lies between white space is analysed as one and remembered, so a text of known words costs microseconds.
    """
    found: dict[int, float] = {}
    stems: list[int] = []
    for token in text.split():
        own, weights = _analyse_cached(token) if len(token) <= LONGEST_CACHED else _analyse(token)
        found.update(weights)
        stems += own
    for left, right in pairwise(stems):
        found[(left * 1_000_003 ^ right) & _MASK] = PAIR_WEIGHT
    if len(stems) != len(set(stems)):
        for key, times in Counter(stems).items():
            if times > 1:
                found[key] = STEM_WEIGHT + math.log(times)
    return found or {_EMPTY: 1.0}


def similarity(left: Mapping[int, float], right: Mapping[int, float]) -> float:
    """Return the cosine of two sparse vectors of length 1: 0 (nothing shared) to 1 (the same bag).

    >>> similarity({1: 0.6, 2: 0.8}, {2: 1.0})
    0.8
    """
    return min(1.0, sum([left[key] * right[key] for key in left.keys() & right.keys()]))


VERSION = 1  # goes up with every change of what a text's vector is, so that stored ones are made again


class LexicalEmbedder(Embeddings):
    """The built-in embedder: hashed stems, pairs and character 4-grams; no model, no download, no state.

    Args:
        dimension: length of the dense vectors. `sparse` does not fold: prefer it where it can be used.
    """

    def __init__(self, dimension: int = 256) -> None:
        self.dimension = dimension

    def sparse(self, text: str) -> dict[int, float]:
        """Return the text as feature -> weight, of length 1. About 10 µs for 20 words seen before."""
        found = features(text)
        length = math.hypot(*found.values())
        return {key: weight / length for key, weight in found.items()}

    def embed_query(self, text: str) -> list[float]:
        """Return the text as `dimension` floats of length 1, folded with a sign so that clashes average out."""
        dense = [0.0] * self.dimension
        for key, weight in features(text).items():
            dense[(key >> 1) % self.dimension] += weight if key & 1 else -weight
        length = math.hypot(*dense)
        if length == 0.0:  # every feature met its opposite: as rare as it is real
            dense[0] = length = 1.0
        return [value / length for value in dense]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def rarity(uses: float, total: float) -> float:
    """Return how much a word tells that `uses` of `total` texts have: the inverse document frequency of BM25."""
    return math.log(1 + (total - uses + 0.5) / (uses + 0.5))


class LexicalIndex:
    """Ranks texts by BM25 over the features of `LexicalEmbedder`. In RAM, rebuilt on open.

    score(d, q) = Σ_f w(f, q) · idf(f) · w(f, d) (k1 + 1) / (w(f, d) + k1 (1 − b + b |d| / avg |d|))
    with idf(f) = ln(1 + (N − n_f + ½) / (n_f + ½)), divided by what a text that repeats
    the query for ever would score, so that scores lie between 0 and 1.

    Args:
        texts: (id, text) pairs; of two with the same id the later counts.
    """

    k1 = 1.2
    b = 0.75

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        documents = {key: features(text) for key, text in texts}
        self._ids = list(documents)
        sizes = [sum(found.values()) for found in documents.values()]
        mean = sum(sizes) / len(sizes) if sizes else 1.0
        self._postings: dict[int, list[tuple[int, float]]] = {}
        for number, (found, size) in enumerate(zip(documents.values(), sizes, strict=True)):
            rest = self.k1 * (1 - self.b + self.b * size / mean)
            for key, weight in found.items():
                part = weight * (self.k1 + 1) / (weight + rest)
                self._postings.setdefault(key, []).append((number, part))

    def __len__(self) -> int:
        return len(self._ids)

    def search(self, query: str, k: int) -> list[tuple[str, float]]:
        """Return the best k (id, score), best first; texts that share nothing with the query are left out.

        Ties keep the order in which the texts were given.
        """
        scores: dict[int, float] = {}
        most = 0.0
        total = len(self._ids)
        for key, weight in features(query).items():
            postings = self._postings.get(key, ())
            idf = rarity(len(postings), total)
            most += weight * idf * (self.k1 + 1)
            for number, part in postings:
                scores[number] = scores.get(number, 0.0) + weight * idf * part
        best = heapq.nlargest(max(k, 0), scores.items(), key=lambda item: (item[1], -item[0]))
        return [(self._ids[number], score / most) for number, score in best]
