"""The words of a text: the one splitter, for every ranker; and texts compared by their words.

Identifiers are split too: ``getUserName``, ``get_user_name`` and ``get.user-name`` are the same words. Where values
have to be found again letter by letter, as in templates, `text.values.read_text` keeps them whole and in their places.

The *features* of a text are its stems and pairs of neighbouring stems. `similarity` compares two texts by them,
`LexicalIndex` ranks a few thousand short texts by Okapi BM25 over them (S. Robertson, H. Zaragoza, "The Probabilistic
Relevance Framework: BM25 and Beyond", 2009, eq. 3.15).
"""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from langgraph_toolmem.base.caches import cached

_MARKS = re.compile("[\u0300-\u036f]")


def unaccented(text: str) -> str:
    """Return a text in its plainest characters: no accents of Latin letters, no ligatures, no full-width forms.

    >>> unaccented("São Tomé, ﬁn")
    'Sao Tome, fin'
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFKD", text)))


_PIECE = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_VOWEL = re.compile("[aeiouy]")
LONGEST_CACHED: Final = 48  # characters; longer tokens are data (base64, JSON without spaces) and would fill it


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text that lie between white space."""
    return frozenset(text.split())


STOP_WORDS: Final = word_set(
    "a about all also am an and any are as at be been but by can could did do does for from get gets getting had has "
    "have having he her him his how i if in into is it its just let lets letting like liked likes liking may me might "
    "must my need needed needing needs no not now of on or our ours out please pleased pleasing shall she should so "
    "some than that the their theirs them then there these they this those to up us want wanted wanting wants was we "
    "were what when where which who whom whose why will willing with would you your"
)
"""Words that any text has. By their forms, not by their stems: "note" has the stem of "not"."""


def words(text: str, *, stems: bool = False) -> list[str]:
    """Return the words of a text in lower case, identifiers split, accents of Latin letters taken off.

    >>> words("getUserName(order_id=12, café)")
    ['get', 'user', 'name', 'order', 'id', '12', 'cafe']

    Args:
        stems: their stems (`stem`).
    """
    found: list[str] = []
    for token in text.split():
        found += _of_token(token) if len(token) <= LONGEST_CACHED else _analysed(token)
    return list(map(stem, found)) if stems else found


def _analysed(token: str) -> tuple[str, ...]:
    found: list[str] = []
    for piece in _PIECE.findall(unaccented(token)):
        for word in _CAMEL.split(piece):
            if _UNSPACED.search(word):
                # Scripts without spaces: characters and their pairs stand in for words.
                found += word
                found += [a + b for a, b in pairwise(word)]
            else:
                found.append(word.casefold())
    return tuple(found)


_of_token = cached(mebibytes=6)(_analysed)


def telling_stems(text: str) -> list[str]:
    """Return the stems of a text in order, without those that any text has ("the", "please")."""
    return [stem(word) for word in words(text) if word not in STOP_WORDS]


@cached(mebibytes=4)
def stem(word: str) -> str:
    """Return a light stem of an English word: plural, -ing, -ed, -ion and a last e go; anything else stays as it is.

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


STOP_STEMS: Final = frozenset(map(stem, STOP_WORDS))
"""Stems of words that any text has, where "need" and "needs" must be one."""


# --- texts compared ---

STOP_WEIGHT: Final = 0.15
"""Weight of a word that any text has: "to" and "from" are all that tells two booking tools apart."""
PAIR_WEIGHT: Final = 0.5


def features(text: str) -> dict[str, float]:
    """Return the weighted stems and pairs of neighbouring stems of a text, not normalised.

    A stem that occurs n times weighs 1 + ln n. Words that any text has are in no pair.
    """
    stems = words(text, stems=True)
    told = [each for each in stems if each not in STOP_STEMS]
    found = dict.fromkeys(stems, STOP_WEIGHT)
    found |= {each: 1 + math.log(times) for each, times in Counter(told).items()}
    found |= {f"{a} {b}": PAIR_WEIGHT for a, b in pairwise(told)}
    return found or {"": 1.0}  # a zero vector has no cosine


@cached(mebibytes=4)
def grams(term: str) -> tuple[str, ...]:
    """Return the runs of 4 characters in a word, none of a pair of words."""
    framed = f"<{term}>"
    return () if " " in term else tuple(f"~{framed[start : start + 4]}" for start in range(len(framed) - 3))


def similarity(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """Return the cosine of two sparse vectors of length 1: 0 (nothing shared) to 1 (the same bag).

    >>> similarity({"a": 0.6, "b": 0.8}, {"b": 1.0})
    0.8
    """
    return min(1.0, sum([left[key] * right[key] for key in left.keys() & right.keys()]))


def rarity(uses: float, total: float) -> float:
    """Return how much a word tells that `uses` of `total` texts have: the inverse document frequency of BM25."""
    return math.log(1 + (total - uses + 0.5) / (uses + 0.5))


class LexicalIndex:
    """Ranks texts by BM25 over their `features`. In RAM, rebuilt on open.

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
        self._postings: dict[str, list[tuple[int, float]]] = {}
        for number, (found, size) in enumerate(zip(documents.values(), sizes, strict=True)):
            rest = self.k1 * (1 - self.b + self.b * size / mean)
            for key, weight in found.items():
                part = weight * (self.k1 + 1) / (weight + rest)
                self._postings.setdefault(key, []).append((number, part))

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
