"""Candidates for what a model is shown: tools and chains that fit a request, and other chains for what failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.plan.chains import Plan
from langgraph_toolmem.navigator.select.selection import Reroute
from langgraph_toolmem.navigator.tool_search.hit import ToolHit, targets_of
from langgraph_toolmem.runs.run import Run, UserMessage

if TYPE_CHECKING:
    from langgraph_toolmem.navigator import Navigator

MOST: Final = 20
"""Tools that a model is shown, if nothing else is said."""
MAX_QUERY: Final = 4000
"""Characters of a request that are searched with."""


@dataclass(frozen=True, slots=True)
class Candidates:
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


def find_candidates(
    navigator: Navigator,
    request: str,
    names: Collection[str],
    *,
    most: int,
    targets: int,
    user_id: str | None = None,
) -> Candidates:
    """The tools that fit a request, and complete chains to the best of them.

    Args:
        navigator: it knows the tools.
        request: in words.
        names: the tools there are.
        most: hits, at most.
        targets: hits that get a chain.
        user_id: whose finished runs have a say, where the namespace keeps users apart.

    Raises:
        EmbedderChangedError: stored vectors were made by another embedder.
    """
    if not request.strip() or not names:
        return Candidates()
    hits = navigator.search(request[:MAX_QUERY], k=most, available=names, user_id=user_id)
    wanted = targets_of(hits)[:targets]
    return Candidates(tuple(hits), navigator.plan(target=wanted, available=names, k=1)) if wanted else Candidates()


def turn_candidates(
    navigator: Navigator,
    where: Progress,
    names: Collection[str],
    *,
    most: int,
    targets: int,
    user_id: str | None = None,
) -> Candidates:
    """What fits the user's latest words; if nothing does ("yes, please"), what fits all they said."""
    found = find_candidates(navigator, where.request, names, most=most, targets=targets, user_id=user_id)
    if found.hits or where.before == where.request:
        return found
    return find_candidates(navigator, where.before[-MAX_QUERY:], names, most=most, targets=targets, user_id=user_id)


def find_reroutes(
    navigator: Navigator, found: Candidates, called: Mapping[str, bool], names: Collection[str]
) -> tuple[Reroute, ...]:
    """Another chain for each that has a tool in it whose last call failed, else for the tool itself."""
    failed = [tool for tool, ok in called.items() if not ok]
    done = [tool for tool, ok in called.items() if ok]
    chains = found.plan.chains if found.plan is not None else ()
    reroutes = []
    for tool in failed:
        if tool not in names:
            continue
        for chain in [chain for chain in chains if tool in chain.tools] or _alone(navigator, tool, names):
            another = navigator.reroute(chain, failed, available=names, done=done)
            if another.chain is not None:
                reroutes.append(Reroute(tool, another.chain, another.fallback))
    return tuple(reroutes)


def _alone(navigator: Navigator, tool: str, names: Collection[str]) -> tuple[Any, ...]:
    try:
        return navigator.plan(target=tool, available=names, k=1).chains[:1]
    except ConfigurationError:  # it is no known tool
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
