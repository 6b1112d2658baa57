"""Guards of the host around the execution of a call, and their traces for the decider.

A guard may edit a call, or answer it without executing it. Then the decider sees the executed call, and a tool that
never ran has not failed, for any text of the guard.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.messages import ToolMessage
from langgraph import errors as langgraph_errors
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from langgraph_toolmem.base.errors import ConfigurationError

GUARD_MARK: Final = "toolmem_guard"
"""Key of ``additional_kwargs`` of a tool's answer; it is not sent to providers."""

Guard = Callable[[Any, Callable[[Any], Any]], Any]
AsyncGuard = Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]


def _is_invalid_resume(error: BaseException) -> bool:
    """Return True if an interrupt was answered in a wrong form."""
    # The first releases of LangGraph 1.2 do not have such forms.
    is_invalid: Callable[[BaseException], bool] | None = getattr(langgraph_errors, "is_invalid_resume", None)
    return is_invalid is not None and is_invalid(error)


class GuardedCall(NamedTuple):
    """The call that ran after a guard's edit."""

    tool: str
    args: dict[str, Any]


def guards(
    guard: Guard | None, aguard: AsyncGuard | None, record: Guard, arecord: AsyncGuard
) -> tuple[Guard, AsyncGuard | None]:
    """Return the arguments of ``ToolNode``: the host's guards outside, the memory's inside, and marks on changes.

    A guard for async runs alone raises ConfigurationError.
    """
    if guard is None:
        if aguard is not None:
            raise ConfigurationError("Give wrap_tool_call with awrap_tool_call: without it a sync run has no guard.")
        return record, arecord

    # The memory's guard is inside: it records the call that passes the host's guard, not the original one.
    def guarded(request: Any, execute: Any) -> Any:
        ran: list[dict[str, Any]] = []

        def recorded(changed: Any) -> Any:
            ran.append(_executed(changed))
            return record(changed, execute)

        try:
            return _marked(guard(request, recorded), request.tool_call, ran)
        except Exception as error:  # noqa: BLE001 - other errors than the guard's own are raised again
            return _marked(_refusal(error, request.tool_call, ran), request.tool_call, ran)

    async def aguarded(request: Any, execute: Any) -> Any:
        ran: list[dict[str, Any]] = []

        async def recorded(changed: Any) -> Any:
            ran.append(_executed(changed))
            return await arecord(changed, execute)

        try:
            return _marked(await aguard(request, recorded), request.tool_call, ran)  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001 - other errors than the guard's own are raised again
            return _marked(_refusal(error, request.tool_call, ran), request.tool_call, ran)

    if aguard is None:
        return guarded, None
    return guarded, aguarded


def never_ran(answer: ToolMessage) -> bool:
    """Return True if a guard answered a call with an error in place of its tool."""
    return bool(answer.additional_kwargs.get(GUARD_MARK, {}).get("ran") is False)


def ran_instead(answer: ToolMessage) -> GuardedCall | None:
    """Return the call that ran instead; None if the guard did not change it."""
    mark = answer.additional_kwargs.get(GUARD_MARK, {})
    if "tool" not in mark:
        return None
    return GuardedCall(str(mark["tool"]), dict(mark["args"]))


def _executed(request: Any) -> dict[str, Any]:
    """Return the executed call as plain values."""
    name, tool = request.tool_call["name"], getattr(request, "tool", None)
    # `ToolNode` takes the tool of the request, even if the call names another one.
    if tool is not None:
        name = tool.name
    return {"tool": name, "args": dict(request.tool_call["args"])}


def _refusal(error: Exception, call: Mapping[str, Any], ran: list[dict[str, Any]]) -> ToolMessage:
    """Return the answer to a call whose guard raised before the tool ran; raise an error of the tool or the graph."""
    # Interrupts and LangGraph's own errors steer the graph: an answer in their place would swallow them.
    is_of_graph = isinstance(error, GraphBubbleUp) or type(error).__module__.partition(".")[0] == "langgraph"
    if ran or is_of_graph or _is_invalid_resume(error):
        raise error
    return ToolMessage(f"Error: {error!r}", name=call["name"], tool_call_id=call["id"], status="error")


def _marked(answer: Any, call: Mapping[str, Any], ran: list[dict[str, Any]]) -> Any:
    """Return an answer with a mark on it, if another call than the requested one ran, or none."""
    if not ran:
        return _with(answer, {"ran": False}, call["id"])
    # A guard may execute a call again after an error; the last execution gave the answer.
    asked = {"tool": call["name"], "args": call["args"]}
    if ran[-1] == asked:
        return answer
    return _with(answer, ran[-1], call["id"])


def _with(answer: Any, mark: Mapping[str, Any], call_id: str) -> Any:
    """Return a tool's answer of any kind with a mark on the message that answers the call."""
    if isinstance(answer, ToolMessage):
        # "Never ran" is only for errors: a guard that answers from a cache has answered.
        if answer.tool_call_id != call_id or ("ran" in mark and answer.status != "error"):
            return answer
        return answer.model_copy(update={"additional_kwargs": {**answer.additional_kwargs, GUARD_MARK: dict(mark)}})
    # `ToolNode` takes a list of messages and Commands, too, and a Command has its messages among its updates.
    if isinstance(answer, list):
        return [_with(part, mark, call_id) for part in answer]
    if isinstance(answer, Command) and isinstance(answer.update, Mapping):
        update = {key: _with(value, mark, call_id) for key, value in answer.update.items()}
        return Command(graph=answer.graph, update=update, resume=answer.resume, goto=answer.goto)
    return answer
