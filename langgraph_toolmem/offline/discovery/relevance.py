"""What tools have to do with a request: as a whole, clause by clause, and with what is still open of it."""

from __future__ import annotations

from langgraph_toolmem.offline.discovery.states import State
from langgraph_toolmem.offline.discovery.toolbox import NAME_WEIGHT, Toolbox, stems_of, widened
from langgraph_toolmem.words.clauses import split


class Relevance:
    """How much each tool has to do with a request, remembered.

    Args:
        toolbox: the tools.
    """

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._known: dict[tuple[str, str, frozenset[str], frozenset[str]], dict[str, float]] = {}

    def now(self, state: State) -> dict[str, float]:
        """Each tool's share in what is open in a state."""
        called = frozenset(taken.call.tool for taken in state.taken if taken.call.tool in self._toolbox.words)
        read = frozenset(tool for tool in called if self._toolbox.reads[tool])
        return self.of(state.task.request, state.goal.text, called - read, read)

    def of(
        self, request: str, clause: str, changed: frozenset[str] = frozenset(), read: frozenset[str] = frozenset()
    ) -> dict[str, float]:
        """Each tool's share in a request and in a clause of it, 0 to 1.

        Words that changes so far have served are left out; those that reading has served count half.
        """
        key = (request, clause, changed, read)
        known = self._known.get(key)
        if known is None:
            done = self._names(changed)
            known = self._shares(request, clause, done)
            if read:
                rest = self._shares(request, clause, done | self._names(read))
                known = {name: (known[name] + rest[name]) / 2 for name in known}
            self._known[key] = known
        return known

    def _shares(self, request: str, clause: str, served: frozenset[str]) -> dict[str, float]:
        most = max(self._toolbox.relevance(stems_of(request)).values(), default=0.0) or 1.0
        left = stems_of(request) - served
        whole = self._toolbox.relevance(left)
        here = stems_of(clause) & left
        part = self._toolbox.relevance(here) if here else whole
        top = max(part.values(), default=0.0) or 1.0
        share = max(whole.values(), default=0.0) / most  # of the request that is left
        return {name: 0.6 * whole[name] / most + 0.4 * share * part[name] / top for name in whole}

    def _names(self, tools: frozenset[str]) -> frozenset[str]:
        """The stems in the names of tools."""
        return frozenset(
            word for tool in tools for word, weight in self._toolbox.words[tool].items() if weight >= NAME_WEIGHT
        )


def wishes(request: str, toolbox: Toolbox) -> tuple[str, ...]:
    """The clauses of a request in which something is wished for; what is none goes with the one before or behind."""
    names = {word for found in toolbox.words.values() for word, weight in found.items() if weight >= NAME_WEIGHT}
    found: list[str] = []
    loose = ""
    for clause in split(request).clauses:
        if len(clause.split()) > 2 and widened(stems_of(clause)) & names:
            found.append(f"{loose} {clause}".strip())
            loose = ""
        elif found:
            found[-1] += f", {clause}"
        else:
            loose += f" {clause}"
    return tuple(found) or (request,)
