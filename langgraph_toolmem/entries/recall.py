"""Past runs for a request: Chroma gives those nearest to it, `rank` gives each a probability of being relevant.

Templated requests share their structure and differ in their values, and a name is as rare as a verb. Neighbours
distinguish the two: the words that an entry shares with its nearest neighbours are structure, the others are values.
`Weights` learns that from the entries alone; `rank` compares requests by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.core.method import PastRun, PastRunChanges
from langgraph_toolmem.core.rows import MOST_NEAR, Learned
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries.entry import PARTS, Entry, EntryRows
from langgraph_toolmem.text.requests import term_weight, terms_of

if TYPE_CHECKING:
    from langgraph_toolmem.entries import RecallPolicy

Places = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]

COEFFICIENTS: Final = (10.11, -3.13, 3.38)
INTERCEPT: Final = -5.34
"""Of `Match.probability`, fitted once on recorded runs."""
PULL: Final = 8.0
"""A vote of a request that is less similar by d counts e^(-PULL d) as much."""
NEAREST: Final = 4
"""Neighbours of an entry that are compared with it."""
LEAST: Final = 0.45
"""Similarity from which a neighbour counts."""
PRIOR: Final = 0.5
"""Weight of the mean of all terms in the stability of one, in neighbours."""
SHARPNESS: Final = 2.5
"""Exponent of stability."""
UNSEEN: Final = 0.15
"""Weight of a term that at most one entry has: more often a value than the sign of another kind of request."""
USUAL: Final = 0.5
"""Least rarity of any other: where all requests are of one kind, its usual words still tell the kind."""
SAME: Final = 0.999
"""Similarity from which two texts are taken for one: they tell nothing about what may differ."""
LONGLIST: Final = 32
"""Different requests that are weighed, of those with feedback and of those without."""
MAX_SAME: Final = 20
"""Runs that say the same, of which one is shown, the newest."""
SAME_WORDS: Final = 4
"""Runs that are read of each request, the newest."""
UNORDERED: Final = 64
"""Rows by which the order of writing may differ from that of the runs."""


@dataclass(frozen=True, slots=True)
class RecalledEntry:
    """An entry that is worth showing.

    Attributes:
        entry: the past run.
        score: probability of being relevant.
        evidence: the reason, in one line without the entry's or the query's words.
        others: further runs that say the same, for which this one stands.
    """

    entry: Entry
    score: float
    evidence: str
    others: tuple[Entry, ...] = ()


class EntrySearch:
    """Finds past runs for a request. Safe to use from several threads."""

    def __init__(self, rows: EntryRows) -> None:
        self._rows = rows
        self._weights = Learned(rows, lambda sample: Weights([terms_of(entry.query) for entry in sample]))

    def forget(self) -> None:
        """Drop what was learned of requests."""
        self._weights.forget()

    def __call__(
        self,
        query: str,
        user: User,
        policy: RecallPolicy,
        *,
        parts: Iterable[str] = PARTS,
        exclude: Collection[str] = (),
        own: bool = False,
    ) -> list[RecalledEntry]:
        """Return the entries worth showing for a request: those that somebody judged first, then the most relevant.

        Args:
            query: the user's words.
            user: whose entries.
            policy: how many.
            parts: with feedback, without it, or both.
            exclude: runs (digests) that are not meant.
            own: in a namespace that users share, those of other users are not meant either.

        Raises:
            StorageError: Chroma or the embedder fails.
        """
        if not terms_of(query):
            return []
        vector = self._rows.embedder.embed_query(query)
        near = [each for part in parts for each in self._near(vector, user, part, exclude, own)]
        found = []
        for match in rank(query, [request for request, _ in near], self._weights.of(user)):
            if match.probability >= policy.least:
                newest, *others = near[match.place][1][:MAX_SAME]
                found.append(RecalledEntry(newest, match.probability, match.evidence, tuple(others)))
        return sorted(found, key=lambda each: (each.entry.score is None, -each.score))[: policy.max_n]

    def _near(
        self, vector: Sequence[float], user: User, part: str, exclude: Collection[str], own: bool
    ) -> list[tuple[PastRequest, list[Entry]]]:
        """Return the different requests nearest to a vector, each with its runs, the newest first."""
        once = self._rows.waits_little  # a server is asked once, for more
        k, same = LONGLIST * (4 if once else 1), SAME_WORDS
        while True:
            found = self._rows.near(vector, user, k=k, part=part, same=same)
            groups: dict[tuple[PastRequest, bool], list[Entry]] = {}
            for near in sorted(found, key=lambda near: -near.item.time):
                entry = near.item
                if entry.run not in exclude and (not own or entry.user in ("", user.digest)):
                    request = PastRequest(terms_of(entry.query), "\n".join(call.tool for call in entry.calls))
                    groups.setdefault((request, entry.good), []).append(entry)
            # Not where requests are alike: more of them would tell the same, at ten times the cost for 3,000 runs.
            left_out = len(found) - sum(map(len, groups.values()))
            if once or len(found) < k or len(groups) >= k // 4 or not left_out or k >= MOST_NEAR:
                return [(request, runs) for (request, _), runs in groups.items()]
            k, same = max(4 * k, LONGLIST + len(exclude)), 4 * same  # a long thread has many entries of its own


def grouped(found: Iterable[RecalledEntry]) -> list[RecalledEntry]:
    """Return recalled runs with one in place of each group that says the same, in the order given.

    Runs say the same if they ended alike, called the same tools for the same user, and there are not two different
    critiques or comments on them. A run with a critique stands for its group, else one with a comment.
    """
    groups: list[list[RecalledEntry]] = []
    for each in found:
        group = next((group for group in groups if all(_same(each.entry, other.entry) for other in group)), None)
        if group is None:
            groups.append([each])
        else:
            group.append(each)
    return [_joined(group) for group in groups]


def _joined(group: list[RecalledEntry]) -> RecalledEntry:
    head = max(group, key=lambda each: (bool(each.entry.critique), bool(each.entry.comment), each.score))
    others = tuple(run for each in group for run in (each.entry, *each.others) if run is not head.entry)
    return replace(head, score=max(each.score for each in group), others=others)


def _same(one: Entry, other: Entry) -> bool:
    ended = (one.good, one.failed, one.user, one.tools) == (other.good, other.failed, other.user, other.tools)
    said = ((one.comment, other.comment), (one.critique, other.critique))
    return ended and all(a == b or not a or not b for a, b in said)


class EntryRuns(NamedTuple):
    """The runs that a user's entries are about, for other methods."""

    rows: EntryRows
    user: User

    def changes(self, since: int, most: int) -> PastRunChanges:
        version, ids = self.rows.changes(since, self.user)
        found = self.rows.latest(self.user, most + UNORDERED) if ids is None else self.rows.get(ids, self.user)
        entries = [entry for entry in found if not self.rows.kind.retired(entry)]
        runs = [
            PastRun(
                entry.id,
                entry.query,
                tuple(call.tool for call in entry.calls if call.status == "ok"),
                entry.failed,
                entry.time,
            )
            for entry in entries
        ]
        return PastRunChanges(version, ids is None, runs, sorted({*(ids or ())} - {entry.id for entry in entries}))


# --- ranking ---


class PastRequest(NamedTuple):
    """The terms of a past request (`terms_of`), and the tools that were called for it, joined; "" if none."""

    terms: tuple[str, ...]
    called: str


class Match(NamedTuple):
    """A past request compared with a new one.

    Attributes:
        place: in the list of past requests.
        probability: of being relevant: logistic in the next three.
        covered: share of the wording that both have, of that of the one which has more of its own.
        neighbour: similarity of the past request to the second nearest other one. Where its like are much nearer to
            it than the new request is, the new one is something else.
        vote: share of the other past requests that called the same tools, those nearer to the new one counting more.
    """

    place: int
    probability: float
    covered: float
    neighbour: float
    vote: float

    @property
    def evidence(self) -> str:
        """The reason, in one line without a word of the requests."""
        return f"{self.covered:.0%} of the wording, its like {self.neighbour:.0%}; vote {self.vote:.0%}"


class Incidence(NamedTuple):
    """Terms of texts as (row, column) pairs of a matrix, row by row.

    Sums over them are made without BLAS, which would make work for all cores, and wait for them on a busy machine.
    """

    rows: Places
    columns: Places
    terms: list[str]
    texts: int

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]]) -> Incidence:
        """Make it of texts, given by their terms, each once."""
        numbers = {term: number for number, term in enumerate(dict.fromkeys(chain.from_iterable(texts)))}
        columns = np.fromiter(map(numbers.__getitem__, chain.from_iterable(texts)), dtype=np.intp)
        return cls(np.repeat(np.arange(len(texts)), list(map(len, texts))), columns, list(numbers), len(texts))

    def similarities(self, which: Iterable[int], weight: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the weight that some texts share with every text, the weight of every text, and the weighted Dice
        coefficients."""
        sizes: Floats = np.bincount(self.rows, weight[self.columns], minlength=self.texts).astype(np.float64)
        ends = np.searchsorted(self.rows, np.arange(self.texts + 1))

        def shared(row: int) -> Floats:
            own, mine = np.zeros(len(weight)), self.columns[ends[row] : ends[row + 1]]
            own[mine] = weight[mine]
            return np.bincount(self.rows, own[self.columns], minlength=self.texts).astype(np.float64)

        which = list(which)
        both = np.array([shared(row) for row in which])
        return both, sizes, 2 * both / np.maximum(sizes[which][:, None] + sizes, 1e-12)


class Weights:
    """Weights of terms: rarity times looks times stability, learned from a sample of past requests.

    With N(e) the NEAREST requests to e whose similarity s is at least LEAST:

        stability(t) = (Σ_{e∋t} Σ_{f∈N(e)} s·[t∈f] / Σ_{e∋t} Σ_{f∈N(e)} s)^SHARPNESS

    pulled towards the mean of all terms by PRIOR.
    """

    def __init__(self, requests: Sequence[Sequence[str]] = ()) -> None:
        self._seen = Counter(chain.from_iterable(requests))
        self._requests, self._mean = len(requests), 1.0
        self._stability: dict[str, float] = {}
        if len(requests) > 1:
            self._learn(Incidence.of(requests))

    def of(self, terms: Sequence[str], seen: npt.ArrayLike) -> Floats:
        """Return their weights; `seen`: how many of the requests that are compared have each."""
        known = np.fromiter((self._seen.get(term, 0) for term in terms), float, len(terms))
        stability = np.fromiter((self._stability.get(term, self._mean) for term in terms), float, len(terms))
        often, requests = np.maximum(known, seen), max(self._requests, np.max(seen, initial=0))
        return _base(terms, often, requests) * stability**SHARPNESS

    def _learn(self, texts: Incidence) -> None:
        rows, columns, terms, count = texts
        seen = np.fromiter((self._seen[term] for term in terms), float, len(terms))
        *_, similarity = texts.similarities(range(count), _base(terms, seen, count))
        similarity[similarity >= SAME] = 0.0
        near = np.argsort(-similarity, axis=1, kind="stable")[:, : min(NEAREST, count - 1)]
        strength = np.take_along_axis(similarity, near, axis=1)
        strength[strength < LEAST] = 0.0
        has_too = np.isin(near[rows] * len(terms) + columns[:, None], rows * len(terms) + columns)
        total = np.bincount(columns, strength.sum(axis=1)[rows], minlength=len(terms))
        hits = np.bincount(columns, (strength[rows] * has_too).sum(axis=1), minlength=len(terms))
        if total.any():
            self._mean = float(hits.sum() / total.sum())
            share = (hits + PRIOR * self._mean) / (total + PRIOR)
            self._stability = dict(zip(terms, share.tolist(), strict=True))


def rank(query: str, past: Sequence[PastRequest], weights: Weights) -> list[Match]:
    """Compare past requests with a new one; the most probably relevant come first."""
    if not past:
        return []
    texts = Incidence.of([terms_of(query), *(each.terms for each in past)])
    seen = np.bincount(texts.columns[texts.rows > 0], minlength=len(texts.terms))
    shared, sizes, similarity = texts.similarities(range(texts.texts), weights.of(texts.terms, seen))
    covered = shared[0, 1:] / np.maximum(np.maximum(sizes[0], sizes[1:]), 1e-12)
    between = np.where(similarity[1:, 1:] >= SAME, 0.0, similarity[1:, 1:])
    neighbour = np.sort(between, axis=1)[:, -2] if len(past) > 1 else np.zeros(1)
    called = np.array([each.called for each in past])
    same = (called[:, None] == called) & (called != "")
    pull = np.exp(PULL * similarity[0, 1:]) * ~np.eye(len(past), dtype=bool)
    vote = (pull * same).sum(axis=1) / np.maximum(pull.sum(axis=1), 1e-9)
    features = np.stack([covered, neighbour, vote], axis=1)
    probability = 1 / (1 + np.exp(-(features @ np.array(COEFFICIENTS) + INTERCEPT)))
    found = zip(probability.tolist(), *features.T.tolist(), strict=True)
    return sorted((Match(place, *each) for place, each in enumerate(found)), key=lambda match: -match.probability)


def _base(terms: Sequence[str], seen: Floats, requests: float) -> Floats:
    """Inverse document frequency ln((N+1) / (n+½)), not below USUAL, UNSEEN where n ≤ 1; times looks."""
    rarity = np.where(seen <= 1, UNSEEN, np.maximum(np.log((requests + 1) / (seen + 0.5)), USUAL))
    found: Floats = rarity * np.fromiter(map(term_weight, terms), float, len(terms))
    return found
