"""Calls of operations: the arguments of a tool become one HTTP request, the answer a value that the model reads.

For any arguments of a model, a call ends in an answer or in an error that the model reads (`ToolException`). An answer
has an artifact with the rest: status, headers, the bytes of a file.
"""

from __future__ import annotations

import codecs
import json
import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.openapi.documents import DocumentSource, is_json, is_text
from langgraph_toolmem.navigator.openapi.operations import Body, Operation, read_operations
from langgraph_toolmem.navigator.openapi.serialize import (
    Place,
    PlacedValue,
    ValueRefusedError,
    read_file,
    write_form,
    write_header,
    write_json,
    write_pairs,
    write_parts,
    write_path,
    write_text,
)
from langgraph_toolmem.text.meaning import PATH_SLOT

if TYPE_CHECKING:
    import httpx
    from langchain_core.tools import BaseTool

_UNSAFE_HEADERS: Final = frozenset({"content-length", "host", "transfer-encoding", "connection"})
"""Headers that belong to the connection: a value of a model in one would break it."""

_Request: TypeAlias = dict[str, Any]
"""Arguments of `httpx.Client.stream`."""


def openapi_tools(
    *documents: DocumentSource,
    base_url: str | None = None,
    auth: str | Mapping[str, str] | httpx.Auth | None = None,
    client: httpx.Client | None = None,
    async_client: httpx.AsyncClient | None = None,
    timeout: float = 30.0,
    files: Path | str | None = None,
) -> list[BaseTool]:
    """Return tools that call the operations of documents; names, schemas and effects are those of `read_openapi`.

    A tool returns the JSON of the answer, otherwise its text; if the status is not 200 or a header says how to continue
    (``Link``, ``Location``, ``Retry-After``, an exhausted rate limit), a second text block has both. Binary data is in
    the message's artifact as ``data``, with name, type and size. A status of 300 or more, or a missing answer, is an
    error that the model reads: method, path, status, those headers and the beginning of the answer. Redirects are not
    followed, so credentials reach only the named server; a value can never leave its place in a path.

    Args:
        documents: parsed documents, or paths of JSON or YAML files.
        base_url: address before every path. Defaults to the first server of each document.
        auth: a token, sent as ``Authorization: Bearer``, and for every parameter that takes a token; values by name of
            the header, parameter or cookie, such as ``{"X-API-Key": key}``; or an `httpx.Auth`. It is sent to the
            servers of all documents: call this function once for each set of credentials.
        client, async_client: your own clients; their time-outs apply as well.
        timeout: seconds that one answer may take. Of a longer text, the model reads the part until then.
        files: folder whose files a model may send by ``path``. Defaults to None: a model can only send its own text.

    Raises:
        ConfigurationError: a document cannot be read, or has no server and `base_url` is None, or a value of `auth`
            cannot be sent.
    """
    operations = read_operations(*documents)
    if base_url is None:
        _check_servers(operations)
    folder: Path | None = None
    if files is not None:
        folder = Path(files)
    http = _Http(base_url, auth, client, async_client, timeout, folder)
    return [_tool(operation, http) for operation in operations]


def _check_servers(operations: Iterable[Operation]) -> None:
    """Raise ConfigurationError for a relative server, because the origin of the document is unknown here."""
    for operation in operations:
        if not operation.server.startswith(("http://", "https://")):
            name = operation.spec.name
            raise ConfigurationError(
                f"The document of {name} names no server address ({operation.server!r}). Pass base_url=."
            )


def _tool(operation: Operation, http: _Http) -> BaseTool:
    from langchain_core.tools import StructuredTool

    spec = operation.spec

    def call(**arguments: Any) -> ToolAnswer:
        return http.call(operation, arguments)

    async def acall(**arguments: Any) -> ToolAnswer:
        return await http.acall(operation, arguments)

    # A memory reads effects, toolkit, route and results of a tool from its metadata (`runs.tools`).
    metadata = {
        "read_only": spec.read_only,
        "destructive": spec.destructive,
        "idempotent": spec.idempotent,
        "toolkit": spec.toolkit,
        "route": spec.route,
        "returns": spec.returns,
    }
    return StructuredTool(
        name=spec.name,
        description=spec.description,
        args_schema=spec.parameters,
        func=call,
        coroutine=acall,
        tags=list(spec.tags),
        metadata=metadata,
        handle_tool_error=True,
        response_format="content_and_artifact",
    )


@dataclass
class _Http:
    """Sends calls; a missing client is made at the first call."""

    base_url: str | None
    auth: str | Mapping[str, str] | httpx.Auth | None
    client: httpx.Client | None
    async_client: httpx.AsyncClient | None
    timeout: float
    files: Path | None
    making: threading.Lock = field(default_factory=threads.lock)

    def __post_init__(self) -> None:
        values: Mapping[str, str] = {}
        if isinstance(self.auth, str):
            values = {"auth": self.auth}
        elif isinstance(self.auth, Mapping):
            values = self.auth
        # Raised now; otherwise each call would fail with an error that only the model reads.
        for label, value in values.items():
            try:
                write_header(Place(label, "header"), value)
            except ValueRefusedError:
                raise ConfigurationError(
                    f"auth: the value of {label} cannot be sent: it has line breaks, or characters no header has."
                ) from None

    def call(self, operation: Operation, arguments: Mapping[str, Any]) -> ToolAnswer:
        import httpx

        client = self._client()
        request = self._request(operation, arguments, client)
        # httpx's time-out applies to each read: without this limit a slow answer would be read without end.
        answer = Intake(operation, time.monotonic() + self.timeout)
        try:
            # Not to where a redirect leads: the credentials are for the named server alone.
            with client.stream(**request, follow_redirects=False) as response:
                for chunk in response.iter_bytes():
                    if not answer.takes(chunk):
                        break
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError) as error:
            raise _failed(operation, error) from error
        return answer.read(response)

    def _client(self) -> httpx.Client:
        import httpx

        # Calls of one answer run in threads: each would make a client, and connections of all but one stay open.
        with self.making:
            if self.client is None:
                self.client = httpx.Client(timeout=self.timeout)
            return self.client

    async def acall(self, operation: Operation, arguments: Mapping[str, Any]) -> ToolAnswer:
        import httpx

        if self.async_client is not None:
            return await self._asent(self.async_client, operation, arguments)
        # A client belongs to one event loop, and the next call may be made in another one.
        async with httpx.AsyncClient(timeout=self.timeout) as client:
            return await self._asent(client, operation, arguments)

    async def _asent(self, client: httpx.AsyncClient, operation: Operation, arguments: Mapping[str, Any]) -> ToolAnswer:
        import httpx

        request = self._request(operation, arguments, client)
        answer = Intake(operation, time.monotonic() + self.timeout)
        try:
            async with client.stream(**request, follow_redirects=False) as response:
                async for chunk in response.aiter_bytes():
                    if not answer.takes(chunk):
                        break
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError) as error:
            raise _failed(operation, error) from error
        return answer.read(response)

    def _request(
        self, operation: Operation, arguments: Mapping[str, Any], client: httpx.Client | httpx.AsyncClient
    ) -> _Request:
        import httpx
        from langchain_core.tools import ToolException

        try:
            draft = _RequestDraft(operation, self.files)
            draft.fill(arguments)
            request = draft.authorized(self.auth)
            request["url"] = draft.url(self.base_url or operation.server)
            # httpx puts a client's own parameters in place of the query of an address.
            if client.params:
                request["params"] = httpx.QueryParams(request["url"].partition("?")[2])
            # "*/*" is httpx's default; the host's client takes precedence over the document.
            if operation.accept and client.headers.get("accept") == "*/*":
                request["headers"].append((b"Accept", operation.accept.encode()))
            draft.put_body(request)
        except ValueRefusedError as error:
            raise ToolException(f"{operation.spec.name}: {error}") from error
        return request


class WrittenBody(NamedTuple):
    """A body as it is sent, and its content type."""

    media: str
    content: bytes


@dataclass(slots=True)
class _RequestDraft:
    """A request under construction."""

    operation: Operation
    files: Path | None
    path: dict[str, str] = field(default_factory=dict)
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    cookies: list[tuple[str, str]] = field(default_factory=list)
    fields: list[PlacedValue] = field(default_factory=list)
    whole: PlacedValue | None = None

    def fill(self, arguments: Mapping[str, Any]) -> None:
        """Put each argument into its place; null leaves out a parameter that cannot be null."""
        places = self.operation.places
        for name, value in arguments.items():
            # LangChain checks arguments only against schemas that are models.
            if name not in places:
                raise ValueRefusedError(f"there is no parameter {name!a}, only {', '.join(places) or 'none'}.")
            if value is not None or places[name].nullable:
                self._put(places[name], value)

    def _put(self, place: Place, value: Any) -> None:
        if place.kind == "whole":
            self.whole = PlacedValue(place, value)
        elif place.kind in ("body", "form"):
            self.fields.append(PlacedValue(place, value))
        elif place.kind == "path":
            self.path[place.label] = write_path(place, value)
        elif place.kind == "query":
            self.query += write_pairs(place, value)
        elif place.kind == "cookie":
            self.cookies += write_pairs(place, value)
        elif place.label.lower() not in _UNSAFE_HEADERS:
            self.headers.append((place.label.encode("latin-1", "ignore"), write_header(place, value)))

    def authorized(self, auth: Any) -> _Request:
        """Return the request with its credentials, headers and cookies."""
        request: _Request = {"method": self.operation.method, "headers": self.headers}
        values: dict[str, str] = {}
        if isinstance(auth, str):
            self._put(Place("Authorization", "header"), f"Bearer {auth}")
            # A key of a security scheme is not a token: it is sent only if `auth` names it.
            values = {key.label: auth for key in self.operation.credentials}
        elif isinstance(auth, Mapping):
            values = dict(auth)
        elif auth is not None:
            request["auth"] = auth
        for label, value in values.items():
            self._put(Place(label, self._kind_of_key(label)), value)
        if self.cookies:
            self.headers.append((b"Cookie", _joined(self.cookies, "; ").encode("ascii")))
        return request

    def _kind_of_key(self, label: str) -> str:
        """Return the place of a credential: a header, unless a security scheme or a parameter of its name defines
        another.
        """
        kind = "header"
        # A parameter of the operation takes precedence over a scheme of the document.
        for key in (*self.operation.keys, *self.operation.credentials):
            if key.label == label:
                kind = key.place
        if kind == "formData":
            return "form"
        return kind

    def url(self, server: str) -> str:
        """Return the address; raise ValueRefusedError if a part of its path is missing, or leads out of it."""
        template = self.operation.path.partition("#")[0]
        labels = PATH_SLOT.findall(template)
        for label in labels:
            if not self.path.get(label):
                raise ValueRefusedError(f"{label} is part of the path and cannot be empty.")
        path = PATH_SLOT.sub(self._value_of_slot, template)
        # Servers and proxies resolve `..` in a path, and remove the folder that the document names.
        before = PATH_SLOT.sub("", template).split("/")
        for segment in path.partition("?")[0].split("/"):
            if segment in (".", "..") and segment not in before:
                raise ValueRefusedError(f"{', '.join(labels)} is part of the path and cannot be {segment!r}.")
        address = server.rstrip("/") + path
        query = _joined(self.query, "&")
        if not query:
            return address
        # Some documents have a query in their path.
        if "?" in path:
            return f"{address}&{query}"
        return f"{address}?{query}"

    def _value_of_slot(self, slot: re.Match[str]) -> str:
        return self.path[slot[1]]

    def put_body(self, request: _Request) -> None:
        """Put the body into a request, in the content type of the operation that fits the values."""
        body = self.operation.body
        if body is None:
            return
        if self._is_multipart(body):
            parts = write_parts(self.fields, self.files)
            # httpx writes the boundary, and the header that names it.
            if parts:
                request["files"] = parts
            return
        written = self._written(body)
        if written is not None:
            request["content"] = written.content
            request["headers"].append((b"Content-Type", written.media.encode("latin-1", "replace")))

    def _is_multipart(self, body: Body) -> bool:
        if self.whole is not None or not body.upload:
            return False
        return "form" in body.media[0] or any(given.place.file for given in self.fields)

    def _written(self, body: Body) -> WrittenBody | None:
        """Return the body of the values; None if there are no values, and it may be left out."""
        media = body.media[0]
        if self.whole is not None:
            return self._whole(self.whole.place, self.whole.value, body.media)
        if "form" in media:
            content = write_form(self.fields)
            if content or body.required:
                return WrittenBody(media, content)
        elif self.fields or body.required:
            return WrittenBody(media, write_json({place.label: value for place, value in self.fields}))
        return None

    def _whole(self, place: Place, value: Any, medias: tuple[str, ...]) -> WrittenBody:
        media = medias[0]
        if place.file:
            file = read_file(place, value, self.files)
            return WrittenBody(file.media or media, file.content)
        if not is_json(media):
            return WrittenBody(media, write_text(value).encode())
        # If the document takes both patches and merged objects, a list is the steps of a patch.
        if isinstance(value, list) and "application/json-patch+json" in medias:
            media = "application/json-patch+json"
        if "*" in media:
            media = "application/json"
        return WrittenBody(media, write_json(value))


def _joined(pairs: Iterable[tuple[str, str]], separator: str) -> str:
    return separator.join(f"{key}={value}" for key, value in pairs)


def _failed(operation: Operation, error: Exception) -> Exception:
    import httpx
    from langchain_core.tools import ToolException

    why = f"could not be reached: {error}"
    if isinstance(error, httpx.TimeoutException):
        why = "gave no answer in time"
    elif isinstance(error, (httpx.InvalidURL, UnicodeError)):
        why = f"cannot be asked for with these values: {error}"
    return ToolException(f"{operation.method} {operation.path} {why}.")


# --- answers ---

MAX_SAID: Final = 500
"""Characters of a failed answer that the model reads."""
MAX_ANSWER_BYTES: Final = 64 * 2**20
"""Bytes of an answer that are read."""
_NOTED: Final = ("retry-after", "link", "location", "content-location", "operation-location")
"""Headers of an answer that say how to continue."""
# Limits of requests have no standard name yet; these three beginnings are in use.
_RATE_LIMIT_HEADERS: Final = ("ratelimit", "x-ratelimit", "x-rate-limit")

ToolAnswer: TypeAlias = tuple[Any, dict[str, Any]]
"""Content and artifact of a tool message."""


@dataclass(slots=True)
class Intake:
    """The answer to a call as it arrives."""

    operation: Operation
    until: float
    content: bytearray = field(default_factory=bytearray)
    is_cut: bool = False

    def takes(self, chunk: bytes) -> bool:
        """Add a chunk; return False after the end of the reading time."""
        self.content += chunk
        self.is_cut = time.monotonic() > self.until or len(self.content) > MAX_ANSWER_BYTES
        return not self.is_cut

    def read(self, response: httpx.Response) -> ToolAnswer:
        """Return the content for the model, and the artifact.

        A failure, and bytes that are no text and did not arrive whole, raise ToolException.
        """
        from langchain_core.tools import ToolException

        status = response.status_code
        # Redirects are failures as well: they are not followed, so that credentials reach only the named server.
        if status >= 300:
            raise ToolException(self._failure(response))
        kind = response.headers.get("content-type", "")
        noted = _noted(response.headers, failed=False)
        artifact: dict[str, Any] = {"status": status, "headers": _kept(response.headers), "type": kind}
        artifact["size"] = len(self.content)
        if not self.content:
            return self._without_content(response, noted), artifact
        if self._is_binary(response, kind):
            # A text may be read as far as it arrived; half a file is useless.
            if self.is_cut:
                raise ToolException(f"{self.operation.method} {self.operation.path} gave more than arrives in time.")
            name = _file_name(response.headers.get("content-disposition", ""))
            artifact |= {"name": name, "data": bytes(self.content)}
            content: Any = self._size_text(kind, name)
        else:
            content = self._value(response, kind)
        if status == 200 and not noted and not self.is_cut:
            return _kept_as_data(content), artifact
        return self._with_note(content, response, noted), artifact

    def _failure(self, response: httpx.Response) -> str:
        """Return the text of a failed answer, with the headers that say how to continue."""
        kind = response.headers.get("content-type", "")
        said = ""
        if is_text(kind) or not kind:
            said = " ".join(self._text(response).split())[:MAX_SAID]
        noted = _noted(response.headers, failed=True)
        also = ""
        if noted:
            also = f" ({'; '.join(_header_lines(noted))})"
        call = f"{self.operation.method} {self.operation.path}"
        return f"{call} answered {response.status_code} {response.reason_phrase}{also}: {said}"

    def _without_content(self, response: httpx.Response, noted: Mapping[str, str]) -> dict[str, Any]:
        headers = noted
        # The headers are all that HEAD asks for.
        if self.operation.method == "HEAD":
            headers = _kept(response.headers)
        if not headers:
            return {"status": response.status_code}
        return {"status": response.status_code, "headers": headers}

    def _with_note(self, content: Any, response: httpx.Response, noted: Mapping[str, str]) -> list[dict[str, str]]:
        """Return two content blocks: the value, and the status with the headers that say how to continue."""
        text = content
        if not isinstance(content, str):
            text = json.dumps(content, ensure_ascii=False)
        lines = [f"HTTP {response.status_code} {response.reason_phrase}", *_header_lines(noted)]
        if self.is_cut:
            lines.append("The answer goes on: this is what came in time.")
        return [{"type": "text", "text": text}, {"type": "text", "text": "\n".join(lines)}]

    def _size_text(self, kind: str, name: str) -> str:
        text = f"{len(self.content):,} bytes of {kind}"
        if name:
            text = f"{text} ({name})"
        return text

    def _is_binary(self, response: httpx.Response, kind: str) -> bool:
        # An answer of an unknown kind with a charset says that it is text.
        return bool(kind) and not is_text(kind) and response.charset_encoding is None

    def _text(self, response: httpx.Response) -> str:
        # A server may name an unknown encoding, or send bytes that are invalid in it.
        try:
            encoding = codecs.lookup(response.charset_encoding or "utf-8").name
            return self.content.decode(encoding, "replace")
        except (LookupError, ValueError):
            return self.content.decode("utf-8", "replace")

    def _value(self, response: httpx.Response, kind: str) -> Any:
        if is_json(kind) and not self.is_cut:
            try:
                return json.loads(self.content)
            except (ValueError, RecursionError):
                pass  # the model reads invalid JSON as a text
        return self._text(response)


def _noted(headers: httpx.Headers, *, failed: bool) -> dict[str, str]:
    """Return the headers for the model: how to continue, and reached limits."""
    noted: dict[str, str] = {}
    for label in _NOTED:
        if label in headers:
            noted[label.title()] = headers[label]
    for label, value in headers.items():
        if label.startswith(_RATE_LIMIT_HEADERS):
            # Limits that are not reached would be noise in each answer.
            spent = label.endswith("remaining") and value.strip() == "0"
            if failed or spent:
                noted[label.title()] = value
    return noted


def _header_lines(noted: Mapping[str, str]) -> list[str]:
    return [f"{label}: {value}" for label, value in noted.items()]


def _kept(headers: httpx.Headers) -> dict[str, str]:
    """Return the headers that an artifact has."""
    # Cookies are credentials, and an artifact is kept in the host's checkpoints.
    return {label: value for label, value in headers.items() if label != "set-cookie"}


def _kept_as_data(value: Any) -> Any:
    """Return a value that LangChain does not take for content blocks."""
    # It takes a list of texts or of mappings with a `type`, or an empty one, for blocks: an answer may be any of them.
    if isinstance(value, list) and all(_is_like_block(part) for part in value):
        return json.dumps(value, ensure_ascii=False)
    return value


def _is_like_block(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and "type" in part)


def _file_name(disposition: str) -> str:
    from email.message import Message

    message = Message()
    message["Content-Disposition"] = disposition.replace("\n", " ").replace("\r", " ")
    return message.get_filename() or ""
