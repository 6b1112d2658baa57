"""Messages of Vercel's AI SDK: UI messages with parts, and model messages with `tool-call` and `tool-result`."""

from __future__ import annotations

from typing import Any, Final

from langgraph_toolmem.runs.logs.shapes import Dialect, dicts
from langgraph_toolmem.runs.logs.transcript import Fields, Transcript, joined_text

_CALL_PARTS: Final = "tool-invocation|dynamic-tool"


def _read_ui_message(message: Fields, transcript: Transcript) -> None:
    """Read parts: the calls of one step run in parallel, so their results come after all of them."""
    transcript.end_answer()
    results: list[tuple[str, Fields]] = []
    for part in dicts(message["parts"]):
        kind = str(part.get("type"))
        invocation: Any = part
        if kind == "tool-invocation":  # AI SDK 4
            invocation = part.get("toolInvocation")
        if kind == "step-start":
            _answer_all(results, transcript)
        elif isinstance(invocation, dict) and (kind.startswith("tool-") or kind == "dynamic-tool"):
            # From AI SDK 5 on the kind of a part names the tool: "tool-search".
            name = invocation.get("toolName") or kind.removeprefix("tool-")
            arguments = invocation.get("input", invocation.get("args"))
            call_id = transcript.call(name, arguments, invocation.get("toolCallId"))
            results.append((call_id, invocation))
        elif kind == "text":
            _answer_all(results, transcript)
            transcript.say(message.get("role"), str(part.get("text") or ""))
        elif kind not in ("source-url", "source-document", "source"):  # without text and calls of the model
            transcript.leave_out(f"{kind!r} parts")
    _answer_all(results, transcript)


def _answer_all(results: list[tuple[str, Fields]], transcript: Transcript) -> None:
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
            content, failed = _output_of(part)
            transcript.answer(content, part.get("toolCallId"), failed=failed)
        else:
            transcript.leave_out(f"{kind!r} parts")


def _output_of(part: Fields) -> tuple[Any, bool]:
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
