"""Weights of links between tools: the place where learned probabilities may replace structure.

Structure and record give each link a weight, a mean of the two in which structure counts as much as `PRIOR` uses [O]:

    w(i→j) = (n + PRIOR · COLD · fit) / (N(j) + PRIOR),    n = max(N(i→j), uses of this very flow)

With no record that is ``COLD · fit``; with a long one N(i→j) / N(j), the paper's weight. A link that looks right and
that is never taken where it could be thus loses against those that are.

An `EdgeScorer` (``Navigator(scorer=...)``) may weigh links otherwise, knowing that weight and what it is made of. A
trained table (`learned`) has a score p(o→i) of each link from output o to input i, which stands where structure stood
if it is more [O]:

    w = max(w(i→j), (n + PRIOR · p(o→i)) / (N(j) + PRIOR))

It only raises weights: links that were not seen yet are learned as unlikely, and plans lost right chains by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.history import Flow, History

PRIOR: Final = 2.0
"""Uses of a tool that structure, or a learned probability, counts as much as."""
COLD: Final = 0.6
"""Weight of a perfect fit without any record."""


class Link(NamedTuple):
    """A part of one tool's output that may become an input of another tool.

    Attributes:
        producer: tool whose output it is.
        output: path in that output.
        consumer: tool whose input it is.
        input: path of that input.
        fit: how well they fit by structure alone, 0 to 1.
        kind: "cluster": they mean the same; "route": the producer lists the collection that the input picks an element
            of, or its document links the two; "flow": seen in runs.
    """

    producer: str
    output: str
    consumer: str
    input: str
    fit: float
    kind: Literal["cluster", "route", "flow"] = "cluster"


class LinkEvidence(NamedTuple):
    """A link's weight by structure and record.

    Attributes:
        weight: w, 0 to 1.
        seen: n, uses of it.
        uses: N(j), uses of its consumer.
    """

    weight: float
    seen: float
    uses: float

    def joined(self, probability: float) -> float:
        """Return the weight with a learned probability in place of structure; see the module."""
        return (self.seen + PRIOR * probability) / (self.uses + PRIOR)


def evidence_of(link: Link, history: History) -> LinkEvidence:
    """Return the weight of a link by structure and record; see the module."""
    uses, seen = history.uses.get(link.consumer, 0.0), 0.0
    if uses > 0:
        parameter = link.input.split(".", 1)[0].removesuffix("[]")
        flow = Flow(link.producer, link.output, link.consumer, parameter)
        seen = history.weight(link.producer, link.consumer) * uses
        seen = min(uses, max(seen, history.flows.get(flow, 0.0)))
    return LinkEvidence((seen + PRIOR * COLD * link.fit) / (uses + PRIOR), seen, uses)


class EdgeScorer:
    """Weighs links. The default has no opinion."""

    def weigh(self, links: Sequence[Link], known: Sequence[LinkEvidence]) -> Sequence[float | None]:
        """Return how likely each link works, 0 to 1; None: what is known of it stands. Microseconds a link."""
        return [None] * len(links)


def check_scorer(scorer: object) -> None:
    """Raise ConfigurationError if an object lacks the method of `EdgeScorer`, or is a class."""
    if isinstance(scorer, type) or not callable(getattr(scorer, "weigh", None)):
        named = f"the class {scorer.__name__}" if isinstance(scorer, type) else type(scorer).__name__
        raise ConfigurationError(f"`scorer` must be an object with a method weigh (an EdgeScorer), got {named}.")
