"""A worker of a shared store: one ``memory.db`` (all processes of its folder), or one process without a folder.

Table ``meta`` contains its name (``worker``), the numbers of its events that are numbered (``numbered``), in the store
(``sent``) and in both snapshots of the store (``held``), the number of events of each other worker (``cursors``), and
the era of its graph.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.stores.events import EMPTY, NOT_IN_SNAPSHOTS, EventLog, Row
from langgraph_toolmem.stores.shared_items import StoreView


class WorkerRows:
    """The rows of one worker, and its knowledge of the others. Safe to use from several threads and processes."""

    def __init__(self, database: EventLog) -> None:
        self.database = database

    # -- knowledge of the worker --

    def value(self, name: str, missing: Any) -> Any:
        """Return a value of ``meta``."""
        for (value,) in self.database.ask("SELECT value FROM meta WHERE name = ?", (name,)):
            return value
        return missing

    @property
    def name(self) -> str:
        """Name of the worker, "" before its first reading of the store."""
        return str(self.value("worker", ""))

    @property
    def sent(self) -> int:
        return int(self.value("sent", 0))

    @property
    def held(self) -> int:
        return int(self.value("held", 0))

    @property
    def era(self) -> str:
        return str(self.value("era", ""))

    @property
    def cursors(self) -> dict[str, int] | None:
        """Events of each other worker that are in the graph; None before the first exchange."""
        text = self.value("cursors", None)
        if text is None:
            return None
        cursors: dict[str, int] = json.loads(text)
        return cursors

    def waiting(self) -> int:
        """Return the number of events that are not in the store yet."""
        waiting = (
            "origin = '' AND (number IS NULL OR number >= ifnull((SELECT value FROM meta WHERE name = 'sent'), 0))"
        )
        for (rows,) in self.database.ask(f"SELECT count(*) FROM events WHERE {waiting}"):
            return int(rows)
        return 0

    # -- changes --

    def begin(self) -> None:
        """Begin to exchange events with an empty store."""
        with self.database.writing() as rows:
            write_meta(rows, {"cursors": "{}"})

    def mark_sent(self, end: int) -> None:
        """Record that events below a number are in the store."""
        # The largest: two processes of a folder may send at the same time, and finish in either order.
        with self.database.writing() as rows:
            latest = "max(?, ifnull((SELECT value FROM meta WHERE name = 'sent'), 0))"
            rows.execute(f"INSERT OR REPLACE INTO meta VALUES ('sent', {latest})", (end,))

    def begin_era(self, name: str, end: int) -> None:
        """Record an era whose first snapshot contains all events below a number; unsent ones are no longer sent."""
        with self.database.writing() as rows:
            write_meta(rows, {"era": name, "held": end})

    @contextmanager
    def numbered(self) -> Iterator[int]:
        """Number the events without a number, in a transaction; yield the number of this worker's events. Numbers are
        final.
        """
        with self.database.writing() as rows:
            end = int(self.value("numbered", 0))
            new = rows.execute("SELECT seq FROM events WHERE origin = '' AND number IS NULL ORDER BY seq").fetchall()
            for (seq,) in new:
                rows.execute("UPDATE events SET number = ? WHERE seq = ?", (end, seq))
                end += 1
            write_meta(rows, {"numbered": end})
            yield end

    def count(self) -> int:
        """Number the events without a number; return the number of this worker's events."""
        with self.numbered() as end:
            return end

    def read(self, start: int, end: int) -> dict[int | None, Row | None]:
        """Return own rows by number, from one number to before another; a damaged row is None."""
        stored = self.database.read("origin = '' AND number >= ? AND number < ?", (start, end))
        return {each.number: each.row for each in stored}

    def withdraw(self, gone: Forgotten, start: int = 0) -> list[int | None]:
        """Blank forgotten data among own events from a number on; return their numbers."""
        own = "SELECT seq, user, run, number FROM events WHERE origin = '' AND (number IS NULL OR number >= ?)"
        blank = "UPDATE events SET key = NULL, user = '', run = '', body = '[]', checksum = ? WHERE seq = ?"
        numbers: list[int | None] = []
        with self.database.writing() as rows:
            for seq, user, run, number in rows.execute(own, (start,)).fetchall():
                if gone.has(run, user):
                    # Blank, not deleted: the numbers of a worker have no gaps.
                    rows.execute(blank, (EMPTY.checksum, seq))
                    numbers.append(number)
        return numbers

    def shorten(self, upto: int) -> None:
        """Delete rows up to one that are in the graph, except those missing in both snapshots of the store."""
        with self.database.writing() as rows:
            rows.execute(f"DELETE FROM events WHERE seq <= ? AND NOT ({NOT_IN_SNAPSHOTS})", (upto,))

    # -- identity of the worker --

    def identify(self, view: StoreView) -> bool:
        """Return True if this worker's identity is unchanged. Otherwise it is a new worker: one that never read the
        store, a copy of a folder, one that was restored from a backup (the store has events that it lacks) or was
        removed from the list. Events that were sent under the old name now belong to another worker.
        """
        me, numbered = self.name, int(self.value("numbered", 0))
        if me != view.me:
            return False
        has_events = view.head > 0 or not view.sent
        if me and self._place() == self.value("place", None) and view.head <= numbered and has_events:
            return True
        # Two workers of one name would give different events the same numbers, and overwrite each other's.
        with self.database.writing() as rows:
            if self.name == me:
                self._rename(rows, view, numbered)
        return False

    def _rename(self, rows: sqlite3.Connection, view: StoreView, numbered: int) -> None:
        me, known = view.me, self.cursors
        new: dict[str, Any] = {"numbered": 0, "sent": 0, "held": 0}
        if me:
            sent = view.sent
            if view.latest is not None:
                sent = view.latest.cursors.get(me, sent)
            end = min(view.head or sent, numbered)
            rows.execute("UPDATE events SET origin = ? WHERE origin = '' AND number < ?", (me, end))
            rows.execute("UPDATE events SET number = NULL WHERE origin = ''")
            if known is not None:
                new["cursors"] = json.dumps({**known, me: end})
        else:  # numbered rows are of a damaged `memory.db`: most were sent, and are fetched from the store
            rows.execute("DELETE FROM events WHERE origin = '' AND number IS NOT NULL")
            rows.execute("DELETE FROM meta WHERE name = 'cursors'")
        new["worker"] = uuid.uuid4().hex
        new["place"] = self._place()
        write_meta(rows, new)

    def _place(self) -> str:
        path = self.database.path
        return "" if path is None else f"{socket.gethostname()}|{path.stat().st_ino}"


def write_meta(rows: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    """Write values of ``meta`` in the open transaction."""
    rows.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
