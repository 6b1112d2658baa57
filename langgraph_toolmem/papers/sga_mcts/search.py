"""Monte Carlo tree search over tool calls (SGA-MCTS, arXiv 2604.14712).

Nodes are states, edges are actions: a call, a new plan, or the end. In each iteration a path is walked from the first
state, along the edges with the highest U(s, a), until an action that was not tried before fails, ends the task, or
leads to a new state; from there the path continues with the policy's proposals. Its reward R is added to all nodes and
edges of the path.

    (1) U(s, a) = Q(s, a) + c · √(ln N(s) / N(s, a)), untried actions first; c = 1.41                              [P]
    (2) U(s, a) = Q(s, a) + c · P(a given s) · √(1 + N(s)) / (1 + N(s, a)), by default                             [O]
    (3) R = 1[success] · ((1 − λ) + λ / (1 + length)), λ = 0.1                                                     [P]

`papers.sga_mcts` has the figures of (1) and (2).

Nodes are shared: two paths with the same sub-goal, the same changing calls and the same answers of reading calls lead
to one node. So a reading call without new information leads back to its own node, and is not taken again.

The searched world is an `Environment` that can be reset and called; a `Cursor` returns to one of its states.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import random
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from pydantic_core import from_json, to_json

from langgraph_toolmem.base.checks import expect, is_count, is_number, is_share, score_of
from langgraph_toolmem.base.errors import ConfigurationError, ToolMemoryError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.offline.coldstart import awaited
from langgraph_toolmem.runs.run import output_of, status_of
from langgraph_toolmem.runs.values import canon, canon_args

if TYPE_CHECKING:
    from langgraph_toolmem.runs.tools import ToolLike


@dataclass(frozen=True)
class Goal:
    """A sub-goal.

    Attributes:
        text: the next result, in words without names of tools.
        number: its position in the plan, from 0.
        of: the number of sub-goals in the plan.
        tools: names of the tools for it, the most relevant first; empty for any tool.
    """

    text: str
    number: int = 0
    of: int = 1
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class State:
    """A state of the search: s = ⟨history, known values, sub-goal⟩.

    Attributes:
        task: the task.
        path: the successful calls that led here.
        goal: the sub-goal.
        known: answers of reading calls.
        changes: changing calls, in order.
    """

    task: Task
    path: CallPath = ()
    goal: Goal = Goal("")
    known: frozenset[str] = frozenset()
    changes: tuple[tuple[str, str], ...] = ()

    @cached_property
    def key(self) -> str:
        """Equal for equal states."""
        return digest("state", self.goal.text, self.goal.number, canon([sorted(self.known), self.changes]))

    def after(self, transition: Transition, *, reads: bool) -> State:
        """Return the state after a successful call."""
        path = (*self.path, transition)
        if reads:
            return replace(self, path=path, known=self.known | {canon(transition.observation.output)})
        return replace(self, path=path, changes=(*self.changes, transition.call.key))


@dataclass(frozen=True)
class ActionProposal:
    """A possible next action.

    Attributes:
        action: ``call``: call a tool; ``plan``: the sub-goal is completed, plan the next one; ``finish``: the task is
            done.
        weight: its promise, above 0, relative to the other proposals of the state.
        call: the call, of a ``call``.
        answer: the last message to the user, of a ``finish``.
    """

    action: Literal["call", "plan", "finish"]
    weight: float = 1.0
    call: EnvironmentCall | None = None
    answer: str = ""


class Policy(Protocol):
    """The guide of a search. It may be called again for the same state."""

    def plan(self, state: State) -> Goal:
        """Return the sub-goal to work on in this state."""
        ...

    def propose(self, state: State) -> Sequence[ActionProposal]:
        """Return possible next actions, the most promising first; empty for a hopeless state."""
        ...

    def reflect(self, state: State, failed: Transition) -> Sequence[ActionProposal]:
        """Return the alternatives to a call that failed in this state, the best first."""
        ...


Selection = Literal["prior", "ucb"]
"""``ucb``: (1), UCB1 as published. ``prior``: (2), with the policy's weights as P."""
MAX_PLANS: Final = 3
"""Limit of plans in a row, without a call between them."""


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search of one task.

    Attributes:
        iterations: most paths to walk.
        depth: most calls on a path.
        exploration: c in U(s, a).
        length_weight: λ of the reward.
        patience: iterations without a shorter path, after which the search of a solved task ends. If None, all
            iterations are made.
        selection: the formula of U(s, a), see `Selection`.

    Raises:
        ConfigurationError: a value is out of range.
    """

    iterations: int = 50
    depth: int = 10
    exploration: float = 1.41
    length_weight: float = 0.1
    # With both, generated tasks of five calls took 27 explored calls, and by UCB1 without patience 53.
    patience: int | None = 3
    selection: Selection = "prior"

    def __post_init__(self) -> None:
        formulas = get_args(Selection)

        def is_bound(value: Any) -> bool:
            return is_count(value, 1)

        def is_patience(value: Any) -> bool:
            return value is None or is_count(value, 0)

        def is_weight(value: Any) -> bool:
            return is_number(value) and value >= 0

        expect(self, "iterations", "a whole number from 1", is_bound)
        expect(self, "depth", "a whole number from 1", is_bound)
        expect(self, "patience", "None or a whole number from 0", is_patience)
        expect(self, "exploration", "a number from 0", is_weight)
        expect(self, "length_weight", "a number from 0 to 1", is_share)
        expect(self, "selection", f"one of {', '.join(formulas)}", formulas.__contains__)

    @classmethod
    def paper(cls) -> SearchSettings:
        """Return the published settings: UCB1 with c = 1.41, 50 iterations, at most 10 calls a path, λ = 0.1."""
        return cls(selection="ucb", patience=None)

    def reward(self, length: int) -> float:
        """Return R of a successful path of `length` calls (3)."""
        return (1 - self.length_weight) + self.length_weight / (1 + length)


@dataclass(eq=False)
class Edge:
    """An action of a node with N(s, a), the sum of its rewards, and its target node."""

    proposal: ActionProposal
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
        if not self.visits:
            return 0.0
        return self.total / self.visits

    @property
    def over(self) -> bool:
        """Return True if everything after this action was tried."""
        return self.closed or (self.child is not None and self.child.closed)


@dataclass(eq=False)
class Node:
    """A state with its statistics. `edges` is None until the policy was called."""

    state: State
    plans: int = 0
    edges: list[Edge] | None = None
    visits: int = 0
    total: float = 0.0
    closed: bool = False

    def close_if_over(self) -> None:
        """Close the node if everything after its actions was tried."""
        if self.edges is not None and all(edge.over for edge in self.edges):
            self.closed = True


@dataclass
class SearchOutcome:
    """The result of the search of one task.

    Attributes:
        path: the calls of the best successful path; empty without one, or if none was needed.
        answer: its last message, or "".
        reward: its R; 0 if the task was not solved.
        iterations: number of walked paths.
        nodes: number of found states.
    """

    path: CallPath = ()
    answer: str = ""
    reward: float = 0.0
    iterations: int = 0
    nodes: int = 0


@dataclass(slots=True)
class Walk:
    """One path from the first state: its nodes, its edges, and its R."""

    nodes: list[Node]
    edges: list[Edge] = field(default_factory=list)
    reward: float = 0.0


class StoppedError(ToolMemoryError):
    """A search was interrupted."""


class Search:
    """The search of one task.

    Args:
        cursor: the environment.
        policy: the guide.
        reads: names of the tools that only read.
        check: ``check(state, answer)``: True if the task is done.
        stepwise: If True, `check` is called after each call, with answer ""; otherwise only when the policy finishes.
        settings: bounds and constants.
        rng: breaks ties.
    """

    def __init__(
        self,
        cursor: Cursor,
        policy: Policy,
        reads: Collection[str],
        check: Callable[[State, str], bool],
        *,
        stepwise: bool = True,
        settings: SearchSettings,
        rng: random.Random,
    ) -> None:
        self._cursor, self._policy, self._reads = cursor, policy, reads
        self._check, self._stepwise = check, stepwise
        self.settings, self._rng = settings, rng
        self.nodes: dict[str, Node] = {}
        self.outcome = SearchOutcome()

    def run(self, stop: Callable[[], bool] | None = None) -> SearchOutcome:
        """Search until the settings' bounds are reached or everything was tried.

        Args:
            stop: called before each iteration; True ends the search.

        Raises:
            StoppedError: `stop` returned True.
            Exception: any error of the policy, the check or the environment.
        """
        outcome, settings = self.outcome, self.settings
        state = State(self._cursor.task)
        self._cursor.go(())
        # A task may be done before the first call.
        if self._stepwise and self._check(state, ""):
            outcome.reward = settings.reward(0)
            return outcome
        root = self._node(replace(state, goal=self._policy.plan(state)), plans=1)
        since_best = 0
        while outcome.iterations < settings.iterations and not root.closed:
            if stop is not None and stop():
                raise StoppedError("The search was interrupted.")
            best = outcome.reward
            self._iterate(root)
            outcome.iterations += 1
            since_best += 1
            if outcome.reward > best:
                since_best = 0
            if self._is_patience_over(since_best):
                break
        outcome.nodes = len(self.nodes)
        return outcome

    def _is_patience_over(self, since_best: int) -> bool:
        """Return True if a solved task is not searched further: so many iterations found no shorter path."""
        patience = self.settings.patience
        return bool(self.outcome.reward) and patience is not None and since_best >= patience

    def _iterate(self, root: Node) -> None:
        """Walk one path, and add its reward to its nodes and edges."""
        walk = self._walk(root)
        for node in walk.nodes:
            node.visits += 1
            node.total += walk.reward
        for edge in walk.edges:
            edge.visits += 1
            edge.total += walk.reward
        # From the end: a node is closed when everything after it is.
        for node in reversed(walk.nodes):
            node.close_if_over()

    def _walk(self, root: Node) -> Walk:
        walk = Walk([root])
        while True:
            edge = self._select(walk.nodes)
            if edge is None:
                return walk
            walk.edges.append(edge)
            if not edge.tried:
                edge.tried = True
                walk.reward = self._take(walk.nodes[-1], edge)
            # A node that is on the path already would make it a circle.
            if edge.child is None or edge.child in walk.nodes or walk.reward:
                return walk
            walk.nodes.append(edge.child)

    def _select(self, path: Sequence[Node]) -> Edge | None:
        """Return the edge with the highest U that does not lead back onto the path, or None."""
        node = path[-1]
        if node.closed:
            return None
        edges = [edge for edge in self._edges(node) if not edge.over and edge.child not in path]
        for edge in edges:
            if edge.pivot and not edge.tried:
                return edge
        if not edges:
            return None
        return select(edges, node.visits, self.settings, self._rng)

    def _take(self, node: Node, edge: Edge) -> float:
        """Take an action for the first time. Return the reward if it completes the task, otherwise 0."""
        state, proposal = node.state, edge.proposal
        # A plan costs no call, and does not change the world.
        if proposal.action == "plan":
            self._link(node, edge, replace(state, goal=self._policy.plan(state)), node.plans + 1)
            return 0.0
        if not self._cursor.go(state.path):
            edge.closed = node.closed = True  # the environment is not deterministic here
            return 0.0
        if proposal.call is None:
            edge.closed = True
            return self._rewarded(state, proposal.answer)
        transition = self._cursor.make(proposal.call)
        if not transition.observation.ok:
            # The policy gives alternatives; the best one is tried in the next iteration.
            edge.closed = True
            self._add_pivots(node, self._policy.reflect(state, transition))
            return 0.0
        after = state.after(transition, reads=proposal.call.tool in self._reads)
        reward = 0.0
        if self._stepwise:
            reward = self._rewarded(after, "")
        if reward:
            edge.closed = True
        else:
            self._link(node, edge, after)
        return reward

    def _rewarded(self, state: State, answer: str) -> float:
        if not self._check(state, answer):
            return 0.0
        reward = self.settings.reward(len(state.path))
        if reward > self.outcome.reward:
            self.outcome.path, self.outcome.answer, self.outcome.reward = state.path, answer, reward
        return reward

    def _link(self, node: Node, edge: Edge, state: State, plans: int = 0) -> None:
        # A call without new information, or the same sub-goal again.
        if state.key == node.state.key:
            edge.closed = True
        else:
            edge.child = self._node(state, plans)

    def _node(self, state: State, plans: int) -> Node:
        node = self.nodes.setdefault(state.key, Node(state, plans))
        if len(state.path) < len(node.state.path):
            node.state = state  # the same state by a shorter path
        node.closed = node.closed or len(node.state.path) >= self.settings.depth
        return node

    def _edges(self, node: Node) -> list[Edge]:
        """Return the actions of a node; the policy is called once for them."""
        # The policy may cost a model call. A plan is not an action after several plans in a row.
        if node.edges is None:
            proposals = _distinct(self._policy.propose(node.state), may_plan=node.plans < MAX_PLANS)
            total = sum([proposal.weight for proposal in proposals])
            node.edges = [Edge(proposal, proposal.weight / total) for proposal in proposals]
        return node.edges

    def _add_pivots(self, node: Node, alternatives: Sequence[ActionProposal]) -> None:
        """Add the alternatives of a reflection to the node. The first one is tried before all other actions."""
        edges = self._edges(node)
        known = {_identity(edge.proposal): edge for edge in edges}
        # The best alternative is as promising as the best action of the state.
        usual = max([edge.prior for edge in edges], default=1.0)
        for number, proposal in enumerate(alternatives):
            identity = _identity(proposal)
            if identity not in known:
                known[identity] = Edge(proposal, usual / (1 + number))
                edges.append(known[identity])
            if number == 0:
                known[identity].pivot = True


def _identity(proposal: ActionProposal) -> object:
    """Return a key that is equal for equal actions."""
    if proposal.call is not None:
        return proposal.call.key
    return proposal.action, proposal.answer


def _distinct(proposals: Sequence[ActionProposal], *, may_plan: bool) -> list[ActionProposal]:
    """Return the weighted proposals, one for each action: the first of equal ones, at the position of the last."""
    distinct: dict[object, ActionProposal] = {}
    for proposal in reversed(proposals):
        # Plans without a call between them are useless.
        if proposal.weight > 0 and (may_plan or proposal.action != "plan"):
            distinct[_identity(proposal)] = proposal
    return list(reversed(distinct.values()))


def select(edges: Sequence[Edge], visits: int, settings: SearchSettings, rng: random.Random) -> Edge:
    """Return the edge with the highest U(s, a) (1 or 2), given N(s) and at least one edge, in the policy's order."""
    scores = []
    for edge in edges:
        if settings.selection == "prior":
            bonus = edge.prior * math.sqrt(1 + visits) / (1 + edge.visits)
        elif edge.visits:
            bonus = math.sqrt(math.log(max(1, visits)) / edge.visits)
        else:
            # UCB1 takes untried actions first: its bonus for them is infinite.
            return edge
        scores.append(edge.mean + settings.exploration * bonus)
    best = max(scores)
    # The seed decides between equally good actions, not the last digit of a sum.
    ties: list[Edge] = []
    for edge, score in zip(edges, scores, strict=True):
        if math.isclose(score, best):
            ties.append(edge)
    return rng.choice(ties)


# --- the searched world ---


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        id: its identity, unique among the tasks of a discovery.
        request: the user's words.
        data: values for the environment, such as the expected result.
    """

    id: str
    request: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvironmentCall:
    """A tool call. Equal calls have equal keys."""

    tool: str
    args: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        """Tool and canonical arguments."""
        return self.tool, canon_args(self.args)


@dataclass(frozen=True)
class ToolObservation:
    """The answer to a call.

    Attributes:
        output: JSON values or a text; other values are converted.
        ok: False if the call failed or was refused.
    """

    output: Any
    ok: bool = True


@dataclass(frozen=True)
class Transition:
    """A call with its answer."""

    call: EnvironmentCall
    observation: ToolObservation


CallPath: TypeAlias = "tuple[Transition, ...]"


@runtime_checkable
class Environment(Protocol):
    """A world with tools, used by one search at a time. It may have a ``close()``."""

    @property
    def tools(self) -> Iterable[ToolLike]:
        """The tools."""
        ...

    def reset(self, task: Task) -> None:
        """Reset the world to the beginning of the task."""
        ...

    def step(self, call: EnvironmentCall) -> ToolObservation:
        """Execute a call. Return a call that fails as ``ToolObservation(reason, ok=False)``."""
        ...

    def success(self) -> bool | float | None:
        """Return True if the task is done in the present state, or a score from 0 to 1; None if unknown."""
        ...


class Cursor:
    """An environment with the calls made since its last reset.

    Args:
        environment: the world.
        task: the task that it is reset to.
        reads: names of tools whose answers may differ when a call is repeated.

    Attributes:
        explored: calls made for the first time.
        replayed: calls repeated to return to a state.
        diverged: repeated calls with another result.
    """

    def __init__(self, environment: Environment, task: Task, reads: Container[str] = ()) -> None:
        self.environment, self.task, self._reads = environment, task, reads
        self.explored = self.replayed = self.diverged = 0
        self._at: CallPath | None = None

    def go(self, path: CallPath) -> bool:
        """Return to the state after these calls: repeat the missing calls, after a reset if necessary.

        False: a repeated call had another result, so the environment is not deterministic here.
        """
        # Calls cannot be undone, so any other path begins with a reset.
        if self._at is None or self._at != path[: len(self._at)]:
            self.environment.reset(self.task)
            self._at = ()
        for transition in path[len(self._at) :]:
            now, before = self._step(transition.call), transition.observation
            self.replayed += 1
            # The answer of a reading tool may contain the time.
            is_same = transition.call.tool in self._reads or canon(now.output) == canon(before.output)
            if now.ok != before.ok or not is_same:
                self.diverged += 1
                self._at = None
                return False
            self._at = (*self._at, transition)
        return True

    def make(self, call: EnvironmentCall) -> Transition:
        """Make a call in the present state. After a failed call the state counts as unknown."""
        assert self._at is not None
        transition = Transition(call, self._step(call))
        self.explored += 1
        if transition.observation.ok:
            self._at = (*self._at, transition)
        else:
            # Its changes before the failure are unknown.
            self._at = None
        return transition

    def success(self) -> float | None:
        """Return the environment's score of the present state, from 0 to 1, or None."""
        return score_of("success()", self.environment.success())

    def _step(self, call: EnvironmentCall) -> ToolObservation:
        try:
            observation: Any = self.environment.step(call)
        except ToolMemoryError:
            raise  # errors of this package contain a remedy already
        except Exception as error:
            self._at = None
            raise ToolMemoryError(
                f"step() raised {type(error).__name__} on a call of {call.tool} ({error}). It must return a failed "
                "call as ToolObservation(reason, ok=False)."
            ) from error
        if not isinstance(observation, ToolObservation):
            raise ConfigurationError(
                f"step() of an environment must return a ToolObservation, got {type(observation).__name__}."
            )
        return ToolObservation(_as_json(observation.output), observation.ok)


def _as_json(output: Any) -> Any:
    # Answers are compared when a call is repeated, and written to the disk.
    try:
        return from_json(to_json(output, fallback=str, bytes_mode="base64", inf_nan_mode="strings"))
    except (ValueError, RecursionError):  # it contains itself, or is nested very deeply
        return str(output)


class ToolsEnvironment:
    """LangChain tools or functions that act on a sandbox. **The tools are really executed.**

    Async tools run in an event loop of the environment's own. `reset` and `success` may be coroutine functions.

    Args:
        tools: the tools.
        reset: ``reset(task)``: returns the sandbox to where the task begins.
        success: ``success(task)``: True if the task is done in the present state, or a score. Defaults to None: a judge
            decides.

    Raises:
        ConfigurationError: a tool cannot be executed.
    """

    def __init__(
        self,
        tools: Iterable[ToolLike],
        *,
        reset: Callable[[Task], Any],
        success: Callable[[Task], bool | float | Awaitable[bool | float | None] | None] | None = None,
    ) -> None:
        self._tools: dict[str, BaseTool] = {}
        for given in tools:
            tool = _executable(given)
            self._tools[tool.name] = tool
        self._reset, self._success = reset, success
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task = Task("", "")

    @property
    def tools(self) -> list[BaseTool]:
        """The tools."""
        return list(self._tools.values())

    def reset(self, task: Task) -> None:
        """See `Environment`."""
        self._task = task
        self._result(self._reset(task))

    def step(self, call: EnvironmentCall) -> ToolObservation:
        """See `Environment`. A tool that raises, or refuses its arguments, has failed."""
        tool = self._tools.get(call.tool)
        if tool is None:
            return ToolObservation(f"Error: there is no tool {call.tool!r}.", ok=False)
        request = {"type": "tool_call", "id": "call", "name": call.tool, "args": dict(call.args)}
        try:
            # A tool with only async code raises if it is invoked.
            if isinstance(tool, StructuredTool) and tool.func is None:
                answer = self._result(tool.ainvoke(request))
            else:
                answer = tool.invoke(request)
        except Exception as error:  # noqa: BLE001 - tools are the user's; their errors are observations
            return ToolObservation(f"Error: {type(error).__name__}: {error}", ok=False)
        if not isinstance(answer, ToolMessage):
            return ToolObservation(answer)
        ok = status_of(answer.content, error=answer.status == "error") == "ok"
        return ToolObservation(output_of(answer.content), ok=ok)

    def success(self) -> bool | float | None:
        """See `Environment`."""
        if self._success is None:
            return None
        score: bool | float | None = self._result(self._success(self._task))
        return score

    def close(self) -> None:
        """Close the event loop, if there is one."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _result(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value
        # One loop for all calls: connections belong to the loop they were made in.
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(awaited(value))


def _executable(tool: ToolLike) -> BaseTool:
    if isinstance(tool, BaseTool):
        return tool
    if callable(tool) and not isinstance(tool, type):
        if inspect.iscoroutinefunction(tool):
            return StructuredTool.from_function(coroutine=tool)
        return StructuredTool.from_function(tool)
    raise ConfigurationError(f"{tool!r:.80} cannot be executed: pass LangChain tools or functions, not schemas.")
