"""Counts of past runs that the navigator reads, independent of their storage.

w(i→j) = N(i→j) / N(j): successful uses of i→j over all uses of j (NaviAgent, arXiv 2506.19500, section 2). It is the
share of j's uses that i preceded or fed, not the probability of j after i.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


class Flow(NamedTuple):
    """A part of one tool's output that became a parameter of another one."""

    source: str
    path: str
    target: str
    parameter: str


class ToolCalls(NamedTuple):
    """Calls of one tool, and those of them that failed."""

    calls: float
    failures: float


@dataclass(frozen=True)
class History:
    """Counts of the past; all empty for a cold start.

    Attributes:
        uses: tool -> calls, N(j), whether they went well or not.
        failures: tool -> those of them that failed.
        recent: tool -> calls of the last days: they count twice in `works`.
        transitions: (i, j) -> times that j went well right after i, N(i→j).
        flows: output part and parameter -> times that a value flowed from one to the other, in successful calls.
        given: (tool, parameter) -> times that its value did not come from an output: the user or the model gave it.
        weights: (i, j) -> a weight that replaces N(i→j) / N(j), such as `Navigator.propagate` makes; flows along the
            link are scaled by the same factor.
    """

    uses: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, float] = field(default_factory=dict)
    recent: Mapping[str, ToolCalls] = field(default_factory=dict)
    transitions: Mapping[tuple[str, str], float] = field(default_factory=dict)
    flows: Mapping[Flow, float] = field(default_factory=dict)
    given: Mapping[tuple[str, str], float] = field(default_factory=dict)
    weights: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @cached_property
    def _into(self) -> dict[tuple[str, str], dict[Flow, float]]:
        """The flows by their target."""
        into: dict[tuple[str, str], dict[Flow, float]] = {}
        for flow, count in self.flows.items():
            if count > 0:
                into.setdefault((flow.target, flow.parameter), {})[flow] = count
        return into

    def weight(self, source: str, target: str) -> float:
        """Return w(i→j), 0 to 1; 0 without a record."""
        decided = self.weights.get((source, target))
        if decided is not None:
            return min(1.0, max(0.0, decided))
        uses = self.uses.get(target, 0)
        if uses <= 0:
            return 0.0
        # A use may come right after several others, so the counts may add up to more than the uses.
        return min(1.0, self.transitions.get((source, target), 0) / uses)

    def good(self, tool: str) -> float:
        """Return the number of successful calls of a tool."""
        return self.uses.get(tool, 0.0) - self.failures.get(tool, 0.0)

    def works(self, tool: str) -> float:
        """Return the share of a tool's successful calls, 0 to 1; recent calls count twice."""
        prior = 4.0  # assumed successful calls before the first one: a single failure proves little
        recent = self.recent.get(tool, ToolCalls(0.0, 0.0))
        calls = recent.calls + self.uses.get(tool, 0.0)
        failures = recent.failures + self.failures.get(tool, 0.0)
        return (prior + calls - failures) / (prior + calls)

    def flows_into(self, tool: str, parameter: str) -> Mapping[Flow, float]:
        """Return the flows that ended in a parameter, with their counts."""
        return self._into.get((tool, parameter), {})


def plain_path(path: str) -> str:
    """Return a path of the evidence graph in this package's form: ``$[0].id`` and ``[*].id`` are ``[].id``."""
    path = _ELEMENT.sub("", path)
    path = _TABLE.sub("[]", path).removeprefix("$").lstrip(".")
    return _SUBSCRIPT.sub("[]", path)


# Compiled once: a memory with thousands of flows reads all of them for each plan.
_ELEMENT = re.compile(r" (?:next|last|only|all)(?:@.*)?$", re.DOTALL)  # which element of a list was taken
_TABLE = re.compile(r"\.\*~?")
_SUBSCRIPT = re.compile(r"\[[^\[\]]*\]")
