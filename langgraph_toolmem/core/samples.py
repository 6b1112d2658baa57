"""What is learned from a sample of a user's rows, such as how rare words are; made again when enough has changed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from langgraph_toolmem.core.rows import Rows
from langgraph_toolmem.core.users import User

T = TypeVar("T")
L = TypeVar("L")

SAMPLE: Final = 512
"""Items that are looked at."""
GROWTH: Final = 0.1
"""Share of items that changed after which it is learned again …"""
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
    """Something learned for each namespace. Safe to use from several threads.

    Args:
        rows: of the items.
        learn: learns it from a sample.
    """

    def __init__(self, rows: Rows[T], learn: Callable[[Sequence[T]], L]) -> None:
        self._rows, self._learn = rows, learn
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, ...], _Learned[L]] = OrderedDict()

    def of(self, user: User) -> L:
        """What was learned for a user. Raises StorageError if Chroma fails."""
        version = self._rows.version(user)
        with self._lock:
            known = self._known.get(user.namespace)
            if known is not None:
                self._known.move_to_end(user.namespace)
                known.asked += 1
                if known.asked < ASKED and version - known.version <= GROWTH * known.items:
                    return known.value
        items = self._rows.sample(user, SAMPLE)
        made = _Learned(self._learn(items), self._rows.size(user) if len(items) >= SAMPLE else len(items), version)
        with self._lock:
            self._known[user.namespace] = made
            if len(self._known) > MAX_LEARNED:
                self._known.popitem(last=False)
        return made.value

    def forget(self, user: User) -> None:
        """What was learned for a user goes."""
        with self._lock:
            self._known.pop(user.namespace, None)
