"""The part of `ToolMemory` that finds tools, plans, and changes the dependency graph: the verbs of its navigator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from langgraph_toolmem._recalling import PATIENCE, Recalling
from langgraph_toolmem.base.namespaces import has_user, resolve
from langgraph_toolmem.navigator import Navigator
from langgraph_toolmem.navigator.evidence import Evidence

if TYPE_CHECKING:
    from langgraph_toolmem.core.past_runs import PastRuns

P = ParamSpec("P")
R = TypeVar("R")


def _verb(method: Callable[Concatenate[Navigator, P], R]) -> Callable[Concatenate[Any, P], R]:
    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = getattr(self.navigator, method.__name__)(*args, **kwargs)
        return found

    return call


def _twin(method: Callable[Concatenate[Navigator, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = await asyncio.to_thread(getattr(self.navigator, method.__name__), *args, **kwargs)
        return found

    return call


def _searching(
    method: Callable[Concatenate[Navigator, P], Awaitable[R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await method(self.navigator, *args, **kwargs)

    return call


class Navigating(Recalling):
    """Finds complete chains of tools (NaviAgent, arXiv 2506.19500)."""

    search_tools = _verb(Navigator.search)
    plan = _verb(Navigator.plan)
    reroute = _verb(Navigator.reroute)
    prune = _verb(Navigator.prune)
    restore = _verb(Navigator.restore)
    pruned = _verb(Navigator.pruned)
    propagate = _verb(Navigator.propagate)
    cluster_constraints = _verb(Navigator.cluster_constraints)
    regroup = _verb(Navigator.regroup)
    asearch_tools = _searching(Navigator.asearch)
    aplan = _twin(Navigator.plan)
    areroute = _twin(Navigator.reroute)
    aprune = _twin(Navigator.prune)
    arestore = _twin(Navigator.restore)
    apruned = _twin(Navigator.pruned)
    apropagate = _twin(Navigator.propagate)
    acluster_constraints = _twin(Navigator.cluster_constraints)
    aregroup = _twin(Navigator.regroup)

    @property
    def navigator(self) -> Navigator:
        """What searches and plans in the tools of this memory."""
        with self._lock:
            if self._navigator is None:
                evidence = Evidence(
                    self._store,
                    tools=self._known_tools,
                    apply=lambda record: self._apply(None, record),
                    lock=self._lock,
                    now=self._now,
                )
                self._navigator = Navigator(
                    evidence, vectors=self._vectors, past_runs=self._past_runs, scorer=self._scorer
                )
            return self._navigator

    def _past_runs(self, user_id: str | None) -> tuple[tuple[str, ...], PastRuns] | None:
        from langgraph_toolmem.entries.past_runs import EntryRuns

        if not self._keeps_entries or self._vectors.empty or (user_id is None and has_user(self.namespace)):
            return None
        namespace = resolve(self.namespace, user_id)
        store = self._library.loaded(namespace, PATIENCE)
        return None if store is None else (namespace, EntryRuns(store))
