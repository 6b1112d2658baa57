"""A scripted office assistant in place of a language model.

It is no model and understands nothing but the wordings of this demo. What it shares with a competent model is
how it may act: it sees only the messages of the request (the user's text, calls and their results), decides
the next call or the last words, goes on from whatever results are there, whoever made the calls, and takes
another tool when one fails.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage

from .kinds import KINDS
from .plan import Call, GaveUp, Kind, Pending, Replay, Result, Slots

__all__ = ["LABEL", "OPTION_PERCENT", "reply", "understand"]

LABEL = "scripted assistant, not a language model"

THOUGHT_PERCENT = 3  # of the turns with a call open with a spoken thought
OPTION_PERCENT = 12  # of the requests make it fill an optional argument where a tool has one
_OPTIONS: dict[str, dict[str, Any]] = {
    "list_emails": {"limit": 20},
    "search_customers": {"limit": 20},
    "list_tasks": {"limit": 30},
    "create_event": {"location": "Room Oak"},
    "plot_metric": {"style": "bar"},
}


def reply(request: Mapping[str, Any], *, variation: float = OPTION_PERCENT) -> AIMessage:
    """The next assistant message for an OpenAI chat request; for `OpenAIStubServer(reply=reply)`.

    Args:
        request: the body of the HTTP request.
        variation: percent of the requests that make it fill an optional argument where a tool has one. Which
            requests these are depends on their wording, not on chance.
    """
    messages = request["messages"]
    last_user = max((n for n, m in enumerate(messages) if m["role"] == "user"), default=None)
    if last_user is None:
        return AIMessage("What can I do for you?")
    text = _text(messages[last_user])
    found = understand(text)
    if found is None:
        return AIMessage(f"I am a {LABEL}, and this is none of the wordings I know.")
    kind, slots = found
    results = _results(messages[last_user + 1 :])
    offered = frozenset(tool["function"]["name"] for tool in request.get("tools") or ())
    try:
        return AIMessage(kind.plan(Replay(results, offered), slots))
    except Pending as pending:
        calls = [_tool_call(call, text, variation) for call in pending.calls]
        return AIMessage(_thought(text, pending.calls, len(results)), tool_calls=calls)
    except GaveUp as failed:
        return AIMessage(f"I am sorry, {failed} does not work at the moment.")
    except (LookupError, TypeError, StopIteration):
        return AIMessage("I am sorry, I did not find what this is about.")


def understand(text: str) -> tuple[Kind, Slots] | None:
    """Kind and slots of a request, or None."""
    for kind in KINDS:
        slots = kind.understand(text)
        if slots is not None:
            return kind, slots
    return None


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content if part.get("type") == "text")


def _results(messages: Sequence[Mapping[str, Any]]) -> list[Result]:
    """Calls with their outputs; a call that was never answered counts as failed."""
    made: dict[str, tuple[str, dict[str, Any]]] = {}
    results: list[Result] = []
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            try:
                args = json.loads(function["arguments"] or "{}")
            except ValueError:
                continue
            made[call["id"]] = (function["name"], args)
        if message["role"] == "tool" and message["tool_call_id"] in made:
            tool, args = made.pop(message["tool_call_id"])
            text = _text(message)
            results.append(Result(tool, args, not text.startswith("Error"), _parse(text)))
    return results + [Result(tool, args, False, None) for tool, args in made.values()]


def _parse(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict | list) else text


def _tool_call(call: Call, text: str, variation: float) -> dict[str, Any]:
    args = dict(call.args)
    if _percent(text, "options", call.tool) < variation:
        args = {**args, **_OPTIONS.get(call.tool, {})}
    return {"name": call.tool, "args": args, "id": None, "type": "tool_call"}


def _thought(text: str, calls: Sequence[Call], step: int) -> str:
    if _percent(text, "thought", step) >= THOUGHT_PERCENT:
        return ""
    names = " and ".join(call.tool.replace("_", " ") for call in calls)
    return f"I will {names} {'first' if step == 0 else 'next'}."


def _percent(*parts: object) -> int:
    """0 to 99, depending on the parts only."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=4).digest(), "big") % 100
