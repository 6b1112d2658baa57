"""How likely a link between two tools works: the seam where learned probabilities take the place of counts.

A scorer is anything with a method ``weight(link) -> float``; ``Navigator(scorer=...)`` and
``memory.navigator.plan(scorer=...)`` take one. The default one, `RecordScorer`, joins structure and record as a mean of
the two, structure counting as much as `prior` uses [O]:

    w(i→j) = (n + prior · cold · fit) / (N(j) + prior),    n = max(N(i→j), uses of this very flow)

With no record that is ``cold · fit``; with a long one N(i→j) / N(j), the paper's weight. A link that looks right and
that is never taken where it could be thus loses against those that are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.history import Flow, History


class Link(NamedTuple):
    """A part of one tool's output that may become an input of another tool.

    Attributes:
        producer: tool whose output it is.
        output: path in that output.
        consumer: tool whose input it is.
        input: path of that input.
        fit: how well they fit by structure alone, 0 to 1.
        kind: "cluster": they mean the same; "flow": seen in runs; "near": similar words only.
    """

    producer: str
    output: str
    consumer: str
    input: str
    fit: float
    kind: Literal["cluster", "flow", "near"] = "cluster"


class EdgeScorer(Protocol):
    """Weighs links; a trained link predictor is one."""

    def weight(self, link: Link) -> float:
        """How likely the link works, 0 to 1. Called thousands of times a search: microseconds."""
        ...


def check_scorer(scorer: object) -> None:
    """Whether something can weigh links.

    Raises:
        ConfigurationError: it has no method ``weight(link)``, or it is a class and no object.
    """
    if isinstance(scorer, type) or not callable(getattr(scorer, "weight", None)):
        named = f"the class {scorer.__name__}" if isinstance(scorer, type) else type(scorer).__name__
        raise ConfigurationError(f"scorer is an object with a method weight(link) -> float, not {named}.")


@dataclass(frozen=True)
class RecordScorer:
    """Structure and record; see the module.

    Attributes:
        history: what runs have shown.
        prior: uses of a tool that structure counts as much as.
        cold: weight of a perfect fit without any record.
    """

    history: History = field(default_factory=History)
    prior: float = 2.0
    cold: float = 0.6

    def weight(self, link: Link) -> float:
        """See the module."""
        history = self.history
        uses = history.uses.get(link.consumer, 0.0)
        seen = 0.0
        if uses > 0:
            seen = history.weight(link.producer, link.consumer) * uses
            parameter = link.input.split(".", 1)[0].removesuffix("[]")
            flow = Flow(link.producer, link.output, link.consumer, parameter)
            seen = min(uses, max(seen, history.flows.get(flow, 0.0)))
        return (seen + self.prior * self.cold * link.fit) / (uses + self.prior)
