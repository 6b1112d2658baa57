"""Where the tools stand in the picture: how deep in a run, and beside which others.

Depth is the length of the likeliest way from the start of a run. With p(v | u) the share of the calls after u
that went to v, a step costs 1 - log2 p(v | u), and depth(v) is the cheapest sum over all ways. The order across
the flow is the Fiedler order of the undirected graph, which puts tools that follow each other side by side.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import networkx as nx

from langgraph_toolmem.graph.export import START, EdgeView


class Place(NamedTuple):
    """Where a tool stands: `depth` along the flow (START is 0), `rank` across it (0, 1, 2 …)."""

    depth: float
    rank: int


def times(edge: EdgeView) -> int:
    """How often the edge's call was made, by the model or by the shortcut."""
    return max(edge.count, edge.ok + edge.failed)


def place(names: Iterable[str], edges: Iterable[EdgeView], *, seed: int = 0) -> dict[str, Place]:
    """A place for each name; the same input gives the same places.

    Args:
        names: the nodes, START among them or not.
        edges: what follows what; edges to other nodes are left out.
        seed: of the eigenvector search.
    """
    known = list(dict.fromkeys(names))
    nodes = set(known)
    seen = [(e, times(e)) for e in edges if e.source in nodes and e.target in nodes and e.source != e.target]
    depths = _depths(known, [(e, n) for e, n in seen if n > 0])
    ranks = _ranks(known, [(e, n) for e, n in seen if n > 0], seed)
    return {name: Place(depths[name], ranks[name]) for name in known}


def _depths(names: list[str], edges: list[tuple[EdgeView, int]]) -> dict[str, float]:
    leaving: defaultdict[str, int] = defaultdict(int)
    for edge, n in edges:
        leaving[edge.source] += n
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(names)
    for edge, n in edges:
        graph.add_edge(edge.source, edge.target, cost=1 - math.log2(n / leaving[edge.source]))
    found = nx.single_source_dijkstra_path_length(graph, START, weight="cost") if START in graph else {}
    last = max(found.values(), default=0.0) + 1
    return {name: round(float(found.get(name, last)), 6) for name in names}


def _ranks(names: list[str], edges: list[tuple[EdgeView, int]], seed: int) -> dict[str, int]:
    # START follows nothing and leads anywhere: as a neighbour of all it would say nothing about who belongs together.
    # Numbers stand for the names, because networkx walks over sets and those of strings change from run to run.
    number = {name: i for i, name in enumerate(names) if name != START}
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(number.values())
    for edge, n in edges:
        if edge.source in number and edge.target in number:
            ends = number[edge.source], number[edge.target]
            before = graph.get_edge_data(*ends, {"weight": 0.0})["weight"]
            graph.add_edge(*ends, weight=before + math.sqrt(n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy on singular factors: a poor order is still an order
        try:
            order = list(nx.spectral_ordering(graph, seed=seed)) if len(graph) > 1 else list(graph)
        except Exception:  # noqa: BLE001 - the search may not converge; in the order of the names then
            order = list(graph)
    ranks = {node: rank for rank, node in enumerate(order)}
    return {name: ranks[number[name]] if name in number else 0 for name in names}
