"""Attention over the relations of a graph, encoders and heads (NaviAgent, arXiv 2506.19500, section 3).

For each relation r and head k, u the node that listens and v one of those it hears:

    (1) e(u,v) = (W_Q^{k,r} h_u)ᵀ (W_K^{k,r} h_v) / √d_k + b_r^k + w(u,v)                                          [P]
    (2) out_u  = W_O ‖_k Σ_r Σ_v α(u,v) W_V^{k,r} h_v,    α = softmax of e over v within r                         [P]
    (3) p(u,v) = σ(wᵀ [z_u ‖ z_v] + b)                                                                             [R]

It differs from the heterogeneous graph transformer (Hu et al., WWW 2020) in the weight and the bias, in the softmax
within a relation, and in projections of its own for each relation. Within a relation b is the same for all of a softmax
and has no effect; it is kept because it was published.

An encoder for each type of nodes: linear, GELU, layer norm [R]. Each layer is added to its input and normed [O]. The
head (3) is separable: a_u + c_v ranks producers alike for all consumers.

By default no model is made: structure and counts weigh a link (`navigator.dependencies`). `train` has the figures
of both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

Relation = tuple[str, str, str]
"""Type of the source node, name, type of the target node."""
Tensors = Mapping[Relation, Tensor]
API, PARAMETER = "api", "parameter"
TAKES: Final[Relation] = (PARAMETER, "input of", API)
GIVES: Final[Relation] = (API, "gives", PARAMETER)
BEFORE: Final[Relation] = (API, "before", API)
FLOWS: Final[Relation] = (PARAMETER, "flows into", PARAMETER)
BACK: Final[Mapping[Relation, Relation]] = {
    TAKES: (API, "takes", PARAMETER),
    GIVES: (PARAMETER, "given by", API),
    BEFORE: (API, "after", API),
    FLOWS: (PARAMETER, "flows from", PARAMETER),
}
"""Relation -> its inverse [O]: a node is a source of its neighbours in both directions."""
RELATIONS: Final = (TAKES, BACK[TAKES], GIVES, BACK[GIVES], BEFORE, BACK[BEFORE], FLOWS, BACK[FLOWS])
"""Structure and behaviour [P], each both ways [O]. Their order is that of the weights: another order is another
model.
"""


class RelationalAttention(nn.Module):
    """One layer.

    Args:
        width: numbers of a node's vector, in and out.
        heads: divides `width`.
        relations: of the graph.
    """

    def __init__(self, width: int, heads: int, relations: Sequence[Relation]) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"heads={heads} does not divide width={width}.")
        self.width, self.heads, self.relations = width, heads, tuple(relations)
        shape = (len(self.relations), width, width)
        self.query = nn.Parameter(torch.empty(shape))
        self.key = nn.Parameter(torch.empty(shape))
        self.value = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.zeros(len(self.relations), heads))
        self.out = nn.Linear(width, width, bias=False)
        # Matrix by matrix: Xavier's bound is by the sizes of one projection, not of the stack.
        for projections in (self.query, self.key, self.value):
            for matrix in projections:
                nn.init.xavier_uniform_(matrix)

    def forward(self, nodes: Mapping[str, Tensor], edges: Tensors, weights: Tensors) -> dict[str, Tensor]:
        """(N, width) for each type of nodes; 0 without incoming edges.

        `edges` has (2, E) for each relation, the nodes heard and those that listen, and `weights` has (E,).
        """
        heard: dict[str, Tensor] = {}
        for kind, vectors in nodes.items():
            heard[kind] = torch.zeros_like(vectors)
        depth = self.width // self.heads
        for number, relation in enumerate(self.relations):
            source, _name, kind = relation
            if not edges[relation].shape[1]:
                continue
            speaking, listening = edges[relation]
            # Each node is projected once, and then looked up for each of its edges.
            query = self._projected(self.query[number], nodes[kind]).index_select(0, listening)
            key = self._projected(self.key[number], nodes[source]).index_select(0, speaking)
            value = self._projected(self.value[number], nodes[source]).index_select(0, speaking)
            logits = (query * key).sum(-1) / math.sqrt(depth) + self.bias[number] + weights[relation].unsqueeze(-1)
            shares = segment_softmax(logits, listening, len(nodes[kind]))
            heard[kind] = heard[kind].index_add(0, listening, (value * shares.unsqueeze(-1)).flatten(1))
        return {kind: self.out(vectors) for kind, vectors in heard.items()}

    def _projected(self, matrix: Tensor, vectors: Tensor) -> Tensor:
        """(N, heads, depth) of (N, width)."""
        return (vectors @ matrix.T).view(-1, self.heads, self.width // self.heads)


def segment_softmax(logits: Tensor, segments: Tensor, count: int) -> Tensor:
    """Softmax of (E, H) over the rows of each segment; (E,) `segments` says which of `count` a row is of."""
    where = segments.unsqueeze(-1).expand_as(logits)
    most = logits.new_full((count, logits.shape[1]), -torch.inf)
    # The maximum is subtracted so that powers do not overflow; the result is the same, and it needs no gradient.
    most = most.scatter_reduce(0, where, logits.detach(), "amax", include_self=True)
    powers = (logits - most.index_select(0, segments)).exp()
    total = powers.new_zeros(count, logits.shape[1]).index_add(0, segments, powers)
    return powers / total.index_select(0, segments)


class LinkModel(nn.Module):
    """Vectors of nodes, and the head for links between tools.

    Args:
        inputs: type of nodes -> numbers of their features.
        width, heads, layers: of the attention.
    """

    def __init__(self, inputs: Mapping[str, int], width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict()
        for kind, size in inputs.items():
            self.encoders[kind] = nn.Sequential(nn.Linear(size, width), nn.GELU(), nn.LayerNorm(width))
        self.layers = nn.ModuleList()
        self.norms = nn.ModuleList()
        for _ in range(layers):
            self.layers.append(RelationalAttention(width, heads, RELATIONS))
            self.norms.append(nn.ModuleDict({kind: nn.LayerNorm(width) for kind in inputs}))
        self.head = nn.Linear(2 * width, 1)

    def forward(self, features: Mapping[str, Tensor], edges: Tensors, weights: Tensors) -> dict[str, Tensor]:
        """(N, width) for each type of nodes."""
        nodes: dict[str, Tensor] = {}
        for kind, encoder in self.encoders.items():
            nodes[kind] = encoder(features[kind])
        for layer, norms in zip(self.layers, self.norms, strict=True):
            heard = layer(nodes, edges, weights)
            # A tool without edges keeps its own vector.
            nodes = {kind: norms[kind](nodes[kind] + heard[kind]) for kind in nodes}
        return nodes

    def logits(self, source: Tensor, target: Tensor) -> Tensor:
        """(P,) logits of (P, width) sources and targets."""
        scores: Tensor = self.head(torch.cat([source, target], dim=-1))
        return scores.squeeze(-1)
