"""Calls of operations: the arguments of a tool become one HTTP request.

Whatever a model writes, a call ends in an answer or in an error that the model reads (`ToolException`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.openapi.answers import Answer, Intake
from langgraph_toolmem.navigator.openapi.documents import Source
from langgraph_toolmem.navigator.openapi.inputs import SLOT
from langgraph_toolmem.navigator.openapi.operations import Operation, read_operations
from langgraph_toolmem.navigator.openapi.schemas import is_json
from langgraph_toolmem.navigator.openapi.serialize import (
    Place,
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

if TYPE_CHECKING:
    import httpx
    from langchain_core.tools import BaseTool

_UNSAFE_HEADERS: Final = frozenset({"content-length", "host", "transfer-encoding", "connection"})
"""Headers that belong to the connection: a value of a model in one would break it."""

_Request: TypeAlias = dict[str, Any]
"""Arguments of `httpx.Client.stream`."""


def openapi_tools(
    *documents: Source,
    base_url: str | None = None,
    auth: str | Mapping[str, str] | httpx.Auth | None = None,
    client: httpx.Client | None = None,
    async_client: httpx.AsyncClient | None = None,
    timeout: float = 30.0,
    files: Path | str | None = None,
) -> list[BaseTool]:
    """Return tools that call the operations of documents; names, schemas and effects are those of `read_openapi`.

    A tool gives the JSON of the answer, else its text; where the status is not 200 or a header says how to go on
    (``Link``, ``Location``, ``Retry-After``, an exhausted rate limit), a second text block has both. Bytes that are no
    text are in the message's artifact as ``data``, with name, type and size. An answer from status 300 on, or none, is
    an error that the model reads: method, path, status, those headers and the beginning of the answer. Redirects are
    not followed, so credentials go to the named server alone; a value can never leave its place in a path.

    Args:
        documents: parsed documents, or paths of JSON or YAML files.
        base_url: address in front of every path; the first server of each document if None.
        auth: a token, sent as ``Authorization: Bearer``, and wherever an operation takes one as a parameter; values by
            name of the header, parameter or cookie, such as ``{"X-API-Key": key}``; or an `httpx.Auth`. It goes to the
            servers of all the documents: call once for each that has credentials of its own.
        client, async_client: clients of one's own; their time-outs count as well.
        timeout: seconds that one answer may take. Of a text that goes on, the model reads what came until then.
        files: folder whose files a model may send by ``path``. Defaults to None: it sends what it writes alone.

    Raises:
        ConfigurationError: a document cannot be read, or names no server and `base_url` is None, or a value of `auth`
            cannot be sent.
    """
    operations = read_operations(*documents)
    if base_url is None:
        for operation in operations:
            if not operation.server.startswith(("http://", "https://")):
                name = operation.spec.name
                raise ConfigurationError(
                    f"The document of {name} names no server address ({operation.server!r}). Pass base_url=."
                )
    http = _Http(base_url, auth, client, async_client, timeout, None if files is None else Path(files))
    return [_tool(operation, http) for operation in operations]


def _tool(operation: Operation, http: _Http) -> BaseTool:
    from langchain_core.tools import StructuredTool

    spec = operation.spec

    def call(**arguments: Any) -> Answer:
        return http.call(operation, arguments)

    async def acall(**arguments: Any) -> Answer:
        return await http.acall(operation, arguments)

    fields = ("read_only", "destructive", "idempotent", "toolkit", "route")
    return StructuredTool(
        name=spec.name,
        description=spec.description,
        args_schema=spec.parameters,
        func=call,
        coroutine=acall,
        tags=list(spec.tags),
        metadata={**{name: getattr(spec, name) for name in fields}, "returns": spec.returns},
        handle_tool_error=True,
        response_format="content_and_artifact",
    )


@dataclass
class _Http:
    """Sends calls; a client that nobody gave is made at the first one."""

    base_url: str | None
    auth: str | Mapping[str, str] | httpx.Auth | None
    client: httpx.Client | None
    async_client: httpx.AsyncClient | None
    timeout: float
    files: Path | None

    def __post_init__(self) -> None:
        values = {"auth": self.auth} if isinstance(self.auth, str) else self.auth
        for label, value in values.items() if isinstance(values, Mapping) else ():
            try:
                write_header(Place(label, "header"), value)
            except ValueRefusedError:
                raise ConfigurationError(
                    f"auth: the value of {label} cannot be sent: it has line breaks, or characters no header has."
                ) from None

    def call(self, operation: Operation, arguments: Mapping[str, Any]) -> Answer:
        import httpx

        if self.client is None:
            self.client = httpx.Client(timeout=self.timeout)
        request = self._request(operation, arguments, self.client)
        answer = Intake(operation, time.monotonic() + self.timeout)
        try:
            with self.client.stream(**request, follow_redirects=False) as response:
                for chunk in response.iter_bytes():
                    if not answer.takes(chunk):
                        break
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError) as error:
            raise _failed(operation, error) from error
        return answer.read(response)

    async def acall(self, operation: Operation, arguments: Mapping[str, Any]) -> Answer:
        import httpx

        if self.async_client is not None:
            return await self._asent(self.async_client, operation, arguments)
        async with httpx.AsyncClient(timeout=self.timeout) as client:  # a client belongs to one event loop
            return await self._asent(client, operation, arguments)

    async def _asent(self, client: httpx.AsyncClient, operation: Operation, arguments: Mapping[str, Any]) -> Answer:
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
            if client.params:  # httpx puts them in place of the query of an address
                request["params"] = httpx.QueryParams(request["url"].partition("?")[2])
            if operation.accept and client.headers.get("accept") == "*/*":  # httpx's own; the host's counts more
                request["headers"].append((b"Accept", operation.accept.encode()))
            draft.put_body(request)
        except ValueRefusedError as error:
            raise ToolException(f"{operation.spec.name}: {error}") from error
        return request


@dataclass(slots=True)
class _RequestDraft:
    """A request as it is put together."""

    operation: Operation
    files: Path | None
    path: dict[str, str] = field(default_factory=dict)
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    cookies: list[tuple[str, str]] = field(default_factory=list)
    fields: list[tuple[Place, Any]] = field(default_factory=list)
    whole: tuple[Place, Any] | None = None

    def fill(self, arguments: Mapping[str, Any]) -> None:
        """Put each argument into its place; null leaves out what cannot be null."""
        places = self.operation.places
        for name, value in arguments.items():
            if name not in places:
                raise ValueRefusedError(f"there is no parameter {name!a}, only {', '.join(places) or 'none'}.")
            if value is not None or places[name].nullable:
                self._put(places[name], value)

    def _put(self, place: Place, value: Any) -> None:
        if place.kind == "whole":
            self.whole = (place, value)
        elif place.kind in ("body", "form"):
            self.fields.append((place, value))
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
        parameters = {label: place for place, label in self.operation.credentials}
        places = {label: place for place, label in self.operation.keys} | parameters
        if isinstance(auth, str):
            self._put(Place("Authorization", "header"), f"Bearer {auth}")
            values = dict.fromkeys(parameters, auth)
        elif isinstance(auth, Mapping):
            values = dict(auth)
        else:
            values = {}
            if auth is not None:
                request["auth"] = auth
        for label, value in values.items():
            kind = places.get(label, "header")
            self._put(Place(label, "form" if kind == "formData" else kind), value)
        if self.cookies:
            cookie = "; ".join(f"{label}={value}" for label, value in self.cookies)
            self.headers.append((b"Cookie", cookie.encode("ascii")))
        return request

    def url(self, server: str) -> str:
        """Return the address.

        Raises:
            ValueRefusedError: a part of the path is missing, or names another place (``..``).
        """
        template = self.operation.path.partition("#")[0]
        for label in SLOT.findall(template):
            if not self.path.get(label):
                raise ValueRefusedError(f"{label} is part of the path and cannot be empty.")
        path = SLOT.sub(lambda slot: self.path[slot[1]], template)
        before = SLOT.sub("", template).split("/")
        for segment in path.partition("?")[0].split("/"):
            if segment in (".", "..") and segment not in before:
                labels = ", ".join(SLOT.findall(template))
                raise ValueRefusedError(f"{labels} is part of the path and cannot be {segment!r}.")
        query = "&".join(f"{key}={value}" for key, value in self.query)
        mark = "&" if "?" in path else "?"
        return server.rstrip("/") + path + (f"{mark}{query}" if query else "")

    def put_body(self, request: _Request) -> None:
        """Put the body into a request, in the content type of the operation that fits the values."""
        body = self.operation.body
        if body is None:
            return
        media = body.media[0]
        if self.whole is not None:
            place, value = self.whole
            media, content = self._whole(place, value, body.media)
        elif body.upload and ("form" in media or any(place.file for place, _ in self.fields)):
            parts = write_parts(self.fields, self.files)
            if parts:
                request["files"] = parts
            return
        elif "form" in media:
            content = write_form(self.fields)
            if not content and not body.required:
                return
        elif self.fields or body.required:
            content = write_json({place.label: value for place, value in self.fields})
        else:
            return
        request["content"] = content
        request["headers"].append((b"Content-Type", media.encode("latin-1", "replace")))

    def _whole(self, place: Place, value: Any, medias: tuple[str, ...]) -> tuple[str, bytes]:
        media = medias[0]
        if place.file:
            _, content, kind = read_file(place, value, self.files)
            return kind or media, content
        if not is_json(media):
            return media, write_text(value).encode()
        is_patch = isinstance(value, list) and "application/json-patch+json" in medias
        media = "application/json-patch+json" if is_patch else media
        return "application/json" if "*" in media else media, write_json(value)


def _failed(operation: Operation, error: Exception) -> Exception:
    import httpx
    from langchain_core.tools import ToolException

    why = f"could not be reached: {error}"
    if isinstance(error, httpx.TimeoutException):
        why = "gave no answer in time"
    elif isinstance(error, (httpx.InvalidURL, UnicodeError)):
        why = f"cannot be asked for with these values: {error}"
    return ToolException(f"{operation.method} {operation.path} {why}.")
