"""Past runs for a request: Chroma gives those nearest to it, `ranking` weighs them, the policy says how many."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from langgraph_toolmem.core.method import PastRun, PastRunChanges
from langgraph_toolmem.core.rows import MOST_NEAR, Learned
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries.entry import PARTS, Entry, EntryRows
from langgraph_toolmem.entries.policy import RecallPolicy, dynamic_n
from langgraph_toolmem.entries.ranking import PastRequest, Weights, rank
from langgraph_toolmem.text.requests import forget_texts, terms_of

LONGLIST: Final = 32
"""Different requests that are weighed, of those with feedback and of those without."""
MAX_SAME: Final = 20
"""Runs that say the same, of which one is shown, the newest."""
UNORDERED: Final = 64
"""Rows by which the order of writing may differ from that of the runs."""


@dataclass(frozen=True, slots=True)
class RecalledEntry:
    """An entry that is worth showing.

    Attributes:
        entry: the past run.
        score: probability of being relevant; with the paper's policy the similarity.
        evidence: the reason, in one line without the entry's or the query's words.
        others: further runs that say the same, for which this one stands.
    """

    entry: Entry
    score: float
    evidence: str
    others: tuple[Entry, ...] = ()


class Recollection(NamedTuple):
    """The runs recalled for a request; often none.

    Attributes:
        entries: those that somebody judged first, then the most relevant.
        missing: what could not be read, in words; "" if all could.
    """

    entries: tuple[RecalledEntry, ...] = ()
    missing: str = ""


class _Candidate(NamedTuple):
    request: PastRequest
    similarity: float
    runs: list[Entry]


class EntrySearch:
    """Finds past runs for a request. Safe to use from several threads."""

    def __init__(self, rows: EntryRows) -> None:
        self._rows = rows
        self._weights = Learned(rows, lambda sample: Weights([terms_of(entry.query) for entry in sample]))

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
        near = [each for part in parts for each in self._near(vector, user, part, policy, exclude, own)]
        if policy.kind == "paper":
            near.sort(key=lambda each: -each.similarity)
            near = near[: dynamic_n([each.similarity for each in near], policy.max_n)]
            scored = [(each, each.similarity, f"similarity {each.similarity:.2f}") for each in near]
        else:
            scored = [
                (
                    near[match.place],
                    match.probability,
                    f"{match.covered:.0%} of the wording, its like {match.neighbour:.0%}; vote {match.vote:.0%}",
                )
                for match in rank(query, [each.request for each in near], self._weights.of(user))
                if match.probability >= policy.least
            ]
        found = [
            RecalledEntry(each.runs[0], score, evidence, tuple(each.runs[1:MAX_SAME]))
            for each, score, evidence in scored
        ]
        return sorted(found, key=lambda each: (each.entry.score is None, -each.score))[: policy.max_n]

    def forget(self, user: User) -> None:
        """Forget what was learned of a user's requests, and the words of all users in caches."""
        self._weights.forget(user)
        forget_texts()

    def _near(
        self, vector: Sequence[float], user: User, part: str, policy: RecallPolicy, exclude: Collection[str], own: bool
    ) -> Collection[_Candidate]:
        """Return the different requests nearest to a vector, each with its runs, the newest first."""
        once = self._rows.waits_little  # a server is asked once, for more
        k: int | None = None if policy.kind == "paper" else LONGLIST * (4 if once else 1)
        while True:
            found = self._rows.near(vector, user, k=k, part=part)
            groups: dict[object, _Candidate] = {}
            for near in sorted(found, key=lambda near: -near.item.time):
                entry = near.item
                if entry.run not in exclude and (not own or entry.user in ("", user.digest)):
                    request = PastRequest(terms_of(entry.query), "\n".join(call.tool for call in entry.calls))
                    made = _Candidate(request, near.similarity, [])
                    groups.setdefault((request, entry.good), made).runs.append(entry)
            if k is None or once or len(found) < k or len(groups) >= k // 4 or k >= MOST_NEAR:
                return groups.values()
            k = max(4 * k, LONGLIST + len(exclude))  # a long thread has many entries of its own


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
        """See `core.method.PastRuns`."""
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
