"""The loss (NaviAgent, section 3): soft labels and an adaptive margin, first to classify, then to separate."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits


def soft_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy with labels from 0 to 1: the weights of links, 0 for what is none [P]."""
    return binary_cross_entropy_with_logits(logits, labels)


def adaptive_margin(right: Tensor, wrong: Tensor, weights: Tensor, least: float = 1.0) -> Tensor:
    """Mean of max(0, m − s(u,v) + s(u′,v)) over links and negatives, m = m₀ (1 + σ(w)) [P for the negatives, R for m].

    Args:
        right: (P,) logits of links.
        wrong: (P, K) logits of the same links with another source.
        weights: (P,) w of the links.
        least: m₀, in logits.
    """
    margin = least * (1 + torch.sigmoid(weights))
    return torch.relu(margin.unsqueeze(-1) - right.unsqueeze(-1) + wrong).mean()


def share_of_first(epoch: int, start: float = 1.0, decay: float = 0.97) -> float:
    """μ_t = μ₀ γᵗ: what the cross-entropy counts in epoch t, the margin counting the rest [P]."""
    return float(start * decay**epoch)
