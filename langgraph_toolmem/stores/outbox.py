"""Records on their way to a shared store: in a file of the folder, or where there is none, in RAM and then on disk."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from langgraph_toolmem.stores.database import Database
from langgraph_toolmem.stores.owners import is_dead


class Outbox(Database):
    """What each worker of a folder learned and the store is not known to have.

    A record has the number that it has in its worker's log, so that sending it twice is sending it once. Without a
    folder SQLite keeps some thousand records in RAM, and others in a file without a name.

    Args:
        folder: of the memory; None: a process that is killed leaves nothing.
        synchronous: wait for the disk with every record, so that it survives the end of the machine.
    """

    name = "shared.db"
    nowhere = ""
    tables: ClassVar = {
        "outbox": "worker TEXT NOT NULL, number INTEGER NOT NULL, record TEXT NOT NULL, PRIMARY KEY (worker, number)"
    }

    def __init__(self, folder: Path | None, *, synchronous: bool = False) -> None:
        super().__init__(folder)
        self.synchronous = "FULL" if synchronous else "NORMAL"

    def put(self, worker: str, number: int, record: str) -> None:
        """Keeps a record. It survives the end of the process when this returns."""
        with self.opened() as database:
            database.execute("INSERT INTO outbox VALUES (?, ?, ?)", (worker, number, record))

    def rows(self, worker: str, start: int, most: int = -1) -> list[tuple[int, str]]:
        """A worker's records from a number on."""
        sql = "SELECT number, record FROM outbox WHERE worker = ? AND number >= ? ORDER BY number LIMIT ?"
        return [(number, record) for number, record in self.ask(sql, (worker, start, most))]

    def sent(self, worker: str, end: int) -> None:
        """The store has a worker's records below a number."""
        if not self.empty:
            with self.opened() as database:
                database.execute("DELETE FROM outbox WHERE worker = ? AND number < ?", (worker, end))

    def change(self, how: Callable[[Any], Any], worker: str | None = None) -> int:
        """Changes records, of one worker or of all; how many."""
        sql = "SELECT worker, number, record FROM outbox WHERE worker = ?1 OR ?1 IS NULL"
        changed = [
            (json.dumps(new, separators=(",", ":")), name, number)
            for name, number, record in self.ask(sql, (worker,))
            if (new := how(old := json.loads(record))) != old
        ]
        if changed:
            with self.writing() as database:
                database.executemany("UPDATE outbox SET record = ? WHERE worker = ? AND number = ?", changed)
        if not self.empty and self.folder is not None:
            self.scrub()
        return len(changed)

    def orphans(self) -> list[str]:
        """Workers whose process is gone, and which have left something. A folder is one machine's: who was of another
        name was a container before this one."""
        names = [name for (name,) in self.ask("SELECT DISTINCT worker FROM outbox ORDER BY worker")]
        return [name for name in names if is_dead(name) or name.partition("|")[0] != socket.gethostname()]
