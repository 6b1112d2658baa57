"""The SQLite file of a memory's folder, ``memory.db``, in WAL mode: events, jobs, decisions, progress of a cold start.

Each part brings its tables in a `Database` of its own, with a connection of its own. Several threads, processes and
forked workers may use the file at once.

- A transaction that was committed survives the end of the process (``synchronous`` FULL: of the machine too).
- Deleted rows are overwritten; `Database.scrub` also removes copies of them from pages and from the log.
- A damaged file is renamed to ``memory.db.corrupt-1``, and a new one begins with the rows that can still be read.
- A file of another program, or of another release, is left alone: `StorageError`.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias
from weakref import WeakSet

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.snapshot import free_name

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("langgraph_toolmem.stores.database")

NAME: Final = "memory.db"
FORMAT: Final = 2
MARK: Final = int.from_bytes(b"tmem", "big")
POLL_SECONDS: Final = 0.02
REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs"})
"""File systems on which WAL does not work: its shared memory is one machine's."""

Values: TypeAlias = "Sequence[Any] | Mapping[str, Any]"

FORK_SECONDS: Final = 1.0

_inherited: list[sqlite3.Connection] = []  # of a parent process: must not even be closed in this one
_every: Final[WeakSet[Database]] = WeakSet()
_held: list[Any] = []


class Database:
    """The tables of one owner in ``memory.db``, or in RAM; opened when they are first used.

    Safe to use from several threads, and in a forked process. Every method blocks for the disk, up to `busy` seconds
    for another process's transaction, and raises `StorageError` if the file cannot be used.
    """

    tables: ClassVar[Mapping[str, str]] = {}  # name -> columns and constraints, as SQL

    def __init__(
        self,
        folder: Path | None,
        *,
        read_only: bool = False,
        synchronous: str = "NORMAL",
        busy: float = 30.0,
    ) -> None:
        self.folder, self.read_only = folder, read_only
        self.path = None if folder is None else folder / NAME
        self._synchronous, self._busy = synchronous, busy
        self.lock = threads.rlock()
        self._database: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._process = os.getpid()
        self._closed = self._doubted = False
        _every.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def empty(self) -> bool:
        """True if nothing was ever written. Makes and opens no file."""
        return self._database is None and (self.path is None or _file(self.path) is None)

    def ask(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        if self.read_only and self._database is None and self.path is not None:
            return query_readonly(self.path, sql, values) or []
        if self.empty:
            return []
        with self.opened() as database:
            return database.execute(sql, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        with self.opened() as database:
            try:
                if database.in_transaction:  # an interrupt ended the last one before its end
                    database.execute("ROLLBACK")
                database.execute("BEGIN IMMEDIATE")
                yield database
                database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        where = "The database in memory" if self.path is None else str(self.path)
        with self.lock:
            if self._closed:
                raise StorageError(f"{where} is closed.")
            try:
                yield self._connection()
            except (sqlite3.Error, OSError) as error:
                if _is_damage(error):
                    self._disconnect()
                    self._doubted = True
                raise StorageError(
                    f"{where} cannot be used: {error}. Check that it can be read and written and that the disk is not "
                    "full."
                ) from error

    def scrub(self) -> None:
        """Remove deleted rows from the file and its log; raise StorageError while another process reads the file."""
        with self.writing() as database:
            for name, columns in self.tables.items():
                # Pages keep copies of rows that were moved. Those of a table that is dropped are overwritten.
                database.execute(f"CREATE TABLE again ({columns})")
                database.execute(f"INSERT INTO again SELECT * FROM {name}")
                if "AUTOINCREMENT" in columns:  # numbers of deleted rows are never given again
                    database.execute("DELETE FROM sqlite_sequence WHERE name = 'again'")
                    database.execute(
                        "INSERT INTO sqlite_sequence SELECT 'again', seq FROM sqlite_sequence WHERE name = ?", (name,)
                    )
                database.execute(f"DROP TABLE {name}")
                database.execute(f"ALTER TABLE again RENAME TO {name}")
        with self.opened() as database:
            busy = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise StorageError(f"{self.path} is read by another process; old pages are still on disk. Do it again.")

    def close(self) -> None:
        with self.lock:
            self._closed = True
            self._disconnect()

    def _disconnect(self) -> None:
        database, self._database = self._database, None
        if database is not None and self._process == os.getpid():
            database.close()
        elif database is not None:
            _inherited.append(database)

    def _connection(self) -> sqlite3.Connection:
        replaced = self.path is not None and self._database is not None and _file(self.path) != self._file
        if replaced and self.path is not None and not self.path.parent.exists():
            raise StorageError(f"{self.path.parent} was removed while it was open")
        if replaced or self._process != os.getpid():
            self._disconnect()
        if self._database is None:
            self._process, self._database = os.getpid(), self._open()
        return self._database

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return self._connect(":memory:")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        seen = _file(self.path)
        try:
            made = self._connect(self.path)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            if _file(self.path) == seen:  # else another process has renamed it meanwhile
                _quarantine(self.path)
            made = self._connect(self.path)
        self._file, self._doubted = _file(self.path), False
        return made

    def _connect(self, name: str | Path) -> sqlite3.Connection:
        database = sqlite3.connect(name, timeout=self._busy, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(database, str(name))
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection, name: str) -> None:
        database.execute("PRAGMA secure_delete = ON")
        marked = _check(database, name)
        if self._doubted and (found := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found)
        self._begin_log(database)
        database.execute(f"PRAGMA synchronous = {self._synchronous}")
        if marked and self.tables.keys() <= table_names(database).keys():
            return
        database.execute("BEGIN IMMEDIATE")
        for name, columns in self.tables.items():
            database.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
        database.execute(f"PRAGMA application_id = {MARK}")
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute("COMMIT")

    def _begin_log(self, database: sqlite3.Connection) -> None:
        """Switch to WAL; SQLite does not wait for another process that creates the file at this moment."""
        for left in range(int(self._busy / POLL_SECONDS), -1, -1):
            try:
                database.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or not left:
                    raise
                time.sleep(POLL_SECONDS)
            else:
                return


def _before_fork() -> None:
    """Wait for transactions before a fork: SQLite would take their lock for the child's own, for ever."""
    end = time.monotonic() + FORK_SECONDS
    locks_ = [each.lock for each in list(_every)]
    _held.extend(each for each in locks_ if each.acquire(timeout=max(0.0, end - time.monotonic())))


def _after_fork() -> None:
    while _held:
        _held.pop().release()


if hasattr(os, "register_at_fork"):  # in the child `base.threads` makes all locks anew
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_held.clear)


def query_readonly(path: Path, sql: str, values: Values = ()) -> list[tuple[Any, ...]] | None:
    """Return the rows that a query finds, None if there is no such table; raise StorageError if it cannot be read.

    No file is made or changed.
    """
    if _file(path) is None:
        return None
    # While nobody has it open there is no log next to it, and reading must not begin one.
    quiet = "" if Path(f"{path}-wal").exists() else "&immutable=1"
    try:
        with closing(opened_readonly(path, quiet)) as database:
            _check(database, path.name)
            return database.execute(sql, values).fetchall()
    except sqlite3.Error as error:
        if "no such table" in str(error):
            return None
        raise StorageError(f"{path.name} cannot be read: {error}") from error


def opened_readonly(path: Path, more: str = "") -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{more}", uri=True)


def readable_rows(database: sqlite3.Connection, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """Return the rows of a table, read from both ends up to the damage."""
    found: dict[int, tuple[Any, ...]] = {}
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError):
            sql = f"SELECT rowid, {columns} FROM {table} NOT INDEXED ORDER BY rowid {order}"
            found.update((number, tuple(row)) for number, *row in database.execute(sql))
            break
    return list(found.values())


def damage(path: Path) -> str | None:
    """Return the first thing that is wrong with a database, None if it is whole. Reads all of it."""
    try:
        found = query_readonly(path, "PRAGMA quick_check(1)") or [("ok",)]
    except StorageError as error:
        return str(error)
    return None if found[0][0] == "ok" else str(found[0][0])


def refuse_remote(folder: Path, mounts: Path = Path("/proc/mounts")) -> None:
    """Raise StorageError if a folder is on a network file system: SQLite's WAL does not work there."""
    try:
        lines = [line.split() for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines()]
        where = folder.resolve()
    except OSError:
        return
    holding = [(len(parts[1]), parts[2]) for parts in lines if len(parts) > 2 and where.is_relative_to(parts[1])]
    if holding and (kind := max(holding)[1]) in REMOTE:
        raise StorageError(
            f"{folder} is on a network file system ({kind}), where several processes cannot write to one SQLite file. "
            "Choose a folder on a local disk, and share it between machines with store=..."
        )


def _check(database: sqlite3.Connection, name: str) -> bool:
    """Refuse a file that this package did not write, or cannot read; return True if it bears the package's mark."""
    names = table_names(database)  # before the mark: another process may make both between the two
    mark, version = (database.execute(f"PRAGMA {each}").fetchone()[0] for each in ("application_id", "user_version"))
    if mark != MARK and (mark or names):
        raise StorageError(f"{name} is a database of another program; move it away.")
    if mark == MARK and version != FORMAT:
        of, advice = ("a newer", "update it") if version > FORMAT else ("an older", "begin in a new folder")
        raise StorageError(f"{name} was written by {of} version of this package (format {version}); {advice}.")
    return bool(mark == MARK)


def table_names(database: sqlite3.Connection) -> dict[str, str]:
    """Return the name and the SQL of each table, without those of SQLite itself."""
    tables = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    return dict(database.execute(tables).fetchall())


def _is_damage(error: Exception) -> bool:
    # its subclasses are for a file that is locked, full or not to be opened: it may be whole
    return type(error) is sqlite3.DatabaseError


def _quarantine(path: Path) -> None:
    """Rename a damaged file, and put the rows that can be read into a new one of its name."""
    aside = free_name(path)
    for ending in ("-wal", "-shm", ""):  # a log that is left would be taken for the new file's
        with suppress(FileNotFoundError):
            os.replace(f"{path}{ending}", f"{aside}{ending}")  # noqa: PTH105 - as elsewhere in this package
    rows = 0
    with (
        closing(sqlite3.connect(aside)) as old,
        closing(sqlite3.connect(path, isolation_level=None)) as new,
        suppress(sqlite3.DatabaseError),
    ):
        new.execute("BEGIN IMMEDIATE")  # a kill leaves an empty file: tables without the mark are another program's
        new.execute(f"PRAGMA application_id = {MARK}")
        new.execute(f"PRAGMA user_version = {FORMAT}")
        for name, sql in table_names(old).items():
            if str(sql).startswith("CREATE TABLE"):
                new.execute(sql)
                for row in readable_rows(old, name):
                    new.execute(f"INSERT OR IGNORE INTO {name} VALUES ({', '.join('?' * len(row))})", row)
        new.execute("COMMIT")
        rows = new.total_changes
    logger.error("%s is damaged: renamed to %s; the new one has %d rows of it", path.name, aside.name, rows)


def _file(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
