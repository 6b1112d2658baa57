"""Evolution of the graph: tools join, leave, and weights follow recent use (NaviAgent, section 5) [P].

Joining is `ToolDependencyGraph.update`: a new tool's values join the clusters they fit, with zero counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import History

LAMBDA: Final = 0.5
ETA: Final = 0.9
_LEAST: Final = 1e-9


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


def prunable(
    graph: ToolDependencyGraph,
    history: History,
    *,
    above: float | None = None,
    most: int | None = None,
    keep: Collection[str] = (),
    unused: bool = False,
) -> list[Leaving]:
    """The tools with the highest `prune_score`, highest first.

    Args:
        graph: where they are.
        history: `uses` and `failures` are read.
        above: those with a score above this.
        most: at most so many.
        keep: tools that never leave.
        unused: whether tools that were never called may leave. By the formula they would be the first, new ones among
            them, though nothing speaks against them; so they stay by default [O].

    Raises:
        ConfigurationError: neither `above` nor `most` is given.
    """
    if above is None and most is None:
        raise ConfigurationError("prune needs a bound: above=SCORE, most=NUMBER, or both.")
    found = []
    for tool in graph.apis:
        ok, failed = history.good(tool), history.failures.get(tool, 0.0)
        if tool in keep or not (ok + failed or unused):
            continue
        score = prune_score(ok, failed)
        if above is None or score > above:
            rate = failed / (ok + failed) if ok + failed else 0.0
            found.append(Leaving(tool, score, ok + failed, rate))
    found.sort(key=lambda leaving: (-leaving.score, leaving.tool))
    return found if most is None else found[: max(0, most)]


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


@dataclass(frozen=True, slots=True)
class Moved:
    """A link whose weight follows recent use.

    Attributes:
        source, target: i and j of w(i→j).
        before, after: its weight.
        successes: good uses of the link lately.
        uses: uses of the target lately.
    """

    source: str
    target: str
    before: float
    after: float
    successes: float
    uses: float


def moved(
    history: History,
    successes: Mapping[tuple[str, str], float],
    uses: Mapping[str, float],
    *,
    eta: float = ETA,
    without: Collection[str] = (),
) -> list[Moved]:
    """Return the weights that `propagate` makes, the largest changes first; links that stay as they are left out.

    w_{t−1} is the weight as it is in use now: what was counted since the last time is in it, in proportion [O]. With
    no use since then that is the paper's w_{t−1}.

    Args:
        history: the weights in use.
        successes, uses: good uses of each link, and uses of each target, of the last days.
        eta: share of the old weight.
        without: sources that are no tools, such as the start of a run.
    """
    edges = [edge for edge in (*history.transitions, *history.weights) if edge[0] not in without]
    before = {edge: history.weight(*edge) for edge in edges if history.uses.get(edge[1], 0) > 0}
    after = propagate(before, {edge: n for edge, n in successes.items() if edge in before}, uses, eta=eta)
    found = [
        Moved(*edge, old, after[edge], successes.get(edge, 0.0), uses.get(edge[1], 0.0))
        for edge, old in before.items()
        if abs(after[edge] - old) > _LEAST
    ]
    return sorted(found, key=lambda each: (-abs(each.after - each.before), each.target, each.source))


def shifts_of(changes: Iterable[Moved], history: History) -> dict[str, dict[str, float]]:
    """Weights as uses that a link counts more or less than it was seen: s = w·N(j) − N(i→j), as target -> {source: s}.

    What comes later counts at once: n further uses of j, m of them along i→j, make (w·N(j) + m) / (N(j) + n) of w, as
    if w had been counted.

    Args:
        changes: what `moved` found.
        history: with the weights that were in use before; links without a change keep theirs.
    """
    now = {**history.weights, **{(each.source, each.target): each.after for each in changes}}
    found: dict[str, dict[str, float]] = {}
    for (source, target), weight in now.items():
        shift = round(weight * history.uses.get(target, 0.0) - history.transitions.get((source, target), 0.0), 6)
        if shift:
            found.setdefault(target, {})[source] = shift
    return found


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))
