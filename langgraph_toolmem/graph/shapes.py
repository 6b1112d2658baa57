"""Shapes of plain values: the valid content of each place of a snapshot, or of an event that was read from a file.

A file may have a right checksum and invalid values: a text in place of a record, NaN in place of a count. Loading would
succeed, and errors would come later, in the host's turn. So each table declares the shapes of its parts, and rows with
another shape are left out (`fitting`); the core's own parts are refused as a whole (`refuse`), because the snapshot
before them and the events give the same graph.

A shape checks all values of a place at once, type by type: a snapshot of 200,000 cells is compared in a tenth of a
second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import chain
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from langgraph_toolmem.base.errors import GraphFileError
from langgraph_toolmem.base.text import digest

EXACT_BELOW: Final = 2.0**53
"""Counts and times below it are exact in floating point."""
DIGITS_OF_KEY: Final = 8
"""Digits of the digest that names a left-out row, because its key may be a user's text."""


class CellShape(ABC):
    """The shape of plain values at one place."""

    @abstractmethod
    def fit(self, values: Collection[Any]) -> bool:
        """Return True if all of the values have this shape."""

    def kept(self, value: Any, left_out: list[str]) -> Any:
        """Return a container without the rows of another shape, and add their names to `left_out`."""
        del left_out
        return value


@dataclass(frozen=True)
class Scalar(CellShape):
    """Values of some types; numbers are finite and below a limit."""

    types: frozenset[type]
    below: float = EXACT_BELOW

    def fit(self, values: Collection[Any]) -> bool:
        """See `CellShape`."""
        # `type`, not `isinstance`: only the plain types themselves come out of a snapshot or JSON. All sets and `map`
        # calls of this module run in C: a loop over 200,000 cells takes several times as long.
        types = set(map(type, values))
        if not types <= self.types:
            return False
        if types.isdisjoint((int, float)):
            return True
        numbers = values
        if not types <= {int, float, bool}:
            numbers = [value for value in values if type(value) in (int, float)]
        # A comparison with NaN is False, so NaN does not fit.
        return all(map(self.below.__gt__, map(abs, numbers)))


TEXT: Final = Scalar(frozenset({str}))


@dataclass(frozen=True)
class AnyText(CellShape):
    """Texts that begin and end with certain signs, or consist only of digits."""

    begins: str = ""
    ends: str = ""
    digits: bool = False

    def fit(self, values: Collection[Any]) -> bool:
        """See `CellShape`."""
        if not set(map(type, values)) <= {str}:
            return False
        if self.digits:
            return all(map(_is_number, values))
        for text in values:
            if not (text.startswith(self.begins) and text.endswith(self.ends)):
                return False
        return True


def _is_number(text: str) -> bool:
    # `isdecimal` is True of Arabic digits too. 15 digits are below `EXACT_BELOW`.
    return text.isdecimal() and text.isascii() and len(text) < 16


@dataclass(frozen=True)
class OrNone(CellShape):
    """Values of a shape, or None."""

    shape: CellShape

    def fit(self, values: Collection[Any]) -> bool:
        """See `CellShape`."""
        return self.shape.fit([value for value in values if value is not None])


@dataclass(frozen=True)
class RowsOf(CellShape):
    """Dictionaries ``key -> row``; `needs` are keys that each of them has."""

    row: CellShape
    key: CellShape = TEXT
    needs: frozenset[str] = frozenset()

    def fit(self, values: Collection[Any]) -> bool:
        """See `CellShape`."""
        # Keys and rows of all dictionaries are compared at once: a level of a snapshot costs one call.
        if not set(map(type, values)) <= {dict} or not self.key.fit(list(chain.from_iterable(values))):
            return False
        if self.needs:
            for value in values:
                if not self.needs <= value.keys():
                    return False
        return self.row.fit(list(chain.from_iterable(map(dict.values, values))))

    def kept(self, value: Any, left_out: list[str]) -> Any:
        """See `CellShape`. In a row that is a dictionary or a list, only the wrong parts are left out."""
        if type(value) is not dict:
            return value
        rows = {}
        for key, row in value.items():
            key_fits = self.key.fit([key])
            if key_fits and self.row.fit([row]):
                rows[key] = row
                continue
            # Problems are shown and logged, and a key may be a user's text.
            name = digest(str(key))[:DIGITS_OF_KEY]
            misfits: list[str] = []
            rest = self.row.kept(row, misfits)
            if key_fits and misfits and self.row.fit([rest]):
                rows[key] = rest
                for misfit in misfits:
                    left_out.append(f"{name}/{misfit}")
            else:
                left_out.append(name)
        return rows


@dataclass(frozen=True)
class ListOf(CellShape):
    """Lists of any length, or of one of `lengths`."""

    item: CellShape
    lengths: tuple[int, ...] = ()

    def fit(self, values: Collection[Any]) -> bool:
        """See `CellShape`."""
        if not set(map(type, values)) <= {list}:
            return False
        if self.lengths and not set(map(len, values)) <= {*self.lengths}:
            return False
        return self.item.fit(list(chain.from_iterable(values)))

    def kept(self, value: Any, left_out: list[str]) -> Any:
        """See `CellShape`. Items are named by their place."""
        if type(value) is not list:
            return value
        items = []
        for place, item in enumerate(value):
            if self.item.fit([item]):
                items.append(item)
            else:
                left_out.append(f"number {place}")
        return items


@dataclass(frozen=True)
class RecordOf(CellShape):
    """Lists with a shape for each position. The positions from `least` on may be missing."""

    columns: tuple[CellShape, ...]
    least: int | None = None

    @property
    def shortest(self) -> int:
        """Return the number of places that each list has."""
        if self.least is None:
            return len(self.columns)
        return self.least

    def fit(self, values: Collection[Any]) -> bool:
        """See `CellShape`."""
        if not set(map(type, values)) <= {list}:
            return False
        lengths = set(map(len, values))
        if lengths and not (self.shortest <= min(lengths) and max(lengths) <= len(self.columns)):
            return False
        columns: Iterable[Collection[Any]] = zip(*values, strict=True)
        if len(lengths) > 1:
            columns = _columns_of(values, max(lengths))
        for shape, column in zip(self.columns, columns, strict=False):
            if not shape.fit(column):
                return False
        return True


def _columns_of(rows: Collection[list[Any]], width: int) -> list[list[Any]]:
    """Return the columns of lists of different lengths."""
    columns: list[list[Any]] = []
    for place in range(width):
        columns.append([row[place] for row in rows if place < len(row)])
    return columns


@dataclass(frozen=True)
class NamedFields(CellShape):
    """Dictionaries with a shape for each key; `others`: the shape of values under any other key."""

    named: Mapping[str, CellShape]
    others: CellShape

    def fit(self, values: Collection[Any]) -> bool:
        """See `CellShape`."""
        if not set(map(type, values)) <= {dict} or not TEXT.fit(list(chain.from_iterable(values))):
            return False
        named: dict[str, list[Any]] = {}
        others: list[Any] = []
        for value in values:
            for name, content in value.items():
                if name in self.named:
                    named.setdefault(name, []).append(content)
                else:
                    others.append(content)
        for name, column in named.items():
            if not self.named[name].fit(column):
                return False
        return self.others.fit(others)


@dataclass(frozen=True)
class Whatever(CellShape):
    """Any value, or any of a type."""

    kind: type = object

    def fit(self, values: Collection[Any]) -> bool:
        """See `CellShape`."""
        return all(isinstance(value, self.kind) for value in values)


WHOLE: Final = Scalar(frozenset({int, bool}))
NUMBER: Final = Scalar(frozenset({int, float, bool}))
NOTHING: Final = Scalar(frozenset({type(None)}))
DIGITS: Final = AnyText(digits=True)
"""A whole number as the key of a row."""
JSON_OBJECT: Final = AnyText("{", "}")
ANYTHING: Final = Whatever()
CONTRIBUTORS: Final = RowsOf(RowsOf(RecordOf((ListOf(TEXT), ListOf(TEXT)))))
"""``key -> item -> [runs, users]``."""


def counts(width: int) -> CellShape:
    """Return the shape of ``key -> item -> [count, …]``."""
    return RowsOf(RowsOf(numbers(width)))


def numbers(width: int) -> CellShape:
    """Return the shape of a list of so many numbers."""
    return ListOf(NUMBER, (width,))


def fields_of(kind: type[Any], first: int = 0) -> RecordOf:
    """Return the shape of a list of a dataclass's fields from one on: `kind.cells` names it, otherwise the type does.

    Fields with a default may be missing.
    """
    hints = get_type_hints(kind)
    cells: Mapping[str, CellShape] = getattr(kind, "cells", {})
    columns: list[CellShape] = []
    least = 0
    for declared in fields(kind)[first:]:
        if declared.name in cells:
            columns.append(cells[declared.name])
        else:
            columns.append(_of(hints[declared.name]))
        if declared.default is MISSING and declared.default_factory is MISSING:
            least += 1
    return RecordOf(tuple(columns), least)


def _of(hint: Any) -> CellShape:
    """Return the shape of a declared type."""
    if isinstance(hint, type) and hint in _SCALARS:
        return _SCALARS[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is list:
        return ListOf(_of(parts[0]))
    if origin in (dict, Mapping):
        return RowsOf(_of(parts[1]), _of(parts[0]))
    # Only `X | None` has a shape of its own; other unions fit anything.
    others = [part for part in parts if part is not type(None)]
    if origin in (Union, UnionType) and len(others) == 1 and len(parts) == 2:
        return OrNone(_of(others[0]))
    return ANYTHING


_SCALARS: Final[dict[type, CellShape]] = {str: TEXT, int: WHOLE, float: NUMBER, bool: WHOLE}


def fitting(
    state: Any, parts: Mapping[str, CellShape], empty: Mapping[str, Any]
) -> tuple[dict[str, Any], Sequence[str]]:
    """Return the parts of a table without values of another shape, and the names of the left-out ones.

    Args:
        state: the table's state as it was read.
        parts: the shapes.
        empty: the parts of a new table, which replace parts that are missing or are not containers.
    """
    kept: dict[str, Any] = {}
    left_out: list[str] = []
    # A right checksum does not mean right values: without shapes, 17 of 36 such files, mutated, made calls raise.
    for name, shape in parts.items():
        kept[name] = _fitting_part(name, _part(state, name), shape, empty[name], left_out)
    return kept, left_out


def _fitting_part(name: str, value: Any, shape: CellShape, empty: Any, left_out: list[str]) -> Any:
    """Return a part of a table without values of another shape, and add their names to `left_out`."""
    if value is not MISSING:
        if shape.fit([value]):
            return value
        misfits: list[str] = []
        value = shape.kept(value, misfits)
        # A wrong row must not cost a user the whole table.
        if misfits and shape.fit([value]):
            for row in misfits:
                left_out.append(f"{name} {row}")
            return value
    left_out.append(name)
    return empty


def _part(state: Any, name: str) -> Any:
    if not isinstance(state, dict):
        return MISSING
    return state.get(name, MISSING)


def refuse(state: Any, parts: Mapping[str, CellShape]) -> None:
    """Raise GraphFileError if a part is missing or has another shape."""
    for name, shape in parts.items():
        value = _part(state, name)
        if value is MISSING or not shape.fit([value]):
            raise GraphFileError(f"{name} does not have the shape of an evidence graph")
