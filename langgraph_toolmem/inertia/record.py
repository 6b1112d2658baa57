"""The track record of whole predicted calls, and the honest probability it gives.

A predicted call falls under rules from coarse to fine. Each rule counts how often such a call was exactly
what the model did (hit) or not (miss). The probability is shrunk along the chain, from the coarse rule to the
fine one:

    p_l = (h_l + s · p_{l−1}) / (h_l + m_l + s),   s = 6
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from langgraph_toolmem.graph.evidence import HIT, MISS, EvidenceGraph
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.values import canon_args
from langgraph_toolmem.inertia.candidates import Candidate

STRENGTH: Final = 6.0
IN_FLIGHT: Final = 16
"""Model turns that may be under way at once without counting as unreported."""
PRIOR: Final = 0.5
"""Before any record: half of what the shares of tool and arguments alone would say."""

_TEN: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_FOUR: Final = (0.35, 0.65, 0.9)
_FIVE: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
_NEAR: Final = (0.25, 0.45, 0.65, 0.85)


def _bucket(value: float, cuts: tuple[float, ...]) -> int:
    return sum(value >= cut for cut in cuts)


def rules_of(candidate: Candidate, state: RunState) -> tuple[str, ...]:
    """The rules a candidate falls under, coarse to fine."""
    product = candidate.p_tool * candidate.p_args
    shares = f"{_bucket(candidate.p_tool, _FOUR)}{_bucket(candidate.p_args, _FOUR)}{candidate.neighbour_agrees}"
    repeated = (candidate.tool, canon_args(candidate.args)) in state.called
    return (
        f"A{_bucket(product, _TEN)}",
        f"B{shares}",
        f"C{shares}{_bucket(candidate.similarity, _NEAR)}{state.last_is_user:d}{repeated:d}",
        f"D{candidate.tool}\x1f{_bucket(product, _FIVE)}{candidate.neighbour_agrees}",
    )


def probability(graph: EvidenceGraph, candidate: Candidate, rules: tuple[str, ...]) -> float:
    """The probability that the model would make exactly this call, judged by the rules' records."""
    p = PRIOR * candidate.p_tool * candidate.p_args
    for rule in rules:
        cell = graph.rules.row(rule).get("")
        if cell is not None:
            p = (cell[HIT] + STRENGTH * p) / (cell[HIT] + cell[MISS] + STRENGTH)
    return p


def budget_left(counters: Mapping[str, float], max_wrong_per_100: float | None) -> bool:
    """Whether one more miss keeps the misses per 100 model turns within the budget.

    Checked proposals (shadow and audit) are counted as they are. Of the calls made, failed ones count as
    misses, and the rest at the rate of misses among the checked ones.
    """
    if max_wrong_per_100 is None:
        return True
    return 100 * (misses_estimated(counters) + 1) <= max_wrong_per_100 * (counters.get("turns", 0) + 1)


def misses_estimated(counters: Mapping[str, float]) -> float:
    """Misses so far: those seen on checked proposals, and an estimate for the calls made unchecked.

    A checked turn whose end never comes was answered in words: all but the IN_FLIGHT latest count as misses.
    """
    unreported = max(0.0, counters.get("would_act_open", 0) - IN_FLIGHT)
    right, wrong = counters.get("right", 0), counters.get("wrong", 0) + unreported
    failed, acted = counters.get("acted_failed", 0), counters.get("acted_ok", 0)
    rate = wrong / (right + wrong) if right + wrong else 0.0
    return wrong + failed + rate * acted
