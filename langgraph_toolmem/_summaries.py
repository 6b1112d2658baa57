"""Where `ToolMemory` keeps state summaries: in the graph until the run has a verdict, then in Chroma."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from langgraph_toolmem._core import MemoryCore
from langgraph_toolmem.base.errors import NamespaceError, StorageError
from langgraph_toolmem.base.failures import log_failure
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.base.namespaces import has_user, resolve, user_digest
from langgraph_toolmem.core.ledger import Booking
from langgraph_toolmem.graph.operations import GOOD, Count, Record
from langgraph_toolmem.runs.trajectory import Run, Turn
from langgraph_toolmem.sit.evidence import LATER, Draft, DraftsTaken

if TYPE_CHECKING:
    from langgraph_toolmem.sit.store import SummaryStore

logger = logging.getLogger("langgraph_toolmem.summaries")

MAX_STORES = 64
"""Users whose summaries are in RAM at once."""
REFRESH_SECONDS = 30.0
"""Where several processes write, their summaries are looked for this often."""
EDGE = "edge "
"""How the ledger calls a suggestion without a summary of its own: this, and the tool."""


class Summaries(MemoryCore):
    """Keeps the summaries of successful runs, and books what became of those that were shown.

    Chroma failing stops nobody: what could not be stored stays in the graph and is tried again.
    """

    def _summary_store(self, user_id: str | None) -> SummaryStore:
        """The summaries that a user may see. Raises NamespaceError if the namespace needs a user."""
        namespace = resolve(self.namespace, user_id)
        left: SummaryStore | None = None
        with self._lock:
            found = self._summary_stores.pop(namespace, None)
            if found is None:
                found = self._new_store(namespace)
                if len(self._summary_stores) >= MAX_STORES:
                    left = self._summary_stores.pop(next(iter(self._summary_stores)))
            self._summary_stores[namespace] = found  # the latest used is the last
        if left is not None:
            self._quietly("summaries could not be written", left.close)
        return found

    def _new_store(self, namespace: tuple[str, ...]) -> SummaryStore:
        from langgraph_toolmem.sit.store import SummaryStore  # numpy: only when summaries are used

        return SummaryStore(
            self._vectors.scoped(namespace),
            now=self._now,
            max_per_edge=self.sit.max_per_edge,
            merge_above=self.sit.merge_above,
            refresh=REFRESH_SECONDS if self._shared else None,
        )

    def _keep_summaries(self, run: Run, user_id: str | None, *, over: bool = False) -> None:
        """After a run was learned: books what became of what it was shown, and keeps its own if it is over."""
        self._ledger.flush()
        last = run.events[-1] if run.events else None
        ended = over or (isinstance(last, Turn) and not last.steps)
        if ended:
            self._settle_summaries(run.digest, user_id)

    def _settle_summaries(self, run: str, user_id: str | None) -> None:
        """Puts summaries where the verdict on their run says: with the others, or away.

        Those of `run` and those that were left over. What a user's namespace holds waits until that user is named.
        """
        if self._store.read_only or (user_id is None and has_user(self.namespace)):
            return
        with self._lock:
            now = run in self._walked.drafts and (self._graph.score(run) is not None or self.sit.unlabelled > 0)
            waiting = [run] if now else []
            waiting += [other for other in self._walked.drafts if other != run and self._due(other)]
            waiting = [each for each in waiting if self._mine(each, user_id)]
        for each in waiting:
            error = self._quietly("summaries could not be stored, and wait", partial(self._settle, each, user_id))
            if isinstance(error, StorageError):
                if now and each == run:
                    self._settle_later(run, user_digest(user_id))
                break  # Chroma is away, or holds what another embedder made: that is so for the others too

    def _due(self, run: str) -> bool:
        """Whether something of a run was left over."""
        return self._graph.score(run) is not None or (LATER in self._walked.drafts[run] and self.sit.unlabelled > 0)

    def _settle_later(self, run: str, user: str | None) -> None:
        with self._lock:
            if LATER not in self._walked.drafts.get(run, {}):
                self._apply(None, [_later(run, user)])

    def _mine(self, run: str, user_id: str | None) -> dict[str, list[str]]:
        """The summaries of a run that wait and belong where a user's are kept."""
        drafts = self._walked.drafts.get(run, {})
        if not has_user(self.namespace):
            return dict(drafts)
        mine = user_digest(user_id)
        return {step: draft for step, draft in drafts.items() if draft[-1] == mine}

    def _settle(self, run: str, user_id: str | None) -> None:
        from langgraph_toolmem.sit.summary import NewSummary

        with self._lock:
            drafts, good, before = self._mine(run, user_id), self._is_good(run), self._forgettings
            known = self._graph.has_seen(stored_key(run))
        new = [
            NewSummary(place, target, text, key=step, run=run, user=owner or None, made_by=made_by)
            for step, (place, target, text, made_by, owner) in drafts.items()
            if step != LATER
        ]
        store, kept = self._summary_store(user_id), 0
        if good and new:
            with self._lock:
                self._apply(stored_key(run), [])  # first: whatever happens then, they are looked for
            kept = sum(each is not None for each in store.add_many(new))
        elif not good and known and not self._vectors.empty:
            store.forget_run(run)
        with self._lock:
            fine = before == self._forgettings and good == self._is_good(run)
            if fine:
                self._apply(None, [DraftsTaken(run, list(drafts)), *([Count("summaries", kept)] if kept else [])])
        if not fine:  # forgotten or judged anew in between: from the beginning, with what is left
            store.forget_run(run)
            self._settle(run, user_id)

    def _is_good(self, run: str) -> bool:
        score = self._graph.score(run)
        return self.sit.unlabelled > 0 if score is None else score >= GOOD

    def _judged(self, run: str, score: float) -> Record:
        """What a verdict means for summaries: those of a run that turns out bad are to be taken out."""
        if score < GOOD and self._graph.has_seen(stored_key(run)):
            return [_later(run, self._graph.owner(run))]
        return []

    def _book_summaries(self, booking: Booking) -> None:
        ids = [key for key in booking.ids if not key.startswith(EDGE)]
        if ids and (booking.shown or booking.followed):
            store = self._summary_store(booking.user_id)
            store.book(ids, offered=booking.shown, followed=booking.followed, right=booking.right)

    def _forget_summaries(self, user_id: str) -> int:
        """Raises StorageError if some are still there. Summaries are counted where they wait, not here."""
        if self._vectors.empty:
            return 0
        store = self._summary_store(user_id)
        if has_user(self.namespace):
            store.drop()
        else:
            store.forget_user(str(user_digest(user_id)))
        store.scrub()
        return 0

    def _close_summaries(self) -> None:
        for store in self._summary_stores.values():
            self._quietly("summaries could not be written", store.close)
        self._summary_stores.clear()

    def _quietly(self, what: str, do: Callable[[], object]) -> Exception | None:
        """Does something that must not stop the caller; says once what failed, and returns it."""
        try:
            do()
        except NamespaceError as error:
            logger.debug("%s: no user is named", what)
            return error
        except Exception as error:  # noqa: BLE001 - whatever it is, learning and the host go on
            level = logging.DEBUG if what in self._warned else logging.WARNING
            self._warned.add(what)
            log_failure(logger, level, what, error=error)
            return error
        return None


def stored_key(run: str) -> str:
    """The key that says that summaries of a run were stored once."""
    return digest("stored", run)


def _later(run: str, user: str | None) -> Draft:
    """The operation that has a run's summaries looked at again."""
    return Draft(run, LATER, "", "", "", "", user)
