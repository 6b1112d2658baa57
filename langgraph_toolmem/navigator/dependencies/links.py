"""Weights of links between tools: the seam where learned probabilities take the place of structure.

Structure and record give each link a weight (`RecordScorer`), a mean of the two in which structure counts as much as
`PRIOR` uses [O]:

    w(i→j) = (n + PRIOR · COLD · fit) / (N(j) + PRIOR),    n = max(N(i→j), uses of this very flow)

With no record that is ``COLD · fit``; with a long one N(i→j) / N(j), the paper's weight. A link that looks right and
that is never taken where it could be thus loses against those that are.

An `EdgeScorer` (``Navigator(scorer=...)``, ``memory.navigator.plan(scorer=...)``) may weigh links otherwise, knowing
that weight and what it is made of, and may propose links that structure does not find. A trained table (`learned`) has
a score p(o→i) of each link from output o to input i, and says [O]:

    w = max(w(i→j), (n + PRIOR · p(o→i)) / (N(b) + PRIOR))

So a learned score stands where structure stood if it is more, and what was seen since it was learned counts as it did.
It is never less than without: a link that was not seen yet is learned as unlikely, and plans lost right chains by that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.history import Flow, History
from langgraph_toolmem.text.meaning import Port, canonical

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
            of, or its document links the two; "flow": seen in runs; "near": similar words only; "predicted": a scorer
            proposed it.
    """

    producer: str
    output: str
    consumer: str
    input: str
    fit: float
    kind: Literal["cluster", "route", "flow", "near", "predicted"] = "cluster"


class Known(NamedTuple):
    """A link's weight by structure and record.

    Attributes:
        weight: w, 0 to 1.
        seen: n, good uses of it.
        uses: N(j), good uses of its consumer.
    """

    weight: float
    seen: float
    uses: float

    def joined(self, probability: float) -> float:
        """The weight with a learned probability in place of structure; see the module."""
        return (self.seen + PRIOR * probability) / (self.uses + PRIOR)


class EdgeScorer:
    """Weighs links, and may propose some. Override what you need; every default has no opinion."""

    def weigh(self, links: Sequence[Link], known: Sequence[Known]) -> Sequence[float | None]:
        """Return how likely each link works, 0 to 1; None: what is known of it stands. Microseconds a link."""
        return [None] * len(links)

    def propose(self, port: Port, k: int) -> Sequence[str]:
        """At most k tools that are likely to give an input its value, likeliest first, whatever structure says."""
        return ()

    def before(self, tool: str) -> Mapping[str, float]:
        """Return how likely other tools feed a tool, 0 to 1, those about which there is an opinion."""
        return {}


def check_scorer(scorer: object) -> None:
    """Return True if something can weigh links.

    Raises:
        ConfigurationError: it lacks a method of `EdgeScorer`, or it is a class and no object.
    """
    if isinstance(scorer, type) or not all(callable(getattr(scorer, name, None)) for name in _METHODS):
        named = f"the class {scorer.__name__}" if isinstance(scorer, type) else type(scorer).__name__
        raise ConfigurationError(
            f"scorer is an object with the methods {', '.join(_METHODS)}, such as an EdgeScorer, not {named}."
        )


_METHODS: Final = ("weigh", "propose", "before")


@dataclass(frozen=True)
class RecordScorer:
    """Structure and record; see the module.

    Attributes:
        history: what runs have shown.
    """

    history: History = field(default_factory=History)

    def known(self, link: Link) -> Known:
        """See the module."""
        history = self.history
        uses = history.uses.get(link.consumer, 0.0)
        seen = 0.0
        if uses > 0:
            seen = history.weight(link.producer, link.consumer) * uses
            parameter = link.input.split(".", 1)[0].removesuffix("[]")
            flow = Flow(link.producer, link.output, link.consumer, parameter)
            seen = min(uses, max(seen, history.flows.get(flow, 0.0)))
        return Known((seen + PRIOR * COLD * link.fit) / (uses + PRIOR), seen, uses)


def likeness(link: Link) -> float:
    """Return how much an output and an input are called the same, 0 to 1; 1 if they are of one cluster."""
    if link.kind in ("cluster", "route") and link.fit > 0:
        return 1.0
    one, other = (set(canonical(path.replace("[]", "").rsplit(".", 1)[-1])) for path in (link.output, link.input))
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0
