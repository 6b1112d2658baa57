"""SIT-Graph's rule as published (arXiv 2512.07287): summarised states first, then the heaviest edges.

An edge from the last tool to a tool weighs N + Σ 1/n, with N its uses in successful runs and n the number of
transitions of each such run. Where the agent summarised the present state, the edges with summaries come first, each
by its most similar one. If too few edges are left, tools follow whose descriptions fit the request. All kept
transitions are read each time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection

from langgraph_toolmem.sit.evidence import SITEvidence, dice, hashes
from langgraph_toolmem.sit.suggest import FITS, Hits, Suggestion, may_suggest, relative_fit


def suggest_as_published(
    known: SITEvidence,
    source: str | None,
    summary: str,
    hits: Hits,
    *,
    good: Callable[[str], float],
    available: Collection[str] | None,
    k: int,
) -> list[Suggestion]:
    """Return the k best next tools.

    Args:
        known: the transitions.
        source: the last tool, or START; None if it is unknown.
        summary: the present state as the agent wrote it; "" if it did not.
        hits: tools whose descriptions fit the request.
        good: returns the weight of a run (its digest), 0 if it was not successful.
        available: the tools that may be called; None: all.
    """
    here, alike, weights = frozenset(hashes(summary)), dict[str, float](), defaultdict[str, float](float)
    for each in known.transitions():
        if each.source == source and may_suggest(each.target, available) and (weight := good(each.run)) > 0:
            weights[each.target] += weight * (1 + 1 / len(known.runs[each.run]))
            if summary and each.written:
                alike[each.target] = max(alike.get(each.target, 0.0), dice(here, each.words))
    total = sum(weights.values()) + len(weights)
    fits = relative_fit([hit for hit in hits if may_suggest(hit[0], available) and hit[0] not in weights], 0.0)
    found = [
        Suggestion(tool, "episodic", alike[tool], f"came next in a summarised state ({alike[tool]:.0%} alike)")
        for tool in sorted(alike, key=lambda tool: (-alike[tool], -weights[tool], tool))
    ]
    found += [
        Suggestion(tool, "procedural", weights[tool] / total, f"came next after {source} in successful runs")
        for tool in sorted(weights.keys() - alike.keys(), key=lambda tool: (-weights[tool], tool))
    ]
    found += [
        Suggestion(tool, "search", fits[tool], FITS) for tool in sorted(fits, key=lambda tool: (-fits[tool], tool))
    ]
    return found[:k]
