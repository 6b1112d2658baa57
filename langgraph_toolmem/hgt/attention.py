"""Attention over the relations of a graph, with the links' own weights (NaviAgent, arXiv 2506.19500, section 3) [P].

For each relation r and head k, u the node that listens and v one of those it hears:

    e(u,v) = (W_Q^{k,r} h_u)ᵀ (W_K^{k,r} h_v) / √d_k + b_r^k + w(u,v),    α = softmax of e over v within r
    out_u  = W_O ‖_k Σ_r Σ_v α(u,v) W_V^{k,r} h_v

It differs from the heterogeneous graph transformer (Hu et al., WWW 2020) in the weight and the bias, in the softmax
within a relation, and in projections of each relation's own. Sums over neighbours are segment sums: one pass over all
edges of a node type.

A bias that is the same for all of a softmax changes nothing: within a relation b has no effect. It has one where the
softmax is joint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

Relation = tuple[str, str, str]
"""Type of the node that is heard, name, type of the node that listens."""
Edges = Mapping[Relation, Tensor]
"""Relation -> (2, E): nodes heard, nodes that listen."""


class RelationalAttention(nn.Module):
    """One layer.

    Args:
        width: numbers of a node's vector, in and out.
        heads: divides `width`.
        relations: of the graph.
        weighted, biased: whether w and b are added.
        joint: one softmax over all a node hears, as in the heterogeneous graph transformer.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        relations: Sequence[Relation],
        *,
        weighted: bool = True,
        biased: bool = True,
        joint: bool = False,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"heads={heads} does not divide width={width}.")
        self.width, self.heads, self.relations = width, heads, tuple(relations)
        self.weighted, self.joint = weighted, joint
        self.query = nn.Parameter(torch.empty(len(self.relations), width, width))
        self.key = nn.Parameter(torch.empty(len(self.relations), width, width))
        self.value = nn.Parameter(torch.empty(len(self.relations), width, width))
        self.bias = nn.Parameter(torch.zeros(len(self.relations), heads)) if biased else None
        self.out = nn.Linear(width, width, bias=False)
        for each in (self.query, self.key, self.value):
            for matrix in each:
                nn.init.xavier_uniform_(matrix)

    def forward(
        self, nodes: Mapping[str, Tensor], edges: Edges, weights: Mapping[Relation, Tensor]
    ) -> dict[str, Tensor]:
        """(N, width) for each type of nodes; 0 where nothing is heard.

        Args:
            nodes: type -> (N, width).
            edges: relation -> (2, E); a relation that is missing has none.
            weights: relation -> (E,).
        """
        return {kind: self.out(self._heard(kind, nodes, edges, weights)) for kind in nodes}

    def _heard(
        self, kind: str, nodes: Mapping[str, Tensor], edges: Edges, weights: Mapping[Relation, Tensor]
    ) -> Tensor:
        listeners = nodes[kind]
        depth = self.width // self.heads
        logits: list[Tensor] = []
        values: list[Tensor] = []
        segments: list[Tensor] = []
        into: list[Tensor] = []
        for number, relation in enumerate(self.relations):
            if relation[2] != kind or relation not in edges or not edges[relation].shape[1]:
                continue
            heard, listening = edges[relation]
            query, key, value = (
                (given @ matrix[number].T).view(-1, self.heads, depth)
                for given, matrix in (
                    (listeners, self.query),
                    (nodes[relation[0]], self.key),
                    (nodes[relation[0]], self.value),
                )
            )
            logit = (query.index_select(0, listening) * key.index_select(0, heard)).sum(-1) / math.sqrt(depth)
            if self.bias is not None:
                logit = logit + self.bias[number]
            if self.weighted:
                logit = logit + weights[relation].unsqueeze(-1)
            logits.append(logit)
            values.append(value.index_select(0, heard))
            segments.append(listening + (0 if self.joint else len(segments) * len(listeners)))
            into.append(listening)
        if not logits:
            return torch.zeros_like(listeners)
        count = len(listeners) * (1 if self.joint else len(logits))
        shares = segment_softmax(torch.cat(logits), torch.cat(segments), count)
        sent = (torch.cat(values) * shares.unsqueeze(-1)).flatten(1)
        return sent.new_zeros(len(listeners), self.width).index_add(0, torch.cat(into), sent)


def segment_softmax(logits: Tensor, segments: Tensor, count: int) -> Tensor:
    """Softmax over the rows of each segment.

    Args:
        logits: (E, H).
        segments: (E,) which segment a row is of, from 0 to `count` − 1, in any order.
        count: of segments.
    """
    where = segments.unsqueeze(-1).expand_as(logits)
    most = logits.new_full((count, logits.shape[1]), -torch.inf)
    # The highest is taken off so that no power overflows; it changes nothing and needs no slope.
    most = most.scatter_reduce(0, where, logits.detach(), "amax", include_self=True)
    # In at least single precision, whatever came in.
    powers = (logits - most.index_select(0, segments)).to(torch.promote_types(logits.dtype, torch.float32)).exp()
    total = powers.new_zeros(count, logits.shape[1]).index_add(0, segments, powers)
    return (powers / total.index_select(0, segments)).to(logits.dtype)
