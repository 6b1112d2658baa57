"""Values as the evidence graph compares them: flattened outputs, canonical texts, casts to a schema's type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from langgraph_toolmem.base.text import digest


@dataclass(slots=True, frozen=True)
class ValueLimits:
    """Sizes up to which messages, outputs and arguments are read. All of them bound the time of a model call.

    Attributes:
        leaves: scalars read from one output; the others are not sources of arguments.
        depth: objects and lists around a scalar of an output.
        characters: a longer text is prose, not a value: it is neither learned as a constant nor indexed.
        message: characters that are read of a message: the rest gives no value.
        parts: texts, numbers, lists and objects that an argument may have; one with more gives no value.
        bits: size of a whole number; Python refuses to write one of more than 4,300 digits.
    """

    leaves: int = 600
    depth: int = 8
    characters: int = 400
    message: int = 200_000
    parts: int = 2_000
    bits: int = 1_600


VALUE_LIMITS: Final = ValueLimits()


class _Absent:
    """Value of an optional argument that is left out."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
_ABSENT_TEXT: Final = "\x00absent"

# --- large values ---

_UNREAD: Final = "\ufffc"
"""Begins the text that represents a value too large to read; models do not write this character."""


def readable(args: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments, with a short text in place of each that is too large to read.

    The text is not a value for other calls (`is_unread`). It differs if the ends or the lengths of the values differ.
    """
    if not _is_large(args):
        return args
    if len(args) > VALUE_LIMITS.parts:
        return {_UNREAD: _stand_in(list(args))}
    # One large value must not cost the others: each is checked separately.
    read = {}
    for name, value in args.items():
        if _is_large(value):
            read[name] = _stand_in(value)
        else:
            read[name] = value
    return read


def is_unread(value: Any) -> bool:
    """Return True for the text that represents an argument too large to read."""
    return isinstance(value, str) and value.startswith(_UNREAD)


def _is_large(value: Any) -> bool:
    """Return True if a value has too many parts or characters; reads only up to the limit."""
    waiting = [value]
    parts = characters = 0
    while waiting:
        part = waiting.pop()
        parts += 1
        if isinstance(part, str):
            characters += len(part)
        elif isinstance(part, int):
            if part.bit_length() > VALUE_LIMITS.bits:
                return True
        elif isinstance(part, (dict, list, tuple)):
            # Before the parts are copied: there may be millions.
            if parts + len(waiting) + len(part) > VALUE_LIMITS.parts:
                return True
            waiting.extend(part)
            if isinstance(part, dict):
                waiting.extend(part.values())
        if parts > VALUE_LIMITS.parts or characters > VALUE_LIMITS.message:
            return True
    return False


def _stand_in(value: Any) -> str:
    if isinstance(value, str):
        half = VALUE_LIMITS.message // 2
        return f"{_UNREAD}{len(value)} characters {digest(value[:half] + value[-half:])}"
    if isinstance(value, int):
        return f"{_UNREAD}{value.bit_length()} bits {digest(_lowest_bits(value))}"
    parts = list(islice(_leaves(value), VALUE_LIMITS.parts))
    return f"{_UNREAD}{len(value)} parts {digest(*parts)}"


def _lowest_bits(number: int) -> str:
    return str(number % (1 << VALUE_LIMITS.bits))


def _leaves(value: Any) -> Iterator[str]:
    """Yield texts of the parts of a list or an object, cut where they are long."""
    # A stack of iterators, not of values: reading stops early, without copying a list of millions.
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
            yield part[: VALUE_LIMITS.characters]
        elif isinstance(part, int):
            yield _lowest_bits(part)
        else:
            yield str(part)


# --- texts of values ---


def canon(value: Any) -> str:
    """Return a value as text, equal for values that a tool treats the same (``5`` and ``"5"``)."""
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
        # 5.0 is 5 for a tool. A float is exact to the unit up to 2**53, about 9e15.
        if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        return repr(value)
    return _json(value)


def canon_args(args: Mapping[str, Any]) -> str:
    """Return arguments as one text, equal for equal values in any order of the parameters."""
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
    """Split an output into scalars and lists by path; at most `VALUE_LIMITS.leaves` values are read."""
    if isinstance(output, str):
        scalars: dict[str, Any] = {}
        if len(output) <= VALUE_LIMITS.characters:
            scalars["$"] = output
        return Observation(scalars, {}, output)
    flat = Observation({}, {})
    for path, listed, value in islice(_walk(output, "$", False, 0), VALUE_LIMITS.leaves):
        if listed:
            flat.lists.setdefault(path, []).append(value)
        else:
            flat.scalars[path] = value
    return flat


def _walk(value: Any, path: str, listed: bool, depth: int) -> Iterator[tuple[str, bool, Any]]:
    """Yield path and value of each scalar, and True in between if the path goes through a list."""
    # Plain tuples, in one function: a record for each scalar makes `flatten` a seventh slower.
    if depth > VALUE_LIMITS.depth:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, f"{path}.{key}", listed, depth + 1)
        if depth and _is_table(value):
            # "*~" is not a field name, so that keys never share a path with values.
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

_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_PLAIN_NUMBER = re.compile(r"-?\d+(\.\d+)?$")


def fit(value: Any, schema: Mapping[str, Any] | None) -> Any:
    """Cast a value to the type of its parameter; ABSENT if impossible, unchanged if no type is declared."""
    if value is ABSENT or not schema:
        return value
    declared = schema.get("type")
    # The usual case, on the path of every prediction. By `type`: a bool is an int to `isinstance`.
    if isinstance(declared, str) and type(value) in _JSON_TYPES.get(declared, ()):
        return value
    kinds = _kinds(schema)
    if not kinds:
        return value
    first: Any = ABSENT
    for kind in kinds:
        fitted = _cast(value, kind)
        if type(fitted) is type(value) and fitted == value:
            return fitted  # a value of one of the allowed types is unchanged
        if first is ABSENT:
            first = fitted
    return first


def _kinds(schema: Mapping[str, Any]) -> list[Any]:
    """Return the types that a schema allows; [] if unknown."""
    declared = schema.get("type")
    if isinstance(declared, list):
        return declared
    if declared is not None:
        return [declared]
    kinds = []
    for branch in schema.get("anyOf") or schema.get("oneOf") or ():
        if not isinstance(branch, Mapping) or not isinstance(branch.get("type"), str):
            return []  # a reference or a nested choice
        kinds.append(branch["type"])
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
    # A schema from a server may have anything in place of the name of a type.
    if isinstance(kind, str) and not isinstance(value, _JSON_TYPES.get(kind, object)):
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
    if not isinstance(number, float):
        return number
    if number.is_integer():
        return int(number)
    return ABSENT


def _as_number(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) > VALUE_LIMITS.characters or not _PLAIN_NUMBER.match(value):
            return ABSENT
        if "." in value:
            return float(value)
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ABSENT
    return value


def _as_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(str(value).lower(), ABSENT)
