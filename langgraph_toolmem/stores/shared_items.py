"""Items of a shared store, and the rows that one worker has of them.

A ``BaseStore`` has no transactions, so each item has one writer, or all of its writers write the same:

``(*root, "log", worker)``    the worker's events, numbered from 0 without gaps: ``k`` key, ``u`` user, ``r`` run, ``b``
``(*root, "workers")``        how many events each has (``n``), and when it wrote the last (``t``)
``(*root, "index")``          one `SharedSnapshot` each: a graph, and how many events of each worker are in it
``(*root, "snapshot", id)``   the parts of that graph
``(*root, "forgotten")``      a user or runs, by the snapshot that was the first without them

A worker (`WorkerRows`) is one ``memory.db`` (all processes of its folder), or one process without a folder. Its table
``meta`` contains its name (``worker``), the numbers of its events that are numbered (``numbered``), in the store
(``sent``) and in both snapshots of the store (``held``), the number of events of each other worker (``cursors``), and
the era of its graph.
"""

from __future__ import annotations

import json
import logging
import socket
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Final, TypeAlias

from langgraph.store.base import BaseStore, GetOp, Op, PutOp, SearchOp

from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.stores.events import EMPTY_EVENT, NOT_IN_SNAPSHOTS, EventLog, EventRow

Values: TypeAlias = dict[str, Any]

logger = logging.getLogger("langgraph_toolmem.shared")


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """Sizes and times of the exchange with a shared store.

    Attributes:
        page: items that are read or written in one call.
        part_bytes: length of a part of a snapshot.
        snapshot_every: number of events outside snapshots from which a worker writes one (up to twice as many: each
            worker has its own number).
        gather_seconds: events wait so long for others, to be sent with them.
        poll_seconds: steps fetch others' events at most this often.
        idle_seconds: the thread ends after so long without work.
        first_pause: seconds before a failed store is tried again; doubled up to the longest.
        longest_pause: in seconds.
        attempts: readings of one round while others write.
        missing_attempts: readings of one round for missing events, which the next round requests again.
        lease_seconds: a snapshot whose announcement is unconfirmed and older than this has a writer that was killed, or
            gives up.
        dead_seconds: a worker without events for so long may be removed from the list.
        forgotten_seconds: notes of forgotten data are kept so long.
    """

    page: int = 500
    part_bytes: int = 256 * 1024
    snapshot_every: int = 4_000
    gather_seconds: float = 0.05
    poll_seconds: float = 1.0
    idle_seconds: float = 30.0
    first_pause: float = 0.25
    longest_pause: float = 30.0
    attempts: int = 20
    missing_attempts: int = 3
    lease_seconds: float = 30.0
    dead_seconds: float = 7200.0
    forgotten_seconds: float = 90 * 86400.0


SHARED_LIMITS: Final = SharedLimits()


@dataclass(frozen=True, slots=True)
class SharedSnapshot:
    """The announcement of a graph in the store.

    Attributes:
        id: increases from one to the next.
        era: id of its first snapshot: "" or the last one that forgot data.
        parts: number of its parts.
        cursors: number of each worker's events in it.
        begins: events below these are in the snapshot before it, too; they are deleted.
        left: events below these have been deleted.
        by: its process.
        at: time of the announcement.
        done: confirmed.
    """

    id: str
    era: str
    parts: int
    cursors: dict[str, int]
    begins: dict[str, int]
    left: dict[str, int]
    by: str
    at: float
    done: bool = False

    def to_plain(self) -> Values:
        """Return the value of the item; its key is the id."""
        plain = asdict(self)
        del plain["id"]
        return plain

    @staticmethod
    def from_plain(key: str, plain: Mapping[str, Any]) -> SharedSnapshot:
        """Return the snapshot of an item; raise TypeError if the item has other fields."""
        return SharedSnapshot(key, **plain)


@dataclass(frozen=True, slots=True)
class ForgettingNote:
    """A user or runs that were removed with a snapshot.

    Attributes:
        id: of the snapshot.
        at: time of the note.
        cursors: events of each worker that the snapshot has.
    """

    id: str
    gone: Forgotten
    at: float
    cursors: dict[str, int]

    def to_plain(self) -> Values:
        """Return the value of the item; its key is the id."""
        return {"user": self.gone.user, "runs": sorted(self.gone.runs), "at": self.at, "cursors": self.cursors}

    @staticmethod
    def from_plain(key: str, plain: Mapping[str, Any]) -> ForgettingNote:
        gone = Forgotten(plain["user"], frozenset(plain["runs"]))
        return ForgettingNote(key, gone, plain.get("at", 0.0), plain["cursors"])


@dataclass(frozen=True, slots=True)
class WorkerHead:
    """The number of events that a worker has in the store, and when it wrote the last."""

    events: int
    at: float

    def to_plain(self) -> Values:
        return {"n": self.events, "t": self.at}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> WorkerHead:
        """Return the head; raise KeyError, TypeError or ValueError if the item has other values."""
        return WorkerHead(int(plain["n"]), float(plain["t"]))


@dataclass(frozen=True, slots=True)
class StoreView:
    """The state of the store when read, and of this worker just before.

    Attributes:
        me: name of this worker, or "".
        sent: events that this worker knows to be in the store.
        heads: of all workers, by name.
        snapshots: all of them.
        newest: confirmed ones of the newest era, the newest first.
        begins: first event of each log.
    """

    me: str
    sent: int
    heads: dict[str, WorkerHead]
    snapshots: list[SharedSnapshot]
    newest: list[SharedSnapshot]
    begins: dict[str, int]

    @property
    def head(self) -> int:
        """Number of this worker's events in the store."""
        head = self.heads.get(self.me)
        if head is None:
            return 0
        return head.events

    @property
    def is_empty(self) -> bool:
        """True if there is neither a snapshot nor another worker."""
        return not self.newest and self.heads.keys() <= {self.me}

    @property
    def latest(self) -> SharedSnapshot | None:
        """The newest snapshot."""
        if not self.newest:
            return None
        return self.newest[0]


def event_to_plain(row: EventRow) -> Values:
    """Return the value of an event's item."""
    return {"k": row.key, "u": row.user, "r": row.run, "b": row.body}


def event_from_plain(plain: Mapping[str, Any]) -> EventRow:
    """Return the row of an event's item; an empty one if the item was not written by this package."""
    key, body = plain.get("k"), plain.get("b")
    if isinstance(body, str) and (key is None or isinstance(key, str)):
        return EventRow(key, str(plain.get("u")), str(plain.get("r")), body)
    return EMPTY_EVENT


def item_key(number: int) -> str:
    """Return a number as a key: keys of increasing numbers increase."""
    return f"{number:012d}"


class SharedItems:
    """Reads and writes items of a store under one root.

    Attributes:
        calling: start of the running call, by ``time.monotonic``.
    """

    def __init__(self, store: BaseStore, namespace: tuple[str, ...]) -> None:
        self.store = store
        self.root = encode_namespace(namespace)
        self.calling: float | None = None
        self._said: set[str] = set()

    def say(self, problem: str, error: Exception) -> None:
        """Log a problem, once."""
        if problem not in self._said:
            self._said.add(problem)
            root = ".".join(self.root)
            logger.warning("%s: %s", root, problem)
            # a driver's error may quote the event that it refused
            logger.debug("%s: %s", root, problem, exc_info=error)

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        """Do some operations in one call; return their results."""
        wanted = list(ops)
        if not wanted:
            return []
        self.calling = time.monotonic()
        try:
            return self.store.batch(wanted)
        finally:
            self.calling = None

    # -- operations --

    def get(self, kind: str, key: str, *of: str) -> GetOp:
        # Reading an item must not renew a time to live of the host's store.
        return GetOp((*self.root, kind, *of), key, refresh_ttl=False)

    def put(self, kind: str, key: str, value: Values, *of: str) -> PutOp:
        # Not indexed: a store with an embedder would embed each event.
        return PutOp((*self.root, kind, *of), key, value, index=False)

    def delete(self, kind: str, key: str, *of: str) -> PutOp:
        return PutOp((*self.root, kind, *of), key, None, index=False)

    def search(self, kind: str, offset: int = 0) -> SearchOp:
        return SearchOp((*self.root, kind), limit=SHARED_LIMITS.page, offset=offset, refresh_ttl=False)

    def announce(self, announced: SharedSnapshot) -> PutOp:
        return self.put("index", announced.id, announced.to_plain())

    def without(self, gone: SharedSnapshot) -> list[PutOp]:
        """Return the operations that delete a snapshot."""
        ops = [self.delete("snapshot", item_key(part), gone.id) for part in range(gone.parts)]
        ops.append(self.delete("index", gone.id))
        return ops

    # -- reading --

    def pages(self, kind: str, page: Sequence[Any]) -> Iterator[Any]:
        """Yield all items of a kind, given their first page."""
        for offset in count(SHARED_LIMITS.page, SHARED_LIMITS.page):
            for item in page:
                # A store may match more than requested: longer namespaces, or a wildcard in a label.
                if item.namespace == (*self.root, kind):
                    yield item
            if len(page) < SHARED_LIMITS.page:
                return
            [page] = self.batch([self.search(kind, offset)])

    def notes(self) -> list[ForgettingNote]:
        """Return the notes of forgotten data, in the store's order."""
        [page] = self.batch([self.search("forgotten")])
        return [ForgettingNote.from_plain(item.key, item.value) for item in self.pages("forgotten", page)]

    def view(self, me: str, sent: int) -> StoreView:
        """Look at the store, for a worker of a name ("" if it has none) that has sent some events."""
        mine = self.get("workers", me or "-")  # pages may miss items that change meanwhile
        workers, index, own = self.batch([self.search("workers"), self.search("index"), mine])
        items = [*self.pages("workers", workers)]
        if own is not None:
            items.append(own)
        heads = _heads_of(items)
        snapshots = _snapshots_of(self.pages("index", index))
        newest = _confirmed_of_newest_era(snapshots)
        begins = dict.fromkeys(heads, 0)
        for snapshot in newest:
            for worker in heads:
                begins[worker] = max(begins[worker], snapshot.begins.get(worker, 0))
        return StoreView(me, sent, heads, snapshots, newest, begins)


def _heads_of(items: Iterable[Any]) -> dict[str, WorkerHead]:
    """Return the heads of workers by name; items of another form are left out."""
    heads: dict[str, WorkerHead] = {}
    for item in items:
        with suppress(KeyError, TypeError, ValueError):
            heads[item.key] = WorkerHead.from_plain(item.value)
    return heads


def _snapshots_of(items: Iterable[Any]) -> list[SharedSnapshot]:
    """Return announced snapshots; items of another form are left out."""
    snapshots: list[SharedSnapshot] = []
    for item in items:
        with suppress(TypeError):
            snapshots.append(SharedSnapshot.from_plain(item.key, item.value))
    return snapshots


def _confirmed_of_newest_era(snapshots: Iterable[SharedSnapshot]) -> list[SharedSnapshot]:
    """Return the valid snapshots, the newest first. A graph of an older era contains data that was forgotten since."""
    era = ""
    for snapshot in snapshots:
        if snapshot.done:
            era = max(era, snapshot.era)
    newest = [snapshot for snapshot in snapshots if snapshot.done and snapshot.era == era]
    newest.sort(key=_id, reverse=True)
    return newest


def _id(announced: SharedSnapshot) -> str:
    return announced.id


def encode_namespace(namespace: tuple[str, ...]) -> tuple[str, ...]:
    """Return the namespace as a ``BaseStore`` accepts it; different namespaces stay different."""
    labels: list[str] = []
    for label in namespace:
        encoded = label
        for special in "=.\0":  # "=" first: it marks the other replacements
            encoded = encoded.replace(special, f"={ord(special):02X}")
        labels.append(encoded or "=")
    if labels[:1] == ["langgraph"]:  # the only word that a store refuses as the first label
        labels[0] = f"={ord('l'):02X}anggraph"
    return tuple(labels)


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

    def read(self, start: int, end: int) -> dict[int | None, EventRow | None]:
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
                    rows.execute(blank, (EMPTY_EVENT.checksum, seq))
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
        # A copy of a folder has another inode, or is on another machine.
        path = self.database.path
        return "" if path is None else f"{socket.gethostname()}|{path.stat().st_ino}"


def write_meta(rows: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    """Write values of ``meta`` in the open transaction."""
    rows.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
