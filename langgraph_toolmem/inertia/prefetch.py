"""Prefetch: look-ups that the model is likely to ask for, or is asking for, run before its answer is complete.

A look-up begins when it is likely by the record (the shortcut's `InertiaForecast`), or when the streamed answer of the
model contains all of its arguments. If the model asks for exactly that tool with exactly those arguments, the result is
ready; otherwise it is discarded. (Speculative Actions, arXiv 2510.04371; PASTE, arXiv 2603.18897.)

In this order: the settings; the work around a model call (`Prefetcher`); the choice of calls; the calls of one answer
(`PrefetchBatch`), and of a memory until they are served or discarded (`Registry`). `inertia.speculative` runs one call.
"""

from __future__ import annotations

import contextvars
import json
import logging
import weakref
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.checks import (
    checks_options,
    expect,
    is_positive,
    is_positive_count,
    is_share,
    names_given,
    or_none,
)
from langgraph_toolmem.base.threads import SharedByCopies
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.graph.events import Count, Record, ToolCount
from langgraph_toolmem.graph.state import WORDS
from langgraph_toolmem.inertia.decision import InertiaForecast, Option, forecast_of
from langgraph_toolmem.inertia.policy import may_write
from langgraph_toolmem.inertia.speculative import (
    REVIEWED,
    SECONDS,
    SERVED,
    UNCLAIMED,
    WASTED,
    AgentTools,
    Host,
    Interceptors,
    Lookup,
    PrefetchTask,
    Ran,
    is_same,
    standing_in,
)
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon_args, readable
from langgraph_toolmem.turn.ask import StepGenerator, Wait, loop_of_run
from langgraph_toolmem.turn.host import ErrorLog, config_of, emit, warn_once
from langgraph_toolmem.turn.step import Call


@checks_options
@dataclass(frozen=True)
class Prefetch:
    """Settings of look-ups that run while the model is thinking.

    Only tools that are declared to read are prefetched (``ToolMemory(reads=...)``, tag or metadata ``read_only``, MCP's
    ``readOnlyHint``), and only those that take nothing from the host (state, store, runtime, call id). A tag
    ``no_prefetch``, or that key in the metadata, excludes a tool that costs money.

    Attributes:
        tools: only these tools; they may be prefetched even if the host's middleware wraps tool calls. If None, all
            tools that qualify, unless such middleware exists.
        min_probability: of a predicted call, by the record.
        max_wasted: predicted look-ups discarded for each one served, in the long run: after many discarded look-ups a
            call needs a higher probability. If None, there is no limit.
        timeout: seconds after which a prefetched call is given up.
        workers: limit of prefetched calls at the same time, over all runs.

    Raises:
        ConfigurationError: a value is invalid; the message names the field.
    """

    tools: frozenset[str] | None = None
    # Alone it does not limit the waste: on seven recorded sets 1.2 to 2.3 look-ups were discarded for each one served.
    min_probability: float = 0.08
    max_wasted: float | None = 1.5
    timeout: float = 10.0
    workers: int = 32

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        given: Any = self.tools
        if given is not None:
            object.__setattr__(self, "tools", frozenset(names_given("Prefetch.tools", given)))
        expect(self, "min_probability", "a share from 0 to 1", is_share)
        expect(self, "max_wasted", "a number above 0 or None", or_none(is_positive))
        expect(self, "timeout", "a number of seconds above 0", is_positive)
        expect(self, "workers", "a whole number from 1", is_positive_count)


# --- around a model call ---

logger = logging.getLogger("langgraph_toolmem.prefetch")
FREE_CHOICE: Final = (None, "auto", "any", "required")
"""Values of ``tool_choice`` under which any tool may be called."""
# Graphs that run many requests at once begin several model calls before the first tool call.
UNWATCHED_CALLS: Final = 32
"""Model calls of graphs with prefetching before a watched tool call has been seen."""
NO_CONFIG: Final = "Nothing is prefetched in async runs: before Python 3.11 the config of an async run cannot be read."
UNWATCHED: Final = (
    "Nothing is prefetched in this graph: its tools are not executed by a ToolNode(tools, wrap_tool_call="
    "recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call), so that no result could be served."
)
NO_PLACE: Final = (
    "Nothing is prefetched in a graph without a thread id (a checkpointer), a user id or ids of messages: all three "
    "say whose result it is."
)


class Prefetcher:
    """Prefetches look-ups around model calls.

    Args:
        registry: of the look-ups.
        settings: which look-ups, and how many.
        interceptors: the host's code around tool calls.
        recorded: True if results are certainly served, because the memory is at the tools too.
    """

    def __init__(
        self, registry: Registry, settings: Prefetch, interceptors: Interceptors, *, recorded: bool = False
    ) -> None:
        self.registry, self._settings, self._recorded = registry, settings, recorded
        self._errors = ErrorLog("prefetch", logger)
        self._tools = AgentTools(settings, interceptors, logger)

    def begin(self, call: Call) -> PrefetchBatch | None:
        """Begin the most likely look-ups of a model call, and listen to its answer."""
        with self._errors:
            return self._begin(call)
        return None

    def _begin(self, call: Call) -> PrefetchBatch | None:
        loop, config = loop_of_run(), config_of()
        branch = Branch(call.owner, namespace_of(config))
        self.registry.waste_over(branch)
        forecast = forecast_of(call)
        if forecast is None:
            return None
        if loop is not None and config is None:
            warn_once(NO_CONFIG)
            return None
        allowed = self._allowed(call, forecast)
        if not allowed.tools or not self._may_be_served(call, allowed.tools):
            return None
        host = Host(config, call.runtime, loop, contextvars.copy_context())
        batch = PrefetchBatch(branch, allowed.changes)
        # With a forced tool only the streamed answer shows the call.
        if call.tool_choice in FREE_CHOICE:
            likely = choose(forecast.decision.predicted, self._least_probability(), allowed.may_call)
            self._start(batch, allowed.tools, host, likely)
        batch.listener = self._listener(call, batch, allowed, host)
        if batch.tasks:
            self.registry.unseen += 1
        return batch

    def _listener(self, call: Call, batch: PrefetchBatch, allowed: AllowedCalls, host: Host) -> AnswerListener:
        """Return a listener that begins the look-ups of a streamed answer, each as soon as it is complete."""

        def streamed(tool: str, args: dict[str, Any]) -> None:
            lookup = Lookup(tool, args, canon_args(args))
            if lookup.key in batch.tasks or not allowed.may_call(tool, args):
                return
            # An agent repeats a call since the user spoke because its answer may have changed.
            if not _was_made(call.messages, lookup):
                self._start(batch, allowed.tools, host, [lookup])

        return AnswerListener(allowed.changes, streamed, self._errors)

    def _may_be_served(self, call: Call, tools: Container[str]) -> bool:
        """Return True unless the graph executes its tools where the memory does not see it."""
        registry = self.registry
        if self._recorded or registry.watched:
            return True
        # A wrapped model without a Recorder made 9 look-ups in 30 requests whose results it could not serve.
        if was_executed(call.messages, tools):
            registry.unseen = UNWATCHED_CALLS
        if registry.unseen >= UNWATCHED_CALLS:
            warn_once(UNWATCHED)
            return False
        return True

    def _allowed(self, call: Call, forecast: InertiaForecast) -> AllowedCalls:
        """Return the calls that may be prefetched at a model call."""
        core = self.registry.core
        with core.lock:
            specs = core.catalogue.marked(call.tools)
            return AllowedCalls(self._tools.available(call, core, specs, forecast.policy), specs)

    def _least_probability(self) -> float:
        core = self.registry.core
        with core.lock:
            counters = core.graph.counters
            return least_probability(self._settings, counters.get(SERVED, 0.0), counters.get(WASTED, 0.0))

    def _start(
        self, batch: PrefetchBatch, tools: Mapping[str, BaseTool], host: Host, lookups: Iterable[Lookup]
    ) -> None:
        started = []
        for lookup in lookups:
            task = PrefetchTask(lookup, tools[lookup.tool], self._settings.timeout)
            if not self.registry.begin(task, host, self._settings.workers):
                break
            batch.tasks[lookup.key] = task
            probability = round(lookup.probability, 4)
            started.append({"tool": lookup.tool, "args": dict(lookup.args), "probability": probability})
        if started:
            emit(host.runtime, {"node": "prefetch", "started": started}, on=self.registry.core.events)

    def answered(self, batch: PrefetchBatch, answer: Sequence[Any]) -> list[Any]:
        """Discard the calls that the answer does not ask for; the rest is kept for this run's own copy of the
        answer.
        """
        messages = list(answer)
        with self._errors:
            position = last_answer(messages)
            wanted = AIMessage("") if position is None else messages[position]
            self.registry.waste(batch.match(wanted))
            if batch.tasks and position is not None:
                # LangChain's model cache returns the same object to all callers, and a batch belongs to one object.
                messages[position] = wanted.model_copy()
                self.registry.keep(batch, messages[position])
        return messages

    def dropped(self, batch: PrefetchBatch) -> None:
        """Stop the tasks of a model call that failed or was cancelled. It takes no lock and counts nothing, so it is
        safe anywhere.
        """
        for task in batch.tasks.values():
            task.future.cancel()

    def begin_unseen(self, call: Call) -> None:
        """Begin the most likely look-ups of a plain graph, in which the answer is seen when its calls are executed."""
        if forecast_of(call) is None:
            return
        registry = self.registry
        before = call.messages[-1] if call.messages else None
        position = position_of(call.owner, before)
        if position is None:
            warn_once(NO_PLACE)
            return
        batch = self.begin(call)
        if batch is not None and batch.tasks:
            registry.keep(batch, position)


@dataclass(frozen=True, slots=True)
class AllowedCalls:
    """The calls that may be prefetched at a model call.

    Attributes:
        tools: that may be called, by name.
        specs: of all available tools.
    """

    tools: Mapping[str, BaseTool]
    specs: Mapping[str, ToolSpec]

    def may_call(self, tool: str, args: Mapping[str, Any]) -> bool:
        """Return True if a tool may be called with these arguments."""
        return tool in self.tools and self.specs[tool].problem(args) is None

    def changes(self, tool: str) -> bool:
        """Return True if a tool may change something."""
        return tool not in self.specs or may_write(tool, self.specs)


def was_executed(messages: Sequence[Any], tools: Container[str]) -> bool:
    """Return True if the latest message is a result of one of the tools: the call has been executed."""
    # Other results may be the graph's own words: an agent that hands over answers its call without a tool node.
    if not messages or not isinstance(messages[-1], ToolMessage):
        return False
    result, answered_at = messages[-1], last_answer(messages)
    # Code that executes tools by itself, as the functional API's tasks do, often leaves out the name.
    if result.name is None and answered_at is not None:
        asked = {call["id"]: call["name"] for call in messages[answered_at].tool_calls}
        return asked.get(result.tool_call_id) in tools
    return result.name in tools


def _was_made(messages: Sequence[Any], lookup: Lookup) -> bool:
    """Return True if an equal call was made since the user spoke."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            return False
        for call in getattr(message, "tool_calls", ()):
            if (call["name"], canon_args(call["args"])) == lookup.key:
                return True
    return False


# --- the choice of calls ---


def choose(predicted: Sequence[Option], least: float, may: Callable[[str, Mapping[str, Any]], bool]) -> list[Lookup]:
    """Return the predicted calls that may be prefetched, most likely first.

    Args:
        predicted: the turns that the model may take, most likely first.
        least: the probability from which a call is prefetched.
        may: returns True if this call of a tool may be prefetched.
    """
    # The wording of the request is not tested: with the whole test of novelty 52, 43 and 13 % of the look-ups were
    # ready (retail, telecom, airline), without it 72, 62 and 26. An unrequested look-up is discarded. There is no limit
    # of calls either: with six of them airline had 27.7 % ready in place of 28.8. A limit for each tool cost telecom 63
    # to 57 %. Weighing by the probability of an answer in words gave the same curve, and a worse one in the office.
    chosen: dict[tuple[str, str], Lookup] = {}
    for option in predicted:
        if option.probability < least:
            break
        if option.tool == WORDS or option.changes or option.stale:
            continue
        for args in option.calls:
            lookup = Lookup(option.tool, args, canon_args(args), option.probability)
            if may(option.tool, args):
                chosen.setdefault(lookup.key, lookup)
    return list(chosen.values())


def least_probability(settings: Prefetch, served: float, wasted: float) -> float:
    """Return the probability from which a predicted call is prefetched.

    A served look-up adds m = `Prefetch.max_wasted` to an account, a wasted one subtracts 1. A call with probability p
    subtracts (1 - p) - m · p on average; it is made if that is at most 1/20 of the account. So the waste beyond the
    limit is at most about the credit, also if the probabilities are too high.
    """
    if settings.max_wasted is None:
        return settings.min_probability
    credit = 16.0  # look-ups that a new record may waste before the first was served
    lasts = 20.0  # number of most wasteful look-ups that a full account allows
    highest = 0.9  # at 1 prefetch would stop, and the record could not improve
    # An account, not a power of the share of wasted look-ups, which settled above the limit: wasted for each one served
    # fell from 1.53 to 1.47 (telecom) and from 1.64 to 1.50 (office), with 63.6 and 64.7, 39.0 and 38.8 % ready.
    account = credit + settings.max_wasted * served - wasted
    least = (1 - account / lasts) / (1 + settings.max_wasted)
    return float(max(settings.min_probability, min(highest, least)))


# --- the calls of one answer ---


@dataclass(eq=False)
class PrefetchBatch:
    """The calls prefetched for one model call.

    Attributes:
        branch: the sequence of steps; only its owner is served, and its next step discards the remaining tasks.
        changes: returns True if a tool may change something.
        tasks: neither served nor discarded yet, by tool and arguments.
        matched: True if the model has answered and asks for the remaining tasks.
        answer: that answer, in an agent.
        listener: begins the calls of a streamed answer, in an agent.
    """

    branch: Branch
    changes: Callable[[str], bool]
    tasks: dict[tuple[str, str], PrefetchTask] = field(default_factory=dict)
    matched: bool = False
    answer: weakref.ref[AIMessage] | None = None
    listener: AnswerListener | None = None

    def match(self, answer: AIMessage) -> list[PrefetchTask]:
        """Keep the calls that the model asks for, unless it also asks for a change; return the others."""
        # Tools of one answer run in parallel: a look-up before the change may have another result than one after it.
        asked: set[tuple[str, str]] = set()
        for call in answer.tool_calls:
            if self.changes(call["name"]):
                asked.clear()
                break
            asked.add((call["name"], canon_args(readable(call["args"]))))
        self.matched = True
        others = [key for key in self.tasks if key not in asked]
        return [self.tasks.pop(key) for key in others]


class AnswerListener(BaseCallbackHandler):
    """Reports each tool call of a streamed answer as soon as its arguments are complete. It does not make a model
    stream.

    It stops reporting at a call that may change something.
    """

    run_inline = True
    ignore_chat_model = True  # the start of the run; tokens are reported anyway

    def __init__(
        self, changes: Callable[[str], bool], begin: Callable[[str, dict[str, Any]], object], errors: ErrorLog
    ) -> None:
        self._changes, self._begin, self._errors = changes, begin, errors
        self._calls: dict[UUID, _StreamedCall] = {}

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **_: Any) -> None:
        """Read the pieces of tool calls in a chunk."""
        # A callback that raises would end the host's stream.
        with self._errors:
            message = getattr(chunk, "message", None)
            for piece in getattr(message, "tool_call_chunks", None) or ():
                call = self._calls.setdefault(run_id, _StreamedCall())
                self._read(call, piece)

    def _read(self, call: _StreamedCall, piece: Mapping[str, Any]) -> None:
        index, text = piece.get("index"), piece.get("args") or ""
        # Providers mark the calls of an answer by index, by id, or by neither.
        mark = (index, piece.get("id"))
        is_another = mark != call.mark or index is None
        if piece.get("name") and is_another:
            self._close(call, call.text or "{}")
            call.name, call.mark, call.text = piece["name"], mark, ""
            call.stopped = call.stopped or self._changes(call.name)
        call.text += text
        # Parsing is tried only at a closing brace: at each token its cost would grow with the square of the length.
        if text.rstrip().endswith("}"):
            self._close(call, call.text)

    def _close(self, call: _StreamedCall, text: str) -> None:
        if not call.name or call.stopped:
            return
        try:
            args = json.loads(text)
        except ValueError:  # not complete
            return
        if isinstance(args, dict):
            name, call.name = call.name, ""
            self._begin(name, args)


@dataclass
class _StreamedCall:
    """The latest tool call of a streamed answer; `name` is "" after it was reported."""

    name: str = ""
    mark: tuple[Any, Any] = (None, None)
    text: str = ""
    stopped: bool = False


def last_answer(messages: Sequence[Any]) -> int | None:
    """Return the position of the model's latest answer, or None."""
    for position in reversed(range(len(messages))):
        if isinstance(messages[position], AIMessage):
            return position
    return None


# --- owners of results ---

Position: TypeAlias = tuple[Owner, str]
"""Position of the model's next answer in a plain graph: owner, and id of the message before it."""


class Branch(NamedTuple):
    """A sequence of steps. A thread may have several at the same time (`Send`).

    Attributes:
        owner: thread and user of the run.
        namespace: of the running graph, as LangGraph names its checkpoints.
    """

    owner: Owner
    namespace: str


def position_of(owner: Owner, before: Any) -> Position | None:
    """Return the position of the coming answer; None if it is uncertain."""
    message = getattr(before, "id", None)
    # Ids of messages repeat between threads, and threads between users: with two of the three, a result could reach
    # another user.
    if not message or not all(owner):
        return None
    return owner, message


def namespace_of(config: RunnableConfig | None) -> str:
    """Return the namespace of the graph that a node belongs to; "" for the outermost graph, or outside a graph."""
    configurable: Mapping[str, Any] = (config or {}).get("configurable") or {}
    path = str(configurable.get("checkpoint_ns") or "")
    return path.rpartition("|")[0]


# --- the calls of a memory ---


class Registry(SharedByCopies):
    """The prefetched calls of a memory, in batches by the answer of the model that asks for them. Safe for threads.

    Each call has a thread or an asyncio task of its own, without a queue.

    In an agent a batch belongs to the object of the answer: ids of threads, runs, calls and messages repeat, and a
    result must not reach another run. In a plain graph it is found by its `Position`.

    Attributes:
        watched: True after the first tool call that could have been served.
        unseen: number of model calls with prefetching so far; only graphs without an agent's tool hooks use it.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.watched, self.unseen = False, 0
        self._lock = threads.lock()
        self._batches: dict[int | Position, PrefetchBatch] = {}
        self._live: set[PrefetchTask] = set()
        threads.at_fork(self)

    def forked(self) -> None:
        """Drop the parent's calls: a fork does not have the parent's threads."""
        self._live.clear()

    def begin(self, task: PrefetchTask, host: Host, most: int) -> bool:
        """Begin a call if fewer than so many run."""
        # Without a free worker the call is not begun: a look-up that waits in a queue is late, and the model makes it
        # itself.
        with self._lock:
            if len(self._live) >= most:
                return False
            task.begin(host)
            self._live.add(task)

        # Runs in the thread that ends the call, maybe within `begin`: it takes no lock. `discard` is atomic.
        def ended(_: Future[Ran]) -> None:
            self._live.discard(task)

        task.future.add_done_callback(ended)
        return True

    def keep(self, batch: PrefetchBatch, at: AIMessage | Position) -> None:
        """Keep a batch for the calls of an answer."""
        # The listener keeps the model call, and the answer is a weak reference: a batch disappears with its run.
        batch.listener = None
        if isinstance(at, AIMessage):
            batch.answer = weakref.ref(at)
        key = id(at) if isinstance(at, AIMessage) else at
        with self._lock:
            self._batches[key] = batch

    def waste_over(self, branch: Branch) -> None:
        """Discard results that can no longer be requested, when the next model call of a branch begins."""
        with self._lock:
            over = [key for key, batch in self._batches.items() if _is_over(batch, branch)]
            batches = [self._batches.pop(key) for key in over]
        # Counting takes the memory's lock: it is done outside this lock, so that neither waits within the other.
        for batch in batches:
            self.waste(batch.tasks.values(), unclaimed=batch.matched)

    def waste(self, tasks: Iterable[PrefetchTask], *, unclaimed: bool = False) -> None:
        """Discard calls, and count them; `unclaimed`: the model asked for them."""
        for task in tasks:
            task.future.cancel()
            self._count(task.lookup, {WASTED: 1, UNCLAIMED: int(unclaimed)})

    def serve(self, request: ToolCallRequest, messages: Sequence[Any], owner: Owner) -> StepGenerator[ToolCallRequest]:
        """Return the request with a tool that has the result, if it was prefetched; otherwise the request."""
        self.watched = True
        task = self._task_of(request, messages, owner)
        asked_at = monotonic()
        if task is None:
            return request
        # A running look-up is awaited: a second one would take the whole time again.
        if not task.future.done():
            yield Wait(task.future, task.deadline - asked_at, task.loop)
        ran = task.ready
        if ran is None:
            self.waste([task])
            return request
        # At most the duration of the call, and at most its head start on this request.
        saved = max(min(ran.seconds, asked_at - task.started), 0.0)
        self._count(task.lookup, {SERVED: 1, SECONDS: saved})
        event = {"node": "prefetch", "served": task.lookup.tool, "seconds_saved": round(saved, 3)}
        emit(request.runtime, event, on=self.core.events)  # type: ignore[arg-type]
        return request.override(tool=standing_in(task.tool, ran))

    def _task_of(self, request: ToolCallRequest, messages: Sequence[Any], owner: Owner) -> PrefetchTask | None:
        """Return the prefetched call that a tool call asks for; the others of its answer are discarded."""
        call, answered_at = request.tool_call, last_answer(messages)
        if not self._batches or answered_at is None:
            return None
        answer = messages[answered_at]
        # The host may give a tool node a call of its own, which is not in an answer.
        if all(asked["id"] != call["id"] for asked in answer.tool_calls):
            return None
        before = None
        if answered_at > 0:
            before = messages[answered_at - 1]
        batch = self._batch_of(answer, before, owner)
        if batch is None or batch.branch.owner != owner:
            return None
        return self._taken(batch, answer, request)

    def _taken(self, batch: PrefetchBatch, answer: AIMessage, request: ToolCallRequest) -> PrefetchTask | None:
        """Take the call that a tool call asks for out of a batch; discard those that the answer does not ask for."""
        call = request.tool_call
        wasted: list[PrefetchTask] = []
        with self._lock:
            if not batch.matched:
                wasted = batch.match(answer)
            task = batch.tasks.pop((call["name"], canon_args(call["args"])), None)
        # The host may have put another tool of that name in its place.
        if task is not None and not is_same(task.tool, request.tool):
            wasted.append(task)
            task = None
        self.waste(wasted)
        return task

    def _batch_of(self, answer: AIMessage, before: Any, owner: Owner) -> PrefetchBatch | None:
        """Return the batch of an answer: in an agent by the object, in a plain graph by the message before it."""
        batch = self._batches.get(id(answer))
        # Python reuses the id of a deleted object, so the object itself is compared.
        if batch is not None and batch.answer is not None and batch.answer() is answer:
            return batch
        position = None if before is None else position_of(owner, before)
        if position is None:
            return None
        return self._batches.get(position)

    def _count(self, lookup: Lookup, counts: Mapping[str, float]) -> None:
        if self.core.read_only:
            return
        record: Record = []
        for name, amount in counts.items():
            if amount:
                record.append(ToolCount(lookup.tool, name, amount))
        if lookup.probability < 1:  # streamed calls are not evidence about predictions
            for name in (SERVED, WASTED):
                if counts.get(name):
                    record.append(Count(name, counts[name]))
        with self.core.lock:
            self.core.apply(None, record)


def _is_over(batch: PrefetchBatch, branch: Branch) -> bool:
    """Return True if a batch is too old, its answer was deleted, or its branch has continued."""
    # A plain graph has no answer to watch: the next step of its branch ends the batch. A thread may have other branches
    # at the same time, whose look-ups are kept.
    now = monotonic()
    if all(task.deadline < now for task in batch.tasks.values()):
        return True
    if batch.answer is None:
        return batch.branch == branch
    return batch.answer() is None


def count_pause(core: Core, tool: str) -> None:
    """Record that the run paused before a call of a tool: from now on the tool is not looked up apart from the run."""
    if not core.read_only:
        with core.lock:
            core.apply(None, [ToolCount(tool, REVIEWED, 1)])
