"""The world that is searched: it can be reset, called, and asked whether a task succeeded; and how to get back.

An `Environment` is small on purpose: it lists its tools, is reset to a task, executes a call, and says whether the task
is done. One that can also take a snapshot is brought back to a state at no cost; any other is reset and the calls on
the way are made again (`Cursor`). `ToolsEnvironment` is made of LangChain tools on a sandbox.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from pydantic_core import from_json, to_json

from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError, ToolMemoryError
from langgraph_toolmem.offline.coldstart import Sandbox, tools_of
from langgraph_toolmem.runs.messages import output_of, status_of
from langgraph_toolmem.runs.values import canon, canon_args

if TYPE_CHECKING:
    from langgraph_toolmem.runs.tools import ToolLike

Reset: TypeAlias = Callable[["Task"], Any] | Callable[[], Any]
Success: TypeAlias = Callable[["Task"], "bool | float | Awaitable[bool | float | None] | None"]
Factory: TypeAlias = Callable[[], "Environment | Sandbox"]

MAX_SNAPSHOTS: Final = 32
"""Snapshots kept per search, the latest used."""


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        id: its identity, unique among the tasks of a discovery.
        request: what the user says.
        data: what else its line said; for the environment.
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
class Observation:
    """The answer to a call.

    Attributes:
        output: JSON values or a text; anything else is made such.
        ok: False if the call failed or was refused; nothing is believed to have changed then.
    """

    output: Any
    ok: bool = True


@dataclass(frozen=True)
class Taken:
    """A call that was made, and what came back."""

    call: EnvironmentCall
    observation: Observation


@runtime_checkable
class Environment(Protocol):
    """A world with tools. One search at a time works with it; it is made, used and closed in one thread.

    Optional methods: ``snapshot()`` and ``restore(snapshot)``, to come back to a state without making calls again;
    ``close()``.
    """

    @property
    def tools(self) -> Iterable[ToolLike]:
        """The tools."""
        ...

    def reset(self, task: Task) -> None:
        """Brings the world to where the task begins."""
        ...

    def step(self, call: EnvironmentCall) -> Observation:
        """Executes a call. A call that fails is told as such, and not raised."""
        ...

    def success(self) -> bool | float | None:
        """Return True if the task is done in the present state (or a score from 0 to 1); None if it cannot tell."""
        ...


class Cursor:
    """An environment, and where it stands: the calls made since the last reset.

    Args:
        environment: the world.
        task: what it is reset to.
        most: calls that may be made, those made again included; None: any number.

    Attributes:
        steps: calls made for the first time.
        replayed: calls made again in order to come back to a state.
        resets: how often the world was reset.
        diverged: how often a call that was made again answered something else.
    """

    def __init__(self, environment: Environment, task: Task, *, most: int | None = None) -> None:
        self.environment, self.task, self.most = environment, task, most
        self.steps = self.replayed = self.resets = self.diverged = 0
        self._at: tuple[Taken, ...] | None = None
        self._snapshots: OrderedDict[tuple[tuple[str, str], ...], Any] = OrderedDict()
        self._can_restore = all(callable(getattr(environment, name, None)) for name in ("snapshot", "restore"))

    @property
    def spent(self) -> bool:
        """Return True if no further call may be made."""
        return self.most is not None and self.steps + self.replayed >= self.most

    def reset(self) -> None:
        """Brings the world to where the task begins."""
        self.environment.reset(self.task)
        self.resets += 1
        self._at = ()

    def begin_again(self) -> None:
        """Resets the world, and forgets all snapshots."""
        self._snapshots.clear()
        self.reset()

    def go(self, path: Sequence[Taken]) -> bool:
        """Comes to the state behind these changes; False if one of them answered something else than before.

        Args:
            path: the calls on the way that may have changed something; those that only read need not be made again.
        """
        wanted = tuple(path)
        if self._at is not None and self._at == wanted:
            return True
        if self._at is None or self._at != wanted[: len(self._at)]:
            self._back(wanted)
        assert self._at is not None
        for taken in wanted[len(self._at) :]:
            found = self._step(taken.call)
            self.replayed += 1
            if not _alike(found, taken.observation):
                self.diverged += 1
                self._at = None
                return False
            self._at = (*self._at, taken)
        return True

    def make(self, call: EnvironmentCall, *, reads: bool) -> Taken:
        """Makes a call where the environment stands.

        Args:
            call: the call.
            reads: it changes nothing, whatever it answers. Any other call that fails leaves a state behind that is not
                relied upon.
        """
        assert self._at is not None
        taken = Taken(call, self._step(call))
        self.steps += 1
        if not reads:
            self._at = (*self._at, taken) if taken.observation.ok else None
        return taken

    def _step(self, call: EnvironmentCall) -> Observation:
        """Return what the environment answers, in JSON values.

        Raises:
            ConfigurationError: it is no observation.
            ToolMemoryError: the environment raised something.
        """
        try:
            found: Any = self.environment.step(call)
        except ToolMemoryError:
            raise
        except Exception as error:
            self._at = None
            raise ToolMemoryError(
                f"step() raised {type(error).__name__} on a call of {call.tool} ({error}); a call that fails is told "
                "with Observation(what went wrong, ok=False)"
            ) from error
        if not isinstance(found, Observation):
            raise ConfigurationError(
                f"step() of an environment gives an Observation(output, ok), and not {type(found).__name__}."
            )
        return Observation(_plain(found.output), found.ok)

    def again(self, calls: Iterable[EnvironmentCall]) -> tuple[Taken, ...] | None:
        """Makes calls from the beginning, whatever they answer; None if one fails or no further call may be made."""
        self.reset()
        made: list[Taken] = []
        for call in calls:
            taken = None if self.spent else Taken(call, self._step(call))
            self.replayed += taken is not None
            self._at = None
            if taken is None or not taken.observation.ok:
                return None
            made.append(taken)
        return tuple(made)

    def success(self) -> float | None:
        """The environment's word on the present state, from 0 to 1; None if it has none.

        Raises:
            InputError: it is neither true, false, None nor a number from 0 to 1.
        """
        said = self.environment.success()
        if said is None:
            return None
        score = int(said) if isinstance(said, bool) else said
        if not is_share(score):
            raise InputError(f"success() gives true, false, None or a score from 0 to 1, not {said!r:.60}.")
        return float(score)

    def keep(self) -> None:
        """Takes a snapshot of the present state, if the environment can."""
        if not self._can_restore or self._at is None:
            return
        key = _keys(self._at)
        if key not in self._snapshots:
            self._snapshots[key] = (self.environment.snapshot(), self._at)  # type: ignore[attr-defined]
            if len(self._snapshots) > MAX_SNAPSHOTS:
                self._snapshots.popitem(last=False)

    def _back(self, wanted: tuple[Taken, ...]) -> None:
        """To the longest part of the way that a snapshot is of, or to the beginning."""
        for length in range(len(wanted), -1, -1) if self._snapshots else ():
            kept = self._snapshots.get(_keys(wanted[:length]))
            if kept is not None and kept[1] == wanted[:length]:
                self._snapshots.move_to_end(_keys(wanted[:length]))
                self.environment.restore(kept[0])  # type: ignore[attr-defined]
                self._at = wanted[:length]
                return
        self.reset()


def _keys(path: Sequence[Taken]) -> tuple[tuple[str, str], ...]:
    return tuple(taken.call.key for taken in path)


def _alike(one: Observation, other: Observation) -> bool:
    return one.ok == other.ok and canon(one.output) == canon(other.output)


def _plain(output: Any) -> Any:
    """Whatever a tool answers as JSON values; as a text if that cannot be."""
    try:
        return from_json(to_json(output, fallback=str, bytes_mode="base64", inf_nan_mode="strings"))
    except (ValueError, RecursionError):  # it contains itself, or goes very deep
        return str(output)


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
