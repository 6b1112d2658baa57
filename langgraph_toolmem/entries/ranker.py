"""The past requests of one namespace in RAM, and which of them a new request is like.

A look-up goes in two steps: an inverted index with bounded postings gives the LONGLIST entries that share most with
the query, then these alone are compared with the query and with each other. So its cost does not grow with the
number of entries. What terms weigh is learned from a sample of the entries, again whenever a tenth of them have come
or gone (see `weights`).
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.entries import relevance, weights
from langgraph_toolmem.entries.choose import how_many, worth_showing
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.relevance import BY_MEANING, BY_WORDS, Model
from langgraph_toolmem.entries.vocabulary import Vocabulary
from langgraph_toolmem.entries.weights import Floats, Ids, Learned
from langgraph_toolmem.words import wording

MAX_POSTINGS: Final = 1024
"""Entries kept per term, the newest: a term that more have tells them apart no further."""
CROWD: Final = 512
"""Entries looked through for different ones."""
LONGLIST: Final = 64
"""Entries compared both ways."""
SHORTLIST: Final = 20
"""Entries that get a probability: so many by wording, and as many by cosine."""
SAMPLE: Final = 1024
"""Entries from which weights are learned."""
GROWTH: Final = 0.1
"""Share of new or lost entries after which they are learned again."""
SPARSE: Final = 4
"""Times as many numbers as entries until they are numbered again."""


class Recalled(NamedTuple):
    """An entry that is worth showing.

    Attributes:
        id: of the entry.
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
    """Entries by falling similarity.

    Attributes:
        ids: of the entries.
        similarities: weighted Dice coefficients of the wording, by entry, falling.
        cosines: by entry; None if the question came without.
        shortlist: places in `ids` of the entries that get a probability.
        features: by entry of the shortlist, as `model` takes them.
        model: what gives the probabilities.
    """

    ids: list[str]
    similarities: Floats
    cosines: Floats | None
    shortlist: npt.NDArray[np.intp]
    features: Floats
    model: Model


class _Row(NamedTuple):
    id: str
    terms: Ids
    signature: str
    kind: str

    @property
    def like(self) -> tuple[bytes, str, str]:
        """Equal for entries that say the same."""
        return self.terms.tobytes(), self.signature, self.kind


class EntryIndex:
    """Past requests by wording. Not safe for threads by itself."""

    def __init__(self) -> None:
        self._vocabulary = Vocabulary()
        self._numbers: dict[str, int] = {}
        self._rows: dict[int, _Row] = {}
        self.next_number = 0
        self._postings: list[array[int]] = []
        self._learned: Learned = weights.NOTHING_LEARNED
        self._learned_at = 0
        self._changes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    # --- writing ---

    def add(self, key: str, query: str, tools: Sequence[str] = (), *, kind: str = "") -> None:
        """Adds an entry, or puts it in the place of the one with this id; nothing happens if it says the same.

        Of entries that read the same, called the same and are of one kind, the newest is shown for all.

        Args:
            key: its id.
            query: what the user asked for. One without words can be added and is never recalled.
            tools: names of the tools that were called, in order.
            kind: what else keeps entries apart, such as the verdict.
        """
        row = _Row(key, self._vocabulary.enter(wording.terms(query)), "\n".join(tools), kind)
        before = self._numbers.get(key)
        if before is not None:
            if self._rows[before].like == row.like:
                self._vocabulary.leave(row.terms)
                return
            self._take_out(before)
        number, self.next_number = self.next_number, self.next_number + 1
        self._rows[number], self._numbers[key] = row, number
        self._postings += [array("i") for _ in range(len(self._vocabulary) - len(self._postings))]
        for term in row.terms:
            posted = self._postings[term]
            posted.append(number)
            if len(posted) >= 2 * MAX_POSTINGS:
                del posted[:MAX_POSTINGS]
        self._changes += 1
        if self.next_number > SPARSE * (len(self) + CROWD):
            self._number_again()

    def remove(self, key: str) -> bool:
        """Takes an entry out; ``False`` if it was not there."""
        number = self._numbers.pop(key, None)
        if number is None:
            return False
        self._take_out(number)
        self._changes += 1
        return True

    def _take_out(self, number: int) -> None:
        row = self._rows.pop(number)
        for term in row.terms:
            posted = self._postings[term]
            if number in posted:
                posted.remove(number)
        self._vocabulary.leave(row.terms)

    def _number_again(self) -> None:
        before = np.fromiter(self._rows, dtype=np.int32)  # rising: rows are in the order in which they came
        self._postings = [
            array("i", np.searchsorted(before, np.array(posted, dtype=np.int32)).tolist()) for posted in self._postings
        ]
        self._rows = dict(enumerate(self._rows.values()))
        self._numbers = {row.id: number for number, row in self._rows.items()}
        self.next_number = len(self._rows)

    # --- reading ---

    def alike(self, key: str) -> list[str]:
        """Ids of the entries that say the same as this one, which is among them, the newest first; see `add`."""
        number = self._numbers.get(key)
        if number is None:
            return []
        row = self._rows[number]
        posted = min((self._postings[term] for term in row.terms), key=len, default=[number])
        found = (self._rows.get(other) for other in reversed(posted))
        return [other.id for other in found if other is not None and other.like == row.like]

    def recall(
        self,
        query: str,
        *,
        policy: RecallPolicy | None = None,
        k_max: int | None = None,
        near: Mapping[str, float] | None = None,
        exclude: Collection[str] = (),
    ) -> list[Recalled]:
        """The entries worth showing for a query, best first; often none.

        Args:
            query: what the user asks for.
            policy: how many; `RecallPolicy()` by default. A rule on similarities goes by `near` where that is given
                and sees what is in it, else by the wording of the LONGLIST entries that share most.
            k_max: never more than so many, whatever the policy says.
            near: cosines of an embedding model, by id, of the 50 or so entries nearest to the query; any other entry
                is taken to be as far as the farthest of these. Not of the built-in embedder, which knows nothing
                that the wording does not tell.
            exclude: ids of entries that are not to be shown: the run that asks, for one.
        """
        policy = policy or RecallPolicy()
        ranked = self.rank(query, near=near, exclude=exclude)
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
        if k_max is not None:
            n = min(n, max(k_max, 0))
        return [
            Recalled(
                ranked.ids[place],
                float(score),
                float(ranked.similarities[place]),
                _evidence(ranked, int(place), float(score), policy),
            )
            for place, score in zip(places[:n], scores[:n], strict=True)
        ]

    def rank(self, query: str, *, near: Mapping[str, float] | None = None, exclude: Collection[str] = ()) -> Ranked:
        """The LONGLIST entries that share most with a query, and those in `near`, most similar wording first.

        Of equals the newest comes first. Arguments as in `recall`.
        """
        from scipy import sparse  # a tenth of a second to import

        self._learn_if_due()
        own, unknown = self._vocabulary.split(wording.terms(query))
        numbers = self._longlist(own, near or {}, frozenset(exclude))
        model = BY_WORDS if near is None else BY_MEANING
        if not len(numbers):
            nothing = np.empty(0)
            cosines = None if near is None else nothing
            return Ranked([], nothing, cosines, np.empty(0, np.intp), np.empty((0, len(model.names))), model)
        rows = [self._rows[int(number)] for number in numbers]
        places, columns, used = weights.incidence([own, *(row.terms for row in rows)])
        # Sparse: of dense ones BLAS would make work for all cores, and wait for them on a busy machine.
        weight, shape = self._weights(used), (1 + len(rows), len(used))
        ones = sparse.csr_array((np.ones(len(places)), (places, columns)), shape=shape)
        weighted = sparse.csr_array((weight[columns], (places, columns)), shape=shape)
        shared = (weighted @ ones.T).toarray()
        sizes: Floats = np.asarray(weighted.sum(axis=1)).ravel()
        sizes[0] += unknown * self._learned.unknown
        dice = 2 * shared / np.maximum(sizes[:, None] + sizes[None, :], 1e-12)
        order = np.lexsort((-numbers, -np.round(dice[0, 1:], 9)))
        rows = [rows[place] for place in order]
        similarity = dice[0, 1:][order]
        covered = (shared[0, 1:] / np.maximum(np.maximum(sizes[0], sizes[1:]), 1e-12))[order]
        neighbour = _second(dice[1:, 1:])[order]
        ids = [row.id for row in rows]
        if near is None:
            short = np.arange(min(SHORTLIST, len(rows)))
            found = relevance.by_words(
                covered[short], neighbour[short], similarity[short], _same(rows, short), self._learned.agreement
            )
            return Ranked(ids, similarity, None, short, found, model)
        farthest = min(near.values(), default=0.0)
        known = {self._rows[self._numbers[key]].like: value for key, value in near.items() if key in self._numbers}
        cosine = np.array([known.get(row.like, farthest) for row in rows])
        short = np.union1d(np.arange(min(SHORTLIST, len(rows))), np.argsort(-cosine, kind="stable")[:SHORTLIST])
        found = relevance.by_meaning(covered[short], neighbour[short], cosine[short], _same(rows, short))
        return Ranked(ids, similarity, cosine, short, found, model)

    def _longlist(self, own: Ids, near: Mapping[str, float], exclude: frozenset[str]) -> npt.NDArray[np.int64]:
        """Numbers of the entries that share most with the query, and of those in `near`; each of its like once."""
        chosen: dict[tuple[bytes, str, str], int] = {}
        for number in self._sharing(own):
            row = self._rows[int(number)]
            if row.id not in exclude:
                chosen.setdefault(row.like, int(number))
                if len(chosen) == LONGLIST:
                    break
        for number in sorted((self._numbers[key] for key in near if key in self._numbers), reverse=True):
            row = self._rows[number]
            if row.id not in exclude:
                chosen.setdefault(row.like, number)
        return np.array(list(chosen.values()), dtype=np.int64)

    def _sharing(self, own: Ids) -> npt.NDArray[np.intp]:
        """Numbers of the CROWD entries that share most with the query, most first, then newest first."""
        own = own[[bool(self._postings[term]) for term in own]] if len(own) else own
        if not len(own):
            return np.empty(0, dtype=np.intp)
        postings = [np.frombuffer(self._postings[term], dtype=np.int32) for term in own]
        shared = np.bincount(
            np.concatenate(postings), np.repeat(self._weights(own), [len(posted) for posted in postings])
        )
        found = np.flatnonzero(shared)
        if len(found) > CROWD:
            found = found[np.argpartition(-shared[found], CROWD)[:CROWD]]
        order: npt.NDArray[np.intp] = found[np.lexsort((-found, -np.round(shared[found], 9)))]
        return order

    def _weights(self, terms: Ids) -> Floats:
        stability = np.full(len(terms), self._learned.unknown)
        known = terms < len(self._learned.stability)
        stability[known] = self._learned.stability[terms[known]]
        found: Floats = self._vocabulary.base(terms, len(self)) * stability
        return found

    def _learn_if_due(self) -> None:
        if len(self) < 2 or (self._learned_at and self._changes <= GROWTH * self._learned_at):
            return
        numbers = list(self._rows)
        step = max(1.0, len(numbers) / SAMPLE)
        rows = [self._rows[numbers[int(i * step)]] for i in range(min(SAMPLE, len(numbers)))]
        self._learned = weights.learn(
            [row.terms for row in rows],
            self._vocabulary.base(slice(None), len(self)),
            self._vocabulary.paired(),
            [row.signature for row in rows],
        )
        self._vocabulary.recycle()
        self._learned_at, self._changes = len(self), 0


def _second(between: Floats) -> Floats:
    """Of each entry, the similarity to the second nearest other one; texts that are the same do not count."""
    if len(between) < 2:
        return np.zeros(len(between))
    others = np.where(between >= weights.SAME, 0.0, between)
    found: Floats = np.sort(others, axis=1)[:, -2]
    return found


def _same(rows: Sequence[_Row], places: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Whether two entries called the same; entries without calls never did."""
    signatures = np.array([rows[place].signature for place in places])
    found: npt.NDArray[np.bool_] = (signatures[:, None] == signatures[None, :]) & (signatures != "")[:, None]
    return found


def _evidence(ranked: Ranked, place: int, score: float, policy: RecallPolicy) -> str:
    if policy.kind != "calibrated":
        return f"similarity {score:.2f}"
    row = dict(zip(ranked.model.names, ranked.features[int(np.searchsorted(ranked.shortlist, place))], strict=True))
    found = f"{row['covered']:.0%} of the wording, its like {row['neighbour']:.0%}; vote {row['vote']:.0%}"
    return f"{found}; cosine {row['cosine']:.2f}" if "cosine" in row else found
