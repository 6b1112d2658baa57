"""Running a step and recording a tool call, the same in a node and in middleware."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langgraph_toolmem.base import threads
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.runs.messages import status_of
from langgraph_toolmem.turn.ask import Proceed, StepGenerator, adrive, drive
from langgraph_toolmem.turn.call import NOTHING, Call, Scope, StepOutput
from langgraph_toolmem.turn.hints import point_of, turn_of
from langgraph_toolmem.turn.host import (
    ErrorLog,
    annotate,
    emit,
    env_mode,
    is_active,
    read_key,
    thread_id_of,
    user_id_of,
)
from langgraph_toolmem.turn.step import ResultSource, Step

MAX_TURNS: Final = 256
_NEVER_RAN: Final = ("rejected", "unanswered")


class StepRunner:
    """Runs a step at model calls, once in its scope, and passes over its errors."""

    def __init__(self, step: Step[Any]) -> None:
        self.step = step
        self._memo = Memo(step.scope)

    def output(self, call: Call) -> StepGenerator[StepOutput]:
        """Return the step's output at a model call; NOTHING where it fails, or must be silent."""
        step = self.step
        if (call.held_out or not is_active()) and not step.learns:
            return NOTHING
        forgettings = step.core.purge_count
        try:
            kept = self._memo.get(call, forgettings)
            if kept is None:
                found = step.compute(call)
                if isinstance(found, Generator):
                    found = yield from found
                kept = self._memo.put(call, forgettings, found)
            if kept.broken:
                return NOTHING
            output = step.render(call, kept.found)
            if output.event is not None and output.event != kept.event:
                kept.event = output.event
                report(step.role, output, call.runtime)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            step.failed(error)
            with suppress(Exception):
                self._memo.put(call, forgettings, None, broken=True)
            return NOTHING
        return output

    def at_end(self, call: Call) -> StepGenerator[Any]:
        """Run the step at the end of a run."""
        try:
            output = self.step.on_end(call)
            if isinstance(output, Generator):
                output = yield from output
            report(self.step.role, output, call.runtime)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self.step.failed(error)

    def at_error(self, call: Call, error: Exception, failed_call: str | None) -> None:
        """Run the step at an error that ends the run."""
        try:
            self.step.on_error(call, error, failed_call)
        except GraphBubbleUp:
            raise
        except Exception as failure:  # noqa: BLE001 - the memory must never hurt the host
            self.step.failed(failure)


def report(role: str, output: StepOutput, runtime: Any) -> None:
    """Write an output's stream event, and its notes on the current span."""
    if output.notes:
        annotate({"toolmem.node": role, **output.notes})
    if output.event is not None:
        emit(runtime, {"node": role, **output.event})


@dataclass(slots=True)
class Kept:
    """A kept result of a step.

    Attributes:
        found: the result.
        point: the point of the run and the offered tools that it holds for; None for the whole user turn.
        event: the latest event that reported it.
        broken: True if `compute` failed: the step is silent in this scope.
    """

    found: Any
    point: tuple[str, frozenset[str]] | None
    event: Any = None
    broken: bool = False


class Memo:
    """Keeps a step's results for the `MAX_TURNS` user turns used last. Safe to use from several threads.

    A result is found by the thread, the user and the user's message. Where that message was summarised away, nobody has
    spoken since, so the thread's latest result holds on. Without a thread id (no checkpointer) a run that begins with
    the same message again is another run, and nothing is kept of messages without ids: another conversation may have
    the same words. After a user was forgotten everything is computed again.

    Args:
        scope: of the step; "call": nothing is kept.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._lock = threads.lock()
        self._kept: OrderedDict[tuple[Any, ...], Kept] = OrderedDict()

    def get(self, call: Call, forgettings: int) -> Kept | None:
        """Return the result for this call; None if there is none."""
        if self._scope == "call" or _begins(call):
            return None
        whose, turn = (call.thread_id, call.user_id, forgettings), turn_of(call.messages)
        if not turn and call.thread_id is None:
            return None
        with self._lock:
            key = (*whose, turn) if turn else next((key for key in reversed(self._kept) if key[:-1] == whose), whose)
            kept = self._kept.get(key)
            if kept is None or kept.point not in (None, self._point(call)):
                return None
            self._kept.move_to_end(key)
            return kept

    def put(self, call: Call, forgettings: int, found: Any, *, broken: bool = False) -> Kept:
        """Keep a result, and return the one that holds: if another thread was faster, its result."""
        kept = Kept(found, self._point(call), broken=broken)
        if self._scope == "call":
            return kept
        key = (call.thread_id, call.user_id, forgettings, turn_of(call.messages))
        with self._lock:
            if self._scope == "point" or _begins(call) or broken:
                self._kept[key] = kept
            kept = self._kept.setdefault(key, kept)
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_TURNS:
                self._kept.popitem(last=False)
            return kept

    def _point(self, call: Call) -> tuple[str, frozenset[str]] | None:
        return (point_of(call.messages), frozenset(call.tools or ())) if self._scope == "point" else None


def _begins(call: Call) -> bool:
    """Return True if nothing may be kept of earlier calls: an unnamed run that begins, or that has no ids."""
    last = call.messages[-1] if call.messages else None
    return call.thread_id is None and (isinstance(last, HumanMessage) or not getattr(last, "id", None))


class CallRecorder:
    """Executes tool calls and reports to the memory what was executed, and its result.

    Made for ``wrap_tool_call``: put it innermost, so that it sees the arguments after everybody else changed them,
    and each attempt of a retry. Its own failures never reach the host.

    Args:
        core: of the memory.
        errors: logs its failures.
        messages_key: key of the messages in the host's state.
        source: has results of prefetched calls; None if nothing is prefetched.
    """

    def __init__(
        self, core: Core, *, errors: ErrorLog, messages_key: str = "messages", source: ResultSource | None = None
    ) -> None:
        self._core, self._errors, self._source = core, errors, source
        self._messages_key = messages_key

    def wrap(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
        """Execute and record a call."""
        try:
            return drive(lambda: self._around(request), execute)
        except GraphBubbleUp:
            self._paused(request)
            raise

    async def awrap(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
        """Execute and record a call."""
        try:
            return await adrive(lambda: self._around(request), execute)
        except GraphBubbleUp:
            self._paused(request)
            raise

    def _around(self, request: ToolCallRequest) -> StepGenerator[Any]:
        asked = request
        if self._source is not None and env_mode() != "off":
            asked = yield from self._source.serve(request)
        try:
            result = yield Proceed(asked)
        except Exception:  # an interrupt never gets here: nothing was executed yet
            self._record(request, "failed", raised=True)
            raise
        if (status := _outcome(result, request.tool_call["id"])) is not None:
            self._record(request, status)
        return result

    def _paused(self, request: ToolCallRequest) -> None:
        if self._source is not None and env_mode() != "off":
            self._source.paused(request)

    def _record(self, request: ToolCallRequest, status: Literal["ok", "failed"], *, raised: bool = False) -> None:
        if env_mode() == "off":
            return
        call = request.tool_call
        try:
            self._core.lifecycle.executed(
                list(read_key(request.state, self._messages_key) or ()),
                call["id"] or "",
                tool=call["name"],
                args=call["args"],  # as asked for: the host injects its own later
                status=status,
                raised=raised,
                **identity_of(request),
            )
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)


def identity_of(request: ToolCallRequest) -> dict[str, str | None]:
    """Return thread and user of a tool call."""
    runtime: Any = request.runtime
    config = getattr(runtime, "config", None)
    return {"thread_id": thread_id_of(config), "user_id": user_id_of(config, runtime)}


def _outcome(result: Any, call_id: str | None) -> Literal["ok", "failed"] | None:
    """Return the outcome of a call that returned; None if it was refused before the tool began."""
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
