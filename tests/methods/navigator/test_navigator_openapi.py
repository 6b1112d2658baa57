"""OpenAPI documents as tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.openapi import MAX_DEFINITIONS, read_openapi
from langgraph_toolmem.runs.tools import ToolSpec

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
    assert set(added.properties) == {"owner_id", "name", "body_owner_id"}
    assert added.required == {"owner_id", "name"}
    assert added.properties["body_owner_id"] == {"type": "integer"}
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
