"""Threads as they were read so far, and what recorders saw: executed tool calls, turns watched from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from langgraph_toolmem.base import locks
from langgraph_toolmem.base.keys import looks_unique
from langgraph_toolmem.runs.messages import entries_of
from langgraph_toolmem.runs.run import ExecutedCall, Execution, Run, Turn, UserMessage
from langgraph_toolmem.runs.trajectory import Prefix, read_on

MAX_KEPT: Final = 4_096
"""Executions and turns that are remembered in RAM; the oldest leave."""
MAX_THREADS: Final = 128
"""Threads of which what was read is kept; those that were read least lately leave."""


class ExecutionLog:
    """Reads messages as what was really executed. In RAM: a turn is learned as soon as it is settled, so little is lost
    with the process.

    Args:
        known: the user messages of a thread that were read before, with their episodes (`parse_run`).

    Attributes:
        executions: what was seen of a call, by the key of its step.
        turns: keys of the turns that a recorder watches.
        heads: the user message before a call, and its episode, by the call's id.
        prefixes: what was read of each thread.
    """

    def __init__(self, known: Callable[[str | None], Mapping[str, str]] = lambda _thread: {}) -> None:
        self.executions: dict[str, Execution] = {}
        self.turns: dict[str, None] = {}
        self._known = known
        self.heads: dict[str, tuple[str, str]] = {}
        self.prefixes: dict[Any, Prefix] = {}
        self._lock = locks.lock()

    def read(self, messages: Any, thread_id: str | None = None) -> Run:
        """Messages as a run, calls as they were seen executed. Only what is new in a thread is really read.

        Raises:
            MessageError: they cannot be read.
        """
        entries, known = list(entries_of(messages)), self._known(thread_id)
        heads = self.heads if thread_id is None else {}
        first = entries[0] if thread_id is None and entries else None
        key = thread_id if first is None else (getattr(first, "id", None), str(getattr(first, "content", "")))
        prefix = self.prefixes.get(key)
        run, after = read_on(prefix, entries, thread_id, self.executions, self.turns, known, heads)
        if after is not None and after is not prefix:
            with self._lock:
                self.prefixes.pop(key, None)
                self.prefixes[key] = after
                _bound(self.prefixes, MAX_THREADS)
        if thread_id is None:  # where nobody names the thread, its calls tell
            self._note_heads(run)
        return run

    def forget(self) -> None:
        """Lets go of what was read."""
        with self._lock:
            self.prefixes.clear()

    def _read_anew(self, key: str) -> None:
        """Something new is known of a turn or a step."""
        with self._lock:
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
        """Remembers what became of a call, the latest attempt."""
        self._read_anew(step)
        self.executions.pop(step, None)
        self.executions[step] = execution
        _bound(self.executions)

    def begins(self, turn: str) -> None:
        """A recorder watches this turn from the beginning."""
        self._read_anew(turn)
        self.turns[turn] = None
        _bound(self.turns)


def last_step(run: Run, call_id: str) -> tuple[Turn, ExecutedCall] | None:
    """The run's last model turn and the call in it with this id."""
    last = next((event for event in reversed(run.events) if isinstance(event, Turn)), None)
    step = None if last is None else next((step for step in last.steps if step.call_id == call_id), None)
    return None if last is None or step is None else (last, step)


def _bound(kept: dict[Any, Any], most: int = MAX_KEPT) -> None:
    if len(kept) > most:
        del kept[next(iter(kept))]
