"""Nodes that learn: the recorder, and the end of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from langgraph_toolmem.entries import Entries
from langgraph_toolmem.entries.steps import Reflection, Verdict
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.prefetch.serve import ResultServer
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.of_memory import checked, method_of
from langgraph_toolmem.turn.ask import adrive, drive
from langgraph_toolmem.turn.call import StepOutput
from langgraph_toolmem.turn.node import EndNode, MemoryNode
from langgraph_toolmem.turn.recorder import CallRecorder


class Recorder(MemoryNode):
    """Learns what is new in the run. Put it before END, so that the last answer is seen too.

    Works anywhere in a graph, alone or beside an `InertiaShortcut`; each executed call teaches once. Where calls
    may be edited, retried or blocked on their way, let it see the executions too; with ``InertiaShortcut(...,
    prefetch=True)`` it is what serves the results that are there already::

        recorder = Recorder(memory)
        ToolNode(tools, wrap_tool_call=recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call)
    """

    def __init__(self, memory: ToolMemory, *, messages_key: str = "messages", name: str | None = None) -> None:
        super().__init__("recorder", "learns what the run shows; decides nothing", messages_key=messages_key, name=name)
        self._core = checked(memory, "Recorder").core
        method = next((each for each in memory.methods if isinstance(each, Inertia)), None)
        how: dict[str, Any] = {"errors": self.errors, "messages_key": messages_key}
        server = None if method is None else ResultServer(self._core, method.prefetched, **how)
        self._calls = CallRecorder(self._core, server=server, **how)

    def wrap_tool_call(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
        """For ``ToolNode(wrap_tool_call=…)``: has the call executed and tells the memory of it."""
        try:
            return drive(lambda: self._calls.around(request), execute)
        except GraphBubbleUp:
            self._calls.paused(request)
            raise

    async def awrap_tool_call(
        self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """For ``ToolNode(awrap_tool_call=…)``: has the call executed and tells the memory of it."""
        try:
            return await adrive(lambda: self._calls.around(request), execute)
        except GraphBubbleUp:
            self._calls.paused(request)
            raise

    def body(self, state: Any, config: RunnableConfig | None) -> Any:
        """Learns."""
        call = self.call_of(state, config)
        new = self._core.lifecycle.observe(call.messages, thread_id=call.thread_id, user_id=call.user_id)
        self.tell(StepOutput(event={"learned_turns": new}, notes={"toolmem.learned_turns": new}), call.runtime)


class ReflectionWriter(EndNode):
    """Keeps the run with its verdict as an entry, and learns the rest of it. Put it before END.

    The entry is written in the background; where the run went wrong and the memory has a critic
    (``Entries(critic=…)``), its critique follows. A verdict may also come later, with ``memory.feedback``. Where
    branches run side by side, add the node with ``defer=True``::

        builder.add_node("reflect", ReflectionWriter(memory, verdict=lambda state: state["checked"]))
        builder.add_edge("reflect", END)

    A run that ends with an error never comes here: in an agent (``tool_memory_middleware(memory, reflect=True)``) such
    runs are kept too, or the host calls ``memory.finish`` itself.

    Args:
        memory: the memory.
        verdict: judges the run from the state; None: nobody says. What raises, or gives anything else, counts as
            None. In an async graph it is called in a thread.
        wait: return when entry and critique are written: for scripts.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self,
        memory: ToolMemory,
        *,
        verdict: Verdict | None = None,
        wait: bool = False,
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        step = Reflection(method_of(memory, Entries, "ReflectionWriter"), verdict=verdict, wait=wait)
        super().__init__(step, messages_key=messages_key, name=name)
