"""Past requests like the present one: did they end at this point?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from langgraph_toolmem.graph.state import RunState

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core

PAST_REQUESTS: Final = 8
LEAST_PAST: Final = 3
"""Past requests that must be similar, for the work to be taken as done."""
LEAST_ENDED: Final = 0.8
"""Share of them, by similarity, that ended after the same calls."""
DOUBT: Final = 0.15
"""Similarity added to the others: few and faint examples say little."""


class Ending(NamedTuple):
    """Past requests like a run's that went the same way: those that ended here, all, and the share by similarity."""

    ended: int
    past: int
    share: float


def ending(core: Core, state: RunState) -> Ending | None:
    """Return how many past requests ended after the same calls; None unless that means that the work is done."""
    if not state.since_user or state.since_user[-1].status != "ok":
        return None
    with core.lock:
        near = [each for each in core.graph.cases.near(state, k=PAST_REQUESTS) if each.similarity > 0]
    ended = [each.similarity for each in near if each.tool is None]
    share = sum(ended) / (sum(each.similarity for each in near) + DOUBT)
    if len(near) < LEAST_PAST or share < LEAST_ENDED:
        return None
    return Ending(len(ended), len(near), share)
