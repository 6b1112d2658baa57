"""The reflection writer as middleware: runs are kept with their verdict, those that an error ended too."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.reflection import RunEnd, Verdict, tell
from langgraph_toolmem.turn.host import ErrorLog, config_of, run_id_of, user_id_of
from langgraph_toolmem.turn.recording import whose

logger = logging.getLogger("langgraph_toolmem.middleware")

_NO_ERROR: Final = (GraphBubbleUp, CancelledError)
"""An interrupt, a drain, a cancelled call: the run is not over, or nobody wants it any more."""


class ReflectionMiddleware(AgentMiddleware[Any, Any, Any]):
    """Keeps each run with its verdict as an entry, when the agent has ended; critiques follow in the background.

    **A run that raises** never gets there. So an error that leaves the model or a tool is noted as it passes: the run
    has its entry with what was done so far, without a verdict (nobody gave one) and with the kind of the error; the
    error goes on unchanged. Where the run goes on after all (another middleware further out tries again, takes
    another model or answers in its place; the thread is resumed later), the entry of the end takes its place, as it
    is the same run's. An error elsewhere, in a hook of another middleware or at the recursion limit, is not seen.

    Put it first, so that it sees only what nobody caught and ends after all others (`tool_memory_middleware` does).
    At an interrupt nothing is written; the resumed run is.

    Args:
        memory: the memory.
        verdict: judges the run from the agent's state: True or False, a score from 0 (bad) to 1 (good), None: it
            cannot tell. None: nobody says; ``memory.feedback`` may, later. What raises counts as None. In an async
            agent it is called in a thread.
        wait: return when entry and critique are written: for scripts.
        name: of the middleware, unique in the agent.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self, memory: ToolMemory, *, verdict: Verdict | None = None, wait: bool = False, name: str | None = None
    ) -> None:
        super().__init__()
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"{type(self).__name__} takes a ToolMemory, not {type(memory).__name__}.")
        self.memory = memory
        self._name = name or type(self).__name__
        self._errors = ErrorLog(self._name, logger)
        self._end = RunEnd(memory, verdict=verdict, wait=wait, errors=self._errors)

    @property
    def name(self) -> str:
        """Of the middleware, in traces and Studio."""
        return self._name

    def after_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """The run is over: keeps it."""
        try:
            score = self._end.judge(state)
            config = config_of()
            who = (run_id_of(config, runtime), user_id_of(config, runtime))
            tell(self._end.finish(list(state["messages"]), score, *who), runtime)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)

    async def aafter_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """The run is over: keeps it."""
        try:
            score = await self._end.ajudge(state)
            config = config_of()
            who = (run_id_of(config, runtime), user_id_of(config, runtime))
            tell(await self._end.afinish(list(state["messages"]), score, *who), runtime)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Has the model called; notes an error on its way out."""
        try:
            return handler(request)
        except _NO_ERROR:
            raise
        except Exception as error:
            try:
                self.memory.broke_off(request.state["messages"], type(error).__name__, **_whose(request))
            except Exception as own:  # noqa: BLE001 - the memory must never hurt the host
                self._errors.failed(own)
            raise

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Has the model called; notes an error on its way out."""
        try:
            return await handler(request)
        except _NO_ERROR:
            raise
        except Exception as error:
            try:
                await self.memory.abroke_off(request.state["messages"], type(error).__name__, **_whose(request))
            except Exception as own:  # noqa: BLE001 - the memory must never hurt the host
                self._errors.failed(own)
            raise

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Has the call executed; notes an error on its way out."""
        try:
            return handler(request)
        except _NO_ERROR:
            raise
        except Exception as error:
            try:
                self.memory.broke_off(_with_failure(request), type(error).__name__, **whose(request))
            except Exception as own:  # noqa: BLE001 - the memory must never hurt the host
                self._errors.failed(own)
            raise

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Has the call executed; notes an error on its way out."""
        try:
            return await handler(request)
        except _NO_ERROR:
            raise
        except Exception as error:
            try:
                await self.memory.abroke_off(_with_failure(request), type(error).__name__, **whose(request))
            except Exception as own:  # noqa: BLE001 - the memory must never hurt the host
                self._errors.failed(own)
            raise


def _whose(request: ModelRequest[Any]) -> dict[str, str | None]:
    config = config_of()
    return {"run_id": run_id_of(config, request.runtime), "user_id": user_id_of(config, request.runtime)}


def _with_failure(request: ToolCallRequest) -> Sequence[Any]:
    """The history with an answer to the call that raised: it was tried, and failed."""
    call_id = request.tool_call["id"] or ""
    return [*request.state["messages"], ToolMessage("", tool_call_id=call_id, status="error")]
