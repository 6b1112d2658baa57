"""The loop guard: a call that goes on giving what it gave is answered with a note, and in the end stops the run."""

from __future__ import annotations

from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END

from langgraph_toolmem.base.errors import LoopError
from langgraph_toolmem.inertia.guards import VARIED, repeated_calls
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.of_memory import checked
from langgraph_toolmem.runs.messages import LOOP_NOTE
from langgraph_toolmem.runs.values import canon_args
from langgraph_toolmem.turn import env_mode
from langgraph_toolmem.turn.call import StepOutput
from langgraph_toolmem.turn.host import read_key
from langgraph_toolmem.turn.node import MemoryNode

MOST_NOTES: Final = 3
"""Answers of the model that are answered with notes before the run is ended."""


class LoopGuard(MemoryNode):
    """Answers calls that repeat without anything new with a note, in place of executing them.

    A call repeats if it was made twice since the user spoke with an equal result, and nothing new came since: no other
    result and no new call. After three such notes the run ends with a `LoopError`. Tools whose equal calls were seen to
    give different results (the state of a job) are never held. Put it behind the model's node::

        builder.add_node("guard", LoopGuard(memory))
        builder.add_edge("agent", "guard")
        builder.add_conditional_edges("guard", loop_guard_condition, ["agent", "tools", END])

    Args:
        memory: the memory.
        partly: answer calls that repeat also next to others. A ``ToolNode`` executes all calls of an answer, an agent
            (``tool_memory_middleware(memory, loop_guard=True)``) those without an answer.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.
    """

    def __init__(
        self, memory: ToolMemory, *, partly: bool = False, messages_key: str = "messages", name: str | None = None
    ) -> None:
        about = "answers calls that repeat without anything new; calls no model"
        super().__init__("loop_guard", about, messages_key=messages_key, name=name)
        self._core, self._partly = checked(memory, "LoopGuard").core, partly

    def body(self, state: Any, config: RunnableConfig | None) -> Any:
        """Return notes for the calls that repeat. Raises LoopError if there were enough notes."""
        call, core = self.call_of(state, config), self._core
        answer = call.messages[-1] if call.messages else None
        if not isinstance(answer, AIMessage) or not env_mode.shows() or core.held_out(call.messages, call.thread_id):
            return None
        repeated, notes = repeated_calls(core.read(call.messages[:-1], call.thread_id))
        held = [
            made
            for made in answer.tool_calls
            if (made["name"], canon_args(made["args"])) in repeated
            and not core.graph.by_tool.get(made["name"], {}).get(VARIED)
        ]
        every = len(held) == len(answer.tool_calls)
        if not held or not (self._partly or every):
            return None
        names = sorted({made["name"] for made in held})
        self.tell(StepOutput(event={"held": names, "notes": notes}, notes={"toolmem.held": len(held)}), call.runtime)
        if every and notes >= MOST_NOTES:
            raise LoopError(
                f"The agent loops: it called {', '.join(names)} again with the same arguments, got the same result "
                f"each time, and did so again after {notes} notes. Look at its last messages; if equal calls are meant "
                "to be repeated there, leave loop_guard off."
            )
        said = (ToolMessage(LOOP_NOTE, tool_call_id=each["id"], name=each["name"], status="error") for each in held)
        return {self.messages_key: list(said)}


def loop_guard_condition(
    state: Any, *, messages_key: str = "messages", tools: str = "tools", agent: str = "agent", end: str = END
) -> Literal["tools", "agent", "__end__"] | str:
    """Return the way on from a `LoopGuard`: back to the model after notes, else as ``tools_condition`` does.

    Use ``functools.partial(loop_guard_condition, tools=…, agent=…, end=…)`` for nodes with other names.
    """
    messages = read_key(state, messages_key) or ()
    if messages and isinstance(messages[-1], ToolMessage):
        return agent
    return tools if messages and getattr(messages[-1], "tool_calls", None) else end
