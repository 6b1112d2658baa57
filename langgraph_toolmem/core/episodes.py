"""Finished runs as what a request led to, from whichever method keeps them; others do without where nobody does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Episode(NamedTuple):
    """A finished run.

    Attributes:
        id: its identity.
        request: what the user asked for.
        tools: the tools that were called and answered without an error, in order.
        good: the verdict; None if nobody gave one.
        time: when it ended, seconds since 1970.
    """

    id: str
    request: str
    tools: tuple[str, ...]
    good: bool | None
    time: float


class EpisodeChanges(NamedTuple):
    """What is new since a version.

    Attributes:
        episodes: new or changed.
        gone: ids of those that are no longer there.
        whole: these are all there are; what was known before is void.
        version: to ask with the next time.
    """

    episodes: Sequence[Episode]
    gone: Sequence[str]
    whole: bool
    version: int


class EpisodeLog(Protocol):
    """The finished runs of a namespace."""

    def changes(self, version: int) -> EpisodeChanges:
        """What is new since a version; 0: all."""


class EpisodeSource(Protocol):
    """A method that keeps finished runs."""

    def episodes(self, namespace: tuple[str, ...], wait: float | None) -> EpisodeLog | None:
        """Those of a namespace; None if there are none, or they are still being read after `wait` seconds."""


class Episodes:
    """Where methods meet over finished runs."""

    def __init__(self) -> None:
        self._source: EpisodeSource | None = None

    def provide(self, source: EpisodeSource) -> None:
        """This method keeps finished runs."""
        self._source = source

    def of(self, namespace: tuple[str, ...], *, wait: float | None = None) -> EpisodeLog | None:
        """The finished runs of a namespace; None if nobody keeps any, or they are still being read."""
        return None if self._source is None else self._source.episodes(namespace, wait)
