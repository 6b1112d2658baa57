"""The core: it reads messages and keeps evidence, rows, jobs, users and tools, independent of the methods.

`Core` has everything that methods share. It is an `Evidence`: the graph with its lock, its log and its users. `Costs`
are the time that model calls take, and the processor time that the memory adds to a run.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.caches import KeptTexts
from langgraph_toolmem.base.checks import constants_given, fields_given
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError, StorageError, log_failure
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.base.threads import SharedByCopies
from langgraph_toolmem.core.catalogue import Catalogue, Declarations, without_own
from langgraph_toolmem.core.jobs import Job, Jobs
from langgraph_toolmem.core.ledger import Ledger, LedgerTable
from langgraph_toolmem.core.lifecycle import Episodes, Lifecycle
from langgraph_toolmem.core.method import Method, PastRuns, Section
from langgraph_toolmem.core.open_calls import OpenCall, OpenCalls
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.core.trials import HintTrials, Holdout, TrialTable
from langgraph_toolmem.core.users import Ages, User, Users, check_namespace, keep_namespace
from langgraph_toolmem.graph.events import HOUR, Count, Forgotten, Record
from langgraph_toolmem.graph.state import Folds, RunState
from langgraph_toolmem.graph.tool_graph import Table
from langgraph_toolmem.runs.run import Run, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, read_tools
from langgraph_toolmem.runs.trajectory import ExecutionLog
from langgraph_toolmem.stores.events import EventStore, Fallback, Fsync, fallback_given
from langgraph_toolmem.stores.indexed import IndexedVectors
from langgraph_toolmem.stores.shared import SharedLog
from langgraph_toolmem.stores.vectors import VectorStore
from langgraph_toolmem.text.embedders import Embedder, resolve_embedder

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langgraph.store.base import BaseStore

    from langgraph_toolmem.graph.cases import Neighbour


T = TypeVar("T")
P = ParamSpec("P")
TableT = TypeVar("TableT", bound=Table)

logger = logging.getLogger("langgraph_toolmem.memory")

INDEX: Final = "index"
"""Kind of the jobs that leave an index of Chroma to the process that writes it."""
FORGET_ROWS: Final = "forget rows"
"""Kind of the jobs that forget rows after another machine forgot their user or runs."""
DEFAULT_NAMESPACE: Final = ("toolmem",)


class Evidence(SharedByCopies):
    """The evidence graph with its lock, its persistence and its users. Safe to use from several threads.

    Attributes:
        graph: to be read under `lock`.
        closed: True after closing: stores must not be opened again.
    """

    def __init__(self, store: EventStore, users: Users, *, now: Callable[[], float], read_only: bool) -> None:
        self.lock = store.lock
        self.store = store
        self.users = users
        self.now = now
        self.read_only = read_only
        self.graph = store.graph
        self.shared_log: SharedLog | None = None
        self.closed = False
        self._warned: set[str] = set()

    def register(self, kind: type[TableT]) -> TableT:
        with self.lock:
            return self.store.register(kind)

    def apply(self, key: str | None, record: Record, *, user: str | None = None, run: str = "") -> bool:
        """Store the events of a run and apply them to the graph, once for each key. The caller must hold the lock."""
        new = self.store.append(key, record, user=user or "", run=run)
        if self.shared_log is not None and not self.read_only:
            self.shared_log.learned()
        return new

    def refresh(self, *, at_once: bool = False) -> None:
        """Apply the events of other processes and workers; `at_once` waits for a shared store. Not under the lock."""
        if self.shared_log is not None:
            self.shared_log.poll(at_once=at_once)
        with self.lock:
            self.store.refresh()

    def acknowledge(self) -> None:
        """Wait briefly until a shared store has the learned events, if only the store outlives the process."""
        if self.shared_log is not None:
            self.shared_log.acknowledge()

    def hour(self) -> int:
        return int(self.now() // HOUR)

    def log_and_continue(self, what: str, do: Callable[P, T], *args: P.args, **options: P.kwargs) -> T | None:
        """Return the result of a function whose errors must not stop the caller; log each failure once."""
        try:
            return do(*args, **options)
        except Exception as error:  # noqa: BLE001 - whatever it is, learning and the host go on
            self.log_failure_and_continue(what, error)
            return None

    def log_failure_and_continue(self, what: str, error: Exception) -> None:
        """Log an error that must not stop the caller: a repeated one, or a missing user id, as a debug message."""
        # A missing user id is reported with the problems of the memory; a log line for each call would bury others.
        level = logging.DEBUG
        if not isinstance(error, NamespaceError) and what not in self._warned:
            self._warned.add(what)
            level = logging.WARNING
        log_failure(logger, level, what, error=error)

    def refuse_if_closed(self) -> None:
        """Check that the memory is open.

        Raises:
            StorageError: it was closed.
        """
        if self.closed:
            raise StorageError("The memory is closed. Open it again with a new ToolMemory.")

    def refuse_if_read_only(self) -> None:
        """Check that the memory may write.

        Raises:
            StorageError: it only reads.
        """
        if self.read_only:
            raise StorageError(
                "This memory was opened with read_only=True. Do this with the memory that writes to the folder."
            )

    # --- counting ---

    def has_seen(self, key: str) -> bool:
        with self.lock:
            return self.graph.has_seen(key)

    def count(self, counter: str, amount: float = 1) -> None:
        with self.lock:
            self.apply(None, [Count(counter, amount)])

    def count_once(self, key: str, counter: str) -> None:
        """Add one to a counter, once for each key."""
        with self.lock:
            self.apply(key, [Count(counter, 1)])

    def counter(self, name: str) -> int:
        with self.lock:
            return int(self.graph.counters.get(name, 0))

    # --- runs and their users ---

    def weight_of(self, run: str) -> float:
        """Return the weight of a run's feedback, from 0 to 1; 0 without feedback."""
        with self.lock:
            feedback = self.graph.verdict(run)
        if feedback is None:
            return 0.0
        return feedback.weight

    def feedback_of(self, run: str, user: str | None) -> RunFeedback:
        """Return the feedback on a run, unless another user's run with the same id was scored."""
        with self.lock:
            feedback = self.graph.verdict(run)
        if feedback is None or feedback.user not in (None, user):
            return RunFeedback(None, None)
        return RunFeedback(feedback.score, feedback.comment)

    def known_owner(self, run: str) -> str:
        """Return the digest of a run's user, or of the author of its feedback; "" if both are unknown."""
        with self.lock:
            record = self.graph.runs.get(run)
            if record is None:
                return ""
            return record.owner or record.author or ""

    def close_store(self) -> None:
        """Send waiting events to a shared store, write a snapshot, and release the folder."""
        if self.shared_log is not None:
            self.shared_log.close()
        self.store.close()

    def forget(self, gone: Forgotten) -> int:
        """Remove a user, or runs, from graph and disk; return the number of items. Raise StorageError if data is
        left.
        """
        self.refresh(at_once=True)
        with self.lock:
            removed = self.store.forget(gone)
            # Under the same lock: the worker must not send events that were just deleted.
            if self.shared_log is not None:
                self.shared_log.worker.withdraw(gone)
        # Without the lock: erasing rewrites files, and readers do not need to wait for it.
        self.store.erase()
        if self.shared_log is not None:
            removed += self.shared_log.forget(gone)
        return removed


def no_past_runs(_: User) -> PastRuns | None:
    """Return None: finished runs are not kept."""
    return None


class RunFeedback(NamedTuple):
    """The score of a run, from 0 (bad) to 1 (good), and a comment; None without feedback."""

    score: float | None
    comment: str | None


class Ending(NamedTuple):
    """Similar past requests with the same calls: those that ended here, all of them, and the share by similarity."""

    ended: int
    past: int
    share: float


def _ending_of(neighbours: Iterable[Neighbour]) -> Ending:
    """Count the past requests that ended after the same calls, among those that are similar at all."""
    past, ended = 0, 0
    similarity, similarity_of_ended = 0.0, 0.0
    for neighbour in neighbours:
        if neighbour.similarity <= 0:
            continue
        past += 1
        similarity += neighbour.similarity
        if neighbour.tool is None:
            ended += 1
            similarity_of_ended += neighbour.similarity
    doubt = 0.15  # sum of similarities: few and weak examples prove little
    return Ending(ended, past, similarity_of_ended / (similarity + doubt))


class Core(Evidence):
    """The pieces of a memory; see `ToolMemory` for the arguments.

    Attributes:
        folder: of the memory; None if it is in RAM only.
        home: folder of the evidence graph and its derivatives: the memory's folder or one in it; None in RAM.
        texts: the texts that are kept in RAM.
        past_runs: returns the finished runs of a user; a method that keeps them sets it.
        listeners: the methods, in their order.
        constants: parameters ("tool.parameter") whose values need no provenance.
        private: fields of the run's context that are not read.
        events: True if steps write custom stream events.
        costs: seconds of model calls and of the memory's own work.
    """

    def __init__(
        self,
        path: str | Path | None,
        listeners: Sequence[Method],
        *,
        tools: Iterable[ToolLike] | None,
        reads: Iterable[str],
        constants: Iterable[str],
        private: Iterable[str],
        embeddings: Embeddings | str | None,
        chroma: Any | None,
        store: BaseStore | None,
        namespace: tuple[str, ...],
        graph_namespace: tuple[str, ...],
        fsync: Fsync,
        fallback: Fallback,
        read_only: bool,
        now: Callable[[], float],
        holdout: float,
        withhold: float,
        events: bool,
        ages: bool,
    ) -> None:
        self.events = _events_given(events)
        users = Users(check_namespace(namespace, name="namespace", user_allowed=True))
        self.graph_namespace = check_namespace(graph_namespace, name="graph_namespace", user_allowed=False)
        specs = _specs_given(tools)
        declarations = Declarations(reads)
        self.constants = constants_given(constants)
        self.private = fields_given("ToolMemory(private=...)", private)
        embedder = resolve_embedder(embeddings)
        self.folder = _folder_given(path)
        self.home = _home_of(self.folder, self.graph_namespace)
        self.listeners = tuple(listeners)
        log_folder = self.home
        # A memory that only reads a shared store would read an outdated log.
        if store is not None and read_only:
            log_folder = None
        log = EventStore(
            log_folder,
            lock=threads.rlock(),
            tables=_tables_of(self.listeners),
            fsync=fsync,
            fallback=fallback_given(fallback),
            read_only=read_only,
            shared=store is not None,
        )
        super().__init__(log, users, now=now, read_only=read_only)
        self._keep_namespace()
        self.vectors = self._open_vectors(embedder, chroma)
        self.costs = Costs(self._write_costs)
        self.jobs = self._open_jobs()
        self.texts = KeptTexts()
        if store is not None:
            self.shared_log = SharedLog(
                store, self.graph_namespace, self.store, now=now, forgotten=self._leave_forgetting
            )
        self.episodes = self.register(Episodes)
        self.ages: Ages | None = None
        if ages:
            self.ages = self.register(Ages)
        self.holdout = Holdout(self, holdout)
        self.trials = HintTrials(self, withhold)
        self.executions = ExecutionLog(self.episodes.of)
        # Two caches of states: a model call may see more turns than are learned.
        self._states = Folds()
        learned = Folds()
        self.ledger = Ledger(self)
        self.past_runs: Callable[[User], PastRuns | None] = no_past_runs
        describe: Callable[[Record], object] | None = None
        if not read_only:
            describe = self._describe_tools
        self.catalogue = Catalogue(self.graph, specs, declarations=declarations, describe=describe, lock=self.lock)
        self.lifecycle = Lifecycle(self, learned)
        self.open_calls = OpenCalls(self._learn_answer)
        self._register_texts(learned)
        if self.folder is not None or store is not None:
            threads.at_fork(self)

    def _keep_namespace(self) -> None:
        """Keep a namespace that is not the default one in the folder, where the command line finds it."""
        namespace = self.users.namespace
        if self.folder is not None and not self.read_only and namespace != DEFAULT_NAMESPACE:
            self.log_and_continue("the namespace is not kept in the folder", keep_namespace, self.folder, namespace)

    def _open_jobs(self) -> Jobs:
        chroma = self.vectors.chroma
        jobs = Jobs(
            self.folder,
            now=self.now,
            working=self._count_background_work,
            read_only=self.read_only,
            remote=chroma.remote,
            may_work=chroma.may_write,
            take_over=chroma.take_over,
            serves=chroma.is_writing,
            problems=self.store.problems,  # they share a file
        )
        # One process writes to Chroma's files; the others leave it jobs.
        if isinstance(self.vectors, IndexedVectors) and not self.read_only:
            jobs.handle(INDEX, self._catch_up)
            jobs.handle(FORGET_ROWS, self._forget_rows)
        return jobs

    def _register_texts(self, learned: Folds) -> None:
        """Have the texts in RAM dropped when a user is forgotten, in this process or in another one."""
        for forget in (
            self.vectors.forget_rows,
            self.executions.forget,
            self._states.forget,
            learned.forget,
            self.open_calls.forget,
        ):
            self.texts.register(forget)
        # Other processes forget too: then events record it, or are missing.
        self.episodes.at_forgetting.append(self.texts.forget)
        self.store.at_reload.append(self.texts.forget)

    def _open_vectors(self, embedder: Embedder, chroma: Any | None) -> VectorStore:
        if chroma is not None:
            return VectorStore(
                self.folder,
                client=chroma,
                embedder=embedder,
                namespace=self.graph_namespace,
                read_only=self.read_only,
            )
        return IndexedVectors(
            self.folder,
            at_behind=self._leave_index_job,
            embedder=embedder,
            namespace=self.graph_namespace,
            read_only=self.read_only,
        )

    def _count_background_work(self) -> AbstractContextManager[None]:
        return self.costs.working(CPU_BEHIND)

    def _describe_tools(self, record: Record) -> None:
        self.apply(None, record)

    def close(self) -> None:
        """See `ToolMemory.close`."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
        # The last pushed is closed first; an interrupt closes all of them too.
        with ExitStack() as last:

            def close_then(what: str, close: Callable[[], object]) -> None:
                last.callback(self.log_and_continue, f"{what} could not be closed", close)

            close_then("Chroma", self.vectors.close)
            close_then("the evidence graph", self.close_store)
            close_then("the queue", self.jobs.queue.close)
            for listener in reversed(self.listeners):
                close_then(listener.name, listener.close)
            close_then("seconds of model calls", self.costs.flush)
            close_then("background work", self.jobs.close)  # without the lock: its thread may be about to take it
            close_then("open model calls", self.open_calls.close)

    def forked(self) -> None:
        """Continue in a forked child: events are its own; Chroma and the background are the parent's."""
        self.store.forked()
        self.jobs.forked()
        self.costs.forked()

    def _learn_answer(self, call: OpenCall) -> None:
        """Learn an answer that the host's state never showed."""
        self.lifecycle.observe(call.history.plus(call.answer), call.owner.named)

    def _write_costs(self, record: Record) -> None:
        """Store counts of seconds, unless the memory is closed."""
        if self.read_only or self.store.closed:
            return
        with self.lock:
            self.apply(None, record)

    def know(self, run: Run) -> None:
        """Record the episodes of a thread before its turns are learned, so that feedback finds them."""
        with self.lock:
            if self.read_only:
                return
            new = self.episodes.new(run, len(run.events))
            if new:
                self.apply(None, new, run=run.digest)

    def read(self, messages: Any, thread_id: str | None = None) -> Run:
        """Read messages into a run, with calls as recorders saw them executed; raise MessageError if they are not
        messages.
        """
        return self.executions.read(messages, thread_id)

    def state_of(self, run: Run, tools: Mapping[str, ToolSpec] | None = None) -> RunState:
        """Return a run's state, given the available tools. Only events that are new in the thread are folded."""
        names = self.catalogue.records(tools)

        def read(event: UserMessage | Turn) -> UserMessage | Turn:
            return self.lifecycle.asked.names(event, names).read(event)

        return self._states.of(run, read)

    def ending(self, state: RunState) -> Ending | None:
        """Return how many similar past requests ended after the same calls; None unless the work seems done."""
        if not state.since_user or state.since_user[-1].status != "ok":
            return None
        with self.lock:
            ending = _ending_of(self.graph.cases.near(state, k=8))
        if ending.past < 3 or ending.share < 0.8:
            return None
        return ending

    def held_out(self, messages: Any, thread_id: str | None = None) -> bool:
        """Return True if the last episode of a history is held out; False on any error."""

        def begins() -> bool:
            return self.holdout.begins(self.read(messages, thread_id))

        if not self.holdout.on:
            return False
        return bool(self.log_and_continue("could not read whether an episode is held out", begins))

    def rows(self, kind: RowKind[T]) -> Rows[T]:
        """Return the rows of a kind, of the method of its name, without reading them."""
        return Rows(kind, self.vectors, self.ledger, users=self.users, now=self.now)

    def _leave_index_job(self, collection: str) -> None:
        """Have the process that writes to Chroma update an index from its rows."""
        if not self.read_only:
            self.log_and_continue(
                "no job for the index of Chroma could be put into the queue",
                self.jobs.put,
                INDEX,
                {"collection": collection},
                key=f"{INDEX} {collection}",
                ordering_key="",
            )

    def _leave_forgetting(self, gone: Forgotten) -> None:
        """Have the rows of this folder forgotten that another machine's memory forgot: rows do not travel."""
        if isinstance(self.vectors, IndexedVectors) and not (self.read_only or self.vectors.empty):
            runs = sorted(gone.runs)
            key = f"{FORGET_ROWS} {digest(gone.user, *runs)}"
            self.jobs.put(FORGET_ROWS, {"user": gone.user, "runs": runs}, key=key, ordering_key="")

    def _forget_rows(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            gone = Forgotten(job.payload["user"], frozenset(job.payload["runs"]))
            # Jobs first: a waiting job would write the rows again.
            self.jobs.queue.forget(gone.user, runs=gone.runs)
            for namespace in self._namespaces_of(gone):
                for listener in self.listeners:
                    listener.forget(User(None, gone.user or None, namespace), gone)

    def _namespaces_of(self, gone: Forgotten) -> list[tuple[str, ...]]:
        """Return the namespaces of this folder's rows that belong to a user or to runs."""
        assert isinstance(self.vectors, IndexedVectors)
        owners: Iterable[str] = gone.runs
        if gone.user:
            owners = [gone.user]
        namespaces: set[tuple[str, ...]] = set()
        for owner in owners:
            namespaces.update(self.vectors.table.namespaces_of(owner))
        return sorted(namespaces)

    def _catch_up(self, jobs: Sequence[Job]) -> None:
        assert isinstance(self.vectors, IndexedVectors)
        for job in jobs:
            self.vectors.catch_up(job.payload["collection"])

    def problems(self) -> list[str]:
        """Return the problems of storage and of settings, one sentence each."""
        with self.lock:
            problems = list(self.store.problems)
            if self.shared_log is not None:
                problems += self.shared_log.waiting()
            problems += self.vectors.chroma.problems
        remote = self.vectors.chroma.remote
        if remote is not None:
            problems += remote.problems()
        problems += self.users.problems()
        for listener in self.listeners:
            problems += self.log_and_continue(f"{listener.name} could not report problems", listener.problems) or []
        problems += self.log_and_continue("could not read the job queue", self.jobs.queue.troubles) or []
        return problems

    def section_of(self, listener: Method) -> Section | None:
        """Return a method's part of the report; None if it has none, or fails."""
        return self.log_and_continue(f"{listener.name} could not report", listener.report)

    def owner_of(self, run: str, user: str | None = None) -> str:
        """Return the digest of a run's user, `user` if given, so that `forget` finds the run; "" if it is unknown."""
        return user or self.jobs.queue.namespace_of(run).user or self.known_owner(run)

    def namespace_of(self, run: str, user_id: str | None) -> tuple[str, ...] | None:
        """Return the namespace of a run; without a user id the one noted when the run was finished here, or None."""
        if user_id or not self.users.apart:
            return self.users.of(user_id).namespace
        return self.jobs.queue.namespace_of(run).namespace


def _folder_given(path: str | Path | None) -> Path | None:
    if path is None:
        return None
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(f"ToolMemory({str(path)!r}): {error}. Give a folder that exists.") from error


def _events_given(events: bool) -> bool:
    if not isinstance(events, bool):
        raise ConfigurationError(f"`events` must be True or False, got {events!r}.")
    return events


def _specs_given(tools: Iterable[ToolLike] | None) -> dict[str, ToolSpec] | None:
    if tools is None:
        return None
    return without_own(read_tools(tools))


def _home_of(folder: Path | None, graph_namespace: tuple[str, ...]) -> Path | None:
    """Return the folder of the evidence graph: one in the memory's folder for each other `graph_namespace`."""
    if folder is None or graph_namespace == DEFAULT_NAMESPACE:
        return folder
    return folder / f"graph-{digest(*graph_namespace)}"


def _tables_of(listeners: Iterable[Method]) -> list[type[Table]]:
    tables: list[type[Table]] = [LedgerTable, Episodes, TrialTable]
    for listener in listeners:
        tables += listener.tables
    return tables


CALL_SECONDS: Final = "model_seconds_calls"
"""Seconds of the model calls whose answer asked for tools; `TIMED_CALLS` is their number."""
TIMED_CALLS: Final = "timed_calls"
WORD_SECONDS: Final = "model_seconds_words"
"""Seconds of the model calls that were answered with text; `TIMED_WORDS` is their number."""
TIMED_WORDS: Final = "timed_words"
CPU_SECONDS: Final = "cpu_seconds"
"""Processor seconds of the memory while a run waits for it."""
CPU_BEHIND: Final = "cpu_seconds_behind"
"""Processor seconds of the memory's work in the background."""
MOST_PENDING: Final = 32
"""Additions after which the sums are written."""


class Costs(SharedByCopies):
    """Sums of seconds. Safe to use from several threads.

    Args:
        write: stores a record of counts.
        clock: seconds of a monotonic clock.
        cpu: seconds of the processor in this thread.
    """

    def __init__(
        self,
        write: Callable[[Record], object],
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._write, self.clock, self._cpu = write, clock, cpu
        self._lock = threads.lock()
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._pending = 0

    @contextmanager
    def working(self, counter: str = CPU_SECONDS) -> Iterator[None]:
        """Count the processor time of the block, in this thread."""
        begun = self._cpu()
        try:
            yield
        finally:
            self._add({counter: self._cpu() - begun})

    def waited(self, seconds: float, *, calls: bool) -> None:
        """Count one model call of so many seconds; `calls` says that its answer asks for tools.

        The memory saves only model calls that ask for tools, and an answer with text takes longer.
        """
        if calls:
            self._add({CALL_SECONDS: seconds, TIMED_CALLS: 1})
        else:
            self._add({WORD_SECONDS: seconds, TIMED_WORDS: 1})

    def flush(self) -> None:
        """Write the sums."""
        # Taken out before they are written: seconds that are counted meanwhile belong to the next flush.
        with self._lock:
            sums, self._sums, self._pending = self._sums, defaultdict(float), 0
        if sums:
            self._write([Count(name, round(amount, 6)) for name, amount in sums.items()])

    def forked(self) -> None:
        """Drop the sums in a forked child: the parent writes them."""
        self._sums, self._pending = defaultdict(float), 0

    def _add(self, amounts: dict[str, float]) -> None:
        with self._lock:
            for name, amount in amounts.items():
                self._sums[name] += amount
            self._pending += 1
            due = self._pending >= MOST_PENDING
        # Without the lock, because `flush` takes it.
        if due:
            self.flush()
