"""Messages of OpenTelemetry's GenAI conventions: parts with `type` and `content`."""

from __future__ import annotations

from typing import Final

from langgraph_toolmem.runs.logs.shapes import Dialect, dicts
from langgraph_toolmem.runs.logs.transcript import Fields, Transcript


def _read_parts(message: Fields, transcript: Transcript) -> None:
    transcript.end_answer()
    for part in dicts(message["parts"]):
        kind = part.get("type")
        if kind == "text":
            transcript.say(message.get("role"), str(part.get("content") or ""))
        elif kind == "tool_call":
            transcript.call(part.get("name"), part.get("arguments"), part.get("id"))
        elif kind == "tool_call_response":
            transcript.answer(part.get("response", part.get("result")), part.get("id"), name=part.get("name"))
        else:
            transcript.leave_out(f"{kind!r} parts")


GENAI_MESSAGES: Final = Dialect(
    "OpenTelemetry GenAI messages",
    (
        ("role", "parts[].type=tool_call|tool_call_response"),
        ("role", "parts[].type=text|reasoning|blob|uri|file", "parts[].content"),
    ),
    _read_parts,
)
