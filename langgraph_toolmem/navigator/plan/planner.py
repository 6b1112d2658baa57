"""The navigator's search: from targets backward to chains of calls, with other routes next to the best one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Literal

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import EdgeScorer
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.plan.alphabeta import alpha_beta
from langgraph_toolmem.navigator.plan.annealing import anneal
from langgraph_toolmem.navigator.plan.chains import Chain, Plan, chain_of
from langgraph_toolmem.navigator.plan.problem import PlanSearch, PlanSettings, asks_for_system_value

Strategy = Literal["alpha_beta", "annealing"]


def plan(
    graph: ToolDependencyGraph,
    targets: str | Sequence[str],
    known: Mapping[str, Any] | Iterable[str] = (),
    *,
    k: int = 3,
    strategy: Strategy = "alpha_beta",
    settings: PlanSettings | None = None,
    history: History | None = None,
    scorer: EdgeScorer | None = None,
    avoid: Collection[str] = (),
    done: Collection[str] = (),
    request: str = "",
    seed: int = 0,
    clock: Callable[[], float] | None = None,
    budget: float = 0.2,
) -> Plan:
    """Return chains from what is known to the targets.

    Each target gets its best chain; the other routes to it come from searches without one of the best chain's steps
    each, so that every one of them survives the failure of a step. The best chains of all targets come first, in the
    order of the targets (similarity to the request is the caller's word); then the other routes by score.

    Args:
        graph: the tools.
        targets: the tool to end with, or several, best first (the paper takes three). Those to be avoided are left out.
        known: names of values that are known, or name -> value; a value's type helps to tell what it is.
        k: chains per target, at most.
        strategy: "alpha_beta" for the most reliable chain, "annealing" for the fittest by the paper's measure.
        settings: see there.
        history: counts of the past.
        scorer: weighs and proposes links, such as a trained predictor; None: structure and history alone.
        avoid: tools that must not be used, such as those that failed.
        done: tools that were called with success in this run: their outputs are there.
        request: the user's words: a tool that changes something is a step before the target only if they ask for it.
        seed: of the annealing.
        clock: seconds, ever rising; without one there is no limit on time, only on nodes.
        budget: seconds for all of it.

    Raises:
        ConfigurationError: there is no target, or it is unknown.
    """
    names = [targets] if isinstance(targets, str) else list(dict.fromkeys(targets))
    if not names:
        raise ConfigurationError("plan needs a target: the name of the tool to end with.")
    values = known if isinstance(known, Mapping) else tuple(known)
    end = None if clock is None else clock() + budget

    def expired() -> bool:
        return clock is not None and end is not None and clock() >= end

    def search(target: str, without: Collection[str]) -> tuple[Chain, bool]:
        problem = PlanSearch(
            graph,
            target,
            values,
            scorer=scorer,
            history=history or History(),
            settings=settings or PlanSettings(),
            avoid=without,
            done=done,
            request=request,
        )
        if strategy == "annealing":
            found = anneal(problem, Random(seed), expired)
        else:
            found = alpha_beta(problem, expired)
            if asks_for_system_value(found.draft) and not found.cut_short:
                # As in chess: when the window was too narrow to hold an answer, once more with an open one.
                found = max(found, alpha_beta(problem, expired, exact=True), key=lambda solution: solution.score)
        return chain_of(found.draft, problem, found.score), found.cut_short

    best: list[Chain] = []
    others: list[Chain] = []
    cut_short = False
    for target in names:
        if target in avoid:
            continue
        chain, short = search(target, avoid)
        cut_short |= short
        routes = {chain.tools: chain}
        for step in chain.steps[:-1]:
            if len(routes) >= k or expired():
                cut_short |= len(routes) < k
                break
            other, short = search(target, {*avoid, step.tool})
            cut_short |= short
            routes.setdefault(other.tools, other)
        ranked = sorted(routes.values(), key=lambda route: (not route.complete, -route.score))
        best.append(ranked[0])
        others += ranked[1:]
    others.sort(key=lambda chain: (not chain.complete, -chain.score))
    return Plan((*best, *others), cut_short)
