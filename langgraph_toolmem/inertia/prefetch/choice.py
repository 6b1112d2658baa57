"""Which of the calls foreseen are run ahead of one model call; the same for a run and for a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langgraph_toolmem.graph.events import Record, ToolCount
from langgraph_toolmem.graph.state import WORDS
from langgraph_toolmem.inertia.prefetch.record import REVIEWED
from langgraph_toolmem.inertia.prefetch.settings import Prefetch
from langgraph_toolmem.inertia.proposal import Foreseen
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.values import canon_args

EARLY: Final = 5.0
"""Look-ups taken as served, with as many thrown away as there may be, before the first."""
STEEP: Final = 4
"""Power with which the least probability grows with what was thrown away beyond the limit."""
HIGHEST: Final = 0.7
"""The least probability grows no further, so that a record can improve."""


class Guess(NamedTuple):
    """A call to be run ahead.

    Attributes:
        tool: its name.
        args: its arguments; `text`: the same as `canon_args` writes them.
        probability: that the model asks for it.
    """

    tool: str
    args: Mapping[str, Any]
    text: str
    probability: float


def least_probability(settings: Prefetch, served: float, wasted: float) -> float:
    """From which probability on a call is run ahead.

    With w look-ups thrown away for s served, limit m and ``min_probability`` p: p · max(1, (w + EARLY·m) /
    (m · (s + EARLY)))^STEEP.
    """
    if settings.max_wasted is None:
        return settings.min_probability
    over = (wasted + EARLY * settings.max_wasted) / (settings.max_wasted * (served + EARLY))
    return float(max(settings.min_probability, min(HIGHEST, settings.min_probability * max(1.0, over) ** STEEP)))


def choose(
    foreseen: Sequence[Foreseen],
    settings: Prefetch,
    least: float,
    may: Callable[[str, Mapping[str, Any]], bool],
) -> list[Guess]:
    """The likeliest of the calls that may be run ahead.

    Args:
        foreseen: what the model may do next, likeliest first.
        settings: how many.
        least: see `least_probability`.
        may: whether a tool may be run ahead with these arguments.
    """
    found: dict[tuple[str, str], Guess] = {}
    for each in foreseen:
        if each.probability < least or len(found) >= settings.at_most:
            break
        if each.tool == WORDS or each.changes or not each.familiar or (each.stale and each.tool not in settings.stable):
            continue
        for args in each.calls:
            text = canon_args(args)
            if (each.tool, text) not in found and len(found) < settings.at_most and may(each.tool, args):
                found[each.tool, text] = Guess(each.tool, args, text, each.probability)
    return list(found.values())


def credit_reviews(turn: Turn) -> Record:
    """Count the calls of a turn that a person looked at and did not let pass."""
    return [ToolCount(step.tool, REVIEWED) for step in turn.steps if step.review]
