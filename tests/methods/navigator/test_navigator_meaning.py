"""JSON schemas as flat lists of values, and the meaning of parameters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from langgraph_toolmem.navigator.evidence import Flow, History
from langgraph_toolmem.navigator.plan.search import value_source
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import Port, meaning_of, outputs_of
from langgraph_toolmem.text.schema import SCHEMA_LIMITS, Leaf, leaves_of, paths_of

# --- schemas ---


def paths(schema: dict[str, Any]) -> list[str]:
    return [leaf.path for leaf in leaves_of(schema)]


def test_objects_and_lists_are_opened():
    schema = {
        "properties": {
            "city": {"type": "string"},
            "address": {"type": "object", "properties": {"zip": {}, "street": {}}, "required": ["zip"]},
            "items": {"type": "array", "items": {"properties": {"id": {"type": "integer"}}}},
            "free": {"type": "object"},
            "extra": {"properties": {"code": {}}, "required": ["code"]},
        },
        "required": ["city", "address"],
    }
    leaves = {leaf.path: leaf for leaf in leaves_of(schema)}

    assert list(leaves) == ["city", "free", "address.zip", "address.street", "extra.code", "items[].id"]
    assert [path for path, leaf in leaves.items() if leaf.required] == ["city", "address.zip"]
    assert leaves["items[].id"].types == {"integer"}


def test_references_are_followed_and_circles_end():
    node = {"type": "object", "properties": {"id": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}}
    found = paths({"properties": {"root": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}})

    assert found[:2] == ["root.id", "root.next.id"]
    assert max(path.count(".") for path in found) == SCHEMA_LIMITS.depth - 1


@pytest.mark.parametrize(
    "reference", ["#/$defs/Loop", "#/nowhere", "https://example.com/schema.json", "other.json#/x"], ids=str
)
def test_references_that_lead_nowhere_leave_an_untyped_value(reference: str):
    schema = {"properties": {"a": {"$ref": reference}}, "$defs": {"Loop": {"$ref": "#/$defs/Loop"}}}
    (leaf,) = leaves_of(schema)
    assert (leaf.path, leaf.types) == ("a", frozenset())


def test_alternatives_are_joined():
    schema = {
        "properties": {
            "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
            "pet": {
                "oneOf": [
                    {"properties": {"name": {}, "bark": {}}, "required": ["name", "bark"]},
                    {"properties": {"name": {}, "purr": {}}, "required": ["name"]},
                ]
            },
            "both": {
                "allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]
            },
        },
        "required": ["when", "pet", "both"],
    }
    leaves = {leaf.path: leaf for leaf in leaves_of(schema)}

    assert (leaves["when"].types, leaves["when"].format) == ({"string"}, "date")
    assert {path for path, leaf in leaves.items() if leaf.required} == {"when", "pet.name", "both.a", "both.b"}
    assert {"pet.bark", "pet.purr"} <= leaves.keys()


def test_types_are_judged_where_none_is_given():
    leaves = {
        leaf.path: leaf
        for leaf in leaves_of({"properties": {"n": {"default": 3}, "e": {"enum": ["a", None]}, "c": {"const": True}}})
    }
    assert leaves["n"].types == {"integer"}
    assert (leaves["e"].types, leaves["e"].choices) == ({"string"}, ("a", "None"))
    assert leaves["c"].choices == ("True",)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["string", "object", "#", "#/a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "required", "$ref", "anyOf", "allOf", "enum", "default", "a", "format"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def spec(name: str, returns: dict[str, Any] | None = None, **parameters: Any) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object", "properties": parameters}, returns=returns)


@pytest.mark.parametrize(
    ("tool", "returns", "words"),
    [
        ("find_user_id_by_email", None, {"user", "id"}),
        ("find_user_id_by_email", {"type": "object", "properties": {"result": {"type": "string"}}}, {"user", "id"}),
        ("search_events", {"type": "array", "description": "events: what was found"}, {"event", "id"}),
        ("list_orders", {"type": "object"}, {"order", "id"}),
    ],
    ids=["name", "wrapped", "described", "opaque"],
)
def test_a_tool_that_says_little_of_its_output_gives_an_id(tool: str, returns: dict[str, Any] | None, words: set[str]):
    implied = [port for port in outputs_of(spec(tool, returns)) if port.path == "id" and not port.leaf.types]
    assert [port.meaning.words for port in implied] == [words]


@pytest.mark.parametrize(
    ("output", "paths"),
    [
        ({"ann@x.org": {"age": 3}}, {"[].age"}),
        ({"users": {"ann@x.org": 3, "bob": 2}}, {"users[]"}),
        ({"3f2504e0-4f89-11d3-9a0c-0305e82c3301": {"x": 1}}, {"[].x"}),
        ({"2024-01-05": 3, "2024-01-06": 5}, {"[]"}),
        ({"o1": {"a": 1}}, {"[].a"}),
        ({"C-1": 3, "C-2": 4}, {"[]"}),
        ({"Ann": {"x": 1}, "Ben": {"x": 2}}, {"[].x"}),
        ({"+49 170 1234567": "Ann"}, {"[]"}),
        ({7: "x", 8: "y"}, {"[]"}),
        ({"Ann Miller": 3, "Ben Stone": 4}, {"[]"}),
        ({"age": 3, "Ann Miller": 4}, {"age"}),
        ({"order": {"4f3a9c21": 1, "total": 2}}, {"order.total"}),
        (
            {"line1": "x", "line2": "y", "@id": 1, "$ref": "z", "content-type": "t"},
            {"line1", "line2", "@id", "$ref", "content-type"},
        ),
        ({"k" * 61: 1, "short": 2}, {"short"}),
        ({"from": {"lat": 1}, "to": {"city": "x"}}, {"from.lat", "to.city"}),
    ],
    ids=lambda value: "" if isinstance(value, set) else str(next(iter(value)))[:12],
)
def test_keys_that_are_data_are_no_names_of_fields(output: dict[Any, Any], paths: set[str]):
    assert set(paths_of(output)) == paths


def test_a_huge_result_is_looked_at_in_part():
    opened = []

    class Watched(dict[str, Any]):
        def items(self) -> Any:
            opened.append(1)
            return super().items()

    row: Any = 1
    for _ in range(3):
        row = Watched({f"f{chr(97 + i)}": [row] * 5 for i in range(26)})
    assert 0 < len(paths_of(row)) <= 96
    assert len(opened) < 100


# --- meaning ---


def leaf(path: str, description: str = "", *types: str, **more: object) -> Leaf:
    return Leaf(path, frozenset(types), description, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "tool", "description", "words"),
    [
        ("city", "get_weather", "", "city"),
        ("city_name", "get_weather", "", "city"),
        ("name", "get_weather", "Name of a city", "city"),
        ("name", "get_weather", "The city's name", "city"),
        ("id", "create_ticket", "", "ticket id"),
        ("data.results[].id", "search_tickets", "", "ticket id"),
        ("author.id", "get_book", "", "author id"),
        ("id", "answer", "8-digit ID of the newly created event.", "event id"),
        ("customerIDs", "x", "", "customer id"),
        ("lng", "x", "", "longitude"),
        ("title", "Media.FindMovies", "", "movie"),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else None,
)
def test_words(path: str, tool: str, description: str, words: str):
    assert meaning_of(leaf(path, description), tool).words == {*words.split()}


def test_a_bare_id_of_nothing_is_vague():
    assert meaning_of(leaf("id"), "").vague
    assert not meaning_of(leaf("id"), "get_user").vague


def port(name: str, tool: str = "use", **said: object) -> Port:
    value = leaf(name, "", **said)  # type: ignore[arg-type]
    return Port(tool, name, "in", value, meaning_of(value, tool))


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (port("order_id"), "system"),
        (port("page_token"), "system"),
        (port("colour", choices=("red", "blue")), "user"),
        (port("city"), "either"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.path,
)
def test_who_gives_a_value(wanted: Port, kind: str):
    assert value_source(wanted, History())[0] == kind


def test_the_record_is_believed_more_than_the_name():
    fed = History(uses={"use": 4}, flows={Flow("get", "text", "use", "query"): 3})
    given = History(given={("use", "order_id"): 5})
    thin = History(uses={"use": 2}, flows={Flow("get", "text", "use", "query"): 2})

    assert value_source(port("query"), fed)[0] == "system"
    assert value_source(port("order_id"), given)[0] == "user"
    assert value_source(port("query"), thin)[0] == "either"
