"""Tools from OpenAPI documents (3.x) and Swagger 2.0, to plan with and to call.

`read_openapi` makes a `ToolSpec` of every operation, without network; `openapi_tools` makes LangChain tools that call
it. Parameters in path, query, header, cookie and form and the properties of a JSON body become the tool's parameters;
of two with the same name the one in the body gets ``body_`` before it. ``$ref`` is followed inside the document; what
it names stays named in the schema, in ``$defs``, so circular schemas are fine. The output is the JSON answer of the
first 2xx response, the toolkit the document's title. Deprecated operations are left out, and so are credentials: what a
security scheme fills is no parameter. Effects follow HTTP: GET, HEAD, OPTIONS and TRACE read, DELETE destroys, the
others change something. The specs are given to a memory like other tools::

    ToolMemory(folder, tools=read_openapi("api.yaml")).plan("cancel the order")
    create_agent(model, openapi_tools("api.yaml", auth=token), middleware=...)
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import IDENTIFIERS, canonical
from langgraph_toolmem.text.schema import compact, lookup

if TYPE_CHECKING:
    import httpx
    from langchain_core.tools import BaseTool

METHODS: Final = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
_READS: Final = frozenset({"get", "head", "options", "trace"})
_SEPARATE: Final = frozenset({"authorization", "accept", "content-type"})
"""Headers that OpenAPI says are no parameters."""
MAX_DEFINITIONS: Final = 64
"""Definitions that one schema carries along; in large documents everything leads to everything."""
MAX_SAID: Final = 500
"""Characters of a failed answer that the model reads."""
MAX_NAME: Final = 64
"""Characters of a name that every provider takes."""
_SWAGGER_KEYS: Final = ("type", "format", "items", "enum", "default", "minimum", "maximum", "pattern")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_UNSAFE_KEY: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_SLOT: Final = re.compile(r"\{([^{}]+)\}")
_NAMED: Final = re.compile(r"/?\w[\w-]*(?:[./_][\w{}-]+)+")
"""A path or an operationId of several words in a text."""
_PLACES: Final = frozenset({"path", "query", "header", "cookie", "formData"})
_RESERVED: Final = frozenset({"config", "run_manager", "self", "runtime"})
"""Names that LangChain keeps for itself among the arguments of a tool."""
_CREDENTIALS: Final = frozenset({"token", "accesstoken", "apikey", "authorization", "secret", "password"})
_AUTHENTICATES: Final = re.compile(r"(?i)\bauth(?:enticat|oriz|oris|\b)|\b(?:api|access) ?(?:key|token)s?\b")

Source = Mapping[str, Any] | str | Path


@dataclass(frozen=True)
class _Location:
    """The place of a parameter in a request.

    Attributes:
        label: its name in the document.
        kind: "path", "query", "header", "cookie", "form", "body" (a property of it) or "whole" (all of it).
        style: how a list or an object is written in a query: "repeat", "comma" or "deep" (``filter[name]=x``).
    """

    label: str
    kind: str
    style: str = "repeat"


@dataclass(frozen=True)
class Operation:
    """One operation of a document: the tool, and how a call becomes a request.

    Attributes:
        spec: the tool.
        method: HTTP method, in upper case.
        path: template, as in the document.
        places: parameter of the tool -> where it goes.
        media: content type of the body, "" if there is none.
        server: address in front of the path, "" if the document names none.
        credentials: (place, name) of values that authentication fills.
    """

    spec: ToolSpec
    method: str
    path: str
    places: Mapping[str, _Location]
    media: str
    server: str
    credentials: tuple[tuple[str, str], ...] = ()


def read_openapi(*documents: Source) -> list[ToolSpec]:
    """Return the operations of documents, in their order.

    A name is the ``operationId``, else method and path, in letters, digits, ``_`` and ``-``, at most `MAX_NAME` of
    them; a name that occurs again gets a number, and one that two documents have gets their titles in front.

    Args:
        documents: parsed documents, or paths of JSON or YAML files.

    Raises:
        ConfigurationError: a file cannot be read, or something is no OpenAPI document.
    """
    return [operation.spec for operation in read_operations(*documents)]


def read_operations(*documents: Source) -> list[Operation]:
    """Return what `read_openapi` does, with what a request needs."""
    read = [_operations(document) for document in documents]
    count = Counter(name for operations in read for name in {each.spec.name for each in operations})
    found: list[Operation] = []
    for operations in read:
        renamed = {
            each.spec.name: _legal(f"{each.spec.toolkit}_{each.spec.name}")
            for each in operations
            if count[each.spec.name] > 1
        }
        for each in operations:
            name = renamed.get(each.spec.name, each.spec.name)
            returns = each.spec.returns and _relinked(each.spec.returns, renamed)
            found.append(replace(each, spec=replace(each.spec, name=name, returns=returns)))
    return found


def _operations(source: Source) -> list[Operation]:
    root = _load(Path(source)) if isinstance(source, (str, Path)) else source
    if not isinstance(root, Mapping) or not isinstance(root.get("paths"), Mapping):
        raise ConfigurationError("This is no OpenAPI document: it has no `paths`.")
    document = _Document(root)
    given: list[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]] = []
    taken: set[str] = set()
    for key, entry in root["paths"].items():
        path, item = str(key), document.followed(entry)
        for method in METHODS:
            operation = item.get(method)
            if isinstance(operation, Mapping) and operation.get("deprecated") is not True:
                said = operation.get("operationId")
                name = _free(_legal(said if isinstance(said, str) and said.strip() else f"{method}{path}"), taken)
                document.named[method, path] = document.by_id[str(said)] = name
                document.by_words[canonical(str(said))] = name
                document.by_words.setdefault(canonical(path), name)
                given.append((method, path, item, operation))
    found = [_operation(document, *each) for each in given]
    for each in found:
        for name, schema in each.spec.properties.items():
            _note_mention(document, each.spec.name, name, schema)
    links = document.mentioned
    return [replace(each, spec=_with_links(each.spec, links.get(each.spec.name, []))) for each in found]


def _note_mention(document: _Document, tool: str, name: str, schema: Mapping[str, Any]) -> None:
    """Note the operation that the description of an id names: "as returned by `GET /orders`"."""
    if IDENTIFIERS.isdisjoint(canonical(name)):
        return
    for said in _NAMED.findall(str(schema.get("description", ""))):
        giver = document.by_words.get(canonical(said))
        if giver not in (None, tool):
            document.mentioned.setdefault(str(giver), []).append([tool, name, ""])


def _with_links(spec: ToolSpec, links: Sequence[list[str]]) -> ToolSpec:
    if not links:
        return spec
    returns = spec.returns or {}
    return replace(spec, returns={**returns, "x-links": [*returns.get("x-links", ()), *links]})


def _operation(
    document: _Document, method: str, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]
) -> Operation:
    root = document.root
    inputs = _Inputs()
    # An operation's own parameters take the place of those of its path with the same name and place.
    merged: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for given in (*_list(item.get("parameters")), *_list(operation.get("parameters"))):
        parameter = document.followed(given)
        merged[parameter.get("name"), parameter.get("in")] = parameter
    bodies: list[tuple[Mapping[str, Any], bool]] = []
    credentials: list[tuple[str, str]] = []
    media = ""
    for parameter in merged.values():
        label, place = parameter.get("name"), parameter.get("in")
        if place == "body":
            media = "application/json"
            bodies.append((_mapping(parameter.get("schema")), parameter.get("required") is not False))
        elif not isinstance(label, str) or place not in _PLACES or (place == "header" and label.lower() in _SEPARATE):
            continue
        elif (str(place), label) in document.credentials or _is_credential(parameter):
            credentials.append((str(place), label))
        else:
            kind = "form" if place == "formData" else str(place)
            media = "application/x-www-form-urlencoded" if kind == "form" else media
            needed = kind == "path" or parameter.get("required") is True
            inputs.put(label, kind, _parameter_schema(parameter), needed=needed, style=_style(parameter))
    body = document.followed(operation.get("requestBody"))
    if body:
        media, schema = _content(body.get("content"))
        bodies.append((schema, body.get("required") is not False))
    for schema, needed in bodies:
        _put_body(document, inputs, schema, needed=needed, kind="form" if "form" in media else "body")
    said = [operation.get("summary") or item.get("summary"), operation.get("description") or item.get("description")]
    texts = [" ".join(text.split()) for text in said if isinstance(text, str) and text.strip()]
    names = {place.label: name for name, place in inputs.places.items() if place.kind == "path"}
    spec = ToolSpec(
        name=document.named[method, path],
        description=" ".join(dict.fromkeys(texts)) or f"{method.upper()} {path}",
        parameters=document.alone({"type": "object", "properties": inputs.properties, "required": inputs.required}),
        returns=_answer(document, operation),
        read_only=method in _READS,
        destructive=method == "delete",
        idempotent=method in _READS or method in ("put", "delete"),
        tags=tuple(tag for tag in _list(operation.get("tags")) if isinstance(tag, str)),
        toolkit=title.strip() if isinstance(title := _mapping(root.get("info")).get("title"), str) else "",
        route=f"{method.upper()} " + _SLOT.sub(lambda slot: f"{{{names.get(slot[1], slot[1])}}}", path),
    )
    server = _server(root, _list(operation.get("servers")) or _list(item.get("servers")) or _list(root.get("servers")))
    return Operation(spec, method.upper(), path, inputs.places, media, server, tuple(credentials))


class _Inputs:
    """Parameters of a tool as they are collected."""

    def __init__(self) -> None:
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []
        self.places: dict[str, _Location] = {}

    def put(self, label: str, kind: str, schema: Any, *, needed: bool, style: str = "repeat") -> None:
        name = _legal(label)
        name = f"{name}_" if name in _RESERVED else name
        while name in self.properties:
            name = f"body_{name}"
        self.properties[name] = dict(_mapping(schema))
        self.places[name] = _Location(label, kind, style)
        if needed:
            self.required.append(name)


def _style(parameter: Mapping[str, Any]) -> str:
    if parameter.get("style") == "deepObject":
        return "deep"
    if parameter.get("type") == "array":  # Swagger 2.0
        return "repeat" if parameter.get("collectionFormat") == "multi" else "comma"
    return "comma" if parameter.get("explode") is False else "repeat"


def _is_credential(parameter: Mapping[str, Any]) -> bool:
    """Return True if a parameter is called like a credential, and stands in a header or is described as one."""
    if parameter.get("in") not in ("header", "query", "formData", "cookie"):
        return False
    words, said = set(canonical(str(parameter.get("name")))), parameter.get("description")
    described = isinstance(said, str) and _AUTHENTICATES.search(said) is not None
    return words <= _CREDENTIALS and (parameter.get("in") == "header" or described)


def _put_body(document: _Document, inputs: _Inputs, schema: Mapping[str, Any], *, needed: bool, kind: str) -> None:
    inner = document.joined(schema)
    fields = inner.get("properties")
    if not isinstance(fields, Mapping) or not fields:
        if schema:
            inputs.put("body", "whole", schema, needed=needed)
        return
    musts = set(filter(lambda word: isinstance(word, str), _list(inner.get("required"))))
    for label, each in fields.items():
        if _mapping(each).get("readOnly") is not True:
            inputs.put(str(label), kind, each, needed=needed and label in musts)


def _parameter_schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    schema = dict(_mapping(parameter.get("schema")) or _content(parameter.get("content"))[1])
    if not schema:  # Swagger 2.0 writes the schema's keys beside the name
        schema = {key: parameter[key] for key in _SWAGGER_KEYS if key in parameter}
    description = parameter.get("description")
    if isinstance(description, str) and "description" not in schema:
        schema["description"] = description
    return schema


def _answer(document: _Document, operation: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the first successful answer, with its links as ``x-links``: [tool, parameter, path]."""
    responses = _mapping(operation.get("responses"))
    codes = sorted(str(code) for code in responses if str(code).startswith("2"))
    by_code = {str(code): response for code, response in responses.items()}
    for code in (*codes, "default"):
        response = document.followed(by_code.get(code))
        schema = _mapping(response.get("schema")) or _content(response.get("content"))[1]
        links = list(_links(document, response))
        if schema or links:
            return compact({**schema, "x-links": links} if links else schema, document.root)
    return None


def _links(document: _Document, response: Mapping[str, Any]) -> Iterator[list[str]]:
    for given in _mapping(response.get("links")).values():
        link = document.followed(given)
        tool = document.by_id.get(str(link.get("operationId")))
        reference = str(link.get("operationRef", "")).removeprefix("#/paths/").rsplit("/", 1)
        if tool is None and len(reference) == 2:
            tool = document.named.get((reference[1], reference[0].replace("~1", "/").replace("~0", "~")))
        for parameter, expression in _mapping(link.get("parameters")).items():
            place = str(expression).removeprefix("$response.body#/")
            if tool is not None and place != expression:
                label = re.sub(r"^(?:path|query|header|cookie)\.", "", str(parameter))
                path = ".".join(place.split("/"))
                yield [tool, _legal(label), re.sub(r"(?:^|\.)\d+(?=\.|$)", "[]", path)]


def _relinked(returns: dict[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    links = returns.get("x-links")
    if not links or not renamed:
        return returns
    return {**returns, "x-links": [[renamed.get(tool, tool), *rest] for tool, *rest in links]}


def _content(content: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the media type and schema of the JSON body, else of a form, else of the first one."""
    kinds = {str(kind): value for kind, value in _mapping(content).items()}
    ranked = sorted(kinds, key=lambda kind: ("json" not in kind, "form" not in kind))
    return (ranked[0], _mapping(_mapping(kinds[ranked[0]]).get("schema"))) if ranked else ("", {})


class _Document:
    """A document whose definitions are rewritten once and shared by the schemas that name them."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        components = _mapping(root.get("components"))
        schemes = _mapping(components.get("securitySchemes")) or _mapping(root.get("securityDefinitions"))
        found = (self.followed(scheme) for scheme in schemes.values())
        self.credentials = {(str(each.get("in")), str(each.get("name"))) for each in found if each.get("name")}
        self.named: dict[tuple[str, str], str] = {}  # (method, path) -> tool
        self.by_id: dict[str, str] = {}  # operationId -> tool
        self.by_words: dict[tuple[str, ...], str] = {}  # words of an operationId or a path -> tool
        self.mentioned: dict[str, list[list[str]]] = {}  # tool -> links, by what is said of parameters
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._rewritten: dict[str, tuple[Any, list[str]]] = {}

    def followed(self, value: Any) -> Mapping[str, Any]:
        """Return what a reference names, after at most eight steps; {} if that is nothing."""
        for _ in range(8):
            reference = _mapping(value).get("$ref")
            if not isinstance(reference, str):
                return _mapping(value)
            value = lookup(self.root, reference)
        return {}

    def joined(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an object schema with its reference followed and its ``allOf`` joined, one level."""
        inner = self.followed(schema)
        parts = [self.followed(part) for part in _list(inner.get("allOf"))]
        if not parts:
            return inner
        properties: dict[str, Any] = {}
        required: list[Any] = []
        for part in (*parts, inner):
            properties.update(_mapping(part.get("properties")))
            required += _list(part.get("required"))
        return {**inner, "properties": properties, "required": required}

    def alone(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a schema that stands alone: the nearest `MAX_DEFINITIONS` definitions it leads to are in ``$defs``."""
        found, waiting = self._copied(schema)
        definitions: dict[str, Any] = {}
        for reference in waiting:  # grows
            name = self._names[reference]
            if name in definitions:
                continue
            if len(definitions) >= MAX_DEFINITIONS:
                definitions.setdefault(name, {})
                continue
            if reference not in self._rewritten:
                self._rewritten[reference] = self._copied(lookup(self.root, reference))
            definitions[name], further = self._rewritten[reference]
            waiting += further
        whole: dict[str, Any] = found
        return {**whole, "$defs": definitions} if definitions else whole

    def _copied(self, value: Any) -> tuple[Any, list[str]]:
        """Return a copy whose references lead to ``$defs``, and what they named; those to nothing are left out."""
        references: list[str] = []

        def copied(inner: Any) -> Any:
            if isinstance(inner, Mapping):
                reference = inner.get("$ref")
                if not isinstance(reference, str):
                    return _modern({str(key): copied(part) for key, part in inner.items()})
                rest = {str(key): copied(part) for key, part in inner.items() if key != "$ref"}
                if not isinstance(lookup(self.root, reference), Mapping):
                    return rest
                references.append(reference)
                return {**rest, "$ref": f"#/$defs/{self._name(reference)}"}
            return [copied(part) for part in inner] if isinstance(inner, list) else inner

        return copied(value), references

    def _name(self, reference: str) -> str:
        if reference not in self._names:
            name = base = _UNSAFE_KEY.sub("_", reference.rsplit("/", 1)[-1]) or "schema"
            while name in self._taken:
                name = f"{base}_{len(self._taken)}"
            self._taken.add(name)
            self._names[reference] = name
        return self._names[reference]


def _modern(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of OpenAPI 3.0 as JSON Schema: ``nullable``, and bounds that a truth value makes exclusive."""
    if schema.get("nullable") is True and isinstance(schema.get("type"), str):
        schema = {**schema, "type": [schema["type"], "null"]}
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
    for bound in ("Minimum", "Maximum"):
        if isinstance(exclusive := schema.get(f"exclusive{bound}"), bool):
            limit = schema.pop(bound.lower() if exclusive else f"exclusive{bound}", None)
            schema[f"exclusive{bound}"] = limit
            if not exclusive or limit is None:
                del schema[f"exclusive{bound}"]
    return schema


def _legal(text: str) -> str:
    """Return a name that every provider takes; a long one ends in a digest of the whole."""
    name = _UNSAFE.sub("_", text.strip()).strip("_") or "_"
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _free(name: str, taken: set[str]) -> str:
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name[: MAX_NAME - 5]}_{number}", number + 1
    taken.add(unique)
    return unique


def _server(root: Mapping[str, Any], servers: list[Any]) -> str:
    if servers:
        server = _mapping(servers[0])
        variables = _mapping(server.get("variables"))
        defaults = {name: str(_mapping(variable).get("default", "")) for name, variable in variables.items()}
        return _SLOT.sub(lambda slot: defaults.get(slot[1], ""), str(server.get("url", "")))
    host, base = root.get("host"), str(root.get("basePath", ""))
    if not isinstance(host, str):
        return base
    schemes = _list(root.get("schemes"))
    return f"{'https' if 'https' in schemes or not schemes else schemes[0]}://{host}{base}"


# --- calls ---


def openapi_tools(
    *documents: Source,
    base_url: str | None = None,
    auth: str | Mapping[str, str] | httpx.Auth | None = None,
    client: httpx.Client | None = None,
    async_client: httpx.AsyncClient | None = None,
    timeout: float = 30.0,
) -> list[BaseTool]:
    """Return tools that call the operations of documents; names, schemas and effects are those of `read_openapi`.

    A tool gives the JSON of the answer, else its text. An answer from status 300 on, or none, is an error that the
    model reads: method, path, status and the beginning of the answer. Redirects are not followed, so credentials go to
    the named server alone; a value can never leave its place in a path.

    Args:
        documents: parsed documents, or paths of JSON or YAML files.
        base_url: address in front of every path; the first server of each document if None.
        auth: a token, sent as ``Authorization: Bearer``, and wherever an operation takes one as a parameter; values by
            name of the header, parameter or cookie, such as ``{"X-API-Key": key}``; or an `httpx.Auth`. It goes to the
            servers of all the documents: call once for each that has credentials of its own.
        client, async_client: clients of one's own; their time-outs count.
        timeout: seconds that one answer may take.

    Raises:
        ConfigurationError: a document cannot be read, or names no server and `base_url` is None.
    """
    operations = read_operations(*documents)
    if base_url is None:
        for each in operations:
            if not each.server.startswith(("http://", "https://")):
                raise ConfigurationError(
                    f"The document of {each.spec.name} names no server address ({each.server!r}). Pass base_url=."
                )
    http = _Http(base_url, auth, client, async_client, timeout)
    return [_tool(each, http) for each in operations]


def _tool(operation: Operation, http: _Http) -> BaseTool:
    from langchain_core.tools import StructuredTool

    spec = operation.spec

    def call(**arguments: Any) -> Any:
        return http.call(operation, arguments)

    async def acall(**arguments: Any) -> Any:
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
    )


@dataclass
class _Http:
    """Sends calls; a client that nobody gave is made at the first one."""

    base_url: str | None
    auth: str | Mapping[str, str] | httpx.Auth | None
    client: httpx.Client | None
    async_client: httpx.AsyncClient | None
    timeout: float

    def call(self, operation: Operation, arguments: Mapping[str, Any]) -> Any:
        import httpx

        if self.client is None:
            self.client = httpx.Client(timeout=self.timeout)
        request = self._request(operation, arguments)
        try:
            return _result(operation, self.client.request(**request, follow_redirects=False))
        except httpx.HTTPError as error:
            raise _failed(operation, error) from error

    async def acall(self, operation: Operation, arguments: Mapping[str, Any]) -> Any:
        import httpx

        request = self._request(operation, arguments)
        try:
            if self.async_client is not None:
                return _result(operation, await self.async_client.request(**request, follow_redirects=False))
            async with httpx.AsyncClient(timeout=self.timeout) as client:  # a client belongs to one event loop
                return _result(operation, await client.request(**request, follow_redirects=False))
        except httpx.HTTPError as error:
            raise _failed(operation, error) from error

    def _request(self, operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `httpx.Client.request`."""
        given: dict[str, dict[str, Any]] = {kind: {} for kind in ("path", "query", "header", "cookie", "form", "body")}
        query: list[tuple[str, str]] = []
        whole: Any = None
        required = operation.spec.required
        for name, value in arguments.items():
            place = operation.places.get(name)
            if place is None or (value is None and name not in required):
                continue
            if place.kind == "whole":
                whole = value
            elif place.kind == "query":
                query += _pairs(place, value)
            else:
                given[place.kind][place.label] = value if place.kind == "body" else _text(value)
        path = _SLOT.sub(lambda slot: _segment(operation, slot[1], given["path"]), operation.path)
        authorized = self._authorize(operation, given, query)
        request: dict[str, Any] = {
            "method": operation.method,
            "url": (self.base_url or operation.server).rstrip("/") + path,
            "params": query,
            "headers": {label: str(value) for label, value in given["header"].items()},
            **authorized,
        }
        if given["cookie"]:
            pairs = (f"{label}={quote(str(value), safe='')}" for label, value in given["cookie"].items())
            request["headers"]["Cookie"] = "; ".join(pairs)
        if "form" in operation.media and given["form"]:
            multipart = "multipart" in operation.media
            request |= (
                {"files": {label: (None, value) for label, value in given["form"].items()}}
                if multipart
                else {"data": given["form"]}
            )
        elif given["body"] or whole is not None:
            body = given["body"] if whole is None else whole
            if "json" in operation.media or not isinstance(body, str):
                request["json"] = body
            else:
                request["content"] = body.encode()
            request["headers"].setdefault("Content-Type", operation.media or "application/json")
        return request

    def _authorize(
        self, operation: Operation, given: Mapping[str, dict[str, Any]], query: list[tuple[str, str]]
    ) -> dict[str, Any]:
        auth = self.auth
        if auth is None or not isinstance(auth, (str, Mapping)):
            return {} if auth is None else {"auth": auth}
        if isinstance(auth, str):
            given["header"]["Authorization"] = f"Bearer {auth}"
            values = {label: auth for _, label in operation.credentials}
        else:
            values = dict(auth)
        places = {label: place for place, label in operation.credentials}
        for label, value in values.items():
            place = places.get(label, "header")
            if place == "query":
                query.append((label, value))
            else:
                given["form" if place == "formData" else place][label] = value
        return {}


def _segment(operation: Operation, label: str, values: Mapping[str, Any]) -> str:
    from langchain_core.tools import ToolException

    value = values.get(label)
    if value is None or value in ("", ".", ".."):
        raise ToolException(f"{operation.spec.name}: {label} is part of the path and cannot be {value!r}.")
    return quote(str(value), safe="")


def _pairs(place: _Location, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        if place.style == "deep":
            return [(f"{place.label}[{key}]", _text(inner)) for key, inner in value.items()]
        return [(str(key), _text(inner)) for key, inner in value.items()]
    if not isinstance(value, (list, tuple)):
        return [(place.label, _text(value))]
    if place.style == "comma":
        return [(place.label, ",".join(map(_text, value)))]
    return [(place.label, _text(inner)) for inner in value]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _result(operation: Operation, response: httpx.Response) -> Any:
    from langchain_core.tools import ToolException

    if response.status_code >= 300:
        said = " ".join(response.text.split())[:MAX_SAID]
        raise ToolException(
            f"{operation.method} {operation.path} answered {response.status_code} {response.reason_phrase}: {said}"
        )
    kind = response.headers.get("content-type", "")
    if not response.content:
        return {"status": response.status_code}
    if "json" in kind:
        try:
            return response.json()
        except ValueError:
            return response.text
    return response.text if kind.startswith("text/") or not kind else f"{len(response.content):,} bytes of {kind}"


def _failed(operation: Operation, error: Exception) -> Exception:
    from langchain_core.tools import ToolException

    why = "gave no answer in time" if "Timeout" in type(error).__name__ else f"could not be reached: {error}"
    return ToolException(f"{operation.method} {operation.path} {why}.")


# --- parts of a document ---


def _load(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The OpenAPI document {path} cannot be read: {error}") from error
    try:
        return json.loads(text)
    except ValueError:
        pass
    yaml: Any = importlib.import_module("yaml")
    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # the one in C is ten times faster
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is neither JSON nor YAML: {' '.join(str(error).split())}") from error


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
