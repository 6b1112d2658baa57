"""Names of the arguments seen in calls of a tool, and the users whose calls had them.

A name that only one user's calls had is deleted with that user: arguments may be keyed by people's names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from langgraph_toolmem.base.shapes import Shape, each, number, text
from langgraph_toolmem.graph.state import slot_key

SHAPES: Final[Mapping[str, Shape]] = {
    "given": each(number),
    "parameters_seen": each(each(number)),
    "parameters_of": each(text),
}
"""Per tool: counts of names whose value no earlier output had, JSON types by name, and the only user of a name."""


def add(entry: dict[str, Any], types: Mapping[str, str], given: Sequence[str], user: str | None) -> None:
    """Add a call to the entry of its tool; see `operations.Arguments`."""
    for parameter in given:
        counted = entry.setdefault("given", {})
        counted[parameter] = counted.get(parameter, 0) + 1
    entry["calls_read"] = entry.get("calls_read", 0) + 1
    known, whose = entry.setdefault("parameters_seen", {}), entry.setdefault("parameters_of", {})
    for parameter, kind in types.items():
        if parameter not in known and user:
            whose[parameter] = user
        elif whose.get(parameter, user) != user:
            del whose[parameter]
        kinds = known.setdefault(parameter, {})
        kinds[kind] = kinds.get(kind, 0) + 1


def forget(tools: Mapping[str, dict[str, Any]], user: str, tables: Iterable[dict[str, Any]]) -> int:
    """Delete names that only this user's calls had and no schema has, and their rows in tables; return how many."""
    gone = set()
    for tool, entry in tools.items():
        whose, declared = entry.get("parameters_of", {}), (entry.get("parameters") or {}).get("properties") or {}
        for parameter in [name for name, owner in whose.items() if owner == user]:
            del whose[parameter]
            if parameter not in declared:
                gone.add(slot_key(tool, parameter))
                for name in ("parameters_seen", "given"):
                    entry.get(name, {}).pop(parameter, None)
    for rows in tables if gone else ():
        for key in [key for key in rows if key.partition("\x1e")[0] in gone]:
            del rows[key]
    return len(gone)
