"""Summaries in RAM and in Chroma, kept equal: read when first wanted, changed in both or in neither."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.failures import log_failure
from langgraph_toolmem.sit.summary import RECORD, StoredSummary
from langgraph_toolmem.sit.summary_index import SummaryIndex
from langgraph_toolmem.sit.summary_rows import SummaryRows, row_id, rows_of, standing, summary_id, to_metadata

if TYPE_CHECKING:
    from langgraph_toolmem.stores.vectors import VectorStore

logger = logging.getLogger("langgraph_toolmem.sit.mirror")


class Mirror:
    """The index and the rows it mirrors, with their two locks.

    Attributes:
        writing: held over every change and its database calls; taken before the other one.
        reading: held over reading and changing RAM only, never over a database call.
        index: what is in RAM; ``None`` before it was read. Replaced and changed under both locks.
    """

    def __init__(self, vectors: VectorStore, *, now: Callable[[], float], refresh: float | None) -> None:
        self.rows = SummaryRows(vectors)
        self.writing = threading.Lock()
        self.reading = threading.Lock()
        self.index: SummaryIndex | None = None
        self._now = now
        self._refresh = refresh
        self._looked = -math.inf  # when the rows were last looked at; never: they may differ

    def ready(self) -> SummaryIndex:
        """What is in RAM, read first if nothing is, looked over if it is time."""
        index = self.index
        if index is None:
            with self.writing:
                return self.read()
        if self._due() and self.writing.acquire(blocking=False):
            try:
                self._look(index)
            finally:
                self.writing.release()
        return index

    def load(self) -> SummaryIndex:
        """Reads everything; the caller holds `writing`. What was credited and not written stays credited."""
        index = SummaryIndex()
        damaged = 0
        found: dict[str, StoredSummary] = {}
        for summary in self.rows.read():
            if summary is None:
                damaged += 1
            elif summary.retired or summary.id not in found:
                found[summary.id] = summary
        if damaged:
            logger.warning("%d rows of state summaries are damaged; left out", damaged)
        for summary in sorted(found.values(), key=lambda each: (each.time, each.id)):
            index.put(summary)
        with self.reading:
            if self.index is not None:
                for key, waiting in self.index.take_credited().items():
                    index.credit(key, waiting)
            self.index = index
        self._looked = self._now()
        return index

    def saved(self, keys: Sequence[str]) -> dict[str, StoredSummary]:
        """Summaries that are there, with their record as it is in the database: others may have added to it."""
        index = self.read()
        with self.reading:
            known = {key: summary for key in keys if (summary := index.get(key, saved=True)) is not None}
        if self._refresh is None:
            return known
        rows = self.rows.metadata([row_id(each) for each in known.values()])
        found: dict[str, StoredSummary] = {}
        for row, metadata in rows.items():
            offered, followed, right = (int(metadata.get(name) or 0) for name in RECORD)
            before = known[summary_id(row)]
            found[before.id] = replace(before, offered=offered, followed=followed, right=right)
        return found

    def read(self) -> SummaryIndex:
        """What is in RAM, read first if nothing is; the caller holds `writing`."""
        return self.load() if self.index is None else self.index

    @contextmanager
    def change(self) -> Iterator[SummaryIndex]:
        """What is changed in the index inside is written when it ends, or undone. The caller holds `writing`.

        Readers wait for the changes in RAM, not for the database: they may find a summary a moment before it
        is safe.
        """
        index = self.read()
        with self.reading:
            journal = index.watch()
            try:
                yield index
            except BaseException:
                index.undo(journal)
                raise
            index.unwatch()
            changed = [(before, index.get(key, saved=True)) for key, before in journal.items()]
        try:
            self._write(changed)
        except BaseException:
            with self.reading:
                index.undo(journal)
            self._looked = -math.inf  # part of it may be there
            raise

    def _write(self, changed: Sequence[tuple[StoredSummary | None, StoredSummary | None]]) -> None:
        written: list[StoredSummary] = []
        amended: dict[str, dict[str, Any]] = {}
        removed: list[str] = []
        for before, after in changed:
            if after is None:
                removed += rows_of(before) if before is not None else []
            elif before is None or row_id(before) != row_id(after):
                written.append(after)
                removed += [row for row in rows_of(after) if before is not None and row != row_id(after)]
            else:
                was, now = to_metadata(before), to_metadata(after)
                if different := {name: value for name, value in now.items() if value != was[name]}:
                    amended[row_id(after)] = different
        self.rows.write(written)
        self.rows.amend(amended)
        self.rows.remove(removed)

    def _due(self) -> bool:
        if self._looked == -math.inf:
            return True
        return self._refresh is not None and not 0 <= self._now() - self._looked < self._refresh

    def _look(self, index: SummaryIndex) -> None:
        """Takes over what other processes added, deleted and retired; the caller holds `writing`.

        Only ids are compared. Chroma being away is no reason not to answer.
        """
        if index is not self.index:
            return
        self._looked = self._now()
        try:
            there = standing(self.rows.ids())
            with self.reading:
                here = {row_id(each): each.id for each in index.every()}
            new = [each for each in self.rows.read([row for row in there if row not in here]) if each is not None]
        except StorageError as error:
            log_failure(logger, logging.WARNING, "new state summaries of others cannot be read", error=error)
            return
        with self.reading:
            for row in here.keys() - set(there):
                index.drop(here[row])
            for summary in new:
                index.put(summary)
