"""A request: its sentences and clauses, its terms for comparing it with others, what calls left of it, small talk.

"Plot visits since October 6" and "Plot visits since 2023-11-12" are the same request with another date in it, and
"… since Sunday" is not quite. So what `text.values` recognises stands for its kind among the terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.values import RANKED, values_in
from langgraph_toolmem.text.words import PAIR_WEIGHT, STOP_STEMS, STOP_WEIGHT, stem, words

MAX_REQUEST_CHARS: Final = 4000
"""Characters of a request that are read; a pasted document is no request."""
MAX_SENTENCES: Final = 8
MAX_CLAUSES: Final = 16

_JOINING: Final = (  # longer ones first, since the first that fits is taken
    "and then", "and also", "as well as", "along with", "together with", "followed by", "such as", "and", "or",
    "then", "also", "additionally", "plus", "including", "finally",
)  # fmt: skip
SENTENCE_END: Final = (
    # not after e.g., i.e., Mr., vs., No., or a single initial
    r"(?-i:(?<=[.?!;…])(?<!\b[eE]\.g\.)(?<!\bi\.e\.)(?<!\b[MD]r\.)(?<!\bMrs\.)(?<!\bvs\.)(?<!\bNo\.)(?<!\b[A-Z]\.)\s+"
    r"|(?<=[。！？；])\s*"
    r"|(?<!\s)\s*[\r\n]+\s*(?:[-*•]\s+|\(?\d{1,2}[.)]\s+)?)"
)
"""A regular expression for what stands between sentences, the signs of a list included."""
NEXT: Final = "and then|then|after that|afterwards|also|additionally|otherwise|if so|if not|finally|lastly"
"""A regular expression for words that begin what is to be done next."""
_SENTENCE = re.compile(SENTENCE_END)
_CLAUSE = re.compile(
    r"(?:,|(?<!\s))\s+(?:" + "|".join(_JOINING) + r")\s+|,\s+|;\s*|:\s+|[，、；]\s*",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w")


class Pieces(NamedTuple):
    """A request in parts, without repetition, in the order of the text.

    Attributes:
        sentences: at least one, unless the text has no word.
        clauses: those of all sentences; a sentence without a join is its own only clause.
    """

    sentences: tuple[str, ...]
    clauses: tuple[str, ...]


def split_clauses(text: str) -> Pieces:
    """Return the sentences and clauses of a request. Of long texts the beginning is read.

    >>> split_clauses("Find a flight to Oslo and book a hotel. Mail me.").clauses
    ('Find a flight to Oslo', 'book a hotel', 'Mail me')
    """
    text = text[:MAX_REQUEST_CHARS]
    sentences = _different(_SENTENCE.split(text))[:MAX_SENTENCES]
    parts = _different(part.rstrip(".?!…。！？ ") for sentence in sentences for part in _CLAUSE.split(sentence))
    return Pieces(sentences, parts[:MAX_CLAUSES])


def _different(parts: Iterable[str]) -> tuple[str, ...]:
    stripped = (part.strip() for part in parts)
    return tuple(dict.fromkeys(part for part in stripped if _WORD.search(part)))


MAX_TERMS: Final = 400
_EDGE: Final = "<edge>"


def tokens(text: str) -> list[str]:
    """Return the stems of a request and the kinds of its values, in order.

    >>> tokens("Move the 9:30 meeting to March 3rd")
    ['mov', 'the', '<time>', 'meet', 'to', '<date>']
    """
    text = text[:MAX_REQUEST_CHARS]
    found: list[str] = []
    before = 0
    for value in values_in(text, RANKED):
        found += [*words(text[before : value.start], stems=True), f"<{value.kind.lower()}>"]
        before = value.end
    return [*found, *words(text[before:], stems=True)]


@cached(mebibytes=6)
def terms_of(text: str) -> tuple[str, ...]:
    """Return the different words of a text, and its different pairs of neighbouring words with a space in between.

    The first and the last word are paired with the edge of the text. At most MAX_TERMS.
    """
    found = tokens(text)
    pairs = (f"{a} {b}" for a, b in pairwise((_EDGE, *found, _EDGE)))
    return tuple(dict.fromkeys((*found, *pairs)))[:MAX_TERMS] if found else ()


def is_usual(term: str) -> bool:
    """Return True if a word is one that any request may have ("please", "the"), or a pair consists of such words."""
    return STOP_STEMS.issuperset(map(stem, term.split(" ")))


@cached(mebibytes=6)
def term_weight(term: str) -> float:
    """Return what a word or a pair of words counts by its looks alone."""
    return (PAIR_WEIGHT if " " in term else 1.0) * (STOP_WEIGHT if is_usual(term) else 1.0)


_SMALL_TALK: Final = frozenset(
    words("""
    again ahead all alright amazing appreciate back bit bye cheers continue correct done else enough evening
    everything exactly excellent fine go good goodbye great guys happy hello help helpful hey hi just know like lot
    mind moment more morning much never no nope nothing ok okay one perfect please problem proceed ready right same
    see so sorry sounds still sure talk thank thanks that thing think today too understand understood very wait
    welcome well wonderful worries worry wow yeah yep yes you
    """)
)
_JOINED: Final = re.compile(r"(?<=\w)(?:n't|'\w+)\b|\b(?:good|great|nice) day\b")
"""A wish, and a suffix after an apostrophe: "that's" is "that", "don't" is "do"."""
_FEW: Final = 200
"""Characters from which a text is no small talk, whatever its words."""


def is_small_talk(text: str, usual: frozenset[str]) -> bool:
    """Return True if a text asks for nothing.

    Args:
        usual: further words that tell nothing.

    >>> is_small_talk("Good morning, how are you?", frozenset({"how", "are", "you"}))
    True
    >>> is_small_talk("Good morning, book me a room.", frozenset())
    False
    """
    if len(text) > _FEW:
        return False
    left = words(_JOINED.sub("", text.replace("’", "'")))
    return all(word in _SMALL_TALK or word in usual for word in left)


# --- what calls left of a request ---

_FOLLOWING: Final = re.compile(r"(?<=[\w,;:] )[^\W\d_]\w+")


def left_over(text: str, taken: Iterable[str]) -> frozenset[str]:
    """Return the names of a text, and whatever has a digit, that no value of a call has taken up."""
    return (names_within(text) | _numbers(text)).difference(*map(_parts, taken))


@cached(mebibytes=2)
def names_within(text: str) -> frozenset[str]:
    """Return the words with a capital within a sentence, in lower case. A word all in capitals is no name."""
    following = _FOLLOWING.findall(text)
    return frozenset(word.lower() for word in following if word[0].isupper() and not word.isupper())


@cached(mebibytes=2)
def _numbers(text: str) -> frozenset[str]:
    return frozenset(part for part in _parts(text) if any(map(str.isdigit, part)))


@cached(mebibytes=4)
def _parts(text: str) -> frozenset[str]:
    return frozenset(part.strip(".,;:!?()'\"") for part in text.lower().split())
