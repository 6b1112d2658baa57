"""Users: the namespaces of their personal memory, and the deletion of their data.

`Forgetting` deletes a user, a thread, or data older than the memory's retention; `Ages` keeps the ages for that.
"""

from __future__ import annotations

import json
import logging
import math
import os
import string
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

from langgraph_toolmem.base.checks import is_number
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import HOUR, Event, Forgotten, Record
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.core.jobs import Job
    from langgraph_toolmem.core.method import LearnedTurn


logger = logging.getLogger("langgraph_toolmem.memory")

T = TypeVar("T")

USER_PLACEHOLDER = "user_id"
NAMESPACE_FILE = "namespace.json"
NO_USERS = (
    "values of several threads are kept, and no run named its user: forget(user_id=...) will find nothing. Name users "
    'with config={"configurable": {"user_id": ...}}'
)


class Owner(NamedTuple):
    """Thread and user of a run, as the host names them; None if it does not."""

    thread_id: str | None = None
    user_id: str | None = None


NOBODY: Final = Owner()
"""The owner of a run of which the host names neither thread nor user."""


class User(NamedTuple):
    """The user of a run: id as the host gives it and the digest that is stored, both None without a named user, and the
    namespace of their personal memory.
    """

    id: str | None
    digest: str | None
    namespace: tuple[str, ...]


class Users:
    """Users of a memory, given the namespace of personal memory, with or without a placeholder for a user's id."""

    def __init__(self, namespace: tuple[str, ...]) -> None:
        self.namespace = namespace
        self.apart = has_user(namespace)
        self._warned = False
        self.refused = 0
        """Number of runs that were not learned in this process, because the namespace needs a user id."""

    def problems(self) -> list[str]:
        """Return a sentence if runs had no user id and the namespace needs one."""
        if not self.refused:
            return []
        return [
            f"The namespace {self.namespace!r} needs a user id, and was given none {self.refused:,} times: nothing was "
            'learned there. Run the graph with the id in its context or in config["configurable"]["user_id"].'
        ]

    def owner_unknown(self, what: str) -> NamespaceError:
        """Return the error for a run or thread (`what`) of which this folder does not say whose it is."""
        return NamespaceError(
            f"The namespace {self.namespace!r} needs a user id, and this folder does not say whose {what} is. "
            "Pass user_id=…"
        )

    def learner(self, user_id: str | None) -> User:
        """Return the user of a run to learn from, and count the refusals. Raises NamespaceError as `of`."""
        try:
            return self.of(user_id)
        except NamespaceError:
            self.refused += 1
            raise

    def of(self, user_id: str | None, *, warn: bool = True) -> User:
        """Return a user; warn once if the namespace has no placeholder for the id. Raises NamespaceError if it needs an
        id.
        """
        if not self.apart:
            if warn and user_id is not None:
                self._warn_of_shared_memory()
            return User(user_id, user_digest(user_id), self.namespace)
        if not user_id:
            raise NamespaceError(
                f"The namespace {self.namespace!r} needs a user id. Pass user_id=…, or run the graph with it in its "
                'context or in config["configurable"]["user_id"].'
            )
        namespace = tuple([label.format(user_id=user_id) for label in self.namespace])
        return User(user_id, user_digest(user_id), namespace)

    def _warn_of_shared_memory(self) -> None:
        if self._warned:
            return
        self._warned = True
        logger.warning(
            "A run carries a user id, but the namespace %r has no place for it: personal memory is shared by all "
            'users. Use namespace=("toolmem", "{user_id}") to keep it apart.',
            self.namespace,
        )

    def has(self, namespace: tuple[str, ...]) -> bool:
        """Return True if a namespace is that of these users, or of one of them."""
        if len(self.namespace) != len(namespace):
            return False
        for template, label in zip(self.namespace, namespace, strict=True):
            if not has_user((template,)) and template.format() != label:
                return False
        return True


def check_namespace(namespace: Any, *, name: str, user_allowed: bool) -> tuple[str, ...]:
    """Return a namespace; raise ConfigurationError if it is not a tuple of texts, or has an unknown placeholder."""
    if not _are_labels(namespace):
        raise ConfigurationError(
            f'`{name}` must be a tuple of texts such as ("toolmem", "{{user_id}}"), got {namespace!r}.'
        )
    try:
        wanted = _placeholders(namespace)
    except ValueError as error:
        raise ConfigurationError(f"{name} has braces that are no placeholder ({error}): {namespace!r}.") from error
    unknown = wanted - {USER_PLACEHOLDER}
    if unknown:
        raise ConfigurationError(f"{name} has the placeholder {{{min(unknown)}}}; only {{user_id}} is known.")
    if wanted and not user_allowed:
        raise ConfigurationError(f"{name} is shared by all users and takes no {{user_id}}; use `namespace` for that.")
    return tuple(namespace)


def _are_labels(namespace: Any) -> bool:
    if not isinstance(namespace, tuple) or not namespace:
        return False
    return all(isinstance(label, str) and label for label in namespace)


def keep_namespace(folder: Path, namespace: tuple[str, ...]) -> None:
    """Store the template of the namespace in the memory's folder, for the command line. May raise OSError."""
    if namespace_kept(folder) != namespace:
        text = json.dumps({"namespace": list(namespace)})
        # Replaced as a whole: another process may read it at this moment.
        made = folder / f"{NAMESPACE_FILE}.{os.getpid()}"
        made.write_text(text + "\n", encoding="utf-8")
        made.replace(folder / NAMESPACE_FILE)


def namespace_kept(folder: Path) -> tuple[str, ...] | None:
    """Return the namespace last used in a folder; None if none was stored."""
    try:
        namespace = json.loads((folder / NAMESPACE_FILE).read_text(encoding="utf-8"))["namespace"]
        return check_namespace(tuple(namespace), name="namespace", user_allowed=True)
    # A damaged file counts as missing: the command line then uses the default, or `--namespace`.
    except (OSError, ValueError, LookupError, TypeError):
        return None


def has_user(namespace: tuple[str, ...]) -> bool:
    """Return True if a namespace has a placeholder for a user's id."""
    return USER_PLACEHOLDER in _placeholders(namespace)


def _placeholders(namespace: tuple[str, ...]) -> set[str]:
    names: set[str] = set()
    for label in namespace:
        for _, name, _, _ in string.Formatter().parse(label):
            if name is not None:
                names.add(name)
    return names


def by_namespace(items: Iterable[T], of: Callable[[T], tuple[str, ...]]) -> list[tuple[User, list[T]]]:
    """Return items by the namespace of their rows, each as a user without an id."""
    by_name: dict[tuple[str, ...], list[T]] = {}
    for item in items:
        by_name.setdefault(of(item), []).append(item)
    return [(User(None, None, namespace), of_user) for namespace, of_user in by_name.items()]


def user_digest(user_id: str | None) -> str | None:
    # Only digests are stored: an id may be a name or an address.
    if user_id is None:
        return None
    return digest("user", user_id)


def contributor(thread_id: str, user: str | None) -> str:
    """Return the digest of a thread and user as one contributor of values: users may share a thread id."""
    if not user:
        return digest("run", thread_id)
    return digest("run", thread_id, user)


MAX_AGES: Final = 200_000
"""Runs, requests and threads with a known age; a dropped one counts as old as the one dropped last."""
RETENTION: Final = "retention"
"""Kind of the jobs that delete data older than the retention."""


@dataclass(slots=True)
class LastSeen(Event):
    """Runs, requests and threads (digests) that were active in that hour since 1970; empty at the start of keeping
    ages.
    """

    kind = "last_seen"
    names: list[str]
    hour: int


class Ages(Table):
    """``hours``: last activity, digest -> hour since 1970; ``began``: the hour of everything else."""

    name = "ages"
    parts: ClassVar = {"hours": shapes.RowsOf(shapes.WHOLE), "began": shapes.OrNone(shapes.WHOLE)}

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.hours: dict[str, int] = {}
        self.began: int | None = None

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {LastSeen: self._see}

    def _see(self, names: list[str], hour: int) -> None:
        if self.began is None:
            self.began = hour
        for name in names:
            self.hours[name] = max(hour, self.hours.pop(name, hour))
            if len(self.hours) > MAX_AGES:
                self.began = max(self.began, self.hours.pop(next(iter(self.hours))))

    def forget(self, gone: Forgotten) -> int:
        for name in gone.runs:
            self.hours.pop(name, None)
        return 0

    def seen(self, learned: LearnedTurn) -> Record:
        """Return the record of the active run, request and thread of a turn; an age is renewed once a day."""
        hour, day = learned.hour, 24
        new: list[str] = []
        for name in (learned.run, learned.thread, learned.state.user_key):
            if name and hour - self.hours.get(name, hour - day) >= day:
                new.append(name)
        if not new:
            return []
        return [LastSeen(new, hour)]


def seconds_of(retention: timedelta | float | None) -> float | None:
    """Return the retention in seconds; None keeps everything.

    Raises:
        ConfigurationError: it is neither a timedelta nor a number above 0.
    """
    if isinstance(retention, timedelta):
        seconds: float | None = retention.total_seconds()
    else:
        seconds = retention
    if seconds is not None and (not is_number(seconds) or seconds <= 0):
        raise ConfigurationError(f"`retention` must be a timedelta or a number of seconds above 0, got {retention!r}.")
    return seconds


def do_nothing(_: Sequence[Job]) -> None:
    """Do nothing: these jobs are done with their answer."""


class Forgetting:
    """Deletes from the queue, the evidence graph, and the methods; after `retention` seconds in the background."""

    def __init__(self, core: Core, retention: float | None) -> None:
        self._core, self._retention = core, retention
        self._polled = -math.inf
        if retention is not None and not core.read_only:
            core.jobs.handle(RETENTION, do_nothing, find=self.old)
            core.jobs.at_poll.append(self.poll)

    def poll(self) -> None:
        """Enqueue the deletion of old data, once a day by the memory's clock."""
        core = self._core
        if core.closed or core.read_only:
            return
        now = core.now()
        # Also if the clock was set back, or the next deletion would be years away.
        if not 0 <= now - self._polled < 86_400.0:
            self._polled = now
            core.jobs.put(RETENTION, {}, key=RETENTION, ordering_key="")

    def user(self, user_id: str) -> int:
        """Delete the data of a user; return the number of removed items.

        Raises:
            NamespaceError: the user is not named.
            StorageError: data is left; call it again.
        """
        if not user_id:
            raise NamespaceError("forget needs the user id, or the thread id, whose data is to be deleted.")
        core = self._core
        user = core.users.of(user_id)
        with core.lock:
            gone = Forgotten(str(user.digest), core.graph.belongings(str(user.digest)))
        # The graph before rows, so that no new rows are derived from it.
        removed = self._all([partial(core.jobs.forget, gone), partial(core.forget, gone), *self._rows(user, gone)])
        if core.users.apart:
            core.vectors.scoped(user.namespace).drop()
        return removed

    def thread(self, thread_id: str, user_id: str | None) -> int:
        """Delete the data of a thread; return the number of removed items.

        Args:
            thread_id: the thread.
            user_id: its user. Episodes of other users in a thread of the same id are kept.

        Raises:
            NamespaceError: the user must be named.
            StorageError: data is left; call it again.
        """
        core = self._core
        core.refresh(at_once=True)
        others = core.lifecycle.others(thread_id, user_id)
        mine = user_digest(user_id or None)
        with core.lock:
            owners = {run: core.known_owner(run) for run in core.episodes.runs(thread_id)}
            if mine:
                others |= {run for run, owner in owners.items() if owner not in ("", mine)}
            known = core.episodes.names(thread_id, others)
        users: set[str | None] = {mine}
        for run, owner in owners.items():
            if run not in others:
                users.add(owner or None)
        if not others:
            users.add(None)  # data of the thread that was learned before its user was named
        gone = Forgotten(runs=known | {contributor(thread_id, user) for user in users})
        steps: list[Callable[[], int]] = [partial(core.jobs.forget, gone)]
        for namespace in self._namespaces(thread_id, user_id, known):
            steps += self._rows(User(None, None, namespace), gone)
        # The graph last: if a step fails, it still knows which runs these are.
        return self._all(steps, last=partial(core.forget, gone))

    def _namespaces(self, thread_id: str, user_id: str | None, runs: Collection[str]) -> set[tuple[str, ...]]:
        """Return the namespaces of a thread's rows; raise NamespaceError if all of them are unknown."""
        core = self._core
        if user_id or not core.users.apart:
            return {core.users.of(user_id).namespace}
        namespaces: set[tuple[str, ...]] = set()
        for run in runs:
            namespace = core.jobs.queue.namespace_of(run).namespace
            if namespace is not None:
                namespaces.add(namespace)
        if runs and not namespaces:
            raise core.users.owner_unknown(f"thread {thread_id!r}")
        return namespaces

    def old(self, _: Job) -> str:
        """Delete the data older than the retention; the answer of this job is empty."""
        core, before = self._core, self._core.now() - (self._retention or 0.0)
        gone = Forgotten(runs=self._older(before), before=before)
        steps: list[Callable[[], int]] = [partial(core.jobs.forget, gone)]
        if gone.runs:
            steps.append(partial(core.forget, gone))
        aged = Forgotten(before=before)  # rows and decisions have times of their own
        steps += self._rows(User(None, None, ()), aged)
        self._all(steps)
        return ""

    def _older(self, before: float) -> set[str]:
        core, ages, first = self._core, self._core.ages, int(before // HOUR)
        if ages is None:
            return set()
        with core.lock:
            # Data from before the retention was set counts as new from now on.
            if ages.began is None:
                core.apply(None, [LastSeen([], core.hour())])
            began = ages.began or 0
            return {name for name in self._names(ages) if ages.hours.get(name, began) < first}

    def _names(self, ages: Ages) -> set[str]:
        """Return the digests of all runs, requests and threads of which data is kept. The caller holds the lock."""
        core, graph = self._core, self._core.graph
        names = {*graph.cases.cases, *graph.runs, *core.episodes.names(), *ages.hours}
        for row in graph.value_contributors.rows.values():
            for contributors in row.values():
                names.update(contributors.runs)
        return names

    def _rows(self, user: User, gone: Forgotten) -> list[Callable[[], int]]:
        return [partial(method.forget, user, gone) for method in self._core.listeners]

    def _all(self, steps: list[Callable[[], int]], last: Callable[[], int] | None = None) -> int:
        """Do all steps, and the last one if all others succeeded; return the number of removed items, or raise the
        first error.
        """
        core = self._core
        core.refuse_if_read_only()
        removed = 0
        failures: list[Exception] = []
        for step in steps:
            try:
                removed += step()
            except Exception as error:  # noqa: BLE001 - the others go on all the same
                failures.append(error)
        if failures:
            raise failures[0]
        if last is not None:
            removed += last()
        core.texts.forget()  # once more: the steps above read the deleted data
        return removed
