"""Speculative calls: the tools that qualify, one call that runs apart from the run, and its result in the model's call.

Prefetch (`inertia.prefetch`) and look-ups before the model (`inertia.exchange`) begin these calls. A call runs the same
tool object that the host executes, without the host's callbacks, stream and checkpoint. Only the inside of the tool
runs: the host's work around it (error handling, content, artifacts) happens in the model's call, which gets a copy of
the tool with the result in place of its code.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from functools import lru_cache, wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langgraph.config import get_stream_writer
from langgraph.runtime import Runtime
from langsmith.run_helpers import tracing_context
from pydantic import BaseModel
from typing_extensions import get_type_hints

from langgraph_toolmem.base import threads
from langgraph_toolmem.core.catalogue import named
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.context import PrefetchedContext
from langgraph_toolmem.inertia.policy import InertiaPolicy, may_write, why_never
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.turn.ask import loop_of_run
from langgraph_toolmem.turn.host import RUNTIME_KEY, note_once, warn_once
from langgraph_toolmem.turn.step import Call

if TYPE_CHECKING:
    from langgraph_toolmem.inertia.prefetch import Prefetch

# --- counters of a tool (`ToolGraph.by_tool`) ---

SERVED: Final = "ahead_served"
"""Prefetched look-ups that the model asked for."""
WASTED: Final = "ahead_wasted"
"""Prefetched look-ups that were discarded."""
SECONDS: Final = "ahead_seconds"
"""Seconds of waiting saved."""
UNCLAIMED: Final = "ahead_unclaimed"
"""The model asked for the look-up, and its call was held back and never executed."""
REVIEWED: Final = "reviewed"
"""A person was asked about a call, refused it or edited it, or the call was stopped."""


REPLACED_TOOL: Final = (
    "A result of %s was prefetched and not served: the tool that the graph executes is not the one that the memory was "
    "given, although it has the same name. Give the model, the memory and the ToolNode the same tools, made once."
)

# --- the tools of an agent ---


class Interceptors(NamedTuple):
    """The host's code between the model's call and its execution, and between the result and the model.

    Attributes:
        wrapped: names of middleware that wraps tool calls or may remove them, or "".
        tools: tools that a person must approve, or whose calls are limited.
        rewriting: names of middleware that may hold back a look-up made before the model, or change its result, or "".
    """

    wrapped: str = ""
    tools: frozenset[str] = frozenset()
    rewriting: str = ""


class AgentTools:
    """The qualifying tools of agents, for each set of offered tools.

    Args:
        settings: of prefetch, or of look-ups before the model.
        interceptors: the host's code around tool calls.
        logger: for the reasons why other tools do not qualify.
    """

    def __init__(
        self, settings: Prefetch | PrefetchedContext, interceptors: Interceptors, logger: logging.Logger
    ) -> None:
        self._settings, self._interceptors, self._logger = settings, interceptors, logger
        # The offered tools are kept with the result: an id is unique only while the tool exists.
        self._known: dict[Any, _QualifiedTools] = {}

    def available(
        self, call: Call, core: Core, specs: Mapping[str, ToolSpec], policy: InertiaPolicy
    ) -> dict[str, BaseTool]:
        """Return the tools that may be called now apart from the run, by name. The caller must hold the lock.

        Args:
            call: the model call.
            core: of the memory.
            specs: the tools with the declarations of the developer.
            policy: of the run.
        """
        loop = loop_of_run()
        # Unclaimed look-ups count against prefetch, not against look-ups before the model.
        by_name = self._settings.tools is not None or isinstance(self._settings, PrefetchedContext)
        available = {}
        for name, tool in self._qualified(call, specs, policy).items():
            runs_here = is_sync(tool) or (loop is not None and is_async(tool))
            if not runs_here or not call.allows(name):
                continue
            if not held_back(core.graph, name, core.catalogue.records_of(name), named=by_name):
                available[name] = tool
        return available

    def _qualified(self, call: Call, specs: Mapping[str, ToolSpec], policy: InertiaPolicy) -> Mapping[str, BaseTool]:
        offered = [tool for tool in call.offered if isinstance(tool, BaseTool)]
        key = (tuple(id(tool) for tool in offered), policy)
        if key not in self._known:
            # A host that makes its tools again for each call keeps offering new sets.
            most_sets = 64
            if len(self._known) >= most_sets:
                self._known.clear()
            self._known[key] = _QualifiedTools(offered, self._qualify(offered, specs, policy))
        return self._known[key].by_name

    def _qualify(
        self, offered: Iterable[BaseTool], specs: Mapping[str, ToolSpec], policy: InertiaPolicy
    ) -> Mapping[str, BaseTool]:
        """Return the tools that qualify, and log them with the reasons why others do not."""
        before_model = isinstance(self._settings, PrefetchedContext)
        tools = {}
        # The results of such a tool end the run, which a look-up before the model must not do.
        for tool in offered:
            if not (before_model and tool.return_direct):
                tools[tool.name] = tool
        qualifying = qualified(tools, specs, policy, self._settings, self._interceptors)
        option, moment = "prefetch", "while"
        if before_model:
            option, moment = "context", "before"
        if qualifying.tools:
            note_once(f"Prefetched {moment} the model is asked: %s.", named(qualifying.tools))
            self._logger.debug("%s", qualifying.others)
        elif qualifying.others:
            warn_once(f"{option} has nothing to do where only these tools are offered. %s", qualifying.others)
        return qualifying.tools


class _QualifiedTools(NamedTuple):
    """The offered tools of model calls, and those that may run apart."""

    offered: list[BaseTool]
    by_name: Mapping[str, BaseTool]


class Qualifying(NamedTuple):
    """The tools that may be prefetched, by name, and a line for the log on the others; "" if all may."""

    tools: dict[str, BaseTool]
    others: str


def qualified(
    tools: Mapping[str, BaseTool],
    specs: Mapping[str, ToolSpec],
    policy: InertiaPolicy,
    settings: Prefetch | PrefetchedContext,
    interceptors: Interceptors,
) -> Qualifying:
    """Return the tools, as the host executes them, that may be prefetched, and why others may not."""
    may: dict[str, BaseTool] = {}
    names_by_reason: dict[str, list[str]] = {}
    for name, tool in tools.items():
        if name in specs:
            reason = _why_not(tool, specs[name], policy, settings, interceptors)
        else:
            reason = "is not described"
        if reason:
            names_by_reason.setdefault(reason.removeprefix(f"{name} "), []).append(name)
        else:
            may[name] = tool
    if not names_by_reason:
        return Qualifying(may, "")
    others = "; ".join(f"{named(names)}: {reason}" for reason, names in names_by_reason.items())
    return Qualifying(may, f"Not prefetched: {others}.")


def _why_not(
    tool: BaseTool,
    spec: ToolSpec,
    policy: InertiaPolicy,
    settings: Prefetch | PrefetchedContext,
    interceptors: Interceptors,
) -> str:
    """Return why a tool does not qualify; "" if it does."""
    name = spec.name
    if settings.tools is not None and name not in settings.tools:
        return f"is not named in {type(settings).__name__}(tools=...)"
    if may_write(name, {name: spec}):
        return "is not declared to only read"
    # `only` limits calls in the model's place. A prefetched call is served to the model's own call.
    never = why_never(spec, policy.with_(only=None))
    if never is not None:
        return never.text
    return _of_itself(tool, spec) or _intercepted(name, settings, interceptors)


def _of_itself(tool: BaseTool, spec: ToolSpec) -> str:
    """Return why the tool itself cannot be called apart from the run; "" if it can."""
    if _opted_out(tool):
        return "is marked no_prefetch"
    wrapping = _mcp_interceptors(tool)
    if wrapping:
        return f"has interceptors of its MCP client, which get the run that they belong to: {', '.join(wrapping)}"
    injected = _injected(tool, spec)
    if injected:
        return f"takes what only the host can give: {', '.join(sorted(injected))}"
    return ""


def _intercepted(name: str, settings: Prefetch | PrefetchedContext, interceptors: Interceptors) -> str:
    """Return the host's middleware that may hold back calls of a tool, or change their results, or ""."""
    if name in interceptors.tools:
        return "has to be approved, or its calls are limited"
    if settings.tools is not None:
        return ""
    option = f"{type(settings).__name__}(tools=...)"
    if isinstance(settings, PrefetchedContext):
        if interceptors.rewriting:
            return f"is not named in {option}, and {interceptors.rewriting} may change its results or hold them back"
    elif interceptors.wrapped:
        return f"is not named in {option}, and {interceptors.wrapped} may hold its calls back"
    return ""


def _opted_out(tool: BaseTool) -> bool:
    marks = list(tool.tags or ())
    for key, value in (tool.metadata or {}).items():
        if value is not False:
            marks.append(key)
    return any(str(mark).lower().replace("-", "_") == "no_prefetch" for mark in marks)


def held_back(graph: ToolGraph, tool: str, records: Collection[str] = (), *, named: bool = False) -> bool:
    """Return True if calls of a tool are held back, given the names of all records of its name.

    `named`: the developer says that it may be prefetched.
    """
    # A person approves this tool, for any parameters: the mark of one record applies to all of its name.
    for record in (tool, *records):
        if graph.by_tool.get(record, {}).get(REVIEWED, 0.0):
            return True
    if named:
        return False
    # An invisible gate or limit held these calls back after the model had asked. One in twenty may be a stopped run.
    rare = 20
    counts = graph.by_tool.get(tool, {})
    return counts.get(UNCLAIMED, 0.0) * rare > counts.get(SERVED, 0.0)


# --- the code of a tool ---


def is_async(tool: BaseTool) -> bool:
    """Return True if a tool has async code of its own."""
    if isinstance(tool, (StructuredTool, Tool)):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def is_sync(tool: BaseTool) -> bool:
    """Return True if a tool has sync code of its own."""
    return not isinstance(tool, (StructuredTool, Tool)) or tool.func is not None


def is_same(one: BaseTool, other: BaseTool | None) -> bool:
    """Return True unless another tool replaced it; each ``ToolNode`` makes its own tool of a function.

    A replaced tool is logged once, because no result is served and each look-up is executed twice.
    """
    # Compared by the functions, since a node made from the same function has a tool object of its own.
    if one is other:
        return True
    body = (getattr(one, "func", None), getattr(one, "coroutine", None))
    other_body = (getattr(other, "func", None), getattr(other, "coroutine", None))
    if body == other_body != (None, None):
        return True
    warn_once(REPLACED_TOOL, one.name)
    return False


def _code_of(tool: BaseTool) -> list[Callable[..., Any]]:
    """Return the functions that do the work of a tool."""
    if isinstance(tool, StructuredTool):
        return [code for code in (tool.func, tool.coroutine) if code is not None]
    own = []
    for way in ("_run", "_arun"):
        if getattr(type(tool), way) is not getattr(BaseTool, way):
            own.append(getattr(tool, way))
    return own


def _injected(tool: BaseTool, spec: ToolSpec) -> set[str]:
    """Return the parameters that the model does not fill."""
    injected = _injected_fields(tool.args_schema, spec)
    if not isinstance(tool, Tool):  # a function of one text has no other parameters
        for code in _code_of(tool):
            injected |= _injected_into(code, spec)
    return injected


def _injected_fields(schema: Any, spec: ToolSpec) -> set[str]:
    """Return the fields of a tool's own model that its offered schema does not have."""
    injected = set()
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        for name, field in schema.model_fields.items():
            if name not in spec.properties and field.alias not in spec.properties:
                injected.add(name)
    return injected


def _injected_into(code: Callable[..., Any], spec: ToolSpec) -> set[str]:
    """Return the parameters of a function that the model does not fill."""
    try:
        parameters = inspect.signature(code).parameters.values()
        hints = get_type_hints(code)
    except (TypeError, ValueError, NameError):  # builtins, and hints with types that are not imported
        return {"unknown parameters"}
    of_langchain = ("self", "run_manager", "callbacks")
    injected = set()
    for parameter in parameters:
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if variadic or parameter.name in spec.properties or parameter.name in of_langchain:
            continue
        hint = hints.get(parameter.name)
        takes_config = RunnableConfig in (hint, *getattr(hint, "__args__", ()))
        if not takes_config and not _idle_in_mcp(code, parameter):
            injected.add(parameter.name)
    return injected


# --- tools of an MCP client ---


def _mcp_interceptors(tool: BaseTool) -> list[str]:
    """Return the names of an MCP client's interceptors around a tool."""
    names = []
    for code in _code_of(tool):
        if _is_of_mcp(code):
            for interceptor in _interceptors_of(code):
                names.append(getattr(interceptor, "__qualname__", type(interceptor).__qualname__))
    return names


def _idle_in_mcp(code: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    """Return True for the runtime that MCP's adapter passes to its interceptors, where there are none."""
    return parameter.default is None and _is_of_mcp(code) and not _interceptors_of(code)


def _is_of_mcp(code: Callable[..., Any]) -> bool:
    return getattr(code, "__module__", "") == "langchain_mcp_adapters.tools"


def _interceptors_of(code: Callable[..., Any]) -> list[Any]:
    # The adapter keeps them only in the tool's closure.
    return list(inspect.getclosurevars(code).nonlocals.get("tool_interceptors") or ())


# --- one call ---

TAG: Final = "toolmem.prefetch"
"""Tag of a call whose result was prefetched."""


class Lookup(NamedTuple):
    """A call to be prefetched.

    Attributes:
        args: its arguments; `text`: the same as `canon_args` writes them.
        probability: that the model asks for it; 1 if its streamed answer does.
    """

    tool: str
    args: Mapping[str, Any]
    text: str
    probability: float = 1.0

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the call: tool and arguments."""
        return self.tool, self.text


class Ran(NamedTuple):
    """The result of a prefetched call.

    Attributes:
        value: the tool's return value, before LangChain makes a message of it.
        written: the tool's output on the custom stream.
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
    """A call that runs before the model has asked for it, with the tool object that the host executes.

    Attributes:
        loop: the event loop that runs the tool; None if a thread runs it.
    """

    def __init__(self, lookup: Lookup, tool: BaseTool, timeout: float) -> None:
        self.lookup, self.tool = lookup, tool
        self.started = monotonic()
        self.deadline = self.started + timeout
        self.future: Future[Ran] = Future()
        self.loop: asyncio.AbstractEventLoop | None = None

    def begin(self, host: Host) -> None:
        """Begin the call: in the run's loop if the tool has async code and the run is async, otherwise in a thread."""
        written: list[Any] = []
        config = config_apart(host, written)
        context = _context_apart(host.context, config)
        # Sessions and connections of async tools belong to the loop in which they were made.
        if host.loop is not None and is_async(self.tool):
            self.loop = host.loop
            self.future = context.run(asyncio.run_coroutine_threadsafe, self._arun(config, written), host.loop)
        else:

            def run() -> None:
                context.run(self._run, config, written)

            threads.start("toolmem-prefetch", run)

    def _run(self, config: RunnableConfig, written: list[Any]) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        # Without a trace: a discarded look-up would appear as a call without a request.
        inside = _Inside()
        try:
            with tracing_context(enabled=False, parent=False):
                BaseTool.run(_bare_copy(self.tool, inside), copy.deepcopy(dict(self.lookup.args)), config=config)
            self.future.set_result(Ran(inside.value, written, monotonic() - self.started))
        except BaseException as error:  # noqa: BLE001 - the model's call makes it again
            self.future.set_exception(error)

    async def _arun(self, config: RunnableConfig, written: list[Any]) -> Ran:
        inside = _Inside()
        with tracing_context(enabled=False, parent=False):
            tool, args = _bare_copy(self.tool, inside), copy.deepcopy(dict(self.lookup.args))
            await asyncio.wait_for(BaseTool.arun(tool, args, config=config), self.deadline - monotonic())
        return Ran(inside.value, written, monotonic() - self.started)

    @property
    def ready(self) -> Ran | None:
        """The result; None if the call is running, failed, or is too old."""
        if not self.future.done() or self.future.cancelled() or monotonic() > self.deadline:
            return None
        if self.future.exception() is not None:
            return None
        return self.future.result()


# --- a tool with replaced code ---


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
            for chunk in self.ran.written:
                write(chunk)
        return self.ran.value


@lru_cache(maxsize=256)
def _kind(kind: type[BaseTool]) -> type[BaseTool]:
    @wraps(kind._run)  # LangChain looks at its parameters
    def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
        inside = _inside_of(self)
        inside.value = kind._run(self, *args, **kwargs) if inside.ran is None else inside.served()
        return inside.value

    @wraps(kind._arun)
    async def _arun(self: Any, *args: Any, **kwargs: Any) -> Any:
        inside = _inside_of(self)
        inside.value = await kind._arun(self, *args, **kwargs) if inside.ran is None else inside.served()
        return inside.value

    make: Any = type(kind)
    made: type[BaseTool] = make(kind.__name__, (kind,), {"_run": _run, "_arun": _arun, "__module__": kind.__module__})
    return made


def _inside_of(tool: BaseTool) -> _Inside:
    inside: _Inside = tool.__dict__["toolmem_inside"]
    return inside


def _bare_copy(tool: BaseTool, inside: _Inside) -> BaseTool:
    """Return a copy that runs only its own code: the work around it is left to the model's call."""
    return _copy(tool, inside, callbacks=None, verbose=False, handle_tool_error=False, handle_validation_error=False)


def _copy(tool: BaseTool, inside: _Inside, **changed: Any) -> BaseTool:
    # Every kind of tool runs through `_run` or `_arun` of its class, so the copy has a class of its own.
    copied: BaseTool = tool.model_copy(update=changed)
    copied.__dict__["toolmem_inside"] = inside
    object.__setattr__(copied, "__class__", _kind(type(tool)))
    return copied


def config_apart(host: Host, written: list[Any]) -> RunnableConfig:
    """Return the user's keys and context of a config, without references into the run."""
    given: Mapping[str, Any] = host.config or {}
    configurable = {}
    for key, value in (given.get("configurable") or {}).items():
        if not str(key).startswith(("__pregel", "checkpoint")):  # keys of LangGraph's own
            configurable[key] = value
    runtime = host.runtime if isinstance(host.runtime, Runtime) else Runtime()
    # Not the host's execution: this runtime has no checkpoint, no task and no heartbeat.
    server = getattr(runtime, "server_info", None)
    configurable[RUNTIME_KEY] = Runtime(
        context=runtime.context, store=runtime.store, stream_writer=written.append, server_info=server
    )
    apart: Any = {"tags": [], "callbacks": None, "configurable": configurable}
    for key in ("metadata", "recursion_limit", "max_concurrency"):
        if key in given:
            apart[key] = given[key]
    return apart  # type: ignore[no-any-return]


def _context_apart(context: contextvars.Context, config: RunnableConfig) -> contextvars.Context:
    """Return a copy of a context with this config and without callbacks."""
    context = context.copy()
    for variable, value in list(context.items()):
        if isinstance(value, (BaseCallbackHandler, BaseCallbackManager)):
            context.run(variable.set, None)
    context.run(var_child_runnable_config.set, config)
    return context
