"""What was looked up for a user turn, so that every model call of the turn gets the same."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from langchain_core.messages import HumanMessage

from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.turn.hints import turn_of

MAX_TURNS: Final = 256

T = TypeVar("T")


class Place(NamedTuple):
    """A user turn of a run, and how often somebody was forgotten before."""

    run: str | None
    user: str | None
    turn: str
    forgettings: int


class TurnKey(NamedTuple):
    """Where a value is kept; `again` if it has to be looked up anew."""

    place: Place
    again: bool


class PerTurn(Generic[T]):
    """Keeps one value per user turn and run, of the `MAX_TURNS` turns used last. Safe to use from several threads.

    A value of a turn is found by the run, the user and the user's message. Where the message was summarised away,
    nobody has spoken since, so the run's latest value holds on. Without a run id (no checkpointer) a run that begins
    with the same message again is another run. After somebody was forgotten everything is looked up again.

    Args:
        memory: whose forgetting counts.
    """

    def __init__(self, memory: ToolMemory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._kept: OrderedDict[Place, T] = OrderedDict()

    def key(self, messages: Sequence[Any], *, run_id: str | None, user_id: str | None) -> TurnKey:
        """Where the value for this model call is kept."""
        begins = run_id is None and bool(messages) and isinstance(messages[-1], HumanMessage)
        return TurnKey(Place(run_id, user_id, turn_of(messages), self._memory._forgettings), begins)

    def get(self, key: TurnKey) -> T | None:
        """The value of this turn, if there is one."""
        with self._lock:
            place = None if key.again else key.place if key.place.turn else self._latest(key.place)
            if place is None or place not in self._kept:
                return None
            self._kept.move_to_end(place)
            return self._kept[place]

    def put(self, key: TurnKey, value: T) -> T:
        """Keeps a value, and returns what stands: if another thread was faster, its value."""
        with self._lock:
            if key.again:
                self._kept[key.place] = value
            found = self._kept.setdefault(key.place, value)
            self._kept.move_to_end(key.place)
            while len(self._kept) > MAX_TURNS:
                self._kept.popitem(last=False)
            return found

    def _latest(self, place: Place) -> Place | None:
        if place.run is None:
            return None
        return next((kept for kept in reversed(self._kept) if kept._replace(turn="") == place), None)
