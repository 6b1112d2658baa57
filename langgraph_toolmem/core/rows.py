"""Rows of texts in Chroma, for methods that keep things: one implementation for every kind (`row_kinds`).

A `RowKind` says how an item becomes a row and a row an item, how two of one id join, and who leaves first.
``core.rows(kind)`` keeps them per user, each user's in a collection of their namespace, finds the nearest to a text,
and forgets a user. Nothing is held in RAM: Chroma is asked. What is counted of an item (shown, followed, helped) is in
the ledger, as increments of its own, so that nobody overwrites what another process counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from langgraph_toolmem.base.errors import InputError, StorageError
from langgraph_toolmem.base.waits import this_step
from langgraph_toolmem.core.row_kinds import Near, RowChanges
from langgraph_toolmem.core.row_places import BATCH, OWNERS, REMEMBERED, RowPlaces
from langgraph_toolmem.core.users import User
from langgraph_toolmem.stores.items import Hit

if TYPE_CHECKING:
    from langgraph_toolmem.graph.operations import Forgotten

T = TypeVar("T")

NEAR: Final = 64
"""Rows that are looked at for a question."""
ABOUT: Final = 64
"""Rows by which the order of writing may differ from that of the runs."""
USERS: Final = 16
"""Users of whom some items are looked at."""
MOST_NEAR: Final = 1_024
"""The same where most of them are retired, or say the same."""


class Rows(RowPlaces[T]):
    """The items of one kind, of all users. Blocking: at a model call, what is near is asked for in a step.

    Every method raises `StorageError` where Chroma or the embedder fails; nothing is changed then.
    """

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

    def forget(self, user: User, gone: Forgotten | None = None) -> int:
        """Removes a user's items, from the disk too; how many were removed or changed.

        Args:
            user: whose items.
            gone: only those of some runs, or those of all users that are older than a time (`RowKind.since`).

        Raises:
            StorageError: something is left.
        """
        if self._vectors.empty:
            return 0
        if gone is not None and gone.before is not None:
            return self._forget_before(gone.before)
        if gone is not None and not gone.user:
            removed = sum(self.forget_of(run, user) for run in gone.runs)
            self._scrub(user)  # whatever was found: the last time it may have failed behind this point
            return removed
        with self._changing(user) as place:
            if self.apart:
                ids = place.store.ids(self.kind.name)
                place.store.drop(self.kind.name)
                self._left(place, ids, user)
                removed = len(ids)
            else:
                removed = self.forget_of(user.digest or "", user)
            place.store.scrub(self.kind.name)
        return removed

    def _forget_before(self, before: float) -> int:
        name, removed = self.kind.name, 0
        for space in self._vectors.namespaces(name, most=None):
            user = User(None, None, space)
            if self._users.has(space):
                rows = self._items(self._place(user).store.each(name), None)
                old = [hit.id for hit, item in rows if self.kind.since(item, before) is not item]
                for start in range(0, len(old), BATCH):
                    self.change(old[start : start + BATCH], lambda item: self.kind.since(item, before), user)
                if old:
                    self._scrub(user)
                removed += len(old)
        return removed

    def _scrub(self, user: User) -> None:
        with self._changing(user) as place:
            place.store.scrub(self.kind.name)

    def forget_of(self, owner: str, user: User, *, scrub: bool = False) -> int:
        """Takes away what comes from a user or a run (digest), and makes sure that it is gone, with `scrub` from the
        disk too; from how many items.

        Raises:
            InputError: nobody is named.
            StorageError: something is left.
        """
        if not owner:
            raise InputError(f"Whose {self.kind.name} are to be forgotten? Nobody is named.")
        where = {OWNERS: {"$contains": owner}}
        with self._changing(user) as place:
            ids = place.store.ids(self.kind.name, where)
            known = self._read(place, ids)
            left = {key: self.kind.without(item, owner) for key, (_, item) in known.items()}
            stands = {key: item for key, item in left.items() if item is not None}
            self._write(place, known, stands, user)
            self._remove(place, [key for key in ids if key not in stands], user)  # damaged ones too
            if still := place.store.ids(self.kind.name, where):
                raise StorageError(f"{len(still)} {self.kind.name} could not be deleted. Do it again.")
            if scrub and ids:
                place.store.scrub(self.kind.name)
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
        least = max(1, count // 4) if enough is None else enough
        while True:
            hits = self._nearest(place, vector, count, part)
            found = [
                Near(item, hit.id, hit.similarity)
                for hit, item in self._items(hits, user)
                if not self.kind.retired(item) and (fits is None or fits(item))
            ]
            if k is None or self.waits_little or len(found) >= least or len(hits) < count or count >= MOST_NEAR:
                return found[:k]
            count *= 4

    def of(self, owner: str, user: User) -> list[T]:
        """The items that name somebody or something (digest) as their owner; see `VectorItem.owners`."""
        if self._vectors.empty:
            return []
        hits = self._place(user).store.get(self.kind.name, where={OWNERS: {"$contains": owner}})
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

    def size(self, user: User) -> int:
        """About how many items there are: as counted once, and as this process changed it since."""
        if self._vectors.empty:
            return 0
        place = self._place(user)
        if place.size is None:
            place.size = place.store.count(self.kind.name)
        return place.size

    @property
    def waits_little(self) -> bool:
        """Whether a step asks, and the rows are on a server: not for many of them."""
        return self._vectors.remote is not None and this_step() is not None

    def sample(self, user: User | None, most: int) -> list[T]:
        """Items from all over a namespace, or of some users if None is named; at most about so many."""
        if self._vectors.empty:
            return []
        name = self.kind.name
        if user is None:
            spaces = [each for each in self._vectors.namespaces(name) if self._users.has(each)][:USERS]
            stores = map(self._vectors.scoped, spaces)
            some = [each.some(name, start=0, size=most // len(spaces)) for each in stores]
            return [item for page in some for _, item in self._items(page, None)]
        store = self._place(user).store
        count, windows = store.count(name), 3  # the farther back one begins, the longer Chroma takes
        if count <= most:
            return [item for _, item in self._items(store.each(name), user)]
        size = max(1, most // windows)
        starts = [window * (count - size) // (windows - 1) for window in range(windows)]
        pages = (store.some(name, start=start, size=size) for start in starts)
        return [item for page in pages for _, item in self._items(page, user)]

    def changes(self, since: int, user: User, *, most: int) -> RowChanges[T]:
        """What this process changed after a version; the latest `most` items and some if that was too long ago, or 0.

        Jobs may be done in another order than they came: who wants the latest looks at the items' own times.
        """
        if self._vectors.empty:
            return RowChanges(0, True, [], [])
        place, name = self._place(user), self.kind.name
        with self._noting:
            if self._refresh is not None and not 0 <= self._now() - place.looked < self._refresh:
                place.looked, place.version = self._now(), place.version + REMEMBERED + 1
            back, version = place.version - since, place.version
            ids = list(dict.fromkeys(list(place.changed)[max(0, len(place.changed) - back) :]))
        whole = not 0 <= back <= len(place.changed)
        if whole:
            start = max(0, place.store.count(name) - most - ABOUT)
            hits: Iterable[Hit] = place.store.each(name, start=start)
        else:
            hits = place.store.get(name, ids)
        found = {hit.id: item for hit, item in self._items(hits, user) if not self.kind.retired(item)}
        gone = [] if whole else [key for key in ids if key not in found]
        return RowChanges(version, whole, list(found.values()), gone)

    def version(self, user: User | None) -> int:
        """Another number after every change by this process, of a user's items or of any."""
        return self._changes if user is None else self._place(user).version
