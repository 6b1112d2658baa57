"""Summaries of recorded runs, written afterwards by a chat model."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage, get_buffer_string
from langchain_core.messages.tool import tool_call

from langgraph_toolmem.runs.run import ExecutedCall, Run, UserMessage

MAX_CHARS: Final = 12_000
"""Of the history, its latest part, that the model reads."""

_WRITE: Final = (
    "Write the state of the agent's work in at most five short sentences: what the user wants, which tools were called "
    "with what outcome, what is still open or unclear. Leave out ids and amounts. Write nothing else."
)


def write_state(model: BaseChatModel, history: Run) -> str | None:
    """The state after a history in the model's words; None if it said nothing.

    ``write_states(run, user, write=partial(write_state, model))`` of `WaitingStates` asks once per state. What the
    model raises is not caught.
    """
    text = get_buffer_string(messages_of(history))
    cut = f"[… {len(text) - MAX_CHARS} characters left out]\n{text[-MAX_CHARS:]}" if len(text) > MAX_CHARS else text
    answer = model.invoke([SystemMessage(_WRITE), HumanMessage(f"The history:\n\n{cut}")])
    return answer.text.strip() or None


def messages_of(run: Run) -> list[BaseMessage]:
    """The messages of a run that was read, one per user message, model turn and answer of a tool."""
    messages: list[BaseMessage] = []
    for event in run.events:
        if isinstance(event, UserMessage):
            messages.append(HumanMessage(event.text))
            continue
        calls = [tool_call(name=step.tool, args=step.args, id=step.key) for step in event.steps]
        messages.append(AIMessage(event.text, tool_calls=calls))
        messages += map(_answer, event.steps)
    return messages


def _answer(step: ExecutedCall) -> ToolMessage:
    text = step.output if isinstance(step.output, str) else _json(step.output)
    said = text if step.status == "ok" else f"{step.status}: {text}"
    return ToolMessage(said, tool_call_id=step.key, name=step.tool)


_json = partial[Any](json.dumps, ensure_ascii=False, default=str)
