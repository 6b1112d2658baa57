"""langmem beside this memory: its tools and managers find the entries of past runs next to memories of their own.

>>> from langgraph.store.memory import InMemoryStore
>>> from langgraph_toolmem import ToolMemory
>>> store = EntryBaseStore(ToolMemory.ephemeral(), ("memories",), inner=InMemoryStore())
>>> store.put(("memories",), "1", {"content": "Ann likes tea"})
>>> [item.value["content"] for item in store.search(("memories",))]
['Ann likes tea']

What langmem needs to know: it takes ``{langgraph_user_id}`` from ``config["configurable"]`` alone, not from the
context, and raises a ``BaseException`` where it is missing, which ends the run. Its managers expect every memory of
their namespace to have a ``kind``; those that its manage tool writes have none, so give the two different namespaces.
LangGraph's stores take no "." in a label: users whose ids have one need a store each, ``user_id=`` and no place.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import logging
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, Op, PutOp, Result, SearchItem, SearchOp

from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError
from langgraph_toolmem.core.users import has_user, user_digest
from langgraph_toolmem.entries import Entries
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.render import to_text
from langgraph_toolmem.turn.host import ErrorLog

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from langgraph_toolmem.entries.entry import Entry

logger = logging.getLogger("langgraph_toolmem.entries.langmem")

ENTRIES: Final = "tool_runs"  # the label under which the entries of a namespace stand
SEARCH: Final = RecallPolicy(kind="threshold", least=0.2)
"""What a search finds: models ask in words of their own, so it is less strict than recall."""
MAX_SEARCHED: Final = 1_000

Namespace: TypeAlias = tuple[str, ...]


class EntryBaseStore(BaseStore):
    """A LangGraph store that shows the entries of a memory next to what is in another store.

    The entries of a user stand under `namespace` with the user's id in its place, in the sub-namespace
    ``"tool_runs"``. A search gives both alternately, the other store's first. Entries have no score, and without a
    query they come newest first. Entries are read-only: a memory that langmem makes of one is kept in `inner` as
    ``about-<id>``; everything else goes to `inner` as it is.

    An item of an entry: ``{"kind": "Memory", "content": {"content": text}, "verdict": "good" | "failed" |
    "unjudged", "tools": [...], "made_by": ...}``. ``filter`` compares these for equality.

    Args:
        memory: a `ToolMemory` with `Entries`.
        namespace: as for langmem's tools, with ``{langgraph_user_id}`` or ``{user_id}`` in the user's place.
        inner: the store of langmem's own memories. None: entries can be read, and writing is refused.
        user_id: the user of this store; no other user's entries are in it then.
        policy: which entries a search finds; defaults to those of a least similarity.

    Raises:
        ConfigurationError: an argument cannot work, or nothing says whose entries are meant.
    """

    def __init__(
        self,
        memory: Any,
        namespace: Namespace = ("memories", "{langgraph_user_id}"),
        *,
        inner: BaseStore | None = None,
        user_id: str | None = None,
        policy: RecallPolicy | None = None,
    ) -> None:
        if not isinstance(entries := getattr(memory, "entries", None), Entries):
            raise ConfigurationError(f"EntryBaseStore takes a ToolMemory, not {type(memory).__name__}.")
        place = _place_in(namespace, user_id)
        if place is None and user_id is None and has_user(entries.core.users.namespace):
            example = '("memories", "{langgraph_user_id}")'
            raise ConfigurationError(f"The entries belong to users: name their place, as in {example}, or a user_id.")
        mine = enumerate(namespace)
        self.namespace = namespace if user_id is None else tuple(user_id if at == place else n for at, n in mine)
        """For langmem's tools and managers; with a `user_id`, that of the user."""
        self._at = place if user_id is None else None
        self.inner, self.user_id, self.policy = inner, user_id, (policy or SEARCH).with_(max_n=MAX_SEARCHED)
        self._entries, self._whole = entries, (*self.namespace, ENTRIES)
        self._errors = ErrorLog(type(self).__name__, logger)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do several things. Raises ConfigurationError if something is to be written and there is no `inner`."""
        given = list(ops)
        asked = self._asked(given)
        return self._answers(given, self.inner.batch(asked) if self.inner is not None and asked else [])

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async variant of `batch`."""
        given = list(ops)
        asked = self._asked(given)
        theirs = await self.inner.abatch(asked) if self.inner is not None and asked else []
        return await asyncio.to_thread(self._answers, given, theirs)

    def _asked(self, ops: list[Op]) -> list[Op]:
        return [asked for op in ops if (asked := self._for_inner(op)) is not None]

    def _answers(self, ops: list[Op], theirs: list[Result]) -> list[Result]:
        rest = iter(theirs)
        return [self._answer(op, next(rest) if self._goes_on(op) else None) for op in ops]

    def _scope(self, prefix: Namespace) -> tuple[str | None, Namespace] | None:
        """Whose entries stand under a prefix (None: everybody's) and where; None if nobody's, or it does not say."""
        pairs = enumerate(zip(prefix, self._whole, strict=False))
        if len(prefix) > len(self._whole) or any(at != self._at and label != mine for at, (label, mine) in pairs):
            return None
        if self._at is None:
            return self.user_id, self._whole
        user = prefix[self._at] if len(prefix) > self._at else None
        return None if user is None else (user, (*self._whole[: self._at], user, *self._whole[self._at + 1 :]))

    def _is_of_entries(self, namespace: Namespace) -> bool:
        return (scope := self._scope(namespace)) is not None and scope[1] == namespace

    def _goes_on(self, op: Op) -> bool:
        """Whether the other store is asked."""
        mine = isinstance(op, (GetOp, PutOp)) and self._is_of_entries(op.namespace)
        if isinstance(op, PutOp):
            return not mine or op.value is not None
        return self.inner is not None and not mine

    def _for_inner(self, op: Op) -> Op | None:
        """What the other store is asked; None if nothing."""
        if not self._goes_on(op):
            if isinstance(op, PutOp):
                logger.warning("Entries are read-only here: deleting one does nothing. See ToolMemory.forget.")
            return None
        if isinstance(op, PutOp):
            if self.inner is None:
                raise ConfigurationError(
                    "Entries are read-only; for other memories give a store: inner=InMemoryStore()"
                )
            mine = self._is_of_entries(op.namespace)
            return op._replace(namespace=op.namespace[:-1], key=f"about-{op.key}") if mine else op
        return op._replace(limit=op.offset + op.limit, offset=0) if isinstance(op, SearchOp) else op

    def _answer(self, op: Op, said: Any) -> Any:
        """What the other store said, with the entries."""
        try:
            if isinstance(op, SearchOp):
                mine = self._search(op)
            elif isinstance(op, GetOp) and self._is_of_entries(op.namespace):
                return next(iter(self._items(op.namespace, [op.key])), None)
            else:
                return [] if said is None and isinstance(op, ListNamespacesOp) else said
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            mine = []
        both = itertools.chain.from_iterable(itertools.zip_longest(said or (), mine))
        found = [item for item in both if item is not None]
        return found[op.offset : op.offset + op.limit] if isinstance(op, SearchOp) else None

    def _search(self, op: SearchOp) -> list[SearchItem]:
        if (scope := self._scope(op.namespace_prefix)) is None:
            return []
        found = self._items(scope[1], query=op.query)
        fitting = (item for item in found if all(item.value.get(k) == v for k, v in (op.filter or {}).items()))
        return list(itertools.islice(fitting, op.offset + op.limit))

    def _items(self, namespace: Namespace, keys: Iterable[str] = (), *, query: str | None = None) -> list[SearchItem]:
        """The entries of a user: those with the keys, those a query finds, or all, the newest first."""
        user = self.user_id if self._at is None else namespace[self._at]
        core, rows = self._entries.core, self._entries.rows
        core.jobs.settle()  # what was finished in this process is found
        owner = core.users.of(user, warn=False)
        if keys:
            found = [entry for entry in rows.get(list(keys), owner) if not entry.retired]
        elif query:
            found = self._entries.recall(query, user_id=user, policy=self.policy)
        else:
            found = sorted(rows.all(owner), key=lambda entry: -entry.time)
        return [_item(entry, namespace) for entry in found if user is None or entry.user == user_digest(user)]


def memory_tools(store: EntryBaseStore) -> list[BaseTool]:
    """langmem's tools over a store: searching, and managing memories if it has an `inner` store for them.

    Unless the store is one user's, runs need ``config["configurable"]`` with the id under the name in its namespace.
    Raises MissingExtraError if langmem is not installed.
    """
    try:
        langmem: Any = importlib.import_module("langmem")
    except ImportError as error:
        raise MissingExtraError("memory_tools", "langmem") from error
    tools = [langmem.create_search_memory_tool(store.namespace, store=store)]
    if store.inner is not None:
        tools.append(langmem.create_manage_memory_tool(store.namespace, store=store))
    return tools


def _place_in(namespace: Any, user_id: Any) -> int | None:
    """Where a namespace has its user. Raises ConfigurationError if one of the two cannot work."""
    if user_id is not None and not (isinstance(user_id, str) and user_id and user_id[0] != "{"):
        raise ConfigurationError(f"user_id is a text that is not empty and no placeholder, not {user_id!r}.")
    if not isinstance(namespace, tuple) or not namespace or not all(isinstance(n, str) and n for n in namespace):
        raise ConfigurationError(f"namespace is a tuple of texts, not {namespace!r}.")
    places = [at for at, label in enumerate(namespace) if label[0] == "{"]
    if len(places) > 1 or any(namespace[at] not in ("{langgraph_user_id}", "{user_id}") for at in places):
        raise ConfigurationError(f"namespace has at most one place, {{user_id}} or such, not {namespace!r}.")
    return places[0] if places else None


def _item(entry: Entry, namespace: Namespace) -> SearchItem:
    """An entry as a store shows it; without a score."""
    value = {
        "kind": "Memory",
        "content": {"content": to_text(entry)},
        "verdict": "good" if entry.good else "failed" if entry.failed else "unjudged",
        "tools": list(entry.tools),
        "made_by": entry.made_by,
    }
    when = datetime.fromtimestamp(entry.time, tz=timezone.utc)
    return SearchItem(namespace, entry.id, value, when, when)


__all__ = ["ENTRIES", "EntryBaseStore", "memory_tools"]
