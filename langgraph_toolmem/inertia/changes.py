"""Calls that the memory made without the model and that may have changed something, for a person to review."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem.base.text import as_text, canonical, shortened
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph.events import HOUR, Event, Forgotten, Record
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.guards import may_write
from langgraph_toolmem.inertia.policy import InertiaPolicy

MAX_CHANGES: Final = 100
"""Changes that are kept, the newest ones."""
MAX_TEXT: Final = 300
"""Characters of arguments, and of a result."""


@dataclass(slots=True)
class ChangeMade(Event):
    """A call that may have changed something was made without the model; `hour` is since 1970."""

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
        made: id of the call -> the other fields of its `ChangeMade`, oldest first.
    """

    name = "changes"
    parts = ("made",)

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.made: dict[str, list[Any]] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {ChangeMade: self._add}

    def _add(self, call: str, *fields: Any) -> None:
        self.made[call] = list(fields)
        if len(self.made) > MAX_CHANGES:
            del self.made[next(iter(self.made))]

    def forget(self, gone: Forgotten) -> int:
        """See `Table`."""
        kept = {
            call: fields
            for call, fields in self.made.items()
            if not gone.has(fields[0], fields[1]) and (gone.before is None or fields[2] * HOUR >= gone.before)
        }
        removed, self.made = len(self.made) - len(kept), kept
        return removed

    def figures(self) -> list[dict[str, Any]]:
        """Return the changes for the report, newest first."""
        names = ("hour", "thread", "tool", "args", "status", "result")
        return [dict(zip(names, fields[2:], strict=True)) for fields in reversed(self.made.values())]

    def record(self, learned: LearnedTurn, policy: InertiaPolicy) -> Record:
        """Return the changes of a turn that the memory took, as far as they are new or have a result now."""
        if learned.turn.chosen_by != "shortcut":
            return []
        found: Record = []
        for step in learned.turn.steps:
            if step.tool in learned.specs and not may_write(step.tool, learned.specs, policy):
                continue
            args, result = shortened(canonical(step.args), MAX_TEXT), shortened(as_text(step.output or ""), MAX_TEXT)
            known = self.made.get(step.key)
            if known is None or (result and not known[-1]):
                run, user, hour, thread = (
                    known[:4] if known else (learned.run, learned.user, learned.hour, learned.thread_id)
                )
                found.append(ChangeMade(step.key, run, user, hour, thread, step.tool, args, step.status, result))
        return found
