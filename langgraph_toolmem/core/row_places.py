"""Rows of one kind in all namespaces: read from Chroma, joined, written, and made room for."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from langgraph_toolmem.base import locks
from langgraph_toolmem.base.errors import InputError, StorageError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.core.ledger import ALL, Track
from langgraph_toolmem.core.row_kinds import RowKind
from langgraph_toolmem.search.embedders import clean
from langgraph_toolmem.stores.items import Hit, VectorItem
from langgraph_toolmem.stores.parts import KEY as PART

if TYPE_CHECKING:
    from langgraph_toolmem.core.ledger import Ledger
    from langgraph_toolmem.core.users import User, Users
    from langgraph_toolmem.stores.vectors import VectorStore

logger = logging.getLogger("langgraph_toolmem.rows")

T = TypeVar("T")

BATCH: Final = 1_000
"""Rows whose records are looked up at once."""
ROOM: Final = 10_000
"""Rows among which the least useful is looked for, where there are too many."""
MAX_NAMESPACES: Final = 1_024
"""Namespaces of which is remembered what changed; those that were used last."""
REMEMBERED: Final = 10_000
"""Changes of a namespace that can be told one by one."""
ROW, OWNERS = "row", "of"
"""Metadata of a row: everything but the text as JSON, and digests of users and runs."""
DAMAGED: Final = (InputError, KeyError, TypeError, ValueError, AttributeError, IndexError)


@dataclass
class Place:
    """What is known of a namespace."""

    store: VectorStore
    size: int | None = None
    hand: int = 0  # where the next look for the least useful begins
    version: int = 1
    looked: float = 0.0
    nothing_in: dict[str, float] = field(default_factory=dict)  # parts without rows, and when that was seen
    changed: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class RowPlaces(Generic[T]):
    """What `Rows` stands on: rows of all namespaces read, joined and written, each change under a lock.

    Args:
        kind: of the items.
        vectors: Chroma.
        ledger: has the records.
        method: whose items they are in the ledger.
        users: whose namespaces there are.
        read_only: nothing is written.
        now: seconds since 1970.
        refresh: seconds after which others may have changed what `changes` told; None: there are no others.
    """

    def __init__(
        self,
        kind: RowKind[T],
        vectors: VectorStore,
        ledger: Ledger,
        *,
        method: str,
        users: Users,
        read_only: bool,
        now: Callable[[], float],
        refresh: float | None,
    ) -> None:
        self.kind = kind
        self._vectors, self._ledger, self.method = vectors, ledger, method
        self._users, self.apart, self._read_only = users, users.apart, read_only
        self._now, self._refresh = now, refresh
        self._writing = locks.rlock()  # over a change, its vectors and database calls; nobody who asks waits for it
        self._noting = locks.lock()  # over what is known of the namespaces
        self._places: OrderedDict[tuple[str, ...], Place] = OrderedDict()
        self._changes = 1  # of all namespaces

    def key(self, item: str, user: User) -> str:
        """The name of an item (its id) in the ledger: what two users keep under one id has two records."""
        return digest(*user.namespace, item) if self.apart else item

    def _place(self, user: User) -> Place:
        with self._noting:
            found = self._places.pop(user.namespace, None)
            if found is None:
                found = Place(self._vectors.scoped(user.namespace))
                if len(self._places) >= MAX_NAMESPACES:
                    self._places.popitem(last=False)
            self._places[user.namespace] = found
            return found

    @contextmanager
    def _changing(self, user: User) -> Iterator[Place]:
        if self._read_only or self._vectors.read_only:
            raise StorageError(f"The memory is read-only: no {self.kind.name} can be kept.")
        with self._writing:
            yield self._place(user)

    def _nearest(self, place: Place, vector: Sequence[float], k: int, part: str) -> list[Hit]:
        name, seen, version = self.kind.name, place.nothing_in.get(part), place.version
        if seen is not None and (self._refresh is None or 0 <= self._now() - seen < self._refresh):
            return []
        hits = place.store.query(name, vector, k=k, part=part)
        if part and not hits:
            # Its index is approximate: a small part far from the others may be missed, or there is nothing in it.
            hits = place.store.query(name, vector, k=k, part=part, where={PART: part})
            with self._noting:
                if not hits and place.version == version:  # else something was written while it was looked for
                    place.nothing_in[part] = self._now()
        return hits

    def _items(self, hits: Iterable[Hit], user: User | None) -> Iterator[tuple[Hit, T]]:
        """The items of rows, with their records if their user is named; damaged rows are left out."""
        batch: list[tuple[Hit, T]] = []
        damaged = 0
        for hit in hits:
            try:
                batch.append((hit, self.kind.item(_unpacked(hit))))
            except DAMAGED:
                damaged += 1
            if len(batch) >= BATCH:
                yield from self._tracked(batch, user)
                batch = []
        yield from self._tracked(batch, user)
        if damaged:
            logger.warning("%d %s are damaged; left out", damaged, self.kind.name)

    def _tracked(self, batch: Sequence[tuple[Hit, T]], user: User | None) -> list[tuple[Hit, T]]:
        if user is None or not self._ledger.tracked(self.method):
            return list(batch)
        whole, *tracks = self._ledger.tracks(self.method, [ALL, *(self.key(hit.id, user) for hit, _ in batch)])
        return [
            (hit, self.kind.tracked(item, track, Track(*(a - b for a, b in zip(whole, track, strict=True)))))
            for (hit, item), track in zip(batch, tracks, strict=True)
        ]

    def _read(self, place: Place, ids: Sequence[str]) -> dict[str, tuple[Hit, T]]:
        if self._vectors.empty:
            return {}
        hits = {hit.id: hit for hit in place.store.get(self.kind.name, ids)}
        found: dict[str, tuple[Hit, T]] = {}
        for key, hit in hits.items():
            try:
                found[key] = hit, self.kind.item(_unpacked(hit))
            except DAMAGED:
                logger.debug("a damaged row is written anew")
        return found

    def _write(
        self,
        place: Place,
        known: Mapping[str, tuple[Hit, T]],
        stands: Mapping[str, T],
        user: User,
        vectors: Mapping[str, Sequence[float]] = MappingProxyType({}),
    ) -> None:
        new: list[VectorItem] = []
        same: list[VectorItem] = []
        for key, item in stands.items():
            before = known[key][0] if key in known else None
            made = self._packed(item, before, user)
            if before is None or before.text != made.text:
                new.append(made)
            elif _differs(made, before):
                same.append(made)
        parts = {each.part for each in (*new, *same)}
        try:
            if new:
                place.store.upsert(self.kind.name, new, vectors=vectors)
            if same:
                moved = [each for each in same if _moved(each, known[each.id][0])]
                place.store.amend_items(self.kind.name, same, moved=moved)
        except StorageError:
            self._note(place, (), parts)  # some of it may be there
            raise
        if place.size is not None:
            place.size += sum(each.id not in known for each in new)
        self._note(place, [each.id for each in (*new, *same)], parts)

    def _packed(self, item: T, before: Hit | None, user: User) -> VectorItem:
        row = self.kind.row(item)
        owners = row.owners
        if owners is None:
            mine = () if user.digest is None else (user.digest,)
            owners = tuple(sorted({*(before.metadata.get(OWNERS) or () if before is not None else ()), *mine}))
        plain = clean(json.dumps(dict(row.metadata), ensure_ascii=False, separators=(",", ":")))
        return VectorItem(row.id, clean(row.text), {ROW: plain, OWNERS: list(owners) or None}, row.part)

    def _remove(self, place: Place, ids: Sequence[str], user: User) -> None:
        if ids:
            place.store.delete(self.kind.name, ids)
            self._left(place, ids, user)

    def _left(self, place: Place, ids: Sequence[str], user: User) -> None:
        place.size = None
        self._note(place, ids)
        self._ledger.drop(self.method, [self.key(key, user) for key in ids])

    def _note(self, place: Place, ids: Collection[str], parts: Iterable[str] = ()) -> None:
        with self._noting:
            for part in parts:
                place.nothing_in.pop(part, None)
            place.version += len(ids)
            self._changes += len(ids)
            place.changed.extend(ids)

    def _make_room(self, place: Place, user: User) -> None:
        """Beyond `most`, a hundredth goes: the least useful of some rows, others at the next time."""
        name = self.kind.name
        if place.size is None:
            place.size = place.store.count(name)
        if place.size <= self.kind.most:
            return
        wanted = place.size - self.kind.most + self.kind.most // 100
        size = max(ROOM, 2 * wanted)
        start = place.hand if place.hand + size <= place.size else max(0, place.size - size)
        place.hand = 0 if start + size >= place.size else start + size - wanted
        found = list(self._items(place.store.some(name, start=start, size=size), user))
        found.sort(key=lambda each: (not self.kind.retired(each[1]), self.kind.worth(each[1])))
        self._remove(place, [hit.id for hit, _ in found[:wanted]], user)


def _unpacked(hit: Hit) -> Hit:
    return Hit(hit.id, hit.text, json.loads(hit.metadata[ROW]), hit.similarity)


def _moved(item: VectorItem, before: Hit) -> bool:
    return bool(item.part != before.metadata.get(PART, ""))


def _differs(item: VectorItem, before: Hit) -> bool:
    kept = before.metadata
    return _moved(item, before) or any(kept.get(name) != value for name, value in item.metadata.items())
