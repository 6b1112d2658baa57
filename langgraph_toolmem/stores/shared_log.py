"""Several workers, one memory: each appends to its own log in a LangGraph ``BaseStore``, reads the others'.

Nobody who learns waits for the store: `SharedLog.append` puts a record into the `Outbox`, and a thread sends what is in
it and fetches what others wrote, in one round trip (`log_store`). A store that fails or hangs stops nobody: what waits
is in the outbox, on disk where there is a folder, and is sent when the store answers again, at the end, or by the next
process that opens the folder.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from langgraph.store.base import BaseStore, Op

from langgraph_toolmem.base import exits, locks
from langgraph_toolmem.base.errors import StorageError, describe_error
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.graph.operations import Forgotten
from langgraph_toolmem.stores.compaction import Fold, compact, is_due
from langgraph_toolmem.stores.executors import ThreadExecutor
from langgraph_toolmem.stores.log_reader import Reader, Restart
from langgraph_toolmem.stores.log_store import LogStore, read_json
from langgraph_toolmem.stores.outbox import Outbox
from langgraph_toolmem.stores.owners import ended, new_owner
from langgraph_toolmem.stores.remote import DEADLINE, PATIENCE, Remote

CHUNK: Final = 250
"""Records that are sent at once."""
GATHER_SECONDS: Final = 0.05
"""Records wait so long for others, to be sent with them; who waits for the store has them sent at once."""
MANY: Final = 1000
"""Records that wait, from which on a report says so."""
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 30.0

Redact: TypeAlias = Callable[[Forgotten, Any], Any]
"""A record without what is forgotten."""

_log = logging.getLogger("langgraph_toolmem.shared_log")


class SharedLog:
    """The log of one worker, and a view of all the others'. May be used from several threads and coroutines.

    Args:
        store: any ``BaseStore``.
        namespace: where the logs live; labels may hold any text.
        folder: where records wait for the store; None: in RAM, and beyond some thousand in a file without a name.
        fold: what records are folded into for a snapshot.
        redact: for records that another process left, and whose user was forgotten since.
        synchronous: a record that waits survives the end of the machine.
        deadline, patience: see `Remote`.
        now: seconds since 1970.
    """

    def __init__(
        self,
        store: BaseStore,
        namespace: tuple[str, ...],
        *,
        folder: Path | None = None,
        fold: Fold,
        redact: Redact,
        synchronous: bool = False,
        deadline: float = DEADLINE,
        patience: float = PATIENCE,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.worker: Final = new_owner()
        self.remote = Remote(f"The shared store ({type(store).__name__})", deadline=deadline, patience=patience)
        self.remote.returned = self._try_again
        self._there = LogStore(store, namespace, self.remote)
        self._outbox = Outbox(folder, synchronous=synchronous)
        self._fold, self._redact, self._now = fold, redact, now
        self._changed = locks.condition()
        self._next = self._sent = 0  # numbers of the own records: the next one, and the first that may not be stored
        self._kept: int | None = None  # from here on own records stay in the outbox: a `Restart` is under way
        self._restarts = 0
        self._version = 0  # of the texts in the outbox
        self._asked = self._looked = 0  # looks asked for, and done
        self._reader = Reader(self._there, self.worker, self._keep_from_here, self._say)
        self._adopted = self._ending = self._ended = False
        self._pause = self._again = 0.0
        self._failures = 0
        self._failing = ""
        self._compacting: threading.Thread | None = None
        self._said: set[str] = set()
        self._executor = ThreadExecutor()
        exits.tell(self)
        self._wake()

    # -- for who learns: nothing here waits for the store --

    def append(self, record: Any) -> bool:
        """Adds one JSON value to this worker's log; False if it is none.

        Raises:
            StorageError: it cannot be kept.
        """
        try:
            text = json.dumps(record, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            self._say(f"a record is not JSON and was not stored: {error}")
            return False
        with self._changed:
            self._outbox.put(self.worker, self._next, text)
            self._next += 1
        self._wake(GATHER_SECONDS)
        return True

    def taken(self, most: int | None = None) -> Iterator[Any]:
        """What was fetched: records of the others, and `Restart`; so many at most."""
        fetched = self._reader.fetched
        for _ in range(len(fetched) if most is None else min(most, len(fetched))):
            try:
                yield fetched.popleft()
            except IndexError:  # a `Restart` that is under way took its place
                return

    def unsent(self, restart: Restart) -> Iterator[Any]:
        """This worker's records that are not in a `Restart`."""
        with self._changed:
            rows = self._outbox.rows(self.worker, restart.end)
            if restart.number == self._restarts:  # else there is another, which needs them too
                self._kept = None
                self._outbox.sent(self.worker, self._sent)
        for number, text in rows:
            yield from read_json(text, self._say, f"record {number}")

    def waiting(self) -> list[str]:
        """What is wrong now, one sentence each."""
        wait = self._next - self._sent
        where = "in RAM and on disk" if self._outbox.path is None else f"in {self._outbox.path}"
        problem = self.remote.problem()
        if problem is None and self._failing:
            problem = f"{self.remote.where} failed {self._failures} times in a row ({self._failing})"
        if wait and (problem or wait > MANY):
            return [f"{problem or self.remote.where + ' is behind'}; {wait:,} records wait {where}, and are sent later"]
        return [problem] if problem else []

    def forgotten(self, gone: Forgotten) -> None:
        """Something was forgotten elsewhere: what waits is sent without it, and once more what is being sent."""
        self._change(partial(self._redact, gone))

    # -- for who waits --

    def sync(self, seconds: float | None = None) -> bool:
        """Has what waits sent, and waits for that; not where it outlives the process.

        Args:
            seconds: to wait; None: a step's patience, and not at all where there is a folder.
        """
        with self._changed:
            end = self._next
        if self._sent >= end or (seconds is None and self._outbox.path is not None):
            return True
        return self._wait(lambda: self._sent >= end, seconds)

    def look(self, seconds: float | None = None) -> bool:
        """Has what others wrote fetched, and waits for that; whether it is there.

        Args:
            seconds: to wait; None: a step's patience.
        """
        with self._changed:
            self._asked += 1
            wanted = self._asked
        return self._wait(lambda: self._looked >= wanted, seconds)

    def _wait(self, done: Callable[[], bool], seconds: float | None) -> bool:
        failures = self._failures
        if seconds is not None:
            self._again = 0.0

        def stop() -> bool:
            return self._failures > failures or (seconds is None and time.monotonic() < self._again)

        self._wake()
        return self.remote.wait_for(done, self._changed, seconds, stop)

    def stop(self, end: float) -> None:
        """At exit what would not outlive the process is sent until `end`; the background ends."""
        if self._outbox.path is None:
            self.sync(max(0.0, end - time.monotonic()))
        self._executor.close(0.0)

    def close(self) -> bool:
        """Sends what waits; whether nothing is left."""
        self._ending = True
        self.sync(2 * self.remote.deadline)
        if self._next and self._sent >= self._next:
            self._wait(lambda: self._ended, self.remote.deadline)
        self._executor.close(self.remote.deadline)
        if self._compacting is not None:
            self._compacting.join(self.remote.deadline)
        ended(self.worker)
        left = self._next - self._sent
        self._outbox.close()
        return not left or self._outbox.path is not None

    # -- in the background --

    def _work(self) -> float | None:
        if (left := self._again - time.monotonic()) > 0:
            return left
        try:
            if not self._adopted:
                self._adopt()
                self._adopted = True
            while self._exchange():
                pass
        except Exception as error:  # noqa: BLE001 - any store and any driver, each with errors of its own
            self._failing = type(error).__name__
            self._say(f"the store failed ({self._failing}); it will be tried again", error)
            with self._changed:
                self._failures += getattr(error, "asked", True)  # else the call that hangs will tell
                self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
                self._again = time.monotonic() + self._pause
                self._changed.notify_all()
            return self._pause
        self._pause, self._failures, self._failing = 0.0, 0, ""
        return None

    def _try_again(self) -> None:
        """A call that was left alone has returned."""
        self._pause = self._again = 0.0
        self._wake()

    def _wake(self, after: float = 0.0) -> None:
        self._executor.start(self._work)
        self._executor.wake(after=after)

    def _exchange(self) -> bool:
        """One round trip that sends, or looks, or both; whether there may be more to do."""
        with self._changed:
            start, version, asked = self._sent, self._version, self._asked
            rows = self._outbox.rows(self.worker, start, CHUNK) if self._next > start else []
            looks = asked > self._looked
            end = rows[-1][0] + 1 if rows else self._next  # without rows, another process sent them
        last = self._ending and not self._ended and end == self._next
        ops: list[Op] = [self._there.record(self.worker, number, text) for number, text in rows]
        if rows or (last and end):
            ops.append(self._there.head(self.worker, end, self._now(), ended=last))
        if looks:
            there = self._there.look(*ops)
        elif ops:
            self._there.batch(ops)
        else:
            return False
        with self._changed:
            if version == self._version:  # else some were changed meanwhile, and are sent again
                self._sent, self._ended = end, last
                keep = end if self._kept is None else min(end, self._kept)
                if rows:
                    self._outbox.sent(self.worker, keep)
            self._changed.notify_all()
        if looks:
            self._reader.read(there)
            with self._changed:
                self._looked = asked
                self._changed.notify_all()
            if is_due(there, self._now()):
                self._compact()
        return True

    def _keep_from_here(self) -> tuple[int, int]:
        """A `Restart` is under way: own records from this number on stay until it is taken; its own number."""
        with self._changed:
            self._kept = self._sent if self._kept is None else self._kept
            self._restarts += 1
            return self._kept, self._restarts

    def _adopt(self) -> None:
        """Sends what processes of this folder left that are gone, without what was forgotten since."""
        for worker in self._outbox.orphans():
            for told in self._there.forgotten().values():
                gone = Forgotten(told.get("user", ""), frozenset(told.get("own", ())))
                self._outbox.change(partial(self._redact, gone), worker)
            while rows := self._outbox.rows(worker, 0, CHUNK):
                end = rows[-1][0] + 1
                ops: list[Op] = [self._there.record(worker, number, text) for number, text in rows]
                self._there.batch([*ops, self._there.head(worker, end, self._now(), ended=True)])
                self._outbox.sent(worker, end)

    def _compact(self) -> None:
        def work() -> None:
            try:
                compact(self._there, self.worker, self._fold, self._now)
            except Exception as error:  # noqa: BLE001 - another time, or another worker
                self._say(f"no snapshot could be written ({describe_error(error)})", error)

        if not self._ending and (self._compacting is None or not self._compacting.is_alive()):
            self._compacting = exits.start("toolmem-compaction", work)

    # -- forgetting --

    def rewrite(self, change: Callable[[Any], Any]) -> int:
        """Replaces records of all workers, those that wait too, for example to take out what came from one person.

        Args:
            change: a record to what shall stand in its place; equal means left as it is.

        Returns:
            How many records were replaced.

        Raises:
            StorageError: the store failed. What was not reached is as it was; call again.
        """
        replaced = self._change(change)
        try:
            there = self._there.look()
            ranges = [(name, there.begins.get(name, 0), each.records) for name, each in there.workers.items()]
            for page in self._there.items(ranges):
                ops = [
                    self._there.record(worker, number, json.dumps(new, separators=(",", ":")))
                    for worker, number, text in page
                    for old in (() if text is None else read_json(text, self._say, f"record {number} of {worker}"))
                    if (new := change(old)) != old
                ]
                self._there.batch(ops)
                replaced += len(ops)
        except Exception as error:
            raise StorageError(
                f"The shared log {'.'.join(self._there.root)} could not be rewritten as its store failed or did not "
                f"answer ({describe_error(error)}). Make it reachable and call again."
            ) from error
        return replaced

    def tell_forgotten(self, record: Any, gone: Forgotten) -> None:
        """After something was taken out of the logs: tells the others, takes it out of snapshots too, and of what
        workers send that come back.

        Raises:
            StorageError: the store failed, or another worker is writing a snapshot; call again.
        """
        self.append(record)
        if not self.sync(self.remote.deadline):
            raise StorageError("Other workers could not be told.")
        try:
            own = sorted(gone.runs)
            note, name = {"at": self._now(), "user": gone.user, "own": own}, gone.user or digest("runs", *own)
            self._there.batch([self._there.put("forgotten", name, note)])
            done = not self._there.look().snapshots
            done = done or compact(self._there, self.worker, self._fold, self._now, only=True)
        except Exception as error:
            raise StorageError(f"The snapshots could not be written anew ({describe_error(error)}).") from error
        if not done:
            raise StorageError("Another worker is writing a snapshot of the shared store. Call again in a moment.")

    def _change(self, change: Callable[[Any], Any]) -> int:
        with self._changed:
            changed = self._outbox.change(change, self.worker)
            self._version += 1
        return changed

    def _say(self, text: str, error: Exception | None = None) -> None:
        if text not in self._said:
            self._said.add(text)
            where = ".".join(self._there.root)
            _log.warning("%s: %s", where, text)
            if error is not None:
                # A driver's error may quote the record that it refused.
                _log.debug("%s: %s", where, text, exc_info=error)
