"""The middlewares of the memory and the host's own, in the right order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware, LLMToolSelectorMiddleware, ModelFallbackMiddleware

from langgraph_toolmem.atoms.settings import SGASettings
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.middleware.chains import ToolChainMiddleware
from langgraph_toolmem.middleware.inertia import InertiaMiddleware
from langgraph_toolmem.middleware.preferences import PreferenceMiddleware
from langgraph_toolmem.middleware.recall import RecallMiddleware
from langgraph_toolmem.middleware.recorder import RecorderMiddleware
from langgraph_toolmem.middleware.reflection import ReflectionMiddleware
from langgraph_toolmem.middleware.sga import SGAMiddleware
from langgraph_toolmem.middleware.sit import SITMiddleware
from langgraph_toolmem.navigator.select.candidates import MOST
from langgraph_toolmem.nodes.preferences import name_of
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.turn.providers import PROVIDER_RULES, ProviderRule

_OURS: Final = (
    ReflectionMiddleware,
    PreferenceMiddleware,
    ToolChainMiddleware,
    InertiaMiddleware,
    RecallMiddleware,
    SITMiddleware,
    SGAMiddleware,
    RecorderMiddleware,
)


def tool_memory_middleware(
    memory: ToolMemory,
    *,
    inside: Sequence[AgentMiddleware[Any, Any, Any]] = (),
    policy: InertiaPolicy | None = None,
    shortcut: bool = True,
    suggest: bool | SITPolicy = False,
    recall: bool | RecallPolicy = False,
    planning: bool | SGASettings = False,
    reflect: bool = False,
    preferences: bool = False,
    chains: bool | int = False,
    rules: Iterable[ProviderRule] = PROVIDER_RULES,
    force: bool = False,
) -> list[AgentMiddleware[Any, Any, Any]]:
    """The whole list for ``create_agent(..., middleware=...)``: shortcut first, yours inside, recorder last.

    From the outside in: reflection (sees only errors that nobody caught, and ends the run after all others),
    preferences and chains (no shortcut goes to a tool that they leave out), shortcut, yours, recall, suggestions and
    planning (a skipped step needs none of them; planning last, so that its guard repeats nothing but the model call),
    recorder (sees what is really executed). ::

        [ReflectionMiddleware, PreferenceMiddleware, ToolChainMiddleware, InertiaMiddleware,
         *inside, RecallMiddleware, SITMiddleware, SGAMiddleware, RecorderMiddleware]

    A skipped step skips what stands inside around the model, too. So a middleware that takes tools away from the
    model (by permission, by state), or that chooses the model or a tool for it, goes in front of the list::

        middleware=[permissions, *tool_memory_middleware(memory, inside=[human_approval])]

    Args:
        memory: the memory; agents may share one.
        inside: your own middleware, in its order.
        policy: when the shortcut may act; the memory's own if None.
        shortcut: False: make no calls, only learn (and suggest).
        suggest: tell the model which tools came next in similar situations, and give it the summary tool
            (`SITMiddleware`); a policy says how.
        recall: show the model past runs with similar requests (`RecallMiddleware`); a policy says how many.
        planning: show the model single steps that worked at such a point of other runs (`SGAMiddleware`); settings say
            how, and whose model plans. Without settings no model is asked for it.
        reflect: keep each run as an entry at its end (`ReflectionMiddleware`), without a verdict; `memory.feedback`
            gives one later. To judge runs by themselves, put one with a `verdict` in front of the list instead.
        preferences: leave out tools that this user rated badly on similar requests (`PreferenceMiddleware`), except
            what an ``LLMToolSelectorMiddleware`` inside always includes. For other options, put one in front of the
            list instead.
        chains: offer the model only the tools that a request needs, as complete chains (`ToolChainMiddleware`), where
            there are more than 20; a number says how many. The tools of your middleware inside are always offered.
        rules: models whose API refuses turns that they did not make; they get no shortcut.
        force: take shortcuts with such models all the same.

    Raises:
        ConfigurationError: an argument cannot work, such as an `inside` that has the memory's own in it.
    """
    try:
        yours = list(inside)
    except TypeError:
        raise ConfigurationError(f"inside is a list of middleware, not {type(inside).__name__}.") from None
    for index, middleware in enumerate(yours):
        if isinstance(middleware, _OURS):
            raise ConfigurationError(
                f"inside[{index}] is the memory's own {type(middleware).__name__}; tool_memory_middleware adds it."
            )
        if not isinstance(middleware, AgentMiddleware):
            raise ConfigurationError(f"inside[{index}] is a {type(middleware).__name__}, not an AgentMiddleware.")
    if not isinstance(suggest, (bool, SITPolicy)):
        raise ConfigurationError(f"suggest is True, False or a SITPolicy, not {type(suggest).__name__}.")
    if not isinstance(recall, (bool, RecallPolicy)):
        raise ConfigurationError(f"recall is True, False or a RecallPolicy, not {type(recall).__name__}.")
    if not isinstance(planning, (bool, SGASettings)):
        raise ConfigurationError(f"planning is True, False or SGASettings, not {type(planning).__name__}.")
    if not isinstance(reflect, bool):
        raise ConfigurationError(f"reflect is True or False, not {reflect!r}.")
    if not isinstance(preferences, bool):
        raise ConfigurationError(f"preferences is True or False, not {preferences!r}.")
    if type(chains) not in (bool, int) or (chains < 1 and chains is not False):
        raise ConfigurationError(f"chains is True, False or the number of tools to offer, not {chains!r}.")
    always = [name for m in yours if isinstance(m, LLMToolSelectorMiddleware) for name in m.always_include]
    theirs = [name for m in yours for tool in getattr(m, "tools", ()) if (name := name_of(tool)) is not None]
    if recall:
        yours.append(RecallMiddleware(memory, policy=recall if isinstance(recall, RecallPolicy) else None))
    if suggest:
        yours.append(SITMiddleware(memory, policy=suggest if isinstance(suggest, SITPolicy) else None))
    if planning:
        yours.append(SGAMiddleware(memory, **(planning.options() if isinstance(planning, SGASettings) else {})))
    fallbacks = [model for m in yours if isinstance(m, ModelFallbackMiddleware) for model in m.models]
    first = InertiaMiddleware(memory, policy=policy, recorded=True, rules=rules, force=force, fallbacks=fallbacks)
    around: list[AgentMiddleware[Any, Any, Any]] = [ReflectionMiddleware(memory)] if reflect else []
    if preferences:
        around.append(PreferenceMiddleware(memory, keep=always))
    if chains:
        most = MOST if chains is True else chains
        around.append(ToolChainMiddleware(memory, most=most, always=[*always, *theirs]))
    if shortcut:
        around.append(first)
    return [*around, *yours, RecorderMiddleware(memory)]
