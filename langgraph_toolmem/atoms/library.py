"""The atoms of all namespaces of a memory; those used last are in RAM."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from langgraph_toolmem.atoms.retrieve import AtomHit
from langgraph_toolmem.atoms.store import AtomStore
from langgraph_toolmem.base.failures import log_failure
from langgraph_toolmem.stores.vectors import VectorStore
from langgraph_toolmem.words import wording

logger = logging.getLogger("langgraph_toolmem.atoms")

MAX_NAMESPACES: Final = 256
MAX_ATOMS: Final = 200_000
"""Namespaces and atoms in RAM at once; the namespaces that were not used for longest leave."""

Namespace = tuple[str, ...]


class AtomLibrary:
    """Finds atoms for a sub-goal. Safe to use from several threads.

    Methods raise `StorageError` where Chroma fails.

    Args:
        vectors: the database; each namespace has collections of its own in it.
        now: seconds since 1970.
        refresh: seconds between two looks for what other processes wrote; None where there are none.
        read_only: nothing is written.
    """

    def __init__(
        self,
        vectors: VectorStore,
        *,
        now: Callable[[], float],
        refresh: float | None = None,
        read_only: bool = False,
    ) -> None:
        self._vectors = vectors
        self._options: dict[str, Any] = {"now": now, "refresh": refresh, "read_only": read_only}
        self._lock = threading.Lock()
        self._recent: dict[Namespace, AtomStore] = {}  # the latest used is the last
        # What left `_recent` may be in use still: there is never more than one store for a namespace.
        self._alive: weakref.WeakValueDictionary[Namespace, AtomStore] = weakref.WeakValueDictionary()

    def store(self, namespace: Namespace) -> AtomStore:
        """The atoms of a namespace."""
        with self._lock:
            found = self._recent.pop(namespace, None) or self._alive.get(namespace)
            if found is None:
                found = AtomStore(self._vectors.scoped(namespace), **self._options)
                self._alive[namespace] = found
            self._recent[namespace] = found
            return found

    def search(
        self, namespace: Namespace, state: str, goals: Sequence[str], slots: Any, *, wait: float | None, **how: Any
    ) -> list[AtomHit] | None:
        """The atoms that fit best; None if they are still being read from disk after `wait` seconds.

        Further arguments as for `AtomIndex.search`.
        """
        store = self.store(namespace)
        if not store.loaded(wait):
            return None
        found = store.search(state, goals, slots, **how)
        self._make_room()
        return found

    def leave(self, namespace: Namespace) -> None:
        """What is in RAM of a namespace goes, its words in caches too."""
        with self._lock:
            store = self._recent.pop(namespace, None)
        if store is not None:
            store.close()
        wording.forget()

    def close(self) -> None:
        """Writes what was credited and frees the RAM."""
        with self._lock:
            leaving, self._recent = self._recent, {}
        self._close(leaving.values())

    def _make_room(self) -> None:
        with self._lock:
            atoms = sum(store.in_ram for store in self._recent.values())
            leaving = []
            while len(self._recent) > 1 and (len(self._recent) > MAX_NAMESPACES or atoms > MAX_ATOMS):
                store = self._recent.pop(next(iter(self._recent)))
                atoms -= store.in_ram
                leaving.append(store)
        self._close(leaving)

    def _close(self, stores: Iterable[AtomStore]) -> None:
        for store in stores:
            try:
                store.close()
            except Exception as error:  # noqa: BLE001 - one that cannot be written must not keep the others
                log_failure(logger, logging.WARNING, "the record of atoms could not be written", error=error)
