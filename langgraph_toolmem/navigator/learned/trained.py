"""The table of a trained link scorer (``links-hgt.npz``, from `hgt`): what plans read, and what training needs.

It is used if it tells held-out links better than structure does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import StorageError, log_failure
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.method import Section, TextTable
from langgraph_toolmem.graph.view import START
from langgraph_toolmem.navigator.dependencies.current import CurrentGraph
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.stores.vectors import LINKS, text_vectors

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.learned.scorer import LearnedLinks
    from langgraph_toolmem.navigator.learned.views import Ints, Views

logger = logging.getLogger("langgraph_toolmem.navigator")

HGT: Final = "links-hgt.npz"
LEAST_LINKS: Final = 40
"""Different links from which something is learned."""
EXPORTED: Final = 1_024
"""Consumers whose links are weighed beforehand, those that were called most first."""
SHOWN: Final = 5


class TrainedLinks:
    """Keeps and gives the trained scorer of a memory. Safe for threads.

    Args:
        core: of the memory.
        graph: its dependency graph and history.
    """

    def __init__(self, core: Core, graph: CurrentGraph) -> None:
        self._core, self._graph = core, graph
        self._lock = threads.lock()
        self._in_ram: dict[str, bytes] = {}
        self._known: dict[str, tuple[object, Mapping[str, ToolSpec], LearnedLinks | None]] = {}
        self._told: set[str] = set()

    # --- using ---

    def scorer(self) -> LearnedLinks | None:
        """The trained table, if it is better than structure alone; None: there is none, or it does not fit."""
        found = self._of(HGT)
        return found if found is not None and found.manifest["learned"] > found.manifest["structural"] else None

    def _of(self, name: str) -> LearnedLinks | None:
        specs = self._core.catalogue.known
        with self._lock:
            version, kept = (self._stamp(name), len(specs)), self._known.get(name)
            if kept is None or kept[0] != version or not (kept[1] is specs or kept[1] == specs):
                kept = self._known[name] = version, specs, self._read(name, specs)
            return kept[2]

    def _stamp(self, name: str) -> object:
        path = self.path(name)
        if path is None:
            return id(self._in_ram[name]) if name in self._in_ram else None
        try:
            said = path.stat()
        except OSError:
            return None
        return said.st_mtime_ns, said.st_size, said.st_ino

    def _read(self, name: str, specs: Mapping[str, ToolSpec]) -> LearnedLinks | None:
        path = self.path(name)
        if self._stamp(name) is None:
            return None
        from langgraph_toolmem.navigator.learned.arrays import loaded, read_arrays
        from langgraph_toolmem.navigator.learned.scorer import LearnedLinks

        try:
            data = self._in_ram.get(name) if path is None else read_arrays(path)
            if data is None:
                return None
            return LearnedLinks(*loaded(data, str(path or name)), specs, self._core.vectors.embedder.name)
        except StorageError as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                log_failure(logger, logging.INFO, "learned links are not used", error=error)
            return None

    def path(self, name: str) -> Path | None:
        """Where a table is kept; None: in RAM."""
        home = self._core.home
        return None if home is None else home / name

    # --- training ---

    def snapshot(self) -> tuple[ToolDependencyGraph, History]:
        """A dependency graph of one's own, and the counts of past runs."""
        return self._graph.rebuilt(), self._graph.history(at_once=True)

    def manifest(self, links: int) -> dict[str, Any]:
        """What every table says of how it was made."""
        return {"embedder": self._core.vectors.embedder.name, "links": links, "made": self._core.now()}

    def keep(self, name: str, data: bytes) -> None:
        """Keeps a table; it is used from now on. Raises StorageError if the folder cannot be written."""
        from langgraph_toolmem.navigator.learned.arrays import save_arrays

        path = self.path(name)
        if path is None:
            self._in_ram[name] = data
        else:
            save_arrays(path, data)

    def embed(self, texts: Mapping[str, str]) -> Mapping[str, Sequence[float]]:
        """Vectors of texts, kept where that is worth while."""
        kept = text_vectors(self._core.vectors, LINKS)
        if kept is not None:
            return kept.of(texts)
        return dict(zip(texts, self._core.vectors.embedder.embed_documents(list(texts.values())), strict=True))

    # --- being looked at ---

    def report(self) -> Section | None:
        """What was learned and which links it foresees; None if nothing was."""
        used = self.scorer()
        if used is None:
            return None
        said = used.manifest
        foreseen = used.likeliest(links_of(self._graph.history()), SHOWN)
        figures = {
            "scorer": said["model"],
            "links": said["links"],
            "learned": said["learned"],
            "structural": said["structural"],
            "predicted": [{"producer": a, "consumer": b, "probability": round(p, 4)} for a, b, p in foreseen],
        }
        sentence = (
            f"Links between tools: {said['links']:,} learned ({said['model']}); of other producers "
            f"{said['learned']:.0%} rank below the right one of a link it had not seen, {said['structural']:.0%} by "
            f"structure alone."
        )
        rows = tuple((a, b, f"{p:.0%}") for a, b, p in foreseen)
        table = TextTable("Links not seen yet that are likely", ("an output of", "feeds", "probability"), rows)
        return Section("Navigator", figures, (sentence,), (table,) if rows else ())


def links_of(history: History) -> set[tuple[str, str]]:
    """The links that runs have shown: one tool well after another one, or fed by it."""
    found = {edge for edge, count in history.transitions.items() if count > 0}
    found |= {(flow.source, flow.target) for flow, count in history.flows.items() if count > 0}
    return {(producer, consumer) for producer, consumer in found if producer != consumer and producer != START}


def numbered(links: set[tuple[str, str]], views: Views) -> Ints:
    """(L, 2) links between known tools, as numbers."""
    import numpy as np

    places = views.places
    pairs = sorted((places[a], places[b]) for a, b in links if a in places and b in places)
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
