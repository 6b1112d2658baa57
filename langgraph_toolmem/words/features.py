"""The features of a text, without a model.

A *feature* is a 32-bit integer: the CRC-32 of a stem or 4-gram with a letter for its sort before it, or, for
a pair, a mix of the two stems. What the words are, `words.split` says.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from langgraph_toolmem.words.split import STOP_WORDS, stem, words

STEM_WEIGHT = 1.0
STOP_WEIGHT = 0.1  # kept, not dropped: "to" and "from" are all that tells two booking tools apart
PAIR_WEIGHT = 0.5
GRAM_WEIGHT = 0.25
GRAM = 4
LONGEST_CACHED = 48  # characters; longer tokens are data (base64, JSON without spaces) and would fill it

_MASK = 0xFFFFFFFF
_EMPTY = crc32(b"nothing")  # a text without words needs a direction too: a zero vector has no cosine


class _Token(NamedTuple):
    stems: tuple[int, ...]
    features: dict[int, float]


# By stem, so that one feature never has two weights: "need" and "needs" are the same feature.
_STOP_STEMS = frozenset(map(stem, STOP_WORDS))


def _hash(sort: str, value: str) -> int:
    return crc32((sort + value).encode("utf-8", "surrogatepass"))


def _analyse(token: str) -> _Token:
    stems: list[int] = []
    features: dict[int, float] = {}
    for word in words(token):
        base = stem(word)
        key = _hash("w", base)
        if base in _STOP_STEMS:
            features.setdefault(key, STOP_WEIGHT)
            continue
        stems.append(key)
        features[key] = STEM_WEIGHT
        framed = f"<{base}>"
        for start in range(len(framed) - GRAM + 1):
            features.setdefault(_hash("g", framed[start : start + GRAM]), GRAM_WEIGHT)
    return _Token(tuple(stems), features)


_analyse_cached = lru_cache(maxsize=16_384)(_analyse)


def features(text: str) -> dict[int, float]:
    """Weighted features of a text, not normalised.

    A stem that occurs n times weighs 1 + ln n; stop words, pairs and 4-grams have fixed small weights. What
    lies between white space is analysed as one and remembered, so a text of known words costs microseconds.
    """
    found: dict[int, float] = {}
    stems: list[int] = []
    for token in text.split():
        known = _analyse_cached(token) if len(token) <= LONGEST_CACHED else _analyse(token)
        found.update(known.features)
        stems += known.stems
    for left, right in pairwise(stems):
        found[(left * 1_000_003 ^ right) & _MASK] = PAIR_WEIGHT
    if len(stems) != len(set(stems)):
        for key, times in Counter(stems).items():
            if times > 1:
                found[key] = STEM_WEIGHT + math.log(times)
    return found or {_EMPTY: 1.0}


def similarity(left: Mapping[int, float], right: Mapping[int, float]) -> float:
    """Cosine of two sparse vectors of length 1: 0 (nothing shared) to 1 (the same bag).

    >>> similarity({1: 0.6, 2: 0.8}, {2: 1.0})
    0.8
    """
    return min(1.0, sum([left[key] * right[key] for key in left.keys() & right.keys()]))
