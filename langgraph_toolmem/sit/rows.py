"""State summaries as rows in Chroma.

- A row is one text on one edge. Its id is a digest of place, target, text and author, so that the same state of two
  runs is one row; it keeps the transitions (`Use`) that said it. Rows of one id join by the union of these, whatever
  the order. Verdicts are looked up when a row is read.
- A summary is retired when offered ≥ `RETIRE_AFTER` · (right + 1). It keeps its place, so that learning the same log
  again does not bring it back.
- Where there are too many, the least useful go first (`StoredSummary.usefulness`), then those seen seldom, then the
  oldest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple, TypeAlias

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.ledger import NO_TRACK, ItemStats
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.core.users import User
from langgraph_toolmem.stores.vectors import Hit, SearchHit, VectorItem
from langgraph_toolmem.text.embedders import clean
from langgraph_toolmem.text.similarity import LexicalEmbedder, similarity

RETIRE_AFTER: Final = 20
"""Offers without success after which a summary is retired."""
LONGLIST: Final = 24
"""Summaries out of a tool that are compared with a state."""
WIDE: Final = 256
"""The same where each target's most similar one is wanted."""
DIGITS: Final = 4
"""Of cosines: those that are the same so far are ties (a part's are exact to 5 or 6; see `stores.vectors`)."""
MAX_USES: Final = 64
"""Transitions that a row keeps."""
MAX_CHARS: Final = 4_000
"""Characters of a summary; a longer text is cut, with a note."""


class Use(NamedTuple):
    """A transition whose state a summary describes.

    Attributes:
        key: identity of the target's call.
        run, user: digests; the user's may be empty.
        time: when it was stored, in seconds since 1970.
    """

    key: str
    run: str
    user: str
    time: float


@dataclass(frozen=True)
class StoredSummary:
    """One summary on an edge.

    Attributes:
        id: digest of the next four.
        source: the tool before, or START.
        target: the tool called next.
        text: the state in words.
        made_by: "tool" or "extractive".
        uses: the transitions that said it, by their keys.
        offered: how often it was the evidence of a suggestion, by the ledger; like the next two no part of what is
            stored.
        followed: how often the model then called the suggested tool.
        right: how often that turned out well.
    """

    id: str
    source: str
    target: str
    text: str
    made_by: str
    uses: tuple[Use, ...]
    offered: int = 0
    followed: int = 0
    right: int = 0

    @classmethod
    def of(cls, source: str, target: str, text: str, made_by: str, *uses: Use) -> StoredSummary:
        """Return the summary of a state: the text in clean lines, cut to MAX_CHARS."""
        source, target, text = clean(source), clean(target), normalised(text)
        return cls(digest("summary", source, target, text, made_by), source, target, text, made_by, uses)

    @property
    def usefulness(self) -> float:
        """(right + ½·(followed − right) + 1) / (offered + 2): ½ without a record, 0 to 1."""
        tried = max(self.offered, self.followed, self.right)
        return (self.right + 0.5 * max(0, self.followed - self.right) + 1) / (tried + 2)


def normalised(text: str) -> str:
    """Return a text in lines without superfluous space and lone surrogates, cut to MAX_CHARS with a note."""
    text = "\n".join(line for each in clean(text).splitlines() if (line := " ".join(each.split())))
    if len(text) <= MAX_CHARS:
        return text
    note = f" … [cut from {len(text)} characters]"
    return text[: MAX_CHARS - len(note)].rstrip() + note


class Match(NamedTuple):
    """A summary and its cosine with the query, -1 to 1."""

    similarity: float
    summary: StoredSummary


class SummaryKind(RowKind[StoredSummary]):
    """See the module."""

    name: ClassVar[str] = "summaries"

    def row(self, item: StoredSummary) -> VectorItem:
        """See `RowKind`."""
        plain = {
            "source": item.source,
            "target": item.target,
            "made_by": item.made_by,
            "uses": [list(each) for each in item.uses],
        }
        owners = {name for each in item.uses for name in (each.run, each.user)} - {""}
        return VectorItem(item.id, item.text, plain, item.source, tuple(sorted(owners)))

    def item(self, row: Hit) -> StoredSummary:
        """See `RowKind`."""
        plain = row.metadata
        uses = tuple(Use(str(key), str(run), str(user), float(time)) for key, run, user, time in plain["uses"])
        return StoredSummary(row.id, str(plain["source"]), str(plain["target"]), row.text, str(plain["made_by"]), uses)

    def joined(self, old: StoredSummary, new: StoredSummary) -> StoredSummary:
        """See `RowKind`: the union of their uses; the first MAX_USES keys stay, whatever the order."""
        uses = {each.key: each for each in sorted({*old.uses, *new.uses}, reverse=True)}
        return replace(old, uses=tuple(sorted(uses.values()))[:MAX_USES])

    def without(self, item: StoredSummary, owner: str) -> StoredSummary | None:
        """See `RowKind`."""
        return _having(item, lambda use: owner not in (use.run, use.user))

    def since(self, item: StoredSummary, before: float) -> StoredSummary | None:
        """See `RowKind`."""
        return _having(item, lambda use: use.time >= before)

    def tracked(self, item: StoredSummary, track: ItemStats, others: ItemStats) -> StoredSummary:
        """See `RowKind`."""
        if track == NO_TRACK:
            return item
        return replace(item, offered=track.shown, followed=track.followed, right=track.right)

    def retired(self, item: StoredSummary) -> bool:
        """See `RowKind`. Never right in 20 offers, right once in 40, and so on: less than once in about 20."""
        return item.offered >= RETIRE_AFTER * (item.right + 1)

    def worth(self, item: StoredSummary) -> tuple[float, int, float]:
        """See `RowKind`."""
        return item.usefulness, len(item.uses), max(use.time for use in item.uses)


def _having(item: StoredSummary, fits: Callable[[Use], bool]) -> StoredSummary | None:
    kept = tuple(filter(fits, item.uses))
    return item if kept == item.uses else replace(item, uses=kept) if kept else None


SummaryRows: TypeAlias = Rows[StoredSummary]


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
        fits: others are left out.
    """

    def __init__(
        self, rows: SummaryRows, user: User, *, builtin: bool, fits: Callable[[StoredSummary], bool] | None = None
    ) -> None:
        self._rows, self._user, self._builtin, self._fits = rows, user, builtin, fits

    def embed(self, text: str) -> State | None:
        """Return a state, for several questions; None for a text without content."""
        text = normalised(text)
        return State(text, self._rows.embedder.embed_query(text)) if text else None

    def near(self, source: str, query: State) -> dict[str, Match]:
        """Return for each target the most similar summary of its edge; of equals the more useful, then by id.

        The `WIDE` most similar ones out of the source are looked at.
        """
        found: dict[str, Match] = {}
        for match in self._matches(source, query, WIDE):
            found.setdefault(match.summary.target, match)
        return found

    def nearest(self, source: str, query: State, *, k: int) -> list[Match]:
        """Return the k most similar summaries of the edges out of a source, best first; ties as in `near`."""
        return self._matches(source, query, max(k, LONGLIST))[:k]

    def _matches(self, source: str, query: State, k: int) -> list[Match]:
        found = self._rows.near(query.vector, self._user, k=k, part=source, fits=self._fits)
        matches = [Match(self._cosine(query.text, near), near.item) for near in found]
        return sorted(matches, key=lambda match: (-round(match.similarity, DIGITS), *_preference(match.summary)))

    def _cosine(self, text: str, near: SearchHit[StoredSummary]) -> float:
        return similarity(_words(text), _words(near.item.text)) if self._builtin else near.similarity


_words = lru_cache(maxsize=8_192)(LexicalEmbedder().sparse)


def forget_words() -> None:
    """Forget the texts that were compared."""
    _words.cache_clear()


def _preference(summary: StoredSummary) -> tuple[float, int, str]:
    return -summary.usefulness, -len(summary.uses), summary.id
