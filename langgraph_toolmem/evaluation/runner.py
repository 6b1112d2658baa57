"""The evaluation: train tasks first, then test tasks, each in every arm; interrupted and continued at any call.

Folder of an evaluation::

    settings.json    the settings, which another start must repeat
    answers.jsonl    each answer of the model, as it arrived
    runs.jsonl       each finished run
    memory/ARM-N     the memory of an arm after its N-th train run

A run works on a copy of its arm's memory. A finished train run leaves the copy as the arm's memory; a test run discards
it, so trials are independent. With `learn_from_tests` test runs leave theirs too. An interrupted run leaves no memory,
so it starts again from the same memory, and the kept answers bring it to the same point.

A line of a file of tasks (JSONL) is one task::

    {"id": "refund-1", "split": "test", "messages": ["I want order 7 refunded.", "Yes."], "check": {"says": ["7"]}}

`messages` are the user's, said one after the other. `check` is ``"module:function"``, called with the finished
`EvalRun`, or a mapping: `says` are texts that an answer must contain, `calls` are tool calls that must be made, each
``{"name": …, "args": …}``, and `never` are names of tools that must not be called.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeGuard, TypeVar, get_args

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_toolmem.base.checks import check_fields, is_count, is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError, ToolMemoryError, log_failure
from langgraph_toolmem.base.text import canonical, digest, dumps, loads, shortened
from langgraph_toolmem.evaluation.arms import Arm
from langgraph_toolmem.evaluation.figures import Comparison, Figures, Result, compared, figures_of
from langgraph_toolmem.evaluation.journal import Answers, EvalBudget, Journal, Keeper, RunRecord, with_kept_answers
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
        learn_from_tests: If True, the memory keeps the turns of test runs, in their order.
    """

    arms: Sequence[Arm]
    trials: int = 1
    seed: int = 0
    agent: str = ""
    memory: Mapping[str, Any] = field(default_factory=dict)
    learn_from_tests: bool = False

    def __post_init__(self) -> None:
        if not is_count(self.trials, 1):
            raise ConfigurationError(f"`trials` must be a number >= 1, got {self.trials!r}.")
        names = [arm.name for arm in self.arms]
        if not names or len(set(names)) != len(names):
            raise ConfigurationError(f"`arms` must be arms with different names, got {names!r}.")


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
        settings = self._settings
        # An arm without a memory does not learn, so its train runs would be wasted.
        learning = [arm for arm in settings.arms if arm.remembers]
        for task in self._tasks_of("train"):
            for arm in learning:
                yield _Planned(task, arm, 0)
        # By trial, then task, then arm: a budget that ends early leaves pairs.
        for trial in range(settings.trials):
            for task in self._tasks_of("test"):
                for arm in settings.arms:
                    yield _Planned(task, arm, trial)

    def _tasks_of(self, split: Split) -> list[EvalTask]:
        return [task for task in self._source.tasks() if task.split == split]

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


# --- one run, as the agent's factory and the checks see it ---

Model = TypeVar("Model", bound=BaseChatModel)
TRACE_CHARS: Final = 240
"""Characters of one line of a trace."""
RECURSION_LIMIT: Final = 200
"""Limit of graph steps for one user message: an agent in a loop fails its task."""


@dataclass(slots=True)
class EvalRun:
    """One run: a task, in an arm, for the n-th time.

    A factory builds the agent from it::

        def agent(run):
            model = run.model(ChatOpenAI(model="gpt-5.1"))
            return create_agent(model, tools, middleware=run.middleware())

    Attributes:
        task: the task.
        arm: the arm.
        trial: from 0.
        seed: the same for a task and trial in all arms.
        thread_id: of the conversation.
        keeper: counts and keeps the model's answers.
        memory: None in an arm without the memory.
        messages: of the thread, after the run.
        state: the graph's last state.
        world: for the factory and the check to share, such as a database.
    """

    task: EvalTask
    arm: Arm
    trial: int
    seed: int
    thread_id: str
    keeper: Keeper
    memory: ToolMemory | None = None
    messages: list[BaseMessage] = field(default_factory=list)
    state: Any = None
    world: Any = None

    def model(self, model: Model) -> Model:
        """Return a copy of a chat model whose calls are counted, kept for a restart, and limited by the budget."""
        return with_kept_answers(model, self.keeper)

    def middleware(self, outer: Sequence[Any] = ()) -> list[Any]:
        """Return the middleware for ``create_agent``: `outer`, and the memory last if the arm has one."""
        if self.memory is None:
            return list(outer)
        from langgraph_toolmem.middleware import tool_memory_middleware

        return tool_memory_middleware(self.memory, outer=outer, **(self.arm.options or {}))

    def with_memory(self, model: Model, tools: Iterable[Any]) -> Model:
        """Return the model with the memory before it, for any graph; `model` itself in an arm without the memory.

        Raises:
            ConfigurationError: the arm has tool search.
        """
        if self.memory is None:
            return model
        from langgraph_toolmem.models import with_tool_memory

        options = dict(self.arm.options or {})
        # The arm "hints" has it, but at a model there is no end of a run.
        options.pop("reflect", None)
        if options.pop("tool_search", False):
            raise ConfigurationError("tool search needs run.middleware(): a wrapped model cannot reveal tools")
        return with_tool_memory(model, self.memory, tools=tools, **options)


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The result of a run.

    Attributes:
        score: from 0 to 1; 1 is a success.
        messages: of the thread.
        details: the source's own, in JSON.
    """

    score: float
    messages: Sequence[BaseMessage] = ()
    details: dict[str, Any] = field(default_factory=dict)


def play_messages(run: EvalRun, agent: Any, *, asynchronous: bool = False) -> None:
    """Send the user's messages to a graph, one after the other; fill in `run.messages` and `run.state`."""
    # By task and trial, not drawn: a restarted run makes the same requests, and finds its kept answers.
    config: Any = {"configurable": {"thread_id": run.thread_id}, "recursion_limit": RECURSION_LIMIT}
    keeps_thread = bool(getattr(agent, "checkpointer", None))
    for number, text in enumerate(run.task.messages):
        # An id of our own: LangGraph would draw another one at each start.
        said = HumanMessage(text, id=f"{run.thread_id}-{number}")
        # A graph without a checkpointer gets the whole conversation each time.
        before = [] if keeps_thread else run.messages
        state = {"messages": [*before, said]}
        if asynchronous:
            run.state = asyncio.run(agent.ainvoke(state, config))
        else:
            run.state = agent.invoke(state, config)
        run.messages = list(run.state["messages"])


def trace_of(messages: Iterable[BaseMessage]) -> list[str]:
    """Return one line for each step of a run: the user's words, calls with their author, results, answers."""
    lines: list[str] = []
    for message in messages:
        if isinstance(message, HumanMessage):
            lines.append(f"user: {message.text}")
        elif isinstance(message, ToolMessage):
            lines.append(f"result: {message.text}")
        elif isinstance(message, AIMessage):
            # The traces of two arms are shown side by side: they differ first in the author of a call.
            who = "memory" if made_by_memory(message) else "model"
            if message.text:
                lines.append(f"{who}: {message.text}")
            for call in message.tool_calls:
                lines.append(f"{who} calls {call_text(call['name'], call['args'])}")
    return [shortened(" ".join(line.split()), TRACE_CHARS) for line in lines]


def made_by_memory(message: BaseMessage) -> bool:
    """Return True for a message of the memory."""
    return isinstance(message, AIMessage) and "toolmem" in message.additional_kwargs


# --- tasks, and files of them ---

Split = Literal["train", "test"]
TASK_FIELDS: Final = {"id", "split", "messages", "check"}
CHECKS: Final = {"says", "calls", "never"}


@dataclass(frozen=True, slots=True)
class EvalTask:
    """One task.

    Attributes:
        id: unique in the evaluation.
        split: train tasks come first and teach the memory; test tasks are measured.
        messages: the user's, in order; sources with a user of their own leave them out.
        check: see the module.
        data: the source's own.
    """

    id: str
    split: Split = "test"
    messages: tuple[str, ...] = ()
    check: str | Mapping[str, Any] | None = None
    data: Any = field(default=None, compare=False)


class TaskFile:
    """Tasks from a file, for an agent that ``module:factory`` makes.

    Args:
        path: JSONL, or a JSON list.
        factory: takes an `EvalRun` and returns a compiled graph, such as `create_agent`'s.
        asynchronous: call the graph's async methods.

    Raises:
        InputError: the file cannot be read, or a task is malformed.
    """

    def __init__(self, path: Path, factory: Callable[[EvalRun], Any], *, asynchronous: bool = False) -> None:
        self.name, self._factory, self._asynchronous = path.name, factory, asynchronous
        self._tasks = read_tasks(path)

    def tasks(self) -> Sequence[EvalTask]:
        """Return the tasks in the order of the file."""
        return self._tasks

    def identity(self) -> str:
        """Return a digest of the tasks: an evaluation goes on with the same tasks only."""
        return digest("tasks", *(repr(task) for task in self._tasks))

    def play(self, run: EvalRun) -> TaskOutcome:
        """Have the agent do a task, and check the result."""
        agent = self._factory(run)
        play_messages(run, agent, asynchronous=self._asynchronous)
        return TaskOutcome(score_of_run(run), run.messages)


def read_tasks(path: Path) -> list[EvalTask]:
    """Read the tasks of a file. Raises InputError if one is malformed, or two have the same id."""
    try:
        # Editors on Windows put a byte order mark in front, which is no JSON.
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    try:
        items = _items_of(text)
    except ValueError as error:
        raise InputError(f"{path} is not JSON or JSONL: {error}") from error
    tasks: list[EvalTask] = []
    ids: set[str] = set()
    splits: set[str] = set()
    for number, item in enumerate(items, 1):
        task = _task(item, f"task {number} of {path}", default_id=str(number))
        # The id names the task in journal and answers: a second one would count as finished.
        if task.id in ids:
            raise InputError(f"two tasks of {path} have the id {task.id!r}. Give each task an id of its own.")
        tasks.append(task)
        ids.add(task.id)
        splits.add(task.split)
    if "test" not in splits:
        raise InputError(f'{path} has no test tasks. Leave "split" out of the tasks to measure, or set it to "test".')
    return tasks


def _items_of(text: str) -> list[Any]:
    """Return the items of a JSON list, or of JSON lines. Raises ValueError if the text is neither."""
    if text.lstrip().startswith("["):
        items: list[Any] = json.loads(text)
        return items
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _task(item: Any, place: str, *, default_id: str) -> EvalTask:
    """Return a task of a file; `place` names it in errors. Raises InputError if it is malformed."""
    if not isinstance(item, dict):
        raise InputError(f"{place} must be a JSON object, got {type(item).__name__}")
    messages, check, split = item.get("messages"), item.get("check"), item.get("split", "test")
    try:
        check_fields(place, set(item), TASK_FIELDS)
        if isinstance(check, dict):
            check_fields(f"`check` of {place}", set(check), CHECKS)
    except ConfigurationError as error:
        raise InputError(str(error)) from error
    if isinstance(messages, str):
        messages = [messages]
    if not _are_texts(messages):
        raise InputError(f"`messages` of {place} must be the user's texts, got {messages!r:.60}")
    if not isinstance(check, (str, dict)):
        raise InputError(f"`check` of {place} must be 'module:function' or an object, got {check!r:.60}")
    if split not in get_args(Split):
        raise InputError(f"`split` of {place} must be 'train' or 'test', got {split!r:.60}")
    return EvalTask(str(item.get("id", default_id)), split, tuple(messages), check)


def _are_texts(messages: Any) -> TypeGuard[list[str]]:
    """Return True for a list of at least one text."""
    if not isinstance(messages, list) or not messages:
        return False
    return all(isinstance(message, str) for message in messages)


def named_function(reference: str, what: str) -> Callable[..., Any]:
    """Return the function that ``module:function`` names. Raises ConfigurationError if there is none."""
    module, _, name = reference.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"{what} must be module:function, {reference!r} cannot be imported: {error}"
        ) from error
    if not callable(function):
        raise ConfigurationError(f"{what} must be a function, {reference!r} is a {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def score_of_run(run: EvalRun) -> float:
    """Return the score, 0 to 1, that a task's check gives to a finished run.

    Raises:
        ConfigurationError: the check cannot be imported, or returns no score.
    """
    check = run.task.check
    if check is None:
        return 1.0
    if isinstance(check, str):
        score = named_function(check, "check")(run)
        if not isinstance(score, bool) and not is_share(score):
            raise ConfigurationError(f"{check} must return True, False or a score from 0 to 1, got {score!r:.60}")
        return float(score)
    return float(_passes(run, check))


def _passes(run: EvalRun, check: Mapping[str, Any]) -> bool:
    """Return True if the answers contain all texts, and the calls are made that must be, and none that must not."""
    texts: list[str] = []
    calls: Counter[str] = Counter()
    tools: set[str] = set()
    for message in run.messages:
        if not isinstance(message, AIMessage):
            continue
        texts.append(message.text.lower())
        for call in message.tool_calls:
            tools.add(call["name"])
            calls[call_text(call["name"], call["args"])] += 1
    said = "\n".join(texts)
    for text in check.get("says", ()):
        if text.lower() not in said:
            return False
    # A call that is wanted twice must be made twice; more calls than wanted are fine.
    wanted: Counter[str] = Counter()
    for call in check.get("calls", ()):
        wanted[call_text(call["name"], call.get("args", {}))] += 1
    if wanted - calls:
        return False
    return tools.isdisjoint(check.get("never", ()))


def call_text(name: str, args: Mapping[str, Any]) -> str:
    """Return a call as one text that is equal for equal calls."""
    return f"{name} {canonical(args)}"
