"""The part of `ToolMemory` that finds tools by what is to be done."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from langgraph_toolmem._recalling import PATIENCE, Recalling
from langgraph_toolmem.base.checks import is_count
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.namespaces import has_user, resolve
from langgraph_toolmem.runs.tool_note import spec_of
from langgraph_toolmem.runs.tools import ToolSpec

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.search import ToolSearch
    from langgraph_toolmem.navigator.search_chain import ChainSearch
    from langgraph_toolmem.navigator.search_history import Precedents
    from langgraph_toolmem.navigator.search_hit import ToolHit

TARGETS: Final = 3
"""Tools that a request is taken to be about (NaviAgent, arXiv 2506.19500)."""


class Searching(Recalling):
    """Finds the tools that a request needs."""

    def search_tools(
        self,
        query: str,
        *,
        k: int = 5,
        available: Collection[str] | None = None,
        target: str | None = None,
        user_id: str | None = None,
    ) -> list[ToolHit]:
        """The tools that a request needs most likely, all of them: in the order in which they complete a set.

        A compound request is searched clause by clause, and tools of one toolkit lift each other. By words; with an
        embedder by meaning, too: then the tools' vectors are made at the first search and kept in Chroma, and a
        next process with the same tools embeds the request only. If the embedder or Chroma fails, by words alone,
        and the log says so once. Finished runs with similar requests (`finish`) lift the tools that they called, as
        far as such runs were right before. A memory that was opened without tools searches those that it knows from
        before. Tools that pruning left out are not found, and a greeting finds nothing.

        Args:
            query: the user's words, or what a tool should do.
            k: tools, at most; fewer if fewer have anything to do with the query.
            available: names of the tools that may be found; all known ones if None.
            target: the tool that the request ends with: found are those that are called before it, by the request,
                by what gives it its values, and by finished runs.
            user_id: whose runs, where the namespace keeps users apart; None: there no runs are looked at.

        Raises:
            ConfigurationError: an argument cannot work.
            EmbedderChangedError: stored vectors were made by another embedder.
        """
        _check(query, k, available, target)
        search, chains = self._searched()
        past = self._precedents(user_id)
        if target is None:
            lift = None if past is None else past.lift(query)
            return search.search(query, k, available=available, exclude=self._left_out(), lift=lift)
        exclude = self._barred(search, target, available)
        return chains.upstream(query, target, k, exclude=exclude, precedents=past)

    async def _asearch_tools(
        self, query: str, *, k: int, available: Collection[str] | None, target: str | None, user_id: str | None
    ) -> list[ToolHit]:
        _check(query, k, available, target)
        search, chains = await asyncio.to_thread(self._searched)
        past = await asyncio.to_thread(self._precedents, user_id)
        if target is None:
            lift = None if past is None else past.lift(query)
            return await search.asearch(query, k, available=available, exclude=self._left_out(), lift=lift)
        exclude = self._barred(search, target, available)
        return await chains.aupstream(query, target, k, exclude=exclude, precedents=past)

    def _searched(self) -> tuple[ToolSearch, ChainSearch]:
        """The searches, over the tools known now."""
        from langgraph_toolmem.navigator.search import ToolSearch
        from langgraph_toolmem.navigator.search_chain import ChainSearch
        from langgraph_toolmem.stores.tool_vectors import ToolVectors

        with self._finding:
            specs = self._known_tools()
            if self._tool_search is None:
                embedder = self._vectors.embedder
                kept = None if embedder.builtin else ToolVectors(self._vectors, read_only=self._store.read_only)
                search = ToolSearch(embedder=embedder, vectors=kept)
                self._tool_search = search, ChainSearch(search)
                self._tool_search[1].note_outputs(self._outputs_for_search(first=True))
            if self._followed is not specs:
                self._tool_search[0].follow(specs)
                self._followed = specs
            self._tool_search[1].note_outputs(self._outputs_for_search())
            return self._tool_search

    def _outputs_for_search(self, *, first: bool = False) -> dict[str, Iterable[str]]:
        """Tool -> paths of its results, as runs showed them; of those that are new to the search."""
        with self._lock:
            self._outputs_searched, changed = self._used.outputs_since(self._outputs_searched)
            return {**self._used.usable_outputs(self._used.outputs if first else changed)}

    def _precedents(self, user_id: str | None) -> Precedents | None:
        """What finished runs say; None if there are none, or they are still being read, or cannot be."""
        if not self._keeps_entries or self._vectors.empty or (user_id is None and has_user(self.namespace)):
            return None
        found: list[Precedents | None] = []
        read = partial(self._past_of, resolve(self.namespace, user_id))
        self._quietly("past runs could not be read for a search of tools", lambda: found.append(read()))
        return found[0] if found else None

    def _past_of(self, namespace: tuple[str, ...]) -> Precedents | None:
        from langgraph_toolmem.navigator.search_past import PastRuns

        store = self._library.loaded(namespace, PATIENCE)
        if store is None:
            return None
        with self._finding:
            if self._past is None:
                self._past = PastRuns()
            return self._past.of(namespace, store)

    def _barred(self, search: ToolSearch, target: str, available: Collection[str] | None) -> set[str]:
        specs = search.specs()
        if target not in specs:
            raise ConfigurationError(f"The memory knows no tool {target!r}.")
        return {*self._left_out(), *(() if available is None else (name for name in specs if name not in available))}

    def _left_out(self) -> Collection[str]:
        with self._lock:
            return self._used.left_out()

    def _known_tools(self) -> Mapping[str, ToolSpec]:
        """The tools at hand; of a memory that nobody gave any, those that were described to it before, or called."""
        with self._lock:
            if self._adopted:
                return self._engine.specs
            self._store.refresh()
            specs = dict(self._engine.specs)
            for name, entry in self._graph.tools.items():
                if (parameters := entry.get("parameters")) is not None:
                    known = self._described.get(name)
                    if (
                        known is None
                        or known[0] is not parameters
                        or known[1].description != entry.get("description", "")
                    ):
                        known = self._described[name] = parameters, spec_of(name, entry)
                    specs[name] = known[1]
            return specs

    def _targets(self, query: str, out: Collection[str], user_id: str | None = None) -> list[str]:
        """The tools that a request is about, best first; none of those in `out`, none if it asks for nothing."""
        from langgraph_toolmem.navigator.offering import targets_of

        search, _ = self._searched()
        past = self._precedents(user_id)
        lift = None if past is None else past.lift(query)
        return targets_of(search.search(query, TARGETS, exclude={*out, *self._left_out()}, lift=lift))


def _check(query: object, k: object, available: object, target: object) -> None:
    if not isinstance(query, str):
        raise ConfigurationError(f"query is a text, not {type(query).__name__}.")
    if not is_count(k, 0):
        raise ConfigurationError(f"k is a whole number from 0, not {k!r}.")
    if available is not None:
        check_names("available", available)
    if not isinstance(target, (str, type(None))):
        raise ConfigurationError(f"target is the name of one tool, not {target!r}.")


def check_names(what: str, names: object) -> None:
    """Raises ConfigurationError if these are no names of tools: a list, set or other collection of texts."""
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ConfigurationError(f"{what} is a collection of names of tools, not {names!r}.")
    if not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"{what} holds something that is no name of a tool.")
