"""One search for a chain: the inputs that need a value, their possible sources, and the most reliable set of choices.

A *draft* maps every required input of every step to one choice: a known value, an output of another step, or the user.
It is valid if its steps have an order and every step is at most `depth` calls before the target. Both strategies search
among the same valid drafts; they differ in the score:

- `alpha_beta`: the reliability, Π of all choices' values · δ^(steps before the target). The value of a link is its
  weight, a known value has 1, questions cost as in the settings, and a question that serves several inputs costs once.
- `papers.naviagent.annealing`: its fitness, the paper's parts with our reading [R].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from langgraph_toolmem.base.checks import expect, is_count, is_number, is_share
from langgraph_toolmem.navigator.dependencies import Link, LinkScores, ToolDependencyGraph, weight_of
from langgraph_toolmem.navigator.evidence import History
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import Port, canonical, canonical_words, meaning_of
from langgraph_toolmem.text.schema import Leaf, type_of
from langgraph_toolmem.text.words import LEXICON, word_set, words

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.dependencies import Key

# --- drafts and their settings ---

KnownBy = Literal["user", "system", "either"]
"""The owner of a value of an input: the user, a system whose tool produces it, or either."""

ENOUGH: Final = 3
"""Least number of recorded uses of a parameter from which the record determines its source."""


@dataclass(frozen=True)
class PlanSettings:
    """Settings of the search for chains. The paper gives no values; all are our own choice [O].

    Attributes:
        alpha: a producer with a score under α·e^(−κ·depth) is left out, unless it gives several needed inputs or is the
            best one.
        beta: a producer with this score or more ends the search for its parameter.
        kappa: how fast the lower bound decreases with depth.
        delta: factor of the score for each further step.
        depth: most calls one after another before the target.
        ask_user, ask_either, ask_produced: factor of the score when the user is asked for a value that only a user
            knows, that both may know, that only a system knows. The last is so small that chains without such a value
            always win.
        weak: a value that both may know is searched for only if a producer has at least this weight; otherwise the user
            is asked.
        max_options: limit of tried producers of one parameter, most likely first.
        max_nodes: limit of visited nodes of the search tree.
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
        """Check types and ranges. Raises ConfigurationError with the field and the expected value."""

        def is_inner_share(value: Any) -> bool:
            return is_share(value) and 0 < value < 1

        def is_positive_count(value: Any) -> bool:
            return is_count(value, 1)

        def is_from_zero(value: Any) -> bool:
            return is_number(value) and value >= 0

        def is_count_from_zero(value: Any) -> bool:
            return is_count(value, 0)

        for name in ("alpha", "ask_user", "ask_either", "ask_produced", "weak"):
            expect(self, name, "a share from 0 to 1", is_share)
        expect(self, "delta", "a number above 0 and below 1", is_inner_share)
        for name in ("beta", "kappa"):
            expect(self, name, "a number from 0", is_from_zero)
        for name in ("max_options", "max_nodes"):
            expect(self, name, "a whole number from 1", is_positive_count)
        expect(self, "depth", "a whole number from 0", is_count_from_zero)


class Choice(NamedTuple):
    """One source of an input's value.

    Attributes:
        kind: "known", "done" (output of a call made before), "step" or "user".
        origin: name of the known value or of the tool.
        output: path in the tool's output.
        value: its factor in the reliability of a draft, 0 to 1, without the cost of a new step.
        reason: why the user is asked.
        known_by: the owner of the value.
        question: inputs with the same question take the same answer; the user is asked once.
    """

    kind: Literal["known", "done", "step", "user"]
    origin: str
    output: str
    value: float
    reason: str = ""
    known_by: KnownBy = "either"
    question: tuple[object, ...] = ()


PortKey = tuple[str, str, str]
Assignment = dict[PortKey, Choice]


# --- the most reliable draft ---


class Solution(NamedTuple):
    """The best draft of a search.

    Attributes:
        draft: port -> choice.
        score: by the strategy's measure.
        cut_short: a limit ended the search.
        nodes: drafts that were tried.
    """

    draft: Assignment
    score: float
    cut_short: bool = False
    nodes: int = 0


def never() -> bool:
    """Return False: a search without a limit on time."""
    return False


def alpha_beta(problem: PlanSearch, expired: Callable[[], bool] = never) -> Solution:
    """Return the most reliable draft, by backward alpha–beta search [R].

    From the target backward: an open input is tried with each of its options, and a producer adds its own inputs, until
    all inputs have a source. A branch ends when it cannot become better than the best chain so far (a lossless cut).
    Two more cuts are the paper's and may lose a better chain:

        S(u) = δ^depth · (w(u→next) + 1[u→target API]·w + 1[u→target param]·w)

    - α at parameter nodes: a producer u with S(u) < α·e^(−κ·depth) is left out if it is not well connected: if it gives
      only one of the inputs that its consumer needs. The best producer of a parameter is never left out.
    - β at API nodes: after a chain with a producer of S(u) ≥ β is found, other producers are not tried for its input.

    Both tighten during the search: with n of the N allowed nodes visited, α grows to (1 + n/N)·α and β falls to (1 −
    n/2N)·β. With α = 0 and β = 6 or more (S is less than 3) the search is exact: see `PlanSearch.without_cuts`.

    Args:
        expired: returns True when the time for the search is over. Defaults to `never`: nodes alone limit it.
    """
    search = _Search(problem, expired)
    search.open(problem.target, (), 1.0)
    return search.best._replace(cut_short=search.over, nodes=search.nodes)


class _SettledInput(NamedTuple):
    """An input with one option, and the earlier cost of its question."""

    port: Port
    choice: Choice
    asked_before: float | None


class _Search:
    def __init__(self, problem: PlanSearch, expired: Callable[[], bool]) -> None:
        self.problem = problem
        self.settings = problem.settings
        self.expired = expired
        # Both change on the way down and are restored on the way up.
        self.levels = {problem.target: 0}
        self.draft: Assignment = {}
        # Question -> the lowest value of the choices that ask it so far.
        self.asked: dict[tuple[object, ...], float] = {}
        self.best = Solution({}, -1.0)
        self.nodes = 0
        self.over = False

    def open(self, tool: str, rest: tuple[Port, ...], score: float) -> None:
        """Add a step: inputs with one option are settled, inputs with several are left open."""
        settled: list[_SettledInput] = []
        left = []
        for port in self.problem.needs(tool):
            options = self.problem.options(port)
            if len(options) > 1:
                left.append(port)
                continue
            (choice,) = options
            self.draft[port.key] = choice
            settled.append(_SettledInput(port, choice, self.asked.get(choice.question)))
            score *= self._cost(choice)
        self._visit((*left, *rest), score)
        # In reverse: two inputs may share a question, and each step back restores the state before it.
        for step in reversed(settled):
            del self.draft[step.port.key]
            self._unask(step.choice, step.asked_before)

    def _cost(self, choice: Choice) -> float:
        """Return the factor of a choice in the score, and record that the user is asked."""
        if choice.kind != "user":
            return choice.value
        # A question that serves several inputs costs once, as much as the most expensive of them.
        before = self.asked.get(choice.question, 1.0)
        self.asked[choice.question] = min(before, choice.value)
        # Settings may make a question cost all that there is.
        if before == 0:
            return 1.0
        return self.asked[choice.question] / before

    def _unask(self, choice: Choice, before: float | None) -> None:
        if choice.kind != "user":
            return
        if before is None:
            del self.asked[choice.question]
        else:
            self.asked[choice.question] = before

    def _bound(self, still: tuple[Port, ...], score: float) -> float:
        """Return an upper bound of the score over all ways to settle the open inputs."""
        counted = set(self.asked)
        for port in still:
            options = self.problem.options(port)
            question: tuple[object, ...] = ()
            for choice in options:
                if choice.kind == "user":
                    question = choice.question
                    break
            # Inputs that share a question may be free; the first of them pays.
            if question not in counted:
                score *= self.problem.best(port)
                counted.add(question)
        return score

    def _visit(self, still: tuple[Port, ...], score: float) -> None:
        self._count_node()
        # A chain that is better by a rounding error does not count as better.
        if self._bound(still, score) <= self.best.score * (1 + 1e-12):
            return
        if not still:
            self.best = Solution(dict(self.draft), score)
            return
        port, rest = still[0], still[1:]
        for choice in self._worth_trying(port):
            # A search beyond its limit continues until it has one chain, because a plan without a chain is useless.
            if self.over and self.best.score >= 0:
                return
            before = self.best
            self.draft[port.key] = choice
            self._try(port, choice, rest, score)
            del self.draft[port.key]
            is_better = self.best is not before
            if is_better and choice.kind == "step" and self._score(port, choice) >= self._beta():
                return

    def _count_node(self) -> None:
        self.nodes += 1
        if self.nodes >= self.settings.max_nodes:
            self.over = True
        # Reading the clock costs as much as a node.
        elif self.nodes % 32 == 0 and self.expired():
            self.over = True

    def _try(self, port: Port, choice: Choice, rest: tuple[Port, ...], score: float) -> None:
        """Settle the open inputs after one choice for an input."""
        if choice.kind != "step":
            asked = self.asked.get(choice.question)
            self._visit(rest, score * self._cost(choice))
            self._unask(choice, asked)
        elif choice.origin in self.levels:
            self._link(rest, score * choice.value)
        elif self.levels[port.tool] < self.settings.depth:
            self.levels[choice.origin] = self.levels[port.tool] + 1
            self.open(choice.origin, rest, score * choice.value * self.settings.delta)
            del self.levels[choice.origin]

    def _link(self, rest: tuple[Port, ...], score: float) -> None:
        """Feed an input by an existing step, unless that makes a circle or is too deep."""
        levels = step_depths(self.draft, self.problem.target, self.settings.depth)
        if levels is not None:
            before, self.levels = self.levels, levels
            self._visit(rest, score)
            self.levels = before

    def _worth_trying(self, port: Port) -> list[Choice]:
        """Return the options without those that α cuts off."""
        level = self.levels[port.tool] + 1
        least = self._alpha() * math.exp(-self.settings.kappa * level)
        worth_trying = []
        has_producer = False
        for choice in self.problem.options(port):
            if choice.kind == "step":
                # The best producer of an input is never left out, for any score.
                if has_producer and self._is_cut_off(port, choice, least):
                    continue
                has_producer = True
            worth_trying.append(choice)
        return worth_trying

    def _is_cut_off(self, port: Port, choice: Choice, least: float) -> bool:
        if choice.origin in self.levels or self._score(port, choice) >= least:
            return False
        return self.problem.helps(choice.origin, port.tool) < 2

    def _score(self, port: Port, choice: Choice) -> float:
        """Return S(u) of the producer of a choice."""
        direct = self.problem.direct(choice.origin)
        to_target = 0.0
        if port.tool == self.problem.target:
            to_target = direct
        level = self.levels[port.tool] + 1
        return float(self.settings.delta**level * (choice.value + to_target + direct))

    def _alpha(self) -> float:
        return self.settings.alpha * (1 + self.nodes / self.settings.max_nodes)

    def _beta(self) -> float:
        return self.settings.beta * (1 - self.nodes / (2 * self.settings.max_nodes))


class ValueSource(NamedTuple):
    """The source of an input's value, and the reason."""

    known_by: KnownBy
    reason: str


def value_source(port: Port, history: History) -> ValueSource:
    """Return the source of an input's value, the user or another call, and the reason [O].

    The record comes first: a value that came from earlier outputs in most of at least `ENOUGH` recorded uses is the
    system's, one that did so in few of them is the user's. Without a record, choices from a list and truth values are
    the user's, ids, tokens and hashes of this system are the system's, and all other values are *either*: they are
    searched for, and the user is asked without a producer.
    """
    recorded = _recorded_source(port, history)
    if recorded is not None:
        return recorded
    if port.meaning.shape == "flag":
        return ValueSource("user", "a truth value is a wish")
    if port.leaf.choices:
        return ValueSource("user", "a choice from a list")
    # Identifiers of another system: the user may know a passport's number or the id in their own shop.
    of_another_system = word_set("external custom tax vat passport")
    if port.meaning.words & LEXICON.identifiers and not port.meaning.words & of_another_system:
        return ValueSource("system", "an identifier that only a system knows")
    return ValueSource("either", "nothing says so")


def _recorded_source(port: Port, history: History) -> ValueSource | None:
    produced = sum(history.flows_into(port.tool, port.parameter).values())
    given = history.given.get((port.tool, port.parameter), 0.0)
    if not produced and not given:
        return None
    # In the other calls the value was in a text: they count against the outputs.
    total = max(produced + given, history.good(port.tool))
    if total < ENOUGH:
        return None
    share = min(1.0, produced / total)
    reason = f"in {share:.0%} of {total:.0f} recorded uses it came out of another call"
    if share >= 0.5:
        return ValueSource("system", reason)
    if share < 0.2:
        return ValueSource("user", reason)
    return ValueSource("either", reason)


def _is_of_the_client(port: Port) -> bool:
    """Return True for keys, tokens and idempotency keys: operations do not give them, the client has or makes them."""
    name = canonical(port.level)
    # An interaction's token comes with the interaction.
    if name[-1:] in (("token",), ("secret",)):
        return True
    said = set(name)
    if said & {"idempotency", "nonce", "apikey"} or {"api", "key"} <= said or {"client", "id"} <= said:
        return True
    of_credentials = word_set("key token secret access api auth bearer client user app")
    return bool(said & {"key", "token", "secret"}) and said <= of_credentials


# --- sources of values ---


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
        self._choices: dict[PortKey, tuple[Choice, ...]] = {}

    def of(self, port: Port) -> tuple[Choice, ...]:
        """Return the tools whose output may become an input, each by its best link, most likely first.

        A tool that is declared to change something is excluded, unless the request asks for the change in its words, or
        past runs took the value from it.
        """
        choices = self._choices.get(port.key)
        if choices is None:
            choices = self._choices[port.key] = self._ranked(port)
        return choices

    def _ranked(self, port: Port) -> tuple[Choice, ...]:
        best: dict[str, Choice] = {}
        for link in self.graph.links_into(port, self.history):
            tool = link.producer
            if tool == port.tool or not self._may_call(tool, port.tool):
                continue
            weight = self.weight(link)
            if weight <= 0 or (tool in best and weight <= best[tool].value):
                continue
            kind: Literal["done", "step"] = "step"
            if tool in self.done:
                kind = "done"
            best[tool] = Choice(kind, tool, link.output, weight)
        return tuple(sorted(best.values(), key=_most_likely_first))

    def weight(self, link: Link) -> float:
        """Return the weight of a link, 0 to 1, reduced by failures of the producer."""
        return self.history.works(link.producer) * weight_of(link, self.history, self._learned)

    def writers(self, port: Port) -> set[str]:
        """Return the tools that give an input its value by a change that the request does not ask for."""
        producers = {link.producer for link in self.graph.links_into(port, self.history)}
        allowed = {choice.origin for choice in self.of(port)}
        return producers - allowed - {port.tool}

    def _may_call(self, tool: str, consumer: str) -> bool:
        spec = self.graph.apis[tool].spec
        changes = spec.read_only is False or spec.destructive
        if not changes or tool in self.done:
            return True
        if self.history.weight(tool, consumer) > 0:
            return True
        if tool not in self._wanted:
            self._wanted[tool] = bool(self._asked) and self._asks_for(spec)
        return self._wanted[tool]

    def _asks_for(self, spec: ToolSpec) -> bool:
        """Return True if the request's words name a tool's action and its object."""
        nouns = set(self.graph.nouns(spec.name))
        if not nouns or not nouns <= self._asked:
            return False
        # Later sentences may name other tools ("use cancel_order to undo it").
        first_sentence = spec.description.split(".", 1)[0]
        said = {*canonical(spec.name), *canonical_words(words(first_sentence))}
        verbs = (said & LEXICON.verbs) - LEXICON.reading - nouns
        return bool(verbs & self._asked)


def _most_likely_first(choice: Choice) -> tuple[float, str]:
    return -choice.value, choice.origin


# --- the inputs of a search, and their options ---


class PlanSearch:
    """A target, the known values, and the options of every input, which are computed on demand."""

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
        # Raises for a target outside the graph.
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
        """Search without the values that chains cannot produce; see `reach`."""
        # Results that were computed from the old options are invalid.
        self._reach = reach
        self._options, self._best, self._direct = {}, {}, None

    def without_cuts(self) -> PlanSearch:
        """Return this search for complete chains alone: exact, and a chain that asks for a system's value scores 0."""
        # β falls to half of this at the end of the search, and S(u) is less than 3.
        settings = replace(self.settings, alpha=0.0, beta=6.0, ask_produced=0.0)
        search = PlanSearch(self.producers, self.target, self._known, settings=settings, avoid=self.avoid)
        search._reach = self._reach
        return search

    def is_for_a_system(self, port: Port) -> bool:
        """Return True if only a system knows an input's value, but neither the user nor this run."""
        is_asked = False
        for choice in self.options(port):
            # This run has the value already.
            if choice.kind in ("known", "done"):
                return False
            if choice.kind == "user" and choice.known_by == "system":
                is_asked = True
        return is_asked

    def options(self, port: Port) -> tuple[Choice, ...]:
        """Return the choices for an input, most promising first.

        The user is always an option, unless the value is known.
        """
        # Kept: a search needs the options of an input at each of its nodes.
        options = self._options.get(port.key)
        if options is None:
            options = self._options[port.key] = self._find(port)
        return options

    def best(self, port: Port) -> float:
        """Return the highest value of a choice for this input."""
        best = self._best.get(port.key)
        if best is None:
            best = self._best[port.key] = max(choice.value for choice in self.options(port))
        return best

    def known_for(self, port: Port) -> str | None:
        """Return the name of the known value that an input takes, or None."""
        name, most = None, 0
        for known in self._known:
            fit = self._fits(known, port)
            if fit > most:
                name, most = known.path, fit
        return name

    def _fits(self, known: Port, port: Port) -> int:
        """Return how well a known value fits an input; 0: not at all."""
        is_of_target = port.tool == self.target
        if known.path in (port.path, port.parameter) and is_of_target:
            return 4
        name = canonical(port.level)
        # A bare `id` belongs to the target, not to each step on the way to it.
        if name == canonical(known.path) and (is_of_target or not _is_bare(name)):
            return 3
        if known.meaning.vague or not self._mean_the_same(known, port):
            return 0
        if port.meaning.role == known.meaning.role:
            return 2
        # The origin of a flight is not its destination.
        if port.meaning.role and known.meaning.role:
            return 0
        return 1

    def _mean_the_same(self, known: Port, port: Port) -> bool:
        if (known.meaning.words, known.meaning.shape) == (port.meaning.words, port.meaning.shape):
            return True
        # Aliases join values with different words.
        return self.graph.key_of(known) == self.graph.key_of(port)

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
        helped = 0
        for port in self.needs(consumer):
            for choice in self.options(port):
                if choice.origin == tool:
                    helped += 1
                    break
        return helped

    def _find(self, port: Port) -> tuple[Choice, ...]:
        name = self.known_for(port)
        if name is not None:
            return (Choice("known", name, "", 1.0),)
        source = value_source(port, self.history)
        givers = self._givers(port, source)
        if source.known_by == "either" and not self._is_likely(givers):
            source, givers = ValueSource("user", "nothing is likely to produce it"), []
        givers = self._within_reach(port, givers)
        # Filtered here, after classifying: a broken producer does not make its value one that users know.
        likely = [giver for giver in givers if giver.origin not in self.avoid][: self.settings.max_options]
        if not givers and source.known_by == "system":
            source = self._who_has(port) or source
        if not likely and source.known_by == "system":
            source = source._replace(reason=f"{source.reason}, and nothing gives it")
        return tuple(sorted([*likely, self._asking_user(port, source)], key=self._rank))

    def _is_likely(self, givers: Sequence[Choice]) -> bool:
        """Return True if the best of some givers is worth a search for a value that the user may know too."""
        return bool(givers) and givers[0].value >= self.settings.weak

    def _asking_user(self, port: Port, source: ValueSource) -> Choice:
        """Return the choice to ask the user, which every input has: so a search always ends in a chain."""
        settings = self.settings
        costs = {"user": settings.ask_user, "either": settings.ask_either, "system": settings.ask_produced}
        return Choice("user", "", "", costs[source.known_by], source.reason, source.known_by, self._question(port))

    def _givers(self, port: Port, source: ValueSource) -> list[Choice]:
        """Return the tools that may give an input its value; empty for a value that only the user knows."""
        if source.known_by == "user":
            return []
        # The target is the last call, so nothing is taken from it.
        return [giver for giver in self.producers.of(port) if giver.origin != self.target]

    def _within_reach(self, port: Port, givers: list[Choice]) -> list[Choice]:
        if self._reach is None:
            return givers
        key = self.graph.key_of(port)
        within: list[Choice] = []
        for giver in givers:
            if not self._reach.is_circle(giver.origin, key):
                within.append(giver)
        return within

    def _who_has(self, port: Port) -> ValueSource | None:
        """Return the owner of an identifier without a producer, and the reason, or None."""
        # The user may have created it before: a plan must not create something only to get an id.
        writers = self.producers.writers(port) - {self.target}
        if writers:
            return ValueSource("either", f"only {', '.join(sorted(writers)[:3])} would give it, by a change")
        if _is_of_the_client(port):
            return ValueSource("user", "a key of the client")
        if self._reach is not None and self.graph.key_of(port) in self._reach.kept:
            return ValueSource("either", "it is given to those alone who have it, or made it")
        kind = self._kind_of(port)
        if kind:
            return ValueSource("either", f"what it is the id of, {kind} says")
        return None

    def _kind_of(self, port: Port) -> str:
        """Return the input that names the type of an id, such as `source_type` for `source_id`, or ""."""
        place, _, level = port.path.replace("[]", "").rpartition(".")
        thing = set(canonical(level)) - LEXICON.identifiers
        for other in self.needs(port.tool):
            other_place, _, name = other.path.replace("[]", "").rpartition(".")
            if other_place != place:
                continue
            *nouns, last = canonical(name) or ("",)
            if last in ("type", "kind") and (not thing or thing == set(nouns)):
                return other.path
        return ""

    def _question(self, port: Port) -> tuple[object, ...]:
        # Two free texts, or two bare ids, are two questions, even with similar names.
        if port.meaning.vague or port.meaning.words & LEXICON.free_text:
            return port.key
        return (self.graph.key_of(port), port.meaning.role)

    def _rank(self, choice: Choice) -> tuple[float, str]:
        """Return the sort key of a choice: a step costs more than an answer of the user of the same value."""
        if choice.kind == "step":
            return -choice.value * self.settings.delta, choice.origin
        return -choice.value, choice.origin


def _is_bare(name: tuple[str, ...]) -> bool:
    """Return True for a name without an owner, such as `id`."""
    return len(name) == 1 and name[0] in LEXICON.generic


def known_ports(known: Mapping[str, Any] | Iterable[str]) -> list[Port]:
    """Return known values as outputs without a tool."""
    if not isinstance(known, Mapping):
        known = dict.fromkeys(known)
    ports = []
    for name, value in known.items():
        # A bare name has the value None, so its type is unknown.
        types: set[str] = {type_of(value)} - {"null"}
        leaf = Leaf(str(name), frozenset(types))
        ports.append(Port("", str(name), "out", leaf, meaning_of(leaf, "")))
    return ports


def step_depths(draft: Assignment, target: str, depth: int) -> dict[str, int] | None:
    """Return step -> most calls between it and the target; None if a step is too deep or there is no order."""
    producers: dict[str, set[str]] = {}
    for (tool, _direction, _path), choice in draft.items():
        if choice.kind == "step":
            producers.setdefault(tool, set()).add(choice.origin)
    levels: dict[str, int] = {}
    waiting = [(target, 0)]
    while waiting:
        tool, level = waiting.pop()
        # Every circle reaches this depth, too.
        if level > depth:
            return None
        if levels.get(tool, -1) < level:
            levels[tool] = level
            for producer in producers.get(tool, ()):
                waiting.append((producer, level + 1))
    return levels


def asks_for_system_value(draft: Assignment) -> bool:
    """Return True if the user is asked for a system value."""
    for choice in draft.values():
        if choice.kind == "user" and choice.known_by == "system":
            return True
    return False


# --- the parts that a search may skip ---


@dataclass(frozen=True, slots=True)
class Reach:
    """The parts of a graph that a search may skip.

    Attributes:
        kept: parameters whose values only the creators of the records know.
        needs: tool -> the system values that it needs.
        open: tools that can be called from known values and from users' values.
    """

    kept: frozenset[Key]
    needs: Mapping[str, Sequence[WantedValue]]
    open: frozenset[str]

    def is_circle(self, tool: str, key: Key) -> bool:
        """Return True for a tool that needs the value that it would give, or that cannot be called."""
        wanted = self.needs.get(tool, ())
        # Such a tool would only replace the question to the user by another one.
        if wanted and tool not in self.open:
            return True
        return key in (value.key for value in wanted)


class WantedValue(NamedTuple):
    """A value that only a system knows, and the tools that give it."""

    key: Key
    givers: tuple[str, ...]


def reach_of(problem: PlanSearch) -> Reach:
    """Return the parts that the search of a problem may skip."""
    needs = _wanted_values(problem)
    kept: set[Key] = set()
    while True:
        open_tools, available = _forward(needs, kept)
        circles = _circles(needs, available) - kept
        # Each round keeps at least one more value, so there are at most as many rounds as values.
        if not circles:
            break
        kept |= circles
    return Reach(frozenset(kept), needs, frozenset(open_tools))


def _wanted_values(problem: PlanSearch) -> dict[str, list[WantedValue]]:
    """Return tool -> the system values that it needs, for the target and all tools before it."""
    graph = problem.graph
    givers: dict[Key, tuple[str, ...]] = {}
    needs: dict[str, list[WantedValue]] = {}
    waiting = [problem.target]
    while waiting:
        tool = waiting.pop()
        if tool in needs:
            continue
        needs[tool] = []
        for port in problem.needs(tool):
            if not problem.is_for_a_system(port):
                continue
            key = graph.key_of(port)
            # Producers of a value are visited once, so circles end.
            if key not in givers:
                givers[key] = tuple(giver.origin for giver in problem.producers.of(port))
                waiting += givers[key]
            needs[tool].append(WantedValue(key, givers[key]))
    return needs


def _forward(needs: dict[str, list[WantedValue]], kept: Iterable[Key]) -> tuple[set[str], set[Key]]:
    """Return the callable tools and the obtainable values, starting from the kept values."""
    tools: set[str] = set()
    available: set[Key] = set(kept)
    grows = True
    while grows:
        grows = False
        for tool, wanted in needs.items():
            for value in wanted:
                if not tools.isdisjoint(value.givers):
                    available.add(value.key)
            if tool not in tools and _keys(wanted) <= available:
                tools.add(tool)
                grows = True
    return tools, available


def _circles(needs: dict[str, list[WantedValue]], available: set[Key]) -> set[Key]:
    """Return the unobtainable values that are given by a tool that lacks only this value."""
    circles: set[Key] = set()
    for wanted in needs.values():
        for value in wanted:
            if value.key in available:
                continue
            for giver in value.givers:
                if _keys(needs[giver]) - available == {value.key}:
                    circles.add(value.key)
    return circles


def _keys(wanted: Iterable[WantedValue]) -> set[Key]:
    return {value.key for value in wanted}
