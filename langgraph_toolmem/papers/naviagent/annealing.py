"""The heuristic search of the paper (NaviAgent, arXiv 2506.19500, section 4): annealing with a population of chains.

A candidate is a set of genes, one number per input: the option that it takes. Decoding starts at the target and meets
inputs as steps join. A gene that cannot be taken (a circle, too deep) falls to the next option that can, at last to the
user. Children mix the genes of two parents and change with probability mutation·T. A child takes its parent's place if
it is fitter, or with probability e^(Δ/(T·spread)). T falls by the cooling factor each generation. The best candidate
of all generations is the answer [R].

By default the search is `plan.alphabeta`, which is exact by another measure. Of recorded calls so many have all their
producers in the best chain, with annealing and with alpha–beta: 64.3 and 61.2 %, 65.9 and 82.7, 85.9 and 92.9, 43.4 and
43.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from langgraph_toolmem.navigator.plan.alphabeta import Solution
from langgraph_toolmem.navigator.plan.problem import Assignment, Choice, PlanSearch, step_depths
from langgraph_toolmem.text.meaning import Port

Genes = dict[tuple[str, str, str], int]


@dataclass(frozen=True, slots=True)
class Cooling:
    """Numbers of the search; the paper gives none of them [R].

    Attributes:
        start, factor, coldest: T of the first generation, its factor from one to the next, and T at the end.
        population: candidates.
        mutation: share of the genes that change at T = 1.
        spread: difference of fitness that counts as one at T = 1.
    """

    start: float = 1.0
    factor: float = 0.9
    coldest: float = 0.05
    population: int = 16
    mutation: float = 0.3
    spread: float = 0.1


@dataclass(frozen=True, slots=True)
class GeneCandidate:
    """One set of genes, as they were taken, with the chain that they decode to."""

    genes: Genes
    draft: Assignment
    fitness: float


def anneal(problem: PlanSearch, random: Random, expired: Callable[[], bool] = lambda: False) -> Solution:
    """Return the fittest draft of the search.

    Args:
        problem: the target and its options.
        random: the same seed gives the same answer, unless time runs out.
        expired: returns True if time is up. At least one candidate is tried.
    """
    cooling = Cooling()
    candidates = [_born(problem, {}, random)]
    while len(candidates) < cooling.population and not expired():
        candidates.append(_born(problem, {}, random, changed=0.5))
    nodes = len(candidates)
    best = candidates[0]
    for candidate in candidates:
        best = _fitter(best, candidate)
    temperature, cut_short = cooling.start, False
    while temperature > cooling.coldest and not cut_short:
        for index, parent in enumerate(candidates):
            if nodes >= problem.settings.max_nodes or expired():
                cut_short = True
                break
            partner = _fitter(random.choice(candidates), random.choice(candidates))
            genes = _mixed(parent.genes, partner.genes, random)
            child = _born(problem, genes, random, cooling.mutation * temperature)
            nodes += 1
            gain = child.fitness - parent.fitness
            if gain >= 0 or random.random() < math.exp(gain / (temperature * cooling.spread)):
                candidates[index] = child
                best = _fitter(best, child)
        temperature *= cooling.factor
    # The genes that a candidate took decode to its own draft: nothing is drawn where nothing changes.
    return Solution(best.draft, best.fitness, cut_short, nodes)


def _fitter(one: GeneCandidate, other: GeneCandidate) -> GeneCandidate:
    """Return the fitter candidate, of equal ones the first."""
    return other if other.fitness > one.fitness else one


def _born(problem: PlanSearch, genes: Genes, random: Random, changed: float = 0.0) -> GeneCandidate:
    """Return the candidate of some genes; an input without a gene takes its first option."""
    draft: Assignment = {}
    taken: Genes = {}
    levels = {problem.target: 0}
    waiting: list[Port] = list(problem.needs(problem.target))
    for port in waiting:  # grows while steps join
        options = problem.options(port)
        start = genes.get(port.key, 0)
        if len(options) > 1 and random.random() < changed:
            start = random.randrange(len(options))
        for place in range(start, start + len(options)):
            index = place % len(options)
            choice = options[index]
            draft[port.key] = choice
            after: dict[str, int] | None = levels
            if choice.kind == "step":
                after = step_depths(draft, problem.target, problem.settings.depth)
            if after is None:  # a circle, or too deep
                del draft[port.key]
                continue
            taken[port.key] = index
            if choice.kind == "step" and choice.origin not in levels:
                waiting += problem.needs(choice.origin)
            levels = after
            break
    return GeneCandidate(taken, draft, fitness(draft, problem))


def _mixed(one: Genes, other: Genes, random: Random) -> Genes:
    """Return the genes of one candidate, and about half of those in which the other differs."""
    mixed = dict(one)
    for key, gene in other.items():
        if one.get(key) != gene and random.random() < 0.5:
            mixed[key] = gene
    return mixed


def fitness(draft: Assignment, problem: PlanSearch) -> float:
    """Return compactness + share of parameter nodes − depth + mean weight − path complexity, weighted [R].

    Our reading, each part from 0 to 1 and of weight 0.2: compactness is the mean of 1/depth over the steps before the
    target (1 if there are none); the share is that of the inputs that somebody can give (the user's count 1, those that
    the user or a system may know 0.5, those of a system 0); depth is the longest way to the target by the most allowed;
    the mean weight is that over the inputs that are not the user's (1 for a known value, 0 for one that is asked for
    nevertheless); complexity is the number of steps before the target by 8, at most 1. Inputs that share a question
    count once. Asking for what only a system knows costs 2.0, more than all parts can make good.
    """
    had = {"user": 1.0, "either": 0.5, "produced": 0.0}
    depth = problem.settings.depth
    levels = step_depths(draft, problem.target, depth) or {problem.target: 0}
    others = len(levels) - 1
    given = [choice for choice in draft.values() if choice.kind != "user"]
    asked = _asked(draft)
    inputs = len(asked) + len(given)
    compactness = share = mean_weight = 1.0
    if others:
        compactness = sum(1 / level for level in levels.values() if level) / others
    if inputs:
        share = (sum(had[choice.sort] for choice in asked) + len(given)) / inputs
    weights = [choice.value for choice in given] + [0.0 for choice in asked if choice.sort != "user"]
    if weights:
        mean_weight = sum(weights) / len(weights)
    parts = (compactness, share, -max(levels.values()) / max(1, depth), mean_weight, -min(1.0, others / 8))
    wrong = sum(choice.sort == "produced" for choice in asked)
    return 0.2 * sum(parts) - 2.0 * wrong


def _asked(draft: Assignment) -> list[Choice]:
    """Return one choice of each question to the user: of the inputs that share it, the hardest to answer for."""
    asked: dict[tuple[object, ...], Choice] = {}
    of_the_user = [choice for choice in draft.values() if choice.kind == "user"]
    for choice in sorted(of_the_user, key=lambda choice: -choice.value):
        asked[choice.question] = choice
    return list(asked.values())
