"""What a memory notes of a tool, so that it can search and plan without the tool at hand, and the tool it tells of.

A note holds description and parameters always, the rest as far as something is said: the schema of the result, the
effects, tags, toolkit and category.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from langgraph_toolmem.runs.tools import ToolSpec

MAX_RETURNS: Final = 20_000
"""Characters of JSON from which the schema of a result is not noted: thousands of tools may come with it."""
_TEXTS: Final = ("toolkit", "category")
_NOTHING: Final[tuple[Any, ...]] = (None, "", [])
EFFECTS: Final = ("read_only", "destructive", "idempotent", "controls")
"""Fields of a note that tell what a tool does to the world."""
_GRAVE: Final = dict(zip(EFFECTS, (False, True, False, True), strict=True))
"""The graver of two words about an effect."""


def changes_of(spec: ToolSpec, known: Mapping[str, Any]) -> dict[str, Any]:
    """What is to be noted of a tool, in plain containers; {} if that is known already.

    Args:
        spec: the tool.
        known: what was noted before. What it said and is said no more is noted as empty.
    """
    said: dict[str, Any] = {field: getattr(spec, field) for field in (*_TEXTS, *EFFECTS)}
    said["tags"] = list(spec.tags)
    said["returns"] = spec.returns if known.get("returns") == spec.returns or _short(spec.returns) else None
    note = {"description": spec.description, "parameters": spec.parameters}
    note |= {field: value for field, value in said.items() if value not in _NOTHING or known.get(field) not in _NOTHING}
    return note if any(field not in known or known[field] != value for field, value in note.items()) else {}


def spec_of(name: str, note: Mapping[str, Any]) -> ToolSpec:
    """The tool that a note tells of."""
    returns, tags = note.get("returns"), note.get("tags")
    rest: dict[str, Any] = {field: str(note.get(field, "")) for field in _TEXTS}
    rest |= {field: effect for field in EFFECTS if isinstance(effect := note.get(field), bool)}
    return ToolSpec(
        name,
        str(note.get("description", "")),
        note["parameters"],
        returns=returns if isinstance(returns, dict) else None,
        tags=tuple(map(str, tags)) if isinstance(tags, list) else (),
        **rest,
    )


def gravest(spec: ToolSpec, others: Iterable[ToolSpec]) -> ToolSpec:
    """A tool with all that is said of its effects, whoever says it: of two words about one effect the graver."""
    said = [spec, *others]
    marks: dict[str, Any] = {}
    for effect, grave in _GRAVE.items():
        words = {getattr(each, effect) for each in said} - {None}
        marks[effect] = None if not words else grave if grave in words else not grave
    same = all(getattr(spec, effect) is mark for effect, mark in marks.items())
    return spec if same else replace(spec, **marks)


def grave_marks(spec: ToolSpec) -> ToolSpec:
    """A tool with its grave marks alone: what may not be lost because somebody else does not know of it."""
    marks: dict[str, Any] = {field: mark if getattr(spec, field) is mark else None for field, mark in _GRAVE.items()}
    return replace(spec, **marks)


def without_choices(spec: ToolSpec) -> ToolSpec:
    """A tool whose schema names no values: no choices, defaults or examples of a parameter."""
    properties = {
        name: {key: value for key, value in schema.items() if key not in ("enum", "const", "default", "examples")}
        for name, schema in spec.properties.items()
    }
    return replace(spec, parameters={**spec.parameters, "properties": properties})


def _short(schema: Mapping[str, Any] | None) -> bool:
    try:
        return len(json.dumps(schema)) <= MAX_RETURNS
    except (TypeError, ValueError, RecursionError):  # no JSON: it cannot be kept
        return False
