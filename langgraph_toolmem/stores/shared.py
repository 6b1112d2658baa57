"""Several machines, one graph: workers exchange the rows of their event logs through a LangGraph ``BaseStore``.

`shared_items` describes the items of the store, and this worker's own rows.

**Events.** Learning appends to ``memory.db`` without waiting. A thread does rounds (`SharedLog`): it reads the store's
state, sends the rows from this worker's ``n`` on, reads again until the store has them, and brings others' rows into
the same table. Only one process uses the ``n`` of a worker without a folder: between two readings, a second apart, it
only sends. Events commute, so any worker's graph can be the snapshot. A worker that lacks older events replaces its
graph by the newest snapshot, and adds its own rows that are not in it. After another worker forgot a user, each worker
blanks its own later events of the user by the note.

**Snapshots.** One is written by a worker and read by those that lack older events (`SharedSnapshots`). It is announced
before its parts are written, and the announcement renewed with them: a lease. Its writer then reads again, and confirms
it unless another snapshot conflicts with it: of two writers, at least one sees the other. Two snapshots are kept, and
the logs reach back to the older one. Forgetting is a snapshot of a new *era*: it is the only snapshot, and all workers
restart from it.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from langgraph.store.base import BaseStore, Op, PutOp

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import GraphFileError, StorageError, describe_error
from langgraph_toolmem.base.threads import this_step
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.stores import snapshot
from langgraph_toolmem.stores.events import EMPTY_EVENT, EVENT_LIMITS, INSERT_EVENT, EventStore
from langgraph_toolmem.stores.remote import DEADLINE, PATIENCE
from langgraph_toolmem.stores.shared_items import (
    SHARED_LIMITS,
    ForgettingNote,
    SharedItems,
    SharedSnapshot,
    StoreView,
    Values,
    WorkerHead,
    WorkerRows,
    event_from_plain,
    event_to_plain,
    item_key,
    write_meta,
)
from langgraph_toolmem.stores.vectors import batches


def ignore_forgotten(_: Forgotten) -> None:
    """Ignore the data that another worker forgot."""


class SharedLog:
    """Sends this worker's events, and fetches those of others. Safe to use from several threads.

    Args:
        forgotten: called with the data that another worker forgot, before this worker forgets it; it must be harmless
            to call it twice.
        deadline: seconds to wait for the store if a caller asks for it.
        patience: seconds that a step waits.

    Attributes:
        worker: rows of this worker.
        snapshots: of the store.
        thread: does the rounds, while it runs.
        erase: True if the folder still has to be rewritten without forgotten data.
    """

    def __init__(
        self,
        store: BaseStore,
        namespace: tuple[str, ...],
        events: EventStore,
        *,
        now: Callable[[], float],
        forgotten: Callable[[Forgotten], object] = ignore_forgotten,
        deadline: float = DEADLINE,
        patience: float = PATIENCE,
    ) -> None:
        assert events.database is not None
        self._items = SharedItems(store, namespace)
        self.worker = WorkerRows(events.database)
        self.snapshots = SharedSnapshots(self._items, self.worker, events, now=now)
        self._events = events
        self._now = now
        self._forgotten = forgotten
        self._deadline = deadline
        self.patience = patience
        self._changed = threads.condition()
        self.thread: threading.Thread | None = None
        self._due = float("-inf")  # the next round, by time.monotonic
        self._polled = float("-inf")  # the latest round that read the store
        self.closed = False
        self.erase = False
        self._only_send = False
        self._asked = 1  # tickets: each requests a round that begins after it
        self._done = 0
        self._to_forget: list[Forgotten] = []
        self._failures = 0
        self._failure = ""
        self._again = 0.0  # a failed store is tried again from this time on
        threads.at_fork(self)
        threads.at_exit(self)
        self.wait_sent(deadline)

    # -- for learning --

    def learned(self) -> None:
        """Send new events soon; without a folder a step waits for it at its end."""
        self._ask(SHARED_LIMITS.gather_seconds, send_only=True)
        budget = this_step()
        if self._events.folder is None and budget is not None:
            budget.last[self.acknowledge] = None

    def acknowledge(self) -> None:
        """Wait briefly until the store has the learned events, if only the store outlives the process."""
        # With a folder, the events survive this process in `memory.db`.
        if self._events.folder is None:
            self.wait_sent(None)

    def poll(self, *, at_once: bool = False) -> None:
        """Fetch others' events if that is due, and wait briefly; `at_once`: now, and up to the deadline.

        Not under the lock.
        """
        if at_once or time.monotonic() - self._polled >= SHARED_LIMITS.poll_seconds:
            self._ask()
            self.wait_sent(self._deadline if at_once else None)

    def waiting(self) -> list[str]:
        """Return a sentence on a store that fails or does not answer, and on the waiting events."""
        name = f"The shared store ({type(self._items.store).__name__})"
        calling = self._items.calling
        hangs = 0.0 if calling is None else time.monotonic() - calling
        if hangs > self._deadline:
            problem = f"{name} has not answered for {hangs:.0f} s"
        elif self._failure:
            problem = f"{name} failed {self._failures} times in a row ({self._failure})"
        else:
            return []
        with suppress(StorageError):
            rows = self.worker.waiting()
            if rows:
                where = "RAM" if self._events.folder is None else str(self.worker.database.path)
                problem += f"; {rows:,} events wait in {where}, and are sent later"
        return [problem]

    def forget(self, gone: Forgotten) -> int:
        """Remove from the store the data that the graph of this worker has forgotten. Not under the lock.

        If it takes too long (StorageError), it is tried again as long as this process runs.

        Raises:
            StorageError: the store did not answer in time.
        """

        def is_done() -> bool:
            return not any(waiting is gone for waiting in self._to_forget)

        with self._changed:
            # Kept until a snapshot without the data is written, even if this call gives up before.
            self._to_forget.append(gone)
        self._ask()
        if not self.wait(is_done, self._deadline):
            why = self._failure or f"no answer within {self._deadline:.2g} s"
            raise StorageError(
                f"It is forgotten here, but the shared store may still hold it, and other workers go on with it ({why})"
                ". Make the store reachable and call forget again."
            )
        return 0

    def close(self) -> None:
        sent = self.stop(time.monotonic() + self._deadline)
        thread = self.thread
        if thread is not None:
            thread.join(self._deadline)
        if not sent and self._events.folder is None:
            self._events.say("the shared store did not answer at the end: what waited for it is lost")

    def stop(self, end: float) -> bool:
        """Send waiting events at exit; return True if the store has them."""
        sent = self.wait_sent(max(0.0, end - time.monotonic()))
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        return sent

    def forked(self) -> None:
        """Continue in a forked child: the thread is the parent's. Without a folder the child is another worker."""
        self.thread = None
        self._items.calling = None
        self.snapshots.process = uuid.uuid4().hex
        self._to_forget = []
        self._done = self._asked
        self._polled = float("-inf")
        threads.at_exit(self)

    # -- waiting --

    def _ask(self, after: float = 0.0, *, send_only: bool = False) -> None:
        with self._changed:
            self._asked += 1
            # A requested reading is not skipped because another round only sends.
            self._only_send = self._only_send and send_only
        self._wake(after)

    def wait_sent(self, seconds: float | None) -> bool:
        """Wait for a round that begins after all events and requests until now."""
        wanted = self._asked

        def is_done() -> bool:
            return self._done >= wanted

        return is_done() or self.wait(is_done, seconds)

    def wait(self, done: Callable[[], bool], seconds: float | None) -> bool:
        """Wake the thread and wait for it; return True if it is done, False if the store failed or took too long.

        `seconds`: for one call of the store; None means the rest of a step's patience for all calls.
        """
        budget = this_step()
        wait = _Wait(time.monotonic(), seconds, self._patience_left())
        if seconds is not None:
            self._again = 0.0
        failures = self._failures
        self._wake()
        with self._changed:
            is_done = done()
            while not is_done and not self.closed and self._failures == failures:
                now = time.monotonic()
                left = wait.left(now, self._items.calling)
                if left <= 0 or now < self._again:
                    break
                # In short waits, because another call of the store may begin, from which the rest is counted.
                self._changed.wait(min(left, 0.05))
                is_done = done()
        if seconds is None and budget is not None:
            budget.waited += time.monotonic() - wait.begun
        return is_done

    def _patience_left(self) -> float:
        budget = this_step()
        if budget is None:
            return self.patience
        return self.patience - budget.waited

    def _wake(self, after: float = 0.0) -> None:
        """Have a round done after so many seconds, by a new thread if none runs."""
        with self._changed:
            if self.closed:
                return
            due = time.monotonic() + after
            if due < self._due:
                self._due = due
                self._changed.notify_all()
            if self.thread is None or not self.thread.is_alive():
                with suppress(RuntimeError):  # the interpreter ends
                    self.thread = threads.start("toolmem-shared", self._work)

    # -- the thread --

    def _work(self) -> None:
        while self._wait_for_a_round():
            try:
                self._exchange()
            except Exception as error:  # noqa: BLE001 - any store and any driver, each with errors of its own
                self._note_failure(error)
            else:
                self._failures = 0
                self._failure = ""

    def _wait_for_a_round(self) -> bool:
        """Return True once a round is due, False if the thread should end."""
        with self._changed:
            while not self.closed:
                left = max(self._due, self._again) - time.monotonic()
                if left <= 0:
                    self._due = float("inf")
                    return True
                woken = self._changed.wait(min(left, SHARED_LIMITS.idle_seconds))
                if not woken and self._due == float("inf"):
                    self.thread = None
                    return False
        return False

    def _note_failure(self, error: Exception) -> None:
        self._failure = type(error).__name__
        # After a failure others' events are fetched at once.
        self._polled = float("-inf")
        if not self.closed:
            self._items.say(f"the store failed ({self._failure}); it will be tried again", error)
        with self._changed:
            pause = SHARED_LIMITS.first_pause * 2.0 ** min(self._failures, 20)
            self._again = time.monotonic() + min(pause, SHARED_LIMITS.longest_pause)
            self._due = self._again
            self._failures += 1
            self._changed.notify_all()

    def _exchange(self) -> None:
        """Do one round: send waiting events, fetch those of others, and write a due snapshot."""
        with self._changed:
            asked = self._asked
            now = time.monotonic()
            only_send = self._only_send and self._events.folder is None
            self._only_send = True  # until the next request
        looks = not only_send or now - self._polled >= SHARED_LIMITS.poll_seconds
        if looks:
            self._exchange_all()
            self._polled = now
        else:
            with self.worker.numbered() as goal:
                head = self.worker.sent
            self._push(self.worker.name, head, goal)
        with self._changed:
            self._done = asked
            self._changed.notify_all()
        if looks:
            self._tidy()

    def _exchange_all(self) -> None:
        goal: int | None = None
        # Each forgetting takes one more reading.
        for attempt in range(SHARED_LIMITS.attempts + len(self._to_forget)):
            view = self._look()
            if not self.worker.identify(view):
                goal = None
                continue
            if not self._follow(view):  # first, so that data that others have forgotten is not sent
                continue
            # Counted once: events that are learned meanwhile are those of the next round.
            if goal is None:
                goal = self.worker.count()
            if view.head < goal:
                self._push(view.me, view.head, goal)
                if self._events.folder is not None:
                    continue  # another process of the folder may have written an older head meanwhile
                view.heads[view.me] = WorkerHead(goal, self._now())
            is_whole = self._fetch(view)
            if (is_whole or attempt > SHARED_LIMITS.missing_attempts) and self._write_snapshots(view):
                return
        raise StorageError("other workers write to the shared store all the time")

    def _look(self) -> StoreView:
        me, sent = self.worker.name, self.worker.sent  # first: other processes of the folder may send
        return self._items.view(me, sent)

    def _tidy(self) -> None:
        """Keep the local log short, and without forgotten data."""
        with self._events.lock:
            self._events.refresh()
            # With a folder, its snapshots shorten the log.
            if self._events.folder is None:
                self.worker.shorten(self._events.upto)
        try:
            if self.erase:
                self._events.erase()
            elif self._events.snapshot_due:
                self._events.snapshot()
            self.erase = False
        except StorageError as error:
            self._ask(EVENT_LIMITS.retry_seconds)
            self._events.say(f"the folder could not be rewritten ({error})")

    # -- sending and fetching --

    def _push(self, me: str, head: int, end: int) -> None:
        """Send own events from the store's head on; events in both snapshots are deleted there, and not sent."""
        if head >= end:
            return
        last = max(head, self.worker.held)
        while True:
            start, last = last, min(last + SHARED_LIMITS.page, end)
            rows = self.worker.read(start, last)
            ops: list[Op] = []
            for number in range(start, last):
                row = rows.get(number) or EMPTY_EVENT  # for a damaged row the others get only its number
                ops.append(self._items.put("log", item_key(number), event_to_plain(row), me))
            ops.append(self._items.put("workers", me, WorkerHead(last, self._now()).to_plain()))
            self._items.batch(ops)
            self.worker.mark_sent(last)
            if last >= end:
                return

    def _fetch(self, view: StoreView) -> bool:
        """Bring others' events into the local log, and apply them; return False if some are missing."""
        cursors = self.worker.cursors or {}
        fetched = self._fetch_rows(view, cursors)
        held = view.begins.get(view.me, 0)
        if fetched.cursors != cursors or held > self.worker.held:
            with self.worker.database.writing() as database:
                if self.worker.cursors != cursors:
                    return False  # another process of the folder did
                database.executemany(INSERT_EVENT, fetched.rows)
                write_meta(database, {"cursors": json.dumps(fetched.cursors), "held": held})
            with self._events.lock:
                self._events.news = True
                self._events.refresh()
        return fetched.is_whole

    def _fetch_rows(self, view: StoreView, cursors: dict[str, int]) -> _Fetched:
        fetched = _Fetched(dict(cursors))
        missing: set[str] = set()
        for some in batches(_unfetched(view, cursors), SHARED_LIMITS.page):
            ops = [self._items.get("log", item_key(place.number), place.worker) for place in some]
            for place, item in zip(some, self._items.batch(ops), strict=True):
                if item is None:
                    missing.add(place.worker)
                elif place.worker not in missing:  # otherwise it would leave a gap
                    row = event_from_plain(item.value)
                    fetched.rows.append(row.columns(place.worker, place.number))
                    fetched.cursors[place.worker] = place.number + 1
        fetched.is_whole = not missing
        return fetched

    # -- snapshots --

    def _follow(self, view: StoreView) -> bool:
        """Begin in an empty store; restart from the newest snapshot if its events cannot be fetched one by one; return
        False if that snapshot was replaced meanwhile.
        """
        known, era = self.worker.cursors, self.worker.era
        if known is None and view.is_empty and self._events.folder is not None:
            self._begin_in_empty_store(view)
            return True
        if known is not None and _can_fetch(view, known, era):
            return True
        found = self.snapshots.read(view)
        if found is None and view.latest is not None:
            # If another worker is replacing them, the next reading finds a whole one.
            if view.newest == self._look().newest:
                raise StorageError("no snapshot of the shared store can be read")
            return False
        self._restart(view, era, found)
        return True

    def _begin_in_empty_store(self, view: StoreView) -> None:
        """Give the events of a folder that learned alone to an empty store."""
        self.worker.begin()
        if self._events.upto:  # events may have been deleted, and are only in the graph
            self.snapshots.write(view)

    def _restart(self, view: StoreView, era: str, found: ReadSnapshot | None) -> None:
        """Replace the graph by a snapshot, or by an empty graph."""
        state: Values | None = None
        cursors: dict[str, int] = {}
        new: Values = {}
        late: list[Forgotten] = []
        if found is not None:
            state = found.state
            cursors = dict(found.announced.cursors)
            if found.announced.era > era:
                new["era"] = found.announced.era
                late = self._withdraw_noted(view.me, era, found.announced.era)
        # Own events are not fetched: those that are not in the state are rows here.
        own = cursors.pop(view.me, 0)
        new["cursors"] = json.dumps(cursors)
        new["held"] = view.begins.get(view.me, 0)
        if self.worker.cursors is None and self.worker.value("upto", 0) and self._events.folder is not None:
            self._events.say("what this folder had learned before it was shared was replaced by what the store has")
        self._events.restart(state, own, new)
        # Others may have read these after their own forgetting, so it is done once more.
        for gone in late:
            with self._events.lock:
                self._events.forget(gone)
            with self._changed:
                self._to_forget.append(gone)

    def _withdraw_noted(self, me: str, after: str, upto: str) -> list[Forgotten]:
        """Blank own events of data that others forgot from one era to another.

        Returns:
            Data that was sent after its note, so that others may have read it.
        """
        late: list[Forgotten] = []
        for note in self._items.notes():
            if after < note.id <= upto:
                self.erase = True
                self._forgotten(note.gone)
                numbers = self.worker.withdraw(note.gone, note.cursors.get(me, 0))
                if any(number is not None for number in numbers):
                    late.append(note.gone)
        return late

    def _write_snapshots(self, view: StoreView) -> bool:
        """Write the due snapshots; return False if the round should read the store again."""
        if self._to_forget:
            self._write_forgetting(view, self._to_forget[0])
            return False
        held: dict[str, int] = {}
        if view.latest is not None:
            held = view.latest.cursors
        new = 0
        for worker, head in view.heads.items():
            new += max(0, head.events - held.get(worker, 0))
        share = 1 + int(view.me[:4], 16) / 0x10000  # so that workers do not write snapshots at the same time
        if new >= share * SHARED_LIMITS.snapshot_every and not self._events.read_only:
            dead = self._dead_workers(view)
            # Removing some begins an era, for which all workers restart: not for a few.
            if 2 * len(dead) <= len(view.heads):
                dead = []
            self.snapshots.write(view, None, dead)
        return True

    def _write_forgetting(self, view: StoreView, gone: Forgotten) -> None:
        if not self.snapshots.write(view, gone):
            time.sleep(uuid.uuid4().int % 100 / 1000)  # so that two workers that forget at once do not collide again
            return
        with self._changed:
            self._to_forget = [waiting for waiting in self._to_forget if waiting is not gone]
            self._changed.notify_all()

    def _dead_workers(self, view: StoreView) -> list[str]:
        """Return other workers without events for a long time, whose events this worker has completely."""
        cursors = self.worker.cursors or {}
        before = self._now() - SHARED_LIMITS.dead_seconds
        dead: list[str] = []
        for worker, head in view.heads.items():
            if worker != view.me and head.at < before and head.events <= cursors.get(worker, 0):
                dead.append(worker)
        return dead


@dataclass(slots=True)
class _Wait:
    """A wait for the store, by ``time.monotonic``; `seconds` is for one call, or `patience` for all calls of a step."""

    begun: float
    seconds: float | None
    patience: float

    def left(self, now: float, calling: float | None) -> float:
        """Return the remaining seconds, given the start of the running call."""
        since = self.begun if calling is None else calling
        if self.seconds is not None:
            return max(self.begun, since) + self.seconds - now
        return min(self.begun, since) + self.patience - now


@dataclass(frozen=True, slots=True)
class _EventPlace:
    worker: str
    number: int


def _unfetched(view: StoreView, cursors: dict[str, int]) -> Iterator[_EventPlace]:
    """Yield the others' events that are in the store and not here."""
    for worker, head in view.heads.items():
        if worker != view.me:
            for number in range(cursors.get(worker, 0), head.events):
                yield _EventPlace(worker, number)


@dataclass(slots=True)
class _Fetched:
    """Others' events.

    Attributes:
        cursors: number of each worker's events that are here then.
        rows: in columns of `INSERT_EVENT`.
        is_whole: False if the store lacks an event that its head counts.
    """

    cursors: dict[str, int]
    rows: list[dict[str, str | int | None]] = field(default_factory=list)
    is_whole: bool = True


def _can_fetch(view: StoreView, cursors: dict[str, int], era: str) -> bool:
    """Return True if a worker of an era can fetch the events that it lacks, without a snapshot."""
    newest = ""
    if view.latest is not None:
        newest = view.latest.era
    return newest < era or (newest == era and not _is_behind(view, cursors))


def _is_behind(view: StoreView, cursors: dict[str, int]) -> bool:
    """Return True if another worker's log has deleted events that are missing here."""
    for worker, begin in view.begins.items():
        if worker != view.me and cursors.get(worker, 0) < begin:
            return True
    return False


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """A snapshot and the state of its graph (`ToolGraph.to_state`)."""

    announced: SharedSnapshot
    state: Values


@dataclass(frozen=True, slots=True)
class _Captured:
    """This worker's graph at one moment, and the events that are in it.

    Attributes:
        end: own events in it.
        cursors: events of other workers in it.
        era: of the graph.
        parts: the graph as text, in parts.
    """

    end: int
    cursors: dict[str, int]
    era: str
    parts: list[str]


class SharedSnapshots:
    """Reads, writes and deletes snapshots for one worker.

    Attributes:
        process: name of this process in announcements.
    """

    def __init__(self, items: SharedItems, worker: WorkerRows, events: EventStore, *, now: Callable[[], float]) -> None:
        self._items, self._worker, self._events, self._now = items, worker, events, now
        self.process = uuid.uuid4().hex

    # -- reading --

    def read(self, view: StoreView) -> ReadSnapshot | None:
        """Return the newest readable snapshot, or None."""
        for announced in view.newest:
            if _is_outdated(announced, view):
                continue
            try:
                state = self._read(announced)
            except (KeyError, TypeError, ValueError, zlib.error, GraphFileError) as error:
                self._items.say(f"snapshot {announced.id} cannot be used ({describe_error(error)})", error)
            else:
                if state is not None:
                    return ReadSnapshot(announced, state)
        return None

    def _read(self, announced: SharedSnapshot) -> Values | None:
        """Return the state of the graph; None if a part was deleted meanwhile."""
        parts: list[str] = []
        # Some parts a call: an answer with all of a large graph could exceed a server's limit.
        for some in batches(range(announced.parts), 4):
            for item in self._items.batch([self._items.get("snapshot", item_key(part), announced.id) for part in some]):
                if item is None:
                    return None
                parts.append(item.value["p"])
        with snapshot.no_collections():
            state: Values = snapshot.loads(zlib.decompress(base64.b64decode("".join(parts))))
        return state

    # -- writing --

    def write(self, view: StoreView, gone: Forgotten | None = None, dead: Sequence[str] = ()) -> bool:
        """Store the graph; delete the events of the snapshot before it, and outdated items.

        With `gone` (not in the graph) or `dead` workers (removed from the list: a worker would not know that it lacks
        their events) a new era begins. Return False if another worker wrote a snapshot meanwhile, or this worker took
        too long.
        """
        captured = self._capture()
        # A snapshot of another era cannot be the base: its graph contains forgotten data.
        before = view.latest
        if before is not None and before.era != captured.era:
            before = None
        mine = self._plan(view, captured, before, alone=gone is not None or len(dead) > 0)
        ops = [self._items.announce(mine)]
        # The note is written with the announcement: a worker that restarts from the snapshot must know what to forget
        # in its rows.
        if gone is not None:
            note = ForgettingNote(mine.id, gone, mine.at, mine.cursors)
            ops.append(self._items.put("forgotten", mine.id, note.to_plain()))
        self._items.batch(ops)
        mine = self._write_parts(mine, captured.parts)
        view = self._items.view(self._worker.name, self._worker.sent)
        if self._is_over(mine) or not self._is_confirmed_by(mine, captured.era, view):
            self._items.batch([*self._items.without(mine), self._items.delete("forgotten", mine.id)])
            return False
        mine = replace(mine, done=True)
        self._items.batch([self._items.announce(mine)])
        if mine.era == mine.id:
            self._worker.begin_era(mine.id, captured.end)
        self._trim(mine, before, dead, view)
        return True

    def _capture(self) -> _Captured:
        with self._events.lock:
            if self._events.waits:
                raise StorageError("events wait to be stored first")
            with self._worker.numbered() as end:
                self._events.news = True
                self._events.refresh()
                cursors, era = self._worker.cursors or {}, self._worker.era
            data = snapshot.dumps(self._events.graph.to_state())
        # Events are deleted for it, so the snapshot must be readable. Not under the lock, because it takes a while.
        snapshot.check(data)
        text = base64.b64encode(zlib.compress(data, 1)).decode()
        length = SHARED_LIMITS.part_bytes
        parts = [text[start : start + length] for start in range(0, len(text), length)]
        return _Captured(end, cursors, era, parts)

    def _plan(
        self, view: StoreView, captured: _Captured, before: SharedSnapshot | None, *, alone: bool
    ) -> SharedSnapshot:
        """Return the announcement of a snapshot: with the largest id, in the era of the graph or (`alone`) its own."""
        number = _number(captured.era)
        for other in view.snapshots:
            number = max(number, _number(other.id))
        name = f"{item_key(number + 1)}-{uuid.uuid4().hex}"
        cursors = {worker: captured.cursors.get(worker, 0) for worker in view.heads}
        cursors[view.me] = captured.end
        before_cursors: dict[str, int] = {}
        left: dict[str, int] = {}
        if before is not None:
            before_cursors, left = before.cursors, before.left
        era = captured.era
        begins = {worker: before_cursors.get(worker, 0) for worker in cursors}
        # The only snapshot: all of its events can be deleted in the logs.
        if alone:
            era, begins = name, cursors
        return SharedSnapshot(
            id=name,
            era=era,
            parts=len(captured.parts),
            cursors=cursors,
            begins=begins,
            left=left,
            by=self.process,
            at=self._now(),
        )

    def _write_parts(self, mine: SharedSnapshot, parts: Sequence[str]) -> SharedSnapshot:
        """Write the parts while the lease is valid; return the announcement as it was renewed last."""
        for some in batches(enumerate(parts), 4):
            if self._is_over(mine):
                break
            # A killed writer must not block the next snapshot for longer than its lease, and a slow one must not lose
            # it.
            mine = replace(mine, at=self._now())
            ops = [self._items.announce(mine)]
            for number, part in some:
                ops.append(self._items.put("snapshot", item_key(number), {"p": part}, mine.id))
            self._items.batch(ops)
        return mine

    def _is_confirmed_by(self, mine: SharedSnapshot, base: str, view: StoreView) -> bool:
        """Return True if other snapshots contain no further events, and do not begin an era in its place."""
        for other in view.snapshots:
            if other.id != mine.id and not self._is_stray(other) and _is_against(other, mine, base, view):
                return False
        return any(other.id == mine.id for other in view.snapshots)

    def _is_stray(self, other: SharedSnapshot) -> bool:
        return not other.done and (other.by == self.process or self._is_over(other))

    def _is_over(self, other: SharedSnapshot) -> bool:
        return other.at < self._now() - SHARED_LIMITS.lease_seconds

    # -- deleting --

    def _trim(self, mine: SharedSnapshot, before: SharedSnapshot | None, dead: Sequence[str], view: StoreView) -> None:
        """Delete all other snapshots except the one before in this era, events in both of them, and outdated items."""
        self._trim_snapshots(mine, before, view)
        self._trim_logs(mine, before)
        ops = self._without_old_notes()
        for worker in dead:
            ops.append(self._items.delete("workers", worker))
        # Last: if a deletion fails, the next snapshot deletes from `left` on again.
        ops.append(self._items.announce(replace(mine, left=mine.begins)))
        self._items.batch(ops)

    def _trim_snapshots(self, mine: SharedSnapshot, before: SharedSnapshot | None, view: StoreView) -> None:
        stays = {mine.id}
        if before is not None and before.era == mine.era:
            stays.add(before.id)
        for other in view.snapshots:
            # An unconfirmed one of this era has a writer that is still at work.
            is_outdated = other.done or other.era < mine.era or self._is_stray(other)
            if is_outdated and other.id not in stays:
                self._items.batch(self._items.without(other))

    def _without_old_notes(self) -> list[PutOp]:
        """Return the operations that delete notes which all workers had time to read."""
        ops: list[PutOp] = []
        latest = self._now() - SHARED_LIMITS.forgotten_seconds
        for note in self._items.notes():
            if note.at < latest:
                ops.append(self._items.delete("forgotten", note.id))
        return ops

    def _trim_logs(self, mine: SharedSnapshot, before: SharedSnapshot | None) -> None:
        ends = dict(mine.begins)
        if before is not None:
            ends = {**before.begins, **mine.begins}
        ops: list[PutOp] = []
        for worker, end in ends.items():
            for number in range(mine.left.get(worker, 0), end):
                ops.append(self._items.delete("log", item_key(number), worker))
        for some in batches(ops, SHARED_LIMITS.page):
            self._items.batch(some)


def _is_outdated(announced: SharedSnapshot, view: StoreView) -> bool:
    """Return True if events between a snapshot and the beginning of a log were deleted."""
    for worker, begin in view.begins.items():
        if announced.cursors.get(worker, 0) < begin:
            return True
    return False


def _number(key: str) -> int:
    """Return the number at the beginning of a snapshot's id; 0 of the first era, which is ""."""
    return int(key.partition("-")[0] or 0)


def _is_against(other: SharedSnapshot, mine: SharedSnapshot, base: str, view: StoreView) -> bool:
    """Return True if another snapshot contains events that this one lacks, or begins an era in its place."""
    if other.era > base:
        # An era that was announced before the round of this one: its writer gives up, or forgets the data of this one.
        gives_up = not other.done and mine.era == mine.id and _number(other.id) < _number(mine.id)
        return not gives_up
    holds = other.begins
    if other.done:
        holds = other.cursors
    for worker, end in holds.items():
        if worker in view.heads and mine.cursors.get(worker, 0) < end:
            return other.era == base
    return False
