"""Life of a run: its turns are learned, it ends, feedback arrives; at each point the methods' hooks are called.

`Episodes` keeps the episodes of each thread, which later feedback and trimmed histories find again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from langgraph_toolmem.base.caches import drop_oldest, put_latest
from langgraph_toolmem.base.checks import check_score
from langgraph_toolmem.base.errors import ConfigurationError, InputError, NamespaceError, StorageError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.jobs import Job
from langgraph_toolmem.core.method import EndedRun, JudgedRun, Method
from langgraph_toolmem.core.open_calls import AskedAgents, LearnedAnswers, OpenInputs
from langgraph_toolmem.core.users import NOBODY, Owner, User, contributor, user_digest
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import Event, Forgotten, Outcome, PlainRecord, Record, Verdict, plain_of, records_of
from langgraph_toolmem.graph.learning import LearnedTurn, attempt_digest, learn_turn, turn_digest
from langgraph_toolmem.graph.sources import NOTHING_SEEN, SeenDigests, SeenInput, read_input
from langgraph_toolmem.graph.state import Folds, RunState, as_called, latest_turn
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.runs.run import UNSEEN, ExecutedCall, Execution, ModelInput, Run, Turn, UserMessage, entries_of
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.trajectory import ThreadHistory, last_step
from langgraph_toolmem.runs.values import readable

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core


logger = logging.getLogger("langgraph_toolmem.memory")


VERDICT: Final = "verdict"
"""Kind of the jobs that leave feedback to the process that writes to the folder."""
MAX_COMMENT: Final = 500
"""Characters of a comment that are kept."""


class LearnedRun(NamedTuple):
    """The state after a run, and the number of its turns that were new."""

    state: RunState
    new_turns: int


class Lifecycle:
    """Learns from runs and feedback, and calls the methods' hooks."""

    def __init__(self, core: Core, folds: Folds) -> None:
        self._core = core
        self._folds = folds
        self.inputs = OpenInputs()
        self.asked = AskedAgents()
        self._answers = LearnedAnswers()
        core.episodes.at_forgetting += [self.inputs.forget, self._answers.forget]
        if not core.read_only:
            core.jobs.handle(VERDICT, self._take_verdicts)

    # --- runs, calls and executions ---

    def observe(
        self,
        messages: Any,
        owner: Owner = NOBODY,
        *,
        model_input: ModelInput = UNSEEN,
    ) -> int:
        """Learn the turns of a run that goes on; return the number of new ones. See `ToolMemory.observe`."""
        run, user = self._begun(messages, owner)
        new = self.learn(run, user, model_input=model_input).new_turns
        self._after_learning(run, user)
        return new

    def finish(
        self,
        messages: Any,
        owner: Owner = NOBODY,
        *,
        success: bool | float | None = None,
        comment: str | None = None,
        model_input: ModelInput = UNSEEN,
    ) -> int:
        """Learn a finished run and its score; return the number of new turns. See `ToolMemory.finish`.

        Raises:
            ConfigurationError: the score is not from 0 to 1.
        """
        if success is not None:
            check_score(success, "success")
        core = self._core
        run, user = self._begun(messages, owner)
        with core.lock:
            # Before learning, because the thread is always known after it.
            whole = success is not None and self._is_whole(run)
            new = self.learn(run, user, last_turn_too=True, model_input=model_input).new_turns
            core.apply(None, core.episodes.over(run), user=user.digest, run=run.digest)
        if success is not None:
            # If only some turns of a thread are new, it was observed live: the score is for its last episode.
            turns = [event for event in run.events if isinstance(event, Turn)]
            judged = [run.current]
            if whole and new in (0, len(turns)):
                judged = run.episodes()
            for episode in judged:
                self.note(episode.digest, float(success), comment, owner.user_id, weight=1 / len(judged))
        self._after_learning(run, user)
        self._end_new_episodes(run, user)
        core.acknowledge()
        return new

    def _end_new_episodes(self, run: Run, user: User) -> None:
        """Tell the methods which episodes of a run have ended, all in one transaction of the queue."""
        core = self._core
        # The learned turns are stored already: a queue that cannot be written must not look like a failed `finish`.
        try:
            with core.jobs.together():
                for episode in self._ending(run):
                    self.end(episode, user)
        except StorageError as error:
            core.store.say(f"Nothing of a finished run could be put into the queue: {error}")

    def import_run(self, given: EndedRun, **options: Any) -> list[EndedRun]:
        """Learn a recorded thread (options as for `learn`) and its score; return its episodes."""
        self._core.refresh()
        self.learn(given.run, given.user, last_turn_too=True, **options)
        parts = given.run.episodes()
        latest = parts[-1]
        with self._core.lock:
            self._core.apply(None, self._core.episodes.over(latest), user=given.user.digest, run=latest.digest)
        for episode in parts:
            if given.score is not None:
                self.note(episode.digest, given.score, None, given.user.id, weight=1 / len(parts))
            self._is_new_end(episode)
        return [given._replace(run=episode) for episode in parts]

    def end(self, episode: Run, user: User) -> None:
        """Notify the methods that an episode has ended, with its feedback so far."""
        core, name = self._core, episode.digest
        owner = core.owner_of(name, user.digest)
        known = core.feedback_of(name, owner)
        self._notify_ended(EndedRun(episode, user, known.score, known.comment))
        if known.score is None:
            # Feedback may have come while the methods worked: they were told of an episode without any.
            late = core.feedback_of(name, owner)
            if late.score is not None:
                self._notify_judged(JudgedRun(name, late.score, late.comment, user.id))

    def _ending(self, run: Run) -> list[Run]:
        """Return the latest episode, and those before it back to one that ended earlier, in their order."""
        ending: list[Run] = []
        # Back to front: a thread may have hundreds of episodes, and all but the last few ended earlier.
        for episode in run.backwards():
            if not self._is_new_end(episode) and ending:
                break
            ending.append(episode)
        ending.reverse()
        return ending

    def _is_new_end(self, episode: Run) -> bool:
        # The key counts once in all processes: a run that ends in two processes is kept by one.
        with self._core.lock:
            return self._core.apply(digest("ended", episode.digest), [])

    def before_model(
        self,
        messages: Any,
        owner: Owner = NOBODY,
        *,
        recorded: bool = False,
        model_input: ModelInput = UNSEEN,
    ) -> int:
        """Learn the earlier model calls that the messages show, and record that a new one begins.

        Args:
            messages: the history, as the model will see it.
            owner: thread and user of the run.
            recorded: True if a recorder reports the executions of the calls that the model makes now.
            model_input: the model's input besides the messages.

        Returns:
            The number of new turns.
        """
        run, user = self._begun(messages, owner)
        with self._core.lock:
            if run.next_key is not None:
                self.inputs.note(run.next_key, model_input)
            new = self.learn(run, user).new_turns
            if recorded and run.next_key is not None:
                self._core.executions.begins(run.next_key)
        self._after_learning(run, user)
        return new

    def executed(
        self,
        messages: Any,
        call_id: str,
        owner: Owner = NOBODY,
        *,
        tool: str,
        args: Mapping[str, Any],
        status: Literal["ok", "failed"],
        raised: bool = False,
    ) -> int:
        """Report the execution of a call of the last model turn; return the number of learned turns.

        It takes precedence over the messages: a person may have edited the call. The turn is learned once all of its
        calls are answered, in the messages or here.
        """
        core, messages = self._core, ThreadHistory(entries_of(messages))
        run, user = self._begun(messages, owner)
        with core.lock:
            asked = last_step(run, call_id)
            if asked is None:
                return 0
            turn, step = asked
            if not self._begun_elsewhere(turn):
                core.executions.begins(turn.key)
            self._note_attempt(turn, replace(step, tool=tool, args=dict(args)), status, raised=raised)
            core.executions.saw(step.key, Execution(tool, readable(dict(args)), status, over=not raised))
            if raised:  # the host may try the call again
                return 0
            return self._learn_settled(messages, owner.thread_id, user)

    def _note_attempt(self, turn: Turn, step: ExecutedCall, status: Literal["ok", "failed"], *, raised: bool) -> None:
        """Count a failed attempt of a call, or the success after failed ones. The caller holds the lock."""
        core = self._core
        # Numbered keys: each attempt counts once, in all processes.
        attempts = 0
        while core.graph.has_seen(attempt_digest(step, attempts + 1)):
            attempts += 1
        record = self._record_of(turn, step)
        if raised or (attempts and status == "failed"):
            core.apply(attempt_digest(step, attempts + 1), [Outcome(record, "failed")])
        elif attempts and core.graph.has_seen(turn_digest(turn)):
            # It failed finally and was learned as failed; then its thread was resumed.
            core.apply(attempt_digest(step, "ok"), [Outcome(record, "ok")])

    def gave_up(self, messages: Any, call_id: str, owner: Owner = NOBODY) -> int:
        """Report that the error of a call reaches the host, without further attempts."""
        core, messages = self._core, ThreadHistory(entries_of(messages))
        run, user = self._begun(messages, owner)
        with core.lock:
            asked = last_step(run, call_id)
            if asked is None:
                return 0
            before = core.executions.executions.get(asked.step.key)
            if before is None or before.over:
                return 0
            core.executions.saw(asked.step.key, replace(before, over=True))
            return self._learn_settled(messages, owner.thread_id, user)

    def _begun(self, messages: Any, owner: Owner) -> tuple[Run, User]:
        # Other processes may have learned turns of this thread.
        self._core.refresh()
        return self._core.executions.read(messages, owner.thread_id), self._core.users.learner(owner.user_id)

    # --- learning ---

    def learn(
        self,
        run: Run,
        user: User,
        *,
        last_turn_too: bool = False,
        specs: Mapping[str, ToolSpec] | None = None,
        model_input: ModelInput = UNSEEN,
        **options: Any,
    ) -> LearnedRun:
        """Learn the new turns of a run, one record each; return the state after the run, and their number.

        Args:
            run: the thread as read.
            user: its user.
            last_turn_too: if True, the last turn is learned even if some of its calls have no answer.
            specs: the available tools. Defaults to the memory's own.
            model_input: the model's input at turns without a recorded one (`OpenInputs`).
            options: of the caller for the methods, by the method's name (`LearnedTurn.options`).
        """
        core = self._core
        with core.lock:
            core.store.refresh()
            state, start = self._folds.begin(run)
            self._note_messages(run, start, user)
            last = latest_turn(run)
            names, specs = core.catalogue.records(specs), core.catalogue.recorded(specs, others=True)
            new_turns, scratch = 0, dict[str, Any]()
            unnoted: SeenDigests | SeenInput = NOTHING_SEEN
            if model_input is not UNSEEN:
                unnoted = read_input(model_input)
            thread, hour = contributor(run.thread_id or run.scope, user.digest), core.hour()
            for index in range(start, len(run.events)):
                event = self.asked.names(run.events[index], names).read(run.events[index])
                # The state before the latest turn is kept: that turn may be read again with more answers.
                if index == last > start:
                    self._folds.keep(run, index, state)
                if isinstance(event, Turn) and _is_learnable(run, index, event, unsettled_too=last_turn_too):
                    learned = LearnedTurn(
                        state,
                        event,
                        run=event.episode or run.digest,
                        thread=thread,
                        user=user.digest,
                        specs=specs,
                        hour=hour,
                        options=options,
                        scratch=scratch,
                        thread_id=run.thread_id or "",
                    )
                    new_turns += self._learn_turn(learned, unnoted)
                state.push(event)
            state.seen = NOTHING_SEEN
            return LearnedRun(state, new_turns)

    def _note_messages(self, run: Run, start: int, user: User) -> None:
        """Record the episodes of the user messages that are new in a thread. The caller holds the lock."""
        new = self._core.episodes.new(run, start)
        if new:
            self._core.apply(None, new, user=user.digest, run=run.digest)

    def _learn_turn(self, learned: LearnedTurn, unnoted: SeenDigests | SeenInput) -> bool:
        """Learn a turn; return True if it is new. `unnoted`: the model's input, if it was not recorded."""
        core, turn = self._core, learned.turn
        # The same history gives the same key in every process, so that a turn counts once.
        key = turn_digest(turn)
        if core.graph.has_seen(key):
            again = self._again(learned)
            if again:
                core.apply(None, again, user=learned.user, run=learned.run)
            return False
        # Two histories of a thread may show one answer; it is learned once.
        if self._answers.has_elsewhere(turn):
            return False
        self._answers.note(turn)
        learned.state.seen = self.inputs.take(turn.key) or unnoted
        return core.apply(key, self._record(learned), user=learned.user, run=learned.run)

    def _record(self, learned: LearnedTurn) -> Record:
        record: Record = []
        for listener in self._core.listeners:
            record += listener.turn(learned)
        called = as_called(learned.turn)
        record += self._core.ledger.followed(called) + self._core.holdout.spent(learned.run, called)
        record += self._core.trials.went(learned.run, called)
        if self._core.ages is not None:
            record += self._core.ages.seen(learned)
        return record + learn_turn(self._core.graph, learned)

    def _again(self, learned: LearnedTurn) -> Record:
        """Return the record of a turn that was learned before: a fork took the same turn again."""
        record: Record = []
        for listener in self._core.listeners:
            record += listener.repeated(learned)
        return record + self._core.ledger.followed(as_called(learned.turn))

    def _learn_settled(self, messages: Any, thread_id: str | None, user: User) -> int:
        run = self._core.executions.read(messages, thread_id)
        if run.next_key is None:
            return 0
        return self.learn(run, user).new_turns

    def _begun_elsewhere(self, turn: Turn) -> bool:
        """Return True if another process saw one of the turn's calls fail: this process did not see all of it."""
        known = self._core.executions.executions
        for step in turn.steps:
            if step.key not in known and self._core.graph.has_seen(attempt_digest(step, 1)):
                return True
        return False

    def _record_of(self, turn: Turn, step: ExecutedCall) -> str:
        return self.asked.names(turn, self._core.catalogue.records()).of(step)

    # --- hooks ---

    def _after_learning(self, run: Run, user: User) -> None:
        """Record that an answer in words ended the request, look for waiting jobs, and wait for a shared store."""
        core = self._core
        with core.lock:
            # An answer with text ends the request, also without a call of `finish`.
            if run.events and not core.read_only:
                last = run.events[-1]
                if isinstance(last, Turn) and not last.steps:
                    core.apply(None, core.episodes.over(run), user=user.digest, run=run.digest)
        if core.store.closed:
            return
        core.log_and_continue("could not look for waiting jobs", core.jobs.poll)
        core.acknowledge()

    def _notify_ended(self, ended: EndedRun) -> None:
        for listener in self._listeners():
            with self._failing_alone(listener):
                listener.ended(ended)

    def _notify_judged(self, judged: JudgedRun) -> None:
        for listener in self._listeners():
            with self._failing_alone(listener):
                listener.judged(judged)

    def _listeners(self) -> Sequence[Method]:
        if self._core.store.closed:
            return ()
        return self._core.listeners

    @contextmanager
    def _failing_alone(self, listener: Method) -> Iterator[None]:
        """Log and report an error of one method: the others take the run in, and the host goes on."""
        core = self._core
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a method of the host's own may raise anything
            core.log_failure_and_continue(f"{listener.name} could not take in a run", error)
            if isinstance(error, StorageError):
                core.store.say(f"{listener.name} kept nothing of a finished run: {error}")

    # --- feedback ---

    def _is_whole(self, run: Run) -> bool:
        """Return True if a score given with a run is for all episodes of the thread, not only for the latest."""
        if not self._core.episodes.of(run.thread_id):
            return True  # the thread was never observed: it is passed on completely
        if run.truncated:
            return False
        # Each episode has its part of an earlier score: the thread is passed on completely once more.
        episodes = run.episodes()
        part = 1 / len(episodes)
        return len(episodes) > 1 and all(self._core.weight_of(episode.digest) == part for episode in episodes)

    def feedback(
        self,
        thread_id: str,
        score: float,
        comment: str | None,
        episode: str | int | None,
        user_id: str | None,
    ) -> None:
        """Record feedback on an episode of a thread; see `ToolMemory.feedback` for the arguments.

        Raises:
            ConfigurationError: the score is not from 0 to 1, or a read-only memory has no folder for the job.
            InputError: the thread or the episode is unknown.
            NamespaceError: the user must be named.
        """
        check_score(score, "score")
        core = self._core
        core.refuse_if_closed()
        if core.read_only and core.jobs.queue.folder is None:
            raise ConfigurationError(
                "A read-only memory without a folder cannot leave feedback for the process that writes. Give the "
                "feedback there, or open the memory's folder."
            )
        # Now, not at the next poll: the thread may have just been finished on another machine.
        core.refresh(at_once=True)
        with core.lock:
            run = core.episodes.named(thread_id, episode, self.others(thread_id, user_id))
        if core.users.apart and not user_id and core.jobs.queue.namespace_of(run).namespace is None:
            raise core.users.owner_unknown(f"run {thread_id!r}")
        if core.read_only:
            self._leave_feedback(run, float(score), comment, user_id)
        else:
            self.judge(run, float(score), comment, user_id)
        core.acknowledge()

    def _leave_feedback(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        """Leave feedback to the process that writes to the graph, as a job."""
        core = self._core
        feedback = {"score": score, "comment": comment or "", "user_id": user_id or ""}
        user = core.owner_of(run, user_digest(user_id or None))
        core.jobs.put(VERDICT, feedback, run=run, user=user, ordering_key=digest(run))

    def others(self, thread_id: str, user_id: str | None) -> set[str]:
        """Return the episodes of other users in a thread, if several users have a thread of that id.

        Raises:
            NamespaceError: several users have such a thread, and `user_id` is missing.
        """
        owners = {run: self._core.known_owner(run) for run in self._core.episodes.runs(thread_id)}
        users = set(owners.values()) - {""}
        if len(users) < 2:  # every user of it may score it
            return set()
        if not user_id:
            raise NamespaceError(f"{len(users)} users have a thread {thread_id!r}. Pass user_id=…")
        return {run for run, owner in owners.items() if owner not in ("", user_digest(user_id))}

    def judge(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        """Record feedback on a run (its digest) and notify the methods."""
        self.note(run, score, comment, user_id or None)
        self._notify_judged(JudgedRun(run, score, comment, user_id or None))

    def note(self, run: str, score: float, comment: str | None, user_id: str | None, *, weight: float = 1.0) -> None:
        """Record feedback in the graph, so that `forget` finds it: without a named user, by the run's user.

        Its time is later than that of all known feedback, independent of the clocks; `Verdict.rank` decides which
        feedback is kept.
        """
        core = self._core
        with core.lock:
            core.store.refresh()
            known = core.graph.verdict(run)
            when = core.now()
            if known is not None:
                # A clock may be set back, and another machine's clock may be ahead.
                when = max(when, nextafter(known.when, inf))
            author = user_digest(user_id) or core.graph.owner(run)
            new = Verdict(run, score, (comment or "")[:MAX_COMMENT] or None, author, weight, when)
            if known is None or new.rank >= known.rank:
                core.apply(None, [new], user=author, run=run)

    def _take_verdicts(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            feedback = job.payload
            self.judge(job.run, feedback["score"], feedback["comment"], feedback["user_id"])


def _is_learnable(run: Run, index: int, turn: Turn, *, unsettled_too: bool) -> bool:
    """Return True if the turn at a place of a run can be learned: its calls are answered, and its question is known."""
    if not turn.settled and not unsettled_too:
        return False
    # An answer at the head of a cut history: its question is missing, and it may have been learned before.
    is_headless = index == 0 and run.truncated and not turn.steps
    return not is_headless


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Sizes of the tables of episodes.

    Attributes:
        threads: threads with remembered episodes; the least recently active are dropped.
        messages: remembered user messages of a thread; the oldest are dropped.
    """

    threads: int = 20_000
    messages: int = 1_000


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
        """The digests of all episodes."""
        return {known.episode for known in self.messages.values()} | set(self.over)

    @property
    def latest(self) -> str:
        """The episode that was over last, otherwise that of the latest message. There must be one."""
        if self.over:
            return next(reversed(self.over))
        return next(reversed(self.messages.values())).episode

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
    record_kinds: ClassVar = {"threads": ThreadEpisodes}

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.threads: dict[str, ThreadEpisodes] = {}
        self.at_forgetting: list[Callable[[], None]] = []

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {MessageSeen: self._see, EpisodeOver: self._end}

    def _thread(self, thread: str) -> ThreadEpisodes:
        known = self.threads.get(thread) or ThreadEpisodes()
        # The threads are in the order of their latest activity.
        put_latest(self.threads, thread, known, EPISODE_LIMITS.threads)
        return known

    def _known(self, thread_id: str) -> ThreadEpisodes:
        return self.threads.get(digest("run", thread_id)) or ThreadEpisodes()

    def _see(self, thread: str, message: str, episode: str, number: int) -> None:
        messages = self._thread(thread).messages
        # The first event of a message counts: two processes may report it, each with a number of its own.
        messages.setdefault(message, NumberedEpisode(episode, number))
        drop_oldest(messages, EPISODE_LIMITS.messages)

    def _end(self, thread: str, episode: str) -> None:
        put_latest(self._thread(thread).over, episode, 1, EPISODE_LIMITS.messages)

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
        """Return the record that the latest episode of a run is over; empty if that is known."""
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
        if thread_id is None:
            threads = list(self.threads.values())
        else:
            threads = [self._known(thread_id)]
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
        if not known.all:
            raise InputError(
                f"No thread {thread_id!r} was learned in this memory: is it the thread id that the agent ran with?"
            )
        own = known.without(others)
        if not own.all:
            raise InputError(f"The thread {thread_id!r} is another user's.")
        if episode is None:
            return own.latest
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
    latest_first = list(messages.values())
    latest_first.reverse()
    if isinstance(episode, int) and not isinstance(episode, bool):
        for known in latest_first:
            if known.number == episode:
                return known.episode
        return None
    # The two keys of a user message, with an id that repeats and with one that was drawn at random (`Reading`).
    thread = digest("run", thread_id)
    for key in (digest("user", thread, "", str(episode), 0), digest("user", thread_id, str(episode), 0)):
        if key in messages:
            return messages[key].episode
    for known in latest_first:
        if known.episode == episode:
            return known.episode
    return None
