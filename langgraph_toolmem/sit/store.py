"""State summaries of one namespace: kept in Chroma, answered from RAM.

What a suggestion reads is in RAM (`SummaryIndex`); Chroma is asked when the store is first used, and written
before a call that changes something returns.

- The same transition learned again changes nothing: a summary's id is a digest of the transition's key.
- A summary that says what an older one of its edge says (cosine ≥ `merge_above`) is merged into it: the older
  one stays, `seen` goes up. Of several that turn out alike the better record is kept.
- An edge keeps `max_per_edge` summaries, the namespace `max_total`. The least useful goes first
  (`StoredSummary.usefulness`), then the one seen seldom, then the oldest; the newest quarter of an edge is spared
  until it had its chance. Beyond `max_total` the edge with most summaries gives one up.
- A summary is retired when offered ≥ `retire_after` · (right + 1). Its text goes, its id stays, so that learning
  the same log again does not bring it back.
- Records are booked in RAM and written together: of a process that is killed at most the last `flush_every` − 1
  bookings are lost, of an addition that returned nothing.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from langgraph_toolmem.errors import ConfigurationError, InputError, StorageError
from langgraph_toolmem.failures import log_failure
from langgraph_toolmem.sit.summary import RECORD, Match, NewSummary, StoredSummary, Vector, cut
from langgraph_toolmem.sit.summary_index import SummaryIndex
from langgraph_toolmem.sit.summary_rows import PAGE, SummaryRows, row_id, summary_id, to_metadata
from langgraph_toolmem.sit.upkeep import Bounds, place, record
from langgraph_toolmem.stores.embedders import clean

if TYPE_CHECKING:
    from langgraph_toolmem.stores.vectors import VectorStore

__all__ = ["Match", "NewSummary", "StoredSummary", "SummaryStore"]

logger = logging.getLogger("langgraph_toolmem.sit.store")


class SummaryStore:
    """The state summaries of one namespace. Safe to use from several threads; blocking, so call it in one.

    Every method raises `StorageError` if Chroma or the embedder fails, and `EmbedderChangedError` if another
    embedder made what is stored. Nothing is changed then, and the next call tries again. What is in RAM is
    still found while Chroma is away.

    Args:
        vectors: the database, already of the namespace wanted. It stays open when this store is closed.
        now: seconds since 1970.
        max_per_edge: summaries kept on one edge.
        max_total: summaries kept in all; each takes 4 bytes per number of its vector in RAM.
        merge_above: cosine from which two summaries of one edge are one.
        max_chars: a longer text is cut, with a note.
        retire_after: offers without success after which a summary is retired.
        flush_every: bookings after which they are written.
        refresh: seconds between two looks for what other processes stored; ``None`` where there are none
            (embedded Chroma).

    Raises:
        ConfigurationError: a bound that cannot be.
    """

    def __init__(
        self,
        vectors: VectorStore,
        *,
        now: Callable[[], float],
        max_per_edge: int = 64,
        max_total: int = 20_000,
        merge_above: float = 0.95,
        max_chars: int = 4000,
        retire_after: int = 20,
        flush_every: int = 32,
        refresh: float | None = None,
    ) -> None:
        if flush_every < 1:
            raise ConfigurationError(f"flush_every is at least 1, not {flush_every!r}.")
        if max_chars < 100:
            raise ConfigurationError(f"max_chars is at least 100, not {max_chars!r}.")
        if refresh is not None and not refresh >= 0:
            raise ConfigurationError(f"refresh is None or at least 0 seconds, not {refresh!r}.")
        self._vectors = vectors
        self._rows = SummaryRows(vectors)
        self._now = now
        self._bounds = Bounds(max_per_edge, max_total, merge_above, retire_after)
        self._max_chars, self._flush_every, self._refresh = max_chars, flush_every, refresh
        self._index: SummaryIndex | None = None
        self._looked = -math.inf  # when other processes' rows were last looked for
        self._unsaved = 0
        self._writing = threading.Lock()  # held over database calls; taken before the other one
        self._reading = threading.Lock()  # held over RAM only

    def __enter__(self) -> SummaryStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._ready())

    @property
    def version(self) -> int:
        """Another number whenever a summary came, went or changed: what was derived from them is then old."""
        return self._ready().version

    def add(
        self,
        source: str,
        target: str,
        text: str,
        *,
        key: str,
        run: str = "",
        user: str | None = None,
        made_by: str = "tool",
        time: float | None = None,
    ) -> str | None:
        """Keeps the summary of one transition; see `NewSummary`.

        Returns:
            The id of the summary that stands for the transition: its own, or of the older one that says the
            same. ``None`` if none does: the text is empty, or others of a full edge are worth more.

        Raises:
            InputError: source, target or key is empty, or a field is of the wrong type.
        """
        return self.add_many([NewSummary(source, target, text, key, run, user, made_by, time)])[0]

    def add_many(self, summaries: Iterable[NewSummary]) -> list[str | None]:
        """As `add` for each, embedded and written 500 at a time. If it fails half-way, do it again."""
        checked = [each.checked(self._now(), self._max_chars) for each in summaries]
        answers: list[str | None] = []
        for start in range(0, len(checked), PAGE):
            answers += self._add(checked[start : start + PAGE])
        return answers

    def near(
        self, source: str | None, query: str | Vector, *, targets: Collection[str] | None = None
    ) -> dict[str, Match]:
        """For each target the most similar summary of its edge. Only these edges are read.

        Args:
            source: the tool called last, or START; ``None``: whatever came before.
            query: a summary, or its vector.
            targets: only these. By default all that the source has summaries to.

        Returns:
            By target; targets without a summary, and an empty query's, are left out.

        Raises:
            InputError: the vector has another length.
        """
        index, vector = self._asked(query)
        if vector is None:
            return {}
        with self._reading:
            return index.near(_cleaned(source), vector, targets)

    def nearest(
        self, source: str | None, query: str | Vector, *, targets: Collection[str] | None = None, k: int = 8
    ) -> list[Match]:
        """The k most similar summaries of the candidate edges, best first; arguments as in `near`."""
        index, vector = self._asked(query)
        if vector is None:
            return []
        with self._reading:
            return index.nearest(_cleaned(source), vector, targets, k)

    def embed(self, text: str) -> Vector | None:
        """The query vector of a summary, for several questions; ``None`` for a text without content."""
        text = cut(text, self._max_chars)
        return np.asarray(self._vectors.embedder.embed_query(text), dtype=np.float32) if text else None

    def get(self, key: str) -> StoredSummary | None:
        """The summary of that id, unless it is retired."""
        index = self._ready()
        with self._reading:
            found = index.get(key)
        return None if found is None or found.retired else found

    def summaries(self, source: str | None = None, *, targets: Collection[str] | None = None) -> list[StoredSummary]:
        """Summaries of the edges out of a source, or of all, oldest first."""
        index = self._ready()
        with self._reading:
            ids = [key for *_, of_edge in index.edges(_cleaned(source), targets) for key in of_edge]
            found = [summary for key in ids if (summary := index.get(key)) is not None]
        return sorted(found, key=lambda each: (each.time, each.id))

    def counts(self) -> dict[tuple[str, str], int]:
        """Summaries by edge (source, target)."""
        index = self._ready()
        with self._reading:
            return {(source, target): len(ids) for source, target, ids in index.edges()}

    def book(self, ids: str | Iterable[str], *, offered: int = 0, followed: int = 0, right: int = 0) -> None:
        """Adds to the record of summaries; unknown ids are passed over. Below 0: something is taken back.

        A summary whose record turned bad is no longer found. What was booked is written after every
        `flush_every` bookings; if that fails it is kept and tried again after as many more.
        """
        index = self._ready()
        with self._reading:
            due = False
            for key in [ids] if isinstance(ids, str) else list(ids):
                if not index.book(key, (offered, followed, right)):
                    continue
                self._unsaved += 1
                summary = index.get(key)
                if summary is not None and not summary.retired and summary.bad(self._bounds.retire_after):
                    index.conceal(key)
                    due = True
            due = due or self._unsaved >= self._flush_every
        # Somebody who writes (an import) is not waited for: the next booking tries again.
        if due and self._writing.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._writing.release()

    def flush(self) -> None:
        """Writes what was booked."""
        with self._writing:
            self._flush()

    def forget(self, *, user: str | None = None, run: str | None = None) -> int:
        """Deletes what comes from a user or a run (digests), and makes sure that it is gone.

        What was merged into somebody else's summary is taken off it. Other processes go on finding it until
        their next look.

        Returns:
            How many summaries were deleted.

        Raises:
            InputError: neither or both are given.
            StorageError: some are still there.
        """
        name, wanted = ("user", user) if user else ("run", run)
        if not wanted or (user and run):
            raise InputError("forget takes a user or a run.")
        with self._writing:
            self._load()
            deleted = 0
            with self._change() as index:
                for summary in index.every():
                    if getattr(summary, name) == wanted:
                        index.drop(summary.id)
                        deleted += 1
                    elif any(getattr(each, name) == wanted for each in summary.merged):
                        kept = tuple(each for each in summary.merged if getattr(each, name) != wanted)
                        seen = max(1, summary.seen - len(summary.merged) + len(kept))
                        index.put(replace(summary, merged=kept, seen=seen))
            if still := self._rows.ids({name: wanted}):
                raise StorageError(f"{len(still)} summaries could not be deleted. Do it again.")
        return deleted

    def forget_user(self, user: str) -> int:
        """As `forget`, of a user's digest."""
        return self.forget(user=user)

    def forget_run(self, run: str) -> int:
        """As `forget`, of a run's digest."""
        return self.forget(run=run)

    def drop(self) -> None:
        """Deletes everything of this namespace."""
        with self._writing:
            self._rows.drop()
            with self._reading:
                self._index, self._unsaved = None, 0

    def reload(self) -> None:
        """Reads everything again at the next use; for when somebody else deleted or embedded it anew.

        What was booked is written first.
        """
        with self._writing:
            self._flush()
            with self._reading:
                self._index = None

    def close(self) -> None:
        """Writes what was booked and frees the RAM. Twice is harmless; the next use reads everything again."""
        self.reload()

    def _asked(self, query: str | Vector) -> tuple[SummaryIndex, Vector | None]:
        index = self._ready()
        if isinstance(query, str):
            return index, self.embed(query) if len(index) else None
        return index, np.asarray(query, dtype=np.float32)

    def _ready(self) -> SummaryIndex:
        """What is in RAM, read first if nothing is, looked over if it is time."""
        index = self._index
        if index is None:
            with self._writing:
                return self._index or self._load()
        if self._due() and self._writing.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._writing.release()
        return index

    def _due(self) -> bool:
        return self._refresh is not None and not 0 <= self._now() - self._looked < self._refresh

    def _load(self) -> SummaryIndex:
        """Reads everything; the caller holds `_writing`."""
        index = SummaryIndex()
        found = list(self._rows.read())
        whole = {each.id: each for each in found if each is not None}
        if len(whole) < len(found):
            logger.warning("%d rows of state summaries are damaged or double; left out", len(found) - len(whole))
        for summary in sorted(whole.values(), key=lambda each: (each.time, each.id)):
            index.put(summary)
        with self._reading:
            if self._index is not None:
                for key, waiting in self._index.take_booked().items():
                    index.book(key, waiting)
            self._index = index
        self._looked = self._now()
        return index

    def _look(self) -> None:
        """Takes over what other processes added, deleted and retired; the caller holds `_writing`.

        Only ids are compared. Chroma being away is no reason not to answer.
        """
        index = self._index
        if index is None:
            return
        self._looked = self._now()
        try:
            there = self._rows.ids()
            with self._reading:
                here = {row_id(each): each.id for each in index.every()}
            new = [each for each in self._rows.read([row for row in there if row not in here]) if each is not None]
        except StorageError as error:
            log_failure(logger, logging.WARNING, "new state summaries of others cannot be read", error=error)
            return
        arrived = {each.id for each in new}
        with self._reading:
            for row in here.keys() - set(there):
                if here[row] not in arrived:
                    index.drop(here[row])
            for summary in new:
                index.put(summary)

    def _add(self, batch: Sequence[NewSummary]) -> list[str | None]:
        index = self._ready()
        with self._reading:
            unknown = {each.id: each for each in batch if each.text and index.standing(each.id) is None}
        if not unknown:
            with self._reading:
                return [index.standing(each.id) if each.text else None for each in batch]
        embedded = self._vectors.embedder.embed_documents([each.text for each in unknown.values()])
        vectors = {key: np.asarray(vector, dtype=np.float32) for key, vector in zip(unknown, embedded, strict=True)}
        with self._writing:
            if self._index is None:
                self._load()
            with self._change() as index:
                for each in unknown.values():
                    place(index, each, vectors[each.id], self._bounds)
                return [index.standing(each.id) if each.text else None for each in batch]

    def _flush(self) -> None:
        """Writes what was booked; the caller holds `_writing`."""
        index = self._index
        if index is None:
            return
        with self._reading:
            booked = index.take_booked()
            self._unsaved = 0
        if not booked:
            return
        try:
            saved = self._saved(index, list(booked))
            with self._change() as index:
                for key, waiting in booked.items():
                    if key in saved:
                        record(index, saved[key], waiting, self._bounds)
                    else:
                        index.drop(key)
        except BaseException:
            with self._reading:
                for key, waiting in booked.items():
                    index.book(key, waiting)
            raise

    def _saved(self, index: SummaryIndex, keys: list[str]) -> dict[str, StoredSummary]:
        """The summaries with the record that is in the database: where others write too, they add to it."""
        with self._reading:
            known = {key: summary for key in keys if (summary := index.get(key, saved=True)) is not None}
        if self._refresh is None:
            return known
        rows = self._rows.metadata([row_id(each) for each in known.values()])
        saved: dict[str, StoredSummary] = {}
        for row, metadata in rows.items():
            offered, followed, right = (int(metadata.get(name) or 0) for name in RECORD)
            before = known[summary_id(row)]
            saved[before.id] = replace(before, offered=offered, followed=followed, right=right)
        return saved

    @contextmanager
    def _change(self) -> Iterator[SummaryIndex]:
        """Changes made to the index inside are written when it ends, or undone. The caller holds `_writing`.

        Readers wait for the changes in RAM, not for the database: they may find a summary a moment before it
        is safe.
        """
        index = self._index
        assert index is not None
        with self._reading:
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
            with self._reading:
                index.undo(journal)
            self._looked = -math.inf  # part of it may be there
            raise

    def _write(self, changed: Sequence[tuple[StoredSummary | None, StoredSummary | None]]) -> None:
        written: list[StoredSummary] = []
        amended: dict[str, dict[str, Any]] = {}
        removed: list[str] = []
        for before, after in changed:
            moved = before is not None and (after is None or row_id(before) != row_id(after))
            if before is not None and moved:
                removed.append(row_id(before))
            if after is not None and (before is None or moved):
                written.append(after)
            elif before is not None and after is not None:
                was, now = to_metadata(before), to_metadata(after)
                if different := {name: value for name, value in now.items() if value != was[name]}:
                    amended[row_id(after)] = different
        self._rows.write(written)
        self._rows.amend(amended)
        self._rows.remove(removed)


def _cleaned(source: str | None) -> str | None:
    return None if source is None else clean(source)
