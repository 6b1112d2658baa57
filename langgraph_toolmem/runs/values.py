"""Values as the evidence graph compares them: flattened outputs, canonical texts, casts to a schema's type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from langgraph_toolmem.base.text import digest

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

# --- large values ---

MAX_READ: Final = 200_000
"""Characters that are read of a message: what lies behind them gives no value."""
MAX_PARTS: Final = 2_000
"""Texts, numbers, lists and objects that an argument may have; one with more gives no value."""
MAX_BITS: Final = 4 * MAX_VALUE_CHARS
"""Size of a whole number; Python refuses to write one of more than 4,300 digits."""
_UNREAD: Final = "\ufffc"
"""Begins the text that stands for a value too large to read; no model writes this character."""


def readable(args: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments, with a short text in place of each that is too large to read.

    The text gives no value to other calls (`is_unread`). It differs where the ends or the length of the values do.
    """
    if not _is_large(args):
        return args
    if len(args) > MAX_PARTS:
        return {_UNREAD: _stand_in(list(args))}
    return {name: _stand_in(value) if _is_large(value) else value for name, value in args.items()}


def is_unread(value: Any) -> bool:
    """Return True for the text that stands for an argument too large to read."""
    return isinstance(value, str) and value.startswith(_UNREAD)


def _is_large(value: Any) -> bool:
    """Return True if a value has too many parts or characters; looks at no more than it may have."""
    waiting, parts, characters = [value], 0, 0
    while waiting:
        part = waiting.pop()
        parts += 1
        if isinstance(part, str):
            characters += len(part)
        elif isinstance(part, int):
            if part.bit_length() > MAX_BITS:
                return True
        elif isinstance(part, (dict, list, tuple)):
            if parts + len(waiting) + len(part) > MAX_PARTS:
                return True
            waiting.extend(part)
            if isinstance(part, dict):
                waiting.extend(part.values())
        if parts > MAX_PARTS or characters > MAX_READ:
            return True
    return False


def _stand_in(value: Any) -> str:
    if isinstance(value, str):
        ends = value[: MAX_READ // 2] + value[-MAX_READ // 2 :]
        return f"{_UNREAD}{len(value)} characters {digest(ends)}"
    if isinstance(value, int):
        return f"{_UNREAD}{value.bit_length()} bits {digest(str(value % (1 << MAX_BITS)))}"
    parts = list(islice(_leaves(value), MAX_PARTS))
    return f"{_UNREAD}{len(value)} parts {digest(*parts)}"


def _leaves(value: Any) -> Iterator[str]:
    """Yield texts of the parts of a list or an object, cut where they are long."""
    waiting = [iter((value,))]
    while waiting:
        part = next(waiting[-1], _ABSENT_TEXT)
        if part is _ABSENT_TEXT:
            waiting.pop()
        elif isinstance(part, dict):
            waiting.append(chain.from_iterable(part.items()))
            yield "{"
        elif isinstance(part, (list, tuple)):
            waiting.append(iter(part))
            yield "["
        elif isinstance(part, str):
            yield part[:MAX_VALUE_CHARS]
        elif isinstance(part, int):
            yield str(part % (1 << MAX_BITS))
        else:
            yield str(part)


# --- texts of values ---


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
    return _json(dict(args))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str, ensure_ascii=False)


class Observation(NamedTuple):
    """Values of an output by JSON path."""

    scalars: dict[str, Any]  # ``$.user.id`` -> scalar
    lists: dict[str, list[Any]]  # ``$.orders[*].id`` -> the scalars there, in order
    prose: str = ""  # the whole of one that is text


def flatten(output: Any) -> Observation:
    """Split an output into scalars and lists by path; at most MAX_LEAVES values are read."""
    if isinstance(output, str):
        return Observation({"$": output} if len(output) <= MAX_VALUE_CHARS else {}, {}, output)
    flat = Observation({}, {})
    for path, listed, value in islice(_walk(output, "$", False, 0), MAX_LEAVES):
        if listed:
            flat.lists.setdefault(path, []).append(value)
        else:
            flat.scalars[path] = value
    return flat


def _walk(value: Any, path: str, listed: bool, depth: int) -> Iterator[tuple[str, bool, Any]]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, f"{path}.{key}", listed, depth + 1)
        if value and depth and all(isinstance(inner, dict) for inner in value.values()):
            # {"id1": {...}, "id2": {...}} is a list under another name: its keys are values too
            for key in value:
                yield f"{path}.*~", True, key
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, f"{path}[*]", True, depth + 1)
    elif value is not None and value != "":
        yield path, listed, value


_TYPES: Final = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,)}
_NUMBER = re.compile(r"-?\d+(\.\d+)?$")


def fit(value: Any, schema: Mapping[str, Any] | None) -> Any:
    """Cast a value to the type of its parameter; ABSENT if impossible, unchanged if no type is declared."""
    if value is ABSENT or not schema:
        return value
    kind = schema.get("type")
    if isinstance(kind, str) and type(value) in _TYPES.get(kind, ()):
        return value  # the usual case, on the path of every prediction
    kinds = _kinds(schema)
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
