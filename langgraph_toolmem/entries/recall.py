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
from langgraph_toolmem.core.rows import ROW_LIMITS, Learned
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries.entry import PARTS, Entry, EntryRows
from langgraph_toolmem.text.requests import term_weight, terms_of

if TYPE_CHECKING:
    from langgraph_toolmem.entries import RecallPolicy

Places = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RowsRead:
    """Numbers of rows that are read for a request.

    Attributes:
        requests: different requests that are weighed, of those with feedback and of those without.
        same_words: runs that are read of each request, the newest.
        most_alike: runs that say the same, of which one is shown, the newest.
        unordered: rows by which the order of writing may differ from that of the runs.
    """

    requests: int = 32
    same_words: int = 4
    most_alike: int = 20
    unordered: int = 64


ROWS_READ: Final = RowsRead()


@dataclass(frozen=True, slots=True)
class RelevanceModel:
    """Numbers of the ranking, fitted once on recorded runs.

    Attributes:
        intercept, covered, neighbour, vote: of the logistic model of `Match.probability`.
        pull: a vote of a request that is less similar by d counts e^(−pull·d) as much.
        neighbours: neighbours of an entry that are compared with it.
        least_similarity: similarity from which a neighbour counts.
        prior: weight of the mean of all terms in the stability of one, in neighbours.
        sharpness: exponent of stability.
        unseen: weight of a term that at most one entry has: more often a value than the sign of another kind of
            request.
        least_rarity: least rarity of any other term: where all requests are of one kind, its usual words still tell
            the kind.
        same: similarity from which two texts are taken for one: they tell nothing about what may differ.
    """

    intercept: float = -5.34
    covered: float = 10.11
    neighbour: float = -3.13
    vote: float = 3.38
    pull: float = 8.0
    neighbours: int = 4
    least_similarity: float = 0.45
    prior: float = 0.5
    sharpness: float = 2.5
    unseen: float = 0.15
    least_rarity: float = 0.5
    same: float = 0.999


RELEVANCE: Final = RelevanceModel()


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
        self._weights = Learned(rows, _learn_weights)

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
        near: list[RequestRuns] = []
        for part in parts:
            near += self._near(vector, user, part, exclude, own)
        worth_showing = []
        for match in rank(query, [runs.request for runs in near], self._weights.of(user)):
            if match.probability >= policy.least:
                newest, *others = near[match.place].newest_first[: ROWS_READ.most_alike]
                worth_showing.append(RecalledEntry(newest, match.probability, match.evidence, tuple(others)))

        def judged_then_relevant(recalled: RecalledEntry) -> tuple[bool, float]:
            return recalled.entry.score is None, -recalled.score

        return sorted(worth_showing, key=judged_then_relevant)[: policy.max_n]

    def _near(
        self, vector: Sequence[float], user: User, part: str, exclude: Collection[str], own: bool
    ) -> list[RequestRuns]:
        """Return the different requests nearest to a vector, each with its runs."""
        asks_once = self._rows.waits_little  # a server is asked once, for more
        rows = ROWS_READ.requests * (4 if asks_once else 1)
        same_words = ROWS_READ.same_words
        while True:
            near_rows = self._rows.near(vector, user, k=rows, part=part, same=same_words)
            groups = _by_request([row.item for row in near_rows], user, exclude, own)
            # Not where requests are alike: more of them would tell the same, at ten times the cost for 3,000 runs.
            left_out = len(near_rows) - sum([len(group.newest_first) for group in groups])
            enough = len(groups) >= rows // 4 or not left_out
            all_read = len(near_rows) < rows or rows >= ROW_LIMITS.most_near
            if asks_once or enough or all_read:
                return groups
            # A long thread has many entries of its own.
            rows = max(4 * rows, ROWS_READ.requests + len(exclude))
            same_words *= 4


def _by_request(entries: Iterable[Entry], user: User, exclude: Collection[str], own: bool) -> list[RequestRuns]:
    """Return runs by request and outcome, without those that are not meant."""

    def newest_first(entry: Entry) -> float:
        return -entry.time

    groups: dict[tuple[PastRequest, bool], RequestRuns] = {}
    for entry in sorted(entries, key=newest_first):
        if entry.run in exclude or (own and entry.user not in ("", user.digest)):
            continue
        called = "\n".join([call.tool for call in entry.calls])
        request = PastRequest(terms_of(entry.query), called)
        group = groups.setdefault((request, entry.good), RequestRuns(request, []))
        group.newest_first.append(entry)
    return list(groups.values())


def grouped(found: Iterable[RecalledEntry]) -> list[RecalledEntry]:
    """Return recalled runs with one in place of each group that says the same, in the order given.

    Runs say the same if they ended alike, called the same tools for the same user, and there are not two different
    critiques or comments on them. A run with a critique stands for its group, else one with a comment.
    """
    groups: list[list[RecalledEntry]] = []
    for recalled in found:
        for group in groups:
            if all(_say_the_same(recalled.entry, other.entry) for other in group):
                group.append(recalled)
                break
        else:
            groups.append([recalled])
    return [_joined(group) for group in groups]


def _joined(group: list[RecalledEntry]) -> RecalledEntry:
    def most_told(recalled: RecalledEntry) -> tuple[bool, bool, float]:
        return bool(recalled.entry.critique), bool(recalled.entry.comment), recalled.score

    head = max(group, key=most_told)
    others: list[Entry] = []
    for recalled in group:
        others += [run for run in (recalled.entry, *recalled.others) if run is not head.entry]
    highest = max(recalled.score for recalled in group)
    return replace(head, score=highest, others=tuple(others))


def _say_the_same(one: Entry, other: Entry) -> bool:
    ended_alike = (one.good, one.failed, one.user, one.tools) == (other.good, other.failed, other.user, other.tools)
    return ended_alike and _agree(one.comment, other.comment) and _agree(one.critique, other.critique)


def _agree(one: str, other: str) -> bool:
    """Return True if two texts are not two different ones."""
    return one == other or not one or not other


class EntryRuns(NamedTuple):
    """The runs that a user's entries are about, for other methods."""

    rows: EntryRows
    user: User

    def changes(self, since: int, most: int) -> PastRunChanges:
        version, ids = self.rows.changes(since, self.user)
        if ids is None:
            read = self.rows.latest(self.user, most + ROWS_READ.unordered)
        else:
            read = self.rows.get(ids, self.user)
        runs = []
        for entry in read:
            if not self.rows.kind.retired(entry):
                succeeded = tuple([call.tool for call in entry.calls if call.status == "ok"])
                runs.append(PastRun(entry.id, entry.query, succeeded, entry.failed, entry.time))
        gone = {*(ids or ())} - {run.id for run in runs}
        return PastRunChanges(version, ids is None, runs, sorted(gone))


# --- ranking ---


class PastRequest(NamedTuple):
    """The terms of a past request (`terms_of`), and the tools that were called for it, joined; "" if none."""

    terms: tuple[str, ...]
    called: str


@dataclass(frozen=True, slots=True)
class RequestRuns:
    """A past request, and the runs that had it and ended alike, the newest first."""

    request: PastRequest
    newest_first: list[Entry]


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
        shared = f"shares {self.covered:.0%} of its words with the request"
        others = f"{self.neighbour:.0%} with the past run that is nearest but one"
        return f"{shared}, {others}; of similar runs {self.vote:.0%} called the same tools"


class Similarities(NamedTuple):
    """Some texts compared with all.

    Attributes:
        shared: weight that each of the texts shares with every text.
        sizes: weight of every text.
        dice: weighted Dice coefficients.
    """

    shared: Floats
    sizes: Floats
    dice: Floats


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
        numbers: dict[str, int] = {}
        for text in texts:
            for term in text:
                numbers.setdefault(term, len(numbers))
        terms = chain.from_iterable(texts)
        columns = np.fromiter(map(numbers.__getitem__, terms), dtype=np.intp)
        rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        return cls(rows, columns, list(numbers), len(texts))

    def similarities(self, which: Iterable[int], weight: Floats) -> Similarities:
        """Return some texts (their places) compared with all, given the weights of the terms."""
        sizes: Floats = np.bincount(self.rows, weight[self.columns], minlength=self.texts).astype(np.float64)
        ends = np.searchsorted(self.rows, np.arange(self.texts + 1))

        def shared_with(row: int) -> Floats:
            mine = self.columns[ends[row] : ends[row + 1]]
            own = np.zeros(len(weight))
            own[mine] = weight[mine]
            return np.bincount(self.rows, own[self.columns], minlength=self.texts).astype(np.float64)

        places = list(which)
        shared = np.array([shared_with(row) for row in places])
        dice = 2 * shared / np.maximum(sizes[places][:, None] + sizes, 1e-12)
        return Similarities(shared, sizes, dice)


class TermWeights:
    """Weights of terms: rarity times looks times stability, learned from a sample of past requests.

    With N(e) the 4 requests nearest to e whose similarity s is at least 0.45:

        stability(t) = (Σ_{e∋t} Σ_{f∈N(e)} s·[t∈f] / Σ_{e∋t} Σ_{f∈N(e)} s)^2.5

    pulled towards the mean of all terms as by half a neighbour (`RelevanceModel`).
    """

    def __init__(self, requests: Sequence[Sequence[str]] = ()) -> None:
        self._seen = Counter(chain.from_iterable(requests))
        self._requests, self._mean = len(requests), 1.0
        self._stability: dict[str, float] = {}
        if len(requests) > 1:
            self._learn(Incidence.of(requests))

    def of(self, terms: Sequence[str], seen: npt.ArrayLike) -> Floats:
        """Return their weights; `seen`: how many of the requests that are compared have each."""
        known = np.array([self._seen.get(term, 0) for term in terms], float)
        stability = np.array([self._stability.get(term, self._mean) for term in terms], float)
        often = np.maximum(known, seen)
        requests = max(self._requests, np.max(seen, initial=0))
        return _base_weights(terms, often, requests) * stability**RELEVANCE.sharpness

    def _learn(self, texts: Incidence) -> None:
        rows, columns, terms, count = texts
        seen = np.array([self._seen[term] for term in terms], float)
        similarity = texts.similarities(range(count), _base_weights(terms, seen, count)).dice
        similarity[similarity >= RELEVANCE.same] = 0.0
        nearest_first = np.argsort(-similarity, axis=1, kind="stable")
        near = nearest_first[:, : min(RELEVANCE.neighbours, count - 1)]
        strength = np.take_along_axis(similarity, near, axis=1)
        strength[strength < RELEVANCE.least_similarity] = 0.0
        # (text, term) pairs as single numbers: is the term in each neighbour of the text?
        has_too = np.isin(near[rows] * len(terms) + columns[:, None], rows * len(terms) + columns)
        total = np.bincount(columns, strength.sum(axis=1)[rows], minlength=len(terms))
        hits = np.bincount(columns, (strength[rows] * has_too).sum(axis=1), minlength=len(terms))
        if total.any():
            self._mean = float(hits.sum() / total.sum())
            share = (hits + RELEVANCE.prior * self._mean) / (total + RELEVANCE.prior)
            self._stability = dict(zip(terms, share.tolist(), strict=True))


def _learn_weights(sample: Sequence[Entry]) -> TermWeights:
    return TermWeights([terms_of(entry.query) for entry in sample])


def rank(query: str, past: Sequence[PastRequest], weights: TermWeights) -> list[Match]:
    """Compare past requests with a new one; the most probably relevant come first."""
    if not past:
        return []
    texts = Incidence.of([terms_of(query), *[request.terms for request in past]])
    seen = np.bincount(texts.columns[texts.rows > 0], minlength=len(texts.terms))
    shared, sizes, similarity = texts.similarities(range(texts.texts), weights.of(texts.terms, seen))
    covered = shared[0, 1:] / np.maximum(np.maximum(sizes[0], sizes[1:]), 1e-12)
    between = np.where(similarity[1:, 1:] >= RELEVANCE.same, 0.0, similarity[1:, 1:])
    neighbour = np.zeros(1)
    if len(past) > 1:
        neighbour = np.sort(between, axis=1)[:, -2]
    vote = _votes(past, similarity[0, 1:])
    features = np.stack([covered, neighbour, vote], axis=1)
    coefficients = np.array((RELEVANCE.covered, RELEVANCE.neighbour, RELEVANCE.vote))
    probability = 1 / (1 + np.exp(-(features @ coefficients + RELEVANCE.intercept)))
    columns = zip(probability.tolist(), *features.T.tolist(), strict=True)
    matches = [Match(place, *values) for place, values in enumerate(columns)]

    def most_probable_first(match: Match) -> float:
        return -match.probability

    return sorted(matches, key=most_probable_first)


def _votes(past: Sequence[PastRequest], similarity: Floats) -> Floats:
    """Return `Match.vote` of each past request, given the similarities of all to the new one."""
    called = np.array([request.called for request in past])
    same_tools = (called[:, None] == called) & (called != "")
    pull = np.exp(RELEVANCE.pull * similarity) * ~np.eye(len(past), dtype=bool)
    votes: Floats = (pull * same_tools).sum(axis=1) / np.maximum(pull.sum(axis=1), 1e-9)
    return votes


def _base_weights(terms: Sequence[str], seen: Floats, requests: float) -> Floats:
    """Return the inverse document frequency ln((N+1) / (n+½)) of terms times their looks.

    The frequency is not below `least_rarity`, and `unseen` where n ≤ 1.
    """
    frequency = np.maximum(np.log((requests + 1) / (seen + 0.5)), RELEVANCE.least_rarity)
    rarity = np.where(seen <= 1, RELEVANCE.unseen, frequency)
    weights: Floats = rarity * np.array([term_weight(term) for term in terms], float)
    return weights
