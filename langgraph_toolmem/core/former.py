"""Rows that the version before kept in Chroma are taken over, in the background, once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.core.ledger import NO_TRACK, Tracked
from langgraph_toolmem.core.users import User

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.core.rows import Rows
    from langgraph_toolmem.stores.items import Hit
    from langgraph_toolmem.stores.job_queue import Job
    from langgraph_toolmem.stores.manifest import Label

logger = logging.getLogger("langgraph_toolmem.former")

FORMER: Final = "take over"
"""Kind of jobs."""
DERIVED: Final = ("tools", "atom_texts")
"""Kinds that can be made anew from others, and are."""


class TakeOver:
    """Takes over what the version before kept; what is not taken stays where it is.

    Args:
        core: of the memory, its methods open.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.taken: dict[str, int] = {}
        core.jobs.handle(FORMER, self.do)

    def begin(self) -> None:
        """Puts the job, if there is something to take over."""
        if self._core.vectors.former and not self._core.read_only:
            self._core.jobs.put(FORMER, {}, key=FORMER, line="")

    def do(self, _job: Job | None = None) -> None:
        """Does it, page by page; done again after it was cut off, nothing is there twice."""
        kinds: dict[str, Rows[Any]] = {
            rows.kind.name: rows for listener in self._core.listeners for rows in listener.rows_kept()
        }

        def take(label: Label, page: list[tuple[Hit, list[float] | None]]) -> bool:
            rows = kinds.get(label.kind)
            if rows is not None:
                self._take(rows, User(None, None, label.namespace), page)
                self.taken[label.kind] = self.taken.get(label.kind, 0) + len(page)
            return rows is not None or label.kind in DERIVED

        self._core.vectors.take_former(take)
        if self.taken:
            told = ", ".join(f"{number:,} {kind}" for kind, number in self.taken.items())
            logger.info("taken over from the version before: %s", told)

    def _take(self, rows: Rows[Any], user: User, page: list[tuple[Hit, list[float] | None]]) -> None:
        ids = rows.take_in(page, user)
        tracks = {rows.key(key, user): list(rows.kind.former_track(hit)) for key, (hit, _) in ids.items()}
        known = {key: track for key, track in tracks.items() if track != list(NO_TRACK)}
        core = self._core
        if known:
            with core.lock:
                core.apply(digest("former", rows.kind.name, *user.namespace, *known), [Tracked(rows.method, known)])
