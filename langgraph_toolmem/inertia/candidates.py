"""Which calls may come next, each with the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.evidence import OPEN, EvidenceGraph
from langgraph_toolmem.graph.state import PARALLEL, WORDS, RunState, windows
from langgraph_toolmem.inertia.arguments import Filled, fill
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT

MAX_TOOLS: Final = 2
NEIGHBOURS: Final = 4


@dataclass(frozen=True)
class Candidate:
    """One possible next call.

    Attributes:
        p_tool: share of the tool among what followed in contexts like this one, backed off over their length.
        p_args: product of the records of the argument sources.
        witnesses: how many of the nearest past requests went on with this tool and took every argument from a
            source that gives the same value now.
        support: how often the longest known context was seen.
    """

    tool: str
    filled: Mapping[str, Filled]
    p_tool: float
    p_args: float
    support: float
    window: str
    similarity: float
    neighbour_agrees: int
    """2: the nearest past request went on with this tool, 1: no near request, 0: it went on otherwise."""
    agreeing_neighbours: float
    witnesses: int

    @property
    def args(self) -> dict[str, Any]:
        """The arguments to call with; optional ones that are best left out are absent."""
        return {name: f.value for name, f in self.filled.items() if f.value is not ABSENT}


def near_requests(graph: EvidenceGraph, state: RunState) -> list[Neighbour]:
    """The nearest past requests that went the same way so far."""
    if not state.user_key or not state.user.raw:
        return []
    prefix: list[tuple[str, str]] = [(step.tool, step.status) for step in state.since_user]
    return graph.cases.nearest(state.user.raw, prefix, look=state.signature(), k=NEIGHBOURS, exclude=state.user_key)


def next_tools(
    graph: EvidenceGraph, state: RunState, neighbours: Sequence[Neighbour]
) -> tuple[dict[str, float], float, str]:
    """The distribution of what comes next: tools, WORDS, PARALLEL.

    Windows are backed off by Witten–Bell interpolation, P_k(c) = (n_k(c) + T_k P_{k−1}(c)) / (N_k + T_k), with
    T_k the number of different successors; the nearest requests are a last context weighted by similarity.

    Returns:
        The distribution, how often the longest known window was seen, and that window's key.
    """
    shares: dict[str, float] = {}
    support, longest = 0.0, ""
    for key in windows(state):
        row = graph.successors.row(key)
        counts = {item: n for item, cell in row.items() if (n := cell[0] + cell[1]) > 0}
        total = sum(counts.values())
        if total <= 0:
            continue
        support, longest = total, key
        kinds = float(len(counts))
        shares = {
            item: (counts.get(item, 0.0) + kinds * shares.get(item, 0.0)) / (total + kinds)
            for item in {*shares, *counts}
        }
    if neighbours:
        votes: dict[str, float] = {}
        for near in neighbours:
            item = WORDS if near.tool is None else near.tool
            votes[item] = votes.get(item, 0.0) + 4 * near.similarity**2
        total, kinds = sum(votes.values()), float(len(votes))
        shares = {
            item: (votes.get(item, 0.0) + kinds * shares.get(item, 0.0)) / (total + kinds) for item in {*shares, *votes}
        }
    return shares, support, longest


def candidates(
    graph: EvidenceGraph,
    state: RunState,
    neighbours: Sequence[Neighbour],
    *,
    specs: Mapping[str, ToolSpec],
    user: str | None,
) -> list[Candidate]:
    """The likeliest calls, best first. Tools that are not among `specs` are left out."""
    shares, support, window = next_tools(graph, state, neighbours)
    ranked = sorted(
        (item for item in shares if item not in (WORDS, PARALLEL, OPEN) and item in specs),
        key=lambda item: (-shares[item], item),  # by name where equal: a set's order changes with the process
    )
    found = []
    for tool in ranked[:MAX_TOOLS]:
        filled = fill(graph, state, tool, specs[tool].properties, specs[tool].required, neighbours, user)
        if isinstance(filled, str):
            continue
        p_args = 1.0
        for f in filled.values():
            p_args *= f.probability
        agreeing = sum(n.tool == tool for n in neighbours)
        witnesses = min((f.witnesses for f in filled.values()), default=agreeing)
        similarity = neighbours[0].similarity if neighbours else 0.0
        agrees = 1 if not neighbours else (2 if neighbours[0].tool == tool else 0)
        share = agreeing / len(neighbours) if neighbours else 0.0
        found.append(
            Candidate(tool, filled, shares[tool], p_args, support, window, similarity, agrees, share, witnesses)
        )
    return found
