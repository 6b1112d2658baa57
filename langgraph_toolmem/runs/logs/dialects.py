"""Formats of messages, of chat APIs and of libraries for agents: each message is read by the format it is written in.

`transcribe` adds the messages of a conversation to a `Transcript`. A new format is a function that adds one message,
and a `Dialect` with the places that identify it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem.runs.logs.transcript import (
    Dialect,
    Fields,
    Transcript,
    dicts,
    has_shape,
    is_text,
    joined_text,
    result_text,
)


def dialect_of(message: Any) -> Dialect | None:
    """Return the format of a message; None if it is unknown."""
    for dialect in DIALECTS:
        if has_shape(message, dialect.signatures):
            return dialect
    return None


def transcribe(messages: Sequence[Any]) -> Transcript:
    """Read messages into a transcript. Entries of no known format are counted as left out."""
    transcript = Transcript()
    for entry in messages:
        message = message_of_pair(entry)
        dialect = dialect_of(message)
        if dialect is None:
            transcript.leave_out("messages of no known format")
            continue
        transcript.dialects[dialect.name] = None
        dialect.convert(message, transcript)
    return transcript


# --- chat messages: OpenAI's (with the older `function_call`), LangChain's, and calls that carry their results ---

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

# --- Anthropic: content blocks ---

_ANTHROPIC_BLOCKS: Final = (
    "content[].type=tool_use|tool_result|thinking|redacted_thinking|server_tool_use|mcp_tool_use|mcp_tool_result"
)
# Without `server_tool_use`: Anthropic executes these tools itself, and the agent cannot call them.
_ANTHROPIC_CALLS: Final = ("tool_use", "mcp_tool_use")
_ANTHROPIC_RESULTS: Final = ("tool_result", "mcp_tool_result")


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
        kind = _kind_of_block(block)
        if kind == "text":
            transcript.say(role, joined_text([block]), turn=turn)
        elif kind in _ANTHROPIC_CALLS:
            transcript.call(block.get("name"), block.get("input"), block.get("id"), turn=turn)
        elif kind in _ANTHROPIC_RESULTS:  # in a message of the user: results have no role of their own
            _read_result_block(block, transcript)
        else:
            transcript.leave_out(f"{kind!r} blocks")


def _kind_of_block(block: Any) -> str:
    if is_text(block) and (isinstance(block, str) or block.get("type") in (None, "", "text")):
        return "text"
    if isinstance(block, dict) and block.get("type"):
        return str(block["type"])
    return type(block).__name__


def _read_result_block(block: Fields, transcript: Transcript) -> None:
    content: Any = block.get("content")
    if isinstance(content, list):
        texts = [part for part in content if is_text(part)]
        transcript.leave_out("parts of results that are no text", len(content) - len(texts))
        content = texts
    transcript.answer(result_text(content), block.get("tool_use_id"), failed=block.get("is_error"))


def _read_wrapped(message: Fields, transcript: Transcript) -> None:
    read_blocks({"role": message["type"], **message["message"]}, transcript, turn=message["message"].get("id"))


WRAPPED: Final = Dialect("Claude Agent SDK messages", (("type=user|assistant", "message.role"),), _read_wrapped)
ANTHROPIC_MESSAGES: Final = Dialect(
    "Anthropic messages", (("role", _ANTHROPIC_BLOCKS), ("type", _ANTHROPIC_BLOCKS)), read_blocks
)

# --- OpenAI's Responses API: items ---

# Reasoning, approvals, and tools that OpenAI executes itself: they are not calls of the agent.
_HOSTED: Final = (
    "reasoning|web_search_call|file_search_call|code_interpreter_call|computer_call|computer_call_output|"
    "image_generation_call|mcp_call|mcp_list_tools|mcp_approval_request|mcp_approval_response|local_shell_call|"
    "local_shell_call_output|item_reference|compaction"
)


def _read_responses_message(item: Fields, transcript: Transcript) -> None:
    blocks = item.get("content")
    if not isinstance(blocks, list):
        blocks = [blocks]
    texts = [block for block in blocks if is_text(block)]
    transcript.leave_out("message parts that are no text", len(blocks) - len(texts))
    role = item.get("role")
    if role == "developer":
        role = "system"
    transcript.say(role, joined_text(texts))


def _read_responses_call(item: Fields, transcript: Transcript) -> None:
    transcript.call(item.get("name"), item.get("arguments"), item.get("call_id"))


def _read_responses_custom_call(item: Fields, transcript: Transcript) -> None:
    # The input of a custom tool is a text, not JSON.
    transcript.call(item.get("name"), {"input": item.get("input")}, item.get("call_id"))


def _read_responses_output(item: Fields, transcript: Transcript) -> None:
    transcript.answer(item.get("output"), item.get("call_id"))


def _leave_item_out(item: Fields, transcript: Transcript) -> None:
    transcript.leave_out(f"{item['type']!r} items")


_RESPONSES_CONTENT: Final = "content[].type=input_text|output_text|input_image|input_file|refusal"
_RESPONSES_NAME: Final = "OpenAI Responses items"
RESPONSES_ITEMS: Final = (
    Dialect(
        _RESPONSES_NAME, (("type=message", "role", "content"), ("role", _RESPONSES_CONTENT)), _read_responses_message
    ),
    Dialect(_RESPONSES_NAME, (("type=function_call", "name", "arguments"),), _read_responses_call),
    Dialect(_RESPONSES_NAME, (("type=custom_tool_call", "name"),), _read_responses_custom_call),
    Dialect(
        _RESPONSES_NAME, (("type=function_call_output|custom_tool_call_output", "call_id"),), _read_responses_output
    ),
    Dialect(_RESPONSES_NAME, ((f"type={_HOSTED}",),), _leave_item_out),
)

# --- AutoGen ---

_ROLE_OF_TYPE: Final = {"UserMessage": "user", "SystemMessage": "system", "AssistantMessage": "assistant"}


def _read_autogen_message(message: Fields, transcript: Transcript) -> None:
    """Read a text, or the calls of a model; the following summary of results is not a text of the model."""
    content, kind = message.get("content"), str(message.get("type"))
    if kind in ("ToolCallSummaryMessage", "ThoughtEvent", "ModelClientStreamingChunkEvent", "MemoryQueryEvent"):
        transcript.leave_out(f"{kind!r} messages")
        return
    parts = _MessageParts.of(content)
    if parts.calls or kind != "AssistantMessage":
        transcript.end_answer()
    for called in parts.calls:
        transcript.call(called.get("name"), called.get("arguments"), called.get("id"))
    for result in parts.results:
        transcript.answer(result.get("content"), result.get("call_id"), failed=result.get("is_error"))
    text = joined_text(parts.texts)
    if text:
        transcript.say(_autogen_role(kind, message.get("source")), text)
    if isinstance(content, list):
        read = len(parts.calls) + len(parts.results) + len(parts.texts)
        transcript.leave_out("message parts that are no text", len(content) - read)


def _autogen_role(kind: str, source: Any) -> str:
    if kind in _ROLE_OF_TYPE:
        return _ROLE_OF_TYPE[kind]
    # Messages between agents have the agent's name as their source.
    if source == "user":
        return "user"
    return "assistant"


@dataclass(slots=True)
class _MessageParts:
    """Parts of a message's content by their kind."""

    calls: list[Fields]
    results: list[Fields]
    texts: list[Any]

    @classmethod
    def of(cls, content: Any) -> _MessageParts:
        if not isinstance(content, list):
            parts = cls([], [], [])
            if is_text(content):
                parts.texts.append(content)
            return parts
        objects = dicts(content)
        return cls(
            calls=[part for part in objects if "arguments" in part],
            results=[part for part in objects if "call_id" in part],
            texts=[part for part in content if is_text(part)],
        )


_AUTOGEN_EVENTS: Final = (
    "type=TextMessage|MultiModalMessage|StopMessage|HandoffMessage|ToolCallMessage|ToolCallResultMessage|"
    "ToolCallRequestEvent|ToolCallExecutionEvent|ToolCallSummaryMessage|ThoughtEvent|UserInputRequestedEvent|"
    "MemoryQueryEvent|ModelClientStreamingChunkEvent"
)
_AUTOGEN_CONTEXT: Final = "type=UserMessage|SystemMessage|AssistantMessage|FunctionExecutionResultMessage"
AUTOGEN_MESSAGES: Final = Dialect(
    "AutoGen messages", ((_AUTOGEN_EVENTS, "source"), (_AUTOGEN_CONTEXT, "content")), _read_autogen_message
)


# --- OpenTelemetry's GenAI conventions ---


def _read_genai_parts(message: Fields, transcript: Transcript) -> None:
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
    _read_genai_parts,
)

# --- Vercel's AI SDK: UI messages, and model messages ---

_CALL_PARTS: Final = "tool-invocation|dynamic-tool"


def _read_ui_message(message: Fields, transcript: Transcript) -> None:
    """Read parts: the calls of one step run in parallel, so their results come after all of them."""
    transcript.end_answer()
    results: list[tuple[str, Fields]] = []
    for part in dicts(message["parts"]):
        kind = str(part.get("type"))
        invocation = _invocation_in(part, kind)
        if kind == "step-start":
            _answer_invocations(results, transcript)
        elif invocation is not None:
            # From AI SDK 5 on the kind of a part names the tool: "tool-search".
            name = invocation.get("toolName") or kind.removeprefix("tool-")
            arguments = invocation.get("input", invocation.get("args"))
            call_id = transcript.call(name, arguments, invocation.get("toolCallId"))
            results.append((call_id, invocation))
        elif kind == "text":
            _answer_invocations(results, transcript)
            transcript.say(message.get("role"), str(part.get("text") or ""))
        elif kind not in ("source-url", "source-document", "source"):  # without text and calls of the model
            transcript.leave_out(f"{kind!r} parts")
    _answer_invocations(results, transcript)


def _invocation_in(part: Fields, kind: str) -> Fields | None:
    """Return the call in a part; None if the part is no call."""
    invocation: Any = None
    if kind == "tool-invocation":  # AI SDK 4
        invocation = part.get("toolInvocation")
    elif kind.startswith("tool-") or kind == "dynamic-tool":
        invocation = part
    if isinstance(invocation, dict):
        return invocation
    return None


def _answer_invocations(results: list[tuple[str, Fields]], transcript: Transcript) -> None:
    for call_id, invocation in results:
        state = invocation.get("state")
        if call_id and state == "output-error":
            transcript.answer(invocation.get("errorText"), call_id, failed=True)
        elif call_id and state in ("output-available", "result"):
            transcript.answer(invocation.get("output", invocation.get("result")), call_id)
        elif call_id:
            transcript.leave_out(f"calls in state {state!r} without a result")
    results.clear()


def _read_old_ui_message(message: Fields, transcript: Transcript) -> None:
    invocations = message["toolInvocations"]
    parts: list[Fields] = [{"type": "tool-invocation", "toolInvocation": invocation} for invocation in invocations]
    text = joined_text(message.get("content"))
    if text:
        parts.append({"type": "text", "text": text})
    _read_ui_message({**message, "parts": parts}, transcript)


def _read_model_message(message: Fields, transcript: Transcript) -> None:
    transcript.end_answer()
    for part in dicts(message["content"]):
        kind = part.get("type")
        if kind == "text":
            transcript.say(message.get("role"), str(part.get("text") or ""))
        elif kind == "tool-call":
            transcript.call(part.get("toolName"), part.get("input", part.get("args")), part.get("toolCallId"))
        elif kind == "tool-result":
            content, failed = _output_of_part(part)
            transcript.answer(content, part.get("toolCallId"), failed=failed)
        else:
            transcript.leave_out(f"{kind!r} parts")


def _output_of_part(part: Fields) -> tuple[Any, bool]:
    if "output" not in part:
        return part.get("result"), bool(part.get("isError"))
    output = part["output"]
    if isinstance(output, dict) and {"type", "value"} <= output.keys():
        return output["value"], str(output["type"]).startswith("error")
    return output, False


AI_SDK_MESSAGES: Final = (
    Dialect(
        "AI SDK UI messages",
        (("role", "parts[].toolCallId"), ("role", f"parts[].type={_CALL_PARTS}|step-start"), ("role", "parts[].type")),
        _read_ui_message,
    ),
    Dialect("AI SDK UI messages", (("role", "toolInvocations[].toolCallId"),), _read_old_ui_message),
    Dialect("AI SDK model messages", (("role", "content[].type=tool-call|tool-result"),), _read_model_message),
)

# --- Gemini: contents (Google Gen AI, Vertex AI) ---

_PART_FIELDS: Final = ("text", "functionCall", "functionResponse", "function_call", "function_response", "inlineData")


def _read_gemini_parts(message: Fields, transcript: Transcript) -> None:
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
            transcript.leave_out(f"{_kind_of_part(part)!r} parts")


def _kind_of_part(part: Fields) -> str:
    for key, value in part.items():
        if value is not None:
            return key
    return "empty"


def _has_failed(answer: Any) -> bool:
    # Gemini's documentation names the key `error` for the error of a function.
    return isinstance(answer, dict) and bool(answer.get("error"))


GEMINI_CONTENTS: Final = Dialect(
    "Gemini contents", tuple((f"parts[].{name}",) for name in _PART_FIELDS), _read_gemini_parts
)

DIALECTS: Final[tuple[Dialect, ...]] = (
    *CHAT_DIALECTS,
    WRAPPED,
    ANTHROPIC_MESSAGES,
    *RESPONSES_ITEMS,
    AUTOGEN_MESSAGES,
    GENAI_MESSAGES,
    *AI_SDK_MESSAGES,
    GEMINI_CONTENTS,
    CHAT,
)
"""Most specific first: chat messages, the last, are any values with a role."""
