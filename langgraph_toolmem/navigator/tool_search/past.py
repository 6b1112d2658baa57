"""Past runs as precedents: what a search for tools learns from the entries of a user, or of all users together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langgraph_toolmem.navigator.tool_search.precedents import Precedents

if TYPE_CHECKING:
    from langgraph_toolmem.entries.store import EntryStore

MOST: Final = 2_000
"""Runs that are looked at, the latest: each new one is foretold from the others, and that takes longer with more."""
MAX_KEPT: Final = 64
"""Namespaces whose precedents are in RAM; those that were asked for last."""

Namespace = tuple[str, ...]


class PastRuns:
    """The precedents of each namespace, up to date with its entries. Not safe for threads: the owner holds a lock."""

    def __init__(self) -> None:
        self._kept: dict[Namespace, tuple[EntryStore, int, Precedents]] = {}

    def of(self, namespace: Namespace, store: EntryStore) -> Precedents:
        """The precedents of a namespace."""
        followed, version, precedents = self._kept.pop(namespace, (store, 0, Precedents()))
        if followed is not store:  # one that was closed since: its versions say nothing
            version, precedents = 0, Precedents()
        new = store.changes(version)
        if new.whole:
            precedents = Precedents()
        for key in new.gone:
            precedents.remove(key)
        entries = sorted((entry for entry, _ in new.entries), key=lambda entry: (entry.time, entry.id))
        for entry in entries[-MOST:]:
            called = [call.tool for call in entry.calls if call.status == "ok"]
            precedents.add([] if entry.failed else called, entry.query, key=entry.id)
        precedents.keep_latest(MOST)
        self._kept[namespace] = store, new.version, precedents
        if len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return precedents

    def leave(self, namespace: Namespace) -> None:
        """What is in RAM of a namespace goes."""
        self._kept.pop(namespace, None)
