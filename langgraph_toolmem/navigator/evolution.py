"""How the graph changes with time: tools join, leave, and weights follow recent use (NaviAgent, section 5) [P].

Joining is `ToolDependencyGraph.add`: a new tool's values join the clusters they fit, with zero counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from langgraph_toolmem.errors import ConfigurationError
from langgraph_toolmem.navigator.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import History

LAMBDA: Final = 0.5
ETA: Final = 0.9
DAYS: Final = 7.0
_DAY: Final = 86_400.0


class Use(NamedTuple):
    """One use of an edge i→j: when (seconds), from where, to what, and whether j went well."""

    time: float
    source: str
    target: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Leaving:
    """A tool that may leave, and why.

    Attributes:
        tool: its name.
        score: λ·σ(failure rate) + (1 − λ)·σ(1/frequency).
        calls: how often it was called.
        failure_rate: share of these calls that failed.
        gone: it was taken out (False in a dry run).
    """

    tool: str
    score: float
    calls: float
    failure_rate: float
    gone: bool = False


def prune_score(ok: float, failed: float, *, lam: float = LAMBDA) -> float:
    """λ·σ(failure rate) + (1 − λ)·σ(1/frequency), σ the logistic function; a tool never called has σ(1/0) = 1 [P]."""
    calls = ok + failed
    rate = failed / calls if calls else 0.0
    rarity = _sigmoid(1 / calls) if calls else 1.0
    return lam * _sigmoid(rate) + (1 - lam) * rarity


def prune(
    graph: ToolDependencyGraph,
    history: History,
    *,
    above: float | None = None,
    most: int | None = None,
    lam: float = LAMBDA,
    keep: Collection[str] = (),
    unused: bool = False,
    dry_run: bool = True,
) -> list[Leaving]:
    """The tools with the highest scores, highest first; takes them out of the graph if this is no dry run.

    Args:
        graph: where they are.
        history: `uses` and `failures` are read.
        above: those with a score above this.
        most: at most so many.
        lam: weight of failing against being rare.
        keep: tools that never leave.
        unused: whether tools that were never called may leave. By the formula they would be the first, new ones among
            them, though nothing speaks against them; so they stay by default [O].
        dry_run: only say what would happen.

    Raises:
        ConfigurationError: neither `above` nor `most` is given.
    """
    if above is None and most is None:
        raise ConfigurationError("prune needs a bound: above=SCORE, most=NUMBER, or both.")
    found = []
    for tool in graph.apis:
        ok, failed = history.uses.get(tool, 0.0), history.failures.get(tool, 0.0)
        if tool in keep or not (ok + failed or unused):
            continue
        score = prune_score(ok, failed, lam=lam)
        if above is None or score > above:
            rate = failed / (ok + failed) if ok + failed else 0.0
            found.append(Leaving(tool, score, ok + failed, rate, gone=not dry_run))
    found.sort(key=lambda leaving: (-leaving.score, leaving.tool))
    found = found if most is None else found[: max(0, most)]
    if not dry_run:
        for leaving in found:
            graph.remove(leaving.tool)
    return found


def recent(uses: Iterable[Use], now: float, *, days: float = DAYS) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Successes per edge and uses per target in the last `days` days before `now` (seconds)."""
    successes: Counter[tuple[str, str]] = Counter()
    targets: Counter[str] = Counter()
    for use in uses:
        if now - days * _DAY < use.time <= now:
            targets[use.target] += 1
            if use.ok:
                successes[use.source, use.target] += 1
    return successes, targets


def propagate(
    weights: Mapping[tuple[str, str], float],
    successes: Mapping[tuple[str, str], float],
    uses: Mapping[str, float],
    *,
    eta: float = ETA,
) -> dict[tuple[str, str], float]:
    """w_t = η·w_{t−1} + (1 − η)·(recent successes on the edge / recent uses of the target) [P].

    The weights of edges whose target was not used lately stay: nothing was seen that speaks for or against them [O].
    """
    found = {}
    for edge in dict.fromkeys((*weights, *successes)):
        before = weights.get(edge, 0.0)
        used = uses.get(edge[1], 0.0)
        share = min(1.0, successes.get(edge, 0.0) / used) if used > 0 else before
        found[edge] = eta * before + (1 - eta) * share
    return found


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))
