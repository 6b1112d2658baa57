"""The guard behind the model: a call that repeats another one without a change is taken back once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from langchain_core.messages import AIMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END

from langgraph_toolmem.atoms.step import GUARD, complaint_text, complaints_of, guard_said, guarded_point
from langgraph_toolmem.core.catalogue import without_own
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.of_memory import checked
from langgraph_toolmem.runs.tools import ToolLike, read_tools
from langgraph_toolmem.turn import switch
from langgraph_toolmem.turn.hints import HINTS, PLANNING, Hint, Planning, has_hint, new_hint, planning_now
from langgraph_toolmem.turn.host import read_key
from langgraph_toolmem.turn.node import MemoryNode
from langgraph_toolmem.turn.shown import Block, Line


class SGAGuard(MemoryNode):
    """Takes an answer of the model back once if it repeats a call of the run without a change (decision rules).

    Against the rules is a call with the tool and the arguments of one that was answered already, or that failed,
    since the user spoke or something was changed, and the same call twice in one answer. A call that was answered in
    different ways may be made again: somebody waits for a job. Stands behind the model's node; `guard_condition` leads
    on::

        builder.add_node("guard", SGAGuard(memory, tools=tools))
        builder.add_edge("agent", "guard")
        builder.add_conditional_edges("guard", guard_condition, ["agent", "tools", END])

    The answer is removed from the messages, and the reason is a hint for the model's next call (`memory_prompt`).
    Nothing is executed or credited, and the second answer is let pass whatever it is. What was streamed of the first
    answer stays streamed. The state needs the private keys of `MemoryState`, or every answer passes, and messages that
    ``add_messages`` merges.

    Args:
        memory: the memory.
        tools: the agent's tools; those that the memory knows if None. They say which calls change something; of those
            that do not, the verb of the name tells (``rename_file``).
        messages_key: key of the messages in the host's state.
        name: of the node in traces.
    """

    def __init__(
        self,
        memory: ToolMemory,
        *,
        tools: Iterable[ToolLike] | None = None,
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        about = "sends the model back once if it repeats a call without a change; calls no model"
        super().__init__(GUARD, about, messages_key=messages_key, name=name)
        self._core = checked(memory, "SGAGuard").core
        self.specs = None if tools is None else without_own(read_tools(tools))

    def body(self, state: Any, config: RunnableConfig | None) -> Any:
        """Lets the model's answer pass, or takes it back."""
        if not switch.shows():
            return None
        call, kept = self.call_of(state, config), planning_now(state)
        messages = call.messages
        if self._core.held_out(messages, call.thread_id):
            return None
        answer = messages[-1] if messages else None
        if has_hint(state, self.role, messages_key=self.messages_key):
            return {HINTS: {self.role: Hint(text="", at="", block={})}}  # the model was asked again and gave nothing
        if not isinstance(answer, AIMessage) or not answer.tool_calls or not answer.id:
            return None
        if kept is None or read_key(state, HINTS) is None:
            return None
        run = self._core.read(messages[:-1], call.thread_id)
        specs = self._core.catalogue.marked(self.specs)
        found = complaints_of(run, [answer], specs)
        if not found:
            return None
        point = guarded_point(run)
        again = kept.get("guarded") == point
        self.tell(guard_said(found, "passed" if again else "taken back"), call.runtime)
        if again:
            return None
        return {
            self.messages_key: [RemoveMessage(id=answer.id)],
            **new_hint(self.role, Block(self.role, (Line(complaint_text(found)),), sure=1.0, must=True), messages[:-1]),
            PLANNING: Planning(guarded=point),
        }


def guard_condition(
    state: Any, *, messages_key: str = "messages", tools: str = "tools", agent: str = "agent", end: str = END
) -> Literal["tools", "agent", "__end__"] | str:
    """The way on from a `SGAGuard`: back to the model if its answer was taken back, else like ``tools_condition``.

    Use ``functools.partial(guard_condition, tools=…, agent=…, end=…)`` for nodes with other names.
    """
    if has_hint(state, GUARD, messages_key=messages_key):
        return agent
    messages = read_key(state, messages_key) or ()
    last = messages[-1] if messages else None
    return tools if isinstance(last, AIMessage) and last.tool_calls else end
