"""When the worker works: in a thread of its own, or when another executor says so.

An executor only keeps time. What there is to do is in the `JobQueue`, on disk; losing a wake-up loses no job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from langgraph_toolmem.base import exits, locks
from langgraph_toolmem.base.errors import log_failure

logger = logging.getLogger("langgraph_toolmem.core.jobs")

Work = Callable[[], float | None]
"""Does all that is due. Returns the seconds until something is due again, None if nothing waits."""

POLL_SECONDS: Final = 30.0
"""How often what other processes put, or died over, is looked for."""


class Executor(Protocol):
    """Calls the work soon after each `wake`."""

    def start(self, work: Work) -> None:
        """From now on there may be something to do. Twice is harmless."""

    def wake(self, key: str = "", after: float = 0.0) -> None:
        """There is something to do in so many seconds. A later call with the same key may replace this one."""

    def close(self, timeout: float | None = None) -> None:
        """Ends after the work that is being done, or when `timeout` seconds are over."""


class ThreadExecutor:
    """A daemon thread, begun at the first `start`; it sleeps until something is due.

    It ends when nothing waited for so long, and begins again when something comes: a memory that nobody closed keeps
    no thread.

    Args:
        poll: seconds after which it looks by itself.
    """

    def __init__(self, *, poll: float = POLL_SECONDS) -> None:
        self._poll = poll
        self._changed = locks.condition()
        self._thread: threading.Thread | None = None
        self._work: Work | None = None
        self._due = 0.0  # by time.monotonic
        self._closed = False

    def start(self, work: Work) -> None:
        """See `Executor`."""
        with self._changed:
            self._work = work
            self._begin()

    def wake(self, key: str = "", after: float = 0.0) -> None:
        """See `Executor`. The earliest counts."""
        del key
        with self._changed:
            self._due = min(self._due, time.monotonic() + after)
            self._begin()
            self._changed.notify_all()

    def close(self, timeout: float | None = None) -> None:
        """See `Executor`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _begin(self) -> None:
        """The caller holds the lock."""
        alive = self._thread is not None and self._thread.is_alive()  # a forked child has no thread
        if self._work is not None and not self._closed and not alive:
            self._thread = exits.start("toolmem-reflection", partial(self._run, _Careful(self._work)))

    def _run(self, work: _Careful) -> None:
        while True:
            begun = time.monotonic()
            with self._changed:
                while not self._closed and (left := self._due - time.monotonic()) > 0:
                    self._changed.wait(left)
                if self._closed:
                    return
                self._due = time.monotonic() + self._poll
            slept = time.monotonic() - begun >= self._poll
            after = work()
            if after is not None:
                self.wake(after=after)
            elif slept:
                with self._changed:
                    if self._due > time.monotonic():  # nobody woke it meanwhile
                        self._thread = self._work = None
                        return


class _Careful:
    """Work that raises nothing; the first failure is logged."""

    def __init__(self, work: Work) -> None:
        self._work, self._failed = work, False

    def __call__(self) -> float | None:
        try:
            after = self._work()
        except Exception as error:  # noqa: BLE001 - the thread goes on whatever happens
            level = logging.DEBUG if self._failed else logging.ERROR
            log_failure(logger, level, "background writing failed, and is tried again", error=error)
            self._failed = True
            return POLL_SECONDS
        self._failed = False
        return after
