"""Background work that outlives the process: methods register how jobs of a kind are done, and put jobs.

`Jobs.put` writes a job to the `JobQueue`, tables of ``memory.db``, and returns. One thread per process does the jobs,
those of one kind in batches. Jobs of a *slow* kind ask a model: one at a time in a thread of their own. The model's
answer is kept in the queue before it is used, and the job is given up after `SLOW_TRIES` failures.

A job is taken for a short time, its lease; after that, because its process was killed, it can be taken again. `takes`
counts how often: whoever reports on a job shows that number, and an outdated one changes nothing. Only a process that
`may_work` does jobs. What fails is tried again, later and later. A quick job is given up only if it cannot be read.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from weakref import ref

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import InputError, StorageError, describe_error, log_failure
from langgraph_toolmem.base.jsontext import dumps
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.base.threads import this_step
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.stores.database import Database
from langgraph_toolmem.stores.remote import Remote

logger = logging.getLogger("langgraph_toolmem.jobs")

BATCH: Final = 64
GATHER_SECONDS: Final = 0.2
"""Jobs wait so long for others of their kind, unless somebody waits for them."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 600.0
"""Seconds before a failed job is tried again: doubled from the first to the longest."""
SLOW_TRIES: Final = 6
SLOW_LEASE: Final = 600.0
"""Seconds after which a slow job may be taken again: its process was killed, or its model does not answer."""
POLL_SECONDS: Final = 0.25
IDLE_SECONDS: Final = 2.0
"""The thread looks for jobs at least so often while any wait; then it ends."""
SHARED_POLL_SECONDS: Final = 30.0
"""Interval at which `Jobs.poll` has jobs tried again that were not done."""
WATCH_SECONDS: Final = 1.0
"""Interval at which a process that does nothing looks for the jobs that others leave to it."""
CLOSE_SECONDS, FLUSH_SECONDS, BEFORE_FORGETTING = 5.0, 60.0, 1.0
"""Seconds to wait for what is due; what is left after closing is done at the next opening."""
LEASE_SECONDS: Final = 30.0
MAX_LOST: Final = 20
"""A job that was taken so often and neither done nor failed is given up: it may be what ends the process."""
MAX_WAITING: Final = 100_000
"""More jobs, those that were given up among them, are refused."""
MAX_NAMESPACES: Final = 200_000
_WANTED: Final = "dead = 0 AND kind IN (SELECT value FROM json_each(:kinds)) AND seq <= :upto"
_FIRST: Final = """(ordering_key = '' OR NOT EXISTS (
    SELECT 1 FROM jobs AS older
    WHERE older.ordering_key = jobs.ordering_key AND older.dead = 0 AND older.seq < jobs.seq
))"""
# No job is put off or leased for an hour: if it seems so, the clock was set back.
_DUE: Final = "(due <= :now OR due > :now + 3600)"
_LEASED: Final = "(lease > :now AND lease <= :now + 3600)"
_FREE: Final = f"{_WANTED} AND {_FIRST} AND {_DUE} AND NOT {_LEASED}"
_CHOSEN: Final = "seq IN (SELECT value FROM json_each(:chosen))"
_DAMAGED: Final = """(NOT json_valid(payload) OR NOT json_valid(namespace) OR typeof(takes) <> 'integer'
    OR typeof(attempts) <> 'integer' OR typeof(answer) NOT IN ('null', 'text'))"""
_HELD: Final = "id = ? AND takes = ? AND lease > 0"
_ABOUT: Final = "(user = :user AND :user > '' OR run IN (SELECT value FROM json_each(:runs)))"
_EVER: Final = 2**62


class Job(NamedTuple):
    """A job. The fields from `answer` on are known once it was taken."""

    id: str  # one whose id waits already is not put again
    kind: str  # selects the code that does it
    payload: Mapping[str, Any]  # JSON values
    run: str = ""  # digest of the run it is about
    user: str = ""  # digest of the user it is about
    namespace: tuple[str, ...] = ()  # of the run's rows; kept for `JobQueue.namespace_of`
    ordering_key: str = ""  # jobs of one key are done one after the other, in the order they were put; "": no order
    answer: str | None = None  # kept by `JobQueue.save`
    takes: int = 0  # how often it was taken
    attempts: int = 0  # how often it failed


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

    def __init__(self, folder: Path | None, *, now: Callable[[], float], read_only: bool = False) -> None:
        super().__init__(folder, read_only=read_only)
        self._now = now

    def put(self, jobs: Sequence[Job]) -> int:
        """Put jobs in one transaction; return how many are new. Jobs that were given up before start again."""
        self.note_namespaces([each[3:6] for each in jobs if each.run and each.namespace])
        with self.writing() as database:
            [(waiting,)] = database.execute("SELECT count(*) FROM jobs")
            if waiting >= MAX_WAITING:
                raise StorageError(
                    f"{waiting:,} jobs wait to be done, and no more are taken: `toolmem doctor` says which, and why."
                )
            database.executemany("DELETE FROM jobs WHERE id = ? AND dead = 1", [(each.id,) for each in jobs])
            return database.executemany(
                """INSERT INTO jobs (id, kind, payload, run, user, namespace, ordering_key, due)
                VALUES (:id, :kind, :payload, :run, :user, :namespace, :ordering_key, :due)
                ON CONFLICT (id) DO NOTHING""",
                [
                    each._asdict()
                    | {"payload": dumps(each.payload), "namespace": json.dumps(each.namespace), "due": self._now()}
                    for each in jobs
                ],
            ).rowcount

    def take(
        self, kinds: Iterable[str], *, most: int = 1, upto: int = _EVER, lease: float = LEASE_SECONDS
    ) -> list[Job]:
        """Lease the oldest job of some kinds that is due and was put up to a place (`last`), with others of its kind.

        A job that was taken before, and so failed or lost its process, is taken alone.
        """
        asked = self._asked(kinds, upto)
        with self.writing() as database:
            free = f"SELECT seq, kind, takes FROM jobs WHERE {_FREE}"
            found = database.execute(f"{free} ORDER BY seq LIMIT 1", asked).fetchall()
            if found and most > 1 and not found[0][2]:
                asked["kinds"] = json.dumps([found[0][1]])
                found = database.execute(f"{free} AND takes = 0 ORDER BY seq LIMIT {most}", asked).fetchall()
            if not found:
                return []
            how = {"chosen": json.dumps([seq for seq, *_ in found]), "lost": MAX_LOST, "lease": self._now() + lease}
            lost = database.execute(
                f"""UPDATE jobs SET dead = 1, error = 'damaged, or taken too often without an end'
                WHERE {_CHOSEN} AND (takes - attempts >= :lost OR {_DAMAGED})""",
                how,
            ).rowcount
            rows = database.execute(
                f"""UPDATE jobs SET takes = takes + 1, lease = :lease WHERE {_CHOSEN} AND dead = 0
                RETURNING seq, id, kind, payload, run, user, namespace, ordering_key, answer, takes, attempts""",
                how,
            ).fetchall()
        if lost:
            logger.error("%d jobs were given up: damaged, or taken %d times in vain", lost, MAX_LOST)
        return [
            Job(key, kind, json.loads(payload), run, user, tuple(json.loads(namespace)), order, *rest)
            for _, key, kind, payload, run, user, namespace, order, *rest in sorted(rows)
        ]

    def free(self) -> None:
        """End all leases: nobody else does jobs."""
        with self.writing() as database:
            database.execute("UPDATE jobs SET lease = 0 WHERE lease > 0")

    def save(self, job: Job, answer: str) -> bool:
        """Keep an answer for whoever takes the job next; return True if the job is still held, else False."""
        with self.writing() as database:
            held = (answer, job.id, job.takes)
            return database.execute(f"UPDATE jobs SET answer = ? WHERE {_HELD}", held).rowcount == 1

    def done(self, jobs: Iterable[Job]) -> list[Job]:
        """Delete jobs that are done; return those that are not held any more."""
        with self.writing() as database:
            sql = f"DELETE FROM jobs WHERE {_HELD}"
            return [job for job in jobs if database.execute(sql, (job.id, job.takes)).rowcount == 0]

    def retry(self, job: Job, after: float, error: str = "", *, dead: bool = False) -> None:
        """Put back a job that failed; `error` is no text of a user. A job that is given up is only kept."""
        sql = f"UPDATE jobs SET lease = 0, attempts = attempts + 1, due = ?, error = ?, dead = ? WHERE {_HELD}"
        with self.writing() as database:
            database.execute(sql, (self._now() + after, error, dead, job.id, job.takes))

    def requeue(self) -> int:
        """Have everything that was given up tried again, as if new; return how many."""
        sql = "UPDATE jobs SET dead = 0, attempts = 0, takes = 0, lease = 0, due = ? WHERE dead = 1"
        with self.writing() as database:
            return database.execute(sql, (self._now(),)).rowcount

    # --- counting ---

    @property
    def last(self) -> int:
        return sum(seq or 0 for (seq,) in self.ask("SELECT max(seq) FROM jobs"))

    def unsettled(self, kinds: Iterable[str], upto: int) -> bool:
        """Return True if jobs that were put up to a place are leased or can be taken, else False."""
        sql = f"SELECT 1 FROM jobs WHERE {_WANTED} AND ({_LEASED} OR {_DUE} AND {_FIRST}) LIMIT 1"
        return bool(self.ask(sql, self._asked(kinds, upto)))

    def next_due(self, kinds: Iterable[str]) -> float | None:
        """Return the seconds until a job can be taken, 0 for now; None if none waits."""
        when = f"CASE WHEN {_LEASED} THEN lease WHEN {_DUE} THEN :now ELSE due END"
        asked = self._asked(kinds)
        found = self.ask(f"SELECT min(CAST({when} AS REAL)) FROM jobs WHERE {_WANTED} AND {_FIRST}", asked)
        return max(0.0, found[0][0] - asked["now"]) if found and found[0][0] is not None else None

    def report(self) -> dict[str, int]:
        """Return ``{"pending": n, "failing": pending ones that failed before, "dead": n}``."""
        sql = "SELECT sum(dead = 0), sum(dead = 0 AND attempts > 0), sum(dead) FROM jobs"
        [counts] = self.ask(sql) or [(0, 0, 0)]
        return {name: count or 0 for name, count in zip(("pending", "failing", "dead"), counts, strict=True)}

    def troubles(self) -> list[str]:
        sql = """
            SELECT kind, dead, error, count(*) AS number FROM jobs WHERE dead = 1 OR attempts > 0
            GROUP BY kind, dead, error ORDER BY number DESC LIMIT 5
        """
        states = {0: "wait and were tried without success", 1: "were given up"}
        return [
            f"{number:,} {kind} jobs {states[up]} ({why or 'no reason known'})"
            for kind, up, why, number in self.ask(sql)
        ]

    # --- runs and users ---

    def note_namespaces(self, found: Sequence[tuple[str, str, tuple[str, ...]]]) -> None:
        """Keep, for later feedback, the user's digest ("" if it is not known) and the namespace of runs."""
        if not found:
            return
        with self.writing() as database:
            database.executemany(
                """INSERT OR REPLACE INTO namespaces SELECT :run, :namespace,
                coalesce(nullif(:user, ''), (SELECT user FROM namespaces WHERE run = :run), '')""",
                [{"run": run, "user": user, "namespace": json.dumps(namespace)} for run, user, namespace in found],
            )
            oldest = "SELECT max(rowid) FROM namespaces"
            database.execute(f"DELETE FROM namespaces WHERE rowid <= ({oldest}) - ?", (MAX_NAMESPACES,))

    def namespace_of(self, run: str) -> tuple[tuple[str, ...] | None, str]:
        """Return namespace (None) and user's digest ("") of a run, if they are known and can be read."""
        with suppress(StorageError):
            for namespace, user in self.ask("SELECT namespace, user FROM namespaces WHERE run = ?", (run,)):
                return tuple(json.loads(namespace)), user
        return None, ""

    def forget(self, user: str, *, runs: Collection[str] = (), before: float | None = None) -> int:
        """Delete jobs about a user or runs, or given up and due `before`, from the disk too; return how many."""
        asked = {"user": user, "runs": json.dumps(list(runs)), "before": before}
        with self.writing() as database:
            deleted = database.execute(f"DELETE FROM jobs WHERE {_ABOUT} OR dead = 1 AND due < :before", asked)
            database.execute(f"DELETE FROM namespaces WHERE {_ABOUT}", asked)
        self.scrub()
        return deleted.rowcount

    def _asked(self, kinds: Iterable[str], upto: int = _EVER) -> dict[str, Any]:
        return {"now": self._now(), "kinds": json.dumps(list(kinds)), "upto": upto}


Do = Callable[[Sequence[Job]], object]


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
        serves: returns True if the others leave their jobs to this process, which then looks for them.
        remote: what the jobs write to, if it may not answer: a model call waits for it no longer than its patience.
        working: counts the processor time of the jobs.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        now: Callable[[], float],
        read_only: bool = False,
        may_work: Callable[[], bool] = lambda: True,
        alone: bool = False,
        serves: Callable[[], bool] = lambda: False,
        remote: Remote | None = None,
        working: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._working = working
        self.queue = JobQueue(folder, now=now, read_only=read_only)
        self.at_poll: Callable[[], object] = lambda: None
        self._may_work, self._alone, self._serves, self._remote = may_work, alone, serves, remote
        self._handlers: dict[str, tuple[Do, Callable[[Job], str] | None, Callable[[Job], object]]] = {}
        self._gathered = threading.local()  # jobs of `together`
        self._changing = threads.rlock()  # from taking a job until it is done: nothing is forgotten meanwhile
        self._changed = threads.condition()
        self._thread: threading.Thread | None = None
        self._due = math.inf  # by time.monotonic
        self._over = threading.Event()  # no job is begun any more
        self._doing: int | None = None  # the thread that writes what jobs made
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
        do: Do,
        *,
        find: Callable[[Job], str] | None = None,
        undo: Callable[[Job], object] = lambda _: None,
    ) -> None:
        """Register how jobs of a kind are done.

        Args:
            kind: of jobs.
            do: does a batch, in milliseconds a job; if it raises, the jobs are done one by one. Twice is harmless.
            find: makes the kind slow: asks a model. Its text is the `answer` of the one job that `do` gets then.
            undo: takes back what was done for a job whose user another process forgot meanwhile.
        """
        self._handlers[kind] = do, find, undo

    def _kinds(self, *, slow: bool) -> list[str]:
        return [kind for kind, (_, find, _) in self._handlers.items() if (find is not None) is slow]

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
            ordering_key: jobs of one key are done in their order; None: those of one kind, namespace and run; "": none.
            key: a job whose key waits already is not put again; each one is a job of its own if None.

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
        self._gathered.jobs = jobs
        try:
            yield
        finally:
            self._gathered.jobs = None
            if jobs:
                self.queue.put(jobs)
                self.begin(GATHER_SECONDS)

    # --- waiting ---

    def poll(self) -> None:
        """Take up what is on disk, once in a while; cheap enough for every model call."""
        self.at_poll()
        if self.queue.folder is None or self.queue.empty:
            return
        now, last = time.monotonic(), self.queue.last
        if last > self._last or now >= self._next_poll:
            self._next_poll, self._last = now + SHARED_POLL_SECONDS, last
            self.begin()

    def settle(self, *, timeout: float = 1.0) -> bool:
        """Wait until the quick jobs that are due now are done; return True if none of them is left, else False."""
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

    def flush(self, *, timeout: float | None = FLUSH_SECONDS) -> bool:
        """Wait until nothing is left to do, also by another process; return True if all is done or was given up."""
        if self.queue.read_only or (self.queue.empty and self._doing is None):
            return True
        mine = threading.get_ident()
        done = lambda: self.queue.next_due(self._handlers) is None and self._doing in (None, mine)  # noqa: E731 - one line
        return not self._over.is_set() and self._wait(done, math.inf if timeout is None else timeout)

    def _wait(self, done: Callable[[], bool], timeout: float) -> bool:
        end = time.monotonic() + timeout
        with self._changed:
            while not done():
                if (left := end - time.monotonic()) <= 0 or not self.begin():
                    return False
                self._changed.wait(min(POLL_SECONDS, left))
        return True

    def forked(self) -> None:
        self._doing = None

    # --- forgetting ---

    def forget(self, gone: Forgotten) -> int:
        """Delete jobs about a user or runs, before rows are forgotten; what is being done for one is not written."""
        if self.queue.empty or not (gone.user or gone.runs or gone.before is not None):
            return 0
        if gone.before is None:
            # What is written meanwhile brings pieces of the process's memory into Chroma's files again.
            self.flush(timeout=BEFORE_FORGETTING)
        with self._changing:
            return self.queue.forget(gone.user, runs=gone.runs, before=gone.before)

    # --- the thread ---

    def begin(self, after: float = 0.0) -> bool:
        """Have the thread work in so many seconds; return False if there can be none."""
        if self._over.is_set():
            return False
        with self._changed:
            self._due = min(self._due, time.monotonic() + after)
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
        while True:
            with self._changed:
                while not self._over.is_set() and (left := self._due - time.monotonic()) > 0:
                    if left == math.inf:  # another thread took the work: an interrupt may leave two
                        self._end_thread()
                        return
                    self._changed.wait(min(left, IDLE_SECONDS))
                if self._over.is_set():
                    return
                self._due = math.inf
            try:
                after = self.work()
                self._failing.discard("")
            except Exception as error:  # noqa: BLE001 - the thread goes on whatever happens
                after = IDLE_SECONDS
                level = self._level("", logging.ERROR)
                log_failure(logger, level, "background writing failed, and is tried again", error=error)
            with self._changed:
                if after is not None:
                    self._due = min(self._due, time.monotonic() + min(IDLE_SECONDS, max(after, GATHER_SECONDS)))
                elif self._due == math.inf:
                    self._end_thread()
                    self._begin_watch()
                    return

    def _end_thread(self) -> None:
        if self._thread is threading.current_thread():
            self._thread = None

    def _begin_watch(self) -> None:
        """Have a thread look for jobs of other processes; it holds no memory that nobody else does."""
        watching = self._watching is not None and self._watching.is_alive()
        if self._serves() and not watching and not self._over.is_set():
            self._watching = threads.start("toolmem-watch", partial(_watch, ref(self), self._over))

    def look(self) -> bool:
        """Begin with jobs that other processes left; return False if nobody leaves any to this process."""
        if not self._serves():
            return False
        try:
            self.poll()
        except StorageError as error:
            logger.debug("the queue could not be read", exc_info=error)
        return True

    def work(self) -> float | None:
        """Do the jobs that are due; return the seconds until another one is, None if none waits."""
        if self._over.is_set() or self.queue.next_due(self._handlers) is None:
            return None
        if not self._may_work():
            return IDLE_SECONDS
        if self._alone:
            self._alone = False
            self.queue.free()
        self._do_quick()
        slow = self._kinds(slow=True)
        while slow and not self._over.is_set() and (jobs := self.queue.take(slow, lease=SLOW_LEASE)):
            slow_thread = threads.start("toolmem-slow", partial(self._try, jobs))
            while slow_thread.is_alive() and not self._stopped:
                self._do_quick()
                with self._changed:
                    self._changed.wait(POLL_SECONDS if slow_thread.is_alive() else 0)
        return None if self._over.is_set() else self.queue.next_due(self._handlers)

    def _do_quick(self) -> None:
        kinds, upto = self._kinds(slow=False), self.queue.last  # what is put from now on is gathered
        while not self._over.is_set():
            with self._changing:
                if not (jobs := self.queue.take(kinds, most=BATCH, upto=upto)):
                    return
                self._try(jobs)

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
                for job in jobs:
                    self._try([job])
        finally:
            with self._changed:
                self._changed.notify_all()

    def _do(self, jobs: list[Job]) -> None:
        do, find, undo = self._handlers[jobs[0].kind]
        answer = jobs[0].answer
        if find is not None and answer is None:
            answer = find(jobs[0])
        with self._changing:
            if answer is not None:
                if self._stopped or not self.queue.save(jobs[0], answer):
                    return  # forgotten, or done by another process
                jobs = [jobs[0]._replace(answer=answer)]
            self._doing = threading.get_ident()
            try:
                with self.together():
                    do(jobs)
                for job in self.queue.done(jobs):
                    if self.queue.namespace_of(job.run)[0] is None:  # forgotten
                        undo(job)
            finally:
                self._doing = None

    def _failed(self, job: Job, error: BaseException) -> None:
        if self._stopped:  # the end of the interpreter is no failure of the job; the next opening takes it up
            logger.debug("a %s job was not done: the interpreter ends", job.kind, exc_info=error)
            return
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(job.attempts, 20))
        try:
            if isinstance(error, NotYetError):
                if job.attempts + 1 < error.tries:
                    self.queue.retry(job, wait, str(error))
                else:
                    logger.debug("a %s job is dropped: %s", job.kind, error)
                    self.queue.done([job])
                return
            log_failure(logger, self._level(job.kind, logging.WARNING), "a %s job failed", job.kind, error=error)
            # A model's answer that cannot be read may be chance; a job on disk stays as it is.
            slow = self._handlers[job.kind][1] is not None
            dead = job.attempts + 1 >= SLOW_TRIES if slow else isinstance(error, InputError)
            self.queue.retry(job, wait, describe_error(error), dead=dead)
            if dead:
                logger.error("a %s job was given up after %d failures", job.kind, job.attempts + 1)
        except Exception as broken:  # noqa: BLE001 - the lease ends by itself
            level = logging.DEBUG if self._over.is_set() else logging.ERROR
            log_failure(logger, level, "the queue cannot be written", error=broken)

    def _level(self, what: str, level: int) -> int:
        """Return `level` at the first failure in a row, and then that of debug messages."""
        known = what in self._failing
        self._failing.add(what)
        return logging.DEBUG if known else level

    # --- ending ---

    def close(self) -> None:
        """Do what is quick and due, and end after the jobs that are being done; what is left stays in the queue."""
        if self.queue.folder is not None and self._thread is not None:
            try:
                self.settle(timeout=CLOSE_SECONDS)
            except Exception as error:  # noqa: BLE001 - closing goes on
                log_failure(logger, logging.WARNING, "what waits could not be written", error=error)
        with self._changed:
            self._over.set()
            started = (self._thread, self._watching)
            self._changed.notify_all()
        for thread in started:
            if thread is not None and thread is not threading.current_thread():
                thread.join(CLOSE_SECONDS)

    def stop(self, end: float) -> None:
        del end
        with self._changed:
            self._stopped = True
            self._over.set()
            self._changed.notify_all()


def _watch(jobs: ref[Jobs], over: threading.Event) -> None:
    while not over.wait(WATCH_SECONDS):
        watched = jobs()
        if watched is None or not watched.look():
            return
        del watched
