"""Threads as read so far, and the executed calls that recorders saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.text import looks_unique
from langgraph_toolmem.runs.messages import entries_of
from langgraph_toolmem.runs.run import ExecutedCall, Execution, Run, Turn, UserMessage
from langgraph_toolmem.runs.trajectory import Prefix, read_on

MAX_KEPT: Final = 4_096
"""Executions and turns kept in RAM; the oldest leave."""
MAX_THREADS: Final = 128
"""Threads whose parsed prefix is kept; the least recently read leave."""


class History(list[Any]):
    """The messages of one model call: while it lasts they stay as they are, and are compared with the thread once.

    A list of the host's may change between two readings, so each reading compares it.
    """

    reading: tuple[Any, ...] = ()
    run: Run
    prefix: Prefix | None = None

    def plus(self, messages: Iterable[Any]) -> History:
        """Return the history with these messages after it."""
        longer = History([*self, *messages])
        longer.prefix = self.prefix
        return longer


class ExecutionLog:
    """Parses messages with the calls as they were executed. In RAM: turns are learned as soon as they settle.

    Args:
        known: gives the user messages of a thread that were read before, with their episodes (`parse_run`).

    Attributes:
        executions: by the key of their step.
        turns: keys of the turns that a recorder watches.
        heads: the user message before a call and its episode, by the call's id.
        prefixes: the parsed prefix of each thread.
    """

    def __init__(self, known: Callable[[str | None], Mapping[str, str]] = lambda _thread: {}) -> None:
        self.executions: dict[str, Execution] = {}
        self.turns: dict[str, None] = {}
        self._known = known
        self.heads: dict[str, tuple[str, str]] = {}
        self.prefixes: dict[Any, Prefix] = {}
        self._changes = 0
        self._lock = threads.lock()

    def read(self, messages: Any, thread_id: str | None = None) -> Run:
        """Parse messages into a run, with calls as recorders saw them. Only what is new in a thread is parsed.

        A `History` that was read before is read again only if an execution was seen since.

        Raises:
            MessageError: they cannot be read.
        """
        history = messages if isinstance(messages, History) else History(entries_of(messages))
        reading = self, self._changes, thread_id
        if history.reading == reading:
            return history.run
        entries, known = list(history), self._known(thread_id)
        heads = self.heads if thread_id is None else {}
        first = entries[0] if thread_id is None and entries else None
        key = thread_id if first is None else (getattr(first, "id", None), str(getattr(first, "content", "")))
        prefix = self.prefixes.get(key)
        how: dict[str, Any] = {"compared": history.prefix is prefix}
        run, after = read_on(prefix, entries, thread_id, self.executions, self.turns, known, heads, **how)
        history.reading, history.run, history.prefix = reading, run, after
        if after is not None and after is not prefix:
            with self._lock:
                self.prefixes.pop(key, None)
                self.prefixes[key] = after
                _bound(self.prefixes, MAX_THREADS)
        if thread_id is None:  # where nobody names the thread, its calls tell
            self._note_heads(run)
        return run

    def forget(self) -> None:
        """Drop all parsed prefixes."""
        with self._lock:
            self._changes += 1
            self.prefixes.clear()

    def _drop_prefixes_with(self, key: str) -> None:
        with self._lock:
            self._changes += 1
            for thread in [thread for thread, prefix in self.prefixes.items() if key in prefix.keys]:
                del self.prefixes[thread]

    def _note_heads(self, run: Run) -> None:
        asked = None
        for event in run.events:
            if isinstance(event, UserMessage):
                asked = event.key, event.episode
            elif asked:
                for step in event.steps:
                    if looks_unique(step.call_id) and step.call_id not in self.heads:
                        self.heads[step.call_id] = asked
                        _bound(self.heads)

    def saw(self, step: str, execution: Execution) -> None:
        """Record the latest attempt of a call."""
        self._drop_prefixes_with(step)
        self.executions.pop(step, None)
        self.executions[step] = execution
        _bound(self.executions)

    def begins(self, turn: str) -> None:
        """Note that a recorder watches this turn from its beginning."""
        if turn not in self.turns:
            self._drop_prefixes_with(turn)
            self.turns[turn] = None
            _bound(self.turns)


def last_step(run: Run, call_id: str) -> tuple[Turn, ExecutedCall] | None:
    """Return the run's last model turn and its call with this id."""
    last = next((event for event in reversed(run.events) if isinstance(event, Turn)), None)
    step = None if last is None else next((step for step in last.steps if step.call_id == call_id), None)
    return None if last is None or step is None else (last, step)


def _bound(kept: dict[Any, Any], most: int = MAX_KEPT) -> None:
    if len(kept) > most:
        del kept[next(iter(kept))]
