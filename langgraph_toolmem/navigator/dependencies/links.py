"""Weights of links between tools, by structure, record and training.

Structure and record give each link a weight, a mean of the two in which structure counts as much as `PRIOR` uses [O]:

    w(i→j) = (n + PRIOR · COLD · fit) / (N(j) + PRIOR),    n = max(N(i→j), uses of this very flow)

Without a record that is ``COLD · fit``; with a long one N(i→j) / N(j), the paper's weight. So a plausible link that is
never used ranks below used links.

A trained table (`papers.naviagent.learned`) has a score p(o→i) of each link from output o to input i. It replaces
``COLD · fit`` if it is larger [O]. It only raises weights: training learns unseen links as unlikely, and lower weights
lost right chains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from langgraph_toolmem.navigator.history import Flow, History

PRIOR: Final = 2.0
"""Number of uses that structure, or a learned probability, counts for."""
LINK_TABLE: Final = "links.json"
"""File in the memory's folder with the trained scores (`papers.naviagent.learned`)."""
COLD: Final = 0.6
"""Weight of a perfect fit without any record."""


class Link(NamedTuple):
    """A part of one tool's output that may become an input of another tool.

    Attributes:
        producer: tool whose output it is.
        output: path in that output.
        consumer: tool whose input it is.
        input: path of that input.
        fit: how well they fit by structure, 0 to 1.
        kind: "cluster": they have the same meaning; "route": the producer lists the collection that the input picks an
            element of, or its document links the two; "flow": seen in runs.
    """

    producer: str
    output: str
    consumer: str
    input: str
    fit: float
    kind: Literal["cluster", "route", "flow"] = "cluster"


LinkScores = Mapping[tuple[str, str, str, str], float]
"""Producer, its output, consumer, its input -> p, the score that training gave the link."""


def weight_of(link: Link, history: History, learned: LinkScores) -> float:
    """Return the weight of a link, 0 to 1; see the module."""
    uses = history.uses.get(link.consumer, 0.0)
    seen = 0.0
    if uses > 0:
        # A flow may be known without a transition: calls in between hide the producer.
        parameter = link.input.split(".", 1)[0].removesuffix("[]")
        flow = Flow(link.producer, link.output, link.consumer, parameter)
        in_order = history.weight(link.producer, link.consumer) * uses
        seen = min(uses, max(in_order, history.flows.get(flow, 0.0)))
    score = 0.0
    if learned:
        score = learned.get((link.producer, link.output, link.consumer, link.input), 0.0)
    return (seen + PRIOR * max(COLD * link.fit, score)) / (uses + PRIOR)
