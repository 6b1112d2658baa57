"""Prefetching as a step and a recorder see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from langgraph.prebuilt.tool_node import ToolCallRequest

from langgraph_toolmem.turn.ask import StepGenerator
from langgraph_toolmem.turn.call import Call


class Ahead(Protocol):
    """Begins work while the model is asked, and has its results ready for the calls in the answer. It never raises."""

    def begin(self, call: Call) -> Any:
        """Return the work begun for a model call, with a `listener` for its stream; None if there is none."""

    def answered(self, batch: Any, answer: Sequence[Any]) -> list[Any]:
        """Return the messages that stand for the model's answer."""

    def dropped(self, batch: Any) -> None:
        """Stop the work: the model call failed, or nobody wants its answer."""


class Server(Protocol):
    """Serves results in place of a tool call's execution. It never raises."""

    def serve(self, request: ToolCallRequest) -> StepGenerator[ToolCallRequest]:
        """Return the request with which the call is executed."""

    def paused(self, request: ToolCallRequest) -> None:
        """Note that an interrupt stopped the call."""
