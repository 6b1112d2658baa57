"""The memory as one middleware, next to the model, after the host's own; and the loop guard as middleware.

In this order: the entry point (`tool_memory_middleware`) and its middleware; the host's own middleware before it, which
may hold back tool calls and add models and tools; the loop guard, which needs no memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, cast

from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelRequest,
    ModelResponse,
    PIIMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
    TracePolicy,
    hook_config,
    omit_payload,
)
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command
from typing_extensions import NotRequired

from langgraph_toolmem.atoms.step import SGASettings
from langgraph_toolmem.base.checks import names_given, with_known_options
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.catalogue import named
from langgraph_toolmem.entries import RecallPolicy
from langgraph_toolmem.inertia.context import PrefetchedContext
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Prefetch
from langgraph_toolmem.inertia.speculative import Interceptors
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.models.at_model import (
    AskOptions,
    AtModel,
    MemoryOptions,
    ModelAnswer,
    ModelAsk,
    Surroundings,
    steps_for,
)
from langgraph_toolmem.navigator.deferred import ToolSearch
from langgraph_toolmem.nodes.loop_guard import LoopGuard
from langgraph_toolmem.nodes.steps import (
    InertiaShortcut,
    MemoryRecall,
    PreferenceGuide,
    Recorder,
    ReflectionWriter,
    SGAPlanner,
    SITSummary,
    ToolRetriever,
    checked,
)
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.sit.suggest import SITPolicy
from langgraph_toolmem.turn.ask import Proceed, StepGenerator, adrive, drive
from langgraph_toolmem.turn.host import config_of, env_mode, note_once, owner_of_run, warn_once
from langgraph_toolmem.turn.step import Call, Step, model_input_of, seen_messages

Middleware = AgentMiddleware[Any, Any, Any]
MODEL_CALL_COUNTS: Final = ("run_model_call_count", "thread_model_call_count")
"""Counters of ModelCallLimitMiddleware. It adds one after each model step, a shortcut's too."""
_EXECUTORS: Final = ("_execute_model_sync", "_execute_model_async")
"""Functions of ``create_agent`` that ask the model: the handler of the innermost middleware."""
WITHOUT_INPUTS: Final = TracePolicy(process_inputs=omit_payload)
"""The spans of the memory's hooks leave out the request: the model's own span has it. With it a run of 200 messages
took 6.6 times the bytes in LangSmith."""
LIST_IN_A_LIST: Final = (
    "tool_memory_middleware returns a list, and here it is put into another list. Write "
    "middleware=tool_memory_middleware(memory, outer=[*yours])."
)
NOT_AT_THE_MODEL: Final = (
    "%s is not the last middleware: one behind it may change the request, so values of the system prompt and of the "
    "run's context are not used. Put the list of tool_memory_middleware last."
)
WAITS_FOR: Final = (
    "%s cannot see a graph's interrupt_before; name its tools in gated={...}, or they run before the pause. "
    "It runs no call before its approval or limit of: %s."
)
UNKNOWN_OUTER: Final = (
    "%s cannot see the middleware in front of it. If some of it approves or limits tool calls, pass it as "
    "tool_memory_middleware(memory, outer=[...]), or name the tools: gated={...}."
)


@with_known_options
def tool_memory_middleware(
    memory: ToolMemory,
    *,
    outer: Sequence[Middleware] | None = None,
    gated: Iterable[str] = (),
    shortcut: bool | InertiaPolicy | InertiaShortcut = True,
    prefetch: bool | Prefetch = False,
    context: bool | PrefetchedContext = False,
    recall: bool | RecallPolicy | MemoryRecall = False,
    suggest: bool | SITPolicy | SITSummary = False,
    planning: bool | SGASettings | SGAPlanner = False,
    reflect: bool | ReflectionWriter | None = None,
    preferences: bool | PreferenceGuide = False,
    tool_search: bool | ToolSearch | ToolRetriever = False,
    loop_guard: bool | LoopGuard = False,
    steps: Iterable[Step[Any]] = (),
    name: str = "ToolMemory",
) -> list[Middleware]:
    """Return the whole list for ``create_agent(..., middleware=...)``: your own middleware, and the memory last.

    The memory is next to the model. It gets each request exactly as the model would: with the system prompt that your
    middleware wrote, trimmed and redacted messages, the offered tools and the chosen model::

        agent = create_agent(model, tools, middleware=tool_memory_middleware(memory, outer=[approval, prompt]))

    Each feature is True, False, its options, or a node with arguments of its own, as in
    ``preferences=PreferenceGuide(memory, keep=["search"])``.

    Args:
        memory: the memory; agents may share one.
        outer: your own middleware, in its order. The memory reads from it which tools need approval, which calls are
            limited, and which models and tools it brings. If None, this is unknown.
        gated: more tools that must not run before their call went through your middleware or ``interrupt_before``:
            they are not prefetched. The dict of ``create_deep_agent(interrupt_on=...)`` may be given as it is.
        shortcut: make calls without asking the model if past runs leave little doubt; a policy says when, such as
            ``InertiaPolicy(may_write={"send_email"})`` or ``InertiaPolicy(shadow=True)``. If False, only learn.
        prefetch: begin look-ups that are likely, or complete in a streamed answer, before the model has answered, and
            serve their results if the model makes exactly these calls (`Prefetch`).
        context: make likely look-ups before the model is asked. The model continues from their results, so one model
            call covers several steps (`PrefetchedContext`). The shortcut then makes no look-ups. Needs `outer`, an
            empty list if you have no middleware.
        recall: show the model past runs with similar requests (`MemoryRecall`); a policy says how many.
        suggest: show the model the next tools of similar situations, and give it the summary tool (`SITSummary`); a
            policy says how.
        planning: show the model single steps that worked at a similar point of other runs (`SGAPlanner`). Only runs
            with good feedback count (`memory.feedback`). Settings say how, and which model plans; by default it asks no
            model.
        reflect: keep each run at its end (`ReflectionWriter`), without a score; `memory.feedback` gives one later. Runs
            that an error ended are kept too, with the calls until then. Defaults to True if `recall`, `planning` or
            `preferences` is on, because they read the kept runs.
        preferences: leave out tools that this user rated badly on similar requests (`PreferenceGuide`), except
            what an ``LLMToolSelectorMiddleware`` in `outer` always includes.
        tool_search: have the model find its tools by a search, with a list of tools that never changes, so the prompt
            cache stays whole (`ToolSearch`). Tools of the middleware in `outer` are always offered.
        loop_guard: stop calls without new results, and end a run that keeps making them with an answer that says why; a
            `LoopGuard` says how.
        steps: of methods of your own, asked after the memory's.
        name: of the middleware, if several memories work in one agent.

    Raises:
        ConfigurationError: an argument is invalid, such as an `outer` that contains the memory's own middleware.
    """
    checked(memory, "tool_memory_middleware")
    yours: list[Middleware] = []
    if outer is not None:
        yours = outer_middleware(outer)
    around = surroundings_of(yours, names_given("gated", gated), known=outer is not None)
    options = MemoryOptions(
        shortcut=shortcut,
        prefetch=prefetch,
        context=context,
        recall=recall,
        suggest=suggest,
        planning=planning,
        reflect=reflect,
        preferences=preferences,
        tool_search=tool_search,
        loop_guard=loop_guard,
        steps=steps,
    )
    wanted = steps_for(memory, around, options)
    if options.has("prefetch") or options.has("context"):
        if outer is None:
            note_once(UNKNOWN_OUTER, name)
        note_once(WAITS_FOR, name, named(around.interceptors.tools) or "no tool")
    # The guard comes before the memory: hooks after the model run from the last middleware to the first.
    if options.has("loop_guard"):
        guard = loop_guard if isinstance(loop_guard, LoopGuard) else LoopGuard(memory)
        yours = [*yours, LoopGuardMiddleware(guard, name=f"{name}LoopGuard")]
    return MiddlewareList([*yours, ToolMemoryMiddleware(memory, wanted, name=name)])


class MiddlewareList(list[Middleware]):
    """The list of `tool_memory_middleware`. In another list, ``create_agent`` asks it for a middleware's attributes."""

    @property
    def tools(self) -> Any:
        raise ConfigurationError(LIST_IN_A_LIST)

    @property
    def name(self) -> Any:
        raise ConfigurationError(LIST_IN_A_LIST)


class EndedState(AgentState[Any]):
    """The state's key that the end of a run updates; it is private, and never stored.

    Without an update ``stream_mode="updates"`` has None, and front ends that read it as a dict fail. An update of the
    messages would store them once more.
    """

    toolmem_ended: NotRequired[Annotated[bool, UntrackedValue, PrivateStateAttr]]


class ToolMemoryMiddleware(AgentMiddleware[Any, Any, Any]):
    """A memory at an agent's model. It never raises into the host's run.

    Args:
        memory: the memory.
        steps: in the order in which they are asked.
        name: unique in the agent.
    """

    # LangChain's name is that of the class, and `create_agent` refuses two middleware of one name.
    name = ""
    trace_policy = WITHOUT_INPUTS
    state_schema = EndedState

    def __init__(self, memory: ToolMemory, steps: Sequence[Step[Any]], *, name: str) -> None:
        super().__init__()
        self.name, self._core = name, memory.core
        self._recorder = Recorder(memory)
        self._at_model = AtModel(memory.core, steps, self._recorder, name=name)
        self.tools = self._at_model.tools

    # --- the model ---

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        return drive(self._body_around(request, handler), handler, costs=self._core.costs)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        return await adrive(self._body_around(request, handler), handler, costs=self._core.costs)

    def _body_around(self, request: ModelRequest[Any], handler: Any) -> Callable[[], StepGenerator[Any]]:
        def body() -> StepGenerator[Any]:
            return self._around_model(request, handler)

        return body

    def _around_model(self, request: ModelRequest[Any], handler: Any) -> StepGenerator[Any]:
        call: Call | None = None
        if env_mode() != "off":
            with self._at_model.errors:
                # The handler's name shows whether it asks the model itself, or a middleware after this one.
                complete = getattr(handler, "__name__", "") in _EXECUTORS
                call = self._call_of(request, complete=complete)
        # Switched off, or the request cannot be read: the model is asked as without the memory.
        if call is None:
            return (yield Proceed(request))

        def ask_model(ask: ModelAsk, how: AskOptions) -> StepGenerator[ModelAnswer]:
            response = yield Proceed(_changed(request, ask), how.listener, how.streams)
            return ModelAnswer(turn_of_response(response), response)

        ask = ModelAsk(request.system_message, request.messages, request.tools, request.model_settings)
        answer = yield from self._at_model.around(call, ask, ask_model)
        if answer.response is None:
            return _in_its_place(answer, request)
        return answered(answer.response, answer.messages)

    def _call_of(self, request: ModelRequest[Any], *, complete: bool) -> Call:
        # deepagents appends middleware that wraps the model: it may change the prompt after this call.
        if not complete:
            warn_once(NOT_AT_THE_MODEL, self.name)
        config = config_of()
        messages = seen_messages(request.state["messages"], request.messages)
        return Call(
            messages.own,
            owner_of_run(config, request.runtime),
            request.state,
            request.runtime,
            tools=self._core.catalogue.offered(request.tools),
            offered=request.tools,
            insisted=frozenset(insisted_on(request)),
            model=request.model,
            settings=request.model_settings,
            tool_choice=request.tool_choice,
            recorded=True,
            model_input=model_input_of(
                request.system_message,
                messages,
                request.runtime,
                private=self._core.private,
                complete=complete,
            ),
        )

    # --- the tools ---

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        # Before the call: a tool may replace the messages of the state that is injected into it.
        messages = self._recorder.messages_of(request)
        try:
            result = self._recorder.wrap_tool_call(request, handler)
        except Exception as error:
            # A retry around this middleware may handle the error: it is pending until the thread goes on.
            if env_mode() != "off":
                self._at_model.tool_failed(request, error, messages)
            raise
        self._at_model.tool_returned(request, messages)
        return result

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        messages = self._recorder.messages_of(request)
        try:
            result = await self._recorder.awrap_tool_call(request, handler)
        except Exception as error:
            # In a thread, because it may write to the disk: the tests allow nothing of that on the event loop.
            if env_mode() != "off":
                await asyncio.to_thread(self._at_model.tool_failed, request, error, messages)
            raise
        self._at_model.tool_returned(request, messages)
        return result

    # --- the end ---

    def after_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        drive(self._body_of_end(state, runtime), costs=self._core.costs)
        return {"toolmem_ended": True}

    async def aafter_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        await adrive(self._body_of_end(state, runtime), costs=self._core.costs)
        return {"toolmem_ended": True}

    def _body_of_end(self, state: Any, runtime: Runtime[Any]) -> Callable[[], StepGenerator[Any]]:
        def body() -> StepGenerator[Any]:
            return self._end(state, runtime)

        return body

    def _end(self, state: Any, runtime: Runtime[Any]) -> StepGenerator[Any]:
        if env_mode() == "off":
            return
        with self._at_model.errors:
            config = config_of()
            call = Call(state["messages"], owner_of_run(config, runtime), state, runtime)
            yield from self._at_model.end(call)


def insisted_on(request: ModelRequest[Any]) -> Iterator[str]:
    """Yield the names of the tools that the request requires."""
    choice = request.tool_choice
    if isinstance(choice, Mapping):
        choice = name_of(dict(choice))
    if isinstance(choice, str) and choice not in ("auto", "any", "required", "none"):
        yield choice
    # LangChain requests a structured answer as a tool call.
    for spec in getattr(request.response_format, "schema_specs", None) or ():
        yield spec.name


def _changed(request: ModelRequest[Any], ask: ModelAsk) -> ModelRequest[Any]:
    """Return the host's request with the parts that the memory changed; the request itself if it is unchanged."""
    # By identity: without hints the request stays the host's object, without a copy.
    changes: dict[str, Any] = {}
    if ask.system is not request.system_message:
        changes["system_message"] = ask.system
    if ask.messages is not request.messages:
        changes["messages"] = ask.messages
    if ask.tools is not request.tools:
        changes["tools"] = ask.tools
    if ask.settings is not request.model_settings:
        changes["model_settings"] = dict(ask.settings)
    if not changes:
        return request
    return request.override(**changes)


def _in_its_place(answer: ModelAnswer, request: ModelRequest[Any]) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
    """Return a message in the model's place, with the name that ``create_agent(name=...)`` gives to the model's
    messages.
    """
    [message] = answer.messages
    message.name = message.name or (config_of() or {}).get("metadata", {}).get("lc_agent_name")
    if answer.counts:
        return ModelResponse(result=[message])
    state = cast("dict[str, Any]", request.state)
    # Taken back in advance: the limit counts model calls, and this is none.
    counts = {name: state.get(name, 0) - 1 for name in MODEL_CALL_COUNTS}
    return ExtendedModelResponse(ModelResponse(result=[message]), Command(update=counts))


def turn_of_response(response: Any) -> list[Any]:
    """Return the messages of a model response, in any form that the next middleware may return."""
    if isinstance(response, ExtendedModelResponse):
        response = response.model_response
    if isinstance(response, AIMessage):
        return [response]
    return list(response.result)


def answered(response: Any, messages: list[Any]) -> Any:
    """Return the response with other messages in it."""
    if isinstance(response, ExtendedModelResponse):
        return replace(response, model_response=replace(response.model_response, result=messages))
    if isinstance(response, AIMessage):
        return messages[0]
    return replace(response, result=messages)


# --- the host's own middleware before the memory ---


_AROUND_TOOLS: Final = ("wrap_tool_call", "awrap_tool_call")
_AFTER_MODEL: Final = ("after_model", "aafter_model")
_BEFORE_MODEL: Final = ("before_model", "abefore_model", "wrap_model_call", "awrap_model_call")
_PROMPT: Final = "dynamic_prompt.<locals>"
"""Functions of a middleware that ``@dynamic_prompt`` makes: they write only the system prompt."""


def outer_middleware(outer: Any) -> list[Middleware]:
    """Return the host's middleware as a list.

    Raises:
        ConfigurationError: `outer` is not a list of middleware, or has the memory's own.
    """
    try:
        given = list(outer)
    except TypeError:
        raise ConfigurationError(f"`outer` must be a list of middleware, got {type(outer).__name__}.") from None
    for index, middleware in enumerate(given):
        if isinstance(middleware, (list, tuple)):
            raise ConfigurationError(f"outer[{index}] is a list of middleware. Write outer=[*yours] instead.")
        # The memory's own middleware must be the last one, which it is by itself.
        if not isinstance(middleware, AgentMiddleware) or isinstance(middleware, ToolMemoryMiddleware):
            raise ConfigurationError(f"outer[{index}] must be a middleware of yours, got {type(middleware).__name__}.")
    return given


def surroundings_of(outer: Sequence[Middleware], gated: Iterable[str], *, known: bool = True) -> Surroundings:
    """Return the facts that the memory needs about the middleware before it.

    Args:
        outer: the middleware, in its order.
        gated: more names of tools that must not run before their call went through the host's middleware.
        known: False if there may be more.
    """
    models: list[Any] = []
    tools: list[str] = []
    always: list[str] = []
    for middleware in outer:
        models += _models_of(middleware)
        # Never found by search alone: a middleware's prompt names its own tools, such as `write_todos`.
        for tool in getattr(middleware, "tools", ()):
            name = name_of(tool)
            if name is not None:
                tools.append(name)
        if isinstance(middleware, LLMToolSelectorMiddleware):
            always += middleware.always_include
    return Surroundings(
        models=tuple(models),
        interceptors=interceptors_of(outer, gated, known=known),
        recorded=True,
        always=tuple(always),
        tools=tuple(tools),
    )


def interceptors_of(outer: Sequence[Middleware], gated: Iterable[str] = (), *, known: bool = True) -> Interceptors:
    """Return everything between the model and the tool that may hold a call back, as far as the memory can see it.

    LangChain's own middleware is known; any other middleware that reads the model's answer may remove a call.
    """
    wrapping = [middleware.name for middleware in outer if _may_hold(middleware)]
    rewriting = [middleware.name for middleware in outer if _may_rewrite(middleware)]
    # Look-ups before the model would pass it unseen, so only named tools are looked up then (docs/context.md).
    if not known:
        rewriting.append("middleware that is not in `outer`")
    tools = {*gated}
    for middleware in outer:
        tools.update(_gated_by(middleware))
    return Interceptors(" and ".join(wrapping), frozenset(tools), " and ".join(rewriting))


def _models_of(middleware: Middleware) -> Iterator[Any]:
    """Yield models that a middleware may put in place of the agent's: fallbacks, or those that it chooses from."""
    models = getattr(middleware, "models", ())
    if isinstance(models, Mapping):
        yield from models.values()
    elif isinstance(models, (list, tuple)):
        yield from models


def _may_hold(middleware: Middleware) -> bool:
    if isinstance(middleware, (HumanInTheLoopMiddleware, ToolCallLimitMiddleware)):
        return True
    kind = type(middleware)
    if kind is ToolRetryMiddleware:  # it wraps tool calls and lets all of them pass
        return False
    if _is_of_langchain(kind):
        return bool(_own_hooks(kind, _AROUND_TOOLS))
    return bool(_own_hooks(kind, (*_AROUND_TOOLS, *_AFTER_MODEL)))


def _own_hooks(kind: type[Any], names: Iterable[str]) -> list[Any]:
    """Return the hooks of some names that a class defines itself."""
    hooks = []
    for name in names:
        hook = getattr(kind, name)
        if hook is not getattr(AgentMiddleware, name):
            hooks.append(hook)
    return hooks


def _is_of_langchain(kind: type[Any]) -> bool:
    """Return True for LangChain's own middleware; its decorators also make classes of the host's functions."""
    package = "langchain.agents.middleware."
    return kind.__module__.startswith(package) and kind.__module__ != f"{package}types"


def _may_rewrite(middleware: Middleware) -> bool:
    """Return True if a middleware may change the results that the model reads, or hold a call back without a gate.

    A look-up made before the model later leaves as a call: middleware that stops or counts such calls sees it then.
    """
    kind = type(middleware)
    if isinstance(middleware, HumanInTheLoopMiddleware):  # its tools are gated
        return False
    if isinstance(middleware, ToolCallLimitMiddleware):
        return middleware.tool_name is None  # a limit of one tool is a gate of that tool
    if isinstance(middleware, PIIMiddleware):
        return middleware.apply_to_tool_results
    if kind is ToolRetryMiddleware:
        return False
    names: tuple[str, ...] = _AROUND_TOOLS
    # LangChain's own was tried with the memory (docs/middleware.md); a host's may change a result in any hook.
    if not _is_of_langchain(kind):
        names = (*_AROUND_TOOLS, *_AFTER_MODEL, *_BEFORE_MODEL)
    return not all(_writes_only_the_prompt(hook) for hook in _own_hooks(kind, names))


def _writes_only_the_prompt(hook: Any) -> bool:
    return str(getattr(hook, "__qualname__", "")).startswith(_PROMPT)


def _gated_by(middleware: Middleware) -> Iterator[str]:
    if isinstance(middleware, HumanInTheLoopMiddleware):
        yield from middleware.interrupt_on
    elif isinstance(middleware, ToolCallLimitMiddleware) and middleware.tool_name is not None:
        yield middleware.tool_name


# --- the loop guard ---


class LoopGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """A `LoopGuard` in an agent, right after the model::

        agent = create_agent(model, tools, middleware=[*yours, LoopGuardMiddleware()])

    Put it after middleware that asks for approval, so that a person is not asked about a stopped call: hooks after the
    model run from the last to the first.

    Args:
        guard: the guard. If None, a guard without a memory.
        name: of the middleware, unique in the agent.
    """

    name = ""
    trace_policy = WITHOUT_INPUTS

    def __init__(self, guard: LoopGuard | None = None, *, name: str = "LoopGuard") -> None:
        super().__init__()
        self.name, self._guard = name, guard or LoopGuard()

    @hook_config(can_jump_to=["model", "end"])
    def after_model(self, state: Any, runtime: Any) -> Any:
        return _with_next_node(self._guard.invoke(state, config_of()))

    @hook_config(can_jump_to=["model", "end"])
    async def aafter_model(self, state: Any, runtime: Any) -> Any:
        return _with_next_node(await self._guard.ainvoke(state, config_of()))


def _with_next_node(update: Any) -> Any:
    """Return the update with the node that the agent goes to; None for no update."""
    if update is None:
        return None
    # An answer at the end says why the run ends; otherwise the model reads the notes next.
    if isinstance(update["messages"][-1], AIMessage):
        return {**update, "jump_to": "end"}
    return {**update, "jump_to": "model"}
