"""What other workers of a shared store wrote, and the newest snapshot where that is not enough."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.log_store import LogStore, Overview, Worker, read_json

GAP_SECONDS: Final = 60.0
"""A record that should be there and is not holds up its worker's others so long."""


class Restart(NamedTuple):
    """Among what was fetched: what was known goes, this takes its place.

    Attributes:
        state: of the snapshot.
        records: this worker's that are not in it; those it sent lately, or not at all, follow (`SharedLog.unsent`).
        end: number of the first that follows.
        number: of the restart.
    """

    state: dict[str, Any]
    records: list[Any]
    end: int
    number: int


class Reader:
    """One cursor a worker. For one thread; what it fetched may be taken by another.

    Args:
        log: the store.
        me: name of the worker that reads.
        keep: has own records kept until a `Restart` is taken: the number of the first, and its own.
        say: tells what is wrong, once.

    Attributes:
        fetched: records, and `Restart`.
    """

    def __init__(self, log: LogStore, me: str, keep: Callable[[], tuple[int, int]], say: Callable[[str], None]) -> None:
        self._log, self._me, self._keep, self._say = log, me, keep, say
        self.fetched: deque[Any] = deque()
        self._cursors: dict[str, int] = {}
        self._gaps: dict[str, float] = {}
        self._held = ""  # the snapshot whose cursors were compared
        self._opened = False

    def read(self, there: Overview) -> None:
        """Fetches what others wrote; where the cursors are behind what is left of the logs, everything anew."""
        if not self._opened and there.snapshots:
            self._restart(there)
        if self._misses_gone(there) or self._fetch(there, self.fetched.extend, skip=self._me):
            self._restart(there := self._log.look())
            if self._fetch(there, self.fetched.extend, skip=self._me):
                raise StorageError("records of the shared store are missing that no snapshot holds")
        self._opened = True

    def _misses_gone(self, there: Overview) -> bool:
        """Whether a worker was taken off the list of which not all was read; looked for once in each snapshot."""
        newest = there.snapshots[0] if there.snapshots else None
        if newest is None or newest.id == self._held:
            return False
        held = self._log.cursors(newest)
        if held is None:
            return False  # it went this moment; there is a newer one
        self._held = newest.id
        known = {*there.workers, self._me}
        return any(number > self._cursors.get(name, 0) for name, number in held.items() if name not in known)

    def _restart(self, there: Overview) -> None:
        found = self._log.newest(there)
        if found is None:
            raise StorageError("no snapshot of the shared store can be read")
        self.fetched.clear()  # and with it a restart that nobody took
        end, number = self._keep()
        self._cursors = dict(found[2])
        own: list[Any] = []
        if self._fetch(Overview({self._me: Worker(end, 0.0, False)}, there.snapshots), own.extend):
            raise StorageError("own records are missing in the shared store")
        self.fetched.append(Restart(found[1], own, end, number))

    def _fetch(self, there: Overview, take: Callable[[Iterator[Any]], None], skip: str = "") -> bool:
        """Whether something is no longer there."""
        now, held = time.monotonic(), there.snapshots[0].cursors if there.snapshots else {}
        ranges = [
            (worker, self._cursors.get(worker, 0), known.records)
            for worker, known in sorted(there.workers.items())
            if worker != skip and known.records > self._cursors.get(worker, 0)
        ]
        stopped = set[str]()
        for page in self._log.items(ranges):
            for worker, number, text in page:
                if worker in stopped:
                    continue
                if text is None and number < max(held.get(worker, 0), there.begins.get(worker, 0)):
                    return True
                if text is None and now - self._gaps.setdefault(worker, now) < GAP_SECONDS:
                    stopped.add(worker)
                    continue
                self._cursors[worker] = number + 1
                if text is None:
                    self._say(f"record {number} of worker {worker} is missing and is skipped")
                    continue
                self._gaps.pop(worker, None)
                take(read_json(text, self._say, f"record {number} of worker {worker}"))
        return False
