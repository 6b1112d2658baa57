"""Operations of a document: a tool each, with the places of its parameters in a request.

An operation is read completely or left out. If it cannot be expressed (a broken reference of a parameter, an unknown
style, an unsupported body), one warning names it and the reason.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.openapi.documents import Document, RefusalError, Source, list_of, load, mapping_of
from langgraph_toolmem.navigator.openapi.inputs import Body, Inputs, rank_of, template_of
from langgraph_toolmem.navigator.openapi.names import Labelled, free_name, legal_name, names_of
from langgraph_toolmem.navigator.openapi.schemas import Schemas, is_json, is_stream
from langgraph_toolmem.navigator.openapi.serialize import Place
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


def read_openapi(*documents: Source) -> list[ToolSpec]:
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


def read_operations(*documents: Source) -> list[Operation]:
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
        self.mentioned: dict[str, list[list[str]]] = {}  # tool -> links, by what is said of parameters

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
                if isinstance(item.get(method), Mapping) and operation.get("deprecated") is not True:
                    self._name(method, path, operation, taken)
                    given[method, path] = operation
        return given

    def _name(self, method: str, path: str, operation: Mapping[str, Any], taken: set[str]) -> None:
        identifier = operation.get("operationId")
        if isinstance(identifier, str) and identifier.strip():
            name = free_name(legal_name(identifier), taken)
            self.by_id[identifier] = name
            # Descriptions name operations in different ways: "as returned by list-orders", "GET /orders".
            self.by_words[canonical(identifier)] = name
        else:
            name = free_name(legal_name(f"{method}{path}"), taken)
        self.named[method, path] = name
        self.by_words.setdefault(canonical(path), name)

    def _report(self, refusals: Sequence[str], read: int) -> None:
        if not refusals:
            return
        title = self._title() or "without a title"
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
            properties[name], places[name] = given.schema, given.place
            if given.needed:
                required.append(name)
        spec = ToolSpec(
            name=self.named[method, key],
            description=_description(operation, item) or f"{method.upper()} {path}",
            parameters=self.schemas.alone({"type": "object", "properties": properties, "required": required}),
            returns=self._answer(operation),
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
    """Return summary and description of an operation, each once."""
    texts: dict[str, None] = {}
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
