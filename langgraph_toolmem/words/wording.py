"""A request as a set of terms: its words and pairs of neighbouring words, with values replaced by their type.

"Plot visits since October 6" and "Plot visits since 2023-11-12" are the same request with another date in it, and
"… since Sunday" is not quite. So what has a recognisable type (date, weekday, time, percentage, money, number, id,
mail address, URL) stands for its type. Values without one (names, titles, cities) are found by how they behave
among the entries; see `weights`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final

from langgraph_toolmem.words.features import STOP_WEIGHT, features, stem, words

MAX_CHARS: Final = 4000
MAX_TERMS: Final = 400
STOP: Final = 0.15
"""Factor of words that any request may have."""
PAIR: Final = 0.5
"""Factor of pairs of words."""

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sep(?:t|tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_TYPES: Final = (
    ("<mail>", r"\b[\w.+-]{1,64}@[\w-]{1,64}\.[\w.]{1,64}"),
    ("<url>", r"\bhttps?://\S+"),
    (
        "<date>",
        r"\b\d{4}-\d\d?-\d\d?\b"
        rf"|\b{_MONTH}\.?\s+\d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\s+\d{{4}}\b)?"
        rf"|\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}\b(?:,?\s+\d{{4}}\b)?"
        r"|\b\d{1,2}/\d{1,2}/\d{2,4}\b",
    ),
    ("<day>", r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"),
    ("<time>", r"\b\d{1,2}:\d\d(?:\s*[ap]\.?m\b\.?)?|\b\d{1,2}\s*[ap]\.?m\b"),
    ("<percent>", r"\b\d+(?:\.\d+)?\s*(?:%|percent\b)"),
    ("<money>", r"[$€£]\s?\d[\d,.]*"),
    ("<id>", r"(?<!\w)#?(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[\w-]{3,64}"),
    ("<number>", r"(?<!\w)#?\d[\d,]*(?:\.\d+)?\b"),
)
_VALUE = re.compile("|".join(f"({pattern})" for _, pattern in _TYPES), re.IGNORECASE)
_HINT = re.compile(r"\d|@|://|days?\b", re.IGNORECASE)
"""Every value has one of these; to look for them is quick."""
_PIECE = re.compile("[a-zA-Z0-9]+")
_EDGE: Final = "<edge>"


def tokens(text: str) -> list[str]:
    """Stems and types of values, in order.

    >>> tokens("Move the 9:30 meeting to March 3rd")
    ['mov', 'the', '<time>', 'meet', 'to', '<date>']
    """
    found: list[str] = []
    text = text[:MAX_CHARS]
    before = 0
    for kind, start, end in typed_values(text):
        found += _stems(text[before:start])
        found.append(kind)
        before = end
    found += _stems(text[before:])
    return found


def _stems(text: str) -> Iterable[str]:
    if not text.isascii():  # accents are a matter of the whole text
        return map(stem, words(text))
    return [each for piece in _PIECE.findall(text) for each in _stems_of(piece)]


@lru_cache(maxsize=16_384)
def _stems_of(piece: str) -> tuple[str, ...]:
    return tuple(map(stem, words(piece)))


def forget() -> None:
    """Nothing of a text is remembered any more."""
    terms.cache_clear()
    _stems_of.cache_clear()


def typed_values(text: str) -> Iterator[tuple[str, int, int]]:
    """The values of a text that have a recognisable type: type, beginning and end, in order."""
    if _HINT.search(text) is None:
        return
    for match in _VALUE.finditer(text):
        yield _TYPES[(match.lastindex or 1) - 1][0], match.start(), match.end()


@lru_cache(maxsize=1024)
def terms(text: str) -> tuple[str, ...]:
    """The different words of a text, and its different pairs of neighbouring words with a space in between.

    The first and the last word are paired with the edge of the text. At most MAX_TERMS.
    """
    found = tokens(text)
    pairs = (f"{a} {b}" for a, b in pairwise((_EDGE, *found, _EDGE)))
    return tuple(dict.fromkeys((*found, *pairs)))[:MAX_TERMS] if found else ()


def is_usual(term: str) -> bool:
    """Whether a word is one that any request may have ("please", "the"), or a pair consists of such words."""
    return all(max(features(word).values()) <= STOP_WEIGHT for word in term.split(" "))


@lru_cache(maxsize=65_536)
def looks(term: str) -> float:
    """What a word or a pair of words counts by its looks alone."""
    return (PAIR if " " in term else 1.0) * (STOP if is_usual(term) else 1.0)
