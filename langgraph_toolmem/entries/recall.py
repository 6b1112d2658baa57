"""Past runs for a request: Chroma returns the most similar ones, `rank` gives each a probability of being relevant.

Templated requests share their structure and differ in their values, and a name is as rare as a verb. Neighbours
distinguish the two: the words that an entry shares with its nearest neighbours are structure, the others are values.
`TermWeights` learns this from the entries only; `rank` compares requests by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.core.method import PastRun, PastRunChanges
from langgraph_toolmem.core.rows import ROW_LIMITS, Learned
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries.entry import PARTS, Entry, EntryRows
from langgraph_toolmem.text.wording import term_weight, terms_of

if TYPE_CHECKING:
    from langgraph_toolmem.entries import RecallPolicy

Places = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RowsRead:
    """Numbers of rows that are read for a request.

    Attributes:
        requests: different requests that are compared, with feedback and without.
        same_words: runs that are read of each request, the newest.
        most_alike: equivalent runs, of which one is shown, the newest.
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
        least_rarity: least rarity of any other term: if all requests are of one kind, its usual words still identify
            the kind.
        same: similarity from which two texts count as one: they do not show which words may differ.
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
    """An entry to show.

    Attributes:
        entry: the past run.
        score: probability of being relevant.
        evidence: the reason, in one line without the entry's or the query's words.
        others: further equivalent runs that this one represents.
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
        """Drop the learned weights."""
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
        """Return the relevant entries for a request: those with feedback first, then the most relevant.

        Args:
            query: the user's words.
            user: owner of the entries.
            policy: limits their number.
            parts: with feedback, without it, or both.
            exclude: runs (digests) to leave out.
            own: If True, leave out entries of other users in a shared namespace.

        Raises:
            StorageError: Chroma or the embedder fails.
        """
        if not terms_of(query):
            return []
        # Once for all parts: with an embedding model this is the slowest part of a recall.
        vector = self._rows.embedder.embed_query(query)
        near: list[RequestRuns] = []
        for part in parts:
            near += self._near(query, vector, user, part, exclude, own)
        requests = [runs.request for runs in near]
        worth_showing = []
        for match in rank(query, requests, self._weights.of(user)):
            if match.probability >= policy.least:
                newest, *others = near[match.place].newest_first[: ROWS_READ.most_alike]
                worth_showing.append(RecalledEntry(newest, match.probability, match.evidence, tuple(others)))

        def judged_then_relevant(recalled: RecalledEntry) -> tuple[bool, float]:
            return recalled.entry.score is None, -recalled.score

        return sorted(worth_showing, key=judged_then_relevant)[: policy.max_n]

    def _near(
        self, query: str, vector: Sequence[float], user: User, part: str, exclude: Collection[str], own: bool
    ) -> list[RequestRuns]:
        """Return the different requests nearest to one, each with its runs."""
        rows, same_words = ROWS_READ.requests, ROWS_READ.same_words
        # A step waits only briefly for a server, so it asks once, for more rows.
        if self._rows.waits_little:
            rows *= 4
        while True:
            near_rows = self._rows.near(query, user, k=rows, vector=vector, part=part, same=same_words)
            meant = []
            for row in near_rows:
                if _is_meant(row.item, user, exclude, own):
                    meant.append(row.item)
            groups = _by_request(meant)
            if self._is_enough(len(groups), len(meant), len(near_rows), rows):
                return groups
            # A long thread has many entries of its own.
            rows = max(4 * rows, ROWS_READ.requests + len(exclude))
            same_words *= 4

    def _is_enough(self, groups: int, meant: int, read: int, asked: int) -> bool:
        """Return True if further rows need not be read, given the numbers of those that were asked for and read."""
        if self._rows.waits_little or read < asked or asked >= ROW_LIMITS.most_near:
            return True
        # If requests are alike, more rows add nothing: reading on took 6 ms at 300 runs and 33 at 3,000.
        return groups >= asked // 4 or meant == read


def _is_meant(entry: Entry, user: User, exclude: Collection[str], own: bool) -> bool:
    if entry.run in exclude:
        return False
    # In a namespace that users share, comments of another named user are not shown.
    return not own or entry.user in ("", user.digest)


def _by_request(entries: Iterable[Entry]) -> list[RequestRuns]:
    """Return runs by request and outcome, the newest first."""
    # Runs of one request with different outcomes are separate: a failure is different evidence from a success.
    groups: dict[tuple[PastRequest, bool], RequestRuns] = {}
    for entry in sorted(entries, key=attrgetter("time"), reverse=True):
        called = "\n".join([call.tool for call in entry.calls])
        request = PastRequest(terms_of(entry.query), called)
        group = groups.setdefault((request, entry.good), RequestRuns(request, []))
        group.newest_first.append(entry)
    return list(groups.values())


def grouped(recalled_runs: Iterable[RecalledEntry]) -> list[RecalledEntry]:
    """Return one recalled run of each group of equivalent runs, in the order given.

    Runs are equivalent if they ended alike, called the same tools for the same user, and do not have different
    critiques or comments. A run with a critique represents its group, otherwise one with a comment.
    """
    groups: list[list[RecalledEntry]] = []
    for recalled in recalled_runs:
        for group in groups:
            if _fits_into(recalled, group):
                group.append(recalled)
                break
        else:
            groups.append([recalled])
    return [_joined(group) for group in groups]


def _fits_into(recalled: RecalledEntry, group: Iterable[RecalledEntry]) -> bool:
    """Return True if a run is equivalent to all runs of a group."""
    # All, not the first: a run without a critique agrees with two that have different ones.
    return all(_say_the_same(recalled.entry, other.entry) for other in group)


def _joined(group: list[RecalledEntry]) -> RecalledEntry:
    def most_telling(recalled: RecalledEntry) -> tuple[bool, bool, float]:
        return bool(recalled.entry.critique), bool(recalled.entry.comment), recalled.score

    head = max(group, key=most_telling)
    others: list[Entry] = []
    highest = 0.0
    for recalled in group:
        highest = max(highest, recalled.score)
        for run in (recalled.entry, *recalled.others):
            if run is not head.entry:
                others.append(run)
    return replace(head, score=highest, others=tuple(others))


def _say_the_same(one: Entry, other: Entry) -> bool:
    ended_alike = (one.good, one.failed, one.user, one.tools) == (other.good, other.failed, other.user, other.tools)
    return ended_alike and _agree(one.comment, other.comment) and _agree(one.critique, other.critique)


def _agree(one: str, other: str) -> bool:
    """Return True unless both texts are given and differ."""
    return one == other or not one or not other


class EntryRuns(NamedTuple):
    """The runs that a user's entries are about, for other methods."""

    rows: EntryRows
    user: User

    def changes(self, since: int, most: int) -> PastRunChanges:
        version, ids = self.rows.changes(since, self.user)
        # None: the changes are unknown, so all rows are read again.
        if ids is None:
            read = self.rows.latest(self.user, most + ROWS_READ.unordered)
        else:
            read = self.rows.get(ids, self.user)
        gone = set(ids or ())
        runs = []
        for entry in read:
            # A retired entry counts as deleted: it is not shown to the model, so it is not an example for tools either.
            if self.rows.kind.retired(entry):
                continue
            succeeded = tuple([call.tool for call in entry.calls if call.status == "ok"])
            runs.append(PastRun(entry.id, entry.query, succeeded, entry.failed, entry.time))
            gone.discard(entry.id)
        return PastRunChanges(version, ids is None, runs, sorted(gone))


# --- ranking ---


class PastRequest(NamedTuple):
    """The terms of a past request (`terms_of`), and the tools that were called for it, joined; "" without calls."""

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
        neighbour: similarity of the past request to the second nearest other one. If its neighbours are much nearer to
            it than the new request, the new one is of another kind.
        vote: share of the other past requests that called the same tools, weighted by their similarity to the new one.
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

    Sums over them are made without BLAS, which would make work for all cores, and wait for them on a busy machine. It
    is not an index: it exists for one comparison of all texts with each other.
    """

    rows: Places
    columns: Places
    terms: list[str]
    texts: int

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]]) -> Incidence:
        """Make it of texts, given by their terms, each once."""
        numbers: dict[str, int] = {}
        rows: list[int] = []
        columns: list[int] = []
        for row, text in enumerate(texts):
            for term in text:
                rows.append(row)
                columns.append(numbers.setdefault(term, len(numbers)))
        return cls(np.array(rows, dtype=np.intp), np.array(columns, dtype=np.intp), list(numbers), len(texts))

    def similarities(self, which: Iterable[int], weight: Floats) -> Similarities:
        """Return some texts (their positions) compared with all, given the weights of the terms."""
        sizes: Floats = np.bincount(self.rows, weight[self.columns], minlength=self.texts).astype(np.float64)
        # Rows are in order, so the terms of a text are contiguous.
        ends = np.searchsorted(self.rows, np.arange(self.texts + 1))
        places = list(which)
        shared = np.zeros((len(places), self.texts))
        for number, row in enumerate(places):
            mine = self.columns[ends[row] : ends[row + 1]]
            own = np.zeros(len(weight))
            own[mine] = weight[mine]
            shared[number] = np.bincount(self.rows, own[self.columns], minlength=self.texts)
        # Texts without terms have no weight: their coefficient is 0, not an error.
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
        """Return their weights; `seen`: number of compared requests with each term."""
        # Without learned stability F1 falls from .83 to .78 (office), as names weigh as much as verbs.
        known = _numbers_of(terms, self._seen)
        stability = _numbers_of(terms, self._stability, self._mean)
        # The sample may be older than the rows that are compared.
        often = np.maximum(known, seen)
        requests = max(self._requests, np.max(seen, initial=0))
        return _base_weights(terms, often, requests) * stability**RELEVANCE.sharpness

    def _learn(self, texts: Incidence) -> None:
        rows, columns, terms, count = texts
        seen = _numbers_of(terms, self._seen)
        similarity = texts.similarities(range(count), _base_weights(terms, seen, count)).dice
        # Equal texts share all their words, so they would make every name stable.
        similarity[similarity >= RELEVANCE.same] = 0.0
        # Stable: which of equally near texts counts must not change from one process to another.
        nearest_first = np.argsort(-similarity, axis=1, kind="stable")
        near = nearest_first[:, : min(RELEVANCE.neighbours, count - 1)]
        strength = np.take_along_axis(similarity, near, axis=1)
        # Without the least similarity F1 falls from .83 to .81 (office), without the prior below to .80.
        strength[strength < RELEVANCE.least_similarity] = 0.0
        # (text, term) pairs as single numbers: is the term in each neighbour of the text?
        has_too = np.isin(near[rows] * len(terms) + columns[:, None], rows * len(terms) + columns)
        total = np.bincount(columns, strength.sum(axis=1)[rows], minlength=len(terms))
        hits = np.bincount(columns, (strength[rows] * has_too).sum(axis=1), minlength=len(terms))
        if total.any():
            self._mean = float(hits.sum() / total.sum())
            share = (hits + RELEVANCE.prior * self._mean) / (total + RELEVANCE.prior)
            self._stability = dict(zip(terms, share.tolist(), strict=True))


def _numbers_of(terms: Iterable[str], known: Mapping[str, float], otherwise: float = 0.0) -> Floats:
    """Return the number of each term; `otherwise` for those without one."""
    return np.array([known.get(term, otherwise) for term in terms], float)


def _learn_weights(sample: Sequence[Entry]) -> TermWeights:
    return TermWeights([terms_of(entry.query) for entry in sample])


def rank(query: str, past: Sequence[PastRequest], weights: TermWeights) -> list[Match]:
    """Compare past requests with a new one; the most probably relevant come first."""
    if not past:
        return []
    # The new request is text 0, past request i is text i + 1.
    texts = Incidence.of([terms_of(query), *[request.terms for request in past]])
    seen = np.bincount(texts.columns[texts.rows > 0], minlength=len(texts.terms))
    shared, sizes, similarity = texts.similarities(range(texts.texts), weights.of(texts.terms, seen))
    covered = shared[0, 1:] / np.maximum(np.maximum(sizes[0], sizes[1:]), 1e-12)
    between = np.where(similarity[1:, 1:] >= RELEVANCE.same, 0.0, similarity[1:, 1:])
    # Without the second nearest, F1 falls from .83 to .76 (office).
    neighbour = np.zeros(1)
    if len(past) > 1:
        neighbour = np.sort(between, axis=1)[:, -2]
    vote = _votes(past, similarity[0, 1:])
    features = np.stack([covered, neighbour, vote], axis=1)
    coefficients = np.array((RELEVANCE.covered, RELEVANCE.neighbour, RELEVANCE.vote))
    probability = 1 / (1 + np.exp(-(features @ coefficients + RELEVANCE.intercept)))
    matches = []
    for place in range(len(past)):
        # Plain floats, since scores go into JSON.
        matches.append(
            Match(
                place,
                probability=float(probability[place]),
                covered=float(covered[place]),
                neighbour=float(neighbour[place]),
                vote=float(vote[place]),
            )
        )
    return sorted(matches, key=attrgetter("probability"), reverse=True)


def _votes(past: Sequence[PastRequest], similarity: Floats) -> Floats:
    """Return `Match.vote` of each past request, given the similarities of all to the new one."""
    # Without votes F1 falls from .74 to .72 on chained functions (nestful), and nowhere rises by more than .01.
    called = np.array([request.called for request in past])
    # Runs without calls do not agree: their kind is unknown.
    same_tools = (called[:, None] == called) & (called != "")
    # A request does not vote for itself.
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
