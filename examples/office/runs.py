"""Run tasks through the office agent and count what they cost."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem.testing import ScriptedChatModel

from .agent import build_graph
from .assistant import reply
from .office import Office
from .tasks import Task

if TYPE_CHECKING:
    from langgraph_toolmem import ToolMemory

logger = logging.getLogger("examples.office")

MOST_STEPS = 60  # graph steps of one task before it is broken off


@dataclass(frozen=True)
class Outcome:
    """What one task cost and whether it was solved.

    Attributes:
        llm_calls: assistant messages that a model made.
        shortcuts: assistant messages that the memory made.
        prompt_tokens: tokens of all prompts, as the provider reports them.
        completion_tokens: tokens of all answers.
        seconds: wall time.
        right: the office's final state is what it should be.
        error: why the run broke off, or "".
    """

    id: str
    kind: str
    llm_calls: int
    shortcuts: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    right: bool
    error: str = ""


@dataclass(frozen=True)
class Totals:
    """Sums over some tasks."""

    tasks: int
    llm_calls: int
    shortcuts: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    right: int

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "tokens": self.tokens, "seconds": round(self.seconds, 3)}


def totals(outcomes: Iterable[Outcome]) -> Totals:
    """Add up."""
    rows = list(outcomes)
    return Totals(
        tasks=len(rows),
        llm_calls=sum(row.llm_calls for row in rows),
        shortcuts=sum(row.shortcuts for row in rows),
        prompt_tokens=sum(row.prompt_tokens for row in rows),
        completion_tokens=sum(row.completion_tokens for row in rows),
        seconds=sum(row.seconds for row in rows),
        right=sum(row.right for row in rows),
    )


def lost(without: Sequence[Outcome], with_memory: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes with the memory of tasks that are solved without it only."""
    return [b for a, b in zip(without, with_memory, strict=True) if a.right and not b.right]


def run_tasks(
    model: BaseChatModel,
    tasks: Sequence[Task],
    office: Office,
    memory: ToolMemory | None = None,
    *,
    prefetch: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    done: Callable[[Outcome], object] = lambda _: None,
    kept: Callable[[Task, list[BaseMessage]], object] = lambda *_: None,
) -> list[Outcome]:
    """Run tasks one after the other, each in a thread of its own and in a fresh office.

    Args:
        model: the chat model.
        tasks: the tasks, in this order.
        office: the sandbox; reset before every task.
        memory: the memory to plug in, or None.
        prefetch: likely look-ups run while the model is asked.
        clock: seconds; for the wall time.
        done: called after each task.
        kept: likewise, with the task and its messages.
    """
    graph = build_graph(model, list(office.tools()), memory, prefetch=prefetch).compile(checkpointer=InMemorySaver())
    outcomes = []
    for task in tasks:
        office.reset(task.seed)
        config: RunnableConfig = {
            "configurable": {"thread_id": task.id, "user_id": "me"},
            "recursion_limit": MOST_STEPS,
        }
        start, error = clock(), ""
        try:
            graph.invoke({"messages": [("user", task.request)]}, config)
        except Exception as failure:
            # A run that breaks off is an unsolved task; the others still count.
            logger.warning("task %s broke off", task.id, exc_info=True)
            error = f"{type(failure).__name__}: {failure}"
        seconds = clock() - start
        messages = graph.get_state(config).values.get("messages", [])
        outcome = _outcome(task, messages, seconds, task.checker(office), error)
        outcomes.append(outcome)
        kept(task, messages)
        done(outcome)
    return outcomes


def scripted_model() -> ScriptedChatModel:
    """The scripted assistant as a chat model without a server; four characters are a token."""
    ids = count(1)

    def answer(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        asked = {"messages": convert_to_openai_messages(messages), "tools": tools}
        said = reply(asked)
        read, written = (len(json.dumps(each)) // 4 for each in (asked, [said.text, said.tool_calls]))
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        calls = [{**call, "id": f"call_{next(ids)}"} for call in said.tool_calls]
        return said.model_copy(update={"usage_metadata": usage, "tool_calls": calls})

    return ScriptedChatModel(script=answer)


def _outcome(task: Task, messages: list[BaseMessage], seconds: float, right: bool, error: str) -> Outcome:
    answers = [message for message in messages if isinstance(message, AIMessage)]
    made = [message for message in answers if "toolmem" not in message.additional_kwargs]
    usage = [message.usage_metadata for message in made if message.usage_metadata]
    return Outcome(
        id=task.id,
        kind=task.kind,
        llm_calls=len(made),
        shortcuts=len(answers) - len(made),
        prompt_tokens=sum(item["input_tokens"] for item in usage),
        completion_tokens=sum(item["output_tokens"] for item in usage),
        seconds=seconds,
        right=right and not error,
        error=error,
    )
