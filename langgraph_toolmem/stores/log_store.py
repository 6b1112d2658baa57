"""How several workers' records lie in a LangGraph ``BaseStore``, and how they are read and written there.

A ``BaseStore`` has no transactions and no compare-and-set, so a record is never changed by two:

=============================  ================================================================================
``(*root, "log", w)``          the records 0, 1, 2, ... of worker w, in order and without gaps; w alone writes them
``(*root, "workers")``         of each worker: how many there are (``n``), when it wrote (``t``), whether it ended
``(*root, "snapshots")``       of each snapshot how many records of each worker are in it; and the lease
``(*root, "snapshot", id)``    its parts
``(*root, "forgotten")``       users who were forgotten, for workers that come back with old records
=============================  ================================================================================

A reader keeps one cursor a worker, and asks only those that have more. A snapshot is what the records below its
cursors make; who starts takes the newest that is whole, and the records after it. Records have to commute: every
reader sees the logs interleaved in another way.

A record is stored as ``{"r": <its JSON text>}``: as text it survives what a JSON column of a database refuses
(NUL characters, lone surrogates, NaN) and comes back as it was written.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from typing import Any, Final, NamedTuple

from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp

from langgraph_toolmem.base.errors import GraphFileError, describe_error
from langgraph_toolmem.stores import plain_pickle
from langgraph_toolmem.stores.remote import Remote

PAGE: Final = 500
LONGEST_LOOK: Final = 1024
"""Items that are asked for at once."""
PART: Final = 256 * 1024
"""Characters of a part of a snapshot."""
LEASE: Final = "lease"

_log = logging.getLogger("langgraph_toolmem.shared_log")


class Worker(NamedTuple):
    """What is known of a worker: how many records it wrote, when it wrote last, whether it ended."""

    records: int
    at: float
    ended: bool


@dataclass
class Snapshot:
    """What is known of a snapshot.

    Attributes:
        id: its name.
        cursors: of the workers that had records in the store when it was made: how many of them are in it.
        begins: from which number on these records are still in the store.
        parts: how many it has.
        size: characters of all of them.
        records: how many are in it.
    """

    id: str
    cursors: dict[str, int]
    begins: dict[str, int]
    parts: int = 0
    size: int = 0
    records: int = 0


@dataclass
class Overview:
    """What there is: workers, snapshots, those with most records first, and who compacts until when."""

    workers: dict[str, Worker] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)
    lease: tuple[str, float] = ("", 0.0)

    @property
    def begins(self) -> Mapping[str, int]:
        """From which number on records of a worker are there, as far as that is known."""
        return self.snapshots[0].begins if self.snapshots else {}

    @property
    def uncovered(self) -> int:
        """How many records no snapshot holds."""
        held = self.snapshots[0].cursors if self.snapshots else {}
        return sum(max(0, each.records - held.get(name, 0)) for name, each in self.workers.items())


class LogStore:
    """The items of one memory in a store. Every call has a deadline, and may raise whatever the store does.

    Args:
        store: any ``BaseStore``; nothing is indexed in it, nothing expires.
        namespace: where they live; labels may hold any text.
        remote: has the calls made.
    """

    def __init__(self, store: BaseStore, namespace: tuple[str, ...], remote: Remote) -> None:
        self.remote = remote
        self.root: Final = encode_namespace(namespace)
        self._store: Final = store

    def batch(self, ops: Sequence[Op]) -> list[Any]:
        """One round trip, none for nothing."""
        if not ops:
            return []
        # Later calls must not overtake one that hangs: all count as writes.
        return self.remote.call(partial(self._store.batch, list(ops)), writes=True, rows=len(ops))

    def put(self, kind: str, key: str, value: Mapping[str, Any] | None, *of: str) -> PutOp:
        """Puts or, without a value, deletes an item."""
        return PutOp((*self.root, kind, *map(encode_label, of)), key, value and dict(value), index=False)

    def record(self, worker: str, number: int, text: str) -> PutOp:
        """Puts a record."""
        return self.put("log", _key(number), {"r": text}, worker)

    def head(self, worker: str, records: int, at: float, *, ended: bool) -> PutOp:
        """Says how many records a worker has."""
        return self.put("workers", encode_label(worker), {"n": records, "t": at, "ended": ended})

    # -- what there is --

    def look(self, *first: Op) -> Overview:
        """What there is, after some ops of the same round trip."""
        kinds = ("workers", "snapshots")
        *_, workers, snapshots = self.batch([*first, *(self._search(kind, 0) for kind in kinds)])
        found = Overview()
        for key, value in self._all("workers", workers):
            with suppress(KeyError, TypeError, ValueError):
                ended = bool(value.get("ended"))
                found.workers[decode_label(key)] = Worker(int(value["n"]), float(value["t"]), ended)
        for key, value in self._all("snapshots", snapshots):
            with suppress(KeyError, TypeError, ValueError):
                if key == LEASE:
                    found.lease = str(value["by"]), float(value["until"])
                else:
                    found.snapshots.append(Snapshot(key, **value))
        found.snapshots.sort(key=lambda each: (each.records, each.id), reverse=True)
        return found

    def _search(self, kind: str, offset: int) -> SearchOp:
        return SearchOp((*self.root, kind), limit=PAGE, offset=offset, refresh_ttl=False)

    def _all(self, kind: str, page: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        for offset in count(PAGE, PAGE):
            # A store may match more than was asked for: longer namespaces, or a wildcard in a label.
            yield from ((item.key, item.value) for item in page if item.namespace == (*self.root, kind))
            if len(page) < PAGE:
                return
            page = self.batch([self._search(kind, offset)])[0]

    def forgotten(self) -> dict[str, dict[str, Any]]:
        """Users (digests) who were forgotten: when, and the ids of their runs and requests."""
        return dict(self._all("forgotten", self.batch([self._search("forgotten", 0)])[0]))

    # -- records --

    def items(self, ranges: Iterable[tuple[str, int, int]]) -> Iterator[list[tuple[str, int, str | None]]]:
        """Texts of records by worker and number, None where there is none; some hundred at a time."""
        wanted = ((worker, number) for worker, start, end in ranges for number in range(start, end))
        while some := list(islice(wanted, LONGEST_LOOK)):
            space = {worker: (*self.root, "log", encode_label(worker)) for worker, _ in some}
            ops = [GetOp(space[worker], _key(number), refresh_ttl=False) for worker, number in some]
            found = zip(some, self.batch(ops), strict=True)
            yield [(worker, number, None if item is None else _text(item.value)) for (worker, number), item in found]

    def delete(self, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Takes records away; those that are gone are no error."""
        wanted = (
            self.put("log", _key(number), None, worker) for worker, start, end in ranges for number in range(start, end)
        )
        while some := list(islice(wanted, LONGEST_LOOK)):
            self.batch(some)

    # -- snapshots --

    def write(self, snapshot: Snapshot, cursors: Mapping[str, int], state: Mapping[str, Any]) -> None:
        """Keeps a snapshot; it counts when all of it is there."""
        packed = zlib.compress(plain_pickle.dumps({"generation": 0, "state": dict(state)}), 1)
        text = base64.b64encode(packed).decode()
        parts = [text[start : start + PART] for start in range(0, len(text), PART)]
        snapshot.parts, snapshot.size, snapshot.records = len(parts), len(text), sum(cursors.values())
        for number, part in enumerate(parts):
            self.batch([self.put("snapshot", _key(number), {"p": part}, snapshot.id)])
        self.batch([self.put("snapshot", "cursors", {"all": dict(cursors)}, snapshot.id)])
        told = {name: value for name, value in vars(snapshot).items() if name != "id"}
        self.batch([self.put("snapshots", snapshot.id, told)])

    def read(self, snapshot: Snapshot) -> tuple[dict[str, Any], dict[str, int]] | None:
        """State and cursors of a snapshot; None if it cannot be used, or was taken away meanwhile."""
        space = (*self.root, "snapshot", encode_label(snapshot.id))
        keys = map(_key, range(snapshot.parts))
        try:
            cursors = self.cursors(snapshot)
            parts = [self.batch([GetOp(space, key, refresh_ttl=False)])[0].value["p"] for key in keys]
            state, _ = plain_pickle.snapshot(zlib.decompress(base64.b64decode("".join(parts))))
        except (AttributeError, KeyError, TypeError, ValueError, binascii.Error, zlib.error, GraphFileError) as error:
            _log.warning("%s: snapshot %s cannot be used: %s", self.root, snapshot.id, describe_error(error))
            return None
        return None if cursors is None else (state, cursors)

    def cursors(self, snapshot: Snapshot) -> dict[str, int] | None:
        """How many records of each worker a snapshot holds, of those too that are off the list; None if it is gone."""
        space = (*self.root, "snapshot", encode_label(snapshot.id))
        found = self.batch([GetOp(space, "cursors", refresh_ttl=False)])[0]
        return None if found is None else {str(name): int(number) for name, number in found.value["all"].items()}

    def newest(self, there: Overview) -> tuple[Snapshot, dict[str, Any], dict[str, int]] | None:
        """The snapshot with most records that can be read, with state and cursors."""
        read = ((each, self.read(each)) for each in there.snapshots)
        return next(((each, *found) for each, found in read if found is not None), None)

    def drop(self, snapshots: Iterable[Snapshot]) -> None:
        """Takes snapshots away."""
        for each in snapshots:
            keys = ["cursors", *map(_key, range(each.parts))]
            self.batch([self.put("snapshots", each.id, None)])
            self.batch([self.put("snapshot", key, None, each.id) for key in keys])

    def drop_strays(self, is_stray: Callable[[str], bool]) -> None:
        """Takes away parts of snapshots that nobody finished, by their names."""
        prefix = (*self.root, "snapshot")
        ask = ListNamespacesOp((MatchCondition("prefix", prefix),), limit=PAGE)
        for space in self.batch([ask])[0]:
            if space[:-1] == prefix and is_stray(decode_label(space[-1])):
                found = self.batch([SearchOp(space, limit=PAGE, refresh_ttl=False)])[0]
                self.batch([PutOp(space, item.key, None) for item in found])


def read_json(text: str | None, say: Callable[[str], None], where: str) -> Iterator[Any]:
    """The record that a text holds; nothing, and a word on it, if it cannot be read."""
    try:
        yield json.loads(text or "")
    except ValueError:
        say(f"{where} cannot be read and is skipped")


def _text(value: Any) -> str:
    text = value.get("r") if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


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


def decode_label(label: str) -> str:
    """The inverse of `encode_label`."""
    return "" if label == "=" else "".join(_decoded(label.split("=")))


def _decoded(parts: Sequence[str]) -> Iterator[str]:
    yield parts[0]
    for part in parts[1:]:
        try:
            yield chr(int(part[:2], 16)) + part[2:]
        except ValueError:  # nobody here wrote it
            yield f"={part}"


_REFUSED: Final = frozenset("=.\0")


def _key(number: int) -> str:
    return f"{number:012d}"
