"""Values as the graph compares them: canonical text, casts, addressed outputs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.graph.learning import decode_value, encode_value, json_type
from langgraph_toolmem.runs.values import ABSENT, MAX_DEPTH, MAX_LEAVES, canon, fit, flatten

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [(5, "5"), (5.0, 5), (5.0, "5"), (True, "true"), (None, "null"), ({"b": 1, "a": 2}, {"a": 2, "b": 1})],
)
def test_values_a_tool_treats_alike_have_the_same_text(one: Any, other: Any):
    assert canon(one) == canon(other)


@pytest.mark.parametrize(("one", "other"), [(5, 5.5), (True, 1), ("a", "A"), (ABSENT, ""), (ABSENT, None), ([1], [2])])
def test_different_values_have_different_texts(one: Any, other: Any):
    assert canon(one) != canon(other)


@pytest.mark.parametrize(
    ("value", "kind", "fitted"),
    [
        ("x", "string", "x"),
        (5, "string", "5"),
        (5.0, "string", "5"),
        (True, "string", ABSENT),
        (None, "string", ABSENT),
        (["x"], "string", ABSENT),
        ("5", "integer", 5),
        ("-5", "integer", -5),
        ("5.0", "integer", 5),
        (5.0, "integer", 5),
        (5.5, "integer", ABSENT),
        ("5.5", "integer", ABSENT),
        ("five", "integer", ABSENT),
        ("1e5", "integer", ABSENT),
        ("9" * 5000, "integer", ABSENT),
        (True, "integer", ABSENT),
        (math.inf, "integer", ABSENT),
        ("5.5", "number", 5.5),
        (5, "number", 5),
        (False, "number", ABSENT),
        (None, "number", ABSENT),
        (True, "boolean", True),
        ("False", "boolean", False),
        ("yes", "boolean", ABSENT),
        (1, "boolean", ABSENT),
        ([1], "array", [1]),
        ("[1]", "array", ABSENT),
        ({"a": 1}, "object", {"a": 1}),
        ([], "object", ABSENT),
        (None, "null", None),
        (0, "null", ABSENT),
    ],
)
def test_casts_to_the_declared_type(value: Any, kind: str, fitted: Any):
    found = fit(value, {"type": kind})

    assert found == fitted or found is fitted
    assert type(found) is type(fitted)


@pytest.mark.parametrize(
    ("value", "schema", "fitted"),
    [
        ("5", {"type": ["integer", "null"]}, 5),
        (None, {"type": ["integer", "null"]}, None),
        (5, {"type": ["string", "integer"]}, 5),
        ("x", {"type": ["integer", "string"]}, "x"),
        ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
        (None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("five", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, ABSENT),
        ("5", {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "integer"}]}, "5"),
        ("5", {}, "5"),
        ([5], None, [5]),
    ],
)
def test_casts_where_several_types_are_allowed(value: Any, schema: Any, fitted: Any):
    found = fit(value, schema)

    assert found == fitted or found is fitted
    assert type(found) is type(fitted)


@given(json_values, st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"]))
@settings(max_examples=100)
def test_what_fits_is_of_the_type_and_stays_as_it_is(value: Any, kind: str):
    fitted = fit(value, {"type": kind})
    if fitted is not ABSENT:
        assert json_type(fitted) == kind or (kind == "number" and json_type(fitted) == "integer")
        assert fit(fitted, {"type": kind}) == fitted


def test_an_output_is_addressed():
    flat = flatten(
        {"user": {"id": 7, "note": None, "empty": ""}, "orders": [{"id": "a", "tags": ["x", "y"]}, {"id": "b"}]}
    )

    assert flat.scalars == {"$.user.id": 7}
    assert flat.lists == {"$.orders[*].id": ["a", "b"], "$.orders[*].tags[*]": ["x", "y"]}


def test_the_keys_of_a_dict_of_dicts_are_a_list():
    flat = flatten({"items": {"11": {"price": 1}, "22": {"price": 2}}})

    assert flat.lists == {"$.items.*~": ["11", "22"]}
    assert flat.scalars == {"$.items.11.price": 1, "$.items.22.price": 2}


def test_large_and_deep_outputs_are_cut():
    assert len(flatten(list(range(5000))).lists["$[*]"]) == MAX_LEAVES
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = {"a": deep}
    assert flatten(deep).scalars == {"$" + ".a" * MAX_DEPTH: 1}
    assert flatten({"a": deep}).scalars == {}


@given(json_values)
@settings(max_examples=60)
def test_values_survive_as_text(value: Any):
    assert decode_value(encode_value(value)) == value
    assert decode_value(encode_value(ABSENT)) is ABSENT
