"""Search for the tools that a request needs: a ranking of the whole catalogue, by words and by meaning.

``search``      BM25, the catalogue, the signals of a tool and its toolkit, and their weights
``precedents``  tools of similar requests in past runs; the tools that are called before a given one

Here: the search over the tools that a memory knows now, with what similar requests called in its runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError, log_failure
from langgraph_toolmem.core.method import PastRuns
from langgraph_toolmem.navigator.evidence import NavigatorSources
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.stores.vectors import TextVectors, VectorStore

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.tool_search.precedents import PrecedentCache, Precedents
    from langgraph_toolmem.navigator.tool_search.search import ToolHit, ToolSearcher

logger = logging.getLogger("langgraph_toolmem.navigator")

TARGETS: Final = 3
"""Tools that a request is taken to be about (NaviAgent, arXiv 2506.19500)."""
LEAST_TARGET: Final = 0.3
"""Part of the best hit's score that a hit must reach to be one of them. To be shown to a model it need not reach any:
on public requests a bound of 0.05 lost a fifth of the needed tools where there are few, and of 20 it saved a half."""


def targets_of(hits: Sequence[ToolHit]) -> list[str]:
    """Return the tools that a request is about: those that are about as likely as the likeliest."""
    best = max((hit.score for hit in hits), default=0.0)
    return [hit.name for hit in hits if hit.score >= LEAST_TARGET * best]


class ScopedRuns(NamedTuple):
    """Past runs, and the scope (the namespace) that they belong to."""

    scope: tuple[str, ...]
    runs: PastRuns


PastRunsOf = Callable[[str | None], ScopedRuns | None]
"""The past runs of a user; None if there are none, or they cannot be read now."""


class CurrentSearch:
    """The search of one memory; numpy is loaded at the first search. Safe for threads."""

    def __init__(self, evidence: NavigatorSources, past_runs: PastRunsOf, vectors: VectorStore) -> None:
        self._evidence, self._past_runs, self._vectors = evidence, past_runs, vectors
        self._searcher: ToolSearcher | None = None
        self._specs: Mapping[str, ToolSpec] | None = None
        self._precedents: PrecedentCache | None = None
        self._lock = threads.lock()
        self._warned = False

    def search(
        self,
        query: str,
        k: int,
        *,
        available: Collection[str] | None = None,
        exclude: Collection[str] = (),
        target: str | None = None,
        user_id: str | None = None,
        request: str = "",
    ) -> list[ToolHit]:
        """Search; see `Navigator.search`. Where the query is a model's, `request` has the user's words."""
        searcher, precedents = self.current(), self.precedents(user_id)
        exclude = {*exclude, *self._evidence.left_out()}
        if target is not None:
            from langgraph_toolmem.navigator.tool_search.precedents import Precedents, called_before

            if target not in searcher.specs:
                raise ConfigurationError(f"The memory knows no tool {target!r}.")
            known = precedents or Precedents()
            return called_before(searcher, query, target, k, precedents=known, available=available, exclude=exclude)
        lift: dict[str, float] = {}
        if precedents is not None:
            lift = precedents.lift(query)
            # The larger lift counts, not the sum: both texts speak of one request.
            for name, more in precedents.lift(request).items():
                lift[name] = max(lift.get(name, 0.0), more)
        return searcher.search(query, k, available=available, exclude=exclude, lift=lift)

    def current(self) -> ToolSearcher:
        """Return the search over the tools known now."""
        with self._lock:
            if self._searcher is None:
                from langgraph_toolmem.navigator.tool_search.search import ToolSearcher

                embedder = self._vectors.embedder
                kept: TextVectors | None = None
                # The built-in embedder's vectors say no more than words do.
                if not embedder.builtin:
                    kept = TextVectors(self._vectors, "tools")
                self._searcher = ToolSearcher(embedder=embedder, vectors=kept)
            specs = self._evidence.tools()
            # The same object until a tool changes: nothing has to be compared at each search.
            if self._specs is not specs:
                self._searcher.follow(specs)
                self._specs = specs
            return self._searcher

    def precedents(self, user_id: str | None) -> Precedents | None:
        """Return the precedents of a user's past runs; None without runs. If reading fails, the log says so once."""
        try:
            past = self._past_runs(user_id)
            if past is None:
                return None
            with self._lock:
                if self._precedents is None:
                    from langgraph_toolmem.navigator.tool_search.precedents import PrecedentCache

                    self._precedents = PrecedentCache()
                return self._precedents.of(past.scope, past.runs)
        except NamespaceError:
            raise
        except Exception as error:  # noqa: BLE001 - tools are found without past runs
            level = logging.WARNING
            if self._warned:
                level = logging.DEBUG
            self._warned = True
            log_failure(logger, level, "past runs could not be read for a search of tools", error=error)
            return None

    def forget(self) -> None:
        """Drop what is in RAM of past runs."""
        with self._lock:
            self._precedents = None
