"""The atoms of one namespace in RAM: read from Chroma when they are first asked for, and kept up with others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.atoms.cache import AtomCache
from langgraph_toolmem.atoms.record import prior
from langgraph_toolmem.atoms.store_rows import PAGE, AtomRow, AtomRows
from langgraph_toolmem.atoms.support import Support, from_text, total
from langgraph_toolmem.base.errors import InputError, StorageError
from langgraph_toolmem.base.failures import log_failure

if TYPE_CHECKING:
    from langgraph_toolmem.stores.vectors import VectorStore

logger = logging.getLogger("langgraph_toolmem.atoms.store")

SLACK: Final = 300.0
"""Seconds by which clocks of processes that share a server may differ."""

Supports = tuple[Support, ...]


class InterruptedReadError(StorageError):
    """The store was closed while all was being read."""


class AtomMirror:
    """What `AtomStore` answers from. The caller of what changes something holds `_writing`."""

    _vectors: VectorStore
    _rows: AtomRows
    _now: Callable[[], float]
    _refresh: float | None
    _read_only: bool
    _dense: bool
    _max_atoms: int
    _writing: RLock
    _cache: AtomCache
    _known: dict[str, AtomRow] | None
    _damaged: set[str]
    _looked: float
    closing: bool

    def _empty(self) -> None:
        self._cache.clear()
        self._known, self._damaged = None, set()

    def _ready(self) -> dict[str, AtomRow]:
        known = self._known
        if known is None:
            try:
                return self._read()
            except InterruptedReadError:  # by a forgetting, perhaps; somebody waits for an answer
                return self._read(to_the_end=True)
        due = self._refresh is not None and not 0 <= self._now() - self._looked < self._refresh
        if due and self._writing.acquire(blocking=False):
            try:
                self._look(known)
            finally:
                self._writing.release()
        return known

    def _read(self, *, to_the_end: bool = False) -> dict[str, AtomRow]:
        with self._writing:
            return self._known if self._known is not None else self._load(to_the_end)

    def _load(self, to_the_end: bool) -> dict[str, AtomRow]:
        known: dict[str, AtomRow] = {}
        self._cache.clear()
        rows = () if self._vectors.empty else self._rows.read()
        self._take_in(known, rows if to_the_end else self._until_closed(rows))
        if self._damaged:
            logger.warning("%d atoms are damaged; left out", len(self._damaged))
        if not self._read_only:
            self._make_room(known)
        self._cache.settle()
        self._known, self._looked = known, self._now()
        return known

    def _until_closed(self, rows: Iterable[AtomRow | str]) -> Iterator[AtomRow | str]:
        for row in rows:
            if self.closing:
                raise InterruptedReadError("The atoms are being closed.")
            yield row

    def _look(self, known: dict[str, AtomRow]) -> None:
        """Takes over what other processes wrote. Chroma being away is no reason not to answer."""
        before, self._looked = self._looked, self._now()
        try:
            there = set(self._rows.ids())
            found = list(self._rows.read(since=before - SLACK))
            missed = there - known.keys() - {row.id for row in found if isinstance(row, AtomRow)} - self._damaged
            found += self._rows.read(sorted(missed)) if missed else []
            self._take_in(known, found)
        except StorageError as error:
            log_failure(logger, logging.WARNING, "atoms of others cannot be read", error=error)
            return
        self._leave(known, known.keys() - there)

    def _there(self, ids: Sequence[str]) -> dict[str, AtomRow]:
        """These atoms as they are in the database now, perhaps with others; all are not read for it."""
        known = self._known
        if known is None:
            if self._vectors.empty:
                return {}
            return {row.id: row for row in self._rows.read(ids) if isinstance(row, AtomRow)}
        if self._refresh is not None and not self._vectors.empty:
            found = list(self._rows.read(ids))
            self._take_in(known, found)
            self._leave(known, (set(ids) & known.keys()) - {row.id for row in found if isinstance(row, AtomRow)})
        return known

    def _take_in(self, known: dict[str, AtomRow], rows: Iterable[AtomRow | str]) -> None:
        """Rows of the database as they are there; a page at a time, where vectors are read with them."""
        page: dict[str, tuple[AtomRow, Supports]] = {}
        for row in rows:
            if isinstance(row, str):
                self._damaged.add(row)
                continue
            if known.get(row.id) == row:
                continue
            try:
                page[row.id] = row, from_text(row.id, row.rest)
            except InputError:
                self._damaged.add(row.id)
                continue
            if len(page) >= PAGE:
                self._show(known, page)
                page = {}
        self._show(known, page)

    def _show(self, known: dict[str, AtomRow], page: dict[str, tuple[AtomRow, Supports]]) -> None:
        totals = {key: total(supports) for key, (_, supports) in page.items()}
        texts = {key: self._cache.texts(atom) for key, atom in totals.items() if atom is not None}
        vectors = self._rows.vectors(texts, write=not self._read_only) if self._dense and texts else {}
        for key, (row, _) in page.items():
            known[key] = row
            self._damaged.discard(key)
            left = self._cache.put(key, totals[key], row.record, vectors.get(key))
            if not self._read_only:
                self._rows.remove_texts(left)

    def _leave(self, known: dict[str, AtomRow], keys: Iterable[str]) -> None:
        for key in list(keys):
            known.pop(key, None)
            left = self._cache.remove(key)
            if not self._read_only:
                self._rows.remove_texts(left)

    def _supports(self, row: AtomRow | None) -> Supports:
        return () if row is None else from_text(row.id, row.rest)

    def _make_room(self, known: dict[str, AtomRow]) -> None:
        if len(known) <= self._max_atoms:
            return
        least = sorted(known.values(), key=self._worth)[: len(known) - self._max_atoms + self._max_atoms // 100]
        gone = [row.id for row in least]
        self._rows.remove(gone)
        self._leave(known, gone)

    def _worth(self, row: AtomRow) -> tuple[Any, ...]:
        atom, record = self._cache.get(row.id), row.record.plus(self._cache.credited(row.id))
        said = 0.0 if atom is None else prior(atom, record)
        return atom is not None, not record.misleads, round(said, 9), row.changed, row.id
