"""The planner node: shows the model single steps that worked at such a point, with what is known already in place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END
from langgraph.runtime import Runtime

from langgraph_toolmem.atoms.rules import Complaint, complaints
from langgraph_toolmem.atoms.settings import BUDGET, SGASettings, When
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.base.models import resolve_model
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.base import MemoryNode
from langgraph_toolmem.nodes.chains import offered_tools
from langgraph_toolmem.runs.run import OWN_TOOLS, Run, UserMessage
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec, read_tools
from langgraph_toolmem.turn.hints import HINTS, PLANNING, Hint, Planning, has_hint, new_hint, planning_now
from langgraph_toolmem.turn.host import emit, read_key, run_id_of, runtime_of, user_id_of
from langgraph_toolmem.turn.telemetry import annotate

if TYPE_CHECKING:
    from langgraph_toolmem.atoms.planning import Planned

ROLE: Final = "sga"
GUARD: Final = "sga_guard"
_HEAD: Final = "Your last answer was not carried out:"
_TAIL: Final = "Go on in another way. If exactly that call is right all the same, make it again."


class SGAPlanner(MemoryNode):
    """Puts single steps that worked at such a point of other runs into the private hint state (SGA-MCTS, online part).

    The steps are atoms (`memory.search_atoms`), learned from runs that went well or found by ``toolmem discover``,
    without values and not bound to tool names. They are looked up by where the run stands, by what is still open and
    by the types of the values that are known, and shown as patterns with these values filled in. Stands between the
    shortcut and the model; the model's node reads the hint with `memory_prompt`::

        builder = StateGraph(MemoryState)
        builder.add_node("sga", SGAPlanner(memory, tools=tools))
        builder.add_edge("sga", "agent")
        ...
        model.invoke([*memory_prompt(state), *state["messages"]])

    No model is called for it by default: what is known and what is open are read off the messages. With a `model`,
    that model says so in one structured call (a second one if its answer cannot be used); if it is of no use twice in a
    row, it is left alone until the user speaks again. What is known is kept in the private state, so it is still there
    when messages were trimmed. ``StateGraph(MemoryState, output_schema=MessagesState)`` keeps it out of what the app
    returns.

    A tool that a `PreferenceGuide` leaves out or a `ToolRetriever` does not offer gives no hint, nor does one of which
    a person rejected a call since the user spoke. Before the first call of a user turn only steps are shown that have
    words in common with what is open (or whatever an embedder of your own finds like it).

    Args:
        memory: the memory.
        tools: the agent's tools; those that the memory knows if None.
        model: says where the run stands and what comes next: a chat model or ``"provider:model"``.
        when: the model is asked before each model call ("step"), when what is open has changed or a call has failed
            ("goal"), or once per user turn ("turn").
        k: patterns shown, at most.
        beta: weight of what is known against words, 0 to 1.
        budget: tokens of the patterns at most.
        rules: add the decision rules to the patterns: no identical repeat, a change after a failure.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    role = ROLE
    about = "shows steps that worked at such a point of other runs; calls no model by default"

    def __init__(
        self,
        memory: ToolMemory,
        *,
        tools: Iterable[ToolLike] | None = None,
        model: BaseChatModel | str | None = None,
        when: When = "step",
        k: int = 3,
        beta: float = 0.3,
        budget: int = BUDGET,
        rules: bool = True,
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        super().__init__(memory, messages_key=messages_key, name=name)
        from langgraph_toolmem.atoms.planning import HintPlanner  # numpy: only when planning is used

        self.settings = SGASettings(check_model(model), when, k, beta, budget, rules)
        self.tools = None if tools is None else without_own(read_tools(tools))
        self._planner = HintPlanner(memory, self.settings, failed=self._errors.failed)

    def _run(self, state: Any, config: RunnableConfig | None) -> Any:
        if has_hint(state, self.role, messages_key=self.messages_key):
            return None
        runtime = runtime_of(config)
        messages = self._messages(state)
        specs, kept, who = self._at_hand(state), planning_now(state), _who(config, runtime)
        return self._answer(self._planner.plan(messages, specs, kept, **who), messages, runtime)

    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any:
        if has_hint(state, self.role, messages_key=self.messages_key):
            return None
        runtime = runtime_of(config)
        messages = self._messages(state)
        specs = await asyncio.to_thread(self._at_hand, state)
        kept, who = planning_now(state), _who(config, runtime)
        return self._answer(await self._planner.aplan(messages, specs, kept, **who), messages, runtime)

    def _at_hand(self, state: Any) -> dict[str, ToolSpec] | None:
        """The tools that the model is offered at this step; None if nobody knows."""
        specs = known_tools(self.memory) if self.tools is None else self.tools
        left = offered_tools(state, specs.values(), messages_key=self.messages_key)
        return {spec.name: spec for spec in left} or None

    def _answer(self, planned: Planned, messages: list[Any], runtime: Runtime[Any] | None) -> Any:
        tell(planned, runtime)
        return {**new_hint(self.role, planned.text, messages), PLANNING: planned.record}


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
    Nothing is executed or booked, and the second answer is let pass whatever it is. What was streamed of the first
    answer stays streamed. The state needs the private keys of `MemoryState`, or every answer passes, and messages that
    ``add_messages`` merges.

    Args:
        memory: the memory.
        tools: the agent's tools; those that the memory knows if None. They say which calls change something; of those
            that do not, the verb of the name tells (``rename_file``).
        messages_key: key of the messages in the host's state.
        name: of the node in traces.
    """

    role = GUARD
    about = "sends the model back once if it repeats a call without a change; calls no model"

    def __init__(
        self,
        memory: ToolMemory,
        *,
        tools: Iterable[ToolLike] | None = None,
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        super().__init__(memory, messages_key=messages_key, name=name)
        self.tools = None if tools is None else without_own(read_tools(tools))

    def _run(self, state: Any, config: RunnableConfig | None) -> Any:
        messages, kept = self._messages(state), planning_now(state)
        answer = messages[-1] if messages else None
        if has_hint(state, self.role, messages_key=self.messages_key):
            return {HINTS: {self.role: Hint(text="", at="")}}  # the model was asked again and gave nothing
        if not isinstance(answer, AIMessage) or not answer.tool_calls or not answer.id:
            return None
        if kept is None or read_key(state, HINTS) is None:
            return None
        runtime = runtime_of(config)
        run = self.memory._read(messages[:-1], run_id_of(config, runtime))
        found = complaints_of(run, [answer], known_tools(self.memory) if self.tools is None else self.tools)
        point = point_of(run)
        again = kept.get("guarded") == point
        if not found:
            return None
        tell_guard(found, "passed" if again else "taken back", runtime)
        if again:
            return None
        return {
            self.messages_key: [RemoveMessage(id=answer.id)],
            **new_hint(self.role, complaint_text(found), messages[:-1]),
            PLANNING: Planning(guarded=point),
        }

    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any:
        return await asyncio.to_thread(self._run, state, config)


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


def check_model(model: Any) -> BaseChatModel | None:
    """The planner's model. Raises ConfigurationError if it is none."""
    if isinstance(model, str):
        return resolve_model(model, name="model")
    if model is not None and not isinstance(model, BaseChatModel):
        raise ConfigurationError(f'model is a chat model or "provider:model", not {type(model).__name__}.')
    return model


def without_own(specs: Mapping[str, ToolSpec]) -> dict[str, ToolSpec]:
    """The tools that act on the world."""
    return {name: spec for name, spec in specs.items() if name not in OWN_TOOLS}


def known_tools(memory: ToolMemory) -> dict[str, ToolSpec]:
    """The tools that the memory knows."""
    with memory._lock:
        return without_own(memory._engine.specs)


def complaints_of(run: Run, answer: Sequence[Any], specs: Mapping[str, ToolSpec]) -> list[tuple[str, Complaint]]:
    """What the decision rules say against the calls of an answer, each with the call's tool."""
    calls = [
        (call["name"], call["args"])
        for message in answer
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["name"] not in OWN_TOOLS
    ]
    return [(calls[each.call][0], each) for each in complaints(run, calls, specs, by_name=True)]


def complaint_text(found: Sequence[tuple[str, Complaint]]) -> str:
    """What the model is told."""
    return "\n".join([_HEAD, *(f"- {complaint.text}" for _, complaint in found), _TAIL])


def point_of(run: Run) -> str:
    """The point of a run: the latest user message and the latest call."""
    said = call = ""
    for event in run.events:
        if isinstance(event, UserMessage):
            said = event.key
        elif event.steps:
            call = event.steps[-1].key
    return digest("point", said, call)


def tell(planned: Planned, runtime: Any) -> None:
    """One stream event and the attributes of the current span."""
    emit(runtime, {"node": ROLE, **planned.event})
    calls = int(planned.event.get("model_calls", 0))
    annotate({"toolmem.node": ROLE, "toolmem.hints": len(planned.shown), "toolmem.planner_calls": calls})


def tell_guard(found: Sequence[tuple[str, Complaint]], outcome: str, runtime: Any) -> None:
    """One stream event and the attributes of the current span.

    The outcome is "taken back" (the node), "changed", "not answered" (the middleware), or "passed": the second answer
    is against the rules too, and stands.
    """
    against = [{"tool": tool, "rule": complaint.rule, "text": complaint.text} for tool, complaint in found]
    emit(runtime, {"node": GUARD, "complaints": against, "outcome": outcome})
    annotate({"toolmem.node": GUARD, "toolmem.complaints": len(found)})


def _who(config: RunnableConfig | None, runtime: Runtime[Any] | None) -> dict[str, str | None]:
    return {"run_id": run_id_of(config, runtime), "user_id": user_id_of(config, runtime)}
