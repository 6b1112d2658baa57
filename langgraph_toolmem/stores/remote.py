"""Calls to a Chroma server: each in a thread, with a deadline, a circuit breaker, and little of a step's time.

A server that is stopped accepts a call and never answers. Such a call is left alone after its deadline. While it hangs
no further step waits, and behind a write that hangs no other is begun. The moment it returns, all is as before.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.threads import StepBudget, this_step

T = TypeVar("T")

DEADLINE: Final = 2.0
PATIENCE: Final = 0.1
"""Seconds that a call may take, and that a step waits for all of its calls together."""
ROWS: Final = 100
"""A call with more rows than this has a multiple of the deadline."""
MOST_HANGING: Final = 16
LOOK_SECONDS: Final = 0.02
RECENT: Final = 600.0
"""Seconds for which a report tells of steps that went on without an answer."""
WRITES: Final = frozenset({"delete", "delete_collection", "get_or_create_collection", "modify", "update", "upsert"})


class NoAnswerError(StorageError):
    """A remote store did not answer in time, or was not asked as it did not answer others."""


class Remote:
    """A server, named `where` in messages. Safe to use from several threads."""

    def __init__(self, where: str, *, deadline: float = DEADLINE, patience: float = PATIENCE) -> None:
        self.where, self.deadline, self.patience = where, deadline, patience
        self._lock = threads.lock()
        self._late: dict[object, tuple[float, bool]] = {}  # calls that were left alone: when begun, whether writes
        self._failed = self._skipped = 0
        self._last = float("-inf")  # when somebody went on without an answer
        threads.at_fork(self)

    def forked(self) -> None:
        self._late = {}

    def call(self, do: Callable[[], T], *, writes: bool = False, rows: int = 0) -> T:
        """Return the result of `do`, or raise its error; NoAnswerError if there is none in time, and it goes on.

        `rows`: how many it is about, for the deadline.
        """
        most = self.deadline * max(1.0, rows / ROWS)
        waits = this_step()
        if waits is not None:
            most = min(most, self.patience - waits.waited)
        begun = time.monotonic()
        self._refuse(in_step=waits is not None, writes=writes, spent=most <= 0)
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        threads.start("toolmem-remote", partial(self._run, future, do))
        concurrent.futures.wait([future], most)
        if waits is not None:
            waits.waited += time.monotonic() - begun
        with self._lock:
            if not future.done():
                self._late[future] = begun, writes
                self._note(in_step=waits is not None)
                raise NoAnswerError(f"{self.where} did not answer within {most:.2g} s. Check that the server runs.")
        return future.result()

    def wait_for(self, done: Callable[[], bool], changed: threading.Condition) -> bool:
        """Wait in a step until `done`, asked under `changed`, with what is left of its patience."""
        waits, begun = this_step() or StepBudget(), time.monotonic()
        with changed:
            while not (found := done()) and self.well:
                if (left := begun + self.patience - waits.waited - time.monotonic()) <= 0:
                    break
                changed.wait(min(left, LOOK_SECONDS))
        waits.waited += time.monotonic() - begun
        if not found:
            with self._lock:
                self._note(in_step=True)
        return found

    @property
    def well(self) -> bool:
        return not self._late

    def problem(self) -> str | None:
        with self._lock:
            now = time.monotonic()
            age = now - min((begun for begun, _ in self._late.values()), default=now)
            age = age if age > self.deadline else 0.0
            if not age and now - self._last > RECENT:
                return None
            ill = f"has not answered for {age:.0f} s" if age else "did not always answer in time"
            return (
                f"{self.where} {ill}: {self._failed} calls were given up, {self._skipped} times a step went on without "
                "an answer"
            )

    def _refuse(self, *, in_step: bool, writes: bool, spent: bool) -> None:
        with self._lock:
            hangs = spent or not self.well if in_step else len(self._late) >= MOST_HANGING
            if not hangs and not (writes and any(changes for _, changes in self._late.values())):
                return
            self._note(in_step=in_step)
        raise NoAnswerError(f"{self.where} did not answer others, and was not asked. Check that the server runs.")

    def _note(self, *, in_step: bool) -> None:
        self._last = time.monotonic()
        if in_step:
            self._skipped += 1
        else:
            self._failed += 1

    def _run(self, future: concurrent.futures.Future[Any], do: Callable[[], Any]) -> None:
        try:
            future.set_result(do())
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            future.set_exception(error)
        with self._lock:
            self._late.pop(future, None)


class RemoteClient:
    """A Chroma client, or a collection of one, each call of which goes through a `Remote`."""

    def __init__(self, inner: Any, remote: Remote) -> None:
        self._inner, self._remote = inner, remote

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, name: str, do: Callable[..., Any], /, *args: Any, **how: Any) -> Any:
        rows = len(how.get("ids") or ()) or how.get("limit") or 0
        answer = self._remote.call(partial(do, *args, **how), writes=name in WRITES, rows=rows)
        return RemoteClient(answer, self._remote) if hasattr(answer, "upsert") else answer


def is_remote(client: Any) -> bool:
    try:
        return "fastapi" in str(client.get_settings().chroma_api_impl)
    except Exception:  # noqa: BLE001 - a client of another make
        return False
