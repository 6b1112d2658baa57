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
    read = {}
    for name, value in args.items():
        read[name] = _stand_in(value) if _is_large(value) else value
    return read


def is_unread(value: Any) -> bool:
    """Return True for the text that stands for an argument too large to read."""
    return isinstance(value, str) and value.startswith(_UNREAD)


def _is_large(value: Any) -> bool:
    """Return True if a value has too many parts or characters; looks at no more than it may have."""
    waiting = [value]
    parts = characters = 0
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
        # a float is exact to the unit up to 2**53, about 9e15
        is_whole = value.is_integer() and abs(value) < 1e15
        return str(int(value)) if is_whole else repr(value)
    return _json(value)


def canon_args(args: Mapping[str, Any]) -> str:
    return _json(dict(args))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str, ensure_ascii=False)


class Observation(NamedTuple):
    """Values of an output by JSON path.

    Attributes:
        scalars: ``$.user.id`` -> scalar.
        lists: ``$.orders[*].id`` -> the scalars there, in order.
        prose: the whole output if it is a text.
    """

    scalars: dict[str, Any]
    lists: dict[str, list[Any]]
    prose: str = ""


def flatten(output: Any) -> Observation:
    """Split an output into scalars and lists by path; at most MAX_LEAVES values are read."""
    if isinstance(output, str):
        scalars = {"$": output} if len(output) <= MAX_VALUE_CHARS else {}
        return Observation(scalars, {}, output)
    flat = Observation({}, {})
    for path, listed, value in islice(_walk(output, "$", False, 0), MAX_LEAVES):
        if listed:
            flat.lists.setdefault(path, []).append(value)
        else:
            flat.scalars[path] = value
    return flat


def _walk(value: Any, path: str, listed: bool, depth: int) -> Iterator[tuple[str, bool, Any]]:
    """Yield path and value of each scalar, and True in between if the path goes through a list.

    Plain tuples: a record for each scalar makes `flatten` a seventh slower.
    """
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, f"{path}.{key}", listed, depth + 1)
        if depth and _is_table(value):
            for key in value:
                yield f"{path}.*~", True, key
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, f"{path}[*]", True, depth + 1)
    elif value is not None and value != "":
        yield path, listed, value


def _is_table(value: dict[str, Any]) -> bool:
    """Return True for ``{"id1": {...}, "id2": {...}}``: a list under another name, whose keys are values too."""
    for inner in value.values():
        if not isinstance(inner, dict):
            return False
    return bool(value)


# --- values for parameters ---

_TYPES: Final = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,)}
_NUMBER = re.compile(r"-?\d+(\.\d+)?$")


def fit(value: Any, schema: Mapping[str, Any] | None) -> Any:
    """Cast a value to the type of its parameter; ABSENT if impossible, unchanged if no type is declared."""
    if value is ABSENT or not schema:
        return value
    declared = schema.get("type")
    if isinstance(declared, str) and type(value) in _TYPES.get(declared, ()):
        return value  # the usual case, on the path of every prediction
    kinds = _kinds(schema)
    if not kinds:
        return value
    first: Any = ABSENT
    for kind in kinds:
        fitted = _cast(value, kind)
        if type(fitted) is type(value) and fitted == value:
            return fitted  # a choice of types that has the value's own leaves it as it is
        if first is ABSENT:
            first = fitted
    return first


def _kinds(schema: Mapping[str, Any]) -> list[Any]:
    """Return the types that a schema allows; [] if nothing is known."""
    declared = schema.get("type")
    if declared is not None:
        return declared if isinstance(declared, list) else [declared]
    kinds = []
    for branch in schema.get("anyOf") or schema.get("oneOf") or ():
        kind = branch.get("type") if isinstance(branch, Mapping) else None
        if not isinstance(kind, str):
            return []  # a reference or a nested choice
        kinds.append(kind)
    return kinds


def _cast(value: Any, kind: Any) -> Any:
    """Return a value as one type; ABSENT if impossible, unchanged for a type that JSON schema does not have."""
    if kind == "string":
        return _as_string(value)
    if kind == "integer":
        return _as_integer(value)
    if kind == "number":
        return _as_number(value)
    if kind == "boolean":
        return _as_boolean(value)
    if kind == "array":
        return value if isinstance(value, list) else ABSENT
    if kind == "object":
        return value if isinstance(value, dict) else ABSENT
    if kind == "null" and value is not None:
        return ABSENT
    return value


def _as_string(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (list, dict, bool)):
        return ABSENT
    return canon(value)


def _as_integer(value: Any) -> Any:
    number = _as_number(value)
    if isinstance(number, float):
        return int(number) if number.is_integer() else ABSENT
    return number


def _as_number(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) > MAX_VALUE_CHARS or not _NUMBER.match(value):
            return ABSENT
        return float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ABSENT
    return value


def _as_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(str(value).lower(), ABSENT)
