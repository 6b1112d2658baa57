"""A memory's dependency graph as tensors, and neighbourhoods of a few nodes where it is large."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from langgraph_toolmem.hgt.attention import Relation
from langgraph_toolmem.hgt.model import API, PARAMETER, RELATIONS
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.learned.views import Embed, Views

WHOLE: Final = 100_000
"""Nodes up to which a graph is worked on as a whole."""
FANOUT: Final = 16
"""Nodes that one hears in each relation, where it is not."""
_BACK: Final = dict(zip(RELATIONS[::2], RELATIONS[1::2], strict=True))


@dataclass
class GraphTensors:
    """A graph.

    Attributes:
        features: type of nodes -> (N, F): embedding ‖ log(1 + good uses) ‖ log(1 + failures) ‖ share of good ones ‖
            log(1 + in-degree) ‖ log(1 + out-degree) [R]; of parameters no uses are known. Degrees are structural, so
            that they tell nothing of links that are to be foreseen.
        edges, weights: relation -> (2, E) and (E,).
        inputs: (tool, path of an input) -> its parameter node.
    """

    features: dict[str, Tensor]
    edges: dict[Relation, Tensor]
    weights: dict[Relation, Tensor]
    inputs: dict[tuple[str, str], int]

    def __len__(self) -> int:
        return sum(map(len, self.features.values()))

    def to(self, device: torch.device) -> GraphTensors:
        """The same on a device."""
        moved = [{key: each.to(device) for key, each in part.items()} for part in (self.edges, self.weights)]
        features = {kind: each.to(device) for kind, each in self.features.items()}
        return GraphTensors(features, moved[0], moved[1], self.inputs)

    def without(self, links: Tensor, relation: Relation) -> tuple[dict[Relation, Tensor], dict[Relation, Tensor]]:
        """Edges and weights without some edges of a relation and of the same one backward.

        Args:
            links: (2, L) the edges that are left out.
            relation: whose.
        """
        edges, weights = dict(self.edges), dict(self.weights)
        total = max(map(len, self.features.values())) + 1
        for each, pairs in ((relation, links), (_BACK[relation], links.flip(0))):
            if each in edges:
                keys = edges[each][0] * total + edges[each][1]
                kept = ~torch.isin(keys, pairs[0] * total + pairs[1])
                edges[each], weights[each] = edges[each][:, kept], weights[each][kept]
        return edges, weights


def tensors_of(
    graph: ToolDependencyGraph, views: Views, history: History, embed: Embed, *, hidden: Sequence[tuple[str, str]] = ()
) -> GraphTensors:
    """A dependency graph with what runs have shown.

    Args:
        graph: the tools; `views` are of the same ones.
        views: their vectors.
        history: counts of the past.
        embed: makes vectors of what parameters are called.
        hidden: links that are left out, with the flows along them.
    """
    out, clusters = frozenset(hidden), sorted(graph.clusters.by_id)
    numbers = {cluster: place for place, cluster in enumerate(clusters)}
    found: dict[Relation, dict[tuple[int, int], float]] = {relation: {} for relation in RELATIONS[::2]}
    takes, gives, before, flows = found.values()
    inputs: dict[tuple[str, str], int] = {}
    seen = {flow: count for flow, count in history.flows.items() if (flow.source, flow.target) not in out}
    for name, cluster, direction, port in graph.edges():
        place, parameter, uses = views.places[name], numbers[cluster], history.uses.get(name, 0.0)
        if direction == "in":
            inputs[name, port.path] = parameter
            fed = sum(n for flow, n in history.flows_into(name, port.parameter) if (flow.source, name) not in out)
            _most(takes, (parameter, place), min(1.0, fed / uses) if uses else 0.0)
        else:
            _most(gives, (place, parameter), 0.0)
    for source, target in history.transitions:
        if source in views.places and target in views.places and (source, target) not in out:
            _most(before, (views.places[source], views.places[target]), history.weight(source, target))
    for (source, path, target, taken), count in seen.items():
        if source not in graph or target not in graph:
            continue
        ends = [numbers[graph.cluster_of(p).id] for p in graph.apis[target].inputs if p.parameter == taken][:1]
        starts = [numbers[graph.cluster_of(p).id] for p in graph.apis[source].outputs if p.path == path]
        for start in starts:
            for end in ends:
                _most(flows, (start, end), min(1.0, count / max(history.uses.get(target, 1.0), 1.0)))
        share = min(1.0, count / max(history.uses.get(target, 1.0), 1.0))
        _most(before, (views.places[source], views.places[target]), max(share, history.weight(source, target)))
    edges, weights = {}, {}
    for relation, pairs in found.items():
        edges[relation] = torch.tensor(list(pairs), dtype=torch.long).reshape(-1, 2).T.contiguous()
        weights[relation] = torch.tensor(list(pairs.values()), dtype=torch.float32)
        edges[_BACK[relation]], weights[_BACK[relation]] = edges[relation].flip(0), weights[relation]
    labels = {f"parameter:{n}": graph.clusters.by_id[n].label for n in clusters}
    vectors = embed(labels) if labels else {}
    features = {
        API: _tool_features(views, history, takes, gives),
        PARAMETER: _parameter_features([vectors[f"parameter:{n}"] for n in clusters], takes, gives),
    }
    return GraphTensors(features, edges, weights, inputs)


def _most(found: dict[tuple[int, int], float], key: tuple[int, int], weight: float) -> None:
    found[key] = max(found.get(key, 0.0), weight)


def _tool_features(
    views: Views, history: History, takes: Mapping[tuple[int, int], float], gives: Mapping[tuple[int, int], float]
) -> Tensor:
    counts = np.zeros((len(views), 5), dtype=np.float32)
    for place, name in enumerate(views.names):
        good, bad = history.uses.get(name, 0.0), history.failures.get(name, 0.0)
        counts[place, :3] = math.log1p(good), math.log1p(bad), good / (good + bad) if good + bad else 0.0
    _degrees(counts, [place for _, place in takes], [place for place, _ in gives])
    return torch.from_numpy(np.concatenate([views.of["meaning", "tool"], counts], axis=1))


def _parameter_features(
    vectors: Sequence[Sequence[float]],
    takes: Mapping[tuple[int, int], float],
    gives: Mapping[tuple[int, int], float],
) -> Tensor:
    counts = np.zeros((len(vectors), 2), dtype=np.float32)
    _degrees(counts, [place for _, place in gives], [place for place, _ in takes])
    return torch.from_numpy(
        np.concatenate([np.array(vectors, dtype=np.float32).reshape(len(vectors), -1), counts], axis=1)
    )


def _degrees(counts: npt.NDArray[np.float32], into: Sequence[int], out: Sequence[int]) -> None:
    for column, places in ((-2, into), (-1, out)):
        counts[:, column] = np.log1p(np.bincount(np.array(places, dtype=np.int64), minlength=len(counts)))


def neighbourhood(
    graph: GraphTensors,
    edges: Mapping[Relation, Tensor],
    weights: Mapping[Relation, Tensor],
    seeds: Mapping[str, Tensor],
    depth: int,
    generator: torch.Generator,
    fanout: int = FANOUT,
) -> tuple[dict[str, Tensor], dict[Relation, Tensor], dict[Relation, Tensor]]:
    """A part of a graph: some nodes and what they hear, by chance where that is much.

    Returns:
        Type -> (n,) the nodes, seeds first; relation -> edges between their places, and weights.
    """
    nodes = {kind: _different(seeds.get(kind, torch.zeros(0, dtype=torch.long))) for kind in graph.features}
    chosen: dict[Relation, list[Tensor]] = {relation: [] for relation in edges}
    edge_nodes = dict(nodes)
    for _ in range(depth):
        heard: dict[str, list[Tensor]] = {kind: [] for kind in nodes}
        for relation, pairs in edges.items():
            there = torch.isin(pairs[1], edge_nodes[relation[2]]).nonzero().squeeze(-1)
            # The first `fanout` of each listener in an order by chance.
            there = there[torch.randperm(len(there), generator=generator)]
            there = there[torch.argsort(pairs[1][there], stable=True)]
            rank = torch.arange(len(there)) - torch.searchsorted(pairs[1][there], pairs[1][there])
            kept = there[rank < fanout]
            chosen[relation].append(kept)
            heard[relation[0]].append(pairs[0][kept])
        edge_nodes = {
            kind: _new(_different(torch.cat(found)) if found else torch.zeros(0, dtype=torch.long), nodes[kind])
            for kind, found in heard.items()
        }
        nodes = {kind: torch.cat([nodes[kind], edge_nodes[kind]]) for kind in nodes}
    places = {
        kind: torch.full((len(graph.features[kind]),), -1).index_copy(0, each, torch.arange(len(each)))
        for kind, each in nodes.items()
    }
    picked = {relation: _different(torch.cat(parts)) for relation, parts in chosen.items()}
    part_edges = {
        relation: torch.stack(
            [places[relation[0]][edges[relation][0, at]], places[relation[2]][edges[relation][1, at]]]
        )
        for relation, at in picked.items()
    }
    return nodes, part_edges, {relation: weights[relation][at] for relation, at in picked.items()}


def _new(found: Tensor, known: Tensor) -> Tensor:
    return found[~torch.isin(found, known)]


def _different(values: Tensor) -> Tensor:
    found: Tensor = torch.unique(values)
    return found
