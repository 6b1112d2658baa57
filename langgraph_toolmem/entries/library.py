"""The entries of all namespaces of a memory, each with an index of its requests; those used last are in RAM."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from langgraph_toolmem.base.failures import log_failure
from langgraph_toolmem.core.past_runs import PastRun, PastRunChanges
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.ranker import EntryIndex
from langgraph_toolmem.entries.recollection import RecalledEntry
from langgraph_toolmem.entries.store import EntryStore
from langgraph_toolmem.stores.vectors import VectorStore
from langgraph_toolmem.words import wording

logger = logging.getLogger("langgraph_toolmem.entries")

MAX_NAMESPACES: Final = 1_024
MAX_ENTRIES: Final = 200_000
"""Namespaces and entries in RAM at once; the namespaces that were not used for longest leave."""
NEAREST: Final = 50
"""Entries that a model's cosine is known of."""

Namespace = tuple[str, ...]


class EntryLibrary:
    """Finds past runs for a request. Safe to use from several threads.

    Methods raise `StorageError` where Chroma fails.

    Args:
        vectors: the database; each namespace has collections of its own in it.
        now: seconds since 1970.
        refresh: seconds between two looks for what other processes wrote; None where there are none.
    """

    def __init__(self, vectors: VectorStore, *, now: Callable[[], float], refresh: float | None = None) -> None:
        self._vectors, self._now, self._refresh = vectors, now, refresh
        self._lock = threading.Lock()
        self._recent: dict[Namespace, _OpenNamespace] = {}  # the latest used is the last
        # What left `_recent` may be in use still: there is never more than one store for a namespace.
        self._stores: weakref.WeakValueDictionary[Namespace, EntryStore] = weakref.WeakValueDictionary()

    @property
    def in_ram(self) -> list[Namespace]:
        """The namespaces whose entries are in RAM, the latest used last."""
        return list(self._recent)

    def store(self, namespace: Namespace) -> EntryStore:
        """The entries of a namespace."""
        return self._open(namespace).store

    def recall(
        self,
        namespace: Namespace,
        query: str,
        *,
        policy: RecallPolicy,
        k: int | None = None,
        unjudged: bool = False,
        alike: int = 1,
        exclude: Collection[str] = (),
        wait: float | None = None,
    ) -> list[RecalledEntry] | None:
        """The entries worth showing for a request, best first.

        Args:
            namespace: where to look.
            query: the user's words.
            policy: how many are worth it; decided apart for those with a verdict and those without.
            k: at most so many.
            unjudged: those without a verdict too.
            alike: at most so many of the entries that say the same as one found, the newest; they count as one.
            exclude: ids of entries that are not meant.
            wait: seconds to wait for entries that have to be read from disk first; None: as long as it takes.

        Returns:
            None if they are still being read; the reading goes on.
        """
        opened = self._open(namespace)
        if not opened.loaded(wait):
            return None
        found = opened.recall(query, policy, k, unjudged, alike, exclude)
        self._make_room()
        return found

    def loaded(self, namespace: Namespace, wait: float | None = None) -> EntryStore | None:
        """The entries of a namespace, in RAM; None if they are still being read after `wait` seconds."""
        opened = self._open(namespace)
        return opened.store if opened.loaded(wait) else None

    def leave(self, namespace: Namespace) -> None:
        """What is in RAM of a namespace goes, words of its requests in caches too."""
        with self._lock:
            opened = self._recent.pop(namespace, None)
        if opened is not None:
            opened.close()
        wording.forget()

    def flush(self) -> None:
        """Writes what was credited and not written yet."""
        for opened in self._open_namespaces():
            opened.store.flush()

    def close(self) -> None:
        """Writes what was credited and frees the RAM."""
        for opened in self._open_namespaces():
            try:
                opened.close()
            except Exception as error:  # noqa: BLE001 - one that cannot be written must not keep the others
                log_failure(logger, logging.WARNING, "the record of entries could not be written", error=error)
        with self._lock:
            self._recent.clear()

    def _open_namespaces(self) -> list[_OpenNamespace]:
        with self._lock:
            return list(self._recent.values())

    def _open(self, namespace: Namespace) -> _OpenNamespace:
        with self._lock:
            found = self._recent.pop(namespace, None)
            if found is None:  # not just an empty one
                store = self._stores.get(namespace)
                if store is None:
                    store = EntryStore(self._vectors.scoped(namespace), now=self._now, refresh=self._refresh)
                    self._stores[namespace] = store
                found = _OpenNamespace(store)
            self._recent[namespace] = found
            return found

    def _make_room(self) -> None:
        with self._lock:
            entries = sum(len(opened) for opened in self._recent.values())
            leaving = []
            while len(self._recent) > 1 and (len(self._recent) > MAX_NAMESPACES or entries > MAX_ENTRIES):
                opened = self._recent.pop(next(iter(self._recent)))
                entries -= len(opened)
                leaving.append(opened)
        for opened in leaving:
            opened.close()


class _OpenNamespace:
    """One namespace: its entries, and indexes of the requests that have a verdict and of those that have none."""

    def __init__(self, store: EntryStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._version, self._ready = 0, False
        self._judged, self._unjudged = EntryIndex(), EntryIndex()
        self._starting = threading.Lock()
        self._reading: threading.Thread | None = None
        self._failure: Exception | None = None

    def __len__(self) -> int:
        return len(self._judged) + len(self._unjudged)

    def loaded(self, wait: float | None) -> bool:
        """Whether the entries are in RAM, after `wait` seconds at most."""
        if self._ready:
            return True
        if wait is None:
            with self._lock:
                self._follow()
            return True
        with self._starting:
            if self._reading is None:
                self._failure = None
                self._reading = threading.Thread(target=self._read, name="toolmem-entries", daemon=True)
                self._reading.start()
            reading = self._reading
        reading.join(wait)
        if reading.is_alive():
            return False
        self._reading = None
        if self._failure is not None:
            raise self._failure
        return True

    def recall(
        self, query: str, policy: RecallPolicy, k: int | None, unjudged: bool, alike: int, exclude: Collection[str]
    ) -> list[RecalledEntry]:
        near = self.store.cosines(query, k=NEAREST)
        with self._lock:
            self._follow()
            found = self._judged.recall(query, policy=policy, k_max=k, near=near, exclude=exclude)
            if unjudged:
                found += self._unjudged.recall(query, policy=policy, k_max=k, near=near, exclude=exclude)
                found.sort(key=lambda each: -each.score)
            found = found[: policy.max_n if k is None else min(k, policy.max_n)]
            ids = [(key, each) for each in found for key in self._alike(each.id, alike, exclude)]
        shown = [(self.store.get(key), each) for key, each in ids]
        return [RecalledEntry(entry, each.score, each.evidence) for entry, each in shown if entry is not None]

    def _alike(self, key: str, count: int, exclude: Collection[str]) -> list[str]:
        if count <= 1:
            return [key]
        index = self._judged if key in self._judged else self._unjudged
        return [other for other in index.alike(key) if other not in exclude][:count]

    def close(self) -> None:
        with self._lock:
            self._version, self._ready = 0, False
            self._judged, self._unjudged = EntryIndex(), EntryIndex()
        self.store.close()

    def _read(self) -> None:
        try:
            with self._lock:
                self._follow()
        except Exception as error:  # noqa: BLE001 - told to who asks
            self._failure = error

    def _follow(self) -> None:
        """Takes over what changed. The caller holds the lock."""
        changes = self.store.changes(self._version)
        if changes.whole:
            self._judged, self._unjudged = EntryIndex(), EntryIndex()
        for key in changes.gone:
            self._judged.remove(key)
            self._unjudged.remove(key)
        for entry, _ in changes.entries:
            into, other = self._indexes(entry)
            other.remove(entry.id)
            into.add(entry.id, entry.query, [call.tool for call in entry.calls], kind="good" if entry.good else "")
        self._version, self._ready = changes.version, True

    def _indexes(self, entry: Entry) -> tuple[EntryIndex, EntryIndex]:
        return (self._unjudged, self._judged) if entry.score is None else (self._judged, self._unjudged)


@dataclass(frozen=True)
class EntryRuns:
    """The runs that the entries of a store are about."""

    store: EntryStore

    def changes(self, since: int) -> PastRunChanges:
        """As `core.past_runs.PastRuns` has it."""
        new = self.store.changes(since)
        runs = [
            PastRun(
                entry.id,
                entry.query,
                tuple(call.tool for call in entry.calls if call.status == "ok"),
                entry.failed,
                entry.time,
            )
            for entry, _ in new.entries
        ]
        return PastRunChanges(new.version, new.whole, runs, new.gone)
