"""Conversations of `from` and `value` (ShareGPT, ToolBench's training set), and ToolBench's answer files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.runs.logs.dialects import transcribe
from langgraph_toolmem.runs.logs.shapes import LogFormat, NumberedRecord, dicts, objects_of
from langgraph_toolmem.runs.logs.transcript import (
    Fields,
    Transcript,
    TranscriptSnapshot,
    arguments_of,
    latest_snapshots,
)

_ACTION: Final = re.compile(
    r"\s*(?:Thought:(?P<thought>.*?))?Action:(?P<tool>[^\n]{0,200})\n\s*Action Input:", re.DOTALL
)
_RESULT_ROLES: Final = ("function", "observation", "tool", "function_response")


def _read_conversations(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    for line, record in objects_of(records):
        # There are no ids: a result answers the latest call.
        transcript, waiting = Transcript(), ""
        transcript.dialects["ShareGPT messages"] = None
        for message in dicts(record["conversations"]):
            role, text = message.get("from"), str(message.get("value") or "")
            if role in _RESULT_ROLES:
                transcript.answer(text, waiting)
            elif role in ("assistant", "gpt", "function_call"):
                waiting = _read_answer(text, transcript) or waiting
            else:
                transcript.say(role, text)
        yield line, {"thread_id": record.get("id"), "messages": transcript}


def _read_answer(text: str, transcript: Transcript) -> str:
    """Add an answer of the model: text, or a call as ToolBench (`Action:`) or function-calling sets (JSON) write it."""
    transcript.end_answer()
    action = _ACTION.match(text)
    if action:
        transcript.say("assistant", (action["thought"] or "").strip())
        return transcript.call(action["tool"].strip(), _first_object(text[action.end() :]))
    called = arguments_of(text)
    if called and "name" in called:
        return transcript.call(called["name"], called.get("arguments", called.get("parameters")))
    transcript.say("assistant", text)
    return ""


def _first_object(text: str) -> object:
    try:
        # `raw_decode`: text may follow the arguments.
        return json.JSONDecoder(strict=False).raw_decode(text.strip())[0]
    except (ValueError, RecursionError):
        return text


def _read_answers(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    """Yield the histories of ToolBench's answer files: one for each answer of the model, branches included."""
    for line, record in objects_of(records):
        answer = record["answer_generation"]
        thread = digest("toolbench", line, str(answer.get("query")))
        snapshots = []
        for history in answer.get("train_messages") or ():
            facts = {"thread_id": thread, "task": answer.get("query"), "success": record.get("win")}
            snapshots.append(TranscriptSnapshot(line, facts, transcribe(history)))
        yield from latest_snapshots(snapshots)


CONVERSATIONS: Final = LogFormat(
    "ShareGPT conversations", (("conversations[].from", "conversations[].value"),), _read_conversations
)
TOOLBENCH: Final = LogFormat("ToolBench answers", (("answer_generation.train_messages",),), _read_answers)
