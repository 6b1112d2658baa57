"""What a term says about a request, learned from the entries alone.

Templated requests share their structure and differ in their values, and a name is as rare as a verb. The two are
told apart by how they behave: look at the nearest neighbours of an entry, the ones that read alike; what stands in
the neighbours too is structure, what does not is a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.text.requests import term_weight

Places = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]

NEAREST: Final = 4
"""Neighbours of an entry that are looked at."""
LEAST: Final = 0.45
"""Similarity from which a neighbour counts."""
PRIOR: Final = 0.5
"""Weight of the mean of all terms in the stability of one, in neighbours."""
FLOOR: Final = 0.1
"""Stability of a term that no neighbour ever has."""
SHARPNESS: Final = 2.5
"""Exponent of stability."""
UNKNOWN: Final = 0.5
"""What a term has that is not in the sample."""
UNSEEN: Final = 0.15
"""Weight of a term that at most one entry has: a value more often than a sign of another request."""
USUAL: Final = 0.5
"""Least weight of any other: where all requests are of one kind, its usual words still tell the kind."""
SAME: Final = 0.999
"""Similarity from which two texts are taken for one: they tell nothing about what may differ."""


class Incidence(NamedTuple):
    """Which text has which term, as (row, column) pairs of a matrix, row by row.

    Sums over them are made without BLAS, which would make work for all cores, and wait for them on a busy machine.

    Attributes:
        places, columns: of the pairs.
        terms: of the columns.
        rows: how many texts there are.
    """

    places: Places
    columns: Places
    terms: list[str]
    rows: int

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]]) -> Incidence:
        """Of texts given by their terms, each once."""
        numbers = {term: number for number, term in enumerate(dict.fromkeys(chain.from_iterable(texts)))}
        columns = np.fromiter(map(numbers.__getitem__, chain.from_iterable(texts)), dtype=np.intp)
        return cls(np.repeat(np.arange(len(texts)), list(map(len, texts))), columns, list(numbers), len(texts))

    def sums(self, weight: Floats) -> Floats:
        """Of each text, the sum of its terms' weights."""
        return np.bincount(self.places, weight[self.columns], minlength=self.rows).astype(np.float64, copy=False)

    def shared(self, rows: Iterable[int], weight: Floats) -> Floats:
        """Of some texts and every text, the sum of the weights of the terms that both have."""
        ends = np.searchsorted(self.places, np.arange(self.rows + 1))

        def with_all(row: int) -> Floats:
            own, mine = np.zeros(len(weight)), self.columns[ends[row] : ends[row + 1]]
            own[mine] = weight[mine]
            return self.sums(own)

        return np.array([with_all(row) for row in rows])


class Weights:
    """What terms weigh: rarity times looks times stability, learned from a sample of past requests.

    Args:
        requests: terms of each request (`terms_of`).
        signatures: what each called, "" if nothing.

    Attributes:
        agreement: how often neighbours called the same tools, beyond chance: 0 (never more often) to 1.
    """

    def __init__(self, requests: Sequence[Sequence[str]] = (), signatures: Sequence[str] = ()) -> None:
        self._seen = Counter(chain.from_iterable(requests))
        self._requests = len(requests)
        self._stability: dict[str, float] = {}
        self.agreement = 0.0
        if len(requests) > 1:
            found = Incidence.of(requests)
            base = rarity(np.array([self._seen[term] for term in found.terms], float), len(requests))
            stability, self.agreement = _learn(found, base * _looks_of(found.terms), signatures)
            self._stability = dict(zip(found.terms, stability.tolist(), strict=True))
        self._unknown = UNKNOWN if self._stability else 1.0

    def of(self, terms: Sequence[str], seen: npt.ArrayLike) -> Floats:
        """Their weights; `seen`: how many of the requests that are compared have each, for terms the sample lacks."""
        known = np.fromiter((self._seen.get(term, 0) for term in terms), float, len(terms))
        often: Floats = np.maximum(known, seen)
        stability = np.fromiter((self._stability.get(term, self._unknown) for term in terms), float, len(terms))
        found: Floats = rarity(often, max(self._requests, np.max(seen, initial=0))) * _looks_of(terms) * stability
        return found


def rarity(seen: Floats, requests: float) -> Floats:
    """Inverse document frequency, ln((N+1) / (n+½)), not below USUAL; UNSEEN where n ≤ 1."""
    found: Floats = np.where(seen <= 1, UNSEEN, np.maximum(np.log((requests + 1) / (seen + 0.5)), USUAL))
    return found


def _looks_of(terms: Sequence[str]) -> Floats:
    return np.fromiter(map(term_weight, terms), float, len(terms))


def _learn(texts: Incidence, base: Floats, signatures: Sequence[str]) -> tuple[Floats, float]:
    """Stability of terms: the share of neighbours that have the term too, weighed by similarity; and the agreement.

    With N(e) the NEAREST requests to e whose similarity s is at least LEAST:

        stability(t) = Σ_{e∋t} Σ_{f∈N(e)} s·[t∈f] / Σ_{e∋t} Σ_{f∈N(e)} s

    pulled towards the mean of its kind (word or pair) by PRIOR, raised to FLOOR, to the power of SHARPNESS.
    """
    places, columns, used, rows = texts
    sizes = texts.sums(base)
    similarity = 2 * texts.shared(range(rows), base) / np.maximum(sizes[:, None] + sizes[None, :], 1e-12)
    similarity[similarity >= SAME] = 0.0
    np.fill_diagonal(similarity, 0.0)
    near = np.argsort(-similarity, axis=1, kind="stable")[:, : min(NEAREST, rows - 1)]
    strength = np.take_along_axis(similarity, near, axis=1)
    agreement = _agreement(near, strength, signatures)
    strength[strength < LEAST] = 0.0

    has_too = np.isin(near[places] * len(used) + columns[:, None], places * len(used) + columns)
    total = np.bincount(columns, strength.sum(axis=1)[places], minlength=len(used))
    hits = np.bincount(columns, (strength[places] * has_too).sum(axis=1), minlength=len(used))

    is_pair = np.array([" " in term for term in used], dtype=bool)
    mean = np.full(len(used), 1.0)
    for kind in (is_pair, ~is_pair):
        if total[kind].sum() > 0:
            mean[kind] = hits[kind].sum() / total[kind].sum()
    share = (hits + PRIOR * mean) / (total + PRIOR)
    found: Floats = (FLOOR + (1 - FLOOR) * share) ** SHARPNESS
    return found, agreement


def _agreement(near: npt.NDArray[np.intp], strength: Floats, signatures: Sequence[str]) -> float:
    """How often neighbours called the same, less how often any two entries did. Entries without calls tell nothing."""
    _, codes = np.unique(np.array(["", *signatures]), return_inverse=True)
    none, codes = codes[0], codes[1:]
    told = codes != none
    if told.sum() < 2:
        return 0.0
    counts = np.bincount(codes[told])
    chance = float((counts * (counts - 1)).sum() / (told.sum() * (told.sum() - 1)))
    pairs = told[:, None] & told[near] & (strength > 0)
    if not pairs.any():
        return 0.0
    return max(0.0, float((codes[:, None] == codes[near])[pairs].mean()) - chance)
