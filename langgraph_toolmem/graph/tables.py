"""Bounded counting tables of plain containers, with constant time per look-up.

Counts commute as long as no bound is reached. At a bound the rows with the least evidence leave first, older before
newer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from langgraph_toolmem.graph.events import Forgotten

MAX_SUCCESSORS: Final = 12
"""Successors kept per context; a new one replaces the rarest."""


class CountTable:
    """``key -> {item -> [count, …]}`` with a cap on keys (at a tenth more, those with the smallest total leave) and on
    items per key."""

    __slots__ = ("max_items", "max_rows", "rows", "width")

    def __init__(self, max_rows: int, *, width: int = 1, max_items: int = MAX_SUCCESSORS) -> None:
        self.max_rows, self.width, self.max_items = max_rows, width, max_items
        self.rows: dict[str, dict[str, list[float]]] = {}

    def add(self, key: str, item: str, column: int = 0, amount: float = 1) -> None:
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= self.max_rows * 1.1:
                self._shrink()
            row = self.rows[key] = {}
        cell = row.get(item)
        if cell is None:
            if len(row) >= self.max_items:
                del row[min(row, key=lambda i: sum(row[i]))]
            cell = row[item] = [0] * self.width
        cell[column] += amount

    def row(self, key: str) -> dict[str, list[float]]:
        return self.rows.get(key) or {}

    def _shrink(self) -> None:
        excess = len(self.rows) - self.max_rows
        totals = ((sum(map(sum, row.values())), i, key) for i, (key, row) in enumerate(self.rows.items()))
        for _, _, key in heapq.nsmallest(excess, totals):
            del self.rows[key]


class ContributorTable:
    """``key -> item -> contributors``: up to `enough` different runs and users each.

    The smallest digests stay, so that the result does not depend on the order of arrival.
    """

    __slots__ = ("enough", "max_items", "max_rows", "rows")

    def __init__(self, max_rows: int, *, max_items: int = 64, enough: int = 3) -> None:
        self.max_rows, self.max_items, self.enough = max_rows, max_items, enough
        self.rows: dict[str, dict[str, list[list[str]]]] = {}

    def add(self, key: str, item: str, run: str, user: str | None) -> None:
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= self.max_rows:
                del self.rows[next(iter(self.rows))]
            row = self.rows[key] = {}
        cell = row.get(item)
        if cell is None:
            if len(row) >= self.max_items:
                del row[min(row, key=lambda i: len(row[i][0]))]
            cell = row[item] = [[], []]
        self._note(cell[0], run)
        if user is not None:
            self._note(cell[1], user)

    def _note(self, seen: list[str], who: str) -> None:
        if who not in seen:
            seen.append(who)
            seen.sort()
            del seen[self.enough :]

    def is_public(self, key: str, item: str, user: str | None) -> bool:
        """Return True if an item may be used in anybody's run: it has enough runs, of enough users if known."""
        cell = self.rows.get(key, {}).get(item)
        if cell is None or len(cell[0]) < self.enough:
            return False
        users = cell[1]
        return not users or len(users) >= self.enough or users == [user]

    def forget(self, gone: Forgotten) -> int:
        """Delete a user, or runs, as contributors; return the number of items that lost one."""
        return len(self._lose(gone))

    def _lose(self, gone: Forgotten) -> list[tuple[str, str]]:
        place, names = (1, {gone.user}) if gone.user else (0, gone.runs)
        lost = []
        for key, row in self.rows.items():
            for item in list(row):
                seen = row[item][place]
                left = [who for who in seen if who not in names]
                if len(left) < len(seen):
                    lost.append((key, item))
                    seen[:] = left
                    if not left:
                        del row[item]
        return lost

    def forget_items(
        self, gone: Forgotten, table: CountTable, *, witnessed: Callable[[str], bool] = lambda _: True
    ) -> int:
        """Delete contributors as `forget` does, and the items of `table` that have none left.

        `witnessed`: True for items that have contributors. In a full row, where some had to leave, such an item without
        one may be anybody's: it is deleted as well and counts as removed.
        """
        full = {key for key, row in self.rows.items() if len(row) >= self.max_items}
        before = self._lose(gone)
        removed = len(before)
        out = {(key, item) for key, item in before if item not in self.rows.get(key, {})}
        for narrow, row in table.rows.items() if out or full else ():
            key = narrow.partition("\x1e")[0]
            known = self.rows.get(key, {})
            for item in list(row):
                lost = key in full and item not in known and witnessed(item)
                if lost or (key, item) in out:
                    del row[item]
                    removed += lost
        return removed
