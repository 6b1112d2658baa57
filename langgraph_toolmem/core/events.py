"""What happens to runs, and who is told: turns are learned, runs end, verdicts come."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.core.catalogue import Catalogue
from langgraph_toolmem.core.episodes import Episodes, witness
from langgraph_toolmem.core.evidence import Evidence
from langgraph_toolmem.core.forgetting import Ages
from langgraph_toolmem.core.holdout import Holdout
from langgraph_toolmem.core.jobs import Jobs
from langgraph_toolmem.core.ledger import Ledger
from langgraph_toolmem.core.method import EndedRun, LearnedTurn, Listener
from langgraph_toolmem.core.users import User
from langgraph_toolmem.core.verdicts import Verdicts
from langgraph_toolmem.graph.learning import attempt_digest, learn_turn, turn_digest
from langgraph_toolmem.graph.operations import Outcome, Record
from langgraph_toolmem.graph.state import Folds, RunState, latest_turn
from langgraph_toolmem.graph.view import counted
from langgraph_toolmem.runs.executions import ExecutionLog, last_step
from langgraph_toolmem.runs.run import Execution, Run, Turn
from langgraph_toolmem.runs.tools import ToolSpec

logger = logging.getLogger("langgraph_toolmem.memory")


class Events:
    """Takes in what was done, and verdicts on it; tells the methods.

    Args:
        evidence: of the memory.
        catalogue: the tools at hand where a run does not say.
        executions: what recorders saw; it reads messages.
        episodes: of each thread.
        ages: told what was heard of.
        ledger: told what was followed, and how runs ended.
        holdout: told what episodes took.
        jobs: carry verdicts from process to process.
        listeners: the methods, in their order.
        folds: the states of threads up to what was learned of them.
    """

    def __init__(
        self,
        evidence: Evidence,
        catalogue: Catalogue,
        executions: ExecutionLog,
        episodes: Episodes,
        ages: Ages,
        ledger: Ledger,
        holdout: Holdout,
        jobs: Jobs,
        listeners: Sequence[Listener],
        folds: Folds,
    ) -> None:
        self._evidence, self._catalogue, self._executions = evidence, catalogue, executions
        self._episodes, self._ages, self._ledger, self._holdout = episodes, ages, ledger, holdout
        self._jobs, self._listeners, self._folds = jobs, listeners, folds
        self.verdicts = Verdicts(evidence, episodes, jobs, listeners)

    # --- what happens ---

    def observe(self, messages: Any, *, thread_id: str | None = None, user_id: str | None = None) -> int:
        """See `ToolMemory.observe`."""
        run, user = self._begun(messages, thread_id, user_id)
        _, new = self.learn(run, user)
        self._learned(run, user)
        return new

    def finish(
        self,
        messages: Any,
        *,
        thread_id: str | None = None,
        success: bool | float | None = None,
        comment: str | None = None,
        user_id: str | None = None,
    ) -> int:
        """See `ToolMemory.finish`; `success` may be a score, too."""
        evidence = self._evidence
        run, user = self._begun(messages, thread_id, user_id)
        parts = run.episodes()
        with evidence.lock:
            whole = self.verdicts.is_whole(run)
            _, new = self.learn(run, user, last_turn_too=True)
            whole = whole and new == sum(isinstance(event, Turn) for event in run.events)
            evidence.apply(None, self._episodes.over(parts[-1]), user=user.digest, run=parts[-1].digest)
        if success is not None:
            judged = parts if whole else parts[-1:]
            for each in judged:
                self.verdicts.note(each.digest, float(success), comment, user_id, weight=1 / len(judged))
        self._learned(run, user)
        with self._jobs_together():
            for each in parts:
                if self._is_new_end(each) or each is parts[-1]:
                    self.end(each, user)
        evidence.acknowledge()
        return new

    def take_in(self, given: EndedRun, **options: Any) -> list[EndedRun]:
        """Learns a recorded thread (options as for `learn`) and its verdict; returns its episodes."""
        self._evidence.refresh()
        self.learn(given.run, given.user, last_turn_too=True, **options)
        parts = given.run.episodes()
        with self._evidence.lock:
            self._evidence.apply(None, self._episodes.over(parts[-1]), user=given.user.digest, run=parts[-1].digest)
        for each in parts:
            if given.score is not None:
                self.verdicts.note(each.digest, given.score, None, given.user.id, weight=1 / len(parts))
            self._is_new_end(each)
        return [given._replace(run=each) for each in parts]

    def end(self, episode: Run, user: User) -> None:
        """An episode is over: the methods are told, with its verdict."""
        evidence, name = self._evidence, episode.digest
        owner = user.digest or self._jobs.queue.place_of(name)[1] or evidence.known_owner(name)
        score, said = evidence.verdict_of(name, owner)
        self._tell("ended", EndedRun(episode, user, score, said))
        if score is None and evidence.verdict_of(name, owner)[0] is not None:
            self.verdicts.tell_again(name, user.id)

    @contextmanager
    def _jobs_together(self) -> Iterator[None]:
        try:
            with self._jobs.together():
                yield
        except StorageError as error:
            self._evidence.store.say(f"Nothing of a finished run could be put into the queue: {error}")

    def _is_new_end(self, episode: Run) -> bool:
        with self._evidence.lock:
            return self._evidence.apply(digest("ended", episode.digest), [])

    def after_model(
        self, messages: Any, answer: Iterable[Any], *, thread_id: str | None = None, user_id: str | None = None
    ) -> int:
        """Learns what is new up to the model's answer; a recorder will tell what becomes of the calls in it.

        Args:
            messages: the history that the model was asked with.
            answer: the messages of its turn.
            thread_id: the thread.
            user_id: whose run it is.

        Returns:
            How many turns were new.

        Raises:
            MessageError: the messages cannot be read; nothing was learned.
            NamespaceError: the namespace needs a user id.
        """
        read, history = self._executions.read, list(messages)
        turn = read(history, thread_id).next_key
        run, user = self._begun([*history, *answer], thread_id, user_id)
        with self._evidence.lock:
            if turn is not None:
                self._executions.begins(turn)
            _, new = self.learn(run, user)
        self._learned(run, user)
        return new

    def executed(
        self,
        messages: Any,
        call_id: str,
        *,
        tool: str,
        args: Mapping[str, Any],
        status: Literal["ok", "failed"],
        raised: bool = False,
        thread_id: str | None = None,
        user_id: str | None = None,
    ) -> int:
        """Tells what was really executed for a call of the last model turn. This is what a recorder calls.

        It goes before what the messages say: a person may have edited the call. Once all calls of the turn are
        answered, in the messages or told here, the turn is learned.

        Args:
            messages: the history up to the model turn with the call, as `observe` takes it.
            call_id: id of the call in its message.
            tool: the tool that was executed.
            args: the arguments it was given, injected ones left out.
            status: what came of it.
            raised: it raised, so another attempt may come; if none does, the answer in the messages or `gave_up`
                tells.
            thread_id: the thread.
            user_id: whose run it is.

        Returns:
            How many turns were new.

        Raises:
            MessageError: `messages` cannot be read; nothing was learned.
            NamespaceError: the namespace needs a user id.
        """
        evidence = self._evidence
        run, user = self._begun(messages, thread_id, user_id)
        with evidence.lock:
            found = last_step(run, call_id)
            if found is None:
                return 0
            turn, step = found
            if not self._begun_elsewhere(turn):
                self._executions.begins(turn.key)
            attempts = 0
            while evidence.graph.has_seen(attempt_digest(step, attempts + 1)):
                attempts += 1
            if raised or (attempts and status == "failed"):
                evidence.apply(attempt_digest(step, attempts + 1), [Outcome(tool, "failed")])
            elif attempts and evidence.graph.has_seen(turn_digest(turn)):
                # It failed for good, was learned so, and then its thread was resumed.
                evidence.apply(attempt_digest(step, "ok"), [Outcome(tool, "ok")])
            self._executions.saw(step.key, Execution(tool, dict(args), status, over=not raised))
            return 0 if raised else self._learn_settled(messages, thread_id, user)

    def gave_up(self, messages: Any, call_id: str, *, thread_id: str | None = None, user_id: str | None = None) -> int:
        """The error of a call goes on to the host, and no further attempt comes: the call failed for good.

        Args:
            messages: the history up to the model turn with the call.
            call_id: id of the call in its message.
            thread_id: the thread.
            user_id: whose run it is.

        Returns:
            How many turns were new.
        """
        evidence = self._evidence
        run, user = self._begun(messages, thread_id, user_id)
        with evidence.lock:
            found = last_step(run, call_id)
            before = None if found is None else self._executions.executions.get(found[1].key)
            if found is None or before is None or before.over:
                return 0
            self._executions.saw(found[1].key, replace(before, over=True))
            return self._learn_settled(messages, thread_id, user)

    def _begun(self, messages: Any, thread_id: str | None, user_id: str | None) -> tuple[Run, User]:
        """The run and its user, once what other workers learned was looked for."""
        self._evidence.refresh()
        return self._executions.read(messages, thread_id), self._evidence.users.of(user_id)

    # --- learning ---

    def learn(
        self,
        run: Run,
        user: User,
        *,
        last_turn_too: bool = False,
        specs: Mapping[str, ToolSpec] | None = None,
        **options: Any,
    ) -> tuple[RunState, int]:
        """Learns the turns of a run that were not learned before: one record for each, methods' parts included.

        Args:
            run: as read.
            user: whose it is.
            last_turn_too: learn the last turn although some of its calls have no answer.
            specs: the tools at hand in this run; the catalogue's if None.
            options: what the caller changes for this pass, by name of the method.

        Returns:
            The state after the run, and how many turns were new.
        """
        evidence = self._evidence
        with evidence.lock:
            evidence.store.refresh()
            if new_messages := self._episodes.new(run):
                evidence.apply(None, new_messages, user=user.digest, run=run.digest)
            state, start = self._folds.begin(run)
            last = latest_turn(run)
            at_hand = self._catalogue.specs if specs is None else specs
            new, thought, scratch = 0, _thought_before(run, start), dict[str, Any]()
            thread = witness(run.thread_id or run.scope, user.digest)
            for index in range(start, len(run.events)):
                event = run.events[index]
                if index == last > start:
                    self._folds.keep(run, index, state)
                # An answer at the head of a cut history: what it answered, and whether it was seen, cannot be told.
                headless = index == 0 and run.truncated and isinstance(event, Turn) and not event.steps
                if isinstance(event, Turn) and (event.settled or last_turn_too) and not headless:
                    learned = LearnedTurn(
                        state,
                        event,
                        event.episode or run.digest,
                        thread,
                        thought,
                        user.digest,
                        at_hand,
                        evidence.hour(),
                        options,
                        scratch,
                    )
                    key = turn_digest(event)
                    if not evidence.graph.has_seen(key):
                        new += evidence.apply(key, self._record(learned), user=user.digest, run=learned.run)
                    elif again := self._again(learned):
                        evidence.apply(None, again, user=user.digest, run=learned.run)
                    if event.chosen_by == "model" and event.text:
                        thought = event.text
                elif not isinstance(event, Turn):
                    thought = ""
                state.push(event)
            return state, new

    def _record(self, learned: LearnedTurn) -> Record:
        record: Record = []
        for each in self._listeners:
            record += each.turn(learned)
        record += self._ledger.followed(learned.turn) + self._holdout.spent(learned.run, learned.turn)
        record += self._ages.heard(learned)
        record += learn_turn(
            self._evidence.graph,
            learned.state,
            learned.turn,
            specs=learned.specs,
            neighbours=learned.neighbours,
            run=learned.run,
            thread=learned.thread,
            user=learned.user,
            hour=learned.hour,
        )
        return record + counted(learned.run, self._evidence.now(), record)

    def _again(self, learned: LearnedTurn) -> Record:
        """The model was asked again at a known point (a fork) and did the same again."""
        record: Record = []
        for each in self._listeners:
            record += each.repeated(learned)
        return record + self._ledger.followed(learned.turn)

    def _learn_settled(self, messages: Any, thread_id: str | None, user: User) -> int:
        """Learns the history if no call of its last turn is pending any more."""
        run = self._executions.read(messages, thread_id)
        return 0 if run.next_key is None else self.learn(run, user)[1]

    def _begun_elsewhere(self, turn: Turn) -> bool:
        """Whether another process saw one of the turn's calls fail: then this one did not watch it all."""
        evidence, known = self._evidence, self._executions.executions
        return any(step.key not in known and evidence.graph.has_seen(attempt_digest(step, 1)) for step in turn.steps)

    # --- telling ---

    def _learned(self, run: Run, user: User) -> None:
        evidence = self._evidence
        with evidence.lock:
            last = run.events[-1] if run.events else None
            if isinstance(last, Turn) and not last.steps and not evidence.read_only:
                evidence.apply(None, self._episodes.over(run), user=user.digest, run=run.digest)
        if evidence.store.closed:
            return
        for each in self._listeners:
            evidence.quietly(f"{each.name} could not take in what was learned", partial(each.learned, run, user))
        evidence.quietly("what waits to be written cannot be looked for", self._jobs.look)
        evidence.acknowledge()

    def _tell(self, event: Literal["ended"], what: EndedRun) -> None:
        evidence = self._evidence
        if evidence.store.closed:
            return
        for each in self._listeners:
            error = evidence.quietly(f"{each.name} could not take in a run", partial(getattr(each, event), what))
            if isinstance(error, StorageError):
                evidence.store.say(f"{each.name} kept nothing of a finished run: {error}")


def _thought_before(run: Run, index: int) -> str:
    """The model's latest words in the user turn that an event stands in."""
    for event in reversed(run.events[:index]):
        if not isinstance(event, Turn):
            return ""
        if event.chosen_by == "model" and event.text:
            return event.text
    return ""
