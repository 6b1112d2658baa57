"""The evidence graph with its persistence: a folder of one process, a store shared by several workers, or RAM."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from langgraph.store.base import BaseStore

from langgraph_toolmem.graph.evidence import EvidenceGraph, Record
from langgraph_toolmem.graph.redact import redact
from langgraph_toolmem.stores.graph_file import GraphFile
from langgraph_toolmem.stores.shared_log import SharedLog

Fsync: TypeAlias = Literal["never", "snapshot", "always"]
logger = logging.getLogger("langgraph_toolmem.graph_store")

POLL_SECONDS = 1.0
"""A shared graph looks for other workers' records at most this often."""


class GraphStore:
    """Applies records to the graph and keeps them.

    Not safe for several threads by itself: the memory holds one lock around it.

    Args:
        folder: of the graph file; None: no file.
        shared: a store with the increments of all workers; the graph is then merged from it and no file is kept.
        namespace: where in the store.
        fsync: see `GraphFile`.
        read_only: take no lock, write nothing.
        clock: seconds, for `POLL_SECONDS`.

    Raises:
        LockedError: another process writes to the folder.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        shared: BaseStore | None,
        namespace: tuple[str, ...],
        fsync: Fsync = "snapshot",
        read_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.graph = EvidenceGraph()
        self.problems: list[str] = []
        self._file: GraphFile | None = None
        self._log: SharedLog | None = None
        self._clock = clock
        self._polled = float("-inf")
        self._may_write = not read_only
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
        if loaded.state is not None:
            try:
                self.graph = EvidenceGraph.from_state(loaded.state)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                # Its checksum is right, so it was written like this: by another program, or by a bug.
                self._file.close()
                self._file = None
                problem = f"the snapshot in {folder} has not the shape of a graph ({error!r}); memory goes on in RAM"
                self.problems.append(problem)
                logger.exception("%s", problem)
                return
        for entry in loaded.records:
            self._apply_loaded(entry)
        self.problems = self._file.problems

    def _apply_loaded(self, entry: Any) -> None:
        try:
            key, record = entry
            self.graph.apply(key, record)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            problem = f"a record could not be applied and is left out: {error!r}"
            if problem not in self.problems:
                self.problems.append(problem)
                logger.warning("%s", problem)

    def apply(self, key: str | None, record: Record) -> bool:
        """Keeps a record and applies it; False if its key was seen before.

        When this returns, the record survives the end of the process (see `fsync` for the machine's).
        """
        if key is not None and self.graph.has_seen(key):
            return False
        if self._may_write:
            self._dirty = True
            if self._file is not None:
                self._file.append([key, record])
            elif self._log is not None:
                self._log.append([key, record])
        self.graph.apply(key, record)
        if self._file is not None and self._may_write and self._file.should_compact:
            self._compact()
        return True

    def _compact(self) -> None:
        if self._file is not None and self._file.compact(self.graph.to_state()):
            self._dirty = False

    def refresh(self) -> None:
        """Takes in what other workers learned, if it is time to look."""
        if self._log is None or self._clock() - self._polled < POLL_SECONDS:
            return
        self._polled = self._clock()
        for entry in self._log.poll():
            self._apply_loaded(entry)

    def forget_user(self, user: str) -> int:
        """Removes a user from the graph and from what is kept of it; returns how many pieces were removed."""
        removed = self.graph.forget_user(user)
        if self._file is not None and self._may_write:
            self._compact()
        if self._log is not None and self._may_write:
            removed += self._log.rewrite(lambda entry: [entry[0], redact(entry[1], user)])
        return removed

    def close(self) -> None:
        """Writes a snapshot if anything changed, and lets go of the folder."""
        if self._file is not None:
            if self._may_write and self._dirty:
                self._compact()
            self._file.close()
