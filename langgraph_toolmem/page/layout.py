"""Places of tools in the picture: how deep in a run, and beside which others.

Depth is the length of the likeliest way from the start of a run. With p(v | u) the share of the calls after u
that went to v, a step costs 1 - log2 p(v | u), and depth(v) is the cheapest sum over all ways. The order across
the flow is the Fiedler order of the undirected graph, which puts tools that follow each other side by side.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from langgraph_toolmem.graph.view import START, EdgeView

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Place(NamedTuple):
    """The place of a tool: `depth` along the flow (START is 0), `rank` across it (0, 1, 2 …)."""

    depth: float
    rank: int


def times(edge: EdgeView) -> int:
    """Return how often the edge's call was made, by the model or by the shortcut."""
    return max(edge.count, edge.ok + edge.failed)


def place(names: Iterable[str], edges: Iterable[EdgeView]) -> dict[str, Place]:
    """A place for each name; the same input gives the same places.

    Args:
        names: the nodes, START among them or not.
        edges: what follows what; edges to other nodes are left out.
    """
    known = list(dict.fromkeys(names))
    nodes = set(known)
    seen = [(e, times(e)) for e in edges if e.source in nodes and e.target in nodes and e.source != e.target]
    depths = _depths(known, [(e, n) for e, n in seen if n > 0])
    ranks = _ranks(known, [(e, n) for e, n in seen if n > 0])
    return {name: Place(depths[name], ranks[name]) for name in known}


def _depths(names: list[str], edges: list[tuple[EdgeView, int]]) -> dict[str, float]:
    leaving: defaultdict[str, int] = defaultdict(int)
    for edge, n in edges:
        leaving[edge.source] += n
    costs: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for edge, n in edges:
        costs[edge.source].append((edge.target, 1 - math.log2(n / leaving[edge.source])))
    found: dict[str, float] = {}
    ahead = [(0.0, START)] if START in names else []
    while ahead:
        so_far, name = heappop(ahead)
        if name not in found:
            found[name] = so_far
            for target, cost in costs[name]:
                heappush(ahead, (so_far + cost, target))
    last = max(found.values(), default=0.0) + 1
    return {name: round(float(found.get(name, last)), 6) for name in names}


def _ranks(names: list[str], edges: list[tuple[EdgeView, int]]) -> dict[str, int]:
    # START follows nothing and leads anywhere: as a neighbour of all it would say nothing about who belongs together.
    import numpy as np

    number = {name: i for i, name in enumerate(name for name in names if name != START)}
    weights = np.zeros((len(number), len(number)))
    for edge, n in edges:
        if edge.source in number and edge.target in number:
            ends = number[edge.source], number[edge.target]
            weights[ends] = weights[ends[::-1]] = weights[ends] + math.sqrt(n)
    order: list[int] = []
    for part in _components(weights):
        inside = weights[np.ix_(part, part)]
        vector = np.linalg.eigh(np.diag(inside.sum(axis=0)) - inside)[1][:, min(1, len(part) - 1)].round(9)
        order += [part[i] for i in np.argsort(vector * (-1 if vector[0] > 0 else 1), kind="stable")]
    ranks = {node: rank for rank, node in enumerate(order)}
    return {name: ranks[number[name]] if name in number else 0 for name in names}


def _components(weights: npt.NDArray[np.float64]) -> Iterator[list[int]]:
    """The nodes that hang together, each list in ascending order."""
    left = dict.fromkeys(range(len(weights)))
    while left:
        part = [next(iter(left))]
        for node in part:
            left.pop(node, None)
            part += [int(other) for other in weights[node].nonzero()[0] if other in left and other not in part]
        yield sorted(part)
