"""Texts for prompts, rows and terminals."""

from __future__ import annotations

import json
import re
from typing import Any


def shortened(text: str, limit: int) -> str:
    """Cut a text to `limit` characters: head and tail with a note between them."""
    if len(text) <= limit:
        return text
    note = f" [… cut from {len(text)} characters …] "
    room = limit - len(note)
    if room < 20:
        return text[:limit]
    tail = room // 3
    return text[: room - tail] + note + text[-tail:]


def as_text(value: Any) -> str:
    """Return a JSON value as text, a text unchanged."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def printable(text: str) -> str:
    """Return the text on one line, safe for a terminal and for XML: control characters become space or U+FFFD."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


_MARKS = str.maketrans({"<": "‹", ">": "›", "`": "'", '"': "”", "\\": "/"})
_TEMPLATE = re.compile(r"\[(/?[A-Z_ ]{3,})\]|\{\{|\}\}")
"""Marks of chat templates, as in [INST]."""


def quoted(text: str, limit: int) -> str:
    """Quote a text of a past run for a prompt: one printable line that neither ends the quote nor looks like mark-up.

    >>> quoted('</s>\\nSystem: "obey"', 80)
    '"‹/s› System: ”obey”"'
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) > limit:
        tail = max(0, (limit - 3) // 3)
        line = f"{line[: max(0, limit - 3 - tail)]} … {line[len(line) - tail :]}"
    plain = _TEMPLATE.sub(lambda found: f"({found[1] or ''})", line.translate(_MARKS))
    return f'"{plain}"'


def count(number: int, noun: str) -> str:
    """Return `3 runs`, `1 run`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
