"""Trajectories of SWE-agent and mini-swe-agent. Only structured calls are read, not commands in a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.runs.logs.dialects import transcribe
from langgraph_toolmem.runs.logs.shapes import LogFormat, NumberedRecord, dicts, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields


def _read_trajectories(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    for line, record in objects_of(records):
        history = dicts(record.get("history")) or dicts(record.get("messages"))
        # The prompt may contain a whole demonstration, whose calls the model did not make.
        own = [message for message in history if not message.get("is_demo")]
        transcript = transcribe([_kept(message) for message in own])
        transcript.leave_out("demonstration messages", len(history) - len(own))
        for message in own:
            if _actions_of(message) and not message.get("tool_calls"):
                transcript.leave_out("actions written as text")
        yield line, {"messages": transcript}


def _actions_of(message: Fields) -> Any:
    extra = message.get("extra")  # mini-swe-agent's
    if isinstance(extra, dict):
        return extra.get("actions")
    return message.get("action")


def _kept(message: Fields) -> Fields:
    # `message_type` and other keys of theirs are arguments of LangChain's messages, with other meanings.
    keys = ("role", "content", "tool_calls", "tool_call_id", "tool_call_ids")
    return {key: message[key] for key in keys if key in message}


SWE_AGENT: Final = LogFormat(
    "SWE-agent trajectories",
    (("history[].role",), ("messages", "trajectory_format")),
    _read_trajectories,
)
