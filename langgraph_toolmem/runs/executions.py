"""What recorders saw: executed tool calls, and the turns that were watched from the beginning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langgraph_toolmem.runs.trajectory import Execution, Run, Step, Turn

MAX_KEPT: Final = 4_096
"""Executions and turns that are remembered in RAM; the oldest leave."""


class ExecutionLog:
    """In RAM: a turn is learned as soon as it is settled, so little is lost with the process.

    Attributes:
        executions: what was seen of a call, by the key of its step.
        turns: keys of the turns that a recorder watches.
    """

    def __init__(self) -> None:
        self._executions: dict[str, Execution] = {}
        self.turns: dict[str, None] = {}

    @property
    def executions(self) -> Mapping[str, Execution]:
        """What was seen of a call, by the key of its step."""
        return self._executions

    def saw(self, step: str, execution: Execution) -> None:
        """Remembers what became of a call, the latest attempt."""
        self._executions.pop(step, None)
        self._executions[step] = execution
        _bound(self._executions)

    def begins(self, turn: str) -> None:
        """A recorder watches this turn from the beginning."""
        self.turns[turn] = None
        _bound(self.turns)


def last_step(run: Run, call_id: str) -> tuple[Turn, Step] | None:
    """The run's last model turn and the call in it with this id."""
    last = next((event for event in reversed(run.events) if isinstance(event, Turn)), None)
    step = None if last is None else next((step for step in last.steps if step.call_id == call_id), None)
    return None if last is None or step is None else (last, step)


def _bound(kept: dict[str, Any]) -> None:
    if len(kept) > MAX_KEPT:
        del kept[next(iter(kept))]
