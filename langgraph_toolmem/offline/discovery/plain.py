"""Whatever a tool answers as JSON values: what is compared, kept on disk and shown to models."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel

MAX_DEPTH: Final = 40
"""Levels of an answer that are kept."""
CUT: Final = "…"
"""Stands for what lies deeper, and for a value that contains itself."""


def as_plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    """The value in JSON values; the value itself where nothing had to be changed.

    Models and dataclasses become objects, sets and tuples lists, bytes base64; what has no form in JSON (a date, a
    path) becomes its text.

    Args:
        value: anything.
        above: identities of what it lies in.
    """
    if value is None or isinstance(value, bool) or type(value) in (str, int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if len(above) >= MAX_DEPTH or id(value) in above:
        return CUT
    above = (*above, id(value))
    if isinstance(value, Mapping):
        made = {_key(key): as_plain(inner, above) for key, inner in value.items()}
        same = type(value) is dict and all(made.get(key) is inner for key, inner in value.items())
        return value if same else made
    if isinstance(value, (list, tuple)):
        items = [as_plain(inner, above) for inner in value]
        same = type(value) is list and all(one is other for one, other in zip(items, value, strict=True))
        return value if same else items
    return _other(value, above)


def _other(value: Any, above: tuple[int, ...]) -> Any:
    if isinstance(value, BaseModel):
        return {name: as_plain(getattr(value, name), above) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: as_plain(getattr(value, each.name), above) for each in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return as_plain(value.value, above)
    if isinstance(value, Set):
        # Sets of texts have another order in each process.
        return sorted((as_plain(inner, above) for inner in value), key=lambda each: (type(each).__name__, str(each)))
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(bytes(value)).decode()
    return int(value) if isinstance(value, int) else str(value)


def _key(key: Any) -> str:
    key = key.value if isinstance(key, Enum) else key
    return key if type(key) is str else str(key)


__all__ = ["as_plain"]
