"""The navigator's search: from targets backward to chains of calls, with other routes next to the best one.

After a failed call (NaviAgent, section 6), an equivalent tool replaces it, or another route from upstream [P]. The
third way, a new search with other targets, is up to the caller, who has the request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from random import Random
from typing import Any, Literal, NamedTuple

from pydantic_core import to_jsonable_python

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.dependencies import ApiNode, LinkScores, ToolDependencyGraph
from langgraph_toolmem.navigator.evidence import History
from langgraph_toolmem.navigator.plan.search import (
    Assignment,
    Choice,
    PlanSearch,
    PlanSettings,
    Producers,
    Solution,
    alpha_beta,
    asks_for_system_value,
    known_ports,
    reach_of,
    step_depths,
)
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.text.meaning import Port, verb_of
from langgraph_toolmem.text.words import LEXICON

Strategy = Literal["alpha_beta", "annealing"]


@dataclass(frozen=True, slots=True)
class InputSource:
    """The source of one input of a step.

    Attributes:
        input: path of the input.
        source: "known": a value that was given; "step": an output of an earlier step; "done": an output of an earlier
            call; "user": only the user knows it, or a producer was not found.
        origin: name of the known value, or of the tool; "" for the user.
        output: path in that tool's output, "" otherwise.
        weight: confidence, 0 to 1.
        required: True if the call must have it.
        reason: why the user is asked, "" otherwise.
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
        tool: the called tool.
        feeds: sources of its inputs: all required ones, and the optional ones with a source.
        gives: its outputs that later steps take.
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
        description: its description in the schema.
        reason: why the user is asked.
        system_value: True if people are not expected to know it, but a producer was not found.
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
    """Calls in an executable order.

    Attributes:
        target: the last call's tool.
        steps: the calls; the target is the last one.
        asks: values that the user must supply.
        score: by the strategy's own measure, without a unit; more is better.
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
        """Return True if the user is asked only for values that a user can know."""
        return _system_values(self) == 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of a search.

    Attributes:
        chains: best first; those of other targets and other routes follow.
        cut_short: True if a limit on time or nodes ended the search: there may be better chains.
    """

    chains: tuple[Chain, ...]
    cut_short: bool = False

    @property
    def chain(self) -> Chain | None:
        """Return the best chain, or None."""
        if not self.chains:
            return None
        return self.chains[0]

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the tools of all chains, best chain first, each once."""
        tools: dict[str, None] = {}
        for chain in self.chains:
            tools.update(dict.fromkeys(chain.tools))
        return tuple(tools)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for a state or a stream."""
        plain: dict[str, Any] = to_jsonable_python(self)
        return plain


def tree(chain: Chain) -> str:
    """Return a chain as an indented tree, the target at the top and its inputs below it.

    A step that several others need is written once.
    """
    writer = _TreeWriter({step.tool: step for step in chain.steps})
    writer.write(chain.target, 0, "")
    return "\n".join(writer.lines)


class _TreeWriter:
    """Writes the steps of a chain as indented lines."""

    def __init__(self, steps: Mapping[str, ChainStep]) -> None:
        self._steps = steps
        self._written: set[str] = set()
        self.lines: list[str] = []

    def write(self, tool: str, depth: int, use: str) -> None:
        """Write a step and its inputs; `use` is the input that the step feeds, in words."""
        if tool in self._written:
            self._add(depth, f"{use}{tool} (see above)")
            return
        self._written.add(tool)
        self._add(depth, f"{use}{tool}")
        for feed in self._steps[tool].feeds:
            head = f"{feed.input} <- "
            if not feed.required:
                head = f"{feed.input}? <- "
            if feed.source == "step":
                self.write(feed.origin, depth + 1, f"{head}{feed.output or 'result'} of ")
            elif feed.source == "done":
                self._add(depth + 1, f"{head}{feed.output or 'result'} of {feed.origin} (done)")
            else:
                self._add(depth + 1, f"{head}{feed.origin or 'ask the user'}")

    def _add(self, depth: int, line: str) -> None:
        indent = "  " * depth
        self.lines.append(f"{indent}{line}")


def chain_of(draft: Assignment, problem: PlanSearch, score: float) -> Chain:
    """Return the steps of a valid draft in an executable order, the target last."""
    levels = step_depths(draft, problem.target, problem.settings.depth) or {problem.target: 0}

    def deepest_first(tool: str) -> tuple[int, str]:
        return -levels[tool], tool

    order = sorted(levels, key=deepest_first)
    feeds: dict[str, tuple[InputSource, ...]] = {}
    asks: dict[tuple[object, ...], Question] = {}
    for tool in order:
        own_feeds = []
        for port in problem.graph.apis[tool].inputs:
            feed = _feed(port, draft.get(port.key), problem, feeds)
            if feed is None:
                continue
            own_feeds.append(feed)
            if feed.source == "user":
                choice = draft[port.key]
                asks[choice.question] = _asked(port, choice, asks.get(choice.question))
        feeds[tool] = tuple(own_feeds)
    uses = _uses_of_outputs(feeds)
    steps: list[ChainStep] = []
    for tool in order:
        steps.append(ChainStep(tool, feeds[tool], tuple(uses[tool])))
    return Chain(problem.target, tuple(steps), tuple(asks.values()), score)


def _uses_of_outputs(feeds: Mapping[str, Iterable[InputSource]]) -> dict[str, list[OutputUse]]:
    """Return the uses of each step's outputs by other steps, given the sources of all inputs."""
    uses: dict[str, list[OutputUse]] = {tool: [] for tool in feeds}
    for tool, sources in feeds.items():
        for source in sources:
            if source.source == "step":
                uses[source.origin].append(OutputUse(source.output, tool, source.input))
    return uses


def _asked(port: Port, choice: Choice, before: Question | None) -> Question:
    """Return the question for an input, joined with an equal question of another input."""
    system_value = choice.known_by == "system"
    if before is None:
        return Question(port.tool, port.path, port.leaf.description, choice.reason, system_value)
    also = (*before.also, (port.tool, port.path))
    return replace(before, also=also, system_value=before.system_value or system_value)


def _feed(port: Port, choice: Choice | None, problem: PlanSearch, earlier: Collection[str]) -> InputSource | None:
    """Return the source of an input.

    Optional inputs take known values, and outputs of calls of this chain that they took in past runs.
    """
    # A draft has choices for required inputs only.
    if choice is None and not port.required:
        choice = _optional(port, problem, earlier)
    if choice is None:
        return None
    weight = round(choice.value, 6)
    return InputSource(port.path, choice.kind, choice.origin, choice.output, weight, port.required, choice.reason)


def _optional(port: Port, problem: PlanSearch, earlier: Collection[str]) -> Choice | None:
    """Return the source of an optional input; None to leave it empty, which is right more often than a guess."""
    name = problem.known_for(port)
    if name is not None:
        return Choice("known", name, "", 1.0)
    sources = {flow.source for flow in problem.history.flows_into(port.tool, port.parameter)}
    # Most inputs end here, before their options are computed.
    if not sources.intersection((*earlier, *problem.done)):
        return None
    recorded = []
    for choice in problem.options(port):
        is_made = choice.origin in earlier or choice.kind == "done"
        if is_made and choice.origin in sources:
            recorded.append(choice)
    return max(recorded, key=attrgetter("value"), default=None)


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
    """Return chains from known values to the targets.

    Each target gets its best chain; the other routes to it come from searches without one of the best chain's steps, so
    that each of them survives the failure of a step. The best chains of all targets come first, in the order of the
    targets (the caller sorts them by similarity to the request); then the other routes by score.

    Args:
        graph: the tools.
        targets: those in `avoid` are left out.
        known: names of known values, or name -> value; a value's type helps to identify it.
        settings, learned, history: weights of links; without them only structure counts.
        clock: seconds of a monotonic clock; without one there is no limit on time, only on nodes.
        k, strategy, avoid, done, request, seed, budget: see `Navigator.plan`; the budget is for the whole plan.

    Raises:
        ConfigurationError: the target is missing or unknown.
    """
    if isinstance(targets, str):
        targets = [targets]
    names = list(dict.fromkeys(targets))
    if not names:
        raise ConfigurationError("plan needs a target: the name of the tool to end with.")
    search = _PlanSearches(
        Producers(graph, history or History(), learned=learned, done=done, request=request),
        known_ports(known),
        settings or PlanSettings(),
        strategy,
        seed,
        _PlanTimer(clock, budget),
    )
    best: list[_Route] = []
    others: list[_Route] = []
    for target in names:
        if target not in avoid:
            first, *further = search.routes(target, k, avoid)
            best.append(first)
            others += further
    # The caller orders the targets; other routes are ordered only by their score.
    others.sort(key=_best_first)
    chains = tuple(route.chain for route in (*best, *others))
    return Plan(chains, search.cut_short)


class _Route(NamedTuple):
    """A chain, and whether circles were left aside for it, so that the user may be asked for an id."""

    chain: Chain
    without_circles: bool


def _best_first(route: _Route) -> tuple[bool, bool, float]:
    # A chain that leaves circles aside comes after every complete one that need not, whatever their scores.
    return not route.chain.complete, route.without_circles, -route.chain.score


class _PlanTimer:
    """The end of a search; without a clock there is none."""

    # Benchmarks and tests pass no clock: then only the number of nodes ends a search, the same on every machine.

    def __init__(self, clock: Callable[[], float] | None, budget: float) -> None:
        self._clock = clock
        self._end = 0.0
        if clock is not None:
            self._end = clock() + budget

    def expired(self) -> bool:
        return self._clock is not None and self._clock() >= self._end


@dataclass(slots=True)
class _PlanSearches:
    """The searches of one plan.

    Attributes:
        cut_short: a limit ended one of them.
    """

    producers: Producers
    known: Sequence[Port]
    settings: PlanSettings
    strategy: Strategy
    seed: int
    timer: _PlanTimer
    cut_short: bool = False

    def routes(self, target: str, k: int, avoid: Collection[str]) -> list[_Route]:
        """Return the best chain to a target, and others without one of its steps; best first."""
        route = self._best_route(target, avoid)
        routes = {route.chain.tools: route}
        # Each without one step, so that it survives the failure of that step.
        for step in route.chain.steps[:-1]:
            if len(routes) >= k:
                break
            if self.timer.expired():
                self.cut_short = True
                break
            other = self._best_route(target, {*avoid, step.tool})
            routes.setdefault(other.chain.tools, other)
        return sorted(routes.values(), key=_best_first)

    def _best_route(self, target: str, avoid: Collection[str]) -> _Route:
        problem = PlanSearch(self.producers, target, self.known, settings=self.settings, avoid=avoid)
        solution = self._solve_completely(problem)
        without_circles = asks_for_system_value(solution.draft)
        if without_circles:
            # Only where no chain is complete may the user be asked for an id: else the cuts would decide who is asked.
            problem.leave_aside(reach_of(problem))
            solution = self._solve_completely(problem)
        self.cut_short |= solution.cut_short
        return _Route(chain_of(solution.draft, problem, solution.score), without_circles)

    def _solve_completely(self, problem: PlanSearch) -> Solution:
        """Search; if the best chain is not complete, search once more without the cuts that may lose a complete one."""
        solution = self._solve(problem)
        if self.strategy != "alpha_beta" or solution.cut_short or not asks_for_system_value(solution.draft):
            return solution
        # In 3 of 2,860 random problems the cuts lost the only complete chain, or ranked a worse route above it. Scores
        # do not show it: of weak links in a row, a chain that asks may score higher than a complete one.
        exact = self._solve(problem.without_cuts())
        if asks_for_system_value(exact.draft):
            return solution._replace(cut_short=exact.cut_short)
        return exact

    def _solve(self, problem: PlanSearch) -> Solution:
        if self.strategy == "alpha_beta":
            return alpha_beta(problem, self.timer.expired)
        from langgraph_toolmem.papers.naviagent.annealing import anneal

        return anneal(problem, Random(self.seed), self.timer.expired)


@dataclass(frozen=True, slots=True)
class Recombination:
    """A replacement after a failure.

    Attributes:
        way: "equivalent": a tool replaces the failed one; "upstream": another route to the same target; "none": this
            subgraph has no replacement.
        plan: the new plan with other routes, or None.
        fallback: the equivalent tool, "" otherwise.
    """

    way: Literal["equivalent", "upstream", "none"]
    plan: Plan | None = None
    fallback: str = ""

    @property
    def chain(self) -> Chain | None:
        """Return the best chain of the plan."""
        if self.plan is None:
            return None
        return self.plan.chain


def same_effects(one: ToolSpec, other: ToolSpec) -> bool:
    """Return True if two tools have the same effects; for undeclared tools, the verbs must agree too."""
    effects = side_effects(one)
    if side_effects(other) != effects:
        return False
    if effects != "changes":
        return True
    # Undeclared tools: a tool that lists must not replace one that deletes.
    verb, other_verb = verb_of(one.name), verb_of(other.name)
    # A name without a verb says nothing against it.
    return not verb or not other_verb or (verb in LEXICON.reading) == (other_verb in LEXICON.reading)


def equivalents(
    graph: ToolDependencyGraph, tool: str, *, needed: Iterable[str] = (), avoid: Collection[str] = ()
) -> list[str]:
    """Return tools with the outputs of another one, from its inputs; the most similar first.

    Args:
        graph: the tools.
        tool: the tool to replace.
        needed: required paths of its output. Without them at least half of its outputs, or half of its inputs, must be
            the same.
        avoid: tools to leave out.
    """
    node = graph.api(tool)
    wanted_paths = set(needed)
    gives, takes = _cluster_ids(graph, node.outputs), _cluster_ids(graph, node.inputs)
    wanted = _cluster_ids(graph, [port for port in node.outputs if port.path in wanted_paths])
    scores: dict[str, float] = {}
    for other in _candidates(graph, node, wanted):
        candidate = graph.apis[other]
        # A change must not stand in for a look-up that failed.
        if other == tool or other in avoid or not same_effects(node.spec, candidate.spec):
            continue
        its_outputs = _cluster_ids(graph, candidate.outputs)
        outputs = _overlap(gives, its_outputs)
        inputs = _overlap(takes, _cluster_ids(graph, candidate.inputs))
        # Later steps need all of the outputs that they take.
        if wanted:
            is_equivalent, given = wanted <= its_outputs, 1.0
        else:
            is_equivalent, given = max(outputs, inputs) >= 0.5, outputs
        if not is_equivalent:
            continue
        score = 0.4 * given + 0.4 * inputs + 0.2 * graph.affinity(tool, other)
        scores[other] = score / (1 + _count_missing(graph, candidate, takes))

    def best_first(other: str) -> tuple[float, str]:
        return -scores[other], other

    return sorted(scores, key=best_first)


def _count_missing(graph: ToolDependencyGraph, candidate: ApiNode, takes: Collection[str]) -> int:
    """Return how many additional inputs a candidate needs, compared with the replaced tool."""
    missing = 0
    for port in candidate.needs:
        if graph.cluster_of(port).id not in takes:
            missing += 1
    return missing


def _cluster_ids(graph: ToolDependencyGraph, ports: Iterable[Port]) -> set[str]:
    return {graph.cluster_of(port).id for port in ports}


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
    """Return another chain to the same target without the failed tools.

    Args:
        chain: the chain with the failed step.
        failed: all failed tools of this run.
        known, done, settings, history, learned, clock, budget: see `plan`; the budget is for each search.

    Returns:
        A chain that does not ask the user for more system values than the failed one, or the way "none".
    """
    out = frozenset(failed)
    # A generator of names would be exhausted at the second target.
    if not isinstance(known, Mapping):
        known = list(known)
    still_done = [tool for tool in done if tool not in out]
    allowed = _system_values(chain)
    # Tools that were called already are not called again as a replacement.
    targets, fallbacks = _replacements(graph, chain, out, {*out, *done})
    for target in targets:
        new_plan = plan(
            graph,
            target,
            known,
            settings=settings,
            history=history,
            learned=learned,
            avoid=out,
            done=still_done,
            clock=clock,
            budget=budget,
        )
        # A plan that asks the user for more ids would only move the failure to the user.
        if new_plan.chain is None or _system_values(new_plan.chain) > allowed:
            continue
        for tool in new_plan.chain.tools:
            if tool in fallbacks:
                return Recombination("equivalent", new_plan, tool)
        return Recombination("upstream", new_plan)
    return Recombination("none")


def _system_values(chain: Chain) -> int:
    """Return how often a chain asks the user for a system value."""
    return sum(ask.system_value for ask in chain.asks)


def _replacements(
    graph: ToolDependencyGraph, chain: Chain, failed: Collection[str], avoid: Collection[str]
) -> tuple[list[str], set[str]]:
    """Return the targets to plan for, best first, and all tools that could replace a failed one."""
    targets = []
    fallbacks: set[str] = set()
    if chain.target in graph and chain.target not in failed:
        targets.append(chain.target)
    for step in chain.steps:
        if step.tool in failed and step.tool in graph:
            needed = [gift.output for gift in step.gives]
            equal = equivalents(graph, step.tool, needed=needed, avoid=avoid)
            fallbacks.update(equal)
            # The target itself failed, so the chain ends with an equivalent tool.
            if step.tool == chain.target:
                targets = equal
    return targets, fallbacks


def _candidates(graph: ToolDependencyGraph, node: ApiNode, wanted: set[str]) -> list[str]:
    """Return tools that give the rarest required output, otherwise tools that share an output or input."""
    hub = 500  # a parameter of more tools than this does not identify equivalent tools
    if wanted:
        by_id = {cluster.id: cluster.producers for cluster in graph.clusters.values()}
        producers = [by_id[identifier] for identifier in sorted(wanted)]
        # A replacement gives all of them, so the smallest set contains all candidates.
        fewest = min(producers, key=len)
        return list(fewest)
    candidates: dict[str, None] = {}
    for port in (*node.outputs, *node.inputs):
        cluster = graph.cluster_of(port)
        tools = cluster.consumers
        if port.direction == "out":
            tools = cluster.producers
        if not cluster.vague and len(tools) <= hub:
            candidates.update(dict.fromkeys(tools))
    return list(candidates)


def _overlap(one: set[str], other: set[str]) -> float:
    """Return the Jaccard index; 0 for two empty sets."""
    if not one and not other:
        return 0.0
    return len(one & other) / len(one | other)
