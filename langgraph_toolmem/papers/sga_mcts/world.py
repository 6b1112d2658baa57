"""The searched world: an environment that can be reset and called, and the return to one of its states."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from pydantic_core import from_json, to_json

from langgraph_toolmem.base.checks import score_of
from langgraph_toolmem.base.errors import ConfigurationError, ToolMemoryError
from langgraph_toolmem.offline.coldstart import awaited
from langgraph_toolmem.runs.run import output_of, status_of
from langgraph_toolmem.runs.values import canon, canon_args

if TYPE_CHECKING:
    from langgraph_toolmem.runs.tools import ToolLike


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        id: its identity, unique among the tasks of a discovery.
        request: the user's words.
        data: values for the environment, such as the expected result.
    """

    id: str
    request: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvironmentCall:
    """A tool call. Equal calls have equal keys."""

    tool: str
    args: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        """Tool and canonical arguments."""
        return self.tool, canon_args(self.args)


@dataclass(frozen=True)
class ToolObservation:
    """The answer to a call.

    Attributes:
        output: JSON values or a text; other values are converted.
        ok: False if the call failed or was refused.
    """

    output: Any
    ok: bool = True


@dataclass(frozen=True)
class Transition:
    """A call with its answer."""

    call: EnvironmentCall
    observation: ToolObservation


Path: TypeAlias = "tuple[Transition, ...]"


@runtime_checkable
class Environment(Protocol):
    """A world with tools, used by one search at a time. It may have a ``close()``."""

    @property
    def tools(self) -> Iterable[ToolLike]:
        """The tools."""
        ...

    def reset(self, task: Task) -> None:
        """Reset the world to the beginning of the task."""
        ...

    def step(self, call: EnvironmentCall) -> ToolObservation:
        """Execute a call. Return a call that fails as ``ToolObservation(reason, ok=False)``."""
        ...

    def success(self) -> bool | float | None:
        """Return True if the task is done in the present state, or a score from 0 to 1; None if unknown."""
        ...


class Cursor:
    """An environment with the calls made since its last reset.

    Args:
        environment: the world.
        task: the task that it is reset to.
        reads: names of tools whose answers may differ when a call is repeated.

    Attributes:
        explored: calls made for the first time.
        replayed: calls repeated to return to a state.
        diverged: repeated calls with another result.
    """

    def __init__(self, environment: Environment, task: Task, reads: Container[str] = ()) -> None:
        self.environment, self.task, self._reads = environment, task, reads
        self.explored = self.replayed = self.diverged = 0
        self._at: Path | None = None

    def go(self, path: Path) -> bool:
        """Return to the state after these calls: repeat the missing calls, after a reset if necessary.

        False: a repeated call had another result, so the environment is not deterministic here.
        """
        # Calls cannot be undone, so any other path begins with a reset.
        if self._at is None or self._at != path[: len(self._at)]:
            self.environment.reset(self.task)
            self._at = ()
        for transition in path[len(self._at) :]:
            now, before = self._step(transition.call), transition.observation
            self.replayed += 1
            # The answer of a reading tool may contain the time.
            is_same = transition.call.tool in self._reads or canon(now.output) == canon(before.output)
            if now.ok != before.ok or not is_same:
                self.diverged += 1
                self._at = None
                return False
            self._at = (*self._at, transition)
        return True

    def make(self, call: EnvironmentCall) -> Transition:
        """Make a call in the present state. After a failed call the state counts as unknown."""
        assert self._at is not None
        transition = Transition(call, self._step(call))
        self.explored += 1
        if transition.observation.ok:
            self._at = (*self._at, transition)
        else:
            # Its changes before the failure are unknown.
            self._at = None
        return transition

    def success(self) -> float | None:
        """Return the environment's score of the present state, from 0 to 1, or None."""
        return score_of("success()", self.environment.success())

    def _step(self, call: EnvironmentCall) -> ToolObservation:
        try:
            observation: Any = self.environment.step(call)
        except ToolMemoryError:
            raise  # errors of this package contain a remedy already
        except Exception as error:
            self._at = None
            raise ToolMemoryError(
                f"step() raised {type(error).__name__} on a call of {call.tool} ({error}). It must return a failed "
                "call as ToolObservation(reason, ok=False)."
            ) from error
        if not isinstance(observation, ToolObservation):
            raise ConfigurationError(
                f"step() of an environment must return a ToolObservation, got {type(observation).__name__}."
            )
        return ToolObservation(_as_json(observation.output), observation.ok)


def _as_json(output: Any) -> Any:
    # Answers are compared when a call is repeated, and written to the disk.
    try:
        return from_json(to_json(output, fallback=str, bytes_mode="base64", inf_nan_mode="strings"))
    except (ValueError, RecursionError):  # it contains itself, or is nested very deeply
        return str(output)


class ToolsEnvironment:
    """LangChain tools or functions that act on a sandbox. **The tools are really executed.**

    Async tools run in an event loop of the environment's own. `reset` and `success` may be coroutine functions.

    Args:
        tools: the tools.
        reset: ``reset(task)``: returns the sandbox to where the task begins.
        success: ``success(task)``: True if the task is done in the present state, or a score. Defaults to None: a judge
            decides.

    Raises:
        ConfigurationError: a tool cannot be executed.
    """

    def __init__(
        self,
        tools: Iterable[ToolLike],
        *,
        reset: Callable[[Task], Any],
        success: Callable[[Task], bool | float | Awaitable[bool | float | None] | None] | None = None,
    ) -> None:
        self._tools: dict[str, BaseTool] = {}
        for given in tools:
            tool = _executable(given)
            self._tools[tool.name] = tool
        self._reset, self._success = reset, success
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task = Task("", "")

    @property
    def tools(self) -> list[BaseTool]:
        """The tools."""
        return list(self._tools.values())

    def reset(self, task: Task) -> None:
        """See `Environment`."""
        self._task = task
        self._result(self._reset(task))

    def step(self, call: EnvironmentCall) -> ToolObservation:
        """See `Environment`. A tool that raises, or refuses its arguments, has failed."""
        tool = self._tools.get(call.tool)
        if tool is None:
            return ToolObservation(f"Error: there is no tool {call.tool!r}.", ok=False)
        request = {"type": "tool_call", "id": "call", "name": call.tool, "args": dict(call.args)}
        try:
            # A tool with only async code raises if it is invoked.
            if isinstance(tool, StructuredTool) and tool.func is None:
                answer = self._result(tool.ainvoke(request))
            else:
                answer = tool.invoke(request)
        except Exception as error:  # noqa: BLE001 - tools are the user's; what they raise is an observation
            return ToolObservation(f"Error: {type(error).__name__}: {error}", ok=False)
        if not isinstance(answer, ToolMessage):
            return ToolObservation(answer)
        ok = status_of(answer.content, error=answer.status == "error") == "ok"
        return ToolObservation(output_of(answer.content), ok=ok)

    def success(self) -> bool | float | None:
        """See `Environment`."""
        if self._success is None:
            return None
        score: bool | float | None = self._result(self._success(self._task))
        return score

    def close(self) -> None:
        """Close the event loop, if there is one."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _result(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value
        # One loop for all calls: connections belong to the loop they were made in.
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(awaited(value))


def _executable(tool: ToolLike) -> BaseTool:
    if isinstance(tool, BaseTool):
        return tool
    if callable(tool) and not isinstance(tool, type):
        if inspect.iscoroutinefunction(tool):
            return StructuredTool.from_function(coroutine=tool)
        return StructuredTool.from_function(tool)
    raise ConfigurationError(f"{tool!r:.80} cannot be executed: pass LangChain tools or functions, not schemas.")
