"""The words of a text: the common splitter of all rankers; and texts compared by their words.

Identifiers are split too: ``getUserName``, ``get_user_name`` and ``get.user-name`` are the same words. If values have
to be found again letter by letter, as in templates, `text.values.read_text` keeps them whole and in their places.

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
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from langgraph_toolmem.base.caches import cached


def unaccented(text: str) -> str:
    """Return a text in its plainest characters: no accents of Latin letters, no ligatures, no full-width forms.

    >>> unaccented("São Tomé, ﬁn")
    'Sao Tome, fin'
    """
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    # Accents only: marks of other scripts, as in Hindi and Thai, are vowels.
    without_marks = re.sub("[\u0300-\u036f]", "", decomposed)
    # NFKD splits each Korean syllable into its letters; NFC joins them again.
    return unicodedata.normalize("NFC", without_marks)


_PIECE = re.compile(r"[^\W_]+")
# getUser, HTTPServer, v2, 2nd.
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
# Thai and Lao, Burmese, Khmer, Japanese kana, Chinese characters.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


def has_digit(token: str) -> bool:
    """Return True for a number or an identifier."""
    for char in token:
        if char.isdigit():
            return True
    return False


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, split at white space."""
    return frozenset(text.split())


STOP_WORDS: Final = word_set(
    "a about all also am an and any are as at be been but by can could did do does for from get gets getting had has "
    "have having he her him his how i if in into is it its just let lets letting like liked likes liking may me might "
    "must my need needed needing needs no not now of on or our ours out please pleased pleasing shall she should so "
    "some than that the their theirs them then there these they this those to up us want wanted wanting wants was we "
    "were what when where which who whom whose why will willing with would you your"
)
"""Words that occur in any text. They are compared by form, not by stem: "note" has the stem of "not"."""


def words(text: str, *, stems: bool = False) -> list[str]:
    """Return the words of a text in lower case, with identifiers split and accents of Latin letters removed.

    >>> words("getUserName(order_id=12, café)")
    ['get', 'user', 'name', 'order', 'id', '12', 'cafe']

    Args:
        stems: If True, return the stem of each word (see `stem`).
    """
    longest_cached = 48  # characters: longer tokens are data (base64, JSON without spaces) and would fill the cache
    split: list[str] = []
    for token in text.split():
        if len(token) <= longest_cached:
            split += _words_of_token(token)
        else:
            split += _split_token(token)
    if stems:
        # `map` calls the cached function from C: a comprehension took 1.1 to 1.8 times as long on 12 words.
        return list(map(stem, split))
    return split


def _split_token(token: str) -> tuple[str, ...]:
    parts: list[str] = []
    for piece in _PIECE.findall(unaccented(token)):
        for word in _CAMEL.split(piece):
            if _UNSPACED.search(word):
                # Scripts without spaces: characters and their pairs replace words.
                parts += word
                for first, second in pairwise(word):
                    parts.append(first + second)
            else:
                parts.append(word.casefold())
    return tuple(parts)


_words_of_token = cached(mebibytes=6)(_split_token)


def telling_stems(text: str) -> list[str]:
    """Return the stems of a text in order, without stop words ("the", "please")."""
    return [stem(word) for word in words(text) if word not in STOP_WORDS]


@cached(mebibytes=4)
def stem(word: str) -> str:
    """Return a light stem of an English word.

    Plural endings, -ing, -ed, -ion and a last e are removed; any other word is returned unchanged.

    >>> [stem(w) for w in ("creating", "creates", "creation", "cities", "status")]
    ['creat', 'creat', 'creat', 'city', 'status']
    """
    # Endings of other languages have other meanings, and an id is not a word.
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    word = _without_plural(word)
    for suffix in ("ing", "ed"):
        if _has_suffix(word, suffix):
            return _without_doubled_letter(word[: -len(suffix)]).removesuffix("e")
    # "creation" has the stem of "create"; "nation" and "lion" are unchanged.
    if len(word) > 6 and word.endswith(("tion", "sion")):
        word = word.removesuffix("ion")
    if len(word) > 3:
        word = word.removesuffix("e")
    return word


def _without_plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "ches", "shes", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _has_suffix(word: str, suffix: str) -> bool:
    """Return True if -ing or -ed is an ending: "running" has it, "string" and "feed" do not."""
    if not word.endswith(suffix) or word.endswith("eed"):
        return False
    rest = word[: -len(suffix)]
    return len(rest) >= 3 and re.search("[aeiouy]", rest) is not None


def _without_doubled_letter(rest: str) -> str:
    """Return "run" for the "runn" of "running"; "call", "pass" and "buzz" keep both letters."""
    if rest[-1] == rest[-2] and rest[-1] not in "lsz":
        return rest[:-1]
    return rest


STOP_STEMS: Final = frozenset(map(stem, STOP_WORDS))
"""Stems of the stop words, for texts in which "need" and "needs" must be one word."""


# --- texts compared ---


@dataclass(frozen=True, slots=True)
class FeatureWeights:
    """Weights of features, next to 1 for a stem.

    Attributes:
        stop: of a stop word. It is not 0: only "to" and "from" tell two booking tools apart.
        pair: of two neighbouring stems.
    """

    stop: float = 0.15
    pair: float = 0.5


FEATURE_WEIGHTS: Final = FeatureWeights()


def features(text: str) -> dict[str, float]:
    """Return the weighted stems and pairs of neighbouring stems of a text, not normalised.

    A stem that occurs n times has the weight 1 + ln n. Stop words are in no pair.
    """
    stems = words(text, stems=True)
    content = [word for word in stems if word not in STOP_STEMS]
    weights = dict.fromkeys(stems, FEATURE_WEIGHTS.stop)
    for word, occurrences in Counter(content).items():
        weights[word] = 1 + math.log(occurrences)
    for first, second in pairwise(content):
        weights[f"{first} {second}"] = FEATURE_WEIGHTS.pair
    if not weights:
        # A zero vector has no cosine.
        return {"": 1.0}
    return weights


@cached(mebibytes=4)
def grams(term: str) -> tuple[str, ...]:
    """Return the runs of 4 characters of a word. A pair of words has none."""
    if " " in term:
        return ()
    framed = f"<{term}>"
    parts = []
    for start in range(len(framed) - 3):
        # The mark distinguishes a part of a word from a word of four letters.
        parts.append(f"~{framed[start : start + 4]}")
    return tuple(parts)


def similarity(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """Return the cosine of two sparse vectors of length 1: 0 (nothing shared) to 1 (the same bag).

    >>> similarity({"a": 0.6, "b": 0.8}, {"b": 1.0})
    0.8
    """
    shared = left.keys() & right.keys()
    products = [left[key] * right[key] for key in shared]
    return min(1.0, sum(products))  # rounding can exceed 1


def rarity(uses: float, total: float) -> float:
    """Return the inverse document frequency (BM25) of a word that `uses` of `total` texts contain."""
    return math.log(1 + (total - uses + 0.5) / (uses + 0.5))


class LexicalIndex:
    """An index that ranks texts by BM25 over their `features`. In RAM, rebuilt on open.

    It is a separate index, because it needs neither numpy, like `WordIndex` of the tool search, nor a way to add or
    remove texts, like `CaseIndex`.

    score(d, q) = Σ_f w(f, q) · idf(f) · w(f, d) (k1 + 1) / (w(f, d) + k1 (1 − b + b |d| / avg |d|)) with idf(f) = ln(1
    + (N − n_f + ½) / (n_f + ½)), divided by the score of an infinitely repeated query, so that scores are between 0 and
    1.

    Args:
        texts: (id, text) pairs; of two with the same id the later counts.
    """

    k1 = 1.2
    b = 0.75

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        documents: dict[str, dict[str, float]] = {}
        for key, text in texts:
            documents[key] = features(text)
        sizes = [sum(weights.values()) for weights in documents.values()]
        mean_size = sum(sizes) / max(len(sizes), 1)
        self._ids = list(documents)
        self._postings: dict[str, list[tuple[int, float]]] = {}
        for number, (weights, size) in enumerate(zip(documents.values(), sizes, strict=True)):
            # The part of a score that is independent of the query is computed once.
            saturation = self.k1 * (1 - self.b + self.b * size / mean_size)
            for feature, weight in weights.items():
                part = weight * (self.k1 + 1) / (weight + saturation)
                self._postings.setdefault(feature, []).append((number, part))

    def search(self, query: str, k: int) -> list[tuple[str, float]]:
        """Return the best k (id, score), best first, without texts that share no word with the query.

        Ties keep the order of the texts.
        """
        scores: dict[int, float] = {}
        highest_possible = 0.0
        total = len(self._ids)
        for key, weight in features(query).items():
            postings = self._postings.get(key, ())
            idf = rarity(len(postings), total)
            highest_possible += weight * idf * (self.k1 + 1)
            for number, part in postings:
                scores[number] = scores.get(number, 0.0) + weight * idf * part

        def rank(scored: tuple[int, float]) -> tuple[float, int]:
            number, score = scored
            return score, -number

        best = heapq.nlargest(max(k, 0), scores.items(), key=rank)
        return [(self._ids[number], score / highest_possible) for number, score in best]
