"""The recorder as middleware: learns what was really executed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.turn.host import ErrorLog, config_of, emit, run_id_of, user_id_of
from langgraph_toolmem.turn.recording import CallRecorder
from langgraph_toolmem.turn.telemetry import annotate

logger = logging.getLogger("langgraph_toolmem.middleware")

ROLE: Final = "recorder"


class RecorderMiddleware(AgentMiddleware[Any, Any, Any]):
    """Learns each model turn, and each tool call as it was executed.

    Put it last, so that it is innermost: it then sees arguments as a person edited them, and each attempt of a
    retry. A call that was answered without being executed (rejected, over a limit) is learned as not executed,
    not as failed. It learns as things happen, so nothing is lost when messages are summarised or the run ends
    with an error. Alone, without `InertiaMiddleware`, it only learns.

    Args:
        memory: the memory.
        name: of the middleware, unique in the agent.
    """

    def __init__(self, memory: ToolMemory, *, name: str | None = None) -> None:
        super().__init__()
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"{type(self).__name__} takes a ToolMemory, not {type(memory).__name__}.")
        self.memory = memory
        self._name = name or type(self).__name__
        self._errors = ErrorLog(self._name, logger)
        self._calls = CallRecorder(memory, errors=self._errors)

    @property
    def name(self) -> str:
        """Of the middleware, in traces and Studio."""
        return self._name

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> ModelResponse[Any]:
        """Has the model called and learns the turn."""
        response = handler(request)
        try:
            who = self._who(request)
            self._tell(self.memory.after_model(request.state["messages"], _turn(response), **who), request)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
        return response  # type: ignore[no-any-return]

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> ModelResponse[Any]:
        """Has the model called and learns the turn."""
        response = await handler(request)
        try:
            who = self._who(request)
            self._tell(await self.memory.aafter_model(request.state["messages"], _turn(response), **who), request)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
        return response  # type: ignore[no-any-return]

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Has the call executed and tells the memory of it."""
        return self._calls.wrap(request, handler)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Has the call executed and tells the memory of it."""
        return await self._calls.awrap(request, handler)

    def _who(self, request: ModelRequest[Any]) -> dict[str, str | None]:
        config = config_of()
        return {"run_id": run_id_of(config, request.runtime), "user_id": user_id_of(config, request.runtime)}

    def _tell(self, new: int, request: ModelRequest[Any]) -> None:
        annotate({"toolmem.node": ROLE, "toolmem.learned_turns": new})
        emit(request.runtime, {"node": ROLE, "learned_turns": new})


def _turn(response: Any) -> list[BaseMessage]:
    """The messages of a model response, whatever form the next middleware gave it."""
    if isinstance(response, ExtendedModelResponse):
        response = response.model_response
    return [response] if isinstance(response, AIMessage) else list(response.result)
