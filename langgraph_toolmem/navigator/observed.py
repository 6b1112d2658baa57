"""What outputs look like, learned from results: paths and JSON types, never values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from langgraph_toolmem.navigator.schema import MAX_DEPTH, MAX_LEAVES, type_of

_ROWS: Final = 5
"""Elements of a list that are looked at."""
_LONGEST_KEY: Final = 60
_MOST_NAMES: Final = 96
_DIGITS: Final = 3
"""An object whose keys all hold so many digits (ids), or with more keys than names would be, is a table."""


def paths_of(value: Any) -> dict[str, frozenset[str]]:
    """Path -> JSON types of the values in a result; "" is the result itself.

    >>> paths_of({"user": {"id": 7}, "tags": ["a"]})
    {'user.id': frozenset({'integer'}), 'tags[]': frozenset({'string'})}
    """
    found: dict[str, frozenset[str]] = {}
    for path, kind in _walk(value, "", 0):
        if kind != "null" and (path in found or len(found) < MAX_LEAVES):
            found[path] = found.get(path, frozenset()) | {kind}
    return found


def merge_paths(one: Mapping[str, frozenset[str]], other: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Both together, at most `MAX_LEAVES`; those of `one` stay."""
    found = dict(one)
    for path, kinds in other.items():
        if path in found or len(found) < MAX_LEAVES:
            found[path] = found.get(path, frozenset()) | kinds
    return found


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
        if _is_table(value):
            for inner in list(value.values())[:_ROWS]:
                yield from _walk(inner, f"{path}[]", depth + 1)
            return
        for key, inner in value.items():
            if isinstance(key, str) and len(key) <= _LONGEST_KEY:
                yield from _walk(inner, f"{path}.{key}" if path else key, depth + 1)
    elif isinstance(value, (list, tuple)) and value and depth < MAX_DEPTH:
        for inner in value[:_ROWS]:
            yield from _walk(inner, f"{path}[]", depth + 1)
    else:
        yield path, type_of(value)


def _is_table(value: Mapping[Any, Any]) -> bool:
    """Whether the keys are data: numbers, codes with many digits, or very many."""
    keys = [key for key in value if isinstance(key, str)]
    return len(keys) > _MOST_NAMES or (bool(keys) and all(sum(map(str.isdigit, key)) >= _DIGITS for key in keys))
