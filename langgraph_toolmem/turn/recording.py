"""What a recorder does around the execution of one tool call; shared by the `Recorder` node and the middleware."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, Literal

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.runs.outputs import status_of
from langgraph_toolmem.turn.host import ErrorLog, read_key, run_id_of, user_id_of

ToolResult = ToolMessage | Command[Any]
_NEVER_RAN: Final = ("rejected", "unanswered")


class CallRecorder:
    """Executes a tool call as asked, and tells the memory what was executed and what came of it.

    Made for ``wrap_tool_call``: put it innermost, so that it sees the arguments after everybody else changed them,
    and each attempt of a retry. Its own failures never reach the host.

    Args:
        memory: the memory.
        errors: where failures of its own are logged.
        messages_key: key of the messages in the host's state.
    """

    def __init__(self, memory: ToolMemory, *, errors: ErrorLog, messages_key: str = "messages") -> None:
        self._memory = memory
        self._messages_key = messages_key
        self._errors = errors

    def wrap(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
        """Executes the call."""
        try:
            result = execute(request)
        except GraphBubbleUp:  # an interrupt: nothing was executed yet
            raise
        except Exception:
            self._tell(request, "failed", raised=True)
            raise
        if (status := _outcome(result, request.tool_call["id"])) is not None:
            self._tell(request, status)
        return result

    async def awrap(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
        """Executes the call."""
        try:
            result = await execute(request)
        except GraphBubbleUp:
            raise
        except Exception:
            await self._atell(request, "failed", raised=True)
            raise
        if (status := _outcome(result, request.tool_call["id"])) is not None:
            await self._atell(request, status)
        return result

    def _tell(self, request: ToolCallRequest, status: Literal["ok", "failed"], *, raised: bool = False) -> None:
        try:
            messages, call_id, told = self._what(request, status)
            self._memory.executed(messages, call_id, raised=raised, **told)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)

    async def _atell(self, request: ToolCallRequest, status: Literal["ok", "failed"], *, raised: bool = False) -> None:
        try:
            messages, call_id, told = self._what(request, status)
            await self._memory.aexecuted(messages, call_id, raised=raised, **told)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)

    def _what(self, request: ToolCallRequest, status: str) -> tuple[list[Any], str, dict[str, Any]]:
        call = request.tool_call
        messages = read_key(request.state, self._messages_key) or ()
        return (
            list(messages),
            call["id"] or "",
            {
                "tool": call["name"],
                "args": call["args"],  # as asked for: what the host injects comes later
                "status": status,
                **whose(request),
            },
        )


def whose(request: ToolCallRequest) -> dict[str, str | None]:
    """Run id and user id of a tool call."""
    runtime: Any = request.runtime
    config = getattr(runtime, "config", None)
    return {"run_id": run_id_of(config), "user_id": user_id_of(config, runtime)}


def _outcome(result: Any, call_id: str | None) -> Literal["ok", "failed"] | None:
    """What came of a call that returned; None if it was refused before the tool began."""
    answer = next((m for m in _messages_in(result) if isinstance(m, ToolMessage) and m.tool_call_id == call_id), None)
    if answer is None:  # a Command that answers nothing, such as a handoff
        return "ok"
    status = status_of(answer.content, error=answer.status == "error")
    return None if status in _NEVER_RAN else "ok" if status == "ok" else "failed"


def _messages_in(result: Any) -> Iterator[Any]:
    if isinstance(result, Command):
        update = result.update
        found = update.get("messages") if isinstance(update, dict) else update
        yield from found if isinstance(found, Iterable) and not isinstance(found, (str, bytes)) else ()
    elif isinstance(result, (list, tuple)):
        for part in result:
            yield from _messages_in(part)
    else:
        yield result
