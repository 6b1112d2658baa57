"""The past requests of one namespace in RAM, and which of them a new request is like.

A look-up goes in two steps: an inverted index with bounded postings gives the LONGLIST entries that share most with
the query, then these alone are compared with the query and with each other. So its cost does not grow with the
number of entries. What terms weigh is learned from a sample of the entries, again each time that there are a tenth
more of them (see `weights`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.recall import relevance, weights, wording
from langgraph_toolmem.recall.choose import how_many, worth_showing
from langgraph_toolmem.recall.policy import RecallPolicy
from langgraph_toolmem.recall.weights import Floats, Ids, Learned

MAX_POSTINGS: Final = 1024
"""Entries kept per term, the newest: a term that more have tells them apart no further."""
LONGLIST: Final = 64
"""Entries compared both ways."""
SHORTLIST: Final = 20
"""Entries that get a probability."""
SAMPLE: Final = 512
"""Entries from which weights are learned."""
GROWTH: Final = 0.1
"""Share of new or lost entries after which they are learned again."""


class Recalled(NamedTuple):
    """An entry that is worth showing.

    Attributes:
        id: of the entry.
        score: probability of being relevant; with a policy that is not calibrated, the similarity.
        similarity: weighted Dice coefficient of the wording, 0 to 1.
        evidence: why, in one line without the entry's or the query's words.
    """

    id: str
    score: float
    similarity: float
    evidence: str


@dataclass(frozen=True)
class Ranked:
    """Entries by falling similarity, at most SHORTLIST of them have features.

    Attributes:
        ids: of the entries.
        similarities: by entry, falling.
        features: by entry, for the first SHORTLIST; columns as in `relevance.FEATURES`.
        signatures: by entry.
    """

    ids: list[str]
    similarities: Floats
    features: Floats
    signatures: list[str]


class _Row(NamedTuple):
    id: str
    terms: Ids
    signature: str


class EntryIndex:
    """Past requests by wording. Not safe for threads by itself.

    The answers depend on the entries and their order alone, not on earlier questions.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._rows: dict[int, _Row] = {}
        self._next = 0
        self._term_ids: dict[str, int] = {}
        self._seen = array("i")
        self._usual = array("d")  # factor of a term by its looks alone
        self._paired = array("b")
        self._postings: list[array[int]] = []
        self._learned: Learned = weights.NOTHING_LEARNED
        self._learned_at = 0
        self._changes = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    # --- writing ---

    def add(self, key: str, query: str, tools: Sequence[str] = ()) -> None:
        """Adds an entry, or puts it in the place of the one with this id.

        Args:
            key: its id.
            query: what the user asked for. One without words can be added and is never recalled.
            tools: names of the tools that were called, in order.
        """
        self.remove(key)
        number, self._next = self._next, self._next + 1
        ids = np.fromiter(map(self._term_id, wording.terms(query)), dtype=np.int32)
        for term in ids:
            self._seen[term] += 1
            posted = self._postings[term]
            posted.append(number)
            if len(posted) >= 2 * MAX_POSTINGS:
                del posted[:MAX_POSTINGS]
        self._numbers[key] = number
        self._rows[number] = _Row(key, ids, "\n".join(tools))
        self._changes += 1

    def remove(self, key: str) -> bool:
        """Takes an entry out; ``False`` if it was not there."""
        number = self._numbers.pop(key, None)
        if number is None:
            return False
        for term in self._rows.pop(number).terms:
            self._seen[term] -= 1
            posted = self._postings[term]
            if number in posted:
                posted.remove(number)
        self._changes += 1
        return True

    def _term_id(self, term: str) -> int:
        known = self._term_ids.get(term)
        if known is None:
            known = self._term_ids[term] = len(self._postings)
            paired = " " in term
            self._postings.append(array("i"))
            self._seen.append(0)
            self._paired.append(paired)
            self._usual.append((weights.PAIR if paired else 1.0) * (weights.STOP if wording.is_usual(term) else 1.0))
        return known

    # --- reading ---

    def recall(self, query: str, *, policy: RecallPolicy | None = None, k_max: int | None = None) -> list[Recalled]:
        """The entries worth showing for a query, best first; often none.

        Args:
            query: what the user asks for.
            policy: how many; `RecallPolicy()` by default. A rule on similarities sees the LONGLIST nearest.
            k_max: never more than so many, whatever the policy says.
        """
        policy = policy or RecallPolicy()
        ranked = self.rank(query)
        if policy.kind == "calibrated":
            found = relevance.probabilities(ranked.features)
            order = np.argsort(-found, kind="stable")
            scores = [float(found[i]) for i in order]
            n = worth_showing(scores, policy)
        else:
            order = np.arange(len(ranked.ids))
            scores = [float(s) for s in ranked.similarities]
            n = how_many(scores, policy)
        n = n if k_max is None else min(n, max(k_max, 0))
        return [
            Recalled(ranked.ids[i], scores[place], float(ranked.similarities[i]), _evidence(ranked, int(i), policy))
            for place, i in enumerate(order[:n])
        ]

    def rank(self, query: str) -> Ranked:
        """The LONGLIST entries most similar to a query, most similar first; of equals the newest."""
        self._learn_if_due()
        own, unknown = self._split(wording.terms(query))
        numbers = self._longlist(own)
        if not len(numbers):
            return Ranked([], np.empty(0), np.empty((0, len(relevance.FEATURES))), [])
        rows = [self._rows[int(number)] for number in numbers]
        matrix, used = weights.incidence([own, *(row.terms for row in rows)])
        weight = self._weights(used)
        ones = matrix.toarray()
        weighted = ones * weight
        shared = weighted @ ones.T
        sizes = weighted.sum(axis=1)
        sizes[0] += unknown
        dice = 2 * shared / np.maximum(sizes[:, None] + sizes[None, :], 1e-12)
        order = np.lexsort((-numbers, -np.round(dice[0, 1:], 9)))
        short = order[:SHORTLIST]
        between = dice[1:, 1:]
        between[between >= weights.SAME] = 0.0
        np.fill_diagonal(between, 0.0)
        second = np.sort(between, axis=1)[:, -2] if len(rows) > 1 else np.zeros(len(rows))
        signatures = np.array([row.signature for row in rows])
        same = (signatures[short][:, None] == signatures[short][None, :]) & (signatures[short] != "")[:, None]
        found = relevance.features(
            (shared[0, 1:] / np.maximum(np.maximum(sizes[0], sizes[1:]), 1e-12))[short],
            second[short],
            dice[0, 1:][short],
            same,
            self._learned.agreement,
        )
        return Ranked([rows[i].id for i in order], dice[0, 1:][order], found, [rows[i].signature for i in order])

    def _split(self, terms: Sequence[str]) -> tuple[Ids, float]:
        """The query's known terms, and the weight of those that no entry has."""
        known = [number for term in terms if (number := self._term_ids.get(term)) is not None and self._seen[number]]
        missing = [term for term in terms if (number := self._term_ids.get(term)) is None or not self._seen[number]]
        unknown = sum(
            (weights.PAIR if " " in term else 1.0) * (weights.STOP if wording.is_usual(term) else 1.0)
            for term in missing
        )
        return np.array(known, dtype=np.int32), unknown * weights.UNSEEN * self._learned.unknown

    def _longlist(self, own: Ids) -> npt.NDArray[np.int64]:
        """Numbers of the entries that share most with the query, newest first."""
        own = own[[bool(self._postings[term]) for term in own]] if len(own) else own
        if not len(own):
            return np.empty(0, dtype=np.int64)
        postings = [np.frombuffer(self._postings[term], dtype=np.int32) for term in own]
        joined = np.concatenate(postings)
        shared = np.bincount(joined, np.repeat(self._weights(own), [len(p) for p in postings]))
        found = np.unique(joined)
        if len(found) > LONGLIST:
            found = found[np.lexsort((-found, -shared[found]))[:LONGLIST]]
        return np.sort(found)[::-1].astype(np.int64)

    def _base(self, terms: Ids | slice) -> Floats:
        seen = np.frombuffer(self._seen, dtype=np.int32)[terms].astype(np.float64)
        found: Floats = weights.rarity(seen, len(self)) * np.frombuffer(self._usual, dtype=np.float64)[terms]
        return found

    def _weights(self, terms: Ids) -> Floats:
        learned = self._learned.stability
        stability = np.full(len(terms), self._learned.unknown)
        known = terms < len(learned)
        stability[known] = learned[terms[known]]
        return self._base(terms) * stability

    def _learn_if_due(self) -> None:
        if len(self) < 2 or (self._learned_at and self._changes <= GROWTH * self._learned_at):
            return
        numbers = list(self._rows)
        if len(numbers) > SAMPLE:
            step = len(numbers) / SAMPLE
            numbers = [numbers[math.floor(i * step)] for i in range(SAMPLE)]
        rows = [self._rows[number] for number in numbers]
        self._learned = weights.learn(
            [row.terms for row in rows],
            self._base(slice(None)),
            np.frombuffer(self._paired, dtype=np.int8).astype(bool),
            [row.signature for row in rows],
        )
        self._learned_at, self._changes = len(self), 0


def _evidence(ranked: Ranked, at: int, policy: RecallPolicy) -> str:
    if policy.kind != "calibrated":
        return f"similarity {ranked.similarities[at]:.2f}, place {at + 1}"
    covered, neighbour, vote = ranked.features[at][:3]
    return (
        f"shares {covered:.0%} of the wording; its like share {neighbour:.0%}; {vote:.0%} of what is near went its way"
    )
