"""Texts for prompts and rows: values as text, and long ones cut."""

from __future__ import annotations

import json
from typing import Any


def shortened(text: str, limit: int) -> str:
    """A text of at most `limit` characters: head and tail of a longer one, with a note between them."""
    if len(text) <= limit:
        return text
    note = f" [… cut from {len(text)} characters …] "
    room = limit - len(note)
    if room < 20:
        return text[:limit]
    tail = room // 3
    return text[: room - tail] + note + text[-tail:]


def as_text(value: Any) -> str:
    """A JSON value as text, a text as it is."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)
