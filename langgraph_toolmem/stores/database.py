"""The SQLite file of a memory's folder, ``memory.db``: one way to open it, to tell its format, to set it aside.

Its tables belong to who brings them: a `Database` with tables is the queue of jobs (`stores.job_queue`), the log of
decisions (`navigator.decide.recording`), the progress of a cold start (`stores.cold_start`). Each has a connection of
its own, and several threads and processes may use the file at once.

- *Durable*: write-ahead log, fully synchronous. A transaction that was left is on disk: a kill or a power cut loses
  nothing of it.
- *Forgetful*: what is deleted is overwritten; `Database.scrub` does so with copies in pages and in the log, too.
- *Damaged*: the file is set aside as ``memory.db.corrupt-1``, never deleted, and an empty one begun.
- *Foreign, or newer than this package*: it is left alone, and `StorageError` raised.

It takes SQLite 3.35, as Chroma does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias
from urllib.parse import quote

from langgraph_toolmem.base import locks
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.disk import free_names

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("langgraph_toolmem.stores.database")

NAME: Final = "memory.db"
FORMAT: Final = 1
MARK: Final = int.from_bytes(b"tmem", "big")
"""What SQLite calls the application's id."""
LOOK_SECONDS: Final = 0.02
LOG_PAGES: Final = 100
"""Pages of the log after which it goes into the file: a damaged page of the log costs what came after it in the log."""

Values: TypeAlias = "Sequence[Any] | Mapping[str, Any]"
"""For the places of an SQL statement."""

_kept_from_a_parent: list[sqlite3.Connection] = []


class Database:
    """Tables of one owner in a file, or in RAM; opened when they are first used.

    Safe to use from several threads, and in a process that was forked off. Everything here blocks for the disk, and
    raises `StorageError` if the file cannot be used.

    Args:
        folder: made with the first use. None: in RAM.
        read_only: as long as nothing is written, questions change nothing in the folder.

    Attributes:
        tables: name of each to its columns and constraints, as SQL; made if they are missing.
        name: of the file.
        nowhere: what SQLite calls the place without a folder: ":memory:", or "" for a file without a name.
        synchronous: what SQLite calls how long a transaction waits for the disk.
        busy: seconds that another process's write is waited for.
    """

    tables: ClassVar[Mapping[str, str]] = {}
    name: ClassVar[str] = NAME
    nowhere: ClassVar[str] = ":memory:"
    synchronous = "FULL"
    busy: ClassVar[float] = 30.0

    def __init__(self, folder: Path | None, *, read_only: bool = False) -> None:
        self.folder, self.read_only = folder, read_only
        self.path = None if folder is None else folder / self.name
        self._lock = locks.rlock()
        self._database: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._process = os.getpid()
        self._closed = self._doubted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def empty(self) -> bool:
        """Whether nothing was ever written; tells without making or opening a file."""
        return self._database is None and (self.path is None or _file(self.path) is None)

    def ask(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """What a question finds; nothing if nothing was ever written."""
        if self.read_only and self._database is None and self.path is not None:
            return look(self.path, sql, values) or []
        if self.empty:
            return []
        with self.opened() as database:
            return database.execute(sql, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all that is done inside, or nothing, whatever interrupts it."""
        with self.opened() as database:
            try:
                if database.in_transaction:  # an interrupt ended the last one, and another its end
                    database.execute("ROLLBACK")
                database.execute("BEGIN IMMEDIATE")
                yield database
                database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time."""
        where = "The database in memory" if self.path is None else str(self.path)
        with self._lock:
            if self._closed:  # a thread that was left alone may come late
                raise StorageError(f"{where} is closed.")
            try:
                yield self._connection()
            except (sqlite3.Error, OSError) as error:
                if _is_damage(error):
                    self._let_go()
                    self._doubted = True
                raise StorageError(
                    f"{where} cannot be used: {error}. Check that it can be read and written and that the disk is not "
                    "full."
                ) from error

    def scrub(self) -> None:
        """What was deleted from these tables goes from the file and from its log.

        Raises:
            StorageError: another process reads the file all the time; do it again.
        """
        with self.writing() as database:
            for name, columns in self.tables.items():
                # Pages keep copies of rows that were moved. Those of a table that is dropped are overwritten.
                database.execute(f"CREATE TABLE again ({columns})")
                database.execute(f"INSERT INTO again SELECT * FROM {name}")
                database.execute(f"DROP TABLE {name}")
                database.execute(f"ALTER TABLE again RENAME TO {name}")
        with self.opened() as database:
            busy = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise StorageError(f"{self.path} is read by another process; old pages are still on disk. Do it again.")

    def close(self) -> None:
        """Closes the file. Twice is harmless."""
        with self._lock:
            self._closed = True
            self._let_go()

    def _let_go(self) -> None:
        database, self._database = self._database, None
        if database is not None and self._process == os.getpid():
            database.close()
        elif database is not None:
            _kept_from_a_parent.append(database)  # it must not cross a fork, not even to be closed

    def _connection(self) -> sqlite3.Connection:
        set_aside = self.path is not None and _file(self.path) not in (None, self._file)  # by another connection
        if set_aside or self._process != os.getpid():
            self._let_go()
        if self._database is None:
            self._process, self._database = os.getpid(), self._open()
        return self._database

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return self._connect(self.nowhere)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        seen = _file(self.path)
        try:
            made = self._connect(self.path)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            if _file(self.path) == seen:  # else another process has set it aside meanwhile
                _set_aside(self.path)
            made = self._connect(self.path)
        self._file = _file(self.path)
        return made

    def _connect(self, place: str | Path) -> sqlite3.Connection:
        database = sqlite3.connect(place, timeout=self.busy, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(database, str(place))
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection, place: str) -> None:
        database.execute("PRAGMA secure_delete = ON")
        marked = _check(database, place)
        self._begin_log(database)
        database.execute(f"PRAGMA synchronous = {self.synchronous}")
        database.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        database.execute("BEGIN IMMEDIATE")
        for name, columns in self.tables.items():
            database.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
        _check_pages(database, *(() if self._doubted else self.tables))  # not all: a log of decisions is large
        if not marked:
            database.execute(f"PRAGMA application_id = {MARK}")
            database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute("COMMIT")

    def _begin_log(self, database: sqlite3.Connection) -> None:
        """Here SQLite itself does not wait for another process that makes the same file at this moment."""
        for left in range(int(self.busy / LOOK_SECONDS), -1, -1):
            try:
                database.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or not left:
                    raise
                time.sleep(LOOK_SECONDS)
            else:
                return


def held_in(folder: Path | None) -> Path | None:
    """The database of a folder; None if there is none."""
    path = None if folder is None else folder / NAME
    return None if path is None or _file(path) is None else path


def look(path: Path, sql: str, values: Values = ()) -> list[tuple[Any, ...]] | None:
    """What a question finds, None if its table is not there. Nothing is made or changed, or begun beside the file.

    Args:
        path: of the file.
        sql: the question.
        values: for its places.

    Raises:
        StorageError: the file cannot be read.
    """
    if _file(path) is None:
        return None
    # While nobody has it open there is no log beside it, and looking must not begin one.
    quiet = "" if Path(f"{path}-wal").exists() else "&immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro{quiet}", uri=True)) as database:
            _check(database, path.name)
            return database.execute(sql, values).fetchall()
    except sqlite3.Error as error:
        if "no such table" in str(error):
            return None
        raise StorageError(f"{path.name} cannot be read: {error}") from error


def _check(database: sqlite3.Connection, place: str) -> bool:
    """Refuses what this package did not write, or cannot read; returns whether it bears the package's mark."""
    names = _names(database)  # before the mark: another process may make tables and mark, at once, between the two
    mark, version = (database.execute(f"PRAGMA {each}").fetchone()[0] for each in ("application_id", "user_version"))
    if mark != MARK and (mark or names):
        raise StorageError(f"{place} is a database of another program; move it away.")
    if version > FORMAT:
        raise StorageError(f"{place} was written by a newer version of this package (format {version}); update it.")
    return bool(mark == MARK)


def _check_pages(database: sqlite3.Connection, *tables: str) -> None:
    """Raises `sqlite3.DatabaseError` if these tables, or anything if none is named, are damaged."""
    for part in tables or (1,):
        if (found := database.execute(f"PRAGMA quick_check({part})").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found)


def _names(database: sqlite3.Connection) -> set[str]:
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return {name for (name,) in found.fetchall()}


def _is_damage(error: Exception) -> bool:
    """The subclasses are for what is locked, full or not to be opened: the file itself may be fine."""
    return type(error) is sqlite3.DatabaseError


def _set_aside(path: Path) -> None:
    aside = next(free_names(path.parent, path.name))
    for ending in ("-wal", "-shm", ""):  # a log that is left would be taken for the new file's
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{ending}", f"{aside}{ending}")  # noqa: PTH105 - as elsewhere in this package
    logger.error("%s is damaged; set aside as %s, and an empty one begun", path.name, aside.name)


def _file(path: Path) -> tuple[int, int] | None:
    """Which file has this name now."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
