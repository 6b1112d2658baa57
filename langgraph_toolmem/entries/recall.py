"""Past runs for a request: Chroma gives those nearest to it, the ranker weighs them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from langgraph_toolmem.core.method import PastRun, PastRunChanges
from langgraph_toolmem.core.rows import MOST_NEAR, Learned
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries import ranker
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.ranker import Candidate
from langgraph_toolmem.entries.recollection import RecalledEntry
from langgraph_toolmem.entries.rows import JUDGED, UNJUDGED, EntryRows
from langgraph_toolmem.entries.weights import Weights
from langgraph_toolmem.stores.vectors import SearchHit
from langgraph_toolmem.text.requests import forget_texts, terms_of

LONGLIST: Final = 32
"""Entries that are weighed, by wording; twice as many by an embedding model's cosines."""


class Recall:
    """Finds past runs for a request. Safe to use from several threads.

    Args:
        rows: the entries.
        dense: an embedding model makes the vectors.
    """

    def __init__(self, rows: EntryRows, *, dense: bool) -> None:
        self._rows, self._dense = rows, dense
        self._weights = Learned(rows, _weights)

    def __call__(
        self,
        query: str,
        user: User,
        *,
        policy: RecallPolicy,
        k: int | None = None,
        unjudged: bool = False,
        alike: int = 1,
        exclude: Collection[str] = (),
        own: bool = False,
    ) -> list[RecalledEntry]:
        """The entries worth showing for a request, best first.

        Args:
            query: the user's words.
            user: whose entries.
            policy: how many are worth it; decided apart for those with a verdict and those without.
            k: at most so many.
            unjudged: those without a verdict too.
            alike: at most so many of the entries that say the same as one found, the newest; they count as one.
            exclude: ids of entries that are not meant.
            own: in a namespace that users share, those of other users are not meant either.

        Raises:
            StorageError: Chroma or the embedder fails.
        """
        if not terms_of(query):
            return []
        vector = self._rows.embed(query)
        found: list[tuple[ranker.Recalled, list[Entry]]] = []
        for part in (JUDGED, UNJUDGED) if unjudged else (JUDGED,):
            groups = self._near(vector, user, part, policy, alike, exclude, own)
            if groups:
                candidates = [candidate for candidate, _ in groups]
                how = {"policy": policy, "k": k, "dense": self._dense or policy.kind == "paper"}
                chosen = ranker.recall(query, candidates, self._weights.of(user), **how)  # type: ignore[arg-type]
                of = {candidate.id: same[:alike] for candidate, same in groups}
                found += [(each, of[each.id]) for each in chosen]
        found.sort(key=lambda each: -each[0].score)
        most = policy.max_n if k is None else min(k, policy.max_n)
        return [RecalledEntry(entry, each.score, each.evidence) for each, entries in found[:most] for entry in entries]

    def forget(self, user: User) -> None:
        """What is known of a user's requests goes, their words in caches too."""
        self._weights.forget(user)
        forget_texts()

    def _near(
        self,
        vector: Sequence[float],
        user: User,
        part: str,
        policy: RecallPolicy,
        alike: int,
        exclude: Collection[str],
        own: bool,
    ) -> list[tuple[Candidate, list[Entry]]]:
        """The entries nearest to a request: the newest of those that say the same, and all of these."""
        once = self._rows.waits_little  # a server is asked once, for more
        k: int | None = LONGLIST * (2 if self._dense else 1) * (4 if once or alike > 1 else 1)
        if policy.kind == "paper":
            k = None
        fits = (lambda entry: not entry.user or entry.user == user.digest) if own else None
        while True:
            found = self._rows.near(vector, user, k=k, part=part, fits=fits)
            groups: dict[object, tuple[Candidate, list[Entry]]] = {}
            for near in sorted(found, key=lambda near: -near.item.time):
                if near.id not in exclude:
                    candidate = _candidate(near)
                    groups.setdefault(candidate.like, (candidate, []))[1].append(near.item)
            if k is None or once or len(found) < k or len(groups) >= k // 4 or k >= MOST_NEAR:
                return list(groups.values())
            k *= 4


class EntryRuns(NamedTuple):
    """The runs that a user's entries are about."""

    rows: EntryRows
    user: User

    def changes(self, since: int, most: int) -> PastRunChanges:
        """See `core.method.PastRuns`."""
        new = self.rows.changes(since, self.user, most=most)
        return PastRunChanges(new.version, new.whole, [_past_run(entry) for entry in new.items], new.gone)


def _past_run(entry: Entry) -> PastRun:
    tools = tuple(call.tool for call in entry.calls if call.status == "ok")
    return PastRun(entry.id, entry.query, tools, entry.failed, entry.time)


def _weights(sample: Sequence[Entry]) -> Weights:
    signatures = ["\n".join(call.tool for call in entry.calls) for entry in sample]
    return Weights([terms_of(entry.query) for entry in sample], signatures)


def _candidate(near: SearchHit[Entry]) -> Candidate:
    entry = near.item
    tools = tuple(call.tool for call in entry.calls)
    return Candidate(entry.id, entry.query, tools, "good" if entry.good else "", near.similarity)
