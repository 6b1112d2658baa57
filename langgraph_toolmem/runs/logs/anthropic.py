"""Anthropic's messages: content blocks with `tool_use`, `tool_result` and thinking."""

from __future__ import annotations

from typing import Any, Final

from langgraph_toolmem.runs.logs.shapes import Dialect
from langgraph_toolmem.runs.logs.transcript import Fields, Transcript, is_text, joined_text, result_text

_BLOCKS: Final = (
    "content[].type=tool_use|tool_result|thinking|redacted_thinking|server_tool_use|mcp_tool_use|mcp_tool_result"
)
# Without `server_tool_use`: Anthropic executes these tools itself, and the agent cannot call them.
_CALLS: Final = ("tool_use", "mcp_tool_use")
_RESULT_BLOCKS: Final = ("tool_result", "mcp_tool_result")


def read_blocks(message: Fields, transcript: Transcript, turn: str | None = None) -> None:
    """Add a message of content blocks.

    Args:
        message: the message.
        transcript: the conversation so far.
        turn: id of the model's answer, if its blocks are logged separately.
    """
    role, blocks = message.get("role"), message.get("content")
    if not isinstance(blocks, list):
        blocks = [blocks]
    if turn is None:
        transcript.end_answer()
    for block in blocks:
        kind = _kind_of(block)
        if kind == "text":
            transcript.say(role, joined_text([block]), turn=turn)
        elif kind in _CALLS:
            transcript.call(block.get("name"), block.get("input"), block.get("id"), turn=turn)
        elif kind in _RESULT_BLOCKS:  # in a message of the user: results have no role of their own
            _read_result(block, transcript)
        else:
            transcript.leave_out(f"{kind!r} blocks")


def _kind_of(block: Any) -> str:
    if is_text(block) and (isinstance(block, str) or block.get("type") in (None, "", "text")):
        return "text"
    if isinstance(block, dict) and block.get("type"):
        return str(block["type"])
    return type(block).__name__


def _read_result(block: Fields, transcript: Transcript) -> None:
    content: Any = block.get("content")
    if isinstance(content, list):
        texts = [part for part in content if is_text(part)]
        transcript.leave_out("parts of results that are no text", len(content) - len(texts))
        content = texts
    transcript.answer(result_text(content), block.get("tool_use_id"), failed=block.get("is_error"))


def _read_inner(message: Fields, transcript: Transcript) -> None:
    read_blocks({"role": message["type"], **message["message"]}, transcript, turn=message["message"].get("id"))


WRAPPED: Final = Dialect("Claude Agent SDK messages", (("type=user|assistant", "message.role"),), _read_inner)
ANTHROPIC_MESSAGES: Final = Dialect("Anthropic messages", (("role", _BLOCKS), ("type", _BLOCKS)), read_blocks)
