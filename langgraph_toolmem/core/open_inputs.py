"""Facts about model turns that are kept in RAM: their inputs until they are learned, and the places of answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.graph.sources import SeenInput, read_input
from langgraph_toolmem.graph.state import ALIKE, ToolRecords
from langgraph_toolmem.runs.run import UNSEEN, ModelInput, Turn, UserMessage


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Limits of the facts in RAM; the oldest are dropped.

    Attributes:
        inputs: of model turns.
        chars: of prompts in them: 4,096 prompts of 88 kB took 725 MB.
        answers: with text.
        agents: turns with tools that are not known by their names.
    """

    inputs: int = 512
    chars: int = 8_000_000
    answers: int = 4096
    agents: int = 4096


TURN_LIMITS: Final = TurnLimits()


class OpenInputs:
    """Inputs by the key of their turn. At a bound the oldest are dropped; their digests are on disk."""

    def __init__(self) -> None:
        self._kept: dict[str, SeenInput] = {}
        self._chars = 0
        self._lock = threads.lock()

    def note(self, turn: str, model_input: ModelInput) -> None:
        """Keep the model's input at a turn."""
        if model_input is UNSEEN:
            return
        seen = read_input(model_input)
        with self._lock:
            self._drop(turn)  # a retry of the call records it again
            self._kept[turn] = seen
            self._chars += seen.chars
            while len(self._kept) > 1 and self._is_full():
                self._drop(next(iter(self._kept)))

    def take(self, turn: str) -> SeenInput | None:
        """Return the model's input at a turn, and drop it; None if it was not recorded."""
        with self._lock:
            seen = self._kept.get(turn)
            self._drop(turn)
        return seen

    def forget(self) -> None:
        """Forget all of it."""
        with self._lock:
            self._kept.clear()
            self._chars = 0

    def _is_full(self) -> bool:
        return len(self._kept) > TURN_LIMITS.inputs or self._chars > TURN_LIMITS.chars

    def _drop(self, turn: str) -> None:
        seen = self._kept.pop(turn, None)
        if seen is not None:
            self._chars -= seen.chars


class LearnedAnswers:
    """The places at which answers with text were learned, by the answers' identities. At a bound the oldest are
    dropped.

    The same answer may be in two histories of a thread: a supervisor's graph keeps only the last message of an agent's
    run, so there the answer follows the handoff, without the agent's calls. It was given after them.
    """

    def __init__(self) -> None:
        self._places: dict[str, str] = {}
        self._lock = threads.lock()

    def note(self, turn: Turn) -> None:
        """Keep the place of a learned turn, if it is an answer with text."""
        if not turn.answer:
            return
        with self._lock:
            self._places[turn.answer] = turn.key
            drop_oldest(self._places, TURN_LIMITS.answers)

    def has_elsewhere(self, turn: Turn) -> bool:
        """Return True if the answer of a turn was learned at another place."""
        return self._places.get(turn.answer, turn.key) != turn.key

    def forget(self) -> None:
        """Forget all of it."""
        with self._lock:
            self._places.clear()


class AskedAgents:
    """The records of the tools that were offered at model turns, by the key of the turn.

    Agents with different tools of one name may share a thread: the agent that learns a turn may not be the one that was
    asked.
    """

    def __init__(self) -> None:
        self._kept: dict[str, ToolRecords] = {}
        self._lock = threads.lock()

    def note(self, turn: str, names: ToolRecords) -> None:
        """Keep the records of a turn's tools, if they are not all known by their names."""
        if names is ALIKE:
            return
        with self._lock:
            self._kept[turn] = names
            drop_oldest(self._kept, TURN_LIMITS.agents)

    def names(self, event: UserMessage | Turn, otherwise: ToolRecords) -> ToolRecords:
        """Return the records of the tools that were offered at a turn. Defaults to `otherwise`."""
        if not self._kept:  # nearly always, and this runs for each event of a thread
            return otherwise
        return self._kept.get(event.key, otherwise)
