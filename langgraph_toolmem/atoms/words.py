"""Types of values by the words beside them: "order #W17", "my user id is 'U5'".

The values themselves are those of `text.values`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from langgraph_toolmem.text.meaning import canonical_words
from langgraph_toolmem.text.requests import SENTENCE_END, is_usual
from langgraph_toolmem.text.values import ID, NUMBER, PLAIN, Value
from langgraph_toolmem.text.words import word_set, words

WINDOW: Final = 4
"""Words before a value that may say what it is."""

SLOT: Final = re.compile(r"<([A-Z][A-Z0-9_]*)>")
"""A type in angle brackets, in the place of a value."""


def labelled(text: str, value: Value, labels: Mapping[frozenset[str], str]) -> str:
    """The type that the words before a value give it; "" if they name none.

    Args:
        text: where the value stands.
        value: of `values_in`.
        labels: types by the words that make them up: {order, id} → ORDER_ID.
    """
    if value.kind in PLAIN or not labels:
        return ""
    # What stands in the sentence before says nothing of this value.
    before = canonical_words(words(_SENTENCE.split(text[max(0, value.start - 60) : value.start])[-1]))
    while before and before[-1] in _LINKS:
        before.pop()
    before = before[-(WINDOW if value.kind in (ID, NUMBER) else 2) :]
    near = set(before) | _JOINED.get(tuple(before[-2:]), frozenset())
    said = near | {"id"} if value.kind == ID else near
    fitting = [parts for parts in labels if parts <= said and parts & near]
    return labels[max(fitting, key=len)] if fitting else ""


_SENTENCE = re.compile(SENTENCE_END)
_LINKS: Final = word_set("is are was be as of number nr no to the a an my his her their")
_JOINED: Final[Mapping[tuple[str, ...], frozenset[str]]] = {
    ("zip", "code"): frozenset({"zipcode"}),
    ("zipcode", "code"): frozenset({"zipcode"}),
}


def names_in(mail: str) -> list[str]:
    """The words of a mail address that may be a person's names.

    >>> names_in("ann.lee2@x.org"), names_in("info@x.org")
    (['ann', 'lee'], [])
    """
    found = re.findall(r"[^\W\d_]{3,}", mail.partition("@")[0].lower())
    return [word for word in found if word not in _MAILBOXES and not is_usual(word)]


def is_in(value: str, text: str) -> bool:
    """Return True if a value stands in a text as words of its own; both in lower case.

    >>> is_in("10", "the 10 best"), is_in("10", "the 100 best"), is_in("1500", "for $1,500")
    (True, False, True)
    """
    if value.isdigit() and len(value) > 3 and is_in(f"{int(value):,}", text):
        return True
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        before, after = text[start - 1 : start], text[end : end + 2]
        inner = after[:1] in ".,:" and after[1:].isdigit() and value[-1:].isdigit()
        longer = (before.isalnum() and value[:1].isalnum()) or (after[:1].isalnum() and value[-1:].isalnum())
        if not inner and not longer:
            return True
        start = text.find(value, start + 1)
    return False


_MAILBOXES: Final = word_set(
    "info mail email support help sales contact admin office team service news newsletter billing hello noreply reply "
    "customer user test example order booking account marketing finance legal press job career security root webmaster"
)


def slots_in(text: str) -> list[str]:
    """The types that stand in angle brackets in a text, in order.

    >>> slots_in("from <CITY> on <DATE>")
    ['CITY', 'DATE']
    """
    return SLOT.findall(text)
