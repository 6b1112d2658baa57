"""Shapes of plain containers: predicates on values read from disk, and functions that combine them.

>>> ages = each(row(text, number))
>>> ages({"a": ["Ann", 40]}), ages({"a": ["Ann"]})
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from langgraph_toolmem.base.errors import GraphFileError

Shape: TypeAlias = Callable[[Any], bool]


def check(state: Mapping[str, Any], shapes: Mapping[str, Shape], where: str = "") -> None:
    """Compare the parts of a state with their shapes. Raises GraphFileError for the first that does not fit."""
    for name, fits in shapes.items():
        if not fits(state.get(name)):
            raise GraphFileError(f"{where}{name} has not the shape of an evidence graph")


def anything(_value: Any) -> bool:
    return True


def text(value: Any) -> bool:
    return type(value) is str


def number(value: Any) -> bool:
    return type(value) in (int, float, bool)


def numbers(count: int) -> Shape:
    return lambda value: type(value) is list and len(value) == count and all(map(number, value))


def maybe(shape: Shape) -> Shape:
    return lambda value: value is None or shape(value)


def items(shape: Shape) -> Shape:
    return lambda value: type(value) is list and all(map(shape, value))


def row(*shapes: Shape) -> Shape:
    return lambda value: (
        type(value) is list
        and len(value) == len(shapes)
        and all(fits(part) for fits, part in zip(shapes, value, strict=True))
    )


def each(shape: Shape, *, key: Callable[[str], bool] | None = None) -> Shape:
    """Accept a dict from texts (for which `key` holds) to values of one shape."""

    def fits(value: Any) -> bool:
        named = type(value) is dict and all(map(text, value)) and (key is None or all(map(key, value)))
        return named and all(map(shape, value.values()))

    return fits


def numbered(shape: Shape) -> Shape:
    """Accept a dict from whole numbers to values of one shape."""
    return lambda value: type(value) is dict and all(type(n) is int for n in value) and all(map(shape, value.values()))


def fields(**shapes: Shape) -> Shape:
    """Accept a dict with these keys among others; an optional one is a `maybe`."""
    return lambda value: type(value) is dict and all(fits(value.get(name)) for name, fits in shapes.items())


def present(**shapes: Shape) -> Shape:
    """Accept a dict whose values at these keys, if present, have the shapes."""
    return lambda value: type(value) is dict and all(shapes[name](value[name]) for name in shapes.keys() & value)
