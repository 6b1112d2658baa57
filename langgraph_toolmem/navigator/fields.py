"""Fields of tools' results, as the evidence graph keeps them: paths and JSON types, never values.

A row is ``{path: [types, whose]}``; `whose` is the digest of the one user whose runs showed the path, or "" if several
users' did or nobody knows. Names of fields may be personal all the same, where somebody keys a table by people's names.
So what only one user's runs showed goes when that user is forgotten, and a path with a part that may be a name ("Ann")
is not used before somebody else's run has shown it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

MAX_PATHS: Final = 96
"""Paths kept of one tool."""

Row = dict[str, list[Any]]


def new_in(row: Mapping[str, list[Any]], paths: Mapping[str, Iterable[str]], user: str | None) -> dict[str, list[str]]:
    """Return what a result shows that is not in the row yet, to be added to it.

    Args:
        row: what is known.
        paths: path -> JSON types of the result.
        user: digest of the user, if known.
    """
    found: dict[str, list[str]] = {}
    for path, types in paths.items():
        known = row.get(path)
        if known is None:
            if len(row) + len(found) < MAX_PATHS:
                found[path] = sorted(types)
        elif (user and known[1] not in ("", user)) or not set(types) <= set(known[0]):
            found[path] = sorted(types)
    return found


def add(row: Row, paths: Mapping[str, Iterable[str]], user: str | None) -> None:
    """Adds what `new_in` found."""
    for path, types in paths.items():
        known = row.get(path)
        if known is None:
            if len(row) < MAX_PATHS:
                row[path] = [sorted(types), user or ""]
        else:
            row[path] = [sorted({*known[0], *types}), known[1] if user in (None, known[1]) else ""]


def usable(row: Mapping[str, list[Any]]) -> dict[str, list[str]]:
    """Path -> JSON types, without paths of one user alone that may hold a name."""
    return {path: list(types) for path, (types, whose) in row.items() if not (whose and may_be_name(path))}


def may_be_name(path: str) -> bool:
    """Return True if a part of a path looks like somebody's name: one word of letters with a capital in front."""
    return any(part.isalpha() and part.istitle() for part in path.replace("[]", "").split("."))


def forget(row: Row, user: str) -> bool:
    """Takes out what only this user's runs showed; False if there was nothing."""
    mine = [path for path, (_, whose) in row.items() if whose == user]
    for path in mine:
        del row[path]
    return bool(mine)
