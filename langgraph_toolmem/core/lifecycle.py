"""Life of a run: its turns are learned, it ends, feedback arrives; at each point the methods' hooks are called."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, Final, Literal

from langgraph_toolmem.base.checks import check_score
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError, StorageError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.episodes import contributor
from langgraph_toolmem.core.jobs import Job
from langgraph_toolmem.core.method import EndedRun, JudgedRun
from langgraph_toolmem.core.open_inputs import AskedAgents, LearnedAnswers, OpenInputs
from langgraph_toolmem.core.users import NOBODY, Owner, User, user_digest
from langgraph_toolmem.graph.events import Outcome, Record, Verdict
from langgraph_toolmem.graph.learning import LearnedTurn, attempt_digest, learn_turn, turn_digest
from langgraph_toolmem.graph.sources import NOTHING_SEEN, SeenDigests, SeenInput, read_input
from langgraph_toolmem.graph.state import Folds, RunState, as_called, latest_turn
from langgraph_toolmem.runs.run import UNSEEN, ExecutedCall, Execution, ModelInput, Run, Turn, entries_of
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
        run, user = self._begun(messages, owner)
        _, new = self.learn(run, user, model_input=model_input)
        self._learned(run, user)
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
        if success is not None:
            check_score(success, "success")
        core = self._core
        run, user = self._begun(messages, owner)
        with core.lock:
            # Before learning, because the thread is always known after it.
            whole = success is not None and self._is_whole(run)
            _, new = self.learn(run, user, last_turn_too=True, model_input=model_input)
            # If only some turns of a thread are new, it was observed live: the score is for its last episode.
            turns = [event for event in run.events if isinstance(event, Turn)]
            whole = whole and new in (0, len(turns))
            core.apply(None, self._core.episodes.over(run), user=user.digest, run=run.digest)
        if success is not None:
            judged = run.episodes() if whole else [run.current]
            for episode in judged:
                self.note(episode.digest, float(success), comment, owner.user_id, weight=1 / len(judged))
        self._learned(run, user)
        # The learned turns are stored already: a queue that cannot be written must not look like a failed `finish`.
        try:
            with core.jobs.together():
                for episode in self._ending(run):
                    self.end(episode, user)
        except StorageError as error:
            core.store.say(f"Nothing of a finished run could be put into the queue: {error}")
        core.acknowledge()
        return new

    def import_run(self, given: EndedRun, **options: Any) -> list[EndedRun]:
        """Learn a recorded thread (options as for `learn`) and its score; return its episodes."""
        self._core.refresh()
        self.learn(given.run, given.user, last_turn_too=True, **options)
        parts = given.run.episodes()
        with self._core.lock:
            self._core.apply(None, self._core.episodes.over(parts[-1]), user=given.user.digest, run=parts[-1].digest)
        for episode in parts:
            if given.score is not None:
                self.note(episode.digest, given.score, None, given.user.id, weight=1 / len(parts))
            self._is_new_end(episode)
        return [given._replace(run=episode) for episode in parts]

    def end(self, episode: Run, user: User) -> None:
        core, name = self._core, episode.digest
        owner = core.owner_of(name, user.digest)
        score, comment = core.verdict_of(name, owner)
        self._notify("ended", EndedRun(episode, user, score, comment))
        if score is None:
            score, comment = core.verdict_of(name, owner)
            if score is not None:  # it came in between
                self._notify("judged", JudgedRun(name, score, comment, user.id))

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
            _, new = self.learn(run, user)
            if recorded and run.next_key is not None:
                self._core.executions.begins(run.next_key)
        self._learned(run, user)
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
            found = last_step(run, call_id)
            if found is None:
                return 0
            turn, step = found
            if not self._begun_elsewhere(turn):
                self._core.executions.begins(turn.key)
            self._note_attempt(turn, replace(step, tool=tool, args=dict(args)), status, raised=raised)
            self._core.executions.saw(step.key, Execution(tool, readable(dict(args)), status, over=not raised))
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
            found = last_step(run, call_id)
            if found is None:
                return 0
            before = self._core.executions.executions.get(found.step.key)
            if before is None or before.over:
                return 0
            self._core.executions.saw(found.step.key, replace(before, over=True))
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
    ) -> tuple[RunState, int]:
        """Learn the new turns of a run, one record each; return the state after the run, and their number.

        With `last_turn_too` the last turn is learned even if some of its calls have no answer. `model_input` is the
        model's input at turns without a recorded one (`OpenInputs`).
        """
        core = self._core
        with core.lock:
            core.store.refresh()
            state, start = self._folds.begin(run)
            new_messages = core.episodes.new(run, start)
            if new_messages:
                core.apply(None, new_messages, user=user.digest, run=run.digest)
            last = latest_turn(run)
            names, specs = core.catalogue.records(specs), core.catalogue.recorded(specs, others=True)
            new, scratch = 0, dict[str, Any]()
            unnoted: SeenDigests | SeenInput = NOTHING_SEEN
            if model_input is not UNSEEN:
                unnoted = read_input(model_input)
            thread, hour = contributor(run.thread_id or run.scope, user.digest), core.hour()
            for index in range(start, len(run.events)):
                event = self.asked.names(run.events[index], names).read(run.events[index])
                # The state before the latest turn: that turn may be read again with more answers.
                if index == last > start:
                    self._folds.keep(run, index, state)
                if isinstance(event, Turn) and (event.settled or last_turn_too) and not _is_headless(run, index, event):
                    name = event.episode or run.digest
                    learned = LearnedTurn(state, event, name, thread, user.digest, specs, hour, options, scratch)
                    learned.thread_id = run.thread_id or ""
                    new += self._learn_turn(learned, unnoted)
                state.push(event)
            state.seen = NOTHING_SEEN
            return state, new

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
        _, new = self.learn(run, user)
        return new

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

    def _learned(self, run: Run, user: User) -> None:
        core = self._core
        with core.lock:
            # An answer with text ends the request, also without a call of `finish`.
            if run.events and not core.read_only:
                last = run.events[-1]
                if isinstance(last, Turn) and not last.steps:
                    core.apply(None, core.episodes.over(run), user=user.digest, run=run.digest)
        if core.store.closed:
            return
        core.log_and_continue("could not look for waiting jobs", self._core.jobs.poll)
        core.acknowledge()

    def _notify(self, hook: Literal["ended", "judged"], what: EndedRun | JudgedRun) -> None:
        core = self._core
        if core.store.closed:
            return
        for listener in self._core.listeners:
            try:
                getattr(listener, hook)(what)
            except Exception as error:  # noqa: BLE001 - the others take it in, and the host goes on
                core.log_failure_and_continue(f"{listener.name} could not take in a run", error)
                if isinstance(error, StorageError):
                    core.store.say(f"{listener.name} kept nothing of a finished run: {error}")

    # --- feedback ---

    def _is_whole(self, run: Run) -> bool:
        # The thread is unknown: feedback is on all its episodes.
        known = self._core.episodes.of(run.thread_id)
        if not known or run.truncated:
            return not known
        # Passed on completely once more, with its earlier score.
        parts = run.episodes()
        return len(parts) > 1 and all(self._core.weight_of(each.digest) == 1 / len(parts) for each in parts)

    def feedback(
        self,
        thread_id: str,
        score: float,
        comment: str | None,
        episode: str | int | None,
        user_id: str | None,
    ) -> None:
        check_score(score, "score")
        core = self._core
        core.refuse_if_closed()
        if core.read_only and self._core.jobs.queue.folder is None:
            raise ConfigurationError("A read-only memory without a folder has nowhere to leave a verdict.")
        # Now, not at the next poll: the thread may have just been finished on another machine.
        core.refresh(at_once=True)
        with core.lock:
            run = self._core.episodes.named(thread_id, episode, self.others(thread_id, user_id))
        if core.users.apart and not user_id and self._core.jobs.queue.namespace_of(run).namespace is None:
            raise NamespaceError(
                f"The namespace {core.users.namespace!r} needs a user id, and whose run {thread_id!r} is was not "
                "kept in this folder. Pass user_id=…"
            )
        # This memory does not write to the graph: the writing process takes the job.
        if core.read_only:
            feedback = {"score": float(score), "comment": comment or "", "user_id": user_id or ""}
            user = core.owner_of(run, user_digest(user_id or None))
            core.jobs.put(VERDICT, feedback, run=run, user=user, ordering_key=digest(run))
        else:
            self.judge(run, float(score), comment, user_id)
        core.acknowledge()

    def others(self, thread_id: str, user_id: str | None) -> set[str]:
        """Return the episodes of other users in a thread, if several users have a thread of that id."""
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
        self._notify("judged", JudgedRun(run, score, comment, user_id or None))

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


def _is_headless(run: Run, index: int, turn: Turn) -> bool:
    """Return True for an answer at the head of a cut history: its question is missing, and it may have been seen
    before.
    """
    return index == 0 and run.truncated and not turn.steps
