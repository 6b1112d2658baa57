"""Tools of OpenAPI documents against a server that answers with the documents' own examples."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx
import pytest
from langchain_core.messages import ToolMessage

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.openapi import METHODS, openapi_tools, read_operations
from tests.methods.navigator.openapi_documents import CHAT, SHOP


class Shop(BaseHTTPRequestHandler):
    """Answers with the examples of `SHOP` and notes what was asked."""

    asked: list[dict[str, Any]]

    def answer(self) -> None:
        url, length = urlsplit(self.path), int(self.headers.get("Content-Length") or 0)
        parts = url.path.split("/")
        body = self.rfile.read(length).decode()
        self.asked.append(
            {
                "method": self.command,
                "parts": [unquote(part) for part in parts[1:]],
                "raw": url.path,
                "query": parse_qsl(url.query),
                "headers": dict(self.headers),
                "body": body,
            }
        )
        for operation in read_operations(SHOP):
            shape = operation.path.split("/")
            same = len(shape) == len(parts) and all(
                a == b or a.startswith("{") for a, b in zip(shape, parts, strict=True)
            )
            if same and operation.method == self.command:
                responses = SHOP["paths"][operation.path][self.command.lower()]["responses"]
                code, response = next(iter(responses.items()))
                content = response.get("content", {}).get("application/json", {})
                return self._send(int(code), content.get("example"))
        return self._send(404, {"error": "no such thing"})

    def _send(self, code: int, value: Any) -> None:
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    asked: list[dict[str, Any]] = []
    handler = type("Handler", (Shop,), {"asked": asked, **{f"do_{method.upper()}": Shop.answer for method in METHODS}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}", asked
        http.shutdown()


def tools_at(base: str, document: Any = SHOP, **more: Any) -> dict[str, Any]:
    return {tool.name: tool for tool in openapi_tools(document, base_url=base, **more)}


def called(tool: Any, way: str, **arguments: Any) -> ToolMessage:
    call = {"type": "tool_call", "name": tool.name, "args": arguments, "id": "1"}
    found = tool.invoke(call) if way == "sync" else asyncio.run(tool.ainvoke(call))
    assert isinstance(found, ToolMessage)
    return found


@pytest.mark.parametrize("way", ["sync", "async"])
def test_parameters_go_where_they_belong(server: Any, way: str):
    base, asked = server
    tools = tools_at(base, auth={"X-Shop-Key": "k1"})
    found = called(tools["listCustomers"], way, filter={"city": "Rome"}, tags=["a", "b"], ids=["1", "2"])
    assert json.loads(str(found.content)) == {"entries": [{"id": "c 1/x", "name": "Ann"}], "total": 1}
    assert asked[-1]["query"] == [("filter[city]", "Rome"), ("tags", "a"), ("tags", "b"), ("ids", "1,2")]
    assert asked[-1]["headers"]["X-Shop-Key"] == "k1"
    called(tools["createOrder"], way, customer_id="c 1/x", sku="s")
    assert asked[-1]["parts"] == ["customers", "c 1/x", "orders"]
    assert json.loads(asked[-1]["body"]) == {"sku": "s"}
    gone = called(tools["deleteOrder"], way, customer_id="c", order_id="o1")
    assert json.loads(str(gone.content)) == {"status": 204}
    called(tools["payOrder"], way, reference="r", config_="x")
    assert asked[-1]["query"] == [("config", "x")]


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("bad", ["..", ".", "", "../../admin", "a/../b?x=1#y"])
def test_a_value_cannot_leave_its_place(server: Any, way: str, bad: str):
    base, asked = server
    found = called(tools_at(base)["deleteOrder"], way, customer_id="c", order_id=bad)
    if bad in ("..", ".", ""):
        assert found.status == "error"
        assert "order_id is part of the path" in str(found.content)
        assert not asked
    else:
        assert asked[-1]["parts"] == ["customers", "c", "orders", bad]
        assert asked[-1]["raw"].count("/") == 4


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_failed_answer_is_an_error_that_the_model_reads(server: Any, way: str):
    base, _ = server
    document = {"paths": {"/nothing": {"get": {"operationId": "nothing"}}}}
    found = called(tools_at(base, document)["nothing"], way)
    assert found.status == "error"
    assert found.content == 'GET /nothing answered 404 Not Found: {"error": "no such thing"}'
    gone = called(tools_at("http://127.0.0.1:9", document)["nothing"], way)
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
