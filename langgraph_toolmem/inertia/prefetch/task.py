"""One call that runs apart from the run, and its result in the model's call.

The call runs the same tool object that the host executes, without the host's callbacks, stream and checkpoint. Only the
inside of the tool runs: the host's work around it (error handling, content, artifacts) happens in the model's call,
which gets a copy of the tool with the result in place of its code.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections.abc import Mapping
from concurrent.futures import Future
from functools import lru_cache, wraps
from time import monotonic
from typing import Any, Final, NamedTuple

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from langgraph.config import get_stream_writer
from langgraph.runtime import Runtime
from langsmith.run_helpers import tracing_context

from langgraph_toolmem.base import threads
from langgraph_toolmem.inertia.prefetch.choice import Lookup
from langgraph_toolmem.inertia.prefetch.tools import is_async
from langgraph_toolmem.turn.host import RUNTIME_KEY

TAG: Final = "toolmem.prefetch"
"""Tag of a call whose result was prefetched."""


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
    """A call that runs before the model has asked for it, with the tool object that the host executes."""

    def __init__(self, lookup: Lookup, tool: BaseTool, timeout: float) -> None:
        self.lookup, self.tool = lookup, tool
        self.started = monotonic()
        self.deadline = self.started + timeout
        self.future: Future[Ran] = Future()

    def begin(self, host: Host) -> None:
        """Begin the call: in the run's loop if the tool has async code and the run is async, otherwise in a thread."""
        written: list[Any] = []
        config = config_apart(host, written)
        context = _context_apart(host.context, config)
        # Sessions and connections of async tools belong to the loop in which they were made.
        if host.loop is not None and is_async(self.tool):
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
