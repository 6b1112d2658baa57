"""The track record of whole predicted calls, and the honest probability it gives.

A predicted call falls under rules from coarse to fine. Each rule counts how often such a call was exactly
what the model did (hit) or not (miss). The probability is shrunk along the chain, from the coarse rule to the
fine one:

    p_l = (h_l + s · p_{l−1}) / (h_l + m_l + s),   s = 4
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from langgraph_toolmem.graph.evidence import HIT, MISS, turns_seen
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.tables import CountTable
from langgraph_toolmem.inertia.candidates import Candidate

STRENGTH: Final = 4.0
TRUST: Final = 3.0
"""Expected misses' worth of checks before what was seen outweighs what the confidence says."""
IN_FLIGHT: Final = 16
"""Model turns that may be under way at once without counting as unreported."""
PRIOR: Final = 0.5
"""Before any record: half of what the shares of tool and arguments alone would say."""

_TEN: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_SIX: Final = (0.35, 0.6, 0.75, 0.85, 0.93, 0.98)
_FIVE: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
_TWO: Final = (0.5, 0.8)


def _bucket(value: float, cuts: tuple[float, ...]) -> int:
    return sum(value >= cut for cut in cuts)


def rules_of(candidate: Candidate, state: RunState) -> tuple[str, ...]:
    """The rules a candidate falls under, coarse to fine.

    A: shares of tool and arguments together. B: each apart. C: by how many of the nearest past requests back the
    call, and whether the user has just spoken. D: of this tool. E: of this tool right after the event before it.
    """
    product = candidate.p_tool * candidate.p_args
    five = _bucket(product, _FIVE)
    return (
        f"A{_bucket(product, _TEN)}",
        f"B{_bucket(candidate.p_tool, _SIX)}{_bucket(candidate.p_args, _SIX)}",
        f"C{candidate.witnesses}{five}{state.last_is_user:d}",
        f"D{candidate.tool}\x1f{five}{candidate.neighbour_agrees}",
        f"E{state.symbols[-1]}\x1f{candidate.tool}\x1f{min(candidate.witnesses, 3)}{_bucket(product, _TWO)}",
    )


def probability(record: CountTable, candidate: Candidate, rules: tuple[str, ...]) -> float:
    """The probability that the model would make exactly this call, judged by the record of its rules."""
    p = PRIOR * candidate.p_tool * candidate.p_args
    for rule in rules:
        cell = record.row(rule).get("")
        if cell is not None:
            p = (cell[HIT] + STRENGTH * p) / (cell[HIT] + cell[MISS] + STRENGTH)
    return p


def budget_room(counters: Mapping[str, float], max_wrong_per_100: float | None) -> float:
    """How many misses the budget still allows; below 1 there is no room for a call that may be one.

    The budget grows with the model turns seen and shrinks with `misses_estimated`.
    """
    if max_wrong_per_100 is None:
        return math.inf
    return max_wrong_per_100 * (turns_seen(counters) + 1) / 100 - misses_estimated(counters)


def budget_left(counters: Mapping[str, float], max_wrong_per_100: float | None) -> bool:
    """Whether one more miss keeps the misses per 100 model turns within the budget."""
    return budget_room(counters, max_wrong_per_100) >= 1


def misses_estimated(counters: Mapping[str, float]) -> float:
    """Misses so far: those seen on checked proposals, and an estimate for the calls made unchecked.

    Of the calls made, failed ones count as misses. For the rest the confidence said how many misses to expect,
    Σ(1 − p); that is corrected by how many were seen against how many were expected where it was checked,
    (seen + TRUST) / (expected + TRUST). A checked turn whose end never comes was answered in words: all but the
    IN_FLIGHT latest count as misses.
    """
    unreported = max(0.0, counters.get("would_act_open", 0) - IN_FLIGHT)
    wrong = counters.get("wrong", 0) + unreported
    correction = (wrong + TRUST) / (counters.get("checked_risk", 0) + TRUST)
    return wrong + counters.get("acted_failed", 0) + counters.get("acted_risk", 0) * correction


def budget_figures(counters: Mapping[str, float], max_wrong_per_100: float | None) -> dict[str, Any]:
    """For the report: estimated misses per 100 model turns, and whether the budget has room."""
    turns = turns_seen(counters)
    wrong = 100 * misses_estimated(counters) / turns if turns else 0.0
    return {"wrong_per_100": wrong, "budget_open": budget_left(counters, max_wrong_per_100)}


def budget_in_words(counters: Mapping[str, float], figures: Mapping[str, Any]) -> tuple[str, ...]:
    """`budget_figures` for a person: the share once proposals were checked, and that nothing is done while there is
    no room."""
    checked = counters.get("right", 0) + counters.get("wrong", 0)
    share = (f"About {figures['wrong_per_100']:.2f} wrong per 100 turns.",) if checked else ()
    full = "The budget of misses has no room: the model is asked until it has."
    return share if figures["budget_open"] else (*share, full)
