"""Values that never vary, read from the evidence graph, for a run that comes by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langgraph_toolmem.atoms.mask import ENOUGH, FEW, OFTEN, Habits
from langgraph_toolmem.graph.learning import decode_value
from langgraph_toolmem.graph.state import slot_key
from langgraph_toolmem.runs.values import ABSENT, canon

Given = Callable[[str], Mapping[str, tuple[float, int]]]
"""By slot: the values it took, each with how often, and in how many runs (as far as that is counted)."""


class SeenHabits(Habits):
    """As `Habits`, of all runs that a memory has seen; parts of nested arguments always vary.

    Args:
        given: what the slots of tools were given.
    """

    def __init__(self, given: Given) -> None:
        super().__init__()
        self._seen = given

    def constant(self, tool: str, path: str, value: Any) -> bool:
        """See `Habits.constant`."""
        counts: dict[str, tuple[float, int]] = {}
        for text, counted in self._seen(slot_key(tool, path)).items():
            if (known := decode_value(text)) is not ABSENT:
                counts[canon(known)] = counted
        mine = counts.get(canon(value))
        if mine is None:
            return False
        if len(counts) == 1:
            return mine[1] >= ENOUGH
        return len(counts) <= FEW and sum(often for often, _ in counts.values()) >= OFTEN * len(counts)
