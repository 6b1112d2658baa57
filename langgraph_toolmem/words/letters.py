"""Letters without what is above them."""

from __future__ import annotations

import re
import unicodedata

_MARKS = re.compile("[\u0300-\u036f]")


def unaccented(text: str) -> str:
    """A text in its plainest characters: no accents of Latin letters, no ligatures, no full-width forms.

    >>> unaccented("São Tomé, ﬁn")
    'Sao Tome, fin'
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFKD", text)))
