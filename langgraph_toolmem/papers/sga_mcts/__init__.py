"""Discovery: tool calls are searched offline, in a world that can be reset, and the best paths become atoms.

    from langgraph_toolmem import ToolMemory
    from langgraph_toolmem.papers.sga_mcts import Discovery, Task, ToolsEnvironment

    def make():
        office = Office()
        return ToolsEnvironment(office.tools(), reset=office.reset, success=office.is_right)

    with Discovery(make, [Task("t1", "Forward the latest email from Ann to Ben")], model=model) as discovery:
        with ToolMemory("memory") as memory:
            print(discovery.run(memory=memory))

**The tools are really executed.** `search` has the tree search and the environment, `model` the policy that asks a
chat model.

Source: SGA-MCTS (arXiv 2604.14712), its offline part: nodes are states ⟨history, what is known, sub-goal⟩, edges are
tools, Plan and Reflect. The paper searches benchmarks; here the user's own tools are searched.

| | the paper (`SearchSettings.paper()`) | the default |
|---|---|---|
| U of an edge | UCB1: Q + c · √(ln N(s) / N(s, a)), c = 1.41 | Q + c · P(a given s) · √(1 + N(s)) / (1 + N(s, a)) |
| paths walked | 50 | 50, at most 3 more after the shortest one so far |
| calls a path, at most | 10 | 10 |
| R of a path | 1[success] · ((1 − λ) + λ / (1 + length)), λ = 0.1 | the same |
| 5 calls needed: calls explored | 53 | 27 |
| 8 calls needed: paths found | 32 of 60 | 51 of 60 |

The last two lines are searches with a simulated policy of which 7 of 10 first proposals are right, of three in a state.

The online part of the paper is `langgraph_toolmem.atoms`: an atom scores (1 − β) · cos(q, e) + β · |Λ ∩ S_e| / (|S_e| +
ε), with β = 0.3, ε = 1e-5 and the three best shown. By default a call that needs nothing is feasible in full, where the
formula gives 0, and sub-goals, states and descriptions are compared apart. How often the tool that came next is among
three steps shown (docs/figures.md, "Planning"):

| | the paper (`SGASettings.paper()`) | the default |
|---|---|---|
| office, GPT-4 (workbench_gpt4) | 80.2 % | 95.5 % |
| shop, ideal runs (tau_retail_gold) | 77.0 % | 92.0 % |
| 8 APIs, ideal runs (bfcl_v3_multi_turn) | 61.6 % | 77.2 % |
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from pydantic import TypeAdapter

from langgraph_toolmem.atoms.atoms import Atom, merge_all
from langgraph_toolmem.atoms.extract import Extractor, habits_of
from langgraph_toolmem.base.errors import ConfigurationError, StorageError, ToolMemoryError, log_failure
from langgraph_toolmem.base.text import canonical, digest
from langgraph_toolmem.entries.entry import entry_of
from langgraph_toolmem.offline.coldstart import (
    COLD_START_LIMITS,
    BootstrapBudget,
    RefusedError,
    Spending,
    error_line,
    in_thread,
    judge,
)
from langgraph_toolmem.papers.sga_mcts.model import ModelPolicy
from langgraph_toolmem.papers.sga_mcts.search import (
    ActionProposal,
    Cursor,
    Environment,
    EnvironmentCall,
    Goal,
    Policy,
    Search,
    SearchSettings,
    State,
    StoppedError,
    Task,
    ToolObservation,
    ToolsEnvironment,
    Transition,
)
from langgraph_toolmem.runs.run import ExecutedCall, Run, Status, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec, read_tools, side_effects
from langgraph_toolmem.runs.values import canon_args

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.memory import ToolMemory

__all__ = [
    "ActionProposal",
    "Discovery",
    "DiscoveryReport",
    "Environment",
    "EnvironmentCall",
    "Goal",
    "Policy",
    "SearchSettings",
    "State",
    "Task",
    "ToolObservation",
    "ToolsEnvironment",
    "Transition",
]

logger = logging.getLogger("langgraph_toolmem.papers.sga_mcts")

OnStep: TypeAlias = Callable[["DiscoveryReport"], object]
FILE: Final = "discovery.jsonl"
SOLVED: Final = 0.5
"""An environment's score above this is a success."""


@dataclass(frozen=True)
class FoundSolution:
    """The outcome of the search of one task.

    Attributes:
        task: the task's id.
        request: the user's words.
        path: the calls of the best path.
        reward: R of the path; 0 if the task was not solved.
        answer: the last word, if one was needed.
        explored: calls made for the first time.
        replayed: calls repeated to return to a state.
        diverged: repeated calls with another result.
    """

    task: str
    request: str
    path: tuple[Transition, ...] = ()
    reward: float = 0.0
    answer: str = ""
    explored: int = 0
    replayed: int = 0
    diverged: int = 0


_solution_from_plain: Final = TypeAdapter(FoundSolution).validate_python


@dataclass(frozen=True)
class DiscoveryReport:
    """Progress of a discovery.

    Attributes:
        tasks: all tasks.
        done: tasks whose search is over.
        solved: tasks of these that were solved.
        failed: tasks whose search raised an error in this session.
        unsolved: ids of the tasks whose search found no successful path.
        explored: calls made for the first time, in all searches.
        replayed: calls repeated to return to a state.
        diverged: repeated calls with another result.
        atoms: atoms extracted from the solved tasks.
        model_calls: model calls in this session.
        tokens: prompt and answer tokens in this session.
        stopped: the reason why it ended before all was done, or "".
        errors: errors of failed searches, latest last, at most five.
    """

    tasks: int
    done: int = 0
    solved: int = 0
    failed: int = 0
    unsolved: tuple[str, ...] = ()
    explored: int = 0
    replayed: int = 0
    diverged: int = 0
    atoms: int = 0
    model_calls: int = 0
    tokens: int = 0
    stopped: str = ""
    errors: tuple[str, ...] = ()


class Discovery:
    """A search for atoms. **The environment's tools are really executed.**

    Each task is searched by itself, with randomness from the seed and the task's id alone: the result does not depend
    on the number of workers or on interruptions. Outcomes are kept in ``folder``, each on disk before the next search
    begins; a discovery with the same tools, seed, settings and models continues there.

    Args:
        environment: makes an `Environment`, one for each worker.
        tasks: the tasks.
        model: plans, proposes and reflects.
        policy: a `Policy` in place of a model.
        judge: decides whether a task is done where the environment does not.
        settings: settings of each search.
        budget: bounds of model calls and tokens in one session.
        seed: see above.
        workers: searches at a time.
        folder: folder of the outcomes. Defaults to None: in RAM.

    Raises:
        ConfigurationError: an argument is invalid, or the environment has no tools.
        StorageError: the folder cannot be used.
    """

    def __init__(
        self,
        environment: Callable[[], Environment],
        tasks: Sequence[Task],
        *,
        model: BaseChatModel | None = None,
        policy: Policy | None = None,
        judge: BaseChatModel | None = None,
        settings: SearchSettings | None = None,
        budget: BootstrapBudget | None = None,
        seed: int = 0,
        workers: int = 1,
        folder: Path | None = None,
    ) -> None:
        if workers < 1:
            raise ConfigurationError(f"`workers` must be a whole number from 1, got {workers!r}.")
        if (model is None) == (policy is None):
            raise ConfigurationError("Discovery needs either a chat model, model=, or a policy=.")
        _check_ids(tasks)
        self.tasks = list(tasks)
        self.settings = settings or SearchSettings()
        self._make, self._model, self._policy, self._judge = environment, model, policy, judge
        self._spending = Spending(budget or BootstrapBudget(), "discovery")
        self._seed, self._workers = seed, workers
        self._free = [self._environment()]
        self.specs: dict[str, ToolSpec] = read_tools(self._free[0].tools)
        if not self.specs:
            raise ConfigurationError("The environment has no tools: its `tools` must be LangChain tools or functions.")
        self._reads = _reading(self.specs)
        self._file: Path | None = None
        if folder is not None:
            self._file = Path(folder) / FILE
        self._scope = self._identity()
        self._found = self._load()
        self._stop = threading.Event()
        # Guards the free environments, the failures and the outcomes; searches run in several threads.
        self._lock = threading.Lock()
        self._failed: dict[str, str] = {}
        self._in_a_row = 0
        self._stopped = ""

    def run(
        self, on_step: OnStep | None = None, *, memory: ToolMemory | None = None, user_id: str | None = None
    ) -> DiscoveryReport:
        """Search the tasks that are not done, and store the atoms of all tasks in a memory.

        Args:
            on_step: called with the report after each task, in the calling thread.
            memory: stores the atoms at the end, also after an interruption. They replace those of earlier sessions.
            user_id: the owner of the atoms, where the memory keeps users apart.

        Raises:
            ToolMemoryError: nothing decides whether a task is done, or five searches in a row failed. What was
                done is kept.
        """
        self._stop.clear()
        self._stopped, self._in_a_row, self._failed = "", 0, {}
        try:
            self._search_missing(on_step)
        finally:
            # Also after an interruption: the searches that are done were paid.
            if memory is not None:
                memory.atoms.keep(self.atoms(), user_id=user_id)
        return self.report()

    def _search_missing(self, on_step: OnStep | None) -> None:
        if on_step is not None:
            on_step(self.report())
        missing = [task for task in self.tasks if _key(task) not in self._found]
        with ThreadPoolExecutor(self._workers, "toolmem-discovery") as pool:
            try:
                searches = [pool.submit(self._one, task) for task in missing]
                for search in as_completed(searches):
                    search.result()
                    if on_step is not None:
                        on_step(self.report())
            finally:
                # Leaving the pool awaits its searches: let them end after the present iteration.
                self._stop.set()

    async def arun(
        self, on_step: OnStep | None = None, *, memory: ToolMemory | None = None, user_id: str | None = None
    ) -> DiscoveryReport:
        """Async variant of `run`, in a worker thread. Cancelled, it ends after the present iterations."""
        try:
            return await in_thread(self.run, on_step, memory=memory, user_id=user_id)
        finally:
            self._stop.set()

    def found(self) -> list[FoundSolution]:
        """Return the outcomes of the tasks that are done, in the tasks' order."""
        outcomes = []
        for task in self.tasks:
            outcome = self._found.get(_key(task))
            if outcome is not None:
                outcomes.append(outcome)
        return outcomes

    def atoms(self) -> list[Atom]:
        """Return the merged atoms of all solved tasks: each step of a path is one."""
        # A task that was done from the start has no path, and teaches nothing.
        solved = [outcome for outcome in self.found() if outcome.path]
        runs: list[Run] = []
        for outcome in solved:
            runs.append(run_of(Task(outcome.task, outcome.request), outcome.path))
        extractor = Extractor(self.specs, habits=habits_of(runs))
        atoms: list[Atom] = []
        for run, outcome in zip(runs, solved, strict=True):
            atoms += [step.atom for step in extractor.steps(run, value=outcome.reward)]
        return merge_all(atoms)

    def report(self) -> DiscoveryReport:
        """Return the progress."""
        outcomes = self.found()
        unsolved: list[str] = []
        explored = replayed = diverged = 0
        for outcome in outcomes:
            explored += outcome.explored
            replayed += outcome.replayed
            diverged += outcome.diverged
            if not outcome.reward:
                unsolved.append(outcome.task)
        return DiscoveryReport(
            tasks=len(self.tasks),
            done=len(outcomes),
            solved=len(outcomes) - len(unsolved),
            failed=len(self._failed),
            unsolved=tuple(unsolved),
            explored=explored,
            replayed=replayed,
            diverged=diverged,
            atoms=len(self.atoms()),
            model_calls=self._spending.calls,
            tokens=self._spending.tokens,
            stopped=self._stopped,
            errors=tuple(self._failed.values())[-5:],
        )

    def close(self) -> None:
        """Close the environments that can be closed."""
        self._stop.set()
        while self._free:
            close = getattr(self._free.pop(), "close", None)
            if callable(close):
                close()

    def __enter__(self) -> Discovery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- one search ---

    def _environment(self) -> Environment:
        made = self._make()
        if not isinstance(made, Environment):
            raise ConfigurationError(
                "An environment needs tools, reset(task), step(call) and success(); "
                f"{type(made).__name__} lacks some of them."
            )
        return made

    def _one(self, task: Task) -> None:
        """Search one task, unless the discovery is stopped, and keep the outcome."""
        if self._stop.is_set():
            return
        try:
            solution = self._search_in_free_environment(task)
        except StoppedError:
            return  # a later session searches the task from its beginning
        # The budget is spent: searches that run end too.
        except RefusedError:
            self._stopped = self._spending.over
            self._stop.set()
        # They would end every further search alike.
        except (StorageError, ConfigurationError):
            self._stop.set()
            raise
        except Exception as error:  # noqa: BLE001 - of the environment, the policy or a provider: other tasks go on
            log_failure(logger, logging.WARNING, "the search of a task failed", error=error)
            self._count_failure(task, error)
        else:
            with self._lock:
                self._in_a_row = 0
                self._keep(task, solution)

    def _search_in_free_environment(self, task: Task) -> FoundSolution:
        environment = self._take_environment()
        try:
            return self._search(task, environment)
        finally:
            with self._lock:
                self._free.append(environment)

    def _take_environment(self) -> Environment:
        with self._lock:
            if self._free:
                return self._free.pop()
        # Outside the lock: making one may take long.
        return self._environment()

    def _count_failure(self, task: Task, error: Exception) -> None:
        reason = error_line(error)
        with self._lock:
            self._failed[task.id] = reason
            self._in_a_row += 1
            # A provider that is down would fail all further tasks in the same way.
            too_many = self._in_a_row >= COLD_START_LIMITS.failures
        if too_many:
            self._stop.set()
            raise ToolMemoryError(
                f"{COLD_START_LIMITS.failures} searches in a row failed, the last one with {reason}. "
                "What was done is kept."
            ) from error

    def _search(self, task: Task, environment: Environment) -> FoundSolution:
        cursor = Cursor(environment, task, self._reads)
        cursor.go(())
        # An environment that scores the first state scores all; one that does not leaves it to the judge.
        stepwise = cursor.success() is not None
        if not stepwise and self._judge is None:
            raise ConfigurationError(
                "Nothing decides whether a task is done: give the environment a success(), or pass judge=."
            )

        def is_done(_state: State, _answer: str) -> bool:
            return (cursor.success() or 0.0) > SOLVED

        check: Callable[[State, str], bool] = self._judged
        if stepwise:
            check = is_done
        search = Search(
            cursor,
            self._policy or self._model_policy(),
            self._reads,
            check,
            stepwise=stepwise,
            settings=self.settings,
            # Of seed and task alone: the number of workers and interruptions do not change the result.
            rng=random.Random(f"{self._seed}-{task.id}"),
        )
        outcome = search.run(self._stop.is_set)
        return FoundSolution(
            task.id,
            task.request,
            outcome.path,
            outcome.reward,
            outcome.answer,
            explored=cursor.explored,
            replayed=cursor.replayed,
            diverged=cursor.diverged,
        )

    def _model_policy(self) -> ModelPolicy:
        assert self._model is not None
        return ModelPolicy(self._model, self.specs, self._spending.config)

    def _judged(self, state: State, answer: str) -> bool:
        """Return True if the judge says that the task is done."""
        run = run_of(state.task, state.path, answer)
        entry = entry_of(run, run_digest=digest("discovery", state.task.id), now=0.0)
        if entry is None or self._judge is None:
            return False
        score, _ = judge(self._judge, entry, answer, self.specs, self._spending.config())
        return score == 1.0

    # --- on disk ---

    def _identity(self) -> str:
        """Return a digest of tools, seed, settings and models. Outcomes with another identity are not used."""
        tools = []
        for name, spec in self.specs.items():
            tools.append(f"{name}\n{spec.description}\n{canonical(spec.parameters)}")
        policy = ""
        if self._policy is not None:
            policy = type(self._policy).__qualname__
        models = [_name_of(self._model), _name_of(self._judge)]
        return digest("discovery", self._seed, repr(self.settings), policy, *models, *tools)

    def _load(self) -> dict[str, FoundSolution]:
        if self._file is None:
            return {}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            lines = self._file.read_bytes().splitlines()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError(f"{self._file} cannot be read: {error}") from error
        outcomes: dict[str, FoundSolution] = {}
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):  # a kill cut the line short
                kept = json.loads(line)
                # A folder may hold outcomes with other tools or settings: they are of another discovery.
                if kept["scope"] == self._scope:
                    outcomes[kept["key"]] = _solution_from_plain(kept["found"])
        return outcomes

    def _keep(self, task: Task, solution: FoundSolution) -> None:
        line = json.dumps({"scope": self._scope, "key": _key(task), "found": asdict(solution)}, default=str)
        # As it is read back: the atoms of this session are those of a later one.
        self._found[_key(task)] = _solution_from_plain(json.loads(line)["found"])
        if self._file is None:
            return
        try:
            with self._file.open("ab") as file:
                # The line break comes first: a kill may have cut the last line short.
                if file.tell() > 0:
                    file.write(b"\n")
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._stop.set()
            raise StorageError(f"{self._file} cannot be written: {error}") from error


def _check_ids(tasks: Sequence[Task]) -> None:
    """Raise ConfigurationError if two tasks have the same id, which seeds the search and names its outcome."""
    ids: set[str] = set()
    for task in tasks:
        if task.id in ids:
            raise ConfigurationError(f"`tasks` must have different ids, got {task.id!r} twice.")
        ids.add(task.id)


def _reading(specs: Mapping[str, ToolSpec]) -> set[str]:
    """Return the names of the tools that only read."""
    reading = set()
    for name, spec in specs.items():
        if side_effects(spec) == "reads":
            reading.add(name)
    return reading


def run_of(task: Task, path: Sequence[Transition], answer: str = "") -> Run:
    """Return a path as a run, with one turn for each call."""
    # Keys are digests of the task: a task that is searched again replaces its run.
    events: list[UserMessage | Turn] = [UserMessage(task.request, digest("task", task.id))]
    for number, transition in enumerate(path):
        step = _step_of(task, number, transition)
        events.append(Turn((step,), "", "model", digest("turn", step.key), settled=True))
    if answer:
        events.append(Turn((), answer, "model", digest("words", task.id), settled=True))
    return Run(tuple(events), task.id, truncated=False, next_key=None)


def _step_of(task: Task, number: int, transition: Transition) -> ExecutedCall:
    tool, args = transition.call.tool, dict(transition.call.args)
    key = digest("search", task.id, number, tool, canon_args(args))
    status: Status = "ok" if transition.observation.ok else "failed"
    return ExecutedCall(tool, args, transition.observation.output, status, "model", f"call_{key}", key)


def _name_of(model: BaseChatModel | None) -> str:
    if model is None:
        return ""
    # Chat models have no common field for their name; the class tells at least the provider.
    return str(getattr(model, "model_name", None) or type(model).__name__)


def _key(task: Task) -> str:
    return f"{task.id}\n{digest(task.request, canonical(dict(task.data)))}"
