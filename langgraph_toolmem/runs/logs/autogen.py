"""AutoGen's messages and the saved state of its agents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem.runs.logs.shapes import Dialect, LogFormat, NumberedRecord, dicts, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, Transcript, is_text, joined_text

_ROLE_OF_TYPE: Final = {"UserMessage": "user", "SystemMessage": "system", "AssistantMessage": "assistant"}


def _read_message(message: Fields, transcript: Transcript) -> None:
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
        # Messages between agents have the agent's name as their source.
        role = _ROLE_OF_TYPE.get(kind, "assistant")
        if kind not in _ROLE_OF_TYPE and message.get("source") == "user":
            role = "user"
        transcript.say(role, text)
    if isinstance(content, list):
        read = len(parts.calls) + len(parts.results) + len(parts.texts)
        transcript.leave_out("message parts that are no text", len(content) - read)


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


def _read_states(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    for line, record in objects_of(records):
        agents = record.get("agent_states")
        if not isinstance(agents, dict):
            messages = _messages_of(record)
            if messages:
                yield line, {"thread_id": None, "messages": messages}
            continue
        for name, state in agents.items():
            messages = _messages_of(state)
            if messages:
                yield line, {"thread_id": f"{line}/{name}", "messages": messages}


def _messages_of(state: Any) -> list[Any]:
    """Return the messages of an agent's state; of a team's, each agent's state is wrapped."""
    if not isinstance(state, dict):
        return []
    inner = state.get("agent_state", state)
    context = inner.get("llm_context", inner)
    if not isinstance(context, dict):
        return []
    messages = context.get("messages", context.get("llm_messages"))
    if isinstance(messages, list):
        return messages
    return []


_EVENTS: Final = (
    "type=TextMessage|MultiModalMessage|StopMessage|HandoffMessage|ToolCallMessage|ToolCallResultMessage|"
    "ToolCallRequestEvent|ToolCallExecutionEvent|ToolCallSummaryMessage|ThoughtEvent|UserInputRequestedEvent|"
    "MemoryQueryEvent|ModelClientStreamingChunkEvent"
)
_CONTEXT: Final = "type=UserMessage|SystemMessage|AssistantMessage|FunctionExecutionResultMessage"
AUTOGEN_MESSAGES: Final = Dialect("AutoGen messages", ((_EVENTS, "source"), (_CONTEXT, "content")), _read_message)
STATES: Final = LogFormat(
    "AutoGen states", (("llm_context.messages[]",), ("agent_states",), ("type=AssistantAgentState",)), _read_states
)
