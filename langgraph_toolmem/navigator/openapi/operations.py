"""Operations of a document: a tool each, with the places of its parameters in a request.

An operation is read whole or not at all. One that cannot be expressed (a parameter whose reference leads nowhere, a
style that does not exist, a body that no client here writes) is left out, and one warning names it and the reason.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.openapi.documents import (
    Document,
    RefusalError,
    Source,
    list_of,
    load,
    mapping_of,
)
from langgraph_toolmem.navigator.openapi.schemas import Schemas, is_json, is_text
from langgraph_toolmem.navigator.openapi.serialize import FILE_TEXT, STYLES, Place
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import IDENTIFIERS, canonical
from langgraph_toolmem.text.schema import compact

logger = logging.getLogger(__name__)

METHODS: Final = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
MAX_NAME: Final = 64
"""Characters of a name that every provider takes."""
MAX_SHOWN: Final = 20
"""Operations that the warning about those left out names."""
_READS: Final = frozenset({"get", "head", "options", "trace"})
_SEPARATE: Final = frozenset({"authorization", "accept", "content-type"})
"""Headers that OpenAPI says are no parameters."""
_SWAGGER_KEYS: Final = ("type", "format", "items", "enum", "default", "minimum", "maximum", "pattern")
_COLLECTION_FORMATS: Final[Mapping[str, str]] = {
    "ssv": "spaceDelimited",
    "tsv": "tabDelimited",
    "pipes": "pipeDelimited",
}
_SIMPLE_PLACES: Final = frozenset({"path", "header"})
_PLACES: Final = frozenset({"path", "query", "header", "cookie", "formData"})
_RESERVED: Final = frozenset({"config", "run_manager", "self", "runtime"})
"""Names that LangChain keeps for itself among the arguments of a tool."""
_CREDENTIALS: Final = frozenset({"token", "accesstoken", "apikey", "authorization", "secret", "password"})
_AUTHENTICATES: Final = re.compile(r"(?i)\bauth(?:enticat|oriz|oris|\b)|\b(?:api|access) ?(?:key|token)s?\b")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_SIGNS: Final[Mapping[str, str]] = {"<": "lt", ">": "gt", "=": "eq", "!": "not", "[]": "list", "*": "any", "@": "at"}
SLOT: Final = re.compile(r"\{([^{}]+)\}")
_NAMED: Final = re.compile(r"/?\w[\w-]*(?:[./_][\w{}-]+)+")
"""A path or an operationId of several words in a text."""

_Operations: TypeAlias = dict[tuple[str, str], Mapping[str, Any]]


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


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a document: the tool, and how a call becomes a request.

    Attributes:
        spec: the tool.
        method: HTTP method, in upper case.
        path: template, as in the document.
        places: parameter of the tool -> where it goes.
        server: address in front of the path, "" if the document names none.
        body: the body, None if there is none.
        accept: value of the header of that name, "" for the client's own.
        credentials: (place, name) of values that authentication fills.
    """

    spec: ToolSpec
    method: str
    path: str
    places: Mapping[str, Place]
    server: str
    body: Body | None = None
    accept: str = ""
    credentials: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Input:
    """A parameter before it has its name."""

    place: Place
    schema: dict[str, Any]
    needed: bool


@dataclass(slots=True)
class _Request:
    """The inputs of an operation as they are collected."""

    inputs: list[_Input] = field(default_factory=list)
    credentials: list[tuple[str, str]] = field(default_factory=list)
    body: Body | None = None


def read_openapi(*documents: Source) -> list[ToolSpec]:
    """Return the operations of documents, in their order.

    A name is the ``operationId``, else method and path, in letters, digits, ``_`` and ``-``, at most `MAX_NAME` of
    them; a name that occurs again gets a number, and one that two documents have gets their titles in front.
    Deprecated operations are left out. So are those that cannot be expressed; a warning names each and the reason.

    Args:
        documents: parsed documents, or paths of JSON or YAML files. Other files that a document refers to are read too.

    Raises:
        ConfigurationError: a file cannot be read, something is no OpenAPI document, or none of its operations can be
            expressed.
    """
    return [operation.spec for operation in read_operations(*documents)]


def read_operations(*documents: Source) -> list[Operation]:
    """Return what `read_openapi` does, with what a request needs."""
    read = [_Reader(load(document)).operations() for document in documents]
    count = Counter(name for operations in read for name in {operation.spec.name for operation in operations})
    whole: list[Operation] = []
    for operations in read:
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


class _Reader:
    """Reads the operations of one document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.root = document.root
        self.schemas = Schemas(document)
        components = mapping_of(self.root.get("components"))
        schemes = mapping_of(components.get("securitySchemes")) or mapping_of(self.root.get("securityDefinitions"))
        self.keys: dict[str, tuple[str, str]] = {}  # security scheme -> (place, name) of its key
        for scheme_name, given in schemes.items():
            scheme = document.followed_or_empty(given)
            if scheme.get("name"):
                self.keys[scheme_name] = (str(scheme.get("in")), str(scheme.get("name")))
        self.named: dict[tuple[str, str], str] = {}  # (method, path) -> tool
        self.by_id: dict[str, str] = {}  # operationId -> tool
        self.by_words: dict[tuple[str, ...], str] = {}  # words of an operationId or a path -> tool
        self.mentioned: dict[str, list[list[str]]] = {}  # tool -> links, by what is said of parameters

    def operations(self) -> list[Operation]:
        """Return the operations that can be expressed; log the others.

        Raises:
            ConfigurationError: there are operations, and none can be expressed.
        """
        refusals: list[str] = []
        items: dict[str, Mapping[str, Any]] = {}
        for path, given in self.root["paths"].items():
            try:
                items[path] = self.document.followed(given)
            except RefusalError as error:
                refusals.append(f"{path}: {error}")
        given_operations = self._named(items, refusals)
        read: list[Operation] = []
        for (method, path), operation in given_operations.items():
            try:
                read.append(self._operation(method, path, items[path], operation))
            except RefusalError as error:
                refusals.append(f"{method.upper()} {path} ({self.named[method, path]}): {error}")
        self._report(refusals, len(read))
        for each in read:
            for name, schema in each.spec.properties.items():
                self._note_mention(each.spec.name, name, schema)
        return [replace(each, spec=_with_links(each.spec, self.mentioned.get(each.spec.name, []))) for each in read]

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
                if not isinstance(item.get(method), Mapping) or operation.get("deprecated") is True:
                    continue
                said = operation.get("operationId")
                is_named = isinstance(said, str) and said.strip()
                name = _free(legal_name(str(said) if is_named else f"{method}{path}"), taken)
                self.named[method, path] = self.by_id[str(said)] = name
                self.by_words[canonical(str(said))] = name
                self.by_words.setdefault(canonical(path), name)
                given[method, path] = operation
        return given

    def _report(self, refusals: Sequence[str], read: int) -> None:
        if not refusals:
            return
        title = self._title() or "without a title"
        shown = "\n".join(f"  {refusal}" for refusal in refusals[:MAX_SHOWN])
        further = f"\n  and {len(refusals) - MAX_SHOWN} more" if len(refusals) > MAX_SHOWN else ""
        if not read:
            raise ConfigurationError(f"No operation of the document {title} can be expressed:\n{shown}{further}")
        logger.warning(
            "%d operations of the document %s are left out, %d are read:\n%s%s",
            len(refusals), title, read, shown, further,
        )  # fmt: skip

    def _title(self) -> str:
        title = mapping_of(self.root.get("info")).get("title")
        return title.strip() if isinstance(title, str) else ""

    def _operation(self, method: str, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]) -> Operation:
        request = _Request()
        for requirement in list_of(operation.get("security", self.root.get("security"))):
            for scheme in mapping_of(requirement):
                request.credentials += [self.keys[scheme]] if scheme in self.keys else []
        for parameter in self._parameters(path, item, operation):
            self._put_parameter(request, parameter, operation)
        if operation.get("requestBody") is not None:
            self._put_content(request, self.document.followed(operation["requestBody"]))
        names = _names_of(request.inputs)
        properties = {name: _input.schema for name, _input in zip(names, request.inputs, strict=True)}
        required = [name for name, _input in zip(names, request.inputs, strict=True) if _input.needed]
        places = {name: _input.place for name, _input in zip(names, request.inputs, strict=True)}
        in_path = {place.label: name for name, place in places.items() if place.kind == "path"}
        texts: list[str] = []
        for key in ("summary", "description"):
            text = operation.get(key) or item.get(key)
            if isinstance(text, str) and text.strip():
                texts.append(" ".join(text.split()))
        spec = ToolSpec(
            name=self.named[method, path],
            description=" ".join(dict.fromkeys(texts)) or f"{method.upper()} {path}",
            parameters=self.schemas.alone({"type": "object", "properties": properties, "required": required}),
            returns=self._answer(operation),
            read_only=method in _READS,
            destructive=method == "delete",
            idempotent=method in _READS or method in ("put", "delete"),
            tags=tuple(tag for tag in list_of(operation.get("tags")) if isinstance(tag, str)),
            toolkit=self._title(),
            route=f"{method.upper()} " + SLOT.sub(lambda slot: f"{{{in_path.get(slot[1], slot[1])}}}", path),
        )
        server = _server(self.root, operation, item)
        accept = self._accept(operation)
        return Operation(
            spec, method.upper(), path, places, server, request.body, accept, tuple(dict.fromkeys(request.credentials))
        )

    # --- parameters ---

    def _parameters(self, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the parameters of an operation; its own take the place of those of its path.

        A slot of the path that nobody declared is a text; a declared one that the path does not have goes nowhere.
        """
        merged: dict[tuple[Any, Any], Mapping[str, Any]] = {}
        for given in (*list_of(item.get("parameters")), *list_of(operation.get("parameters"))):
            parameter = self.document.followed(given)
            merged[parameter.get("name"), parameter.get("in")] = parameter
        slots = dict.fromkeys(SLOT.findall(path))
        for slot in slots:
            merged.setdefault((slot, "path"), {"name": slot, "in": "path", "schema": {"type": "string"}})
        return [each for (name, place), each in merged.items() if place != "path" or name in slots]

    def _put_parameter(self, request: _Request, parameter: Mapping[str, Any], operation: Mapping[str, Any]) -> None:
        label, place = parameter.get("name"), parameter.get("in")
        if place == "body":  # Swagger 2.0
            schema = {"schema": mapping_of(parameter.get("schema"))}
            content = dict.fromkeys(self._consumed(operation), schema)
            self._put_content(request, {**parameter, "content": content})
            return
        if not isinstance(label, str) or place not in _PLACES:
            raise RefusalError(f"a parameter has the name {label!r} and the place {place!r}")
        if place == "header" and label.lower() in _SEPARATE:
            return
        if (str(place), label) in self.keys.values() or _is_credential(parameter):
            request.credentials.append((str(place), label))
            return
        schema = self._parameter_schema(parameter)
        is_file = place == "formData" and self.schemas.is_file(schema)
        if place == "formData":
            request.body = self._swagger_form(operation, request.body, is_file=is_file)
        put_place = replace(self._place(parameter, label, str(place)), file=is_file)
        needed = place == "path" or parameter.get("required") is True
        request.inputs.append(_Input(put_place, _file_schema(schema) if is_file else schema, needed))

    def _place(self, parameter: Mapping[str, Any], label: str, where: str) -> Place:
        kind = "form" if where == "formData" else where
        content = {str(media): value for media, value in mapping_of(parameter.get("content")).items()}
        if content:
            media = next(iter(content))
            if not is_json(media) and not media.startswith("text/"):
                raise RefusalError(f"the parameter {label} is written as {media}; JSON and plain text are possible")
            return Place(label, kind, media="application/json" if is_json(media) else "")
        if "swagger" in self.root:
            collection = parameter.get("collectionFormat")
            usual = "simple" if kind in _SIMPLE_PLACES else "form"
            return Place(label, kind, _COLLECTION_FORMATS.get(str(collection), usual), explode=collection == "multi")
        style = parameter.get("style") or ("simple" if kind in _SIMPLE_PLACES else "form")
        if style not in STYLES[kind] or style == "tabDelimited":
            raise RefusalError(f"the parameter {label} has the style {style!r}, which a {kind} parameter cannot have")
        explode = parameter.get("explode")
        exploded = explode if isinstance(explode, bool) else style == "form"
        return Place(label, kind, style, exploded, reserved=parameter.get("allowReserved") is True)

    def _parameter_schema(self, parameter: Mapping[str, Any]) -> dict[str, Any]:
        schema = dict(mapping_of(parameter.get("schema")))
        for value in mapping_of(parameter.get("content")).values():
            schema = schema or dict(mapping_of(mapping_of(value).get("schema")))
        if not schema:  # Swagger 2.0 writes the schema's keys next to the name
            schema = {key: parameter[key] for key in _SWAGGER_KEYS if key in parameter}
        description = parameter.get("description")
        if isinstance(description, str) and "description" not in schema:
            schema["description"] = description
        return schema

    # --- bodies ---

    def _consumed(self, operation: Mapping[str, Any]) -> list[str]:
        said = list_of(operation.get("consumes")) or list_of(self.root.get("consumes")) or ["application/json"]
        return [media for media in said if isinstance(media, str)]

    def _swagger_form(self, operation: Mapping[str, Any], body: Body | None, *, is_file: bool) -> Body:
        if is_file or (body is not None and body.upload):
            return Body(("multipart/form-data",), "multipart/form-data")
        forms = [media for media in self._consumed(operation) if "form" in media]
        return Body((forms[0] if forms else "application/x-www-form-urlencoded",))

    def _put_content(self, request: _Request, body: Mapping[str, Any]) -> None:
        """Add the parameters of a body: its fields where it is JSON or a form, else all of it as one."""
        contents = {str(media): mapping_of(value) for media, value in mapping_of(body.get("content")).items()}
        if not contents:
            return
        needed = body.get("required") is not False
        ranked = sorted(contents, key=_rank)
        media, multipart = ranked[0], next((each for each in ranked if each.startswith("multipart/form-data")), "")
        if (
            media.startswith("application/x-www-form-urlencoded")
            and multipart
            and self._files(contents[multipart], set())
        ):
            media = multipart
        schema = mapping_of(contents[media].get("schema"))
        if _rank(media) == _UNKNOWN:
            raise RefusalError(f"the body is {media}; JSON, forms, text and files are possible")
        inputs: list[_Input]
        if is_json(media):
            same = [each for each in ranked if is_json(each) and contents[each].get("schema") == schema]
            request.body = Body(tuple(dict.fromkeys((media, *same))), required=body.get("required") is True)
            inputs = self._json_inputs(schema, body, needed=needed)
            if multipart and inputs and inputs[0].place.kind == "body":
                uploads = self._files(contents[multipart], {_input.place.label for _input in inputs})
                request.body = replace(request.body, upload=multipart if uploads else "")
                inputs += uploads
        elif "form" in media:
            request.body = Body((media,), media if media.startswith("multipart") else "")
            inputs = self._form_inputs(contents[media], needed=needed)
        else:
            request.body = Body((media,))
            inputs = [self._text_input(media, schema, body, needed=needed)]
        request.inputs += inputs

    def _json_inputs(self, schema: Mapping[str, Any], body: Mapping[str, Any], *, needed: bool) -> list[_Input]:
        fields = self.schemas.fields(schema)
        if fields.whole:
            described = {**schema, "description": schema.get("description") or body.get("description") or "The body."}
            place = Place("body", "whole", nullable=bool(schema) and self.schemas.takes_null(schema))
            return [_Input(place, described, needed)]
        inputs: list[_Input] = []
        for label, given in fields.properties.items():
            if self.document.followed_or_empty(given).get("readOnly") is not True:
                place = Place(label, "body", nullable=self.schemas.takes_null(given))
                inputs.append(_Input(place, dict(mapping_of(given)), needed and label in fields.required))
        return inputs

    def _form_inputs(self, content: Mapping[str, Any], *, needed: bool) -> list[_Input]:
        fields = self.schemas.fields(mapping_of(content.get("schema")))
        if not fields.properties and self.schemas.is_open(mapping_of(content.get("schema"))):
            raise RefusalError("the body is a form whose fields the document does not name")
        inputs: list[_Input] = []
        for label, given in fields.properties.items():
            schema = self.document.followed_or_empty(given)
            if schema.get("readOnly") is True:
                continue
            encoding = mapping_of(mapping_of(content.get("encoding")).get(label))
            place = self._form_place(label, schema, encoding)
            shown = _file_schema(schema) if place.file else dict(mapping_of(given))
            inputs.append(_Input(place, shown, needed and label in fields.required))
        return inputs

    def _form_place(self, label: str, schema: Mapping[str, Any], encoding: Mapping[str, Any]) -> Place:
        items = mapping_of(schema.get("items"))
        media = str(encoding.get("contentType") or "").partition(",")[0].strip()
        # A content type that JSON cannot carry is a file, even where the schema says nothing.
        is_file = self.schemas.is_file(schema) or self.schemas.is_file(items) or bool(media and not is_text(media))
        if not {"style", "explode", "allowReserved"} & encoding.keys():
            return Place(label, "form", media="" if "*" in media else media, file=is_file)
        style = str(encoding.get("style") or "form")
        if style not in STYLES["form"] or style == "tabDelimited":
            raise RefusalError(f"the field {label} has the style {style!r}, which a form cannot have")
        explode = encoding.get("explode")
        exploded = explode if isinstance(explode, bool) else style == "form"
        return Place(label, "form", style, exploded, encoding.get("allowReserved") is True, file=is_file)

    def _files(self, content: Mapping[str, Any], known: set[str]) -> list[_Input]:
        """Return the files that a body has as a form, and not as JSON."""
        inputs = self._form_inputs(content, needed=False)
        return [each for each in inputs if each.place.file and each.place.label not in known]

    def _text_input(self, media: str, schema: Mapping[str, Any], body: Mapping[str, Any], *, needed: bool) -> _Input:
        said = str(body.get("description") or schema.get("description") or "The body.")
        if is_text(media) and not self.schemas.is_file(schema):
            return _Input(Place("body", "whole"), {"type": "string", "description": f"{said} ({media})"}, needed)
        place = Place("body", "whole", media="" if "*" in media else media, file=True)
        return _Input(place, _file_schema({"description": said}), needed)

    # --- answers ---

    def _accept(self, operation: Mapping[str, Any]) -> str:
        """Return the header that asks for the answers a document names, JSON first."""
        medias = [media for media in list_of(operation.get("produces")) if isinstance(media, str)]
        if not medias:
            medias = [media for media in list_of(self.root.get("produces")) if isinstance(media, str)]
        for code, given in mapping_of(operation.get("responses")).items():
            if str(code).startswith("2"):
                medias += map(str, mapping_of(self.document.followed_or_empty(given).get("content")))
        plain = [media for media in dict.fromkeys(medias) if media.isascii() and media.isprintable()]
        if not plain or "*/*" in plain:
            return ""
        return ", ".join((*sorted(plain, key=lambda media: not is_json(media)), "*/*;q=0.1"))

    def _answer(self, operation: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the schema of the first successful answer, with its links as ``x-links``: [tool, parameter, path]."""
        by_code = {str(code): response for code, response in mapping_of(operation.get("responses")).items()}
        codes = sorted(code for code in by_code if code.startswith("2"))
        for code in (*codes, "default"):
            response = self.document.followed_or_empty(by_code.get(code))
            contents = {str(media): value for media, value in mapping_of(response.get("content")).items()}
            schema = mapping_of(response.get("schema"))
            if contents and not schema:
                schema = mapping_of(mapping_of(contents[min(contents, key=_rank)]).get("schema"))
            links = list(self._links(response))
            if schema or links:
                return compact({**schema, "x-links": links} if links else schema, self.root)
        return None

    def _links(self, response: Mapping[str, Any]) -> Iterator[list[str]]:
        for given in mapping_of(response.get("links")).values():
            link = self.document.followed_or_empty(given)
            tool = self.by_id.get(str(link.get("operationId")))
            reference = str(link.get("operationRef", "")).removeprefix("#/paths/").rsplit("/", 1)
            if tool is None and len(reference) == 2:
                tool = self.named.get((reference[1], reference[0].replace("~1", "/").replace("~0", "~")))
            for parameter, expression in mapping_of(link.get("parameters")).items():
                place = str(expression).removeprefix("$response.body#/")
                if tool is not None and place != expression:
                    label = re.sub(r"^(?:path|query|header|cookie)\.", "", str(parameter))
                    path = ".".join(place.split("/"))
                    yield [tool, legal_name(label), re.sub(r"(?:^|\.)\d+(?=\.|$)", "[]", path)]

    def _note_mention(self, tool: str, name: str, schema: Mapping[str, Any]) -> None:
        """Note the operation that the description of an id names: "as returned by `GET /orders`"."""
        if IDENTIFIERS.isdisjoint(canonical(name)):
            return
        for said in _NAMED.findall(str(schema.get("description", ""))):
            giver = self.by_words.get(canonical(said))
            if giver not in (None, tool):
                self.mentioned.setdefault(str(giver), []).append([tool, name, ""])


# --- names ---


def legal_name(text: str) -> str:
    """Return a name that every provider takes; a long one ends in a digest of the whole."""
    return _short(_UNSAFE.sub("_", text.strip()).strip("_") or "_")


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}_{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _free(name: str, taken: set[str]) -> str:
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name[: MAX_NAME - 5]}_{number}", number + 1
    taken.add(unique)
    return unique


def _names_of(inputs: Sequence[_Input]) -> list[str]:
    """Return the name of each input. A name depends on the labels that clash, never on their order.

    Labels of one place that differ in signs alone (``StartTime``, ``StartTime<``) get the signs' names
    (``StartTime_lt``). Of inputs in several places the one in the path keeps its name, the others get their place in
    front (``query.id``, ``body.id``).
    """
    plain = [legal_name(_input.place.label) for _input in inputs]
    same_place = Counter((_kind(_input), name) for _input, name in zip(inputs, plain, strict=True))
    spelled: list[str] = []
    for _input, name in zip(inputs, plain, strict=True):
        alone = same_place[_kind(_input), name] == 1
        spelled.append(name if alone or name == _input.place.label else _short(f"{name}_{_signs(_input.place.label)}"))
    everywhere = Counter(spelled)
    names: list[str] = []
    for _input, name in zip(inputs, spelled, strict=True):
        if everywhere[name] > 1 and _kind(_input) != "path":
            name = _short(f"{_kind(_input)}.{name}")
        if name in names:  # labels that differ in letters no name can have
            name = f"{name[: MAX_NAME - 9]}_{_digest(f'{_kind(_input)} {_input.place.label}')}"
        names.append(f"{name}_" if name in _RESERVED else name)
    return names


def _kind(given: _Input) -> str:
    kind = given.place.kind
    return "body" if kind in ("form", "whole") else kind


def _signs(label: str) -> str:
    words = [word for sign, word in _SIGNS.items() if sign in label]
    return "_".join(words) or _digest(label)


# --- parts of a document ---

_UNKNOWN: Final = 9


def _rank(media: str) -> int:
    """Return the order in which content types are taken: what a model can write best comes first."""
    kind = media.partition(";")[0].strip().lower()
    if kind == "application/json":
        return 0
    if kind == "application/json-patch+json":
        return 2  # a list of steps; where the value is an object, a dialect that merges is meant
    if is_json(kind):
        return 1
    for rank, begin in ((3, "application/x-www-form-urlencoded"), (4, "multipart/form-data"), (_UNKNOWN, "multipart/")):
        if kind.startswith(begin):
            return rank
    return 5 if is_text(kind) else 6


def _is_credential(parameter: Mapping[str, Any]) -> bool:
    """Return True if a parameter is called like a credential, and stands in a header or is described as one."""
    if parameter.get("in") not in ("header", "query", "formData", "cookie"):
        return False
    words, said = set(canonical(str(parameter.get("name")))), parameter.get("description")
    described = isinstance(said, str) and _AUTHENTICATES.search(said) is not None
    return words <= _CREDENTIALS and (parameter.get("in") == "header" or described)


def _file_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a file, or of a list of files, as a model fills it."""
    said = str(schema.get("description") or "").strip()
    one = {"type": ["string", "object"], "format": "binary", "description": f"{said} {FILE_TEXT}".strip()}
    return {"type": "array", "items": one} if schema.get("type") == "array" else one


def _server(root: Mapping[str, Any], operation: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    servers = list_of(operation.get("servers")) or list_of(item.get("servers")) or list_of(root.get("servers"))
    if servers:
        server = mapping_of(servers[0])
        variables = mapping_of(server.get("variables"))
        defaults = {name: str(mapping_of(variable).get("default", "")) for name, variable in variables.items()}
        return SLOT.sub(lambda slot: defaults.get(slot[1], ""), str(server.get("url", "")))
    host, base = root.get("host"), str(root.get("basePath", ""))
    if not isinstance(host, str):
        return base
    schemes = [scheme for scheme in list_of(root.get("schemes")) if isinstance(scheme, str)]
    return f"{'https' if 'https' in schemes or not schemes else schemes[0]}://{host}{base}"


def _with_links(spec: ToolSpec, links: Sequence[list[str]]) -> ToolSpec:
    if not links:
        return spec
    returns = spec.returns or {}
    return replace(spec, returns={**returns, "x-links": [*returns.get("x-links", ()), *links]})


def _relinked(returns: dict[str, Any] | None, renamed: Mapping[str, str]) -> dict[str, Any] | None:
    links = returns.get("x-links") if returns else None
    if returns is None or not links or not renamed:
        return returns
    return {**returns, "x-links": [[renamed.get(tool, tool), *rest] for tool, *rest in links]}
