"""From what is known about a query and an entry to the probability that the entry is relevant.

A logistic model with constants that were fitted on recorded runs whose queries are not among those the benchmark
scores (benchmarks/README.md says which). What adapts to a memory are the features, not the constants.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FEATURES: Final = ("covered", "neighbour", "vote", "agreement", "trusted vote")
COEFFICIENTS: Final = np.array([11.0, -5.0, 1.5, 0.0, 0.0])
INTERCEPT: Final = -3.5
VOTE_SHARPNESS: Final = 8.0


def features(
    covered: Floats, neighbour: Floats, similarity: Floats, same: npt.NDArray[np.bool_], agreement: float
) -> Floats:
    """One row per entry.

    - *covered*: share of the wording that query and entry have in common, of that of the two which has more of its
      own. Both ways, since what only the entry says counts against it as much as what only the query says.
    - *neighbour*: similarity of the entry to the second nearest other entry. Where its like are much nearer to it
      than the query is, the query is something else.
    - *vote*: of the other entries, how many called the same tools, the ones more similar to the query counting
      more: e^(8 s).
    - *agreement*: how far in this memory similar requests go with the same calls (`weights.Learned`), alone and
      times the vote.

    Args:
        covered, neighbour, similarity: by entry, shape (n,).
        same: whether two entries called the same, shape (n, n).
        agreement: of the memory.
    """
    pull = np.exp(VOTE_SHARPNESS * (similarity - similarity.max(initial=0.0)))
    others = pull[None, :] * ~np.eye(len(pull), dtype=bool)
    vote = (others * same).sum(axis=1) / np.maximum(others.sum(axis=1), 1e-9)
    return np.stack([covered, neighbour, vote, np.full(len(pull), agreement), vote * agreement], axis=1)


def probabilities(rows: Floats) -> Floats:
    """1 / (1 + e^−(b + w·x)) of each row."""
    found: Floats = 1 / (1 + np.exp(-(INTERCEPT + rows @ COEFFICIENTS)))
    return found
