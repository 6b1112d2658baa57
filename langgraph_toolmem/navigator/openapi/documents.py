"""OpenAPI documents: JSON or YAML, in one file or several, as one mapping with local references; and their schemas.

Each further file that a ``$ref`` names is read once and placed under ``x-files`` in the mapping; references to it are
rewritten. A broken reference stays as it is, and `Document.reasons` has the reason: operations that need it are
refused.

Documents are not trusted. Nesting is limited, and so is the factor by which YAML aliases may multiply a document. A
file is read only if the reference to it is relative, ends in ``.json``, ``.yaml`` or ``.yml``, and enters no hidden
folder: a schema's texts reach the model, and a document could otherwise name the host's own secrets.

`Schemas` makes self-contained JSON Schemas of requests: referenced schemas are in ``$defs``, so circular schemas are
possible, and OpenAPI 3.0's own words (``nullable``, truth values as bounds) become those of JSON Schema.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.text.schema import followed, lookup

DocumentSource = Mapping[str, Any] | str | Path
"""A parsed document, or the path of a JSON or YAML file."""

MAX_LEVELS: Final = 100
"""Limit of the nesting of a document, and of ``allOf`` in it. The deepest of eighteen public documents has 31
levels.
"""
MAX_EXPANSION: Final = 10
"""Limit of the factor by which aliases may multiply a document. Fourteen YAML lines of nine aliases each would fill any
memory.
"""
_FILES: Final = "x-files"
_DATA: Final = frozenset({"example", "examples", "enum", "const", "default"})
"""Keys whose values are data: a ``$ref`` in them is not a reference."""
_TABLES_OF_NAMES: Final = frozenset(
    {
        "$defs", "callbacks", "definitions", "dependentSchemas", "headers", "links", "parameters", "paths",
        "patternProperties", "properties", "requestBodies", "responses", "schemas", "securityDefinitions",
        "securitySchemes",
    }
)  # fmt: skip
"""Keys whose values are mappings by names that the document chooses: keys in these mappings have no special meaning."""


class RefusalError(Exception):
    """An operation that cannot be expressed; the text has the reason and a remedy."""


@dataclass(slots=True)
class Document:
    """A loaded document.

    Attributes:
        root: the document; every valid reference in it is local.
        reasons: broken reference -> the reason.
    """

    root: Mapping[str, Any]
    reasons: dict[str, str] = field(default_factory=dict)

    def target(self, reference: str) -> Any:
        """Return the value that a reference names; raise RefusalError if it names nothing."""
        value = lookup(self.root, reference)
        if value is None:
            raise RefusalError(self.reasons.get(reference, f"$ref {reference} leads to nothing in the document"))
        return value

    def followed(self, value: Any) -> Mapping[str, Any]:
        """Return a mapping with its reference followed; {} for anything else. Keys next to a reference win.

        A reference that leads nowhere or in a circle raises RefusalError.
        """
        # This number of references in a row means a circle.
        schema = followed(mapping_of(value), self.root, most=32)
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            # The mapping itself if nothing is added: `Schemas` distinguishes parts by identity.
            return schema
        if isinstance(self.target(reference), Mapping):
            raise RefusalError(f"$ref {reference} leads in a circle")
        return {key: part for key, part in schema.items() if key != "$ref"}

    def followed_or_empty(self, value: Any) -> Mapping[str, Any]:
        """Return the same as `followed`, or {} if it raises: for answers, which a call does not need."""
        try:
            return self.followed(value)
        except RefusalError:
            return {}


def load(source: DocumentSource) -> Document:
    """Load a document with the files it refers to.

    Args:
        source: a parsed document, or the path of a JSON or YAML file.

    Raises:
        ConfigurationError: the file cannot be read, is neither JSON nor YAML, is nested without end, or is not an
            OpenAPI document.
    """
    if isinstance(source, Mapping):
        return _Bundle(None).bundled(source, "The OpenAPI document")
    path = Path(source)
    return _Bundle(path.resolve()).bundled(_parsed(path), f"The OpenAPI document {path}")


class _WaitingFile(NamedTuple):
    """A file that was read and is not copied yet: its path, its name in the bundle, and its content."""

    path: Path
    stem: str
    content: Any


class _ContainerKey(NamedTuple):
    """A container of a file, by its identity; True if its keys are names, and if it is data.

    YAML aliases share one object, which may be a schema in one place and an example in another.
    """

    identity: int
    names: bool
    data: bool


class _Bundle:
    """A document while its files are collected."""

    def __init__(self, main: Path | None) -> None:
        self.main = main
        self.files: dict[str, Any] = {}
        self.places: dict[Path, str] = {}
        self.waiting: list[_WaitingFile] = []
        self.reasons: dict[str, str] = {}
        if main is not None:
            self.places[main] = ""

    def bundled(self, value: Any, name: str) -> Document:
        if not isinstance(value, Mapping) or not isinstance(value.get("paths"), Mapping):
            # OpenAPI 3.1 allows it: 6 of 25 documents of a payment provider describe its notifications.
            if isinstance(value, Mapping) and isinstance(value.get("webhooks"), Mapping):
                raise ConfigurationError(
                    f"{name} has only `webhooks`, which its server sends: there is nothing to call."
                )
            if isinstance(value, Mapping) and isinstance(value.get("components"), Mapping):
                raise ConfigurationError(f"{name} has only `components` for other documents: there is nothing to call.")
            raise ConfigurationError(f"{name} is no OpenAPI document: it has no `paths`.")
        root = _Copy(self, self.main, "", name).whole(value)
        # The list grows meanwhile: files refer to files.
        for waiting in self.waiting:
            path = waiting.path
            copy = _Copy(self, path, self.places[path], f"The file {path}")
            self.files[waiting.stem] = copy.whole(waiting.content)
        if self.files:
            root[_FILES] = self.files
        self._put_sections_in_place(root, name)
        return Document(root, self.reasons)

    def _put_sections_in_place(self, root: dict[str, Any], name: str) -> None:
        """Replace references to whole sections (``paths: {$ref: paths.yaml}``) with their content.

        The specification has no references there, but writers of large documents split them so, and bundlers follow
        them.
        """
        for section, value in root.items():
            root[section] = _content(value, root)
        components = root.get("components")
        if isinstance(components, Mapping):
            root["components"] = {table: _content(value, root) for table, value in components.items()}
        reference = mapping_of(root["paths"]).get("$ref")
        if isinstance(reference, str):
            reason = self.reasons.get(reference, f"$ref {reference} leads to nothing")
            raise ConfigurationError(f"{name} has its `paths` elsewhere, and they cannot be read: {reason}.")

    def reference(self, text: str, file: Path | None, place: str) -> str:
        """Return a reference as it reads inside the bundle; unchanged, with a reason, if it leads nowhere."""
        address, _, pointer = text.partition("#")
        pointer = unquote(pointer)
        if not address:
            return f"#{place}{pointer}"
        try:
            return f"#{self._place_of(unquote(address), file)}{pointer}"
        except (ConfigurationError, RefusalError) as error:
            self.reasons[text] = f"$ref {text}: {error}"
            return text

    def _place_of(self, address: str, file: Path | None) -> str:
        """Return the pointer to another file in the bundle; the file is read at its first reference."""
        has_scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|//", address)
        # A document is not trusted: it must not make this process send requests.
        if has_scheme:
            raise RefusalError("nothing remote is fetched; download the file and refer to it by a relative path")
        if file is None or self.main is None:
            raise RefusalError("a parsed document has no folder; pass the path of its file")
        # Resolved: the target of a link is the file that would be read.
        path = (file.parent / address).resolve()
        if path in self.places:
            return self.places[path]
        if not self._may_be_read(address, path, self.main.parent):
            raise RefusalError("only relative paths of .json, .yaml and .yml files outside hidden folders are read")
        content = _parsed(path)
        # Two folders may have a file of one name.
        stem = path.stem
        while stem in self.files:
            stem = f"{path.stem}_{len(self.files)}"
        # Registered before it is copied: its own references may lead back to it.
        self.files[stem] = {}
        self.places[path] = f"/{_FILES}/{stem.replace('~', '~0')}"
        self.waiting.append(_WaitingFile(path, stem, content))
        return self.places[path]

    def _may_be_read(self, address: str, path: Path, folder: Path) -> bool:
        """Return False for a file that the document must not show to the model."""
        if Path(address).is_absolute() or path.suffix.lower() not in (".json", ".yaml", ".yml"):
            return False
        levels = Path(os.path.relpath(path, folder)).parts
        return not any(level.startswith(".") and level != ".." for level in levels)


class _CopiedPart(NamedTuple):
    """The copy of a part of a document, and the nodes in it."""

    value: Any
    nodes: int


@dataclass(slots=True)
class _Copy:
    """The copy of one file: keys are texts, references are local to the bundle, shared parts stay shared.

    Attributes:
        done: container -> its copy and the nodes in it, with aliases counted at each occurrence.
        open: the containers around the present one.
    """

    bundle: _Bundle
    file: Path | None
    place: str
    name: str
    done: dict[_ContainerKey, _CopiedPart] = field(default_factory=dict)
    open: set[_ContainerKey] = field(default_factory=set)

    def whole(self, value: Any) -> Any:
        whole = self._copied(value, names=False, data=False, level=0)
        free = 10_000  # nodes: small documents may repeat themselves
        distinct = sum(len(part.value) + 1 for part in self.done.values())
        if whole.nodes > free + MAX_EXPANSION * distinct:
            raise ConfigurationError(
                f"{self.name} repeats itself by YAML aliases: {distinct:,} nodes stand for {whole.nodes:,}. Write the "
                "repeated parts as $ref."
            )
        return whole.value

    def _copied(self, value: Any, *, names: bool, data: bool, level: int) -> _CopiedPart:
        if not isinstance(value, (Mapping, list, tuple)):
            return _CopiedPart(value, 1)
        if level > MAX_LEVELS:
            raise ConfigurationError(f"{self.name} is nested deeper than {MAX_LEVELS} levels.")
        key = _ContainerKey(id(value), names, data)
        if key in self.open:
            raise ConfigurationError(f"{self.name} contains itself by a YAML alias. Write that part as $ref.")
        if key not in self.done:
            self.open.add(key)
            self.done[key] = self._container(value, names=names, data=data, level=level + 1)
            self.open.remove(key)
        return self.done[key]

    def _container(self, value: Any, *, names: bool, data: bool, level: int) -> _CopiedPart:
        if not isinstance(value, Mapping):
            return self._members(value, data=data, level=level)
        nodes = 1
        copied: dict[str, Any] = {}
        for name, part in value.items():
            key = _key(name)
            # Also among names, where a text is no entry: a whole table may be in another file.
            if key == "$ref" and isinstance(part, str) and not data:
                copied[key] = self.bundle.reference(part, self.file, self.place)
                continue
            # A property may be called `default` or `paths`: below names, OpenAPI's keywords have no meaning.
            if names:
                inner = self._copied(part, names=False, data=data, level=level)
            else:
                is_data = data or key in _DATA or key.startswith("x-")
                inner = self._copied(part, names=key in _TABLES_OF_NAMES, data=is_data, level=level)
            copied[key] = inner.value
            nodes += inner.nodes
        return _CopiedPart(copied, nodes)

    def _members(self, values: Iterable[Any], *, data: bool, level: int) -> _CopiedPart:
        nodes = 1
        members: list[Any] = []
        for value in values:
            member = self._copied(value, names=False, data=data, level=level)
            members.append(member.value)
            nodes += member.nodes
        return _CopiedPart(members, nodes)


def _content(value: Any, root: Mapping[str, Any]) -> Any:
    """Return the target of a reference in the bundle, with the keys next to it; any other value as it is."""
    if not isinstance(value, Mapping):
        return value
    named = followed(value, root)
    reference = named.get("$ref")
    if isinstance(reference, str) and len(named) == 1:  # `servers` and `tags` are lists
        target = lookup(root, reference)
        if isinstance(target, list):
            return target
    return named


def _key(name: Any) -> str:
    if isinstance(name, str):
        return name
    # YAML reads `200:` as a number and `null:` as None; in JSON they are texts.
    if isinstance(name, (bool, int, float)) or name is None:
        return json.dumps(name)
    return str(name)


def _parsed(path: Path) -> Any:
    try:
        # Windows editors add a byte order mark, which JSON does not allow.
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The OpenAPI document {path} cannot be read: {error}") from error
    try:
        return json.loads(text)
    except RecursionError:
        raise ConfigurationError(f"The OpenAPI document {path} is nested too deeply.") from None
    except ValueError:
        pass
    yaml: Any = importlib.import_module("yaml")
    try:
        return yaml.load(text, _yaml_loader())
    except RecursionError:
        raise ConfigurationError(f"The OpenAPI document {path} is nested too deeply.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"{path} is neither JSON nor YAML: {' '.join(str(error).split())}") from error


@cache
def _yaml_loader() -> Any:
    """Return a loader for the scalars of YAML 1.2's JSON schema, which OpenAPI requires.

    PyYAML reads YAML 1.1: the country ``NO`` is False there, ``12:30`` is 750, ``0123`` is 83, and a date is an object
    outside JSON.
    """
    yaml: Any = importlib.import_module("yaml")
    # The loader in C is ten times faster, but missing in some builds of PyYAML.
    safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(safe):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - PyYAML's own attribute

        def construct_whole(self, node: Any) -> int:
            return int(self.construct_scalar(node))

        def construct_fraction(self, node: Any) -> float:
            return float(self.construct_scalar(node))

    for kind, pattern, starts in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?[0-9]+", list("-+0123456789")),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
        ("merge", r"<<", ["<"]),
    ):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"^(?:{pattern})$"), starts)
    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_whole)
    Loader.add_constructor("tag:yaml.org,2002:float", Loader.construct_fraction)
    return Loader


def mapping_of(value: Any) -> dict[str, Any]:
    """Return a mapping of a loaded document; {} for anything else."""
    if isinstance(value, dict):
        return value
    return {}


def list_of(value: Any) -> list[Any]:
    """Return a list; [] for anything else."""
    if isinstance(value, list):
        return value
    return []


# --- schemas ---

MAX_DEFINITIONS: Final = 64
"""Limit of the definitions in one schema; in large documents all definitions are connected."""
_SCHEMAS_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_NO_SCHEMAS: Final = frozenset({"example", "examples", "enum", "const", "default", "required", "type", "discriminator"})
"""Keys of a schema whose values are not schemas."""
_ADDRESSES: Final = frozenset(
    {"$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$schema"}
)
"""Keys that give a schema another address, below which ``$defs`` would be looked for."""


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

    def form_fields(self, schema: Mapping[str, Any]) -> BodyFields:
        """Return the properties of an object schema with those of its alternatives: a form cannot be one parameter.

        A property is required if the schema, or each of its alternatives, requires it.
        """
        # With `oneOf` or `anyOf` at the top, forms of public APIs lost all their fields.
        return self._with_alternatives(self.document.followed(schema), {})

    def _with_alternatives(self, schema: Mapping[str, Any], read: dict[int, BodyFields]) -> BodyFields:
        """Add the alternatives to the fields. `read`: schemas by identity, each read once, those around it too."""
        fields = read[id(schema)] = self.fields(schema)
        for part in self._parts(schema, set()):
            for key in ("oneOf", "anyOf"):
                required: list[set[str]] = []
                for choice in list_of(part.get(key)):
                    inner = self.document.followed(mapping_of(choice))
                    choice_fields = read.get(id(inner)) or self._with_alternatives(inner, read)
                    required.append(set(choice_fields.required))
                    _add_alternatives(fields.properties, choice_fields.properties)
                if required:
                    fields.required |= set.intersection(*required)
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
        for choice in (*list_of(schema.get("oneOf")), *list_of(schema.get("anyOf"))):
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
        copy = _SchemaCopy(self)
        return _Rewritten(copy.copied(value), copy.references)

    def name_of(self, reference: str) -> str:
        """Return the name of a definition in ``$defs``, the same at each call."""
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


def _add_alternatives(properties: dict[str, Any], others: Mapping[str, Any]) -> None:
    """Add the properties of an alternative; one that has another schema there may have either."""
    for name, schema in others.items():
        known = properties.get(name)
        if not known or not schema:
            properties[name] = known or schema
            continue
        choices = list(_choices_of(known))
        choices += [choice for choice in _choices_of(schema) if choice not in choices]
        if len(choices) > 1:
            properties[name] = {"anyOf": choices}


def _choices_of(schema: Mapping[str, Any]) -> list[Any]:
    if schema.keys() == {"anyOf"}:
        return list_of(schema["anyOf"])
    return [schema]


class _SchemaCopy:
    """A copy of one schema.

    Attributes:
        references: those that the copy has, in their order.
    """

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self.references: list[str] = []

    def copied(self, value: Any) -> Any:
        """Return a copy of a schema, or of a list in one, whose references lead to ``$defs``."""
        if isinstance(value, list):
            return [self.copied(part) for part in value]
        if not isinstance(value, Mapping):
            return value
        schema: dict[str, Any] = {}
        for key, part in value.items():
            if key not in _ADDRESSES:
                schema[key] = self._part(key, part)
        return _without_reference_names(_modern(schema))

    def _part(self, key: str, part: Any) -> Any:
        if key in _SCHEMAS_BY_NAME and isinstance(part, Mapping):
            return {name: self.copied(below) for name, below in part.items()}
        if key == "$ref" and isinstance(part, str):
            # Raises for a broken reference: the operation is refused, not called wrongly.
            self._schemas.document.target(part)
            self.references.append(part)
            return f"#/$defs/{self._schemas.name_of(part)}"
        if key in _NO_SCHEMAS or key.startswith("x-"):
            return part
        return self.copied(part)


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
        # OpenAPI 3.0 ignores `nullable` next to a reference; writers mean it (Airflow's `state`).
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
