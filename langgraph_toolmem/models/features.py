"""The features of a memory at a model, from the options of `tool_memory_middleware` and `with_tool_memory`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from langgraph_toolmem.atoms.step import SGASettings
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.entries import RecallPolicy
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.apart import Interceptors
from langgraph_toolmem.inertia.context import PrefetchedContext
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Prefetch
from langgraph_toolmem.inertia.step import Shortcut
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.navigator.deferred import ToolSearch
from langgraph_toolmem.nodes.loop_guard import LoopGuard
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

NO_INTERCEPTORS: Final = Interceptors()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The host's code around the memory.

    Attributes:
        models: models that may be asked besides the agent's own, such as fallbacks.
        interceptors: everything that may hold a tool call back.
        always: names of tools that are always offered.
        tools: names of tools of the host's middleware.
        recorded: True if the memory is at the tools too, and serves the results of look-ups.
        takes_tools: True if the memory may give the agent tools of its own, such as the summary tool.
    """

    models: tuple[Any, ...] = ()
    interceptors: Interceptors = NO_INTERCEPTORS
    always: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    recorded: bool = False
    takes_tools: bool = True


@dataclass(frozen=True, slots=True)
class FeatureKind:
    """The values that the option of a feature takes, besides True and False.

    Attributes:
        node: class of the node that the feature is made of.
        settings: class of its settings; None if it has none.
        argument: the node's argument for the settings.
    """

    node: type[StepNode]
    settings: type | None = None
    argument: str = ""

    @property
    def classes(self) -> tuple[type, ...]:
        """The classes of the option's values."""
        return (self.node,) if self.settings is None else (self.settings, self.node)


FEATURES: Final[Mapping[str, FeatureKind]] = {
    "shortcut": FeatureKind(InertiaShortcut, InertiaPolicy, "policy"),
    "recall": FeatureKind(MemoryRecall, RecallPolicy, "policy"),
    "suggest": FeatureKind(SITSummary, SITPolicy, "policy"),
    "planning": FeatureKind(SGAPlanner, SGASettings, "settings"),
    "reflect": FeatureKind(ReflectionWriter),
    "preferences": FeatureKind(PreferenceGuide),
    "tool_search": FeatureKind(ToolRetriever, ToolSearch, "search"),
}
"""Features with a node of their own."""
SETTINGS: Final[Mapping[str, type]] = {
    "prefetch": Prefetch,
    "context": PrefetchedContext,
    "loop_guard": LoopGuard,
}
"""Features that work within another node, or next to the memory."""
READERS: Final = ("recall", "planning", "preferences")
"""Features that read the runs kept by `reflect`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """The features of a memory at a model; `tool_memory_middleware` describes each.

    Raises:
        ConfigurationError: an option is neither True nor False nor of an accepted class.
    """

    shortcut: bool | InertiaPolicy | InertiaShortcut = True
    prefetch: bool | Prefetch = False
    context: bool | PrefetchedContext = False
    recall: bool | RecallPolicy | MemoryRecall = False
    suggest: bool | SITPolicy | SITSummary = False
    planning: bool | SGASettings | SGAPlanner = False
    reflect: bool | ReflectionWriter | None = None
    preferences: bool | PreferenceGuide = False
    tool_search: bool | ToolSearch | ToolRetriever = False
    loop_guard: bool | LoopGuard = False
    steps: Iterable[Step[Any]] = ()

    def __post_init__(self) -> None:
        """Checks types, and turns `reflect` on for the features that read the kept runs."""
        if self.reflect is None:
            # Otherwise a beginner's `recall=True` would never find a run, because runs would not be kept.
            object.__setattr__(self, "reflect", self._reads_kept_runs())
        for feature, kind in FEATURES.items():
            _check_option(feature, getattr(self, feature), kind.classes)
        for feature, settings in SETTINGS.items():
            _check_option(feature, getattr(self, feature), (settings,))
        steps = tuple(self.steps)
        for step in steps:
            if not isinstance(step, Step):
                raise ConfigurationError(f"steps holds {step!r}, which is no Step.")
        object.__setattr__(self, "steps", steps)

    def _reads_kept_runs(self) -> bool:
        return any(self.has(feature) for feature in READERS)

    def has(self, feature: str) -> bool:
        """Return True if a feature is switched on."""
        return getattr(self, feature) is not False

    def node(self, feature: str, memory: ToolMemory, **arguments: Any) -> StepNode | None:
        """Return the node of a feature: the one that was given, or made of its settings; None if it is off.

        Args:
            feature: one of `FEATURES`.
            memory: of the node.
            arguments: further ones of a node that is made here.
        """
        given, kind = getattr(self, feature), FEATURES[feature]
        if given is False:
            return None
        if isinstance(given, kind.node):
            return given
        if given is not True:
            arguments[kind.argument] = given
        node: Any = kind.node
        made: StepNode = node(memory, **arguments)
        return made


def _check_option(feature: str, given: Any, classes: tuple[type, ...]) -> None:
    if not isinstance(given, (bool, *classes)):
        kinds = " or ".join([known.__name__ for known in classes])
        raise ConfigurationError(f"{feature} must be True, False or an instance of {kinds}, not {given!r}.")


def steps_for(memory: ToolMemory, around: Surroundings, options: MemoryOptions) -> list[Step[Any]]:
    """Return the steps of the features, in the order in which they are asked at a model call.

    Preferences come first, so that the shortcut never calls a tool that they leave out. Hints come after the shortcut,
    because a skipped model call does not need them.

    Raises:
        ConfigurationError: a feature needs a method that the memory does not have.
    """
    nodes = [
        options.node("reflect", memory),
        options.node("preferences", memory, keep=around.always),
        _shortcut(memory, around, options),
        options.node("recall", memory),
        options.node("suggest", memory, summary_tool=around.takes_tools),
        options.node("planning", memory),
        options.node("tool_search", memory, always=[*around.always, *around.tools]),
    ]
    asked: list[Step[Any]] = [node.step for node in nodes if node is not None]
    # A step that was given with arguments of its own takes the place of the one its method would make.
    given_kinds = {type(step) for step in options.steps}
    for method in memory.core.listeners:
        for kind in method.steps:
            if kind not in given_kinds:
                asked.append(kind(method))
    return [*asked, *options.steps]


def _shortcut(memory: ToolMemory, around: Surroundings, options: MemoryOptions) -> StepNode | None:
    """Return the node of the shortcut; in shadow mode if only look-ups before the model need its decisions."""
    alone = _feature_on_decisions(options)
    if alone and not options.has("shortcut"):
        policy = method_of(memory, Inertia, alone).policy
        # It predicts and never acts: the look-ups are chosen by its decisions.
        options = replace(options, shortcut=policy.with_(shadow=True))
    # Without tools of its own: here the model call has the tools that the request offers.
    node = options.node("shortcut", memory, tools=())
    if node is not None:
        step = cast("Shortcut", node.step)
        step.models = (*step.models, *around.models)
        step.enable_prefetch(options.prefetch, around.interceptors, recorded=around.recorded)
        step.enable_context(options.context, around.interceptors, recorded=around.recorded)
    return node


def _feature_on_decisions(options: MemoryOptions) -> str:
    """Return a feature that is on and needs the shortcut's decisions; "" if there is none."""
    for feature in ("prefetch", "context"):
        if options.has(feature):
            return feature
    return ""
