"""Weights of links between tools, by structure, record and training.

Structure and record give each link a weight, a mean of the two in which structure counts as much as `PRIOR` uses [O]:

    w(i→j) = (n + PRIOR · COLD · fit) / (N(j) + PRIOR),    n = max(N(i→j), uses of this very flow)

With no record that is ``COLD · fit``; with a long one N(i→j) / N(j), the paper's weight. A link that looks right and
that is never taken where it could be thus loses against those that are.

A trained table (`papers.naviagent.learned`) has a score p(o→i) of each link from output o to input i. It takes the
place of ``COLD · fit`` if it is more [O]. It only raises weights: links that were not seen yet are learned as unlikely,
and plans lost right chains by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from langgraph_toolmem.navigator.history import Flow, History

PRIOR: Final = 2.0
"""Uses of a tool that structure, or a learned probability, counts as much as."""
LINK_TABLE: Final = "links.json"
"""File in the memory's folder with the scores that training left (`papers.naviagent.learned`)."""
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


LinkScores = Mapping[tuple[str, str, str, str], float]
"""Producer, its output, consumer, its input -> p, the score that training gave the link."""


def weight_of(link: Link, history: History, learned: LinkScores) -> float:
    """Return the weight of a link, 0 to 1; see the module."""
    uses = history.uses.get(link.consumer, 0.0)
    seen = 0.0
    if uses > 0:
        # A flow may be known where the order of tools is not: calls in between hide who came right before.
        parameter = link.input.split(".", 1)[0].removesuffix("[]")
        flow = Flow(link.producer, link.output, link.consumer, parameter)
        in_order = history.weight(link.producer, link.consumer) * uses
        seen = min(uses, max(in_order, history.flows.get(flow, 0.0)))
    score = 0.0
    if learned:
        score = learned.get((link.producer, link.output, link.consumer, link.input), 0.0)
    return (seen + PRIOR * max(COLD * link.fit, score)) / (uses + PRIOR)
