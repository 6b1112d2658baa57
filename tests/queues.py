"""Jobs of a queue, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph_toolmem.core.jobs import Job, JobQueue


class Clock:
    """Seconds, as the test has them."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def put(queue: JobQueue, key: str, payload: Mapping[str, Any] | None = None, kind: str = "k", **how: Any) -> bool:
    """Put one job; return True if it is new, else False."""
    return queue.put([Job(key, kind, payload or {}, **how)]) == 1


def take(queue: JobQueue, *kinds: str, **how: Any) -> list[Job]:
    """Take jobs of these kinds, or of that of `put`."""
    return queue.take(kinds or ["k"], **how)


def pending(queue: JobQueue) -> int:
    """Return how many jobs wait or are leased."""
    return queue.report()["pending"]


def dead(queue: JobQueue) -> list[tuple[str, int, str]]:
    """Return id, failures and last error of the jobs that were given up."""
    return queue.ask("SELECT id, attempts, error FROM jobs WHERE dead = 1 ORDER BY seq")  # type: ignore[return-value]
