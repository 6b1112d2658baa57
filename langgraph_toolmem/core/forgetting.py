"""What is forgotten: a user, a thread, or what is older than the memory's retention. One way for the three."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from langgraph_toolmem.base.checks import is_number
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.episodes import witness
from langgraph_toolmem.core.users import User, user_digest
from langgraph_toolmem.graph.operations import Forgotten

RETENTION: Final = "retention"
"""Kind of jobs."""
DAY: Final = 86_400.0
ANYBODY: Final = User(None, None, ())


def seconds_of(retention: timedelta | float | None) -> float | None:
    """A retention in seconds.

    Raises:
        ConfigurationError: it is none.
    """
    seconds = retention.total_seconds() if isinstance(retention, timedelta) else retention
    if seconds is not None and (not is_number(seconds) or seconds <= 0):
        raise ConfigurationError(f"retention is a timedelta or a number of seconds above 0, not {retention!r}.")
    return seconds


class Forgetting:
    """Takes things out of the queue, the evidence graph, and what the methods keep.

    Args:
        core: of the memory.
        retention: seconds after which things go; None: never.
    """

    def __init__(self, core: Core, retention: float | None) -> None:
        self._core, self._retention = core, retention
        self._looked = -math.inf
        if retention is not None and not core.read_only:
            core.jobs.handle(RETENTION, lambda _: self.old(), patient=True)
            core.jobs.at_look = self.look

    def look(self) -> None:
        """Has what is old taken out in the background, once a day by the memory's clock."""
        core = self._core
        if not (core.closed or core.read_only) and not 0 <= (now := core.now()) - self._looked < DAY:
            self._looked = now
            core.jobs.put(RETENTION, {}, key=RETENTION, line="")

    def user(self, user_id: str) -> int:
        """See `ToolMemory.forget`."""
        if not user_id:
            raise NamespaceError("forget needs the user id, or the thread id, whose data is to go.")
        core = self._core
        user = core.users.of(user_id)
        with core.lock:
            gone = Forgotten(str(user.digest), core.graph.belongings(str(user.digest)))
        # The graph before rows: nothing is made of it any more.
        removed = self._all([partial(core.jobs.forget, gone), partial(core.forget, gone), *self._rows(user, gone)])
        if core.users.apart:
            core.vectors.scoped(user.namespace).drop()
        return removed

    def thread(self, thread_id: str, user_id: str | None) -> int:
        """See `ToolMemory.forget`."""
        core = self._core
        core.refresh(at_once=True)
        others = core.verdicts.others(thread_id, user_id)
        with core.lock:
            owners = {run: core.known_owner(run) for run in core.episodes.runs(thread_id)}
            mine = user_digest(user_id or None)
            others |= {run for run, owner in owners.items() if mine and owner not in ("", mine)}
            known = core.episodes.names(thread_id, others)
            whose = {mine, *(owner for run, owner in owners.items() if run not in others)}
            if not others:
                whose.add(None)
        gone = Forgotten(runs=known | {witness(thread_id, user or None) for user in whose})
        places = {core.users.of(user_id).namespace} if user_id or not core.users.apart else set[tuple[str, ...]]()
        if not places:
            places = {place for run in known if (place := core.jobs.place_of(run)) is not None}
        if not places and known:
            raise NamespaceError(
                f"The namespace {core.users.namespace!r} needs a user id, and whose thread {thread_id!r} is was not "
                "kept in this folder. Pass user_id=…"
            )
        rows = (each for place in places for each in self._rows(User(None, None, place), gone))
        # The graph last: it knows which runs these are, should something fail.
        steps: list[Callable[[], int]] = [partial(core.jobs.forget, gone), *rows]
        return self._all(steps, last=partial(core.forget, gone))

    def old(self) -> None:
        """Takes out what is older than the retention."""
        core, before = self._core, self._core.now() - (self._retention or 0.0)
        gone = Forgotten(runs=core.ages.older(before), before=before)
        graph = [partial(core.forget, gone)] if gone.runs else []
        aged = Forgotten(before=before)  # rows and decisions have times of their own
        self._all([partial(core.jobs.forget, gone), *graph, *self._rows(ANYBODY, aged)])

    def _rows(self, user: User, gone: Forgotten) -> list[Callable[[], int]]:
        return [partial(each.forget, user, gone) for each in self._core.listeners]

    def _all(self, steps: list[Callable[[], int]], last: Callable[[], int] | None = None) -> int:
        core, removed, failures = self._core, 0, list[Exception]()
        core.refuse_if_read_only()
        for step in steps:
            try:
                removed += step()
            except Exception as error:  # noqa: BLE001 - the others go all the same
                failures.append(error)
        if failures:
            raise failures[0]
        return removed + (last() if last is not None else 0)
