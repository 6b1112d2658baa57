"""The words of a text and their features, without a model.

A *feature* is a 32-bit integer: the CRC-32 of a stem or 4-gram with a letter for its sort before it, or, for
a pair, a mix of the two stems. Identifiers are split first: ``getUserName``, ``get_user_name`` and
``get.user-name`` have the same stems.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

STEM_WEIGHT = 1.0
STOP_WEIGHT = 0.1  # kept, not dropped: "to" and "from" are all that tells two booking tools apart
PAIR_WEIGHT = 0.5
GRAM_WEIGHT = 0.25
GRAM = 4
LONGEST_CACHED = 48  # characters; longer tokens are data (base64, JSON without spaces) and would fill it

STOP_WORDS = """
a about all also am an and any are as at be been but by can could did do does for from get had has
have he her him his how i if in into is it its just let like may me might must my need no not now of
on or our out please shall she should so some than that the their them then there these they this
those to up us want was we were what when where which who whom whose why will with would you your
""".split()  # noqa: SIM905 - a list of 90 quoted words is hard to read
_PIECE = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_VOWEL = re.compile("[aeiouy]")
_MASK = 0xFFFFFFFF
_EMPTY = crc32(b"nothing")  # a text without words needs a direction too: a zero vector has no cosine


class _Token(NamedTuple):
    stems: tuple[int, ...]
    features: dict[int, float]


def words(text: str) -> list[str]:
    """The words of a text in lower case, identifiers split, accents of Latin letters taken off.

    >>> words("getUserName(order_id=12, café)")
    ['get', 'user', 'name', 'order', 'id', '12', 'cafe']
    """
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = unicodedata.normalize("NFC", re.sub("[\u0300-\u036f]", "", decomposed))
    found: list[str] = []
    for piece in _PIECE.findall(text):
        for word in _CAMEL.split(piece):
            if _UNSPACED.search(word):
                # Scripts without spaces: characters and their pairs stand in for words.
                found += word
                found += [a + b for a, b in pairwise(word)]
            else:
                found.append(word.casefold())
    return found


def stem(word: str) -> str:
    """A light stem of an English word: plural, -ing, -ed, -ion and a last e go; anything else stays as it is.

    >>> [stem(w) for w in ("creating", "creates", "creation", "cities", "status")]
    ['creat', 'creat', 'creat', 'city', 'status']
    """
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "ches", "shes", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for suffix in ("ing", "ed"):
        left = word[: -len(suffix)]
        if word.endswith(suffix) and len(left) >= 3 and _VOWEL.search(left) and not word.endswith("eed"):
            if left[-1] == left[-2] and left[-1] not in "lsz":
                left = left[:-1]
            return left.removesuffix("e")
    if len(word) > 6 and word.endswith(("tion", "sion")):
        word = word[:-3]
    return word.removesuffix("e") if len(word) > 3 else word


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
