"""Search for the tools that a request needs: a ranking of the whole catalogue, by words and by meaning.

``search``      BM25, the catalogue, the signals of a tool and its toolkit, and their weights
``precedents``  tools of similar requests in past runs; the tools that are called before a given one
``current``     the search over the tools that a memory knows now
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TARGETS: Final = 3
"""Tools that a request is taken to be about (NaviAgent, arXiv 2506.19500)."""
LEAST_TARGET: Final = 0.3
"""Part of the best hit's score that a hit must reach to be one of them. To be shown to a model it need not reach any:
on public requests a bound of 0.05 lost a fifth of the needed tools where there are few, and of 20 it saved a half."""


@dataclass(frozen=True, slots=True)
class ToolHit:
    """A tool that was found.

    Attributes:
        score: 0 to 1, the estimated probability that the request needs the tool. Estimated on a public catalogue of
            2,490 tools: use it to compare tools, not as a probability elsewhere.
        toolkit: the service, server or API it is a part of, "" if none is known.
    """

    name: str
    score: float
    toolkit: str = ""


def targets_of(hits: Sequence[ToolHit]) -> list[str]:
    """Return the tools that a request is about: those that are about as likely as the likeliest."""
    best = max((hit.score for hit in hits), default=0.0)
    return [hit.name for hit in hits if hit.score >= LEAST_TARGET * best]
