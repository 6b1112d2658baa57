"""Schemas of requests: self-contained JSON Schemas, the fields of a body, files and null.

Referenced schemas are in ``$defs``, so circular schemas are possible. OpenAPI 3.0's own words (``nullable``, truth
values as bounds) become those of JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from langgraph_toolmem.navigator.openapi.documents import MAX_LEVELS, Document, RefusalError, list_of, mapping_of

MAX_DEFINITIONS: Final = 64
"""Limit of the definitions in one schema; in large documents all definitions are connected."""
_SCHEMAS_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_NO_SCHEMAS: Final = frozenset({"example", "examples", "enum", "const", "default", "required", "type", "discriminator"})
"""Keys of a schema whose values are not schemas."""
_ADDRESSES: Final = frozenset(
    {"$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$schema"}
)
"""Keys that give a schema another address, below which ``$defs`` would be looked for."""
_CHOICES: Final = ("oneOf", "anyOf")


@dataclass(slots=True)
class BodyFields:
    """Properties of an object schema, its ``allOf`` joined.

    Attributes:
        properties: name -> schema.
        required: names of required properties.
        whole: True if the properties are incomplete: alternatives or free keys add others.
    """

    properties: dict[str, Any] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    whole: bool = False


class _Rewritten(NamedTuple):
    """A schema with references to ``$defs``, and those references."""

    schema: Any
    references: list[str]


class Schemas:
    """The schemas of one document. A definition is rewritten once and shared by the schemas that name it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._rewritten: dict[str, _Rewritten] = {}

    def alone(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a schema that stands alone: the nearest `MAX_DEFINITIONS` definitions it leads to are in ``$defs``.

        A reference that leads nowhere raises RefusalError, here and in `fields`.
        """
        rewritten = self._copied(schema)
        waiting = rewritten.references
        definitions: dict[str, Any] = {}
        # The list grows meanwhile, so that the nearest definitions come first.
        for reference in waiting:
            name = self._names[reference]
            if name in definitions:
                continue
            # Anything is allowed there, in place of a broken reference.
            if len(definitions) >= MAX_DEFINITIONS:
                definitions[name] = {}
                continue
            if reference not in self._rewritten:
                self._rewritten[reference] = self._copied(self.document.target(reference))
            definition = self._rewritten[reference]
            definitions[name] = definition.schema
            waiting += definition.references
        schema_alone: dict[str, Any] = rewritten.schema
        if definitions:
            schema_alone["$defs"] = definitions
        return schema_alone

    def fields(self, schema: Mapping[str, Any]) -> BodyFields:
        """Return the properties of an object schema."""
        fields = BodyFields()
        parts = list(self._parts(schema, set()))
        for part in parts:
            fields.properties.update(mapping_of(part.get("properties")))
            for name in list_of(part.get("required")):
                # Swagger 2.0 documents write `required: true` in a schema, too.
                if isinstance(name, str):
                    fields.required.add(name)
        # With the properties of all parts known: an alternative in one may repeat those of another.
        for part in parts:
            if self.is_open(part) or not _is_object(part) or self._brings_more(part, fields.properties):
                fields.whole = True
        fields.whole |= not fields.properties
        # A required field without a description may have any value.
        for name in fields.required - fields.properties.keys():
            fields.properties[name] = {}
        return fields

    def is_open(self, schema: Mapping[str, Any]) -> bool:
        """Return True if a schema describes the values of freely named keys."""
        inner = self.document.followed(schema)
        return bool(mapping_of(inner.get("additionalProperties")) or inner.get("patternProperties"))

    def _parts(self, schema: Mapping[str, Any], seen: set[int], steps: int = MAX_LEVELS) -> Iterator[Mapping[str, Any]]:
        """Yield a schema after the parts of its ``allOf``, each once: otherwise references fan out without end."""
        if steps == 0:
            raise RefusalError(f"allOf is nested deeper than {MAX_LEVELS} levels")
        inner = self.document.followed(schema)
        if id(inner) in seen:
            return
        seen.add(id(inner))
        for part in list_of(inner.get("allOf")):
            yield from self._parts(mapping_of(part), seen, steps - 1)
        yield inner

    def _brings_more(self, schema: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
        """Return True if an alternative has properties that are not among the known ones."""
        for word in _CHOICES:
            for choice in list_of(schema.get(word)):
                for part in self._parts(mapping_of(choice), set()):
                    is_nested = part.get("oneOf") or part.get("anyOf")
                    if is_nested or not mapping_of(part.get("properties")).keys() <= known.keys():
                        return True
        return False

    def takes_null(self, schema: Any, steps: int = 8) -> bool:
        """Return True if null is a value of a schema, or the schema has no type."""
        inner = self.document.followed_or_empty(schema)
        if inner.get("nullable") is True or inner.get("x-nullable") is True:
            return True
        kinds = inner.get("type")
        if isinstance(kinds, (str, list)):
            return "null" in kinds
        if isinstance(inner.get("enum"), list):
            return None in inner["enum"]
        if "const" in inner:
            return inner["const"] is None
        return self._composition_takes_null(inner, steps)

    def _composition_takes_null(self, inner: Mapping[str, Any], steps: int) -> bool:
        # One of several alternatives must accept null, or all of the joined parts.
        choices = list_of(inner.get("oneOf")) or list_of(inner.get("anyOf"))
        parts = list_of(inner.get("allOf"))
        if not choices and not parts:
            return "properties" not in inner and "items" not in inner
        # Schemas may contain themselves.
        if steps == 0:
            return False
        if choices:
            return any(self.takes_null(choice, steps - 1) for choice in choices)
        return all(self.takes_null(part, steps - 1) for part in parts)

    def is_file(self, schema: Any) -> bool:
        """Return True if a value is the bytes of a file: 2.0's ``file``, 3.0's ``binary``, 3.1's media type."""
        inner = self.document.followed_or_empty(schema)
        if inner.get("type") == "file" or "binary" in (inner.get("format"), inner.get("contentEncoding")):
            return True
        media = inner.get("contentMediaType")
        return isinstance(media, str) and "contentEncoding" not in inner and not is_text(media)

    def _copied(self, value: Any) -> _Rewritten:
        """Return a copy whose references lead to ``$defs``, and the references."""
        references: list[str] = []

        def copied(inner: Any) -> Any:
            if isinstance(inner, list):
                return [copied(part) for part in inner]
            if not isinstance(inner, Mapping):
                return inner
            schema: dict[str, Any] = {}
            for key, part in inner.items():
                if key not in _ADDRESSES:
                    schema[key] = copied_part(key, part)
            return _without_reference_names(_modern(schema))

        def copied_part(key: str, part: Any) -> Any:
            if key in _SCHEMAS_BY_NAME and isinstance(part, Mapping):
                return {name: copied(below) for name, below in part.items()}
            if key == "$ref" and isinstance(part, str):
                # Raises for a broken reference: the operation is refused, not called wrongly.
                self.document.target(part)
                references.append(part)
                return f"#/$defs/{self._name(part)}"
            if key in _NO_SCHEMAS or key.startswith("x-"):
                return part
            return copied(part)

        return _Rewritten(copied(value), references)

    def _name(self, reference: str) -> str:
        if reference not in self._names:
            last = reference.rsplit("/", 1)[-1].replace("~1", "/").replace("~0", "~")
            stem = re.sub(r"\.(?:json|ya?ml)$", "", last, flags=re.IGNORECASE)
            # A provider that checks schemas takes these characters in the name of a definition.
            name = base = re.sub(r"[^A-Za-z0-9_.-]+", "_", stem) or "schema"
            while name in self._taken:
                name = f"{base}_{len(self._taken)}"
            self._taken.add(name)
            self._names[reference] = name
        return self._names[reference]


def _is_object(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", "object")
    return kinds == "object" or (isinstance(kinds, list) and "object" in kinds)


def is_json(media: str) -> bool:
    """Return True for JSON, its dialects (``application/merge-patch+json``) and ``*/*``."""
    kind = media.partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json", "*/*", "application/*") or kind.endswith("+json")


def is_text(media: str) -> bool:
    """Return True for a content type whose bytes are text that a model can read and write."""
    kind = media.partition(";")[0].strip().lower()
    plain = kind.startswith("text/") or is_json(kind)
    named = re.search(r"[/+.-](?:xml|ya?ml|csv|javascript|graphql|toml|sql)$|ndjson$|jsonl|json-seq|jsonlines", kind)
    return plain or named is not None or kind == "application/x-www-form-urlencoded"


def is_stream(media: str) -> bool:
    """Return True for a content type whose parts come one after another, as long as the connection lasts."""
    kind = media.partition(";")[0].strip().lower()
    return re.search(r"event-stream$|ndjson$|jsonl|json-seq$|stream\+json$|x-mixed-replace$", kind) is not None


def _modern(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of OpenAPI 3.0 as JSON Schema: ``nullable``, and bounds that a truth value makes exclusive."""
    if schema.get("nullable") is True or schema.get("x-nullable") is True:
        schema = _with_null(schema)
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        # OpenAPI 3.0 has a truth value next to the bound, JSON Schema the bound itself.
        is_exclusive = schema.get(exclusive)
        if isinstance(is_exclusive, bool):
            del schema[exclusive]
            if is_exclusive and bound in schema:
                schema[exclusive] = schema.pop(bound)
    return schema


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = schema.get("type")
    if isinstance(kinds, str):
        values = schema.get("enum")
        # An enum that does not list null forbids it, for any type.
        if isinstance(values, list) and None not in values:
            schema = {**schema, "enum": [*values, None]}
        return {**schema, "type": [kinds, "null"]}
    composed: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for key, value in schema.items():
        # Next to a reference, `nullable` says more than 3.0 reads there, and what the writer meant (Airflow's `state`).
        if key in ("$ref", "allOf", "oneOf", "anyOf"):
            composed[key] = value
        else:
            rest[key] = value
    if not composed:
        return schema
    return {**rest, "anyOf": [composed, {"type": "null"}]}


def _without_reference_names(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without a property named ``$ref``; the description mentions the property."""
    # LangChain reads such a property as a reference and fails.
    properties = schema.get("properties")
    if not isinstance(properties, dict) or "$ref" not in properties:
        return schema
    described = f"{schema.get('description') or ''} It may have the key `$ref` as well.".strip()
    kept = {name: inner for name, inner in properties.items() if name != "$ref"}
    return {**schema, "properties": kept, "description": described}
