"""Answers of the model, kept by request: a run that was interrupted goes on without paying for them again.

Each answer is appended to ``answers.jsonl`` in the moment it arrives. A request is known by its messages and settings
without ids, which a restarted run draws anew, and by how often the run made it before.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, messages_from_dict, messages_to_dict
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.jsontext import dumps
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.models.copies import Mixins, chunk_of, copy_with, message_of
from langgraph_toolmem.report.savings import TokenPrice

Model = TypeVar("Model", bound=BaseChatModel)
TOO_MANY: Final = 429
SERVER_FAILED: Final = 500


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
    """The budget of the evaluation is used up: the run ends, and a later start goes on with it."""


@dataclass(slots=True)
class EvalBudget:
    """Limits of an evaluation over all its starts.

    Attributes:
        max_model_calls: None: no limit.
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
        """Raise BudgetReachedError if nothing is left."""
        if self.max_model_calls is not None and self.spent.model_calls >= self.max_model_calls:
            raise BudgetReachedError(f"the budget of {self.max_model_calls:,} model calls is used up")
        cost = self.spent.cost(self.price)
        if self.max_cost is not None and cost is not None and cost >= self.max_cost:
            raise BudgetReachedError(f"the budget of {self.max_cost:g} is used up")


@dataclass(frozen=True, slots=True)
class PaidAnswer:
    """One answer of the model, as it is on disk.

    Attributes:
        run: key of the run.
        request: key of the request.
        nth: how often the run had made the request before.
        message: the answer.
        usage: of this call.
    """

    run: str
    request: str
    nth: int
    message: dict[str, Any]
    usage: Usage


class Answers:
    """The file of kept answers.

    Args:
        path: the file; it is created with the first answer.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._kept: dict[tuple[str, str, int], PaidAnswer] = {}
        self.usage = Usage()
        for number, line in enumerate(lines_of(path), 1):
            try:
                item = json.loads(line)
                answer = PaidAnswer(**{**item, "usage": Usage(**item["usage"])})
            except (ValueError, TypeError, KeyError) as error:
                raise InputError(f"line {number} of {path} is no kept answer: {error}") from error
            self._keep(answer)

    def _keep(self, answer: PaidAnswer) -> None:
        self._kept[answer.run, answer.request, answer.nth] = answer
        self.usage.add(answer.usage)

    def find(self, run: str, request: str, nth: int) -> PaidAnswer | None:
        """Return a kept answer, if there is one."""
        return self._kept.get((run, request, nth))

    def append(self, answer: PaidAnswer) -> None:
        """Write an answer to the disk."""
        with self._lock:
            self._keep(answer)
            append_line(self._path, dumps(asdict(answer)))


class Keeper:
    """Serves kept answers of one run, and keeps, counts and limits new ones.

    Attributes:
        usage: of the run, kept answers included.
        kept_usage: of the kept answers alone.
        stopped: why the run cannot be finished now: the budget, or an error of the provider that a later start may
            not meet again. None while all is well.
    """

    def __init__(self, run: str, answers: Answers, budget: EvalBudget) -> None:
        self.run, self._answers, self._budget = run, answers, budget
        self.usage, self.kept_usage = Usage(), Usage()
        self.stopped: Exception | None = None
        self._times: Counter[str] = Counter()
        self._lock = threading.Lock()

    def place(self, messages: Sequence[BaseMessage], stop: Any, kwargs: Mapping[str, Any]) -> tuple[str, int]:
        """Return the key of a request and how often the run made it before."""
        key = digest("request", dumps([_plain(message) for message in messages]), dumps([stop, kwargs], default=_kind))
        with self._lock:
            nth = self._times[key]
            self._times[key] += 1
        return key, nth

    def kept(self, place: tuple[str, int], *, counts: bool = True) -> AIMessage | None:
        """Return the kept answer to a request, if there is one; with `counts` its usage is the run's."""
        found = self._answers.find(self.run, *place)
        if found is None:
            return None
        if counts:
            with self._lock:
                self.usage.add(found.usage)
                self.kept_usage.add(found.usage)
        message = messages_from_dict([found.message])[0]
        assert isinstance(message, AIMessage)
        return message

    def keep(self, place: tuple[str, int], message: AIMessage) -> None:
        """Keep an answer that is not the agent's model's, such as a simulated user's: it counts nowhere."""
        self._answers.append(PaidAnswer(self.run, *place, messages_to_dict([message])[0], Usage()))

    @contextmanager
    def asking(self, place: tuple[str, int]) -> Iterator[list[AIMessage]]:
        """Ask the model within it: yields a list that takes the answer."""
        if isinstance(self.stopped, BudgetReachedError):
            raise self.stopped
        try:
            self._budget.check()
        except BudgetReachedError as error:
            self.stopped = error
            raise
        began, answer = time.perf_counter(), list[AIMessage]()
        try:
            yield answer
        except Exception as error:
            self.stopped = error if _may_pass(error) else self.stopped
            raise
        if not answer:  # a stream that its reader left
            return
        usage = _usage_of(answer[0], time.perf_counter() - began)
        message = messages_to_dict([answer[0]])[0]
        self._answers.append(PaidAnswer(self.run, *place, message, usage))
        with self._lock:
            self.stopped = None  # a retry went through
            self.usage.add(usage)
            self._budget.spent.add(usage)


def _plain(message: BaseMessage) -> list[Any]:
    """Return a message without ids."""
    calls = [[call["name"], call["args"]] for call in getattr(message, "tool_calls", ())]
    return [message.type, message.content, calls]


def _kind(value: Any) -> str:
    return type(value).__name__  # a repr may hold an address


def _usage_of(message: AIMessage, seconds: float) -> Usage:
    found = message.usage_metadata
    if found is None:
        return Usage(model_calls=1, seconds=seconds, unknown=1)
    details = found.get("input_token_details") or {}
    cached = int(details.get("cache_read") or 0)
    return Usage(1, found["input_tokens"], cached, found["output_tokens"], seconds)


def _may_pass(error: BaseException) -> bool:
    """Return True for an error that another start may not meet: a rate limit, or a server that failed."""
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int):
        return status == TOO_MANY or status >= SERVER_FAILED
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"APIConnectionError", "ConnectError", "ConnectionError", "TimeoutError", "TimeoutException"})


# --- files ---


def lines_of(path: Path) -> list[str]:
    """Return the whole lines of a file; a last one that was cut while it was written is left out."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole, cut, _ = text.rpartition("\n")
    return [line for line in whole.split("\n") if line] if cut else []


def append_line(path: Path, line: str) -> None:
    """Append one line to a file, on its own line even if the last one was cut."""
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                size = path.read_bytes().rfind(b"\n") + 1
                file.truncate(size)
        file.write(line.encode() + b"\n")
        file.flush()


# --- the model's class with the keeper in it ---


class _Keeps:
    """Serves kept answers where the model would generate one."""

    _keeper: Any

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        place = self._keeper.place(messages, stop, kwargs)
        if (kept := self._keeper.kept(place)) is not None:
            return ChatResult(generations=[ChatGeneration(message=kept)])
        with self._keeper.asking(place) as answer:
            result: ChatResult = super()._generate(messages, stop, run_manager, **kwargs)  # type: ignore[misc]
            answer.append(result.generations[0].message)
        return result

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        place = self._keeper.place(messages, stop, kwargs)
        if (kept := self._keeper.kept(place)) is not None:
            return ChatResult(generations=[ChatGeneration(message=kept)])
        with self._keeper.asking(place) as answer:
            result: ChatResult = await super()._agenerate(messages, stop, run_manager, **kwargs)  # type: ignore[misc]
            answer.append(result.generations[0].message)
        return result


class _KeepsStreams:
    """The same where the model streams."""

    _keeper: Any

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        place = self._keeper.place(messages, stop, kwargs)
        if (kept := self._keeper.kept(place)) is not None:
            yield chunk_of(kept)
            return
        with self._keeper.asking(place) as answer:
            whole: ChatGenerationChunk | None = None
            for chunk in super()._stream(messages, stop, run_manager, **kwargs):  # type: ignore[misc]
                whole = chunk if whole is None else whole + chunk
                yield chunk
            answer += _answer_of(whole)


class _KeepsAsyncStreams:
    """The same where the model has async code of its own to stream."""

    _keeper: Any

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        place = self._keeper.place(messages, stop, kwargs)
        if (kept := self._keeper.kept(place)) is not None:
            yield chunk_of(kept)
            return
        with self._keeper.asking(place) as answer:
            whole: ChatGenerationChunk | None = None
            async for chunk in super()._astream(messages, stop, run_manager, **kwargs):  # type: ignore[misc]
                whole = chunk if whole is None else whole + chunk
                yield chunk
            answer += _answer_of(whole)


_MIXINS: Final = Mixins("_keeper", _Keeps, _KeepsStreams, _KeepsAsyncStreams)


def with_kept_answers(model: Model, keeper: Keeper) -> Model:
    """Return a copy of a chat model, of a subclass with the same name, whose answers a keeper keeps.

    Raises:
        ConfigurationError: it is no chat model, such as one that has tools bound.
    """
    if not isinstance(model, BaseChatModel):
        raise ConfigurationError(
            f"run.model takes a chat model, not {type(model).__name__}. Wrap the chat model first, then bind tools."
        )
    return copy_with(model, _MIXINS, keeper)


def _answer_of(whole: ChatGenerationChunk | None) -> list[AIMessage]:
    if whole is None or not isinstance(whole.message, AIMessageChunk):
        return []
    return [message_of(whole)]
