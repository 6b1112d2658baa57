"""State summaries as rows: those that led on from one tool are found apart from the others.

- The same transition learned again changes nothing: a summary's id is a digest of the transition's key.
- A summary that says what an older one of its edge says (cosine ≥ `SITPolicy.merge_above`) is merged into it: the older
  one stays, `seen` goes up.
- A summary is retired when offered ≥ `RETIRE_AFTER` · (right + 1). It keeps its place, so that learning the same log
  again does not bring it back.
- Where there are too many, the least useful go first (`StoredSummary.usefulness`), then those seen seldom, then the
  oldest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple, TypeAlias

from langgraph_toolmem.core.ledger import NO_TRACK, ItemStats
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.core.users import User
from langgraph_toolmem.sit.summary import MAX_CHARS, Match, Merged, NewSummary, StoredSummary, cut
from langgraph_toolmem.stores.vectors import Hit, SearchHit, VectorItem
from langgraph_toolmem.text.similarity import LexicalEmbedder, similarity

RETIRE_AFTER: Final = 20
"""Offers without success after which a summary is retired."""
LONGLIST: Final = 24
"""Summaries out of a tool that are compared with a state."""
SAME: Final = 8
"""Summaries out of a tool among which one that says the same is looked for."""
WIDE: Final = 256
"""The same where each target's most similar one is wanted."""
DIGITS: Final = 4
"""Of cosines: those that are the same so far are ties (a part's are exact to 5 or 6; see `stores.vectors`)."""
MAX_MERGED: Final = 64
"""Merged transitions that are remembered by name; `seen` goes on counting."""
BATCH: Final = 500

SummaryRows: TypeAlias = Rows[StoredSummary]


class SummaryKind(RowKind[StoredSummary]):
    """See the module."""

    name: ClassVar[str] = "summaries"

    def row(self, item: StoredSummary) -> VectorItem:
        """See `RowKind`. Merged transitions are among the owners: so the summary that stands for one is found."""
        plain = {
            "source": item.source,
            "target": item.target,
            "run": item.run,
            "user": item.user,
            "time": item.time,
            "made_by": item.made_by,
            "seen": item.seen,
            "merged": [list(each) for each in item.merged],
        }
        owners = {item.run, item.user, *(part for each in item.merged for part in each)} - {""}
        return VectorItem(item.id, item.text, plain, item.source, tuple(sorted(owners)))

    def item(self, row: Hit) -> StoredSummary:
        """See `RowKind`."""
        plain = row.metadata
        return StoredSummary(
            id=row.id,
            text=row.text,
            source=str(plain["source"]),
            target=str(plain["target"]),
            run=str(plain["run"]),
            time=float(plain["time"]),
            made_by=str(plain["made_by"]),
            seen=int(plain["seen"]),
            user=str(plain["user"]),
            merged=tuple(Merged(*map(str, each)) for each in plain["merged"]),
        )

    def joined(self, old: StoredSummary, new: StoredSummary) -> StoredSummary:
        """See `RowKind`: what is new are merged transitions."""
        more = tuple(each for each in new.merged if each not in old.merged)
        return replace(old, seen=old.seen + len(more), merged=(*old.merged, *more)[-MAX_MERGED:])

    def without(self, item: StoredSummary, owner: str) -> StoredSummary | None:
        """See `RowKind`."""
        if owner in (item.user, item.run):
            return None
        kept = tuple(each for each in item.merged if owner not in each)
        return replace(item, merged=kept, seen=max(1, item.seen - len(item.merged) + len(kept)))

    def tracked(self, item: StoredSummary, track: ItemStats, others: ItemStats) -> StoredSummary:
        """See `RowKind`."""
        if track == NO_TRACK:
            return item
        return replace(item, offered=track.shown, followed=track.followed, right=track.right)

    def retired(self, item: StoredSummary) -> bool:
        """See `RowKind`."""
        return item.bad(RETIRE_AFTER)

    def worth(self, item: StoredSummary) -> tuple[float, int, float]:
        """See `RowKind`."""
        return item.usefulness, item.seen, item.time


class State(NamedTuple):
    """A state that is compared: its text, and its vector."""

    text: str
    vector: Sequence[float]


class Summaries:
    """The summaries that a user may see, as a suggestion reads them. Every method raises `StorageError`.

    Args:
        rows: of all users.
        user: whose.
        builtin: the built-in embedder makes the vectors: texts are compared by all of their words then.
    """

    def __init__(self, rows: SummaryRows, user: User, *, builtin: bool) -> None:
        self._rows, self._user, self._builtin = rows, user, builtin

    def embed(self, text: str) -> State | None:
        """A state, for several questions; None for a text without content."""
        text = cut(text, MAX_CHARS)
        return State(text, self._rows.embedder.embed_query(text)) if text else None

    def near(self, source: str, query: State) -> dict[str, Match]:
        """For each target the most similar summary of its edge; of equals the more useful, then the older.

        The `WIDE` most similar ones out of the source are looked at.
        """
        found: dict[str, Match] = {}
        for match in self._matches(source, query, WIDE):
            found.setdefault(match.summary.target, match)
        return found

    def nearest(self, source: str, query: State, *, k: int) -> list[Match]:
        """The k most similar summaries of the edges out of a source, best first; ties as in `near`."""
        return self._matches(source, query, max(k, LONGLIST))[:k]

    def like(self, new: NewSummary, vector: Sequence[float], least: float) -> StoredSummary | None:
        """The oldest summary of an edge that says the same as a new one: its cosine is `least` or more."""
        fits: Callable[[StoredSummary], bool] = lambda each: each.target == new.target  # noqa: E731 - of one line
        near = self._rows.near(vector, self._user, k=SAME, part=new.source, fits=fits, enough=0)
        alike = [each.item for each in near if self._cosine(new.text, each) >= least]
        return min(alike, key=lambda each: (each.time, each.id), default=None)

    def _matches(self, source: str, query: State, k: int) -> list[Match]:
        found = self._rows.near(query.vector, self._user, k=k, part=source)
        matches = [Match(self._cosine(query.text, near), near.item) for near in found]
        return sorted(matches, key=lambda match: (-round(match.similarity, DIGITS), *_preference(match.summary)))

    def _cosine(self, text: str, near: SearchHit[StoredSummary]) -> float:
        return similarity(_words(text), _words(near.item.text)) if self._builtin else near.similarity


def add(
    rows: SummaryRows, given: Iterable[NewSummary], user: User, *, now: float, merge_above: float, builtin: bool
) -> list[str | None]:
    """Keeps summaries of transitions. If it fails half-way, do it again.

    Returns:
        For each the id of the summary that stands for it: its own, or that of the older one that says the same; None
        for an empty text.

    Raises:
        InputError: a field cannot be used.
        StorageError: they cannot be stored.
    """
    checked = [each.checked(now, MAX_CHARS) for each in given]
    answers: list[str | None] = []
    for start in range(0, len(checked), BATCH):
        page = checked[start : start + BATCH]
        stand = standing(rows, [each.id for each in page if each.text], user)
        fresh = list({each.id: each for each in page if each.text and each.id not in stand}.values())
        vectors = rows.embedder.embed_documents([each.text for each in fresh])
        summaries = Summaries(rows, user, builtin=builtin)
        items: dict[str, StoredSummary] = {}
        own: dict[str, Sequence[float]] = {}
        for each, vector in zip(fresh, vectors, strict=True):
            older = summaries.like(each, vector, merge_above)
            older = _like_of(items.values(), each, own, vector, merge_above, builtin) if older is None else older
            if older is None:
                items[each.id], own[each.id], stand[each.id] = each.kept(), vector, each.id
            else:
                into = items.get(older.id, older)
                merged = (*into.merged, Merged(each.id, each.run, each.user or ""))
                if older.id in own:
                    into = replace(into, merged=merged[-MAX_MERGED:], seen=into.seen + 1)
                else:  # `joined` counts
                    into = replace(into, merged=merged)
                items[older.id] = into
                stand[each.id] = older.id
        rows.put(items.values(), user, vectors=own)
        answers += [stand.get(each.id) if each.text else None for each in page]
    return answers


def standing(rows: SummaryRows, ids: Collection[str], user: User) -> dict[str, str]:
    """By the id of a summary, that of the one that stands for it: its own, even retired, or one that says the same."""
    found = {each.id: each.id for each in rows.get(list(ids), user)}
    if missing := [key for key in ids if key not in found]:
        for item in rows.of(missing[0], user, *missing[1:]):
            for merged in item.merged:
                if merged.id in missing:
                    found.setdefault(merged.id, item.id)
    return found


def _like_of(
    items: Iterable[StoredSummary],
    new: NewSummary,
    vectors: dict[str, Sequence[float]],
    vector: Sequence[float],
    least: float,
    builtin: bool,
) -> StoredSummary | None:
    """As `Summaries.like`, among those that are being added."""
    for each in items:
        if (each.source, each.target) == (new.source, new.target) and each.id in vectors:
            if builtin:
                cosine = similarity(_words(new.text), _words(each.text))
            else:
                cosine = sum(a * b for a, b in zip(vector, vectors[each.id], strict=True))
            if cosine >= least:
                return each
    return None


_words = lru_cache(maxsize=8_192)(LexicalEmbedder().sparse)


def forget_words() -> None:
    """Nothing of a text is remembered any more."""
    _words.cache_clear()


def _preference(summary: StoredSummary) -> tuple[float, int, float, str]:
    return -summary.usefulness, -summary.seen, summary.time, summary.id
