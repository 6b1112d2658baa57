"""The evaluation: train tasks first, then test tasks, each in every arm; interrupted and continued at any call.

Folder of an evaluation::

    settings.json    the settings, which another start must repeat
    answers.jsonl    each answer of the model, as it arrived
    runs.jsonl       each finished run
    memory/ARM-N     the memory of an arm after its N-th train run

A run works on a copy of its arm's memory. A finished train run leaves the copy as the arm's memory; a test run discards
it, so trials are independent. With `learn_from_tests` test runs leave theirs too. An interrupted run leaves no memory,
so it starts again from the same memory, and the kept answers bring it to the same point.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from langgraph_toolmem.base.checks import is_count
from langgraph_toolmem.base.errors import ConfigurationError, ToolMemoryError, log_failure
from langgraph_toolmem.base.jsontext import dumps, loads
from langgraph_toolmem.base.text import digest, shortened
from langgraph_toolmem.evaluation.answers import Answers, EvalBudget, Keeper
from langgraph_toolmem.evaluation.arms import Arm
from langgraph_toolmem.evaluation.figures import Comparison, Figures, compared, figures_of, plain
from langgraph_toolmem.evaluation.journal import Journal, RunRecord
from langgraph_toolmem.evaluation.run import EvalRun, TaskOutcome, made_by_memory, trace_of
from langgraph_toolmem.evaluation.tasks import EvalTask
from langgraph_toolmem.memory import ToolMemory

logger = logging.getLogger(__name__)
ERROR_CHARS: Final = 300


class EvalStoppedError(ToolMemoryError):
    """The evaluation stopped before its end; the same call continues it."""


class TaskSource(Protocol):
    """Tasks, and the way in which an agent does them."""

    name: str

    def tasks(self) -> Sequence[EvalTask]:
        """Return all tasks, in their order."""

    def identity(self) -> str:
        """Return a text that differs for other tasks."""

    def play(self, run: EvalRun) -> TaskOutcome:
        """Run the agent on a task, and return its score and messages."""


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """Settings of an evaluation.

    Attributes:
        arms: the others are compared with the first.
        trials: of each test task.
        seed: of all runs.
        agent: names the agent in the folder, so that another agent does not continue it.
        memory: arguments of `ToolMemory`, such as ``{"reads": {"get_*"}}``.
        train: If False, leave the train tasks out.
        learn_from_tests: keep what the memory learns in test runs, in their order.
    """

    arms: Sequence[Arm]
    trials: int = 1
    seed: int = 0
    agent: str = ""
    memory: Mapping[str, Any] = field(default_factory=dict)
    train: bool = True
    learn_from_tests: bool = False

    def __post_init__(self) -> None:
        if not is_count(self.trials, 1):
            raise ConfigurationError(f"`trials` must be a number >= 1, got {self.trials!r}.")
        names = [arm.name for arm in self.arms]
        if not names or len(set(names)) != len(names):
            raise ConfigurationError(f"`arms` must be arms with different names, got {names!r}.")


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of an evaluation.

    Attributes:
        source: name of the tasks.
        agent: name of the agent.
        figures: of each arm, the first one first.
        comparisons: of the others with the first.
        records: of all finished runs.
        missing: runs that are not done yet.
        currency: of the cost; None without a price.
    """

    source: str
    agent: str
    figures: list[Figures]
    comparisons: list[Comparison]
    records: list[RunRecord]
    missing: int
    currency: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the result in JSON's types, with the traces of runs with another outcome."""
        changed: list[dict[str, Any]] = []
        for comparison in self.comparisons:
            for task, trial in comparison.changed:
                traces = self.traces(comparison, task, trial)
                changed.append({"arm": comparison.arm, "task": task, "trial": trial, "traces": traces})
        return {
            "source": self.source,
            "agent": self.agent,
            "missing": self.missing,
            "currency": self.currency,
            "figures": [plain(figures) for figures in self.figures],
            "comparisons": [plain(comparison) for comparison in self.comparisons],
            "changed": changed,
            "runs": [plain(record) for record in self.records],
        }

    def traces(self, comparison: Comparison, task: str, trial: int) -> dict[str, list[str]]:
        """Return the traces of a task and trial in the two arms of a comparison."""
        traces: dict[str, list[str]] = {}
        for arm in (comparison.against, comparison.arm):
            for record in self.records:
                if (record.arm, record.task, record.trial) == (arm, task, trial):
                    traces[arm] = record.trace
        return traces


@dataclass(frozen=True, slots=True)
class _Planned:
    """A run of the plan."""

    task: EvalTask
    arm: Arm
    trial: int


class Evaluation:
    """A/B tests of an agent on tasks.

    Args:
        source: the tasks.
        settings: see there.
        folder: of the evaluation; a start in the folder of an unfinished one continues it.
        budget: limits over all starts.

    Raises:
        ConfigurationError: the folder has another evaluation.
        InputError: a file of the folder cannot be read.
    """

    def __init__(
        self, source: TaskSource, settings: EvalSettings, folder: Path, budget: EvalBudget | None = None
    ) -> None:
        self._source, self._settings, self._folder = source, settings, folder
        self._budget = budget or EvalBudget()
        folder.mkdir(parents=True, exist_ok=True)
        self._check_settings()
        self._answers = Answers(folder / "answers.jsonl")
        self._journal = Journal(folder / "runs.jsonl")
        # The budget covers all starts, so that a loop of restarts does not pay without end.
        self._budget.spent.add(self._answers.usage)
        self._plan = list(self._planned())

    @property
    def planned(self) -> int:
        """Return the number of runs, finished ones included."""
        return len(self._plan)

    def _check_settings(self) -> None:
        settings, path = self._settings, self._folder / "settings.json"
        now = {
            "source": self._source.name,
            "tasks": self._source.identity(),
            "agent": settings.agent,
            # As text: policies are compared by their fields, and JSON has no classes.
            "arms": [[arm.name, repr(arm.options)] for arm in settings.arms],
            "trials": settings.trials,
            "seed": settings.seed,
            "train": settings.train,
            "learn_from_tests": settings.learn_from_tests,
        }
        if not path.exists():
            path.write_text(dumps(now, indent=2), encoding="utf-8")
            return
        before = loads(path.read_text(encoding="utf-8"))
        other = [name for name, value in now.items() if before.get(name) != value]
        # Figures of two evaluations in one journal would compare unrelated runs.
        if other:
            raise ConfigurationError(
                f"{self._folder} has an evaluation with another {', '.join(other)}. Name another folder, or delete it."
            )

    def _planned(self) -> Iterator[_Planned]:
        tasks, settings = self._source.tasks(), self._settings
        if settings.train:
            for task in tasks:
                # An arm without a memory does not learn, so its train runs would be wasted.
                for arm in settings.arms:
                    if task.split == "train" and arm.remembers:
                        yield _Planned(task, arm, 0)
        # By trial, then task, then arm: a budget that ends early leaves pairs.
        for trial in range(settings.trials):
            for task in tasks:
                for arm in settings.arms:
                    if task.split == "test":
                        yield _Planned(task, arm, trial)

    def run(self, on_run: Callable[[RunRecord], None] | None = None) -> Result:
        """Do all runs that are not finished yet, and return the figures.

        Args:
            on_run: is called with each run, also with those that an earlier start finished.

        Raises:
            EvalStoppedError: the budget is used up, or the provider refuses: the same call later continues.
        """
        for planned in self._plan:
            record = self._journal.find(planned.arm.name, planned.task.id, planned.trial)
            if record is None:
                record = self._do(planned)
            if on_run is not None:
                on_run(record)
        return self.result()

    def result(self) -> Result:
        """Return the figures of the finished runs."""
        settings, records, price = self._settings, self._journal.records, self._budget.price
        first = settings.arms[0].name
        figures: list[Figures] = []
        comparisons: list[Comparison] = []
        for arm in settings.arms:
            figures.append(figures_of(arm.name, records))
            if arm.name != first:
                comparisons.append(compared(arm.name, first, records, seed=settings.seed))
        return Result(
            source=self._source.name,
            agent=settings.agent,
            figures=figures,
            comparisons=comparisons,
            records=list(records),
            missing=len(self._plan) - len(records),
            currency=None if price is None else price.currency,
        )

    # --- one run ---

    def _do(self, planned: _Planned) -> RunRecord:
        """Do one run, and write it to the journal.

        Raises:
            EvalStoppedError: the run cannot be finished now.
        """
        work = self._folder / "memory" / "work"
        run = self._begin(planned, work)
        began = time.perf_counter()
        try:
            outcome, error = self._play(run)
            if self._keeps(run):
                self._teach(run, outcome)
        finally:
            if run.memory is not None:
                run.memory.close()
        # A kept answer counts with the seconds that it took when it was paid, so a restarted run is not faster.
        seconds = time.perf_counter() - began + run.keeper.kept_usage.seconds
        folder = ""
        if self._keeps(run):
            folder = self._keep(run.arm, work)
        record = self._record_of(run, outcome, error, seconds, folder)
        before = self._journal.folder_of(run.arm.name)
        # The memory that a line names exists at any kill: the new one was renamed before this line, and the old one is
        # deleted after it.
        self._journal.append(record)
        if before and folder:
            shutil.rmtree(self._folder / "memory" / before, ignore_errors=True)
        return record

    def _begin(self, planned: _Planned, work: Path) -> EvalRun:
        """Return a run with its seed, its thread, its keeper of answers, and its copy of the arm's memory."""
        task, arm, trial = planned.task, planned.arm, planned.trial
        # Only by task and trial, so that all arms have the same seeds; 28 bits fit a signed 32-bit integer.
        seed = int(digest("seed", self._settings.seed, task.id, trial)[:7], 16)
        thread = digest("thread", task.split, task.id, trial)
        keeper = Keeper(f"{arm.name}/{task.id}/{trial}", self._answers, self._budget)
        run = EvalRun(task, arm, trial, seed, f"{task.split}-{thread}", keeper)
        if arm.remembers:
            run.memory = self._open(arm, work)
        return run

    def _record_of(self, run: EvalRun, outcome: TaskOutcome, error: str, seconds: float, folder: str) -> RunRecord:
        messages = outcome.messages or run.messages
        made = [message for message in messages if made_by_memory(message)]
        return RunRecord(
            arm=run.arm.name,
            task=run.task.id,
            split=run.task.split,
            trial=run.trial,
            seed=run.seed,
            score=outcome.score,
            usage=run.keeper.usage,
            seconds=seconds,
            cost=run.keeper.usage.cost(self._budget.price),
            memory_calls=len(made),
            error=error,
            folder=folder,
            trace=trace_of(messages),
            details=outcome.details,
        )

    def _play(self, run: EvalRun) -> tuple[TaskOutcome, str]:
        """Return the result of a run, and the error that ended it, if one did.

        Raises:
            EvalStoppedError: the run cannot be finished now.
        """
        outcome, error = TaskOutcome(0.0), ""
        try:
            outcome = self._source.play(run)
        except ConfigurationError:
            raise  # it would end every run in the same way
        except Exception as failed:  # noqa: BLE001 - an agent that fails has failed its task
            log_failure(logger, logging.INFO, "a run of the evaluation ended with an error", error=failed)
            error = shortened(f"{type(failed).__name__}: {failed}", ERROR_CHARS)
        # A used budget or a rate limit is unrelated to the agent, even if the agent handles the error: the run counts
        # only after it went through.
        stopped = run.keeper.stopped
        if stopped is not None:
            raise EvalStoppedError(
                f"Stopped in {run.keeper.run}: {stopped}. The same command goes on from here."
            ) from stopped
        return outcome, error

    def _keeps(self, run: EvalRun) -> bool:
        """Return True if the memory after this run is the arm's from now on."""
        if run.memory is None:
            return False
        return run.task.split == "train" or self._settings.learn_from_tests

    def _open(self, arm: Arm, work: Path) -> ToolMemory:
        """Return the memory of an arm, on a copy of its folder."""
        # An interrupted run may have left its copy there.
        shutil.rmtree(work, ignore_errors=True)
        kept = self._journal.folder_of(arm.name)
        if kept:
            shutil.copytree(self._folder / "memory" / kept, work)
        return ToolMemory(work, **self._settings.memory)

    def _teach(self, run: EvalRun, outcome: TaskOutcome) -> None:
        messages = list(outcome.messages or run.messages)
        if run.memory is not None and messages:
            # The folder is copied next, so the memory must have written everything.
            run.memory.finish(messages, thread_id=run.thread_id, success=outcome.score, wait=True)

    def _keep(self, arm: Arm, work: Path) -> str:
        """Make the copy the arm's memory, and return its name. Until the journal names it, it does not count."""
        number = 1
        for record in self._journal.records:
            if record.arm == arm.name and record.folder:
                number += 1
        name = f"{arm.name.replace('#', '-')}-{number:05}"
        target = self._folder / "memory" / name
        # A kill between this and the journal's line leaves one.
        shutil.rmtree(target, ignore_errors=True)
        work.rename(target)
        return name
