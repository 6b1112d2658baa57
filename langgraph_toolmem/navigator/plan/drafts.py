"""From a draft of choices to an ordered chain, and from chains to the part of the graph they lie in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.plan.chains import Ask, Chain, Edge, Feed, Gift, Node, Step, Subgraph
from langgraph_toolmem.navigator.plan.problem import Draft, Problem, levels_of
from langgraph_toolmem.words.ports import Port


def chain_of(draft: Draft, problem: Problem, score: float) -> Chain:
    """The steps of a valid draft in an order in which each has what it needs, the target last."""
    levels = levels_of(draft, problem.target, problem.settings.depth) or {problem.target: 0}
    order = sorted(levels, key=lambda tool: (-levels[tool], tool))
    feeds = {tool: _feeds(tool, draft, problem, order[:index]) for index, tool in enumerate(order)}
    gifts: dict[str, list[Gift]] = {tool: [] for tool in order}
    asks: dict[tuple[object, ...], Ask] = {}
    for index, tool in enumerate(order):
        for feed in feeds[tool]:
            if feed.source == "step":
                gifts[feed.origin].append(Gift(feed.output, tool, feed.input))
            elif feed.source == "user":
                port = _input(problem.graph, tool, feed.input)
                question = draft[port.key].question
                if question in asks:
                    findable = asks[question].findable or draft[port.key].sort == "produced"
                    also = (*asks[question].also, (tool, feed.input))
                    asks[question] = replace(asks[question], also=also, findable=findable)
                else:
                    asks[question] = _ask(port, draft, problem, order[:index])
    steps = tuple(
        Step(tool, tuple(feeds[tool]), tuple(gifts[tool]), _calls(gifts[tool], problem.graph)) for tool in order
    )
    return Chain(problem.target, steps, tuple(asks.values()), score)


def _input(graph: ToolDependencyGraph, tool: str, path: str) -> Port:
    return next(port for port in graph.apis[tool].inputs if port.path == path)


def _feeds(tool: str, draft: Draft, problem: Problem, earlier: list[str]) -> list[Feed]:
    """Where the inputs of a step come from. Optional ones are filled with what is there anyway, never by a new step."""
    found = []
    for port in problem.graph.apis[tool].inputs:
        choice = draft.get(port.key)
        if choice is not None:
            found.append(
                Feed(port.path, choice.kind, choice.origin, choice.output, round(choice.value, 6), True, choice.reason)
            )
        elif not port.required and (feed := _optional(port, problem, earlier)) is not None:
            found.append(feed)
    return found


def _optional(port: Port, problem: Problem, earlier: list[str]) -> Feed | None:
    name = problem.known_for(port)
    if name is not None:
        return Feed(port.path, "known", name, required=False)
    if not earlier and not problem.done:
        return None
    there = (choice for choice in problem.options(port) if choice.origin in earlier or choice.kind == "done")
    best = max(there, key=lambda choice: choice.value, default=None)
    if best is None:
        return None
    return Feed(port.path, best.kind, best.origin, best.output, round(best.value, 6), required=False)


def _ask(port: Port, draft: Draft, problem: Problem, earlier: list[str]) -> Ask:
    best = next((giver for giver in problem.givers(port) if giver.origin in earlier or giver.kind == "done"), None)
    choice = draft[port.key]
    instead = None if best is None else (best.origin, best.output)
    return Ask(port.tool, port.path, port.leaf.description, choice.reason, choice.sort == "produced", instead)


def _calls(gifts: list[Gift], graph: ToolDependencyGraph) -> int:
    """Different roles of one consumer that one output fills, at most: that many calls are needed."""
    roles: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[str, str, str]] = set()
    for gift in gifts:
        role = _input(graph, gift.tool, gift.input).meaning.role
        if (gift.output, gift.tool, role) not in seen:
            seen.add((gift.output, gift.tool, role))
            roles[gift.output, gift.tool] += 1
    return max(roles.values(), default=1)


def subgraph_of(graph: ToolDependencyGraph, chains: Iterable[Chain]) -> Subgraph:
    """The nodes and edges of chains; a node that several use is there once, an edge with its highest weight."""
    nodes: dict[str, Node] = {}
    edges: dict[tuple[str, str, str], Edge] = {}
    states = {"known": "known", "user": "asked", "step": "produced", "done": "produced"}

    def edge(source: str, target: str, path: str, weight: float) -> None:
        before = edges.get((source, target, path))
        if before is None or before.weight < weight:
            edges[source, target, path] = Edge(source, target, path, weight)

    for chain in chains:
        for step in chain.steps:
            api = f"api:{step.tool}"
            state = "target" if step.tool == chain.target else "step"
            if state == "target" or api not in nodes:
                nodes[api] = Node(api, "api", step.tool, state)
            inputs = {port.path: port for port in graph.apis[step.tool].inputs}
            for feed in step.feeds:
                cluster = graph.cluster_of(inputs[feed.input])
                parameter = f"parameter:{cluster.id}"
                nodes.setdefault(parameter, Node(parameter, "parameter", cluster.label, states[feed.source]))
                edge(parameter, api, feed.input, feed.weight)
                if feed.source in ("step", "done"):
                    giver = f"api:{feed.origin}"
                    nodes.setdefault(giver, Node(giver, "api", feed.origin, feed.source))
                    edge(giver, parameter, feed.output, feed.weight)
    return Subgraph(tuple(nodes.values()), tuple(edges.values()))
