"""Locks that are free in a forked process, and a hook for it.

A forked process has one thread. A lock that another thread held at the fork would never be released there, so all
locks of a memory are made here.
"""

from __future__ import annotations

import os
import threading
from operator import methodcaller
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet


class Forked(Protocol):
    """An object with a hook for forks."""

    def forked(self) -> None:
        """Adapt to this forked process, in which no other thread runs yet."""


T = TypeVar("T")
every: Final[WeakSet[Any]] = WeakSet()
"""All locks in use that were made here."""
_renew: Final = methodcaller("_at_fork_reinit")  # as the standard library does with its own
_told: Final[WeakSet[Forked]] = WeakSet()


def lock() -> threading.Lock:
    """Make a lock."""
    return _renewed(threading.Lock())


def rlock() -> threading.RLock:
    """Make a lock that its holder may take again."""
    return _renewed(threading.RLock())


def condition() -> threading.Condition:
    """Make a condition with a lock of its own."""
    return _renewed(threading.Condition())


def tell(who: Forked) -> None:
    """Call `who.forked` in a forked process, once all locks are free."""
    _told.add(who)


def _renewed(made: T) -> T:
    every.add(made)
    return made


def _in_the_child() -> None:
    for each in list(every):
        _renew(each)
    for who in list(_told):
        who.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
