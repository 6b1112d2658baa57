"""Which tools a model is shown for a request: complete chains before isolated hits, within a bound.

A chain is selected whole or not at all: a tool without those that give what it needs is of no use. Each tool comes with
its reason in one line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langgraph_toolmem.navigator.plan.chains import Chain, ChainStep, Plan
from langgraph_toolmem.navigator.tool_search.hit import ToolHit

MAX_ASKED: Final = 120
"""Characters of the model's own words that a reason repeats."""


@dataclass(frozen=True, slots=True)
class Reroute:
    """Another chain after a failure.

    Attributes:
        failed: the tool that failed.
        chain: how to go on.
        fallback: the tool that takes its place; "" if the chain goes round it.
    """

    failed: str
    chain: Chain
    fallback: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a model is shown.

    Attributes:
        tools: name -> reason, the most important first.
        chains: those that are in it whole.
        cut: chains that did not fit into the bound.
    """

    tools: Mapping[str, str] = field(default_factory=dict)
    chains: tuple[tuple[str, ...], ...] = ()
    cut: tuple[tuple[str, ...], ...] = ()

    def to_event(self, of: int) -> dict[str, Any]:
        """Plain values for a stream event; `of`: how many tools there are."""
        return {
            "offered": dict(self.tools),
            "of": of,
            "chains": [list(chain) for chain in self.chains],
            "cut": [list(chain) for chain in self.cut],
        }


def select_tools(
    plan: Plan | None,
    hits: Sequence[ToolHit],
    *,
    most: int,
    always: Collection[str] = (),
    called: Mapping[str, bool] | None = None,
    reroutes: Sequence[Reroute] = (),
    asked: Mapping[str, str] | None = None,
    earlier: Iterable[str] = (),
    available: Collection[str] | None = None,
) -> Selection:
    """The tools for a model call: `always`, the chains of the plan, tools called earlier in the run, and hits that are
    in no chain, in this order and `most` at most. On top comes what the turn brings: other chains after failures, what
    the model asked for, and tools that were called without being shown. So the selection of a turn only grows, and a
    provider's prompt cache holds as long as nothing happens.

    Args:
        plan: chains for the request; None: there are none.
        hits: tools that fit the request, best first.
        most: tools that are shown for the request, at most; `always` counts, but stays even if it is more.
        always: tools that are always shown.
        called: tools called in this user turn -> whether the last call went well.
        reroutes: other chains after failures.
        asked: tools that the model searched for in this turn -> the reason.
        earlier: tools called earlier in the run, the latest first.
        available: the tools there are; all if None.
    """
    chosen: dict[str, str] = {}
    whole: list[tuple[str, ...]] = []
    cut: list[tuple[str, ...]] = []
    scores = {hit.name: hit.score for hit in hits}

    def there(tool: str) -> bool:
        return available is None or tool in available

    def take(tool: str, reason: str) -> None:
        if there(tool):
            chosen.setdefault(tool, reason)

    def take_chain(chain: Chain, reasons: Mapping[str, str]) -> None:
        whole.append(chain.tools)
        for tool in reversed(chain.tools):
            take(tool, reasons[tool])

    for tool in always:
        take(tool, "always offered")
    for chain in plan.chains if plan is not None else ():
        if not all(map(there, chain.tools)):
            continue
        if len(chosen) + sum(tool not in chosen for tool in chain.tools) > most:
            cut.append(chain.tools)
        else:
            take_chain(chain, _reasons(chain, _fits(scores.get(chain.target))))
    for tool in earlier:
        if len(chosen) < most:
            take(tool, "called earlier in this run")
    for hit in hits:
        if len(chosen) < most:
            take(hit.name, _fits(hit.score))
    for reroute in reroutes:
        if all(map(there, reroute.chain.tools)):
            take_chain(reroute.chain, _round(reroute))
    for tool, reason in (asked or {}).items():
        take(tool, reason)
    for tool, ok in (called or {}).items():
        take(tool, "called in this turn" if ok else "called in this turn, and it failed")
    return Selection(chosen, tuple(dict.fromkeys(whole)), tuple(dict.fromkeys(cut)))


def searched_for(found: Selection, words: str) -> dict[str, str]:
    """The tools that a search of the model brought, each with the reason."""
    text = " ".join(words.split())
    text = text if len(text) <= MAX_ASKED else f"{text[: MAX_ASKED - 1]}…"
    return {tool: f'the model searched for "{text}": {reason}' for tool, reason in found.tools.items()}


def _reasons(chain: Chain, target: str) -> dict[str, str]:
    """Why each tool of a chain is in it; the target for a reason of its own."""
    others = len(chain.steps) - 1
    needs = f"; needs {others} other{'' if others == 1 else 's'} first" if others else ""
    found = {step.tool: _gives(step, chain) for step in chain.steps}
    return {**found, chain.target: f"{target}{needs}"}


def _gives(step: ChainStep, chain: Chain) -> str:
    if not step.gives:
        return f"comes before {chain.target}"
    gift = step.gives[0]
    end = "" if gift.tool == chain.target else f" on the way to {chain.target}"
    return f"gives {gift.output or 'its result'} to {gift.tool}{end}"


def _fits(score: float | None) -> str:
    return "fits the request" if score is None else f"fits the request ({score:.2f})"


def _round(reroute: Reroute) -> dict[str, str]:
    """The reasons of another chain: each says what it goes round."""
    reasons = _reasons(reroute.chain, "ends another way")
    found = {tool: f"{reason}, without {reroute.failed}, which failed" for tool, reason in reasons.items()}
    if reroute.fallback:
        found[reroute.fallback] = f"can stand in for {reroute.failed}, which failed"
    return found
