"""The loop guard: a call that repeats without anything new is answered with a note, and in the end stops the run."""

from __future__ import annotations

from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END

from langgraph_toolmem.base.errors import LoopError
from langgraph_toolmem.inertia.loops import VARIED
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.steps import checked
from langgraph_toolmem.runs.messages import LOOP_NOTE
from langgraph_toolmem.runs.run import Run, UserMessage
from langgraph_toolmem.runs.values import canon_args
from langgraph_toolmem.turn.call import StepOutput
from langgraph_toolmem.turn.host import is_active, read_key
from langgraph_toolmem.turn.node import MemoryNode
from langgraph_toolmem.turn.run import report

MOST_NOTES: Final = 3
"""Answers of the model that get notes before the run is ended."""


class LoopGuard(MemoryNode):
    """Answers calls that repeat without anything new with a note, in place of executing them.

    A call repeats if it was made twice since the user spoke with an equal result, and no other result and no new call
    came since. After three notes the run ends with a `LoopError`. A tool is never held if its record has equal calls
    with different results (the state of a job). Put the guard behind the model's node::

        builder.add_node("guard", LoopGuard(memory))
        builder.add_edge("agent", "guard")
        builder.add_conditional_edges("guard", loop_guard_condition, ["agent", "tools", END])

    Args:
        memory: the memory.
        partly: if True, also answer calls that repeat next to others: for an agent, which executes only calls without
            an answer. A ``ToolNode`` executes all of them.
        messages_key, name: as for all nodes.
    """

    def __init__(
        self, memory: ToolMemory, *, partly: bool = False, messages_key: str = "messages", name: str | None = None
    ) -> None:
        about = "answers calls that repeat without anything new; calls no model"
        super().__init__("loop_guard", about, messages_key=messages_key, name=name)
        self._core, self._partly = checked(memory, "LoopGuard").core, partly

    def body(self, state: Any, config: RunnableConfig | None) -> Any:
        """Return notes for the calls that repeat. Raises LoopError after enough notes."""
        call, core = self.call_of(state, config), self._core
        answer = call.messages[-1] if call.messages else None
        if not isinstance(answer, AIMessage) or not is_active() or core.held_out(call.messages, call.thread_id):
            return None
        repeated, notes = _repeated(core.read(call.messages[:-1], call.thread_id))
        repeats = [each for each in answer.tool_calls if (each["name"], canon_args(each["args"])) in repeated]
        held = [each for each in repeats if not core.graph.by_tool.get(each["name"], {}).get(VARIED)]
        every = len(held) == len(answer.tool_calls)
        if not held or not (self._partly or every):
            return None
        names = sorted({each["name"] for each in held})
        output = StepOutput(event={"held": names, "notes": notes}, notes={"toolmem.held": len(held)})
        report(self.role, output, call.runtime)
        if every and notes >= MOST_NOTES:
            raise LoopError(
                f"The agent loops: it called {', '.join(names)} again with the same arguments, got the same result "
                f"each time, and did so again after {notes} notes. Look at its last messages. If equal calls are meant "
                "to be repeated there, leave loop_guard off."
            )
        answers = [ToolMessage(LOOP_NOTE, tool_call_id=e["id"], name=e["name"], status="error") for e in held]
        return {self.messages_key: answers}


def _repeated(run: Run) -> tuple[set[tuple[str, str]], int]:
    """Return the calls (tool, arguments) made twice with an equal result since anything new, and the notes since."""
    results: dict[tuple[str, str], Any] = {}
    repeated: set[tuple[str, str]] = set()
    notes = 0
    for event in run.events:
        if isinstance(event, UserMessage):
            results, repeated, notes = {}, set(), 0
            continue
        notes += any(step.output == LOOP_NOTE for step in event.steps)
        for step in event.steps:
            if step.status in ("ok", "failed"):
                call, result = (step.tool, canon_args(step.args)), (step.status, step.output)
                if results.get(call) == result:
                    repeated.add(call)
                else:
                    results[call], repeated, notes = result, set(), 0
    return repeated, notes


def loop_guard_condition(
    state: Any, *, messages_key: str = "messages", tools: str = "tools", agent: str = "agent", end: str = END
) -> Literal["tools", "agent", "__end__"] | str:
    """Return the way on from a `LoopGuard`: back to the model after notes, otherwise as ``tools_condition`` does."""
    messages = read_key(state, messages_key) or ()
    if messages and isinstance(messages[-1], ToolMessage):
        return agent
    return tools if messages and getattr(messages[-1], "tool_calls", None) else end
