"""Monte Carlo tree search over tool calls (SGA-MCTS): nodes are states, shared by all paths that lead to them.

In each iteration a path is walked from the first state: where there is a choice, the action with the highest U(s, a)
is taken (`selection`). Behind the known states the path goes on with what the policy holds for most promising; each
state it comes to becomes a node. The reward of the path, R = 1[success] · ((1 − λ) + λ / (1 + length)), goes to all its
nodes and actions; a failed path earns 0.

An action that failed, that told nothing, or behind which everything was tried is not taken again. Where all that the
policy proposed led nowhere, and no path ended well so far, it is asked once what else there is. Nodes are shared by
(state, sub-goal): their statistics are pooled, and the calls by which a node was reached first lead back to it. A path
never enters a node twice.

Of the best path, changes are left out without which it ends as well and of which no later call was made.

Calls that only read are made once in a world and not again on a way back. If a task is found done by such a call (what
was looked up counts, or the tool does more than it says), the search begins again with every call counted as a change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from langgraph_toolmem.base.errors import ToolMemoryError
from langgraph_toolmem.offline.discovery.environment import Cursor, EnvironmentCall, Taken
from langgraph_toolmem.offline.discovery.harvest import is_used, needed
from langgraph_toolmem.offline.discovery.policy import Policy, Proposal
from langgraph_toolmem.offline.discovery.selection import SearchSettings, chosen
from langgraph_toolmem.offline.discovery.states import State, only_reads
from langgraph_toolmem.runs.tools import ToolSpec

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
    """A state with its statistics; `arms` is None until the policy was asked, `plans` are those made here in a row,
    `widened` says that it was asked what else there is."""

    state: State
    arms: list[Arm] | None = None
    visits: int = 0
    total: float = 0.0
    closed: bool = False
    entrances: int = 1
    plans: int = 0
    widened: bool = False


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
        # In a world that tells which calls are possible, reading leads on as well, and there are no other paths.
        self._guided = callable(getattr(cursor.environment, "possible", None))
        self._all_count = self._guided
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
        if outcome.paths and self._stepwise:
            self._without_detours(outcome.paths[0])
        self._sum_up()
        return outcome

    def _without_detours(self, path: Path) -> None:
        """Tries the best path without each change but the last: one without which it ends as well is left out.

        What a later call was made of stays: it could be left out only because the search knows the value already.
        """
        request, calls = self._cursor.task.request, [taken.call for taken in path.taken]
        best = path.taken
        for index in range(len(calls) - 2, -1, -1):
            if self._reads(calls[index].tool) or is_used(best, index, request):
                continue
            rest = calls[:index] + calls[index + 1 :]
            made = self._cursor.again(rest)
            if made is not None and self._check(State(self._cursor.task, made), ""):
                calls, best = rest, made
        if len(best) < len(path.taken):
            if not self._all_count:
                best = needed(best, {call.tool: self._reads(call.tool) for call in calls}, request)
            self.outcome.paths.insert(0, Path(best, path.answer, self.settings.reward(len(best))))

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
            visited.closed = visited.closed or self._is_exhausted(visited)

    def _is_exhausted(self, node: Node) -> bool:
        """Return True if all was tried in a state. While no path ended well, the policy is asked what else there is."""
        if node.arms is None or not all(map(_is_over, node.arms)):
            return False
        if node.widened or self.outcome.paths or self._guided:
            return True
        node.widened = True
        known = {arm.proposal.call.key for arm in node.arms if arm.proposal.call is not None}
        others = [
            each for each in self._policy.widen(node.state) if each.call is not None and each.call.key not in known
        ]
        node.arms = [*node.arms, *_with_priors(others)]
        return not others

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
            known: list[EnvironmentCall] | None = None
            if self._guided and self._cursor.go(node.state.changed):
                known = list(self._cursor.environment.possible())  # type: ignore[attr-defined]
            proposals = self._policy.propose(node.state, known)
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
