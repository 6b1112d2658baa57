"""The evidence graph with its persistence: a folder of one process, a store shared by several workers, or RAM."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from langgraph.store.base import BaseStore

from langgraph_toolmem.base.errors import GraphFileError, StorageError
from langgraph_toolmem.base.failures import describe_error
from langgraph_toolmem.graph.evidence import EvidenceGraph, Table
from langgraph_toolmem.graph.operations import Record, UserForgotten, claimed, redacted, without
from langgraph_toolmem.stores import wire
from langgraph_toolmem.stores.graph_file import GraphFile
from langgraph_toolmem.stores.shared_log import SharedLog

Fsync: TypeAlias = Literal["never", "snapshot", "always"]
T = TypeVar("T", bound=Table)
logger = logging.getLogger("langgraph_toolmem.graph_store")

POLL_SECONDS = 1.0
"""A shared graph looks for other workers' records at most this often."""
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
        if shared is not None:
            worker = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            self._log = SharedLog(shared, namespace, worker=worker)
            self.refresh()
        elif folder is not None:
            self._open(folder, fsync, read_only)

    def _open(self, folder: Path, fsync: Fsync, read_only: bool) -> None:
        self._file = GraphFile(folder, fsync=fsync, read_only=read_only)
        loaded = self._file.load()
        self.problems = self._file.problems
        if loaded.state is not None:
            try:
                self.graph.load(loaded.state)
            except Exception as error:
                # Whatever is in the file, the host starts. Its checksum is right, so it was written like this:
                # by another program, or by a bug.
                logger.debug("the snapshot cannot be used", exc_info=error)
                self._file.refuse_snapshot(str(error) if isinstance(error, GraphFileError) else describe_error(error))
                self.graph = EvidenceGraph(self._tables)
        for entry in loaded.records:
            self._apply_loaded(entry)

    def register(self, kind: type[T]) -> T:
        """The graph's table of a kind. What was kept for it and has not its shape is set aside with the snapshot."""
        try:
            return self.graph.register(kind)
        except GraphFileError as error:
            if self._file is not None and not self.read_only:
                self._file.refuse_snapshot(str(error))
                self._compact()
            return self.graph.register(kind)

    def _apply_loaded(self, entry: Any, *, starting: bool = False) -> None:
        try:
            key, record = wire.read(entry, self.graph)
            late = self._now() - LATE_SECONDS
            if not (starting and any(isinstance(each, UserForgotten) and each.when < late for each in record)):
                self.graph.apply(key, record)
        except Exception as error:  # noqa: BLE001 - whatever is in the log, the host runs on
            self._say(f"a record could not be applied and is left out: {describe_error(error)}", error)

    def apply(self, key: str | None, record: Record) -> bool:
        """Keeps a record and applies it; False if its key was seen before.

        When this returns, the record survives the end of the process (see `fsync` for the machine's).
        """
        if key is not None and self.graph.has_seen(key):
            return False
        if not self.read_only:
            self._dirty = True
            self._keep(wire.write(key, record))
        self.graph.apply(key, record)
        if self._file is not None and not self.read_only and self._file.should_compact:
            self._compact()
        return True

    def _keep(self, entry: list[Any]) -> None:
        try:
            if self._file is not None:
                self._file.append(entry)
            elif self._log is not None:
                self._log.append(entry)
        except Exception as error:  # noqa: BLE001 - what cannot be kept is learned all the same, in RAM
            self._say(f"records cannot be kept at present ({describe_error(error)}); memory goes on in RAM", error)

    def _say(self, problem: str, error: Exception | None = None) -> None:
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

    def refresh(self, *, at_once: bool = False) -> None:
        """Takes in what other workers learned, if it is time to look or if that is asked for."""
        if self._log is None or (self._clock() - self._polled < POLL_SECONDS and not at_once):
            return
        starting = self._polled == float("-inf")
        self._polled = self._clock()
        for entry in self._log.poll():
            self._apply_loaded(entry, starting=starting)

    def _record_of(self, entry: Any) -> Record | None:
        """What was stored; None for a strange entry, which must not stop the others from being looked into."""
        try:
            return wire.read(entry, self.graph)[1]
        except (TypeError, ValueError, LookupError, AttributeError):
            return None

    def forget_user(self, user: str) -> int:
        """Removes a user from the graph and from what is kept of it; returns how many pieces were removed.

        Other workers of a shared store drop the user's data when they look into it next.

        Raises:
            StorageError: what is kept could not be rewritten, so that it still holds them.
        """
        if self.read_only:
            raise StorageError("A memory opened with read_only=True cannot forget: call forget where it is written.")
        self.refresh(at_once=True)
        own = self._half_forgotten.setdefault(user, set())
        own |= self.graph.belongings(user)
        removed = self.graph.forget_user(user)
        if self._file is not None and not self._compact():
            raise StorageError(
                f"The user is forgotten here, but {self.folder} still holds what was kept, as it could not be "
                f"rewritten ({self._file.degraded or 'the memory is closed'}). Mend that and call forget again."
            )
        if self.folder is not None and (aside := sorted(file.name for file in self.folder.glob("*.corrupt-*"))):
            self._say(f"files set aside as unreadable may hold data of users that were forgotten: {', '.join(aside)}")
        if self._log is not None:
            removed += self._forget_shared(self._log, user, own)
        del self._half_forgotten[user]
        return removed

    def _forget_shared(self, log: SharedLog, user: str, own: set[str]) -> int:
        def is_shared(slot: str, descriptor: str) -> bool:
            return descriptor in self.graph.sources.row(slot)

        def note_own(entry: Any) -> Any:
            own.update(claimed(self._record_of(entry) or [], user))
            return entry

        def rest(entry: Any) -> Any:
            record = self._record_of(entry)
            if record is None:
                return without(entry, {user, *own})
            kept = redacted(record, user, own, is_shared)
            return entry if kept is record else wire.write(entry[0], kept)

        try:
            log.rewrite(note_own)
            removed = log.rewrite(rest)
        except StorageError as error:
            raise StorageError(
                "The user is forgotten in this process, but the shared store may still hold what was kept, and other "
                "workers go on with it. Make the store reachable and call forget again."
            ) from error
        # After the logs: who starts from now on reads nothing of the user.
        if not log.append(wire.write(None, [UserForgotten(user, self._now())])):
            raise StorageError(
                "The user is forgotten in this process and in the shared store, but other workers could not be told. "
                "Make the store reachable and call forget again, or restart them."
            )
        return removed

    def close(self) -> None:
        """Writes a snapshot if anything changed, and lets go of the folder."""
        if self._file is not None:
            if not self.read_only and self._dirty:
                self._compact()
            self._file.close()
