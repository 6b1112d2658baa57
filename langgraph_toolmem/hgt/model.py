"""Encoders, attention and heads: vectors of tools and parameters, and how likely a pair of them is a link.

An encoder for each type of nodes: linear, GELU, layer norm [R]. Layers of `RelationalAttention` [P], each added to what
went in and normed [O]. Heads:

- "separable", the paper's as far as it is known: σ(wᵀ [z_u ‖ z_v] + b) [R]. It is a_u + c_v: it ranks producers alike
  for all consumers.
- "mlp", the default: σ(w₂ᵀ GELU(W₁ [z_u ‖ z_v ‖ z_u ∘ z_v ‖ f] + b₁) + wᵀ f + b₂), f features of the pair, if any [O].
- "bilinear": σ(a z_uᵀ W z_v + wᵀ f + b) [O].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from langgraph_toolmem.hgt.attention import Edges, Relation, RelationalAttention

Head = Literal["mlp", "bilinear", "separable"]
API, PARAMETER = "api", "parameter"
RELATIONS: Final[tuple[Relation, ...]] = (
    (PARAMETER, "input of", API),
    (API, "takes", PARAMETER),
    (API, "gives", PARAMETER),
    (PARAMETER, "given by", API),
    (API, "before", API),
    (API, "after", API),
    (PARAMETER, "flows into", PARAMETER),
    (PARAMETER, "flows from", PARAMETER),
)
"""Structure and behaviour [P], each both ways [O]."""


@dataclass(frozen=True)
class Sizes:
    """The shape of a model; widths, heads and layers are the paper's.

    Attributes:
        width, heads, layers: of the attention.
        head: see the module.
        hidden: of the head "mlp".
        dropout: share of a vector's numbers that a head does not see while it learns.
    """

    width: int = 256
    heads: int = 8
    layers: int = 2
    head: Head = "mlp"
    hidden: int = 64
    dropout: float = 0.5

    def plain(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class LinkHead(nn.Module):
    """How likely pairs are links, as logits."""

    def __init__(self, sizes: Sizes, features: int = 0) -> None:
        super().__init__()
        self.kind, self.dropout = sizes.head, nn.Dropout(sizes.dropout)
        if sizes.head == "mlp":
            self.first: nn.Module = nn.Linear(3 * sizes.width + features, sizes.hidden)
            self.last = nn.Linear(sizes.hidden, 1)
        elif sizes.head == "bilinear":
            self.first = nn.Linear(sizes.width, sizes.width, bias=False)
            self.last = nn.Linear(1, 1)
        else:
            self.first, self.last = nn.Identity(), nn.Linear(2 * sizes.width, 1)
        self.direct = nn.Linear(features, 1, bias=False) if features else None

    def begin_with(self, weights: Iterable[float], bias: float) -> None:
        """Begins as a regression on the features [O]; what the vectors add to it is learned from nothing."""
        assert self.direct is not None
        with torch.no_grad():
            self.direct.weight.copy_(torch.tensor([*weights])[None])
            self.last.weight.zero_()
            self.last.bias.fill_(bias)

    def forward(self, source: Tensor, target: Tensor, features: Tensor | None = None) -> Tensor:
        """(P,) logits of (P, width) sources and targets and (P, F) features."""
        source, target = self.dropout(source), self.dropout(target)
        if self.kind == "separable":
            found: Tensor = self.last(torch.cat([source, target], dim=-1))
        elif self.kind == "bilinear":
            found = self.last((self.first(source) * target).sum(-1, keepdim=True))
        else:
            given = [source, target, source * target, *(() if features is None else (features,))]
            found = self.last(nn.functional.gelu(self.first(torch.cat(given, dim=-1)), approximate="tanh"))
        if self.direct is not None:
            found = found + self.direct(features)
        return found.squeeze(-1)


class LinkModel(nn.Module):
    """Vectors of nodes, and heads for links between tools and from tools to parameters.

    Args:
        widths: type of nodes -> numbers of their features.
        sizes: the shape.
        features: numbers that describe a pair of tools; 0: none.
    """

    def __init__(self, widths: Mapping[str, int], sizes: Sizes, features: int = 0) -> None:
        super().__init__()
        self.sizes = sizes
        self.encoders = nn.ModuleDict(
            {
                kind: nn.Sequential(nn.Linear(width, sizes.width), nn.GELU(), nn.LayerNorm(sizes.width))
                for kind, width in widths.items()
            }
        )
        self.layers = nn.ModuleList(
            RelationalAttention(sizes.width, sizes.heads, RELATIONS) for _ in range(sizes.layers)
        )
        self.norms = nn.ModuleList(
            nn.ModuleDict({kind: nn.LayerNorm(sizes.width) for kind in widths}) for _ in range(sizes.layers)
        )
        self.links = LinkHead(sizes, features)
        self.parameters_given = LinkHead(sizes)

    def forward(
        self, features: Mapping[str, Tensor], edges: Edges, weights: Mapping[Relation, Tensor]
    ) -> dict[str, Tensor]:
        """(N, width) for each type of nodes."""
        nodes = {kind: encoder(features[kind]) for kind, encoder in self.encoders.items()}
        for layer, norms in zip(self.layers, self.norms, strict=True):
            heard = layer(nodes, edges, weights)
            nodes = {kind: norms[kind](nodes[kind] + heard[kind]) for kind in nodes}
        return nodes
