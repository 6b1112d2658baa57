"""The core: what all methods stand on. It reads messages, keeps evidence, rows, jobs, users and tools, and knows no
method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.core.catalogue import Catalogue, without_own
from langgraph_toolmem.core.contributions import Section
from langgraph_toolmem.core.events import Events
from langgraph_toolmem.core.evidence import Evidence
from langgraph_toolmem.core.former import TakeOver
from langgraph_toolmem.core.jobs import Jobs
from langgraph_toolmem.core.ledger import Ledger, LedgerTable
from langgraph_toolmem.core.listener import Listener
from langgraph_toolmem.core.past_runs import KeptRuns
from langgraph_toolmem.core.row_kinds import RowKind
from langgraph_toolmem.core.rows import Rows
from langgraph_toolmem.core.users import User, Users, check_namespace
from langgraph_toolmem.graph.evidence import Table
from langgraph_toolmem.runs.executions import ExecutionLog
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.tools import ToolLike, read_tools
from langgraph_toolmem.search.embedders import resolve_embedder
from langgraph_toolmem.stores.cold_start import forget_user
from langgraph_toolmem.stores.graph_store import Fsync, GraphStore
from langgraph_toolmem.stores.vectors import REFRESH_SECONDS, VectorStore

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langgraph.store.base import BaseStore

    from langgraph_toolmem.stores.executors import Executor

T = TypeVar("T")

DEFAULT_NAMESPACE: Final = ("toolmem",)


class Core(Evidence):
    """The pieces of a memory; see `ToolMemory` for the arguments.

    Attributes:
        folder: of the memory; None: nothing is on disk.
        home: of the evidence graph and what is made of it; the folder, or one in it; None likewise.
        shared: other processes write to what this one reads.
        catalogue: the tools.
        vectors: Chroma.
        jobs: work in the background.
        ledger: what was shown to the model, whether it was followed, how that run ended.
        kept_runs: finished runs with their verdicts, from whichever method keeps them.
        former: takes over what the version before kept.
        events: what happens to runs, and who is told.
        listeners: the methods, in their order.
    """

    def __init__(
        self,
        path: str | Path | None,
        listeners: Sequence[Listener],
        *,
        tools: Iterable[ToolLike] | None,
        embeddings: Embeddings | str | None,
        chroma: Any | None,
        store: BaseStore | None,
        namespace: tuple[str, ...],
        graph_namespace: tuple[str, ...],
        fsync: Fsync,
        read_only: bool,
        now: Callable[[], float],
        executor: Executor | None,
    ) -> None:
        users = Users(check_namespace(namespace, name="namespace", user_allowed=True))
        self.graph_namespace = check_namespace(graph_namespace, name="graph_namespace", user_allowed=False)
        specs = None if tools is None else without_own(read_tools(tools))
        embedder = resolve_embedder(embeddings)
        self.folder = None if path is None else Path(path)
        self.shared = chroma is not None or store is not None
        self.listeners = tuple(listeners)
        home = self.folder
        if home is not None and self.graph_namespace != DEFAULT_NAMESPACE:
            home = home / f"graph-{digest(*self.graph_namespace)}"
        self.home = home
        tables: list[type[Table]] = [LedgerTable, *(table for each in self.listeners for table in each.tables)]
        where: dict[str, Any] = {"shared": store, "namespace": self.graph_namespace, "fsync": fsync, "now": now}
        kept = GraphStore(home, tables=tables, read_only=read_only, **where)
        super().__init__(kept, users, now=now, read_only=read_only)
        self.vectors = VectorStore(
            self.folder, embedder=embedder, client=chroma, namespace=self.graph_namespace, read_only=read_only
        )
        self.jobs = Jobs(self.folder, now=now, executor=executor, read_only=read_only)
        self.executions = ExecutionLog()
        self.ledger = Ledger(self.graph, self.apply, self.lock)
        self.kept_runs = KeptRuns()
        describe = None if read_only else lambda record: self.apply(None, record)
        self.catalogue = Catalogue(self.graph, specs, describe=describe, lock=self.lock)
        self.former = TakeOver(self, self.vectors, self.jobs, self.listeners)
        self.events = Events(self, self.catalogue, self.executions, self.ledger, self.jobs, self.listeners)

    def forget(self, user: User) -> int:
        """Takes a user out of the evidence graph, and out of what a cold start left in the folder; how many pieces.

        Raises:
            StorageError: what is kept could not be rewritten.
        """
        removed = super().forget(user)
        return removed if self.folder is None else removed + forget_user(self.folder, str(user.digest))

    def read(self, messages: Any, thread_id: str | None = None) -> Run:
        """Messages as a run, calls as recorders saw them executed.

        Raises:
            MessageError: they cannot be read.
        """
        return self.executions.read(messages, thread_id)

    def rows(self, kind: RowKind[T], method: str | None = None) -> Rows[T]:
        """Rows of a kind; nothing is made or read before they are used.

        Args:
            kind: of the items.
            method: whose items they are in the ledger; the kind's name if None.
        """
        how: dict[str, Any] = {"users": self.users, "read_only": self.read_only, "now": self.now}
        how["refresh"] = REFRESH_SECONDS if self.shared or self.read_only else None
        return Rows(kind, self.vectors, self.ledger, method=method or kind.name, **how)

    def section_of(self, listener: Listener) -> Section | None:
        """A method's part of the report; None if it has nothing to tell, or fails."""
        found: list[Section | None] = []
        self.quietly(f"{listener.name} could not report", lambda: found.append(listener.report()))
        return found[0] if found else None

    def owner_of(self, run: str, user: str | None = None) -> str:
        """Digest of the user whose run it is, so that `forget` finds what is said about it; "" if that is unknown.

        Args:
            run: digest of the run.
            user: digest of the user who is named now, if anybody is.
        """
        return user or self.jobs.owner_of(run) or self.known_owner(run)

    def place_of(self, run: str, user_id: str | None) -> tuple[str, ...] | None:
        """The namespace of what is kept of a run; without a user id as it was noted when the run was finished.

        None: nobody is named, and the run was finished elsewhere.
        """
        if user_id or not self.users.apart:
            return self.users.of(user_id).namespace
        return self.jobs.place_of(run)
