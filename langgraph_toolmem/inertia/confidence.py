"""How sure a call is: the record of its rules, corrected by boosted trees over what else is known of it.

The record (`record.probability`) is honest from the first turns on, but knows five rules only. Trees are fitted to what
it gets wrong: Newton boosting of the log-odds (Friedman 2001) with oblivious trees, one split per level, whose leaves
are shrunk towards 0: with little evidence the record is left as it is. They are fitted beside the host's turns, on a
bounded memory of the latest candidates, whenever that has grown by GROWTH; deciding takes a few numpy look-ups.
"""

from __future__ import annotations

import base64
import math
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langgraph_toolmem.base import threads
from langgraph_toolmem.graph.events import Event
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_EXAMPLES: Final = 8_000
FIRST_FIT: Final = 100
"""Examples from which trees are fitted."""
GROWTH: Final = 1.3
TREES: Final = 90
DEPTH: Final = 2
RATE: Final = 0.1
SHRINKAGE: Final = 10.0
"""Turns' worth of evidence for the record in every leaf."""
BINS: Final = 16

Floats: TypeAlias = "npt.NDArray[np.float64]"


def log_odds(p: float) -> float:
    """Of a probability, which is kept within 0.0001 and 0.9999."""
    p = min(max(p, 1e-4), 1 - 1e-4)
    return math.log(p / (1 - p))


@dataclass(slots=True)
class Weighed(Event):
    """Candidates were weighed, and what the model did is known.

    Attributes:
        turn: number of the model turn.
        examples: per candidate its features as `pack` writes them, and whether it was what the model did (1 or 0).
    """

    kind = "weighed"
    turn: int
    examples: list[list[Any]]


class Examples(Table):
    """The latest candidates whose outcome is known.

    Attributes:
        examples: [model turn, features, hit] of MAX_EXAMPLES at most, the oldest first.
        seen: how many there have been.
    """

    name = "confidence"
    parts = (
        "examples",
        "seen",
    )

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.examples: list[list[Any]] = []
        self.seen = 0

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {Weighed: self._add}

    def _add(self, turn: int, examples: list[list[Any]]) -> None:
        for example in examples:
            insort(self.examples, [turn, *example])
        del self.examples[:-MAX_EXAMPLES]
        self.seen += len(examples)


def pack(features: Sequence[float]) -> str:
    """Features as a short text; `unpack` reads it. Half precision is enough for trees."""
    import numpy as np

    return base64.b64encode(np.asarray(features, dtype="<f2").tobytes()).decode("ascii")


def unpack(examples: Sequence[Sequence[Any]]) -> tuple[Floats, Floats]:
    """(examples, features) and (examples,) of 0 and 1; those with another number of features than the last are left
    out.

    Args:
        examples: as `Examples` keeps them.
    """
    import numpy as np

    width = len(examples[-1][1])
    kept = [(packed, hit) for _, packed, hit in examples if len(packed) == width]
    raw = b"".join(base64.b64decode(packed) for packed, _ in kept)
    features = np.frombuffer(raw, dtype="<f2").astype(np.float64).reshape(len(kept), -1)
    return features, np.array([hit for _, hit in kept], dtype=np.float64)


class Trees:
    """Boosted oblivious trees over the log-odds of an offset, which is the first feature.

    Args:
        features: (examples, features).
        hits: (examples,) of 0 and 1.
    """

    def __init__(self, features: Floats, hits: Floats) -> None:
        import numpy as np

        count, width = features.shape
        self.width = width
        cuts = [np.unique(np.quantile(column, np.linspace(0, 1, BINS + 1)[1:-1])) for column in features.T]
        bins = np.stack(
            [np.searchsorted(c, column, side="right") for c, column in zip(cuts, features.T, strict=True)], 1
        )
        places = bins + np.arange(width) * BINS
        open_cuts = np.arange(BINS - 1) < np.array([len(c) for c in cuts])[:, None]
        self._feature = np.zeros((TREES, DEPTH), dtype=np.intp)
        self._cut = np.full((TREES, DEPTH), np.inf)
        self._leaf = np.zeros((TREES, 1 << DEPTH))
        self._bits = 1 << np.arange(DEPTH)
        odds = features[:, 0].copy()
        for tree in range(TREES):
            p = 1 / (1 + np.exp(-odds))
            gradient, curvature = hits - p, np.maximum(p * (1 - p), 1e-3)
            node = np.zeros(count, dtype=np.intp)
            for level in range(DEPTH):
                feature, cut = _best_split(places, node, gradient, curvature, 1 << level, open_cuts)
                if len(cuts[feature]):
                    self._feature[tree, level], self._cut[tree, level] = feature, cuts[feature][cut]
                    node += (bins[:, feature] > cut) * (1 << level)
            steps = np.bincount(node, gradient, 1 << DEPTH)
            self._leaf[tree] = RATE * steps / (np.bincount(node, curvature, 1 << DEPTH) + SHRINKAGE)
            odds += self._leaf[tree][node]

    def correction(self, features: Floats) -> Floats:
        """(candidates,): what the log-odds of the record are corrected by."""
        import numpy as np

        node = ((features[:, self._feature] >= self._cut) * self._bits).sum(2)
        return np.asarray(self._leaf[np.arange(TREES), node].sum(1), dtype=np.float64)


def _best_split(
    places: npt.NDArray[np.intp],
    node: npt.NDArray[np.intp],
    gradient: Floats,
    curvature: Floats,
    nodes: int,
    open_cuts: npt.NDArray[np.bool_],
) -> tuple[int, int]:
    """The feature and cut that explain most, summed over all nodes of a level."""
    import numpy as np

    _count, width = places.shape
    where = (node[:, None] * (width * BINS) + places).ravel()
    shape = (nodes, width, BINS)
    size = nodes * width * BINS
    g = np.bincount(where, np.repeat(gradient, width), size).reshape(shape)
    h = np.bincount(where, np.repeat(curvature, width), size).reshape(shape)
    left_g, left_h = g.cumsum(2)[:, :, :-1], h.cumsum(2)[:, :, :-1]
    right_g, right_h = g.sum(2, keepdims=True) - left_g, h.sum(2, keepdims=True) - left_h
    gain = (left_g**2 / (left_h + SHRINKAGE) + right_g**2 / (right_h + SHRINKAGE)).sum(0)
    best = int(np.argmax(np.where(open_cuts, gain, -1.0)))
    return best // (BINS - 1), best % (BINS - 1)


class Confidence:
    """Keeps the trees fitted. Safe to use from several threads.

    Args:
        examples: what they are fitted to.
        start: runs a fit; in a thread of its own unless a caller wants it done at once.
    """

    def __init__(self, examples: Callable[[], Examples], start: Callable[[Callable[[], None]], None]) -> None:
        self._examples, self._start = examples, start
        self._trees: Trees | None = None
        self._fitted = 0.0
        self._fitting = threads.lock()

    def probabilities(self, features: Floats) -> Floats:
        """(candidates,): of (candidates, features), the first of which is the log-odds that the record gives."""
        import numpy as np

        odds, trees = features[:, 0], self._trees
        if trees is not None and trees.width == features.shape[1]:
            odds = odds + trees.correction(features)
        return np.asarray(1 / (1 + np.exp(-odds)), dtype=np.float64)

    def look(self) -> None:
        """Begins a fit if the examples have grown enough; the caller holds the memory's lock. Never waits for one."""
        found = self._examples()
        if found.seen < max(FIRST_FIT, GROWTH * self._fitted) or not self._fitting.acquire(blocking=False):
            return
        examples, self._fitted = list(found.examples), float(found.seen)
        self._start(lambda: self._fit(examples))

    def _fit(self, examples: list[list[Any]]) -> None:
        try:
            self._trees = Trees(*unpack(examples))
        finally:
            self._fitting.release()


def in_thread(fit: Callable[[], None]) -> None:
    """Fit in a thread of its own, which the end of the interpreter awaits."""
    threads.start("toolmem-confidence", fit)


def at_once(fit: Callable[[], None]) -> None:
    """Fits now: for replays, whose result shall not depend on how fast a machine is."""
    fit()
