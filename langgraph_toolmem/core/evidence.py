"""The evidence of a memory: one lock, one graph, and one way to add records; and held-out episodes.

Held-out episodes run without hints and shortcuts, so that the report can measure the memory's effect. The memory learns
and predicts in them as in all others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError, StorageError, log_failure
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.users import Users
from langgraph_toolmem.graph.events import HOUR, Count, Event, Forgotten, Record
from langgraph_toolmem.graph.tool_graph import AUTHOR, COMMENT, SCORE, WEIGHT, Handler, Table, ToolGraph
from langgraph_toolmem.runs.run import Run, Turn
from langgraph_toolmem.stores.events import EventStore

if TYPE_CHECKING:
    from langgraph_toolmem.stores.shared import SharedLog

T = TypeVar("T", bound=Table)

logger = logging.getLogger("langgraph_toolmem.memory")


class Evidence:
    """The evidence graph with its lock, its persistence and its users. Safe to use from several threads.

    Attributes:
        graph: to be read under `lock`.
        forgettings: number of `forget` calls in this process.
        closed: True if nothing may be opened any more.
    """

    def __init__(self, store: EventStore, users: Users, *, now: Callable[[], float], read_only: bool) -> None:
        self.lock = store.lock
        self.store, self.users, self.now, self.read_only = store, users, now, read_only
        self.graph = store.graph
        self.shared_log: SharedLog | None = None
        self.forgettings = 0
        self.closed = False
        self._warned: set[str] = set()

    def register(self, kind: type[T]) -> T:
        with self.lock:
            return self.store.register(kind)

    def apply(self, key: str | None, record: Record, *, user: str | None = None, run: str = "") -> bool:
        """Store the events of a run and apply them to the graph, once for each key. The caller holds the lock."""
        new = self.store.append(key, record, user=user or "", run=run)
        if self.shared_log is not None and not self.read_only:
            self.shared_log.learned()
        return new

    def refresh(self, *, at_once: bool = False) -> None:
        """Apply what other processes and workers learned; `at_once` waits for a shared store. Not under the lock."""
        if self.shared_log is not None:
            self.shared_log.look(at_once=at_once)
        with self.lock:
            self.store.refresh()

    def acknowledge(self) -> None:
        """Wait a moment for a shared store to have what was learned, where nothing else outlives the process."""
        if self.shared_log is not None:
            self.shared_log.acknowledge()

    def hour(self) -> int:
        return int(self.now() // HOUR)

    def log_and_continue(self, what: str, do: Callable[[], object]) -> Exception | None:
        """Call a function whose errors must not stop the caller; log each failure once, and return the error."""
        try:
            do()
        except Exception as error:  # noqa: BLE001 - whatever it is, learning and the host go on
            self.log_failure_and_continue(what, error)
            return error
        return None

    def log_failure_and_continue(self, what: str, error: Exception) -> None:
        nobody = isinstance(error, NamespaceError)
        level = logging.DEBUG if nobody or what in self._warned else logging.WARNING
        self._warned |= set() if nobody else {what}
        log_failure(logger, level, what, error=error)

    def refuse_if_closed(self) -> None:
        if self.closed:
            raise StorageError("The memory is closed. Make a new one to go on.")

    def refuse_if_read_only(self) -> None:
        if self.read_only:
            raise StorageError("A memory opened with read_only=True keeps nothing: do this where it is written.")

    # --- counting ---

    def has_seen(self, key: str) -> bool:
        with self.lock:
            return self.graph.has_seen(key)

    def count(self, counter: str, amount: float = 1) -> None:
        with self.lock:
            self.apply(None, [Count(counter, amount)])

    def count_once(self, key: str, counter: str) -> None:
        """Add one to a counter, once for each key."""
        with self.lock:
            self.apply(key, [Count(counter, 1)])

    def counter(self, name: str) -> int:
        with self.lock:
            return int(self.graph.counters.get(name, 0))

    # --- runs and whose they are ---

    def score_of(self, run: str) -> float | None:
        with self.lock:
            return self.graph.score(run)

    def weight_of(self, run: str) -> float:
        with self.lock:
            entry = self.graph.runs.get(run)
            return 0.0 if entry is None or entry[SCORE] is None else float(entry[WEIGHT])

    def verdict_of(self, run: str, user: str | None) -> tuple[float | None, str | None]:
        """Return score and comment of a run, unless another user's run with the same id was scored."""
        with self.lock:
            entry = self.graph.runs.get(run)
        if entry is None or entry[SCORE] is None or entry[AUTHOR] not in (None, user):
            return None, None
        return entry[SCORE], entry[COMMENT]

    def known_owner(self, run: str) -> str:
        """Return the digest of a run's user, or of the author of its feedback; "" if both are unknown."""
        with self.lock:
            entry = self.graph.runs.get(run)
            return self.graph.owner(run) or (entry is not None and entry[AUTHOR]) or ""

    def close_store(self) -> None:
        """Send waiting events to a shared store, write a snapshot, and release the folder."""
        if self.shared_log is not None:
            self.shared_log.close()
        self.store.close()

    def forget(self, gone: Forgotten) -> int:
        """Remove a user, or runs, from graph and disk; return how many pieces. Raise StorageError if some are left."""
        if self.read_only:
            raise StorageError("A memory opened with read_only=True cannot forget: call forget where it is written.")
        self.refresh(at_once=True)
        with self.lock:
            self.forgettings += 1
            removed = self.store.forget(gone)
            if self.shared_log is not None:
                self.shared_log.withdraw(gone)
        self.store.erase()
        return removed + (0 if self.shared_log is None else self.shared_log.forget(gone))


# --- held-out episodes ---

MAX_EPISODES: Final = 20_000
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
        for name, (held, calls, tokens) in self._table.episodes.items():
            entry: list[Any] | None = self._evidence.graph.runs.get(name)
            yield Episode(bool(held), calls, tokens, None if entry is None else entry[SCORE])
