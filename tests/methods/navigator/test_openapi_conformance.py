"""Requests compared with what servers made from the same documents by other implementations received.

`openapi_server` answers each request with the parameters and the body that connexion (Swagger 2.0) or openapi-core
(OpenAPI 3.0 and 3.1) took from it, checked against the document. What neither can read (``label`` and ``matrix``
paths, objects whose keys become parameters) is compared with the table of styles in the specification.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from langgraph_toolmem.navigator.openapi import openapi_tools
from langgraph_toolmem.navigator.openapi.serialize import Place, write_header, write_pairs, write_path
from tests.servers import free_port

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
OK = {"200": {"description": "What arrived.", "content": {"application/json": {"schema": {"type": "object"}}}}}


def parameter(name: str, place: str, schema: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, **more}


def body(media: str, schema: Any, **more: Any) -> dict[str, Any]:
    return {"required": True, "content": {media: {"schema": schema, **more}}}


def operation(name: str, *parameters: Any, **more: Any) -> dict[str, Any]:
    return {"operationId": name, "parameters": list(parameters), "responses": OK, **more}


def of_fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


COUNTS = {"type": "object", "properties": {"gt": {"type": "integer"}, "lt": {"type": "integer"}}}
FORM = of_fields(Events=TEXTS, metadata=COUNTS, note=TEXT)

QUERIES = {
    "/texts": {
        "get": operation(
            "texts", parameter("q", "query", TEXT, allowEmptyValue=True), parameter("StartTime<", "query", TEXT)
        )
    },
    "/numbers": {
        "get": operation(
            "numbers",
            parameter("n", "query", {"type": "integer"}),
            parameter("x", "query", {"type": "number"}),
            parameter("flag", "query", {"type": "boolean"}),
        )
    },
    "/lists": {
        "get": operation(
            "lists",
            parameter("many", "query", TEXTS),
            parameter("comma", "query", TEXTS, explode=False),
            parameter("pipe", "query", TEXTS, style="pipeDelimited", explode=False),
            parameter("free", "query", TEXT, allowReserved=True),
        )
    },
    "/objects": {
        "get": operation(
            "objects",
            parameter("created", "query", COUNTS, style="deepObject", explode=True),
            {"name": "filter", "in": "query", "content": {"application/json": {"schema": COUNTS}}},
        )
    },
    "/items/{ids}/{part}": {
        "get": operation("in_path", parameter("ids", "path", TEXTS), parameter("part", "path", TEXT))
    },
    "/around": {
        "get": operation(
            "around",
            parameter("X-Trace", "header", TEXT),
            parameter("X-Tags", "header", TEXTS),
            parameter("theme", "cookie", TEXT),
        )
    },
}


def bodies(file: dict[str, Any]) -> dict[str, Any]:
    return {
        "/json": {"post": operation("json_body", requestBody={"$ref": "parts/bodies.json#/Order"})},
        "/form": {
            "post": operation(
                "form_body",
                requestBody=body(
                    "application/x-www-form-urlencoded",
                    FORM,
                    encoding={"metadata": {"style": "deepObject", "explode": True}},
                ),
            )
        },
        "/parts": {
            "post": operation(
                "parts", requestBody=body("multipart/form-data", of_fields(note=TEXT, card=file, when=COUNTS))
            )
        },
        "/bytes": {"put": operation("raw_bytes", requestBody=body("application/octet-stream", file))},
        "/plain": {"put": operation("plain", requestBody=body("text/plain", TEXT))},
        "/xml": {"put": operation("xml", requestBody=body("application/xml", {}))},
        "/clash/{id}": {
            "patch": operation(
                "clash",
                parameter("id", "path", TEXT),
                parameter("id", "query", TEXT),
                requestBody=body("application/vnd.api+json", of_fields(id={"type": "integer"})),
            )
        },
    }


def document(version: str, null_text: dict[str, Any], file: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Files of a document by name; a version has its own words for a text or null, and for a file."""
    order = {
        "allOf": [{"$ref": "../schemas.json#/definitions/Named"}, of_fields(nick=null_text, count={"type": "integer"})]
    }
    whole = {"openapi": version, "info": {"title": "Post", "version": "1"}, "paths": {**QUERIES, **bodies(file)}}
    named = of_fields(name=TEXT, lines={"type": "array", "items": {"$ref": "#/definitions/Line"}})
    line = of_fields(sku=TEXT, within={"$ref": "#/definitions/Line"})
    return {
        "api.json": whole,
        "parts/bodies.json": {"Order": body("application/json", order)},
        "schemas.json": {"definitions": {"Named": named, "Line": line}},
    }


ODD = "a b&c=d/ü,+%?#'\"[]"
CASES_3: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("texts", {"q": ODD}, {"query": {"q": ODD}}),
    ("texts", {"q": "", "StartTime": "2020"}, {"query": {"q": "", "StartTime<": "2020"}}),
    ("numbers", {"n": 3, "x": 1.5, "flag": False}, {"query": {"n": 3, "x": 1.5, "flag": False}}),
    ("numbers", {"n": None, "flag": True}, {"query": {"flag": True}}),
    (
        "lists",
        {"many": ["a", ODD], "comma": ["a", "b c"], "pipe": ["x", "y"], "free": "a/b?c:d"},
        {"query": {"many": ["a", ODD], "comma": ["a", "b c"], "pipe": ["x", "y"], "free": "a/b?c:d"}},
    ),
    (
        "objects",
        {"created": {"gt": 1, "lt": 9}, "filter": {"gt": 2}},
        {"query": {"created": {"gt": 1, "lt": 9}, "filter": {"gt": 2}}},
    ),
    ("in_path", {"ids": ["1", "2"], "part": "a b-ü"}, {"path": {"ids": ["1", "2"], "part": "a b-ü"}}),
    (
        "around",
        {"X-Trace": "böse", "X-Tags": ["a", "b"], "theme": "dark"},
        {"header": {"X-Trace": "böse", "X-Tags": ["a", "b"]}, "cookie": {"theme": "dark"}},
    ),
    (
        "json_body",
        {"name": "ü", "nick": None, "lines": [{"sku": "s", "within": {"sku": "t"}}]},
        {
            "body": {"name": "ü", "nick": None, "lines": [{"sku": "s", "within": {"sku": "t"}}]},
            "type": "application/json",
        },
    ),
    ("json_body", {"count": None, "name": "x"}, {"body": {"name": "x"}, "type": "application/json"}),
    ("json_body", {}, {"body": {}, "type": "application/json"}),
    (
        "form_body",
        {"Events": ["a&b", "c d"], "metadata": {"gt": 1}, "note": ODD},
        {
            "body": {"Events": ["a&b", "c d"], "metadata": {"gt": 1}, "note": ODD},
            "type": "application/x-www-form-urlencoded",
        },
    ),
    (
        "parts",
        {"note": "a b", "card": {"base64": "AP+A", "name": "c.png", "type": "image/png"}, "when": {"gt": 1}},
        {
            "body": {"note": "a b", "card": ["c.png", "image/png", "\x00\xff\x80"], "when": '{"gt":1}'},
            "type": "multipart/form-data",
        },
    ),
    ("raw_bytes", {"body": {"base64": "AP+A"}}, {"body": "\x00\xff\x80", "type": "application/octet-stream"}),
    ("plain", {"body": "grüße"}, {"body": "grüße", "type": "text/plain"}),
    (
        "xml",
        {"body": "<a><b>ü</b></a>"},
        {"body": "<a><b>ü</b></a>".encode().decode("latin-1"), "type": "application/xml"},
    ),
    (
        "clash",
        {"id": "p", "query.id": "q", "body.id": 3},
        {"path": {"id": "p"}, "query": {"id": "q"}, "body": {"id": 3}, "type": "application/vnd.api+json"},
    ),
]


def old(name: str, place: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "type": "string", "required": place == "path", **more}


def old_list(name: str, collection: str | None = None, place: str = "query") -> dict[str, Any]:
    more = {} if collection is None else {"collectionFormat": collection}
    return {**old(name, place), "type": "array", "items": TEXT, **more}


SWAGGER: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Pods", "version": "1"},
    "basePath": "/v1",
    "consumes": ["application/json"],
    "definitions": {"Pod": of_fields(spec={"type": "object"}, note={"type": "string", "x-nullable": True})},
    "paths": {
        "/find": {
            "get": {
                "operationId": "find",
                "parameters": [old_list("csv"), old_list("pipes", "pipes"), old_list("multi", "multi")],
                "responses": {"200": {"description": ""}},
            }
        },
        "/pods/{name}": {
            "patch": {
                "operationId": "patch_pod",
                "consumes": ["application/json-patch+json", "application/merge-patch+json"],
                "parameters": [
                    old("name", "path"),
                    old("X-Trace", "header"),
                    {"name": "body", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pod"}},
                ],
                "responses": {"200": {"description": ""}},
            }
        },
        "/pods/{name}/image": {
            "post": {
                "operationId": "upload",
                "consumes": ["multipart/form-data"],
                "parameters": [old("name", "path"), old("note", "formData"), old("file", "formData", type="file")],
                "responses": {"200": {"description": ""}},
            }
        },
        "/form": {
            "post": {
                "operationId": "form",
                "consumes": ["application/x-www-form-urlencoded"],
                "parameters": [old("note", "formData"), old("count", "formData", type="integer")],
                "responses": {"200": {"description": ""}},
            }
        },
    },
}
CASES_2: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "find",
        {"csv": ["a", "b c"], "pipes": ["x", "y"], "multi": ["1", "2"]},
        {"csv": ["a", "b c"], "pipes": ["x", "y"], "multi": ["1", "2"], "type": ""},
    ),
    (
        "patch_pod",
        {"name": "p q", "X-Trace": "t", "spec": {"a": 1}, "note": None},
        {
            "name": "p q",
            "X-Trace": "t",
            "body": {"spec": {"a": 1}, "note": None},
            "type": "application/merge-patch+json",
        },
    ),
    (
        "upload",
        {"name": "p", "note": "n ü", "file": {"base64": "AP+A", "name": "c.png", "type": "image/png"}},
        {
            "name": "p",
            "note": "n ü",
            "file": ["c.png", "image/png", "\x00\xff\x80"],
            "type": "multipart/form-data",
        },
    ),
    (
        "form",
        {"note": ODD, "count": 3},
        {"note": ODD, "count": 3, "type": "application/x-www-form-urlencoded"},
    ),
]

FILES = {
    "2.0": {"api.json": SWAGGER},
    "3.0.3": document("3.0.3", {"type": "string", "nullable": True}, {"type": "string", "format": "binary"}),
    "3.1.0": document("3.1.0", {"type": ["string", "null"]}, {"contentMediaType": "application/octet-stream"}),
}


@pytest.fixture(scope="module", params=FILES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A version, and the main file of its document, which a server of another implementation serves."""
    folder, port = tmp_path_factory.mktemp("api"), free_port()
    address = f"http://127.0.0.1:{port}"
    for name, content in FILES[request.param].items():
        (folder / name).parent.mkdir(exist_ok=True)
        servers = {"servers": [{"url": address}]} if "openapi" in content else {}
        host = {"host": f"127.0.0.1:{port}", "schemes": ["http"]} if "swagger" in content else {}
        (folder / name).write_text(json.dumps({**content, **servers, **host}), encoding="utf-8")
    script = Path(__file__).with_name("openapi_server.py")
    with subprocess.Popen([sys.executable, script, folder / "api.json", str(port)]) as server:
        try:
            for _ in range(600):
                try:
                    httpx.get(address)
                    break
                except httpx.TransportError:
                    assert server.poll() is None, "the server ended"
                    time.sleep(0.1)
            yield request.param, folder / "api.json"
        finally:
            server.terminate()


def arrived(tool: Any, way: str, arguments: dict[str, Any]) -> Any:
    call = {"type": "tool_call", "name": tool.name, "args": arguments, "id": "1"}
    message = tool.invoke(call) if way == "sync" else asyncio.run(tool.ainvoke(call))
    return json.loads(message.content) if message.status == "success" else message.content


@pytest.mark.parametrize("way", ["sync", "async"])
def test_what_arrives_is_what_was_meant(served: tuple[str, Path], way: str) -> None:
    version, file = served
    cases = CASES_2 if version == "2.0" else CASES_3
    wrong = []
    with httpx.Client() as client:
        tools = {tool.name: tool for tool in openapi_tools(file, client=client)}
        for name, arguments, meant in cases:
            received = arrived(tools[name], way, arguments)
            if received != meant:
                wrong.append((name, arguments, received))
    assert not wrong, "\n".join(map(str, wrong))
    assert {name for name, _, _ in cases} == tools.keys(), "every operation is called"


BLUE, COLORS, RGB = "blue", ["blue", "black", "brown"], {"R": 100, "G": 200, "B": 150}


@pytest.mark.parametrize(
    ("style", "explode", "text", "texts", "pairs"),
    [
        ("simple", False, "blue", "blue,black,brown", "R,100,G,200,B,150"),
        ("simple", True, "blue", "blue,black,brown", "R=100,G=200,B=150"),
        ("label", False, ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
        ("label", True, ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
        ("matrix", False, ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"),
        ("matrix", True, ";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200;B=150"),
    ],
)
def test_styles_of_paths(style: str, explode: bool, text: str, texts: str, pairs: str) -> None:
    place = Place("color", "path", style, explode)
    assert [write_path(place, value) for value in (BLUE, COLORS, RGB)] == [text, texts, pairs]
    if style == "simple":
        header = Place("color", "header", style, explode)
        assert [write_header(header, value).decode() for value in (BLUE, COLORS, RGB)] == [text, texts, pairs]


@pytest.mark.parametrize(
    ("style", "explode", "texts", "pairs"),
    [
        ("form", False, "color=blue,black,brown", "color=R,100,G,200,B,150"),
        ("form", True, "color=blue&color=black&color=brown", "R=100&G=200&B=150"),
        ("spaceDelimited", False, "color=blue%20black%20brown", "color=R%20100%20G%20200%20B%20150"),
        ("pipeDelimited", False, "color=blue%7Cblack%7Cbrown", "color=R%7C100%7CG%7C200%7CB%7C150"),
        ("tabDelimited", False, "color=blue%09black%09brown", "color=R%09100%09G%09200%09B%09150"),
        ("deepObject", True, "color%5B0%5D=blue&color%5B1%5D=black&color%5B2%5D=brown",
         "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
    ],
)  # fmt: skip
def test_styles_of_queries(style: str, explode: bool, texts: str, pairs: str) -> None:
    place = Place("color", "query", style, explode)
    written = ["&".join(f"{key}={text}" for key, text in write_pairs(place, value)) for value in (COLORS, RGB)]
    assert written == [texts, pairs]
