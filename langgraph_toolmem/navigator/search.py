"""Finding the tools a request needs, all of them: by words, and by meaning where there is an embedder.

`ToolSearch` ranks a catalogue for a request. A compound request is split into sentences and clauses (`clauses`),
each is searched by itself (`search_index`), and signals of the tool and of its toolkit are weighed (`search_rank`).
Tools are added and removed one at a time; nothing is built again for that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from langchain_core.embeddings import Embeddings

from langgraph_toolmem.errors import ConfigurationError, StorageError
from langgraph_toolmem.failures import log_failure
from langgraph_toolmem.navigator import clauses
from langgraph_toolmem.navigator.search_index import Answer, Floats, WordIndex
from langgraph_toolmem.navigator.search_rank import (
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
from langgraph_toolmem.navigator.search_text import ToolListing, Wording, embedded_text, stems
from langgraph_toolmem.stores.embedders import Embedder, resolve_embedder
from langgraph_toolmem.tools import ToolSpec

logger = logging.getLogger("langgraph_toolmem.navigator.search")

Vectors = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class ToolFound:
    """One tool found.

    Attributes:
        score: 0 to 1, the estimated probability that the request needs the tool. Estimated on a public catalogue of
            2,490 tools: good for comparing, not to be taken at its word elsewhere.
        toolkit: of the tool, "" if it has none.
        piece: the clause or sentence of the request that the tool fits best, "" if none fits.
        parts: what each signal adds to the score, in the unit of the logarithm of the odds; the largest first.
    """

    name: str
    score: float
    toolkit: str
    piece: str
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it is searched.

    Attributes:
        texts: the request, its sentences, its clauses; each with words that tell something.
        sentences: how many of them are sentences.
        words: the stems of each.
        clauses: for each of them the numbers of the clauses that it consists of, counted from 0.
    """

    texts: tuple[str, ...]
    sentences: int
    words: tuple[tuple[str, ...], ...]
    clauses: tuple[tuple[int, ...], ...] = ()

    @property
    def embedded(self) -> tuple[str, ...]:
        """What an embedder gets: the clauses. Whole and sentences are composed of their vectors, see `composed`."""
        return self.texts[1 + self.sentences :]

    def composed(self, vectors: Sequence[Sequence[float]]) -> Floats:
        """(P, D) of length 1: the vectors of the clauses, before them those of whole and sentences.

        A text's vector is the sum of its clauses', each weighed by its number of telling words. Embedding each text
        by itself costs three times as much and finds no more.
        """
        own = np.asarray(vectors, dtype=np.float32)
        lengths = np.array([len(words) for words in self.words[1 + self.sentences :]], dtype=np.float32)
        own_scaled = own * lengths[:, np.newaxis]
        longer = [own_scaled[list(parts)].sum(axis=0) for parts in self.clauses[: 1 + self.sentences]]
        found = np.vstack([*longer, own])
        scaled: Floats = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
        return scaled


class ToolSearch:
    """A catalogue of tools that can be searched by what is to be done.

    Safe for threads: a search sees all of an addition or nothing of it.

    Args:
        tools: specs, or listings where the toolkit or the category is known.
        embedder: for searching by meaning too: LangChain ``Embeddings`` or what else `resolve_embedder` takes.
            None and the built-in one: by words alone.
        vectors: vectors of `text` by tool name that are known already; the others are made at the first search.
    """

    def __init__(
        self,
        tools: Iterable[ToolSpec | ToolListing] = (),
        *,
        embedder: Embeddings | Embedder | str | None = None,
        vectors: Vectors | None = None,
    ) -> None:
        resolved = resolve_embedder(embedder)
        self._embedder = None if resolved.builtin else resolved
        self._listings: dict[str, ToolListing] = {}
        self._lock = threading.RLock()
        self._warned = False
        self._clear()
        self.add(tools, vectors=vectors)

    def _clear(self) -> None:
        self._wording = Wording()
        self._index = WordIndex()
        self._names: list[str] = []  # by number; "" where the tool was removed
        self._places: dict[str, int] = {}
        self._kit_numbers: dict[str, int] = {}
        self._kits: Kits | None = None
        self._vectors: dict[str, npt.NDArray[np.float32]] = {}
        self._matrix: Floats | None = None

    def __len__(self) -> int:
        return len(self._listings)

    def __contains__(self, name: object) -> bool:
        return name in self._listings

    def add(self, tools: Iterable[ToolSpec | ToolListing], *, vectors: Vectors | None = None) -> None:
        """More tools; one of a name that is there takes its place.

        Raises:
            ConfigurationError: a vector has another length than the others.
        """
        listings = [tool if isinstance(tool, ToolListing) else ToolListing(tool) for tool in tools]
        with self._lock:
            self.remove({listing.spec.name for listing in listings} & self._listings.keys())
            # All are learned before any is read, so that the order of tools added together does not matter.
            for listing in listings:
                self._wording.learn(listing)
            for listing in listings:
                self._enter(listing)
            if vectors:
                for name, vector in vectors.items():
                    self._keep(name, vector)

    def remove(self, names: Iterable[str]) -> None:
        """These are no tools any more; names that are not there are passed over."""
        with self._lock:
            for name in names:
                listing = self._listings.pop(name, None)
                if listing is None:
                    continue
                self._wording.forget(listing)
                place = self._places.pop(name)
                self._index.remove(place)
                self._names[place] = ""
                self._vectors.pop(name, None)
                self._kits = self._matrix = None
            if len(self._names) > 64 + 1.25 * len(self._listings):
                listings, vectors = list(self._listings.values()), self._vectors
                self._clear()
                self._listings = {}
                self.add(listings)
                self._vectors = vectors

    def text(self, name: str) -> str:
        """What an embedder gets of a tool. Raises KeyError if there is none of that name."""
        with self._lock:
            return embedded_text(self._listings[name], self._wording)

    def search(
        self,
        query: str,
        k: int = 5,
        *,
        exclude: Collection[str] = (),
        lift: Mapping[str, float] | None = None,
    ) -> list[ToolFound]:
        """The k tools that the request needs most likely, in the order in which they complete a set.

        That is mostly the order of their scores; a tool that answers a clause that none before it answers moves up.
        Fewer than k if fewer have anything to do with it. If the embedder fails, by words alone, and the log says so
        once.

        Args:
            exclude: names that are not looked for.
            lift: by name, what else is known for (or against) a tool, in the unit of the logarithm of the odds; such
                as `Precedents.lift`.
        """
        asked = read(query)
        if k <= 0 or not asked.texts:
            return []
        return self._ranked(asked, self._cosines(asked), k, exclude, lift)

    async def asearch(
        self,
        query: str,
        k: int = 5,
        *,
        exclude: Collection[str] = (),
        lift: Mapping[str, float] | None = None,
    ) -> list[ToolFound]:
        """Async twin of `search`."""
        asked = read(query)
        if k <= 0 or not asked.texts:
            return []
        return self._ranked(asked, await self._acosines(asked), k, exclude, lift)

    def sums(self, query: str) -> tuple[list[str], Floats]:
        """Names of the tools (N) and their weighted sums (N,), which `search` turns into scores; for other rankings.

        All zeros if the request has no telling word.
        """
        asked = read(query)
        return self._sums(asked, self._cosines(asked) if asked.texts else None)

    async def asums(self, query: str) -> tuple[list[str], Floats]:
        """Async twin of `sums`."""
        asked = read(query)
        return self._sums(asked, await self._acosines(asked) if asked.texts else None)

    def listings(self) -> dict[str, ToolListing]:
        """The tools there are, by name; a copy."""
        with self._lock:
            return dict(self._listings)

    def signals(self, query: str) -> tuple[list[str], Floats]:
        """Names of the tools (N) and their signals (S, N), for fitting the weights.

        The signals are those of `search_rank.SIGNALS`, with an embedder followed by `search_rank.MEANING_SIGNALS`.
        """
        asked = read(query)
        cosines = self._cosines(asked)
        with self._lock:
            found = self._signals(self._answer(asked), asked, self._fitting(cosines))
            alive = self._alive()
            return [name for name in self._names if name], found[:, alive]

    # --- words --------------------------------------------------------------------------------------------------

    def _enter(self, listing: ToolListing) -> None:
        name = listing.spec.name
        # A tool without a toolkit is one of its own, which no name of a kit equals.
        kit = self._kit_numbers.setdefault(listing.kit or f"\n\n{name}", len(self._kit_numbers))
        place = self._index.add(self._wording.fields(listing), kit)
        self._names.append(name)
        self._places[name] = place
        self._listings[name] = listing
        self._kits = self._matrix = None

    def _alive(self) -> npt.NDArray[np.bool_]:
        return np.fromiter(map(bool, self._names), dtype=np.bool_, count=len(self._names))

    def _answer(self, asked: Asked) -> Answer:
        return self._index.ask(asked.words)

    def _signals(self, answer: Answer, asked: Asked, cosines: Floats | None) -> Floats:
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
        exclude: Collection[str],
        lift: Mapping[str, float] | None,
    ) -> list[ToolFound]:
        with self._lock:
            if not self._listings:
                return []
            cosines = self._fitting(cosines)
            answer = self._answer(asked)
            near = closeness(answer, cosines)
            found = signals(answer, self._toolkits(), asked.sentences, near, cosines)
            weights = WEIGHTS if cosines is None else WEIGHTS_WITH_MEANING
            scores = weights @ found
            fits = self._alive()
            if cosines is None:
                fits &= answer.texts[0] + answer.described + answer.kits[self._index.kit] > 0
            for name, more in (lift or {}).items():
                if name in self._places:
                    scores[self._places[name]] += more
                    fits[self._places[name]] |= more > 0
            for name in exclude:
                if name in self._places:
                    fits[self._places[name]] = False
            candidates = np.flatnonzero(fits)
            candidates = candidates[np.argsort(-scores[candidates], kind="stable")[: max(CANDIDATES, 2 * k)]]
            chosen = completing(scores[candidates], near[1 + asked.sentences :][:, candidates], k)
            places = [int(candidates[each]) for each in chosen]
            return [self._told(place, asked, near, found, weights, scores, cosines) for place in places]

    def _told(
        self,
        place: int,
        asked: Asked,
        near: Floats,
        found: Floats,
        weights: Floats,
        scores: Floats,
        cosines: Floats | None,
    ) -> ToolFound:
        name = self._names[place]
        labels = (*SIGNALS, *MEANING_SIGNALS) if cosines is not None else SIGNALS
        parts = {label: float(part) for label, part in zip(labels, weights * found[:, place], strict=True) if part}
        # Of a sentence and its clause that fit alike, the clause: it is the shorter one, and comes later.
        fit = near[:, place]
        piece = len(fit) - 1 - int(fit[:0:-1].argmax())
        return ToolFound(
            name,
            probability(float(scores[place]), meaning=cosines is not None),
            self._listings[name].kit_name,
            asked.texts[piece] if fit[piece] > 0 else "",
            dict(sorted(parts.items(), key=lambda item: -abs(item[1]))),
        )

    # --- meaning ------------------------------------------------------------------------------------------------

    def _missing(self) -> tuple[list[str], list[str]]:
        with self._lock:
            names = [name for name in self._listings if name not in self._vectors]
            return names, [embedded_text(self._listings[name], self._wording) for name in names]

    def _keep(self, name: str, vector: Sequence[float]) -> None:
        made = np.asarray(vector, dtype=np.float32)
        other = next(iter(self._vectors.values()), made)
        if made.ndim != 1 or made.shape != other.shape:
            raise ConfigurationError(f"The vector of tool {name!r} has another shape than the others.")
        if name in self._listings:
            self._vectors[name] = made / max(float(np.linalg.norm(made)), 1e-9)
            self._matrix = None

    def _keep_all(self, names: list[str], vectors: list[list[float]]) -> None:
        with self._lock:
            for name, vector in zip(names, vectors, strict=True):
                self._keep(name, vector)

    def _cosines(self, asked: Asked) -> Floats | None:
        if self._embedder is None:
            return None
        try:
            names, texts = self._missing()
            self._keep_all(names, self._embedder.embed_documents(texts))
            return self._compared(asked.composed(self._embedder.embed_documents(asked.embedded)))
        except (StorageError, ConfigurationError) as error:
            self._warn(error)
            return None

    async def _acosines(self, asked: Asked) -> Floats | None:
        if self._embedder is None:
            return None
        try:
            names, texts = self._missing()
            self._keep_all(names, await self._embedder.aembed_documents(texts))
            return self._compared(asked.composed(await self._embedder.aembed_documents(asked.embedded)))
        except (StorageError, ConfigurationError) as error:
            self._warn(error)
            return None

    def _compared(self, pieces: Floats) -> Floats | None:
        with self._lock:
            if any(name not in self._vectors for name in self._listings):
                return None
            if self._matrix is None:
                nothing = np.zeros(pieces.shape[1], dtype=np.float32)
                self._matrix = np.stack([self._vectors.get(name, nothing) for name in self._names])
            found: Floats = pieces @ self._matrix.T
            return found

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            log_failure(logger, logging.WARNING, "tools are searched by words alone", error=error)


def read(query: str) -> Asked:
    """A request as it is searched: whole, its sentences, its clauses; without pieces that have no telling word."""
    pieces = clauses.split(query)
    whole = stems(query[: clauses.MAX_CHARS])
    if not whole:
        return Asked((), 0, ())
    sentences = [(text, found) for text in pieces.sentences if (found := stems(text))]
    parts = [(text, found) for text in pieces.clauses if (found := stems(text))] or sentences
    everything = [(query[: clauses.MAX_CHARS], whole), *sentences, *parts]
    places = {text: place for place, (text, _) in enumerate(parts)}
    all_parts = tuple(range(len(parts)))
    # A sentence beyond the last clause that is looked at stands for the whole.
    inside = [tuple(places[text] for text in clauses.split(s).clauses if text in places) for s, _ in sentences]
    return Asked(
        tuple(text for text, _ in everything),
        len(sentences),
        tuple(tuple(found) for _, found in everything),
        (all_parts, *(each or all_parts for each in inside), *((place,) for place in all_parts)),
    )
