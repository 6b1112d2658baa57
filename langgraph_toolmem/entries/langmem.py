"""langmem beside this memory: its tools and managers find the entries of past runs next to memories of their own.

`EntryBaseStore` is a LangGraph store. langmem's search tool and its managers read entries through it; what langmem
writes goes to a store of yours behind it. Needs no langmem itself; `memory_tools` does.

>>> from langgraph.store.memory import InMemoryStore
>>> from langgraph_toolmem import ToolMemory
>>> store = EntryBaseStore(ToolMemory.ephemeral(), ("memories",), inner=InMemoryStore())
>>> store.put(("memories",), "1", {"content": "Ann likes tea"})
>>> [item.value["content"] for item in store.search(("memories",))]
['Ann likes tea']

What langmem needs to know: it takes ``{langgraph_user_id}`` from ``config["configurable"]`` alone, not from the
context, and raises a ``BaseException`` where it is missing, which ends the run. Its managers expect every memory of
their namespace to have a ``kind``; those that its manage tool writes have none, so give the two different namespaces.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    NamespacePath,
    NotProvided,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError
from langgraph_toolmem.base.namespaces import has_user, resolve, user_digest
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.store_items import item_of, joined, passes
from langgraph_toolmem.entries.store_names import (
    ENTRIES,
    Namespace,
    Pattern,
    Place,
    checked_template,
    checked_user,
    encoded,
    fits,
    labels_of,
)
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.turn.host import ErrorLog

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from langgraph_toolmem.entries.entry import Entry
    from langgraph_toolmem.entries.store import EntryStore

logger = logging.getLogger("langgraph_toolmem.entries.langmem")

SEARCH: Final = RecallPolicy(kind="threshold", least=0.2)
"""What a search finds: models ask in words of their own, so it is less strict than recall."""
MAX_SEARCHED: Final = 1_000


class EntryBaseStore(BaseStore):
    """A LangGraph store that shows the entries of a memory beside what is in another store.

    The entries of a user stand under `namespace` with the user's id in its place, in the sub-namespace
    ``"tool_runs"``: a search in the namespace finds them, one in another user's or in none does not. In a namespace
    of the memory that all users share, only the runs of the user named count.

    Reading. A search asks both; what it finds is given alternately, langmem's first. Entries have no score of their
    own: langmem's managers sort by score, and memories of theirs must not be crowded out. Without a query they come
    newest first. Entries that cannot be read are left out and logged once.

    Writing. Entries are read-only: they say what was done. A memory that langmem makes of one (a manager "updates"
    what it found) is kept in `inner` as ``about-<id>`` in the namespace itself; deleting one does nothing, and is
    logged once (`ToolMemory.forget` removes entries). Everything else goes to `inner`.

    An item of an entry: ``{"kind": "Memory", "content": {"content": text}, "verdict": "good" | "failed" |
    "unjudged", "tools": [...], "made_by": ...}``. ``filter`` works on these.

    Labels may hold anything but nothing at all: an e-mail address as a user id works, which LangGraph's stores
    refuse. In `inner` they are encoded where they have to be.

    Args:
        memory: the memory.
        namespace: as for langmem's tools, with ``{langgraph_user_id}`` or ``{user_id}`` in the user's place.
        inner: where langmem's own memories are kept. None: entries can be read, and writing is refused.
        user_id: whose store it is; then no other user's entries are in it.
        policy: which entries a search finds; those of a least similarity if None.

    Raises:
        ConfigurationError: an argument cannot work, or nothing says whose entries are meant.
    """

    def __init__(
        self,
        memory: ToolMemory,
        namespace: Namespace = ("memories", "{langgraph_user_id}"),
        *,
        inner: BaseStore | None = None,
        user_id: str | None = None,
        policy: RecallPolicy | None = None,
    ) -> None:
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"EntryBaseStore takes a ToolMemory, not {type(memory).__name__}.")
        if inner is not None and not isinstance(inner, BaseStore):
            raise ConfigurationError(f"inner is a LangGraph BaseStore, not {type(inner).__name__}.")
        if policy is not None and not isinstance(policy, RecallPolicy):
            raise ConfigurationError(f"policy is a RecallPolicy, not {type(policy).__name__}.")
        self.memory, self.inner, self.user_id = memory, inner, user_id
        self.policy = policy or SEARCH
        self._pattern = Pattern(checked_template(namespace), checked_user(user_id))
        if not self._pattern.names_user and has_user(memory.core.users.namespace):
            raise ConfigurationError(
                f"The entries belong to users: namespace needs a place for one, such as "
                f'("memories", "{{langgraph_user_id}}"), not {namespace!r}; or pass user_id=…'
            )
        self.supports_ttl = inner.supports_ttl if inner is not None else False
        self.ttl_config = inner.ttl_config if inner is not None else None
        self._errors = ErrorLog(type(self).__name__, logger)
        self._told = False

    @property
    def namespace(self) -> Namespace:
        """For langmem's tools and managers; with a `user_id`, that of the user."""
        return self._pattern.template

    # --- what LangGraph's own methods do, without their rules for labels ---

    def get(self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        """One item. See `BaseStore.get`."""
        return self.batch([GetOp(labels_of(namespace), str(key), self._refresh(refresh_ttl))])[0]  # type: ignore[return-value]

    async def aget(self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        """Async twin of `get`."""
        return (await self.abatch([GetOp(labels_of(namespace), str(key), self._refresh(refresh_ttl))]))[0]  # type: ignore[return-value]

    def search(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,  # noqa: A002 - BaseStore's name
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[SearchItem]:
        """Items of a namespace. See `BaseStore.search`."""
        op = SearchOp(labels_of(namespace_prefix), filter, limit, offset, query, self._refresh(refresh_ttl))
        return self.batch([op])[0]  # type: ignore[return-value]

    async def asearch(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,  # noqa: A002
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[SearchItem]:
        """Async twin of `search`."""
        op = SearchOp(labels_of(namespace_prefix), filter, limit, offset, query, self._refresh(refresh_ttl))
        return (await self.abatch([op]))[0]  # type: ignore[return-value]

    def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """Keeps an item. See `BaseStore.put`."""
        self.batch([self._put_op(namespace, key, value, index, ttl)])

    async def aput(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """Async twin of `put`."""
        await self.abatch([self._put_op(namespace, key, value, index, ttl)])

    def delete(self, namespace: Namespace, key: str) -> None:
        """Deletes an item. See `BaseStore.delete`."""
        self.batch([PutOp(labels_of(namespace), str(key), None)])

    async def adelete(self, namespace: Namespace, key: str) -> None:
        """Async twin of `delete`."""
        await self.abatch([PutOp(labels_of(namespace), str(key), None)])

    def list_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """Namespaces in which something is. See `BaseStore.list_namespaces`."""
        return self.batch([_list_op(prefix, suffix, max_depth, limit, offset)])[0]  # type: ignore[return-value]

    async def alist_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """Async twin of `list_namespaces`."""
        return (await self.abatch([_list_op(prefix, suffix, max_depth, limit, offset)]))[0]  # type: ignore[return-value]

    # --- the two stores as one ---

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Does several things. Raises ConfigurationError if something is to be written and there is no `inner`."""
        given = list(ops)
        passed = [self._for_inner(op) for op in given]
        found = self._entries_of(given)
        theirs: list[Result] = []
        if self.inner is not None and (asked := [op for op in passed if op is not None]):
            theirs = self.inner.batch(asked)
        return joined(given, passed, found, theirs)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async twin of `batch`."""
        given = list(ops)
        passed = [self._for_inner(op) for op in given]
        found = await asyncio.to_thread(self._entries_of, given)
        theirs: list[Result] = []
        if self.inner is not None and (asked := [op for op in passed if op is not None]):
            theirs = await self.inner.abatch(asked)
        return joined(given, passed, found, theirs)

    def _refresh(self, refresh_ttl: bool | None) -> bool:
        if refresh_ttl is not None:
            return refresh_ttl
        return bool((self.ttl_config or {}).get("refresh_on_read", True))

    def _put_op(self, namespace: Any, key: Any, value: Any, index: Any, ttl: Any) -> PutOp:
        labels = labels_of(namespace)
        if not labels or labels[0] == "langgraph":
            raise InvalidNamespaceError(f"A namespace is not empty and does not begin with 'langgraph': {labels}.")
        if ttl is NOT_PROVIDED:
            ttl = (self.ttl_config or {}).get("default_ttl")
        elif ttl is not None and not self.supports_ttl:
            raise NotImplementedError("The store behind it keeps no time to live.")
        return PutOp(labels, str(key), value, index, ttl)

    def _for_inner(self, op: Op) -> Op | None:
        """What the inner store is asked; None if nothing."""
        if isinstance(op, PutOp):
            mine = self._pattern.is_entries(op.namespace)
            if mine and op.value is None:
                self._tell_read_only()
                return None
            if self.inner is None:
                raise ConfigurationError(
                    "Entries of past runs are read-only, and EntryBaseStore has no store for other memories. "
                    "Give it one: EntryBaseStore(memory, …, inner=InMemoryStore())"
                )
            if mine:
                return op._replace(namespace=encoded(op.namespace[:-1]), key=f"about-{op.key}")
            return op._replace(namespace=encoded(op.namespace))
        if self.inner is None or (isinstance(op, GetOp) and self._pattern.is_entries(op.namespace)):
            return None
        if isinstance(op, GetOp):
            return op._replace(namespace=encoded(op.namespace))
        if isinstance(op, SearchOp):
            return op._replace(namespace_prefix=encoded(op.namespace_prefix), limit=op.offset + op.limit, offset=0)
        conditions = tuple(MatchCondition(each.match_type, encoded(each.path)) for each in op.match_conditions or ())
        return op._replace(match_conditions=conditions or None, limit=op.offset + op.limit, offset=0)

    def _tell_read_only(self) -> None:
        if not self._told:
            self._told = True
            logger.warning("Entries are read-only here: deleting one does nothing (told once). See ToolMemory.forget.")

    def _entries_of(self, ops: Sequence[Op]) -> list[Any]:
        """For each thing asked what the entries have to say; nothing where they cannot be read."""
        found: list[Any] = []
        for op in ops:
            try:
                found.append(self._entry_answer(op))
            except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
                self._errors.failed(error)
                found.append(None)
        return found

    def _entry_answer(self, op: Op) -> Any:
        if isinstance(op, GetOp):
            place = self._pattern.match(op.namespace)
            if place is None or not self._pattern.is_entries(op.namespace):
                return None
            entry = self._store(place.user).get(op.key)
            there = entry is not None and not entry.retired and _is_of(entry, place.user)
            return item_of(entry, place.namespace) if entry is not None and there else None
        if isinstance(op, SearchOp):
            place = self._pattern.match(op.namespace_prefix)
            return [] if place is None else self._search(op, place)
        if isinstance(op, ListNamespacesOp):
            place = self._pattern.match(())
            there = place is not None and any(_is_of(each, place.user) for each in self._store(place.user).all())
            return [place.namespace] if place is not None and there and fits(place.namespace, op) else []
        return None

    def _search(self, op: SearchOp, place: Place) -> list[SearchItem]:
        wanted = op.offset + op.limit
        if wanted < 1:
            return []
        if op.query:
            mixed = place.user is not None and not has_user(self.memory.core.users.namespace)
            k = MAX_SEARCHED if op.filter or mixed else wanted
            policy = self.policy.with_(max_n=k)
            ranked = self.memory.entries.ranked(op.query, user_id=place.user, policy=policy, k=k)
            entries: Iterable[Entry] = (each.entry for each in ranked)
        else:
            entries = reversed(self._store(place.user).all())
        items = (item_of(entry, place.namespace) for entry in entries if _is_of(entry, place.user))
        fitting = (item for item in items if passes(item.value, op.filter))
        return list(itertools.islice(fitting, wanted))

    def _store(self, user: str | None) -> EntryStore:
        core, entries = self.memory.core, self.memory.entries
        core.jobs.settle()  # what was finished in this process is found
        return entries.library.store(resolve(core.users.namespace, user))


def memory_tools(store: EntryBaseStore) -> list[BaseTool]:
    """langmem's tools over a store: searching, and managing memories if it has an `inner` store for them.

    ::

        create_agent(model, [*tools, *memory_tools(store)], middleware=tool_memory_middleware(memory))

    Unless the store is one user's, the runs need the user's id in ``config["configurable"]``, under the name in the
    store's namespace.

    Raises:
        MissingExtraError: langmem is not installed.
    """
    if not isinstance(store, EntryBaseStore):
        raise ConfigurationError(f"memory_tools takes an EntryBaseStore, not {type(store).__name__}.")
    try:
        langmem: Any = importlib.import_module("langmem")
    except ImportError as error:
        raise MissingExtraError("memory_tools", "langmem") from error
    tools = [langmem.create_search_memory_tool(store.namespace, store=store)]
    if store.inner is not None:
        tools.append(langmem.create_manage_memory_tool(store.namespace, store=store))
    return tools


def _list_op(prefix: Any, suffix: Any, max_depth: int | None, limit: int, offset: int) -> ListNamespacesOp:
    conditions = [MatchCondition("prefix", labels_of(prefix))] if prefix else []
    conditions += [MatchCondition("suffix", labels_of(suffix))] if suffix else []
    return ListNamespacesOp(tuple(conditions) or None, max_depth, limit, offset)


def _is_of(entry: Entry, user: str | None) -> bool:
    """Whether it is an entry of that user; None: of anybody."""
    return user is None or entry.user == user_digest(user)


__all__ = ["ENTRIES", "EntryBaseStore", "memory_tools"]
