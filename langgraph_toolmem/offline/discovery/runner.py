"""The discovery itself: tasks are searched, some at a time, and each outcome is on disk before the next one begins."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from pydantic import BaseModel

from langgraph_toolmem.atoms.atoms import Atom, merge_all
from langgraph_toolmem.atoms.extract import Extractor
from langgraph_toolmem.atoms.mask import Habits
from langgraph_toolmem.base.errors import ConfigurationError, StorageError, ToolMemoryError, log_failure
from langgraph_toolmem.base.text import canonical, digest, shortened
from langgraph_toolmem.entries.entry import entry_of
from langgraph_toolmem.offline.coldstart import Budget, RefusedError, Sandbox, Spending, in_thread, judge, structured
from langgraph_toolmem.offline.discovery.model import ModelPolicy
from langgraph_toolmem.offline.discovery.search import Policy, Search, SearchSettings, State, StoppedError
from langgraph_toolmem.offline.discovery.world import (
    Cursor,
    Environment,
    EnvironmentCall,
    Factory,
    Observation,
    Taken,
    Task,
    close,
    factory_of,
)
from langgraph_toolmem.runs.messages import Status
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.runs.values import canon_args

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.memory import ToolMemory

logger = logging.getLogger("langgraph_toolmem.offline.discovery")

Answer = TypeVar("Answer", bound=BaseModel)
OnStep: TypeAlias = Callable[["DiscoveryReport"], object]
FAILURES: Final = 5
"""Searches in a row that raise, after which it is the environment and not the task."""
FILE: Final = "discovery.jsonl"
TAG: Final = "toolmem:discovery"
ENOUGH: Final = 0.5
"""A score of the environment above this is a success."""


@dataclass(frozen=True)
class Found:
    """The best path of a task, and what it took to find it.

    Attributes:
        task: id of the task.
        request: the user's words.
        path: calls and what came back; empty if none ended well.
        reward: R of the path, 0 if none ended well.
        answer: the last word, if one was needed.
        counts: iterations, steps, replayed, nodes, inner, tried, shared, depth, paths, diverged; already: 1 if the task
            was done before anything was.
    """

    task: str
    request: str
    path: tuple[Taken, ...] = ()
    reward: float = 0.0
    answer: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Found:
        """The inverse of ``dataclasses.asdict``."""
        path = (Taken(EnvironmentCall(**each["call"]), Observation(**each["observation"])) for each in plain["path"])
        return cls(**{**plain, "path": tuple(path)})


@dataclass(frozen=True)
class DiscoveryReport:
    """Progress and results of a discovery.

    Attributes:
        tasks: how many there are.
        done: tasks whose search is over.
        solved: of these, such as ended well.
        failed: tasks whose search raised in this session.
        already: tasks that were done before anything was.
        unsolved: ids of the tasks whose search is over, and none of whose paths ended well.
        explored: calls made for the first time, all searches together.
        replayed: calls made again in order to come back to a state.
        diverged: how often one of these answered something else than before.
        atoms: how many atoms the solved tasks gave.
        model_calls, tokens: of this session.
        stopped: why it ended before all was done, or "".
        errors: why searches failed, latest last, at most five.
    """

    tasks: int
    done: int = 0
    solved: int = 0
    failed: int = 0
    already: int = 0
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

    Each task is searched by itself, with randomness that comes from the seed and the task's id alone: the atoms are
    the same for any number of workers, and whether it was killed in between or not. Outcomes are kept in ``folder``;
    begun again with the same tools, seed, settings and models it goes on with what is missing, with others anew.

    Args:
        environment: makes an environment (or a `Sandbox` with a reset): one for each worker. An environment itself
            will do for one worker.
        tasks: what is to be searched.
        model: plans, acts and reflects.
        policy: a `Policy` in place of a model.
        judge: says whether a task is done where the environment does not.
        settings: of each search.
        budget: bounds of model calls and tokens in one session.
        seed: see above.
        workers: searches at a time.
        folder: where outcomes are kept; None: in RAM.

    Raises:
        ConfigurationError: an argument cannot be, or the environment has no tools.
        StorageError: the folder cannot be used.
    """

    def __init__(
        self,
        environment: Factory | Environment | Sandbox,
        tasks: Sequence[Task],
        *,
        model: BaseChatModel | None = None,
        policy: Policy | None = None,
        judge: BaseChatModel | None = None,
        settings: SearchSettings | None = None,
        budget: Budget | None = None,
        seed: int = 0,
        workers: int = 1,
        folder: Path | None = None,
    ) -> None:
        if workers < 1:
            raise ConfigurationError(f"workers is a number from 1 on, not {workers!r}.")
        if (model is None) == (policy is None):
            raise ConfigurationError("Discovery needs a chat model, model=, or a policy=, and not both.")
        if len({task.id for task in tasks}) < len(tasks):
            raise ConfigurationError("Two tasks have the same id.")
        self._factory = factory_of(environment, workers)
        self.tasks = list(tasks)
        self._model, self._policy, self._judge = model, policy, judge
        self.settings = settings or SearchSettings()
        self._spending = Spending(budget or Budget(queries=max(1, len(tasks))))
        self._seed, self._workers = seed, workers
        self._free: list[Environment] = [self._factory()]
        self.specs: dict[str, ToolSpec] = read_tools(self._free[0].tools)
        if not self.specs:
            raise ConfigurationError("The environment has no tools.")
        self._scope = self._scoped()
        self._file = None if folder is None else Path(folder) / FILE
        self._found = self._read()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failed: dict[str, str] = {}
        self._in_a_row = 0
        self._stopped = ""

    # --- what a user calls ---

    def run(
        self, on_step: OnStep | None = None, *, memory: ToolMemory | None = None, user_id: str | None = None
    ) -> DiscoveryReport:
        """Searches what is missing, and hands all atoms to a memory.

        Args:
            on_step: told after each task, in the thread that called this.
            memory: gets the atoms of all tasks, former sessions included, at the end; also where it was stopped early.
                Those that it was given before are replaced.
            user_id: whose the atoms are, where the memory keeps users apart.

        Raises:
            ToolMemoryError: nothing says whether a task is done, a model failed, or `FAILURES` searches in a row did.
                What was done is kept; begun again, it goes on from there.
        """
        self._stop.clear()
        self._stopped, self._in_a_row, self._failed = "", 0, {}
        tell = on_step or (lambda _: None)
        tell(self.report())
        missing = [task for task in self.tasks if _key(task) not in self._found]
        try:
            with ThreadPoolExecutor(self._workers, "toolmem-discovery") as pool:
                try:
                    for future in as_completed([pool.submit(self._one, task) for task in missing]):
                        future.result()
                        tell(self.report())
                finally:
                    self._stop.set()
        finally:
            if memory is not None:
                memory.atoms.keep(self.atoms(), user_id=user_id)
        return self.report()

    async def arun(
        self, on_step: OnStep | None = None, *, memory: ToolMemory | None = None, user_id: str | None = None
    ) -> DiscoveryReport:
        """As `run`, for where an event loop runs. Cancelled, it ends after the present iterations."""
        try:
            return await in_thread(lambda: self.run(on_step, memory=memory, user_id=user_id))
        finally:
            self._stop.set()

    def found(self) -> list[Found]:
        """The outcomes there are, in the order of the tasks."""
        return [self._found[key] for task in self.tasks if (key := _key(task)) in self._found]

    def atoms(self) -> list[Atom]:
        """The merged atoms of all tasks that were solved: a path becomes a run, and each of its steps an atom."""
        good = [each for each in self.found() if each.path]
        runs = [run_of(Task(each.task, each.request), each.path) for each in good]
        extractor = Extractor(self.specs, habits=Habits(runs))
        return merge_all(
            step.atom
            for run, each in zip(runs, good, strict=True)
            for step in extractor.steps(run, value=each.reward, origin="search", source=each.task)
        )

    def report(self) -> DiscoveryReport:
        """Return how far it is, and what it came to so far."""
        found = self.found()
        total: Counter[str] = Counter()
        for each in found:
            total.update(each.counts)
        return DiscoveryReport(
            tasks=len(self.tasks),
            done=len(found),
            solved=sum(bool(each.path) for each in found),
            failed=len(self._failed),
            already=total["already"],
            unsolved=tuple(each.task for each in found if not each.path and not each.counts.get("already")),
            explored=total["steps"],
            replayed=total["replayed"],
            diverged=total["diverged"],
            atoms=len(self.atoms()),
            model_calls=self._spending.calls,
            tokens=self._spending.tokens,
            stopped=self._stopped,
            errors=tuple(self._failed.values())[-5:],
        )

    def close(self) -> None:
        """Closes the environments."""
        self._stop.set()
        while self._free:
            close(self._free.pop())

    def __enter__(self) -> Discovery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the searches ---

    def _one(self, task: Task) -> None:
        """Searches one task; what it raises is the task's failure, unless it is one of the whole discovery."""
        if self._stop.is_set():
            return
        with self._lock:
            environment = self._free.pop() if self._free else None
        try:
            environment = environment or self._factory()
            found = self._search(task, environment)
        except StoppedError:
            return
        except RefusedError:
            self._stopped = self._spending.over or "the budget is spent"
            self._stop.set()
            return
        except (StorageError, ConfigurationError):
            self._stop.set()
            raise
        except Exception as error:
            log_failure(logger, logging.WARNING, "the search of a task failed", error=error)
            said = shortened(f"{type(error).__name__}: {' '.join(str(error).split())}", 300)
            with self._lock:
                self._failed[task.id] = said
                self._in_a_row += 1
                failures = self._in_a_row
            if failures >= FAILURES:
                self._stop.set()
                raise ToolMemoryError(
                    f"{FAILURES} searches in a row failed, the last one with {said}. What was done is kept."
                ) from error
            return
        finally:
            if environment is not None:
                with self._lock:
                    self._free.append(environment)
        with self._lock:
            self._in_a_row = 0
            self._keep(task, found)

    def _search(self, task: Task, environment: Environment) -> Found:
        cursor = Cursor(environment, task, most=self.settings.steps)
        cursor.reset()
        stepwise = cursor.success() is not None
        if not stepwise and self._judge is None:
            raise ConfigurationError(
                "Nothing says whether a task is done: give the environment a success(), or name a judge."
            )
        policy = self._policy or ModelPolicy(self._ask, self.specs)
        search = Search(
            cursor,
            policy,
            self.specs,
            (lambda *_: (cursor.success() or 0.0) > ENOUGH) if stepwise else self._judged,
            stepwise=stepwise,
            settings=self.settings,
            rng=random.Random(f"{self._seed}-{task.id}"),
        )
        outcome = search.run(self._stop.is_set)
        counts = {name: value for name, value in vars(outcome).items() if name not in ("paths", "already")}
        counts |= {name: getattr(cursor, name) for name in ("steps", "replayed", "resets", "diverged")}
        counts |= {"paths": len(outcome.paths), "already": int(outcome.already)}
        if not outcome.paths:
            return Found(task.id, task.request, counts=counts)
        best = outcome.paths[0]
        return Found(task.id, task.request, best.taken, best.reward, best.answer, counts)

    def _ask(self, schema: type[Answer], rules: str, parts: Mapping[str, str]) -> Answer | None:
        assert self._model is not None
        return structured(self._model, schema, rules, parts, "", self._spending.config("toolmem_discovery", TAG))

    def _judged(self, state: State, answer: str) -> bool:
        """Return True if the judge, who sees calls, answers and the last word, says yes; "unsure" is no."""
        run = run_of(state.task, state.taken, answer=answer)
        entry = entry_of(run, run_digest=digest("discovery", state.task.id), now=0.0)
        if entry is None or self._judge is None:
            return False
        return judge(self._judge, entry, answer, self.specs, self._spending.config("toolmem_discovery", TAG))[0] == 1.0

    # --- on disk ---

    def _read(self) -> dict[str, Found]:
        """The outcomes of former sessions; a last line that a kill cut short is passed over."""
        if self._file is None:
            return {}
        found: dict[str, Found] = {}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            lines: Iterable[bytes] = self._file.read_bytes().splitlines() if self._file.exists() else ()
        except OSError as error:
            raise StorageError(f"{self._file} cannot be read: {error}") from error
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                kept = json.loads(line)
                if kept["scope"] == self._scope:
                    found[kept["key"]] = Found.from_plain(kept["found"])
        return found

    def _keep(self, task: Task, found: Found) -> None:
        key = _key(task)
        plain = json.dumps({"scope": self._scope, "key": key, "found": asdict(found)}, default=str)
        found = self._found[key] = Found.from_plain(json.loads(plain)["found"])
        if self._file is None:
            return
        try:
            with self._file.open("ab") as file:
                file.write(f"{'' if not file.tell() else chr(10)}{plain}".encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._stop.set()
            raise StorageError(f"{self._file} cannot be written: {error}") from error

    def _scoped(self) -> str:
        tools = (f"{name}\n{spec.description}\n{canonical(spec.parameters)}" for name, spec in self.specs.items())
        models = (_model_name(model) for model in (self._model, self._judge))
        policy = "" if self._policy is None else type(self._policy).__qualname__
        return digest("discovery", self._seed, repr(self.settings), policy, *models, *tools)


def run_of(task: Task, path: Sequence[Taken], *, answer: str = "") -> Run:
    """A path as a run: one turn for each call."""
    events: list[UserMessage | Turn] = [UserMessage(task.request, digest("task", task.id))]
    for number, taken in enumerate(path):
        key = digest("search", task.id, number, taken.call.tool, canon_args(taken.call.args))
        status: Status = "ok" if taken.observation.ok else "failed"
        args = dict(taken.call.args)
        step = ExecutedCall(taken.call.tool, args, taken.observation.output, status, "model", f"call_{key}", key)
        events.append(Turn((step,), "", "model", digest("turn", key), settled=True))
    if answer:
        events.append(Turn((), answer, "model", digest("words", task.id), settled=True))
    return Run(tuple(events), task.id, truncated=False, next_key=None, thought="")


def _key(task: Task) -> str:
    return f"{task.id}\n{digest(task.request, canonical(dict(task.data)))}"


def _model_name(model: BaseChatModel | None) -> str:
    if model is None:
        return ""
    return str(getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__)
