"""Prefetching around one model call: the model is asked, it streams, it answers, a tool is called."""

from __future__ import annotations

import contextvars
import json
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from langgraph_toolmem.base import threads
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.graph.events import Count, Record, ToolCount
from langgraph_toolmem.inertia.guards import may_write
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Prefetch
from langgraph_toolmem.inertia.prefetch.executor import Host, PrefetchTask, is_async, is_sync, standing_in
from langgraph_toolmem.inertia.prefetch.qualify import (
    Interceptors,
    Lookup,
    choose,
    held_back,
    least_probability,
    qualified,
)
from langgraph_toolmem.inertia.record import REVIEWED, SECONDS, SERVED, UNCLAIMED, WASTED
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon_args
from langgraph_toolmem.turn.ask import StepGenerator, Wait, loop_of_run
from langgraph_toolmem.turn.host import ErrorLog, config_of, emit, read_key, thread_id_of, user_id_of
from langgraph_toolmem.turn.step import Call

logger = logging.getLogger("langgraph_toolmem.prefetch")

MAX_TOOL_SETS: Final = 64
FREE_CHOICE: Final = (None, "auto", "any", "required")
"""Values of ``tool_choice`` under which any tool may be called."""
NO_CONFIG: Final = "Nothing is prefetched in async runs: before Python 3.11 the config of an async run cannot be read."
UNWATCHED: Final = (
    "Nothing is prefetched in this graph: its tools are not executed by a ToolNode(tools, wrap_tool_call="
    "recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call), so that no result could be served."
)
PATIENCE: Final = 32
"""Model calls of plain graphs with prefetching before a watched tool call has been seen."""
NO_PLACE: Final = (
    "Nothing is prefetched in a graph without a thread id (a checkpointer), a user id or ids of messages: all three "
    "say whose result it is."
)

Owner = tuple[str | None, str | None]
"""Thread and user of a run."""
Position = tuple[Owner, str]
"""Position of the model's next answer in a plain graph: owner, and id of the message before it."""


@dataclass(eq=False)
class PrefetchBatch:
    """The calls prefetched for one model call.

    Attributes:
        owner: thread and user of the run; nobody else is served.
        changes: return True if a tool may change something.
        tasks: not yet served or thrown away, by tool and arguments.
        matched: the model has answered, and asks for the tasks that are left.
        answer: that answer, in an agent.
        listener: begins the calls of a streamed answer, in an agent.
    """

    owner: Owner
    changes: Callable[[str], bool]
    tasks: dict[tuple[str, str], PrefetchTask] = field(default_factory=dict)
    matched: bool = False
    answer: weakref.ref[AIMessage] | None = None
    listener: AnswerListener | None = None

    def match(self, answer: AIMessage) -> list[PrefetchTask]:
        """Keep the calls that the model asks for, none if it also asks for a change; return the others."""
        asked = {(call["name"], canon_args(call["args"])) for call in answer.tool_calls}
        if any(self.changes(name) for name, _ in asked):
            asked.clear()
        self.matched = True
        return [self.tasks.pop(key) for key in list(self.tasks) if key not in asked]


class Registry:
    """The prefetched calls of a memory, in batches by the answer of the model that asks for them. Safe for threads.

    Each call has a thread or an asyncio task of its own; nothing queues.

    In an agent a batch belongs to the very object of the answer: ids of threads, runs, calls and messages repeat, and
    what one user is answered must not come to another. In a plain graph it is found by its `Position`.

    Attributes:
        lock: guards batches and the calls that run.
        reported: lines that were logged once.
        watched: True once a tool call came by that could have been served.
        unseen: number of model calls of plain graphs with prefetching so far.
    """

    def __init__(self) -> None:
        self.lock = threads.lock()
        self._batches: dict[int | Position, PrefetchBatch] = {}
        self._live: set[PrefetchTask] = set()
        self.reported: set[str] = set()
        self.watched, self.unseen = False, 0
        threads.at_fork(self)

    def forked(self) -> None:
        """Forget the parent's calls: a fork has none of its threads."""
        self._live.clear()

    def begin(self, task: PrefetchTask, host: Host, most: int) -> bool:
        """Begin a call if fewer than so many run."""
        with self.lock:
            if len(self._live) >= most:
                return False
            self._live.add(task)
        try:
            task.begin(host)
        except BaseException:
            self._live.discard(task)
            raise
        task.future.add_done_callback(lambda _: self._live.discard(task))
        return True

    def keep(self, batch: PrefetchBatch, at: AIMessage | Position) -> None:
        """Keep a batch for the calls of an answer."""
        batch.listener = None
        if isinstance(at, AIMessage):
            batch.answer = weakref.ref(at)
        with self.lock:
            self._batches[id(at) if isinstance(at, AIMessage) else at] = batch

    def find(self, answer: AIMessage, at: Position | None) -> PrefetchBatch | None:
        """Return the batch of this very answer, or of its position."""
        batch = self._batches.get(id(answer))
        if batch is not None and batch.answer is not None and batch.answer() is answer:
            return batch
        return None if at is None else self._batches.get(at)

    def pop_over(self, owner: Owner) -> list[PrefetchBatch]:
        """Remove what nobody will ask for: the answer is gone, it is too old, or its thread has gone on."""
        now = monotonic()
        with self.lock:
            over = [
                key
                for key, batch in self._batches.items()
                if all(task.deadline < now for task in batch.tasks.values())
                or (batch.owner == owner if batch.answer is None else batch.answer() is None)
            ]
            return [self._batches.pop(key) for key in over]


class AnswerListener(BaseCallbackHandler):
    """Reports each tool call of a streamed answer as soon as its arguments are complete. Makes no model stream.

    It reports nothing from a call on that may change something.
    """

    run_inline = True
    ignore_chat_model = True  # its start; tokens come all the same

    def __init__(
        self, changes: Callable[[str], bool], begin: Callable[[str, dict[str, Any]], object], errors: ErrorLog
    ) -> None:
        self._changes, self._begin, self._errors = changes, begin, errors
        self._calls: dict[UUID, _StreamedCall] = {}

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **_: Any) -> None:
        """Read the pieces of tool calls in a chunk."""
        with self._errors:
            for piece in getattr(getattr(chunk, "message", None), "tool_call_chunks", None) or ():
                self._read(self._calls.setdefault(run_id, _StreamedCall()), piece)

    def _read(self, call: _StreamedCall, piece: Mapping[str, Any]) -> None:
        mark, text = (piece.get("index"), piece.get("id")), piece.get("args") or ""
        if piece.get("name") and (mark != call.mark or mark[0] is None):  # the next call begins
            self._close(call, call.text or "{}")
            call.name, call.mark, call.text = piece["name"], mark, ""
            call.stopped = call.stopped or self._changes(call.name)
        call.text += text
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
    """The latest tool call of a streamed answer; `name` is "" once it was reported."""

    name: str = ""
    mark: tuple[Any, Any] = (None, None)
    text: str = ""
    stopped: bool = False


class ResultServer:
    """Serves a prefetched result in place of a tool's own code, and counts it."""

    def __init__(self, core: Core, registry: Registry, errors: ErrorLog, *, messages_key: str = "messages") -> None:
        self.core, self.registry, self.errors, self.messages_key = core, registry, errors, messages_key

    def serve(self, request: ToolCallRequest) -> StepGenerator[ToolCallRequest]:
        """Return the request with a tool that has the result, if it was prefetched; otherwise the request."""
        with self.errors:
            task, asked = self._task_of(request), monotonic()
            if task is None:
                return request
            if not task.future.done():
                yield Wait(task.future, task.deadline - asked)
            if (ran := task.ready) is None:
                self._waste([task])
                return request
            saved = max(min(ran.seconds, asked - task.started), 0.0)
            self._count(task.lookup, {SERVED: 1, SECONDS: saved})
            runtime: Any = request.runtime
            emit(runtime, {"node": "prefetch", "served": task.lookup.tool, "seconds_saved": round(saved, 3)})
            return request.override(tool=standing_in(task.tool, ran))
        return request

    def paused(self, request: ToolCallRequest) -> None:
        """Note that an interrupt stopped a call: its tool is not prefetched from now on."""
        with self.errors:
            self._count(Lookup(request.tool_call["name"], {}, ""), {REVIEWED: 1})

    def _task_of(self, request: ToolCallRequest) -> PrefetchTask | None:
        self.registry.watched = True
        call = request.tool_call
        messages = list(read_key(request.state, self.messages_key) or ())
        at = _last_answer(messages)
        if at is None or all(each["id"] != call["id"] for each in messages[at].tool_calls):
            return None
        runtime: Any = request.runtime
        config = getattr(runtime, "config", None)
        owner = (thread_id_of(config), user_id_of(config, runtime))
        batch = self.registry.find(messages[at], _position_of(owner, messages[at - 1]) if at else None)
        if batch is None or batch.owner != owner:
            return None
        with self.registry.lock:
            wasted = [] if batch.matched else batch.match(messages[at])
            task = batch.tasks.pop((call["name"], canon_args(call["args"])), None)
        if task is not None and not _is_same(task.tool, request.tool):
            wasted, task = [*wasted, task], None
        self._waste(wasted)
        return task

    def _waste(self, tasks: Iterable[PrefetchTask], *, unclaimed: bool = False) -> None:
        for task in tasks:
            task.future.cancel()
            self._count(task.lookup, {WASTED: 1, UNCLAIMED: int(unclaimed)})

    def _count(self, lookup: Lookup, counts: Mapping[str, float]) -> None:
        record: Record = [ToolCount(lookup.tool, name, amount) for name, amount in counts.items() if amount]
        if lookup.probability < 1:  # what was streamed says nothing about predictions
            record += [Count(name, counts[name]) for name in (SERVED, WASTED) if counts.get(name)]
        if not self.core.read_only:
            with self.core.lock:
                self.core.apply(None, record)


class Prefetcher(ResultServer):
    """Prefetches look-ups around model calls."""

    def __init__(
        self,
        core: Core,
        registry: Registry,
        settings: Prefetch,
        interceptors: Interceptors,
        *,
        messages_key: str = "messages",
    ) -> None:
        super().__init__(core, registry, ErrorLog("prefetch", logger), messages_key=messages_key)
        self._settings, self._interceptors = settings, interceptors
        self._known: dict[Any, tuple[list[BaseTool], Mapping[str, BaseTool]]] = {}

    def begin(self, call: Call) -> PrefetchBatch | None:
        """Begin the likeliest look-ups of a model call, and listen to its answer."""
        with self.errors:
            return self._begin(call)
        return None

    def _begin(self, call: Call) -> PrefetchBatch | None:
        owner: Owner = (call.thread_id, call.user_id)
        for over in self.registry.pop_over(owner):
            self._waste(over.tasks.values(), unclaimed=over.matched)
        if call.foresight is None:
            return None
        decision, policy = call.foresight
        loop, config = loop_of_run(), config_of()
        if loop is not None and config is None:
            self._report_once(NO_CONFIG)
            return None
        settings, core = self._settings, self.core
        with core.lock:
            specs = core.catalogue.marked(call.tools)
            tools = {
                name: tool
                for name, tool in self._qualified(call, specs, policy).items()
                if call.allows(name)
                and (is_sync(tool) or (loop is not None and is_async(tool)))
                and not held_back(core.graph, name, named=settings.tools is not None)
            }
            counters = core.graph.counters
            least = least_probability(settings, counters.get(SERVED, 0.0), counters.get(WASTED, 0.0))
        if not tools:
            return None

        def may(tool: str, args: Mapping[str, Any]) -> bool:
            return tool in tools and specs[tool].problem(args) is None

        def changes(tool: str) -> bool:
            return tool not in specs or may_write(tool, specs)

        batch = PrefetchBatch(owner, changes)
        start = partial(self._start, batch, tools, Host(config, call.runtime, loop, contextvars.copy_context()))

        def streamed(tool: str, args: dict[str, Any]) -> None:
            lookup = Lookup(tool, args, canon_args(args))
            if lookup.key not in batch.tasks and may(tool, args) and not _was_made(call.messages, lookup):
                start([lookup])

        if call.tool_choice in FREE_CHOICE:
            start(choose(decision.predicted, settings, least, may))
        batch.listener = AnswerListener(changes, streamed, self.errors)
        return batch

    def _start(
        self, batch: PrefetchBatch, tools: Mapping[str, BaseTool], host: Host, lookups: Iterable[Lookup]
    ) -> None:
        started = []
        for lookup in lookups:
            task = PrefetchTask(lookup, tools[lookup.tool], self._settings.timeout)
            if not self.registry.begin(task, host, self._settings.workers):
                break
            batch.tasks[lookup.key] = task
            sure = round(lookup.probability, 4)
            started.append({"tool": lookup.tool, "args": dict(lookup.args), "probability": sure})
        if started:
            emit(host.runtime, {"node": "prefetch", "started": started})

    def _qualified(self, call: Call, specs: Mapping[str, ToolSpec], policy: InertiaPolicy) -> Mapping[str, BaseTool]:
        offered = [tool for tool in call.offered if isinstance(tool, BaseTool)]
        key = (tuple(map(id, offered)), policy)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_TOOL_SETS:
                self._known.clear()
            tools = {tool.name: tool for tool in offered}
            may, line = qualified(tools, specs, policy, self._settings, self._interceptors)
            known = self._known[key] = offered, may
            self._report_once(line)
        return known[1]

    def _report_once(self, line: str) -> None:
        reported = self.registry.reported
        if line not in reported and len(reported) < MAX_TOOL_SETS:
            reported.add(line)
            logger.warning("%s", line)

    def answered(self, batch: PrefetchBatch, answer: Sequence[Any]) -> list[Any]:
        """Throw away what the answer does not ask for; the rest is kept for this run's own copy of the answer."""
        messages = list(answer)
        with self.errors:
            at = _last_answer(messages)
            self._waste(batch.match(AIMessage("") if at is None else messages[at]))
            if batch.tasks and at is not None:
                messages[at] = messages[at].model_copy()  # a cache gives the same object to everybody
                self.registry.keep(batch, messages[at])
        return messages

    def dropped(self, batch: PrefetchBatch) -> None:
        """Stop the tasks of a model call that failed or was cancelled. Locks and counts nothing: safe anywhere."""
        for task in batch.tasks.values():
            task.future.cancel()

    def begin_unseen(self, call: Call) -> None:
        """Begin the likeliest look-ups of a plain graph, where the answer is seen when its calls are executed."""
        if call.foresight is None:
            return
        position = _position_of((call.thread_id, call.user_id), call.messages[-1] if call.messages else None)
        if position is None:
            self._report_once(NO_PLACE)
        elif not self.registry.watched and self.registry.unseen >= PATIENCE:
            self._report_once(UNWATCHED)
        elif (batch := self.begin(call)) is not None and batch.tasks:
            self.registry.unseen += 1
            self.registry.keep(batch, position)


def _position_of(owner: Owner, before: Any) -> Position | None:
    """Return where an answer will stand; None if that is not known for sure."""
    message = getattr(before, "id", None)
    return (owner, message) if all(owner) and message else None


def _last_answer(messages: Sequence[Any]) -> int | None:
    return next((n for n in reversed(range(len(messages))) if isinstance(messages[n], AIMessage)), None)


def _was_made(messages: Sequence[Any], lookup: Lookup) -> bool:
    """Return True if an equal call was made since the user spoke."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            return False
        for call in getattr(message, "tool_calls", ()):
            if (call["name"], canon_args(call["args"])) == lookup.key:
                return True
    return False


def _is_same(one: BaseTool, other: BaseTool | None) -> bool:
    """Return True unless another tool was put in its place; each ``ToolNode`` makes its own tool of a function."""
    if one is other:
        return True
    bodies = [(getattr(each, "func", None), getattr(each, "coroutine", None)) for each in (one, other)]
    return bodies[0] == bodies[1] != (None, None)
