"""JSON schemas of tools as flat lists of values, and the shapes of outputs, learned from results.

A *leaf* is one value inside a schema with its path: ``city``, ``address.zip``, ``items[].id``. The root itself has the
path "". Schemas are not trusted: local ``$ref`` s are followed and may be circular, ``allOf``, ``anyOf`` and ``oneOf``
are merged, types may be missing, descriptions may be long. The functions do not raise on a schema and do not fetch
remote ones.

Of results, paths and JSON types are kept, never values. Keys of tables are data (ids, e-mail addresses, dates), not
names of fields; the definition of a table is our own choice [O]: see `is_table`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from langgraph_toolmem.base.text import one_line


@dataclass(frozen=True, slots=True)
class SchemaLimits:
    """Bounds of reading schemas and results.

    Attributes:
        leaves: leaves of one schema; shallow ones come first, so only deep ones are lost.
        depth: levels of a schema or a result.
        width: schemas of one level: the definitions of large documents refer to each other without end.
        choices: values of an enumeration.
        description: characters of a leaf's description, whose beginning is the most useful part.
        compact_description: the same in a kept schema.
        references: local references in a row that are followed; circular ones have no end.
        values: values of a result.
        rows: elements of a list, or rows of a table, in a result.
        fields: fields of an object in a result: one with more is a table.
    """

    leaves: int = 96
    depth: int = 6
    width: int = 500
    choices: int = 32
    description: int = 400
    compact_description: int = 80
    references: int = 8
    values: int = 1_000
    rows: int = 5
    fields: int = 96


SCHEMA_LIMITS: Final = SchemaLimits()
COMBINATIONS: Final = ("allOf", "anyOf", "oneOf")


class Described(Protocol):
    """The part of a tool that is read here; `langgraph_toolmem.runs.tools.ToolSpec` documents it."""

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
    @property
    def read_only(self) -> bool | None: ...
    @property
    def streams(self) -> bool: ...


class Leaf(NamedTuple):
    """One value in a schema.

    Attributes:
        path: its place; "" for the root.
        types: JSON types it may have, without "null"; empty if unknown.
        description: its description; of a long text the beginning.
        format: ``format`` of the schema, or "".
        choices: the first values of an enumeration as texts.
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
    limit: int = SCHEMA_LIMITS.leaves,
    depth: int = SCHEMA_LIMITS.depth,
    root: Mapping[str, Any] | None = None,
) -> list[Leaf]:
    """Return the values of a JSON schema, level by level, in the order of the schema.

    An object without properties is a leaf itself, and so is a value deeper than `depth`, or after `SCHEMA_LIMITS.width`
    others. References lead into `root`, which defaults to the schema.
    """
    if not isinstance(schema, Mapping):
        return []
    if root is None:
        root = schema
    leaves: list[Leaf] = []
    known: _Known = {}
    level = [_Place("", schema, True, None)]
    for levels_left in range(depth, -1, -1):
        below: list[_Place] = []
        for place in level:
            if len(leaves) >= limit:
                return leaves
            inner = resolved(place.schema, root, known=known)
            inside: list[_Place] = []
            if levels_left and len(below) < SCHEMA_LIMITS.width:
                inside = _inside(place, inner)
            if inside:
                below += inside
            else:
                leaves.append(_leaf(place, inner))
        level = below
    return leaves


def compact(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a schema with the same leaves, in plain objects and lists: types, formats and descriptions, no references.

    Keys that begin with ``x-`` are kept. References point into `root`, which defaults to the schema.
    """
    whole: dict[str, Any] = {}
    for key, value in schema.items():
        if key.startswith("x-"):
            whole[key] = value
    for leaf in leaves_of(schema, root=root):
        # It may have a type already, as the object around a deeper value.
        place = _place_in(whole, leaf.path)
        types = sorted(leaf.types)
        if len(types) > 1:
            place.setdefault("type", types)
        elif types:
            place.setdefault("type", types[0])
        if leaf.description:
            place["description"] = leaf.description[: SCHEMA_LIMITS.compact_description]
        if leaf.format:
            place["format"] = leaf.format
    return whole


def _place_in(whole: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the schema at a path such as ``items[].id`` in a plain schema; make it if it is missing."""
    place = whole
    for part in re.findall(r"\[\]|[^.\[\]]+", path):
        if part == "[]":
            place["type"] = "array"
            place = place.setdefault("items", {})
        else:
            place["type"] = "object"
            place = place.setdefault("properties", {}).setdefault(part, {})
    return place


class _Place(NamedTuple):
    """A schema in a schema.

    Attributes:
        description: the description of the list around it.
    """

    path: str
    schema: Any
    required: bool
    description: Any


def _inside(place: _Place, schema: Mapping[str, Any]) -> list[_Place]:
    """Return the schemas one level below a place, given its resolved schema; empty for a leaf."""
    properties = schema.get("properties")
    if properties and isinstance(properties, dict):
        return _properties(place, properties, schema.get("required"))
    items = schema.get("items")
    if isinstance(items, (list, tuple)):
        # Old schemas have one for each element; the first represents all.
        items = next(iter(items), None)
    if isinstance(items, dict):
        # The description of a list applies to its elements.
        return [_Place(f"{place.path}[]", items, place.required, schema.get("description") or place.description)]
    return []


def _properties(place: _Place, properties: Mapping[str, Any], required: Any) -> list[_Place]:
    """Return the schemas of an object's properties."""
    names = frozenset[str]()
    if place.required:
        names = frozenset(_texts(required))
    before = ""
    if place.path:
        before = f"{place.path}."
    return [_Place(f"{before}{name}", inner, name in names, None) for name, inner in properties.items()]


def _leaf(place: _Place, schema: Mapping[str, Any]) -> Leaf:
    description = _text(schema.get("description") or place.description or schema.get("title"))
    return Leaf(
        path=place.path,
        types=types_of(schema),
        description=one_line(description)[: SCHEMA_LIMITS.description],
        format=_text(schema.get("format")),
        choices=tuple(map(str, _choices(schema)[: SCHEMA_LIMITS.choices])),
        required=place.required,
    )


def _choices(schema: Mapping[str, Any]) -> Sequence[Any]:
    choices = schema.get("enum")
    if isinstance(choices, (list, tuple)):
        return choices
    if "const" in schema:
        return (schema["const"],)
    return ()


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types a schema allows, without "null"; derived from other keywords if ``type`` is missing."""
    declared = schema.get("type")
    if isinstance(declared, str):
        if declared == "null":
            return frozenset()
        return frozenset({declared})
    if isinstance(declared, Sequence):
        return frozenset(_texts(declared)) - {"null"}
    if isinstance(schema.get("properties"), Mapping):
        return frozenset({"object"})
    if "items" in schema:
        return frozenset({"array"})
    examples = schema.get("enum")
    if not isinstance(examples, (list, tuple)):
        examples = [schema.get("default")]
    return frozenset(map(type_of, examples)) - {"null"}


def type_of(value: Any) -> str:
    """Return the JSON type of a value; "null" for None and for values outside JSON."""
    # True is an int in Python, and a boolean in JSON.
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
    if isinstance(value, (list, tuple)):
        return "array"
    return "null"


_Known = dict[tuple[str | int, int], Mapping[str, Any]]
"""Merged schemas by reference (or identity) and steps left. Without them ten references to each of twelve definitions
that refer to each other are 10^8 merges."""


def resolved(
    schema: Any, root: Mapping[str, Any], *, steps: int = SCHEMA_LIMITS.references, known: _Known | None = None
) -> Mapping[str, Any]:
    """Return a schema with its outermost local ``$ref`` followed and its ``allOf``, ``anyOf``, ``oneOf`` merged.

    Of several parts the properties and types are joined; a property is required only if all alternatives require it.
    References that cannot be followed (remote, circular, missing) are left out. `known` has earlier merges of the same
    root.
    """
    if not isinstance(schema, dict):
        return {}
    if known is None:
        known = {}
    # A schema that is only a reference is identified by it, any other by its object identity, which is valid as long as
    # `root`.
    name = schema.get("$ref")
    if not isinstance(name, str) or len(schema) > 1:
        name = id(schema)
    key = (name, steps)
    if key not in known:
        known[key] = _resolved(schema, root, steps, known)
    return known[key]


def _resolved(schema: dict[str, Any], root: Mapping[str, Any], steps: int, known: _Known) -> Mapping[str, Any]:
    target = followed(schema, root, most=steps)
    if "$ref" in target:
        # It cannot be followed: only the keys next to it are known.
        target = _without_reference(target)
    if steps > 0:
        for key in COMBINATIONS:
            if isinstance(target.get(key), Sequence):
                return _merged(target, root, steps, known)
    return target


def _without_reference(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "$ref"}


def followed(
    schema: Mapping[str, Any], root: Mapping[str, Any], *, most: int = SCHEMA_LIMITS.references
) -> Mapping[str, Any]:
    """Return a schema with the local ``$ref`` s of its outermost level followed. Keys next to a ``$ref`` win.

    A reference that cannot be followed (remote, broken or circular) is kept. If no key is added, the result is the same
    object as in `root`.

    Args:
        schema: the schema.
        root: references lead into it.
        most: references in a row that are followed; a circle of them has no end.
    """
    for _ in range(most):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        named = lookup(root, reference)
        if not isinstance(named, Mapping):
            return schema
        # JSON Schema allows keywords next to a reference since 2019-09.
        siblings = _without_reference(schema)
        schema = named
        if siblings:
            schema = {**named, **siblings}
    return schema


def lookup(root: Mapping[str, Any], reference: str) -> Any:
    """Return the target of a local reference (``#/a/b``); None if it is remote or has no target."""
    if not reference.startswith("#"):
        return None
    target: Any = root
    for part in reference[1:].split("/"):
        if not part:
            continue
        # The escapes of a JSON pointer (RFC 6901): "~1" first, or "~01" would become "/".
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(name)
        elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        else:
            return None
    return target


def _merged(schema: Mapping[str, Any], root: Mapping[str, Any], steps: int, known: _Known) -> Mapping[str, Any]:
    whole: dict[str, Any] = {key: value for key, value in schema.items() if key not in COMBINATIONS}
    properties: dict[str, Any] = dict(_mapping(schema.get("properties")))
    required = set(_texts(schema.get("required")))
    types: set[str] = set()
    if "type" in whole:
        types.update(types_of(whole))
    for key in COMBINATIONS:
        given = schema.get(key)
        if not isinstance(given, Sequence) or isinstance(given, str):
            continue
        parts = [resolved(part, root, steps=steps - 1, known=known) for part in given]
        required |= _required_by(parts, all_of=key == "allOf")
        for part in parts:
            types |= types_of(part)
            # The schema's own keywords come first, then those of the first part that has them.
            inner = _mapping(part.get("properties"))
            _add_missing(properties, inner, inner)
            _add_missing(whole, part, ("items", "format", "enum", "description", "title", "default"))
    if types:
        whole["type"] = sorted(types)
    if properties:
        whole["properties"] = properties
        whole["required"] = sorted(required)
    return whole


def _add_missing(whole: dict[str, Any], part: Mapping[str, Any], names: Iterable[str]) -> None:
    """Add those keywords of a part that are missing in the whole."""
    for name in names:
        if name in part:
            whole.setdefault(name, part[name])


def _required_by(parts: Sequence[Mapping[str, Any]], *, all_of: bool) -> set[str]:
    """Return the properties that all parts together require, or that each of several alternatives requires."""
    by_part: list[set[str]] = []
    for part in parts:
        # A part that only allows null, or is empty, requires nothing.
        if types_of(part):
            by_part.append(set(_texts(part.get("required"))))
    if not by_part:
        return set()
    if all_of:
        return set.union(*by_part)
    return set.intersection(*by_part)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return value


def _texts(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        return []
    return [text for text in value if isinstance(text, str)]


# --- results ---

_FIELD: Final = re.compile(r"[@$]?[^\W\d][\w-]{0,59}")
_CODE: Final = re.compile(r"[0-9a-f-]{8,}|(?:\D*\d){3}.*", re.IGNORECASE | re.DOTALL)
"""Hexadecimal, or three digits and more: an id, a date, a telephone number."""
_SHORT_ID: Final = re.compile(r"[^\W\d_]{1,2}[-_]?\d+")
_DIGIT: Final = re.compile(r"\d")


def paths_of(value: Any) -> dict[str, frozenset[str]]:
    """Return the JSON types of the values in a result by path; "" is the result itself. At most 1,000 values are read.

    >>> paths_of({"user": {"id": 7}, "tags": ["a"]})
    {'user.id': frozenset({'integer'}), 'tags[]': frozenset({'string'})}
    """
    types: dict[str, frozenset[str]] = {}
    for path, kind in islice(_walk(value, "", 0), SCHEMA_LIMITS.values):
        if kind == "null":
            continue
        # A known path may still get another type.
        if path in types or len(types) < SCHEMA_LIMITS.leaves:
            types[path] = types.get(path, frozenset()) | {kind}
    return types


def shows_fields(output: Any) -> bool:
    """Return True if a tool's result has fields to learn: an object or list with content that reports no error."""
    # A result that reports an error has the fields of errors.
    if isinstance(output, Mapping):
        return bool(output) and not output.get("error") and not output.get("errors")
    if not isinstance(output, (list, tuple)):
        return False
    for element in output:
        if isinstance(element, (Mapping, list, tuple)):
            return True
    return False


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
    look like short ids ("o1", "C-2"), or contain a digit and lead to objects; or if at least two lead to objects that
    all have the same fields.
    """
    keys = [str(key) for key in value]
    fields = [key for key in value if is_field(key)]
    if len(keys) > SCHEMA_LIMITS.fields or 2 * len(fields) < len(keys):
        return True
    for key in keys:
        # A field may begin with "@"; in an e-mail address it is inside.
        if "@" in key[1:]:
            return True
    rows = list(value.values())
    if not _are_objects(rows):
        return all(map(_SHORT_ID.fullmatch, keys))
    if all(map(_DIGIT.search, keys)):
        return True
    return len(rows) > 1 and _have_same_fields(rows)


def _are_objects(rows: Sequence[Any]) -> bool:
    """Return True if all rows are objects with content."""
    for row in rows:
        if not isinstance(row, Mapping) or not row:
            return False
    return True


def _have_same_fields(rows: Sequence[Mapping[str, Any]]) -> bool:
    for row in rows:
        if row.keys() != rows[0].keys():
            return False
    return True


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield path and JSON type of the values in a result."""
    is_container = isinstance(value, (Mapping, list, tuple)) and len(value) > 0
    if not is_container or depth >= SCHEMA_LIMITS.depth:
        yield path, type_of(value)
        return
    rows = value
    if isinstance(value, Mapping):
        if not is_table(value):
            yield from _walk_fields(value, path, depth)
            return
        rows = value.values()
    for row in islice(rows, SCHEMA_LIMITS.rows):
        yield from _walk(row, f"{path}[]", depth + 1)


def _walk_fields(value: Mapping[Any, Any], path: str, depth: int) -> Iterator[tuple[str, str]]:
    before = ""
    if path:
        before = f"{path}."
    for key, inner in value.items():
        if is_field(key):
            yield from _walk(inner, f"{before}{key}", depth + 1)
