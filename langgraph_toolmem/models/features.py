"""The features of a memory at a model, from the options of `tool_memory_middleware` and `with_tool_memory`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from langgraph_toolmem.atoms.step import SGASettings
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.entries import RecallPolicy
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.context import PrefetchedContext
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Interceptors, Prefetch
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.navigator.deferred import ToolSearch
from langgraph_toolmem.nodes.steps import (
    InertiaShortcut,
    MemoryRecall,
    PreferenceGuide,
    ReflectionWriter,
    SGAPlanner,
    SITSummary,
    ToolRetriever,
    method_of,
)
from langgraph_toolmem.sit.suggest import SITPolicy
from langgraph_toolmem.turn.step import Step, StepNode

N = TypeVar("N", bound=StepNode)

NO_INTERCEPTORS: Final = Interceptors()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The host's code around the memory.

    Attributes:
        models: models that may be asked besides the agent's own, such as fallbacks.
        interceptors: what may hold a tool call back.
        always: names of tools that are always offered.
        tools: names of tools of the host's middleware.
        recorded: True if the memory is at the tools too, and serves the results of look-ups.
    """

    models: tuple[Any, ...] = ()
    interceptors: Interceptors = NO_INTERCEPTORS
    always: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    recorded: bool = False


def steps_for(
    memory: ToolMemory,
    around: Surroundings,
    *,
    shortcut: bool | InertiaPolicy | InertiaShortcut = True,
    prefetch: bool | Prefetch = False,
    context: bool | PrefetchedContext = False,
    recall: bool | RecallPolicy | MemoryRecall = False,
    suggest: bool | SITPolicy | SITSummary = False,
    planning: bool | SGASettings | SGAPlanner = False,
    reflect: bool | ReflectionWriter = False,
    preferences: bool | PreferenceGuide = False,
    tool_search: bool | ToolSearch | ToolRetriever = False,
    steps: Iterable[Step[Any]] = (),
) -> list[Step[Any]]:
    """Return the steps of the features, in the order in which they are asked at a model call.

    Preferences come first: no shortcut goes to a tool that they leave out. Hints come behind the shortcut: a skipped
    model call needs none of them.

    Raises:
        ConfigurationError: an option cannot work.
    """
    alone = "prefetch" if prefetch is not False else "context" if context is not False else ""
    if shortcut is False and alone:  # they need the shortcut's decisions too
        shortcut = method_of(memory, Inertia, alone).policy.with_(shadow=True)
    acts = _node("shortcut", shortcut, InertiaShortcut, memory, policy=InertiaPolicy, tools=())
    if acts is not None:
        acts.step.models = (*acts.step.models, *around.models)
        acts.step.enable_prefetch(prefetch, around.interceptors)
        acts.step.enable_context(context, around.interceptors, recorded=around.recorded)
    offered = [*around.always, *around.tools]
    nodes: list[StepNode | None] = [
        _node("reflect", reflect, ReflectionWriter, memory),
        _node("preferences", preferences, PreferenceGuide, memory, keep=around.always),
        acts,
        _node("recall", recall, MemoryRecall, memory, policy=RecallPolicy),
        _node("suggest", suggest, SITSummary, memory, policy=SITPolicy),
        _node("planning", planning, SGAPlanner, memory, settings=SGASettings),
        _node("tool_search", tool_search, ToolRetriever, memory, search=ToolSearch, always=offered),
    ]
    asked: list[Step[Any]] = [node.step for node in nodes if node is not None]
    given = list(steps)
    for step in given:
        if not isinstance(step, Step):
            raise ConfigurationError(f"steps holds {step!r}, which is no Step.")
    kinds = {type(step) for step in given}
    for method in memory.core.listeners:
        asked += [kind(method) for kind in method.steps if kind not in kinds]
    return asked + given


def _node(feature: str, given: Any, kind: Callable[..., N], memory: ToolMemory, **arguments: Any) -> N | None:
    """Return the node of a feature: given, or made of its options; None if it is switched off.

    An argument that is a class is the class of the options, under the name of the node's argument.
    """
    options = {name: value for name, value in arguments.items() if isinstance(value, type)}
    fixed = {name: value for name, value in arguments.items() if name not in options}
    if given is False:
        return None
    if given is True:
        return kind(memory, **fixed)
    if isinstance(kind, type) and isinstance(given, kind):
        return cast("N", given)
    for name, expected in options.items():
        if isinstance(given, expected):
            return kind(memory, **{name: given}, **fixed)
    kinds = " or ".join(getattr(known, "__name__", str(known)) for known in (*options.values(), kind))
    raise ConfigurationError(f"{feature} must be True, False or an instance of {kinds}, not {given!r}.")
