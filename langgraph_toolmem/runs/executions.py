"""What recorders saw: executed tool calls, and the turns that were watched from the beginning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langgraph_toolmem.graph.contexts import SEPARATOR
from langgraph_toolmem.graph.evidence import COLUMNS, Record
from langgraph_toolmem.graph.evolving import DAY
from langgraph_toolmem.runs.trajectory import Execution, Run, Step, Turn

MAX_KEPT: Final = 4_096
"""Executions and turns that are remembered in RAM; the oldest leave."""
HOUR: Final = 3600
_ONE_BEFORE: Final = f"p1{SEPARATOR}"
"""How the context begins that is the latest tool alone (`graph.contexts.paper_window`)."""
COUNTED_BY_THE_HOUR: Final = frozenset(
    {
        "turns",
        "acted_ok",
        "acted_failed",
        "acted_stopped",
        "right",
        "wrong",
        "tokens_in",
        "tokens_out",
        "turns_with_tokens",
    }
)


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


def timed(record: Record, now: float) -> Record:
    """A record with what it counts put down for the hour as well, and the uses of tools for the day.

    Args:
        record: the operations.
        now: seconds since 1970.
    """
    amounts: dict[str, float] = {}
    uses: dict[str, int] = {}
    links: list[list[Any]] = []
    for operation in record:
        code = operation[0]
        if code == "n" and operation[1] in COUNTED_BY_THE_HOUR:
            amounts[operation[1]] = amounts.get(operation[1], 0) + operation[2]
        elif code == "t" and operation[2] in ("ok", "failed"):
            uses[operation[1]] = uses.get(operation[1], 0) + 1
        elif code == "s" and operation[1][0].startswith(_ONE_BEFORE) and COLUMNS[operation[3]].endswith("_ok"):
            links.append([operation[1][0][len(_ONE_BEFORE) :], operation[2], 1])
    by_the_hour: Record = [["h", int(now // HOUR), amounts]] if amounts else []
    by_the_day: Record = [["dy", int(now // DAY), uses, links]] if uses else []
    return [*record, *by_the_hour, *by_the_day] if by_the_hour or by_the_day else record


def _bound(kept: dict[str, Any]) -> None:
    if len(kept) > MAX_KEPT:
        del kept[next(iter(kept))]
