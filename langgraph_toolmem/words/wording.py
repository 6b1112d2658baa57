"""A request as a set of terms: its words and pairs of neighbouring words, with values replaced by their kinds.

"Plot visits since October 6" and "Plot visits since 2023-11-12" are the same request with another date in it, and
"… since Sunday" is not quite. So what `words.values` recognises (date, weekday, time, percentage, amount, number, id,
mail address, link) stands for its kind. Values without one (names, titles, cities) are found by how they behave
among the entries; see `weights`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Final

from langgraph_toolmem.words import split
from langgraph_toolmem.words.features import STOP_WEIGHT, features
from langgraph_toolmem.words.split import words

MAX_CHARS: Final = 4000
MAX_TERMS: Final = 400
STOP: Final = 0.15
"""Factor of words that any request may have."""
PAIR: Final = 0.5
"""Factor of pairs of words."""

_EDGE: Final = "<edge>"


def tokens(text: str) -> list[str]:
    """The stems of a request and the kinds of its values, in order.

    >>> tokens("Move the 9:30 meeting to March 3rd")
    ['mov', 'the', '<time>', 'meet', 'to', '<date>']
    """
    return words(text[:MAX_CHARS], stems=True, typed=True)


def forget() -> None:
    """Nothing of a text is remembered any more."""
    terms.cache_clear()
    split.forget()


@lru_cache(maxsize=4096)
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
