"""Text as a source of argument values: words with their places, shapes, quoted parts, dates.

A value that the model copied from a text is described by where it stood ("the word after *order number*",
"the first token shaped #A9999999", "the first quoted part"), so that it can be found again in another text. So words
keep their signs here ("#W17", "a.b@c.de"), their accents and their places, which `words.split` takes away.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from langgraph_toolmem.words.values import (
    AMOUNT,
    DATE,
    EMAIL,
    FILE,
    MAX_CHARS,
    NUMBER,
    PERCENT,
    kind_of,
    month_day,
    values_in,
)

MAX_SPAN_WORDS: Final = 40

_WORD = re.compile(r"'s\b|[#@$]?\w(?:(?:(?!'s\b)[\w@.\-/:+&'])*\w)?|[^\w\s]")
_PIECE = re.compile(r"\w+")
_DATES: Final = frozenset({DATE})


@dataclass(slots=True)
class Text:
    """A tokenised text. `words[i]` is lower-cased and spans `starts[i]:ends[i]` of `raw`."""

    raw: str
    words: list[str]
    starts: list[int]
    ends: list[int]
    _places: dict[str, list[int]] | None = field(default=None, repr=False)
    _shapes: dict[str, list[int]] | None = field(default=None, repr=False)

    def places(self, word: str) -> list[int]:
        """Indices at which a word stands."""
        if self._places is None:
            self._places = {}
            for i, w in enumerate(self.words):
                self._places.setdefault(w, []).append(i)
        return self._places.get(word, [])

    def with_shape(self, shape: str) -> list[str]:
        """The original words that have this shape, in order."""
        if self._shapes is None:
            self._shapes = {}
            for i in range(len(self.words)):
                found = shape_of(self.raw[self.starts[i] : self.ends[i]])
                if found:
                    self._shapes.setdefault(found, []).append(i)
        return [self.raw[self.starts[i] : self.ends[i]] for i in self._shapes.get(shape, [])]

    def span(self, first: int, last: int) -> str:
        """The original text from word `first` to word `last`, both included."""
        return self.raw[self.starts[first] : self.ends[last]]

    def find(self, value: str) -> tuple[int, int] | None:
        """The word span whose text equals `value`, ignoring case; None if it does not stand there whole."""
        wanted = read_text(value).words if len(value) <= 400 else []
        if not wanted or len(wanted) > MAX_SPAN_WORDS:
            return None
        n = len(wanted)
        for i in self.places(wanted[0]):
            if self.words[i : i + n] == wanted:
                return i, i + n - 1
        return None


@lru_cache(maxsize=4096)
def read_text(raw: str) -> Text:
    """Tokenises a text; the result is shared, so do not change it."""
    raw = raw[:MAX_CHARS]
    words, starts, ends = [], [], []
    for match in _WORD.finditer(raw):
        words.append(match.group().lower())
        starts.append(match.start())
        ends.append(match.end())
    return Text(raw, words, starts, ends)


def is_word(token: str) -> bool:
    """Whether a token is more than a punctuation mark."""
    return len(token) > 1 or token.isalnum()


@lru_cache(maxsize=8192)
def shape_of(token: str) -> str | None:
    """The shape of an identifier-like token: e-mail, date, or its letters and digits classed one by one.

    Plain words have no shape: "the first lower-case word" tells nothing.
    """
    if not token:
        return None
    kind = kind_of(token)
    if kind == EMAIL:
        return "<email>"
    if kind == DATE and token[4:5] == "-":
        return "<datetime>" if len(token) > 10 else "<date>"
    if "/" in token or "\\" in token:
        return "<path>"
    if not any(c.isdigit() for c in token):
        if token[0] in "#@$":
            return token[0] + "<word>"
        if kind == FILE:
            return "<file>"
        return "<underscored>" if "_" in token else None
    if token.isdigit():
        return f"<digits{len(token)}>" if len(token) > 3 else "<number>"
    if kind in (AMOUNT, PERCENT) or (kind == NUMBER and token[0] != "#" and token[-1].isdigit()):
        return "<number>"
    return re.sub("[a-z]", "a", re.sub("[A-Z]", "A", re.sub(r"\d", "9", token)))


@lru_cache(maxsize=2048)
def dates_in(raw: str) -> tuple[str, ...]:
    """The dates named by month and day in a text, as ``"11-21"``, in order."""
    named = (month_day(value.text) for value in values_in(raw, _DATES))
    return tuple(date for date in named if date)


@lru_cache(maxsize=4096)
def masked(text: str, said: tuple[str, ...]) -> str:
    """A text with "%" for each word that stands in one of those said; "" if no word is left."""
    own = [_pieces_of(raw) for raw in said]
    left = _PIECE.sub(lambda piece: "%" if any(piece[0].lower() in each for each in own) else piece[0], text)
    return left if _PIECE.search(left) else ""


@lru_cache(maxsize=2048)
def _pieces_of(raw: str) -> frozenset[str]:
    return frozenset(piece.lower() for piece in _PIECE.findall(raw))
