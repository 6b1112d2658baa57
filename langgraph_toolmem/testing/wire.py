"""The OpenAI chat protocol in dicts: answers, streams, embeddings and token counts. No sockets."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage

Answer = AIMessage | Mapping[str, Any] | str
"""An answer as the script gives it: a message, an OpenAI message dict, or plain text."""

CHARACTERS_PER_TOKEN = 4
MESSAGE_OVERHEAD = 4  # tokens that chat templates spend on role markers, per message


def count_tokens(value: Any) -> int:
    """Tokens of a text or JSON value: about four characters each, rounded up; 0 for nothing.

    This is an estimate with one virtue: it is the same on every machine.
    """
    if value in (None, "", [], {}):
        return 0
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def prompt_tokens(request: Mapping[str, Any]) -> int:
    """Tokens of a chat request: all its messages and all its tool descriptions."""
    messages = request.get("messages") or []
    return (
        sum(MESSAGE_OVERHEAD + count_tokens(message) for message in messages)
        + count_tokens(request.get("tools"))
        + count_tokens(request.get("functions"))
    )


def answer_message(answer: Answer, new_call_id: Callable[[], str]) -> dict[str, Any]:
    """An OpenAI assistant message; tool calls without an id get one.

    Raises:
        TypeError: `answer` is none of the accepted kinds.
    """
    if isinstance(answer, str):
        return {"role": "assistant", "content": answer, "refusal": None}
    if isinstance(answer, AIMessage):
        content: str | None = answer.text
        calls = [(call["id"], call["name"], json.dumps(call["args"], ensure_ascii=False)) for call in answer.tool_calls]
        calls += [(call["id"], call["name"] or "", call["args"] or "") for call in answer.invalid_tool_calls]
    elif isinstance(answer, Mapping):
        content = answer.get("content")
        calls = [_call_of_dict(call) for call in answer.get("tool_calls") or ()]
    else:
        raise TypeError(f"a reply is an AIMessage, a message dict or a text, not {type(answer).__name__}")
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if calls:
        message["content"] = content or None
        message["tool_calls"] = [
            {
                "id": call_id or new_call_id(),
                "type": "function",
                "function": {"name": name, "arguments": args},
            }
            for call_id, name, args in calls
        ]
    return message


def _call_of_dict(call: Mapping[str, Any]) -> tuple[str | None, str, str]:
    function = call.get("function", call)
    args = function.get("arguments", function.get("args", {}))
    return (
        call.get("id"),
        function["name"],
        args if isinstance(args, str) else json.dumps(args, ensure_ascii=False),
    )


def completion(
    request: Mapping[str, Any], message: Mapping[str, Any], *, completion_id: str, created: int
) -> dict[str, Any]:
    """The body of a plain ``/v1/chat/completions`` answer."""
    return {
        "id": completion_id,
        "object": "chat.completion",
        "created": created,
        "model": request.get("model", "scripted"),
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(message)}],
        "usage": usage(request, message),
    }


def usage(request: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, int]:
    """Token counts of a request and its answer."""
    prompt = prompt_tokens(request)
    answer = max(1, count_tokens(message.get("content")) + count_tokens(message.get("tool_calls")))
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def stream(body: Mapping[str, Any], *, include_usage: bool) -> Iterator[dict[str, Any]]:
    """The same answer as the events of a stream: text by words, arguments in pieces, then the end.

    With several tool calls their pieces come call by call, told apart by ``index``, as OpenAI sends them.
    """
    head = {"id": body["id"], "object": "chat.completion.chunk", "created": body["created"]}
    head["model"] = body["model"]
    message = body["choices"][0]["message"]

    def event(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        chunk = {
            **head,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        }
        if include_usage:
            chunk["usage"] = None
        return chunk

    yield event({"role": "assistant", "content": "" if message["content"] else None})
    for word in re.findall(r"\S+\s*|\s+", message["content"] or ""):
        yield event({"content": word})
    for index, call in enumerate(message.get("tool_calls", ())):
        opening = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield event({"tool_calls": [opening]})
        for piece in re.findall(r"(?s).{1,12}", call["function"]["arguments"]):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield event({}, finish=_finish_reason(message))
    if include_usage:
        yield {**head, "choices": [], "usage": body["usage"]}


def _finish_reason(message: Mapping[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def embedding_texts(given: Any) -> list[str]:
    """The texts of an embeddings request: a text, texts, or (lists of) token numbers as words.

    Raises:
        ValueError: `given` is neither.
    """
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise ValueError("'input' must be a text or a non-empty list")
    if all(isinstance(item, int) for item in given):
        given = [given]
    if not all(isinstance(item, str | list) for item in given):
        raise ValueError("'input' must hold texts or token lists")
    return [item if isinstance(item, str) else " ".join(map(str, item)) for item in given]


def embeddings(request: Mapping[str, Any], texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> Any:
    """The body of an ``/v1/embeddings`` answer, as numbers or base64 of little-endian float32."""
    packed = request.get("encoding_format") == "base64"
    tokens = sum(count_tokens(text) for text in texts)
    return {
        "object": "list",
        "model": request.get("model", "scripted"),
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
                if packed
                else list(vector),
            }
            for index, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
