"""One search as a problem: which inputs need a value, what may give it, and how good a set of choices is.

A *draft* maps every required input of every step to one choice: a known value, an output of another step, or the user.
It is valid if its steps have an order and no step stands more than `depth` calls before the target. Both strategies
search among the same valid drafts; they differ in what they hold to be good:

- `reliability` (alpha–beta): Π of all choices' values · δ^steps. A link's value is its weight, a known value's is 1,
  asking costs as the settings say, and a question that serves several inputs costs once.
- `fitness` (annealing), the paper's parts with our reading [R]: see there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import EdgeScorer
from langgraph_toolmem.navigator.dependencies.weigh import Weigher
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.plan.settings import PlanSettings
from langgraph_toolmem.navigator.plan.value_source import ValueSource, value_source
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import (
    FREE_TEXT,
    GENERIC,
    READING,
    VERBS,
    Port,
    canonical,
    canonical_words,
    meaning_of,
)
from langgraph_toolmem.text.schema import Leaf, type_of
from langgraph_toolmem.text.words import words


class Choice(NamedTuple):
    """One source of an input's value.

    Attributes:
        kind: "known", "done" (output of a call made before), "step" or "user".
        origin: name of the known value or of the tool.
        output: path in the tool's output.
        value: what it does to the reliability of a draft, 0 to 1, without the cost of a new step.
        reason: why the user is asked.
        sort: whose value it is: "user", "either" or "produced".
        question: inputs with the same question take the same answer; the user is asked once.
        predicted: neither structure nor any run links the two; a scorer does.
        known: how sure structure and record alone are of a tool's output.
    """

    kind: Literal["known", "done", "step", "user"]
    origin: str
    output: str
    value: float
    reason: str = ""
    sort: str = ""
    question: tuple[object, ...] = ()
    predicted: bool = False
    known: float = 1.0


BIG: Final = 8
"""Steps before the target that make a chain as complex as can be."""
LACKING: Final = 2.0
Draft = dict[tuple[str, str, str], Choice]
"""Port -> choice."""


class Problem:
    """A target, what is known, and the options of every input; options are worked out when they are asked for."""

    def __init__(
        self,
        graph: ToolDependencyGraph,
        target: str,
        known: Mapping[str, Any] | Iterable[str],
        *,
        scorer: EdgeScorer | None = None,
        history: History,
        settings: PlanSettings,
        avoid: Collection[str] = (),
        done: Collection[str] = (),
        request: str = "",
    ) -> None:
        self.graph = graph
        self.target = target
        self.weigher = Weigher(graph, history, scorer, near=settings.near)
        self.history = history
        self.settings = settings
        self.avoid = frozenset(avoid) - {target}
        self.done = frozenset(done) - {target}
        graph.api(target)
        ports = known_ports(known)
        graph.clusters.prepare(ports, again=False)
        self._known = [_KnownValue(graph, port.path, port) for port in ports]
        self._asked = frozenset(canonical_words(words(request)))
        self._options: dict[tuple[str, str, str], tuple[Choice, ...]] = {}
        self._best: dict[tuple[str, str, str], float] = {}
        self._wanted: dict[str, bool] = {}
        self._needs: dict[str, tuple[Port, ...]] = {}
        self._direct: dict[str, float] | None = None

    def needs(self, tool: str) -> tuple[Port, ...]:
        """The inputs that a step must have."""
        found = self._needs.get(tool)
        if found is None:
            found = self._needs[tool] = self.graph.apis[tool].needs
        return found

    def options(self, port: Port) -> tuple[Choice, ...]:
        """The choices for an input, most promising first; the user is always among them, unless a value is known."""
        found = self._options.get(port.key)
        if found is None:
            found = self._options[port.key] = self._find(port)
        return found

    def best(self, port: Port) -> float:
        """No choice for this input has a higher value."""
        found = self._best.get(port.key)
        if found is None:
            found = self._best[port.key] = max(choice.value for choice in self.options(port))
        return found

    def known_for(self, port: Port) -> str | None:
        """Name of the known value that an input takes, if there is one."""
        ranked = [(known.fits(port, self), known.name) for known in self._known]
        most = max((rank for rank, _ in ranked), default=0)
        return next(name for rank, name in ranked if rank == most) if most else None

    def direct(self, tool: str) -> float:
        """Weight of the best link from a tool to an input of the target, w(u→target)."""
        if self._direct is None:
            self._direct = {}
            for port in self.needs(self.target):
                for choice in self.options(port):
                    if choice.kind == "step":
                        self._direct[choice.origin] = max(self._direct.get(choice.origin, 0.0), choice.value)
        return self._direct.get(tool, 0.0)

    def helps(self, tool: str, consumer: str) -> int:
        """Return how many of a step's required inputs another tool could give."""
        return sum(any(choice.origin == tool for choice in self.options(port)) for port in self.needs(consumer))

    def _find(self, port: Port) -> tuple[Choice, ...]:
        name = self.known_for(port)
        if name is not None:
            return (Choice("known", name, "", 1.0),)
        settings = self.settings
        source = value_source(port, self.history)
        asking = {"user": settings.ask_user, "either": settings.ask_either, "produced": settings.ask_produced}
        givers = () if source.kind == "user" else self.givers(port)
        # Whose value it is, is told by structure and record: a scorer tells what is likeliest to give it, if anything.
        surest = max((giver.known for giver in givers), default=0.0)
        if source.kind == "either" and (not givers or surest < settings.weak):
            source, givers = ValueSource("user", "nothing is likely to produce it"), ()
        # After the judgement: that a producer is out of order does not make its value one that users know.
        likely = [giver for giver in givers if giver.origin not in self.avoid][: settings.max_options]
        reason = source.reason if likely or source.kind == "user" else f"{source.reason}, and {self._nothing(port)}"
        question = self._question(port)
        user = Choice("user", "", "", asking[source.kind], reason, source.kind, question)
        return tuple(sorted([*likely, user], key=self._rank))

    def givers(self, port: Port) -> tuple[Choice, ...]:
        """The tools whose output may become an input, each by its best link, most likely first.

        Those to be avoided are among them. A tool that is declared to change something is none, unless the request
        asks for that in its words, or past runs took the value from there.
        """
        found: dict[str, Choice] = {}
        for link, weight, known in self.weigher.into(port):
            if link.producer in (port.tool, self.target) or not self._may_call(link.producer, port.tool):
                continue
            before = found.get(link.producer)
            if weight > 0 and (before is None or weight > before.value):
                kind: Literal["done", "step"] = "done" if link.producer in self.done else "step"
                predicted = link.kind == "predicted"
                found[link.producer] = Choice(
                    kind, link.producer, link.output, weight, predicted=predicted, known=known
                )
        return tuple(sorted(found.values(), key=lambda choice: (-choice.value, choice.origin)))

    def _may_call(self, tool: str, consumer: str) -> bool:
        spec = self.graph.apis[tool].spec
        if not (spec.read_only is False or spec.destructive) or tool in self.done:
            return True
        if self.history.weight(tool, consumer) > 0:
            return True
        if tool not in self._wanted:
            self._wanted[tool] = bool(self._asked) and self._asks_for(spec)
        return self._wanted[tool]

    def _asks_for(self, spec: ToolSpec) -> bool:
        """Return True if the request says, in its words, what a tool does and to what."""
        tool = spec.name
        said = {*canonical(tool), *canonical_words(words(spec.description.split(".", 1)[0]))}
        nouns = set(self.graph.nouns(tool))
        verbs = (said & VERBS) - READING - nouns
        return bool(verbs & self._asked and nouns and nouns <= self._asked)

    def _nothing(self, port: Port) -> str:
        """Say why nothing produces a value."""
        changes = {link.producer for link, _, _ in self.weigher.into(port)} - {port.tool, self.target}
        if not changes:
            return "nothing produces it"
        return f"only {', '.join(sorted(changes)[:3])} would, which changes something that nobody asked for"

    def _question(self, port: Port) -> tuple[object, ...]:
        if port.meaning.vague or port.meaning.words & FREE_TEXT:
            return port.key
        return (self.graph.cluster_of(port).id, port.meaning.role)

    def _rank(self, choice: Choice) -> tuple[float, str]:
        """A step costs more than an answer of the user of the same value."""
        return -choice.value * (self.settings.delta if choice.kind == "step" else 1.0), choice.origin


def known_ports(known: Mapping[str, Any] | Iterable[str]) -> list[Port]:
    """Return values somebody has as outputs without a tool."""
    found = []
    for name, value in known.items() if isinstance(known, Mapping) else ((name, None) for name in known):
        kind = type_of(value)
        leaf = Leaf(str(name), frozenset() if kind == "null" else frozenset({kind}))
        found.append(Port("", str(name), "out", leaf, meaning_of(leaf, "")))
    return found


class _KnownValue:
    """A value somebody has, and how well it fits an input."""

    def __init__(self, graph: ToolDependencyGraph, name: str, port: Port) -> None:
        self.name = name
        self.words = canonical(name)
        self.meaning = port.meaning
        cluster = graph.clusters.find(port)
        self.cluster = None if cluster is None or port.meaning.vague else cluster.id

    def fits(self, port: Port, problem: Problem) -> int:
        """0: not at all; more is better."""
        if self.name in (port.path, port.parameter) and port.tool == problem.target:
            return 4
        words = canonical(port.path.replace("[]", "").rsplit(".", 1)[-1])
        bare = len(words) == 1 and words[0] in GENERIC
        if words == self.words and (port.tool == problem.target or not bare):
            return 3
        same = port.meaning.words == self.meaning.words and port.meaning.shape == self.meaning.shape
        same = same or (self.cluster is not None and problem.graph.cluster_of(port).id == self.cluster)
        if not same or self.meaning.vague:
            return 0
        role = port.meaning.role
        if role == self.meaning.role:
            return 2
        return 0 if role and self.meaning.role else 1


def levels_of(draft: Draft, target: str, depth: int) -> dict[str, int] | None:
    """Step -> most calls between it and the target; None if a step lies too deep or there is no order."""
    producers: dict[str, set[str]] = {}
    for (tool, _, _), choice in draft.items():
        if choice.kind == "step":
            producers.setdefault(tool, set()).add(choice.origin)
    levels: dict[str, int] = {}
    waiting = [(target, 0)]
    while waiting:
        tool, level = waiting.pop()
        if level > depth:  # so does every circle
            return None
        if levels.get(tool, -1) < level:
            levels[tool] = level
            waiting += [(producer, level + 1) for producer in producers.get(tool, ())]
    return levels


def lacking(draft: Draft) -> bool:
    """Return True if the user is asked for something that only a system knows."""
    return any(choice.kind == "user" and choice.sort == "produced" for choice in draft.values())


def reliability(draft: Draft, problem: Problem) -> float:
    """Π of the values of all choices · δ^(steps before the target).

    Of inputs that share a question the least value counts, once.
    """
    steps = {choice.origin for choice in draft.values() if choice.kind == "step"}
    values = [choice.value for choice in draft.values() if choice.kind != "user"]
    values += [choice.value for choice in _questions(draft).values()]
    return math.prod(values) * problem.settings.delta ** len(steps)


def fitness(draft: Draft, problem: Problem) -> float:
    """Compactness + share of parameter nodes − depth + mean weight − path complexity, weighted [R].

    Our reading, each part from 0 to 1: compactness is the mean of 1/distance to the target over the other steps (1 if
    there are none); the share is that of the inputs that somebody can give (asked of the user, a value that anybody may
    have counts half and one that only a system knows nothing); depth is the longest way to the target by the most
    allowed; the mean weight is that over the inputs that are not the user's (1 for a known value, 0 for one that is
    asked for nevertheless); inputs that share a question count once; complexity is the number of other steps by `BIG`,
    at most 1. A candidate that asks for what only a system knows is no solution: each such question costs `LACKING`,
    more than all parts can make good.
    """
    settings = problem.settings
    levels = levels_of(draft, problem.target, settings.depth) or {problem.target: 0}
    others = len(levels) - 1
    had = {"user": 1.0, "either": 0.5, "produced": 0.0}
    asked = _questions(draft)
    given = [choice for choice in draft.values() if choice.kind != "user"]
    inputs = len(asked) + len(given)
    share = (sum(had[choice.sort] for choice in asked.values()) + len(given)) / inputs if inputs else 1.0
    weights = [choice.value for choice in given] + [0.0 for choice in asked.values() if choice.sort != "user"]
    near = sum(1 / distance for distance in _distances(draft, problem.target).values() if distance)
    return (
        settings.compactness * (near / others if others else 1.0)
        + settings.coverage * share
        - settings.shallowness * max(levels.values()) / max(1, settings.depth)
        + settings.confidence * (sum(weights) / len(weights) if weights else 1.0)
        - settings.simplicity * min(1.0, others / BIG)
        - LACKING * sum(choice.sort == "produced" for choice in asked.values())
    )


def _questions(draft: Draft) -> dict[tuple[object, ...], Choice]:
    """Return what the user is asked, each question once: as the input that is hardest to answer for."""
    found: dict[tuple[object, ...], Choice] = {}
    for choice in draft.values():
        if choice.kind == "user":
            before = found.get(choice.question)
            if before is None or choice.value < before.value:
                found[choice.question] = choice
    return found


def _distances(draft: Draft, target: str) -> dict[str, int]:
    """Step -> fewest calls between it and the target."""
    producers: dict[str, set[str]] = {}
    for (tool, _, _), choice in draft.items():
        if choice.kind == "step":
            producers.setdefault(tool, set()).add(choice.origin)
    distances = {target: 0}
    waiting = deque([target])
    while waiting:
        tool = waiting.popleft()
        for producer in producers.get(tool, ()):
            if producer not in distances:
                distances[producer] = distances[tool] + 1
                waiting.append(producer)
    return distances
