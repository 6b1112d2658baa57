"""Several machines, one graph: workers exchange the rows of their event logs through a LangGraph ``BaseStore``.

A worker is one ``memory.db``: all processes of its folder, or one process without a folder. A ``BaseStore`` has no
transactions, so each item has one writer, or it does not matter who writes it last:

``(*root, "log", worker)``    the worker's events, numbered from 0 without gaps: ``k`` key, ``u`` user, ``r`` run, ``b``
``(*root, "workers")``        how many events each has (``n``), and when it wrote the last (``t``)
``(*root, "snapshot", id)``   a graph in parts, with the number of events of each worker that it is made of (cursors)
``(*root, "meta")``           ``snapshot``: ids of the newest two, cursors of the newest, where the logs begin
``(*root, "forgotten")``      users and runs that were forgotten lately, for workers with old events

Who learns appends to ``memory.db`` and waits for nothing: a thread sends those rows, and brings others' rows into the
same table. Events commute, so any worker's graph can be the snapshot. A worker whose next events were deleted from the
logs takes the snapshot in place of its graph, and adds its own events that are not in it.

Forgetting deletes all other snapshots and all events below the new one's cursors. Events of the user that another
worker sent meanwhile, or has not sent yet, are blanked by that worker as soon as it reads the note.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, islice
from typing import Any, Final, TypeAlias, TypeVar

from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import GraphFileError, StorageError, describe_error
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.base.threads import this_step
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.stores import snapshot
from langgraph_toolmem.stores.events import INSERT, RETRY_SECONDS, EventStore

Values: TypeAlias = dict[str, Any]

CHUNK: Final = 250
"""Events that are sent at once."""
PAGE: Final = 1000
"""Items that are asked for, or deleted, at once."""
PART: Final = 256 * 1024
"""Characters of a part of a snapshot."""
SNAPSHOT_EVERY: Final = 4_000
"""Events that no snapshot holds from which a worker writes one (up to twice as many: each its own number)..."""
CHARACTERS_EACH: Final = 300
"""... and more where the snapshot has more characters than so many for each event."""
GATHER_SECONDS: Final = 0.05
"""Events wait so long for others, to be sent with them."""
POLL_SECONDS: Final = 1.0
"""Steps look for others' events at most this often."""
IDLE_SECONDS: Final = 30.0
"""The thread ends after so long without work."""
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 30.0
GAP_SECONDS: Final = 60.0
"""An event that should be there holds up its worker's next ones so long."""
STRAY_SECONDS: Final = 600.0
"""Unnamed parts of a snapshot belong to nobody from this age."""
DEAD_SECONDS: Final = 7200.0
"""A worker that sent nothing for so long, and whose log is in the snapshots, is taken off the list."""
FORGOTTEN_SECONDS: Final = 90 * 86400.0
UNSURE_SECONDS: Final = 30.0
"""Another worker finishes what a worker that forgets has not done after so long."""
MANY: Final = 1000
"""Waiting events from which on a report mentions them while all is well."""
MAX_THREADS: Final = 8
"""Threads that hang in a store, from which on no other is started in their place."""

SENT: Final = "ifnull((SELECT value FROM meta WHERE name = 'sent'), 0)"
KEEP: Final = f"origin = '' AND (number IS NULL OR number >= {SENT})"
_META: Final = "INSERT OR REPLACE INTO meta VALUES (?, ?)"

logger = logging.getLogger("langgraph_toolmem.shared")


class SharedLog:
    """Sends what this worker learned, and brings what others did. Safe to use from several threads.

    Args:
        store: any ``BaseStore``; nothing is indexed in it.
        namespace: where in the store; labels may hold any text.
        events: the event log of this worker.
        now: seconds since 1970.
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
        deadline: float,
        patience: float,
    ) -> None:
        assert events.database is not None
        self._store, self._root, self._events, self._now = store, encode_namespace(namespace), events, now
        self._database = events.database
        self._deadline, self._patience = deadline, patience
        self._name = f"The shared store ({type(store).__name__})"
        events.keep = KEEP
        self._changed = threads.condition()
        self.thread: threading.Thread | None = None
        self._hanging = 0
        self._due = self._polled = float("-inf")
        self.closed = False
        self._asked = self._looked = 0  # looks that were asked for, and done
        self._learned = self._sent = 0  # changes here, and those of them that the store has
        self._to_forget: list[Forgotten] = []
        self._calling: float | None = None  # since when a call is under way
        self._failures, self._failure = 0, ""
        self._pause = self._again = 0.0
        self._ready = False  # notes were read, and what others have deleted is known
        self._gaps: dict[str, float] = {}
        self.erase = self._alone = self._forked = False
        self._unsure: list[Values] = []  # notes whose snapshot was not seen yet
        self._said = set[str]()
        threads.at_fork(self)
        threads.at_exit(self)
        self.wait(lambda: self._ready, deadline, progress=True)

    # -- for who learns --

    def learned(self) -> None:
        """Have new events sent soon; without a folder a step waits for that at its end."""
        with self._changed:
            self._learned += 1
        self._wake(GATHER_SECONDS)
        if self._events.folder is None and (waits := this_step()) is not None:
            waits.last[self.acknowledge] = None

    def acknowledge(self) -> None:
        """Wait a moment for the store to have what was learned, where nothing else outlives the process."""
        if self._events.folder is None:
            self.wait_sent(None)

    def look(self, *, at_once: bool = False) -> None:
        """Have others' events fetched, and wait a moment for that. Not under the lock.

        Args:
            at_once: wait up to the deadline; else at most once a second, and no longer than a step may.
        """
        now = time.monotonic()
        if not at_once and now - self._polled < POLL_SECONDS:
            return
        self._polled = now
        with self._changed:
            self._asked += 1
            wanted = self._asked
        self.wait(lambda: self._looked >= wanted, self._deadline if at_once else None)

    def waiting(self) -> list[str]:
        """Return what is wrong now, one sentence each."""
        hangs, problem = self._hangs(), ""
        if hangs > self._deadline:
            problem = f"{self._name} has not answered for {hangs:.0f} s"
        elif self._failure:
            problem = f"{self._name} failed {self._failures} times in a row ({self._failure})"
        try:
            [(rows,)] = self._database.ask(f"SELECT count(*) FROM events WHERE {KEEP}") or [(0,)]
        except StorageError:
            rows = 0
        if rows and (problem or rows > MANY):
            where = "RAM" if self._events.folder is None else str(self._database.path)
            return [f"{problem or self._name + ' is behind'}; {rows:,} events wait in {where}, and are sent later"]
        return [problem] if problem else []

    def forget(self, gone: Forgotten) -> int:
        """Remove from the store what the graph of this worker has forgotten. Not under the lock.

        Raises:
            StorageError: the store did not do it in time; it is tried again as long as this process runs.
        """
        with self._changed:
            self._to_forget.append(gone)
        if not self.wait(lambda: not any(each is gone for each in self._to_forget), self._deadline, progress=True):
            why = self._failure or f"no answer within {self._deadline:.2g} s"
            raise StorageError(
                f"It is forgotten here, but the shared store may still hold it, and other workers go on with it ({why})"
                ". Make the store reachable and call forget again."
            )
        return 0

    def close(self) -> None:
        """Send what waits."""
        done = self.wait_sent(2 * self._deadline)
        with self._changed:
            self.closed = True
            thread = self.thread
            self._changed.notify_all()
        if thread is not None:
            thread.join(self._deadline)
        if not done and self._events.folder is None:
            self._events.say("the shared store did not answer at the end: what waited for it is lost")

    def stop(self, end: float) -> None:
        """Send at exit what would not outlive the process."""
        if self._events.folder is None:
            self.wait_sent(max(0.0, end - time.monotonic()))
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def forked(self) -> None:
        """Go on in a forked child: the thread is the parent's. Without a folder the child is another worker."""
        self.thread, self._calling, self._hanging, self._ready = None, None, 0, False
        self._sent = self._learned
        self._forked = self._forked or self._events.folder is None
        threads.at_exit(self)

    # -- waiting --

    def wait_sent(self, seconds: float | None) -> bool:
        with self._changed:
            wanted = self._learned
        return self._sent >= wanted or self.wait(lambda: self._sent >= wanted, seconds)

    def wait(self, done: Callable[[], bool], seconds: float | None, *, progress: bool = False) -> bool:
        """Wake the thread and wait for it; return True if it is done.

        Args:
            done: True if it is.
            seconds: to wait; None: what is left of a step's patience, and not while the store fails or hangs.
            progress: go on as long as no single call takes so long.
        """
        waits, begun, failures = this_step(), time.monotonic(), self._failures
        if seconds is not None:
            self._again = 0.0
        self._wake()
        most = self._patience - (waits.waited if waits is not None else 0.0) if seconds is None else seconds
        with self._changed:
            while not (found := done()) and not self.closed:
                now = time.monotonic()
                if self._failures > failures or (seconds is None and now < self._again):
                    break
                if seconds is None and self._hangs() > self._patience:
                    break
                since = max(begun, self._calling or begun) if progress else begun
                if (left := since + most - now) <= 0:
                    break
                self._changed.wait(min(left, 0.05))
        if seconds is None and waits is not None:
            waits.waited += time.monotonic() - begun
        return found

    def _hangs(self) -> float:
        """Return for how many seconds a call is under way."""
        since = self._calling
        return 0.0 if since is None else time.monotonic() - since

    def _wake(self, after: float = 0.0) -> None:
        with self._changed:
            if self.closed:
                return
            if self._hangs() > max(LONGEST_PAUSE, 10 * self._deadline) and self._hanging < MAX_THREADS:
                self._hanging += 1
                self.thread = None
            if (due := time.monotonic() + after) < self._due:
                self._due = due
                self._changed.notify_all()
            if self.thread is None or not self.thread.is_alive():
                self._calling = None
                with suppress(RuntimeError):  # the interpreter ends
                    self.thread = threads.start("toolmem-shared", self._work)

    # -- the thread --

    def _work(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                while self.thread is me and not self.closed:
                    left = max(self._due, self._again) - time.monotonic()
                    if left <= 0:
                        break
                    if not self._changed.wait(min(left, IDLE_SECONDS)) and self._due == float("inf"):
                        self.thread = None
                if self.thread is not me or self.closed:
                    return
                self._due = float("inf")
            try:
                self._exchange()
            except _ReplacedError:
                return
            except Exception as error:  # noqa: BLE001 - any store and any driver, each with errors of its own
                self._failure = type(error).__name__
                self._say(f"the store failed ({self._failure}); it will be tried again", error)
                with self._changed:
                    self._failures += 1
                    self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
                    self._due = self._again = time.monotonic() + self._pause
                    self._changed.notify_all()
            else:
                self._pause, self._failures, self._failure = 0.0, 0, ""

    def _batch(self, ops: Iterable[Op]) -> list[Any]:
        """Do one round trip, none for nothing."""
        if not (ops := list(ops)):
            return []
        me = threading.current_thread()
        if self.thread is not me:
            raise _ReplacedError
        self._calling = time.monotonic()
        try:
            return self._store.batch(ops)
        finally:
            if self.thread is me:
                self._calling = None
            else:
                self._hanging -= 1
                raise _ReplacedError

    def _exchange(self) -> None:
        """Send what waits, and fetch what others wrote if somebody asked for it."""
        if not self._ready:
            self._claim()
            self._heed()
        with self._changed:
            asked, learned, gone = self._asked, self._learned, list(self._to_forget)
        looks = asked > self._looked or not self._ready
        while self._push():
            pass
        with self._changed:
            self._sent = learned
            self._changed.notify_all()
        if looks:
            self._pull()
            self._ready = True
            with self._changed:
                self._looked = asked
                self._changed.notify_all()
        for each in gone:
            self.forget_there(each)
            with self._changed:
                self._to_forget = [other for other in self._to_forget if other is not each]
                self._changed.notify_all()
        self._tidy()

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
            self._again_in(RETRY_SECONDS)
            self._events.say(f"the folder could not be rewritten ({error})")

    # -- sending --

    def _meta(self, name: str, other: Any = None) -> Any:
        found = self._database.ask("SELECT value FROM meta WHERE name = ?", (name,))
        return found[0][0] if found else other

    def me(self) -> str:
        return str(self._meta("worker"))

    def _claim(self) -> None:
        """Give this worker a name, and another one to a copy of a folder."""
        with self._database.writing() as rows:
            path = self._database.path
            place = "" if path is None else f"{socket.gethostname()}|{path.stat().st_ino}"
            name, known = self._meta("worker"), self._meta("place", "")
            if name is None:
                # Numbered rows without a name: `memory.db` was damaged. Most were sent, and come back from the store.
                rows.execute("DELETE FROM events WHERE origin = '' AND number IS NOT NULL")
                rows.execute(_META, ("worker", uuid.uuid4().hex))
            rows.execute(_META, ("place", place))
        if name is not None and known != place:
            self._rename()

    def _number(self) -> int:
        """Number the events that have none; return how many this worker has. A number is final."""
        if self._database.ask("SELECT 1 FROM events WHERE origin = '' AND number IS NULL LIMIT 1"):
            with self._database.writing() as rows:
                end = (rows.execute("SELECT value FROM meta WHERE name = 'numbered'").fetchone() or (0,))[0]
                new = rows.execute("SELECT seq FROM events WHERE origin = '' AND number IS NULL ORDER BY seq")
                numbers = [(number, seq) for number, (seq,) in enumerate(new.fetchall(), end)]
                rows.executemany("UPDATE events SET number = ? WHERE seq = ?", numbers)
                rows.execute(_META, ("numbered", end + len(numbers)))
        return int(self._meta("numbered", 0))

    def _push(self) -> bool:
        """Send some events; return True if there may be more."""
        me, _ = self.me(), self._number()
        sql = f"SELECT number, key, user, run, body FROM events WHERE origin = '' AND number >= {SENT}"
        rows = self._database.ask(f"{sql} ORDER BY number LIMIT {CHUNK}")
        if not rows:
            return False
        end = rows[-1][0] + 1
        self._batch([*(self._record(me, *row) for row in rows), self._head(me, end)])
        with self._database.writing() as database:
            database.execute(f"INSERT OR REPLACE INTO meta VALUES ('sent', max(?, {SENT}))", (end,))
        return len(rows) == CHUNK

    def _record(self, me: str, number: int, key: str | None, user: str, run: str, body: str) -> PutOp:
        return self._put("log", _key(number), {"k": key, "u": user, "r": run, "b": body}, me)

    def _head(self, me: str, end: int) -> PutOp:
        return self._put("workers", me, {"n": end, "t": self._now()})

    # -- fetching --

    def _pull(self) -> None:
        sent = self._meta("sent", 0)  # before the look: another process of the folder may send
        heads, meta = self._look()
        me, numbered = self.me(), self._number()
        head = heads.get(me, (0, 0.0))[0]
        if head > numbered or (sent and not head):
            # The folder is an old state of another, or this worker was taken off the list.
            self._rename()
            me = self.me()
        known = self._meta("cursors")
        cursors = json.loads(known) if known else {}
        begins = meta.get("begins", {})
        away = self._meta("looked", 0.0) < meta.get("dropped", 0.0) - DEAD_SECONDS / 2
        behind = away or any(cursors.get(worker, 0) < begin for worker, begin in begins.items() if worker != me)
        if known is None and not meta and not self._forked and not heads.keys() - {me}:
            self._begin()
        elif known is None or behind:
            cursors = self._restart(me, meta)
        self._fetch(me, heads, cursors, meta)
        heads[me] = (self._meta("numbered", 0), self._now())
        held = meta.get("cursors", {})
        self._unsure = [each for each in self._unsure if held.get(each["by"], 0) < each["end"]]
        alone = self._alone or any(self._now() - each["at"] > UNSURE_SECONDS for each in self._unsure)
        if not self._events.read_only and (alone or self._is_due(me, heads, meta)):
            self._write_snapshot(alone=alone)
            self._alone = False

    def _look(self) -> tuple[dict[str, tuple[int, float]], Values]:
        """Return how many events each worker has and when it wrote, and what is known of snapshots."""
        heads: dict[str, tuple[int, float]] = {}
        meta = GetOp((*self._root, "meta"), "snapshot", refresh_ttl=False)
        mine = GetOp((*self._root, "workers"), self.me(), refresh_ttl=False)  # pages may miss what changes meanwhile
        page, found, own = self._batch([self._search("workers"), meta, mine])
        for key, value in (*self._all("workers", page), *([(own.key, own.value)] if own is not None else ())):
            with suppress(KeyError, TypeError, ValueError):
                heads[key] = int(value["n"]), float(value["t"])
        return heads, {} if found is None else found.value

    def _begin(self) -> None:
        """Begin in an empty store. A folder that learned alone, and deleted events since, has them in a snapshot."""
        first = self._database.ask("SELECT ifnull(min(seq), 0) FROM events")
        self._save({})
        if self._events.folder is not None and (self._events.upto and first[0][0] != 1):
            self._write_snapshot()

    def _rename(self) -> None:
        """Become a new worker; events that were sent under the old name are another worker's now."""
        with self._database.writing() as rows:
            me, sent, cursors = self.me(), self._meta("sent", 0), json.loads(self._meta("cursors", "{}"))
            rows.execute("UPDATE events SET origin = ? WHERE origin = '' AND number < ?", (me, sent))
            rows.execute("UPDATE events SET number = NULL WHERE origin = ''")
            new = {"worker": uuid.uuid4().hex, "numbered": 0, "sent": 0, "cursors": json.dumps({**cursors, me: sent})}
            rows.executemany(_META, new.items())
        self._number()

    def _restart(self, me: str, meta: Values) -> dict[str, int]:
        """Take the newest snapshot, or nothing if there is none, in place of the graph."""
        self._heed()
        state, cursors = self._read_snapshot(meta)
        sent = self._meta("sent", 0)
        own, _ = self._get([(me, number) for number in range(cursors.pop(me, 0), sent)])
        if self._meta("cursors") is None and self._meta("upto") and self._events.folder is not None:
            self._events.say("what this folder had learned before it was shared was replaced by what the store has")
        rows = {"cursors": json.dumps(cursors), "looked": self._now()}
        self._events.restart(state, [(each["k"], each["b"]) for _, _, each in own], rows)
        return cursors

    def _fetch(self, me: str, heads: Mapping[str, tuple[int, float]], cursors: dict[str, int], meta: Values) -> None:
        """Bring others' events behind the cursors into the local log, and apply them."""
        ends = {worker: end for worker, (end, _) in heads.items() if worker != me and end > cursors.get(worker, 0)}
        found, missing = self._get(
            [(worker, number) for worker, end in ends.items() for number in range(cursors.get(worker, 0), end)]
        )
        now = time.monotonic()
        self._gaps = {worker: self._gaps.get(worker, now) for worker in missing}
        for worker, number in missing.items():
            if number < meta.get("cursors", {}).get(worker, 0) or self._is_trimmed(worker, number):
                self._restart(me, self._look()[1])
                self._again_in(0.0)
                return
            if now - self._gaps[worker] < GAP_SECONDS:
                ends[worker] = number
                self._again_in(1.0)
            else:
                self._say(f"events of worker {worker} are missing from {number} on and are skipped")
        rows = [(worker, number, each) for worker, number, each in found if number < ends[worker]]
        rows.sort(key=lambda row: _forgets(row[2]["b"]))  # after what they forget, whoever sent it
        new = {**cursors, **ends}
        if len(new) > 2 * len(heads) + 100:
            new = {worker: number for worker, number in new.items() if worker in heads}
        if self._save(new, cursors, rows) and rows:
            with self._events.lock:
                self._events.news = True
                self._events.refresh()
        if rows and _forgets(rows[-1][2]["b"]):
            self._heed()

    def _again_in(self, seconds: float) -> None:
        with self._changed:
            self._asked += 1
            self._due = min(self._due, time.monotonic() + seconds)

    def _is_trimmed(self, worker: str, number: int) -> bool:
        """Look again: a snapshot may have been written since."""
        _, meta = self._look()
        return bool(number < max(meta.get(each, {}).get(worker, 0) for each in ("begins", "cursors")))

    def _get(self, wanted: Sequence[tuple[str, int]]) -> tuple[list[tuple[str, int, Values]], dict[str, int]]:
        """Return events by worker and number, and the first number of each worker that is missing."""
        found: list[tuple[str, int, Values]] = []
        missing: dict[str, int] = {}
        for some in _pages(wanted, PAGE):
            ops = [GetOp((*self._root, "log", worker), _key(number), refresh_ttl=False) for worker, number in some]
            for (worker, number), item in zip(some, self._batch(ops), strict=True):
                if item is None:
                    missing.setdefault(worker, number)
                else:
                    found.append((worker, number, _event(item.value)))
        return found, missing

    def _save(
        self,
        cursors: Mapping[str, int],
        before: Mapping[str, int] | None = None,
        events: Sequence[tuple[str, int, Values]] = (),
    ) -> bool:
        """Store cursors and others' events in one transaction; return False if another process of the folder did."""
        if before == cursors and self._now() - self._meta("looked", 0.0) < DEAD_SECONDS / 8:
            return False
        with self._database.writing() as rows:
            known = rows.execute("SELECT value FROM meta WHERE name = 'cursors'").fetchone()
            if (None if known is None else json.loads(known[0])) != before:
                return False
            new = ((each["k"], each["u"], each["r"], each["b"], worker, number) for worker, number, each in events)
            rows.executemany(INSERT, new)
            rows.executemany(_META, [("cursors", json.dumps(dict(cursors))), ("looked", self._now())])
        return True

    # -- snapshots --

    def _is_due(self, me: str, heads: Mapping[str, tuple[int, float]], meta: Values) -> bool:
        held = meta.get("cursors", {})
        new = sum(max(0, end - held.get(worker, 0)) for worker, (end, _) in heads.items())
        each = 1 + int(me[:4], 16) / 0x10000  # so that not all write one at the same time
        return bool(new >= each * max(SNAPSHOT_EVERY, meta.get("size", 0) // CHARACTERS_EACH))

    def _write_snapshot(self, *, alone: bool = False, event: int | None = None) -> None:
        """Store the graph; delete the events that the snapshot before it holds, and what nobody needs.

        Args:
            alone: keep no other snapshot, and no event that is in this one.
            event: own events from this number on stay, so that workers that lack no other read it alone.
        """
        while self._push():
            pass
        me, name = self.me(), f"{int(self._now())}-{uuid.uuid4().hex}"
        with self._events.lock:
            if self._events.waits:
                raise StorageError("events wait to be stored first")
            with self._database.writing():
                end = self._number()
                self._events.news = True
                self._events.refresh()
                cursors = {**json.loads(self._meta("cursors") or "{}"), me: end}
            data = snapshot.dumps({"state": self._events.graph.to_state(), "cursors": cursors})
        text = base64.b64encode(zlib.compress(data, 1)).decode()
        parts = [text[at : at + PART] for at in range(0, len(text), PART)]
        for some in _pages(enumerate(parts), 4):
            self._batch(self._put("snapshot", _key(number), {"p": part}, name) for number, part in some)
        heads, before = self._look()
        newer = before.get("begins" if alone else "cursors", {})
        if any(cursors.get(worker, 0) < number for worker, number in newer.items()):
            if not alone:
                return  # another worker wrote one meanwhile
            raise StorageError("another worker wrote a snapshot at the same time")
        stays = [] if alone else before.get("snapshots", [])[:1]
        replaced = {each[0] for each in before.get("snapshots", [])[len(stays) :]}
        begins = cursors if alone else before.get("cursors", {})
        names = {*heads, *before.get("cursors", {}), me}
        begins = {worker: max(begins.get(worker, 0), before.get("begins", {}).get(worker, 0)) for worker in names}
        if event is not None:
            begins[me] = max(before.get("begins", {}).get(me, 0), event)
        dead = [
            worker
            for worker, (number, when) in heads.items()
            if worker != me and when < self._now() - DEAD_SECONDS and number <= begins[worker]
        ]
        meta: Values = {
            "snapshots": [[name, len(parts)], *stays],
            "cursors": {worker: cursors.get(worker, 0) for worker in names},
            "begins": begins,
            "size": len(text),
            "dropped": self._now() if dead else before.get("dropped", 0.0),
        }
        left = before.get("left", {})
        self._batch([self._put("meta", "snapshot", {**meta, "left": left})])
        gone = [(worker, n) for worker, begin in begins.items() for n in range(left.get(worker, 0), begin)]
        for page in _pages(gone, PAGE):
            self._batch(self._put("log", _key(number), None, worker) for worker, number in page)
        self._drop_strays({name, *(each[0] for each in stays)}, replaced, alone=alone)
        old = [key for key, note in self._notes() if self._now() - note.get("at", 0.0) > FORGOTTEN_SECONDS]
        self._batch(self._put("forgotten", key, None) for key in old)
        self._batch(self._put("workers", worker, None) for worker in dead)
        for worker in dead:
            meta["begins"].pop(worker)
            meta["cursors"].pop(worker)
        self._batch([self._put("meta", "snapshot", {**meta, "left": dict(begins)})])

    def _read_snapshot(self, meta: Values) -> tuple[Values | None, dict[str, int]]:
        """Return state and cursors of the newest snapshot that can be read; None and nothing if there is none."""
        for name, parts in meta.get("snapshots", ()):
            space = (*self._root, "snapshot", name)
            text = []
            try:
                for some in _pages(range(parts), 4):
                    text += [item.value["p"] for item in self._batch(GetOp(space, _key(part)) for part in some)]
                found = snapshot.loads(zlib.decompress(base64.b64decode("".join(text))))
                cursors = {str(worker): int(number) for worker, number in found["cursors"].items()}
            except (AttributeError, KeyError, TypeError, ValueError, zlib.error, GraphFileError) as error:
                self._say(f"snapshot {name} cannot be used ({describe_error(error)})", error)
                continue
            if all(cursors.get(worker, 0) >= begin for worker, begin in meta.get("begins", {}).items()):
                return found["state"], cursors
        if meta.get("snapshots"):
            raise StorageError("no snapshot of the shared store can be read")
        return None, {}

    def _drop_strays(self, named: set[str], replaced: set[str], *, alone: bool) -> None:
        """Delete the snapshots that were replaced, and parts of those whose writer was killed."""
        prefix, before = (*self._root, "snapshot"), self._now() - STRAY_SECONDS
        for space in self._batch([ListNamespacesOp((MatchCondition("prefix", prefix),), limit=PAGE)])[0]:
            name = space[-1]
            if space[:-1] != prefix or name in named:
                continue
            begun = name.partition("-")[0]
            if alone or name in replaced or (begun.isdigit() and int(begun) < before):
                found = self._batch([SearchOp(space, limit=PAGE, refresh_ttl=False)])[0]
                self._batch(PutOp(space, item.key, None) for item in found)

    # -- forgetting --

    def withdraw(self, gone: Forgotten) -> int:
        """Blank what was forgotten among the events that were not sent; return how many."""
        with self._database.writing() as rows:
            found = rows.execute(f"SELECT seq, user, run FROM events WHERE {KEEP}").fetchall()
            seqs = [(seq,) for seq, user, run in found if gone.has(run, user)]
            rows.executemany("UPDATE events SET key = NULL, user = '', run = '', body = '[]' WHERE seq = ?", seqs)
        return len(seqs)

    def forget_there(self, gone: Forgotten) -> None:
        runs, cursors = sorted(gone.runs), json.loads(self._meta("cursors") or "{}")
        note = {"user": gone.user, "runs": runs, "at": self._now(), "by": self.me(), "end": self._number()}
        self._batch([self._put("forgotten", gone.user or digest("runs", *runs), {**note, "cursors": cursors})])
        found = self._database.ask("SELECT max(number) FROM events WHERE origin = '' AND body LIKE '%_forgotten\"%'")
        self._write_snapshot(alone=True, event=found[0][0])

    def _notes(self) -> list[tuple[str, Values]]:
        return list(self._all("forgotten", self._batch([self._search("forgotten")])[0]))

    def _heed(self) -> None:
        """Blank own events that others have forgotten meanwhile, and have the folder rewritten."""
        me, heeded, notes = self.me(), set(json.loads(self._meta("heeded") or "[]")), self._notes()
        for key, note in notes:
            if f"{key}@{note['at']}" in heeded or note["by"] == me:
                continue
            gone = Forgotten(note["user"], frozenset(note["runs"]))
            late, _ = self._get([(me, number) for number in range(note["cursors"].get(me, 0), self._meta("sent", 0))])
            if self.withdraw(gone) or any(gone.has(each["r"], each["u"]) for _, _, each in late):
                # Others may read what was sent after the note. Counts, which stay, are in this worker's graph alone.
                with self._events.lock:
                    self._events.forget(gone)
                self._alone = True
            self._unsure.append(note)
            self.erase = True
        marks = json.dumps([f"{key}@{note['at']}" for key, note in notes])
        if self.erase:
            with self._database.writing() as rows:
                rows.execute(_META, ("heeded", marks))

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


class _ReplacedError(Exception):
    """A call of a thread returned that hung so long that another took its place."""


T = TypeVar("T")


def _pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while page := list(islice(rest, size)):
        yield page


def _key(number: int) -> str:
    return f"{number:012d}"


def _event(value: Any) -> Values:
    """Return an event as it was sent; an empty one for an item that nobody here wrote."""
    if isinstance(value, dict) and isinstance(value.get("b"), str) and isinstance(value.get("k"), (str, type(None))):
        return {"k": value["k"], "b": value["b"], "u": str(value.get("u", "")), "r": str(value.get("r", ""))}
    return {"k": None, "b": "[]", "u": "", "r": ""}


def _forgets(body: str) -> bool:
    return '_forgotten"' in body


def encode_namespace(namespace: tuple[str, ...]) -> tuple[str, ...]:
    """Return the namespace as a ``BaseStore`` accepts it; different namespaces stay different."""
    labels = tuple("".join(f"={ord(each):02X}" if each in "=.\0" else each for each in label) for label in namespace)
    labels = tuple(label or "=" for label in labels)
    if labels[:1] == ("langgraph",):  # the one word that a store refuses as the first label
        return (f"={ord('l'):02X}anggraph", *labels[1:])
    return labels
