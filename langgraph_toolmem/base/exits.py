"""The end of the interpreter: background threads stop before its teardown.

CPython ends a daemon thread when it asks for the interpreter's lock after the teardown began. A thread that returns
from Rust code, as Chroma's does, dies of SIGSEGV there. So `start` makes the package's threads, `native` marks code
that must not be cut off, and one ``atexit`` function stops and awaits both: after a normal end, an uncaught exception
and ``sys.exit``. A signal without a handler and ``os._exit`` end a process without a teardown. A forked child ignores
its parent's threads.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol
from weakref import WeakSet

from langgraph_toolmem.base.errors import StorageError, log_failure

logger = logging.getLogger("langgraph_toolmem.exits")

STOP_SECONDS: Final = 2.0  # for all threads together
NATIVE_SECONDS: Final = 10.0  # for threads inside native code: cutting one off kills the process
LOOK_SECONDS: Final = 0.005


class Stoppable(Protocol):
    """An owner of background work."""

    def stop(self, end: float) -> None:
        """Stop background work; may wait until `end` (of ``time.monotonic``)."""


_owners: Final[WeakSet[Stoppable]] = WeakSet()
_threads: Final[WeakSet[threading.Thread]] = WeakSet()
_inside: Final[Counter[threading.Thread]] = Counter()  # threads in native code, and how deep
_over = threading.Event()


def tell(who: Stoppable) -> None:
    """Call `who.stop` at exit while it is referenced elsewhere."""
    _owners.add(who)
    atexit.unregister(_stop)  # again each time: multiprocessing clears all functions in a child
    atexit.register(_stop)


def start(name: str, do: Callable[[], object]) -> threading.Thread:
    """Start a daemon thread that the exit awaits. Raises RuntimeError if none can be started."""
    thread = threading.Thread(target=do, name=name, daemon=True)
    thread.start()
    _threads.add(thread)
    return thread


@contextmanager
def native() -> Iterator[None]:
    """Mark code that returns from a native library: the exit awaits it.

    Raises:
        StorageError: the interpreter ends, and this is not its main thread.
    """
    me = threading.current_thread()
    _inside[me] += 1  # before the check: the exit sees this thread, or this thread sees the exit
    try:
        if _over.is_set() and me is not threading.main_thread():
            raise StorageError("The interpreter ends; nothing is begun any more.")
        yield
    finally:
        _inside[me] -= 1
        if not _inside[me]:
            del _inside[me]


def _stop() -> None:
    end = time.monotonic() + STOP_SECONDS
    for owner in list(_owners):
        try:
            owner.stop(end)
        except Exception as error:  # noqa: BLE001 - the others are stopped too
            log_failure(logger, logging.WARNING, "background work could not be stopped", error=error)
    for thread in list(_threads):
        thread.join(max(0.0, end - time.monotonic()))
    _over.set()
    end += NATIVE_SECONDS - STOP_SECONDS
    while any(thread.is_alive() for thread in list(_inside)) and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)


def _in_the_child() -> None:
    for each in (_owners, _threads, _inside):
        each.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
