"""When the worker works: in a thread of its own, or when langmem's ``ReflectionExecutor`` says so.

An executor only keeps time. What there is to do is in the `JobQueue`, on disk; losing a wake-up loses no job.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from langgraph_toolmem.base import exits, locks
from langgraph_toolmem.base.errors import MissingExtraError
from langgraph_toolmem.base.failures import log_failure

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


class LangmemExecutor:
    """langmem's local ``ReflectionExecutor`` as the clock: several wake-ups of one key within `quiet` seconds are one.

    It looks once a second. Its thread is no daemon: a process that does not call `close` does not end.

    Args:
        quiet: seconds without another wake-up of the same key before the work is done.

    Raises:
        MissingExtraError: langmem is not installed.
    """

    def __init__(self, *, quiet: float = 0.0) -> None:
        try:
            self._make: Callable[..., Any] = importlib.import_module("langmem").ReflectionExecutor
        except ImportError as error:
            raise MissingExtraError("LangmemExecutor", "langmem") from error
        self._quiet = quiet
        self._executor: Any = None
        self._latest: dict[str, int] = {}  # number of the latest wake-up, by key
        self._numbers = itertools.count(1)
        self._lock = locks.lock()
        self._closed = False

    def start(self, work: Work) -> None:
        """See `Executor`."""
        from langgraph.store.memory import InMemoryStore

        with self._lock:
            if self._executor is not None or self._closed:
                return
            self._executor = self._make(_Reflector(self, _Careful(work)), store=InMemoryStore())
        self.wake()

    def wake(self, key: str = "", after: float = 0.0) -> None:
        """See `Executor`."""
        with self._lock:
            if self._executor is None or self._closed:
                return
            number = next(self._numbers)
            self._latest[key] = number
            # Without a thread id: langmem would cancel what it replaces, and its thread ends with an error when it
            # comes upon something cancelled while it shuts down.
            payload = _Payload(key=key, number=number)
            self._executor.submit(
                payload, config={"configurable": {}}, after_seconds=after or self._quiet, thread_id=None
            )

    def close(self, timeout: float | None = None) -> None:
        """See `Executor`."""
        with self._lock:
            self._closed = True
            executor, self._executor = self._executor, None
        if executor is not None:
            # Its own shutdown waits without end.
            exits.start("toolmem-langmem-shutdown", executor.shutdown).join(timeout)

    def is_latest(self, key: str, number: int) -> bool:
        """Whether no later wake-up of the key takes this one's place."""
        with self._lock:
            if self._closed or self._latest.get(key) != number:
                return False
            del self._latest[key]
            return True


class _Payload(dict[str, Any]):
    """langmem's queue compares payloads where two tasks are due at the same instant."""

    def __lt__(self, other: object) -> bool:
        return isinstance(other, _Payload) and self["number"] < other["number"]


class _Reflector:
    """What langmem calls."""

    def __init__(self, executor: LangmemExecutor, work: _Careful) -> None:
        self._executor, self._work = executor, work

    def namespace(self, config: Any = None) -> tuple[str, ...]:
        """Where langmem's `search` looks; nothing is stored there."""
        del config
        return ("toolmem",)

    def invoke(self, payload: Any, config: Any = None) -> None:
        """Does the work, unless another wake-up stands for this one."""
        del config
        if self._executor.is_latest(payload["key"], payload["number"]):
            after = self._work()
            if after is not None:
                self._executor.wake("later", max(after, 0.05))


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
