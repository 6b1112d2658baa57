"""Similar past requests: the share that ended at this point."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from langgraph_toolmem.graph.state import RunState

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core


class Ending(NamedTuple):
    """Similar past requests with the same calls: those that ended here, all of them, and the share by similarity."""

    ended: int
    past: int
    share: float


def ending(core: Core, state: RunState) -> Ending | None:
    """Return how many past requests ended after the same calls; None unless this means that the work is done."""
    if not state.since_user or state.since_user[-1].status != "ok":
        return None
    with core.lock:
        neighbours = core.graph.cases.near(state, k=8)
    past, ended = 0, 0
    similarity, similarity_of_ended = 0.0, 0.0
    for neighbour in neighbours:
        if neighbour.similarity > 0:
            past += 1
            similarity += neighbour.similarity
            if neighbour.tool is None:
                ended += 1
                similarity_of_ended += neighbour.similarity
    doubt = 0.15  # sum of similarities: few and weak examples prove little
    share = similarity_of_ended / (similarity + doubt)
    if past < 3 or share < 0.8:
        return None
    return Ending(ended, past, share)
