"""What outputs look like, learned from results: paths and JSON types, never values.

Keys of tables are data (ids, e-mail addresses, dates) and are no names of fields. What counts as a table is our own
choice [O]: see `is_table`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from langgraph_toolmem.words.schema import MAX_DEPTH, MAX_LEAVES, type_of

_ROWS: Final = 5
"""Elements of a list that are looked at."""
_MOST_NAMES: Final = 96
_MOST_VALUES: Final = 1_000
"""Values of one result that are looked at."""
_FIELD: Final = re.compile(r"[@$]?[^\W\d][\w-]{0,59}")
_CODE: Final = re.compile(r"[0-9a-f-]{8,}|(?:\D*\d){3}.*", re.IGNORECASE | re.DOTALL)
"""Hexadecimal, or three digits and more: an id, a date, a telephone number."""
_SHORT_ID: Final = re.compile(r"[^\W\d_]{1,2}[-_]?\d+")
_DIGIT: Final = re.compile(r"\d")
_ERRORS: Final = ("error", "errors")


def paths_of(value: Any) -> dict[str, frozenset[str]]:
    """Path -> JSON types of the values in a result; "" is the result itself.

    >>> paths_of({"user": {"id": 7}, "tags": ["a"]})
    {'user.id': frozenset({'integer'}), 'tags[]': frozenset({'string'})}
    """
    found: dict[str, frozenset[str]] = {}
    for path, kind in islice(_walk(value, "", 0), _MOST_VALUES):
        if kind != "null" and (path in found or len(found) < MAX_LEAVES):
            found[path] = found.get(path, frozenset()) | {kind}
    return found


def shows_fields(output: Any) -> bool:
    """Whether a tool's result has fields to learn: an object or a list with something in it that reports no error."""
    if isinstance(output, Mapping):
        return bool(output) and not any(output.get(key) for key in _ERRORS)
    return isinstance(output, (list, tuple)) and any(isinstance(each, (Mapping, list, tuple)) for each in output)


def is_field(key: Any) -> bool:
    """Whether a key looks like the name of a field: a letter, then letters, digits, "_" and "-", at most 60 in all.

    Codes do not: eight and more hexadecimal digits with a number among them, or three and more digits.
    """
    if not isinstance(key, str) or _FIELD.fullmatch(key) is None:
        return False
    return not (_DIGIT.search(key) and _CODE.fullmatch(key))


def is_table(value: Mapping[Any, Any]) -> bool:
    """Whether the keys of an object are data.

    They are if there are very many; if less than half of them are names of fields, or one is an e-mail address; if all
    look like short ids ("o1", "C-2"), or hold a digit and lead to objects; or if at least two lead to objects that all
    have the same fields.
    """
    keys, inner = [str(key) for key in value], list(value.values())
    if len(keys) > _MOST_NAMES or 2 * sum(map(is_field, value)) < len(keys) or any("@" in key[1:] for key in keys):
        return True
    objects = all(isinstance(each, Mapping) and each for each in inner)
    if all((_DIGIT.search if objects else _SHORT_ID.fullmatch)(key) for key in keys):
        return True
    return objects and len(keys) > 1 and all(each.keys() == inner[0].keys() for each in inner)


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
        if is_table(value):
            for inner in list(value.values())[:_ROWS]:
                yield from _walk(inner, f"{path}[]", depth + 1)
            return
        for key, inner in value.items():
            if is_field(key):
                yield from _walk(inner, f"{path}.{key}" if path else key, depth + 1)
    elif isinstance(value, (list, tuple)) and value and depth < MAX_DEPTH:
        for inner in value[:_ROWS]:
            yield from _walk(inner, f"{path}[]", depth + 1)
    else:
        yield path, type_of(value)
