"""The learning half of `ToolMemory`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from langgraph_toolmem._reflecting import Reflecting
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.graph.learning import attempt_digest
from langgraph_toolmem.graph.operations import Outcome
from langgraph_toolmem.inertia.engine import turn_digest
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.proposal import Decision
from langgraph_toolmem.runs.executions import last_step
from langgraph_toolmem.runs.trajectory import Execution, Run, Turn


class Learning(Reflecting):
    """Takes in what was done, and verdicts on it."""

    def observe(self, messages: Any, *, run_id: str | None = None, user_id: str | None = None) -> int:
        """Learns what is new in a run, and books what would have been proposed before each new turn.

        Call it as often as you like: each executed call teaches once, in resumed, forked, trimmed and
        summarised histories too.

        Args:
            messages: what ``convert_to_messages`` takes.
            run_id: identity of the run (a thread id). Needed where call ids repeat from run to run.
            user_id: whose run it is.

        Returns:
            How many turns were new.

        Raises:
            MessageError: `messages` cannot be read; nothing was learned.
            NamespaceError: the namespace needs a user id.
        """
        run = self._read(messages, run_id)
        self._check_user(user_id)
        with self._lock:
            new = self._learn(run, user_id)[1]
        self._keep_summaries(run, user_id)
        self._tick()
        return new

    def finish(
        self,
        messages: Any,
        *,
        run_id: str | None = None,
        success: bool | None = None,
        comment: str | None = None,
        user_id: str | None = None,
        wait: bool = False,
    ) -> int:
        """The run is over: learns the rest, calls that never got an answer included, and notes the verdict.

        Its entry, for `recall`, is safe on disk when this returns and is written in the background; if the run went
        wrong and the memory has a `critic`, its critique follows.

        Args:
            messages: the whole run.
            run_id: identity of the run; `feedback` finds it by this.
            success: the verdict, if known.
            comment: a word on it.
            user_id: whose run it is.
            wait: return when entry and critique are written, or after a minute.

        Returns:
            How many turns were new.

        Raises:
            MessageError: `messages` cannot be read; nothing was learned.
            NamespaceError: the namespace needs a user id.
        """
        run = self._read(messages, run_id)
        self._check_user(user_id)
        with self._lock:
            new = self._learn(run, user_id, last_turn_too=True)[1]
            if success is not None:
                self._verdict(run.digest, float(success), comment, user_id)
        self._keep_summaries(run, user_id, over=True)
        self._keep_entry(run, user_id)
        if wait:
            self._wait()
        else:
            self._tick()
        return new

    def feedback(
        self,
        run_id: str,
        *,
        score: float,
        comment: str | None = None,
        user_id: str | None = None,
        wait: bool = False,
    ) -> None:
        """A verdict that comes later, from whatever process.

        From a ``read_only`` memory beside the process that writes to the folder, it is left in a queue on disk; that
        process takes it in within a minute, while it works, or when the folder is opened the next time.

        Args:
            run_id: as given to `observe` or `finish` (a thread id).
            score: from 0 (bad) to 1 (good).
            comment: a word on it.
            user_id: whose run it is. Where the namespace has a place for it and it is not given, the run must have
                been finished in this folder.
            wait: return when it is written everywhere, a critique included, or after a minute.

        Raises:
            ConfigurationError: the score is out of range, or the memory is read-only and has no folder.
            StorageError: the memory is read-only, and the verdict could not be left in the queue.
        """
        if not 0 <= score <= 1:
            raise ConfigurationError(f"score is from 0 (bad) to 1 (good), not {score!r}.")
        run = digest("run", run_id)
        if self._store.read_only:
            self._queue_verdict(run, float(score), comment, user_id)
            return
        self._hear(run, float(score), comment, user_id)
        if wait:
            self._wait()

    def learn_run(
        self,
        run: Run,
        *,
        user_id: str | None = None,
        policy: InertiaPolicy | None = None,
        on_turn: Callable[[Turn, Decision], None] | None = None,
        success: bool | None = None,
    ) -> int:
        """Learns a whole run that was read already; for replays and imports.

        Args:
            run: as `parse_run` reads it; calls without an answer are learned too.
            user_id: whose run it is.
            success: the verdict, if known. Summaries wait all the same: `keep_states` stores those of many runs.
            policy: for which the record is kept; the memory's own if None.
            on_turn: called with each new turn of the model and the decision before it.

        Returns:
            How many turns were new.
        """
        with self._lock:
            new = self._learn(run, user_id, last_turn_too=True, policy=policy, on_turn=on_turn)[1]
            if success is not None:
                self._verdict(run.digest, float(success), None, user_id)
            return new

    def after_model(
        self, messages: Any, answer: Iterable[Any], *, run_id: str | None = None, user_id: str | None = None
    ) -> int:
        """Learns what is new up to the model's answer; a recorder will tell what becomes of the calls in it.

        Args:
            messages: the history that the model was asked with.
            answer: the messages of its turn.
            run_id: identity of the run (a thread id).
            user_id: whose run it is.

        Returns:
            How many turns were new.

        Raises:
            MessageError: the messages cannot be read; nothing was learned.
            NamespaceError: the namespace needs a user id.
        """
        history = list(messages)
        turn = self._read(history, run_id).next_key
        run = self._read([*history, *answer], run_id)
        self._check_user(user_id)
        with self._lock:
            if turn is not None:
                self._executions.begins(turn)
            new = self._learn(run, user_id)[1]
        self._keep_summaries(run, user_id)
        self._tick()
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
        run_id: str | None = None,
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
            run_id: identity of the run (a thread id).
            user_id: whose run it is.

        Returns:
            How many turns were new.

        Raises:
            MessageError: `messages` cannot be read; nothing was learned.
            NamespaceError: the namespace needs a user id.
        """
        run = self._read(messages, run_id)
        self._check_user(user_id)
        with self._lock:
            found = last_step(run, call_id)
            if found is None:
                return 0
            turn, step = found
            if not self._begun_elsewhere(turn):
                self._executions.begins(turn.key)
            attempts = 0
            while self._graph.has_seen(attempt_digest(step, attempts + 1)):
                attempts += 1
            if raised or (attempts and status == "failed"):
                self._apply(attempt_digest(step, attempts + 1), [Outcome(tool, "failed", hour=self._hour())])
            elif attempts and self._graph.has_seen(turn_digest(turn)):
                # It failed for good, was learned so, and then its thread was resumed.
                self._apply(attempt_digest(step, "ok"), [Outcome(tool, "ok", hour=self._hour())])
            self._executions.saw(step.key, Execution(tool, dict(args), status, over=not raised))
            return 0 if raised else self._learn_settled(messages, run_id, user_id)

    def gave_up(self, messages: Any, call_id: str, *, run_id: str | None = None, user_id: str | None = None) -> int:
        """The error of a call goes on to the host, and no further attempt comes: the call failed for good.

        Args:
            messages: the history up to the model turn with the call.
            call_id: id of the call in its message.
            run_id: identity of the run (a thread id).
            user_id: whose run it is.

        Returns:
            How many turns were new.
        """
        run = self._read(messages, run_id)
        self._check_user(user_id)
        with self._lock:
            found = last_step(run, call_id)
            before = None if found is None else self._executions.executions.get(found[1].key)
            if found is None or before is None or before.over:
                return 0
            self._executions.saw(found[1].key, replace(before, over=True))
            return self._learn_settled(messages, run_id, user_id)

    def _begun_elsewhere(self, turn: Turn) -> bool:
        """Whether another process saw one of the turn's calls fail: then this one did not watch it all."""
        known = self._executions.executions
        return any(step.key not in known and self._graph.has_seen(attempt_digest(step, 1)) for step in turn.steps)

    def _learn_settled(self, messages: Any, run_id: str | None, user_id: str | None) -> int:
        """Learns the history if no call of its last turn is pending any more."""
        run = self._read(messages, run_id)
        return 0 if run.next_key is None else self._learn(run, user_id)[1]
