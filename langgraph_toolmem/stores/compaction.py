"""The logs of a shared store made into a snapshot, so that opening costs what the graph costs and not what history did.

One worker at a time does it, as far as a lease tells without compare-and-set; two at once only do it twice. It works on
the store alone, never on a worker's own graph: the newest snapshot and the records after it make the next one. At every
moment it may be killed:

1. Records that all snapshots hold are deleted. (Noted in step 3; what was not is deleted again.)
2. The parts of the new snapshot are written. Without step 3 nobody reads them; the next compaction takes them away.
3. The snapshot is named, with its cursors. From here on who starts reads it.
4. Older snapshots but one go. Two stay, so that records stay for a while that a reader may still need.
5. Workers that ended, and of which no record is left, are taken off the list.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol

from langgraph_toolmem.stores.log_store import LEASE, LogStore, Overview, Snapshot, encode_label, read_json

COMPACT_FROM: Final = 4_000
"""Records that no snapshot holds, from which a new one is made; more where the snapshot is large."""
CHARACTERS: Final = 300
"""Of a snapshot, for each record that it waits for: writing it costs about as much as applying those."""
LEASE_SECONDS: Final = 120.0
STRAY_SECONDS: Final = 5 * LEASE_SECONDS
"""Parts of a snapshot that are so old and have no name are nobody's."""
AGREE_SECONDS: Final = 0.1
"""After this one looks whether another took the lease at the same moment."""
DEAD_SECONDS: Final = 7200.0
"""A worker that wrote nothing for so long is taken to be dead; should it come back, nothing is lost."""
FORGOTTEN_SECONDS: Final = 90 * 86400.0
MOST_CURSORS: Final = 20_000

_log = logging.getLogger("langgraph_toolmem.shared_log")


class Folded(Protocol):
    """What records are folded into."""

    def add(self, record: Any) -> None:
        """Applies a record."""

    def to_state(self) -> dict[str, Any] | None:
        """The state; None if nobody should go by it."""


Fold = Callable[["dict[str, Any] | None"], Folded]
"""Begins with the state of a snapshot, or with nothing."""


def is_due(there: Overview, now: float) -> bool:
    """Whether it is time to compact, and nobody does."""
    wanted = max(COMPACT_FROM, there.snapshots[0].size // CHARACTERS if there.snapshots else 0)
    return there.uncovered >= wanted and there.lease[1] <= now


def compact(log: LogStore, me: str, fold: Fold, now: Callable[[], float], *, only: bool = False) -> bool:
    """Makes a snapshot, if nobody else does.

    Args:
        log: the store.
        me: name of the worker.
        fold: what records are folded into.
        now: seconds since 1970.
        only: no other snapshot stays: they hold somebody who was forgotten.

    Returns:
        Whether there is a new one.
    """
    with lease(log, me, now) as until:
        if not until:
            return False
        there = log.look()
        base = log.newest(there)
        if base is None and there.snapshots:
            return False  # what is in them is in no log any more
        made = None if base is None else base[0]
        begins = {} if made is None else _trimmed(log, there, made)
        cursors = {} if base is None else dict(base[2])
        graph = fold(None if base is None else base[1])
        _read(log, there, cursors, graph)
        state = graph.to_state()
        if state is None:
            return False
        left = {
            name
            for name, each in there.workers.items()
            if (each.ended or now() - each.at > DEAD_SECONDS)
            and begins.get(name, 0) == cursors.get(name, 0) >= each.records
        }
        here = {name: cursors.get(name, 0) for name in there.workers if name not in left}
        new = Snapshot(f"{int(now())}|{me}", here, {name: begins.get(name, 0) for name in here})
        if now() > until - 5:
            return False  # it took too long: another may be at work
        log.write(new, _bounded(cursors, here), state)
        if log.read(new) is None:
            return False  # another, who had the lease, took it for a stray
        held = [each for each in there.snapshots if all(n <= cursors.get(name, 0) for name, n in each.cursors.items())]
        gone = [each for each in held if only or each is not made]
        log.drop(gone)
        log.drop_strays(partial(_is_stray, there, now() - (0 if only else STRAY_SECONDS), new.id))
        log.batch([log.put("workers", encode_label(name), None) for name in sorted(left)])
        old = [user for user, each in log.forgotten().items() if now() - each.get("at", 0) > FORGOTTEN_SECONDS]
        log.batch([log.put("forgotten", user, None) for user in old])
    return True


def _is_stray(there: Overview, before: float, new: str, name: str) -> bool:
    begun = name.partition("|")[0]
    return (
        name != new and name not in {each.id for each in there.snapshots} and begun.isdigit() and int(begun) <= before
    )


@contextmanager
def lease(log: LogStore, me: str, now: Callable[[], float]) -> Iterator[float]:
    """Until when this worker has the lease; 0: another has it."""
    by, until = log.look().lease
    if until > now() and by != me:
        yield 0.0
        return
    mine = now() + LEASE_SECONDS
    log.batch([log.put("snapshots", LEASE, {"by": me, "until": mine})])
    time.sleep(AGREE_SECONDS)
    if log.look().lease != (me, mine):
        yield 0.0
        return
    try:
        yield mine
    finally:
        log.batch([log.put("snapshots", LEASE, None)])


def _trimmed(log: LogStore, there: Overview, newest: Snapshot) -> dict[str, int]:
    """Deletes the records that all snapshots hold; from which number on there are records now."""
    begins = dict(newest.begins)
    if len(there.snapshots) > 1:
        ends = {name: min(each.cursors.get(name, 0) for each in there.snapshots) for name in newest.cursors}
        log.delete((name, begins.get(name, 0), end) for name, end in ends.items())
        begins = {name: max(end, begins.get(name, 0)) for name, end in ends.items()}
    return begins


def _read(log: LogStore, there: Overview, cursors: dict[str, int], graph: Folded) -> None:
    ranges = [(name, cursors.get(name, 0), each.records) for name, each in there.workers.items()]
    stopped = set[str]()
    for page in log.items(ranges):
        for worker, number, text in page:
            if text is None:
                stopped.add(worker)
            elif worker not in stopped:
                cursors[worker] = number + 1
                for record in read_json(text, _log.warning, f"record {number} of worker {worker}"):
                    graph.add(record)


def _bounded(cursors: Mapping[str, int], here: Mapping[str, int]) -> dict[str, int]:
    """Those of workers that are gone too: one may come back. The oldest leave."""
    gone = [name for name in cursors if name not in here]
    return {name: cursors[name] for name in gone[-MOST_CURSORS:]} | dict(here)
