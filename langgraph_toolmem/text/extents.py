"""Extents: the possible ends of a value in a text.

"Pay Anna Petit 12.50" contains "Anna", "Anna Petit" and "Anna Petit 12.50" after "pay". The memory learns which of them
a tool takes, so each possible extent has a name. A word with a capital counts as a name, and so does a word of a script
without capitals.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.values import Text, is_word, read_text
from langgraph_toolmem.text.words import has_digit

Extent: TypeAlias = Literal["first", "last", "name", "joined", "numbered", "token"]
Span: TypeAlias = tuple[int, int]

UNTIL: Final = ">"
"""Begins an extent that ends before a known word: ``">please"``, ``">."`` for a mark or the end."""
TEXT_END: Final = "."
"""Written for a punctuation mark, or the end of a line."""
A_NUMBER: Final = "#"
"""Written for a number or an identifier."""


def is_name(token: str) -> bool:
    """Return True for a word with a capital, or of a script without capitals.

    >>> is_name("Anna"), is_name("王伟"), is_name("anna"), is_name("12.50")
    (True, True, False, False)
    """
    if has_digit(token):
        return False
    for char in token:
        if _marks_name(char):
            return True
    return False


def _marks_name(char: str) -> bool:
    """Return True for a capital, or a letter of a script without capitals."""
    return char.isupper() or (char.isalpha() and char.lower() == char.upper())


@cached(mebibytes=2)
def extents(raw: str, start: int) -> dict[Extent, Span]:
    """Return the possible extents of a value that begins at word `start` of a text; {} if only the words
    after it can show its end.

    >>> text = "Pay Maria del Carmen 12.50"
    >>> read_text(text).span(*extents(text, 1)["joined"])
    'Maria del Carmen'
    """
    text = read_text(raw)
    first = _original(text, start)
    if has_digit(first):
        return {"token": (start, start), "numbered": (start, _run(text, start, numbers=True))}
    if not is_name(first):
        return {}
    end = _run(text, start, numbers=False)
    return {
        "first": (start, start),
        "last": (end, end),
        "name": (start, end),
        "joined": (start, _joined(text, end)),
        "numbered": (start, _run(text, start, numbers=True)),
    }


def is_open(text: Text, first: int, last: int, *, first_word: bool = False) -> bool:
    """Return True if a name continues before or after a span, so that the span may be a part of it.

    The first word of a text always has a capital; it counts with `first_word`.
    """
    if not is_name(_original(text, last)) and not is_name(_original(text, first)):
        return False
    end = _joined(text, _run(text, last, numbers=False))
    # "Maria" continues in "Maria del Carmen".
    if end > last:
        return True
    earliest = 1
    if first_word:
        earliest = 0
    return first > earliest and _adjacent(text, first - 1) and is_name(_original(text, first - 1))


def name_start(text: Text, index: int) -> int:
    """Return the first word of the names that end with a word, or continue after it."""
    while index > 0 and is_name(_original(text, index)) and is_name(_original(text, index - 1)):
        if not _adjacent(text, index - 1):
            break
        index -= 1
    return index


def right_of(text: Text, last: int) -> str:
    """Return the word after a span, as `UNTIL` extents write it."""
    if last + 1 >= len(text.words) or not _adjacent(text, last):
        return TEXT_END
    following = text.words[last + 1]
    if not is_word(following):
        return TEXT_END
    # The following number belongs to the request, not to the place.
    if has_digit(following):
        return A_NUMBER
    return following


def after_name(text: Text, last: int) -> str:
    """Return the word after a name that ends with word `last`, if it may belong to the name; otherwise ""."""
    if last + 1 >= len(text.words) or not is_name(_original(text, last)):
        return ""
    if is_name(_original(text, last + 1)):
        return ""
    following = right_of(text, last)
    if following in (TEXT_END, A_NUMBER):
        return ""
    return following


def until(text: Text, start: int, right: str) -> Span | None:
    """Return the span from word `start` to the word before `right`; None if `right` does not follow soon."""
    max_words = 6  # of a value: in a longer text the word may be unrelated
    for last in range(start, min(start + max_words, len(text.words))):
        if not is_word(text.words[last]):
            return None
        following = right_of(text, last)
        if following == right:
            return start, last
        if following == TEXT_END:
            return None
    return None


def _original(text: Text, index: int) -> str:
    return text.raw[text.starts[index] : text.ends[index]]


def _adjacent(text: Text, index: int) -> bool:
    """Return True if word `index` and the next one are in one line."""
    return "\n" not in text.raw[text.ends[index] : text.starts[index + 1]]


def _run(text: Text, start: int, *, numbers: bool) -> int:
    """Return the last word of the names (and numbers) that follow each other from `start` on."""
    last = start
    while last + 1 < len(text.words) and _adjacent(text, last):
        token = _original(text, last + 1)
        belongs = is_name(token) or (numbers and has_digit(token))
        if not belongs:
            break
        last += 1
    return last


def _joined(text: Text, end: int) -> int:
    """Return the last word of a name that continues after joiners: "Maria" -> "Maria del Carmen"."""
    while True:
        following = _after_joiners(text, end)
        if following is None:
            return end
        end = _run(text, following, numbers=False)


def _after_joiners(text: Text, end: int) -> int | None:
    """Return the word at which a name continues after one or two joiners, in the same line."""
    max_joiners = 2  # "Count of the Alps"
    following = end + 1
    while following < len(text.words) and following - end <= max_joiners and _joins(text, following):
        following += 1
    has_joiners = following > end + 1
    if not has_joiners or following >= len(text.words) or not is_name(_original(text, following)):
        return None
    for index in range(end, following):
        if not _adjacent(text, index):
            return None
    return following


def _joins(text: Text, index: int) -> bool:
    """Return True for a word that may be inside a name: "del", "van", "of", "&"."""
    max_letters = 3
    token = text.words[index]
    # "Johnson & Johnson".
    if token == "&":
        return True
    return token.isalpha() and len(token) <= max_letters and not is_name(_original(text, index))
