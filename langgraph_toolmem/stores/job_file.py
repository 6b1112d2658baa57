"""The SQLite file under the queue and under the log of decisions: opened late, durable, set aside if damaged."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.disk import free_names

logger = logging.getLogger("langgraph_toolmem.stores.job_queue")

FORMAT: Final = 1
BUSY_SECONDS: Final = 30.0
"""How long another process's write is waited for."""
LOOK_SECONDS: Final = 0.02

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    line TEXT NOT NULL,
    user TEXT NOT NULL,
    payload TEXT NOT NULL,
    answer TEXT,
    due REAL NOT NULL,
    owner TEXT NOT NULL DEFAULT '',
    lease REAL NOT NULL DEFAULT 0,
    takes INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    given_up INTEGER NOT NULL DEFAULT 0
)
"""
_FORGETTINGS: Final = "CREATE TABLE IF NOT EXISTS forgettings (number INTEGER PRIMARY KEY AUTOINCREMENT)"
_PLACES: Final = """
CREATE TABLE IF NOT EXISTS places (run TEXT PRIMARY KEY, namespace TEXT NOT NULL, user TEXT NOT NULL)
"""
_LINE_INDEX: Final = "CREATE INDEX IF NOT EXISTS jobs_line ON jobs (line, seq)"

_kept_from_a_parent: list[sqlite3.Connection] = []


class QueueFile:
    """One database file, or one in RAM. Every method raises `StorageError` if it cannot be used.

    Args:
        path: of the file; its folder is made with the first writing. None: in RAM.

    Attributes:
        what: what the file is, for messages.
        version: of its format.
        schema: its tables, each made if it is missing.
        busy: seconds that another process's write is waited for.
    """

    what: ClassVar[str] = "queue"
    version: ClassVar[int] = FORMAT
    schema: ClassVar[tuple[str, ...]] = (_SCHEMA, _FORGETTINGS, _PLACES, _LINE_INDEX)
    busy: ClassVar[float] = BUSY_SECONDS

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._database: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._closed = False

    @property
    def where(self) -> str:
        """The place, for error messages."""
        return f"The {self.what} in memory" if self.path is None else str(self.path)

    @property
    def empty(self) -> bool:
        """Whether nothing was ever written; tells without making or opening a file."""
        if self._database is not None:
            return False
        return self.path is None or not self.path.exists()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all that is done inside, or nothing."""
        with self.opened() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time."""
        with self._lock:
            try:
                yield self._connection()
            except sqlite3.Error as error:
                raise StorageError(
                    f"{self.where} cannot be used: {error}. Check that it can be read and written and that the disk "
                    "is not full."
                ) from error
            except OSError as error:
                raise StorageError(f"{self.where} cannot be used: {error.strerror or error}.") from error

    def scrub(self) -> None:
        """What was deleted goes from the file and from its log."""
        with self.opened() as database:
            database.execute("VACUUM")
            busy = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise StorageError(f"{self.where} is read by another process; old pages are still on disk. Do it again.")

    def close(self) -> None:
        """Closes the file. Twice is harmless."""
        with self._lock:
            database, self._database, self._closed = self._database, None, True
            if database is not None and self._process == os.getpid():
                database.close()

    def _connection(self) -> sqlite3.Connection:
        if self._closed:
            raise StorageError(f"{self.where} is closed.")
        if self._process != os.getpid():
            if self._database is not None:
                # A connection must not cross a fork, not even to be closed.
                _kept_from_a_parent.append(self._database)
            self._database, self._process = None, os.getpid()
        if self._database is None:
            self._database = self._open()
        return self._database

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return self._connect()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._connect()
        except sqlite3.OperationalError:
            raise  # locked, full, not to be opened: the file itself may be fine
        except sqlite3.DatabaseError:
            aside = next(free_names(self.path.parent, self.path.name))
        os.replace(self.path, aside)  # noqa: PTH105 - as elsewhere in this package
        for ending in ("-wal", "-shm"):
            Path(f"{self.path}{ending}").unlink(missing_ok=True)
        logger.error("%s is damaged; set aside as %s, and an empty %s begun", self.path.name, aside.name, self.what)
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        place = ":memory:" if self.path is None else str(self.path)
        database = sqlite3.connect(place, timeout=self.busy, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        database.execute("PRAGMA secure_delete = ON")
        found = database.execute("PRAGMA user_version").fetchone()[0]
        if found > self.version:
            raise StorageError(
                f"The {self.what} was written by a newer version of this package (format {found}); update it."
            )
        self._begin_log(database)
        database.execute("PRAGMA synchronous = FULL")
        if database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("damaged")
        database.execute("BEGIN IMMEDIATE")
        for statement in self.schema:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {self.version}")
        database.execute("COMMIT")

    def _begin_log(self, database: sqlite3.Connection) -> None:
        """Here SQLite itself does not wait for another process that makes the same file at this moment."""
        for _ in range(int(self.busy / LOOK_SECONDS)):
            try:
                database.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                time.sleep(LOOK_SECONDS)
            else:
                return
        database.execute("PRAGMA journal_mode = WAL")
