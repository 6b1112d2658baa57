"""Tables of a cold start in the memory's database (`offline.coldstart.state`), and the deletion of a user from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from langgraph_toolmem.stores.database import Database, held_in


class ColdStartTables(Database):
    """The tables, in a folder or in RAM."""

    tables: ClassVar[Mapping[str, str]] = {
        "queries": """
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            scope TEXT NOT NULL,
            user TEXT NOT NULL,
            id TEXT NOT NULL UNIQUE,
            text TEXT NOT NULL,
            tools TEXT NOT NULL,
            kind TEXT NOT NULL,
            stage TEXT NOT NULL DEFAULT 'waiting',
            tries INTEGER NOT NULL DEFAULT 0,
            deaths INTEGER NOT NULL DEFAULT 0,
            entry TEXT,
            answer TEXT,
            judged INTEGER NOT NULL DEFAULT 0,
            outcome TEXT NOT NULL DEFAULT '',
            error TEXT NOT NULL DEFAULT '',
            UNIQUE (scope, stage, seq)
        """,
        "spent": """
            scope TEXT NOT NULL,
            purpose TEXT NOT NULL,
            calls INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            PRIMARY KEY (scope, purpose)
        """,
    }


def forget_user(folder: Path, user: str) -> int:
    if held_in(folder) is None:
        return 0
    with ColdStartTables(folder) as kept:
        with kept.writing() as database:
            scopes = database.execute("SELECT DISTINCT scope FROM queries WHERE user = ?", (user,)).fetchall()
            found = database.execute("DELETE FROM queries WHERE user = ?", (user,)).rowcount
            database.executemany("DELETE FROM spent WHERE scope = ?", scopes)
        kept.scrub()  # always: an earlier attempt may have failed behind this point
    return found
