"""What was learned, as a scorer of links: probabilities in a table that needs no model any more.

A table has a row for each consumer: producers with p(a→b). It is kept in the memory's folder with a manifest and
verified when it is read: the embedder must be the same, tools that changed since have no opinion, and if most did, the
table is refused. What a row does not hold is no opinion either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import EdgeScorer, Known, Link, likeness
from langgraph_toolmem.navigator.learned.arrays import Array
from langgraph_toolmem.navigator.learned.views import Views
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import Port

LEAST: Final = 0.4
"""Probability from which a link is proposed to plans."""
TOLD: Final = 0.2
"""Probability from which a link is told of."""
OPTIONAL: Final = 0.7
"""What the fit of an optional input counts."""
_SAME_TOOLS: Final = 0.5


class LearnedLinks(EdgeScorer):
    """Learned probabilities of links between tools.

    Args:
        manifest: who made the table and how good it was: "model", "embedder", "links", "learned", "structural" …
        arrays: "names" (their text), "digests" (N, 8), "starts" (C + 1), "consumers" (C), "producers" and
            "probabilities" (both one after another, likeliest first); optionally of parameters, see `parameter_table`.
        specs: the tools there are.
        embedder: name of the present one.

    Raises:
        StorageError: the table cannot be used, and why.
    """

    def __init__(
        self, manifest: Mapping[str, Any], arrays: Mapping[str, Array], specs: Mapping[str, ToolSpec], embedder: str
    ) -> None:
        if manifest.get("embedder") != embedder:
            raise StorageError(f"Learned links were made with {manifest.get('embedder')}, the embedder is {embedder}.")
        try:
            names = arrays["names"].tobytes().decode().split("\n")
            same = [
                name in specs and digest_of(specs[name]) == kept.tobytes()
                for name, kept in zip(names, arrays["digests"], strict=True)
            ]
            self._starts = arrays["starts"].tolist()
            self._rows = {names[place]: row for row, place in enumerate(arrays["consumers"].tolist()) if same[place]}
            self._producers, self._probabilities = arrays["producers"], arrays["probabilities"]
            self._inputs: dict[str, int] = json_of(arrays["inputs"]) if "inputs" in arrays else {}
            self._by_input: Array | None = arrays.get("by_input")
        except (KeyError, ValueError, TypeError, UnicodeDecodeError) as error:
            raise StorageError(f"Learned links cannot be read: {error}") from error
        if sum(same) < _SAME_TOOLS * max(len(names), len(specs)):
            raise StorageError(f"Learned links know {sum(same)} of {len(specs)} tools as they are now: too few.")
        self.manifest = dict(manifest)
        self._names, self._same = names, same
        self._places = {name: place for place, name in enumerate(names) if same[place]}
        self._row = lru_cache(maxsize=4_096)(self._read)

    def before(self, tool: str) -> Mapping[str, float]:
        """See `EdgeScorer`; likeliest first."""
        return self._row(tool)

    def weigh(self, links: Sequence[Link], known: Sequence[Known]) -> list[float | None]:
        """See `EdgeScorer` and `dependencies.links`."""
        found: list[float | None] = []
        for link, of in zip(links, known, strict=True):
            probability = self._row(link.consumer).get(link.producer)
            if probability is None:
                found.append(None)
                continue
            if (towards := self._towards(link)) is not None:
                probability = math.sqrt(probability * towards)
            found.append(max(of.weight, of.joined(probability * (0.5 + 0.5 * likeness(link)))))
        return found

    def propose(self, port: Port, k: int) -> list[str]:
        """See `EdgeScorer`."""
        row = self._row(port.tool)
        return [tool for tool, probability in list(row.items())[:k] if probability >= LEAST]

    def likeliest(self, known: Collection[tuple[str, str]], k: int) -> list[tuple[str, str, float]]:
        """Links that are not among the known ones: producer, consumer, probability; likeliest first."""
        found = [
            (producer, consumer, probability)
            for consumer in self._rows
            for producer, probability in self._row(consumer).items()
            if probability >= TOLD and (producer, consumer) not in known
        ]
        return sorted(found, key=lambda each: (-each[2], each[1], each[0]))[:k]

    def _read(self, consumer: str) -> dict[str, float]:
        row = self._rows.get(consumer)
        if row is None:
            return {}
        part = slice(self._starts[row], self._starts[row + 1])
        places, probabilities = self._producers[part].tolist(), self._probabilities[part].tolist()
        found = zip(places, probabilities, strict=True)
        return {self._names[place]: probability for place, probability in found if self._same[place]}

    def _towards(self, link: Link) -> float | None:
        """p(a→i), that the producer gives the parameter; None if the table has none."""
        if self._by_input is None:
            return None
        column, row = self._inputs.get(f"{link.consumer}\n{link.input}"), self._places.get(link.producer)
        return None if column is None or row is None else float(self._by_input[row, column])


def table_of(
    views_names: Sequence[str],
    rows: Iterable[tuple[int, npt.NDArray[np.integer[Any]], npt.NDArray[np.floating[Any]]]],
    specs: Mapping[str, ToolSpec],
) -> dict[str, Array]:
    """The arrays of `LearnedLinks`: of each consumer its producers and their probabilities."""
    consumers, producers, probabilities, starts = [], [], [], [0]
    for consumer, places, likely in rows:
        order = np.argsort(-likely, kind="stable")
        consumers.append(consumer)
        producers.append(places[order].astype(np.int32))
        probabilities.append(likely[order].astype(np.float32))
        starts.append(starts[-1] + len(order))
    return {
        "names": np.frombuffer("\n".join(views_names).encode(), dtype=np.uint8),
        "digests": np.array([np.frombuffer(digest_of(specs[name]), dtype=np.uint8) for name in views_names]),
        "starts": np.array(starts, dtype=np.int64),
        "consumers": np.array(consumers, dtype=np.int32),
        "producers": np.concatenate(producers) if producers else np.zeros(0, dtype=np.int32),
        "probabilities": np.concatenate(probabilities) if probabilities else np.zeros(0, dtype=np.float32),
    }


def json_of(array: Array) -> Any:
    """JSON values that were kept as an array of bytes."""
    import json

    return json.loads(array.tobytes())


def digest_of(spec: ToolSpec) -> bytes:
    """Tells whether a tool is what it was: 8 bytes of its name, description and schemas."""
    said = repr((spec.name, spec.description, spec.parameters, spec.returns, spec.toolkit, spec.category))
    return blake2b(said.encode(errors="replace"), digest_size=8).digest()


class StructuralFits:
    """Consumer -> producer -> the best fit of an output of it to an input, without any record."""

    def __init__(self, graph: ToolDependencyGraph, views: Views) -> None:
        self._graph, self._views = graph, views
        self._of: dict[int, Mapping[int, float]] = {}

    def __call__(self, consumer: int) -> Mapping[int, float]:
        """The producers that fit a consumer."""
        if consumer not in self._of:
            found: dict[int, float] = {}
            for port in self._graph.apis[self._views.names[consumer]].inputs:
                for link in self._graph.links_into(port):
                    place = self._views.places[link.producer]
                    found[place] = max(found.get(place, 0.0), link.fit * (1.0 if port.required else OPTIONAL))
            self._of[consumer] = found
        return self._of[consumer]

    def feeds(self, producer: int) -> Callable[[int], bool]:
        """Whether a tool may be among those that a producer fits; most are not, and need no look."""
        graph, names = self._graph, self._views.names
        into = [graph.cluster_of(port).consumers for port in graph.apis[names[producer]].outputs]
        return lambda place: any(names[place] in consumers for consumers in into)
