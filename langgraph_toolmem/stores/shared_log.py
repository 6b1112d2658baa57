"""Several workers, one memory: each appends to its own log in a LangGraph ``BaseStore``, reads the others'.

A ``BaseStore`` has no transactions and no compare-and-set, so no value is ever changed: worker w alone writes
the items 0, 1, 2, ... of the namespace ``(*namespace, "log", w)``, in order and without gaps, and registers
itself once in ``(*namespace, "workers")``. A reader keeps one cursor a worker. Records have to commute: every
reader sees the logs interleaved in another way.

A record is stored as ``{"r": <its JSON text>}``: as text it survives what a JSON column of a database refuses
(NUL characters, lone surrogates, NaN) and comes back as it was written.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice, takewhile
from typing import Any, Final

from langgraph.store.base import BaseStore, GetOp, Op, PutOp, SearchOp

from langgraph_toolmem.base.errors import StorageError

_FIRST_LOOK: Final = 16  # items asked for at once of a worker that may have nothing new
_LONGEST_LOOK: Final = 1024
_PAGE: Final = 500
_CHUNK: Final = 250
_MAX_PENDING: Final = 1000
_LONGEST_PAUSE: Final = 64  # calls from one attempt to reach a failing store to the next
_PATIENCE: Final = 10.0  # seconds that a call waits for another call of this object

_log = logging.getLogger("langgraph_toolmem.shared_log")


class SharedLog:
    """The append-only log of one worker, and a view of all the others'.

    A store that fails never stops the caller: it is logged once, ``append`` returns False and keeps the
    record for the next attempt (up to 1,000 of them), ``poll`` returns what it has and goes on from there.
    May be used from several threads and coroutines.

    Args:
        store: any ``BaseStore``; nothing is indexed in it, nothing expires.
        namespace: where the logs live; labels may hold any text.
        worker: name of this worker, best the same after a restart. No two workers that run may share it.
    """

    def __init__(self, store: BaseStore, namespace: tuple[str, ...], *, worker: str) -> None:
        self._store: Final = store
        self._root: Final = encode_namespace(namespace)
        self._worker: Final = encode_label(worker)
        self._io = threading.Lock()  # one call at a time talks to the store: logs have no gaps
        self._queue = threading.Lock()  # held for moments only
        self._pending: deque[str] = deque()  # texts not known to be stored; the first has number `_next`
        self._queued = self._stored = 0
        self._next: int | None = None  # number of the next own record in the store; None: not looked up yet
        self._old = 0  # own records that were there before this object: the first poll returns them
        self._cursors: dict[str, int] = {}
        self._registered = False
        self._pause = self._skip = 0
        self._said: set[str] = set()

    def append(self, record: Any) -> bool:
        """Add one JSON value to this worker's log.

        Returns:
            True once the store has it. False if it is not JSON, if the store failed (later calls try
            again), or if too many records already wait for the store.
        """
        try:
            text = json.dumps(record, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            self._say(f"a record is not JSON and was not stored: {error}")
            return False
        with self._queue:
            refused = len(self._pending) >= _MAX_PENDING
            if not refused:
                self._pending.append(text)
                self._queued += 1
            ticket = self._queued
        if refused:
            self._say(f"{_MAX_PENDING} records wait for the store; further ones are not shared")
        with self._talk("append") as may_talk:
            if may_talk:
                self._flush()
        return not refused and self._stored >= ticket

    def poll(self) -> list[Any]:
        """New records of the other workers; at first also those this worker wrote before it was restarted.

        Returns:
            Records by worker name, of each worker in the order they were written.
        """
        found: list[Any] = []
        with self._talk("poll") as may_talk:
            if may_talk:
                self._flush()
                for worker in self._workers():
                    for record in self._read(worker):
                        found.append(record)  # noqa: PERF402 - what came before an error is kept
        return found

    def rewrite(self, change: Callable[[Any], Any]) -> int:
        """Replace stored records of all workers, for example to take out what came from one person.

        Args:
            change: a record to what shall stand in its place; equal means left as it is.

        Returns:
            How many records were replaced.

        Raises:
            StorageError: the store failed, or did not answer another call in time. What was not reached is as
                it was; call again.
        """
        replaced = 0
        done = False
        with self._talk("rewrite", at_once=True) as may_talk:
            if may_talk:
                self._flush()
                replaced = self._rewrite(change)
                done = True
        if not done:
            raise StorageError(
                f"The shared log {'.'.join(self._root)} could not be rewritten as its store failed or was busy "
                "(the log of langgraph_toolmem.shared_log has the reason). Make it reachable and call again."
            )
        return replaced

    def _rewrite(self, change: Callable[[Any], Any]) -> int:
        replaced = 0
        for worker in self._workers():
            for start in count(0, _LONGEST_LOOK):
                items = self._items(worker, range(start, start + _LONGEST_LOOK))
                for number, item in enumerate(items, start):
                    if item is None:
                        break
                    try:
                        old = json.loads(item.value["r"])
                    except (KeyError, TypeError, ValueError) as error:
                        self._say(f"record {number} of worker {worker} cannot be read and is skipped: {error!r}")
                        continue
                    new = change(old)
                    if new != old:
                        text = json.dumps(new, separators=(",", ":"))
                        self._store.batch([PutOp((*self._root, "log", worker), _key(number), {"r": text}, index=False)])
                        replaced += 1
                if items[-1] is None:
                    break
        return replaced

    # -- writing --

    def _flush(self) -> None:
        number = self._own_end()
        while True:
            with self._queue:
                texts = list(islice(self._pending, _CHUNK))
            if not texts:
                return
            ops: list[Op] = [] if self._registered else [self._put("workers", self._worker, {"worker": True})]
            ops += [self._put("log", _key(number + i), {"r": text}) for i, text in enumerate(texts)]
            self._store.batch(ops)
            self._registered = True
            number += len(texts)
            with self._queue:
                for _ in texts:
                    self._pending.popleft()
                self._next = number
                self._stored += len(texts)

    def _put(self, kind: str, key: str, value: dict[str, Any]) -> PutOp:
        namespace = (*self._root, "log", self._worker) if kind == "log" else (*self._root, kind)
        return PutOp(namespace, key, value, index=False)

    def _own_end(self) -> int:
        """Number of the next own record; looked up once, in a few round trips however long the log is."""
        if self._next is None:
            # Items below `low` exist, item `high` does not.
            low, high = 0, 1 << 32
            probes = [(1 << i) - 1 for i in range(33)]
            while low < high:
                for probe, item in zip(probes, self._items(self._worker, probes), strict=True):
                    if item is None:
                        high = probe
                        break
                    low = probe + 1
                probes = sorted({low + (high - low) * i // 16 for i in range(16)})
            self._next = self._old = low
        return self._next

    # -- reading --

    def _workers(self) -> list[str]:
        namespace = (*self._root, "workers")
        names = {self._worker}
        for offset in count(0, _PAGE):
            page = self._ask([SearchOp(namespace, limit=_PAGE, offset=offset, refresh_ttl=False)])[0]
            # A store may match more than was asked for: longer namespaces, or a wildcard in a label.
            names.update(item.key for item in page if item.namespace == namespace)
            if len(page) < _PAGE:
                break
        return sorted(names)

    def _read(self, worker: str) -> Iterator[Any]:
        """The records of one worker from its cursor on; the cursor follows them."""
        look = _FIRST_LOOK
        while True:
            start = self._cursors.get(worker, 0)
            if worker == self._worker:
                start, look = self._own_range(start, look)
            items = self._items(worker, range(start, start + look))
            present = list(takewhile(lambda item: item is not None, items))
            for item in present:
                self._cursors[worker] = start = start + 1
                try:
                    yield json.loads(item.value["r"])
                except (KeyError, TypeError, ValueError) as error:
                    self._say(f"record {start - 1} of worker {worker} cannot be read and is skipped: {error!r}")
            if worker == self._worker and start > self._own_end():
                self._next = start
                self._say(f"another worker uses the name {worker} too: records get lost; give each its own")
            if not look or len(present) < look:
                return
            look = min(4 * look, _LONGEST_LOOK)

    def _own_range(self, start: int, look: int) -> tuple[int, int]:
        """Where to look in the own log: what a former process wrote, then whether an impostor wrote on."""
        if start < self._old:
            return start, min(look, self._old - start)
        # What a failed call wrote nonetheless would look like an impostor's.
        return self._own_end(), 0 if self._pending else look

    def _items(self, worker: str, numbers: Iterable[int]) -> list[Any]:
        namespace = (*self._root, "log", worker)
        return self._ask([GetOp(namespace, _key(number), refresh_ttl=False) for number in numbers])

    # -- the store --

    def _ask(self, ops: Sequence[Op]) -> list[Any]:
        return self._store.batch(ops) if ops else []

    @contextlib.contextmanager
    def _talk(self, doing: str, *, at_once: bool = False) -> Iterator[bool]:
        """Whether the store may be called now, by this call alone; what it raises then ends here.

        After a failure some calls are passed over, unless one asks for an attempt `at_once`.
        """
        if not self._io.acquire(timeout=_PATIENCE):
            self._say(f"{doing}: the store has not answered another call for {_PATIENCE:g} s")
            yield False
            return
        try:
            if self._skip and not at_once:
                self._skip -= 1
                yield False
                return
            yield True
            self._pause = self._skip = 0
        except Exception as error:  # noqa: BLE001 - any store and any driver, each with errors of its own
            self._skip = self._pause = min(max(1, 2 * self._pause), _LONGEST_PAUSE)
            self._say(f"{doing}: the store failed ({type(error).__name__}); it will be tried again", error)
        finally:
            self._io.release()

    def _say(self, text: str, error: Exception | None = None) -> None:
        if text not in self._said:
            self._said.add(text)
            where = ".".join(self._root)
            _log.warning("%s: %s", where, text)
            if error is not None:
                # A driver's error may quote the record that it refused.
                _log.debug("%s: %s", where, text, exc_info=error)


def encode_namespace(namespace: tuple[str, ...]) -> tuple[str, ...]:
    """The namespace as a ``BaseStore`` accepts it; different namespaces stay different."""
    labels = tuple(encode_label(label) for label in namespace)
    if labels[:1] == ("langgraph",):  # the one word that a store refuses as the first label
        return (f"={ord('l'):02X}anggraph", *labels[1:])
    return labels


def encode_label(label: str) -> str:
    """Any text as a label: ``=`` and two hexadecimal digits stand for what may not be in one."""
    if not label:
        return "="
    return "".join(f"={ord(letter):02X}" if letter in _REFUSED else letter for letter in label)


_REFUSED: Final = frozenset("=.\0")


def _key(number: int) -> str:
    return f"{number:012d}"
