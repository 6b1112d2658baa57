"""Gemini's contents (Google Gen AI, Vertex AI) and sessions of the Agent Development Kit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.runs.logs.shapes import Dialect, LogFormat, NumberedRecord, dicts, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, Transcript

_PART_FIELDS: Final = ("text", "functionCall", "functionResponse", "function_call", "function_response", "inlineData")


def _read_parts(message: Fields, transcript: Transcript) -> None:
    transcript.end_answer()
    for part in dicts(message["parts"]):
        called = part.get("functionCall") or part.get("function_call")
        result = part.get("functionResponse") or part.get("function_response")
        if isinstance(called, dict):
            transcript.call(called.get("name"), called.get("args"), called.get("id"))
        elif isinstance(result, dict):
            answer = result.get("response")
            transcript.answer(answer, result.get("id"), name=result.get("name"), failed=_has_failed(answer))
        elif part.get("thought"):
            transcript.leave_out("thoughts")
        elif isinstance(part.get("text"), str):
            transcript.say(message.get("role") or "user", part["text"])
        else:
            transcript.leave_out(f"{_kind_of(part)!r} parts")


def _kind_of(part: Fields) -> str:
    for key, value in part.items():
        if value is not None:
            return key
    return "empty"


def _has_failed(answer: Any) -> bool:
    # Gemini's documentation names the key `error` for the error of a function.
    return isinstance(answer, dict) and bool(answer.get("error"))


def _read_sessions(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    for line, record in objects_of(records):
        contents = []
        for event in dicts(record["events"]):
            content = event.get("content")
            if isinstance(content, dict) and isinstance(content.get("parts"), list):
                # The author of other events is the name of an agent.
                role = "model"
                if event.get("author") == "user":
                    role = "user"
                contents.append({**content, "role": content.get("role") or role})
        user = record.get("user_id") or record.get("userId")
        yield line, {"thread_id": record.get("id"), "user_id": user, "messages": contents}


GEMINI_CONTENTS: Final = Dialect("Gemini contents", tuple((f"parts[].{name}",) for name in _PART_FIELDS), _read_parts)
SESSIONS: Final = LogFormat("ADK sessions", (("events[].content.parts[]", "events[].author"),), _read_sessions)
