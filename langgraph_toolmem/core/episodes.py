"""The episodes of each thread, which later feedback and trimmed histories find again; and held-out episodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import Event, Forgotten, Record
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


class KnownMessages(Mapping[str, str]):
    """A view of the user messages of a thread, each with its episode; a copy of 1,000 takes 0.3 ms at each reading."""

    def __init__(self, messages: Mapping[str, Any]) -> None:
        self._messages = messages

    def __getitem__(self, message: str) -> str:
        episode: str = self._messages[message][0]
        return episode

    def __iter__(self) -> Iterator[str]:
        return iter([*self._messages])

    def __len__(self) -> int:
        return len(self._messages)


class Episodes(Table):
    """``threads``: thread -> [{message: [episode, number]}, {episode that is over: 1}, the latest last].

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
        self.threads: dict[str, list[dict[str, Any]]] = {}
        self.at_forgetting: list[Callable[[], None]] = []

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {MessageSeen: self._see, EpisodeOver: self._end}

    def _thread(self, thread: str) -> list[dict[str, Any]]:
        # Removed and added again: the threads are in the order of their latest activity.
        row = self.threads.pop(thread, None) or [{}, {}]
        self.threads[thread] = row
        if len(self.threads) > EPISODE_LIMITS.threads:
            del self.threads[next(iter(self.threads))]
        return row

    def _see(self, thread: str, message: str, episode: str, number: int) -> None:
        messages = self._thread(thread)[0]
        # The first event of a message counts: two processes may report it, each with a number of its own.
        messages.setdefault(message, [episode, number])
        if len(messages) > EPISODE_LIMITS.messages:
            del messages[next(iter(messages))]

    def _end(self, thread: str, episode: str) -> None:
        over = self._thread(thread)[1]
        over.pop(episode, None)
        over[episode] = 1
        if len(over) > EPISODE_LIMITS.messages:
            del over[next(iter(over))]

    def forget(self, gone: Forgotten) -> int:
        """Delete threads with an episode of the user, and episodes that are forgotten."""
        for forget in self.at_forgetting:
            forget()
        own = set(gone.runs)
        for thread, (messages, over) in list(self.threads.items()):
            known = _episodes_of(messages, over)
            if thread in own or known <= own or (gone.user and own & known):
                del self.threads[thread]
            elif own & known:
                self.threads[thread] = _without_episodes(messages, over, own)
        return 0

    def of(self, thread_id: str | None) -> Mapping[str, str]:
        """Return the known user messages of a thread (their keys), each with its episode, in order."""
        if thread_id is None:
            return {}
        row = self.threads.get(digest("run", thread_id))
        if row is None:
            return {}
        messages, _ = row
        return KnownMessages(messages)

    def new(self, run: Run, start: int = 0) -> Record:
        """Return the record of a run's unknown user messages; the first `start` events were read before."""
        if run.thread_id is None:
            return []
        thread = digest("run", run.thread_id)
        known, _ = self.threads.get(thread, [{}, {}])
        episode, latest = "", 0
        if run.truncated:
            # A cut history does not show how many episodes came before it.
            latest = max((number for _, number in known.values()), default=0)
        record: Record = []
        for event in run.events[_last_known(run, start, known) :]:
            if not isinstance(event, UserMessage):
                continue
            if event.key in known:
                episode, latest = known[event.key]
                continue
            latest += event.episode != episode
            episode = event.episode
            record.append(MessageSeen(thread, event.key, event.episode, latest))
        return record

    def over(self, run: Run) -> Record:
        if run.thread_id is None:
            return []
        thread = digest("run", run.thread_id)
        _, ended = self.threads.get(thread, [{}, {}])
        if next(reversed(ended), None) == run.digest:
            return []
        return [EpisodeOver(thread, run.digest)]

    def runs(self, thread_id: str) -> set[str]:
        """Return the digests of the episodes of a thread."""
        messages, over = self.threads.get(digest("run", thread_id), [{}, {}])
        return _episodes_of(messages, over)

    def names(self, thread_id: str | None = None, others: Collection[str] = ()) -> set[str]:
        """Return the digests of the episodes and requests of a thread, or of all, without the episodes of others."""
        rows = list(self.threads.values())
        if thread_id is not None:
            rows = [self.threads.get(digest("run", thread_id), [{}, {}])]
        names: set[str] = set()
        for messages, over in rows:
            names.update(episode for episode in over if episode not in others)
            for message, (episode, _) in messages.items():
                if episode not in others:
                    names.add(message)
                    names.add(episode)
        return names

    def named(self, thread_id: str, episode: str | int | None, others: Collection[str] = ()) -> str:
        """Return the digest of an episode, given its number from 1 or the id of a message in it; the latest finished
        one for None.

        Raises:
            InputError: the thread is unknown, or does not have this episode, or only among `others`.
        """
        all_messages, all_over = self.threads.get(digest("run", thread_id), [{}, {}])
        if not all_messages and not all_over:
            raise InputError(
                f"No thread {thread_id!r} was learned in this memory: is it the thread id that the agent ran with?"
            )
        messages, over = _without_episodes(all_messages, all_over, others)
        if not messages and not over:
            raise InputError(f"The thread {thread_id!r} is another user's.")
        if episode is None and over:
            return next(reversed(over))
        if episode is None:
            latest, _ = next(reversed(messages.values()))
            return str(latest)
        named = _find_episode(thread_id, episode, messages)
        if named is None:
            numbers = sorted({number for _, number in messages.values()})
            raise InputError(
                f"The thread {thread_id!r} has no episode {episode!r}: give a number from {numbers[0]} to "
                f"{numbers[-1]}, or the id of a user's message."
            )
        return named


def _episodes_of(messages: Mapping[str, Any], over: Collection[str]) -> set[str]:
    """Return the episodes of a thread's row."""
    return {episode for episode, _ in messages.values()} | set(over)


def _without_episodes(
    messages: Mapping[str, Any], over: Collection[str], episodes: Collection[str]
) -> list[dict[str, Any]]:
    """Return a thread's row without some episodes."""
    left: dict[str, Any] = {}
    for message, (episode, number) in messages.items():
        if episode not in episodes:
            left[message] = [episode, number]
    return [left, {episode: 1 for episode in over if episode not in episodes}]


def _last_known(run: Run, start: int, known: Collection[str]) -> int:
    """Return the position of the last known user message before an event; 0 without one."""
    for place in range(start - 1, -1, -1):
        event = run.events[place]
        if isinstance(event, UserMessage) and event.key in known:
            return place
    return 0


def _find_episode(thread_id: str, episode: str | int, messages: Mapping[str, Any]) -> str | None:
    """Return the episode with a number, of a message with an id, or with a digest; None if there is none."""
    is_number = isinstance(episode, int) and not isinstance(episode, bool)
    if not is_number:
        thread = digest("run", thread_id)
        for key in (digest("user", thread, "", str(episode), 0), digest("user", thread_id, str(episode), 0)):
            if key in messages:
                run, _ = messages[key]
                return str(run)
    for run, number in reversed(list(messages.values())):
        if episode == (number if is_number else run):
            return str(run)
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


class HoldoutTable(Table):
    """``episodes`` in which the memory was asked, or would have been asked: -> [held out (1 or 0), model calls,
    tokens].
    """

    name = "holdout"
    parts: ClassVar = {"episodes": shapes.RowsOf(shapes.ListOf(shapes.WHOLE, (3,)))}

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.episodes: dict[str, list[int]] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {EpisodeSpent: self._spend}

    def _spend(self, run: str, held: int, calls: int, tokens: int) -> None:
        known_held, known_calls, known_tokens = self.episodes.get(run, (held, 0, 0))
        self.episodes[run] = [known_held, known_calls + calls, known_tokens + tokens]
        if len(self.episodes) > EPISODE_LIMITS.held_out:
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
        # The first 32 bits of a digest, as a number, are evenly distributed.
        return int(digest("holdout", 0, run)[:8], 16) < self._share * 0x100000000

    def begins(self, run: Run) -> bool:
        """Return True if the last episode of a history is held out; record once that the memory was asked."""
        name, evidence = run.digest, self._evidence
        with evidence.lock:
            # A drawn episode is not drawn again, also after the share was changed.
            known = self._table.episodes.get(name)
            if known is not None:
                held, *_ = known
                return bool(held)
            drawn = self.draws(name)
            if not evidence.read_only:
                evidence.apply(digest("held", name), [EpisodeSpent(name, int(drawn), 0, 0)], run=name)
        return drawn

    def spent(self, run: str, turn: Turn) -> Record:
        """Return the record of a model turn's calls and tokens. The caller must hold the lock."""
        row = self._table.episodes.get(run)
        if row is None or turn.chosen_by != "model":
            return []
        held, *_ = row
        return [EpisodeSpent(run, held, 1, turn.input_tokens + turn.output_tokens)]

    def episodes(self) -> Iterator[Episode]:
        for name, (held, calls, tokens) in self._table.episodes.items():
            yield Episode(bool(held), calls, tokens, self._evidence.graph.score(name))
