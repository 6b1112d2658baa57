"""Reach of a search: tools that need an id without another producer are skipped.

A record that is read by its own id (``GET /lobbies/{lobby_id}``) returns an id that its caller has already. Without
another producer, only the creator of the record knows the id, and the search must not go in circles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.dependencies.nodes import Key
    from langgraph_toolmem.navigator.plan.problem import PlanSearch


@dataclass(frozen=True, slots=True)
class Reach:
    """The parts of a graph that a search may skip.

    Attributes:
        kept: parameters whose values only the creators of the records know.
        needs: tool -> the system values that it needs.
        open: tools that can be called from known values and from users' values.
    """

    kept: frozenset[Key]
    needs: Mapping[str, Sequence[WantedValue]]
    open: frozenset[str]

    def is_circle(self, tool: str, key: Key) -> bool:
        """Return True for a tool that needs the value that it would give, or that cannot be called."""
        wanted = self.needs.get(tool, ())
        # Such a tool would only replace the question to the user by another one.
        if wanted and tool not in self.open:
            return True
        return key in (value.key for value in wanted)


class WantedValue(NamedTuple):
    """A value that only a system knows, and the tools that give it."""

    key: Key
    givers: tuple[str, ...]


def reach_of(problem: PlanSearch) -> Reach:
    """Return the parts that the search of a problem may skip."""
    needs = _wanted_values(problem)
    kept: set[Key] = set()
    while True:
        open_tools, available = _forward(needs, kept)
        circles = _circles(needs, available) - kept
        # Each round keeps at least one more value, so there are at most as many rounds as values.
        if not circles:
            break
        kept |= circles
    return Reach(frozenset(kept), needs, frozenset(open_tools))


def _wanted_values(problem: PlanSearch) -> dict[str, list[WantedValue]]:
    """Return tool -> the system values that it needs, for the target and all tools before it."""
    graph = problem.graph
    givers: dict[Key, tuple[str, ...]] = {}
    needs: dict[str, list[WantedValue]] = {}
    waiting = [problem.target]
    while waiting:
        tool = waiting.pop()
        if tool in needs:
            continue
        needs[tool] = []
        for port in problem.needs(tool):
            if not problem.is_for_a_system(port):
                continue
            key = graph.key_of(port)
            # Producers of a value are visited once, so circles end.
            if key not in givers:
                givers[key] = tuple(giver.origin for giver in problem.producers.of(port))
                waiting += givers[key]
            needs[tool].append(WantedValue(key, givers[key]))
    return needs


def _forward(needs: dict[str, list[WantedValue]], kept: Iterable[Key]) -> tuple[set[str], set[Key]]:
    """Return the callable tools and the obtainable values, starting from the kept values."""
    tools: set[str] = set()
    available: set[Key] = set(kept)
    grows = True
    while grows:
        grows = False
        for tool, wanted in needs.items():
            for value in wanted:
                if not tools.isdisjoint(value.givers):
                    available.add(value.key)
            if tool not in tools and _keys(wanted) <= available:
                tools.add(tool)
                grows = True
    return tools, available


def _circles(needs: dict[str, list[WantedValue]], available: set[Key]) -> set[Key]:
    """Return the unobtainable values that are given by a tool that lacks only this value."""
    circles: set[Key] = set()
    for wanted in needs.values():
        for value in wanted:
            if value.key in available:
                continue
            for giver in value.givers:
                if _keys(needs[giver]) - available == {value.key}:
                    circles.add(value.key)
    return circles


def _keys(wanted: Iterable[WantedValue]) -> set[Key]:
    return {value.key for value in wanted}
