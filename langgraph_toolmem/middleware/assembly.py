"""The memory's steps and the host's own middleware, in the right order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from langchain.agents.middleware import AgentMiddleware, LLMToolSelectorMiddleware

from langgraph_toolmem.atoms.settings import SGASettings
from langgraph_toolmem.base.checks import check_fields, names_given, options_named
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Prefetch
from langgraph_toolmem.inertia.prefetch.serve import Prefetcher
from langgraph_toolmem.inertia.step import Shortcut
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.middleware.gates import gates_of
from langgraph_toolmem.middleware.tool_search import ToolSearchMiddleware
from langgraph_toolmem.navigator.deferred import DeferredTools, ToolSearch
from langgraph_toolmem.navigator.step import RevealTools
from langgraph_toolmem.nodes.guard import LoopGuard
from langgraph_toolmem.nodes.hints import MemoryRecall, PreferenceGuide, SGAPlanner, SITSummary, ToolRetriever
from langgraph_toolmem.nodes.of_memory import checked, method_of
from langgraph_toolmem.nodes.recorder import ReflectionWriter
from langgraph_toolmem.nodes.shortcut import InertiaShortcut
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.turn.host import config_of
from langgraph_toolmem.turn.middleware import StepsMiddleware, steps_middleware
from langgraph_toolmem.turn.node import StepNode
from langgraph_toolmem.turn.providers import PROVIDER_RULES, ProviderRule
from langgraph_toolmem.turn.step import Step

N = TypeVar("N", bound=StepNode)

Middleware = AgentMiddleware[Any, Any, Any]


class LoopGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """A `LoopGuard` in an agent: calls that repeat are answered right after the model; the others are executed."""

    def __init__(self, memory: ToolMemory, name: str) -> None:
        super().__init__()
        self._guard, self._name = LoopGuard(memory, partly=True), name

    @property
    def name(self) -> str:
        return self._name

    def after_model(self, state: Any, runtime: Any) -> Any:
        return self._guard.invoke(state, config_of())

    async def aafter_model(self, state: Any, runtime: Any) -> Any:
        return await self._guard.ainvoke(state, config_of())


class _Unpacked:
    """Attributes that an agent asks of each middleware, and a list of them does not have."""

    def __get__(self, _instance: object, _owner: object) -> Any:
        raise ConfigurationError(
            "middleware=[…] holds the list of tool_memory_middleware: write a star before it, "
            "middleware=[*tool_memory_middleware(memory)]."
        )


class MiddlewareList(list[Middleware]):
    """A list that says what to do where it is taken for one middleware."""

    wrap_tool_call = name = _Unpacked()


@options_named
def tool_memory_middleware(
    memory: ToolMemory,
    *,
    inside: Sequence[Middleware] = (),
    shortcut: bool | InertiaPolicy | InertiaShortcut = True,
    may_write: Iterable[str] = (),
    shadow: bool = False,
    trust_context: bool = False,
    prefetch: bool | Prefetch = False,
    recall: bool | RecallPolicy | MemoryRecall = False,
    suggest: bool | SITPolicy | SITSummary = False,
    planning: bool | SGASettings | SGAPlanner = False,
    reflect: bool | ReflectionWriter = False,
    preferences: bool | PreferenceGuide = False,
    tool_search: bool | ToolSearch | ToolRetriever = False,
    loop_guard: bool = False,
    steps: Iterable[Step[Any]] = (),
    rules: Iterable[ProviderRule] = PROVIDER_RULES,
    force: bool = False,
    name: str = "ToolMemory",
) -> list[Middleware]:
    """The whole list for ``create_agent(..., middleware=...)``: one middleware around yours, one inside.

    Around, from the outside in: reflection (sees only errors that nobody caught, and ends the run after all others),
    preferences (no shortcut goes to a tool that they leave out), the shortcut. Inside, at the model: recall,
    suggestions and planning (a skipped step needs none of them), the recorder (sees what is really executed), and tool
    search.

    A skipped step skips what stands inside around the model, too. So a middleware that takes tools away from the
    model (by permission, by state), or that chooses the model or a tool for it, goes in front of the list::

        middleware=[permissions, *tool_memory_middleware(memory, inside=[human_approval])]

    Each feature is True, False, its options, or a node of it: what a node takes as arguments, you give to the agent by
    handing over the node, as in ``recall=MemoryRecall(memory, budget=400)``.

    Args:
        memory: the memory; agents may share one.
        inside: your own middleware, in its order.
        shortcut: make calls without asking the model where past calls are clear enough; a policy says when.
            False: make none, only learn (and suggest).
        may_write: tools that change something and may be called without the model all the same; added to those of the
            policy.
        shadow: predict and keep the record, but make no calls.
        trust_context: settings in the run's context may loosen the policy as well (`InertiaSettings`).
        prefetch: begin look-ups that are likely, or complete in a streamed answer, before the model has answered,
            and serve their results if it asks for exactly them; `Prefetch` says which tools. Where something of yours
            inside wraps tool calls, or may take calls back after the model, only tools named there are prefetched. What
            stands in front of the list, and ``interrupt_before``, cannot be seen: name the tools that may be run before
            it. A look-up that fails early is made again by the model's call: one more execution.
        recall: show the model past runs with similar requests (`MemoryRecall`); a policy says how many.
        suggest: tell the model which tools came next in similar situations, and give it the summary tool
            (`SITSummary`); a policy says how.
        planning: show the model single steps that worked at such a point of other runs (`SGAPlanner`); settings say
            how, and whose model plans. Without settings no model is asked for it.
        reflect: keep each run as an entry at its end (`ReflectionWriter`), without a verdict; `memory.feedback`
            gives one later. Runs that an error ended are kept too, with what was done so far.
        preferences: leave out tools that this user rated badly on similar requests (`PreferenceGuide`), except
            what an ``LLMToolSelectorMiddleware`` inside always includes.
        tool_search: have the model find its tools by a search, with a list of tools that never changes, so the prompt
            cache stays whole (`ToolSearch`). Tools of your middleware inside are always offered; those of middleware
            in front of the list you name in ``ToolSearch(always=[…])``.
        loop_guard: answer a call that goes on giving the same result with a note in place of executing it, and end
            the run with a `LoopError` after three notes (`LoopGuard`).
        steps: of methods of your own; each says whether it stands around or inside.
        rules: models whose API refuses turns that they did not make; they get no shortcut.
        force: take shortcuts with such models all the same.
        name: of the middleware, where several memories work in one agent.

    Raises:
        ConfigurationError: an argument cannot work, such as an `inside` that has the memory's own in it.
    """
    yours = _yours(inside)
    if not isinstance(loop_guard, bool):
        raise ConfigurationError(f"loop_guard is True or False, not {loop_guard!r}.")
    shortcut = _shortcut(memory, shortcut, may_write, shadow, trust_context)
    found = _steps(
        memory,
        yours,
        shortcut,
        prefetch,
        recall,
        suggest,
        planning,
        reflect,
        preferences,
        tool_search,
        steps,
        rules,
        force,
    )
    last: list[Middleware] = []
    if loop_guard:
        last.append(LoopGuardMiddleware(memory, f"{name}LoopGuard"))
    if (deferred := _deferred(found)) is not None:
        last.append(ToolSearchMiddleware(deferred, f"{name}ToolSearch"))
    around = [step for step in found if step.place == "around"]
    at_model = [step for step in found if step.place == "inside"]
    core = memory.core
    server = _server(found)
    inner = steps_middleware(core, at_model, name=f"{name}Inside", recorder=True, outermost=not around, server=server)
    if not around:
        return MiddlewareList([*yours, inner, *last])
    outer = steps_middleware(core, around, name=name, recorder=False, outermost=True, inner=inner)
    return MiddlewareList([outer, *yours, inner, *last])


def ToolMemoryMiddleware(  # noqa: N802 - it is made like one
    memory: ToolMemory, *, name: str = "ToolMemory", **options: Any
) -> StepsMiddleware:
    """One middleware that does both ends, for a plain list: ``middleware=[ToolMemoryMiddleware(memory)]``.

    Alone it does all that `tool_memory_middleware` does. Beside others it costs something: what comes after
    it (behind it in the list) is skipped with a skipped model call, and changes executions after the recorder saw
    them (edited arguments, retries); what stands in front of it sees the memory's calls as the model's.

    Args:
        memory: the memory.
        name: of the middleware, where several memories work in one agent.
        options: as for `tool_memory_middleware`, but for `inside` and `tool_search`.

    Raises:
        ConfigurationError: an argument cannot work.
    """
    if "inside" in options:
        raise ConfigurationError(
            "ToolMemoryMiddleware stands alone; tool_memory_middleware(memory, inside=[…]) has both."
        )
    if options.get("tool_search"):
        raise ConfigurationError("tool_search needs a place of its own: use tool_memory_middleware(memory, …).")
    given: dict[str, Any] = {
        "shortcut": True,
        "may_write": (),
        "shadow": False,
        "trust_context": False,
        "prefetch": False,
        "recall": False,
        "suggest": False,
        "planning": False,
        "reflect": False,
        "preferences": False,
        "steps": (),
        "rules": PROVIDER_RULES,
        "force": False,
    }
    check_fields("ToolMemoryMiddleware", set(options), {*given, "tool_search"}, "option")
    given |= {**options, "tool_search": False}
    how = (given.pop(name) for name in ("shortcut", "may_write", "shadow", "trust_context"))
    found = _steps(memory, [], _shortcut(memory, *how), **given)
    return steps_middleware(memory.core, found, name=name, recorder=True, outermost=True, server=_server(found))


def _server(steps: Iterable[Step[Any]]) -> Prefetcher | None:
    return next((step.ahead for step in steps if isinstance(step, Shortcut)), None)


def _deferred(steps: Iterable[Step[Any]]) -> DeferredTools | None:
    return next((step.deferred for step in steps if isinstance(step, RevealTools)), None)


def _yours(inside: Any) -> list[Middleware]:
    try:
        yours = list(inside)
    except TypeError:
        raise ConfigurationError(f"inside is a list of middleware, not {type(inside).__name__}.") from None
    for index, middleware in enumerate(yours):
        if isinstance(middleware, StepsMiddleware):
            raise ConfigurationError(f"inside[{index}] is the memory's own; tool_memory_middleware adds it.")
        if isinstance(middleware, (list, tuple)):
            raise ConfigurationError(f"inside[{index}] is a list; write a star before it: inside=[*…].")
        if not isinstance(middleware, AgentMiddleware):
            raise ConfigurationError(f"inside[{index}] is a {type(middleware).__name__}, not an AgentMiddleware.")
    return yours


def _models_of(middleware: Middleware) -> Iterable[Any]:
    """Models that a middleware may put in place of the agent's: fallbacks, or those that it chooses from."""
    models = getattr(middleware, "models", ())
    return models.values() if isinstance(models, Mapping) else models if isinstance(models, (list, tuple)) else ()


def _steps(
    memory: ToolMemory,
    yours: Sequence[Middleware],
    shortcut: Any,
    prefetch: Any,
    recall: Any,
    suggest: Any,
    planning: Any,
    reflect: Any,
    preferences: Any,
    tool_search: Any,
    steps: Iterable[Step[Any]],
    rules: Iterable[ProviderRule],
    force: bool,
) -> list[Step[Any]]:
    """The steps, from the outside in."""
    checked(memory, "tool_memory_middleware")
    always = [name for m in yours if isinstance(m, LLMToolSelectorMiddleware) for name in m.always_include]
    theirs = [name for m in yours for tool in getattr(m, "tools", ()) if (name := name_of(tool)) is not None]
    fallbacks = [model for m in yours for model in _models_of(m)]
    found: list[StepNode | None] = [
        _node("reflect", reflect, ReflectionWriter, memory),
        _node("preferences", preferences, PreferenceGuide, memory, keep=always),
        _node(
            "shortcut", _silent(memory, shortcut, prefetch), InertiaShortcut, memory, InertiaPolicy, "policy", tools=()
        ),
        _node("recall", recall, MemoryRecall, memory, RecallPolicy, "policy"),
        _node("suggest", suggest, SITSummary, memory, SITPolicy, "policy"),
        _node("planning", planning, SGAPlanner, memory, SGASettings, "settings"),
        _node("tool_search", tool_search, ToolRetriever, memory, ToolSearch, "search", always=[*always, *theirs]),
    ]
    for node in found:
        if node is not None and isinstance(node.step, Shortcut):
            node.step.guard_providers(fallbacks, rules, force=force)
            node.step.run_ahead(prefetch, interceptors=gates_of(yours))
    own = list(steps)
    for each in own:
        _check_step(each)
    return [*(node.step for node in found if node is not None), *own]


def _shortcut(memory: ToolMemory, shortcut: Any, may_write: Any, shadow: Any, trust_context: Any) -> Any:
    """Return the shortcut with the short ways to its policy taken."""
    names = names_given("may_write", may_write)
    for option, value in (("shadow", shadow), ("trust_context", trust_context)):
        if not isinstance(value, bool):
            raise ConfigurationError(f"{option} is True or False, not {value!r}.")
    if not (names or shadow or trust_context):
        return shortcut
    if shortcut is not True and not isinstance(shortcut, InertiaPolicy):
        raise ConfigurationError(
            "may_write, shadow and trust_context are for the shortcut that is made here: with shortcut=True or a "
            "policy. An InertiaShortcut of your own has its policy and its trust_context, and shortcut=False has none."
        )
    policy = method_of(memory, Inertia, "shortcut").policy if shortcut is True else shortcut
    policy = policy.with_(may_write=policy.may_write | set(names), shadow=policy.shadow or shadow)
    return InertiaShortcut(memory, (), policy=policy, trust_context=trust_context)


def _silent(memory: ToolMemory, shortcut: Any, prefetch: Any) -> Any:
    """Prefetching needs the shortcut's decisions, also where it makes no calls."""
    if shortcut is not False or prefetch is False:
        return shortcut
    return method_of(memory, Inertia, "prefetch").policy.with_(shadow=True)


def _check_step(step: Any) -> None:
    if not isinstance(step, Step):
        raise ConfigurationError(f"steps holds {step!r}, which is no Step.")


def _node(
    what: str,
    given: Any,
    kind: Callable[..., N],
    memory: ToolMemory,
    options: type | None = None,
    name: str = "",
    **rest: Any,
) -> N | None:
    """The node of a feature: given, or made of its options; None if it is switched off."""
    if given is False:
        return None
    if given is True:
        return kind(memory, **rest)
    if isinstance(kind, type) and isinstance(given, kind):
        return cast(N, given)
    if options is not None and isinstance(given, options):
        how = given.options() if isinstance(given, SGASettings) else {name: given}
        return kind(memory, **how, **rest)
    of = "" if options is None else f"a {options.__name__} or "
    raise ConfigurationError(f"{what} is True, False, {of}a {getattr(kind, '__name__', kind)}, not {given!r}.")
