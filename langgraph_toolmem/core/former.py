"""Rows that the version before kept in Chroma are taken over, in the background, once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base import locks
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.core.ledger import NO_TRACK, Tracked
from langgraph_toolmem.core.users import User

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph_toolmem.core.evidence import Evidence
    from langgraph_toolmem.core.jobs import Jobs
    from langgraph_toolmem.core.listener import Listener
    from langgraph_toolmem.core.rows import Rows
    from langgraph_toolmem.stores.items import Hit
    from langgraph_toolmem.stores.job_queue import Job
    from langgraph_toolmem.stores.manifest import Label
    from langgraph_toolmem.stores.vectors import VectorStore

logger = logging.getLogger("langgraph_toolmem.former")

FORMER: Final = "take over"
"""Kind of jobs."""
DERIVED: Final = ("tools", "atom_texts")
"""Kinds that can be made anew from others, and are."""


class TakeOver:
    """Takes over what the version before kept; what is not taken stays where it is.

    Args:
        evidence: gets the records.
        vectors: Chroma.
        jobs: it is done there.
        listeners: the methods, whose rows they are.
    """

    def __init__(self, evidence: Evidence, vectors: VectorStore, jobs: Jobs, listeners: Sequence[Listener]) -> None:
        self._evidence, self._vectors, self._jobs, self._listeners = evidence, vectors, jobs, listeners
        self.taken: dict[str, int] = {}
        self._doing = locks.lock()
        jobs.handle(FORMER, self.do)

    def begin(self) -> None:
        """Puts the job, if there is something to take over."""
        if self._vectors.former and not self._evidence.read_only:
            self._jobs.put(FORMER, {}, key=FORMER, line="")

    def refuse_if_waiting(self) -> int:
        """For who is to be forgotten: what was not taken over yet may hold something of them.

        Raises:
            StorageError: it was not.
        """
        if self._jobs.any and self._jobs.queue.pending((FORMER,)):
            raise StorageError(
                "What the version before kept was not taken over yet. Wait (`flush`) or type `toolmem migrate`, and "
                "forget again."
            )
        return 0

    def do(self, _job: Job | None = None) -> None:
        """Does it, page by page; done again after it was cut off, nothing is there twice."""
        kinds: dict[str, Rows[Any]] = {
            rows.kind.name: rows for listener in self._listeners for rows in listener.rows_kept()
        }

        def take(label: Label, page: list[tuple[Hit, list[float] | None]]) -> bool:
            rows = kinds.get(label.kind)
            if rows is not None:
                kept = self._take(rows, User(None, None, label.namespace), page)
                self.taken[label.kind] = self.taken.get(label.kind, 0) + kept
            return rows is not None or label.kind in DERIVED

        with self._doing:
            self._vectors.take_former(take)
        if self.taken:
            told = ", ".join(f"{number:,} {kind}" for kind, number in self.taken.items())
            logger.info("taken over from the version before: %s", told)

    def _take(self, rows: Rows[Any], user: User, page: list[tuple[Hit, list[float] | None]]) -> int:
        ids = rows.take_in(page, user)
        tracks = {rows.key(key, user): list(rows.kind.former_track(hit)) for key, (hit, _) in ids.items()}
        known = {key: track for key, track in tracks.items() if track != list(NO_TRACK)}
        evidence = self._evidence
        if known:
            with evidence.lock:
                evidence.apply(digest("former", rows.kind.name, *user.namespace, *known), [Tracked(rows.method, known)])
        return len(ids)
