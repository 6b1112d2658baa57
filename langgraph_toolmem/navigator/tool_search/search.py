"""Finding the tools a request needs, all of them: by words, and by meaning where there is an embedder.

`ToolSearch` ranks a catalogue for a request. A compound request is split into sentences and clauses
(`request`), each is searched by itself (`index`), and signals of the tool and of its toolkit are weighed (`ranking`).
Tools are added and removed one at a time; nothing is built again for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from langchain_core.embeddings import Embeddings

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError, EmbedderChangedError, StorageError, log_failure
from langgraph_toolmem.navigator.tool_search.hit import ToolHit, largest_first
from langgraph_toolmem.navigator.tool_search.index import Floats, IndexAnswer, WordIndex
from langgraph_toolmem.navigator.tool_search.ranking import (
    CANDIDATES,
    MEANING_SIGNALS,
    SIGNALS,
    WEIGHTS,
    WEIGHTS_WITH_MEANING,
    Kits,
    closeness,
    completing,
    probability,
    signals,
)
from langgraph_toolmem.navigator.tool_search.request import Asked, read
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.embedders import Embedder, resolve_embedder
from langgraph_toolmem.text.tools import Wording, embedded_text, kit_name, kit_of
from langgraph_toolmem.text.vectors import Embedding, VectorRows, Vectors, VectorSource

logger = logging.getLogger("langgraph_toolmem.navigator.tool_search.search")

PAUSE: Final = 0.02
"""Seconds between two looks whether another task has embedded the tools."""


class ToolSearch:
    """A catalogue of tools that can be searched by what is to be done.

    Safe for threads: a search sees all of an addition or nothing of it. Tools are embedded at the first search after
    they came, by one thread; the others wait for it.

    Args:
        tools: the tools.
        embedder: for searching by meaning too: LangChain ``Embeddings`` or what else `resolve_embedder` takes.
            None and the built-in one: by words alone.
        vectors: where the vectors of the tools come from; the embedder itself if None.
    """

    def __init__(
        self,
        tools: Iterable[ToolSpec] = (),
        *,
        embedder: Embeddings | Embedder | str | None = None,
        vectors: VectorSource | None = None,
    ) -> None:
        resolved = resolve_embedder(embedder)
        self._embedder = None if resolved.builtin else resolved
        self._source: VectorSource = vectors or Embedding(resolved)
        self._specs: dict[str, ToolSpec] = {}
        self._lock = threads.rlock()  # guards what is in RAM, never held while an embedder works
        # Held by who has the tools embedded. Two: a thread that waits for a task of its own loop waits for ever.
        self._embedding, self._aembedding = threads.lock(), threads.lock()
        self._warned = False
        self._clear()
        self.add(tools)

    def _clear(self) -> None:
        self._wording = Wording()
        self._index = WordIndex()
        self._names: list[str] = []  # by number; "" where the tool was removed
        self._places: dict[str, int] = {}
        self._kit_numbers: dict[str, int] = {}
        self._kits: Kits | None = None
        self._there: npt.NDArray[np.bool_] | None = None
        self._rows = VectorRows()
        self._bare: dict[str, None] = {}  # tools without a vector

    def __len__(self) -> int:
        return len(self._specs)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def add(self, tools: Iterable[ToolSpec]) -> None:
        """More tools; one of a name that is there takes its place."""
        specs = list(tools)
        with self._lock:
            self.remove({spec.name for spec in specs} & self._specs.keys())
            # All are learned before any is read, so that the order of tools added together does not matter.
            for spec in specs:
                self._wording.learn(spec)
            for spec in specs:
                self._enter(spec)

    def remove(self, names: Iterable[str]) -> None:
        """These are no tools any more; names that are not there are passed over."""
        with self._lock:
            for name in names:
                spec = self._specs.pop(name, None)
                if spec is None:
                    continue
                self._wording.forget(spec)
                place = self._places.pop(name)
                self._index.remove(place)
                self._names[place] = ""
                self._rows.drop(place)
                self._bare.pop(name, None)
                self._kits = self._there = None
            if len(self._names) > 64 + 1.25 * len(self._specs):
                self._build_again()

    def follow(self, tools: Mapping[str, ToolSpec]) -> None:
        """These are the tools now: the others go, what is new or changed comes, what is left stays as it is."""
        with self._lock:
            self.remove([name for name in self._specs if name not in tools])
            known = self._specs
            self.add([spec for name, spec in tools.items() if (old := known.get(name)) is not spec and old != spec])

    def text(self, name: str) -> str:
        """Return what an embedder gets of a tool. Raises KeyError if there is none of that name."""
        with self._lock:
            return embedded_text(self._specs[name], self._wording)

    def specs(self) -> dict[str, ToolSpec]:
        """The tools there are, by name; a copy."""
        with self._lock:
            return dict(self._specs)

    def search(
        self,
        query: str,
        k: int = 5,
        *,
        available: Collection[str] | None = None,
        exclude: Collection[str] = (),
        lift: Mapping[str, float] | None = None,
    ) -> list[ToolHit]:
        """The k tools that the request needs most likely, in the order in which they complete a set.

        That is mostly the order of their scores; a tool that answers a clause that none before it answers moves up.
        Fewer than k if fewer have anything to do with it. If the embedder fails, by words alone, and the log says so
        once.

        Args:
            available: names that are looked for; all if None.
            exclude: names that are not looked for.
            lift: by name, what else is known for (or against) a tool, in the unit of the logarithm of the odds; such
                as `Precedents.lift`.

        Raises:
            EmbedderChangedError: `vectors` has some that another embedder made.
        """
        asked = read(query)
        if k <= 0 or not asked.texts:
            return []
        return self._ranked(asked, self._cosines(asked), k, available, exclude, lift)

    async def asearch(
        self,
        query: str,
        k: int = 5,
        *,
        available: Collection[str] | None = None,
        exclude: Collection[str] = (),
        lift: Mapping[str, float] | None = None,
    ) -> list[ToolHit]:
        """Async variant of `search`."""
        asked = read(query)
        if k <= 0 or not asked.texts:
            return []
        return self._ranked(asked, await self._acosines(asked), k, available, exclude, lift)

    def sums(self, query: str) -> tuple[list[str], Floats]:
        """Names of the tools (N) and their weighted sums (N,), which `search` turns into scores; for other rankings.

        All zeros if the request has no telling word.
        """
        asked = read(query)
        return self._sums(asked, self._cosines(asked) if asked.texts else None)

    async def asums(self, query: str) -> tuple[list[str], Floats]:
        """Async variant of `sums`."""
        asked = read(query)
        return self._sums(asked, await self._acosines(asked) if asked.texts else None)

    def signals(self, query: str) -> tuple[list[str], Floats]:
        """Names of the tools (N) and their signals (S, N), for fitting the weights.

        The signals are those of `ranking.SIGNALS`, with an embedder followed by `ranking.MEANING_SIGNALS`.
        """
        asked = read(query)
        cosines = self._cosines(asked)
        with self._lock:
            found = self._signals(self._answer(asked), asked, self._fitting(cosines))
            return [name for name in self._names if name], found[:, self._alive()]

    # --- words --------------------------------------------------------------------------------------------------

    def _enter(self, spec: ToolSpec) -> None:
        name = spec.name
        # A tool without a toolkit is one of its own, which no name of a kit equals.
        kit = self._kit_numbers.setdefault(kit_of(spec) or f"\n\n{name}", len(self._kit_numbers))
        place = self._index.add(self._wording.fields(spec), kit)
        self._names.append(name)
        self._places[name] = place
        self._specs[name] = spec
        self._bare[name] = None
        self._kits = self._there = None

    def _build_again(self) -> None:
        specs, rows = list(self._specs.values()), self._rows
        places = {name: place for name, place in self._places.items() if name not in self._bare}
        self._clear()
        self._specs = {}
        self.add(specs)
        for name, place in places.items() if self._embedder is not None else ():
            self._keep(name, rows.row(place).tolist())

    def _alive(self) -> npt.NDArray[np.bool_]:
        if self._there is None:
            self._there = np.fromiter(map(bool, self._names), dtype=np.bool_, count=len(self._names))
        return self._there

    def _answer(self, asked: Asked) -> IndexAnswer:
        return self._index.ask(asked.words)

    def _signals(self, answer: IndexAnswer, asked: Asked, cosines: Floats | None) -> Floats:
        return signals(answer, self._toolkits(), asked.sentences, closeness(answer, cosines), cosines)

    def _toolkits(self) -> Kits:
        if self._kits is None:
            self._kits = Kits(np.array(self._index.kit, dtype=np.int32), self._alive())
        return self._kits

    def _sums(self, asked: Asked, cosines: Floats | None) -> tuple[list[str], Floats]:
        with self._lock:
            names = [name for name in self._names if name]
            if not asked.texts or not names:
                return names, np.zeros(len(names), dtype=np.float32)
            cosines = self._fitting(cosines)
            found = self._signals(self._answer(asked), asked, cosines)
            weights = WEIGHTS if cosines is None else WEIGHTS_WITH_MEANING
            return names, (weights @ found)[self._alive()]

    def _fitting(self, cosines: Floats | None) -> Floats | None:
        """None if tools came or went while the embedder worked: then it is by words this once."""
        return None if cosines is not None and cosines.shape[1] != len(self._names) else cosines

    def _ranked(
        self,
        asked: Asked,
        cosines: Floats | None,
        k: int,
        available: Collection[str] | None,
        exclude: Collection[str],
        lift: Mapping[str, float] | None,
    ) -> list[ToolHit]:
        with self._lock:
            if not self._specs:
                return []
            cosines = self._fitting(cosines)
            answer = self._answer(asked)
            near = closeness(answer, cosines)
            found = signals(answer, self._toolkits(), asked.sentences, near, cosines)
            weights = WEIGHTS if cosines is None else WEIGHTS_WITH_MEANING
            scores = weights @ found
            fits = self._alive().copy()
            if cosines is None:
                fits &= answer.texts[0] + answer.described + answer.kits[self._index.kit] > 0
            for name, more in (lift or {}).items():
                if name in self._places:
                    scores[self._places[name]] += more
                    fits[self._places[name]] |= more > 0
            if available is not None:
                offered = np.zeros_like(fits)
                offered[[self._places[name] for name in available if name in self._places]] = True
                fits &= offered
            fits[[self._places[name] for name in exclude if name in self._places]] = False
            candidates = np.flatnonzero(fits)
            candidates = candidates[np.argsort(-scores[candidates], kind="stable")[: max(CANDIDATES, 2 * k)]]
            chosen = completing(scores[candidates], near[1 + asked.sentences :][:, candidates], k)
            places = [int(candidates[each]) for each in chosen]
            return [self._told(place, asked, near, weights * found[:, place], scores, cosines) for place in places]

    def _told(
        self, place: int, asked: Asked, near: Floats, parts: Floats, scores: Floats, cosines: Floats | None
    ) -> ToolHit:
        spec = self._specs[self._names[place]]
        labels = (*SIGNALS, *MEANING_SIGNALS) if cosines is not None else SIGNALS
        # Of a sentence and its clause that fit alike, the clause: it is the shorter one, and comes later.
        fit = near[:, place]
        piece = len(fit) - 1 - int(fit[:0:-1].argmax())
        return ToolHit(
            spec.name,
            probability(float(scores[place]), meaning=cosines is not None),
            embedded_text(spec, self._wording),
            kit_name(spec),
            asked.texts[piece] if fit[piece] > 0 else "",
            largest_first({label: float(part) for label, part in zip(labels, parts, strict=True) if part}),
        )

    # --- meaning ------------------------------------------------------------------------------------------------

    def _missing(self) -> dict[str, str]:
        with self._lock:
            return {name: embedded_text(self._specs[name], self._wording) for name in self._bare}

    def _keep_all(self, vectors: Vectors) -> None:
        with self._lock:
            for name, vector in vectors.items():
                if name in self._specs:
                    self._keep(name, vector)

    def _keep(self, name: str, vector: Sequence[float]) -> None:
        self._rows.put(self._places[name], vector, name=name)
        self._bare.pop(name, None)

    def _cosines(self, asked: Asked) -> Floats | None:
        if self._embedder is None:
            return None
        try:
            if self._bare:
                with self._embedding:
                    self._keep_all(self._source.of(self._missing()))
            return self._compared(asked.composed(self._embedder.embed_documents(asked.embedded)))
        except EmbedderChangedError:
            raise
        except (StorageError, ConfigurationError) as error:
            self._warn(error)
            return None

    async def _acosines(self, asked: Asked) -> Floats | None:
        if self._embedder is None:
            return None
        try:
            if self._bare:
                while not self._aembedding.acquire(blocking=False):  # noqa: ASYNC110 - held across event loops
                    await asyncio.sleep(PAUSE)
                try:
                    self._keep_all(await self._source.aof(self._missing()))
                finally:
                    self._aembedding.release()
            return self._compared(asked.composed(await self._embedder.aembed_documents(asked.embedded)))
        except EmbedderChangedError:
            raise
        except (StorageError, ConfigurationError) as error:
            self._warn(error)
            return None

    def _compared(self, pieces: Floats) -> Floats | None:
        with self._lock:
            return None if self._bare else self._rows.cosines(pieces, len(self._names))

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            log_failure(logger, logging.WARNING, "tools are searched by words alone", error=error)
