"""Loading of OpenAPI documents: JSON or YAML, in one file or several, as one mapping with local references.

Each further file that a ``$ref`` names is read once and placed under ``x-files`` in the mapping; references to it are
rewritten. A broken reference stays as it is, and `Document.reasons` has the reason: operations that need it are
refused.

Documents are not trusted. Nesting is limited, and so is the factor by which YAML aliases may multiply a document. A
file is read only if the reference to it is relative, ends in ``.json``, ``.yaml`` or ``.yml``, and enters no hidden
folder: a schema's texts reach the model, and a document could otherwise name the host's own secrets.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.text.schema import followed, lookup

Source = Mapping[str, Any] | str | Path

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


def load(source: Source) -> Document:
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


class _Bundle:
    """A document while its files are collected."""

    def __init__(self, main: Path | None) -> None:
        self.main = main
        self.files: dict[str, Any] = {}
        self.places: dict[Path, str] = {}
        self.waiting: list[tuple[Path, str, Any]] = []
        self.reasons: dict[str, str] = {}
        if main is not None:
            self.places[main] = ""

    def bundled(self, value: Any, name: str) -> Document:
        if not isinstance(value, Mapping) or not isinstance(value.get("paths"), Mapping):
            raise ConfigurationError(f"{name} is no OpenAPI document: it has no `paths`.")
        root = _Copy(self, self.main, "", name).whole(value)
        # The list grows meanwhile: files refer to files.
        for path, stem, content in self.waiting:
            copy = _Copy(self, path, self.places[path], f"The file {path}")
            self.files[stem] = copy.whole(content)
        if self.files:
            root[_FILES] = self.files
        return Document(root, self.reasons)

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
        self.waiting.append((path, stem, content))
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
        done: (identity of a container, whether its keys are names) -> its copy and the nodes in it, with aliases
            counted at each occurrence.
        open: the containers around the present one.
    """

    bundle: _Bundle
    file: Path | None
    place: str
    name: str
    done: dict[tuple[int, bool, bool], _CopiedPart] = field(default_factory=dict)
    open: set[tuple[int, bool, bool]] = field(default_factory=set)

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
        # YAML aliases share one object, which may be a schema in one place and an example in another.
        key = (id(value), names, data)
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
            if key == "$ref" and isinstance(part, str) and not (names or data):
                copied[key] = self.bundle.reference(part, self.file, self.place)
                continue
            # A property may be called `default` or `paths`: below names, OpenAPI's keywords have no meaning.
            is_data = data or (not names and (key in _DATA or key.startswith("x-")))
            is_names = not names and key in _TABLES_OF_NAMES
            inner = self._copied(part, names=is_names, data=is_data, level=level)
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
