"""`OpenAIStubServer`: the OpenAI protocol on loopback, answered by a function.

It exists so that an agent can be run end to end, through a real `ChatOpenAI` and real HTTP, without a key and
without a network. It plays no model: what it answers is what `reply` returns.
"""

from __future__ import annotations

import json
import logging
import random
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError, log_failure
from langgraph_toolmem.testing import wire

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langchain_openai import ChatOpenAI

logger = logging.getLogger("langgraph_toolmem.testing")

Reply = Callable[[dict[str, Any]], wire.Answer]
"""``reply(request)``: the JSON body of a chat request gives the answer."""

LOOPBACK = "127.0.0.1"


class OpenAIStubServer:
    """An OpenAI-protocol server on loopback.

    It serves ``/v1/chat/completions`` (plain and SSE), ``/v1/embeddings`` and ``/v1/models``.

        with OpenAIStubServer(reply=lambda request: "Hello.") as server:
            model = ChatOpenAI(base_url=server.url, api_key="x", model="scripted")

    `reply` is called from one thread per connection, so several agents may use one server at once.

    Args:
        reply: what answers a chat request; may return an `AIMessage`, an OpenAI message dict or a text.
        seed: seed of the ids (``call_`` and 24 hex digits). Two servers with one seed give out the same
            ids in the same order: give them different seeds where one memory learns from both, since a call
            is known by its id.
        latency_s: seconds to wait before each answer to a chat request.
        errors: HTTP statuses to answer the first chat requests with, for example ``(429, 500)``.
        embeddings: what ``/v1/embeddings`` computes; by default the built-in `LexicalEmbedder`.
        port: port to listen on; 0 picks a free one.

    Attributes:
        requests: the JSON body of every chat request received, also of those answered with an error.
        embedding_requests: the JSON body of every embeddings request.
        usage: ``prompt_tokens``, ``completion_tokens`` and ``total_tokens`` of the answered chat requests.

    Raises:
        ConfigurationError: `url` is read while the server is not running.
    """

    def __init__(
        self,
        reply: Reply,
        *,
        seed: int = 0,
        latency_s: float = 0.0,
        errors: Sequence[int] = (),
        embeddings: Embeddings | None = None,
        port: int = 0,
    ) -> None:
        """See the class."""
        self.reply = reply
        self.latency_s = latency_s
        self.requests: list[dict[str, Any]] = []
        self.embedding_requests: list[dict[str, Any]] = []
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        self._errors = list(errors)
        self._embeddings = embeddings
        self._port = port
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """The base URL, with ``/v1``."""
        if self._server is None:
            raise ConfigurationError("the stub server is not running: use `with OpenAIStubServer(...) as server:`")
        return f"http://{LOOPBACK}:{self._server.server_address[1]}/v1"

    def start(self) -> OpenAIStubServer:
        """Listen in a thread of its own. Does nothing on a running server."""
        if self._server is None:
            self._server = _bound(self, self._port)
            threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def close(self) -> None:
        """Stop listening and drop open connections. Does nothing on a closed server."""
        if self._server is not None:
            server, self._server = self._server, None
            server.shutdown()
            server.server_close()
            server.drop_connections()

    def __enter__(self) -> OpenAIStubServer:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def fail_next(self, n: int, status: int = 500) -> None:
        """Answer the next `n` chat requests with this HTTP status."""
        with self._lock:
            self._errors.extend([status] * n)

    def new_id(self, prefix: str) -> str:
        """A fresh id: the prefix and 24 hex digits."""
        with self._lock:
            return f"{prefix}{self._random.getrandbits(96):024x}"

    def chat(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Answer a chat request: HTTP status and body."""
        with self._lock:
            self.requests.append(request)
            status = self._errors.pop(0) if self._errors else 200
        if self.latency_s > 0:
            time.sleep(self.latency_s)
        if status != 200:
            return status, _error(f"injected error {status}", "injected")
        message = wire.answer_message(self.reply(request), lambda: self.new_id("call_"))
        body = wire.completion(request, message, completion_id=self.new_id("chatcmpl-"), created=len(self.requests))
        with self._lock:
            for key in self.usage:
                self.usage[key] += body["usage"][key]
        return 200, body

    def embed(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer an embeddings request."""
        with self._lock:
            self.embedding_requests.append(request)
        texts = wire.embedding_texts(request.get("input"))
        if self._embeddings is None:
            from langgraph_toolmem.text.similarity import LexicalEmbedder

            self._embeddings = LexicalEmbedder()
        return cast("dict[str, Any]", wire.embeddings(request, texts, self._embeddings.embed_documents(texts)))


def make_chat_model(server: OpenAIStubServer, *, model: str = "scripted", **kwargs: Any) -> ChatOpenAI:
    """A real `ChatOpenAI` that talks to the stub.

    Args:
        server: a running server.
        model: model name on the wire.
        kwargs: passed on to `ChatOpenAI`.

    Raises:
        MissingExtraError: langchain-openai is not installed.
        ConfigurationError: the server is not running.
    """
    try:
        from langchain_openai import ChatOpenAI
    except ImportError as error:
        raise MissingExtraError("ChatOpenAI", "openai") from error
    options: dict[str, Any] = {"model": model, "base_url": server.url, "api_key": "unused", **kwargs}
    return ChatOpenAI(**options)


_ports: set[int] = set()
_binding = threading.Lock()


def _bound(stub: OpenAIStubServer, port: int) -> _Server:
    """A server on that port; for 0 on one that no stub of this process had before.

    Clients that are kept by address, as langchain-openai keeps them, would take it for the one that is gone.
    """
    refused: list[_Server] = []
    with _binding:
        while True:
            server = _Server(stub, port)
            if port or server.server_port not in _ports or len(refused) >= _MOST_TRIES:
                break
            refused.append(server)  # kept for now, so that the system offers another one
        _ports.add(server.server_port)
    for each in refused:
        each.server_close()
    return server


_MOST_TRIES: Final = 100


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, stub: OpenAIStubServer, port: int) -> None:
        self.stub = stub
        self._open: set[socket.socket] = set()
        super().__init__((LOOPBACK, port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer.server_bind asks the resolver for the host's name, which can hang without a network.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        # Threads of idle keep-alive connections would wait for a next request for ever.
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                logger.debug("a client had closed its connection already")

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request
        logger.debug("connection of %s ended early", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # small writes would otherwise wait 40 ms for a delayed acknowledgement
    server: _Server

    def do_GET(self) -> None:
        if self.path.split("?")[0].rstrip("/") == "/v1/models":
            model = {"id": "scripted", "object": "model", "created": 0, "owned_by": "langgraph-toolmem"}
            self._json(200, {"object": "list", "data": [model]})
        else:
            self._json(404, _error(f"no such path: {self.path}", "not_found"))

    def do_POST(self) -> None:
        path = self.path.split("?")[0].rstrip("/")
        stub = self.server.stub
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path not in {"/v1/chat/completions", "/v1/embeddings"}:
            self._json(404, _error(f"no such path: {self.path}", "not_found"))
            return
        try:
            request = json.loads(raw)
        except ValueError:
            request = None
        if not isinstance(request, dict):
            self._json(400, _error("the body must be a JSON object", "bad_request"))
            return
        try:
            if path == "/v1/embeddings":
                self._json(200, stub.embed(request))
                return
            status, body = stub.chat(request)
        except Exception as error:  # noqa: BLE001 - whatever the script raises
            # 400 and not 500: clients retry a 500, and a script that failed once fails again.
            log_failure(logger, logging.WARNING, "the stub could not answer", error=error)
            self._json(400, _error(f"the stub could not answer: {type(error).__name__}: {error}", "script"))
            return
        if status == 200 and request.get("stream"):
            options = request.get("stream_options") or {}
            self._events(wire.stream(body, include_usage=bool(options.get("include_usage"))))
        else:
            self._json(status, body)

    def _json(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status in {429, 500, 502, 503}:
            self.send_header("retry-after-ms", "5")  # what the openai client honours, to keep tests quick
        self.end_headers()
        self.wfile.write(data)

    def _events(self, events: Iterable[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            self._chunk(f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode())
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        logger.debug(format, *args)


def _error(message: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "stub_error", "param": None, "code": code}}
