"""OpenAPI documents: tools, plans over them, and calls of a server."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import ToolMessage

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.dependencies import ToolDependencyGraph
from langgraph_toolmem.navigator.evidence import Flow, History
from langgraph_toolmem.navigator.openapi import openapi_tools, read_openapi, read_operations
from langgraph_toolmem.navigator.openapi.documents import MAX_DEFINITIONS
from langgraph_toolmem.navigator.openapi.operations import MAX_NAME
from langgraph_toolmem.navigator.plan.planner import Chain, plan
from langgraph_toolmem.runs.run import output_of
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
        {"paths": {"/x": {"get": {"parameters": "a", "responses": None}}}},
        {"paths": {"/x": {"get": {"requestBody": {"content": []}, "tags": "a", "responses": {"200": None}}}}},
        {"paths": {"/x": {"get": {"responses": {"200": {"$ref": "https://example.com/a.json"}}}}}},
    ],
    ids=["items", "parameters", "bodies", "answers"],
)
def test_what_a_call_does_not_need_may_be_broken(broken: Any):
    (spec,) = read_openapi(broken)
    assert spec.properties == {}


MIXED = {"content": {"multipart/mixed": {"schema": {"type": "object", "properties": {"a": {}}}}}}


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"parameters": [{"$ref": "#/nowhere"}]}, "#/nowhere leads to nothing"),
        ({"parameters": [{"$ref": "#/paths/~1x/get/parameters/0"}]}, "leads in a circle"),
        ({"parameters": [{"$ref": "https://example.com/a.json#/P"}]}, "nothing remote is fetched; download"),
        ({"parameters": [{"$ref": "other.json#/P"}]}, "pass the path of its file"),
        ({"parameters": [{"in": "query"}]}, "the name None"),
        ({"parameters": [{"name": "y", "in": "elsewhere"}]}, "the place 'elsewhere'"),
        ({"parameters": [{"name": "y", "in": ["query"]}]}, "the place ['query']"),
        ({"parameters": [{"name": {}, "in": "query"}]}, "the name {}"),
        ({"parameters": [{"name": "y", "in": "query", "style": "matrix"}]}, "the style 'matrix'"),
        ({"parameters": [{"name": "y", "in": "query", "style": ["form"]}]}, "the style ['form']"),
        (
            {"parameters": [{"name": "y", "in": "query", "content": {"application/xml": {}}}]},
            "written as application/xml",
        ),
        ({"requestBody": MIXED}, "the body is multipart/mixed"),
        ({"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/nowhere"}}}}}, "#/nowhere"),
    ],
)
def test_an_operation_that_cannot_be_expressed_is_refused(caplog: Any, broken: dict[str, Any], reason: str):
    paths = {"/x": {"get": broken}}
    with pytest.raises(ConfigurationError, match=re.escape(reason)) as refused:
        read_openapi({"paths": paths})
    assert "GET /x (get_x)" in str(refused.value)
    assert [spec.name for spec in read_openapi({"paths": {**paths, "/y": {"get": {}}}})] == ["get_y"]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert reason in record.getMessage()


# --- files ---


def written(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")
    return folder / next(iter(files))


def test_a_document_of_several_files_is_read_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tree = {"type": "object", "properties": {"leaf": {"type": "string"}, "below": {"$ref": "tree.yaml#"}}}
    main = written(
        tmp_path,
        {
            "api/main.json": {
                "paths": {
                    "/trees/{id}": {"$ref": "paths/trees.json#/~1trees~1%7Bid%7D"},
                    "/trees": {"post": {"$ref": "paths/trees.json#/add"}},
                }
            },
            "api/paths/trees.json": {
                "/trees/{id}": {"get": {"operationId": "tree", "parameters": [{"$ref": "#/id"}]}},
                "id": {"name": "id", "in": "path", "schema": {"type": "integer"}},
                "add": {
                    "operationId": "add",
                    "requestBody": {"content": {"application/json": {"schema": {"$ref": "../../tree.yaml"}}}},
                    "responses": {"200": {"content": {"application/json": {"schema": {"$ref": "../../tree.yaml"}}}}},
                },
            },
            "tree.yaml": tree,
        },
    )
    read: list[str] = []
    original = Path.read_text

    def noted(self: Path, *arguments: Any, **more: Any) -> str:
        read.append(self.name)
        return original(self, *arguments, **more)

    monkeypatch.setattr(Path, "read_text", noted)
    one, add = read_openapi(main)
    assert sorted(read) == ["main.json", "tree.yaml", "trees.json"]
    assert one.properties == {"id": {"type": "integer"}}
    assert set(add.properties) == {"leaf", "below"}
    assert add.parameters["$defs"].keys() == {"tree"}
    assert add.problem({"below": {"below": {"leaf": 3}}}) is not None
    assert add.returns is not None
    assert add.returns["properties"]["leaf"] == {"type": "string"}


def test_whole_sections_may_be_in_files_of_their_own(tmp_path: Path):
    """As large documents are written by hand: the main file has references only."""
    main = written(
        tmp_path,
        {
            "api.json": {
                "servers": {"$ref": "servers.yaml"},
                "paths": {"$ref": "paths/all.yaml"},
                "components": {
                    "schemas": {"$ref": "schemas.yaml"},
                    "securitySchemes": {"$ref": "#/x-schemes"},
                },
                "x-schemes": {"cookie": {"type": "apiKey", "in": "cookie", "name": "auth"}},
                "security": [{"cookie": []}],
            },
            "servers.yaml": [{"url": "https://api.example/v1"}],
            "paths/all.yaml": {"/trees/{id}": {"$ref": "trees.yaml#/paths/~1trees~1{id}"}},
            "paths/trees.yaml": {
                "paths": {
                    "/trees/{id}": {
                        "parameters": [{"$ref": "../parameters.yaml#/id"}],
                        "put": {
                            "operationId": "plant",
                            "requestBody": {
                                "required": True,
                                "content": {"application/json": {"schema": {"$ref": "../schemas.yaml#/Tree"}}},
                            },
                        },
                    }
                }
            },
            "parameters.yaml": {"id": {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}},
            "schemas.yaml": {
                "Named": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
                "Tree": {
                    "allOf": [{"$ref": "#/Named"}, {"type": "object", "properties": {"age": {"type": "integer"}}}]
                },
            },
        },
    )
    (plant,) = read_operations(main)
    assert set(plant.spec.properties) == {"id", "name", "age"}
    assert set(plant.spec.required) == {"id", "name"}
    assert plant.server == "https://api.example/v1"
    assert [key.label for key in plant.keys] == ["auth"]


def test_paths_in_a_file_that_is_missing_are_named(tmp_path: Path):
    main = written(tmp_path, {"api.json": {"paths": {"$ref": "paths.yaml"}}})
    with pytest.raises(ConfigurationError, match=r"its `paths` elsewhere.*paths\.yaml cannot be read"):
        read_openapi(main)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("missing.json", "cannot be read"),
        ("broken.yaml", "neither JSON nor YAML"),
        ("/etc/hosts.json", "only relative paths"),
        ("../.kube/config.yaml", "only relative paths"),
        ("keys.pem", "only relative paths"),
        ("file:///etc/hosts.json", "nothing remote"),
        ("//example.com/a.json", "nothing remote"),
    ],
)
def test_files_that_are_not_read_are_named(tmp_path: Path, reference: str, reason: str):
    secret = {"name": "secret", "in": "query", "schema": {"type": "string"}}
    files = {"../.kube/config.yaml": secret, "keys.pem": secret, "broken.yaml": "a: [}"}
    main = {"paths": {"/x": {"get": {"parameters": [{"$ref": reference}]}}}}
    with pytest.raises(ConfigurationError, match=reason):
        read_openapi(written(tmp_path / "api", {"main.json": main, **files}))


def test_files_may_refer_to_files_without_end(tmp_path: Path):
    parameter = {"name": "q", "in": "query", "schema": {"type": "string"}}
    files: dict[str, Any] = {"main.json": {"paths": {"/x": {"$ref": "f0.json"}}}}
    files |= {f"f{n}.json": {"get": {}, "x-next": 1, "delete": {"$ref": f"f{n + 1}.json#/get"}} for n in range(1500)}
    files["f1500.json"] = {"get": {"parameters": [parameter]}}
    (_, second) = read_openapi(written(tmp_path, files))
    assert second.properties == {}


def test_yaml_is_read_as_openapi_means_it(tmp_path: Path):
    text = """
paths:
  /a:
    get:
      parameters:
        - {name: country, in: query, schema: {type: string, enum: [NO, yes, 0123x, 12:30, 2020-01-01]}}
        - {name: on, in: query, schema: {type: integer, default: 012, maximum: 1.5e3}}
      responses: {200: {content: {application/json: {schema: {properties: {no: {type: string}}}}}}}
"""
    (spec,) = read_openapi(written(tmp_path, {"api.yaml": text}))
    assert spec.properties["country"]["enum"] == ["NO", "yes", "0123x", "12:30", "2020-01-01"]
    assert spec.properties["on"] == {"type": "integer", "default": 12, "maximum": 1500.0}
    assert spec.returns == {"type": "object", "properties": {"no": {"type": "string"}}}


def _bomb() -> str:
    lines = ["a0: &a0 {type: string}"]
    lines += [f"a{n}: &a{n} {{allOf: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    return "\n".join([*lines, "paths: {/x: {get: {parameters: [{name: q, in: query, schema: *a11}]}}}"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_bomb(), "repeats itself"),
        ("paths: &p {/x: {get: *p}}", "contains itself"),
        ('{"paths": ' + '{"a": ' * 500 + "1" + "}" * 501, "nested deeper"),
        ('{"paths": ' + "[" * 200_000, "nested too deeply|neither JSON nor YAML"),
    ],
    ids=["aliases", "circle", "deep", "endless"],
)
def test_documents_that_never_end_are_refused(tmp_path: Path, text: str, reason: str):
    with pytest.raises(ConfigurationError, match=reason):
        read_openapi(written(tmp_path, {"api.yaml": text}))


def test_schemas_that_fan_out_are_merged_once_each():
    schemas: dict[str, Any] = {f"L{n}": {"allOf": [{"$ref": f"#/components/schemas/L{n + 1}"}] * 10} for n in range(40)}
    schemas["L40"] = {"type": "object", "properties": {"x": {"type": "string"}}}
    whole = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/L0"}}}}
    near = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/L34"}}}}
    post = {"requestBody": whole, "responses": {"200": near}}
    (spec,) = read_openapi({"paths": {"/a": {"post": post}}, "components": {"schemas": schemas}})
    assert spec.properties == {"x": {"type": "string"}}
    assert spec.returns == {"type": "object", "properties": {"x": {"type": "string"}}}
    chain = {f"C{n}": {"allOf": [{"$ref": f"#/components/schemas/C{n + 1}"}]} for n in range(2_000)}
    deep = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/C0"}}}}
    document = {"paths": {"/a": {"post": {"requestBody": deep}}}, "components": {"schemas": chain}}
    with pytest.raises(ConfigurationError, match="allOf is nested deeper"):
        read_openapi(document)


def test_what_is_no_document_is_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="no OpenAPI document: it has no `paths`"):
        read_openapi({"openapi": "3.0.0"})
    with pytest.raises(ConfigurationError, match="only `webhooks`"):
        read_openapi({"openapi": "3.1.0", "webhooks": {"paid": {"post": {}}}})
    with pytest.raises(ConfigurationError, match="only `components`"):
        read_openapi({"openapi": "3.1.0", "components": {"schemas": {"Station": {"type": "object"}}}})
    with pytest.raises(ConfigurationError, match="no operation that may be called"):
        read_openapi({"openapi": "3.1.0", "paths": {}})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_openapi(tmp_path / "missing.json")
    (tmp_path / "bad.yaml").write_text("a: [}", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="neither JSON nor YAML"):
        read_openapi(tmp_path / "bad.yaml")


def test_deprecated_operations_and_methods_of_later_versions_are_named(caplog: pytest.LogCaptureFixture):
    old = {"get": {"operationId": "tracksOld", "deprecated": True}}
    new = {"get": {"operationId": "tracks"}, "query": {"operationId": "findTracks"}}
    tools = read_openapi({"openapi": "3.2.0", "paths": {"/v1/tracks": old, "/v2/tracks": new}})
    assert [tool.name for tool in tools] == ["tracks"]
    assert (
        "1 deprecated operations of the document without a title are left out, such as GET /v1/tracks." in caplog.text
    )
    assert "/v2/tracks: `query` of OpenAPI 3.2 is not read" in caplog.text
    with pytest.raises(ConfigurationError, match="no operation that may be called"):
        read_openapi({"openapi": "3.1.0", "paths": {"/v1/tracks": old}})


def test_a_form_has_the_fields_of_all_its_alternatives():
    def dish(kind: str, **own: Any) -> dict[str, Any]:
        fields = {"kind": {"type": "string", "const": kind}, "name": {"type": "string"}, **own}
        return {"properties": fields, "required": ["kind", "name", *own]}

    drink, cake = dish("drink", volume={"type": "number"}), dish("cake", photo={"format": "binary"})
    schema = {
        "oneOf": [{"allOf": [drink]}, {"anyOf": [cake, {"$ref": "#/components/schemas/Dish"}]}],
        "required": ["kind"],
    }
    for media in ("multipart/form-data", "application/x-www-form-urlencoded"):
        body = {"content": {media: {"schema": {"$ref": "#/components/schemas/Dish"}}}}
        (tool,) = read_openapi(
            {"paths": {"/menu": {"post": {"requestBody": body}}}, "components": {"schemas": {"Dish": schema}}}
        )
        assert tool.properties.keys() == {"kind", "name", "volume", "photo"}
        assert tool.properties["kind"]["anyOf"] == [drink["properties"]["kind"], cake["properties"]["kind"]]
        assert tool.properties["name"] == {"type": "string"}
        assert set(tool.required) == {"kind"}


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


def test_a_link_by_path_is_not_taken_for_an_operation_without_an_id():
    getter = {"parameters": [{"name": "id", "in": "path"}]}
    link = {"operationRef": "#/paths/~1users~1{id}/get", "parameters": {"id": "$response.body#/id"}}
    document = {
        "paths": {
            "/users/{id}": {"get": {**getter, "operationId": "getUser"}},
            "/logins": {"post": {"operationId": "logIn", "responses": {"200": {"links": {"user": link}}}}},
            "/nameless/{id}": {"get": getter},
        }
    }
    specs = {spec.name: spec for spec in read_openapi(document)}
    assert specs["logIn"].returns["x-links"] == [["getUser", "id", "id"]]


EVENT = {"type": "object", "properties": {"order_id": {"type": "string"}}}


@pytest.mark.parametrize(
    ("medias", "is_stream"),
    [
        (["text/event-stream"], True),
        (["application/x-ndjson; charset=utf-8", "text/event-stream"], True),
        (["text/event-stream", "application/json"], False),
    ],
)
def test_a_stream_is_marked_and_never_a_step(medias: list[str], is_stream: bool):
    links = {"Cancel": {"operationId": "cancelOrder", "parameters": {"order_id": "$response.body#/order_id"}}}
    answer = {"content": {media: {"schema": EVENT} for media in medias}, "links": links}
    slot = {"name": "order_id", "in": "path", "required": True, "schema": {"type": "string"}}
    document = {
        "openapi": "3.1.0",
        "paths": {
            "/orders": {"get": {"operationId": "followOrders", "responses": {"200": answer}}},
            "/orders/{order_id}": {"delete": {"operationId": "cancelOrder", "parameters": [slot], "responses": {}}},
        },
    }
    with ToolMemory.ephemeral(tools=openapi_tools(document, base_url="http://orders.test")) as memory:
        chain = memory.navigator.plan(target="cancelOrder").chain
    assert chain is not None
    assert chain.tools == (("cancelOrder",) if is_stream else ("followOrders", "cancelOrder"))
    assert [spec.streams for spec in read_openapi(document)] == [is_stream, False]


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


def test_null_next_to_a_reference_is_a_value_of_the_schema_too():
    state = {"type": "string", "enum": ["queued", "done"]}
    given = {"$ref": "#/components/schemas/State", "nullable": True}
    parameter = {"name": "state", "in": "query", "schema": given}
    document = {"paths": {"/runs": {"get": {"parameters": [parameter]}}}, "components": {"schemas": {"State": state}}}
    (operation,) = read_operations(document)
    assert operation.places["state"].nullable is False, "no query can have it"
    problem = operation.spec.problem
    assert problem({"state": "done"}) is problem({"state": None}) is None
    assert problem({"state": "lost"}) is not None


def test_slots_with_a_routers_colon_and_declared_in_other_capitals():
    def path(name: str, kind: str) -> dict[str, Any]:
        return {"name": name, "in": "path", "type": kind, "required": True, "description": f"The {name}."}

    groups = {"get": {"parameters": [path("id", "integer")]}}
    stacks = {"get": {"parameters": [path("stackID", "integer")]}}
    bare = {"post": {}}
    paths = {"/groups/:id": groups, "/stacks/{stackId}": stacks, "/hooks/:token/raw": bare, "/jobs/{id}:run": bare}
    read = {operation.path: operation for operation in read_operations({"swagger": "2.0", "paths": paths})}
    assert list(read) == ["/groups/{id}", "/stacks/{stackId}", "/hooks/{token}/raw", "/jobs/{id}:run"]
    assert read["/groups/{id}"].spec.properties["id"] == {"type": "integer", "description": "The id."}
    assert read["/stacks/{stackId}"].spec.properties == {"stackId": {"type": "integer", "description": "The stackID."}}
    assert read["/hooks/{token}/raw"].spec.required == {"token"}
    assert read["/jobs/{id}:run"].spec.required == {"id"}


def test_bounds_that_swagger_writes_next_to_a_name():
    bounds = {"minLength": 2, "maxLength": 4, "minItems": 1, "maxItems": 3, "multipleOf": 5, "pattern": "^a"}
    parameter = {"name": "code", "in": "query", "type": "string", **bounds, "collectionFormat": "multi"}
    (spec,) = read_openapi({"swagger": "2.0", "paths": {"/a": {"get": {"parameters": [parameter]}}}})
    assert spec.properties["code"] == {"type": "string", **bounds}


def test_names_in_other_scripts_are_legal_stable_and_explained():
    def query(name: str) -> dict[str, Any]:
        return {"name": name, "in": "query", "schema": {"type": "string"}}

    def paths_of(*names: str) -> dict[str, Any]:
        parameters = [query(name) for name in names]
        return {"/πελάτες": {"get": {"operationId": "λίστα", "parameters": parameters}}, "/orders": {"get": second}}

    second: dict[str, Any] = {"operationId": "顧客を取得", "summary": "注文"}
    listed, ordered = read_openapi({"paths": paths_of("σελίδα", "件数", "días", "ＩＤ", "X-Γλώσσα")})
    page, number, days, identifier, language = listed.properties
    legal = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")
    for name in (listed.name, ordered.name, *listed.properties):
        assert legal.fullmatch(name)
    assert (days, identifier) == ("dias", "ID")
    assert listed.properties[page] == {"type": "string", "description": "σελίδα"}
    assert listed.properties[number]["description"] == "件数"
    assert listed.properties[days] == {"type": "string"}
    assert language.startswith("X-")
    assert listed.description == "λίστα."
    assert (ordered.name, ordered.description) == ("get_orders", "顧客を取得. 注文")
    # The names of the others do not depend on the order.
    (again, _) = read_openapi({"paths": paths_of("件数", "σελίδα")})
    assert set(again.properties) == {page, number}
    assert again.name == listed.name


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


def test_calls_of_several_threads_share_one_client(monkeypatch: pytest.MonkeyPatch):
    made: list[httpx.Client] = []
    make = httpx.Client

    def slowly(**how: Any) -> httpx.Client:
        time.sleep(0.05)
        made.append(make(transport=httpx.MockTransport(lambda _: httpx.Response(200, json={"ok": True}))))
        return made[-1]

    monkeypatch.setattr(httpx, "Client", slowly)
    document = {"paths": {"/a": {"get": {"operationId": "a"}}, "/b": {"get": {"operationId": "b"}}}}
    tools = openapi_tools(document, base_url="http://x.test")
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda tool: called(tool, "sync").content, 4 * tools))
    assert len(set(answers)) == 1
    assert len(made) == 1


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


ANY_TEXT = {"type": "string"}
EVERYWHERE: dict[str, Any] = {
    "paths": {
        "/x/{p}": {
            "post": {
                "operationId": "everywhere",
                "parameters": [
                    {"name": "p", "in": "path", "schema": ANY_TEXT},
                    {"name": "q", "in": "query", "style": "deepObject", "schema": {}},
                    {"name": "X-H", "in": "header", "schema": {}},
                    {"name": "c", "in": "cookie", "schema": {}},
                ],
                "requestBody": {
                    "content": {
                        "multipart/form-data": {
                            "schema": {"properties": {"f": {"type": "string", "format": "binary"}, "t": {}}},
                        }
                    }
                },
            },
            "put": {
                "operationId": "body_too",
                "requestBody": {"content": {"application/json": {"schema": {"properties": {"a": {}}}}}},
            },
        }
    }
}
LETTERS = st.text(st.characters(codec=None, categories=None), max_size=8)  # half characters and controls as well
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | LETTERS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LETTERS, inner, max_size=3))
FILES = st.fixed_dictionaries({}, optional=dict.fromkeys(("text", "base64", "path", "name", "type"), LETTERS))


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries({"p": VALUES}, optional={"q": VALUES, "X-H": VALUES, "c": VALUES, "f": FILES, "t": VALUES})
)
def test_no_value_of_a_model_ends_a_run(values: dict[str, Any]):
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={})

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        everywhere, body_too = openapi_tools(EVERYWHERE, base_url="http://x.test", client=client)[::-1]
        for tool, arguments in ((everywhere, values), (body_too, {"p": "1", "a": values["p"]})):
            count = len(sent)
            message = called(tool, "sync", **arguments)
            assert len(sent) - count == (message.status == "success")
    for request in sent:
        assert request.url.host == "x.test"
        assert request.url.raw_path.count(b"/") == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"p": "x" * 70_000}, "URL too long"),
        ({"p": "\ud800"}, "half of a character"),
        ({"p": "1", "X-H": "日本"}, "X-H is a header"),
        ({"p": "1", "X-H": "a\r\nHost: b"}, "X-H is a header"),
        ({"p": "1", "f": {"base64": "%"}}, "no base64"),
        ({"p": "1", "f": {"path": "/etc/hosts"}}, "`files=`"),
        ({"p": "1", "f": {"text": "x", "type": "a/b\r\nc: d"}}, "no media type"),
        ({"p": "1", "t": float("nan")}, "no JSON"),
        ({"p": "1", "other": 1}, "no parameter 'other', only p, q, X-H, c, f, t"),
    ],
)
def test_a_value_that_cannot_be_sent_is_named(asked: Any, arguments: dict[str, Any], reason: str):
    message = called(tools_at(asked, EVERYWHERE)["everywhere"], "sync", **arguments)
    assert message.status == "error"
    assert reason in message.content
    assert not asked


def test_a_model_sends_files_of_the_folder_that_is_offered(asked: Any, tmp_path: Path):
    (tmp_path / "in.txt").write_text("inside")
    (tmp_path.parent / "out.txt").write_text("outside")
    upload = tools_at(asked, EVERYWHERE, files=tmp_path)["everywhere"]
    for said in ("../out.txt", str(tmp_path.parent / "out.txt"), "missing", "", "\0"):
        assert called(upload, "sync", p="1", f={"path": said}).status == "error"
    assert not asked
    called(upload, "sync", p="1", f={"path": "in.txt", "type": "text/plain"})
    assert b'filename="in.txt"\r\nContent-Type: text/plain\r\n\r\ninside' in asked[-1].content
    upload.invoke({"p": "1", "f": tmp_path.parent / "out.txt"})  # a Path comes from code
    assert b"outside" in asked[-1].content
    upload.invoke({"p": "1", "f": b"\0\1"})
    assert b"\0\1" in asked[-1].content


def test_a_body_of_json_becomes_a_form_where_a_file_is_given(asked: Any):
    fields = {"properties": {"note": {"type": "string"}, "size": {"type": "integer"}}}
    files = {"properties": {"files[0]": {"type": "string", "contentEncoding": "binary"}}}
    content = {"application/json": {"schema": fields}, "multipart/form-data": {"schema": {"allOf": [fields, files]}}}
    (tool,) = tools_at(asked, {"paths": {"/a": {"post": {"requestBody": {"content": content}}}}}).values()
    called(tool, "sync", note="n", size=1)
    assert json.loads(asked[-1].content) == {"note": "n", "size": 1}
    called(tool, "sync", note="n", files_0="text")
    assert asked[-1].headers["Content-Type"].startswith("multipart/form-data")
    assert b'name="note"\r\n\r\nn\r\n' in asked[-1].content
    assert b'name="files[0]"; filename="files[0]"' in asked[-1].content


def test_null_is_sent_where_it_is_a_value(asked: Any):
    nulls: dict[str, Any] = {
        "by_type": {"type": ["string", "null"]},
        "by_choice": {"oneOf": [{"type": "string"}, {"type": "null"}]},
        "nullable": {"type": "string", "nullable": True},
        "referred": {"$ref": "#/components/schemas/N"},
        "anything": {},
    }
    texts: dict[str, Any] = {"text": {"type": "string"}, "chosen": {"enum": ["a"]}}
    schema = {"properties": {**nulls, **texts}, "required": list(texts)}
    post = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    document = {"paths": {"/a": {"post": post}}, "components": {"schemas": {"N": {"type": ["null", "integer"]}}}}
    (tool,) = tools_at(asked, document).values()
    called(tool, "sync", **dict.fromkeys((*nulls, *texts)))
    assert json.loads(asked[-1].content) == dict.fromkeys(nulls)


LINK = '<https://x.test/?page=2>; rel="next"'


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize(
    ("answer", "content", "artifact"),
    [
        (httpx.Response(200, json=["a"]), '["a"]', {"status": 200, "size": 5}),
        (httpx.Response(200, json=[]), "[]", {}),
        (httpx.Response(200, content=b"null", headers={"Content-Type": "application/json"}), "null", {}),
        (httpx.Response(200, text="<a>ü</a>", headers={"Content-Type": "application/xml"}), "<a>ü</a>", {"size": 9}),
        (httpx.Response(200, content=b'{"a":1}\n', headers={"Content-Type": "application/x-ndjson"}), '{"a":1}\n', {}),
        (httpx.Response(200, content=b"{", headers={"Content-Type": "application/json"}), "{", {}),
        (httpx.Response(200, content=b"\xfc", headers={"Content-Type": "text/plain; charset=latin-1"}), "ü", {}),
        (httpx.Response(200, content=b"x", headers={"Content-Type": "text/plain; charset=none"}), "x", {}),
        (
            httpx.Response(200, content=b"%PDF", headers={"Content-Type": "application/pdf"}),
            "4 bytes of application/pdf",
            {"type": "application/pdf", "size": 4, "data": b"%PDF"},
        ),
        (httpx.Response(204), '{"status": 204}', {"size": 0}),
        (
            httpx.Response(201, headers={"Location": "/things/7"}),
            '{"status": 201, "headers": {"Location": "/things/7"}}',
            {},
        ),
        (
            httpx.Response(200, json=[{"id": 1}], headers={"Link": LINK, "X-RateLimit-Remaining": "9"}),
            [{"type": "text", "text": '[{"id": 1}]'}, {"type": "text", "text": f"HTTP 200 OK\nLink: {LINK}"}],
            {"status": 200},
        ),
        (
            httpx.Response(202, json={"job": 3}, headers={"Retry-After": "5", "X-RateLimit-Remaining": "0"}),
            [
                {"type": "text", "text": '{"job": 3}'},
                {"type": "text", "text": "HTTP 202 Accepted\nRetry-After: 5\nX-Ratelimit-Remaining: 0"},
            ],
            {},
        ),
        (
            httpx.Response(429, json={"error": "slow"}, headers={"Retry-After": "17", "RateLimit-Limit": "9"}),
            'GET /a answered 429 Too Many Requests (Retry-After: 17; Ratelimit-Limit: 9): {"error":"slow"}',
            None,
        ),
        (
            httpx.Response(302, headers={"Location": "https://elsewhere.test/"}),
            "GET /a answered 302 Found (Location: https://elsewhere.test/): ",
            None,
        ),
    ],
)
def test_answers_are_what_a_model_can_use(way: str, answer: httpx.Response, content: Any, artifact: Any):
    transport = httpx.MockTransport(
        lambda request: httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
    )
    clients = {"client": httpx.Client(transport=transport), "async_client": httpx.AsyncClient(transport=transport)}
    (tool,) = openapi_tools({"paths": {"/a": {"get": {}}}}, base_url="http://x.test", **clients)
    message = called(tool, way)
    assert message.content == content
    if artifact is None:
        assert message.status == "error"
    else:
        assert artifact.items() <= message.artifact.items()
    if isinstance(content, list):
        assert output_of(message.content) == json.loads(content[0]["text"]), "the note is no part of the value"


def test_a_text_that_goes_on_is_read_for_the_given_time():
    def endless() -> Iterator[bytes]:
        while True:
            yield b"data: 1\n\n"

    answer = {"headers": {"Content-Type": "text/event-stream"}}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=endless(), **answer))
    with httpx.Client(transport=transport) as client:
        (tool,) = openapi_tools({"paths": {"/a": {"get": {}}}}, base_url="http://x.test", client=client, timeout=0.0)
        message = called(tool, "sync")
    assert [block["text"].split("\n")[0] for block in message.content] == ["data: 1", "HTTP 200 OK"]


def test_keys_go_where_their_scheme_says(asked: Any):
    schemes = {
        "a": {"type": "apiKey", "in": "query", "name": "key"},
        "b": {"type": "apiKey", "in": "cookie", "name": "c"},
    }
    document = {
        "paths": {"/a": {"get": {}}},
        "components": {"securitySchemes": schemes},
        "security": [{"a": [], "b": []}],
    }
    (tool,) = tools_at(asked, document, auth={"key": "k&1", "c": "2"}).values()
    called(tool, "sync")
    assert asked[-1].url.params["key"] == "k&1"
    assert asked[-1].headers["Cookie"] == "c=2"
    (tool,) = tools_at(asked, document, auth="t").values()
    called(tool, "sync")
    assert not asked[-1].url.query, "a token is no key"
    with pytest.raises(ConfigurationError, match="auth"):
        tools_at(asked, document, auth="t\n")


def test_the_query_stays_where_a_client_has_parameters_of_its_own():
    seen: list[httpx.Request] = []
    transport = httpx.MockTransport(lambda request: (seen.append(request), httpx.Response(200))[1])
    with httpx.Client(transport=transport, params={"v": "2"}) as client:
        tools = {tool.name: tool for tool in openapi_tools(SHOP, client=client)}
        called(tools["listCustomers"], "sync", tags=["a", "b"])
    assert seen[0].url.params.multi_items() == [("v", "2"), ("tags", "a"), ("tags", "b")]
