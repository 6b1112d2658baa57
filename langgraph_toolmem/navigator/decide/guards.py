"""The host's guards around the execution of a call, and what the decider must know of them.

A guard may edit a call or answer it without executing it: then the decider is told what was executed in its place, and
a tool that never ran has not failed, whatever the guard's words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from langchain_core.messages import ToolMessage
from langgraph import errors as langgraph_errors
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from langgraph_toolmem.base.errors import ConfigurationError

MARK: Final = "toolmem_guard"
"""Key of ``additional_kwargs`` of a tool's answer: no provider is sent it."""

_is_invalid_resume: Callable[[BaseException], bool] = getattr(langgraph_errors, "is_invalid_resume", lambda _: False)
"""Whether an interrupt was answered in a wrong form; the first releases of LangGraph 1.2 have no such forms."""

Guard = Callable[[Any, Callable[[Any], Any]], Any]
AsyncGuard = Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]


class RoundRecorder(Protocol):
    """A record of the executions that guards let through."""

    def wrap_tool_call(self, request: Any, execute: Callable[[Any], Any]) -> Any:
        """Has a call executed."""
        ...

    async def awrap_tool_call(self, request: Any, execute: Callable[[Any], Awaitable[Any]]) -> Any:
        """Async variant of `wrap_tool_call`."""
        ...


def guards(
    wrap: Guard | None, awrap: AsyncGuard | None, recorder: RoundRecorder | None
) -> tuple[Guard | None, AsyncGuard | None]:
    """Return what ``ToolNode`` takes: the host's guards outside, the recorder inside, and marks on what they changed.

    Raises:
        ConfigurationError: there is a guard for async runs only.
    """
    if awrap is not None and wrap is None:
        raise ConfigurationError("Give wrap_tool_call beside awrap_tool_call: without it a sync run has no guard.")
    if wrap is None:
        return (None, None) if recorder is None else (recorder.wrap_tool_call, recorder.awrap_tool_call)
    guard, aguard = wrap, awrap

    def guarded(request: Any, execute: Any) -> Any:
        ran: list[Mapping[str, Any]] = []

        def recorded(changed: Any) -> Any:
            ran.append(_call_of(changed))
            return execute(changed) if recorder is None else recorder.wrap_tool_call(changed, execute)

        try:
            answer = guard(request, recorded)
        except Exception as error:  # noqa: BLE001 - what is not the guard's own goes on
            answer = _refusal(error, request.tool_call, ran)
        return _marked(answer, request.tool_call, ran)

    async def aguarded(request: Any, execute: Any) -> Any:
        ran: list[Mapping[str, Any]] = []

        async def recorded(changed: Any) -> Any:
            ran.append(_call_of(changed))
            return await (execute(changed) if recorder is None else recorder.awrap_tool_call(changed, execute))

        try:
            answer = await aguard(request, recorded)  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001 - what is not the guard's own goes on
            answer = _refusal(error, request.tool_call, ran)
        return _marked(answer, request.tool_call, ran)

    return guarded, None if aguard is None else aguarded


def never_ran(answer: ToolMessage) -> bool:
    """Return True if a guard answered a call with an error in place of its tool."""
    mark = answer.additional_kwargs.get(MARK)
    return isinstance(mark, Mapping) and mark.get("ran") is False


def ran_instead(answer: ToolMessage) -> tuple[str, dict[str, Any]] | None:
    """Tool and arguments that a guard had executed in place of those asked for; None if it changed nothing."""
    mark = answer.additional_kwargs.get(MARK)
    if not isinstance(mark, Mapping) or "tool" not in mark:
        return None
    return str(mark["tool"]), dict(mark["args"])


def _call_of(request: Any) -> dict[str, Any]:
    """Return what is executed: `ToolNode` takes the tool that a request carries, whatever its call names."""
    tool = getattr(request, "tool", None)
    call = request.tool_call
    return {"name": call["name"] if tool is None else tool.name, "args": call["args"]}


def _refusal(error: Exception, call: Mapping[str, Any], ran: list[Mapping[str, Any]]) -> ToolMessage:
    """The answer to a call whose guard raised before anything ran; an error of the tool or of the graph goes on."""
    own = isinstance(error, GraphBubbleUp) or type(error).__module__.partition(".")[0] == "langgraph"
    if ran or own or _is_invalid_resume(error):
        raise error
    return ToolMessage(f"Error: {error!r}", name=call["name"], tool_call_id=call["id"], status="error")


def _marked(answer: Any, call: Mapping[str, Any], ran: list[Mapping[str, Any]]) -> Any:
    mark: dict[str, Any] = {}
    if not ran:
        mark = {"ran": False}
    elif (ran[-1]["name"], ran[-1]["args"]) != (call["name"], call["args"]):
        mark = {"tool": ran[-1]["name"], "args": dict(ran[-1]["args"])}
    return _with(answer, mark, call["id"]) if mark else answer


def _with(answer: Any, mark: Mapping[str, Any], call_id: str) -> Any:
    """An answer of any kind that a tool may give, with a mark on the message that answers the call."""
    if isinstance(answer, ToolMessage):
        mine = answer.tool_call_id == call_id and (answer.status == "error" or "tool" in mark)
        return (
            answer.model_copy(update={"additional_kwargs": {**answer.additional_kwargs, MARK: mark}})
            if mine
            else answer
        )
    if isinstance(answer, list):
        return [_with(each, mark, call_id) for each in answer]
    if isinstance(answer, Command) and isinstance(answer.update, Mapping):
        update = {
            key: _with(value, mark, call_id) if isinstance(value, list) else value
            for key, value in answer.update.items()
        }
        return Command(graph=answer.graph, update=update, resume=answer.resume, goto=answer.goto)
    return answer
