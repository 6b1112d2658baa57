"""The navigator: finds the tools a request needs as complete chains, and another way when one fails.

NaviAgent (arXiv 2506.19500) has two levels. The lower one is here: a graph of tools and parameters says who can give
what to whom. Parameters that mean the same are one node; links come from schemas and from what runs have shown. A
search goes backward from the tools that a request is about until every input is known or produced. The graph evolves:
tools that fail leave, weights follow recent use. The upper one, a model that decides what is done next, is in `decide`.

``dependencies``  the graph: parameters, clusters, links, counts of past runs
``tool_search``   which tools a request is about
``plan``          chains from what is known to what is wanted; other routes; what to do when a call failed
``evolve``        pruning, propagation of weights, regrouping of parameters
``select``        which tools a model is shown
``decide``        the decider's subgraph
``openapi``       tools from OpenAPI documents
``evidence``      what all of it reads of the memory's evidence graph; ``history``: the counts of past runs in it
``arguments``     checks of what a program asks
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.arguments import check_names, check_plan, check_search
from langgraph_toolmem.navigator.dependencies.current import CurrentGraph
from langgraph_toolmem.navigator.dependencies.links import check_scorer
from langgraph_toolmem.navigator.evolve.changes import GraphEvolution
from langgraph_toolmem.navigator.tool_search.current import CurrentSearch
from langgraph_toolmem.navigator.tool_search.hit import TARGETS, ToolHit, targets_of

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.dependencies.links import EdgeScorer
    from langgraph_toolmem.navigator.evidence import Evidence
    from langgraph_toolmem.navigator.plan.chains import Chain, Plan
    from langgraph_toolmem.navigator.plan.planner import Strategy
    from langgraph_toolmem.navigator.plan.reroute import Recombination
    from langgraph_toolmem.navigator.plan.settings import PlanSettings
    from langgraph_toolmem.navigator.tool_search.current import PastRunsOf
    from langgraph_toolmem.runs.tools import ToolSpec
    from langgraph_toolmem.stores.vectors import VectorStore


class Navigator(GraphEvolution):
    """Searches and plans in the tools of a memory, and changes their graph (see `GraphEvolution`).

    Safe for threads; nothing is read or made before it is needed.

    Args:
        evidence: what it reads and writes.
        vectors: with an embedder of one's own: what tools and parameters mean; its vectors are kept there.
        past_runs: whose requests and calls are precedents.
        scorer: weighs links in place of structure and record.
        settings: how chains are searched.

    Raises:
        ConfigurationError: `scorer` cannot weigh links.
    """

    def __init__(
        self,
        evidence: Evidence,
        *,
        vectors: VectorStore,
        past_runs: PastRunsOf,
        scorer: EdgeScorer | None = None,
        settings: PlanSettings | None = None,
    ) -> None:
        super().__init__(evidence, CurrentGraph(evidence, vectors))
        if scorer is not None:
            check_scorer(scorer)
        self._scorer, self._settings = scorer, settings
        self.tool_search = CurrentSearch(evidence, past_runs, vectors)

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """The tools known now, by name."""
        return self.evidence.tools()

    def search(
        self,
        query: str,
        *,
        k: int = 5,
        available: Collection[str] | None = None,
        target: str | None = None,
        user_id: str | None = None,
    ) -> list[ToolHit]:
        """The tools that a request needs most likely, all of them: in the order in which they complete a set.

        A compound request is searched clause by clause, and tools of one toolkit lift each other. By words; with an
        embedder by meaning, too: then the tools' vectors are made at the first search and kept in Chroma, and a
        next process with the same tools embeds the request only. If the embedder or Chroma fails, by words alone,
        and the log says so once. Finished runs with similar requests (`finish`) lift the tools that they called, as
        far as such runs were right before. A memory that was opened without tools searches those that it knows from
        before. Tools that pruning left out are not found, and a greeting finds nothing.

        Args:
            query: the user's words, or what a tool should do.
            k: tools, at most; fewer if fewer have anything to do with the query.
            available: names of the tools that may be found; all known ones if None.
            target: the tool that the request ends with: found are those that are called before it, by the request,
                by what gives it its values, and by finished runs.
            user_id: whose runs, where the namespace keeps users apart; None: there no runs are looked at.

        Raises:
            ConfigurationError: an argument cannot work.
            EmbedderChangedError: stored vectors were made by another embedder.
        """
        check_search(query, k, available, target)
        return self.tool_search.search(query, k, available=available, target=target, user_id=user_id)

    async def asearch(
        self,
        query: str,
        *,
        k: int = 5,
        available: Collection[str] | None = None,
        target: str | None = None,
        user_id: str | None = None,
    ) -> list[ToolHit]:
        """Async twin of `search`; an embedder is asked by its async methods."""
        check_search(query, k, available, target)
        return await self.tool_search.asearch(query, k, available=available, target=target, user_id=user_id)

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

        With an embedder of one's own, parameters that mean the same in other words are one, too: their vectors are made
        at the first plan and kept in Chroma. If the embedder fails, they are one by their words, and the log says so
        once.

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
                ``weight(link) -> float`` (`dependencies.links.EdgeScorer`). The memory's own if None.
            user_id: whose finished runs have a say in what the query is about, where the namespace keeps users apart.

        Returns:
            A plan; without chains if no tool fits the query.

        Raises:
            ConfigurationError: an argument cannot work, or a target is no known tool.
            EmbedderChangedError: stored vectors were made by another embedder.
        """
        from langgraph_toolmem.navigator.plan.chains import Plan, Subgraph
        from langgraph_toolmem.navigator.plan.planner import plan

        if scorer is not None:
            check_scorer(scorer)
        check_plan(known, done, k, strategy, seed, budget)
        if (query is None) == (target is None):
            raise ConfigurationError("plan takes a query or a target: what is to be done, or the tool to end with.")
        out = self._out(avoid, available)
        if query is not None:
            if not isinstance(query, str):
                raise ConfigurationError(f"query is a text, not {type(query).__name__}.")
            target = targets_of(self.tool_search.search(query, TARGETS, exclude=out, user_id=user_id))
            if not target:
                return Plan((), Subgraph(), strategy)
        elif target is not None:
            target = [target] if isinstance(target, str) else target
            check_names("target", target)
            if any(name in out for name in target):
                raise ConfigurationError("A target is among the tools that must not be used.")
        history = self.history()
        with self.dependencies() as graph:
            return plan(
                graph,
                target or (),
                known,
                k=k,
                strategy=strategy,
                settings=self._settings,
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

        Raises:
            ConfigurationError: an argument cannot work.
            EmbedderChangedError: stored vectors were made by another embedder.
        """
        from langgraph_toolmem.navigator.plan.chains import Chain
        from langgraph_toolmem.navigator.plan.reroute import recombine

        if not isinstance(chain, Chain):
            raise ConfigurationError(f"chain is a Chain of a plan, not {type(chain).__name__}.")
        check_names("failed", failed)
        check_plan(known, done, 1, strategy, seed, budget)
        out, history = self._out(failed, available), self.history()
        with self.dependencies() as graph:
            return recombine(
                graph,
                chain,
                out,
                known,
                done=done,
                settings=self._settings,
                history=history,
                scorer=self._scorer,
                strategy=strategy,
                seed=seed,
                clock=time.monotonic,
                budget=budget,
            )

    def forget(self, scope: tuple[str, ...]) -> None:
        """What is in RAM of the past runs of a user scope (a namespace) goes."""
        self.tool_search.forget(scope)

    def _out(self, avoid: Collection[str], available: Collection[str] | None) -> set[str]:
        check_names("avoid", avoid)
        if available is not None:
            check_names("available", available)
        return {*avoid, *(() if available is None else (name for name in self.tools if name not in available))}
