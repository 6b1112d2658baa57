"""Tasks of an evaluation, and files of them.

A line of a file (JSONL) is one task::

    {"id": "refund-1", "split": "test", "messages": ["I want order 7 refunded.", "Yes."], "check": {"says": ["7"]}}

`messages` are the user's, said one after the other. `check` is ``"module:function"``, called with the finished
`EvalRun`, or a mapping: `says` are texts that an answer must contain, `calls` are tool calls that must be made, each
``{"name": …, "args": …}``, and `never` are names of tools that must not be called.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeGuard, get_args

from langchain_core.messages import AIMessage

from langgraph_toolmem.base.checks import check_fields, is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.text import canonical, digest
from langgraph_toolmem.evaluation.run import EvalRun, TaskOutcome, play_messages

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
        task = _task(item, number)
        # The id names the task in journal and answers: a second one would count as finished.
        if task.id in ids:
            raise InputError(f"two tasks of {path} have the id {task.id!r}")
        tasks.append(task)
        ids.add(task.id)
        splits.add(task.split)
    if "test" not in splits:
        raise InputError(f"{path} has no test tasks")
    return tasks


def _items_of(text: str) -> list[Any]:
    """Return the items of a JSON list, or of JSON lines. Raises ValueError if the text is neither."""
    if text.lstrip().startswith("["):
        items: list[Any] = json.loads(text)
        return items
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _task(item: Any, number: int) -> EvalTask:
    if not isinstance(item, dict):
        raise InputError(f"task {number} must be a JSON object, got {type(item).__name__}")
    try:
        check_fields(f"task {number}", set(item), TASK_FIELDS)
        messages, check = item.get("messages"), item.get("check")
        if isinstance(check, dict):
            check_fields(f"`check` of task {number}", set(check), CHECKS)
    except ConfigurationError as error:
        raise InputError(str(error)) from error
    if isinstance(messages, str):
        messages = [messages]
    if not _are_texts(messages):
        raise InputError(f"`messages` of task {number} must be the user's texts, got {messages!r:.60}")
    if not isinstance(check, (str, dict)):
        raise InputError(f"`check` of task {number} must be 'module:function' or an object, got {check!r:.60}")
    split = item.get("split", "test")
    if split not in get_args(Split):
        raise InputError(f"`split` of task {number} must be 'train' or 'test', got {split!r:.60}")
    return EvalTask(str(item.get("id", number)), split, tuple(messages), check)


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
    """Return the score, 0 to 1, that a task's check gives to a finished run."""
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
            calls[_call_text(call["name"], call["args"])] += 1
    said = "\n".join(texts)
    for text in check.get("says", ()):
        if text.lower() not in said:
            return False
    # A call that is wanted twice must be made twice; more calls than wanted are fine.
    wanted: Counter[str] = Counter()
    for call in check.get("calls", ()):
        wanted[_call_text(call["name"], call.get("args", {}))] += 1
    if wanted - calls:
        return False
    return tools.isdisjoint(check.get("never", ()))


def _call_text(name: str, args: Mapping[str, Any]) -> str:
    return f"{name} {canonical(args)}"
