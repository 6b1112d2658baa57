"""The atoms of one namespace in RAM: found by `AtomIndex`, with their record as credited so far."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from langgraph_toolmem.atoms.atoms import Atom, Wording, wordings_of
from langgraph_toolmem.atoms.record import NO_RECORD, AtomRecord, prior
from langgraph_toolmem.atoms.retrieve import AtomHit, AtomIndex, texts_of
from langgraph_toolmem.atoms.store_rows import text_id

MAX_VECTORS: Final = 4
"""Wordings of an atom that have a vector, the most usual ones: vectors are large."""


class AtomCache:
    """Safe to use from several threads.

    Args:
        dense: atoms have vectors.
    """

    def __init__(self, *, dense: bool) -> None:
        self._dense = dense
        self._lock = threading.Lock()
        self._credited: dict[str, AtomRecord] = {}
        self.unsaved = 0
        """Credits since they were last taken."""
        self.clear()

    def clear(self) -> None:
        """Nothing is found any more; what was credited stays."""
        with self._lock:
            self._index = AtomIndex()
            self._whole: dict[str, Atom] = {}
            self._records: dict[str, AtomRecord] = {}
            self._priors: dict[str, float] = {}
            self._misleading: set[str] = set()

    def texts(self, atom: Atom) -> list[str]:
        """What an embedder gets of an atom: at most `MAX_VECTORS` texts, the most usual first."""
        return list(_said(atom))[:MAX_VECTORS]

    def put(self, key: str, atom: Atom | None, record: AtomRecord, vectors: Any = None) -> list[str]:
        """Keeps an atom, or the record of one that is not to be found (None).

        Args:
            key: id of the atom.
            atom: the atom.
            record: what became of its hints, as it is stored.
            vectors: one for each of `texts`, where atoms have vectors.

        Returns:
            Ids (`text_id`) of the texts that it has no longer.
        """
        with self._lock:
            before = self._ids_of(key)
            if atom is None:
                self._index.remove(key)
                self._whole.pop(key, None)
            else:
                self._index.add(self._indexed(atom), vectors)
                self._whole[key] = atom
            self._records[key] = record
            self._weigh(key)
            return sorted(before - self._ids_of(key))

    def remove(self, key: str) -> list[str]:
        """Takes an atom out; ids (`text_id`) of its texts."""
        with self._lock:
            before = self._ids_of(key)
            self._index.remove(key)
            for kept in (self._whole, self._records, self._priors, self._credited):
                kept.pop(key, None)
            self._misleading.discard(key)
            return sorted(before)

    def get(self, key: str) -> Atom | None:
        """The atom of that id."""
        return self._whole.get(key)

    def every(self) -> list[Atom]:
        """All atoms."""
        with self._lock:
            return list(self._whole.values())

    def text_ids(self) -> set[str]:
        """Ids (`text_id`) of all texts."""
        with self._lock:
            return {each for key in self._whole for each in self._ids_of(key)}

    def settle(self) -> None:
        """See `AtomIndex.settle`."""
        with self._lock:
            self._index.settle()

    def search(self, state: str, goals: Sequence[str], slots: Any, **how: Any) -> list[AtomHit]:
        """See `AtomIndex.search`; atoms that mislead are left out."""
        with self._lock:
            hits = self._index.search(state, goals, slots, priors=self._priors, exclude=self._misleading, **how)
            return [replace(hit, atom=self._whole[hit.atom.id]) for hit in hits]

    def credit(self, ids: Iterable[str], record: AtomRecord) -> None:
        """Adds to records, to be written later."""
        with self._lock:
            for key in ids:
                before = self._credited.get(key, NO_RECORD)
                self._credited[key] = AtomRecord(*(one + more for one, more in zip(before, record, strict=True)))
                self.unsaved += 1
                if key in self._records:
                    self._weigh(key)

    def credited(self, key: str) -> AtomRecord:
        """What was credited and not taken yet."""
        return self._credited.get(key, NO_RECORD)

    def take_credited(self) -> dict[str, AtomRecord]:
        """What was credited, to be written and `put` with it."""
        with self._lock:
            credited, self._credited, self.unsaved = self._credited, {}, 0
            return credited

    def put_back(self, credited: dict[str, AtomRecord]) -> None:
        """What was taken and could not be written."""
        for key, record in credited.items():
            self.credit([key], record)
        self.unsaved = 0  # it is tried again after as many more

    def _indexed(self, atom: Atom) -> Atom:
        return replace(atom, wordings=tuple(_said(atom).values())[:MAX_VECTORS]) if self._dense else atom

    def _ids_of(self, key: str) -> set[str]:
        atom = self._whole.get(key) if self._dense else None
        return set() if atom is None else {text_id(key, text) for text in self.texts(atom)}

    def _weigh(self, key: str) -> None:
        record = self._records[key].plus(self._credited.get(key, NO_RECORD))
        atom = self._whole.get(key)
        if atom is not None:
            self._priors[key] = prior(atom, record)
        if record.misleads:
            self._misleading.add(key)
        else:
            self._misleading.discard(key)


def _said(atom: Atom) -> dict[str, Wording]:
    """Its different texts, each with a wording."""
    found: dict[str, Wording] = {}
    for text, wording in zip(texts_of(atom), wordings_of(atom), strict=True):
        found.setdefault(text, wording)
    return found
