"""AutoGen's messages and the saved state of its agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.runs.logs.shapes import Dialect, LogFormat, Value, dicts, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, Transcript, is_text, joined_text

_ROLES: Final = {"UserMessage": "user", "SystemMessage": "system", "AssistantMessage": "assistant"}


def _read_message(message: Fields, transcript: Transcript) -> None:
    """Read a text, or the calls of a model; the summary of results that follows them is no text of the model."""
    content, kind = message.get("content"), str(message.get("type"))
    if kind in ("ToolCallSummaryMessage", "ThoughtEvent", "ModelClientStreamingChunkEvent", "MemoryQueryEvent"):
        transcript.leave_out(f"{kind!r} messages")
        return
    calls = [part for part in dicts(content) if "arguments" in part]
    results = [part for part in dicts(content) if "call_id" in part]
    texts = [part for part in (content if isinstance(content, list) else [content]) if is_text(part)]
    if calls or kind != "AssistantMessage":
        transcript.end_answer()
    for called in calls:
        transcript.call(called.get("name"), called.get("arguments"), called.get("id"))
    for result in results:
        transcript.answer(result.get("content"), result.get("call_id"), failed=result.get("is_error"))
    if text := joined_text(texts):
        source = "user" if message.get("source") == "user" else "assistant"
        transcript.say(_ROLES.get(kind, source), text)
    if isinstance(content, list):
        transcript.leave_out("message parts that are no text", len(content) - len(calls) - len(results) - len(texts))


def _read_states(records: list[Value]) -> Iterator[tuple[int, Fields]]:
    for line, record in objects_of(records):
        agents = record.get("agent_states")
        states = agents if isinstance(agents, dict) else {"": record}
        for name, state in states.items():
            inner = state.get("agent_state", state) if isinstance(state, dict) else {}
            messages: Any = inner.get("llm_context", inner)
            messages = messages.get("messages", messages.get("llm_messages")) if isinstance(messages, dict) else None
            if isinstance(messages, list) and messages:
                yield line, {"thread_id": f"{line}/{name}" if name else None, "messages": messages}


_EVENTS: Final = (
    "type=TextMessage|MultiModalMessage|StopMessage|HandoffMessage|ToolCallMessage|ToolCallResultMessage|"
    "ToolCallRequestEvent|ToolCallExecutionEvent|ToolCallSummaryMessage|ThoughtEvent|UserInputRequestedEvent|"
    "MemoryQueryEvent|ModelClientStreamingChunkEvent"
)
_CONTEXT: Final = "type=UserMessage|SystemMessage|AssistantMessage|FunctionExecutionResultMessage"
DIALECT: Final = Dialect("AutoGen messages", ((_EVENTS, "source"), (_CONTEXT, "content")), _read_message)
STATES: Final = LogFormat(
    "AutoGen states", (("llm_context.messages[]",), ("agent_states",), ("type=AssistantAgentState",)), _read_states
)
