"""Names of people and things in a text: by their capitals, or by a possessive.

"Ask Maria del Carmen about alice's order" contains "Maria del Carmen" and "alice". A capital at the beginning of a
sentence is no evidence, nor is the capital of a word such as "Please" or "I".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from langgraph_toolmem.text.lexicon import LEXICON


def _letters() -> tuple[str, str]:
    """Return the upper and lower case of Latin, Greek and Cyrillic for a class: `re` has no classes for them."""
    upper, lower = "A-Z", "a-z"
    for letter in map(chr, range(0xC0, 0x590)):
        if letter.isupper():
            upper += letter
        elif letter.islower():
            lower += letter
    return upper, lower


_UPPER, _LOWER = _letters()
# Repeats are bounded so that a text of equal signs takes linear time (tests/unit/test_linear_expressions.py).
_CAPITALISED = re.compile(
    rf"\b[{_UPPER}][\w'-]{{0,60}}?[{_LOWER}][\w'-]*"
    rf"(?:\s+(?:(?:of|de|van|von|la|di|da|al|bin|ibn)\s+(?:(?:der|den|la)\s+)?)?[{_UPPER}][\w'-]*)*"
)
# A first name with an inner capital: "McDonald", "O'Neil".
_INNER_CAPITAL = re.compile(rf"(?:Mac|Mc|O['’]|[DL]['’])[{_UPPER}][{_LOWER}]+")
_SENTENCE_BEGINS = re.compile(r"(?:^|[.!?:;\n•*-])\s{0,6}[\"'“‘(]{0,6}$")
_OWNER = re.compile(r"\b([a-z][\w-]{2,60})['’]s\b")


def name_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the names in a text, those with a capital first; a span may be empty."""
    for match in _CAPITALISED.finditer(text):
        yield _without_common_words(text, match.start(), match.end())
    for match in _OWNER.finditer(text):
        if match[1] not in LEXICON.not_owners:
            yield match.span(1)


def _without_common_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without leading words that are not names, and without a possessive 's at its end."""
    # The first word of a sentence always has a capital; only an inner capital counts: "McDonald".
    begins_sentence = _SENTENCE_BEGINS.search(text[max(0, start - 6) : start]) is not None
    is_skipped = begins_sentence and not _INNER_CAPITAL.match(text, start)
    while start < end:
        word, space, _ = text[start:end].partition(" ")
        is_common = word[:1].islower() or word.lower().replace("’", "'") in LEXICON.no_names
        if not is_skipped and not is_common:
            break
        start += len(word) + len(space)
        is_skipped = False
    if text[start:end].endswith(("'s", "’s")):
        end -= 2
    return start, end
