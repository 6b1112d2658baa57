"""Whatever people hand over as messages, entry by entry, as LangChain messages: logs are sloppy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, convert_to_messages
from langchain_core.prompt_values import PromptValue

from langgraph_toolmem.base.errors import MessageError

HOW = (
    "Pass a list of LangChain messages, OpenAI-style dicts with 'role' and 'content', or (role, text) pairs, "
    'for example state["messages"].'
)


def entries_of(messages: Iterable[Any] | PromptValue) -> Iterable[Any]:
    """The entries of a list of messages. Raises MessageError if it is none."""
    if isinstance(messages, (list, tuple)):
        return messages
    if isinstance(messages, PromptValue):
        return messages.to_messages()
    if isinstance(messages, (str, bytes, Mapping, BaseMessage)) or not isinstance(messages, Iterable):
        raise MessageError(f"messages is {describe(messages)}, not a list of messages. {HOW}")
    return list(messages)


def describe(value: Any) -> str:
    """What a value is, for an error message."""
    if isinstance(value, Mapping):
        return f"dict with keys {', '.join(map(repr, list(value)[:8])) or 'none'}"
    return type(value).__name__


def message_of(entry: Any) -> BaseMessage:
    """One entry that is no message object yet: mended where logs are sloppy, then converted."""
    if not isinstance(entry, dict):
        return convert_to_messages([entry])[0]
    fields = dict(entry)
    if isinstance(fields.get("data"), dict) and "content" not in fields:  # messages_to_dict
        fields = {**fields["data"], "type": fields.get("type")}
    role = fields.get("role", fields.get("type"))
    if isinstance(role, str) and role != "constructor":
        content = fields.get("content")
        if content is None:
            fields["content"] = ""
        elif role == "tool" and not _is_content(content):
            fields["content"] = json.dumps(content, default=str)
    for name in ("additional_kwargs", "response_metadata", "tool_calls", "invalid_tool_calls"):
        if fields.get(name, 0) is None:
            del fields[name]
    refused: list[InvalidToolCall] = []
    if role in ("assistant", "ai"):
        refused = list(fields.pop("invalid_tool_calls", ()))
        calls, broken = _calls(fields.pop("tool_calls", ()))
        refused += broken
        if calls:
            fields["tool_calls"] = calls
    message = convert_to_messages([fields])[0]
    if refused and isinstance(message, AIMessage):
        message.invalid_tool_calls = refused
    return message


def _is_content(content: Any) -> bool:
    if isinstance(content, list):
        return all(isinstance(part, (str, dict)) for part in content)
    return isinstance(content, str)


def _calls(raw: Any) -> tuple[list[dict[str, Any]], list[InvalidToolCall]]:
    """Tool calls of an assistant dict in OpenAI's or LangChain's form; those with unreadable arguments."""
    calls: list[dict[str, Any]] = []
    broken: list[InvalidToolCall] = []
    for call in raw:
        function = call.get("function") or call
        name, call_id = function.get("name"), call.get("id")
        args = function.get("arguments", function.get("args"))
        if isinstance(args, str):
            try:
                args = json.loads(args, strict=False) if args.strip() else {}
            except (ValueError, RecursionError):
                args = function.get("arguments")
        if args is None:
            args = {}
        if isinstance(args, dict) and isinstance(name, str):
            calls.append({"name": name, "args": args, "id": call_id, "type": "tool_call"})
        else:
            broken.append(
                InvalidToolCall(type="invalid_tool_call", name=name, args=str(args), id=call_id, error="no JSON object")
            )
    return calls, broken
