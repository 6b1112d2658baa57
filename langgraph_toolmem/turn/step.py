"""A model call as a step sees it, the output of a step at it, and the step itself: the work of a method.

A step is written once; a graph sees it as a node (`turn.run`) and an agent as middleware, sync and async.
"""

from __future__ import annotations

import logging
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from langchain_core.tools import BaseTool

from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.method import Method
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.trajectory import History
from langgraph_toolmem.turn.ask import StepGenerator
from langgraph_toolmem.turn.host import ErrorLog

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage

logger = logging.getLogger("langgraph_toolmem.steps")

M = TypeVar("M", bound=Method)

Place = Literal["around", "inside"]
Scope = Literal["call", "point", "turn"]
"""Lifetime of a step's result: one model call; one model call with its retries; until the user speaks again."""


@dataclass(slots=True)
class Call:
    """The model call that comes next.

    Attributes:
        messages: the history; a list becomes a `History`.
        thread_id: the thread, if the host has a checkpointer.
        user_id: the user, if one is named.
        state: the host's state.
        runtime: of the graph; None outside of one.
        tools: specs of the offered tools that the agent executes, by name; None if unknown.
        offered: all offered tools, as the request has them.
        insisted: names of tools that the request cannot do without.
        model: the model that is asked, if known.
        settings: of the request.
        tool_choice: of the request.
        recorded: True if a recorder reports executions.
        left_out: tools that an earlier step took out, each with the reason.
        held_out: True if the episode runs without the memory (`core.episodes`).
        foresight: a step's prediction of the model's answer, for the prefetcher.
    """

    messages: list[Any]
    thread_id: str | None = None
    user_id: str | None = None
    state: Any = None
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
        """Return the context of the host's run."""
        return getattr(self.runtime, "context", None)

    def allows(self, tool: str) -> bool:
        """Return True if no earlier step took the tool out."""
        return tool not in self.left_out


class Line(NamedTuple):
    """One line of a hint, and the tool that it speaks for ("" if none)."""

    text: str
    about: str = ""


class StepOutput(NamedTuple):
    """The output of a step at a model call.

    Attributes:
        text: a hint for the model, if there are no `lines`.
        answer: a message in the model's place.
        left_out: tools that the model is not offered, each with the reason in one line.
        event: for the host's stream; None if there is nothing new.
        notes: for traces; they must hold no words of a user.
        lines: a hint for the model, the most important lines first.
        head: the line above them.
        sure: confidence, 0 to 1; where the budget is short, hints with more of it come first.
        brief: for a hint that holds until the user speaks again: its lines at later model calls; None: the same lines.
    """

    text: str = ""
    answer: AIMessage | None = None
    left_out: Mapping[str, str] = {}
    event: Mapping[str, Any] | None = None
    notes: Mapping[str, str | int | float | bool] = {}
    lines: Sequence[Line] = ()
    head: str = ""
    sure: float = 0.5
    brief: Sequence[Line] | None = None

    @property
    def hint(self) -> Sequence[Line]:
        """Return the lines for the model."""
        return self.lines or ([Line(self.text)] if self.text else [])


NOTHING = StepOutput()


class Step(ABC, Generic[M]):
    """A method's step at a model call. Override `compute`, and the others as needed.

    Attributes:
        role: name of its node, its hint and its events.
        about: its purpose in one line, for Studio and traces.
        scope: how long the result of `compute` holds.
        place: in an agent: "around" the shortcut and the host's own middleware, or "inside" them, right at the model. A
            skipped model call skips what is inside.
        ends: True if the step acts at the end of a run (`on_end`, `on_error`).
        learns: True if it also runs, silently, in episodes that are held out and in ``TOOLMEM=shadow``.
        tools: tools that it gives the agent.
        method: the method that the step belongs to.
    """

    role: ClassVar[str]
    about: ClassVar[str]
    scope: Scope = "call"
    place: ClassVar[Place] = "inside"
    ends: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    tools: Sequence[BaseTool] = ()

    def __init__(self, method: M) -> None:
        self.method = method
        #: Logs errors that are passed over; a node puts its own log here.
        self.errors = ErrorLog(type(self).__name__, logger)

    @property
    def core(self) -> Core:
        """Return the core of the memory."""
        return self.method.core

    def compute(self, call: Call) -> Any | StepGenerator[Any]:
        """Return a result for as long as the scope says: a `StepOutput`, or anything that `render` makes one of.

        A step that asks a model is a generator that yields `Ask` and is sent the answer.
        """
        return NOTHING

    def render(self, call: Call, found: Any) -> StepOutput:
        """Return the output at this model call, made of the result of `compute`. Keep it cheap."""
        return found if isinstance(found, StepOutput) else NOTHING

    def on_end(self, call: Call) -> StepOutput | StepGenerator[StepOutput]:
        """Act at the end of the run."""
        return NOTHING

    def on_error(self, call: Call, error: Exception, failed_call: str | None) -> None:
        """Act at an error that ends the run: of the model, or of a tool (id of its call), caught by nobody so far."""
