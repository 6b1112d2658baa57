"""All caches of texts in RAM, bounded in bytes and emptied when a user is forgotten; and the bound of other tables.

A cache of a pure function (`cached`) does not know the users of its texts, so `forget_texts` empties it. Objects with
texts of their own, such as a memory's parsed threads and its results per turn, are registered with the memory's
`KeptTexts`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
K = TypeVar("K")
V = TypeVar("V")


class Cached(Protocol[P, R]):
    """A function with a cache of its results, and with the functions that `functools.lru_cache` gives it."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    cache_clear: Callable[[], None]
    cache_info: Callable[[], Any]


@dataclass(eq=False)
class ByteBudget:
    """The bytes of one cache.

    Attributes:
        name: module and name of the function.
        most: bytes that its arguments and results may take.
        used: bytes that they take, counted when an entry is added.
        empty: empties the cache.
    """

    name: str
    most: int
    used: int
    empty: Callable[[], None]


budgets: Final[weakref.WeakSet[ByteBudget]] = weakref.WeakSet()
"""All caches of texts in this process."""


def cached(
    mebibytes: float = 1, *, weigh: Callable[..., int] | None = None
) -> Callable[[Callable[P, R]], Cached[P, R]]:
    """Keep the results of a function of hashable arguments, up to some bytes.

    A lookup runs in C, by `functools.lru_cache`. A full cache is emptied, because the age of its entries is unknown.
    Threads add to the count without a lock: an entry may be counted twice, or not at all.

    Args:
        mebibytes: size of the cache.
        weigh: returns the bytes of an entry, given the arguments. Defaults to a count of arguments and result.
    """

    def decorate(function: Callable[P, R]) -> Cached[P, R]:
        place_in_table = 150  # bytes of an entry besides its texts: its key, and its place in the table

        @wraps(function)
        def compute(*args: P.args, **kwargs: P.kwargs) -> R:
            # This runs for new arguments only: a kept result is not weighed again.
            result = function(*args, **kwargs)
            size = place_in_table
            if weigh is None:
                size += bytes_of((args, result))
            else:
                size += weigh(*args, **kwargs)
            budget.used += size
            if budget.used > budget.most:
                budget.empty()
                budget.used = size
            return result

        kept = cast("Cached[P, R]", lru_cache(maxsize=None)(compute))
        name = f"{function.__module__}.{function.__qualname__}"
        budget = ByteBudget(name, most=int(mebibytes * 2**20), used=0, empty=kept.cache_clear)
        budgets.add(budget)
        return kept

    return decorate


def bytes_of(value: Any) -> int:
    """Return the approximate bytes of a value with its contents: containers, and objects with fields."""
    total = 0
    # A list, not recursion: values of tools may be nested deeper than Python's stack.
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        total += sys.getsizeof(part)
        if isinstance(part, (str, int, float, bytes, type(None))):
            continue
        if isinstance(part, dict):
            waiting += part.keys()
            waiting += part.values()
        elif isinstance(part, (list, tuple, set, frozenset)):
            waiting += part
        else:
            waiting += _fields(part)
    return total


def _fields(part: Any) -> Iterable[Any]:
    values = []
    for name in getattr(type(part), "__slots__", ()):
        if hasattr(part, name):
            values.append(getattr(part, name))
    if hasattr(part, "__dict__"):
        values += vars(part).values()
    return values


def forget_texts() -> None:
    """Empty all caches of functions in this process, for all users."""
    for budget in list(budgets):
        budget.empty()
        budget.used = 0


class KeptTexts:
    """All texts that one memory keeps in RAM for a while: a list of functions that drop them.

    Attributes:
        purges: number of times that they were dropped. Texts that were read before a purge must not be kept after it.
    """

    def __init__(self) -> None:
        self.purges = 0
        self._holders: list[weakref.WeakMethod[Callable[[], object]]] = []

    def register(self, forget: Callable[[], object]) -> None:
        """Register a bound method, which is called when a user is forgotten, as long as its object exists."""
        # Weak references: a registration must not keep an object, and its texts, alive.
        self._holders = [holder for holder in self._holders if holder() is not None]
        self._holders.append(weakref.WeakMethod(forget))

    def forget(self) -> None:
        """Drop the texts of this memory, and those in the caches of functions."""
        # Counted first: a thread that reads a text meanwhile sees that it must not keep it.
        self.purges += 1
        for holder in self._holders:
            drop = holder()
            if drop is not None:
                drop()
        forget_texts()


def put_latest(kept: dict[K, V], key: K, value: V, most: int) -> None:
    """Put an entry after all others of a dict, and delete the oldest one of more than `most`."""
    kept.pop(key, None)
    kept[key] = value
    drop_oldest(kept, most)


def drop_oldest(kept: dict[Any, Any], most: int) -> None:
    """Delete the oldest entry of a dict with more than `most`: call it after each new entry."""
    if len(kept) > most:
        del kept[next(iter(kept))]
