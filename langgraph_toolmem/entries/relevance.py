"""From what is known about a query and an entry to the probability that the entry is relevant.

Two logistic models, one for wording alone and one for wording and the vectors of an embedding model. Their constants
were fitted on recorded runs (benchmarks/README.md says on which). What adapts to a memory are the features: they use
weights learned from its entries and what its entries called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

PULL_OF_WORDS: Final = 8.0
PULL_OF_MEANING: Final = 20.0
"""A vote of an entry that is less similar by d counts e^(−pull·d) as much."""


@dataclass(frozen=True)
class Model:
    """A logistic model.

    Attributes:
        names: of the features.
        coefficients: one for each.
        intercept: of the logit.
    """

    names: tuple[str, ...]
    coefficients: tuple[float, ...]
    intercept: float

    def probabilities(self, features: Floats) -> Floats:
        """1 / (1 + e^−(b + w·x)) of each row; features have shape (entries, len(names))."""
        found: Floats = 1 / (1 + np.exp(-(self.intercept + features @ np.array(self.coefficients))))
        return found


BY_WORDS: Final = Model(
    names=("covered", "neighbour", "vote", "trusted vote"),
    coefficients=(9.31, -2.98, 4.24, -3.36),
    intercept=-4.91,
)
BY_MEANING: Final = Model(
    names=("covered", "neighbour", "cosine", "vote", "vote × neighbour", "cosine × neighbour"),
    coefficients=(8.06, -1.79, 2.28, 4.48, -1.87, -0.96),
    intercept=-5.9,
)


def by_words(
    covered: Floats, neighbour: Floats, similarity: Floats, same: npt.NDArray[np.bool_], agreement: float
) -> Floats:
    """Features from the wording alone, one row per entry.

    - *covered*: share of the wording that query and entry have in common, of that of the two which has more of its
      own: what only the entry says counts against it as much as what only the query says.
    - *neighbour*: similarity of the entry to the second nearest other entry. Where its like are much nearer to it
      than the query is, the query is something else.
    - *vote*: see `vote`.
    - *trusted vote*: the vote times `agreement`, how often in this memory similar requests went with the same calls
      beyond chance (`weights.Learned`).

    Args:
        covered, neighbour, similarity: by entry, shape (n,).
        same: whether two entries called the same, shape (n, n).
        agreement: of the memory.
    """
    votes = vote(similarity, same, PULL_OF_WORDS)
    return np.stack([covered, neighbour, votes, votes * agreement], axis=1)


def by_meaning(covered: Floats, neighbour: Floats, cosine: Floats, same: npt.NDArray[np.bool_]) -> Floats:
    """Features where an embedding model is there too, one row per entry: as `by_words`, the votes by cosine.

    Where an entry has its like among the others (*neighbour* is high), requests are of a pattern and the wording
    tells; where it has none, meaning and votes count more. Hence the two products.
    """
    votes = vote(cosine, same, PULL_OF_MEANING)
    return np.stack([covered, neighbour, cosine, votes, votes * neighbour, cosine * neighbour], axis=1)


def vote(similarity: Floats, same: npt.NDArray[np.bool_], pull: float) -> Floats:
    """Share of the other entries that called the same tools, the ones nearer to the query counting more."""
    weight = np.exp(pull * (similarity - similarity.max(initial=-1.0)))
    others = weight[None, :] * ~np.eye(len(weight), dtype=bool)
    found: Floats = (others * same).sum(axis=1) / np.maximum(others.sum(axis=1), 1e-9)
    return found
