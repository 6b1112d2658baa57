"""The evidence graph with its persistence: a folder of one process, a store shared by several workers, or RAM."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from langgraph.store.base import BaseStore

from langgraph_toolmem.base.errors import GraphFileError, StorageError, describe_error
from langgraph_toolmem.base.waits import this_step
from langgraph_toolmem.graph.evidence import EvidenceGraph, Table
from langgraph_toolmem.graph.operations import (
    Forgotten,
    Record,
    RunsForgotten,
    UserForgotten,
    claimed,
    redacted,
    without,
)
from langgraph_toolmem.graph.state import SEPARATOR
from langgraph_toolmem.stores import wire
from langgraph_toolmem.stores.graph_file import GraphFile
from langgraph_toolmem.stores.graph_fold import GraphFold
from langgraph_toolmem.stores.journal import Loaded
from langgraph_toolmem.stores.log_reader import Restart
from langgraph_toolmem.stores.remote import DEADLINE, PATIENCE
from langgraph_toolmem.stores.shared_log import SharedLog

Fsync: TypeAlias = Literal["never", "snapshot", "always"]
T = TypeVar("T", bound=Table)
logger = logging.getLogger("langgraph_toolmem.graph_store")

POLL_SECONDS = 1.0
"""A shared graph looks for other workers' records at most this often."""
AT_ONCE: Final = 200
"""Records of others that are taken in at a time."""
OPENING_SECONDS: Final = 3600.0
FORKED: Final = (
    "this process was forked off one that has the memory open: it looks, and keeps nothing but verdicts. Make the "
    "memory after the fork, or share one with store=..."
)
CLOSED: Final = "the memory is closed: what comes now is not learned"
MEND_SECONDS = 60.0
"""A record that cannot be applied has the graph read again at most this often."""
LATE_SECONDS = 3600.0
"""A worker that starts heeds a forgetting this old at most: what is older was taken out of the logs long ago, and
what the user did since may stay. Clocks of workers may differ by less than this."""


class GraphStore:
    """Applies records to the graph and keeps them.

    Not safe for several threads by itself: the memory holds one lock around it.

    Args:
        folder: of the graph file; None: no file.
        shared: a store with the increments of all workers; the graph is then merged from it and no file is kept.
        namespace: where in the store.
        tables: what is registered in the graph before anything is read; `register` takes others later.
        fsync: see `GraphFile`.
        read_only: take no lock, write nothing.
        clock: seconds, for `POLL_SECONDS`.
        now: seconds since 1970, for when a user was forgotten.
        deadline, patience: of calls of `shared`; see `Remote`.

    Raises:
        LockedError: another process writes to the folder.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        shared: BaseStore | None,
        namespace: tuple[str, ...],
        tables: Iterable[type[Table]] = (),
        fsync: Fsync = "snapshot",
        read_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        deadline: float = DEADLINE,
        patience: float = PATIENCE,
    ) -> None:
        self.folder = folder
        self._tables: Final = tuple(tables)
        self.graph = EvidenceGraph(self._tables)
        self.problems: list[str] = []
        self._file: GraphFile | None = None
        self._log: SharedLog | None = None
        self._clock = clock
        self._now = now
        self._polled = float("-inf")
        self._half_forgotten: dict[str, set[str]] = {}
        self.read_only = read_only
        self._dirty = False
        self._whole, self._unsaid, self._closed = True, False, False
        self._mended = float("-inf")
        if shared is not None:
            self._log = SharedLog(
                shared,
                namespace,
                folder=None if read_only else folder,
                fold=partial(GraphFold, self.empty_graph, partial(self.apply_loaded, starting=True)),
                redact=self._without,
                synchronous=fsync == "always",
                deadline=deadline,
                patience=patience,
                now=now,
            )
            self._log.look(OPENING_SECONDS)
            self._polled = clock()
            self.refresh(at_once=True, starting=True)
        elif folder is not None:
            self._open(folder, fsync, read_only)

    def _open(self, folder: Path, fsync: Fsync, read_only: bool) -> None:
        self._file = GraphFile(folder, fsync=fsync, read_only=read_only)
        loaded = self._file.load()
        self.problems = self._file.problems
        try:
            self._take(self.graph, loaded)
        except Exception as error:
            # Whatever is in the file, the host starts. Its checksum is right, so it was written like this:
            # by another program, or by a bug.
            logger.debug("the snapshot cannot be used", exc_info=error)
            self._file.refuse_snapshot(str(error) if isinstance(error, GraphFileError) else describe_error(error))
            self.graph = EvidenceGraph(self._tables)
            self._take(self.graph, replace(loaded, state=None))

    def _take(self, graph: EvidenceGraph, loaded: Loaded) -> None:
        if loaded.state is not None:
            graph.load(loaded.state)
        for entry in loaded.records:
            self.apply_loaded(entry, graph)

    def register(self, kind: type[T]) -> T:
        """The graph's table of a kind. What was kept for it and has not its shape is set aside with the snapshot."""
        try:
            return self.graph.register(kind)
        except GraphFileError as error:
            if self._file is not None and not self.read_only:
                self._file.refuse_snapshot(str(error))
                self._compact()
            return self.graph.register(kind)

    def apply_loaded(self, entry: Any, graph: EvidenceGraph, *, starting: bool = False) -> None:
        """Applies what was read; what cannot be applied is left out, and said."""
        try:
            key, record = wire.read(entry, graph)
            late = self._now() - LATE_SECONDS
            told = [each for each in record if isinstance(each, (UserForgotten, RunsForgotten))]
            if starting and any(each.when < late for each in told):
                return
            if graph is self.graph and self._log is not None:
                for each in told:
                    self._log.forgotten(self._gone(each))
            graph.apply(key, record)
        except Exception as error:  # noqa: BLE001 - whatever is in the log, the host runs on
            self.say(f"a record could not be applied and is left out: {describe_error(error)}", error)

    def apply(self, key: str | None, record: Record) -> bool:
        """Keeps a record and applies it; False if its key was seen before, or the memory is closed.

        When this returns, the record survives the end of the process (see `fsync` for the machine's).
        """
        if self._closed:
            self.say(CLOSED)
            return False
        if not self._whole:
            self._mend()
        if self._unsaid:
            self._unsaid = False
            logger.warning("%s", FORKED)
        if key is not None and self.graph.has_seen(key):
            return False
        try:
            self._whole = False
            if not self.read_only:
                self._dirty = True
                self._keep(wire.write(key, record))
            self.graph.apply(key, record)
            self._whole = True
        except Exception:
            if self._clock() - self._mended < MEND_SECONDS:
                self._whole = True  # mending is of no use: the record itself cannot be applied
            else:
                self._mend()
            raise
        except BaseException:
            self._mend()
            raise
        if self._file is not None and not self.read_only and self._file.should_compact:
            self._compact()
        return True

    def _mend(self) -> None:
        """An interrupt left a record half applied: on disk it stands whole, or not at all. In RAM it goes as far as it
        came, and what is made of it is made anew."""
        again = None if self._file is None or self.read_only else self._file.again()
        kept = self.empty_graph()
        if again is not None:
            self._take(kept, again)
        self._reload((self.graph if again is None else kept).to_state())
        self._mended, self._whole = self._clock(), True

    def empty_graph(self) -> EvidenceGraph:
        """One with the same tables."""
        return EvidenceGraph(type(table) for table in self.graph.tables)

    def _reload(self, state: dict[str, Any]) -> None:
        self.graph.load({**state, "tables": self.empty_graph().to_state()["tables"] | state["tables"]})

    def _keep(self, entry: list[Any]) -> None:
        try:
            if self._file is not None:
                self._file.append(entry)
            elif self._log is not None:
                self._log.append(entry)
                if (waits := this_step()) is not None:
                    waits.last[self.acknowledge] = None
        except Exception as error:  # noqa: BLE001 - what cannot be kept is learned all the same, in RAM
            self.say(f"records cannot be kept at present ({describe_error(error)}); memory goes on in RAM", error)

    @property
    def closed(self) -> bool:
        """Whether nothing is learned any more."""
        return self._closed

    def say(self, problem: str, error: Exception | None = None) -> None:
        """Logs a problem, and keeps it for the report, the first time it is said."""
        if problem not in self.problems:
            self.problems.append(problem)
            logger.warning("%s", problem)
            if error is not None:
                logger.debug("%s", problem, exc_info=error)

    def _compact(self) -> bool:
        if self._file is None or not self._file.compact(self.graph.to_state()):
            return False
        self._dirty = False
        return True

    def look(self, *, at_once: bool = False) -> None:
        """Waits a moment for what other workers learned, if it is time to look; long, if that is asked for.

        Not under the lock of the memory, as little as `acknowledge`.
        """
        if self._log is not None and (at_once or self._clock() - self._polled >= POLL_SECONDS):
            self._polled = self._clock()
            self._log.look(self._log.remote.deadline if at_once else None)

    def acknowledge(self) -> None:
        """Waits a moment for the store to have what was learned, where nothing else would outlive the process."""
        if self._log is not None:
            self._log.sync()

    def refresh(self, *, at_once: bool = False, starting: bool = False) -> None:
        """Takes in what was found of other workers: some of it, or all if that is asked for."""
        for found in () if self._log is None else self._log.taken(None if at_once else AT_ONCE):
            if isinstance(found, Restart):
                self._restart(found)
            else:
                self.apply_loaded(found, self.graph, starting=starting)

    def _restart(self, found: Restart) -> None:
        assert self._log is not None
        try:
            self._reload(found.state)
        except GraphFileError as error:
            self.say(f"a snapshot of the shared store cannot be used ({error})")
        for entry in (*found.records, *self._log.unsent(found)):
            self.apply_loaded(entry, self.graph)

    def waiting(self) -> list[str]:
        """What is wrong with the shared store now."""
        return [] if self._log is None else self._log.waiting()

    def _record_of(self, entry: Any) -> Record | None:
        """What was stored; None for a strange entry, which must not stop the others from being looked into."""
        try:
            return wire.read(entry, self.graph)[1]
        except (TypeError, ValueError, LookupError, AttributeError):
            return None

    def forget(self, gone: Forgotten) -> int:
        """Removes a user, or runs, from the graph and from what is kept of it; returns how many pieces were removed.

        Other workers of a shared store drop the same when they look into it next.

        Raises:
            StorageError: what is kept could not be rewritten, so that it still holds them.
        """
        user, what = gone.user, "The user is forgotten" if gone.user else "It is forgotten"
        if self.read_only:
            raise StorageError("A memory opened with read_only=True cannot forget: call forget where it is written.")
        own = self._half_forgotten.setdefault(user, set())
        own |= self.graph.belongings(user) if user else set(gone.runs)
        removed = self.graph.forget(Forgotten(user, own))
        if self._file is not None and not self._compact():
            raise StorageError(
                f"{what} here, but {self.folder} still holds what was kept, as it could not be "
                f"rewritten ({self._file.degraded or 'the memory is closed'}). Mend that and call forget again."
            )
        if self.folder is not None and (aside := sorted(file.name for file in self.folder.glob("*.corrupt-*"))):
            self.say(f"files set aside as unreadable may hold what was forgotten: {', '.join(aside)}")
        if self._log is None:
            del self._half_forgotten[user]
        return removed

    def forget_shared(self, gone: Forgotten) -> int:
        """After `forget`: removes the same from the shared store, without the lock of the memory.

        Raises:
            StorageError: it failed, or is busy.
        """
        log, user = self._log, gone.user
        if log is None:
            return 0
        own = self._half_forgotten.setdefault(user, set()) | set(gone.runs)

        def note_own(entry: Any) -> Any:
            own.update(claimed(self._record_of(entry) or [], user))
            return entry

        try:
            if user:
                log.rewrite(note_own)
            whole = Forgotten(user, own)
            removed = log.rewrite(partial(self._without, whole))
            # After the logs: who starts from now on reads nothing of it.
            now = self._now()
            told = UserForgotten(user, now) if user else RunsForgotten(sorted(own), now)
            log.tell_forgotten(wire.write(None, [told]), whole)
        except StorageError as error:
            raise StorageError(
                f"{'The user' if user else 'It'} is forgotten in this process, but the shared store may still hold "
                f"what was kept, and other workers go on with it ({error}). Make the store reachable and call forget "
                "again."
            ) from error
        self._half_forgotten.pop(user, None)
        return removed

    def _without(self, gone: Forgotten, entry: Any) -> Any:
        """A record as it is written, without what is forgotten."""
        record = self._record_of(entry)
        if record is None:
            return without(entry, {gone.user, *gone.runs} - {""})
        kept = redacted(record, gone.user, gone.runs, self._is_shared)
        return entry if kept is record else wire.write(entry[0], kept)

    def _is_shared(self, slot: str, descriptor: str) -> bool:
        if SEPARATOR in slot:
            return descriptor in self.graph.sources.row(slot)
        tool = self.graph.tools.get(slot)  # several calls at once have a name that is no tool's
        return tool is None or descriptor in tool.get("parameters_seen", ())

    def _gone(self, told: UserForgotten | RunsForgotten) -> Forgotten:
        """What another worker says to be forgotten."""
        if isinstance(told, RunsForgotten):
            return Forgotten(runs=frozenset(told.forgotten))
        return Forgotten(told.forgotten, self.graph.belongings(told.forgotten))

    def forked(self) -> None:
        """In a process that is forked off: what was known is kept in RAM, and nothing else is read or written."""
        self.read_only, self._log = True, None
        self.problems = [*self.problems, FORKED]
        self._unsaid = True  # until it is used: not every child has to do with the memory

    def close(self) -> None:
        """Writes a snapshot if anything changed, and lets go of the folder."""
        if self._file is not None:
            if not self.read_only and self._dirty:
                self._compact()
            self._file.close()
        self._closed = True

    def close_log(self) -> None:
        """Sends what waits for the shared store; not under the lock of the memory."""
        if self._log is not None and not self._log.close() and not self.read_only:
            self.problems.append("the shared store did not answer at the end: what waited for it is lost")
