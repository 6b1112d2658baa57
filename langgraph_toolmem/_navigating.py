"""The part of `ToolMemory` that plans: chains of tools from what is known to what is wanted, and other ways."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem._searching import Searching, check_names
from langgraph_toolmem.base.checks import is_count
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.graph.view import view_of

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.graph import ToolDependencyGraph
    from langgraph_toolmem.navigator.history import History
    from langgraph_toolmem.navigator.plan import Chain, Plan
    from langgraph_toolmem.navigator.planner import Strategy
    from langgraph_toolmem.navigator.reroute import Recombination
    from langgraph_toolmem.navigator.rules import ClusterRules
    from langgraph_toolmem.navigator.scoring import EdgeScorer

logger = logging.getLogger("langgraph_toolmem.memory")

FRESH_SECONDS: Final = 1.0
"""Counts of the evidence graph are read anew at most this often."""


class Navigating(Searching):
    """Finds complete chains of tools (NaviAgent, arXiv 2506.19500, sections 2, 4 and 6)."""

    def plan(
        self,
        query: str | None = None,
        *,
        target: str | Sequence[str] | None = None,
        known: Mapping[str, Any] | Iterable[str] = (),
        k: int = 3,
        available: Collection[str] | None = None,
        avoid: Collection[str] = (),
        done: Collection[str] = (),
        strategy: Strategy = "alpha_beta",
        seed: int = 0,
        budget: float = 0.2,
        scorer: EdgeScorer | None = None,
        user_id: str | None = None,
    ) -> Plan:
        """Chains of tools from what is known to what is wanted, best first, and the part of the graph they lie in.

        Args:
            query: what is to be done; the three tools that fit best are the targets.
            target: the tool to end with, or several, best first; in place of a query.
            known: names of values that are there, or name -> value.
            k: chains for each target, at most.
            available: names of the tools that may be used; all known ones if None.
            avoid: tools that must not be used, such as those that failed.
            done: tools that were called with success in this run: their outputs are there.
            strategy: "alpha_beta": the most reliable chain; "annealing": the fittest by the paper's measure.
            seed: of the annealing.
            budget: seconds for the search.
            scorer: weighs links in place of structure and record, such as a trained predictor: an object with
                ``weight(link) -> float`` (`navigator.scoring.EdgeScorer`). The memory's own if None.
            user_id: whose finished runs have a say in what the query is about, where the namespace keeps users apart.

        Returns:
            A plan; without chains if no tool fits the query.

        Raises:
            ConfigurationError: an argument cannot work, or a target is no known tool.
            EmbedderChangedError: tools are searched by meaning, and stored vectors were made by another embedder.
        """
        from langgraph_toolmem.navigator.plan import Plan, Subgraph
        from langgraph_toolmem.navigator.planner import plan
        from langgraph_toolmem.navigator.scoring import check_scorer

        if scorer is not None:
            check_scorer(scorer)
        _check(known, done, k, strategy, seed, budget)
        if (query is None) == (target is None):
            raise ConfigurationError("plan takes a query or a target: what is to be done, or the tool to end with.")
        out = self._out(avoid, available)
        if query is not None:
            if not isinstance(query, str):
                raise ConfigurationError(f"query is a text, not {type(query).__name__}.")
            target = self._targets(query, out, user_id)
            if not target:
                return Plan((), Subgraph(), strategy)
        elif target is not None:
            target = [target] if isinstance(target, str) else target
            check_names("target", target)
            if any(name in out for name in target):
                raise ConfigurationError("A target is among the tools that must not be used.")
        history = self._history()
        with self._navigating:
            return plan(
                self._navigator(),
                target or (),
                known,
                k=k,
                strategy=strategy,
                history=history,
                scorer=scorer or self._scorer,
                avoid=out,
                done=done,
                seed=seed,
                clock=time.monotonic,
                budget=budget,
            )

    def reroute(
        self,
        chain: Chain,
        failed: Collection[str],
        *,
        known: Mapping[str, Any] | Iterable[str] = (),
        available: Collection[str] | None = None,
        done: Collection[str] = (),
        strategy: Strategy = "alpha_beta",
        seed: int = 0,
        budget: float = 0.2,
    ) -> Recombination:
        """Another chain to the same end without the tools that failed: an equivalent one, else from upstream.

        Args:
            chain: the one whose step failed.
            failed: all tools known as failed in this run.
            known, available, done, strategy, seed, budget: as for `plan`.

        Returns:
            The way to go on; "none" if there is none in this part of the graph: then a fresh `plan` may find other
            targets.
        """
        from langgraph_toolmem.navigator.plan import Chain
        from langgraph_toolmem.navigator.reroute import recombine

        if not isinstance(chain, Chain):
            raise ConfigurationError(f"chain is a Chain of a plan, not {type(chain).__name__}.")
        check_names("failed", failed)
        _check(known, done, 1, strategy, seed, budget)
        history = self._history()
        with self._navigating:
            return recombine(
                self._navigator(),
                chain,
                self._out(failed, available),
                known,
                done=done,
                history=history,
                scorer=self._scorer,
                strategy=strategy,
                seed=seed,
                clock=time.monotonic,
                budget=budget,
            )

    def _out(self, avoid: Collection[str], available: Collection[str] | None) -> set[str]:
        check_names("avoid", avoid)
        if available is not None:
            check_names("available", available)
        specs = self._known_tools()
        return {*avoid, *(() if available is None else (name for name in specs if name not in available))}

    def _navigator(self) -> ToolDependencyGraph:
        """The dependency graph of the tools known now. The caller holds its lock."""
        from langgraph_toolmem.navigator.graph import ToolDependencyGraph

        with self._lock:
            specs = dict(self._known_tools())
            left_out = self._used.left_out()
            groups = self._used.groups
            afresh = self._dependencies is None or self._rules_of is not groups
            self._outputs_planned, changed = self._used.outputs_since(self._outputs_planned)
            outputs = self._used.usable_outputs(self._used.outputs if afresh else changed)
        if self._dependencies is None or afresh:
            self._dependencies = ToolDependencyGraph(specs.values(), rules=_rules(groups[1]), observed=outputs)
            self._dependencies.leave_out(left_out)
            self._rules_of = groups
            return self._dependencies
        graph = self._dependencies
        for name, seen in outputs.items():
            graph.note_outputs(name, seen)
        if left_out != graph.left_out:
            graph.leave_out(left_out)
        for name in [name for name in graph.apis if name not in specs]:
            graph.remove(name)
        new = [spec for name, spec in specs.items() if name not in graph or graph.apis[name].spec != spec]
        if new:
            with self._lock:
                again = self._used.usable_outputs(spec.name for spec in new)
            for spec in new:
                graph.note_outputs(spec.name, again.get(spec.name, {}))  # those of a tool that left are forgotten there
            graph.update(new)
        return graph

    def _history(self) -> History:
        """The counts of the evidence graph, as they were at most `FRESH_SECONDS` ago."""
        from langgraph_toolmem.navigator.history import History

        now = time.monotonic()
        if self._counted is None or now - self._counted[0] > FRESH_SECONDS:
            with self._lock:
                self._store.refresh()
                view = view_of(self._graph)
                given = {
                    (tool, parameter): count
                    for tool, entry in self._graph.tools.items()
                    for parameter, count in entry.get("given", {}).items()
                }
                shifts = self._used.shifts[1]
            self._counted = now, History.of_view(view, given=given, shifts=shifts)
        return self._counted[1]


def _check(known: object, done: object, k: object, strategy: object, seed: object, budget: object) -> None:
    if isinstance(known, str) or not isinstance(known, Iterable):
        raise ConfigurationError(f"known is a collection of names, or name -> value, not {known!r}.")
    check_names("done", done)
    if not is_count(k, 1):
        raise ConfigurationError(f"k is a whole number from 1, not {k!r}.")
    if strategy not in ("alpha_beta", "annealing"):
        raise ConfigurationError(f"strategy is 'alpha_beta' or 'annealing', not {strategy!r}.")
    if not isinstance(seed, int):
        raise ConfigurationError(f"seed is a whole number, not {seed!r}.")
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not budget >= 0:
        raise ConfigurationError(f"budget is a number of seconds from 0, not {budget!r}.")


def _rules(plain: Any) -> ClusterRules | None:
    """What a user said about clusters; None, and the log says so, if it cannot be read."""
    from langgraph_toolmem.navigator.rules import ClusterRules

    try:
        return ClusterRules.from_dict(plain)
    except ConfigurationError as error:
        logger.warning("the cluster rules in the memory cannot be used: %s", error)
        return None
