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
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, Op, PutOp, Result, SearchItem, SearchOp

from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError
from langgraph_toolmem.core.users import User, has_user, user_digest
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
    """A LangGraph store that shows the entries of a memory beside what is in another store.

    The entries of a user stand under `namespace` with the user's id in its place, in the sub-namespace
    ``"tool_runs"``: a search in the namespace finds them, one in another user's or in none does not. In a namespace
    of the memory that all users share, only the runs of the user named count.

    Reading. A search asks both; what it finds is given alternately, langmem's first. Entries have no score, lest they
    crowd out what langmem's managers sort by it; without a query they come newest first. What cannot be read is left
    out and logged once. Namespaces are listed of `inner` alone.

    Writing. Entries are read-only. A memory that langmem makes of one (a manager "updates" what it found) is kept in
    `inner` as ``about-<id>`` in the namespace itself; deleting one does nothing, and is logged (`ToolMemory.forget`
    removes entries). Everything else goes to `inner`.

    An item of an entry: ``{"kind": "Memory", "content": {"content": text}, "verdict": "good" | "failed" |
    "unjudged", "tools": [...], "made_by": ...}``. ``filter`` compares these by equality, ``$eq`` and ``$ne``.

    Args:
        memory: a `ToolMemory` with `Entries`.
        namespace: as for langmem's tools, with ``{langgraph_user_id}`` or ``{user_id}`` in the user's place.
        inner: where langmem's own memories are kept. None: entries can be read, and writing is refused.
        user_id: whose store it is; then no other user's entries are in it.
        policy: which entries a search finds; those of a least similarity if None.

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
        self.inner, self.user_id, self.policy = inner, user_id, policy or SEARCH
        self.supports_ttl = inner.supports_ttl if inner is not None else False
        self.ttl_config = inner.ttl_config if inner is not None else None
        self._entries, self._whole = entries, (*self.namespace, ENTRIES)
        self._errors = ErrorLog(type(self).__name__, logger)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Does several things. Raises ConfigurationError if something is to be written and there is no `inner`."""
        given = list(ops)
        passed = [self._for_inner(op) for op in given]
        found = [self._of_entries(op) for op in given]
        asked = [op for op in passed if op is not None]
        return _joined(given, passed, found, self.inner.batch(asked) if self.inner is not None and asked else [])

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async twin of `batch`."""
        given = list(ops)
        passed = [self._for_inner(op) for op in given]
        found = await asyncio.to_thread(lambda: [self._of_entries(op) for op in given])
        asked = [op for op in passed if op is not None]
        return _joined(given, passed, found, await self.inner.abatch(asked) if self.inner is not None and asked else [])

    def _scope(self, prefix: Namespace) -> tuple[str | None, Namespace] | None:
        """Whose entries stand under a prefix (None: everybody's) and where; None if nobody's, or it does not say."""
        pairs = enumerate(zip(prefix, self._whole, strict=False))
        if len(prefix) > len(self._whole) or any(at != self._at and label != mine for at, (label, mine) in pairs):
            return None
        if self._at is None:
            return self.user_id, self._whole
        user = prefix[self._at] if len(prefix) > self._at else None
        return None if user is None else (user, (*self._whole[: self._at], user, *self._whole[self._at + 1 :]))

    def _for_inner(self, op: Op) -> Op | None:
        """What the inner store is asked; None if nothing."""
        scope = self._scope(op.namespace) if isinstance(op, (GetOp, PutOp)) else None
        mine = isinstance(op, (GetOp, PutOp)) and scope is not None and op.namespace == scope[1]
        if isinstance(op, PutOp):
            if mine and op.value is None:
                logger.warning("Entries are read-only here: deleting one does nothing. See ToolMemory.forget.")
                return None
            if self.inner is None:
                raise ConfigurationError(
                    "Entries are read-only; for other memories give a store: inner=InMemoryStore()"
                )
            return op._replace(namespace=op.namespace[:-1], key=f"about-{op.key}") if mine else op
        if self.inner is None or mine:
            return None
        return op._replace(limit=op.offset + op.limit, offset=0) if isinstance(op, SearchOp) else op

    def _of_entries(self, op: Op) -> Any:
        """What the entries have to say; nothing where they cannot be read."""
        try:
            if isinstance(op, SearchOp):
                return self._search(op)
            if not isinstance(op, GetOp) or (scope := self._scope(op.namespace)) is None:
                return [] if isinstance(op, ListNamespacesOp) else None
            found = self._entries.rows.get([op.key], self._user(scope[0])) if op.namespace == scope[1] else []
            fine = (each for each in found if not each.retired and _is_of(each, scope[0]))
            return next((_item(each, scope[1]) for each in fine), None)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return None

    def _search(self, op: SearchOp) -> list[SearchItem]:
        scope, wanted = self._scope(op.namespace_prefix), op.offset + op.limit
        if scope is None or wanted < 1:
            return []
        user, namespace = scope
        if op.query:
            k = MAX_SEARCHED if op.filter or (user and not has_user(self._entries.core.users.namespace)) else wanted
            ranked = self._entries.ranked(op.query, user_id=user, policy=self.policy.with_(max_n=k), k=k)
            entries: Iterable[Entry] = (each.entry for each in ranked)
        else:
            entries = sorted(self._entries.rows.all(self._user(user)), key=lambda entry: -entry.time)
        items = (_item(entry, namespace) for entry in entries if _is_of(entry, user))
        return list(itertools.islice((item for item in items if _passes(item.value, op.filter)), wanted))

    def _user(self, user: str | None) -> User:
        core = self._entries.core
        core.jobs.settle()  # what was finished in this process is found
        return core.users.of(user, warn=False)


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


def _passes(value: Mapping[str, Any], conditions: Mapping[str, Any] | None) -> bool:
    """Whether an item passes a filter; an operator that says nothing of words lets none pass."""
    for key, wanted in (conditions or {}).items():
        for name, bound in (wanted if isinstance(wanted, Mapping) else {"$eq": wanted}).items():
            if name not in ("$eq", "$ne") or (value.get(key) == bound) is not (name == "$eq"):
                return False
    return True


def _joined(given: Sequence[Op], passed: Sequence[Op | None], found: Sequence[Any], theirs: Sequence[Any]) -> list[Any]:
    """One answer for each thing asked: what the inner store says and what entries say."""
    answers: list[Any] = []
    rest = iter(theirs)
    for op, asked, mine in zip(given, passed, found, strict=True):
        said = next(rest) if asked is not None else None
        if isinstance(op, SearchOp):
            both = (item for pair in itertools.zip_longest(said or (), mine or ()) for item in pair if item is not None)
            answers.append(list(both)[op.offset : op.offset + op.limit])
        else:
            answers.append(mine if asked is None else said)
    return answers


def _is_of(entry: Entry, user: str | None) -> bool:
    """Whether it is an entry of that user; None: of anybody."""
    return user is None or entry.user == user_digest(user)


__all__ = ["ENTRIES", "EntryBaseStore", "memory_tools"]
