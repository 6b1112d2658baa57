"""Environments made of what people have: LangChain tools on a sandbox that can be reset, and recorded runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.offline.coldstart.sandbox import Sandbox, tools_of
from langgraph_toolmem.offline.discovery.environment import Environment, EnvironmentCall, Observation, Task
from langgraph_toolmem.runs.messages import output_of, status_of
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn, UserMessage

if TYPE_CHECKING:
    from langgraph_toolmem.runs.tools import ToolLike

Reset: TypeAlias = Callable[[Task], Any] | Callable[[], Any]
Success: TypeAlias = Callable[[Task], "bool | float | Awaitable[bool | float | None] | None"]

Factory: TypeAlias = Callable[[], "Environment | Sandbox"]

NOT_RECORDED: Final = "Error: nobody made this call at this point of a recorded run."


class ToolsEnvironment:
    """LangChain tools (or functions) on a sandbox. **The tools are really executed.**

    Tools that have only an ``ainvoke`` are run in an event loop of this environment's own; `reset`, `success`,
    `snapshot` and `restore` may be coroutine functions.

    Args:
        tools: what can be called.
        reset: ``reset(task)`` or ``reset()``: brings the sandbox to where the task begins.
        success: ``success(task)``: whether the task is done in the present state; None: it cannot tell, a judge must.
        snapshot: gives whatever `restore` takes; both or none.
        restore: brings the sandbox back to a snapshot.

    Raises:
        ConfigurationError: a tool cannot be executed, or only one of `snapshot` and `restore` is given.
    """

    def __init__(
        self,
        tools: Iterable[ToolLike],
        *,
        reset: Reset,
        success: Success | None = None,
        snapshot: Callable[[], Any] | None = None,
        restore: Callable[[Any], Any] | None = None,
    ) -> None:
        if (snapshot is None) != (restore is None):
            raise ConfigurationError("An environment takes both snapshot and restore, or neither.")
        self._tools = {tool.name: tool for tool in map(_executable, tools)}
        self._reset, self._success = reset, success
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task = Task("", "")
        self._made: list[tuple[EnvironmentCall, ToolMessage]] = []
        if snapshot is not None and restore is not None:
            self.snapshot = lambda: self._result(snapshot())
            self.restore = lambda kept: self._result(restore(kept))

    @property
    def tools(self) -> list[BaseTool]:
        """The tools."""
        return list(self._tools.values())

    def reset(self, task: Task) -> None:
        """See `Environment`."""
        self._task = task
        self._made.clear()
        self._result(self._reset(task) if _takes_one(self._reset) else self._reset())  # type: ignore[call-arg]

    def step(self, call: EnvironmentCall) -> Observation:
        """See `Environment`. A tool that raises, or refuses its arguments, has failed."""
        tool = self._tools.get(call.tool)
        if tool is None:
            return Observation(f"Error: there is no tool {call.tool!r}.", ok=False)
        asked = {"type": "tool_call", "id": f"call_{len(self._made)}", "name": call.tool, "args": dict(call.args)}
        try:
            answer = self._result(tool.ainvoke(asked)) if _only_async(tool) else tool.invoke(asked)
        except Exception as error:  # noqa: BLE001 - tools are the user's; what they raise is an observation
            return Observation(f"Error: {type(error).__name__}: {error}", ok=False)
        if not isinstance(answer, ToolMessage):
            return Observation(output_of(answer) if isinstance(answer, (str, list)) else answer)
        self._made.append((call, answer))
        ok = status_of(answer.content, error=answer.status == "error") == "ok"
        return Observation(output_of(answer.content), ok=ok)

    def success(self) -> bool | float | None:
        """See `Environment`."""
        if self._success is None:
            return None
        said: bool | float | None = self._result(self._success(self._task))
        return said

    def messages(self) -> list[BaseMessage]:
        """The calls since the reset as a conversation, for verdicts that want one."""
        found: list[BaseMessage] = [HumanMessage(self._task.request)]
        for call, answer in self._made:
            asked = {"type": "tool_call", "id": answer.tool_call_id, "name": call.tool, "args": dict(call.args)}
            found += [AIMessage("", tool_calls=[asked]), answer]
        return found

    def close(self) -> None:
        """Closes the event loop, if there is one. Twice is harmless."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _result(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value
        if self._loop is None:
            # One loop for good: connections of asynchronous clients belong to the loop they were made in.
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(_awaited(value))


def of_sandbox(sandbox: Sandbox) -> ToolsEnvironment:
    """The environment of a cold start's sandbox: its tools without its agent, its reset and its verdict.

    Raises:
        ConfigurationError: it has no tools that can be executed, or no reset.
    """
    if sandbox.reset is None:
        raise ConfigurationError("A sandbox that is searched needs `reset`: every path begins on its first day.")
    tools = sandbox.tools if sandbox.tools is not None else tools_of(sandbox.agent)
    reset, verdict = sandbox.reset, sandbox.verdict
    made = ToolsEnvironment(
        tools,
        reset=lambda _: reset(),
        success=None if verdict is None else lambda task: verdict(task.request, made.messages()),
    )
    return made


class RecordedEnvironment:
    """Recorded runs as a world: a call can be made where one of them made it, and gives what it gave.

    The runs of one request are a trie; its ends are those of the runs. A call that only reads is also answered where it
    was made at another point. Everything else fails.

    Args:
        runs: the runs, each with whether it went well; the first user message is the request.
        tools: the tools, for their schemas.
    """

    def __init__(self, runs: Iterable[tuple[Run, bool]], tools: Iterable[ToolLike]) -> None:
        self._tools = list(tools)
        self._roots: dict[str, _Place] = {}
        for run, good in runs:
            request = next((event.text for event in run.events if isinstance(event, UserMessage)), "")
            place = self._roots.setdefault(request, _Place())
            for step in _steps(run):
                led_to = place.next.setdefault(EnvironmentCall(step.tool, step.args).key, _Place()).seen(step)
                # What came after a call that failed came where that call was made.
                place = led_to if led_to.observation.ok else place
            place.good = place.good or good
        self._at = _Place()

    @property
    def tools(self) -> list[ToolLike]:
        """The tools."""
        return self._tools

    @property
    def tasks(self) -> list[Task]:
        """One task for each request."""
        return [Task(f"run-{number}", request) for number, request in enumerate(self._roots, start=1)]

    def reset(self, task: Task) -> None:
        """See `Environment`. A request that nobody recorded is a world in which nothing can be done."""
        self._at = self._roots.get(task.request, _Place())

    def possible(self) -> Sequence[EnvironmentCall]:
        """The calls that were made at this point."""
        return [place.call for place in self._at.next.values()]

    def step(self, call: EnvironmentCall) -> Observation:
        """See `Environment`."""
        found = self._at.next.get(call.key)
        if found is None:
            return Observation(NOT_RECORDED, ok=False)
        if found.observation.ok:
            self._at = found
        return found.observation

    def success(self) -> bool:
        """Return True if a run that went well ended here."""
        return self._at.good

    def snapshot(self) -> _Place:
        """The present point."""
        return self._at

    def restore(self, kept: _Place) -> None:
        """Back to a point."""
        self._at = kept


class _Place:
    """A point in a trie of calls."""

    __slots__ = ("call", "good", "next", "observation")

    def __init__(self) -> None:
        self.call = EnvironmentCall("", {})
        self.observation = Observation(None)
        self.next: dict[tuple[str, str], _Place] = {}
        self.good = False

    def seen(self, step: ExecutedCall) -> _Place:
        """The call that leads here, and what it gave."""
        if not self.call.tool:
            self.call, self.observation = (
                EnvironmentCall(step.tool, step.args),
                Observation(step.output, step.status == "ok"),
            )
        return self


def _steps(run: Run) -> list[ExecutedCall]:
    turns = [event for event in run.events if isinstance(event, Turn)]
    return [step for turn in turns for step in turn.steps if step.status in ("ok", "failed")]


def _executable(tool: ToolLike) -> BaseTool:
    if isinstance(tool, BaseTool):
        return tool
    if callable(tool) and not isinstance(tool, type):
        if inspect.iscoroutinefunction(tool):
            return StructuredTool.from_function(coroutine=tool)
        return StructuredTool.from_function(tool)
    raise ConfigurationError(f"{tool!r:.80} cannot be executed: pass LangChain tools or functions, not schemas.")


def _only_async(tool: BaseTool) -> bool:
    return isinstance(tool, StructuredTool) and tool.func is None and tool.coroutine is not None


def _takes_one(reset: Callable[..., Any]) -> bool:
    try:
        inspect.signature(reset).bind(None)
    except (TypeError, ValueError):
        return False
    return True


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def factory_of(environment: Factory | Environment | Sandbox, workers: int) -> Callable[[], Environment]:
    """Return what makes an environment for each worker.

    Raises:
        ConfigurationError: there are several workers, and one environment.
    """
    if isinstance(environment, (Environment, Sandbox)) and not isinstance(environment, type):
        if workers > 1:
            raise ConfigurationError("Each worker needs an environment of its own: pass a function that makes one.")
        given = environment
        return lambda: _environment(given)
    factory = environment
    return lambda: _environment(factory())


def _environment(made: Any) -> Environment:
    if isinstance(made, Sandbox):
        return of_sandbox(made)
    if not isinstance(made, Environment):
        raise ConfigurationError(
            f"An environment has tools, reset(task), step(call) and success(); {type(made).__name__} has not."
        )
    return made


def close(environment: Environment | None) -> None:
    """Closes an environment that can be closed."""
    ends = getattr(environment, "close", None)
    if callable(ends):
        ends()
