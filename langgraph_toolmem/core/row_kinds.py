"""Kinds of rows: how an item is kept as a row of text, how two of one id join, who leaves first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from langgraph_toolmem.core.ledger import Track
from langgraph_toolmem.stores.items import Hit, VectorItem

T = TypeVar("T")


class RowKind(ABC, Generic[T]):
    """Items of one kind as rows.

    Attributes:
        name: of the collections; unlike any other kind's.
        most: items kept per namespace; beyond them a hundredth goes, those of the least `worth`.
    """

    name: ClassVar[str]
    most: int = 100_000

    @abstractmethod
    def row(self, item: T) -> VectorItem:
        """The row of an item: its id, the text that is compared, and the rest of it as JSON values."""

    @abstractmethod
    def item(self, row: Hit) -> T:
        """The item of a row.

        Raises:
            InputError, KeyError, TypeError, ValueError: the row is damaged.
        """

    def joined(self, old: T, new: T) -> T | None:
        """What stands when an item of the same id is put again; None: the old one, as the new is somebody else's."""
        return new

    def without(self, item: T, owner: str) -> T | None:
        """What is left of an item when a user or a run (digest) is forgotten; None: nothing."""
        return None

    def since(self, item: T, before: float) -> T | None:
        """What is left of an item without what is older than a time (seconds since 1970): the item itself if all is;
        None: nothing."""
        return item if getattr(item, "time", before) >= before else None

    def tracked(self, item: T, track: Track, others: Track) -> T:
        """The item with its record.

        Args:
            item: as it is stored.
            track: what became of it.
            others: the same of all other items of the method.
        """
        return item

    def retired(self, item: T) -> bool:
        """Whether it is not to be found any more; it keeps its place, so that putting it again changes nothing."""
        return False

    def worth(self, item: T) -> Any:
        """How much it is worth keeping: the least goes first. By default those that came first."""
        return 0


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


class RowChanges(NamedTuple, Generic[T]):
    """What changed after a version.

    Attributes:
        version: to be asked with the next time.
        whole: `items` are the latest there are: forget what was known before.
        items: new and changed ones, without those that are retired.
        gone: ids of those removed or retired.
    """

    version: int
    whole: bool
    items: list[T]
    gone: list[str]
