"""`OpenAIStubServer`: the OpenAI chat protocol on loopback, for a real `ChatOpenAI` over real HTTP without a key."""

from __future__ import annotations

import json
import logging
import random
import re
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI

from langgraph_toolmem.base.errors import log_failure

logger = logging.getLogger("tests.openai_server")
Reply = Callable[[dict[str, Any]], "AIMessage | str"]
LOOPBACK: Final = "127.0.0.1"


class OpenAIStubServer:
    """A server of ``/v1/chat/completions``, plain and as a stream.

    Args:
        reply: answers the JSON body of a request, in a thread of the connection.
        seed: of the ids of calls and completions.

    Attributes:
        requests: the body of every request.
        usage: tokens of all answers, about four characters each.
    """

    def __init__(self, reply: Reply, *, seed: int = 0) -> None:
        self.reply = reply
        self.requests: list[dict[str, Any]] = []
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        self._random, self._lock = random.Random(seed), threading.Lock()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_address[1]}/v1"

    def __enter__(self) -> OpenAIStubServer:
        self._server = _bound(self)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._server.drop_connections()

    def chat(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the body of the answer."""
        with self._lock:
            self.requests.append(request)
            created = len(self.requests)
        message = self._message(self.reply(request))
        prompt = sum(4 + tokens(each) for each in request["messages"]) + tokens(request.get("tools"))
        said = max(1, tokens(message["content"]) + tokens(message.get("tool_calls")))
        usage = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
        with self._lock:
            self.usage = {name: count + usage[name] for name, count in self.usage.items()}
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        head = {"id": self._id("chatcmpl-"), "object": "chat.completion", "created": created}
        return {**head, "model": request.get("model", "scripted"), "choices": [choice], "usage": usage}

    def _message(self, answer: AIMessage | str) -> dict[str, Any]:
        if isinstance(answer, str):
            return {"role": "assistant", "content": answer, "refusal": None}
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        calls = [(call["id"], call["name"], json.dumps(call["args"], ensure_ascii=False)) for call in answer.tool_calls]
        calls += [(call["id"], call["name"] or "", call["args"] or "") for call in answer.invalid_tool_calls]
        if calls:
            message["tool_calls"] = [
                {"id": id_ or self._id("call_"), "type": "function", "function": {"name": name, "arguments": args}}
                for id_, name, args in calls
            ]
        return message

    def _id(self, prefix: str) -> str:
        with self._lock:
            return f"{prefix}{self._random.getrandbits(96):024x}"


def make_chat_model(server: OpenAIStubServer, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(**{"model": "scripted", "base_url": server.url, "api_key": "unused", **options})


def tokens(value: Any) -> int:
    """Return a quarter of the characters of a text or JSON value, rounded up."""
    if not value:
        return 0
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return -(-len(text) // 4)


def stream(body: Mapping[str, Any], *, include_usage: bool) -> Iterator[dict[str, Any]]:
    """Return an answer as events: text by words, arguments in pieces told apart by ``index``, then the end."""
    head = {"id": body["id"], "object": "chat.completion.chunk", "created": body["created"], "model": body["model"]}
    message = body["choices"][0]["message"]

    def event(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice], **({"usage": None} if include_usage else {})}

    yield event({"role": "assistant", "content": "" if message["content"] else None})
    for word in re.findall(r"\S+\s*|\s+", message["content"] or ""):
        yield event({"content": word})
    for index, call in enumerate(message.get("tool_calls", ())):
        opening = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield event({"tool_calls": [opening]})
        for piece in re.findall(r"(?s).{1,12}", call["function"]["arguments"]):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield event({}, body["choices"][0]["finish_reason"])
    if include_usage:
        yield {**head, "choices": [], "usage": body["usage"]}


_ports: set[int] = set()
_binding = threading.Lock()


def _bound(stub: OpenAIStubServer) -> _Server:
    """Return a server on a port that no stub of this process had: clients are cached by address."""
    refused: list[_Server] = []
    with _binding:
        while (server := _Server(stub)).server_port in _ports and len(refused) < 100:
            refused.append(server)  # kept for now, so that the system offers another one
        _ports.add(server.server_port)
    for each in refused:
        each.server_close()
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, stub: OpenAIStubServer) -> None:
        self.stub = stub
        self._open: set[socket.socket] = set()
        super().__init__((LOOPBACK, 0), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # the other one asks the resolver, which can hang
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        for connection in list(self._open):  # threads of idle connections would wait for ever
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("connection of %s ended early", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # small writes would wait 40 ms for a delayed acknowledgement
    server: _Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        try:
            status, body = 200, self.server.stub.chat(request)
        except Exception as error:  # noqa: BLE001 - whatever the script raises; 400, because clients retry a 500
            log_failure(logger, logging.WARNING, "the stub could not answer", error=error)
            text = f"the stub could not answer: {type(error).__name__}: {error}"
            status, body = 400, {"error": {"message": text, "type": "stub_error", "param": None, "code": "script"}}
        self.send_response(status)
        if status == 200 and request.get("stream"):
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            options = request.get("stream_options") or {}
            for event in stream(body, include_usage=bool(options.get("include_usage"))):
                self._chunk(f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode())
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")
        else:
            data = json.dumps(body, ensure_ascii=False).encode()
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        logger.debug(format, *args)
