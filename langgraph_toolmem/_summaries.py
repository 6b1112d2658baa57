"""Where `ToolMemory` keeps state summaries: in the graph until the run has a verdict, then in Chroma."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from langgraph_toolmem._core import MemoryCore
from langgraph_toolmem.errors import NamespaceError, StorageError
from langgraph_toolmem.failures import log_failure
from langgraph_toolmem.graph.evidence import SCORE
from langgraph_toolmem.inertia.engine import run_scope
from langgraph_toolmem.keys import digest
from langgraph_toolmem.namespaces import has_user, resolve, user_digest
from langgraph_toolmem.trajectory import Run, Turn

if TYPE_CHECKING:
    from langgraph_toolmem.sit.store import SummaryStore

logger = logging.getLogger("langgraph_toolmem.summaries")

MAX_STORES = 64
"""Users whose summaries are in RAM at once."""
REFRESH_SECONDS = 30.0
"""Where several processes write, their summaries are looked for this often."""
GOOD = 0.5
"""Score from which a run is a successful one."""


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
        """After a run was learned: books what became of shown summaries, and keeps its own if it is over."""
        self._book(user_id)
        last = run.events[-1] if run.events else None
        ended = over or (isinstance(last, Turn) and not last.steps)
        if ended:
            self._settle_summaries(digest("run", run.run_id or run_scope(run)), user_id)

    def _settle_summaries(self, run: str, user_id: str | None) -> None:
        """Puts the summaries of a run where its verdict says: with the others, or away."""
        with self._lock:
            score = self._score(run)
            waiting = [run] if run in self._graph.drafts else []
            if has_user(self.namespace) and user_id is None:
                waiting = []  # whose they are is known as a digest only; they wait until the user is named
            else:
                waiting += [other for other in self._left_over(user_id) if other != run]
        if score is not None and score < GOOD and not waiting:
            self._quietly("summaries of a failed run could not be taken out", partial(self._take_out, run, user_id))
        for each in waiting:
            self._quietly("summaries could not be stored, and wait", partial(self._settle, each, user_id))

    def _left_over(self, user_id: str | None) -> list[str]:
        """Runs with a verdict whose summaries could not be stored before."""
        mine = user_digest(user_id)
        whose = {None, mine} if has_user(self.namespace) else None
        return [
            run
            for run, (owner, _) in self._graph.drafts.items()
            if self._score(run) is not None and (whose is None or owner in whose)
        ]

    def _settle(self, run: str, user_id: str | None) -> None:
        from langgraph_toolmem.sit.summary import NewSummary

        with self._lock:
            score = self._score(run)
            owner, drafts = self._graph.drafts.get(run, (None, {}))
            drafts = dict(drafts)
        if score is None and not self.sit.unlabelled:
            return
        if drafts and (score is None or score >= GOOD):
            self._summary_store(user_id).add_many(
                NewSummary(place, target, text, key=step, run=run, user=owner, made_by=made_by)
                for step, (place, target, text, made_by) in drafts.items()
            )
        with self._lock:
            self._apply(None, [["sm-", run]])

    def _take_out(self, run: str, user_id: str | None) -> None:
        if not self._vectors.empty:
            self._summary_store(user_id).forget_run(run)

    def _score(self, run: str) -> float | None:
        entry = self._graph.runs.get(run)
        return None if entry is None else entry[SCORE]

    def _book(self, user_id: str | None) -> None:
        with self._lock:
            bookings, self._bookings = self._bookings, []
        for tools, ids, followed, right in bookings:
            shown = [key for tool, key in zip(tools, ids, strict=False) if key and tool in followed]
            if shown:
                self._quietly(
                    "the record of a summary could not be kept", partial(self._book_one, shown, right, user_id)
                )

    def _book_one(self, shown: list[str], right: int, user_id: str | None) -> None:
        self._summary_store(user_id).book(shown, followed=1, right=right)

    def _forget_summaries(self, user_id: str) -> None:
        """Raises StorageError if some are still there."""
        if self._vectors.empty:
            return
        store = self._summary_store(user_id)
        store.forget_user(str(user_digest(user_id)))
        if has_user(self.namespace):
            with self._lock:
                self._summary_stores.pop(resolve(self.namespace, user_id), None)

    def _close_summaries(self) -> None:
        for store in self._summary_stores.values():
            self._quietly("summaries could not be written", store.close)
        self._summary_stores.clear()

    def _quietly(self, what: str, do: Callable[[], object]) -> None:
        """Does something that must not stop the caller; says once what failed."""
        try:
            do()
        except NamespaceError:
            logger.debug("%s: no user is named", what)
        except StorageError as error:
            level = logging.DEBUG if what in self._warned else logging.WARNING
            self._warned.add(what)
            log_failure(logger, level, what, error=error)
