"""Backward alpha–beta search for the most reliable chain [R].

From the target backward: an input that nobody has given is tried with each of its options, a producer brings its own
inputs along, until nothing is open. A branch ends when it cannot become better than the best chain so far (that cut
loses nothing). Two more cuts are the paper's and may lose a better chain:

    S(u) = δ^depth · (w(u→next) + 1[u→target API]·w + 1[u→target param]·w)

- α at parameter nodes: a producer u with S(u) < α·e^(−κ·depth) is left out if it is not well connected, that is, if it
  gives only one of the inputs that its consumer needs. The best producer of a parameter is never left out.
- β at API nodes: once a chain with a producer of S(u) ≥ β is found, no others are tried for its input.

Both tighten while the search goes: with n of the N nodes allowed visited, α grows to (1 + n/N)·α and β falls to
(1 − n/2N)·β. With α = 0 and β = 6 or more (S is less than 3) the search is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from langgraph_toolmem.navigator.plan.problem import Assignment, Choice, PlanSearch, PlanSettings, step_depths
from langgraph_toolmem.text.meaning import Port

_CLOCK_EVERY: Final = 32  # nodes between two looks at the clock
_OPEN: Final = 6.0  # half of it, when the search is at its end, is as much as S can be
_SAME: Final = 1 + 1e-12


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


def alpha_beta(problem: PlanSearch, expired: Callable[[], bool] = lambda: False, *, exact: bool = False) -> Solution:
    """Return the most reliable draft; see the module.

    Args:
        problem: what is wanted.
        expired: whether time is up. The first chain is always finished.
        exact: without the two cuts that may lose a better chain.
    """
    settings = replace(problem.settings, alpha=0.0, beta=_OPEN) if exact else problem.settings
    search = _Search(problem, settings, expired)
    search.open(problem.target, (), 1.0)
    return search.best._replace(cut_short=search.over, nodes=search.nodes)


class _Search:
    def __init__(self, problem: PlanSearch, settings: PlanSettings, expired: Callable[[], bool]) -> None:
        self.problem = problem
        self.settings = settings
        self.expired = expired
        self.levels = {problem.target: 0}
        self.draft: Assignment = {}
        self.asked: dict[tuple[object, ...], float] = {}
        self.best = Solution({}, -1.0)
        self.nodes = 0
        self.over = False

    def open(self, tool: str, rest: tuple[Port, ...], score: float) -> None:
        """Add a step: what it needs is settled where there is no choice and left open where there is."""
        settled: list[tuple[tuple[str, str, str], Choice, float | None]] = []
        left = []
        for port in self.problem.needs(tool):
            options = self.problem.options(port)
            if len(options) == 1:
                self.draft[port.key] = options[0]
                before = self.asked.get(options[0].question)
                settled.append((port.key, options[0], before))
                score *= self._cost(options[0])
            else:
                left.append(port)
        self._visit((*left, *rest), score)
        for key, choice, before in reversed(settled):
            del self.draft[key]
            self._unask(choice, before)

    def _cost(self, choice: Choice) -> float:
        """Return what a choice does to the score, and note that the user is asked."""
        if choice.kind != "user":
            return choice.value
        before = self.asked.get(choice.question, 1.0)
        self.asked[choice.question] = min(before, choice.value)
        return self.asked[choice.question] / before

    def _unask(self, choice: Choice, before: float | None) -> None:
        if choice.kind != "user":
            return
        if before is None:
            del self.asked[choice.question]
        else:
            self.asked[choice.question] = before

    def _bound(self, still: tuple[Port, ...], score: float) -> float:
        """Return a score that no way to settle the open inputs exceeds."""
        counted = set(self.asked)
        for port in still:
            options = self.problem.options(port)
            question = next((choice.question for choice in options if choice.kind == "user"), ())
            # What shares a question may come for free; the first of them pays.
            if question not in counted:
                score *= self.problem.best(port)
                counted.add(question)
        return score

    def _visit(self, still: tuple[Port, ...], score: float) -> None:
        self.nodes += 1
        if self.nodes >= self.settings.max_nodes or (self.nodes % _CLOCK_EVERY == 0 and self.expired()):
            self.over = True
        if self._bound(still, score) <= self.best.score * _SAME:
            return
        if not still:
            self.best = Solution(dict(self.draft), score)
            return
        port, rest = still[0], still[1:]
        for choice in self._worth_trying(port):
            if self.over and self.best.score >= 0:
                return
            before = self.best
            self.draft[port.key] = choice
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
            del self.draft[port.key]
            if self.best is not before and choice.kind == "step" and self._score(port, choice) >= self._beta():
                return

    def _link(self, rest: tuple[Port, ...], score: float) -> None:
        """Feed an input by a step that is there already, unless that makes a circle or lies too deep."""
        levels = step_depths(self.draft, self.problem.target, self.settings.depth)
        if levels is not None:
            before, self.levels = self.levels, levels
            self._visit(rest, score)
            self.levels = before

    def _worth_trying(self, port: Port) -> list[Choice]:
        """Return the options without those that α cuts off."""
        level = self.levels[port.tool] + 1
        least = self._alpha() * math.exp(-self.settings.kappa * level)
        found = []
        first = True
        for choice in self.problem.options(port):
            producer = choice.kind == "step"
            if (
                producer
                and not first
                and choice.origin not in self.levels
                and self._score(port, choice) < least
                and self.problem.helps(choice.origin, port.tool) < 2
            ):
                continue
            first = first and not producer
            found.append(choice)
        return found

    def _score(self, port: Port, choice: Choice) -> float:
        """Return S(u) of the producer of a choice."""
        direct = self.problem.direct(choice.origin)
        to_target = direct if port.tool == self.problem.target else 0.0
        level = self.levels[port.tool] + 1
        return float(self.settings.delta**level * (choice.value + to_target + direct))

    def _alpha(self) -> float:
        return self.settings.alpha * (1 + self.nodes / self.settings.max_nodes)

    def _beta(self) -> float:
        return self.settings.beta * (1 - self.nodes / (2 * self.settings.max_nodes))
