"""The core: what all methods stand on. It reads messages, keeps evidence, rows, jobs, users and tools, and knows no
method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.checks import check_seconds
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.catalogue import Catalogue, Declarations, without_own
from langgraph_toolmem.core.episodes import Episodes, EpisodesTable
from langgraph_toolmem.core.evidence import Evidence
from langgraph_toolmem.core.forgetting import Ages
from langgraph_toolmem.core.holdout import Holdout
from langgraph_toolmem.core.jobs import Jobs
from langgraph_toolmem.core.ledger import Ledger, LedgerTable
from langgraph_toolmem.core.lifecycle import Lifecycle
from langgraph_toolmem.core.method import Hooks, KeptRuns, Section
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.core.users import Users, check_namespace, keep_namespace
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.graph.state import Folds, RunState
from langgraph_toolmem.graph.tool_graph import Table
from langgraph_toolmem.graph.view import NewestRuns
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.tools import ToolLike, read_tools
from langgraph_toolmem.runs.trajectory import ExecutionLog
from langgraph_toolmem.stores.cold_start import forget_user
from langgraph_toolmem.stores.events import EventStore, Fsync
from langgraph_toolmem.stores.remote import DEADLINE
from langgraph_toolmem.stores.shared import SharedLog
from langgraph_toolmem.stores.vectors import VectorStore
from langgraph_toolmem.text.embedders import resolve_embedder

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langgraph.store.base import BaseStore

T = TypeVar("T")


def folder_of(path: str | Path) -> Path:
    """Return the folder that a path names, with the user's home for ``~``.

    Raises:
        ConfigurationError: it begins with the home of a user who is not known.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(
            f"`path` is {str(path)!r}: {error} Write './{path}' for a folder of that name."
        ) from error


DEFAULT_NAMESPACE: Final = ("toolmem",)


class Core(Evidence):
    """The pieces of a memory; see `ToolMemory` for the arguments.

    Attributes:
        folder: of the memory; None: nothing is on disk.
        home: of the evidence graph and what is made of it; the folder, or one in it; None likewise.
        catalogue: the tools.
        vectors: Chroma.
        jobs: work in the background.
        episodes: which episodes each thread has.
        ages: when each was heard of, where there is a retention.
        holdout: which of them run without the memory's say.
        ledger: what was shown to the model, whether it was followed, how that run ended.
        kept_runs: finished runs with their verdicts, from whichever method keeps them.
        lifecycle: learns from runs and calls the methods' hooks.
        listeners: the methods, in their order.
    """

    def __init__(
        self,
        path: str | Path | None,
        listeners: Sequence[Hooks],
        *,
        tools: Iterable[ToolLike] | None,
        reads: Iterable[str],
        embeddings: Embeddings | str | None,
        chroma: Any | None,
        store: BaseStore | None,
        namespace: tuple[str, ...],
        graph_namespace: tuple[str, ...],
        fsync: Fsync,
        read_only: bool,
        now: Callable[[], float],
        holdout: float,
        step_timeout: float,
        ages: bool,
    ) -> None:
        limits: dict[str, Any] = {"deadline": DEADLINE}
        limits["patience"] = check_seconds("step_timeout", step_timeout)
        users = Users(check_namespace(namespace, name="namespace", user_allowed=True))
        self.graph_namespace = check_namespace(graph_namespace, name="graph_namespace", user_allowed=False)
        specs = None if tools is None else without_own(read_tools(tools))
        declarations = Declarations(reads)
        embedder = resolve_embedder(embeddings)
        self.folder = None if path is None else folder_of(path)
        self.listeners = tuple(listeners)
        home = self.folder
        if home is not None and self.graph_namespace != DEFAULT_NAMESPACE:
            home = home / f"graph-{digest(*self.graph_namespace)}"
        self.home = home
        tables: list[type[Table]] = [
            LedgerTable,
            EpisodesTable,
            NewestRuns,
            *(table for each in self.listeners for table in each.tables),
        ]
        how: dict[str, Any] = {"fsync": fsync, "read_only": read_only, "shared": store is not None}
        where = None if store is not None and read_only else home  # else it would look at a log that lags behind
        log = EventStore(where, lock=threads.rlock(), tables=tables, **how)
        super().__init__(log, users, now=now, read_only=read_only)
        if store is not None:
            self.shared_log = SharedLog(store, self.graph_namespace, self.store, now=now, **limits)
        if self.folder is not None and not read_only and users.namespace != DEFAULT_NAMESPACE:
            self.log_and_continue(
                "the namespace is not kept in the folder", partial(keep_namespace, self.folder, users.namespace)
            )
        what: dict[str, Any] = {"embedder": embedder, "client": chroma, "namespace": self.graph_namespace}
        self.vectors = VectorStore(self.folder, read_only=read_only, **what, **limits)
        working: dict[str, Any] = {"may_work": self.vectors.may_write, "alone": chroma is None}
        self.jobs = Jobs(self.folder, now=now, read_only=read_only, remote=self.vectors.remote, **working)
        self.episodes = Episodes(self.graph)
        self.ages = Ages(self, self.episodes, on=ages)
        self.holdout = Holdout(self, holdout)
        self.executions = ExecutionLog(self.episodes.of)
        self._states, learned = Folds(), Folds()
        self.episodes.at_forgetting(self.executions.forget, self._states.forget, learned.forget)
        self.store.at_reload += [self.executions.forget, self._states.forget, learned.forget]
        self.ledger = Ledger(self.graph, self.apply, self.lock)
        self.kept_runs = KeptRuns()
        describe = None if read_only else lambda record: self.apply(None, record)
        self.catalogue = Catalogue(self.graph, specs, declarations=declarations, describe=describe, lock=self.lock)
        self.lifecycle = Lifecycle(self, learned)
        if self.folder is not None or store is not None:
            threads.at_fork(self)

    def close(self) -> None:
        """See `ToolMemory.close`."""
        with self.lock:
            closed, self.closed = self.closed, True
        if closed:
            return
        steps: list[tuple[str, Callable[[], object]]] = [
            ("background work", self.jobs.close),  # without the lock: its thread may be about to take it
            *((each.name, each.close) for each in self.listeners),
            ("the queue", self.jobs.queue.close),
            ("the evidence graph", self.close_store),
            ("Chroma", self.vectors.close),
        ]
        with ExitStack() as last:  # an interrupt leaves nothing open either
            for what, close in reversed(steps):
                last.callback(self.log_and_continue, f"{what} could not be closed", close)

    def forked(self) -> None:
        """Go on in a forked child: events are its own from here on; Chroma and the background are the parent's."""
        self.store.forked()

    def forget(self, gone: Forgotten) -> int:
        """Takes a user out of the evidence graph, and out of what a cold start left in the folder; or runs. How many
        pieces.

        Raises:
            StorageError: what is kept could not be rewritten.
        """
        removed = super().forget(gone)
        return removed + forget_user(self.folder, gone.user) if self.folder is not None and gone.user else removed

    def know(self, run: Run) -> None:
        """Notes the episodes of a thread before anything is learned of it: a verdict finds what it is on."""
        with self.lock:
            if not self.read_only and (new := self.episodes.new(run)):
                self.apply(None, new, run=run.digest)

    def read(self, messages: Any, thread_id: str | None = None) -> Run:
        """Messages as a run, calls as recorders saw them executed.

        Raises:
            MessageError: they cannot be read.
        """
        return self.executions.read(messages, thread_id)

    def state_of(self, run: Run) -> RunState:
        """A run's state. Of a thread that was read before only what is new is folded."""
        return self._states.of(run)

    def held_out(self, messages: Any, thread_id: str | None = None) -> bool:
        """Whether the episode that a history ends with runs without the memory's say. What fails says no."""
        found: list[bool] = []
        if self.holdout.on:
            begins = lambda: found.append(self.holdout.begins(self.read(messages, thread_id)))  # noqa: E731 - one line
            self.log_and_continue("whether an episode is held out could not be told", begins)
        return any(found)

    def rows(self, kind: RowKind[T], method: str | None = None) -> Rows[T]:
        """Rows of a kind; nothing is made or read before they are used.

        Args:
            kind: of the items.
            method: whose items they are in the ledger; the kind's name if None.
        """
        how: dict[str, Any] = {"users": self.users, "read_only": self.read_only, "now": self.now}
        return Rows(kind, self.vectors, self.ledger, method=method or kind.name, **how)

    def problems(self) -> list[str]:
        """What is wrong with what is kept, one sentence each."""
        with self.lock:
            waiting = [] if self.shared_log is None else self.shared_log.waiting()
            found = [*self.store.problems, *waiting, *self.vectors.problems]
        remote = self.vectors.remote
        problem = None if remote is None else remote.problem()
        found += [problem] if problem else []
        self.log_and_continue("could not read the job queue", lambda: found.extend(self.jobs.queue.troubles()))
        return found

    def section_of(self, listener: Hooks) -> Section | None:
        """A method's part of the report; None if it has nothing to tell, or fails."""
        found: list[Section | None] = []
        self.log_and_continue(f"{listener.name} could not report", lambda: found.append(listener.report()))
        return found[0] if found else None

    def owner_of(self, run: str, user: str | None = None) -> str:
        """Digest of the user whose run it is, so that `forget` finds what is said about it; "" if that is unknown.

        Args:
            run: digest of the run.
            user: digest of the user who is named now, if anybody is.
        """
        return user or self.jobs.queue.place_of(run)[1] or self.known_owner(run)

    def place_of(self, run: str, user_id: str | None) -> tuple[str, ...] | None:
        """The namespace of what is kept of a run; without a user id as it was noted when the run was finished.

        None: nobody is named, and the run was finished elsewhere.
        """
        if user_id or not self.users.apart:
            return self.users.of(user_id).namespace
        return self.jobs.queue.place_of(run)[0]
