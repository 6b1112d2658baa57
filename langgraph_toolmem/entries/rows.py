"""Entries as rows: the user's words are compared; those with a verdict are found apart from those without.

- One entry per run. The same run put again changes nothing; reported with more calls, a verdict or a critique, the
  new replaces the old (`joined`). A run of one user never replaces that of another.
- An entry is retired, that is no longer shown, when runs that were shown it failed significantly more often than
  half the time and than runs that were shown others (`hurts`).
- Where there are too many, those nobody judged go first, then the least useful, then the oldest.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Final, TypeAlias

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import shortened
from langgraph_toolmem.core.ledger import NO_TRACK, ItemStats
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries.entry import MAX_CRITIQUE, Entry, entry_id, joined, judged, settled
from langgraph_toolmem.stores.vectors import Hit, VectorItem
from langgraph_toolmem.text.embedders import clean

logger = logging.getLogger("langgraph_toolmem.entries")

PARTS = JUDGED, UNJUDGED = "judged", "unjudged"
"""Parts of the collection."""
SURE: Final = 0.02
"""How improbable a record has to be by chance for its entry to be retired."""
_ASIDE: Final = ("id", "query", "recalled", "helped", "hurt", "retired")


class EntryKind(RowKind[Entry]):
    """See the module."""

    name: ClassVar[str] = "entries"

    def row(self, item: Entry) -> VectorItem:
        """See `RowKind`."""
        plain = {name: value for name, value in item.to_dict().items() if name not in _ASIDE}
        owners = tuple(digest for digest in (item.user, item.run) if digest)
        return VectorItem(item.id, item.query, plain, UNJUDGED if item.score is None else JUDGED, owners)

    def item(self, row: Hit) -> Entry:
        """See `RowKind`."""
        return Entry.from_dict({**row.metadata, "id": row.id, "query": row.text})

    def joined(self, old: Entry, new: Entry) -> Entry | None:
        """See `RowKind`."""
        if old.user and new.user and old.user != new.user:
            logger.warning("a run was reported by two users; the entry of the first stays")
            return None
        return joined(old, new)

    def tracked(self, item: Entry, track: ItemStats, others: ItemStats) -> Entry:
        """See `RowKind`."""
        if track == NO_TRACK:
            return item
        usual = (others.hurt + 1) / (others.helped + others.hurt + 2)
        bad = hurts(track.helped, track.hurt, usual)
        return replace(item, recalled=track.shown, helped=track.helped, hurt=track.hurt, retired=bad)

    def retired(self, item: Entry) -> bool:
        """See `RowKind`."""
        return item.retired

    def worth(self, item: Entry) -> tuple[bool, float, float]:
        """See `RowKind`."""
        tried = max(item.recalled, item.helped + item.hurt)
        return item.score is not None, (item.helped + 1) / (tried + 2), item.time


EntryRows: TypeAlias = Rows[Entry]


def keep(rows: EntryRows, entries: Iterable[Entry], user: User) -> list[Entry | None]:
    """As `put`, of entries as they come.

    Raises:
        InputError: the id of one is not that of its run.
    """
    return rows.put([settled(_checked(entry)) for entry in entries], user)


def judge(rows: EntryRows, run: str, score: float, comment: str | None, user: User) -> Entry | None:
    """A verdict on a run (its digest), of a user if one is named; see `judged`.

    Returns:
        What stands now; None if the run has no entry.

    Raises:
        InputError: the score is not from 0 to 1.
    """
    if not 0 <= score <= 1:
        raise InputError(f"A score is from 0 (bad) to 1 (good), not {score!r}.")
    said: dict[str, Any] = {"score": score, "comment": comment or "", "user": user.digest or ""}
    how = lambda entry: judged(entry, **said)  # noqa: E731 - of one line
    return next(iter(rows.change([entry_id(run)], how, user)), None)


def set_critique(rows: EntryRows, key: str, text: str, user: User, *, of: str, blamed: str = "") -> Entry | None:
    """The critique of the entry with that id.

    Args:
        key: id of the entry.
        text: the critique; "" if there was nothing to say.
        user: whose entries.
        of: the `Entry.verdict` it was asked for.
        blamed: the tool whose call was wrong.

    Returns:
        What stands now; None if the entry is gone or its verdict is another one now.
    """
    critique = shortened(clean(text.strip()), MAX_CRITIQUE)

    def with_critique(entry: Entry) -> Entry:
        if not entry.failed or entry.verdict != of:
            return entry
        return replace(entry, critique=critique, critique_of=of, blamed=clean(blamed))

    found = rows.change([key], with_critique, user)
    return next((entry for entry in found if entry.failed and entry.verdict == of), None)


def hurts(helped: int, hurt: int, usual: float) -> bool:
    """Whether a record retires an entry: P(X ≥ hurt) ≤ 0.02 for X binomial of helped + hurt and max(½, usual).

    Half the runs at least, since an entry that is shown for hard requests sees more failures than others. So six
    failures and no success retire it, or eight of nine.

    Args:
        helped: runs that were shown it and went well.
        hurt: runs that were shown it and failed.
        usual: share of failures of the other entries, each run counted once for each that it was shown.
    """
    runs, p = helped + hurt, min(max(0.5, usual), 1 - 1e-9)
    if hurt <= runs * p:
        return False

    def chance(k: int) -> float:
        ways = math.lgamma(runs + 1) - math.lgamma(k + 1) - math.lgamma(runs - k + 1)
        return math.exp(ways + k * math.log(p) + (runs - k) * math.log1p(-p))

    return math.fsum(map(chance, range(hurt, runs + 1))) <= SURE


def _checked(entry: Entry) -> Entry:
    if entry.id != entry_id(entry.run) or not entry.run:
        raise InputError("The id of an entry is entry_id(run), of a run that is not empty.")
    query = clean(entry.query)
    return entry if query == entry.query else replace(entry, query=query)
