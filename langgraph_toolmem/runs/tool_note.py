"""What a memory notes of a tool, so that it can search and plan without the tool at hand, and the tool it tells of.

A note holds description and parameters always, the rest as far as something is said: the schema of the result, the
effects, tags, toolkit and category.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from langgraph_toolmem.runs.tools import ToolSpec

MAX_RETURNS: Final = 20_000
"""Characters of JSON from which the schema of a result is not noted: thousands of tools may come with it."""
_TEXTS: Final = ("toolkit", "category")
_NOTHING: Final[tuple[Any, ...]] = (None, "", [])
_EFFECTS: Final = ("read_only", "destructive", "idempotent")


def changes_of(spec: ToolSpec, known: Mapping[str, Any]) -> dict[str, Any]:
    """What is to be noted of a tool, in plain containers; {} if that is known already.

    Args:
        spec: the tool.
        known: what was noted before. What it said and is said no more is noted as empty.
    """
    said: dict[str, Any] = {field: getattr(spec, field) for field in (*_TEXTS, *_EFFECTS)}
    said["tags"] = list(spec.tags)
    said["returns"] = spec.returns if known.get("returns") == spec.returns or _short(spec.returns) else None
    note = {"description": spec.description, "parameters": spec.parameters}
    note |= {field: value for field, value in said.items() if value not in _NOTHING or known.get(field) not in _NOTHING}
    return note if any(field not in known or known[field] != value for field, value in note.items()) else {}


def spec_of(name: str, note: Mapping[str, Any]) -> ToolSpec:
    """The tool that a note tells of."""
    returns, tags = note.get("returns"), note.get("tags")
    rest: dict[str, Any] = {field: str(note.get(field, "")) for field in _TEXTS}
    rest |= {field: effect for field in _EFFECTS if isinstance(effect := note.get(field), bool)}
    return ToolSpec(
        name,
        str(note.get("description", "")),
        note["parameters"],
        returns=returns if isinstance(returns, dict) else None,
        tags=tuple(map(str, tags)) if isinstance(tags, list) else (),
        **rest,
    )


def _short(schema: Mapping[str, Any] | None) -> bool:
    try:
        return len(json.dumps(schema)) <= MAX_RETURNS
    except (TypeError, ValueError, RecursionError):  # no JSON: it cannot be kept
        return False
