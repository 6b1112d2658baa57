"""Another way when a call failed (NaviAgent, section 6): an equivalent tool, then another route from upstream [P].

`recombine` does these two, in this order. The third way, a fresh retrieval with other targets, belongs to the caller,
who has the request: it is left when `recombine` answers "none".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langgraph_toolmem.navigator.dependencies.graph import ApiNode, ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import EdgeScorer, Link, LinkEvidence
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.plan.chains import Chain
from langgraph_toolmem.navigator.plan.planner import Strategy, plan
from langgraph_toolmem.navigator.plan.settings import PlanSettings
from langgraph_toolmem.runs.tools import side_effects
from langgraph_toolmem.text.meaning import Port

_LEAST = 0.5


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A tool that can stand in for another one.

    Attributes:
        tool: its name.
        score: 0 to 1: the share of inputs and outputs that both have, and how akin their names are.
        needs: paths of inputs it must have for which the other tool has no counterpart.
    """

    tool: str
    score: float
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recombination:
    """A way to go on after a failure.

    Attributes:
        way: "equivalent": a tool takes the place of the failed one; "upstream": another route to the same target;
            "none": nothing is left in this subgraph.
        chain: how to go on; None if there is no way.
        fallback: the equivalent tool, "" otherwise.
    """

    way: Literal["equivalent", "upstream", "none"]
    chain: Chain | None
    fallback: str = ""


def equivalents(
    graph: ToolDependencyGraph, tool: str, *, needed: Iterable[str] = (), avoid: Collection[str] = (), k: int = 5
) -> list[Equivalent]:
    """Tools that give what another one gives, from what it takes; the most similar first.

    Args:
        graph: the tools.
        tool: which one is to be replaced.
        needed: paths of its output that are wanted; without them at least half of its outputs must be there, or, if
            it gives nothing of note, half of its inputs and the same noun.
        avoid: tools that are out of the question.
        k: at most so many.
    """
    node = graph.api(tool)
    wanted_paths = set(needed)
    gives = {graph.cluster_of(port).id for port in node.outputs}
    wanted = {graph.cluster_of(port).id for port in node.outputs if port.path in wanted_paths}
    takes = {graph.cluster_of(port).id for port in node.inputs}
    found = []
    for other in _candidates(graph, node, wanted):
        if other == tool or other in avoid:
            continue
        their = graph.apis[other]
        theirs_out = {graph.cluster_of(port).id for port in their.outputs}
        theirs_in = {graph.cluster_of(port).id for port in their.inputs}
        outs, ins = _overlap(gives, theirs_out), _overlap(takes, theirs_in)
        if not (wanted <= theirs_out if wanted else max(outs, ins) >= _LEAST):
            continue
        if side_effects(node.spec) != side_effects(their.spec) or (node.worth == 1.0) != (their.worth == 1.0):
            continue  # what reads cannot stand in for what writes, nor the other way round; verbs only narrow it down
        missing = tuple(port.path for port in their.needs if graph.cluster_of(port).id not in takes)
        score = 0.4 * (1.0 if wanted else outs) + 0.4 * ins + 0.2 * graph.affinity(tool, other)
        found.append(Equivalent(other, score / (1 + len(missing)), missing))
    found.sort(key=lambda equivalent: (-equivalent.score, equivalent.tool))
    return found[:k]


def recombine(
    graph: ToolDependencyGraph,
    chain: Chain,
    failed: Collection[str],
    known: Mapping[str, Any] | Iterable[str] = (),
    *,
    done: Collection[str] = (),
    settings: PlanSettings | None = None,
    history: History | None = None,
    scorer: EdgeScorer | None = None,
    strategy: Strategy = "alpha_beta",
    seed: int = 0,
    clock: Callable[[], float] | None = None,
    budget: float = 0.2,
) -> Recombination:
    """Another chain to the same end that uses none of the failed tools.

    Args:
        graph: the tools.
        chain: the one whose step failed.
        failed: all tools known as failed in this run.
        known: values that are known; see `plan`.
        done: tools that were called with success: their outputs are there and they are not called again.
        settings, history, scorer, strategy, seed, clock, budget: as in `plan`; the budget is for each search.

    Returns:
        A chain that asks the user for no more unfindable values than the failed one did, or the answer "none".
    """
    out = frozenset(failed)
    values = known if isinstance(known, Mapping) else tuple(known)
    allowed = sum(ask.findable for ask in chain.asks)

    def search(target: str, weigher: EdgeScorer | None) -> Chain | None:
        found = plan(
            graph,
            target,
            values,
            k=1,
            strategy=strategy,
            settings=settings,
            history=history,
            scorer=weigher,
            avoid=out,
            done=[tool for tool in done if tool not in out],
            seed=seed,
            clock=clock,
            budget=budget,
        ).chain
        return found if found is not None and sum(ask.findable for ask in found.asks) <= allowed else None

    for step in chain.steps:
        if step.tool not in out or step.tool not in graph:
            continue
        last = step.tool == chain.target
        needed = [gift.output for gift in step.gives]
        for equivalent in equivalents(graph, step.tool, needed=needed, avoid={*out, *done}):
            target = equivalent.tool if last else chain.target
            found = (
                search(target, scorer if last else _Favouring(scorer, equivalent.tool)) if target not in out else None
            )
            if found is not None and equivalent.tool in found.tools:
                return Recombination("equivalent", found, equivalent.tool)
    other = None if chain.target in out or chain.target not in graph else search(chain.target, scorer)
    return Recombination("none", None) if other is None else Recombination("upstream", other)


class _Favouring(EdgeScorer):
    """A scorer that prefers the links of one producer."""

    def __init__(self, base: EdgeScorer | None, tool: str) -> None:
        self._base, self._tool = base or EdgeScorer(), tool

    def propose(self, port: Port, k: int) -> Sequence[str]:
        return self._base.propose(port, k)

    def weigh(self, links: Sequence[Link], known: Sequence[LinkEvidence]) -> list[float]:
        found = zip(links, known, self._base.weigh(links, known), strict=True)
        return [self._more(link, of.weight if weight is None else weight) for link, of, weight in found]

    def _more(self, link: Link, weight: float) -> float:
        return max(weight, 0.95) if link.producer == self._tool and weight > 0 else weight


def _candidates(graph: ToolDependencyGraph, node: ApiNode, wanted: set[str]) -> list[str]:
    """Tools that share a wanted output, else any output or input, of the clusters that fewest share."""
    by_id = {cluster.id: cluster for cluster in graph.clusters.values()}
    if wanted:
        rarest = min(wanted, key=lambda number: (len(by_id[number].producers), number))
        return list(by_id[rarest].producers)
    found: dict[str, None] = {}
    for port in node.outputs:
        cluster = graph.cluster_of(port)
        if not cluster.vague and len(cluster.producers) <= _HUB:
            found.update(dict.fromkeys(cluster.producers))
    for port in node.inputs:
        cluster = graph.cluster_of(port)
        if not cluster.vague and len(cluster.consumers) <= _HUB:
            found.update(dict.fromkeys(cluster.consumers))
    return list(found)


_HUB = 500


def _overlap(one: set[str], other: set[str]) -> float:
    """Jaccard index; 0 for two empty sets."""
    return len(one & other) / len(one | other) if one or other else 0.0
