"""The entries of one namespace: kept in Chroma, answered from RAM.

Chroma is read when the store is first used and written before a call that changes something returns: what was
put, judged or criticised survives the process being killed.

- One entry per run. The same run put again changes nothing; reported with more calls, a verdict or a critique, the
  new replaces the old (`joined`). A run of one user never replaces that of another.
- An entry is retired, that is no longer shown, when runs that were shown it failed significantly more often than
  half the time and than runs that were shown others (`cache.hurts`). It keeps its place, so that the same run put
  again does not bring it back, and its verdict still counts.
- Beyond `max_entries` a hundredth goes: retired ones first, then those nobody judged, then the least useful, then
  the oldest.
- Records are credited in RAM and written together: a process that is killed loses at most the last `flush_every` − 1
  credits and those made while another call was writing.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from langgraph_toolmem.base.errors import ConfigurationError, InputError, StorageError
from langgraph_toolmem.base.failures import log_failure
from langgraph_toolmem.base.text import shortened
from langgraph_toolmem.entries.cache import Changes, EntryCache, worth
from langgraph_toolmem.entries.entry import MAX_CRITIQUE, Entry, entry_id, joined, judged, settled
from langgraph_toolmem.entries.rows import KIND, EntryRow, EntryRows, Vector, row_of
from langgraph_toolmem.search.embedders import clean

if TYPE_CHECKING:
    from langgraph_toolmem.stores.vectors import VectorStore

logger = logging.getLogger("langgraph_toolmem.entries.store")

SLACK: Final = 300.0
"""Seconds by which clocks of processes that share a server may differ."""

__all__ = ["Changes", "EntryStore"]


class EntryStore:
    """The entries of one namespace. Safe to use from several threads; blocking, so call it in one.

    Every method raises `StorageError` if Chroma or the embedder fails, and `EmbedderChangedError` if another
    embedder made what is stored. Nothing is changed then.

    Args:
        vectors: the database, already of the namespace wanted. It stays open when this store is closed.
        now: seconds since 1970.
        max_entries: kept at most; about 2 KB of RAM each, and 4 bytes per number of a vector where the embedder is
            not the built-in one.
        flush_every: credits after which they are written.
        refresh: seconds between two looks for what other processes wrote; None where there are none (embedded
            Chroma). Clocks that differ by more than `SLACK` seconds may hide a change.

    Raises:
        ConfigurationError: a bound that cannot be.
    """

    def __init__(
        self,
        vectors: VectorStore,
        *,
        now: Callable[[], float],
        max_entries: int = 100_000,
        flush_every: int = 32,
        refresh: float | None = None,
    ) -> None:
        for name, value in (("max_entries", max_entries), ("flush_every", flush_every)):
            if value < 1:
                raise ConfigurationError(f"{name} is at least 1, not {value!r}.")
        if refresh is not None and not refresh >= 0:
            raise ConfigurationError(f"refresh is None or at least 0 seconds, not {refresh!r}.")
        self._vectors, self._rows = vectors, EntryRows(vectors)
        self._now, self._refresh = now, refresh
        self._max_entries, self._flush_every = max_entries, flush_every
        self._dense = not vectors.embedder.builtin
        self._writing = threading.RLock()  # over every change and its database calls; taken before the cache's
        self._cache = EntryCache()
        self._looked = -math.inf

    def __len__(self) -> int:
        return len(self._ready())

    @property
    def version(self) -> int:
        """Another number whenever an entry came, went, was retired or changed. Credits do not change it."""
        self._ready()
        return self._cache.version

    def put(self, entry: Entry) -> Entry | None:
        """Keeps an entry, or adds what is new to the one of its run.

        Returns:
            What stands now; None if the run is another user's.

        Raises:
            InputError: its id is not that of its run.
        """
        return self.put_many([entry])[0]

    def put_many(self, entries: Iterable[Entry]) -> list[Entry | None]:
        """As `put` for each, embedded and written together. If it fails, do it again."""
        given = [_checked(entry) for entry in entries]
        with self._writing:
            kept = self._reread([entry.id for entry in given])
            stands: dict[str, Entry] = {}
            answers: list[Entry | None] = []
            for new in given:
                known = kept.get(new.id)
                old = stands.get(new.id) or (known.entry() if known is not None else None)
                if old is not None and old.user and new.user and old.user != new.user:
                    logger.warning("a run was reported by two users; the entry of the first stays")
                    answers.append(None)
                    continue
                stands[new.id] = settled(new) if old is None else joined(old, new)
                answers.append(stands[new.id])
            self._write([each for key, each in stands.items() if key not in kept or kept[key].entry() != each])
            self._make_room()
        return answers

    def get(self, key: str) -> Entry | None:
        """The entry of that id, retired or not, its record as credited so far."""
        self._ready()
        row = self._cache.get(key)
        return None if row is None else row.entry()

    def of_run(self, run: str) -> Entry | None:
        """The entry of a run (its digest)."""
        return self.get(entry_id(run))

    def all(self, *, retired: bool = False) -> list[Entry]:
        """All entries, oldest first; with `retired` those too that are not shown any more."""
        self._ready()
        return [row.entry() for row in self._cache.every(retired=retired)]

    def changes(self, since: int = 0) -> Changes:
        """What changed after a version, for an index to follow; everything if that was too long ago, or 0."""
        self._ready()
        return self._cache.changes(since)

    def near(self, query: str, *, k: int = 3, but: str = "") -> list[tuple[float, Entry]]:
        """The k entries whose query is most similar by Chroma's search, with the cosine, best first.

        Args:
            query: the user's words.
            k: how many.
            but: id of an entry that is not meant.
        """
        self._ready()
        hits = self._vectors.query(KIND, query, k=4 * k + 1)
        found = [(hit.similarity, entry) for hit in hits if hit.id != but and (entry := self.get(hit.id)) is not None]
        return [(similarity, entry) for similarity, entry in found if not entry.retired][:k]

    def cosines(self, query: str, *, k: int) -> dict[str, float] | None:
        """The cosines of the k or so entries nearest to a query, by id; None with the built-in embedder."""
        if not self._dense or not self._ready():
            return None
        return {hit.id: hit.similarity for hit in self._vectors.query(KIND, query, k=k)}

    def judge(self, run: str, score: float, comment: str | None = None, *, user: str = "") -> Entry | None:
        """A verdict on a run (its digest), of a user (digest) if one is named; see `judged`.

        Returns:
            What stands now; None if the run has no entry.

        Raises:
            InputError: the score is not from 0 to 1.
        """
        if not 0 <= score <= 1:
            raise InputError(f"A score is from 0 (bad) to 1 (good), not {score!r}.")
        return self._change(entry_id(run), lambda entry: judged(entry, score, comment or "", user))

    def set_critique(self, key: str, text: str, *, of: str, blamed: str = "") -> Entry | None:
        """The critique of the entry with that id.

        Args:
            key: id of the entry.
            text: the critique; "" if there was nothing to say.
            of: the `Entry.verdict` it was asked for.
            blamed: the tool whose call was wrong.

        Returns:
            What stands now; None if the entry is gone or its verdict is another one now.
        """
        if (entry := self.get(key)) is None or not entry.failed or entry.verdict != of:
            return None
        critique = shortened(clean(text.strip()), MAX_CRITIQUE)
        return self._change(
            key,
            lambda entry: (
                replace(entry, critique=critique, critique_of=of, blamed=clean(blamed))
                if entry.failed and entry.verdict == of
                else entry
            ),
        )

    def credit(self, ids: str | Iterable[str], *, recalled: int = 0, helped: int = 0, hurt: int = 0) -> None:
        """Adds to the record of entries; unknown ids are passed over. Below 0: something is taken back.

        Args:
            ids: of the entries.
            recalled: how often they were shown.
            helped: how often a run that was shown them went well.
            hurt: how often such a run failed.
        """
        self._ready()
        bad = self._cache.credit([ids] if isinstance(ids, str) else ids, (recalled, helped, hurt))
        due = bad or self._cache.unsaved >= self._flush_every
        # Somebody who writes is not waited for: the next credit tries again.
        if due and self._writing.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._writing.release()

    def flush(self) -> None:
        """Writes what was credited."""
        with self._writing:
            self._flush()

    def forget_user(self, user: str) -> int:
        """Deletes all entries of a user (digest), and makes sure that they are gone; returns how many.

        Raises:
            InputError: no user is given.
            StorageError: some are still there.
        """
        return self._forget("user", user)

    def forget_run(self, run: str) -> int:
        """As `forget_user`, of a run's digest."""
        return self._forget("run", run)

    def drop(self) -> None:
        """Deletes everything of this namespace."""
        with self._writing:
            self._rows.drop()
            self._cache.clear(credited=True)

    def scrub(self) -> None:
        """What was deleted goes from the disk too, not only from what is found: see `VectorStore.scrub`."""
        with self._writing:
            self._rows.scrub()

    def reload(self) -> None:
        """Writes what was credited, and reads everything again at the next use."""
        with self._writing:
            self._flush()
            self._cache.clear(credited=False)

    def close(self) -> None:
        """Writes what was credited and frees the RAM. Twice is harmless; the next use reads everything again."""
        self.reload()

    # Below: the caller of what changes something holds `_writing`.

    def _ready(self) -> dict[str, EntryRow]:
        rows = self._cache.rows
        if rows is None:
            with self._writing:
                return self._cache.rows if self._cache.rows is not None else self._load()
        due = self._refresh is not None and not 0 <= self._now() - self._looked < self._refresh
        if due and self._writing.acquire(blocking=False):
            try:
                self._look(rows)
            finally:
                self._writing.release()
        return rows

    def _load(self) -> dict[str, EntryRow]:
        rows: dict[str, EntryRow] = {}
        vectors: dict[str, Vector] = {}
        damaged = 0
        if not self._vectors.empty:
            for row, vector in self._rows.read(vectors=self._dense):
                if row is None:
                    damaged += 1
                    continue
                rows[row.id] = row
                if vector is not None:
                    vectors[row.id] = vector
        if damaged:
            logger.warning("%d entries are damaged; left out", damaged)
        self._cache.fill(rows, vectors)
        self._looked = self._now()
        return rows

    def _look(self, known: dict[str, EntryRow]) -> None:
        """Takes over what other processes wrote. Chroma being away is no reason not to answer."""
        before, self._looked = self._looked, self._now()
        try:
            there = set(self._rows.ids())
            found = list(self._rows.read(since=before - SLACK, vectors=self._dense))
            missed = there - known.keys() - {row.id for row, _ in found if row is not None}
            found += self._rows.read(sorted(missed), vectors=self._dense) if missed else []
        except StorageError as error:
            log_failure(logger, logging.WARNING, "entries of others cannot be read", error=error)
            return
        for key in known.keys() - there:
            self._cache.drop(key)
        self._take_over(known, found)

    def _reread(self, ids: Sequence[str]) -> dict[str, EntryRow]:
        """What is known, these ids as they are in the database now: others may have changed them."""
        known = self._ready()
        if self._refresh is not None and not self._vectors.empty:
            found = list(self._rows.read(list(ids), vectors=self._dense))
            for key in set(ids) - {row.id for row, _ in found if row is not None}:
                self._cache.drop(key)
            self._take_over(known, found)
        return known

    def _take_over(self, known: dict[str, EntryRow], found: Iterable[tuple[EntryRow | None, Vector | None]]) -> None:
        for row, vector in found:
            if row is not None and known.get(row.id) != row:
                self._cache.put(row, vector)

    def _change(self, key: str, how: Callable[[Entry], Entry]) -> Entry | None:
        with self._writing:
            row = self._reread([key]).get(key)
            if row is None:
                return None
            old = row.entry()
            new = how(old)
            if new != old:
                self._amend([new])
            return new

    def _write(self, entries: Sequence[Entry]) -> None:
        known = self._ready()
        new = [entry for entry in entries if entry.id not in known or known[entry.id].query != entry.query]
        written = {entry.id for entry in new}
        if new:
            vectors = self._vectors.embedder.embed_documents([entry.query for entry in new])
            rows = [row_of(entry, self._now()) for entry in new]
            self._rows.write(rows, vectors)
            for row, vector in zip(rows, vectors, strict=True):
                self._cache.put(row, np.asarray(vector, dtype=np.float32) if self._dense else None)
        self._amend([entry for entry in entries if entry.id not in written])

    def _amend(self, entries: Sequence[Entry]) -> None:
        rows = [row_of(entry, self._now()) for entry in entries]
        self._rows.amend(rows)
        for row in rows:
            self._cache.put(row)

    def _make_room(self) -> None:
        rows = self._ready()
        if len(rows) <= self._max_entries:
            return
        least = sorted(rows.values(), key=worth)[: len(rows) - self._max_entries + self._max_entries // 100]
        self._rows.remove([row.id for row in least])
        for row in least:
            self._cache.drop(row.id)

    def _forget(self, name: str, wanted: str) -> int:
        if not wanted:
            raise InputError(f"Whose entries are to be forgotten? The {name} is empty.")
        with self._writing:
            if self._vectors.empty:
                return 0
            mine = [row.id for row in self._ready().values() if getattr(row, name) == wanted]
            ids = list(dict.fromkeys([*mine, *self._rows.ids({name: wanted})]))  # those of damaged rows too
            self._rows.remove(ids)
            for key in ids:
                self._cache.drop(key)
            if still := self._rows.ids({name: wanted}):
                raise StorageError(f"{len(still)} entries could not be deleted. Do it again.")
        return len(ids)

    def _flush(self) -> None:
        credited = self._cache.take_credited()
        if not credited:
            return
        try:
            known = self._reread(list(credited))
            now = self._now()
            rows = [row.credited(counts) for key, counts in credited.items() if (row := known.get(key)) is not None]
            rows = [row._replace(retired=row.retired or self._cache.bad(row, credited), changed=now) for row in rows]
            self._rows.credit(rows)
        except BaseException:
            self._cache.put_back(credited)
            raise
        for row in rows:
            self._cache.put(row)


def _checked(entry: Entry) -> Entry:
    if entry.id != entry_id(entry.run) or not entry.run:
        raise InputError("The id of an entry is entry_id(run), of a run that is not empty.")
    query = clean(entry.query)
    return entry if query == entry.query else replace(entry, query=query)
