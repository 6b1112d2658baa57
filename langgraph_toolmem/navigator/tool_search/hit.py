"""Hits of a search for tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

TARGETS: Final = 3
"""Tools that a request is taken to be about (NaviAgent, arXiv 2506.19500)."""
LEAST_TARGET: Final = 0.3
"""Part of the best hit's score that a hit must reach to be one of them. To be shown to a model it need not reach any:
on public requests a bound of 0.05 lost a fifth of the needed tools where there are few, and of 20 it saved a half."""


@dataclass(frozen=True, slots=True)
class ToolHit:
    """One tool found.

    Attributes:
        score: 0 to 1, the estimated probability that the request needs the tool. Estimated on a public catalogue of
            2,490 tools: good for comparing, not to be taken at its word elsewhere.
        text: what is searched of it by meaning: toolkit, name, description, names of the parameters, category.
        toolkit: the service, server or API it is a part of, "" if none is known.
        piece: the clause or sentence of the request that the tool fits best, "" if none fits.
        parts: what each signal adds to the score, in the unit of the logarithm of the odds; the largest first.
    """

    name: str
    score: float
    text: str
    toolkit: str = ""
    piece: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)


def largest_first(parts: Mapping[str, float]) -> dict[str, float]:
    """Signals in the order of what they count, for or against."""
    return dict(sorted(parts.items(), key=lambda item: -abs(item[1])))


def targets_of(hits: Sequence[ToolHit]) -> list[str]:
    """The tools that a request is about, of those that fit it: the ones that are about as likely as the likeliest."""
    best = max((hit.score for hit in hits), default=0.0)
    return [hit.name for hit in hits if hit.score >= LEAST_TARGET * best]
