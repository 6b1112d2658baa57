"""The episodes of each thread, which later feedback and trimmed histories find again; and held-out episodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import Event, Forgotten, PlainRecord, Record, plain_of, records_of
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.runs.run import Run, Turn, UserMessage

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Evidence


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Sizes of the tables of episodes.

    Attributes:
        threads: threads with remembered episodes; the least recently active are dropped.
        messages: remembered user messages of a thread; the oldest are dropped.
        held_out: episodes with a draw of `Holdout`; the oldest are dropped.
    """

    threads: int = 20_000
    messages: int = 1_000
    held_out: int = 20_000


EPISODE_LIMITS: Final = EpisodeLimits()


@dataclass(slots=True)
class MessageSeen(Event):
    """A user message of a thread (digests), its episode, and the number of that episode in the thread."""

    kind = "message_seen"
    thread: str
    message: str
    episode: str
    number: int


@dataclass(slots=True)
class EpisodeOver(Event):
    """An episode was answered, or reported as finished."""

    kind = "episode_over"
    thread: str
    episode: str


def contributor(thread_id: str, user: str | None) -> str:
    """Return the digest of a thread and user as one contributor of values: users may share a thread id."""
    if not user:
        return digest("run", thread_id)
    return digest("run", thread_id, user)


@dataclass(slots=True)
class NumberedEpisode(PlainRecord):
    """An episode, and its number in the thread, from 1."""

    episode: str
    number: int


@dataclass(slots=True)
class ThreadEpisodes(PlainRecord):
    """The episodes of a thread.

    Attributes:
        messages: user message (its key) -> its episode.
        over: the episodes that are over, the latest last.
    """

    messages: dict[str, NumberedEpisode] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)

    @property
    def all(self) -> set[str]:
        return {known.episode for known in self.messages.values()} | set(self.over)

    def without(self, episodes: Collection[str]) -> ThreadEpisodes:
        left = ThreadEpisodes(over={episode: 1 for episode in self.over if episode not in episodes})
        for message, known in self.messages.items():
            if known.episode not in episodes:
                left.messages[message] = known
        return left

    def to_plain(self) -> list[dict[str, Any]]:
        return [plain_of(self.messages), self.over]

    @classmethod
    def from_plain(cls, plain: list[dict[str, Any]]) -> ThreadEpisodes:
        messages, over = plain
        return cls(records_of(NumberedEpisode, messages), over)


class KnownMessages(Mapping[str, str]):
    """A view of the user messages of a thread, each with its episode; a copy of 1,000 takes 0.3 ms at each reading."""

    def __init__(self, messages: Mapping[str, NumberedEpisode]) -> None:
        self._messages = messages

    def __getitem__(self, message: str) -> str:
        return self._messages[message].episode

    def __iter__(self) -> Iterator[str]:
        return iter([*self._messages])

    def __len__(self) -> int:
        return len(self._messages)


class Episodes(Table):
    """``threads``: by digest of the thread.

    Without the graph's lock a read may be slightly stale. `at_forgetting` is called when a user or runs are forgotten,
    here or by another worker.
    """

    name = "episodes"
    parts: ClassVar = {
        "threads": shapes.RowsOf(
            shapes.RecordOf((shapes.RowsOf(shapes.RecordOf((shapes.TEXT, shapes.WHOLE))), shapes.RowsOf(shapes.WHOLE)))
        )
    }

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.threads: dict[str, ThreadEpisodes] = {}
        self.at_forgetting: list[Callable[[], None]] = []

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {MessageSeen: self._see, EpisodeOver: self._end}

    def to_state(self) -> dict[str, Any]:
        return {"threads": plain_of(self.threads)}

    def load(self, state: dict[str, Any]) -> None:
        self.threads = records_of(ThreadEpisodes, state["threads"])

    def _thread(self, thread: str) -> ThreadEpisodes:
        # Taken out and put back: the threads are in the order of their latest activity.
        known = self.threads.pop(thread, None) or ThreadEpisodes()
        self.threads[thread] = known
        drop_oldest(self.threads, EPISODE_LIMITS.threads)
        return known

    def _known(self, thread_id: str) -> ThreadEpisodes:
        return self.threads.get(digest("run", thread_id)) or ThreadEpisodes()

    def _see(self, thread: str, message: str, episode: str, number: int) -> None:
        messages = self._thread(thread).messages
        # The first event of a message counts: two processes may report it, each with a number of its own.
        messages.setdefault(message, NumberedEpisode(episode, number))
        drop_oldest(messages, EPISODE_LIMITS.messages)

    def _end(self, thread: str, episode: str) -> None:
        over = self._thread(thread).over
        over.pop(episode, None)
        over[episode] = 1
        drop_oldest(over, EPISODE_LIMITS.messages)

    def forget(self, gone: Forgotten) -> int:
        """Delete threads with an episode of the user, and episodes that are forgotten."""
        for forget in self.at_forgetting:
            forget()
        own = set(gone.runs)
        for thread, known in list(self.threads.items()):
            episodes = known.all
            if thread in own or episodes <= own or (gone.user and own & episodes):
                del self.threads[thread]
            elif own & episodes:
                self.threads[thread] = known.without(own)
        return 0

    def of(self, thread_id: str | None) -> Mapping[str, str]:
        """Return the known user messages of a thread (their keys), each with its episode, in order."""
        if thread_id is None:
            return {}
        return KnownMessages(self._known(thread_id).messages)

    def new(self, run: Run, start: int = 0) -> Record:
        """Return the record of a run's unknown user messages; the first `start` events were read before."""
        if run.thread_id is None:
            return []
        thread = digest("run", run.thread_id)
        known = self._known(run.thread_id).messages
        episode, latest = "", 0
        if run.truncated:
            # A cut history does not show how many episodes came before it.
            latest = max((seen.number for seen in known.values()), default=0)
        record: Record = []
        for event in run.events[_last_known(run, start, known) :]:
            if not isinstance(event, UserMessage):
                continue
            if event.key in known:
                episode, latest = known[event.key].episode, known[event.key].number
                continue
            latest += event.episode != episode
            episode = event.episode
            record.append(MessageSeen(thread, event.key, event.episode, latest))
        return record

    def over(self, run: Run) -> Record:
        if run.thread_id is None:
            return []
        if next(reversed(self._known(run.thread_id).over), None) == run.digest:
            return []
        return [EpisodeOver(digest("run", run.thread_id), run.digest)]

    def runs(self, thread_id: str) -> set[str]:
        """Return the digests of the episodes of a thread."""
        return self._known(thread_id).all

    def names(self, thread_id: str | None = None, others: Collection[str] = ()) -> set[str]:
        """Return the digests of the episodes and requests of a thread, or of all, without the episodes of others."""
        threads = list(self.threads.values()) if thread_id is None else [self._known(thread_id)]
        names: set[str] = set()
        for known in threads:
            left = known.without(others)
            names |= left.all | left.messages.keys()
        return names

    def named(self, thread_id: str, episode: str | int | None, others: Collection[str] = ()) -> str:
        """Return the digest of an episode, given its number from 1 or the id of a message in it; the latest finished
        one for None.

        Raises:
            InputError: the thread is unknown, or does not have this episode, or only among `others`.
        """
        known = self._known(thread_id)
        if not known.messages and not known.over:
            raise InputError(
                f"No thread {thread_id!r} was learned in this memory: is it the thread id that the agent ran with?"
            )
        own = known.without(others)
        if not own.messages and not own.over:
            raise InputError(f"The thread {thread_id!r} is another user's.")
        if episode is None and own.over:
            return next(reversed(own.over))
        if episode is None:
            return next(reversed(own.messages.values())).episode
        named = _find_episode(thread_id, episode, own.messages)
        if named is None:
            numbers = sorted({seen.number for seen in own.messages.values()})
            raise InputError(
                f"The thread {thread_id!r} has no episode {episode!r}: give a number from {numbers[0]} to "
                f"{numbers[-1]}, or the id of a user's message."
            )
        return named


def _last_known(run: Run, start: int, known: Collection[str]) -> int:
    """Return the position of the last known user message before an event; 0 without one."""
    for place in range(start - 1, -1, -1):
        event = run.events[place]
        if isinstance(event, UserMessage) and event.key in known:
            return place
    return 0


def _find_episode(thread_id: str, episode: str | int, messages: Mapping[str, NumberedEpisode]) -> str | None:
    """Return the episode with a number, of a message with an id, or with a digest; None if there is none."""
    is_number = isinstance(episode, int) and not isinstance(episode, bool)
    if not is_number:
        thread = digest("run", thread_id)
        for key in (digest("user", thread, "", str(episode), 0), digest("user", thread_id, str(episode), 0)):
            if key in messages:
                return messages[key].episode
    for known in reversed(list(messages.values())):
        if episode == (known.number if is_number else known.episode):
            return known.episode
    return None


# --- held-out episodes: they run without hints and shortcuts, so that the report can measure the memory's effect ---

HELD_OUT: Final = "this episode is held out, to see what the memory is worth: the model is asked"


@dataclass(slots=True)
class EpisodeSpent(Event):
    """A model call of an episode with the memory (held: 0) or held out (1), and its tokens; calls is 0 as it begins."""

    kind = "episode_spent"
    run: str
    held: int
    calls: int
    tokens: int


@dataclass(slots=True)
class SpentEpisode(PlainRecord):
    """The model calls and tokens of an episode with the memory (held: 0) or held out (1)."""

    held: int
    calls: int = 0
    tokens: int = 0


class HoldoutTable(Table):
    """``episodes`` in which the memory was asked, or would have been."""

    name = "holdout"
    parts: ClassVar = {"episodes": shapes.RowsOf(shapes.ListOf(shapes.WHOLE, (3,)))}

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.episodes: dict[str, SpentEpisode] = {}

    def to_state(self) -> dict[str, Any]:
        return {"episodes": plain_of(self.episodes)}

    def load(self, state: dict[str, Any]) -> None:
        self.episodes = records_of(SpentEpisode, state["episodes"])

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {EpisodeSpent: self._spend}

    def _spend(self, run: str, held: int, calls: int, tokens: int) -> None:
        spent = self.episodes.setdefault(run, SpentEpisode(held))
        spent.calls += calls
        spent.tokens += tokens
        drop_oldest(self.episodes, EPISODE_LIMITS.held_out)

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
        # The first 32 bits of a digest, as a number, are evenly distributed.
        return int(digest("holdout", 0, run)[:8], 16) < self._share * 0x100000000

    def begins(self, run: Run) -> bool:
        """Return True if the last episode of a history is held out; record once that the memory was asked."""
        name, evidence = run.digest, self._evidence
        with evidence.lock:
            # A drawn episode is not drawn again, also after the share was changed.
            known = self._table.episodes.get(name)
            if known is not None:
                return bool(known.held)
            drawn = self.draws(name)
            if not evidence.read_only:
                evidence.apply(digest("held", name), [EpisodeSpent(name, int(drawn), 0, 0)], run=name)
        return drawn

    def spent(self, run: str, turn: Turn) -> Record:
        """Return the record of a model turn's calls and tokens. The caller holds the lock."""
        known = self._table.episodes.get(run)
        if known is None or turn.chosen_by != "model":
            return []
        return [EpisodeSpent(run, known.held, 1, turn.input_tokens + turn.output_tokens)]

    def episodes(self) -> Iterator[Episode]:
        for name, spent in self._table.episodes.items():
            yield Episode(bool(spent.held), spent.calls, spent.tokens, self._evidence.graph.score(name))
