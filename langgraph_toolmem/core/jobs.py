"""Work in the background that outlives the process: methods say what is done for each kind of job, and put jobs.

Nothing here delays the host: `Jobs.put` writes a job to disk and returns. Jobs of one kind and run are done in their
order. There are two sorts of kinds: *quick* ones (`Jobs.handle`), and *slow* ones that ask a model
(`Jobs.handle_slow`): these are done beside the others, asked once (the answer is kept in the queue before it is put to
use, so that a process that is killed in between does not ask again), and given up after `SLOW_TRIES` failures.

What fails is tried again, later and later. A quick job is never given up while the database is away; one that cannot be
read is. Both stay in the queue (`JobQueue.given_up`), and so do jobs of kinds that nobody here handles.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from langgraph_toolmem.base import exits, locks
from langgraph_toolmem.base.errors import InputError, StorageError, describe_error, log_failure
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.base.waits import this_step
from langgraph_toolmem.graph.operations import Forgotten
from langgraph_toolmem.stores.database import held_in
from langgraph_toolmem.stores.executors import Executor, ThreadExecutor
from langgraph_toolmem.stores.job_queue import Job, JobQueue
from langgraph_toolmem.stores.remote import Remote

logger = logging.getLogger("langgraph_toolmem.jobs")

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 600.0
"""Seconds before a failed job is tried again: doubled from the first to the longest."""
SLOW_TRIES: Final = 6
POLL_SECONDS: Final = 0.25
"""How often `Jobs.flush` looks for what other processes finished."""
LOOK_SECONDS: Final = 30.0
"""How often what other processes put into the queue is looked for, where this one has no use for it itself."""
CLOSE_SECONDS: Final = 5.0
"""Closing waits so long for quick jobs; what is left is done at the next opening."""
FLUSH_SECONDS: Final = 60.0
BEFORE_FORGETTING: Final = 1.0
"""Forgetting waits so long for what is due."""

Do = Callable[[Job], "Callable[[], object] | None"]
"""Does a job; returns what takes back what it did, for a user who was forgotten meanwhile."""
Find = Callable[[Job], str]
"""Finds the answer for a slow job; may take a model's time."""
T = TypeVar("T")
Use = Callable[[Job, str], object]
"""Puts the answer of a slow job to use."""


class NotYetError(Exception):
    """What a job is about is not there yet; `why` is no text of a user; after so many `tries` in all it is dropped."""

    def __init__(self, why: str, *, tries: int) -> None:
        super().__init__(why)
        self.tries = tries


class Jobs:
    """The jobs of a memory. Safe to use from several threads. Nothing is opened before the first job.

    Args:
        folder: of the memory; None: jobs are in RAM.
        now: seconds since 1970.
        executor: when the work is done; in a thread of its own if None.
        read_only: nothing is worked on; `put` leaves jobs to the process that writes to the folder.
        remote: what the jobs write to, if it may not answer: no step does their work.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        now: Callable[[], float],
        executor: Executor | None = None,
        read_only: bool = False,
        remote: Remote | None = None,
    ) -> None:
        self._folder, self._now, self._remote = folder, now, remote
        self._executor: Executor = executor or ThreadExecutor()
        self._read_only = read_only
        self._made: JobQueue | None = None
        self._opening = locks.lock()
        self._quick: dict[str, Do] = {}
        self._patient: set[str] = set()  # of these, kinds that nobody who asks waits for
        self._slow: dict[str, tuple[Find, Use]] = {}
        self._working = locks.lock()  # one at a time in this process
        self._changing = locks.rlock()  # over looking whether a job was forgotten, and doing it
        self._finished = locks.condition()
        self._in_hand: list[str] = []  # kinds of what is being done: it may leave the queue meanwhile, forgotten
        self._closed = False
        self._stopped = False  # the background begins nothing more: the interpreter ends
        self._failing: set[str] = set()  # kinds of jobs of which the last one failed
        self._look_again = 0.0  # by time.monotonic
        self.at_look: Callable[[], object] = lambda: None  # done at each `look`
        exits.tell(self)

    @property
    def queue(self) -> JobQueue:
        """The jobs on disk.

        Raises:
            StorageError: the memory is closed; nothing is opened any more that nobody would close.
        """
        with self._opening:
            if self._made is None:
                if self._closed:
                    raise StorageError("The memory is closed. Make a new one to go on.")
                self._made = JobQueue(self._folder, now=self._now, read_only=self._read_only)
            return self._made

    def forked(self) -> None:
        """In a process that is forked off nothing is worked on; what is put waits for the parent."""
        self._read_only = True

    @property
    def outlive(self) -> bool:
        """Whether jobs outlive the process."""
        return self._folder is not None

    @property
    def any(self) -> bool:
        """Whether a job was ever put; tells without making a file."""
        with self._opening:
            made = self._made
        if made is not None:
            return not made.empty
        return held_in(self._folder) is not None

    def handle(self, kind: str, do: Do, *, patient: bool = False) -> None:
        """Jobs of this kind are done like this; it takes milliseconds. `patient`: `settle` leaves them aside."""
        self._quick[kind] = do
        self._patient |= {kind} if patient else set()

    def handle_slow(self, kind: str, find: Find, use: Use) -> None:
        """Jobs of this kind ask a model: `find` finds an answer, `use` puts it to use."""
        self._slow[kind] = find, use

    def put(
        self,
        kind: str,
        payload: Mapping[str, Any],
        *,
        run: str = "",
        user: str = "",
        namespace: Sequence[str] = (),
        line: str | None = None,
        key: str | None = None,
        after: float = 0.0,
        placed: bool = False,
    ) -> bool:
        """A job. It is safe on disk when this returns, and done a little later.

        Args:
            kind: see `handle`.
            payload: JSON values; ``run`` and ``namespace`` are added.
            run: digest of the run it is about.
            user: digest of the user whose run it is, or "".
            namespace: of the rows it is about.
            line: jobs of one line are done in their order; those of one kind, namespace and run if None, "" none.
            key: a job that has this key already is not put again; each one is a job of its own if None.
            after: seconds from now before which it is not done.
            placed: where the run's rows are is kept, for `place_of`.

        Returns:
            Whether it is a new one.

        Raises:
            StorageError: the queue cannot be written.
        """
        new = self.queue.put(
            key or uuid.uuid4().hex,
            {**payload, "run": run, "namespace": list(namespace)},
            kind=kind,
            line=digest(kind, *namespace, run) if line is None else line,
            user=user,
            after=after,
            place=(run, tuple(namespace)) if placed else None,
        )
        self.begin(run)
        return new

    def begin(self, key: str = "") -> None:
        """Has the background take up what is in the queue."""
        if self._closed or self._stopped or self._read_only:
            return
        try:
            self._executor.start(self.work)
            self._executor.wake(key)
            with self._finished:
                self._finished.notify_all()  # who waits for a model's answer has something to do meanwhile
        except Exception as error:  # noqa: BLE001 - no thread to be had: it is on disk, and the next one begins it
            log_failure(logger, logging.WARNING, "background work could not begin", error=error)

    def look(self) -> None:
        """Begins with what is on disk, once in a while; cheap enough to be called at every step."""
        self.at_look()
        now = time.monotonic()
        if self._folder is None or self._read_only or now < self._look_again:
            return
        self._look_again = now + LOOK_SECONDS
        if self.any and not self.queue.empty:
            self.begin()

    def settle(self, *, timeout: float = 1.0, in_all: bool = False) -> bool:
        """Does here and now what is due, slow jobs left aside, so that it is found.

        Args:
            timeout: seconds to wait for what another thread or process is doing already.
            in_all: begin nothing more after these seconds; patient jobs are done too.

        Returns:
            Whether nothing that is due is left of what was there when this was called.
        """
        if self._read_only or not self.any or (self.queue.empty and not self._in_hand):
            return True
        quick = tuple(self._quick if in_all else self._quick.keys() - self._patient)
        if self._remote is not None and this_step() is not None:
            self.begin()  # a step does nothing of it itself
            idle = lambda: self._closed or not (self.queue.next_due(quick) == 0 or self.queue.lent(quick))  # noqa: E731
            return self._remote.wait_for(idle, self._finished)
        end = time.monotonic() + timeout
        todo = self.queue.pending(quick)  # where others go on putting, there is no end to wait for

        def busy() -> bool:
            return not {*quick}.isdisjoint(self._in_hand)

        while not self._closed and ((todo and self.queue.pending(quick)) or busy()):
            if in_all and time.monotonic() >= end:
                return False
            if todo and (job := self.queue.take(quick)) is not None:
                todo -= 1
                self._do(job)
            elif not self.queue.lent(quick) and not busy():
                break
            elif (left := end - time.monotonic()) <= 0:
                return False
            else:
                with self._finished:
                    self._finished.wait(min(0.02, left))
        return True

    def flush(self, *, timeout: float | None = FLUSH_SECONDS) -> bool:
        """Waits until nothing is left to do; what failed is waited for as long as it is tried again.

        Args:
            timeout: seconds; None: without end.

        Returns:
            Whether all is done. What was given up counts as done; what is left in a closed memory waits on disk.
        """
        if self._read_only or not self.any or (self.queue.empty and not self._in_hand):
            return True
        end = math.inf if timeout is None else time.monotonic() + timeout
        self.begin()
        while not self._closed and (self.queue.pending((*self._quick, *self._slow)) or self._in_hand):
            if (left := end - time.monotonic()) <= 0:
                return False
            with self._finished:
                self._finished.wait(min(POLL_SECONDS, left))
        return not self._closed

    def forget(self, gone: Forgotten) -> int:
        """Deletes jobs about a user or runs, before rows are forgotten; what is being done for one is not written."""
        if not self.any or not (gone.user or gone.runs or gone.before is not None):
            return 0
        if gone.before is None:
            # What is written meanwhile brings pieces of the process's memory into Chroma's files again.
            self.flush(timeout=BEFORE_FORGETTING)
        with self._changing:
            return self.queue.forget(gone.user, runs=gone.runs, before=gone.before)

    def place_of(self, run: str) -> tuple[str, ...] | None:
        """The namespace of a run's rows, if that was kept (`put` with `placed`) and can be read."""
        return self._kept(lambda: self.queue.place_of(run), None)

    def owner_of(self, run: str) -> str:
        """Digest of the user whose run it is; "" if that was not kept or cannot be read, or it is nobody's."""
        return self._kept(lambda: self.queue.owner_of(run), "")

    def _kept(self, ask: Callable[[], T], nothing: T) -> T:
        with contextlib.suppress(StorageError):
            return ask() if self.any and not self._closed else nothing
        return nothing

    def report(self) -> dict[str, int]:
        """See `JobQueue.report`."""
        return self.queue.report() if self.any else {"pending": 0, "failing": 0, "given_up": 0}

    def troubles(self) -> list[str]:
        """See `JobQueue.troubles`."""
        return self.queue.troubles() if self.any else []

    def close(self) -> None:
        """Does what is quick and due, ends after the job that is being done; what is left stays in the queue."""
        if self._made is not None and not self._read_only and self._folder is not None:
            try:
                self.settle(timeout=CLOSE_SECONDS, in_all=True)
            except Exception as error:  # noqa: BLE001 - closing goes on
                log_failure(logger, logging.WARNING, "what waits could not be written", error=error)
        self._closed = True
        with self._finished:
            self._finished.notify_all()
        self._executor.close(CLOSE_SECONDS)

    def stop(self, end: float) -> None:
        """At exit the background ends after the job that is being done; what is left stays in the queue."""
        del end
        self._stopped = True
        with self._finished:
            self._finished.notify_all()
        self._executor.close(0.0)

    def close_queue(self) -> None:
        """Lets go of the file; after everybody who may ask it."""
        if self._made is not None:
            self._made.close()

    def work(self) -> float | None:
        """Does all that is due, here and now; for executors.

        Returns:
            Seconds until something is due again; None if nothing waits.
        """
        kinds = (*self._quick, *self._slow)
        with self._working:
            while True:
                self._work_off()
                if self._closed or self._stopped or (job := self.queue.take(kinds)) is None:
                    break
                # A model takes its time, or never answers: quick jobs do not stand in line behind it.
                beside = exits.start("toolmem-slow", partial(self._do, job))
                while beside.is_alive() and not self._stopped:
                    self._work_off()
                    with self._finished:
                        self._finished.wait(POLL_SECONDS if beside.is_alive() else 0)
            return None if self._closed or self._stopped else self.queue.next_due(kinds)

    def _work_off(self) -> None:
        """Does all that is due and quick."""
        while not (self._closed or self._stopped) and (job := self.queue.take(tuple(self._quick))) is not None:
            self._do(job)

    def _do(self, job: Job) -> None:
        with self._finished:
            self._in_hand.append(job.kind)
        try:
            if job.kind in self._slow:
                self._do_slow(job, *self._slow[job.kind])
            else:
                self._do_quick(job, self._quick[job.kind])
            self._failing.discard(job.kind)
        except NotYetError as error:
            if job.attempts + 1 < error.tries:
                self.queue.retry(job, _wait(job.attempts), error=str(error))
            else:
                logger.debug("a %s job is dropped: %s", job.kind, error)
                self.queue.done(job)
        except BaseException as error:
            lasting = isinstance(error, InputError)  # of a model it may be chance, of a job on disk it stays
            self._later(job, error, SLOW_TRIES if job.kind in self._slow else 1 if lasting else None)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        finally:
            with self._finished:
                self._in_hand.remove(job.kind)
                self._finished.notify_all()

    def _do_quick(self, job: Job, do: Do) -> None:
        with self._changing:
            forgettings = self.queue.forgettings
            if not self.queue.holds(job):
                return  # forgotten, or somebody else does it
            undo = do(job)
            if not self.queue.holds(job) and self.queue.forgettings != forgettings:
                if undo is not None:
                    undo()  # another process forgot the user in between
                return
        self.queue.done(job)

    def _do_slow(self, job: Job, find: Find, use: Use) -> None:
        answer = job.answer
        if answer is None:
            answer = find(job)
            if not self.queue.save(job, answer):
                return
        with self._changing:
            if not self._stopped and self.queue.holds(job):
                use(job, answer)
                self.queue.done(job)

    def _later(self, job: Job, error: BaseException, limit: int | None) -> None:
        if self._stopped:  # the end of the interpreter is no failure of the job; the next opening takes it up
            logger.debug("a %s job was not done: the interpreter ends", job.kind, exc_info=error)
            return
        level = logging.DEBUG if job.kind in self._failing else logging.WARNING
        self._failing.add(job.kind)
        log_failure(logger, level, "a %s job failed", job.kind, error=error)
        try:
            self.queue.retry(job, _wait(job.attempts), limit=limit, error=describe_error(error))
            if limit is not None and job.attempts + 1 >= limit:
                logger.error("a %s job was given up after %d failures", job.kind, job.attempts + 1)
        except Exception as broken:  # noqa: BLE001 - the lease ends by itself
            level = logging.DEBUG if self._closed else logging.ERROR
            log_failure(logger, level, "the queue cannot be written", error=broken)


def _wait(attempts: int) -> float:
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempts, 20))
