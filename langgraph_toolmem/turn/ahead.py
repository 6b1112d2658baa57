"""Working ahead of the model: what whoever does it is told, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from langgraph.prebuilt.tool_node import ToolCallRequest

from langgraph_toolmem.turn.ask import Asking
from langgraph_toolmem.turn.call import Call


class Ahead(Protocol):
    """Begins work while the model is asked, and has its results ready for the calls in the answer. It never raises."""

    def begin(self, call: Call) -> Any:
        """The model is asked now; what is under way for it, None if nothing is."""

    def answered(self, under_way: Any, answer: Sequence[Any]) -> list[Any]:
        """The model answered with these messages; what goes on in their place."""

    def failed(self, under_way: Any, call: Call) -> None:
        """The model did not answer; it may be asked again."""

    def dropped(self, under_way: Any) -> None:
        """Nobody wants an answer any more."""


class Server(Protocol):
    """Serves what is ready in the place of a tool call's execution. It never raises."""

    def serve(self, request: ToolCallRequest) -> Asking[ToolCallRequest]:
        """The request with which the call is executed."""

    def paused(self, request: ToolCallRequest) -> None:
        """The call was stopped by an interrupt."""
