"""Time that model calls take, and processor time that the memory adds to a run.

Both are summed in RAM and written as counters of the evidence graph, many at once: one write for each model call would
cost more than the counted work.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.copies import SharedByCopies
from langgraph_toolmem.graph.events import Count, Record

CALL_SECONDS: Final = "model_seconds_calls"
"""Seconds of the model calls whose answer asked for tools; `TIMED_CALLS` is their number."""
TIMED_CALLS: Final = "timed_calls"
WORD_SECONDS: Final = "model_seconds_words"
"""Seconds of the model calls that were answered with text; `TIMED_WORDS` is their number."""
TIMED_WORDS: Final = "timed_words"
CPU_SECONDS: Final = "cpu_seconds"
"""Processor seconds of the memory while a run waits for it."""
CPU_BEHIND: Final = "cpu_seconds_behind"
"""Processor seconds of the memory's work in the background."""
MOST_PENDING: Final = 32
"""Additions after which the sums are written."""


class Costs(SharedByCopies):
    """Sums of seconds. Safe to use from several threads.

    Args:
        write: stores a record of counts.
        clock: seconds of a monotonic clock.
        cpu: seconds of the processor in this thread.
    """

    def __init__(
        self,
        write: Callable[[Record], object],
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._write, self.clock, self._cpu = write, clock, cpu
        self._lock = threads.lock()
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._pending = 0

    @contextmanager
    def working(self, counter: str = CPU_SECONDS) -> Iterator[None]:
        """Count the processor time of the block, in this thread."""
        begun = self._cpu()
        try:
            yield
        finally:
            self._add({counter: self._cpu() - begun})

    def waited(self, seconds: float, *, calls: bool) -> None:
        """Count one model call of so many seconds; `calls` says that its answer asks for tools.

        The memory saves only model calls that ask for tools, and an answer with text takes longer.
        """
        if calls:
            self._add({CALL_SECONDS: seconds, TIMED_CALLS: 1})
        else:
            self._add({WORD_SECONDS: seconds, TIMED_WORDS: 1})

    def flush(self) -> None:
        """Write the sums."""
        # Taken out before they are written: seconds that are counted meanwhile belong to the next flush.
        with self._lock:
            sums, self._sums, self._pending = self._sums, defaultdict(float), 0
        if sums:
            self._write([Count(name, round(amount, 6)) for name, amount in sums.items()])

    def forked(self) -> None:
        """Drop the sums in a forked child: the parent writes them."""
        self._sums, self._pending = defaultdict(float), 0

    def _add(self, amounts: dict[str, float]) -> None:
        with self._lock:
            for name, amount in amounts.items():
                self._sums[name] += amount
            self._pending += 1
            due = self._pending >= MOST_PENDING
        # Without the lock, because `flush` takes it.
        if due:
            self.flush()
