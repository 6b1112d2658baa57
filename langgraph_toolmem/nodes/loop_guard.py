"""The loop guard: it stops calls without new results, and ends a run that keeps making them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, get_args

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END

from langgraph_toolmem.base.checks import names_given
from langgraph_toolmem.base.errors import ConfigurationError, LoopError
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.inertia.policy import VARIED
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.runs.loops import LoopWatch, texts_before
from langgraph_toolmem.runs.run import LOOP_NOTE, STOPPED
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.turn.hints import StepOutput
from langgraph_toolmem.turn.host import is_active, read_key
from langgraph_toolmem.turn.step import Call, MemoryNode, report

ExitBehavior = Literal["end", "error", "continue"]
NOTES: Final = 1
"""Answers of the model in a row that are stopped with a note before the run ends."""
ADVICE: Final = "Go on in another way, or answer with what is known."


class LoopGuard(MemoryNode):
    """A guard that stops calls without new results, and ends a run that keeps making them.

    It stops a call if equal calls gave equal results twice, if the last calls are the rounds of a cycle, or if the same
    tool returned errors or empty results several times for arguments that hardly differ (`runs.loops`). The limit is
    higher for work in progress, temporary errors, and the items of a list. If all calls of an answer are stopped, the
    model gets a note in place of each result. If all calls of its next answer are stopped too, the run ends. Put the
    guard after the model's node::

        builder.add_node("guard", LoopGuard(memory))
        builder.add_edge("agent", "guard")
        builder.add_conditional_edges("guard", loop_guard_condition, ["agent", "tools", END])

    Args:
        memory: knows which tools are polled (equal calls had different results in earlier runs), and which are declared
            to read. If None, the guard uses the run only.
        exit_behavior: "end": the run ends with an answer that says why. "error": it ends with a `LoopError`.
            "continue": the model gets notes as long as it repeats such calls.
        polls: names of tools that are never stopped.
        messages_key: see `MemoryNode`.

    Raises:
        ConfigurationError: an argument is invalid.
        LoopError: in a run, the agent loops, and `exit_behavior` is "error".
    """

    def __init__(
        self,
        memory: ToolMemory | None = None,
        *,
        exit_behavior: ExitBehavior = "end",
        polls: Iterable[str] = (),
        messages_key: str = "messages",
    ) -> None:
        super().__init__("loop_guard", "holds calls that bring nothing new; calls no model", messages_key=messages_key)
        if memory is not None and not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"LoopGuard takes a ToolMemory or None, not {type(memory).__name__}.")
        if exit_behavior not in get_args(ExitBehavior):
            known = ", ".join(map(repr, get_args(ExitBehavior)))
            raise ConfigurationError(f"LoopGuard(exit_behavior={exit_behavior!r}): choose one of {known}.")
        self._core: Core | None = None
        if memory is not None:
            self._core = memory.core
        self._exit_behavior = exit_behavior
        self._polls = frozenset(names_given("polls", polls))

    def body(self, state: Any, config: RunnableConfig | None) -> Any:
        call = self.call_of(state, config)
        asked = self._asked(call)
        if not asked:
            return None
        watch = self._watch(call)
        reasons = self._reasons(watch, asked, call.messages[:-1])
        if not all(reasons):
            return None
        self._report(call, watch, asked)
        # A note comes first: the agent may read it and try another way.
        ends = watch.notes >= NOTES and self._exit_behavior != "continue"
        if ends and self._exit_behavior == "error":
            raise LoopError(
                f"The agent loops: {reasons[0]}. It went on after a note. Look at its last messages. Name tools that "
                "are meant to be called again and again in LoopGuard(polls=...)."
            )
        answers: list[BaseMessage] = []
        for tool_call, reason in zip(asked, reasons, strict=True):
            answers.append(_note(tool_call, reason))
        if ends:
            answers.append(AIMessage(f"{STOPPED}{reasons[0]}."))
        return {self.messages_key: answers}

    def _asked(self, call: Call) -> Sequence[ToolCall]:
        """Return the calls that the model's answer asks for; an empty list if the guard is off."""
        if not call.messages or not is_active():
            return ()
        last = call.messages[-1]
        if not isinstance(last, AIMessage) or not last.tool_calls:
            return ()
        # In a held-out episode the memory leaves the agent as it is.
        if self._core is not None and self._core.held_out(call.messages, call.thread_id):
            return ()
        return last.tool_calls

    def _report(self, call: Call, watch: LoopWatch, held: Sequence[ToolCall]) -> None:
        names = sorted({tool_call["name"] for tool_call in held})
        output = StepOutput(event={"held": names, "notes": watch.notes}, notes={"toolmem.held": len(held)})
        report(self.role, output, call.runtime, events=self._core is None or self._core.events)

    def _watch(self, call: Call) -> LoopWatch:
        """Return the calls since the user's last message, as the guard compares them."""
        before = call.messages[:-1]
        if self._core is None:
            run = parse_run(before)
        else:
            run = self._core.read(before, call.thread_id)
        return LoopWatch(run, reads=self._reads)

    def _reasons(self, watch: LoopWatch, asked: Sequence[ToolCall], before: Sequence[Any]) -> list[str]:
        """Return the reason why each call is stopped; "" for a call that may be made."""
        reasons: list[str] = []
        for call in asked:
            reason = ""
            if not self._is_polled(call["name"]):
                reason = watch.judge(call["name"], call["args"], said=texts_before(before))
            reasons.append(reason)
        return reasons

    def _reads(self, tool: str) -> bool:
        if self._core is None:
            return False
        spec = self._core.catalogue.marked().get(tool)
        return spec is not None and spec.read_only is True

    def _is_polled(self, tool: str) -> bool:
        if tool in self._polls:
            return True
        if self._core is None:
            return False
        by_tool = self._core.graph.by_tool
        for record in self._core.catalogue.records_of(tool):
            if by_tool.get(record, {}).get(VARIED):
                return True
        return False


def _note(stopped: ToolCall, reason: str) -> ToolMessage:
    """Return the note in place of the result of a stopped call."""
    sentence = f"{reason[0].upper()}{reason[1:]}."
    call_id, name = stopped["id"] or "", stopped["name"]
    return ToolMessage(f"{LOOP_NOTE}{sentence} {ADVICE}", tool_call_id=call_id, name=name, status="error")


def loop_guard_condition(
    state: Any, *, messages_key: str = "messages", tools: str = "tools", agent: str = "agent", end: str = END
) -> Literal["tools", "agent", "__end__"] | str:
    """Return the next node after a `LoopGuard`: the model after notes, otherwise the same as ``tools_condition``."""
    messages = read_key(state, messages_key) or ()
    if messages and isinstance(messages[-1], ToolMessage):
        return agent
    if messages and getattr(messages[-1], "tool_calls", None):
        return tools
    return end
