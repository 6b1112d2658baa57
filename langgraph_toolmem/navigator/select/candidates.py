"""Looking up in a memory what a model is to be offered; shared by the node, the middleware and the search tool."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.plan.chains import Plan
from langgraph_toolmem.navigator.select.selection import Way
from langgraph_toolmem.runs.run import OWN_TOOLS, Run, UserMessage

if TYPE_CHECKING:
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.navigator.tool_search.hit import ToolHit
    from langgraph_toolmem.runs.tools import ToolSpec

MOST: Final = 20
"""Tools that a model is offered, if nothing else is said."""
LEAST_TARGET: Final = 0.3
"""Part of the best hit's score that a hit must reach to bring its chain. To be offered it need not reach any: on public
requests a bound of 0.05 lost a fifth of the needed tools where there are few tools, and of 20 it saved a half."""
MAX_QUERY: Final = 4000
"""Characters of a request that are searched with."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """What fits a request.

    Attributes:
        hits: tools, best first.
        plan: chains to the best of them; None if nothing fits.
    """

    hits: tuple[ToolHit, ...] = ()
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands.

    Attributes:
        request: the user's latest words.
        before: the user's words so far, the latest ones included.
        called: tools called in this user turn -> whether the last call went well.
        earlier: tools called before it, the latest first.
    """

    request: str
    before: str
    called: Mapping[str, bool]
    earlier: tuple[str, ...]

    @property
    def failed(self) -> frozenset[str]:
        """Tools whose last call in this turn failed."""
        return frozenset(tool for tool, ok in self.called.items() if not ok)


def take_in(memory: ToolMemory, specs: Mapping[str, ToolSpec]) -> None:
    """Has the memory know the tools of an agent: only what it knows can be found."""
    with memory._lock:
        memory._adopt(specs)


def known_tools(memory: ToolMemory) -> frozenset[str]:
    """Names of the tools that a memory knows."""
    with memory._lock:
        return frozenset(memory._engine.specs)


def look_up(
    memory: ToolMemory,
    request: str,
    names: Collection[str],
    *,
    most: int,
    targets: int,
    user_id: str | None = None,
) -> LookUp:
    """The tools that fit a request, and complete chains to the best of them.

    Args:
        memory: it knows the tools.
        request: in words.
        names: the tools there are.
        most: hits, at most.
        targets: hits that get a chain.
        user_id: whose finished runs have a say, where the namespace keeps users apart.

    Raises:
        EmbedderChangedError: stored vectors were made by another embedder.
    """
    if not request.strip() or not names:
        return LookUp()
    hits = memory.search_tools(request[:MAX_QUERY], k=most, available=names, user_id=user_id)
    wanted = targets_of(hits)[:targets]
    return LookUp(tuple(hits), memory.plan(target=wanted, available=names, k=1)) if wanted else LookUp()


def targets_of(hits: Sequence[ToolHit]) -> list[str]:
    """The tools that a request is about, of those that fit it: the ones that are about as likely as the likeliest."""
    best = max((hit.score for hit in hits), default=0.0)
    return [hit.name for hit in hits if hit.score >= LEAST_TARGET * best]


def look_up_turn(
    memory: ToolMemory,
    where: Progress,
    names: Collection[str],
    *,
    most: int,
    targets: int,
    user_id: str | None = None,
) -> LookUp:
    """What fits the user's latest words; if nothing does ("yes, please"), what fits all they said."""
    found = look_up(memory, where.request, names, most=most, targets=targets, user_id=user_id)
    if found.hits or where.before == where.request:
        return found
    return look_up(memory, where.before[-MAX_QUERY:], names, most=most, targets=targets, user_id=user_id)


def other_ways(
    memory: ToolMemory, found: LookUp, called: Mapping[str, bool], names: Collection[str]
) -> tuple[Way, ...]:
    """Ways round the tools whose last call failed: for each chain that has one in it, else for the tool itself."""
    failed = [tool for tool, ok in called.items() if not ok]
    done = [tool for tool, ok in called.items() if ok]
    chains = found.plan.chains if found.plan is not None else ()
    ways = []
    for tool in failed:
        if tool not in names:
            continue
        for chain in [chain for chain in chains if tool in chain.tools] or _alone(memory, tool, names):
            another = memory.reroute(chain, failed, available=names, done=done)
            if another.chain is not None:
                ways.append(Way(tool, another.chain, another.stands_in))
    return tuple(ways)


def _alone(memory: ToolMemory, tool: str, names: Collection[str]) -> tuple[Any, ...]:
    try:
        return memory.plan(target=tool, available=names, k=1).chains[:1]
    except ConfigurationError:  # the memory does not know it
        return ()


def progress_of(run: Run) -> Progress:
    """Where a run stands after its messages."""
    said = [index for index, event in enumerate(run.events) if isinstance(event, UserMessage)]
    begin = said[-1] if said else 0
    texts = [event.text for event in run.events if isinstance(event, UserMessage)]
    called: dict[str, bool] = {}
    earlier: dict[str, None] = {}
    for index, event in enumerate(run.events):
        for step in () if isinstance(event, UserMessage) else event.steps:
            if step.status == "unanswered":
                continue
            if index < begin:
                earlier.pop(step.tool, None)
                earlier[step.tool] = None
            elif step.status == "rejected":  # never executed: that says nothing of the tool
                called.setdefault(step.tool, True)
            else:
                called[step.tool] = step.status == "ok"
    return Progress(texts[-1] if texts else "", "\n".join(texts), called, tuple(reversed(earlier)))


def check_offering(most: object, targets: object, always: object) -> tuple[str, ...]:
    """The names in `always`. Raises ConfigurationError if an argument cannot work."""
    for name, value in (("most", most), ("targets", targets)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigurationError(f"{name} is a whole number from 1, not {value!r}.")
    names = () if isinstance(always, (str, bytes)) or not isinstance(always, Iterable) else tuple(always)
    if not all(isinstance(each, str) for each in names) or (not names and always not in ((), [], set(), frozenset())):
        raise ConfigurationError(f"always is a list of names of tools, not {always!r}.")
    return tuple(name for name in dict.fromkeys(names) if name not in OWN_TOOLS)
