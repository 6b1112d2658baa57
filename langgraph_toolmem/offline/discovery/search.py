"""Monte Carlo tree search over tool calls (SGA-MCTS): nodes are states, shared by all paths that lead to them.

In each iteration a path is walked from the first state: where there is a choice, the action with the highest U(s, a)
is taken. Behind the known states the path goes on with what the policy holds for most promising; each state it comes
to becomes a node. The reward of the path, R = 1[success] · ((1 − λ) + λ / (1 + length)), goes to all its nodes and
actions; a failed path earns 0. Nodes are shared by (state, sub-goal): their statistics are pooled, and the calls by
which a node was reached first lead back to it. A path never enters a node twice. An action that failed, that told
nothing, or behind which everything was tried is not taken again.

Two paths lead to the same state if the same values are known, the same changes were made, and the sub-goal is the
same. Calls that only read may come in any order. Changes that have an identifier in common keep their order; others
may be swapped (they commute as traces do). So a call that tells nothing new and changes nothing leads back to where
it was made, and a path that goes round meets itself.

Calls that only read are made once in a world and not again on a way back. If a task is found done by such a call (what
was looked up counts, or the tool does more than it says), the search begins again with every call counted as a change.
Reads of a path whose answers nothing behind them was made of are left out of it.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, Protocol, get_args

from langgraph_toolmem.atoms.known import leaves_of
from langgraph_toolmem.base.checks import expect, is_count, is_number, is_share
from langgraph_toolmem.base.errors import ToolMemoryError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.offline.discovery.world import Cursor, EnvironmentCall, Observation, Taken, Task
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.runs.values import canon, flatten
from langgraph_toolmem.text.values import shape_of

SHORTEST_PART: Final = 3
"""Characters from which a value is recognised inside of a longer text."""
MAX_PROSE: Final = 200_000
"""Characters of a text in which values are looked for."""


MAX_VALUE: Final = 400
"""Characters of a text that count as one value; of longer ones only the digest is kept."""


@dataclass(frozen=True)
class Goal:
    """The sub-goal that is worked on.

    Attributes:
        text: what is to be done next.
        number: from 0.
        of: how many there are.
        tools: names of the tools that have to do with it, the most relevant first; empty: any.
    """

    text: str
    number: int = 0
    of: int = 1
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class State:
    """A state of a search: s = ⟨history, what is known, sub-goal⟩.

    Attributes:
        task: what is to be done.
        taken: the calls on the way that went well, without those that told nothing.
        goal: the sub-goal.
        known: values that reading told, in a comparable form.
        changes: digest of each change by the identifiers in it, in order.
        changed: the calls on the way that may have changed something.
    """

    task: Task
    taken: tuple[Taken, ...] = ()
    goal: Goal = Goal("")
    known: frozenset[str] = frozenset()
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changed: tuple[Taken, ...] = ()

    @cached_property
    def key(self) -> str:
        """Equal for equal states."""
        return digest("state", self.goal.text, self.goal.number, "\x1f".join(sorted(self.known)), self.world)

    @cached_property
    def world(self) -> str:
        """Equal where the same changes were made: there, reading the same tells the same."""
        return digest("world", *(f"{of}\x1e{'|'.join(marks)}" for of, marks in sorted(self.changes.items())))

    def after(self, taken: Taken, *, reads: bool) -> State:
        """The state after a call that went well; its key is this one's if the call told and changed nothing.

        Args:
            taken: the call.
            reads: it changes nothing.
        """
        gone = replace(self, taken=(*self.taken, taken))
        if reads:
            new = {each for each in told(taken) - self.known if is_new(each)}
            values = frozenset(_values(taken.call, taken.observation)) if new else frozenset()
            return replace(gone, known=self.known | values)
        changes = dict(self.changes)
        mark = digest("change", *taken.call.key)
        for resource in resources_of(taken.call) or ("",):
            changes[resource] = (*changes.get(resource, ()), mark)
        return replace(gone, changes=changes, changed=(*self.changed, taken))

    def at(self, goal: Goal) -> State:
        """The same state with another sub-goal."""
        return replace(self, goal=goal)


def told(taken: Taken) -> frozenset[str]:
    """The values in an answer, without those that were asked with. Numbers and truth values keep their place."""
    asked = {canon(value) for _, value in leaves_of(taken.call.args)}
    return frozenset(found for found in _values(taken.call, taken.observation) if found[1:] not in asked)


def is_new(value: str) -> bool:
    """Return True if a value tells something: an empty answer's "total: 0" does not."""
    return not (value.startswith("#") and value.endswith("=0"))


def resources_of(call: EnvironmentCall) -> tuple[str, ...]:
    """The identifiers in a call's arguments, each once: what it is done to."""
    values = (value for _, value in leaves_of(call.args) if isinstance(value, str))
    return tuple(sorted({value for value in values if value and " " not in value and shape_of(value) is not None}))


def only_reads(spec: ToolSpec | None) -> bool:
    """Return True if a tool is declared to change nothing."""
    return spec is not None and side_effects(spec) == "reads"


def _values(call: EnvironmentCall, observation: Observation) -> Iterator[str]:
    output: Any = observation.output
    if isinstance(output, str):
        yield "'" + (output if len(output) <= MAX_VALUE else digest(output))
        return
    flat = flatten(output)
    leaves = [*flat.scalars.items(), *((path, value) for path, values in flat.lists.items() for value in values)]
    for path, values in flat.lists.items():
        yield f"[{digest(path, *map(canon, values))}"  # which rows there are is known too
    for path, value in leaves:
        if isinstance(value, str):
            yield "'" + (value if len(value) <= MAX_VALUE else digest(value))
        else:
            yield f"#{call.tool}{path}={canon(value)}"


# --- what guides a search ---

Action = Literal["call", "plan", "finish"]


@dataclass(frozen=True)
class Proposal:
    """One action that could come next.

    Attributes:
        action: ``call`` a tool; ``plan``: the sub-goal is completed, what comes next is to be planned; ``finish``: the
            task is done, and `answer` is the last word.
        weight: how promising, above 0; those of one state are compared with each other.
        call: of a ``call``.
        answer: of a ``finish``.
    """

    action: Action
    weight: float = 1.0
    call: EnvironmentCall | None = None
    answer: str = ""


@dataclass(frozen=True)
class Reflection:
    """Lessons of a call that failed: what was tried, what was wrong with it, and what else there is.

    Attributes:
        context: what was tried, and what came of it.
        critique: what was wrong.
        alternatives: what to do instead; the first is the pivot, tried before anything else in this state.
    """

    context: str
    critique: str
    alternatives: tuple[Proposal, ...] = ()


class Policy(Protocol):
    """A guide of a search. It may be asked again about a state that it was asked about before."""

    def plan(self, state: State) -> Goal:
        """The sub-goal to work on in this state, with the tools that have to do with it."""
        ...

    def propose(self, state: State) -> Sequence[Proposal]:
        """Return what could be done next, the most promising first; nothing if the state is hopeless."""
        ...

    def reflect(self, state: State, failed: Taken) -> Reflection:
        """Return what to do instead of a call that failed in this state."""
        ...


# --- the search ---

Selection = Literal["prior", "ucb"]
"""``prior``: U(s, a) = Q(s, a) + c · P(a | s) · √(1 + N(s)) / (1 + N(s, a)), UCB with the policy's prior P in it, so
that few actions of a state are ever tried. ``ucb``: U(s, a) = Q(s, a) + c · √(ln N(s) / N(s, a)), plain UCB1 as in the
paper: what was never taken comes first, in the policy's order."""

_SAME: Final = 1e-9
"""Scores that differ by this part of the best one, or less, count as equal."""


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search of a task.

    Attributes:
        iterations: paths walked, at most.
        depth: calls on a path, at most.
        exploration: c of the formula.
        length_weight: λ, what part of the reward goes down with the length.
        patience: iterations after the best path so far was found, in which a shorter one is looked for; 0: the first
            path that ends well is taken; None: all iterations are made.
        attempts: actions tried in one iteration, failed ones included, for each call that a path may have.
        steps: calls made for one task, at most, those made again on the way back to a state included; None: any number.
            A way back that was begun is gone to its end.
        selection: which action of a state is taken: see `Selection`.
    """

    iterations: int = 50
    depth: int = 10
    exploration: float = 1.41
    length_weight: float = 0.1
    patience: int | None = 3
    attempts: int = 2
    steps: int | None = None
    selection: Selection = "prior"

    def __post_init__(self) -> None:
        """Checks types and ranges. Raises ConfigurationError that names the field and what is expected."""
        for name in ("iterations", "depth", "attempts"):
            expect(self, name, "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "patience", "None or a whole number from 0", lambda v: v is None or is_count(v, 0))
        expect(self, "exploration", "a number from 0", lambda v: is_number(v) and v >= 0)
        expect(self, "length_weight", "a number from 0 to 1", is_share)
        expect(self, "steps", "None or a whole number from 1", lambda v: v is None or is_count(v, 1))
        expect(self, "selection", f"one of {', '.join(get_args(Selection))}", lambda v: v in get_args(Selection))

    @classmethod
    def paper(cls) -> SearchSettings:
        """As published (SGA-MCTS): UCB1 with c 1.41, 50 iterations whatever is found, 10 calls a path, λ 0.1."""
        return cls(selection="ucb", patience=None)

    def reward(self, length: int) -> float:
        """R of a path with so many calls that ended well."""
        return (1 - self.length_weight) + self.length_weight / (1 + length)


MAX_PLANS: Final = 3
"""Plans in a row, without a call between them."""


@dataclass
class Arm:
    """An action of a node: N(s, a), W(s, a), and where it led. A pivot is taken before all others, once."""

    proposal: Proposal
    prior: float
    pivot: bool = False
    visits: int = 0
    total: float = 0.0
    tried: bool = False
    closed: bool = False
    child: Node | None = None

    @property
    def mean(self) -> float:
        """Q(s, a)."""
        return self.total / self.visits if self.visits else 0.0


@dataclass
class Node:
    """A state with its statistics; `arms` is None until the policy was asked, `plans` are those made here in a row."""

    state: State
    arms: list[Arm] | None = None
    visits: int = 0
    total: float = 0.0
    closed: bool = False
    entrances: int = 1
    plans: int = 0


@dataclass(frozen=True)
class Path:
    """A path that ended well.

    Attributes:
        taken: its calls.
        answer: the last word, "" if none was needed.
        reward: R.
    """

    taken: tuple[Taken, ...]
    answer: str
    reward: float


@dataclass
class SearchOutcome:
    """The result of the search of one task.

    Attributes:
        paths: paths that ended well, the best first, each once.
        iterations: paths walked.
        nodes: states found.
        inner: states in which something was tried.
        tried: actions tried in them.
        shared: how often a path came to a state that was known already.
        depth: calls on the longest path.
        already: the task was done before anything was.
    """

    paths: list[Path] = field(default_factory=list)
    iterations: int = 0
    nodes: int = 0
    inner: int = 0
    tried: int = 0
    shared: int = 0
    depth: int = 0
    already: bool = False

    @property
    def solved(self) -> bool:
        """Return True if a path ended well."""
        return bool(self.paths)


class StoppedError(ToolMemoryError):
    """A search was broken off before it was over."""


class _ReadingCounts(Exception):  # noqa: N818 - no error
    """A task is done by a call that was held for reading."""


Check = Callable[[State, str], "bool | None"]
"""``check(state, answer)``: whether the task is done. Asked after each call with answer "" while `stepwise`; where that
only read, `state` is the one before it."""


class Search:
    """The search of one task.

    Args:
        cursor: the environment.
        policy: what guides it.
        specs: the tools, by name.
        check: says whether the task is done.
        stepwise: `check` is asked after each call; else only when the policy says that the task is done.
        settings: how far to go.
        rng: draws between actions that look alike.
    """

    def __init__(
        self,
        cursor: Cursor,
        policy: Policy,
        specs: Mapping[str, ToolSpec],
        check: Check,
        *,
        stepwise: bool = True,
        settings: SearchSettings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._cursor, self._policy, self._specs = cursor, policy, specs
        self._check, self._stepwise = check, stepwise
        self.settings = settings or SearchSettings()
        self._rng = rng or random.Random(0)
        self._all_count = False
        self.nodes: dict[str, Node] = {}
        self._seen: dict[tuple[str, tuple[str, str]], Taken] = {}
        self.outcome = SearchOutcome()

    def run(self, stop: Callable[[], bool] = lambda: False) -> SearchOutcome:
        """Searches until the settings say stop, everything was tried, or the calls are used up.

        Args:
            stop: asked before each iteration; True breaks the search off.

        Raises:
            StoppedError: it was broken off.
            Exception: whatever the policy, the check or the environment raises.
        """
        settings, outcome = self.settings, self.outcome
        self._cursor.reset()
        first = State(self._cursor.task)
        if self._stepwise and self._check(first, ""):
            outcome.already = True
            return outcome
        first = first.at(self._policy.plan(first))
        root = self._node(first, plans=1)
        latest = 0
        while outcome.iterations < settings.iterations and not root.closed and not self._cursor.spent:
            if stop():
                raise StoppedError("the search was broken off")
            best = outcome.paths[0].reward if outcome.paths else 0.0
            outcome.iterations += 1
            try:
                self._iterate(root)
            except _ReadingCounts:
                self._all_count = True
                self._cursor.begin_again()
                self.nodes.clear()
                self._seen.clear()
                root = self._node(first, plans=1)
            if outcome.paths and outcome.paths[0].reward > best:
                latest = outcome.iterations
            patience = settings.iterations if settings.patience is None else settings.patience
            if outcome.paths and outcome.iterations - latest >= patience:
                break
        self._sum_up()
        return outcome

    def _iterate(self, root: Node) -> None:
        node, reward, attempts = root, 0.0, 0
        nodes, arms = [root], list[Arm]()
        most = self.settings.depth * self.settings.attempts
        while not (node.closed or reward or attempts >= most or self._cursor.spent):
            arm = self._choose(node, nodes)
            if arm is None:
                break
            if not arm.tried:
                attempts += 1
                reward = self._try(node, arm)
                if arm.child is None and not reward and arm.proposal.action != "finish":
                    continue  # it led nowhere: the path goes on from here with something else
            arms.append(arm)
            if arm.child is None:
                break
            node = arm.child
            nodes.append(node)
        counted: list[Node | Arm] = [*nodes, *arms]
        for each in counted:
            each.visits += 1
            each.total += reward
        for visited in reversed(nodes):
            visited.closed = visited.closed or (visited.arms is not None and all(map(_is_over, visited.arms)))

    def _choose(self, node: Node, path: Sequence[Node]) -> Arm | None:
        """The action with the highest U; None if none is left that leads on, and not back onto the path."""
        behind = set(map(id, path))
        arms = [arm for arm in self._arms(node) if not _is_over(arm) and id(arm.child) not in behind]
        if not arms:
            return None
        pivot = next((arm for arm in arms if arm.pivot and not arm.tried), None)
        if pivot is not None:
            return pivot
        return chosen(arms, node.visits, self.settings, self._rng)

    def _try(self, node: Node, arm: Arm) -> float:
        """Takes an action for the first time; its reward if the task is done by it, else 0."""
        arm.tried = True
        state, proposal = node.state, arm.proposal
        if proposal.action == "plan":
            child = state.at(self._policy.plan(state))
            arm.closed = child.key == state.key
            arm.child = None if arm.closed else self._node(child, plans=node.plans + 1)
            return 0.0
        if proposal.action == "finish":
            arm.closed = True
            return self._found(state, proposal.answer) if self._is_done(state, proposal.answer) else 0.0
        assert proposal.call is not None
        reads = self._reads(proposal.call.tool)
        taken = self._seen.get((state.world, proposal.call.key))
        if taken is None:
            if not self._cursor.go(state.changed):
                arm.closed = node.closed = True  # the environment does not repeat itself here
                return 0.0
            self._cursor.keep()
            taken = self._cursor.make(proposal.call, reads=reads)
            if reads:
                self._seen[state.world, proposal.call.key] = taken
                if self._stepwise and self._check(state, ""):
                    raise _ReadingCounts
        if not taken.observation.ok:
            arm.closed = True
            self._pivot(node, self._policy.reflect(state, taken).alternatives)
            return 0.0
        after = state.after(taken, reads=reads)
        done = self._stepwise and not reads and self._is_done(after, "")
        if after.key == state.key and not done:
            arm.closed = True
            return 0.0
        arm.child = self._node(after)
        arm.closed = done
        return self._found(after, "") if done else 0.0

    def _reads(self, tool: str) -> bool:
        return not self._all_count and only_reads(self._specs.get(tool))

    def _is_done(self, state: State, answer: str) -> bool:
        return bool(self._cursor.go(state.changed) and self._check(state, answer))

    def _found(self, state: State, answer: str) -> float:
        """A path that ended well. Calls on it that nothing was made of do not count."""
        taken = state.taken
        if not self._all_count:
            taken = needed(taken, {each.call.tool: self._reads(each.call.tool) for each in taken}, state.task.request)
        reward = self.settings.reward(len(taken))
        path = Path(taken, answer, reward)
        paths = self.outcome.paths
        if all(_calls(path) != _calls(other) for other in paths):
            paths.append(path)
            paths.sort(key=lambda each: -each.reward)
        return reward

    def _node(self, state: State, *, plans: int = 0) -> Node:
        found = self.nodes.get(state.key)
        if found is None:
            found = self.nodes[state.key] = Node(state, plans=plans)
            found.closed = len(state.taken) >= self.settings.depth
            self.outcome.depth = max(self.outcome.depth, len(state.taken))
        else:
            found.entrances += 1
        return found

    def _arms(self, node: Node) -> Sequence[Arm]:
        if node.arms is None:
            proposals = self._policy.propose(node.state)
            if node.plans >= MAX_PLANS:
                proposals = [each for each in proposals if each.action != "plan"]
            node.arms = _with_priors(proposals)
        return node.arms

    def _pivot(self, node: Node, alternatives: Sequence[Proposal]) -> None:
        """Add what a reflection proposes to the actions of this state; its first one comes before all."""
        arms = list(self._arms(node))
        known = {arm.proposal.call.key: arm for arm in arms if arm.proposal.call is not None}
        usual = max((arm.prior for arm in arms), default=1.0)
        for number, each in enumerate(alternatives):
            if each.call is None:
                continue
            arm = known.get(each.call.key)
            if arm is None:
                arm = known[each.call.key] = Arm(each, usual / (1 + number))
                arms.append(arm)
            arm.pivot = arm.pivot or number == 0
        node.arms = arms

    def _sum_up(self) -> None:
        outcome, nodes = self.outcome, self.nodes.values()
        outcome.nodes = len(nodes)
        tried = [sum(arm.tried for arm in node.arms or ()) for node in nodes]
        outcome.inner = sum(count > 0 for count in tried)
        outcome.tried = sum(tried)
        outcome.shared = sum(node.entrances - 1 for node in nodes)


def _is_over(arm: Arm) -> bool:
    return arm.closed or (arm.child is not None and arm.child.closed)


def _calls(path: Path) -> list[tuple[str, str]]:
    return [taken.call.key for taken in path.taken]


def _with_priors(proposals: Sequence[Proposal]) -> list[Arm]:
    """The proposals as arms, their weights made a distribution; a call that comes twice counts once."""
    seen: set[object] = set()
    kept: list[Proposal] = []
    for each in proposals:
        key: object = each.call.key if each.call is not None else (each.action, each.answer)
        if each.weight > 0 and key not in seen:
            seen.add(key)
            kept.append(each)
    total = sum(each.weight for each in kept)
    return [Arm(each, each.weight / total) for each in kept]


def chosen(choices: Sequence[Arm], visits: int, settings: SearchSettings, rng: random.Random) -> Arm:
    """The action with the highest U; of equal ones the draw decides (``ucb``: among those that were taken before).

    Args:
        choices: the actions of a state, at least one, in the policy's order.
        visits: N(s).
        settings: the formula, and its c.
        rng: draws.
    """
    if settings.selection == "ucb":
        new = next((each for each in choices if not each.visits), None)
        if new is not None:
            return new
        logarithm = math.log(max(1, visits))
        scores = [each.mean + settings.exploration * math.sqrt(logarithm / each.visits) for each in choices]
    else:
        root = settings.exploration * math.sqrt(1 + visits)
        scores = [each.mean + root * each.prior / (1 + each.visits) for each in choices]
    best = max(scores)
    return rng.choice([each for each, score in zip(choices, scores, strict=True) if score >= best * (1 - _SAME)])


def needed(path: Sequence[Taken], reads: Mapping[str, bool], request: str) -> tuple[Taken, ...]:
    """The path without calls that only read and whose answers nothing behind them was made of.

    Args:
        path: calls that led to success.
        reads: by tool, whether it changes nothing.
        request: what the user said; values in it need no call.
    """
    kept = list(path)
    for index in range(len(kept) - 1, -1, -1):
        if not reads.get(kept[index].call.tool, False) or index == len(kept) - 1:
            continue
        if not is_used(kept, index, request):
            del kept[index]
    return tuple(kept)


def is_used(path: Sequence[Taken], index: int, request: str) -> bool:
    """Return True if a call of a path needed what the one at `index` told: nothing before it had told that."""
    before = _texts(path[:index])
    known = request.lower() + "\n" + "\n".join(sorted(before))
    later = [canon(value).lower() for taken in path[index + 1 :] for _, value in leaves_of(taken.call.args)]
    used = (value for value in _texts([path[index]]) - before if len(value) >= SHORTEST_PART or value.isdigit())
    if any(_is_in(value, text) for value in used if value not in known for text in later):
        return True
    said = _prose(path[index])
    return any(_stands_in(text, said) and not _stands_in(text, known) for text in later if said)


def _texts(path: Iterable[Taken]) -> set[str]:
    """The values that calls told, in small letters."""
    values = (value for taken in path for value in told(taken) if value[0] != "[")
    return {(value[1:] if value[0] == "'" else value.rsplit("=", 1)[-1]).lower() for value in values}


def _prose(taken: Taken) -> str:
    """The answer of a call that answered with a text, in small letters."""
    output = taken.observation.output
    return output[:MAX_PROSE].lower() if isinstance(output, str) else ""


def _stands_in(value: str, text: str) -> bool:
    """Return True if a value stands in a text as a word of its own."""
    if len(value) < SHORTEST_PART and not value.isdigit():
        return False
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def _is_in(value: str, text: str) -> bool:
    return value == text or (len(value) >= SHORTEST_PART and value in text) or (len(text) > 1 and text in value.split())
