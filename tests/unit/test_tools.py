"""Tool specs from everything people hand to an agent, and what arguments they accept."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, tool
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from pydantic import BaseModel, Field, field_validator

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.runs.tools import ToolSpec, read_tools

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["to"],
}


def one(thing: Any) -> ToolSpec:
    (spec,) = read_tools([thing]).values()
    return spec


@tool
def send(to: str, days: int = 1) -> str:
    """Send something."""
    return to + str(days)


class Leg(BaseModel):
    start: str
    then: list[Leg] = []


class Trip(BaseModel):
    """A trip."""

    leg: Leg
    cabin: Literal["economy", "business"] = "economy"
    seats: int = Field(default=1, ge=1)

    @field_validator("seats")
    @classmethod
    def _not_thirteen(cls, seats: int) -> int:
        if seats == 13:
            raise ValueError("no row 13")
        if seats == 14:
            raise RuntimeError("broken validator")
        return seats


@tool(args_schema=Trip)
def book(leg: Leg, cabin: str, seats: int) -> str:
    """Book a trip."""
    return f"{leg} {cabin} {seats}"


# --- where tools come from


@pytest.mark.parametrize(
    "thing",
    [
        {"type": "function", "function": {"name": "mail.send", "description": "Send.", "parameters": SCHEMA}},
        {"name": "mail.send", "description": "Send.", "parameters": SCHEMA},
        {
            "type": "function",
            "name": "mail.send",
            "description": "Send.",
            "parameters": SCHEMA,
            "strict": True,
        },
        {"name": "mail.send", "description": "Send.", "input_schema": SCHEMA},
        {"name": "mail.send", "description": "Send.", "inputSchema": SCHEMA},
        StructuredTool(name="mail.send", description="Send.", args_schema=SCHEMA, func=print),
    ],
)
def test_every_form_gives_the_same_spec(thing: Any) -> None:
    spec = one(thing)
    assert (spec.name, spec.description) == ("mail.send", "Send.")
    assert spec.properties == SCHEMA["properties"]
    assert spec.required == {"to"}
    assert spec.returns is None
    assert (spec.read_only, spec.destructive, spec.idempotent, spec.tags) == (None, None, None, ())
    assert spec.problem({"to": "a", "days": 2}) is None
    assert spec.problem({"days": 2}) == "missing parameter 'to'"
    assert "'days'" in str(spec.problem({"to": "a", "days": 0}))


class Search(TypedDict):
    """Search the web."""

    query: str


def test_classes_that_describe_a_call() -> None:
    specs = read_tools([Trip, Search])
    assert specs["Trip"].description == "A trip."
    assert specs["Trip"].required == {"leg"}
    assert specs["Search"].problem({"query": "x"}) is None
    assert specs["Search"].problem({"query": 5}) is not None


def test_tools_without_parameters() -> None:
    @tool
    def ping() -> str:
        """Ping."""
        return "pong"

    for thing in (
        ping,
        {"name": "ping"},
        {"name": "ping", "parameters": None},
        {"name": "ping", "parameters": {}},
    ):
        assert one(thing).problem({}) is None
        assert one(thing).properties == {}
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    assert one({"name": "ping", "parameters": closed}).problem({"a": 1}) is not None
    assert one({"name": "free", "parameters": {"type": "object"}}).problem({"a": 1}) is None


# --- injected arguments


@tool
def with_all(
    a: int,
    secret: Annotated[str, InjectedToolArg],
    state: Annotated[dict[str, Any], InjectedState],
    who: Annotated[str, InjectedState("user")],
    store: Annotated[BaseStore, InjectedStore()],
    call_id: Annotated[str, InjectedToolCallId],
    runtime: ToolRuntime,
) -> str:
    """Doc."""
    return f"{a}{secret}{state}{who}{store}{call_id}{runtime}"


def plain_with_runtime(a: int, runtime: ToolRuntime, call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Doc."""
    return str(runtime) + call_id + str(a)


class ModelWithInjected(BaseModel):
    """Doc."""

    a: int
    state: Annotated[dict[str, Any], InjectedState]


@tool(args_schema=ModelWithInjected)
def with_model(a: int, state: dict[str, Any]) -> str:
    """Doc."""
    return str(state) + str(a)


@pytest.mark.parametrize("thing", [with_all, plain_with_runtime, with_model])
def test_injected_arguments_are_no_parameters(thing: Any) -> None:
    spec = one(thing)
    assert set(spec.properties) == {"a"}
    assert spec.required == {"a"}
    assert spec.problem({"a": 1}) is None
    for name in ("secret", "state", "who", "store", "call_id", "runtime"):
        assert spec.problem({"a": 1, name: "forged"}) == f"unknown parameter {name!r}"


# --- what is known about effects


HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint")


@pytest.mark.parametrize(
    ("annotations", "effects"),
    [
        # What is said is taken as it is said.
        ((True, False, True), (True, False, True)),
        ((False, False, False), (False, False, False)),
        ((False, True, None), (False, True, None)),
        ((None, True, None), (None, True, None)),
        # A writing tool that says nothing of destroying.
        ((False, None, None), (False, True, None)),
        ((False, None, True), (False, True, True)),
        ((None, None, True), (None, True, True)),
        ((None, None, False), (None, True, False)),
        ((None, False, True), (None, False, True)),
        # Where nothing is written, nothing is destroyed.
        ((True, True, None), (True, False, None)),
        ((True, None, True), (True, None, True)),
        # Nothing about effects.
        ((None, None, None), (None, None, None)),
        (("no", "yes", 1), (None, None, None)),
    ],
)
def test_annotations_are_read_as_the_mcp_specification_means_them(
    annotations: tuple[Any, ...], effects: tuple[bool | None, ...]
) -> None:
    hints = {"title": "x", "openWorldHint": True, **dict(zip(HINTS, annotations, strict=True))}
    forms: list[dict[str, Any]] = [{"annotations": hints}, {"metadata": hints}, {"metadata": {"annotations": hints}}]
    for form in forms:
        thing = {"name": "f", **form} if "annotations" in form else adapted(**form)
        spec = one(thing)
        assert (spec.read_only, spec.destructive, spec.idempotent) == effects


def adapted(**options: Any) -> BaseTool:
    """A tool as langchain-mcp-adapters makes it."""
    return StructuredTool(name="f", description="", args_schema=SCHEMA, func=print, **options)


@pytest.mark.parametrize(
    ("options", "effects"),
    [
        # The developer's own words.
        ({"metadata": {"readOnlyHint": False}, "tags": ["read_only"]}, (True, None, None)),
        ({"metadata": {"destructiveHint": True}, "tags": ["read_only"]}, (True, False, None)),
        ({"metadata": {"readOnlyHint": True}, "tags": ["destructive"]}, (True, True, None)),
        ({"metadata": {"readOnlyHint": True, "destructive": True}}, (True, True, None)),
        ({"metadata": {"readOnlyHint": False, "destructive": False}}, (False, False, None)),
        ({"metadata": {"annotations": {"destructiveHint": True}, "destructive": False}}, (None, False, None)),
        ({"metadata": {"read_only": True, "destructive": True}}, (True, True, None)),
        # They do not follow MCP's defaults.
        ({"metadata": {"read_only": False}}, (False, None, None)),
        ({"tags": ["idempotent"]}, (None, None, True)),
        # What a server sends along is none of them.
        ({"metadata": {"_meta": {"destructiveHint": True, "tags": ["destructive"]}}}, (None, None, None)),
        # None below "annotations" does not hide what is said beside it.
        ({"metadata": {"annotations": {"readOnlyHint": None}, "readOnlyHint": True}}, (True, None, None)),
    ],
)
def test_the_developers_word_on_an_annotated_tool(options: dict[str, Any], effects: tuple[bool | None, ...]) -> None:
    spec = one(adapted(**options))
    assert (spec.read_only, spec.destructive, spec.idempotent) == effects


class Annotations(BaseModel):
    readOnlyHint: bool | None = None  # noqa: N815 - MCP's names
    destructiveHint: bool | None = None  # noqa: N815


class Listed(BaseModel):
    """What an MCP client lists, in short."""

    name: str
    description: str | None = None
    inputSchema: dict[str, Any]  # noqa: N815
    outputSchema: dict[str, Any] | None = None  # noqa: N815
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = Field(default=None, alias="_meta")


def test_tools_as_an_mcp_client_lists_them() -> None:
    annotations = Annotations(destructiveHint=True)
    listed = Listed(name="f", inputSchema=SCHEMA, outputSchema={"type": "object"}, annotations=annotations)
    for thing in (listed, {"name": "f", "inputSchema": SCHEMA, "annotations": annotations}):
        assert one(thing).destructive is True
        assert one(thing).problem({"to": 1}) is not None
    assert one(listed).returns == {"type": "object"}
    assert one(listed).description == ""
    with pytest.raises(ConfigurationError, match=r"tools\[0\] \(Leg\)"):
        read_tools([Leg(start="a")])


# --- arguments


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"leg": {"start": "a"}}, None),
        ({"leg": {"start": "a", "then": [{"start": "b"}]}, "cabin": "business", "seats": 2}, None),
        ({}, "missing parameter 'leg'"),
        ({"leg": {"start": "a"}, "meal": "x"}, "unknown parameter 'meal'"),
        ({"leg": {"start": 5}}, "parameter 'leg.start'"),
        ({"leg": {"start": "a", "then": [{}]}}, "parameter 'leg.then.0'"),
        ({"leg": {"start": "a"}, "cabin": "first"}, "parameter 'cabin'"),
        ({"leg": {"start": "a"}, "seats": "2"}, "parameter 'seats'"),
        ({"leg": {"start": "a"}, "seats": 0}, "parameter 'seats'"),
        ({"leg": {"start": "a"}, "seats": 13}, "no row 13"),
        ({"leg": {"start": "a"}, "seats": 14}, "broken validator"),
        ({"leg": {"start": "a" * 9_999}, "seats": "x" * 9_999}, "parameter 'seats'"),
    ],
)
def test_problems_name_the_parameter_in_one_line(args: dict[str, Any], words: str | None) -> None:
    found = one(book).problem(args)
    if words is None:
        assert found is None
    else:
        assert found is not None
        assert words in found
        assert "\n" not in found
        assert len(found) <= 300


def test_references_keep_working() -> None:
    spec = one(book)
    assert spec.properties["leg"]["properties"].keys() == {"start", "then"}
    whole = {
        "$ref": "#/$defs/a~1b",
        "$defs": {
            "a/b": {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"]},
            "n": {"type": "integer"},
        },
    }
    spec = one({"name": "f", "parameters": whole})
    assert spec.properties == {"x": {"type": "integer"}}
    assert spec.required == {"x"}
    assert spec.problem({"x": 1}) is None
    assert "'x'" in str(spec.problem({"x": "1"}))


def test_unreadable_arguments_are_a_problem() -> None:
    spec = one({"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}})
    loop: dict[str, Any] = {}
    loop["a"] = loop
    for args in ({"a": object()}, {1: 2}, loop, [1], None, "x"):
        assert isinstance(spec.problem(args), str)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "object", "properties": {"x": {"type": "float"}}},
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}},
        {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}}},
        {"type": "object", "properties": {"x": {"type": "string", "pattern": "("}}},
    ],
)
def test_a_schema_that_cannot_be_used_accepts_nothing_and_is_logged_once(
    broken: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    spec = one({"name": "mail.send", "parameters": broken})
    assert "mail.send" in str(spec.problem({"x": 1}))
    assert "mail.send" in str(spec.problem({}))
    assert [record.name for record in caplog.records] == ["langgraph_toolmem.runs.tools"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(["leg", "cabin", "seats", "to", "x"]), json_values, max_size=4))
def test_what_passes_can_be_executed(args: dict[str, Any]) -> None:
    for thing in (book, send):
        problem = one(thing).problem(args)
        assert problem is None or ("\n" not in problem and problem)
        if problem is None:
            thing.invoke(args)


# --- errors


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([send, 5], ["tools[1]", "int"]),
        ([{"type": "web_search"}], ["tools[0]", "no name"]),
        ([{"name": "f", "parameters": "none"}], ["tools[0]", "'f'", "str"]),
        ([{"name": "f", "parameters": {"type": "dict"}}], ["tools[0]", "'f'", "'dict'"]),
        ([{"name": "f", "parameters": {"properties": []}}], ["tools[0]", "'f'", "'properties'"]),
        ([{"name": "f", "parameters": {"required": True}}], ["tools[0]", "'f'", "'required'"]),
        ([{"function": {"name": "f", "parameters": {"required": [1]}}}], ["tools[0]", "'f'", "'required'"]),
        ([send, {"name": "g"}, send], ["tools[2]", "tools[0]", "'send'"]),
        ([None], ["tools[0]", "NoneType"]),
        (None, ["NoneType"]),
        (send, ["StructuredTool"]),
        ({"send": send}, ["dict"]),
        ("send", ["str"]),
    ],
)
def test_errors_name_the_tool_and_its_index(tools: Any, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_tools(tools)
    for word in words:
        assert word in str(caught.value)
