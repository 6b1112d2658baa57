"""The heuristic search of the paper (NaviAgent, arXiv 2506.19500, section 4): annealing with a population of chains.

A candidate is a set of genes, one number per input: the option that it takes. Decoding starts at the target and reaches
inputs as steps are added. A gene that cannot be used (a circle, too deep) is replaced by the next usable option,
finally by the user. Children mix the genes of two parents and change with probability mutation·T. A child replaces its
parent if it is fitter, or with probability e^(Δ/(T·spread)). T falls by the cooling factor each generation. The best
candidate of all generations is the answer [R].

By default the search is `plan.search.alpha_beta`, by another measure: the reliability of a chain. Share of recorded
calls whose producers are all in the best chain:

| | the paper (`strategy="annealing"`) | the default (`"alpha_beta"`) |
|---|---|---|
| 8 APIs (bfcl_v3_multi_turn) | 64.3 % | 61.2 % |
| shop (tau2_retail) | 65.9 % | 82.7 % |
| airline (tau2_airline) | 85.9 % | 92.9 % |
| chained functions (nestful) | 43.4 % | 43.1 % |

The paper finds the heuristic search 2.4 points better than alpha–beta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from random import Random
from typing import Final, NamedTuple

from langgraph_toolmem.navigator.plan.search import (
    Assignment,
    Choice,
    KnownBy,
    PlanSearch,
    PortKey,
    Solution,
    never,
    step_depths,
)
from langgraph_toolmem.text.meaning import Port

Genes = dict[PortKey, int]
"""Input -> the position of its choice among its options."""
WEIGHT_OF_A_PART: Final = 0.2
"""Weight of each of the five parts of the fitness [O]."""
PENALTY: Final = 2.0
"""Cost of a question for a value that only a system knows: more than all parts can compensate."""
WIDEST: Final = 8
"""Steps before the target at which a chain counts as fully complex [O]."""
ANSWERED: Final[Mapping[KnownBy, float]] = {"user": 1.0, "either": 0.5, "system": 0.0}
"""Expected share of answers to a question, by the source of its value."""


@dataclass(frozen=True, slots=True)
class Cooling:
    """Parameters of the search, which the paper does not give [R].

    Attributes:
        start, factor, coldest: T of the first generation, its factor from one to the next, and T at the end.
        population: candidates.
        mutation: share of the genes that change at T = 1.
        spread: difference of fitness that counts as 1 at T = 1.
    """

    start: float = 1.0
    factor: float = 0.9
    coldest: float = 0.05
    population: int = 16
    mutation: float = 0.3
    spread: float = 0.1


@dataclass(frozen=True, slots=True)
class GeneCandidate:
    """One set of used genes, with the chain that they decode to."""

    genes: Genes
    draft: Assignment
    fitness: float


def anneal(problem: PlanSearch, random: Random, expired: Callable[[], bool] = never) -> Solution:
    """Return the fittest draft of the search.

    Args:
        problem: the target and its options.
        random: the same seed gives the same answer, unless time runs out.
        expired: returns True if time is up. At least one candidate is tried.
    """
    cooling = Cooling()
    candidates = _first_generation(problem, cooling.population, random, expired)
    nodes = len(candidates)
    # Of equally fit ones the first: `max` keeps it.
    best = max(candidates, key=attrgetter("fitness"))
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
            if _replaces(child, parent, temperature * cooling.spread, random):
                candidates[index] = child
                best = _fitter(best, child)
        # A child replaces its parent within the generation: later partners may be new already.
        temperature *= cooling.factor
    # A candidate's used genes decode to its own draft: without a change, no new candidate is decoded.
    return Solution(best.draft, best.fitness, cut_short, nodes)


def _first_generation(
    problem: PlanSearch, size: int, random: Random, expired: Callable[[], bool]
) -> list[GeneCandidate]:
    """Return so many candidates, fewer if time is up. The first one takes the best option of each input."""
    candidates = [_born(problem, {}, random)]
    while len(candidates) < size and not expired():
        # They differ from the first one in about half of the inputs [R].
        candidates.append(_born(problem, {}, random, changed=0.5))
    return candidates


def _replaces(child: GeneCandidate, parent: GeneCandidate, scale: float, random: Random) -> bool:
    """Return True if a child replaces its parent: if it is at least as fit, or with probability e^(Δ/scale)."""
    gain = child.fitness - parent.fitness
    return gain >= 0 or random.random() < math.exp(gain / scale)


def _fitter(one: GeneCandidate, other: GeneCandidate) -> GeneCandidate:
    """Return the fitter candidate, of equal ones the first."""
    return other if other.fitness > one.fitness else one


def _born(problem: PlanSearch, genes: Genes, random: Random, changed: float = 0.0) -> GeneCandidate:
    """Return the candidate of some genes; an input without a gene takes its first option."""
    draft: Assignment = {}
    taken: Genes = {}
    steps = {problem.target}
    waiting: list[Port] = list(problem.needs(problem.target))
    for port in waiting:  # grows while steps are added
        options = problem.options(port)
        start = genes.get(port.key, 0)
        if len(options) > 1 and random.random() < changed:
            start = random.randrange(len(options))
        taken[port.key] = _settle(port, options, start, draft, problem)
        choice = options[taken[port.key]]
        if choice.kind == "step" and choice.origin not in steps:
            steps.add(choice.origin)
            waiting += problem.needs(choice.origin)
    return GeneCandidate(taken, draft, fitness(draft, problem))


def _settle(port: Port, options: Sequence[Choice], start: int, draft: Assignment, problem: PlanSearch) -> int:
    """Put the first usable option of an input into a draft, and return its position.

    A gene that cannot be used is replaced by the next option; after the last comes the first. A known value or the user
    is an option of each input, and usable at any depth.
    """
    for place in range(start, start + len(options)):
        index = place % len(options)
        choice = draft[port.key] = options[index]
        # Without depths the draft has a circle, or is too deep.
        if choice.kind != "step" or step_depths(draft, problem.target, problem.settings.depth) is not None:
            return index
    raise AssertionError(f"{port.tool}.{port.path} has no option besides other steps")


def _mixed(one: Genes, other: Genes, random: Random) -> Genes:
    """Return the genes of one candidate, with about half of the differing genes of the other."""
    mixed = dict(one)
    for key, gene in other.items():
        if one.get(key) != gene and random.random() < 0.5:
            mixed[key] = gene
    return mixed


def fitness(draft: Assignment, problem: PlanSearch) -> float:
    """Return compactness + share of parameter nodes − depth + mean weight − path complexity, weighted [R].

    Our reading, each part from 0 to 1 and of weight 0.2: compactness is the mean of 1/depth over the steps before the
    target (1 without steps); the share is the share of answerable inputs (the user's count 1, those that the user or a
    system may know 0.5, those of a system 0); depth is the longest path to the target divided by the limit; the mean
    weight is taken over the inputs that are not the user's (1 for a known value, 0 for one that is asked anyway);
    complexity is the number of steps before the target divided by 8, at most 1. Inputs that share a question count
    once. Asking for a system value costs 2.0, more than all parts can compensate.
    """
    depth = problem.settings.depth
    levels = step_depths(draft, problem.target, depth) or {problem.target: 0}
    others = len(levels) - 1
    compactness = 1.0
    if others:
        compactness = sum([1 / level for level in levels.values() if level]) / others
    inputs = _inputs_of(draft)
    deepest = max(levels.values()) / max(1, depth)
    complexity = min(1.0, others / WIDEST)
    parts = compactness + inputs.share - deepest + inputs.mean_weight - complexity
    return WEIGHT_OF_A_PART * parts - PENALTY * inputs.wrong


class _InputParts(NamedTuple):
    """The parts of the fitness that the inputs of a chain give.

    Attributes:
        share: of the answerable inputs.
        mean_weight: of the inputs that are not the user's own.
        wrong: questions for values that only a system knows.
    """

    share: float
    mean_weight: float
    wrong: int


def _inputs_of(draft: Assignment) -> _InputParts:
    given = [choice for choice in draft.values() if choice.kind != "user"]
    asked = _asked(draft)
    answerable = float(len(given))
    weights = [choice.value for choice in given]
    wrong = 0
    for choice in asked:
        answerable += ANSWERED[choice.known_by]
        # The mean weight is over the inputs that are not the user's own: a question for one of these weighs 0.
        if choice.known_by != "user":
            weights.append(0.0)
        wrong += choice.known_by == "system"
    share = mean_weight = 1.0
    if asked or given:
        share = answerable / (len(asked) + len(given))
    if weights:
        mean_weight = sum(weights) / len(weights)
    return _InputParts(share, mean_weight, wrong)


def _asked(draft: Assignment) -> list[Choice]:
    """Return one choice of each question to the user: of the inputs that share it, the hardest to answer."""
    of_the_user = [choice for choice in draft.values() if choice.kind == "user"]
    asked: dict[tuple[object, ...], Choice] = {}
    # The later one is kept: an input that is harder to answer has a lower value.
    for choice in sorted(of_the_user, key=attrgetter("value"), reverse=True):
        asked[choice.question] = choice
    return list(asked.values())
