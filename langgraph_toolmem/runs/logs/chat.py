"""Chat messages: OpenAI's (with the older `function_call`), LangChain's, and calls that carry their results."""

from __future__ import annotations

from typing import Any, Final

from langgraph_toolmem.runs.logs.shapes import Dialect, dicts
from langgraph_toolmem.runs.logs.transcript import Fields, Transcript, joined_text

_CLASSES: Final = {"Human": "human", "AI": "ai", "Tool": "tool", "System": "system", "Function": "function"}


def _keep(message: Fields, transcript: Transcript) -> None:
    transcript.keep(message)


def _keep_constructed(message: Fields, transcript: Transcript) -> None:
    """Read a message as LangChain dumps it, with the name of its class."""
    kind = str(message["id"][-1]).removesuffix("Chunk").removesuffix("Message")
    transcript.keep({**message["kwargs"], "type": _CLASSES.get(kind, kind.lower())})


def _read_function_call(message: Fields, transcript: Transcript) -> None:
    transcript.end_answer()
    text = joined_text(message.get("content"))
    if text:
        transcript.say("assistant", text)
    called = message.get("function_call")
    if isinstance(called, dict):
        transcript.call(called.get("name"), called.get("arguments"))


def _read_function_result(message: Fields, transcript: Transcript) -> None:
    # `function_call` has no id: the result belongs to the call of that name.
    transcript.answer(message.get("content"), name=message.get("name"))


def _read_calls_with_results(message: Fields, transcript: Transcript) -> None:
    # STATE-Bench lists the calls of a turn with their results, and the text that the user saw at the end of the turn.
    # The list has no rounds: each call is treated as a round of its own, so that it may depend on earlier calls.
    for called in dicts(message["tool_calls"]):
        transcript.end_answer()
        call_id = transcript.call(called.get("name"), called.get("arguments", called.get("args")), called.get("id"))
        if "result" in called and call_id:
            transcript.answer(called["result"], call_id)
    transcript.end_answer()
    text = joined_text(message.get("content"))
    if text:
        transcript.say(message.get("role"), text)


def _read_tool_responses(message: Fields, transcript: Transcript) -> None:
    """Read AG2's message with the results of all calls of a turn."""
    for result in dicts(message["tool_responses"]):
        transcript.answer(result.get("content"), result.get("tool_call_id"), name=result.get("name"))


def _read_result_of_listed_calls(message: Fields, transcript: Transcript) -> None:
    """Read SWE-agent's result, which has a list of one call's id."""
    for call_id in message["tool_call_ids"]:
        transcript.answer(message.get("content"), call_id)


def message_of_pair(pair: Any) -> Any:
    """Return a message for a pair of role and text, as LangChain takes it; other values as they are."""
    if isinstance(pair, (list, tuple)) and len(pair) == 2:
        role, text = pair
        if isinstance(role, str) and isinstance(text, str):
            return {"role": role, "content": text}
    return pair


_MESSAGE_TYPES: Final = (
    "type=human|ai|system|tool|function|user|assistant|developer|chat|remove|"
    "HumanMessageChunk|AIMessageChunk|SystemMessageChunk|ToolMessageChunk|FunctionMessageChunk"
)
CHAT: Final = Dialect("chat messages", (("role",), (_MESSAGE_TYPES,)), _keep)
CHAT_DIALECTS: Final = (
    Dialect("LangChain dumps", (("type=constructor", "id[]", "kwargs"),), _keep_constructed),
    Dialect("OpenAI function_call messages", (("role", "function_call.name"),), _read_function_call),
    Dialect("OpenAI function_call messages", (("role=function", "name", "content"),), _read_function_result),
    Dialect("calls with results", (("role", "tool_calls[].name", "tool_calls[].result"),), _read_calls_with_results),
    Dialect("AG2 messages", (("role=tool", "tool_responses[].content"),), _read_tool_responses),
    Dialect("SWE-agent messages", (("role=tool", "tool_call_ids[]"),), _read_result_of_listed_calls),
)
