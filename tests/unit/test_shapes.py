"""Shapes of plain values: what fits, and what is left out of a table."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from langgraph_toolmem.base.errors import GraphFileError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.shapes import (
    DIGITS,
    JSON_OBJECT,
    NUMBER,
    TEXT,
    WHOLE,
    CellShape,
    ListOf,
    NamedFields,
    OrNone,
    RecordOf,
    RowsOf,
    Scalar,
    fields_of,
    fitting,
    refuse,
)


def name(key: str) -> str:
    return digest(key)[: shapes.DIGITS_OF_KEY]


@pytest.mark.parametrize(
    ("shape", "right", "wrong"),
    [
        (TEXT, ["", "a"], [None, 1, b"a"]),
        (OrNone(TEXT), ["", None], [0, []]),
        (WHOLE, [0, -7, True, 2**52], [0.0, "1", None, 2**53, -(2**53)]),
        (NUMBER, [0, 1.5, -2.0], [math.nan, math.inf, -math.inf, 1e300, 2**70, "1", None]),
        (Scalar(frozenset({int, float}), below=1e308), [1e300, 2**900], [math.nan, math.inf, 2**1100]),
        (DIGITS, ["0", "20513"], ["", "-1", "1.5", "x", "٣", "1" * 16, 3]),
        (JSON_OBJECT, ["{}"], ["", "[]", "{", None]),
        (OrNone(WHOLE), [None, 3], ["3"]),
        (ListOf(WHOLE), [[], [1, 2]], [{}, (), [1, None]]),
        (ListOf(WHOLE, (2,)), [[1, 2]], [[], [1], [1, 2, 3]]),
        (RecordOf((TEXT, WHOLE)), [["a", 1]], [["a"], ["a", 1, 1], [1, "a"], {"a": 1}]),
        (RecordOf((TEXT, WHOLE), least=1), [["a"], ["a", 1]], [[], ["a", "b"]]),
        (RowsOf(WHOLE), [{}, {"a": 1}], [{1: 1}, {"a": "b"}, []]),
        (RowsOf(WHOLE, needs=frozenset("a")), [{"a": 1, "b": 2}], [{}, {"b": 2}]),
        (NamedFields({"a": TEXT}, NUMBER), [{"a": "x", "b": 1}, {}], [{"a": 1}, {"b": "x"}, {1: 1}, []]),
    ],
)
def test_values_of_a_shape_fit_alone_and_together(shape: CellShape, right: list[Any], wrong: list[Any]) -> None:
    assert shape.fit(right)
    assert shape.fit([])
    for value in wrong:
        assert not shape.fit([value])
        assert not shape.fit([*right, value])


@dataclass
class Sample:
    cells: ClassVar = {"free": RowsOf(WHOLE)}
    text: str
    share: float
    known: list[str]
    user: str | None
    free: Any
    links: dict[str, list[int]] = field(default_factory=dict)
    number: int = 0


def test_the_fields_of_a_dataclass_are_a_shape() -> None:
    shape = fields_of(Sample)
    whole = ["a", 1, ["b"], None, {"x": 1}, {"y": [2]}, 3]
    assert shape.fit([whole, whole[:6], whole[:5]])
    assert not shape.fit([whole[:4]])
    assert not shape.fit([[*whole, 4]])
    strange: list[Any] = [3, "1", [3], 3, {"x": "y"}, {"y": ["z"]}, 0.5]
    for place, value in enumerate(strange):
        assert not shape.fit([[*whole[:place], value, *whole[place + 1 :]]])
    assert fields_of(Sample, 5).fit([[{}, 3], [{}], []])


PARTS: dict[str, CellShape] = {"rows": RowsOf(RowsOf(WHOLE)), "items": ListOf(WHOLE), "sums": ListOf(WHOLE, (2,))}
EMPTY: dict[str, Any] = {"rows": {}, "items": [], "sums": [0, 0]}


WHOLE_STATE: dict[str, Any] = {"rows": {"a": {"b": 1}}, "items": [3], "sums": [1, 2]}
WRONG: list[tuple[Any, dict[str, Any], list[str]]] = [
    (WHOLE_STATE, {}, []),
    (WHOLE_STATE | {"rows": {"a": {"b": 1, "c": "x"}}}, {}, [f"rows {name('a')}/{name('c')}"]),
    (WHOLE_STATE | {"rows": {"a": [1], "d": {}}}, {"rows": {"d": {}}}, [f"rows {name('a')}"]),
    (WHOLE_STATE | {"items": [1, "x", 2]}, {"items": [1, 2]}, ["items number 1"]),
    (WHOLE_STATE | {"sums": [1]}, {"sums": [0, 0]}, ["sums"]),
    ({"rows": [1], "items": {"a": 1}, "sums": [1, "x"]}, EMPTY, ["rows", "items", "sums"]),
    ({}, EMPTY, ["rows", "items", "sums"]),
    (None, EMPTY, ["rows", "items", "sums"]),
]


@pytest.mark.parametrize(("state", "found", "left_out"), WRONG)
def test_what_has_not_its_shape_is_left_out_and_named(state: Any, found: dict[str, Any], left_out: list[str]) -> None:
    assert fitting(state, PARTS, EMPTY) == (WHOLE_STATE | found, left_out)


@pytest.mark.parametrize("state", [None, {}, {"rows": {"a": {"b": "c"}}, "items": [], "sums": [0, 0]}])
def test_parts_of_the_core_are_refused_as_a_whole(state: Any) -> None:
    refuse(EMPTY, PARTS)
    with pytest.raises(GraphFileError, match="rows does not have the shape"):
        refuse(state, PARTS)
