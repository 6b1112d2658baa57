"""Backward alpha–beta search for the most reliable chain [R].

From the target backward: an open input is tried with each of its options, and a producer adds its own inputs, until all
inputs have a source. A branch ends when it cannot become better than the best chain so far (a lossless cut). Two more
cuts are the paper's and may lose a better chain:

    S(u) = δ^depth · (w(u→next) + 1[u→target API]·w + 1[u→target param]·w)

- α at parameter nodes: a producer u with S(u) < α·e^(−κ·depth) is left out if it is not well connected: if it gives
  only one of the inputs that its consumer needs. The best producer of a parameter is never left out.
- β at API nodes: after a chain with a producer of S(u) ≥ β is found, other producers are not tried for its input.

Both tighten during the search: with n of the N allowed nodes visited, α grows to (1 + n/N)·α and β falls to (1 −
n/2N)·β. With α = 0 and β = 6 or more (S is less than 3) the search is exact: see `PlanSearch.without_cuts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from langgraph_toolmem.navigator.plan.problem import Assignment, Choice, PlanSearch, step_depths
from langgraph_toolmem.text.meaning import Port


class Solution(NamedTuple):
    """The best draft of a search.

    Attributes:
        draft: port -> choice.
        score: by the strategy's measure.
        cut_short: a limit ended the search.
        nodes: drafts that were tried.
    """

    draft: Assignment
    score: float
    cut_short: bool = False
    nodes: int = 0


def never() -> bool:
    """Return False: a search without a limit on time."""
    return False


def alpha_beta(problem: PlanSearch, expired: Callable[[], bool] = never) -> Solution:
    """Return the most reliable draft. See the module."""
    search = _Search(problem, expired)
    search.open(problem.target, (), 1.0)
    return search.best._replace(cut_short=search.over, nodes=search.nodes)


class _SettledInput(NamedTuple):
    """An input with one option, and the earlier cost of its question."""

    port: Port
    choice: Choice
    asked_before: float | None


class _Search:
    def __init__(self, problem: PlanSearch, expired: Callable[[], bool]) -> None:
        self.problem = problem
        self.settings = problem.settings
        self.expired = expired
        # Both change on the way down and are restored on the way up.
        self.levels = {problem.target: 0}
        self.draft: Assignment = {}
        # Question -> the lowest value of the choices that ask it so far.
        self.asked: dict[tuple[object, ...], float] = {}
        self.best = Solution({}, -1.0)
        self.nodes = 0
        self.over = False

    def open(self, tool: str, rest: tuple[Port, ...], score: float) -> None:
        """Add a step: inputs with one option are settled, inputs with several are left open."""
        settled: list[_SettledInput] = []
        left = []
        for port in self.problem.needs(tool):
            options = self.problem.options(port)
            if len(options) > 1:
                left.append(port)
                continue
            (choice,) = options
            self.draft[port.key] = choice
            settled.append(_SettledInput(port, choice, self.asked.get(choice.question)))
            score *= self._cost(choice)
        self._visit((*left, *rest), score)
        # In reverse: two inputs may share a question, and each step back restores the state before it.
        for step in reversed(settled):
            del self.draft[step.port.key]
            self._unask(step.choice, step.asked_before)

    def _cost(self, choice: Choice) -> float:
        """Return the factor of a choice in the score, and record that the user is asked."""
        if choice.kind != "user":
            return choice.value
        # A question that serves several inputs costs once, as much as the most expensive of them.
        before = self.asked.get(choice.question, 1.0)
        self.asked[choice.question] = min(before, choice.value)
        # Settings may make a question cost all that there is.
        if before == 0:
            return 1.0
        return self.asked[choice.question] / before

    def _unask(self, choice: Choice, before: float | None) -> None:
        if choice.kind != "user":
            return
        if before is None:
            del self.asked[choice.question]
        else:
            self.asked[choice.question] = before

    def _bound(self, still: tuple[Port, ...], score: float) -> float:
        """Return an upper bound of the score over all ways to settle the open inputs."""
        counted = set(self.asked)
        for port in still:
            options = self.problem.options(port)
            question: tuple[object, ...] = ()
            for choice in options:
                if choice.kind == "user":
                    question = choice.question
                    break
            # Inputs that share a question may be free; the first of them pays.
            if question not in counted:
                score *= self.problem.best(port)
                counted.add(question)
        return score

    def _visit(self, still: tuple[Port, ...], score: float) -> None:
        self._count_node()
        # A chain that is better by a rounding error does not count as better.
        if self._bound(still, score) <= self.best.score * (1 + 1e-12):
            return
        if not still:
            self.best = Solution(dict(self.draft), score)
            return
        port, rest = still[0], still[1:]
        for choice in self._worth_trying(port):
            # A search beyond its limit continues until it has one chain, because a plan without a chain is useless.
            if self.over and self.best.score >= 0:
                return
            before = self.best
            self.draft[port.key] = choice
            self._try(port, choice, rest, score)
            del self.draft[port.key]
            is_better = self.best is not before
            if is_better and choice.kind == "step" and self._score(port, choice) >= self._beta():
                return

    def _count_node(self) -> None:
        self.nodes += 1
        if self.nodes >= self.settings.max_nodes:
            self.over = True
        # Reading the clock costs as much as a node.
        elif self.nodes % 32 == 0 and self.expired():
            self.over = True

    def _try(self, port: Port, choice: Choice, rest: tuple[Port, ...], score: float) -> None:
        """Settle the open inputs after one choice for an input."""
        if choice.kind != "step":
            asked = self.asked.get(choice.question)
            self._visit(rest, score * self._cost(choice))
            self._unask(choice, asked)
        elif choice.origin in self.levels:
            self._link(rest, score * choice.value)
        elif self.levels[port.tool] < self.settings.depth:
            self.levels[choice.origin] = self.levels[port.tool] + 1
            self.open(choice.origin, rest, score * choice.value * self.settings.delta)
            del self.levels[choice.origin]

    def _link(self, rest: tuple[Port, ...], score: float) -> None:
        """Feed an input by an existing step, unless that makes a circle or is too deep."""
        levels = step_depths(self.draft, self.problem.target, self.settings.depth)
        if levels is not None:
            before, self.levels = self.levels, levels
            self._visit(rest, score)
            self.levels = before

    def _worth_trying(self, port: Port) -> list[Choice]:
        """Return the options without those that α cuts off."""
        level = self.levels[port.tool] + 1
        least = self._alpha() * math.exp(-self.settings.kappa * level)
        worth_trying = []
        has_producer = False
        for choice in self.problem.options(port):
            if choice.kind == "step":
                # The best producer of an input is never left out, for any score.
                if has_producer and self._is_cut_off(port, choice, least):
                    continue
                has_producer = True
            worth_trying.append(choice)
        return worth_trying

    def _is_cut_off(self, port: Port, choice: Choice, least: float) -> bool:
        if choice.origin in self.levels or self._score(port, choice) >= least:
            return False
        return self.problem.helps(choice.origin, port.tool) < 2

    def _score(self, port: Port, choice: Choice) -> float:
        """Return S(u) of the producer of a choice."""
        direct = self.problem.direct(choice.origin)
        to_target = 0.0
        if port.tool == self.problem.target:
            to_target = direct
        level = self.levels[port.tool] + 1
        return float(self.settings.delta**level * (choice.value + to_target + direct))

    def _alpha(self) -> float:
        return self.settings.alpha * (1 + self.nodes / self.settings.max_nodes)

    def _beta(self) -> float:
        return self.settings.beta * (1 - self.nodes / (2 * self.settings.max_nodes))
