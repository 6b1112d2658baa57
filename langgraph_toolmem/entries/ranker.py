"""Which of some past requests a new request is like, and how probably each is relevant.

Chroma gives the requests nearest to it; these alone are compared with it and with each other. What terms weigh is
learned from a sample of the memory (see `weights`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.entries import relevance, weights
from langgraph_toolmem.entries.choose import how_many, worth_showing
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.relevance import BY_MEANING, BY_WORDS, Model
from langgraph_toolmem.entries.weights import Floats, Incidence, Weights
from langgraph_toolmem.text.requests import terms_of

SHORTLIST: Final = 20
"""Requests that get a probability: so many by wording, and as many by cosine."""


class Candidate(NamedTuple):
    """A past request that may be relevant.

    Attributes:
        id: of its entry.
        query: what the user asked for.
        tools: names of those that were called, in order.
        kind: what else keeps requests apart, such as the verdict.
        cosine: of an embedding model.
    """

    id: str
    query: str
    tools: tuple[str, ...] = ()
    kind: str = ""
    cosine: float = 0.0

    @property
    def like(self) -> tuple[tuple[str, ...], tuple[str, ...], str]:
        """Equal for those that say the same."""
        return terms_of(self.query), self.tools, self.kind


class Recalled(NamedTuple):
    """A request that is worth showing.

    Attributes:
        id: of its entry.
        score: probability of being relevant; with a policy that is not calibrated, the similarity it went by.
        similarity: weighted Dice coefficient of the wording, 0 to 1.
        evidence: why, in one line without the entry's or the query's words.
    """

    id: str
    score: float
    similarity: float
    evidence: str


@dataclass(frozen=True)
class Ranked:
    """Requests by falling similarity.

    Attributes:
        ids: of their entries.
        similarities: weighted Dice coefficients of the wording, falling.
        cosines: None if the built-in embedder made them, which knows nothing that the wording does not tell.
        shortlist: places in `ids` of those that get a probability.
        features: by place in the shortlist, as `model` takes them.
        model: what gives the probabilities.
    """

    ids: list[str]
    similarities: Floats
    cosines: Floats | None
    shortlist: npt.NDArray[np.intp]
    features: Floats
    model: Model


def recall(
    query: str,
    candidates: Sequence[Candidate],
    learned: Weights,
    *,
    policy: RecallPolicy,
    k: int | None = None,
    dense: bool = False,
) -> list[Recalled]:
    """The requests worth showing for a query, best first; often none.

    Args:
        query: what the user asks for.
        candidates: each of its like once; of equals the first is preferred.
        learned: what terms weigh.
        policy: how many. One that decides by similarity goes by cosines if it is the paper's, or if they are an
            embedding model's; else by the wording.
        k: never more than so many, whatever the policy says.
        dense: the cosines are an embedding model's.
    """
    ranked = rank(query, candidates, learned, dense=dense)
    if policy.kind == "calibrated":
        found = ranked.model.probabilities(ranked.features)
        order = np.argsort(-found, kind="stable")
        places, scores = ranked.shortlist[order], found[order]
        n = worth_showing(scores.tolist(), policy)
    else:
        by = ranked.similarities if ranked.cosines is None else ranked.cosines
        places = np.argsort(-by, kind="stable")
        scores = by[places]
        n = how_many(scores.tolist(), policy)
    n = n if k is None else min(n, max(k, 0))
    return [
        Recalled(
            ranked.ids[place],
            float(score),
            float(ranked.similarities[place]),
            _evidence(ranked, int(place), float(score), policy),
        )
        for place, score in zip(places[:n], scores[:n], strict=True)
    ]


def rank(query: str, candidates: Sequence[Candidate], learned: Weights, *, dense: bool = False) -> Ranked:
    """The candidates, most similar wording first; arguments as for `recall`."""
    model = BY_MEANING if dense else BY_WORDS
    if not candidates:
        nothing = np.empty(0)
        features = np.empty((0, len(model.names)))
        return Ranked([], nothing, nothing if dense else None, np.empty(0, np.intp), features, model)
    rows = [terms_of(query), *(terms_of(each.query) for each in candidates)]
    texts = Incidence.of(rows)
    seen = np.bincount(texts.columns[len(rows[0]) :], minlength=len(texts.terms))
    weight = learned.of(texts.terms, seen)
    sizes, shared = texts.sums(weight), texts.shared([0], weight)[0, 1:]
    dice = 2 * shared / np.maximum(sizes[0] + sizes[1:], 1e-12)
    order = np.argsort(-np.round(dice, 9), kind="stable")
    found = [candidates[place] for place in order]
    ids, similarity = [each.id for each in found], dice[order]
    cosine = np.array([each.cosine for each in found]) if dense else None
    short = np.arange(min(SHORTLIST, len(found)))
    if cosine is not None:
        short = np.union1d(short, np.argsort(-cosine, kind="stable")[:SHORTLIST])
    mine = order[short] + 1  # in `texts`
    covered = shared[mine - 1] / np.maximum(np.maximum(sizes[0], sizes[mine]), 1e-12)
    between = 2 * texts.shared(mine, weight) / np.maximum(sizes[mine, None] + sizes, 1e-12)
    neighbour, same = _second(between[:, 1:]), _same(found, short)
    if cosine is None:
        features = relevance.by_words(covered, neighbour, similarity[short], same, learned.agreement)
    else:
        features = relevance.by_meaning(covered, neighbour, cosine[short], same)
    return Ranked(ids, similarity, cosine, short, features, model)


def _second(between: Floats) -> Floats:
    """Of some requests, the similarity to the second nearest other one; texts that are the same do not count."""
    if between.shape[1] < 2:
        return np.zeros(len(between))
    others = np.where(between >= weights.SAME, 0.0, between)
    found: Floats = np.sort(others, axis=1)[:, -2]
    return found


def _same(found: Sequence[Candidate], places: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Whether two requests called the same; those without calls never did."""
    called = np.array(["\n".join(found[place].tools) for place in places])
    same: npt.NDArray[np.bool_] = (called[:, None] == called[None, :]) & (called != "")[:, None]
    return same


def _evidence(ranked: Ranked, place: int, score: float, policy: RecallPolicy) -> str:
    if policy.kind != "calibrated":
        return f"similarity {score:.2f}"
    row = dict(zip(ranked.model.names, ranked.features[int(np.searchsorted(ranked.shortlist, place))], strict=True))
    found = f"{row['covered']:.0%} of the wording, its like {row['neighbour']:.0%}; vote {row['vote']:.0%}"
    return f"{found}; cosine {row['cosine']:.2f}" if "cosine" in row else found
