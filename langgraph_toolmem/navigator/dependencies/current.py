"""The dependency graph of a memory, in step with its tools, what runs showed of them, and what was decided."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from langgraph_toolmem.base import threads
from langgraph_toolmem.navigator.evidence import NavigatorSources, Outputs
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.stores.vectors import PARAMETERS, VectorStore, text_vectors

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
    from langgraph_toolmem.navigator.dependencies.vectors import ParameterVectors
    from langgraph_toolmem.text.meaning import Port

logger = logging.getLogger("langgraph_toolmem.navigator")

FRESH_SECONDS: Final = 1.0
"""Counts of the evidence graph are read anew at most this often."""


class CurrentGraph:
    """Safe for threads.

    Args:
        evidence: what the graph is made of.
        vectors: where the vectors of parameters are kept, and the embedder that says which mean the same; the built-in
            one: those with the same words.
        aliases: as for `ToolDependencyGraph`.
    """

    def __init__(
        self, evidence: NavigatorSources, vectors: VectorStore, aliases: Mapping[str, str] | None = None
    ) -> None:
        self._evidence, self._store, self._aliases = evidence, vectors, aliases
        self._vectors: ParameterVectors | None = None
        self._lock = threads.lock()
        self._graph: ToolDependencyGraph | None = None
        self._outputs: int | None = None
        self._history: tuple[float, History] | None = None

    @contextmanager
    def held(self) -> Iterator[ToolDependencyGraph]:
        """The graph as it is now. Nobody changes it meanwhile."""
        with self._lock:
            yield self._current()

    def prepare(self, ports: Iterable[Port]) -> None:
        """Embeds the meanings of known values; nobody waits for the graph meanwhile."""
        with self.held():
            vectors = self._vectors
        if vectors is not None:
            vectors.prepare(ports, again=False)

    def history(self, *, at_once: bool = False) -> History:
        """The counts of past runs, as they were at most `FRESH_SECONDS` ago.

        Args:
            at_once: as they are now, other workers' included.
        """
        now = time.monotonic()
        if at_once or self._history is None or now - self._history[0] > FRESH_SECONDS:
            self._history = now, self._evidence.history(at_once=at_once)
        return self._history[1]

    def expire(self) -> None:
        """Have the counts read anew when they are needed: what was decided changes them."""
        self._history = None

    def rebuilt(self) -> ToolDependencyGraph:
        """Another graph of the same tools. It may take seconds; the present one is free."""
        with self.held() as present:
            specs, observed = [node.spec for node in present.apis.values()], present.observed
        return self._made(specs, observed)

    def _current(self) -> ToolDependencyGraph:
        evidence = self._evidence
        specs, left_out = dict(evidence.tools()), evidence.left_out()
        if self._graph is None:
            self._vectors = self._vectors or self._meanings()
            self._outputs, observed = evidence.outputs(None)
            self._graph = self._made(specs.values(), observed)
            self._graph.leave_out(left_out)
        else:
            self._outputs, changed = evidence.outputs(self._outputs)
            follow(self._graph, specs, left_out, changed=changed, outputs_of=evidence.outputs_of)
        return self._graph

    def _made(self, specs: Iterable[ToolSpec], observed: Outputs) -> ToolDependencyGraph:
        from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph

        return ToolDependencyGraph(specs, aliases=self._aliases, vectors=self._vectors, observed=observed)

    def _meanings(self) -> ParameterVectors | None:
        kept = text_vectors(self._store, PARAMETERS)
        if kept is None:
            return None
        from langgraph_toolmem.navigator.dependencies.vectors import ParameterVectors

        return ParameterVectors(self._store.embedder, kept)


def follow(
    graph: ToolDependencyGraph,
    specs: Mapping[str, ToolSpec],
    left_out: frozenset[str],
    *,
    changed: Outputs,
    outputs_of: Callable[[Collection[str]], Outputs],
) -> None:
    """Brings a graph up to date.

    Args:
        graph: the graph.
        specs: the tools there are.
        left_out: those of them that are pruned.
        changed: what results look like, of tools where that changed.
        outputs_of: what results of some tools look like.
    """
    for name, seen in changed.items():
        graph.note_outputs(name, seen)
    if left_out != graph.left_out:
        graph.leave_out(left_out)
    for name in [name for name in graph.apis if name not in specs]:
        graph.remove(name)
    new = [spec for name, spec in specs.items() if name not in graph or graph.apis[name].spec != spec]
    if new:
        known = outputs_of([spec.name for spec in new])  # those of a tool that left were forgotten by the graph
        for spec in new:
            graph.note_outputs(spec.name, known.get(spec.name, {}))
        graph.update(new)
