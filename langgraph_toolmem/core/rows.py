"""Rows of texts in Chroma, for methods that keep things: one implementation for every kind.

A `RowKind` says how an item becomes a row and a row an item. ``core.rows(kind)`` keeps them per user, each user's in
the collections of their namespace, finds the nearest to a text, and forgets a user.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.items import VectorItem

if TYPE_CHECKING:
    from langgraph_toolmem.core.users import User
    from langgraph_toolmem.stores.items import Hit
    from langgraph_toolmem.stores.vectors import VectorStore

T = TypeVar("T")

USER: Final = "user"
"""Metadata of a row: digest of the user whose it is, so that `Rows.forget` finds it in a namespace shared by all."""


class RowKind(ABC, Generic[T]):
    """Items of one kind as rows.

    Attributes:
        name: of the collections; unlike any other kind's.
    """

    name: ClassVar[str]

    @abstractmethod
    def row(self, item: T) -> VectorItem:
        """The row of an item: its id, the text that is compared, and the rest of it as metadata."""

    @abstractmethod
    def item(self, row: Hit) -> T:
        """The item of a row."""


class Near(NamedTuple, Generic[T]):
    """An item that was found.

    Attributes:
        item: the item.
        id: of its row.
        similarity: cosine of its text and the query, -1 to 1.
    """

    item: T
    id: str
    similarity: float


class Rows(Generic[T]):
    """The items of one kind, of all users. Blocking: at a model call, what is near is asked for in a step.

    Args:
        kind: of the items.
        vectors: Chroma.
        apart: each user has a namespace.
        read_only: nothing is written.
    """

    def __init__(self, kind: RowKind[T], vectors: VectorStore, *, apart: bool, read_only: bool) -> None:
        self.kind = kind
        self._vectors, self._apart, self._read_only = vectors, apart, read_only

    def put(self, items: Iterable[T], user: User) -> int:
        """Keeps items; of two with one id the later. Returns how many were given.

        Raises:
            StorageError: they cannot be stored, or the memory is read-only.
        """
        if self._read_only:
            raise StorageError(f"The memory is read-only: no {self.kind.name} can be kept.")
        made = [self.kind.row(item) for item in items]
        mine: dict[str, Any] = {} if user.digest is None else {USER: user.digest}
        self._of(user).upsert(
            self.kind.name, [VectorItem(each.id, each.text, {**each.metadata, **mine}) for each in made]
        )
        return len(made)

    def get(self, ids: Sequence[str], user: User) -> list[T]:
        """The items with these ids that are there, in the order asked."""
        return [self.kind.item(row) for row in self._of(user).get(self.kind.name, ids)]

    def near(self, query: str, user: User, *, k: int = 64) -> list[Near[T]]:
        """The `k` items whose texts are most similar to `query`, best first."""
        if self._vectors.empty:
            return []
        found = self._of(user).query(self.kind.name, query, k=k)
        return [Near(self.kind.item(row), row.id, row.similarity) for row in found]

    def count(self, user: User) -> int:
        """How many items there are in a user's namespace."""
        return 0 if self._vectors.empty else self._of(user).count(self.kind.name)

    def remove(self, ids: Sequence[str], user: User) -> None:
        """Takes items away; ids that are not there are no error."""
        self._of(user).delete(self.kind.name, ids)

    def forget(self, user: User) -> int:
        """Removes a user's items, from the disk too; returns how many.

        Raises:
            StorageError: something is left.
        """
        if self._vectors.empty:
            return 0
        store, name = self._of(user), self.kind.name
        rows = store.get(name)
        gone = [row.id for row in rows if self._apart or row.metadata.get(USER) == user.digest]
        if len(gone) == len(rows):
            store.drop(name)
        elif gone:
            store.delete(name, gone)
        store.scrub(name)
        return len(gone)

    def _of(self, user: User) -> VectorStore:
        return self._vectors.scoped(user.namespace)
