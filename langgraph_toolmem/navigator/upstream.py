"""Which tools a target may need before it: a ranking, not a chain, for those who offer a model a few tools.

Score of a tool: the highest product of link weights and δ along a way from it to the target, over all inputs, optional
ones and the user's own included: a request may name a song where the tool wants its id. Best first (Dijkstra's order),
so only the neighbourhood of the target is looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.history import History
from langgraph_toolmem.navigator.dependencies.links import EdgeScorer, Link, RecordScorer


def upstream(
    graph: ToolDependencyGraph,
    target: str,
    *,
    k: int = 10,
    depth: int = 3,
    delta: float = 0.5,
    near: int = 0,
    history: History | None = None,
    scorer: EdgeScorer | None = None,
    avoid: Collection[str] = (),
) -> list[tuple[str, float]]:
    """The k tools most likely to give what a target needs, directly or through others, with scores from 0 to 1.

    Args:
        graph: the tools.
        target: the tool that is wanted; it is not in the answer.
        k: at most so many.
        depth: calls between a tool and the target, at most.
        delta: what a further call leaves of the score.
        near: for inputs that nothing gives, clusters with similar words that are looked at.
        history: counts of the past. A tool that often came right before another is upstream of it even if no value
            is known to have gone that way.
        scorer: weighs links in place of structure and history.
        avoid: tools that are out of the question.

    Raises:
        ConfigurationError: there is no such tool.
    """
    graph.api(target)
    known = history or History()
    weigher = scorer or RecordScorer(known)
    before = known.before()
    found: dict[str, float] = {}
    waiting: list[tuple[float, int, str]] = [(-1.0, 0, target)]
    out = {target, *avoid}
    done: set[str] = set()
    while waiting and len(found) < k:
        negative, level, tool = heapq.heappop(waiting)
        if tool in done:
            continue
        done.add(tool)
        if tool != target:
            found[tool] = -negative
        if level == depth:
            continue
        best: dict[str, float] = {}
        for port in graph.apis[tool].inputs:
            for link in graph.links_into(port, known, near=near):
                best[link.producer] = max(best.get(link.producer, 0.0), weigher.weight(link))
        for source in before.get(tool, ()):
            if source in graph:
                best[source] = max(best.get(source, 0.0), weigher.weight(Link(source, "", tool, "", 0.0, "flow")))
        for source, weight in best.items():
            if source not in done and source not in out and weight > 0:
                step = weight if tool == target else weight * delta
                heapq.heappush(waiting, (negative * min(1.0, step), level + 1, source))
    return sorted(found.items(), key=lambda item: -item[1])
