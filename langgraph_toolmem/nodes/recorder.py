"""The recorder node: learns and does nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime

from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.base import MemoryNode
from langgraph_toolmem.turn.host import emit, run_id_of, runtime_of, user_id_of
from langgraph_toolmem.turn.recording import CallRecorder
from langgraph_toolmem.turn.telemetry import annotate


class Recorder(MemoryNode):
    """Learns what is new in the run. Put it before END, so that the last answer is seen too.

    Works anywhere in a graph, alone or beside an `InertiaShortcut`; each executed call teaches once. Where calls
    may be edited, retried or blocked on their way, let it see the executions too::

        recorder = Recorder(memory)
        ToolNode(tools, wrap_tool_call=recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call)
    """

    role = "recorder"
    about = "learns what the run shows; decides nothing"

    def __init__(self, memory: ToolMemory, *, messages_key: str = "messages", name: str | None = None) -> None:
        super().__init__(memory, messages_key=messages_key, name=name)
        self._calls = CallRecorder(memory, errors=self._errors, messages_key=messages_key)

    def wrap_tool_call(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
        """For ``ToolNode(wrap_tool_call=…)``: has the call executed and tells the memory of it."""
        return self._calls.wrap(request, execute)

    async def awrap_tool_call(
        self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """For ``ToolNode(awrap_tool_call=…)``: has the call executed and tells the memory of it."""
        return await self._calls.awrap(request, execute)

    def _run(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        new = self.memory.observe(self._messages(state), run_id=run_id_of(config), user_id=user_id_of(config, runtime))
        self._tell(new, runtime)

    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        new = await self.memory.aobserve(
            self._messages(state), run_id=run_id_of(config), user_id=user_id_of(config, runtime)
        )
        self._tell(new, runtime)

    def _tell(self, new: int, runtime: Runtime[Any] | None) -> None:
        annotate({"toolmem.node": self.role, "toolmem.learned_turns": new})
        emit(runtime, {"node": self.role, "learned_turns": new})
