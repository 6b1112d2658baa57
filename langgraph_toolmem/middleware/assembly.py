"""The memory's steps and the host's own middleware, in the right order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from langchain.agents.middleware import (
    AgentMiddleware,
    ExtendedModelResponse,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelRequest,
    ModelResponse,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command

from langgraph_toolmem.atoms.step import SGASettings
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.entries import RecallPolicy
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Interceptors, Prefetch
from langgraph_toolmem.inertia.step import Shortcut
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.navigator.deferred import DeferredTools, Offer, RevealTools, ToolSearch
from langgraph_toolmem.nodes.steps import (
    InertiaShortcut,
    LoopGuard,
    MemoryRecall,
    PreferenceGuide,
    Recorder,
    ReflectionWriter,
    SGAPlanner,
    SITSummary,
    ToolRetriever,
    checked,
    method_of,
    owner_of,
)
from langgraph_toolmem.runs.run import CALL_TOOL, SEARCH_TOOL
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.sit.suggest import SITPolicy
from langgraph_toolmem.turn.ask import Proceed, StepGenerator, adrive, drive
from langgraph_toolmem.turn.hints import StepOutput, composed, placed
from langgraph_toolmem.turn.host import ErrorLog, config_of, env_mode, is_active, thread_id_of, user_id_of
from langgraph_toolmem.turn.step import Call, Step, StepNode, StepRunner

logger = logging.getLogger("langgraph_toolmem.middleware")

N = TypeVar("N", bound=StepNode)
T = TypeVar("T")

Middleware = AgentMiddleware[Any, Any, Any]

_WRAPS: Final = ("wrap_tool_call", "awrap_tool_call")
_AFTER: Final = ("after_model", "aafter_model")
_OF_LANGCHAIN: Final = "langchain.agents.middleware."
OUTPUTS: Final = "toolmem_outputs"
"""Key of a request's state: outputs of the middleware around, for the one inside."""
MODEL_CALL_COUNTS: Final = ("run_model_call_count", "thread_model_call_count")
"""Counters of ModelCallLimitMiddleware. It adds one after each model step, a shortcut's too."""
_NO_TOOL: Final = (None, "auto", "any", "required", "none")
"""Values of ``tool_choice`` that name no tool."""
_NOT_OVER: Final = (GraphBubbleUp, CancelledError)
"""An interrupt, a drain, a cancelled call: the run is not over, or nobody wants it any more."""


def tool_memory_middleware(
    memory: ToolMemory,
    *,
    inside: Sequence[Middleware] = (),
    shortcut: bool | InertiaPolicy | InertiaShortcut = True,
    prefetch: bool | Prefetch = False,
    recall: bool | RecallPolicy | MemoryRecall = False,
    suggest: bool | SITPolicy | SITSummary = False,
    planning: bool | SGASettings | SGAPlanner = False,
    reflect: bool | ReflectionWriter = False,
    preferences: bool | PreferenceGuide = False,
    tool_search: bool | ToolSearch | ToolRetriever = False,
    loop_guard: bool = False,
    steps: Iterable[Step[Any]] = (),
    name: str = "ToolMemory",
) -> list[Middleware]:
    """Return the whole list for ``create_agent(..., middleware=...)``: one middleware around yours, one inside.

    Around, from the outside in: reflection (sees only errors that nobody caught, and ends the run after all others),
    preferences (no shortcut goes to a tool that they leave out), the shortcut. Inside, at the model: recall,
    suggestions and planning (a skipped model call needs none of them), the recorder (sees the real executions), and
    tool search.

    A skipped model call skips what stands inside. So a middleware that takes tools away from the model (by permission,
    by state), or that chooses the model or a tool for it, goes in front of the list::

        middleware=[permissions, *tool_memory_middleware(memory, inside=[human_approval])]

    Each feature is True, False, its options, or a node with arguments of its own, as in
    ``preferences=PreferenceGuide(memory, keep=["search"])``.

    Args:
        memory: the memory; agents may share one.
        inside: your own middleware, in its order.
        shortcut: make calls without asking the model where past calls are clear enough; a policy says when, such as
            ``InertiaPolicy(may_write={"send_email"})`` or ``InertiaPolicy(shadow=True)``. False: make none, only learn.
        prefetch: begin look-ups that are likely, or complete in a streamed answer, before the model has answered, and
            serve their results if it asks for exactly them (`Prefetch`). Middleware in front of the list and
            ``interrupt_before`` cannot be seen: name the tools that may be run before them.
        recall: show the model past runs with similar requests (`MemoryRecall`); a policy says how many.
        suggest: show the model which tools came next in similar situations, and give it the summary tool
            (`SITSummary`); a policy says how.
        planning: show the model single steps that worked at such a point of other runs (`SGAPlanner`); settings say
            how, and which model plans. By default no model is asked for it.
        reflect: keep each run as an entry at its end (`ReflectionWriter`), without a verdict; `memory.feedback`
            gives one later. Runs that an error ended are kept too, with what was done so far.
        preferences: leave out tools that this user rated badly on similar requests (`PreferenceGuide`), except
            what an ``LLMToolSelectorMiddleware`` inside always includes.
        tool_search: have the model find its tools by a search, with a list of tools that never changes, so the prompt
            cache stays whole (`ToolSearch`). Tools of your middleware inside are always offered; those of middleware
            in front of the list you name in ``ToolSearch(always=[…])``.
        loop_guard: answer a call that repeats with the same result with a note, in place of executing it, and end
            the run with a `LoopError` after three notes (`LoopGuard`).
        steps: of methods of your own; each says whether it stands around or inside.
        name: of the middleware, where several memories work in one agent.

    Raises:
        ConfigurationError: an argument cannot work, such as an `inside` that has the memory's own in it.
    """
    checked(memory, "tool_memory_middleware")
    yours = _yours(inside)
    if not isinstance(loop_guard, bool):
        raise ConfigurationError(f"loop_guard is True or False, not {loop_guard!r}.")
    always = [name for m in yours if isinstance(m, LLMToolSelectorMiddleware) for name in m.always_include]
    theirs = [known for m in yours for tool in getattr(m, "tools", ()) if (known := name_of(tool)) is not None]
    if shortcut is False and prefetch is not False:  # prefetching alone needs its decisions too
        shortcut = method_of(memory, Inertia, "prefetch").policy.with_(shadow=True)
    nodes: list[StepNode | None] = [
        _node("reflect", reflect, ReflectionWriter, memory),
        _node("preferences", preferences, PreferenceGuide, memory, keep=always),
        acts := _node("shortcut", shortcut, InertiaShortcut, memory, policy=InertiaPolicy, tools=()),
        _node("recall", recall, MemoryRecall, memory, policy=RecallPolicy),
        _node("suggest", suggest, SITSummary, memory, policy=SITPolicy),
        _node("planning", planning, SGAPlanner, memory, settings=SGASettings),
        _node("tool_search", tool_search, ToolRetriever, memory, search=ToolSearch, always=[*always, *theirs]),
    ]
    if acts is not None:
        acts.step.models = (*acts.step.models, *(model for m in yours for model in _models_of(m)))
        acts.step.enable_prefetch(prefetch, interceptors_of(yours))
    found: list[Step[Any]] = [node.step for node in nodes if node is not None]
    for step in steps:
        if not isinstance(step, Step):
            raise ConfigurationError(f"steps holds {step!r}, which is no Step.")
        found.append(step)
    around = [step for step in found if step.place == "around"]
    at_model = [step for step in found if step.place == "inside"]
    inside_all = steps_middleware(
        memory.core, at_model, name=f"{name}Inside", outermost=not around, recorder=Recorder(memory)
    )
    all_of_them: list[Middleware] = [*yours, inside_all]
    if around:
        all_of_them.insert(0, steps_middleware(memory.core, around, name=name, outermost=True))
    if loop_guard:
        all_of_them.append(LoopGuardMiddleware(memory, f"{name}LoopGuard"))
    reveals = [step.deferred for step in found if isinstance(step, RevealTools)]
    all_of_them += [ToolSearchMiddleware(deferred, f"{name}ToolSearch") for deferred in reveals]
    return all_of_them


def _yours(inside: Any) -> list[Middleware]:
    try:
        yours = list(inside)
    except TypeError:
        raise ConfigurationError(f"`inside` must be a list of middleware, got {type(inside).__name__}.") from None
    for index, middleware in enumerate(yours):
        if not isinstance(middleware, AgentMiddleware) or isinstance(middleware, StepsMiddleware):
            raise ConfigurationError(f"inside[{index}] must be a middleware of yours, got {type(middleware).__name__}.")
    return yours


def _node(what: str, given: Any, kind: Callable[..., N], memory: ToolMemory, **more: Any) -> N | None:
    """Return the node of a feature: given, or made of its options; None if it is switched off.

    Of `more`, a class is the class of the options, under the name of the node's argument.
    """
    options = {name: value for name, value in more.items() if isinstance(value, type)}
    rest = {name: value for name, value in more.items() if name not in options}
    if given is False:
        return None
    if given is True:
        return kind(memory, **rest)
    if isinstance(kind, type) and isinstance(given, kind):
        return cast("N", given)
    for name, expected in options.items():
        if isinstance(given, expected):
            return kind(memory, **{name: given}, **rest)
    kinds = " or ".join(getattr(each, "__name__", str(each)) for each in (*options.values(), kind))
    raise ConfigurationError(f"{what} must be True, False or an instance of {kinds}, not {given!r}.")


def _models_of(middleware: Middleware) -> Iterable[Any]:
    """Return models that a middleware may put in place of the agent's: fallbacks, or those that it chooses from."""
    models = getattr(middleware, "models", ())
    return models.values() if isinstance(models, Mapping) else models if isinstance(models, (list, tuple)) else ()


def interceptors_of(inside: Sequence[Middleware]) -> Interceptors:
    """Return what may hold a call back between the model and the tool, as far as that can be seen.

    Of LangChain's own, only what reads the model's answer is known; any other that looks at it may take a call out.
    """
    return Interceptors(" and ".join(each.name for each in inside if _may_hold(each)), frozenset(_gated(inside)))


def _may_hold(middleware: Middleware) -> bool:
    if isinstance(middleware, (HumanInTheLoopMiddleware, ToolCallLimitMiddleware)):
        return True
    kind = type(middleware)
    if kind is ToolRetryMiddleware:  # it wraps tool calls and holds none back
        return False
    looked_at = _WRAPS if kind.__module__.startswith(_OF_LANGCHAIN) else (*_WRAPS, *_AFTER)
    return any(getattr(kind, name) is not getattr(AgentMiddleware, name) for name in looked_at)


def _gated(inside: Sequence[Middleware]) -> Iterator[str]:
    for each in inside:
        if isinstance(each, HumanInTheLoopMiddleware):
            yield from each.interrupt_on
        elif isinstance(each, ToolCallLimitMiddleware) and each.tool_name is not None:
            yield each.tool_name


# --- the middleware ---


class StepsMiddleware(AgentMiddleware[Any, Any, Any]):
    """Some steps of a memory in an agent. It never raises into the host's run.

    Args:
        core: of the memory.
        steps: in their order, from the outside in.
        outermost: True if no middleware of the memory comes before: an error that gets here ends the run.
        name: unique in the agent.
        recorder: for the innermost middleware of the memory: it records each model turn and each execution, and puts
            hints into the request.
    """

    name = ""

    def __init__(
        self,
        core: Core,
        steps: Sequence[Step[Any]],
        *,
        outermost: bool,
        name: str,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__()
        self.name, self._core, self._outermost, self._recorder = name, core, outermost, recorder
        self._errors = ErrorLog(name, logger)
        self._runners = [StepRunner(step) for step in steps]
        self._prefetcher = next((step.prefetcher for step in steps if isinstance(step, Shortcut)), None)
        self.tools = [tool for step in steps for tool in step.tools]

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        return drive(lambda: self._around_model(request), handler)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        return await adrive(lambda: self._around_model(request), handler)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        try:
            return handler(request) if self._recorder is None else self._recorder.wrap_tool_call(request, handler)
        except Exception as error:
            self._gave_up(request, error)
            raise

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        try:
            if self._recorder is None:
                return await handler(request)
            return await self._recorder.awrap_tool_call(request, handler)
        except Exception as error:
            await asyncio.to_thread(self._gave_up, request, error)
            raise

    def _around_model(self, request: ModelRequest[Any]) -> StepGenerator[Any]:
        call = None if env_mode() == "off" else self._or_log(lambda: self._call_of(request))
        if call is None:
            return (yield Proceed(request))
        asked, state = request, cast("dict[str, Any]", request.state)
        outputs: list[StepOutput] = [*state.get(OUTPUTS, ())]
        for runner in self._runners:
            output = yield from runner.output(call)
            if output.answer is not None:
                return _in_its_place(output.answer, request)
            asked = self._without(asked, call, output)
            outputs.append(output)
        if self._recorder is not None:
            asked = self._or_log(lambda: self._hinted(asked, call, outputs)) or asked
        else:
            noted: Any = {**state, "messages": call.messages, OUTPUTS: outputs}
            asked = asked.override(state=noted)
        batch = None if self._prefetcher is None or not is_active() else self._prefetcher.begin(call)
        try:
            response = yield Proceed(asked, None if batch is None else batch.listener)
        except BaseException as error:
            if self._prefetcher is not None and batch is not None:
                self._prefetcher.dropped(batch)
            if isinstance(error, Exception) and not isinstance(error, _NOT_OVER):
                self._broke(call, error, None)
            raise
        if (recorder := self._recorder) is not None:
            with self._errors:
                self._learn(recorder, call, response)
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

    def _learn(self, recorder: Recorder, call: Call, response: Any) -> None:
        new = self._core.lifecycle.after_model(
            call.messages,
            turn_of_response(response),
            thread_id=call.thread_id,
            user_id=call.user_id,
            model_input=call.model_input,
        )
        recorder.learned(new, call)

    def _gave_up(self, request: ToolCallRequest, error: Exception) -> None:
        if isinstance(error, _NOT_OVER) or not self._outermost or env_mode() == "off":
            return
        thread_id, user_id = owner_of(request)
        call_id, messages = request.tool_call["id"] or "", request.state["messages"]
        with self._errors:
            self._core.lifecycle.gave_up(messages, call_id, thread_id=thread_id, user_id=user_id)
        self._broke(Call(messages, thread_id, user_id), error, call_id)

    def _broke(self, call: Call, error: Exception, failed_call: str | None) -> None:
        for runner in self._runners:
            if runner.step.ends:
                with runner.step.errors:
                    runner.step.on_error(call, error, failed_call)

    def _or_log(self, do: Callable[[], T]) -> T | None:
        with self._errors:
            return do()
        return None


class EndingMiddleware(StepsMiddleware):
    """Steps of which one acts at the end of the run."""

    def after_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        drive(lambda: self._over(state, runtime))

    async def aafter_agent(self, state: Any, runtime: Runtime[Any]) -> None:
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
    state = cast("dict[str, Any]", request.state)
    counts = {name: state.get(name, 0) - 1 for name in MODEL_CALL_COUNTS}
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


class LoopGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """A `LoopGuard` in an agent, right after the model."""

    name = ""

    def __init__(self, memory: ToolMemory, name: str) -> None:
        super().__init__()
        self.name, self._guard = name, LoopGuard(memory)

    def after_model(self, state: Any, runtime: Any) -> Any:
        return self._guard.invoke(state, config_of())

    async def aafter_model(self, state: Any, runtime: Any) -> Any:
        return await self._guard.ainvoke(state, config_of())


class ToolSearchMiddleware(AgentMiddleware[Any, Any, Any]):
    """Offers the model the tools of `DeferredTools`, and reads its calls; if that fails, all tools are offered.

    Stands innermost around the model, so that everything else sees calls of the real tools.
    """

    name = ""

    def __init__(self, deferred: DeferredTools, name: str) -> None:
        super().__init__()
        self.name, self._deferred, self._errors = name, deferred, ErrorLog(name, logger)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        return drive(lambda: self._around(request), handler)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        return await adrive(lambda: self._around(request), handler)

    def _around(self, request: ModelRequest[Any]) -> StepGenerator[Any]:
        insisted = frozenset(insisted_on(request))
        offer = Offer([t for t in request.tools if name_of(t) not in (SEARCH_TOOL, CALL_TOOL)], request.messages)
        with self._errors:
            if is_active():
                offer = self._deferred.offer(request.tools, request.messages, request.model, insisted=insisted)
        response = yield Proceed(request.override(tools=offer.tools, messages=offer.messages))
        if offer.way is None:
            return response
        with self._errors:
            read = [
                self._deferred.take(m, request.tools, insisted=insisted) if isinstance(m, AIMessage) else m
                for m in turn_of_response(response)
            ]
            response = answered(response, read)
            for message in read:
                if isinstance(message, AIMessage):
                    self._deferred.note(offer, message, request.tools, request.messages)
        return response
