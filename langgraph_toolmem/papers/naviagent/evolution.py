"""Evolution of the tool graph (NaviAgent, arXiv 2506.19500, section 5): pruning, and weights that follow recent use.

    (1) prune score = λ·σ(failures / calls) + (1 − λ)·σ(1 / calls)                 [P], λ = 0.5 [O]
    (2) w_t         = η·w_{t−1} + (1 − η)·(recent successes / recent uses)         [P]

The paper does not give λ; η = 0.9 and the 7 days of "recent" are the defaults of `Navigator.propagate` [O]. The new
weights are the soft labels of the next training.

By default the graph does neither: tools stay in plans unless `Navigator.prune` is called, and a link weighs N(i→j) /
N(j) over all time, where the calls of the last week count twice against a failing tool (`History.works`). Neither rule
was measured, because the recorded sets have no ageing tools.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langgraph_toolmem.graph.view import START
from langgraph_toolmem.navigator.evidence import History

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.evidence import RecentUse


@dataclass(frozen=True, slots=True)
class PruneCandidate:
    """A tool that may be pruned.

    Attributes:
        tool: its name.
        score: see `prune_score`.
        calls: number of its calls.
        failure_rate: share of these calls that failed.
    """

    tool: str
    score: float
    calls: float
    failure_rate: float


@dataclass(frozen=True, slots=True)
class WeightChange:
    """A link whose weight follows recent use.

    Attributes:
        source, target: i and j of w(i→j).
        before, after: its weight.
    """

    source: str
    target: str
    before: float
    after: float

    @property
    def size(self) -> float:
        """Return the absolute change of the weight."""
        return abs(self.after - self.before)


def prune_score(ok: float, failed: float) -> float:
    """Return the prune score (1), with the logistic function σ."""
    share = 0.5
    calls = ok + failed
    return share * _sigmoid(failed / calls) + (1 - share) * _sigmoid(1 / calls)


def prune_candidates(tools: Iterable[str], history: History) -> list[PruneCandidate]:
    """Return the tools with calls, highest score first."""
    candidates = []
    for tool in tools:
        ok, failed = history.good(tool), history.failures.get(tool, 0.0)
        calls = ok + failed
        # Tools that were never called are kept [O]: there is no evidence against them.
        if calls:
            candidates.append(PruneCandidate(tool, prune_score(ok, failed), calls, failed / calls))
    return sorted(candidates, key=_worst_first)


def _worst_first(candidate: PruneCandidate) -> tuple[float, str]:
    return -candidate.score, candidate.tool


def weight_changes(history: History, recent: Mapping[str, RecentUse], eta: float) -> list[WeightChange]:
    """Return the links whose weight changes by (2), the largest changes first.

    Args:
        history: counts of all time, and the weights of the last propagation.
        recent: uses of each target on the last days.
        eta: share of the old weight, 0 to 1.
    """
    changes = []
    # Links with a weight too: an unused one has no recent success, and fades.
    for source, target in dict.fromkeys((*history.transitions, *history.weights)):
        use = recent.get(target)
        # A link whose target was not used lately keeps its weight [O]: disuse is not failure.
        if source == START or use is None or not use.calls:
            continue
        before = history.weight(source, target)
        # At most 1: a use may come after several others, and each counts its own.
        after = eta * before + (1 - eta) * min(1.0, use.sources[source] / use.calls)
        change = WeightChange(source, target, before, after)
        if change.size > 1e-9:  # less is rounding
            changes.append(change)
    return sorted(changes, key=_largest_first)


def _largest_first(change: WeightChange) -> tuple[float, str, str]:
    return -change.size, change.target, change.source


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))
