"""The episodes of each thread, by which later feedback and trimmed histories find theirs; and held-out episodes."""

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

MAX_THREADS: Final = 20_000
"""Threads whose episodes are remembered; the least recently active leave."""
MAX_MESSAGES: Final = 1_000
"""User messages of a thread that are remembered; the oldest leave."""


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
    return digest("run", thread_id, user) if user else digest("run", thread_id)


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

    Without the graph's lock an answer may be a moment old. `at_forgetting` is called when a user or runs are forgotten,
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
        found = self.threads.pop(thread, None) or [{}, {}]
        self.threads[thread] = found
        if len(self.threads) > MAX_THREADS:
            del self.threads[next(iter(self.threads))]
        return found

    def _see(self, thread: str, message: str, episode: str, number: int) -> None:
        messages = self._thread(thread)[0]
        messages.setdefault(message, [episode, number])
        if len(messages) > MAX_MESSAGES:
            del messages[next(iter(messages))]

    def _end(self, thread: str, episode: str) -> None:
        over = self._thread(thread)[1]
        over.pop(episode, None)
        over[episode] = 1
        if len(over) > MAX_MESSAGES:
            del over[next(iter(over))]

    def forget(self, gone: Forgotten) -> int:
        """Delete threads with an episode of the user, and episodes that are forgotten."""
        for forget in self.at_forgetting:
            forget()
        own = set(gone.runs)
        for thread, (messages, over) in list(self.threads.items()):
            known = {episode for episode, _ in messages.values()} | over.keys()
            if thread in own or known <= own or (gone.user and own & known):
                del self.threads[thread]
            elif own & known:
                left = {message: found for message, found in messages.items() if found[0] not in own}
                self.threads[thread] = [left, {episode: 1 for episode in over if episode not in own}]
        return 0

    def of(self, thread_id: str | None) -> Mapping[str, str]:
        """Return the known user messages of a thread (their keys), each with its episode, in order."""
        found = None if thread_id is None else self.threads.get(digest("run", thread_id))
        return {} if found is None else KnownMessages(found[0])

    def new(self, run: Run, start: int = 0) -> Record:
        """Return the record of a run's unknown user messages; the first `start` events were read before."""
        if run.thread_id is None:
            return []
        thread = digest("run", run.thread_id)
        known = self.threads.get(thread, [{}, {}])[0]
        latest = 0 if not run.truncated else max((number for _, number in known.values()), default=0)
        episode, record = "", Record()
        while start and not (isinstance(event := run.events[start - 1], UserMessage) and event.key in known):
            start -= 1
        for event in run.events[max(start - 1, 0) :]:
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
        ended = self.threads.get(thread, [{}, {}])[1]
        latest = next(reversed(ended), None)
        return [] if latest == run.digest else [EpisodeOver(thread, run.digest)]

    def runs(self, thread_id: str) -> set[str]:
        messages, over = self.threads.get(digest("run", thread_id)) or ({}, {})
        return {episode for episode, _ in messages.values()} | over.keys()

    def names(self, thread_id: str | None = None, others: Collection[str] = ()) -> set[str]:
        """Return the digests of the episodes and requests of a thread, or of all, without the episodes of others."""
        of = None if thread_id is None else digest("run", thread_id)
        found = self.threads if of is None else {of: self.threads.get(of, [{}, {}])}
        names = {episode for _, over in found.values() for episode in over if episode not in others}
        for messages, _ in found.values():
            names |= {name for key, (run, _) in messages.items() if run not in others for name in (key, run)}
        return names

    def named(self, thread_id: str, episode: str | int | None, others: Collection[str] = ()) -> str:
        """Return the digest of an episode: its number from 1, or the id of a message in it; None: the latest finished.

        Raises:
            InputError: the thread is not known, or has no such episode that is not one of `others`.
        """
        thread = digest("run", thread_id)
        known = self.threads.get(thread)
        if known is None or not (known[0] or known[1]):
            raise InputError(
                f"No thread {thread_id!r} was learned in this memory: is it the thread id that the agent ran with?"
            )
        messages = {key: found for key, found in known[0].items() if found[0] not in others}
        over = [run for run in known[1] if run not in others]
        if not (messages or over):
            raise InputError(f"The thread {thread_id!r} is another user's.")
        if episode is None:
            return next(reversed(over), "") or list(messages.values())[-1][0]
        if isinstance(episode, int) and not isinstance(episode, bool):
            found = [run for run, number in messages.values() if number == episode]
        else:
            keys = (digest("user", thread_id, str(episode), 0), digest("user", thread, "", str(episode), 0))
            found = [messages[key][0] for key in keys if key in messages]
            found = found or [run for run, _ in messages.values() if run == episode]
        if not found:
            numbers = sorted({number for _, number in messages.values()})
            raise InputError(
                f"The thread {thread_id!r} has no episode {episode!r}: give a number from {numbers[0]} to "
                f"{numbers[-1]}, or the id of a user's message."
            )
        return str(found[-1])


# --- held-out episodes: they run without hints and shortcuts, so that the report can measure the memory's effect ---

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
    parts: ClassVar = {"episodes": shapes.RowsOf(shapes.ListOf(shapes.WHOLE, (3,)))}

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
            yield Episode(bool(held), calls, tokens, self._evidence.graph.score(name))
