"""Sessions of Claude Code: one line for each message, or for each block of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from langgraph_toolmem.runs.logs.anthropic import read_blocks
from langgraph_toolmem.runs.logs.shapes import LogFormat, NumberedRecord, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, Transcript


@dataclass(slots=True)
class _Session:
    line: int
    transcript: Transcript = field(default_factory=Transcript)


def _read_sessions(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    sessions: dict[str, _Session] = {}
    roots: dict[str, str] = {}  # a message's first ancestor: it names a sub-agent's conversation
    other_lines = Transcript()
    for line, record in objects_of(records):
        message = record.get("message")
        if record.get("type") not in ("user", "assistant") or not isinstance(message, dict):
            other_lines.leave_out(f"{record.get('type')!r} lines")
            continue
        uuid, parent = str(record.get("uuid") or line), record.get("parentUuid")
        if uuid in roots:
            continue  # a resumed session repeats lines
        roots[uuid] = roots.get(str(parent), uuid)
        # A sub-agent writes into the session's file; its messages are a separate conversation.
        thread = str(record.get("sessionId") or record.get("session_id") or "session")
        if record.get("isSidechain"):
            thread = f"{thread}/{record.get('agentId') or roots[uuid]}"
        session = sessions.setdefault(thread, _Session(line))
        _read_line(record, message, session.transcript)
    for thread, session in sessions.items():
        yield session.line, {"thread_id": thread, "messages": session.transcript}
    yield 1, {"messages": other_lines}


def _read_line(record: Fields, message: Fields, transcript: Transcript) -> None:
    for mark in ("isMeta", "isCompactSummary", "isApiErrorMessage"):  # the program wrote the message
        if record.get(mark):
            transcript.leave_out(f"{mark!r} lines")
            return
    transcript.dialects["Anthropic messages"] = None
    read_blocks({"role": record["type"], **message}, transcript, turn=message.get("id"))


CLAUDE_CODE: Final = LogFormat(
    "Claude Code sessions",
    (("type=user|assistant", "sessionId", "message.role"), ("type=user|assistant", "session_id", "message.role")),
    _read_sessions,
)
