"""What the memory tells the model: short texts in a private key of the state.

A node writes its hint under its role; `memory_prompt` reads what is meant for the call that comes now. A hint is
for one model call, or for every call until the user speaks again. One that was made for an earlier point or turn of
the run is left out, so nothing has to be cleared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from langchain_core.messages import SystemMessage
from langgraph.graph import MessagesState
from typing_extensions import NotRequired, TypedDict

from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.turn.host import read_key

HINTS: Final = "toolmem_hints"
"""Key of the state."""

Scope = Literal["call", "turn"]
"""How long a hint holds: for the next model call, or until the next user message."""

_USER: Final = ("human", "user", "HumanMessageChunk")


class Hint(TypedDict):
    """One hint: its text, the point of the run or the user message it is for, and its scope ("call" if none)."""

    text: str
    at: str
    scope: NotRequired[Scope]


def merge_hints(old: dict[str, Hint] | None, new: dict[str, Hint] | None) -> dict[str, Hint]:
    """Hints by role; a role's new hint takes the place of its old one."""
    return {**(old or {}), **(new or {})}


class HintState(TypedDict):
    """The private key, to be added to a state of one's own."""

    toolmem_hints: NotRequired[Annotated[dict[str, Hint], merge_hints]]


AVOIDED: Final = "toolmem_avoided"
"""Key of the state."""


class Avoided(TypedDict):
    """Tools that are left out, each with the reason in one line, and the user turn this is for."""

    at: str
    tools: dict[str, str]


def merge_avoided(old: Avoided | None, new: Avoided | None) -> Avoided | None:
    """The latest."""
    return new or old


class AvoidedState(TypedDict):
    """The private key of `PreferenceGuide`, to be added to a state of one's own."""

    toolmem_avoided: NotRequired[Annotated[Avoided, merge_avoided]]


OFFERED: Final = "toolmem_offered"
"""Key of the state."""


class Offered(TypedDict):
    """Tools that the model is offered, each with the reason in one line, and the user turn this is for.

    `failed`: tools whose failure was answered with other ways already.
    """

    at: str
    tools: dict[str, str]
    failed: NotRequired[list[str]]


def merge_offered(old: Offered | None, new: Offered | None) -> Offered | None:
    """Of one user turn both together, else the new one."""
    if not old or not new or (new["at"] and new["at"] != old["at"]):  # a channel begins with {}
        return new or old
    failed = dict.fromkeys((*old.get("failed", ()), *new.get("failed", ())))
    return Offered(at=old["at"], tools={**new["tools"], **old["tools"]}, failed=list(failed))


class OfferedState(TypedDict):
    """The private key of `ToolRetriever`, to be added to a state of one's own."""

    toolmem_offered: NotRequired[Annotated[Offered, merge_offered]]


PLANNING: Final = "toolmem_planning"
"""Key of the state."""


class Planning(TypedDict, total=False):
    """What a planner keeps of a thread: values in plain JSON, bounded.

    `slots`: what is known, types to values. `read`: the event of the run that was read last. `goals`: what was open
    last, without values. `turn`, `open`: the user turn, and what was open and failed in it. `said`: the sub-goal that a
    planner's model named; `missed`: how often it gave no usable answer in this turn, one time after the other.
    `guarded`: the point of the run at which an answer of the model was taken back.
    """

    slots: dict[str, list[Any]]
    read: str
    goals: list[str]
    turn: str
    open: str
    said: str
    missed: int
    guarded: str


def merge_planning(old: Planning | None, new: Planning | None) -> Planning:
    """The new parts, and the old ones of which nothing new is said."""
    return {**(old or {}), **(new or {})}


class PlanningState(TypedDict):
    """The private key of `SGAPlanner`, to be added to a state of one's own."""

    toolmem_planning: NotRequired[Annotated[Planning, merge_planning]]


class MemoryState(MessagesState, HintState, AvoidedState, OfferedState, PlanningState):
    """`MessagesState` with room for what the memory has to say: ``StateGraph(MemoryState)``."""


def place_of(messages: Sequence[Any]) -> str:
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


def new_hint(role: str, text: str, messages: Sequence[Any], scope: Scope = "call") -> dict[str, dict[str, Hint]]:
    """The update of the state for one hint.

    Args:
        role: whose hint it is.
        text: what the model shall read; "" if there is nothing to say.
        messages: the history so far.
        scope: "call": for the model call that comes now; "turn": for each until the next user message.
    """
    if scope == "turn":
        return {HINTS: {role: Hint(text=text, at=turn_of(messages), scope=scope)}}
    return {HINTS: {role: Hint(text=text, at=place_of(messages))}}


def has_hint(state: Any, role: str, *, messages_key: str = "messages") -> bool:
    """Whether a role has said what it has to say, be it nothing, for the call or the turn that comes now.

    Args:
        state: the state, with the key `toolmem_hints`.
        role: whose hint.
        messages_key: key of the messages.
    """
    hint = _hints(state).get(role)
    return hint is not None and _holds(hint, read_key(state, messages_key) or ())


def new_avoided(tools: Mapping[str, str], messages: Sequence[Any]) -> dict[str, Avoided]:
    """The update of the state for the tools that are left out until the next user message."""
    return {AVOIDED: Avoided(at=turn_of(messages), tools=dict(tools))}


def avoided_now(state: Any, *, messages_key: str = "messages") -> Mapping[str, str] | None:
    """The tools that are left out in this user turn, each with the reason; None if nobody looked yet.

    Args:
        state: the state, with the key `toolmem_avoided`.
        messages_key: key of the messages.
    """
    found = None if isinstance(state, (list, tuple)) else read_key(state, AVOIDED)
    if not found or found["at"] != turn_of(read_key(state, messages_key) or ()):
        return None
    tools: Mapping[str, str] = found["tools"]
    return tools


def new_offered(tools: Mapping[str, str], messages: Sequence[Any], failed: Iterable[str] = ()) -> dict[str, Offered]:
    """The update of the state for tools that are offered, beside others, until the next user message."""
    return {OFFERED: Offered(at=turn_of(messages), tools=dict(tools), failed=list(failed))}


def offered_now(state: Any, *, messages_key: str = "messages") -> Offered | None:
    """What is offered in this user turn; None if nobody looked yet.

    Args:
        state: the state, with the key `toolmem_offered`.
        messages_key: key of the messages.
    """
    found: Offered | None = None if isinstance(state, (list, tuple)) else read_key(state, OFFERED)
    # Without any user message the one it is for was trimmed or summarised, and nobody has spoken since.
    if not found or turn_of(read_key(state, messages_key) or ()) not in (found["at"], ""):
        return None
    return found


def planning_now(state: Any) -> Planning | None:
    """What a planner keeps of this thread; None if the state has no room for it.

    Args:
        state: the state, with the key `toolmem_planning`.
    """
    found: Planning | None = None if isinstance(state, (list, tuple)) else read_key(state, PLANNING)
    return found if isinstance(found, dict) else None


def memory_prompt(state: Any, *, messages_key: str = "messages") -> list[SystemMessage]:
    """What the memory has to say to the model now: one system message, or none.

    ::

        model.invoke([*memory_prompt(state), *state["messages"]])

    Args:
        state: the state, with the key `toolmem_hints` (see `MemoryState`). Without it there is nothing to say.
        messages_key: key of the messages.
    """
    hints = _hints(state)
    if not hints:
        return []
    messages = read_key(state, messages_key) or ()
    texts = [hint["text"] for _, hint in sorted(hints.items()) if hint["text"] and _holds(hint, messages)]
    return [SystemMessage("\n\n".join(texts))] if texts else []


def _hints(state: Any) -> Mapping[str, Hint]:
    hints = None if isinstance(state, (list, tuple)) else read_key(state, HINTS)
    return hints or {}


def _holds(hint: Hint, messages: Sequence[Any]) -> bool:
    if hint.get("scope") != "turn":
        return hint["at"] == place_of(messages)
    # Without any user message the one it is for was trimmed or summarised, and nobody has spoken since.
    return bool(messages) and turn_of(messages) in (hint["at"], "")
