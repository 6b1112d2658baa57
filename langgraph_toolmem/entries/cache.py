"""Entries in RAM: found by id, with what was credited and not written yet, and a log of changes for an index."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.entries.rows import EntryRow, Vector

REMEMBERED: Final = 10_000
"""Changes that can be told one by one."""
SURE: Final = 0.02
"""How improbable a record has to be by chance for its entry to be retired."""
NOTHING: Final = (0, 0, 0)

Counts = tuple[int, int, int]
"""Recalled, helped, hurt."""


class Changes(NamedTuple):
    """What an index over the entries has to do to be up to date.

    Attributes:
        version: to be asked with the next time.
        whole: `entries` are all there are: forget what was known before.
        entries: new and changed ones that may be shown, with their vectors (length 1, shape (dimension,)); None in
            their place where the embedder is the built-in lexical one.
        gone: ids of those deleted or retired.
    """

    version: int
    whole: bool
    entries: list[tuple[Entry, Vector | None]]
    gone: list[str]


class EntryCache:
    """The rows of one namespace in RAM. Every method holds `lock`, which is never held over a database call.

    Attributes:
        version: another number after every change but a credit.
        rows: by id; None before they were read.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.version = 0
        self.rows: dict[str, EntryRow] | None = None
        self._vectors: dict[str, Vector] = {}
        self._credited: dict[str, Counts] = {}
        self._credits = 0
        self._log: deque[str] = deque(maxlen=REMEMBERED)  # ids in the order they changed, the latest last
        self._helped = self._hurt = 0  # over all rows

    @property
    def unsaved(self) -> int:
        """Credits that were not taken yet."""
        return self._credits

    def bad(self, row: EntryRow, waiting: Mapping[str, Counts]) -> bool:
        """Whether a row's record retires it, beside what the others' say; see `hurts`.

        Args:
            row: with what was credited.
            waiting: what is credited and not in the rows yet.
        """
        with self.lock:
            helped = self._helped + sum(counts[1] for counts in waiting.values()) - row.helped
            hurt = self._hurt + sum(counts[2] for counts in waiting.values()) - row.hurt
        return hurts(row.helped, row.hurt, max(0, hurt + 1) / max(1, helped + hurt + 2))

    def fill(self, rows: dict[str, EntryRow], vectors: dict[str, Vector]) -> None:
        """Everything was read anew. What was credited stays credited."""
        with self.lock:
            self.rows, self._vectors = rows, vectors
            self._helped, self._hurt = sum(r.helped for r in rows.values()), sum(r.hurt for r in rows.values())
            self.version += 1
            self._log.clear()

    def clear(self, *, credited: bool) -> None:
        """Frees the RAM; with `credited` what waits to be written is lost too."""
        with self.lock:
            self.rows, self._vectors = None, {}
            if credited:
                self._credited, self._credits = {}, 0

    def put(self, row: EntryRow, vector: Vector | None = None) -> None:
        """Keeps a row, in the place of the one with its id; without a vector that one's stays."""
        with self.lock:
            if self.rows is None:
                return
            before = self.rows.get(row.id)
            self._count(before, row)
            self.rows[row.id] = row
            if vector is not None:
                self._vectors[row.id] = vector
            if before is None or before.content != row.content:
                self.version += 1
                self._log.append(row.id)

    def drop(self, key: str) -> None:
        """Takes a row away; one that is not there is no error."""
        with self.lock:
            if self.rows is None or (row := self.rows.pop(key, None)) is None:
                return
            self._count(row, None)
            self._vectors.pop(key, None)
            self._credited.pop(key, None)
            self.version += 1
            self._log.append(key)

    def get(self, key: str) -> EntryRow | None:
        """The row of that id with what was credited."""
        with self.lock:
            row = (self.rows or {}).get(key)
            return None if row is None else row.credited(self._credited.get(key, NOTHING))

    def every(self, *, retired: bool) -> list[EntryRow]:
        """All rows with what was credited, oldest first."""
        with self.lock:
            found = [
                row.credited(self._credited.get(row.id, NOTHING))
                for row in (self.rows or {}).values()
                if retired or not row.retired
            ]
        return sorted(found, key=lambda row: (row.time, row.id))

    def changes(self, since: int) -> Changes:
        """See `EntryStore.changes`."""
        with self.lock:
            rows = self.rows or {}
            back = self.version - since
            whole = not 0 <= back <= len(self._log)
            ids = list(rows) if whole else list(dict.fromkeys(list(self._log)[len(self._log) - back :]))
            shown = [row for key in ids if (row := rows.get(key)) is not None and not row.retired]
            vectors = [self._vectors.get(row.id) for row in shown]
            gone = [] if whole else [key for key in ids if (row := rows.get(key)) is None or row.retired]
            version = self.version
        return Changes(version, whole, [(row.entry(), v) for row, v in zip(shown, vectors, strict=True)], gone)

    def credit(self, ids: Iterable[str], counts: Counts) -> bool:
        """Adds to records; unknown ids are passed over. Returns whether one of them is to be retired now."""
        with self.lock:
            rows = self.rows or {}
            known = [key for key in ids if key in rows]
            for key in known:
                self._credited[key] = _sum(self._credited.get(key, NOTHING), counts)
            self._credits += len(known)
            credited = (rows[key].credited(self._credited[key]) for key in known if not rows[key].retired)
            return counts[2] > 0 and any(self.bad(row, self._credited) for row in credited)

    def take_credited(self) -> dict[str, Counts]:
        """What waits to be written; it does not wait any more."""
        with self.lock:
            credited, self._credited, self._credits = self._credited, {}, 0
            return credited

    def put_back(self, credited: Mapping[str, Counts]) -> None:
        """What was taken and could not be written waits again."""
        with self.lock:
            for key, counts in credited.items():
                self._credited[key] = _sum(self._credited.get(key, NOTHING), counts)

    def _count(self, before: EntryRow | None, after: EntryRow | None) -> None:
        for row, sign in ((before, -1), (after, 1)):
            if row is not None:
                self._helped += sign * row.helped
                self._hurt += sign * row.hurt


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


def worth(row: EntryRow) -> tuple[bool, bool, float, float]:
    """How much an entry is worth keeping, the least first."""
    tried = max(row.recalled, row.helped + row.hurt)
    return (not row.retired, row.score is not None, (row.helped + 1) / (tried + 2), row.time)


def _sum(one: Counts, other: Counts) -> Counts:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
