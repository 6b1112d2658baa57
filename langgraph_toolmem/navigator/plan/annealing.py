"""The heuristic search of the paper: simulated annealing with a population of candidate chains [R].

A candidate is a set of genes, one number per input: the option that it takes. Decoding starts at the target and meets
inputs as steps join. A gene that cannot be taken (a circle, too deep) falls to the next option that can, at last to the
user. Children mix the genes of two parents and change with probability mutation·T. A child takes its parent's place if
it is fitter, or with probability e^(Δ/(T·spread)). T falls by the cooling factor each generation. The best candidate
of all generations is the answer.

It is here because it was published. Of recorded calls so many have all their producers in the best chain, with
annealing and with alpha–beta: 64.3 and 61.2 %, 65.9 and 82.7, 85.9 and 92.9, 43.4 and 43.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter
from random import Random
from typing import Final

from langgraph_toolmem.navigator.plan.alphabeta import Solution
from langgraph_toolmem.navigator.plan.problem import Assignment, PlanSearch, step_depths
from langgraph_toolmem.text.meaning import Port

Genes = dict[tuple[str, str, str], int]
Candidate = tuple[float, Genes]
"""Fitness and genes."""

START: Final = 1.0
COOLING: Final = 0.9
COLDEST: Final = 0.05
"""T of the first generation, its factor from one to the next, and T at the end."""
POPULATION: Final = 16
MUTATION: Final = 0.3
"""Share of the genes that change at T = 1."""
PART: Final = 0.2
"""Weight of each part of the fitness."""
BIG: Final = 8
"""Steps before the target that make a chain as complex as can be."""
SYSTEM_VALUE: Final = 2.0
HAD: Final = {"user": 1.0, "either": 0.5, "produced": 0.0}
"""Share of an input that is asked of the user, by whose value it is."""
SPREAD: Final = 0.1
"""Difference of fitness that counts as one at T = 1."""


def anneal(problem: PlanSearch, random: Random, expired: Callable[[], bool] = lambda: False) -> Solution:
    """Return the fittest draft of the search.

    Args:
        problem: the target and its options.
        random: the same seed gives the same answer, unless time runs out.
        expired: returns True if time is up. At least one candidate is tried.
    """

    def born(genes: Genes, changed: float = 0.0) -> Candidate:
        draft, taken = _decoded(problem, genes, random, changed)
        return fitness(draft, problem), taken

    candidates, nodes = [born({})], 1
    while len(candidates) < POPULATION and not expired():
        candidates.append(born({}, changed=0.5))
        nodes += 1
    best = max(candidates, key=itemgetter(0))
    temperature, cut_short = START, False
    while temperature > COLDEST and not cut_short:
        for index, parent in enumerate(candidates):
            if nodes >= problem.settings.max_nodes or expired():
                cut_short = True
                break
            fitter = max(random.choice(candidates), random.choice(candidates), key=itemgetter(0))
            child = born(_mixed(parent[1], fitter[1], random), MUTATION * temperature)
            nodes += 1
            gain = child[0] - parent[0]
            if gain >= 0 or random.random() < math.exp(gain / (temperature * SPREAD)):
                candidates[index] = child
                best = max(best, child, key=itemgetter(0))
        temperature *= COOLING
    return Solution(_decoded(problem, best[1], random)[0], best[0], cut_short, nodes)


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


def fitness(draft: Assignment, problem: PlanSearch) -> float:
    """Return compactness + share of parameter nodes − depth + mean weight − path complexity, weighted [R].

    Our reading, each part from 0 to 1: compactness is the mean of 1/depth over the steps before the target (1 if there
    are none); the share is that of the inputs that somebody can give (see `HAD`); depth is the longest way to the
    target by the most allowed; the mean weight is that over the inputs that are not the user's (1 for a known value, 0
    for one that is asked for nevertheless); complexity is the number of steps before the target by `BIG`, at most 1.
    Inputs that share a question count once. Asking for what only a system knows costs `SYSTEM_VALUE`, more than all
    parts can make good.
    """
    depth = problem.settings.depth
    levels = step_depths(draft, problem.target, depth) or {problem.target: 0}
    others = len(levels) - 1
    # Each question once: as the input that is hardest to answer for.
    users = sorted((each for each in draft.values() if each.kind == "user"), key=lambda each: -each.value)
    asked = {choice.question: choice for choice in users}.values()
    given = [choice for choice in draft.values() if choice.kind != "user"]
    inputs = len(asked) + len(given)
    share = (sum(HAD[choice.sort] for choice in asked) + len(given)) / inputs if inputs else 1.0
    weights = [choice.value for choice in given] + [0.0 for choice in asked if choice.sort != "user"]
    parts = (
        sum(1 / level for level in levels.values() if level) / others if others else 1.0,
        share,
        -max(levels.values()) / max(1, depth),
        sum(weights) / len(weights) if weights else 1.0,
        -min(1.0, others / BIG),
    )
    return PART * sum(parts) - SYSTEM_VALUE * sum(choice.sort == "produced" for choice in asked)
