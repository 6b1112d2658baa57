"""Model calls that the memory has not learned yet: their outcomes, their inputs, and the places of answers. All in RAM.

The memory is next to the model. The host may still replace the model's answer (a fallback after a refusal), and handle
an error (a retry). So an answer is learned once it is in the state, and a failure ends a run only if it stays
unanswered: the user speaks again without an answer in between, the memory is closed, or `SETTLE_SECONDS` pass
(`OpenCalls`). Until then, the model's input at a turn (`OpenInputs`) and the agent that was asked (`AskedAgents`) are
kept by the key of the turn.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.base.errors import log_failure
from langgraph_toolmem.base.text import identity_of
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.graph.sources import SeenInput, read_input
from langgraph_toolmem.graph.state import ALIKE, ToolRecords
from langgraph_toolmem.runs.run import UNSEEN, ModelInput, Turn, UserMessage
from langgraph_toolmem.runs.trajectory import ThreadHistory

logger = logging.getLogger("langgraph_toolmem.memory")

SETTLE_SECONDS: Final = 60.0
"""Seconds after which a model call is settled."""
MAX_OPEN_CALLS: Final = 1_024
"""Limit of open calls; beyond it the oldest is settled."""

_MODEL: Final = ""
"""Key of a failure of the model itself among the failures of a call."""


class CallOwner(NamedTuple):
    """The owner of a call.

    Attributes:
        named: thread and user, as the host names them.
        first: the first message of a run without a thread id, which identifies the thread.
    """

    named: Owner
    first: Hashable = None


@dataclass(slots=True)
class OpenCall:
    """One model call.

    Attributes:
        owner: owner of the call.
        history: the messages as the model saw them.
        model_input: the rest of its input.
        answer: its messages; empty until it answered.
        failures: functions to call if an error stays unhandled, by the id of the failed tool call; `_MODEL` for the
            model's.
        since: when it was asked, in seconds of a monotonic clock.
    """

    owner: CallOwner
    history: ThreadHistory
    model_input: ModelInput = UNSEEN
    answer: Sequence[BaseMessage] = ()
    failures: dict[str, Callable[[], None]] = field(default_factory=dict)
    since: float = 0.0

    def answers(self, call_id: str) -> bool:
        """Return True if the answer has a tool call of that id."""
        return _has_call(self.answer, call_id)

    def seen_with(self, messages: Sequence[Any], call_id: str) -> ThreadHistory:
        """Return the messages up to a tool call of the answer, as the model saw them; `messages` are the state's."""
        # A tool that ran at the same time may have replaced the messages of the state, as a deep agent's `task` does.
        # The recorder then failed, and the calls of a tool that raised were lost.
        if not _has_call(messages, call_id):
            return self.history.plus(self.answer)
        return seen_up_to_now(self.history, messages)


class CallKey(NamedTuple):
    """The owner of a call, and the latest user message before it."""

    owner: CallOwner
    turn: str


class OpenCalls:
    """The open model calls of a memory, in this process. Safe to use from several threads.

    Args:
        learn: learns an answer that the state never showed.
        clock: returns seconds of a monotonic clock.
    """

    def __init__(
        self, learn: Callable[[OpenCall], None], *, clock: Callable[[], float] = time.monotonic, waits: bool = True
    ) -> None:
        self._learn, self._clock, self._waits = learn, clock, waits
        self._lock = threads.lock()
        self._calls: OrderedDict[CallKey, OpenCall] = OrderedDict()
        self._stopped = threading.Event()
        self._waiter: threading.Thread | None = None
        threads.at_fork(self)

    # --- of the model ---

    def begin(self, owner: CallOwner, turn: str, messages: Sequence[Any]) -> None:
        """Close the thread's open calls that these messages continue, before a new model call.

        Args:
            owner: owner of the new call.
            turn: identity of the latest user message.
            messages: as the model will see them.
        """
        ended: list[Callable[[], None]] = []
        with self._lock:
            for key, call in list(self._calls.items()):
                if key.owner != owner:
                    continue
                if key.turn != turn and not _goes_on_from(call.history, messages):
                    continue  # a parallel branch of the same thread
                del self._calls[key]
                if key.turn != turn:  # the user spoke again
                    ended += _unhandled(call, messages)
        # Without the lock: ending a run learns it, and takes the lock of the graph.
        _run(ended)

    def answered(self, call: OpenCall, turn: str) -> None:
        """Keep an answer until the state shows it."""
        self._keep(call, turn)

    def failed(self, call: OpenCall, turn: str, ends: Callable[[], None]) -> None:
        """Keep an error of the model; `ends` is called if it stays unhandled."""
        call.failures[_MODEL] = ends
        self._keep(call, turn)

    def _keep(self, call: OpenCall, turn: str) -> None:
        call.since = self._clock()
        oldest: OpenCall | None = None
        with self._lock:
            key = CallKey(call.owner, turn)
            self._calls.pop(key, None)
            self._calls[key] = call
            if len(self._calls) > MAX_OPEN_CALLS:
                _, oldest = self._calls.popitem(last=False)
        if oldest is not None:
            self._settle([oldest])
        self._wait()

    # --- of its tools ---

    def of_tool_call(self, owner: CallOwner, call_id: str) -> OpenCall | None:
        """Return the open call whose answer has a tool call of this id."""
        with self._lock:
            for key, call in reversed(self._calls.items()):
                if key.owner == owner and call.answers(call_id):
                    return call
        return None

    def tool_failed(self, call: OpenCall, call_id: str, ends: Callable[[], None]) -> None:
        """Keep an error of a tool; `ends` is called if it stays unhandled."""
        with self._lock:
            call.failures[call_id] = ends
            call.since = self._clock()
        self._wait()

    def tool_returned(self, call: OpenCall, call_id: str) -> None:
        """Drop the error of a tool call: a retry of it returned."""
        with self._lock:
            call.failures.pop(call_id, None)

    # --- ends ---

    def end(self, owner: CallOwner, messages: Sequence[Any]) -> ThreadHistory:
        """Close the thread's calls at the end of a run; return its messages as the model saw them.

        Args:
            owner: owner of the run.
            messages: of the host's state. Messages after the latest model call are taken from here.
        """
        latest: OpenCall | None = None
        with self._lock:
            for key, call in list(self._calls.items()):
                if key.owner == owner and _goes_on_from(call.history, messages):
                    latest = self._calls.pop(key)
        if latest is None:
            return ThreadHistory(messages)
        return seen_up_to_now(latest.history, messages)

    def settle(self) -> None:
        """Treat every open call as finished: learn its answer, and end the runs with unhandled errors."""
        with self._lock:
            calls = list(self._calls.values())
            self._calls.clear()
        self._settle(calls)

    def close(self) -> None:
        """Settle all calls, and stop waiting for further ones."""
        self._stopped.set()
        self.settle()

    def stop(self, end: float) -> None:
        """Stop waiting at the interpreter's exit; see `threads.at_exit`."""
        del end
        self._stopped.set()

    def forked(self) -> None:
        """Drop the parent's calls: the parent sees their outcomes."""
        self._calls.clear()
        self._stopped = threading.Event()
        self._waiter = None

    def forget(self) -> None:
        """Drop all calls, after a user was forgotten."""
        with self._lock:
            self._calls.clear()

    def _settle(self, calls: Sequence[OpenCall]) -> None:
        for call in calls:
            if call.answer:
                _run([partial(self._learn, call)])
            _run(list(call.failures.values()))

    def _wait(self) -> None:
        if not self._waits or self._stopped.is_set():
            return
        with self._lock:
            if self._waiter is not None and self._waiter.is_alive():
                return
            threads.at_exit(self)
            self._waiter = threads.start("toolmem-open-calls", self._settle_old)

    def _settle_old(self) -> None:
        while not self._stopped.is_set():
            seconds = self._settle_due()
            if seconds is None:
                return
            self._stopped.wait(seconds)

    def _settle_due(self) -> float | None:
        """Settle old calls; return the seconds until the next one is old, None without open calls.

        A function of its own: the thread that waits would keep the messages of its local variables in RAM, those of
        forgotten users too.
        """
        with self._lock:
            if not self._calls:
                self._waiter = None
                return None
            now = self._clock()
            old: list[OpenCall] = []
            oldest = now  # of the remaining calls
            for key, call in list(self._calls.items()):
                if now - call.since >= SETTLE_SECONDS:
                    old.append(self._calls.pop(key))
                else:
                    oldest = min(oldest, call.since)
        self._settle(old)
        return max(1.0, oldest + SETTLE_SECONDS - now)


def seen_up_to_now(history: ThreadHistory, messages: Sequence[Any]) -> ThreadHistory:
    """Return the model's messages at an earlier call, and the state's messages after it."""
    if not history:
        return ThreadHistory(messages)
    place = _place_of(history[-1], messages)
    if place is None:
        return ThreadHistory(messages)
    return history.plus(messages[place + 1 :])


def _has_call(messages: Sequence[Any], call_id: str) -> bool:
    for message in reversed(messages):
        if isinstance(message, AIMessage) and any(call["id"] == call_id for call in message.tool_calls):
            return True
    return False


def _goes_on_from(history: Sequence[Any], messages: Sequence[Any]) -> bool:
    return not history or _place_of(history[-1], messages) is not None


def _place_of(message: Any, messages: Sequence[Any]) -> int | None:
    """Return the position of a message among others, by its id, or by its content without an id."""
    identity = getattr(message, "id", None)
    # From the end: the last message of an earlier call is among the latest, and contents may repeat.
    for place in range(len(messages) - 1, -1, -1):
        other = messages[place]
        if other is message or (identity and getattr(other, "id", None) == identity):
            return place
        if not identity and getattr(other, "content", None) == getattr(message, "content", message):
            return place
    return None


def _unhandled(call: OpenCall, messages: Sequence[Any]) -> list[Callable[[], None]]:
    """Return the functions of the errors without an answer in a later message."""
    later = messages
    if call.history:
        place = _place_of(call.history[-1], messages)
        if place is not None:
            later = messages[place + 1 :]
    answered: set[str] = {message.tool_call_id for message in later if isinstance(message, ToolMessage)}
    # An answer right after the history: the host asked again, or another model, and the run went on.
    if later and isinstance(later[0], AIMessage):
        answered.add(_MODEL)
    return [ends for failed, ends in call.failures.items() if failed not in answered]


def _run(todo: Sequence[Callable[[], None]]) -> None:
    for do in todo:
        try:
            do()
        except Exception as error:  # noqa: BLE001 - the host's run goes on, and so do the others
            log_failure(logger, logging.WARNING, "the end of a run could not be kept", error=error)


def owner_of_call(owner: Owner, messages: Sequence[Any]) -> CallOwner:
    """Return the owner of a call; without a thread id the first message identifies it."""
    if owner.thread_id is not None or not messages:
        return CallOwner(owner)
    first = messages[0]
    if isinstance(first, Mapping):
        content = first.get("content")
    else:
        content = getattr(first, "content", "")
    return CallOwner(owner, (getattr(first, "id", None), identity_of(content)))


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Limits of the facts in RAM; the oldest are dropped.

    Attributes:
        inputs: of model turns.
        chars: of prompts in them: 4,096 prompts of 88 kB took 725 MB.
        answers: with text.
        agents: turns with tools that are not known by their names.
    """

    inputs: int = 512
    chars: int = 8_000_000
    answers: int = 4096
    agents: int = 4096


TURN_LIMITS: Final = TurnLimits()


class OpenInputs:
    """Inputs by the key of their turn. At a bound the oldest are dropped; their digests are on disk."""

    def __init__(self) -> None:
        self._kept: dict[str, SeenInput] = {}
        self._chars = 0
        self._lock = threads.lock()

    def note(self, turn: str, model_input: ModelInput) -> None:
        """Keep the model's input at a turn."""
        if model_input is UNSEEN:
            return
        seen = read_input(model_input)
        with self._lock:
            self._drop(turn)  # a retry of the call records it again
            self._kept[turn] = seen
            self._chars += seen.chars
            while len(self._kept) > 1 and self._is_full():
                self._drop(next(iter(self._kept)))

    def take(self, turn: str) -> SeenInput | None:
        """Return the model's input at a turn, and drop it; None if it was not recorded."""
        with self._lock:
            seen = self._kept.get(turn)
            self._drop(turn)
        return seen

    def forget(self) -> None:
        """Forget all of it."""
        with self._lock:
            self._kept.clear()
            self._chars = 0

    def _is_full(self) -> bool:
        return len(self._kept) > TURN_LIMITS.inputs or self._chars > TURN_LIMITS.chars

    def _drop(self, turn: str) -> None:
        seen = self._kept.pop(turn, None)
        if seen is not None:
            self._chars -= seen.chars


class LearnedAnswers:
    """The places at which answers with text were learned, by the answers' identities. At a bound the oldest are
    dropped.

    The same answer may be in two histories of a thread: a supervisor's graph keeps only the last message of an agent's
    run, so there the answer follows the handoff, without the agent's calls. It was given after them.
    """

    def __init__(self) -> None:
        self._places: dict[str, str] = {}
        self._lock = threads.lock()

    def note(self, turn: Turn) -> None:
        """Keep the place of a learned turn, if it is an answer with text."""
        if not turn.answer:
            return
        with self._lock:
            self._places[turn.answer] = turn.key
            drop_oldest(self._places, TURN_LIMITS.answers)

    def has_elsewhere(self, turn: Turn) -> bool:
        """Return True if the answer of a turn was learned at another place."""
        return self._places.get(turn.answer, turn.key) != turn.key

    def forget(self) -> None:
        """Forget all of it."""
        with self._lock:
            self._places.clear()


class AskedAgents:
    """The records of the tools that were offered at model turns, by the key of the turn.

    Agents with different tools of one name may share a thread: the agent that learns a turn may not be the one that was
    asked.
    """

    def __init__(self) -> None:
        self._kept: dict[str, ToolRecords] = {}
        self._lock = threads.lock()

    def note(self, turn: str, names: ToolRecords) -> None:
        """Keep the records of a turn's tools, if they are not all known by their names."""
        if names is ALIKE:
            return
        with self._lock:
            self._kept[turn] = names
            drop_oldest(self._kept, TURN_LIMITS.agents)

    def names(self, event: UserMessage | Turn, otherwise: ToolRecords) -> ToolRecords:
        """Return the records of the tools that were offered at a turn. Defaults to `otherwise`."""
        if not self._kept:  # nearly always, and this runs for each event of a thread
            return otherwise
        return self._kept.get(event.key, otherwise)
