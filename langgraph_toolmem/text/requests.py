"""A request: its sentences and clauses, its terms for comparing it with others, small talk, and unused names.

"Plot visits since October 6" and "Plot visits since 2023-11-12" are the same request with another date, and "… since
Sunday" is slightly different. So among the terms, the kind of a value (`text.values`) replaces the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.lexicon import LEXICON
from langgraph_toolmem.text.looks import RANKED
from langgraph_toolmem.text.values import values_in
from langgraph_toolmem.text.words import FEATURE_WEIGHTS, STOP_STEMS, has_digit, stem, words


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds of reading a request.

    Attributes:
        chars: read characters: a longer text is a pasted document.
        terms: compared words and pairs of words.
        sentences: searched sentences.
        clauses: searched clauses.
        small_talk: longest small talk in characters.
    """

    chars: int = 4_000
    terms: int = 400
    sentences: int = 8
    clauses: int = 16
    small_talk: int = 200


REQUEST_LIMITS: Final = RequestLimits()

# --- sentences and clauses ---

SENTENCE_END: Final = (
    # Not after e.g., i.e., Mr., vs., No., or a single initial.
    r"(?-i:(?<=[.?!;…])(?<!\b[eE]\.g\.)(?<!\bi\.e\.)(?<!\b[MD]r\.)(?<!\bMrs\.)(?<!\bvs\.)(?<!\bNo\.)(?<!\b[A-Z]\.)\s+"
    r"|(?<=[。！？；])\s*"
    r"|(?<!\s)\s*[\r\n]+\s*(?:[-*•]\s+|\(?\d{1,2}[.)]\s+)?)"
)
"""A regular expression for the text between two sentences, list markers included."""
NEXT: Final = "and then|then|after that|afterwards|also|additionally|otherwise|if so|if not|finally|lastly"
"""A regular expression for words that begin the next clause."""
_CLAUSE = re.compile(
    # Of two joining words the longer one comes first: an alternation takes the first that matches.
    r"(?:,|(?<!\s))\s+(?:and then|and also|as well as|along with|together with|followed by|such as|and|or"
    r"|then|also|additionally|plus|including|finally)\s+"
    r"|,\s+|;\s*|:\s+|[，、；]\s*",
    re.IGNORECASE,
)


class Pieces(NamedTuple):
    """A request in parts, without repetition, in the order of the text.

    Attributes:
        sentences: at least one, unless the text has no word.
        clauses: the clauses of all sentences. A sentence without a joining word is one clause.
    """

    sentences: tuple[str, ...]
    clauses: tuple[str, ...]


def split_clauses(text: str) -> Pieces:
    """Return the sentences and clauses of a request. Of long texts only the beginning is read.

    >>> split_clauses("Find a flight to Oslo and book a hotel. Mail me.").clauses
    ('Find a flight to Oslo', 'book a hotel', 'Mail me')
    """
    # A request may need several tools. Of 765 requests over 2,490 APIs, a fused search of words and vectors found all
    # tools among the first 20 for 77.5 % by clauses, and for 71.8 % by the whole request.
    sentences = _different(re.split(SENTENCE_END, text[: REQUEST_LIMITS.chars]))[: REQUEST_LIMITS.sentences]
    clauses: list[str] = []
    for sentence in sentences:
        for clause in _CLAUSE.split(sentence):
            clauses.append(clause.rstrip(".?!…。！？ "))
    return Pieces(sentences, _different(clauses)[: REQUEST_LIMITS.clauses])


def _different(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the parts that contain a word, each once."""
    different: dict[str, None] = {}
    for part in parts:
        stripped = part.strip()
        if re.search(r"\w", stripped):
            different[stripped] = None
    return tuple(different)


# --- terms ---


def tokens(text: str) -> list[str]:
    """Return the stems of a request and the kinds of its values, in order.

    >>> tokens("Move the 9:30 meeting to March 3rd")
    ['mov', 'the', '<time>', 'meet', 'to', '<date>']
    """
    text = text[: REQUEST_LIMITS.chars]
    sequence: list[str] = []
    end_of_last = 0
    for value in values_in(text, RANKED):
        sequence += words(text[end_of_last : value.start], stems=True)
        sequence.append(f"<{value.kind.lower()}>")
        end_of_last = value.end
    sequence += words(text[end_of_last:], stems=True)
    return sequence


@cached(mebibytes=6)
def terms_of(text: str) -> tuple[str, ...]:
    """Return the different words of a text, and its different pairs of neighbouring words joined by a space.

    The first and the last word form a pair with the edge of the text. At most `REQUEST_LIMITS.terms`.
    """
    sequence = tokens(text)
    if not sequence:
        return ()
    edge = "<edge>"
    pairs = [f"{first} {second}" for first, second in pairwise([edge, *sequence, edge])]
    return tuple(dict.fromkeys(sequence + pairs))[: REQUEST_LIMITS.terms]


def is_usual(term: str) -> bool:
    """Return True for a word that any request may contain ("please", "the"), or a pair of such words."""
    for word in term.split(" "):
        if stem(word) not in STOP_STEMS:
            return False
    return True


@cached(mebibytes=6)
def term_weight(term: str) -> float:
    """Return the weight of a word or a pair of words, judged by its form alone."""
    weight = 1.0
    if " " in term:
        weight = FEATURE_WEIGHTS.pair
    if is_usual(term):
        weight *= FEATURE_WEIGHTS.stop
    return weight


# --- small talk ---


def is_small_talk(text: str, usual: frozenset[str]) -> bool:
    """Return True if a text is not a request.

    Args:
        usual: further words without a request.

    >>> is_small_talk("Good morning, how are you?", frozenset({"how", "are", "you"}))
    True
    >>> is_small_talk("Good morning, book me a room.", frozenset())
    False
    """
    if len(text) > REQUEST_LIMITS.small_talk:
        return False
    # A wish ("have a nice day") is removed, and a suffix after an apostrophe: "that's" is "that", "don't" is "do".
    plain = re.sub(r"(?<=\w)(?:n't|'\w+)\b|\b(?:good|great|nice) day\b", "", text.replace("’", "'"))
    for word in words(plain):
        if word not in LEXICON.small_talk and word not in usual:
            return False
    return True


# --- unused names and numbers ---


def left_over(text: str, taken: Iterable[str]) -> frozenset[str]:
    """Return the names in a text, and words with a digit, that are not in a value of a call."""
    remaining = set(names_within(text) | _numbers(text))
    for value in taken:
        remaining -= _parts(value)
    return frozenset(remaining)


@cached(mebibytes=2)
def names_within(text: str) -> frozenset[str]:
    """Return the capitalised words inside sentences, in lower case. A word all in capitals is not a name."""
    names: set[str] = set()
    # After a letter, a comma or a colon: the first word of a sentence always has a capital.
    for word in re.findall(r"(?<=[\w,;:] )[^\W\d_]\w+", text):
        if word[0].isupper() and not word.isupper():
            names.add(word.lower())
    return frozenset(names)


@cached(mebibytes=2)
def _numbers(text: str) -> frozenset[str]:
    return frozenset([part for part in _parts(text) if has_digit(part)])


@cached(mebibytes=4)
def _parts(text: str) -> frozenset[str]:
    return frozenset([part.strip(".,;:!?()'\"") for part in text.lower().split()])
