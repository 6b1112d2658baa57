"""Settings of the search for chains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from langgraph_toolmem.base.checks import expect, is_count, is_number, is_share


@dataclass(frozen=True)
class PlanSettings:
    """Settings of the search for chains. No value is known from the paper; all are our own choice [O].

    Attributes:
        alpha: a producer whose score is under α·e^(−κ·depth) is left out, unless it gives several of what is needed
            or is the best there is.
        beta: a producer with this score or more ends the search for its parameter.
        kappa: how fast the lower bound fades with depth.
        delta: what each further step costs: the share of the score that it leaves.
        depth: calls one after another before the target, at most.
        ask_user, ask_either, ask_produced: what is left of the score when the user is asked for a value that only a
            user has, that anybody may have, that only a system knows. The last is so small that a chain that needs no
            such value is better than any that does.
        weak: a value that anybody may have is looked for only if something gives it with at least this weight; else it
            is the user's.
        max_options: producers of one parameter that are tried, most likely first.
        max_nodes: nodes of the search tree that are visited, at most.
        temperature, cooling, population, mutation: of the annealing; a generation ends with T := cooling·T, and the
            share of changed genes is mutation·T.
        compactness, coverage, shallowness, confidence, simplicity: weights of the five parts of its fitness.
    """

    alpha: float = 0.1
    beta: float = 0.9
    kappa: float = 0.3
    delta: float = 0.85
    depth: int = 4
    ask_user: float = 0.9
    ask_either: float = 0.2
    ask_produced: float = 1e-9
    weak: float = 0.2
    max_options: int = 12
    max_nodes: int = 1_500
    temperature: float = 1.0
    cooling: float = 0.9
    population: int = 16
    mutation: float = 0.3
    compactness: float = 0.2
    coverage: float = 0.2
    shallowness: float = 0.2
    confidence: float = 0.2
    simplicity: float = 0.2

    def __post_init__(self) -> None:
        """Check types and ranges. Raises ConfigurationError that names the field and what is expected."""
        for name in ("alpha", "ask_user", "ask_either", "ask_produced", "weak", "mutation"):
            expect(self, name, "a share from 0 to 1", is_share)
        for name in ("delta", "cooling"):
            expect(self, name, "a number above 0 and below 1", lambda v: is_number(v) and 0 < v < 1)
        fitness = ("compactness", "coverage", "shallowness", "confidence", "simplicity")
        for name in ("beta", "kappa", "temperature", *fitness):
            expect(self, name, "a number from 0", lambda v: is_number(v) and v >= 0)
        for name in ("max_options", "max_nodes", "population"):
            expect(self, name, "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "depth", "a whole number from 0", lambda v: is_count(v, 0))

    def with_(self, **changes: Any) -> PlanSettings:
        """Return a copy with some fields changed."""
        return replace(self, **changes)
