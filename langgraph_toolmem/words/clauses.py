"""A compound request in pieces: its sentences, and the clauses within them.

"Find a flight to Oslo and book a hotel, then mail me the plan" needs three tools; each is found best by its own
part of the text. Sentences end at marks of any script. Clauses end at commas and semicolons of any script and at
words that join, in English and a few other European languages; in other languages only the marks split, so a text
without them is one piece, as if it had not been split. What stands in quotes or brackets stays together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from langgraph_toolmem.words.values import quotes_in

MAX_CHARS: Final = 4000
"""Characters of a request that are read; a pasted document is no request."""
MAX_SENTENCES: Final = 8
MAX_CLAUSES: Final = 16

_JOINING: Final = (
    # English; longer ones first, since the first that fits is taken
    "and then", "and also", "as well as", "along with", "together with", "followed by", "such as", "and", "or",
    "then", "also", "additionally", "furthermore", "moreover", "besides", "plus", "including", "finally",
    "afterwards", "lastly",
    # German, French, Spanish, Italian, Portuguese, Dutch
    "und", "sowie", "oder", "dann", "danach", "außerdem", "anschließend",
    "et", "puis", "ensuite", "ainsi que", "ou", "y", "luego", "después", "además", "también", "o",
    "e", "poi", "inoltre", "anche", "depois", "também", "en", "daarna", "ook",
)  # fmt: skip
SENTENCE_END: Final = (
    # not after e.g., i.e., Mr., vs., No., or a single initial
    r"(?-i:(?<=[.?!;…])(?<!\b[eE]\.g\.)(?<!\bi\.e\.)(?<!\b[MD]r\.)(?<!\bMrs\.)(?<!\bvs\.)(?<!\bNo\.)(?<!\b[A-Z]\.)\s+"
    r"|(?<=[。！？；])\s*"
    r"|\s*[\r\n]+\s*(?:[-*•]\s+|\(?\d{1,2}[.)]\s+)?)"
)
"""A regular expression for what stands between sentences, the signs of a list included."""
NEXT: Final = "and then|then|after that|afterwards|also|additionally|otherwise|if so|if not|finally|lastly"
"""A regular expression for words that begin what is to be done next."""
_SENTENCE = re.compile(SENTENCE_END)
_CLAUSE = re.compile(
    r",?\s+(?:" + "|".join(_JOINING) + r")\s+|,\s+|;\s*|:\s+|[，、；]\s*",
    re.IGNORECASE,
)
_BRACKETS = re.compile(r"\([^()\n]{1,200}\)")
_LONGEST_QUOTE: Final = 200
_WORD = re.compile(r"\w")


class Pieces(NamedTuple):
    """A request in parts, without repetition, in the order of the text.

    Attributes:
        sentences: at least one, unless the text has no word.
        clauses: those of all sentences; a sentence without a join is its own only clause.
    """

    sentences: tuple[str, ...]
    clauses: tuple[str, ...]


def split(text: str) -> Pieces:
    """The sentences and clauses of a request. Of long texts the beginning is read.

    >>> split("Find a flight to Oslo and book a hotel. Mail me 'sun, sea and sand'.").clauses
    ('Find a flight to Oslo', 'book a hotel', "Mail me 'sun, sea and sand'")
    """
    text = text[:MAX_CHARS]
    sentences = _different(_SENTENCE.split(text))[:MAX_SENTENCES]
    clauses = _different(clause for sentence in sentences for clause in _clauses(sentence))
    return Pieces(sentences, clauses[:MAX_CLAUSES])


def _clauses(sentence: str) -> list[str]:
    closed = [*quotes_in(sentence, _LONGEST_QUOTE), *(match.span() for match in _BRACKETS.finditer(sentence))]
    found: list[str] = []
    start = 0
    for match in _CLAUSE.finditer(sentence):
        if any(begin <= match.start() < end for begin, end in closed):
            continue
        found.append(sentence[start : match.start()])
        start = match.end()
    found.append(sentence[start:])
    return [part.rstrip(".?!…。！？ ") for part in found]


def _different(parts: Iterable[str]) -> tuple[str, ...]:
    stripped = (part.strip() for part in parts)
    return tuple(dict.fromkeys(part for part in stripped if _WORD.search(part)))
