"""The navigator's search: from targets backward to chains of calls, with other routes next to the best one.

When a call failed (NaviAgent, section 6), an equivalent tool takes its place, or another route from upstream [P]. The
third way, a fresh retrieval with other targets, belongs to the caller, who has the request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Literal

from pydantic_core import to_jsonable_python

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.dependencies.graph import ApiNode, ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import LinkScores
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.plan.alphabeta import Solution, alpha_beta
from langgraph_toolmem.navigator.plan.problem import (
    Assignment,
    Choice,
    PlanSearch,
    PlanSettings,
    Producers,
    asks_for_system_value,
    known_ports,
    step_depths,
)
from langgraph_toolmem.navigator.plan.reach import reach_of
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.text.meaning import READING, Port, verb_of

Strategy = Literal["alpha_beta", "annealing"]
LEAST: Final = 0.5
"""Share of outputs, or of inputs, that an equivalent tool has in common where no output is wanted."""
HUB: Final = 500
"""Tools of a parameter from which on it says nothing about what is equivalent."""


@dataclass(frozen=True, slots=True)
class InputSource:
    """The source of one input of a step.

    Attributes:
        input: path of the input.
        source: "known": a value that was given; "step": an output of an earlier step; "done": an output of a call that
            was made before; "user": nobody but the user can say it, or nothing found produces it.
        origin: name of the known value, or of the tool; "" for the user.
        output: path in that tool's output, "" otherwise.
        weight: how sure that is, 0 to 1.
        required: whether the call must have it.
        reason: why it is the user's, "" otherwise.
    """

    input: str
    source: Literal["known", "step", "done", "user"]
    origin: str = ""
    output: str = ""
    weight: float = 1.0
    required: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class OutputUse:
    """A part of a step's output that a later step takes."""

    output: str
    tool: str
    input: str


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One call of a chain.

    Attributes:
        tool: what is called.
        feeds: where its inputs come from: all required ones, and the optional ones for which something is there.
        gives: what later steps take from it.
    """

    tool: str
    feeds: tuple[InputSource, ...] = ()
    gives: tuple[OutputUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A value the user must supply.

    Attributes:
        tool: the step that needs it.
        input: path of the input.
        description: what its schema says of it.
        reason: why the user is asked.
        system_value: no person is expected to know it, yet nothing was found that produces it.
        also: (tool, input) of further steps that take the same value: it is asked for once.
    """

    tool: str
    input: str
    description: str
    reason: str
    system_value: bool
    also: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """Calls in an order in which each has what it needs.

    Attributes:
        target: the last call's tool.
        steps: the calls; the target is the last one.
        asks: what the user must supply.
        score: how good it is by the strategy's own measure; comes without a unit, more is better.
    """

    target: str
    steps: tuple[ChainStep, ...]
    asks: tuple[Question, ...]
    score: float

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the tools in order."""
        return tuple(step.tool for step in self.steps)

    @property
    def complete(self) -> bool:
        """Return True if the user is asked for nothing but what a user can know."""
        return not any(ask.system_value for ask in self.asks)


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of a search.

    Attributes:
        chains: best first; those of other targets and other routes follow.
        cut_short: a limit on time or nodes ended the search; there may be better chains.
    """

    chains: tuple[Chain, ...]
    cut_short: bool = False

    @property
    def chain(self) -> Chain | None:
        """Return the best chain; None if there is none."""
        return self.chains[0] if self.chains else None

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the tools of all chains, best chain first, each once."""
        return tuple(dict.fromkeys(tool for chain in self.chains for tool in chain.tools))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for a state or a stream."""
        found: dict[str, Any] = to_jsonable_python(self)
        return found


def tree(chain: Chain) -> str:
    """Return a chain as an indented tree, the target at the top and what it needs below it.

    A step that several others need is written out once.
    """
    steps = {step.tool: step for step in chain.steps}
    lines: list[str] = []
    written: set[str] = set()

    def write(tool: str, depth: int, gives: str) -> None:
        step = steps[tool]
        lines.append(f"{'  ' * depth}{gives}{tool}")
        if tool in written:
            lines[-1] += " (see above)"
            return
        written.add(tool)
        for feed in step.feeds:
            head = f"{feed.input}{'' if feed.required else '?'} <- "
            if feed.source == "step":
                write(feed.origin, depth + 1, f"{head}{feed.output or 'result'} of ")
            elif feed.source == "done":
                lines.append(f"{'  ' * (depth + 1)}{head}{feed.output or 'result'} of {feed.origin} (done)")
            else:
                lines.append(f"{'  ' * (depth + 1)}{head}{feed.origin or 'ask the user'}")

    write(chain.target, 0, "")
    return "\n".join(lines)


def chain_of(draft: Assignment, problem: PlanSearch, score: float) -> Chain:
    """Return the steps of a valid draft in an order in which each has what it needs, the target last."""
    levels = step_depths(draft, problem.target, problem.settings.depth) or {problem.target: 0}
    order = sorted(levels, key=lambda tool: (-levels[tool], tool))
    feeds: dict[str, tuple[InputSource, ...]] = {}
    gifts: dict[str, list[OutputUse]] = {tool: [] for tool in order}
    asks: dict[tuple[object, ...], Question] = {}
    for tool in order:
        found = [(port, _feed(port, draft.get(port.key), problem, feeds)) for port in problem.graph.apis[tool].inputs]
        feeds[tool] = tuple(feed for _, feed in found if feed is not None)
        for port, feed in found:
            if feed is not None and feed.source == "step":
                gifts[feed.origin].append(OutputUse(feed.output, tool, feed.input))
            elif feed is not None and feed.source == "user":
                choice = draft[port.key]
                system_value, asked = choice.sort == "produced", asks.get(choice.question)
                if asked is None:
                    asks[choice.question] = Question(
                        tool, port.path, port.leaf.description, choice.reason, system_value
                    )
                else:
                    also = (*asked.also, (tool, port.path))
                    asks[choice.question] = replace(asked, also=also, system_value=asked.system_value or system_value)
    steps = tuple(ChainStep(tool, feeds[tool], tuple(gifts[tool])) for tool in order)
    return Chain(problem.target, steps, tuple(asks.values()), score)


def _feed(port: Port, choice: Choice | None, problem: PlanSearch, earlier: Collection[str]) -> InputSource | None:
    """Return the source of an input.

    Optional ones take known values, and outputs that they took in past runs of calls that are made anyway.
    """
    if choice is None and not port.required:
        choice = _optional(port, problem, earlier)
    if choice is None:
        return None
    weight = round(choice.value, 6)
    return InputSource(port.path, choice.kind, choice.origin, choice.output, weight, port.required, choice.reason)


def _optional(port: Port, problem: PlanSearch, earlier: Collection[str]) -> Choice | None:
    name = problem.known_for(port)
    if name is not None:
        return Choice("known", name, "", 1.0)
    seen = {flow.source for flow, _ in problem.history.flows_into(port.tool, port.parameter)}
    if not seen.intersection((*earlier, *problem.done)):
        return None
    there = (
        choice
        for choice in problem.options(port)
        if choice.origin in seen and (choice.origin in earlier or choice.kind == "done")
    )
    return max(there, key=lambda choice: choice.value, default=None)


def plan(
    graph: ToolDependencyGraph,
    targets: str | Sequence[str],
    known: Mapping[str, Any] | Iterable[str] = (),
    *,
    k: int = 3,
    strategy: Strategy = "alpha_beta",
    settings: PlanSettings | None = None,
    history: History | None = None,
    learned: LinkScores | None = None,
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
        targets: those to be avoided are left out.
        known: names of values that are known, or name -> value; a value's type helps to tell what it is.
        settings, learned, history: how links are weighed; without them by structure alone.
        clock: seconds, ever rising; without one there is no limit on time, only on nodes.
        k, strategy, avoid, done, request, seed, budget: see `Navigator.plan`; the budget is for all of it.

    Raises:
        ConfigurationError: there is no target, or it is unknown.
    """
    names = [targets] if isinstance(targets, str) else list(dict.fromkeys(targets))
    if not names:
        raise ConfigurationError("plan needs a target: the name of the tool to end with.")
    end = None if clock is None else clock() + budget

    def expired() -> bool:
        return clock is not None and end is not None and clock() >= end

    there = known_ports(known)
    producers = Producers(graph, history or History(), learned=learned, done=done, request=request)

    def search(target: str, without: Collection[str]) -> tuple[Chain, bool]:
        problem = PlanSearch(producers, target, there, settings=settings or PlanSettings(), avoid=without)

        def solve() -> Solution:
            if strategy == "annealing":
                return _annealed(problem, seed, expired)
            return alpha_beta(problem, expired)

        found = solve()
        if asks_for_system_value(found.draft):
            problem.leave_aside(reach_of(problem))
            found = solve()
        if strategy == "alpha_beta" and asks_for_system_value(found.draft) and not found.cut_short:
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


@dataclass(frozen=True, slots=True)
class Recombination:
    """A way to go on after a failure.

    Attributes:
        way: "equivalent": a tool takes the place of the failed one; "upstream": another route to the same target;
            "none": nothing is left in this subgraph.
        plan: the way to go on with other routes; None if there is no way.
        fallback: the equivalent tool, "" otherwise.
    """

    way: Literal["equivalent", "upstream", "none"]
    plan: Plan | None = None
    fallback: str = ""

    @property
    def chain(self) -> Chain | None:
        """Return the best chain of the plan."""
        return None if self.plan is None else self.plan.chain


def same_effects(one: ToolSpec, other: ToolSpec) -> bool:
    """Return True if two tools do the same to the world; of tools that nobody declared, the verbs must agree too."""
    effects = side_effects(one)
    if effects != "changes" or side_effects(other) != effects:
        return side_effects(other) == effects
    reads = [verb in READING for spec in (one, other) if (verb := verb_of(spec.name))]
    return len(set(reads)) < 2


def equivalents(
    graph: ToolDependencyGraph, tool: str, *, needed: Iterable[str] = (), avoid: Collection[str] = ()
) -> list[str]:
    """Return tools that give what another one gives, from what it takes; the most similar first.

    Args:
        graph: the tools.
        tool: the tool to replace.
        needed: paths of its output that are wanted. Without them at least half of its outputs, or half of its inputs,
            must be the same.
        avoid: tools to leave out.
    """
    node = graph.api(tool)
    needed = set(needed)
    gives = {graph.cluster_of(port).id for port in node.outputs}
    wanted = {graph.cluster_of(port).id for port in node.outputs if port.path in needed}
    takes = {graph.cluster_of(port).id for port in node.inputs}
    scores = {}
    for other in _candidates(graph, node, wanted):
        their = graph.apis[other]
        if other == tool or other in avoid or not same_effects(node.spec, their.spec):
            continue
        theirs_out = {graph.cluster_of(port).id for port in their.outputs}
        outs = _overlap(gives, theirs_out)
        ins = _overlap(takes, {graph.cluster_of(port).id for port in their.inputs})
        if wanted <= theirs_out if wanted else max(outs, ins) >= LEAST:
            missing = sum(graph.cluster_of(port).id not in takes for port in their.needs)
            score = 0.4 * (1.0 if wanted else outs) + 0.4 * ins + 0.2 * graph.affinity(tool, other)
            scores[other] = score / (1 + missing)
    return sorted(scores, key=lambda other: (-scores[other], other))


def _annealed(problem: PlanSearch, seed: int, expired: Callable[[], bool]) -> Solution:
    """Return the answer of the paper's heuristic search, which the caller named."""
    from langgraph_toolmem.papers.naviagent.annealing import anneal

    return anneal(problem, Random(seed), expired)


def recombine(
    graph: ToolDependencyGraph,
    chain: Chain,
    failed: Collection[str],
    known: Mapping[str, Any] | Iterable[str] = (),
    *,
    done: Collection[str] = (),
    settings: PlanSettings | None = None,
    history: History | None = None,
    learned: LinkScores | None = None,
    clock: Callable[[], float] | None = None,
    budget: float = 0.2,
) -> Recombination:
    """Return another chain to the same end without the failed tools.

    Args:
        chain: the chain whose step failed.
        failed: all failed tools of this run.
        known, done, settings, history, learned, clock, budget: see `plan`; the budget is for each search.

    Returns:
        A chain that asks the user for no more unfindable values than the failed one did, or the answer "none".
    """
    out, known = frozenset(failed), known if isinstance(known, Mapping) else list(known)
    allowed = sum(ask.system_value for ask in chain.asks)
    equal = {
        step.tool: equivalents(graph, step.tool, needed=[gift.output for gift in step.gives], avoid={*out, *done})
        for step in chain.steps
        if step.tool in out and step.tool in graph
    }
    fallbacks = {tool for tools in equal.values() for tool in tools}
    targets = equal.get(chain.target, []) if chain.target in out else [chain.target] if chain.target in graph else []
    for target in targets:
        found = plan(
            graph,
            target,
            known,
            settings=settings,
            history=history,
            learned=learned,
            avoid=out,
            done=[tool for tool in done if tool not in out],
            clock=clock,
            budget=budget,
        )
        if found.chain is not None and sum(ask.system_value for ask in found.chain.asks) <= allowed:
            fallback = next((tool for tool in found.chain.tools if tool in fallbacks), "")
            return Recombination("equivalent" if fallback else "upstream", found, fallback)
    return Recombination("none")


def _candidates(graph: ToolDependencyGraph, node: ApiNode, wanted: set[str]) -> list[str]:
    """Return tools that give the rarest wanted output, or else that share any output or input."""
    by_id = {cluster.id: cluster for cluster in graph.clusters.values()}
    if wanted:
        return list(min((by_id[number] for number in sorted(wanted)), key=lambda each: len(each.producers)).producers)
    found: dict[str, None] = {}
    for port in (*node.outputs, *node.inputs):
        cluster = graph.cluster_of(port)
        tools = cluster.producers if port.direction == "out" else cluster.consumers
        if not cluster.vague and len(tools) <= HUB:
            found.update(dict.fromkeys(tools))
    return list(found)


def _overlap(one: set[str], other: set[str]) -> float:
    """Return the Jaccard index; 0 for two empty sets."""
    return len(one & other) / len(one | other) if one or other else 0.0
