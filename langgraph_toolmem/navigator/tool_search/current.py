"""The search over the tools that a memory knows now, with what its runs showed of them and of similar requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError, log_failure
from langgraph_toolmem.core.method import PastRuns
from langgraph_toolmem.navigator.evidence import NavigatorSources
from langgraph_toolmem.navigator.tool_search.hit import ToolHit
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.stores.vectors import TOOLS, VectorStore, text_vectors

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.dependencies.links import EdgeScorer
    from langgraph_toolmem.navigator.tool_search.precedents import PrecedentCache, Precedents
    from langgraph_toolmem.navigator.tool_search.prerequisites import PrerequisiteSearch
    from langgraph_toolmem.navigator.tool_search.search import ToolSearch

logger = logging.getLogger("langgraph_toolmem.navigator")

PastRunsOf = Callable[[str | None], tuple[tuple[str, ...], PastRuns] | None]
"""The past runs of a user with the scope they belong to; None if there are none, or they cannot be read now."""


class CurrentSearch:
    """Safe for threads.

    Args:
        evidence: which tools there are, and what results look like.
        past_runs: whose requests and calls are precedents.
        vectors: where the tools' vectors are kept, and the embedder for searching by meaning; the built-in one: by
            words alone.
        scorer: gives what weighs links; how likely tools feed the target of a search.
    """

    def __init__(
        self,
        evidence: NavigatorSources,
        past_runs: PastRunsOf,
        vectors: VectorStore,
        scorer: Callable[[], EdgeScorer | None] = lambda: None,
    ) -> None:
        self._evidence, self._past_runs, self._vectors, self._scorer = evidence, past_runs, vectors, scorer
        self._made: PrerequisiteSearch | None = None
        self._precedents: PrecedentCache | None = None
        self._lock = threads.lock()
        self._specs: Mapping[str, ToolSpec] | None = None
        self._outputs: int | None = None
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
        """See `Navigator.search`; `exclude`: names that are not looked for; `request`: the user's words where the query
        is the model's: runs with such requests count as those with such a query do."""
        search, precedents = self.current(), self.precedents(user_id)
        if target is None:
            exclude = {*exclude, *self._evidence.left_out()}
            lift = None if precedents is None else precedents.lift(query)
            if precedents is not None and lift is not None and request:
                also = precedents.lift(request)
                lift = {name: max(lift.get(name, 0.0), also.get(name, 0.0)) for name in {**lift, **also}}
            return search.tools.search(query, k, available=available, exclude=exclude, lift=lift)
        barred = self._barred(search.tools, target, available)
        return search.search(query, target, k, exclude=barred, precedents=precedents, likely=self._likely(target))

    async def asearch(
        self,
        query: str,
        k: int,
        *,
        available: Collection[str] | None = None,
        target: str | None = None,
        user_id: str | None = None,
    ) -> list[ToolHit]:
        """Async variant of `search`; the embedder is asked by its async methods."""
        search = await asyncio.to_thread(self.current)
        precedents = await asyncio.to_thread(self.precedents, user_id)
        if target is None:
            lift = None if precedents is None else precedents.lift(query)
            exclude = self._evidence.left_out()
            return await search.tools.asearch(query, k, available=available, exclude=exclude, lift=lift)
        barred = self._barred(search.tools, target, available)
        likely = await asyncio.to_thread(self._likely, target)
        return await search.asearch(query, target, k, exclude=barred, precedents=precedents, likely=likely)

    def current(self) -> PrerequisiteSearch:
        """The search, over the tools known now."""
        with self._lock:
            if self._made is None:
                from langgraph_toolmem.navigator.tool_search.prerequisites import PrerequisiteSearch
                from langgraph_toolmem.navigator.tool_search.search import ToolSearch

                kept = text_vectors(self._vectors, TOOLS)
                self._made = PrerequisiteSearch(ToolSearch(embedder=self._vectors.embedder, vectors=kept))
            specs = self._evidence.tools()
            if self._specs is not specs:
                self._made.tools.follow(specs)
                self._specs = specs
            self._outputs, changed = self._evidence.outputs(self._outputs)
            self._made.note_outputs(changed)
            return self._made

    def precedents(self, user_id: str | None) -> Precedents | None:
        """Return what a user's past runs say; None if there are none, or they cannot be read: the log says so once."""
        try:
            found = self._past_runs(user_id)
            if found is None:
                return None
            with self._lock:
                if self._precedents is None:
                    from langgraph_toolmem.navigator.tool_search.precedents import PrecedentCache

                    self._precedents = PrecedentCache()
                return self._precedents.of(*found)
        except NamespaceError:
            raise
        except Exception as error:  # noqa: BLE001 - tools are found without past runs
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            log_failure(logger, level, "past runs could not be read for a search of tools", error=error)
            return None

    def forget(self, scope: tuple[str, ...]) -> None:
        """Drop what is in RAM of the past runs of a scope."""
        with self._lock:
            if self._precedents is not None:
                self._precedents.forget(scope)

    def _likely(self, target: str) -> Mapping[str, float]:
        scorer = self._scorer()
        return {} if scorer is None else scorer.before(target)

    def _barred(self, tools: ToolSearch, target: str, available: Collection[str] | None) -> set[str]:
        specs = tools.specs()
        if target not in specs:
            raise ConfigurationError(f"The memory knows no tool {target!r}.")
        missing = () if available is None else (name for name in specs if name not in available)
        return {*self._evidence.left_out(), *missing}
