"""The heuristic search of the paper: simulated annealing with a population of candidate chains [R].

A candidate is a set of genes, one number per input: the option that it takes. Decoding starts at the target and meets
inputs as steps join. A gene that cannot be taken (a circle, too deep) falls to the next option that can, at last to the
user. Children mix the genes of two parents and change with probability mutation·T. A child takes its parent's place if
it is fitter, or with probability e^(Δ/(T·spread)). T falls by the cooling factor each generation. The best candidate
of all generations is the answer.

It is here because it was published; alpha–beta scored higher. Of recorded calls so many have all their producers in
the best chain, with annealing and with alpha–beta: 50.4 and 59.6 %, 62.9 and 81.8, 85.9 and 92.9, 43.7 and 43.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from langgraph_toolmem.navigator.plan.alphabeta import Solution
from langgraph_toolmem.navigator.plan.problem import Assignment, PlanSearch, fitness, step_depths
from langgraph_toolmem.text.meaning import Port

Genes = dict[tuple[str, str, str], int]
Candidate = tuple[float, Genes]
"""Fitness and genes."""

COLDEST: Final = 0.05
SPREAD: Final = 0.1
"""Difference of fitness that counts as one at T = 1."""


def anneal(problem: PlanSearch, random: Random, expired: Callable[[], bool] = lambda: False) -> Solution:
    """Return the fittest draft of the search.

    Args:
        problem: the target and its options.
        random: the same seed gives the same answer, unless time runs out.
        expired: returns True if time is up. At least one candidate is tried.
    """
    settings = problem.settings
    scores: dict[frozenset[tuple[tuple[str, str, str], int]], float] = {}
    nodes = 0

    def born(genes: Genes, changed: float = 0.0) -> Candidate:
        nonlocal nodes
        nodes += 1
        draft, taken = _decoded(problem, genes, random, changed)
        key = frozenset(taken.items())
        if key not in scores:
            scores[key] = fitness(draft, problem)
        return scores[key], taken

    candidates = [born({})]
    while len(candidates) < settings.population and not expired():
        candidates.append(born({}, changed=0.5))
    best = max(candidates, key=_score)
    temperature, cut_short = settings.temperature, False
    while temperature > COLDEST and not cut_short:
        for index, parent in enumerate(candidates):
            if nodes >= settings.max_nodes or expired():
                cut_short = True
                break
            child = born(_mixed(parent[1], _fitter(candidates, random)[1], random), settings.mutation * temperature)
            gain = child[0] - parent[0]
            if gain >= 0 or random.random() < math.exp(gain / (temperature * SPREAD)):
                candidates[index] = child
                best = max(best, child, key=_score)
        temperature *= settings.cooling
    return Solution(_decoded(problem, best[1], random)[0], best[0], cut_short, nodes)


def _score(candidate: Candidate) -> float:
    return candidate[0]


def _fitter(candidates: Sequence[Candidate], random: Random) -> Candidate:
    """Return the fitter one of two candidates."""
    return max(random.choice(candidates), random.choice(candidates), key=_score)


def _mixed(one: Genes, other: Genes, random: Random) -> Genes:
    """Return the genes of one candidate, and about half of those in which the other differs."""
    return {**one, **{key: gene for key, gene in other.items() if one.get(key) != gene and random.random() < 0.5}}


def _decoded(problem: PlanSearch, genes: Genes, random: Random, changed: float = 0.0) -> tuple[Assignment, Genes]:
    """Return a valid draft and the genes that it took; an input without a gene takes its first option."""
    draft: Assignment = {}
    taken: Genes = {}
    levels = {problem.target: 0}
    waiting: list[Port] = list(problem.needs(problem.target))
    for port in waiting:  # grows while steps join
        options = problem.options(port)
        start = genes.get(port.key, 0)
        if len(options) > 1 and random.random() < changed:
            start = random.randrange(len(options))
        for index in (place % len(options) for place in range(start, start + len(options))):
            choice = options[index]
            draft[port.key] = choice
            after = step_depths(draft, problem.target, problem.settings.depth) if choice.kind == "step" else levels
            if after is not None:
                taken[port.key] = index
                if choice.kind == "step" and choice.origin not in levels:
                    waiting += problem.needs(choice.origin)
                levels = after
                break
            del draft[port.key]
    return draft, taken
