"""Steps as LangChain middleware: around the model, around tools, and at the end of a run; sync and async."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command
from typing_extensions import NotRequired, TypedDict, get_type_hints

from langgraph_toolmem.core.core import Core
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.turn import env_mode
from langgraph_toolmem.turn.ahead import Server
from langgraph_toolmem.turn.ask import Proceed, StepGenerator, adrive, drive
from langgraph_toolmem.turn.call import NOTHING, Call, StepOutput
from langgraph_toolmem.turn.host import ErrorLog, config_of, emit, named, thread_id_of, user_id_of
from langgraph_toolmem.turn.memo import Memo
from langgraph_toolmem.turn.placement import placed
from langgraph_toolmem.turn.recorder import CallRecorder, identity_of
from langgraph_toolmem.turn.shown import Block, composed
from langgraph_toolmem.turn.step import Step
from langgraph_toolmem.turn.telemetry import annotate

logger = logging.getLogger("langgraph_toolmem.middleware")

RECORDER: Final = "recorder"
MODEL_CALL_COUNTS: Final = ("run_model_call_count", "thread_model_call_count")
"""Where ModelCallLimitMiddleware counts. It adds one after each model step, a shortcut's too."""
_NO_TOOL: Final = (None, "auto", "any", "required", "none")
"""Values of ``tool_choice`` that name no tool."""
_NOT_OVER: Final = (GraphBubbleUp, CancelledError)
"""An interrupt, a drain, a cancelled call: the run is not over, or nobody wants it any more."""


class StepsMiddleware(AgentMiddleware[Any, Any, Any]):
    """Some steps of a memory in an agent. It never raises into the host's run.

    Args:
        core: of the memory.
        steps: in their order, from the outside in.
        recorder: learn each model turn, and each tool call as executed: arguments as edited, each attempt of a retry.
        outermost: no middleware of the memory comes before it: an error that gets here is nobody's, and ends the run.
        inner: stands innermost: puts hints into the request; None: this one. server: may have a call's result already.
        name: unique in the agent.
    """

    def __init__(
        self,
        core: Core,
        steps: Iterable[Step[Any]],
        *,
        recorder: bool,
        outermost: bool,
        name: str,
        server: Server | None = None,
        inner: StepsMiddleware | None = None,
    ) -> None:
        super().__init__()
        self._inner = inner
        # hints of the outer middleware, and the history as it was read there, by `id` of the state
        self._passed: dict[int, tuple[list[Block], list[Any]]] = {}
        self._core, self._steps, self._name = core, tuple(steps), name
        self._outermost = outermost
        self._own_errors = ErrorLog(name, logger)
        self._memos = {step: Memo(step.scope) for step in self._steps}
        self._ahead = next((step.ahead for step in self._steps if step.ahead is not None), None)
        self._recorder = CallRecorder(core, errors=self._own_errors, server=server) if recorder else None
        self.tools = [tool for step in self._steps for tool in step.tools]
        if keeps := {key: _private(*kept) for step in self._steps for key, kept in step.keeps.items()}:
            make: Any = TypedDict  # the keys are known when the agent is made, not when types are checked
            self.state_schema = make("MemoryAgentState", {**get_type_hints(AgentState, include_extras=True), **keeps})

    @property
    def name(self) -> str:
        """Of the middleware, in traces and Studio."""
        return self._name

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Has the steps say what they have to say, and the model called if none of them answers."""
        return drive(lambda: self._around_model(request), handler)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Has the steps say what they have to say, and the model called if none of them answers."""
        return await adrive(lambda: self._around_model(request), handler)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Has the call executed and learns what came of it; notes an error on its way out."""
        try:
            return drive(lambda: self._around_tool(request), handler)
        except GraphBubbleUp:
            self._paused(request)
            raise

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Has the call executed and learns what came of it; notes an error on its way out."""
        try:
            return await adrive(lambda: self._around_tool(request), handler)
        except GraphBubbleUp:
            self._paused(request)
            raise

    # --- one body each ---

    def _around_model(self, request: ModelRequest[Any]) -> StepGenerator[Any]:
        if env_mode.mode() == "off":
            return (yield Proceed(request))
        passed, history = self._passed.get(id(request.state), ((), []))
        call = self._call_of(request, history)
        asked, update = request, dict[str, Any]()
        blocks = list(passed)
        for step in self._steps:
            said = yield from self._said(step, call)
            if said.answer is not None:
                return _in_its_place(said.answer, request)
            update |= {key: value for key, value in said.state.items() if key in step.keeps}
            asked = self._without(asked, call, said)
            blocks.append(said.block(step.role))
        if self._inner is None:
            asked = self._hinted(asked, call, blocks)
        else:
            self._inner._passed[id(request.state)] = blocks, call.messages
        under_way = None if self._ahead is None or not env_mode.shows() else self._ahead.begin(call)
        try:
            response = yield from self._asked(asked, call, None if under_way is None else under_way.listener)
        except BaseException as error:
            if self._ahead is not None and under_way is not None:
                self._ahead.dropped(under_way)
            if isinstance(error, Exception) and not isinstance(error, _NOT_OVER):
                self._broke(call, error, None)
            raise
        finally:
            if self._inner is not None:
                self._inner._passed.pop(id(request.state), None)
        if self._ahead is not None and under_way is not None:
            response = answered(response, self._ahead.answered(under_way, turn_of_response(response)))
        return _extended(response, update, request.state)

    def _around_tool(self, request: ToolCallRequest) -> StepGenerator[Any]:
        try:
            if self._recorder is None or env_mode.mode() == "off":
                return (yield Proceed(request))
            return (yield from self._recorder.around(request))
        except _NOT_OVER:
            raise
        except Exception as error:
            if self._outermost:
                who: dict[str, Any] = identity_of(request)
                call_id = request.tool_call["id"] or ""
                messages = request.state["messages"]
                self._tell(lambda: self._core.lifecycle.gave_up(messages, call_id, **who))
                self._broke(Call(messages, **who), error, call_id)
            raise

    def _said(self, step: Step[Any], call: Call) -> StepGenerator[StepOutput]:
        """Return what a step says at this call; nothing where it failed, or has no say."""
        if (call.held_out or not env_mode.shows()) and not step.learns:
            return NOTHING
        memo, forgettings = self._memos[step], self._core.forgettings
        try:
            kept = memo.get(call, forgettings)
            if kept is None:
                found = step.compute(call)
                if isinstance(found, Generator):
                    found = yield from found
                kept = memo.put(call, forgettings, found)
            if kept.broken:
                return NOTHING
            said = step.render(call, kept.found)
            if said.event is not None and said.event != kept.told:
                kept.told = said.event
                self._note(step.role, said, call.runtime)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            step.failed(error)
            memo.put(call, forgettings, None, broken=True)  # what is broken is not asked again in this scope
            return NOTHING
        return said

    def _asked(self, request: ModelRequest[Any], call: Call, listener: Any) -> StepGenerator[Any]:
        """Return the answer of the inner handlers, and learn it."""
        response = yield Proceed(request, listener)
        if self._recorder is not None:
            self._tell(lambda: self._learn(call, response))
        return response

    # --- pieces ---

    def _call_of(self, request: ModelRequest[Any], history: list[Any]) -> Call:
        config, messages = config_of(), request.state["messages"]
        call = Call(
            history if history == messages else messages,
            thread_id_of(config, request.runtime),
            user_id_of(config, request.runtime),
            request.state,
            "messages",
            request.runtime,
            tools=self._core.catalogue.offered(request.tools),
            offered=request.tools,
            insisted=frozenset(insisted_on(request)),
            model=request.model,
            settings=request.model_settings,
            tool_choice=request.tool_choice,
            recorded=True,  # what stands innermost of the memory records
        )
        call.held_out = env_mode.shows() and self._core.held_out(call.messages, call.thread_id)
        return call

    def _without(self, request: ModelRequest[Any], call: Call, said: StepOutput) -> ModelRequest[Any]:
        """The request without the tools that a step took out; the call sees those that are left."""
        if said.left_out:
            left = [tool for tool in request.tools if name_of(tool) not in said.left_out]
            if len(left) != len(request.tools):
                request = request.override(tools=left)
                call.offered, call.tools = left, self._core.catalogue.offered(left)
        return request

    def _hinted(self, request: ModelRequest[Any], call: Call, blocks: Sequence[Block]) -> ModelRequest[Any]:
        """The request with what the steps have to say, where this model takes it best."""
        text = composed(blocks, call.messages, read=lambda: self._core.read(call.messages, call.thread_id))
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
        annotate({"toolmem.node": RECORDER, "toolmem.learned_turns": new})
        emit(call.runtime, {"node": RECORDER, "learned_turns": new})

    def _paused(self, request: ToolCallRequest) -> None:
        if self._recorder is not None:
            self._recorder.paused(request)

    def _broke(self, call: Call, error: Exception, failed_call: str | None) -> None:
        for step in self._steps:
            if step.ends:
                self._quietly(step, partial(step.on_error, call, error, failed_call))

    def _note(self, role: str, said: StepOutput, runtime: Any) -> None:
        if said.notes:
            annotate({"toolmem.node": role, **said.notes})
        if said.event is not None:
            emit(runtime, {"node": role, **said.event})

    def _quietly(self, step: Step[Any], do: Callable[[], Any]) -> Any:
        try:
            return do()
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            step.failed(error)
            return None

    def _tell(self, do: Callable[[], object]) -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._own_errors.failed(error)


class EndingMiddleware(StepsMiddleware):
    """Steps of which one has something to do at the end of the run."""

    def after_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """The run is over."""
        drive(lambda: self._over(state, runtime))

    async def aafter_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """The run is over."""
        await adrive(lambda: self._over(state, runtime))

    def _over(self, state: Any, runtime: Runtime[Any]) -> StepGenerator[Any]:
        config = config_of()
        call = Call(
            state["messages"], thread_id_of(config, runtime), user_id_of(config, runtime), state, runtime=runtime
        )
        for step in self._steps:
            if step.ends and env_mode.mode() != "off":
                try:
                    said = step.on_end(call)
                    if isinstance(said, Generator):
                        said = yield from said
                    self._note(step.role, said, runtime)
                except GraphBubbleUp:
                    raise
                except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
                    step.failed(error)


def _private(kind: Any, merge: Callable[..., Any]) -> Any:
    return NotRequired[Annotated[kind, PrivateStateAttr, merge]]


def insisted_on(request: ModelRequest[Any]) -> Iterator[str]:
    """Names of the tools that the request cannot do without."""
    choice = request.tool_choice
    if isinstance(choice, Mapping):
        choice = name_of(dict(choice))
    if choice not in _NO_TOOL and isinstance(choice, str):
        yield choice
    for spec in getattr(request.response_format, "schema_specs", None) or ():
        yield spec.name


def _in_its_place(message: AIMessage, request: ModelRequest[Any]) -> ExtendedModelResponse[Any]:
    state: Mapping[str, Any] = request.state
    counts = {name: state.get(name, 0) - 1 for name in MODEL_CALL_COUNTS}
    return ExtendedModelResponse(ModelResponse(result=[named(message)]), Command(update=counts))


def turn_of_response(response: Any) -> list[Any]:
    """The messages of a model response, whatever form the next middleware gave it."""
    if isinstance(response, ExtendedModelResponse):
        response = response.model_response
    return [response] if isinstance(response, AIMessage) else list(response.result)


def answered(response: Any, messages: list[Any]) -> Any:
    """The response with other messages in it."""
    if isinstance(response, ExtendedModelResponse):
        return replace(response, model_response=replace(response.model_response, result=messages))
    return messages[0] if isinstance(response, AIMessage) else replace(response, result=messages)


def _extended(response: Any, update: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
    """The response with what is to be kept in the private state."""
    new = {key: value for key, value in update.items() if key not in state or state[key] != value}
    if not new or isinstance(response, ExtendedModelResponse):
        return response  # the latter has a command of its own; the messages tell again what is known
    if isinstance(response, AIMessage):
        response = ModelResponse(result=[response])
    return ExtendedModelResponse(response, Command(update=new))


def steps_middleware(
    core: Core,
    steps: Sequence[Step[Any]],
    *,
    name: str,
    recorder: bool,
    outermost: bool,
    server: Server | None = None,
    inner: StepsMiddleware | None = None,
) -> StepsMiddleware:
    """The middleware of some steps; see `StepsMiddleware`."""
    kind = EndingMiddleware if any(step.ends for step in steps) else StepsMiddleware
    return kind(core, steps, recorder=recorder, outermost=outermost, name=name, server=server, inner=inner)
