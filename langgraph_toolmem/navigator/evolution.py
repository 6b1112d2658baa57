"""Evolution of the dependency graph of a memory: tools leave, and weights follow recent use (NaviAgent, section 5) [P].

Decisions are kept in the memory's evidence graph, so they hold for all processes. New tools join without a decision:
`ToolDependencyGraph.update` adds them to the parameters that they fit, with zero counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from langgraph_toolmem.base.checks import is_count, is_number, is_share
from langgraph_toolmem.base.errors import ConfigurationError, StorageError
from langgraph_toolmem.graph.view import START
from langgraph_toolmem.navigator.arguments import check_names
from langgraph_toolmem.navigator.dependencies.current import CurrentGraph
from langgraph_toolmem.navigator.evidence import MOST_DAYS, NavigatorSources

LAMBDA: Final = 0.5
LEAST: Final = 1e-9
"""Least change of a weight that counts as one."""


@dataclass(frozen=True, slots=True)
class PruneCandidate:
    """A tool that may leave.

    Attributes:
        tool: its name.
        score: see `prune_score`.
        calls: number of its calls.
        failure_rate: share of these calls that failed.
    """

    tool: str
    score: float
    calls: float
    failure_rate: float


@dataclass(frozen=True, slots=True)
class WeightChange:
    """A link whose weight follows recent use.

    Attributes:
        source, target: i and j of w(i→j).
        before, after: its weight.
    """

    source: str
    target: str
    before: float
    after: float


def prune_score(ok: float, failed: float) -> float:
    """Return λ·σ(failure rate) + (1 − λ)·σ(1/calls), with the logistic function σ and λ = 0.5 [P]."""
    calls = ok + failed
    return LAMBDA * _sigmoid(failed / calls) + (1 - LAMBDA) * _sigmoid(1 / calls)


class GraphEvolution:
    """Prunes, restores and propagates.

    `prune` and `propagate` only report by default (``dry_run=True``). They delete nothing.
    """

    evidence: NavigatorSources
    _graph: CurrentGraph

    def prune(self, *, most: int, dry_run: bool = True) -> list[PruneCandidate]:
        """Leave tools that fail or are hardly used out of plans, those with the highest scores first.

        Such a tool is no step on the way to another one, and searches do not find it. The agent can still call it, and
        can plan for it by its name. It is back after a call that succeeds, as after `restore`. Tools that were never
        called stay: nothing speaks against them [O].

        Args:
            most: largest number of tools.
            dry_run: If True, only report.

        Returns:
            The tools, highest score first, without those that were pruned before.

        Raises:
            ConfigurationError: an argument cannot work.
            StorageError: the memory is read-only, and this is no dry run.
        """
        if not is_count(most, 0):
            raise ConfigurationError(f"most must be a whole number >= 0, got {most!r}.")
        self._check_writable(dry_run)
        history = self._graph.history(at_once=True)
        with self._graph.held() as graph:
            tools = graph.apis.keys() - graph.left_out
        found = []
        for tool in tools:
            ok, failed = history.good(tool), history.failures.get(tool, 0.0)
            if ok + failed:
                found.append(PruneCandidate(tool, prune_score(ok, failed), ok + failed, failed / (ok + failed)))
        found = sorted(found, key=lambda each: (-each.score, each.tool))[:most]
        if not dry_run and found:
            self.evidence.exclude([each.tool for each in found])
        return found

    def restore(self, tools: Collection[str]) -> None:
        """Return pruned tools to plans and searches.

        Raises:
            ConfigurationError: one of them is not pruned.
            StorageError: the memory is read-only.
        """
        check_names("tools", tools)
        self._check_writable(False)
        pruned = self.pruned()
        if wrong := [name for name in tools if name not in pruned]:
            raise ConfigurationError(f"{wrong[0]!r} is not pruned; pruned tools: {', '.join(pruned) or 'none'}.")
        self.evidence.restore(list(tools))

    def pruned(self) -> list[str]:
        """Return the names of the tools that are pruned now."""
        self.evidence.refresh()
        return sorted(self.evidence.left_out())

    def propagate(self, *, days: float = 7.0, eta: float = 0.9, dry_run: bool = True) -> list[WeightChange]:
        """Let the weights of links follow recent use: w_t = η·w_{t−1} + (1 − η)·(recent successes / recent uses) [P].

        Call it every `days` days. Plans use the new weights at once, until the next call. Links whose target was not
        used lately keep theirs [O]. Uses are known by the day (UTC); an imported run counts for the day of its import.

        Args:
            days: number of recent days, today included; up to 31.
            eta: share of the old weight, 0 to 1.
            dry_run: If True, only report.

        Returns:
            The links whose weight changes, the largest changes first.

        Raises:
            ConfigurationError: an argument cannot work.
            StorageError: the memory is read-only, and this is no dry run.
        """
        if not is_number(days) or not 1 <= days <= MOST_DAYS:
            raise ConfigurationError(f"days must be a number from 1 to {MOST_DAYS}, got {days!r}.")
        if not is_share(eta):
            raise ConfigurationError(f"eta must be a share from 0 to 1, got {eta!r}.")
        self._check_writable(dry_run)
        with self.evidence.lock:
            history = self._graph.history(at_once=True)
            successes, uses = self.evidence.recent(days)
            found = []
            for source, target in dict.fromkeys((*history.transitions, *history.weights)):
                used, good = uses.get(target, 0.0), successes.get((source, target), 0.0)
                if source != START and used:
                    before = history.weight(source, target)
                    after = eta * before + (1 - eta) * min(1.0, good / used)
                    if abs(after - before) > LEAST:
                        found.append(WeightChange(source, target, before, after))
            if not dry_run and found:
                changed = {(each.source, each.target): each.after for each in found}
                self.evidence.weigh({**history.weights, **changed})
                self._graph.expire()
        return sorted(found, key=lambda each: (-abs(each.after - each.before), each.target, each.source))

    def _check_writable(self, dry_run: bool) -> None:
        if not isinstance(dry_run, bool):
            raise ConfigurationError(f"dry_run must be True or False, got {dry_run!r}.")
        if not dry_run and self.evidence.read_only:
            raise StorageError("A memory opened with read_only=True changes nothing: do this where it is written.")


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))
