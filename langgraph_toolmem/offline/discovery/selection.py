"""How a task is searched, and which action of a state is taken next.

``prior``: U(s, a) = Q(s, a) + c · P(a | s) · √(1 + N(s)) / (1 + N(s, a)), UCB with the policy's prior P in it, so that
few actions of a state are ever tried.

``ucb``: U(s, a) = Q(s, a) + c · √(ln N(s) / N(s, a)), plain UCB1 as in the paper: what was never taken comes first, in
the policy's order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeVar, get_args

from langgraph_toolmem.base.checks import expect, is_count, is_number, is_share

Selection = Literal["prior", "ucb"]

_SAME: Final = 1e-9
"""Scores that differ by this part of the best one, or less, count as equal."""


@dataclass(frozen=True)
class SearchSettings:
    """How a task is searched.

    Attributes:
        iterations: paths walked, at most.
        depth: calls on a path, at most.
        exploration: c of the formula.
        length_weight: λ, what part of the reward goes down with the length.
        patience: iterations after the best path so far was found, in which a shorter one is looked for; 0: the first
            path that ends well is taken; None: all iterations are made.
        attempts: actions tried in one iteration, failed ones included, for each call that a path may have.
        steps: calls made for one task, at most, those made again on the way back to a state included; None: any number.
            A way back that was begun is gone to its end.
        selection: which action of a state is taken: ``prior`` or ``ucb``, see the module.
    """

    iterations: int = 50
    depth: int = 10
    exploration: float = 1.41
    length_weight: float = 0.1
    patience: int | None = 3
    attempts: int = 2
    steps: int | None = None
    selection: Selection = "prior"

    def __post_init__(self) -> None:
        """Checks types and ranges. Raises ConfigurationError that names the field and what is expected."""
        for name in ("iterations", "depth", "attempts"):
            expect(self, name, "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "patience", "None or a whole number from 0", lambda v: v is None or is_count(v, 0))
        expect(self, "exploration", "a number from 0", lambda v: is_number(v) and v >= 0)
        expect(self, "length_weight", "a number from 0 to 1", is_share)
        expect(self, "steps", "None or a whole number from 1", lambda v: v is None or is_count(v, 1))
        expect(self, "selection", f"one of {', '.join(get_args(Selection))}", lambda v: v in get_args(Selection))

    @classmethod
    def paper(cls) -> SearchSettings:
        """As published (SGA-MCTS): UCB1 with c 1.41, 50 iterations whatever is found, 10 calls a path, λ 0.1."""
        return cls(selection="ucb", patience=None)

    def reward(self, length: int) -> float:
        """R of a path with so many calls that ended well."""
        return (1 - self.length_weight) + self.length_weight / (1 + length)


class Choice(Protocol):
    """An action that can be taken, with its statistics."""

    @property
    def prior(self) -> float:
        """P(a | s)."""
        ...

    @property
    def visits(self) -> int:
        """N(s, a)."""
        ...

    @property
    def mean(self) -> float:
        """Q(s, a)."""
        ...


AnyChoice = TypeVar("AnyChoice", bound=Choice)


def chosen(choices: Sequence[AnyChoice], visits: int, settings: SearchSettings, rng: random.Random) -> AnyChoice:
    """The action with the highest U; of equal ones the draw decides (``ucb``: among those that were taken before).

    Args:
        choices: the actions of a state, at least one, in the policy's order.
        visits: N(s).
        settings: the formula, and its c.
        rng: draws.
    """
    if settings.selection == "ucb":
        new = next((each for each in choices if not each.visits), None)
        if new is not None:
            return new
        logarithm = math.log(max(1, visits))
        scores = [each.mean + settings.exploration * math.sqrt(logarithm / each.visits) for each in choices]
    else:
        root = settings.exploration * math.sqrt(1 + visits)
        scores = [each.mean + root * each.prior / (1 + each.visits) for each in choices]
    best = max(scores)
    return rng.choice([each for each, score in zip(choices, scores, strict=True) if score >= best * (1 - _SAME)])
