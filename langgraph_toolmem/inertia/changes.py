"""Changes that the memory made in the model's place, kept for a person to review."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from langgraph_toolmem.base.text import as_text, canonical, shortened
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import Event, Forgotten, Record, events_of, rows_of
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.guards import may_write
from langgraph_toolmem.runs.run import ExecutedCall

MAX_TEXT: Final = 300
"""Characters of the arguments and of the result of a call that a report shows."""


@dataclass(slots=True)
class ChangeMade(Event):
    """A call that may have changed something was made without the model.

    Attributes:
        call: its id.
        hour: since 1970.
        thread: name of the thread.
    """

    kind = "change_made"
    call: str
    run: str
    user: str | None
    hour: int
    thread: str
    tool: str
    args: str
    status: str
    result: str


class Changes(Table):
    """The newest changes.

    Attributes:
        made: id of the call -> its change, oldest first.
        most: limit of kept changes.
    """

    name = "changes"
    parts: ClassVar = {"made": shapes.RowsOf(shapes.fields_of(ChangeMade, 1))}
    most: ClassVar[int] = 100

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.made: dict[str, ChangeMade] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {ChangeMade: self._add}

    def _add(self, call: str, *fields: Any) -> None:
        self.made[call] = ChangeMade(call, *fields)
        if len(self.made) > self.most:
            del self.made[next(iter(self.made))]

    def to_state(self) -> dict[str, Any]:
        return {"made": rows_of(self.made)}

    def load(self, state: dict[str, Any]) -> None:
        self.made = events_of(ChangeMade, state["made"])

    def forget(self, gone: Forgotten) -> int:
        removed = [call for call, change in self.made.items() if gone.has(change.run, change.user, change.hour)]
        for call in removed:
            del self.made[call]
        return len(removed)

    def figures(self) -> list[dict[str, Any]]:
        """Return the changes for the report, newest first."""
        figures = []
        for change in reversed(self.made.values()):
            figures.append(
                {
                    "hour": change.hour,
                    "thread": change.thread,
                    "tool": change.tool,
                    "args": change.args,
                    "status": change.status,
                    "result": change.result,
                }
            )
        return figures

    def record(self, learned: LearnedTurn) -> Record:
        """Return the changes of a turn that the memory took, if they are new or have a result now."""
        record: Record = []
        if learned.turn.chosen_by != "shortcut":
            return record
        for step in learned.turn.steps:
            # A tool without a current description is listed too: a person should see it rather than miss it.
            only_reads = step.tool in learned.specs and not may_write(step.tool, learned.specs)
            if only_reads:
                continue
            change = self._change(learned, step)
            # A turn is reported again with its results, and again after a fork: one row per call.
            known = self.made.get(step.key)
            if known is None or (change.result and not known.result):
                record.append(change)
        return record

    def _change(self, learned: LearnedTurn, step: ExecutedCall) -> ChangeMade:
        """Return a change with its result; its owner and time are those of the first report, if there was one."""
        run, user, hour, thread = learned.run, learned.user, learned.hour, learned.thread_id
        # The fork of a thread has another run, and the change was made once, by the first.
        known = self.made.get(step.key)
        if known is not None:
            run, user, hour, thread = known.run, known.user, known.hour, known.thread
        args = shortened(canonical(step.args), MAX_TEXT)
        result = shortened(as_text(step.output or ""), MAX_TEXT)
        return ChangeMade(step.key, run, user, hour, thread, step.tool, args, step.status, result)
