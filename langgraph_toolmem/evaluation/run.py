"""One run of an evaluation, as the agent's factory and the checks see it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import canonical, shortened
from langgraph_toolmem.evaluation.answers import Keeper, with_kept_answers
from langgraph_toolmem.evaluation.arms import Arm
from langgraph_toolmem.memory import ToolMemory

if TYPE_CHECKING:
    from langgraph_toolmem.evaluation.tasks import EvalTask

Model = TypeVar("Model", bound=BaseChatModel)
TRACE_CHARS: Final = 240
"""Characters of one line of a trace."""
RECURSION_LIMIT: Final = 200
"""Limit of graph steps for one user message: an agent in a loop fails its task."""


@dataclass(slots=True)
class EvalRun:
    """One run: a task, in an arm, for the n-th time.

    A factory builds the agent from it::

        def agent(run):
            model = run.model(ChatOpenAI(model="gpt-5.1"))
            return create_agent(model, tools, middleware=run.middleware())

    Attributes:
        task: the task.
        arm: the arm.
        trial: from 0.
        seed: the same for a task and trial in all arms.
        thread_id: of the conversation.
        keeper: counts and keeps the model's answers.
        memory: None in an arm without the memory.
        messages: of the thread, after the run.
        state: the graph's last state.
        world: for the factory and the check to share, such as a database.
    """

    task: EvalTask
    arm: Arm
    trial: int
    seed: int
    thread_id: str
    keeper: Keeper
    memory: ToolMemory | None = None
    messages: list[BaseMessage] = field(default_factory=list)
    state: Any = None
    world: Any = None

    def model(self, model: Model) -> Model:
        """Return a copy of a chat model whose calls are counted, kept for a restart, and limited by the budget."""
        return with_kept_answers(model, self.keeper)

    def middleware(self, outer: Sequence[Any] = ()) -> list[Any]:
        """Return the middleware for ``create_agent``: `outer`, and the memory last if the arm has one."""
        if self.memory is None:
            return list(outer)
        from langgraph_toolmem.middleware import tool_memory_middleware

        return tool_memory_middleware(self.memory, outer=outer, **(self.arm.options or {}))

    def with_memory(self, model: Model, tools: Iterable[Any]) -> Model:
        """Return the model with the memory before it, for any graph; `model` itself in an arm without the memory."""
        if self.memory is None:
            return model
        from langgraph_toolmem.models import with_tool_memory

        options = dict(self.arm.options or {})
        # The arm "hints" has it, but at a model there is no end of a run.
        options.pop("reflect", None)
        if options.pop("tool_search", False):
            raise ConfigurationError("tool search needs run.middleware(): a wrapped model cannot reveal tools")
        return with_tool_memory(model, self.memory, tools=tools, **options)


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The result of a run.

    Attributes:
        score: from 0 to 1; 1 is a success.
        messages: of the thread.
        details: the source's own, in JSON.
    """

    score: float
    messages: Sequence[BaseMessage] = ()
    details: dict[str, Any] = field(default_factory=dict)


def play_messages(run: EvalRun, agent: Any, *, asynchronous: bool = False) -> None:
    """Send the user's messages to a graph, one after the other; fill in `run.messages` and `run.state`."""
    config: Any = {"configurable": {"thread_id": run.thread_id}, "recursion_limit": RECURSION_LIMIT}
    keeps_thread = bool(getattr(agent, "checkpointer", None))
    for number, text in enumerate(run.task.messages):
        # An id of our own: LangGraph would draw another one at each start.
        said = HumanMessage(text, id=f"{run.thread_id}-{number}")
        # A graph without a checkpointer gets the whole conversation each time.
        before = [] if keeps_thread else run.messages
        state = {"messages": [*before, said]}
        if asynchronous:
            run.state = asyncio.run(agent.ainvoke(state, config))
        else:
            run.state = agent.invoke(state, config)
        run.messages = list(run.state["messages"])


def trace_of(messages: Iterable[BaseMessage]) -> list[str]:
    """Return one line for each step of a run: the user's words, calls with their author, results, answers."""
    lines: list[str] = []
    for message in messages:
        if isinstance(message, HumanMessage):
            lines.append(f"user: {message.text}")
        elif isinstance(message, ToolMessage):
            lines.append(f"result: {message.text}")
        elif isinstance(message, AIMessage):
            # The traces of two arms are shown side by side: they differ first in the author of a call.
            who = "memory" if made_by_memory(message) else "model"
            if message.text:
                lines.append(f"{who}: {message.text}")
            for call in message.tool_calls:
                lines.append(f"{who} calls {call['name']} {canonical(call['args'])}")
    return [shortened(" ".join(line.split()), TRACE_CHARS) for line in lines]


def made_by_memory(message: BaseMessage) -> bool:
    """Return True for a message of the memory."""
    return isinstance(message, AIMessage) and "toolmem" in message.additional_kwargs
