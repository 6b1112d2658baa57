"""Items of OpenAI's Responses API, and the sessions of Codex that contain them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from langgraph_toolmem.runs.logs.shapes import Dialect, LogFormat, NumberedRecord, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, Transcript, is_text, joined_text

# Reasoning, approvals, and tools that OpenAI executes itself: they are not calls of the agent.
_HOSTED: Final = (
    "reasoning|web_search_call|file_search_call|code_interpreter_call|computer_call|computer_call_output|"
    "image_generation_call|mcp_call|mcp_list_tools|mcp_approval_request|mcp_approval_response|local_shell_call|"
    "local_shell_call_output|item_reference|compaction"
)


def _read_message(item: Fields, transcript: Transcript) -> None:
    blocks = item.get("content")
    if not isinstance(blocks, list):
        blocks = [blocks]
    texts = [block for block in blocks if is_text(block)]
    transcript.leave_out("message parts that are no text", len(blocks) - len(texts))
    role = item.get("role")
    if role == "developer":
        role = "system"
    transcript.say(role, joined_text(texts))


def _read_call(item: Fields, transcript: Transcript) -> None:
    transcript.call(item.get("name"), item.get("arguments"), item.get("call_id"))


def _read_custom_call(item: Fields, transcript: Transcript) -> None:
    # The input of a custom tool is a text, not JSON.
    transcript.call(item.get("name"), {"input": item.get("input")}, item.get("call_id"))


def _read_output(item: Fields, transcript: Transcript) -> None:
    transcript.answer(item.get("output"), item.get("call_id"))


def _leave_out(item: Fields, transcript: Transcript) -> None:
    transcript.leave_out(f"{item['type']!r} items")


def _read_codex(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    """Yield the session of a file; other lines repeat its items for the screen or contain settings."""
    items, first, session = [], 0, None
    for line, record in objects_of(records):
        payload = record.get("payload")
        if not isinstance(payload, dict):
            continue
        if record.get("type") == "session_meta":
            session = session or payload.get("id")
        elif record.get("type") == "response_item":
            first = first or line
            items.append(payload)
    yield first, {"thread_id": session, "messages": items}


_MESSAGE: Final = "content[].type=input_text|output_text|input_image|input_file|refusal"
_ITEMS: Final = "OpenAI Responses items"
RESPONSES_ITEMS: Final = (
    Dialect(_ITEMS, (("type=message", "role", "content"), ("role", _MESSAGE)), _read_message),
    Dialect(_ITEMS, (("type=function_call", "name", "arguments"),), _read_call),
    Dialect(_ITEMS, (("type=custom_tool_call", "name"),), _read_custom_call),
    Dialect(_ITEMS, (("type=function_call_output|custom_tool_call_output", "call_id"),), _read_output),
    Dialect(_ITEMS, ((f"type={_HOSTED}",),), _leave_out),
)
CODEX: Final = LogFormat("Codex sessions", (("type=response_item", "payload.type"),), _read_codex)
