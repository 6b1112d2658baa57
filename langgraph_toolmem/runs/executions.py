"""What recorders saw: executed tool calls, and the turns that were watched from the beginning."""

from __future__ import annotations

from typing import Any, Final

from langgraph_toolmem.runs.run import ExecutedCall, Execution, Run, Turn
from langgraph_toolmem.runs.trajectory import parse_run

MAX_KEPT: Final = 4_096
"""Executions and turns that are remembered in RAM; the oldest leave."""


class ExecutionLog:
    """Reads messages as what was really executed. In RAM: a turn is learned as soon as it is settled, so little is lost
    with the process.

    Attributes:
        executions: what was seen of a call, by the key of its step.
        turns: keys of the turns that a recorder watches.
    """

    def __init__(self) -> None:
        self.executions: dict[str, Execution] = {}
        self.turns: dict[str, None] = {}

    def read(self, messages: Any, thread_id: str | None = None) -> Run:
        """Messages as a run, calls as they were seen executed.

        Raises:
            MessageError: they cannot be read.
        """
        return parse_run(messages, thread_id=thread_id, executions=self.executions, watched=self.turns)

    def saw(self, step: str, execution: Execution) -> None:
        """Remembers what became of a call, the latest attempt."""
        self.executions.pop(step, None)
        self.executions[step] = execution
        _bound(self.executions)

    def begins(self, turn: str) -> None:
        """A recorder watches this turn from the beginning."""
        self.turns[turn] = None
        _bound(self.turns)


def last_step(run: Run, call_id: str) -> tuple[Turn, ExecutedCall] | None:
    """The run's last model turn and the call in it with this id."""
    last = next((event for event in reversed(run.events) if isinstance(event, Turn)), None)
    step = None if last is None else next((step for step in last.steps if step.call_id == call_id), None)
    return None if last is None or step is None else (last, step)


def _bound(kept: dict[str, Any]) -> None:
    if len(kept) > MAX_KEPT:
        del kept[next(iter(kept))]
