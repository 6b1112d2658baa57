"""Rows of texts in Chroma, for methods that keep items: one implementation for every kind.

A `RowKind` defines how an item becomes a row and a row an item, how two items of one id are joined, and which are
removed first. ``core.rows(kind)`` returns `Rows`: they keep items per user, each user's in a collection of their
namespace, find the items most similar to a text, and forget a user. Chroma is queried, not mirrored in RAM. Counts of
an item (shown, followed, helped) are in the ledger, as increments, so that processes do not overwrite each other's
counts. `Learned` is what a method computes from a sample of rows, such as how rare words are.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.caches import put_latest
from langgraph_toolmem.base.errors import InputError, StorageError
from langgraph_toolmem.base.text import digest, dumps
from langgraph_toolmem.base.threads import this_step
from langgraph_toolmem.core.ledger import ALL, NO_TRACK, ItemStats
from langgraph_toolmem.core.users import User, Users
from langgraph_toolmem.stores.row_table import MovedError
from langgraph_toolmem.stores.vectors import (
    OWNERS,
    PART,
    Hit,
    SearchHit,
    VectorItem,
    VectorStore,
    batches,
)
from langgraph_toolmem.text.embedders import Embedder, clean

if TYPE_CHECKING:
    from langgraph_toolmem.core.ledger import Ledger
    from langgraph_toolmem.graph.events import Forgotten

logger = logging.getLogger("langgraph_toolmem.rows")

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Sizes of the work with rows.

    Attributes:
        near: default number of items of a search.
        most_near: the same if most of them are retired or alike.
        batch: rows that are read at once.
        room: oldest rows among which the least useful are removed, if there are too many.
        namespaces: latest used namespaces whose changes are remembered.
        remembered: changes of a namespace that are remembered one by one.
        refresh_seconds: interval after which others may have changed what is on a server.
        tries: times that a change is begun again if another process wrote to the same rows between reading and writing.
        sample: latest rows of which `Learned` learns.
        growth: share of changed items after which it learns again.
        learned: latest used namespaces for which it is in RAM.
    """

    near: int = 64
    most_near: int = 1_024
    batch: int = 1_000
    room: int = 10_000
    namespaces: int = 1_024
    remembered: int = 10_000
    refresh_seconds: float = 30.0
    tries: int = 20
    sample: int = 512
    growth: float = 0.1
    learned: int = 256


ROW_LIMITS: Final = RowLimits()
ROW: Final = "row"
"""Metadata of a row: everything but the text as JSON."""
DAMAGED: Final = (InputError, KeyError, TypeError, ValueError, AttributeError, IndexError)


class RowKind(ABC, Generic[T]):
    """Items of one kind as rows.

    Attributes:
        name: of the collections; unique among kinds.
        most: items kept per namespace; beyond it the hundredth with the least `worth` is removed.
    """

    name: ClassVar[str]
    most: int = 100_000

    @abstractmethod
    def row(self, item: T) -> VectorItem:
        """Return the row of an item: its id, the compared text, and the rest of it as JSON values."""

    @abstractmethod
    def item(self, row: Hit) -> T:
        """Return the item of a row; raise InputError, KeyError, TypeError or ValueError if the row is damaged."""

    def joined(self, old: T, new: T) -> T | None:
        """Join an item with a new one of the same id; None keeps the old one, because the new one is another user's."""
        return new

    def without(self, item: T, owner: str) -> T | None:
        """Return the item without a user or a run (digest); None if it is empty then."""
        return None

    def since(self, item: T, before: float) -> T | None:
        """Return the item without data older than a time (seconds since 1970): the item itself if all of it is newer;
        None if it is empty then.
        """
        return item if getattr(item, "time", before) >= before else None

    def tracked(self, item: T, track: ItemStats, others: ItemStats) -> T:
        """Return an item with its record, given the record of all other items of the method."""
        return item

    def retired(self, item: T) -> bool:
        """Return True if searches leave the item out; it stays stored, so that putting it again changes nothing."""
        return False

    def worth(self, item: T) -> Any:
        """Return the worth of an item: if there are too many, those with the least worth are removed first. By default
        the oldest.
        """
        return 0


@dataclass
class _Namespace:
    """The store of a namespace, with facts about its rows.

    Attributes:
        size: approximate number of rows; None if not counted.
        version: grows with each change, by this process and by others.
        written: rows that this process wrote or removed.
        looked: when a server was last assumed to have changed.
        state: of the collection at the last look (`VectorStore.state`).
        changed: ids of the latest changes.
    """

    store: VectorStore
    size: int | None = None
    version: int = 1
    written: int = 0
    looked: float = 0.0
    state: int | None = None
    changed: deque[str] = field(default_factory=partial(deque, maxlen=ROW_LIMITS.remembered))


@dataclass(frozen=True, slots=True)
class _Known(Generic[T]):
    """An existing row, and its item."""

    row: Hit
    item: T


class RowChanges(NamedTuple):
    """The present version of a user's rows, and the ids of those that changed; None if they are not known."""

    version: int
    ids: list[str] | None


@dataclass(frozen=True, slots=True)
class _Row(Generic[T]):
    """An item, with the key of its row and its record."""

    key: str
    item: T


@dataclass(frozen=True, slots=True)
class _ChangedRows:
    """Rows to write: those with a new text, and those of which only metadata or part changed."""

    texts: list[VectorItem] = field(default_factory=list)
    metadata: list[VectorItem] = field(default_factory=list)

    def add(self, row: VectorItem, before: Hit | None) -> None:
        # Embedding costs most: a row with an unchanged text keeps its vector.
        if before is None or before.text != row.text:
            self.texts.append(row)
        elif _differs(row, before):
            self.metadata.append(row)


class Rows(Generic[T]):
    """The items of one kind, of all users. Blocking: at a model call, `near` is called in a step.

    Every method raises `StorageError` if Chroma or the embedder fails, and leaves the rows unchanged then.
    """

    def __init__(
        self,
        kind: RowKind[T],
        vectors: VectorStore,
        ledger: Ledger,
        *,
        users: Users,
        now: Callable[[], float],
    ) -> None:
        self.kind = kind
        self._vectors, self._ledger, self._users, self._now = vectors, ledger, users, now
        self._writing = threads.rlock()  # during a change with its vectors and database calls; reads do not wait
        self._noting = threads.lock()  # guards `_Namespace`
        self._namespaces: OrderedDict[tuple[str, ...], _Namespace] = OrderedDict()

    def key(self, item: str, user: User) -> str:
        """Return the name of an item (its id) in the ledger: two users' items of one id have two records."""
        if not self._users.apart:
            return item
        return digest(*user.namespace, item)

    # --- writing ---

    def put(
        self, items: Iterable[T], user: User, *, vectors: Mapping[str, Sequence[float]] | None = None
    ) -> list[T | None]:
        """Keep items, or join them with those of the same id; return the current version of each.

        If it fails half-way, call it again. `vectors`: known vectors, by id.
        """
        given = [(self.kind.row(item).id, item) for item in items]

        # It runs again from the start if another process wrote in between: it must not keep rows that an earlier try
        # read.
        def join(space: _Namespace, seen: int | None) -> list[T | None]:
            known = self._read(space, [key for key, _ in given])
            joined = {key: before.item for key, before in known.items()}
            changed: dict[str, T] = {}
            answers: list[T | None] = []
            for key, new in given:
                now: T | None = new
                # Two of the given items may have one id: the second is joined with the first.
                if key in joined:
                    now = self.kind.joined(joined[key], new)
                if now is not None:
                    joined[key] = now
                    changed[key] = now
                answers.append(now)
            self._write(space, known, changed, user, vectors or {}, seen=seen)
            return answers

        with self._writing:
            answers = self._settled(join, user)
            self._make_room(self._space(user), user)
        return answers

    def _settled(self, change: Callable[[_Namespace, int | None], V], user: User) -> V:
        """Read and write rows, and try again if another process wrote to them in between."""
        space = self._space(user)
        for _ in range(ROW_LIMITS.tries - 1):
            try:
                return change(space, space.store.state(self.kind.name))
            except MovedError:
                continue
        # Other processes wrote between all of these tries: the last writer wins.
        return change(space, None)

    def change(self, ids: Iterable[str], how: Callable[[T], T | None], user: User) -> list[T]:
        """Change existing items, and remove those for which `how` returns None; return the others as they are now."""
        wanted = list(ids)

        def write(space: _Namespace, seen: int | None) -> list[T]:
            known = self._read(space, wanted)
            kept: dict[str, T] = {}
            removed: list[str] = []
            for key, before in known.items():
                now = how(before.item)
                if now is None:
                    removed.append(key)
                else:
                    kept[key] = now
            self._write(space, known, kept, user, seen=seen)
            self._remove(space, removed, user)
            return list(kept.values())

        with self._writing:
            return self._settled(write, user)

    def remove(self, ids: Sequence[str], user: User, *, scrub: bool = False) -> None:
        """Remove items, with `scrub` from the disk too; unknown ids are ignored."""
        with self._writing:
            space = self._space(user)
            self._remove(space, ids, user)
            if scrub and ids:
                space.store.scrub(self.kind.name)

    def forget(self, user: User, gone: Forgotten | None = None) -> int:
        """Remove a user's items, those of some runs, or all that are older than a time (`RowKind.since`), from the disk
        too; return how many were removed or changed.

        Raises:
            StorageError: data is left; call it again.
        """
        if self._vectors.empty:
            return 0
        if gone is not None and gone.before is not None:
            return self._forget_before(gone.before)
        with self._writing:
            if gone is not None and not gone.user:
                removed = sum(self.forget_of(run, user) for run in gone.runs)
            elif self._users.apart:
                removed = self._drop_all(user)
            else:
                removed = self.forget_of(user.digest or "", user)
            # Even without items: the last call may have failed here.
            self._space(user).store.scrub(self.kind.name)
        return removed

    def _drop_all(self, user: User) -> int:
        """Remove all rows of a namespace, which belongs to one user; return their number."""
        space = self._space(user)
        ids = space.store.ids(self.kind.name)
        space.store.drop(self.kind.name)
        self._left(space, ids, user)
        return len(ids)

    def _forget_before(self, before: float) -> int:
        """Remove data older than a time from all namespaces; return the number of changed items."""
        removed = 0
        for namespace in self._vectors.namespaces(self.kind.name):
            # Several memories may share one Chroma server.
            if self._users.has(namespace):
                removed += self._forget_before_in(User(None, None, namespace), before)
        return removed

    def _forget_before_in(self, user: User, before: float) -> int:
        def since(item: T) -> T | None:
            return self.kind.since(item, before)

        with self._writing:
            store = self._space(user).store
            old: list[str] = []
            for row in self._items(store.each(self.kind.name), None):
                if since(row.item) is not row.item:
                    old.append(row.key)
            for some in batches(old, ROW_LIMITS.batch):
                self.change(some, since, user)
            if old:
                store.scrub(self.kind.name)
        return len(old)

    def forget_of(self, owner: str, user: User) -> int:
        """Remove all data of a user or a run (digest), and verify its removal; return the number of changed items.

        Raises:
            InputError: the owner is "".
            StorageError: data is left.
        """
        if not owner:
            raise InputError(f"To forget {self.kind.name}, name the user or the run they belong to: the name is empty.")

        def remove(space: _Namespace, seen: int | None) -> int:
            ids = space.store.ids(self.kind.name, owner)
            known = self._read(space, ids)
            left: dict[str, T] = {}
            for key, before in known.items():
                item = self.kind.without(before.item, owner)
                if item is not None:
                    left[key] = item
            self._write(space, known, left, user, seen=seen)
            self._remove(space, [key for key in ids if key not in left], user)  # damaged ones too
            # Searched again: forgotten data must really be deleted.
            still = space.store.ids(self.kind.name, owner)
            if still:
                raise StorageError(f"{len(still)} {self.kind.name} could not be deleted. Forget them again.")
            return len(ids)

        with self._writing:
            return self._settled(remove, user)

    # --- reading ---

    def get(self, ids: Sequence[str], user: User) -> list[T]:
        """Return the existing items with these ids, retired ones too, in the given order."""
        return [row.item for row in self._items(self._space(user).store.get(self.kind.name, ids), user)]

    def all(self, user: User, *, retired: bool = False) -> Iterator[T]:
        """Yield all items, in the order of their first arrival."""
        for row in self._items(self._space(user).store.each(self.kind.name), user):
            if retired or not self.kind.retired(row.item):
                yield row.item

    def near(
        self,
        query: str | Sequence[float],
        user: User,
        *,
        k: int | None = ROW_LIMITS.near,
        vector: Sequence[float] | None = None,
        part: str = "",
        same: int | None = None,
    ) -> list[SearchHit[T]]:
        """Return the `k` items whose texts are most similar to `query`, best first; retired ones are left out.

        If more than three quarters of `k` rows are retired, up to `RowLimits.most_near` are read.

        Args:
            query: a text, or its vector (`embedder`).
            user: owner of the items.
            k: number of items; None returns all, which takes long if there are many.
            vector: vector of the text, if it is known already.
            part: of the texts (`VectorItem.part`).
            same: the items of the `k` most similar *texts* (on a server `k` items), at most so many of each.
        """
        if self._vectors.empty:
            return []
        space, name = self._space(user), self.kind.name
        if vector is None and isinstance(query, str):
            vector = self.embedder.embed_query(query)
        count = k
        if count is None:
            count = space.store.count(name)

        def search(number: int) -> list[SearchHit[T]]:
            return space.store.query(name, query, k=number, vector=vector, part=part, read=self._read_row, same=same)

        # At a model call, a server is asked once: a second round trip would make the user wait.
        if k is None or self.waits_little:
            hits = self._not_retired(search(count), user)
        else:
            hits = self._enough_hits(search, count, user)
        if same is None:
            return hits[:k]
        return hits

    def _enough_hits(self, search: Callable[[int], list[SearchHit[T]]], count: int, user: User) -> list[SearchHit[T]]:
        """Search for more rows as long as more than three quarters of those wanted are retired."""
        least = max(1, count // 4)
        while True:
            rows = search(count)
            hits = self._not_retired(rows, user)
            if len(hits) >= least or len(rows) < count or count >= ROW_LIMITS.most_near:
                return hits
            # Chroma cannot leave out retired rows, because their records are in the ledger. So more rows are requested.
            count *= 4

    def _not_retired(self, rows: Sequence[SearchHit[T]], user: User) -> list[SearchHit[T]]:
        """Return rows with the items' records, without retired items."""
        hits: list[SearchHit[T]] = []
        tracked = self._tracked([_Row(row.id, row.item) for row in rows], user)
        for row, known in zip(rows, tracked, strict=True):
            if not self.kind.retired(known.item):
                hits.append(SearchHit(known.item, row.id, row.similarity))
        return hits

    def of(self, owner: str, user: User) -> list[T]:
        """Return the items that name a user or a run (digest) as their owner; see `VectorItem.owners`."""
        hits = self._space(user).store.each(self.kind.name, owner=owner)
        return [row.item for row in self._items(hits, user)]

    @property
    def embedder(self) -> Embedder:
        """The embedder of texts and questions."""
        return self._vectors.embedder

    def count(self, user: User) -> int:
        """Return the number of items in a user's namespace, including retired ones."""
        return self._space(user).store.count(self.kind.name)

    def size(self, user: User) -> int:
        """Return the approximate number of items: counted once, and updated with this process's changes."""
        space = self._space(user)
        if space.size is None:
            space.size = space.store.count(self.kind.name)
        return space.size

    @property
    def waits_little(self) -> bool:
        """True if a step asks and the rows are on a server: it should request few of them."""
        return self._vectors.chroma.remote is not None and this_step() is not None

    def latest(self, user: User, most: int) -> list[T]:
        """Return approximately this number of a user's latest items."""
        start = max(0, self.count(user) - most)
        return [row.item for row in self._items(self._space(user).store.each(self.kind.name, start=start), user)]

    def changes(self, since: int, user: User) -> RowChanges:
        """Return a version, and the ids of the items that this process changed or removed after another version.

        The ids are None for version 0, after too many changes, and if other processes may have written. Jobs may be
        done out of order: to find the latest items, compare their own times.
        """
        space = self._space(user)
        with self._noting:
            number = space.version - since
            first = len(space.changed) - number
            if number < 0 or first < 0:
                return RowChanges(space.version, None)
            return RowChanges(space.version, list(dict.fromkeys(islice(space.changed, first, None))))

    def written(self, user: User) -> int:
        """Return the number of a user's items that this process wrote or removed."""
        return self._space(user).written

    def version(self, user: User) -> int:
        """Return a number that differs after a change of a user's items by any process; on a server also from time to
        time.
        """
        return self._space(user).version

    def _space(self, user: User) -> _Namespace:
        with self._noting:
            space = self._namespaces.get(user.namespace)
            if space is None:
                space = _Namespace(self._vectors.scoped(user.namespace))
            put_latest(self._namespaces, user.namespace, space, ROW_LIMITS.namespaces)
            if self._is_outdated(space):
                space.size = None
                space.version += ROW_LIMITS.remembered + 1  # older than the remembered changes
            return space

    def _is_outdated(self, space: _Namespace) -> bool:
        """Return True if others wrote since the last call; on a server, if they may have written."""
        state, before = space.store.state(self.kind.name), space.state
        space.state = state
        # Rows of a folder have a counter that every process increments. A server does not report the changes of others.
        if state is not None:
            return before not in (None, state)
        if not self._vectors.chroma.given or 0 <= self._now() - space.looked < ROW_LIMITS.refresh_seconds:
            return False
        space.looked = self._now()
        return True

    def _expect_move(self, space: _Namespace) -> None:
        """Record that the collection's counter will grow by one: any other change is another process's."""
        with self._noting:
            if space.state is not None:
                space.state += 1

    def _read_row(self, hit: Hit) -> T | None:
        try:
            return self.kind.item(Hit(hit.id, hit.text, json.loads(hit.metadata[ROW])))
        except DAMAGED:
            logger.warning("a row of %s is damaged; left out", self.kind.name)
            return None

    def _items(self, hits: Iterable[Hit], user: User | None) -> Iterator[_Row[T]]:
        """Yield the items of rows, with their records if their user is named; damaged rows are left out."""
        for batch in batches(hits, ROW_LIMITS.batch):
            rows: list[_Row[T]] = []
            for hit in batch:
                item = self._read_row(hit)
                if item is not None:
                    rows.append(_Row(hit.id, item))
            yield from self._tracked(rows, user)

    def _tracked(self, batch: list[_Row[T]], user: User | None) -> list[_Row[T]]:
        if user is None or not self._ledger.tracked(self.kind.name):
            return batch
        names = [self.key(row.key, user) for row in batch]
        whole, *tracks = self._ledger.tracks(self.kind.name, [ALL, *names])
        tracked: list[_Row[T]] = []
        for row, track in zip(batch, tracks, strict=True):
            item = row.item
            if track != NO_TRACK:
                item = self.kind.tracked(item, track, _without(whole, track))
            tracked.append(_Row(row.key, item))
        return tracked

    def _read(self, space: _Namespace, ids: Sequence[str]) -> dict[str, _Known[T]]:
        known: dict[str, _Known[T]] = {}
        for hit in space.store.get(self.kind.name, ids):
            item = self._read_row(hit)
            if item is not None:
                known[hit.id] = _Known(hit, item)
        return known

    def _write(
        self,
        space: _Namespace,
        known: Mapping[str, _Known[T]],
        items: Mapping[str, T],
        user: User,
        vectors: Mapping[str, Sequence[float]] = MappingProxyType({}),
        *,
        seen: int | None = None,
    ) -> None:
        """Write items: completely if the text is new, otherwise only changed metadata and parts."""
        changed = _ChangedRows()
        for key, item in items.items():
            before = None
            if key in known:
                before = known[key].row
            changed.add(self._packed(item, before, user), before)
        if changed.texts:
            self._expect_move(space)
            space.store.upsert(self.kind.name, changed.texts, vectors=vectors, seen=seen)
            seen = None  # the rest is of the same reading
        if changed.metadata:
            self._expect_move(space)
            space.store.amend(self.kind.name, changed.metadata, seen=seen)
        if space.size is not None:
            space.size += len({row.id for row in changed.texts} - known.keys())
        self._note(space, [row.id for row in (*changed.texts, *changed.metadata)])

    def _packed(self, item: T, before: Hit | None, user: User) -> VectorItem:
        row = self.kind.row(item)
        owners = row.owners
        # Owners are only added here: an item from two users' runs is forgotten with the last of them.
        if owners is None:
            everybody: set[str] = set()
            if before is not None:
                everybody.update(before.metadata.get(OWNERS) or ())
            if user.digest is not None:
                everybody.add(user.digest)
            owners = tuple(sorted(everybody))
        plain = clean(dumps(dict(row.metadata), ensure_ascii=False))
        return VectorItem(row.id, clean(row.text), {ROW: plain, OWNERS: list(owners) or None}, row.part, owners)

    def _remove(self, space: _Namespace, ids: Sequence[str], user: User) -> None:
        if ids:
            self._expect_move(space)
            space.store.delete(self.kind.name, ids)
            self._left(space, ids, user)

    def _left(self, space: _Namespace, ids: Sequence[str], user: User) -> None:
        # Unknown ids are ignored, so the remaining number is unknown.
        space.size = None
        self._note(space, ids)
        self._ledger.drop(self.kind.name, [self.key(key, user) for key in ids])

    def _note(self, space: _Namespace, ids: Collection[str]) -> None:
        with self._noting:
            space.version += len(ids)
            space.written += len(ids)
            space.changed.extend(ids)

    def _make_room(self, space: _Namespace, user: User) -> None:
        """Beyond `most`, remove a hundredth: the least useful of the oldest rows."""
        size = self.size(user)
        if size <= self.kind.most:
            return

        def usefulness(row: _Row[T]) -> tuple[bool, Any]:
            return not self.kind.retired(row.item), self.kind.worth(row.item)

        # A hundredth more than needed, so that the next rows do not cause the same work again.
        wanted = size - self.kind.most + self.kind.most // 100
        oldest = islice(space.store.each(self.kind.name), max(ROW_LIMITS.room, 2 * wanted))
        least_useful = sorted(self._items(oldest, user), key=usefulness)[:wanted]
        self._remove(space, [row.key for row in least_useful], user)


def _differs(row: VectorItem, before: Hit) -> bool:
    """Return True if a row's part, or a value of its metadata, has changed."""
    if row.part != before.metadata.get(PART, ""):
        return True
    return any(before.metadata.get(name) != value for name, value in row.metadata.items())


def _without(whole: ItemStats, part: ItemStats) -> ItemStats:
    return ItemStats(*(a - b for a, b in zip(whole, part, strict=True)))


@dataclass(frozen=True, slots=True)
class _LearnedValue(Generic[V]):
    """The result learned from rows, with the number of rows and of this process's writes at that time."""

    value: V
    size: int
    written: int


class Learned(Generic[T, V]):
    """The result of `learn` for a user's latest rows; recomputed when a tenth of them changed. Thread-safe."""

    def __init__(self, rows: Rows[T], learn: Callable[[Sequence[T]], V]) -> None:
        self._rows, self._learn = rows, learn
        self._lock = threads.lock()
        self._purges = 0
        self._known: OrderedDict[tuple[str, ...], _LearnedValue[V]] = OrderedDict()

    def of(self, user: User) -> V:
        """Return the learned result for a user; raise StorageError if Chroma fails, or a step cannot wait."""
        size, written = self._rows.size(user), self._rows.written(user)
        with self._lock:
            purges, known = self._purges, self._known.get(user.namespace)
            if known is not None:
                self._known.move_to_end(user.namespace)
                changed = max(abs(size - known.size), written - known.written)
                if changed <= ROW_LIMITS.growth * known.size:
                    return known.value
        value = self._learn(self._rows.latest(user, ROW_LIMITS.sample))
        with self._lock:
            if purges == self._purges:
                put_latest(self._known, user.namespace, _LearnedValue(value, size, written), ROW_LIMITS.learned)
        return value

    def forget(self) -> None:
        """Drop the learned results."""
        with self._lock:
            self._purges += 1
            self._known.clear()
