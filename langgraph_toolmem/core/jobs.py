"""Background work that outlives the process: methods say how jobs of a kind are done, and put jobs.

`Jobs.put` writes a job to disk and returns. One thread per process does the jobs. It gathers them for a moment, so
that jobs of one kind are done in batches: one transaction, one call of the handler, one embedding call. Jobs of a
*slow* kind ask a model: one at a time in a thread of their own, next to the others. The model's answer is kept in the
queue before it is used, and the job is given up after `SLOW_TRIES` failures.

Only a process that `may_work` does jobs; the others leave theirs in the queue. What fails is tried again, later and
later. A quick job is given up only if it cannot be read.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import InputError, StorageError, describe_error, log_failure
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.base.threads import this_step
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.operations import Forgotten
from langgraph_toolmem.stores.database import held_in
from langgraph_toolmem.stores.job_queue import Job, JobQueue, NewJob
from langgraph_toolmem.stores.remote import Remote

logger = logging.getLogger("langgraph_toolmem.jobs")

BATCH: Final = 64
GATHER_SECONDS: Final = 0.2
"""Jobs wait so long for others of their kind, unless somebody waits for them."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 600.0
"""Seconds before a failed job is tried again: doubled from the first to the longest."""
SLOW_TRIES: Final = 6
POLL_SECONDS: Final = 0.25
IDLE_SECONDS: Final = 2.0
"""Interval at which the thread looks for jobs of other processes …"""
LINGER_SECONDS: Final = 30.0
"""… until none waited for so long: then it ends, and the next job or `Jobs.look` begins another."""
CLOSE_SECONDS, FLUSH_SECONDS, BEFORE_FORGETTING = 5.0, 60.0, 1.0
"""Waits for what is due; what is left after closing is done at the next opening."""

Do = Callable[[Sequence[Job]], object]
T = TypeVar("T")


class NotYetError(Exception):
    """The subject of a job is not there yet. The job is dropped after so many `tries`; `why` is no text of a user."""

    def __init__(self, why: str, *, tries: int) -> None:
        super().__init__(why)
        self.tries = tries


class Jobs:
    """The jobs of a memory. Safe to use from several threads. Nothing is opened before the first job.

    Args:
        folder: of the memory; None: jobs are in RAM.
        now: seconds since 1970.
        read_only: nothing is worked on; `put` leaves jobs to the processes that write to the folder.
        may_work: returns True if this process may write what the jobs write.
        alone: only one process at a time may; so what another one leased is free.
        remote: what the jobs write to, if it may not answer: a model call waits for it no longer than its patience.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        now: Callable[[], float],
        read_only: bool = False,
        may_work: Callable[[], bool] = lambda: True,
        alone: bool = False,
        remote: Remote | None = None,
    ) -> None:
        self._folder, self._now, self._may_work, self._remote = folder, now, may_work, remote
        self.read_only, self._alone = read_only, alone
        self.at_look: Callable[[], object] = lambda: None  # done at each `look`
        self._made: JobQueue | None = None
        self._opening = threads.lock()
        self._quick: dict[str, tuple[Do, Callable[[Job], object] | None]] = {}
        self._patient: set[str] = set()
        self._slow: dict[str, tuple[Callable[[Job], str], Callable[[Job, str], object]]] = {}
        self._gathered = threading.local()  # jobs of `together`
        self._working = threads.lock()  # one at a time in this process
        self._changing = threads.rlock()  # over checking that a job was not forgotten, and doing it
        self._changed = threads.condition()
        self._thread: threading.Thread | None = None
        self._due = 0.0  # by time.monotonic
        self._hurry = 0  # how many wait
        self._closed = self._stopped = False  # by `close`, by the end of the interpreter
        self._failing: set[str] = set()  # kinds of jobs of which the last one failed
        self._look_again = 0.0

    # --- putting ---

    def handle(self, kind: str, do: Do, *, undo: Callable[[Job], object] | None = None, patient: bool = False) -> None:
        """Register how jobs of a kind are done.

        Args:
            kind: of jobs.
            do: does a batch, in milliseconds a job; if it raises, the jobs are done one by one. Twice is harmless.
            undo: takes back what was done for a job whose user another process forgot meanwhile.
            patient: `settle` does not wait for them.
        """
        self._quick[kind] = do, undo
        self._patient |= {kind} if patient else set()

    def handle_slow(self, kind: str, find: Callable[[Job], str], use: Callable[[Job, str], object]) -> None:
        """Register how jobs of a slow kind are done: `find` asks a model, `use` puts its answer to use."""
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
    ) -> None:
        """Put a job, which is on disk when this returns; inside `together` at its end.

        Args:
            kind: see `handle`.
            payload: JSON values; ``run`` and ``namespace`` are added.
            run: digest of the run it is about.
            user: digest of the user whose run it is, or "".
            namespace: of the rows it is about.
            line: jobs of one line are done in their order; those of one kind, namespace and run if None, "" for none.
            key: a job whose key waits already is not put again; each one is a job of its own if None.
            after: seconds from now before which it is not done.
            placed: keep where the run's rows are, for `place_of`.

        Raises:
            StorageError: the queue cannot be written.
        """
        new = NewJob(
            key or uuid.uuid4().hex,
            {**payload, "run": run, "namespace": list(namespace)},
            kind=kind,
            line=digest(kind, *namespace, run) if line is None else line,
            user=user,
            after=after,
            place=(run, tuple(namespace)) if placed else None,
        )
        gathered: list[NewJob] | None = getattr(self._gathered, "jobs", None)
        if gathered is not None:
            gathered.append(new)
        else:
            self.queue.put_all([new])
            self.begin(GATHER_SECONDS)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Put what this thread puts inside in one transaction, at the end."""
        if getattr(self._gathered, "jobs", None) is not None:
            yield
            return
        jobs: list[NewJob] = []
        self._gathered.jobs = jobs
        try:
            yield
        finally:
            self._gathered.jobs = None
            if jobs:
                self.queue.put_all(jobs)
                self.begin(GATHER_SECONDS)

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
                self._made = JobQueue(self._folder, now=self._now, read_only=self.read_only)
            return self._made

    @property
    def outlive(self) -> bool:
        """True if jobs outlive the process."""
        return self._folder is not None

    @property
    def any(self) -> bool:
        """True if a job was ever put; makes no file."""
        made = self._made
        return not made.empty if made is not None else held_in(self._folder) is not None

    # --- waiting ---

    def look(self) -> None:
        """Take up what is on disk, once in a while; cheap enough for every model call."""
        self.at_look()
        now = time.monotonic()
        if self._folder is not None and now >= self._look_again:
            self._look_again = now + LINGER_SECONDS
            if self.any:
                self.begin()

    def settle(self, *, timeout: float = 1.0, in_all: bool = False) -> bool:
        """Wait until the quick jobs that are due now are done, patient ones with `in_all` only.

        Returns:
            True if none of them is left, else False.
        """
        if self.read_only or not self.any:
            return True
        kinds, upto = tuple(self._quick if in_all else self._quick.keys() - self._patient), self.queue.last

        def settled() -> bool:
            return self._closed or not self.queue.unsettled(kinds, upto)

        if settled():
            return True
        if not self._may_work():
            return False
        with self._hurried() as begun:
            if begun and self._remote is not None and this_step() is not None:
                return self._remote.wait_for(settled, self._changed)
            return self._wait(settled, timeout if begun else 0.0)

    def flush(self, *, timeout: float | None = FLUSH_SECONDS) -> bool:
        """Wait until nothing is left to do, also by another process; failed jobs are waited for.

        Args:
            timeout: seconds; None for no limit.

        Returns:
            True if all is done, else False. What was given up counts as done.
        """
        if self.read_only or not self.any:
            return True
        kinds = (*self._quick, *self._slow)
        with self._hurried() as begun:
            done = self._wait(lambda: self._closed or not self.queue.pending(kinds), timeout if begun else 0.0)
        return done and not self._closed

    def _wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        end = math.inf if timeout is None else time.monotonic() + timeout
        while not (found := done()) and (left := end - time.monotonic()) > 0:
            with self._changed:
                self._changed.wait(min(POLL_SECONDS, left))
        if found and self._changing.acquire(timeout=min(POLL_SECONDS, max(0.0, end - time.monotonic()))):
            self._changing.release()  # what was forgotten left the queue while it was being done
        return found

    @contextmanager
    def _hurried(self) -> Iterator[bool]:
        with self._changed:
            self._hurry += 1
        try:
            yield self.begin()
        finally:
            with self._changed:
                self._hurry -= 1

    # --- forgetting, reporting ---

    def forget(self, gone: Forgotten) -> int:
        """Delete jobs about a user or runs, before rows are forgotten; what is being done for one is not written."""
        if not self.any or not (gone.user or gone.runs or gone.before is not None):
            return 0
        if gone.before is None:
            # What is written meanwhile brings pieces of the process's memory into Chroma's files again.
            self.flush(timeout=BEFORE_FORGETTING)
        with self._changing:
            return self.queue.forget(gone.user, runs=gone.runs, before=gone.before)

    def place_of(self, run: str) -> tuple[str, ...] | None:
        """Return the namespace of a run's rows; None if that was not kept (`put` with `placed`) or cannot be read."""
        return self._kept(lambda: self.queue.place_of(run), None)

    def owner_of(self, run: str) -> str:
        """Return the digest of the user whose run it is; "" for nobody, or if that is not known."""
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

    # --- the thread ---

    def _over(self) -> bool:
        return self._closed or self._stopped

    def begin(self, after: float = 0.0) -> bool:
        """Have the thread work in so many seconds, at once if somebody waits; return False if there can be none."""
        if self._over() or self.read_only:
            return False
        with self._changed:
            due = time.monotonic() + (0.0 if self._hurry else after)
            if self._thread is None or not self._thread.is_alive():
                try:
                    threads.at_exit(self)
                    self._thread = threads.start("toolmem-jobs", self._run)
                except Exception as error:  # noqa: BLE001 - the job is on disk, and the next one begins the thread
                    log_failure(logger, logging.WARNING, "background work could not begin", error=error)
                    return False
                self._due = due
            self._due = min(self._due, due)
            self._changed.notify_all()
        return True

    def _run(self) -> None:
        used = time.monotonic()
        while True:
            with self._changed:
                while not self._over() and (left := self._due - time.monotonic()) > 0:
                    self._changed.wait(left)
                if self._over() or time.monotonic() - used > LINGER_SECONDS:
                    self._thread = None
                    return
                self._due = math.inf
            try:
                after = self._pass()
                self._failing.discard("")
            except Exception as error:  # noqa: BLE001 - the thread goes on whatever happens
                after = IDLE_SECONDS
                level = self._level("", logging.ERROR)
                log_failure(logger, level, "background writing failed, and is tried again", error=error)
            if after is not None:
                used = time.monotonic()
            with self._changed:
                least = 0.0 if self._hurry else GATHER_SECONDS
                wait = IDLE_SECONDS if after is None else min(IDLE_SECONDS, max(after, least))
                self._due = min(self._due, time.monotonic() + wait)

    def work(self) -> float | None:
        """Do all that is due, here and now.

        Returns:
            Seconds until a job is due; None if none waits.
        """
        while (after := self._pass()) == 0:
            pass
        return after

    def _pass(self) -> float | None:
        """Do what is due of the jobs that were put before; return as `work`."""
        kinds = (*self._quick, *self._slow)
        if self._over() or self.queue.next_due(kinds) is None:
            return None
        if not self._may_work():
            return IDLE_SECONDS
        with self._working:
            if self._alone:
                self._alone = False
                self.queue.free()
            self._do_quick()
            while jobs := self._take(tuple(self._slow)):
                beside = threads.start("toolmem-slow", partial(self._tried, jobs, self._do_slow))
                renewed = time.monotonic()
                while beside.is_alive() and not self._stopped:
                    self._do_quick()
                    if time.monotonic() - renewed > self.queue.lease / 3:
                        self.queue.renew(jobs)
                        renewed = time.monotonic()
                    with self._changed:
                        self._changed.wait(POLL_SECONDS if beside.is_alive() else 0)
            return None if self._over() else self.queue.next_due(kinds)

    def _take(self, kinds: Sequence[str], **how: int) -> list[Job]:
        return [] if self._over() or not kinds else self.queue.take(kinds, **how)

    def _do_quick(self) -> None:
        upto = self.queue.last  # what is put from now on is gathered
        while jobs := self._take(tuple(self._quick), most=BATCH, upto=upto):
            self._tried(jobs, self._do_batch)

    # --- doing ---

    def _tried(self, jobs: list[Job], do: Callable[[list[Job]], object]) -> BaseException | None:
        """Do jobs, one by one if the batch fails; return the error of a single one."""
        try:
            do(jobs)
            self._failing.discard(jobs[0].kind)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            if len(jobs) == 1:
                self._failed(jobs[0], error)
                return error
            away: BaseException | None = None
            for job in jobs:
                if away is not None:  # the others would fail alike, each after a time
                    self._failed(job, away)
                elif not self._over() and isinstance(found := self._tried([job], do), StorageError):
                    away = found
        finally:
            with self._changed:
                self._changed.notify_all()
        return None

    def _do_batch(self, jobs: list[Job]) -> None:
        do, undo = self._quick[jobs[0].kind]
        with self._changing:
            forgettings, jobs = self.queue.forgettings, self.queue.held(jobs)
            if not jobs:
                return  # forgotten, or done by another process
            with self.together():
                do(jobs)
            lost = self.queue.done(jobs)
            if lost and undo is not None and self.queue.forgettings != forgettings:
                for job in lost:
                    undo(job)

    def _do_slow(self, jobs: list[Job]) -> None:
        [job] = jobs
        find, use = self._slow[job.kind]
        answer = job.answer
        if answer is None:
            answer = find(job)
            if not self.queue.save(job, answer):
                return
        with self._changing:
            if not self._stopped and self.queue.held([job]):
                use(job, answer)
                self.queue.done([job])

    def _failed(self, job: Job, error: BaseException) -> None:
        if self._stopped:  # the end of the interpreter is no failure of the job; the next opening takes it up
            logger.debug("a %s job was not done: the interpreter ends", job.kind, exc_info=error)
            return
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(job.attempts, 20))
        try:
            if isinstance(error, NotYetError):
                if job.attempts + 1 < error.tries:
                    self.queue.retry(job, wait, error=str(error))
                else:
                    logger.debug("a %s job is dropped: %s", job.kind, error)
                    self.queue.done([job])
                return
            log_failure(logger, self._level(job.kind, logging.WARNING), "a %s job failed", job.kind, error=error)
            # A model's answer that cannot be read may be chance; a job on disk stays as it is.
            limit = SLOW_TRIES if job.kind in self._slow else 1 if isinstance(error, InputError) else None
            self.queue.retry(job, wait, limit=limit, error=describe_error(error))
            if limit is not None and job.attempts + 1 >= limit:
                logger.error("a %s job was given up after %d failures", job.kind, job.attempts + 1)
        except Exception as broken:  # noqa: BLE001 - the lease ends by itself
            level = logging.DEBUG if self._closed else logging.ERROR
            log_failure(logger, level, "the queue cannot be written", error=broken)

    def _level(self, what: str, level: int) -> int:
        """Return `level` at the first failure in a row, and then that of debug messages."""
        known = what in self._failing
        self._failing.add(what)
        return logging.DEBUG if known else level

    # --- ending ---

    def close(self) -> None:
        """Do what is quick and due, and end after the jobs that are being done; what is left stays in the queue."""
        if self._made is not None and not self.read_only and self._folder is not None:
            try:
                self.settle(timeout=CLOSE_SECONDS, in_all=True)
            except Exception as error:  # noqa: BLE001 - closing goes on
                log_failure(logger, logging.WARNING, "what waits could not be written", error=error)
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS)

    def stop(self, end: float) -> None:
        """At exit the background ends after the jobs that are being done; what is left stays in the queue."""
        del end
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def close_queue(self) -> None:
        """Close the file; after everybody who may ask it."""
        if self._made is not None:
            self._made.close()

    def forked(self) -> None:
        """In a forked process there is no thread yet, and what was leased is the parent's."""
        self._thread, self._hurry, self._gathered = None, 0, threading.local()
        if self._made is not None:
            self._made.forked()


def by_namespace(jobs: Sequence[Job]) -> list[tuple[User, list[Job]]]:
    """Return jobs by the namespace of their rows, as that of nobody in particular."""
    found: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        found.setdefault(tuple(job.payload["namespace"]), []).append(job)
    return [(User(None, None, namespace), some) for namespace, some in found.items()]
