"""What is learned from a sample of rows, such as how rare words are; made again when enough has changed.

Where each user has a namespace, most have few rows, and an application asks much the same of all: so it is learned of
them together, and of a user alone who has enough for a sample. What crosses from one to another are these numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from langgraph_toolmem.base import exits, locks
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.core.rows import Rows
from langgraph_toolmem.core.users import User
from langgraph_toolmem.stores.remote import NoAnswerError

T = TypeVar("T")
L = TypeVar("L")

SAMPLE: Final = 512
"""Items that are looked at; who has as many is learned of alone."""
GROWTH: Final = 0.1
"""Share of items, or of all changes, after which it is learned again …"""
ASKED: Final = 1_000
"""… and questions: another process may have written."""
MAX_LEARNED: Final = 256
"""Namespaces of which it is in RAM; those that were asked last."""


@dataclass
class _Learned(Generic[L]):
    value: L
    items: int
    version: int
    asked: int = 0


class Learned(Generic[T, L]):
    """Something learned of all namespaces, and of large ones. Safe to use from several threads.

    Args:
        rows: of the items.
        learn: learns it from a sample.
    """

    def __init__(self, rows: Rows[T], learn: Callable[[Sequence[T]], L]) -> None:
        self._rows, self._learn = rows, learn
        self._lock, self._aside = locks.lock(), locks.lock()
        self._forgettings = 0
        self._known: OrderedDict[tuple[str, ...] | None, _Learned[L]] = OrderedDict()

    def of(self, user: User) -> L:
        """What was learned for a user. Raises StorageError if Chroma fails, or is a server and a step cannot wait."""
        whose = user if not self._rows.apart or self._rows.size(user) >= SAMPLE else None
        key, version = whose and whose.namespace, self._rows.version(whose)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                known.asked += 1
                if known.asked < ASKED and version - known.version <= GROWTH * max(known.items, known.version):
                    return known.value
        if self._rows.waits_little:
            self._learn_aside(whose, version)
            if known is None:
                raise NoAnswerError("What words weigh is being learned from the store; this time there is no hint.")
            return known.value
        return self._learned(whose, version)

    def _learn_aside(self, whose: User | None, version: int) -> None:
        """A step does not wait for so many rows of a server: the next one has what was learned."""

        def learn() -> None:
            try:
                with suppress(StorageError):
                    self._learned(whose, version)
            finally:
                self._aside.release()

        if self._aside.acquire(blocking=False):
            exits.start("toolmem-learn", learn)

    def _learned(self, whose: User | None, version: int) -> L:
        forgettings, key = self._forgettings, whose and whose.namespace
        items = self._rows.sample(whose, SAMPLE)
        count = len(items) if whose is None or len(items) < SAMPLE else self._rows.size(whose)
        made = _Learned(self._learn(items), count, version)
        with self._lock:
            if forgettings == self._forgettings:
                self._known[key] = made
            if len(self._known) > MAX_LEARNED:
                self._known.popitem(last=False)
        return made.value

    def forget(self, user: User) -> None:
        """What was learned of a user goes, and so what was learned of all."""
        with self._lock:
            self._forgettings += 1
            for key in (user.namespace, None):
                self._known.pop(key, None)
