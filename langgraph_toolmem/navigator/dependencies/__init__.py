"""The tool dependency graph (NaviAgent, arXiv 2506.19500, section 2): who can give what to whom.

``nodes``    tools, and the parameters that they share
``graph``    tools and parameters together, and the links between them
``routes``   links by the paths of HTTP routes
``links``    how likely a link works: structure, record, training
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from langgraph_toolmem.base import threads
from langgraph_toolmem.navigator.evidence import NavigatorSources, Outputs
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.runs.tools import ToolSpec

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph

FRESH_SECONDS: Final = 1.0
"""Counts of the evidence graph are read anew at most this often."""


class _ReadCounts(NamedTuple):
    """Counts of past runs, and when they were read, in seconds of the monotonic clock."""

    when: float
    history: History


class CurrentGraph:
    """The graph of one memory, made when it is first needed. Safe for threads."""

    def __init__(self, evidence: NavigatorSources, aliases: Mapping[str, str] | None = None) -> None:
        self._evidence, self._aliases = evidence, aliases
        self._lock = threads.lock()
        self._graph: ToolDependencyGraph | None = None
        self._specs: Mapping[str, ToolSpec] | None = None
        self._outputs: int | None = None
        self._counts: _ReadCounts | None = None

    @contextmanager
    def held(self) -> Iterator[ToolDependencyGraph]:
        """Give the graph as it is now. Nobody changes it meanwhile."""
        with self._lock:
            yield self._current()

    def history(self, *, at_once: bool = False) -> History:
        """Return the counts of past runs, at most `FRESH_SECONDS` old; `at_once`: as they are now."""
        now, counts = time.monotonic(), self._counts
        # Without the lock: a plan holds it for as long as it searches.
        if at_once or counts is None or now - counts.when > FRESH_SECONDS:
            counts = self._counts = _ReadCounts(now, self._evidence.history(at_once=at_once))
        return counts.history

    def expire(self) -> None:
        """Have the counts read anew when they are needed: what was decided changes them."""
        self._counts = None

    def rebuilt(self) -> ToolDependencyGraph:
        """Return another graph of the same tools. It may take seconds; the present one is free."""
        with self.held() as present:
            specs, observed = [node.spec for node in present.apis.values()], present.observed
        return self._made(specs, observed)

    def _current(self) -> ToolDependencyGraph:
        """Return the graph with what changed since the last time; tools that did not are not read again."""
        specs, left_out = self._evidence.tools(), self._evidence.left_out()
        seen = self._evidence.outputs(self._outputs)
        self._outputs = seen.version
        outputs = seen.outputs or {}
        graph = self._graph
        if graph is None:
            graph = self._graph = self._made(specs.values(), outputs)
        for tool, paths in outputs.items():
            graph.note_outputs(tool, paths)
        if left_out != graph.left_out:
            graph.exclude(left_out)
        if specs is not self._specs:
            self._specs = specs
            _follow(graph, specs)
        return graph

    def _made(self, specs: Iterable[ToolSpec], observed: Outputs) -> ToolDependencyGraph:
        from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph

        return ToolDependencyGraph(specs, aliases=self._aliases, observed=observed)


def _follow(graph: ToolDependencyGraph, specs: Mapping[str, ToolSpec]) -> None:
    """Make these the tools of a graph."""
    for name in graph.apis.keys() - specs.keys():
        graph.remove(name)
    changed = []
    for name, spec in specs.items():
        node = graph.apis.get(name)
        # Identity first: comparing two schemas of a large API takes as long as reading one.
        if node is None or (node.spec is not spec and node.spec != spec):
            changed.append(spec)
    graph.update(changed)
