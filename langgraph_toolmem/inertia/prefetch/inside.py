"""A tool's inside run on its own, and the stand-in through which its result is served.

Both are copies of the tool with another ``_run`` and ``_arun``, the places where LangChain has a tool's own code. What
is around them (arguments read and checked, the config handed in) stays the tool's.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, wraps
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langgraph.config import get_stream_writer
from langsmith.run_helpers import tracing_context

TAG: Final = "toolmem.prefetch"
"""Tag of a call whose result was there already."""
_DO: Final = "toolmem_do"


class Ran(NamedTuple):
    """What came of a call that ran ahead.

    Attributes:
        value: what the tool returned, before it is made a message of.
        written: what it wrote to the custom stream.
        seconds: how long it took.
    """

    value: Any
    written: list[Any]
    seconds: float


class _Do:
    """What a copy of a tool does in place of its own code: catches what that returns, or serves what it returned."""

    def __init__(self, served: Ran | None = None) -> None:
        self.served, self.caught = served, None

    def run(self, own: Callable[[], Any]) -> Any:
        self.caught = own() if self.served is None else self._serve(self.served)
        return self.caught

    async def arun(self, own: Callable[[], Awaitable[Any]]) -> Any:
        self.caught = await own() if self.served is None else self._serve(self.served)
        return self.caught

    def _serve(self, ran: Ran) -> Any:
        if ran.written:
            write = get_stream_writer()
            for each in ran.written:
                write(each)
        return ran.value


@lru_cache(maxsize=256)
def _kind(kind: type[BaseTool]) -> type[BaseTool]:
    """A kind of tool whose inside is done by the `_Do` of the instance."""

    @wraps(kind._run)  # LangChain looks at its parameters
    def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__[_DO].run(lambda: kind._run(self, *args, **kwargs))

    @wraps(kind._arun)
    async def _arun(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self.__dict__[_DO].arun(lambda: kind._arun(self, *args, **kwargs))

    make: Any = type(kind)
    made: type[BaseTool] = make(kind.__name__, (kind,), {"_run": _run, "_arun": _arun, "__module__": kind.__module__})
    return made


def _copy(tool: BaseTool, do: _Do, **changed: Any) -> BaseTool:
    copied = tool.model_copy(update=changed)
    copied.__dict__[_DO] = do
    object.__setattr__(copied, "__class__", _kind(type(tool)))
    return copied


def is_async(tool: BaseTool) -> bool:
    """Whether a tool has async code of its own."""
    if isinstance(tool, (StructuredTool, Tool)):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def is_sync(tool: BaseTool) -> bool:
    """Whether a tool has sync code of its own."""
    return not isinstance(tool, (StructuredTool, Tool)) or tool.func is not None


_BARE: Final[Mapping[str, Any]] = {
    "callbacks": None,
    "verbose": False,
    "handle_tool_error": False,
    "handle_validation_error": False,
}
"""What goes around a tool's inside is for the call that the model makes."""


def run_ahead(tool: BaseTool, args: Mapping[str, Any], config: RunnableConfig) -> Any:
    """What the inside of a tool returns. It raises what the tool raises."""
    do = _Do()
    with tracing_context(enabled=False, parent=False):
        BaseTool.run(_copy(tool, do, **_BARE), copy.deepcopy(dict(args)), config=config)
    return do.caught


async def arun_ahead(tool: BaseTool, args: Mapping[str, Any], config: RunnableConfig) -> Any:
    """What the async inside of a tool returns. It raises what the tool raises."""
    do = _Do()
    with tracing_context(enabled=False, parent=False):
        await BaseTool.arun(_copy(tool, do, **_BARE), copy.deepcopy(dict(args)), config=config)
    return do.caught


def standing_in(tool: BaseTool, ran: Ran) -> BaseTool:
    """The tool, with a result in place of its inside."""
    return _copy(tool, _Do(ran), tags=[*(tool.tags or ()), TAG])
