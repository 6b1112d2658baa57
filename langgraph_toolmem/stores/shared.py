"""Several machines, one graph: workers exchange the rows of their event logs through a LangGraph ``BaseStore``.

A worker is one ``memory.db``: all processes of its folder, or one process without a folder. A ``BaseStore`` has no
transactions, so each item has one writer, or all who write it write the same:

``(*root, "log", worker)``    the worker's events, numbered from 0 without gaps: ``k`` key, ``u`` user, ``r`` run, ``b``
``(*root, "workers")``        how many events each has (``n``), and when it wrote the last (``t``)
``(*root, "index")``          one `Snapshot` each: a graph, and how many events of each worker are in it
``(*root, "snapshot", id)``   the parts of that graph
``(*root, "forgotten")``      a user or runs, by the snapshot that was the first without them

Who learns appends to ``memory.db`` and waits for nothing. A thread does rounds: it looks, sends the rows from this
worker's ``n`` on, looks again until the store has them, and brings others' rows into the same table. A worker without a
folder is alone with its ``n``: between two looks, a second apart, it only sends. Events commute, so any worker's graph
can be the snapshot. Two snapshots stay, and the logs go as far back as the older one. A worker that lacks older events
takes the newest snapshot in place of its graph, and adds its own rows that are not in it.

A snapshot is announced before its parts are written, and the announcement renewed with them: a lease. Its writer then
looks again, and confirms it unless another one stands against it: of two writers, at least one sees the other.
Forgetting is a snapshot of a new *era*: it stands alone, and everybody restarts from it. Each worker blanks its own
later events of the user by the note.
"""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from langgraph.store.base import BaseStore, GetOp, Op, PutOp, SearchOp

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import GraphFileError, StorageError, describe_error
from langgraph_toolmem.base.threads import this_step
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.stores import snapshot
from langgraph_toolmem.stores.events import EMPTY, INSERT, RETRY_SECONDS, EventStore, Row
from langgraph_toolmem.stores.remote import DEADLINE, PATIENCE
from langgraph_toolmem.stores.vectors import batches

Values: TypeAlias = dict[str, Any]

PAGE: Final = 500
PART: Final = 256 * 1024
SNAPSHOT_EVERY: Final = 4_000
"""Events that no snapshot holds from which a worker writes one (up to twice as many: each its own number)."""
GATHER_SECONDS: Final = 0.05
"""Events wait so long for others, to be sent with them."""
POLL_SECONDS: Final = 1.0
"""Steps have others' events looked for at most this often."""
IDLE_SECONDS: Final = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
"""Seconds before a store that failed is asked again: doubled from the first to the longest."""
ATTEMPTS, MISSING_ATTEMPTS = 20, 3
"""Looks of one round while others write, and for events that are missing, which the next round asks for again."""
LEASE_SECONDS: Final = 30.0
"""A snapshot whose announcement is unconfirmed and older than this has a writer that was killed, or gives up."""
DEAD_SECONDS: Final = 7200.0
"""A worker that sent nothing for so long may be taken off the list."""
FORGOTTEN_SECONDS: Final = 90 * 86400.0

_SENT: Final = "ifnull((SELECT value FROM meta WHERE name = 'sent'), 0)"
_WAITING: Final = f"origin = '' AND (number IS NULL OR number >= {_SENT})"
_HELD: Final = "ifnull((SELECT value FROM meta WHERE name = 'held'), 0)"
KEEP: Final = f"origin = '' AND (number IS NULL OR number >= {_HELD})"
"""Own events that are not in both snapshots of the store."""
_META: Final = "INSERT OR REPLACE INTO meta VALUES (?, ?)"

logger = logging.getLogger("langgraph_toolmem.shared")


class Snapshot(NamedTuple):
    """The announcement of a graph in the store. Ids increase."""

    id: str
    era: str  # id of its first snapshot: "" or the last one that forgot something
    parts: int
    cursors: dict[str, int]  # events of each worker that are in it
    begins: dict[str, int]  # events below these are in the snapshot before it, too; they are deleted
    left: dict[str, int]  # events below these have been deleted
    by: str  # its process
    at: float
    done: bool = False  # confirmed


class View(NamedTuple):
    """The state of the store at a look."""

    me: str
    sent: int
    heads: dict[str, tuple[int, float]]
    snapshots: list[Snapshot]
    newest: list[Snapshot]  # confirmed ones of the newest era, the newest first
    begins: dict[str, int]  # of the logs


class SharedLog:
    """Sends what this worker learned, and brings what others did. Safe to use from several threads.

    Args:
        forgotten: called with what another worker forgot, before this one has; twice is harmless.
        deadline: seconds to wait for the store where somebody asked for it.
        patience: seconds that a step waits.
    """

    def __init__(
        self,
        store: BaseStore,
        namespace: tuple[str, ...],
        events: EventStore,
        *,
        now: Callable[[], float],
        forgotten: Callable[[Forgotten], object] = lambda _: None,
        deadline: float = DEADLINE,
        patience: float = PATIENCE,
    ) -> None:
        assert events.database is not None
        self._store, self._root, self._events, self._now = store, encode_namespace(namespace), events, now
        self._database, self._forgotten = events.database, forgotten
        self._deadline, self.patience = deadline, patience
        events.keep = KEEP
        self._changed = threads.condition()
        self.thread: threading.Thread | None = None
        self._due = self._polled = float("-inf")  # the next round, and the latest that looked
        self.closed = self.erase = self._only_send = False
        self._asked, self._done = 1, 0  # tickets: each asks for a round that begins after it
        self._to_forget: list[Forgotten] = []
        self._calling: float | None = None  # since when a call is under way
        self._failures, self._failure = 0, ""
        self._again = 0.0
        self._id = uuid.uuid4().hex
        self._said = set[str]()
        threads.at_fork(self)
        threads.at_exit(self)
        self.wait_sent(deadline)

    # -- for who learns --

    def learned(self) -> None:
        """Have new events sent soon; without a folder a step waits for that at its end."""
        self._ask(GATHER_SECONDS, send_only=True)
        if self._events.folder is None and (waits := this_step()) is not None:
            waits.last[self.acknowledge] = None

    def acknowledge(self) -> None:
        """Wait a moment for the store to have what was learned, where nothing else outlives the process."""
        if self._events.folder is None:
            self.wait_sent(None)

    def poll(self, *, at_once: bool = False) -> None:
        """Have others' events fetched if that is due, and wait a moment; `at_once`: now, and up to the deadline.

        Not under the lock.
        """
        if at_once or time.monotonic() - self._polled >= POLL_SECONDS:
            self._ask()
            self.wait_sent(self._deadline if at_once else None)

    def waiting(self) -> list[str]:
        now, problem, name = time.monotonic(), "", f"The shared store ({type(self._store).__name__})"
        if (hangs := now - (self._calling or now)) > self._deadline:
            problem = f"{name} has not answered for {hangs:.0f} s"
        elif self._failure:
            problem = f"{name} failed {self._failures} times in a row ({self._failure})"
        try:
            [(rows,)] = self._database.ask(f"SELECT count(*) FROM events WHERE {_WAITING}") or [(0,)]
        except StorageError:
            rows = 0
        where = "RAM" if self._events.folder is None else str(self._database.path)
        wait = f"; {rows:,} events wait in {where}, and are sent later" if rows else ""
        return [problem + wait] if problem else []

    def forget(self, gone: Forgotten) -> int:
        """Remove from the store what the graph of this worker has forgotten. Not under the lock.

        If the store does not do it in time (StorageError), it is tried again as long as this process runs.
        """
        with self._changed:
            self._to_forget.append(gone)
        self._ask()
        if not self.wait(lambda: not any(each is gone for each in self._to_forget), self._deadline):
            why = self._failure or f"no answer within {self._deadline:.2g} s"
            raise StorageError(
                f"It is forgotten here, but the shared store may still hold it, and other workers go on with it ({why})"
                ". Make the store reachable and call forget again."
            )
        return 0

    def close(self) -> None:
        sent = self.stop(time.monotonic() + self._deadline)
        if (thread := self.thread) is not None:
            thread.join(self._deadline)
        if not sent and self._events.folder is None:
            self._events.say("the shared store did not answer at the end: what waited for it is lost")

    def stop(self, end: float) -> bool:
        """Send at exit what waits; return True if the store has it."""
        sent = self.wait_sent(max(0.0, end - time.monotonic()))
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        return sent

    def forked(self) -> None:
        """Go on in a forked child: the thread is the parent's. Without a folder the child is another worker."""
        self.thread, self._calling, self._id = None, None, uuid.uuid4().hex
        self._to_forget, self._done, self._polled = [], self._asked, float("-inf")
        threads.at_exit(self)

    # -- waiting --

    def _ask(self, after: float = 0.0, *, send_only: bool = False) -> None:
        with self._changed:
            self._asked += 1
            self._only_send = self._only_send and send_only
        self._wake(after)

    def wait_sent(self, seconds: float | None) -> bool:
        """Wait for a round that begins after all that was learned, and asked for, until now."""
        wanted = self._asked
        return self._done >= wanted or self.wait(lambda: self._done >= wanted, seconds)

    def wait(self, done: Callable[[], bool], seconds: float | None) -> bool:
        """Wake the thread and wait for it; return True if it is done, False if the store failed or took too long.

        `seconds`: for one call of the store; None: for all, what is left of a step's patience.
        """
        waits, begun, failures = this_step(), time.monotonic(), self._failures
        most = seconds if seconds is not None else self.patience - (waits.waited if waits is not None else 0.0)
        if seconds is not None:
            self._again = 0.0
        self._wake()
        with self._changed:
            while not (found := done()) and not self.closed and self._failures == failures:
                calling, now = self._calling or begun, time.monotonic()
                left = (max(begun, calling) if seconds is not None else min(begun, calling)) + most - now
                if left <= 0 or now < self._again:
                    break
                self._changed.wait(min(left, 0.05))
        if seconds is None and waits is not None:
            waits.waited += time.monotonic() - begun
        return found

    def _wake(self, after: float = 0.0) -> None:
        with self._changed:
            if self.closed:
                return
            if (due := time.monotonic() + after) < self._due:
                self._due = due
                self._changed.notify_all()
            if self.thread is None or not self.thread.is_alive():
                with suppress(RuntimeError):  # the interpreter ends
                    self.thread = threads.start("toolmem-shared", self._work)

    # -- the thread --

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self.closed and (left := max(self._due, self._again) - time.monotonic()) > 0:
                    if not self._changed.wait(min(left, IDLE_SECONDS)) and self._due == float("inf"):
                        self.thread = None
                        return
                if self.closed:
                    return
                self._due = float("inf")
            try:
                self._exchange()
            except Exception as error:  # noqa: BLE001 - any store and any driver, each with errors of its own
                self._failure, self._polled = type(error).__name__, float("-inf")
                self._say(f"the store failed ({self._failure}); it will be tried again", error)
                with self._changed:
                    pause = min(FIRST_PAUSE * 2.0 ** min(self._failures, 20), LONGEST_PAUSE)
                    self._due = self._again = time.monotonic() + pause
                    self._failures += 1
                    self._changed.notify_all()
            else:
                self._failures, self._failure = 0, ""

    def _batch(self, ops: Iterable[Op]) -> list[Any]:
        if not (ops := list(ops)):
            return []
        self._calling = time.monotonic()
        try:
            return self._store.batch(ops)
        finally:
            self._calling = None

    def _exchange(self) -> None:
        """Do one round: send what waits, fetch what others wrote, and write the snapshot that is due."""
        with self._changed:
            asked, now, only_send = self._asked, time.monotonic(), self._only_send and self._events.folder is None
            self._only_send = True  # until somebody asks for more
        if only_send and now - self._polled < POLL_SECONDS:
            with self._numbered() as goal:
                head = self._meta("sent", 0)
            self._push(self._meta("worker"), head, goal)
        else:
            self._exchange_all()
            self._polled = now
        with self._changed:
            self._done = asked
            self._changed.notify_all()
        if self._polled == now:
            self._tidy()

    def _exchange_all(self) -> None:
        goal: int | None = None
        for attempt in range(ATTEMPTS + len(self._to_forget)):
            view = self._read_view()
            if not self._identify(view):
                goal = None
                continue
            if not self._follow(view):  # first, so that nothing is sent that others have forgotten
                continue
            if goal is None:
                with self._numbered() as goal:
                    pass
            if (head := view.heads.get(view.me, (0, 0.0))[0]) < goal:
                self._push(view.me, head, goal)
                if self._events.folder is not None:
                    continue  # another process of the folder may have written an older head meanwhile
                view.heads[view.me] = goal, self._now()
            if (self._fetch(view) or attempt > MISSING_ATTEMPTS) and self._snapshots(view):
                return
        raise StorageError("other workers write to the shared store all the time")

    def _tidy(self) -> None:
        """Keep the local log short, and without what was forgotten."""
        with self._events.lock:
            self._events.refresh()
            if self._events.folder is None:
                with self._database.writing() as rows:
                    rows.execute(f"DELETE FROM events WHERE seq <= ? AND NOT ({KEEP})", (self._events.upto,))
        try:
            if self.erase:
                self._events.erase()
            elif self._events.snapshot_due:
                self._events.snapshot()
            self.erase = False
        except StorageError as error:
            self._ask(RETRY_SECONDS)
            self._events.say(f"the folder could not be rewritten ({error})")

    def _read_view(self) -> View:
        me, sent = self._meta("worker", ""), self._meta("sent", 0)  # first: other processes of the folder may send
        mine = GetOp((*self._root, "workers"), me or "-", refresh_ttl=False)  # pages may miss what changes meanwhile
        page, index, own = self._batch([self._search("workers"), self._search("index"), mine])
        heads, snapshots = dict[str, tuple[int, float]](), list[Snapshot]()
        for key, value in (*self._all("workers", page), *([(own.key, own.value)] if own is not None else ())):
            with suppress(KeyError, TypeError, ValueError):
                heads[key] = int(value["n"]), float(value["t"])
        for key, value in self._all("index", index):
            with suppress(TypeError):
                snapshots.append(Snapshot(key, **value))
        era = max((each.era for each in snapshots if each.done), default="")
        newest = sorted((each for each in snapshots if each.done and each.era == era), reverse=True)
        begins = {worker: max((each.begins.get(worker, 0) for each in newest), default=0) for worker in heads}
        return View(me, sent, heads, snapshots, newest, begins)

    # -- this worker --

    def _meta(self, name: str, other: Any = None) -> Any:
        found = self._database.ask("SELECT value FROM meta WHERE name = ?", (name,))
        return found[0][0] if found else other

    def _identify(self, view: View) -> bool:
        """Return True if this worker is who it was. Else it is a new one: one that never looked, a copy of a folder,
        one that was restored from a backup (the store has events that it has not) or was taken off the list. What was
        sent under the old name is another worker's now."""
        me, numbered, head = self._meta("worker", ""), self._meta("numbered", 0), view.heads.get(view.me, (0, 0.0))[0]
        if me != view.me:
            return False
        if me and self._place() == self._meta("place") and head <= numbered and (head or not view.sent):
            return True
        with self._database.writing() as rows:
            if self._meta("worker", "") != me:
                return False
            cursors = json.loads(self._meta("cursors") or "{}") if me else {}
            if me:
                sent = view.newest[0].cursors.get(me, view.sent) if view.newest else view.sent
                cursors[me] = min(head or sent, numbered)
                rows.execute("UPDATE events SET origin = ? WHERE origin = '' AND number < ?", (me, cursors[me]))
                rows.execute("UPDATE events SET number = NULL WHERE origin = ''")
            else:  # numbered rows are of a damaged `memory.db`: most were sent, and come back from the store
                rows.execute("DELETE FROM events WHERE origin = '' AND number IS NOT NULL")
                rows.execute("DELETE FROM meta WHERE name = 'cursors'")
            new = {"worker": uuid.uuid4().hex, "place": self._place(), "numbered": 0, "sent": 0, "held": 0}
            if self._meta("cursors") is not None:
                new["cursors"] = json.dumps(cursors)
            rows.executemany(_META, new.items())
        return False

    def _place(self) -> str:
        path = self._database.path
        return "" if path is None else f"{socket.gethostname()}|{path.stat().st_ino}"

    @contextmanager
    def _numbered(self) -> Iterator[int]:
        """Number the events that have none, in a transaction; yield how many this worker has. A number is final."""
        with self._database.writing() as rows:
            end = int(self._meta("numbered", 0))
            new = rows.execute("SELECT seq FROM events WHERE origin = '' AND number IS NULL ORDER BY seq").fetchall()
            numbers = [(number, seq) for number, (seq,) in enumerate(new, end)]
            rows.executemany("UPDATE events SET number = ? WHERE seq = ?", numbers)
            rows.execute(_META, ("numbered", end + len(numbers)))
            yield end + len(numbers)

    # -- sending and fetching --

    def _push(self, me: str, head: int, end: int) -> None:
        start = max(head, self._meta("held", 0))
        if head >= end:
            return
        own = "origin = '' AND number >= ? AND number < ?"
        for at in range(start, end, PAGE) or [end]:
            last = min(at + PAGE, end)
            rows = {stored.number: stored.row for stored in self._database.read(own, (at, last))}
            ops: list[Op] = []
            for number in range(at, last):
                row = rows.get(number) or EMPTY  # of a damaged row the others learn its number alone
                value = {"k": row.key, "u": row.user, "r": row.run, "b": row.body}
                ops.append(self._put("log", _key(number), value, me))
            self._batch([*ops, self._put("workers", me, {"n": last, "t": self._now()})])
            with self._database.writing() as database:
                database.execute(f"INSERT OR REPLACE INTO meta VALUES ('sent', max(?, {_SENT}))", (last,))

    def _fetch(self, view: View) -> bool:
        """Bring others' events into the local log, and apply them; return False if some are missing."""
        cursors = json.loads(self._meta("cursors"))
        ends = {worker: end for worker, (end, _) in view.heads.items() if end > cursors.get(worker, 0)}
        ends.pop(view.me, None)
        rows: list[tuple[Any, ...]] = []
        missing: dict[str, int] = {}
        wanted = [(worker, number) for worker, end in ends.items() for number in range(cursors.get(worker, 0), end)]
        for some in batches(wanted, PAGE):
            ops = [GetOp((*self._root, "log", worker), _key(number), refresh_ttl=False) for worker, number in some]
            for (worker, number), item in zip(some, self._batch(ops), strict=True):
                if item is None:
                    missing.setdefault(worker, number)
                elif worker not in missing:
                    key, user, run, body = (item.value.get(name) for name in "kurb")
                    readable = isinstance(body, str) and isinstance(key, (str, type(None)))  # else nobody here wrote it
                    row = Row(key, str(user), str(run), body) if readable else EMPTY
                    rows.append((*row.values(), worker, number))
        held, new = view.begins.get(view.me, 0), {**cursors, **ends, **missing}
        if new != cursors or held > self._meta("held", 0):
            with self._database.writing() as database:
                if json.loads(self._meta("cursors")) != cursors:
                    return False  # another process of the folder did
                database.executemany(INSERT, rows)
                database.executemany(_META, [("cursors", json.dumps(new)), ("held", held)])
            with self._events.lock:
                self._events.news = True
                self._events.refresh()
        return not missing

    # -- snapshots --

    def _follow(self, view: View) -> bool:
        """Begin in an empty store; restart from the newest snapshot where its events cannot be fetched one by one;
        return False if that one was replaced meanwhile."""
        known, era, folder = self._meta("cursors"), self._meta("era", ""), self._events.folder
        if known is None and not view.newest and view.heads.keys() <= {view.me} and folder is not None:
            with self._database.writing() as rows:
                rows.execute(_META, ("cursors", "{}"))
            if self._events.upto:  # it learned alone, and may have deleted events
                self.write_snapshot(view)
            return True
        cursors, newest = json.loads(known or "{}"), view.newest[0].era if view.newest else ""
        behind = any(cursors.get(worker, 0) < begin for worker, begin in view.begins.items() if worker != view.me)
        if known is None or newest > era or (newest == era and behind):
            found = self._read_snapshot(view)
            if found is None and view.newest:
                if view.newest == self._read_view().newest:
                    raise StorageError("no snapshot of the shared store can be read")
                return False
            self._restart(view, era, found)
        return True

    def _restart(self, view: View, era: str, found: tuple[Values, Snapshot] | None) -> None:
        """Take a snapshot, or nothing, in place of the graph."""
        cursors = {} if found is None else dict(found[1].cursors)
        own, late, notes = cursors.pop(view.me, 0), list[Forgotten](), 0
        new: Values = {"cursors": json.dumps(cursors), "held": view.begins.get(view.me, 0)}
        if found is not None and found[1].era > era:
            new["era"] = found[1].era
            for key, note in self._notes():
                if era < key <= found[1].era:
                    notes += 1
                    gone = Forgotten(note["user"], frozenset(note["runs"]))
                    self._forgotten(gone)
                    if any(number is not None for number in self.withdraw(gone, note["cursors"].get(view.me, 0))):
                        late.append(gone)  # sent after the note, and others may have read it
        if self._meta("cursors") is None and self._meta("upto") and self._events.folder is not None:
            self._events.say("what this folder had learned before it was shared was replaced by what the store has")
        self._events.restart(None if found is None else found[0], own, new)
        self.erase = self.erase or notes > 0
        for gone in late:
            with self._events.lock:
                self._events.forget(gone)
            with self._changed:
                self._to_forget.append(gone)

    def _read_snapshot(self, view: View) -> tuple[Values, Snapshot] | None:
        """Return the newest snapshot that can be read, and its graph; None if there is none."""
        for each in view.newest:
            if any(each.cursors.get(worker, 0) < begin for worker, begin in view.begins.items()):
                continue
            text = []
            try:
                for some in batches(range(each.parts), 4):
                    ops = [GetOp((*self._root, "snapshot", each.id), _key(part)) for part in some]
                    text += [item.value["p"] for item in self._batch(ops)]
                with snapshot.no_collections():
                    return snapshot.loads(zlib.decompress(base64.b64decode("".join(text)))), each
            except AttributeError:
                continue  # deleted meanwhile
            except (KeyError, TypeError, ValueError, zlib.error, GraphFileError) as error:
                self._say(f"snapshot {each.id} cannot be used ({describe_error(error)})", error)
        return None

    def _snapshots(self, view: View) -> bool:
        """Write the snapshots that are due; return False if the round is to look again."""
        if self._to_forget:
            gone = self._to_forget[0]
            if self.write_snapshot(view, gone):
                with self._changed:
                    self._to_forget = [each for each in self._to_forget if each is not gone]
                    self._changed.notify_all()
            else:
                time.sleep(uuid.uuid4().int % 100 / 1000)  # so that two who forget at once do not meet again
            return False
        cursors, held = json.loads(self._meta("cursors")), view.newest[0].cursors if view.newest else {}
        new = sum(max(0, end - held.get(worker, 0)) for worker, (end, _) in view.heads.items())
        each = 1 + int(view.me[:4], 16) / 0x10000  # so that not all write one at the same time
        if new >= each * SNAPSHOT_EVERY and not self._events.read_only:
            before = self._now() - DEAD_SECONDS
            dead = [
                worker
                for worker, (end, when) in view.heads.items()
                if worker != view.me and when < before and end <= cursors.get(worker, 0)
            ]
            self.write_snapshot(view, dead=dead if 2 * len(dead) > len(view.heads) else ())
        return True

    def write_snapshot(self, view: View, gone: Forgotten | None = None, dead: Sequence[str] = ()) -> bool:
        """Store the graph; delete the events that the snapshot before it holds, and what nobody needs.

        With `gone` (not in the graph) or `dead` workers (taken off the list: nobody would know that he lacks their
        events) a new era begins. Return False if another worker wrote one meanwhile, or this one took too long.
        """
        with self._events.lock:
            if self._events.waits:
                raise StorageError("events wait to be stored first")
            with self._numbered() as end:
                self._events.news = True
                self._events.refresh()
                known, base = json.loads(self._meta("cursors")), self._meta("era", "")
            data = snapshot.dumps(self._events.graph.to_state())
        snapshot.check(data)
        text = base64.b64encode(zlib.compress(data, 1)).decode()
        parts = [text[at : at + PART] for at in range(0, len(text), PART)]
        number = 1 + max(int(each.partition("-")[0] or 0) for each in (base, *(each.id for each in view.snapshots)))
        name, alone = f"{_key(number)}-{uuid.uuid4().hex}", bool(gone or dead)
        before = view.newest[0] if view.newest and view.newest[0].era == base else None
        cursors = {**{worker: known.get(worker, 0) for worker in view.heads}, view.me: end}
        begins = cursors if alone else {each: before.cursors.get(each, 0) if before else 0 for each in cursors}
        left, now = before.left if before else {}, self._now()
        mine = Snapshot(name, name if alone else base, len(parts), cursors, begins, left, self._id, now)
        ops = [self._announce(mine)]
        if gone is not None:
            note = {"user": gone.user, "runs": sorted(gone.runs), "at": now, "cursors": cursors}
            ops.append(self._put("forgotten", name, note))
        self._batch(ops)
        for some in batches(enumerate(parts), 4):
            if not self._is_over(mine):
                mine = mine._replace(at=self._now())
                items = (self._put("snapshot", _key(number), {"p": part}, name) for number, part in some)
                self._batch([self._announce(mine), *items])
        view = self._read_view()
        if self._is_over(mine) or not self._stands(mine, base, view):
            self._batch([*self._deleted(mine), self._put("forgotten", name, None)])
            return False
        mine = mine._replace(done=True)
        self._batch([self._announce(mine)])
        if alone:
            with self._database.writing() as rows:
                rows.executemany(_META, [("era", name), ("held", end)])  # unsent ones are not sent any more
        self._trim(mine, before, dead, view)
        return True

    def _trim(self, mine: Snapshot, before: Snapshot | None, dead: Sequence[str], view: View) -> None:
        """Delete all other snapshots but the one before in this era, events that both hold, and what is out of date."""
        stays = {mine.id, *([before.id] if before is not None and before.era == mine.era else ())}
        for each in view.snapshots:
            if each.id not in stays and (each.done or each.era < mine.era or self._is_stray(each)):
                self._batch(self._deleted(each))
        ends = {**(before.begins if before is not None else {}), **mine.begins}
        old = [(worker, n) for worker, end in ends.items() for n in range(mine.left.get(worker, 0), end)]
        for page in batches(old, PAGE):
            self._batch(self._put("log", _key(n), None, worker) for worker, n in page)
        latest = self._now() - FORGOTTEN_SECONDS
        lists = [("forgotten", key) for key, each in self._notes() if each.get("at", 0.0) < latest]
        lists += [("workers", worker) for worker in dead]
        self._batch([*(self._put(*each, None) for each in lists), self._announce(mine._replace(left=mine.begins))])

    def _stands(self, mine: Snapshot, base: str, view: View) -> bool:
        """Return True if no other snapshot holds what this one lacks, and none begins an era in its place."""
        for each in view.snapshots:
            if each.id == mine.id or self._is_stray(each):
                continue
            holds = each.cursors if each.done else each.begins
            lacks = any(mine.cursors.get(worker, 0) < end for worker, end in holds.items() if worker in view.heads)
            # An era that was announced before the round of this one: its writer gives up, or forgets what this one has.
            earlier = not each.done and mine.era == mine.id and each.id[:12] < mine.id[:12]
            if (each.era > base and not earlier) or (each.era == base and lacks):
                return False
        return any(each.id == mine.id for each in view.snapshots)

    def _is_stray(self, each: Snapshot) -> bool:
        return not each.done and (each.by == self._id or self._is_over(each))

    def _is_over(self, each: Snapshot) -> bool:
        return each.at < self._now() - LEASE_SECONDS

    def _announce(self, each: Snapshot) -> PutOp:
        return self._put("index", each.id, {key: value for key, value in each._asdict().items() if key != "id"})

    def _deleted(self, each: Snapshot) -> list[PutOp]:
        parts = [self._put("snapshot", _key(part), None, each.id) for part in range(each.parts)]
        return [*parts, self._put("index", each.id, None)]

    # -- forgetting --

    def withdraw(self, gone: Forgotten, start: int = 0) -> list[int | None]:
        """Blank what was forgotten among own events from a number on; return their numbers."""
        own = "SELECT seq, user, run, number FROM events WHERE origin = '' AND (number IS NULL OR number >= ?)"
        with self._database.writing() as rows:
            found = [each for each in rows.execute(own, (start,)).fetchall() if gone.has(each[2], each[1])]
            blank = "UPDATE events SET key = NULL, user = '', run = '', body = '[]', checksum = ? WHERE seq = ?"
            rows.executemany(blank, [(EMPTY.values()[-1], seq) for seq, *_ in found])
        return [number for *_, number in found]

    def _notes(self) -> list[tuple[str, Values]]:
        return list(self._all("forgotten", self._batch([self._search("forgotten")])[0]))

    # -- items --

    def _put(self, kind: str, key: str, value: Values | None, *of: str) -> PutOp:
        return PutOp((*self._root, kind, *of), key, value, index=False)

    def _search(self, kind: str, offset: int = 0) -> SearchOp:
        return SearchOp((*self._root, kind), limit=PAGE, offset=offset, refresh_ttl=False)

    def _all(self, kind: str, page: Sequence[Any]) -> Iterator[tuple[str, Values]]:
        for offset in count(PAGE, PAGE):
            # A store may match more than was asked for: longer namespaces, or a wildcard in a label.
            yield from ((item.key, item.value) for item in page if item.namespace == (*self._root, kind))
            if len(page) < PAGE:
                return
            page = self._batch([self._search(kind, offset)])[0]

    def _say(self, text: str, error: Exception | None = None) -> None:
        if text not in self._said and not self.closed:
            self._said.add(text)
            logger.warning("%s: %s", ".".join(self._root), text)
            if error is not None:  # a driver's error may quote the event that it refused
                logger.debug("%s: %s", ".".join(self._root), text, exc_info=error)


def _key(number: int) -> str:
    return f"{number:012d}"


def encode_namespace(namespace: tuple[str, ...]) -> tuple[str, ...]:
    """Return the namespace as a ``BaseStore`` accepts it; different namespaces stay different."""
    labels = tuple("".join(f"={ord(each):02X}" if each in "=.\0" else each for each in label) for label in namespace)
    labels = tuple(label or "=" for label in labels)
    if labels[:1] == ("langgraph",):  # the one word that a store refuses as the first label
        return (f"={ord('l'):02X}anggraph", *labels[1:])
    return labels
