"""The atoms of one namespace: kept in Chroma, answered from RAM.

Chroma is read when the store is first used and written before a call that changes something returns: what was put,
judged or forgotten survives the process being killed.

- An atom stands on its supports (`support`): it is found while one of them is good. The same run put again changes
  nothing; put with more, or judged anew, it takes the place of what it gave before.
- An atom that misleads (`AtomRecord.misleads`) is found no longer. It keeps its place, so that the next run that does
  the same does not bring it back.
- Beyond `max_atoms` a hundredth goes: those that no good run supports first, then those that mislead, then those
  whose value and record say least for them, then those that were left alone for longest.
- Records are credited in RAM and written together: a process that is killed loses at most the last `flush_every` − 1
  credits and those made while another call was writing.

Where several processes write to one server, an atom is read again before it is written. Between that reading and the
end of the writing (a request of each) another process may change the same atom, and who writes last counts: a support
that is lost so is added again by `put` with `missing`, a little later. A verdict, a credit or a forgetting that falls
into these milliseconds of another process's `put` on the same atom is lost; do it again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langgraph_toolmem.atoms.atoms import Atom, merge_all
from langgraph_toolmem.atoms.background import Background
from langgraph_toolmem.atoms.cache import AtomCache
from langgraph_toolmem.atoms.mirror import AtomMirror, InterruptedReadError, Supports
from langgraph_toolmem.atoms.record import NO_RECORD, AtomRecord
from langgraph_toolmem.atoms.retrieve import AtomHit, query_texts
from langgraph_toolmem.atoms.store_rows import AtomRow, AtomRows
from langgraph_toolmem.atoms.support import Support, added, from_text, judged, to_text, total, without
from langgraph_toolmem.base.errors import ConfigurationError, InputError, StorageError

if TYPE_CHECKING:
    from langgraph_toolmem.stores.vectors import VectorStore

logger = logging.getLogger("langgraph_toolmem.atoms.store")


class AtomStore(AtomMirror):
    """The atoms of one namespace. Safe to use from several threads; blocking, so call it in one.

    Every method raises `StorageError` if Chroma or the embedder fails, and `EmbedderChangedError` if another embedder
    made what is stored. Nothing is changed then.

    Args:
        vectors: the database, already of the namespace wanted. It stays open when this store is closed.
        now: seconds since 1970.
        max_atoms: kept at most; some 10 to 15 KB of RAM each, and 4 bytes per number of the vectors of up to
            `cache.MAX_VECTORS` wordings where the embedder is not the built-in one.
        flush_every: credits after which they are written.
        refresh: seconds between two looks for what other processes wrote; None where there are none (embedded
            Chroma).
        read_only: vectors that are missing are made, and not kept.

    Raises:
        ConfigurationError: a bound that cannot be.
    """

    def __init__(
        self,
        vectors: VectorStore,
        *,
        now: Callable[[], float],
        max_atoms: int = 100_000,
        flush_every: int = 32,
        refresh: float | None = None,
        read_only: bool = False,
    ) -> None:
        for name, value in (("max_atoms", max_atoms), ("flush_every", flush_every)):
            if value < 1:
                raise ConfigurationError(f"{name} is at least 1, not {value!r}.")
        self._vectors, self._rows = vectors, AtomRows(vectors)
        self._now, self._refresh, self._read_only = now, refresh, read_only
        self._max_atoms, self._flush_every = max_atoms, flush_every
        self._dense = not vectors.embedder.builtin
        self._writing = threading.RLock()  # over every change and its database calls; taken before the cache's
        self._cache = AtomCache(dense=self._dense)
        self._known: dict[str, AtomRow] | None = None
        self._damaged: set[str] = set()
        self._looked = -math.inf
        self.closing = False
        self._reading = Background(self._read, name="toolmem-atoms")

    def __len__(self) -> int:
        """How many atoms are kept, those that are not found included."""
        return len(self._ready())

    @property
    def in_ram(self) -> int:
        """How many atoms are in RAM; nothing is read for it."""
        return 0 if self._known is None else len(self._known)

    def loaded(self, wait: float | None = None) -> bool:
        """Whether the atoms are in RAM, after `wait` seconds at most (None: without end); the reading goes on."""
        if wait is None:
            self._ready()
        try:
            return self._known is not None or self._reading.done(wait)
        except InterruptedReadError:
            return False

    def search(self, state: str, goals: Sequence[str], slots: Any, **how: Any) -> list[AtomHit]:
        """The atoms that fit best, those that mislead left out; arguments as for `AtomIndex.search`."""
        if not self._ready():
            return []
        vectors = None
        if self._dense:
            vectors = [self._vectors.embedder.embed_query(text) for text in query_texts(state, goals)]
        return self._cache.search(state, goals, slots, vectors=vectors, **how)

    def get(self, key: str) -> Atom | None:
        """The atom of that id, if a good run supports it."""
        self._ready()
        return self._cache.get(key)

    def all(self) -> list[Atom]:
        """All atoms that a good run supports."""
        self._ready()
        return self._cache.every()

    def supports(self, key: str) -> Supports:
        """What an atom stands on, good or not; () if there is no such atom."""
        row = self._ready().get(key)
        return () if row is None else from_text(key, row.rest)

    def record(self, key: str) -> AtomRecord:
        """What became of an atom's hints, as credited so far."""
        row = self._ready().get(key)
        return (NO_RECORD if row is None else row.record).plus(self._cache.credited(key))

    def put(self, supports: Iterable[Support], *, missing: bool = False) -> int:
        """Keeps atoms, or adds to those that are there; how many were not there. If it fails, do it again.

        With `missing`, an atom gets nothing of a run that it has something of, and the atoms that got something are
        counted.
        """
        given: dict[str, list[Support]] = {}
        for each in supports:
            given.setdefault(each.part.id, []).append(each)
        with self._writing:
            known = self._there(list(given))
            new = len(given.keys() - known.keys())
            stands: dict[str, Supports] = {}
            for key, more in given.items():
                now = old = self._supports(known.get(key))
                for each in more:
                    if not (missing and any(each.replaces(other) for other in now)):
                        now = added(now, each)
                if now != old:
                    stands[key] = now
            self._write(stands, known)
            if self._known is not None:
                self._make_room(self._known)
        return len(stands) if missing else new

    def judge(self, run: str, score: float, *, user: str = "") -> int:
        """A verdict on a run (its digest), of a user (digest) if one is named; returns how many atoms it is about."""
        return len(self._change(run, lambda old: judged(old, run, score, user)))

    def reword(self, run: str, made: Mapping[str, Atom]) -> int:
        """Other atoms in the place of those (by id) that a run (its digest) gave; how many of these there were."""
        with self._writing:
            known = self._there(list(made))
            moved = [
                replace(each, part=replace(made[key], visits=each.part.visits, sources=each.part.sources))
                for key in made
                for each in self._supports(known.get(key))
                if each.run == run
            ]
            if moved:
                self.put(moved)
                kept = {atom.id for atom in made.values()}
                gone = made.keys() - kept
                self._change(run, lambda old: without(old, run=run) if old[0].part.id in gone else old)
        return len(moved)

    def forget_run(self, run: str) -> int:
        """Takes away what a run (its digest) gave; returns to how many atoms it had."""
        return len(self._change(run, lambda old: without(old, run=run)))

    def forget_user(self, user: str) -> int:
        """Takes away what the runs of a user (digest) gave, and makes sure that it is gone.

        Returns:
            To how many atoms they had.

        Raises:
            InputError: no user is given.
            StorageError: something is still there.
        """
        if not user:
            raise InputError("Whose atoms are to be forgotten? The user is empty.")
        with self._writing:
            if self._vectors.empty:
                return 0
            changed = self._change(user, lambda old: without(old, user=user))
            self._rows.remove(sorted(self._damaged))  # nobody can say whose they are
            self._damaged.clear()
            self._rows.keep_only(self._cache.text_ids())
            left = {*changed, *self._rows.ids()} - (self._ready().keys() - {*changed})
            if still := [
                row for row in self._rows.read(sorted(left)) if not isinstance(row, AtomRow) or user in row.rest
            ]:
                raise StorageError(f"{len(still)} atoms could not be deleted. Do it again.")
        return len(changed)

    def credit(self, ids: str | Iterable[str], record: AtomRecord) -> None:
        """Adds to the record of atoms; below 0: something is taken back."""
        self._cache.credit([ids] if isinstance(ids, str) else ids, record)
        # Somebody who writes is not waited for: the next credit tries again.
        if self._cache.unsaved >= self._flush_every and self._writing.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._writing.release()

    def flush(self) -> None:
        """Writes what was credited."""
        with self._writing:
            self._flush()

    def drop(self) -> int:
        """Deletes everything of this namespace; how many atoms there were."""
        with self._writing:
            there = len(self._rows.ids())
            self._rows.drop()
            self._cache.take_credited()
            self._empty()
        return there

    def scrub(self) -> None:
        """What was deleted goes from the disk too, not only from what is found: see `VectorStore.scrub`."""
        with self._writing:
            self._rows.scrub()

    def close(self) -> None:
        """Writes what was credited and frees the RAM. Twice is harmless; the next use reads everything again."""
        self.closing = True  # a reading that is under way ends
        with self._writing:
            self.closing = False
            self._flush()
            self._empty()

    # Below: the caller of what changes something holds `_writing`.

    def _change(self, word: str, how: Callable[[Supports], Supports]) -> list[str]:
        """Changes the supports of all atoms in which a run or a user (digest) is named."""
        with self._writing:
            if self._vectors.empty:
                return []
            known = self._ready()
            if self._refresh is not None:
                self._look(known)
            found = {row.id: self._supports(row) for row in known.values() if word in row.rest}
            stands = {key: now for key, old in found.items() if (now := how(old)) != old}
            self._write({key: now for key, now in stands.items() if now}, known)
            gone = [key for key, now in stands.items() if not now]
            self._rows.remove(gone)
            self._leave(known, gone)
        return list(stands)

    def _write(self, stands: dict[str, Supports], known: dict[str, AtomRow]) -> None:
        rows: dict[str, tuple[AtomRow, Supports]] = {}
        new: list[AtomRow] = []
        same: list[AtomRow] = []
        for key, supports in stands.items():
            old = known.get(key)
            whole = total(supports) or merge_all(each.part for each in supports)[0]
            text = self._cache.texts(whole)[0]
            row = AtomRow(key, text, to_text(supports), NO_RECORD if old is None else old.record, self._now())
            rows[key] = row, supports
            (same if old is not None and old.text == text else new).append(row)
        self._rows.write(new)
        self._rows.amend(same)
        if self._known is not None:
            self._show(self._known, rows)
        elif self._dense:  # else they would have to be made when all are read
            wholes = ((key, total(supports)) for key, supports in stands.items())
            self._rows.vectors({key: self._cache.texts(atom) for key, atom in wholes if atom is not None})

    def _flush(self) -> None:
        credited = self._cache.take_credited()
        if not credited:
            return
        try:
            known = self._known
            if known is None or self._refresh is not None:
                found = {row.id: row for row in self._rows.read(sorted(credited)) if isinstance(row, AtomRow)}
            else:
                found = {key: known[key] for key in credited if key in known}
            now = self._now()
            rows = [row._replace(record=row.record.plus(credited[key]), changed=now) for key, row in found.items()]
            self._rows.amend(rows)
        except BaseException:
            self._cache.put_back(credited)
            raise
        if known is not None:
            self._show(known, {row.id: (row, self._supports(row)) for row in rows})
