"""The reflection worker: takes finished runs and verdicts, writes entries, has failed runs criticised.

Nothing here delays the host: `ReflectionWorker.write` and `judge` put a job on disk and return. Jobs of one run are
done in their order. For a failed entry a job of its own asks the critic; the answer is kept in the queue before the
entry is changed, so that a process that is killed in between does not ask again.

What fails is tried again, later and later. Entries and verdicts are never given up while the database is away;
critiques after `CRITIQUE_TRIES` failures, and what cannot be read at once. What was given up stays in the queue
(`JobQueue.given_up`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.failures import describe_error, log_failure
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.entries.critique import Critic, Critique
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.entries.store import EntryStore
from langgraph_toolmem.stores.executors import Executor, ThreadExecutor
from langgraph_toolmem.stores.job_queue import Job, JobQueue

logger = logging.getLogger("langgraph_toolmem.core.jobs")

WRITE, JUDGE, CRITIQUE, VERDICT = "write", "judge", "critique", "verdict"
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 600.0
"""Seconds before a failed job is tried again: doubled from the first to the longest."""
CRITIQUE_TRIES: Final = 6
JUDGE_TRIES: Final = 8
"""A verdict on a run that has no entry waits for it so often: about two minutes."""
SIMILAR: Final = 3
LOOK_SECONDS: Final = 0.25
"""How often `ReflectionWorker.flush` looks for what other processes finished."""

OnVerdict = Callable[[str, float, str, str], None]
"""Takes a verdict on a run: digest of the run, score, comment, user id ("" if nobody is named)."""

Stores = Callable[[tuple[str, ...]], EntryStore]
"""The entries of a namespace."""

OtherWork = Callable[[Job], Callable[[], object]]
"""Does a job of another kind; returns what takes back what it did."""

SlowWork = tuple[Callable[[Job], str], Callable[[Job, str], object]]
"""Finds an answer for a job of another kind, which may take a model's time, and puts it to use."""


class ReflectionWorker:
    """Writes entries and critiques in the background. Safe to use from several threads.

    Args:
        queue: the jobs. It stays open when this is closed.
        store: the entries, or a function that gives those of a namespace; called in the background.
        critic: makes critiques, for example a `ModelCritic`. None: there are none, and jobs for them that are there
            already wait for a process that has one.
        similar: the entries to show the critic beside one; by default those with the most similar request.
        executor: when the work is done; by default in a thread of its own.
        on_verdict: takes verdicts that `hand_over` left in the queue. None: they wait for a process that has one.
        other: what else is done, by kind of job (`put`); as quick as writing an entry.
        slow: what else takes a model's time, as critiques do: beside the others, asked once, given up after
            `CRITIQUE_TRIES` failures.

    It begins with the first job; `start` begins with what a former process left.
    """

    def __init__(
        self,
        queue: JobQueue,
        store: EntryStore | Stores,
        critic: Critic | None = None,
        *,
        similar: Callable[[EntryStore, Entry], Sequence[Entry]] | None = None,
        executor: Executor | None = None,
        on_verdict: OnVerdict | None = None,
        other: Mapping[str, OtherWork] | None = None,
        slow: Mapping[str, SlowWork] | None = None,
    ) -> None:
        self._queue = queue
        self._store: Stores = (lambda _: store) if isinstance(store, EntryStore) else store
        self._critic = critic
        self._similar = similar or _most_similar
        self._executor: Executor = executor or ThreadExecutor()
        self._on_verdict = on_verdict
        self._other, self._slow = dict(other or {}), dict(slow or {})
        self._quick = (*(() if on_verdict is None else (VERDICT,)), WRITE, JUDGE, *self._other)
        self._kinds = (*self._quick, *(() if critic is None else (CRITIQUE,)), *self._slow)
        self._working = threading.Lock()  # one at a time in this process
        self._changing = threading.RLock()  # over looking whether a job was forgotten, and changing the entry
        self._finished = threading.Condition()
        self._closed = False
        self._failing: set[str] = set()  # kinds of jobs of which the last one failed

    def __enter__(self) -> ReflectionWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Begins with what is in the queue, if anything is."""
        if not self._closed and not self._queue.empty:
            self._executor.start(self.work)

    def write(self, entry: Entry, *, namespace: tuple[str, ...] = ()) -> None:
        """The entry of a finished run. It is safe on disk when this returns, and found a little later.

        Args:
            entry: see `entry_of`.
            namespace: of the store it belongs in.

        Raises:
            StorageError: the queue cannot be written.
        """
        payload = {"namespace": list(namespace), "entry": entry.to_dict()}
        self._put(payload, WRITE, entry.run, entry.user, namespace, placed=True)

    def judge(
        self, run: str, score: float, comment: str | None = None, *, user: str = "", namespace: tuple[str, ...] = ()
    ) -> None:
        """A verdict that comes later. Safe on disk when this returns.

        Args:
            run: digest of the run.
            score: 0 (bad) to 1 (good).
            comment: a word on it.
            user: digest of the user whose run it is; see `EntryStore.judge`.
            namespace: of the store the entry is in.

        Raises:
            InputError: the score is out of range.
            StorageError: the queue cannot be written.
        """
        if not 0 <= score <= 1:
            raise InputError(f"A score is from 0 (bad) to 1 (good), not {score!r}.")
        payload = {"namespace": list(namespace), "run": run, "score": float(score), "comment": comment or ""}
        self._put(payload, JUDGE, run, user, namespace)

    def put(
        self,
        kind: str,
        payload: Mapping[str, Any],
        *,
        run: str,
        user: str,
        namespace: tuple[str, ...],
        placed: bool = False,
    ) -> None:
        """A job of another kind about a run; those of one kind and run are done in their order.

        Args:
            kind: among the keys of `other` or `slow`.
            payload: JSON values; ``run`` and ``namespace`` are added.
            run: digest of the run.
            user: digest of the user whose run it is, or "".
            namespace: of the store it is about.
            placed: the run is noted for `JobQueue.place_of`.

        Raises:
            StorageError: the queue cannot be written.
        """
        whole = {**payload, "namespace": list(namespace), "run": run}
        self._put(whole, kind, run, user, namespace, placed=placed, line=digest(kind, *namespace, run))

    def hand_over(
        self, run: str, score: float, comment: str | None = None, *, user_id: str = "", user: str = ""
    ) -> None:
        """A verdict for another process to take in: the one that writes to the folder. Safe on disk when this returns.

        Args:
            run: digest of the run.
            score: 0 (bad) to 1 (good).
            comment: a word on it.
            user_id: whose run it is, if that is known.
            user: digest of `user_id`.

        Raises:
            StorageError: the queue cannot be written.
        """
        payload = {"run": run, "score": float(score), "comment": comment or "", "user_id": user_id}
        self._queue.put(uuid.uuid4().hex, payload, kind=VERDICT, line=digest(run), user=user)

    async def awrite(self, entry: Entry, *, namespace: tuple[str, ...] = ()) -> None:
        """Async twin of `write`."""
        await asyncio.to_thread(self.write, entry, namespace=namespace)

    async def ajudge(
        self, run: str, score: float, comment: str | None = None, *, user: str = "", namespace: tuple[str, ...] = ()
    ) -> None:
        """Async twin of `judge`."""
        await asyncio.to_thread(self.judge, run, score, comment, user=user, namespace=namespace)

    def settle(self, *, timeout: float = 1.0, in_all: bool = False) -> bool:
        """Writes here and now what is due, critiques left aside, so that it is found.

        Args:
            timeout: seconds to wait for what another thread or process is doing already.
            in_all: begin nothing more after these seconds.

        Returns:
            Whether nothing that is due is left of what was there when this was called.
        """
        end = time.monotonic() + timeout
        todo = self._queue.pending(self._quick)  # where others go on putting, there is no end to wait for
        while todo and not self._closed and self._queue.pending(self._quick):
            if in_all and time.monotonic() >= end:
                return False
            if (job := self._queue.take(self._quick)) is not None:
                todo -= 1
                self._finish(job)
            elif not self._queue.lent(self._quick):
                break
            elif (left := end - time.monotonic()) <= 0:
                return False
            else:
                with self._finished:
                    self._finished.wait(min(0.02, left))
        return True

    def catch_up(self, *, namespace: tuple[str, ...] = ()) -> int:
        """Has failed entries criticised that have no critique, from before there was a critic; returns how many."""
        if self._critic is None:
            return 0
        wanting = [entry for entry in self._store(namespace).all() if entry.wants_critique]
        asked = sum(self._ask_for_critique(entry, namespace) for entry in wanting)
        if asked:
            self._executor.start(self.work)
            self._executor.wake()
        return asked

    def flush(self, *, timeout: float | None = 60.0) -> bool:
        """Waits until nothing is left to do; what failed is waited for as long as it is tried again.

        Args:
            timeout: seconds; None: without end.

        Returns:
            Whether all is done. What was given up counts as done.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        self.start()
        self._executor.wake()
        while self._queue.pending(self._kinds):
            left = end - time.monotonic()
            if self._closed or left <= 0:
                return False
            with self._finished:
                self._finished.wait(min(LOOK_SECONDS, left))
        return True

    async def aflush(self, *, timeout: float | None = 60.0) -> bool:
        """Async twin of `flush`."""
        return await asyncio.to_thread(self.flush, timeout=timeout)

    def forget(self, user: str) -> int:
        """Deletes jobs about a user (digest) for good. What is being done for one of them is not written any more.

        To be called before the entries are forgotten.

        Returns:
            How many jobs.
        """
        with self._changing:
            return self._queue.forget(user)

    def report(self) -> dict[str, int]:
        """See `JobQueue.report`."""
        return self._queue.report()

    def close(self, *, timeout: float | None = 5.0) -> None:
        """Ends after the job that is being done, or after `timeout` seconds; what is left stays in the queue."""
        self._closed = True
        with self._finished:
            self._finished.notify_all()
        self._executor.close(timeout)

    def work(self) -> float | None:
        """Does all that is due, here and now; for executors.

        Returns:
            Seconds until something is due again; None if nothing waits.
        """
        with self._working:
            while True:
                self._work_off()
                if self._closed or (job := self._queue.take(self._kinds)) is None:
                    break
                # A critique takes a model's time, or never ends: entries do not stand in line behind it.
                beside = threading.Thread(target=self._finish, args=(job,), name="toolmem-critique", daemon=True)
                beside.start()
                while beside.is_alive():
                    self._work_off()
                    with self._finished:
                        self._finished.wait(LOOK_SECONDS if beside.is_alive() else 0)
            return None if self._closed else self._queue.next_due(self._kinds)

    def _work_off(self) -> None:
        """Does all that is due but critiques."""
        while not self._closed and (job := self._queue.take(self._quick)) is not None:
            self._finish(job)

    def _finish(self, job: Job) -> None:
        try:
            self._do(job)
        finally:
            with self._finished:
                self._finished.notify_all()

    def _put(
        self,
        payload: dict[str, Any],
        kind: str,
        run: str,
        user: str,
        namespace: tuple[str, ...],
        *,
        placed: bool = False,
        line: str = "",
    ) -> None:
        # Each report is a job of its own: good, bad and good again is not the same as good and bad.
        place = (run, namespace) if placed else None
        line = line or digest(*namespace, run)
        self._queue.put(uuid.uuid4().hex, payload, kind=kind, line=line, user=user, place=place)
        try:
            if not self._closed:
                self._executor.start(self.work)
                self._executor.wake(run)
                with self._finished:
                    self._finished.notify_all()  # who waits for a critique has something to do meanwhile
        except Exception as error:  # noqa: BLE001 - no thread to be had: it is on disk, and the next one begins it
            log_failure(logger, logging.WARNING, "background writing could not begin", error=error)

    def _do(self, job: Job) -> None:
        try:
            own = {WRITE: self._write, JUDGE: self._judge, CRITIQUE: self._criticise, VERDICT: self._take_in}
            own.get(job.kind, self._do_other)(job)
            self._failing.discard(job.kind)
        except BaseException as error:
            lasting = isinstance(error, InputError)  # of a critic it may be chance, of a job on disk it stays
            asks = job.kind == CRITIQUE or job.kind in self._slow
            self._later(job, error, CRITIQUE_TRIES if asks else 1 if lasting else None)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise

    def _write(self, job: Job) -> None:
        entry, namespace = Entry.from_dict(job.payload["entry"]), tuple(job.payload["namespace"])
        store = self._store(namespace)
        with self._changing:
            forgettings = self._queue.forgettings
            if not self._queue.holds(job):
                return  # forgotten, or somebody else does it
            kept = store.put(entry)
            if not self._queue.holds(job) and self._queue.forgettings != forgettings:
                store.forget_run(entry.run)  # another process forgot the user in between
                return
            if kept is not None:
                self._ask_for_critique(kept, namespace)
        self._queue.done(job)

    def _judge(self, job: Job) -> None:
        payload = job.payload
        run, namespace = payload["run"], tuple(payload["namespace"])
        with self._changing:
            if not self._queue.holds(job):
                return
            kept = self._store(namespace).judge(run, payload["score"], payload["comment"], user=job.user)
            if kept is not None:
                self._ask_for_critique(kept, namespace)
        if kept is not None:
            self._queue.done(job)
        elif job.attempts + 1 < JUDGE_TRIES:
            self._queue.retry(job, _wait(job.attempts), error="no entry of that run")
        else:
            logger.debug("a verdict on a run that has no entry is dropped")
            self._queue.done(job)

    def _do_other(self, job: Job) -> None:
        if job.kind in self._slow:
            self._do_slow(job)
            return
        with self._changing:
            forgettings = self._queue.forgettings
            if not self._queue.holds(job):
                return
            undo = self._other[job.kind](job)
            if not self._queue.holds(job) and self._queue.forgettings != forgettings:
                undo()  # another process forgot the user in between
                return
        self._queue.done(job)

    def _do_slow(self, job: Job) -> None:
        find, use = self._slow[job.kind]
        answer = job.answer
        if answer is None:
            answer = find(job)
            if not self._queue.save(job, answer):
                return
        with self._changing:
            if self._queue.holds(job):
                use(job, answer)
                self._queue.done(job)

    def _take_in(self, job: Job) -> None:
        payload = job.payload
        with self._changing:
            if self._on_verdict is not None and self._queue.holds(job):
                self._on_verdict(payload["run"], payload["score"], payload["comment"], payload["user_id"])
                self._queue.done(job)

    def _criticise(self, job: Job) -> None:
        payload = job.payload
        store = self._store(tuple(payload["namespace"]))
        entry = store.get(payload["entry"])
        if self._critic is None or entry is None or not entry.wants_critique or entry.verdict != payload["verdict"]:
            self._queue.done(job)
            return
        answer = job.answer
        if answer is None:
            answer = self._critic(entry, self._similar(store, entry)).model_dump_json()
            if not self._queue.save(job, answer):
                return
        found = Critique.model_validate_json(answer)
        with self._changing:
            if self._queue.holds(job):
                store.set_critique(entry.id, found.text(entry), of=payload["verdict"], blamed=found.blamed(entry))
                self._queue.done(job)

    def _ask_for_critique(self, entry: Entry, namespace: tuple[str, ...]) -> bool:
        if self._critic is None or not entry.wants_critique:
            return False
        payload = {"namespace": list(namespace), "entry": entry.id, "verdict": entry.verdict}
        key = digest(CRITIQUE, *namespace, entry.id, entry.verdict)
        return self._queue.put(key, payload, kind=CRITIQUE, user=entry.user)

    def _later(self, job: Job, error: BaseException, limit: int | None) -> None:
        level = logging.DEBUG if job.kind in self._failing else logging.WARNING
        self._failing.add(job.kind)
        log_failure(logger, level, "a %s job failed", job.kind, error=error)
        try:
            self._queue.retry(job, _wait(job.attempts), limit=limit, error=describe_error(error))
            if limit is not None and job.attempts + 1 >= limit:
                logger.error("a %s job was given up after %d failures", job.kind, job.attempts + 1)
        except Exception as broken:  # noqa: BLE001 - the lease ends by itself
            level = logging.DEBUG if self._closed else logging.ERROR
            log_failure(logger, level, "the queue cannot be written", error=broken)


def _wait(attempts: int) -> float:
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempts, 20))


def _most_similar(store: EntryStore, entry: Entry) -> list[Entry]:
    return [each for _, each in store.near(entry.query, k=SIMILAR, but=entry.id)]
