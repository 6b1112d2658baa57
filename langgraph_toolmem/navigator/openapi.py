"""Tools from OpenAPI documents (3.x) and Swagger 2.0: every operation becomes a `ToolSpec`. No network.

Parameters in path, query, header and cookie and the properties of a JSON body become the tool's parameters; of two with
the same name the one in the body gets ``body_`` before it. ``$ref`` is followed inside the document; what it names
stays named in the schema, in ``$defs``, so circular schemas are fine. The output is the JSON answer of the first 2xx
response, the toolkit the document's title. The specs are given to a memory like other tools::

    ToolMemory(folder, tools=read_openapi("api.yaml")).plan("cancel the order")
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.schema import lookup

METHODS: Final = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
_READS: Final = frozenset({"get", "head", "options", "trace"})
_SEPARATE: Final = frozenset({"authorization", "accept", "content-type"})
"""Headers that OpenAPI says are no parameters."""
MAX_DEFINITIONS: Final = 64
"""Definitions that one schema carries along; in large documents everything leads to everything."""
_SWAGGER_KEYS: Final = ("type", "format", "items", "enum", "default", "minimum", "maximum", "pattern")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def read_openapi(document: Mapping[str, Any] | str | Path) -> list[ToolSpec]:
    """The operations of a document, in its order.

    A name is the ``operationId``, else method and path; a name that occurs again gets a number.

    Args:
        document: the parsed document, or the path of a JSON or YAML file.

    Raises:
        ConfigurationError: the file cannot be read, or this is no OpenAPI document.
    """
    root = _load(Path(document)) if isinstance(document, (str, Path)) else document
    if not isinstance(root, Mapping) or not isinstance(root.get("paths"), Mapping):
        raise ConfigurationError("This is no OpenAPI document: it has no `paths`.")
    whole = _Document(root)
    specs: list[ToolSpec] = []
    taken: set[str] = set()
    for path, method, item, operation in _operations(root):
        name = unique = _name(operation, method, path)
        number = 2
        while unique in taken:
            unique, number = f"{name}_{number}", number + 1
        taken.add(unique)
        specs.append(_spec(whole, unique, method, path, item, operation))
    return specs


def _operations(root: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    for path, entry in root["paths"].items():
        item = _followed(root, entry)
        for method in METHODS:
            if isinstance(item.get(method), Mapping):
                yield str(path), method, item, item[method]


def _spec(
    document: _Document, name: str, method: str, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]
) -> ToolSpec:
    root = document.root
    properties: dict[str, Any] = {}
    required: list[str] = []
    # An operation's own parameters take the place of those of its path with the same name and place.
    merged: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for given in (*_list(item.get("parameters")), *_list(operation.get("parameters"))):
        parameter = _followed(root, given)
        merged[parameter.get("name"), parameter.get("in")] = parameter
    bodies: list[tuple[Mapping[str, Any], bool]] = []
    for parameter in merged.values():
        label, place = parameter.get("name"), parameter.get("in")
        if place == "body":
            bodies.append((_mapping(parameter.get("schema")), bool(parameter.get("required"))))
        elif isinstance(label, str) and not (place == "header" and label.lower() in _SEPARATE):
            _put(
                properties, required, label, _parameter_schema(parameter), place == "path" or parameter.get("required")
            )
    body = _followed(root, operation.get("requestBody"))
    if body:
        bodies.append((_json_schema(body.get("content")), bool(body.get("required"))))
    for schema, needed in bodies:
        _put_body(root, properties, required, schema, needed)
    parameters: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    said = [operation.get("summary") or item.get("summary"), operation.get("description") or item.get("description")]
    texts = [" ".join(text.split()) for text in said if isinstance(text, str) and text.strip()]
    return ToolSpec(
        name=name,
        description=" ".join(dict.fromkeys(texts)) or f"{method.upper()} {path}",
        parameters=document.alone(parameters),
        returns=_answer(document, operation),
        read_only=method in _READS,
        destructive=method == "delete",
        idempotent=method in _READS or method in ("put", "delete"),
        tags=tuple(tag for tag in _list(operation.get("tags")) if isinstance(tag, str)),
        toolkit=title.strip() if isinstance(title := _mapping(root.get("info")).get("title"), str) else "",
    )


def _put_body(
    root: Mapping[str, Any], properties: dict[str, Any], required: list[str], schema: Mapping[str, Any], needed: bool
) -> None:
    inner = _flat(root, schema)
    fields = inner.get("properties")
    if not isinstance(fields, Mapping) or not fields:
        if schema:
            _put(properties, required, "body", dict(schema), needed)
        return
    musts = set(filter(lambda word: isinstance(word, str), _list(inner.get("required"))))
    for label, field in fields.items():
        if _mapping(field).get("readOnly") is not True:
            _put(properties, required, str(label), field, needed and label in musts)


def _put(properties: dict[str, Any], required: list[str], label: str, schema: Any, needed: Any) -> None:
    name = label
    while name in properties:
        name = f"body_{name}"
    properties[name] = dict(_mapping(schema))
    if needed:
        required.append(name)


def _parameter_schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    schema = dict(_mapping(parameter.get("schema")) or _json_schema(parameter.get("content")))
    if not schema:  # Swagger 2.0 writes the schema's keys beside the name
        schema = {key: parameter[key] for key in _SWAGGER_KEYS if key in parameter}
    description = parameter.get("description")
    if isinstance(description, str) and "description" not in schema:
        schema["description"] = description
    return schema


def _answer(document: _Document, operation: Mapping[str, Any]) -> dict[str, Any] | None:
    responses = _mapping(operation.get("responses"))
    codes = sorted(str(code) for code in responses if str(code).startswith("2"))
    by_code = {str(code): response for code, response in responses.items()}
    for code in (*codes, "default"):
        response = _followed(document.root, by_code.get(code))
        schema = _mapping(response.get("schema")) or _json_schema(response.get("content"))
        if schema:
            return document.alone(schema)
    return None


def _json_schema(content: Any) -> Mapping[str, Any]:
    """The schema of the JSON body, else of the first one."""
    kinds = {str(kind): value for kind, value in _mapping(content).items()}
    chosen = next((kind for kind in kinds if "json" in kind), next(iter(kinds), ""))
    return _mapping(_mapping(kinds.get(chosen)).get("schema"))


def _flat(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object schema with its reference followed and its ``allOf`` joined, one level."""
    inner = _followed(root, schema)
    parts = [_followed(root, part) for part in _list(inner.get("allOf"))]
    if not parts:
        return inner
    properties: dict[str, Any] = {}
    required: list[Any] = []
    for part in (*parts, inner):
        properties.update(_mapping(part.get("properties")))
        required += _list(part.get("required"))
    return {**inner, "properties": properties, "required": required}


class _Document:
    """A document whose definitions are rewritten once and shared by the schemas that name them."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._rewritten: dict[str, tuple[Any, list[str]]] = {}

    def alone(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """A schema that stands alone: the nearest `MAX_DEFINITIONS` definitions it leads to are in ``$defs``."""
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
        """A copy whose references lead to ``$defs``, and what they named; those that name nothing are left out."""
        references: list[str] = []

        def copied(inner: Any) -> Any:
            if isinstance(inner, Mapping):
                reference = inner.get("$ref")
                if not isinstance(reference, str):
                    return {str(key): copied(part) for key, part in inner.items()}
                rest = {str(key): copied(part) for key, part in inner.items() if key != "$ref"}
                if not isinstance(lookup(self.root, reference), Mapping):
                    return rest
                references.append(reference)
                return {**rest, "$ref": f"#/$defs/{self._name(reference)}"}
            return [copied(part) for part in inner] if isinstance(inner, list) else inner

        return copied(value), references

    def _name(self, reference: str) -> str:
        if reference not in self._names:
            name = base = _UNSAFE.sub("_", reference.rsplit("/", 1)[-1]) or "schema"
            while name in self._taken:
                name = f"{base}_{len(self._taken)}"
            self._taken.add(name)
            self._names[reference] = name
        return self._names[reference]


def _followed(root: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    """Return what a reference names, after at most eight steps; {} if that is nothing."""
    for _ in range(8):
        reference = _mapping(value).get("$ref")
        if not isinstance(reference, str):
            return _mapping(value)
        value = lookup(root, reference)
    return {}


def _name(operation: Mapping[str, Any], method: str, path: str) -> str:
    said = operation.get("operationId")
    text = said if isinstance(said, str) and said.strip() else f"{method}{path}"
    return _UNSAFE.sub("_", text.strip()).strip("_") or method


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
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is neither JSON nor YAML: {' '.join(str(error).split())}") from error


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
