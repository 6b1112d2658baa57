"""What a term says about a request, learned from the entries alone.

Templated requests share their structure and differ in their values, and a name is as rare as a verb. The two are
told apart by how they behave: look at the nearest neighbours of an entry, the ones that read alike; what stands in
the neighbours too is structure, what does not is a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.words import wording

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


class Weights:
    """What terms weigh: rarity times looks times stability, learned from a sample of past requests.

    Args:
        requests: terms of each request (`wording.terms`).
        signatures: what each called, "" if nothing.

    Attributes:
        agreement: how often neighbours called the same tools, beyond chance: 0 (never more often) to 1.
    """

    def __init__(self, requests: Sequence[Sequence[str]] = (), signatures: Sequence[str] = ()) -> None:
        self._seen = Counter(term for terms in requests for term in terms)
        self._requests = len(requests)
        self._stability: dict[str, float] = {}
        self.agreement = 0.0
        if len(requests) > 1:
            places, columns, used = incidence(requests)
            base = rarity(np.array([self._seen[term] for term in used], dtype=np.float64), len(requests))
            stability, self.agreement = _learn(places, columns, used, base * _looks_of(used), signatures)
            self._stability = dict(zip(used, stability.tolist(), strict=True))
        self._unknown = UNKNOWN if self._stability else 1.0

    def of(self, terms: Sequence[str], seen: Mapping[str, int]) -> Floats:
        """Their weights; `seen`: how many of the requests that are compared have each, for terms the sample lacks."""
        often = np.array([max(self._seen[term], seen.get(term, 0)) for term in terms], dtype=np.float64)
        stability = np.array([self._stability.get(term, self._unknown) for term in terms])
        found: Floats = rarity(often, max(self._requests, *seen.values(), 0)) * _looks_of(terms) * stability
        return found


def rarity(seen: Floats, requests: int) -> Floats:
    """Inverse document frequency, ln((N+1) / (n+½)), not below USUAL; UNSEEN where n ≤ 1."""
    found: Floats = np.where(seen <= 1, UNSEEN, np.maximum(np.log((requests + 1) / (seen + 0.5)), USUAL))
    return found


def incidence(rows: Sequence[Sequence[str]]) -> tuple[Places, Places, list[str]]:
    """Which text has which term: the ones of a matrix as (row, column) pairs, and the terms of its columns."""
    numbers: dict[str, int] = {}
    columns = np.array([numbers.setdefault(term, len(numbers)) for row in rows for term in row], dtype=np.intp)
    return np.repeat(np.arange(len(rows)), [len(row) for row in rows]), columns, list(numbers)


def _looks_of(terms: Sequence[str]) -> Floats:
    return np.array([wording.looks(term) for term in terms])


def _learn(
    places: Places, columns: Places, used: Sequence[str], base: Floats, signatures: Sequence[str]
) -> tuple[Floats, float]:
    """Stability of terms: the share of neighbours that have the term too, weighed by similarity; and the agreement.

    With N(e) the NEAREST requests to e whose similarity s is at least LEAST:

        stability(t) = Σ_{e∋t} Σ_{f∈N(e)} s·[t∈f] / Σ_{e∋t} Σ_{f∈N(e)} s

    pulled towards the mean of its kind (word or pair) by PRIOR, raised to FLOOR, to the power of SHARPNESS.
    """
    from scipy import sparse  # a tenth of a second to import

    rows = len(signatures)
    matrix = sparse.csr_array((np.ones(len(columns)), (places, columns)), shape=(rows, len(used)))
    weighted = sparse.csr_array((base[columns], (places, columns)), shape=matrix.shape)
    sizes = np.bincount(places, base[columns], minlength=rows)
    shared = (weighted @ matrix.T).toarray()
    similarity = 2 * shared / np.maximum(sizes[:, None] + sizes[None, :], 1e-12)
    similarity[similarity >= SAME] = 0.0
    np.fill_diagonal(similarity, 0.0)
    count = min(NEAREST, rows - 1)
    near = np.argsort(-similarity, axis=1, kind="stable")[:, :count]
    strength = np.take_along_axis(similarity, near, axis=1)
    agreement = _agreement(near, strength, signatures)
    strength[strength < LEAST] = 0.0

    total = matrix.T @ strength.sum(axis=1)
    neighbours = np.repeat(np.arange(rows), count)
    links = sparse.csr_array((strength.ravel(), (neighbours, near.ravel())), shape=(rows, rows))
    hits = np.bincount(columns, np.asarray((links @ matrix)[places, columns]).ravel(), minlength=len(used))

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
