"""Locks that a forked process gets free, whoever held them in its parent; and who else is told of a fork.

A process that is forked off has one thread. A lock that another thread held at that moment would never be released
there, so the locks of a memory are made here.
"""

from __future__ import annotations

import os
import threading
from operator import methodcaller
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet


class Forked(Protocol):
    """Who is told in the child."""

    def forked(self) -> None:
        """This process was forked off; no other thread runs yet."""


T = TypeVar("T")
every: Final[WeakSet[Any]] = WeakSet()
"""All locks that were made here and are in use."""
_renew: Final = methodcaller("_at_fork_reinit")  # as the standard library does with its own
_told: Final[WeakSet[Forked]] = WeakSet()


def lock() -> threading.Lock:
    """A lock."""
    return _renewed(threading.Lock())


def rlock() -> threading.RLock:
    """A lock that its holder may take again."""
    return _renewed(threading.RLock())


def condition() -> threading.Condition:
    """A condition with a lock of its own."""
    return _renewed(threading.Condition())


def tell(who: Forked) -> None:
    """Has `who.forked` called in a process that is forked off, once all locks are free."""
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
