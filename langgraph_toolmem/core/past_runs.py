"""Finished runs as methods may read them of each other: what was asked, what was called, and whether it ended badly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


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
        whole: `runs` are all there are: forget what was known before.
        runs: new and changed ones.
        gone: ids of those that are there no more.
    """

    version: int
    whole: bool
    runs: Sequence[PastRun]
    gone: Sequence[str]


class PastRuns(Protocol):
    """The finished runs of one user scope. Two are equal if versions of the one are versions of the other."""

    def changes(self, since: int) -> PastRunChanges:
        """What changed after a version; everything if that was too long ago, or 0."""
        ...
