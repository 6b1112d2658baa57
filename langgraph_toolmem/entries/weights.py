"""What a term says about a request, learned from the entries alone.

Templated requests share their structure and differ in their values, and a name is as rare as a verb. The two are
told apart by how they behave: look at the nearest neighbours of an entry, the ones that read alike; what stands in
the neighbours too is structure, what does not is a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
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


class Learned(NamedTuple):
    """What a sample of the entries taught.

    Attributes:
        stability: by term id, FLOOR to 1, to the power of SHARPNESS; terms beyond its end are unknown.
        unknown: what a term that is not in the sample has.
        agreement: how often neighbours called the same tools, beyond chance: 0 (never more often) to 1.
    """

    stability: Floats
    unknown: float
    agreement: float


NOTHING_LEARNED: Final = Learned(np.empty(0), 1.0, 0.0)


def rarity(seen: Floats, entries: int) -> Floats:
    """Inverse document frequency, ln((N+1) / (n+½)), not below USUAL; UNSEEN where n ≤ 1."""
    found: Floats = np.where(seen <= 1, UNSEEN, np.maximum(np.log((entries + 1) / (seen + 0.5)), USUAL))
    return found


def incidence(rows: Sequence[Ids]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Ids]:
    """Which entry has which term: the ones of a matrix as (row, column) pairs, and the terms of its columns."""
    used, columns = np.unique(np.concatenate(rows), return_inverse=True)
    return np.repeat(np.arange(len(rows)), [len(row) for row in rows]), columns, used


def learn(rows: Sequence[Ids], base: Floats, paired: npt.NDArray[np.bool_], signatures: Sequence[str]) -> Learned:
    """Stability of terms: the share of neighbours that have the term too, weighed by similarity.

    With N(e) the NEAREST entries to e whose similarity s is at least LEAST:

        stability(t) = Σ_{e∋t} Σ_{f∈N(e)} s·[t∈f] / Σ_{e∋t} Σ_{f∈N(e)} s

    pulled towards the mean of its kind (word or pair) by PRIOR and raised to FLOOR.

    Args:
        rows: term ids of each entry of the sample, at least two entries.
        base: weight by term id without stability.
        paired: by term id, whether it is a pair.
        signatures: what each entry called, "" if nothing.
    """
    from scipy import sparse  # a tenth of a second to import

    places, columns, used = incidence(rows)
    matrix = sparse.csr_array((np.ones(len(columns)), (places, columns)), shape=(len(rows), len(used)))
    weighted = sparse.csr_array((base[used][columns], (places, columns)), shape=matrix.shape)
    sizes = np.bincount(places, base[used][columns], minlength=len(rows))
    shared = (weighted @ matrix.T).toarray()
    similarity = 2 * shared / np.maximum(sizes[:, None] + sizes[None, :], 1e-12)
    similarity[similarity >= SAME] = 0.0
    np.fill_diagonal(similarity, 0.0)
    count = min(NEAREST, len(rows) - 1)
    near = np.argsort(-similarity, axis=1, kind="stable")[:, :count]
    strength = np.take_along_axis(similarity, near, axis=1)
    agreement = _agreement(near, strength, signatures)
    strength[strength < LEAST] = 0.0

    total = matrix.T @ strength.sum(axis=1)
    entries = np.repeat(np.arange(len(rows)), count)
    links = sparse.csr_array((strength.ravel(), (entries, near.ravel())), shape=(len(rows), len(rows)))
    hits = np.bincount(columns, np.asarray((links @ matrix)[places, columns]).ravel(), minlength=len(used))

    is_pair = paired[used]
    mean = np.full(len(used), 1.0)
    for kind in (is_pair, ~is_pair):
        if total[kind].sum() > 0:
            mean[kind] = hits[kind].sum() / total[kind].sum()
    share = (hits + PRIOR * mean) / (total + PRIOR)
    stability = np.full(len(base), UNKNOWN)
    stability[used] = (FLOOR + (1 - FLOOR) * share) ** SHARPNESS
    return Learned(stability, UNKNOWN, agreement)


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
