"""The weights of tool search, fitted: softmax regression of the needed tools on the signals, by L-BFGS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from benchmarks.tool_search_data import CATALOGUE, CHAINS, OTHERS, Episode, episodes, requests, tools_of
from langgraph_toolmem.navigator.tool_search.precedents import Precedents
from langgraph_toolmem.navigator.tool_search.prerequisites import PrerequisiteSearch
from langgraph_toolmem.navigator.tool_search.search import ToolSearch
from langgraph_toolmem.runs.tools import ToolSpec

Floats = npt.NDArray[np.float64]
Make = Callable[[Sequence[ToolSpec]], ToolSearch]

OTHER_WEIGHT: Final = 0.06
"""What each further set counts, against 1 of the catalogue."""
PENALTY: Final = 0.001


class Rows(NamedTuple):
    """Signals (Q, S, N) of all tools for each request, which tools it needs (Q, N), and what the set counts."""

    signals: npt.NDArray[np.float32]
    needed: npt.NDArray[np.float32]
    weight: float


def softmax_regression(sets: Sequence[Rows], penalty: float = PENALTY) -> Floats:
    """w that maximises Σ_sets weight · mean_q mean_{needed t} ln softmax_t(w · s(q, t)) − penalty · |w|²."""

    def loss(weights: Floats) -> tuple[float, Floats]:
        value, gradient = penalty * float(weights @ weights), 2 * penalty * weights
        for signals, needed, share in sets:
            wanted = needed / needed.sum(axis=1, keepdims=True)
            sums = np.einsum("qsn,s->qn", signals, weights.astype(np.float32), optimize=True)
            sums -= sums.max(axis=1, keepdims=True)
            powers = np.exp(sums)
            total = powers.sum(axis=1, keepdims=True)
            value -= share * float(((sums - np.log(total)) * wanted).sum(axis=1).mean())
            residual = (powers / total - wanted) * (share / len(signals))
            gradient = gradient + np.einsum("qsn,qn->s", signals, residual, optimize=True)
        return value, gradient

    start = np.zeros(sets[0].signals.shape[1])
    found: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    return found


def odds(sets: Sequence[Rows], weights: Floats) -> tuple[float, float]:
    """a and b of 1 / (1 + e^−(a·sum + b)), by maximum likelihood."""
    sums = [np.einsum("qsn,s->qn", rows.signals, weights.astype(np.float32)).ravel() for rows in sets]
    x, y = np.concatenate(sums).astype(np.float64), np.concatenate([rows.needed.ravel() for rows in sets])

    def loss(line: Floats) -> tuple[float, Floats]:
        z = line[0] * x + line[1]
        p = 1 / (1 + np.exp(-np.clip(z, -50, 50)))
        residual = (p - y) / len(y)
        return float((np.logaddexp(0, z) - y * z).mean()), np.array([residual @ x, residual.sum()])

    found = minimize(loss, np.array([1.0, -10.0]), jac=True, method="L-BFGS-B").x
    return float(found[0]), float(found[1])


def fit_search(data: Path, make: Make) -> tuple[Floats, tuple[float, float]]:
    """The weights of `tool_search.ranking` from the requests that are not held out, and the odds in the catalogue."""
    sets: list[Rows] = []
    for name in (CATALOGUE, *OTHERS):
        given = tools_of(data, name)
        # Once more without toolkits: not everybody has them, and the weights have to do for both.
        plain = [replace(each, toolkit="", category="") for each in given]
        variants = [given] if name == CATALOGUE else [given, plain]
        asked = [each for each in requests(data, name) if not each.held_out]
        for tools in variants:
            search = make(tools)
            rows = []
            for each in asked:
                names, signals = search.signals(each.text)
                rows.append((signals, np.array([tool in each.relevant for tool in names])))
            sets.append(_rows(rows, 1.0 if name == CATALOGUE else OTHER_WEIGHT / len(variants)))
    weights = softmax_regression(sets)
    return weights, odds(sets[:1], weights)


def fit_chains(data: Path, make: Make) -> tuple[Floats, tuple[float, float]]:
    """The weights of `prerequisites`: each task that is not held out, with the runs of the others as precedents."""
    sets = []
    for name in CHAINS:
        found = episodes(data, name)
        asked, known = ([each for each in found if each.held_out is side] for side in (False, True))
        chains = PrerequisiteSearch(make(tools_of(data, name)), precedents(known))
        rows = []
        for each in asked:
            if each.upstream:
                names, signals = chains.signals(each.request, each.target, {})
                kept = np.array([tool != each.target for tool in names])
                rows.append((signals[:, kept], np.array([tool in each.upstream for tool in names])[kept]))
        sets.append(_rows(rows, 1 / len(CHAINS)))
    weights = softmax_regression(sets)
    return weights, odds(sets, weights)


def precedents(found: Iterable[Episode]) -> Precedents:
    """Episodes as precedents."""
    answer = Precedents()
    for each in found:
        answer.add(each.tools, each.request)
    return answer


def _rows(rows: Sequence[tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]], weight: float) -> Rows:
    return Rows(np.stack([s for s, _ in rows]), np.stack([n for _, n in rows]).astype(np.float32), weight)
