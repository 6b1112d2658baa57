"""Steps as LangChain middleware: around the model, around tools, and at the end of a run; sync and async."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any, Final, TypeVar

from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command

from langgraph_toolmem.core.core import Core
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.turn.ask import Proceed, StepGenerator, adrive, drive
from langgraph_toolmem.turn.call import Call, StepOutput
from langgraph_toolmem.turn.hints import composed, placed
from langgraph_toolmem.turn.host import ErrorLog, config_of, env_mode, is_active, thread_id_of, user_id_of
from langgraph_toolmem.turn.run import CallRecorder, StepRunner, identity_of, report
from langgraph_toolmem.turn.step import ResultSource, Step

logger = logging.getLogger("langgraph_toolmem.middleware")

T = TypeVar("T")

RECORDER: Final = "recorder"
OUTPUTS: Final = "toolmem_outputs"
"""Key of a request's state: outputs of the middleware around, for the one inside."""
MODEL_CALL_COUNTS: Final = ("run_model_call_count", "thread_model_call_count")
"""Counters of ModelCallLimitMiddleware. It adds one after each model step, a shortcut's too."""
_NO_TOOL: Final = (None, "auto", "any", "required", "none")
"""Values of ``tool_choice`` that name no tool."""
_NOT_OVER: Final = (GraphBubbleUp, CancelledError)
"""An interrupt, a drain, a cancelled call: the run is not over, or nobody wants it any more."""


class StepsMiddleware(AgentMiddleware[Any, Any, Any]):
    """Some steps of a memory in an agent. It never raises into the host's run.

    Args:
        core: of the memory.
        steps: in their order, from the outside in.
        inner: True for the innermost middleware of the memory: it records each model turn and each execution (arguments
            as edited, each attempt of a retry), and puts hints into the request.
        outermost: True if no middleware of the memory comes before: an error that gets here ends the run.
        name: unique in the agent.
        source: has results of prefetched calls.
    """

    def __init__(
        self,
        core: Core,
        steps: Iterable[Step[Any]],
        *,
        inner: bool,
        outermost: bool,
        name: str,
        source: ResultSource | None = None,
    ) -> None:
        super().__init__()
        self._core, self._steps, self._name = core, tuple(steps), name
        self._inner, self._outermost = inner, outermost
        self._errors = ErrorLog(name, logger)
        self._runners = [StepRunner(step) for step in self._steps]
        self._prefetcher = next((step.prefetcher for step in self._steps if step.prefetcher is not None), None)
        self._recorder = CallRecorder(core, errors=self._errors, source=source) if inner else None
        self.tools = [tool for step in self._steps for tool in step.tools]

    @property
    def name(self) -> str:
        """Return the name of the middleware in traces and Studio."""
        return self._name

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Run the steps, and call the model if none of them answers."""
        return drive(lambda: self._around_model(request), handler)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Run the steps, and call the model if none of them answers."""
        return await adrive(lambda: self._around_model(request), handler)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Execute the call and record it; act on an error that ends the run."""
        try:
            return handler(request) if self._recorder is None else self._recorder.wrap(request, handler)
        except Exception as error:
            self._gave_up(request, error)
            raise

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Execute the call and record it; act on an error that ends the run."""
        try:
            return await (handler(request) if self._recorder is None else self._recorder.awrap(request, handler))
        except Exception as error:
            await asyncio.to_thread(self._gave_up, request, error)
            raise

    def _around_model(self, request: ModelRequest[Any]) -> StepGenerator[Any]:
        call = None if env_mode() == "off" else self._or_log(lambda: self._call_of(request))
        if call is None:
            return (yield Proceed(request))
        asked = request
        outputs: list[StepOutput] = list(_state(request).get(OUTPUTS, ()))
        for runner in self._runners:
            output = yield from runner.output(call)
            if output.answer is not None:
                return _in_its_place(output.answer, request)
            asked = self._without(asked, call, output)
            outputs.append(output)
        if self._inner:
            asked = self._or_log(lambda: self._hinted(asked, call, outputs)) or asked
        else:
            state: Any = {**request.state, "messages": call.messages, OUTPUTS: outputs}
            asked = asked.override(state=state)
        batch = None if self._prefetcher is None or not is_active() else self._prefetcher.begin(call)
        try:
            response = yield Proceed(asked, None if batch is None else batch.listener)
        except BaseException as error:
            if self._prefetcher is not None and batch is not None:
                self._prefetcher.dropped(batch)
            if isinstance(error, Exception) and not isinstance(error, _NOT_OVER):
                self._broke(call, error, None)
            raise
        if self._inner:
            self._or_log(lambda: self._learn(call, response))
        if self._prefetcher is not None and batch is not None:
            response = answered(response, self._prefetcher.answered(batch, turn_of_response(response)))
        return response

    def _call_of(self, request: ModelRequest[Any]) -> Call:
        config = config_of()
        call = Call(
            request.state["messages"],
            thread_id_of(config, request.runtime),
            user_id_of(config, request.runtime),
            request.state,
            request.runtime,
            tools=self._core.catalogue.offered(request.tools),
            offered=request.tools,
            insisted=frozenset(insisted_on(request)),
            model=request.model,
            settings=request.model_settings,
            tool_choice=request.tool_choice,
            recorded=True,
        )
        call.held_out = is_active() and self._core.held_out(call.messages, call.thread_id)
        return call

    def _without(self, request: ModelRequest[Any], call: Call, output: StepOutput) -> ModelRequest[Any]:
        """Return the request without the tools that a step took out, and note those that are left in the call."""
        left = [tool for tool in request.tools if name_of(tool) not in output.left_out] if output.left_out else []
        if output.left_out and len(left) != len(request.tools):
            call.offered, call.tools = left, self._core.catalogue.offered(left)
            return request.override(tools=left)
        return request

    def _hinted(self, request: ModelRequest[Any], call: Call, outputs: Sequence[StepOutput]) -> ModelRequest[Any]:
        text = composed(outputs, call.messages, read=lambda: self._core.read(call.messages, call.thread_id))
        if not text:
            return request
        system, messages, settings = placed(
            text,
            system=request.system_message,
            messages=request.messages,
            model=request.model,
            settings=request.model_settings,
        )
        return request.override(system_message=system, messages=messages, model_settings=dict(settings))

    def _learn(self, call: Call, response: Any) -> None:
        who = {"thread_id": call.thread_id, "user_id": call.user_id}
        new = self._core.lifecycle.after_model(call.messages, turn_of_response(response), **who)
        report(RECORDER, StepOutput(event={"learned_turns": new}, notes={"toolmem.learned_turns": new}), call.runtime)

    def _gave_up(self, request: ToolCallRequest, error: Exception) -> None:
        if isinstance(error, _NOT_OVER) or not self._outermost or env_mode() == "off":
            return
        who: dict[str, Any] = identity_of(request)
        call_id, messages = request.tool_call["id"] or "", request.state["messages"]
        self._or_log(lambda: self._core.lifecycle.gave_up(messages, call_id, **who))
        self._broke(Call(messages, **who), error, call_id)

    def _broke(self, call: Call, error: Exception, failed_call: str | None) -> None:
        for runner in self._runners:
            if runner.step.ends:
                runner.at_error(call, error, failed_call)

    def _or_log(self, do: Callable[[], T]) -> T | None:
        try:
            return do()
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return None


class EndingMiddleware(StepsMiddleware):
    """Steps of which one acts at the end of the run."""

    def after_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """Run the steps at the end of a run."""
        drive(lambda: self._over(state, runtime))

    async def aafter_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """Run the steps at the end of a run."""
        await adrive(lambda: self._over(state, runtime))

    def _over(self, state: Any, runtime: Runtime[Any]) -> StepGenerator[Any]:
        config = config_of()
        who = (thread_id_of(config, runtime), user_id_of(config, runtime))
        call = Call(state["messages"], *who, state, runtime)
        for runner in self._runners:
            if runner.step.ends and env_mode() != "off":
                yield from runner.at_end(call)


def steps_middleware(core: Core, steps: Sequence[Step[Any]], **how: Any) -> StepsMiddleware:
    """Return the middleware of some steps; see `StepsMiddleware` for the arguments."""
    return (EndingMiddleware if any(step.ends for step in steps) else StepsMiddleware)(core, steps, **how)


def _state(request: ModelRequest[Any]) -> Mapping[str, Any]:
    return request.state


def insisted_on(request: ModelRequest[Any]) -> Iterator[str]:
    """Yield names of the tools that the request cannot do without."""
    choice = request.tool_choice
    if isinstance(choice, Mapping):
        choice = name_of(dict(choice))
    if choice not in _NO_TOOL and isinstance(choice, str):
        yield choice
    for spec in getattr(request.response_format, "schema_specs", None) or ():
        yield spec.name


def _in_its_place(message: AIMessage, request: ModelRequest[Any]) -> ExtendedModelResponse[Any]:
    """Return a message in the model's place, with the name that ``create_agent(name=...)`` gives the model's own."""
    message.name = message.name or (config_of() or {}).get("metadata", {}).get("lc_agent_name")
    counts = {name: _state(request).get(name, 0) - 1 for name in MODEL_CALL_COUNTS}
    return ExtendedModelResponse(ModelResponse(result=[message]), Command(update=counts))


def turn_of_response(response: Any) -> list[Any]:
    """Return the messages of a model response, whatever form the next middleware gave it."""
    if isinstance(response, ExtendedModelResponse):
        response = response.model_response
    return [response] if isinstance(response, AIMessage) else list(response.result)


def answered(response: Any, messages: list[Any]) -> Any:
    """Return the response with other messages in it."""
    if isinstance(response, ExtendedModelResponse):
        return replace(response, model_response=replace(response.model_response, result=messages))
    return messages[0] if isinstance(response, AIMessage) else replace(response, result=messages)
