"""Decisions about the dependency graph of a memory; they are kept in the evidence graph."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from langgraph_toolmem.base.checks import is_count, is_number, is_share
from langgraph_toolmem.base.errors import ConfigurationError, StorageError
from langgraph_toolmem.graph.view import START
from langgraph_toolmem.navigator.arguments import check_names
from langgraph_toolmem.navigator.dependencies.current import CurrentGraph
from langgraph_toolmem.navigator.evidence import MOST_DAYS, NavigatorSources
from langgraph_toolmem.navigator.history import History

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
    from langgraph_toolmem.navigator.evolve.evolution import Leaving, Moved


class GraphEvolution:
    """Prunes, restores and propagates (NaviAgent, section 5).

    Each method says first what it would do (``dry_run=True``, the default). What is decided holds for all processes
    that use the memory, and nothing is deleted by it.
    """

    def __init__(self, evidence: NavigatorSources, graph: CurrentGraph) -> None:
        self.evidence, self._graph = evidence, graph

    def dependencies(self) -> AbstractContextManager[ToolDependencyGraph]:
        """The dependency graph as it is now; nobody changes it within the ``with`` block."""
        return self._graph.held()

    def history(self, *, at_once: bool = False) -> History:
        """The counts of past runs: as they were a second ago at most, or as they are now, other workers' included."""
        return self._graph.history(at_once=at_once)

    def prune(
        self,
        *,
        above: float | None = None,
        most: int | None = None,
        keep: Collection[str] = (),
        unused: bool = False,
        dry_run: bool = True,
    ) -> list[Leaving]:
        """Leaves tools that fail or are hardly used out of plans, those with the highest scores first.

        A tool that is left out is no step on the way to another one and is no target of a request any more. The agent
        can still call it, and can plan for it by its name. After a call that went well it is back, as after `restore`.

        Args:
            above: those with a score above this: λ·σ(failure rate) + (1 − λ)·σ(1/calls), λ 0.5.
            most: at most so many.
            keep: tools that stay.
            unused: whether tools that were never called may go.
            dry_run: only say which ones.

        Returns:
            The tools, highest score first; `gone` says whether it was done. Those that are out already are left out.

        Raises:
            ConfigurationError: there is no bound, or an argument cannot work.
            StorageError: the memory is read-only, and this is no dry run.
        """
        from langgraph_toolmem.navigator.evolve.evolution import prunable

        if above is not None and not is_number(above):
            raise ConfigurationError(f"above is a score, a number, not {above!r}.")
        if most is not None and not is_count(most, 0):
            raise ConfigurationError(f"most is a whole number from 0, not {most!r}.")
        check_names("keep", keep)
        self._check_writable(dry_run)
        history = self._graph.history(at_once=True)
        with self._graph.held() as graph:
            if unknown := sorted(name for name in keep if name not in graph):
                raise ConfigurationError(f"keep names no known tool: {unknown[0]!r}.")
            found = prunable(graph, history, above=above, most=most, keep={*keep, *graph.left_out}, unused=unused)
        if dry_run or not found:
            return found
        self.evidence.leave_out([each.tool for each in found])
        return [replace(each, gone=True) for each in found]

    def leave_out(self, tools: Collection[str]) -> None:
        """Leaves these tools out of plans, as `prune` does. Raises StorageError if the memory is read-only."""
        self._check_writable(False)
        self.evidence.leave_out(tools)

    def restore(self, tools: str | Collection[str]) -> list[str]:
        """Puts tools that were pruned back, one or several.

        Raises:
            ConfigurationError: one of them is not left out.
            StorageError: the memory is read-only.
        """
        if not isinstance(tools, str):
            check_names("tools", tools)
        names = [tools] if isinstance(tools, str) else list(dict.fromkeys(tools))
        self._check_writable(False)
        out = self.pruned()
        if wrong := [name for name in names if name not in out]:
            there = f"left out are: {', '.join(out)}" if out else "no tool is left out"
            raise ConfigurationError(f"{wrong[0]!r} is not left out; {there}.")
        if names:
            self.evidence.put_back(names)
        return names

    def pruned(self) -> list[str]:
        """The tools that are left out at present, by name."""
        self.evidence.refresh()
        return sorted(self.evidence.left_out())

    def propagate(self, *, days: float = 7.0, eta: float = 0.9, dry_run: bool = True) -> list[Moved]:
        """Lets the weights of links follow recent use: w_t = η·w_{t−1} + (1 − η)·(recent successes / recent uses).

        Meant to be called every `days` days. Plans use the new weights at once, and what is seen later counts as
        before. Links whose target was not used lately stay as they are. Uses are known by the day (UTC), of runs
        learned with this release or later; an imported run counts for the day of its import.

        Args:
            days: how many days are recent, today included; up to 31.
            eta: share of the old weight, 0 to 1.
            dry_run: only say what would change.

        Returns:
            The links whose weight changes, the largest changes first.

        Raises:
            ConfigurationError: an argument cannot work.
            StorageError: the memory is read-only, and this is no dry run.
        """
        from langgraph_toolmem.navigator.evolve.evolution import moved, shifts_of

        if not is_number(days) or not 1 <= days <= MOST_DAYS:
            raise ConfigurationError(f"days is a number from 1 to {MOST_DAYS}, not {days!r}.")
        if not is_share(eta):
            raise ConfigurationError(f"eta is a share from 0 to 1, not {eta!r}.")
        self._check_writable(dry_run)
        with self.evidence.lock:
            history = self._graph.history(at_once=True)
            found = moved(history, *self.evidence.recent(days), eta=eta, without=(START,))
            if not dry_run and found:
                self.evidence.shift(shifts_of(found, history))
                self._graph.expire()
        return found

    def _check_writable(self, dry_run: bool) -> None:
        if not isinstance(dry_run, bool):
            raise ConfigurationError(f"dry_run is True or False, not {dry_run!r}.")
        if not dry_run and self.evidence.read_only:
            raise StorageError("A memory opened with read_only=True changes nothing: do this where it is written.")
