"""The event log, one row per observation in ``memory.db``, and ``graph.pickle``, the graph made from it.

An observation is a list of events under the key of its turn; it belongs to one run, and so to one user. `append` writes
one row and applies it to the graph in RAM. Several processes and forked workers may append to one folder: `refresh`
applies the rows of the others. Events commute, and a key counts once, so their order does not matter.

``graph.pickle`` contains the graph up to a row (``upto``). Opening loads it and applies the later rows. The snapshot
before it is kept as ``graph.pickle.1`` with all rows after *that*, so a damaged file loses nothing.

Each row has a checksum and is read as bytes, one by one. A damaged row is left out and named by its number and key,
never by its text; later rows are kept.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar, cast, get_args

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError, GraphFileError, StorageError, describe_error
from langgraph_toolmem.base.text import dumps, loads
from langgraph_toolmem.graph.events import Forgotten, Record, RunsForgotten, UserForgotten
from langgraph_toolmem.graph.tool_graph import Table, ToolGraph
from langgraph_toolmem.stores import snapshot
from langgraph_toolmem.stores.database import NAME, Database, damage, query_readonly, refuse_circles, refuse_remote

Fsync: TypeAlias = Literal["snapshot", "always"]
Fallback: TypeAlias = Literal["error", "memory"]
T = TypeVar("T", bound=Table)

SNAPSHOT: Final = "graph.pickle"
OLDER_SNAPSHOT: Final = "graph.pickle.1"
_SELECT_EVENTS: Final = """SELECT seq, number, CAST(key AS BLOB), CAST(user AS BLOB), CAST(run AS BLOB),
    CAST(body AS BLOB), checksum FROM events"""
_LAST_SEQ: Final = "SELECT ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)"
INSERT_EVENT: Final = """INSERT INTO events (key, user, run, body, checksum, origin, number)
    SELECT :key, :user, :run, :body, :checksum, :origin, :number
    WHERE NOT EXISTS (SELECT 1 FROM events WHERE key = :key OR (origin = :origin AND number = :number))"""
"""A conflict would use up a row number, and missing numbers mean that rows were deleted."""

NOT_IN_SNAPSHOTS: Final = """origin = '' AND (number IS NULL
    OR number >= ifnull((SELECT value FROM meta WHERE name = 'held'), 0))"""
"""Own events that are not in both snapshots of a shared store: snapshots of this folder do not delete them."""

logger = logging.getLogger("langgraph_toolmem.events")


def fallback_given(fallback: Any) -> Fallback:
    """Return the fallback. Raises ConfigurationError if it is neither "error" nor "memory"."""
    if fallback not in get_args(Fallback):
        raise ConfigurationError(f"`fallback` must be 'error' or 'memory', got {fallback!r}.")
    return cast("Fallback", fallback)


@dataclass(slots=True, frozen=True)
class EventLimits:
    """Sizes and times of an event log.

    Attributes:
        snapshot_every: number of rows after the snapshot from which a new one is written.
        bytes_each: for a large snapshot, bytes for each row that it waits for, so that writing it costs about as much
            as applying those rows.
        close_from: number of rows after the snapshot from which closing writes one.
        unsaved: limit of observations that wait in RAM for a failing disk; the oldest are dropped.
        retry_seconds: until a failed disk is tried again.
        poll_seconds: a read-only memory looks for new rows at most this often.
        busy_seconds: wait for another process's transaction.
        loads: tries of reading a folder while other processes write to it.
        draft_seconds: older drafts of snapshots belong to killed processes.
        named: limit of damaged rows that a problem names one by one.
        rows_at_once: rows that are parsed together: their events are compared with their shapes kind by kind.
    """

    snapshot_every: int = 2_000
    bytes_each: int = 2_000
    close_from: int = 100
    unsaved: int = 10_000
    retry_seconds: float = 5.0
    poll_seconds: float = 1.0
    busy_seconds: float = 2.0
    loads: int = 5
    draft_seconds: float = 3600.0
    named: int = 5
    rows_at_once: int = 2_000


EVENT_LIMITS: Final = EventLimits()


@dataclass(slots=True, frozen=True)
class EventRow:
    """A row of the table; `body` is JSON, a list of events."""

    key: str | None
    user: str
    run: str
    body: str

    def columns(self, origin: str = "", number: int | None = None) -> dict[str, str | int | None]:
        """Return the columns that `INSERT_EVENT` takes, with the checksum.

        Args:
            origin: the worker whose row it is; "" for this folder's own.
            number: in that worker's log.
        """
        return {
            "key": self.key, "user": self.user, "run": self.run, "body": self.body, "checksum": self.checksum,
            "origin": origin, "number": number,
        }  # fmt: skip

    @property
    def checksum(self) -> int:
        key = None if self.key is None else self.key.encode()
        return _checksum((key, self.user.encode(), self.run.encode(), self.body.encode()))


EMPTY_EVENT: Final = EventRow(None, "", "", "[]")
"""A row that only has a number."""


def apply_row(graph: ToolGraph, row: EventRow) -> str:
    """Apply a row to a graph; return why it is left out, or ""."""
    return apply_events(graph, row.key, _parsed(row), ())


def apply_events(graph: ToolGraph, key: str | None, events: list[Any] | None, fitting: Collection[str]) -> str:
    """Apply the parsed events of a row, of which some kinds are `fitting`; return as `apply_row`."""
    if events is None:
        return "no list of events"
    try:
        graph.apply(key, [graph.event_of(each, fitting) for each in events])
    except Exception as error:
        # Its text may quote the event.
        logger.debug("an event could not be applied", exc_info=error)
        return describe_error(error)
    return ""


@dataclass(slots=True)
class StoredRow:
    """A row as it was read; `row` is None if it is damaged. `number` is that in a shared store, if it has one."""

    seq: int
    number: int | None
    key: str
    row: EventRow | None


@dataclass(slots=True)
class _Written:
    """The result of writing rows.

    Attributes:
        others: rows that other processes wrote before.
        numbers: of these and of the written rows.
        last_is_new: False if the last row was there already, under its key.
    """

    others: list[StoredRow]
    numbers: list[int]
    last_is_new: bool = False


def read_rows(found: Iterable[Sequence[Any]]) -> list[StoredRow]:
    """Read rows of the columns of `_SELECT_EVENTS`; raise sqlite3.DatabaseError if their numbers do not increase."""
    rows = list[StoredRow]()
    last = 0
    for seq, number, *cells, checksum in found:
        refuse_circles(seq, last)
        last = seq
        key, user, run, body = cells
        row = None
        if None not in (user, run, body) and _checksum((key, user, run, body)) == checksum:
            with suppress(UnicodeDecodeError):
                row = EventRow(None if key is None else key.decode(), user.decode(), run.decode(), body.decode())
        rows.append(StoredRow(seq, number, _printable(key), row))
    return rows


def _parsed(row: EventRow | None) -> list[Any] | None:
    """Return the events of a row as plain values; None without events, or if its text has another format."""
    if row is None:
        return None
    try:
        events = loads(row.body)
    except (ValueError, RecursionError):
        return None
    if isinstance(events, list):
        return events
    return None


def _checksum(cells: Sequence[bytes | None]) -> int:
    checksum = 0
    for cell in cells:
        # With its length: otherwise a text that moved from the end of a cell into the next one would not be noticed.
        length = -1 if cell is None else len(cell)
        checksum = zlib.crc32(cell or b"", zlib.crc32(length.to_bytes(8, "little", signed=True), checksum))
    return checksum


def _printable(key: bytes | None) -> str:
    """Return the key of a row, if it is a digest."""
    # A damaged key may be any text, a user's too, and problems are shown and logged.
    text = b"none" if key is None else key
    if len(text) <= 16 and text.isalnum() and text.isascii():
        return text.decode()
    return "unreadable"


class EventLog(Database):
    """The table of events; ``origin`` and ``number`` identify a row in a shared store ("" is this folder)."""

    tables: ClassVar = {
        "events": """
            seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, origin TEXT NOT NULL DEFAULT '', number INTEGER,
            user TEXT NOT NULL, run TEXT NOT NULL, body TEXT NOT NULL, checksum INTEGER NOT NULL,
            UNIQUE (origin, number)
        """,
        "meta": "name TEXT PRIMARY KEY, value",
    }

    def read(self, where: str, values: Sequence[Any] = ()) -> list[StoredRow]:
        """Return the rows of a condition, by `seq`; raise StorageError if the file cannot be read."""
        sql = f"{_SELECT_EVENTS} WHERE {where} ORDER BY seq"
        if self.read_only and self.path is not None:
            return read_rows(query_readonly(self.path, sql, values) or [])
        if self.empty:
            return []
        with self.opened() as database:
            return read_rows(database.execute(sql, values))


class EventStore:
    """The graph in RAM and its event log. Callers must lock `lock` around every method except `snapshot`, `erase`,
    `close`.

    Args:
        tables: registered in the graph before the folder is read; `register` adds others later.
        shared: keep the log without a folder too, in RAM, for a shared store.
        fallback: if the folder cannot be made or written, "error" raises, "memory" continues in RAM.

    Attributes:
        problems: one sentence on each failure.
        at_reload: functions to call after the graph was reloaded.
        upto: all rows up to this one are in the graph.
        news: set by code that inserts rows through `database`.

    Raises:
        StorageError: the folder is another program's, of another release, on a network file system, not a folder, or
            not writable.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        lock: Any,
        tables: Iterable[type[Table]] = (),
        fsync: Fsync = "snapshot",
        read_only: bool = False,
        shared: bool = False,
        fallback: Fallback = "error",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.read_only = read_only
        self.lock = lock
        self._fallback = fallback
        self.graph = ToolGraph(tables)
        self.problems: list[str] = []
        self.at_reload: list[Callable[[], object]] = []
        self.database: EventLog | None = None
        self.closed = False
        self.upto = 0
        self._snapshot_upto = self._snapshot_bytes = 0
        self._keep = NOT_IN_SNAPSHOTS if shared else "0"
        self.news = False
        self._clock = clock
        self._broken = False  # an interrupt left the graph half made
        self._version: tuple[int, int] | None = None  # of the file, when last read
        self._polled = self._retry = float("-inf")
        self._unsaved: list[EventRow] = []
        self._writing = threads.lock()
        if folder is not None or shared:
            if folder is not None:
                refuse_remote(folder)
                self._make(folder)
            # In WAL mode NORMAL survives a crash of the process, FULL of the machine.
            synchronous = "NORMAL"
            if fsync == "always":
                synchronous = "FULL"
            self.database = EventLog(
                folder,
                read_only=read_only,
                synchronous=synchronous,
                busy=EVENT_LIMITS.busy_seconds,
                problems=self.problems,
            )
            self._begin(self.database)

    def _begin(self, database: EventLog) -> None:
        """Fill the graph, and name the missing rows."""
        try:
            database.ask(_LAST_SEQ)
        except StorageError as error:
            if error.__cause__ is None:  # another program's, or another release's: its snapshots are not changed
                raise
        self._load()
        with suppress(StorageError):
            # Row numbers are never reused, so a gap after the graph is a loss.
            last = sum(last for (last,) in database.ask(_LAST_SEQ))
            if last > self.upto:
                self.refresh()  # another process wrote meanwhile, or pages that look whole are empty
            if last > self.upto:
                self.say(f"events {self.upto + 1} to {last} of {NAME} are missing")
            elif last < self.upto:
                self.say(f"{NAME} was removed or damaged; what was learned after {SNAPSHOT} was written is lost")

    def _make(self, folder: Path) -> None:
        try:
            if not self.read_only:
                folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise StorageError(f"{folder} cannot be a memory folder: {error.strerror}") from None
        except OSError as error:
            self._fall_back(f"{folder} cannot be made ({error.strerror or error})", error)
        else:
            if not self.read_only and not os.access(folder, os.W_OK | os.X_OK):
                self._fall_back(f"{folder} cannot be written", None)

    def _fall_back(self, problem: str, error: OSError | None) -> None:
        if self._fallback == "error":
            raise StorageError(
                f"{problem}. Choose a folder that this program may write, or keep in RAM what is learned: "
                'ToolMemory(..., fallback="memory").'
            ) from error
        self.say(f"{problem}; the memory goes on in RAM", error)

    # -- reading --

    def _load(self) -> None:
        """Fill an empty graph from the newest usable snapshot and the rows after it."""
        assert self.database is not None
        rows: list[StoredRow] = []
        before: tuple[int, int] | None = None
        for left in range(EVENT_LIMITS.loads, 0, -1):
            with snapshot.no_collections():
                self._load_snapshot()
            try:
                rows = self.database.read("seq > ?", (self.upto,))
            except (StorageError, sqlite3.Error) as error:
                if left > 1:  # a damaged file is replaced at the next access
                    continue
                self._degrade(error)
            if not rows or left == 1:
                break
            last = rows[-1].seq
            if last == self.upto + len(rows):
                break
            # A gap: another process wrote snapshots in between, and deleted rows that this one lacks. The same gap
            # twice is a loss, which further reading cannot restore. It was silent where a page of another table
            # was in place of one with events (`benchmarks.fuzz`, seed 503406).
            if (self.upto, last) == before:
                self.say(f"events of {NAME} are missing: number {_missing_numbers(self.upto, rows)}")
                break
            before = self.upto, last
            self._reset_graph()
        self._apply_rows(rows)

    def _load_snapshot(self) -> None:
        """Fill the graph from the newer readable snapshot; rename the others."""
        self.upto = self._snapshot_upto = 0
        if self.folder is None:
            return
        for path in (self.folder / SNAPSHOT, self.folder / OLDER_SNAPSHOT):
            try:
                found = snapshot.read_file(path)
                self.graph.load(found["state"])
                self.upto = self._snapshot_upto = int(found["upto"])
                self._snapshot_bytes = path.stat().st_size
                self._name_left_out()
                break
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever is in the file, the host starts
                self._quarantine(path, error)
                self._reset_graph()

    def _reset_graph(self) -> None:
        """Empty the graph in place, because other objects reference it."""
        empty = ToolGraph(type(table) for table in self.graph.tables)
        self.graph.load(empty.to_state())

    def _quarantine(self, path: Path, error: Exception) -> None:
        why = describe_error(error)
        if isinstance(error, GraphFileError):  # its text contains no user data
            why = str(error)
        self.say(f"{path.name} cannot be used ({why}); the snapshot before it and the event log are used", error)
        if not self.read_only:
            aside = snapshot.free_name(path)
            try:
                path.rename(aside)
                self.say(f"{path.name} was renamed to {aside.name}")
            except OSError as failed:
                self.say(f"{path.name} could not be renamed: {failed.strerror or failed}")

    def _apply_rows(self, rows: Sequence[StoredRow]) -> None:
        """Apply the read rows, and name the left-out ones."""
        left_out = list[str]()
        # In portions, whose events are compared with their shapes kind by kind: in a third of the time.
        for begin in range(0, len(rows), EVENT_LIMITS.rows_at_once):
            some = rows[begin : begin + EVENT_LIMITS.rows_at_once]
            parsed = [_parsed(stored.row) for stored in some]
            readable = [events for events in parsed if events is not None]
            fitting = self.graph.fitting_kinds(chain.from_iterable(readable))
            for stored, events in zip(some, parsed, strict=True):
                why = "damaged"
                if stored.row is not None:
                    why = apply_events(self.graph, stored.row.key, events, fitting)
                if why:
                    left_out.append(f"{stored.seq} (key {stored.key}, {why})")
                self.upto = stored.seq
        if left_out:
            named = _first_of(left_out, "more")
            self.say(f"{len(left_out):,} events of {NAME} cannot be read and are left out: number {named}")

    def refresh(self) -> None:
        """Apply the rows of other processes. Without new rows it costs some microseconds."""
        if self._broken:
            self._reload()
        if self.database is None or self.closed:
            return
        try:
            if self._is_news():
                rows = self.database.read("seq > ?", (self.upto,))
                if rows and rows[-1].seq != self.upto + len(rows):
                    self._reload()
                else:
                    self._apply_rows(rows)
        except Exception as error:  # noqa: BLE001 - whatever it is, the host goes on
            self._degrade(error)

    def _is_news(self) -> bool:
        """Return True if other processes may have written rows since the last call."""
        assert self.database is not None
        if self.news:
            self.news = False
            return True
        if self.read_only:
            return self._is_poll_due()
        if self.folder is None or self._clock() < self._retry or self.database.empty:
            return False
        return self._is_changed(self.database)

    def _is_poll_due(self) -> bool:
        # A reader does not keep the file open, so it cannot ask SQLite for changes.
        now = self._clock()
        if now - self._polled < EVENT_LIMITS.poll_seconds:
            return False
        self._polled = now
        return True

    def _is_changed(self, log: EventLog) -> bool:
        # SQLite changes this number when another connection wrote, without reading the table.
        with log.opened() as database:
            version = id(database), database.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return False
        self._version = version
        return True

    def _reload(self) -> None:
        """Read everything again: unapplied rows were deleted, or the graph is incomplete."""
        self._broken = False
        if self.folder is None:
            return  # in RAM this is all
        self._reset_graph()
        self._load()
        for row in self._unsaved:
            apply_row(self.graph, row)
        for reloaded in self.at_reload:
            reloaded()

    def register(self, kind: type[T]) -> T:
        """Return the graph's table of a kind. Stored rows of another shape are left out and reported."""
        try:
            return self.graph.register(kind)
        except (GraphFileError, TypeError, ValueError, LookupError, AttributeError) as error:
            self.say(f"what was stored for {kind.name} cannot be used: {error}")
            # The table is registered, without that.
            return self.graph.register(kind)
        finally:
            self._name_left_out()

    def _name_left_out(self) -> None:
        if left_out := [*self.graph.left_out]:
            self.graph.left_out.clear()
            self.say(left_out_in_words(left_out))

    # -- writing --

    def append(self, key: str | None, record: Record, *, user: str = "", run: str = "") -> bool:
        """Store an observation and apply it. When this returns, it survives a crash of the process.

        Returns:
            True if it was applied, False if its key was seen before or the memory is closed. With None as key it is
                always applied.
        """
        if self.closed:
            self.say("the memory is closed: what comes now is not learned")
            return False
        if self._broken:
            self._reload()
        if key is not None and self.graph.has_seen(key):
            return False
        # Until the end: an interrupt in between leaves a half-applied record, and the next call reads everything again.
        self._broken = True
        known = False
        if self.database is not None and not self.read_only:
            body = dumps([event.plain() for event in record])
            known = not self._store(EventRow(key, user, run, body))
        if not known and self._broken:
            self.graph.apply(key, record)
        self._broken = False
        # In a thread: the caller is a model turn, which must not wait for a large graph.
        if self.snapshot_due:
            self._snapshot_aside()
        return not known

    def _store(self, row: EventRow) -> bool:
        """Write a row, and apply those that others wrote before it; False if one of them has its key."""
        assert self.database is not None
        # Waiting rows first: the order of a worker's events is that of their numbers.
        rows = [*self._unsaved, row]
        if self._clock() < self._retry:
            self._unsaved = rows[-EVENT_LIMITS.unsaved :]
            return True
        try:
            written = self._write(self.database, rows)
        except Exception as error:  # noqa: BLE001 - whatever it is, the host goes on
            self._degrade(error)
            self._unsaved = rows[-EVENT_LIMITS.unsaved :]
            return True
        self._unsaved.clear()
        last = max(written.numbers, default=self.upto)
        if last != self.upto + len(written.numbers):
            self._reload()  # rows that were not applied here were deleted; the new row is applied with the others
        else:
            self._apply_rows(written.others)
            self.upto = last
        return written.last_is_new

    def _write(self, log: EventLog, rows: Sequence[EventRow]) -> _Written:
        """Write rows in one transaction, and read those that others wrote before them."""
        with log.writing() as database:
            others = read_rows(database.execute(f"{_SELECT_EVENTS} WHERE seq > ? ORDER BY seq", (self.upto,)))
            [(given,)] = database.execute(_LAST_SEQ)
            if given < self.upto:  # the file was lost: numbers are never reused
                database.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
                database.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (self.upto,))
            written = _Written(others, [stored.seq for stored in others])
            for row in rows:
                inserted = database.execute(INSERT_EVENT, row.columns())
                written.last_is_new = inserted.rowcount == 1
                if written.last_is_new:
                    written.numbers.append(inserted.lastrowid or 0)
        return written

    def _degrade(self, error: Exception) -> None:
        self._retry = self._clock() + EVENT_LIMITS.retry_seconds
        cause = error.__cause__ or error
        why = describe_error(error)
        if isinstance(cause, (sqlite3.Error, OSError, StorageError)):  # these texts do not quote rows
            why = str(cause)
        self.say(f"events cannot be stored at present ({why}); the memory goes on in RAM", error)

    # -- snapshots --

    @property
    def waits(self) -> int:
        return len(self._unsaved)

    @property
    def snapshot_due(self) -> bool:
        rows = max(EVENT_LIMITS.snapshot_every, self._snapshot_bytes // EVENT_LIMITS.bytes_each)
        return self.upto - self._snapshot_upto >= rows

    def _snapshot_aside(self) -> None:
        def write() -> None:
            try:
                self.snapshot()
            except Exception as error:  # noqa: BLE001 - the rows stay
                self.say(f"no snapshot could be written: {describe_error(error)}", error)

        # Set at once, not when it is written: otherwise each append would begin another.
        self._snapshot_upto = self.upto
        if self.folder is not None:
            threads.start("toolmem-snapshot", write)

    def snapshot(self, *, alone: bool = False) -> None:
        """Write ``graph.pickle`` and delete the rows that the snapshot before it contains. Not under the lock.

        `alone`: delete all other snapshots, and all rows except the last, because they may contain forgotten data.
        Other processes notice the missing rows, and read the graph again.

        Raises:
            StorageError: events wait to be stored first, or the file cannot be written.
            GraphFileError: the graph is not plain.
        """
        folder, database = self.folder, self.database
        if folder is None or database is None or self.read_only:
            return
        with self._writing:
            with self.lock:
                self.refresh()
                upto = self.upto
                if self._unsaved:
                    raise StorageError(f"{len(self._unsaved)} events wait to be stored first.")
                data = snapshot.dumps({"upto": upto, "state": self.graph.to_state()})
            # Rows are deleted below, so the snapshot must be readable.
            snapshot.check(data)
            try:
                replaced = self._replace_snapshot(folder / SNAPSHOT, database, data, upto, alone=alone)
            except OSError as error:
                raise StorageError(f"{folder / SNAPSHOT} cannot be written: {error.strerror or error}") from error
            if replaced:
                self._snapshot_upto = upto
                self._snapshot_bytes = len(data)

    def _replace_snapshot(self, path: Path, database: EventLog, data: bytes, upto: int, *, alone: bool) -> bool:
        """Write a draft next to the snapshot, and put it in its place; return as `_put_in_place`."""
        draft = snapshot.write_draft(path, data)
        try:
            return self._put_in_place(database, draft, upto, alone=alone)
        finally:
            draft.unlink(missing_ok=True)

    def _put_in_place(self, database: EventLog, draft: Path, upto: int, *, alone: bool) -> bool:
        """Put a draft in place and delete rows, in one transaction.

        Returns:
            False if another process wrote a later snapshot meanwhile, or forgot data.
        """
        # The transaction keeps other processes out while the files are renamed.
        with database.writing() as rows:
            before = _upto_of_snapshot(rows)
            if before > upto:
                return False
            has_before = _rotate(draft.parent, draft, alone=alone)
            end = 0  # of the rows that the older of both snapshots contains
            if alone:
                end = upto - 1
            elif has_before:
                end = before
            rows.execute(f"DELETE FROM events WHERE seq <= ? AND NOT ({self._keep})", (end,))
            rows.execute("INSERT OR REPLACE INTO meta VALUES ('upto', ?)", (upto,))
        return True

    def restart(self, state: dict[str, Any] | None, own: int, meta: dict[str, Any]) -> None:
        """Replace the graph by a state (None: empty) and this folder's events from number `own` on, on disk too.

        Rows that are not kept (`keep`) are deleted; `meta` is written in the same transaction.
        """
        assert self.database is not None
        with self._writing, self.lock:
            self._broken = True
            with self.database.writing() as rows:
                self._reset_graph()
                if state is not None:
                    self.graph.load(state)
                    self._name_left_out()
                mine = f"{_SELECT_EVENTS} WHERE origin = '' AND (number IS NULL OR number >= ?) ORDER BY seq"
                self._apply_rows(read_rows(rows.execute(mine, (own,))))
                for row in self._unsaved:
                    apply_row(self.graph, row)
                [(last,)] = rows.execute(_LAST_SEQ)
                upto = max(last, self.upto) + 2  # a number is missing, so other processes read the new snapshot
                rows.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", {**meta, "upto": upto}.items())
                # Rows of others are in the state; own rows are kept until both snapshots of the store contain them.
                rows.execute(f"DELETE FROM events WHERE NOT ({self._keep})")
                marker = "INSERT INTO events (seq, origin, user, run, body, checksum) VALUES (?, '-', '', '', '[]', ?)"
                rows.execute(marker, (upto, EMPTY_EVENT.checksum))
                if self.folder is not None:
                    data = snapshot.dumps({"upto": upto, "state": self.graph.to_state()})
                    snapshot.check(data)
                    draft = snapshot.write_draft(self.folder / SNAPSHOT, data)
                    _rotate(self.folder, draft, alone=True)
                    self._snapshot_bytes = len(data)
            self.upto = self._snapshot_upto = upto
            self._broken = False
            for reloaded in self.at_reload:
                reloaded()

    def forget(self, gone: Forgotten) -> int:
        """Remove a user, or runs, from the graph; `erase` does so on disk. Returns the number of removed items."""
        event: UserForgotten | RunsForgotten = RunsForgotten(sorted(gone.runs))
        if gone.user:
            event = UserForgotten(gone.user)
        removed = self.graph.forget(gone)
        # An event too: other processes, and a graph made from the rows, forget it as well.
        self.append(None, [event])
        return removed

    def erase(self) -> None:
        """Remove forgotten data from the folder: snapshots, rows, free pages. Not under the lock.

        Raises:
            StorageError: data is left on disk; call it again.
        """
        if self.folder is None or self.database is None:
            return
        try:
            self.snapshot(alone=True)
            self.database.scrub()
        except StorageError as error:
            raise StorageError(
                f"It is forgotten here, but {self.folder} still holds it, as that could not be rewritten ({error}). "
                "Mend that and call forget again."
            ) from error
        # A person decides about these: rows may be restored from them.
        aside = sorted(file.name for file in self.folder.glob("*.corrupt-*"))
        if aside:
            self.say(f"damaged files that were renamed may hold what was forgotten: {', '.join(aside)}")

    def forked(self) -> None:
        """In a forked child: drop waiting events, which the parent stores."""
        self._unsaved.clear()

    def close(self) -> None:
        """Write waiting events, and a snapshot if many rows are newer than the last. Not under the lock."""
        if self.database is None or self.closed:
            self.closed = True
            return
        try:
            with self.lock:
                if self._unsaved and not self.read_only:
                    self._retry = float("-inf")
                    # The others that wait are written with the last one.
                    self._store(self._unsaved.pop())
            if self._unsaved:
                self.say(f"{len(self._unsaved)} events could not be stored and are lost")
            elif self.upto - self._snapshot_upto >= EVENT_LIMITS.close_from:
                self.snapshot()
        except Exception as error:  # noqa: BLE001 - the rows stay
            self.say(f"no snapshot could be written: {describe_error(error)}", error)
        self.closed = True
        self.database.close()

    def say(self, problem: str, error: Exception | None = None) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
            logger.warning("%s", problem)
            if error is not None:
                logger.debug("%s", problem, exc_info=error)


def left_out_in_words(names: Sequence[str]) -> str:
    """Return a sentence without a full stop on rows of a snapshot with another shape than their table's."""
    named = _first_of(names, "more")
    return f"rows of {SNAPSHOT} do not have the shape of their table, {len(names):,} are left out: {named}"


def _first_of(names: Sequence[str], more: str) -> str:
    """Return the first names and the number of the others, such as "4, 7 and 12 more"."""
    first = ", ".join(names[: EVENT_LIMITS.named])
    others = len(names) - EVENT_LIMITS.named
    if others <= 0:
        return first
    return f"{first} and {others:,} {more}"


def _missing_numbers(upto: int, rows: Sequence[StoredRow]) -> str:
    """Return the first ranges of numbers above `upto` that no row has, in words."""
    ranges = list[str]()
    last = upto
    for row in rows:
        if row.seq == last + 2:
            ranges.append(f"{last + 1:,}")
        elif row.seq > last + 2:
            ranges.append(f"{last + 1:,} to {row.seq - 1:,}")
        last = row.seq
    return _first_of(ranges, "more ranges")


def _upto_of_snapshot(rows: sqlite3.Connection) -> int:
    """Return the row up to which a process wrote the last snapshot; 0 if that number is impossible."""
    [(given,)] = rows.execute(_LAST_SEQ)
    for (upto,) in rows.execute("SELECT value FROM meta WHERE name = 'upto'").fetchall():
        if isinstance(upto, int) and upto <= given:
            return upto
    return 0


def _rotate(folder: Path, draft: Path, *, alone: bool) -> bool:
    """Put the new snapshot in place; return True if the one before it is kept."""
    newest, kept = folder / SNAPSHOT, folder / OLDER_SNAPSHOT
    # Drafts of killed processes. A current draft is kept, unless it may contain forgotten data.
    oldest = draft.stat().st_mtime - EVENT_LIMITS.draft_seconds
    for other in folder.glob(f"{SNAPSHOT}.*.tmp"):
        if other != draft and (alone or other.stat().st_mtime < oldest):
            other.unlink(missing_ok=True)
    there = newest.exists()
    if alone:
        kept.unlink(missing_ok=True)
    elif there:
        os.replace(newest, kept)  # noqa: PTH105 - the tests make this very call fail
    os.replace(draft, newest)  # noqa: PTH105
    return there and not alone


def inspect_folder(folder: Path, tables: Iterable[type[Table]] = ()) -> dict[str, Any]:
    """Describe the files of the evidence, for ``toolmem doctor``; reads only.

    ``why`` is the damage of a file, or "". ``left_out`` names the rows of the given tables with another shape.
    ``mixes_users`` is True if the values of several threads are kept, and all runs were without a user id.
    """
    graph = ToolGraph(tables)
    # In this order: the events are applied after the snapshot, and the graph says then whether it mixes users.
    snapshot_file = _inspect_snapshot(folder / SNAPSHOT, graph)
    log_file = _inspect_log(folder / NAME, graph)
    quarantined = []
    for path in sorted(folder.glob("*.corrupt-*")):
        quarantined.append({"file": path.name, "bytes": _size(path)})
    return {
        "snapshot": snapshot_file,
        "events": log_file,
        "mixes_users": graph.mixes_users,
        "quarantined": quarantined,
    }


def _inspect_snapshot(path: Path, graph: ToolGraph) -> dict[str, Any] | None:
    """Load a snapshot into an empty graph and describe it; None without a file."""
    if not path.exists():
        return None
    described: dict[str, Any] = {"bytes": path.stat().st_size, "why": "", "upto": None, "left_out": []}
    try:
        content = snapshot.read_file(path)
        graph.load(content["state"])
        described["upto"] = content["upto"]
        described["left_out"] = graph.left_out
    except Exception as error:  # noqa: BLE001 - whatever is in it
        described["why"] = str(error)
    return described


def _inspect_log(path: Path, graph: ToolGraph) -> dict[str, Any] | None:
    """Apply the rows of an event log to a graph and describe them; None without a file."""
    if not path.exists():
        return None
    why = damage(path) or ""
    described: dict[str, Any] = {"bytes": path.stat().st_size, "why": why, "rows": None, "damaged": []}
    if why:
        return described
    rows = read_rows(query_readonly(path, f"{_SELECT_EVENTS} ORDER BY seq") or [])
    described["rows"] = len(rows)
    for stored in rows:
        if stored.row is None:
            described["damaged"].append(stored.seq)
        else:  # a row that is also in the snapshot counts once, by its key
            apply_row(graph, stored.row)
    return described


def _size(path: Path) -> int:
    size = 0
    for file in (path, *path.rglob("*")):
        if file.is_file():
            size += file.stat().st_size
    return size
