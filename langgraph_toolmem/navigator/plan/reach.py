"""Reach of a search: tools that need an id which only they, or nothing, give are left aside.

A record that is read by its own id (``GET /lobbies/{lobby_id}``) gives that id to those alone who have it. Where
nothing else gives it, whoever made the record knows it, and the search need not go round in circles.
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
    """The parts of a graph that a search may leave aside.

    Attributes:
        kept: parameters whose values are known to those who made the records, and to others not at all.
        needs: tool -> the values that only a system knows, and that it needs.
        open: tools that can be called from what is known and what users know.
    """

    kept: frozenset[Key]
    needs: Mapping[str, Sequence[WantedValue]]
    open: frozenset[str]

    def is_circle(self, tool: str, key: Key) -> bool:
        """Return True for a tool that needs the very value that it would give, or that cannot be called at all."""
        wanted = self.needs.get(tool, ())
        # Such a tool would bring its own question to the user in place of the one that it answers.
        if wanted and tool not in self.open:
            return True
        return key in (value.key for value in wanted)


class WantedValue(NamedTuple):
    """A value that only a system knows, and the tools that give it."""

    key: Key
    givers: tuple[str, ...]


def reach_of(problem: PlanSearch) -> Reach:
    """Return what the search of a problem may leave aside."""
    needs = _wanted_values(problem)
    kept: set[Key] = set()
    while True:
        open_tools, available = _forward(needs, kept)
        circles = _circles(needs, available) - kept
        # Each round keeps at least one more value, so there are no more rounds than values.
        if not circles:
            break
        kept |= circles
    return Reach(frozenset(kept), needs, frozenset(open_tools))


def _wanted_values(problem: PlanSearch) -> dict[str, list[WantedValue]]:
    """Return tool -> the values it needs that only a system knows, for the target and all tools behind it."""
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
            # Tools behind a value are looked at once, so circles end.
            if key not in givers:
                givers[key] = tuple(giver.origin for giver in problem.producers.of(port))
                waiting += givers[key]
            needs[tool].append(WantedValue(key, givers[key]))
    return needs


def _forward(needs: dict[str, list[WantedValue]], kept: Iterable[Key]) -> tuple[set[str], set[Key]]:
    """Return the tools that can be called and the values that can be had, from what is kept onward."""
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
    """Return the values that cannot be had and that a tool gives which lacks this value alone."""
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
