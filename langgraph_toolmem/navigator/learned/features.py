"""Features of a pair of tools: would an output of one feed an input of the other? [O]

Four kinds. *Scores* that nobody trained: one view of the producer by one of the consumer, as it is and as the share of
other producers (of other consumers) that score less; a cosine alone says little, being the best of a consumer's says
much. *Shape*: how many inputs and outputs, of which types. *Counts* of links known: of both tools, of their verbs,
toolkits and nouns. *Propagated* links: Σ over known links (u, v) of K(a, u) K(b, v), K = exp(s (cos − 1)): are there
links between tools like these? To learn from known links, each is hidden while it is the one to be foreseen, and while
its rivals are: else what is known would tell the one from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.navigator.learned.views import KINDS, SHAPE, Floats, Ints, Views

SCORES: Final = (
    ("meaning", "tool", "tool"),
    ("meaning", "gives", "takes"),
    ("meaning", "gives", "tool"),
    ("meaning", "tool", "takes"),
    ("meaning", "takes", "takes"),
    ("meaning", "gives", "gives"),
    ("words", "tool", "tool"),
    ("words", "name", "name"),
    ("words", "gives", "takes"),
    ("words", "gives", "tool"),
    ("words", "tool", "takes"),
    ("words", "takes", "takes"),
    ("words", "gives", "gives"),
)
"""Untrained scores: kind of vector, view of the producer, view of the consumer."""
KERNELS: Final = (
    (("meaning", "tool"), ("meaning", "tool"), 4.0),
    (("meaning", "tool"), ("meaning", "tool"), 12.0),
    (("meaning", "gives"), ("meaning", "takes"), 8.0),
    (("words", "tool"), ("words", "tool"), 4.0),
    (("words", "name"), ("words", "name"), 4.0),
    (("words", "gives"), ("words", "takes"), 4.0),
)
"""Likeness of producers, of consumers, and its sharpness s."""
SAMPLE: Final = 512
"""Tools among which a share is taken; where there are more, by chance."""
QUANTILES: Final = 64
BLOCK: Final = 2_048
"""Pairs, or tools, that are worked on at a time."""

Rows = TypeVar("Rows", bound=npt.NDArray[Any])
HEARD: Final = 256
"""Producers of known links that count for a consumer: those whose links end nearest to it."""
_LABELS: Final = ("verb", "kit", "entity")
_LIKE: Final = ("", "by their number", "of producers", "of consumers")
NAMES: Final = (
    *(f"{kind} {one}-{other}{part}" for kind, one, other in SCORES for part in ("", " of producers", " of consumers")),
    *(f"{kind} {one}-{other} back" for kind, one, other in SCORES if one != other),
    *("fit", "fit by the best", "fits", "fit back", "best fit"),
    *(f"{side} {name}" for side in ("producer", "consumer") for name in SHAPE),
    *(f"both {kind or 'any'}" for kind in KINDS), "types shared",
    *(f"same {label}" for label in _LABELS), "producer's verb", "consumer's verb",
    *("links from producer", "links to consumer", "links to producer", "links from consumer", "linked back"),
    *(f"{label}s {part}" for label in _LABELS for part in ("linked", "linked by chance", "from", "to")),
    *(f"like {n} {part}" for n in range(len(KERNELS)) for part in _LIKE),
)  # fmt: skip
"""What the columns of `PairFeatures.of` are."""


class Fits(Protocol):
    """How well tools fit by structure; tools are numbers."""

    def __call__(self, consumer: int, /) -> Mapping[int, float]:
        """Producer -> how well it fits a consumer."""

    def feeds(self, producer: int, /) -> Callable[[int], bool]:
        """Whether a producer may fit a consumer: False is sure."""


class PairFeatures:
    """Features of pairs of tools, given links that are known.

    Args:
        views: the tools.
        fits: how well producers fit a consumer by structure.
        links: (L, 2) producer and consumer of each known link, each link once.
        new: tools that are taken for ones of which no link is known.
    """

    def __init__(self, views: Views, fits: Fits, links: Ints, *, new: Ints | None = None) -> None:
        self.views, self._fits = views, fits
        total = len(views)
        self._known = np.sort(links[:, 0] * total + links[:, 1])
        self.links = links = links if new is None else links[~np.isin(links, new).any(axis=1)]
        rng = np.random.default_rng(0)
        sample = np.arange(total) if total <= SAMPLE else np.sort(rng.choice(total, SAMPLE, replace=False))
        of = views.of
        self._of_producers = [_quantiles(of[k, other], of[k, one][sample]) for k, one, other in SCORES]
        self._of_consumers = [_quantiles(of[k, one], of[k, other][sample]) for k, one, other in SCORES]
        self._keys = np.sort(links[:, 0] * total + links[:, 1])
        self._from, self._to = (np.bincount(links[:, side], minlength=total) for side in (0, 1))
        order = np.argsort(links[:, 0], kind="stable")
        self._sources, self._starts = np.unique(links[order, 0], return_index=True)
        self._targets, self._target_of = np.unique(links[order, 1], return_inverse=True)
        self._paired = [_Paired(views.labels[label], links) for label in _LABELS]
        self._lately: tuple[int, dict[tuple[str, str], Floats]] = (-1, {})
        self._like_sources = np.zeros((len(KERNELS), total), dtype=np.float32)
        self._propagated = [self._propagated_quantiles(number, sample) for number in range(len(KERNELS))]

    def known(self, pairs: Ints) -> npt.NDArray[np.bool_]:
        """(P,) whether a pair is a known link."""
        return _among(self._known, pairs[:, 0] * len(self.views) + pairs[:, 1])

    def _counts(self, pairs: Ints) -> npt.NDArray[np.bool_]:
        """(P,) whether a pair is a link of which features tell."""
        return _among(self._keys, pairs[:, 0] * len(self.views) + pairs[:, 1])

    def of(self, pairs: Ints, *, hidden: Ints | None = None) -> Floats:
        """(P, F) features, columns as `NAMES`.

        Args:
            pairs: (P, 2) producer and consumer.
            hidden: (P, 2) for each pair a known link that does not count for it; (−1, −1): all count.
        """
        if len(pairs) > BLOCK:
            rests = [None] * len(_parts(pairs)) if hidden is None else _parts(hidden)
            return np.concatenate([self.of(a, hidden=b) for a, b in zip(_parts(pairs), rests, strict=True)])
        hidden = np.full_like(pairs, -1) if hidden is None else np.where(self._counts(hidden)[:, None], hidden, -1)
        columns = [*self._scored(pairs), *self._shaped(pairs)]
        columns += [*self._counted(pairs, hidden), *self._likened(pairs, hidden)]
        return np.stack([np.asarray(column, dtype=np.float32) for column in columns], axis=1)

    def sources_for(self, consumer: int, count: int) -> Ints:
        """Producers of known links whose consumers are most like this one."""
        votes = self._votes(1, np.array([consumer]))[0] + self._votes(5, np.array([consumer]))[0]
        found: Ints = self._sources[np.argsort(-votes, kind="stable")[:count]]
        return found

    def _scored(self, pairs: Ints) -> list[npt.NDArray[np.floating]]:
        a, b = pairs.T
        of, grid = self.views.of, _Grid(pairs)
        found: list[npt.NDArray[np.floating]] = []
        back = []
        for number, (kind, one, other) in enumerate(SCORES):
            score = grid.products(of[kind, one], of[kind, other])
            found += [score, _rank(score, self._of_producers[number], b), _rank(score, self._of_consumers[number], a)]
            if one != other:
                back.append(grid.products(of[kind, other], of[kind, one]))
        return found + back

    def _shaped(self, pairs: Ints) -> list[npt.NDArray[np.generic]]:
        a, b = pairs.T
        views, consumers = self.views, np.unique(b).tolist()
        into = {place: self._fits(place) for place in consumers}
        feeds = {place: self._fits.feeds(place) for place in consumers}
        most = {place: max(fits.values(), default=0.0) for place, fits in into.items()}
        fit = np.array([into[consumer].get(producer, 0.0) for producer, consumer in pairs.tolist()])
        back = np.array([self._fits(p).get(c, 0.0) if feeds[c](p) else 0.0 for p, c in pairs.tolist()])
        best = np.array([most[consumer] for consumer in b.tolist()])
        found: list[npt.NDArray[np.generic]] = [fit, fit / np.maximum(best, 1e-6), fit > 0, back, best]
        found += [*views.shape[a].T, *views.shape[b].T]
        gives, takes = views.gives[a], views.takes[b]
        found += [*((gives > 0) & (takes > 0)).T]
        found.append(np.minimum(gives, takes).sum(axis=1) / np.maximum(takes.sum(axis=1), 1))
        found += [
            (views.labels[label][a] == views.labels[label][b]) & (views.labels[label][a] >= 0) for label in _LABELS
        ]
        return [*found, views.labels["verb"][a] >= 0, views.labels["verb"][b] >= 0]

    def _counted(self, pairs: Ints, hidden: Ints) -> list[npt.NDArray[np.generic]]:
        (a, b), (u, v) = pairs.T, hidden.T
        back = self._counts(pairs[:, ::-1]) & ~((u == b) & (v == a))
        found: list[npt.NDArray[np.generic]] = [
            np.log1p(self._from[a] - (u == a)),
            np.log1p(self._to[b] - (v == b)),
            np.log1p(self._to[a] - (v == a)),
            np.log1p(self._from[b] - (u == b)),
            back,
        ]
        for paired in self._paired:
            both, out, into = paired.of(pairs, hidden)
            chance = out * into / max(len(self.links), 1)
            found += [np.log1p(both), np.log((both + 0.5) / (chance + 0.5)), np.log1p(out), np.log1p(into)]
        return found

    def _likened(self, pairs: Ints, hidden: Ints) -> list[npt.NDArray[np.floating]]:
        a, b = pairs.T
        grid, some = _Grid(pairs), np.flatnonzero(hidden[:, 0] >= 0)
        cosines: dict[tuple[str, str], Floats] = {}
        made = self._made_for(grid.consumers)
        found: list[npt.NDArray[np.floating]] = []
        for number, (one, other, sharp) in enumerate(KERNELS):
            targets = np.exp(sharp * (self._to_targets(other, grid.consumers, made) - 1))
            votes = self._voted(targets)
            if len(grid.consumers) == 1 and votes.shape[1] > HEARD:  # of many consumers all sources are heard
                heard = np.flatnonzero(votes[0])
                like = _kernel(self.views.of[one], grid.producers, self._sources[heard], sharp)
                votes = votes[:, heard]
            else:
                if one not in cosines:
                    cosines[one] = self.views.of[one][grid.producers] @ self.views.of[one][self._sources].T
                like = np.exp(sharp * (cosines[one] - 1))
            sums = grid.taken(like, votes)
            if len(some):
                left, right = (
                    np.einsum(
                        "pd,pd->p", self.views.of[view][pairs[some, side]], self.views.of[view][hidden[some, side]]
                    )
                    for side, view in enumerate((one, other))
                )
                sums[some] -= np.exp(sharp * (left + right - 2))
            sums = np.maximum(sums, 0)
            many = self._like_sources[number][a] * targets.sum(axis=1)[grid.column]
            of_producers, of_consumers = self._propagated[number]
            found += [np.log(sums + 1e-3), sums / np.sqrt(np.maximum(many, 1e-6))]
            found += [_rank(sums, of_producers, b), _rank(sums, of_consumers, a)]
        return found

    def _votes(self, number: int, consumers: Ints) -> Floats:
        """(C, S) Σ over the links of each source of K(b, v)."""
        _, other, sharp = KERNELS[number]
        return self._voted(np.exp(sharp * (self._to_targets(other, consumers, self._made_for(consumers)) - 1)))

    def _to_targets(self, view: tuple[str, str], consumers: Ints, made: dict[tuple[str, str], Floats]) -> Floats:
        """(C, T) cosines of consumers with those of known links; `made`: those made already."""
        if view not in made:
            of = self.views.of[view]
            made[view] = of[consumers] @ of[self._targets].T
        return made[view]

    def _made_for(self, consumers: Ints) -> dict[tuple[str, str], Floats]:
        """What `_to_targets` made for a consumer that is asked about again at once."""
        if len(consumers) != 1:
            return {}
        lately = self._lately
        if lately[0] != consumers[0]:
            lately = self._lately = int(consumers[0]), {}
        return lately[1]

    def _voted(self, like: Floats) -> Floats:
        """(C, S) of (C, T) likenesses to the consumers of known links; 0 but for the `HEARD` highest of each row."""
        if not len(self.links):
            return np.zeros((len(like), 0), dtype=np.float32)
        found: Floats = np.add.reduceat(like[:, self._target_of], self._starts, axis=1)
        if found.shape[1] > HEARD:
            least = np.partition(found, -HEARD, axis=1)[:, -HEARD, np.newaxis]
            found[found < least] = 0
        return found

    def _propagated_quantiles(self, number: int, sample: Ints) -> tuple[Floats, Floats]:
        """(N, Q) twice: of each consumer over the sample as producers, of each producer over it as consumers."""
        one, _, sharp = KERNELS[number]
        every = np.arange(len(self.views))
        likes, votes = _kernel(self.views.of[one], sample, self._sources, sharp), self._votes(number, sample)
        of_consumers = []
        for part in _parts(every):
            like = _kernel(self.views.of[one], part, self._sources, sharp)
            self._like_sources[number][part] = like.sum(axis=1)
            of_consumers.append(_spread(like @ votes.T))
        of_producers = [_spread(self._votes(number, part) @ likes.T) for part in _parts(every)]
        return np.concatenate(of_producers), np.concatenate(of_consumers)


class _Grid:
    """Pairs as places in a grid of the tools they are made of: products are of matrices where that is less work."""

    def __init__(self, pairs: Ints) -> None:
        self.producers, self.row = np.unique(pairs[:, 0], return_inverse=True)
        self.consumers, self.column = np.unique(pairs[:, 1], return_inverse=True)
        self._whole = len(self.producers) * len(self.consumers) <= 8 * len(pairs)

    def products(self, one: Floats, other: Floats) -> Floats:
        """(P,) of a row for the producer by one for the consumer; both have a row for each tool."""
        return self.taken(one[self.producers], other[self.consumers])

    def taken(self, one: Floats, other: Floats) -> Floats:
        """(P,) likewise; a row for each tool of the grid."""
        if self._whole:
            whole: Floats = (one @ other.T)[self.row, self.column]
            return whole
        found: Floats = np.einsum("pd,pd->p", one[self.row], other[self.column])
        return found


class _Paired:
    """How many known links lead from tools of one label to tools of another one."""

    def __init__(self, labels: Ints, links: Ints) -> None:
        self._labels = labels + 1  # 0: it has none
        self._width = int(self._labels.max(initial=0)) + 1
        out, into = self._labels[links[:, 0]], self._labels[links[:, 1]]
        self._keys, self._counts = np.unique(out * self._width + into, return_counts=True)
        self._out, self._into = (np.bincount(side, minlength=self._width) for side in (out, into))

    def of(self, pairs: Ints, hidden: Ints) -> tuple[Ints, ...]:
        """(P,) three times: links between the two labels, from the first, to the second, without the hidden ones."""
        (out, into), there = self._labels[pairs].T, hidden[:, 0] >= 0
        first, last = (self._labels[hidden] == self._labels[pairs]).T & there
        keys = out * self._width + into
        at = np.minimum(np.searchsorted(self._keys, keys), max(len(self._keys) - 1, 0))
        both = np.where(self._keys[at] == keys, self._counts[at], 0) if len(self._keys) else np.zeros(len(keys))
        return both - (first & last), self._out[out] - first, self._into[into] - last


def _among(keys: Ints, asked: Ints) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.zeros(len(asked), dtype=np.bool_)
    at = np.searchsorted(keys, asked)
    inside = at < len(keys)
    found[inside] = keys[at[inside]] == asked[inside]
    return found


def _kernel(vectors: Floats, some: Ints, others: Ints, sharp: float) -> Floats:
    found: Floats = np.exp(sharp * (vectors[some] @ vectors[others].T - 1))
    return found


def _quantiles(rows: Floats, sample: Floats) -> Floats:
    """(N, Q) of each row's products with a sample, sorted."""
    return np.concatenate([_spread(part @ sample.T) for part in _parts(rows)])


def _spread(values: Floats) -> Floats:
    """Each row sorted, at most `QUANTILES` numbers of it."""
    values = np.sort(values, axis=1)
    count = values.shape[1]
    if count <= QUANTILES:
        return values
    return values[:, np.linspace(0, count - 1, QUANTILES).round().astype(np.int64)]


def _rank(values: npt.NDArray[np.floating], rows: Floats, places: Ints) -> Floats:
    """(P,) share of each value's sorted row that is less than it; of what equals it, half."""
    if not rows.shape[1] or not len(values):
        return np.zeros(len(values), dtype=np.float32)
    values = values.astype(np.float32)
    if (places == places[0]).all():
        row = rows[places[0]]
        both = np.searchsorted(row, values - 1e-6) + np.searchsorted(row, values + 1e-6, side="right")
    else:
        column, of = values[:, np.newaxis], rows[places]
        both = np.count_nonzero(of < column - 1e-6, axis=1) + np.count_nonzero(of <= column + 1e-6, axis=1)
    found: Floats = (both / (2 * rows.shape[1])).astype(np.float32)
    return found


def _parts(rows: Rows) -> list[Rows]:
    found: list[Any] = [rows[start : start + BLOCK] for start in range(0, max(len(rows), 1), BLOCK)]
    return found
