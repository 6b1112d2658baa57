"""Threads: locks that a fork frees, work that the exit awaits, waits of one step, async variants; and copies.

A forked process has one thread. A lock that another thread held at the fork would never be released there, so all
locks of a memory are made here.

CPython ends a daemon thread when it asks for the interpreter's lock after the teardown began. A thread that returns
from Rust code, as Chroma's does, crashes with SIGSEGV there. So `start` makes the package's threads, `native` marks
code that must not be interrupted, and one ``atexit`` function stops and awaits both: after a normal end, an uncaught
exception and ``sys.exit``. A signal without a handler and ``os._exit`` end a process without a teardown.

Copies of an agent use the same memory (`SharedByCopies`): a memory owns a folder and background work, which cannot be
copied.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import update_wrapper
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar
from weakref import WeakSet

from langgraph_toolmem.base.errors import StorageError, log_failure

if TYPE_CHECKING:
    from typing_extensions import Self


logger = logging.getLogger("langgraph_toolmem.exits")

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

# --- locks and forks ---

locks_in_use: Final[WeakSet[Any]] = WeakSet()
"""All locks, reentrant locks and conditions that were made here."""
# Private, but the standard library frees its own locks in a forked process with the same method.
_renew: Final = methodcaller("_at_fork_reinit")
_at_fork: Final[WeakSet[Any]] = WeakSet()


def lock() -> threading.Lock:
    return _renewed(threading.Lock())


def rlock() -> threading.RLock:
    return _renewed(threading.RLock())


def condition() -> threading.Condition:
    return _renewed(threading.Condition())


def at_fork(owner: Any) -> None:
    """Call `owner.forked()` in a forked process, once all locks are free."""
    _at_fork.add(owner)


def _renewed(made: T) -> T:
    locks_in_use.add(made)
    return made


# --- the end of the interpreter ---

STOP_SECONDS: Final = 2.0  # for all threads together
NATIVE_SECONDS: Final = 10.0  # for threads inside native code: ending one kills the process
LOOK_SECONDS: Final = 0.005

_at_exit: Final[WeakSet[Any]] = WeakSet()
_threads: Final[WeakSet[threading.Thread]] = WeakSet()
_inside: Final[Counter[threading.Thread]] = Counter()  # threads in native code, and how deep
_over = threading.Event()


def at_exit(owner: Any) -> None:
    """Call `owner.stop(end)` at exit while it is referenced elsewhere; it may wait until `end` (``time.monotonic``)."""
    _at_exit.add(owner)
    # Registered again each time: multiprocessing clears all functions in a child.
    atexit.unregister(_stop)
    atexit.register(_stop)


def start(name: str, do: Callable[[], object]) -> threading.Thread:
    """Start a daemon thread that the exit awaits. Raises RuntimeError if it cannot be started."""
    thread = threading.Thread(target=do, name=name, daemon=True)
    thread.start()
    _threads.add(thread)
    return thread


@contextmanager
def native() -> Iterator[None]:
    """Mark code that returns from a native library: the exit awaits it. Raises StorageError if the exit has begun."""
    me = threading.current_thread()
    # Before the check: the exit sees this thread, or this thread sees the exit.
    _inside[me] += 1
    try:
        # The main thread runs the exit itself, and may use Chroma there: it is not interrupted.
        if _over.is_set() and me is not threading.main_thread():
            raise StorageError("The interpreter is shutting down: the memory begins no further work.")
        yield
    finally:
        _inside[me] -= 1
        if not _inside[me]:
            del _inside[me]


def _stop() -> None:
    end = time.monotonic() + STOP_SECONDS
    for owner in list(_at_exit):
        try:
            owner.stop(end)
        except Exception as error:  # noqa: BLE001 - the others are stopped too
            log_failure(logger, logging.WARNING, "background work could not be stopped", error=error)
    for thread in list(_threads):
        thread.join(max(0.0, end - time.monotonic()))
    # From here on threads cannot enter native code; those inside are awaited longer, because ending one is a SIGSEGV.
    _over.set()
    end += NATIVE_SECONDS - STOP_SECONDS
    while any(thread.is_alive() for thread in list(_inside)) and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)


def _in_the_child() -> None:
    # The parent's threads do not exist in the child, and the parent stops its own work.
    _at_exit.clear()
    _threads.clear()
    _inside.clear()
    # All locks before any owner: `forked` of one owner may take the lock of another.
    for held in list(locks_in_use):
        _renew(held)
    for owner in list(_at_fork):
        owner.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)


# --- one step's waits for remote stores ---


class StepBudget:
    """Seconds that a step has waited, one budget for all stores, and functions to call before the host continues."""

    def __init__(self) -> None:
        self.waited = 0.0
        self.last: dict[Callable[[], None], None] = {}


_STEP: ContextVar[StepBudget | None] = ContextVar("toolmem_step", default=None)
this_step = _STEP.get


@contextmanager
def step(waits: StepBudget) -> Iterator[None]:
    """Count waits in the block for a step."""
    token = _STEP.set(waits)
    try:
        yield
    finally:
        # Emptied first: a function that registers another one would change the dictionary while it is read.
        last, waits.last = waits.last, {}
        for do_at_end in last:
            do_at_end()
        _STEP.reset(token)


# --- async ---


def async_variant(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Return the async variant of a method (``afinish = async_variant(finish)``), run in a worker thread.

    The method is looked up by name at each call, so that an override is used.
    """
    name = method.__name__

    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await asyncio.to_thread(getattr(self, name), *args, **kwargs)
        return result

    update_wrapper(run, method, assigned=())  # the signature
    run.__name__ = f"a{name}"
    run.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.a{name}"
    run.__doc__ = f"Async variant of `{name}`: the same arguments, result and errors, in a worker thread."
    return run


class SharedByCopies:
    """A class whose objects are not copied: a shallow or deep copy of their container shares them."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
