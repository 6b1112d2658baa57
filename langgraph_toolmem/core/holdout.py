"""Held-out episodes: they run without hints and shortcuts, so that the report can measure the memory's effect.

The memory learns and predicts in them as in all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.evidence import Evidence
from langgraph_toolmem.graph.events import Event, Forgotten, Record
from langgraph_toolmem.graph.tool_graph import SCORE, Handler, Table, ToolGraph
from langgraph_toolmem.runs.run import Run, Turn

MAX_EPISODES: Final = 20_000
"""Compared episodes; the oldest leave."""
HELD_OUT: Final = "this episode is held out, to see what the memory is worth: the model is asked"


@dataclass(slots=True)
class EpisodeSpent(Event):
    """A model call of an episode with the memory (held: 0) or held out (1), and its tokens; calls is 0 as it begins."""

    kind = "episode_spent"
    run: str
    held: int
    calls: int
    tokens: int


class HoldoutTable(Table):
    """``episodes`` in which the memory was asked, or would have been: -> [held out (1 or 0), model calls, tokens]."""

    name = "holdout"
    parts = ("episodes",)

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.episodes: dict[str, list[int]] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {EpisodeSpent: self._spend}

    def _spend(self, run: str, held: int, calls: int, tokens: int) -> None:
        row = self.episodes.setdefault(run, [held, 0, 0])
        row[1] += calls
        row[2] += tokens
        if len(self.episodes) > MAX_EPISODES:
            del self.episodes[next(iter(self.episodes))]

    def forget(self, gone: Forgotten) -> int:
        for run in gone.runs:
            self.episodes.pop(run, None)
        return 0


class Episode(NamedTuple):
    """An episode: True if it was held out, its model calls and tokens (in and out), and its score, if any."""

    held: bool
    calls: int
    tokens: int
    good: float | None


class Holdout:
    """A draw of a share of the episodes by their identity: every process draws the same."""

    def __init__(self, evidence: Evidence, share: float) -> None:
        if not is_share(share) or share == 1:
            raise ConfigurationError(f"holdout is a share of the episodes, from 0 to below 1, not {share!r}.")
        self._evidence, self._share = evidence, share
        self._table = evidence.register(HoldoutTable)

    @property
    def on(self) -> bool:
        return self._share > 0

    def draws(self, run: str) -> bool:
        """Return True if an episode (its digest) is in the share."""
        return int(digest("holdout", 0, run)[:8], 16) < self._share * 0x100000000

    def begins(self, run: Run) -> bool:
        """Return True if the last episode of a history is held out; record once that the memory was asked."""
        name, evidence = run.digest, self._evidence
        with evidence.lock:
            known = self._table.episodes.get(name)
            held = self.draws(name) if known is None else bool(known[0])
            if known is None and not evidence.read_only:
                evidence.apply(digest("held", name), [EpisodeSpent(name, int(held), 0, 0)], run=name)
        return held

    def spent(self, run: str, turn: Turn) -> Record:
        """Return the record of a model turn's calls and tokens. The caller holds the lock."""
        row = self._table.episodes.get(run)
        if row is None or turn.chosen_by != "model":
            return []
        return [EpisodeSpent(run, row[0], 1, turn.input_tokens + turn.output_tokens)]

    def episodes(self) -> Iterator[Episode]:
        """Yield the compared episodes. The caller holds the lock."""
        for name, (held, calls, tokens) in self._table.episodes.items():
            entry: list[Any] | None = self._evidence.graph.runs.get(name)
            yield Episode(bool(held), calls, tokens, None if entry is None else entry[SCORE])
