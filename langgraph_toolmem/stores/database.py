"""The SQLite file of a memory's folder, ``memory.db``, in WAL mode: events, jobs, decisions, progress of a cold start.

Each part has its tables in a `Database` of its own, with a connection of its own. Several threads, processes and forked
workers may use the file at once.

- A committed transaction survives a crash of the process (``synchronous`` FULL: of the machine too).
- Deleted rows are overwritten; `Database.scrub` also removes copies of them from pages and from the log.
- A damaged file is renamed to ``memory.db.corrupt-1``, and a new one begins with the readable rows.
- A file cannot run code: before any query the schema is compared, and a file with more than plain tables (a view, a
  trigger, an index, a virtual table, a computed column) counts as damaged. Reading has a time limit.
- A file of another program, or of another release, is not changed: `StorageError`.
- SQLite reads the frames of its log (``memory.db-wal``) up to the first wrong one, and ignores the others silently.
  Rows in those others are found before the file is opened (`find_lost_frames`), and added again.
"""

from __future__ import annotations

import logging
import math
import os
import re
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias
from weakref import WeakSet

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.snapshot import free_name

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self


logger = logging.getLogger("langgraph_toolmem.stores.database")

NAME: Final = "memory.db"
DATABASE_FORMAT: Final = 4
APPLICATION_ID: Final = int.from_bytes(b"tmem", "big")
READ_SECONDS: Final = 3.0
"""Limit of processor seconds of one access: pages that point in circles would be read without end."""
MAX_NUMBER: Final = 1 << 62
"""Above all row numbers: SQLite stops at 2^63."""

Values: TypeAlias = "Sequence[Any] | Mapping[str, Any]"

# Connections of a parent process: SQLite forbids using them in a child, and closing them too.
_inherited: list[sqlite3.Connection] = []
_every: Final[WeakSet[Database]] = WeakSet()
_opening: Final = threads.lock()
_known: Final[dict[str, str]] = {}
"""The tables of all owners that are imported: name -> columns."""
_held: list[Any] = []
"""Locks that a fork takes before it, and releases in the parent after it."""


class _Connection(sqlite3.Connection):
    """A connection that raises sqlite3.DatabaseError where an error of SQLite quotes damaged text of the file.

    Python decodes the error's text and raises UnicodeDecodeError then (`benchmarks.fuzz`, seed 500190: it ended the
    host's constructor).
    """

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        try:
            return super().execute(sql, values)
        except UnicodeDecodeError:
            raise sqlite3.DatabaseError("database disk image is malformed") from None


class Database:
    """The tables of one owner in ``memory.db``, or in RAM; opened when they are first used.

    Safe to use from several threads, and in a forked process. Every method blocks for the disk, up to `busy` seconds
    for another process's transaction, and raises `StorageError` if the file cannot be used.

    Attributes:
        problems: one sentence for each loss at the opening of the file.
    """

    tables: ClassVar[Mapping[str, str]] = {}  # name -> columns and constraints, as SQL

    def __init_subclass__(cls) -> None:
        _known.update(cls.tables)

    def __init__(
        self,
        folder: Path | None,
        *,
        read_only: bool = False,
        synchronous: str = "NORMAL",
        busy: float = 30.0,
        problems: list[str] | None = None,
    ) -> None:
        self.folder = folder
        self.read_only = read_only
        self.path = None if folder is None else folder / NAME
        self._synchronous = synchronous
        self._busy = busy
        self.lock = threads.rlock()
        self._database: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._process = os.getpid()
        self._closed = False
        self._doubted = False  # the file may be damaged: all of it is checked when it is opened again
        self._end = math.inf  # of the present access, by `time.thread_time`
        self.problems: list[str] = [] if problems is None else problems
        _every.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def empty(self) -> bool:
        """True if it was never written. It does not create or open a file."""
        return self._database is None and (self.path is None or _file(self.path) is None)

    def ask(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; after damage, those of the repaired file. Empty if nothing was written yet."""
        if self.read_only and self._database is None and self.path is not None:
            return query_readonly(self.path, sql, values) or []
        if self.empty:
            return []
        try:
            return self._ask(sql, values)
        except StorageError as error:
            if not _is_damage(error.__cause__):
                raise
            return self._ask(sql, values)  # of the file that is repaired when it is opened again

    def _ask(self, sql: str, values: Values) -> list[tuple[Any, ...]]:
        with self.opened() as database:
            return database.execute(sql, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction, which an error in the block rolls back."""
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
    def opened(self, seconds: float = READ_SECONDS) -> Iterator[sqlite3.Connection]:
        """Yield the connection for one access of at most this number of processor seconds.

        Raises:
            StorageError: the file is closed, damaged, full or locked, or the access took too long.
        """
        where = "The database in memory" if self.path is None else str(self.path)
        with self.lock:
            if self._closed:
                raise StorageError(f"{where} is closed.")
            self._end = time.thread_time() + seconds
            try:
                yield self._connection()
            except (sqlite3.Error, OSError) as error:
                # The next access opens the file, checks all of it and repairs it.
                if _is_damage(error) or _is_late(error):
                    self._disconnect()
                    self._doubted = True
                raise StorageError(
                    f"{where} cannot be used: {error}. Check that it can be read and written and that the disk is not "
                    "full."
                ) from error

    def scrub(self) -> None:
        """Remove deleted rows from the file and its log; raise StorageError while another process reads the file."""
        with self.writing() as database:
            self._end = math.inf
            for name, columns in self.tables.items():
                # Pages keep copies of moved rows. The pages of a dropped table are overwritten.
                database.execute(f"CREATE TABLE again ({columns})")
                database.execute(f"INSERT INTO again SELECT * FROM {name}")
                if "AUTOINCREMENT" in columns:  # numbers of deleted rows are never given again
                    database.execute("DELETE FROM sqlite_sequence WHERE name = 'again'")
                    database.execute(
                        "INSERT INTO sqlite_sequence SELECT 'again', seq FROM sqlite_sequence WHERE name = ?", (name,)
                    )
                database.execute(f"DROP TABLE {name}")
                database.execute(f"ALTER TABLE again RENAME TO {name}")
        with self.opened(math.inf) as database:
            busy = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise StorageError(f"{self.path} is read by another process; old pages are still on disk. Do it again.")

    def rebuild_indexes(self) -> None:
        """Rebuild the indexes of this owner's tables from their rows.

        Raises:
            StorageError: two rows have the same key; the next access repairs the file.
        """
        with self.opened(math.inf) as database:
            try:
                for name in self.tables:
                    database.execute(f"REINDEX {name}")
            except sqlite3.IntegrityError as error:
                raise sqlite3.DatabaseError(f"an index cannot be rebuilt: {error}") from error

    def close(self) -> None:
        with self.lock:
            self._closed = True
            self._disconnect()

    def _disconnect(self) -> None:
        database, self._database = self._database, None
        if database is None:
            return
        if self._process == os.getpid():
            database.close()
        else:
            _inherited.append(database)

    def _connection(self) -> sqlite3.Connection:
        if self.path is not None and self._database is not None and _file(self.path) != self._file:
            if not self.path.parent.exists():
                raise StorageError(f"{self.path.parent} was removed while it was open")
            self._disconnect()  # the file was replaced
        if self._process != os.getpid():
            self._disconnect()
        if self._database is None:
            self._process = os.getpid()
            self._database = self._open()
        return self._database

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return self._connect(":memory:")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _opening:
            lost = None
            # A process loses its locks on a file when it closes it, so files are read only while they are not open.
            if not self._is_open_elsewhere():
                lost = find_lost_frames(self.path)
            connection = self._open_or_replace(self.path)
            self._file = _file(self.path)
            self._doubted = False
            if lost is not None:
                self._say(_restore(lost, self.path, connection))
        return connection

    def _is_open_elsewhere(self) -> bool:
        """Return True if another owner in this process has the file open."""
        assert self.path is not None
        seen = _file(self.path)
        for other in list(_every):
            if other._file == seen and other._database is not None:
                return True
        return False

    def _open_or_replace(self, path: Path) -> sqlite3.Connection:
        seen = _file(path)
        try:
            return self._connect(path)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            if _file(path) == seen:  # otherwise another process has renamed it meanwhile
                self._say(_quarantine(path))
            return self._connect(path)

    def _say(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
            logger.error("%s", problem)

    def _connect(self, name: str | Path) -> sqlite3.Connection:
        # For any thread: `lock` lets one in at a time.
        database = sqlite3.connect(
            name, timeout=self._busy, isolation_level=None, check_same_thread=False, factory=_Connection
        )
        _interrupt(database, self._is_late)
        try:
            self._prepare(database, str(name))
        except BaseException:
            database.close()
            raise
        return database

    def _is_late(self) -> bool:
        return time.thread_time() > self._end

    def _prepare(self, database: sqlite3.Connection, name: str) -> None:
        _protect(database)
        # Deleted rows may be those of a forgotten user.
        database.execute("PRAGMA secure_delete = ON")
        marked = _check(database, name)
        # With the indexes: a row that is missing in one cannot be deleted.
        if self._doubted and database.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("the database disk image is malformed")
        self._begin_log(database)
        database.execute(f"PRAGMA synchronous = {self._synchronous}")
        if marked and self.tables.keys() <= _plain_tables(database).keys():
            return
        database.execute("BEGIN IMMEDIATE")
        for name, columns in self.tables.items():
            database.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {DATABASE_FORMAT}")
        database.execute("COMMIT")

    def _begin_log(self, database: sqlite3.Connection) -> None:
        """Switch to WAL; SQLite does not wait for another process that creates the file at this moment."""
        pause = 0.02
        for left in range(int(self._busy / pause), -1, -1):
            try:
                database.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or not left:
                    raise
                time.sleep(pause)
            else:
                return


def _before_fork() -> None:
    """Wait for transactions before a fork: SQLite would take their lock for the child's own, for ever."""
    end = time.monotonic() + 1.0
    for lock in [each.lock for each in list(_every)]:
        if lock.acquire(timeout=max(0.0, end - time.monotonic())):
            _held.append(lock)


def _after_fork() -> None:
    while _held:
        _held.pop().release()


if hasattr(os, "register_at_fork"):  # in the child `base.threads` makes all locks again
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_held.clear)


def query_readonly(path: Path, sql: str, values: Values = ()) -> list[tuple[Any, ...]] | None:
    """Return the rows of a query, None without such a table; raise StorageError if it cannot be read.

    Files are not created or changed.
    """
    if _file(path) is None:
        return None
    # While the file is not open, there is no log next to it, and reading must not create one.
    quiet = "" if Path(f"{path}-wal").exists() else "&immutable=1"
    try:
        with closing(opened_readonly(path, quiet)) as database:
            _limit_time(database)
            _protect(database)
            _check(database, path.name)
            return database.execute(sql, values).fetchall()
    except sqlite3.Error as error:
        if "no such table" in str(error):
            return None
        raise StorageError(f"{path.name} cannot be read: {error}") from error


def _limit_time(database: sqlite3.Connection) -> None:
    """Stop accesses that take more than `READ_SECONDS` of processor time from now on."""
    end = time.thread_time() + READ_SECONDS

    def is_late() -> bool:
        return time.thread_time() > end

    _interrupt(database, is_late)


def _interrupt(database: sqlite3.Connection, is_late: Callable[[], bool]) -> None:
    instructions = 100_000  # of SQLite between two readings of the clock, about 2 ms
    database.set_progress_handler(is_late, instructions)


def opened_readonly(path: Path, more: str = "") -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{more}", uri=True, factory=_Connection)


@dataclass(slots=True)
class ReadTable:
    """The readable rows of a table, by number, and the numbers that may have been lost, in order."""

    rows: list[tuple[Any, ...]]
    lost: list[range]


def readable_rows(database: sqlite3.Connection, table: str) -> ReadTable:
    """Return the readable rows of a table; rows after a damaged page are found again."""
    reader = _TableReader(database, table)
    start: int | None = 1
    while start is not None:
        start = reader.read_from(start)
    reader.find_skipped()
    rows = [reader.rows[number] for number in sorted(reader.rows)]
    return ReadTable(rows, sorted(reader.lost, key=_start))


def _start(gap: range) -> int:
    return gap.start


class _TableReader:
    """Reads the rows of a table that may be damaged.

    Attributes:
        rows: that were read, by number.
        lost: numbers whose rows may have been lost.
    """

    def __init__(self, database: sqlite3.Connection, table: str) -> None:
        self._database = database
        self._in_order = (
            f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid >= ? AND rowid < {MAX_NUMBER} ORDER BY rowid"
        )
        self._of_number = f"SELECT * FROM {table} NOT INDEXED WHERE rowid = ?"
        self._last = 0
        self._is_disordered = False
        self.rows: dict[int, tuple[Any, ...]] = {}
        self.lost: list[range] = []

    def read_from(self, start: int) -> int | None:
        """Read rows in order up to a damaged page; return the number from which rows can be read again, or None."""
        first_of = f"{self._in_order} LIMIT 1"
        try:
            self._read(self._in_order, start)
        except sqlite3.DatabaseError:
            # Python reads one row ahead, so the row before the damage was lost with it.
            with suppress(sqlite3.DatabaseError):
                self._read(first_of, self._last + 1)
            following = _next_readable(self._database, first_of, self._last + 1)
            if following != self._last + 1:
                self.lost.append(range(self._last + 1, following or MAX_NUMBER))
            return following
        return None

    def _read(self, sql: str, start: int) -> None:
        self._last = start - 1
        for number, *row in self._database.execute(sql, (start,)):
            self._is_disordered = self._is_disordered or number <= self._last
            refuse_circles(number, self._last)
            self._last = number
            self.rows[number] = tuple(row)

    def find_skipped(self) -> None:
        """Look up the numbers that are missing before and between rows, if pages are out of order.

        If two pages changed places, reading in order skips the whole pages between them. A look-up of a number finds
        its own page. Numbers before the first row are not lost, because rows in a snapshot are deleted there.
        """
        if not self._is_disordered:
            return
        lost = list[range]()
        for gap in _gaps_between(sorted(self.rows)):
            begin = gap.start
            for number in gap:
                row = None
                with suppress(sqlite3.DatabaseError):
                    row = self._database.execute(self._of_number, (number,)).fetchone()
                if row is not None:
                    self.rows[number] = row
                    if begin < number:
                        lost.append(range(begin, number))
                    begin = number + 1
            if begin < gap.stop:
                lost.append(range(begin, gap.stop))
        first = min(self.rows, default=MAX_NUMBER)
        self.lost += [gap for gap in lost if gap.start > first]


def _gaps_between(numbers: Sequence[int]) -> list[range]:
    """Return the numbers that are missing before and between sorted ones; of a long gap, those at its end."""
    most = 20_000  # limit of looked-up numbers of a gap: 0.1 s
    gaps = list[range]()
    last = 0
    for number in numbers:
        if number > last + 1:
            gaps.append(range(max(last + 1, number - most), number))
        last = number
    return gaps


def refuse_circles(number: int, last: int) -> None:
    """Raise sqlite3.DatabaseError if a row does not come after the last one: pages point in circles."""
    if not last < number < MAX_NUMBER:
        raise sqlite3.DatabaseError("row numbers do not increase")


def _next_readable(database: sqlite3.Connection, sql: str, first: int) -> int | None:
    """Return a number, not below the first, from which rows can be read, or None."""
    one_by_one = 1_000  # so that pages are not skipped
    doubled = [1 << power for power in range(one_by_one.bit_length(), 62)]
    for step in (*range(one_by_one), *doubled):
        start: int = first + step
        if start >= MAX_NUMBER:
            break
        with suppress(sqlite3.DatabaseError):
            _row_from(database, sql, start)
            return start
    return None


def _row_from(database: sqlite3.Connection, sql: str, start: int) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = database.execute(sql, (start,)).fetchone()
    if row is not None:
        refuse_circles(row[0], start - 1)
    return row


def damage(path: Path) -> str | None:
    """Return the first error of a database, None if it is whole. Reads all of it."""
    try:
        results = query_readonly(path, "PRAGMA quick_check(1)") or []
    except StorageError as error:
        return str(error)
    for (result,) in results:
        if result != "ok":
            return "its pages do not fit together"
    return None


def refuse_remote(folder: Path, mounts: Path = Path("/proc/mounts")) -> None:
    """Raise StorageError if a folder is on a network file system: SQLite's WAL does not work there."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
        where = folder.resolve()
    except OSError:
        return
    holder, kind = "", ""  # the deepest mount that contains the folder, the last of several there
    for line in lines:
        parts = line.split()
        if len(parts) < 3:
            continue
        _device, mount, mounted_as, *_options = parts
        if len(mount) >= len(holder) and where.is_relative_to(mount):
            holder, kind = mount, mounted_as
    if kind in ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs"):
        raise StorageError(
            f"{folder} is on a network file system ({kind}), where several processes cannot write to one SQLite file. "
            "Choose a folder on a local disk, and share it between machines with store=..."
        )


def _protect(database: sqlite3.Connection) -> None:
    """Have SQLite trust nothing in the file, and decode any text without an error, which would quote it."""
    database.text_factory = _decoded
    database.execute("PRAGMA trusted_schema = OFF")
    configure = getattr(database, "setconfig", None)  # from Python 3.12 on
    if configure is not None:
        configure(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)  # type: ignore[attr-defined, unused-ignore]


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _check(database: sqlite3.Connection, name: str) -> bool:
    """Refuse a file that this package did not write, or cannot read; return True if it has the package's mark."""
    schema = database.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    # Then the mark: another process may make both between the two.
    [(mark,)] = database.execute("PRAGMA application_id").fetchall()
    is_ours = bool(mark == APPLICATION_ID)
    if is_ours:
        _check_version(database, name)
    elif mark or schema:
        raise StorageError(f"{name} is a database of another program; move it away.")
    tables = set()
    for kind, table, sql in schema:
        _check_part(kind, table, sql)
        tables.add(table)
    # Only now, because a query may run code of a hostile schema.
    if "sqlite_sequence" in tables:
        _check_last_numbers(database)
    return is_ours


def _check_version(database: sqlite3.Connection, name: str) -> None:
    """Raise StorageError if another release wrote a file."""
    [(version,)] = database.execute("PRAGMA user_version").fetchall()
    if version == DATABASE_FORMAT:
        return
    of, advice = "an older", "begin in a new folder"
    if version > DATABASE_FORMAT:
        of, advice = "a newer", "update it"
    raise StorageError(f"{name} was written by {of} version of this package (format {version}); {advice}.")


def _check_last_numbers(database: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if the number of a table's last row is impossible: the next row could have none."""
    usable = f"typeof(seq) = 'integer' AND seq BETWEEN 0 AND {MAX_NUMBER}"
    if database.execute(f"SELECT 1 FROM sqlite_sequence WHERE NOT ({usable}) LIMIT 1").fetchone():
        raise sqlite3.DatabaseError("the number of a table's last row is impossible")


def _check_part(kind: Any, name: Any, sql: Any) -> None:
    """Raise sqlite3.DatabaseError for a part of the schema that is not a plain table, or differs from its owner's
    SQL.
    """
    if kind == "index" and sql is None:  # of UNIQUE
        return
    if kind != "table" or not isinstance(sql, str) or not sql.upper().startswith("CREATE TABLE"):
        raise sqlite3.DatabaseError("the schema has more than tables")
    # words of a column that SQLite would compute or compare by code from the file
    if re.search(r"\b(check|generated|as|collate|references)\b|default\s*\(", sql, re.IGNORECASE):
        raise sqlite3.DatabaseError("the schema has a table with computed columns")
    if name in _known and _normalized(sql) != _normalized(f"CREATE TABLE {name} ({_known[name]})"):
        raise sqlite3.DatabaseError(f"the table {name} has other columns")


def _normalized(sql: str) -> str:
    # SQLite quotes the name of a table that was renamed, as `scrub` does.
    return "".join(sql.replace('"', "").split())


def _plain_tables(database: sqlite3.Connection) -> dict[str, str]:
    """Return the name and the SQL of each table that can be read safely, without those of SQLite itself."""
    tables = dict[str, str]()
    for kind, name, sql in database.execute("SELECT type, name, sql FROM sqlite_master").fetchall():
        with suppress(sqlite3.DatabaseError):
            _check_part(kind, name, sql)
            if sql is not None and not str(name).startswith("sqlite") and str(name).isidentifier():
                tables[name] = sql
    return tables


def _is_damage(error: BaseException | None) -> bool:
    # its subclasses mean a file that is locked, full or cannot be opened: it may be whole
    return type(error) is sqlite3.DatabaseError


def _is_late(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "interrupted" in str(error)


def _quarantine(path: Path) -> str:
    """Rename a damaged file, put the readable rows into a new one of its name, and return a sentence."""
    aside = free_name(path)
    for ending in ("-wal", "-shm", ""):  # a remaining log would be treated as the new file's
        with suppress(FileNotFoundError):
            os.replace(f"{path}{ending}", f"{aside}{ending}")  # noqa: PTH105 - as elsewhere in this package
    rows, lost = 0, ""
    with closing(sqlite3.connect(path, isolation_level=None)) as new, suppress(sqlite3.DatabaseError):
        new.execute("BEGIN IMMEDIATE")  # a kill leaves an empty file: tables without the mark are another program's
        new.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        new.execute(f"PRAGMA user_version = {DATABASE_FORMAT}")
        rows, lost = copy_rows(aside, new)
        new.execute("COMMIT")
    return f"{path.name} was damaged and renamed to {aside.name}; {rows:,} rows of it were kept{lost}"


def copy_rows(source: Path, new: sqlite3.Connection) -> tuple[int, str]:
    """Copy the readable rows that are missing in the new file, in the open transaction.

    Returns:
        their number, and the end of a sentence that names the rows that cannot be read.
    """
    before, lost = new.total_changes, ""
    with closing(sqlite3.connect(source, factory=_Connection)) as old, suppress(sqlite3.DatabaseError):
        _limit_time(old)
        old.execute("PRAGMA writable_schema = ON")  # otherwise SQLite refuses all of a truncated file
        _protect(old)
        tables = _plain_tables(old)
        old.text_factory = bytes  # invalid UTF-8 stays as it is; its reader detects it
        for name, sql in tables.items():
            new.execute(sql.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
            table = readable_rows(old, name)
            for row in table.rows:
                _insert(new, name, row)
            for gap in table.lost:
                lost += f"; {name} {_span(gap)} cannot be read"
    return new.total_changes - before, lost


def _insert(new: sqlite3.Connection, table: str, row: Sequence[Any]) -> None:
    """Insert a row whose texts are bytes, unless it violates a constraint of its table."""
    places = []
    for value in row:
        places.append("CAST(? AS TEXT)" if isinstance(value, bytes) else "?")
    with suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
        new.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join(places)})", row)


def _span(numbers: range) -> str:
    return f"from {numbers.start} on" if numbers.stop == MAX_NUMBER else f"{numbers.start} to {numbers.stop - 1}"


def _restore(lost: LostFrames, path: Path, database: sqlite3.Connection) -> str:
    """Copy the rows after the damage of a log into the database; return a sentence on the loss."""
    rows = 0
    with TemporaryDirectory() as folder, suppress(sqlite3.Error):
        image = Path(folder) / NAME
        image.write_bytes(lost.image)
        database.execute("BEGIN IMMEDIATE")
        try:
            rows, _ = copy_rows(image, database)
        finally:
            # Rows that were copied before an error are kept.
            database.execute("COMMIT")
    return (
        f"{lost.number:,} pages of {path.name}-wal were cut off or damaged: what was written last may be missing, but "
        f"for {rows:,} rows that were found behind the damage"
    )


def _file(path: Path) -> tuple[int, int] | None:
    """Return the identity of a file, which its name does not show: another process may have replaced it."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


MAX_WAL_BYTES: Final = 64 << 20
"""A longer log is not read: a page takes some 20 microseconds, and SQLite keeps a log at 4 MB if it can."""
_LOG_HEAD: Final = struct.Struct(">8I")  # mark, format, size of a page, checkpoint, salts, checksum
_FRAME_HEAD: Final = struct.Struct(">6I")  # number of the page, pages after a commit (else 0), salts, checksum

Pair = tuple[int, int]


@dataclass(slots=True)
class LostFrames:
    """Frames that SQLite leaves out: `number` of them; `image` is the database with all whole frames."""

    number: int
    image: bytes


@dataclass(slots=True)
class _Head:
    """The beginning of a log; `order` of its bytes is that of `struct`."""

    page_size: int
    salts: Pair
    checksum: Pair
    order: str
    whole: bool


@dataclass(slots=True)
class _Frame:
    page: int
    commits: bool
    content: memoryview
    whole: bool


def find_lost_frames(path: Path) -> LostFrames | None:
    """Return the frames that SQLite will leave out when it opens a database, or None.

    Call it while this process has no connection to the file.
    """
    try:
        committed, salts = _read_index(Path(f"{path}-shm"))
        log_file = Path(f"{path}-wal")
        if not _LOG_HEAD.size < log_file.stat().st_size <= MAX_WAL_BYTES:
            return None
        log = memoryview(log_file.read_bytes())
    except OSError:
        return None
    head = _read_head(log)
    if not head.whole:
        # The index next to the log has the same salts: without them frames of an older log cannot be told apart.
        if salts is None:
            return None
        head.salts = salts
        head.page_size = _page_size(path)
    if head.page_size not in [1 << power for power in range(9, 17)]:
        return None
    frames = list(_frames(log, head))
    wanted = _last_commit(frames)
    # Frames that were cut off are missing in the log, and the index still counts them.
    if head.salts == salts:
        wanted = max(committed, wanted)
    taken = 0  # by SQLite
    if head.whole:
        taken = _last_commit(_whole_beginning(frames))
    if wanted <= taken:
        return None
    size = head.page_size
    return LostFrames(wanted - taken, _image(path.read_bytes(), size, frames[:wanted]))


def _read_head(log: memoryview) -> _Head:
    little_endian, big_endian = 0x377F0682, 0x377F0683
    mark, _, size, _, first_salt, second_salt, first_sum, second_sum = _LOG_HEAD.unpack_from(log)
    order = ">" if mark == big_endian else "<"
    checksum = (first_sum, second_sum)
    whole = mark in (little_endian, big_endian) and summed(order, (0, 0), log[:24]) == checksum
    return _Head(size, (first_salt, second_salt), checksum, order, whole)


def _page_size(path: Path) -> int:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(18)[16:], "big")
    return 1 << 16 if size == 1 else size


def _read_index(path: Path) -> tuple[int, Pair | None]:
    """Return the number of committed frames and the salts of their log; (0, None) if the index cannot be used."""
    length = 48  # of the head, which is there twice
    try:
        with path.open("rb") as file:
            heads = file.read(2 * length)
    except OSError:
        return 0, None
    first, second = heads[:length], heads[length:]
    if len(second) < length or first != second:  # another process is writing it
        return 0, None
    # The salts are in the byte order of the log, other fields in that of the machine.
    return struct.unpack_from("=I", first, 16)[0], struct.unpack_from(">2I", first, 32)


def _frames(log: memoryview, head: _Head) -> Iterator[_Frame]:
    """Yield the frames of one generation of the log. A restarted log still contains older frames at its end."""
    step = _FRAME_HEAD.size + head.page_size
    places = range(_LOG_HEAD.size, len(log) - step + 1, step)
    own = 0  # number of frames up to the last one of this generation
    for number, start in enumerate(places, 1):
        if _FRAME_HEAD.unpack_from(log, start)[2:4] == head.salts:
            own = number
    before = head.checksum
    for start in places[:own]:
        page, after, first_salt, second_salt, first_sum, second_sum = _FRAME_HEAD.unpack_from(log, start)
        content = log[start + _FRAME_HEAD.size : start + step]
        salts, stored = (first_salt, second_salt), (first_sum, second_sum)
        checksum = summed(head.order, summed(head.order, before, log[start : start + 8]), content)
        yield _Frame(page, after > 0, content, checksum == stored and salts == head.salts)
        before = stored


def summed(order: str, start: Pair, data: memoryview) -> Pair:
    """Return SQLite's checksum of a text of 32-bit words.

    SQLite adds two words at a time: ``first += word + second``, then ``second += next_word + first``. So of N words the
    j-th counts F(N−1−j) times in the first sum and F(N−j) times in the second, with Fibonacci's numbers F. Two products
    take 10 µs a page. Adding word by word took 150: 2.5 s of a log of 64 MB, at each opening.
    """
    import numpy as np  # imported where it is used

    words = np.frombuffer(data, dtype=f"{order}u4").astype(np.uint32)
    numbers = _fibonacci_from_end(len(words))
    before, last, after = map(int, numbers[[2, 1, 0]])
    first = int(words @ numbers[2:]) + before * start[0] + last * start[1]
    second = int(words @ numbers[1:-1]) + last * start[0] + after * start[1]
    return first & 0xFFFFFFFF, second & 0xFFFFFFFF


@lru_cache(maxsize=8)
def _fibonacci_from_end(words: int) -> NDArray[Any]:
    """Return F(N+1), F(N), ... F(0) modulo 2^32 for N words."""
    import numpy as np  # imported where it is used

    numbers = [0, 1]
    while len(numbers) < words + 2:
        numbers.append((numbers[-2] + numbers[-1]) & 0xFFFFFFFF)
    return np.array(numbers[::-1], dtype=np.uint32)


def _whole_beginning(frames: list[_Frame]) -> list[_Frame]:
    for number, frame in enumerate(frames):
        if not frame.whole:
            return frames[:number]
    return frames


def _last_commit(frames: list[_Frame]) -> int:
    """Return the number of frames up to the last whole one that ends a transaction."""
    last = 0
    for number, frame in enumerate(frames, 1):
        if frame.whole and frame.commits:
            last = number
    return last


def _image(database: bytes, size: int, frames: list[_Frame]) -> bytes:
    image = bytearray(database)
    for frame in frames:
        end = frame.page * size
        # The number of a damaged page may ask for gigabytes.
        if frame.whole and 0 < end <= MAX_WAL_BYTES + len(database):
            image.extend(bytes(max(0, end - len(image))))
            image[end - size : end] = frame.content
    image[18:20] = b"\x01\x01"  # a database that has no log
    return bytes(image)
