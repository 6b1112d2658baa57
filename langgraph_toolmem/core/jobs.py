"""Background work that survives the process: methods register a function for each kind of job, and put jobs.

`Jobs.put` writes a job to the `JobQueue`, tables of ``memory.db``, and returns. One thread per process does the jobs,
in batches of one kind. Jobs of a *slow* kind ask a model: one at a time in a thread of their own. The model's answer is
kept in the queue before it is used, and the job is given up after `JobLimits.slow_tries`` failures.

A job is taken for a short time, its lease. If its process was killed, the job can be taken again after the lease.
`takes` counts how often: a report on a job includes this number, and an outdated number is ignored. Only a process that
`may_work` does jobs. A failed job is tried again at growing intervals. A quick job is given up only if it cannot be
read.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from weakref import ref

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import InputError, StorageError, describe_error, log_failure
from langgraph_toolmem.base.text import digest, dumps
from langgraph_toolmem.base.threads import this_step
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.stores.database import Database
from langgraph_toolmem.stores.remote import Remote

logger = logging.getLogger("langgraph_toolmem.jobs")


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Sizes and times of the background work.

    Attributes:
        batch: jobs that are done at once.
        gather_seconds: jobs wait so long for others of their kind, unless a caller waits for them.
        first_wait: seconds before a failed job is tried again; doubled up to the longest.
        longest_wait: in seconds.
        slow_tries: failures after which a slow job is given up.
        slow_lease: seconds after which a slow job may be taken again: its process was killed, or its model does not
            answer.
        lease_seconds: the same for a quick job.
        poll_seconds: longest interval at which a waiting caller checks the jobs.
        idle_seconds: longest interval at which the thread looks for jobs while some wait; without waiting jobs it ends.
        shared_poll_seconds: interval at which `Jobs.poll` has jobs tried again that were not done.
        watch_seconds: interval at which an idle process looks for the jobs that others leave to it.
        close_seconds: wait for due jobs at the end; the others are done at the next opening.
        flush_seconds: wait for all jobs, if a caller asks for it.
        before_forgetting: seconds to wait for due jobs before a user or runs are forgotten.
        lost: a job that was taken so often and neither done nor failed is given up, because it may be the one that ends
            the process.
        waiting: further jobs are refused beyond this number, which includes jobs that were given up.
        namespaces: latest runs whose namespace is kept.
    """

    batch: int = 64
    gather_seconds: float = 0.2
    first_wait: float = 1.0
    longest_wait: float = 600.0
    slow_tries: int = 6
    slow_lease: float = 600.0
    lease_seconds: float = 30.0
    poll_seconds: float = 0.25
    idle_seconds: float = 2.0
    shared_poll_seconds: float = 30.0
    watch_seconds: float = 1.0
    close_seconds: float = 5.0
    flush_seconds: float = 60.0
    before_forgetting: float = 1.0
    lost: int = 20
    waiting: int = 100_000
    namespaces: int = 200_000


# With these, a recorded run of 13 turns costs 40 ms until everything of it is written, and a burst of 500 runs is
# written in 19 s (`benchmarks.burst`).
JOB_LIMITS: Final = JobLimits()

_OF_THESE_KINDS: Final = "dead = 0 AND kind IN (SELECT value FROM json_each(:kinds)) AND seq <= :upto"
_FIRST_OF_ITS_KEY: Final = """(ordering_key = '' OR NOT EXISTS (
    SELECT 1 FROM jobs AS older
    WHERE older.ordering_key = jobs.ordering_key AND older.dead = 0 AND older.seq < jobs.seq
))"""
# Delays and leases are shorter than an hour: if one seems longer, the clock was set back.
_DUE: Final = "(due <= :now OR due > :now + 3600)"
_LEASED: Final = "(lease > :now AND lease <= :now + 3600)"
_FREE: Final = f"{_OF_THESE_KINDS} AND {_FIRST_OF_ITS_KEY} AND {_DUE} AND NOT {_LEASED}"
_HELD: Final = "id = ? AND takes = ? AND lease > 0"
_EVER: Final = 2**62


class Job(NamedTuple):
    """A job. The fields from `answer` on are known after it was taken."""

    id: str  # a job whose id is in the queue already is not added
    kind: str  # selects the code that does it
    payload: Mapping[str, Any]  # JSON values
    run: str = ""  # digest of the run it is about
    user: str = ""  # digest of the user it is about
    namespace: tuple[str, ...] = ()  # of the run's rows; kept for `JobQueue.namespace_of`
    ordering_key: str = ""  # jobs of one key are done one after the other, in the order they were put; "": no order
    answer: str | None = None  # kept by `JobQueue.save`
    takes: int = 0  # number of times that it was taken
    attempts: int = 0  # number of failures

    @property
    def owner(self) -> User:
        """The owner of its rows: a user without digest unless the job names one."""
        return User(None, self.user or None, self.namespace)


class RowsOwner(NamedTuple):
    """The namespace of a run's rows (None) and the digest of its user (""), if they are known."""

    namespace: tuple[str, ...] | None
    user: str


class JobQueue(Database):
    """Jobs on disk, or in RAM without a folder; every method raises `StorageError` if the file cannot be used."""

    tables: ClassVar = {
        "jobs": """
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL,
            payload TEXT NOT NULL,
            run TEXT NOT NULL,
            user TEXT NOT NULL,
            namespace TEXT NOT NULL,
            ordering_key TEXT NOT NULL,
            due REAL NOT NULL,
            lease REAL NOT NULL DEFAULT 0,
            takes INTEGER NOT NULL DEFAULT 0,
            attempts INTEGER NOT NULL DEFAULT 0,
            error TEXT NOT NULL DEFAULT '',
            dead INTEGER NOT NULL DEFAULT 0,
            answer TEXT,
            UNIQUE (dead, kind, seq),
            UNIQUE (ordering_key, dead, seq)
        """,
        "namespaces": "run TEXT PRIMARY KEY, namespace TEXT NOT NULL, user TEXT NOT NULL",
    }

    def __init__(
        self,
        folder: Path | None,
        *,
        now: Callable[[], float],
        read_only: bool = False,
        problems: list[str] | None = None,
    ) -> None:
        super().__init__(folder, read_only=read_only, problems=problems)
        self._now = now

    def put(self, jobs: Sequence[Job]) -> int:
        """Put jobs in one transaction; return how many are new. Jobs that were given up before start again.

        Raises:
            StorageError: the queue is full, or cannot be written.
        """
        self.note_namespaces([(job.run, job.user, job.namespace) for job in jobs if job.run and job.namespace])
        rows: list[dict[str, Any]] = []
        for job in jobs:
            row = job._asdict()
            row["payload"] = dumps(job.payload)
            row["namespace"] = json.dumps(job.namespace)
            row["due"] = self._now()
            rows.append(row)
        with self.writing() as database:
            # A folder without a process that does its jobs must not fill its disk.
            [(waiting,)] = database.execute("SELECT count(*) FROM jobs")
            if waiting >= JOB_LIMITS.waiting:
                raise StorageError(
                    f"{waiting:,} jobs wait to be done, and no more are accepted: `toolmem doctor` says which jobs "
                    "wait, and why."
                )
            database.executemany("DELETE FROM jobs WHERE id = :id AND dead = 1", rows)
            return database.executemany(
                """INSERT INTO jobs (id, kind, payload, run, user, namespace, ordering_key, due)
                VALUES (:id, :kind, :payload, :run, :user, :namespace, :ordering_key, :due)
                ON CONFLICT (id) DO NOTHING""",
                rows,
            ).rowcount

    def take(
        self, kinds: Iterable[str], *, most: int = 1, upto: int = _EVER, lease: float = JOB_LIMITS.lease_seconds
    ) -> list[Job]:
        """Lease the oldest job of some kinds that is due and was put up to a place (`last`), with others of its kind.

        A job that was taken before, so that it failed or lost its process, is taken alone.
        """
        # Checked in SQL: a job that cannot be read would raise for all of its batch.
        damaged = """(NOT json_valid(payload) OR NOT json_valid(namespace) OR typeof(takes) <> 'integer'
            OR typeof(attempts) <> 'integer' OR typeof(answer) NOT IN ('null', 'text'))"""
        chosen = "seq IN (SELECT value FROM json_each(:chosen))"
        with self.writing() as database:
            places = self._choose(database, self._asked(kinds, upto), most)
            if not places:
                return []
            values = {"chosen": json.dumps(places), "lost": JOB_LIMITS.lost, "lease": self._now() + lease}
            lost = database.execute(
                f"""UPDATE jobs SET dead = 1, error = 'damaged, or taken too often without an end'
                WHERE {chosen} AND (takes - attempts >= :lost OR {damaged})""",
                values,
            ).rowcount
            rows = database.execute(
                f"""UPDATE jobs SET takes = takes + 1, lease = :lease WHERE {chosen} AND dead = 0
                RETURNING seq, id, kind, payload, run, user, namespace, ordering_key, answer, takes, attempts""",
                values,
            ).fetchall()
        if lost:
            logger.error("%d jobs were given up: damaged, or taken %d times in vain", lost, JOB_LIMITS.lost)
        jobs = []
        for _, key, kind, payload, run, user, namespace, order, *rest in sorted(rows):
            jobs.append(Job(key, kind, json.loads(payload), run, user, tuple(json.loads(namespace)), order, *rest))
        return jobs

    def _choose(self, database: sqlite3.Connection, asked: dict[str, Any], most: int) -> list[int]:
        """Return the places of the oldest job that is free and, if it was never taken, of others like it."""
        free = f"SELECT seq, kind, takes FROM jobs WHERE {_FREE}"
        for seq, kind, takes in database.execute(f"{free} ORDER BY seq LIMIT 1", asked).fetchall():
            # A job that ends its process would also end the other jobs of its batch.
            if takes or most == 1:
                return [seq]
            asked["kinds"] = json.dumps([kind])
            alike = database.execute(f"{free} AND takes = 0 ORDER BY seq LIMIT {most}", asked).fetchall()
            return [place for place, *_ in alike]
        return []

    def free(self) -> None:
        """End all leases: other processes do not do jobs."""
        with self.writing() as database:
            database.execute("UPDATE jobs SET lease = 0 WHERE lease > 0")

    def save(self, job: Job, answer: str) -> bool:
        """Keep an answer for the next process that takes the job; return True if the lease is still valid."""
        with self.writing() as database:
            held = (answer, job.id, job.takes)
            return database.execute(f"UPDATE jobs SET answer = ? WHERE {_HELD}", held).rowcount == 1

    def done(self, jobs: Iterable[Job]) -> list[Job]:
        """Delete jobs that are done; return those with an expired lease."""
        with self.writing() as database:
            sql = f"DELETE FROM jobs WHERE {_HELD}"
            return [job for job in jobs if database.execute(sql, (job.id, job.takes)).rowcount == 0]

    def retry(self, job: Job, after: float, error: str = "", *, dead: bool = False) -> None:
        """Put back a job that failed; `error` must not contain text of a user. A job that is given up is only kept."""
        sql = f"UPDATE jobs SET lease = 0, attempts = attempts + 1, due = ?, error = ?, dead = ? WHERE {_HELD}"
        with self.writing() as database:
            database.execute(sql, (self._now() + after, error, dead, job.id, job.takes))

    def requeue(self) -> int:
        """Queue all jobs that were given up again, as if new; return their number."""
        sql = "UPDATE jobs SET dead = 0, attempts = 0, takes = 0, lease = 0, due = ? WHERE dead = 1"
        with self.writing() as database:
            return database.execute(sql, (self._now(),)).rowcount

    # --- counting ---

    @property
    def last(self) -> int:
        """The place of the job that was put last; 0 without jobs."""
        return sum(seq or 0 for (seq,) in self.ask("SELECT max(seq) FROM jobs"))

    def unsettled(self, kinds: Iterable[str], upto: int) -> bool:
        """Return True if jobs that were put up to a place are leased or can be taken, else False."""
        sql = f"SELECT 1 FROM jobs WHERE {_OF_THESE_KINDS} AND ({_LEASED} OR {_DUE} AND {_FIRST_OF_ITS_KEY}) LIMIT 1"
        return bool(self.ask(sql, self._asked(kinds, upto)))

    def next_due(self, kinds: Iterable[str]) -> float | None:
        """Return the seconds until a job can be taken, 0 for now; None without waiting jobs."""
        when = f"CASE WHEN {_LEASED} THEN lease WHEN {_DUE} THEN :now ELSE due END"
        sql = f"SELECT min(CAST({when} AS REAL)) FROM jobs WHERE {_OF_THESE_KINDS} AND {_FIRST_OF_ITS_KEY}"
        asked = self._asked(kinds)
        for (due,) in self.ask(sql, asked):
            if due is not None:
                return max(0.0, float(due) - float(asked["now"]))
        return None

    def report(self) -> dict[str, int]:
        """Return ``{"pending": n, "failing": pending ones that failed before, "dead": n}``."""
        sql = "SELECT sum(dead = 0), sum(dead = 0 AND attempts > 0), sum(dead) FROM jobs"
        [(pending, failing, dead)] = self.ask(sql) or [(0, 0, 0)]
        return {"pending": pending or 0, "failing": failing or 0, "dead": dead or 0}

    def troubles(self) -> list[str]:
        """Return sentences on the jobs that were given up or failed, the most frequent five kinds of them."""
        sql = """
            SELECT kind, dead, error, count(*) AS number FROM jobs WHERE dead = 1 OR attempts > 0
            GROUP BY kind, dead, error ORDER BY number DESC LIMIT 5
        """
        sentences = []
        for kind, dead, why, number in self.ask(sql):
            state = "were given up" if dead else "wait and were tried without success"
            sentences.append(f"{number:,} {kind} jobs {state} ({why or 'no reason known'})")
        return sentences

    # --- runs and users ---

    def note_namespaces(self, known: Sequence[tuple[str, str, tuple[str, ...]]]) -> None:
        """Keep, for later feedback, the user's digest ("" if it is not known) and the namespace of runs."""
        if not known:
            return
        note = """INSERT OR REPLACE INTO namespaces SELECT :run, :namespace,
            coalesce(nullif(:user, ''), (SELECT user FROM namespaces WHERE run = :run), '')"""
        with self.writing() as database:
            for run, user, namespace in known:
                database.execute(note, {"run": run, "user": user, "namespace": json.dumps(namespace)})
            latest = "SELECT max(rowid) FROM namespaces"
            database.execute(f"DELETE FROM namespaces WHERE rowid <= ({latest}) - ?", (JOB_LIMITS.namespaces,))

    def namespace_of(self, run: str) -> RowsOwner:
        """Return the namespace of a run's rows and its user, as far as they are known and can be read."""
        with suppress(StorageError):
            for namespace, user in self.ask("SELECT namespace, user FROM namespaces WHERE run = ?", (run,)):
                return RowsOwner(tuple(json.loads(namespace)), user)
        return RowsOwner(None, "")

    def forget(self, user: str, *, runs: Collection[str] = (), before: float | None = None) -> int:
        """Delete jobs about a user or runs, or given up and due `before`, from the disk too; return how many."""
        about = "(user = :user AND :user > '' OR run IN (SELECT value FROM json_each(:runs)))"
        asked = {"user": user, "runs": json.dumps(list(runs)), "before": before}
        with self.writing() as database:
            deleted = database.execute(f"DELETE FROM jobs WHERE {about} OR dead = 1 AND due < :before", asked)
            database.execute(f"DELETE FROM namespaces WHERE {about}", asked)
        self.scrub()
        return deleted.rowcount

    def _asked(self, kinds: Iterable[str], upto: int = _EVER) -> dict[str, Any]:
        return {"now": self._now(), "kinds": json.dumps(list(kinds)), "upto": upto}


def keep_it(_: Job) -> None:
    """Do nothing for a job whose user was forgotten meanwhile."""


@dataclass(frozen=True, slots=True)
class JobHandler:
    """The way in which jobs of a kind are done; see `Jobs.handle`."""

    do: Callable[[Sequence[Job]], object]
    find: Callable[[Job], str] | None
    undo: Callable[[Job], object]

    @property
    def slow(self) -> bool:
        """True if the jobs ask a model."""
        return self.find is not None


def always() -> bool:
    """Return True: the default of `may_work`, for a process that always may."""
    return True


def never() -> bool:
    """Return False: the default of `take_over` and `serves`, where every process may write."""
    return False


class NotYetError(Exception):
    """The subject of a job does not exist yet. The job is dropped after so many `tries`; `why` must not contain text of
    a user.
    """

    def __init__(self, why: str, *, tries: int) -> None:
        super().__init__(why)
        self.tries = tries


class Jobs:
    """The jobs of a memory. Safe to use from several threads. The queue is opened at the first job.

    Args:
        folder: of the memory; None keeps jobs in RAM.
        now: seconds since 1970.
        read_only: do no jobs; `put` leaves them to the processes that write to the folder.
        may_work: returns True if this process may write the results of the jobs.
        take_over: where only one process at a time may write, makes this one the writer; returns True if it was not
            before, so that leases of other processes are invalid.
        serves: returns True if the others leave their jobs to this process, which then looks for them.
        remote: the server that the jobs write to, if it may hang: a model call waits for it only for its patience.
        working: counts the processor time of the jobs.
        problems: takes sentences on losses in the file; those of others who use it too.

    Attributes:
        at_poll: functions that `poll` calls first.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        now: Callable[[], float],
        read_only: bool = False,
        may_work: Callable[[], bool] = always,
        take_over: Callable[[], bool] = never,
        serves: Callable[[], bool] = never,
        remote: Remote | None = None,
        working: Callable[[], AbstractContextManager[None]] = nullcontext,
        problems: list[str] | None = None,
    ) -> None:
        self._working = working
        self.queue = JobQueue(folder, now=now, read_only=read_only, problems=problems)
        self.at_poll: list[Callable[[], object]] = []
        self._may_work = may_work
        self._take_over = take_over
        self._serves = serves
        self._remote = remote
        self._handlers: dict[str, JobHandler] = {}
        self._gathered = threading.local()  # jobs of `together`
        self._changing = threads.rlock()  # from taking a job until it is done: users are not forgotten meanwhile
        self._changed = threads.condition()
        self._thread: threading.Thread | None = None
        self._due = math.inf  # by time.monotonic
        self._over = threading.Event()  # True: do not begin further jobs
        self._doing: int | None = None  # the thread that writes the results of jobs
        if read_only:
            self._over.set()
        self._stopped = False  # by the end of the interpreter
        self._failing: set[str] = set()  # kinds of jobs of which the last one failed
        self._next_poll = 0.0
        self._last = 0  # job in the queue that was seen
        self._watching: threading.Thread | None = None

    # --- putting ---

    def handle(
        self,
        kind: str,
        do: Callable[[Sequence[Job]], object],
        *,
        find: Callable[[Job], str] | None = None,
        undo: Callable[[Job], object] = keep_it,
    ) -> None:
        """Register the functions for a kind of job.

        Args:
            kind: of jobs.
            do: does a batch, in milliseconds per job; if it raises, the jobs are done one by one. It must be harmless
                to call it twice.
            find: makes the kind slow: it asks a model. Its text is the `answer` of the single job that `do` then gets.
            undo: reverts a job whose user another process forgot meanwhile.
        """
        self._handlers[kind] = JobHandler(do, find, undo)

    def _kinds(self, *, slow: bool) -> list[str]:
        return [kind for kind, handler in self._handlers.items() if handler.slow is slow]

    def put(
        self,
        kind: str,
        payload: Mapping[str, Any],
        *,
        run: str = "",
        user: str = "",
        namespace: Sequence[str] = (),
        ordering_key: str | None = None,
        key: str | None = None,
    ) -> None:
        """Put a `Job`, which is on disk when this returns; inside `together` at its end.

        Args:
            ordering_key: jobs of one key are done in their order. Defaults to kind, namespace and run; "" means no
                order.
            key: a job whose key is in the queue already is not added. If None, the key is unique.

        Raises:
            StorageError: the queue cannot be written.
        """
        if ordering_key is None:
            ordering_key = digest(kind, *namespace, run)
        with self.together():
            jobs = self._gathered.jobs
            jobs.append(Job(key or uuid.uuid4().hex, kind, payload, run, user, tuple(namespace), ordering_key))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Put what this thread puts inside in one transaction, at the end."""
        if getattr(self._gathered, "jobs", None) is not None:
            yield
            return
        jobs: list[Job] = []
        self._gathered.jobs = jobs  # of this thread only
        try:
            yield
        finally:
            self._gathered.jobs = None
            if jobs:
                self.queue.put(jobs)
                self.begin(JOB_LIMITS.gather_seconds)

    # --- waiting ---

    def poll(self) -> None:
        """Look for jobs on disk from time to time; cheap enough for every model call."""
        for do in self.at_poll:
            do()
        if self.queue.folder is None or self.queue.empty:
            return
        now, last = time.monotonic(), self.queue.last
        if last > self._last or now >= self._next_poll:
            self._next_poll = now + JOB_LIMITS.shared_poll_seconds
            self._last = last
            self.begin()

    def settle(self, *, timeout: float = 1.0) -> bool:
        """Wait until the quick jobs that are due now are done; return True if all of them are."""
        if self._over.is_set() or self.queue.empty:
            return True
        kinds, upto = self._kinds(slow=False), self.queue.last

        def settled() -> bool:
            return self._over.is_set() or not self.queue.unsettled(kinds, upto)

        if settled():
            return True
        if not self._may_work():
            return False
        if self._remote is not None and this_step() is not None:
            return self.begin() and self._remote.wait_for(settled, self._changed)
        return self._wait(settled, timeout)

    def flush(self, *, timeout: float | None = JOB_LIMITS.flush_seconds) -> bool:
        """Wait until all jobs are done, also those of other processes; return True if all are done or were given up."""
        if self.queue.read_only or (self.queue.empty and self._doing is None):
            return True
        thread = threading.get_ident()

        def all_done() -> bool:
            return self.queue.next_due(self._handlers) is None and self._doing in (None, thread)

        if self._over.is_set():
            return False
        if timeout is None:
            timeout = math.inf
        return self._wait(all_done, timeout)

    def _wait(self, done: Callable[[], bool], timeout: float) -> bool:
        end = time.monotonic() + timeout
        with self._changed:
            while not done():
                left = end - time.monotonic()
                if left <= 0 or not self.begin():
                    return False
                self._changed.wait(min(JOB_LIMITS.poll_seconds, left))
        return True

    def forked(self) -> None:
        self._doing = None

    # --- forgetting ---

    def forget(self, gone: Forgotten) -> int:
        """Delete jobs about a user or runs, before rows are forgotten; the results of running jobs are not written."""
        if self.queue.empty or not (gone.user or gone.runs or gone.before is not None):
            return 0
        if gone.before is None:
            # Writing meanwhile would bring pieces of the process's memory into Chroma's files again.
            self.flush(timeout=JOB_LIMITS.before_forgetting)
        with self._changing:
            return self.queue.forget(gone.user, runs=gone.runs, before=gone.before)

    # --- the thread ---

    def begin(self, after: float = 0.0) -> bool:
        """Have the thread work in so many seconds; return False if it cannot be started."""
        if self._over.is_set():
            return False
        with self._changed:
            self._due = min(self._due, time.monotonic() + after)
            # A forked child has the object of a thread that does not run there.
            if self._thread is None or not self._thread.is_alive():
                try:
                    threads.at_exit(self)
                    self._thread = threads.start("toolmem-jobs", self._run)
                except Exception as error:  # noqa: BLE001 - the job is on disk, and the next one begins the thread
                    log_failure(logger, logging.WARNING, "background work could not begin", error=error)
                    return False
            self._changed.notify_all()
        return True

    def _run(self) -> None:
        idle, gather = JOB_LIMITS.idle_seconds, JOB_LIMITS.gather_seconds
        while self._wait_for_work():
            try:
                after = self.work()
                self._failing.discard("")
            except Exception as error:  # noqa: BLE001 - the thread goes on whatever happens
                after = idle
                level = self._level("", logging.ERROR)
                log_failure(logger, level, "background writing failed, and is tried again", error=error)
            with self._changed:
                if after is not None:
                    self._due = min(self._due, time.monotonic() + min(idle, max(after, gather)))
                elif self._due == math.inf:
                    self._end_thread()
                    self._begin_watch()
                    return

    def _wait_for_work(self) -> bool:
        """Return True once work is due, False where the thread is to end."""
        with self._changed:
            while not self._over.is_set():
                left = self._due - time.monotonic()
                if left <= 0:
                    self._due = math.inf
                    return True
                if left == math.inf:  # another thread took the work: after an interrupt there may be two
                    self._end_thread()
                    return False
                self._changed.wait(min(left, JOB_LIMITS.idle_seconds))
        return False

    def _end_thread(self) -> None:
        if self._thread is threading.current_thread():
            self._thread = None

    def _begin_watch(self) -> None:
        """Have a thread look for jobs of other processes; it does not keep the memory alive."""
        watching = self._watching is not None and self._watching.is_alive()
        if self._serves() and not watching and not self._over.is_set():
            self._watching = threads.start("toolmem-watch", partial(_watch, ref(self), self._over))

    def look(self) -> bool:
        """Begin with jobs that other processes left; return False if jobs are not left to this process."""
        if not self._serves():
            return False
        try:
            self.poll()
        except StorageError as error:
            logger.debug("the queue could not be read", exc_info=error)
        return True

    def work(self) -> float | None:
        """Do the jobs that are due; return the seconds until the next one is, None without waiting jobs."""
        if self._over.is_set() or self.queue.next_due(self._handlers) is None:
            return None
        if not self._may_work():
            return JOB_LIMITS.idle_seconds
        try:
            # At each change of the writer: once in the life of a process was too seldom. A recall waited 10 s for the
            # jobs of a killed process after 6 of 890 kills (`benchmarks.kills`).
            is_new = self._take_over()
        except StorageError:  # another process was quicker
            return JOB_LIMITS.idle_seconds
        if is_new:
            self.queue.free()
        self._do_quick()
        self._do_slow()
        return None if self._over.is_set() else self.queue.next_due(self._handlers)

    def _do_quick(self) -> None:
        kinds, upto = self._kinds(slow=False), self.queue.last  # jobs that are put from now on are gathered
        while not self._over.is_set():
            with self._changing:
                jobs = self.queue.take(kinds, most=JOB_LIMITS.batch, upto=upto)
                if not jobs:
                    return
                self._try(jobs)

    def _do_slow(self) -> None:
        """Do the slow jobs in a thread of their own, one by one, and quick ones meanwhile."""
        kinds = self._kinds(slow=True)
        while kinds and not self._over.is_set():
            jobs = self.queue.take(kinds, lease=JOB_LIMITS.slow_lease)
            if not jobs:
                return
            slow_thread = threads.start("toolmem-slow", partial(self._try, jobs))
            # A model may take minutes; quick jobs must not wait for it.
            while slow_thread.is_alive() and not self._stopped:
                self._do_quick()
                with self._changed:
                    self._changed.wait(JOB_LIMITS.poll_seconds if slow_thread.is_alive() else 0)

    # --- doing ---

    def _try(self, jobs: list[Job]) -> None:
        try:
            with self._working():
                self._do(jobs)
            self._failing.discard(jobs[0].kind)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            if len(jobs) == 1:
                self._failed(jobs[0], error)
            else:
                # One of them fails: the others are done without it.
                for job in jobs:
                    self._try([job])
        finally:
            with self._changed:
                self._changed.notify_all()

    def _do(self, jobs: list[Job]) -> None:
        """Do jobs of one kind; a slow one alone, with the answer of its model."""
        first = jobs[0]
        handler = self._handlers[first.kind]
        answer = first.answer
        if handler.find is not None and answer is None:
            answer = handler.find(first)
        with self._changing:
            if answer is not None:
                # Kept before it is used: a model is not asked twice for one job.
                if self._stopped or not self.queue.save(first, answer):
                    return  # forgotten, or done by another process
                jobs = [first._replace(answer=answer)]
            self._doing = threading.get_ident()
            try:
                with self.together():
                    handler.do(jobs)
                self._undo_forgotten(handler, self.queue.done(jobs))
            finally:
                self._doing = None

    def _undo_forgotten(self, handler: JobHandler, expired: Iterable[Job]) -> None:
        """Revert jobs whose user another process forgot while they were done: their leases have expired."""
        for job in expired:
            if self.queue.namespace_of(job.run).namespace is None:
                handler.undo(job)

    def _failed(self, job: Job, error: BaseException) -> None:
        if self._stopped:  # the end of the interpreter is not a failure of the job; the next opening continues it
            logger.debug("a %s job was not done: the interpreter ends", job.kind, exc_info=error)
            return
        wait = min(JOB_LIMITS.longest_wait, JOB_LIMITS.first_wait * 2.0 ** min(job.attempts, 20))
        try:
            if isinstance(error, NotYetError):
                self._wait_or_drop(job, wait, error)
            else:
                self._retry_or_give_up(job, wait, error)
        except Exception as broken:  # noqa: BLE001 - the lease ends by itself
            # A closed memory's queue refuses writes: that is no failure to report.
            level = logging.DEBUG if self._over.is_set() else logging.ERROR
            log_failure(logger, level, "the queue cannot be written", error=broken)

    def _wait_or_drop(self, job: Job, wait: float, error: NotYetError) -> None:
        if job.attempts + 1 < error.tries:
            self.queue.retry(job, wait, str(error))
        else:
            logger.debug("a %s job is dropped: %s", job.kind, error)
            self.queue.done([job])

    def _retry_or_give_up(self, job: Job, wait: float, error: BaseException) -> None:
        log_failure(logger, self._level(job.kind, logging.WARNING), "a %s job failed", job.kind, error=error)
        # A model's answer that cannot be read may be chance; a job on disk stays as it is.
        dead = isinstance(error, InputError)
        if self._handlers[job.kind].slow:
            dead = job.attempts + 1 >= JOB_LIMITS.slow_tries
        self.queue.retry(job, wait, describe_error(error), dead=dead)
        if dead:
            logger.error("a %s job was given up after %d failures", job.kind, job.attempts + 1)

    def _level(self, what: str, level: int) -> int:
        """Return `level` at the first failure in a row, and then that of debug messages."""
        if what in self._failing:
            return logging.DEBUG
        self._failing.add(what)
        return level

    # --- ending ---

    def close(self) -> None:
        """Do the quick jobs that are due, and end after the running ones; the others stay in the queue."""
        if self.queue.folder is not None and self._thread is not None:
            try:
                self.settle(timeout=JOB_LIMITS.close_seconds)
            except Exception as error:  # noqa: BLE001 - closing goes on
                log_failure(logger, logging.WARNING, "what waits could not be written", error=error)
        with self._changed:
            self._over.set()
            started = (self._thread, self._watching)
            self._changed.notify_all()
        # Outside the lock, which the threads take as they end.
        for thread in started:
            if thread is not None and thread is not threading.current_thread():
                thread.join(JOB_LIMITS.close_seconds)

    def stop(self, end: float) -> None:
        del end
        with self._changed:
            self._stopped = True
            self._over.set()
            self._changed.notify_all()


def _watch(jobs: ref[Jobs], over: threading.Event) -> None:
    while not over.wait(JOB_LIMITS.watch_seconds):
        watched = jobs()
        if watched is None or not watched.look():
            return
        # Without this name the memory can be collected while the thread sleeps.
        del watched
