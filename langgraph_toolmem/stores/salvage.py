"""A damaged ``chroma.sqlite3``: noticed before Chroma opens it, set aside, and what can be read of it told.

Chroma's folder is renamed to ``chroma.corrupt-1``, never deleted; ``chroma.lost`` has that name until its rows are in
the new database (`reembed.restore`), so that a process that is killed in between loses none.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from langgraph_toolmem.stores.snapshot import free_name

DATABASE: Final = "chroma.sqlite3"
MARK: Final = "chroma.lost"
TEXT: Final = "chroma:document"
"""Chroma's key of the text of a row."""
MOST_ROWS: Final = 1 << 40
_VALUES: Final = "string_value, int_value, float_value, bool_value"


class Row(NamedTuple):
    """A row that can be read."""

    id: str
    text: str
    metadata: dict[str, Any]


def damage(folder: Path) -> str | None:
    """What is wrong with the database in Chroma's folder; None: nothing, or it cannot be looked at now."""
    if not (folder / DATABASE).exists():
        return "it is gone" if any(folder.glob("*/header.bin")) else None
    try:
        with closing(sqlite3.connect(folder / DATABASE)) as database:
            said = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        return None
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if said == "ok" else said


def set_aside(folder: Path) -> Path:
    """Moves Chroma's folder out of the way; returns where.

    Raises:
        OSError: it cannot be moved.
    """
    aside = free_name(folder)
    (folder.parent / MARK).write_text(aside.name, encoding="utf-8")
    return folder.rename(aside)


def lost(folder: Path) -> Path | None:
    """The folder that was set aside and whose rows are not put back yet."""
    try:
        aside = folder.parent / (folder.parent / MARK).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    return aside if aside.name.startswith(f"{folder.name}.corrupt-") and aside.is_dir() else None


def collections(aside: Path) -> Iterator[tuple[str, dict[str, Any], list[Row]]]:
    """Name, metadata and rows of each collection, as far as they can be read."""
    try:
        with closing(sqlite3.connect(aside / DATABASE)) as database:
            names = dict(_rows(database, "collections", "id, name"))
            of: dict[str, dict[str, Any]] = defaultdict(dict)
            for owner, key, *values in _rows(
                database, "collection_metadata", "collection_id, key, str_value, int_value, float_value, bool_value"
            ):
                of[owner][key] = _value(values)
            segments = dict(_rows(database, "segments", "id, collection"))
            metadata: dict[int, dict[str, Any]] = defaultdict(dict)
            for number, key, *values in _rows(database, "embedding_metadata", f"id, key, {_VALUES}"):
                metadata[number][key] = _value(values)
            for number, key, *values in _rows(database, "embedding_metadata_array", f"id, key, {_VALUES}"):
                metadata[number].setdefault(key, []).append(_value(values))
            found: dict[str, list[Row]] = defaultdict(list)
            for number, segment, key in _rows(database, "embeddings", "id, segment_id, embedding_id"):
                if TEXT in (rest := metadata.get(number, {})):
                    found[segments.get(segment, "")].append(Row(key, rest.pop(TEXT), rest))
    except sqlite3.Error:
        return
    for owner, name in names.items():
        yield name, of[owner], found[owner]


def _value(values: list[Any]) -> Any:
    *plain, flag = values
    return bool(flag) if flag is not None else next((each for each in plain if each is not None), None)


def _rows(database: sqlite3.Connection, table: str, columns: str) -> list[tuple[Any, ...]]:
    """The rows of a table but for those that cannot be read, and some behind a long damaged stretch."""
    found: list[tuple[Any, ...]] = []
    at, step = 0, 1
    sql = f"SELECT rowid, {columns} FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid"
    while at < MOST_ROWS:
        try:
            for number, *row in database.execute(sql, (at,)):
                found.append(tuple(row))
                at, step = number, 1
            break
        except sqlite3.DatabaseError:
            at, step = at + step, 2 * step
    return found
