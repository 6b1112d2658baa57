"""Prefetch: look-ups that the model is likely to ask for, or is asking for, run before its answer is complete.

A look-up begins when it is likely by the record (the candidates of the shortcut's decision), or when the streamed
answer of the model holds all of its arguments. If the model asks for exactly that tool with exactly those arguments,
the result is ready; otherwise it is thrown away. (Speculative Actions, arXiv 2510.04371; PASTE, arXiv 2603.18897.)

In this order: the settings; the tools and calls that qualify; a call that runs without the host's callbacks, and its
result in the model's call; the calls of one answer; the calls of a memory; the work around a model call.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
import json
import logging
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache, partial, wraps
from time import monotonic
from typing import Any, Final, NamedTuple
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langgraph.config import get_stream_writer
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langsmith.run_helpers import tracing_context
from pydantic import BaseModel
from typing_extensions import get_type_hints

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.checks import checks_options, expect, is_count, is_number, is_share, names_given
from langgraph_toolmem.base.copies import SharedByCopies
from langgraph_toolmem.core.catalogue import named
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.graph.events import Count, Record, ToolCount
from langgraph_toolmem.graph.state import WORDS
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.context import PrefetchedContext
from langgraph_toolmem.inertia.decision import Option
from langgraph_toolmem.inertia.guards import may_write, why_never
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.record import REVIEWED, SECONDS, SERVED, UNCLAIMED, WASTED
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon_args, readable
from langgraph_toolmem.turn.ask import StepGenerator, Wait, loop_of_run
from langgraph_toolmem.turn.host import (
    RUNTIME_KEY,
    ErrorLog,
    config_of,
    emit,
    told_once,
    warn_once,
)
from langgraph_toolmem.turn.step import Call

logger = logging.getLogger("langgraph_toolmem.prefetch")

CREDIT: Final = 16.0
"""Look-ups that a new record may waste before any was served; the account of `least_probability` begins with them."""
LASTS: Final = 20.0
"""An account that is full lasts for so many look-ups, each of which wastes as much as it may."""
HIGHEST: Final = 0.9
"""The least probability grows no further, so that a record can improve."""
RARE: Final = 20
"""A tool is prefetched while so many of its calls were served for each unclaimed one."""
_OF_LANGCHAIN: Final = frozenset({"self", "run_manager", "callbacks"})
_MCP: Final = "langchain_mcp_adapters.tools"
TAG: Final = "toolmem.prefetch"
"""Tag of a call whose result was prefetched."""
_INSIDE: Final = "toolmem_inside"
_BARE: Final[Mapping[str, Any]] = {
    "callbacks": None,
    "verbose": False,
    "handle_tool_error": False,
    "handle_validation_error": False,
}
"""Settings that leave the work around a tool's own code to the model's call."""
_BETWEEN_GRAPHS: Final = "|"
"""Between the names of nested graphs in LangGraph's ``checkpoint_ns``."""
_PASSED_ON: Final = ("metadata", "recursion_limit", "max_concurrency")
_OWN: Final = ("__pregel", "checkpoint")
"""Prefixes of LangGraph's own keys in ``configurable``."""
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


@checks_options
@dataclass(frozen=True)
class Prefetch:
    """Settings of look-ups that run while the model is thinking.

    Only tools that are declared to read are prefetched (``ToolMemory(reads=...)``, tag or metadata ``read_only``, MCP's
    ``readOnlyHint``), and only those that take nothing from the host (state, store, runtime, call id). A tag
    ``no_prefetch``, or that key in the metadata, excludes what costs money.

    Attributes:
        tools: nothing but these tools; they may be prefetched although something of the host's wraps tool calls.
            None: all that qualify, where nothing wraps tool calls.
        min_probability: of a predicted call, by the record.
        max_wasted: predicted look-ups thrown away for each one served, in the long run: the more were thrown away so
            far, the likelier a call must be. None: no such limit.
        timeout: seconds after which a prefetched call is given up.
        workers: prefetched calls at the same time, over all runs; where none is free, none is begun.

    Raises:
        ConfigurationError: a value cannot be right; the message names the field.
    """

    tools: frozenset[str] | None = None
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
        expect(self, "max_wasted", "a number above 0 or None", lambda v: v is None or (is_number(v) and v > 0))
        expect(self, "timeout", "a number of seconds above 0", lambda v: is_number(v) and v > 0)
        expect(self, "workers", "a whole number from 1", lambda v: is_count(v, 1))


# --- the tools and calls that qualify ---


class Interceptors(NamedTuple):
    """The host's code between the model's call and its execution, and between the result and the model.

    Attributes:
        wrapped: names of what wraps tool calls or may remove them; "" if nothing is known to.
        tools: tools that a person must approve, or whose calls are limited.
        rewriting: names of what may hold back a look-up made before the model, or change its result; "" if nothing is
            known to.
    """

    wrapped: str = ""
    tools: frozenset[str] = frozenset()
    rewriting: str = ""


def qualified(
    tools: Mapping[str, BaseTool],
    specs: Mapping[str, ToolSpec],
    policy: InertiaPolicy,
    settings: Prefetch | PrefetchedContext,
    interceptors: Interceptors,
) -> tuple[dict[str, BaseTool], str]:
    """Return those of the tools, as the host executes them, that may be prefetched, and why others are not.

    The second is a line for the log; "" if all may be prefetched.
    """
    why = {
        name: _why_not(tool, specs[name], policy, settings, interceptors) if name in specs else "is not described"
        for name, tool in tools.items()
    }
    found = {name: tool for name, tool in tools.items() if not why[name]}
    reasons: dict[str, list[str]] = {}
    for name, no in why.items():
        if no:
            reasons.setdefault(no.removeprefix(f"{name} "), []).append(name)
    others = "; ".join(f"{named(names)}: {reason}" for reason, names in reasons.items())
    return found, others and f"Not prefetched: {others}."


def _why_not(
    tool: BaseTool,
    spec: ToolSpec,
    policy: InertiaPolicy,
    settings: Prefetch | PrefetchedContext,
    interceptors: Interceptors,
) -> str:
    name, option = spec.name, f"{type(settings).__name__}(tools=...)"
    if settings.tools is not None and name not in settings.tools:
        return f"is not named in {option}"
    if may_write(name, {name: spec}):
        return "is not declared to only read"
    if never := why_never(spec, policy.with_(only=None)):
        return never.text
    if _opted_out(tool):
        return "is marked no_prefetch"
    if wrapping := _mcp_interceptors(tool):
        return f"has interceptors of its MCP client, which get the run that they belong to: {', '.join(wrapping)}"
    if injected := sorted(set(_injected(tool, spec))):
        return f"takes what only the host can give: {', '.join(injected)}"
    if name in interceptors.tools:
        return "has to be approved, or its calls are limited"
    if settings.tools is not None:
        return ""
    if isinstance(settings, PrefetchedContext):
        if interceptors.rewriting:
            return f"is not named in {option}, and {interceptors.rewriting} may change its results or hold them back"
    elif interceptors.wrapped:
        return f"is not named in {option}, and {interceptors.wrapped} may hold its calls back"
    return ""


def _opted_out(tool: BaseTool) -> bool:
    marks = [*(tool.tags or ()), *(key for key, value in (tool.metadata or {}).items() if value is not False)]
    return any(str(mark).lower().replace("-", "_") == "no_prefetch" for mark in marks)


def _injected(tool: BaseTool, spec: ToolSpec) -> Iterator[str]:
    """Yield the parameters that the model does not fill."""
    schema: Any = tool.args_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        for name, field in schema.model_fields.items():
            if name not in spec.properties and field.alias not in spec.properties:
                yield name
    if isinstance(tool, Tool):  # a function of one text
        return
    for code in _code_of(tool):
        try:
            parameters = inspect.signature(code).parameters.values()
            hints = get_type_hints(code)
        except (TypeError, ValueError, NameError):
            yield "unknown parameters"
            continue
        for each in parameters:
            plain = each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY, each.POSITIONAL_ONLY)
            if not plain or each.name in spec.properties or each.name in _OF_LANGCHAIN:
                continue
            hint = hints.get(each.name)
            if RunnableConfig not in (hint, *getattr(hint, "__args__", ())) and not _idle_in_mcp(code, each):
                yield each.name


def _code_of(tool: BaseTool) -> list[Callable[..., Any]]:
    if isinstance(tool, StructuredTool):
        return [code for code in (tool.func, tool.coroutine) if code is not None]
    ways = [way for way in ("_run", "_arun") if getattr(type(tool), way) is not getattr(BaseTool, way)]
    return [getattr(tool, way) for way in ways]


def _idle_in_mcp(code: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    """Return True for the runtime that MCP's adapter passes to its interceptors, where there are none."""
    return parameter.default is None and _is_of_mcp(code) and not _interceptors_of(code)


def _mcp_interceptors(tool: BaseTool) -> list[str]:
    """Return the names of the interceptors that an MCP client has around a tool."""
    wrapping = [wrapper for code in _code_of(tool) if _is_of_mcp(code) for wrapper in _interceptors_of(code)]
    return [getattr(wrapper, "__qualname__", type(wrapper).__qualname__) for wrapper in wrapping]


def _is_of_mcp(code: Callable[..., Any]) -> bool:
    return getattr(code, "__module__", "") == _MCP


def _interceptors_of(code: Callable[..., Any]) -> list[Any]:
    # The adapter keeps them in the tool's closure alone.
    return list(inspect.getclosurevars(code).nonlocals.get("tool_interceptors") or ())


def held_back(graph: ToolGraph, tool: str, records: Collection[str] = (), *, named: bool = False) -> bool:
    """Return True if something holds back calls of a tool, given the names of all records of its name.

    `named`: the developer says that it may be prefetched.
    """
    record = graph.by_tool.get(tool, {})
    if any(graph.by_tool.get(each, {}).get(REVIEWED, 0.0) for each in (tool, *records)):
        return True
    return not named and record.get(UNCLAIMED, 0.0) * RARE > record.get(SERVED, 0.0)


class Lookup(NamedTuple):
    """A call to be prefetched.

    Attributes:
        tool: its name.
        args: its arguments; `text`: the same as `canon_args` writes them.
        probability: that the model asks for it; 1 if its streamed answer does.
    """

    tool: str
    args: Mapping[str, Any]
    text: str
    probability: float = 1.0

    @property
    def key(self) -> tuple[str, str]:
        return self.tool, self.text


def least_probability(settings: Prefetch, served: float, wasted: float) -> float:
    """Return the probability from which a predicted call is prefetched.

    A served look-up adds m = `Prefetch.max_wasted` to an account, a wasted one takes 1 from it. A call with
    probability p takes (1 - p) - m · p on average; it is made if that is at most 1/`LASTS` of the account. So
    what is wasted beyond the limit stays about `CREDIT`, also where predictions are right less often than they say.
    """
    if settings.max_wasted is None:
        return settings.min_probability
    account = CREDIT + settings.max_wasted * served - wasted
    least = (1 - account / LASTS) / (1 + settings.max_wasted)
    return float(max(settings.min_probability, min(HIGHEST, least)))


def choose(predicted: Sequence[Option], least: float, may: Callable[[str, Mapping[str, Any]], bool]) -> list[Lookup]:
    """Return the likeliest of the predicted calls, likeliest first, that may be prefetched."""
    found: dict[tuple[str, str], Lookup] = {}
    for each in predicted:
        if each.probability < least:
            break
        if each.tool == WORDS or each.changes or each.stale:
            continue
        for args in each.calls:
            lookup = Lookup(each.tool, args, canon_args(args), each.probability)
            if may(each.tool, args):
                found.setdefault(lookup.key, lookup)
    return list(found.values())


# --- a call that runs before the model asks for it ---


class Ran(NamedTuple):
    """The result of a prefetched call.

    Attributes:
        value: what the tool returned, before LangChain makes a message of it.
        written: what the tool wrote to the custom stream.
        seconds: duration of the call.
    """

    value: Any
    written: list[Any]
    seconds: float


class Host(NamedTuple):
    """The node of the run that calls are prefetched for, and its event loop if the run is async."""

    config: Any
    runtime: Any
    loop: asyncio.AbstractEventLoop | None
    context: contextvars.Context


class PrefetchTask:
    """One call that runs before the model has asked for it, with the very tool that the host executes."""

    def __init__(self, lookup: Lookup, tool: BaseTool, timeout: float) -> None:
        self.lookup, self.tool = lookup, tool
        self.started = monotonic()
        self.deadline = self.started + timeout
        self.future: Future[Ran] = Future()

    def begin(self, host: Host) -> None:
        """Begin the call: in the run's loop if the tool has async code and the run is async, else in a thread."""
        written: list[Any] = []
        config = config_apart(host, written)
        context = _context_apart(host.context, config)
        if host.loop is not None and is_async(self.tool):
            self.future = context.run(asyncio.run_coroutine_threadsafe, self._arun(config, written), host.loop)
        else:
            threads.start("toolmem-prefetch", partial(context.run, self._run, config, written))

    def _run(self, config: RunnableConfig, written: list[Any]) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        inside = _Inside()
        try:
            with tracing_context(enabled=False, parent=False):
                BaseTool.run(_copy(self.tool, inside, **_BARE), copy.deepcopy(dict(self.lookup.args)), config=config)
            self.future.set_result(Ran(inside.value, written, monotonic() - self.started))
        except BaseException as error:  # noqa: BLE001 - the model's call makes it again
            self.future.set_exception(error)

    async def _arun(self, config: RunnableConfig, written: list[Any]) -> Ran:
        inside = _Inside()
        with tracing_context(enabled=False, parent=False):
            tool, args = _copy(self.tool, inside, **_BARE), copy.deepcopy(dict(self.lookup.args))
            await asyncio.wait_for(BaseTool.arun(tool, args, config=config), self.deadline - monotonic())
        return Ran(inside.value, written, monotonic() - self.started)

    @property
    def ready(self) -> Ran | None:
        """The result; None if the call is not over, failed, or is too old."""
        if not self.future.done() or self.future.cancelled() or monotonic() > self.deadline:
            return None
        return None if self.future.exception() else self.future.result()


def is_async(tool: BaseTool) -> bool:
    """Return True if a tool has async code of its own."""
    if isinstance(tool, (StructuredTool, Tool)):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def is_sync(tool: BaseTool) -> bool:
    """Return True if a tool has sync code of its own."""
    return not isinstance(tool, (StructuredTool, Tool)) or tool.func is not None


def standing_in(tool: BaseTool, ran: Ran) -> BaseTool:
    """Return the tool with a result in place of its own code."""
    return _copy(tool, _Inside(ran), tags=[*(tool.tags or ()), TAG])


class _Inside:
    """The inside of a copied tool: keeps what the tool's own code returns, or serves an earlier result."""

    def __init__(self, ran: Ran | None = None) -> None:
        self.ran, self.value = ran, None

    def served(self) -> Any:
        assert self.ran is not None
        if self.ran.written:
            write = get_stream_writer()
            for each in self.ran.written:
                write(each)
        return self.ran.value


@lru_cache(maxsize=256)
def _kind(kind: type[BaseTool]) -> type[BaseTool]:
    @wraps(kind._run)  # LangChain looks at its parameters
    def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
        inside: _Inside = self.__dict__[_INSIDE]
        inside.value = kind._run(self, *args, **kwargs) if inside.ran is None else inside.served()
        return inside.value

    @wraps(kind._arun)
    async def _arun(self: Any, *args: Any, **kwargs: Any) -> Any:
        inside: _Inside = self.__dict__[_INSIDE]
        inside.value = await kind._arun(self, *args, **kwargs) if inside.ran is None else inside.served()
        return inside.value

    make: Any = type(kind)
    made: type[BaseTool] = make(kind.__name__, (kind,), {"_run": _run, "_arun": _arun, "__module__": kind.__module__})
    return made


def _copy(tool: BaseTool, inside: _Inside, **changed: Any) -> BaseTool:
    copied: BaseTool = tool.model_copy(update=changed)
    copied.__dict__[_INSIDE] = inside
    object.__setattr__(copied, "__class__", _kind(type(tool)))
    return copied


def config_apart(host: Host, written: list[Any]) -> RunnableConfig:
    """Return the user's keys and context of a config, and nothing that leads back into the run."""
    given: Mapping[str, Any] = host.config or {}
    configurable = given.get("configurable") or {}
    own = {key: value for key, value in configurable.items() if not str(key).startswith(_OWN)}
    found = host.runtime if isinstance(host.runtime, Runtime) else Runtime()
    # Not the host's execution: this runtime has no checkpoint, no task and no heartbeat.
    server = getattr(found, "server_info", None)
    own[RUNTIME_KEY] = Runtime(
        context=found.context, store=found.store, stream_writer=written.append, server_info=server
    )
    kept = {key: value for key, value in given.items() if key in _PASSED_ON}
    apart: Any = {"tags": [], "callbacks": None, "configurable": own, **kept}
    return apart  # type: ignore[no-any-return]


def _context_apart(context: contextvars.Context, config: RunnableConfig) -> contextvars.Context:
    """Return a copy of a context with this config and without callbacks."""
    context = context.copy()
    for variable, value in list(context.items()):
        if isinstance(value, (BaseCallbackHandler, BaseCallbackManager)):
            context.run(variable.set, None)
    context.run(var_child_runnable_config.set, config)
    return context


# --- the calls of an answer, and of a memory ---


Owner = tuple[str | None, str | None]
"""Thread and user of a run."""
Position = tuple[Owner, str]
"""Position of the model's next answer in a plain graph: owner, and id of the message before it."""


class Branch(NamedTuple):
    """A line of work that takes one step after the other. A thread may have several at the same time (`Send`).

    Attributes:
        owner: thread and user of the run.
        namespace: of the graph that works, as LangGraph names its checkpoints.
    """

    owner: Owner
    namespace: str


@dataclass(eq=False)
class PrefetchBatch:
    """The calls prefetched for one model call.

    Attributes:
        branch: the line of work; only its owner is served, and its next step throws away what is left.
        changes: return True if a tool may change something.
        tasks: not yet served or thrown away, by tool and arguments.
        matched: the model has answered, and asks for the tasks that are left.
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
        """Keep the calls that the model asks for, none if it also asks for a change; return the others."""
        asked = {(call["name"], canon_args(readable(call["args"]))) for call in answer.tool_calls}
        if any(self.changes(name) for name, _ in asked):
            asked.clear()
        self.matched = True
        return [self.tasks.pop(key) for key in list(self.tasks) if key not in asked]


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


class Registry(SharedByCopies):
    """The prefetched calls of a memory, in batches by the answer of the model that asks for them. Safe for threads.

    Each call has a thread or an asyncio task of its own; nothing queues.

    In an agent a batch belongs to the very object of the answer: ids of threads, runs, calls and messages repeat, and
    no result may come to another. In a plain graph it is found by its `Position`.

    Attributes:
        watched: True once a tool call came by that could have been served.
        unseen: number of model calls of plain graphs with prefetching so far.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.watched, self.unseen = False, 0
        self._lock = threads.lock()
        self._batches: dict[int | Position, PrefetchBatch] = {}
        self._live: set[PrefetchTask] = set()
        threads.at_fork(self)

    def forked(self) -> None:
        """Forget the parent's calls: a fork has none of its threads."""
        self._live.clear()

    def begin(self, task: PrefetchTask, host: Host, most: int) -> bool:
        """Begin a call if fewer than so many run."""
        with self._lock:
            if len(self._live) >= most:
                return False
            task.begin(host)
            self._live.add(task)
        task.future.add_done_callback(lambda _: self._live.discard(task))
        return True

    def keep(self, batch: PrefetchBatch, at: AIMessage | Position) -> None:
        """Keep a batch for the calls of an answer."""
        batch.listener = None
        if isinstance(at, AIMessage):
            batch.answer = weakref.ref(at)
        with self._lock:
            self._batches[id(at) if isinstance(at, AIMessage) else at] = batch

    def waste_over(self, branch: Branch) -> None:
        """Throw away what nobody will ask for: the answer is gone, it is too old, or its branch has gone on."""
        now = monotonic()
        with self._lock:
            over = [
                key
                for key, batch in self._batches.items()
                if all(task.deadline < now for task in batch.tasks.values())
                or (batch.branch == branch if batch.answer is None else batch.answer() is None)
            ]
            batches = [self._batches.pop(key) for key in over]
        for batch in batches:
            self.waste(batch.tasks.values(), unclaimed=batch.matched)

    def waste(self, tasks: Iterable[PrefetchTask], *, unclaimed: bool = False) -> None:
        """Throw calls away, and count them; `unclaimed`: the model asked for them."""
        for task in tasks:
            task.future.cancel()
            self._count(task.lookup, {WASTED: 1, UNCLAIMED: int(unclaimed)})

    def serve(self, request: ToolCallRequest, messages: Sequence[Any], owner: Owner) -> StepGenerator[ToolCallRequest]:
        """Return the request with a tool that has the result, if it was prefetched; otherwise the request."""
        self.watched = True
        task, asked = self._task_of(request, messages, owner), monotonic()
        if task is None:
            return request
        if not task.future.done():
            yield Wait(task.future, task.deadline - asked)
        if (ran := task.ready) is None:
            self.waste([task])
            return request
        saved = max(min(ran.seconds, asked - task.started), 0.0)
        self._count(task.lookup, {SERVED: 1, SECONDS: saved})
        event = {"node": "prefetch", "served": task.lookup.tool, "seconds_saved": round(saved, 3)}
        emit(request.runtime, event, on=self.core.events)  # type: ignore[arg-type]
        return request.override(tool=standing_in(task.tool, ran))

    def paused(self, tool: str) -> None:
        """Note that an interrupt stopped a call of a tool: it is not prefetched from now on."""
        self._count(Lookup(tool, {}, ""), {REVIEWED: 1})

    def _task_of(self, request: ToolCallRequest, messages: Sequence[Any], owner: Owner) -> PrefetchTask | None:
        call, at = request.tool_call, _last_answer(messages)
        if not self._batches or at is None or all(each["id"] != call["id"] for each in messages[at].tool_calls):
            return None
        batch = self._batches.get(id(messages[at]))
        if batch is None or batch.answer is None or batch.answer() is not messages[at]:
            position = _position_of(owner, messages[at - 1]) if at else None
            batch = None if position is None else self._batches.get(position)
        if batch is None or batch.branch.owner != owner:
            return None
        with self._lock:
            wasted = [] if batch.matched else batch.match(messages[at])
            task = batch.tasks.pop((call["name"], canon_args(call["args"])), None)
        if task is not None and not is_same(task.tool, request.tool):
            wasted, task = [*wasted, task], None
        self.waste(wasted)
        return task

    def _count(self, lookup: Lookup, counts: Mapping[str, float]) -> None:
        record: Record = [ToolCount(lookup.tool, name, amount) for name, amount in counts.items() if amount]
        if lookup.probability < 1:  # what was streamed says nothing about predictions
            record += [Count(name, counts[name]) for name in (SERVED, WASTED) if counts.get(name)]
        if not self.core.read_only:
            with self.core.lock:
                self.core.apply(None, record)


# --- around a model call ---


class Prefetcher:
    """Prefetches look-ups around model calls."""

    def __init__(self, registry: Registry, settings: Prefetch, interceptors: Interceptors) -> None:
        self.registry, self._settings, self._interceptors = registry, settings, interceptors
        self._errors = ErrorLog("prefetch", logger)
        self._known: dict[Any, tuple[list[BaseTool], Mapping[str, BaseTool]]] = {}

    def begin(self, call: Call) -> PrefetchBatch | None:
        """Begin the likeliest look-ups of a model call, and listen to its answer."""
        with self._errors:
            return self._begin(call)
        return None

    def _begin(self, call: Call) -> PrefetchBatch | None:
        loop, config = loop_of_run(), config_of()
        branch = Branch((call.thread_id, call.user_id), namespace_of(config))
        self.registry.waste_over(branch)
        if call.foresight is None:
            return None
        decision, policy = call.foresight.decision, call.foresight.policy
        if loop is not None and config is None:
            warn_once(NO_CONFIG)
            return None
        settings, core = self._settings, self.registry.core
        with core.lock:
            specs = core.catalogue.marked(call.tools)
            tools = {
                name: tool
                for name, tool in self._qualified(call, specs, policy).items()
                if call.allows(name)
                and (is_sync(tool) or (loop is not None and is_async(tool)))
                and not held_back(core.graph, name, core.catalogue.records_of(name), named=settings.tools is not None)
            }
            counters = core.graph.counters
            least = least_probability(settings, counters.get(SERVED, 0.0), counters.get(WASTED, 0.0))
        if not tools:
            return None

        def may(tool: str, args: Mapping[str, Any]) -> bool:
            return tool in tools and specs[tool].problem(args) is None

        def changes(tool: str) -> bool:
            return tool not in specs or may_write(tool, specs)

        batch = PrefetchBatch(branch, changes)
        start = partial(self._start, batch, tools, Host(config, call.runtime, loop, contextvars.copy_context()))

        def streamed(tool: str, args: dict[str, Any]) -> None:
            lookup = Lookup(tool, args, canon_args(args))
            if lookup.key not in batch.tasks and may(tool, args) and not _was_made(call.messages, lookup):
                start([lookup])

        if call.tool_choice in FREE_CHOICE:
            start(choose(decision.predicted, least, may))
        batch.listener = AnswerListener(changes, streamed, self._errors)
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
            emit(host.runtime, {"node": "prefetch", "started": started}, on=self.registry.core.events)

    def _qualified(self, call: Call, specs: Mapping[str, ToolSpec], policy: InertiaPolicy) -> Mapping[str, BaseTool]:
        offered = [tool for tool in call.offered if isinstance(tool, BaseTool)]
        key = (tuple(map(id, offered)), policy)
        if key not in self._known:
            if len(self._known) >= MAX_TOOL_SETS:
                self._known.clear()
            tools = {tool.name: tool for tool in offered}
            may, others = qualified(tools, specs, policy, self._settings, self._interceptors)
            self._known[key] = offered, may
            if may:
                told_once("Prefetched while the model is asked: %s.", named(may))
                logger.debug("%s", others)
            elif others:
                warn_once("prefetch has nothing to do. %s", others)
        return self._known[key][1]

    def answered(self, batch: PrefetchBatch, answer: Sequence[Any]) -> list[Any]:
        """Throw away what the answer does not ask for; the rest is kept for this run's own copy of the answer."""
        messages = list(answer)
        with self._errors:
            at = _last_answer(messages)
            self.registry.waste(batch.match(AIMessage("") if at is None else messages[at]))
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
        registry = self.registry
        position = _position_of((call.thread_id, call.user_id), call.messages[-1] if call.messages else None)
        if position is None:
            warn_once(NO_PLACE)
        elif not registry.watched and registry.unseen >= PATIENCE:
            warn_once(UNWATCHED)
        elif (batch := self.begin(call)) is not None and batch.tasks:
            registry.unseen += 1
            registry.keep(batch, position)


def _position_of(owner: Owner, before: Any) -> Position | None:
    """Return where an answer will stand; None if that is not known for sure."""
    message = getattr(before, "id", None)
    return (owner, message) if all(owner) and message else None


def namespace_of(config: RunnableConfig | None) -> str:
    """Return the namespace of the graph that a node belongs to; "" for the outermost graph, or outside of one."""
    configurable: Mapping[str, Any] = (config or {}).get("configurable") or {}
    return str(configurable.get("checkpoint_ns") or "").rpartition(_BETWEEN_GRAPHS)[0]


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


def is_same(one: BaseTool, other: BaseTool | None) -> bool:
    """Return True unless another tool was put in its place; each ``ToolNode`` makes its own tool of a function."""
    if one is other:
        return True
    bodies = [(getattr(each, "func", None), getattr(each, "coroutine", None)) for each in (one, other)]
    return bodies[0] == bodies[1] != (None, None)
