"""The figures of merit, from one row per model turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Final

from benchmarks import load
from langgraph_toolmem.graph.events import Count, Record
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.confidence import Budget, Checked
from langgraph_toolmem.inertia.policy import InertiaPolicy

WINDOW: Final = 300


def declared(folder: Path) -> frozenset[str]:
    """Return the tools of a recorded set that only read, as its ``nature.json`` says; empty if there is none."""
    file = folder / "nature.json"
    return frozenset(load(file)["reads"]) if file.is_file() else frozenset()


@dataclass(frozen=True)
class Row:
    """One model turn and what was foreseen.

    Attributes:
        confidence: of the call that would be proposed were there no threshold; None: no call.
        right: whether that call is exactly the one the model made.
        acted: whether the method, left to itself, would have made the call without the model.
        known: whether the model's call was among the candidates.
        words: the model answered in words.
        changes: whether that call may change something.
        doubted: of a call that only a doubt kept from being proposed, its confidence.
    """

    confidence: float | None
    right: bool
    acted: bool
    known: bool
    words: bool
    changes: bool = False
    doubted: float | None = None


@dataclass(frozen=True)
class Live:
    """What a method did.

    Attributes:
        right, wrong: calls made without the model per 100 model turns that were, or were not, the model's.
        window: the most wrong calls in any WINDOW turns one after another.
    """

    right: float
    wrong: float
    window: int


def live(outcomes: Sequence[bool | None]) -> Live:
    """Figures of calls made: per model turn True (right), False (wrong) or None (no call)."""
    turns, right = len(outcomes), sum(outcome is True for outcome in outcomes)
    sums = list(accumulate((o is False for o in outcomes), initial=0))
    window = max((sums[min(i + WINDOW, turns)] - sums[i] for i in range(turns)), default=0)
    return Live(100 * right / max(turns, 1), 100 * sums[-1] / max(turns, 1), window)


def acted(rows: Iterable[Row]) -> list[bool | None]:
    """What the method did, for `live`."""
    return [row.right if row.acted else None for row in rows]


def best_yield(rows: Sequence[Row], max_wrong: float) -> float:
    """Y1 (max_wrong 1) and Y3 (3): the highest yield per 100 turns that any one threshold gives.

    A threshold on the confidence is chosen with hindsight such that wrong per 100 turns stays within
    `max_wrong`. Rows of equal confidence are proposed together or not at all.
    """
    proposed = sorted((-row.confidence, row.right) for row in rows if row.confidence is not None)
    right = wrong = best = 0
    for _, group in groupby(proposed, key=lambda item: item[0]):
        outcomes = [outcome for _, outcome in group]
        right += sum(outcomes)
        wrong += len(outcomes) - sum(outcomes)
        # A lower threshold never has fewer misses.
        if 100 * wrong > max_wrong * len(rows):
            break
        best = max(best, right)
    return 100 * best / len(rows) if rows else 0.0


def with_budget(rows: Sequence[Row], policy: InertiaPolicy) -> list[bool | None]:
    """What the calibrated policy would have done with its threshold and budget, for `live`.

    The record does not depend on the threshold, so one pass without threshold and budget tells all: a turn acts if
    its confidence reaches `min_precision` and the policy's own rule does not hold it back. Every turn is checked, as
    in `replay`: the counters that the rule looks at are those that learning would have kept.
    """
    graph = ToolGraph()
    budget = graph.register(Budget)
    outcomes: list[bool | None] = []
    for row in rows:
        p, least = row.confidence, policy.bound_of(row.changes).min_precision
        acts = p is not None and p >= least
        acts = acts and budget.used_up(policy, p or 0.0, changes=row.changes) is None
        outcomes.append(row.right if acts else None)
        record: Record = [Count("turns")]
        if acts:
            record.append(Checked(graph.turns, int(row.changes), int(not row.right), 1))
        graph.apply(None, record)
    return outcomes
