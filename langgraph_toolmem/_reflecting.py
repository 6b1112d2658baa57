"""Where `ToolMemory` keeps past runs with their verdict: as entries, written in the background."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem._summaries import REFRESH_SECONDS, Summaries
from langgraph_toolmem.base.errors import ConfigurationError, StorageError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.base.namespaces import has_user, resolve, user_digest
from langgraph_toolmem.core.ledger import Booking
from langgraph_toolmem.graph.evidence import AUTHOR, COMMENT, SCORE
from langgraph_toolmem.graph.operations import Count, Verdict
from langgraph_toolmem.report.report import ReflectionReport
from langgraph_toolmem.runs.trajectory import Run

if TYPE_CHECKING:
    from langgraph_toolmem.core.jobs import OtherWork, ReflectionWorker, SlowWork
    from langgraph_toolmem.entries.entry import Entry
    from langgraph_toolmem.entries.library import EntryLibrary
    from langgraph_toolmem.stores.job_queue import JobQueue

logger = logging.getLogger("langgraph_toolmem.entries")

QUEUE_FILE: Final = "reflections.db"
BOOTSTRAP_FILE: Final = "bootstrap.db"
LOOK_SECONDS: Final = 30.0
"""How often what other processes put into the queue is looked for, where this one has no use for it itself."""
CLOSE_SECONDS: Final = 5.0
"""Closing waits so long for entries to be written; what is left is written at the next opening."""
FLUSH_SECONDS: Final = 60.0


class Reflecting(Summaries):
    """Keeps entries, has failed ones criticised, and books what became of runs that were shown some.

    Chroma or the queue failing stops nobody.
    """

    @property
    def _queue(self) -> JobQueue:
        with self._lock:
            if self._made_queue is None:
                self._refuse_if_closed()
                from langgraph_toolmem.stores.job_queue import JobQueue

                self._made_queue = JobQueue(self._root, now=self._now)
            return self._made_queue

    @property
    def _library(self) -> EntryLibrary:
        with self._lock:
            if self._made_library is None:
                self._refuse_if_closed()
                from langgraph_toolmem.entries.library import EntryLibrary  # numpy: only when entries are used

                refresh = REFRESH_SECONDS if self._shared else None
                self._made_library = EntryLibrary(self._vectors, now=self._now, refresh=refresh)
            return self._made_library

    @property
    def _worker(self) -> ReflectionWorker:
        with self._lock:
            if self._made_worker is None:
                self._refuse_if_closed()
                from langgraph_toolmem.core.jobs import ReflectionWorker

                self._made_worker = ReflectionWorker(
                    self._queue,
                    self._library.store,
                    self._critic,
                    executor=self._executor,
                    on_verdict=None if self._store.read_only else self._hear,
                    other=self._other_work(),
                    slow=self._slow_work(),
                )
            return self._made_worker

    def _other_work(self) -> dict[str, OtherWork]:
        """What else is done in the background, by kind of job."""
        return {}

    def _slow_work(self) -> dict[str, SlowWork]:
        """What else asks a model in the background, by kind of job."""
        return {}

    def _refuse_if_closed(self) -> None:
        """Nothing is opened any more that nobody would close."""
        if self._closed:
            raise StorageError("The memory is closed. Make a new one to go on.")

    def _wait(self) -> None:
        self._quietly("what waits to be written cannot be waited for", partial(self.flush, timeout=FLUSH_SECONDS))

    def flush(self, *, timeout: float | None = FLUSH_SECONDS) -> bool:
        """Waits until entries and critiques of finished runs are written.

        Args:
            timeout: seconds; None: without end.

        Returns:
            Whether all is done. What was given up after many failures counts as done; ``toolmem doctor`` shows it.
        """
        return self._store.read_only or self._queue.empty or self._worker.flush(timeout=timeout)

    def broke_off(self, messages: Any, error: str, *, run_id: str | None = None, user_id: str | None = None) -> bool:
        """A run ended with an error: keeps what was done so far as an entry, without a verdict, which nobody gave.

        Reported again, it replaces itself; the run's end takes its place if the thread is resumed. Nothing is learned
        that was not learned as it happened: calls that are pending may be executed then.

        Args:
            messages: the history up to the error.
            error: its kind, not its text, which may quote somebody.
            run_id: identity of the run (a thread id).
            user_id: whose run it is.

        Returns:
            Whether there is an entry; there is none if the user said nothing, or the memory keeps none.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
            StorageError: the queue cannot be written.
        """
        if not self._keeps_entries or self._store.read_only:
            return False
        run = self._read(messages, run_id)
        self._check_user(user_id)
        return self._put_entry(run, user_id, unjudged=f"the run ended with {error}")

    def _keep_entry(self, run: Run, user_id: str | None) -> None:
        """Puts a finished run into the queue; it is on disk when this returns."""
        if not self._keeps_entries or self._store.read_only:
            return
        self._quietly("an entry could not be kept", partial(self._put_entry, run, user_id))

    def _put_entry(self, run: Run, user_id: str | None, *, unjudged: str | None = None) -> bool:
        """Puts a run into the queue, with its verdict, or else with a word on why it has none."""
        from langgraph_toolmem.entries.entry import entry_of

        name = run.digest
        with self._lock:
            verdict = self._graph.runs.get(name)
        author = None if verdict is None else verdict[AUTHOR]
        # Where nobody is named now, `forget` must find it by who was named before.
        user = user_digest(user_id) or self._graph.owner(name) or author
        if verdict is not None and author not in (None, user):
            verdict = None  # another user's run has the same id
        entry = entry_of(
            run,
            run_digest=name,
            now=self._now(),
            user=user,
            score=None if verdict is None else verdict[SCORE],
            comment=unjudged if verdict is None or verdict[SCORE] is None else verdict[COMMENT],
        )
        if entry is None:
            return False
        self._worker.write(entry, namespace=resolve(self.namespace, user_id))
        with self._lock:
            self._apply(entry_key(name), [Count("entries")])
        return True

    def _noted(self, entries: Sequence[Entry], namespace: tuple[str, ...]) -> None:
        """Entries were stored without the worker: verdicts that come later are to find them."""
        self._queue.note_places([(entry.run, entry.user) for entry in entries], namespace)
        with self._lock:
            for entry in entries:
                self._apply(entry_key(entry.run), [Count("entries")])

    def _judge_entry(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        """A verdict that comes when the run may have its entry already."""
        self._ledger.flush()
        with self._lock:
            there = self._graph.has_seen(entry_key(run))
        if self._keeps_entries and there and not self._store.read_only:
            put = partial(self._put_verdict, run, score, comment, user_id)
            self._quietly("a verdict could not be added to its entry", put)

    def _put_verdict(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        namespace = self._namespace_of(run, user_id)
        if namespace is None:
            logger.debug("a verdict is on a run of a user who is not named, and was finished elsewhere")
            return
        self._worker.judge(run, score, comment, user=self._whose(run, user_id), namespace=namespace)

    def _namespace_of(self, run: str, user_id: str | None) -> tuple[str, ...] | None:
        """Where a run's entry is; without a user id as it was noted when the run was finished."""
        if user_id or not has_user(self.namespace):
            return resolve(self.namespace, user_id)
        return self._queue.place_of(run)

    def _whose(self, run: str, user_id: str | None) -> str:
        """Digest of the user whose run it is, so that `forget` finds what is said about it; "" if that is unknown."""
        return user_digest(user_id or None) or self._queue.owner_of(run) or self._graph.owner(run) or ""

    def _hear(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        """A verdict on a run (its digest): for the graph, for summaries and for entries."""
        user_id = user_id or None
        with self._lock:
            self._verdict(run, score, comment, user_id)
        self._settle_summaries(run, user_id)
        self._judge_entry(run, score, comment, user_id)

    def _verdict(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        """Nobody named: it is by the one whose run it is, so that `forget` finds it."""
        self._store.refresh()
        text = comment[:500] if comment else None
        author = user_digest(user_id) or self._graph.owner(run)
        items = self._ledger.judged(run, score, user_id)
        self._apply(None, [Verdict(run, score, text, author), *items, *self._judged(run, score)])

    def _queue_verdict(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        """Leaves a verdict to the process that writes to the folder.

        Raises:
            ConfigurationError: there is no folder through which it could be left.
            StorageError: the queue cannot be written.
        """
        if self._root is None:
            raise ConfigurationError("A read-only memory without a folder has nowhere to leave a verdict.")
        self._worker.hand_over(run, score, comment, user_id=user_id or "", user=self._whose(run, user_id))

    def _tick(self) -> None:
        """Begins with what other processes, or a former one, left in the queue. Cheap; called at every step."""
        now = time.monotonic()
        if self._root is None or self._store.read_only or now < self._look_again:
            return
        self._look_again = now + LOOK_SECONDS
        if (self._root / QUEUE_FILE).exists():
            self._quietly("reflections could not be taken up", lambda: self._worker.start())

    def _reflections(self) -> ReflectionReport:
        """What waits in the queue; nothing where it cannot be read."""
        found: dict[str, int] = {}
        if self._made_queue is not None or (self._root is not None and (self._root / QUEUE_FILE).exists()):
            self._quietly("the queue of reflections could not be read", lambda: found.update(self._queue.report()))
        return ReflectionReport(**found)

    def _book_entries(self, booking: Booking) -> None:
        namespace = self._namespace_of(booking.run, booking.user_id)
        if namespace is not None:
            recalled, helped, hurt = booking.shown, booking.helped, booking.hurt
            self._library.store(namespace).book(booking.ids, recalled=recalled, helped=helped, hurt=hurt)

    # --- forgetting and closing ---

    def _forget_jobs(self, user_id: str) -> int:
        """Deletes what is still to be done about a user."""
        if self._made_queue is not None or (self._root is not None and (self._root / QUEUE_FILE).exists()):
            return self._worker.forget(str(user_digest(user_id)))
        return 0

    def _forget_cold_start(self, user_id: str) -> int:
        if self._root is None or not (self._root / BOOTSTRAP_FILE).exists():
            return 0
        from langgraph_toolmem.offline.coldstart.state import forget_user

        return forget_user(self._root, str(user_digest(user_id)))

    def _forget_entries(self, user_id: str) -> int:
        """Raises StorageError if something is still there."""
        if self._vectors.empty:
            return 0
        namespace = resolve(self.namespace, user_id)
        store = self._library.store(namespace)
        if has_user(self.namespace):
            removed = len(store)
            store.drop()
        else:
            removed = store.forget_user(str(user_digest(user_id)))
        store.scrub()
        self._library.leave(namespace)
        with self._finding:
            if self._past is not None:
                self._past.leave(namespace)
        return removed

    def _close_reflection(self) -> None:
        if self._made_worker is not None:
            if self._root is not None and not self._store.read_only:
                settle = partial(self._made_worker.settle, timeout=CLOSE_SECONDS, in_all=True)
                self._quietly("entries could not be written", settle)
            self._made_worker.close(timeout=CLOSE_SECONDS)
        if self._made_library is not None:
            self._quietly("the record of entries could not be written", self._made_library.close)
        if self._made_queue is not None:
            self._made_queue.close()


def entry_key(run: str) -> str:
    """The key that says that a run has its entry."""
    return digest("entry", run)
