"""Results of steps, kept so that every model call of their scope gets the same."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from langchain_core.messages import HumanMessage

from langgraph_toolmem.base import threads
from langgraph_toolmem.turn.call import Call
from langgraph_toolmem.turn.hints import Scope
from langgraph_toolmem.turn.points import point_of, turn_of

MAX_TURNS: Final = 256


class Place(NamedTuple):
    """A user turn of a thread, and how often somebody was forgotten before."""

    thread: str | None
    user: str | None
    turn: str
    forgettings: int


@dataclass(slots=True)
class Kept:
    """A kept result of a step.

    Attributes:
        found: as `Step.compute` gave it.
        point: the point of the run, and the tools offered, that it was found for; None: for the whole turn.
        told: the event that was told of it last.
        broken: looking failed; nothing is said in this scope.
    """

    found: Any
    point: tuple[str, frozenset[str]] | None
    told: Any = None
    broken: bool = False


class Memo:
    """Keeps what one step found, of the `MAX_TURNS` user turns used last. Safe to use from several threads.

    A value is found by the thread, the user and the user's message. Where the message was summarised away, nobody has
    spoken since, so the thread's latest value holds on. Without a thread id (no checkpointer) a run that begins with
    the same message again is another run. After somebody was forgotten everything is looked up again.

    Args:
        scope: of the step; "call": nothing is kept.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._lock = threads.lock()
        self._kept: OrderedDict[Place, Kept] = OrderedDict()

    def get(self, call: Call, forgettings: int) -> Kept | None:
        """Return what was found for this call, if anything was."""
        if self._scope == "call":
            return None
        place = _place(call, forgettings)
        with self._lock:
            at = None if _begins(call) else place if place.turn else self._latest(place)
            kept = None if at is None else self._kept.get(at)
            if kept is None or at is None or (kept.point is not None and kept.point != _point(call)):
                return None
            self._kept.move_to_end(at)
            return kept

    def put(self, call: Call, forgettings: int, found: Any, *, broken: bool = False) -> Kept:
        """Keeps what was found, and returns what stands: if another thread was faster, its value."""
        kept = Kept(found, _point(call) if self._scope == "point" else None, broken=broken)
        if self._scope == "call":
            return kept
        place = _place(call, forgettings)
        with self._lock:
            if self._scope == "point" or _begins(call) or broken:
                self._kept[place] = kept
            kept = self._kept.setdefault(place, kept)
            self._kept.move_to_end(place)
            while len(self._kept) > MAX_TURNS:
                self._kept.popitem(last=False)
            return kept

    def _latest(self, place: Place) -> Place | None:
        if place.thread is None:
            return None
        return next((kept for kept in reversed(self._kept) if kept._replace(turn="") == place), None)


def _place(call: Call, forgettings: int) -> Place:
    return Place(call.thread_id, call.user_id, turn_of(call.messages), forgettings)


def _begins(call: Call) -> bool:
    return call.thread_id is None and bool(call.messages) and isinstance(call.messages[-1], HumanMessage)


def _point(call: Call) -> tuple[str, frozenset[str]]:
    return point_of(call.messages), frozenset(call.tools or ())
