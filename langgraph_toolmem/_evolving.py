"""The part of `ToolMemory` that changes the dependency graph: what is left out, how links weigh, what is one.

Each method says first what it would do (``dry_run=True``, the default). What is decided is kept in the evidence graph,
holds for all processes that use it, and nothing is deleted by it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem._navigating import Navigating
from langgraph_toolmem._searching import check_names
from langgraph_toolmem.base.checks import is_count, is_number, is_share
from langgraph_toolmem.base.errors import ConfigurationError, StorageError
from langgraph_toolmem.graph.export import START
from langgraph_toolmem.navigator.evidence import MAX_DAYS, ClustersGrouped, LeftOut, LinksShifted, PutBack

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.evolution import Leaving, Moved, Regrouping
    from langgraph_toolmem.navigator.history import History
    from langgraph_toolmem.navigator.rules import ClusterRules

_MOST_DAYS: Final = MAX_DAYS - 1


class EvolvingGraph(Navigating):
    """Prunes, restores, propagates and regroups (NaviAgent, arXiv 2506.19500, section 5)."""

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
        from langgraph_toolmem.navigator.evolution import prune

        if above is not None and not is_number(above):
            raise ConfigurationError(f"above is a score, a number, not {above!r}.")
        if most is not None and not is_count(most, 0):
            raise ConfigurationError(f"most is a whole number from 0, not {most!r}.")
        check_names("keep", keep)
        self._may_change(dry_run)
        history = self._latest()
        with self._navigating:
            graph = self._navigator()
            if unknown := sorted(name for name in keep if name not in graph):
                raise ConfigurationError(f"keep names no known tool: {unknown[0]!r}.")
            spared = {*keep, *graph.left_out}
            found = prune(graph, history, above=above, most=most, keep=spared, unused=unused, dry_run=True)
        if dry_run or not found:
            return found
        self._leave_out([each.tool for each in found])
        return [replace(each, gone=True) for each in found]

    def _leave_out(self, tools: Collection[str]) -> None:
        with self._lock:
            good = {tool: int(self._graph.tools.get(tool, {}).get("ok", 0)) for tool in tools}
            self._apply(None, [LeftOut(good, self._now())])

    def restore(self, tools: str | Collection[str]) -> list[str]:
        """Puts tools that were pruned back, one or several.

        Raises:
            ConfigurationError: one of them is not left out.
            StorageError: the memory is read-only.
        """
        if not isinstance(tools, str):
            check_names("tools", tools)
        names = [tools] if isinstance(tools, str) else list(dict.fromkeys(tools))
        self._may_change(False)
        out = self.pruned()
        if wrong := [name for name in names if name not in out]:
            there = f"left out are: {', '.join(out)}" if out else "no tool is left out"
            raise ConfigurationError(f"{wrong[0]!r} is not left out; {there}.")
        if names:
            with self._lock:
                self._apply(None, [PutBack(names, self._now())])
        return names

    def pruned(self) -> list[str]:
        """The tools that are left out at present, by name."""
        with self._lock:
            self._store.refresh()
            return sorted(self._used.left_out())

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
        from langgraph_toolmem.navigator.evolution import moved, shifts_of

        if not is_number(days) or not 1 <= days <= _MOST_DAYS:
            raise ConfigurationError(f"days is a number from 1 to {_MOST_DAYS}, not {days!r}.")
        if not is_share(eta):
            raise ConfigurationError(f"eta is a share from 0 to 1, not {eta!r}.")
        self._may_change(dry_run)
        with self._lock:
            history = self._latest()
            now = self._now()
            found = moved(history, *self._used.recent(now, days), eta=eta, without=(START,))
            if not dry_run and found:
                self._apply(None, [LinksShifted(shifts_of(found, history), now)])
                self._counted = None
        return found

    def cluster_rules(self) -> ClusterRules:
        """What a user said about clusters of parameters (`regroup`); empty if nothing."""
        from langgraph_toolmem.navigator.rules import ClusterRules

        with self._lock:
            self._store.refresh()
            plain = self._used.groups[1]
        return ClusterRules.from_dict(plain)

    def regroup(
        self, rules: ClusterRules | Mapping[str, Any] | str | Path | None, *, dry_run: bool = True
    ) -> Regrouping:
        """Splits or joins clusters of parameters as a user says, in place of what was said before.

        Args:
            rules: a YAML or JSON file, or its content (`navigator.rules` says what it holds); None: none any more.
                The memory keeps the content, not the path.
            dry_run: only say what would change.

        Raises:
            ConfigurationError: the rules cannot be read.
            StorageError: the memory is read-only, and this is no dry run.
        """
        from langgraph_toolmem.navigator.evolution import regrouping
        from langgraph_toolmem.navigator.graph import ToolDependencyGraph
        from langgraph_toolmem.navigator.rules import ClusterRules

        if rules is None:
            new = ClusterRules()
        elif isinstance(rules, (str, Path)):
            new = ClusterRules.from_file(rules)
        else:
            new = rules if isinstance(rules, ClusterRules) else ClusterRules.from_dict(rules)
        self._may_change(dry_run)
        with self._navigating:
            old = self._navigator()
            specs = [node.spec for node in old.apis.values()]
            observed = old.observed
        made = ToolDependencyGraph(specs, rules=new, observed=observed)  # plans go on meanwhile: it may take seconds
        with self._navigating:
            old = self._navigator()
            if old.apis.keys() != made.apis.keys():
                made.update(node.spec for name, node in old.apis.items() if name not in made)
                for name in made.apis.keys() - old.apis.keys():
                    made.remove(name)
            for name, seen in old.observed.items():
                made.note_outputs(name, seen)
            made.leave_out(old.left_out)
            found = regrouping(old, made)
            if dry_run:
                return found
            with self._lock:
                self._apply(None, [ClustersGrouped(new.to_dict() or None, self._now())])
                self._rules_of, self._dependencies = self._used.groups, made
        return replace(found, done=True)

    def _may_change(self, dry_run: bool) -> None:
        if not isinstance(dry_run, bool):
            raise ConfigurationError(f"dry_run is True or False, not {dry_run!r}.")
        if not dry_run and self._store.read_only:
            raise StorageError("A memory opened with read_only=True changes nothing: do this where it is written.")

    def _latest(self) -> History:
        """The counts as they are now, other workers' included."""
        with self._lock:
            self._store.refresh(at_once=True)
        self._counted = None
        return self._history()
