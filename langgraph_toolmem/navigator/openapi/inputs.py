"""Inputs of an operation: its parameters and the fields of its body, each with its schema and its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final

from langgraph_toolmem.navigator.openapi.documents import Document, RefusalError, list_of, mapping_of
from langgraph_toolmem.navigator.openapi.names import Labelled
from langgraph_toolmem.navigator.openapi.schemas import Schemas, is_json, is_text
from langgraph_toolmem.navigator.openapi.serialize import FILE_TEXT, STYLES, Place
from langgraph_toolmem.text.meaning import PATH_SLOT, canonical

# What Swagger 2.0 writes next to the name of a parameter in place of a schema; all of these are JSON Schema's words.
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

        A slot of the path that nobody declared is a text; a declared one that the path does not have goes nowhere.
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
        for given in mapping_of(parameter.get("content")):
            media = str(given)
            if is_json(media):
                return Place(label, kind, media="application/json")
            if media.startswith("text/"):
                return Place(label, kind)
            raise RefusalError(f"the parameter {label} is written as {media}; JSON and plain text are possible")
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
        # By OpenAPI a body is optional by default, and many documents forget to mark it as required.
        needed = body.get("required") is not False
        ranked = sorted(contents, key=rank_of)
        media = ranked[0]
        multipart = ""
        for name in reversed(ranked):
            if rank_of(name) == MediaRank.MULTIPART:
                multipart = name
        # A form sends files only as multipart.
        if rank_of(media) == MediaRank.FORM and multipart and self._files(contents[multipart], set()):
            media = multipart
        if rank_of(media) == MediaRank.UNKNOWN:
            raise RefusalError(f"the body is {media}; JSON, forms, text and files are possible")
        if rank_of(media) in (MediaRank.FORM, MediaRank.MULTIPART):
            request.body = Body((media,))
            if media == multipart:
                request.body = Body((media,), upload=media)
            request.inputs += self._form_inputs(contents[media], needed=needed)
        elif is_json(media):
            self._put_json(request, body, contents, ranked, multipart)
        else:
            schema = mapping_of(contents[media].get("schema"))
            request.body = Body((media,))
            request.inputs.append(self._text_input(media, schema, body, needed=needed))

    def _put_json(
        self,
        request: RequestInputs,
        body: Mapping[str, Any],
        contents: Mapping[str, Mapping[str, Any]],
        ranked: Sequence[str],
        multipart: str,
    ) -> None:
        """Add a body that is JSON in the first of its content types, with the files of its form."""
        schema = mapping_of(contents[ranked[0]].get("schema"))
        # Content types with one schema: the value decides which of them is sent.
        dialects: list[str] = []
        for name in ranked:
            if is_json(name) and contents[name].get("schema") == schema:
                dialects.append(name)
        request.body = Body(tuple(dialects) or (ranked[0],), required=body.get("required") is True)
        inputs = self._json_inputs(schema, body, needed=body.get("required") is not False)
        kinds = {given.place.kind for given in inputs}
        if multipart and "whole" not in kinds:
            uploads = self._files(contents[multipart], {given.place.label for given in inputs})
            if uploads:
                request.body = replace(request.body, upload=multipart)
            inputs += uploads
        request.inputs += inputs

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
        fields = self.schemas.fields(mapping_of(content.get("schema")))
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
