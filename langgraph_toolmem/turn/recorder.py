"""Recording around the execution of one tool call; shared by the `Recorder` node and the middleware."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langgraph_toolmem.core.core import Core
from langgraph_toolmem.runs.messages import status_of
from langgraph_toolmem.turn import env_mode
from langgraph_toolmem.turn.ahead import Server
from langgraph_toolmem.turn.ask import Proceed, StepGenerator
from langgraph_toolmem.turn.host import ErrorLog, read_key, thread_id_of, user_id_of

_NEVER_RAN: Final = ("rejected", "unanswered")


class CallRecorder:
    """Has a tool call executed as asked, and tells the memory what was executed and what came of it.

    Made for ``wrap_tool_call``: put it innermost, so that it sees the arguments after everybody else changed them,
    and each attempt of a retry. Its own failures never reach the host.

    Args:
        core: of the memory.
        errors: where failures of its own are logged.
        messages_key: key of the messages in the host's state.
        server: may have the result of a call already; None: nobody works ahead.
    """

    def __init__(
        self, core: Core, *, errors: ErrorLog, messages_key: str = "messages", server: Server | None = None
    ) -> None:
        self._core = core
        self._messages_key = messages_key
        self._errors = errors
        self._server = server

    def around(self, request: ToolCallRequest) -> StepGenerator[Any]:
        """Has the call executed."""
        asked = request
        if self._server is not None:
            asked = yield from self._server.serve(request)
        try:
            result = yield Proceed(asked)
        except Exception:  # an interrupt never gets here: nothing was executed yet
            self._tell(request, "failed", raised=True)
            raise
        if (status := _outcome(result, request.tool_call["id"])) is not None:
            self._tell(request, status)
        return result

    def paused(self, request: ToolCallRequest) -> None:
        """An interrupt stopped the call."""
        if self._server is not None:
            self._server.paused(request)

    def _tell(self, request: ToolCallRequest, status: Literal["ok", "failed"], *, raised: bool = False) -> None:
        if env_mode.mode() == "off":
            return
        call = request.tool_call
        try:
            self._core.lifecycle.executed(
                list(read_key(request.state, self._messages_key) or ()),
                call["id"] or "",
                tool=call["name"],
                args=call["args"],  # as asked for: what the host injects comes later
                status=status,
                raised=raised,
                **identity_of(request),
            )
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)


def identity_of(request: ToolCallRequest) -> dict[str, str | None]:
    """Thread and user of a tool call."""
    runtime: Any = request.runtime
    config = getattr(runtime, "config", None)
    return {"thread_id": thread_id_of(config), "user_id": user_id_of(config, runtime)}


def _outcome(result: Any, call_id: str | None) -> Literal["ok", "failed"] | None:
    """Return what came of a call that returned; None if it was refused before the tool began."""
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
