"""The memory's steps and the host's own middleware, in the right order."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelRequest,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage

from langgraph_toolmem.atoms.settings import SGASettings
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Prefetch
from langgraph_toolmem.inertia.prefetch.qualify import Interceptors
from langgraph_toolmem.inertia.step import Shortcut
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.navigator.deferred import DeferredTools, Offer, RevealTools, ToolSearch
from langgraph_toolmem.nodes.steps import (
    InertiaShortcut,
    LoopGuard,
    MemoryRecall,
    PreferenceGuide,
    ReflectionWriter,
    SGAPlanner,
    SITSummary,
    ToolRetriever,
    checked,
    method_of,
)
from langgraph_toolmem.runs.run import CALL_TOOL, SEARCH_TOOL
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.turn.ask import Proceed, StepGenerator, adrive, drive
from langgraph_toolmem.turn.host import ErrorLog, config_of, is_active
from langgraph_toolmem.turn.middleware import (
    StepsMiddleware,
    answered,
    insisted_on,
    steps_middleware,
    turn_of_response,
)
from langgraph_toolmem.turn.node import StepNode
from langgraph_toolmem.turn.step import Step

logger = logging.getLogger("langgraph_toolmem.middleware")

N = TypeVar("N", bound=StepNode)

Middleware = AgentMiddleware[Any, Any, Any]

_WRAPS: Final = ("wrap_tool_call", "awrap_tool_call")
_AFTER: Final = ("after_model", "aafter_model")
_OF_LANGCHAIN: Final = "langchain.agents.middleware."


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
    ``recall=MemoryRecall(memory, budget=400)``.

    Args:
        memory: the memory; agents may share one.
        inside: your own middleware, in its order.
        shortcut: make calls without asking the model where past calls are clear enough; a policy says when, such as
            ``InertiaPolicy(may_write={"send_email"})`` or ``InertiaPolicy(shadow=True)``. False: make none, only learn.
        prefetch: begin look-ups that are likely, or complete in a streamed answer, before the model has answered,
            and serve their results if it asks for exactly them; `Prefetch` says which tools. If a middleware of yours
            inside wraps tool calls, or may take calls back after the model, only tools named there are prefetched.
            Middleware in front of the list and ``interrupt_before`` cannot be seen: name the tools that may be run
            before them. A look-up that fails early is made again by the model's call: one more execution.
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
        acts.step.enable_prefetch(prefetch, interceptors=interceptors_of(yours))
    found: list[Step[Any]] = [node.step for node in nodes if node is not None]
    for step in steps:
        if not isinstance(step, Step):
            raise ConfigurationError(f"steps holds {step!r}, which is no Step.")
        found.append(step)
    around = [step for step in found if step.place == "around"]
    at_model = [step for step in found if step.place == "inside"]
    source = next((step.prefetcher for step in found if isinstance(step, Shortcut)), None)
    inside_all = steps_middleware(
        memory.core, at_model, name=f"{name}Inside", inner=True, outermost=not around, source=source
    )
    all_of_them: list[Middleware] = [*yours, inside_all]
    if around:
        all_of_them.insert(0, steps_middleware(memory.core, around, name=name, inner=False, outermost=True))
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
    of = "".join(f"a {expected.__name__} or " for expected in options.values())
    raise ConfigurationError(f"{what} is True, False, {of}a {getattr(kind, '__name__', kind)}, not {given!r}.")


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


class _Named(AgentMiddleware[Any, Any, Any]):
    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    def name(self) -> str:
        return self._name


class LoopGuardMiddleware(_Named):
    """A `LoopGuard` in an agent, right after the model."""

    def __init__(self, memory: ToolMemory, name: str) -> None:
        super().__init__(name)
        self._guard = LoopGuard(memory)

    def after_model(self, state: Any, runtime: Any) -> Any:
        return self._guard.invoke(state, config_of())

    async def aafter_model(self, state: Any, runtime: Any) -> Any:
        return await self._guard.ainvoke(state, config_of())


class ToolSearchMiddleware(_Named):
    """Offers the model the tools of `DeferredTools`, and reads its calls; if that fails, all tools are offered.

    Stands innermost around the model, so that everything else sees calls of the real tools.
    """

    def __init__(self, deferred: DeferredTools, name: str) -> None:
        super().__init__(name)
        self._deferred = deferred
        self._errors = ErrorLog(name, logger)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Call the model with few tools."""
        return drive(lambda: self._around(request), handler)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Call the model with few tools."""
        return await adrive(lambda: self._around(request), handler)

    def _around(self, request: ModelRequest[Any]) -> StepGenerator[Any]:
        insisted = frozenset(insisted_on(request))
        offer = Offer([t for t in request.tools if name_of(t) not in (SEARCH_TOOL, CALL_TOOL)], request.messages)
        try:
            if is_active():
                offer = self._deferred.offer(request.tools, request.messages, request.model, insisted=insisted)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
        response = yield Proceed(request.override(tools=offer.tools, messages=offer.messages))
        if offer.way is None:
            return response
        try:
            messages = turn_of_response(response)
            read = [
                self._deferred.take(m, request.tools, insisted=insisted) if isinstance(m, AIMessage) else m
                for m in messages
            ]
            if any(new is not message for new, message in zip(read, messages, strict=True)):
                response = answered(response, read)
            for message in read:
                if isinstance(message, AIMessage):
                    self._deferred.note(offer, message, request.tools, request.messages)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
        return response
