"""Whether plain containers that were read have the shape that they were written in.

A shape is a function from a value to whether it fits; those here make shapes of shapes.

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
    """Compares the parts of a state with their shapes.

    Raises:
        GraphFileError: a part is missing or of another shape; the message says which.
    """
    for name, fits in shapes.items():
        if not fits(state.get(name)):
            raise GraphFileError(f"{where}{name} has not the shape of an evidence graph")


def anything(_value: Any) -> bool:
    """Any value."""
    return True


def text(value: Any) -> bool:
    """A text."""
    return type(value) is str


def number(value: Any) -> bool:
    """A number or a bool."""
    return type(value) in (int, float, bool)


def numbers(count: int) -> Shape:
    """A list of so many numbers."""
    return lambda value: type(value) is list and len(value) == count and all(map(number, value))


def maybe(shape: Shape) -> Shape:
    """None, or a value of the shape."""
    return lambda value: value is None or shape(value)


def items(shape: Shape) -> Shape:
    """A list of values of one shape."""
    return lambda value: type(value) is list and all(map(shape, value))


def row(*shapes: Shape) -> Shape:
    """A list of exactly these values."""

    def fits(value: Any) -> bool:
        return type(value) is list and len(value) == len(shapes) and all(map(_fits, shapes, value))

    return fits


def each(shape: Shape, *, key: Callable[[str], bool] | None = None) -> Shape:
    """A dict from texts (for which `key` holds) to values of one shape."""

    def fits(value: Any) -> bool:
        named = type(value) is dict and all(map(text, value)) and (key is None or all(map(key, value)))
        return named and all(map(shape, value.values()))

    return fits


def numbered(shape: Shape) -> Shape:
    """A dict from whole numbers to values of one shape."""
    return lambda value: type(value) is dict and all(type(n) is int for n in value) and all(map(shape, value.values()))


def fields(**shapes: Shape) -> Shape:
    """A dict with these keys among others; one that may be missing is a `maybe`."""
    return lambda value: type(value) is dict and all(fits(value.get(name)) for name, fits in shapes.items())


def present(**shapes: Shape) -> Shape:
    """A dict in which these keys have values of the shapes, where they are there."""
    return lambda value: type(value) is dict and all(shapes[name](value[name]) for name in shapes.keys() & value)


def _fits(shape: Shape, value: Any) -> bool:
    return shape(value)
