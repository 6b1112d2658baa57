"""The plain scorer: a logistic regression on features of a pair, fitted to the links that a memory has seen [O].

Negatives are mixed: pairs by chance; hard ones (a link the wrong way round, two steps of one way that are not linked,
two tools of one toolkit), which count least, as too many teach that tools of one toolkit are not linked; and links with
another source, which are what a plan chooses among. A tenth of the tools is taken for new: no known link tells of
theirs, so that not all is left to what is known of both. A pair that was never seen counts as no link, so
probabilities are low rather than high.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.navigator.learned.features import Fits, PairFeatures
from langgraph_toolmem.navigator.learned.views import Floats, Ints, Views

Doubles = npt.NDArray[np.float64]
PENALTY: Final = 20.0
MIXED: Final = (1 / 3, 1 / 6, 1 / 2)
"""What negatives of each sort count."""
NEGATIVES: Final = 8
"""Of each sort, for each link."""
MOST: Final = 2_000
"""Links that are learned from, by chance where there are more; all count as known."""
CANDIDATES: Final = 16
"""Best producers of a consumer on which probabilities are calibrated."""
SHORTLIST: Final = 64
"""Producers that one score alone puts forward for a consumer, in a catalogue too large to look at all."""
CALIBRATED: Final = 256
"""Links on which that is done."""
HELD_OUT: Final = 0.2
NEW: Final = 0.1
"""Share of the tools that are taken for new while weights are fitted."""
BLOCK: Final = 8_192
"""Pairs whose features are made at a time."""


@dataclass(frozen=True)
class Weights:
    """A fitted regression.

    Attributes:
        mean, scale, weights: (F,) of each feature.
        bias: of the sum.
        odds: a and c of the probability σ(a · sum + c).
    """

    mean: Doubles
    scale: Doubles
    weights: Doubles
    bias: float
    odds: tuple[float, float] = (1.0, 0.0)

    def sums(self, features: Floats) -> Doubles:
        """(P,) weighted sums; more is likelier."""
        found: Doubles = ((features - self.mean) / self.scale) @ self.weights + self.bias
        return found

    def probabilities(self, sums: Doubles) -> Doubles:
        """(P,) what a sum means."""
        return sigmoid(self.odds[0] * sums + self.odds[1])


class Shortlist:
    """Producers that are worth a look."""

    def __init__(self, views: Views, features: PairFeatures, fits: Fits) -> None:
        self.views, self.features, self.fits = views, features, fits

    def candidates(self, consumer: int) -> Ints:
        """Those of a consumer: all of a small catalogue; of a large one those that one score alone puts forward."""
        total = len(self.views)
        if total <= 4 * SHORTLIST:
            return np.delete(np.arange(total), consumer)
        found: list[Ints] = [
            np.fromiter(self.fits(consumer), dtype=np.int64),
            self.features.sources_for(consumer, SHORTLIST),
        ]
        for kind in ("meaning", "words"):
            of = self.views.of
            scores = of[kind, "gives"] @ of[kind, "takes"][consumer]
            found.append(np.argpartition(-scores, SHORTLIST)[:SHORTLIST])
        some: Ints = np.setdiff1d(np.concatenate(found), [consumer])
        return some


class PlainModel(Shortlist):
    """Links of a catalogue, learned.

    Args:
        views: the tools.
        fits: how well they fit by structure.
        links: (L, 2) what is known.
        weights: fitted ones.
    """

    def __init__(self, views: Views, fits: Fits, links: Ints, weights: Weights) -> None:
        super().__init__(views, PairFeatures(views, fits, links), fits)
        self.weights = weights

    def sums(self, pairs: Ints) -> Doubles:
        """(P,) weighted sums of pairs; of a known link as if it were not known: that it is counts elsewhere."""
        hidden = np.where(self.features.known(pairs)[:, np.newaxis], pairs, -1)
        return self.weights.sums(self.features.of(pairs, hidden=hidden))

    def rows(self, consumers: Iterable[int]) -> Iterator[tuple[int, Ints, Doubles]]:
        """Consumers with their candidates and the probabilities of these; several at a time are cheaper."""
        for some in _some(consumers, max(1, BLOCK // max(len(self.views), 1))):
            producers = [self.candidates(consumer) for consumer in some]
            found = self.weights.probabilities(self.sums(paired(producers, some)))
            yield from zip(some, producers, np.split(found, _ends(producers)), strict=True)


def fit(
    views: Views, fits: Fits, links: Ints, *, together: Collection[tuple[int, int]] = (), seed: int = 0
) -> PlainModel:
    """Learns links.

    Args:
        views: the tools.
        fits: how well they fit by structure.
        links: (L, 2) producer and consumer, each link once.
        together: pairs used on one way without being linked.
        seed: of the negatives.
    """
    rng = np.random.default_rng(seed)
    features = PairFeatures(views, fits, links, new=rng.permutation(len(views))[: round(NEW * len(views))])
    chosen = links if len(links) <= MOST else links[rng.choice(len(links), MOST, replace=False)]
    *others, (replaced, hidden) = negatives(rng, features, chosen, together)
    sorts = [pairs for pairs in (*others, replaced) if len(pairs)]
    rows = np.concatenate(
        [
            features.of(chosen, hidden=chosen),
            *(features.of(pairs) for pairs in others if len(pairs)),
            features.of(replaced, hidden=hidden),
        ]
    )
    labels = np.concatenate([np.ones(len(chosen)), np.zeros(sum(map(len, sorts)))])
    parts = [part for part, pairs in zip(MIXED, (*others, replaced), strict=True) if len(pairs)]
    shares = [np.full(len(p), len(chosen) * part / sum(parts) / len(p)) for part, p in zip(parts, sorts, strict=True)]
    mean, scale = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64) + 1e-6
    found = regression((rows - mean) / scale, labels, np.concatenate([np.ones(len(chosen)), *shares]), PENALTY)
    weights = Weights(mean, scale, found[:-1], float(found[-1]))
    model = PlainModel(views, fits, links, weights)
    model.weights = Weights(mean, scale, found[:-1], float(found[-1]), _odds(rng, model, chosen))
    return model


def negatives(
    rng: np.random.Generator, features: PairFeatures, links: Ints, together: Collection[tuple[int, int]]
) -> tuple[Ints, Ints, tuple[Ints, Ints]]:
    """Pairs that are no known links: by chance, hard ones, links with another source (and these); see the module."""
    total, count = len(features.views), NEGATIVES * len(links)

    def apart(pairs: Ints) -> Ints:
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        return pairs[~features.known(pairs)] if len(pairs) else pairs

    chance = apart(rng.integers(total, size=(2 * count, 2)))[:count]
    hidden = np.repeat(links, NEGATIVES, axis=0)
    replaced = np.stack([rng.integers(total, size=count), hidden[:, 1]], axis=1)
    fine = (replaced[:, 0] != replaced[:, 1]) & ~features.known(replaced)
    kits = features.views.labels["kit"]
    order = np.argsort(kits, kind="stable")
    order = order[kits[order] >= 0]
    hard = [links[:, ::-1], np.array(sorted(together), dtype=np.int64).reshape(-1, 2)]
    if len(order):
        # A tool of a toolkit with another one of it, by chance.
        one = rng.choice(order, count)
        first, last = (np.searchsorted(kits[order], kits[one], side=side) for side in ("left", "right"))
        hard.append(np.stack([one, order[first + (rng.random(count) * (last - first)).astype(np.int64)]], axis=1))
    every = apart(np.concatenate(hard))
    return chance, every[rng.integers(len(every), size=count)] if len(every) else every, (replaced[fine], hidden[fine])


def structural_within(fits: Fits, asked: Ints, links: Ints, total: int, seed: int = 0) -> float:
    """`within` of links by structure alone."""
    asked, rest = rivals(asked, links, total, seed)
    right = [fits(consumer).get(producer, 0.0) for producer, consumer in asked.tolist()]
    others = [
        np.array([fits(consumer).get(place, 0.0) for place in places.tolist()])
        for (_, consumer), places in zip(asked.tolist(), rest, strict=True)
    ]
    return within(right, others)


def held_out(links: Ints, seed: int = 0, share: float = HELD_OUT) -> tuple[Ints, Ints]:
    """Links that are not learned from, and the others."""
    order = np.random.default_rng(seed).permutation(len(links))
    held = order[: max(1, round(share * len(links)))]
    return links[held], np.delete(links, held, axis=0)


def rivals(asked: Ints, links: Ints, total: int, seed: int = 0, most: int = 512) -> tuple[Ints, list[Ints]]:
    """For each asked link the other producers of its consumer that no link tells of; where there are many, by chance.

    Returns:
        The asked links that have rivals, and these.
    """
    known = links[:, 0] * total + links[:, 1]
    others = np.arange(total)
    if total > most:
        others = np.sort(np.random.default_rng(seed).choice(total, most, replace=False))
    rest = [others[(others != consumer) & ~np.isin(others * total + consumer, known)] for _, consumer in asked.tolist()]
    some = [place for place, each in enumerate(rest) if len(each)]
    return asked[some], [rest[place] for place in some]


def within(right: Iterable[float], rest: Iterable[npt.NDArray[np.floating]]) -> float:
    """Mean AUC within a consumer: share of the rivals that score less than the right producer."""
    found = [above(float(value), others) for value, others in zip(right, rest, strict=True)]
    return float(np.mean(found)) if found else 0.5


def two_steps(links: Ints) -> set[tuple[int, int]]:
    """First and last tool of two links in a row."""
    after: dict[int, list[int]] = {}
    for producer, consumer in links.tolist():
        after.setdefault(producer, []).append(consumer)
    return {(first, last) for first, middles in after.items() for middle in middles for last in after.get(middle, ())}


def regression(rows: Doubles, labels: Doubles, shares: Doubles, penalty: float) -> Doubles:
    """(F + 1,) weights and bias that minimise Σ shares · logistic loss + penalty/2 · |weights|², by Newton's method."""
    wide = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    ridge = np.append(np.full(rows.shape[1], penalty), 1e-6)
    found = np.zeros(wide.shape[1])
    for _ in range(25):
        likely = sigmoid(wide @ found)
        slope = wide.T @ (shares * (likely - labels)) + ridge * found
        curve = (wide * (shares * likely * (1 - likely))[:, np.newaxis]).T @ wide + np.diag(ridge)
        step = np.linalg.solve(curve, slope)
        found = found - step
        if float(np.abs(step).max(initial=0.0)) < 1e-6:
            break
    return found


def sigmoid(values: npt.ArrayLike) -> Doubles:
    """1 / (1 + e^−x)."""
    found: Doubles = 1 / (1 + np.exp(-np.clip(np.asarray(values, dtype=np.float64), -40, 40)))
    return found


def above(value: float, others: npt.NDArray[np.floating]) -> float:
    """Share of others that are less; of those that are equal, half."""
    return float((np.count_nonzero(others < value) + np.count_nonzero(others <= value)) / (2 * max(len(others), 1)))


def _odds(rng: np.random.Generator, model: PlainModel, links: Ints) -> tuple[float, float]:
    """What a sum means among the best candidates of a consumer, each link hidden where it is the one to be found."""
    some = links if len(links) <= CALIBRATED else links[rng.choice(len(links), CALIBRATED, replace=False)]
    sums: list[Doubles] = []
    labels: list[npt.NDArray[np.bool_]] = []
    for part in _some(range(len(some)), max(1, BLOCK // len(model.views))):
        consumers = some[part, 1].tolist()
        producers = [model.candidates(consumer) for consumer in consumers]
        pairs = paired(producers, consumers)
        counts = [len(each) for each in producers]
        hidden = np.repeat(some[part], counts, axis=0)
        right = pairs[:, 0] == hidden[:, 0]
        found = model.weights.sums(model.features.of(pairs, hidden=hidden))
        found[model.features.known(pairs) & ~right] = -np.inf
        for mine, own in zip(*(np.split(each, np.cumsum(counts)[:-1]) for each in (found, right)), strict=True):
            best = np.argsort(-mine, kind="stable")[:CANDIDATES]
            best = best[np.isfinite(mine[best])]
            sums.append(mine[best])
            labels.append(own[best])
    x, y = np.concatenate(sums), np.concatenate(labels).astype(np.float64)
    if not y.any():
        return 1.0, -3.0
    line = regression(x[:, np.newaxis], y, np.ones(len(x)), 1.0)
    return float(max(line[0], 1e-3)), float(line[1])


def paired(producers: Sequence[Ints], consumers: Sequence[int]) -> Ints:
    """(P, 2) each consumer with its producers, one after another."""
    column = np.repeat(np.array(consumers, dtype=np.int64), [len(each) for each in producers])
    return np.stack([np.concatenate(producers), column], axis=1)


def _some(values: Iterable[int], count: int) -> Iterator[list[int]]:
    left = iter(values)
    while some := list(islice(left, count)):
        yield some


def _ends(parts: Sequence[Ints]) -> Ints:
    found: Ints = np.cumsum([len(each) for each in parts])[:-1]
    return found
