"""OpenAPI documents: tools, plans over them, and calls of a server."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from langchain_core.messages import ToolMessage

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import Flow, History
from langgraph_toolmem.navigator.openapi import openapi_tools, read_openapi, read_operations
from langgraph_toolmem.navigator.openapi.operations import MAX_NAME
from langgraph_toolmem.navigator.openapi.schemas import MAX_DEFINITIONS
from langgraph_toolmem.navigator.plan.planner import Chain, plan
from langgraph_toolmem.runs.tools import ToolSpec
from tests.methods.navigator.openapi_documents import CHAT, LIBRARY, SHOP

# --- documents ---


PETS: dict[str, Any] = json.loads(
    """
{"openapi": "3.1.0", "paths": {
  "/owners": {"get": {
    "operationId": "listOwners", "summary": "All owners.", "tags": ["owners"],
    "parameters": [{"name": "city", "in": "query", "schema": {"type": "string"}, "description": "Where."}],
    "responses": {"200": {"content": {"application/json": {
      "schema": {"type": "array", "items": {"$ref": "#/components/schemas/Owner"}}}}}}}},
  "/owners/{owner_id}/pets": {
    "parameters": [{"$ref": "#/components/parameters/Owner"}],
    "post": {
      "description": "Adds  a\\npet.",
      "parameters": [{"name": "Authorization", "in": "header", "schema": {"type": "string"}}],
      "requestBody": {"required": true, "content": {"application/json": {
        "schema": {"$ref": "#/components/schemas/NewPet"}}}},
      "responses": {"201": {"$ref": "#/components/responses/Pet"}}},
    "delete": {"operationId": "drop pets!", "responses": {"204": {"description": "gone"}}}}},
 "components": {
  "parameters": {"Owner": {"name": "owner_id", "in": "path", "required": true, "schema": {"type": "string"}}},
  "responses": {"Pet": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}},
  "schemas": {
    "Owner": {"type": "object", "properties": {"id": {"type": "string"},
      "friend": {"$ref": "#/components/schemas/Owner"}, "web": {"$ref": "https://example.com/web.json"}}},
    "NewPet": {"allOf": [{"$ref": "#/components/schemas/Named"},
      {"type": "object", "properties": {"owner_id": {"type": "integer"}}}]},
    "Named": {"type": "object", "required": ["name", "made"],
      "properties": {"name": {"type": "string"}, "made": {"type": "string", "readOnly": true}}},
    "Pet": {"type": "object", "properties": {"id": {"type": "string"},
      "owner": {"$ref": "#/components/schemas/Owner"}}}}}}
"""
)


def by_name(document: Any) -> dict[str, ToolSpec]:
    return {spec.name: spec for spec in read_openapi(document)}


def test_operations_become_tools():
    specs = by_name(PETS)
    assert list(specs) == ["listOwners", "post_owners_owner_id_pets", "drop_pets"]
    listed, added, dropped = specs.values()

    assert (listed.description, listed.read_only, listed.destructive, listed.tags) == (
        "All owners.",
        True,
        False,
        ("owners",),
    )
    assert listed.properties["city"] == {"type": "string", "description": "Where."}
    assert listed.required == frozenset()
    assert (added.description, added.read_only, added.idempotent) == ("Adds a pet.", False, False)
    assert (dropped.description, dropped.destructive, dropped.returns) == ("DELETE /owners/{owner_id}/pets", True, None)


def test_the_title_is_the_toolkit_and_a_memory_takes_the_specs():
    titled = {**PETS, "info": {"title": " Pet shop ", "version": "1"}}
    assert {spec.toolkit for spec in read_openapi(titled)} == {"Pet shop"}
    assert {spec.toolkit for spec in read_openapi({**PETS, "info": {"title": 5}})} == {""}
    with ToolMemory.ephemeral(tools=read_openapi(titled)) as memory:
        assert memory.navigator.search("adds a pet")[0].toolkit == "Pet shop"
        chain = memory.navigator.plan(target="post_owners_owner_id_pets").chain
        assert chain is not None
        assert chain.tools == ("listOwners", "post_owners_owner_id_pets")
    one = {"operationId": "go", "responses": {}}
    twice = read_openapi({"paths": {"/a": {"get": one, "put": one}, "/b": {"get": one}}})
    assert [spec.name for spec in twice] == ["go", "go_2", "go_3"]


def test_parameters_and_body_are_one_and_clashes_are_renamed():
    added = by_name(PETS)["post_owners_owner_id_pets"]
    assert set(added.properties) == {"owner_id", "name", "body.owner_id"}
    assert added.required == {"owner_id", "name"}
    assert added.properties["body.owner_id"] == {"type": "integer"}
    assert added.problem({"owner_id": "7", "name": "Rex"}) is None
    assert added.problem({"owner_id": "7", "name": 3}) is not None


def test_references_stay_inside_and_circles_are_kept():
    listed = by_name(PETS)["listOwners"]
    assert listed.returns is not None
    assert "$ref" not in json.dumps(listed.returns)
    assert listed.returns["items"]["properties"]["web"] == {}


def test_swagger_2_is_read():
    document = {
        "swagger": "2.0",
        "paths": {
            "/orders/{id}": {
                "put": {
                    "operationId": "update",
                    "parameters": [
                        {"name": "id", "in": "path", "type": "integer", "description": "Order."},
                        {"name": "order", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Order"}},
                    ],
                    "responses": {"200": {"schema": {"$ref": "#/definitions/Order"}}},
                }
            }
        },
        "definitions": {"Order": {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}},
    }
    (spec,) = read_openapi(document)
    assert spec.properties == {"id": {"type": "integer", "description": "Order."}, "sku": {"type": "string"}}
    assert spec.required == {"id", "sku"}
    assert spec.idempotent
    assert spec.returns is not None


@pytest.mark.slow
def test_large_documents_do_not_blow_up():
    schemas = {
        f"S{i}": {"properties": {f"to{j}": {"$ref": f"#/components/schemas/S{j}"} for j in range(200)}}
        for i in range(200)
    }
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}
    document = {
        "paths": {f"/p{i}": {"put": {"requestBody": body, "responses": {"200": body}}} for i in range(50)},
        "components": {"schemas": schemas},
    }
    specs = read_openapi(document)
    one, other = specs[0].parameters["$defs"], specs[1].parameters["$defs"]
    assert sum(map(bool, one.values())) == MAX_DEFINITIONS
    assert {f"S{i}" for i in range(200)} == one.keys(), "no reference leads nowhere"
    assert one["S1"] is other["S1"], "what is shared is there once"
    assert len(ToolDependencyGraph(specs)) == 50


def test_files_are_read(tmp_path: Path):
    import yaml  # type: ignore[import-untyped]

    for suffix, text in ((".json", json.dumps(PETS)), (".yaml", yaml.safe_dump(PETS))):
        file = tmp_path / f"pets{suffix}"
        file.write_text(text, encoding="utf-8")
        assert [spec.name for spec in read_openapi(file)] == list(by_name(PETS))


@pytest.mark.parametrize(
    "broken",
    [
        {"paths": {"/x": None, "/y": {"get": 3, "post": {}}}},
        {"paths": {"/x": {"get": {"parameters": [None, {"in": "query"}, {"$ref": "#/nowhere"}], "responses": None}}}},
        {"paths": {"/x": {"get": {"parameters": [{"name": "x"}, {"name": "y", "in": "elsewhere"}]}}}},
        {"paths": {"/x": {"get": {"requestBody": {"content": []}, "tags": "a", "responses": {"200": None}}}}},
    ],
    ids=["items", "parameters", "places", "bodies"],
)
def test_what_is_broken_is_left_out(broken: Any):
    (spec,) = read_openapi(broken)
    assert spec.properties == {}


def test_what_is_no_document_is_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="no OpenAPI document: it has no `paths`"):
        read_openapi({"openapi": "3.0.0"})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_openapi(tmp_path / "missing.json")
    (tmp_path / "bad.yaml").write_text("a: [}", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="neither JSON nor YAML"):
        read_openapi(tmp_path / "bad.yaml")


# --- plans ---


SHOPS = ToolDependencyGraph(read_openapi(SHOP))


def chain_to(target: str, graph: ToolDependencyGraph = SHOPS, **more: object) -> Chain:
    chain = plan(graph, target, **more).chain  # type: ignore[arg-type]
    assert chain is not None
    return chain


def fed(chain: Chain) -> dict[str, tuple[str, str]]:
    return {feed.input: (feed.origin, feed.output) for feed in chain.steps[-1].feeds if feed.source == "step"}


def test_ids_come_from_the_lists_along_the_path_through_their_envelopes():
    chain = chain_to("updateLine")
    assert chain.tools == ("listCustomers", "listOrders", "listLines", "updateLine")
    assert fed(chain) == {
        "customer_id": ("listCustomers", "entries[].id"),
        "order_id": ("listOrders", "data[].id"),
        "line_number": ("listLines", "[].number"),
    }
    assert chain.complete


def test_nouns_of_several_words_and_an_id_without_a_name():
    graph = ToolDependencyGraph(read_openapi(LIBRARY))
    holds, assignments, end = graph.apis
    assert (holds, end) == ("get_legal-holds", "delete_assignments_id")
    assert chain_to(end, graph).tools == (holds, assignments, end)


def test_the_path_is_searched():
    operation = {"operationId": "op17", "responses": {}}
    with ToolMemory.ephemeral(
        tools=read_openapi({"paths": {"/legal-holds": {"get": operation}, "/x": {"get": {"operationId": "op18"}}}})
    ) as memory:
        assert [hit.name for hit in memory.navigator.search("which legal holds are there?")] == ["op17"]


def test_calls_in_rpc_style_and_a_credential_that_is_no_input():
    specs = {spec.name: spec for spec in read_openapi(CHAT)}
    assert {name: set(spec.properties) for name, spec in specs.items()} == {
        "rooms_list": set(),
        "rooms_archive": {"room_id"},
        "devices_push": {"token"},
    }
    chain = chain_to("rooms_archive", ToolDependencyGraph(specs.values()))
    assert chain.tools == ("rooms_list", "rooms_archive")
    assert chain.complete


def operation(name: str, *inputs: str, said: str = "", method: str = "post") -> dict[str, object]:
    """An RPC-style operation that answers with a truth value."""
    given = [{"name": each, "in": "query", "type": "string", "required": True, "description": said} for each in inputs]
    answer = {"200": {"schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}}
    return {f"/{name}": {method: {"operationId": name.replace(".", "_"), "parameters": given, "responses": answer}}}


@pytest.mark.parametrize(
    ("giver", "target", "tools", "asks"),
    [
        (operation("rooms.listMembers", method="get"), operation("members.drop", "member_id"), 2, []),
        (operation("calls.add"), operation("calls.end", "id"), 1, [("id", False)]),
        (operation("calls.add"), operation("people.add", "id", said="As `calls.add` returned."), 1, [("id", False)]),
        (operation("calls.add"), operation("people.add", "id"), 1, [("id", True)]),
        (operation("calls.add"), operation("people.add", "external_id"), 1, [("external_id", False)]),
    ],
    ids=["a list without a schema", "made by a change", "named in a description", "unknown", "of another system"],
)
def test_the_user_is_asked_for_ids_that_somebody_has(giver, target, tools, asks):  # type: ignore[no-untyped-def]
    specs = read_openapi({"swagger": "2.0", "paths": {**giver, **target}})
    chain = chain_to(specs[-1].name, ToolDependencyGraph(specs))
    assert len(chain.tools) == tools
    assert [(ask.input, ask.system_value) for ask in chain.asks] == asks


def test_nothing_is_created_in_order_to_delete_it_unless_the_request_says_so():
    document = copy.deepcopy(SHOP)
    del document["paths"]["/customers/{customer_id}/orders"]["get"]
    graph = ToolDependencyGraph(read_openapi(document))
    chain = chain_to("deleteOrder", graph)
    assert chain.tools == ("listCustomers", "deleteOrder")
    (ask,) = chain.asks
    assert not ask.system_value, "who had it created may have kept the id"
    assert ask.reason == "only createOrder would give it, by a change"
    assert "createOrder" not in chain_to("deleteOrder", graph, request="delete the order").tools
    asked = chain_to("deleteOrder", graph, request="Create an order for Ann, then delete it")
    assert asked.tools == ("listCustomers", "createOrder", "deleteOrder")


def test_a_writer_that_past_runs_called_before_is_a_step():
    document = copy.deepcopy(SHOP)
    del document["paths"]["/customers/{customer_id}/orders"]["get"]
    graph = ToolDependencyGraph(read_openapi(document))
    flow = Flow("createOrder", "id", "deleteOrder", "order_id")
    past = History(uses={"deleteOrder": 5}, transitions={("createOrder", "deleteOrder"): 5}, flows={flow: 5})
    assert "createOrder" in chain_to("deleteOrder", graph, history=past).tools


def test_a_link_of_the_document_counts():
    chain = chain_to("payOrder", request="create an order and pay it")
    assert fed(chain)["reference"] == ("createOrder", "id")


def test_optional_inputs_stay_empty_unless_known_or_taken_before():
    chain = chain_to("updateLine")
    assert all(feed.required for step in chain.steps for feed in step.feeds)
    assert ("gift_note", "known") in [
        (f.input, f.source) for f in chain_to("updateLine", known=["gift_note"]).steps[-1].feeds
    ]
    past = History(flows={Flow("listOrders", "data[].gift_note", "updateLine", "gift_note"): 4}, uses={"updateLine": 5})
    assert fed(chain_to("updateLine", history=past))["gift_note"] == ("listOrders", "data[].gift_note")


def test_deprecated_operations_are_left_out_names_are_legal_and_bodies_without_a_word_are_needed():
    assert "getOrder" not in SHOPS
    names = [spec.name for spec in read_openapi(LIBRARY)]
    assert all(len(name) <= MAX_NAME for name in names)
    assert len(set(names)) == 3
    assert read_openapi(LIBRARY)[2].properties.keys() == {"id", "include"}
    assert SHOPS.apis["createOrder"].spec.required == {"customer_id", "sku"}
    effects = {name: (node.spec.read_only, node.spec.destructive) for name, node in SHOPS.apis.items()}
    assert effects["listOrders"] == (True, False)
    assert effects["createOrder"] == effects["updateLine"] == effects["payOrder"] == (False, False)
    assert effects["deleteOrder"] == (False, True)


def test_schemas_of_3_0_are_json_schema():
    bounds = {"type": "integer", "nullable": True, "minimum": 0, "exclusiveMinimum": True, "exclusiveMaximum": False}
    choice = {"type": "string", "nullable": True, "enum": ["a"]}
    named = {"type": "object", "properties": {"nullable": {"type": "boolean"}}}
    given = {"n": bounds, "c": choice, "o": named}
    parameters = [{"name": name, "in": "query", "schema": schema} for name, schema in given.items()]
    (spec,) = read_openapi({"paths": {"/a": {"get": {"parameters": parameters}}}})
    assert spec.has_readable_schema
    assert spec.problem({"n": None, "c": None, "o": {"nullable": True}}) is None
    assert spec.problem({"n": 1}) is None
    assert spec.problem({"n": 0}) is not None


def test_two_documents_with_one_name_get_their_titles_in_front():
    other = copy.deepcopy(SHOP)
    other["info"]["title"] = "Old shop"
    names = [spec.name for spec in read_openapi(SHOP, other)]
    assert len(names) == len(set(names))
    assert {"Shop_listOrders", "Old_shop_listOrders"} <= set(names)
    links = [
        spec.returns["x-links"]
        for spec in read_openapi(SHOP, other)
        if spec.name == "Old_shop_createOrder" and spec.returns
    ]
    assert links == [[["Old_shop_payOrder", "reference", "id"]]]


# --- calls ---


def parts_of(request: httpx.Request) -> list[str]:
    """The decoded parts of a path."""
    return [unquote(part) for part in request.url.raw_path.decode().partition("?")[0].split("/")[1:]]


@pytest.fixture
def asked() -> list[httpx.Request]:
    return []


def tools_at(asked: list[httpx.Request], document: Any = SHOP, **more: Any) -> dict[str, Any]:
    """Tools on a server that answers with the examples of `SHOP` and notes what was asked."""

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        parts = parts_of(request)
        for operation in read_operations(SHOP):
            shape = operation.path.split("/")[1:]
            same = len(shape) == len(parts) and all(
                a in (b, f"{{{a[1:-1]}}}") for a, b in zip(shape, parts, strict=True)
            )
            if same and operation.method == request.method:
                responses = SHOP["paths"][operation.path][request.method.lower()]["responses"]
                code, response = next(iter(responses.items()))
                example = response.get("content", {}).get("application/json", {}).get("example")
                return httpx.Response(int(code), **({} if example is None else {"json": example}))
        return httpx.Response(404, json={"error": "no such thing"})

    transport = httpx.MockTransport(answer)
    clients = {"client": httpx.Client(transport=transport), "async_client": httpx.AsyncClient(transport=transport)}
    return {tool.name: tool for tool in openapi_tools(document, base_url="http://shop.test", **clients, **more)}


def called(tool: Any, way: str, **arguments: Any) -> ToolMessage:
    call = {"type": "tool_call", "name": tool.name, "args": arguments, "id": "1"}
    found = tool.invoke(call) if way == "sync" else asyncio.run(tool.ainvoke(call))
    assert isinstance(found, ToolMessage)
    return found


@pytest.mark.parametrize("way", ["sync", "async"])
def test_parameters_go_where_they_belong(asked: Any, way: str):
    tools = tools_at(asked, auth={"X-Shop-Key": "k1"})
    found = called(tools["listCustomers"], way, filter={"city": "Rome"}, tags=["a", "b"], ids=["1", "2"])
    assert json.loads(str(found.content)) == {"entries": [{"id": "c 1/x", "name": "Ann"}], "total": 1}
    assert asked[-1].url.params.multi_items() == [
        ("filter[city]", "Rome"),
        ("tags", "a"),
        ("tags", "b"),
        ("ids", "1,2"),
    ]
    assert asked[-1].headers["X-Shop-Key"] == "k1"
    called(tools["createOrder"], way, customer_id="c 1/x", sku="s")
    assert parts_of(asked[-1]) == ["customers", "c 1/x", "orders"]
    assert json.loads(asked[-1].content) == {"sku": "s"}
    gone = called(tools["deleteOrder"], way, customer_id="c", order_id="o1")
    assert json.loads(str(gone.content)) == {"status": 204}
    called(tools["payOrder"], way, reference="r", config_="x")
    assert asked[-1].url.params.multi_items() == [("config", "x")]


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("bad", ["..", ".", "", "../../admin", "a/../b?x=1#y"])
def test_a_value_cannot_leave_its_place(asked: Any, way: str, bad: str):
    found = called(tools_at(asked)["deleteOrder"], way, customer_id="c", order_id=bad)
    if bad in ("..", ".", ""):
        assert found.status == "error"
        assert "order_id is part of the path" in str(found.content)
        assert not asked
    else:
        assert parts_of(asked[-1]) == ["customers", "c", "orders", bad]
        assert asked[-1].url.raw_path.count(b"/") == 4


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_failed_answer_is_an_error_that_the_model_reads(asked: Any, way: str):
    document = {"paths": {"/nothing": {"get": {"operationId": "nothing"}}}}
    found = called(tools_at(asked, document)["nothing"], way)
    assert found.status == "error"
    assert found.content == 'GET /nothing answered 404 Not Found: {"error":"no such thing"}'
    (away,) = openapi_tools(document, base_url="http://127.0.0.1:9")
    gone = called(away, way)
    assert gone.status == "error"
    assert str(gone.content).startswith("GET /nothing could not be reached: ")


def test_a_token_is_sent_as_bearer_and_where_an_operation_takes_one():
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(302, headers={"Location": "https://elsewhere.example/"})

    client = httpx.Client(transport=httpx.MockTransport(answer))
    tools = {tool.name: tool for tool in openapi_tools(CHAT, auth="t0", client=client)}
    assert called(tools["rooms_list"], "sync").status == "error"
    assert called(tools["rooms_archive"], "sync", room_id="r").status == "error"
    assert [str(request.url) for request in seen] == [
        "https://chat.example/api/rooms.list?token=t0",
        "https://chat.example/api/rooms.archive",
    ], "redirects are not followed"
    assert seen[1].headers["token"] == "t0"
    assert seen[1].headers["authorization"] == "Bearer t0"
    assert seen[1].content == b"room_id=r"


def test_no_server_is_an_error():
    with pytest.raises(ConfigurationError, match=r"names no server address.*base_url"):
        openapi_tools({"paths": {"/a": {"get": {}}}, "servers": [{"url": "/v1"}]})
