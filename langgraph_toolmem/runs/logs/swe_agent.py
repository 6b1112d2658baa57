"""Trajectories of SWE-agent and mini-swe-agent. Calls are read where they are calls, not commands in a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from langgraph_toolmem.runs.logs.dialects import transcribe
from langgraph_toolmem.runs.logs.shapes import LogFormat, Value, dicts, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields

_TEXT_ACTIONS: Final = "actions written as text"


def _read_trajectories(records: list[Value]) -> Iterator[tuple[int, Fields]]:
    for line, record in objects_of(records):
        history = dicts(record.get("history")) or dicts(record.get("messages"))
        transcript = transcribe([_kept(message) for message in history if not message.get("is_demo")])
        transcript.leave_out("demonstration messages", sum(1 for message in history if message.get("is_demo")))
        for message in history:
            extra = message.get("extra")
            actions = extra.get("actions") if isinstance(extra, dict) else message.get("action")
            if actions and not message.get("tool_calls") and not message.get("is_demo"):
                transcript.leave_out(_TEXT_ACTIONS)
        yield line, {"messages": transcript}


def _kept(message: Fields) -> Fields:
    # `message_type` and other keys of theirs are arguments of LangChain's messages, with other meanings.
    return {
        key: message[key]
        for key in ("role", "content", "tool_calls", "tool_call_id", "tool_call_ids")
        if key in message
    }


SWE_AGENT: Final = LogFormat(
    "SWE-agent trajectories",
    (("history[].role",), ("messages", "trajectory_format")),
    _read_trajectories,
)
