"""Rows of texts in Chroma, for methods that keep things: one implementation for every kind (`row_kinds`).

A `RowKind` says how an item becomes a row and a row an item, how two of one id join, and who leaves first.
``core.rows(kind)`` keeps them per user, each user's in a collection of their namespace, finds the nearest to a text,
and forgets a user. Nothing is held in RAM: Chroma is asked. What is counted of an item (shown, followed, helped) is in
the ledger, as increments of its own, so that nobody overwrites what another process counted.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from langgraph_toolmem.base.errors import InputError, StorageError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.core.ledger import ALL, Track
from langgraph_toolmem.core.row_kinds import Near, RowChanges, RowKind
from langgraph_toolmem.search.embedders import clean
from langgraph_toolmem.stores.items import Hit, VectorItem
from langgraph_toolmem.stores.parts import KEY as PART

if TYPE_CHECKING:
    from langgraph_toolmem.core.ledger import Ledger
    from langgraph_toolmem.core.users import User
    from langgraph_toolmem.stores.vectors import VectorStore

logger = logging.getLogger("langgraph_toolmem.rows")

T = TypeVar("T")

NEAR: Final = 64
"""Rows that are looked at for a question."""
MOST_NEAR: Final = 1_024
"""The same where most of them are retired, or say the same."""
ROOM: Final = 10_000
"""Rows among which the least useful is looked for, where there are too many."""
MAX_NAMESPACES: Final = 1_024
"""Namespaces of which is remembered what changed; those that were used last."""
REMEMBERED: Final = 10_000
"""Changes of a namespace that can be told one by one."""
_ROW, _OWNERS = "row", "of"  # metadata of a row: everything but the text as JSON, and digests of users and runs
_DAMAGED: Final = (InputError, KeyError, TypeError, ValueError, AttributeError, IndexError)


@dataclass
class _Place:
    """What is known of a namespace."""

    store: VectorStore
    size: int | None = None
    hand: int = 0  # where the next look for the least useful begins
    version: int = 1
    looked: float = 0.0
    nothing_in: set[str] = field(default_factory=set)  # parts without rows
    changed: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class Rows(Generic[T]):
    """The items of one kind, of all users. Blocking: at a model call, what is near is asked for in a step.

    Every method raises `StorageError` where Chroma or the embedder fails; nothing is changed then.

    Args:
        kind: of the items.
        vectors: Chroma.
        ledger: has the records.
        method: whose items they are in the ledger.
        apart: each user has a namespace.
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
        apart: bool,
        read_only: bool,
        now: Callable[[], float],
        refresh: float | None,
    ) -> None:
        self.kind = kind
        self._vectors, self._ledger, self._method = vectors, ledger, method
        self._apart, self._read_only = apart, read_only
        self._now, self._refresh = now, refresh
        self._writing = threading.RLock()
        self._places: OrderedDict[tuple[str, ...], _Place] = OrderedDict()

    # --- writing ---

    def put(
        self, items: Iterable[T], user: User, *, vectors: Mapping[str, Sequence[float]] | None = None
    ) -> list[T | None]:
        """Keeps items, or joins them with those of the same id; what stands now of each.

        If it fails half-way, do it again. `vectors`: those that are known already, by id.

        Raises:
            StorageError: they cannot be stored, or the memory is read-only.
        """
        given = [(self.kind.row(item).id, item) for item in items]
        with self._changing(user) as place:
            known = self._read(place, [key for key, _ in given])
            stands: dict[str, T] = {}
            answers: list[T | None] = []
            for key, new in given:
                old = stands.get(key) or (known[key][1] if key in known else None)
                now = new if old is None else self.kind.joined(old, new)
                if now is not None:
                    stands[key] = now
                answers.append(now)
            self._write(place, known, stands, user, vectors or {})
            self._make_room(place, user)
        return answers

    def change(self, ids: Iterable[str], how: Callable[[T], T | None], user: User) -> list[T]:
        """Changes items that are there; one of which nothing is left (None) is removed. What stands now of them."""
        with self._changing(user) as place:
            known = self._read(place, list(ids))
            stands = {key: how(item) for key, (_, item) in known.items()}
            self._write(place, known, {key: item for key, item in stands.items() if item is not None}, user)
            self._remove(place, [key for key, item in stands.items() if item is None], user)
        return [item for item in stands.values() if item is not None]

    def remove(self, ids: Sequence[str], user: User, *, scrub: bool = False) -> None:
        """Takes items away, with `scrub` from the disk too; ids that are not there are no error."""
        with self._changing(user) as place:
            self._remove(place, ids, user)
            if scrub and ids:
                place.store.scrub(self.kind.name)

    def forget(self, user: User) -> int:
        """Removes a user's items, from the disk too; how many were removed or changed.

        Raises:
            StorageError: something is left.
        """
        if self._vectors.empty:
            return 0
        with self._changing(user) as place:
            if self._apart:
                gone = place.store.ids(self.kind.name)
                place.store.drop(self.kind.name)
                self._left(place, gone, user)
                removed = len(gone)
            else:
                removed = self.forget_of(str(user.digest), user)
            place.store.scrub(self.kind.name)
        return removed

    def forget_of(self, owner: str, user: User) -> int:
        """Takes away what comes from a user or a run (digest), and makes sure that it is gone; from how many items.

        Raises:
            StorageError: something is left.
        """
        where = {_OWNERS: {"$contains": owner}}
        with self._changing(user) as place:
            ids = place.store.ids(self.kind.name, where)
            known = self._read(place, ids)
            left = {key: self.kind.without(item, owner) for key, (_, item) in known.items()}
            stands = {key: item for key, item in left.items() if item is not None}
            self._write(place, known, stands, user)
            self._remove(place, [key for key in ids if key not in stands], user)  # damaged ones too
            if still := place.store.ids(self.kind.name, where):
                raise StorageError(f"{len(still)} {self.kind.name} could not be deleted. Do it again.")
        return len(ids)

    # --- reading ---

    def get(self, ids: Sequence[str], user: User) -> list[T]:
        """The items with these ids that are there, retired ones too, in the order asked."""
        if self._vectors.empty:
            return []
        return [item for _, item in self._items(self._place(user).store.get(self.kind.name, ids), user)]

    def all(self, user: User, *, retired: bool = False) -> Iterator[T]:
        """All items, in the order in which they came first; read from Chroma as they are asked for."""
        if self._vectors.empty:
            return
        for _, item in self._items(self._place(user).store.each(self.kind.name), user):
            if retired or not self.kind.retired(item):
                yield item

    def near(
        self,
        query: str | Sequence[float],
        user: User,
        *,
        k: int | None = NEAR,
        part: str = "",
        fits: Callable[[T], bool] | None = None,
        enough: int | None = None,
    ) -> list[Near[T]]:
        """The `k` items whose texts are most similar to `query`, best first; retired ones are left out.

        Args:
            query: a text, or its vector (`embed`).
            user: whose items.
            k: how many; None: all, which takes long where there are many.
            part: of the texts (`VectorItem.part`).
            fits: others are left out.
            enough: where fewer are found, up to `MOST_NEAR` rows are looked at; `k` or a quarter of it if None.
        """
        if self._vectors.empty:
            return []
        place, name = self._place(user), self.kind.name
        vector = self.embed(query) if isinstance(query, str) else query
        count = place.store.count(name) if k is None else k
        least = min(count, count // 4 if enough is None else enough)
        while True:
            hits = self._nearest(place, vector, count, part)
            found = [
                Near(item, hit.id, hit.similarity, self.key(hit.id, user))
                for hit, item in self._items(hits, user)
                if not self.kind.retired(item) and (fits is None or fits(item))
            ]
            if k is None or len(found) >= least or len(hits) < count or count >= MOST_NEAR:
                return found[:k]
            count *= 4

    def of(self, owner: str, user: User) -> list[T]:
        """The items that name somebody or something (digest) as their owner; see `VectorItem.owners`."""
        if self._vectors.empty:
            return []
        hits = self._place(user).store.get(self.kind.name, where={_OWNERS: {"$contains": owner}})
        return [item for _, item in self._items(hits, user)]

    def embed_all(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of texts that are to be kept."""
        return self._vectors.embedder.embed_documents(texts)

    def embed(self, text: str) -> list[float]:
        """The vector of a question, for several questions."""
        return self._vectors.embedder.embed_query(text)

    def count(self, user: User) -> int:
        """How many items there are in a user's namespace, retired ones too."""
        return 0 if self._vectors.empty else self._place(user).store.count(self.kind.name)

    def sample(self, user: User, most: int) -> list[T]:
        """Items from all over the namespace, at most about so many."""
        if self._vectors.empty:
            return []
        store, name = self._place(user).store, self.kind.name
        count, windows = store.count(name), 8
        if count <= most:
            return [item for _, item in self._items(store.each(name), user)]
        size = max(1, most // windows)
        starts = [window * (count - size) // (windows - 1) for window in range(windows)]
        pages = (store.some(name, start=start, size=size) for start in starts)
        return [item for page in pages for _, item in self._items(page, user)]

    def changes(self, since: int, user: User, *, most: int) -> RowChanges[T]:
        """What this process changed after a version; the latest `most` items if that was too long ago, or 0."""
        if self._vectors.empty:
            return RowChanges(0, True, [], [])
        place, name = self._place(user), self.kind.name
        with self._writing:
            if self._refresh is not None and not 0 <= self._now() - place.looked < self._refresh:
                place.looked, place.version = self._now(), place.version + REMEMBERED + 1
            back, version = place.version - since, place.version
            ids = list(dict.fromkeys(list(place.changed)[max(0, len(place.changed) - back) :]))
        whole = not 0 <= back <= len(place.changed)
        if whole:
            start = max(0, place.store.count(name) - most)
            hits: Iterable[Hit] = place.store.each(name, start=start)
        else:
            hits = place.store.get(name, ids)
        found = {hit.id: item for hit, item in self._items(hits, user) if not self.kind.retired(item)}
        gone = [] if whole else [key for key in ids if key not in found]
        return RowChanges(version, whole, list(found.values()), gone)

    def version(self, user: User) -> int:
        """Another number after every change by this process."""
        return self._place(user).version

    def key(self, item: str, user: User) -> str:
        """The name of an item (its id) in the ledger: what two users keep under one id has two records."""
        return digest(*user.namespace, item) if self._apart else item

    # --- below ---

    def _place(self, user: User) -> _Place:
        with self._writing:
            found = self._places.pop(user.namespace, None)
            if found is None:
                found = _Place(self._vectors.scoped(user.namespace))
                if len(self._places) >= MAX_NAMESPACES:
                    self._places.popitem(last=False)
            self._places[user.namespace] = found
            return found

    @contextmanager
    def _changing(self, user: User) -> Iterator[_Place]:
        if self._read_only:
            raise StorageError(f"The memory is read-only: no {self.kind.name} can be kept.")
        with self._writing:
            yield self._place(user)

    def _nearest(self, place: _Place, vector: Sequence[float], k: int, part: str) -> list[Hit]:
        name = self.kind.name
        hits = place.store.query(name, vector, k=k, part=part)
        if part and not hits and part not in place.nothing_in:
            # Its index is approximate: a small part far from the others may be missed, or there is nothing in it.
            hits = place.store.query(name, vector, k=k, part=part, where={PART: part})
            if not hits and self._refresh is None:
                place.nothing_in.add(part)
        return hits

    def _items(self, hits: Iterable[Hit], user: User) -> Iterator[tuple[Hit, T]]:
        """The items of rows, with their records; damaged rows are left out."""
        batch: list[tuple[Hit, T]] = []
        damaged = 0
        for hit in hits:
            try:
                batch.append((hit, self.kind.item(_unpacked(hit))))
            except _DAMAGED:
                damaged += 1
            if len(batch) >= MOST_NEAR:
                yield from self._tracked(batch, user)
                batch = []
        yield from self._tracked(batch, user)
        if damaged:
            logger.warning("%d %s are damaged; left out", damaged, self.kind.name)

    def _tracked(self, batch: Sequence[tuple[Hit, T]], user: User) -> list[tuple[Hit, T]]:
        whole, *tracks = self._ledger.tracks(self._method, [ALL, *(self.key(hit.id, user) for hit, _ in batch)])
        return [
            (hit, self.kind.tracked(item, track, Track(*(a - b for a, b in zip(whole, track, strict=True)))))
            for (hit, item), track in zip(batch, tracks, strict=True)
        ]

    def _read(self, place: _Place, ids: Sequence[str]) -> dict[str, tuple[Hit, T]]:
        if self._vectors.empty:
            return {}
        hits = {hit.id: hit for hit in place.store.get(self.kind.name, ids)}
        found: dict[str, tuple[Hit, T]] = {}
        for key, hit in hits.items():
            try:
                found[key] = hit, self.kind.item(_unpacked(hit))
            except _DAMAGED:
                logger.debug("a damaged row is written anew")
        return found

    def _write(
        self,
        place: _Place,
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
        if new:
            place.store.upsert(self.kind.name, new, vectors=vectors)
        if same:
            moved = [each for each in same if _moved(each, known[each.id][0])]
            place.store.amend_items(self.kind.name, same, moved=moved)
        place.nothing_in -= {each.part for each in (*new, *same)}
        if place.size is not None:
            place.size += sum(each.id not in known for each in new)
        self._note(place, [each.id for each in (*new, *same)])

    def _packed(self, item: T, before: Hit | None, user: User) -> VectorItem:
        row = self.kind.row(item)
        owners = row.owners
        if owners is None:
            mine = () if user.digest is None else (user.digest,)
            owners = tuple(sorted({*(before.metadata.get(_OWNERS) or () if before is not None else ()), *mine}))
        plain = clean(json.dumps(dict(row.metadata), ensure_ascii=False, separators=(",", ":")))
        return VectorItem(row.id, clean(row.text), {_ROW: plain, _OWNERS: list(owners) or None}, row.part)

    def _remove(self, place: _Place, ids: Sequence[str], user: User) -> None:
        if ids:
            place.store.delete(self.kind.name, ids)
            self._left(place, ids, user)

    def _left(self, place: _Place, ids: Sequence[str], user: User) -> None:
        place.size = None
        self._note(place, ids)
        self._ledger.drop(self._method, [self.key(key, user) for key in ids])

    def _note(self, place: _Place, ids: Collection[str]) -> None:
        place.version += len(ids)
        place.changed.extend(ids)

    def _make_room(self, place: _Place, user: User) -> None:
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
    plain = json.loads(hit.metadata[_ROW]) if _ROW in hit.metadata else hit.metadata  # as the version before had it
    return Hit(hit.id, hit.text, plain, hit.similarity)


def _moved(item: VectorItem, before: Hit) -> bool:
    return bool(item.part != before.metadata.get(PART, ""))


def _differs(item: VectorItem, before: Hit) -> bool:
    kept = before.metadata
    return _moved(item, before) or any(kept.get(name) != value for name, value in item.metadata.items())
