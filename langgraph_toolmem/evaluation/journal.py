"""The files of an evaluation: each answer of the model, kept as it arrives, and each finished run.

Each answer is appended to ``answers.jsonl`` when it arrives, so that an interrupted run continues without paying for it
again. A request is identified by its messages and settings without ids, which a restarted run draws again, and by how
often the run made it before. `with_kept_answers` puts the `Keeper` of a run into a chat model. Each finished run is one
line of ``runs.jsonl``.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, messages_from_dict, messages_to_dict
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.text import digest, dumps
from langgraph_toolmem.models.wrapped import Mixins, chunk_of, copy_with, joined, message_of
from langgraph_toolmem.report.report import TokenPrice

Model = TypeVar("Model", bound=BaseChatModel)
R = TypeVar("R", "PaidAnswer", "RunRecord")
_UNREACHABLE: Final = {"APIConnectionError", "ConnectError", "ConnectionError", "TimeoutError", "TimeoutException"}
"""Names of the errors, or of their base classes, that OpenAI, Anthropic, httpx and Python raise without an answer."""


@dataclass(slots=True)
class Usage:
    """Model calls and tokens.

    Attributes:
        model_calls: requests that reached the model.
        input: tokens, cached ones included.
        cached: of these, read from the provider's cache.
        output: tokens.
        seconds: waiting for the model.
        unknown: calls for which the model reported no tokens.
    """

    model_calls: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    seconds: float = 0.0
    unknown: int = 0

    def add(self, other: Usage) -> None:
        """Add calls and tokens of another record."""
        self.model_calls += other.model_calls
        self.input += other.input
        self.cached += other.cached
        self.output += other.output
        self.seconds += other.seconds
        self.unknown += other.unknown

    def cost(self, price: TokenPrice | None) -> float | None:
        """Return the money that the tokens cost; None without a price."""
        return None if price is None else price.of(self.input, self.output, self.cached)


class BudgetReachedError(Exception):
    """The budget of the evaluation is used up: the run ends, and a later start continues it."""


@dataclass(slots=True)
class EvalBudget:
    """Limits of an evaluation over all its starts.

    Attributes:
        max_model_calls: None for no limit.
        max_cost: money; needs a price.
        price: of the model's tokens.
        spent: so far.
    """

    max_model_calls: int | None = None
    max_cost: float | None = None
    price: TokenPrice | None = None
    spent: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        if self.max_cost is not None and self.price is None:
            raise ConfigurationError("a limit of the cost needs the price of the tokens: --price IN:OUT[:CACHED]")

    def check(self) -> None:
        """Raise BudgetReachedError if the budget is used up."""
        if self.max_model_calls is not None and self.spent.model_calls >= self.max_model_calls:
            raise BudgetReachedError(f"the budget of {self.max_model_calls:,} model calls is used up")
        # The price of a call is known once it is answered, so the last one may go beyond the limit.
        cost = self.spent.cost(self.price)
        if self.max_cost is not None and cost is not None and cost >= self.max_cost:
            raise BudgetReachedError(f"the budget of {self.max_cost:g} is used up")


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The key of a request.

    Attributes:
        run: key of the run.
        request: digest of messages and settings, without ids.
        nth: number of times that the run had made the request before.
    """

    run: str
    request: str
    nth: int


@dataclass(frozen=True, slots=True)
class PaidAnswer:
    """One answer of the model, as it is on disk.

    Attributes:
        run, request, nth: see `RequestKey`.
        message: the answer.
        usage: of this call.
    """

    run: str
    request: str
    nth: int
    message: dict[str, Any]
    usage: Usage

    @classmethod
    def of(cls, key: RequestKey, message: AIMessage, usage: Usage) -> PaidAnswer:
        """Return the answer to a request, as it is written."""
        return cls(key.run, key.request, key.nth, messages_to_dict([message])[0], usage)

    @property
    def key(self) -> RequestKey:
        """The key of the request that it answers."""
        return RequestKey(self.run, self.request, self.nth)

    def to_message(self) -> AIMessage:
        """Return the answer as a message."""
        message = messages_from_dict([self.message])[0]
        assert isinstance(message, AIMessage)
        return message


class Answers:
    """The file of kept answers.

    Args:
        path: the file; it is created with the first answer.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._kept: dict[RequestKey, PaidAnswer] = {}
        self.usage = Usage()
        for answer in read_records(path, PaidAnswer, "kept answer"):
            self._keep(answer)

    def _keep(self, answer: PaidAnswer) -> None:
        self._kept[answer.key] = answer
        self.usage.add(answer.usage)

    def find(self, key: RequestKey) -> PaidAnswer | None:
        """Return a kept answer, if there is one."""
        return self._kept.get(key)

    def append(self, answer: PaidAnswer) -> None:
        """Write an answer to the disk."""
        # Parallel branches of a graph answer in several threads; without the lock their lines would mix.
        with self._lock:
            self._keep(answer)
            append_line(self._path, dumps(asdict(answer)))


@dataclass(slots=True)
class Reply:
    """The place for the model's answer to a request; None if a stream ended before its first chunk."""

    message: AIMessage | None = None


class Keeper:
    """Serves kept answers of one run, and keeps, counts and limits new ones.

    Attributes:
        usage: of the run, kept answers included.
        kept_usage: only of the kept answers.
        stopped: why the run cannot be finished now: the budget, or a temporary error of the provider; otherwise None.
    """

    def __init__(self, run: str, answers: Answers, budget: EvalBudget) -> None:
        self.run, self._answers, self._budget = run, answers, budget
        self.usage, self.kept_usage = Usage(), Usage()
        self.stopped: Exception | None = None
        self._times: Counter[str] = Counter()
        # Guards the counts; the agent may call the model in several threads.
        self._lock = threading.Lock()

    def key_of(self, messages: Sequence[BaseMessage], stop: Any, kwargs: Mapping[str, Any]) -> RequestKey:
        """Return the key of a request, and count it."""
        plain = [_without_ids(message) for message in messages]
        request = digest("request", dumps(plain), dumps([stop, kwargs], default=_class_name))
        with self._lock:
            nth = self._times[request]
            self._times[request] += 1
        return RequestKey(self.run, request, nth)

    def kept(self, key: RequestKey, *, counts: bool = True) -> AIMessage | None:
        """Return the kept answer to a request, or None; with `counts` its usage is added to the run's."""
        answer = self._answers.find(key)
        if answer is None:
            return None
        if counts:
            with self._lock:
                self.usage.add(answer.usage)
                self.kept_usage.add(answer.usage)
        return answer.to_message()

    def keep(self, key: RequestKey, message: AIMessage) -> None:
        """Keep an answer of another model, such as a simulated user's, without counting it."""
        self._answers.append(PaidAnswer.of(key, message, Usage()))

    @contextmanager
    def asking(self, key: RequestKey) -> Iterator[Reply]:
        """Yield the place for the model's answer, and keep the answer at the end of the block."""
        # An agent that catches the error of a used budget cannot continue by asking again.
        if isinstance(self.stopped, BudgetReachedError):
            raise self.stopped
        try:
            self._budget.check()
        except BudgetReachedError as error:
            self.stopped = error
            raise
        began, reply = time.perf_counter(), Reply()
        try:
            yield reply
        except Exception as error:
            # A rate limit is no failure of the agent: the run is made again. Any other error counts for the agent.
            if _may_pass(error):
                self.stopped = error
            raise
        # A stream that its reader left before the end, or an empty one: it is not kept.
        if reply.message is None:
            return
        usage = _usage_of(reply.message, time.perf_counter() - began)
        # Written first: a run that is killed after this line does not pay for the answer again.
        self._answers.append(PaidAnswer.of(key, reply.message, usage))
        with self._lock:
            self.stopped = None  # a retry went through
            self.usage.add(usage)
            self._budget.spent.add(usage)


def _without_ids(message: BaseMessage) -> list[Any]:
    """Return type, content and calls of a message. Its ids, and those of its calls, differ at each start."""
    calls = [[call["name"], call["args"]] for call in getattr(message, "tool_calls", ())]
    return [message.type, message.content, calls]


def _class_name(value: Any) -> str:
    return type(value).__name__  # a repr may hold an address, which is another one at the next start


def _usage_of(message: AIMessage, seconds: float) -> Usage:
    reported = message.usage_metadata
    if reported is None:
        return Usage(model_calls=1, seconds=seconds, unknown=1)
    # Providers without a prompt cache leave the details out, or set them to None.
    details = reported.get("input_token_details") or {}
    cached = int(details.get("cache_read") or 0)
    return Usage(1, reported["input_tokens"], cached, reported["output_tokens"], seconds)


def _may_pass(error: BaseException) -> bool:
    """Return True for a temporary error: a rate limit, or a failed server."""
    status = _status_of(error)
    if status is not None:
        return status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    # By name: providers' packages are not dependencies, and each has classes of its own.
    names = {kind.__name__ for kind in type(error).__mro__}
    return not names.isdisjoint(_UNREACHABLE)


def _status_of(error: BaseException) -> int | None:
    """Return the HTTP status of a provider's error, which is on the error or on its response; None without one."""
    for place in (error, getattr(error, "response", None)):
        status = getattr(place, "status_code", None)
        if isinstance(status, int):
            return status
    return None


# --- files ---


def lines_of(path: Path) -> list[str]:
    """Return the whole lines of a file; a truncated last one is left out."""
    if not path.exists():
        return []
    *whole, _cut = path.read_text(encoding="utf-8").split("\n")
    return [line for line in whole if line]


def read_records(path: Path, kind: type[R], name: str) -> Iterator[R]:
    """Yield the record of each line of a file: a dataclass with a field `usage`.

    Args:
        path: the file; a missing one has no records.
        kind: the dataclass.
        name: of a record, for the error.

    Raises:
        InputError: a line is not such a record.
    """
    for number, line in enumerate(lines_of(path), 1):
        try:
            fields = json.loads(line)
            yield kind(**{**fields, "usage": Usage(**fields["usage"])})
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"line {number} of {path} is no {name}: {error}") from error


def append_line(path: Path, line: str) -> None:
    """Append one line to a file, on its own line even if the last one was cut."""
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                # A kill cut the last line short: `lines_of` skips it.
                size = path.read_bytes().rfind(b"\n") + 1
                file.truncate(size)
        file.write(line.encode() + b"\n")
        file.flush()


# --- the model's class with the keeper in it ---


class _Keeps:
    """Serves kept answers before the model generates one."""

    _keeper: Any

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        key = self._keeper.key_of(messages, stop, kwargs)
        kept = self._keeper.kept(key)
        if kept is not None:
            return ChatResult(generations=[ChatGeneration(message=kept)])
        with self._keeper.asking(key) as reply:
            result: ChatResult = super()._generate(messages, stop, run_manager, **kwargs)  # type: ignore[misc]
            reply.message = result.generations[0].message
        return result

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        key = self._keeper.key_of(messages, stop, kwargs)
        kept = self._keeper.kept(key)
        if kept is not None:
            return ChatResult(generations=[ChatGeneration(message=kept)])
        with self._keeper.asking(key) as reply:
            result: ChatResult = await super()._agenerate(messages, stop, run_manager, **kwargs)  # type: ignore[misc]
            reply.message = result.generations[0].message
        return result


class _KeepsStreams:
    """The same for a model that streams."""

    _keeper: Any

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        key = self._keeper.key_of(messages, stop, kwargs)
        kept = self._keeper.kept(key)
        if kept is not None:
            yield chunk_of(kept)
            return
        # Kept once it is whole: a stream that a kill cuts is asked for again.
        with self._keeper.asking(key) as reply:
            whole: ChatGenerationChunk | None = None
            for chunk in super()._stream(messages, stop, run_manager, **kwargs):  # type: ignore[misc]
                whole = joined(whole, chunk)
                yield chunk
            reply.message = _message_of(whole)


class _KeepsAsyncStreams:
    """The same for a model with its own async code to stream."""

    _keeper: Any

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        key = self._keeper.key_of(messages, stop, kwargs)
        kept = self._keeper.kept(key)
        if kept is not None:
            yield chunk_of(kept)
            return
        with self._keeper.asking(key) as reply:
            whole: ChatGenerationChunk | None = None
            async for chunk in super()._astream(messages, stop, run_manager, **kwargs):  # type: ignore[misc]
                whole = joined(whole, chunk)
                yield chunk
            reply.message = _message_of(whole)


_KEEPERS: Final = Mixins("_keeper", _Keeps, _KeepsStreams, _KeepsAsyncStreams)


def with_kept_answers(model: Model, keeper: Keeper) -> Model:
    """Return a copy of a chat model, of a subclass with the same name, whose answers a keeper keeps.

    Raises:
        ConfigurationError: it is not a chat model, such as one with bound tools.
    """
    if not isinstance(model, BaseChatModel):
        raise ConfigurationError(
            f"run.model takes a chat model, not {type(model).__name__}. Wrap the chat model first, then bind tools."
        )
    return copy_with(model, _KEEPERS, keeper)


def _message_of(whole: ChatGenerationChunk | None) -> AIMessage | None:
    if whole is None or not isinstance(whole.message, AIMessageChunk):
        return None
    return message_of(whole)


# --- finished runs ---

# A judge may add up parts, such as ten times .1, which is less than 1.
SUCCESS: Final = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One finished run.

    Attributes:
        arm: name of the arm.
        task: id of the task.
        split: "train" or "test".
        trial: from 0.
        seed: of the task and trial.
        score: from 0 to 1.
        usage: the run's model calls and tokens.
        seconds: from the first message to the score; answers kept from an interrupted start count with their own time.
        cost: money; None without a price.
        memory_calls: steps that the memory took in the model's place.
        error: the kind and text of an error that ended the run, or "".
        folder: the memory's folder after the run, if it was kept.
        trace: one line for each step.
        details: the source's own.
    """

    arm: str
    task: str
    split: str
    trial: int
    seed: int
    score: float
    usage: Usage
    seconds: float
    cost: float | None = None
    memory_calls: int = 0
    error: str = ""
    folder: str = ""
    trace: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def success(self) -> bool:
        """Return True for the full score."""
        return self.score >= SUCCESS


class Journal:
    """The finished runs of an evaluation.

    Args:
        path: the file; it is created with the first run.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records = list(read_records(path, RunRecord, "finished run"))

    def find(self, arm: str, task: str, trial: int) -> RunRecord | None:
        """Return a finished run, if there is one."""
        for record in self.records:
            if (record.arm, record.task, record.trial) == (arm, task, trial):
                return record
        return None

    def append(self, record: RunRecord) -> None:
        """Write a finished run to the disk."""
        append_line(self._path, dumps(asdict(record)))
        self.records.append(record)

    def folder_of(self, arm: str) -> str:
        """Return the folder of the memory after the latest run of an arm that kept it; "" if there is none."""
        for record in reversed(self.records):
            if record.arm == arm and record.folder:
                return record.folder
        return ""
