"""Calls to a Chroma server: each in a thread, with a deadline, a circuit breaker, and a bound on a step's waiting.

A stopped server accepts a call and never answers. Such a call is abandoned after its deadline. While it hangs, further
steps do not wait, and further writes are not begun after a hanging write. When it returns, calls work as before.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.threads import StepBudget, this_step

T = TypeVar("T")

DEADLINE: Final = 2.0
"""Seconds that a call may take."""
PATIENCE: Final = 0.1
"""Seconds that a step waits for all of its calls together."""


class NoAnswerError(StorageError):
    """A remote store did not answer in time, or was not called because it did not answer other calls."""


@dataclass(frozen=True, slots=True)
class _LateCall:
    """An abandoned call: when it began, and whether it writes."""

    begun: float
    writes: bool


class Remote:
    """A server, named `where` in messages. Safe to use from several threads."""

    def __init__(self, where: str, *, deadline: float = DEADLINE, patience: float = PATIENCE) -> None:
        self.where = where
        self.deadline = deadline
        self.patience = patience
        self._lock = threads.lock()
        self._late: dict[object, _LateCall] = {}
        self._failed = 0
        self._skipped = 0
        self._last = float("-inf")  # when a caller continued without an answer
        threads.at_fork(self)

    def forked(self) -> None:
        self._late = {}

    def call(self, do: Callable[[], T], *, writes: bool = False, rows: int = 0) -> T:
        """Return the result of `do`, or raise its error; NoAnswerError after the deadline, while the call continues.

        `rows`: number of its rows, for the deadline.
        """
        # A write of a thousand rows takes longer than a search without hanging.
        rows_per_deadline = 100
        most = self.deadline * max(1.0, rows / rows_per_deadline)
        budget = this_step()
        if budget is not None:
            most = min(most, self.patience - budget.waited)
        begun = time.monotonic()
        self._refuse(in_step=budget is not None, writes=writes, spent=most <= 0)
        # In a thread, which can be abandoned: a stopped server accepts the call and never answers.
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        threads.start("toolmem-remote", partial(self._run, future, do))
        concurrent.futures.wait([future], most)
        if budget is not None:
            budget.waited += time.monotonic() - begun
        with self._lock:
            if not future.done():
                self._late[future] = _LateCall(begun, writes)
                self._note(in_step=budget is not None)
                raise NoAnswerError(f"{self.where} did not answer within {most:.2g} s. Check that the server runs.")
        return future.result()

    def wait_for(self, done: Callable[[], bool], changed: threading.Condition) -> bool:
        """Wait in a step until `done`, checked under `changed`, for the rest of its patience."""
        budget = this_step() or StepBudget()
        begun = time.monotonic()
        with changed:
            is_done = done()
            # In short waits, because a call may start to hang meanwhile.
            while not is_done and self.well:
                left = begun + self.patience - budget.waited - time.monotonic()
                if left <= 0:
                    break
                changed.wait(min(left, 0.02))
                is_done = done()
        budget.waited += time.monotonic() - begun
        if not is_done:
            with self._lock:
                self._note(in_step=True)
        return is_done

    @property
    def well(self) -> bool:
        return not self._late

    def problems(self) -> list[str]:
        """Return a sentence on a server that does not answer, or did not within the last ten minutes."""
        recent_seconds = 600.0
        with self._lock:
            now = time.monotonic()
            age = 0.0
            for call in self._late.values():
                age = max(age, now - call.begun)
            if age > self.deadline:
                problem = f"has not answered for {age:.0f} s"
            elif now - self._last <= recent_seconds:
                problem = "did not always answer in time"
            else:
                return []
            return [
                f"{self.where} {problem}: {self._failed} calls were given up, {self._skipped} times a step went on "
                "without an answer"
            ]

    def _refuse(self, *, in_step: bool, writes: bool, spent: bool) -> None:
        most_hanging = 16  # each of them keeps a thread
        with self._lock:
            if in_step:
                # A step that waited for one hanging call does not wait for the next.
                refused = spent or not self.well
            else:
                refused = len(self._late) >= most_hanging
            # A write that hangs may still be done: a later one could be undone by it.
            if writes and any(call.writes for call in self._late.values()):
                refused = True
            if not refused:
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
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        return partial(self._call, name, value)

    def _call(self, name: str, do: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        rows = len(options.get("ids") or ()) or options.get("limit") or 0
        # Named here, because a client's methods do not say which of them write.
        writes = name in ("delete", "delete_collection", "get_or_create_collection", "modify", "update", "upsert")
        answer = self._remote.call(partial(do, *args, **options), writes=writes, rows=rows)
        if hasattr(answer, "upsert"):  # a collection
            return RemoteClient(answer, self._remote)
        return answer


def is_remote(client: Any) -> bool:
    try:
        return "fastapi" in str(client.get_settings().chroma_api_impl)
    except Exception:  # noqa: BLE001 - a client of another make
        return False
