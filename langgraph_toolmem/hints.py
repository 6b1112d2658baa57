"""What the memory tells the model: short texts in a private key of the state, valid for one model call.

A node writes its hint under its role; `memory_prompt` reads what is meant for the call that comes now. A hint that
was made for an earlier point of the run is left out, so nothing has to be cleared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from langchain_core.messages import SystemMessage
from langgraph.graph import MessagesState
from typing_extensions import NotRequired, TypedDict

from langgraph_toolmem.host import read_key
from langgraph_toolmem.keys import digest

HINTS: Final = "toolmem_hints"
"""Key of the state."""


class Hint(TypedDict):
    """One hint: its text, and the point of the run it is for."""

    text: str
    at: str


def merge_hints(old: dict[str, Hint] | None, new: dict[str, Hint] | None) -> dict[str, Hint]:
    """Hints by role; a role's new hint takes the place of its old one."""
    return {**(old or {}), **(new or {})}


class HintState(TypedDict):
    """The private key, to be added to a state of one's own."""

    toolmem_hints: NotRequired[Annotated[dict[str, Hint], merge_hints]]


class MemoryState(MessagesState, HintState):
    """`MessagesState` with room for hints: ``StateGraph(MemoryState)``."""


def place_of(messages: Sequence[Any]) -> str:
    """The point of a run after these messages."""
    last = messages[-1] if messages else None
    identity, content = (_field(last, name) for name in ("id", "content"))
    return digest("place", len(messages), identity or repr(content))


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


def new_hint(role: str, text: str, messages: Sequence[Any]) -> dict[str, dict[str, Hint]]:
    """The update of the state for one hint."""
    return {HINTS: {role: Hint(text=text, at=place_of(messages))}}


def memory_prompt(state: Any, *, messages_key: str = "messages") -> list[SystemMessage]:
    """What the memory has to say to the model now: one system message, or none.

    ::

        model.invoke([*memory_prompt(state), *state["messages"]])

    Args:
        state: the state, with the key `toolmem_hints` (see `MemoryState`). Without it there is nothing to say.
        messages_key: key of the messages.
    """
    hints = read_key(state, HINTS) if not isinstance(state, (list, tuple)) else None
    if not hints:
        return []
    here = place_of(read_key(state, messages_key) or ())
    texts = [hint["text"] for _, hint in sorted(hints.items()) if hint["at"] == here and hint["text"]]
    return [SystemMessage("\n\n".join(texts))] if texts else []
