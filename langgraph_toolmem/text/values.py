"""The values that a text contains, and texts as a source of argument values.

`text.looks` and `text.names` define the form of each kind of value; this module finds them.

A value that the model copied from a text is described by its place ("the word after *order number*", "the first token
shaped #A9999999"), so that it can be found again in another text. So the words of a `Text` keep their signs ("#W17",
"a.b@c.de"), their accents and their places, which `text.words.words` removes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.looks import KINDS, MONTHS, WHOLE_VALUES, Kind, scanner
from langgraph_toolmem.text.names import name_spans
from langgraph_toolmem.text.words import has_digit

MAX_CHARS: Final = 6000
"""Characters of a text that are read."""


class TextValue(NamedTuple):
    """A value in a text: its kind and its place."""

    kind: Kind
    text: str
    start: int
    end: int


class _Taken:
    """The characters of a text that belong to found values."""

    def __init__(self, length: int) -> None:
        self._flags = bytearray(length)

    def add(self, start: int, end: int) -> None:
        self._flags[start:end] = b"\1" * (end - start)

    def overlaps(self, start: int, end: int) -> bool:
        return any(self._flags[start:end])


@cached(mebibytes=6)
def values_in(text: str, kinds: frozenset[Kind] = KINDS) -> tuple[TextValue, ...]:
    """Return the values of some kinds in a text, in order; they do not overlap.

    At most 400, of the first MAX_CHARS characters. A text in quotes is one value: TEXT if its form shows no other kind.

    >>> [(v.kind, v.text) for v in values_in("Mail ann@x.org the file 'a.txt' by Friday")]
    [('EMAIL', 'ann@x.org'), ('FILE', 'a.txt'), ('DATE', 'Friday')]
    """
    max_values = 400
    text = text[:MAX_CHARS]
    values = list(_by_looks(text, kinds))
    if "NAME" in kinds:
        values += _names_between(text, values)
        values.sort(key=_start_of)
    return tuple(values[:max_values])


def _start_of(value: TextValue) -> int:
    return value.start


def _by_looks(text: str, kinds: frozenset[Kind]) -> Iterator[TextValue]:
    pattern, kind_by_group = scanner(kinds)
    for match in pattern.finditer(text):
        group = match.lastindex or 0
        kind = kind_by_group[group]
        if kind in ("QUOTE", "TEXT", "NAME"):
            group = _inner_group(match, group)
        if kind == "QUOTE":
            kind = kind_of(match[group]) or "TEXT"
        yield TextValue(kind, match[group], *match.span(group))


def _inner_group(match: re.Match[str], outer: int) -> int:
    """Return the number of the group within a look that contains the value."""
    group = outer + 1
    while match.start(group) < 0:
        group += 1
    return group


def _names_between(text: str, values: list[TextValue]) -> list[TextValue]:
    """Return the names in a text outside the found values."""
    taken = _Taken(len(text))
    for value in values:
        taken.add(value.start, value.end)
    names: list[TextValue] = []
    for start, end in name_spans(text):
        if start < end and not taken.overlaps(start, end):
            names.append(TextValue("NAME", text[start:end], start, end))
    return names


def delexicalised(text: str, types: Mapping[str, str] | None = None) -> str:
    """Return the text with its values replaced by their types in angle brackets.

    >>> delexicalised("Return #W1234567 to ann@x.org", {"#W1234567": "ORDER_ID"})
    'Return <ORDER_ID> to <EMAIL>'

    Args:
        text: any text.
        types: types of known values, by value, including values without a typical form.
    """
    text = text[:MAX_CHARS]
    labels: dict[str, str] = {}
    if types is not None:
        for known, label in types.items():
            labels[known.lower()] = label
    slots: list[_TextSlot] = []
    taken = _Taken(len(text))
    for value in values_in(text):
        slots.append(_TextSlot(value.start, value.end, labels.get(value.text.lower(), value.kind)))
        taken.add(value.start, value.end)
    low = lowered(text)
    for known in _longest_first(labels):
        for start in _whole(known, low):
            end = start + len(known)
            if not taken.overlaps(start, end):
                taken.add(start, end)
                slots.append(_TextSlot(start, end, labels[known]))
    parts: list[str] = []
    end_of_last = 0
    for slot in sorted(slots):
        parts += [text[end_of_last : slot.start], f"<{slot.label}>"]
        end_of_last = slot.end
    parts.append(text[end_of_last:])
    return " ".join("".join(parts).split())


class WordSpan(NamedTuple):
    """The first and the last word of a part of a text."""

    first: int
    last: int


class _TextSlot(NamedTuple):
    """A span of a text that a label replaces."""

    start: int
    end: int
    label: str


def _longest_first(values: Mapping[str, str]) -> list[str]:
    """Return the values that are long enough to search in a text; equally long ones by alphabet."""
    # One or two letters occur in other texts by chance.
    by_alphabet = sorted([value for value in values if len(value) > 2])
    return sorted(by_alphabet, key=len, reverse=True)


def lowered(text: str) -> str:
    """Return the text in lower case, each character in its place: the few that would become two are unchanged."""
    low = text.lower()
    if len(low) == len(text):
        return low
    # "İ" becomes "i" and a dot.
    return "".join(map(_lowered_char, text))


def _lowered_char(char: str) -> str:
    low = char.lower()
    if len(low) > 1:
        return char
    return low


def _whole(value: str, text: str) -> Iterator[int]:
    """Yield the positions of a value in a text as whole words."""
    # `str.find`, because `re` would keep an expression made of the value, which may be personal, in its cache.
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        if _is_of_word(text, start - 1) or _is_of_word(text, end):
            start = text.find(value, start + 1)
        else:
            yield start
            start = text.find(value, end)


def _is_of_word(text: str, place: int) -> bool:
    return 0 <= place < len(text) and (text[place].isalnum() or text[place] == "_")


@cached(mebibytes=2)
def kind_of(value: str) -> Kind | Literal[""]:
    """Return the kind of a whole value, one of WHOLE_VALUES; "" for words. A datetime is a DATE.

    >>> kind_of("2024-05-01 10:00:00"), kind_of("#W1234567"), kind_of("in progress")
    ('DATE', 'ID', '')
    """
    longest = 200  # characters: a longer text is words
    stripped = value.strip()
    if not stripped or len(stripped) > longest:
        return ""
    pattern, kind_by_group = scanner(WHOLE_VALUES)
    if match := pattern.fullmatch(stripped):
        return kind_by_group[match.lastindex or 0]
    if " " not in stripped and has_digit(stripped):
        return "ID"
    return ""


# --- texts as a source ---

_WORD = re.compile(r"'s\b|[#@$]?\w(?:(?:(?!'s\b)[\w@.\-/:+&'])*\w)?|[^\w\s]")


@dataclass
class Text:
    """A tokenised text. `words[i]` is in lower case and spans `starts[i]:ends[i]` of `raw`."""

    raw: str
    words: list[str]
    starts: list[int]
    ends: list[int]

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Word -> its indices."""
        places: dict[str, list[int]] = {}
        for index, word in enumerate(self.words):
            places.setdefault(word, []).append(index)
        return places

    @cached_property
    def shapes(self) -> dict[str, list[str]]:
        """Shape -> the original words that have it, in order."""
        by_shape: dict[str, list[str]] = {}
        for start, end in zip(self.starts, self.ends, strict=True):
            word = self.raw[start:end]
            shape = shape_of(word)
            if shape:
                by_shape.setdefault(shape, []).append(word)
        return by_shape

    def span(self, first: int, last: int) -> str:
        """Return the original text from word `first` to word `last`, both included."""
        return self.raw[self.starts[first] : self.ends[last]]

    def find(self, value: str) -> WordSpan | None:
        """Return the word span whose text equals `value`, ignoring case, or None."""
        # Longer values are prose, not values that a request names.
        max_chars, max_words = 400, 40
        if len(value) > max_chars:
            return None
        wanted = read_text(value).words
        if not wanted or len(wanted) > max_words:
            return None
        for first in self.places.get(wanted[0], ()):
            end = first + len(wanted)
            # Words are compared in lower case; the caller compares the case.
            if self.words[first:end] == wanted:
                return WordSpan(first, end - 1)
        return None


def _bytes_of_words(raw: str) -> int:
    # Bytes of a `Text` for each of its characters, with the tables that are made from it later (measured).
    bytes_a_character = 50
    return bytes_a_character * min(len(raw), MAX_CHARS)


@cached(mebibytes=8, weigh=_bytes_of_words)
def read_text(raw: str) -> Text:
    """Tokenise a text; the result is shared, so do not change it."""
    raw = raw[:MAX_CHARS]
    words, starts, ends = [], [], []
    for match in _WORD.finditer(raw):
        words.append(match.group().lower())
        starts.append(match.start())
        ends.append(match.end())
    return Text(raw, words, starts, ends)


def is_word(token: str) -> bool:
    """Return True if a token is more than a punctuation mark."""
    return len(token) > 1 or token.isalnum()


@cached(mebibytes=2)
def shape_of(token: str) -> str | None:
    """Return the shape of an identifier-like token: e-mail, date, or its letters and digits classed one by one.

    Plain words have no shape: "the first lower-case word" is not specific.
    """
    if not token:
        return None
    kind = kind_of(token)
    if kind == "EMAIL":
        return "<email>"
    if kind == "DATE" and token[4:5] == "-":
        if len(token) > 10:
            return "<datetime>"
        return "<date>"
    if "/" in token or "\\" in token:
        return "<path>"
    if not has_digit(token):
        return _shape_without_digits(token, kind)
    if not token.isdigit():
        return _shape_with_digits(token, kind)
    if len(token) > 3:
        return f"<digits{len(token)}>"
    return "<number>"


def _shape_with_digits(token: str, kind: str) -> str:
    is_plain_number = kind == "NUMBER" and token[0] != "#" and token[-1].isdigit()
    if is_plain_number or kind in ("AMOUNT", "PERCENT"):
        return "<number>"
    digits_classed = re.sub(r"\d", "9", token)
    capitals_classed = re.sub("[A-Z]", "A", digits_classed)
    return re.sub("[a-z]", "a", capitals_classed)


def _shape_without_digits(token: str, kind: str) -> str | None:
    if token[0] in "#@$":
        return token[0] + "<word>"
    if kind == "FILE":
        return "<file>"
    if "_" in token:
        return "<underscored>"
    return None


@cached(mebibytes=1)
def dates_in(raw: str) -> tuple[str, ...]:
    """Return the dates named by month and day in a text, in order: ``"11-21"`` for *November 21st* or *21 Nov*."""
    dates: list[str] = []
    for value in values_in(raw, frozenset({"DATE"})):
        date = _month_and_day(value.text.lower())
        if date:
            dates.append(date)
    return tuple(dates)


def _month_and_day(date: str) -> str:
    """Return a date as "MM-DD"; "" if month or day is missing."""
    for word in re.finditer(r"[a-z]+", date):
        if word[0] not in MONTHS:
            continue
        day = re.search(r"(?<!\d)\d\d?(?!\d)", f"{date[: word.start()]} {date[word.end() :]}")
        if day is None or not 1 <= int(day[0]) <= 31:
            return ""
        return f"{MONTHS[word[0]]:02d}-{int(day[0]):02d}"
    return ""


@cached(mebibytes=4)
def pieces_of(text: str) -> frozenset[str]:
    """Return the runs of letters and digits of a text, in lower case."""
    return frozenset([piece.lower() for piece in re.findall(r"\w+", text)])
