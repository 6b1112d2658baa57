"""Finished runs as methods may read them of each other: what was asked, what was called, and whether it ended badly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from langgraph_toolmem.core.users import User


class PastRun(NamedTuple):
    """One finished run.

    Attributes:
        id: what tells it from others.
        request: the user's words.
        tools: those called with success, in order.
        failed: its verdict was bad.
        time: when it ended, in seconds since 1970.
    """

    id: str
    request: str
    tools: tuple[str, ...]
    failed: bool
    time: float


class PastRunChanges(NamedTuple):
    """What changed since a version.

    Attributes:
        version: to be asked with the next time.
        whole: `runs` are the latest there are: forget what was known before.
        runs: new and changed ones.
        gone: ids of those that are there no more.
    """

    version: int
    whole: bool
    runs: Sequence[PastRun]
    gone: Sequence[str]


class PastRuns(Protocol):
    """The finished runs of one user scope. Two are equal if versions of the one are versions of the other."""

    def changes(self, since: int, most: int) -> PastRunChanges:
        """What changed after a version; the latest `most` if that was too long ago, or 0."""
        ...


class PastRunSource(Protocol):
    """A method that keeps finished runs."""

    def past_runs(self, user: User) -> PastRuns | None:
        """Those of a user; None if there are none."""


class KeptRuns:
    """Where methods meet over finished runs: one keeps them, others read them, and do without where nobody does."""

    def __init__(self) -> None:
        self._source: PastRunSource | None = None

    def provide(self, source: PastRunSource) -> None:
        """This method keeps finished runs."""
        self._source = source

    def of(self, user: User) -> PastRuns | None:
        """The finished runs of a user; None if nobody keeps any."""
        return None if self._source is None else self._source.past_runs(user)
