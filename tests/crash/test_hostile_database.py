"""A ``memory.db`` of the right mark in which a stranger ran SQL: nothing of it runs, and what can be read is kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from langgraph_toolmem import Inertia, ToolMemory
from langgraph_toolmem.cli.health import examine
from langgraph_toolmem.stores.database import NAME, Database

ENDLESS = "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c)"
RUNS = 4
PAGE = 4096


class Counts(Database):
    """A table of texts."""

    tables: ClassVar[Mapping[str, str]] = {"counts": "value TEXT"}


def run_of(number: int) -> list[tuple[str, str]]:
    return [("user", f"hello {number}"), ("assistant", "ho")]


def learned(folder: Path) -> None:
    with ToolMemory(folder, methods=[Inertia()]) as memory:
        for number in range(RUNS):
            memory.observe(run_of(number), thread_id=str(number))


HOSTILE = {
    "a view in place of a table": (
        [
            "ALTER TABLE events RENAME TO other",
            f"CREATE VIEW events AS SELECT n AS seq, 'k' || n AS key, '' AS origin, n AS number, '' AS user, "
            f"'' AS run, '[]' AS body, 0 AS checksum FROM {ENDLESS}",
        ],
        0,
    ),
    "an endless trigger": (
        [f"CREATE TRIGGER t AFTER INSERT ON events BEGIN INSERT INTO meta SELECT 'k' || n, n FROM {ENDLESS}; END"],
        RUNS,
    ),
    "a refusing trigger": (
        ["CREATE TRIGGER t BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no'); END"],
        RUNS,
    ),
    "a text as the last number": (["UPDATE sqlite_sequence SET seq = 'abc' WHERE name = 'events'"], RUNS),
    "an index with a function": (["CREATE INDEX i ON events (length(hex(zeroblob(1000))))"], RUNS),
    "a computed column": (["ALTER TABLE events ADD COLUMN more AS (hex(zeroblob(1000)))"], 0),
}
"""What was run, and how many turns are kept: none of a table that has another name or another SQL."""


@pytest.mark.parametrize("what", HOSTILE)
def test_sql_of_a_stranger_runs_nowhere_and_what_can_be_read_is_kept(tmp_path: Path, what: str) -> None:
    learned(tmp_path)
    statements, kept = HOSTILE[what]
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)
    with ToolMemory(tmp_path, methods=[Inertia()]) as memory:
        assert memory.report().turns == kept
        memory.observe(run_of(RUNS), thread_id=str(RUNS))
        report = memory.report()
    assert report.turns == kept + 1
    assert any(NAME in problem for problem in report.problems) or what == "a text as the last number"
    with ToolMemory(tmp_path, methods=[Inertia()]) as memory:
        assert memory.report().turns == kept + 1
        assert memory.report().problems == ()
    kept_aside = [problem for problem in examine(tmp_path)["problems"] if "quarantined" in problem]
    assert len(kept_aside) == len(list(tmp_path.glob(f"{NAME}.corrupt-?")))


def test_an_error_that_quotes_damaged_text_counts_as_damage(tmp_path: Path) -> None:
    learned(tmp_path)
    file = tmp_path / NAME
    data = file.read_bytes()
    schema = b"CREATE TABLE events ("
    assert data.count(schema) == 1
    file.write_bytes(data.replace(schema, b"CREATE TABLE events \xcc"))
    with ToolMemory(tmp_path, methods=[Inertia()]) as memory:
        memory.observe(run_of(RUNS), thread_id=str(RUNS))
        assert memory.report().turns >= 1
        assert any("renamed" in problem for problem in memory.report().problems)
    with ToolMemory(tmp_path, methods=[Inertia()]) as memory:
        assert memory.report().problems == ()
        assert memory.report().turns >= 1


def test_a_damaged_page_is_repaired_by_the_look_up_that_meets_it(tmp_path: Path) -> None:
    with Counts(tmp_path) as counts, counts.writing() as database:
        for number in range(2_000):
            database.execute("INSERT INTO counts VALUES (?)", (f"{number:0100}",))
    file = tmp_path / NAME
    data = bytearray(file.read_bytes())
    middle = len(data) // PAGE // 2 * PAGE
    data[middle : middle + PAGE] = bytes(PAGE)
    with Counts(tmp_path) as counts:
        assert counts.ask("SELECT 1 FROM counts LIMIT 1") == [(1,)]
        file.write_bytes(data)
        rows = counts.ask("SELECT value FROM counts")
        assert 1_500 < len(rows) < 2_000
        assert any("cannot be read" in problem for problem in counts.problems)
