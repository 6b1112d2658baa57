"""Points of a run: the one after its messages, and the user turn it is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langgraph_toolmem.base.text import digest

_USER: Final = ("human", "user", "HumanMessageChunk")


def point_of(messages: Sequence[Any]) -> str:
    """The point of a run after these messages."""
    last = messages[-1] if messages else None
    identity, content = (_field(last, name) for name in ("id", "content"))
    return digest("place", len(messages), identity or repr(content))


def turn_of(messages: Sequence[Any]) -> str:
    """The user turn that these messages are in: identity of the latest user message; "" if there is none.

    It stays the same while the agent works, and when older messages are trimmed away, as long as messages have ids.
    A message that is edited is another turn.
    """
    for index in range(len(messages) - 1, -1, -1):
        if _is_users(messages[index]):
            identity, content = (_field(messages[index], name) for name in ("id", "content"))
            place = identity or sum(_is_users(message) for message in messages[:index])
            return digest("user-turn", place, repr(messages[index] if content is None else content))
    return ""


def _is_users(message: Any) -> bool:
    if isinstance(message, str):
        return True
    if isinstance(message, (tuple, list)):
        return bool(message) and message[0] in _USER
    if (_field(message, "role") or _field(message, "type")) not in _USER:
        return False
    marks = _field(message, "additional_kwargs")
    # SummarizationMiddleware puts its summary in as a message of the user.
    return not (isinstance(marks, Mapping) and marks.get("lc_source") == "summarization")


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)
