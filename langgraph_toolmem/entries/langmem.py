"""A store that langmem and a memory share: langmem's tools and managers find the entries of past runs.

>>> from langgraph.store.memory import InMemoryStore
>>> from langgraph_toolmem import ToolMemory
>>> store = EntryBaseStore(ToolMemory.ephemeral(), ("memories",), inner=InMemoryStore())
>>> store.put(("memories",), "1", {"content": "Ann likes tea"})
>>> [item.value["content"] for item in store.search(("memories",))]
['Ann likes tea']

langmem's tools over it: ``create_search_memory_tool(store.namespace, store=store)``. langmem takes
``{langgraph_user_id}`` from ``config["configurable"]`` alone, and raises a ``BaseException`` where it is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime, timezone
from itertools import chain, zip_longest
from typing import Any, Final

from langgraph.store.base import BaseStore, GetOp, Op, Result, SearchItem, SearchOp

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.users import has_user, user_digest
from langgraph_toolmem.entries import Entries, RecallPolicy
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.entries.render import to_text
from langgraph_toolmem.turn.host import ErrorLog

logger = logging.getLogger("langgraph_toolmem.entries.langmem")

ENTRY: Final = "run-"
"""Keys of entries begin with it."""
SEARCH: Final = RecallPolicy(least=0.02, max_n=64)
"""Models ask in words of their own, so a search is less strict than recall."""
USER: Final = "{langgraph_user_id}"

Namespace = tuple[str, ...]


class EntryBaseStore(BaseStore):
    """A LangGraph store that shows the entries of a memory next to what is in another store.

    The entries of a user stand in `namespace` with the user's id in the place of ``{langgraph_user_id}``, with keys
    ``run-<id>``. A search there gives both alternately, the other store's items first; entries have no score, and
    without a query they come newest first. They are read-only: all that is put is kept in `inner`, and what is put
    under the key of an entry is found in its place.

    An item of an entry: ``{"kind": "Memory", "content": {"content": text}, "verdict": "good" | "failed" |
    "unjudged", "tools": [...]}``. ``filter`` compares these for equality.

    Args:
        memory: a `ToolMemory` with `Entries`.
        namespace: as for langmem's tools.
        inner: the store of langmem's own memories.

    Raises:
        ConfigurationError: the memory has no entries, or they belong to users and the namespace names none.
    """

    def __init__(self, memory: Any, namespace: Namespace = ("memories", USER), *, inner: BaseStore) -> None:
        if not isinstance(entries := getattr(memory, "entries", None), Entries):
            raise ConfigurationError(f"EntryBaseStore takes a ToolMemory, not {type(memory).__name__}.")
        if USER not in namespace and has_user(entries.core.users.namespace):
            raise ConfigurationError(f'The entries belong to users: namespace=("memories", "{USER}") names them.')
        self.namespace, self.inner, self._entries = namespace, inner, entries
        self._errors = ErrorLog(type(self).__name__, logger)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer operations: from the other store, and for gets and searches from the entries as well."""
        given = list(ops)
        return list(map(self._answer, given, self.inner.batch(list(map(_for_inner, given)))))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async variant of `batch`."""
        given = list(ops)
        theirs = await self.inner.abatch(list(map(_for_inner, given)))
        return await asyncio.to_thread(lambda: list(map(self._answer, given, theirs)))

    def _answer(self, op: Op, theirs: Any) -> Any:
        if isinstance(op, SearchOp):
            taken = {item.key for item in theirs}
            ours = [item for item in self._items(op, op.namespace_prefix) if item.key not in taken]
            both = chain.from_iterable(zip_longest(theirs, ours))
            return [item for item in both if item is not None][op.offset : op.offset + op.limit]
        if isinstance(op, GetOp) and theirs is None and op.key.startswith(ENTRY):
            return next(iter(self._items(op, op.namespace)), None)
        return theirs

    def _items(self, op: GetOp | SearchOp, place: Namespace) -> list[SearchItem]:
        """Return the entries at a place: the one with the key, those that a query finds, or all; none on any error."""
        labels = zip_longest(self.namespace, place)
        if USER in place or not all(mine and label in (USER, mine) for label, mine in labels):
            return []
        user = place[self.namespace.index(USER)] if USER in self.namespace else None
        rows = self._entries.rows
        try:
            owner = self._entries.core.users.of(user, warn=False)
            self._entries.core.jobs.settle()  # what was finished in this process is found
            if isinstance(op, GetOp):
                found = [entry for entry in rows.get([op.key.removeprefix(ENTRY)], owner) if not entry.retired]
            elif op.query:
                found = self._entries.recall(op.query, user_id=user, policy=SEARCH)
            else:
                found = sorted(rows.all(owner), key=lambda entry: -entry.time)
            items = [_item(entry, place) for entry in found if user is None or entry.user == user_digest(user)]
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return []
        wanted = (isinstance(op, SearchOp) and op.filter) or {}
        return [item for item in items if wanted.items() <= item.value.items()]


def _for_inner(op: Op) -> Op:
    return op._replace(limit=op.offset + op.limit, offset=0) if isinstance(op, SearchOp) else op


def _item(entry: Entry, namespace: Namespace) -> SearchItem:
    value = {
        "kind": "Memory",
        "content": {"content": to_text(entry)},
        "verdict": "good" if entry.good else "failed" if entry.failed else "unjudged",
        "tools": list(entry.tools),
    }
    when = datetime.fromtimestamp(entry.time, tz=timezone.utc)
    return SearchItem(namespace, f"{ENTRY}{entry.id}", value, when, when)
