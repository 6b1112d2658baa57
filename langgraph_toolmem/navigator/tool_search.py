"""Search for all tools that a request needs: by words, and with an embedder by meaning.

A compound request is searched as a whole, by sentence and by clause. Each of these pieces gives every tool a closeness
from 0 to 1, where 1 is that piece's best tool: by words, or by words and meaning together,

    h(p, t) = (b(p, t) / max_t b + 2 · (c(p, t) / max_t c)^4) / max_t (…)

with b BM25 and c the cosine of an embedder. A tool's score is a weighted sum of signals: of its own, and of its
toolkit, because tools of one toolkit are used together.

The weights were fitted by maximum likelihood of the needed tools (softmax over all tools) on one half of the requests
of a public catalogue, split by toolkit; ``python -m benchmarks.tool_search`` reports the other half. Further signals
(sentences, the whole request) gained nothing.
"""

from __future__ import annotations

import logging
import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from langchain_core.embeddings import Embeddings

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError, EmbedderChangedError, StorageError, log_failure
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.stores.vectors import TextVectors
from langgraph_toolmem.text.embedders import Embedder, resolve_embedder
from langgraph_toolmem.text.wording import (
    REQUEST_LIMITS,
    Wanted,
    Wording,
    effect_of,
    embedded_text,
    handling_of,
    is_small_talk,
    kit_name,
    kit_of,
    split_clauses,
    wanted_by,
)
from langgraph_toolmem.text.words import STOP_WORDS, rarity, telling_stems

logger = logging.getLogger("langgraph_toolmem.navigator.tool_search")

Floats = npt.NDArray[np.float32]

K1: Final = 1.2
B: Final = 0.75
"""Of BM25: S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework", 2009, eq. 3.15."""


class FittedScore(NamedTuple):
    """A fitted weighted sum of signals.

    Attributes:
        weights: of clause, name, description, parameters, word pairs; of a toolkit: best sentence, clauses, text, name
            and size; with an embedder also of meaning, meaning of the best sentence and of the toolkit.
        slope, intercept: of the logarithm of the odds of a score.
    """

    weights: Floats
    slope: float
    intercept: float


BY_WORDS: Final = FittedScore(
    np.array([1.88, 1.2, 0.81, 0.8, 0.82, 2.26, 2.24, 2.3, 1.83, -1.15], dtype=np.float32),
    slope=1.11,
    intercept=-10.9,
)
BY_MEANING: Final = FittedScore(
    np.array([1.65, 1.05, 0.65, 0.75, 0.8, 2.7, 1.6, 2.1, 1.25, -1.09, 0.82, 1.0, 0.79], dtype=np.float32),
    slope=1.05,
    intercept=-11.17,
)
"""Fitted with all-MiniLM-L6-v2."""

EFFECT: Final = 1.25
"""Weight of a tool's effect: likely on four public documents (``python -m benchmarks.effects``), shown on others."""
REMOVAL: Final = 1.0
"""Weight of a DELETE for an order to remove something, and its negative for another order."""
GRAMMATICAL_NUMBER: Final = 1.25
"""Weight of an operation that lists things for a question in the plural, and its negative for the singular."""
MAKING: Final = 1.0
"""Weight of an operation that adds to a collection for an order to make something, and of one that changes an element
for an order to change it."""
COVERAGE: Final = 1.0
"""Score for a clause that the chosen tools do not answer yet."""
CANDIDATES: Final = 60
"""Least number of highest scores among which the tools are chosen."""


class _Postings(NamedTuple):
    """The occurrences of words in texts.

    Attributes:
        rows: (n, 3) of word, text and count, sorted by word.
        starts: (W + 1,) of the first row of each word, and of the end.
    """

    rows: npt.NDArray[np.int32]
    starts: npt.NDArray[np.intp]


class WordIndex:
    """Words -> the texts that contain them. A text has a number; texts are never removed.

    It is a separate index, because all texts are ranked at once for each part of a request, in arrays.
    """

    def __init__(self) -> None:
        self._lengths = array("f")
        self._ids: dict[str, int] = {}
        self._postings = array("i")  # word, text, count, word, text, count ...
        self._sorted: _Postings | None = None

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, words: Sequence[str]) -> int:
        """Add a text; return its number."""
        number = len(self)
        for word, count in Counter(words).items():
            self._postings.extend((self._ids.setdefault(word, len(self._ids)), number, count))
        self._lengths.append(len(words))
        self._sorted = None
        return number

    @property
    def lengths(self) -> Floats:
        """Return (N,) words of each text."""
        return np.array(self._lengths, dtype=np.float32)

    def rarity(self, words: Iterable[str]) -> Floats:
        """Return (W,) rarity of each word."""
        return np.array([rarity(len(self._row(word)), len(self)) for word in words], dtype=np.float32)

    def counts(self, words: Sequence[str]) -> Floats:
        """Return (W, N) occurrences of each word in each text."""
        counts = np.zeros((len(words), len(self)), dtype=np.float32)
        for number, word in enumerate(words):
            row = self._row(word)
            counts[number, row[:, 1]] = row[:, 2]
        return counts

    def totals(self, rarities: WordIndex) -> Floats:
        """Return (N,) sum over each text's different words of their rarity in another index."""
        values, rows = rarities.rarity(self._ids), self._postings_by_word().rows
        totals = np.bincount(rows[:, 1], values[rows[:, 0]], minlength=len(self))
        return totals.astype(np.float32)

    def nearest(self, words: Sequence[str]) -> Floats:
        """Return (N,) similarities to a query: BM25 divided by that of a text of average length with itself, at most
        1.
        """
        query = Counter(words)
        weights = np.sqrt(np.array([*query.values()], dtype=np.float32)) * self.rarity(query)
        scores = dot(weights, saturated(self.counts([*query]), self.lengths))
        # A text of average length that has each word once scores the sum of the weights, since (K1 + 1) / (1 + K1) = 1.
        similarities: Floats = np.minimum(scores / max(float(weights.sum()), 1e-6), 1)
        return similarities

    def _row(self, word: str) -> npt.NDArray[np.int32]:
        """Return (n, 3) postings of a word."""
        postings = self._postings_by_word()
        number = self._ids.get(word)
        if number is None:
            return postings.rows[:0]
        return postings.rows[postings.starts[number] : postings.starts[number + 1]]

    def _postings_by_word(self) -> _Postings:
        if self._sorted is None:
            rows = np.array(self._postings, dtype=np.int32).reshape(-1, 3)
            rows = rows[np.argsort(rows[:, 0], kind="stable")]
            self._sorted = _Postings(rows, np.searchsorted(rows[:, 0], np.arange(len(self._ids) + 1)))
        return self._sorted


def saturated(counts: Floats, lengths: Floats) -> Floats:
    """Return (W, N) of counts: the part of a text's score that a word gives, without its rarity."""
    average = 1.0
    if lengths.size:
        average = max(float(lengths.mean()), 1e-6)
    rest = K1 * (1 - B + B * lengths / average)
    parts: Floats = (K1 + 1) * counts / (counts + np.maximum(rest, 1e-6))
    return parts


def dot(weights: Floats, values: Floats) -> Floats:
    """Return (..., W) and (W, N) -> (..., N)."""
    # einsum avoids BLAS, whose threads cost more than they save here.
    product: Floats = np.einsum("...w,wn->...n", weights, values)
    return product


class SearchRequest(NamedTuple):
    """A request for the search; P pieces.

    Attributes:
        words: the stems of each piece: the whole, its sentences, its clauses.
        texts: the clauses.
        parts: numbers of the clauses in the whole and in each sentence.
        wanted: the effect that each clause wants.
    """

    words: tuple[Sequence[str], ...]
    texts: tuple[str, ...]
    parts: tuple[tuple[int, ...], ...]
    wanted: tuple[Wanted, ...]

    @property
    def sentences(self) -> slice:
        """Return the pieces that are sentences; the clauses follow."""
        return slice(1, len(self.parts))

    @property
    def clauses(self) -> slice:
        """Return the pieces that are clauses."""
        return slice(len(self.parts), None)

    def composed(self, vectors: Sequence[Sequence[float]]) -> Floats:
        """Return (P, D) of length 1, from the vectors of the clauses.

        A longer piece is the sum of its clauses, weighted by their numbers of words. Embedding each piece separately
        costs three times as much without finding more.
        """
        own = np.asarray(vectors, dtype=np.float32)
        lengths = np.array([len(words) for words in self.words[self.clauses]], dtype=np.float32)
        weighed = own * lengths[:, np.newaxis]
        longer = [weighed[list(part)].sum(axis=0) for part in self.parts]
        pieces = np.vstack([*longer, own])
        unit: Floats = pieces / np.maximum(np.linalg.norm(pieces, axis=1, keepdims=True), 1e-9)
        return unit


def read(query: str) -> SearchRequest | None:
    """Return a request without the pieces that have no telling word; None if no piece is left."""
    query = query[: REQUEST_LIMITS.chars]
    if not telling_stems(query) or is_small_talk(query, STOP_WORDS):
        return None
    # By clauses too: BM25 and vectors, fused, have all tools among the first 20 in 77.5 % so, by the whole in 71.8 %.
    pieces = split_clauses(query)
    sentences = _telling(pieces.sentences) or {query: telling_stems(query)}
    clauses = _telling(pieces.clauses) or sentences
    numbers = {text: number for number, text in enumerate(clauses)}
    whole = tuple(range(len(clauses)))
    parts = [whole]
    for sentence in sentences:
        # A sentence after the last read clause represents the whole.
        parts.append(_numbers_of_clauses(sentence, numbers) or whole)
    words = (telling_stems(query), *sentences.values(), *clauses.values())
    wanted = tuple(wanted_by(query, clauses))
    return SearchRequest(words, tuple(clauses), tuple(parts), wanted)


def _numbers_of_clauses(sentence: str, numbers: Mapping[str, int]) -> tuple[int, ...]:
    inside: list[int] = []
    for clause in split_clauses(sentence).clauses:
        if clause in numbers:
            inside.append(numbers[clause])
    return tuple(inside)


def _telling(texts: Iterable[str]) -> dict[str, Sequence[str]]:
    """Return the stems of each text with a telling word."""
    telling: dict[str, Sequence[str]] = {}
    for text in texts:
        stems = telling_stems(text)
        if stems and not is_small_talk(text, STOP_WORDS):
            telling[text] = stems
    return telling


@dataclass(frozen=True, slots=True)
class ToolHit:
    """A tool that was found.

    Attributes:
        score: 0 to 1, the estimated probability that the request needs the tool. Estimated on a public catalogue of
            2,490 tools: use it to compare tools, not as a probability elsewhere.
        toolkit: its service, server or API, "" if unknown.
    """

    name: str
    score: float
    toolkit: str = ""


class Ranking(NamedTuple):
    """All N tools for a request, by number.

    Attributes:
        scores: (N,).
        near: (C, N) closeness to each clause.
        fits: (N,), False for a tool that is unrelated to the request.
        score: the fitted sum that gave the scores.
    """

    scores: Floats
    near: Floats
    fits: npt.NDArray[np.bool_]
    score: FittedScore


class _Matches(NamedTuple):
    """BM25 of a request's words with the texts of N tools in K toolkits.

    Attributes:
        texts: (P, N) of each piece with a tool's whole text.
        described: (N,) of the whole request with the parameters' descriptions.
        pairs: (N,) of its pairs of neighbouring words.
        kits: (K,) with a toolkit's whole text.
        name, description, toolkit: (N,) share of that field's rarity that the request has.
    """

    texts: Floats
    described: Floats
    pairs: Floats
    kits: Floats
    name: Floats
    description: Floats
    toolkit: Floats


class ToolSearcher:
    """A catalogue of tools that can be searched by a request. Safe for threads.

    Args:
        tools: the tools.
        embedder: for searching by meaning too: LangChain ``Embeddings`` or another argument of `resolve_embedder`. With
            None or the built-in one, only words are used.
        vectors: source of the tools' vectors. Defaults to the embedder itself.
    """

    def __init__(
        self,
        tools: Iterable[ToolSpec] = (),
        *,
        embedder: Embeddings | Embedder | str | None = None,
        vectors: TextVectors | None = None,
    ) -> None:
        resolved = resolve_embedder(embedder)
        self._embedder: Embedder | None = None
        if not resolved.builtin:
            self._embedder = resolved
        self._source = vectors or resolved
        # Guards the state in RAM. Never locked while an embedder works, which may take seconds.
        self._lock = threads.rlock()
        # Locked by the thread that embeds new tools. The others wait; otherwise each would embed the whole catalogue.
        self._embedding = threads.lock()
        self._warned = False
        self._vectors: dict[str, Floats] = {}
        self.specs: dict[str, ToolSpec] = {}
        self._wording = Wording()
        self._clear()
        self.follow({spec.name: spec for spec in tools})

    def _clear(self) -> None:
        self._names: list[str] = []  # by number; "" if the tool was removed
        self._numbers: dict[str, int] = {}
        self._kits: dict[str, int] = {}
        self._kit_of: list[int] = []
        self._effects, self._removes = array("f"), array("f")  # by number: see `effect_of`; 1.0 for a DELETE
        self._lists, self._makes = array("f"), array("f")  # see `Handling`
        self._readers: dict[str, list[int]] = {}  # stem of a noun -> tools that read such things
        self._text, self._described, self._pairs = WordIndex(), WordIndex(), WordIndex()
        self._parts = WordIndex(), WordIndex(), WordIndex()  # name, description, toolkit
        self._arrays: _Arrays | None = None

    def follow(self, tools: Mapping[str, ToolSpec]) -> None:
        """Set the tools: others are removed, new and changed ones are read."""
        with self._lock:
            outdated = self._outdated(tools)
            self._drop(outdated)
            new = [spec for name, spec in tools.items() if name not in self.specs]
            if not new and not outdated:
                return
            # All are learned before any is read, so that the order of tools added together does not matter.
            for spec in new:
                self._wording.learn(spec)
                self.specs[spec.name] = spec
            # An index does not remove texts: if too many are of removed tools, all are read again.
            if len(self._names) + len(new) > 64 + 1.25 * len(self.specs):
                self._clear()
                new = list(self.specs.values())
            for spec in new:
                self._enter(spec)
            self._arrays = None

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._wording.forget(self.specs.pop(name))
            self._names[self._numbers.pop(name)] = ""
            self._vectors.pop(name, None)

    def _outdated(self, tools: Mapping[str, ToolSpec]) -> list[str]:
        """Return the names of the known tools that were removed or changed."""
        outdated: list[str] = []
        for name, spec in self.specs.items():
            current = tools.get(name)
            # Mostly it is the same object, so that schemas need not be compared.
            if current is not spec and current != spec:
                outdated.append(name)
        return outdated

    def _enter(self, spec: ToolSpec) -> None:
        fields = self._wording.fields(spec)
        self._numbers[spec.name] = len(self._names)
        self._names.append(spec.name)
        # With effects the first hit for a reading request changes something in 0 of 24 requests, without in 4.
        self._effects.append(effect_of(spec))
        self._removes.append(float(spec.route.startswith("DELETE ")))
        handling = handling_of(spec)
        if handling.lists:
            self._readers.setdefault(handling.noun, []).append(len(self._lists))
        self._lists.append(handling.lists)
        self._makes.append(handling.makes)
        # A tool without a toolkit has a toolkit of its own, with a key unlike all names.
        kit = kit_of(spec) or f"\n\n{spec.name}"
        self._kit_of.append(self._kits.setdefault(kit, len(self._kits)))
        # Without tags: on five public documents they brought nothing, as words, as names or as toolkits.
        self._text.add([*fields.name, *fields.description, *fields.parameters, *fields.toolkit, *fields.category])
        self._described.add(fields.described)
        parts = fields.name, fields.description, fields.toolkit
        self._pairs.add(_word_pairs(*parts))
        for index, words in zip(self._parts, parts, strict=True):
            index.add(words)

    def search(
        self,
        query: str,
        k: int = 5,
        *,
        available: Collection[str] | None = None,
        exclude: Collection[str] = (),
        lift: Mapping[str, float] | None = None,
    ) -> list[ToolHit]:
        """Return the k tools that the request most likely needs, in the order in which they complete a set.

        That is mostly the order of their scores; a tool that answers a clause unanswered so far moves up. Fewer than k
        if fewer are related to the request. If the embedder fails, only words are used, and the log says so once.

        Args:
            available: names that may be found. Defaults to all.
            exclude: names that are not found.
            lift: by name, further evidence for a tool, in the unit of the logarithm of the odds; see `Precedents`.

        Raises:
            EmbedderChangedError: some `vectors` were made by another embedder.
        """
        request = read(query)
        if request is None or k <= 0:
            return []
        cosines = self._cosines(request)
        with self._lock:
            if not self.specs:
                return []
            ranking = self._ranked(request, cosines)
            self._add_lift(ranking, lift or {})
            scores, fits = ranking.scores, ranking.fits
            if available is not None:
                fits &= self._among(available)
            fits &= ~self._among(exclude)
            candidates = np.flatnonzero(fits)
            # Only the best: the order in which tools complete a set is found by comparing all of them at each step.
            candidates = candidates[np.argsort(-scores[candidates], kind="stable")[: max(CANDIDATES, 2 * k)]]
            chosen = candidates[completing(scores[candidates], ranking.near[:, candidates], k)]
            hits = []
            for number in chosen.tolist():
                spec = self.specs[self._names[number]]
                score = probability(ranking.score.slope * float(scores[number]) + ranking.score.intercept)
                hits.append(ToolHit(spec.name, score, kit_name(spec)))
            return hits

    def _add_lift(self, ranking: Ranking, lift: Mapping[str, float]) -> None:
        """Add further evidence for tools to a ranking."""
        for name, more in lift.items():
            number = self._numbers.get(name)
            if number is not None:
                ranking.scores[number] += more
                # A tool that similar requests called is found without a common word.
                ranking.fits[number] |= more > 0

    def scores(self, query: str) -> dict[str, float]:
        """Return the score of every tool for a request, all 0 if it has no telling word."""
        request = read(query)
        cosines = None
        if request is not None:
            cosines = self._cosines(request)
        with self._lock:
            if request is None or not self.specs:
                return dict.fromkeys(self.specs, 0.0)
            scores = self._ranked(request, cosines).scores
            return {name: float(scores[self._numbers[name]]) for name in self.specs}

    def _among(self, names: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return (N,), True for the tools with these names."""
        among = np.zeros(len(self._names), dtype=np.bool_)
        among[[self._numbers[name] for name in names if name in self._numbers]] = True
        return among

    def _ranked(self, request: SearchRequest, cosines: Floats | None) -> Ranking:
        if self._arrays is None:
            self._arrays = _Arrays(self._names, self._kit_of, self._text, self._parts)
        arrays = self._arrays
        if cosines is not None and cosines.shape[1] != len(self._names):
            cosines = None  # tools were added or removed while the embedder worked: by words this time
        matches = self._matches(request, arrays)
        fits = arrays.alive > 0
        if cosines is None:
            near = _shares(matches.texts)
            rows = _word_signals(request, matches, near, arrays)
            score = BY_WORDS
            # The first piece is the whole request.
            fits &= matches.texts[0] + matches.described + matches.kits[arrays.kit_of] > 0
        else:
            likeness = np.maximum(cosines, 0)
            near = _shares(_shares(matches.texts) + 2 * _shares(likeness) ** 4)
            rows = _word_signals(request, matches, near, arrays) + _meaning_signals(request, likeness, arrays)
            score = BY_MEANING
        clauses = near[request.clauses]
        signals = np.stack(rows).astype(np.float32)
        scores = dot(score.weights, signals) + self._agreement(request, clauses)
        return Ranking(scores, clauses, fits, score)

    def _matches(self, request: SearchRequest, arrays: _Arrays) -> _Matches:
        words = list(dict.fromkeys(chain.from_iterable(request.words)))
        # Words of removed tools are still in the index, so their counts become 0.
        rarity, counts = self._text.rarity(words), self._text.counts(words) * arrays.alive
        queries = np.stack([_query(piece, words) for piece in request.words]) * rarity
        # The first piece is the whole request: fields and pairs of words are compared with it alone.
        whole = np.flatnonzero(queries[0])
        weights, asked = rarity[whole], [words[number] for number in whole]
        pairs = _word_pairs(request.words[0])
        shares: list[Floats] = []
        for part, total in zip(self._parts, arrays.totals, strict=True):
            shares.append(dot(weights, np.minimum(part.counts(asked), 1)) / total)
        name, description, toolkit = shares
        return _Matches(
            texts=dot(queries, saturated(counts, self._text.lengths)),
            described=dot(weights, saturated(self._described.counts(asked), self._described.lengths)),
            pairs=dot(self._pairs.rarity(pairs), self._pairs.counts(pairs)),
            kits=dot(queries[0], saturated(arrays.summed(counts), arrays.kit_lengths)),
            name=name,
            description=description,
            toolkit=toolkit,
        )

    def _agreement(self, request: SearchRequest, near: Floats) -> Floats:
        """Return (N,) additions to the scores by the effects of tools, given how `near` (C, N) each is to a clause."""
        nearest = near.argmax(axis=0)
        wishes = [(wanted.effect, wanted.removal, wanted.making) for wanted in request.wanted]
        wanted = np.array(wishes, dtype=np.float32)[nearest].T
        tools = np.array([self._effects, self._removes, self._makes], dtype=np.float32)
        weights = np.array([EFFECT, REMOVAL, MAKING], dtype=np.float32)
        added = dot(weights, wanted * tools)
        lists = np.array(self._lists, dtype=np.float32)
        for clause, wish in enumerate(request.wanted):
            # "Which pods" needs an operation that lists pods; "the pod" may still be one of a list.
            for nouns, weight in ((wish.plurals, GRAMMATICAL_NUMBER), (wish.singulars, -GRAMMATICAL_NUMBER / 2)):
                for noun in nouns & self._readers.keys():
                    readers = np.array(self._readers[noun])
                    readers = readers[nearest[readers] == clause]
                    added[readers] += weight * lists[readers]
        return added

    # --- meaning ---

    def _cosines(self, request: SearchRequest) -> Floats | None:
        """Return (P, N) cosines of pieces and tools; None without an embedder, or if it failed."""
        if self._embedder is None:
            return None
        try:
            self._embed_new()
            pieces = request.composed(self._embedder.embed_documents(request.texts))
        except EmbedderChangedError:
            raise
        except (StorageError, ConfigurationError) as error:
            # Once: a service that is down fails at every search.
            if not self._warned:
                self._warned = True
                log_failure(logger, logging.WARNING, "tools are searched by words alone", error=error)
            return None
        return self._cosines_with(pieces)

    def _cosines_with(self, pieces: Floats) -> Floats | None:
        """Return (P, N) cosines of pieces (P, D) with the tools' vectors; None if these have another dimension."""
        with self._lock:
            # A tool that was added while the embedder worked has no vector yet.
            nothing = np.zeros(pieces.shape[1], dtype=np.float32)
            rows = [self._vectors.get(name, nothing) for name in self._names]
            # Vectors from before the embedder changed its dimension cannot be compared with the request's.
            if any(row.shape != nothing.shape for row in rows):
                return None
            cosines: Floats = pieces @ np.stack(rows).T
            return cosines

    def _embed_new(self) -> None:
        """Embed the tools without a vector, one thread at a time."""
        with self._embedding:
            new: dict[str, ToolSpec] = {}
            texts: dict[str, str] = {}
            with self._lock:
                for name, spec in self.specs.items():
                    if name not in self._vectors:
                        new[name] = spec
                        texts[name] = embedded_text(spec, self._wording)
            if not texts:
                return
            for name, vector in self._source.of(texts).items():
                # A tool may have been removed or changed while the embedder worked.
                if self.specs.get(name) is new[name]:
                    self._vectors[name] = np.asarray(vector, dtype=np.float32)


class _Arrays:
    """Arrays of the tools that are independent of requests; N tools, K toolkits."""

    def __init__(
        self, names: Sequence[str], kit_of: Sequence[int], text: WordIndex, parts: Sequence[WordIndex]
    ) -> None:
        self.alive = np.array([bool(name) for name in names], dtype=np.float32)
        self.kit_of = np.array(kit_of, dtype=np.int64)
        self.order = np.argsort(self.kit_of, kind="stable")
        self.starts = np.searchsorted(self.kit_of[self.order], np.arange(max(kit_of, default=-1) + 1))
        # Words of removed tools do not count for their toolkits.
        self.kit_lengths = self.summed((text.lengths * self.alive)[np.newaxis])[0]
        self.kit_sizes = np.log(np.maximum(self.summed(self.alive[np.newaxis])[0], 1)) / 3
        self.totals: list[Floats] = [np.maximum(part.totals(text), np.float32(1e-6)) for part in parts]

    def summed(self, values: Floats) -> Floats:
        """Return (P, N) by tool -> (P, K) sums by toolkit."""
        sums: Floats = np.add.reduceat(values[:, self.order], self.starts, axis=1)
        return sums

    def best(self, values: Floats) -> Floats:
        """Return (P, N) by tool -> (P, K) highest values by toolkit."""
        highest: Floats = np.maximum.reduceat(values[:, self.order], self.starts, axis=1)
        return highest


def _word_signals(request: SearchRequest, matches: _Matches, near: Floats, arrays: _Arrays) -> list[Floats]:
    """Return ten signals, (N,) each, in the order of `FittedScore.weights`."""
    sentences, clauses = near[request.sentences], near[request.clauses]
    kit_of = arrays.kit_of
    return [
        clauses.max(axis=0),
        matches.name,
        matches.description,
        _share(matches.described),
        _share(matches.pairs),
        arrays.best(sentences).max(axis=0)[kit_of],
        arrays.best(clauses).mean(axis=0)[kit_of],
        _share(matches.kits)[kit_of],
        matches.toolkit,
        arrays.kit_sizes[kit_of],
    ]


def _meaning_signals(request: SearchRequest, likeness: Floats, arrays: _Arrays) -> list[Floats]:
    """Return three signals of (P, N) similarities in meaning: of the whole, its best sentence, and the toolkit."""
    return [
        2 * likeness[0],
        2 * likeness[request.sentences].max(axis=0),
        2 * arrays.best(likeness[:1])[0][arrays.kit_of],
    ]


def completing(scores: Floats, near: Floats, k: int) -> list[int]:
    """Return the first k of N places in the order in which they complete a set; `near` is h of the clauses, (C, N).

    Each time the tool with the largest score + COVERAGE · max_p (h(p, t) − max_{t' chosen} h(p, t')).
    """
    left = scores.astype(np.float64)
    # (C, 1) how well the tools chosen so far answer each clause.
    answered = np.zeros((len(near), 1), dtype=np.float32)
    chosen: list[int] = []
    for _ in range(min(k, len(left))):
        best = int((left + COVERAGE * np.maximum(near - answered, 0).max(axis=0, initial=0)).argmax())
        chosen.append(best)
        left[best] = -np.inf
        answered = np.maximum(answered, near[:, best : best + 1])
    return chosen


def probability(logit: float) -> float:
    """Return 1 / (1 + e^−logit)."""
    # math.exp raises OverflowError from 710 on.
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, logit))))


def _word_pairs(*texts: Sequence[str]) -> list[str]:
    """Return the pairs of neighbouring words in some texts, each once."""
    pairs: dict[str, None] = {}
    for words in texts:
        for first, second in pairwise(words):
            pairs[f"{first} {second}"] = None
    return list(pairs)


def _query(piece: Sequence[str], words: Sequence[str]) -> Floats:
    """Return (W,) weights of words in a query: the square root of their counts."""
    counts = Counter(piece)
    return np.sqrt(np.array([counts[word] for word in words], dtype=np.float32))


def _shares(values: Floats) -> Floats:
    """Return each row divided by its largest value."""
    shares: Floats = values / np.maximum(values.max(axis=1, keepdims=True, initial=0), 1e-6)
    return shares


def _share(values: Floats) -> Floats:
    """Return (N,) values divided by the largest."""
    shares: Floats = values / max(float(values.max(initial=0)), 1e-6)
    return shares
