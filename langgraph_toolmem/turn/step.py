"""A step: the work of a method at a model call, at the end of a run, and at an error.

Written once; a graph sees it as a node (`turn.node`) and an agent as middleware (`turn.middleware`), sync and async.
"""

from __future__ import annotations

import logging
from abc import ABC
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.method import Method
from langgraph_toolmem.turn.ask import StepGenerator
from langgraph_toolmem.turn.call import NOTHING, Call, Scope, StepOutput
from langgraph_toolmem.turn.host import ErrorLog

logger = logging.getLogger("langgraph_toolmem.steps")

M = TypeVar("M", bound=Method)

Place = Literal["around", "inside"]


class CallPrefetcher(Protocol):
    """Begins work while the model is asked, so that results are ready for the calls in the answer. It never raises."""

    def begin(self, call: Call) -> Any:
        """Return the work begun for a model call, with a `listener` for its stream; None if there is none."""

    def answered(self, batch: Any, answer: Sequence[Any]) -> list[Any]:
        """Return the messages that stand for the model's answer."""

    def dropped(self, batch: Any) -> None:
        """Stop the work: the model call failed, or nobody wants its answer."""


class ResultSource(Protocol):
    """Serves results in place of a tool call's execution. It never raises."""

    def serve(self, request: ToolCallRequest) -> StepGenerator[ToolCallRequest]:
        """Return the request with which the call is executed."""

    def paused(self, request: ToolCallRequest) -> None:
        """Note that an interrupt stopped the call."""


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
        prefetcher: prefetches by its predictions.
        method: the method that the step belongs to.
    """

    role: ClassVar[str]
    about: ClassVar[str]
    scope: Scope = "call"
    place: ClassVar[Place] = "inside"
    ends: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    tools: Sequence[BaseTool] = ()
    prefetcher: CallPrefetcher | None = None

    def __init__(self, method: M) -> None:
        self.method = method
        #: Logs an error that is passed over; a node or middleware puts its own log here.
        self.failed: Callable[[Exception], None] = ErrorLog(type(self).__name__, logger).failed

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
