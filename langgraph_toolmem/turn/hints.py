"""The memory's values in a graph's state, under private keys: hints for the model, tools taken out, plans.

A node writes its hint under its role; `memory_prompt` reads what is meant for the call that comes now. A hint is
for one model call, or for every call until the user speaks again. One that was made for an earlier point or turn of
the run is left out, so nothing has to be cleared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from langchain_core.messages import SystemMessage
from langgraph.graph import MessagesState
from typing_extensions import NotRequired, TypedDict

from langgraph_toolmem.turn import env_mode
from langgraph_toolmem.turn.host import read_key
from langgraph_toolmem.turn.points import point_of, turn_of
from langgraph_toolmem.turn.shown import Block, Line, composed

HINTS: Final = "toolmem_hints"
LEFT_OUT: Final = "toolmem_left_out"
PLANNING: Final = "toolmem_planning"

Scope = Literal["call", "point", "turn"]
"""How long what a step says holds: for one model call; for a model call, retries included; until the user speaks."""


class Hint(TypedDict):
    """One hint: its text, the point of the run or the user turn it is for, and its scope ("call" if none); `block`:
    the same in parts (`turn.shown.Block`)."""

    text: str
    at: str
    scope: NotRequired[Scope]
    block: dict[str, Any]


def merge_hints(old: dict[str, Hint] | None, new: dict[str, Hint] | None) -> dict[str, Hint]:
    """Hints by role; a role's new hint takes the place of its old one."""
    return {**(old or {}), **(new or {})}


class HintState(TypedDict):
    """The private key of hints, to be added to a state of one's own."""

    toolmem_hints: NotRequired[Annotated[dict[str, Hint], merge_hints]]


class LeftOut(TypedDict):
    """Tools that are left out, each with the reason in one line, and the user turn this is for."""

    at: str
    tools: dict[str, str]


def merge_left_out(old: LeftOut | None, new: LeftOut | None) -> LeftOut | None:
    """The latest."""
    return new or old


class LeftOutState(TypedDict):
    """The private key of `PreferenceGuide`, to be added to a state of one's own."""

    toolmem_left_out: NotRequired[Annotated[LeftOut, merge_left_out]]


class Planning(TypedDict, total=False):
    """A planner's record of a thread: values in plain JSON, bounded.

    `slots`: what is known, types to values. `read`: the event of the run that was read last. `goals`: what was open
    last, without values. `turn`, `open`: the user turn, and what was open and failed in it. `said`: the sub-goal that a
    planner's model named; `missed`: how often it gave no usable answer in this turn, one time after the other.
    """

    slots: dict[str, list[Any]]
    read: str
    goals: list[str]
    turn: str
    open: str
    said: str
    missed: int


def merge_planning(old: Planning | None, new: Planning | None) -> Planning:
    """The new parts, and the old ones of which nothing new is said."""
    return {**(old or {}), **(new or {})}


class PlanningState(TypedDict):
    """The private key of `SGAPlanner`, to be added to a state of one's own."""

    toolmem_planning: NotRequired[Annotated[Planning, merge_planning]]


class MemoryState(MessagesState, HintState, LeftOutState, PlanningState):
    """`MessagesState` with room for what the memory has to say: ``StateGraph(MemoryState)``."""


def new_hint(
    role: str, text: str | Block, messages: Sequence[Any], scope: Scope = "call"
) -> dict[str, dict[str, Hint]]:
    """The update of the state for one hint.

    Args:
        role: whose hint it is.
        text: what the model shall read; "" if there is nothing to say.
        messages: the history so far.
        scope: how long it holds.
    """
    block = text if isinstance(text, Block) else Block(role, (Line(text),) if text else ())
    said = "\n".join([block.head, *(line.text for line in block.lines)]).strip("\n")
    hint = Hint(text=said, at=turn_of(messages) if scope == "turn" else point_of(messages), block=block.to_plain())
    if scope == "turn":
        hint["scope"] = scope
    return {HINTS: {role: hint}}


def has_hint(state: Any, role: str, *, messages_key: str = "messages") -> bool:
    """Return True if a role has said what it has to say, be it nothing, for the call or the turn that comes now.

    Args:
        state: the state, with the key `toolmem_hints`.
        role: whose hint.
        messages_key: key of the messages.
    """
    hint = (_kept(state, HINTS) or {}).get(role)
    return hint is not None and _holds(hint, read_key(state, messages_key) or ())


def new_left_out(tools: Mapping[str, str], messages: Sequence[Any]) -> dict[str, LeftOut]:
    """The update of the state for the tools that are left out until the next user message."""
    return {LEFT_OUT: LeftOut(at=turn_of(messages), tools=dict(tools))}


def left_out_now(state: Any, *, messages_key: str = "messages") -> Mapping[str, str] | None:
    """The tools that are left out in this user turn, each with the reason; None if nobody looked yet."""
    found = _kept(state, LEFT_OUT)
    if not found or found["at"] != turn_of(read_key(state, messages_key) or ()):
        return None
    tools: Mapping[str, str] = found["tools"]
    return tools


def planning_now(state: Any) -> Planning | None:
    """Return what a planner keeps of this thread; None if the state has no room for it."""
    found: Planning | None = _kept(state, PLANNING)
    return found if isinstance(found, dict) else None


def memory_prompt(state: Any, *, messages_key: str = "messages") -> list[SystemMessage]:
    """Return what the memory has to say to the model now: one system message, or none.

    ::

        model.invoke([*memory_prompt(state), *state["messages"]])

    A provider's prompt cache is kept by `messages_with_hints`, which puts it where the model takes it best.

    Args:
        state: the state, with the key `toolmem_hints` (see `MemoryState`). Without it there is nothing to say.
        messages_key: key of the messages.
    """
    text = hints_now(state, messages_key=messages_key)
    return [SystemMessage(text)] if text else []


def hints_now(state: Any, *, messages_key: str = "messages") -> str:
    """The text of what the memory has to say to the model now; "" if nothing, or if it is switched off."""
    if not env_mode.shows():
        return ""
    hints, messages = _kept(state, HINTS) or {}, read_key(state, messages_key) or ()
    blocks = [
        Block.from_plain(hint["block"]) for _, hint in sorted(hints.items()) if hint["text"] and _holds(hint, messages)
    ]
    return composed(blocks, messages)


def with_hint(message: SystemMessage | None, text: str) -> SystemMessage:
    """A system message with a hint after what it says already."""
    if message is None or not message.content:
        return SystemMessage(text)
    if isinstance(message.content, str):
        return message.model_copy(update={"content": f"{message.content}\n\n{text}"})
    return message.model_copy(update={"content": [*message.content, {"type": "text", "text": text}]})


def _kept(state: Any, key: str) -> Any:
    return None if isinstance(state, (list, tuple)) else read_key(state, key)


def _holds(hint: Hint, messages: Sequence[Any]) -> bool:
    if hint.get("scope") != "turn":
        return hint["at"] == point_of(messages)
    # Without any user message the one it is for was trimmed or summarised, and nobody has spoken since.
    return bool(messages) and turn_of(messages) in (hint["at"], "")
