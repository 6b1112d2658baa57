"""Deletion of a user, a thread, or data older than the memory's retention; and the ages for the retention."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from langgraph_toolmem.base.checks import is_number
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError
from langgraph_toolmem.core.episodes import contributor
from langgraph_toolmem.core.jobs import Job
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.core.users import User, user_digest
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import HOUR, Event, Forgotten, Record
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core

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
    if isinstance(retention, timedelta):
        seconds: float | None = retention.total_seconds()
    else:
        seconds = retention
    if seconds is not None and (not is_number(seconds) or seconds <= 0):
        raise ConfigurationError(f"retention is a timedelta or a number of seconds above 0, not {retention!r}.")
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
        if not user_id:
            raise NamespaceError("forget needs the user id, or the thread id, whose data is to go.")
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
        core = self._core
        core.refresh(at_once=True)
        others = core.lifecycle.others(thread_id, user_id)
        mine = user_digest(user_id or None)
        with core.lock:
            owners = {run: core.known_owner(run) for run in core.episodes.runs(thread_id)}
            if mine:
                others |= {run for run, owner in owners.items() if owner not in ("", mine)}
            known = core.episodes.names(thread_id, others)
        contributors = {contributor(thread_id, mine)}
        for run, owner in owners.items():
            if run not in others:
                contributors.add(contributor(thread_id, owner or None))
        if not others:
            # Data of the thread that was learned before its user was named.
            contributors.add(contributor(thread_id, None))
        gone = Forgotten(runs=known | contributors)
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
            raise NamespaceError(
                f"The namespace {core.users.namespace!r} needs a user id, and whose thread {thread_id!r} is was not "
                "kept in this folder. Pass user_id=…"
            )
        return namespaces

    def old(self, _: Job) -> str:
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
            graph, began = core.graph, ages.began or 0
            names = {*graph.cases.cases, *graph.runs, *core.episodes.names(), *ages.hours}
            for row in graph.value_contributors.rows.values():
                for contributors in row.values():
                    names.update(contributors.runs)
            return {name for name in names if ages.hours.get(name, began) < first}

    def _rows(self, user: User, gone: Forgotten) -> list[Callable[[], int]]:
        return [partial(each.forget, user, gone) for each in self._core.listeners]

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
