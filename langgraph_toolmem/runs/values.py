"""Values as the evidence graph compares them: flattened outputs, canonical texts, casts to a schema's type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

MAX_LEAVES: Final = 600
"""Scalars read from one output; the rest is no source of arguments."""
MAX_DEPTH: Final = 8
MAX_VALUE_CHARS: Final = 400
"""Longer strings are prose, not values: they are neither learned as constants nor indexed."""


class _Absent:
    """Value of an optional argument that is left out."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
_ABSENT_TEXT: Final = "\x00absent"


def canon(value: Any) -> str:
    """Return a value as text, equal for values that a tool treats alike (``5`` and ``"5"``)."""
    if isinstance(value, str):
        return value
    if value is ABSENT:
        return _ABSENT_TEXT
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return _json(value)


def canon_args(args: Mapping[str, Any]) -> str:
    """Return an argument dict as canonical text."""
    return _json(dict(args))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str, ensure_ascii=False)


class Flat(NamedTuple):
    """Values of an output by path.

    Attributes:
        scalars: JSON path (``$.user.id``) → scalar, for paths without a list.
        lists: starred path (``$.orders[*].id``) → the scalars there, in order.
        rows: starred path → the index of each of these scalars in the outermost list.
    """

    scalars: dict[str, Any]
    lists: dict[str, list[Any]]
    rows: dict[str, list[int]]


def flatten(output: Any) -> Flat:
    """Split an output into scalars and lists by path; at most MAX_LEAVES values are read."""
    flat = Flat({}, {}, {})
    for path, row, value in islice(_walk(output, "$", -1, 0), MAX_LEAVES):
        if row < 0:
            flat.scalars[path] = value
        else:
            flat.lists.setdefault(path, []).append(value)
            flat.rows.setdefault(path, []).append(row)
    return flat


def _walk(value: Any, path: str, row: int, depth: int) -> Iterator[tuple[str, int, Any]]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, f"{path}.{key}", row, depth + 1)
        if value and depth and all(isinstance(inner, dict) for inner in value.values()):
            # {"id1": {...}, "id2": {...}} is a list under another name: its keys are values too
            for index, key in enumerate(value):
                yield f"{path}.*~", max(row, index), key
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, f"{path}[*]", index if row < 0 else row, depth + 1)
    elif value is not None and value != "":
        yield path, row, value


_NUMBER = re.compile(r"-?\d+(\.\d+)?$")


def fit(value: Any, schema: Mapping[str, Any] | None) -> Any:
    """Cast a value to the type of its parameter; ABSENT if impossible, unchanged if no type is declared."""
    if schema and schema.get("type") == "string" and isinstance(value, str):
        return value  # the usual case, on the path of every prediction
    kinds = _kinds(schema) if schema else []
    if not kinds:
        return value
    fitted = [_cast(value, kind) for kind in kinds]
    as_it_is = next((f for f in fitted if type(f) is type(value) and f == value), ABSENT)
    return as_it_is if as_it_is is not ABSENT else next((f for f in fitted if f is not ABSENT), ABSENT)


def _kinds(schema: Mapping[str, Any]) -> list[Any]:
    kind = schema.get("type")
    if kind is None:
        branches = schema.get("anyOf") or schema.get("oneOf") or ()
        found = [branch.get("type") for branch in branches if isinstance(branch, Mapping)]
        if len(found) != len(branches) or not all(isinstance(k, str) for k in found):
            return []  # a reference or a nested choice: nothing is known
        kind = found
    return kind if isinstance(kind, list) else [kind]


def _cast(value: Any, kind: Any) -> Any:
    if kind == "string":
        if isinstance(value, str):
            return value
        return ABSENT if isinstance(value, (list, dict, bool)) or value is None else canon(value)
    if kind in ("integer", "number"):
        if isinstance(value, bool):
            return ABSENT
        if isinstance(value, str):
            if len(value) > MAX_VALUE_CHARS or not _NUMBER.match(value):
                return ABSENT
            value = float(value) if "." in value else int(value)
        if isinstance(value, float) and kind == "integer":
            return int(value) if value.is_integer() else ABSENT
        return value if isinstance(value, (int, float)) else ABSENT
    if kind == "boolean":
        if isinstance(value, bool):
            return value
        return {"true": True, "false": False}.get(str(value).lower(), ABSENT)
    if kind == "array":
        return value if isinstance(value, list) else ABSENT
    if kind == "object":
        return value if isinstance(value, dict) else ABSENT
    if kind == "null":
        return None if value is None else ABSENT
    return value
