"""JSON schemas of tools as flat lists of values, and what outputs look like, learned from results.

A *leaf* is one value inside a schema with its path: ``city``, ``address.zip``, ``items[].id``. The root itself has
the path "". Schemas are not trusted: local ``$ref`` s are followed and may be circular, ``allOf``, ``anyOf`` and
``oneOf`` are merged, types may be missing, descriptions may be long. Nothing here raises on a schema and nothing
remote is fetched.

Of results, paths and JSON types are kept, never values. Keys of tables are data (ids, e-mail addresses, dates) and no
names of fields; what counts as a table is our own choice [O]: see `is_table`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

MAX_LEAVES: Final = 96
"""Leaves kept of one schema; the shallow ones come first, so what is lost lies deep."""
MAX_DEPTH: Final = 6
MAX_WIDTH: Final = 500
"""Values of one level that are looked into, about: definitions of large documents lead to each other without end."""
MAX_DESCRIPTION: Final = 400
"""Characters kept of a description: what a value is stands at its beginning."""
MAX_CHOICES: Final = 32
MAX_SAID: Final = 80
"""Characters kept of a description in a compact schema."""
_STEPS: Final = re.compile(r"\[\]|[^.\[\]]+")

_ONE_TYPE: Final = {kind: frozenset((kind,)) for kind in ("string", "number", "integer", "boolean", "object", "array")}
_MERGED: Final = ("allOf", "anyOf", "oneOf")


class Described(Protocol):
    """The part of a tool that is read here; `langgraph_toolmem.runs.tools.ToolSpec` has it and says what it is."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> dict[str, Any]: ...
    @property
    def properties(self) -> dict[str, dict[str, Any]]: ...
    @property
    def toolkit(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def route(self) -> str: ...
    @property
    def returns(self) -> dict[str, Any] | None: ...


class Leaf(NamedTuple):
    """One value in a schema.

    Attributes:
        path: where it is; "" for the root.
        types: JSON types it may have, without "null"; empty if nothing is said.
        description: what is said of it, cut at `MAX_DESCRIPTION` characters.
        format: ``format`` of the schema, "" if none.
        choices: the values of an enumeration as texts, at most `MAX_CHOICES`.
        required: every level on the way to it is required.
    """

    path: str
    types: frozenset[str] = frozenset()
    description: str = ""
    format: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False


def leaves_of(
    schema: Mapping[str, Any] | None,
    *,
    limit: int = MAX_LEAVES,
    depth: int = MAX_DEPTH,
    root: Mapping[str, Any] | None = None,
) -> list[Leaf]:
    """Return the values of a JSON schema, level by level, in the order of the schema.

    An object without properties is a leaf itself, and so is what lies deeper than `depth`, or behind
    `MAX_WIDTH` others. References lead into `root`,
    which defaults to the schema.
    """
    if not isinstance(schema, Mapping):
        return []
    root = schema if root is None else root
    found: list[Leaf] = []
    known: _Known = {}
    level: list[_Place] = [("", schema, True, None)]
    for left in range(depth, -1, -1):
        below: list[_Place] = []
        for path, given, required, described in level:
            if len(found) >= limit:
                return found
            inner = resolved(given, root, known=known)
            inside = _inside(path, inner, required, described) if left and len(below) < MAX_WIDTH else []
            if inside:
                below += inside
            else:
                found.append(_leaf(path, inner, required, described))
        level = below
    return found


def compact(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a schema with the same leaves, in plain objects and lists: types, formats and descriptions, no references.

    Keys that begin with ``x-`` stay. References lead into `root`, which defaults to the schema.
    """
    whole: dict[str, Any] = {key: value for key, value in schema.items() if key.startswith("x-")}
    for leaf in leaves_of(schema, root=root):
        place = whole
        for part in _STEPS.findall(leaf.path):
            if part == "[]":
                place["type"] = "array"
                place = place.setdefault("items", {})
            else:
                place["type"] = "object"
                place = place.setdefault("properties", {}).setdefault(part, {})
        if leaf.types:
            place.setdefault("type", sorted(leaf.types) if len(leaf.types) > 1 else next(iter(leaf.types)))
        place.update({"description": leaf.description[:MAX_SAID]} if leaf.description else {})
        place.update({"format": leaf.format} if leaf.format else {})
    return whole


_Place = tuple[str, Any, bool, Any]
"""Path, schema, whether it is required, and what is said of the list around it."""


def _inside(path: str, schema: Mapping[str, Any], required: bool, described: Any) -> list[_Place]:
    """Return what lies one level below, nothing if this is a leaf."""
    properties = schema.get("properties")
    if properties and isinstance(properties, dict):
        needed = frozenset(_texts(schema.get("required"))) if required else frozenset()
        before = f"{path}." if path else ""
        return [(f"{before}{name}", inner, name in needed, None) for name, inner in properties.items()]
    items = schema.get("items")
    if isinstance(items, list | tuple):
        items = items[0] if items else None
    if isinstance(items, dict):
        # What is said of a list holds for its elements.
        return [(f"{path}[]", items, required, schema.get("description") or described)]
    return []


def _leaf(path: str, schema: Mapping[str, Any], required: bool, described: Any) -> Leaf:
    description = schema.get("description") or described or schema.get("title")
    values = schema.get("enum")
    if not isinstance(values, (list, tuple)):
        values = [schema["const"]] if "const" in schema else ()
    kind = schema.get("format")
    return Leaf(
        path=path,
        types=types_of(schema),
        description=" ".join(description.split())[:MAX_DESCRIPTION] if isinstance(description, str) else "",
        format=kind if isinstance(kind, str) else "",
        choices=tuple(map(str, values[:MAX_CHOICES])),
        required=required,
    )


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types a schema allows, without "null"; judged by other keywords where ``type`` is missing."""
    said = schema.get("type")
    if isinstance(said, str):
        if said in _ONE_TYPE:
            return _ONE_TYPE[said]
        said = [said]
    if isinstance(said, Sequence):
        return frozenset(kind for kind in said if isinstance(kind, str) and kind != "null")
    if isinstance(schema.get("properties"), Mapping):
        return frozenset({"object"})
    if "items" in schema:
        return frozenset({"array"})
    values = schema.get("enum")
    known = values if isinstance(values, (list, tuple)) else [schema.get("default")]
    return frozenset(kind for value in known if (kind := type_of(value)) != "null")


def type_of(value: Any) -> str:
    """Return the JSON type of a value; "null" for None and for anything that JSON does not have."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, (list, tuple)) else "null"


_Known = dict[tuple[str | int, int], Mapping[str, Any]]
"""Merged schemas by reference (or identity) and steps left. Without them ten references to each of twelve definitions
that refer to each other are 10^8 merges."""


def resolved(schema: Any, root: Mapping[str, Any], *, steps: int = 8, known: _Known | None = None) -> Mapping[str, Any]:
    """Return a schema with its outermost local ``$ref`` followed and its ``allOf``, ``anyOf``, ``oneOf`` merged.

    Of several parts the properties and types are joined; a property is required only where all alternatives
    require it. What cannot be followed (remote, circular, missing) is left out. `known` holds what was merged before
    of the same root.
    """
    if not isinstance(schema, dict):
        return {}
    known = {} if known is None else known
    reference = schema.get("$ref")
    key = (reference if isinstance(reference, str) and len(schema) == 1 else id(schema), steps)
    if key not in known:
        known[key] = _resolved(schema, root, steps, known)
    return known[key]


def _resolved(schema: dict[str, Any], root: Mapping[str, Any], steps: int, known: _Known) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema
    for _ in range(steps):
        reference = found.get("$ref")
        if not isinstance(reference, str):
            break
        target = lookup(root, reference)
        beside = {key: value for key, value in found.items() if key != "$ref"}
        found = {**target, **beside} if isinstance(target, Mapping) else beside
    merged = steps > 0 and any(isinstance(found.get(key), Sequence) for key in _MERGED)
    return _merged(found, root, steps, known) if merged else found


def lookup(root: Mapping[str, Any], reference: str) -> Any:
    """Return what a local reference (``#/a/b``) names; None if it is remote or names nothing."""
    if not reference.startswith("#"):
        return None
    target: Any = root
    for part in filter(None, reference[1:].split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(name)
        elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        else:
            return None
    return target


def _merged(schema: Mapping[str, Any], root: Mapping[str, Any], steps: int, known: _Known) -> Mapping[str, Any]:
    whole: dict[str, Any] = {key: value for key, value in schema.items() if key not in _MERGED}
    properties: dict[str, Any] = dict(_mapping(schema.get("properties")))
    required = set(_texts(schema.get("required")))
    types = set(types_of(whole)) if "type" in whole else set()
    for key in _MERGED:
        parts = schema.get(key)
        if not isinstance(parts, Sequence) or isinstance(parts, str):
            continue
        inner = [resolved(part, root, steps=steps - 1, known=known) for part in parts]
        needed = [set(_texts(part.get("required"))) for part in inner if types_of(part)]
        if needed:
            required |= set.union(*needed) if key == "allOf" else set.intersection(*needed)
        for part in inner:
            types |= types_of(part)
            for name, value in _mapping(part.get("properties")).items():
                properties.setdefault(name, value)
            for word in ("items", "format", "enum", "description", "title", "default"):
                if word in part:
                    whole.setdefault(word, part[word])
    if types:
        whole["type"] = sorted(types)
    if properties:
        whole["properties"] = properties
        whole["required"] = sorted(required)
    return whole


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: Any) -> list[str]:
    return [v for v in value if isinstance(v, str)] if isinstance(value, (list, tuple)) else []


_ROWS: Final = 5
"""Elements of a list that are looked at."""
_MOST_NAMES: Final = 96
_MOST_VALUES: Final = 1_000
"""Values of one result that are looked at."""
_FIELD: Final = re.compile(r"[@$]?[^\W\d][\w-]{0,59}")
_CODE: Final = re.compile(r"[0-9a-f-]{8,}|(?:\D*\d){3}.*", re.IGNORECASE | re.DOTALL)
"""Hexadecimal, or three digits and more: an id, a date, a telephone number."""
_SHORT_ID: Final = re.compile(r"[^\W\d_]{1,2}[-_]?\d+")
_DIGIT: Final = re.compile(r"\d")
_ERRORS: Final = ("error", "errors")


def paths_of(value: Any) -> dict[str, frozenset[str]]:
    """Path -> JSON types of the values in a result; "" is the result itself.

    >>> paths_of({"user": {"id": 7}, "tags": ["a"]})
    {'user.id': frozenset({'integer'}), 'tags[]': frozenset({'string'})}
    """
    found: dict[str, frozenset[str]] = {}
    for path, kind in islice(_walk(value, "", 0), _MOST_VALUES):
        if kind != "null" and (path in found or len(found) < MAX_LEAVES):
            found[path] = found.get(path, frozenset()) | {kind}
    return found


def shows_fields(output: Any) -> bool:
    """Return True if a tool's result has fields to learn: an object or list with content that reports no error."""
    if isinstance(output, Mapping):
        return bool(output) and not any(output.get(key) for key in _ERRORS)
    return isinstance(output, (list, tuple)) and any(isinstance(each, (Mapping, list, tuple)) for each in output)


def is_field(key: Any) -> bool:
    """Return True if a key looks like a field's name: a letter, then letters, digits, "_" and "-", at most 60 in all.

    Codes do not: eight and more hexadecimal digits with a number among them, or three and more digits.
    """
    if not isinstance(key, str) or _FIELD.fullmatch(key) is None:
        return False
    return not (_DIGIT.search(key) and _CODE.fullmatch(key))


def is_table(value: Mapping[Any, Any]) -> bool:
    """Return True if the keys of an object are data.

    They are if there are very many; if less than half of them are names of fields, or one is an e-mail address; if all
    look like short ids ("o1", "C-2"), or hold a digit and lead to objects; or if at least two lead to objects that all
    have the same fields.
    """
    keys, inner = [str(key) for key in value], list(value.values())
    if len(keys) > _MOST_NAMES or 2 * sum(map(is_field, value)) < len(keys) or any("@" in key[1:] for key in keys):
        return True
    objects = all(isinstance(each, Mapping) and each for each in inner)
    if all((_DIGIT.search if objects else _SHORT_ID.fullmatch)(key) for key in keys):
        return True
    return objects and len(keys) > 1 and all(each.keys() == inner[0].keys() for each in inner)


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
        if is_table(value):
            for inner in list(value.values())[:_ROWS]:
                yield from _walk(inner, f"{path}[]", depth + 1)
            return
        for key, inner in value.items():
            if is_field(key):
                yield from _walk(inner, f"{path}.{key}" if path else key, depth + 1)
    elif isinstance(value, (list, tuple)) and value and depth < MAX_DEPTH:
        for inner in value[:_ROWS]:
            yield from _walk(inner, f"{path}[]", depth + 1)
    else:
        yield path, type_of(value)
