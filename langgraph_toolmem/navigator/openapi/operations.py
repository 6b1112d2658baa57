"""Operations of a document: a tool each, with the places of its parameters in a request.

An operation is read completely or left out. If it cannot be expressed (a broken reference of a parameter, an unknown
style, an unsupported body), one warning names it and the reason.

Parameters are those of path, query, header, cookie and form, and the properties of a JSON body (`Inputs`). The names of
tools and parameters are valid for every provider, and the same at each reading of a document (`names_of`).
"""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.openapi.documents import (
    Document,
    DocumentSource,
    RefusalError,
    Schemas,
    is_json,
    is_stream,
    is_text,
    list_of,
    load,
    mapping_of,
)
from langgraph_toolmem.navigator.openapi.serialize import FILE_TEXT, STYLES, Place
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import PATH_SLOT, canonical
from langgraph_toolmem.text.schema import compact
from langgraph_toolmem.text.words import LEXICON

logger = logging.getLogger(__name__)

METHODS: Final = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
MAX_SHOWN: Final = 20
"""Limit of operations that the warning names."""
_SAFE_METHODS: Final = frozenset({"get", "head", "options", "trace"})
# The bound keeps the search linear in a maliciously long text.
_NAMED: Final = re.compile(r"(?<!\w)/?\w[\w-]{0,80}(?:[./_][\w{}-]+)+")
"""A path or an operationId of several words in a text."""

_Operations: TypeAlias = dict[tuple[str, str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a document: the tool, and how a call becomes a request.

    Attributes:
        spec: the tool.
        method: HTTP method, in upper case.
        path: template, with slots in braces.
        places: parameter of the tool -> where it goes.
        server: address in front of the path, "" if the document names none.
        body: the body, None if there is none.
        accept: value of the header of that name, "" for the client's own.
        credentials: the parameters that authentication fills.
        keys: the keys that its security schemes name.
    """

    spec: ToolSpec
    method: str
    path: str
    places: Mapping[str, Place]
    server: str
    body: Body | None = None
    accept: str = ""
    credentials: tuple[Labelled, ...] = ()
    keys: tuple[Labelled, ...] = ()


def read_openapi(*documents: DocumentSource) -> list[ToolSpec]:
    """Return the operations of documents, in their order.

    A name is the ``operationId``, otherwise method and path, in at most `MAX_NAME` letters, digits, ``_`` and ``-``; a
    repeated name gets a number, and a name of two documents gets their titles as prefix. Deprecated operations are left
    out. So are those that cannot be expressed; a warning names each with the reason.

    Args:
        documents: parsed documents, or paths of JSON or YAML files. Other files that a document refers to are read too.

    Raises:
        ConfigurationError: a file cannot be read, is not an OpenAPI document, or none of its operations can be
            expressed.
    """
    return [operation.spec for operation in read_operations(*documents)]


def read_operations(*documents: DocumentSource) -> list[Operation]:
    """Return the same as `read_openapi`, with the data of requests."""
    read: list[list[Operation]] = []
    count: Counter[str] = Counter()
    for document in documents:
        operations = _OperationReader(load(document)).operations()
        read.append(operations)
        count.update({operation.spec.name for operation in operations})
    whole: list[Operation] = []
    for operations in read:
        # Both documents are renamed, so that a name does not depend on the order in which they are given.
        renamed: dict[str, str] = {}
        for operation in operations:
            name = operation.spec.name
            if count[name] > 1:
                renamed[name] = legal_name(f"{operation.spec.toolkit}_{name}")
        for operation in operations:
            spec = operation.spec
            name = renamed.get(spec.name, spec.name)
            whole.append(replace(operation, spec=replace(spec, name=name, returns=_relinked(spec.returns, renamed))))
    return whole


_LATER_METHODS: Final = ("query", "additionalOperations")
"""Keys of a path with operations that only OpenAPI 3.2 has."""


class _OperationReader:
    """Reads the operations of one document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.root = document.root
        self.schemas = Schemas(document)
        self.inputs = Inputs(document, self.schemas)
        self.named: dict[tuple[str, str], str] = {}  # (method, path) -> tool
        self.by_id: dict[str, str] = {}  # operationId -> tool
        self.by_words: dict[tuple[str, ...], str] = {}  # words of an operationId or a path -> tool
        self.compacted: dict[str, dict[str, Any]] = {}  # reference -> schema of an answer
        self.mentioned: dict[str, list[list[str]]] = {}  # tool -> links, by the descriptions of parameters
        self.deprecated: list[str] = []  # operations that are left out

    def operations(self) -> list[Operation]:
        """Return the operations that can be expressed; log the others. If none can be, raise ConfigurationError."""
        refusals: list[str] = []
        items: dict[str, Mapping[str, Any]] = {}
        # An unreadable path removes its own operations only.
        for path, given in self.root["paths"].items():
            try:
                items[path] = self.document.followed(given)
            except RefusalError as error:
                refusals.append(f"{path}: {error}")
        # All get their names before the first is read: links and descriptions name later operations.
        given_operations = self._named(items, refusals)
        read: list[Operation] = []
        for (method, path), operation in given_operations.items():
            try:
                read.append(self._operation(method, path, items[path], operation))
            except RefusalError as error:
                refusals.append(f"{method.upper()} {path} ({self.named[method, path]}): {error}")
        self._report(refusals, len(read))
        for operation_read in read:
            for name, schema in operation_read.spec.properties.items():
                self._note_mention(operation_read.spec.name, name, schema)
        linked = []
        for operation_read in read:
            links = self.mentioned.get(operation_read.spec.name, [])
            linked.append(replace(operation_read, spec=_with_links(operation_read.spec, links)))
        return linked

    def _named(self, items: Mapping[str, Mapping[str, Any]], refusals: list[str]) -> _Operations:
        """Return the operations by method and path after giving each its name."""
        given: _Operations = {}
        taken: set[str] = set()
        for path, item in items.items():
            for method in METHODS:
                try:
                    operation = self.document.followed(item.get(method))
                except RefusalError as error:
                    refusals.append(f"{method.upper()} {path}: {error}")
                    continue
                if not isinstance(item.get(method), Mapping):
                    continue
                if operation.get("deprecated") is True:
                    self.deprecated.append(f"{method.upper()} {path}")
                    continue
                self._name(method, path, operation, taken)
                given[method, path] = operation
            for key in _LATER_METHODS:
                if isinstance(item.get(key), Mapping):
                    refusals.append(f"{path}: `{key}` of OpenAPI 3.2 is not read")
        return given

    def _name(self, method: str, path: str, operation: Mapping[str, Any], taken: set[str]) -> None:
        identifier = operation.get("operationId")
        if isinstance(identifier, str) and identifier.strip():
            legal = legal_name(identifier)
            # Of a name in another script only a digest is left: the method and the path say more.
            if not re.search("[A-Za-z]", _without_accents(identifier)):
                legal = legal_name(f"{method}{path}")
            name = free_name(legal, taken)
            self.by_id[identifier] = name
            # Descriptions name operations in different ways: "as returned by list-orders", "GET /orders".
            self.by_words[canonical(identifier)] = name
        else:
            name = free_name(legal_name(f"{method}{path}"), taken)
        self.named[method, path] = name
        self.by_words.setdefault(canonical(path), name)

    def _report(self, refusals: Sequence[str], read: int) -> None:
        title = self._title() or "without a title"
        if self.deprecated:
            # Of a public music service's 96 operations 48 are: without a message, half of the document is missing.
            logger.warning(
                "%d deprecated operations of the document %s are left out, such as %s.",
                len(self.deprecated), title, self.deprecated[0],
            )  # fmt: skip
        if not refusals:
            if not read:
                raise ConfigurationError(f"The document {title} has no operation that may be called.")
            return
        shown = "\n".join(f"  {refusal}" for refusal in refusals[:MAX_SHOWN])
        further = ""
        if len(refusals) > MAX_SHOWN:
            further = f"\n  and {len(refusals) - MAX_SHOWN} more"
        if not read:
            raise ConfigurationError(f"No operation of the document {title} can be expressed:\n{shown}{further}")
        logger.warning(
            "%d operations of the document %s are left out, %d are read:\n%s%s",
            len(refusals), title, read, shown, further,
        )  # fmt: skip

    def _title(self) -> str:
        title = mapping_of(self.root.get("info")).get("title")
        if isinstance(title, str):
            return title.strip()
        return ""

    def _operation(self, method: str, key: str, item: Mapping[str, Any], operation: Mapping[str, Any]) -> Operation:
        path = template_of(key)
        request = self.inputs.read(path, item, operation)
        properties: dict[str, Any] = {}
        places: dict[str, Place] = {}
        required: list[str] = []
        names = names_of([Labelled(given.place.side, given.place.label) for given in request.inputs])
        for name, given in zip(names, request.inputs, strict=True):
            properties[name], places[name] = _with_label(given.schema, given.place.label), given.place
            if given.needed:
                required.append(name)
        spec = ToolSpec(
            name=self.named[method, key],
            description=_description(operation, item) or f"{method.upper()} {path}",
            parameters=self.schemas.alone({"type": "object", "properties": properties, "required": required}),
            returns=self._answer(operation),
            # As HTTP defines its methods (RFC 9110, 9.2): a POST that only reads has to be declared by the host.
            read_only=method in _SAFE_METHODS,
            destructive=method == "delete",
            idempotent=method in _SAFE_METHODS or method in ("put", "delete"),
            tags=tuple(_texts(operation.get("tags"))),
            toolkit=self._title(),
            route=f"{method.upper()} {_with_names(path, places)}",
        )
        return Operation(
            spec=spec,
            method=method.upper(),
            path=path,
            places=places,
            server=_server(self.root, operation, item),
            body=request.body,
            accept=self._accept(operation),
            credentials=tuple(request.credentials),
            keys=tuple(request.keys),
        )

    def _medias(self, operation: Mapping[str, Any]) -> list[str]:
        """Return the content types of successful answers, each once."""
        medias = _texts(operation.get("produces")) or _texts(self.root.get("produces"))
        for code, given in mapping_of(operation.get("responses")).items():
            if str(code).startswith("2"):
                medias += map(str, mapping_of(self.document.followed_or_empty(given).get("content")))
        return list(dict.fromkeys(medias))

    def _accept(self, operation: Mapping[str, Any]) -> str:
        """Return the header that requests the documented answers, JSON first."""
        jsons: list[str] = []
        others: list[str] = []
        for media in self._medias(operation):
            # A document is not trusted: a line break in a content type would begin another header.
            if not (media.isascii() and media.isprintable()):
                continue
            if is_json(media):
                jsons.append(media)
            else:
                others.append(media)
        if "*/*" in jsons or not (jsons or others):
            return ""
        # Documents forget content types, and a strict server would answer 406 in such a case.
        return ", ".join((*jsons, *others, "*/*;q=0.1"))

    def _answer(self, operation: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the schema of the first successful answer, or None.

        ``x-links`` are its links, [tool, parameter, path]; ``x-stream`` is true if all successful answers are streams.
        """
        answer = self._first_answer(operation)
        if self._streams(operation):
            return {**(answer or {}), "x-stream": True}
        return answer

    def _streams(self, operation: Mapping[str, Any]) -> bool:
        """Return True if an answer does not end, in all content types of the document."""
        medias = self._medias(operation)
        return bool(medias) and all(is_stream(media) for media in medias)

    def _first_answer(self, operation: Mapping[str, Any]) -> dict[str, Any] | None:
        by_code: dict[str, Any] = {}
        for code, response in mapping_of(operation.get("responses")).items():
            by_code[str(code)] = response
        codes = [code for code in sorted(by_code) if code.startswith("2")]
        # Many documents describe their only answer under `default`.
        for code in (*codes, "default"):
            response = self.document.followed_or_empty(by_code.get(code))
            schema = _schema_of(response)
            links = list(self._links(response))
            if links:
                return {**self._compact(schema), "x-links": links}
            if schema:
                return self._compact(schema)
        return None

    def _compact(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        reference = schema.get("$ref")
        if len(schema) != 1 or not isinstance(reference, str):
            return compact(schema, self.root)
        # Kubernetes answers 1,123 operations with 240 schemas, and each takes milliseconds.
        if reference not in self.compacted:
            self.compacted[reference] = compact(schema, self.root)
        return self.compacted[reference]

    def _links(self, response: Mapping[str, Any]) -> Iterator[list[str]]:
        """Yield [tool, parameter, path] for each parameter that a part of an answer fills."""
        for given in mapping_of(response.get("links")).values():
            link = self.document.followed_or_empty(given)
            tool = self._linked_tool(link)
            if tool is None:
                continue
            for parameter, expression in mapping_of(link.get("parameters")).items():
                place = str(expression).removeprefix("$response.body#/")
                # Other expressions, such as `$request.path.id`, are not part of the answer.
                if place == expression:
                    continue
                label = re.sub(r"^(?:path|query|header|cookie)\.", "", str(parameter))
                path = place.replace("/", ".")
                yield [tool, legal_name(label), re.sub(r"(?:^|\.)\d+(?=\.|$)", "[]", path)]

    def _linked_tool(self, link: Mapping[str, Any]) -> str | None:
        """Return the tool that a link names by its operationId, or by a pointer to its path and method."""
        tool = self.by_id.get(str(link.get("operationId")))
        if tool is not None:
            return tool
        path, slash, method = str(link.get("operationRef", "")).removeprefix("#/paths/").rpartition("/")
        if not slash:
            return None
        return self.named.get((method, path.replace("~1", "/").replace("~0", "~")))

    def _note_mention(self, tool: str, name: str, schema: Mapping[str, Any]) -> None:
        """Record the operation that the description of an id names: "as returned by `GET /orders`"."""
        # Other parameters name operations for other reasons ("see also").
        if LEXICON.identifiers.isdisjoint(canonical(name)):
            return
        for said in _NAMED.findall(str(schema.get("description", ""))):
            giver = self.by_words.get(canonical(said))
            if giver not in (None, tool):
                self.mentioned.setdefault(str(giver), []).append([tool, name, ""])


def _schema_of(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an answer: Swagger 2.0's own, or the schema of the content type that a model reads best."""
    schema = mapping_of(response.get("schema"))
    contents: dict[str, Any] = {}
    for media, content in mapping_of(response.get("content")).items():
        contents[str(media)] = content
    if schema or not contents:
        return schema
    return mapping_of(mapping_of(contents[min(contents, key=rank_of)]).get("schema"))


def _description(operation: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    """Return summary and description of an operation, each once; first its identifier, if its name cannot have it."""
    texts: dict[str, None] = {}
    identifier = operation.get("operationId")
    if isinstance(identifier, str) and _has_other_letters(_without_accents(identifier)):
        texts[f"{identifier.strip()}."] = None
    for key in ("summary", "description"):
        text = operation.get(key) or item.get(key)
        if isinstance(text, str) and text.strip():
            texts[" ".join(text.split())] = None
    return " ".join(texts)


def _with_names(path: str, places: Mapping[str, Place]) -> str:
    """Return a path with the names of the tool's parameters in its slots."""
    in_path: dict[str, str] = {}
    for name, place in places.items():
        if place.kind == "path":
            in_path[place.label] = name

    def named(slot: re.Match[str]) -> str:
        return f"{{{in_path.get(slot[1], slot[1])}}}"

    return PATH_SLOT.sub(named, path)


def _server(root: Mapping[str, Any], operation: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    # An operation's own servers replace those of its path, which replace the document's.
    servers = list_of(operation.get("servers")) or list_of(item.get("servers")) or list_of(root.get("servers"))
    if servers:
        server = mapping_of(servers[0])
        variables = mapping_of(server.get("variables"))

        def default(slot: re.Match[str]) -> str:
            return str(mapping_of(variables.get(slot[1])).get("default", ""))

        return PATH_SLOT.sub(default, str(server.get("url", "")))
    host, base = root.get("host"), str(root.get("basePath", ""))
    if not isinstance(host, str):
        return base
    schemes = _texts(root.get("schemes"))
    # Credentials are sent there, so HTTPS if the document has it.
    if "https" in schemes or not schemes:
        return f"https://{host}{base}"
    return f"{schemes[0]}://{host}{base}"


def _texts(value: Any) -> list[str]:
    return [text for text in list_of(value) if isinstance(text, str)]


def _with_links(spec: ToolSpec, links: Sequence[list[str]]) -> ToolSpec:
    if not links:
        return spec
    returns = spec.returns or {}
    return replace(spec, returns={**returns, "x-links": [*returns.get("x-links", ()), *links]})


def _relinked(returns: dict[str, Any] | None, renamed: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the schema of an answer whose links lead to the tools by their new names."""
    if returns is None or not renamed:
        return returns
    links = returns.get("x-links")
    if not links:
        return returns
    return {**returns, "x-links": [[renamed.get(tool, tool), *rest] for tool, *rest in links]}


# Swagger 2.0 writes these next to the name of a parameter in place of a schema; all are JSON Schema's words.
_SCHEMA_WORDS: Final = (
    "type", "format", "items", "enum", "default", "pattern", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems",
)  # fmt: skip


def template_of(path: str) -> str:
    """Return a path with all its slots in braces.

    >>> template_of("/groups/:id/users/{name}:lock")
    '/groups/{id}/users/{name}:lock'
    """
    # Documents that are made of a router's code (Portainer, Adafruit) keep its colons, and a server knows no ":id".
    return re.sub(r"(?<=/):([A-Za-z_]\w*)(?=/|$)", r"{\1}", path)


class MediaRank(IntEnum):
    """The order in which content types are taken: a model can write the first ones best."""

    JSON = 0
    JSON_DIALECT = 1
    JSON_PATCH = 2
    FORM = 3
    MULTIPART = 4
    PLAIN_TEXT = 5
    BYTES = 6
    UNKNOWN = 9


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request.

    Attributes:
        media: content types that it may have, the first one by default; more than one only among JSON's.
        upload: content type that it has if one of its fields is a file.
        required: it is sent even if it is empty.
    """

    media: tuple[str, ...]
    upload: str = ""
    required: bool = False


@dataclass(slots=True)
class Input:
    """A parameter before it has its name."""

    place: Place
    schema: dict[str, Any]
    needed: bool


@dataclass(slots=True)
class RequestInputs:
    """The inputs of an operation as they are collected."""

    inputs: list[Input] = field(default_factory=list)
    credentials: list[Labelled] = field(default_factory=list)
    keys: list[Labelled] = field(default_factory=list)
    body: Body | None = None


class Inputs:
    """Reads the inputs of the operations of one document."""

    def __init__(self, document: Document, schemas: Schemas) -> None:
        self.document = document
        self.root = document.root
        self.schemas = schemas
        components = mapping_of(self.root.get("components"))
        schemes = mapping_of(components.get("securitySchemes")) or mapping_of(self.root.get("securityDefinitions"))
        self.keys: dict[str, Labelled] = {}  # security scheme -> its key
        for name, given in schemes.items():
            scheme = document.followed_or_empty(given)
            if scheme.get("name"):
                self.keys[name] = Labelled(str(scheme.get("in")), str(scheme.get("name")))

    def read(self, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]) -> RequestInputs:
        """Return the inputs of an operation; raise RefusalError if one of them cannot be expressed."""
        request = RequestInputs()
        # An operation's own list takes the place of the document's, also where it is empty.
        for requirement in list_of(operation.get("security", self.root.get("security"))):
            for scheme in mapping_of(requirement):
                if scheme in self.keys:
                    request.keys.append(self.keys[scheme])
        for parameter in self._parameters(path, item, operation):
            self._put_parameter(request, parameter, operation)
        if operation.get("requestBody") is not None:
            self._put_content(request, self.document.followed(operation["requestBody"]))
        return request

    def _parameters(self, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the parameters of an operation; its own take the place of those of its path.

        An undeclared slot of the path is a text; a declared one that the path does not have goes nowhere.
        """
        merged: dict[tuple[str, str], Mapping[str, Any]] = {}
        for given in (*list_of(item.get("parameters")), *list_of(operation.get("parameters"))):
            parameter = self.document.followed(given)
            # A document may have a list or a mapping there, which `_put_parameter` refuses.
            merged[str(parameter.get("name")), str(parameter.get("in"))] = parameter
        slots = dict.fromkeys(PATH_SLOT.findall(path))
        for slot in slots:
            if (slot, "path") not in merged:
                merged[slot, "path"] = _declared_otherwise(slot, slots, merged)
        parameters = []
        for (name, place), parameter in merged.items():
            if place != "path" or name in slots:
                parameters.append(parameter)
        return parameters

    def _put_parameter(
        self, request: RequestInputs, parameter: Mapping[str, Any], operation: Mapping[str, Any]
    ) -> None:
        label, place = parameter.get("name"), parameter.get("in")
        # Swagger 2.0 has the body among the parameters.
        if place == "body":
            schema = {"schema": mapping_of(parameter.get("schema"))}
            content = dict.fromkeys(self._consumed(operation), schema)
            self._put_content(request, {**parameter, "content": content})
            return
        if not isinstance(label, str) or place not in ("path", "query", "header", "cookie", "formData"):
            raise RefusalError(f"a parameter has the name {label!r} and the place {place!r}")
        # By OpenAPI these headers are not parameters.
        if place == "header" and label.lower() in ("authorization", "accept", "content-type"):
            return
        key = Labelled(str(place), label)
        if key in self.keys.values() or _is_credential(parameter):
            request.credentials.append(key)
            return
        self._put_plain(request, parameter, operation, label, str(place))

    def _put_plain(
        self, request: RequestInputs, parameter: Mapping[str, Any], operation: Mapping[str, Any], label: str, place: str
    ) -> None:
        schema = self._parameter_schema(parameter)
        is_file = place == "formData" and self.schemas.is_file(schema)
        if place == "formData":
            request.body = self._swagger_form(operation, request.body, is_file=is_file)
        if is_file:
            schema = _file_schema(schema)
        # A path without one of its values is another path.
        needed = place == "path" or parameter.get("required") is True
        request.inputs.append(Input(replace(self._place(parameter, label, place), file=is_file), schema, needed))

    def _place(self, parameter: Mapping[str, Any], label: str, where: str) -> Place:
        kind = where
        if where == "formData":
            kind = "form"
        # OpenAPI 3 has one content type there at most.
        for media in mapping_of(parameter.get("content")):
            return _place_of_media(label, kind, str(media))
        default_style = "form"
        if kind in ("path", "header"):
            default_style = "simple"
        if "swagger" in self.root:
            collection = parameter.get("collectionFormat")
            styles = {"ssv": "spaceDelimited", "tsv": "tabDelimited", "pipes": "pipeDelimited"}
            return Place(label, kind, styles.get(str(collection), default_style), explode=collection == "multi")
        style = parameter.get("style") or default_style
        if not isinstance(style, str) or style not in STYLES[kind]:
            raise RefusalError(f"the parameter {label} has the style {style!r}, which a {kind} parameter cannot have")
        return Place(label, kind, style, _explodes(parameter, style), reserved=parameter.get("allowReserved") is True)

    def _parameter_schema(self, parameter: Mapping[str, Any]) -> dict[str, Any]:
        # OpenAPI 3 has either a schema or one content type with a schema of its own.
        schema = dict(mapping_of(parameter.get("schema")))
        for value in mapping_of(parameter.get("content")).values():
            schema = schema or dict(mapping_of(mapping_of(value).get("schema")))
        # Swagger 2.0 writes the schema's keys next to the name.
        if not schema:
            for key in _SCHEMA_WORDS:
                if key in parameter:
                    schema[key] = parameter[key]
        description = parameter.get("description")
        if isinstance(description, str) and "description" not in schema:
            schema["description"] = description
        return schema

    def _consumed(self, operation: Mapping[str, Any]) -> list[str]:
        said = list_of(operation.get("consumes")) or list_of(self.root.get("consumes")) or ["application/json"]
        return [media for media in said if isinstance(media, str)]

    def _swagger_form(self, operation: Mapping[str, Any], body: Body | None, *, is_file: bool) -> Body:
        # One file field makes a multipart body of the whole form, in any order of the fields.
        if is_file or (body is not None and body.upload):
            return Body(("multipart/form-data",), "multipart/form-data")
        for media in self._consumed(operation):
            if "form" in media:
                return Body((media,))
        return Body(("application/x-www-form-urlencoded",))

    def _put_content(self, request: RequestInputs, body: Mapping[str, Any]) -> None:
        """Add the parameters of a body: its fields if it is JSON or a form, otherwise the body as one parameter."""
        contents: dict[str, dict[str, Any]] = {}
        for name, value in mapping_of(body.get("content")).items():
            contents[str(name)] = mapping_of(value)
        if not contents:
            return
        media = self._media_of(contents)
        rank = rank_of(media)
        if rank == MediaRank.UNKNOWN:
            raise RefusalError(f"the body is {media}; JSON, forms, text and files are possible")
        if is_json(media):
            self._put_json(request, body, contents, media)
            return
        # By OpenAPI a body is optional by default, and many documents forget to mark it as required.
        needed = body.get("required") is not False
        request.body = Body((media,))
        if rank == MediaRank.MULTIPART:
            request.body = Body((media,), upload=media)
        if rank in (MediaRank.FORM, MediaRank.MULTIPART):
            request.inputs += self._form_inputs(contents[media], needed=needed)
        else:
            schema = mapping_of(contents[media].get("schema"))
            request.inputs.append(self._text_input(media, schema, body, needed=needed))

    def _media_of(self, contents: Mapping[str, Mapping[str, Any]]) -> str:
        """Return the content type that a model can write best, of those of a body."""
        media = min(contents, key=rank_of)
        multipart = _multipart_of(contents)
        # A form sends files only as multipart.
        if rank_of(media) == MediaRank.FORM and multipart and self._files(contents[multipart], set()):
            return multipart
        return media

    def _put_json(
        self,
        request: RequestInputs,
        body: Mapping[str, Any],
        contents: Mapping[str, Mapping[str, Any]],
        media: str,
    ) -> None:
        """Add a body that is JSON in one of its content types, with the files of its form."""
        schema = mapping_of(contents[media].get("schema"))
        # Content types with one schema: the value decides which of them is sent.
        dialects: list[str] = []
        for name in sorted(contents, key=rank_of):
            if is_json(name) and contents[name].get("schema") == schema:
                dialects.append(name)
        request.body = Body(tuple(dialects) or (media,), required=body.get("required") is True)
        inputs = self._json_inputs(schema, body, needed=body.get("required") is not False)
        request.inputs += inputs
        multipart = _multipart_of(contents)
        # A body that is one parameter has no fields to which the form could add files.
        is_whole = any(given.place.kind == "whole" for given in inputs)
        if multipart and not is_whole:
            uploads = self._files(contents[multipart], {given.place.label for given in inputs})
            if uploads:
                request.body = replace(request.body, upload=multipart)
            request.inputs += uploads

    def _json_inputs(self, schema: Mapping[str, Any], body: Mapping[str, Any], *, needed: bool) -> list[Input]:
        fields = self.schemas.fields(schema)
        if fields.whole:
            described = {**schema, "description": schema.get("description") or body.get("description") or "The body."}
            place = Place("body", "whole", nullable=bool(schema) and self.schemas.takes_null(schema))
            return [Input(place, described, needed)]
        inputs: list[Input] = []
        for label, given in fields.properties.items():
            # A field of answers only, such as the id that the server assigns.
            if self.document.followed_or_empty(given).get("readOnly") is True:
                continue
            place = Place(label, "body", nullable=self.schemas.takes_null(given))
            inputs.append(Input(place, dict(mapping_of(given)), needed and label in fields.required))
        return inputs

    def _form_inputs(self, content: Mapping[str, Any], *, needed: bool) -> list[Input]:
        fields = self.schemas.form_fields(mapping_of(content.get("schema")))
        # A model could only guess the names of the fields.
        if not fields.properties and self.schemas.is_open(mapping_of(content.get("schema"))):
            raise RefusalError("the body is a form whose fields the document does not name")
        inputs: list[Input] = []
        for label, given in fields.properties.items():
            schema = self.document.followed_or_empty(given)
            if schema.get("readOnly") is True:
                continue
            encoding = mapping_of(mapping_of(content.get("encoding")).get(label))
            place = self._form_place(label, schema, encoding)
            shown = dict(mapping_of(given))
            if place.file:
                shown = _file_schema(schema)
            inputs.append(Input(place, shown, needed and label in fields.required))
        return inputs

    def _form_place(self, label: str, schema: Mapping[str, Any], encoding: Mapping[str, Any]) -> Place:
        items = mapping_of(schema.get("items"))
        media = str(encoding.get("contentType") or "").partition(",")[0].strip()
        # A content type that JSON cannot carry is a file, even where the schema says nothing.
        is_file = self.schemas.is_file(schema) or self.schemas.is_file(items) or bool(media and not is_text(media))
        # With one of these keys, OpenAPI writes the field as a query has it and ignores its content type.
        if not {"style", "explode", "allowReserved"} & encoding.keys():
            return Place(label, "form", media=_without_range(media), file=is_file)
        style = str(encoding.get("style") or "form")
        if style not in STYLES["form"]:
            raise RefusalError(f"the field {label} has the style {style!r}, which a form cannot have")
        reserved = encoding.get("allowReserved") is True
        return Place(label, "form", style, _explodes(encoding, style), reserved, file=is_file)

    def _files(self, content: Mapping[str, Any], known: set[str]) -> list[Input]:
        """Return the files of a body that are in its form and not in its JSON."""
        files: list[Input] = []
        for given in self._form_inputs(content, needed=False):
            if given.place.file and given.place.label not in known:
                files.append(given)
        return files

    def _text_input(self, media: str, schema: Mapping[str, Any], body: Mapping[str, Any], *, needed: bool) -> Input:
        said = str(body.get("description") or schema.get("description") or "The body.")
        if is_text(media) and not self.schemas.is_file(schema):
            return Input(Place("body", "whole"), {"type": "string", "description": f"{said} ({media})"}, needed)
        place = Place("body", "whole", media=_without_range(media), file=True)
        return Input(place, _file_schema({"description": said}), needed)


def _place_of_media(label: str, kind: str, media: str) -> Place:
    """Return the place of a parameter that is written in a content type."""
    if is_json(media):
        return Place(label, kind, media="application/json")
    if media.startswith("text/"):
        return Place(label, kind)
    raise RefusalError(f"the parameter {label} is written as {media}; JSON and plain text are possible")


def _declared_otherwise(
    slot: str, slots: Collection[str], declared: Mapping[tuple[str, str], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the parameter of a slot without one of its name: one that differs in capitals alone, or a text."""
    for (name, place), parameter in declared.items():
        # Portainer declares `stackID` for `{stackId}`.
        if place == "path" and name not in slots and name.lower() == slot.lower():
            return {**parameter, "name": slot}
    return {"name": slot, "in": "path", "schema": {"type": "string"}}


def rank_of(media: str) -> MediaRank:
    """Return the rank of a content type."""
    kind = media.partition(";")[0].strip().lower()
    if kind == "application/json":
        return MediaRank.JSON
    # A list of steps; for an object, a merging dialect is meant.
    if kind == "application/json-patch+json":
        return MediaRank.JSON_PATCH
    if is_json(kind):
        return MediaRank.JSON_DIALECT
    if kind == "application/x-www-form-urlencoded":
        return MediaRank.FORM
    if kind == "multipart/form-data":
        return MediaRank.MULTIPART
    # Schemas do not describe the parts of `multipart/mixed` and the like.
    if kind.startswith("multipart/"):
        return MediaRank.UNKNOWN
    if is_text(kind):
        return MediaRank.PLAIN_TEXT
    return MediaRank.BYTES


def _multipart_of(contents: Iterable[str]) -> str:
    """Return the first content type that is a multipart form; "" without one."""
    for media in contents:
        if rank_of(media) == MediaRank.MULTIPART:
            return media
    return ""


def _explodes(given: Mapping[str, Any], style: str) -> bool:
    explode = given.get("explode")
    if isinstance(explode, bool):
        return explode
    return style == "form"  # OpenAPI's default


def _without_range(media: str) -> str:
    """Return a content type, "" for a range such as ``image/*``, which is invalid in a request."""
    if "*" in media:
        return ""
    return media


def _is_credential(parameter: Mapping[str, Any]) -> bool:
    """Return True if a parameter is named like a credential, and is in a header or described as one."""
    if parameter.get("in") not in ("header", "query", "formData", "cookie"):
        return False
    words = set(canonical(str(parameter.get("name"))))
    if not words <= {"token", "accesstoken", "apikey", "authorization", "secret", "password"}:
        return False
    if parameter.get("in") == "header":
        return True
    # A `token` of a query is mostly a page token: only the description can identify a credential.
    description = parameter.get("description")
    authenticates = re.compile(r"(?i)\bauth(?:enticat|oriz|oris|\b)|\b(?:api|access) ?(?:key|token)s?\b")
    return isinstance(description, str) and authenticates.search(description) is not None


def _file_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a file, or of a list of files, as a model fills it."""
    said = str(schema.get("description") or "").strip()
    file = {"type": ["string", "object"], "format": "binary", "description": f"{said} {FILE_TEXT}".strip()}
    if schema.get("type") == "array":
        return {"type": "array", "items": file}
    return file


# --- names ---

MAX_NAME: Final = 64
"""Length of a name that every provider accepts."""


class Labelled(NamedTuple):
    """A parameter by its place, such as "query", and its name in the document."""

    place: str
    label: str


def legal_name(text: str) -> str:
    """Return a name that every provider accepts.

    A long name, and a name in a script that providers do not accept, ends in a digest of the whole.
    """
    without_accents = _without_accents(text)
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", without_accents.strip()).strip("_")
    # Names in Greek or Japanese would all be "_", and a number in place of the digest would depend on their order.
    if _has_other_letters(without_accents):
        return _short(f"{safe or 'name'}_{_digest(text)}")
    return _short(safe or "_")


def _without_accents(text: str) -> str:
    """Return a text without accents and in plain letters: "dias" for "días", "ID" for "ＩＤ"."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(sign for sign in decomposed if not unicodedata.combining(sign))


def _has_other_letters(text: str) -> bool:
    """Return True if a text has letters or digits that names cannot contain."""
    return any(sign.isalnum() and not sign.isascii() for sign in text)


def _with_label(schema: dict[str, Any], label: str) -> dict[str, Any]:
    """Return a parameter's schema that tells the model the label, if the name cannot: it is in another script."""
    if not _has_other_letters(_without_accents(label)):
        return schema
    return {**schema, "description": f"{label}: {schema.get('description') or ''}".rstrip(": ")}


def _short(name: str) -> str:
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 9]}_{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def free_name(name: str, taken: set[str]) -> str:
    """Return an unused name, and mark it as used."""
    unique, number = name, 2
    # Cut first: four digits and a line would make the longest names too long.
    while unique in taken:
        unique, number = f"{name[: MAX_NAME - 5]}_{number}", number + 1
    taken.add(unique)
    return unique


def names_of(labels: Sequence[Labelled]) -> list[str]:
    """Return the name of each parameter. A name depends on the labels that clash, never on their order.

    Labels of one place that differ only in signs (``StartTime``, ``StartTime<``) get the signs' names
    (``StartTime_lt``). If a name is used in several places, the parameter in the path keeps it, and the others get
    their place as a prefix (``query.id``, ``body.id``).
    """
    # LangChain reserves these among the arguments of a tool.
    reserved = ("config", "run_manager", "self", "runtime")
    spelled = _spelled(labels)
    everywhere = Counter(spelled)
    names: list[str] = []
    for (place, label), name in zip(labels, spelled, strict=True):
        if everywhere[name] > 1 and place != "path":
            name = _short(f"{place}.{name}")
        # Labels may differ in letters that names cannot contain.
        if name in names:
            name = f"{name[: MAX_NAME - 9]}_{_digest(f'{place} {label}')}"
        if name in reserved:
            name = f"{name}_"
        names.append(name)
    return names


def _spelled(labels: Sequence[Labelled]) -> list[str]:
    """Return a name for each label, with its signs if labels of one place differ only in these."""
    in_place = Counter([(place, legal_name(label)) for place, label in labels])
    spelled: list[str] = []
    for place, label in labels:
        name = legal_name(label)
        if in_place[place, name] > 1 and name != label:
            name = _short(f"{name}_{_signs(label)}")
        spelled.append(name)
    return spelled


def _signs(label: str) -> str:
    signs = {"<": "lt", ">": "gt", "=": "eq", "!": "not", "[]": "list", "*": "any", "@": "at"}
    words = [word for sign, word in signs.items() if sign in label]
    return "_".join(words) or _digest(label)
