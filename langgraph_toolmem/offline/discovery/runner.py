"""The discovery itself: tasks are searched, some at a time, and each outcome is on disk before the next one begins."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langgraph_toolmem.atoms.abstract import Pattern, asked
from langgraph_toolmem.atoms.atoms import Atom, merge_all
from langgraph_toolmem.atoms.extract import Extracted
from langgraph_toolmem.atoms.writer import worded
from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError, StorageError, ToolMemoryError, log_failure
from langgraph_toolmem.base.text import canonical, digest, shortened
from langgraph_toolmem.offline.coldstart.budget import Budget
from langgraph_toolmem.offline.coldstart.meter import RefusedError
from langgraph_toolmem.offline.coldstart.sandbox import Sandbox, in_thread
from langgraph_toolmem.offline.coldstart.state import Query
from langgraph_toolmem.offline.discovery.adapters import Factory, close, factory_of
from langgraph_toolmem.offline.discovery.asking import ModelPolicy
from langgraph_toolmem.offline.discovery.checker import ExactChecker, JudgeChecker
from langgraph_toolmem.offline.discovery.environment import Cursor, Environment, Task
from langgraph_toolmem.offline.discovery.harvest import Found, atoms_of_paths, steps_of_paths
from langgraph_toolmem.offline.discovery.policy import Policy
from langgraph_toolmem.offline.discovery.questions import WORDS, Questions
from langgraph_toolmem.offline.discovery.report import DiscoveryProgress, DiscoveryReport, summed_up
from langgraph_toolmem.offline.discovery.selection import SearchSettings
from langgraph_toolmem.offline.discovery.state import DiscoveryState
from langgraph_toolmem.offline.discovery.tree import Search, SearchOutcome, StoppedError
from langgraph_toolmem.runs.tools import ToolSpec, read_tools

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.offline.discovery.sink import AtomSink

logger = logging.getLogger("langgraph_toolmem.offline.discovery")

OnStep: TypeAlias = Callable[[DiscoveryProgress], object]
FAILURES: Final = 5
"""Searches in a row that raise, after which it is the environment and not the task."""
FOLDER: Final = "discovery"


class Discovery:
    """A search for atoms. **The environment's tools are really executed.**

    Each task is searched by itself, with randomness that comes from the seed and the task's id alone: the atoms are
    the same for any number of workers, and whether it was killed in between or not. Outcomes are kept in ``folder``;
    begun again with the same tools, seed, settings and models (and the same import path, if the environment was named
    by one), it goes on with what is missing; with others it begins anew, and `DiscoveryReport.others` says so.

    Args:
        environment: makes an environment (or a `Sandbox` with a reset): one for each worker. An environment itself
            will do for one worker.
        tasks: what is to be searched.
        model: plans, acts and reflects.
        policy: a `Policy` in place of a model.
        judge: says whether a task is done where the environment does not.
        atom_model: words the atoms, one call for each new kind of step; they count in the budget. None: the words of
            requests, and types read off schemas.
        settings: of each search.
        budget: bounds of model calls and tokens, over all sessions.
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
        atom_model: BaseChatModel | None = None,
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
        self._named = str(getattr(environment, "toolmem_name", ""))
        self._factory = factory_of(environment, workers)
        self.tasks = list(tasks)
        self._model, self._policy, self._judge, self._atom_model = model, policy, judge, atom_model
        self.settings, self.budget = settings or SearchSettings(), budget or Budget(queries=max(1, len(tasks)))
        self._seed, self._workers = seed, workers
        self._first: Environment | None = self._factory()
        self.specs: dict[str, ToolSpec] = read_tools(self._first.tools)
        if not self.specs:
            raise ConfigurationError("The environment has no tools.")
        self._state = DiscoveryState(folder, self._scope())
        self._keys = {f"{task.id}\n{digest(task.request, canonical(dict(task.data)))}": task for task in self.tasks}
        for key in self._keys:
            self._state.add(key, (), "one")
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._errors: list[str] = []
        self._stopped = ""
        self._in_a_row = 0
        self._raised: BaseException | None = None

    # --- what a user calls ---

    def run(self, on_step: OnStep | None = None, *, sink: AtomSink | None = None) -> DiscoveryReport:
        """Searches what is missing, and hands all atoms to the sink.

        Args:
            on_step: told after each task, in the thread that called this.
            sink: gets the atoms of all tasks, former sessions included, at the end; also where it was stopped early.

        Raises:
            ToolMemoryError: nothing says whether a task is done, a model failed, or `FAILURES` searches in a row did.
                What was done is kept; begun again, it goes on from there.
        """
        self._stop.clear()
        self._stopped, self._raised, self._in_a_row = "", None, 0
        waiting: SimpleQueue[Query] = SimpleQueue()
        for query in self._state.all():
            if query.stage == "waiting" and query.text in self._keys:
                waiting.put(query)
        steps: SimpleQueue[None] = SimpleQueue()
        running: list[threading.Thread] = []
        tell = on_step or (lambda _: None)
        tell(self.progress())
        try:
            work = partial(self._work, waiting, steps)
            workers = range(min(self._workers, max(1, waiting.qsize())))
            running.extend(threads.start(f"toolmem-discovery-{number}", work) for number in workers)
            while any(thread.is_alive() for thread in running):
                with contextlib.suppress(Empty):
                    steps.get(timeout=0.1)
                    tell(self.progress())
        finally:
            self._stop.set()
            for thread in running:
                thread.join(timeout=5.0)
        self._word()
        tell(self.progress())
        report = self.report()
        if sink is not None:
            sink.put(self.atoms())
        if self._raised is not None:
            raise self._raised
        return report

    async def arun(self, on_step: OnStep | None = None, *, sink: AtomSink | None = None) -> DiscoveryReport:
        """As `run`, for where an event loop runs. Cancelled, it ends after the present iterations."""
        try:
            return await in_thread(lambda: self.run(on_step, sink=sink))
        finally:
            self._stop.set()

    def progress(self) -> DiscoveryProgress:
        """Return how far it is."""
        known = [query for query in self._state.all() if query.text in self._keys]
        done = [query for query in known if query.stage == "ran"]
        calls, tokens = self._state.spent()
        return DiscoveryProgress(
            tasks=len(self.tasks),
            done=len(done),
            solved=sum(bool((query.entry or {}).get("path")) for query in done),
            failed=sum(query.stage == "failed" for query in known),
            model_calls=calls,
            tokens=tokens,
        )

    def found(self) -> list[Found]:
        """The outcomes there are, in the order of the tasks."""
        known = {query.text: query.entry for query in self._state.all() if query.stage == "ran"}
        return [Found.from_plain(entry) for key in self._keys if (entry := known.get(key)) is not None]

    def atoms(self) -> list[Atom]:
        """The merged atoms of all tasks that were solved, in a model's words where there are some."""
        if self._atom_model is None:
            return atoms_of_paths(self.found(), self.specs)
        return merge_all(self._worded(each) for each in steps_of_paths(self.found(), self.specs))

    def report(self) -> DiscoveryReport:
        """Return what it came to so far."""
        return summed_up(
            self.found(),
            self.atoms(),
            self.progress(),
            others=self._state.others(),
            stopped=self._stopped,
            errors=self._errors,
        )

    def retry_failed(self) -> int:
        """Has tasks whose search raised wait again; returns how many."""
        return self._state.retry_failed()

    def close(self) -> None:
        """Closes the file with the outcomes, and the environment."""
        self._stop.set()
        first, self._first = self._first, None
        close(first)
        self._state.close()

    def __enter__(self) -> Discovery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the searches ---

    def _work(self, waiting: SimpleQueue[Query], steps: SimpleQueue[None]) -> None:
        """One worker: an environment of its own, and one task after the other."""
        environment: Environment | None = None
        try:
            with self._lock:
                environment, self._first = self._first, None
            environment = environment or self._factory()
            while not self._stop.is_set():
                query = waiting.get_nowait()
                self._one(query, environment)
                steps.put(None)
        except Empty:
            pass
        except StoppedError:
            pass
        except RefusedError:
            self._stopped = self.budget.spent(*self._state.spent()) or "the budget is spent"
            self._stop.set()
        except BaseException as error:  # noqa: BLE001 - raised where `run` was called
            if not self._stop.is_set() or self._raised is None:
                self._raised = error
            self._stop.set()
        finally:
            close(environment)

    def _one(self, query: Query, environment: Environment) -> None:
        """Searches one task; what it raises is the task's failure, unless it is one of the whole discovery."""
        task = self._keys[query.text]
        try:
            found = self._search(task, query, environment)
        except (RefusedError, StoppedError, StorageError, ConfigurationError):
            raise
        except Exception as error:
            log_failure(logger, logging.WARNING, "the search of a task failed", error=error)
            said = shortened(f"{type(error).__name__}: {' '.join(str(error).split())}", 300)
            with self._lock:
                self._errors.append(said)
                self._in_a_row += 1
            self._state.failed(query, said)
            if self._in_a_row >= FAILURES:
                raise ToolMemoryError(
                    f"{FAILURES} searches in a row failed, the last one with {said}. What was done is kept."
                ) from error
            return
        self._in_a_row = 0
        self._state.finish(query, found.to_plain())

    def _search(self, task: Task, query: Query, environment: Environment) -> Found:
        questions = Questions(self._state, query, self.budget, self.specs)
        cursor = Cursor(environment, task, most=self.settings.steps)
        cursor.reset()
        checker: ExactChecker | JudgeChecker = ExactChecker(cursor)
        if cursor.success() is None:
            if self._judge is None:
                raise ConfigurationError(
                    "Nothing says whether a task is done: give the environment a success(), or name a judge."
                )
            checker = JudgeChecker(self._judge, questions)
        policy = self._policy
        if self._model is not None:
            policy = ModelPolicy(questions.ask(self._model), self.specs)
        assert policy is not None
        search = Search(
            cursor,
            policy,
            self.specs,
            checker,
            stepwise=checker.stepwise,
            settings=self.settings,
            rng=random.Random(f"{self._seed}-{task.id}"),
        )
        found = _found(task, search.run(self._stop.is_set), cursor)
        return replace(found, counts={**found.counts, "unread": questions.unread})

    def _word(self) -> None:
        """Asks a model about the kinds of steps that it has said nothing of. Without it the atoms are model-free."""
        if self._atom_model is None or self._raised is not None or self._stopped:
            return
        for each in steps_of_paths(self.found(), self.specs):
            if self._state.words(each.atom.id) is not None:
                continue
            how: dict[str, Any] = {"request": each.request, "known": each.known}
            try:
                config = Questions.config_of(self._state, self.budget, WORDS)
                said = asked(self._atom_model, each.atom, each.step, **how, config=config)
            except RefusedError:
                self._stopped = self.budget.spent(*self._state.spent()) or "the budget is spent"
                return
            except Exception as error:  # noqa: BLE001 - whatever a provider raises: the atoms are there without it
                log_failure(logger, logging.WARNING, "atoms are left without a model's words", error=error)
                self._errors.append(shortened(f"atom model: {type(error).__name__}: {error}", 300))
                return
            self._state.worded(each.atom.id, None if said is None else said.model_dump())

    def _worded(self, each: Extracted) -> Atom:
        known = self._state.words(each.atom.id)
        return worded(each, Pattern.model_validate(known["answer"]) if known and known["answer"] else None)

    def _scope(self) -> str:
        tools = (f"{name}\n{spec.description}\n{canonical(spec.parameters)}" for name, spec in self.specs.items())
        models = (_model_name(model) for model in (self._model, self._judge))
        policy = "" if self._policy is None else type(self._policy).__qualname__
        return digest("discovery", self._seed, repr(self.settings), self._named, policy, *models, *tools)


def _found(task: Task, outcome: SearchOutcome, cursor: Cursor) -> Found:
    counts = {name: value for name, value in vars(outcome).items() if name not in ("paths", "already")}
    counts |= {name: getattr(cursor, name) for name in ("steps", "replayed", "resets", "diverged")}
    counts |= {"paths": len(outcome.paths), "already": int(outcome.already)}
    if not outcome.paths:
        return Found(task.id, task.request, counts=counts)
    best = outcome.paths[0]
    return Found(task.id, task.request, best.taken, best.reward, best.answer, counts)


def _model_name(model: BaseChatModel | None) -> str:
    if model is None:
        return ""
    return str(getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__)
