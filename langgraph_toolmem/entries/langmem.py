"""A store that langmem and a memory share: langmem's tools and managers find the entries of past runs.

>>> from langgraph.store.memory import InMemoryStore
>>> from langgraph_toolmem import ToolMemory
>>> store = EntryBaseStore(ToolMemory.ephemeral(), ("memories",), inner=InMemoryStore())
>>> store.put(("memories",), "1", {"content": "Ann likes tea"})
>>> [item.value["content"] for item in store.search(("memories",))]
['Ann likes tea']

langmem's tools over it: ``create_search_memory_tool(store.namespace, store=store)``. langmem takes
``{langgraph_user_id}`` only from ``config["configurable"]``, and raises a ``BaseException`` if it is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime, timezone
from itertools import zip_longest
from operator import attrgetter
from typing import Any, Final

from langgraph.store.base import BaseStore, GetOp, Op, Result, SearchItem, SearchOp

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.users import has_user, user_digest
from langgraph_toolmem.entries import Entries, RecallPolicy
from langgraph_toolmem.entries.entry import Entry, to_text, verdict_of
from langgraph_toolmem.turn.host import ErrorLog

logger = logging.getLogger("langgraph_toolmem.entries.langmem")

ENTRY_KEY: Final = "run-"
"""Keys of entries begin with it."""
USER_LABEL: Final = "{langgraph_user_id}"

StoreNamespace = tuple[str, ...]


class EntryBaseStore(BaseStore):
    """A LangGraph store that shows the entries of a memory together with the items of another store.

    The entries of a user are in `namespace` with the user's id in place of ``{langgraph_user_id}``, with keys
    ``run-<id>``. A search there gives both alternately, the other store's items first; entries have no score, and
    without a query they come newest first. They are read-only: put items are stored in `inner`, and an item under the
    key of an entry replaces the entry in results.

    An item of an entry: ``{"kind": "Memory", "content": {"content": text}, "verdict": "good" | "failed" |
    "unjudged", "tools": [...]}``. ``filter`` compares these for equality.

    Args:
        memory: a `ToolMemory` with `Entries`.
        namespace: as for langmem's tools.
        inner: the store of langmem's own memories.

    Raises:
        ConfigurationError: the memory does not have `Entries`, or its entries belong to users and the namespace has no
            place for a user.
    """

    def __init__(self, memory: Any, namespace: StoreNamespace = ("memories", USER_LABEL), *, inner: BaseStore) -> None:
        entries = getattr(memory, "entries", None)
        if not isinstance(entries, Entries):
            raise ConfigurationError(
                f"EntryBaseStore takes a ToolMemory, not {type(memory).__name__}; it must have the method Entries."
            )
        if USER_LABEL not in namespace and has_user(entries.core.users.namespace):
            raise ConfigurationError(
                f'`namespace` must have a place for users, whose entries they are: ("memories", "{USER_LABEL}").'
            )
        self.namespace, self.inner, self._entries = namespace, inner, entries
        self._errors = ErrorLog(type(self).__name__, logger)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer operations: from the other store, and for gets and searches from the entries as well."""
        given = list(ops)
        theirs = self.inner.batch(_for_inner(given))
        return self._answers(given, theirs)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async variant of `batch`."""
        given = list(ops)
        theirs = await self.inner.abatch(_for_inner(given))
        # In a thread: the entries wait for the disk, and for running jobs.
        return await asyncio.to_thread(self._answers, given, theirs)

    def _answers(self, ops: list[Op], theirs: list[Result]) -> list[Result]:
        answers = []
        for op, result in zip(ops, theirs, strict=True):
            answers.append(self._answer(op, result))
        return answers

    def _answer(self, op: Op, theirs: Any) -> Any:
        if isinstance(op, SearchOp):
            return self._searched(op, theirs)
        # An item that was put under the key of an entry replaces it.
        if isinstance(op, GetOp) and theirs is None and op.key.startswith(ENTRY_KEY):
            items = self._items(op, op.namespace)
            if items:
                return items[0]
        return theirs

    def _searched(self, op: SearchOp, theirs: list[SearchItem]) -> list[SearchItem]:
        """Return the other store's items and the entries alternately, because their scores are not comparable."""
        ours = {item.key: item for item in self._items(op, op.namespace_prefix)}
        for item in theirs:
            ours.pop(item.key, None)
        both: list[SearchItem] = []
        for their_item, our_item in zip_longest(theirs, ours.values()):
            if their_item is not None:
                both.append(their_item)
            if our_item is not None:
                both.append(our_item)
        # Cut here: the other store was asked for all items up to the end of the page (`_for_inner`).
        return both[op.offset : op.offset + op.limit]

    def _items(self, op: GetOp | SearchOp, place: StoreNamespace) -> list[SearchItem]:
        """Return the entries at a place: the one with the key, those that a query finds, or all; empty on any error."""
        if not self._is_here(place):
            return []
        user = None
        if USER_LABEL in self.namespace:
            user = place[self.namespace.index(USER_LABEL)]
        with self._errors:
            items = []
            for entry in self._entries_for(op, user):
                # In a namespace that users share, the results include rows of other users.
                if user is None or entry.user == user_digest(user):
                    items.append(_item(entry, place))
            return _matching(items, op)
        return []

    def _is_here(self, place: StoreNamespace) -> bool:
        """Return True if a place is the namespace, with a user in place of the label."""
        if USER_LABEL in place or len(place) != len(self.namespace):
            return False
        for label, given in zip(self.namespace, place, strict=True):
            if not given or label not in (USER_LABEL, given):
                return False
        return True

    def _entries_for(self, op: GetOp | SearchOp, user: str | None) -> list[Entry]:
        rows = self._entries.rows
        owner = self._entries.core.users.of(user, warn=False)
        self._entries.core.jobs.settle()  # runs that this process has just finished are found
        if isinstance(op, GetOp):
            known = rows.get([op.key.removeprefix(ENTRY_KEY)], owner)
            return [entry for entry in known if not entry.retired]
        if op.query:
            # Models use their own words, so a search is less strict than recall.
            return self._entries.recall(op.query, user_id=user, policy=RecallPolicy(least=0.02, max_n=64))
        return sorted(rows.all(owner), key=attrgetter("time"), reverse=True)


def _for_inner(ops: Iterable[Op]) -> list[Op]:
    """Return the operations for the other store."""
    changed: list[Op] = []
    for op in ops:
        # A page of two stores that alternate may begin anywhere in the other one: it gives all before the page's end.
        if isinstance(op, SearchOp):
            op = op._replace(limit=op.offset + op.limit, offset=0)
        changed.append(op)
    return changed


def _matching(items: list[SearchItem], op: GetOp | SearchOp) -> list[SearchItem]:
    """Return the items that have the values of an operation's filter."""
    if not isinstance(op, SearchOp) or not op.filter:
        return items
    wanted = op.filter.items()
    return [item for item in items if wanted <= item.value.items()]


def _item(entry: Entry, namespace: StoreNamespace) -> SearchItem:
    value = {
        "kind": "Memory",
        "content": {"content": to_text(entry)},
        "verdict": verdict_of(entry) or "unjudged",
        "tools": list(entry.tools),
    }
    when = datetime.fromtimestamp(entry.time, tz=timezone.utc)
    return SearchItem(namespace, f"{ENTRY_KEY}{entry.id}", value, when, when)
