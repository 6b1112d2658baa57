"""Scores of tools for a request: a weighted sum of signals, of the tool itself and of its toolkit.

Every piece of the request (sentence or clause) gives each tool a closeness from 0 to 1, where 1 is that piece's best
tool: by words, or by words and meaning together,

    h(p, t) = (b(p, t) / max_t b + 2 · (c(p, t) / max_t c)^4) / max_t (…)

with b BM25 and c the cosine of an embedder. A tool's own signals are its best piece, and how much of its name and
description the request has. Tools of one toolkit are used together, so how well the toolkit as a whole covers the
pieces counts too: for each piece its best tool, averaged over the pieces.

The weights were fitted by maximum likelihood of the needed tools (softmax over all tools) on one half of the
requests of a public catalogue, split by toolkit; ``python -m benchmarks.tool_search`` reports the other half.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.navigator.tool_search.index import DESCRIPTION, NAME, TOOLKIT, Floats, IndexAnswer

SIGNALS: Final = (
    "sentence", "clause", "whole request", "name", "description", "parameters", "neighbouring words",
    "toolkit: sentences", "toolkit: best sentence", "toolkit: clauses", "toolkit: sum of clauses",
    "toolkit: whole request", "toolkit: text", "toolkit: name", "toolkit: size",
)  # fmt: skip
MEANING_SIGNALS: Final = ("meaning", "meaning: sentence", "toolkit: meaning")
"""Further signals where there is an embedder."""

WEIGHTS: Final[Floats] = np.array(
    [1.13, 1.53, -0.85, 1.21, 0.8, 0.83, 0.86, 0.77, 1.39, 1.37, 0.64, 0.68, 1.74, 1.84, -1.18], dtype=np.float32
)
"""Of SIGNALS. The whole request has a negative one because its pieces say the same again."""
WEIGHTS_WITH_MEANING: Final[Floats] = np.array(
    [
        0.61, 1.45, -1.26, 1.06, 0.64, 0.75, 0.81, 1.19, 2.14, 0.99, 0.34, -0.8, 1.88, 1.25, -1.09,
        0.82, 1.0, 0.79,
    ],
    dtype=np.float32,
)  # fmt: skip
"""Of SIGNALS and MEANING_SIGNALS, fitted with all-MiniLM-L6-v2."""
COVERAGE: Final = 1.0
"""What it counts that a tool answers a clause that none before it answers."""
CANDIDATES: Final = 60
"""How many of the highest scores are looked at for that, at least."""
_ODDS: Final = (1.1, -10.72)
_ODDS_WITH_MEANING: Final = (1.05, -11.17)


def probability(score: float, *, meaning: bool) -> float:
    """That a tool of this weighted sum is needed: 1 / (1 + e^−(a·score + b)), a and b fitted like the weights."""
    slope, intercept = _ODDS_WITH_MEANING if meaning else _ODDS
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, slope * score + intercept))))


class Kits:
    """Best values within each toolkit, over a matrix of pieces and tools."""

    def __init__(self, kit: npt.NDArray[np.int32], alive: npt.NDArray[np.bool_]) -> None:
        self.of = kit
        self.order = np.argsort(kit, kind="stable")
        kits = int(kit.max()) + 1 if len(kit) else 0
        self.sizes = np.bincount(kit[alive], minlength=kits)
        self._there = np.unique(kit)
        self._starts = np.searchsorted(kit[self.order], self._there)
        self._kits = kits

    def best(self, values: Floats) -> Floats:
        """(P, N) by tool -> (P, K) by toolkit."""
        found = np.zeros((len(values), self._kits), dtype=np.float32)
        if len(self._there):
            found[:, self._there] = np.maximum.reduceat(values[:, self.order], self._starts, axis=1)
        return found


def closeness(answer: IndexAnswer, cosines: Floats | None) -> Floats:
    """h (P, N): how close each piece and each tool are, 1 for a piece's best tool; see the module."""
    near = _shares(answer.texts)
    return near if cosines is None else _shares(near + 2 * _shares(np.maximum(cosines, 0)) ** 4)


def completing(scores: Floats, near: Floats, k: int) -> list[int]:
    """Places of the first k in the order in which they complete a set.

    Each time the tool with the largest score + COVERAGE · max_p (h(p, t) − max_{t' chosen} h(p, t')), with p the
    clauses: what no tool so far answers counts once more.

    Args:
        scores: (N,) of the candidates.
        near: (P, N) h of the clauses.
    """
    left = scores.astype(np.float64)
    answered = np.zeros((len(near), 1), dtype=np.float32)
    chosen: list[int] = []
    for _ in range(min(k, len(left))):
        more = np.maximum(near - answered, 0).max(axis=0, initial=0)
        best = int((left + COVERAGE * more).argmax())
        chosen.append(best)
        left[best] = -np.inf
        answered = np.maximum(answered, near[:, best : best + 1])
    return chosen


def signals(answer: IndexAnswer, kits: Kits, sentences: int, near: Floats, cosines: Floats | None) -> Floats:
    """(S, N): the signals of every tool, S as SIGNALS and, with cosines, MEANING_SIGNALS.

    Args:
        sentences: how many pieces after the first one are sentences; the others are clauses.
        near: (P, N) their `closeness`.
        cosines: (P, N) of the same pieces and tools, or None.
    """
    texts = answer.texts
    s, c = slice(1, 1 + sentences), slice(1 + sentences, None)
    kit_near = kits.best(near)
    kit_sum = kits.best(texts)[c].sum(axis=0)
    rows = [
        near[s].max(axis=0),
        near[c].max(axis=0),
        near[0],
        answer.covered[NAME],
        answer.covered[DESCRIPTION],
        _share(answer.described),
        _share(answer.pairs),
        kit_near[s].mean(axis=0)[kits.of],
        kit_near[s].max(axis=0)[kits.of],
        kit_near[c].mean(axis=0)[kits.of],
        _share(kit_sum)[kits.of],
        kit_near[0][kits.of],
        _share(answer.kits)[kits.of],
        answer.covered[TOOLKIT],
        (np.log(np.maximum(kits.sizes, 1)) / 3)[kits.of],
    ]
    if cosines is not None:
        likeness = np.maximum(cosines, 0)
        rows += [likeness[0] * 2, likeness[s].max(axis=0) * 2, kits.best(likeness[:1])[0][kits.of] * 2]
    found: Floats = np.stack(rows).astype(np.float32)
    return found


def _shares(values: Floats) -> Floats:
    """Each row divided by its largest value."""
    found: Floats = values / np.maximum(values.max(axis=1, keepdims=True), 1e-6)
    return found


def _share(values: Floats) -> Floats:
    found: Floats = values / max(float(values.max(initial=0)), 1e-6)
    return found
