"""Snapshots of a shared store: written by one worker, read by those that lack older events.

A snapshot is announced before its parts are written, and the announcement renewed with them: a lease. Its writer then
reads again, and confirms it unless another snapshot conflicts with it: of two writers, at least one sees the other. Two
snapshots are kept, and the logs reach back to the older one.

Forgetting is a snapshot of a new *era*: it is the only snapshot, and all workers restart from it.
"""

from __future__ import annotations

import base64
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from langgraph.store.base import PutOp

from langgraph_toolmem.base.errors import GraphFileError, StorageError, describe_error
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.stores import snapshot
from langgraph_toolmem.stores.events import EventStore
from langgraph_toolmem.stores.shared_items import (
    SHARED_LIMITS,
    ForgettingNote,
    SharedItems,
    SharedSnapshot,
    StoreView,
    Values,
    item_key,
)
from langgraph_toolmem.stores.shared_worker import WorkerRows
from langgraph_toolmem.stores.vectors import batches


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """A snapshot and the state of its graph (`ToolGraph.to_state`)."""

    announced: SharedSnapshot
    state: Values


@dataclass(frozen=True, slots=True)
class _Captured:
    """This worker's graph at one moment, and the events that are in it.

    Attributes:
        end: own events in it.
        cursors: events of other workers in it.
        era: of the graph.
        parts: the graph as text, in parts.
    """

    end: int
    cursors: dict[str, int]
    era: str
    parts: list[str]


class SharedSnapshots:
    """Reads, writes and deletes snapshots for one worker.

    Attributes:
        process: name of this process in announcements.
    """

    def __init__(self, items: SharedItems, worker: WorkerRows, events: EventStore, *, now: Callable[[], float]) -> None:
        self._items, self._worker, self._events, self._now = items, worker, events, now
        self.process = uuid.uuid4().hex

    # -- reading --

    def read(self, view: StoreView) -> ReadSnapshot | None:
        """Return the newest readable snapshot, or None."""
        for announced in view.newest:
            behind = [worker for worker, begin in view.begins.items() if announced.cursors.get(worker, 0) < begin]
            if behind:
                continue  # events between it and the logs were deleted
            try:
                state = self._read(announced)
            except (KeyError, TypeError, ValueError, zlib.error, GraphFileError) as error:
                self._items.say(f"snapshot {announced.id} cannot be used ({describe_error(error)})", error)
            else:
                if state is not None:
                    return ReadSnapshot(announced, state)
        return None

    def _read(self, announced: SharedSnapshot) -> Values | None:
        """Return the state of the graph; None if a part was deleted meanwhile."""
        parts: list[str] = []
        for some in batches(range(announced.parts), 4):
            for item in self._items.batch([self._items.get("snapshot", item_key(part), announced.id) for part in some]):
                if item is None:
                    return None
                parts.append(item.value["p"])
        with snapshot.no_collections():
            state: Values = snapshot.loads(zlib.decompress(base64.b64decode("".join(parts))))
        return state

    # -- writing --

    def write(self, view: StoreView, gone: Forgotten | None = None, dead: Sequence[str] = ()) -> bool:
        """Store the graph; delete the events of the snapshot before it, and outdated items.

        With `gone` (not in the graph) or `dead` workers (removed from the list: a worker would not know that it lacks
        their events) a new era begins. Return False if another worker wrote a snapshot meanwhile, or this worker took
        too long.
        """
        captured = self._capture()
        # A snapshot of another era cannot be the base: its graph contains forgotten data.
        before = view.latest
        if before is not None and before.era != captured.era:
            before = None
        mine = self._plan(view, captured, before, alone=gone is not None or len(dead) > 0)
        ops = [self._items.announce(mine)]
        # The note is written with the announcement: a worker that restarts from the snapshot must know what to forget
        # in its rows.
        if gone is not None:
            note = ForgettingNote(mine.id, gone, mine.at, mine.cursors)
            ops.append(self._items.put("forgotten", mine.id, note.to_plain()))
        self._items.batch(ops)
        mine = self._write_parts(mine, captured.parts)
        view = self._items.view(self._worker.name, self._worker.sent)
        if self._is_over(mine) or not self._is_confirmed_by(mine, captured.era, view):
            self._items.batch([*self._items.without(mine), self._items.delete("forgotten", mine.id)])
            return False
        mine = replace(mine, done=True)
        self._items.batch([self._items.announce(mine)])
        if mine.era == mine.id:
            self._worker.begin_era(mine.id, captured.end)
        self._trim(mine, before, dead, view)
        return True

    def _capture(self) -> _Captured:
        with self._events.lock:
            if self._events.waits:
                raise StorageError("events wait to be stored first")
            with self._worker.numbered() as end:
                self._events.news = True
                self._events.refresh()
                cursors, era = self._worker.cursors or {}, self._worker.era
            data = snapshot.dumps(self._events.graph.to_state())
        # Events are deleted for it, so the snapshot must be readable. Not under the lock, because it takes a while.
        snapshot.check(data)
        text = base64.b64encode(zlib.compress(data, 1)).decode()
        length = SHARED_LIMITS.part_bytes
        parts = [text[start : start + length] for start in range(0, len(text), length)]
        return _Captured(end, cursors, era, parts)

    def _plan(
        self, view: StoreView, captured: _Captured, before: SharedSnapshot | None, *, alone: bool
    ) -> SharedSnapshot:
        """Return the announcement of a snapshot: with the largest id, in the era of the graph or (`alone`) its own."""
        number = _number(captured.era)
        for other in view.snapshots:
            number = max(number, _number(other.id))
        name = f"{item_key(number + 1)}-{uuid.uuid4().hex}"
        cursors = {worker: captured.cursors.get(worker, 0) for worker in view.heads}
        cursors[view.me] = captured.end
        begins, left = cursors, {}
        if before is not None:
            left = before.left
        if not alone:
            begins = dict.fromkeys(cursors, 0)
            if before is not None:
                begins = {worker: before.cursors.get(worker, 0) for worker in cursors}
        era = captured.era
        if alone:
            era = name
        return SharedSnapshot(
            id=name,
            era=era,
            parts=len(captured.parts),
            cursors=cursors,
            begins=begins,
            left=left,
            by=self.process,
            at=self._now(),
        )

    def _write_parts(self, mine: SharedSnapshot, parts: Sequence[str]) -> SharedSnapshot:
        """Write the parts while the lease is valid; return the announcement as it was renewed last."""
        for some in batches(enumerate(parts), 4):
            if self._is_over(mine):
                break
            # A killed writer must not block the next snapshot for longer than its lease, and a slow one must not lose
            # it.
            mine = replace(mine, at=self._now())
            ops = [self._items.announce(mine)]
            for number, part in some:
                ops.append(self._items.put("snapshot", item_key(number), {"p": part}, mine.id))
            self._items.batch(ops)
        return mine

    def _is_confirmed_by(self, mine: SharedSnapshot, base: str, view: StoreView) -> bool:
        """Return True if other snapshots contain no further events, and do not begin an era in its place."""
        for other in view.snapshots:
            if other.id != mine.id and not self._is_stray(other) and _is_against(other, mine, base, view):
                return False
        return any(other.id == mine.id for other in view.snapshots)

    def _is_stray(self, other: SharedSnapshot) -> bool:
        return not other.done and (other.by == self.process or self._is_over(other))

    def _is_over(self, other: SharedSnapshot) -> bool:
        return other.at < self._now() - SHARED_LIMITS.lease_seconds

    # -- deleting --

    def _trim(self, mine: SharedSnapshot, before: SharedSnapshot | None, dead: Sequence[str], view: StoreView) -> None:
        """Delete all other snapshots except the one before in this era, events in both of them, and outdated items."""
        stays = {mine.id}
        if before is not None and before.era == mine.era:
            stays.add(before.id)
        for other in view.snapshots:
            if other.id not in stays and (other.done or other.era < mine.era or self._is_stray(other)):
                self._items.batch(self._items.without(other))
        self._trim_logs(mine, before)
        ops: list[PutOp] = []
        latest = self._now() - SHARED_LIMITS.forgotten_seconds
        for note in self._items.notes():
            if note.at < latest:
                ops.append(self._items.delete("forgotten", note.id))
        for worker in dead:
            ops.append(self._items.delete("workers", worker))
        # Last: if a deletion fails, the next snapshot deletes from `left` on again.
        ops.append(self._items.announce(replace(mine, left=mine.begins)))
        self._items.batch(ops)

    def _trim_logs(self, mine: SharedSnapshot, before: SharedSnapshot | None) -> None:
        ends = dict(mine.begins)
        if before is not None:
            ends = {**before.begins, **mine.begins}
        ops: list[PutOp] = []
        for worker, end in ends.items():
            for number in range(mine.left.get(worker, 0), end):
                ops.append(self._items.delete("log", item_key(number), worker))
        for some in batches(ops, SHARED_LIMITS.page):
            self._items.batch(some)


def _number(key: str) -> int:
    """Return the number at the beginning of a snapshot's id; 0 of the first era, which is ""."""
    return int(key.partition("-")[0] or 0)


def _is_against(other: SharedSnapshot, mine: SharedSnapshot, base: str, view: StoreView) -> bool:
    """Return True if another snapshot contains events that this one lacks, or begins an era in its place."""
    if other.era > base:
        # An era that was announced before the round of this one: its writer gives up, or forgets the data of this one.
        gives_up = not other.done and mine.era == mine.id and _number(other.id) < _number(mine.id)
        return not gives_up
    holds = other.begins
    if other.done:
        holds = other.cursors
    for worker, end in holds.items():
        if worker in view.heads and mine.cursors.get(worker, 0) < end:
            return other.era == base
    return False
