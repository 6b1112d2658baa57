"""A step: what a method does at a model call, at the end of a run, and at an error. Written once; shown to a graph as a
node and to an agent as middleware, sync and async."""

from __future__ import annotations

import logging
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

from langchain_core.tools import BaseTool

from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.method import Method
from langgraph_toolmem.turn.ahead import Ahead
from langgraph_toolmem.turn.ask import StepGenerator
from langgraph_toolmem.turn.call import NOTHING, Call, StepOutput
from langgraph_toolmem.turn.hints import Scope as Scope
from langgraph_toolmem.turn.hints import has_hint
from langgraph_toolmem.turn.host import ErrorLog

logger = logging.getLogger("langgraph_toolmem.steps")

M = TypeVar("M", bound=Method)

Place = Literal["around", "inside"]
Keeps = Mapping[str, tuple[Any, Callable[..., Any]]]
"""Keys of a private state: the type of each, and what joins an old and a new value."""


class Step(ABC, Generic[M]):
    """A method's step at a model call. Override `compute`, and what else is needed.

    Attributes:
        role: name of its node, its hint and its events.
        about: what it does, in one line, for Studio and traces.
        scope: how long what it finds holds: "call": it looks at every model call; "point": a model call that is
            retried gets the same again; "turn": it looks once until the user speaks again.
        place: in an agent: "around" the shortcut and the host's own middleware, or "inside" them, right at the model. A
            skipped model call skips what is inside.
        ends: whether it has something to do at the end of a run (`on_end`, `on_error`).
        learns: it looks where nobody is to notice too, and says nothing then: in episodes that are held out
            (`Call.held_out`), and where `turn.env_mode` says "shadow".
        keeps: keys of the private state that an agent keeps for it.
        tools: tools that it gives the agent.
        ahead: who works ahead of the model, by what it foresees.
        method: whose step it is.
    """

    role: ClassVar[str]
    about: ClassVar[str]
    scope: Scope = "call"
    place: ClassVar[Place] = "inside"
    ends: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    keeps: ClassVar[Keeps] = {}
    tools: Sequence[BaseTool] = ()
    ahead: Ahead | None = None

    def __init__(self, method: M) -> None:
        self.method = method
        #: Notes an error that is passed over; whoever shows the step sets it.
        self.failed: Callable[[Exception], None] = ErrorLog(type(self).__name__, logger).failed

    @property
    def core(self) -> Core:
        """Return what the memory stands on."""
        return self.method.core

    def compute(self, call: Call) -> Any | StepGenerator[Any]:
        """Return what it finds, for as long as its scope says: a `StepOutput`, or anything that `render` makes one of.

        A step that asks a model is a generator that yields `Ask` and is sent the answer.
        """
        return NOTHING

    def render(self, call: Call, found: Any) -> StepOutput:
        """Return what it says at this model call, of what it found. Cheap."""
        return found if isinstance(found, StepOutput) else NOTHING

    def has_looked(self, state: Any, *, messages_key: str = "messages") -> bool:
        """In a graph: whether the state holds what it found for the scope that comes now."""
        return self.scope != "call" and has_hint(state, self.role, messages_key=messages_key)

    def on_end(self, call: Call) -> StepOutput | StepGenerator[StepOutput]:
        """The run is over."""
        return NOTHING

    def on_error(self, call: Call, error: Exception, failed_call: str | None) -> None:
        """The run ends with an error, of the model, or of a tool (id of its call), that nobody caught so far."""
