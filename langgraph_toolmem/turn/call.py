"""One model call as a step sees it, the tools that it offers, and what a step has to say at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import ToolMessage

from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.trajectory import History
from langgraph_toolmem.turn.hints import left_out_now
from langgraph_toolmem.turn.shown import Block, Line

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage


@dataclass(slots=True)
class Call:
    """A model call that comes now.

    Attributes:
        messages: the history; a list becomes a `History`.
        thread_id: the thread, if the host has a checkpointer.
        user_id: whose run it is, if anybody is named.
        state: the host's state.
        messages_key: key of the messages in it.
        runtime: of the graph; None outside of one.
        tools: the tools that this call offers and that the agent executes, by name; None: nobody says.
        offered: all that is offered, as the request has it.
        insisted: names of tools that the request cannot do without.
        model: the model that is asked, if it is known; `settings` of the request, and `tool_choice`.
        recorded: a recorder tells of executions.
        left_out: tools that an earlier step took out, each with the reason.
        held_out: the episode runs without the memory's say (`core.episodes`).
        foresight: what a step foresees of the model's answer, for whoever works ahead of it (`turn.ahead`).
    """

    messages: list[Any]
    thread_id: str | None = None
    user_id: str | None = None
    state: Any = None
    messages_key: str = "messages"
    runtime: Any = None
    tools: Mapping[str, ToolSpec] | None = None
    offered: Sequence[Any] = ()
    insisted: frozenset[str] = frozenset()
    model: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tool_choice: Any = None
    recorded: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)
    held_out: bool = False
    foresight: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.messages, History):
            self.messages = History(self.messages)

    @property
    def context(self) -> Any:
        """Return what the host runs with."""
        return getattr(self.runtime, "context", None)

    def allows(self, tool: str) -> bool:
        """Return True if no earlier step took the tool out."""
        return tool not in self.left_out

    def after_failure(self, call_id: str) -> list[Any]:
        """The history with an answer to a call that raised: it was tried, and failed."""
        return [*self.messages, ToolMessage("", tool_call_id=call_id, status="error")]

    def note_state(self) -> None:
        """Reads from the host's state what earlier nodes took out."""
        self.left_out = left_out_now(self.state, messages_key=self.messages_key) or {}


class StepOutput(NamedTuple):
    """The output of a step at a model call.

    Attributes:
        text: for the model to read, as a hint, if it has no `lines`.
        lines: for the model to read, those that matter most first; each may say which tool it speaks for.
        head: the line above them.
        sure: how sure it is, 0 to 1: what is surer comes first where there is little room.
        brief: it holds until the user speaks again, and this is said of it at later model calls; None: the same.
        answer: in the model's place.
        left_out: tools that the model is not offered, each with the reason in one line.
        state: the private state that a graph keeps.
        event: for the host's stream; None: nothing new to tell.
        notes: for traces: nothing in it is a user's.
    """

    text: str = ""
    answer: AIMessage | None = None
    left_out: Mapping[str, str] = {}
    state: Mapping[str, Any] = {}
    event: Mapping[str, Any] | None = None
    notes: Mapping[str, str | int | float | bool] = {}
    lines: Sequence[Line] = ()
    head: str = ""
    sure: float = 0.5
    brief: Sequence[Line] | None = None

    def block(self, role: str) -> Block:
        """Return what it says, for `turn.shown`."""
        lines = tuple(self.lines) or ((Line(self.text),) if self.text else ())
        return Block(role, lines, self.head, self.sure, None if self.brief is None else tuple(self.brief))


NOTHING = StepOutput()
