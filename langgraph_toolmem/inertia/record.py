"""The track record of whole predicted calls, and the honest probability it gives.

A predicted call falls under rules from coarse to fine. Each rule counts how often such a call was exactly
what the model did (hit) or not (miss). The probability is shrunk along the chain, from the coarse rule to the
fine one:

    p_l = (h_l + s · p_{l−1}) / (h_l + m_l + s),   s = 4
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.tables import CountTable
from langgraph_toolmem.graph.tool_graph import HIT, MISS
from langgraph_toolmem.inertia.candidates import Candidate

STRENGTH: Final = 4.0
PRIOR: Final = 0.5
"""Before any record: half of what the shares of tool and arguments alone would say."""

_TEN: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_SIX: Final = (0.35, 0.6, 0.75, 0.85, 0.93, 0.98)
_FIVE: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
_TWO: Final = (0.5, 0.8)
_KINDS: Final = ("", "+", "+", "=")
"""Before the rules of a tool's best filling, of others, and of whole calls from their context."""


def rules_of(candidate: Candidate, state: RunState) -> tuple[str, ...]:
    """The rules a candidate falls under, coarse to fine.

    A: shares of tool and arguments together. B: each apart. C: by how many of the nearest past requests back the
    call, and whether the user has just spoken. D: of this tool. E: of this tool right after the event before it.
    """
    product = candidate.p_tool * candidate.p_args
    five = bisect_right(_FIVE, product)
    rank = _KINDS[candidate.rank] + (">" if candidate.each else "")
    return (
        f"{rank}A{bisect_right(_TEN, product)}",
        f"{rank}B{bisect_right(_SIX, candidate.p_tool)}{bisect_right(_SIX, candidate.p_args)}",
        f"{rank}C{candidate.witnesses}{five}{state.last_is_user:d}",
        f"{rank}D{candidate.tool}\x1f{five}{candidate.neighbour_agrees}",
        f"{rank}E{state.symbols[-1]}\x1f{candidate.tool}\x1f{min(candidate.witnesses, 3)}{bisect_right(_TWO, product)}",
    )


def probability(record: CountTable, candidate: Candidate, rules: tuple[str, ...]) -> float:
    """The probability that the model would make exactly this call, judged by the record of its rules."""
    p = PRIOR * candidate.p_tool * candidate.p_args
    for rule in rules:
        cell = record.row(rule).get("")
        if cell is not None:
            p = (cell[HIT] + STRENGTH * p) / (cell[HIT] + cell[MISS] + STRENGTH)
    return p
