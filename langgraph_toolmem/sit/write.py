"""Summaries of recorded runs, written afterwards by a chat model."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from langgraph_toolmem.runs.run import ExecutedCall, Run, UserMessage
from langgraph_toolmem.sit.ask import write_summary


def write_state(model: BaseChatModel, history: Run) -> str | None:
    """The state after a history in the model's words; None if it said nothing.

    ``write_states(run, user, write=partial(write_state, model))`` of `WaitingStates` asks once per state. What the
    model raises is not caught.
    """
    return write_summary(model, messages_of(history))


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
