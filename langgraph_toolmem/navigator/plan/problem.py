"""One search as a problem: which inputs need a value, what may give it, and how good a set of choices is.

A *draft* maps every required input of every step to one choice: a known value, an output of another step, or the user.
It is valid if its steps have an order and no step stands more than `depth` calls before the target. Both strategies
search among the same valid drafts; they differ in what they hold to be good:

- alpha-beta: the reliability, Π of all choices' values · δ^(steps before the target). A link's value is its weight, a
  known value's is 1, asking costs as the settings say, and a question that serves several inputs costs once.
- annealing: `annealing.fitness`, the paper's parts with our reading [R].
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from langgraph_toolmem.base.checks import expect, is_count, is_number, is_share
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import Link, LinkScores, weight_of
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.plan.reach import Reach
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import (
    FREE_TEXT,
    GENERIC,
    IDENTIFIERS,
    READING,
    VERBS,
    Port,
    canonical,
    canonical_words,
    meaning_of,
)
from langgraph_toolmem.text.schema import Leaf, type_of
from langgraph_toolmem.text.words import word_set, words

Source = Literal["user", "produced", "either"]

ENOUGH: Final = 3
"""Recorded uses of a parameter from which the record says who gives its value."""
MOSTLY, SELDOM = 0.5, 0.2
OTHERS: Final = word_set("external custom tax vat passport")
"""Words of an identifier that another system gave: the user may know it."""


@dataclass(frozen=True)
class PlanSettings:
    """Settings of the search for chains. No value is known from the paper; all are our own choice [O].

    Attributes:
        alpha: a producer whose score is under α·e^(−κ·depth) is left out, unless it gives several of what is needed
            or is the best there is.
        beta: a producer with this score or more ends the search for its parameter.
        kappa: how fast the lower bound fades with depth.
        delta: what each further step costs: the share of the score that it leaves.
        depth: calls one after another before the target, at most.
        ask_user, ask_either, ask_produced: what is left of the score when the user is asked for a value that only a
            user has, that anybody may have, that only a system knows. The last is so small that a chain that needs no
            such value is better than any that does.
        weak: a value that anybody may have is looked for only if something gives it with at least this weight; else it
            is the user's.
        max_options: producers of one parameter that are tried, most likely first.
        max_nodes: nodes of the search tree that are visited, at most.
    """

    alpha: float = 0.1
    beta: float = 0.9
    kappa: float = 0.3
    delta: float = 0.85
    depth: int = 4
    ask_user: float = 0.9
    ask_either: float = 0.2
    ask_produced: float = 1e-9
    weak: float = 0.2
    max_options: int = 12
    max_nodes: int = 800

    def __post_init__(self) -> None:
        """Check types and ranges. Raises ConfigurationError that names the field and what is expected."""
        for name in ("alpha", "ask_user", "ask_either", "ask_produced", "weak"):
            expect(self, name, "a share from 0 to 1", is_share)
        expect(self, "delta", "a number above 0 and below 1", lambda v: is_number(v) and 0 < v < 1)
        for name in ("beta", "kappa"):
            expect(self, name, "a number from 0", lambda v: is_number(v) and v >= 0)
        for name in ("max_options", "max_nodes"):
            expect(self, name, "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "depth", "a whole number from 0", lambda v: is_count(v, 0))


class Choice(NamedTuple):
    """One source of an input's value.

    Attributes:
        kind: "known", "done" (output of a call made before), "step" or "user".
        origin: name of the known value or of the tool.
        output: path in the tool's output.
        value: what it does to the reliability of a draft, 0 to 1, without the cost of a new step.
        reason: why the user is asked.
        sort: whose value it is.
        question: inputs with the same question take the same answer; the user is asked once.
    """

    kind: Literal["known", "done", "step", "user"]
    origin: str
    output: str
    value: float
    reason: str = ""
    sort: Source = "either"
    question: tuple[object, ...] = ()


PortKey = tuple[str, str, str]
Assignment = dict[PortKey, Choice]


def value_source(port: Port, history: History) -> tuple[Source, str]:
    """Return who gives an input its value, the user or another call, and why [O].

    The record tells first: a value that came out of earlier outputs in most of at least `ENOUGH` recorded uses is
    *produced*, one that did in few of them is the user's. Without a record, choices from a list and truth values are
    the user's, ids, tokens and hashes of this system are produced, and everything else is *either*: it is looked for,
    and asked for where nothing produces it.
    """
    produced = sum(count for _, count in history.flows_into(port.tool, port.parameter))
    given = history.given.get((port.tool, port.parameter), 0.0)
    total = max(produced + given, history.good(port.tool)) if produced or given else 0.0
    if total >= ENOUGH:
        share = min(1.0, produced / total)
        reason = f"in {share:.0%} of {total:.0f} recorded uses it came out of another call"
        return ("produced" if share >= MOSTLY else "user" if share < SELDOM else "either"), reason
    if port.meaning.shape == "flag":
        return "user", "a truth value is a wish"
    if port.leaf.choices:
        return "user", "a choice from a list"
    if port.meaning.words & IDENTIFIERS and not port.meaning.words & OTHERS:
        return "produced", "an identifier that only a system knows"
    return "either", "nothing says so"


def _is_of_the_client(port: Port) -> bool:
    """Return True for keys, tokens and idempotency keys: no operation gives them, the client has or makes them."""
    name = canonical(port.path.replace("[]", "").rsplit(".", 1)[-1])
    said = {*name}
    if name[-1:] in (("token",), ("secret",)):  # an interaction's token comes with the interaction
        return True
    if said & {"idempotency", "nonce", "apikey"} or {"api", "key"} <= said or {"client", "id"} <= said:
        return True
    return bool(said & {"key", "token", "secret"}) and said <= _CREDENTIAL_WORDS


_CREDENTIAL_WORDS: Final = word_set("key token secret access api auth bearer client user app")


class Producers:
    """The tools that may give an input its value; all searches of a plan share them."""

    def __init__(
        self,
        graph: ToolDependencyGraph,
        history: History,
        *,
        learned: LinkScores | None = None,
        done: Collection[str] = (),
        request: str = "",
    ) -> None:
        self.graph, self.history, self.done = graph, history, frozenset(done)
        self._learned = learned or {}
        self._asked = frozenset(canonical_words(words(request)))
        self._wanted: dict[str, bool] = {}
        self._found: dict[PortKey, tuple[Choice, ...]] = {}

    def of(self, port: Port) -> tuple[Choice, ...]:
        """Return the tools whose output may become an input, each by its best link, most likely first.

        A tool that is declared to change something is none, unless the request asks for that in its words, or past runs
        took the value from there.
        """
        if port.key not in self._found:
            found: dict[str, Choice] = {}
            for link, weight in self.weighed(port):
                if link.producer == port.tool or not self._may_call(link.producer, port.tool):
                    continue
                before = found.get(link.producer)
                if weight > 0 and (before is None or weight > before.value):
                    kind: Literal["done", "step"] = "done" if link.producer in self.done else "step"
                    found[link.producer] = Choice(kind, link.producer, link.output, weight)
            ranked = sorted(found.values(), key=lambda choice: (-choice.value, choice.origin))
            self._found[port.key] = tuple(ranked)
        return self._found[port.key]

    def weighed(self, port: Port) -> list[tuple[Link, float]]:
        """Return the links into an input with their weights, 0 to 1, less where the producer failed."""
        history = self.history
        return [
            (link, history.works(link.producer) * weight_of(link, history, self._learned))
            for link in self.graph.links_into(port, history)
        ]

    def writers(self, port: Port) -> set[str]:
        """Return the tools that give an input its value by a change that nobody asked for."""
        return {link.producer for link, _ in self.weighed(port)} - {
            port.tool,
            *(each.origin for each in self.of(port)),
        }

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
        said = {*canonical(spec.name), *canonical_words(words(spec.description.split(".", 1)[0]))}
        nouns = set(self.graph.nouns(spec.name))
        verbs = (said & VERBS) - READING - nouns
        return bool(verbs & self._asked and nouns and nouns <= self._asked)


class PlanSearch:
    """A target, what is known, and the options of every input; options are worked out when they are asked for."""

    def __init__(
        self,
        producers: Producers,
        target: str,
        known: Sequence[Port] = (),
        *,
        settings: PlanSettings,
        avoid: Collection[str] = (),
    ) -> None:
        self.graph, self.history = producers.graph, producers.history
        self.graph.api(target)
        self.producers, self.target, self.settings = producers, target, settings
        self.avoid, self.done = frozenset(avoid) - {target}, producers.done - {target}
        self._known = known
        self._reach: Reach | None = None
        self._options: dict[PortKey, tuple[Choice, ...]] = {}
        self._best: dict[PortKey, float] = {}
        self._direct: dict[str, float] | None = None

    def needs(self, tool: str) -> tuple[Port, ...]:
        """Return the inputs that a step must have."""
        return self.graph.apis[tool].needs

    def leave_aside(self, reach: Reach) -> None:
        """Search without what no chain can lead to; see `reach`."""
        self._reach = reach
        self._options, self._best, self._direct = {}, {}, None

    def is_for_a_system(self, port: Port) -> bool:
        """Return True if a system alone knows an input's value, and neither the user nor this run does."""
        choices = self.options(port)
        has_value = any(choice.kind in ("known", "done") for choice in choices)
        return not has_value and any(choice.sort == "produced" for choice in choices if choice.kind == "user")

    def options(self, port: Port) -> tuple[Choice, ...]:
        """Return the choices for an input, most promising first.

        The user is always among them, unless a value is known.
        """
        found = self._options.get(port.key)
        if found is None:
            found = self._options[port.key] = self._find(port)
        return found

    def best(self, port: Port) -> float:
        """Return the highest value of a choice for this input."""
        found = self._best.get(port.key)
        if found is None:
            found = self._best[port.key] = max(choice.value for choice in self.options(port))
        return found

    def known_for(self, port: Port) -> str | None:
        """Return the name of the known value that an input takes, if there is one."""
        ranked = [(self._fits(known, port), known.path) for known in self._known]
        most = max((rank for rank, _ in ranked), default=0)
        return next(name for rank, name in ranked if rank == most) if most else None

    def _fits(self, known: Port, port: Port) -> int:
        """Return how well a known value fits an input; 0: not at all."""
        if known.path in (port.path, port.parameter) and port.tool == self.target:
            return 4
        said, own = canonical(known.path), canonical(port.path.replace("[]", "").rsplit(".", 1)[-1])
        bare = len(own) == 1 and own[0] in GENERIC
        if own == said and (port.tool == self.target or not bare):
            return 3
        same = (known.meaning.words, known.meaning.shape) == (port.meaning.words, port.meaning.shape)
        if known.meaning.vague or not (same or self.graph.key_of(known) == self.graph.key_of(port)):
            return 0
        role = port.meaning.role
        if role == known.meaning.role:
            return 2
        return 0 if role and known.meaning.role else 1

    def direct(self, tool: str) -> float:
        """Return the weight of the best link from a tool to an input of the target, w(u→target)."""
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
        source, reason = value_source(port, self.history)
        givers = [] if source == "user" else [each for each in self.producers.of(port) if each.origin != self.target]
        if source == "either" and (not givers or givers[0].value < settings.weak):
            source, reason, givers = "user", "nothing is likely to produce it", []
        reach, key = self._reach, self.graph.key_of(port)
        if reach is not None:
            givers = [giver for giver in givers if not reach.is_circle(giver.origin, key)]
        # Only now: that a producer is out of order does not make its value one that users know.
        likely = [giver for giver in givers if giver.origin not in self.avoid][: settings.max_options]
        if not givers and source == "produced":
            source, reason = self._who_has(port) or (source, reason)
        if not likely and source == "produced":
            reason = f"{reason}, and nothing gives it"
        cost = {"user": settings.ask_user, "either": settings.ask_either, "produced": settings.ask_produced}[source]
        user = Choice("user", "", "", cost, reason, source, self._question(port))
        return tuple(sorted([*likely, user], key=self._rank))

    def _who_has(self, port: Port) -> tuple[Source, str] | None:
        """Return who has an identifier that no tool gives, and why; None if nothing says so."""
        writers = self.producers.writers(port) - {self.target}
        if writers:
            return "either", f"only {', '.join(sorted(writers)[:3])} would give it, by a change"
        if _is_of_the_client(port):
            return "user", "a key of the client"
        if self._reach is not None and self.graph.key_of(port) in self._reach.kept:
            return "either", "it is given to those alone who have it, or made it"
        kind = self._kind_of(port)
        return ("either", f"what it is the id of, {kind} says") if kind else None

    def _kind_of(self, port: Port) -> str:
        """Return the input next to an id that says what sort it is: `source_type` of `source_id`; "" for none."""
        place, _, level = port.path.replace("[]", "").rpartition(".")
        of = set(canonical(level)) - IDENTIFIERS
        for other in self.needs(port.tool):
            beside, _, name = other.path.replace("[]", "").rpartition(".")
            said = canonical(name)
            if beside == place and said[-1:] in (("type",), ("kind",)) and (not of or of == set(said[:-1])):
                return other.path
        return ""

    def _question(self, port: Port) -> tuple[object, ...]:
        if port.meaning.vague or port.meaning.words & FREE_TEXT:
            return port.key
        return (self.graph.key_of(port), port.meaning.role)

    def _rank(self, choice: Choice) -> tuple[float, str]:
        """Return the place of a choice: a step costs more than an answer of the user of the same value."""
        return -choice.value * (self.settings.delta if choice.kind == "step" else 1.0), choice.origin


def known_ports(known: Mapping[str, Any] | Iterable[str]) -> list[Port]:
    """Return values somebody has as outputs without a tool."""
    found = []
    for name, value in known.items() if isinstance(known, Mapping) else ((name, None) for name in known):
        kind = type_of(value)
        leaf = Leaf(str(name), frozenset() if kind == "null" else frozenset({kind}))
        found.append(Port("", str(name), "out", leaf, meaning_of(leaf, "")))
    return found


def step_depths(draft: Assignment, target: str, depth: int) -> dict[str, int] | None:
    """Return step -> most calls between it and the target; None if a step lies too deep or there is no order."""
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


def asks_for_system_value(draft: Assignment) -> bool:
    """Return True if the user is asked for something that only a system knows."""
    return any(choice.kind == "user" and choice.sort == "produced" for choice in draft.values())
